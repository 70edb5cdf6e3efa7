"""python -m flatq.pipeline: each job on a small spool, with exact results."""

import collections
import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from conftest import ROOT, chance, left, listening, wait_for
from engine import empty, push, reserve
import kills
from servers import module
from tables import fill, flatq_spark, java, numbers, table, unsynced  # noqa: F401 (fixtures)

from pyarrow.compute import quantile

from flatq.pipeline import __main__ as command
from flatq import errors as flatq_errors
from flatq.pipeline import drain, events, stats
from flatq.pipeline.place import Place

pytestmark = pytest.mark.timeout(600)


class Lasting:
    """The tests' session, for a job that would stop its own at the end."""

    def __init__(self, spark):
        self.spark = spark

    def __getattr__(self, name):
        return getattr(self.spark, name)

    def stop(self):
        pass


@pytest.fixture
def job(spark, flatq, monkeypatch, capfdbinary):
    """job("drain", ..., says="text") runs the command in this process, and returns its output, exit
    code and errors. It must say that text, in its output, or in its one line of error."""
    monkeypatch.setattr(command, "session", lambda args: Lasting(spark))
    monkeypatch.setenv("FLATQ_DIR", str(flatq.spool))
    Done = collections.namedtuple("Done", "code out err")

    def run(*words, code=0, says=""):
        capfdbinary.readouterr()
        try:
            found = command.main([os.fspath(word) for word in words])
        except SystemExit as error:
            found = error.code
        said = capfdbinary.readouterr()
        # without what Spark itself logs
        err = [line for line in said.err.decode().splitlines() if not line.startswith("spark: ")]
        done = Done(found, said.out.decode(), err)
        assert done.code == code, done
        if code and code != 70:
            assert done.out == "" and len(done.err) == 1, done
            assert done.err[0].startswith((words[0] + ": ", "pipeline")), done
        assert says in (done.err[0] if code else done.out), done
        return done

    return run


@pytest.fixture
def drains(job):
    """drains(PLACE, ...): a drain of the queue `default` to there."""
    return partial(job, "drain", "default", "--to")


@pytest.fixture
def loads(job):
    """loads(PLACE, ...): a load from there into the queue `q`."""
    return partial(job, "load", "q", "--from")


def holds(place, count):
    """Each of so many numbers is in the table, once."""
    assert sorted(table(place)["body"].to_pylist(), key=int) == numbers(count)


def settled(flatq):
    assert b"reserved 0\n" in flatq("stat", "default", check=0).out


def stray(place):
    """The path of a file that is named like a part of a table there."""
    return place / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"


def popped(flatq, queue="q"):
    """All messages of the queue."""
    return flatq("drain", "-0", queue, check=0).out.split(b"\0")[:-1]


def test_drain(job, drains, flatq, tmp_path, spark):
    """Each message is in the table once, also for other readers, and after a second run. What a
    killed try left is removed."""
    fill(flatq, 0, 1500)
    to = tmp_path / "out"
    done = drains(to, "--batch", "600")
    assert (done.out, done.err) == (f"drain: 1500 messages in 3 batches to {to}\n", [])
    empty(flatq)
    settled(flatq)
    left_over = stray(to)
    left_over.write_bytes(next(to.glob("part-*.parquet")).read_bytes())
    fill(flatq, 1500, 1700, "other")
    job("drain", "default", "other", "--to", to, says="200 messages in 1 batch")
    assert not left_over.exists()
    job("drain", "default", "other", "--to", to, says="drain: 0 messages")
    holds(to, 1700)
    rows = spark.read.parquet(str(to))
    assert rows.selectExpr("count(*)", "count(distinct queue, offset)").first() == (1700, 1700)
    # one that was moved is refused before anything is claimed; moved back, it goes on
    fill(flatq, 1700, 1800)
    to.rename(tmp_path / "moved")
    drains(tmp_path / "moved", code=65, says=f"was made as {to}")
    assert b"ready 100\n" in flatq("stat", "default", check=0).out
    (tmp_path / "moved").rename(to)
    job("drain", "default", "other", "--to", to, says="100 messages")
    push(flatq, b"urgent", "-p", "7", "-k", "one")
    drains(tmp_path / "headers", "--headers")
    [row] = table(tmp_path / "headers").to_pylist()
    assert (row["body"], row["headers"]["priority"], len(row["headers"]["key"])) == (b"urgent", 7,
        33)
    # a table of a version before has its columns
    (tmp_path / "old/_checkpoint").mkdir(parents=True)
    (tmp_path / "old/_flatq").write_text('{"job": "drain", "files": ["_checkpoint"]}')
    push(flatq, b"x")
    drains(tmp_path / "old", says="1 messages")
    assert table(tmp_path / "old").column_names == ["queue", "offset", "timestamp", "value",
        "attempts"]
    # a table without its checkpoint would lose batches
    (to / "_checkpoint").rename(tmp_path / "gone")
    push(flatq, b"x")
    drains(to, code=65, says="_checkpoint is gone")
    assert flatq("pop", check=0).out == b"x"


@pytest.mark.slow
def test_one_drain_a_table(drains, flatq, tmp_path, spark, monkeypatch):
    """Files that are not part of the table yet may be those that another drain is writing."""
    fill(flatq, 0, 300)
    to, told, failed = tmp_path / "out", threading.Event(), []

    def first():
        try:
            drain.on(spark, ["default"], str(to), str(flatq.spool), every=0.2, told=told)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    try:
        wait_for(lambda: failed or (to / "_checkpoint/commits/0").exists(), seconds=300)
        flight = stray(to)
        flight.touch()
        # the handlers of the job are for a process of its own
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", lambda *_: None)
            for more in ((), ("--continuous",), ("--consumer", "another")):
                drains(to, *more, code=75, says="another drain writes to")
        assert flight.exists() and thread.is_alive(), failed
    finally:
        told.set()
        thread.join()
    assert (failed, flight.exists()) == ([], False)
    holds(to, 300)


def tree(top):
    """Every file below a directory, with its bytes."""
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*")
        if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("words", [("drain", "default"), ("events",), ("report",)])
def test_nothing_of_anybodys_is_deleted(job, flatq, tmp_path, spark, words):
    """A table of DataFrame.write, files named like parts of one, another job's directory are
    refused before anything is claimed. What was added to its own directory stays."""
    fill(flatq, 0, 30)
    out = tmp_path / "out"

    def refused(text):
        before = tree(out)
        said = job(*words, "--to", out, code=65, says=text).err[0]
        assert len(said) < 300 and tree(out) == before, said
        assert not list(tmp_path.glob(".flatq-*"))

    written = {stray(out).name: b"PAR1", "_SUCCESS": b""}
    mark = json.dumps({"job": words[0], "files": ["report.html", "one.parquet"]}).encode()
    other = json.dumps({"job": "another", "files": list(written)}).encode()
    for others, text in (
        (written, "and no mark"),
        ({"part-00000.csv": b""}, "part-00000.csv"),
        ({".hidden": b""}, ".hidden"),
        ({**written, "_flatq": b"[1]"}, "no mark"),
        ({**written, "_flatq": other}, "was written by another"),
        ({**written, "_flatq": mark}, "_SUCCESS"),
        ({"one.parquet.mine": b"", "_flatq": mark}, "one.parquet.mine"),
    ):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for name, content in others.items():
            (out / name).write_bytes(content)
        refused(text)
    assert b"ready 30\n" in flatq("stat", "default", check=0).out
    assert not list((flatq.spool / "default").glob("claimed/drain*"))
    shutil.rmtree(out)
    out.write_text("mine")
    job(*words, "--to", out, code=65, says="is no directory")
    job(*words, "--to", "hdfs://x/out", code=65, says="not on this machine")
    assert out.read_text() == "mine"
    out.unlink()
    if words[0] == "drain":
        # a mark that was cut short is the only file
        out.mkdir()
        (out / "_flatq").write_text('{"job": "dr')
        for count in (30, 0):
            job(*words, "--to", out, says=f" {count} messages")
        spark.range(3).write.mode("append").parquet(str(out))
        refused("_SUCCESS")


@pytest.mark.slow
def test_what_comes_while_a_job_runs(flatq, tmp_path, spark):
    """Files that somebody puts into the directory meanwhile stay."""
    out, link = tmp_path / "out", tmp_path / "link"

    @contextlib.contextmanager
    def replaced(place, name):
        with Place("events", str(place)).replaced() as new:
            Path(new, name).touch()
            yield

    with replaced(out, "one"):
        pass
    with pytest.raises(flatq_errors.Invalid, match="holds 'mine'"), replaced(out, "two"):
        (out / "mine").touch()
    assert set(os.listdir(out)) == {"_flatq", "one", "mine"}
    # a job that fails leaves all as it was, and leaves a link to the directory a link
    (out / "mine").unlink()
    link.symlink_to("out")
    with pytest.raises(RuntimeError), replaced(link, "two"):
        raise RuntimeError
    with replaced(link, "three"):
        pass
    assert set(os.listdir(out)) == {"_flatq", "three"} and link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} - {"home", "spool"} == {"out", "link"}
    fill(flatq, 0, 10)
    to = tmp_path / "table"
    drain.once(spark, ["default"], str(to), str(flatq.spool))
    part = stray(to)
    for path in (part, to / "mine"):
        path.touch()
    drain.end(spark, str(to))
    assert {"mine", part.name} <= set(os.listdir(to))


#: {file: its text}
FILES = {"file": "", "bad.json": '{"a": 1}\n{"a": \n', "a.csv": "a,b\n1,2\n", "two.txt": "1\n2\n",
    **{f"{n}.json": '{"value": "x", "priority": %s}\n' % text
        for n, text in enumerate(('"high"', "-1", '"1.5"', "4294967296"))}}
#: the command, its code, and what it says; @ is the test's directory
REFUSED = [
    ("drain none --to @/out", 66, "no queue 'none'"), ("stats none", 66, "no queue 'none'"),
    ("drain default", 64, ""), ("sing", 64, ""), ("drain default --to @/x --batch none", 64, ""),
    ("drain default --to @/x --consumer ../x", 65, "option group.id"),
    ("events --to @/file/under", 74, ""), ("events --spool @/none --to @/y", 66, "no spool"),
    ("load q --from @/none.csv", 66, "nothing there"), ("load q --from @/file", 65, "--format"),
    ("load q --from @/bad.json", 65, ""), ("load ../q --from @/a.csv", 65, "option topic"),
    ("load q --from @/a.csv --value c", 65, "no column 'c'"),
    ("load small --from @/two.txt", 75, "has a bound below 2"),
    ("load shut --from @/two.txt", 69, "is closed"),
    ("load q --from @/0.json", 65, "high"), ("load q --from @/1.json", 65, "-1"),
    ("load q --from @/2.json", 65, "1.5"), ("load q --from @/3.json", 65, "4294967296"),
    ("load q --from @/two.txt --priority -1", 65, "option priority"),
    (f"load q --from @/two.txt --lease {1 << 32}", 65, "option lease"),
    ("load q --from @/two.txt --wait -1", 65, "option wait"),
    ("load q --from @/two.txt --name ../x", 65, "option jobId"),
]


@pytest.mark.new
def test_refused(job, flatq, tmp_path):
    """One clear line on stderr, and the project's exit codes."""
    job("drain", "default", "--to", tmp_path / "out", code=66, says="no spool")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    push(flatq, b"1")
    flatq("create", "-b", "1", "small", check=0)
    flatq("create", "shut", check=0)
    flatq("close", "shut", check=0)
    for words, code, text in REFUSED:
        words = words.replace("@", str(tmp_path)).split()
        assert len(job(*words, code=code, says=text).err[0]) < 300
    assert flatq("drain", check=0).out == b"1\n"


@pytest.mark.slow
def test_damaged_and_lost(drains, flatq, tmp_path):
    fill(flatq, 0, 600)
    claimed = flatq("claim", "-c", "me", "default", check=0).out.split()[2].decode()
    file = min(Path(claimed).iterdir())
    file.write_bytes(b"?" + file.read_bytes())
    words = (tmp_path / "out", "--consumer", "me")
    drains(*words, code=65, says="line 1 is damaged")
    drains(*words, "--lossy", says="599 messages")


def test_load(job, loads, flatq, tmp_path):
    """CSV, JSON, text, Parquet, and what was drained. A load that is run again does nothing."""
    for name, text in {"a.csv": 'name,size\n"x, ""y""\n",7\nz,\n',
            "b.json": '{"value": "é", "priority": 9}\n{"value": "urgent", "priority": 1}\n',
            "c.txt": "one\n\ntwo\n", "d.json": '{"value": 2, "body": 1}\n'}.items():
        (tmp_path / name).write_text(text)
    assert loads(tmp_path / "a.csv").out == "load: 2 messages to queue q\n"
    assert [json.loads(body) for body in popped(flatq)] == [
        {"name": 'x, "y"\n', "size": "7"}, {"name": "z", "size": None}]
    loads(tmp_path / "a.csv", says="done before")
    empty(flatq, "q")
    loads(tmp_path / "a.csv", "--name", "again", "--value", "name", says="2 messages")
    assert sorted(popped(flatq)) == [b'x, "y"\n', b"z"]
    loads(tmp_path / "b.json")
    assert popped(flatq) == [b"urgent", "é".encode()]
    loads(tmp_path / "d.json", code=65, says="there are columns `body` and `value`")
    loads(tmp_path / "d.json", "--value", "body")
    assert popped(flatq) == [b"1"]
    loads(tmp_path / "c.txt")
    assert sorted(popped(flatq)) == [b"", b"one", b"two"]
    bodies = [b"", b"\0\n", bytes(range(256)), *numbers(500)]
    for body in bodies[:3]:
        push(flatq, body)
    fill(flatq, 0, 500)
    job("drain", "default", "--to", tmp_path / "out")
    for said in ("503 messages", "done before"):
        job("load", "back", "--from", tmp_path / "out", says=said)
    job("drain", "back", "--to", tmp_path / "out2")
    assert sorted(table(tmp_path / "out2")["body"].to_pylist()) == sorted(bodies)
    assert flatq("doctor", check=0).out == b""


@pytest.mark.slow
def test_a_load_reads_what_it_names(loads, flatq, tmp_path):
    """All files below, also under names that Spark takes for patterns, or refuses them. Numbers of
    a single column stay as they are written."""
    import pyarrow as pa
    from pyarrow import parquet

    def reads(name, files, expected, *more, **said):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        loads(tmp_path / name, *more, **said)
        assert sorted(flatq("drain", "q").out.decode().splitlines()) == expected

    reads("in", {"in/top.txt": "top\n", "in/2026/deep.txt": "deep\n"}, ["deep", "top"])
    reads("in", {}, ["deep"], "--option", "pathGlobFilter=d*", "--name", "some")
    reads("x*", {"x1.txt": "1\n", "x2/s/b.txt": "2\n"}, ["1", "2"])
    reads("d[1]", {"d[1]/a.txt": "in d[1]\n", "d1/a.txt": "in d1\n"}, ["in d[1]"])
    reads("what?.txt", {"what?.txt": "x\n", "whatA.txt": "A\n"}, ["x"])
    reads("k", {"k/_n=1/a.csv": "a\nx\n", "k/_n=2/a.csv": "a\ny\n"},
        ['{"a":"x","_n":1}', '{"a":"y","_n":2}'])
    reads("mix", {"mix/top.csv": "a\nx\n", "mix/n=1/a.csv": "a\nx\n"}, [], code=65,
        says="load them apart")
    reads("run=5/in*.txt", {"run=5/in1.txt": "1\n", "run=5/_SUCCESS": ""}, ["1"])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/in").symlink_to(tmp_path / "in")
    reads("linked", {"linked/a.txt": "a\n"}, ["a", "deep", "top"])
    for name, files in (("_data.txt", {"_data.txt": "x\n"}),
            ("copy", {"copy/a.txt": "x\n", "copy/b.txt._COPYING_": "y\n"})):
        reads(name, files, [], "--format", "text", code=65)
    reads("p.json", {"p.json": '{"value": 1.10, "priority": 5}\n'}, ["1.10"])
    reads("n.json", {
        "n.json": '{"value": 12345678901234567.891}\n{"value": 1}\n{"value": "1.10"}\n'},
        ["1", "1.10", "12345678901234567.891"])
    (tmp_path / "pq").mkdir()
    parquet.write_table(pa.table({"a": [1], "z": ["k"]}), tmp_path / "pq/a.parquet")
    parquet.write_table(pa.table({"a": [2], "z": ["l"], "y": [3]}), tmp_path / "pq/b.parquet")
    reads("pq", {}, ['{"a":1,"z":"k","y":null}', '{"a":2,"z":"l","y":3}'])


@pytest.mark.slow
def test_a_power_cut_behind_the_commit_of_a_drain(drains, flatq, tmp_path, monkeypatch):
    """Spark syncs nothing: the commit may be there, and not the rows. They may not be settled
    then."""
    out = tmp_path / "out"
    fill(flatq, 0, 100)
    with monkeypatch.context() as patch:
        patch.setattr(drain, "end", lambda *words: 1 / 0)
        drains(out, code=70)
    part = max(out.glob("part-*"), key=lambda path: path.stat().st_size)
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    fill(flatq, 100, 110)
    drains(out, code=74, says="not there in full")
    part.write_bytes(whole)
    drains(out)
    holds(out, 110)
    settled(flatq)


@pytest.mark.slow
def test_load_of_what_is_not_utf_8(loads, flatq, tmp_path):
    """CSV and JSON are read if the encoding is named. The lines of a text are bytes."""
    csv, zipped, latin, text = (tmp_path / name for name in ("a.csv", "b.json.gz", "c.json",
        "d.txt"))
    csv.write_bytes("value,n\nok,1\n\"é\r\n\",2\nÜbung €,3\n".encode("cp1252"))
    zipped.write_bytes(gzip.compress(b'{"value": "1"}\n' * 100000 + b'{"value": "\xe9"}\n'))
    latin.write_bytes('{"value": "Übung"}\n'.encode("latin1"))
    text.write_bytes(b"one\rstill\r\r\ncaf\xe9\r\n\r\nend")
    loads(csv, code=65, says="a.csv: not UTF-8: say --option encoding=")
    loads(zipped, code=65, says="b.json.gz: not UTF-8")
    loads(text, "--encoding", "utf-8", code=64)
    loads(csv, "--encoding", "none", code=65, says="none")
    for path, encoding, expected in (
            (csv, ["--encoding", "windows-1252"], [b"ok", "é\r\n".encode(), "Übung €".encode()]),
            (latin, ["--option", "encoding=ISO-8859-1"], ["Übung".encode()]),
            (text, [], [b"one\rstill\r", b"caf\xe9", b"", b"end"])):
        loads(path, *encoding)
        assert popped(flatq) == expected


def test_a_load_that_has_ended_needs_no_java(loads, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("1\n")
    loads(tmp_path / "a.txt", says="1 messages")
    monkeypatch.setattr(command, "session", lambda args: pytest.fail("Java was started"))
    said = "load: done before; say --name, another one, to load it once more\n"
    assert loads(tmp_path / "a.txt").out == said


@pytest.mark.slow
def test_load_as_push_would(job, loads, flatq, tmp_path):
    """Priority and lease are those of the messages. --wait waits for room."""
    (tmp_path / "a.txt").write_text("1\n")
    loads(tmp_path / "a.txt", "--priority", "7", "--lease", "33")
    [file] = Path(flatq("claim", "-c", "me", "q", check=0).out.split()[2].decode()).iterdir()
    slip = file.read_bytes().split(b".")
    assert (int(slip[0]), slip[4]) == (7, b"33")
    flatq("create", "-b", "1", "small", check=0)
    push(flatq, b"0", "small")
    words = ("load", "small", "--from", tmp_path / "a.txt")
    job(*words, code=75, says="is full")

    def pop_once_staged():
        wait_for(lambda: list(flatq.spool.glob(".spark/job-*/stage.*")), seconds=300)
        return flatq("pop", "small", check=0).out

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pop_once_staged)
        job(*words, "--wait", "300", says="1 messages")
        assert (first.result(), popped(flatq, "small")) == (b"0", [b"1"])


def busy(flatq):
    """Pushes, pops, reserves, releases, bulk, dead letters: everything that is logged."""
    flatq("create", "-m", "2", "jobs", check=0)
    for n in range(12):
        push(flatq, b"%d" % n, "jobs")
    flatq("work", "-q", "jobs", "-w", "0", "-d", "0", "--", "sh", "-c",
        "read -r n; [ $((n % 4)) -ne 0 ]", check=0)
    flatq("kick", "-n", "1", "jobs", check=0)
    fill(flatq, 0, 700, "a/b")
    flatq("pop", "-l", "-n", "100", "a/b", check=0)
    for _ in range(3):
        flatq("pop", "a/b", check=0)
    flatq("release", reserve(flatq, "a/b").receipt, check=0)
    flatq("bury", "-r", "no-good", reserve(flatq, "a/b").receipt, check=0)
    with open(flatq.spool / "a,b/log", "ab") as log:
        log.write(b"17952565\0\0\0torn\n1795256546.15 push 1 0")


#: what `busy` does: {queue: {verb: how many messages}}
DID = {"a/b": {"push": 700, "pop": 103, "reserve": 2, "release": 1, "bury": 1},
    "jobs": {"push": 12, "delete": 9, "release": 3, "bury": 3, "kick": 1}}


def event(words):
    """What the table has of a line of the log."""
    time, verb, *numbers, reason = words
    id, tries, size, milliseconds = (None if one == "-" else int(one) for one in numbers)
    if reason.startswith("bulk-"):
        return time, verb, id, tries, size, None, None, int(reason[5:])
    return time, verb, id, tries, size, milliseconds, None if reason == "-" else reason, 1


@pytest.mark.slow
def test_events_and_stats(job, flatq, tmp_path, spark):
    """The numbers are those of the logs, of the table, and of rotated logs."""
    busy(flatq)
    (flatq.spool / "jobs/log").rename(flatq.spool / "jobs/log.179500000000")
    to = tmp_path / "events"
    # a second run replaces the first
    for _ in range(2):
        job("events", "--to", to, says="events: 37 events")
    job("events", "none", "--to", tmp_path / "x", code=66)
    assert {path.name for path in tmp_path.iterdir()} == {"home", "spool", "events"}
    rows = spark.read.parquet(str(to))
    assert rows.columns == list(events.COLUMNS)
    lines = [line.split() for line in (flatq.spool / "a,b/log").read_text().splitlines()[:9]]
    found = [(f"{row.time.timestamp():.2f}", row.verb, row.id, row.tries, row.size,
        row.milliseconds, row.reason, row["count"])
        for row in rows.where("queue = 'a/b'").collect()]
    assert sorted(found, key=str) == sorted(map(event, lines), key=str)
    got = stats.collect(rows)
    assert {queue.name: queue.verbs for queue in got.queues} == DID
    assert [(queue.name, queue.pushed, queue.done) for queue in got.queues] == [("a/b", 700, 103),
        ("jobs", 12, 9)]
    # four were buried in turns: 3 in jobs, of which 1 was kicked, and 1 in a/b
    assert got.dead == {("jobs", "exit-1"): (3, 2), ("a/b", "no-good"): (1, 1)}
    assert got.series["jobs"][-1][2] == 12 - 9 - 3 + 1
    assert got.series["a/b"][-1][2] == 700 - 103 - 1
    assert [sum(points) for points in zip(*got.series["a/b"])][:2] == [700, 103]
    assert got.tries == {("jobs", 2): 3, ("a/b", 2): 1}
    shares = quantile([int(line[5]) for line in lines[2:5]], list(stats.SHARES)).to_pylist()
    assert got.latency["a/b", "pop"] == (3, pytest.approx(shares))
    said = job("stats").out
    assert said == job("stats", "--from", to).out
    assert re.search(r"^a/b +700 +103 ", said, re.M), said
    assert re.search(r"^jobs +exit-1 +3 +2$", said, re.M), said
    assert "a/b" not in job("stats", "jobs").out


@pytest.mark.slow
def test_report(job, flatq, tmp_path, spark):
    """One page that needs no other file, with a picture for each plot."""
    module("matplotlib")

    def report(name, *words):
        path = Path(job("report", "--to", tmp_path / name, *words).out.strip())
        assert path == tmp_path / name / "report.html"
        return path.read_text(encoding="utf-8")

    job("report", "--to", tmp_path / "none", code=66, says="has a log")
    push(flatq, b"one", "single")
    said = job("stats", says="Over time, by 1 s, in ").out
    assert re.search(r"^single +1 +0 +1 +1 +0 ", said, re.M), "one event has no rate"
    flatq("drop", "-f", "single", check=0)
    busy(flatq)
    page = report("report", "--title", "a <b>")
    assert page.count("<svg ") == 5 and "<h1>a &lt;b&gt;</h1>" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#)(?!http://www\.w3\.org)', page)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert used <= set(re.findall(r'\bid="([^"]+)"', page))


def environment(flatq):
    """The environment of a job in a process of its own."""
    return {**os.environ, "FLATQ_DIR": str(flatq.spool), "FLATQ_SYNC": "off",
        "PYTHONPATH": str(ROOT / "python")}


def started(flatq, *words, **more):
    command = [sys.executable, "-m", "flatq.pipeline", words[0], "--master", "local[2]", "--conf",
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1", *words[1:]]
    process = subprocess.Popen(
        [os.fspath(word) for word in command], env=environment(flatq), cwd=flatq.home,
        start_new_session=True, stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )
    flatq.started.append(process)
    return process


KILLED = {"drain": ("offsets", "data", "metadata", "commits"), "load": ("stage", "plan", "entered"),
    "copy": ("offsets", "stage", "plan", "entered", "done", "commits")}


@pytest.mark.slow
@pytest.mark.timeout(4 * kills.PATIENCE)
@pytest.mark.parametrize("job", KILLED)
def test_killed_drivers(java, tmp_path, job):
    """Ten in turn, where they have just written something, which the seed chooses."""
    points = chance(f"killed drivers {job}").choices(KILLED[job], k=10)
    print(points)
    kills.run(job, points, tmp_path)


@pytest.mark.slow
def test_continuous(java, flatq, tmp_path):
    """Killed in the middle, started again, told to stop: each message is there once, and all that
    is written is settled."""
    fill(flatq, 0, 1000)
    to = tmp_path / "out"

    def begin():
        return started(flatq, "drain", "default", "--to", to, "--continuous", "--every", "0.2",
            "--batch", "200")

    def commits(batch):
        commit = to / f"_checkpoint/commits/{batch}"
        wait_for(lambda: commit.exists() or process.poll() is not None, seconds=300)

    process = begin()
    wait_for(lambda: len(list(to.glob("part-*"))) >= 2, seconds=300)
    flatq.end(process)
    process = begin()
    commits(4)
    assert process.poll() is None, process.stderr.read().decode()[-2000:]
    fill(flatq, 1000, 1100)
    commits(5)
    told(process)
    holds(to, 1100)
    settled(flatq)


def told(process):
    """Tell the job to stop; it ends with 0 and says nothing."""
    # `timeout` and systemd signal Spark's processes, too
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.slow
def test_told_before_it_has_begun(java, flatq, tmp_path):
    """The signal comes while Java starts. The job ends at once with 0, and has claimed nothing."""
    fill(flatq, 0, 100)
    process = started(flatq, "drain", "default", "--to", tmp_path / "out", "--continuous")

    def begun():
        for pid in left(process):
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "java":
                    return True
        return process.poll() is not None

    wait_for(begun, "Java", seconds=300)
    told(process)
    assert flatq("drain", check=0).out.split() == numbers(100)


#: tasks begin once both executors are there
CLUSTER = (
    "spark.executor.memory=512m", "spark.cores.max=2", "spark.executor.cores=1",
    "spark.driver.host=127.0.0.1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={place}",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
    "spark.task.maxFailures=40", "spark.sql.files.maxPartitionBytes=4m",  # a task a file
)


def executor_of(work):
    """The process that runs tasks for the worker with that directory, or None."""
    for process in os.scandir("/proc"):
        try:
            if process.name.isdigit() and os.readlink(f"{process.path}/cwd").startswith(
                    f"{work}/app-"):
                with open(f"{process.path}/cmdline", "rb") as line:
                    if b"CoarseGrainedExecutorBackend" in line.read():
                        return int(process.name)
        except OSError:
            continue


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_cluster(spark, flatq, tmp_path, free_port):
    """A master and two workers. Executors are killed at ten moments that the seed chooses; half-way
    through the drain, one worker with all its processes."""
    import pyspark

    rows = spark.range(40000).selectExpr("cast(id AS string) AS value").repartition(60)
    rows.write.parquet(str(tmp_path / "rows"))
    run = os.path.join(os.path.dirname(pyspark.__file__), "bin/spark-class")
    env = {**environment(flatq), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"), "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": "-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1 "
        "-Dspark.deploy.maxExecutorRetries=-1 "
        f"-Djava.io.tmpdir={tmp_path}", "SPARK_DAEMON_MEMORY": "256m"}
    url = f"spark://127.0.0.1:{free_port}"

    def start(*words, **more):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(words, env=env, cwd=tmp_path, start_new_session=True,
            **{**quiet, **more})
        flatq.started.append(process)
        return process

    start(run, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port",
        str(free_port), "--webui-port", "0")
    wait_for(lambda: listening(free_port), "the master", seconds=300)
    workers = [start(run, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory",
        "600M", "--webui-port", "0", "--host", "127.0.0.1",
                     "--work-dir", str(tmp_path / name), url) for name in ("one", "two")]

    def job(*words):
        command = [sys.executable, "-m", "flatq.pipeline", *words, "--master", url,
            *(word for conf in CLUSTER for word in ("--conf", conf.format(place=tmp_path)))]
        return start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def seen(driver, what):
        assert driver.poll() is None, driver.stderr.read().decode()[-2000:]
        return what()

    driver = job("load", "default", "--from", str(tmp_path / "rows"))
    wait_for(lambda: seen(driver, lambda: list(flatq.spool.glob(".spark/job-*/stage.*"))),
        "a stage", seconds=300)
    moments, killed = chance("killed executors"), 0
    while killed < 10:
        work = tmp_path / moments.choice(("one", "two"))
        victim = wait_for(lambda: seen(driver, lambda: executor_of(work)), "an executor",
            seconds=300)
        time.sleep(moments.uniform(0, 1))
        with contextlib.suppress(ProcessLookupError):  # it was ending
            os.kill(victim, signal.SIGKILL)
            killed += 1
    out, err = driver.communicate(timeout=300)
    assert out == b"load: 40000 messages to queue default\n", (out, err[-2000:])
    driver = job("drain", "default", "--to", str(tmp_path / "out"), "--batch", "10000")
    wait_for(lambda: seen(driver, (tmp_path / "out/_checkpoint/commits/0").exists), "a batch",
        seconds=300)
    assert executor_of(tmp_path / "two") not in (None, victim)
    flatq.end(workers[1])
    out, err = driver.communicate(timeout=300)
    assert out == b"drain: 40000 messages in 4 batches to %b\n" % os.fsencode(tmp_path / "out"), (
        out, err[-2000:])
    assert sorted(table(tmp_path / "out")["body"].to_pylist(), key=int) == numbers(40000)
    empty(flatq)
    assert not list(flatq.spool.glob(".spark/job-*/stage.*")) and flatq("doctor",
        check=0).out == b""
