"""What must be in a spool after a power cut, once the system has started again: recovered and drained by the verbs.

Promises
    - What was acknowledged is there, whole, once and in its order; what was not is whole or not there.
    - What was deleted, and that was acknowledged, does not come back. What was popped may, if the power went before it was on the disk.
    - What a verb says is delayed, buried, closed or created, is so.
    - A slip whose body is not whole is buried as damaged, or goes away: it is never handed out, and never one that was acknowledged.
    - No id is given twice; nothing is left over, nothing else is damaged.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from . import layout, oracle, trees
from .scenarios import Scenario, System

#: The push of somebody else, in some stages; and the first one after the restart.
OTHER, LATER = b"pushed by another", b"pushed after the cut"
#: The states that a verb makes durable before it answers, and the verbs that reach them without (lib/README.md).
DURABLE, UNSYNCED = ("delayed", "buried", "claimed"), ("kick", "work")


@dataclass(frozen=True)
class Owed:
    """What had been said when the power went: by the act, and by others."""

    acked: bool = False  # the act had succeeded
    stdout: bytes = b""  # what it had written out
    settled: bool = False  # what it took away was on the disk
    other: str = ""  # a push of OTHER was "begun", or "acked"


def reboot(spool: Path) -> None:
    """The system starts: the first verb then finds no mark of this boot."""
    for mark in layout.names(spool / ".boot"):
        (spool / ".boot" / mark).unlink()


def check(system: System, scenario: Scenario, spool: Path, owed: Owed, *, then_push: bool) -> list[str]:
    """What is wrong with a spool after a power cut, one line each; [] is good. It is recovered, drained and so destroyed.

    then_push: the recovery is done by a push.
    """
    wrong: list[str] = []
    reboot(spool)
    ledger, queue = owes(scenario, owed), scenario.queue
    if system.baseline:
        return oracle.judge(system, ledger, trees.take(spool), spool, then_push=then_push)
    given = [int(word) for word in owed.stdout.split() if word.isdigit()] if scenario.verb == "push" and owed.acked else []
    if then_push:
        done = system.verb(spool, "push", queue, stdin=LATER)
        if done.returncode == 0:
            ledger.order.append(LATER)
            ledger.must.add(LATER)
            if given and int(done.stdout.split()[0]) <= max(given):
                wrong.append(f"id {done.stdout.split()[0].decode()} was given before: {max(given)}")
        elif done.returncode not in (69, 75):
            wrong.append(f"push: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    done = system.verb(spool, "wal")
    if done.returncode != 0:
        return [*wrong, f"wal: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}"]
    found = layout.dump(spool)
    wrong += [f"not right after the recovery: {what}" for what in found.damaged if not re.match(queue + r"/buried/\S*\.damaged:", what)]
    wrong += state_of(scenario, found, owed.acked)
    damaged = [message.id for message in found.messages(queue, "buried") if message.place.endswith(".damaged")]
    for number in damaged:  # left where they are, they would be kicked
        gone = system.verb(spool, "delete", f"{queue}:{number}")
        if gone.returncode != 0:
            wrong.append(f"a damaged message cannot be deleted: {gone.stderr.decode(errors='replace').strip()}")
    if damaged:
        system.verb(spool, "wal", queue)
    got, left = drain(system, spool, wrong, queue)
    wrong += oracle.compare(ledger, got)
    wrong += [f"left over: {place}" for place in left]
    return wrong


def owes(scenario: Scenario, owed: Owed) -> oracle.Ledger:
    """What must be there, and what must not. What a pop has taken may come again unless that was on the disk."""
    ledger = oracle.expected(scenario, owed.acked, owed.stdout)
    if not owed.settled and (scenario.delivers or scenario.beside):
        ledger.gone.clear()
    if owed.other:
        ledger.order.append(OTHER)
    if owed.other == "acked":
        ledger.must.add(OTHER)
    return ledger


def state_of(scenario: Scenario, found: layout.Dump, acked: bool) -> list[str]:
    """The state that the verb was to make durable before its answer."""
    wrong = []
    if acked and scenario.ends in DURABLE and scenario.verb not in UNSYNCED:
        if scenario.subject not in found.bodies(scenario.queue, scenario.ends):
            wrong.append(f"{scenario.subject!r} is not {scenario.ends}")
    if acked and scenario.verb == "close" and scenario.queue not in found.closed:
        wrong.append("not closed")
    if acked and scenario.verb == "create" and "-b" in scenario.act and found.bounds.get(scenario.queue) != 5:
        wrong.append(f"bounds are {found.bounds}")
    return wrong


def drain(system: System, spool: Path, wrong: list[str], queue: str) -> tuple[list[bytes], list[str]]:
    """Everything that comes out once all leases and delays are over, claims given back and the buried kicked; and what is left then."""
    if not (spool / queue / "wal").is_dir():
        return [], []
    layout.age(spool)
    for claim in layout.names(spool / queue / "claimed"):
        system.verb(spool, "unclaim", "-c", claim, queue)
    got: list[bytes] = []
    for _ in "12":  # a queue that is full takes what was buried once it is empty
        if layout.names(spool / queue / "buried"):
            system.verb(spool, "kick", "-n", "999", queue)
        there = sorted((message for message in layout.dump(spool).messages(queue) if message.state != "buried"), key=lambda message: (message.priority, message.id))
        out = system.verb(spool, "drain", "-0", queue)
        if out.returncode not in (0, 66, 69):
            wrong.append(f"drain: exit {out.returncode}: {out.stderr.decode(errors='replace').strip()}")
        bodies = [message.body or b"" for message in there]  # which may hold NULs
        got += bodies if out.stdout == b"".join(body + b"\0" for body in bodies) else out.stdout.split(b"\0")[:-1]
        if not layout.names(spool / queue / "buried"):
            break
    found = layout.dump(spool)
    left = found.damaged + [place for place in found.left if place.startswith(f"{queue}/") and not place.startswith(f"{queue}/tmp/strange.")]
    left += [f"{message.state} {message.place}" for message in found.messages(queue)]
    return got, left
