"""reserve: a message is reserved until it is settled or its lease ends. Its receipt is good until
the message is reserved again."""


import pytest

from engine import lies, push, refused

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
