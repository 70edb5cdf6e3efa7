"""Scenarios: how a spool is prepared, and which verb is then broken. There is one for every verb and every transition.

A verb is a tuple of words: the file in lib/, its arguments and, last, its standard input; or `sh` and a script, whose $0 is lib/. The word
RECEIPT stands for the receipt from the last `reserve`, or GET of the HTTP door, before it. A verb that begins with CRASH and a pattern is killed
just before its first call whose "KIND PATH ..." contains the pattern.

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

from .gate import faults, gate
from .judge import layout

RANGE = 32  # ids in a range: FLATQ_RANGE
ROOT = Path(__file__).resolve().parents[3]
Words = tuple[Any, ...]  # text, and bytes at the end


@functools.cache
def tools() -> str:
    """PATH without directories that have nothing for a verb: a shell looks into each for each program, and the gate stops every look."""
    found = (shutil.which(name) for name in ("sh", "base64", "mv", "awk", "find", "flock", "perl", "python3", "ncat"))
    return os.pathsep.join(dict.fromkeys(os.path.dirname(path) for path in found if path))


@dataclass(frozen=True)
class System:
    """The verbs under test: those in lib/, or a copy with another name, run by `shell`. `baseline`: its trials are expected to be bad."""

    lib: Path = ROOT / "lib"
    name: str = "flatq"
    shell: tuple[str, ...] = ("sh",)
    baseline = False

    def argv(self, words: Sequence[str]) -> list[str]:
        return [*self.shell, "-c", words[1], str(self.lib)] if words[0] == "sh" else [*self.shell, str(self.lib / words[0]), *words[1:]]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {"PATH": tools(), "HOME": str(spool.parent), "FLATQ_DIR": str(spool), "FLATQ_SYNC": sync,
                "FLATQ_FOLD": "5", "FLATQ_RANGE": str(RANGE)}

    def verb(self, spool: Path, *words: str, stdin: bytes = b"", sync: str = "off") -> subprocess.CompletedProcess[bytes]:
        """Run it undisturbed. Raises subprocess.TimeoutExpired after ten minutes."""
        return subprocess.run(self.argv(words), input=stdin, env=self.environment(spool, sync), capture_output=True, timeout=600)

    def dump(self, spool: Path) -> layout.Dump:
        return layout.dump(spool)


@dataclass(frozen=True)
class Article(System):
    """The article's version, whose scripts expect the queue's name in $queue and its files in the working directory."""

    lib: Path = ROOT / "tests/article"
    name: str = "article"
    baseline = True

    def argv(self, words: Sequence[str]) -> list[str]:
        script = {"sh": words[-1], "create": "", "wal": '[ ! -f q.queue ] || sh "$0/wal"'}.get(words[0], f'sh "$0/{words[0]}"')
        handler = 'sh() { command sh "$@"; [ $? -lt 128 ]; }'  # ends with 0 whatever has happened, unless it is killed
        return ["sh", "-c", f'exec 2>/dev/null; [ -d "$FLATQ_DIR" ] || mkdir "$FLATQ_DIR"; cd "$FLATQ_DIR" || exit\n{handler}\n{script}', str(self.lib)]

    def environment(self, spool: Path, sync: str = "off") -> dict[str, str]:
        return {**super().environment(spool, sync), "queue": "q"}

    def dump(self, spool: Path) -> layout.Dump:
        """The messages that can still be taken, in order, as pop reads them."""
        cut = spool / "q.cut"
        bodies: list[bytes | None] = [layout.read(spool / "q.out") if (spool / "q.out").exists() else None] if cut.exists() else []
        queue = cut if cut.exists() else spool / "q.queue"
        for line in queue.read_bytes().splitlines() if queue.exists() else []:
            bodies.append(layout.decoded(line))
        return layout.Dump({"q": [layout.Message(n, "ready", 0, 0, "", body, queue.name) for n, body in enumerate(bodies, 1)]})


def system_of(lib: Path) -> System:
    """The verbs in another directory than lib/."""
    return Article() if lib.resolve() == Article.lib else System(lib.absolute(), str(lib))


@dataclass(frozen=True)
class Scenario:
    """`order`: every message that may come out at the end, in its order, and no other may; `new`: those that `act` brings; `old`:
    those that it takes away; all others must come out."""

    name: str
    verb: str
    before: tuple[Words, ...]
    act: Words
    order: tuple[bytes, ...]
    new: tuple[bytes, ...] = ()
    old: tuple[bytes, ...] = ()
    ordered: bool = True  # in the order of `order`
    delivers: bool = False  # it prints the messages that it takes away
    beside: bool = False  # another takes it away, by a pop: after a power cut it may come again
    instead: bool = False  # if the first message cannot be read, the second may be delivered
    atomic: bool = False  # `new`, and `old`, are all there or none of them is
    key: str = ""  # a push of another message with it is refused while the first is there
    ends: str = ""  # once acknowledged, `subject` is in this state: ready, delayed, reserved, buried, claimed
    subject: bytes = b"m1"
    says: bytes = b""  # a pattern: an answer that matches it is an acknowledgement, whatever the exit code, since a door's conversation goes on
    denies: int = 0  # how often a door says rightly that something is not there
    singly: bool = False  # each of `new` by itself is acknowledged: by the line `200 ...` of its number in the answer's body
    queue: str = "q"
    complaints: int = 1  # lines on standard error that there may be at most, a door's log among them
    prepare: Callable[[Path], None] | None = None
    sync: str = "off"
    tells: bool = False  # a script that prints +N when it has pushed order[N], and <TEXT STATUS> for each pop


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


def point_of(calls: Sequence[gate.Call], pattern: str) -> int:
    """The number of the first call that the pattern is found in, as "KIND PATH ..."; "#2" in front: the second. Raises LookupError."""
    which, _, pattern = pattern.rpartition("#") if re.match(r"\d+#", pattern) else ("1", "", pattern)
    found = [call.seq for call in calls if re.search(pattern, " ".join((call.kind, *call.paths)))]
    if len(found) < int(which):
        raise LookupError(f"no call {pattern!r} among {[(call.kind, *call.paths) for call in calls]}")
    return found[int(which) - 1]


def crash(system: System, spool: Path, pattern: str, words: Words, sync: str = "off") -> None:
    """Run the verb and kill it, with all its children, just before the call that the pattern names."""
    trial = spool.with_name(spool.name + ".trial")
    if spool.exists():
        shutil.copytree(spool, trial)
    try:
        calls = gate.run(system.argv(words[:-1]), trial, env=system.environment(trial, sync), stdin=words[-1]).calls
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    # By what the call is: if a second has passed since, the verb makes others before it
    fault = faults.named(gate.Fault("kill_tree", point_of(calls, pattern)), calls)
    result = gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync), stdin=words[-1], fault=fault)
    if not result.killed or not re.search(pattern.rpartition("#")[2], " ".join((result.calls[-1].kind, *result.calls[-1].paths))):
        raise RuntimeError(f"{words} was to die at {pattern!r}: {result}")
    retire_pids(spool)


def retire_pids(spool: Path) -> None:
    """All owners have ended that names in the spool tell. Give each a PID above the kernel's greatest, so that no later process has it: a verb looks
    longer at one whose PID is in use."""
    for path in sorted(spool.rglob("*"), reverse=True):
        name = re.sub(r"(?<![^.])(\d+)(?=-\d{12}(?!\d))", lambda pid: str(int(pid[1]) + PID_MAX), path.name)
        if name != path.name:
            path.rename(path.with_name(name))


def fill(words: Words, receipt: str) -> Words:
    return tuple(word.replace(b"RECEIPT", receipt.encode()) if isinstance(word, bytes) else word.replace("RECEIPT", receipt)
                 for word in words)


def build(system: System, scenario: Scenario, spool: Path) -> Words:
    """Make the spool as it is before the act; the act, with its receipt filled in. Raises RuntimeError if a verb fails."""
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
    for tended in spool.glob("*/tended"):  # Without this, a take would depend on whether the last one was less than a second ago
        tended.unlink()
    return fill(scenario.act, receipt)


PID_MAX = 1 << 22  # the greatest that Linux lets be set
BIG = bytes(range(256)) * 12  # NULs and newlines, more than a pipe or the shell takes in one piece
HUGE = b"0123456789abcdef" * 65536
LARGE = HUGE[:262144]  # is written in 64 pieces, while a pipe holds 16
FLAT = (*pushes(1, 6), ("wal", b""))
LEASED = (*pushes(1, 2), ("reserve", "-t", "999999", "q", b""))
CLAIMED = (*pushes(1, 3), ("claim", "-c", "me", "-n", "2", "q", b""))
MANY = b"\n".join(lines(3, 140))
POPS = '"$lib/pop" -w 3 q'
PUSHES = '"$lib/push" -w 3 q'


def waiting(waits: str, where: str, then: str) -> str:
    """A script: one verb waits, and when it does, or has ended, another one does what it waits for. It ends as the first one does."""
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
    length = f"Content-Length: {len(body)}\r\n" if body and not chunked else "Transfer-Encoding: chunked\r\n" if chunked else ""
    return ("http", f"{method} /queue?{query} HTTP/1.1\r\nHost: here\r\n{length}\r\n".encode() + body)


ON_EXPIRY = (*pushes(1, 1), ("reserve", "-t", "0", "q", b""))


def _basic() -> list[Scenario]:
    make = Scenario
    return [
        make("first push", "push", (), ("push", "q", b"m1"), lines(1, 1), new=lines(1, 1)),
        make("push", "push", pushes(1, 2), ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3)),
        make("push empty", "push", pushes(1, 1), ("push", "q", b""), (b"m1", b""), new=(b"",)),
        make("push binary", "push", pushes(1, 1), ("push", "q", BIG), (b"m1", BIG), new=(BIG,)),
        make("push 1 MiB", "push", pushes(1, 1), ("push", "q", HUGE), (b"m1", HUGE), new=(HUGE,)),
        make("push -n", "push", pushes(1, 1), ("push", "-n", "2", "q", b"m2"), lines(1, 2), new=lines(2, 2)),
        make("push -e", "push", pushes(1, 1), ("push", "-e", "q", b"m2\n.\nmore"), (b"m1", b"m2\n"), new=(b"m2\n",)),
        make("push -d", "push", pushes(1, 1), ("push", "-d", "999999", "q", b"m2"), lines(1, 2), new=lines(2, 2), ends="delayed", subject=b"m2"),
        make("push -k", "push", pushes(1, 1), ("push", "-k", "key", "q", b"m2"), lines(1, 2), new=lines(2, 2), key="key"),
        make("push -k again", "push", pushes(1, 1, "-k", "key"), ("push", "-k", "key", "q", b"m2"), lines(1, 1), key="key"),
        make("push -k after a killed drain", "push", (*pushes(1, 2), ("CRASH", "unlink q/out/", "drain", "q", b"")), ("push", "-k", "key", "q", b"m3"),
             lines(3, 3), new=lines(3, 3), key="key"),
        make("push -p", "push", pushes(2, 3), ("push", "-p", "7", "q", b"m1"), lines(1, 3), new=lines(1, 1)),
        make("push into a bound", "push", (("create", "-b", "3", "q", b""), *pushes(1, 2)), ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3)),
        make("push, new range", "push", pushes(1, 2), ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3), prepare=full_range),
        make("push -l, few", "push", pushes(1, 2), ("push", "-l", "q", b"m3\nm4\n"), lines(1, 4), new=lines(3, 4), atomic=True),
        make("push -l", "push", pushes(1, 2), ("push", "-l", "q", MANY), lines(1, 140), new=lines(3, 140), atomic=True),
        make("push -l into a block that is there", "push", (("push", "-l", "q", b"\n".join(lines(1, 120))),), ("push", "-l", "q", b"\n".join(lines(121, 240))),
             lines(1, 240), new=lines(121, 240), atomic=True),
        make("push -0", "push", pushes(1, 2), ("push", "-0", "q", b"m3\0\0m\n5\0"), (b"m1", b"m2", b"m3", b"", b"m\n5"), new=(b"m3", b"", b"m\n5"), atomic=True),
        make("pop", "pop", pushes(1, 3), ("pop", "q", b""), lines(1, 3), old=lines(1, 1), delivers=True),
        make("pop binary", "pop", (("push", "q", BIG),), ("pop", "q", b""), (BIG,), old=(BIG,), delivers=True),
        make("pop 256 KiB", "pop", (("push", "q", LARGE), *pushes(2, 2)), ("pop", "q", b""), (LARGE, b"m2"), old=(LARGE,), delivers=True),
        make("pop with a key", "pop", pushes(1, 1, "-k", "key"), ("pop", "q", b""), lines(1, 1), old=lines(1, 1), delivers=True, key="key"),
        make("pop from a flat file", "pop", FLAT, ("pop", "q", b""), lines(1, 6), old=lines(1, 1), delivers=True),
        make("pop, expired", "pop", ON_EXPIRY, ("pop", "q", b""), lines(1, 1), old=lines(1, 1), delivers=True),
        make("pop, due", "pop", pushes(1, 2, "-d", "999999"), ("pop", "q", b""), lines(1, 2), old=lines(1, 1), delivers=True, instead=True, prepare=layout.age),
        make("pop, dead owner", "pop", (*pushes(1, 2), ("CRASH", "open q/done/", "pop", "q", b"")), ("pop", "q", b""), lines(1, 2), old=lines(1, 1), delivers=True,
             instead=True),
        make("pop of two queues", "pop", (("create", "p", b""), *pushes(1, 2)), ("pop", "p", "q", b""), lines(1, 2), old=lines(1, 1), delivers=True),
        make("pop -l", "pop", (*FLAT, *pushes(7, 9)), ("pop", "-l", "-n", "8", "q", b""), lines(1, 9), old=lines(1, 8), delivers=True),
        make("drain", "drain", (*FLAT, *pushes(7, 9)), ("drain", "q", b""), lines(1, 9), old=lines(1, 9), delivers=True),
        make("drain -a", "drain", (*FLAT, *pushes(7, 9)), ("drain", "-a", "q", b"ok\nok\n"), lines(1, 9), old=lines(1, 9), delivers=True),
        make("reserve", "reserve", pushes(1, 2), ("reserve", "-t", "999999", "q", b""), lines(1, 2), ends="reserved"),
        make("delete", "delete", LEASED, ("delete", "RECEIPT", b""), lines(1, 2), old=lines(1, 1)),
        make("delete, expired", "delete", (*LEASED, ("touch", "-t", "0", "RECEIPT", b""), ("wal", b"")), ("delete", "RECEIPT", b""), lines(1, 2), old=lines(1, 1)),
        make("delete with a key", "delete", (*pushes(1, 1, "-k", "key"), *pushes(2, 2), ("reserve", "-t", "999999", "q", b"")),
             ("delete", "RECEIPT", b""), lines(1, 2), old=lines(1, 1), key="key"),
        make("delete in a flat file", "delete", FLAT, ("delete", "q:4", b""), lines(1, 6), old=lines(4, 4)),
        make("release", "release", LEASED, ("release", "RECEIPT", b""), lines(1, 2), ends="ready"),
        make("release -p -d", "release", LEASED, ("release", "-p", "70000", "-d", "999999", "RECEIPT", b""), lines(1, 2), ordered=False, ends="delayed"),
        make("release, too many tries", "release", (("create", "-m", "1", "q", b""), *LEASED), ("release", "RECEIPT", b""), lines(1, 2),
             ordered=False, ends="buried"),
        make("touch", "touch", LEASED, ("touch", "-t", "9999999", "RECEIPT", b""), lines(1, 2), ends="reserved"),
        make("bury", "bury", LEASED, ("bury", "RECEIPT", b""), lines(1, 2), ordered=False, ends="buried"),
        make("kick", "kick", (*LEASED, ("bury", "RECEIPT", b"")), ("kick", "q", b""), lines(1, 2), ordered=False, ends="ready"),
        make("kick, delayed", "kick", pushes(1, 2, "-d", "999999"), ("kick", "-n", "9", "q", b""), lines(1, 2), ends="ready"),
        make("peek into a flat file", "peek", FLAT, ("peek", "q", b""), lines(1, 6)),
        make("close", "close", pushes(1, 2), ("close", "q", b""), lines(1, 2)),
        make("drop -f", "drop", pushes(1, 3), ("drop", "-f", "q", b""), lines(1, 3), old=lines(1, 3), atomic=True),
        make("create", "create", (("push", "p", b"other"),), ("create", "-b", "5", "q", b""), ()),
        make("create again", "create", (*pushes(1, 2), ("close", "q", b"")), ("create", "-b", "5", "-m", "3", "q", b""), lines(1, 2)),
        make("doctor", "doctor", (*FLAT, *pushes(7, 8), ("CRASH", "open q/wal/", "push", "q", b"m9")), ("doctor", b""), lines(1, 8)),
        make("work", "work", pushes(1, 2), ("work", "-n", "1", "-w", "0", "-q", "q", "--", "cat", b""), lines(1, 2), old=lines(1, 1), delivers=True, complaints=3),
        make("work, the command fails", "work", pushes(1, 2), ("work", "-n", "1", "-w", "0", "-q", "q", "--", "false", b""), lines(1, 2),
             ordered=False, ends="delayed", complaints=3),
        make("pop -w", "pop", (*pushes(1, 1), ("reserve", "-t", "999999", "q", b"")), ("sh", waiting(POPS, "wait", '"$lib/release" RECEIPT'), b""),
             lines(1, 1), old=lines(1, 1), delivers=True, complaints=2),
        make("push -w", "push", (("create", "-b", "1", "q", b""), *pushes(1, 1)), ("sh", waiting(PUSHES, "room", '"$lib/pop" q >/dev/null'), b"m2"), lines(1, 2),
             new=lines(2, 2), old=lines(1, 1), beside=True, complaints=2),
        make("claim", "claim", pushes(1, 3), ("claim", "-c", "me", "-n", "2", "q", b""), lines(1, 3), ends="claimed"),
        make("claim, a flat file", "claim", (*FLAT, *pushes(7, 8)), ("claim", "-c", "me", "q", b""), lines(1, 8), ends="claimed"),
        make("claim, more", "claim", (*CLAIMED, *pushes(11, 12)), ("claim", "-c", "me", "q", b""), (*lines(1, 3), *lines(11, 12)), ends="claimed"),
        make("settle", "settle", CLAIMED, ("settle", "-c", "me", "2", "q", b""), lines(1, 3), old=lines(1, 2), atomic=True),
        make("settle, two segments", "settle", (*pushes(1, 3), ("claim", "-c", "me", "-n", "1", "q", b""), ("claim", "-c", "me", "-n", "2", "q", b"")),
             ("settle", "-c", "me", "2", "q", b""), lines(1, 3), old=lines(1, 2), atomic=True),
        make("settle keys", "settle", (*pushes(1, 1, "-k", "key"), ("claim", "-c", "me", "q", b"")), ("settle", "-c", "me", "1", "q", b""), lines(1, 1),
             old=lines(1, 1), key="key"),
        make("unclaim", "unclaim", CLAIMED, ("unclaim", "-c", "me", "q", b""), lines(1, 3), ends="ready"),
        make("unclaim, two segments", "unclaim", (*FLAT, *pushes(7, 8), ("claim", "-c", "me", "-n", "6", "q", b""), ("claim", "-c", "me", "q", b"")),
             ("unclaim", "-c", "me", "q", b""), lines(1, 8), ends="ready"),
    ]


def _doors() -> list[Scenario]:
    def make(name: str, before: tuple[Words, ...], request: bytes, order: tuple[bytes, ...], **more: Any) -> Scenario:
        return Scenario(f"handler: {name}", "handler", before, ("handler", request), order, complaints=2, **more)

    default: tuple[Words, ...] = (("push", "default", b"m1"),)
    return [
        make("push", pushes(1, 1), b"push q\nm2", lines(1, 2), new=lines(2, 2)),
        make("push -n", pushes(1, 1), b"push -n 2 q\nm2", lines(1, 2), new=lines(2, 2)),
        make("push -e", pushes(1, 1), b"push -e q\nm2\n.\n", (b"m1", b"m2\n"), new=(b"m2\n",)),
        make("pop", pushes(1, 2), b"pop q\n", lines(1, 2), old=lines(1, 1), delivers=True),
        make("reserve", pushes(1, 2), b"reserve -t 999999 q\n", lines(1, 2), ends="reserved"),
        make("delete", LEASED, b"delete RECEIPT\n", lines(1, 2), old=lines(1, 1)),
        Scenario("beanstalk: put", "beanstalk", pushes(1, 1), ("beanstalk", b"use q\r\nput 65536 0 60 2\r\nm2\r\n"), lines(1, 2), new=lines(2, 2), says=b"INSERTED",
                 complaints=3),
        Scenario("beanstalk: put, delayed", "beanstalk", pushes(1, 1), ("beanstalk", b"use q\r\nput 65536 999999 60 2\r\nm2\r\n"), lines(1, 2), new=lines(2, 2),
                 ends="delayed", subject=b"m2", says=b"INSERTED", complaints=3),
        Scenario("beanstalk: reserve, touch, delete", "beanstalk", pushes(1, 2), ("beanstalk", b"watch q\r\nreserve\r\ntouch 1\r\ndelete 1\r\n"), lines(1, 2),
                 old=lines(1, 1), says=b"DELETED", complaints=4),
        Scenario("beanstalk: reserve, release", "beanstalk", pushes(1, 2), ("beanstalk", b"watch q\r\nreserve\r\nrelease 1 65536 999999\r\n"), lines(1, 2),
                 ends="delayed", says=b"RELEASED", complaints=3),
        Scenario("beanstalk: reserve, bury", "beanstalk", pushes(1, 2), ("beanstalk", b"watch q\r\nreserve\r\nbury 1 65536\r\n"), lines(1, 2), ordered=False,
                 ends="buried", says=b"BURIED", complaints=3),
        Scenario("beanstalk: kick-job", "beanstalk", (*LEASED, ("bury", "RECEIPT", b"")), ("beanstalk", b"kick-job 1\r\n"), lines(1, 2), ordered=False, ends="ready",
                 says=b"KICKED", complaints=3),
        Scenario("beanstalk: reserve-job", "beanstalk", (("create", "-b", "4", "q", b""), *LEASED, ("bury", "RECEIPT", b"")), ("beanstalk", b"reserve-job 1\r\n"),
                 lines(1, 2), ordered=False, says=b"RESERVED", complaints=3),
        Scenario("http: POST", "http", pushes(1, 1), http("POST", "group-id=q", b"m2"), lines(1, 2), new=lines(2, 2), says=b"HTTP/1.1 200", complaints=2),
        Scenario("http: POST, chunked", "http", pushes(1, 1), http("POST", "group-id=q", b"1\r\nm\r\n1\r\n2\r\n0\r\n\r\n", chunked=True), lines(1, 2), new=lines(2, 2),
                 says=b"HTTP/1.1 200", complaints=2),
        Scenario("http: POST, batch", "http", pushes(1, 1), http("POST", "group-id=q&batch=1", b"2\nm2\n2\nm3\n"), lines(1, 3), new=lines(2, 3), singly=True,
                 says=rb"\r\n\r\n200 .*\n200 ", complaints=3),
        Scenario("http: GET", "http", pushes(1, 2), http("GET", "visibility-timeout=9999"), lines(1, 2), ends="reserved", says=b"\r\n\r\nm1",
                 complaints=2),
        Scenario("http: DELETE", "http", (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=9999")), http("DELETE", "receipt-id=RECEIPT"), lines(1, 2), old=lines(1, 1),
                 says=b"HTTP/1.1 200", complaints=2),
        Scenario("http: DELETE, twice", "http", (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=9999")), http("DELETE", "receipt-id=RECEIPT&receipt-id=RECEIPT"), lines(1, 2),
                 old=lines(1, 1), says=b"\r\n\r\n200 ", denies=1, complaints=3),
        Scenario("http: PATCH", "http", (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=9999")), http("PATCH", "receipt-id=RECEIPT&visibility-timeout=9999"), lines(1, 2),
                 ends="reserved", says=b"HTTP/1.1 200", complaints=2),
        Scenario("http: PATCH, lease over", "http", (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=0")), http("PATCH", "receipt-id=RECEIPT&visibility-timeout=9999"),
                 lines(1, 2), ends="reserved", says=b"HTTP/1.1 200", complaints=2),
        Scenario("http: PATCH, refused", "http", (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=0"), ("wal", b""), ("sh", '"$0/reserve" -t 999999 q', b"")),
                 http("PATCH", "receipt-id=RECEIPT&visibility-timeout=0"), lines(1, 2), ends="reserved", says=b"HTTP/1.1 204", denies=1,
                 complaints=2),
        Scenario("small-stalk: put", "small-stalk", default, ("small-stalk", b"put 65536 60\r\nm2\r\n"), lines(1, 2), new=lines(2, 2), says=b"INSERTED",
                 complaints=3, queue="default"),
        Scenario("small-stalk: reserve, release", "small-stalk", default, ("small-stalk", b"reserve\r\nrelease 1 65536\r\n"), lines(1, 1), ends="ready",
                 says=b"RELEASED", complaints=3, queue="default"),
    ]


def _checkpoints() -> list[Scenario]:
    """The checkpoint, on sound queues and after every kind of wreck."""
    def make(name: str, before: tuple[Words, ...], order: tuple[bytes, ...], **more: Any) -> Scenario:
        return Scenario(f"checkpoint{name}", "wal", before, ("wal", b""), order, **more)

    push, pop, bulk = ("push", "q", b"m3"), ("pop", "q", b""), ("drain", "q", b"")
    fold = [("at its first slip", "rename q/wal/.* q/fold/"), ("among its slips", "3#rename q/wal/.* q/fold/"), ("before its file", "open q/tmp/"),
            ("in its file", "write q/tmp/"), ("before the commit", "rename q/tmp/.* q/queue/"), ("after the commit", "unlink q/body/"),
            ("among the bodies", "3#unlink q/body/"), ("among the run", "3#unlink q/fold/"), ("before the run goes", "rmdir q/fold/")]
    unfold = [("before its bodies", "mkdir q/tmp/"), ("among its bodies", "4#open q/body/"), ("in a body", "4#write q/body/"),
              ("before the commit", "rename .* q/unfold/"), ("after the commit", "rename q/tmp/.* q/head/"), ("at the end", "unlink q/unfold/"),
              ("before the block goes", "rmdir q/queue/")]
    return [
        make(", nothing", pushes(1, 1), lines(1, 1)),
        make(" folds", (*FLAT, *pushes(7, 11), *pushes(12, 16, "-p", "7")), (*lines(12, 16), *lines(1, 11))),
        make(" sweeps", (*pushes(1, 4), pop, pop), lines(3, 4)),
        make(" sweeps keys", (*pushes(1, 1, "-k", "key"), *pushes(2, 3), pop), lines(2, 3), key="key"),
        make(", expired", ON_EXPIRY, lines(1, 1)),
        make(", due", pushes(1, 2, "-d", "999999"), lines(1, 2), prepare=layout.age),
        make(", too many tries", (("create", "-m", "1", "q", b""), *pushes(1, 2), ("reserve", "-t", "0", "q", b"")), lines(1, 2), ordered=False),
        make(", old range", pushes(1, 2), lines(1, 2), prepare=old_range),
        make(" after a push killed before its slip", (*pushes(1, 2), ("CRASH", "open q/wal/", *push)), lines(1, 2), prepare=old_range),
        make(" after a push killed with its slip", (*pushes(1, 2), ("CRASH", "open q/log", *push)), lines(1, 3), prepare=old_range),
        make(" after a push -k killed before its slip", (*pushes(1, 2), ("CRASH", "open q/wal/", "push", "-k", "key", "q", b"m3")), lines(1, 2), key="key", prepare=old_range),
        make(" after a pop killed before its marker", (*pushes(1, 3), ("CRASH", "open q/done/", *pop)), lines(1, 3)),
        make(" after a pop killed with its marker", (*pushes(1, 3), ("CRASH", "open q/log", *pop)), lines(2, 3)),
        make(" after a drain killed among its slips", (*pushes(1, 4), ("CRASH", "3#rename q/wal/.* q/out/", *bulk)), lines(1, 4)),
        make(" after a drain killed before its marker", (*FLAT, *pushes(7, 9), ("CRASH", "open q/done/", *bulk)), lines(1, 9)),
        make(" after a drain killed with its marker", (*FLAT, ("CRASH", "unlink q/out/", *bulk)), ()),
        make(" after a push -l killed before the commit", (*pushes(1, 2), ("CRASH", "rename .* q/queue/", "push", "-l", "q", b"m3\nm4\n")), lines(1, 2)),
        make(" after a push -l killed with the commit", (*pushes(1, 2), ("CRASH", "open q/log", "push", "-l", "q", MANY)), lines(1, 140)),
        make(" after a drop killed in the removal", (*pushes(1, 2), ("push", "p", b"other"), ("CRASH", r"unlink \.drop\.", "drop", "-f", "p", b"")), lines(1, 2)),
        make(" after a sweep killed among its files", (*pushes(1, 3), pop, ("CRASH", "unlink q/body/", "wal", b"")), lines(2, 3)),
        make(" after a sweep killed at its end", (*pushes(1, 3), pop, ("CRASH", "unlink q/done/", "wal", b"")), lines(2, 3)),
        *(make(f" after a fold killed {where}", (*pushes(1, 6), ("CRASH", pattern, "wal", b"")), lines(1, 6)) for where, pattern in fold),
        *(make(f" after an unfold killed {where}", (*FLAT, ("CRASH", pattern, *pop)), lines(1, 6)) for where, pattern in unfold),
    ]


_ALL = [*_basic(), *_doors(), *_checkpoints()]
#: By name. Each also with FLATQ_SYNC=on, under its name and ", synced".
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for plain in _ALL for scenario in (plain, replace(plain, name=plain.name + ", synced", sync="on"))}
THREE = tuple(b"message number %d, the %s" % pair for pair in enumerate((b"first", b"second", b"third"), 1))
#: The scenario that the article's version can run too. Only the family `article` uses it.
BASELINE = Scenario("three pushes, three pops", "sh", (("create", "q", b""),), ("sh", "".join(
    f"""if printf %s '{body.decode()}' | sh "$0/push" q >/dev/null; then printf '+{n}\\n'; fi\n""" for n, body in enumerate(THREE))
    + 3 * """printf '<'; sh "$0/pop" q; printf ' %s>\\n' $?\n""", b""), THREE, delivers=True, complaints=6, tells=True)
#: All that have a name.
NAMED = {**SCENARIOS, BASELINE.name: BASELINE}
