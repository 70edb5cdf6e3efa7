"""The reports: a line of progress, a table at the end, and one trial in full."""
from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from .families import trial
from .gate import faults
from .judge import oracle, trees
from .scenarios import NAMED, System
from .families.trial import Trial


class Progress:
    """One line on standard error, if that is a terminal."""

    def __init__(self, family: str, tasks: int, stream: IO[str] = sys.stderr) -> None:
        self.family, self.tasks, self.stream = family, tasks, stream
        self.done = self.trials = self.bad = 0
        self.begun = time.monotonic()

    def add(self, outcomes: Sequence[Any]) -> None:
        self.done += 1
        self.trials += len(outcomes)
        self.bad += sum(outcome.outcome == "bad" for outcome in outcomes)
        if self.stream.isatty():
            filled = 24 * self.done // max(self.tasks, 1)
            seconds = int(time.monotonic() - self.begun)
            self.stream.write(
                f"\r\033[K{self.family} [{'#' * filled:<24}] {self.done}/{self.tasks}, "
                f"{self.trials} trials, {self.bad} bad, "
                              f"{seconds // 60}:{seconds % 60:02}")
            self.stream.flush()

    def close(self) -> None:
        if self.stream.isatty():
            self.stream.write("\r\033[K")


def column(outcome: Any) -> str:
    """Faults of one kind share a column."""
    fault = str(getattr(outcome, "fault", "runs")).partition(",")[0]
    shared = {**dict.fromkeys(faults.ONCE, "error"), **dict.fromkeys(faults.LASTING, "lasting"),
        **dict.fromkeys(faults.OUTPUT, "output"), **dict.fromkeys(faults.READS, "read")}
    return "double" if getattr(outcome, "second", "") else shared.get(fault, fault)


def table(outcomes: Iterable[Any], rows: str = "verb") -> str:
    """Bad trials of all, by verb or scenario and by fault; the last row and column are sums."""
    bad: Counter[tuple[str, str]] = Counter()
    tried: Counter[tuple[str, str]] = Counter()
    names: dict[str, None] = {}
    columns: dict[str, None] = {}
    for outcome in outcomes:
        name = str(getattr(outcome, rows, None) or outcome.scenario)
        names[name] = columns[column(outcome)] = None
        for row in (name, "all"):
            for head in (column(outcome), "all"):
                tried[row, head] += 1
                bad[row, head] += outcome.outcome == "bad"
    heads = [*columns, "all"]
    lines = [["", *heads]]
    for row in [*names, "all"]:
        lines.append([row, *(f"{bad[row, head]}/{tried[row, head]}" if tried[row, head] else ""
            for head in heads)])
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads) + 1)]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell,
        width in zip(line[1:], widths[1:]))]).rstrip()
                     for line in lines)


def write(outcomes: Iterable[Any], stream: IO[str]) -> None:
    """As JSON, one line each."""
    for outcome in outcomes:
        stream.write(json.dumps(outcome.as_dict(), ensure_ascii=False) + "\n")


def full(one: Trial, system: System, work: Path) -> tuple[trial.Outcome, str]:
    """One trial again: the calls around its point, what was left on the disk, and what is wrong."""
    outcome = trial.run(one, system, work)
    result, tree = trial.wreck(system, Trial(one.scenario, one.fault, one.point), work)
    lines = [f"{one}", "", *_calls(result.calls, one.point),
        f"exit {result.status}, said {result.stdout[:200]!r}, {result.stderr[:400]!r}"]
    if one.second:
        ledger = oracle.expected(NAMED[one.scenario], False, result.stdout)
        first = Trial(one.scenario, one.fault, one.point)
        twice, tree = trial.after(system, first, one.second.verb, work).struck(one.second, ledger)
        lines += ["", f"then {one.second}:", *_calls(twice.calls, one.second.point),
            f"said {twice.stdout[:200]!r}"]
    lines += ["", "left on the disk:", *_files(tree)]
    spool = trial.fresh(tree, work)
    found = system.dump(spool)
    trees.remove(spool)
    lines += ["", "messages:", *(f"  {m.state:8} {m.id} {m.place} {(m.body or b'?')[:40]!r}"
        for m in found.messages())]
    lines += [f"  damaged: {text}" for text in found.damaged] + [f"  left over: {text}"
        for text in found.left]
    lines += ["", f"{outcome.outcome}{': ' if outcome.detail else ''}{outcome.detail}"]
    return outcome, "\n".join(lines)


def _calls(calls: Sequence[Any], point: int, around: int = 4) -> list[str]:
    shown = [call for call in calls if abs(call.seq - point) <= around]
    return [f"{'>' if call.seq == point else ' '} {call.seq:4} "
        f"{trial.show(call)}{f' ({call.size} bytes)' if call.size else ''}"
            f"{'' if call.fate == 'run' else ': ' + call.fate}" for call in shown]


def _files(tree: trees.Tree) -> list[str]:
    return [f"  {path}" + (f" ({len(content)} bytes)" if isinstance(content, bytes) else "")
            for path, content in sorted(tree.entries) if content is not None
            and not path.endswith(trees.IGNORED)]
