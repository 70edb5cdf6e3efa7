"""A trial: a pure function of (scenario, fault, point, seed) to an outcome. str(trial) replays
it."""
from __future__ import annotations

import functools
import os
import random
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import memo
from ..gate import faults, gate
from ..judge import layout, oracle, trees
from ..scenarios import NAMED, Scenario, System, Words, build

#: The verbs that may be killed in a second crash, on what the first one has left.
SECOND_VERBS: dict[str, Words] = {
    "wal": ("wal", b""),
    "push": ("push", "q", b"again"),
    "pop": ("pop", "q", b""),
    "drain": ("drain", "-0", "q", b""),
    "claim": ("claim", "-c", "again", "q", b""),
}
#: Exit codes that a verb may end with when a call of it has failed.
CODES = (0, 65, 66, 69, 70, 74, 75, 77)
#: A shell that cannot start a process may end by itself, with a code of its own.
SHELLS_OWN = (2, 126, 129, 254)
#: Codes that say what is in the queue. Undisturbed, every scenario succeeds: so after a failed read
#: they are wrong.
UNTRUE = (65, 66, 69)
#: A door's words for these, and for a failure, after which later statements may be true.
UNTRUTHS = re.compile(rb"^(?:NOT_FOUND|TIMED_OUT|(?:HTTP/1\.1 )?204)\b", re.M)
FAILURES = re.compile(rb"^(?:INTERNAL_ERROR|OUT_OF_MEMORY|(?:HTTP/1\.1 )?5\d\d)\b", re.M)
MANY = 200  # calls: in a longer run, the spool is kept only at the one call that is asked for


def following(verb: str, queue: str) -> Words:
    """The verb of SECOND_VERBS, on that queue."""
    return tuple(queue if word == "q" else word for word in SECOND_VERBS[verb])


@dataclass(frozen=True)
class Second:
    """The second crash: `verb`, of SECOND_VERBS, is killed at its call number `point`."""

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
        given = dict(zip(words[::2], words[1::2]))
        if len(words) % 2 or not {"--scenario", "--fault", "--point"} <= set(given):
            raise ValueError(f"no trial: {line}")
        return cls.of(given["--scenario"], given["--fault"], int(given["--point"]),
            int(given.get("--seed", 0)), given.get("--second", ""))

    @classmethod
    def of(cls, scenario: str, fault: str, point: int, seed: int = 0, second: str = "") -> Trial:
        """With `second` as text, "VERB POINT". Raises ValueError."""
        if scenario not in NAMED:
            raise ValueError(f"no scenario {scenario!r}")
        faults.make(fault, point)
        verb, _, number = second.partition(" ")
        if second and (verb not in SECOND_VERBS or not number.isdecimal()):
            raise ValueError(f"no second crash {second!r}: of {', '.join(SECOND_VERBS)}, a number")
        return cls(scenario, fault, point, seed, Second(verb, int(number)) if second else None)

    def __str__(self) -> str:
        words = ["--scenario", self.scenario, "--fault", self.fault, "--point", str(self.point)]
        words += ["--seed", str(self.seed)] if self.seed else []
        return shlex.join([*words, *(["--second", str(self.second)] if self.second else [])])


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
        words = build(system, NAMED[scenario], spool)
        tree = trees.take(spool)
        trees.remove(spool)
        return tree, words

    return memo.once(work, ("base", system, scenario), make)


def act(system: System, words: Words, spool: Path, sync: str, fault: gate.Fault | None = None,
        kinds: frozenset[str] | None = None, each: gate.Each | None = None) -> gate.Result:
    """Run the verb. `kinds`: count only these calls (faults.kinds)."""
    return gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync),
        stdin=words[-1], fault=fault, timeout=600, kinds=kinds, count_stdout=True,
        record_data=each is not None, each=each)


@dataclass(frozen=True, eq=False)
class Moment:
    """The moment before a call of an undisturbed run: the spool, and the output so far."""

    call: gate.Call
    stdout: bytes
    stderr: bytes
    tree: trees.Tree

    def killed(self, fault: gate.Fault, before: Sequence[gate.Call]) -> tuple[gate.Result,
            trees.Tree]:
        """How the run would have ended, and what it would have left, had the fault, a "kill_tree"
        or a "torn", struck here."""
        if not fault.strikes(self.call):
            return gate.Result(status=-9, calls=list(before)), self.tree
        torn = fault.kind == "torn"
        data = (self.call.data or b"")[:fault.part(self.call.size)] if torn else b""
        answer = self.call.paths == ("<stdout>",)
        call = replace(self.call, fate="torn" if data else "killed", data=None, offset=None)
        result = gate.Result(-9, self.stdout + (data if answer else b""), self.stderr,
            [*before, call], fired=1, killed=True)
        if answer or not data:
            return result, self.tree
        return result, trees.written(self.tree, self.call.paths[0], self.call.offset or 0, data)


def moments(system: System, words: Words, tree: trees.Tree, work: Path, sync: str,
        only: int | None = None) -> tuple[list[Moment], gate.Result]:
    """Run the verb once in this spool, and record what a kill leaves at each of its calls; `only`:
    at that one."""
    found: dict[int, Moment] = {}

    def keep(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if only is None or call.seq == only:
            found[call.seq] = Moment(call, stdout, stderr, trees.take(place(work)))

    result = act(system, words, fresh(tree, work), sync, each=keep)
    # a caller that died before its call was let go has made none: its number went to the next
    return [found[call.seq] for call in result.calls if call.seq in found], result


def calls(system: System, scenario: str, work: Path,
        kinds: frozenset[str] | None = None) -> list[gate.Call]:
    """The calls of the act where nothing happens to it: changes, or those of `kinds`. Raises
    RuntimeError where that alone goes wrong."""
    def find() -> list[gate.Call]:
        tree, words = base(system, scenario, work)
        if kinds is None:
            return _undisturbed(system, scenario, work)
        return act(system, words, fresh(tree, work), NAMED[scenario].sync, kinds=kinds).calls

    # The run with the fewest calls, of two: a verb makes more if it looks at something once a
    # second and the machine is busy, and a trial that is numbered by such a run may not reach its
    # own. Of six where forks count: the kernel begins one in some hundred anew, which counts twice
    runs = 6 if kinds and kinds >= gate.FORKS else 2
    return memo.once(work, ("calls", system, scenario, sorted(kinds or ())),
        lambda: min((find() for _ in range(runs)), key=len))


def struck(system: System, scenario: str, work: Path) -> list[gate.Call]:
    """The calls of the run that gives what a kill leaves: processes side by side make theirs in
    another order each time."""
    known = calls(system, scenario, work)
    if len(known) > MANY:
        return known
    return [moment.call for moment in _moments(system, scenario, work, None)[0]]


def _undisturbed(system: System, scenario: str, work: Path) -> list[gate.Call]:
    tree, words = base(system, scenario, work)
    spool, given = place(work), NAMED[scenario]
    whole = act(system, words, fresh(tree, work), given.sync)
    wrong = [] if whole.status == 0 else [f"exit {whole.status}: {whole.stderr!r}"]
    if (not re.search(given.says, whole.stdout) or
            given.new and not given.says and not oracle.stored(whole.stdout)):
        wrong.append(f"not acknowledged: {whole.stdout!r}")
    wrong = wrong or oracle.at_once(given, spool, whole.stdout)
    wrong = wrong or oracle.judge(system, oracle.expected(given, True, whole.stdout),
        trees.take(spool), spool, then_push=False)
    trees.remove(spool)
    if wrong:
        raise RuntimeError(f"{scenario}, undisturbed: {wrong}")
    return whole.calls


def place(work: Path) -> Path:
    """The directory in which this process makes spools, one after the other."""
    return work / f"spool.{os.getpid()}"


def fresh(tree: trees.Tree, work: Path) -> Path:
    spool = place(work)
    trees.remove(spool)
    trees.put(tree, spool)
    return spool


def manners(scenario: Scenario, fault: str, result: gate.Result) -> list[str]:
    """Check the end of a verb that was not killed itself: in time, with a code of its own and at
    most one line."""
    if result.timed_out:
        return ["hangs"]
    wrong = []
    if fault in faults.READS:
        untrue = UNTRUTHS.findall(FAILURES.split(result.stdout)[0]) if scenario.says else []
        if result.status in UNTRUE or len(untrue) > scenario.denies:
            wrong.append(f"said {result.status} {untrue} of what it could not read")
    own = SHELLS_OWN if fault == "no process" else ()
    if result.status > 0 and result.status not in (*CODES, *own):
        wrong.append(f"exit {result.status}: {result.stderr[:200]!r}")
    killed = faults.kills(fault) or fault == "kill one" or fault in faults.ENDS
    if result.status >= 0 and not killed:
        if len(result.stderr.splitlines()) > scenario.complaints:
            wrong.append(f"more than {scenario.complaints} lines: {result.stderr[:300]!r}")
    return wrong


def modes(trial: Trial, tree: trees.Tree, most: int | None) -> list[dict[str, Any]]:
    """How what is left is recovered: at once; after a push; after a kill of all also after a boot.
    `most`: so many of these, the same for the same wreck; None: all."""
    found = [{"then_push": False}, {"then_push": True}]
    if trial.fault == "kill" and not trial.second:
        found.append({"then_push": False, "boot": True})
    if most is None:
        return found
    return random.Random(f"{trial.seed} {trees.digest(tree)!r}").sample(found,
        min(most, len(found)))


@functools.lru_cache(maxsize=2)
def _moments(system: System, scenario: str, work: Path,
        only: int | None) -> tuple[list[Moment], gate.Result]:
    tree, words = base(system, scenario, work)
    return moments(system, words, tree, work, NAMED[scenario].sync, only)


def _at(point: int, found: Sequence[Moment], whole: gate.Result,
        fault: gate.Fault) -> tuple[gate.Result, trees.Tree]:
    for moment in found:
        if moment.call.seq == point:
            return moment.killed(fault, whole.calls[:point - 1])
    return whole, trees.Tree((), False)


@functools.lru_cache(maxsize=4)
def wreck(system: System, trial: Trial, work: Path) -> tuple[gate.Result, trees.Tree]:
    """How the act of the trial ends, and what it leaves. Where the whole tree is killed, it is what
    lay there at that moment of an undisturbed run: one run gives all of a scenario's."""
    fault, kinds = faults.make(trial.fault, trial.point), faults.kinds(trial.fault)
    known = calls(system, trial.scenario, work, kinds)
    if faults.kills(trial.fault):
        only = trial.point if len(known) > MANY else None
        return _at(trial.point, *_moments(system, trial.scenario, work, only), fault)
    if kinds == gate.READS and trial.point <= len(known):
        kinds = frozenset({known[trial.point - 1].kind})  # the run need not stop at the others
    tree, words = base(system, trial.scenario, work)
    result = act(system, words, fresh(tree, work), NAMED[trial.scenario].sync,
        faults.named(fault, known), kinds)
    return result, trees.take(place(work))


@dataclass(frozen=True, eq=False)
class Next:
    """A verb of SECOND_VERBS, run on what the first crash has left: `held` was there for it to
    write out."""

    moments: list[Moment]
    whole: gate.Result
    held: list[bytes]
    there: int  # messages that could be had

    def struck(self, second: Second, ledger: oracle.Ledger) -> tuple[gate.Result, trees.Tree]:
        """How it ends where it is killed at that call, and what it leaves; what it may have changed
        is entered in the ledger."""
        fault = gate.Fault("kill_tree", second.point)
        result, tree = _at(second.point, self.moments, self.whole, fault)
        words = following(second.verb, ledger.queue)
        if second.verb == "push":
            ledger.order.append(words[-1])
            if oracle.stored(result.stdout):
                ledger.must.add(words[-1])
        ledger.delivered(oracle.said(words, result.stdout, self.held))
        return result, tree


@functools.lru_cache(maxsize=2)
def after(system: System, first: Trial, verb: str, work: Path) -> Next:
    """One run of the verb on what the first crash has left gives every second crash in it."""
    spool = fresh(wreck(system, first, work)[1], work)
    layout.age(spool)
    tree, found = trees.take(spool), system.dump(spool)
    queue, sync = NAMED[first.scenario].queue, NAMED[first.scenario].sync
    held = [body for body in found.bodies(queue) if body is not None and verb in ("pop", "drain")]
    return Next(*moments(system, following(verb, queue), tree, work, sync), held,
        len(found.messages(queue, "ready", "reserved", "delayed")))


def run(trial: Trial, system: System, work: Path, most: int | None = None) -> Outcome:
    """Run the trial, with spools in the directory `work`; leave nothing there. `most`: how many
    recoveries of the wreck are tried (modes); None: all."""
    begun = time.monotonic()
    try:
        call, reached, wrong = _carry_out(trial, system, work, most)
    # a verb of the recovery hangs, or cannot be started
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        call, reached, wrong = "", True, [f"{type(error).__name__}: {error}"]
    family = {**dict.fromkeys(faults.READS, "reads"), **dict.fromkeys(faults.ENDS, "ends")}
    return Outcome(trial.scenario, NAMED[trial.scenario].verb, trial.point, call, trial.fault,
        "bad" if wrong else "good" if reached else "not reached",
        "; ".join(dict.fromkeys(wrong)), trial.seed, round(time.monotonic() - begun, 4), str(trial),
        family.get(trial.fault, "crash"), str(trial.second or ""))


def _carry_out(trial: Trial, system: System, work: Path,
        most: int | None) -> tuple[str, bool, list[str]]:
    """The call that was struck, whether one was, and what is wrong."""
    scenario = NAMED[trial.scenario]
    first = Trial(trial.scenario, trial.fault, trial.point)
    result, tree = wreck(system, first, work)
    struck = [call for call in result.calls if call.fate != "run"]
    if not struck:
        return "", False, []
    call = show(struck[0])
    acked = result.status == 0 and not faults.kills(trial.fault)
    if scenario.says:
        acked = bool(re.search(scenario.says, result.stdout))
    # A worker that reports that its message is back exits with 0
    acked = acked and not (scenario.verb == "work" and trial.fault in faults.UNSEEN
        and result.stderr)
    wrong = manners(scenario, trial.fault, result)
    ledger = oracle.expected(scenario, acked, result.stdout)
    if trial.second:
        twice, tree = after(system, first, trial.second.verb, work).struck(trial.second, ledger)
        if not twice.fired:
            return call, False, wrong
        call += "; then " + show(twice.calls[-1])
    elif acked:
        wrong += oracle.at_once(scenario, fresh(tree, work), result.stdout)
    for mode in modes(trial, tree, most):
        how = "then a push: " if mode["then_push"] else "after a boot: " if mode.get("boot") else ""
        wrong += [how + text for text in oracle.judge(system, ledger, tree, place(work), **mode)]
    trees.remove(place(work))
    return call, True, wrong
