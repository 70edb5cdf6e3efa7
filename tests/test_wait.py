"""Waiting: soon, cheap, exact, and nothing left behind."""

import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from conftest import SHELLS, need, wait_for
from engine import child_named, command_of, empty, holders, in_each_shell, lies, pop, push, refused, reserve, stopped_by

pytestmark = pytest.mark.timed


def waiting(flatq, *arguments, queue="default", verb="pop", **more):
    """A verb that has looked, found nothing and sleeps."""
    process = flatq.start(verb, *arguments, stdin=subprocess.DEVNULL, **more)
    wait_for(lambda: child_named(process, "sleep") or process.poll() is not None, "the waiter's sleep", seconds=5)
    assert process.poll() is None, process.communicate()
    assert lies(flatq.spool, queue).get("wait")
    return process


def nothing_left(spool):
    """No FIFO, no entry, no process that has any of them open. (Who wakes one that is just leaving may leave a file there.)"""
    assert [path for path in (spool / ".wait").iterdir() if not path.is_file()] == []
    for place in ("wait", "room"):
        assert not list(spool.glob(f"*/{place}/*"))
    wait_for(lambda: holders(spool) == [], "the end of the sleepers", seconds=5)


def test_a_message_that_comes(shell, flatq, spool):
    process = waiting(flatq, "-w", "30")
    push(flatq, b"x\0\n")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"x\0\n", b"")
    nothing_left(spool)
    empty(flatq)


def test_how_soon(shell, flatq):
    """Within 50 ms of the push: from when its id is there to when the pop has ended, the pop's own work with it."""
    took = []
    for _ in range(7):
        process = waiting(flatq, "-w", "30")
        push(flatq, b"x")
        begun = time.monotonic()
        assert process.wait(20) == 0
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < 0.05, took


def test_at_what_price(flatq, tmp_path):
    """A waiting pop takes under 1% of a core, in every shell, and for any number of seconds to wait: 32 bits must not overflow."""
    push(flatq, b"not yet", "-d", "4294967295", "later")
    push(flatq, b"in flight", "-t", "4294967295", "held")
    reserve(flatq, "held")
    started = []
    for name in SHELLS:
        link = tmp_path / name / "sh"
        link.parent.mkdir()
        link.symlink_to(os.path.realpath(need(name)))
        for seconds, queue in (("4", "plain"), ("4294967295", "plain"), ("4294967295", "later"), ("4294967295", "held")):
            process = subprocess.Popen([str(link), flatq.command("pop")[1], "-w", seconds, queue], env=flatq.environment(None), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            flatq.started.append(process)
            wait_for(lambda: child_named(process, "sleep"), "the waiter's sleep", seconds=20)
            started.append((name, seconds, queue, process, used(process.pid), time.monotonic()))
    last = started[-4 * len(SHELLS)][3]
    assert last.wait(30) == 66
    for name, seconds, queue, process, before, begun in started:
        if seconds == "4":
            continue
        share = (used(process.pid) - before) / (time.monotonic() - begun)
        assert share < 0.01, (name, seconds, queue, share)


def used(pid):
    """Seconds of processor time, of pid and of the children it has waited for."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def test_time_out(tmp_path):
    def check(flatq, spool):
        begun = time.monotonic()
        refused(flatq("pop", "-w", "1", "a", "b"), 66, "pop")
        assert 0.98 < time.monotonic() - begun < 1.6
        begun = time.monotonic()
        refused(flatq("pop", "-w", "0"), 66, "pop")
        assert time.monotonic() - begun < 0.5
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_time_out_alone(flatq):
    """With nobody beside, to a third of a second."""
    for seconds in (1, 2):
        begun = time.monotonic()
        refused(flatq("pop", "-w", str(seconds), "a"), 66, "pop")
        assert seconds - 0.02 < time.monotonic() - begun < seconds + 0.3


def test_the_same_queue_twice(tmp_path):
    def check(flatq, spool):
        refused(flatq("pop", "-w", "1", "a", "b", "a"), 66, "pop")
        nothing_left(spool)
        push(flatq, b"x", "a")
        assert pop(flatq, "-w", "1", "b", "a", "a") == b"x"

    in_each_shell(tmp_path, check)


def test_of_several_queues(shell, flatq, spool):
    process = waiting(flatq, "-w", "30", "a", "b/c", "d", queue="b,c")
    begun = time.monotonic()
    push(flatq, b"x", "b/c")
    assert process.communicate(timeout=20)[0] == b"x"
    assert time.monotonic() - begun < 1
    nothing_left(spool)


def test_twenty_waiters_and_twenty_pushes(flatq, spool):
    waiters = [waiting(flatq, "-w", "60") for _ in range(20)]
    begun = time.monotonic()
    for k in range(20):
        push(flatq, b"%d" % k)
    got = [process.communicate(timeout=60) for process in waiters]
    assert {process.returncode for process in waiters} == {0}
    assert sorted(int(out) for out, _ in got) == list(range(20))
    assert time.monotonic() - begun < 10
    nothing_left(spool)


def test_twenty_waiters_and_twenty_pushes_at_once(flatq, spool):
    waiters = [waiting(flatq, "-w", "60") for _ in range(20)]
    pushes = [flatq.start("push", stdin=subprocess.DEVNULL) for _ in range(20)]
    begun = time.monotonic()
    for process in pushes + waiters:
        process.communicate(timeout=60)
    assert {process.returncode for process in pushes + waiters} == {0}
    assert time.monotonic() - begun < 10
    nothing_left(spool)
    empty(flatq)
    flatq("wal", check=0)
    assert list((spool / ".wait").iterdir()) == []


def test_stopped_it_leaves_nothing(tmp_path):
    def check(flatq, spool):
        stopped = [(number, waiting(flatq, "-w", "30", "a", "b", queue="b")) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
        for number, process in stopped:
            process.send_signal(number)
        for number, process in stopped:
            stopped_by(process, number)
        nothing_left(spool)
        # and takes nothing
        push(flatq, b"x", "b")
        assert pop(flatq, "b") == b"x"

    in_each_shell(tmp_path, check)


def test_killed_it_leaves_nothing_behind_the_next_checkpoint(tmp_path):
    def check(flatq, spool):
        need("setpriv")
        process = waiting(flatq, "-w", "30", "a", "b", queue="b")
        sleeper = child_named(process, "sleep")
        process.kill()
        process.wait()
        wait_for(lambda: not command_of(sleeper), "the end of its sleeper", seconds=1)
        flatq("wal", check=0)
        nothing_left(spool)
        push(flatq, b"x", "b")
        assert pop(flatq, "b") == b"x"

    in_each_shell(tmp_path, check)


@pytest.mark.parametrize("place", ["default/wait", "default/room", ".doors/wait"])
def test_an_entry_is_swept_whose_fifo_is_gone_already(flatq, spool, place):
    """Whoever ends its waiting removes the FIFO and then the entries: killed in between, it left these where nobody waits again."""
    push(flatq, b"x")
    (spool / ".doors/wait").mkdir(parents=True)
    dead, alive = (spool / place / f"{owner}.0123456789ab" for owner in ("999999999-000000000001", f"{os.getpid()}-999999999999"))
    for entry in (dead, alive):
        entry.touch()
    flatq("wal", check=0)
    assert alive.exists() and not dead.exists()


def test_killed_it_costs_others_no_message(flatq, spool):
    """A push that wakes a dead waiter wakes a living one as well."""
    dead = [waiting(flatq, "-w", "30") for _ in range(3)]
    alive = waiting(flatq, "-w", "30")
    for process in dead:
        process.kill()
        process.wait()
    begun = time.monotonic()
    push(flatq, b"x")
    assert alive.communicate(timeout=20)[0] == b"x"
    assert time.monotonic() - begun < 1


def test_a_stopped_waiter_blocks_nobody(flatq, spool):
    sleeping = waiting(flatq, "-w", "60")
    os.kill(sleeping.pid, signal.SIGSTOP)
    other = waiting(flatq, "-w", "60")
    begun = time.monotonic()
    for k in range(8):
        push(flatq, b"%d" % k)
    assert time.monotonic() - begun < 5
    first = other.communicate(timeout=20)[0]
    os.kill(sleeping.pid, signal.SIGCONT)
    second = sleeping.communicate(timeout=20)[0]
    assert sorted([first, second] + [pop(flatq) for _ in range(6)]) == [b"%d" % k for k in range(8)]
    nothing_left(spool)


def test_one_message_wakes_one_waiter(tmp_path):
    """All are stopped, so that the mark of a wake stays: each push makes one more, and many at once as many as they are."""
    def check(flatq, spool):
        waiters = [waiting(flatq, "-w", "60") for _ in range(5)]
        for process in waiters:
            os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: all(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T" for process in waiters), "all are stopped")
        woken = []
        for words, text in (((), b"1"), ((), b"2"), (("-l",), b"3\n4\n")):
            flatq("push", *words, input=text, check=0)
            woken.append(len(list((spool / ".wait").glob("*.woken"))))
        assert woken == [1, 2, 4]
        for process in waiters:
            os.kill(process.pid, signal.SIGCONT)
        push(flatq, b"5")
        assert sorted(process.communicate(timeout=20)[0] for process in waiters) == [b"1", b"2", b"3", b"4", b"5"]
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_a_waiter_whose_fifo_is_gone(tmp_path):
    """Somebody tidied up. It spins no loop, it waits; and it still finds what comes."""
    def check(flatq, spool):
        process = waiting(flatq, "-w", "30")
        for path in (spool / ".wait").iterdir():
            path.unlink()
        sleeper = child_named(process, "sleep")
        # from the end of the turn that still has it open, for a second
        wait_for(lambda: child_named(process, "sleep") != sleeper, "its next turn", seconds=5)
        before, end = used(process.pid), time.monotonic() + 1
        wait_for(lambda: time.monotonic() > end)
        assert used(process.pid) - before < 0.1
        push(flatq, b"x")
        assert process.communicate(timeout=20)[0] == b"x"
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_a_delayed_message_wakes_at_its_time(tmp_path):
    def check(flatq, spool):
        begun = time.monotonic()
        push(flatq, b"x", "-d", "1")
        process = waiting(flatq, "-w", "30")
        assert process.communicate(timeout=20)[0] == b"x"
        assert 0.98 < time.monotonic() - begun < 1.45

    in_each_shell(tmp_path, check)


def test_a_delayed_message_that_comes_while_it_waits(flatq):
    process = waiting(flatq, "-w", "30")
    begun = time.monotonic()
    push(flatq, b"x", "-d", "1")
    assert process.communicate(timeout=20)[0] == b"x"
    assert 0.98 < time.monotonic() - begun < 3.3


def test_the_end_of_a_lease_wakes(tmp_path):
    def check(flatq, spool):
        push(flatq, b"x")
        begun = time.monotonic()
        reserve(flatq, "-t", "1")
        process = waiting(flatq, "-w", "30")
        assert process.communicate(timeout=20)[0] == b"x"
        assert 0.98 < time.monotonic() - begun < 1.6

    in_each_shell(tmp_path, check)


def test_what_is_released_or_kicked_wakes(tmp_path):
    def check(flatq, spool):
        push(flatq, b"x")
        for turn in ("release", "bury"):
            got = reserve(flatq)
            process = waiting(flatq, "-w", "30", verb="reserve")
            flatq(turn, got.receipt, check=0)
            if turn == "bury":
                flatq("kick", check=0)
            begun = time.monotonic()
            out, _ = process.communicate(timeout=20)
            assert time.monotonic() - begun < 1
            flatq("release", out.split()[0].decode(), check=0)

    in_each_shell(tmp_path, check)


def test_the_death_of_an_owner_is_seen_while_waiting(flatq, spool):
    push(flatq, b"x" * 300000)
    owner = flatq.start("pop")
    wait_for(lambda: lies(spool).get("out") and child_named(owner, "base64"), "a pop at work", seconds=5)
    process = waiting(flatq, "-w", "30", stdout=subprocess.DEVNULL)
    os.killpg(owner.pid, signal.SIGKILL)
    owner.wait()
    begun = time.monotonic()
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 4


def test_beside_a_bulk_pop(tmp_path):
    """What a bulk taker holds has no deadline to wait for, whatever its name looks like."""
    def check(flatq, spool):
        for _ in range(2):
            push(flatq, b"x" * 90000)
        owner = flatq.start("pop", "-l", "-n", "2")
        wait_for(lambda: not lies(spool).get("wal") and list((spool / "default/out").glob("batch.*")), "a bulk pop at work", seconds=5)
        refused(flatq("pop", "-w", "1"), 66, "pop")
        out, _ = owner.communicate(timeout=30)
        assert out == (b"x" * 90000 + b"\n") * 2

    in_each_shell(tmp_path, check)


def test_a_queue_that_is_dropped_and_made_again(tmp_path):
    """The time-out holds, and what is pushed to the new queue is found."""
    def check(flatq, spool):
        process = waiting(flatq, "-w", "30", "q", queue="q")
        flatq("drop", "q", check=0)
        push(flatq, b"x", "q")
        assert process.communicate(timeout=10)[0] == b"x"
        process = waiting(flatq, "-w", "1", "q", queue="q")
        flatq("drop", "q", check=0)
        begun = time.monotonic()
        assert process.wait(8) in (66, 69)
        assert time.monotonic() - begun < 3.5
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_without_proc(tmp_path):
    def check(flatq, spool):
        flatq.env["FLATQ_PROC"] = "/nonexistent"
        process = waiting(flatq, "-w", "30")
        push(flatq, b"x")
        assert process.communicate(timeout=20)[0] == b"x"
        push(flatq, b"later", "-d", "2")
        begun = time.monotonic()
        assert pop(flatq, "-w", "10") == b"later"
        assert time.monotonic() - begun < 4
        refused(flatq("pop", "-w", "1"), 66, "pop")
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_without_setpriv(tmp_path):
    """Waiting is the same; only a kill -9 then leaves a sleeper, for two seconds."""
    def check(flatq, spool):
        tools = flatq.home / "tools"
        tools.mkdir()
        (tools / "setpriv").write_text("#!/bin/sh\nexit 127\n")
        (tools / "setpriv").chmod(0o755)
        flatq.env["PATH"] = f"{tools}:{flatq.env['PATH']}"
        process = waiting(flatq, "-w", "30")
        process.kill()
        process.wait()
        wait_for(lambda: holders(spool) == [], "the end of its sleeper", seconds=4)
        flatq("wal", check=0)
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_a_closed_descriptor(tmp_path):
    """Started without standard input, output of errors or the numbers that waiting uses."""
    def check(flatq, spool):
        push(flatq, b"x", "-d", "1")
        done = subprocess.run(["dash", "-c", 'exec "$@" <&- 2>&- 3>&- 6>&- 7>&- 8>&- 9>&-', "-", *flatq.command("pop", "-w", "10")],
                              env=flatq.environment(None), stdout=subprocess.PIPE, timeout=30)
        assert (done.returncode, done.stdout) == (0, b"x")
        nothing_left(spool)

    in_each_shell(tmp_path, check)


def test_descriptors_of_the_caller(tmp_path):
    """Whoever calls may use 6 to 9 himself, and hold a lock there."""
    def check(flatq, spool):
        push(flatq, b"x", "-d", "1")
        done = subprocess.run(
            ["dash", "-c", 'exec 6>"$HOME/6" 7>"$HOME/7" 8>"$HOME/8" 9>"$HOME/9"; flock 9; "$@"; echo kept >&9; cat "$HOME/6" "$HOME/7" "$HOME/8"', "-",
             *flatq.command("pop", "-w", "10")], env=flatq.environment(None), stdout=subprocess.PIPE, timeout=30)
        assert (done.returncode, done.stdout) == (0, b"x")
        assert (flatq.home / "9").read_text() == "kept\n"

    in_each_shell(tmp_path, check)
