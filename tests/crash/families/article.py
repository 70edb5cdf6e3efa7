"""The baseline: the queue of a few lines of shell that an article showed (tests/article), run and
broken in the same ways as flatq.

It uses one scenario that both can do (scenarios.BASELINE): three pushes and three pops. The
families crash, double, power and cuts break it, and their oracle judges it. There are also eight
pushes at once. Bad outcomes are expected of the article's version.

    >>> [one.outcome for one in trials("article", AT_ONCE, 1, 0, Path("/dev/shm"))]
    ['bad']
"""
from __future__ import annotations

import dataclasses
import functools
import random
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import cuts, power, trial
from .. import campaign
from ..scenarios import BASELINE, Article, System, build

SIDES: dict[str, System] = {"article": Article(), "flatq": System()}
#: The columns of the table, and the faults of faults.py that are counted in it.
ROWS: dict[str, tuple[str, ...]] = {
    "all killed": ("kill",), "one process killed": ("kill one",),
    "torn write": ("torn, 1 byte", "torn, half", "torn, all but 1"), "one disk error": ("EIO",),
    "disk full from there on": ("ENOSPC lasting",), "second crash": (),
    "power cut by the model": (),
    "power cut of ext4": (), "eight pushes at once": ()}
SECOND, POWER, CUT, AT_ONCE = list(ROWS)[5:]
#: Trials of each row that can have any number of them.
LIMITS = {SECOND: 100, POWER: 100, CUT: 20, AT_ONCE: 10}


@dataclasses.dataclass
class Outcome(trial.Outcome):
    family: str = "article"
    baseline: bool = False  # Bad outcomes are expected


def at_once(system: System, number: int, work: Path) -> trial.Outcome:
    """Eight pushes at the same time; each acknowledged message that is not there is lost."""
    began = time.monotonic()
    bodies = [b"message %d of eight" % n for n in range(8)]
    script = "".join(f"{{ printf %s '{body.decode()}' | sh \"$0/push\" q >/dev/null && "
        f"printf '{n}\\n'; }} &\n" for n, body in enumerate(bodies))
    with tempfile.TemporaryDirectory(prefix="article.", dir=work) as top:
        spool = Path(top) / "spool"
        build(system, BASELINE, spool)
        said = system.verb(spool, "sh", script + "wait").stdout
        system.verb(spool, "wal")
        left = system.dump(spool).bodies()
    wrong = [f"lost: {bodies[int(n)]!r}" for n in said.split() if bodies[int(n)] not in left]
    return trial.Outcome(BASELINE.name, system.name, number, "", AT_ONCE, "bad" if wrong
        else "good",
        "; ".join(wrong), 0, round(time.monotonic() - began, 4),
        shlex.join(["article", f"{system.name}/{number}"]))


def again(line: str, system: System, work: Path) -> trial.Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    side, number = shlex.split(line)[-1].split("/")
    return at_once(SIDES[side], int(number), work)


def available(row: str) -> str:
    """The reason why a row cannot be run here; empty: it can."""
    return cuts.available("ext4")[1] if row == CUT else ""


def _of_others(system: System, row: str, limit: int | None, seed: int,
        work: Path) -> Iterator[trial.Outcome]:
    """The outcomes of a row, from the family that it belongs to."""
    count, chance = limit or LIMITS.get(row, 0), random.Random(f"{seed} {system.name} {row}")
    if row == SECOND:
        options = campaign.Options(limit=count, seed=seed)
        yield from campaign.doubles(system, BASELINE.name, options, work)
    elif row == POWER:
        yield from power.explore(system, BASELINE.name, count, seed, work, kinds=("act",))
    elif row == CUT:
        points = [round(chance.random(), 4) for _ in range(count)]
        yield from cuts.replay(system, "ext4", [cuts.Cut("ext4", BASELINE.name, point, seed=n)
            for n, point in enumerate(points)])
    elif row == AT_ONCE:
        yield from (at_once(system, number, work) for number in range(count))
    else:
        options = campaign.Options((BASELINE.name,), ROWS[row], limit, seed)
        yield from campaign.singles(system, [BASELINE.name], options, work)


def trials(side: str, row: str, limit: int | None, seed: int, work: Path) -> list[Outcome]:
    """The trials of a row, for one side: a task. `limit`: so many trials; else all, or as many as
    LIMITS says."""
    reason = available(row)
    with tempfile.TemporaryDirectory(prefix="article.", dir=work) as own:
        found = campaign.missing("article", reason) if reason else list(
            _of_others(SIDES[side], row, limit, seed, Path(own)))
    other = side == "article" and row != AT_ONCE
    lib = f"--lib {shlex.quote(str(SIDES[side].lib))} " if other else ""
    same = [{field.name: getattr(one, field.name) for field in dataclasses.fields(trial.Outcome)}
        for one in found]
    return [Outcome(**{**one, "verb": side, "fault": row, "family": "article", "second": "",
        "replay": lib + one["replay"]}, baseline=side == "article") for one in same]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """Every row of both sides; ours is always that in lib/."""
    return [functools.partial(trials, side, row, options.limit, options.seed, work)
        for row in ROWS for side in SIDES]
