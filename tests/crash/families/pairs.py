"""Two verbs side by side: one stops before one of its calls, the other runs whole or is killed
before one of its own, and the first goes on.

Nothing depends on timing. The gate holds the first verb at its call; the other runs meanwhile,
until it has ended or waits for a lock that the first one holds. Two properties are judged:

    conservation  every message that was there or was acknowledged is delivered once or still there
                  once, and nothing else is
    order         of two verbs that each do one thing, the answers and what is left are those of one
                  after the other, in either order

A verb that does several things one after the other (MANY) may meet the other in the middle: for it
only conservation holds. Allowed by name: of two verbs with one receipt the slower may be told 66
(204 over HTTP), and has done nothing; beside a take or a kick, which look for ended leases, another
message may come first, or a receipt be void; of two kicks the slower may kick less; beside drop -f
a verb fails, and beside a drop that finds nothing a push or create that has begun.

A scenario is `BASE: FIRST / SECOND`. The point is the call before which the first is held; with the
fault `second killed`, CALL/CALL: the second one's comes last. RACES are held at a call with a name.
"""
from __future__ import annotations

import fcntl
import itertools
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from . import crash
from .. import memo
from ..gate import gate
from ..gate.processes import wait_for, with_children
from ..judge import layout, oracle, trees
from ..scenarios import Scenario, System, Words, build, fill, http, killed, pushes, v
from ..trials import Family, Options, Seen, Trial


@dataclass(frozen=True)
class Verb:
    """`words` as in scenarios.py, with m1's receipt. `new`: what it stores; `ends`: what it settles
    without writing it out."""

    words: Words
    new: tuple[bytes, ...] = ()
    ends: tuple[bytes, ...] = ()

    @property
    def receipted(self) -> bool:
        return self.words != fill(self.words, "")

    @property
    def makes(self) -> bool:
        """It creates files, and may fail beside a drop that has found nothing."""
        return bool(self.new) or self.words[0] == "create"


def _verb(text: str, stdin: bytes = b"", *ends: bytes) -> Verb:
    return Verb(v(text, stdin), tuple(stdin.split()), ends)


ONE = {
    "push": _verb("push q", b"new"),
    "push -k": _verb("push -k other q", b"new"),
    "push -k dup": _verb("push -k key q", b"new"),
    "push -d": _verb("push -d 999999 q", b"new"),
    "pop": _verb("pop q"),
    "reserve": _verb("reserve -t 999999 q"),
    "delete": _verb("delete RECEIPT", b"", b"m1"),
    "release": _verb("release RECEIPT"),
    "release -d": _verb("release -d 999999 RECEIPT"),
    "touch": _verb("touch -t 9999999 RECEIPT"),
    "bury": _verb("bury RECEIPT"),
    "kick": _verb("kick q"),
}
MANY = {
    "push -l": _verb("push -l q", b"n1\nn2\nn3\n"),
    "pop -l": _verb("pop -l -n 3 q"),
    "drain": _verb("drain -0 q"),
    "claim": _verb("claim -c me -n 4 q"),
    "settle": _verb("settle -c me 2 q", b"", b"m3", b"m4"),
    "unclaim": _verb("unclaim -c me q"),
    "drop": _verb("drop q"),
    "drop -f": _verb("drop -f q"),
    "close": _verb("close q"),
    "create": _verb("create -b 50 q"),
    "wal": _verb("wal"),
    "doctor": _verb("doctor q"),
}
VERBS = {**ONE, **MANY}
#: Requests to doors, each a connection. A door uses the verbs' code for messages, so they run
#: beside few verbs.
DOORS = {
    "line push": Verb(("handler", b"push -n 3 q\nnew"), (b"new",)),
    "line pop": Verb(("handler", b"pop q\n")),
    "http POST": Verb(http("POST", "group-id=q", b"new"), (b"new",)),
    "http GET": Verb(http("GET", "group-id=q&visibility-timeout=9999")),
    "beanstalk put": Verb(("beanstalk", b"use q\r\nput 65536 0 60 3\r\nnew\r\n"), (b"new",)),
    "beanstalk reserve, delete": Verb(
        ("beanstalk", b"watch q\r\nreserve-with-timeout 0\r\ndelete 1\r\n"), ends=(b"m1",)),
}
#: Requests to the HTTP door with the receipt of a GET. It looks at the group first.
RECEIPTS = {
    "http PATCH": Verb(http("PATCH", "receipt-id=RECEIPT&visibility-timeout=9999")),
    "http DELETE": Verb(http("DELETE", "receipt-id=RECEIPT"), ends=(b"m1",)),
}
REQUESTS = {**DOORS, **RECEIPTS}
#: How a door says that it has done it.
DONE = re.compile(rb"N\n|HTTP/1\.1 200 |(?s:.*)(INSERTED|DELETED)")
ALL = {**VERBS, **REQUESTS}
_HELD = (*pushes(1, 1), v("reserve -t 999999 q"))
_PLAIN = (*pushes(2, 2), v("reserve -t 999999 q"), v("bury RECEIPT"), *_HELD, *pushes(3, 4),
    v("claim -c me -n 2 q"), *pushes(5, 9), v("wal"), *pushes(10, 10, "-k", "key"),
    *pushes(11, 11), *pushes(12, 12, "-d", "999999"))
_HANDED = (*pushes(1, 2), http("GET", "group-id=q&visibility-timeout=86400"))
#: The content of the spool before, with the receipt of m1. `plain`: ready singles, a flat file, one
#: reserved, one buried, one delayed, two claimed. `due`: its delay and its leases are over. `boot`:
#: the system has just started. `empty`: nothing but the one that is reserved. `bare`: nothing, so
#: that drop removes it. `ready`: two ready messages. `handed`: one is handed out by a GET, one is
#: ready; `handed, due`: its time is over.
BASES = {name: Scenario(name, before, ("RECEIPT",), 0, prepare=prepare)
    for name, before, prepare in (("plain", _PLAIN, None), ("due", _PLAIN, layout.age),
        ("boot", _PLAIN, layout.reboot), ("empty", _HELD, None),
        ("bare", (*_HELD, v("delete RECEIPT")), None), ("ready", pushes(1, 2), None),
        ("handed", _HANDED, None), ("handed, due", _HANDED, layout.age))}
DUE = ("due", "handed, due")


class Pair(NamedTuple):
    base: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.base}: {self.first} / {self.second}"

    @property
    def both(self) -> set[str]:
        return {self.first, self.second}


def _pair(scenario: str) -> Pair:
    return Pair(*re.split(": | / ", scenario))


def _both(bases: Sequence[str], doors: Iterable[str], beside: Sequence[str]) -> Iterator[Pair]:
    for base, door, verb in itertools.product(bases, doors, beside):
        yield Pair(base, door, verb)
        yield Pair(base, verb, door)


#: Which verb is held beside which, in which spool.
COMBINATIONS = tuple(dict.fromkeys([
    *map(Pair._make, itertools.product(("plain", "due", "boot", "empty", "bare"), VERBS, VERBS)),
    *_both(("ready", "bare"), DOORS, ("drop", "drop -f", "close")),
    *_both(("handed", "handed, due"), RECEIPTS, ("pop", "reserve", "drain", "wal", "close",
        "drop -f", "http GET", *RECEIPTS))]))


@dataclass(frozen=True)
class Ended:
    """The end of both verbs: their answers, without what differs from run to run, and every message
    with its state."""

    first: tuple[int, bytes]
    second: tuple[int, bytes]
    left: tuple[tuple[bytes, str], ...]


def base(system: System, name: str, work: Path) -> tuple[trees.Tree, str]:
    """The spool before, and m1's receipt."""
    tree, [receipt] = crash.built(system, BASES[name], work)
    return tree, receipt


def _without_ids(verb: str, stdout: bytes) -> bytes:
    """An answer without ids, receipts and dates."""
    return stdout if verb == "kick" else re.sub(rb"Date: .*\r\n|[0-9a-f-]{12,}|(?<=INSERTED )\d+|"
        rb"^q:\S+ \d+|^\d+(?= dup\n|\n)", b"N", stdout)


def _left(system: System, spool: Path) -> tuple[tuple[tuple[bytes, str], ...], list[str]]:
    """Every message and its state once the recovery has ended, and what is wrong with any of it. Of
    spools that differ only in nonces, times and process ids, one is recovered."""
    def find() -> tuple[tuple[tuple[bytes, str], ...], list[str]]:
        done = system.verb(spool, "wal")
        said = f"recovery: exit {done.returncode}: {done.stderr[:200]!r}"
        wrong = [said] if done.returncode else []
        found = layout.dump(spool)
        wrong += [f"damaged: {text}" for text in found.damaged] + oracle.twice(found)
        return tuple(sorted((m.body or b"?", m.state) for m in found.messages())), wrong

    return memo.once(spool.parent, ("left", system, trees.digest(trees.take(spool))), find)


def _blocked(pids: Sequence[int]) -> bool:
    """Whether one of these waits for a lock that somebody else has (an arrow in /proc/locks)."""
    with open("/proc/locks") as table:
        waiting = {int(row.split()[5]) for row in table if row.split()[1] == "->"}
    return not waiting.isdisjoint(pids)


def _beside(system: System, words: Words, spool: Path) -> subprocess.Popen[bytes]:
    """Start the second verb; it has ended, or waits for the first."""
    stdin, there = os.pipe()
    os.write(there, words[-1])
    os.close(there)
    process = subprocess.Popen(system.argv(words[:-1]), env=system.environment(spool),
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    os.close(stdin)
    wait_for(lambda: process.poll() is not None or _blocked([*with_children(process.pid)]),
        f"{words} ends, or waits for a lock")
    return process


def _order(system: System, pair: Pair, work: Path, turned: bool) -> Ended:
    """The results when one runs after the other; `turned`: the second verb first."""
    def find() -> Ended:
        tree, receipt = base(system, pair.base, work)
        spool, said = crash.fresh(tree, work), {}
        for place in (1, 0) if turned else (0, 1):
            verb = (pair.first, pair.second)[place]
            words = fill(ALL[verb].words, receipt)
            done = system.verb(spool, *words[:-1], stdin=words[-1])
            said[place] = done.returncode, _without_ids(verb, done.stdout)
        return Ended(said[0], said[1], _left(system, spool)[0])

    return memo.once(work, ("order", system, pair.base, pair.first, pair.second, turned), find)


def calls(system: System, base_name: str, verb: str, work: Path) -> list[gate.Call]:
    """The calls of the verb when it runs alone: a door makes more when it looks, once a second, for
    ended leases, so of two runs the one with fewer."""
    def find() -> list[gate.Call]:
        tree, receipt = base(system, base_name, work)
        return crash.act(system, fill(ALL[verb].words, receipt), crash.fresh(tree, work)).calls

    return memo.once(work, ("pair calls", system, base_name, verb),
        lambda: min(find(), find(), key=len))


def _delivered(verb: str, said: tuple[int, bytes], bodies: Sequence[bytes]) -> list[bytes]:
    """The messages that it has written out, as its last act with them."""
    return oracle.said(ALL[verb].words, said[1], bodies) if verb in ("pop", "pop -l", "drain",
        "line pop") else []


def _conserved(pair: Pair, before: Counter[bytes], ended: Ended, killed: bool) -> list[str]:
    """Every message that was there or was acknowledged is delivered once or there once."""
    there = Counter(body for body, _ in ended.left)
    gone, want, may = Counter[bytes](), Counter(before), set[bytes]()
    for name, said, dead in ((pair.first, ended.first, False), (pair.second, ended.second, killed)):
        verb = ALL[name]
        out = _delivered(name, said, [*before, *ALL[pair.first].new, *ALL[pair.second].new])
        gone.update(out)
        if dead:
            # A message that was written out may come again, and one that was about to be settled
            # may be settled
            may |= {*out, *verb.ends, *verb.new}
        elif DONE.match(said[1]) if name in REQUESTS else said[0] == 0 and b"dup" not in said[1]:
            want.update(verb.new)
            if name != "settle":
                gone.update(verb.ends)
            # After an unclaim, settle answers for the messages given back as for settled ones
            elif "unclaim" not in pair.both or not all(there[body] for body in verb.ends):
                gone |= Counter(verb.ends)  # Settled messages may be settled again
    wrong = []
    for body in {*want, *there, *gone}:
        count = there[body] + gone[body]
        if body in may and count <= want[body] + 1:
            continue
        if count > want[body]:
            wrong.append(f"{body!r}: {want[body]} of it, delivered {gone[body]} times and "
                f"{there[body]} left")
        if count < want[body] and "drop -f" not in pair.both:
            wrong.append(f"{body!r} is lost")
    return wrong


def held(system: System, words: Words, spool: Path, where: int | str,
        meanwhile: Callable[[gate.Call], Any], **more: Any) -> tuple[gate.Result, gate.Call | None]:
    """Run the verb, and do `meanwhile` when it stands before a call: the first that has this number
    or, where the lines of the call before and of itself have the pattern. That call, if it came
    there."""
    last, at = "", list[gate.Call]()

    def each(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        nonlocal last
        if not at and (call.seq == where if isinstance(where, int) else
                re.search(where, f"{last}\n{call}")):
            at.append(call)
            meanwhile(call)
        last = str(call)

    result = crash.act(system, words, spool, each=each, **more)
    return result, at[0] if at else None


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    if trial.scenario in RACES:
        spool = crash.fresh(trees.Tree((), False), work)
        return Seen(trial.scenario, RACES[trial.scenario](system, spool), after=trees.take(spool))
    pair, (point, *kill) = _pair(trial.scenario), trial.numbers
    tree, receipt = base(system, pair.base, work)
    spool = crash.fresh(tree, work)
    before = Counter(m.body or b"?" for m in layout.dump(spool).messages())
    others: list[subprocess.Popen[bytes] | gate.Result] = []
    words = fill(ALL[pair.second].words, receipt)

    def beside(call: gate.Call) -> None:
        if kill and not _locked(spool):  # One that would wait for the lock reaches no call
            others.append(crash.act(system, words, spool, fault=gate.Fault("kill_tree", kill[0])))
        else:
            others.append(_beside(system, words, spool))

    try:
        first, where = held(system, fill(ALL[pair.first].words, receipt), spool, point, beside)
    finally:
        ends = [(other.stdout, other.stderr, other.status) if isinstance(other, gate.Result) else
            (*other.communicate(timeout=60), other.returncode) for other in others]
    if not where:
        return Seen()
    [(out, err, status)], both = ends, pair.both
    killed = bool(kill) and status < 0
    may_fail = "drop -f" in both or pair.base == "bare" and "drop" in both and any(
        ALL[verb].makes for verb in both)
    wrong = [f"{name}: exit {code}: {text[:200]!r}" for name, code, text in
        ((pair.first, first.status, first.stderr), (pair.second, status, err))
        if not (code in (0, 65, 66, 69, 75) or code < 0 and killed or code == 74 and may_fail)
        or text.count(b"\n") > (3 if name in REQUESTS else 1) and "drop -f" not in both]
    if first.timed_out:
        wrong.append(f"{pair.first} hangs")
    if killed:
        layout.age(spool)
    after = trees.take(spool)
    left, found = _left(system, spool)
    wrong += found
    ended = Ended((first.status, _without_ids(pair.first, first.stdout)),
        (status, _without_ids(pair.second, out)), left)
    wrong += _conserved(pair, before, ended, killed)
    # Beside a door's one message, a close is one step
    many = both & {*MANY} - ({"close"} if both & {*REQUESTS} else set())
    if not killed and not wrong and not many:
        allowed = [_order(system, pair, work, turned) for turned in (False, True)]
        if ended not in allowed and not _allowed_beside(pair, ended):
            wrong.append(f"neither order: {ended.first} {ended.second}; " + " or ".join(
                f"{one.first} {one.second}, with other states {sorted({*one.left} ^ {*ended.left})}"
                for one in allowed))
    calls = [replace(call, fate="held") if call is where else call for call in first.calls]
    return Seen(str(where), wrong, tree, after, calls,
        f"{pair.first}: {first.status} {first.stdout!r}; {pair.second}: {status} {out!r}")


def _allowed_beside(pair: Pair, ended: Ended) -> bool:
    """What is allowed beside the two orders: see the top."""
    both, answers = pair.both, (ended.first, ended.second)
    if pair.base in DUE and both & {"pop", "reserve"}:
        return True
    refused = [code == 66 or said.startswith(b"HTTP/1.1 204 ") for code, said in answers]
    if refused.count(True) == 1:
        receipted = [ALL[verb].receipted for verb in both]
        # A kick looks for ended leases as often as a take: then the receipt is void
        return all(receipted) or pair.base in DUE and "kick" in both and any(receipted)
    return both == {"kick"} and (0, b"0\n") in answers


def _locked(spool: Path) -> bool:
    """Whether somebody holds the lock of the queue or of the spool."""
    for path in (spool / "q/lock", spool / ".lock"):
        try:
            with open(path, "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue
    return False


# ---- races


def prepared(system: System, spool: Path, *before: Words) -> None:
    build(system, Scenario("race", before, ("",), 0), spool)


def settled(system: System, spool: Path) -> list[str]:
    """A checkpoint sees no marker; then the pop makes its marker and ends, and the checkpoint looks
    whether the pop lives."""
    prepared(system, spool, *pushes(1, 2), killed("open q/done/", v("pop q")))
    [name] = layout.names(spool / "q/out")
    _, there = held(system, v("wal q"), spool, " (look|list) q/done.*\n", lambda call: (
        spool / "q/done" / name).touch(), kinds=gate.READS)
    bodies = layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if there and bodies == [b"m2"] else [f"m1 is settled, and there is {bodies}"]


def behind_the_marker(system: System, spool: Path) -> list[str]:
    """A pop has written out and settled its message when it is told to end."""
    prepared(system, spool, *pushes(1, 2))
    pop, there = held(system, v("pop q"), spool, "open q/log", lambda call: os.kill(call.pid,
        signal.SIGTERM))
    prepared(system, spool, v("wal"))
    ended = pop.stdout, layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if there and ended == (b"m1", [b"m2"]) else [f"settled m1, and said, has {ended}"]


RACES = {"settled while its owner is looked for": settled,
    "a signal behind the marker": behind_the_marker}


# ---- the family


def names(system: System) -> list[str]:
    return [] if system.baseline else [*RACES, *map(str, COMBINATIONS)]


def trials(system: System, name: str, options: Options, work: Path) -> list[Trial]:
    """Every point of the first with the second whole, and killed at each of its points."""
    if name in RACES:
        return [Trial("pairs", name, "held", "1")] * options.wants("held")
    pair = _pair(name)
    points = [("held", f"{call.seq}") for call in calls(system, pair.base, pair.first, work)
        if options.hits(call) and options.wants("held")]
    if options.wants("second killed"):
        points += [("second killed", f"{call.seq}/{other.seq}")
            for call in calls(system, pair.base, pair.first, work) if options.hits(call)
            for other in calls(system, pair.base, pair.second, work)]
    return options.trials("pairs", name, points)


FAMILY = Family(("held", "second killed"), names, trials, run, 4000, crash.lacks)
