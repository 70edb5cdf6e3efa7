"""What the names of slips and of flat files say (lib/README.md, lib/engine/flat.sh)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: A slip's name; its end are COUNTS, and owner and deadline in out/ and done/
_SLIP = re.compile(
    r"([0-9]{10})\.([0-9]{12})\.([0-9]+)\.([0-9a-z-]+)\.([0-9]+)\.([0-9]+)\.([0-9]{12})"
    r"\.([0-9]+)\.(-|k[0-9a-f]{32})\.[0-9]+(?:-[0-9]+){3}(?:\.[^.]*\.[^.]*)?")
_FLAT = re.compile(
    r"([0-9]{10})\.([0-9]{12})\.([0-9]{12})\.([1-9][0-9]*)\.(0|[1-9][0-9]*)\.([0-9a-f]+)")


class Slip(NamedTuple):
    """What a slip's name says of its message."""

    priority: int
    id: int
    tries: int
    nonce: str
    lease: int
    delay: int
    born: int
    size: int
    key: str

    @property
    def body(self) -> str:
        """The name of the body."""
        return f"{self.id:012d}"


class Flat(NamedTuple):
    """A flat file's name: `lines` messages, from `first` to `last`; `tries` of the whole file."""

    priority: int
    first: int
    last: int
    lines: int
    tries: int
    nonce: str


def slip_of(name: str) -> Slip | None:
    """Return the slip of that name, None if it is none."""
    found = _SLIP.fullmatch(name)
    if found is None:
        return None
    priority, id, tries, nonce, lease, delay, born, size, key = found.groups()
    return Slip(int(priority), int(id), int(tries), nonce, int(lease), int(delay), int(born),
                int(size), key)


def flat_of(name: str) -> Flat | None:
    """Return the flat file of that name, None if it is none."""
    found = _FLAT.fullmatch(name)
    if found is None:
        return None
    priority, first, last, lines, tries = map(int, found.groups()[:5])
    return Flat(priority, first, last, lines, tries, found[6])


def spool_of(path: str | None) -> str:
    """Return the spool at a path; without one, that which the verbs take."""
    return path or os.environ.get("FLATQ_DIR") or os.path.join(
        os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "flatq")


def disk_name(queue: str) -> str:
    """Return the directory of a queue in its spool."""
    name = queue.replace("/", ",")
    return "%" + name if name.startswith(".") else name


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Create files with the mode that the verbs choose: a spool is one user's."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def syncs(spool: str = "") -> bool:
    """Return whether the files of a spool must be synced; of an unknown one, as FLATQ_SYNC says."""
    if spool:
        return not Path(spool, ".sync.off").exists()
    return os.environ.get("FLATQ_SYNC") != "off"
