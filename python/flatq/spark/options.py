"""The options, checked, and a queue's place, where the verbs are run."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..slips import disk_name, private, spool_of, syncs
from . import format as flat

if TYPE_CHECKING:
    from ..queue import Segment

PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST = 999999999
#: For how many seconds a reader waits for the lock of its name
PATIENCE = 10


def in_line(error: Exception) -> Exception:
    """The error as Spark shall show it."""
    if isinstance(error, (ArithmeticError, AssertionError, AttributeError, KeyError, TypeError,
            UnicodeError, json.JSONDecodeError)):
        return error  # a fault of ours
    return type(error)("\nflatq: " + str(error).removeprefix("flatq ").replace("\n", " "))


def told(method: Any) -> Any:
    """For what Spark calls: the only frame of an error's traceback."""
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except Exception as error:
            raise in_line(error) from None
    return call


def lock(path: str, seconds: float) -> int:
    """Wait so long for the lock of a directory, and return a descriptor that holds it. Raises
    BlockingIOError."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The engine has its own use for the numbers below 10
        number = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(file)
    end = time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return number
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.05)
    except BaseException:
        os.close(number)
        raise


@contextlib.contextmanager
def alone(path: str, seconds: float = float("inf")) -> Iterator[int]:
    """Hold that lock. Raises BlockingIOError."""
    number = lock(path, seconds)
    try:
        yield number
    finally:
        os.close(number)


class Elsewhere(ValueError):
    """A path that is not on this machine: of hdfs:// and the like."""


def local(path: str, name: str = "") -> str:
    """The absolute path. Raises Elsewhere."""
    if "://" in path and not path.startswith("file:"):
        raise Elsewhere(f"{name}{path} is not on this machine")
    return os.path.abspath(re.sub("^(file:)?/+", "/", path))


def package() -> Any:
    """flatq, also in a process of Spark that does not find it."""
    try:
        import flatq
    except ImportError:
        sys.path.append(PACKAGES)
        import flatq
    return flatq


def sync(path: str, spool: str = "") -> None:
    """Sync the file system of path, if the spool's verbs sync. Raises OSError."""
    if not syncs(spool):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(file)


def sync_all(spool: str) -> None:
    """Sync every file system, as Spark may have written to any. Raises OSError."""
    if not syncs(spool):
        return
    # This reaches file systems that we cannot open, too, but reports no error
    os.sync()
    synced: set[int] = set()
    with open("/proc/self/mountinfo", "rb") as mounts:
        for fields in (line.split(b" ") for line in mounts):
            path = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]),
                fields[4]))
            # An automounter would mount something, and a server that is gone never answers; on
            # those, close has reported a write that failed
            if re.match(b"autofs|nfs|cifs|smb3|afs|fuse", fields[fields.index(b"-") + 1]):
                continue
            # RACE: another program may unmount it meanwhile
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if os.path.isdir(path) and (device := os.stat(path).st_dev) not in synced:
                    sync(path, spool)
                    synced.add(device)


@dataclass(frozen=True)
class Place:
    """A queue in a spool."""

    spool: str
    queue: str

    def verbs(self) -> Any:
        return package().Queue(self.queue, self.spool)

    def exists(self) -> bool:
        """Raises OSError if that cannot be seen."""
        with contextlib.suppress(LookupError):
            self.check()
            return True
        return False

    def check(self) -> None:
        try:
            os.stat(os.path.join(self.spool, disk_name(self.queue), "wal"))
        except FileNotFoundError:
            raise LookupError(
                f"option subscribe: no queue '{self.queue}' in {self.spool}") from None

    def claim(self, consumer: str, most: int) -> list[Segment]:
        """Claim up to `most` messages; return all that `consumer` holds. Raises LookupError."""
        try:
            return self.verbs().claim(consumer, min(most, MOST))  # type: ignore[no-any-return]
        except Exception as error:
            # a closed and empty queue has nothing to claim; a name that never claimed holds nothing
            if getattr(error, "code", None) not in (66, 69):
                raise
            self.check()
            return []

    def marks(self, consumer: str) -> tuple[int, int]:
        """The offsets up to which `consumer` has settled, and has claimed."""
        done, *ends = flat.marks(self.spool, self.queue, consumer)
        return done, ends[-1] if ends else done

    def lock(self, consumer: str) -> int | None:
        """A descriptor; while it is open, no other process may read as `consumer`. None if the name
        has never claimed here. Raises RuntimeError."""
        try:
            # a query that has just ended or was killed may hold it for a moment
            return lock(flat.claim_dir(self.spool, self.queue, consumer), PATIENCE)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            raise RuntimeError(f"queue '{self.queue}': another query reads as consumer "
                f"'{consumer}'") from None

    def settle(self, consumer: str, offset: int) -> int:
        """Sync what Spark has written, settle whole segments up to offset, and return their end.
        Raises LookupError, and OSError if a sync fails. A later sync proves nothing, so nothing is
        settled then until `flatq unclaim` has given back what was claimed."""
        done, *all_ends = flat.marks(self.spool, self.queue, consumer)
        ends = [end for end in all_ends if end <= offset]
        if not ends:
            self.check()
            return done
        claims = flat.claim_dir(self.spool, self.queue, consumer)
        for name in os.listdir(claims):
            if re.fullmatch(r"unsynced\.[0-9]+", name) and int(name[9:]) > done:
                raise OSError(errno.EIO, "a sync has failed, so what Spark wrote may be lost: "
                    f"flatq unclaim -c {consumer} {self.queue}, and write it elsewhere", claims)
        # Hadoop does not sync local files
        try:
            sync_all(self.spool)
        except OSError:
            with contextlib.suppress(OSError), private():
                os.close(os.open(f"{claims}/unsynced.{all_ends[-1]}", os.O_CREAT | os.O_WRONLY,
                    0o666))
            raise
        try:
            self.verbs().settle(consumer, ends[-1])
        except Exception:
            # If it failed when all was done, a caller that throws away what it has read loses it
            if self.marks(consumer)[0] < ends[-1]:
                raise
        return ends[-1]

    def pieces(self) -> list[flat.Piece]:
        self.check()
        return flat.ready(self.spool, self.queue)

    def ready(self) -> int:
        return sum(piece.count for piece in self.pieces())


#: The options of a read and of a write, and the names that some had before
KNOWN = [{name.lower(): name for name in f"path {names} checkpointLocation queryTimeout".split()}
    for names in ("subscribe group.id startingOffsets endingOffsets maxOffsetsPerTrigger "
    "minPartitions failOnDataLoss includeHeaders base64 columns",
    "topic jobId priority lease wait")]
OLD = {"queue": ("subscribe", "topic"), "consumer": ("group.id", "group.id")}


def refuse(name: str, value: object, allowed: str) -> NoReturn:
    """Raises ValueError: a wrong option, in one line."""
    raise ValueError(f"option {name}: {value!r} is not {allowed}") from None


class Options:
    """See FlatqSource."""

    def __init__(self, given: Mapping[str, str], write: bool = False) -> None:
        self.given: dict[str, str] = {}
        for name, text in given.items():
            key = name.lower()
            if key in OLD:
                key = OLD[key][write]
                warnings.warn(f"option {name} is now {key}", DeprecationWarning, stacklevel=2)
            if key not in KNOWN[write]:
                refuse(name, text, f"known to a {'write' if write else 'read'}, which takes "
                    + ", ".join(KNOWN[write].values()))
            self.given[KNOWN[write][key]] = text
        self.path = local(spool_of(self.given.get("path")), "option path: ")
        if write:
            self.queues = [self.given["topic"]] if self.given.get("topic") else []
        else:
            names = self.given.get("subscribe") or "default"
            self.queues = [part for name in names.split(",") if (part := name.strip())]
            if not self.queues or len(set(self.queues)) != len(self.queues):
                refuse("subscribe", names, "queues of which each is named once")
        for queue in self.queues:
            if not re.fullmatch(r"(?!-|(.*/)?\.\.?(/|$))[\w+/;.$()-]{1,200}", queue, re.A):
                refuse("topic" if write else "subscribe", queue, "1 to 200 of A-Z a-z 0-9 "
                    "-+/;.$_(), no '-' in front, no part '.' or '..'")
        self.consumer = self.given.get("group.id")
        if not re.fullmatch(r"(?!-)[\w-]{1,100}", self.given.get("group.id", "_"), re.A):
            refuse("group.id", self.consumer, "1 to 100 of A-Z a-z 0-9 _-, no '-' in front")
        self.partitions = self.whole("minPartitions", None, 1)
        self.limit = self.whole("maxOffsetsPerTrigger", None, 1)
        self.strict = self.yes("failOnDataLoss", True)
        self.headers = self.yes("includeHeaders", False)
        self.base64 = self.yes("base64", False)
        columns = self.given.get("columns", "new")
        if columns not in ("new", "old"):
            refuse("columns", columns, "new or old")
        self.old = columns == "old"
        if self.old:
            warnings.warn("option columns=old goes on for one version: value is body, attempts is "
                "tries, and id is new", DeprecationWarning, stacklevel=2)
        self.starting = self.ends("startingOffsets", "earliest")
        self.ending = self.ends("endingOffsets", "latest")

    def whole(self, name: str, usual: int | None, least: int = 0) -> int | None:
        text = self.given.get(name)
        if text is None:
            return usual
        if not text.isascii() or not text.isdigit() or not least <= int(text) < 1 << 32:
            refuse(name, text, f"a number from {least} to 4294967295")
        return int(text)

    def yes(self, name: str, usual: bool) -> bool:
        text = self.given.get(name, str(usual))
        if text.lower() not in ("true", "false"):
            refuse(name, text, "true or false")
        return text.lower() == "true"

    def ends(self, name: str, usual: str) -> dict[str, int] | None:
        text = self.given.get(name, usual)
        if text == usual:
            return None
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            ends = {str(key): int(value) for key, value in json.loads(text).items()}
            if set(self.queues) <= set(ends) and min(ends.values()) >= 0:
                return ends
        refuse(name, text, f"'{usual}' or an offset for each queue, such as " '{"jobs": 700}')

    def places(self) -> list[Place]:
        """The queues. Raises LookupError."""
        if not os.path.isdir(self.path):
            raise LookupError(f"option path: no spool at {self.path}")
        return [Place(self.path, queue) for queue in self.queues]

    def parallel(self, count: int) -> int:
        """How many tasks: one costs as much as some thousand messages."""
        return self.partitions or min(len(os.sched_getaffinity(0)), 1 + count // 10000)
