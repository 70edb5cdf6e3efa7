"""Kill a driver of the pipeline: kill -9 ends it and all that it has started, at a chosen point.
Then a run without kills follows, after which each message must be there once.

    drain   a queue to Parquet: two side by side, each to a table of its own
    load    a table to a queue
    copy    a stream from queue to queue, which is the stream's sink
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conftest import LIB, ROOT

from crash.gate import processes as living

MESSAGES, BATCH = 6000, 500
# Seconds for a driver: one alone takes ten, many on a busy machine take minutes
PATIENCE = 600
# Starts sooner, and needs less memory
CONF = ("spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory=512m")
COPY = """
import sys
from flatq import spark as flatq_spark
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for conf in sys.argv[3:]:
    builder = builder.config(*conf.split("=", 1))
spark = builder.getOrCreate()
flatq_spark.register(spark)
rows = spark.readStream.format("flatq").options(**{"path": sys.argv[1], "subscribe": "from",
    "group.id": "copy", "maxOffsetsPerTrigger": "%d", "minPartitions": "2"}).load()
sink = rows.select("body").writeStream.format("flatq").options(path=sys.argv[1], topic="to")
flatq_spark.run(sink, sys.argv[2])
spark.stop()
""" % BATCH


class Ground:
    """The place of a driver, in the `top` of a trial. `short`, for temporary files: in `top`, a
    socket's path would be too long."""

    def __init__(self, job, top, short, out="out"):
        self.job, self.top, self.short, self.spool = job, top, short, top / "spool"
        self.out, self.heard = top / out, top / f"{out}.said"
        self.checkpoint = self.out / "_checkpoint" if job == "drain" else top / "checkpoint"

    def latest(self, name):
        """The newest number in a directory of the checkpoint or of the table."""
        place = self.out / name if name == "_spark_metadata" else self.checkpoint / name
        names = os.listdir(place) if place.is_dir() else []
        numbers = [name.partition(".")[0] for name in names]
        return max([-1, *(int(number) for number in numbers if number.isdecimal())])

    def count(self, pattern):
        return sum(1 for _ in self.top.glob(pattern))

    def command(self):
        if self.job == "copy":
            return [sys.executable, "-c", COPY, str(self.spool), str(self.checkpoint), *CONF]
        words = [sys.executable, "-m", "flatq.pipeline", self.job, "--master", "local[2]",
            "--spool",
            str(self.spool), *(word for conf in CONF for word in ("--conf", conf))]
        if self.job == "drain":
            return [*words, "from", "--to", str(self.out), "--batch", str(BATCH)]
        return [*words, "to", "--from", str(self.top / "rows")]

    def start(self):
        environment = {**os.environ, "FLATQ_LIB": str(LIB), "FLATQ_SYNC": "off",
            "PYTHONPATH": str(ROOT / "python"), "TMPDIR": self.short,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(self.top)}  # a killed process cleans nothing up
        with self.heard.open("wb") as said:
            return subprocess.Popen(self.command(), start_new_session=True, cwd=self.top,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment)

    def said(self):
        """The output of the last driver, or its end."""
        return self.heard.read_text(errors="replace")[-1000:]

    def verb(self, *words, stdin=b""):
        """What a verb prints."""
        env = {**os.environ, "FLATQ_DIR": str(self.spool), "FLATQ_SYNC": "off"}
        done = subprocess.run(["sh", LIB / words[0], *words[1:]], input=stdin, env=env,
            capture_output=True, timeout=600)
        assert done.returncode == 0, (words, done)
        return done.stdout


# Points: a number that grows. The driver is killed when it has grown by more than the second number
POINTS = {
    "offsets": (lambda ground: ground.latest("offsets"), 1),
    "data": (lambda ground: ground.count(f"{ground.out.name}/part-*"), 1),
    "metadata": (lambda ground: ground.latest("_spark_metadata"), 1),
    "commits": (lambda ground: ground.latest("commits"), 1),
    "stage": (lambda ground: ground.count("spool/.spark/*/stage.*"), 0),
    "plan": (lambda ground: ground.count("spool/.spark/*/plan"), 0),
    "entered": (lambda ground: ground.count("spool/to/queue/*/*")
        if ground.count("spool/.spark/*/plan") else 0, 0),
    "done": (lambda ground: max([-1, *(int(path.name[5:])
        for path in ground.top.glob("spool/.spark/*/done.*"))]), 0),
}


def end(process):
    """kill -9 a driver and all that it has started; and what these were just starting."""
    while some := living.left(living.SESSION, process.pid):
        living.kill(some)
        process.poll()
    process.wait()


def kill(ground, point, others=()):
    """Start a driver and kill it there, unless it succeeds before that; and those beside it, which
    are anywhere."""
    number, more = POINTS[point]
    before, limit = number(ground), time.monotonic() + PATIENCE
    beside, process = [other.start() for other in others], ground.start()
    try:
        while number(ground) <= before + more and process.poll() is None:
            assert time.monotonic() < limit, f"{point} was not reached: {ground.said()}"
            time.sleep(0.001)  # between two looks
        assert not process.returncode, ground.said()
    finally:
        for one in (process, *beside):
            end(one)


def finish(ground):
    """A run without kills, on a quiet console."""
    process = ground.start()
    try:
        assert process.wait(PATIENCE) == 0, ground.said()
    finally:
        end(process)
    quiet = ground.job == "copy" or re.fullmatch(rf"{ground.job}: .+\n", ground.said())
    assert quiet, f"it says more than what it did: {ground.said()}"


def prepare(ground, bodies):
    if ground.job != "load":
        ground.verb("push", "-l", "from", stdin=b"".join(body + b"\n" for body in bodies))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    (ground.top / "rows").mkdir()
    for number in range(4):
        table = pa.table({"value": bodies[number::4]})
        pq.write_table(table, ground.top / f"rows/{number}.parquet")


def look(ground, bodies):
    """Each message must be there once, nothing is left over, and the doctor finds nothing."""
    if ground.job == "drain":
        import pyarrow.parquet as pq

        found = [body for path in sorted(ground.top.glob("o*/part-*.parquet"))
            for body in pq.read_table(path)["body"].to_pylist()]
    else:
        found = ground.verb("drain", "-l", "to").splitlines()
    assert sorted(found) == sorted(bodies), f"{len(found)}, {len({*found})} of them different"
    for queue in {"drain": ("from",), "load": ("to",), "copy": ("from", "to")}[ground.job]:
        said = ground.verb("stat", queue)
        assert b"ready 0\n" in said and b"reserved 0\n" in said, (queue, said)
    assert not list(ground.top.glob("spool/.spark/*/stage.*"))
    assert ground.verb("doctor") == b""


def run(job, points, work):
    """Kill a driver at each of these points, one after the other; then let one run to its end."""
    top, short = Path(tempfile.mkdtemp(prefix="kills.", dir=work)), tempfile.mkdtemp(
        prefix="flatq.")
    try:
        outs = ("out", "other") if job == "drain" else ("out",)
        grounds = [Ground(job, top, short, out) for out in outs]
        bodies = [b"%d" % number for number in range(MESSAGES * len(outs) ** 2)]
        prepare(grounds[0], bodies)
        for point in points:
            kill(grounds[0], point, grounds[1:])
            grounds.reverse()
        for ground in grounds:
            finish(ground)
        look(grounds[0], bodies)
    finally:
        shutil.rmtree(top, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)
