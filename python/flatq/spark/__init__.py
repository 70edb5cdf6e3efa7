"""flatq and Spark: queues as tables, tables as messages.

    from pyspark.sql import SparkSession
    from flatq import spark as flatq_spark

    spark = SparkSession.builder.getOrCreate()
    flatq_spark.register(spark)
    # a look at what is ready
    spark.read.format("flatq").option("subscribe", "jobs").load()
    # claimed, and settled at the end
    with flatq_spark.claimed(spark, "jobs", "nightly") as messages:
        messages.write.parquet("jobs.parquet")
    # rows become messages
    rows.select("body").write.format("flatq").option("topic", "jobs").mode("append").save()

python/README.md has a stream. Options, columns, and what is exact: `help(flatq.spark.FlatqSource)`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from .options import Place
    from .source import FlatqSource

__all__ = ["FlatqSource", "Unready", "claimed", "java", "java_home", "packages", "register", "run",
    "session", "settle", "settle_checkpoint", "why"]

JAVA = "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"


class Unready(RuntimeError):
    """Something that Spark needs is missing; str() says what to do."""


def __getattr__(name: str) -> Any:
    if name == "FlatqSource":
        packages()
        from .source import FlatqSource

        return FlatqSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def packages() -> None:
    """Raise Unready if PySpark or pyarrow is missing or too old."""
    try:
        import pyspark

        __import__("pyarrow")
    except ImportError as error:
        raise Unready(f"{error.name} is missing: pip install 'flatq[spark]', or 'pyspark>=4.2' and "
            "pyarrow") from None
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise Unready(f"PySpark {pyspark.__version__} is too old: pip install 'pyspark>=4.2'")


def register(spark: SparkSession) -> None:
    """Make format("flatq") known to a session. Raises Unready."""
    packages()
    from pyspark import cloudpickle

    from .. import slips
    from . import source

    travel: Any = cloudpickle
    # By reference, workers would have to import it: they may have only pyarrow
    for name in (__name__, slips.__name__):
        if name not in travel.list_registry_pickle_by_value():
            travel.register_pickle_by_value(sys.modules[name])
    spark.dataSource.register(source.FlatqSource)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"flatq.spark.{name} is deprecated: {instead}", DeprecationWarning, stacklevel=3)


def java() -> str:
    """Return the java that Spark will start (deprecated). Raises Unready."""
    _deprecated("java", "Spark finds Java by JAVA_HOME and PATH")
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if not found:
        raise Unready(JAVA)
    return found


def java_home() -> contextlib.AbstractContextManager[None]:
    """Do nothing (deprecated)."""
    _deprecated("java_home", "Spark finds Java by JAVA_HOME and PATH")
    return contextlib.nullcontext()


def session(name: str = "flatq", master: str = "local[*]",
        conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session in which "flatq" is registered (deprecated); conf: Spark's settings."""
    _deprecated("session", "make one with SparkSession.builder, and register(spark)")
    packages()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(name).master(master).config(
        map=dict(conf or {})).getOrCreate()
    register(spark)
    return spark


def _place(path: str | None, queue: str) -> Place:
    from .options import Options

    return Options({"subscribe": queue, "path": path or ""}).places()[0]


def settle(queue: str, consumer: str, offset: int, path: str | None = None) -> int:
    """Settle what `consumer` claimed up to offset, in whole segments; return their end."""
    return _place(path, queue).settle(consumer, offset)


@contextlib.contextmanager
def claimed(spark: SparkSession, queue: str, consumer: str, path: str | None = None,
        count: int | None = None, **options: str) -> Iterator[DataFrame]:
    """Claim what is ready in a queue, and yield all that `consumer` holds, as a table.

    The end of the `with` settles it; a table computed after that raises Lost. If something is
    raised, the messages stay claimed, and come again next time. `count`: until so many are held.
    Raises ValueError for an option that is not for it, and RuntimeError if another `with` or a
    stream reads as `consumer`.
    """
    for name, text in options.items():
        if name.lower() not in ("minpartitions", "failondataloss", "includeheaders", "base64",
                "columns"):
            raise ValueError(f"option {name}: {text!r} is not for claimed(), which yields "
                "all that it settles; use count")
    place = _place(path, queue)
    locked = place.lock(consumer)
    try:
        held = place.claim(consumer, count or 999999999)
        # The first claim of a name makes what is locked
        if locked is None:
            locked = place.lock(consumer)
            held = place.claim(consumer, 0)
        end = max((segment.end for segment in held), default=0)
        if count and held:
            # what is above was claimed by an earlier, larger run
            end = max([held[0].end, *(segment.end for segment in held
                if segment.end <= held[0].offset + count)])
        reader = spark.read.format("flatq").options(**{**options, "path": place.spool,
            "subscribe": queue, "group.id": consumer,
            "endingOffsets": json.dumps({place.queue: end})})
        if held:
            reader = reader.option("startingOffsets", json.dumps({place.queue: held[0].offset}))
        yield reader.load()
        place.settle(consumer, end)
    finally:
        if locked is not None:
            os.close(locked)


def settle_checkpoint(checkpoint: str, spark: SparkSession | None = None) -> dict[str, int]:
    """Settle the last batch that an ended stream has committed, as the next one would.

    Returns the offset up to which each queue is settled. Raises ValueError if the checkpoint is not
    on this machine.
    """
    if spark is not None:
        _deprecated("settle_checkpoint(spark=...)", "leave it out")
    packages()
    return {place.queue: place.settle(consumer, offset) for place, consumer, offset
        in committed(checkpoint) if place.exists()}


def committed(checkpoint: str) -> Iterator[tuple[Place, str, int]]:
    """Yield queue, consumer and end of what is in the last batch that a stream has committed."""
    from .format import listed
    from .options import Options, local

    top = local(checkpoint)
    commits, offsets = ({int(name) for name in listed(f"{top}/{place}")
        if name.isascii() and name.isdigit()} for place in ("commits", "offsets"))
    if not commits or max(commits) not in offsets:
        return
    with open(f"{top}/offsets/{max(commits)}", encoding="utf-8") as file:
        log = file.read()
    for one in _flatq_offsets(log):
        for place in Options({"path": one["path"], "subscribe": ",".join(one["offsets"])}).places():
            yield place, one["consumer"], one["offsets"][place.queue]


def _flatq_offsets(log: Any) -> Iterator[dict[str, Any]]:
    """Yield the offsets of flatq's sources in a log of Spark: lines of JSON in JSON."""
    if isinstance(log, str):
        for line in log.splitlines():
            with contextlib.suppress(ValueError):
                yield from _flatq_offsets(json.loads(line))
    elif isinstance(log, dict):
        if isinstance(log.get("offsets"), dict) and {"path", "consumer"} <= set(log):
            yield log
        else:
            for one in log.values():
                yield from _flatq_offsets(one)


def run(writer: DataStreamWriter, checkpoint: str, timeout: float | None = None) -> Any:
    """Run a stream over all that is there now, and settle its last batch.

    If the checkpoint is not on this machine, the next batch settles it. Returns the query, which
    has ended, for its progress. Raises the query's error. After `timeout` seconds, stops the query
    and raises TimeoutError; batches that are committed stay so.
    """
    from .options import Elsewhere

    waited: Any = timeout
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(waited) and timeout is not None:
            raise TimeoutError(f"the stream was not done after {timeout} seconds")
    except BaseException:
        with contextlib.suppress(Exception):
            query.stop()
        raise
    with contextlib.suppress(Elsewhere):
        settle_checkpoint(checkpoint)
    return query


def why(error: BaseException) -> str:
    """Return the line of Spark's error text that names the failure."""
    text = str(error)
    found = re.findall(r"^(?:(?:[a-z_]+\.)+[A-Z]\w*: |[A-Z]\w*(?:Error|Exception): |(?=flatq: ))"
        "(.+)$", text, re.MULTILINE)
    mine = [message for message in found if "pyspark" not in message]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (mine or lines[:1] or [type(error).__name__])[-1]
