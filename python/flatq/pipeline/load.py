"""A table to a queue, each row once.

Its rows become messages in one batch of the sink: all of them are decided at once, and who was killed starts the load again, which does
the rest. Which load it is, is its name: --name, or made of the queue and of each file's path, size and time. So a load that has ended
does nothing when it is run again; a table that has changed since is another load, and all of it is loaded."""

from __future__ import annotations

import glob
import hashlib
import os
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from ..errors import Invalid, Missing
from ..spark.options import Options
from ..spark.sink import Sink
from .place import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".txt": "text"}


def files(path: str) -> list[str]:
    """The data files at a path on this machine: a file, a directory, or a pattern."""
    found = []
    for top in sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]:
        if os.path.isfile(top):
            found.append(top)
        for directory, below, names in os.walk(top):
            # as Spark does
            below[:] = sorted(name for name in below if name[0] not in "._")
            found += [os.path.join(directory, name) for name in sorted(names) if name[0] not in "._"]
    return found


def kind(path: str, names: list[str]) -> str:
    """The format, by the names' ends."""
    kinds = {FORMATS.get(os.path.splitext(name.removesuffix(".gz"))[1].lower()) for name in names or [path.rstrip("/")]} - {None}
    if len(kinds) != 1:
        raise Invalid(f"{path}: no table, or tables of several formats: say --format {'|'.join(sorted(set(FORMATS.values())))}", 65)
    return str(kinds.pop())


def job_of(names: list[str], queue: str, value: str | None) -> str:
    """The name of a load."""
    marks = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in names]
    return "load-" + hashlib.sha256(repr((queue, value, marks)).encode()).hexdigest()[:24]


def read(spark: SparkSession, path: str, form: str) -> DataFrame:
    """What cannot be read whole is an error, never a row of nulls."""
    reader = spark.read.format(form).option("mode", "FAILFAST")
    if form == "csv":
        reader = reader.option("header", "true").option("enforceSchema", "false").option("multiLine", "true").option("escape", '"')
    return reader.load(path)


def messages(rows: DataFrame, value: str | None = None) -> DataFrame:
    """`value`, the bytes of each message: that column, the only one, or all of them as JSON; `priority` where the table has one."""
    names = rows.columns
    if value is not None and value not in names:
        raise Invalid(f"there is no column '{value}', but {', '.join(names)}", 65)
    value = value or ("value" if "value" in names else names[0] if len(names) == 1 else None)
    if value is None:
        others = ", ".join(f"`{name}`" for name in names if name != "priority")
        body = f"to_json(struct({others}), map('ignoreNullFields', 'false'))"
    else:
        type_ = rows.schema[value].dataType
        body = f"`{value}`"
        if isinstance(type_, (StructType, ArrayType, MapType)):
            body = f"to_json({body})"
        elif not isinstance(type_, (StringType, BinaryType)):
            body = f"cast({body} AS string)"
    return rows.selectExpr(f"{body} AS value", *["cast(priority AS bigint) AS priority"] * ("priority" in names and value != "priority"))


def load(spark: SparkSession, path: str, queue: str, spool: str | None = None, form: str | None = None, value: str | None = None,
         job: str | None = None, priority: int | None = None, lease: int | None = None, wait: int | None = None) -> int | None:
    """How many rows; None where that load had ended before.

    form, value and job: as --format, --value and --name; the last must be said where the files are not on this machine. priority: 0, the
    most urgent, to 4294967295. lease: of the messages, in seconds, 0 to 4294967295. wait: seconds for room in a queue with a bound. Raises
    Missing where there is nothing at path; Invalid where it is no table or cannot be read whole; as flatq.Queue.push does, Full and Closed
    above all; and what Spark raises: `common.failure` makes one line of each."""
    place = local(path)
    names = files(place) if place is not None else []
    if place is not None and not names:
        raise Missing(f"{path}: nothing there", 66)
    form = form or kind(path, names)
    if job is None:
        if place is None:
            raise Invalid("say --name, a name for this load: the files are not on this machine", 65)
        job = job_of(names, queue, value)
    options = {name: str(given) for name, given in (("path", spool), ("priority", priority), ("lease", lease), ("wait", wait)) if given is not None}
    if Sink(Options({**options, "queue": queue}, True), options).over(f"job-{job}"):
        return None
    counted = Observation()
    # Spark notices a table of its own drain by itself
    rows = messages(read(spark, place or path, form), value).observe(counted, F.count(F.lit(1)).alias("rows"))
    rows.write.format("flatq").options(**options, queue=queue, jobId=job).mode("append").save()
    return int(counted.get["rows"])
