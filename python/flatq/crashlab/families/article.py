"""The baseline: the queue of a few lines of shell that an article showed (tests/article), run and broken in the same ways as flatq.

It uses one scenario that both can do (scenarios.BASELINE): three pushes and three pops, one after the other. The families crash, double, power
and cuts break it, and their oracle judges it. There are also eight pushes at once, and clients of the door that are gone before the answer
or cut off while they push. Bad outcomes are expected of the article's version.

    >>> [one.outcome for one in trials("article", AT_ONCE, 1, 0, Path("/dev/shm"))]
    ['bad']
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import clients, cuts, power, trial
from .. import campaign
from ..gate.processes import wait_for
from ..scenarios import BASELINE, Article, System, build

SIDES: dict[str, System] = {"article": Article(), "flatq": System()}
#: The columns of the table, and the faults of faults.py that are counted in it.
ROWS: dict[str, tuple[str, ...]] = {
    "all killed": ("kill",), "one process killed": ("kill one",), "torn write": ("torn, 1 byte", "torn, half", "torn, all but 1"),
    "one disk error": ("EIO",), "disk full from there on": ("ENOSPC lasting",), "second crash": (), "power cut by the model": (),
    "power cut of ext4": (), "eight pushes at once": (), "client gone before its answer": (), "client cut off while it pushes": ()}
SECOND, POWER, CUT, AT_ONCE, GONE, CUT_OFF = list(ROWS)[5:]
#: Trials of each row that can have any number of them.
LIMITS = {SECOND: 100, POWER: 100, CUT: 20, AT_ONCE: 10, GONE: 8, CUT_OFF: 8}


@dataclasses.dataclass
class Outcome(trial.Outcome):
    family: str = "article"
    baseline: bool = False  # Bad outcomes are expected


def _at_once(system: System, number: int, work: Path) -> list[str]:
    """Eight pushes at the same time; each acknowledged message that is not there is lost."""
    spool, bodies = work / "spool", [b"message %d of eight" % n for n in range(8)]
    build(system, BASELINE, spool)
    script = "".join(f"{{ printf %s '{body.decode()}' | sh \"$0/push\" q >/dev/null && printf '{n}\\n'; }} &\n" for n, body in enumerate(bodies))
    said = system.verb(spool, "sh", script + "wait").stdout
    system.verb(spool, "wal")
    left = system.dump(spool).bodies()
    return [f"lost: {bodies[int(n)]!r}" for n in said.split() if bodies[int(n)] not in left]


class Door(clients.Door):
    """The article's launch or ours, one connection after the other."""

    def __init__(self, system: System, top: Path) -> None:
        self.system, self.spool, self.said_to, self.mode, self.port = system, top / "spool", top / "said", "loop", clients.free()
        build(system, BASELINE, self.spool)
        words = [str(system.lib / "launch"), str(self.port)] if system.baseline else [str(system.lib.parent / "launch"), "-p", str(self.port)]
        environment = {name: value for name, value in system.environment(self.spool).items() if name != "queue"}
        with self.said_to.open("wb") as said:
            self.process = subprocess.Popen(["sh", *words], env=environment, cwd=self.spool, stdin=subprocess.DEVNULL,
                                            stdout=said, stderr=said, start_new_session=True)

    def settle(self, before: int, count: int = 1) -> None:
        """Wait until all clients are served: another one was served since, and no handler is left. (The article's version has no log.)"""
        wait_for(self._probed, "the next connection", clients.PATIENCE)
        wait_for(lambda: not self.handlers(), "the end of the handlers", clients.PATIENCE)

    def _probed(self) -> bool:
        with contextlib.suppress(OSError), self.connect() as probe:  # A client that waited when ncat stopped listening is reset
            probe.sendall(b"pop other\n")
            probe.shutdown(socket.SHUT_WR)
            while probe.recv(100):
                pass
            return True
        return False


def _client(system: System, number: int, work: Path, *, row: str) -> list[str]:
    with Door(system, work) as door:
        there = [b"stays"] if row == GONE else []
        for body in there:
            system.verb(door.spool, "push", "q", stdin=body)
        if row == GONE:
            door.vanish(b"pop q\n", number % 2 == 1)
            door.settle(0)
        else:
            at_work = "q.wal.1" if system.baseline else "q/body/*"
            clients.leave(door, b"push q\nhalf of a mess", True, when=lambda: any(door.spool.glob(at_work)))
        system.verb(door.spool, "wal")
        left = system.dump(door.spool).bodies()
    return [] if left == there else [f"{left} is there, not {there}"]


#: Trials that no other family has: functions of the system, the trial's number and a directory, which return what is wrong.
_OWN: dict[str, Callable[[System, int, Path], list[str]]] = {
    AT_ONCE: _at_once, GONE: functools.partial(_client, row=GONE), CUT_OFF: functools.partial(_client, row=CUT_OFF)}


def run(line: str, work: Path) -> trial.Outcome:
    """One of these, from its line: SIDE/ROW/NUMBER. Raises ValueError, KeyError."""
    began = time.monotonic()
    side, row, number = line.split("/")
    with tempfile.TemporaryDirectory(prefix="article.", dir=work) as top:
        wrong = _OWN[row](SIDES[side], int(number), Path(top))
    return trial.Outcome(BASELINE.name, side, int(number), "", row, "bad" if wrong else "good", "; ".join(wrong), 0, round(time.monotonic() - began, 4),
                         shlex.join(["article", line]))


def again(line: str, system: System, work: Path) -> trial.Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    return run(shlex.split(line)[-1], work)


def available(row: str) -> str:
    """The reason why a row cannot be run here; empty: it can."""
    if row == CUT:
        return cuts.available("ext4")[1]
    return "no clients: ncat is missing (package ncat)" if row in (GONE, CUT_OFF) and not shutil.which("ncat") else ""


def _of_others(system: System, row: str, limit: int | None, seed: int, work: Path) -> Iterator[trial.Outcome]:
    """The outcomes of a row, from the family that it belongs to."""
    count, chance = limit or LIMITS.get(row, 0), random.Random(f"{seed} {system.name} {row}")
    if row == SECOND:
        yield from campaign.doubles(system, BASELINE.name, campaign.Options(limit=count, seed=seed), work)
    elif row == POWER:
        yield from power.explore(system, BASELINE.name, 2 * count, seed, work, kinds=("act",))
    elif row == CUT:
        yield from cuts.replay(system, "ext4", [cuts.Cut("ext4", BASELINE.name, "call", round(chance.random(), 4), seed=n) for n in range(count)])
    elif row in _OWN:
        yield from (run(f"{system.name}/{row}/{number}", work) for number in range(count))
    else:
        points = campaign.plan(system, BASELINE.name, campaign.Options(faults=ROWS[row]), work)
        for fault, point in points if limit is None else chance.sample(points, min(limit, len(points))):
            yield trial.run(trial.Trial(BASELINE.name, fault, point), system, work)


def trials(side: str, row: str, limit: int | None, seed: int, work: Path) -> list[Outcome]:
    """The trials of a row, for one side: a task. `limit`: so many trials; else all, or as many as LIMITS says."""
    reason = available(row)
    with tempfile.TemporaryDirectory(prefix="article.", dir=work) as own:
        found = campaign.missing("article", reason) if reason else list(_of_others(SIDES[side], row, limit, seed, Path(own)))
    lib = f"--lib {shlex.quote(str(SIDES[side].lib))} " if side == "article" and row not in _OWN else ""
    same = [{field.name: getattr(one, field.name) for field in dataclasses.fields(trial.Outcome)} for one in found]
    return [Outcome(**{**one, "verb": side, "fault": row, "family": "article", "second": "", "replay": lib + one["replay"]}, baseline=side == "article")
            for one in same]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """Every row of both sides; ours is always that in lib/. Without a limit, ten times as many where there can be any number."""
    return [functools.partial(trials, side, row, 10 * LIMITS[row] if options.limit is None and row in LIMITS else None, options.seed, work)
            for row in ROWS for side in SIDES]
