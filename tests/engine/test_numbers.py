"""What the command line of each verb refuses. Numbers are decimal: leading zeros do not count,
nothing is executed, nothing overflows."""

import shlex
import sys

import pytest

from conftest import share
from engine import lies, push, refused, reserve

NOT = [
    "", "-1", "+1", "1e3", "1.0", "0x10", "a", "1 ", " 1", "1\n", "\n1", "1\n2",
    "99999999999999999999", "9" * 200, "4294967296",
    "a[$(touch x)]", "$(touch x)", "`touch x`", "1;touch x", "number", "id", "1+1", "(1)", "1,5",
    "\xd9\xa1", "infinity", "-", "--", "*", "m", "1w", "1m30", "-1m", "1.5h", "49711d",
]

REFUSED = {
    64: [
        "flatq push -y", "push -y", "push -p", "push -y q", "push --priority",
        "push --lines=1", "push a b",
        "push -n 1 -e", "push -e -l", "push -e -0", "pop -y", "pop -n 2",
        "delete", "delete q:1.1.abc q:1.1.abc", "release", "release q:1.1.abc q:1.1.abc", "touch",
        "touch q:1.1.abc q:1.1.abc", "bury",
        "bury q:1.1.abc q:1.1.abc", "claim", "claim -c me a b", "settle -c me", "settle 5",
        "unclaim", "work", "work -w 0", "work --", "work -z -- true",
        "work --nonsense -- true", "work -n", "work --count", "work --until-empty=1 true",
        "work --pid-file", "work --pid-file= -- true", "work q -- true",
        "work --daemon=1 -- true", "mqueue", "mqueue x", "mqueue in", "mqueue in -x /a",
        "mqueue in /a b c", "mqueue stat /a b", "pressure", "pressure nothing",
        "pressure put -x", "pressure put a b", "shovel", "shovel a", "shovel a b c", "shovel a a",
        "shovel -x a b", "top q",
    ],
    65: [
        "push -k ''", "pop -n 0 -l", "peek -s gone", "work -n 0 true", "work -n 08x true",
        "work -j 0 true", "work -j 'a[$(touch x)]' true", "work -t 0 true",
        "work -d 1, true", "work -d ,1 true", "work -d 1,2,3 true", "work -m -1 true",
        "work -w 99999999999999999999 true", "work -x 1e3 true",
        "work -q ../x true", "work -q a,,b true", "work --queues= true", "mqueue in -n x /a",
        "push -A gone", "push --at yesterday", "push --at 2060-01-01", "work -t 0m true",
        "work -x 1y true",
        "work -d 1x,2m true", "top -n 0", "pressure put -w x q", "shovel -n x a b",
        "shovel a http://b",
    ],
}


@pytest.mark.parametrize("verb", sorted({words.split()[0] for lines in REFUSED.values()
    for words in lines}))
def test_usage(shell, flatq, spool, verb):
    """One line says what is wrong, and nothing is created."""
    flatq.env["FLATQ_PYTHON"] = sys.executable
    for status, lines in REFUSED.items():
        for first, *args in map(shlex.split, lines):
            if first == verb:
                refused(flatq(verb, *args, input=b"x\n.\n"), status,
                    args[0] if verb == "flatq" else verb)
    assert not (spool / "default").exists() and not list(flatq.home.iterdir())


# verb, option, and the other words that it needs
OPTIONS = [
    ("push", "-p"), ("push", "-d"), ("push", "-t"), ("push", "-w"), ("push", "-n"), ("pop", "-w"),
    ("pop", "-n", "-l"), ("reserve", "-w"), ("reserve", "-t"),
    ("kick", "-n"), ("create", "-b"), ("create", "-m"), ("release", "-p"), ("release", "-d"),
    ("touch", "-t"), ("bury", "-p"),
]
MORE = ("push -n", "create -b", "create -m")  # these take more than 4294967295


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_what_is_none(shell, flatq, spool, words):
    verb, option, *more = words
    push(flatq, b"x", "q")
    receipt = reserve(flatq, "q").receipt
    last = receipt if verb in ("release", "touch", "bury") else "q"
    before = lies(spool, "q")
    for value in share(f"numbers {words}", NOT, 10):
        if value == "4294967296" and f"{verb} {option}" in MORE:
            continue
        refused(flatq(verb, option, value, *more, last, input=b"x"), 65, verb, text=option.encode())
        if value:
            refused(flatq(verb, option + value, *more, last, input=b"x"), 65, verb)
    assert lies(spool, "q") == before
    assert not list(flatq.home.iterdir()), "something was executed"


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
        refused(flatq(verb, "--", receipt), 65, verb)
    assert lies(spool, "q") == before and not list(flatq.home.iterdir())
