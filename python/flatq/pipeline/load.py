"""A table to a queue, each row once.

Its rows become messages in one batch of the sink: all of them are decided at once. After a kill,
start the load again, and it does the rest. A load is known by its name: --name, or a name made of
the queue and of each file's path, size and time. So a load that has ended does nothing when it is
run again; a table that has changed since is another load, and all of it is loaded.

The same holds for a load that was killed: if a file changes before the next start, even by `touch`,
that is another load. If the first one was killed before its rows were decided, nothing of it is in
the queue; else some or all of its rows are, and the second one loads all rows again. The same
--name both times keeps it one load. The checkpoint (`flatq wal`) removes what an abandoned load has
staged, after a week.

A message is what Spark reads: it passes over blank lines of CSV, and in JSON objects it keeps 17
digits of a number with a fraction, and turns 1.10 into 1.1. A single column keeps its numbers as
they are written, and --format text each line as it is."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import hashlib
import os
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType

from ..errors import Invalid, Missing
from ..spark.options import Options
from ..spark.sink import Sink, named
from .place import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".txt": "text"}
#: Compressions that Spark reads and Python cannot unpack
PACKED = {".zst", ".zstd", ".lz4", ".snappy", ".deflate"}


def files(path: str) -> list[str]:
    """The data files at a path on this machine: a file, a directory, or a pattern."""
    found = []
    several = glob.has_magic(path) and not os.path.exists(path)
    for top in [name for name in sorted(glob.glob(path))
            if os.path.basename(name)[0] not in "._"] if several else [path]:
        if os.path.isfile(top):
            found.append(top)
        for directory, below, names in os.walk(top):
            for name in below:
                if os.path.islink(os.path.join(directory,
                        name)) or name == "_spark_metadata" and (directory != top or several):
                    raise Invalid(
                        f"{directory} holds {name}, a link or a drained table: load that alone", 65)
            # A partition's name may begin with _
            below[:] = sorted(name for name in below if name[0] != "."
                and (name[0] != "_" or "=" in name))
            found += [os.path.join(directory, name) for name in sorted(names)
                if name[0] not in "._"]
    for name in found:
        if os.path.basename(name)[0] in "._" or name.endswith("._COPYING_"):
            raise Invalid(
                f"{name}: Spark skips a file whose name begins with _ or ., or ends with ._COPYING_: rename it", 65)
        if ":" in os.path.basename(name):
            raise Invalid(f"{name}: Spark cannot read a file with a colon in its name: rename it",
                65)
    return found


def source(place: str, names: list[str]) -> tuple[list[str], str | None]:
    """What Spark is to read for these files at a place, and the directory above a table's
    partitions. Spark itself skips files in deeper directories, and reads `[1]` in a name as a
    pattern: so name each file, with such characters escaped. Raises Invalid for files of which
    Spark would lose some, or the columns of their partitions."""
    directory = os.path.isdir(place)
    if os.path.isdir(os.path.join(place, "_spark_metadata")):
        return [place], None  # the table of a drain: only Spark knows its files, and it takes no pattern here
    # What lies above the first wildcard is no partition, nor what lies above a file that is named
    # itself
    top = place.rstrip("/") if directory else os.path.dirname(place if os.path.exists(place)
        else re.split(r"[*?\[]", place)[0])
    parted = [name for name in names if "=" in os.path.dirname(name[len(top):])]
    if parted and len(parted) != len(names):
        raise Invalid(
            f"{place}: some files lie in NAME=VALUE directories, as {parted[0]}, and some do not: load them apart", 65)
    if parted and not directory:
        raise Invalid(
            f"{place} matches files in NAME=VALUE directories, as {parted[0]}: say the directory above these", 65)
    return [literal(name) for name in names], place if directory else None


def literal(path: str) -> str:
    """A path as Hadoop's patterns have it: each special character stands for itself."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def kind(path: str, names: list[str]) -> str:
    """The format, by the names' ends."""
    kinds = {FORMATS.get(os.path.splitext(name.removesuffix(".gz"))[1].lower()) for name in names
        or [path.rstrip("/")]} - {None}
    if len(kinds) != 1:
        raise Invalid(
            f"{path}: no table, or tables of several formats: say --format {'|'.join(sorted(set(FORMATS.values())))}", 65)
    return str(kinds.pop())


def job_of(names: list[str], queue: str, value: str | None, encoding: str | None = None) -> str:
    """The name of a load."""
    marks = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in names]
    made_of = (queue, value, marks, *([encoding] if encoding else []))
    return "load-" + hashlib.sha256(repr(made_of).encode()).hexdigest()[:24]


def decodes(name: str, encoding: str) -> None:
    """Raises Invalid, with line and column, if a file is not in that encoding: Spark would read
    U+FFFD there."""
    ends: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    line, column = 1, 1
    decoder = codecs.getincrementaldecoder(encoding)()

    def on(text: str) -> None:
        nonlocal line, column
        line += text.count("\n")
        column = len(text) - text.rfind("\n") if "\n" in text else column + len(text)

    with ends.get(os.path.splitext(name)[1], open)(name, "rb") as file:
        try:
            while piece := file.read(1 << 20):
                on(decoder.decode(piece))
            decoder.decode(b"", True)
        except UnicodeDecodeError as error:
            on(error.object[:error.start].decode(encoding, "replace"))
            raise Invalid(f"{name}, line {line}, column {column}: not {encoding}: say --encoding",
                65) from None


def check(spark: SparkSession, paths: list[str], names: list[str], encoding: str) -> None:
    """Raises Invalid if text is not in that encoding. For files on another machine, checks only
    UTF-8."""
    if names and not any(os.path.splitext(name)[1] in PACKED for name in names):
        for name in names:
            decodes(name, encoding)
    elif codecs.lookup(encoding).name == "utf-8":
        lines = spark.read.option("lineSep", "\n").text(paths).where("NOT is_valid_utf8(value)")
        for row in lines.selectExpr("_metadata.file_path").take(1):
            raise Invalid(f"{row[0]}: not {encoding}: say --encoding", 65)


def read(spark: SparkSession, paths: list[str], form: str, encoding: str | None = None,
        schema: StructType | None = None, base: str | None = None) -> DataFrame:
    """Read a table; anything that cannot be read whole is an error, never a row of nulls. A column
    that only some Parquet or JSON files have is null in the rows of the others."""
    reader = spark.read.format(form).options(mode="FAILFAST", mergeSchema="true")
    if base is not None:
        reader = reader.option("basePath", base)
    if schema is not None:
        reader = reader.schema(schema)
    if form == "csv":
        reader = reader.option("header", "true").option("enforceSchema",
            "false").option("multiLine", "true").option("escape", '"')
    if encoding:
        if form == "json":
            reader = reader.option("lineSep", "\n")
        # Spark itself accepts seven encodings, and with this all that Java has
        spark.conf.set("spark.sql.legacy.javaCharsets", "true")
        reader = reader.option("encoding", encoding)
    if form != "text":
        return reader.load(paths)
    # a line's bytes as they are; it ends with \n or \r\n, and a \r elsewhere is part of it
    lines = reader.option("lineSep", "\n").load(paths).selectExpr("cast(value AS binary) AS value")
    return lines.selectExpr(
        "if(endswith(value, X'0D'), substring(value, 1, octet_length(value) - 1), value) AS value")


def column(rows: DataFrame, value: str | None) -> str | None:
    """The column whose values are the messages; None for all columns together."""
    names = rows.columns
    if value is not None and value not in names:
        raise Invalid(f"there is no column '{value}', but {', '.join(names)}", 65)
    return value or ("value" if "value" in names else names[0] if len(names) == 1 else None)


def messages(rows: DataFrame, value: str | None = None) -> DataFrame:
    """`value`, the bytes of each message: that column, the only column, or all columns as JSON; and
    `priority` if the table has it."""
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
    return rows.selectExpr(f"{body} AS value", *["cast(priority AS bigint) AS priority"] * (
        "priority" in names and value != "priority"))


class Load:
    """One load, from what `load` is called with."""

    def __init__(self, path: str, queue: str, spool: str | None = None, form: str | None = None,
            value: str | None = None, job: str | None = None,
                 priority: int | None = None, lease: int | None = None, wait: int | None = None,
                 encoding: str | None = None) -> None:
        self.place, self.path, self.queue, self.value, self.encoding = local(
            path), path, queue, value, encoding
        self.names = files(self.place) if self.place is not None else []
        if self.place is not None and not self.names:
            raise Missing(f"{path}: nothing there", 66)
        self.form = form or kind(path, self.names)
        if encoding and self.form not in ("csv", "json"):
            raise Invalid(
                "--encoding is for CSV and JSON: the lines of a text are loaded as they are", 64)
        try:
            codecs.lookup(encoding or "utf-8")
        except LookupError:
            raise Invalid(f"there is no encoding {encoding!r}", 65) from None
        if job is None and self.place is None:
            raise Invalid("say --name, a name for this load: the files are not on this machine", 65)
        self.job = job_of(self.names, queue, value, encoding) if job is None else job
        given = (("path", spool), ("priority", priority), ("lease", lease), ("wait", wait))
        self.options = {name: str(text) for name, text in given if text is not None}
        self.sink = Sink(Options({**self.options, "queue": queue}, True), self.options)

    def ended(self) -> bool:
        """Whether this load has ended before: then nothing is left to do, and Java is not
        needed."""
        return self.sink.over(named(self.job))

    def run(self, spark: SparkSession) -> int | None:
        """The number of rows, or None if the load had ended before."""
        if self.ended():
            return None
        where, base = source(self.place, self.names) if self.place else ([self.path], None)
        if self.form in ("csv", "json"):
            check(spark, where, self.names, self.encoding or "UTF-8")
        counted = Observation()
        table = read(spark, where, self.form, self.encoding, base=base)
        one = column(table, self.value)
        if self.form == "json" and one and not isinstance(table.schema[one].dataType,
                (StructType, ArrayType, MapType)):
            # a number as it is written
            whole = StructType([StructField(field.name,
                StringType() if field.name == one else field.dataType)
                for field in table.schema.fields])
            table = read(spark, where, self.form, self.encoding, whole, base)
        rows = messages(table, self.value).observe(counted, F.count(F.lit(1)).alias("rows"))
        rows.write.format("flatq").options(**self.options, queue=self.queue,
            jobId=self.job).mode("append").save()
        return int(counted.get["rows"])


def load(spark: SparkSession, path: str, queue: str, spool: str | None = None,
        form: str | None = None, value: str | None = None,
         job: str | None = None, priority: int | None = None, lease: int | None = None,
         wait: int | None = None,
         encoding: str | None = None) -> int | None:
    """Load a table; return the number of rows, or None if that load had ended before.

    form, value, job and encoding: as --format, --value, --name and --encoding; job must be said
    where the files are not on this machine. priority: 0, the most urgent, to 4294967295. lease: of
    the messages, in seconds, 0 to 4294967295. wait: seconds for room in a queue with a bound.
    Raises Missing where there is nothing at path; Invalid where it is no table or cannot be read
    whole; as flatq.Queue.push does, Full and Closed above all; and what Spark raises:
    `common.failure` makes one line of each."""
    return Load(path, queue, spool, form, value, job, priority, lease, wait, encoding).run(spark)
