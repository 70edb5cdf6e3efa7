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
a verb fails, and beside a drop that finds nothing a push or create that has begun. """
from __future__ import annotations

import fcntl
import functools
import itertools
import os
import random
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import memo
from ..gate import gate
from ..judge import layout, oracle, trees
from ..scenarios import System, Words, fill, http, pushes
from .trial import Outcome, fresh

LEASE = "999999"
#: The verbs, by name: words as in scenarios.py. RECEIPT is that of m1.
VERBS: dict[str, Words] = {
    "push": ("push", "q", b"new"),
    "push -k": ("push", "-k", "other", "q", b"new"),
    "push -k dup": ("push", "-k", "key", "q", b"new"),
    "push -d": ("push", "-d", LEASE, "q", b"new"),
    "push -l": ("push", "-l", "q", b"n1\nn2\nn3\n"),
    "pop": ("pop", "q", b""),
    "pop -l": ("pop", "-l", "-n", "3", "q", b""),
    "drain": ("drain", "-0", "q", b""),
    "reserve": ("reserve", "-t", LEASE, "q", b""),
    "delete": ("delete", "RECEIPT", b""),
    "release": ("release", "RECEIPT", b""),
    "release -d": ("release", "-d", LEASE, "RECEIPT", b""),
    "touch": ("touch", "-t", "9999999", "RECEIPT", b""),
    "bury": ("bury", "RECEIPT", b""),
    "kick": ("kick", "q", b""),
    "claim": ("claim", "-c", "me", "-n", "4", "q", b""),
    "settle": ("settle", "-c", "me", "2", "q", b""),
    "unclaim": ("unclaim", "-c", "me", "q", b""),
    "drop": ("drop", "q", b""),
    "drop -f": ("drop", "-f", "q", b""),
    "close": ("close", "q", b""),
    "create": ("create", "-b", "50", "q", b""),
    "wal": ("wal", b""),
    "doctor": ("doctor", "q", b""),
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
#: The content of the spool before. `plain`: ready singles, a flat file, one reserved, one buried,
#: one delayed, two claimed. `due`: its delay and its leases are over. `boot`: the system has just
#: started. `empty`: nothing but the one that is reserved. `bare`: nothing, so that drop removes it;
#: the receipt is of what was deleted. `ready`: two ready messages. `handed`: one is handed out by a
#: GET, one is ready; `handed, due`: its time is over.
BASES = ("plain", "due", "boot", "empty", "bare")
DUE = ("due", "handed, due")
BESIDE_DOORS = ("drop", "drop -f", "close")
BESIDE_RECEIPTS = ("pop", "reserve", "drain", "wal", "close", "drop -f", "http GET", *RECEIPTS)
#: Which verb is held beside which, in which spool.
COMBINATIONS = tuple(dict.fromkeys([
    *itertools.product(BASES, VERBS, VERBS),
    *((base, *pair) for base in ("ready", "bare") for door, verb in itertools.product(DOORS,
    BESIDE_DOORS)
      for pair in ((door, verb), (verb, door))),
    *((base, *pair) for base in ("handed", "handed, due")
      for door, verb in itertools.product(RECEIPTS, BESIDE_RECEIPTS) for pair in ((door, verb),
      (verb, door)))]))
#: How a door says that `new` is there.
STORED = re.compile(rb"N\n|HTTP/1\.1 200 |USING q\r\nINSERTED ")
#: Verbs that do several things one after the other; another verb may come in the middle.
MANY = frozenset({"push -l", "pop -l", "drain", "claim", "settle", "unclaim", "drop", "drop -f",
    "wal",
    "doctor", "create", "close"})
#: Verbs that change one message by its receipt.
BY_RECEIPT = frozenset({"delete", "release", "release -d", "touch", "bury", *RECEIPTS})
#: Verbs that create files, and may fail beside a drop that has found nothing.
MAKES = frozenset({"push", "push -k", "push -k dup", "push -d", "push -l", "create", "line push",
    "http POST", "beanstalk put"})


@dataclass(frozen=True)
class Pair:
    """`first` stops before its call `point`, `second` runs; `kill`: it is killed before its own
    call of that number; 0: it is not."""

    base: str
    first: str
    second: str
    point: int
    kill: int = 0

    def __str__(self) -> str:
        words = (self.base, self.first, self.second, str(self.point), str(self.kill))
        return shlex.join(["pair", "/".join(words)])

    @classmethod
    def parse(cls, text: str) -> Pair:
        """The pair whose str() this is. Raises ValueError."""
        base, first, second, point, kill = shlex.split(text)[-1].split("/")
        if (base, first, second) not in COMBINATIONS:
            raise ValueError(f"no pair: {text}")
        return cls(base, first, second, int(point), int(kill))


@dataclass(frozen=True)
class Ended:
    """The end of both verbs: their answers, without what differs from run to run, and every message
    with its state."""

    first: tuple[int, bytes]
    second: tuple[int, bytes]
    left: tuple[tuple[bytes, str], ...]


def base(system: System, name: str, work: Path) -> tuple[trees.Tree, str]:
    """The spool before, and m1's receipt."""
    def make() -> tuple[trees.Tree, str]:
        spool = work / f"base.{os.getpid()}"
        trees.remove(spool)

        def verb(*words: Any) -> bytes:
            done = system.verb(spool, *words[:-1], stdin=words[-1])
            if done.returncode:
                raise RuntimeError(f"{words}: {done}")
            return done.stdout

        def reserved() -> str:
            return verb("reserve", "-t", LEASE, "q", b"").split()[0].decode()

        handed, receipt = name.startswith("handed"), ""
        for words in pushes(1, 2 if name == "ready" or handed else 1):
            verb(*words)
        if handed:
            said = verb(*http("GET", "group-id=q&visibility-timeout=86400")).decode()
            receipt = re.findall(r"^Message-Receipt-Id: (\S+)", said, re.M)[0]
        elif name != "ready":
            receipt = reserved()
        if name == "bare":
            verb("delete", receipt, b"")
        elif name in ("plain", "due", "boot"):
            verb(*pushes(2, 2)[0])
            verb("bury", reserved(), b"")
            for words in (*pushes(3, 4), ("claim", "-c", "me", "-n", "2", "q", b""), *pushes(5, 9),
                    ("wal", b""), *pushes(10, 10, "-k", "key"), *pushes(11, 11),
                    *pushes(12, 12, "-d", LEASE)):
                verb(*words)
        if name in DUE:
            layout.age(spool)
        if name == "boot":
            layout.reboot(spool)
        for tended in spool.glob("*/tended"):
            tended.unlink()
        tree = trees.take(spool)
        trees.remove(spool)
        return tree, receipt

    return memo.once(work, ("pair base", system, name), make)


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
        spool = fresh(tree, work)
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


def _run(system: System, words: Words, spool: Path, **more: Any) -> gate.Result:
    return gate.run(system.argv(words[:-1]), spool, env=system.environment(spool), stdin=words[-1],
        count_stdout=True, timeout=60, **more)


def calls(system: System, base_name: str, verb: str, work: Path) -> list[gate.Call]:
    """The calls of the verb when it runs alone."""
    def find() -> list[gate.Call]:
        tree, receipt = base(system, base_name, work)
        spool = fresh(tree, work)
        found = _run(system, words_of(verb, receipt), spool).calls
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


def run(pair: Pair, system: System, work: Path) -> Outcome:
    begun = time.monotonic()
    reached, call, killed = True, "", False
    try:
        reached, call, killed, wrong = _carry_out(pair, system, work)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    return Outcome(f"{pair.base}: {pair.first} / {pair.second}", pair.first, pair.point, call,
        "pair, killed" if killed else "pair", "bad" if wrong else "good" if reached
        else "not reached",
        "; ".join(wrong), 0, round(time.monotonic() - begun, 4), str(pair), "pairs")


def again(line: str, system: System, work: Path) -> Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    return run(Pair.parse(line), system, work)


def _carry_out(pair: Pair, system: System, work: Path) -> tuple[bool, str, bool, list[str]]:
    """Whether the first verb came to its call, what call that is, whether the second verb was
    killed, and what is wrong."""
    tree, receipt = base(system, pair.base, work)
    spool = fresh(tree, work)
    before = Counter(m.body or b"?" for m in layout.dump(spool).messages())
    held: list[_Beside | gate.Result] = []
    where: list[gate.Call] = []
    words = words_of(pair.second, receipt)

    def beside(call: gate.Call, stdout: bytes, stderr: bytes) -> None:
        if call.seq != pair.point or where:
            return
        where.append(call)
        if pair.kill and not _locked(spool):  # One that would wait for the lock reaches no call
            held.append(_run(system, words, spool, fault=gate.Fault("kill_tree", pair.kill)))
        else:
            held.append(_Beside(system, words, spool))

    try:
        first = _run(system, words_of(pair.first, receipt), spool, each=beside)
    finally:
        others = [other.end() if isinstance(other, _Beside) else
            (other.status, other.stdout, other.stderr) for other in held]
    if not where:
        return False, "", False, []
    call = f"{where[0].comm}: {where[0].kind} {' '.join(where[0].paths)}"
    status, out, err = others[0]
    killed, both = pair.kill > 0 and status < 0, {pair.first, pair.second}
    may_fail = "drop -f" in both or pair.base == "bare" and "drop" in both and bool(both & MAKES)
    wrong = [f"{name}: exit {code}: {text[:200]!r}" for name, code, text in
        ((pair.first, first.status, first.stderr), (pair.second, status, err))
        if not (code in (0, 65, 66, 69, 75) or code < 0 and killed or code == 74 and may_fail)
        or text.count(b"\n") > (3 if name in REQUESTS else 1) and "drop -f" not in both]
    if first.timed_out:
        wrong.append(f"{pair.first} hangs")
    if killed:
        layout.age(spool)
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
    return True, call, killed, wrong


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


def plan(system: System, base_name: str, first: str, second: str, work: Path) -> Iterator[Pair]:
    """Every point of the first with the second whole, and killed at each of its points."""
    kills = [call.seq for call in calls(system, base_name, second, work)]
    for call in calls(system, base_name, first, work):
        for kill in (0, *kills):
            yield Pair(base_name, first, second, call.seq, kill)


def explore(system: System, base_name: str, first: str, second: str, seed: int, limit: int | None,
        work: Path) -> list[Outcome]:
    """The pairs of these two. `limit`: so many, by the seed, half of them with the second whole."""
    try:
        pairs = list(plan(system, base_name, first, second, work))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return [Outcome(f"{base_name}: {first} / {second}", first, 0, "", "pair", "bad", str(error),
            seed, 0.0, "", "pairs")]
    if limit is not None:
        chance = random.Random(f"{seed} {base_name} {first} {second}")
        whole = [pair for pair in pairs if not pair.kill]
        pairs = [*chance.sample(whole, min(-(-limit // 2), len(whole))),
            *chance.sample(pairs, min(limit // 2, len(pairs)))]
    return [run(pair, system, work) for pair in pairs]


def tasks(system: System, options: Any, work: Path) -> list[Any]:
    """For campaign.py."""
    return [functools.partial(explore, system, base_name, first, second, options.seed,
        options.limit,
        work) for base_name, first, second in COMBINATIONS]
