"""A trial: a pure function of (scenario, fault, point, seed) to an outcome, replayed from the line that str(trial) is."""
from __future__ import annotations

import functools
import os
import shlex
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import faults, gate, layout, memo, oracle, trees
from .scenarios import SCENARIOS, Scenario, System, Words, build

#: What may be broken a second time, on what the first crash has left: the recovery, and the next verb.
SECONDS: dict[str, Words] = {
    "wal": ("wal", b""),
    "push": ("push", "q", b"again"),
    "pop": ("pop", "q", b""),
    "drain": ("drain", "-0", "q", b""),
    "claim": ("claim", "-c", "again", "q", b""),
}
#: Exit codes that a verb may end with when a call of it has failed.
CODES = (0, 65, 66, 69, 70, 74, 75, 77)


@dataclass(frozen=True)
class Second:
    """The second crash: `verb`, of SECONDS, is killed at its call number `point`."""

    verb: str
    point: int

    def __str__(self) -> str:
        return f"{self.verb} {self.point}"


@dataclass(frozen=True)
class Trial:
    scenario: str
    fault: str
    point: int
    seed: int = 0
    second: Second | None = None

    @classmethod
    def parse(cls, line: str) -> Trial:
        """The trial whose str() this is. Raises ValueError."""
        words = shlex.split(line)
        options = dict(zip(words[::2], words[1::2]))
        if len(words) % 2 or not {"--scenario", "--fault", "--point"} <= set(options):
            raise ValueError(f"no trial: {line}")
        return cls.of(options["--scenario"], options["--fault"], int(options["--point"]), int(options.get("--seed", 0)),
                      options.get("--second", ""))

    @classmethod
    def of(cls, scenario: str, fault: str, point: int, seed: int = 0, second: str = "") -> Trial:
        """With `second` as text, "VERB POINT". Raises ValueError."""
        if scenario not in SCENARIOS:
            raise ValueError(f"no scenario {scenario!r}")
        faults.make(fault, point)
        verb, _, number = second.partition(" ")
        if second and (verb not in SECONDS or not number.isdecimal()):
            raise ValueError(f"no second crash {second!r}: one of {', '.join(SECONDS)}, and a number")
        return cls(scenario, fault, point, seed, Second(verb, int(number)) if second else None)

    def __str__(self) -> str:
        words = ["--scenario", self.scenario, "--fault", self.fault, "--point", str(self.point)]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--second", str(self.second)] if self.second else []
        return shlex.join(words)


@dataclass
class Outcome:
    scenario: str
    verb: str
    point: int
    call: str  # kind and paths of the call that was struck
    fault: str
    outcome: str  # good, bad, not reached
    detail: str
    seed: int
    seconds: float
    replay: str
    family: str = "crash"
    second: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def show(call: gate.Call) -> str:
    return " ".join((call.comm + ":", call.kind, *call.paths))


@functools.lru_cache(maxsize=8)
def base(system: System, scenario: str, work: Path) -> tuple[trees.Tree, Words]:
    """The spool before the act, and the act."""
    def make() -> tuple[trees.Tree, Words]:
        spool = work / f"base.{os.getpid()}"
        trees.remove(spool)
        words = build(system, SCENARIOS[scenario], spool)
        tree = trees.take(spool)
        trees.remove(spool)
        return tree, words

    return memo.once(work, ("base", system, scenario), make)


def act(system: System, words: Words, spool: Path, sync: str, fault: gate.Fault | None = None, output: bool = True) -> gate.Result:
    """Run the verb. `output`: what it writes out counts as well as what it does to the spool."""
    return gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync), stdin=words[-1], fault=fault, timeout=600,
                    count_stdout=output)


def calls(system: System, scenario: str, work: Path, output: bool = True) -> list[gate.Call]:
    """The calls of the act where nothing happens to it; `output`: as in act(). Raises RuntimeError where that alone goes wrong."""
    found = memo.once(work, ("calls", system, scenario), lambda: _undisturbed(system, scenario, work))
    changes = (call for call in found if call.paths not in (("<stdout>",), ("<fd1>",)))
    return found if output else [replace(call, seq=number) for number, call in enumerate(changes, 1)]


def _undisturbed(system: System, scenario: str, work: Path) -> list[gate.Call]:
    tree, words = base(system, scenario, work)
    spool = fresh(tree, work)
    whole = act(system, words, spool, SCENARIOS[scenario].sync)
    wrong = [] if whole.status == 0 else [f"exit {whole.status}: {whole.stderr!r}"]
    says, new = SCENARIOS[scenario].says, SCENARIOS[scenario].new
    if says not in whole.stdout or new and not says and not oracle.stored(whole.stdout):
        wrong.append(f"not acknowledged: {whole.stdout!r}")
    wrong = wrong or oracle.at_once(SCENARIOS[scenario], spool, whole.stdout)
    wrong = wrong or oracle.judge(system, oracle.expected(SCENARIOS[scenario], True, whole.stdout), trees.take(spool), spool, then_push=False)
    trees.remove(spool)
    if wrong:
        raise RuntimeError(f"{scenario}, undisturbed: {wrong}")
    return whole.calls


def place(work: Path) -> Path:
    """Where this process makes spools, one after the other."""
    return work / f"spool.{os.getpid()}"


def fresh(tree: trees.Tree, work: Path) -> Path:
    spool = place(work)
    trees.remove(spool)
    trees.put(tree, spool)
    return spool


def manners(scenario: Scenario, trial: Trial, result: gate.Result) -> list[str]:
    """How a verb must end that was not killed itself: in time, with a code of its own and one line at most."""
    if result.timed_out:
        return ["hangs"]
    wrong = []
    if result.status > 0 and result.status not in CODES:
        wrong.append(f"exit {result.status}: {result.stderr[:200]!r}")
    if result.status >= 0 and not faults.kills(trial.fault) and trial.fault != "kill one":
        if result.stderr.count(b"\n") > scenario.complaints:
            wrong.append(f"more than {scenario.complaints} lines: {result.stderr[:300]!r}")
    return wrong


def modes(trial: Trial) -> list[dict[str, bool]]:
    """Recover; push and recover; after a kill of the whole tree also recover after a boot."""
    found = [{"then_push": False}, {"then_push": True}]
    return [*found, {"then_push": False, "boot": True}] if trial.fault == "kill" and not trial.second else found


@functools.lru_cache(maxsize=4)
def wreck(system: System, trial: Trial, work: Path) -> tuple[gate.Result, trees.Tree]:
    """How the act of the trial ends, and what it leaves."""
    tree, words = base(system, trial.scenario, work)
    spool = fresh(tree, work)
    result = act(system, words, spool, SCENARIOS[trial.scenario].sync, faults.make(trial.fault, trial.point),
                 faults.counts_output(trial.fault))
    return result, trees.take(spool)


def again(system: System, ledger: oracle.Ledger, second: Second, spool: Path, sync: str, fault: bool = True) -> gate.Result:
    """The second crash; what it may have changed is entered in the ledger."""
    layout.age(spool)
    words = SECONDS[second.verb]
    held = [body for body in oracle.dump(spool).bodies() if body is not None] if second.verb in ("pop", "drain") else []
    result = act(system, words, spool, sync, gate.Fault("kill_tree", second.point) if fault else None)
    if second.verb == "push":
        ledger.order.append(words[-1])
        if oracle.stored(result.stdout):
            ledger.must.add(words[-1])
    ledger.delivered(oracle.said(words, result.stdout, held))
    return result


def run(trial: Trial, system: System, work: Path) -> Outcome:
    """Carry it out, with spools in the directory `work`; nothing is left there."""
    begun = time.monotonic()
    try:
        call, reached, wrong = _carry_out(trial, system, work)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:  # a verb of the recovery hangs, or cannot be started
        call, reached, wrong = "", True, [f"{type(error).__name__}: {error}"]
    return Outcome(trial.scenario, SCENARIOS[trial.scenario].verb, trial.point, call, trial.fault,
                   "bad" if wrong else "good" if reached else "not reached", "; ".join(dict.fromkeys(wrong)), trial.seed,
                   round(time.monotonic() - begun, 4), str(trial), second=str(trial.second or ""))


def _carry_out(trial: Trial, system: System, work: Path) -> tuple[str, bool, list[str]]:
    """The call that was struck, whether one was, and what is wrong."""
    scenario = SCENARIOS[trial.scenario]
    result, tree = wreck(system, Trial(trial.scenario, trial.fault, trial.point), work)
    wrong: list[str] = []
    struck = [call for call in result.calls if call.fate != "run"]
    reached = bool(struck)
    call = show(struck[0]) if struck else ""
    if reached:
        acked = scenario.says in result.stdout if scenario.says else result.status == 0 and not faults.kills(trial.fault)
        wrong += manners(scenario, trial, result)
        ledger = oracle.expected(scenario, acked, result.stdout)
        if trial.second:
            spool = fresh(tree, work)
            twice = again(system, ledger, trial.second, spool, scenario.sync)
            reached, tree = bool(twice.fired), trees.take(spool)
            call += "; then " + show(twice.calls[-1]) if reached else ""
        elif acked:
            wrong += oracle.at_once(scenario, fresh(tree, work), result.stdout)
        for mode in modes(trial) if reached else []:
            found = oracle.judge(system, ledger, tree, place(work), **mode)
            how = "then a push: " if mode["then_push"] else "after a boot: " if mode.get("boot") else ""
            wrong += [how + text for text in found]
        trees.remove(place(work))
    return call, reached, wrong
