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

@dataclass(frozen=True)
class Article(System):
    """The article's version, whose scripts expect the queue's name in $queue and its files in the
    working directory."""

    lib: Path = ROOT / "tests/article"
    name: str = "article"
    baseline = True

    def argv(self, words: Sequence[str]) -> list[str]:
        # ends with 0 whatever has happened, unless it is killed
        return ["sh", "-c", 'exec 2>/dev/null; mkdir -p "$FLATQ_DIR"; cd "$FLATQ_DIR" || exit\n'
            f'[ {words[0]} != wal ] || [ -f q.queue ] || exit 0\nsh "$0/{words[0]}"; '
            '[ $? -lt 128 ]', str(self.lib)]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {**super().environment(spool, sync), "queue": "q"}

    def bodies(self, spool: Path) -> list[bytes | None]:
        """The messages that can still be taken, in order, as pop reads them."""
        cut, out = spool / "q.cut", spool / "q.out"
        queue = cut if cut.exists() else spool / "q.queue"
        first = [out.read_bytes() if out.exists() else None] if cut.exists() else []
        rest = queue.read_bytes().splitlines() if queue.exists() else []
        return [*first, *map(layout.decoded, rest)]


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
    # it prints the messages that it takes away, as pop, drain and work do anyway
    delivers: bool = False
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

    def __post_init__(self) -> None:
        def fill(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        fill("verb", self.verb or self.act[0])
        takes = self.verb in ("pop", "drain", "work")
        fill("delivers", self.delivers or takes and bool(self.old))
        if isinstance(self.new, int):
            fill("new", lines(self.order - self.new + 1, self.order))
        for name in ("order", "old"):
            if isinstance(value := getattr(self, name), int):
                fill(name, lines(1, value))


def v(text: str, stdin: bytes = b"") -> Words:
    """A verb from its line."""
    return (*text.split(), stdin)


def killed(pattern: str, words: Words | str) -> Words:
    return ("CRASH", pattern, *verb(words))


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


def other_boot(spool: Path) -> None:
    """The pause was begun before the system was started anew."""
    (spool / "q/paused").write_text("000000000009 another 9\n")


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
    for queue in layout.queues(spool):
        layout.untended(queue)
    return fill(scenario.act, receipt)


PID_MAX = 1 << 22  # the greatest that Linux lets be set
BIG = bytes(range(256)) * 27  # NULs and newlines; three pages of a file
LARGE = b"0123456789abcdef" * 16384  # is written in 64 pieces, while a pipe holds 16
ONE, TWO, THREE = (pushes(1, last) for last in (1, 2, 3))
FLAT = (*pushes(1, 6), "wal")
LEASED = (*TWO, "reserve -t 999999 q")
CLAIMED = (*THREE, "claim -c me -n 2 q")
ON_EXPIRY = (*ONE, "reserve -t 0 q")
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
until [ -e "$FLATQ_DIR"/q/{where}/* ] || ! kill -0 $! 2>&- || [ $((turn += 1)) -gt 25 ]; do
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


def make(name: str, before: Sequence[Words | str], act: Words | str, order: Any,
        **more: Any) -> Scenario:
    """A scenario. A text is a verb without input."""
    return Scenario(name, tuple(map(verb, before)), verb(act), order, **more)


def verb(given: Words | str) -> Words:
    return v(given) if isinstance(given, str) else given


BASIC = [
    make("first push", (), v("push q", b"m1"), 1, new=1),
    make("push", TWO, v("push q", b"m3"), 3, new=1),
    make("push binary", ONE, v("push q", BIG), (b"m1", BIG), new=(BIG,)),
    make("push 256 KiB", ONE, v("push q", LARGE), (b"m1", LARGE), new=(LARGE,)),
    make("push a text", ONE, f"push q -- {5000 * 'm'}", (b"m1", 5000 * b"m"), new=(5000 * b"m",)),
    make("push -e", ONE, v("push -e q", b"m2\n.\nmore"), (b"m1", b"m2\n"), new=(b"m2\n",)),
    make("push -d", ONE, v("push -d 999999 q", b"m2"), 2, new=1, ends="delayed", subject=b"m2"),
    make("push -k", ONE, v("push -k key q", b"m2"), 2, new=1, key="key"),
    make("push -k again", pushes(1, 1, "-k", "key"), v("push -k key q", b"m2"), 1, key="key"),
    make("push -k after a killed drain", (*TWO, killed("unlink q/out/", "drain q")),
        v("push -k key q", b"m3"), lines(3, 3), new=lines(3, 3), key="key"),
    make("push -p", pushes(2, 3), v("push -p 7 q", b"m1"), 3, new=lines(1, 1)),
    make("push into a bound", ("create -b 3 q", *TWO), v("push q", b"m3"), 3, new=1),
    make("push, new range", TWO, v("push q", b"m3"), 3, new=1, prepare=full_range),
    make("push -l, few", TWO, v("push -l q", b"m3\nm4\n"), 4, new=2, atomic=True),
    make("push -l", TWO, v("push -l q", MANY), 140, new=138, atomic=True),
    make("push -l into a block that is there", (v("push -l q", b"\n".join(lines(1, 120))),),
        v("push -l q", b"\n".join(lines(121, 240))), 240, new=120, atomic=True),
    make("push -0", TWO, v("push -0 q", b"m3\0\0m\n5\0"), (b"m1", b"m2", b"m3", b"", b"m\n5"),
        new=(b"m3", b"", b"m\n5"), atomic=True),
    make("pop", THREE, "pop q", 3, old=1),
    make("pop 256 KiB", (v("push q", LARGE), *pushes(2, 2)), "pop q", (LARGE, b"m2"), old=(LARGE,)),
    make("pop with a key", pushes(1, 1, "-k", "key"), "pop q", 1, old=1, key="key"),
    make("pop from a flat file", FLAT, "pop q", 6, old=1),
    make("pop, expired", ON_EXPIRY, "pop q", 1, old=1),
    make("pop, due", pushes(1, 2, "-d", "999999"), "pop q", 2, old=1, instead=True,
        prepare=layout.age),
    make("pop, dead owner", (*TWO, killed("open q/done/", "pop q")), "pop q", 2, old=1,
        instead=True),
    make("pop of two queues", ("create p", *TWO), "pop p q", 2, old=1),
    make("pop -l", (*FLAT, *pushes(7, 9)), "pop -l -n 8 q", 9, old=8),
    make("drain", (*FLAT, *pushes(7, 9)), "drain q", 9, old=9),
    make("drain -a", (*FLAT, *pushes(7, 9)), v("drain -a q", b"ok\nok\n"), 9, old=9),
    make("drain, too many tries", ("create -m 1 q", *ONE, killed("open q/done/", "drain q"),
        *pushes(2, 2)), "drain q", 2, old=lines(2, 2), ordered=False),
    make("reserve", TWO, "reserve -t 999999 q", 2, ends="reserved"),
    make("delete", LEASED, "delete RECEIPT", 2, old=1),
    make("delete, expired", (*LEASED, "touch -t 0 RECEIPT", "wal"), "delete RECEIPT", 2, old=1),
    make("delete with a key", (*pushes(1, 1, "-k", "key"), *pushes(2, 2), "reserve -t 999999 q"),
        "delete RECEIPT", 2, old=1, key="key"),
    make("delete in a flat file", FLAT, "delete q:4", 6, old=lines(4, 4)),
    make("release", LEASED, "release RECEIPT", 2, ends="ready"),
    make("release -p -d", LEASED, "release -p 70000 -d 999999 RECEIPT", 2, ordered=False,
        ends="delayed"),
    make("release, too many tries", ("create -m 1 q", *LEASED), "release RECEIPT", 2, ordered=False,
        ends="buried"),
    make("touch", LEASED, "touch -t 9999999 RECEIPT", 2, ends="reserved"),
    make("bury", LEASED, "bury RECEIPT", 2, ordered=False, ends="buried"),
    make("kick", (*LEASED, "bury RECEIPT"), "kick q", 2, ordered=False, ends="ready"),
    make("kick by an id", (*LEASED, "bury RECEIPT"), "kick q:1", 2, ordered=False, ends="ready"),
    make("delete -s buried", (*LEASED, "bury RECEIPT"), "delete -s buried q", 2, old=1,
        ordered=False),
    make("kick, delayed", pushes(1, 2, "-d", "999999"), "kick -n 9 q", 2, ends="ready"),
    # another consumer has the message meanwhile
    make("old receipts", (*ONE, "reserve -t 0 q", ("sh", '"$0/reserve" -t 999999 q', b"")),
        ("sh", 'for verb in delete release bury touch; do "$0/$verb" RECEIPT; [ $? = 66 ] ||'
        ' exit 74; done', b""), 1, ends="reserved", complaints=4),
    make("peek into a flat file", FLAT, "peek q", 6),
    make("close", TWO, "close q", 2),
    make("pause", TWO, "pause q", 2),
    make("resume", (*TWO, "pause q"), "resume q", 2),
    make("pop, paused", (*TWO, "pause q"), ("sh", '"$0/pop" q; [ $? = 66 ] || exit 74', b""), 2),
    make("pop, a pause is over", (*TWO, "pause q 9"), "pop q", 2, old=1,
        prepare=other_boot),
    *(make(f"wait, {name}", before, ("sh", f'"$0/wait" -t 0 q{of}; case $? in 75) ;; 0) exit 66 ;; '
        '*) exit 74 ;; esac', b""), order) for name, before, of, order in (
        ("reserved", (*ONE, "reserve -t 999999 q"), "", 1), ("in a flat file", FLAT, ":4", 6),
        ("delayed", pushes(1, 1, "-d", "999999"), "", 1))),
    make("drop -f", THREE, "drop -f q", 3, old=3, atomic=True),
    make("create", (v("push p", b"other"),), "create -b 5 q", ()),
    make("create again", (*TWO, "close q"), "create -b 5 -m 3 q", 2),
    make("doctor", (*FLAT, *pushes(7, 8), killed("open q/wal/", v("push q", b"m9"))), "doctor", 8),
    make("work", TWO, "work -n 1 -w 0 -q q -- cat", 2, old=1, complaints=3),
    make("work, the command fails", TWO, "work -n 1 -w 0 -q q -- false", 2, ordered=False,
        ends="delayed", complaints=3),
    make("pop -w", (*ONE, "reserve -t 999999 q"), ("sh", waiting(POPS, "wait",
        '"$lib/release" RECEIPT'), b""), 1, old=1, verb="pop", complaints=2),
    make("push -w", ("create -b 1 q", *ONE), ("sh", waiting(PUSHES, "room",
        '"$lib/pop" q >/dev/null'), b"m2"), 2, new=1, old=1, verb="push", beside=True,
        complaints=2),
    make("claim", THREE, "claim -c me -n 2 q", 3, ends="claimed"),
    make("claim, a flat file", (*FLAT, *pushes(7, 8)), "claim -c me q", 8, ends="claimed"),
    make("claim, more", (*CLAIMED, *pushes(11, 12)), "claim -c me q", (*lines(1, 3),
        *lines(11, 12)), ends="claimed"),
    make("settle", CLAIMED, "settle -c me 2 q", 3, old=2, atomic=True),
    make("settle, two segments", (*THREE, "claim -c me -n 1 q", "claim -c me -n 2 q"),
        "settle -c me 2 q", 3, old=2, atomic=True),
    make("settle keys", (*pushes(1, 1, "-k", "key"), "claim -c me q"), "settle -c me 1 q", 1, old=1,
        key="key"),
    make("unclaim", CLAIMED, "unclaim -c me q", 3, ends="ready"),
    make("unclaim, two segments", (*FLAT, *pushes(7, 8), "claim -c me -n 6 q", "claim -c me q"),
        "unclaim -c me q", 8, ends="ready"),
]


# ---- doors: a connection each


def door(name: str, title: str, before: Sequence[Words | str], request: bytes, order: Any,
        complaints: int = 3, **more: Any) -> Scenario:
    return make(f"{name}: {title}", before, (name, request), order, complaints=complaints, **more)


line = functools.partial(door, "handler", complaints=2)
stalk = functools.partial(door, "beanstalk")


def web(title: str, before: Sequence[Words | str], request: Words, order: Any,
        **more: Any) -> Scenario:
    more = {"complaints": 2, "says": b"HTTP/1.1 200", **more}
    return door("http", title, before, request[-1], order, **more)


def handed(seconds: int, *more: Words | str) -> tuple[Words | str, ...]:
    return (*TWO, http("GET", f"group-id=q&visibility-timeout={seconds}"), *more)


PUT, TAKEN = b"use q\r\nput 65536 %d 60 2\r\nm2\r\n", b"watch q\r\nreserve\r\n"
BURIED = (*LEASED, "bury RECEIPT")
PATCH = "receipt-id=RECEIPT&visibility-timeout="
DOORS = [
    line("push", ONE, b"push q\nm2", 2, new=1),
    line("push -n", ONE, b"push -n 2 q\nm2", 2, new=1),
    line("push -e", ONE, b"push -e q\nm2\n.\n", (b"m1", b"m2\n"), new=(b"m2\n",)),
    line("pop", TWO, b"pop q\n", 2, old=1, delivers=True),
    line("reserve", TWO, b"reserve -t 999999 q\n", 2, ends="reserved"),
    line("delete", LEASED, b"delete RECEIPT\n", 2, old=1),
    stalk("put", ONE, PUT % 0, 2, new=1, says=b"INSERTED"),
    stalk("put, delayed", ONE, PUT % 999999, 2, new=1, ends="delayed", subject=b"m2",
        says=b"INSERTED"),
    stalk("reserve, touch, delete", TWO, TAKEN + b"touch 1\r\ndelete 1\r\n", 2, old=1,
        says=b"DELETED", complaints=4),
    stalk("reserve, release", TWO, TAKEN + b"release 1 65536 999999\r\n", 2, ends="delayed",
        says=b"RELEASED"),
    stalk("reserve, bury", TWO, TAKEN + b"bury 1 65536\r\n", 2, ordered=False, ends="buried",
        says=b"BURIED"),
    stalk("kick-job", BURIED, b"kick-job 1\r\n", 2, ordered=False, ends="ready", says=b"KICKED"),
    stalk("reserve-job", ("create -b 4 q", *BURIED), b"reserve-job 1\r\n", 2, ordered=False,
        says=b"RESERVED"),
    web("POST", ONE, http("POST", "group-id=q", b"m2"), 2, new=1),
    web("POST, chunked", ONE, http("POST", "group-id=q", b"1\r\nm\r\n1\r\n2\r\n0\r\n\r\n",
        chunked=True), 2, new=1),
    web("POST, batch", ONE, http("POST", "group-id=q&batch=1", b"2\nm2\n2\nm3\n"), 3, new=2,
        singly=True, says=rb"\r\n\r\n200 .*\n200 ", complaints=3),
    web("GET", TWO, http("GET", "visibility-timeout=9999"), 2, ends="reserved", says=b"\r\n\r\nm1"),
    web("DELETE", handed(9999), http("DELETE", "receipt-id=RECEIPT"), 2, old=1),
    web("DELETE, twice", handed(9999), http("DELETE", "receipt-id=RECEIPT&receipt-id=RECEIPT"), 2,
        old=1, says=b"\r\n\r\n200 ", denies=1, complaints=3),
    web("PATCH", handed(9999), http("PATCH", PATCH + "9999"), 2, ends="reserved"),
    web("PATCH, lease over", handed(0), http("PATCH", PATCH + "9999"), 2, ends="reserved"),
    web("PATCH, refused", handed(0, "wal", ("sh", '"$0/reserve" -t 999999 q', b"")), http("PATCH",
        PATCH + "0"), 2, ends="reserved", says=b"HTTP/1.1 204", denies=1),
    door("small-stalk", "put", (v("push default", b"m1"),), b"put 65536 60\r\nm2\r\n", 2, new=1,
        says=b"INSERTED", queue="default"),
    door("small-stalk", "reserve, release", (v("push default", b"m1"),),
        b"reserve\r\nrelease 1 65536\r\n", 1, ends="ready", says=b"RELEASED", queue="default"),
]


# ---- the checkpoint, on sound queues and after every kind of wreck


def wal(name: str, before: Sequence[Words | str], order: Any, **more: Any) -> Scenario:
    return make(f"checkpoint{name}", before, "wal", order, **more)


FOLD = {"at its first slip": "rename q/wal/.* q/fold/",
    "among its slips": "3#rename q/wal/.* q/fold/", "before its file": "open q/tmp/",
    "in its file": "write q/tmp/", "before the commit": "rename q/tmp/.* q/queue/",
    "after the commit": "unlink q/body/", "among the bodies": "3#unlink q/body/",
    "among the run": "3#unlink q/fold/", "before the run goes": "rmdir q/fold/"}
UNFOLD = {"before its bodies": "mkdir q/tmp/", "among its bodies": "4#open q/body/",
    "in a body": "4#write q/body/", "before the commit": "rename .* q/unfold/",
    "after the commit": "rename q/tmp/.* q/head/", "at the end": "unlink q/unfold/",
    "before the block goes": "rmdir q/queue/"}
CHECKPOINTS = [
    wal(" folds", (*FLAT, *pushes(7, 11), *pushes(12, 16, "-p", "7")), (*lines(12, 16),
        *lines(1, 11))),
    wal(" sweeps", (*pushes(1, 4), "pop q", "pop q"), lines(3, 4)),
    wal(" sweeps keys", (*pushes(1, 1, "-k", "key"), *pushes(2, 3), "pop q"), lines(2, 3),
        key="key"),
    wal(", expired", ON_EXPIRY, 1),
    wal(", due", pushes(1, 2, "-d", "999999"), 2, prepare=layout.age),
    wal(", too many tries", ("create -m 1 q", *TWO, "reserve -t 0 q"), 2, ordered=False),
    wal(", old range", TWO, 2, prepare=old_range),
    wal(" after a push killed before its slip", (*TWO, killed("open q/wal/", v("push q", b"m3"))),
        2, prepare=old_range),
    wal(" after a push killed with its slip", (*TWO, killed("open q/log", v("push q", b"m3"))), 3,
        prepare=old_range),
    wal(" after a push -k killed before its slip", (*TWO, killed("open q/wal/", v("push -k key q",
        b"m3"))), 2, key="key", prepare=old_range),
    wal(" after a pop killed before its marker", (*THREE, killed("open q/done/", "pop q")), 3),
    wal(" after a pop killed with its marker", (*THREE, killed("open q/log", "pop q")),
        lines(2, 3)),
    wal(" after a drain killed among its slips", (*pushes(1, 4), killed("3#rename q/wal/.* q/out/",
        "drain q")), 4),
    wal(" after a drain killed before its marker", (*FLAT, *pushes(7, 9), killed("open q/done/",
        "drain q")), 9),
    wal(" after a drain killed with its marker", (*FLAT, killed("unlink q/out/", "drain q")), ()),
    wal(" after a push -l killed before the commit", (*TWO, killed("rename .* q/queue/",
        v("push -l q", b"m3\nm4\n"))), 2),
    wal(" after a push -l killed with the commit", (*TWO, killed("open q/log", v("push -l q",
        MANY))), 140),
    wal(" after a drop killed in the removal", (*TWO, v("push p", b"other"),
        killed(r"unlink \.drop\.", "drop -f p")), 2),
    wal(" after a sweep killed among its files", (*THREE, "pop q", killed("unlink q/body/", "wal")),
        lines(2, 3)),
    wal(" after a sweep killed at its end", (*THREE, "pop q", killed("unlink q/done/", "wal")),
        lines(2, 3)),
    *(wal(f" after a fold killed {where}", (*pushes(1, 6), killed(pattern, "wal")), 6) for where,
        pattern in FOLD.items()),
    *(wal(f" after an unfold killed {where}", (*FLAT, killed(pattern, "pop q")), 6) for where,
        pattern in UNFOLD.items()),
]


#: By name. Each also with FLATQ_SYNC=on, under its name and ", synced".
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for plain in (*BASIC, *DOORS, *CHECKPOINTS)
    for scenario in (plain, replace(plain, name=plain.name + ", synced", sync="on"))}
#: Those that the article's version can run too
ARTICLES = ("push", "pop")
#: Queues `a` and `z`, each with a message in each state.
STATES = tuple(v(text.replace("Q", queue), stdin) for queue in "az" for text, stdin in (
    ("push -l Q", b"\n".join(lines(1, 9))), ("push -d 999999 Q", b"later"),
    ("push -k key Q", b"keyed"), ("claim -c me -n 1 Q", b""), ("reserve -t 999999 Q", b""),
    ("bury RECEIPT", b""), ("reserve -t 999999 Q", b""), ("create -b 99 Q", b"")))
#: The scenario of the family `reads` alone.
BESIDE = make("pop at a boot, beside others", (*STATES, *TWO), "pop q", 2, old=1,
    prepare=layout.reboot, others=("a", "z"))
#: All that have a name.
NAMED = {**SCENARIOS, BESIDE.name: BESIDE}
