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

from conftest import LIB, Result, everything, wait_for
from engine import (  # noqa: F401
    child_named, clock, command_of, empty, holders, lies, pop, push, refused, reserve, standing,
    stop_waiting)


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
    assert lies(flatq.spool, queue).get(WAITS.get(verb, "wait"))
    return process


def nothing_left(spool):
    """No FIFO, no entry and no process that has one open is left. (A push that wakes a verb that is
    just leaving may leave a file in .wait.)"""
    assert [path for path in (spool / ".wait").iterdir() if not path.is_file()] == []
    for place in ("wait", "room"):
        assert not list(spool.glob(f"*/{place}/*"))
    wait_for(lambda: holders(spool) == [], "the end of the sleepers")


# a verb that waits, and where: pop and push for an empty and a full queue `q`
WAITS = {"pop": "wait", "push": "room"}
both = pytest.mark.parametrize("verb", WAITS)


def full(flatq):
    flatq("create", "-b", "1", "q", check=0)
    push(flatq, b"1", "q")


@both
def test_time_out(shell, flatq, spool, clock, verb):
    if verb == "push":
        full(flatq)
    for seconds in (1, 3):
        process = flatq.start(verb, "-w", str(seconds), *["p"] * (verb == "pop"), "q",
            stdin=subprocess.DEVNULL)
        assert clock.passes(process) == seconds
        refused(Result(process.returncode, *process.communicate()), 75 if verb == "push" else 66)
    nothing_left(spool)


@both
@pytest.mark.shells
def test_stopped_it_leaves_nothing(shell, flatq, spool, clock, verb):
    """A pop takes no message that comes later, and a push keeps no key."""
    if verb == "push":
        full(flatq)
    words = {"pop": ("-w", "30", "p", "q"), "push": ("-w", "30", "-k", "key", "q")}[verb]
    stop_waiting(clock, [(number, waiting(flatq, *words, queue="q", verb=verb))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)])
    nothing_left(spool)
    assert verb == "pop" or pop(flatq, "q") == b"1"
    push(flatq, b"x", "-k", "key", "q")
    assert pop(flatq, "q") == b"x"


@both
@pytest.mark.parametrize("without", [False, True])
def test_killed_it_leaves_nothing_behind_the_next_checkpoint(flatq, spool, stub, verb, without):
    """Nor does its sleeper live on: without setpriv, for two seconds at most."""
    if without:
        stub("setpriv", "exit 127")
    else:
        stub("sleep", 'exec "$REAL" 1000000')
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


@both
@pytest.mark.parametrize("again", [False, True])
def test_a_queue_that_is_dropped(shell, flatq, spool, clock, verb, again):
    """Who waits for it ends in time. A pop finds a message in a new queue of that name, and a push
    stores nothing there."""
    if verb == "push":
        full(flatq)
    process = waiting(flatq, "-w", "3", "q", queue="q", verb=verb)
    flatq("drop", "-f", "q", check=0)
    if again:
        push(flatq, b"new", "q")
    assert clock.passes(process) <= 3
    out, err = process.communicate()
    assert (process.returncode, out) in {"pop": [(0, b"new")] if again else [(66, b""), (69, b"")],
        "push": [(69, b"")]}[verb], (process.returncode, out, err)
    assert err.count(b"\n") == (out == b"")
    assert (verb, again) != ("push", True) or pop(flatq, "q") == b"new"
    empty(flatq, "q")
    nothing_left(spool)


@both
def test_close_wakes_it(shell, flatq, spool, clock, verb):
    full(flatq)
    assert verb == "push" or pop(flatq, "q")
    process = waiting(flatq, "-w", "30", "q", queue="q", verb=verb)
    flatq("close", "q", check=0)
    refused(Result(process.wait(60), *process.communicate()), 69, verb)
    nothing_left(spool)


@pytest.mark.parametrize("calls, when", [("getdents64", 2), ("getdents64", 4),
    ("newfstatat,stat", 1)], ids=["listed", "listed again", "unmarked"])
def test_a_waiter_that_leaves_while_it_is_woken(flatq, spool, clock, calls, when):
    """A push stands when it has listed the waiters, or before it marks the first. That one is woken
    by another push, and leaves. The first push must wake the second waiter."""
    processes = [waiting(flatq, "-w", "30") for _ in range(2)]
    wait_for(lambda: len(lies(spool)["wait"]) == 2 and all(map(clock.asleep, processes)),
        "two who wait")
    first = spool / ".wait" / f"{min(lies(spool)['wait'])}.woken"
    pusher, _, stopped = standing(flatq, calls, when, "push",
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
    """A pop ends within 50 ms of the push. The time counts from the push's end to the pop's end, so
    it includes the pop's own work."""
    took = []
    for _ in range(7):
        process = waiting(flatq, "-w", "30")
        push(flatq, b"x")
        begun = time.monotonic()
        assert process.wait(20) == 0
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < 0.05, took


@pytest.mark.parametrize("queue", ["plain", "later", "held"])
def test_two_seconds_at_a_time(shell, flatq, clock, queue):
    """However long it waits, and however late something is due."""
    push(flatq, b"not yet", "-d", "4294967295", "later")
    push(flatq, b"in flight", "-t", "4294967295", "held")
    reserve(flatq, "held")
    process = flatq.start("pop", "-w", "4294967295", queue)
    for _ in range(2):
        assert clock.asleep(process) == 2
        clock.advance(2)
    assert clock.asleep(process) == 2


def test_of_several_queues(shell, flatq, spool, clock):
    """Of which one is named twice."""
    process = waiting(flatq, "-w", "30", "a", "b/c", "a", "d", queue="b,c")
    push(flatq, b"x", "b/c")
    assert process.communicate(timeout=100)[0] == b"x"
    nothing_left(spool)


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
def test_many_waiters_and_as_many_pushes(flatq, spool, clock, at_once):
    """Each push wakes one waiter. A waiter that no longer needs the wake passes it on, so no waiter
    sleeps on beside a message."""
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
    """A wake is a byte in the waiter's FIFO. It is lost if it comes before the waiter opens the
    FIFO, so the waiter also looks for the mark that comes with it."""
    flatq("create", check=0)
    stub("find", f'''"$REAL" "$@"; code=$?
      [ -e "$ONCE" ] || [ -z "$(ls "$FLATQ_DIR/default/wait")" ] ||
        {{ : >"$ONCE"; printf x | sh {LIB}/push >/dev/null; }}
      exit $code''')
    assert flatq("pop", "-w", "60", timeout=20, check=0).out == b"x"
    assert (flatq.home.parent / "stubs/find.once").exists()
    nothing_left(spool)


@pytest.mark.parametrize("place", ["default/wait", "default/room", ".doors/wait"])
def test_an_entry_is_swept_whose_fifo_is_gone_already(flatq, spool, place):
    """A waiter that ends removes its FIFO and then its entries. If it was killed in between, the
    checkpoint removes the entries."""
    push(flatq, b"x")
    (spool / ".doors/wait").mkdir(parents=True)
    dead, alive = (spool / place / f"{owner}.0123456789ab"
        for owner in ("999999999-000000000001", f"{os.getpid()}-999999999999"))
    for entry in (dead, alive):
        entry.touch()
    flatq("wal", check=0)
    assert alive.exists() and not dead.exists()


def test_killed_it_costs_others_no_message(flatq, endless):
    """A push that wakes a dead waiter goes on and wakes a living one."""
    dead = [waiting(flatq, "-w", "30") for _ in range(3)]
    alive = waiting(flatq, "-w", "30")
    for process in dead:
        process.kill()
        process.wait()
    push(flatq, b"x")
    assert alive.communicate(timeout=100)[0] == b"x"


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


@pytest.mark.parametrize("what", ["delay", "lease", "delay of a push meanwhile"])
def test_what_is_due_wakes_at_its_time(shell, flatq, clock, what):
    words = () if what == "lease" else ("-d", "1")
    if "meanwhile" not in what:
        push(flatq, b"x", *words)
    if what == "lease":
        reserve(flatq, "-t", "1")
    process = flatq.start("pop", "-w", "30")
    if "meanwhile" in what:
        clock.asleep(process)
        push(flatq, b"x", *words)
    assert 1 <= clock.passes(process) <= 1 + 2 * ("meanwhile" in what)
    assert process.communicate()[0] == b"x"


def test_what_is_released_or_kicked_wakes(shell, flatq, clock):
    push(flatq, b"x")
    for turn in ("release", "bury"):
        got = reserve(flatq)
        process = waiting(flatq, "-w", "30", verb="reserve")
        flatq(turn, got.receipt, check=0)
        if turn == "bury":
            flatq("kick", check=0)
        out, _ = process.communicate(timeout=100)
        flatq("release", out.split()[0].decode(), check=0)


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
