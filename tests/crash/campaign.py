"""Run trials: of which families, and how many."""
from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from . import memo
from .families import clients, crash, cuts, history, pairs, power
from .scenarios import System
from .trials import Family, Options, Seen, Trial, sample

FAMILIES: dict[str, Family] = {**crash.FAMILIES, "power": power.FAMILY, "cuts": cuts.FAMILY,
    "pairs": pairs.FAMILY, "history": history.FAMILY, "clients": clients.FAMILY}
Task = tuple[str, str, Options]  # a family, a scenario, and which trials of it


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A directory for spools."""
    path = tempfile.mkdtemp(prefix="flatq.", dir=memo.memory())
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(trial: Trial, system: System, work: Path, every: bool = True) -> Seen:
    """One trial; what makes it fail is wrong as well."""
    try:
        found = FAMILIES[trial.family].run(trial, system, work, every)
    # a verb hangs, cannot be started, or a scenario cannot be prepared
    except (AssertionError, LookupError, OSError, RuntimeError,
            subprocess.TimeoutExpired) as error:
        found = Seen("", [f"{type(error).__name__}: {error}"])
    return replace(found, trial=trial)


def explore(family: str, scenario: str, system: System, options: Options,
        work: Path) -> Iterator[Seen]:
    """The trials of one scenario, without what only a replay shows. What makes all of them fail is
    one bad outcome."""
    try:
        trials = FAMILIES[family].trials(system, scenario, options, work)
        for trial in itertools.islice(trials, options.limit):
            yield replace(run(trial, system, work, options.every), before=None, after=None,
                calls=())
    except (LookupError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        yield Seen("", [str(error)], trial=Trial(family, scenario, "none", "0"))


def plan(family: str, scenarios: Sequence[str], options: Options) -> list[Task]:
    """As many trials of each scenario as of the others, `limit` of all together."""
    if options.limit is None:
        return [(family, name, options) for name in scenarios]
    some = sample(scenarios, options.limit, f"{options.seed} {family}")
    each = -(-options.limit // max(len(some), 1))
    return [(family, name, replace(options, limit=each)) for name in some]


def execute(task: Task, system: System, work: Path) -> list[Seen]:
    return list(explore(task[0], task[1], system, task[2], work))
