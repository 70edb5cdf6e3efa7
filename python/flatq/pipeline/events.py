"""The queues' event logs as a table: QUEUE/log and QUEUE/log.*, lines `TIME VERB ID TRIES SIZE
MILLISECONDS REASON`.

Columns: queue string, time timestamp, verb string, id bigint, tries int, size bigint, milliseconds
bigint (since the push), reason string, count bigint; host first, if the path has wildcards. A line
for many messages (`bulk-N`) has count N and no milliseconds; only that of a push has an id.
Malformed lines, as after a power cut, are left out."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import Observation
from pyspark.sql import functions as F

from ..errors import Busy, Missing
from ..spark.format import disk_name, is_queue
from ..spark.options import Options
from .place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
LINE = (r"^[0-9]{1,12}\\.[0-9]{2} [a-z]{1,20} ([0-9]{1,18}|-) [0-9]{1,9} [0-9]{1,18} "
    r"-?[0-9]{1,18} .+$")
COLUMNS = ("queue", "time", "verb", "id", "tries", "size", "milliseconds", "reason", "count")


class Nothing(Missing):
    """There is a spool, but no queue in it has a log yet."""


def logs(path: str | None = None, queues: Sequence[str] = ()) -> dict[str, int]:
    """The logs' paths, with their inodes; of all queues if none is named. Raises Missing."""
    options = Options({"subscribe": ",".join(queues), **({"path": path} if path else {})})
    tops: list[str] = []
    if queues:
        for place in options.places():
            tops.append(os.path.join(place.spool, disk_name(place.queue)))
            if not place.exists():
                raise Missing(f"no queue '{place.queue}' in {place.spool}", 66)
    else:
        names = sorted(glob.glob(options.path)) if options.wild else [options.path]
        spools = [name for name in names if os.path.isdir(name)]
        if not spools:
            raise Missing(f"no spool at {options.path}", 66)
        tops = [os.path.join(spool, name) for spool in spools for name in sorted(os.listdir(spool))
            if name[0] != "."]
    found = {}
    for top in tops:
        for name in sorted(os.listdir(top)) if is_queue(top) else ():
            if name == "log" or name.startswith("log."):
                with contextlib.suppress(FileNotFoundError):
                    found[f"{top}/{name}"] = os.stat(f"{top}/{name}").st_ino
    if not found:
        raise Nothing(f"no queue in {options.path} has a log", 66)
    return found


def table(spark: SparkSession, path: str | None = None, queues: Sequence[str] = ()) -> DataFrame:
    """The events, as they are now."""
    options = Options({"path": path} if path else {})
    lines = spark.read.text(list(logs(path, queues))).selectExpr("value",
        "split(_metadata.file_path, '/') AS path").where(f"value RLIKE '{LINE}'")
    # a queue's directory has a comma for each slash, and % before a dot
    rows = lines.selectExpr(
        "path", "split(value, ' ', 7) AS f",
        "translate(regexp_replace(element_at(path, -2), '^%25', ''), ',', '/') AS queue",
    ).selectExpr("*", "regexp_extract(f[6], '^bulk-([0-9]{1,9})$', 1) AS bulk")
    host = []
    if options.wild:
        # after it come the rest of the pattern, the queue and the log
        rest = len(options.path.split("/")) - options.wildcard + 2
        host = [f"element_at(path, {-rest}) AS host"]
    return rows.selectExpr(
        *host, "queue", "cast(cast(f[0] AS decimal(14, 2)) AS timestamp) AS time", "f[1] AS verb",
        "cast(nullif(f[2], '-') AS bigint) AS id", "cast(f[3] AS int) AS tries",
        "cast(f[4] AS bigint) AS size",
        "if(bulk = '', cast(f[5] AS bigint), null) AS milliseconds",
        "if(bulk = '', nullif(f[6], '-'), null) AS reason",
        "if(bulk = '', 1L, cast(bulk AS bigint)) AS count",
    )


def whole(path: str | None, queues: Sequence[str], job: Callable[[], T]) -> T:
    """Run job(), again if a log was rotated meanwhile, and read twice or not at all."""
    for _ in range(5):
        before = logs(path, queues)
        try:
            done = job()
        except Exception:
            if logs(path, queues) == before:
                raise
            continue
        if logs(path, queues) == before:
            return done
    raise Busy("the logs are put aside faster than they can be read", 75)


def save(spark: SparkSession, to: str, path: str | None = None, queues: Sequence[str] = ()) -> int:
    """Write the events to Parquet, replacing those that were there; return their number. Raises
    Invalid if `to` holds anything else."""
    def job(new: str) -> int:
        counted = Observation()
        rows = table(spark, path, queues).observe(counted, F.count(F.lit(1)).alias("rows"))
        rows.write.mode("overwrite").parquet(new)
        return int(counted.get["rows"])

    with Place("events", to, spark).replaced() as new:
        return whole(path, queues, lambda: job(new))
