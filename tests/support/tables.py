"""What the tests on Spark share: one session, queues of numbers, what lies in a table."""

import contextlib
import os
import shutil
import signal

import pytest

from servers import module

module("pyspark")
pq = module("pyarrow.parquet")

from flatq import spark as flatq_spark
from flatq.pipeline import __main__ as command

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setenv("FLATQ_SYNC", "off")


@pytest.fixture
def java():
    """For tests that start a Spark of their own."""
    if not shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME") or "/none", "bin")
            + os.pathsep + os.environ["PATH"]):
        unready(flatq_spark.JAVA)


def unready(error):
    (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))


@contextlib.contextmanager
def session(home):
    """What Java keeps of this environment is for the tests on Spark alone; the process goes on with
    others."""
    before, interrupted = dict(os.environ), signal.getsignal(signal.SIGINT)
    os.environ["FLATQ_SYNC"] = "off"
    try:
        conf = {**QUICK, "spark.sql.warehouse.dir": home}
        made = command.session(command.parser().parse_args(["drain", "q", "--to", "x", "--master",
            "local[2]", *(f"--conf={key}={value}" for key, value in conf.items())]))
    except flatq_spark.Unready as error:
        unready(error)
    finally:
        os.environ.clear()
        os.environ.update(before)
        signal.signal(signal.SIGINT, interrupted)
    yield made
    made.stop()


def numbers(count):
    return [b"%d" % n for n in range(count)]


def fill(flatq, first, last, queue="default"):
    flatq("push", "-l", queue, input=b"".join(b"%d\n" % n for n in range(first, last)), check=0)


def table(directory):
    """What any reader finds in a directory: all of its Parquet files."""
    return pq.ParquetDataset([str(path) for path in sorted(directory.glob("part-*.parquet"))]).read(
        )
