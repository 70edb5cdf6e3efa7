"""Power cuts by a model: every state that a file system may leave behind (states.py), recovered and
drained by the verbs (restart.py).

A trial is a scenario, a stage, the call after which the power is cut, and the fate of each
operation that was pending then.

Stages
    act      the scenario's act with FLATQ_SYNC=on, then a checkpoint. boot     the act is on the
    disk; the system restarts, and the power is cut again during the checkpoint that recovers.
    kill:N   the act is killed before its call N; then another process pushes; then a checkpoint.
    What the dead process did not sync is
             still pending when the other push is acknowledged.

    >>> [str(trial) for trial in trials(System(), [SCENARIOS["push"]], limit=1, seed=0, work=work)]
    ['power push/act/18/000110111/push/on/0']
"""
from __future__ import annotations

import functools
import os
import random
import re
import shlex
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from . import states, trial
from .. import campaign
from ..gate import gate
from ..judge import layout, restart, trees
from ..scenarios import NAMED, SCENARIOS, Scenario, System, Words, build

STAGES = ("act", "boot", "kill")
#: Files that no verb needs after a restart: assumed to be whole, so that they do not double the
#: number of states. A queue's lock is none of these: a verb that does not find it makes the queue.
IDLE = re.compile(r"/(log|tended|\.lock)$")
#: Left out: the same calls as others have, and many more of them, on much larger files.
LARGE = re.compile("[KM]iB")
#: The number of random samples at each cut, in addition to the states that states.py chooses.
SAMPLES = 32
#: The first verb after a restart, and whether that is a push.
THEN = {"recovery": (False,), "push": (True,), "both": (False, True)}


@dataclass(frozen=True)
class Trial:
    scenario: str
    stage: str
    cut: int  # the power goes after this call of the stage
    outcomes: str  # of each operation that is pending then, as in states.py
    # the first verb after the restart: a "push", the "recovery", or on two copies "both"
    then: str = "both"
    sync: str = "on"
    seed: int = 0

    def __str__(self) -> str:
        words = (self.scenario, self.stage, self.cut, self.outcomes, self.then, self.sync,
            self.seed)
        return shlex.join(["power", "/".join(map(str, words))])

    @classmethod
    def parse(cls, line: str) -> Trial:
        """The trial whose str() this is. Raises ValueError."""
        scenario, stage, cut, outcomes, then, sync, seed = shlex.split(line)[-1].split("/")
        if then not in THEN:
            raise ValueError(f"no {then!r}: one of {', '.join(THEN)}")
        return cls(scenario, stage, int(cut), outcomes, then, sync, int(seed))


@dataclass
class Outcome(trial.Outcome):
    family: str = "power"
    # the operations that were lost, halved or zeroed
    missing: list[str] = field(default_factory=list)
    state: str = ""  # known() of the tree that was left


@dataclass
class Recording:
    """The calls of one stage, and what is owed from which of them on."""

    history: states.History
    calls: list[gate.Call]
    status: int  # of the act
    acted: int | None  # the act had ended with this call; None: it was killed
    before: bytes = b""  # the act's output before the stage
    settled: bool = False  # the act was on the disk before the stage
    other: int | None = None  # the other's push had ended, well, with this call
    killed: bool = False

    def owed(self, cut: int, scenario: Scenario) -> restart.Owed:
        upto = cut if self.acted is None else min(cut, self.acted)
        said = self.before + b"".join(data for seq, data in self.history.answers if seq <= upto)
        acked = self.settled or self.acted is not None and cut >= self.acted
        over = self.other is not None and cut >= self.other
        other = ("acked" if over else "begun") if self.killed else ""
        told = scenario.verb == "push" and bool(scenario.new) and said.endswith(b"\n")
        return restart.Owed(acked and self.status == 0 or told, said, self.settled, other)


def play(system: System, words: Words, box: Path, sync: str, fault: gate.Fault
        | None = None) -> gate.Result:
    """Run the verb behind the gate, which counts its answers too; the spool is `s` in `box`, which
    is the root."""
    return gate.run(system.argv(words[:-1]), box, env=system.environment(box / "s", sync),
        stdin=words[-1], fault=fault, timeout=60,
                    record_data=True, count_stdout=True)


@functools.lru_cache(maxsize=64)
def base(system: System, name: str, work: Path) -> tuple[states.Tree, Words]:
    """What there is before the act, and the act; built once for each process and `work`."""
    box = work / "box"
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    try:
        words = build(system, NAMED[name], box / "s")
        return states.read(box), words
    finally:
        shutil.rmtree(box, ignore_errors=True)


def record(system: System, scenario: Scenario, stage: str, sync: str, work: Path) -> Recording:
    """Run the stage once. The gate's root is the directory that the spool is made in: its entry may
    be lost as well. Raises RuntimeError where the calls that were seen do not explain what is on
    the disk in the end."""
    tree, words = base(system, scenario.name, work)
    box = work / "box"
    shutil.rmtree(box, ignore_errors=True)
    try:
        states.write(tree, box)
        layout.syncs(box / "s", sync)
        history = states.History(box)
        fault = gate.Fault("kill_tree", int(stage.removeprefix("kill:"))) if stage.startswith(
            "kill:") else None
        act = play(system, words, box, sync, fault)
        seen = Recording(history, list(act.calls), act.status, history.add(act.calls))
        if stage == "boot":
            layout.reboot(box / "s")
            seen = Recording(states.History(box), [], act.status, None, act.stdout, settled=True)
        elif fault:
            said = list(history.answers)
            push = play(system, ("push", scenario.queue, restart.OTHER), box, sync)
            end = history.add(push.calls)
            history.answers[:] = said  # the act's alone
            seen = Recording(history, [*act.calls, *push.calls], act.status, None, killed=True,
                other=None if push.status else end)
        checkpoint = play(system, ("wal", b""), box, sync)
        seen.history.add(checkpoint.calls)
        seen.calls += checkpoint.calls
        trees_ = seen.history.tree(seen.history.last), states.read(box)
        if trees_[0] != trees_[1]:
            made, there = (set(states.paths(tree)) for tree in trees_)
            raise RuntimeError(f"{scenario.name}, {stage}: the calls that were seen make up "
                f"{sorted(made - there)}, and on the disk is {sorted(there - made)}")
        return seen
    finally:
        shutil.rmtree(box, ignore_errors=True)


@functools.lru_cache(maxsize=64)
def recorded(system: System, name: str, stage: str, sync: str, work: Path) -> Recording:
    """record, once for each process and `work`."""
    return record(system, NAMED[name], stage, sync, work)


def cuts(recording: Recording) -> list[int]:
    """Just before each sync and answer, and at each end: what may be left earlier may be left there
    too, as whatever came later may be missing."""
    history = recording.history
    ends = {seq - 1 for seq in [*history.syncs, *(seq for seq, _ in history.answers)]} | {
        recording.acted, recording.other, history.last}
    return sorted(end for end in ends if end)


def spool_of(box: states.Tree) -> trees.Tree:
    """The spool in it."""
    spool = box.get("s")
    if not isinstance(spool, dict):
        return trees.Tree((), False)
    return trees.Tree(tuple((path.rstrip("/"), None if path.endswith("/") else stat.S_IFIFO | 0o600
        if value is None else os.fsencode(value))
                            for path, value in states.paths(spool)))


def known(box: states.Tree) -> str:
    """The spool in it, hashed: the same for those that differ only in nonces, times and process ids
    (trees.digest)."""
    return trees.digest(spool_of(box)).hex()


def expand(recording: Recording, scenario: Scenario, seed: int,
        limit: int | None) -> Iterator[tuple[int, str, str]]:
    """Cut and outcomes of each state that differs from all others, and the state: by turns one that
    has lost everything that was pending, the later cuts first, and one of the others, shuffled. Of
    cuts with the same state, the last: more is owed later. `limit`: about so many are wanted, so
    not all are looked at."""
    history = recording.history
    whole = frozenset(index for index, op in enumerate(history.ops) if IDLE.search(op.text))
    first: list[tuple[int, str, str]] = []
    rest: list[tuple[int, str, str]] = []
    seen: set[object] = set()
    chance = random.Random(seed)
    for cut in reversed(cuts(recording)):
        # Of the messages that were written out, fewer are owed later
        said = recording.owed(cut, scenario).stdout if scenario.delivers else b""
        none, *more = history.choices(cut, whole, SAMPLES, seed)
        if limit is not None:
            more = chance.sample(more, min(len(more), 2 * limit))
        for outcomes in (none, *more):
            state = known(history.tree(cut, outcomes))
            if (state, said) not in seen:
                seen.add((state, said))
                (first if outcomes is none else rest).append((cut, outcomes, state))
    chance.shuffle(rest)
    for pair in zip_longest(first, rest):
        yield from filter(None, pair)


def stages(system: System, scenario: Scenario, sync: str, work: Path, kinds: Sequence[str],
        limit: int | None, seed: int) -> list[str]:
    """The stages of a scenario. A kill just before a sync leaves as much pending as one anywhere
    before it; and one at each rename; "kill before PATTERN": where that is found in "KIND PATH ..."
    of a call. With a limit, three of the kills."""
    found = [stage for stage in ("act", "boot") if stage in kinds]
    for kind in kinds:
        name, _, pattern = kind.partition(" before ")
        if name == "kill":
            recording = recorded(system, scenario.name, "act", sync, work)
            act = recording.calls[:recording.acted]
            kills = [f"kill:{call.seq}" for call in act
                if (re.search(pattern, " ".join((call.kind, *call.paths))) if pattern else
                    call.kind in ("sync", "rename") or call is act[-1])]
            few = len(kills) if limit is None or pattern else min(3, len(kills))
            found += random.Random(f"{seed} {scenario.name}").sample(kills, few)
    return found


def trials(system: System, scenarios: Iterable[Scenario], limit: int | None, seed: int, work: Path,
        *,
        sync: str = "on", kinds: Sequence[str] = STAGES) -> list[Trial]:
    """About `limit` trials of each scenario, shared out among its stages by turns; each of another
    state, as long as there are any. With a limit a push and the recovery come first by turns,
    without one both do. `work`: a directory for the runs that they are taken from."""
    found: list[Trial] = []
    for scenario in scenarios:
        names = stages(system, scenario, sync, work, kinds, limit, seed)
        of_stages = [[(stage, *state) for state in expand(recorded(system, scenario.name, stage,
            sync,
            work), scenario, seed, limit)] for stage in names]
        new: list[Any] = []
        old: list[Any] = []
        seen: set[str] = set()
        for turn in zip_longest(*of_stages):
            for one in filter(None, turn):
                (old if one[3] in seen else new).append(one)
                seen.add(one[3])
        for stage, cut, outcomes, _ in [*new, *old][:limit]:
            lost = outcomes.count(states.ABSENT)
            then = "both" if limit is None else ("push", "recovery")[(cut + lost) % 2]
            found.append(Trial(scenario.name, stage, cut, outcomes, then, sync, seed))
    return found


def run(given: Trial, system: System, work: Path) -> Outcome:
    """Make the state, restart, recover, drain. The stage is recorded anew unless this process has
    done so; `work` is the caller's to remove."""
    start = time.monotonic()
    scenario = NAMED[given.scenario]
    recording = recorded(system, given.scenario, given.stage, given.sync, work)
    history = recording.history
    pending = history.pending(given.cut)
    call = trial.show(recording.calls[given.cut - 1]) if 0 < given.cut <= len(
        recording.calls) else ""
    outcome = Outcome(given.scenario, scenario.verb, given.cut, call, f"power, {given.stage}",
        "not reached", "", given.seed, 0, str(given))
    if given.cut <= history.last and len(given.outcomes) == len(pending):
        names = {states.ABSENT: "lost", states.HALF: "half", states.ZEROS: "zeros",
            **dict.fromkeys(states.PAGES, "cut at a page")}
        outcome.missing = [f"{names[mark]}: {history.ops[index].text}" for index,
            mark in zip(pending, given.outcomes) if mark in names]
        tree, wrong = history.tree(given.cut, given.outcomes), []
        outcome.state = known(tree)
        for then_push in THEN[given.then]:
            wrong += restart.check(system, scenario, spool_of(tree), work / "state",
                recording.owed(given.cut, scenario), then_push=then_push)
        outcome.outcome, outcome.detail = ("bad" if wrong else "good"), "; ".join(
            dict.fromkeys(wrong))
    outcome.seconds = round(time.monotonic() - start, 4)
    return outcome


def again(line: str, system: System, work: Path) -> Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    return run(Trial.parse(line), system, work)


def explore(system: System, name: str, limit: int | None, seed: int, work: Path, *,
        sync: str = "on",
        kinds: Sequence[str] = STAGES) -> list[Outcome]:
    """The trials of one scenario, made and run: one task of a pool or a cluster. Uses, and removes,
    a directory of its own below `work`."""
    own = work / f"power.{os.getpid()}"
    try:
        return [run(one, system, own)
            for one in trials(system, [NAMED[name]], limit, seed, own, sync=sync, kinds=kinds)]
    finally:
        shutil.rmtree(own, ignore_errors=True)


def names() -> list[str]:
    """The scenarios of this family. Their acts run with FLATQ_SYNC=on; what they begin with is on
    the disk anyway."""
    return [name for name, scenario in SCENARIOS.items() if scenario.sync == "off"
        and not LARGE.search(name)]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """For campaign.py: a task for each scenario."""
    return [functools.partial(explore, system, name, options.limit, options.seed,
        work) for name in names() if name in options.scenarios]
