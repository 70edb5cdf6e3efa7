"""The sink: rows become messages, exactly once for each (query, batch).

    SPOOL/.spark/JOB/stage.TASK/QUEUE/PRIORITY.BLOCK/FLAT   flat files of a task; no verb sees them
    SPOOL/.spark/JOB/plan                                   the stages of batch N, which is decided
    SPOOL/.spark/JOB/done.N                                 batches up to N are in the queues

JOB is the query's id, which the checkpoint keeps; of a batch write it is the option jobId, or a
name of its own. The driver holds a lock on SPOOL/.spark/JOB during 2 to 5. Its shell inherits it.

Order: 1 each task takes ids of its own, writes its flat files under them and syncs them; 2 the
       driver checks that the stages are complete, writes `plan` by a rename, and syncs it; 3 flat
       files are renamed into their queue by lib/bulk/stage.sh, when there is room; 4 `plan` becomes
       `done.N`; 5 the stages are removed.
Crash: before 2, nothing is in any queue: the batch runs again, and 5 removes what dead tasks left.
       From 2 on the plan holds: if the batch runs again, the rest of 3 is done, and what that run
       has staged is thrown away. After 4 the batch is finished.

With an older copy of its checkpoint, Spark may plan other rows as batch N. So the plan and `done.N`
have the sum of the checkpoint's offsets/N, where it is on this machine, which is synced before 2.
If it is another one now, or a batch after N is there, the sink raises Lost."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, IntegralType, StringType, StructType

from ..slips import disk_name, private, syncs
from . import format as flat
from .options import Elsewhere, Options, alone, local, package, refuse, sync, sync_all, told

SCRIPT = 'set -u; . "$lib/engine/common.sh"; need bulk/stage; stage "$@"'


def engine(spool: str, *words: object, keep: Sequence[int] = ()) -> list[str]:
    """Run a step of lib/bulk/stage.sh, which inherits the files `keep`; return the words that it
    prints. Raises as flatq.Queue.push does."""
    flatq = package()
    done = subprocess.run(["sh", "-c", SCRIPT, "push", *map(str, words)],
        env={**os.environ, "lib": str(flatq.home()), "FLATQ_DIR": spool},
        stdin=subprocess.DEVNULL, capture_output=True, pass_fds=keep, text=True, errors="replace")
    if done.returncode:
        raise flatq.errors.error_of("push", done.returncode, done.stderr.strip())
    return done.stdout.split()


def named(job: str) -> str:
    """The name of a job in the spool. Raises ValueError."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", job):
        refuse("jobId", job, "1 to 100 letters, digits, - and _")
    return f"job-{job}"


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged, if anything: messages and bytes for each queue."""

    job: str
    stage: str = ""
    sizes: dict[str, list[int]] = field(default_factory=dict)


class Ids:
    """Ids reserved for a task, by one process for many thousand. Those left over are lost."""

    def __init__(self, spool: str) -> None:
        self.spool, self.first, self.left, self.asked, self.born = spool, 0, 0, 0, 0
        self.most = 0, 0  # messages and bytes of a flat file
        self.names: set[str] = set()

    def take(self, count: int, queue: str) -> int:
        if self.left < count or queue not in self.names:
            ask = max(count, min(self.asked * 5, 200000))
            self.first, self.born, *most = map(int, engine(self.spool, "ids", ask, queue))
            self.most = most[0], most[1]
            self.left = self.asked = ask
            self.names.add(queue)
        first = self.first
        self.first, self.left = first + count, self.left - count
        return first


def columns(schema: StructType, options: Options, overwrite: bool) -> None:
    """Raises ValueError if rows of this schema cannot become messages."""
    if overwrite:
        raise ValueError("a queue is appended to: mode('append')")
    kinds = {one.name: one.dataType for one in schema.fields}
    bodies = [kinds[name] for name in flat.BODY if name in kinds]
    if len(bodies) != 1 or not isinstance(bodies[0], (BinaryType, StringType)):
        raise ValueError("a row needs one column `body` or `value`, binary or string: "
            "to_json(struct(*)) makes one of all columns")
    if (not isinstance(kinds.get("queue", StringType()), StringType)
            or not isinstance(kinds.get("priority"), (IntegralType, type(None)))):
        raise ValueError("the column `queue` is a string, `priority` a number")
    for name in {"key", "delay"} & set(kinds):
        raise ValueError(f"the sink has no column `{name}`: push such messages one by "
            "one, with flatq.Queue.push")
    if not options.queues and "queue" not in kinds:
        refuse("topic", None, "a queue, and there is no column `queue`")


def planned(checkpoint: str, batch: int) -> str:
    """The sum of what a checkpoint on this machine says of a batch; else nothing."""
    with contextlib.suppress(OSError, Elsewhere), \
            open(f"{local(checkpoint)}/offsets/{batch}", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
    return ""


class Sink:
    """Steps 1 to 5 of the order above."""

    def __init__(self, options: Options) -> None:
        self.spool = options.path
        # overrides the column: rows of one queue can be written to another
        self.queue = options.queues[0] if options.queues else None
        self.priority = options.whole("priority", 65536)
        self.lease = options.whole("lease", 60) or 0
        self.wait = options.whole("wait", 0) or 0
        #: The descriptor of the job's lock; valid only in `commit`
        self.lock = -1

    def top(self, job: str) -> str:
        return os.path.join(self.spool, ".spark", job)

    def stage(self, job: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Step 1, in a task. Raises ValueError if a row cannot be a message."""
        stage = f"stage.{uuid.uuid4().hex}"
        top = os.path.join(self.top(job), stage)
        ids, nonce = Ids(self.spool), uuid.uuid4().hex[:12]
        sizes: dict[str, list[int]] = {}
        with private():
            for batch in filter(len, batches):
                self.write(top, batch, ids, nonce, sizes)
        if not sizes:
            return Staged(job)
        sync(top, self.spool)
        return Staged(job, stage, sizes)

    def write(self, top: str, batch: pa.RecordBatch, ids: Ids, nonce: str,
            sizes: dict[str, list[int]]) -> None:
        names = batch.schema.names
        bodies = batch["body" if "body" in names else "value"].cast(pa.binary()).to_pylist()
        if None in bodies:
            raise ValueError("a row's body is null")
        groups: dict[tuple[Any, Any], list[bytes]] = {}
        if self.queue and "priority" not in names:
            groups[self.queue, self.priority] = bodies
        else:
            queues = itertools.repeat(self.queue) if self.queue else batch["queue"].to_pylist()
            priorities = (batch["priority"].to_pylist() if "priority" in names
                else itertools.repeat(self.priority))
            for queue, priority, body in zip(queues, priorities, bodies):
                groups.setdefault((queue, priority), []).append(body)
        for (queue, priority), some in groups.items():
            if queue is None or priority is None or not 0 <= priority < 1 << 32:
                raise ValueError(f"a row's queue is {queue!r}, its priority {priority!r}: not "
                    "a name and a number from 0 to 4294967295")
            name = disk_name(queue)
            first = ids.take(len(some), queue)
            flat.Stage(os.path.join(top, name), first, nonce, ids.born, ids.most,
                self.lease).write(some, priority)
            size = sizes.setdefault(name, [0, 0])
            size[0] += len(some)
            size[1] += sum(map(len, some))

    def commit(self, messages: list[Any], batch: int, mark: str = "") -> None:
        """Steps 2 to 5, in the driver; batch: 0 for a batch write; mark: see `planned`."""
        staged = [message for message in messages if message is not None]
        top = self.top(staged[0].job) if staged else ""
        if any(message.stage for message in staged) or os.path.exists(top):
            with private():
                os.makedirs(top, exist_ok=True)
                # A second driver waits for the first, or for a killed one's shell
                with alone(top) as self.lock:
                    self.decide(top, staged, batch, mark)

    def decide(self, top: str, staged: list[Staged], batch: int, mark: str) -> None:
        """Make what was staged the plan of the batch, unless it has one, and carry it out. Raises
        Closed or Full before anything is decided, Lost, and as `roll`."""
        plan = os.path.join(top, "plan")
        old = self.plan(plan)
        if old is not None and old["batch"] != batch:
            # Spark has committed this batch: only its end is missing
            self.roll(top, old)
            old = None
        done = self.done(staged[0].job)
        before = None
        if done == batch:
            before = (self.plan(os.path.join(top, f"done.{batch}")) or {}).get("mark")
        elif done < batch:
            if old is None:
                counts: Counter[str] = Counter()
                for message in staged:
                    counts.update({name: size[0] for name, size in message.sizes.items()})
                self.room(counts)
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
            raise flat.Lost(f"batch {batch} of this query is stored already, and its checkpoint "
                "has planned it anew: an older copy, or a power cut has taken a part of it. "
                "Nothing of this run was stored. Begin anew, with another checkpoint")

    def put(self, path: str, what: Mapping[str, Any]) -> None:
        """Write a file of JSON whole, by a rename."""
        new = os.path.join(os.path.dirname(path), "plan.new")
        with open(new, "w") as file:
            json.dump(what, file)
            file.flush()
            # Before the rename: a power cut may keep a name without what it names
            if syncs(self.spool):
                os.fsync(file.fileno())
        os.rename(new, path)

    def check(self, top: str, message: Staged) -> None:
        """Raises Lost if a stage is not complete: `flatq wal` may have removed it."""
        for queue, (count, _) in message.sizes.items():
            place = os.path.join(top, message.stage, queue)
            there = sum(piece.count for piece in self.staged(place))
            if there != count:
                raise flat.Lost(f"{place}: {there} of {count} staged messages are there")

    def clear(self, top: str) -> None:
        """Step 5."""
        for stage in glob.glob(f"{glob.escape(top)}/stage.*"):
            shutil.rmtree(stage, ignore_errors=True)

    def over(self, job: str) -> bool:
        """Whether a job's one batch is in the queues; if so, remove what a killed driver left."""
        if self.done(job) < 0:
            return False
        top = self.top(job)
        # RACE: the driver that has just written done.N has still to remove its plan
        with alone(top):
            # CRASH: until done.N is on the disk, the plan must stay there
            sync(top, self.spool)
            self.clear(top)
            for plan in glob.glob(f"{glob.escape(top)}/plan*"):
                os.unlink(plan)
        return True

    def done(self, job: str) -> int:
        """The last batch that is in the queues, or -1."""
        return max((int(name[5:]) for name in flat.listed(self.top(job))
            if name.startswith("done.")), default=-1)

    def plan(self, path: str) -> dict[str, Any] | None:
        """What a file of `put` holds; None if it is not there, or empty after a power cut."""
        decided: dict[str, Any] | None = None
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if text := file.read():
                decided = json.loads(text)
        return decided

    def roll(self, top: str, plan: dict[str, Any]) -> None:
        """Steps 3 and 4. If it raises, the next run goes on where this one ended."""
        # CRASH: the driver that renamed the plan may have died before it synced. Without the plan,
        # a power cut would let the batch enter once more
        sync(top, self.spool)
        for stage, sizes in plan["stages"].items():
            for queue, size in sizes.items():
                self.enter(os.path.join(top, stage, queue), queue, size[1])
        new = f"{top}/done.{plan['batch']}"
        self.put(new, {"mark": plan.get("mark", "")})
        sync(top, self.spool)
        for old in (f"{top}/plan", *glob.glob(f"{glob.escape(top)}/done.*")):
            if old != new:
                os.unlink(old)

    def room(self, sizes: Mapping[str, int]) -> None:
        """Wait until the queues seem to have room. Raises Full after `wait` seconds, and Closed."""
        end = time.monotonic() + self.wait
        for queue, count in sizes.items():
            while True:
                try:
                    engine(self.spool, "room", flat.queue_name(queue), count)
                    break
                except package().Full as error:
                    if time.monotonic() >= end or "bound below" in str(error):
                        raise
                time.sleep(0.2)

    def enter(self, stage: str, queue: str, size: int) -> None:
        """Step 3 for a queue of a stage. Raises what the engine does, even if all have entered: a
        second try would not see that a sync has failed."""
        pieces = self.staged(stage)
        if pieces:
            engine(self.spool, "enter", flat.queue_name(queue), stage, pieces[0].name.nonce,
                sum(piece.count for piece in pieces), size,
                min(piece.name.first for piece in pieces), self.wait, keep=(self.lock,))

    def staged(self, stage: str) -> list[flat.Piece]:
        """The flat files of a stage. Removes empty blocks, which the engine does not accept."""
        found = []
        for block in sorted(flat.listed(stage)):
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
                plan = self.plan(os.path.join(top, "plan")) or {"stages": {}}
                if message.stage not in plan["stages"]:
                    shutil.rmtree(os.path.join(top, message.stage), ignore_errors=True)


class Writer(DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        columns(schema, options, overwrite)
        self.sink = Sink(options)
        job = options.given.get("jobId")
        self.once = job is None
        self.job = f"once-{uuid.uuid4().hex}" if job is None else named(job)

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.sink.done(self.job) >= 0:
            return Staged(self.job)
        return self.sink.stage(self.job, iterator)

    @told
    def commit(self, messages: list[Any]) -> None:
        self.sink.commit(messages, 0)
        if self.once:
            shutil.rmtree(self.sink.top(self.job), ignore_errors=True)

    def abort(self, messages: list[Any]) -> None:
        self.sink.abort(messages)
        if self.once and not os.path.exists(os.path.join(self.sink.top(self.job), "plan")):
            shutil.rmtree(self.sink.top(self.job), ignore_errors=True)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        columns(schema, options, overwrite)
        self.sink = Sink(options)
        self.checkpoint = options.given.get("checkpointLocation", "")

    @told
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        # a number of the run would change at a restart
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query:
            raise RuntimeError("no query id: this PySpark is too old")
        return self.sink.stage(f"query-{query}", iterator)

    @told
    def commit(self, messages: list[Any], batchId: int) -> None:
        self.sink.commit(messages, batchId, planned(self.checkpoint, batchId))

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.sink.abort(messages)
