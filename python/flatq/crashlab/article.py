"""The article's own version as the baseline: the same runs, broken in the same ways, of its scripts and of ours.

One scenario that both can do: three pushes and three pops, one after the other. It is broken at every call that changes anything; then
whoever is left recovers, and what can still be taken is compared with what was acknowledged. Beside it: eight pushes at once, and
clients of the door that are gone before the answer or cut off while they push. An outcome that is bad is expected of the article's.

    >>> print(run(Trial("article", "kill", 5), Path("/dev/shm")).outcome)
    bad
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import campaign, clients, cuts, faults, gate, layout, states, trees, trial
from .article_side import AGAIN, BODIES, SIDES, Said, dump, judge, recovered, steps
from .scenarios import System
from .trial import fresh

#: A row of the table, and the faults of faults.py that are counted in it.
ROWS: dict[str, tuple[str, ...]] = {
    "all killed": ("kill",), "one process killed": ("kill one",), "torn write": ("torn, 1 byte", "torn, half", "torn, all but 1"),
    "one disk error": ("EIO",), "disk full from there on": ("ENOSPC lasting",), "second crash": (), "power cut, by the model": (),
    "power cut, ext4": (), "eight pushes at once": (), "client gone before its answer": (), "client cut off while it pushes": ()}
SECOND, POWER, CUT, AT_ONCE, GONE, CUT_OFF = list(ROWS)[5:]
CLIENTS = (GONE, CUT_OFF)
#: Trials of each row that can have any number of them.
LIMITS = {SECOND: 100, POWER: 100, CUT: 20, AT_ONCE: 10, GONE: 8, CUT_OFF: 8}


@dataclass(frozen=True)
class Trial:
    """`fault`: of faults.py, or a row that has none. `point`: of the call; the cut's; the trial's number. `more`: of a second crash, its
    point; of a power cut, what became of each pending operation."""

    side: str
    fault: str
    point: int
    more: str = ""

    def __str__(self) -> str:
        words = ["python3", "-m", "flatq.crashlab.article", "--side", self.side, "--fault", self.fault, "--point", str(self.point)]
        return shlex.join([*words, *(["--more", self.more] if self.more else [])])

    @property
    def row(self) -> str:
        return next((row for row, names in ROWS.items() if self.fault in names), self.fault)


@dataclass
class Outcome(trial.Outcome):
    family: str = "article"
    baseline: bool = False  # to be bad is what it is there for


# ---- the trials


@functools.lru_cache(maxsize=2)
def base(side: str, work: Path) -> trees.Tree:
    """The spool before: of the article's, an empty directory; of ours, one with the queue."""
    spool = work / f"base.{os.getpid()}"
    trees.remove(spool)
    spool.mkdir()
    if side == "flatq":
        SIDES[side].shell('sh "$LIB/create" q', spool)
    tree = trees.take(spool)
    trees.remove(spool)
    return tree


@dataclass(frozen=True)
class Stage:
    """Before a step of the scenario, where nothing has happened to it: the number of its first call, what was said, the spool."""

    first: int
    said: bytes
    spool: trees.Tree
    calls: tuple[gate.Call, ...]  # of the step, numbered over the whole


@functools.lru_cache(maxsize=2)
def stages(side: str, work: Path) -> tuple[Stage, ...]:
    """Raises RuntimeError where the scenario goes wrong by itself."""
    found, spool, heard, first = [], fresh(base(side, work), work), b"", 1
    for step in steps():
        tree = trees.take(spool)
        result = SIDES[side].run(step, spool, spool)
        found.append(Stage(first, heard, tree, tuple(replace(call, seq=call.seq + first - 1) for call in result.calls)))
        heard, first = heard + result.stdout, first + len(result.calls)
    said = Said()
    said.read(heard)
    if said.handed != list(BODIES) or judge(said, recovered(side, spool, False)):
        raise RuntimeError(f"{side}, undisturbed: {heard!r}")
    return tuple(found)


def whole(side: str, work: Path) -> list[gate.Call]:
    """The calls of the scenario where nothing happens to it."""
    return [call for stage in stages(side, work) for call in stage.calls]


def struck(one: Trial, work: Path) -> tuple[gate.Result, Path]:
    """The scenario with its fault, from the step on that is struck; what it says from the first on, and the spool that it leaves."""
    number, stage = [pair for pair in enumerate(stages(one.side, work)) if pair[1].first <= one.point][-1]
    spool = fresh(stage.spool, work)
    result = SIDES[one.side].run("".join(steps()[number:]), spool, spool, fault=faults.make(one.fault, one.point - stage.first + 1))
    result.stdout = stage.said + result.stdout
    return result, spool


@functools.lru_cache(maxsize=4)
def wreck(side: str, point: int, work: Path) -> tuple[bytes, trees.Tree]:
    """What was said by a scenario that was killed at the point, and what it left."""
    result, spool = struck(Trial(side, "kill", point), work)
    return result.stdout, trees.take(spool)


def _faulty(one: Trial, work: Path) -> tuple[str, list[str]]:
    result, spool = struck(one, work)
    said, tree = Said(), trees.take(spool)
    said.read(result.stdout)
    wrong = judge(said, recovered(one.side, spool, False))
    if one.fault == "kill" or not wrong:
        wrong += judge(said, recovered(one.side, fresh(tree, work), True), pushed=True)
    hit = next((call for call in result.calls if call.fate != "run"), None)
    return trial.show(hit) if hit else "", (["hangs"] if result.timed_out else []) + wrong


def _second(one: Trial, work: Path) -> tuple[str, list[str]]:
    first, tree = wreck(one.side, one.point, work)
    spool = fresh(tree, work)
    if one.side == "flatq":
        layout.age(spool)
    result = SIDES[one.side].run(AGAIN, spool, spool, fault=gate.Fault("kill_tree", int(one.more)))
    said = Said()
    said.read(first)
    said.read(result.stdout)
    return trial.show(result.calls[-1]) if result.fired else "", judge(said, recovered(one.side, spool, False))


@functools.lru_cache(maxsize=2)
def recording(side: str, work: Path) -> states.History:
    """The calls of the whole scenario, with its data and its answers; ours with FLATQ_SYNC=on."""
    box = work / f"box.{os.getpid()}"
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir()
    trees.put(base(side, work), box / "s")
    history = states.History(box)
    history.add(SIDES[side].run("".join(steps()), box / "s", box, "on", record_data=True, count_stdout=True).calls)
    shutil.rmtree(box)
    return history


def _power(one: Trial, work: Path) -> tuple[str, list[str]]:
    history, box = recording(one.side, work), work / f"state.{os.getpid()}"
    shutil.rmtree(box, ignore_errors=True)
    states.write(history.tree(one.point, one.more), box)
    said = Said()
    said.read(b"".join(data for seq, data in history.answers if seq <= one.point))
    wrong = judge(said, recovered(one.side, box / "s", False, boot=True), power=True)
    shutil.rmtree(box)
    return "", wrong


def _cut(numbers: Sequence[int], side: str, disk: cuts.Disk, work: Path) -> list[tuple[str, list[str]]]:
    """Real cuts: all is killed at a call, then the power goes."""
    found, box, state = [], disk.path / "box", work / "state"
    total = len(whole(side, work))
    for number in numbers:
        shutil.rmtree(box, ignore_errors=True)
        box.mkdir()
        trees.put(base(side, work), box / "s")
        disk.sync()
        point = 1 + random.Random(number).randrange(total)
        result = SIDES[side].run("".join(steps()), box / "s", box, "on", fault=gate.Fault("kill_tree", point))
        disk.cut(cuts.NOTHING)
        disk.unmount()
        disk.mount()
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(box, state)
        said = Said()
        said.read(result.stdout)
        found.append((trial.show(result.calls[-1]), judge(said, recovered(side, state / "s", False, boot=True), power=True)))
    return found


def _at_once(one: Trial, work: Path) -> tuple[str, list[str]]:
    """Eight pushes in one instant; each message that was acknowledged and is not there is one that is lost."""
    spool = fresh(base(one.side, work), work)
    bodies = [b"message %d of eight" % n for n in range(8)]
    said = SIDES[one.side].shell("".join(f"{{ push {shlex.quote(body.decode())} && printf '{n}\\n'; }} &\n" for n, body in enumerate(bodies)) + "wait", spool)
    SIDES[one.side].shell("recover", spool)
    left = dump(one.side, spool)
    return "", [f"lost: {bodies[int(number)]!r}" for number in said.split() if bodies[int(number)] not in left]


class Door(clients.Door):
    """The article's launch or ours, one connection after the other."""

    def __init__(self, side: str, top: Path) -> None:
        chosen = SIDES[side]
        self.spool, self.said_to, self.mode = top / "spool", top / "said", "loop"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [str(chosen.system.lib / chosen.door[0]), *(word.format(port=self.port) for word in chosen.door[1:])]
        with self.said_to.open("wb") as said:
            self.process = subprocess.Popen(["sh", *words], env=chosen.environment(self.spool), cwd=self.spool, stdin=subprocess.DEVNULL,
                                            stdout=said, stderr=said, start_new_session=True)

    def settle(self, before: int, count: int = 1) -> None:
        """Whoever was served is done: another was served since, to the end, and no handler is left. The article's has no log."""
        clients.wait_for(self._probed, clients.PATIENCE, "the next connection")
        clients.wait_for(lambda: not self.handlers(), clients.PATIENCE, "the end of the handlers")

    def _probed(self) -> bool:
        with contextlib.suppress(OSError), self.connect() as probe:  # who waited when ncat stopped listening is reset
            probe.sendall(b"pop other\n")
            probe.shutdown(socket.SHUT_WR)
            while probe.recv(100):
                pass
            return True
        return False


def _client(one: Trial, work: Path) -> tuple[str, list[str]]:
    with tempfile.TemporaryDirectory(prefix="clients.", dir=work) as directory:
        top = Path(directory)
        trees.put(base(one.side, work), top / "spool")
        spool, there = top / "spool", [BODIES[0]] if one.fault == GONE else []
        for body in there:
            SIDES[one.side].shell(f"push {shlex.quote(body.decode())}", spool)
        with Door(one.side, top) as door:
            if there:
                door.vanish(b"pop q\n", one.point % 2 == 1)
                door.settle(0)
            else:
                at_work = ("q.wal.1", "q/body/*")[one.side == "flatq"]
                clients.leave(door, b"push q\nhalf of a mess", True, when=lambda: any(spool.glob(at_work)))
        SIDES[one.side].shell("recover", spool)
        left = dump(one.side, spool)
    return "", [] if left == there else [f"{left} is there, not {there}"]


def plan(side: str, row: str, work: Path, limit: int | None = None, seed: int = 0) -> list[Trial]:
    """The trials of a row. `limit`: so many of them; else all, or those that LIMITS has."""
    count, chance = limit or LIMITS.get(row, 0), random.Random(f"{seed} {side} {row}")
    if ROWS[row]:
        every = [Trial(side, name, call.seq) for call in whole(side, work) for name in faults.befall(call, ROWS[row])]
        return every if limit is None else chance.sample(every, min(limit, len(every)))
    if row == SECOND:
        found, points = list[Trial](), [call.seq for call in whole(side, work)]
        for point in chance.sample(points, min(len(points), max(1, count // 5))):
            spool = fresh(wreck(side, point, work)[1], work)
            if side == "flatq":
                layout.age(spool)
            calls = SIDES[side].run(AGAIN, spool, spool).calls
            found += [Trial(side, row, point, str(call.seq)) for call in chance.sample(calls, min(5, len(calls)))]
        return found
    if row == POWER:
        return _states(side, row, count, work, chance, seed)
    return [Trial(side, row, number) for number in range(count)]


def _states(side: str, row: str, count: int, work: Path, chance: random.Random, seed: int) -> list[Trial]:
    """States that differ from each other, about as many after each cut."""
    history = recording(side, work)
    ends = sorted({seq - 1 for seq in [*history.syncs, *(seq for seq, _ in history.answers)]} | {history.last})
    seen: dict[str, Trial] = {}
    for end in ends:
        choices = list(dict.fromkeys(history.choices(end, frozenset(), 32, seed)))
        for outcomes in chance.sample(choices, min(len(choices), -(-2 * count // len(ends)))):
            seen.setdefault(states.hashed(history.tree(end, outcomes)), Trial(side, row, end, outcomes))
    return chance.sample(list(seen.values()), min(count, len(seen)))


_HOW: dict[str, Callable[[Trial, Path], tuple[str, list[str]]]] = {
    SECOND: _second, POWER: _power, AT_ONCE: _at_once, GONE: _client, CUT_OFF: _client}


def outcome(one: Trial, call: str, wrong: list[str], seconds: float) -> Outcome:
    return Outcome("three pushes, three pops", one.side, one.point, call, one.row, "bad" if wrong else "good", "; ".join(dict.fromkeys(wrong)), 0,
                   round(seconds, 4), str(one), second=one.more if one.fault == SECOND else "", baseline=one.side == "article")


def run(one: Trial, work: Path) -> Outcome:
    """One trial; a real cut is one of a session of its own."""
    began = time.monotonic()
    if one.fault == CUT:
        call, wrong = cuts.session("ext4", functools.partial(_cut, [one.point], one.side))[0]
    else:
        call, wrong = _HOW.get(one.fault, _faulty)(one, work)
    return outcome(one, call, wrong, time.monotonic() - began)


def available(row: str) -> str:
    """Why a row cannot be had here; empty: it can."""
    if row == CUT:
        return cuts.available("ext4")[1]
    if row in CLIENTS and not shutil.which("ncat"):
        return "no clients: ncat is missing (package ncat)"
    return ""


def trials(side: str, row: str, limit: int | None, seed: int, work: Path) -> list[Outcome]:
    """A row of one side: a task."""
    if reason := available(row):
        return [Outcome("three pushes, three pops", side, 0, "", row, "not reached", reason, 0, 0.0, "", baseline=side == "article")]
    with tempfile.TemporaryDirectory(prefix="article.", dir=work) as own:
        planned = plan(side, row, Path(own), limit, seed)
        if row != CUT:
            return [run(one, Path(own)) for one in planned]
        began = time.monotonic()
        found = cuts.session("ext4", functools.partial(_cut, [one.point for one in planned], side))
        return [outcome(one, call, wrong, (time.monotonic() - began) / len(planned)) for one, (call, wrong) in zip(planned, found)]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """Every row of both sides; ours is always that in lib/. Without a limit, ten times as many where there can be any number."""
    return [functools.partial(trials, side, row, 10 * LIMITS[row] if options.limit is None and row in LIMITS else None, options.seed, work)
            for row in ROWS for side in SIDES]


def counts(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], tuple[int, int]]:
    """Bad trials and all, by row and side. Of eight pushes at once: messages lost, and messages."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for one in outcomes:
        if one.outcome != "not reached":
            bad, total = found.get((one.fault, one.verb), (0, 0))
            many = one.fault == AT_ONCE
            found[one.fault, one.verb] = (bad + (len(one.detail.split("; ")) if many and one.detail else one.outcome == "bad"), total + (8 if many else 1))
    return found


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table for the README: bad of all."""
    found = counts(outcomes)
    lines = ["| three pushes and three pops, then | the article's | flatq |", "| --- | --: | --: |"]
    for row in ROWS:
        cells = ["{} of {}".format(*found[row, side]) if (row, side) in found else "" for side in SIDES]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m flatq.crashlab.article", description="The article's version and ours under the same faults; exit 1 where ours is bad.")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--fault", metavar="NAME", help="with --point: " + ", ".join([*faults.FAULTS, *ROWS]))
    parser.add_argument("--point", type=int)
    parser.add_argument("--more", default="")
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    with campaign.workplace() as work:
        if args.point is not None:
            outcomes = [run(Trial(args.side or "flatq", args.fault or "kill", args.point, args.more), work)]
            print(f"{outcomes[0].call}\n{outcomes[0].outcome}: {outcomes[0].detail}")
        else:
            sides = [args.side] if args.side else list(SIDES)
            outcomes = [one for row in args.row or ROWS for side in sides for one in trials(side, row, args.limit, args.seed, work)]
            print(markdown(outcomes))
    bad = [one for one in outcomes if one.outcome == "bad" and not one.baseline]
    print("".join(f"{one.replay}\n    {one.detail[:500]}\n" for one in bad), end="")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
