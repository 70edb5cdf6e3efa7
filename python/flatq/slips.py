"""What the names of slips and of flat files say; lib/README.md (Body and slip) and
lib/engine/flat.sh have the tables."""

from __future__ import annotations

import re
from typing import NamedTuple

#: A slip's name, without what its place adds
SLIP = r"([0-9]{10})\.([0-9]{12})\.([0-9]+)\.([0-9a-z-]+)\.([0-9]+)\.([0-9]+)\.([0-9]{12})\.([0-9]+)\.(-|k[0-9a-f]{32})\.([0-9]+(?:-[0-9]+){3})"
_SLIP = re.compile(SLIP + r"(?:\.([^.]*)\.([^.]*))?")
_FLAT = re.compile(
    r"([0-9]{10})\.([0-9]{12})\.([0-9]{12})\.([1-9][0-9]*)\.(0|[1-9][0-9]*)\.([0-9a-f]+)")


class Slip(NamedTuple):
    """born: in hundredths of a second since 1970. key: `-` or a hash. owner, deadline: in out/ and
    done/ alone, else `0` and zeros."""

    priority: int
    id: int
    tries: int
    nonce: str
    lease: int
    delay: int
    born: int
    size: int
    key: str
    counts: str
    owner: str
    deadline: str

    @property
    def body(self) -> str:
        """The name of the body."""
        return f"{self.id:012d}"


class Flat(NamedTuple):
    """Messages from `first` to `last`, `lines` of them. tries: how often the whole file came back,
    which counts beside those of each slip."""

    priority: int
    first: int
    last: int
    lines: int
    tries: int
    nonce: str


def slip_of(name: str) -> Slip | None:
    """The slip of that name, None if it is none."""
    found = _SLIP.fullmatch(name)
    if found is None:
        return None
    return Slip(int(found[1]), int(found[2]), int(found[3]), found[4], int(found[5]), int(found[6]),
        int(found[7]), int(found[8]),
                found[9], found[10], found[11] or "0", found[12] or "0" * 12)


def flat_of(name: str) -> Flat | None:
    """The flat file of that name, None if it is none."""
    found = _FLAT.fullmatch(name)
    return Flat(int(found[1]), int(found[2]), int(found[3]), int(found[4]), int(found[5]),
        found[6]) if found else None
