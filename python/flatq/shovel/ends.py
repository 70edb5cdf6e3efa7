"""The ends of a shovel: a message on its way, the places that it comes from, and those that it goes to.

A place is a queue's name (local.py); HOST:PORT/NAME, behind a line door, or ssh://[USER@]HOST[:PORT]/NAME
(door.py, ssh.py); beanstalk://HOST:PORT/TUBE (tube.py); amqp://HOST:PORT/VHOST/QUEUE (amqp.py); sqs://QUEUE (sqs.py);
pressure+redis://HOST:PORT/DB/NAME (redis.py); or mqueue:///NAME (flatq/mqueue.py)."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import IO

from ..errors import Busy, Disk, Error, Full, Invalid, TimedOut, Unreachable, of_system, printable
from ..verbs import private, syncs

#: Errors that pass when an end comes back, or has room again
PASSING = (Unreachable, Full, Busy, TimedOut, Disk)
#: The lease of a message in hand, in seconds; it is renewed three times in that time
LEASE = 30
#: Seconds to wait for another shovel's lock: a process that a killed shovel was just starting holds the lock until it becomes a verb
PATIENCE = 2


class TooLarge(Invalid):
    """65: a message that the other end will never take."""


def refused(error: Invalid) -> Invalid:
    """Return the error to raise when a queue of ours refuses a message: TooLarge if that is the reason."""
    return TooLarge(str(error), 65, error.verb) if "over the limit" in str(error) else error


class Taken(Error):
    """75 that does not pass by waiting."""


class Damaged(Error):
    """74 that does not pass by waiting: the data on the disk is not what was written."""


class Parcel:
    """A message in hand. priority and lease are flatq's, None if the source has none.

    key: unique to the message, and the same when it comes again (see each source). A queue of ours refuses a key that it has, so a
    message whose acknowledgement was lost is not stored twice. If a spool behind a door, or a pressure queue of another program, was created
    anew, its numbers begin anew: then a message equal to one that the target still has, with the same number, is taken for that one."""

    def __init__(self, body: bytes, key: str, priority: int | None = None, lease: int | None = None) -> None:
        self.body, self.key, self.priority, self.lease = body, key, priority, lease

    def done(self) -> None:
        """Delete it: the target has it. Raises NotYours if it will come again, or is gone already."""

    def keep(self) -> None:
        """Keep it for another lease."""

    def back(self) -> None:
        """Give it back: it stays here."""

    def bury(self) -> None:
        """Set it aside, since the target will never take it. Raises Invalid if this source cannot do that."""
        raise Invalid("the message is too large for the other end, and this source cannot set it aside: it is still there", 65)


class Source(ABC):
    """A place where messages come from. `take` returns a message, which stays at the source until its `done`."""

    name = ""
    #: At most so many messages in hand
    most = 1000000
    #: Whether more messages in hand should be moved before a stop
    begun = False

    @abstractmethod
    def take(self, wait: float) -> Parcel:
        """Return the next message. Raises Empty, Closed."""

    def close(self) -> None:
        """Let go of the place, as other consumers should find it."""


class Target(ABC):
    """Where messages go."""

    name = ""

    @abstractmethod
    def give(self, parcel: Parcel, wait: float) -> None:
        """Store the message; return when it is safe. Raises Full, Closed, TooLarge."""

    def close(self) -> None:
        """Let go of the place."""


def key_of(*parts: object, body: bytes) -> str:
    """A parcel's key: the body is part of it, so two that differ never share one."""
    return hashlib.sha1(repr(parts).encode() + hashlib.sha1(body).digest()).hexdigest()


def way(here: str, there: str) -> str:
    """A name for the way from one place to another."""
    return "shovel-" + hashlib.sha1(f"{here} {there}".encode()).hexdigest()[:16]


class Note:
    """One line in `.shovel/WAY` of the spool: what the next shovel between these places has to know if we are killed. The file is locked
    while we run, so only one runs at a time, and only users of the spool may read it. Raises Taken if another shovel keeps it, Disk, Denied."""

    def __init__(self, way: str, place: str, path: str | None = None) -> None:
        spool = path or os.environ.get("FLATQ_DIR") or os.path.join(
            os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state"), "flatq")
        directory = os.path.join(spool, ".shovel")
        self.place, self.spool = place, spool
        try:
            with private():
                os.makedirs(directory, exist_ok=True)
                # In a group's spool, another member may have made a link of either name
                there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    self.file: IO[bytes] = open(os.open(way, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=there), "r+b", 0)
                    if syncs(spool):
                        os.fsync(there)
                        _sync(spool)
                finally:
                    os.close(there)
        except OSError as error:
            raise of_system(directory, error) from None
        end = time.monotonic() + PATIENCE
        while not self._locked():
            if time.monotonic() > end:
                self.file.close()
                raise Taken(f"{place}: another shovel moves it to the same place", 75)
            time.sleep(0.05)
        try:
            # From a FIFO we would read for ever
            if not stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
                raise Damaged(f"{place}: its note in .shovel is not a file", 74)
            read = self.file.read(2000)
            #: False: it has no newline, so its writer or the machine ended within the write, and what it says is part of something
            self.whole = not read or b"\n" in read
            self.text = read.partition(b"\n")[0] if self.whole else b""
        except OSError as error:
            self.file.close()
            raise of_system(place, error) from None

    def _locked(self) -> bool:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def write(self, text: bytes) -> None:
        """Write the line; synced if the verbs sync."""
        if text == self.text and self.whole:
            return
        try:
            if os.pwrite(self.file.fileno(), text + b"\n", 0) != len(text) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if syncs(self.spool):
                os.fdatasync(self.file.fileno())
        except OSError as error:
            raise of_system(self.place, error) from None
        self.text, self.whole = text, True

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
        try:
            self.file.close()
        except OSError as error:
            raise of_system(self.place, error) from None


def _sync(directory: str) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Doubt:
    """The doubt whether the other end holds a message for us that we do not know: the connection broke, or a shovel was killed, between the
    request and the note of the answer. Nothing is taken before that message is back, or later ones would overtake it."""

    def __init__(self, place: str) -> None:
        self.place, self.since = place, 0.0

    def arise(self) -> None:
        """From now on there is a doubt."""
        self.since = time.monotonic()

    def end(self) -> None:
        """The message is back, or another consumer has it."""
        self.since = 0.0

    def __bool__(self) -> bool:
        return bool(self.since)

    def age(self) -> float:
        """The seconds since the doubt arose."""
        return time.monotonic() - self.since

    def wait(self) -> None:
        """Raises Busy, on which a shovel waits."""
        raise Busy(f"{self.place}: a message may still be reserved for a shovel that was cut off: waits until it is back", 75)


class Noted(Source):
    """A source elsewhere: a note here says what the next shovel has to know if we are killed. `open_note` opens it."""

    def __init__(self, name: str, place: str, towards: str) -> None:
        self.name, self.way = name, way(name, towards)
        self.note: Note | None = None
        self.doubt = Doubt(place)


class Connected(Noted):
    """A source that takes back what a connection held when that ends. The note is `open` once there was a connection."""

    def open_note(self) -> None:
        """Open the note; there is a doubt if the last shovel was killed."""
        if self.note is None:
            note = Note(self.way, self.name)
            if note.text == b"open" or not note.whole:
                self.doubt.arise()
            self.note = note.first(b"open")


class Reserving(Noted):
    """A source that gives receipts. The note says how far a message has come: `asked`, `held RECEIPT` or `given RECEIPT`. If one was asked for and
    no answer came, there is Doubt."""

    RECEIPT = "[!-,.-~][!-~]*"
    #: A note that a shovel of this kind writes, when it knows what is reserved for it
    KNOWN = f"nothing|(?:held|given) {RECEIPT}|"
    #: The words of the note that a killed shovel has left
    left: list[str] = []

    def open_note(self) -> None:
        """Open the note, and read what it says of the last shovel."""
        if self.note is None:
            self.note = Note(self.way, self.name)
            text = self.note.text.decode(errors="replace")
            known = self.note.whole and re.fullmatch(self.KNOWN, text)
            self.left = text.split(" ") if known else []
            if not known:
                self.doubt.arise()

    def write(self, *words: str) -> None:
        """Write these words to the note."""
        assert self.note is not None
        self.note.write(" ".join(words).encode())

    def close(self) -> None:
        note, self.note = self.note, None
        if note:
            note.last(b"nothing" if note.text == b"asked" and not self.doubt else None)


def source(place: str, towards: str) -> Source:
    """The source for a place; towards: the name of the target. Raises Invalid."""
    try:
        return _ends(place)[0](place, towards)
    except ValueError:
        raise _no_place(place) from None


def target(place: str) -> Target:
    """The target for a place. Raises Invalid."""
    try:
        return _ends(place)[1](place)
    except ValueError:
        raise _no_place(place) from None


def _no_place(place: str) -> Invalid:
    """The error for a place that cannot be parsed; it does not show the password."""
    return Invalid(f"'{printable(os.fsencode(place.rpartition('@')[2]))}' is no place: see flatq shovel -h", 65)


def _ends(place: str) -> tuple[Callable[[str, str], Source], Callable[[str], Target]]:
    """What makes a Source from a place and the name of the target, and what makes a Target. Only what the place needs is imported."""
    kind = place.partition(":")[0]
    if kind == "beanstalk":
        from .tube import Tube, TubeSource

        return TubeSource, Tube
    if kind in ("amqp", "amqps"):
        from .amqp import Amqp, AmqpSource

        return AmqpSource, Amqp
    if kind == "sqs":
        from .sqs import Sqs, SqsSource

        return SqsSource, Sqs
    if kind == "mqueue":
        from ..mqueue import Kernel

        return Kernel.at, Kernel.at
    if kind in ("pressure+redis", "pressure+rediss"):
        from ..pressure import library
        from .redis import Pressure, PressureSource

        library()  # else the shovel would wait for it, as for a server that does not answer
        return PressureSource, Pressure
    if "://" in place and kind != "ssh":
        raise Invalid(f"'{place}': QUEUE, HOST:PORT/QUEUE, or ssh, beanstalk, amqp, sqs, pressure+redis or mqueue with ://: see flatq shovel -h", 65)
    if ":" in place:
        from .door import Door, DoorSource

        return DoorSource, Door
    from .local import Here, Local

    return Local, Here
