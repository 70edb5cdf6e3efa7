"""The queues' event logs as a table: QUEUE/log and QUEUE/log.*, lines `TIME VERB ID TRIES SIZE
MILLISECONDS REASON`.

Columns: queue string, time timestamp, verb string, id bigint, tries int, size bigint, milliseconds
bigint (since the push), reason string, count bigint. A line for many messages (`bulk-N`) has count
N and no milliseconds; only that of a push has an id. Malformed lines, as after a power cut, are
left out. A log that is put aside meanwhile may be read twice, or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from ..errors import Missing
from ..slips import disk_name
from ..spark.format import is_queue
from ..spark.options import Options
from .place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE = (r"^[0-9]{1,12}\\.[0-9]{2} [a-z]{1,20} ([0-9]{1,18}|-) [0-9]{1,9} [0-9]{1,18} "
    r"-?[0-9]{1,18} .+$")
COLUMNS = ("queue", "time", "verb", "id", "tries", "size", "milliseconds", "reason", "count")


def logs(path: str | None = None, queues: Sequence[str] = ()) -> list[str]:
    """Their paths; of all queues if none is named. Raises LookupError."""
    options = Options({"subscribe": ",".join(queues), "path": path or ""})
    places, found = options.places(), []
    for place in places if queues else ():
        place.check()
    disks = [name for name in sorted(os.listdir(options.path)) if name[0] != "."]
    for disk in map(disk_name, queues) if queues else disks:
        top = os.path.join(options.path, disk)
        found += [f"{top}/{name}" for name in sorted(os.listdir(top) if is_queue(top) else ())
            if name == "log" or name.startswith("log.")]
    if not found:
        raise Missing(f"no queue in {options.path} has a log")
    return found


def table(spark: SparkSession, path: str | None = None, queues: Sequence[str] = ()) -> DataFrame:
    lines = spark.read.text(logs(path, queues)).selectExpr("value",
        "split(_metadata.file_path, '/') AS path").where(f"value RLIKE '{LINE}'")
    # a queue's directory has a comma for each slash, and % before a dot
    rows = lines.selectExpr(
        "path", "split(value, ' ', 7) AS f",
        "translate(regexp_replace(element_at(path, -2), '^%25', ''), ',', '/') AS queue",
    ).selectExpr("*", "regexp_extract(f[6], '^bulk-([0-9]{1,9})$', 1) AS bulk")
    return rows.selectExpr(
        "queue", "cast(cast(f[0] AS decimal(14, 2)) AS timestamp) AS time", "f[1] AS verb",
        "cast(nullif(f[2], '-') AS bigint) AS id", "cast(f[3] AS int) AS tries",
        "cast(f[4] AS bigint) AS size",
        "if(bulk = '', cast(f[5] AS bigint), null) AS milliseconds",
        "if(bulk = '', nullif(f[6], '-'), null) AS reason",
        "if(bulk = '', 1L, cast(bulk AS bigint)) AS count",
    )


def save(spark: SparkSession, to: str, path: str | None = None, queues: Sequence[str] = ()) -> int:
    """Replace the events in `to`, as Parquet; return their number. Raises Invalid if it holds
    anything else."""
    counted = Observation()
    rows = table(spark, path, queues).observe(counted, F.count(F.lit(1)).alias("rows"))
    with Place("events", to).replaced() as new:
        rows.write.mode("overwrite").parquet(new)
        return int(counted.get["rows"])
