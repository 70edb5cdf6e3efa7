"""Two verbs whose steps alternate in a fixed order, which histories would hit only by chance; and some cases that are no scenarios.

No verb is changed, and nothing depends on timing. A verb stops where it reads or writes a pipe whose other end is held here: its standard
input, a file of a /proc of its own (FLATQ_PROC), or its log. Meanwhile another verb does its step.

    >>> print(run(System(), "closed while a body is read", work=Path("/dev/shm")).outcome)
    good
"""
from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...slips import slip_of
from . import trial
from .. import campaign, scenarios
from ..gate import gate
from ..gate.processes import wait_for
from ..judge import layout
from ..scenarios import System

DEADLINE = 60.0  # seconds to wait for a verb at a point before it counts as hanging

Race = Callable[[System, Path], list[str]]
RACES: dict[str, Race] = {}


def race(name: str) -> Callable[[Race], Race]:
    def enter(function: Race) -> Race:
        RACES[name] = function
        return function
    return enter


@contextlib.contextmanager
def started(system: System, spool: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a verb and let it run; at the end, kill it with all its children if it has not ended."""
    process = subprocess.Popen(system.argv(words), env={**system.environment(spool), **environment}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def prepared(system: System, spool: Path, *before: scenarios.Words) -> None:
    for words in before:
        if words[0] == "CRASH":
            scenarios.crash(system, spool, words[1], words[2:])
        elif system.verb(spool, *words[:-1], stdin=words[-1]).returncode != 0:
            raise RuntimeError(f"{words} failed")


def done(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    out, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, out


@race("closed while a body is read")
def closed(system: System, spool: Path) -> list[str]:
    """A push looks whether the queue is closed, reads, and makes its slip in a queue that was closed meanwhile and said to be empty."""
    prepared(system, spool, ("create", "q", b""))
    with started(system, spool, "push", "q") as push:
        wait_for(lambda: layout.names(spool / "q/body"), "the body")
        prepared(system, spool, ("close", "q", b""))
        drained = system.verb(spool, "drain", "q").returncode
        status, out = done(push)
    wrong = [] if drained == 69 else [f"closed and empty: drain ends with {drained}"]
    if (status, out) != (69, b""):
        wrong.append(f"push into a closed queue ends with {status} and says {out!r}")
    return wrong + [f"in a closed queue: {message}" for message in layout.dump(spool).messages("q")]


@race("swept while a body is read")
def swept(system: System, spool: Path) -> list[str]:
    """A checkpoint sweeps the range of ids that a push is still at work in."""
    prepared(system, spool, ("create", "q", b""))
    with started(system, spool, "push", "q") as push:
        wait_for(lambda: layout.names(spool / "q/body"), "the body")
        newer = spool / ".ids/000000009"
        newer.mkdir()
        (newer / "open").touch()
        prepared(system, spool, ("wal", b""))
        out, _ = push.communicate(b"m1", timeout=DEADLINE)
    wrong = [] if push.returncode == 0 else [f"push ends with {push.returncode}"]
    bodies = layout.dump(spool).bodies("q", "ready")
    return wrong if bodies == [b"m1"] else [*wrong, f"pushed {out!r}, and there is {bodies}"]


@race("settled while its owner is looked for")
def settled(system: System, spool: Path) -> list[str]:
    """A pop writes out its message; a checkpoint sees no marker and looks whether the pop lives; it makes its marker and ends."""
    prepared(system, spool, *scenarios.pushes(1, 2), ("CRASH", "open q/done/", "pop", "q", b""))
    [name] = layout.names(spool / "q/out")
    slip = slip_of(name)
    pid = slip.owner.partition("-")[0] if slip else "0"
    proc = spool.with_name("proc")
    (proc / pid).mkdir(parents=True)
    for link in ("uptime", "sys", "self", "1"):
        (proc / link).symlink_to(f"/proc/{link}")
    stat = proc / pid / "stat"
    os.mkfifo(stat)
    zombie = f"{pid} (pop) Z{' 0' * 49}\n"
    with started(system, spool, "wal", "q", FLATQ_PROC=str(proc)) as checkpoint:
        fd = wait_for(lambda: reader(stat), "the look for the owner")
        try:
            (spool / "q/done" / name).touch()
            stat.rename(stat.with_name("old"))
            stat.write_text(zombie)
            os.write(fd, zombie.encode())
        finally:
            os.close(fd)
        status, _ = done(checkpoint)
    wrong = [] if status == 0 else [f"checkpoint ends with {status}"]
    bodies = layout.dump(spool).bodies("q", "ready", "reserved")
    return wrong if bodies == [b"m2"] else [*wrong, f"m1 is settled, and there is {bodies}"]


def reader(fifo: Path) -> int | None:
    """The pipe's other end, once somebody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


@race("a signal behind the marker")
def behind_the_marker(system: System, spool: Path) -> list[str]:
    """A pop has written out and settled its message when it is told to end."""
    prepared(system, spool, *scenarios.pushes(1, 2))
    log = spool / "q/log"
    log.unlink()
    os.mkfifo(log)
    with started(system, spool, "pop", "q") as pop:
        wait_for(lambda: layout.names(spool / "q/done"), "the marker")
        end = time.monotonic() + DEADLINE
        while pop.poll() is None and time.monotonic() < end:  # a signal just before it waits for the log is only seen with the next
            pop.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                pop.wait(0.1)
        _, out = done(pop)
    log.unlink()
    prepared(system, spool, ("wal", b""))
    bodies = layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if (out, bodies) == (b"m1", [b"m2"]) else [f"written out and settled: {out!r}, and there is {bodies}"]


@race("a receipt that is old")
def old_receipt(system: System, spool: Path) -> list[str]:
    """A consumer that was too slow may do nothing to a message that another one has; if only its lease has ended, it may."""
    prepared(system, spool, *scenarios.pushes(1, 1))
    receipts = []
    for lease in ("0", "0", "999999"):
        head, _, _ = system.verb(spool, "reserve", "-t", lease, "q").stdout.partition(b"\n")
        receipts.append(head.split()[0].decode())
    wrong = []
    for verb in ("delete", "release", "bury", "touch"):
        for receipt in receipts[:2]:
            status = system.verb(spool, verb, receipt).returncode
            if status != 66:
                wrong.append(f"{verb} with an old receipt ends with {status}")
    states = [(message.state, message.tries) for message in layout.dump(spool).messages("q")]
    wrong += [] if states == [("reserved", 3)] else [f"reserved for the third time, and it is {states}"]
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


@race("segments that are settled together")
def segments(system: System, spool: Path) -> list[str]:
    """Two segments of a claim are settled, and the process is killed at each of its steps: both are, or none."""
    words: scenarios.Words = ("settle", "-c", "me", "2", "q", b"")
    wrong: list[str] = []
    point, killed = 0, True
    while killed and not wrong:
        point += 1
        prepared(system, spool, *scenarios.pushes(1, 3), ("claim", "-c", "me", "-n", "1", "q", b""), ("claim", "-c", "me", "-n", "2", "q", b""))
        killed = trial.act(system, words, spool, "off", gate.Fault("kill_tree", point)).killed
        bodies = layout.dump(spool).bodies("q", "claimed")
        if bodies not in ([b"m1", b"m2"], []):
            wrong.append(f"killed before call {point}, and {bodies} are left of two")
        shutil.rmtree(spool)
    return wrong


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    return [functools.partial(_task, system, name, work) for name in RACES]


def _task(system: System, name: str, work: Path) -> list[trial.Outcome]:
    return [run(system, name, work)]


def run(system: System, name: str, work: Path) -> trial.Outcome:
    """One race, in a directory of its own below `work`."""
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="races.", dir=work) as top:
            wrong = RACES[name](system, Path(top) / "spool")
    except (AssertionError, OSError, RuntimeError, LookupError, ValueError, subprocess.TimeoutExpired) as error:  # something hangs, or is not as it should be
        wrong = [f"{type(error).__name__}: {error}"]
    replay = shlex.join(["race", name])
    return trial.Outcome(name, "", 0, "", "race", "bad" if wrong else "good", "; ".join(wrong), 0, round(time.monotonic() - began, 3), replay, "races")


def again(line: str, system: System, work: Path) -> trial.Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    name = shlex.split(line)[-1]
    if name not in RACES:
        raise ValueError(f"no race {name!r}")
    return run(system, name, work)
