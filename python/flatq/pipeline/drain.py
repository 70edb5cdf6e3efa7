"""Queues to Parquet, exactly once.

    DIR/part-*                  the rows; columns as `help(flatq.spark.FlatqSource)` says
    DIR/_spark_metadata/        which files are the table: Spark reads those alone
    DIR/_checkpoint/            how far the stream is
    DIR/_flatq                  the mark: DIR is drain's, under which name it was made, and that
                                its columns are the new ones: an older table goes on with the old

Spark finds the files of a table by their whole path, so a table that was moved is refused. One
drain at a time writes to DIR: it holds a lock on it.

After a kill, start it again: it writes the same batch anew, and its end removes what the first try
left in DIR. What a killed drain holds may be in its table already: run it again before `flatq
unclaim`, or the table has it twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as F

from .. import spark as flatq_spark
from ..errors import Busy, Invalid
from ..spark.format import BODY, Lost, listed
from ..spark.options import alone, local
from .place import PART, Place, plain

if TYPE_CHECKING:
    from ..spark.options import Place as Queue
    from pyspark.sql import SparkSession


def begin(to: str) -> str:
    """Take the directory; return the option `columns`. Raises Invalid, also for a table without its
    checkpoint: Spark would take new batches for old ones, and leave them out."""
    own = Place("drain", to)
    if not own.check():
        own.mark(own.path, ["_spark_metadata", "_checkpoint"], to=own.name, columns="new")

    def last(name: str) -> int:
        names = (file.partition(".")[0] for file in listed(f"{own.path}/{name}"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    if last("_spark_metadata") > last("_checkpoint/offsets"):
        raise Invalid(f"{to} has a table, and its _checkpoint is gone: say another --to")
    unsettled: list[tuple[Queue, str]] = []
    # RACE: a spool may be moved or removed: the stream itself sees that
    with contextlib.suppress(LookupError):
        unsettled += [(place, consumer) for place, consumer, offset
            in flatq_spark.committed(f"{to}/_checkpoint")
            if place.exists() and place.marks(consumer)[0] < offset]
    batch = last("_checkpoint/commits")
    for place, consumer in unsettled:
        # The batch before the last is settled beside the last one
        whole(own.path, (batch - 1, batch), place, consumer)
    return str(own.marked(own.path).get("columns", "old"))


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


def on(spark: SparkSession, queues: Sequence[str], to: str, spool: str | None = None,
        consumer: str | None = None, batch: int = 250000, every: float | None = 1,
        told: Event | None = None, **options: str) -> tuple[int, int]:
    """Drain with a batch `every` so many seconds until told to stop; None: as `once`. Then settle
    what was written; if something fails, the next start settles it. Return the numbers of messages
    and batches that Spark remembers. Raises Busy if another drain writes to the directory."""
    trigger: dict[str, Any] = {"availableNow": True} if every is None else {
        "processingTime": f"{int(every * 1000)} milliseconds"}
    table = "drain-" + hashlib.sha256(local(to).encode()).hexdigest()[:16]
    given = {"subscribe": ",".join(queues), "group.id": consumer or table,
        "maxOffsetsPerTrigger": str(batch), "base64": "true", **options}
    if spool:
        given["path"] = spool
    os.makedirs(local(to), exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            # Two drains would remove each other's files
            held.enter_context(alone(local(to), 0))
        except BlockingIOError:
            raise Busy(f"another drain writes to {to}") from None
        given["columns"] = begin(to)
        rows = spark.readStream.format("flatq").options(**given).load()
        body = BODY[given["columns"] == "old"]
        # the JVM's unbase64 is faster than Python's
        writer = rows.withColumn(body, F.unbase64(body)).writeStream.format("parquet")
        query: Any = writer.options(path=to, checkpointLocation=f"{to}/_checkpoint").trigger(
            **trigger).start()
        try:
            while not query.awaitTermination(0.2) and not (told and told.is_set()):
                pass
        except Exception:
            with contextlib.suppress(Exception):
                query.stop()
            # the signal that told us to stop may have ended Spark's workers too
            if not (told and told.is_set()):
                raise
        counts = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
        query.stop()
        end(spark, to)
    return sum(counts), len(counts)


def once(spark: SparkSession, queues: Sequence[str], to: str, spool: str | None = None,
        consumer: str | None = None, batch: int = 250000, **options: str) -> tuple[int, int]:
    """Drain all there is now; return the numbers of messages and batches."""
    # Spark would forget all but the last hundred batches
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000000")
    return on(spark, queues, to, spool, consumer, batch, None, None, **options)


def end(spark: SparkSession, to: str) -> None:
    """Settle the last batch, and remove what killed tries have written, which is not part of the
    table. If the directory holds anything else by now, the next drain says so: remove nothing."""
    flatq_spark.settle_checkpoint(f"{to}/_checkpoint")
    place = local(to)
    if not os.path.isdir(os.path.join(place, "_spark_metadata")):
        return
    with contextlib.suppress(Invalid):
        Place("drain", to).check()
        # with a schema, since Spark cannot derive one from a table without files
        table = {os.path.basename(unquote(urlparse(path).path))
            for path in spark.read.schema("queue string").parquet(to).inputFiles()}
        for name in os.listdir(place):
            if PART.fullmatch(plain(name)) and plain(name) not in table:
                os.unlink(os.path.join(place, name))
