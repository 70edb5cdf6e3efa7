"""work runs a command for each message: what becomes of the message; signals, killed processes and time limits; several workers."""

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LIB, chance, everything, left, need, wait_for
from engine import alive, calls_in, carriers, children, clock, command_of, empty, lies, loop, on_terminal, pop, push, refused, stop_and_fill, stranger, words_of  # noqa: F401

from flatq.crashlab.gate import processes

# a command that writes its process id to a file in $1, and ends once the file `go` is there
HOLD = 'printf %s "$$" >"$1/pid.new" && mv "$1/pid.new" "$1/pid"; while [ ! -e "$1/go" ]; do sleep 0.05; done; cat >"$1/body"'


# mksh reports the TERM that it sends to itself by an exit code
BY_TERM = [-signal.SIGTERM, 128 + signal.SIGTERM]


def due(clock, seconds):
    """Wait until the worker sleeps for so many seconds, and let them pass."""
    wait_for(lambda: seconds in clock.sleepers().values(), "its alarm is set")
    clock.advance(seconds)


@pytest.fixture
def hold(tmp_path):
    """The directory for HOLD's files. A command runs in a session of its own: at the end it is let go, or it would stay behind where a test has failed."""
    path = tmp_path / "hold"
    path.mkdir()
    yield path
    (path / "go").touch()


def held(hold):
    """The process id of the command, as soon as it runs."""
    wait_for((hold / "pid").exists, "the command runs")
    return int((hold / "pid").read_text())


def working(flatq, hold, *options):
    """A worker, and the process id of its command, which waits until it may go on."""
    process = flatq.start("work", *options, "--", "sh", "-c", HOLD, "sh", hold)
    return process, held(hold)


def group_left(pgid):
    """The processes of a process group. Each command has its own group."""
    return processes.left(processes.GROUP, pgid)


def session_left(pid):
    return processes.left(processes.SESSION, pid)


def nothing_left(process, spool, *groups):
    """No process and no pipe is left."""
    try:
        wait_for(lambda: not session_left(process.pid), "what stood beside it is gone")
    except AssertionError as late:
        there = [(pid, words_of(pid), parent_of(pid), Path(f"/proc/{pid}/wchan").read_text()) for pid in session_left(process.pid)]
        raise AssertionError(f"{late}: {there}") from None
    for group in groups:
        wait_for(lambda: not group_left(group), "what the command had started is gone")
    assert list((spool / ".wait").iterdir()) == []
    assert not lies(spool).get("wait")


def insist(process, number):
    """Send the signal until the worker ends: of several signals that come together, a shell may notice only one."""
    for _ in range(200):
        process.send_signal(number)
        try:
            return process.wait(0.3)
        except subprocess.TimeoutExpired:
            pass
    raise AssertionError("the worker does not end")


def ended(process, status, seconds=60):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


def listed(flatq, queue="default"):
    """What list prints, as (id, state, tries, reason)."""
    rows = [line.split() for line in flatq("list", queue, check=0).out.decode().splitlines()]
    return [(int(row[0]), row[1], int(row[3]), " ".join(row[6:])) for row in rows]


# the command and its message


def test_the_command_gets_the_message_and_its_names(shell, flatq, tmp_path):
    bodies = [b"", bytes(range(256)), b"two\nlines\n", os.urandom(300000)]
    ids = [push(flatq, body, "a/b") for body in bodies]
    done = flatq(
        "work", "-q", "a/b", "--until-empty", "--", "sh", "-c",
        'cat >"$1/$FLATQ_ID"; printf "%s %s %s\\n" "$FLATQ_ID" "$FLATQ_QUEUE" "$FLATQ_TRIES"', "sh", tmp_path, check=0,
    )
    assert done.out.decode().splitlines() == [f"{number} a/b 1" for number in ids]
    assert done.err == b""
    assert [(tmp_path / str(number)).read_bytes() for number in ids] == bodies
    assert listed(flatq, "a/b") == []


def test_the_command_is_run_as_it_stands(shell, flatq, tmp_path):
    """No shell splits or expands the command's words. Its umask and locale are the caller's."""
    script = tmp_path / "a command"
    script.write_text('#!/bin/sh\ncat >/dev/null; printf "<%s>" "$@"; umask; printf "%s\\n" "${LC_ALL-unset}"\n')
    script.chmod(0o755)
    push(flatq, b"x")
    before = os.umask(0o027)
    try:
        done = flatq("work", "-w", "0", "--", script, "a  b", "*", "$HOME", "", check=0, env={"LC_ALL": None})
        assert done.out == b"<a  b><*><$HOME><>0027\nunset\n"
        push(flatq, b"x")
        done = flatq("work", "-w", "0", script, check=0, env={"LC_ALL": "C.UTF-8"})
        assert done.out == b"<>0027\nC.UTF-8\n"
    finally:
        os.umask(before)


def test_a_command_need_not_read(flatq):
    push(flatq, os.urandom(200000))
    push(flatq, b"x")
    done = flatq("work", "-w", "0", "--", "true", check=0)
    assert (done.out, done.err) == (b"", b"")
    empty(flatq)


def test_a_signal_is_no_proof_that_the_command_did_not_read(shell, flatq, stub, tmp_path):
    """Anybody may send PIPE. Here it comes to the process that feeds the command, after a third of the message."""
    body = os.urandom(3000)
    push(flatq, body)
    stub("base64", '[ "$1" = -d ] || exec "$REAL" "$@"; "$REAL" "$@" >"$HOME/all"; head -c 1000 "$HOME/all"; kill -s PIPE $$; tail -c +1001 "$HOME/all"')
    flatq("work", "-w", "0", "-d", "0", "--", "sh", "-c", 'cat >"$1"', "sh", tmp_path / "body", check=0)
    assert (tmp_path / "body").read_bytes() == body
    empty(flatq)


def test_a_damaged_message_is_not_taken_for_done(flatq, spool):
    number = push(flatq, b"x" * 3000)
    body = next((spool / "default/body").iterdir())
    body.write_bytes(body.read_bytes()[:1000] + b"!" + body.read_bytes()[1001:])
    done = flatq("work", "-w", "0", "-m", "1", "--", "sh", "-c", "cat >/dev/null", check=0)
    assert listed(flatq) == [(number, "buried", 1, "damaged")], done


@pytest.mark.shells
def test_a_body_that_is_written_anew_is_fed_as_it_was(shell, flatq, stub, spool):
    """If the worker was stopped beyond its lease, the message may be folded, and another process be about to write its body again. The feeder used to open
    it by its name, and the command got a part of the message."""
    message = os.urandom(3000)
    push(flatq, message)
    stub("base64", """[ "$1" != -d ] || { body=$(echo "$FLATQ_DIR"/default/body/*); head -c 1000 "$body" >"$body.new"; mv "$body.new" "$body"; }; exec "$REAL" "$@" """)
    assert flatq("work", "-w", "0", "--", "cat", check=0).out == message


@pytest.mark.shells
def test_a_command_is_not_run_for_a_body_that_is_not_there(shell, flatq, spool):
    number = push(flatq, b"x")
    next((spool / "default/body").iterdir()).unlink()
    done = flatq("work", "-w", "0", "-m", "1", "--", "sh", "-c", "echo begun", check=0)
    assert (done.out, listed(flatq)) == (b"", [(number, "buried", 1, "damaged")]), done


def test_a_failure_delays_ever_longer(flatq):
    number = push(flatq, b"x")
    for tries, delay in enumerate([1, 2, 4, 5, 5], 1):
        done = flatq("work", "-w", "0", "-d", "1,5", "--", "false", check=0)
        assert done.err.decode() == f"work: queue 'default': message {number}, try {tries}: exit-1, again in {delay} s\n"
        assert listed(flatq) == [(number, "delayed", tries, "")]
        flatq("kick", check=0)
    assert flatq("work", "-w", "0", "--", "cat", check=0).out == b"x"


def test_the_delay_is_as_long_as_said(flatq, clock):
    push(flatq, b"x")
    process = flatq.start("work", "-w", "9", "-n", "2", "-d", "5", "--", "sh", "-c", '[ "$FLATQ_TRIES" = 2 ]', stdin=subprocess.DEVNULL)
    assert clock.passes(process) == 5
    ended(process, 0)
    assert listed(flatq) == []


@pytest.mark.parametrize("given, longest", [(("5,600", "-d", "200"), 300), (("500", "-d", "200"), 300), (("200", "-d", "200,350"), 350)])
def test_of_several_delays_the_last_counts(flatq, given, longest):
    push(flatq, b"x")
    for delay in (200, longest):
        assert b"again in %d s\n" % delay in flatq("work", "-w", "0", "-d", *given, "--", "false", check=0).err
        flatq("kick", check=0)


@pytest.mark.parametrize("command, reason", [("exit 3", "exit-3"), ("kill -9 $$", "signal-9"), ("sleep 60; :", "timeout"), ("exit 200", "exit-200")])
def test_after_most_tries_it_is_buried_with_the_reason(flatq, command, reason):
    number = push(flatq, b"x")
    args = ["work", "-w", "0", "-d", "0", "-m", "2", *(["-x", "1"] if reason == "timeout" else []), "--", "sh", "-c", command]
    done = flatq(*args, check=0)
    assert listed(flatq) == [(number, "buried", 2, reason)]
    assert done.err.decode().splitlines() == [
        f"work: queue 'default': message {number}, try 1: {reason}, again in 0 s",
        f"work: queue 'default': message {number}, try 2: {reason}, buried",
    ]


def test_the_queues_own_most_tries_count_as_well(flatq):
    flatq("create", "-m", "1", check=0)
    number = push(flatq, b"x")
    flatq("work", "-w", "0", "-m", "5", "--", "false", check=0)
    assert listed(flatq) == [(number, "buried", 1, "exit-1")]
    flatq("kick", check=0)
    flatq("create", "-m", "5", check=0)
    flatq("work", "-w", "0", "-m", "2", "--", "false", check=0)
    assert listed(flatq) == [(number, "buried", 2, "exit-1")]


# when the worker stops


def test_until_empty_and_max(flatq):
    for number in range(4):
        push(flatq, b"%d" % number)
    assert flatq("work", "--max", "2", "--", "cat", check=0).out == b"01"
    assert flatq("work", "--max=1", "--until-empty", "--", "cat", check=0).out == b"2"
    assert flatq("work", "--until-empty", "--", "cat", check=0).out == b"3"
    assert flatq("work", "--until-empty", "--", "cat", check=0).out == b""


def test_it_stops_when_nothing_came_for_so_long(flatq, spool, clock):
    push(flatq, b"x")
    process = flatq.start("work", "-w", "3", "--", "cat", stdin=subprocess.DEVNULL)
    assert clock.passes(process) == 3
    assert ended(process, 0) == (b"x", b"")
    assert list((spool / ".wait").iterdir()) == []


def test_closed_and_empty_ends_it(shell, flatq, spool):
    flatq("create", check=0)
    process = flatq.start("work", "--", "cat")
    wait_for(lambda: lies(spool).get("wait"), "it waits")
    push(flatq, b"last")
    flatq("close", check=0)
    assert ended(process, 0) == (b"last", b"")
    nothing_left(process, spool)


def test_of_a_closed_queue_it_tries_again_what_has_failed(shell, flatq, spool):
    push(flatq, b"x")
    flatq("close", check=0)
    done = flatq("work", "-d", "1", "--", "sh", "-c", 'cat; [ "$FLATQ_TRIES" = 2 ]', input=b"", check=0)
    assert done.out == b"xx" and flatq("list", "default", check=0).out == b""


def test_the_messages_of_the_worker_cannot_be_written(shell, flatq):
    """Standard error is a file on a full disk."""
    for redirection in ("2>/dev/full",):
        for body in (b"1", b"2"):
            push(flatq, body)
        command = ["dash", "-c", f'exec "$@" {redirection}', "dash", *flatq.command("work", "-w", "0", "-m", "1", "--", "false")]
        assert subprocess.run(command, env=flatq.env, timeout=100).returncode == 0
        refused(flatq("pop"), 66)


@pytest.mark.costly
def test_a_descriptor_that_cannot_be_copied_loses_no_output(shell, flatq, tmp_path):
    """A copy of a descriptor fails: each of some. What a command has written that exited with 0 came out of the worker. Once, the worker took its output
    for closed; or a shell closed or redirected it (R12), and later commands wrote to nowhere; or mksh started a second command beside the first."""
    push(flatq, b"m")
    shutil.copytree(flatq.spool, tmp_path / "saved")
    log = tmp_path / "log"

    def run(*words):
        shutil.rmtree(flatq.spool)
        shutil.copytree(tmp_path / "saved", flatq.spool)
        return subprocess.run([need("strace"), "-qq", "-o", log, "-e", "trace=fcntl", *words, "--",
                               *flatq.command("work", "-w", "0", "-n", "1", "--", "sh", "-c", "cat || :")], env=flatq.environment(None), cwd=flatq.home, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=60)

    assert run().stdout == b"m"
    copies = range(1, 1 + sum(line.startswith("fcntl(") for line in log.read_text().splitlines()))
    for number in sorted(chance(f"copies {os.path.realpath(shell)}").sample(copies, 60 if everything() else 12)):
        done = run("-e", f"inject=fcntl:error=EMFILE:when={number}")
        kept = flatq("pop").out == b"m" or any(b"%s 1\n" % state in flatq("stat", check=0).out for state in (b"delayed", b"buried"))
        struck = any("F_DUPFD" in line for line in log.read_text().splitlines() if "INJECTED" in line)  # bash asks for flags too, which never fails so
        assert done.stdout == b"m" or not done.stdout and kept or not struck, (number, done.returncode, done.stdout, done.stderr, flatq("stat").out)


def test_a_daemon_loses_no_output(flatq, tmp_path):
    """Once a look for setsid closed the daemon's output, and the file of another one took its place."""
    log, out = tmp_path / "log", tmp_path / "out"
    for number in range(1, 11):
        push(flatq, b"m")
        words = [need("strace"), "-f", "-qq", "-o", log, "-P", out, "-e", "trace=fcntl", "-e", f"inject=fcntl:error=EMFILE:when={number}", "--",
                 *flatq.command("work", "--daemon", "-w", "0", "-n", "1", "--", "cat")]
        with out.open("wb") as stream:
            done = subprocess.run(words, env=flatq.environment(None), cwd=flatq.home, stdout=stream, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
        left = flatq("drain", "-0").out.rstrip(b"\0") + (b"m" if any(b"%s 1\n" % state in flatq("stat", check=0).out for state in (b"delayed", b"buried")) else b"")
        assert b"m" in (out.read_bytes(), left), (number, done, log.read_text())
        flatq("drop", "-f", "default")


def test_a_worker_without_alarms(shell, flatq):
    """It could neither renew leases nor end a command. Some shells can set a trap for a signal that their caller ignores."""
    push(flatq, b"x")
    command = ["dash", "-c", 'trap "" ALRM; exec "$@"', "dash", *flatq.command("work", "-w", "0", "-x", "1", "--", "sh", "-c", "exec sleep 60")]
    done = subprocess.run(command, env=flatq.env, timeout=100, capture_output=True)
    if done.returncode == 70:
        assert done.stdout == b"" and b"ALRM" in done.stderr
        assert pop(flatq) == b"x"
    else:
        assert (done.returncode, b"timeout" in done.stderr) == (0, True), done


def test_several_queues_at_the_same_time(shell, flatq, spool):
    push(flatq, b"1", "c")
    push(flatq, b"2", "a")
    process = flatq.start("work", "-q", "a,b", "-q", "c", "-n", "4", "--", "sh", "-c", 'cat; printf "%s " "$FLATQ_QUEUE"')
    wait_for(lambda: lies(spool, "b").get("wait"), "it waits")
    push(flatq, b"3", "b")
    wait_for(lambda: not lies(spool, "b").get("wal") and lies(spool, "c").get("wait"), "it waits again")
    push(flatq, b"4", "c")
    assert ended(process, 0) == (b"2a 1c 3b 4c ", b"")


# commands that do not exist


def test_no_such_command(flatq, tmp_path):
    number = push(flatq, b"x")
    refused(flatq("work", "-m", "1", "--", "no-such-command"), 69, "work", text=b"no command 'no-such-command'")
    refused(flatq("work", "-m", "1", "--", tmp_path / "none"), 69, "work")
    plain = tmp_path / "plain"
    plain.touch()
    refused(flatq("work", "-m", "1", "--", plain), 77, "work", text=b"not executable")
    refused(flatq("work", "-m", "1", "--", tmp_path), 69, "work")
    refused(flatq("work", "-m", "1", "--", "die"), 69, "work")
    assert listed(flatq) == [(number, "ready", 0, "")]


def test_a_command_that_says_127_buries_no_queue(flatq):
    number = push(flatq, b"x")
    other = push(flatq, b"y")
    done = flatq("work", "-m", "1", "--", "sh", "-c", "no-such-command 2>/dev/null")
    refused(done, 69, "work", text=b"exited with 127")
    assert listed(flatq) == [(other, "ready", 0, ""), (number, "delayed", 1, "")]


def test_once_it_has_worked_127_is_the_messages_fault(flatq):
    push(flatq, b"true")
    number = push(flatq, b"no-such-command")
    last = push(flatq, b"printf last")
    done = flatq("work", "-w", "0", "-m", "1", "--", "sh", check=0)
    assert done.out == b"last"
    assert listed(flatq) == [(number, "buried", 1, "exit-127")], last


def test_a_command_that_goes_away_meanwhile(flatq, tmp_path):
    script = tmp_path / "once"
    script.write_text('#!/bin/sh\nrm "$0"\n')
    script.chmod(0o755)
    push(flatq, b"x")
    number = push(flatq, b"y")
    done = flatq("work", "-w", "0", "-m", "1", "--", script)
    assert done.status == 69 and done.err.endswith(b"work: no command '%s'\n" % os.fsencode(script)), done
    assert listed(flatq) == [(number, "delayed", 1, "")]


# the lease


def test_the_lease_is_renewed(shell, flatq, spool, hold, clock):
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-w", "0", "-t", "60")
    for _ in range(4):  # longer than the first lease
        before = lies(spool)["out"]
        due(clock, 20)
        wait_for(lambda: lies(spool)["out"] != before, "the deadline moves")
    empty(flatq)
    (hold / "go").touch()
    ended(process, 0)
    assert (hold / "body").read_bytes() == b"x" and listed(flatq) == []
    nothing_left(process, spool, pid)


@pytest.mark.parametrize("lease, renewed", [(604800, 604800), (4294967295, 9999999)])
def test_a_long_lease_is_renewed_in_full(shell, flatq, spool, hold, clock, lease, renewed):
    """A week was once renewed for a day."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-w", "0", "-t", str(lease))
    before, = lies(spool)["out"]
    due(clock, renewed // 3)
    after, = wait_for(lambda: lies(spool)["out"] != [before] and lies(spool)["out"], "the deadline moves")
    assert int(after.rpartition(".")[2]) - int(100 * (clock.base + clock.seconds)) == 100 * renewed
    (hold / "go").touch()
    ended(process, 0)


def test_a_message_without_a_lease_gets_one(flatq, spool, hold, clock):
    push(flatq, b"x", "-t", "0")
    process = flatq.start("work", "-w", "0", "--", "sh", "-c", HOLD, "sh", hold)
    held(hold)
    due(clock, 0.33)
    wait_for(lambda: (spool / "default/log").read_text().count(" touch ") >= 2, "touched")
    empty(flatq)
    (hold / "go").touch()
    ended(process, 0)
    assert listed(flatq) == []


def test_who_has_lost_the_lease_stops(shell, flatq, hold, spool):
    """The worker hears of it in a trap. There, a `return` without a number means another status in bash, mksh and yash (R11)."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-w", "0", "-t", "1")
    process.send_signal(signal.SIGSTOP)
    assert pop(flatq, "-w", "60") == b"x"
    process.send_signal(signal.SIGCONT)
    out, err = ended(process, 0)
    # mksh itself reports the end of the command, which the worker has killed
    assert b"lease ended" in err and err.removeprefix(b"Killed \n").count(b"\n") == 1
    assert not (hold / "body").exists()
    nothing_left(process, spool, pid)


@pytest.mark.shells
def test_who_has_lost_the_lease_before_the_command_starts(shell, flatq, stub, clock, tmp_path):
    """The worker stands still behind its take until another consumer has the message."""
    push(flatq, b"x")
    later = f'printf "{clock.base + 9000}.00 0\\n" >{clock.path}/uptime; {shlex.join(flatq.command("pop"))} >{tmp_path}/popped'
    stub("mv", f'"$REAL" "$@" || exit; case $* in */out/*) [ -e "$ONCE" ] || {{ >"$ONCE"; {later}; }} ;; esac')
    done = flatq("work", "-w", "0", "-n", "1", "--", "touch", tmp_path / "ran", check=0)
    assert (tmp_path / "popped").read_bytes() == b"x" and not (tmp_path / "ran").exists()
    assert done.err == b"work: queue 'default': message 1, try 1: its lease ended, it was given to others\n"


def test_a_lease_that_is_half_over_is_renewed_before_the_command_starts(shell, flatq, stub, clock, tmp_path):
    """The worker stands still behind its take for 8 s of 10. The first renewal was once planned for a third of the lease behind its start."""
    push(flatq, b"x")
    later = f'printf "{clock.base + 5008}.00 0\\n" >{clock.path}/uptime'
    stub("mv", f'"$REAL" "$@" || exit; case $* in */out/*) [ -e "$ONCE" ] || {{ >"$ONCE"; {later}; }} ;; esac')
    flatq("work", "-w", "0", "-n", "1", "-t", "10", "--", "sh", "-c", 'ls "$FLATQ_DIR/default/out" >"$0"', tmp_path / "out", check=0)
    assert (tmp_path / "out").read_text().strip().endswith(f".{100 * (clock.base + 5018):012}")


# signals


def status_of(pid, *keys):
    """The first word of each of these lines of /proc/PID/status."""
    return [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(keys)]


def pending(pid):
    """Whether the process has a signal that it has not handled yet."""
    return any(int(mask, 16) for mask in status_of(pid, "SigPnd", "ShdPnd"))


def fed(process, pid):
    """Whether the command has its message, and its worker knows. In bash, a signal that comes when a process of the pipeline ends may hide how the job
    ended; so the worker has no child that has ended. Of several workers, the one whose child the command is."""
    pipe = os.readlink(f"/proc/{pid}/fd/0")
    for one in session_left(process.pid):
        try:
            if os.readlink(f"/proc/{one}/fd/1") == pipe:
                return False
        except OSError:
            pass
    return all(map(alive, children(parent_of(pid))))


def calm(process):
    """Whether all workers are back in their `wait` after a signal: for half a second there is no interrupter, which sleeps for 0.1 s again and again. If a
    signal comes just as the command ends, bash may forget its exit code (`unknown`, lib/TOOLS.md)."""
    for _ in range(10):
        if any(words_of(one).endswith(b"sleep\0" b"0.1\0") for one in session_left(process.pid)):
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_the_first_signal_lets_the_job_end(shell, flatq, spool, hold, number):
    push(flatq, b"first")
    push(flatq, b"second")
    process, pid = working(flatq, hold)
    wait_for(lambda: fed(process, pid), "the command has its message")
    process.send_signal(number)
    wait_for(lambda: not pending(process.pid) and calm(process), "the signal is taken")
    assert process.poll() is None and alive(pid)
    (hold / "go").touch()
    assert ended(process, 0) == (b"", b"")
    assert (hold / "body").read_bytes() == b"first"
    assert pop(flatq) == b"second"
    empty(flatq)
    nothing_left(process, spool, pid)


def test_a_second_signal_gives_the_job_back_at_once(shell, flatq, spool, hold):
    push(flatq, b"x")
    # the signal goes to the command and to all that it has started
    process = flatq.start("work", "-m", "1", "--", "sh", "-c", f"sleep 100 & {HOLD}; :", "sh", hold)
    pid = held(hold)
    process.send_signal(signal.SIGTERM)
    insist(process, signal.SIGTERM)
    assert process.returncode in BY_TERM
    assert pop(flatq) == b"x"
    nothing_left(process, spool, pid)


def test_hup_gives_the_job_back_though_the_command_does_not_listen(flatq, spool, hold):
    push(flatq, b"x")
    process = flatq.start("work", "--", "sh", "-c", f"trap '' TERM HUP; {HOLD}", "sh", hold)
    pid = held(hold)
    process.send_signal(signal.SIGHUP)
    ended(process, -signal.SIGHUP)
    assert listed(flatq)[0][1:] == ("ready", 1, "")
    nothing_left(process, spool, pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_an_idle_worker_stops(shell, flatq, spool, number):
    process = flatq.start("work", "-q", "default,other", "--", "cat")
    wait_for(lambda: lies(spool, "other").get("wait"), "it is about to wait")
    process.send_signal(number)
    assert ended(process, 0) == (b"", b"")
    nothing_left(process, spool)


def test_a_signal_to_the_whole_group_cuts_no_message(flatq, spool, hold):
    """As `kill %1` and timeout(1) send a signal; a terminal sends INT like this."""
    body = os.urandom(400000)
    push(flatq, body)
    for number in (signal.SIGINT, signal.SIGTERM):
        process = flatq.start("work", "-w", "0", "-d", "0", "--", "sh", "-c", HOLD + f'; [ {int(number)} = 15 ]', "sh", hold)
        held(hold)
        os.killpg(process.pid, number)
        (hold / "go").touch()
        ended(process, 0)
        assert (hold / "body").read_bytes() == body
        for name in ("pid", "go"):
            (hold / name).unlink()
    assert listed(flatq) == []


def test_a_signal_before_the_feeder_ignores_it_cuts_no_message(flatq, hold):
    """The first thing that the command does is to send TERM to the worker's group. strace delays the first two changes of a signal's action in each
    process by half a second: so the feeder is slow to ignore TERM. If the command began before, the feeder would be dead, and the command would read
    nothing. `-I never`: strace itself survives the signal."""
    body = os.urandom(1000)
    push(flatq, body)
    script = 'kill TERM => -getpgrp getppid; open BODY, ">", shift; print BODY <STDIN>'
    process = subprocess.Popen(
        [need("strace"), "-f", "-qq", "-I", "never", "-o", "/dev/null", "-e", "trace=rt_sigaction", "-e", "inject=rt_sigaction:delay_enter=500ms:when=1..2",
         "--", *flatq.command("work", "-w", "0", "--", need("perl"), "-e", script, hold / "body")],
        env=flatq.environment(None), cwd=flatq.home, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flatq.started.append(process)
    ended(process, 0)
    assert (hold / "body").read_bytes() == body
    assert listed(flatq) == []


FEEDERS_LINE = """printf() { case $#,$1,${2:-} in '2,%%s\\n,'"${slip_nonce:-}") %s ;; esac; command printf "$@"; }"""


@pytest.mark.shells
@pytest.mark.parametrize("function, reason", [
    (FEEDERS_LINE % "return 1", "unfed"), (FEEDERS_LINE % "set -- 'a line of another input\\n'", "unfed|exit-75"),
    ("""read() { case $2 in work_line) return 1 ;; esac; command read "$@"; }""", "unfed|exit-75"),
], ids=["not-written", "another", "not-read"])
def test_a_command_that_was_not_begun_settles_nothing(shell, flatq, function, reason):
    """The feeder cannot write its line; another line comes in its place, as from the worker's own input if the shell has failed to connect the feeder's;
    or the wait for it fails while the feeder lives. The worker must not take the end of what was to become the command for the command's, nor the first
    line of the message for the feeder's."""
    push(flatq, b"first\nsecond\n")
    process = started_with(flatq, function, "-w", "0", "-n", "1", "-d", "9", "--", "sh", "-c", "cat >begun")
    said = ended(process, 0)[1].decode()  # exit-75 while the feeder lives: else it could not write the message
    assert re.search(reason, said), said
    assert listed(flatq)[0][1:3] == ("delayed", 1) and not (flatq.home / "begun").exists()


@pytest.mark.shells
def test_a_body_that_cannot_be_read_is_not_fed_whatever_its_path_is_called(shell, flatq, stub):
    """base64's error names the file. The worker once looked in it for the words by which base64 says that the command reads no more."""
    flatq.env["FLATQ_DIR"] = str(flatq.home / "a broken pipe")
    push(flatq, b"first")
    stub("base64", """[ "$1" = -d ] && ! [ -e "$ONCE" ] && : >"$ONCE" || exec "$REAL" "$@"; echo "base64: $2: Broken pipe: Input/output error" >&2; exit 1""")
    done = flatq("work", "-w", "0", "-n", "1", "-d", "9", "--", "cat")
    assert done.status == 0 and b"unfed" in done.err and listed(flatq)[0][1:3] == ("delayed", 1), done


def broken(tmp_path, path, line, more):
    """A copy of lib in which that line of that file is followed by these commands."""
    shutil.copytree(LIB, tmp_path / "lib")
    text = (LIB / path).read_text()
    assert text.count(line) == 1
    (tmp_path / "lib" / path).write_text(text.replace(line, line + more))
    return tmp_path / "lib"


@pytest.mark.shells
def test_a_worker_that_a_signal_ends_before_it_is_ready_reports_no_success(shell, flatq, tmp_path):
    """bash runs the EXIT trap then too, with the status of its last command: `flatq work -D` would have said that the worker works."""
    lib, said = broken(tmp_path, "work", "work_not_ready EXIT\n", '  kill -s TERM "$$"\n'), tmp_path / "said"
    subprocess.run([flatq.shell, "-c", 'exec "$@" 3>"$0"', said, flatq.shell, lib / "work", "--ready", "--", "true"], env=flatq.environment(None))
    assert said.read_text() in ("", "70", "143")


@pytest.mark.shells
def test_a_starter_that_is_killed_leaves_no_unknown_feeder(shell, flatq, tmp_path):
    """The process that starts the feeder is killed behind that. The command leaves a process behind that holds its input and does not read. The worker
    must know the feeder nevertheless: it once waited for its name as long as that process lived."""
    push(flatq, os.urandom(300000))
    lib = broken(tmp_path, "worker/feed.sh", "  feed_message &\n", '  read -r dead dead_rest <"$FLATQ_PROC/self/stat"; kill -KILL "$dead"\n')
    script = "exec 3<&0; { exec sleep 1000 <&3 3<&- >/dev/null 2>&1; } & echo $! >left"
    process = subprocess.Popen([flatq.shell, lib / "work", "-w", "0", "-n", "1", "--", "sh", "-c", script], env=flatq.environment(None), cwd=flatq.home,
                               start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flatq.started.append(process)
    try:
        ended(process, 0)
    finally:
        if (flatq.home / "left").exists():
            os.kill(int((flatq.home / "left").read_text()), signal.SIGKILL)
    assert listed(flatq) == []


def test_a_feeder_without_a_pipe_reports_nothing_good(flatq):
    """bash that cannot make the pipe of a `$( )` runs nothing: the command had an empty message, and the worker deleted it."""
    push(flatq, b"first")
    [body] = (flatq.spool / "default/body").iterdir()
    script = """lib=$1; . "$lib/engine/common.sh"; shell_reset; need engine/spool worker/feed; slip_nonce=nonce; feed_message 6<"$2" 7>&1 >/dev/null"""
    for inject, word in ([], b"good"), (["-e", "inject=pipe,pipe2:error=ENFILE"], b"bad"):
        done = subprocess.run([need("strace"), "-qq", "-o", "/dev/null", "-e", "trace=pipe,pipe2", *inject, "--", need("bash"), "-c", script, "sh", LIB, body],
                              env=flatq.environment(None), capture_output=True, timeout=60)
        assert done.stdout.endswith(b"\nnonce " + word + b"\n"), done


@pytest.mark.shells
def test_a_worker_that_cannot_see_its_sleepers_end_does_not_begin(shell, flatq):
    """Where CHLD is blocked, busybox waits for ever, and renews no lease: two workers had one message. The other shells unblock it."""
    push(flatq, b"first")
    process = subprocess.Popen(flatq.command("work", "-w", "0", "--", "sleep", "0.2"), env=flatq.environment(None), cwd=flatq.home, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD]))
    flatq.started.append(process)
    refused = "busybox" in os.path.realpath(flatq.shell)
    said = ended(process, 70 if refused else 0)[1]
    assert (b"CHLD" in said) == refused and len(listed(flatq)) == refused, said


def test_a_signal_to_the_group_as_a_message_is_settled(shell, flatq, stub):
    """The worker outlives it, and mv or sync does not: the message is settled nevertheless, and its command not run again."""
    for tool, when in (("mv", "*/done/*"), ("sync", "*")):
        (flatq.home.parent / f"{tool}.armed").touch()
        stub(tool, f'case $* in {when}) [ -e "$ONCE" ] || {{ >"$ONCE"; kill -TERM $$; }} ;; esac; exec "$REAL" "$@"')
    flatq.syncs()
    push(flatq, b"x")
    done = flatq("work", "-w", "0", "--", "sh", "-c", "echo ran >>ran")
    assert (done.status, done.err) == (0, b""), done
    assert (flatq.home / "ran").read_text() == "ran\n"
    assert listed(flatq) == []


@pytest.mark.parametrize("shell", ["dash", "busybox"], indirect=True)  # bash may forget how a command ended as a signal came
def test_a_signal_to_the_group_before_the_command_has_its_own(flatq):
    """Nobody knows whether the command has begun: that is no failure of the message, and no try."""
    flatq("create", "-m", "1", "default", check=0)
    push(flatq, b"x")
    done = flatq("work", "-w", "0", "-m", "1", "--", "sh", "-c", 'kill -TERM "$(cut -d" " -f4 /proc/$$/stat)"; kill -TERM $$', timeout=60)
    assert (done.status, done.err) == (0, b""), done
    assert listed(flatq) == [(1, "ready", 0, "")]


def test_told_to_stop_as_a_message_is_taken(shell, flatq):
    """No command has seen it, so this was no try."""
    flatq("create", "-m", "1", "default", check=0)
    push(flatq, b"x")
    strikes = """mv() { command mv "$@" || return $?; case $* in */wal/*' '*/out/*) kill -TERM "$work_self" ;; esac; }"""
    process = started_with(flatq, strikes, "-w", "0", "--", "touch", "ran")
    assert ended(process, 0) == (b"", b"")
    assert listed(flatq) == [(1, "ready", 0, "")] and not (flatq.home / "ran").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_signal_that_is_not_for_the_worker_ends_no_job(shell, flatq, spool, hold, jobs):
    """The signal ends the `wait` of the worker's shell. The worker must not take the command, which goes on, for dead."""
    push(flatq, b"first")
    process, pid = working(flatq, hold, "-j", jobs, "-w", "0", "-d", "0")
    worker = parent_of(pid)
    wait_for(lambda: fed(process, pid), "the command has its message")
    for number in [signal.SIGPIPE] if jobs == "1" else [signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE]:
        os.kill(worker, number)
        wait_for(lambda: not pending(worker), "the signal is taken")
    # the other worker finds nothing, or has a message that was given back
    empty(flatq)
    assert alive(pid)
    (hold / "go").touch()
    assert ended(process, 0) == (b"", b"")
    assert listed(flatq) == []
    nothing_left(process, spool, pid)


def started_with(flatq, functions, *words):
    """A worker whose shell has these functions, in the place of its own commands. They come after engine/common.sh, which unsets functions."""
    script = f'lib="{LIB}"; . "$lib/engine/common.sh"\n{functions}\n. "$0"'
    process = subprocess.Popen([flatq.shell, "-c", script, str(LIB / "work"), *map(str, words)], env=flatq.env, cwd=flatq.home,
                               start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flatq.started.append(process)
    return process


def test_a_signal_during_the_work_of_another_ends_no_job(shell, flatq, spool, hold):
    """In dash and busybox, a trap inside a trap changes the status of the command that it came in. Here that was the line to the watchdog: the worker
    took its watchdog for dead and started another one, the first one killed the command, and the message was given back."""
    push(flatq, b"first")
    strikes = f"""strikes=0
        printf() {{ command printf "$@" || return $?; [ -e '{hold}/armed' ] && [ "$work_self" != "$$" ] && [ "$strikes" -lt 4 ] || return 0
            strikes=$((strikes + 1)); command kill -TERM "$work_self"; }}"""
    process = started_with(flatq, strikes, "-j", "2", "-w", "0", "-d", "0", "--", "sh", "-c", HOLD, "sh", hold)
    pid = held(hold)
    wait_for(lambda: fed(process, pid), "the command has its message")
    (hold / "armed").touch()
    os.kill(parent_of(pid), signal.SIGHUP)
    wait_for(lambda: not pending(parent_of(pid)) and calm(process), "the signal is taken")
    empty(flatq)
    (hold / "go").touch()
    assert ended(process, 0) == (b"", b"")
    assert listed(flatq) == []
    nothing_left(process, spool, pid)


def test_an_interrupter_that_forgets_its_signal(shell, flatq, hold):
    """One that was just forked still has the worker's trap for PIPE, and goes on. It once woke the worker ten times a second then, until the command ended."""
    push(flatq, b"x")
    loses = 'struck=; kill() { case $struck$1 in -PIPE) struck=1; return 0 ;; esac; command kill "$@"; }'
    process = started_with(flatq, loses, "-w", "0", "--", "sh", "-c", HOLD, "sh", hold)
    pid = held(hold)
    wait_for(lambda: fed(process, pid), "the command has its message")
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: calm(process), "the interrupter is gone")
    (hold / "go").touch()
    assert ended(process, 0) == (b"", b"")


def test_a_signal_just_before_the_wait_is_heard(shell, flatq, spool, hold):
    """The worker looked for signals, and begins to wait for its command: it gives the message back at once, not at the next third of the lease."""
    push(flatq, b"first", "-t", "3600")
    strikes = 'struck=; wait() { [ -n "$struck" ] || [ -z "${job_pid:-}" ] || { struck=1; command kill -HUP "$work_self"; }; command wait "$@"; }'
    process = started_with(flatq, strikes, "--", "sh", "-c", HOLD, "sh", hold)
    process.wait(60)
    assert pop(flatq) == b"first"
    nothing_left(process, spool)


# killed processes


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_worker_gives_back_at_once_and_leaves_nothing(shell, flatq, spool, hold):
    push(flatq, b"x")
    process = flatq.start("work", "--", "sh", "-c", f"sleep 100 & {HOLD}; :", "sh", hold)
    pid = held(hold)
    process.kill()
    process.wait()
    assert pop(flatq) == b"x"
    nothing_left(process, spool, pid)


def copies(process):
    """The worker's children that are copies of its shell: its sleepers."""
    words = words_of(process.pid)
    return [one for one in children(process.pid) if words_of(one) == words]


def watchdog_of(process):
    """The worker's watchdog, once it is in its own session."""
    return wait_for(lambda: [one for one in children(process.pid) if b"watchdog_read" in words_of(one) and os.getsid(one) == one], "its watchdog")[0]


def kill_watchdog(process):
    watchdog = watchdog_of(process)
    os.kill(watchdog, signal.SIGKILL)
    wait_for(lambda: not alive(watchdog), "the watchdog is dead")


def test_a_renewal_that_fails_late_is_tried_again_before_the_lease_ends(flatq, spool, stub, hold, clock):
    """The take was slow, and the next third of the lease lies behind its end: once another worker had the message while the command ran."""
    stub("mv", f'''case "$*" in
        */wal/*" "*/out/*) "$REAL" "$@" && printf "{clock.base + 5004}.30 0\\n" >{clock.path}/uptime; exit ;;
        */out/*" "*/out/*) [ -e "$ONCE" ] || {{ >"$ONCE"; echo "mv: cannot move: Input/output error" >&2; exit 1; }} ;;
        esac
        exec "$REAL" "$@"''')
    push(flatq, b"x", "-t", "6")
    process = flatq.start("work", "-n", "1", "--", "sh", "-c", HOLD, "sh", hold)
    held(hold)
    clock.set(5004.3)
    first, = spool.glob("default/out/0*")
    due(clock, 0.86)  # half of what is left of the lease
    wait_for(lambda: list(spool.glob("default/out/0*")) not in ([], [first]), "renewed")
    second, = spool.glob("default/out/0*")
    ends = [int(path.name.rpartition(".")[2]) for path in (first, second)]
    assert ends[1] - 600 < ends[0], (first, second)
    (hold / "go").touch()
    assert process.wait(60) == 0 and listed(flatq) == []


def test_a_command_whose_lease_cannot_be_renewed_ends_with_the_lease(flatq, spool, stub, hold, clock):
    """All renewals fail: from the end of the lease on, another worker may have the message."""
    stub("mv", 'case "$*" in */out/*" "*/out/*) echo "mv: cannot move: Input/output error" >&2; exit 1 ;; esac\nexec "$REAL" "$@"')
    push(flatq, b"x", "-t", "60")
    process = flatq.start("work", "-n", "1", "--", "sh", "-c", HOLD, "sh", hold)
    pid = held(hold)
    due(clock, 20)
    due(clock, 20)
    wait_for(lambda: 10.01 in clock.sleepers().values(), "it has failed a second time, and tries again before the lease ends")
    assert alive(pid)
    clock.advance(20)
    process.wait(60)
    assert flatq("pop").out == b"x"


def test_a_process_group_that_is_killed_leaves_no_command(shell, flatq, spool, hold):
    """`kill -9 %1`, or `timeout -s KILL`. What the command had started once went on, while another consumer had the message."""
    push(flatq, b"x")
    process = flatq.start("work", "--", "sh", "-c", f"sh -c '{HOLD}' sh \"$1\"; :", "sh", hold)
    pid = held(hold)
    watchdog_of(process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert pop(flatq) == b"x"
    wait_for(lambda: not alive(pid), "its command is dead")
    nothing_left(process, spool, pid)


def test_a_killed_watchdog_is_replaced(shell, flatq, spool, hold):
    """The command and the alarms write to a watchdog that is gone, and must not die of that. The new watchdog does the work of the old one."""
    process = flatq.start("work", "-t", "1", "-m", "1", "--", "sh", "-c", HOLD, "sh", hold)
    wait_for(lambda: lies(spool).get("wait"), "it waits")
    kill_watchdog(process)
    push(flatq, b"x")
    pid = held(hold)
    wait_for(lambda: (spool / "default/log").read_text().count(" touch ") >= 1, "touched")
    assert listed(flatq)[0][1:3] == ("reserved", 1)
    process.kill()
    process.wait()
    assert pop(flatq) == b"x"
    nothing_left(process, spool, pid)


def strike_sleeper(process, number):
    """Send this signal to the worker's first sleeper, as soon as it sleeps."""
    def struck():
        for one in copies(process):
            if any(command_of(below) == "sleep" for below in children(one)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
                    return one
        return None

    return wait_for(struck, "the worker has a sleeper")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_struck_sleeper_is_replaced(shell, flatq, spool, hold, number):
    """The lease is still renewed, so no other consumer gets the message while the command runs."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-t", "1", "-n", "1")
    sleeper = strike_sleeper(process, number)
    touched = (spool / "default/log").read_text().count(" touch ")
    # the first renewal may have been under way before
    wait_for(lambda: (spool / "default/log").read_text().count(" touch ") > touched + 1, "the lease is renewed")
    assert not alive(sleeper)
    (hold / "go").touch()
    ended(process, 0)
    assert listed(flatq) == []
    nothing_left(process, spool, pid)


@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
def test_a_stopped_watchdog_goes_on(flatq, spool, hold):
    """Its pipe is full. The worker would wait in a write to it, and renew no lease."""
    push(flatq, b"x")
    process, _ = working(flatq, hold, "-t", "1", "-n", "1")
    stop_and_fill(watchdog_of(process))
    touched = (spool / "default/log").read_text().count(" touch ")
    # the first renewal may have been under way before
    wait_for(lambda: (spool / "default/log").read_text().count(" touch ") > touched + 1, "the lease is renewed")
    (hold / "go").touch()
    ended(process, 0)
    assert listed(flatq) == []


def test_a_sleeper_that_ends_as_it_starts_its_sleep_ends_that_too(shell, flatq, tmp_path):
    """The worker ends it just after its fork, before the shell's next command and before `sleep` is told to die with it. A `sleep` stayed behind, for a third
    of the lease."""
    late = tmp_path / "late"
    late.write_text('#!/bin/sh\nkill -VTALRM "$PPID"\nwhile kill -0 "$PPID" 2>/dev/null; do sleep 0.02; done\nexec "$@"\n')
    late.chmod(0o755)
    script = f"""FLATQ_VERB=work; lib="{LIB}"; . "$lib/engine/common.sh"; shell_reset; need engine/spool worker/run
        work_reset; work_tools; work_pdeathsig=$1 work_self=$$; work_name_owner; exec 5>/dev/null; sleeper_run 1000 & wait $!"""
    process = subprocess.Popen(
        [need("strace"), "-f", "-qq", "-o", tmp_path / "log", "-e", "trace=clone,clone3,fork", "-e", "inject=clone,clone3,fork:delay_exit=300000",
         *shlex.split(flatq.shell), "-c", script, "sh", late],
        env=flatq.env, cwd=flatq.home, start_new_session=True, stdin=subprocess.DEVNULL,
    )
    flatq.started.append(process)
    process.wait(60)
    wait_for(lambda: not session_left(process.pid), "its sleep is gone")


def test_a_killed_sleeper_does_not_let_a_command_run_on(flatq, spool, hold):
    push(flatq, b"x")
    process, _ = working(flatq, hold, "-x", "1", "-n", "1", "-d", "9")
    strike_sleeper(process, signal.SIGKILL)
    assert b"timeout, again in 9 s" in ended(process, 0)[1]


def test_a_worker_that_gets_no_other_watchdog_gives_back(flatq, spool, hold, stub):
    stub("mkfifo", f'[ ! -e {hold}/full ] || exit 1; exec "$REAL" "$@"')
    process = flatq.start("work", "-m", "1", "--", "sh", "-c", 'cat >>"$1/bodies"', "sh", hold)
    push(flatq, b"first")
    wait_for(lambda: listed(flatq) == [] and lies(spool).get("wait"), "it waits again")
    (hold / "full").touch()
    kill_watchdog(process)
    push(flatq, b"second")
    out, err = ended(process, 74)
    assert err.count(b"\n") == 1, err
    assert (hold / "bodies").read_bytes() == b"first"
    assert listed(flatq)[0][1:] == ("ready", 0, "")


def test_a_killed_feeder_whose_number_another_process_has(shell, flatq, hold, stranger):
    """The command read a part of its message. The worker must not take the other process for the feeder, and delete the message."""
    push(flatq, os.urandom(1000000))
    process = flatq.start("work", "-w", "0", "-n", "1", "-d", "9", "--", "sh", "-c", HOLD, "sh", hold)
    pipe = os.readlink(f"/proc/{held(hold)}/fd/0")

    def writer():
        """The program that decodes the message, once it waits for the command to read."""
        return next((one for one in session_left(process.pid) if command_of(one) == "base64" and os.readlink(f"/proc/{one}/fd/1") == pipe), None)

    decoder = wait_for(writer, "the message is fed")
    feeder = parent_of(decoder)
    for pid in (feeder, decoder):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "its number is free")
    stranger(feeder)
    (hold / "go").touch()
    assert b"unfed, again in 9 s" in ended(process, 0)[1]
    assert (hold / "body").stat().st_size < 1000000
    assert listed(flatq)[0][1:3] == ("delayed", 1)


STRUCK = {
    "the command": "job_pid=$pid job_named=$named; job_terminate TERM 200",
    "a sleeper": 'timer_pids=$pid timer_words=" VTALRM:$named"; timer_disarm',
    "the worker": "work_self=$pid work_owner=$named; sleeper_run 0.01",
}


@pytest.mark.parametrize("struck", STRUCK)
def test_a_signal_is_not_for_another_process_with_the_same_number(shell, flatq, stranger, struck):
    """A part of the worker signals what it takes for another part of it, which ended long ago."""
    script = f"""pid=$1 named=$1-000000000001; . "$lib/engine/common.sh"; shell_reset; need engine/spool worker/run
        work_reset; work_tools; clock_read; {STRUCK[struck]}"""
    other = stranger()
    loop(flatq, 'exec "$sh" -c "$2" sh "$1"', other.pid, "FLATQ_VERB=work; " + script, timeout=60)
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(0.2)


def test_a_term_inside_the_trap_of_hup(shell, flatq):
    """HUP's trap has noted that the message goes back, but not yet that no other one is taken."""
    script = """FLATQ_VERB=work; . "$lib/engine/common.sh"; shell_reset; need engine/spool worker/run
        work_reset; work_tools; work_abort=HUP; work_on_first_signal TERM; printf "%s" "$work_abort" """
    assert loop(flatq, 'exec "$sh" -c "$1"', script).out == b"HUP"


def test_a_message_that_workers_die_of_is_buried(flatq, spool, hold):
    number = push(flatq, b"x")
    for _ in range(2):
        process, _ = working(flatq, hold, "-m", "2")
        process.kill()
        process.wait()
        (hold / "pid").unlink()
    done = flatq("work", "-w", "0", "-m", "2", "--", "cat", check=0)
    assert done.out == b"" and b"dead, buried" in done.err, done
    assert listed(flatq)[0][1] == "buried"
    flatq("kick", check=0)
    assert flatq("work", "-w", "0", "-m", "2", "--", "cat", check=0).out == b"x", number


def test_a_command_out_of_time_has_failed_whatever_it_says(flatq, spool, hold):
    push(flatq, b"x")
    command = f"trap 'echo term; exit 0' TERM; sleep 100 & {HOLD}"
    done = flatq("work", "-w", "0", "-n", "1", "-d", "9", "--time", "3", "--", "sh", "-c", command, "sh", hold, check=0)
    assert done.out == b"term\n" and b"timeout, again in 9 s" in done.err
    wait_for(lambda: not group_left(held(hold)))


# several workers

# a command that ends when $2 of them run side by side
MEET = 'cat >/dev/null; : >"$1/$FLATQ_ID"; while set -- "$1" "$2" "$1"/*; [ $(($# - 2)) -lt "$2" ]; do set -- "$1" "$2"; sleep 0.05; done'


def test_jobs_run_side_by_side(shell, flatq, spool, hold):
    for number in range(4):
        push(flatq, b"%d" % number)
    process = flatq.start("work", "-j", "3", "-n", "3", "--", "sh", "-c", MEET, "sh", hold, "3")
    ended(process, 0)
    assert len(listed(flatq)) == 1
    nothing_left(process, spool)


def test_several_stop_after_their_jobs(flatq, spool, tmp_path):
    several(flatq, spool, tmp_path, [signal.SIGTERM], [0])


def test_several_give_back_at_once(shell, flatq, spool, tmp_path):
    several(flatq, spool, tmp_path, [signal.SIGINT, signal.SIGTERM], BY_TERM)


def test_several_give_back_when_their_parent_is_killed(flatq, spool, tmp_path):
    several(flatq, spool, tmp_path, [signal.SIGKILL], [-signal.SIGKILL])


def several(flatq, spool, tmp_path, numbers, status):
    for _ in range(4):
        push(flatq, b"x")
    script = 'mkdir "$1/$FLATQ_ID"; cd "$1/$FLATQ_ID"; set -- .; sleep 100 & ' + HOLD + '; kill "$!"'
    process = flatq.start("work", "--jobs", "2", "--", "sh", "-c", script, "sh", tmp_path)
    holds = wait_for(lambda: len(found := [path.parent for path in tmp_path.glob("*/pid")]) == 2 and found, "two run")
    pids = [held(path) for path in holds]
    before = set(children(process.pid))
    process.send_signal(numbers[0])
    if len(numbers) > 1:
        # either of two signals that come together may be noticed first; the worker then starts a clock
        wait_for(lambda: set(children(process.pid)) - before, "the first is heard")
        insist(process, numbers[1])
    if status == [0]:
        # Once the parent has passed the signal on, it sleeps for two seconds at a time. A worker whose job ended before that would begin another
        wait_for(lambda: b"sleep\0002\0" in map(words_of, left(process)), "the signal is passed on")
        for path in holds:
            (path / "go").touch()
    process.wait(60)
    assert process.returncode in status
    nothing_left(process, spool, *pids)
    rows = listed(flatq)
    assert len(rows) == (2 if status == [0] else 4)
    assert {row[1] for row in rows} == {"ready"}


def test_one_of_several_is_killed(flatq, spool, tmp_path):
    push(flatq, b"x")
    process = flatq.start("work", "-j", "2", "-n", "2", "--", "sh", "-c", HOLD, "sh", tmp_path)
    pid = held(tmp_path)
    worker = parent_of(pid)
    (tmp_path / "pid").unlink()
    os.kill(worker, signal.SIGKILL)
    # the other worker has it
    held(tmp_path)
    wait_for(lambda: not group_left(pid), "what the other one had started is gone")
    (tmp_path / "go").touch()
    ended(process, 70)
    assert listed(flatq) == []


# the worker's output


def said_on_terminal(flatq, *args):
    """Standard error of a worker, if that is a terminal."""
    leader, terminal = pty.openpty()
    process = flatq.start(*args, stderr=terminal, stdout=subprocess.DEVNULL)
    os.close(terminal)
    said = on_terminal(leader)
    os.close(leader)
    assert process.wait(60) == 0
    return said.decode()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_progress_in_one_line_on_a_terminal_only(flatq, jobs):
    for body in (b"0", b"0", b"7"):
        push(flatq, body)
    args = ["work", "-w", "0", "-d", "600", "-j", jobs, "--", "sh", "-c", 'exit "$(cat)"']
    said = said_on_terminal(flatq, *args)
    assert re.search(r"work: queue 'default': message \d+, try 1: exit-7, again in 600 s\r\n", said), said
    assert said.endswith("work: 2 done, 1 failed, 0 buried\r\n") and said.count("\n") == 2, said
    push(flatq, b"0")
    assert flatq(*args, check=0).err == b""


@pytest.mark.parametrize("shell", ["busybox"], indirect=True)
def test_numbers_may_have_zeros_in_front(flatq):
    push(flatq, b"x", "q")
    args = ["--queues", "q", "--jobs=01", "--lease", "08", "--backoff", "09,010", "--tries", "03", "--max", "02", "--wait", "00", "--time", "090"]
    assert flatq("work", *args, "--", "cat", check=0).out == b"x"
