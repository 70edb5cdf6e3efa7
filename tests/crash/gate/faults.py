"""The faults by name, and which of them can strike a call."""
from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import gate

_NAMES = frozenset({"open", "mkdir", "mknod", "link", "symlink", "rename", "unlink", "rmdir"})
#: For each error, the kinds of call that return it on Linux's file systems.
ERRORS: dict[str, tuple[int, frozenset[str] | None]] = {
    "ENOSPC": (errno.ENOSPC, gate.SPACE | {"sync"}),
    "EDQUOT": (errno.EDQUOT, gate.SPACE | {"sync"}),
    "EIO": (errno.EIO, None),
    "ENOMEM": (errno.ENOMEM, _NAMES),
    "EACCES": (errno.EACCES, _NAMES | {"truncate"}),
    "EROFS": (errno.EROFS, gate.CHANGES),
}
_PARTS: dict[str, int | None] = {"1 byte": 1, "half": None, "all but 1": -1}
KILLS = ("kill", "kill one", *(f"torn, {part}" for part in _PARTS))
SHORT = tuple(f"short, {part}" for part in _PARTS)
ONCE, LASTING = tuple(ERRORS), tuple(f"{name} lasting" for name in ERRORS)
#: Faults of writing the answer: the other end is gone, or it is a file on a full disk.
OUTPUT = {"output EPIPE": errno.EPIPE, "output ENOSPC": errno.ENOSPC}
#: Faults of looking at a file of the spool, listing or reading it: the error, the kinds of call. A
#: lasting one also strikes each later one of them on that file.
READS: dict[str, tuple[int, frozenset[str]]] = {
    "read EIO": (errno.EIO, gate.READS),
    "read ENOMEM": (errno.ENOMEM, frozenset({"look", "list"})),
    "read EACCES": (errno.EACCES, frozenset({"look"})),
    "read EIO lasting": (errno.EIO, gate.READS),
}
#: A process of the verb is killed when all that it was to do is done, or before its program is run;
#: or it cannot be made. The kinds of call that are struck.
ENDS = {"killed at its end": "exit", "killed at its start": "exec", "no process": "fork"}
#: The faults of the family `crash`.
FAULTS = (*KILLS, *SHORT, *ONCE, *LASTING, *OUTPUT)
_KINDS = {**dict.fromkeys(ONCE, "error"), **dict.fromkeys(LASTING, "error lasting"),
    **dict.fromkeys(OUTPUT, "error of the output"), **dict.fromkeys(READS, "error"),
    "read EIO lasting": "error lasting"}


def kind(name: str) -> str:
    """A sample has as many faults of each kind as it can, and a table a row for each."""
    return _KINDS.get(name, name.partition(",")[0])


def make(name: str, point: int) -> gate.Fault:
    """The fault of that name at a point. Raises KeyError if there is none."""
    word, _, part = name.partition(", ")
    if word in ("torn", "short"):
        return gate.Fault(word, point, size=_PARTS[part])
    if name == "kill":
        return gate.Fault("kill_tree", point)
    if name == "kill one" or name.startswith("killed"):
        return gate.Fault("kill_one", point)
    if name in OUTPUT:
        return gate.Fault("errno", point, errno=OUTPUT[name], only=frozenset({"write"}),
            output=True)
    if name in READS:
        return gate.Fault("errno_file" if name.endswith(" lasting") else "errno", point,
            errno=READS[name][0])
    if name == "no process":
        return gate.Fault("errno", point, errno=errno.EAGAIN)
    number, only = ERRORS[name.removesuffix(" lasting")]
    return gate.Fault("errno_from" if name in LASTING else "errno", point, errno=number, only=only)


def kills(name: str) -> bool:
    """Whether the fault kills the whole process tree."""
    return name == "kill" or name.startswith("torn")


def kinds(name: str) -> frozenset[str] | None:
    """The kinds of call that are counted where calls that change nothing are; None: changes are."""
    return gate.READS if name in READS else frozenset({ENDS[name]}) if name in ENDS else None


def befall(call: gate.Call, names: Iterable[str] = FAULTS) -> list[str]:
    """The faults that can strike the call. A lasting fault begins only at a call that it can
    strike: begun at another one, it is the same trial. And no write is cut twice at the same
    byte."""
    found: dict[object, str] = {}
    for name in names:
        fault = make(name, call.seq)
        if name in READS or name in ENDS:
            fits = call.kind in (READS[name][1] if name in READS else {ENDS[name]})
        else:
            fits = call.paths != ("<fd1>",) and fault.strikes(call)
        if fits:
            cut = fault.kind in ("torn", "short") and (fault.kind, fault.part(call.size))
            found.setdefault(cut or name, name)
    return list(found.values())


def points(calls: Sequence[gate.Call], names: Iterable[str] = FAULTS) -> list[tuple[str, int]]:
    """Every fault at every call that it can befall; a read that keeps failing, at the first of its
    file."""
    first = {call.paths: call.seq for call in reversed(calls)}
    return [(name, call.seq) for call in calls for name in befall(call, tuple(names))
        if name != "read EIO lasting" or first[call.paths] == call.seq]


def named(fault: gate.Fault, known: Sequence[gate.Call]) -> gate.Fault:
    """The same fault, its call told by what it is, without numbers, times and nonces, instead of by
    its number among `known`."""
    if fault.point > len(known):
        return fault
    text = re.sub("[0-9a-f]+", "[0-9a-f]+", re.escape(str(known[fault.point - 1])))
    here = replace(fault, where=rf"\A{text}\Z")
    return replace(here, point=sum(map(here.means, known[:fault.point])))
