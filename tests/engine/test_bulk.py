"""push -l and -0, pop -l -n, drain: many messages at once."""

import base64
import os
import random
import shutil
import subprocess
import sys

import pytest

from conftest import need
from engine import flats_of, push, refused


def messages(count, seed=1):
    """Messages of all bytes but NUL; some are empty."""
    dice = random.Random(seed)
    return [bytes(dice.randrange(1, 256) for _ in range(dice.randrange(0, 40)))
        for _ in range(count)]


@pytest.mark.parametrize("program, words", [("perl", ""), ("od", "perl"), ("mawk", "perl")])
@pytest.mark.parametrize("end", ["l", "0"])
def test_messages_that_were_not_all_read(flatq, stub, program, words, end):
    """A program of the push reads only the first of them, and ends with 0. None is stored."""
    if words:
        stub(words, "exit 3")
    stub(program, 'head -c 40 | "$REAL" "$@"')
    ends = {"l": b"\n", "0": b"\0"}[end]
    for body in (b"message" * 3 + ends) * 6, b"m" * 500:
        refused(flatq("push", f"-{end}", "q", input=body), 74, "push",
            text=b"not read to their end")
    refused(flatq("pop", "q"), 66)


def test_many_strange_files_are_passed_over(flatq, spool):
    flatq("push", "-l", "q", input=b"m\n" * 600, check=0)
    block, = (spool / "q/queue").iterdir()
    for number in range(60):
        (block / f"0000000000.strange{number}").touch()
    assert flatq("drain", "q", check=0).out == b"m\n" * 600


def lines(bodies):
    return b"".join(base64.b64encode(body) + b"\n" for body in bodies)


@pytest.mark.shells
def test_any_bytes_by_nul(flatq):
    sent = messages(1200)
    first, last = flatq("push", "-0", "q", input=b"".join(m + b"\0" for m in sent),
        check=0).out.split()
    assert int(last) - int(first) == 1199
    assert flatq("pop", "-0", "-n", "700", "q", check=0).out == b"".join(m + b"\0"
        for m in sent[:700])
    assert flatq("pop", "q", check=0).out == sent[700]
    assert flatq("pop", "-6", "-n", "9", "q", check=0).out == lines(sent[701:710])
    assert flatq("drain", "-0", "q", check=0).out == b"".join(m + b"\0" for m in sent[710:])


@pytest.mark.parametrize("verb", [["drain"], ["pop", "-l", "-n", "99"]])
def test_flat_files_that_overlap(flatq, verb):
    """Messages that came back are folded with later ones: their file reaches beyond the next."""
    flatq.env["FLATQ_FOLD"] = "2"
    for n in range(6):
        push(flatq, b"%d" % n, "q")
    held = [flatq("reserve", "q", check=0).out.split()[0].decode() for _ in range(2)]
    flatq("wal", check=0)
    for receipt in held:
        flatq("release", receipt, check=0)
    for n in range(6, 9):
        push(flatq, b"%d" % n, "q")
    flatq("wal", check=0)
    names = sorted(path.name.split(".")[1:3] for path in flats_of(flatq.spool, "q", "queue"))
    assert len(names) == 2 and names[0][1] > names[1][0]
    assert flatq(*verb, "q", check=0).out.split() == [b"%d" % n for n in range(9)]


USED = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
    "used = resource.getrusage(resource.RUSAGE_CHILDREN); " \
    "print(used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr); sys.exit(code)"


def used(flatq, *words, data=b""):
    """What the verb prints, the kB of its greatest process, and the seconds that it needs."""
    done = subprocess.run([sys.executable, "-S", "-c", USED, *flatq.command(*words)], input=data,
        env=flatq.environment(None), capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    kilobytes, seconds = done.stderr.split()
    return done.stdout, int(kilobytes), float(seconds)


def test_memory_is_flat(flatq):
    """No process needs 40 MB of memory for 200,000 messages (20 MB), neither to push nor to drain
    them."""
    data = b"".join(b"%0100d\n" % n for n in range(200000))
    _, pushed, _ = used(flatq, "push", "-l", "q", data=data)
    out, drained, _ = used(flatq, "drain", "q")
    assert out == data and max(pushed, drained) < 40000


@pytest.mark.parametrize("program, applet, perl", [("mawk", "", True), ("gawk", "", True),
    ("busybox", "awk", True), ("original-awk", "", True), ("mawk", "", False)])
def test_a_byte_costs_the_same_in_a_long_line(flatq, stub, program, applet, perl):
    """mawk's time is the square of a line's length: no awk may read a large message. Without perl,
    and for import and doctor, awk has short lines."""
    need(program)
    for name in ("mawk", "awk"):
        stub(name, f'exec {shutil.which(program)} {applet} "$@"')
    if not perl:
        stub("perl", "exit 3")

    def seconds(*words, data=b""):
        return used(flatq, *words, data=data)[2]

    flatq("wal", check=0)
    found = {}
    for size in (2, 8):
        line = os.urandom(size << 20).replace(b"\n", b"x")
        data = b"before\n%s\nafter\n" % line
        times = found[size] = {"push -l": seconds("push", "-l", "q", data=data)}
        times["pop -l"] = seconds("pop", "-l", "-n", "9", "q")
        if perl:
            for verb in (["drain", "-a"], ["drain"], ["claim", "-c", "me"]):
                flatq("push", "-l", "q", input=data, check=0)
                times[" ".join(verb)] = seconds(*verb, "q", data=b"ok\n" * 3)
            times["unclaim"] = seconds("unclaim", "-c", "me", "q")
            times["pops"] = sum(seconds("pop", "q") for _ in range(3))
            article = flatq.home / "q.queue"
            article.write_bytes(base64.b64encode(line) + b"\n")
            times["import"] = seconds("import", "-l", article)
            flatq("push", "-k", "key", "q", input=b"has a key", check=0)
            times["doctor"] = seconds("doctor", "q")
            assert len(flatq("drain", "q", check=0).out) == len(line) + 11
        assert flatq("pop", "q").status == 66
    for verb, time in found[8].items():
        assert time < 7 * found[2][verb], (verb, found)
