"""delete, release, touch, bury and kick change the state of a message that was handed out."""

import subprocess

import pytest

from engine import empty, lies, pop, push, refused, reserve


def quiet(done):
    assert (done.status, done.out, done.err) == (0, b"", b""), done


def test_delete(shell, flatq, spool):
    push(flatq, b"x", "-k", "key")
    got = reserve(flatq)
    quiet(flatq("delete", got.receipt))
    refused(flatq("delete", got.receipt), 66, "delete")
    empty(flatq)
    flatq("wal", check=0)
    assert lies(spool) == {}


def test_delete_without_reserving(shell, flatq):
    """QUEUE:ID names a message that nobody holds."""
    ready, delayed, buried, held = push(flatq, b"1"), push(flatq, b"2", "-d", "100"), push(flatq,
        b"3", "-p", "1"), push(flatq, b"4", "-p", "2")
    flatq("bury", reserve(flatq).receipt, check=0)
    got = reserve(flatq)
    assert got.id == held
    refused(flatq("delete", f"default:{held}"), 66, "delete")
    for number in (ready, delayed, buried):
        refused(flatq("touch", f"default:{number}"), 66, "touch", text=b"not reserved")
        quiet(flatq("delete", f"default:{number}"))
        refused(flatq("delete", f"default:{number}"), 66, "delete")
    quiet(flatq("release", got.receipt))
    assert pop(flatq) == b"4"
    assert flatq("kick").out == b"0\n"


def test_release_keeps_the_old_place(shell, flatq):
    for text in b"1", b"2", b"3":
        push(flatq, text)
    first, second = reserve(flatq), reserve(flatq)
    quiet(flatq("release", second.receipt))
    quiet(flatq("release", first.receipt))
    assert [reserve(flatq).body, pop(flatq), pop(flatq)] == [b"1", b"2", b"3"]


def test_release_to_another_priority(shell, flatq):
    for text in b"1", b"2", b"3":
        push(flatq, text)
    quiet(flatq("release", "-p", "65537", reserve(flatq).receipt))
    quiet(flatq("release", "-p", "000", reserve(flatq).receipt))
    got = reserve(flatq)
    assert (got.body, got.tries) == (b"2", 2)
    assert [pop(flatq), pop(flatq)] == [b"3", b"1"]


def test_release_with_a_delay(shell, flatq, clock):
    push(flatq, b"1")
    push(flatq, b"2")
    quiet(flatq("release", "-d", "30", "-p", "1", reserve(flatq).receipt))
    assert flatq("peek", "-s", "delayed", check=0).out == b"1"
    clock.advance(29)
    assert pop(flatq) == b"2"
    empty(flatq)
    clock.advance(1.1)
    assert pop(flatq) == b"1"


def test_release_of_what_is_not_reserved_by_its_receipt(flatq, clock):
    """The lease has ended, and nobody has reserved the message since: its old receipt still moves
    it."""
    push(flatq, b"1")
    push(flatq, b"2")
    got = reserve(flatq, "-t", "5")
    clock.advance(6)
    assert flatq("peek", check=0).out == b"1"
    quiet(flatq("release", "-p", "99999", got.receipt))
    assert [pop(flatq), pop(flatq)] == [b"2", b"1"]


def test_touch(shell, flatq, clock):
    push(flatq, b"x", "-t", "10")
    got = reserve(flatq)
    for options, seconds in (([], 10), (["-t", "30"], 30), (["-t", "3"], 3), ([], 10)):
        quiet(flatq("touch", *options, got.receipt))
        clock.advance(seconds - 0.5)
        empty(flatq)
    clock.advance(1)
    assert reserve(flatq).tries == 2
    refused(flatq("touch", got.receipt), 66, "touch")


def test_touch_shortens_too(flatq, clock):
    push(flatq, b"x")
    quiet(flatq("touch", "-t", "1", reserve(flatq, "-t", "1000").receipt))
    clock.advance(1.1)
    assert pop(flatq) == b"x"


def test_bury_and_kick_in_order(shell, flatq):
    for text in b"1", b"2", b"3", b"4":
        push(flatq, text)
    got = [reserve(flatq) for _ in range(4)]
    for index in (2, 0, 3):
        quiet(flatq("bury", got[index].receipt))
    empty(flatq)
    assert flatq("peek", "-s", "buried", check=0).out == b"3", "the longest buried"
    assert flatq("kick", check=0).out == b"1\n"
    assert pop(flatq) == b"3"
    assert flatq("kick", "-n", "10", check=0).out == b"2\n"
    # ready again, they are in their old places
    assert [reserve(flatq).body, reserve(flatq).body] == [b"1", b"4"]
    assert flatq("kick", check=0).out == b"0\n"


def test_buried_at_the_same_moment(flatq, clock):
    """The clock stands still. Each message must still be there once."""
    for text in b"1", b"2", b"3":
        push(flatq, text)
    for _ in range(3):
        flatq("bury", reserve(flatq).receipt, check=0)
    assert flatq("kick", "-n", "5", check=0).out == b"3\n"
    assert sorted([pop(flatq), pop(flatq), pop(flatq)]) == [b"1", b"2", b"3"]


def test_kick_takes_delayed_ones_where_none_is_buried(shell, flatq):
    push(flatq, b"later", "-d", "2000")
    push(flatq, b"soon", "-d", "1000")
    push(flatq, b"bad")
    flatq("bury", reserve(flatq).receipt, check=0)
    assert flatq("kick", "-n", "9", check=0).out == b"1\n", "the buried alone"
    assert pop(flatq) == b"bad"
    assert flatq("kick", check=0).out == b"1\n"
    assert pop(flatq) == b"soon"
    assert flatq("kick", "-n", "0", check=0).out == b"0\n"
    assert flatq("kick", "-n", "2", check=0).out == b"1\n"
    assert pop(flatq) == b"later"


def test_what_is_due_is_not_delayed(shell, flatq, clock):
    for text in (b"1", b"2"):
        push(flatq, text, "-d", "30")
        push(flatq, b"later", "-d", "60")
        assert flatq("peek", "-s", "delayed", check=0).out == text
        clock.advance(31)
        if text == b"1":
            assert flatq("peek", "-s", "delayed", check=0).out == b"later"
        assert flatq("kick", check=0).out == b"1\n" and flatq("kick",
            check=0).out == b"0\n", "the later one; the other is ready by itself"
        assert [pop(flatq), pop(flatq)] == [text, b"later"]


def test_what_is_over_is_not_reserved(shell, flatq, clock):
    push(flatq, b"1", "-t", "30")
    reserve(flatq)
    assert flatq("peek", "-s", "reserved", check=0).out == b"1"
    clock.advance(31)
    refused(flatq("peek", "-s", "reserved"), 66, "peek")


def test_bury_with_reason_and_priority(shell, flatq, spool):
    push(flatq, b"1")
    push(flatq, b"2")
    quiet(flatq("bury", "-r", "exit-3_a", "-p", "70000", reserve(flatq).receipt))
    name, = lies(spool)["buried"]
    assert name.endswith(".exit-3_a")
    assert flatq("kick").out == b"1\n"
    assert [pop(flatq), pop(flatq)] == [b"2", b"1"]


@pytest.mark.parametrize("reason", ["", "a.b", "a b", "a/b", "../x", "a\nb", "x" * 41, "$(touch x)",
    "\xe4"])
def test_a_reason_that_no_name_can_hold(flatq, reason):
    push(flatq, b"x")
    got = reserve(flatq)
    refused(flatq("bury", "-r", reason, got.receipt), 65, "bury")
    quiet(flatq("bury", "-r", "x" * 40, got.receipt))
    assert not list(flatq.home.iterdir())


def test_buried_has_a_receipt_still(flatq):
    push(flatq, b"x")
    got = reserve(flatq)
    quiet(flatq("bury", got.receipt))
    quiet(flatq("delete", got.receipt))
    assert flatq("kick").out == b"0\n"
    empty(flatq)


def test_of_a_queue_that_is_not_there(shell, flatq, spool):
    for verb, *arguments in (["kick", "no"], ["peek", "no"], ["close", "no"], ["drop", "no"],
            ["wal", "no"]):
        refused(flatq(verb, *arguments), 66, verb)
    assert not (spool / "no").exists()


def test_peek(shell, flatq):
    push(flatq, b"2\0\n")
    push(flatq, b"1", "-p", "1")
    push(flatq, b"3", "-d", "9")
    for _ in range(2):
        assert flatq("peek", check=0).out == b"1"
    assert flatq("peek", "-s", "delayed", check=0).out == b"3"
    for state in ("reserved", "buried"):
        refused(flatq("peek", "-s", state), 66, "peek")
    pop(flatq)
    got = reserve(flatq)
    assert got.tries == 1, "a look is not a try"
    assert flatq("peek", f"default:{got.id}", check=0).out == b"2\0\n"
    refused(flatq("peek"), 66, "peek")


def test_drop(shell, flatq, spool):
    push(flatq, b"x", "q")
    refused(flatq("drop", "q"), 75, "drop", text=b"-f")
    assert pop(flatq, "q") == b"x"
    push(flatq, b"y", "q")
    flatq("bury", reserve(flatq, "q").receipt, check=0)
    refused(flatq("drop", "q"), 75, "drop")
    quiet(flatq("drop", "-f", "q"))
    refused(flatq("drop", "-f", "q"), 66, "drop")
    assert [path.name for path in spool.iterdir() if not path.name.startswith(".")] == []
    assert not list(spool.glob(".drop.*"))
    first = push(flatq, b"new", "q")
    assert pop(flatq, "q") == b"new"
    quiet(flatq("drop", "q"))
    assert push(flatq, b"x", "q") > first


def test_twenty_deletes_of_one_receipt(flatq):
    """Of all verbs that try the same change of state, only one succeeds."""
    push(flatq, b"x")
    got = reserve(flatq)
    started = [flatq.start(verb, got.receipt, stdin=subprocess.DEVNULL) for verb in ("delete",
        "bury") for _ in range(10)]
    outcome = [(process.communicate(timeout=100), process.returncode) for process in started]
    assert {status for _, status in outcome} <= {0, 66}
    flatq("wal", check=0)
    deleted = any(status == 0 for _, status in outcome[:10])
    assert sum(status == 0 for _, status in outcome[:10]) <= 1
    left = flatq("peek", "-s", "buried")
    assert deleted == (left.status == 66)


def test_touch_against_the_end_of_the_lease(flatq, clock):
    """Only one of them can succeed: the touch is refused, or it moves the message. In both cases
    the message is there once."""
    for _ in range(10):
        number = push(flatq, b"x")
        got = reserve(flatq, "-t", "1")
        assert got.id == number
        clock.advance(2)
        touch = flatq.start("touch", "-t", "50", got.receipt, stdin=subprocess.DEVNULL)
        taken = flatq("reserve", "-t", "50")
        touch.communicate(timeout=100)
        assert sorted([touch.returncode, taken.status]) in ([0, 66], [0, 0]), (touch.returncode,
            taken)
        receipt = taken.out.split()[0].decode() if taken.status == 0 else got.receipt
        flatq("delete", receipt, check=0)
        empty(flatq)


@pytest.mark.parametrize("verb", ["delete", "bury"])
def test_what_must_reach_the_disk_first(flatq, spool, stub, verb):
    log = flatq.home / "synced"
    stub("sync", f'printf "%s\\n" "$@" >>"{log}"')
    flatq.syncs()
    push(flatq, b"x", "q")
    got = reserve(flatq, "q")
    flatq(verb, got.receipt, check=0)
    assert f"{spool}/q/{'done' if verb == 'delete' else 'buried'}" in log.read_text().split()
