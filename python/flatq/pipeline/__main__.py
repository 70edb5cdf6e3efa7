"""python -m flatq.pipeline: jobs over queues, on Spark.

Exit: 0 done, or told to stop; 64 usage; 65 bad name, option or table; 66 no such queue, spool or
file; 69 no Java, PySpark or cluster; 70 our bug; 74 disk, or claimed messages are lost; 75 busy or
full; 77 not allowed."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING, Any, NoReturn

from .. import spark as flatq_spark
from ..command import SIGNALS, Stopped, fail, on_signals, out, run
from ..errors import Internal
from .common import failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from . import load, stats

DONE = "load: done before; say --name, another one, to load it once more"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.prog}: {message}\n")


def seconds(text: str) -> float:
    if not 0.1 <= float(text) <= 86400:
        raise argparse.ArgumentTypeError(f"from 0.1 to 86400, not {text!r}")
    return float(text)


def count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number above 0, not {text!r}")
    return int(text)


def pair(text: str) -> list[str]:
    if text.find("=") < 1:
        raise argparse.ArgumentTypeError(f"KEY=VALUE, not {text!r}")
    return text.split("=", 1)


def parser() -> argparse.ArgumentParser:
    shared = _Parser(add_help=False)
    shared.add_argument("--spool", metavar="DIR", help="the spool (default: as for the verbs)")
    shared.add_argument("--master", default="local[*]", metavar="URL",
        help="the cluster (default: this machine)")
    shared.add_argument("--conf", type=pair, action="append", default=[], metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated")
    made = _Parser(prog="pipeline", usage="python -m flatq.pipeline JOB [OPTION ...]",
        description=(__doc__ or "").partition("\n\n")[2])
    jobs = made.add_subparsers(prog="pipeline", dest="job", required=True, metavar="JOB")

    def job(name: str, text: str) -> Callable[..., argparse.Action]:
        return jobs.add_parser(name, parents=[shared], help=text, description=text).add_argument

    add = job("drain", "queues to Parquet, exactly once")
    add("queue", nargs="+", metavar="QUEUE")
    add("--to", required=True, metavar="DIR",
        help="a directory for the table and its checkpoint: new, empty, or from an earlier drain")
    add("--continuous", action="store_true", help="go on until told to stop, by TERM or INT")
    add("--every", type=seconds, default=1.0, metavar="SECONDS",
        help="between two batches (1), with --continuous")
    add("--batch", type=count, default=250000, metavar="COUNT",
        help="messages in a batch (250000)")
    add("--consumer", metavar="NAME", help="claim as NAME (default: a name made of DIR)")
    add("--headers", action="store_true", help="add the column `headers`: id, priority, key")
    add("--lossy", action="store_true", help="go on if claimed messages are missing or damaged")
    add = job("load", "a table to a queue, each row once")
    add("queue", metavar="QUEUE")
    add("--from", dest="source", required=True, metavar="PATH",
        help="a file or directory: Parquet, CSV with a header, JSON lines, text")
    add("--format", choices=("parquet", "csv", "json", "text"),
        help="default: by the ends of the file names")
    add("--option", type=pair, action="append", default=[], metavar="KEY=VALUE",
        help="an option of Spark for the format, such as encoding=ISO-8859-1 for CSV and JSON that "
        "is not UTF-8, or pathGlobFilter=*.csv; may be repeated")
    # its name before
    add("--encoding", dest="option", type=lambda name: ["encoding", name], action="append",
        help=argparse.SUPPRESS)
    add("--value", metavar="COLUMN",
        help="the column with the message (default: `body` or `value`, the only column, or all as "
        "JSON)")
    add("--name", metavar="NAME", help="name of this load: a load that has ended is not repeated "
        "(default: made from the files)")
    add("--priority", type=int, metavar="N")
    add("--lease", type=int, metavar="SECONDS")
    add("--wait", type=int, metavar="SECONDS",
        help="wait this long for room in a queue with a bound")
    add = job("events", "the queues' event logs to Parquet")
    add("queue", nargs="*", metavar="QUEUE", help="default: all")
    add("--to", required=True, metavar="DIR",
        help="new, empty, or from an earlier `events`, which is replaced")
    for name, text in (
        ("stats", "throughput, depth, latency, redeliveries and dead letters, as tables"),
        ("report", "the same as one HTML page with plots"),
    ):
        add = job(name, text)
        add("queue", nargs="*", metavar="QUEUE", help="default: all")
        add("--from", dest="source", metavar="DIR",
            help="the table that `events` wrote (default: the logs themselves)")
    add("--to", required=True, metavar="DIR",
        help="new, empty, or from an earlier report, which is replaced")
    add("--title", default="flatq: what the queues did")
    return made


def say(text: str) -> None:
    out(text.encode(errors="replace") + b"\n")


def _drain(spark: SparkSession, args: argparse.Namespace) -> None:
    from . import drain

    options = {"includeHeaders": str(args.headers), "failOnDataLoss": str(not args.lossy)}
    if args.continuous:
        told = threading.Event()
        # Do not raise: the next request to Spark would get the answer to the one left
        on_signals(lambda *_: told.set())
        drain.on(spark, args.queue, args.to, args.spool, args.consumer, args.batch, args.every,
            told, **options)
        return
    rows, batches = drain.once(spark, args.queue, args.to, args.spool, args.consumer, args.batch,
        **options)
    say(f"drain: {rows} messages in {batches} batches to {args.to}")


def _asked(args: argparse.Namespace) -> load.Load:
    from . import load

    return load.Load(args.source, args.queue, args.spool, args.format, args.value, args.name,
        args.priority, args.lease, args.wait, options=dict(args.option))


def _load(spark: SparkSession, args: argparse.Namespace) -> None:
    rows = _asked(args).run(spark)
    say(DONE if rows is None else f"load: {rows} messages to queue {args.queue}")


def _events(spark: SparkSession, args: argparse.Namespace) -> None:
    from . import events

    say(f"events: {events.save(spark, args.to, args.spool, args.queue)} events to {args.to}")


def _collected(spark: SparkSession, args: argparse.Namespace, *detail: Any) -> stats.Stats:
    """The statistics of the named table of events, or of the logs."""
    from . import events, stats

    if not args.source:
        return stats.collect(events.table(spark, args.spool, args.queue), *detail)
    rows = spark.read.parquet(args.source)
    if not set(events.COLUMNS) <= set(rows.columns):
        raise ValueError(f"{args.source} is no table of events")
    return stats.collect(rows.where(rows.queue.isin(args.queue)) if args.queue else rows, *detail)


def _stats(spark: SparkSession, args: argparse.Namespace) -> None:
    from . import stats

    say(stats.text(_collected(spark, args)))


def _report(spark: SparkSession, args: argparse.Namespace) -> None:
    from . import report

    say(report.write(_collected(spark, args, 120, report.SHARES), args.to, args.title))


def session(args: argparse.Namespace) -> SparkSession:
    """A session. Its Java is a group of its own: a signal to the whole group (`timeout`, ^C,
    systemd) is for Python to handle. Java and Spark's workers print only with FLATQ_TRACE, since
    failures are raised in Python. Raises Unready."""
    from pyspark import java_gateway
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    conf: dict[str, Any] = {"spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    if args.master.startswith("local"):
        if os.access(python := os.path.join(os.path.dirname(__file__), "python"), os.X_OK):
            os.environ["FLATQ_PYTHON"] = sys.executable
            os.environ.setdefault("PYSPARK_PYTHON", python)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
        if args.job in ("stats", "report", "events"):
            # starts sooner and runs slower: better for little work
            conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf.update(args.conf)
    builder = SparkSession.builder.appName(f"flatq {args.job}").master(args.master).config(map=conf)
    gateway: Any = java_gateway

    def alone() -> None:
        os.setpgrp()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def apart(command: list[str], **more: Any) -> Popen[bytes]:
        return Popen(command, **{**more, "preexec_fn": alone,
            "stderr": None if os.environ.get("FLATQ_TRACE") else DEVNULL})

    kept, gateway.Popen = gateway.Popen, apart
    # A signal waits until Java has started: else Spark would be in the middle of an answer
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if "JAVA_GATEWAY" in str(error) or isinstance(error, FileNotFoundError):
            raise flatq_spark.Unready(f"Java does not start. {flatq_spark.JAVA}") from None
        raise
    finally:
        gateway.Popen = kept
        # Spark has set a handler of its own
        signal.signal(signal.SIGINT, interrupted)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    flatq_spark.register(spark)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    return spark


def main(words: list[str]) -> int:
    args = parser().parse_args(words)
    jobs = {"drain": _drain, "load": _load, "events": _events, "stats": _stats, "report": _report}
    spark = None
    try:
        if args.job == "report" and not importlib.util.find_spec("matplotlib"):
            raise flatq_spark.Unready("matplotlib is missing: pip install matplotlib")
        flatq_spark.packages()
        from .place import Place

        from ..spark.options import Options

        # a local path; what is printed stays as the user gave it
        args.spool = Options({"path": args.spool or ""}).path
        if hasattr(args, "to"):
            # before Java starts: that takes seconds
            Place(args.job, args.to).check()
        if args.job == "load" and _asked(args).ended():
            say(DONE)
            return 0
        spark = session(args)
        jobs[args.job](spark, args)
        return 0
    except Exception as error:
        if os.environ.get("FLATQ_TRACE"):
            raise
        found = failure(error)
        if isinstance(found, Internal):
            found.args = (f"{found} (FLATQ_TRACE=1 says where)",)
        return fail(args.job, found)
    except Stopped:
        # Spark is in the middle of an answer and takes no other request; it ends with this process
        spark = None
        if getattr(args, "continuous", False):
            # the job had not begun
            return 0
        raise
    finally:
        if spark is not None:
            with contextlib.suppress(Exception):
                spark.stop()


if __name__ == "__main__":
    run("pipeline", main)
