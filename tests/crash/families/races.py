"""Two verbs whose steps alternate in a fixed order, and some cases that are no scenarios.

No verb is changed, and nothing depends on timing: the gate holds a verb before a call, and
meanwhile another does its step.

    >>> print(run(System(), "closed while a body is read", work=Path("/dev/shm")).outcome)
    good
"""
from __future__ import annotations

import functools
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import trial
from .. import campaign, scenarios
from ..gate import gate
from ..judge import layout
from ..scenarios import System, Words

Race = Callable[[System, Path], list[str]]
RACES: dict[str, Race] = {}


def race(name: str) -> Callable[[Race], Race]:
    def enter(function: Race) -> Race:
        RACES[name] = function
        return function
    return enter


def prepared(system: System, spool: Path, *before: Words) -> None:
    for words in before:
        if words[0] == "CRASH":
            scenarios.crash(system, spool, words[1], words[2:])
        elif system.verb(spool, *words[:-1], stdin=words[-1]).returncode != 0:
            raise RuntimeError(f"{words} failed")


def held(system: System, spool: Path, words: Words, pattern: str,
        meanwhile: Callable[[gate.Call], Any],
        kinds: frozenset[str] | None = None, after: int = 0) -> gate.Result:
    """Run the verb. When it stands before the first call that has the pattern in its "KIND PATH
    ...", or so many calls after it, do `meanwhile`. Raises LookupError if it never comes there."""
    at: list[int] = []

    def each(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if not at and re.search(pattern, " ".join((call.kind, *call.paths))):
            at.append(call.seq + after)
        if at and call.seq == at[0] and len(at) == 1:
            at.append(0)
            meanwhile(call)

    result = gate.run(system.argv(words[:-1]), spool, env=system.environment(spool),
        stdin=words[-1],
        each=each, kinds=kinds, timeout=60)
    if len(at) != 2:
        raise LookupError(f"{words} never came to {pattern!r}")
    return result


@race("closed while a body is read")
def closed(system: System, spool: Path) -> list[str]:
    """A push looks whether the queue is closed, reads, and makes its slip in a queue that was
    closed meanwhile and said to be empty."""
    prepared(system, spool, ("create", "q", b""))
    said: list[int] = []

    def close(call: gate.Call) -> None:
        prepared(system, spool, ("close", "q", b""))
        said.append(system.verb(spool, "drain", "q").returncode)

    push = held(system, spool, ("push", "q", b"m1"), "open q/body/", close)
    left = layout.dump(spool).messages("q")
    ended = (said, push.status, push.stdout, left)
    return [] if ended == ([69], 69, b"", []) else [f"drain, push, and what is left: {ended}"]


@race("settled while its owner is looked for")
def settled(system: System, spool: Path) -> list[str]:
    """A checkpoint sees no marker; then the pop makes its marker and ends, and the checkpoint looks
    whether the pop lives."""
    prepared(system, spool, *scenarios.pushes(1, 2), ("CRASH", "open q/done/", "pop", "q", b""))
    [name] = layout.names(spool / "q/out")
    held(system, spool, ("wal", "q", b""), "^(look|list) q/done/?", lambda call: (
        spool / "q/done" / name).touch(), gate.READS, after=1)
    bodies = layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if bodies == [b"m2"] else [f"m1 is settled, and there is {bodies}"]


@race("a signal behind the marker")
def behind_the_marker(system: System, spool: Path) -> list[str]:
    """A pop has written out and settled its message when it is told to end."""
    prepared(system, spool, *scenarios.pushes(1, 2))
    pop = held(system, spool, ("pop", "q", b""), "open q/log", lambda call: os.kill(
        call.pid, signal.SIGTERM))
    prepared(system, spool, ("wal", b""))
    ended = pop.stdout, layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if ended == (b"m1", [b"m2"]) else [f"written out and settled, and there: {ended}"]


@race("a receipt that is old")
def old_receipt(system: System, spool: Path) -> list[str]:
    """A consumer that was too slow may do nothing to a message that another one has; if only its
    lease has ended, it may."""
    prepared(system, spool, *scenarios.pushes(1, 1))
    receipts = [system.verb(spool, "reserve", "-t", lease, "q").stdout.split()[0].decode()
        for lease in ("0", "0", "999999")]
    wrong = []
    for verb in ("delete", "release", "bury", "touch"):
        for receipt in receipts[:2]:
            status = system.verb(spool, verb, receipt).returncode
            wrong += [] if status == 66 else [f"{verb} with an old receipt ends with {status}"]
    states = [(message.state, message.tries) for message in layout.dump(spool).messages("q")]
    wrong += [] if states == [("reserved", 3)] else [
        f"reserved for the third time, and it is {states}"]
    status = system.verb(spool, "delete", receipts[2]).returncode
    return wrong + ([] if status == 0 else [f"delete with the last receipt ends with {status}"])


@race("too many tries of bulk takers")
def tries(system: System, spool: Path) -> list[str]:
    """A message that kills its consumers is set aside, also when many are taken at once."""
    prepared(system, spool, ("create", "-m", "2", "q", b""), *scenarios.pushes(1, 1))
    for expected in ("ready", "buried"):
        prepared(system, spool, ("CRASH", "open q/done/", "drain", "q", b""), ("wal", b""))
        states = [message.state for message in layout.dump(spool).messages("q")]
        if states != [expected]:
            return [f"{states}, not {expected}"]
    return []


def run(system: System, name: str, work: Path) -> trial.Outcome:
    """One race, in a directory of its own below `work`."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="races.", dir=work) as top:
            wrong = RACES[name](system, Path(top) / "spool")
    # something hangs, or is not as it should be
    except (OSError, RuntimeError, LookupError, ValueError, subprocess.TimeoutExpired) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    return trial.Outcome(name, "", 0, "", "race", "bad" if wrong else "good", "; ".join(wrong), 0,
        round(time.monotonic() - began, 3), shlex.join(["race", name]), "races")


def again(line: str, system: System, work: Path) -> trial.Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    name = shlex.split(line)[-1]
    if name not in RACES:
        raise ValueError(f"no race {name!r}")
    return run(system, name, work)


def _task(system: System, name: str, work: Path) -> list[trial.Outcome]:
    return [run(system, name, work)]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    return [functools.partial(_task, system, name, work) for name in RACES]
