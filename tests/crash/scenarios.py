"""Scenarios: how a spool is prepared, and which verb is then broken. There is one for every verb
and every transition.

A verb is a tuple of words: the file in lib/, its arguments and, last, its standard input; or `sh`
and a script, whose $0 is lib/. The word RECEIPT stands for the receipt from the last `reserve`, or
GET of the HTTP door, before it. A verb that begins with CRASH and a pattern is killed just before
its first call whose "KIND PATH ..." contains the pattern.

    >>> words = build(System(), SCENARIOS["delete"], spool)
    >>> gate.run(System().argv(words[:-1]), spool, env=System().environment(spool), stdin=words[-1])
"""
from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .gate import gate
from .judge import layout

RANGE = 32  # ids in a range: FLATQ_RANGE
ROOT = Path(__file__).resolve().parents[2]
Words = tuple[Any, ...]  # text, and bytes at the end


@functools.cache
def tools() -> str:
    """PATH without directories that have nothing for a verb: a shell looks into each for each
    program, and the gate stops every look."""
    found = (shutil.which(name) for name in ("sh", "base64", "mv", "awk", "find", "flock", "perl",
        "python3", "ncat"))
    return os.pathsep.join(dict.fromkeys(os.path.dirname(path) for path in found if path))


@dataclass(frozen=True)
class System:
    """The verbs under test: those in lib/, or a copy with another name. `baseline`: its trials are
    expected to be bad."""

    lib: Path = ROOT / "lib"
    name: str = "flatq"
    baseline = False

    def argv(self, words: Sequence[str]) -> list[str]:
        if words[0] == "sh":
            return ["sh", "-c", words[1], str(self.lib)]
        return ["sh", str(self.lib / words[0]), *words[1:]]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {"PATH": tools(), "HOME": str(spool.parent), "FLATQ_DIR": str(spool),
            "FLATQ_SYNC": sync, "FLATQ_FOLD": "5", "FLATQ_RANGE": str(RANGE)}

    def verb(self, spool: Path, *words: str, stdin: bytes = b"",
            sync: str = "off") -> subprocess.CompletedProcess[bytes]:
        """Run it undisturbed. Raises subprocess.TimeoutExpired after ten minutes."""
        return subprocess.run(self.argv(words), input=stdin, env=self.environment(spool, sync),
            capture_output=True, timeout=600)

    def dump(self, spool: Path) -> layout.Dump:
        return layout.dump(spool)


@dataclass(frozen=True)
class Article(System):
    """The article's version, whose scripts expect the queue's name in $queue and its files in the
    working directory."""

    lib: Path = ROOT / "tests/article"
    name: str = "article"
    baseline = True

    def argv(self, words: Sequence[str]) -> list[str]:
        script = {"sh": words[-1], "create": "", "wal": '[ ! -f q.queue ] || sh "$0/wal"'}.get(
            words[0], f'sh "$0/{words[0]}"')
        # ends with 0 whatever has happened, unless it is killed
        handler = 'sh() { command sh "$@"; [ $? -lt 128 ]; }'
        return ["sh", "-c",
            f'exec 2>/dev/null; [ -d "$FLATQ_DIR" ] || mkdir "$FLATQ_DIR"; cd "$FLATQ_DIR" || '
            f'exit\n{handler}\n{script}', str(self.lib)]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {**super().environment(spool, sync), "queue": "q"}

    def dump(self, spool: Path) -> layout.Dump:
        """The messages that can still be taken, in order, as pop reads them."""
        cut = spool / "q.cut"
        bodies: list[bytes | None] = [(spool / "q.out").read_bytes() if (spool / "q.out").exists()
            else None] if cut.exists() else []
        queue = cut if cut.exists() else spool / "q.queue"
        for line in queue.read_bytes().splitlines() if queue.exists() else []:
            bodies.append(layout.decoded(line))
        return layout.Dump({"q": [layout.Message(n, "ready", 0, 0, "", body, queue.name) for n,
            body in enumerate(bodies, 1)]})


def system_of(lib: Path) -> System:
    """The verbs in another directory than lib/."""
    return Article() if lib.resolve() == Article.lib else System(lib.absolute(), str(lib))


@dataclass(frozen=True)
class Scenario:
    """`order`: every message that may come out at the end, in its order, and no other may; `new`:
    those that `act` brings; `old`: those that it takes away; all others must come out. A number
    stands for so many of m1, m2 and so on: of the last ones in `new`, of the first ones in
    `old`."""

    name: str
    before: tuple[Words, ...]
    act: Words
    order: Any
    new: Any = ()
    old: Any = ()
    verb: str = ""  # else the first word of `act`
    ordered: bool = True  # in the order of `order`
    delivers: bool = False  # it prints the messages that it takes away
    beside: bool = False  # another takes it away, by a pop: after a power cut it may come again
    instead: bool = False  # if the first message cannot be read, the second may be delivered
    atomic: bool = False  # `new`, and `old`, are all there or none of them is
    key: str = ""  # a push of another message with it is refused while the first is there
    # once acknowledged, `subject` is in this state: ready, delayed, reserved, buried, claimed
    ends: str = ""
    subject: bytes = b"m1"
    # a pattern: an answer that matches it is an acknowledgement, whatever the exit code, since a
    # door's conversation goes on
    says: bytes = b""
    denies: int = 0  # how often a door says rightly that something is not there
    # each of `new` by itself is acknowledged: by the line `200 ...` of its number in the answer's
    # body
    singly: bool = False
    queue: str = "q"
    others: tuple[str, ...] = ()  # queues whose files may be unreadable: the act succeeds
    # lines on standard error that there may be at most, a door's log among them
    complaints: int = 1
    prepare: Callable[[Path], None] | None = None
    sync: str = "off"
    # a script that prints +N when it has pushed order[N], and <TEXT STATUS> for each pop
    tells: bool = False

    def __post_init__(self) -> None:
        def fill(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        fill("verb", self.verb or self.act[0])
        if isinstance(self.new, int):
            fill("new", lines(self.order - self.new + 1, self.order))
        for name in ("order", "old"):
            if isinstance(value := getattr(self, name), int):
                fill(name, lines(1, value))


def v(text: str, stdin: bytes = b"") -> Words:
    """A verb from its line."""
    return (*text.split(), stdin)


def killed(pattern: str, words: Words) -> Words:
    return ("CRASH", pattern, *words)


def lines(first: int, last: int) -> tuple[bytes, ...]:
    return tuple(b"m%d" % n for n in range(first, last + 1))


def pushes(first: int, last: int, *options: str) -> tuple[Words, ...]:
    return tuple(("push", *options, "q", body) for body in lines(first, last))


def full_range(spool: Path) -> None:
    """Every id of the newest range has been given."""
    newest = max((spool / ".ids").iterdir())
    for n in range(1000, 1000 + RANGE):
        (newest / str(n)).touch()


def old_range(spool: Path) -> None:
    """There is a newer range than the one that ids were taken from."""
    (spool / ".ids/000000009").mkdir()
    (spool / ".ids/000000009/open").touch()


def crash(system: System, spool: Path, pattern: str, words: Words, sync: str = "off") -> None:
    """Run the verb and kill it, with all its children, just before the first call that the pattern
    is found in, as "KIND PATH ..."; "2#" in front: the second."""
    number, _, where = pattern.rpartition("#")
    result = gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync),
        stdin=words[-1], fault=gate.Fault("kill_tree", int(number or 1), where=where))
    if not result.fired:
        raise RuntimeError(f"{words} was to die at {pattern!r}: {result}")
    retire_pids(spool)


def retire_pids(spool: Path) -> None:
    """All owners have ended that names in the spool tell. Give each a PID above the kernel's
    greatest, so that no later process has it: a verb looks longer at one whose PID is in use."""
    for path in sorted(spool.rglob("*"), reverse=True):
        name = re.sub(r"(?<![^.])(\d+)(?=-\d{12}(?!\d))", lambda pid: str(int(pid[1]) + PID_MAX),
            path.name)
        if name != path.name:
            path.rename(path.with_name(name))


def fill(words: Words, receipt: str) -> Words:
    return tuple(word.replace(b"RECEIPT", receipt.encode()) if isinstance(word, bytes)
        else word.replace("RECEIPT", receipt)
                 for word in words)


def build(system: System, scenario: Scenario, spool: Path) -> Words:
    """Make the spool as it is before the act; the act, with its receipt filled in. Raises
    RuntimeError if a verb fails."""
    receipt = ""
    for raw in scenario.before:
        words = fill(raw, receipt)
        if words[0] == "CRASH":
            crash(system, spool, words[1], words[2:], scenario.sync)
            continue
        done = system.verb(spool, *words[:-1], stdin=words[-1], sync=scenario.sync)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done}")
        if words[0] == "reserve":
            receipt = done.stdout.split()[0].decode()
        elif found := re.search(rb"^Message-Receipt-Id: (\S+)", done.stdout, re.MULTILINE):
            receipt = found[1].decode()
    if scenario.prepare:
        scenario.prepare(spool)
    # Without this, a take would depend on whether the last one was less than a second ago
    for tended in spool.glob("*/tended"):
        tended.unlink()
    return fill(scenario.act, receipt)


PID_MAX = 1 << 22  # the greatest that Linux lets be set
BIG = bytes(range(256)) * 27  # NULs and newlines; three pages of a file
LARGE = b"0123456789abcdef" * 16384  # is written in 64 pieces, while a pipe holds 16
FLAT = (*pushes(1, 6), v("wal"))
LEASED = (*pushes(1, 2), v("reserve -t 999999 q"))
CLAIMED = (*pushes(1, 3), v("claim -c me -n 2 q"))
MANY = b"\n".join(lines(3, 140))
POPS = '"$lib/pop" -w 3 q'
PUSHES = '"$lib/push" -w 3 q'


def waiting(waits: str, where: str, then: str) -> str:
    """A script: one verb waits, and when it does, or has ended, another one does what it waits for.
    It ends as the first one does."""
    return f'''lib=$0
exec 3<&0
sh {waits} <&3 3<&- &
turn=0
while [ $turn -lt 25 ]; do
  turn=$((turn + 1))
  for waiter in "$FLATQ_DIR"/q/{where}/*; do break; done
  [ ! -e "$waiter" ] && kill -0 $! 2>&- || break
  sleep 0.1
done
sh {then}
{{ wait $!; }} 2>&-
code=$?
[ $code -lt 128 ] || kill -KILL $$
exit $code
'''


def http(method: str, query: str, body: bytes = b"", chunked: bool = False) -> Words:
    """A connection with one request."""
    length = "Transfer-Encoding: chunked\r\n" if chunked else ""
    if body and not chunked:
        length = f"Content-Length: {len(body)}\r\n"
    return ("http", f"{method} /queue?{query} HTTP/1.1\r\nHost: here\r\n{length}\r\n".encode()
        + body)


ON_EXPIRY = (*pushes(1, 1), v("reserve -t 0 q"))


def _basic() -> list[Scenario]:
    make = Scenario
    return [
        make("first push", (), v("push q", b"m1"), 1, new=1),
        make("push", pushes(1, 2), v("push q", b"m3"), 3, new=1),
        make("push empty", pushes(1, 1), v("push q"), (b"m1", b""), new=(b"",)),
        make("push binary", pushes(1, 1), v("push q", BIG), (b"m1", BIG), new=(BIG,)),
        make("push 256 KiB", pushes(1, 1), v("push q", LARGE), (b"m1", LARGE), new=(LARGE,)),
        make("push -n", pushes(1, 1), v("push -n 2 q", b"m2"), 2, new=1),
        make("push -e", pushes(1, 1), v("push -e q", b"m2\n.\nmore"), (b"m1", b"m2\n"),
        new=(b"m2\n",)),
        make("push -d", pushes(1, 1), v("push -d 999999 q", b"m2"), 2, new=1, ends="delayed",
        subject=b"m2"),
        make("push -k", pushes(1, 1), v("push -k key q", b"m2"), 2, new=1, key="key"),
        make("push -k again", pushes(1, 1, "-k", "key"), v("push -k key q", b"m2"), 1, key="key"),
        make("push -k after a killed drain", (*pushes(1, 2), killed("unlink q/out/", v("drain q"))),
        v("push -k key q", b"m3"),
             lines(3, 3), lines(3, 3), key="key"),
        make("push -p", pushes(2, 3), v("push -p 7 q", b"m1"), 3, new=lines(1, 1)),
        make("push into a bound", (v("create -b 3 q"), *pushes(1, 2)), v("push q", b"m3"), 3,
        new=1),
        make("push, new range", pushes(1, 2), v("push q", b"m3"), 3, new=1, prepare=full_range),
        make("push -l, few", pushes(1, 2), v("push -l q", b"m3\nm4\n"), 4, new=2, atomic=True),
        make("push -l", pushes(1, 2), v("push -l q", MANY), 140, new=138, atomic=True),
        make("push -l into a block that is there", (v("push -l q", b"\n".join(lines(1, 120))),),
        v("push -l q", b"\n".join(lines(121, 240))),
             240, new=120, atomic=True),
        make("push -0", pushes(1, 2), v("push -0 q", b"m3\0\0m\n5\0"),
        (b"m1", b"m2", b"m3", b"", b"m\n5"), new=(b"m3", b"", b"m\n5"), atomic=True),
        make("pop", pushes(1, 3), v("pop q"), 3, old=1, delivers=True),
        make("pop binary", (v("push q", BIG),), v("pop q"), (BIG,), old=(BIG,), delivers=True),
        make("pop 256 KiB", (v("push q", LARGE), *pushes(2, 2)), v("pop q"), (LARGE, b"m2"),
        old=(LARGE,), delivers=True),
        make("pop with a key", pushes(1, 1, "-k", "key"), v("pop q"), 1, old=1, delivers=True,
        key="key"),
        make("pop from a flat file", FLAT, v("pop q"), 6, old=1, delivers=True),
        make("pop, expired", ON_EXPIRY, v("pop q"), 1, old=1, delivers=True),
        make("pop, due", pushes(1, 2, "-d", "999999"), v("pop q"), 2, old=1, delivers=True,
        instead=True, prepare=layout.age),
        make("pop, dead owner", (*pushes(1, 2), killed("open q/done/", v("pop q"))), v("pop q"), 2,
        old=1, delivers=True,
             instead=True),
        make("pop of two queues", (v("create p"), *pushes(1, 2)), v("pop p q"), 2, old=1,
        delivers=True),
        make("pop -l", (*FLAT, *pushes(7, 9)), v("pop -l -n 8 q"), 9, old=8, delivers=True),
        make("drain", (*FLAT, *pushes(7, 9)), v("drain q"), 9, old=9, delivers=True),
        make("drain -a", (*FLAT, *pushes(7, 9)), v("drain -a q", b"ok\nok\n"), 9, old=9,
        delivers=True),
        make("drain, too many tries", (v("create -m 1 q"), *pushes(1, 1), killed("open q/done/",
        v("drain q")), *pushes(2, 2)), v("drain q"), 2, old=lines(2, 2), delivers=True,
        ordered=False),
        make("reserve", pushes(1, 2), v("reserve -t 999999 q"), 2, ends="reserved"),
        make("delete", LEASED, v("delete RECEIPT"), 2, old=1),
        make("delete, expired", (*LEASED, v("touch -t 0 RECEIPT"), v("wal")), v("delete RECEIPT"),
        2, old=1),
        make("delete with a key", (*pushes(1, 1, "-k", "key"), *pushes(2, 2),
        v("reserve -t 999999 q")),
             v("delete RECEIPT"), 2, old=1, key="key"),
        make("delete in a flat file", FLAT, v("delete q:4"), 6, old=lines(4, 4)),
        make("release", LEASED, v("release RECEIPT"), 2, ends="ready"),
        make("release -p -d", LEASED, v("release -p 70000 -d 999999 RECEIPT"), 2, ordered=False,
        ends="delayed"),
        make("release, too many tries", (v("create -m 1 q"), *LEASED), v("release RECEIPT"), 2,
             ordered=False, ends="buried"),
        make("touch", LEASED, v("touch -t 9999999 RECEIPT"), 2, ends="reserved"),
        make("bury", LEASED, v("bury RECEIPT"), 2, ordered=False, ends="buried"),
        make("kick", (*LEASED, v("bury RECEIPT")), v("kick q"), 2, ordered=False, ends="ready"),
        make("kick, delayed", pushes(1, 2, "-d", "999999"), v("kick -n 9 q"), 2, ends="ready"),
        # another consumer has the message meanwhile
        make("old receipts", (*pushes(1, 1), v("reserve -t 0 q"), ("sh",
        '"$0/reserve" -t 999999 q', b"")), ("sh", 'for verb in delete release bury touch; do '
        '"$0/$verb" RECEIPT; [ $? = 66 ] || exit 74; done', b""), 1, ends="reserved", complaints=4),
        make("peek into a flat file", FLAT, v("peek q"), 6),
        make("close", pushes(1, 2), v("close q"), 2),
        make("drop -f", pushes(1, 3), v("drop -f q"), 3, old=3, atomic=True),
        make("create", (v("push p", b"other"),), v("create -b 5 q"), ()),
        make("create again", (*pushes(1, 2), v("close q")), v("create -b 5 -m 3 q"), 2),
        make("doctor", (*FLAT, *pushes(7, 8), killed("open q/wal/", v("push q", b"m9"))),
        v("doctor"), 8),
        make("work", pushes(1, 2), v("work -n 1 -w 0 -q q -- cat"), 2, old=1, delivers=True,
        complaints=3),
        make("work, the command fails", pushes(1, 2), v("work -n 1 -w 0 -q q -- false"), 2,
             ordered=False, ends="delayed", complaints=3),
        make("pop -w", (*pushes(1, 1), v("reserve -t 999999 q")),
        ("sh", waiting(POPS, "wait", '"$lib/release" RECEIPT'), b""),
             1, old=1, verb="pop", delivers=True, complaints=2),
        make("push -w", (v("create -b 1 q"), *pushes(1, 1)), ("sh", waiting(PUSHES, "room",
        '"$lib/pop" q >/dev/null'), b"m2"), 2,
             new=1, old=1, verb="push", beside=True, complaints=2),
        make("claim", pushes(1, 3), v("claim -c me -n 2 q"), 3, ends="claimed"),
        make("claim, a flat file", (*FLAT, *pushes(7, 8)), v("claim -c me q"), 8, ends="claimed"),
        make("claim, more", (*CLAIMED, *pushes(11, 12)), v("claim -c me q"),
        (*lines(1, 3), *lines(11, 12)), ends="claimed"),
        make("settle", CLAIMED, v("settle -c me 2 q"), 3, old=2, atomic=True),
        make("settle, two segments", (*pushes(1, 3), v("claim -c me -n 1 q"),
        v("claim -c me -n 2 q")),
             v("settle -c me 2 q"), 3, old=2, atomic=True),
        make("settle keys", (*pushes(1, 1, "-k", "key"), v("claim -c me q")), v("settle -c me 1 q"),
        1,
             old=1, key="key"),
        make("unclaim", CLAIMED, v("unclaim -c me q"), 3, ends="ready"),
        make("unclaim, two segments", (*FLAT, *pushes(7, 8), v("claim -c me -n 6 q"),
        v("claim -c me q")),
             v("unclaim -c me q"), 8, ends="ready"),
    ]


def _doors() -> list[Scenario]:
    def make(door: str, name: str, before: tuple[Words, ...], request: bytes, order: Any, *,
            complaints: int = 3, **more: Any) -> Scenario:
        act: Words = (door, request)
        return Scenario(f"{door}: {name}", before, act, order, complaints=complaints, **more)

    def line(*args: Any, **more: Any) -> Scenario:
        return make("handler", *args, complaints=2, **more)

    def stalk(*args: Any, **more: Any) -> Scenario:
        return make("beanstalk", *args, **more)

    def web(name: str, before: tuple[Words, ...], request: Words, order: Any,
            **more: Any) -> Scenario:
        more = {"complaints": 2, "says": b"HTTP/1.1 200", **more}
        return make("http", name, before, request[-1], order, **more)

    def handed(seconds: int, *more: Words) -> tuple[Words, ...]:
        get = http("GET", f"group-id=q&visibility-timeout={seconds}")
        return (*pushes(1, 2), get, *more)

    two, put, taken = pushes(1,
        2), b"use q\r\nput 65536 %d 60 2\r\nm2\r\n", b"watch q\r\nreserve\r\n"
    buried = (*LEASED, v("bury RECEIPT"))
    patch = "receipt-id=RECEIPT&visibility-timeout="
    return [
        line("push", pushes(1, 1), b"push q\nm2", 2, new=1),
        line("push -n", pushes(1, 1), b"push -n 2 q\nm2", 2, new=1),
        line("push -e", pushes(1, 1), b"push -e q\nm2\n.\n", (b"m1", b"m2\n"), new=(b"m2\n",)),
        line("pop", two, b"pop q\n", 2, old=1, delivers=True),
        line("reserve", two, b"reserve -t 999999 q\n", 2, ends="reserved"),
        line("delete", LEASED, b"delete RECEIPT\n", 2, old=1),
        stalk("put", pushes(1, 1), put % 0, 2, new=1, says=b"INSERTED"),
        stalk("put, delayed", pushes(1, 1), put % 999999, 2, new=1, ends="delayed", subject=b"m2",
            says=b"INSERTED"),
        stalk("reserve, touch, delete", two, taken + b"touch 1\r\ndelete 1\r\n", 2, old=1,
            says=b"DELETED", complaints=4),
        stalk("reserve, release", two, taken + b"release 1 65536 999999\r\n", 2, ends="delayed",
            says=b"RELEASED"),
        stalk("reserve, bury", two, taken + b"bury 1 65536\r\n", 2, ordered=False, ends="buried",
            says=b"BURIED"),
        stalk("kick-job", buried, b"kick-job 1\r\n", 2, ordered=False, ends="ready",
        says=b"KICKED"),
        stalk("reserve-job", (v("create -b 4 q"), *buried), b"reserve-job 1\r\n", 2, ordered=False,
            says=b"RESERVED"),
        web("POST", pushes(1, 1), http("POST", "group-id=q", b"m2"), 2, new=1),
        web("POST, chunked", pushes(1, 1), http("POST", "group-id=q",
            b"1\r\nm\r\n1\r\n2\r\n0\r\n\r\n", chunked=True), 2, new=1),
        web("POST, batch", pushes(1, 1), http("POST", "group-id=q&batch=1", b"2\nm2\n2\nm3\n"), 3,
            new=2, singly=True, says=rb"\r\n\r\n200 .*\n200 ", complaints=3),
        web("GET", two, http("GET", "visibility-timeout=9999"), 2, ends="reserved",
            says=b"\r\n\r\nm1"),
        web("DELETE", handed(9999), http("DELETE", "receipt-id=RECEIPT"), 2, old=1),
        web("DELETE, twice", handed(9999), http("DELETE", "receipt-id=RECEIPT&receipt-id=RECEIPT"),
        2,
            old=1, says=b"\r\n\r\n200 ", denies=1, complaints=3),
        web("PATCH", handed(9999), http("PATCH", patch + "9999"), 2, ends="reserved"),
        web("PATCH, lease over", handed(0), http("PATCH", patch + "9999"), 2, ends="reserved"),
        web("PATCH, refused", handed(0, v("wal"), ("sh", '"$0/reserve" -t 999999 q', b"")),
            http("PATCH", patch + "0"), 2, ends="reserved", says=b"HTTP/1.1 204", denies=1),
        make("small-stalk", "put", (v("push default", b"m1"),), b"put 65536 60\r\nm2\r\n", 2, new=1,
            says=b"INSERTED", queue="default"),
        make("small-stalk", "reserve, release", (v("push default", b"m1"),),
            b"reserve\r\nrelease 1 65536\r\n", 1, ends="ready", says=b"RELEASED", queue="default"),
    ]


def _checkpoints() -> list[Scenario]:
    """The checkpoint, on sound queues and after every kind of wreck."""
    def make(name: str, before: tuple[Words, ...], order: Any, **more: Any) -> Scenario:
        return Scenario(f"checkpoint{name}", before, v("wal"), order, **more)

    push, pop, bulk = v("push q", b"m3"), v("pop q"), v("drain q")
    fold = [("at its first slip", "rename q/wal/.* q/fold/"), ("among its slips",
        "3#rename q/wal/.* q/fold/"), ("before its file", "open q/tmp/"),
            ("in its file", "write q/tmp/"), ("before the commit", "rename q/tmp/.* q/queue/"),
            ("after the commit", "unlink q/body/"),
            ("among the bodies", "3#unlink q/body/"), ("among the run", "3#unlink q/fold/"),
            ("before the run goes", "rmdir q/fold/")]
    unfold = [("before its bodies", "mkdir q/tmp/"), ("among its bodies", "4#open q/body/"),
        ("in a body", "4#write q/body/"),
              ("before the commit", "rename .* q/unfold/"), ("after the commit",
              "rename q/tmp/.* q/head/"), ("at the end", "unlink q/unfold/"),
              ("before the block goes", "rmdir q/queue/")]
    return [
        make(", nothing", pushes(1, 1), 1),
        make(" folds", (*FLAT, *pushes(7, 11), *pushes(12, 16, "-p", "7")),
        (*lines(12, 16), *lines(1, 11))),
        make(" sweeps", (*pushes(1, 4), pop, pop), lines(3, 4)),
        make(" sweeps keys", (*pushes(1, 1, "-k", "key"), *pushes(2, 3), pop), lines(2, 3),
        key="key"),
        make(", expired", ON_EXPIRY, 1),
        make(", due", pushes(1, 2, "-d", "999999"), 2, prepare=layout.age),
        make(", too many tries", (v("create -m 1 q"), *pushes(1, 2), v("reserve -t 0 q")), 2,
        ordered=False),
        make(", old range", pushes(1, 2), 2, prepare=old_range),
        make(" after a push killed before its slip", (*pushes(1, 2), killed("open q/wal/", push)),
        2, prepare=old_range),
        make(" after a push killed with its slip", (*pushes(1, 2), killed("open q/log", push)), 3,
        prepare=old_range),
        make(" after a push -k killed before its slip", (*pushes(1, 2), killed("open q/wal/",
        v("push -k key q", b"m3"))), 2, key="key", prepare=old_range),
        make(" after a pop killed before its marker", (*pushes(1, 3), killed("open q/done/", pop)),
        3),
        make(" after a pop killed with its marker", (*pushes(1, 3), killed("open q/log", pop)),
        lines(2, 3)),
        make(" after a drain killed among its slips", (*pushes(1, 4), killed(
        "3#rename q/wal/.* q/out/", bulk)), 4),
        make(" after a drain killed before its marker", (*FLAT, *pushes(7, 9),
        killed("open q/done/", bulk)), 9),
        make(" after a drain killed with its marker", (*FLAT, killed("unlink q/out/", bulk)), ()),
        make(" after a push -l killed before the commit", (*pushes(1, 2), killed(
        "rename .* q/queue/", v("push -l q", b"m3\nm4\n"))), 2),
        make(" after a push -l killed with the commit", (*pushes(1, 2), killed("open q/log",
        v("push -l q", MANY))), 140),
        make(" after a drop killed in the removal", (*pushes(1, 2), v("push p", b"other"),
        killed(r"unlink \.drop\.", v("drop -f p"))), 2),
        make(" after a sweep killed among its files", (*pushes(1, 3), pop, killed("unlink q/body/",
        v("wal"))), lines(2, 3)),
        make(" after a sweep killed at its end", (*pushes(1, 3), pop,
        killed("unlink q/done/", v("wal"))), lines(2, 3)),
        *(make(f" after a fold killed {where}", (*pushes(1, 6), killed(pattern, v("wal"))), 6)
        for where, pattern in fold),
        *(make(f" after an unfold killed {where}", (*FLAT, killed(pattern, pop)), 6) for where,
        pattern in unfold),
    ]


_ALL = [*_basic(), *_doors(), *_checkpoints()]
#: By name. Each also with FLATQ_SYNC=on, under its name and ", synced".
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for plain in _ALL for scenario in (plain,
    replace(plain, name=plain.name + ", synced", sync="on"))}
THREE = tuple(b"message number %d, the %s" % pair for pair in enumerate((b"first", b"second",
    b"third"), 1))
#: The scenario that the article's version can run too
BASELINE = Scenario("three pushes, three pops", (v("create q"),), ("sh", "".join(
    f"""if printf %s '{body.decode()}' | sh "$0/push" q >/dev/null; then printf '+{n}\\n'; fi\n"""
    for n, body in enumerate(THREE)) + 3 * """printf '<'; sh "$0/pop" q; printf ' %s>\\n' $?\n""",
    b""), THREE, delivers=True, complaints=6, tells=True)
#: Queues `a` and `z`, each with a message in each state.
STATES = tuple(v(text.replace("Q", queue), stdin) for queue in "az" for text, stdin in (
    ("push -l Q", b"\n".join(lines(1, 9))), ("push -d 999999 Q", b"later"),
    ("push -k key Q", b"keyed"), ("claim -c me -n 1 Q", b""), ("reserve -t 999999 Q", b""),
    ("bury RECEIPT", b""), ("reserve -t 999999 Q", b""), ("create -b 99 Q", b"")))
#: The scenario of the family `reads` alone.
BESIDE = Scenario("pop at a boot, beside others", (*STATES, *pushes(1, 2)), v("pop q"), lines(1, 2),
    old=lines(1, 1), delivers=True, prepare=layout.reboot, others=("a", "z"))
#: All that have a name.
NAMED = {**SCENARIOS, BASELINE.name: BASELINE, BESIDE.name: BESIDE}
