"""A verb is broken at one of its calls, and what is left is recovered and checked. The point is the
number of the call.

Families: `crash` (the tree or one process is killed, a write is torn, an error is returned),
`reads` (a file of the spool cannot be read) and `ends` (how the processes of the verb begin and
end)."""
from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import memo
from ..gate import faults, gate
from ..judge import oracle, trees
from ..scenarios import ARTICLES, BESIDE, NAMED, SCENARIOS, Scenario, System, Words, build
from ..trials import Family, Options, Seen, Trial

#: Exit codes that a verb may end with when a call of it has failed.
CODES = (0, 65, 66, 69, 70, 74, 75, 77)
#: A shell that cannot start a process may end by itself, with a code of its own.
SHELLS_OWN = (2, 126, 129, 254)
#: Codes that say what is in the queue. Undisturbed, every scenario succeeds: so after a failed read
#: they are wrong.
UNTRUE = (65, 66, 69)
#: A door's words for these, and for a failure, after which later statements may be true.
UNTRUTHS = re.compile(rb"^(?:NOT_FOUND|TIMED_OUT|(?:HTTP/1\.1 )?(?:204|422))\b", re.M)
FAILURES = re.compile(rb"^(?:INTERNAL_ERROR|OUT_OF_MEMORY|(?:HTTP/1\.1 )?5\d\d)\b", re.M)


# ---- which trials there are


def names(system: System) -> list[str]:
    return [*(ARTICLES if system.baseline else SCENARIOS)]


def plain(system: System) -> list[str]:
    """What fails beside the syncs is the same with them."""
    return [name for name in names(system) if NAMED[name].sync == "off"]


def reads(system: System) -> list[str]:
    return plain(system) + [BESIDE.name] * (not system.baseline)


def _trials(family: str, known: Sequence[str], system: System, name: str, options: Options,
        work: Path) -> list[Trial]:
    """Every fault at every call. Of a scenario that syncs, only at its syncs: elsewhere it leaves
    what the same scenario leaves that does not."""
    wanted = [fault for fault in known if options.wants(fault)
        # Of several verbs, one would say what is true because another one failed; doctor sets a
        # flat file aside
        and not (NAMED[name].act[0] in ("sh", "doctor") and fault == "read EIO lasting")]
    points: list[tuple[str, int]] = []
    undisturbed(system, name, work)
    for some in (list(group) for _, group in itertools.groupby(wanted,
            lambda fault: (faults.kinds(fault), faults.kills(fault)))):
        found = (struck(system, name, work) if faults.kills(some[0])
            else calls(system, name, work, faults.kinds(some[0])))
        points += faults.points([call for call in found if options.hits(call)
            and (NAMED[name].sync == "off" or call.kind == "sync")], some)
    return options.trials(family, name, sorted(points))


# ---- the runs


@functools.lru_cache(maxsize=8)
def built(system: System, scenario: Scenario, work: Path) -> tuple[trees.Tree, Words]:
    """The spool before the act, and the act."""
    def make() -> tuple[trees.Tree, Words]:
        spool = work / f"base.{os.getpid()}"
        trees.remove(spool)
        words = build(system, scenario, spool)
        return trees.take(spool), words

    return memo.once(work, ("base", system, scenario.name), make)


def base(system: System, scenario: str, work: Path) -> tuple[trees.Tree, Words]:
    return built(system, NAMED[scenario], work)


def act(system: System, words: Words, spool: Path, sync: str = "off", **more: Any) -> gate.Result:
    """Run the verb; `more` as in gate.run."""
    return gate.run(system.argv(words[:-1]), spool, env=system.environment(spool, sync),
        stdin=words[-1], timeout=600, **more)


@dataclass(frozen=True, eq=False)
class Moment:
    """The moment before a call of an undisturbed run: the spool, and the output so far."""

    call: gate.Call
    before: Sequence[gate.Call]
    stdout: bytes
    stderr: bytes
    tree: trees.Tree

    def killed(self, fault: gate.Fault) -> tuple[gate.Result, trees.Tree]:
        """How the run would have ended, and what it would have left, had the fault, a "kill_tree"
        or a "torn", struck here."""
        torn = fault.kind == "torn"
        data = (self.call.data or b"")[:fault.part(self.call.size)] if torn else b""
        answer = self.call.paths == ("<stdout>",)
        call = replace(self.call, fate="torn" if torn else "killed", data=None)
        result = gate.Result(-9, self.stdout + (data if answer else b""), self.stderr,
            [*self.before, call])
        if answer or not torn:
            return result, self.tree
        return result, trees.written(self.tree, call.paths[0], call.offset or 0, data)


def calls(system: System, scenario: str, work: Path,
        kinds: frozenset[str] | None = None) -> list[gate.Call]:
    """The calls of the act where nothing happens to it: changes, or those of `kinds`."""
    def find() -> list[gate.Call]:
        tree, words = base(system, scenario, work)
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
    return [moment.call for moment in _moments(system, scenario, work).values()]


def undisturbed(system: System, scenario: str, work: Path) -> None:
    """Raises RuntimeError where the scenario goes wrong by itself."""
    def find() -> list[str]:
        tree, words = base(system, scenario, work)
        spool, given = place(work), NAMED[scenario]
        whole = act(system, words, fresh(tree, work), given.sync)
        wrong = [] if whole.status == 0 else [f"exit {whole.status}: {whole.stderr!r}"]
        if not system.baseline and (not re.search(given.says, whole.stdout) or
                given.new and not given.says and not oracle.stored(whole.stdout)):
            wrong.append(f"not acknowledged: {whole.stdout!r}")
        wrong = wrong or oracle.at_once(given, spool, whole.stdout)
        wrong = wrong or oracle.recoveries(system, oracle.expected(given, True, whole.stdout),
            trees.take(spool), spool, False)
        return wrong

    if wrong := memo.once(work, ("undisturbed", system, scenario), find):
        raise RuntimeError(f"{scenario}, undisturbed: {wrong}")


def place(work: Path) -> Path:
    """The directory in which this process makes spools, one after the other."""
    return work / f"spool.{os.getpid()}"


def fresh(tree: trees.Tree, work: Path) -> Path:
    spool = place(work)
    trees.remove(spool)
    trees.put(tree, spool)
    return spool


@functools.lru_cache(maxsize=2)
def _moments(system: System, scenario: str, work: Path) -> dict[int, Moment]:
    """One undisturbed run: what a kill leaves at each of its calls, by the call's number."""
    tree, words = base(system, scenario, work)
    found: dict[int, Moment] = {}
    before: list[gate.Call] = []

    def keep(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        # a caller that died before its call was let go has made none: its number goes to the next
        del before[call.seq - 1:]
        found[call.seq] = Moment(call, tuple(before), stdout, stderr, trees.take(place(work)))
        before.append(replace(call, data=None))

    act(system, words, fresh(tree, work), NAMED[scenario].sync, each=keep)
    return found


@functools.lru_cache(maxsize=4)
def wreck(system: System, scenario: str, name: str, point: int,
        work: Path) -> tuple[gate.Result, trees.Tree]:
    """How the act ends with this fault, and what it leaves. Where the whole tree is killed, it is
    what lay there at that moment of an undisturbed run: one run gives all of a scenario's."""
    fault, kinds = faults.make(name, point), faults.kinds(name)
    if faults.kills(name):
        moment = _moments(system, scenario, work).get(point)
        if not moment or not fault.strikes(moment.call, point - 1):
            return gate.Result(), trees.Tree((), False)
        return moment.killed(fault)
    known = calls(system, scenario, work, kinds)
    if fault.kind == "errno" and kinds == gate.READS and point <= len(known):
        kinds = frozenset({known[point - 1].kind})  # the run need not stop at the others
    tree, words = base(system, scenario, work)
    result = act(system, words, fresh(tree, work), NAMED[scenario].sync,
        fault=faults.named(fault, known), kinds=kinds)
    return result, trees.take(place(work))


# ---- what is wrong


def manners(scenario: Scenario, fault: str, result: gate.Result) -> list[str]:
    """Check the end of a verb that was not killed itself: in time, with a code of its own and at
    most one line."""
    if result.timed_out:
        return ["hangs"]
    wrong = []
    # Of several verbs, one says what is true because another one failed
    if result.status in UNTRUE and (fault in faults.READS or scenario.act[0] != "sh"):
        wrong.append(f"said {result.status} because of {fault}")
    if fault in faults.READS:
        untrue = UNTRUTHS.findall(FAILURES.split(result.stdout)[0]) if scenario.says else []
        if len(untrue) > scenario.denies:
            wrong.append(f"said {untrue} of what it could not read")
    own = SHELLS_OWN if fault == "no process" else ()
    if result.status > 0 and result.status not in (*CODES, *own):
        wrong.append(f"exit {result.status}: {result.stderr[:200]!r}")
    killed = faults.kills(fault) or fault == "kill one" or fault in faults.ENDS
    if result.status >= 0 and not killed:
        if len(result.stderr.splitlines()) > scenario.complaints:
            wrong.append(f"more than {scenario.complaints} lines: {result.stderr[:300]!r}")
    return wrong


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    scenario, fault = NAMED[trial.scenario], trial.fault
    result, tree = wreck(system, trial.scenario, fault, int(trial.point), work)
    struck = [call for call in result.calls if call.fate != "run"]
    if not struck:
        return Seen()
    call = str(struck[0])
    acked = result.status == 0 and not faults.kills(fault)
    if scenario.says:
        acked = bool(re.search(scenario.says, result.stdout))
    # A worker that reports that its message is back exits with 0
    acked = acked and not (scenario.verb == "work" and result.stderr)
    wrong = manners(scenario, fault, result)
    if fault in faults.READS and result.status and struck[0].paths[0].partition("/")[0] in (
            scenario.others):
        wrong.append(f"exit {result.status}, of a file of another queue")
    ledger = oracle.expected(scenario, acked, result.stdout)
    if fault == "read EIO lasting":
        # A later message may come first, and what is set aside for its body comes last
        ledger.ordered = False
        if scenario.delivers:
            ledger.delivered(oracle.said(scenario.act, result.stdout, scenario.order))
    if acked:
        wrong += oracle.at_once(scenario, fresh(tree, work), result.stdout)
    wrong += oracle.recoveries(system, ledger, tree, place(work), every, boot=fault == "kill")
    return Seen(call, wrong, base(system, trial.scenario, work)[0], tree, result.calls,
        f"{call}: exit {result.status}, said {result.stdout[:200]!r}, {result.stderr[:400]!r}")


def lacks() -> str:
    return gate.available()[1]


FAMILIES = {name: Family(tuple(known), scenarios, functools.partial(_trials, name, tuple(known)),
        run, hour, lacks)
    for name, known, scenarios, hour in (("crash", faults.FAULTS, names, 9000),
        ("reads", faults.READS, reads, 2500), ("ends", faults.ENDS, plain, 2500))}
