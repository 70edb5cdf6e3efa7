"""What the ends of a shovel have in common; `flatq shovel -h` lists the places."""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..errors import Busy, Disk, Full, Invalid, TimedOut, Unreachable, printable

#: Errors that pass when an end comes back, or has room again
PASSING = (Unreachable, Full, Busy, TimedOut, Disk)
#: The lease of a message in hand, in seconds; it is renewed while the target is away
LEASE = 30

#: The module and class of each kind of place
_KINDS = {
    "": (".local", "Local"), "ssh": (".local", "Local"), "beanstalk": (".tube", "Tube"),
    "amqp": (".amqp", "Amqp"), "amqps": (".amqp", "Amqp"), "sqs": (".sqs", "Sqs"),
    "mqueue": ("..mqueue", "Kernel"), "pressure+redis": (".redis", "Pressure"),
    "pressure+rediss": (".redis", "Pressure"), "redis+list": (".redis", "List"),
    "rediss+list": (".redis", "List"),
}


class TooLarge(Invalid):
    """65: a message that the other end will never take."""


class Parcel:
    """A message in hand. priority and lease are flatq's, None if the source has none.

    key: unique to the message, and the same when it comes again, so that a queue of ours does not
    store it twice. (If a spool behind a door is created anew, a message with the body and the
    number of one that the target still has is taken for that one.)

    A source gives its own `done`, `keep`, `back` and `bury` as `steps`.
    """

    def __init__(self, body: bytes, key: str, priority: int | None = None,
                 lease: int | None = None, **steps: Callable[[], object]) -> None:
        self.body, self.key, self.priority, self.lease = body, key, priority, lease
        vars(self).update(steps)

    def done(self) -> None:
        """Delete it: the target has it. Raises NotYours if it will come again, or is gone."""

    def keep(self) -> None:
        """Keep it for another lease."""

    def back(self) -> None:
        """Give it back: it stays here."""

    def bury(self) -> None:
        """Set it aside: the target will never take it. Raises Invalid if it cannot."""
        self.back()
        raise Invalid("too large for the other end, and cannot be set aside: it is still there")


class _Place:
    name = ""

    def close(self) -> None:
        """Let go of the place."""


class Source(_Place, ABC):
    """A place where messages come from."""

    @abstractmethod
    def take(self, wait: float) -> Parcel:
        """Return the next message, which stays until its `done`. Raises Empty, Closed."""


class Target(_Place, ABC):
    """Where messages go. patience: see Shovel."""

    patience: float | None = None

    @abstractmethod
    def give(self, parcel: Parcel, wait: float) -> None:
        """Store the message; return when it is safe. Raises Full, Closed, TooLarge."""


def key_of(*parts: object, body: bytes) -> str:
    """Return a parcel's key, of which the body is a part: two that differ never share one."""
    return hashlib.sha1(repr(parts).encode() + hashlib.sha1(body).digest()).hexdigest()


def source(place: str, towards: str | None = None) -> Source:
    """Return the source for a place. Raises Invalid."""
    if towards is not None:
        warnings.warn("source(place) is enough: a source does not need to know the target",
                      DeprecationWarning, stacklevel=2)
    return _end(place)  # type: ignore[no-any-return]


def target(place: str) -> Target:
    """Return the target for a place. Raises Invalid."""
    return _end(place)  # type: ignore[no-any-return]


def _end(place: str) -> Any:
    kind, colon, _ = place.partition(":")
    if "://" not in place and kind != "mqueue":
        kind = "ssh" if colon else ""
    # Without the password
    name = printable(os.fsencode(place.rpartition("@")[2]))
    if kind in ("redis", "rediss"):
        raise Invalid(f"'{name}': {kind}+list:// is a plain list, pressure+{kind}:// a queue of"
                      " pressure's")
    if kind not in _KINDS:
        raise Invalid(f"'{name}': QUEUE, HOST:PORT/QUEUE, or ssh, beanstalk, amqp, sqs,"
                      " redis+list, pressure+redis or mqueue with ://: see flatq shovel -h")
    module, end = _KINDS[kind]
    try:
        return getattr(importlib.import_module(module, __package__), end)(place)
    except Invalid:
        raise
    except ValueError:
        raise Invalid(f"'{name}' is no place: see flatq shovel -h") from None
