"""Clocks: the uptime, which only grows; the wall clock, which may be set; and a new boot."""

import os
import subprocess

import pytest

from conftest import wait_for
from engine import empty, pop, push, refused, reserve


@pytest.fixture
def wall(stub, tmp_path):
    """wall(seconds) sets what `date +%s` prints."""
    at = tmp_path / "now"
    stub("date", f'read -r now <"{at}"\nprintf "%s\\n" "$now"')
    return lambda seconds: at.write_text(f"{seconds}\n")


@pytest.mark.new
def test_the_wall_clock_was_in_1970(shell, flatq, wall):
    """It may be behind the uptime where there is no battery. Then the first verb after the boot
    must not write a record that no other can read."""
    wall(100)
    push(flatq, b"1")
    wall(1_700_000_000)
    push(flatq, b"2", "-d", "0")
    assert [pop(flatq), pop(flatq)] == [b"1", b"2"]


@pytest.mark.new
def test_the_wall_clock_is_set_back_and_forth(shell, flatq, clock, wall):
    """While the system runs, setting the wall clock changes no delay, no lease and no order."""
    wall(1_700_000_000)
    first = push(flatq, b"1", "-t", "50")
    push(flatq, b"delayed", "-d", "100")
    reserve(flatq)
    for seconds in (1_000_000_000, 2_100_000_000, 1):
        wall(seconds)
        empty(flatq)
        assert push(flatq, b"x") > first
        assert pop(flatq) == b"x"
    clock.advance(49)
    empty(flatq)
    clock.advance(2)
    assert pop(flatq) == b"1"
    empty(flatq)
    clock.advance(50)
    assert pop(flatq) == b"delayed"


def test_the_same_ids_are_never_given_twice(flatq, spool, clock):
    ids = []
    for boot in range(4):
        clock.reboot(f"boot-{boot}")
        ids += [push(flatq, b"x"), push(flatq, b"x")]
    assert ids == sorted(set(ids))
    # nor where the power cut lost the newest of them
    for path in sorted((spool / ".ids").glob("*/*")):
        path.unlink()
    clock.reboot("last")
    assert push(flatq, b"x") > ids[-1]


@pytest.mark.parametrize("tool", ["base64", "date"])
def test_a_tool_that_fails_in_the_first_verb_of_a_boot(flatq, clock, stub, tool):
    """If a tool is killed in the first verb after a boot, that verb fails: it must not store a
    wrong answer for the rest of the boot."""
    push(flatq, b"x" * 200)
    clock.reboot("second")
    # only the first call fails
    stub(tool, '[ -e "$HOME/failed" ] || { : >"$HOME/failed"; kill -9 $$; }\nexec "$REAL" "$@"')
    for mark in (flatq.spool / ".boot").iterdir():
        mark.unlink()
    done = flatq("push", input=b"y" * 200)
    assert done.status in (0, 70), done
    if done.status:
        # the shell itself prints a line on a child that was killed
        assert done.out == b"" and done.err.splitlines()[-1].startswith(b"push: "), done
        push(flatq, b"y" * 200)
    assert [pop(flatq), pop(flatq)] == [b"x" * 200, b"y" * 200]


def test_what_was_set_aside_stays_after_a_boot(flatq, spool, clock):
    """It is all that is left of damaged messages."""
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(200)), check=0)
    flat, = (spool / "q/queue").glob("*/*")
    flat.write_text(flat.read_text().replace("\tNQ==\n", "\t!Q==\n"))
    flatq("doctor", "q", check=0)
    (spool / "q/fold/garbage").write_text("x")
    (spool / "q/tmp/12-34.left").write_text("y")
    clock.reboot("second")
    flatq("stat", "q", check=0)
    aside = sorted(path.read_text() for path in (spool / "q/tmp").iterdir())
    assert len(aside) == 2 and "\t!Q==\n" in aside[0] and aside[1] == "x", aside


def test_what_processes_of_an_earlier_boot_have_left(flatq, spool, clock):
    """Since the boot, their numbers belong to other processes: here that of the tests. While their
    boot lasts, they may live."""
    push(flatq, b"x", "q")
    owner = f"{os.getpid()}-999999999999"
    left = [spool / path for path in (f".wait/{owner}.0123456789ab",
        f".doors/wait/{owner}.0123456789ab", f"q/wait/{owner}.0123456789ab",
        f".doors/{owner}/began", f".drop.0123456789ab.{owner}/conf",
        f".ids.old.0123456789ab.{owner}/1000")]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    dead = spool / f".doors/{os.getpid()}-000000000001"
    dead.mkdir()
    flatq("wal", check=0)
    assert all(path.exists() for path in left) and not dead.exists()
    clock.reboot("second")
    flatq("wal", check=0)
    assert not [path for path in left if path.exists()
        or path.parent.name.startswith((".drop", ".ids.old")) and path.parent.exists()]
    assert pop(flatq, "q") == b"x"


class Times:
    """The clock, and a wall clock that is `wrong` by so many seconds."""

    def __init__(self, clock, wall):
        self.clock, self.wall, self.true = clock, wall, 1_700_000_000
        self.set(0)

    def set(self, wrong):
        self.wrong = wrong
        self.wall(int(self.true + wrong))

    def go(self, seconds):
        self.true += seconds
        self.clock.advance(seconds)
        self.set(self.wrong)

    def reboot(self, name, wrong=0):
        self.true += 50
        self.clock.reboot(name)
        self.set(wrong)


@pytest.fixture
def times(clock, wall):
    return Times(clock, wall)


MONTH = 30 * 86400


@pytest.mark.new
@pytest.mark.parametrize("wrong", [MONTH, -MONTH, -1_699_990_000],
    ids=["ahead", "behind", "in 1970"])
def test_the_wall_clock_is_wrong_in_the_first_verbs_of_a_boot(shell, flatq, times, wrong):
    """Cron comes before NTP. Delays of this boot are right nevertheless, also after the next one;
    those of an earlier boot are, once the wall clock is."""
    push(flatq, b"first, 2000", "-d", "2000")
    times.reboot("second", wrong)
    if wrong > 0:
        assert pop(flatq) == b"first, 2000"
    push(flatq, b"2", "-d", "2")
    push(flatq, b"1000", "-d", "1000")
    leased = push(flatq, b"leased")
    held = reserve(flatq, "-t", "600")
    empty(flatq)
    times.set(0)
    assert push(flatq, b"x") > leased
    assert pop(flatq) == b"x"
    times.go(1.9)
    empty(flatq)
    times.go(0.2)
    assert pop(flatq) == b"2"
    push(flatq, b"100", "-d", "100")
    times.go(99.8)
    empty(flatq)
    times.go(0.3)
    assert pop(flatq) == b"100"
    times.go(497)
    empty(flatq)
    flatq("delete", held.receipt, check=0)
    times.reboot("third")
    times.go(340)
    empty(flatq)
    times.go(12)
    assert pop(flatq) == b"1000"
    empty(flatq)
    if wrong < 0:
        times.go(1000)
        assert pop(flatq) == b"first, 2000"
    empty(flatq)


@pytest.mark.new
@pytest.mark.parametrize("verb", ["wal", "push -d 9999", "pop", "reserve -w 0"])
def test_a_verb_notes_that_the_wall_clock_was_put_right(flatq, times, spool, verb):
    """So the next boot knows, whatever comes between."""
    times.set(-MONTH)
    push(flatq, b"x", "-d", "100")
    times.set(0)
    times.go(5)
    flatq(*verb.split(), input=b"y")
    times.reboot("second")
    times.go(40)
    empty(flatq)
    times.go(10)
    assert pop(flatq) == b"x"


@pytest.mark.new
def test_the_wall_clock_is_put_right_while_a_pop_waits(flatq, times):
    push(flatq, b"first", "-d", "200")
    times.reboot("second", -MONTH)
    process = flatq.start("pop", "-w", "100000", stdin=subprocess.DEVNULL)
    wait_for(lambda: list(flatq.spool.glob(".wait/*")), "a pop that waits")
    times.set(0)
    times.go(200)
    assert process.communicate(timeout=60) == (b"first", b"")


@pytest.mark.new
def test_boots_that_begin_at_the_same_time(flatq, times):
    """Without a battery, each begins in 1970."""
    for boot in ("second", "third", "fourth"):
        times.reboot(boot, -times.true)
        push(flatq, boot.encode(), "-d", "100")
    times.reboot("last")
    assert [pop(flatq) for _ in range(3)] == [b"second", b"third", b"fourth"]
    empty(flatq)


@pytest.mark.new
@pytest.mark.parametrize("busy", ["", "busy"])
@pytest.mark.parametrize("fault", ["kill -9 $PPID; exit", '"$REAL" "$@"; kill -9 $PPID; exit',
    "exit 1"], ids=["before", "after", "fails"])
def test_a_boot_ends_while_it_names_what_was_delayed(flatq, stub, times, busy, fault):
    """At each rename. A queue is `busy` if its recovery has more to do. The next verb goes on, in
    this boot or a later one."""
    for queue in "ab":
        for delay in (400, 4000):
            push(flatq, b"%d" % delay, "-d", str(delay), queue)
        if busy:
            push(flatq, b"x", queue)
            reserve(flatq, "-t", "0", queue)
    (flatq.home / "when").write_text("1")
    times.reboot("second")
    stub("mv", 'case $* in -fT*) echo >>"$HOME/moves"; [ "$(wc -l <"$HOME/moves")" -ne "$(cat '
        f'"$HOME/when")" ] || {{ {fault}; }} ;; esac; exec "$REAL" "$@"')
    for when in (1, 1, 2, 1, 3):
        (flatq.home / "when").write_text(f"{when}")
        (flatq.home / "moves").write_text("")
        flatq.start("stat", "a").communicate(timeout=60)
        if when > 1:
            times.reboot(f"boot-{when}", MONTH if when == 2 else 0)
    for queue in "ab":
        if busy:
            assert pop(flatq, queue) == b"x"
        empty(flatq, queue)
    times.go(250)
    for delay in (400, 4000):
        for queue in "ab":
            assert pop(flatq, queue) == b"%d" % delay
            empty(flatq, queue)
        times.go(3600)


@pytest.mark.new
def test_what_is_delayed_cannot_be_read_at_a_boot(flatq, stub, times):
    """The queue's mark keeps the time of its own boot, over any number of boots."""
    push(flatq, b"x", "-d", "1000", "q")
    push(flatq, b"reserved", "q")
    reserve(flatq, "q")
    stub("ls", 'case $* in "-q "*/q/delayed) [ -e "$HOME/good" ] || exit 2 ;; esac; '
        'exec "$REAL" "$@"')
    for boot in ("second", "third"):
        times.reboot(boot)
        refused(flatq("pop", "q"), 74)
        push(flatq, b"y", "other")
    (flatq.home / "good").touch()
    assert pop(flatq, "q") == b"reserved"
    times.go(890)
    empty(flatq, "q")
    times.go(12)
    assert pop(flatq, "q") == b"x"
