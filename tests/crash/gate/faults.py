"""The faults by name, and which of them can strike a call."""
from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import gate
from .gate import Fault

_NAMES = frozenset({"open", "mkdir", "mknod", "rename", "unlink", "rmdir"})
#: For each error, the kinds of call that return it on Linux's file systems.
_ERRORS: dict[int, frozenset[str] | None] = {errno.ENOSPC: gate.SPACE | {"sync"},
    errno.EDQUOT: gate.SPACE | {"sync"}, errno.EIO: None, errno.ENOMEM: _NAMES,
    errno.EACCES: _NAMES | {"truncate"}, errno.EROFS: gate.CHANGES}
KILLS = {"kill": Fault("kill_tree", 1), "kill one": Fault("kill_one", 1),
    **{f"torn, {part}": Fault("torn", 1, size=size)
        for part, size in (("1 byte", 1), ("half", None), ("all but 1", -1))}}
ERRORS = {errno.errorcode[number] + when: Fault(kind, 1, number, only=only)
    for when, kind in (("", "errno"), (" lasting", "errno_from"))
    for number, only in _ERRORS.items()}
#: Faults of writing the answer: the other end is gone, or it is a file on a full disk.
OUTPUT = {f"output {errno.errorcode[number]}": Fault("errno", 1, number, output=True,
    only=frozenset({"write"})) for number in (errno.EPIPE, errno.ENOSPC)}
#: Faults of looking at a file of the spool, listing or reading it. A lasting one also strikes each
#: later one of them on that file.
READS = {
    "read EIO": Fault("errno", 1, errno.EIO, only=gate.READS),
    "read ENOMEM": Fault("errno", 1, errno.ENOMEM, only=frozenset({"look", "list"})),
    "read EACCES": Fault("errno", 1, errno.EACCES, only=frozenset({"look"})),
    "read EIO lasting": Fault("errno_file", 1, errno.EIO, only=gate.READS),
}
#: A process of the verb is killed when all that it was to do is done, or before its program is run;
#: or it cannot be made.
ENDS = {"killed at its end": Fault("kill_one", 1, only=gate.ENDS),
    "killed at its start": Fault("kill_one", 1, only=gate.EXECS),
    "no process": Fault("errno", 1, errno.EAGAIN, only=gate.FORKS)}
#: The faults of the family `crash`; all.
FAULTS = {**KILLS, **ERRORS, **OUTPUT}
_ALL = {**FAULTS, **READS, **ENDS}


def kind(name: str) -> str:
    """A sample has as many faults of each kind as it can, and a table a row for each."""
    if name in OUTPUT:
        return "error of the output"
    if name in ERRORS or name in READS:
        return "error lasting" if name.endswith(" lasting") else "error"
    return name.partition(",")[0]


def make(name: str, point: int) -> Fault:
    """The fault of that name at a point. Raises KeyError if there is none."""
    return replace(_ALL[name], point=point)


def kills(name: str) -> bool:
    """Whether the fault kills the whole process tree."""
    return name == "kill" or name.startswith("torn")


def kinds(name: str) -> frozenset[str] | None:
    """The kinds of call that are counted where calls that change nothing are; None: changes are."""
    return gate.READS if name in READS else ENDS[name].only if name in ENDS else None


def points(calls: Sequence[gate.Call], names: Iterable[str] = FAULTS) -> list[tuple[str, int]]:
    """Every fault at every call that it can strike. So a lasting error begins only there, and a
    read that keeps failing at the first of its file. No write is cut twice at the same byte."""
    found: dict[object, tuple[str, int]] = {}
    first = {call.paths: call.seq for call in reversed(calls)}
    for call, name in itertools.product(calls, names):
        fault, late = make(name, call.seq), first[call.paths] < call.seq
        if call.paths != ("<fd1>",) and fault.strikes(call, call.seq - 1) and not (late
                and fault.kind == "errno_file"):
            part = fault.part(call.size) if fault.kind == "torn" else name
            found.setdefault((call.seq, part), (name, call.seq))
    return list(found.values())


def named(fault: Fault, known: Sequence[gate.Call]) -> Fault:
    """The same fault, its call told by what it is, without numbers, times and nonces, instead of by
    its number among `known`."""
    if fault.point > len(known):
        return fault
    text = re.sub("[0-9a-f]+", "[0-9a-f]+", re.escape(str(known[fault.point - 1])))
    here = replace(fault, where=rf"\A{text}\Z")
    return replace(here, point=sum(map(here.means, known[:fault.point])))
