"""What every family has: trials, how some of many are chosen, and what a trial has shown."""
from __future__ import annotations

import itertools
import random
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .gate.faults import kind

if TYPE_CHECKING:
    from .gate.gate import Call
    from .judge.trees import Tree
    from .scenarios import System

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """`point`: where the fault strikes, counted from 1; each family says in which numbers."""

    family: str
    scenario: str
    fault: str
    point: str

    @property
    def numbers(self) -> list[int]:
        """Raises ValueError where the point is none."""
        return [int(number) for number in self.point.split("/")]

    def __str__(self) -> str:
        """The options of the command line that replay it."""
        return shlex.join(["--family", self.family, "--scenario", self.scenario, "--fault",
            self.fault, "--point", self.point])


@dataclass(frozen=True)
class Options:
    """Which trials of a scenario are wanted. `faults`: of these; none: of all. `at`: a pattern that
    is found in "COMMAND: KIND PATH ..." of the call that is struck. `limit`: so many, which the
    seed chooses; None: all. `every`: recover each wreck in every way, else in one."""

    faults: tuple[str, ...] = ()
    at: str = ""
    limit: int | None = None
    seed: int = 0
    every: bool = False

    def wants(self, fault: str) -> bool:
        return not self.faults or fault in self.faults

    def hits(self, call: Call) -> bool:
        return not self.at or re.search(self.at, str(call)) is not None

    def trials(self, family: str, scenario: str, points: Iterable[tuple[str, object]]
            ) -> list[Trial]:
        """Of these faults and points, of each kind of fault as many as of the others."""
        return [Trial(family, scenario, fault, f"{point}") for fault, point in sample(points,
            self.limit, f"{self.seed} {scenario}", lambda one: kind(one[0]))]


@dataclass
class Seen:
    """What a trial has shown. `call`: the one that was struck; `wrong`: what is not as promised;
    None: the point was not reached. The rest is shown by a replay: the spool before and after, the
    calls, and what the verb has said."""

    call: str = ""
    wrong: list[str] | None = None
    before: Tree | None = None
    after: Tree | None = None
    calls: Sequence[Call] = ()
    said: str = ""
    trial: Trial = Trial("", "", "", "")  # campaign.run fills it in

    @property
    def outcome(self) -> str:
        return "not reached" if self.wrong is None else "bad" if self.wrong else "good"

    @property
    def detail(self) -> str:
        return "; ".join(dict.fromkeys(self.wrong or ()))


@dataclass(frozen=True)
class Family:
    """`trials(system, scenario, options, work)`: those that are wanted, the first ones first; it
    raises RuntimeError if the scenario fails by itself. `run(trial, system, work, every)`: all
    recoveries of what the fault leaves, or one of them. `hour`: how many trials `make crash`
    makes. `lacks()`: why the family cannot run here; empty: it can."""

    faults: tuple[str, ...]
    scenarios: Callable[[System], Sequence[str]]
    trials: Callable[[System, str, Options, Path], Iterable[Trial]]
    run: Callable[[Trial, System, Path, bool], Seen]
    hour: int
    lacks: Callable[[], str]


def sample(points: Iterable[T], count: int | None, seed: str,
        group: Callable[[T], object] = type) -> list[T]:
    """`count` of the points, which the seed chooses, of each group as many as of the others;
    None: all, in their order."""
    kinds: dict[object, list[T]] = {}
    for point in (points := list(points)):
        kinds.setdefault(group(point), []).append(point)
    if count is None:
        return points
    chance, groups = random.Random(seed), list(kinds.values())
    for some in groups:
        chance.shuffle(some)
    chance.shuffle(groups)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    return [point for point in turns if point is not None][:count]
