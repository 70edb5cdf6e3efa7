"""The ends of a shovel: what a message is on its way, where it comes from, and where it goes.

A place is a queue's name (local.py); HOST:PORT/NAME, behind a line door (door.py); beanstalk://HOST:PORT/TUBE (tube.py);
pressure+redis://HOST:PORT/DB/NAME (redis.py); or mqueue:///NAME (mqueue.py of the package)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import operator
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import IO

from ..errors import Busy, Denied, Disk, Error, Full, Invalid, TimedOut, Unreachable

#: what passes when an end comes back, or has room again
PASSING = (Unreachable, Full, Busy, TimedOut, Disk)
#: seconds that a message in hand is ours, and is renewed three times in
LEASE = 30
#: seconds that another shovel's lock is waited for: of one that was just killed, what it was about to start holds it until it is a verb
PATIENCE = 2


class TooLarge(Invalid):
    """65: a message that the other end will never take."""


def refused(error: Invalid) -> Invalid:
    """What is to be raised, where a queue of ours refuses a message: TooLarge if that is why."""
    return TooLarge(str(error), 65, error.verb) if "over the limit" in str(error) else error


class Taken(Error):
    """75, of what does not pass by waiting."""


class Damaged(Error):
    """74, of what does not pass by waiting: what lies on the disk is not what was written."""


class Parcel:
    """A message in hand. priority and lease are flatq's, None where the source has none.

    key: the same when the message comes again, and no other's: see each source. A queue of ours refuses a key that it has, so that a
    message whose acknowledgement was lost is not there twice. Where a spool behind a door, or a pressure queue, was made anew, and so
    numbers begin anew, a message that is equal to one that the target still has, number and all, is taken for that one."""

    def __init__(self, body: bytes, key: str, priority: int | None = None, lease: int | None = None) -> None:
        self.body, self.key, self.priority, self.lease = body, key, priority, lease

    def done(self) -> None:
        """It is there: it need not be here. Raises NotYours where it will come again, or is gone already."""

    def keep(self) -> None:
        """It is ours for another lease."""

    def back(self) -> None:
        """It is to stay here."""

    def bury(self) -> None:
        """It can never go there. Raises Invalid where a source cannot set it aside."""
        raise Invalid("a message that is too large for the other end, and cannot be set aside here: it is still there", 65)


class Source(ABC):
    """Where messages come from. `take` hands out one, which is still there until its `done`."""

    name = ""
    #: so many at most are to be in hand
    most = 1000000
    #: whether more of what is in hand is to be moved before a stop
    begun = False

    @abstractmethod
    def take(self, wait: float) -> Parcel:
        """The next one. Raises Empty, Closed."""

    def close(self) -> None:
        """Leave it as it would be found by others."""


class Target(ABC):
    """Where messages go."""

    name = ""

    @abstractmethod
    def give(self, parcel: Parcel, wait: float) -> None:
        """Returns when it is there, safely. Raises Full, Closed, TooLarge."""

    def close(self) -> None:
        """Be done with it."""


def key_of(*parts: object, body: bytes) -> str:
    """A parcel's key: the same body is part of it, so that two that differ never share one."""
    return hashlib.sha1(repr(parts).encode() + hashlib.sha1(body).digest()).hexdigest()


def way(here: str, there: str) -> str:
    """A name for the way from one place to another."""
    return "shovel-" + hashlib.sha1(f"{here} {there}".encode()).hexdigest()[:16]


class Note:
    """One line that outlives us, in `.shovel/WAY` of the spool: what the next shovel of this way has to know if we are killed. The file is
    locked while we run, so there is one at a time; it is for those alone who may use the spool. Raises Taken where another has it and keeps
    it, Disk, Denied."""

    def __init__(self, way: str, place: str, path: str | None = None) -> None:
        spool = path or os.environ.get("FLATQ_DIR") or os.path.join(
            os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state"), "flatq")
        directory = os.path.join(spool, ".shovel")
        self.place, self.synced = place, os.environ.get("FLATQ_SYNC") != "off"
        try:
            with _private(spool):
                os.makedirs(directory, exist_ok=True)
                self.file: IO[bytes] = open(os.open(os.path.join(directory, way), os.O_RDWR | os.O_CREAT, 0o666), "r+b", 0)
        except OSError as error:
            raise _failed(directory, error) from None
        end = time.monotonic() + PATIENCE
        while not self._locked():
            if time.monotonic() > end:
                self.file.close()
                raise Taken(f"{place}: another shovel moves it to the same place", 75)
            time.sleep(0.05)
        self.text = self.file.read(1000).partition(b"\n")[0]

    def _locked(self) -> bool:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def write(self, text: bytes) -> None:
        """Durably, where the verbs are."""
        if text == self.text:
            return
        try:
            os.pwrite(self.file.fileno(), text + b"\n", 0)
            if self.synced:
                os.fdatasync(self.file.fileno())
        except OSError as error:
            raise _failed(self.place, error) from None
        self.text = text

    def first(self, text: bytes) -> Note:
        """Itself, with this written; where that fails, it is another one's."""
        try:
            self.write(text)
        except BaseException:
            self.close()
            raise
        return self

    def last(self, text: bytes | None) -> None:
        """Close it, with this written unless that is None."""
        try:
            if text is not None:
                self.write(text)
        finally:
            self.close()

    def close(self) -> None:
        """Let another one have it."""
        self.file.close()


@contextlib.contextmanager
def _private(spool: str) -> Iterator[None]:
    """What is made is for whoever a verb would make it for: a spool with the set-gid bit is a group's."""
    shared = os.path.isdir(spool) and os.stat(spool).st_mode & stat.S_ISGID
    before = os.umask(0o007 if shared else 0o077)
    try:
        yield
    finally:
        os.umask(before)


def _failed(place: str, error: OSError) -> Error:
    text = f"{place}: {error.strerror}"
    return Denied(text, 77) if isinstance(error, PermissionError) else Disk(text, 74)


class Doubt:
    """Whether the other end holds a message for us that we do not know of: the connection broke, or a shovel was killed, between asking for
    one and noting which it was. Nothing is taken before that message is back, or later ones would overtake it."""

    def __init__(self, place: str) -> None:
        self.place, self.since = place, 0.0

    def arise(self) -> None:
        """From now on there is one."""
        self.since = time.monotonic()

    def end(self) -> None:
        """It is back, or another's."""
        self.since = 0.0

    def __bool__(self) -> bool:
        return bool(self.since)

    def age(self) -> float:
        """Its seconds."""
        return time.monotonic() - self.since

    def wait(self) -> None:
        """Raises Busy, on which a shovel waits."""
        raise Busy(f"{self.place}: a message may still be reserved for a shovel that was cut off: waits until it is back", 75)


#: the module of each kind of place, and what in it makes a Source of a place and the name of where it goes, and a Target of a place
_ENDS = {
    "queue": (".local", "Local", "Here"),
    "door": (".door", "DoorSource", "Door"),
    "beanstalk": (".tube", "TubeSource", "Tube"),
    "pressure": (".redis", "PressureSource", "Pressure"),
    "mqueue": ("..mqueue", "Kernel.at", "Kernel.at"),
}


def source(place: str, towards: str) -> Source:
    """Where messages come from; towards: the name of where they go. Raises Invalid."""
    module, name, _ = _ENDS[_kind(place)]
    made: Source = operator.attrgetter(name)(importlib.import_module(module, __name__))(place, towards)
    return made


def target(place: str) -> Target:
    """Where they go. Raises Invalid."""
    module, _, name = _ENDS[_kind(place)]
    made: Target = operator.attrgetter(name)(importlib.import_module(module, __name__))(place)
    return made


def _kind(place: str) -> str:
    kind = place.partition(":")[0]
    if kind in ("beanstalk", "mqueue"):
        return kind
    if kind in ("pressure+redis", "pressure+rediss"):
        return "pressure"
    if "://" in place:
        raise Invalid(f"'{place}': QUEUE, HOST:PORT/QUEUE, beanstalk://HOST:PORT/TUBE, pressure+redis://HOST:PORT/DB/QUEUE or mqueue:///NAME", 65)
    return "door" if ":" in place else "queue"
