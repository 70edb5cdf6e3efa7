"""The talks of talks.txt, each under the shells by turns."""

import re
import shlex
import shutil
import time
from pathlib import Path
from string import Template

import pytest

from conftest import SHELLS, Result, everything
from engine import (  # noqa: F401
    clock, flats_of, holders, lies, push, refused, reserve)

TEXT = Path(__file__).with_name("talks.txt").read_text()
TALKS = {title: lines.splitlines() for title, lines in
    (part.split("\n", 1) for part in TEXT.split("\n\n# ")[1:])}
TIMED = [title for title, lines in TALKS.items()
    if re.search(r"(?m)^(\+|boot|wall|start) ", "\n".join(lines))]
LINE = re.compile(r"(?P<words>.*?)(?: <(?: (?P<given>.*?))?)?"
    r"(?: >(?P<out>(?: .*?)?)| ~ (?P<like>.*?)| ! (?P<code>\d+) ?(?P<text>.*?))?"
    r"(?: = (?P<name>\w+)(?: try (?P<tries>\d+))?)?")
END = re.compile(r"(?P<name>\w+)(?: in (?P<seconds>[\d.]+))?"
    r"(?: > (?P<out>.*?)| ! (?P<code>\d+) ?(?P<text>.*?))?")
# what a refusal of one of these leaves as it was
CHANGES = ("push", "create", "release", "touch", "bury", "kick", "settle")


def by_turns(titles):
    """Each title with all shells, or in `make test` with one."""
    shells = [*SHELLS, "uutils"] if everything() else SHELLS
    cases = [(shell, title) for title in titles for shell in shells]
    return pytest.mark.parametrize("shell, title",
        cases if everything() else [cases[3 * n + n % 3] for n in range(len(titles))],
        indirect=["shell"])


def raw(text):
    """\\n and the like, as bytes."""
    return (text or "").encode("latin-1").decode("unicode_escape").encode("latin-1")


class Talk:
    def __init__(self, flatq, clock=None, stub=None):
        self.flatq, self.clock, self.stub, self.names, self.last = flatq, clock, stub, {}, 0
        self.waiting, self.time, self.wrong = {}, time.time(), None

    def line(self, line):
        first, _, rest = line.partition(" ")
        if first == "+":
            self.clock.advance(float(rest))
            self.time += float(rest)
        elif first == "boot":
            name, *seconds = rest.split()
            self.clock.reboot(name, *map(int, seconds))
            self.wall(50)
        elif first == "wall":
            self.wrong = int(rest)
            self.wall(0)
        elif first == "start":
            name, verb, *words = shlex.split(Template(rest.partition(" < ")[0]).substitute())
            process = self.waiting[name] = self.flatq.start(verb, *words)
            process.stdin.write(raw(rest.partition(" < ")[2]))
            process.stdin.close()
            process.stdin = None
            assert self.clock.asleep(process) <= 2
        elif first == "end":
            self.end(**END.fullmatch(rest).groupdict())
        elif re.match(r"[A-Z_]+=", line):
            name, _, value = line.partition("=")
            self.flatq.env[name] = value
        elif first == "bare":
            self.flatq("wal", check=0)
            assert lies(self.flatq.spool, rest) == {}
        elif first == "flats":
            queue, count = rest.split()
            assert len(flats_of(self.flatq.spool, queue, "queue")) == int(count)
        elif first == "pushes":
            queue, bodies = rest.split(" < ")
            for body in bodies.split():
                push(self.flatq, body.encode(), queue)
        elif first == "pops":
            queue, bodies = rest.split(" > ")
            assert [self.flatq("pop", queue).out.decode() for _ in bodies.split()] == bodies.split()
        else:
            self.verb(**LINE.fullmatch(Template(line).substitute(self.names)).groupdict())

    def wall(self, seconds):
        """So many seconds later, what `date` says: from then on it goes with the uptime, or who
        waits would see one clock advanced, and not the other."""
        self.time += seconds
        if self.wrong is not None:
            ahead = int(self.time) + self.wrong - int(self.clock.base + self.clock.seconds)
            self.stub("date",
                f'read -r up rest <"$FLATQ_PROC/uptime"; echo $(({ahead} + ${{up%.*}}))')

    def end(self, name, seconds, out, code, text):
        process = self.waiting.pop(name)
        if seconds:
            assert self.clock.passes(process) <= float(seconds)
        process.wait(60)
        done = Result(process.returncode, *process.communicate())
        if code:
            refused(done, int(code), text=(text or "").encode())
        else:
            assert (done.status, done.err) == (0, b""), done
            like = r"\d+\n" if out is None else re.escape(raw(out).decode("latin-1"))
            assert re.fullmatch(like, done.out.decode("latin-1")), done

    def verb(self, words, given, out, like, code, text, name, tries):
        verb, *words = (raw(word).decode("latin-1") for word in shlex.split(words))
        if code:
            queues = [path for path in self.flatq.spool.glob("[!.]*")] if verb in CHANGES else []
            before = [lies(path, "") for path in queues]
            refused(self.flatq(verb, *words, input=raw(given)), int(code), verb, text=text.encode())
            assert [lies(path, "") for path in queues] == before
        elif verb == "reserve" and not like:
            got = reserve(self.flatq, *words)
            assert got.body == raw(out[1:]) and (not tries or got.tries == int(tries)), got
            self.names[name] = got.receipt
        elif verb == "push" and out is like is None:
            number = push(self.flatq, raw(given), *words)
            assert number > self.last
            self.last = self.names[name] = number
        else:
            done = self.flatq(verb, *words, input=raw(given), check=0)
            want = like or re.escape(raw((out or "")[1:]).decode("latin-1"))
            fits = re.fullmatch(want, done.out.decode("latin-1"))
            assert fits and done.err == b"", done


def talk(title, *more):
    one = Talk(*more)
    home = set(one.flatq.home.iterdir())
    for number, line in enumerate(TALKS[title], 1):
        try:
            one.line(line)
        except AssertionError as error:
            raise AssertionError(f"line {number}: {line}") from error
    assert set(one.flatq.home.iterdir()) == home and not one.waiting
    if "\nstart " in "\n".join(TALKS[title]):
        assert not list(one.flatq.spool.glob(".wait/*/")) and not holders(one.flatq.spool)
        assert not [*one.flatq.spool.glob("*/wait/*"), *one.flatq.spool.glob("*/room/*")]


def talks(words, flatq):
    """All talks whose title begins with one of these words, each in a new spool."""
    for title in TALKS:
        if title.startswith(words) and title not in TIMED:
            shutil.rmtree(flatq.spool)
            env = dict(flatq.env)
            talk(title, flatq)
            flatq.env = env


@pytest.mark.whole
@by_turns([title for title in TALKS if title not in TIMED])
def test_talk(flatq, title):
    talk(title, flatq)


@pytest.mark.whole
@by_turns(TIMED)
def test_talk_by_the_clock(flatq, clock, stub, title):
    talk(title, flatq, clock, stub)
