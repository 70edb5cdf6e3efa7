"""Check a wreck, that is what a crash has left of a spool: recover, look, drain, and compare with
what must be there.

Acknowledged messages must come out once, unaltered, in order; others may be missing, but never half
there; and no file may be left over. The result of a recovery is stored for all processes of the run
(memo.py): of wrecks that differ only in nonces, times and process ids, only one is recovered
(trees.digest). What was acknowledged is compared each time. """
from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import layout, trees
from .. import memo
from .layout import Dump, dump
from ..scenarios import Article, Scenario, System

AFTER = b"after"  # the body of the push that comes before the recovery
#: The first verb after a boot says what it has set right; after a power cut also what was never
#: synced.
SET_RIGHT = re.compile(rb".* was (removed|damaged: buried)\n")


@dataclass
class Ledger:
    """The messages that may, must and must not be there. `group`: all of these or none; `first`: if
    one of these is there, so are all before it."""

    order: list[bytes]
    must: set[bytes]
    gone: set[bytes] = field(default_factory=set)
    ordered: bool = True
    group: list[bytes] = field(default_factory=list)
    first: list[bytes] = field(default_factory=list)
    key: str = ""
    queue: str = "q"
    wrong: list[str] = field(default_factory=list)  # seen at once, without a recovery

    def delivered(self, bodies: Sequence[bytes]) -> None:
        """These have been written out, by whoever was killed then: they may come again, or not."""
        self.must -= set(bodies)
        self.group = [body for body in self.group if body not in bodies]
        self.first = [body for body in self.first if body not in bodies]


def said(act: Sequence[object], stdout: bytes, bodies: Sequence[bytes]) -> list[bytes]:
    """The messages that were written out completely; with -a, in batches that end with `sent`."""
    if "-a" in act:
        stdout = stdout[:stdout.rfind(b"sent\n") + 1]
    end = b"\0" if "-0" in act else b"\n" if act[0] == "drain" or "-l" in act else None
    if end is None:
        return [body for body in bodies if body == stdout]
    return [body for body in bodies if stdout.startswith(body + end) or end + body + end in stdout]


def stored(stdout: bytes) -> bool:
    """Whether a push has acknowledged its messages."""
    return re.fullmatch(rb"\d+( dup|( \d+))?\n", stdout) is not None


def expected(scenario: Scenario, acked: bool, stdout: bytes) -> Ledger:
    """The ledger after `act` has printed this output, and succeeded or not."""
    old, new = set(scenario.old), set(scenario.new)
    if acked and scenario.instead and stdout in scenario.order:
        old = {stdout}
    if acked and scenario.verb == "work" and not said(scenario.act, stdout, scenario.old):
        acked = False  # its command has failed, and so the message stays
    ledger = Ledger(list(scenario.order), set(scenario.order) - old - new, ordered=scenario.ordered,
        key=scenario.key, queue=scenario.queue)
    if acked or scenario.new and stored(stdout):
        ledger.must |= new
    elif scenario.singly:
        told = re.findall(rb"^(\d+)(?: .*)?$", stdout.partition(b"\r\n\r\n")[2], re.MULTILINE)
        ledger.must |= {body for body, status in zip(scenario.new, told) if status == b"200"}
    elif scenario.atomic:
        ledger.group = list(scenario.new or scenario.old)
    else:
        ledger.first = list(scenario.new)
    if acked:
        ledger.gone = old
    elif scenario.delivers:
        ledger.must |= old - set(said(scenario.act, stdout, scenario.old))
    if acked and scenario.delivers and set(said(scenario.act, stdout, scenario.order)) != old:
        ledger.wrong.append(f"not delivered: said {stdout[:99]!r}")
    return ledger


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery, and what was wrong with it regardless of what was acknowledged."""

    wrong: tuple[str, ...]
    bodies: tuple[bytes, ...]  # in the order in which they would be handed out
    pushed: bool = False
    found: Dump = field(default_factory=Dump)  # right after the recovery


class Spool:
    """One that is recovered and drained; `wrong`: what was wrong with it."""

    def __init__(self, system: System, path: Path, queue: str) -> None:
        self.system, self.path, self.queue = system, path, queue
        self.wrong: list[str] = []

    def run(self, *words: str) -> bytes:
        """What the verb prints."""
        done = self.system.verb(self.path, *words)
        err = SET_RIGHT.sub(b"", done.stderr)
        # without a spool: the crash came before there was one
        if (done.returncode or err) and not (done.returncode == 66 and b": no spool at " in err):
            self.wrong.append(f"{' '.join(words)}: exit {done.returncode}: {err[:200]!r}")
        return done.stdout

    def push(self, key: str) -> bool:
        """Push one more message; whether it was stored."""
        before = dump(self.path)
        held = before.messages()
        done = self.system.verb(self.path, "push", *(("-k", key) if key else ()), self.queue,
            stdin=AFTER)
        bound, taken = before.bounds.get(self.queue, 0), [m.id for m in held if key and m.key]
        full = 0 < bound <= len([m for m in held if m.state != "buried"])
        right = done.returncode == 0 and not SET_RIGHT.sub(b"", done.stderr) and (
            done.stdout.strip().isdigit() and int(done.stdout) > max([0, *(m.id for m in held)]))
        if self.queue in before.closed:
            right = done.returncode == 69
        elif taken:
            right = done.returncode == 0 and done.stdout == b"%d dup\n" % taken[0]
        elif full and done.returncode == 75:
            right = True
        if not right:
            self.wrong.append(f"the next push: {done} after {[m.id for m in held]}")
        return done.returncode == 0 and not taken

    def claimed(self, found: Dump, list_first: bool) -> None:
        """Give back what was claimed, by the one name of all scenarios. `list_first`: the next
        claim lists what lies there, all of it and no more."""
        there: dict[str, list[bytes | None]] = {}
        for m in found.messages(self.queue, "claimed"):
            segment = m.place.split("/")[2].removesuffix(".flat")
            there.setdefault(segment, []).append(m.body)
        want = [("%d %d" % tuple(map(int, segment.split("."))), bodies)
            for segment, bodies in there.items()]
        if list_first:
            got = [(line.rpartition(b" ")[0].decode(), list(layout.listed(line).values()))
                for line in self.run("claim", "-c", "me", "-n", "0", self.queue).splitlines()]
            if got != want:
                self.wrong.append(
                    f"claim lists {repr(got)[:200]}, and there is {repr(want)[:200]}")
        self.run("unclaim", "-c", "me", self.queue)

    def drain(self) -> None:
        """Take what is ready; is it what was seen."""
        found = dump(self.path)
        seen = found.bodies(self.queue, "ready")
        done = self.system.verb(self.path, "drain", "-0", self.queue)
        if done.stdout != b"".join((body or b"") + b"\0" for body in seen) or done.returncode != (
                0 if seen else 69 if self.queue in found.closed else 66):
            self.wrong.append(f"drain: {done.returncode} {done.stdout[:200]!r} "
                f"{done.stderr[:200]!r}, but there was {seen[:20]!r}")

    def empty(self, found: Dump) -> list[str]:
        """Take everything out; what is wrong with it, and with what is left."""
        if self.queue not in found.queues:
            return []
        if self.queue in dump(self.path).paused:
            self.run("resume", self.queue)
        buried, bound = found.messages(self.queue, "buried"), found.bounds.get(self.queue, 0)
        if buried and 0 < bound < len(found.messages(self.queue)):  # A kicked message needs room
            self.drain()
        if buried and self.run("kick", "-n", "999", self.queue) != b"%d\n" % len(buried):
            self.wrong.append(f"kicked not all of {len(buried)}")
        self.drain()
        if dump(self.path).left:  # a body may go only when no slip moves: at the next boot
            said = self.run("doctor", self.queue)
            if b"damaged" in said or b"no slip" in said:
                self.wrong.append(f"doctor: {said!r}")
            layout.reboot(self.path)
            self.run("wal", self.queue)
        left = dump(self.path)
        return [*self.wrong, *(f"left after all: {path}" for path in left.left),
            *(f"still there after all: {m}" for m in left.messages(self.queue))]


def twice(found: Dump, bounded: bool = True) -> list[str]:
    """Ids and keys that come twice, and bounds that are passed."""
    every = [(queue, message) for queue, held in found.queues.items() for message in held]
    wrong = [f"two messages with the {what}" for what, count in Counter([f"id {m.id}"
        for _, m in every] + [f"key {m.key} in {queue}" for queue, m in every if m.key]).items()
        if count > 1]
    for queue, bound in found.bounds.items() if bounded else ():
        held = [m for m in found.messages(queue) if m.state != "buried"]
        if bound and len(held) > bound:
            wrong.append(f"{len(held)} messages in {queue}, whose bound is {bound}")
    return wrong


def _recover(system: System, tree: trees.Tree, path: Path, key: str, queue: str, then_push: bool,
        boot: bool, power: bool) -> Recovered:
    trees.remove(path)
    trees.put(tree, path)
    layout.syncs(path, "off")
    if isinstance(system, Article):
        if then_push:
            system.verb(path, "push", "q", stdin=AFTER)
        system.verb(path, "wal")
        return Recovered((), tuple(body or b"not whole" for body in system.bodies(path)),
            then_push)
    if not power:
        layout.age(path)
    spool = Spool(system, path, queue)
    if boot:
        layout.reboot(path)
    else:
        found = dump(path)
        spool.wrong += [f"damaged: {text}" for text in found.damaged] + twice(found)
    pushed = then_push and spool.push(key)
    spool.run("wal")
    found = right_after = dump(path)
    spool.wrong += [f"set aside though it is whole: {m}" for m in found.messages(queue, "buried")
        if m.body is not None and m.place.endswith(".damaged")]
    if power:
        for m in found.messages(queue, "buried"):
            # A message that was not acknowledged may be set aside, and does not come back
            if m.body is None:
                if system.verb(path, "peek", f"{queue}:{m.id}").returncode != 74:
                    spool.wrong.append(f"a part is shown as the whole of {m}")
                spool.run("delete", f"{queue}:{m.id}")
        layout.age(path)
        spool.run("wal")
        found = dump(path)
    if found.messages(queue, "claimed"):
        # a listing makes slips flat: by turns they are given back as they are
        spool.claimed(found, list_first=not then_push)
        found = dump(path)
    # Popped messages that come again may make it more than the bound
    spool.wrong += twice(found, bounded=not power)
    spool.wrong += [f"damaged after recovery: {text}" for text in found.damaged]
    # The body or key that a killed push has left is removed with its range of ids, or by doctor;
    # so is what a worker has kept of a message that others have settled
    spool.wrong += [f"left after recovery: {name}" for name in found.left
        if not re.match(r"[^/]+/(body|keys|why)/", name)]
    spool.wrong += [f"not ready after recovery: {m}" for m in found.messages(queue, "delayed",
        "reserved")]
    drained = ("drained", system, queue, trees.digest(trees.take(path)))
    spool.wrong += memo.once(path.parent, drained, lambda: Spool(system, path, queue).empty(found))
    trees.remove(path)
    bodies = tuple(m.body for m in found.messages(queue) if m.body is not None)
    return Recovered(tuple(spool.wrong), bodies, pushed, right_after if power else Dump())


def recoveries(system: System, ledger: Ledger, tree: trees.Tree, spool: Path, every: bool, *,
        boot: bool = False, power: Callable[[Dump], list[str]] | None = None) -> list[str]:
    """Make the wreck `tree` at `spool`, recover, look and drain: at once, after a push and, with
    `boot`, after the system was started anew. Not `every`: in one of these ways, the same for the
    same wreck. `power`: after a power cut, what is wrong right after the recovery, with leases and
    delays not over. Nothing is left at `spool`."""
    ways = [("", False, bool(power)), ("then a push: ", True, bool(power))]
    if boot:
        ways.append(("after a boot: ", False, True))
    wrong = list(ledger.wrong)
    for way, then_push, boots in ways if every else [ways[trees.digest(tree)[0] % len(ways)]]:
        key = ledger.key if then_push else ""
        wreck = ("recovered", system, then_push, key, ledger.queue, boots, bool(power),
            trees.digest(tree))
        recovered = memo.once(spool.parent, wreck, lambda: _recover(system, tree, spool, key,
            ledger.queue, then_push, boots, bool(power)))
        after = [AFTER] if recovered.pushed else []
        found = [*recovered.wrong, *(power(recovered.found) if power else ()), *compare(
            replace(ledger, order=[*ledger.order, *after], must={*ledger.must, *after}),
            recovered.bodies)]
        wrong += [way + text for text in found]
    return wrong


def _short(bodies: Iterable[bytes]) -> str:
    return repr([body if len(body) < 40 else body[:20] + b"... %d bytes" % len(body)
        for body in itertools.islice(bodies, 20)])


def compare(ledger: Ledger, got: Sequence[bytes]) -> list[str]:
    """The differences between the ledger and what came out, one line each."""
    there, order = set(got), ledger.order
    wrong = [f"{text}: {_short(bodies)}" for text, bodies in (
        ("twice", [body for body, count in Counter(got).items() if count > 1]),
        ("unknown", sorted(there - set(order))),
        ("lost", [body for body in order if body in ledger.must - there]),
        ("came back though settled", sorted(ledger.gone & there))) if bodies]
    known = [order.index(body) for body in got if body in order]
    if ledger.ordered and known != sorted(known):
        wrong.append(f"out of order: {_short(got)}")
    group = [body for body in ledger.group if body in there]
    if group and len(group) < len(ledger.group):
        wrong.append(f"not all or none: {_short(group)} of {len(ledger.group)}")
    first = [body for body in ledger.first if body in there]
    if first != ledger.first[:len(first)]:
        wrong.append(f"not from the first on: {_short(first)}")
    return wrong


def at_once(scenario: Scenario, spool: Path, stdout: bytes) -> list[str]:
    """What is wrong with an acknowledged change already before any recovery: the state that it must
    have made, and the id it told."""
    wrong = []
    found = dump(spool)
    if scenario.ends:
        states = [m.state for m in found.messages(scenario.queue) if m.body == scenario.subject]
        if states != [scenario.ends]:
            wrong.append(f"acknowledged, but {scenario.subject!r} is {states}, not {scenario.ends}")
    if scenario.verb in ("pause", "resume") and (
            scenario.queue in found.paused) != (scenario.verb == "pause"):
        wrong.append(f"acknowledged, but paused are {found.paused}")
    if scenario.new and scenario.verb in ("push", "handler"):
        told = [int(word) for word in stdout.split() if word.isdigit()]
        ids = [m.id for m in found.messages(scenario.queue) if m.body in scenario.new]
        if told and (min(ids, default=0), max(ids, default=0)) != (told[0], told[-1]):
            wrong.append(f"told {stdout[:99]!r}, but the ids are {ids[:20]}")
    if scenario.act[0] == "reserve":
        head, _, body = stdout.partition(b"\n")
        if body != scenario.subject or len(head.split()) != 4:
            wrong.append(f"reserved, but told {stdout[:99]!r}")
    return wrong
