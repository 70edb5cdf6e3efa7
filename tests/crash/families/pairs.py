"""Two verbs side by side: one stops before one of its calls, the other runs whole or is killed
before one of its own, and the first goes on.

Nothing depends on timing. The gate holds the first verb at its call; the other runs meanwhile,
until it has ended or waits for a lock that the first one holds. Two properties are judged:

    conservation  every message that was there or was acknowledged is delivered once or still there
                  once, and nothing else is
    order         of two verbs that each do one thing, the answers and what is left are those of one
                  after the other, in either order

A verb that does many things one after the other (MANY) may meet the other in the middle: for it
only conservation holds. Allowed by name: of two verbs with one receipt the slower may be told 66
(204 over HTTP), and has done nothing; beside a take or a kick, which look for ended leases, another
message may come first, or a receipt be void; of two kicks the slower may kick less; beside drop -f
a verb fails, and beside a drop that finds nothing a push or create that has begun.

A scenario is `BASE: FIRST / SECOND`. The point is the call before which the first is held; with the
fault `second killed`, CALL/CALL: the second one's comes last. RACES are pairs at a call that is
named, and some other cases that are no scenarios.
"""
from __future__ import annotations

import fcntl
import itertools
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import crash
from .. import memo
from ..gate import gate
from ..judge import layout, oracle, trees
from ..scenarios import BASELINE, Scenario, System, Words, build, fill, http, killed, pushes, v
from ..trials import Family, Options, Seen, Trial

#: The verbs, by name: words as in scenarios.py. RECEIPT is that of m1.
VERBS: dict[str, Words] = {
    "push": v("push q", b"new"),
    "push -k": v("push -k other q", b"new"),
    "push -k dup": v("push -k key q", b"new"),
    "push -d": v("push -d 999999 q", b"new"),
    "push -l": v("push -l q", b"n1\nn2\nn3\n"),
    "pop": v("pop q"),
    "pop -l": v("pop -l -n 3 q"),
    "drain": v("drain -0 q"),
    "reserve": v("reserve -t 999999 q"),
    "delete": v("delete RECEIPT"),
    "release": v("release RECEIPT"),
    "release -d": v("release -d 999999 RECEIPT"),
    "touch": v("touch -t 9999999 RECEIPT"),
    "bury": v("bury RECEIPT"),
    "kick": v("kick q"),
    "claim": v("claim -c me -n 4 q"),
    "settle": v("settle -c me 2 q"),
    "unclaim": v("unclaim -c me q"),
    "drop": v("drop q"),
    "drop -f": v("drop -f q"),
    "close": v("close q"),
    "create": v("create -b 50 q"),
    "wal": v("wal"),
    "doctor": v("doctor q"),
}
#: Requests to doors, each a connection. A door uses the verbs' code for messages, so they run
#: beside few verbs.
DOORS: dict[str, Words] = {
    "line push": ("handler", b"push -n 3 q\nnew"),
    "line pop": ("handler", b"pop q\n"),
    "http POST": http("POST", "group-id=q", b"new"),
    "http GET": http("GET", "group-id=q&visibility-timeout=9999"),
    "beanstalk put": ("beanstalk", b"use q\r\nput 65536 0 60 3\r\nnew\r\n"),
    "beanstalk reserve, delete": (
        "beanstalk", b"watch q\r\nreserve-with-timeout 0\r\ndelete 1\r\n"),
}
#: Requests to the HTTP door with the receipt of a GET. It looks at the group first.
RECEIPTS: dict[str, Words] = {
    "http PATCH": http("PATCH", "receipt-id=RECEIPT&visibility-timeout=9999"),
    "http DELETE": http("DELETE", "receipt-id=RECEIPT"),
}
REQUESTS = {**DOORS, **RECEIPTS}
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
BESIDE_DOORS = ("drop", "drop -f", "close")
BESIDE_RECEIPTS = ("pop", "reserve", "drain", "wal", "close", "drop -f", "http GET", *RECEIPTS)


def _both(bases: Sequence[str], doors: Iterable[str], beside: Sequence[str]) -> Iterator[
        tuple[str, str, str]]:
    for base, door, verb in itertools.product(bases, doors, beside):
        yield base, door, verb
        yield base, verb, door


#: Which verb is held beside which, in which spool.
COMBINATIONS = tuple(dict.fromkeys([
    *itertools.product(("plain", "due", "boot", "empty", "bare"), VERBS, VERBS),
    *_both(("ready", "bare"), DOORS, BESIDE_DOORS),
    *_both(("handed", "handed, due"), RECEIPTS, BESIDE_RECEIPTS)]))
#: How a door says that `new` is there.
STORED = re.compile(rb"N\n|HTTP/1\.1 200 |USING q\r\nINSERTED ")
#: Verbs that do several things one after the other; another verb may come in the middle.
MANY = frozenset({"push -l", "pop -l", "drain", "claim", "settle", "unclaim", "drop", "drop -f",
    "wal", "doctor", "create", "close"})
#: Verbs that change one message by its receipt.
BY_RECEIPT = frozenset({"delete", "release", "release -d", "touch", "bury", *RECEIPTS})
#: Verbs that create files, and may fail beside a drop that has found nothing.
MAKES = frozenset({"push", "push -k", "push -k dup", "push -d", "push -l", "create", "line push",
    "http POST", "beanstalk put"})


@dataclass(frozen=True)
class Pair:
    base: str
    first: str
    second: str

    @classmethod
    def of(cls, scenario: str) -> Pair:
        return cls(*re.split(": | / ", scenario))

    def __str__(self) -> str:
        return f"{self.base}: {self.first} / {self.second}"


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


def words_of(verb: str, receipt: str) -> Words:
    return fill(ALL[verb], receipt)


def _without_ids(verb: str, stdout: bytes) -> bytes:
    """An answer without ids, nonces and dates."""
    if verb in REQUESTS:
        differs = rb"Date: .*\r\n|[0-9a-f-]{12,}|\d{12,}|(?<=INSERTED )\d+|^\d+(?=\n)"
        return re.sub(differs, b"N", stdout)
    if verb.startswith("push"):
        return re.sub(rb"\d+", b"N", stdout)
    if verb == "reserve":
        return stdout.partition(b"\n")[2]
    return b"" if verb in ("claim", "doctor") else stdout


def _left(system: System, spool: Path) -> tuple[tuple[tuple[bytes, str], ...], list[str]]:
    """Every message and its state once the recovery has ended, and what is wrong with any of it. Of
    spools that differ only in nonces, times and process ids, one is recovered."""
    def find() -> tuple[tuple[tuple[bytes, str], ...], list[str]]:
        done = system.verb(spool, "wal")
        said = f"recovery: exit {done.returncode}: {done.stderr[:200]!r}"
        wrong = [said] if done.returncode else []
        found = layout.dump(spool)
        wrong += [f"damaged: {text}" for text in found.damaged] + oracle._twice(found)
        return tuple(sorted((m.body or b"?", m.state) for m in found.messages())), wrong

    return memo.once(spool.parent, ("left", system, trees.digest(trees.take(spool))), find)


def _blocked(pids: Sequence[int]) -> bool:
    """Whether one of these waits for a lock that somebody else has (an arrow in /proc/locks)."""
    with open("/proc/locks") as table:
        waiting = {int(row.split()[5]) for row in table if row.split()[1] == "->"}
    return not waiting.isdisjoint(pids)


class _Beside:
    """The second verb: run until it ends, or waits for the first."""

    def __init__(self, system: System, words: Words, spool: Path) -> None:
        self.process = subprocess.Popen(system.argv(words[:-1]), env=system.environment(spool),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        assert self.process.stdin
        try:
            self.process.stdin.write(words[-1])
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdin = None
        bound = time.monotonic() + 60
        while self.process.poll() is None and not _blocked(list(gate._tree(self.process.pid))):
            if time.monotonic() > bound:
                raise TimeoutError(f"{words}: neither ends nor waits for a lock")
            time.sleep(0.0005)  # between two looks

    def end(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def _order(system: System, pair: Pair, work: Path, turned: bool) -> Ended:
    """The results when one runs after the other; `turned`: the second verb first."""
    def find() -> Ended:
        tree, receipt = base(system, pair.base, work)
        spool = crash.fresh(tree, work)
        said = {}
        for place in (1, 0) if turned else (0, 1):
            verb = (pair.first, pair.second)[place]
            words = words_of(verb, receipt)
            done = system.verb(spool, *words[:-1], stdin=words[-1])
            said[place] = done.returncode, _without_ids(verb, done.stdout)
        left, _ = _left(system, spool)
        trees.remove(spool)
        return Ended(said[0], said[1], left)

    return memo.once(work, ("order", system, pair.base, pair.first, pair.second, turned), find)


def calls(system: System, base_name: str, verb: str, work: Path) -> list[gate.Call]:
    """The calls of the verb when it runs alone."""
    def find() -> list[gate.Call]:
        tree, receipt = base(system, base_name, work)
        spool = crash.fresh(tree, work)
        found = crash.act(system, words_of(verb, receipt), spool).calls
        trees.remove(spool)
        return found

    # A door looks for ended leases once a second: the run with the fewest calls (trial.fewer)
    turns = 2 if verb in REQUESTS else 1
    return memo.once(work, ("pair calls", system, base_name, verb),
        lambda: min((find() for _ in range(turns)), key=len))


def _delivered(verb: str, said: tuple[int, bytes], bodies: Sequence[bytes]) -> list[bytes]:
    if verb in ("beanstalk reserve, delete", "http DELETE"):
        return [b"m1"] if re.match(rb"HTTP/1\.1 200 |(?s:.*)DELETED", said[1]) else []
    if verb in ("pop", "line pop"):
        return [said[1]] if said[1] in bodies else []
    return oracle.said(VERBS[verb], said[1], bodies) if verb in ("pop -l", "drain") else []


def _conserved(pair: Pair, before: Counter[bytes], ended: Ended, killed: bool) -> list[str]:
    """Every message that was there or was acknowledged is delivered once or there once."""
    bodies = [*before, b"new", b"n1", b"n2", b"n3"]
    there = Counter(body for body, _ in ended.left)
    gone: Counter[bytes] = Counter()
    brought: Counter[bytes] = Counter()
    wrong, may, both = list[str](), set[bytes](), (pair.first, pair.second)
    for verb, said, dead in ((pair.first, ended.first, False), (pair.second, ended.second, killed)):
        out = _delivered(verb, said, bodies)
        gone.update(out)
        news = [b"n1", b"n2", b"n3"] if verb == "push -l" else [b"new"] if verb in MAKES - {
            "create"} else []
        if dead:
            # A message that was written out may come again, and one that was about to be settled
            # may be settled
            ends = {"delete": [b"m1"], "settle": [b"m3", b"m4"], "http DELETE": [b"m1"],
                "beanstalk reserve, delete": [b"m1"]}
            may |= {*out, *ends.get(verb, ()), *news}
            continue
        if verb == "delete" and said[0] == 0:
            gone[b"m1"] += 1
        # After an unclaim, settle answers for the messages given back as for settled ones
        if verb == "settle" and said[0] == 0 and not (
                "unclaim" in both and there[b"m3"] and there[b"m4"]):
            gone |= Counter((b"m3", b"m4"))  # Settled messages may be settled again
        acked = STORED.match(said[1]) if verb in REQUESTS else said[0] == 0 and b"dup" not in said[
            1]
        brought.update(news if acked else [])
    want = before + brought
    for body in {*want, *there, *gone}:
        count = there[body] + gone[body]
        if body in may and 0 <= count <= want[body] + 1:
            continue
        if count > want[body]:
            wrong.append(f"{body!r}: {want[body]} of it, delivered {gone[body]} times and "
                f"{there[body]} left")
        if count < want[body] and "drop -f" not in both:
            wrong.append(f"{body!r} is lost")
    return wrong


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    if trial.scenario in RACES:
        spool = work / f"race.{os.getpid()}"
        try:
            return Seen(trial.scenario, RACES[trial.scenario](system, spool),
                after=trees.take(spool))
        finally:
            trees.remove(spool)
    pair, (point, *kill) = Pair.of(trial.scenario), trial.numbers
    tree, receipt = base(system, pair.base, work)
    spool = crash.fresh(tree, work)
    before = Counter(m.body or b"?" for m in layout.dump(spool).messages())
    held: list[_Beside | gate.Result] = []
    where: list[gate.Call] = []
    words = words_of(pair.second, receipt)

    def beside(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if call.seq != point or where:
            return
        where.append(call)
        if kill and not _locked(spool):  # One that would wait for the lock reaches no call
            held.append(crash.act(system, words, spool, fault=gate.Fault("kill_tree", kill[0])))
        else:
            held.append(_Beside(system, words, spool))

    try:
        first = crash.act(system, words_of(pair.first, receipt), spool, each=beside)
    finally:
        others = [other.end() if isinstance(other, _Beside) else
            (other.status, other.stdout, other.stderr) for other in held]
    if not where:
        return Seen()
    status, out, err = others[0]
    killed, both = bool(kill) and status < 0, {pair.first, pair.second}
    may_fail = "drop -f" in both or pair.base == "bare" and "drop" in both and bool(both & MAKES)
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
    many = MANY - {"close"} if both & {*REQUESTS} else MANY
    if not killed and not wrong and not both & many:
        allowed = [_order(system, pair, work, turned) for turned in (False, True)]
        if ended not in allowed and not _allowed_beside(pair, ended):
            wrong.append(f"neither order: {_differs(ended, allowed)}")
    trees.remove(spool)
    calls = [replace(call, fate="held") if call is where[0] else call for call in first.calls]
    return Seen(str(where[0]), wrong, tree, after, calls,
        f"{pair.first}: {first.status} {first.stdout!r}; {pair.second}: {status} {out!r}")


def _allowed_beside(pair: Pair, ended: Ended) -> bool:
    """What is allowed beside the two orders: see the top."""
    both, answers = {pair.first, pair.second}, (ended.first, ended.second)
    if pair.base in DUE and both & {"pop", "reserve"}:
        return True
    refused = [code == 66 or said.startswith(b"HTTP/1.1 204 ") for code, said in answers]
    if refused.count(True) == 1:
        # A kick looks for ended leases as often as a take: then the receipt is void
        void = pair.base in DUE and "kick" in both and bool(both & BY_RECEIPT)
        return both <= BY_RECEIPT or void
    return both == {"kick"} and (0, b"0\n") in answers


def _differs(ended: Ended, allowed: Sequence[Ended]) -> str:
    return f"{ended.first} {ended.second}; " + " or ".join(
        f"{other.first} {other.second}, left -{[m for m in other.left if m not in ended.left]} "
        f"+{[m for m in ended.left if m not in other.left]}" for other in allowed)


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


Race = Callable[[System, Path], list[str]]
RACES: dict[str, Race] = {}


def race(name: str) -> Callable[[Race], Race]:
    def enter(function: Race) -> Race:
        RACES[name] = function
        return function
    return enter


def prepared(system: System, spool: Path, *before: Words) -> None:
    build(system, Scenario("race", before, ("",), 0), spool)


def held(system: System, spool: Path, words: Words, pattern: str,
        meanwhile: Callable[[gate.Call], Any], kinds: frozenset[str] | None = None,
        after: int = 0) -> gate.Result:
    """Run the verb. When it stands before the first call that has the pattern in its "KIND PATH
    ...", or so many calls after it, do `meanwhile`. Raises LookupError if it never comes there."""
    at: list[int] = []

    def each(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if not at and re.search(pattern, str(call)):
            at.append(call.seq + after)
        if at and call.seq == at[0] and len(at) == 1:
            at.append(0)
            meanwhile(call)

    result = crash.act(system, words, spool, each=each, kinds=kinds)
    if len(at) != 2:
        raise LookupError(f"{words} never came to {pattern!r}")
    return result


@race("closed while a body is read")
def closed(system: System, spool: Path) -> list[str]:
    """A push looks whether the queue is closed, reads, and makes its slip in a queue that was
    closed meanwhile and said to be empty."""
    prepared(system, spool, v("create q"))
    said: list[int] = []

    def close(call: gate.Call) -> None:
        prepared(system, spool, v("close q"))
        said.append(system.verb(spool, "drain", "q").returncode)

    push = held(system, spool, v("push q", b"m1"), "open q/body/", close)
    left = layout.dump(spool).messages("q")
    ended = (said, push.status, push.stdout, left)
    return [] if ended == ([69], 69, b"", []) else [f"drain, push, and what is left: {ended}"]


@race("settled while its owner is looked for")
def settled(system: System, spool: Path) -> list[str]:
    """A checkpoint sees no marker; then the pop makes its marker and ends, and the checkpoint looks
    whether the pop lives."""
    prepared(system, spool, *pushes(1, 2), killed("open q/done/", v("pop q")))
    [name] = layout.names(spool / "q/out")
    held(system, spool, v("wal q"), " (look|list) q/done/?", lambda call: (
        spool / "q/done" / name).touch(), gate.READS, after=1)
    bodies = layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if bodies == [b"m2"] else [f"m1 is settled, and there is {bodies}"]


@race("a signal behind the marker")
def behind_the_marker(system: System, spool: Path) -> list[str]:
    """A pop has written out and settled its message when it is told to end."""
    prepared(system, spool, *pushes(1, 2))
    pop = held(system, spool, v("pop q"), "open q/log", lambda call: os.kill(
        call.pid, signal.SIGTERM))
    prepared(system, spool, v("wal"))
    ended = pop.stdout, layout.dump(spool).bodies("q", "ready", "reserved")
    return [] if ended == (b"m1", [b"m2"]) else [f"written out and settled, and there: {ended}"]


@race("a receipt that is old")
def old_receipt(system: System, spool: Path) -> list[str]:
    """A consumer that was too slow may do nothing to a message that another one has; if only its
    lease has ended, it may."""
    prepared(system, spool, *pushes(1, 1))
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
    prepared(system, spool, v("create -m 2 q"), *pushes(1, 1))
    for expected in ("ready", "buried"):
        prepared(system, spool, killed("open q/done/", v("drain q")), v("wal"))
        states = [message.state for message in layout.dump(spool).messages("q")]
        if states != [expected]:
            return [f"{states}, not {expected}"]
    return []


@race("eight pushes at once")
def eight(system: System, spool: Path) -> list[str]:
    """Each acknowledged message that is not there is lost: the article's version loses some."""
    bodies = [b"message %d of eight" % n for n in range(8)]
    script = "".join(f"{{ printf %s '{body.decode()}' | sh \"$0/push\" q >/dev/null && "
        f"printf '{n}\\n'; }} &\n" for n, body in enumerate(bodies))
    build(system, BASELINE, spool)
    said = system.verb(spool, "sh", script + "wait").stdout
    system.verb(spool, "wal")
    left = system.dump(spool).bodies()
    return [f"lost: {bodies[int(n)]!r}" for n in said.split() if bodies[int(n)] not in left]


# ---- the family


def names(system: System) -> list[str]:
    if system.baseline:
        return ["eight pushes at once"]
    return [*RACES, *(str(Pair(*combination)) for combination in COMBINATIONS)]


def trials(system: System, name: str, options: Options, work: Path) -> Iterator[Trial]:
    """Every point of the first with the second whole, and killed at each of its points."""
    if name in RACES:
        if options.wants("held"):
            yield Trial("pairs", name, "held", "1")
        return
    pair = Pair.of(name)
    points = [("held", f"{call.seq}") for call in calls(system, pair.base, pair.first, work)
        if options.hits(call) and options.wants("held")]
    if options.wants("second killed"):
        points += [("second killed", f"{call.seq}/{other.seq}")
            for call in calls(system, pair.base, pair.first, work) if options.hits(call)
            for other in calls(system, pair.base, pair.second, work)]
    for fault, point in options.sample(points, name, lambda one: one[0]):
        yield Trial("pairs", name, fault, point)


FAMILY = Family(("held", "second killed"), names, trials, run, 4000, crash.lacks)
