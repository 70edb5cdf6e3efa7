"""The options, checked, and a queue's place, where the verbs are run."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import format as flat

#: The directory of the package flatq, for processes of Spark that do not find it
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST = 999999999
#: For how many seconds a reader waits for the lock of its name
PATIENCE = 10


def verbs_module() -> Any:
    """The module flatq.verbs."""
    try:
        from flatq import verbs
    except ImportError:
        sys.path.append(PACKAGES)
        from flatq import verbs
    return verbs


def verb(name: str, words: Sequence[str], spool: str, parse: Any = bytes) -> Any:
    """Run a verb in a spool. Raises as flatq.Queue does."""
    verbs = verbs_module()
    return verbs.run(verbs.Call(name, list(words), parse, None, spool))


def sync(path: str, spool: str = "") -> None:
    """Sync the file system of path, if the verbs that use the spool sync. Raises OSError."""
    if not verbs_module().syncs(spool):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(file):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(file)


def sync_all(spool: str) -> None:
    """Sync every file system, if the verbs that use the spool sync: nobody says where Spark has
    written. Raises OSError, which os.sync does not."""
    if not verbs_module().syncs(spool):
        return
    # This reaches file systems too that we cannot open, but reports no error
    os.sync()
    synced: set[int] = set()
    with open("/proc/self/mountinfo", "rb") as mounts:
        for fields in (line.split(b" ") for line in mounts):
            path = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]),
                fields[4]))
            # To open an automounter's directory would mount something. Whoever looks at what a
            # server or a program serves that is gone waits for ever; and there, a write that failed
            # is an error when the file is closed
            if re.match(b"autofs|nfs|cifs|smb3|afs|fuse", fields[fields.index(b"-") + 1]):
                continue
            # RACE: another program may unmount it meanwhile
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if os.path.isdir(path) and (device := os.stat(path).st_dev) not in synced:
                    sync(path, spool)
                    synced.add(device)


def missing(error: Exception, text: str = "") -> bool:
    return getattr(error, "code", None) == 66 and text in str(error)


@dataclass(frozen=True)
class Segment:
    offset: int
    count: int
    path: str

    @property
    def end(self) -> int:
        return self.offset + self.count


def _segments(out: bytes) -> list[Segment]:
    words = (os.fsdecode(line).split(" ", 2) for line in out.splitlines())
    return [Segment(int(offset), int(count), path) for offset, count, path in words]


@dataclass(frozen=True)
class Place:
    """A queue in a spool. `key` is its name in offsets."""

    spool: str
    queue: str
    host: str = ""

    @property
    def key(self) -> str:
        return f"{self.host}:{self.queue}" if self.host else self.queue

    def exists(self) -> bool:
        """Whether there is such a queue."""
        return flat.is_queue(os.path.join(self.spool, flat.disk_name(self.queue)))

    def claim(self, consumer: str, most: int) -> list[Segment]:
        """Claim up to `most` messages, and return all that `consumer` holds; raises LookupError if
        there is no such queue."""
        try:
            held: list[Segment] = verb("claim", ["-c", consumer, "-n", str(min(most, MOST)), "--",
                self.queue], self.spool, _segments)
            return held
        except Exception as error:
            # a closed and empty queue has nothing to claim; a name that never claimed holds nothing
            if getattr(error, "code", None) == 69 or missing(error) and "no queue" not in str(
                    error):
                return []
            raise

    def marks(self, consumer: str) -> tuple[int, int]:
        """The offset up to which `consumer` has settled, and the one up to which it has claimed,
        whatever became of those messages."""
        done, *ends = flat.marks(self.spool, self.queue, consumer)
        return done, ends[-1] if ends else done

    def lock(self, consumer: str) -> int | None:
        """A descriptor; while it is open, no other process may read as `consumer`. None if the name
        has never claimed here. Raises RuntimeError if another reader has the lock, and OSError."""
        try:
            number = os.open(flat.claim_dir(self.spool, self.queue, consumer),
                os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return number
            except BlockingIOError:
                # the process of a query that has just ended or was killed may hold the lock for a
                # moment
                if time.monotonic() > end:
                    os.close(number)
                    raise RuntimeError(
                        f"queue '{self.queue}': another query reads as consumer '{consumer}'") from None
                time.sleep(0.05)
            except OSError:
                # Do not go on without the lock, even where the file system has none: no verb works
                # there either, and two queries could read one message
                os.close(number)
                raise

    def settle(self, consumer: str, offset: int) -> int:
        """Settle whole segments up to offset, and return the offset reached. First sync what Spark
        has written. Raises LookupError if there is no such queue, and OSError if a sync fails: then
        nothing is settled, nor later, until `flatq unclaim` has given back what was claimed by
        then. The system reports an error of a sync once, so a sync that succeeds after that proves
        nothing."""
        done, *all_ends = flat.marks(self.spool, self.queue, consumer)
        ends = [end for end in all_ends if end <= offset]
        if not ends:
            if not self.exists():
                raise LookupError(f"no queue '{self.queue}' in {self.spool}")
            return done
        claims = flat.claim_dir(self.spool, self.queue, consumer)
        for name in os.listdir(claims):
            if re.fullmatch(r"unsynced\.[0-9]+", name) and int(name[9:]) > done:
                raise OSError(errno.EIO,
                    f"a sync has failed, so what Spark wrote may be lost: flatq unclaim -c {consumer} {self.queue}, and write it elsewhere", claims)
        # Hadoop does not sync local files: a power cut would lose the table after the queue has
        # deleted its messages
        try:
            sync_all(self.spool)
        except OSError:
            with contextlib.suppress(OSError), verbs_module().private():
                os.close(os.open(f"{claims}/unsynced.{all_ends[-1]}", os.O_CREAT | os.O_WRONLY,
                    0o666))
            raise
        try:
            verb("settle", ["-c", consumer, "--", str(ends[-1]), self.queue], self.spool)
        except Exception:
            # It may have failed when all was done: who throws away now what was read would lose it
            if self.marks(consumer)[0] < ends[-1]:
                raise
        return ends[-1]

    def ready(self) -> int:
        """The number of ready messages."""
        return sum(piece.count for piece in flat.ready(self.spool, self.queue))


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError(f"option {name}: a number above 0, not {text!r}")
    return int(text)


def _ends(options: Mapping[str, str], name: str, usual: str) -> dict[str, int] | None:
    text = options.get(name, usual)
    if text == usual:
        return None
    try:
        return {str(key): int(value) for key, value in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(
            f"option {name}: '{usual}' or as {{\"jobs\": 700}}, not {text!r}") from None


def _yes(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"option {name}: true or false, not {text!r}")
    return text.lower() == "true"


KNOWN = {
    "path", "queue", "consumer", "startingoffsets", "endingoffsets", "maxoffsetspertrigger",
    "minpartitions", "failondataloss", "includeheaders",
    "base64", "jobid", "priority", "lease", "wait", "checkpointlocation", "querytimeout",
}


class Options:
    """The options, checked; see FlatqSource."""

    def __init__(self, options: Mapping[str, str], write: bool = False) -> None:
        unknown = sorted(name for name in options if name.lower() not in KNOWN)
        if unknown:
            raise ValueError(f"flatq has no option {unknown[0]!r}")
        where = options.get("path") or os.environ.get("FLATQ_DIR")
        if not where:
            where = os.path.join(os.environ.get("XDG_STATE_HOME")
                or os.path.expanduser("~/.local/state"), "flatq")
        where = where[5:] if where.startswith("file:") else where
        self.path = os.path.abspath("/" + where.lstrip("/") if where.startswith("//") else where)
        queues = [name.strip() for name in (options.get("queue")
            or ("" if write else "default")).split(",")]
        self.queues = [name for name in queues if name]
        if len(set(self.queues)) != len(self.queues):
            raise ValueError("option queue: a queue is named twice")
        self.consumer = options.get("consumer")
        self.partitions = _number(options, "minPartitions", None)
        self.limit = _number(options, "maxOffsetsPerTrigger", None)
        self.strict = _yes(options, "failOnDataLoss", True)
        self.headers = _yes(options, "includeHeaders", False)
        self.base64 = _yes(options, "base64", False)
        self.starting = _ends(options, "startingOffsets", "earliest")
        self.ending = _ends(options, "endingOffsets", "latest")
        self.wild = glob.has_magic(self.path)

    def places(self) -> list[Place]:
        """The queues in each spool that the path matches. `host` is the text that its first
        wildcard matches."""
        if not self.wild:
            if not os.path.isdir(self.path):
                raise LookupError(f"no spool at {self.path}")
            return [Place(self.path, queue) for queue in self.queues]
        parts = self.path.split(os.sep)
        at = next(number for number, part in enumerate(parts) if glob.has_magic(part))
        spools = [spool for spool in sorted(glob.glob(self.path)) if os.path.isdir(spool)]
        if len({os.path.realpath(spool) for spool in spools}) != len(spools):
            raise ValueError("option path: it matches one spool under two names")
        if not spools:
            raise LookupError(f"no spool at {self.path}")
        hosts = [spool.split(os.sep)[at] for spool in spools]
        if len(set(hosts)) != len(hosts):
            raise ValueError("option path: the first wildcard must tell the spools apart")
        places = [Place(spool, queue, host) for spool,
            host in zip(spools, hosts) for queue in self.queues
                  if os.path.isdir(os.path.join(spool, flat.disk_name(queue)))]
        if not places:
            raise LookupError(f"no queue {self.queues[0]!r} in any spool at {self.path}")
        return places

    def parallel(self, count: int) -> int:
        """The number of partitions for so many messages. A task of Spark costs as much as some
        thousand of them."""
        if self.partitions:
            return self.partitions
        cores = len(os.sched_getaffinity(0)) if hasattr(os,
            "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, 1 + count // 10000)
