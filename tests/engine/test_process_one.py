"""Process 1 of a container does not die of a signal that it sends to itself. A verb that is told to
stop there must still tidy up and end."""

import contextlib
import os
import signal
import subprocess

import pytest

from conftest import listening, need, wait_for
from engine import carriers, children, empty, lies, pop, push, runs

BIG = b"0123456789abcdef" * 20000  # more than a pipe holds


@pytest.fixture
def first(flatq):
    """first(VERB, ...) starts the verb as process 1: the process to wait for, and the number of the
    one that gets signals."""
    contained = [need("unshare"), "-rpf", "--mount-proc"]
    if subprocess.run([*contained, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a PID namespace here")

    def start(verb, *args):
        process = subprocess.Popen([*contained, *flatq.command(verb, *args)], env=flatq.env,
            cwd=flatq.home, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        flatq.started.append(process)
        return process, wait_for(lambda: children(process.pid), "the first process")[0]

    return start


# what it does, the program that it runs then, the signal, and its exit code
ROWS = [
    ("pop", "base64", signal.SIGTERM, 143), ("reserve", "base64", signal.SIGTERM, 143),
    ("pop -l", "", signal.SIGTERM, 143), ("pop -w 600 empty", "sleep", signal.SIGTERM, 143),
    ("push", "base64", signal.SIGTERM, 143), ("work -q empty -- cat", "sleep", signal.SIGHUP, 129),
]


@pytest.mark.parametrize("words, program, number, status", ROWS, ids=[row[0] for row in ROWS])
def test_it_tidies_up_and_ends(shell, flatq, first, spool, words, program, number, status):
    """A pop puts its message back, although its reader has it too; a push stores nothing."""
    push(flatq, BIG)
    process, pid = first(*words.split())
    if program:
        runs(pid, program)
    else:
        wait_for(lambda: list(spool.glob("default/out/batch.*")), "it has taken the message")
    os.kill(pid, number)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (status, b"")
    assert (spool / "default/out").is_dir() and "out" not in lies(spool)
    assert not list(spool.glob("*/wait/*"))
    assert pop(flatq) == BIG
    empty(flatq)
    assert not any(lies(spool).get(place) for place in ("tmp", "wal", "queue"))


@pytest.mark.parametrize("number, status", [(signal.SIGQUIT, 131), (signal.SIGTERM, 143)])
def test_a_worker_that_is_told_twice(shell, flatq, first, tmp_path, number, status):
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


def test_several_doors(shell, flatq, first, free_port):
    process, pid = first("serve", "line", "-p", str(free_port), "http", "-l",
        f"unix:{flatq.home}/http")
    wait_for(lambda: listening(free_port) and os.path.exists(f"{flatq.home}/http"), "the doors")
    os.kill(pid, signal.SIGTERM)
    said = process.communicate(timeout=100)
    assert process.returncode == 143, said
    assert carriers(flatq.spool) == {} and not listening(free_port)
