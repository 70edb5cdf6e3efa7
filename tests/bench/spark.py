"""The bench's row `pipeline`: flatq.spark beside Spark's own text reader, in one session, in turn.
The session is a process of .venv's Python, since the bench itself runs without packages.

    rows(run)                             what the bench adds to its tables
    spark.py WORK [quick] [MESSAGES ...]  a JSON line for each measurement"""

import functools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.dont_write_bytecode = True

from harness import processes, ratio, spread

ROOT = Path(__file__).resolve().parent.parent.parent
MILLION = 1_000_000
OURS, TEXT = "to Parquet", "text to Parquet"
# the messages a second that a row should reach, at a million messages
GOALS = {"to a queue, synced": 400_000, "drain, 250,000 a batch": 200_000}


def rows(run):
    """Measure in a process of its own, and make rows of what it prints. Without PySpark there is
    only a note."""
    python = ROOT / ".venv/bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import pyspark, pyarrow"],
            capture_output=True).returncode:
        run.notes.append(
            "pipeline: .venv has no PySpark (make pipeline installs it): what needs it is left out")
        return
    sizes = [10_000] if run.quick else [10_000, 100_000, MILLION, 10 * MILLION]
    (run.work / "spark").mkdir()
    words = [python, __file__, run.work / "spark", *["quick"] * run.quick, *sizes]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        found = [json.loads(line) for line in process.stdout]
        process.wait()
    except BaseException:
        end(process)
        raise
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    largest = sizes[-1] if run.quick else MILLION
    by_name = {(one["name"], one.get("messages")): one for one in found}
    run.raw["pipeline"] = found
    flatq, text = (by_name[name, largest]["seconds"] for name in (OURS, TEXT))
    row, other = f"{largest:,} messages to Parquet", "Spark's text and unbase64"
    run.ratios.append((row, other, 1.11, *ratio(flatq, text)))
    run.raw[row] = {"flatq": flatq, other: text}
    if not run.quick:
        run.ratios += aims(by_name)
    run.detail += [(f"{largest:,} to Parquet", "flatq", *spread(flatq)),
        (f"{largest:,} to Parquet", "Spark's text", *spread(text))]
    run.notes.append("Pipeline, messages of 100 bytes: messages a second, and the most memory of "
        "all processes:")
    for one in found:
        if "messages" not in one:
            continue
        middle = spread(one["seconds"])[0]
        goal = GOALS.get(one["name"]) if one["messages"] == MILLION else None
        run.notes.append(
            f"  {one['messages']:>10,} {one['name']:24} {one['messages'] / middle:>10,.0f}"
            f"  {one['memory'] / 2**20:6.0f} MB" + (f"   goal {goal:,}" if goal else ""))
    run.notes.append(f"  {'session':35} {spread(by_name['session', None]['seconds'])[0]:>10.1f} s")


def aims(found):
    """Rows for what has no rival but an aim: the times beside those of the wanted rate, and time
    and memory for ten times the messages."""
    def seconds(name, messages):
        return statistics.median(found[name, messages]["seconds"])

    def row(text, other, aim, value):
        return text, other, aim, value, None, None

    for name, goal in GOALS.items():
        yield row(f"{MILLION:,} messages, {name}", f"{goal:,} a second", 1.0,
            seconds(name, MILLION) * goal / MILLION)
    many, few = (name, 10 * MILLION), (name, MILLION)  # of drain, the last goal
    yield row(f"{10 * MILLION:,} messages, drain: time", f"of {MILLION:,}", 10.0,
        seconds(*many) / seconds(*few))
    yield row(f"{10 * MILLION:,} messages, drain: memory", f"of {MILLION:,}", 1.0,
        found[many]["memory"] / found[few]["memory"])


def end(process):
    """End all processes of its session."""
    for place, _, fields in processes():
        if int(fields[3]) == process.pid:
            with suppress(ProcessLookupError):
                os.kill(int(place.name), signal.SIGKILL)
    process.wait()


# ---- the process that measures


def memory():
    """The bytes that the processes of this session have in memory. Shared ones count in shares."""
    mine, found = os.getsid(0), 0
    for place, _, fields in processes():
        if int(fields[3]) == mine:
            with suppress(OSError):
                shared = re.search(r"^Pss: +(\d+)", (place / "smaps_rollup").read_text(), re.M)
                found += int(shared[1]) * 1024 if shared else 0
    return found


def measured(name, messages, act, rounds=1, before=lambda: None):
    """Run act(): the seconds of each run, and the most memory."""
    found = {"name": name, **({"messages": messages} if messages else {}), "seconds": [],
        "memory": 0}
    for _ in range(rounds):
        before()
        over = threading.Event()

        def watch():
            last = None
            while not over.wait(0.2):
                size = memory()
                # only a size that lasts for two samples counts: a program that Java just starts has
                # all of Java's memory for a moment, counted twice
                found["memory"], last = max(found["memory"], min(size, last or size)), size

        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = time.perf_counter()
        act()
        found["seconds"].append(time.perf_counter() - begun)
        over.set()
        watcher.join()
    return found


def say(found):
    print(json.dumps(found), flush=True)


class Measure:
    def __init__(self, work):
        self.work = work
        os.environ["FLATQ_SYNC"] = "on"

    def session(self):
        from flatq.pipeline import __main__ as command

        made = []
        args = command.parser().parse_args(["drain", "jobs", "--to", "x", "--master", "local[2]",
            "--conf", "spark.driver.memory=1g"])
        say(measured("session", None, lambda: made.append(command.session(args))))
        self.spark = made[0]

    def fill(self, spool, messages):
        lines = self.work / "lines"
        with lines.open("w") as file:
            for number in range(messages):
                file.write(f"{number:0100}\n")
        with lines.open("rb") as file:
            subprocess.run(["sh", ROOT / "lib/push", "-l", "jobs"], stdin=file,
                stdout=subprocess.DEVNULL, check=True,
                env={**os.environ, "FLATQ_DIR": str(spool)})
        lines.unlink()
        # else the first sync that is measured would write all this
        os.sync()

    def to_parquet(self, rows):
        rows.write.mode("overwrite").parquet(str(self.work / "out"))

    def text(self, spool):
        """Spark alone. It needs to know only where the files are, and where in a line the message
        is."""
        rows = self.spark.read.option("recursiveFileLookup", "true").text(str(spool / "jobs/queue"))
        self.to_parquet(rows.selectExpr("unbase64(split(value, '\\t')[1]) AS value"))

    def flatq(self, spool):
        rows = self.spark.read.format("flatq").options(path=str(spool), subscribe="jobs",
            base64="true").load()
        self.to_parquet(rows.selectExpr("queue", "offset", "timestamp", "unbase64(body) AS body",
            "tries"))

    def size(self, messages, rounds):
        from flatq.pipeline import drain

        spool = self.work / f"spool.{messages}"
        self.fill(spool, messages)
        found = {OURS: [], TEXT: []}
        for turn in range(rounds + 1):
            # the first pair warms both up; the two take turns at beginning
            pair = [(TEXT, self.text), (OURS, self.flatq)]
            for name, act in pair if turn % 2 else reversed(pair):
                found[name].append(measured(name, messages, functools.partial(act, spool)))
        for first, *others in (same[1:] for same in found.values()):
            for one in others:
                first["seconds"] += one["seconds"]
                first["memory"] = max(first["memory"], one["memory"])
            say(first)
        if self.spark.read.parquet(str(self.work / "out")).count() != messages:
            raise RuntimeError("not all messages came to Parquet")
        # made while it is written, and cheaply: rpad() alone took a third of the time
        rows = self.spark.range(0, messages, 1, 2).selectExpr(
            f"concat(cast(id + 100000000000 AS string), '{'x' * 88}') AS value")
        back = self.work / "back"

        def write():
            rows.write.format("flatq").options(path=str(back), topic="jobs").mode("append").save()

        say(measured("to a queue, synced", messages, write, rounds,
            lambda: shutil.rmtree(back, ignore_errors=True)))
        shutil.rmtree(back)
        to = self.work / "drained"

        def drained():
            found = drain.once(self.spark, ["jobs"], str(to), str(spool))
            if found[0] != messages:
                raise RuntimeError(f"drain: {found}")

        def again():
            if to.exists():
                shutil.rmtree(to)
                shutil.rmtree(spool)
                self.fill(spool, messages)

        if messages <= MILLION:
            # the first run warms up, as for the others; ten million messages do that by themselves
            again()
            drained()
        say(measured("drain, 250,000 a batch", messages, drained, min(rounds, 3), again))
        shutil.rmtree(to)
        shutil.rmtree(spool)


def main(words):
    sys.path.insert(0, str(ROOT / "python"))
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    measure = Measure(Path(words[0]).absolute())
    quick = words[1:2] == ["quick"]
    measure.session()
    for messages in map(int, words[1 + quick:]):
        measure.size(messages, 2 if quick else 5 if messages == MILLION else 3
            if messages < MILLION else 1)
    measure.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
