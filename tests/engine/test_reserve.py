"""reserve: a message is reserved until it is settled or its lease ends. Its receipt is good until
the message is reserved again."""

import os
import re
import signal

import pytest

from conftest import wait_for
from engine import child_named, empty, lies, pop, push, refused, reserve, stopped_by

ALL = bytes(range(256))


def test_what_it_says(shell, flatq):
    number = push(flatq, ALL + b"\n", "a/b.c")
    done = flatq("reserve", "a/b.c", check=0)
    head, body = done.out.split(b"\n", 1)
    assert body == ALL + b"\n" and done.err == b""
    receipt, *rest = head.split(b" ")
    assert rest == [b"%d" % number, b"1", b"257"]
    assert receipt.startswith(b"a/b.c:") and receipt.count(b":") == 1
    # reserved: nobody else gets it, and it is not settled
    refused(flatq("reserve", "a/b.c"), 66, "reserve")
    empty(flatq, "a/b.c")
    assert flatq("peek", "-s", "reserved", "a/b.c", check=0).out == ALL + b"\n"
    assert flatq("delete", receipt.decode(), check=0).out == b""
    assert flatq("peek", "-s", "reserved", "a/b.c").status == 66


def test_lease_of_the_message_and_of_the_reservation(shell, flatq, clock):
    push(flatq, b"1", "-t", "20")
    push(flatq, b"2", "-t", "20")
    push(flatq, b"3")
    first, second, third = reserve(flatq), reserve(flatq, "-t", "5"), reserve(flatq)
    clock.advance(4.9)
    empty(flatq)
    clock.advance(0.2)
    assert reserve(flatq)._replace(receipt="") == second._replace(receipt="", tries=2)
    clock.advance(14)
    empty(flatq)
    clock.advance(1)
    assert reserve(flatq).id == first.id
    # 60 seconds, if nobody named a lease
    clock.advance(39)
    assert [reserve(flatq).id, reserve(flatq).id] == [first.id, second.id]
    empty(flatq)
    clock.advance(1.5)
    assert reserve(flatq).id == third.id


def test_back_to_the_old_place(flatq, clock):
    for text in b"1", b"2", b"3":
        push(flatq, text)
    urgent = push(flatq, b"0", "-p", "1")
    assert reserve(flatq, "-t", "10").id == urgent
    assert reserve(flatq, "-t", "10").body == b"1"
    clock.advance(11)
    assert [pop(flatq) for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_tries(shell, flatq, clock):
    push(flatq, b"x")
    for tries in range(1, 13):
        assert reserve(flatq, "-t", "1").tries == tries
        clock.advance(2)


def test_receipt_of_an_ended_lease_is_good_until_somebody_reserves_again(shell, flatq, clock):
    push(flatq, b"x")
    old = reserve(flatq, "-t", "10")
    clock.advance(11)
    # the message is ready again, and somebody has seen it without taking it
    assert flatq("peek", check=0).out == b"x"
    flatq("touch", "-t", "10", old.receipt, check=0)
    empty(flatq)
    clock.advance(11)
    flatq("wal", check=0)
    flatq("delete", old.receipt, check=0)
    empty(flatq)
    clock.advance(100)
    empty(flatq)


def test_a_receipt_that_is_no_longer_good_harms_nobody(shell, flatq, spool, clock):
    push(flatq, b"x", "q")
    old = reserve(flatq, "-t", "10", "q")
    clock.advance(11)
    new = reserve(flatq, "-t", "10", "q")
    assert new.receipt != old.receipt and new.id == old.id
    before = lies(spool, "q")
    verbs = [["delete"], ["release"], ["release", "-d", "5"], ["touch"], ["bury"]]
    for verb, *options in verbs:
        refused(flatq(verb, *options, old.receipt), 66, verb)
        assert lies(spool, "q") == before, verb
    flatq("delete", new.receipt, check=0)
    # the old receipt is still refused after a checkpoint
    flatq("wal", check=0)
    for verb, *options in verbs:
        refused(flatq(verb, *options, new.receipt), 66, verb)


def test_pop_and_reserve_of_the_same_message_have_other_receipts(flatq, clock):
    """A receipt cannot be guessed from the id and the tries: it names one reservation."""
    push(flatq, b"x")
    old = reserve(flatq, "-t", "1")
    forged = re.sub(r"[0-9a-f]{12}$", lambda match: match[0][::-1], old.receipt)
    assert forged != old.receipt
    refused(flatq("delete", forged), 66, "delete")
    clock.advance(2)
    assert pop(flatq) == b"x"
    refused(flatq("delete", old.receipt), 66, "delete")


MALFORMED = [
    "", "x", ":", "q:", "q", "q:x", "q:1.", "q:1.2", "q:1..", "q:1.2.", "q:1.2.3.4", "q:-1.1.abc",
    "q:1e3.1.abc", "q:1.1.xyz", "q:1.1.*", "q:*",
    "q:1.1.abc\n", "q:1.1.abc def", "q:99999999999999999999.1.abc", "q:a[$(touch x)].1.abc",
    "q:1.a[$(touch x)].abc", "../q:1.1.abc",
    "-x:1.1.abc", ":1.1.abc", "q/../p:1.1.abc", "q:1.1.abc:", "q:08.", "\xff:1.1.abc",
]


@pytest.mark.parametrize("verb", ["delete", "release", "touch", "bury"])
def test_a_malformed_receipt(flatq, spool, verb):
    push(flatq, b"x", "q")
    before = lies(spool, "q")
    for receipt in MALFORMED:
        done = flatq(verb, "--", receipt)
        assert done.status == 65, (receipt, done)
        refused(done, 65, verb)
    assert lies(spool, "q") == before
    assert not list(flatq.home.iterdir())
    refused(flatq(verb, "nosuch:1.1.abc"), 66, verb)
    refused(flatq(verb, "q:999999999999.1.abc"), 66, verb)


def test_a_receipt_of_another_queue(flatq):
    push(flatq, b"x", "q")
    push(flatq, b"y", "p")
    got = reserve(flatq, "q")
    refused(flatq("delete", got.receipt.replace("q:", "p:")), 66, "delete")
    flatq("delete", got.receipt, check=0)
    assert pop(flatq, "p") == b"y"


def test_most_tries_bury(shell, flatq, clock):
    flatq("create", "-m", "3", "q", check=0)
    push(flatq, b"dead letter", "q")
    push(flatq, b"fine", "-p", "70000", "q")
    for tries in (1, 2, 3):
        got = reserve(flatq, "-t", "10", "q")
        assert (got.body, got.tries) == (b"dead letter", tries)
        clock.advance(11)
    assert reserve(flatq, "q").body == b"fine"
    assert flatq("peek", "-s", "buried", "q", check=0).out == b"dead letter", "never dropped"
    # the receipt is still good, since nobody has reserved the message again
    assert flatq("kick", "q", check=0).out == b"1\n"
    assert reserve(flatq, "q").body == b"dead letter"
    refused(flatq("delete", got.receipt), 66, "delete")


def test_most_tries_bury_what_is_released(shell, flatq):
    """After MOST_TRIES tries the message is buried, however it comes back."""
    flatq("create", "-m", "2", "q", check=0)
    push(flatq, b"x", "q")
    for _ in range(2):
        flatq("release", reserve(flatq, "q").receipt, check=0)
    empty(flatq, "q")
    assert flatq("peek", "-s", "buried", "q", check=0).out == b"x"


@pytest.mark.shells
def test_stopped_it_gives_back(shell, flatq, spool):
    body = b"x" * 300000
    push(flatq, body)
    process = flatq.start("reserve")
    wait_for(lambda: lies(spool).get("out") and child_named(process, "base64"), "a reserve at work")
    os.killpg(process.pid, signal.SIGTERM)
    stopped_by(process, signal.SIGTERM)
    assert reserve(flatq).body == body


def test_the_owner_of_a_reservation_is_nobody(flatq):
    """reserve has ended, and its message stays reserved until the lease ends."""
    push(flatq, b"x")
    got = reserve(flatq)
    for _ in range(2):
        flatq("wal", check=0)
        empty(flatq)
    flatq("release", got.receipt, check=0)
    assert pop(flatq) == b"x"
