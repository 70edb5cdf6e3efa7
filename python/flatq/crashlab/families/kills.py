"""Kill drivers of the pipeline. kill -9 ends a driver and all that it has started, at chosen points or at random ones, again and again.
Then a run without kills follows, after which each message must be there once.

    drain   a queue to Parquet
    load    a table to a queue
    copy    a stream from queue to queue, which is the stream's sink

    >>> print(run(Trial("drain", ("offsets", "data")), Path("/dev/shm")).outcome)
    good
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import trial
from .. import campaign
from ..gate import processes
from ..scenarios import ROOT, System

MESSAGES, BATCH = 6000, 500
#: Seconds for a driver: one alone takes ten, many on a busy machine take minutes
PATIENCE = 600
#: Starts sooner, and needs less memory
CONF = ("spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory=512m")
COPY = """
import sys
from flatq import spark as flatq_spark
spark = flatq_spark.session("copy", "local[2]", dict(conf.split("=", 1) for conf in sys.argv[3:]))
rows = spark.readStream.format("flatq").options(path=sys.argv[1], queue="from", consumer="copy", maxOffsetsPerTrigger="%d", minPartitions="2").load()
flatq_spark.run(rows.select("value").writeStream.format("flatq").options(path=sys.argv[1], queue="to"), sys.argv[2])
spark.stop()
""" % BATCH


@dataclass(frozen=True)
class Trial:
    """`points`: one driver after the other is killed, each at one of these."""

    job: str
    points: tuple[str, ...]
    seed: int = 0

    def __str__(self) -> str:
        return f"kills {self.job}/{','.join(self.points)}/{self.seed}"


@dataclass
class Outcome(trial.Outcome):
    family: str = "kills"


@dataclass(frozen=True)
class Ground:
    """The place of a trial."""

    job: str
    top: Path
    system: System
    #: For temporary files: in `top`, the path of a socket would be too long
    short: str

    @property
    def spool(self) -> Path:
        return self.top / "spool"

    @property
    def checkpoint(self) -> Path:
        return self.top / ("out/_checkpoint" if self.job == "drain" else "checkpoint")

    def latest(self, name: str) -> int:
        """The newest number in a directory of the checkpoint or of the table."""
        place = self.top / "out" / name if name == "_spark_metadata" else self.checkpoint / name
        return max([-1, *(int(one.partition(".")[0]) for one in _names(place) if one.partition(".")[0].isdecimal())])

    def count(self, pattern: str) -> int:
        return sum(1 for _ in self.top.glob(pattern))

    def command(self) -> list[str]:
        if self.job == "copy":
            return [sys.executable, "-c", COPY, str(self.spool), str(self.checkpoint), *CONF]
        words = [word for conf in CONF for word in ("--conf", conf)]
        words = [sys.executable, "-m", "flatq.pipeline", self.job, "--master", "local[2]", "--spool", str(self.spool), *words]
        return [*words, "from", "--to", str(self.top / "out"), "--batch", str(BATCH)] if self.job == "drain" else [*words, "to", "--from", str(self.top / "rows")]

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "FLATQ_LIB": str(self.system.lib), "FLATQ_SYNC": "off", "PYTHONPATH": str(ROOT / "python"),
                       # a killed process cleans nothing up
                       "TMPDIR": self.short, "SPARK_LOCAL_DIRS": str(self.top)}
        with (self.top / "said").open("wb") as said:
            return subprocess.Popen(self.command(), start_new_session=True, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=self.top)

    def said(self) -> str:
        """The output of the last driver, or its end."""
        return (self.top / "said").read_text(errors="replace")[-1000:]

    def verb(self, *words: str, stdin: bytes = b"") -> bytes:
        """What a verb prints. Raises RuntimeError."""
        done = self.system.verb(self.spool, *words, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr!r}")
        return done.stdout


def _names(place: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(place)
    return []


#: Points: a number that grows. The driver is killed when it has grown by more than the second number
POINTS: dict[str, tuple[Callable[[Ground], int], int]] = {
    "offsets": (lambda ground: ground.latest("offsets"), 1),
    "data": (lambda ground: ground.count("out/part-*"), 1),
    "metadata": (lambda ground: ground.latest("_spark_metadata"), 1),
    "commits": (lambda ground: ground.latest("commits"), 1),
    "stage": (lambda ground: ground.count("spool/.spark/*/stage.*"), 0),
    "plan": (lambda ground: ground.count("spool/.spark/*/plan"), 0),
    "entered": (lambda ground: ground.count("spool/to/queue/*/*") if ground.count("spool/.spark/*/plan") else 0, 0),
    "done": (lambda ground: max([-1, *(int(path.name[5:]) for path in ground.top.glob("spool/.spark/*/done.*"))]), 0),
}
#: By job; make crash tries all of these
CHOSEN = {
    "drain": ("offsets", "data", "metadata", "commits", "random", "random", "random"),
    "load": ("stage", "random", "plan", "random", "entered"),
    "copy": ("offsets", "stage", "plan", "random", "entered", "done", "commits", "random"),
}


def end(process: subprocess.Popen[bytes]) -> None:
    """kill -9 a driver and all that it has started; repeat a moment later for processes that these were just starting."""
    while some := processes.left(processes.SESSION, process.pid):
        processes.kill(some)
        process.poll()
    process.wait()


def kill(ground: Ground, point: str, chance: random.Random, seconds: float = PATIENCE) -> bool:
    """Start a driver and kill it there; False if it succeeded before that. Raises RuntimeError if it failed."""
    number, more = POINTS[{"load": "stage"}.get(ground.job, "offsets") if point == "random" else point]
    before, limit = number(ground), time.monotonic() + seconds
    process = ground.start()
    try:
        while number(ground) <= before + more:
            if process.poll() is not None:
                if process.returncode:
                    raise RuntimeError(f"exit {process.returncode}: {ground.said()}")
                return False
            if time.monotonic() > limit:
                raise RuntimeError(f"{point} was not reached within {seconds} s: {ground.said()}")
            time.sleep(0.001)  # between two looks
        if point == "random":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, 2))
        return process.poll() is None
    finally:
        end(process)


def finish(ground: Ground) -> None:
    """A run without kills, on a quiet console. Raises RuntimeError."""
    process = ground.start()
    try:
        if process.wait(PATIENCE):
            raise RuntimeError(f"exit {process.returncode}: {ground.said()}")
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done within {PATIENCE} s: {ground.said()}") from None
    finally:
        end(process)
    if ground.job != "copy" and not re.fullmatch(rf"{ground.job}: .+\n", ground.said()):
        raise RuntimeError(f"it says more than what it did: {ground.said()}")


def prepare(ground: Ground, bodies: list[bytes]) -> None:
    if ground.job != "load":
        ground.verb("push", "-l", "from", stdin=b"".join(body + b"\n" for body in bodies))
        return
    import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped,import-not-found,unused-ignore]

    (ground.top / "rows").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"value": bodies[number::4]}), ground.top / f"rows/{number}.parquet")


def wrong(ground: Ground, bodies: list[bytes]) -> str:
    """What is wrong, or nothing."""
    if ground.job == "drain":
        import pyarrow.parquet as pq  # type: ignore[import-untyped,import-not-found,unused-ignore]

        found = [body for path in sorted(ground.top.glob("out/part-*.parquet")) for body in pq.read_table(path)["value"].to_pylist()]
    else:
        found = ground.verb("drain", "-l", "to").splitlines()
    if sorted(found) != sorted(bodies):
        return f"{len(found)} messages, {len(set(found))} of them different, of {len(bodies)}"
    for queue in ("from",) if ground.job == "drain" else ("to",) if ground.job == "load" else ("from", "to"):
        said = ground.verb("stat", queue)
        if b"ready 0\n" not in said or b"reserved 0\n" not in said:
            return f"queue {queue}: {said!r}"
    stages = [str(path) for path in ground.top.glob("spool/.spark/*/stage.*")]
    if stages:
        return f"left: {stages}"
    said = ground.verb("doctor")
    return f"doctor: {said!r}" if said else ""


def run(one: Trial, work: Path, system: System | None = None) -> Outcome:
    begun, chance, missed, detail = time.monotonic(), random.Random(str(one)), [], ""
    top, short = Path(tempfile.mkdtemp(prefix="kills.", dir=work)), tempfile.mkdtemp(prefix="flatq.")
    try:
        ground = Ground(one.job, top, system or System(), short)
        bodies = [b"%d" % number for number in range(MESSAGES)]
        prepare(ground, bodies)
        try:
            missed = [point for point in one.points if not kill(ground, point, chance)]
            finish(ground)
            detail = wrong(ground, bodies)
        except RuntimeError as error:
            detail = str(error)
    finally:
        shutil.rmtree(top, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)
    outcome = "bad" if detail else "not reached" if len(missed) == len(one.points) else "good"
    return Outcome(one.job, one.job, len(one.points), ", ".join(one.points), "kill", outcome, detail or (f"ended before {', '.join(missed)}" if missed else ""),
                   one.seed, time.monotonic() - begun, str(one))


def again(line: str, system: System, work: Path) -> Outcome:
    """The trial that printed this line, once more. Raises ValueError."""
    job, points, seed = shlex.split(line)[-1].split("/")
    if job not in CHOSEN:
        raise ValueError(f"no job {job!r}: one of {', '.join(CHOSEN)}")
    return run(Trial(job, tuple(points.split(",")), int(seed)), work, system)


def _runs(trials: Sequence[Trial], system: System, work: Path) -> list[Outcome]:
    return [run(one, work, system) for one in trials]


def ready() -> str:
    """The reason why no driver can be started here, or nothing if one can."""
    from ... import spark as flatq_spark

    try:
        flatq_spark.java()
        flatq_spark.packages()
    except flatq_spark.Unready as error:
        return str(error)
    return ""


def tasks(system: System, options: campaign.Options, work: Path) -> list[Callable[[], list[Any]]]:
    """For the laboratory: without a limit all that is CHOSEN, else none, since each driver takes seconds."""
    if options.limit is not None:
        return []
    reason = ready()
    if reason:
        return [functools.partial(campaign.missing, "kills", reason)]
    return [functools.partial(_runs, [Trial(job, points, options.seed)], system, work) for job, points in CHOSEN.items()]
