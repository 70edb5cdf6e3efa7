"""Test the laboratory itself: each broken variant of the verbs (broken.py) must be caught by the
families that broken.py names.

A trial is (mutant, family): the family's probe runs on the mutant until the first bad outcome. Here
"good" means that the mutant was caught; "bad" means that it was not, so the laboratory would
overlook such a fault.

    >>> print(run(System(), "pop copies the slip", "crash", work=Path("/dev/shm")).outcome)
    good
"""
from __future__ import annotations

import functools
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import broken, clients, history, pairs, power, races, trial
from .. import campaign
from ..gate import faults
from .broken import MUTANTS, Probe
from ..scenarios import SCENARIOS, System

#: Seconds after which an operation of a broken variant in a history counts as hanging.
DEADLINE = 20.0
#: The families whose probes name a call.
AT = ("reads", "ends", "pairs")


@dataclass
class Outcome(trial.Outcome):
    family: str = "mutants"
    trials: int = 0  # up to the one that caught it
    caught_by: str = ""  # that one's line


def attempts(probe: Probe, system: System, work: Path, seed: int = 0) -> Iterator[Any]:
    """The outcomes of the probe on a system, one after the other."""
    if probe.family == "crash":
        yield from _singles(probe, system, work)
    elif probe.family == "double":
        yield from _doubles(probe, system, work, seed)
    elif probe.family == "power":
        own = work / "power"
        for cut in power.trials(system, [SCENARIOS[probe.where]], probe.limit, seed, own,
                kinds=(probe.what,)):
            yield power.run(cut, system, own)
    elif probe.family == "history":
        for number in range(seed, seed + probe.limit):
            yield history.run(system, number, work, kind=probe.where, deadline=DEADLINE)
    elif probe.family == "races":
        yield races.run(system, probe.where, work)
    elif probe.family == "clients":
        for number in range(seed, seed + probe.limit):
            yield clients.run(system, probe.where, probe.what, number, work, patience=3)
    elif probe.family in AT:
        for one in _at(probe, system, work):
            yield _one_at(one, system, work)
    else:
        raise ValueError(f"no probe: {probe}")


def _at(probe: Probe, system: System, work: Path) -> list[trial.Trial | pairs.Pair]:
    """The trials of a probe that names the calls that are struck, or before which the first verb is
    held."""
    if probe.family == "pairs":
        base, first, second = probe.where.split("/")
        calls = pairs.calls(system, base, first, work)
    else:
        calls = trial.calls(system, probe.where, work, faults.kinds(probe.what))
    there = [call for call in calls if re.search(probe.at, trial.show(call))]
    if probe.family == "pairs":
        return [pairs.Pair(base, first, second, call.seq) for call in there[:probe.limit]]
    return [trial.Trial(probe.where, fault, point) for fault, point in faults.points(there,
        (probe.what,))[:probe.limit]]


def _one_at(one: trial.Trial | pairs.Pair, system: System, work: Path) -> trial.Outcome:
    return trial.run(one, system, work) if isinstance(one, trial.Trial) else pairs.run(one, system,
        work)


def _singles(probe: Probe, system: System, work: Path) -> Iterator[Any]:
    options = campaign.Options((probe.where,), () if probe.what == "undisturbed" else (probe.what,))
    try:
        points = campaign.plan(system, probe.where, options, work)
    except RuntimeError as error:
        yield campaign.undisturbed(probe.where, str(error))
        return
    for fault, point in points:
        yield trial.run(trial.Trial(probe.where, fault, point), system, work)


def _doubles(probe: Probe, system: System, work: Path, seed: int) -> Iterator[Any]:
    for point in campaign.kill_points(system, probe.where, work):
        try:
            seconds = campaign.second_points(system, probe.where, point, probe.what, work)
        except RuntimeError as error:
            yield campaign.undisturbed(probe.where, str(error))
            continue
        for second in seconds:
            yield trial.run(trial.Trial(probe.where, "kill", point, seed,
                trial.Second(probe.what, second)), system, work)


def sound(outcome: Outcome, name: str, system: System, work: Path) -> str:
    """How the trial that caught the mutant ends on verbs that are sound: else it says nothing of
    the mutant. "good" or "bad"; "not reached" where these make fewer calls; "" of a family whose
    trials are not carried out again so."""
    if outcome.fault == "power":
        return power.run(power.Trial.parse(outcome.caught_by), system, work / "sound").outcome
    if outcome.fault in AT:  # the same call, whatever its number is there
        there = _at(probe_of(name, outcome.fault), system, work)[outcome.trials - 1:outcome.trials]
        return _one_at(there[0], system, work).outcome if there else "not reached"
    if outcome.fault == "crash" and "--fault" not in outcome.caught_by:
        return "good" if trial.calls(system, probe_of(name, outcome.fault).where, work) else "bad"
    return trial.run(trial.Trial.parse(outcome.caught_by), system,
        work).outcome if outcome.fault in ("crash", "double") else ""


def probe_of(name: str, family: str) -> Probe:
    """Raises ValueError where that family does not say that it catches the mutant."""
    for probe in MUTANTS[name].probes:
        if probe.family == family:
            return probe
    raise ValueError(f"{family} does not say that it catches: {name}")


def run(system: System, name: str, family: str, work: Path, seed: int = 0) -> Outcome:
    """Whether the family's probe catches the mutant. Raises broken.Stale where its edits no longer
    apply."""
    began = time.monotonic()
    probe, mutant = probe_of(name, family), broken.make(system, name, work)
    count, caught = 0, None
    for outcome in attempts(probe, mutant, work, seed):
        count += 1
        if outcome.outcome == "bad":
            caught = outcome
            break
    detail = f"after {count}: {caught.detail[:300]}" if caught else f"not caught in {count} trials"
    replay = shlex.join(["mutant", f"{name}/{family}/{seed}"])
    return Outcome(name, "", count, caught.call if caught else "", family, "good" if caught
        else "bad", detail, seed,
                   round(time.monotonic() - began, 3), replay, trials=count,
                   caught_by=caught.replay if caught else "")


def again(line: str, system: System, work: Path) -> Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    name, family, seed = shlex.split(line)[-1].rsplit("/", 2)
    return run(system, name, family, work, int(seed))


def one(system: System, name: str, families: Sequence[str], work: Path,
        seed: int = 0) -> list[Outcome]:
    """A task: the mutant, and these families."""
    with tempfile.TemporaryDirectory(prefix="mutants.", dir=work) as own:
        return [run(system, name, family, Path(own), seed) for family in families]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """Every mutant with every family that says it catches it, without the model
    (tests/laboratory/test_model.py). With a limit, only that which must."""
    plans = {name: [probe.family for probe in (mutant.probes if options.limit is None
        else [mutant.must]) if probe.family != "model"]
             for name, mutant in MUTANTS.items()}
    # the longest first
    slow = sorted(plans, key=lambda name: not {"history", "clients"} & set(plans[name]))
    return [functools.partial(one, system, name, plans[name], work, options.seed) for name in slow
        if plans[name]]
