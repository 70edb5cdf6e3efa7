"""reserve: a message is reserved until it is settled or its lease ends. Its receipt is good until
the message is reserved again."""

import re

import pytest

from engine import lies, pop, push, refused, reserve

ALL = bytes(range(256))


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
