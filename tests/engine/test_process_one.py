"""Process 1, the first of a container, does not die of a signal that it sends to itself. A verb
that is told to stop there must still tidy up and end."""

import contextlib
import os
import signal
import socket
import subprocess

import pytest

from conftest import SHELLS, listening, need, wait_for
from engine import carriers, children, empty, lies, pop, push, runs

BIG = b"0123456789abcdef" * 20000  # more than a pipe holds

# process 1 as any shell can imitate it without rights: a signal to itself has no effect, but for
# those that a worker traps all the time
DEAF = 'kill() { case " $*" in *"ALRM $$" | *"CHLD $$" | *"USR"[12]" $$") command kill "$@" ;; '\
    '*" $$") ;; *) command kill "$@" ;; esac; }; . "$0"'


# bash unsets the function (shell_forget)
in_each_shell = pytest.mark.parametrize("first, shell",
    [("container", "dash"), ("container", "bash"), *(("deaf",
    name) for name in SHELLS if name != "bash")],
                                        indirect=True)
both_ways = pytest.mark.parametrize("first, shell", [("container", "bash"), ("deaf", "dash")],
    indirect=True)


@pytest.fixture
def first(request, flatq):
    """first(VERB, ...) starts the verb as process 1. It returns the process to wait for, and the
    number of the process that gets signals."""
    contained = request.param == "container"
    if contained:
        need("unshare")
        if subprocess.run(["unshare", "-rpf", "--mount-proc", "true"],
                capture_output=True).returncode:
            pytest.skip("this user may not make a PID namespace here")

    def start(verb, *args):
        command = flatq.command(verb, *args)
        command = ["unshare", "-rpf", "--mount-proc", *command] if contained else [command[0], "-c",
            DEAF, *command[1:]]
        process = subprocess.Popen(command, env=flatq.env, cwd=flatq.home, start_new_session=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        flatq.started.append(process)
        return process, wait_for(lambda: children(process.pid),
            what="the first process")[0] if contained else process.pid

    return start


def put_back(flatq, spool):
    """The message is ready again, and the only one; its place is still there."""
    assert (spool / "default/out").is_dir() and "out" not in lies(spool)
    assert pop(flatq) == BIG
    empty(flatq)


def ends(process, pid, number, status, text=b""):
    os.kill(pid, number)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (status, text, b"")


@in_each_shell
def test_a_pop_that_has_a_message(flatq, first, spool):
    """The pop puts its message back, although its reader has it too, and touches nothing else."""
    push(flatq, BIG)
    process, pid = first("pop")
    runs(pid, "base64")
    ends(process, pid, signal.SIGTERM, 143, BIG)
    put_back(flatq, spool)


@both_ways
@pytest.mark.parametrize("verb", ["reserve", "pop -l"])
def test_others_that_have_messages(flatq, first, spool, verb):
    push(flatq, BIG)
    process, pid = first(*verb.split())
    runs(pid, "base64") if verb == "reserve" else wait_for(lambda: lies(spool).get("out"),
        what="it is taken")
    os.kill(pid, signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == 143
    put_back(flatq, spool)


@in_each_shell
def test_a_pop_that_waits(flatq, first, spool):
    process, pid = first("pop", "-w", "600")
    runs(pid, "sleep")
    ends(process, pid, signal.SIGTERM, 143)
    assert not lies(spool).get("wait")


@in_each_shell
@pytest.mark.parametrize("options", [[], ["-l"]], ids=["one", "many"])
def test_a_push_that_reads(flatq, first, spool, options):
    """The shell handles the signal only when the input ends. Then the push stores nothing and
    prints no id."""
    process, pid = first("push", *options)
    wait_for(lambda: any(any(spool.glob(f"default/{path}")) for path in ("body/*", "tmp/*")),
        "it reads")
    ends(process, pid, signal.SIGTERM, 143)
    assert not any(lies(spool).get(place) for place in ("body", "tmp", "wal", "queue"))
    empty(flatq)


@in_each_shell
def test_a_worker(flatq, first, spool):
    """It gives its message back, and ends as the signal asks."""
    process, pid = first("work", "--", "cat")
    runs(pid, "sleep")
    ends(process, pid, signal.SIGHUP, 129)


@both_ways
@pytest.mark.parametrize("number, status", [(signal.SIGQUIT, 131), (signal.SIGTERM, 143)])
def test_a_worker_that_is_told_twice(flatq, first, spool, tmp_path, number, status):
    push(flatq, b"x")
    process, pid = first("work", "-j", "2", "--", "sh", "-c", ': >"$0"; exec sleep 600',
        tmp_path / "runs")
    wait_for((tmp_path / "runs").exists, "the command runs")
    for _ in range(200):  # a shell may notice only one of several signals that come together
        with contextlib.suppress(ProcessLookupError):  # it has ended, and unshare not yet
            os.kill(pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
            break
    assert process.returncode == status
    assert pop(flatq) == b"x"


@both_ways
def test_several_doors(flatq, first, free_port):
    process, pid = first("./launch", "line", "-p", str(free_port), "http", "-l",
        f"unix:{flatq.home}/http")
    wait_for(lambda: listening(free_port) and os.path.exists(f"{flatq.home}/http"), "the doors")
    os.kill(pid, signal.SIGTERM)
    said = process.communicate(timeout=100)
    assert process.returncode == 143, said
    assert carriers(flatq.spool) == {} and not listening(free_port)


@both_ways
def test_a_pop_elsewhere(flatq, first):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process, pid = first("flatq", "-H", f"127.0.0.1:{server.getsockname()[1]}", "pop")
        client = server.accept()[0]
        os.kill(pid, signal.SIGTERM)
        client.close()
        process.communicate(timeout=100)
        assert process.returncode == 143
