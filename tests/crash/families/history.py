"""A history: producers and consumers side by side as real processes, some of them killed or
stopped, and the fate of each message.

The seed decides what is done, with which arguments, and when it is struck; the machine decides
which process runs first. So the same seed need not fail again, but if one run in a few finds a
fault, repeating it finds the fault soon. Every operation is recorded with the interval in which its
effect can lie; `history_model.check` reports what no order of effects explains.

Kinds
    kills    push, push -k, bulk pushes, pop, bulk pops, drain, claims and checkpoints; killed as a
             tree or the shell alone, and stopped
    leases   reserve with delete, release, touch, bury and kick; leases that run out, receipts that
             are used twice
    bound    a queue that holds six messages at most; samples under its lock, under which no message
             can be added
    clock    an uptime of its own (FLATQ_PROC), which is set forward while operations run; between
             two halves the system "restarts", and the wall clock is set back or forward
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..gate import processes
from ..judge import history_claims, history_model, layout, trees
from ..judge.history_events import Event, Message
from ..scenarios import System
from ..trials import Family, Options, Seen, Trial

KINDS = ("kills", "leases", "bound", "clock")
QUEUE = "q"
NAME = "me"  # the NAME that claims
BOUND = 6
PACE = 0.022  # seconds: how long a verb is believed to take before one was struck
DEADLINE = 120.0  # seconds after which an operation counts as hanging, and the history ends


@dataclass(frozen=True)
class Fault:
    """A fault that strikes an operation: `after` a share of the time that its verb takes here, it
    is killed ("tree", or "one": its shell alone), or stopped for `hold` seconds."""

    kind: str
    after: float
    hold: float = 0.0


class Clock:
    """The uptime, in seconds: the system's, or one that the history advances. That is later than
    the system's, or a process would seem to have begun after it got a message."""

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.boot = path, 0
        self.low = self.high = 0.0
        self.base = time.clock_gettime(time.CLOCK_BOOTTIME) + 100_000
        if path:
            random_path = path / "sys/kernel/random"
            random_path.mkdir(parents=True)
            (random_path / "uuid").symlink_to("/proc/sys/kernel/random/uuid")
            self.restart(0)

    def span(self) -> tuple[float, float]:
        """No less and no more than what a process can read now."""
        if self.path:
            return self.low, self.high
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return now - 0.01, now

    def advance(self, seconds: float) -> None:
        self.high = self.low + seconds
        self._write(self.high)
        self.low = self.high

    def restart(self, boot: int) -> None:
        """Only while nothing runs."""
        assert self.path
        self.boot = boot
        self.low = self.high = self.base + (10.0 if boot else 5000.0)
        (self.path / "sys/kernel/random/boot_id").write_text(f"boot-{boot}\n")
        self._write(self.high)

    def _write(self, seconds: float) -> None:
        assert self.path
        new = self.path / "uptime.new"
        new.write_text(f"{seconds:.2f} {seconds:.2f}\n")
        new.rename(self.path / "uptime")


class Over(Exception):
    """An operation hangs: the history ends here."""


@dataclass
class History:
    """The running one: its spool, its clock, what has happened."""

    system: System
    kind: str
    seed: int
    spool: Path
    clock: Clock
    environment: dict[str, str]
    deadline: float = DEADLINE
    events: list[Event] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    samples: list[tuple[float, int]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    # seconds, by verb: how long it takes, as far as strikes have shown
    paces: dict[str, float] = field(default_factory=dict)

    def perform(self, words: Sequence[str], data: bytes = b"", fault: Fault | None = None, *,
            who: str = "", messages: Sequence[Message] = (), receipt: str = "") -> Event:
        """One operation, to its end or to the end of its whole group."""
        if self.broken:
            raise Over
        for message in messages:
            self.messages[message.number] = message
        event = Event(who, tuple(words), fault=fault.kind if fault else "",
            messages=tuple(m.number for m in messages), receipt=receipt, boot=self.clock.boot)
        event.start, event.up_start = time.monotonic(), self.clock.span()[0]
        # A file, since in Python 3.11 the second communicate() after a timeout forgets the input
        with open(os.memfd_create("input"), "r+b") as stdin:
            stdin.write(data)
            stdin.seek(0)
            process = subprocess.Popen(self.system.argv(words), env=self.environment,
                cwd=self.spool.parent, start_new_session=True, stdin=stdin,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        pace, struck = self.paces.get(event.verb, PACE), False
        try:
            try:
                event.out, event.err = process.communicate(
                    timeout=fault.after * pace if fault else self.deadline)
            except subprocess.TimeoutExpired:
                if not fault:
                    raise
                struck = strike(process, fault)
                event.out, event.err = process.communicate(timeout=self.deadline)
            if fault:
                # Spread the strikes until about four of five hit a running verb: on a machine that
                # is busy or wakes us late they would come after its end, or only while shells start
                self.paces[event.verb] = pace * (1.1 if struck else 0.7)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            event.out, event.err = process.communicate()
            self.broken.append(f"{who}: {' '.join(words)}: not over after {self.deadline:g} s")
        event.status, event.killed = process.returncode, process.returncode == -signal.SIGKILL
        end = time.monotonic() + self.deadline
        while event.killed and processes.left(processes.GROUP, process.pid):
            if time.monotonic() > end:
                self.broken.append(f"{who}: {' '.join(words)}: killed, and something of it goes on")
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.001)
        event.end, event.up_end = time.monotonic(), self.clock.span()[1]
        self.events.append(event)
        return event


def strike(process: subprocess.Popen[bytes], fault: Fault) -> bool:
    """Kill or stop it, where it has not ended: it is not reaped before, so its number is its own.
    Whether it had not."""
    if process.poll() is not None:
        return False
    if fault.kind == "tree":
        os.killpg(process.pid, signal.SIGKILL)
    elif fault.kind == "one":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(fault.hold)  # Stop it for as long as the history says
        os.killpg(process.pid, signal.SIGCONT)
    return True


# ---- the workers' operations, all drawn from the seed


def fault_of(rng: random.Random, kinds: Sequence[str], share: float) -> Fault | None:
    draw = rng.random(), rng.choice(kinds), rng.random(), rng.uniform(0.02, 0.25)
    return Fault(draw[1], draw[2], draw[3]) if draw[0] < share else None


def body_of(number: int, size: int) -> bytes:
    """Begins with the number; no NUL and no newline, so that it may travel in bulk."""
    begin = b"%d:" % number
    return begin + (b"\xff\x01%x." % (number * 2654435761)) * (size // 8) if size > 8 else begin


def producer(history: History, rng: random.Random, who: str, first: int, turns: int) -> None:
    leased, clocked = history.kind in ("leases", "clock"), history.kind == "clock"
    number = first
    for turn in range(turns):
        words, count, key, delay = ["push"], 1, "", 0
        lease = rng.choice((5, 20)) if clocked else rng.choice((1, 2)) if leased else 60
        priority = rng.choice((65536, 65536, 65536, 10, 100000))
        draw, size, mode = rng.random(), rng.choice((0, 0, 20, 60, 1500, 4000)), rng.choice("l0")
        if rng.random() < 0.02:
            size = rng.choice((120_000, 300_000))
        fault = fault_of(rng, ("tree", "tree", "one", "stop"), 0.25)
        if draw < 0.12:
            count = rng.randint(2, 9)
            words += ["-" + mode]
        elif draw < 0.37:
            key = f"key{rng.randint(0, 2)}"
            words += ["-k", key]
        elif draw < 0.52 and clocked:
            delay = rng.choice((3, 15, 40))
            words += ["-d", str(delay)]
        words += ["-p", str(priority)] if priority != 65536 else []
        words += ["-t", str(lease)] if lease != 60 else []
        words += ["-w", "1"] if history.kind == "bound" and rng.random() < 0.4 else []
        made = [Message(number + k, body_of(number + k, size if count == 1 else size % 100),
            priority, delay, lease, key) for k in range(count)]
        number += count
        end = {"l": b"\n", "0": b"\0"}[mode] if count > 1 else b""
        history.perform([*words, QUEUE], b"".join(m.body + end for m in made), fault,
            who=f"{who}.{turn}", messages=made)


def popper(history: History, rng: random.Random, who: str, turns: int) -> None:
    for turn in range(turns):
        draw, count = rng.random(), rng.randint(2, 7)
        wait = ["-w", "1"] if history.kind != "clock" and rng.random() < 0.1 else []
        many = ["pop", "-0", "-n", str(count)]
        words = ["drain", "-0"] if draw < 0.04 else many if draw < 0.14 else ["pop", *wait]
        history.perform([*words, QUEUE], fault=fault_of(rng, ("tree", "one", "stop"), 0.25),
            who=f"{who}.{turn}")


def reserver(history: History, rng: random.Random, who: str, turns: int) -> None:
    clocked = history.kind == "clock"
    stale: list[str] = []
    for turn in range(turns):
        lease = rng.choice(("", "", "1", "2")) if not clocked else rng.choice(("", "4", "30"))
        fault = fault_of(rng, ("tree", "one", "stop"), 0.15)
        plan = rng.choice(("delete", "delete", "delete", "twice", "release", "release", "later",
            "touch", "bury", "lost", "late"))
        follow = fault_of(rng, ("tree", "one", "stop"), 0.2)
        old = rng.random() < 0.3
        if history.kind == "bound" and plan == "bury":
            # Buried messages do not count, and a kicked one comes back even without room
            plan = "delete"
        taken = history.perform(["reserve", *(["-t", lease] if lease else []), QUEUE], fault=fault,
            who=f"{who}.{turn}")
        head = taken.out.split(b"\n", 1)[0].split()
        if taken.killed or taken.status != 0 or not head:
            continue
        receipt = head[0].decode()

        def use(verb: str, *options: str, fault: Fault | None = None,
                receipt: str = receipt) -> Event:
            return history.perform([verb, *options, receipt], fault=fault, who=f"{who}.{turn}",
                receipt=receipt)

        if old and stale:
            use("delete", receipt=stale.pop())
        if plan in ("delete", "twice"):
            use("delete", fault=follow)
            if plan == "twice":
                use("delete")
        elif plan == "release":
            use("release", fault=follow)
        elif plan == "later":
            use("release", "-d", "12" if clocked else "1", fault=follow)
        elif plan == "touch":
            use("touch", "-t", "25" if clocked else "2", fault=follow)
            use("delete")
        elif plan == "bury":
            use("bury", "-r", "bad", fault=follow)
        elif plan == "late":
            if not clocked:
                time.sleep(1.05)  # the shortest lease ends
            use("delete")
        if plan in ("release", "later", "lost"):
            stale.append(receipt)


def claimer(history: History, rng: random.Random, who: str, turns: int) -> None:
    """The only worker that uses its name: it claims, then settles some or all, gives it back, or
    claims more."""
    for turn in range(turns):
        count = rng.choice((0, 2, 3, 5, 9, 20))
        plan = rng.choice(("all", "all", "first", "unclaim", "more"))
        fault, follow = (fault_of(rng, ("tree", "one", "stop"), 0.25) for _ in "12")
        claim = history.perform(["claim", "-c", NAME, "-n", str(count), QUEUE], fault=fault,
            who=f"{who}.{turn}")
        if claim.killed or claim.status or not history_claims.sound(claim):
            continue
        claim.claimed = layout.listed(claim.out)
        ends = [int(line.split()[0]) + int(line.split()[1]) for line in claim.out.splitlines()]
        if plan in ("all", "first"):
            history.perform(["settle", "-c", NAME, str(ends[-1] if plan == "all" else ends[0]),
                QUEUE], fault=follow, who=f"{who}.{turn}")
        elif plan == "unclaim":
            history.perform(["unclaim", "-c", NAME, QUEUE], fault=follow, who=f"{who}.{turn}")


def keeper(history: History, rng: random.Random, who: str, turns: int) -> None:
    """Checkpoints, kicks and counts; in `clock`, the clock."""
    for turn in range(turns):
        draw = rng.random()
        fault = fault_of(rng, ("tree", "one", "stop"), 0.35)
        words = ["wal"] if draw < 0.6 else ["kick", "-n", "3"] if draw < 0.8 else ["stat"]
        step = rng.choice((0.3, 1.5, 6.0, 33.0))
        history.perform([*words, QUEUE], fault=fault, who=f"{who}.{turn}")
        if history.kind == "clock" and rng.random() < 0.6:
            history.clock.advance(step)


def sample(history: History, rng: random.Random, who: str, turns: int) -> None:
    """Counts the bounded queue under its lock: nothing can be added meanwhile, and an id that is
    seen twice is one message."""
    for _ in range(turns):
        with open(history.spool / QUEUE / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):  # a taker moves a flat file meanwhile
                ids = {message.id for message in layout.dump(history.spool).messages(QUEUE)}
                history.samples.append((time.monotonic(), len(ids)))
        time.sleep(rng.uniform(0.005, 0.03))  # between two samples


def workers(history: History, half: int) -> list[Callable[[], None]]:
    """Roles of one half of the history. Each has numbers for its messages, and a generator of its
    own."""
    kinds: dict[str, list[tuple[Callable[..., None], int]]] = {
        "kills": [*[(producer, 24)] * 3, *[(popper, 26)] * 2, (keeper, 15), (claimer, 12)],
        "leases": [*[(producer, 20)] * 2, *[(reserver, 13)] * 3, (popper, 8), (keeper, 18),
            (claimer, 8)],
        "bound": [*[(producer, 16)] * 4, (popper, 24), (reserver, 7), (sample, 80), (keeper, 8)],
        "clock": [*[(producer, 14)] * 2, *[(reserver, 10)] * 2, (popper, 10), (keeper, 12),
            (claimer, 8)],
    }

    def bind(index: int, role: Callable[..., None], turns: int) -> Callable[[], None]:
        rng = random.Random(f"{history.kind}.{history.seed}.{half}.{index}")
        first = ((half * 10 + index + 1) * 10000,) if role is producer else ()
        return lambda: role(history, rng, f"{role.__name__}{half}{index}", *first, turns)

    return [bind(index, role, turns) for index, (role, turns) in enumerate(kinds[history.kind])]


def finish(history: History) -> list[str]:
    """Called when all workers have ended: take out what is left; with leases, after a restart,
    which puts back all that was handed out."""
    if history.clock.path:
        history.clock.advance(10_000)
    elif history.kind in ("leases", "bound"):
        shutil.rmtree(history.spool / ".boot")
        history.clock.boot += 1
    history.perform(["wal"], who="end")
    history.perform(["unclaim", "-c", NAME, QUEUE], who="end")
    for _ in range(50):
        if history.perform(["kick", "-n", "999", QUEUE], who="end").out in (b"0\n", b""):
            break
    for _ in range(50):
        if history.perform(["drain", "-0", QUEUE], who="end").status != 0:
            break
    history.perform(["wal"], who="end")
    return [f"left over: {path.relative_to(history.spool)}" for place in ("wal", "fold", "queue",
        "unfold", "head", "out", "delayed", "buried", "claimed")
            for path in sorted((history.spool / QUEUE / place).rglob("*")) if path.is_file()
            and not path.name.startswith("settled.") and path.name != "~"]


def play(system: System, kind: str, seed: int, top: Path) -> tuple[History, list[str]]:
    """Run it; the history and what is left over at its end."""
    environment = dict(system.environment(top / "spool"))
    clock = Clock(top / "proc" if kind == "clock" else None)
    if clock.path:
        (top / "bin").mkdir()
        (top / "bin/date").write_text(
            f'#!/bin/sh\nread -r now <"{top}/now"\nprintf "%s\\n" "$now"\n')
        (top / "bin/date").chmod(0o755)
        (top / "now").write_text("1700000000\n")
        environment.update(FLATQ_PROC=str(clock.path), PATH=f"{top}/bin:{environment['PATH']}")
    history = History(system, kind, seed, top / "spool", clock, environment)
    history.perform(["create", *(["-b", str(BOUND)] if kind == "bound" else []), QUEUE],
        who="begin")
    for half in range(2 if kind == "clock" else 1):
        if half:
            step = random.Random(seed).choice((-3600, 0, 86400))
            (top / "now").write_text(f"{1700000000 + step}\n")
            clock.restart(half)
        roles = workers(history, half)
        with ThreadPoolExecutor(len(roles)) as pool:
            for running in [pool.submit(role) for role in roles]:
                with contextlib.suppress(Over):
                    running.result()
    try:
        return history, finish(history)
    except Over:
        return history, []


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    kind, seed = trial.scenario, trial.numbers[0]
    with tempfile.TemporaryDirectory(prefix="history.", dir=work) as directory:
        top = Path(directory)
        history, left = play(system, kind, seed, top)
        after = trees.take(history.spool)
    # of one that was cut short, only the reason
    wrong = history.broken or left + history_model.check(history.events, history.messages, kind,
        BOUND if kind == "bound" else 0, history.samples)
    killed = sum(event.killed for event in history.events)
    return Seen(f"{len(history.events)} operations, {killed} killed, "
        f"{len(history.messages)} messages", wrong[:12], after=after)


def trials(system: System, kind: str, options: Options, work: Path) -> list[Trial]:
    """The seeds are the points; without a limit, a hundred."""
    first = options.seed + 1
    return [Trial("history", kind, "killed or stopped", str(seed)) for seed in range(first,
        first + (options.limit or 100)) if options.wants("killed or stopped")]


FAMILY = Family(("killed or stopped",), lambda system: () if system.baseline else KINDS, trials,
    run, 200, lambda: "")
