"""What the command line of each verb refuses. Its numbers are decimal digits: leading zeros do not
count, nothing is executed, nothing overflows."""

import shlex
import sys

import pytest

from conftest import share
from engine import empty, lies, pop, push, refused, reserve

NOT = [
    "", "-1", "+1", "1e3", "1.0", "0x10", "a", "1 ", " 1", "1\n", "\n1", "1\n2",
    "99999999999999999999", "9" * 200, "4294967296",
    "a[$(touch x)]", "$(touch x)", "`touch x`", "1;touch x", "number", "id", "1+1", "(1)", "1,5",
    "\xd9\xa1", "infinity", "-", "--", "*",
]

REFUSED = {
    64: [
        "flatq push -y", "push -y", "push -p", "push -y q", "push --priority 3", "push a b",
        "push -n 1 -e", "push -e -l", "push -e -0", "pop -y", "pop -n 2",
        "delete", "delete q:1.1.abc q:1.1.abc", "release", "release q:1.1.abc q:1.1.abc", "touch",
        "touch q:1.1.abc q:1.1.abc", "bury",
        "bury q:1.1.abc q:1.1.abc", "claim", "claim -c me a b", "settle -c me", "settle 5",
        "unclaim", "work", "work -w 0", "work --", "work -z -- true",
        "work --nonsense -- true", "work -n", "work --max", "work --until-empty=1 true",
        "work --pid-file", "work --pid-file= -- true",
        "work --daemon=1 -- true", "mqueue", "mqueue x", "mqueue in", "mqueue in -x /a",
        "mqueue in /a b c", "mqueue stat /a b", "pressure", "pressure nothing",
        "pressure put -x", "pressure put a b", "shovel", "shovel a", "shovel a b c", "shovel a a",
        "shovel -x a b",
    ],
    65: [
        "push -k ''", "pop -n 0 -l", "peek -s gone", "work -n 0 true", "work -n 08x true",
        "work -j 0 true", "work -j 'a[$(touch x)]' true", "work -t 0 true",
        "work -d 1, true", "work -d ,1 true", "work -d 1,2,3 true", "work -m -1 true",
        "work -w 99999999999999999999 true", "work -x 1e3 true",
        "work -q ../x true", "work -q a,,b true", "work --queues= true", "mqueue in -n x /a",
        "pressure put -w x q", "shovel -n x a b", "shovel a http://b",
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
def test_what_is_none(flatq, spool, words):
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


def test_pop_of_as_many_as_it_takes(shell, flatq, spool):
    flatq("push", "-l", "q", input=b"1\n2\n", check=0)
    refused(flatq("pop", "-l", "-n", "4294967296", "q"), 65, "pop")
    assert flatq("pop", "-l", "-n", "4294967295", "q", check=0).out == b"1\n2\n"


def test_in_every_shell(shell, flatq, spool):
    for value in ("", "-1", "1e3", "99999999999999999999", "4294967296", "a[$(touch x)]", "1\n2"):
        refused(flatq("push", "-p", value, "q", input=b"x"), 65, "push")
        refused(flatq("pop", "-w", value, "q"), 65, "pop")
        refused(flatq("create", "-b", value if value != "4294967296" else "1000000000", "q"), 65,
            "create")
    assert not (spool / "q").exists()
    assert not list(flatq.home.iterdir())


def test_leading_zeros(shell, flatq):
    """08 and 09 are numbers, and 010 is ten: no shell may read them as octal."""
    push(flatq, b"ten", "-p", "010")
    push(flatq, b"nine", "-p", "09")
    push(flatq, b"eight", "-p", "0000000000000000000008")
    push(flatq, b"no bound", "-n", "008", "-w", "08", "-t", "08", "-d", "00")
    assert [pop(flatq) for _ in range(3)] == [b"eight", b"nine", b"ten"]
    got = reserve(flatq, "-t", "08", "-w", "09")
    flatq("touch", "-t", "09", got.receipt, check=0)
    flatq("release", "-p", "08", "-d", "000", got.receipt, check=0)
    assert pop(flatq, "-n", "01") == b"no bound"
    flatq("create", "-b", "08", "-m", "09", "q", check=0)
    for _ in range(8):
        push(flatq, b"x", "q")
    refused(flatq("push", "q"), 75, "push")
    push(flatq, b"x", "-d", "0000000008")
    assert flatq("kick", "-n", "0000000009", check=0).out == b"1\n"
    assert pop(flatq, "-w", "0000000009") == b"x"


def test_the_largest(shell, flatq):
    for option in "pdt":
        push(flatq, b"x", "-" + option, "4294967295", option)
    assert pop(flatq, "p") == b"x"
    empty(flatq, "d")
    assert flatq("kick", "d", check=0).out == b"1\n"
    assert pop(flatq, "d") == b"x"
    reserve(flatq, "t")
    empty(flatq, "t")
    push(flatq, b"y", "p")
    got = reserve(flatq, "-t", "4294967295", "p")
    flatq("release", "-d", "4294967295", "-p", "4294967295", got.receipt, check=0)
    empty(flatq, "p")
    assert flatq("kick", "-n", "999999999", "p", check=0).out == b"1\n"
    assert pop(flatq, "p") == b"y"
