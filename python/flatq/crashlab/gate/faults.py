"""The faults by name, and which of them can strike a call."""
from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import gate

_CREATES = frozenset({"open", "mkdir", "mknod", "link", "symlink"})
_NAMES = _CREATES | {"rename", "unlink", "rmdir"}
#: For each error, the kinds of call that return it on Linux's file systems.
ERRORS: dict[str, tuple[int, frozenset[str] | None]] = {
    "ENOSPC": (errno.ENOSPC, gate.SPACE | {"sync"}),
    "EDQUOT": (errno.EDQUOT, gate.SPACE | {"sync"}),
    "EIO": (errno.EIO, None),
    "EMFILE": (errno.EMFILE, frozenset({"open"})),
    "EACCES": (errno.EACCES, _NAMES | {"truncate"}),
    "EROFS": (errno.EROFS, gate.CHANGES),
}
_PARTS: dict[str, int | None] = {"1 byte": 1, "half": None, "all but 1": -1}
#: Faults of writing the answer: the other end is gone, or it is a file on a full disk.
OUTPUT = {"output EPIPE": errno.EPIPE, "output ENOSPC": errno.ENOSPC}
KILLS = ("kill", "kill one", *(f"torn, {part}" for part in _PARTS))
SHORT = tuple(f"short, {part}" for part in _PARTS)
ONCE, LASTING = tuple(ERRORS), tuple(f"{name} lasting" for name in ERRORS)
#: The faults of each kind: a share of the family `crash` has one of each in every scenario.
KINDS = (("kill",), ("kill one",), KILLS[2:], SHORT, ONCE, LASTING)
#: Faults that left the same at every point where this was looked at (ENOSPC and EIO at 376 points of 24 scenarios; test_crash.py
#: compares all), so by turns one of them (by_turns).
#: EROFS differs where files are removed.
ALIKE = (ONCE, ("ENOSPC lasting", "EDQUOT lasting"), ("EIO lasting", "EROFS lasting"), SHORT)
#: Faults of calls that change nothing (a file is looked for, opened, listed or read): the error, and the kinds of call.
READS: dict[str, tuple[int, frozenset[str]]] = {
    "read EIO": (errno.EIO, gate.READS),
    "read EMFILE": (errno.EMFILE, frozenset({"look"})),
    "read ENOMEM": (errno.ENOMEM, frozenset({"look", "list"})),
}
#: How a process of the verb can end or fail to begin: killed when all it was to do is done; killed when it is about to read from a pipe;
#: not made at all, nor the pipe to it, nor a copy of a descriptor, which a shell makes for a redirection; made, but its program cannot be run, or is killed
#: before it is.
ENDS = ("killed at its end", "killed at a pipe")
BIRTHS: dict[str, tuple[int, str]] = {"no process": (errno.EAGAIN, "fork"), "no pipe": (errno.ENFILE, "pipe"), "no descriptor": (errno.EMFILE, "dup"),
                                      "no program": (errno.ENOMEM, "exec")}
#: Programs that copy a descriptor themselves. GNU's find that cannot takes a directory for empty, and ends with 0 (lib/README.md).
PROGRAMS = frozenset({"find", "rm"})
UNBEGUN = ("no program", "killed at its start")
#: The faults of the family `crash`, and of the families `reads` and `ends`, by name.
FAULTS = (*KILLS, *SHORT, *ONCE, *LASTING, *OUTPUT)
UNSEEN = (*READS, *ENDS, *BIRTHS, "killed at its start")


def make(name: str, point: int) -> gate.Fault:
    """The fault of that name at a point. Raises ValueError if there is none."""
    if name in ("kill", "kill one"):
        return gate.Fault({"kill": "kill_tree", "kill one": "kill_one"}[name], point)
    word, _, part = name.partition(", ")
    if word in ("torn", "short") and part in _PARTS:
        return gate.Fault(word, point, size=_PARTS[part])
    if name in ENDS or name == "killed at its start":
        return gate.Fault("kill_one", point)
    if name in READS or name in BIRTHS:
        return gate.Fault("errno", point, errno=(READS.get(name) or BIRTHS[name])[0])
    if name in OUTPUT:
        return gate.Fault("errno", point, errno=OUTPUT[name], only=frozenset({"write"}))
    word, _, lasting = name.partition(" ")
    if word in ERRORS and lasting in ("", "lasting"):
        number, only = ERRORS[word]
        return gate.Fault("errno_from" if lasting else "errno", point, errno=number, only=only)
    raise ValueError(f"no fault {name!r}: one of {', '.join(FAULTS)}")


def kills(name: str) -> bool:
    """Whether the fault kills the whole process tree."""
    return name == "kill" or name.startswith("torn")


def counted(name: str) -> str:
    """Which calls the points of this fault number: an error strikes a change below the root ("changes"); what fails on its way out strikes a
    write of the answer ("answer"); a kill or a short write can also strike a pipe between two processes of the verb ("all"). Of the families
    `reads` and `ends`, only what they strike is counted ("reads", "ends", "forks", "pipes", "dups", "execs")."""
    if name in UNSEEN:
        return "reads" if name in READS or name == "killed at a pipe" else "ends" if name in ENDS else f"{BIRTHS[name][1]}s" if name in BIRTHS else "execs"
    return "answer" if name in OUTPUT else "all" if name in KILLS or name in SHORT else "changes"


def befall(call: gate.Call, names: Iterable[str] = FAULTS) -> list[str]:
    """The faults that can strike the call. A lasting fault begins only at a call that it can strike: begun at another one, it is the same
    trial as at the next that it can. And no write is cut twice at the same byte."""
    found: dict[object, str] = {}
    for name in names:
        if name in UNSEEN:
            if unseen_strikes(name, call):
                found[name] = name
            continue
        if call.paths == ("<fd1>",) or name in OUTPUT and call.paths != ("<stdout>",):
            continue  # a pipe between two processes of the verb
        fault = make(name, call.seq)
        if fault.strikes(call):
            cut = fault.kind in ("torn", "short") and (fault.kind, fault.part(call.size))
            found.setdefault(cut or name, name)
    return list(found.values())


def unseen_strikes(name: str, call: gate.Call) -> bool:
    """Whether a fault of the families `reads` and `ends` can strike the call."""
    if name in READS:
        return call.kind in READS[name][1]
    if name in BIRTHS:
        # A shell copies to numbers from 10 on, so a limit at which the copy of a program like find fails is one at which its shell has failed before
        return call.kind == BIRTHS[name][1] and not (call.kind == "dup" and call.comm in PROGRAMS)
    return {"killed at its end": call.kind == "exit", "killed at its start": call.kind == "exec",
            "killed at a pipe": call.paths == ("<pipe>",)}[name]


def _one_each(names: Sequence[str], chance: random.Random) -> list[str]:
    """Of the errors that strike once, of those that last, of short writes, of failed answers and of programs that do not begin one each; all the others."""
    groups = (ONCE, LASTING, SHORT, tuple(OUTPUT), tuple(READS), UNBEGUN)
    left = [name for name in names if not any(name in group for group in groups)]
    return left + [chance.choice(found) for group in groups if (found := [name for name in names if name in group])]


def _thinned(calls: Sequence[gate.Call], chance: random.Random) -> list[gate.Call]:
    """Of many calls that a process makes in a row, of one kind on one file, the first two, the last and one more. Of many reads two: a shell reads a file
    byte by byte, and has nothing of it, or a part, when one fails. Of the opening of a directory and its first listing one: either way it looks empty."""
    kept: list[gate.Call] = []
    # sorted by process, since the calls of those that run side by side lie between each other
    for key, run in itertools.groupby(sorted(calls, key=lambda call: call.pid), key=lambda call: (call.pid, call.kind, call.paths)):
        alike = list(run)
        if key[1] == "list" and kept and (kept[-1].pid, kept[-1].kind, kept[-1].paths) == (key[0], "look", key[2]):
            if chance.random() < 0.5:
                del kept[-1]
            else:
                del alike[0]
        few = len(alike) < 5
        kept += alike if few else [alike[0], chance.choice(alike[1:])] if alike[0].kind == "read" else [*alike[:2], chance.choice(alike[2:-1]), alike[-1]]
    return sorted(kept, key=lambda call: call.seq)


def points(calls: Sequence[gate.Call], names: Iterable[str] = FAULTS, chance: random.Random | None = None, only: str = "") -> list[tuple[str, int]]:
    """Every fault at every call that it can befall, `calls` being those of a run in which all are counted, or `only` those of one way. With `chance` a share of them:
    one fault of those that differ only in the error or in the size, and a few of many calls in a row that are alike."""
    wanted, found = tuple(names), []
    for way in (only,) if only else ("changes", "all", "answer"):
        some = [name for name in wanted if counted(name) == way]
        numbered = list(calls) if only else number(calls, way)
        for call in _thinned(numbered, chance) if chance else numbered:
            fits = befall(call, some)
            found += [(name, call.seq) for name in (_one_each(fits, chance) if chance else fits)]
    return found


def by_turns(points: Iterable[tuple[str, int]], calls: Sequence[gate.Call]) -> list[tuple[str, int]]:
    """Of the faults that are ALIKE, one at each point: another at the next. `calls`: all that were counted."""
    there, found = dict.fromkeys(points), []
    removals = {call.seq for call in number(calls, "changes") if call.kind == "unlink"}
    for name, point in there:
        alike = [one for group in ALIKE if name in group for one in group if (one, point) in there] or [name]
        if point in removals and name not in SHORT:
            alike = [name] if name.startswith("EROFS") else [one for one in alike if not one.startswith("EROFS")]
        if name == alike[point % len(alike)]:
            found.append((name, point))
    return found


def number(calls: Sequence[gate.Call], way: str) -> list[gate.Call]:
    """Those of `calls`, in which all are counted, that are counted this way, with their numbers."""
    streams = (("<stdout>",), ("<fd1>",))
    there = [call for call in calls if way == "all" or (call.paths == streams[0] if way == "answer" else call.paths not in streams)]
    return [replace(call, seq=seq) for seq, call in enumerate(there, 1)]


def named(fault: gate.Fault, known: Sequence[gate.Call]) -> gate.Fault:
    """The same fault, its call told by what it is instead of by its number among the calls `known`."""
    if fault.point > len(known):
        return fault
    alike = known[fault.point - 1].alike
    return replace(fault, alike=alike, point=sum(call.alike == alike for call in known[:fault.point]))
