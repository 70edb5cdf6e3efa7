"""Run many trials side by side: choose them, share them out among processes, one family after the other.

A family makes tasks; a task is a picklable function without arguments that returns a list of outcomes, each with the attributes
scenario, fault, outcome ("good", "bad", "not reached"), detail, replay and a method as_dict().
"""
from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .families import trial
from .families.trial import SECOND_VERBS, Outcome, Second, Trial
from .gate import faults, gate
from .scenarios import NAMED, SCENARIOS, System

KILLED, PART = 0.05, 0.025  # The parts that a share takes of the kills, and of the faults that need a run each
PLACES, UNSEEN_PLACES = 16, 26  # Of the scenarios that make a call, one in so many strikes it: if the call changes something; if it changes nothing
MANY, UNSEEN_MANY = 50, 5  # At most so many of them in a scenario: a verb that makes the spool first would have hundreds
Task = Callable[[], Sequence[Any]]
Family = Callable[[System, "Options", ProcessPoolExecutor, Path], list[Task]]


@dataclass(frozen=True)
class Options:
    """What is wanted.

    `limit`, N: at most N double crashes, N power states a stage, N histories, and N points of each fault of `reads` and `ends` in a scenario; at each
    point, one of the errors that are alike; some recoveries of each wreck (few); of faults after which the verb goes on, those that fall to the
    scenario (_dealt), and of these at most MANY. None: all of these, and every fault also where FLATQ_SYNC is on.
    `share`: of faults that are alike, one, by the seed (faults.points), and of what is left a random part (KILLED, PART); without a limit, of calls that
    change nothing those that fall to the scenario, at most UNSEEN_MANY."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    faults: tuple[str, ...] = faults.FAULTS
    limit: int | None = None
    seed: int = 0
    share: bool = False


def memory() -> Path:
    """The directory for spools: in memory, if there is such a file system, with a GiB free, and it lets programs run."""
    shared = Path("/dev/shm")
    with contextlib.suppress(OSError):
        about = os.statvfs(shared)
        if os.access(shared, os.W_OK) and about.f_bavail * about.f_frsize >= 2**30 and not about.f_flag & os.ST_NOEXEC:
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
    """The faults and their points. With FLATQ_SYNC=on the same verb makes the same calls, and syncs in between: with a limit, faults are
    tried at those alone, since the others leave what they leave without. Raises RuntimeError where the scenario goes wrong by itself."""
    calls, struck = trial.calls(system, name, work), trial.struck(system, name, work)
    chance = random.Random(f"{options.seed} {name.removesuffix(', synced')}") if options.share else None

    def syncs(points: list[tuple[str, int]], calls: Sequence[gate.Call]) -> list[tuple[str, int]]:
        if NAMED[name].sync == "off" or options.limit is None:
            return points
        numbers = {way: {call.seq for call in faults.number(calls, way) if call.kind == "sync"} for way in ("changes", "all", "answer")}
        own = {call.seq for call in calls if call.kind == "sync"}
        return [(fault, point) for fault, point in points if point in (own if faults.kills(fault) else numbers[faults.counted(fault)])]

    points = syncs(faults.points(calls, [fault for fault in options.faults if not faults.kills(fault)], chance), calls)
    if options.limit is not None:
        points = faults.by_turns(points, calls)
        if not options.share:
            by_way = {way: [pair for pair in points if faults.counted(pair[0]) == way] for way in ("changes", "all", "answer")}
            points = [pair for way, some in by_way.items()
                      for pair in _dealt(name, some, options, PLACES, functools.partial(trial.numbered, system, work=work, way=way))]
            points = random.Random(f"{options.seed} {name}").sample(points, min(MANY, len(points)))
    points += syncs(faults.points(struck, [fault for fault in options.faults if faults.kills(fault)], chance), struck)
    if chance:
        points, whole = [point for point in points if chance.random() < (KILLED if faults.kills(point[0]) else PART)], points
        for kind in faults.KINDS:  # at least one of each
            some = [point for point in whole if point[0] in kind]
            if some and not {*some} & {*points}:
                points.append(chance.choice(some))
    return points


def singles(system: System, names: Sequence[str], options: Options, work: Path) -> list[Outcome]:
    """Run every fault at every point of these scenarios."""
    found = []
    for name in names:
        try:
            points = plan(system, name, options, work)
        except RuntimeError as error:
            found.append(undisturbed(name, str(error)))
            continue
        found += [trial.run(Trial(name, fault, point), system, work, few(options)) for fault, point in points]
    return found


def few(options: Options) -> trial.Few | None:
    """Which recoveries are tried on a wreck: one if only a share is wanted; with a limit two after a kill, and else one; without, all."""
    if options.share:
        return trial.Few(options.seed)
    return None if options.limit is None else trial.Few(options.seed, kills=2)


def unseen(system: System, names: Sequence[str], options: Options, work: Path, wanted: Sequence[str] = faults.UNSEEN) -> list[Outcome]:
    """The families `reads` and `ends`: every fault of the calls that change nothing, at every point of these scenarios; `share`: one error each,
    and without a limit the points that fall to the scenario (_dealt), at most UNSEEN_MANY."""
    found = []
    for name in names:
        chance = random.Random(f"{options.seed} {name}") if options.share else None
        points: list[tuple[str, int]] = []
        try:
            trial.calls(system, name, work)
            for way in dict.fromkeys(map(faults.counted, wanted)):
                calls = trial.unseen(system, name, work, way)
                some = faults.points(calls, wanted, chance, way)
                if options.share and options.limit is None:
                    some = _dealt(name, some, options, UNSEEN_PLACES, functools.partial(trial.unseen, system, work=work, way=way))
                points += some
            if options.share and options.limit is None:
                points = random.Random(f"{options.seed} {name}").sample(points, min(UNSEEN_MANY, len(points)))
        except RuntimeError as error:
            found.append(undisturbed(name, str(error)))
            continue
        if options.limit is not None:
            alike = [[pair for pair in points if pair[0] == fault] for fault in wanted]
            points = [pair for some in alike for pair in random.Random(f"{options.seed} {name}").sample(some, min(len(some), options.limit))]
        found += [replace(trial.run(Trial(name, fault, point), system, work, few(options)), family="reads" if fault in faults.READS else "ends")
                  for fault, point in points]
    return found


def _dealt(name: str, points: Sequence[tuple[str, int]], options: Options, places: int,
           calls: Callable[[str], Sequence[gate.Call]]) -> list[tuple[str, int]]:
    """Those of `points` that fall to this scenario. The scenarios of a verb have most of their calls in common: so of the scenarios that make a call, one in
    `places` strikes it, and at least one. Another seed deals the calls out anew. `calls`: those of a scenario, numbered as the points are."""
    alike = [other for other in options.scenarios if NAMED[other].sync == NAMED[name].sync and NAMED[other].verb == NAMED[name].verb]
    place = alike.index(name)
    makers: dict[tuple[str, int], set[str]] = {}
    ours: dict[tuple[str, int], int] = {}
    for other in (*alike[place:], *alike[:place]):  # processes side by side begin at different ones, and find the others' calls stored
        seen = Counter[str]()
        for call in calls(other):
            seen[call.alike] += 1
            makers.setdefault((call.alike, seen[call.alike]), set()).add(other)
            if other == name:
                ours[call.alike, seen[call.alike]] = call.seq
    fallen = {seq for key, seq in ours.items()
              if name in random.Random(f"{options.seed} {key}").sample(sorted(makers[key]), -(-len(makers[key]) // places))}
    return [pair for pair in points if pair[1] in fallen]


def undisturbed(name: str, detail: str) -> Outcome:
    """The outcome of a scenario that fails without a fault."""
    return Outcome(name, NAMED[name].verb, 0, "", "none", "bad", detail, 0, 0.0, f"--scenario {name!r}")


def doubles(system: System, name: str, count: int | None, seed: int, work: Path, place: int | None = None) -> list[Outcome]:
    """A crash at a point of the act (`place`: at that one of them) and a second at a point of the recovery or of the next verb: `count` of them,
    or all."""
    try:
        points = _kill_points(system, name, work)
        points = points if place is None else points[place:place + 1]
    except RuntimeError as error:
        return [undisturbed(name, str(error))]
    chance = random.Random(f"{seed} {name}")
    pairs = [(point, verb) for point in points for verb in SECOND_VERBS if (system.lib / verb).exists()]
    if count is not None:
        chance.shuffle(pairs)
    found: list[Outcome] = []
    for point, verb in pairs:
        if count is not None and len(found) >= count:
            break
        try:
            seconds: Sequence[int] = second_points(system, name, point, verb, work)
        except RuntimeError as error:
            found.append(undisturbed(name, str(error)))
            continue
        if count is not None:
            seconds = chance.sample(seconds, min(4, len(seconds), count - len(found)))
        some = trial.Few(seed) if count else None
        found += [trial.run(Trial(name, "kill", point, seed, Second(verb, number)), system, work, some) for number in seconds]
    return found


def second_points(system: System, name: str, point: int, verb: str, work: Path) -> list[int]:
    """The points where the verb can be killed when it runs on what a crash at the point has left. Raises RuntimeError if it fails without a
    kill: it is the first verb after the crash, with no recovery before it."""
    following = trial.after(system, Trial(name, "kill", point), verb, work)
    whole = following.whole
    codes = (0, 69, 75) if verb == "push" else (0,) if following.there or verb == "wal" else (0, 66, 69)
    if whole.status not in codes or whole.stderr.count(b"\n") > bool(whole.status):
        raise RuntimeError(f"--point {point} --fault kill, then {verb}: exit {whole.status}: {whole.stderr[:300]!r}, of {following.there} messages")
    return [point for _, point in faults.points(whole.calls, ("kill",))]


def shares(points: dict[str, int], total: int) -> dict[str, int]:
    """`total` shared out by the number of points."""
    whole, shared, given = sum(points.values()), {}, 0
    for name, number in points.items():
        shared[name] = (given + number) * total // max(whole, 1) - given * total // max(whole, 1)
        given += number
    return shared


def pairs(names: Sequence[str]) -> list[list[str]]:
    """Group scenarios with and without sync: what one has recovered, the other need not recover again."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.removesuffix(", synced"), []).append(name)
    return list(groups.values())


def counts(system: System, names: Sequence[str], pool: ProcessPoolExecutor, work: Path) -> dict[str, int]:
    """The number of calls at which each can be killed, the greatest first, so that the longest task begins first and no processor waits for
    it at the end."""
    found = zip(names, pool.map(functools.partial(_count, system, work), names))
    return dict(sorted(found, key=lambda pair: -pair[1]))


def crash_tasks(system: System, options: Options, pool: ProcessPoolExecutor, work: Path) -> list[Task]:
    order = counts(system, options.scenarios, pool, work)
    return [functools.partial(singles, system, names, options, work) for names in pairs(list(order))]


def double_tasks(system: System, options: Options, pool: ProcessPoolExecutor, work: Path) -> list[Task]:
    """To be called before the pool has much else to do: it counts first."""
    counted = counts(system, [name for name in options.scenarios if options.limit is None or SCENARIOS[name].sync == "off"], pool, work)
    if options.limit is None:
        # Of all that is tried, the most by far: in an order by chance, so that what was done until an interruption is of all kinds
        tasks: list[Task] = [functools.partial(doubles, system, name, None, options.seed, work, place) for name, count in counted.items() for place in range(count)]
        random.Random(options.seed).shuffle(tasks)
        return tasks
    return [functools.partial(doubles, system, name, share, options.seed, work)
            for name, share in shares(counted, options.limit).items() if share]


def _count(system: System, work: Path, name: str) -> int:
    try:
        return len(_kill_points(system, name, work))
    except RuntimeError:
        return 0


def _kill_points(system: System, name: str, work: Path) -> list[int]:
    trial.calls(system, name, work)  # Raises RuntimeError if the scenario fails without a fault
    return [point for _, point in faults.points(trial.struck(system, name, work), ("kill",))]


def unseen_tasks(wanted: Sequence[str], system: System, options: Options, pool: ProcessPoolExecutor, work: Path) -> list[Task]:
    names = [name for name in options.scenarios if options.limit is None or SCENARIOS[name].sync == "off"]
    return [functools.partial(unseen, system, [name], options, work, [fault]) for name in names for fault in wanted]


def missing(family: str, reason: str) -> list[Outcome]:
    """The single outcome of a task whose trials cannot be run here."""
    return [Outcome(family, "", 0, "", "none", "not reached", reason, 0, 0.0, f"--family {family}", family)]


#: The families that need no gate. Without a gate only these run; for the others, an outcome says so.
UNGATED = frozenset({"history", "clients", "kills"})


def _own(module: Any, system: System, options: Options, pool: ProcessPoolExecutor, work: Path) -> list[Task]:
    tasks: list[Task] = module.tasks(system, options, work)
    return tasks


def families() -> dict[str, Family]:
    """The families by name. The one that takes days comes last."""
    from .families import article, clients, cuts, history, kills, mutants, pairs, power, races

    modules = {"power": power, "cuts": cuts, "history": history, "races": races, "clients": clients, "mutants": mutants, "article": article,
               "kills": kills, "pairs": pairs}
    return {"crash": crash_tasks,
            "reads": functools.partial(unseen_tasks, tuple(faults.READS)),
            "ends": functools.partial(unseen_tasks, faults.UNSEEN[len(faults.READS):]),
            **{name: functools.partial(_own, module) for name, module in modules.items()},
            "double": double_tasks}


def execute(tasks: Sequence[tuple[str, Task]], pool: ProcessPoolExecutor) -> Iterator[Sequence[Any]]:
    """Run the tasks, each with the name of its family, and yield the outcomes of each as they come. A task that fails as a whole counts as one bad
    outcome; the others go on."""
    running: dict[Future[Sequence[Any]], tuple[str, Task]] = {pool.submit(task): (family, task) for family, task in tasks}
    for future in as_completed(running):
        error = future.exception()
        yield [_failed(*running[future], error)] if error else future.result()


def _failed(family: str, task: Any, error: BaseException) -> Outcome:
    what = " ".join(str(word) for word in getattr(task, "args", ()) if isinstance(word, (str, int, list)))
    return Outcome(what, "", 0, "", "none", "bad", f"{type(error).__name__}: {error}", 0, 0.0, f"--family {family}", family)
