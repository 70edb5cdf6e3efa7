"""python -m flatq.pipeline: jobs over queues, on Spark.

Exit: 0 done, or told to stop; 64 usage; 65 bad name, option or table; 66 no such queue, spool or
file; 69 no Java, PySpark or cluster; 70 our bug, or a trial of the laboratory was bad; 74 disk, or
claimed messages are lost; 75 busy or full; 77 not allowed."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from .. import spark as flatq_spark
from ..command import SIGNALS, Stopped, fail, out, run
from ..errors import Internal, Unreachable
from .common import failure
from .place import Place, local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from . import load

#: Starts sooner and runs slower: better for little work
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

DONE = "load: done before; say --name, another one, to load it once more"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.prog}: {message}\n")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number above 0, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 86400:
            return float(text)
    raise argparse.ArgumentTypeError(f"seconds, not {text!r}")


def parser() -> argparse.ArgumentParser:
    shared = _Parser(add_help=False)
    shared.add_argument("--spool", metavar="DIR",
        help="the spool (default: as for the verbs); for events, wildcards select several, and `host` is a column")
    shared.add_argument("--master", default="local[*]", metavar="URL",
        help="the cluster (default: this machine)")
    shared.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated")
    made = _Parser(prog="pipeline", usage="python -m flatq.pipeline JOB [OPTION ...]",
        description=(__doc__ or "").partition("\n\n")[2])
    jobs = made.add_subparsers(prog="pipeline", dest="job", required=True, metavar="JOB")

    def job(name: str, text: str) -> argparse.ArgumentParser:
        return jobs.add_parser(name, parents=[shared], help=text, description=text, usage=None)

    one = job("drain", "queues to Parquet, exactly once")
    one.add_argument("queue", nargs="+", metavar="QUEUE")
    one.add_argument("--to", required=True, metavar="DIR",
        help="a directory for the table and its checkpoint: new, empty, or from an earlier drain")
    one.add_argument("--continuous", action="store_true",
        help="go on until told to stop, by TERM or INT")
    one.add_argument("--every", type=_seconds, default=1.0, metavar="SECONDS",
        help="between two batches (1), with --continuous")
    one.add_argument("--batch", type=_whole, default=250000, metavar="COUNT",
        help="messages in a batch (250000)")
    one.add_argument("--consumer", metavar="NAME",
        help="claim as NAME (default: a name made of DIR)")
    one.add_argument("--headers", action="store_true",
        help="add the column `headers`: id, priority, key")
    one.add_argument("--lossy", action="store_true",
        help="go on if claimed messages are missing or damaged")
    one = job("load", "a table to a queue, each row once")
    one.add_argument("queue", metavar="QUEUE")
    one.add_argument("--from", dest="source", required=True, metavar="PATH",
        help="a file or directory: Parquet, CSV with a header, JSON lines, text")
    one.add_argument("--format", choices=("parquet", "csv", "json", "text"),
        help="default: by the ends of the file names")
    one.add_argument("--encoding", metavar="NAME",
        help="encoding of CSV and JSON (UTF-8); a file in another encoding is refused")
    one.add_argument("--value", metavar="COLUMN",
        help="the column with the message (default: `value`, the only column, or all as JSON)")
    one.add_argument("--name", metavar="NAME",
        help="name of this load: a load that has ended is not repeated (default: made from the files)")
    one.add_argument("--priority", type=int, metavar="N")
    one.add_argument("--lease", type=int, metavar="SECONDS")
    one.add_argument("--wait", type=int, metavar="SECONDS",
        help="wait this long for room in a queue with a bound")
    one = job("events", "the queues' event logs to Parquet")
    one.add_argument("queue", nargs="*", metavar="QUEUE", help="default: all")
    one.add_argument("--to", required=True, metavar="DIR",
        help="new, empty, or from an earlier `events`, which is replaced")
    for name, text in (("stats",
            "throughput, depth, latency, redeliveries and dead letters, as tables"),
                       ("report", "the same as one HTML page with plots, and PNGs")):
        one = job(name, text)
        one.add_argument("queue", nargs="*", metavar="QUEUE", help="default: all")
        one.add_argument("--from", dest="source", metavar="DIR",
            help="the table that `events` wrote (default: the logs themselves)")
        if name == "report":
            one.add_argument("--to", required=True, metavar="DIR",
                help="new, empty, or from an earlier report, which is replaced")
            one.add_argument("--campaign", metavar="DIR",
                help="the table that `campaign` wrote: add its plot")
            one.add_argument("--title", default="flatq: what the queues did")
    one = job("campaign", "the crash laboratory's trials, spread by Spark; outcomes to Parquet")
    one.add_argument("--to", required=True, metavar="DIR",
        help="new, empty, or from an earlier campaign, which is replaced")
    one.add_argument("--family", action="append", default=[], metavar="NAME")
    one.add_argument("--scenario", action="append", default=[], metavar="NAME",
        help="a scenario, or the beginning of its name")
    one.add_argument("--fault", action="append", default=[], metavar="NAME")
    one.add_argument("--limit", type=_whole, metavar="N",
        help="at most so many double crashes, power states and so on; else all")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--lib", metavar="DIR", help="the directory of other verbs to test")
    return made


def say(text: str) -> None:
    out(text.encode(errors="replace") + b"\n")


def _drain(spark: SparkSession, args: argparse.Namespace) -> int:
    from . import drain

    options = {"includeHeaders": str(args.headers).lower(),
        "failOnDataLoss": str(not args.lossy).lower()}
    if args.continuous:
        told = threading.Event()
        for number in SIGNALS:
            # Do not raise here: the request to Spark would be left without its answer, and the next
            # request would get it
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: told.set())
        drain.on(spark, args.queue, args.to, args.spool, args.consumer, args.batch, args.every,
            told, **options)
        return 0
    rows, batches = drain.once(spark, args.queue, args.to, args.spool, args.consumer, args.batch,
        **options)
    say(f"drain: {rows} messages in {batches} batches to {args.to}")
    return 0


def _asked(args: argparse.Namespace) -> load.Load:
    from . import load

    return load.Load(args.source, args.queue, args.spool, args.format, args.value, args.name,
        args.priority, args.lease, args.wait, args.encoding)


def _load(spark: SparkSession, args: argparse.Namespace) -> int:
    rows = _asked(args).run(spark)
    say(DONE if rows is None else f"load: {rows} messages to queue {args.queue}")
    return 0


def _events(spark: SparkSession, args: argparse.Namespace) -> int:
    from . import events

    say(f"events: {events.save(spark, args.to, args.spool, args.queue)} events to {args.to}")
    return 0


def _table(spark: SparkSession, args: argparse.Namespace,
        count: Callable[[DataFrame], None]) -> None:
    """Run count(events) on the events of the named table, or of the logs."""
    from pyspark.sql import functions as F

    from . import events

    if not args.source:
        events.whole(args.spool, args.queue, lambda: count(events.table(spark, args.spool,
            args.queue)))
        return
    rows = spark.read.parquet(args.source)
    if not set(events.COLUMNS) <= set(rows.columns):
        raise ValueError(f"{args.source} is no table of events")
    count(rows.where(F.col("queue").isin(args.queue)) if args.queue else rows)


def _stats(spark: SparkSession, args: argparse.Namespace) -> int:
    from . import stats

    told: list[str] = []

    def tell(text: str) -> None:
        if not told and sys.stdout.isatty():
            told.append(text)
            say(text + "\n")

    _table(spark, args, lambda rows: say(stats.text(stats.collect(rows, tell=tell), not told)))
    return 0


def _report(spark: SparkSession, args: argparse.Namespace) -> int:
    from . import campaign, events, report, stats

    more = {}
    if args.campaign:
        plot = campaign.plot(spark.read.parquet(args.campaign))
        more = {"campaign": plot} if plot else {}

    def write(found: stats.Stats) -> None:
        say(report.write(found, args.to, args.title, more))

    try:
        _table(spark, args, lambda rows: write(stats.collect(rows, 120, report.SHARES)))
    except events.Nothing:
        write(stats.Stats([]))
    return 0


def _campaign(spark: SparkSession, args: argparse.Namespace) -> int:
    from . import campaign

    try:
        from . import trials
    except ImportError:
        raise Unreachable(
            "the crash laboratory needs flatq's source tree: it is no part of the package that pip installs", 69) from None
    outcomes = trials.run(spark, args.to, args.family, args.scenario, args.fault, args.limit,
        args.seed, args.lib)
    text, bad = campaign.text(outcomes)
    say(text)
    return 70 if bad else 0


def session(args: argparse.Namespace) -> SparkSession:
    conf = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
    for text in args.conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"--conf takes spark.KEY=VALUE, not {text!r}")
        conf[key] = value
    if args.job in ("stats", "report", "events") and args.master.startswith("local"):
        conf["spark.driver.extraJavaOptions"] = " ".join([QUICK,
            conf.get("spark.driver.extraJavaOptions", "")]).strip()
    if sys.stderr is not None and sys.stderr.isatty() and args.job in ("load", "events",
            "campaign"):
        conf.setdefault("spark.ui.showConsoleProgress", "true")
    os.environ["FLATQ_QUIET"] = "yes"
    with _later():
        return flatq_spark.session(f"flatq {args.job}", args.master, conf)


@contextlib.contextmanager
def _later() -> Iterator[None]:
    """A signal that comes meanwhile takes effect only at the end: else a Java that is just starting
    would stay. At the end the old handlers are back, since Spark sets one of its own for INT."""
    came: list[int] = []
    handlers = {number: handler for number in SIGNALS
        if (handler := signal.getsignal(number)) is not None}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    except KeyboardInterrupt:
        # Spark's handler
        came.append(signal.SIGINT)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            raise Stopped(came[0])


def main(words: list[str]) -> int:
    args = parser().parse_args(words)
    jobs = {"drain": _drain, "load": _load, "events": _events, "stats": _stats, "report": _report,
        "campaign": _campaign}
    spark = None
    try:
        if args.job == "report" and not importlib.util.find_spec("matplotlib"):
            raise flatq_spark.Unready("matplotlib is missing: pip install matplotlib")
        flatq_spark.packages()
        from ..spark.options import Options

        # a local path; what is printed stays as the user gave it
        args.spool = Options({"path": args.spool} if args.spool else {}).path
        if hasattr(args, "to") and local(args.to):
            # before Java starts: that takes seconds
            Place(args.job, args.to).check()
        if args.job == "load" and _asked(args).ended():
            say(DONE)
            return 0
        spark = session(args)
        return jobs[args.job](spark, args)
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
