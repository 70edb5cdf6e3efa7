"""Queues to Parquet, exactly once.

    DIR/part-*                  the rows; columns as `help(flatq.spark.FlatqSource)` says
    DIR/_spark_metadata/        which files are the table: Spark reads those alone
    DIR/_checkpoint/            how far the stream is
    DIR/_flatq                  the mark: DIR is drain's, and under which name it was made

Spark finds the files of a table by their whole path, so a table that was moved is refused, as is a
directory with anything else (place.py). One drain at a time writes to DIR: it holds a lock on it.

After a kill, start it again: it reads the same batch again and writes it anew. What the first try
left in DIR is not part of the table, and the end of a run removes it. Until then, only Spark reads
DIR exactly. What a killed drain still holds may be in its table already: run it again before you
give anything back (`flatq unclaim`), or the table has it twice."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from .. import spark as flatq_spark
from ..errors import Busy, Invalid
from ..spark.format import Lost
from .common import Progress
from ..spark.files import local
from .place import PART, Place, plain

if TYPE_CHECKING:
    from ..spark.options import Place as Queue
    from pyspark.sql import SparkSession


def consumer_of(to: str) -> str:
    """The name under which a table claims messages: each table has its own, which never changes."""
    return "drain-" + hashlib.sha256((local(to) or to.rstrip("/")).encode()).hexdigest()[:16]


def checkpoint_of(to: str) -> str:
    return to.rstrip("/") + "/_checkpoint"


def begin(spark: SparkSession, to: str) -> None:
    """Take the directory, or raise Invalid. A table without its checkpoint cannot be continued:
    Spark would take new batches for old ones, and leave them out."""
    own = Place("drain", to, spark)
    if not own.check():
        own.mark(own.path, ["_spark_metadata", "_checkpoint"], to=own.name)

    def last(name: str) -> int:
        names = own.files.names(f"{own.path}/{name}") or ()
        return max((int(part) for file in names if (part := file.partition(".")[0]).isdigit()),
            default=-1)

    if last("_spark_metadata") > last("_checkpoint/offsets"):
        raise Invalid(f"{to} has a table, and its _checkpoint is gone: say another --to", 65)
    unsettled: list[tuple[Queue, str, int]] = []
    # Spools that were moved or removed since cannot be settled: the stream itself sees that
    with contextlib.suppress(LookupError):
        unsettled += [(place, consumer, offset) for place, consumer, offset
            in flatq_spark.committed(checkpoint_of(to), spark)
            if place.exists() and place.marks(consumer)[0] < offset]
    if unsettled and local(to) is not None:
        # The batch before the last is settled beside the last one
        batch = last("_checkpoint/commits")
        for number in range(max(0, batch - 1), batch + 1):
            whole(own.path, number, unsettled[0][0], unsettled[0][1])
    # Settle what the table has already: under another path of the queue it would be read again
    for place, consumer, offset in unsettled:
        place.settle(consumer, offset)


def whole(path: str, batch: int, queue: Queue, consumer: str) -> None:
    """Raises Lost if files of that batch are not there in full. Spark does not sync them: a power
    cut may have left the commit, and not the rows."""
    for name in (str(batch), f"{batch}.compact"):
        with contextlib.suppress(FileNotFoundError), \
                open(f"{path}/_spark_metadata/{name}", encoding="utf-8") as file:
            for one in map(json.loads, file.read().splitlines()[1:]):
                place = unquote(urlparse(one["path"]).path)
                if one.get("action") != "delete" and (not os.path.exists(place)
                        or os.stat(place).st_size != one["size"]):
                    raise Lost(f"{place} is not there in full, perhaps after a power cut: flatq "
                        f"unclaim -c {consumer} {queue.queue}, and drain to another directory")


def stream(spark: SparkSession, queues: Sequence[str], to: str, spool: str | None,
        consumer: str | None, batch: int, **options: str) -> Any:
    """The stream's writer, not yet started."""
    given = {"subscribe": ",".join(queues), "group.id": consumer or consumer_of(to),
        "maxOffsetsPerTrigger": str(batch), "base64": "true", **options}
    if spool:
        given["path"] = spool
    rows = spark.readStream.format("flatq").options(**given).load()
    # the JVM's unbase64 is faster than Python's
    rows = rows.selectExpr(*["unbase64(value) AS value" if name == "value" else name
        for name in rows.columns])
    return rows.writeStream.format("parquet").option("path", to).option("checkpointLocation",
        checkpoint_of(to))


def follow(query: Any, told: Event | None = None) -> tuple[int, int]:
    """Wait for the end, or until told to stop; return the numbers of messages and batches."""
    progress, seen, rows, batches = Progress(), -1, 0, 0

    def look() -> None:
        nonlocal seen, rows, batches
        for one in query.recentProgress:
            if one["batchId"] > seen and one["numInputRows"]:
                seen, rows, batches = one["batchId"], rows + one["numInputRows"], batches + 1
        progress.say(f"{rows:,} messages, {batches} batches")

    try:
        while not query.awaitTermination(0.2) and not (told and told.is_set()):
            if progress.shown or len(query.recentProgress) > 50:
                look()
        look()
    except Exception:
        with contextlib.suppress(Exception):
            query.stop()
        # the signal that told us to stop may have ended Spark's workers too
        if not (told and told.is_set()):
            raise
    finally:
        progress.close()
    return rows, batches


@contextlib.contextmanager
def alone(to: str) -> Iterator[None]:
    """Hold the lock of a directory on this machine while a drain writes to it. Raises Busy if
    another one does: they would remove each other's files."""
    place = local(to)
    if place is None:
        yield
        return
    os.makedirs(place, exist_ok=True)
    number = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another drain writes to {to}", 75) from None
        except OSError as error:
            # Go on without the lock only where the file system has none
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        yield
    finally:
        os.close(number)


def once(spark: SparkSession, queues: Sequence[str], to: str, spool: str | None = None,
        consumer: str | None = None, batch: int = 250000, **options: str) -> tuple[int, int]:
    """Drain all there is now; return the numbers of messages and batches. Raises Busy if another
    drain writes to the same directory."""
    with alone(to):
        begin(spark, to)
        writer = stream(spark, queues, to, spool, consumer, batch, **options)
        found = follow(writer.trigger(availableNow=True).start())
        end(spark, to)
    return found


def on(spark: SparkSession, queues: Sequence[str], to: str, spool: str | None = None,
        consumer: str | None = None, batch: int = 250000, every: float = 1,
        told: Event | None = None, **options: str) -> None:
    """Drain with a batch `every` so many seconds, until told to stop; then settle what was written.
    If something fails, the next start settles it. Raises Busy as `once` does."""
    with alone(to):
        begin(spark, to)
        writer = stream(spark, queues, to, spool, consumer, batch, **options)
        query = writer.trigger(processingTime=f"{int(every * 1000)} milliseconds").start()
        follow(query, told)
        query.stop()
        end(spark, to)


def end(spark: SparkSession, to: str) -> None:
    """Settle the last batch, and remove the files that killed tries have written, which are not
    part of the table. If the directory holds anything else by now, remove nothing: the next drain
    reports that."""
    flatq_spark.settle_checkpoint(checkpoint_of(to), spark)
    place = local(to)
    if place is None or not os.path.isdir(os.path.join(place, "_spark_metadata")):
        return
    try:
        Place("drain", to).check()
    except Invalid:
        return
    # with a schema, since Spark cannot derive one from a table without files
    table = {os.path.basename(unquote(urlparse(path).path))
        for path in spark.read.schema("queue string").parquet(to).inputFiles()}
    for name in os.listdir(place):
        if PART.fullmatch(plain(name)) and plain(name) not in table:
            os.unlink(os.path.join(place, name))
