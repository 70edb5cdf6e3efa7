"""What the tests on Spark share: one session for a file of tests, queues of numbers, what lies in a table."""

import os

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

from flatq import spark as flatq_spark  # noqa: E402

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    before = dict(os.environ)
    os.environ["FLATQ_SYNC"] = "off"
    home = tmp_path_factory.mktemp("spark")
    try:
        made = flatq_spark.session(master="local[2]", conf={**QUICK, "spark.sql.warehouse.dir": str(home)})
    except flatq_spark.Unready as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    yield made
    made.stop()
    os.environ.clear()
    os.environ.update(before)


def numbers(count):
    return [b"%d" % n for n in range(count)]


def fill(flatq, first, last, queue="default"):
    flatq("push", "-l", queue, input=b"".join(b"%d\n" % n for n in range(first, last)), check=0)


def table(directory):
    """What any reader finds in a directory: all of its Parquet files."""
    return pq.ParquetDataset([str(path) for path in sorted(directory.glob("part-*.parquet"))]).read()
