"""The sink: rows become messages, exactly once for each (query, batch), whichever process is
killed.

    SPOOL/.spark/JOB/stage.TASK/QUEUE/PRIORITY.BLOCK/FLAT   flat files that a task has written; no verb sees them
    SPOOL/.spark/JOB/plan                                   the stages of batch N: once the plan exists, batch N is decided
    SPOOL/.spark/JOB/done.N                                 batch N, and all before it, is in the queues

JOB is the query's id, which the checkpoint keeps; of a batch write it is the option jobId, or a
name of its own.

Order: 1 each task takes ids of its own, writes its flat files under them and syncs them; 2 the
driver writes `plan`, by a rename, and syncs it; 3 flat files are renamed into their queue, by
lib/bulk/stage.sh, as a bulk push does it: under the queue's lock, when there is room; 4 `plan`
becomes `done.N`; 5 the stages are removed.

Crash: before 2, nothing is in any queue: the batch runs again, and step 5 removes what the dead
tasks left. From 2 on the plan holds: if the batch runs again, only the rest of 3 is done, where
each file is either still in its stage or already in its queue; what that run has staged is thrown
away. After 4 the batch is finished. A consumer may take the first messages of a batch before the
last are there.

A stream's number N means the same rows each time, as long as its checkpoint keeps what it has
planned, offsets/N. Where the checkpoint is an older copy, or a power cut has taken a part of it,
Spark may plan other rows as batch N. So before 2 everything is synced; the plan and `done.N` have
the sum of offsets/N, where it is on this machine; and if that is another one now, or a batch after
N is there already, the sink raises Lost: the source settles nothing.

The checkpoint (`flatq wal`) removes the stages of a job that has no plan, once nothing of the job
has changed for a week. So the driver locks SPOOL/.spark/JOB, checks that its stages are complete,
writes `plan` and carries it out. Its shell inherits the lock, and keeps it if the driver is killed.

Keys (`push -k`) could not do this: a key is free again as soon as its message is popped."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,import-not-found,unused-ignore]
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegralType, StringType, StructType

from . import format as flat
from .options import Options, sync, sync_all, verbs_module

SCRIPT = 'set -u; . "$lib/engine/common.sh"; need engine/spool bulk/stage; stage "$@"'


def engine(spool: str, *words: object, keep: Sequence[int] = ()) -> list[str]:
    """Run a step of lib/bulk/stage.sh, which inherits the files `keep`, and return its output,
    split into words. Raises as flatq.Queue.push does."""
    verbs = verbs_module()
    from flatq import errors

    done = subprocess.run(
        ["sh", "-c", SCRIPT, "push", *map(str, words)],
        env={**os.environ, "lib": str(verbs.home()), "FLATQ_DIR": spool},
        stdin=subprocess.DEVNULL, capture_output=True, pass_fds=keep,
    )
    if done.returncode:
        raise errors.error_of("push", done.returncode, done.stderr.decode(errors="replace").strip())
    return done.stdout.decode().split()


def whole(given: Mapping[str, str], name: str, usual: int) -> int:
    """The value of an option that is a whole number."""
    text = given.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 32:
        raise ValueError(f"option {name}: a number from 0 to 4294967295, not {text!r}")
    return int(text)


def named(job: str) -> str:
    """The name of a job in the spool. Raises ValueError if it is not valid."""
    if not job.replace("-", "").replace("_", "").isalnum() or not job.isascii() or len(job) > 100:
        raise ValueError(
            f"a load's name, the option jobId, is 1 to 100 letters, digits, - and _, not {job!r}")
    return f"job-{job}"


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged: the number of messages and bytes for each queue. It may be empty."""

    job: str
    stage: str = ""
    sizes: dict[str, list[int]] = field(default_factory=dict)


class Ids:
    """Ids reserved for a task; one process reserves some ten thousand."""

    def __init__(self, spool: str) -> None:
        self.spool, self.first, self.left, self.asked, self.born = spool, 0, 0, 0, 0
        self.most = 0, 0  # messages and bytes of a flat file
        self.names: set[str] = set()

    def take(self, count: int, queue: str) -> int:
        if self.left < count or queue not in self.names:
            # ids that are left over are lost, which does no harm: there are plenty
            ask = max(count, min(self.asked * 5, 200000))
            self.first, self.born, *most = map(int, engine(self.spool, "ids", ask, queue))
            self.most = most[0], most[1]
            self.left = self.asked = ask
            self.names.add(queue)
        first = self.first
        self.first, self.left = first + count, self.left - count
        return first


def columns(schema: StructType, options: Options) -> None:
    """Raises ValueError if rows of this schema cannot become messages."""
    kinds = {field.name: field.dataType for field in schema.fields}
    if not isinstance(kinds.get("value"), (BinaryType, StringType)):
        raise ValueError(
            "a row needs a column `value`, binary or string: to_json(struct(*)) makes one of all columns")
    if not isinstance(kinds.get("queue", StringType()),
            StringType) or not isinstance(kinds.get("priority"), (IntegralType, type(None))):
        raise ValueError("the column `queue` is a string, `priority` a number")
    for name in ("key", "delay"):
        if name in kinds:
            raise ValueError(
                f"messages with a {name} are pushed one by one: flatq.Queue.push; the sink has no column `{name}`")
    if not options.queues and "queue" not in kinds:
        raise ValueError("option queue is missing, and there is no column `queue`")
    if len(options.queues) > 1:
        raise ValueError(
            "option queue: one queue; rows for several name theirs in a column `queue`")
    if options.wild:
        raise ValueError("option path: one spool")


def planned(checkpoint: str, batch: int) -> str:
    """The sum of what a checkpoint on this machine says of a batch; else nothing."""
    place = os.path.abspath(re.sub("^file:/+", "/", checkpoint))
    with contextlib.suppress(OSError), open(os.path.join(place, "offsets", str(batch)),
            "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
    return ""


def total(stages: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """The messages and bytes for each queue, of all stages together."""
    found: dict[str, list[int]] = {}
    for sizes in stages:
        for queue, (count, size) in sizes.items():
            before = found.get(queue, [0, 0])
            found[queue] = [before[0] + count, before[1] + size]
    return found


@contextlib.contextmanager
def alone(top: str) -> Iterator[int]:
    """If two drivers run the same job, such as two loads of one table, the second waits here until
    the first has finished. If the first was killed, the second also waits for the shell that the
    first had started, which has inherited the lock and may still move files. Raises OSError: where
    nothing can be locked, no verb works either."""
    file = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The engine has its own use for the numbers below 10
        number = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(file)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield number
    finally:
        os.close(number)


class Sink:
    """Steps 1 to 5 of the order above."""

    def __init__(self, options: Options, given: Mapping[str, str]) -> None:
        self.spool = options.path
        # The option overrides the column, so that rows read from one queue can be written to
        # another
        self.queue = options.queues[0] if options.queues else None
        self.priority, self.lease, self.wait = (whole(given, name, usual) for name,
            usual in (("priority", 65536), ("lease", 60), ("wait", 0)))
        #: The descriptor of the job's lock, which is held while a plan is made and carried out;
        #: valid only in `commit`
        self.lock = -1

    def top(self, job: str) -> str:
        return os.path.join(self.spool, ".spark", job)

    def stage(self, job: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Step 1, in a task: stage rows for that job. Raises ValueError if a row cannot be a
        message, and as flatq.Queue.push does."""
        stage = f"stage.{uuid.uuid4().hex}"
        top = os.path.join(self.top(job), stage)
        ids, nonce = Ids(self.spool), uuid.uuid4().hex[:12]
        sizes: dict[str, list[int]] = {}
        with verbs_module().private():
            for batch in batches:
                if batch.num_rows:
                    self.write(top, batch, ids, nonce, sizes)
        if not sizes:
            return Staged(job)
        sync(top, self.spool)
        return Staged(job, stage, sizes)

    def write(self, top: str, batch: pa.RecordBatch, ids: Ids, nonce: str,
            sizes: dict[str, list[int]]) -> None:
        names = batch.schema.names
        bodies = batch.column(names.index("value")).cast(pa.binary()).to_pylist()
        if None in bodies:
            raise ValueError("a row's value is null: a message is bytes, were they none")
        count = len(bodies)
        queues = [self.queue] * count if self.queue else batch.column(names.index(
            "queue")).to_pylist()
        priorities = batch.column(names.index("priority")).to_pylist() if "priority" in names else [
            self.priority] * count
        groups: dict[tuple[str, int], list[bytes]] = {}
        if len(set(queues)) == 1 == len(set(priorities)):
            groups[queues[0], priorities[0]] = bodies
        else:
            for queue, priority, body in zip(queues, priorities, bodies):
                groups.setdefault((queue, priority), []).append(body)
        for (queue, priority), some in groups.items():
            if queue is None or priority is None or not 0 <= priority < 1 << 32:
                raise ValueError(f"a row's queue is {queue!r}, its priority {priority!r}")
            name = flat.disk_name(queue)
            first = ids.take(len(some), queue)
            place = os.path.join(top, name)
            staged = flat.Stage(place, first, nonce, ids.born, ids.most, self.lease)
            staged.write(some, priority)
            size = sizes.setdefault(name, [0, 0])
            size[0] += len(some)
            size[1] += sum(map(len, some))

    def commit(self, messages: list[Any], batch: int, mark: str = "") -> None:
        """Steps 2 to 5, in the driver, of batch number `batch`: 0 for a batch write. `mark`: the
        sum of what the checkpoint says of it, if that is known. Raises as `decide` does."""
        staged = [message for message in messages if message is not None]
        if not staged:
            return
        job = staged[0].job
        top = self.top(job)
        if not any(message.stage for message in staged) and not os.path.exists(top):
            return
        with verbs_module().private():
            os.makedirs(top, exist_ok=True)
            with alone(top) as self.lock:
                self.decide(top, job, staged, batch, mark)

    def decide(self, top: str, job: str, staged: list[Staged], batch: int, mark: str) -> None:
        """Make what was staged the plan of batch number `batch`, unless it has one, and carry the
        plan out. If a queue is closed, or has no room within `wait` seconds, raises Closed or Full
        before anything is decided; else raises as `roll` does, and Lost where the checkpoint has
        planned another batch under that number than the one that was decided."""
        plan = os.path.join(top, "plan")
        old = self.plan(plan)
        if old is not None and old["batch"] != batch:
            # Spark has committed this batch: only its end is missing
            self.roll(top, old)
            old = None
        done = self.done(job)
        before = (self.plan(os.path.join(top, f"done.{batch}"))
            or {}).get("mark") if done == batch else None
        if done < batch:
            if old is None:
                self.room(total(message.sizes for message in staged))
                for message in staged:
                    self.check(top, message)
                old = {"batch": batch, "mark": mark,
                    "stages": {message.stage: message.sizes for message in staged if message.stage}}
                if mark:
                    # The checkpoint has to know this batch for as long as the plan does
                    sync_all(self.spool)
                self.put(plan, old)
            before = old.get("mark")
            self.roll(top, old)
        self.clear(top)
        if done > batch or mark and before and before != mark:
            raise flat.Lost(
                f"batch {batch} of this query is stored already, and its checkpoint has planned it anew: it is an older copy, or a power cut has "
                            "taken a part of it. Nothing of this run was stored. Begin anew, with another checkpoint")

    def put(self, path: str, what: Mapping[str, Any]) -> None:
        """Write a file of JSON whole, by a rename."""
        new = os.path.join(os.path.dirname(path), "plan.new")
        # A new file: in a group's spool, another member may have made a link of that name
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        with open(new, "x") as file:
            json.dump(what, file)
            file.flush()
            # Before the rename: a power cut may keep a name without what it names
            if verbs_module().syncs(self.spool):
                os.fsync(file.fileno())
        os.rename(new, path)

    def check(self, top: str, message: Staged) -> None:
        """Raises Lost if a stage is not complete: the checkpoint may have removed it."""
        for queue, (count, _) in message.sizes.items():
            there = sum(piece.count for piece in self.staged(os.path.join(top, message.stage,
                queue)))
            if there != count:
                raise flat.Lost(
                    f"{top}/{message.stage}: {there} of {count} staged messages are there")

    def clear(self, top: str) -> None:
        """Step 5."""
        for name in os.listdir(top):
            if name.startswith("stage."):
                shutil.rmtree(os.path.join(top, name), ignore_errors=True)

    def over(self, job: str) -> bool:
        """Whether the single batch of a job is in the queues; if so, remove what a killed driver
        left of it."""
        if self.done(job) < 0:
            return False
        top = self.top(job)
        # RACE: the driver that has just written done.N has still to remove its plan
        with alone(top):
            # CRASH: until done.N is on the disk, the plan must stay there
            sync(top, self.spool)
            self.clear(top)
            for name in os.listdir(top):
                if name.startswith("plan"):
                    os.unlink(os.path.join(top, name))
        return True

    def done(self, job: str) -> int:
        """The last batch that is in the queues, or -1."""
        try:
            return max((int(name[5:]) for name in os.listdir(self.top(job))
                if name.startswith("done.")), default=-1)
        except FileNotFoundError:
            return -1

    def plan(self, path: str) -> dict[str, Any] | None:
        """What a file of `put` holds; None if it is empty, or there is none."""
        try:
            with open(path) as file:
                text = file.read()
                # An empty one is what a power cut has left of it: nothing was decided. An empty
                # done.N is one of an earlier version
                decided: dict[str, Any] | None = json.loads(text) if text else None
                return decided
        except FileNotFoundError:
            return None

    def roll(self, top: str, plan: dict[str, Any]) -> None:
        """Steps 3 and 4. Raises as flatq.Queue.push does, and OSError; the next run goes on where
        this one ended."""
        # CRASH: the driver that renamed the plan may have died before it synced. Without the plan,
        # a power cut would let the batch enter once more
        sync(top, self.spool)
        for stage, sizes in plan["stages"].items():
            for queue, size in sizes.items():
                self.enter(os.path.join(top, stage, queue), queue, size[1])
        olds = [name for name in os.listdir(top) if name.startswith("done.")]
        new = os.path.join(top, f"done.{plan['batch']}")
        self.put(new, {"mark": plan.get("mark", "")})
        sync(top, self.spool)
        os.unlink(os.path.join(top, "plan"))
        for name in olds:
            if name != os.path.basename(new):
                os.unlink(os.path.join(top, name))

    def room(self, sizes: Mapping[str, list[int]]) -> None:
        """Wait until the plan can be carried out, as far as that can be known before. Raises Full
        after `wait` seconds, and Closed."""
        from flatq.errors import Full

        end = time.monotonic() + self.wait
        for queue, (count, _) in sizes.items():
            while True:
                try:
                    engine(self.spool, "room", flat.queue_name(queue), count)
                    break
                except Full as error:
                    if time.monotonic() >= end or "bound below" in str(error):
                        raise
                time.sleep(0.2)

    def enter(self, stage: str, queue: str, size: int) -> None:
        """Step 3 for a queue of a stage; files that entered before a crash are no longer in the
        stage. Raises what the engine does, even if all have entered: a second try would not see
        that a sync has failed."""
        pieces = self.staged(stage)
        if pieces:
            first, count = min(piece.first for piece in pieces), sum(piece.count
                for piece in pieces)
            engine(self.spool, "enter", flat.queue_name(queue), stage, pieces[0].nonce, count, size,
                first, self.wait, keep=(self.lock,))

    def staged(self, stage: str) -> list[flat.Piece]:
        """The flat files of a stage. Removes empty blocks, which the engine does not accept."""
        found = []
        try:
            blocks = sorted(os.listdir(stage))
        except FileNotFoundError:
            return []  # any other error proves nothing, and what is staged would be removed as done
        for block in blocks:
            path = os.path.join(stage, block)
            names = os.listdir(path)
            if not names:
                os.rmdir(path)
            for name in names:
                piece = flat.flat(os.path.join(path, name))
                if piece is None:
                    raise flat.Damaged(f"{path}/{name}: not a flat file's name")
                found.append(piece)
        return found

    def abort(self, messages: list[Any]) -> None:
        for message in messages:
            if message is not None and message.stage:
                top = self.top(message.job)
                plan = self.plan(os.path.join(top, "plan"))
                if plan is None or message.stage not in plan["stages"]:
                    shutil.rmtree(os.path.join(top, message.stage), ignore_errors=True)


class Writer(DataSourceArrowWriter):
    def __init__(self, options: Options, given: Mapping[str, str], schema: StructType,
            overwrite: bool) -> None:
        if overwrite:
            raise ValueError("a queue is appended to: mode('append')")
        columns(schema, options)
        self.sink = Sink(options, given)
        self.job = named(given["jobId"]) if "jobId" in given else f"once-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.sink.done(self.job) >= 0:
            return Staged(self.job)
        return self.sink.stage(self.job, iterator)

    def commit(self, messages: list[Any]) -> None:
        self.sink.commit(messages, 0)
        if self.job.startswith("once-"):
            shutil.rmtree(self.sink.top(self.job), ignore_errors=True)

    def abort(self, messages: list[Any]) -> None:
        self.sink.abort(messages)
        if self.job.startswith("once-") and not os.path.exists(os.path.join(self.sink.top(self.job),
                "plan")):
            shutil.rmtree(self.sink.top(self.job), ignore_errors=True)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, given: Mapping[str, str], schema: StructType,
            overwrite: bool) -> None:
        columns(schema, options)
        self.sink = Sink(options, given)
        self.checkpoint = given.get("checkpointLocation", "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query:
            raise RuntimeError("no query id: this PySpark is too old")
        # a number of the run would change at a restart
        return self.sink.stage(f"query-{query}", iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        self.sink.commit(messages, batchId, planned(self.checkpoint, batchId))

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.sink.abort(messages)
