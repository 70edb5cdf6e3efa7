"""Check a spool after a power cut, once the system has started again: the verbs recover and drain
it.

- What was acknowledged is there, whole, once and in its order; what was not is whole or not there.
- What was deleted, and that was acknowledged, does not come back. What was popped may, if the power
  went before it was on the disk.
- What a verb has acknowledged as delayed, buried, closed or created is so.
- A slip whose body is not whole is buried as damaged, or goes away: it is never handed out, and
  never one that was acknowledged.
- No id is given twice; nothing is left over, nothing else is damaged.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import layout, oracle, trees
from ..scenarios import Scenario, System

#: The push by another process, in some stages.
OTHER = b"pushed by another"
#: The states that a verb makes durable before it answers, and the verbs that reach them without.
DURABLE, UNSYNCED = ("delayed", "buried", "claimed"), ("kick", "work")


@dataclass(frozen=True)
class Owed:
    """What was acknowledged when the power was cut: by the act, and by other verbs."""

    acked: bool = False  # the act had succeeded
    stdout: bytes = b""  # its output
    settled: bool = False  # the removal of what it took was on the disk
    other: str = ""  # a push of OTHER was "begun", or "acked"


def check(system: System, scenario: Scenario, tree: trees.Tree, spool: Path, owed: Owed,
        every: bool) -> list[str]:
    """What is wrong with a spool after a power cut, one line each; [] is good. It is made at
    `spool`, and nothing is left there. `every`: a push comes first, and does not; else one of
    these."""
    return oracle.recoveries(system, owes(scenario, owed), tree, spool, every,
        power=lambda found: state_of(scenario, found, owed.acked))


def owes(scenario: Scenario, owed: Owed) -> oracle.Ledger:
    """What must be there, and what must not. What a pop has taken may come again unless that was on
    the disk."""
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
    if acked and scenario.verb == "create" and "-b" in scenario.act and found.bounds.get(
            scenario.queue) != 5:
        wrong.append(f"bounds are {found.bounds}")
    return wrong
