"""The faults by name, and which of them can befall a call."""
from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

from . import gate

_CREATES = frozenset({"open", "mkdir", "mknod", "link", "symlink"})
_NAMES = _CREATES | {"rename", "unlink", "rmdir"}
#: What an error can strike: the kinds of call that give it on Linux's file systems.
ERRORS: dict[str, tuple[int, frozenset[str] | None]] = {
    "ENOSPC": (errno.ENOSPC, gate.SPACE | {"sync"}),
    "EDQUOT": (errno.EDQUOT, gate.SPACE | {"sync"}),
    "EIO": (errno.EIO, None),
    "EMFILE": (errno.EMFILE, frozenset({"open"})),
    "EACCES": (errno.EACCES, _NAMES | {"truncate"}),
    "EROFS": (errno.EROFS, gate.CHANGES),
}
_PARTS: dict[str, int | None] = {"1 byte": 1, "half": None, "all but 1": -1}
#: What can go wrong with the answer: the other end is gone, or it is a file on a full disk.
OUTPUT = {"output EPIPE": errno.EPIPE, "output ENOSPC": errno.ENOSPC}
KILLS = ("kill", "kill one", *(f"torn, {part}" for part in _PARTS))
SHORT = tuple(f"short, {part}" for part in _PARTS)
ONCE, LASTING = tuple(ERRORS), tuple(f"{name} lasting" for name in ERRORS)
#: Every fault, by name.
FAULTS = (*KILLS, *SHORT, *ONCE, *LASTING, *OUTPUT)


def make(name: str, point: int) -> gate.Fault:
    """The fault of that name at a point. Raises ValueError if there is none."""
    if name in ("kill", "kill one"):
        return gate.Fault({"kill": "kill_tree", "kill one": "kill_one"}[name], point)
    word, _, part = name.partition(", ")
    if word in ("torn", "short") and part in _PARTS:
        return gate.Fault(word, point, size=_PARTS[part])
    if name in OUTPUT:
        return gate.Fault("errno", point, errno=OUTPUT[name], only=frozenset({"write"}))
    word, _, lasting = name.partition(" ")
    if word in ERRORS and lasting in ("", "lasting"):
        number, only = ERRORS[word]
        return gate.Fault("errno_from" if lasting else "errno", point, errno=number, only=only)
    raise ValueError(f"no fault {name!r}: one of {', '.join(FAULTS)}")


def kills(name: str) -> bool:
    """Whether the whole tree dies of it."""
    return name == "kill" or name.startswith("torn")


def counts_output(name: str) -> bool:
    """Whether writes to standard output count as points too: not where an error would strike the pipes between processes."""
    return name in KILLS or name in SHORT or name in OUTPUT


def befall(call: gate.Call, names: Iterable[str] = FAULTS) -> list[str]:
    """Those of the faults that can befall the call. One that lasts begins at a call that it can strike itself: begun at
    another, it is the same trial as at the next that it can. Nor is a write cut twice at the same byte."""
    found: dict[object, str] = {}
    for name in names:
        if call.paths == ("<fd1>",) or name in OUTPUT and call.paths != ("<stdout>",):
            continue  # a pipe between two processes of the verb
        fault = make(name, call.seq)
        if fault.strikes(call):
            cut = fault.kind in ("torn", "short") and (fault.kind, fault.part(call.size))
            found.setdefault(cut or name, name)
    return list(found.values())


def points(calls: Sequence[gate.Call], output: Sequence[gate.Call], names: Iterable[str] = FAULTS) -> list[tuple[str, int]]:
    """Every fault at every call that it can befall; `output`: the calls where those that write the answer count."""
    wanted = tuple(names)
    errors, others = ([name for name in wanted if counts_output(name) == also] for also in (False, True))
    return [(name, call.seq) for counted, some in ((calls, errors), (output, others)) for call in counted for name in befall(call, some)]
