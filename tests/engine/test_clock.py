"""Clocks: the uptime, which only grows; and a new boot. talks.txt has
the wall clock, which may be set."""

import os
import time
from datetime import datetime

import pytest

from engine import empty, pop, push, refused, reserve


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
    """It must not store a wrong answer for the rest of the boot."""
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
    """Since the boot, their numbers belong to other processes: here that of the tests."""
    push(flatq, b"x", "q")
    owner = f"{os.getpid()}-999999999999"
    left = [spool / path for path in (f".wait/{owner}.0123456789ab",
        f".doors/wait/{owner}.0123456789ab", f"q/wait/{owner}.0123456789ab",
        f".doors/{owner}/guard", f".drop.0123456789ab.{owner}/conf",
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


@pytest.fixture
def dated(clock, stub):
    """The clock, by which `date` goes as well, and later boots come later."""
    stub("date", 'read -r now rest <"$FLATQ_PROC/uptime"\necho "$((1700000000 + ${now%.*}))"')
    clock.boots = lambda name: clock.reboot(name, clock.seconds + 50)
    return clock


@pytest.mark.new
@pytest.mark.parametrize("fault", ["kill -9 $PPID; exit", '"$REAL" "$@"; kill -9 $PPID; exit',
    "exit 1"], ids=["before", "after", "fails"])
def test_a_boot_ends_while_it_names_what_was_delayed(flatq, stub, dated, fault):
    """At each rename. The next verb goes on, in this boot or a later one."""
    for queue in "ab":
        for delay in (400, 4000):
            push(flatq, b"%d" % delay, "-d", str(delay), queue)
        push(flatq, b"x", queue)
        reserve(flatq, "-t", "0", queue)
    dated.boots("second")
    stub("mv", 'case $* in -fT*) echo >>"$HOME/moves"; [ "$(wc -l <"$HOME/moves")" -ne "$(cat '
        f'"$HOME/when")" ] || {{ {fault}; }} ;; esac; exec "$REAL" "$@"')
    for when in (1, 1, 2, 1, 3):
        (flatq.home / "when").write_text(f"{when}")
        (flatq.home / "moves").write_text("")
        flatq.start("stat", "a").communicate(timeout=60)
        if when > 1:
            dated.boots(f"boot-{when}")
    for queue in "ab":
        assert pop(flatq, queue) == b"x"
        empty(flatq, queue)
    dated.advance(250)
    for delay in (400, 4000):
        for queue in "ab":
            assert pop(flatq, queue) == b"%d" % delay
            empty(flatq, queue)
        dated.advance(3700)


@pytest.mark.new
def test_what_is_delayed_cannot_be_read_at_a_boot(flatq, stub, dated):
    """The queue's mark keeps the time of its own boot, over any number of boots."""
    push(flatq, b"x", "-d", "1000", "q")
    push(flatq, b"reserved", "q")
    reserve(flatq, "q")
    stub("ls", 'case $* in "-q "*/q/delayed) [ -e "$HOME/good" ] || exit 2 ;; esac; '
        'exec "$REAL" "$@"')
    for boot in ("second", "third"):
        dated.boots(boot)
        refused(flatq("pop", "q"), 74)
        push(flatq, b"y", "other")
    (flatq.home / "good").touch()
    assert pop(flatq, "q") == b"reserved"
    dated.advance(890)
    empty(flatq, "q")
    dated.advance(12)
    assert pop(flatq, "q") == b"x"


@pytest.mark.shells
def test_a_message_for_a_time(shell, flatq):
    """`push --at` is due then by the wall clock, not before; `list` has that time, and the end of
    a lease."""
    at = int(time.time()) + 2
    number = push(flatq, b"x", "-A", f"@{at}", "q")
    later = push(flatq, b"y", "--at", "tomorrow 15:00", "q")
    refused(flatq("pop", "q"), 66)
    assert flatq("pop", "-w", "9", "q", check=0).out == b"x"
    assert at <= time.time() < at + 1.5
    assert push(flatq, b"z", "-d", "900", "-A", "now", "q") > later > number
    reserve(flatq, "-t", "10m", "q")
    due = [int(line.split()[-1]) for line in flatq("list", "q", check=0).out.splitlines()]
    assert datetime.fromtimestamp(due[0]).strftime("%H:%M:%S") == "15:00:00"
    assert abs(due[1] - time.time() - 600) < 3
    for wrong in ("gone", "", "@99999999999", "1 minute ago", f"@{at - 9}"):
        refused(flatq("push", "-A", wrong, "q", input=b"x"), 65, "push", text=b"-A takes")
