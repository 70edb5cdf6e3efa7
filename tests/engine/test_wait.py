"""Verbs that wait for a message, or for room: they notice it soon, cost little, stop in time, and
leave nothing behind.

In most tests `sleep` goes by the test's clock. So a waiting verb goes on only when it is woken, or
when the test lets time pass."""

import os
import signal
import statistics
import subprocess
import time

import pytest

from conftest import LIB, everything, wait_for
from engine import (  # noqa: F401
    child_named, clock, command_of, empty, holders, lies, pop, push, refused, reserve, standing,
    stopped_by)


@pytest.fixture
def endless(stub):
    """No sleep ends by itself. The clock and the processes are the system's."""
    stub("sleep", 'exec "$REAL" 1000000')


def waiting(flatq, *arguments, queue="default", verb="pop", **more):
    """A verb that has looked, has found nothing and sleeps."""
    process = flatq.start(verb, *arguments, stdin=subprocess.DEVNULL, **more)
    wait_for(lambda: child_named(process, "sleep") or process.poll() is not None,
        "the waiter's sleep")
    assert process.poll() is None, process.communicate()
    assert lies(flatq.spool, queue).get({**WAITS, "wait": "room"}.get(verb, "wait"))
    return process


def nothing_left(spool, clock=None):
    """No FIFO, entry or process is left. (A push may leave a file in .wait, if who it wakes is just
    leaving. A signal may come before a verb knows its sleeper, which then lives on for two seconds
    at most.)"""
    assert [path for path in (spool / ".wait").iterdir() if not path.is_file()] == []
    for place in ("wait", "room"):
        assert not list(spool.glob(f"*/{place}/*"))
    if clock:
        assert clock.passes_until(lambda: holders(spool) == [],
            lambda: [left for left in clock.sleepers().values() if left > 0]) <= 2
    else:
        wait_for(lambda: holders(spool) == [], "the end of the sleepers")


# a verb that waits, and where: pop and push for an empty and a full queue `q`
WAITS = {"pop": "wait", "push": "room"}
both = pytest.mark.parametrize("verb", WAITS)


def full(flatq):
    flatq("create", "-b", "1", "q", check=0)
    push(flatq, b"1", "q")


@pytest.mark.shells
def test_until_the_work_is_done(shell, flatq, spool, clock):
    """`wait` is woken by a delete and by a bury, and takes no wake from a push. A pop wakes it in
    two seconds at most."""
    flatq("create", "-b", "3", "q", check=0)
    first, _, last = [push(flatq, b"%d" % n, "q") for n in range(3)]
    for later in last + 1, 99999:
        refused(flatq("wait", f"q:{later}"), 66, text=b"no such message yet")
    queue = waiting(flatq, "q", queue="q", verb="wait")
    one = waiting(flatq, f"q:{first}", queue="q", verb="wait")
    beside = waiting(flatq, "-w", "60", "q", queue="q", verb="push")
    flatq("delete", reserve(flatq, "q").receipt, check=0)
    assert (one.wait(20), beside.wait(20)) == (0, 0)
    assert clock.passes(waiting(flatq, "-t", "7", "q", queue="q", verb="wait")) <= 7
    refused(flatq("wait", "-t", "0", f"q:{last}"), 75, text=b"the time is over")
    failed = waiting(flatq, f"q:{last}", queue="q", verb="wait")
    flatq("delete", reserve(flatq, "q").receipt, check=0)
    held = reserve(flatq, "q").receipt
    flatq("release", "-d", "5", held, check=0)
    flatq("bury", "-r", "exit-3", reserve(flatq, "q").receipt, check=0)
    flatq("kick", "-n", "9", "q", check=0)
    flatq("bury", "-r", "exit-3", f"q:{last}", check=0)
    assert (failed.wait(20), b"buried with exit-3" in failed.communicate()[1]) == (65, True)
    assert clock.asleep(queue) <= 2
    flatq("pop", "q", check=0)
    clock.passes(queue)
    assert queue.wait(20) == 65 and b"1 buried meanwhile" in queue.communicate()[1]
    assert flatq("wait", "q", f"q:{first}").status == 0
    refused(flatq("wait", f"q:{last}"), 65, text=b"exit-3")
    process = waiting(flatq, *[push(flatq, b"x", "q") and "q"], queue="q", verb="wait")
    flatq("drop", "-f", "q", check=0)
    clock.passes(process)
    assert process.wait(20) == 69
    for words, code in ((), 64), (("q",), 66), (("q:x",), 66):
        refused(flatq("wait", *words), code, "wait")
    process = waiting(flatq, *[push(flatq, b"x", "q") and "q"], queue="q", verb="wait")
    process.terminate()
    stopped_by(process, signal.SIGTERM)
    nothing_left(spool, clock)


@both
@pytest.mark.shells
def test_stopped_it_leaves_nothing(shell, flatq, spool, clock, verb):
    """A pop takes no message that comes later, and a push keeps no key."""
    if verb == "push":
        full(flatq)
    words = {"pop": ("-w", "30", "p", "q"), "push": ("-w", "30", "-k", "key", "q")}[verb]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = waiting(flatq, *words, queue="q", verb=verb)
        process.send_signal(number)
        assert clock.passes(process) <= 2
        stopped_by(process, number)
    nothing_left(spool, clock)
    assert verb == "pop" or pop(flatq, "q") == b"1"
    push(flatq, b"x", "-k", "key", "q")
    assert pop(flatq, "q") == b"x"


@both
def test_killed_it_leaves_nothing_behind_the_next_checkpoint(flatq, spool, verb):
    """Nor does its sleeper live on: for two seconds at most."""
    if verb == "push":
        full(flatq)
    process = waiting(flatq, "-w", "30", "q", queue="q", verb=verb)
    process.kill()
    process.wait()
    wait_for(lambda: holders(spool) == [], "the end of its sleeper")
    flatq("wal", check=0)
    nothing_left(spool)
    assert verb == "push" or push(flatq, b"1", "q")
    assert pop(flatq, "q") == b"1"


@pytest.mark.parametrize("calls, when", [("getdents64", 2), ("getdents64", 4),
    ("newfstatat,stat", 1)], ids=["listed", "listed again", "unmarked"])
def test_a_waiter_that_leaves_while_it_is_woken(flatq, spool, clock, calls, when):
    """A push has listed the waiters, and another push wakes the first. The first push must wake the
    second waiter."""
    processes = [waiting(flatq, "-w", "30") for _ in range(2)]
    wait_for(lambda: len(lies(spool)["wait"]) == 2 and all(map(clock.asleep, processes)),
        "two who wait")
    first = spool / ".wait" / f"{min(lies(spool)['wait'])}.woken"
    pusher, stopped = standing(flatq, calls, when, "push",
        at=[first if "stat" in calls else spool / "default/wait"])
    push(flatq, b"second")
    wait_for(lambda: any(process.poll() is not None for process in processes),
        "the end of the first")
    os.kill(stopped, signal.SIGCONT)
    for process in processes:
        assert process.wait(20) == 0
    assert pusher.wait(60) == 0
    nothing_left(spool)
    empty(flatq)


@pytest.mark.timed
def test_how_soon(shell, flatq):
    """Within 50 ms of the push's end."""
    took = []
    for _ in range(7):
        process = waiting(flatq, "-w", "30")
        push(flatq, b"x")
        begun = time.monotonic()
        assert process.wait(20) == 0
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < 0.05, took


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
def test_many_waiters_and_as_many_pushes(flatq, spool, clock, at_once):
    """Each push wakes one, and a waiter that no longer needs the wake passes it on."""
    count = 20 if everything() else 8
    waiters = [waiting(flatq, "-w", "60") for _ in range(count)]
    if at_once:
        pushes = [flatq.start("push", stdin=subprocess.DEVNULL) for _ in range(count)]
        assert {process.wait(60) for process in pushes} == {0}
    else:
        for k in range(count):
            push(flatq, b"%d" % k)
    got = [process.communicate(timeout=100) for process in waiters]
    assert {process.returncode for process in waiters} == {0}
    assert at_once or sorted(int(out) for out, _ in got) == list(range(count))
    nothing_left(spool)
    empty(flatq)
    flatq("wal", check=0)
    assert at_once is False or list((spool / ".wait").iterdir()) == []


def test_a_wake_between_the_look_and_the_sleep(shell, flatq, spool, stub, endless):
    """Its byte is lost, so the waiter also looks for the mark that comes with it."""
    flatq("create", check=0)
    stub("find", f'''"$REAL" "$@"; code=$?
      [ -e "$ONCE" ] || [ -z "$(ls "$FLATQ_DIR/default/wait")" ] ||
        {{ : >"$ONCE"; printf x | sh {LIB}/push >/dev/null; }}
      exit $code''')
    assert flatq("pop", "-w", "60", timeout=20, check=0).out == b"x"
    assert (flatq.home.parent / "stubs/find.once").exists()
    nothing_left(spool)


def test_a_stopped_waiter_blocks_nobody(flatq, spool, endless):
    sleeping = waiting(flatq, "-w", "60")
    os.kill(sleeping.pid, signal.SIGSTOP)
    other = waiting(flatq, "-w", "60")
    for k in range(8):
        push(flatq, b"%d" % k)
    first = other.communicate(timeout=100)[0]
    os.kill(sleeping.pid, signal.SIGCONT)
    second = sleeping.communicate(timeout=100)[0]
    assert sorted([first, second] + [pop(flatq) for _ in range(6)]) == [b"%d" % k for k in range(8)]
    nothing_left(spool)


def test_the_death_of_an_owner_is_seen_while_waiting(flatq, spool):
    push(flatq, b"x" * 300000)
    owner = flatq.start("pop")
    wait_for(lambda: lies(spool).get("out") and child_named(owner, "base64"), "a pop at work")
    process = waiting(flatq, "-w", "300", stdout=subprocess.DEVNULL)
    os.killpg(owner.pid, signal.SIGKILL)
    owner.wait()
    assert process.wait(60) == 0


def test_beside_a_bulk_pop(shell, flatq, spool, clock):
    """The name of a bulk taker's batch has no deadline for which a waiter should wake."""
    for _ in range(2):
        push(flatq, b"x" * 90000)
    owner = flatq.start("pop", "-l", "-n", "2")
    wait_for(lambda: not lies(spool).get("wal") and list((spool / "default/out").glob("batch.*")),
        "a bulk pop at work")
    process = flatq.start("pop", "-w", "1")
    assert clock.passes(process) == 1 and process.returncode == 66
    out, _ = owner.communicate(timeout=100)
    assert out == (b"x" * 90000 + b"\n") * 2


def test_descriptors_of_the_caller(shell, flatq):
    """The caller may use descriptors 6 to 9, and hold a lock on one: the verb must leave them
    alone."""
    push(flatq, b"x", "-d", "1")
    done = subprocess.run(
        ["dash", "-c",
        'cd; exec 6>6 7>7 8>8 9>9; flock 9; "$@"; echo kept >&9; cat 6 7 8', "-",
         *flatq.command("pop", "-w", "60")], env=flatq.environment(None), stdout=subprocess.PIPE,
         timeout=100)
    assert (done.returncode, done.stdout) == (0, b"x")
    assert (flatq.home / "9").read_text() == "kept\n"
