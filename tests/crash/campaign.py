"""Run many trials side by side: choose them, and share them out among processes.

A family makes tasks; a task is a picklable function without arguments that returns a list of
outcomes, each with the attributes scenario, fault, outcome ("good", "bad", "not reached"), detail,
replay and a method as_dict().
"""
from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .families import trial
from .families.trial import SECOND_VERBS, Outcome, Second, Trial
from .gate import faults
from .scenarios import NAMED, SCENARIOS, System

Task = Callable[[], Sequence[Any]]
Family = Callable[[System, "Options", Path], list[Task]]


@dataclass(frozen=True)
class Options:
    """What is wanted. `limit`: about so many trials of a scenario in each family, which the seed
    chooses, and of each wreck one recovery; None: all."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    faults: tuple[str, ...] = faults.FAULTS
    limit: int | None = None
    seed: int = 0

    @property
    def most(self) -> int | None:
        return None if self.limit is None else 1


def memory() -> Path:
    """The directory for spools: in memory, if there is such a file system, with a GiB free, and it
    lets programs run."""
    shared = Path("/dev/shm")
    with contextlib.suppress(OSError):
        about = os.statvfs(shared)
        roomy = about.f_bavail * about.f_frsize >= 2**30 and not about.f_flag & os.ST_NOEXEC
        if os.access(shared, os.W_OK) and roomy:
            return shared
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A directory for spools."""
    path = tempfile.mkdtemp(prefix="flatq.", dir=memory())
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def plan(system: System, name: str, options: Options, work: Path) -> list[tuple[str, int]]:
    """The faults and their points. Of a scenario that syncs, with a limit those at its syncs alone:
    the others leave what they leave without. Raises RuntimeError where it goes wrong by itself."""
    points = []
    for kinds in {faults.kinds(fault) for fault in options.faults}:
        alike = [fault for fault in options.faults if faults.kinds(fault) == kinds]
        for whole in (False, True):
            some = [fault for fault in alike if faults.kills(fault) == whole]
            if some:
                calls = trial.struck(system, name, work) if whole else trial.calls(
                    system, name, work, kinds)
                if options.limit is not None and NAMED[name].sync == "on":
                    calls = [call for call in calls if call.kind == "sync"]
                points += faults.points(calls, some)
    if options.limit is None:
        return points
    return faults.sample(sorted(points), options.limit, f"{options.seed} {name}")


def singles(system: System, names: Sequence[str], options: Options, work: Path) -> list[Outcome]:
    """Run these faults, or a sample of them, at the calls of these scenarios."""
    found = []
    for name in names:
        try:
            trial.calls(system, name, work)
            points = plan(system, name, options, work)
        except RuntimeError as error:
            found.append(undisturbed(name, str(error)))
            continue
        found += [trial.run(Trial(name, fault, point, options.seed), system, work, options.most)
            for fault, point in points]
    return found


def undisturbed(name: str, detail: str) -> Outcome:
    """The outcome of a scenario that fails without a fault."""
    return Outcome(name, NAMED[name].verb, 0, "", "none", "bad", detail, 0, 0.0,
        f"--scenario {name!r}")


def doubles(system: System, name: str, options: Options, work: Path) -> list[Outcome]:
    """A crash at a point of the act, and a second at a point of the recovery or of the next
    verb."""
    try:
        points = kill_points(system, name, work)
    except RuntimeError as error:
        return [undisturbed(name, str(error))]
    chance = random.Random(f"{options.seed} {name}")
    pairs = [(point, verb) for point in points for verb in SECOND_VERBS
        if (system.lib / verb).exists()]
    chance.shuffle(pairs)
    found: list[Outcome] = []
    for point, verb in pairs:
        left = None if options.limit is None else options.limit - len(found)
        if left == 0:
            break
        try:
            seconds: Sequence[int] = second_points(system, name, point, verb, work)
        except RuntimeError as error:
            found.append(undisturbed(name, str(error)))
            continue
        if left is not None:
            seconds = chance.sample(seconds, min(4, len(seconds), left))
        found += [trial.run(Trial(name, "kill", point, options.seed, Second(verb, number)), system,
            work, options.most) for number in seconds]
    return found


def second_points(system: System, name: str, point: int, verb: str, work: Path) -> list[int]:
    """The points where the verb can be killed when it runs on what a crash at the point has left.
    Raises RuntimeError if it fails without a kill: it is the first verb after the crash."""
    following = trial.after(system, Trial(name, "kill", point), verb, work)
    whole, there = following.whole, following.there
    codes = (0, 69, 75) if verb == "push" else (0,) if there else (0, 66, 69)
    if whole.status not in codes or whole.stderr.count(b"\n") > bool(whole.status):
        raise RuntimeError(f"--point {point} --fault kill, then {verb}: exit {whole.status}: "
            f"{whole.stderr[:300]!r}, of {there} messages")
    return [point for _, point in faults.points(whole.calls, ("kill",))]


def kill_points(system: System, name: str, work: Path) -> list[int]:
    trial.calls(system, name, work)  # Raises RuntimeError if the scenario fails without a fault
    return [point for _, point in faults.points(trial.struck(system, name, work), ("kill",))]


def _plain(options: Options) -> list[str]:
    """Without a limit, also those that sync."""
    return [name for name in options.scenarios if options.limit is None
        or NAMED[name].sync == "off"]


def crash_tasks(system: System, options: Options, work: Path) -> list[Task]:
    return [functools.partial(singles, system, [name], options, work) for name in options.scenarios]


def double_tasks(system: System, options: Options, work: Path) -> list[Task]:
    return [functools.partial(doubles, system, name, options, work) for name in _plain(options)]


def unseen_tasks(wanted: Sequence[str], system: System, options: Options, work: Path) -> list[Task]:
    only = Options(options.scenarios, tuple(wanted), options.limit, options.seed)
    return [functools.partial(singles, system, [name], only, work) for name in _plain(options)]


def missing(family: str, reason: str) -> list[Outcome]:
    """The single outcome of a task whose trials cannot be run here."""
    return [Outcome(family, "", 0, "", "none", "not reached", reason, 0, 0.0, f"--family {family}",
        family)]


#: The families that need no gate. Without one only these run; for the others, an outcome says so.
UNGATED = frozenset({"history", "clients"})


def families() -> dict[str, Family]:
    """The families by name. The one that takes days comes last."""
    from .families import article, clients, cuts, history, pairs, power, races

    return {"crash": crash_tasks,
            "reads": functools.partial(unseen_tasks, tuple(faults.READS)),
            "ends": functools.partial(unseen_tasks, tuple(faults.ENDS)),
            "power": power.tasks, "cuts": cuts.tasks, "history": history.tasks,
            "races": races.tasks, "clients": clients.tasks, "article": article.tasks, "pairs": pairs.tasks,
            "double": double_tasks}


def execute(tasks: Sequence[tuple[str, Task]], pool: ProcessPoolExecutor) -> Iterator[
        Sequence[Any]]:
    """Run the tasks, each with the name of its family, and yield the outcomes of each as they come.
    A task that fails as a whole counts as one bad outcome; the others go on."""
    running: dict[Future[Sequence[Any]], tuple[str, Task]] = {
        pool.submit(task): (family, task) for family, task in tasks}
    for future in as_completed(running):
        error = future.exception()
        yield [_failed(*running[future], error)] if error else future.result()


def _failed(family: str, task: Any, error: BaseException) -> Outcome:
    words = (str(word) for word in getattr(task, "args", ()) if isinstance(word, (str, int, list)))
    return Outcome(" ".join(words), "", 0, "", "none", "bad", f"{type(error).__name__}: {error}", 0,
        0.0, f"--family {family}", family)
