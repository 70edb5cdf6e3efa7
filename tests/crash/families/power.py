"""Power cuts by a model: every state that a file system may leave behind (states.py), recovered and
drained by the verbs.

The fault is a stage, the point CUT/FATES: the call after which the power goes, and the fate of each
operation that was pending then, as in states.py.

Stages
    act   the scenario's act with FLATQ_SYNC=on, then a checkpoint
    boot  the act is on the disk; the system restarts, and the power is cut again during the
          checkpoint that recovers
    kill  the act is killed before a call, whose number comes first in the point; then another
          process pushes; then a checkpoint. What the dead process did not sync is still pending
          when the other push is acknowledged

What was acknowledged is there, whole, once and in its order, and in its state; what was not is
whole or not there. What was deleted, and that was acknowledged, does not come back; what was popped
may, if the power went before it was on the disk. A slip whose body is not whole is buried as
damaged, or goes away.
"""
from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from . import crash, states
from ..gate import gate
from ..judge import layout, oracle, trees
from ..scenarios import NAMED, Scenario, System, Words
from ..trials import Family, Options, Seen, Trial, sample

STAGES = ("act", "boot", "kill")
#: Files that no verb needs after a restart: assumed to be whole, so that they do not double the
#: number of states. A queue's lock is none of these: a verb that does not find it makes the queue.
IDLE = re.compile(r"/(log|tended|\.lock)$")
#: The number of random samples at each cut, in addition to the states that states.py chooses.
SAMPLES = 32
#: The push by another process, in the stage `kill`.
OTHER = b"pushed by another"
#: The states that a verb makes durable before it answers. A worker does not wait for that.
DURABLE = ("delayed", "buried", "claimed")


@dataclass(frozen=True)
class Owed:
    """What was acknowledged when the power was cut: by the act, and by other verbs."""

    acked: bool  # the act had succeeded
    stdout: bytes  # its output
    settled: bool = False  # the removal of what it took was on the disk
    other: bool = False  # OTHER had been pushed

    def check(self, system: System, scenario: Scenario, tree: trees.Tree, spool: Path,
            every: bool) -> list[str]:
        """What is wrong with a spool after a power cut, one line each. It is made at `spool`, and
        nothing is left there. `every`: a push comes first, and does not; else one of these."""
        told = scenario.verb == "push" and bool(scenario.new) and self.stdout.endswith(b"\n")
        acked = self.acked or told
        ledger = oracle.expected(scenario, acked, self.stdout)
        if not self.settled and (scenario.delivers or scenario.beside):
            ledger.gone.clear()  # may come again
        ledger.order.append(OTHER)
        ledger.must |= {OTHER} if self.other else set()
        return oracle.recoveries(system, ledger, tree, spool, every,
            power=lambda found: _states(scenario, found) if acked else [])


def _states(scenario: Scenario, found: layout.Dump) -> list[str]:
    """The state that the verb was to make durable before its answer."""
    if scenario.ends in DURABLE and scenario.verb != "work":
        if scenario.subject not in found.bodies(scenario.queue, scenario.ends):
            return [f"{scenario.subject!r} is not {scenario.ends}"]
    if scenario.verb == "close" and scenario.queue not in found.closed:
        return ["not closed"]
    if scenario.verb in ("pause", "resume") and (
            scenario.queue in found.paused) != (scenario.verb == "pause"):
        return [f"paused are {found.paused}"]
    if scenario.verb == "create" and "-b" in scenario.act and found.bounds.get(
            scenario.queue) != 5:
        return [f"bounds are {found.bounds}"]
    return []


@dataclass
class Recording:
    """The calls of one stage, and what is owed from which of them on."""

    history: states.History
    calls: list[gate.Call]
    owed: dict[int, Owed]

    def owed_at(self, cut: int) -> Owed:
        return self.owed[max(seq for seq in self.owed if seq <= cut)]


def play(system: System, words: Words, box: Path, fault: gate.Fault | None = None) -> gate.Result:
    """Run the verb behind the gate, which counts its answers too; the spool is `s` in `box`, which
    is the root."""
    return gate.run(system.argv(words[:-1]), box, env=system.environment(box / "s", "on"),
        stdin=words[-1], fault=fault, timeout=60)


def make_box(tree: trees.Tree, box: Path) -> None:
    """Make the box, and the spool in it, which syncs."""
    box.mkdir(parents=True)
    trees.put(tree, box / "s")
    layout.syncs(box / "s", "on")


@functools.lru_cache(maxsize=64)
def record(system: System, name: str, stage: str, kill: int, work: Path) -> Recording:
    """Run the stage once for each process. The gate's root is the directory that the
    spool is made in: its entry may be lost as well. Raises RuntimeError where the calls that were
    seen do not explain what is on the disk in the end."""
    scenario, box = NAMED[name], work / f"power.{os.getpid()}"
    tree, words = crash.base(system, name, work)
    shutil.rmtree(box, ignore_errors=True)
    try:
        make_box(tree, box)
        history, owed, said = states.History(box), {0: Owed(False, b"")}, b""
        act = play(system, words, box, gate.Fault("kill_tree", kill) if kill else None)
        calls, end = list(act.calls), history.add(act.calls)
        for seq, data in history.answers:
            said += data
            owed[seq] = Owed(False, said)
        if stage == "boot":
            layout.reboot(box / "s")
            history, calls = states.History(box), []
            owed = {0: Owed(act.status == 0, said, settled=True)}
        elif kill:
            push = play(system, ("push", scenario.queue, OTHER), box)
            calls += push.calls
            owed[history.add(push.calls)] = Owed(False, said, other=push.status == 0)
        else:
            owed[end] = Owed(act.status == 0, said)
        checkpoint = play(system, ("wal", b""), box)
        history.add(checkpoint.calls)
        made, there = {*history.tree(history.last).entries}, {*trees.take(box).entries}
        if made != there:
            raise RuntimeError(f"{name}, {stage}: the calls that were seen make up "
                f"{made - there}, and on the disk is {there - made}")
        return Recording(history, [*calls, *checkpoint.calls], owed)
    finally:
        shutil.rmtree(box, ignore_errors=True)


def cuts(recording: Recording) -> list[int]:
    """Just before each sync and answer, and at the end: what may be left earlier may be left there
    too, as whatever came later may be missing."""
    history = recording.history
    ends = {seq - 1 for seq in (*history.syncs, *recording.owed)} | {history.last}
    return sorted(end for end in ends if end > 0)


def spool_of(box: trees.Tree) -> trees.Tree:
    """The spool in it."""
    return trees.Tree(tuple((path[2:], content) for path, content in box.entries
        if path.startswith("s/")), ("s", None) in box.entries)


def expand(recording: Recording, scenario: Scenario,
        options: Options) -> Iterator[tuple[bool, int, str]]:
    """Cut and fates of each state that differs from all others, and whether all that was pending is
    lost. Of cuts with the same state, the last: more is owed later."""
    history = recording.history
    whole = frozenset(index for index, op in enumerate(history.ops) if IDLE.search(op.text))
    seen: set[object] = set()
    few = None if options.limit is None else 2 * options.limit
    for cut in reversed(cuts(recording)):
        # Of the messages that were written out, fewer are owed later
        said = recording.owed_at(cut).stdout if scenario.delivers else b""
        none, *more = history.choices(cut, whole, SAMPLES, options.seed)
        for fates in (none, *sample(dict.fromkeys(more), few, f"{options.seed} {cut}")):
            state = trees.digest(spool_of(history.tree(cut, fates))), said
            if state not in seen:
                seen.add(state)
                yield fates is none, cut, fates


def kills(system: System, name: str, options: Options, work: Path) -> list[int]:
    """A kill just before a sync leaves as much pending as one anywhere before it; and one at each
    rename, and at the end. With a limit, three of these."""
    recording = record(system, name, "act", 0, work)
    act = recording.calls[:max(recording.owed)]
    found = [call.seq for call in act if (options.hits(call) if options.at else
        call.kind in ("sync", "rename") or call is act[-1])]
    few = None if options.limit is None or options.at else 3
    return sample(found, few, f"{options.seed} {name}")


def trials(system: System, name: str, options: Options, work: Path) -> list[Trial]:
    """By turns of each stage; of its states as many of each kill as of the others, and as many that
    have lost all as of the others."""
    def of(stage: str) -> list[Trial]:
        points = [((kill, lost), f"{kill}/" * (stage == "kill") + f"{cut}/{fates}")
            for kill in (kills(system, name, options, work) if stage == "kill" else (0,))
            for lost, cut, fates in expand(record(system, name, stage, kill, work), NAMED[name],
                options)]
        return [Trial("power", name, stage, point) for _, point in sample(points, options.limit,
            f"{options.seed} {name}", lambda one: one[0])]

    turns = zip_longest(*map(of, filter(options.wants, STAGES)))
    return [one for turn in turns for one in turn if one]


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    """Make the state, restart, recover, drain."""
    scenario = NAMED[trial.scenario]
    *kill, cut, fates = trial.point.split("/")
    recording = record(system, trial.scenario, trial.fault, int(kill[0]) if kill else 0, work)
    history, at = recording.history, int(cut)
    pending = history.pending(at)
    if at > history.last or len(fates) != len(pending):
        return Seen()
    marks = {states.ABSENT: "lost", states.HALF: "half", states.ZEROS: "zeros"}
    missing = [f"  {marks[mark]}: {history.ops[index].text}" for index, mark in zip(pending, fates)
        if mark in marks]
    left = spool_of(history.tree(at, fates))
    wrong = recording.owed_at(at).check(system, scenario, left, crash.place(work), every)
    call = str(recording.calls[at - 1]) if 0 < at <= len(recording.calls) else ""
    return Seen(call, wrong, crash.base(system, trial.scenario, work)[0], left,
        recording.calls[:at], "\n".join([f"the power goes after {call}", *missing]))


def names(system: System) -> list[str]:
    """The scenarios of this family. Their acts run with FLATQ_SYNC=on; what they begin with is on
    the disk anyway. Large messages make the same calls as small ones, but many more."""
    return [name for name in crash.plain(system) if "KiB" not in name]


FAMILY = Family(STAGES, names, trials, run, 4000, crash.lacks)
