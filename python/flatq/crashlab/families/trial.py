"""A trial: a pure function of (scenario, fault, point, seed) to an outcome, replayed from the line that str(trial) is."""
from __future__ import annotations

import errno
import functools
import os
import random
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import memo
from ..gate import faults, gate
from ..judge import layout, oracle, trees
from ..scenarios import NAMED, Scenario, System, Words, build

#: The verbs that may be killed in a second crash, on what the first one has left: the recovery, and the next verb.
SECOND_VERBS: dict[str, Words] = {
    "wal": ("wal", b""),
    "push": ("push", "q", b"again"),
    "pop": ("pop", "q", b""),
    "drain": ("drain", "-0", "q", b""),
    "claim": ("claim", "-c", "again", "q", b""),
}

#: Ways of counting (faults.counted) for calls that change nothing.
WIDE = {"reads": gate.READS, "ends": gate.ENDS, "forks": gate.FORKS, "pipes": gate.PIPES, "dups": gate.DUPS, "execs": gate.EXECS}
#: Exit codes that a verb may end with when a call of it has failed.
CODES = (0, 65, 66, 69, 70, 74, 75, 77)
#: A shell that cannot start a process, make the pipe to it, or copy a descriptor, may end by itself, with a code of its own.
SHELLS_OWN = {"no process": (2, 129, 254), "no pipe": (2, 129, 254), "no descriptor": (1, 2, 126)}
#: Codes that make a statement about the queue. Every scenario succeeds undisturbed, so after a failed read they are wrong.
UNTRUE = (65, 66, 69)
#: A door's words for these, and for a failure; after a failure, later statements may be true.
UNTRUTHS, FAILURES = (re.compile(words, re.MULTILINE) for words in (rb"^(?:NOT_FOUND|TIMED_OUT|(?:HTTP/1\.1 )?204)\b",
                                                                    rb"^(?:INTERNAL_ERROR|OUT_OF_MEMORY|(?:HTTP/1\.1 )?5\d\d)\b"))


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


def options(line: str, family: str, *names: str) -> dict[str, str]:
    """The values of a line `FAMILY --NAME VALUE ...`, by name. Raises ValueError unless it has just these names."""
    first, *words = shlex.split(line)
    given = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2])}
    if first != family or sorted(given) != sorted(names):
        raise ValueError(f"no {family}: {line}")
    return given


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
        if scenario not in NAMED:
            raise ValueError(f"no scenario {scenario!r}")
        faults.make(fault, point)
        verb, _, number = second.partition(" ")
        if second and (verb not in SECOND_VERBS or not number.isdecimal()):
            raise ValueError(f"no second crash {second!r}: one of {', '.join(SECOND_VERBS)}, and a number")
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
        words = build(system, NAMED[scenario], spool)
        tree = trees.take(spool)
        trees.remove(spool)
        return tree, words

    return memo.once(work, ("base", system, scenario), make)


def act(system: System, words: Words, spool: Path, sync: str, fault: gate.Fault | None = None, counted: str = "all",
        each: gate.Each | None = None, kind: str = "") -> gate.Result:
    """Run the verb. `counted`: which calls are, as in faults.counted(); `kind`: of these, those of one kind alone."""
    return gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync), stdin=words[-1], fault=fault, timeout=600,
                    kinds=frozenset({kind}) if kind else WIDE.get(counted), count_stdout=counted != "changes", count_root=counted != "answer", record_data=each is not None, each=each)


@dataclass(frozen=True, eq=False)
class Moment:
    """The moment before a call of an undisturbed run: the spool, and the output so far."""

    call: gate.Call
    stdout: bytes
    stderr: bytes
    tree: trees.Tree

    def killed(self, fault: gate.Fault, before: Sequence[gate.Call]) -> tuple[gate.Result, trees.Tree]:
        """How the run would have ended, and what it would have left, had the fault, a "kill_tree" or a "torn", struck here."""
        if not fault.strikes(self.call):
            return gate.Result(status=-9, calls=list(before)), self.tree
        data = (self.call.data or b"")[:fault.part(self.call.size)] if fault.kind == "torn" else b""
        answer = self.call.paths == ("<stdout>",)
        call = replace(self.call, fate="torn" if data else "killed", data=None, offset=None)
        result = gate.Result(-9, self.stdout + (data if answer else b""), self.stderr, [*before, call], fired=1, killed=True)
        return result, self.tree if answer or not data else trees.written(self.tree, self.call.paths[0], self.call.offset or 0, data)


#: What a shell says where a signal came just when its call reached the gate
INTERRUPTED = os.strerror(errno.EINTR).encode()


class Interrupted(RuntimeError):
    """A signal has interrupted every run at the gate."""


def proof(run: Callable[[], gate.Result]) -> gate.Result:
    """The result of the first run that no signal has interrupted at the gate. Without a gate, the call would have gone through (gate.py, Limits):
    what such a run does and leaves proves nothing. Raises Interrupted after 20 of them: then the trial is not reached."""
    for _ in range(20):
        result = run()
        if INTERRUPTED not in result.stderr:
            return result
    raise Interrupted("20 runs were interrupted at the gate")


MANY = 200  # calls: in a longer run, the spool is kept only at the one call that is asked for


def moments(system: System, words: Words, tree: trees.Tree, work: Path, sync: str, only: int | None = None) -> tuple[list[Moment], gate.Result]:
    """Run the verb once in this spool, and record what a kill leaves at each of its calls; `only`: at that one."""
    found: dict[int, Moment] = {}

    def keep(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if only is None or call.seq == only:
            found[call.seq] = Moment(call, stdout, stderr, trees.take(place(work)))

    def run() -> gate.Result:
        found.clear()
        return act(system, words, fresh(tree, work), sync, each=keep)

    result = proof(run)
    # a caller that died before its call was let go has made none: its number went to the next
    return [found[call.seq] for call in result.calls if call.seq in found], result


def calls(system: System, scenario: str, work: Path) -> list[gate.Call]:
    """The calls of the act where nothing happens to it, all of them counted. Raises RuntimeError where that alone goes wrong."""
    return memo.once(work, ("calls", system, scenario), lambda: fewer(scenario, lambda: _undisturbed(system, scenario, work)))


def fewer(scenario: str, run: Callable[[], list[gate.Call]]) -> list[gate.Call]:
    """The calls of the run with the fewest, of two; of four, where one connection in 25 also folds the counters (tally.sh). A verb makes more if it looks
    at something once a second and the machine is busy. A trial that is numbered by a run with more calls may not reach its own."""
    folds = NAMED[scenario].verb in ("beanstalk", "small-stalk")
    return min((run() for _ in range(4 if folds else 2)), key=len)


def struck(system: System, scenario: str, work: Path) -> list[gate.Call]:
    """The calls of the run that gives what a kill leaves: processes side by side make theirs in another order each time."""
    known = calls(system, scenario, work)
    return known if len(known) > MANY else [moment.call for moment in _moments(system, scenario, work, None)[0]]


def numbered(system: System, scenario: str, work: Path, way: str) -> list[gate.Call]:
    """Those of the calls that are counted in that way, with their numbers."""
    return faults.number(calls(system, scenario, work), way)


def unseen(system: System, scenario: str, work: Path, way: str) -> list[gate.Call]:
    """The calls of the act that change nothing, counted in that way."""
    def find() -> list[gate.Call]:
        tree, words = base(system, scenario, work)
        return fewer(scenario, lambda: proof(lambda: act(system, words, fresh(tree, work), NAMED[scenario].sync, counted=way)).calls)

    return memo.once(work, ("unseen", system, scenario, way), find)


def _undisturbed(system: System, scenario: str, work: Path) -> list[gate.Call]:
    tree, words = base(system, scenario, work)
    spool = place(work)
    whole = proof(lambda: act(system, words, fresh(tree, work), NAMED[scenario].sync))
    wrong = [] if whole.status == 0 else [f"exit {whole.status}: {whole.stderr!r}"]
    says, new = NAMED[scenario].says, NAMED[scenario].new
    if not re.search(says, whole.stdout) or new and not says and not oracle.stored(whole.stdout):
        wrong.append(f"not acknowledged: {whole.stdout!r}")
    wrong = wrong or oracle.at_once(NAMED[scenario], spool, whole.stdout)
    wrong = wrong or oracle.judge(system, oracle.expected(NAMED[scenario], True, whole.stdout), trees.take(spool), spool, then_push=False)
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


def manners(scenario: Scenario, trial: Trial, result: gate.Result) -> list[str]:
    """Check the end of a verb that was not killed itself: in time, with a code of its own and at most one line."""
    if result.timed_out:
        return ["hangs"]
    wrong = []
    if trial.fault in (*faults.READS, "no descriptor") and result.status in UNTRUE:
        wrong.append(f"said {result.status} of what it could not read: {result.stderr[:200]!r}")
    if trial.fault in faults.READS and scenario.says:
        untrue = UNTRUTHS.findall(FAILURES.split(result.stdout)[0])
        if len(untrue) > scenario.denies:
            wrong.append(f"said {untrue[-1]!r} of what it could not read")
    if result.status > 0 and result.status not in (*CODES, *SHELLS_OWN.get(trial.fault, ())):
        wrong.append(f"exit {result.status}: {result.stderr[:200]!r}")
    if result.status >= 0 and not faults.kills(trial.fault) and trial.fault != "kill one":
        if len(result.stderr.splitlines()) > scenario.complaints and trial.fault not in faults.UNSEEN[len(faults.READS):]:
            wrong.append(f"more than {scenario.complaints} lines: {result.stderr[:300]!r}")
    return wrong


@dataclass(frozen=True)
class Few:
    """Not all recoveries of a wreck (modes), but `kills` of those after a kill, and one of those after another fault. `seed` chooses them."""

    seed: int
    kills: int = 1


def modes(trial: Trial, tree: trees.Tree, few: Few | None) -> list[dict[str, bool]]:
    """Recover; push and recover; after a kill of the whole tree also recover after a boot. With `few`, some of these, the same for the same wreck."""
    found = [{"then_push": False}, {"then_push": True}]
    if trial.fault == "kill" and not trial.second:
        found.append({"then_push": False, "boot": True})
    if few is None:
        return found
    return random.Random(f"{few.seed} {trees.digest(tree)!r}").sample(found, few.kills if len(found) > 2 else 1)


@functools.lru_cache(maxsize=2)
def _moments(system: System, scenario: str, work: Path, only: int | None) -> tuple[list[Moment], gate.Result]:
    tree, words = base(system, scenario, work)
    return moments(system, words, tree, work, NAMED[scenario].sync, only)


def _at(point: int, found: Sequence[Moment], whole: gate.Result, fault: gate.Fault) -> tuple[gate.Result, trees.Tree]:
    for moment in found:
        if moment.call.seq == point:
            return moment.killed(fault, whole.calls[:point - 1])
    return whole, trees.Tree((), False)


@functools.lru_cache(maxsize=4)
def wreck(system: System, trial: Trial, work: Path) -> tuple[gate.Result, trees.Tree]:
    """How the act of the trial ends, and what it leaves. Where the whole tree is killed, it is what lay there at that moment of an
    undisturbed run: one run gives all of a scenario's."""
    fault = faults.make(trial.fault, trial.point)
    if faults.kills(trial.fault):
        many = len(calls(system, trial.scenario, work)) > MANY
        return _at(trial.point, *_moments(system, trial.scenario, work, trial.point if many else None), fault)
    tree, words = base(system, trial.scenario, work)
    way = faults.counted(trial.fault)
    known = unseen(system, trial.scenario, work, way) if way in WIDE else faults.number(calls(system, trial.scenario, work), way)
    # the call is told by what it is, so the run need not stop at calls of another kind
    kind = known[trial.point - 1].kind if way == "reads" and trial.point <= len(known) else ""
    result = proof(lambda: act(system, words, fresh(tree, work), NAMED[trial.scenario].sync, faults.named(fault, known), way, kind=kind))
    return result, trees.take(place(work))


@dataclass(frozen=True, eq=False)
class Next:
    """A verb of SECOND_VERBS, run on what the first crash has left: `held` was there for it to write out."""

    moments: list[Moment]
    whole: gate.Result
    held: list[bytes]
    there: int  # messages that could be had

    def struck(self, second: Second, ledger: oracle.Ledger) -> tuple[gate.Result, trees.Tree]:
        """How it ends where it is killed at that call, and what it leaves; what it may have changed is entered in the ledger."""
        result, tree = _at(second.point, self.moments, self.whole, gate.Fault("kill_tree", second.point))
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
    _, tree = wreck(system, first, work)
    spool = fresh(tree, work)
    layout.age(spool)
    tree = trees.take(spool)
    found = system.dump(spool)
    queue = NAMED[first.scenario].queue
    held = [body for body in found.bodies(queue) if body is not None] if verb in ("pop", "drain") else []
    return Next(*moments(system, following(verb, queue), tree, work, NAMED[first.scenario].sync), held,
                len(found.messages(queue, "ready", "reserved", "delayed")))


def run(trial: Trial, system: System, work: Path, few: Few | None = None) -> Outcome:
    """Run the trial, with spools in the directory `work`; leave nothing there. `few`: which recoveries of the wreck are tried (modes); else all."""
    begun, missed = time.monotonic(), ""
    try:
        call, reached, wrong = _carry_out(trial, system, work, few)
    except Interrupted as error:
        call, reached, wrong, missed = "", False, [], str(error)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:  # a verb of the recovery hangs, or cannot be started
        call, reached, wrong = "", True, [f"{type(error).__name__}: {error}"]
    return Outcome(trial.scenario, NAMED[trial.scenario].verb, trial.point, call, trial.fault,
                   "bad" if wrong else "good" if reached else "not reached", "; ".join(dict.fromkeys(wrong)) or missed, trial.seed,
                   round(time.monotonic() - begun, 4), str(trial), second=str(trial.second or ""))


def _carry_out(trial: Trial, system: System, work: Path, few: Few | None) -> tuple[str, bool, list[str]]:
    """The call that was struck, whether one was, and what is wrong."""
    scenario = NAMED[trial.scenario]
    first = Trial(trial.scenario, trial.fault, trial.point)
    result, tree = wreck(system, first, work)
    wrong: list[str] = []
    struck = [call for call in result.calls if call.fate != "run"]
    reached = bool(struck)
    call = show(struck[0]) if struck else ""
    if reached:
        acked = bool(re.search(scenario.says, result.stdout)) if scenario.says else result.status == 0 and not faults.kills(trial.fault)
        # A worker whose command has failed, or that cannot tell how it ended, reports that the message is back, and exits with 0. Without a descriptor, it
        # may have lost standard error: then the queue's log says so
        log = dict(tree.entries).get(f"{scenario.queue}/log")
        back = result.stderr or isinstance(log, bytes) and b" release " in log
        acked = acked and not (scenario.verb == "work" and trial.fault in faults.UNSEEN and back)
        wrong += manners(scenario, trial, result)
        ledger = oracle.expected(scenario, acked, result.stdout)
        if trial.second:
            twice, tree = after(system, first, trial.second.verb, work).struck(trial.second, ledger)
            reached = bool(twice.fired)
            call += "; then " + show(twice.calls[-1]) if reached else ""
        elif acked:
            wrong += oracle.at_once(scenario, fresh(tree, work), result.stdout)
        for mode in modes(trial, tree, few) if reached else []:
            found = oracle.judge(system, ledger, tree, place(work), then_push=mode["then_push"], boot=mode.get("boot", False))
            how = "then a push: " if mode["then_push"] else "after a boot: " if mode.get("boot") else ""
            wrong += [how + text for text in found]
        trees.remove(place(work))
    return call, reached, wrong
