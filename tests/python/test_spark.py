"""flatq.spark: queues as tables and tables as messages, in one session. test_pipeline.py has killed
drivers."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from conftest import ROOT, wait_for
from engine import empty, pop, push
from tables import fill, flatq_spark, numbers, unsynced  # noqa: F401 (a fixture)

import pyarrow as pa

from flatq import Disk, Full, Queue
from flatq.spark import options, sink
from flatq.spark.format import Lost
from flatq.spark.options import Options, Place
from flatq.spark.source import StreamReader

pytestmark = pytest.mark.timeout(600)


def reads(reader, flatq, queue, consumer, options):
    if consumer:
        options["group.id"] = consumer
    return reader.format("flatq").options(path=str(flatq.spool), subscribe=queue, **options).load()


def batch(spark, flatq, queue="default", consumer=None, **options):
    return reads(spark.read, flatq, queue, consumer, options)


def stream(spark, flatq, queue="default", consumer="tables", **options):
    return reads(spark.readStream, flatq, queue, consumer, options)


def to_queue(flatq, **more):
    """A sink."""
    return sink.Sink(Options({"path": str(flatq.spool), "topic": "to", **more}, True))


def staged_by(made, bodies, job="job-x"):
    """What a task stages."""
    return made.stage(job, iter([pa.record_batch([pa.array(bodies)], names=["value"])]))


def staged(flatq):
    """A sink, and one of its stages."""
    made = to_queue(flatq)
    return made, [staged_by(made, numbers(20))]


def came(flatq):
    """What has come to the sink's queue."""
    return flatq("drain", "to", check=0).out.split()


def settled(flatq, queue="default"):
    assert b"reserved 0\n" in flatq("stat", queue, check=0).out


def values(table):
    return [bytes(row.body) for row in table.select("body").collect()]


def drain(spark, flatq, tmp_path, **options):
    """Drain to Parquet once, as a pipeline does."""
    writer = stream(spark, flatq, **options).writeStream.format("parquet")
    return flatq_spark.run(writer.option("path", str(tmp_path / "out")),
        str(tmp_path / "checkpoint"), 120)


def drained(spark, tmp_path):
    """The values that Spark reads there, in the order of offsets."""
    rows = spark.read.parquet(str(tmp_path / "out")).select("offset", "body").collect()
    return [bytes(row.body) for row in sorted(rows, key=lambda row: row.offset)]


def fails(call, text):
    with pytest.raises(Exception) as raised:
        call()
    why = flatq_spark.why(raised.value)
    assert text in why, (why, str(raised.value)[-3000:])


@pytest.mark.slow
def test_batch(spark, flatq):
    """A look takes nothing. A claim stays until it is settled."""
    fill(flatq, 0, 1200)
    push(flatq, b"urgent", "-p", "1")
    expected = [b"urgent", *numbers(1200)]

    def claim(**options):
        return batch(spark, flatq, consumer="me", maxOffsetsPerTrigger="1000", **options)

    def claimed(**options):
        return flatq_spark.claimed(spark, "default", "me", str(flatq.spool), **options)

    look = batch(spark, flatq)
    assert look.schema.simpleString() == (
        "struct<queue:string,id:bigint,offset:bigint,timestamp:timestamp,body:binary,tries:int>")
    assert sorted(values(look)) == sorted(expected)
    held = claim(minPartitions="3").cache()
    assert held.rdd.getNumPartitions() == 3
    rows = held.orderBy("offset").collect()
    assert [bytes(row.body) for row in rows] == expected[:1000]
    assert [(row.offset, row.tries) for row in rows] == [(n, 1) for n in range(1000)]
    [last, *ids] = [row.id for row in rows]
    assert ids == sorted({*ids}) and last > ids[-1]
    # the same messages again; no other consumer gets them
    assert sorted(values(claim())) == sorted(expected[:1000])
    assert pop(flatq) == b"999"
    former = claim(columns="old", includeHeaders="true")
    assert former.schema.simpleString() == (
        "struct<queue:string,offset:bigint,timestamp:timestamp,value:binary,attempts:int,"
        "headers:struct<id:bigint,priority:bigint,key:string>>")
    assert sorted(values(former.withColumnRenamed("value", "body"))) == sorted(expected[:1000])
    text = claim(base64="true").selectExpr("unbase64(body) as body")
    assert sorted(values(text)) == sorted(expected[:1000])
    assert flatq_spark.settle("default", "me", 1000, str(flatq.spool)) == 1000
    with pytest.raises(RuntimeError), claimed() as rest:
        assert rest.count() == 200
        raise RuntimeError
    empty(flatq)
    for name in ("maxOffsetsPerTrigger", "STARTINGOFFSETS"):
        with pytest.raises(ValueError, match="which yields all that it settles"):
            with claimed(**{name: "1"}):
                pass
    with claimed() as rest:
        assert sorted(values(rest)) == sorted(expected[1001:])
        push(flatq, b"later")
        assert rest.count() == 200
    assert values(batch(spark, flatq)) == [b"later"]


@pytest.mark.slow
def test_claimed_tables_that_are_late_or_side_by_side(spark, flatq, monkeypatch):
    """One that is computed after its `with` has lost its messages, and says so."""
    def claimed():
        return flatq_spark.claimed(spark, "default", "me", str(flatq.spool))

    monkeypatch.setattr(options, "PATIENCE", 0)
    fill(flatq, 0, 100)
    with claimed() as rows:
        late = rows.selectExpr("offset")
        with pytest.raises(RuntimeError, match="another query reads as consumer 'me'"), claimed():
            pass
    fails(late.collect, "was settled or unclaimed up to 100")
    fails(lambda: batch(spark, flatq, startingOffsets='{"default": 1}').collect(),
        "there is no option group.id")
    with claimed() as rows:
        assert rows.count() == 0


def test_a_settle_that_fails_when_all_is_done(flatq, monkeypatch):
    """Whoever throws away now what was read loses it."""
    fill(flatq, 0, 100)
    [place] = options.Options({"path": str(flatq.spool)}).places()
    place.claim("me", 100)
    settle, done = Queue.settle, False

    def fails(*words):
        if done:
            settle(*words)
        raise Disk("cannot sync", 74)

    monkeypatch.setattr(Queue, "settle", fails)
    with pytest.raises(Disk):
        place.settle("me", 100)
    done = True
    assert place.settle("me", 100) == 100
    empty(flatq)


def segments(flatq):
    return sorted(path for path in (flatq.spool / "default/claimed/tables").glob("0*")
        if path.is_dir())


@pytest.mark.slow
def test_lost_and_damaged(spark, flatq, tmp_path):
    """A segment was deleted by hand: a clear error, or the rest is read, as the option says."""
    def drains(place=tmp_path, **options):
        return drain(spark, flatq, place, **options)

    def reads():
        return batch(spark, flatq, consumer="tables").count()

    fill(flatq, 0, 900)
    for count in (300, 600, 900):
        flatq("claim", "-c", "tables", "-n", str(count), check=0)
    gone = segments(flatq)[1]
    shutil.rmtree(gone)
    # in a batch that was planned before, in one that is planned anew, and in a batch read
    for again in (drains, lambda: drains(tmp_path / "other"), reads):
        fails(again, "is not there any more")
    drains(failOnDataLoss="false")
    got = drained(spark, tmp_path)
    assert len(got) == 900 - int(gone.name.split(".")[1]) == len(set(got))
    # the last segment is deleted before it was read: the next reader misses it
    fill(flatq, 900, 1000)
    flatq("claim", "-c", "tables", check=0)
    for segment in segments(flatq):
        shutil.rmtree(segment)
    fill(flatq, 1000, 1100)
    for again in (reads, drains):
        fails(again, "offsets 900 and following, before 1100, is not there any more")
    drains(failOnDataLoss="false")
    assert drained(spark, tmp_path)[len(got):] == numbers(1100)[1000:]
    settled(flatq)
    # another spool in the place of this one
    shutil.rmtree(flatq.spool)
    fill(flatq, 0, 100)
    fails(drains, "this is another spool")


@pytest.mark.slow
@pytest.mark.new
def test_no_message_and_no_queue(spark, flatq, tmp_path):
    def reads(**options):
        return batch(spark, flatq, **options).count()

    fails(reads, "no spool at")
    flatq("create", check=0)
    assert reads() == 0 and reads(consumer="me") == 0
    drain(spark, flatq, tmp_path)
    assert not list((tmp_path / "out").glob("*.parquet")) or drained(spark, tmp_path) == []
    fails(lambda: flatq_spark.settle("none", "me", 1, str(flatq.spool)), "no queue 'none'")


@pytest.mark.slow
def test_one_query_a_consumer(spark, flatq, tmp_path):
    """A second one, and one with another's checkpoint, says so."""
    def writer(**options):
        return stream(spark, flatq, **options).writeStream.format("noop")

    def run(checkpoint, **options):
        flatq_spark.run(writer(**options), str(tmp_path / checkpoint), 100)

    fill(flatq, 0, 100)
    first = writer().option("checkpointLocation", str(tmp_path / "1")).start()
    try:
        wait_for(lambda: first.lastProgress, "some progress", seconds=300)
        fails(lambda: run("2"), "another query reads as consumer")
    finally:
        first.stop()
    fill(flatq, 100, 200)
    fails(lambda: run("1", consumer="x"), "is not 'tables', which this checkpoint is of")
    run("1")
    empty(flatq)


def test_the_steps_of_a_stream(flatq, monkeypatch):
    """A batch has no more than its limit, and with AvailableNow none that came after the start. If
    a settle fails, the next step says so."""
    fill(flatq, 0, 2000)
    reader = StreamReader(Options({"path": str(flatq.spool), "group.id": "me",
        "maxOffsetsPerTrigger": "600"}))
    [place], limit = reader.places, reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    fill(flatq, 2000, 3000)
    offsets = [reader.initialOffset()]
    for end in (600, 1200, 1800, 2000, 2000):
        offsets.append(reader.latestOffset(offsets[-1], limit))
        assert offsets[-1]["offsets"] == {"default": end} and place.marks("me") == (0, end)
    with pytest.raises(Lost, match="which this checkpoint has never read"):
        reader.latestOffset(reader._offset({}), limit)
    reader.commit(offsets[1])
    reader._await()
    assert place.marks("me") == (600, 2000)
    monkeypatch.setattr(Place, "settle", lambda *args: 1 / 0)
    reader.commit(offsets[2])
    with pytest.raises(ZeroDivisionError):
        reader.latestOffset(offsets[-1], limit)
    reader.stop()


ANY = [b"", b"\0", b"\n", b"\0\n", b"x\ty", bytes(range(256)),
    *(os.urandom(n) for n in range(1, 90)), os.urandom(200_000)]


@pytest.mark.slow
def test_any_bytes_there_and_back(spark, flatq, tmp_path):
    rows = spark.createDataFrame([(bytearray(body), n % 3) for n, body in enumerate(ANY)],
        "body binary, priority int").coalesce(1)
    options = {"path": str(flatq.spool), "topic": "a/b"}
    rows.write.format("flatq").options(**options).mode("append").save()
    assert not list((flatq.spool / ".spark").iterdir())
    ordered = [body for priority in range(3) for body in ANY[priority::3]]
    assert [bytes(row.body) for row in batch(spark, flatq, "a/b",
        consumer="me").orderBy("offset").collect()] == ordered
    flatq("unclaim", "-c", "me", "a/b", check=0)
    assert [pop(flatq, "a/b") for _ in ANY] == ordered
    assert flatq("doctor", check=0).out == b""
    # strings, a queue for each row, a consumer that waits; an id that is used again
    waiting = flatq.start("pop", "-w", "60", "one")
    rows = spark.createDataFrame([("é", "one"), ("z", "two"), ("y", "two")],
        "value string, queue string").coalesce(1)
    for _ in range(2):
        rows.write.format("flatq").options(path=str(flatq.spool),
            jobId="once").mode("append").save()
    assert waiting.communicate(timeout=100)[0] == "é".encode()
    assert flatq("drain", "two", check=0).out == b"z\ny\n"
    empty(flatq, "one", "two")


NAME = "is not 1 to 200 of A-Z a-z 0-9 "
#: A read, a stream, a write or a streaming write; its options, and a row's columns; and what the
#: error says behind `flatq: `
REFUSED = [
    *((how, {"color": "red"}, f"option color: 'red' is not known to a {kind}, which takes path, ")
        for how, kind in (("read", "read"), ("stream", "read"), ("write", "write"),
            ("to", "write"))),
    ("read", {"topic": "x"}, "option topic: 'x' is not known to a read"),
    ("write", {"base64": "true"}, "option base64: 'true' is not known to a write"),
    ("read", {"columns": "red"}, "option columns: 'red' is not new or old"),
    ("read", {"failOnDataLoss": "perhaps"}, "option failOnDataLoss: 'perhaps' is not true or "),
    ("stream", {"minPartitions": "0"}, "option minPartitions: '0' is not a number from 1 to 42"),
    ("write", {"lease": "x"}, "option lease: 'x' is not a number from 0 to 4294967295"),
    ("to", {"priority": "-1"}, "option priority: '-1' is not a number from 0 to 4294967295"),
    ("write", {"jobId": "a b"}, "option jobId: 'a b' is not 1 to 100 letters, "),
    ("read", {"subscribe": "a b"}, f"option subscribe: 'a b' {NAME}"),
    ("read", {"subscribe": ","}, "option subscribe: ',' is not queues of which each is named once"),
    ("read", {"subscribe": "none"}, "option subscribe: no queue 'none' in "),
    ("stream", {"subscribe": "none"}, "option subscribe: no queue 'none' in "),
    *(("write", {"topic": name}, f"option topic: {name!r} {NAME}")
        for name in ("-a", "..", "../a", "a/.", "b/../a", "a" * 201)),
    ("write", {"row": "value, 'a b' as queue"}, "push: bad queue name: 1 to 200 of "),
    ("write", {"topic": "shut"}, "push: queue 'shut' is closed"),
    ("read", {"group.id": "-a"}, "option group.id: '-a' is not 1 to 100 of "),
    ("stream", {"group.id": "ü"}, "option group.id: 'ü' is not 1 to 100 of "),
    ("stream", {}, "option group.id: None is not a name that this stream alone claims "),
    ("read", {"path": "hdfs://x/y"}, "option path: hdfs://x/y is not on this machine"),
    ("read", {"path": "/none"}, "option path: no spool at /none"),
    ("write", {"path": "/none/x"}, "push: no spool at /none/x: "),
    *(("read", {"endingOffsets": text}, f"option endingOffsets: {text!r} is not 'latest' or an ")
        for text in ("early", '{"other": 7}', '{"jobs": -7}')),
    ("stream", {"endingOffsets": '{"jobs": 9}', "group.id": "me"},
        "option endingOffsets: '{\"jobs\": 9}' is not 'latest', as a stream needs"),
    ("write", {"topic": ""}, "option topic: None is not a queue, and there is no column"),
    ("write", {"mode": "overwrite"}, "a queue is appended to: "),
    *((how, {"row": row}, "a row needs one column `body` or `value`, binary or string: ")
        for how, row in (("write", "1.5 as value"), ("to", "1.5 as body"), ("to", "value as x"),
            ("write", "value, value as body"))),
    ("write", {"row": "value, '1' as priority"}, "the column `queue` is a string, "),
    ("write", {"row": "value, value as key"}, "the sink has no column `key`: push such mes"),
    ("write", {"row": "cast(null as string) as value"}, "a row's body is null"),
    ("write", {"row": "value, -1 as priority"}, "a row's queue is 'x', its priority -1: not a"),
    # the last row: it claims all
    ("read", {"startingOffsets": '{"jobs": 9}', "group.id": "me"},
        "option startingOffsets: 9 is not claimed: queue 'jobs' is, up to 5"),
]


@pytest.mark.slow
def test_the_last_line_of_an_error(spark, flatq, tmp_path):
    """It begins with `flatq:`, and above it is one frame of ours. Spark's own text may follow."""
    fill(flatq, 0, 5, "jobs")
    fill(flatq, 0, 5, "from")
    flatq("create", "shut", check=0)
    flatq("close", "shut", check=0)

    def start(writer):
        checkpoint = tmp_path / uuid.uuid4().hex
        query = writer.option("checkpointLocation", str(checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(100)

    def call(how, options):
        row, mode = options.pop("row", "value"), options.pop("mode", "append")
        options = {"path": str(flatq.spool),
            **({"subscribe": "jobs"} if how in ("read", "stream") else {"topic": "x"}), **options}
        if "queue" in row:
            del options["topic"]
        if how == "read":
            spark.read.format("flatq").options(**options).load().count()
        elif how == "stream":
            rows = spark.readStream.format("flatq").options(**options).load()
            start(rows.writeStream.format("noop"))
        else:
            rows = (batch(spark, flatq, "jobs") if how == "write"
                else stream(spark, flatq, "from"))
            rows = rows.selectExpr("cast(body as string) as value").selectExpr(*row.split(", "))
            if how == "write":
                rows.write.format("flatq").options(**options).mode(mode).save()
            else:
                start(rows.writeStream.format("flatq").options(**options))

    for how, given, says in REFUSED:
        with pytest.raises(Exception) as raised:
            call(how, dict(given))
            pytest.fail(f"accepted: {how} {given}")
        text = str(raised.value)
        lines = text.partition("\n SQLSTATE: ")[0].rstrip().splitlines()
        assert lines[-1].startswith(f"flatq: {says}"), (how, given, text)
        assert len(re.findall('File ".*/flatq/', text)) == 1, (how, given, text)
        assert flatq_spark.why(raised.value) == lines[-1]
    empty(flatq, "x")


@pytest.mark.slow
def test_a_stream_from_queue_to_queue(spark, flatq, tmp_path):
    """A batch runs again from the last commit: its sink had committed, and Spark had not."""
    fill(flatq, 0, 1000, "from")
    checkpoint = tmp_path / "checkpoint"

    def copy():
        rows = stream(spark, flatq, "from", maxOffsetsPerTrigger="400").select("body")
        writer = rows.writeStream.format("flatq").options(path=str(flatq.spool), topic="to")
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(100)

    copy()
    [done] = (flatq.spool / ".spark").glob("*/*")
    assert done.name == "done.2" and len(json.loads(done.read_text())["mark"]) == 64
    popped = flatq("pop", "-l", "-n", "900", "to", check=0).out.split()
    for path in ("2", ".2.crc"):
        (checkpoint / "commits" / path).unlink(missing_ok=True)
    copy()
    assert sorted([*popped, *came(flatq)], key=int) == numbers(1000)
    empty(flatq, "to", "from")


def test_sink_once_for_a_batch(flatq, monkeypatch):
    """Killed in the middle of the sink's commit: Spark runs the batch again."""
    made, kept, calls = to_queue(flatq), sink.Sink.enter, []

    def stage(bodies):
        return staged_by(made, bodies, "query-x")

    def enter(self, path, queue, size):
        if calls:
            raise KeyboardInterrupt
        calls.append(path)
        kept(self, path, queue, size)

    tasks = [stage(numbers(300)[:200]), stage(numbers(300)[200:])]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sink.Sink, "enter", enter)
        made.commit(tasks, 7)
    popped = came(flatq)
    assert 0 < len(popped) < 300
    made.abort(tasks)
    made.commit([stage(numbers(300)[:150]), stage(numbers(300)[150:])], 7)
    made.commit([stage(numbers(300))], 7)
    assert sorted([*popped, *came(flatq)], key=int) == numbers(300)
    assert [path.name for path in (flatq.spool / ".spark/query-x").iterdir()] == ["done.7"]
    made.commit([stage([b"next"])], 8)
    assert came(flatq) == [b"next"]
    # a stage that is missing or not whole cannot be in a plan
    for spoil in (shutil.rmtree, lambda path: next(path.glob("*/*/*")).unlink()):
        lost = stage(numbers(600))
        spoil(flatq.spool / ".spark/query-x" / lost.stage)
        with pytest.raises(LookupError, match="of 600 staged messages"):
            made.commit([lost], 9)
    made.commit([stage([b"nine"])], 9)
    assert came(flatq) == [b"nine"]


@pytest.mark.shells
def test_the_checkpoint_sweeps_stages(flatq, shell):
    """Of jobs in which nothing has changed for a week, unless a plan names them or a driver is at
    work."""
    top, week = flatq.spool / ".spark", 7 * 86400
    push(flatq, b"1")
    for words in ("job-dead stage.1", "job-decided plan stage.1", "job-young stage.1",
            "job-locked stage.1", "query-dead done.3 stage.1", "once-dead plan stage.1"):
        job, *names = words.split()
        for name in names:
            path = top / job / name / ("jobs/65536.1/flat" if name.startswith("stage") else "")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for path in top.glob("**/*"):
        age = week - 600 if path.match("job-young/*/*/*/flat") else week + 60
        os.utime(path, (time.time() - age,) * 2)
    left = ["job-decided/plan", "job-decided/stage.1", "job-young/stage.1", "query-dead/done.3"]

    def swept():
        flatq("wal", check=0)
        return sorted(str(path.relative_to(top)) for path in top.glob("*/*"))

    number = os.open(top / "job-locked", os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    assert swept() == sorted([*left, "job-locked/stage.1"])
    os.close(number)
    assert swept() == left and not (top / "once-dead").exists()


def test_a_batch_number_with_other_rows(flatq, monkeypatch):
    """A checkpoint older than the spool: the sink stores what it has decided."""
    made = to_queue(flatq)

    def commit(number, batch, mark="a"):
        made.commit([staged_by(made, numbers(number), "query-x")], batch, mark)

    commit(20, 1)
    commit(21, 1)  # a query that gives other rows each time
    with pytest.raises(Lost, match="batch 1 of this query is stored already, and its checkpoint "
            "has planned it anew"):
        commit(20, 1, "b")
    assert came(flatq) == numbers(20)
    for batch, mark in ((2, "b"), (1, "a"), (3, "a")):
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(sink.Sink, "enter", lambda *words: 1 / 0)
            commit(20, max(2, batch))
        if batch == 3:
            commit(20, 3)  # it had decided before it failed
            assert came(flatq) == numbers(20)
            continue
        with pytest.raises(Lost, match=f"batch {batch}"):
            commit(30, batch, mark)
        assert came(flatq) == numbers(20)
        shutil.rmtree(flatq.spool / ".spark/query-x")
    # done.N of an earlier version is empty
    (flatq.spool / ".spark/query-x/done.3").write_text("")
    commit(30, 3, "b")
    empty(flatq, "to")
    assert sink.planned(str(flatq.spool), 1) == ""


def test_what_finds_no_room_is_not_decided(flatq):
    """With `wait` as well: half of a batch was once in the queue, and the rest was refused."""
    flatq("create", "-b", "150", "to", check=0)
    fill(flatq, 0, 100, "to")
    made = to_queue(flatq, wait="1")
    stages = [staged_by(made, numbers(50)) for _ in range(2)]
    with pytest.raises(Full, match="is full"):
        made.commit(stages, 0)
    assert not (flatq.spool / ".spark/job-x/plan").exists()
    made.wait = 60
    with beside(lambda: flatq("pop", "-l", "-n", "50", "to", check=0)):
        made.commit(stages, 0)
    assert len(came(flatq)) == 150


@contextlib.contextmanager
def beside(*calls):
    """These run meanwhile, each in a thread, and have ended at the end."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def test_the_shell_of_a_killed_driver_comes_first(flatq):
    """It waited for the queue's lock, and then moves the files. The next driver must not take them
    meanwhile."""
    push(flatq, b"first", "to")
    script = """import sys, types, test_spark
made, stages = test_spark.staged(types.SimpleNamespace(spool=sys.argv[1]))
made.commit(stages, 0)"""
    path = os.pathsep.join(str(ROOT / name) for name in ("python", "tests/python", "tests/support",
        "tests"))
    top = flatq.spool / ".spark/job-x"
    with open(flatq.spool / "to/lock") as lock, contextlib.ExitStack() as stack:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen([sys.executable, "-c", script, flatq.spool],
            env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda: (top / "plan").exists() and children.read_text(), "the engine waits")
        process.kill()
        process.wait()
        job = os.open(top, os.O_RDONLY)
        stack.callback(os.close, job)
        with pytest.raises(BlockingIOError):
            fcntl.flock(job, fcntl.LOCK_EX | fcntl.LOCK_NB)
    made, stages = staged(flatq)
    made.commit(stages, 0)
    assert sorted(came(flatq)) == sorted([b"first", *numbers(20)])


def test_a_sync_that_fails_when_all_has_entered(flatq, monkeypatch):
    """A second try would find nothing left to do, and the batch would count as done."""
    made, stages = staged(flatq)
    engine = sink.engine

    def fails(spool, step, *words, **more):
        said = engine(spool, step, *words, **more)
        if step == "enter":
            raise Disk("cannot sync", 74)
        return said

    with monkeypatch.context() as patch, pytest.raises(Disk, match="cannot sync"):
        patch.setattr(sink, "engine", fails)
        made.commit(stages, 0)
    assert made.done("job-x") == -1
    made.commit(stages, 0)
    assert made.done("job-x") == 0 and came(flatq) == numbers(20)


def test_what_a_killed_driver_has_decided_is_synced_first(flatq, monkeypatch):
    """A power cut could undo the rename of its plan alone: the batch would enter again."""
    made, stages = staged(flatq)
    engine, rename, unlink, seen = sink.engine, os.rename, os.unlink, []

    def renamed(old, new):
        rename(old, new)
        raise KeyboardInterrupt

    def stepped(spool, step, *words, **more):
        seen.append(step)
        return engine(spool, step, *words, **more)

    def unlinked(path, **more):
        seen.append("unlink")
        unlink(path, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", renamed)
        made.commit(stages, 0)
    monkeypatch.setattr(sink, "sync", lambda *words: seen.append("sync"))
    monkeypatch.setattr(sink, "engine", stepped)
    monkeypatch.setattr(os, "unlink", unlinked)
    made.commit(stages, 0)
    assert [what for what in seen if what != "unlink"] == ["sync", "enter", "sync"]
    assert seen[-1] == "unlink" and came(flatq) == numbers(20)
    # killed before it removed the plan
    (flatq.spool / ".spark/job-x/plan").touch()
    del seen[:]
    assert made.over("job-x") and seen == ["sync", "unlink"]


def test_a_second_load_as_the_first_one_ends(flatq, monkeypatch):
    """It finds done.0, and must leave the plan to the first one, which would miss it."""
    made, stages = staged(flatq)
    sync, others = sink.sync, []

    def second(*words):
        sync(*words)
        if made.done("job-x") == 0 and not others:
            others.append(threading.Thread(target=made.over, args=("job-x",)))
            others[0].start()
            others[0].join(0.5)

    monkeypatch.setattr(sink, "sync", second)
    made.commit(stages, 0)
    others[0].join(30)
    assert not (flatq.spool / ".spark/job-x/plan").exists() and came(flatq) == numbers(20)


def test_the_names_of_before():
    """They go on, and say what to use."""
    with pytest.deprecated_call(match="option queue is now subscribe"):
        assert Options({"queue": "a,b"}).queues == ["a", "b"]
    with pytest.deprecated_call(match="option Consumer is now group.id"):
        assert Options({"Consumer": "me"}).consumer == "me"
    with pytest.deprecated_call(match="option queue is now topic"):
        assert Options({"queue": "a"}, True).queues == ["a"]
    with pytest.deprecated_call(match="value is body, attempts is tries"):
        assert Options({"columns": "old"}).old
    with pytest.deprecated_call(match="JAVA_HOME and PATH"), flatq_spark.java_home():
        pass
    with pytest.deprecated_call(match="JAVA_HOME and PATH"):
        assert os.path.basename(flatq_spark.java()) == "java"
    with pytest.raises(ValueError) as raised:
        Options({"maxOffsetsPerTrigger": "many"})
    assert str(raised.value) == (
        "option maxOffsetsPerTrigger: 'many' is not a number from 1 to 4294967295")
    assert raised.value.__suppress_context__


@pytest.mark.slow
def test_the_session_of_before(spark):
    with pytest.deprecated_call(match="SparkSession.builder"):
        assert flatq_spark.session(master="local[2]") is spark


@pytest.mark.slow
def test_the_pages_example(spark, flatq, tmp_path, monkeypatch):
    """python/README.md's, as it stands, but for where it reads and writes."""
    page = (ROOT / "python/README.md").read_text()
    code = next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "flatq_spark.run" in text)
    fill(flatq, 0, 300, "jobs")
    exec(code.replace("/srv/spool", str(flatq.spool)).replace("/srv/", f"{tmp_path}/"), {})
    rows = spark.read.parquet(str(tmp_path / "jobs"))
    assert sorted(values(rows), key=int) == numbers(300)
    empty(flatq, "jobs")
    settled(flatq, "jobs")
    assert flatq_spark.settle_checkpoint(f"file:{tmp_path}/checkpoint") == {"jobs": 300}
    with pytest.raises(ValueError, match="is not on this machine"):
        flatq_spark.settle_checkpoint("hdfs://x/checkpoint")


def test_without_java(tmp_path):
    """One line says what to install."""
    done = subprocess.run([sys.executable, "-m", "flatq.pipeline", "stats"], capture_output=True,
        text=True, timeout=100, env={**os.environ, "JAVA_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "python")})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert done.stderr.startswith(
        "stats: Java does not start. Spark needs Java 17 or later: apt-get install")
