"""Queues to Parquet, exactly once.

    DIR/part-*                  the rows; columns as `help(flatq.spark.FlatqSource)` says
    DIR/_spark_metadata/        which files are the table: Spark reads those alone
    DIR/_checkpoint/            how far the stream is
    DIR/_flatq                  the mark: DIR is drain's, and under which name it was made

Spark finds the files of a table by their whole path, so a table that was moved is refused, as is a
directory with anything else (place.py). One drain at a time writes to DIR: it holds a lock on it.

After a kill, start it again: it writes the same batch anew. What the first try left in DIR is not
part of the table, and the end of a run removes it. Until then, only Spark reads DIR exactly. What a
killed drain holds may be in its table already: run it again before `flatq unclaim`, or the table
has it twice."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as F

from .. import spark as flatq_spark
from ..errors import Busy, Invalid
from ..spark.format import Lost
from ..spark.files import local
from .place import PART, Place, plain

if TYPE_CHECKING:
    from ..spark.options import Place as Queue
    from pyspark.sql import SparkSession


def consumer_of(to: str) -> str:
    """The name under which a table claims messages."""
    return "drain-" + hashlib.sha256((local(to) or to.rstrip("/")).encode()).hexdigest()[:16]


def checkpoint_of(to: str) -> str:
    return to.rstrip("/") + "/_checkpoint"


def begin(spark: SparkSession, to: str) -> None:
    """Take the directory. Raises Invalid, also for a table without its checkpoint: Spark would take
    new batches for old ones, and leave them out."""
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
    batch = last("_checkpoint/commits")
    # Settle what the table has already: under another path of the queue it would be read again
    for place, consumer, offset in unsettled:
        if local(to) is not None:
            # The batch before the last is settled beside the last one
            whole(own.path, (batch - 1, batch), place, consumer)
        place.settle(consumer, offset)


def whole(path: str, batches: Sequence[int], queue: Queue, consumer: str) -> None:
    """Raises Lost if files of those batches are not there in full. Spark does not sync them: a
    power cut may have left the commit, and not the rows."""
    for name in (f"{batch}{end}" for batch in batches for end in ("", ".compact")):
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
    return rows.withColumn("value", F.unbase64("value")).writeStream.format("parquet").options(
        path=to, checkpointLocation=checkpoint_of(to))


def follow(query: Any, told: Event | None = None) -> tuple[int, int]:
    """Wait for the end, or until told to stop; return the numbers of messages and batches."""
    rows: dict[int, int] = {}
    try:
        ended = False
        while not ended and not (told and told.is_set()):
            ended = query.awaitTermination(0.2)
            # Spark keeps the last hundred
            if ended or len(query.recentProgress) > 50:
                rows.update((one["batchId"], one["numInputRows"]) for one in query.recentProgress
                    if one["numInputRows"])
    except Exception:
        with contextlib.suppress(Exception):
            query.stop()
        # the signal that told us to stop may have ended Spark's workers too
        if not (told and told.is_set()):
            raise
    return sum(rows.values()), len(rows)


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
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise Busy(f"another drain writes to {to}", 75) from None
    try:
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
    If something fails, the next start settles it."""
    with alone(to):
        begin(spark, to)
        writer = stream(spark, queues, to, spool, consumer, batch, **options)
        query = writer.trigger(processingTime=f"{int(every * 1000)} milliseconds").start()
        follow(query, told)
        query.stop()
        end(spark, to)


def end(spark: SparkSession, to: str) -> None:
    """Settle the last batch, and remove what killed tries have written, which is not part of the
    table. If the directory holds anything else by now, the next drain says so: remove nothing."""
    flatq_spark.settle_checkpoint(checkpoint_of(to), spark)
    place = local(to)
    if place is None or not os.path.isdir(os.path.join(place, "_spark_metadata")):
        return
    with contextlib.suppress(Invalid):
        Place("drain", to).check()
        # with a schema, since Spark cannot derive one from a table without files
        table = {os.path.basename(unquote(urlparse(path).path))
            for path in spark.read.schema("queue string").parquet(to).inputFiles()}
        for name in os.listdir(place):
            if PART.fullmatch(plain(name)) and plain(name) not in table:
                os.unlink(os.path.join(place, name))
