"""A table to a queue, each row once.

Spark reads the table, with its own file options, such as pathGlobFilter or encoding. Its rows
become messages in one batch of the sink: all of them are decided at once. After a kill, start the
load again, and it does the rest.

A load is known by its name: --name, or a name made of the queue, the options and each file's path,
size and time. If a file changes, even by `touch`, that is another load of all rows, also where the
one before was killed half-way.

A message is what Spark reads: it passes over blank lines of CSV, and in JSON objects it turns 1.10
into 1.1. A single column keeps its numbers as they are written, and --format text each line."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from ..errors import Invalid, Missing
from ..spark.format import BODY
from ..spark.options import Options, local
from ..spark.sink import Sink, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".txt": "text"}


def files(path: str) -> list[str]:
    """The files at a path, or of a pattern, without those that Spark takes for hidden."""
    found = []
    for top in [path] if os.path.exists(path) else sorted(glob.glob(path)):
        if os.path.isfile(top):
            found.append(top)
        for directory, below, names in os.walk(top, followlinks=True):
            # A partition's name may begin with _
            below[:] = sorted(name for name in below if name[0] not in "._" or "=" in name)
            found += [f"{directory}/{name}" for name in sorted(names) if name[0] not in "._"]
    return found


def kind(path: str, names: list[str]) -> str:
    """The format, by the names' ends."""
    kinds = {FORMATS.get(os.path.splitext(re.sub(r"\.(gz|bz2|zst)$", "", name))[1].lower())
        for name in names} - {None}
    if len(kinds) != 1:
        raise Invalid(f"{path}: no table, or tables of several formats: say --format")
    return str(kinds.pop())


def column(rows: DataFrame, value: str | None) -> str | None:
    """The column of the messages; None for all together."""
    names = rows.columns
    if value is not None and value not in names:
        raise Invalid(f"there is no column '{value}', but {', '.join(names)}")
    bodies = [value] if value else [name for name in BODY if name in names]
    if len(bodies) > 1:
        raise Invalid("there are columns `body` and `value`: say --value")
    if bodies or len(names) == 1:
        return (bodies or names)[0]
    return None


def messages(rows: DataFrame, value: str | None = None) -> DataFrame:
    """`body`, the bytes of each message, that column or all columns as JSON; and `priority` if the
    table has it."""
    names, value = rows.columns, column(rows, value)
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
    priority = "priority" in names and value != "priority"
    return rows.selectExpr(f"{body} AS body", *["cast(priority AS bigint) AS priority"] * priority)


class Load:
    """One load.

    form, value and job: as --format, --value and --name. options: Spark's, for the format;
    encoding: one of them. priority, lease and wait: as for flatq.Queue.push."""

    def __init__(self, path: str, queue: str, spool: str | None = None, form: str | None = None,
            value: str | None = None, job: str | None = None, priority: int | None = None,
            lease: int | None = None, wait: int | None = None, encoding: str | None = None,
            options: Mapping[str, str] | None = None) -> None:
        here = local(path)
        self.names = files(here)
        if not self.names:
            raise Missing(f"{path}: nothing there")
        self.form, self.queue, self.value = form or kind(path, self.names), queue, value
        # a name that is there is no pattern
        self.path = re.sub(r"([\\\[\]{}*?])", r"\\\1", here) if os.path.exists(here) else here
        #: Only Spark knows the files of a drained table
        self.drained = os.path.isdir(f"{here}/_spark_metadata")
        given = {**(options or {}), **({"encoding": encoding} if encoding else {})}
        if "encoding" in given and self.form not in ("csv", "json"):
            raise Invalid("option encoding is for CSV and JSON: lines of a text stay as they are",
                64)
        self.options = {"mode": "FAILFAST", "mergeSchema": "true",
            **({"lineSep": "\n"} if self.form in ("text", "json") else {}),
            **({"header": "true", "enforceSchema": "false", "multiLine": "true", "escape": '"'}
            if self.form == "csv" else {}), **given}
        top = here if os.path.isdir(here) else re.split(r"[*?\[]", here)[0]
        parted = {"=" in os.path.dirname(name[len(top):]) for name in self.names}
        if len(parted) > 1:
            raise Invalid(f"{path}: Spark makes columns of NAME=VALUE directories, and some files "
                "lie in none: load them apart")
        if not self.drained and parted == {False}:
            self.options.setdefault("recursiveFileLookup", "true")
        if job is None:
            marks = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns)
                for name in self.names]
            made_of = repr((queue, value, marks, *sorted(given.items())))
            job = "load-" + hashlib.sha256(made_of.encode()).hexdigest()[:24]
        self.job = job
        to = {"path": spool, "priority": priority, "lease": lease, "wait": wait, "topic": queue}
        self.to = {name: str(text) for name, text in to.items() if text is not None}
        self.sink = Sink(Options(self.to, True))

    def ended(self) -> bool:
        """Whether this load has ended before."""
        return self.sink.over(named(self.job))

    def table(self, spark: SparkSession, **more: str) -> DataFrame:
        """The table; what cannot be read whole is an error, never a row of nulls."""
        rows = spark.read.format(self.form).options(**self.options, **more).load(self.path)
        if self.form != "text":
            return rows
        # a line's bytes as they are; it ends with \n or \r\n, and a \r elsewhere is part of it
        body = rows.selectExpr("cast(value AS binary) AS value")
        return body.selectExpr("if(endswith(value, X'0D'), "
            "substring(value, 1, octet_length(value) - 1), value) AS value")

    def checked(self, spark: SparkSession) -> None:
        """Raises Invalid if text is not UTF-8: Spark would read U+FFFD there."""
        where = {name: text for name, text in self.options.items()
            if name in ("recursiveFileLookup", "pathGlobFilter")}
        lines = spark.read.options(**where, lineSep="\n").text(self.path)
        bad = lines.where("NOT is_valid_utf8(value)").selectExpr("_metadata.file_path AS name")
        for row in bad.take(1):
            raise Invalid(f"{row.name}: not UTF-8: say --option encoding=NAME")

    def run(self, spark: SparkSession) -> int | None:
        """The number of rows, or None if the load had ended before."""
        if self.ended():
            return None
        if "encoding" in self.options:
            # Spark accepts seven encodings, and with this all that Java has
            spark.conf.set("spark.sql.legacy.javaCharsets", "true")
        elif self.form in ("csv", "json"):
            self.checked(spark)
        table = self.table(spark)
        missed = len(self.names) - len(table.inputFiles())
        if missed > 0 and not self.drained and "pathGlobFilter" not in self.options:
            raise Invalid(f"{self.path}: Spark does not read {missed} of the files, such as _NAME "
                "and NAME._COPYING_: rename them, or load them alone")
        if self.form == "json" and column(table, self.value):
            # a number as it is written
            table = self.table(spark, primitivesAsString="true")
        counted = Observation()
        rows = messages(table, self.value).observe(counted, F.count(F.lit(1)).alias("rows"))
        rows.write.format("flatq").options(**self.to, jobId=self.job).mode("append").save()
        return int(counted.get["rows"])


def load(spark: SparkSession, *words: Any, **more: Any) -> int | None:
    """Load a table; see Load and its `run`.

    Raises as flatq.Queue.push does; Missing where there is nothing at the path; Invalid where it is
    no table or cannot be read whole; and what Spark raises: `common.failure` makes one line of
    each."""
    return Load(*words, **more).run(spark)
