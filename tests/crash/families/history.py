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
"""
from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..gate import processes
from ..judge import history_model, layout, trees
from ..judge.history_model import Event, Message
from ..scenarios import System
from ..trials import Family, Options, Seen, Trial

QUEUE = "q"
BOUND = 6
PACE = 0.022  # seconds: how long a verb is believed to take before one was struck
DEADLINE = 120.0  # seconds after which an operation counts as hanging
REBOOT = 1e9  # seconds: longer than any lease, which a restart ends


@dataclass(frozen=True)
class Fault:
    """A fault that strikes an operation: `after` a share of the time that its verb takes here, it
    is killed ("tree", or "one": its shell alone), or stopped for `hold` seconds."""

    kind: str
    after: float
    hold: float

    def strike(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it was still running. It is not reaped before, so its number is its own."""
        if process.poll() is not None:
            return False
        if self.kind == "tree":
            os.killpg(process.pid, signal.SIGKILL)
        elif self.kind == "one":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(self.hold)  # Stop it for as long as the history says
            os.killpg(process.pid, signal.SIGCONT)
        return True


@dataclass
class History:
    """The running one: its spool, what has happened."""

    system: System
    kind: str
    seed: int
    spool: Path
    deadline: float = DEADLINE
    events: list[Event] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    samples: list[tuple[float, int]] = field(default_factory=list)
    # seconds, by verb: how long it takes, as far as strikes have shown
    paces: dict[str, float] = field(default_factory=dict)
    # by worker: a receipt that is no longer its own
    stale: dict[str, str] = field(default_factory=dict)
    claimed: int = 0  # no offset before it is given any more
    later: float = 0.0  # seconds: what comes after a restart is by so much later

    def now(self) -> float:
        return time.monotonic() + self.later

    def perform(self, words: Sequence[str], data: bytes = b"", fault: Fault | None = None, *,
            who: str = "", messages: Sequence[Message] = (), receipt: str = "") -> Event:
        """One operation, to its end or to the end of its whole group. Raises AssertionError or
        subprocess.TimeoutExpired if that does not come: then there is no history."""
        self.messages.update((message.number, message) for message in messages)
        event = Event(who, tuple(words), fault=fault.kind if fault else "",
            messages=tuple(m.number for m in messages), receipt=receipt)
        event.start = self.now()
        # A file, so that it has its input before it is struck
        with open(os.memfd_create("input"), "r+b") as stdin:
            stdin.write(data)
            stdin.seek(0)
            process = subprocess.Popen(self.system.argv(words), cwd=self.spool.parent,
                env=self.system.environment(self.spool), start_new_session=True, stdin=stdin,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if fault:
            pace = self.paces.get(event.verb, PACE)
            time.sleep(fault.after * pace)  # until the strike
            # Spread the strikes until about four of five hit a running verb: on a machine that is
            # busy or wakes us late they would come after its end, or only while shells start
            self.paces[event.verb] = pace * (1.1 if fault.strike(process) else 0.7)
        try:
            event.out, event.err = process.communicate(timeout=self.deadline)
            if process.returncode == -signal.SIGKILL:
                processes.wait_for(lambda: not processes.left(processes.GROUP, process.pid),
                    f"the end of the killed {event.verb}", self.deadline)
        except (AssertionError, subprocess.TimeoutExpired):
            processes.kill(processes.left(processes.GROUP, process.pid))
            process.wait()
            raise
        event.status, event.killed = process.returncode, process.returncode == -signal.SIGKILL
        event.end = self.now()
        self.events.append(event)
        return event


# ---- the workers' operations, all drawn from the seed


def fault_of(rng: random.Random, share: float,
        kinds: Sequence[str] = ("tree", "one", "stop")) -> Fault | None:
    fault = Fault(rng.choice(kinds), rng.random(), rng.uniform(0.02, 0.25))
    return fault if rng.random() < share else None


def body_of(number: int, size: int) -> bytes:
    """Begins with the number; no NUL and no newline, so that it may travel in bulk."""
    begin = b"%d:" % number
    return begin + (b"\xff\x01%x." % (number * 2654435761)) * (size // 8) if size > 8 else begin


def producer(history: History, rng: random.Random, who: str) -> None:
    count, key, end = 1, "", b""
    lease = rng.choice((1, 2) if history.kind == "leases" else (60,))
    priority = rng.choice((65536, 65536, 65536, 10, 100000))
    words = ["push", "-t", str(lease), "-p", str(priority)]
    draw, size = rng.random(), rng.choice((0, 0, 20, 60, 1500, 4000))
    if rng.random() < 0.02:
        size = rng.choice((120_000, 300_000))
    if draw < 0.12:
        count, size = rng.randint(2, 9), size % 100
        option, end = rng.choice((("-l", b"\n"), ("-0", b"\0")))
        words += [option]
    elif draw < 0.37:
        key = f"key{rng.randint(0, 2)}"
        words += ["-k", key]
    words += ["-w", "1"] if history.kind == "bound" and rng.random() < 0.4 else []
    made = [Message(number, body_of(number, size), priority, lease, key)
        for number in itertools.islice(history.numbers, count)]
    history.perform([*words, QUEUE], b"".join(m.body + end for m in made),
        fault_of(rng, 0.25, ("tree", "tree", "one", "stop")), who=who, messages=made)


def popper(history: History, rng: random.Random, who: str) -> None:
    draw = rng.random()
    words = ["drain", "-0"] if draw < 0.04 else ["pop"]
    if 0.04 <= draw < 0.14:
        words += ["-0", "-n", str(rng.randint(2, 7))]
    elif draw > 0.9:
        words += ["-w", "1"]
    history.perform([*words, QUEUE], fault=fault_of(rng, 0.25), who=who)


#: What is done with a reserved message.
PLANS = (*[("delete",)] * 3, ("delete", "delete"), *[("release",)] * 2, ("release -d 2",),
    ("touch -t 2", "delete"), ("bury -r bad",), ("late", "delete"), ())


def reserver(history: History, rng: random.Random, who: str) -> None:
    worker, plan = who.partition(".")[0], rng.choice(PLANS)
    if history.kind == "bound" and "bury -r bad" in plan:
        # Buried messages do not count, and a kicked one comes back even without room
        plan = ("delete",)
    lease = rng.choice(("", "", "1", "2"))
    taken = history.perform(["reserve", *(["-t", lease] if lease else []), QUEUE],
        fault=fault_of(rng, 0.15), who=who)
    if not taken.done or not taken.out:
        return
    receipt = taken.out.split()[0].decode()
    if rng.random() < 0.3 and (old := history.stale.pop(worker, "")):
        history.perform(["delete", old], who=who, receipt=old)
    fault = fault_of(rng, 0.2)
    for step in plan:
        if step == "late":
            time.sleep(1.05)  # the shortest lease ends
        else:
            history.perform([*step.split(), receipt], fault=fault, who=who, receipt=receipt)
        fault = None
    if "delete" not in plan:
        history.stale[worker] = receipt


def claimer(history: History, rng: random.Random, who: str) -> None:
    """The only worker that uses its name: it claims, and then settles all or gives it back."""
    claim = history.perform(["claim", "-c", "me", "-n", str(rng.choice((2, 3, 5, 9, 20))), QUEUE],
        fault=fault_of(rng, 0.25, ("stop",)), who=who, receipt=who)
    if not claim.done:
        return
    assert re.fullmatch(rb"(\d+ [1-9]\d* /.+\n)+", claim.out), claim
    listed = layout.listed(claim.out)
    claim.claimed, before = tuple(listed.values()), history.claimed
    assert sorted(listed) == list(listed) and min(listed) >= before, (claim, before)
    history.claimed = max(listed) + 1
    end = rng.choice((["settle", "-c", "me", str(history.claimed)], ["unclaim", "-c", "me"]))
    if not history.perform([*end, QUEUE], fault=fault_of(rng, 0.25), who=who, receipt=who).done:
        history.perform(["unclaim", "-c", "me", QUEUE], who=who, receipt=who)


def keeper(history: History, rng: random.Random, who: str) -> None:
    """Checkpoints, kicks and counts."""
    words = rng.choice((*[["wal"]] * 3, ["kick", "-n", "3"], ["stat"]))
    history.perform([*words, QUEUE], fault=fault_of(rng, 0.35), who=who)


def sampler(history: History, rng: random.Random, who: str) -> None:
    """Counts the bounded queue under its lock: nothing can be added meanwhile, and an id that is
    seen twice is one message."""
    with open(history.spool / QUEUE / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):  # a taker moves a flat file meanwhile
            ids = {message.id for message in layout.dump(history.spool).messages(QUEUE)}
            history.samples.append((time.monotonic(), len(ids)))
    time.sleep(rng.uniform(0.005, 0.03))  # between two samples


Role = Callable[[History, random.Random, str], None]
#: The workers of each kind: how many, and how often each does its operation.
KINDS: dict[str, dict[Role, tuple[int, int]]] = {
    "kills": {producer: (3, 24), popper: (2, 26), keeper: (1, 15), claimer: (1, 12)},
    "leases": {producer: (2, 20), reserver: (3, 13), popper: (1, 8), keeper: (1, 18),
        claimer: (1, 8)},
    "bound": {producer: (4, 16), popper: (1, 24), reserver: (1, 7), sampler: (1, 80),
        keeper: (1, 8)},
}


def work_on(history: History) -> None:
    """Let all workers of the kind do their operations side by side; each draws for itself."""
    def worker(role: Role, number: int, turns: int) -> None:
        rng = random.Random(f"{history.kind}.{history.seed}.{role.__name__}.{number}")
        for turn in range(turns):
            role(history, rng, f"{role.__name__}{number}.{turn}")

    crew = [(role, number, turns) for role, (count, turns) in KINDS[history.kind].items()
        for number in range(count)]
    with ThreadPoolExecutor(len(crew)) as pool:
        list(pool.map(lambda one: worker(*one), crew))


def finish(history: History) -> list[str]:
    """Called when all workers have ended: take out what is left; with leases, after a restart,
    which puts back all that was handed out."""
    if history.kind != "kills":
        layout.reboot(history.spool)
        history.later = REBOOT
    history.perform(["wal"], who="end")
    for words in (["kick", "-n", "999"], ["drain", "-0"]):
        for _ in range(50):
            done = history.perform([*words, QUEUE], who="end")
            if done.status or done.out == b"0\n":
                break
    history.perform(["wal"], who="end")
    return [f"left over: {path.relative_to(history.spool)}" for place in ("wal", "fold", "queue",
        "unfold", "head", "out", "delayed", "buried", "claimed")
            for path in sorted((history.spool / QUEUE / place).rglob("*")) if path.is_file()
            and not path.name.startswith("settled.") and path.name != "~"]


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    kind, bound = trial.scenario, BOUND if trial.scenario == "bound" else 0
    with tempfile.TemporaryDirectory(prefix="history.", dir=work) as top:
        history = History(system, kind, trial.numbers[0], Path(top, "spool"))
        history.perform(["create", *(["-b", f"{bound}"] if bound else []), QUEUE])
        work_on(history)
        wrong, after = finish(history), trees.take(history.spool)
    wrong += history_model.check(history.events, history.messages, bound, history.samples)
    killed = sum(event.killed for event in history.events)
    return Seen(f"{len(history.events)} operations, {killed} killed, "
        f"{len(history.messages)} messages", wrong[:12], after=after)


def trials(system: System, kind: str, options: Options, work: Path) -> list[Trial]:
    """The seeds are the points; without a limit, a hundred."""
    first = options.seed + 1
    return [Trial("history", kind, "killed or stopped", str(seed)) for seed in range(first,
        first + (options.limit or 100)) if options.wants("killed or stopped")]


FAMILY = Family(("killed or stopped",), lambda system: () if system.baseline else [*KINDS], trials,
    run, 200, lambda: "")
