"""python -m flatq.pipeline: each job on a small spool, with exact results. Most tests share one
session; a real cluster has its own."""

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
import threading
import uuid

import pytest

from conftest import ROOT, chance, left, listening, wait_for
from engine import empty, push, reserve
import kills
from servers import module
from tables import fill, flatq_spark, java, numbers, table, unsynced  # noqa: F401 (fixtures)

from flatq.pipeline import __main__ as command
from flatq import errors as flatq_errors
from flatq.pipeline import drain

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
    """job("drain", ...) runs the command in this process, and returns its output, exit code and
    errors."""
    monkeypatch.setattr(command, "session", lambda args: Lasting(spark))
    monkeypatch.setenv("FLATQ_DIR", str(flatq.spool))
    Done = collections.namedtuple("Done", "code out err")

    def run(*words, code=0):
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
            assert (done.out, len(done.err)) == ("",
                1) and done.err[0].startswith((words[0] + ": ", "pipeline")), done
        return done

    return run


def test_drain(job, flatq, tmp_path, spark):
    """Each message is in the table once, for Spark and for other readers of the files; also after a
    second run with more messages. What a killed try left is removed."""
    fill(flatq, 0, 1500)
    to = tmp_path / "out"
    done = job("drain", "default", "--to", to, "--batch", "600")
    assert done.out == f"drain: 1500 messages in 3 batches to {to}\n" and done.err == []
    empty(flatq)
    assert b"reserved 0\n" in flatq("stat", "default", check=0).out
    stray = to / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    stray.write_bytes(next(to.glob("part-*.parquet")).read_bytes())
    fill(flatq, 1500, 1700, "other")
    assert "200 messages in 1 batch" in job("drain", "default", "other", "--to", to).out
    assert not stray.exists() and job("drain", "default", "other", "--to",
        to).out.startswith("drain: 0 messages")
    rows = table(to)
    assert sorted(rows["value"].to_pylist(), key=int) == numbers(1700)
    assert spark.read.parquet(str(to)).selectExpr("count(*)",
        "count(distinct queue, offset)").first() == (1700, 1700)
    # headers only on request, in a table of their own
    push(flatq, b"urgent", "-p", "7", "-k", "one")
    job("drain", "default", "--to", tmp_path / "headers", "--headers")
    [row] = table(tmp_path / "headers").to_pylist()
    assert (row["value"], row["headers"]["priority"], len(row["headers"]["key"])) == (b"urgent", 7,
        33)
    # a table without its checkpoint would lose batches
    (to / "_checkpoint").rename(tmp_path / "gone")
    push(flatq, b"x")
    assert "_checkpoint is gone" in job("drain", "default", "--to", to, code=65).err[0]
    assert flatq("pop", check=0).out == b"x"


@pytest.mark.slow
def test_one_drain_a_table(job, flatq, tmp_path, spark, monkeypatch):
    """A second drain to the same table says so, and changes nothing: files that are not part of the
    table yet may be those that the first one is writing."""
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
        flight = to / f"part-99999-{uuid.uuid4()}-c000.snappy.parquet"
        flight.touch()
        # the handlers of the job are for a process of its own
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", lambda *_: None)
            for more in ((), ("--continuous",), ("--consumer", "another")):
                assert "another drain writes to" in job("drain", "default", "--to", to, *more,
                    code=75).err[0]
        assert flight.exists() and thread.is_alive(), failed
    finally:
        told.set()
        thread.join()
    assert (failed, flight.exists()) == ([], False)
    assert sorted(table(to)["value"].to_pylist(), key=int) == numbers(300)
    # nor does a drain that fails remove anything: the next drain does
    flight.touch()
    (flatq.spool / "default").rename(flatq.spool / "gone")
    with pytest.raises(Exception, match="no queue 'default'"):
        drain.on(spark, ["default"], str(to), str(flatq.spool), told=threading.Event())
    assert flight.exists()
    (flatq.spool / "gone").rename(flatq.spool / "default")
    job("drain", "default", "--to", to)
    assert not flight.exists()
    # it was told to stop before it committed the first batch
    (tmp_path / "new/_spark_metadata").mkdir(parents=True)
    (tmp_path / "new/_flatq").write_text(json.dumps({"job": "drain", "files": ["_spark_metadata"]}))
    (tmp_path / f"new/part-00000-{uuid.uuid4()}-c000.snappy.parquet").touch()
    drain.end(spark, str(tmp_path / "new"))
    assert set(os.listdir(tmp_path / "new")) == {"_flatq", "_spark_metadata"}


def tree(top):
    """Every file below a directory, with its bytes."""
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*")
        if path.is_file()}


WRITERS = (("drain", "default"), ("events",), ("report",))


@pytest.mark.slow
@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
@pytest.mark.parametrize("far", (False, True), ids=("here", "far"))
def test_nothing_of_anybodys_is_deleted(job, flatq, tmp_path, spark, words, far):
    """A table of DataFrame.write, files named like parts of one, another job's directory: the job
    refuses each before it claims anything, here and on a file system that only Hadoop knows. Nor
    does it remove files that were added to its own directory."""
    authority = f"guard-{words[0]}"
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{authority}.link./top",
        f"file://{tmp_path}")
    fill(flatq, 0, 30)
    to = f"viewfs://{authority}/top/out" if far else tmp_path / "out"
    out = tmp_path / "out"

    def refused(text):
        before = tree(out)
        said = job(*words, "--to", to, code=65).err[0]
        assert text in said and len(said) < 300 and tree(out) == before, said
        assert not list(tmp_path.glob(".flatq-*"))

    if words[0] == "report" and far:
        job(*words, "--to", to, code=65)
        return
    written = {f"part-00000-{uuid.uuid4()}-c000.snappy.parquet": b"PAR1", "_SUCCESS": b""}
    mark = json.dumps({"job": words[0], "files": ["report.html", "one.parquet"]}).encode()
    for others, text in (
        (written, "and no mark"), ({"part-00000.csv": b""}, "part-00000.csv"),
        ({"part-of-my-thesis.txt": b""}, "thesis"),
        ({"report.html": b"mine"}, "no mark"), ({".hidden": b""}, ".hidden"),
        ({**written, "_flatq": b"[1]"}, "no mark"),
        ({**written, "_flatq": json.dumps({"job": "another", "files": list(written)}).encode()},
        "was written by another"),
        ({"one.parquet": b"", "_flatq": mark, "part-00000.csv": b""}, "part-00000.csv"),
        ({**written, "_flatq": mark}, "_SUCCESS"), ({"one.parquet.mine": b"", "_flatq": mark},
        "one.parquet.mine"),
    ):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for name, text_ in others.items():
            (out / name).write_bytes(text_)
        refused(text)
    assert b"ready 30\n" in flatq("stat", "default",
        check=0).out and not list((flatq.spool / "default").glob("claimed/drain*"))
    shutil.rmtree(out)
    out.write_text("mine")
    assert "is no directory" in job(*words, "--to", to,
        code=65).err[0] and out.read_text() == "mine"
    out.unlink()
    if words[0] == "drain":
        # a mark that was cut short is the only file
        out.mkdir()
        (out / "_flatq").write_text('{"job": "dr')
        for count in (30, 0):
            assert f" {count} messages" in job(*words, "--to", to).out
        spark.range(3).write.mode("append").parquet(str(out))
        refused("_SUCCESS")


@pytest.mark.slow
def test_what_comes_while_a_job_runs(flatq, tmp_path, spark):
    """Files that somebody puts into the directory meanwhile stay. The job does not replace a table
    that has such files, and a drain removes nothing."""
    from flatq.pipeline.place import Place

    own = Place("events", str(tmp_path / "out"))
    with own.replaced() as new:
        os.mkdir(new)
        open(f"{new}/one", "w").close()
    with pytest.raises(flatq_errors.Invalid, match="holds 'mine'"), own.replaced() as new:
        os.mkdir(new)
        open(f"{new}/two", "w").close()
        (tmp_path / "out/mine").touch()
    assert set(os.listdir(tmp_path / "out")) == {"_flatq", "one", "mine"}
    # a job that fails leaves all as it was, and leaves a link to the directory a link
    (tmp_path / "out/mine").unlink()
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(RuntimeError), Place("events", str(tmp_path / "link")).replaced() as new:
        raise RuntimeError
    with Place("events", str(tmp_path / "link")).replaced() as new:
        os.mkdir(new)
        open(f"{new}/three", "w").close()
    assert set(os.listdir(tmp_path / "out")) == {"_flatq",
        "three"} and (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} - {"home", "spool"} == {"out", "link"}
    fill(flatq, 0, 10)
    to = tmp_path / "table"
    drain.once(spark, ["default"], str(to), str(flatq.spool))
    stray = to / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    for name in (stray, to / "part-of-my-thesis.txt"):
        name.write_text("mine")
    drain.end(spark, str(to))
    assert stray.exists() and (to / "part-of-my-thesis.txt").exists()
    (to / "part-of-my-thesis.txt").unlink()
    drain.end(spark, str(to))
    assert not stray.exists()


@pytest.mark.slow
def test_a_table_that_was_moved(job, flatq, tmp_path):
    """drain refuses a table that was moved, before it claims anything. Moved back, the table goes
    on where it was."""
    fill(flatq, 0, 10)
    job("drain", "default", "--to", tmp_path / "out")
    fill(flatq, 10, 20)
    (tmp_path / "out").rename(tmp_path / "moved")
    assert f"was made as {tmp_path / 'out'}" in job("drain", "default", "--to", tmp_path / "moved",
        code=65).err[0]
    assert b"ready 10\n" in flatq("stat", "default", check=0).out
    (tmp_path / "moved").rename(tmp_path / "out")
    assert "10 messages" in job("drain", "default", "--to", tmp_path / "out").out
    assert sorted(table(tmp_path / "out")["value"].to_pylist(), key=int) == numbers(20)


@pytest.mark.slow
def test_a_table_elsewhere(job, flatq, tmp_path, spark):
    """On a file system that only Hadoop knows, as hdfs:// is: drained exactly once, settled, and
    loaded by a name."""
    far = tmp_path / "far"
    far.mkdir()
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.elsewhere.link./top",
        f"file://{far}")
    fill(flatq, 0, 300)
    to = "viewfs://elsewhere/top/out"
    assert "300 messages" in job("drain", "default", "--to",
        to).out and "0 messages" in job("drain", "default", "--to", to).out
    assert sorted(table(far / "out")["value"].to_pylist(), key=int) == numbers(300)
    assert b"reserved 0\n" in flatq("stat", "default", check=0).out
    assert "say --name" in job("load", "back", "--from", to, "--format", "parquet", code=65).err[0]
    words = ("load", "back", "--from", to, "--format", "parquet", "--name", "far")
    assert "300 messages" in job(*words).out and "done before" in job(*words).out
    assert sorted(flatq("drain", "back", check=0).out.split(), key=int) == numbers(300)
    assert re.match(r"events: \d+ events", job("events", "--to",
        "viewfs://elsewhere/top/events").out)
    assert list((far / "events").glob("part-*.parquet"))
    # Spark would take new batches for old ones and skip them, and the drain would settle them
    shutil.rmtree(far / "out/_checkpoint")
    assert "_checkpoint is gone" in job("drain", "default", "--to", to, code=65).err[0]


@pytest.mark.new
def test_refused(job, flatq, tmp_path):
    """One clear line on stderr, and the project's exit codes."""
    assert "no spool" in job("drain", "default", "--to", tmp_path / "out", code=66).err[0]
    push(flatq, b"1")
    assert "no queue 'none'" in job("drain", "none", "--to", tmp_path / "out", code=66).err[0]
    assert "no queue 'none'" in job("stats", "none", code=66).err[0]
    job("drain", "default", code=64)
    job("sing", code=64)
    job("drain", "default", "--to", tmp_path / "x", "--batch", "none", code=64)
    assert "bad name" in job("drain", "default", "--to", tmp_path / "x", "--consumer", "../x",
        code=65).err[0]
    (tmp_path / "file").write_text("")
    job("events", "--to", tmp_path / "file/under", code=74)
    assert "nothing there" in job("load", "q", "--from", tmp_path / "none.csv", code=66).err[0]
    assert "--format" in job("load", "q", "--from", tmp_path / "file", code=65).err[0]
    (tmp_path / "bad.json").write_text('{"a": 1}\n{"a": \n')
    job("load", "q", "--from", tmp_path / "bad.json", code=65)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    assert "no column 'c'" in job("load", "q", "--from", tmp_path / "a.csv", "--value", "c",
        code=65).err[0]
    assert "bad queue name" in job("load", "../q", "--from", tmp_path / "a.csv", code=65).err[0]
    flatq("create", "-b", "1", "small", check=0)
    (tmp_path / "two.txt").write_text("1\n2\n")
    assert "has a bound below 2" in job("load", "small", "--from", tmp_path / "two.txt",
        code=75).err[0]
    flatq("close", "small", check=0)
    assert "is closed" in job("load", "small", "--from", tmp_path / "two.txt", code=69).err[0]
    assert "no spool" in job("events", "--spool", tmp_path / "none", "--to", tmp_path / "y",
        code=66).err[0]
    assert flatq("drain", check=0).out == b"1\n"


@pytest.mark.slow
def test_damaged_and_lost(job, flatq, tmp_path):
    fill(flatq, 0, 600)
    claimed = flatq("claim", "-c", "me", "default", check=0).out.split()[2].decode()
    file = next(path for path in sorted(os.scandir(claimed), key=lambda path: path.name))
    lines = open(file.path, "rb").read().splitlines(True)
    with open(file.path, "wb") as out:
        out.write(b"".join([*lines[:4], b"?" + lines[4], *lines[5:]]))
    assert "line 5 is damaged" in job("drain", "default", "--to", tmp_path / "out", "--consumer",
        "me", code=65).err[0]
    assert "599 messages" in job("drain", "default", "--to", tmp_path / "out", "--consumer", "me",
        "--lossy").out
    assert len(set(table(tmp_path / "out")["value"].to_pylist())) == 599


def test_load(job, flatq, tmp_path):
    """CSV, JSON, text and Parquet are loaded. A load that is run again does nothing. A drained
    table can be loaded."""
    (tmp_path / "a.csv").write_text('name,size\n"x, ""y""\n",7\nz,\n')
    assert job("load", "q", "--from", tmp_path / "a.csv").out == "load: 2 messages to queue q\n"
    assert [json.loads(line) for line in flatq("drain", "-0", "q",
        check=0).out.split(b"\0")[:-1]] == [
        {"name": 'x, "y"\n', "size": "7"}, {"name": "z", "size": None}]
    assert "done before" in job("load", "q", "--from", tmp_path / "a.csv").out
    empty(flatq, "q")
    assert "2 messages" in job("load", "q", "--from", tmp_path / "a.csv", "--name", "again",
        "--value", "name").out
    assert sorted(flatq("drain", "-0", "q", check=0).out.split(b"\0")[:-1]) == [b'x, "y"\n', b"z"]
    (tmp_path / "b.json").write_text(
        '{"value": "é", "priority": 9}\n{"value": "urgent", "priority": 1}\n')
    job("load", "q", "--from", tmp_path / "b.json")
    assert flatq("drain", "q", check=0).out == "urgent\né\n".encode()
    (tmp_path / "c.txt").write_text("one\n\ntwo\n")
    job("load", "q", "--from", tmp_path / "c.txt")
    assert sorted(flatq("drain", "q", check=0).out.splitlines()) == [b"", b"one", b"two"]
    bodies = [b"", b"\0\n", bytes(range(256)), *numbers(500)]
    for body in bodies[:3]:
        push(flatq, body)
    fill(flatq, 0, 500)
    job("drain", "default", "--to", tmp_path / "out")
    assert "503 messages" in job("load", "back", "--from", tmp_path / "out").out
    assert "done before" in job("load", "back", "--from", tmp_path / "out").out
    job("drain", "back", "--to", tmp_path / "out2")
    assert sorted(table(tmp_path / "out2")["value"].to_pylist()) == sorted(bodies)
    assert flatq("doctor", check=0).out == b""


@pytest.mark.slow
def test_a_load_reads_what_it_names(job, flatq, tmp_path):
    """All files below, also under names that Spark takes for patterns; a file that Spark would
    leave out is refused. Numbers of a single column stay as they are written."""
    import pyarrow as pa
    from pyarrow import parquet

    def loads(name, files, expected, *more, code=0):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        said = job("load", "q", "--from", tmp_path / name, *more, code=code)
        assert sorted(flatq("drain", "q", check=66 if code else 0).out.decode().splitlines(
            )) == expected
        return said.err

    loads("in", {"in/top.txt": "top\n", "in/2026/deep.txt": "deep\n"}, ["deep", "top"])
    loads("in", {}, ["deep"], "--option", "pathGlobFilter=d*", "--name", "some")
    loads("x*", {"x1.txt": "1\n", "x2/s/b.txt": "2\n"}, ["1", "2"])
    loads("d[1]", {"d[1]/a.txt": "in d[1]\n", "d1/a.txt": "in d1\n"}, ["in d[1]"])
    loads("what?.txt", {"what?.txt": "x\n", "whatA.txt": "A\n"}, ["x"])
    loads("k", {"k/n=1/a.csv": "a\nx\n", "k/n=2/a.csv": "a\ny\n"},
        ['{"a":"x","n":1}', '{"a":"y","n":2}'])
    loads("v", {"v/_p=1/a.csv": "a\nx\n"}, ['{"a":"x","_p":1}'])
    assert "load them apart" in loads("mix", {"mix/top.csv": "a\nx\n", "mix/n=1/a.csv": "a\nx\n"},
        [], code=65)[0]
    loads("run=5/in*.txt", {"run=5/in1.txt": "1\n", "run=5/_SUCCESS": ""}, ["1"])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/in").symlink_to(tmp_path / "in")
    loads("linked", {"linked/a.txt": "a\n"}, ["a", "deep", "top"])
    for name, files in (("_data.txt", {"_data.txt": "x\n"}),
            ("copy", {"copy/a.txt": "x\n", "copy/b.txt._COPYING_": "y\n"})):
        loads(name, files, [], "--format", "text", code=65)
    loads("p.json", {"p.json": '{"value": 1.10, "priority": 5}\n'}, ["1.10"])
    loads("n.json", {
        "n.json": '{"value": 12345678901234567.891}\n{"value": 1}\n{"value": "1.10"}\n'},
        ["1", "1.10", "12345678901234567.891"])
    (tmp_path / "pq").mkdir()
    parquet.write_table(pa.table({"a": [1], "z": ["k"]}), tmp_path / "pq/a.parquet")
    parquet.write_table(pa.table({"a": [2], "z": ["l"], "y": [3]}), tmp_path / "pq/b.parquet")
    loads("pq", {}, ['{"a":1,"z":"k","y":null}', '{"a":2,"z":"l","y":3}'])


@pytest.mark.slow
def test_a_drain_that_was_killed_goes_on_under_another_path(job, flatq, tmp_path, monkeypatch):
    """It was killed behind Spark's commit, before it settled. The same spool is named by a pattern
    then; once its table had each message twice."""
    spool, out = tmp_path / "h/one/spool", tmp_path / "out"
    spool.parent.mkdir(parents=True)
    flatq("push", "-l", input=b"".join(b"%d\n" % n for n in range(100)),
        env={"FLATQ_DIR": str(spool)}, check=0)
    with monkeypatch.context() as patch:
        patch.setattr(drain, "end", lambda *words: 1 / 0)
        job("drain", "default", "--to", out, "--spool", spool, code=70)
    part = max(out.glob("part-*"), key=lambda path: path.stat().st_size)
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    assert "not there in full" in job("drain", "default", "--to", out, "--spool", spool,
        code=74).err[0]
    part.write_bytes(whole)
    job("drain", "default", "--to", out, "--spool", tmp_path / "h/*/spool")
    assert sorted(table(out)["value"].to_pylist(), key=int) == numbers(100)


@pytest.mark.slow
def test_load_of_what_is_not_utf_8(job, flatq, tmp_path):
    """A CSV or JSON file in another encoding is refused, and read if the encoding is named. The
    lines of a text are bytes, as they are."""
    latin = tmp_path / "latin.csv"
    latin.write_bytes("value,n\nok,1\n\"é\r\n\",2\nÜbung €,3\n".encode("cp1252"))
    assert "latin.csv: not UTF-8: say --option encoding=" in job("load", "q", "--from", latin,
        code=65).err[0]
    assert "3 messages" in job("load", "q", "--from", latin, "--encoding", "windows-1252").out
    assert flatq("drain", "-0", "q", check=0).out.split(b"\0")[:-1] == [text.encode() for text in (
        "ok", "é\r\n", "Übung €")]
    with gzip.open(tmp_path / "b.json.gz", "wb") as file:
        file.write(b'{"value": "1"}\n' * 100000 + b'{"value": "\xe9"}\n')
    assert "b.json.gz: not UTF-8" in job("load", "q", "--from", tmp_path / "b.json.gz",
        code=65).err[0]
    (tmp_path / "latin.json").write_bytes('{"value": "Übung"}\n'.encode("latin1"))
    assert "1 messages" in job("load", "q", "--from", tmp_path / "latin.json", "--option",
        "encoding=ISO-8859-1").out
    assert flatq("pop", "q", check=0).out == "Übung".encode()
    (tmp_path / "lines.txt").write_bytes(b"one\rstill\r\r\ncaf\xe9\r\n\r\nend")
    job("load", "q", "--from", tmp_path / "lines.txt")
    assert flatq("drain", "-0", "q", check=0).out.split(b"\0")[:-1] == [b"one\rstill\r", b"caf\xe9",
        b"", b"end"]
    job("load", "q", "--from", tmp_path / "lines.txt", "--encoding", "utf-8", code=64)
    assert "none" in job("load", "q", "--from", latin, "--encoding", "none", code=65).err[0]


def test_load_with_a_bad_priority_says_so_in_one_line(job, flatq, tmp_path):
    for name, column in (("a.json", '"high"'), ("b.json", "-1"), ("c.json", '"1.5"'),
            ("d.json", "4294967296")):
        (tmp_path / name).write_text('{"value": "x", "priority": %s}\n' % column)
        said = job("load", "q", "--from", tmp_path / name, code=65).err[0]
        assert column.strip('"') in said and len(said) < 300, said
    (tmp_path / "a.txt").write_text("1\n")
    for words, text in ((("--priority", "-1"), "option priority"),
            (("--lease", str(1 << 32)), "option lease"), (("--wait", "-1"), "option wait"),
                        (("--name", "../x"), "option jobId")):
        assert text in job("load", "q", "--from", tmp_path / "a.txt", *words, code=65).err[0]


def test_a_load_that_has_ended_needs_no_java(job, flatq, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("1\n")
    assert "1 messages" in job("load", "q", "--from", tmp_path / "a.txt").out
    monkeypatch.setattr(command, "session", lambda args: pytest.fail("Java was started"))
    assert job("load", "q", "--from", tmp_path / "a.txt").out == (
        "load: done before; say --name, another one, to load it once more\n")
    assert "nothing there" in job("load", "q", "--from", tmp_path / "none.txt", code=66).err[0]


@pytest.mark.slow
def test_load_as_push_would(job, flatq, tmp_path):
    """Priority and lease are those of the messages. --wait waits for room."""
    (tmp_path / "a.txt").write_text("1\n")
    job("load", "q", "--from", tmp_path / "a.txt", "--priority", "7", "--lease", "33")
    [file] = os.scandir(flatq("claim", "-c", "me", "q", check=0).out.split()[2])
    with open(file, "rb") as lines:
        slip = lines.read().split(b".")
    assert (int(slip[0]), slip[4]) == (7, b"33")
    flatq("create", "-b", "1", "small", check=0)
    push(flatq, b"0", "small")
    assert "is full" in job("load", "small", "--from", tmp_path / "a.txt", code=75).err[0]
    popped = []

    def pop_once_staged():
        wait_for(lambda: list(flatq.spool.glob(".spark/job-*/stage.*")), seconds=300)
        popped.append(flatq("pop", "small", check=0).out)

    consumer = threading.Thread(target=pop_once_staged)
    consumer.start()
    assert "1 messages" in job("load", "small", "--from", tmp_path / "a.txt", "--wait", "300").out
    consumer.join()
    assert (popped, flatq("drain", "small", check=0).out) == ([b"0"], b"1\n")


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
    held = reserve(flatq, "a/b")
    flatq("release", held.receipt, check=0)
    held = reserve(flatq, "a/b")
    flatq("bury", "-r", "no-good", held.receipt, check=0)
    with open(flatq.spool / "a,b/log", "ab") as log:
        log.write(b"17952565\0\0\0torn\n")
        log.write(b"1795256546.15 push 1 0")


def logged(spool):
    """The lines of the logs, read without Spark."""
    for queue, disk in (("jobs", "jobs"), ("a/b", "a,b")):
        for path in sorted((spool / disk).glob("log*")):
            for line in path.read_bytes().decode(errors="replace").splitlines():
                words = line.split(" ", 6)
                if len(words) == 7:
                    bulk = words[6].startswith("bulk-")
                    yield queue, float(words[0]), words[1], int(words[2]) if words[
                        2] != "-" else None, int(words[3]), (
                        None if bulk else int(words[5])), int(words[6][5:]) if bulk else 1, words[6]


def percentile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


@pytest.mark.slow
def test_events_and_stats(job, flatq, tmp_path, spark):
    """The numbers are those that plain Python finds in the logs: from the logs, from the table, and
    with rotated logs."""
    from flatq.pipeline import events, stats

    busy(flatq)
    (flatq.spool / "jobs/log").rename(flatq.spool / "jobs/log.179500000000")
    plain = list(logged(flatq.spool))
    assert job("events", "--to", tmp_path / "events").out.startswith(f"events: {len(plain)} events")
    # a second run replaces the first. Files beside the table stay, whether or not the job succeeds
    for name in ("events.old", "events.new", "x.old", "x.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    assert job("events", "--to", tmp_path / "events").out.startswith(f"events: {len(plain)} events")
    job("events", "none", "--to", tmp_path / "x", code=66)
    assert {path.name for path in tmp_path.iterdir()} - {"home", "spool"} == {"events",
        "events.old", "events.new", "x.old", "x.new"}
    assert len(list(tmp_path.glob("*.*/mine"))) == 4
    rows = spark.read.parquet(str(tmp_path / "events"))
    assert rows.columns == list(events.COLUMNS)
    found = [(row.queue, round(row.time.timestamp(), 2), row.verb, row.id, row.tries,
        row.milliseconds, row["count"]) for row in rows.collect()]
    assert sorted(found, key=str) == sorted((one[:7] for one in plain), key=str)

    got = stats.collect(rows)
    assert {queue.name: queue.verbs for queue in got.queues} == {
        name: dict(collections.Counter({verb: sum(one[6] for one in plain if one[0] == name
        and one[2] == verb) for verb in {
            one[2] for one in plain if one[0] == name}})) for name in ("a/b", "jobs")}
    assert {queue.name: (queue.pushed, queue.done) for queue in got.queues} == {"a/b": (700, 103),
        "jobs": (12, 9)}
    # four were buried in turns: 3 in jobs, of which 1 was kicked, and 1 in a/b
    assert got.dead == {("jobs", "exit-1"): (3, 2), ("a/b", "no-good"): (1, 1)}
    assert got.series["jobs"][-1][2] == 12 - 9 - 3 + 1 and got.series["a/b"][-1][2] == 700 - 103 - 1
    assert sum(point[0] for point in got.series["a/b"]) == 700 and sum(point[1]
        for point in got.series["a/b"]) == 103
    assert got.tries == {("jobs", 2): 3, ("a/b", 2): 1}
    for key, verb in ((("a/b", "pop"), "pop"), (("jobs", "delete"), "delete")):
        times = [one[5] for one in plain if one[0] == key[0] and one[2] == verb
            and one[5] is not None]
        assert got.latency[key] == (len(times), pytest.approx([percentile(times, share)
            for share in stats.SHARES]))

    said = job("stats").out
    assert said == job("stats", "--from", tmp_path / "events").out
    assert re.search(r"^a/b +700 +103 ", said, re.M) and re.search(r"^jobs +exit-1 +3 +2$", said,
        re.M), said
    assert "a/b" not in job("stats", "jobs").out
    many = tmp_path / "hosts"
    many.mkdir()
    for host in ("one", "two"):
        (many / host).mkdir()
        (many / host / "spool").symlink_to(flatq.spool)
    both = events.table(spark, str(many / "*/spool"))
    assert {(row.host, row["count"]) for row in both.groupBy("host").count().collect()} == {("one",
        len(plain)), ("two", len(plain))}
    assert {queue.name for queue in stats.collect(both).queues} == {"one:a/b", "one:jobs",
        "two:a/b", "two:jobs"}


@pytest.mark.slow
def test_report(job, flatq, tmp_path, spark):
    """One page that needs no other file, with a picture for each plot. For an empty spool, the page
    says how to create a queue."""
    module("matplotlib")
    page = open(job("report", "--to", tmp_path / "nothing").out.strip(), encoding="utf-8").read()
    assert "Nothing yet" in page and "flatq push" in page and "<svg" not in page
    job("report", "none", "--to", tmp_path / "none", code=66)
    push(flatq, b"one", "single")
    assert re.search(r"^single +1 +0 +1 +1 +0 ", (said := job("stats").out),
        re.M) and "Over time, by 1 s, in " in said, "one event has no rate"
    flatq("drop", "-f", "single", check=0)
    busy(flatq)
    path = job("report", "--to", tmp_path / "report", "--title", "a <b>").out.strip()
    page = open(path, encoding="utf-8").read()
    assert path == str(tmp_path / "report/report.html") and page.count(
        "<svg ") == 5 and "<h1>a &lt;b&gt;</h1>" in page
    assert not re.search(r'(src|href)="(?!#)(?!http://www\.w3\.org)',
        page) and "<script" not in page
    names = re.findall(r'\bid="([^"]+)"', page)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert used <= set(names)
    for name in ("throughput", "depth", "latency", "redeliveries", "dead"):
        assert (tmp_path / f"report/{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "712" in page


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
    """A driver is killed where it has just written something, or at a random moment, whichever the
    seed chooses. No message is lost, and none is there twice. """
    deal = chance(f"killed drivers {job}")
    point, seed = deal.choice([*KILLED[job], "random"]), deal.randrange(1 << 32)
    print(point, seed)
    kills.run(job, [point], seed, tmp_path)


@pytest.mark.slow
def test_continuous(java, flatq, tmp_path):
    """A drain is killed in the middle, started again, and told to stop. No message is lost or there
    twice, and all that is written is settled."""
    fill(flatq, 0, 1000)
    to = tmp_path / "out"
    words = ("drain", "default", "--to", to, "--continuous", "--every", "0.2", "--batch", "200")
    process = started(flatq, *words)
    wait_for(lambda: len(list(to.glob("part-*"))) >= 2, seconds=300)
    flatq.end(process)
    process = started(flatq, *words)
    wait_for(lambda: (to / "_checkpoint/commits/4").exists() or process.poll() is not None,
        seconds=300)
    assert process.poll() is None, process.stderr.read().decode()[-2000:]
    fill(flatq, 1000, 1100)
    wait_for(lambda: (to / "_checkpoint/commits/5").exists() or process.poll() is not None,
        seconds=300)
    # `timeout` and systemd signal Spark's processes, too
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert sorted(table(to)["value"].to_pylist(), key=int) == numbers(1100)
    assert b"reserved 0\n" in flatq("stat", "default", check=0).out


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
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert flatq("drain", check=0).out.split() == numbers(100)


@pytest.mark.slow
def test_no_space(job, flatq, tmp_path, spark):
    """The table's disk is full, which one line says. With room the drain goes on, and each message
    is there once."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", place],
        capture_output=True, text=True)
    if done.returncode:
        pytest.skip("mount refuses to make a small disk: " + done.stderr.strip())
    try:
        bodies = [os.urandom(300).hex().encode() for _ in range(4000)]
        flatq("push", "-l", input=b"".join(body + b"\n" for body in bodies), check=0)
        assert "No space left on device" in job("drain", "default", "--to", place / "out",
            "--batch", "1000", code=74).err[0]
        assert "No space left on device" in job("drain", "default", "--to", place / "out",
            "--batch", "1000", code=74).err[0]
        subprocess.run(["mount", "-o", "remount,size=60m", place], check=True)
        job("drain", "default", "--to", place / "out", "--batch", "1000")
        assert sorted(table(place / "out")["value"].to_pylist()) == sorted(bodies)
        assert spark.read.parquet(str(place / "out")).count() == len(bodies)
        empty(flatq)
        assert b"reserved 0\n" in flatq("stat", "default", check=0).out
    finally:
        subprocess.run(["umount", "-l", place], check=True)


#: tasks begin once both executors are there
CLUSTER = (
    "spark.executor.memory=512m", "spark.cores.max=2", "spark.executor.cores=1",
    "spark.driver.host=127.0.0.1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={place}",
    "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
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
    """A real cluster of a master and two workers. An executor is killed in the middle of a task
    that stages rows; half-way through the drain, one worker is killed with all its processes."""
    import pyspark

    rows = spark.range(40000).selectExpr("cast(id AS string) AS value").repartition(4)
    rows.write.parquet(str(tmp_path / "rows"))
    run = os.path.join(os.path.dirname(pyspark.__file__), "bin/spark-class")
    env = {**environment(flatq), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"), "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": "-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1 "
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
    victim = wait_for(lambda: executor_of(tmp_path / "two"), "an executor", seconds=300)
    os.kill(victim, signal.SIGKILL)
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
    assert sorted(table(tmp_path / "out")["value"].to_pylist(), key=int) == numbers(40000)
    empty(flatq)
    assert not list(flatq.spool.glob(".spark/job-*/stage.*")) and flatq("doctor",
        check=0).out == b""
