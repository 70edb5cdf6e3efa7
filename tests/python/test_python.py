"""python/flatq, the wrapper: every method, here and through a door; signals, cancellations and
time-outs; the wheel."""

import asyncio
import errno
import gc
import inspect
import os
import pickle
import pydoc
import queue
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from conftest import LIB, ROOT, need, wait_for
from engine import carriers

sys.path.insert(0, str(ROOT / "python"))

import flatq as package
from flatq import (
    AsyncMessage, AsyncQueue, AsyncReserved, Busy, Closed, Disk, Empty, Error, Full, Internal,
    Invalid, Missing, NotYours, Queue, TimedOut, Unreachable, Usage)
from flatq import errors, verbs

ANY = bytes(range(256)) * 40 + b"\nerror 66 not really\nok\n"


@pytest.fixture(autouse=True)
def unsynced(monkeypatch, tmp_path):
    monkeypatch.setenv("FLATQ_SYNC", "off")
    monkeypatch.setenv("FLATQ_DIR", str(tmp_path / "not-this-one"))
    yield
    assert not (tmp_path / "not-this-one").exists(), "the path was not passed on"


@pytest.fixture
def names_of(request, spool):
    """names_of("door"): the arguments of Queue, for a spool or for a door to it."""
    def make(where):
        if where != "door":
            return "jobs", spool
        return f"127.0.0.1:{request.getfixturevalue('launched')('-k', door='line').port}/jobs", None

    return make


@pytest.fixture(params=["here", "door"])
def names(request, names_of):
    return names_of(request.param)


@pytest.fixture
def jobs(spool):
    return Queue("jobs", spool)


class Awaited:
    """An AsyncQueue, or one of its messages, whose methods are awaited at once."""

    def __init__(self, twin):
        self.twin = twin

    def __getattr__(self, name):
        def run(*args, **more):
            async def main():
                return await method(*args, **more)

            return wrapped(asyncio.run(main()))

        method = getattr(self.twin, name)
        if inspect.iscoroutine(method):
            return asyncio.run(method)
        return run if callable(method) else method

    def __enter__(self):
        return Awaited(asyncio.run(self.twin.__aenter__()))

    def __exit__(self, *error):
        return asyncio.run(self.twin.__aexit__(*error))

    def reservations(self, **more):
        return self.turns(self.twin.reservations(**more))

    def __iter__(self):
        return self.turns(self.twin)

    def turns(self, twin):
        """A turn of the loop each, in one event loop."""
        loop = asyncio.new_event_loop()
        turns = twin.__aiter__()
        try:
            with suppress(StopAsyncIteration):
                while True:
                    said = loop.run_until_complete(turns.__anext__())
                    yield Awaited(said) if isinstance(said, AsyncReserved) else said
        finally:
            loop.run_until_complete(turns.aclose())
            loop.close()


def wrapped(said):
    if isinstance(said, list):
        return [wrapped(one) for one in said]
    return Awaited(said) if isinstance(said, (AsyncReserved, AsyncMessage)) else said


@pytest.fixture(params=["async", "here", "door"])
def each(request, names_of, spool):
    """A queue here, one through a door, and an AsyncQueue."""
    queue = (AsyncQueue if request.param == "async" else Queue)(*names_of(request.param))
    return Awaited(queue) if request.param == "async" else queue


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """stub(script): every verb runs only that script."""

    def make(script):
        place = tmp_path / "stub"
        place.mkdir(exist_ok=True)
        (place / "flatq").write_text(script)
        (place / "push").touch()
        monkeypatch.setenv("FLATQ_LIB", str(place))

    return make


def running(spool):
    """Processes that were started with this spool, even if they have left the session or the
    process group."""
    return carriers(f"FLATQ_DIR={spool}\0")


def waits(spool, before=()):
    wait_for(lambda: set(spool.glob("jobs/wait/*")) - set(before), "somebody to wait")


def nothing_left(spool):
    wait_for(lambda: not running(spool), f"no process: {running(spool)}", seconds=20)
    assert not list(spool.glob(".wait/*"))


def descriptors():
    gc.collect()  # close what other tests have left open
    return set(os.listdir("/proc/self/fd"))


# ---- every method


def test_every_method(each):
    jobs = each
    assert jobs.qsize() == 0
    jobs.create(bound=50, max_tries=9)
    first = jobs.push(ANY)
    second = jobs.push(bytearray(b"later"), priority=70000, key="k")
    assert (first, first.dup, second > first) == (1, False, True)
    again = jobs.push(b"", key="k")
    assert (again, again.dup) == (second, True)
    third = jobs.push(memoryview(b"delayed"), delay=1000, lease=2.5)
    assert jobs.qsize() == 2
    stats = jobs.stats()
    assert [stats[name] for name in ("ready", "delayed", "bound", "most_tries", "closed")] == [
        2, 1, 50, 9, 0]
    # its name before
    assert stats["most-tries"] == 9
    assert jobs.peek() == ANY
    assert (jobs.peek("delayed"), jobs.peek(id=second)) == (b"delayed", b"later")
    assert jobs.pop() == ANY

    message = jobs.reserve(lease=300)
    assert (message.id, message.tries, message.body) == (second, 1, b"later")
    assert message.receipt.startswith("jobs:")
    assert jobs.peek("reserved") == b"later"
    message.touch()
    jobs.touch(message.receipt, lease=400)
    message.release(priority=3)
    with jobs.reserve() as again:
        assert (again.id, again.tries) == (second, 2)
        with pytest.raises(NotYours):
            message.delete()
    assert jobs.qsize() == 0

    assert jobs.kick() == 1 and jobs.kick(5) == 0
    with pytest.raises(KeyError), jobs.reserve():
        raise KeyError
    with jobs.reserve() as message:
        assert (message.id, message.tries) == (third, 2)
        message.bury(reason="broken")
    assert jobs.peek("buried") == b"delayed" and jobs.stats()["buried"] == 1
    with pytest.raises(Busy):
        jobs.drop()
    assert jobs.kick(3) == 1
    jobs.release(jobs.reserve().receipt)
    jobs.bury(jobs.reserve().receipt)
    jobs.kick()
    jobs.delete(jobs.reserve().receipt)

    assert [len(jobs.push_many(bodies)) for bodies in ([b"a", b"", b"c\n"], [], [b"d\0"])] == [
        3, 0, 1]
    assert list(jobs) == [b"a", b"", b"c\n", b"d\0"]
    assert jobs.empty() and not jobs.full()
    jobs.push_many([b"1", b"2", b"3"], priority=1, lease=10, wait=1)
    assert [jobs.drain(2), jobs.drain(), jobs.drain()] == [[b"1", b"2"], [b"3"], []]
    jobs.push(b"last")
    jobs.pause(900.5)
    with pytest.raises(Empty, match="paused"):
        jobs.pop()
    assert 890 < jobs.stats()["paused"] <= 901
    jobs.pause()
    assert jobs.stats()["paused"] == 2**32 - 1
    jobs.resume()
    with pytest.raises(TimedOut):
        jobs.wait(timeout=0)
    jobs.wait(first, timeout=9)
    jobs.shutdown()
    with pytest.raises(Closed):
        jobs.push(b"x")
    assert jobs.pop() == b"last"
    with pytest.raises(Closed):
        jobs.pop()
    assert list(jobs) == [] == jobs.drain()
    jobs.drop(force=True)
    with pytest.raises(Missing):
        jobs.stats()


@pytest.mark.parametrize("each", ["async", "here"], indirect=True)
def test_claim(each):
    """Many messages are claimed under a name and listed again, then settled or given back."""
    each.push_many([b"%d" % n for n in range(20)])
    segments = each.claim("me", 15)
    assert sum(segment.count for segment in segments) == 15
    assert segments[0].offset == 0 and os.path.isdir(segments[0].path)
    assert each.claim("me", 0) == segments
    assert each.pop() == b"15"
    each.unclaim("me")
    assert each.peek() == b"0"
    end = max(segment.offset + segment.count for segment in each.claim("me"))
    with pytest.raises(Invalid):
        each.settle("me", end - 1)
    each.settle("me", end)
    with pytest.raises(Empty):
        each.claim("me")
    with pytest.raises(Missing):
        each.unclaim("you")


def test_dead_letters(each):
    """They are found, read, sent again and thrown away. What is delayed says until when."""
    jobs, begun = each, datetime.now(timezone.utc)
    ids = [jobs.push(b"%d" % number) for number in range(5)]
    for reason in ("bad", "bad", "worse", "worse"):
        jobs.reserve().bury(reason=reason)
    jobs.reserve(lease=timedelta(minutes=2)).touch()
    jobs.push(b"later", delay=timedelta(hours=1))
    day = timedelta(days=1)
    # A door's clock is another
    day = {"delay": day} if getattr(jobs, "host", "") else {"at": datetime.now() + day}
    jobs.push(b"at", expire=timedelta(days=2), **day)
    buried = jobs.messages("buried")
    assert [(row.id, row.tries, row.reason, row.due, row.body) for row in buried] == [
        (id, 1, reason, None, b"%d" % number) for number, (id, reason) in enumerate(
            zip(ids, ("bad", "bad", "worse", "worse")))]
    assert (buried[0].priority, buried[0].size, buried[0].said) == (65536, 1, None)
    dues = {row.state: row.due - begun for row in jobs.messages() if row.due}
    assert sorted(dues) == ["delayed", "reserved"]
    assert timedelta(hours=23) < dues["delayed"] < timedelta(hours=25)
    assert jobs.kick(reason="bad") == 2 and jobs.kick(id=ids[2]) == 1
    assert [row.tries for row in jobs.messages("ready")] == [0] * 3
    assert (jobs.delete(id=ids[0]), jobs.delete(state="buried")) == (1, 1)
    with pytest.raises(Missing):
        jobs.kick(id=ids[0])
    assert [row.id for row in jobs.messages("ready")] == ids[1:3]
    with pytest.raises(Empty):
        print(buried[0].body)
    with pytest.raises(TypeError, match="one of receipt, id and state"):
        jobs.delete()


@pytest.mark.parametrize("each", ["async", "here"], indirect=True)
def test_log(each):
    # The verbs count from the boot, in whole seconds
    begun = datetime.now(timezone.utc) - timedelta(seconds=2)
    each.push_many([b"1", b"2"])
    id = each.push(b"3", delay=60)
    pushed, delayed = each.log()
    assert (pushed.event, pushed.id, pushed.count, pushed.due) == ("push", 1000, 2, None)
    assert (delayed.id, delayed.due - delayed.time < timedelta(seconds=61)) == (id, True)
    assert begun <= pushed.time <= delayed.time <= begun + timedelta(seconds=60)
    assert each.log(1, since=timedelta(hours=1)) == each.log(since=begun)[1:] == [delayed]
    assert each.log(since=datetime.now() + timedelta(hours=1)) == []


def test_queues(names, tmp_path):
    where = {"host": names[0].rpartition("/")[0]} if names[1] is None else {"path": names[1]}
    for name in ("jobs", "a/b"):
        Queue(names[0].replace("jobs", name), names[1]).push(b"x")
    assert [queue.pop() for queue in package.queues(**where)] == [b"x"] * 2
    with pytest.raises(Missing):
        package.queues(tmp_path / "none")


def test_as_queue_Queue_does(each):
    """The names of the standard library's queue, and what they raise."""
    jobs = each
    jobs.create(bound=2)
    jobs.put(b"1")
    jobs.put_nowait(bytearray(b"2"))
    assert jobs.full() and not jobs.empty()
    for words in ({"block": False}, {"timeout": 0.1}):
        with pytest.raises(queue.Full):
            jobs.put(b"3", **words)
    with pytest.raises(queue.Full):
        jobs.put_nowait(b"3")
    assert (jobs.get(), jobs.get_nowait()) == (b"1", b"2")
    for words in ({"block": False}, {"timeout": 0.1}):
        with pytest.raises(queue.Empty):
            jobs.get(**words)
    with pytest.raises(queue.Empty):
        jobs.get_nowait()
    with pytest.raises(ValueError, match="non-negative"):
        jobs.get(timeout=-1)
    jobs.join()
    jobs.put(b"3")
    with pytest.raises(TimeoutError):
        jobs.join(timeout=1)
    jobs.get()
    with pytest.warns(DeprecationWarning, match="shutdown"):
        jobs.close()
    for closed in (lambda: jobs.put(b"3"), jobs.get):
        with pytest.raises(getattr(queue, "ShutDown", Closed)):
            closed()
    jobs.drop()
    assert jobs.empty() and not jobs.full()


def states(jobs):
    stats = jobs.stats()
    return tuple(stats[state] for state in ("ready", "reserved", "buried"))


def test_reservations(each):
    """Each message is deleted after the loop's body; an exception and a break give it back."""
    jobs = each
    jobs.push_many([b"1", b"2", b"3", b"4", b"5"])
    seen = []
    for message in jobs.reservations(lease=1000):
        assert states(jobs)[1] == 1
        seen.append(message.body)
        if len(seen) == 2:
            message.bury()
        if len(seen) == 3:
            break
    assert seen == [b"1", b"2", b"3"] and wait_for(lambda: states(jobs) == (3, 0, 1))
    with pytest.raises(KeyError):
        for _message in jobs.reservations():
            raise KeyError
    wait_for(lambda: states(jobs) == (3, 0, 1))
    assert [message.body for message in jobs.reservations()] == [b"3", b"4", b"5"]
    assert not list(jobs.reservations(wait=0.1)) and states(jobs) == (0, 0, 1)


async def out_of_time(what, begun):
    """Await `what` until `begun` is true; then its time is over."""
    task = asyncio.ensure_future(what)
    await asyncio.to_thread(wait_for, begun)
    return await asyncio.wait_for(task, 0.05)


@pytest.mark.parametrize("end", ["killed", "interrupted", "cancelled"])
def test_a_drain_that_ends_early(jobs, spool, stub, tmp_path, monkeypatch, end):
    """No message that the verb has printed is lost: drain returns them, or the exception has
    them."""
    begun = tmp_path / "begun"
    stub(f"printf 'YQ==\\n\\nYgo=\\n'; >{begun}; "
        + ("kill -9 $$" if end == "killed" else "exec sleep 60"))
    taken = [b"a", b"", b"b\n"]
    if end == "killed":
        assert jobs.drain() == taken
    elif end == "interrupted":
        def interrupted(call, seconds):
            monkeypatch.setattr(verbs.Call, "ends", ends)
            wait_for(begun.exists)
            raise KeyboardInterrupt

        ends = verbs.Call.ends
        monkeypatch.setattr(verbs.Call, "ends", interrupted)
        with pytest.raises(KeyboardInterrupt) as raised:
            jobs.drain(1001)
        assert raised.value.taken == taken
    else:
        twin = AsyncQueue("jobs", spool)
        assert asyncio.run(out_of_time(twin.drain(), begun.exists)) == taken


def test_bodies(jobs):
    for bodies in ([b""], [b"", b"\n", b"\n\n"], [b"\0", b"", b"\0\0"], [b"\n\0", b"", ANY],
            [b"x" * 70000] * 3):
        ids = jobs.push_many(bodies)
        assert len(ids) == len(bodies) and list(ids) == sorted(set(ids))
        assert [jobs.peek(id=number) for number in ids] == bodies
        assert jobs.drain() == bodies
    many = [b"%d\n" % number for number in range(2000)]
    ids = jobs.push_many(iter(many))
    assert list(ids) == list(range(ids[0], ids[0] + 2000)) and jobs.drain() == many


WRONG = [
    (TypeError, "body is bytes, not str: text.encode", lambda queue: queue.push("x")),
    (TypeError, "body is bytes, .*bytes-like.*, not int", lambda queue: queue.push_many([b"", 5])),
    (TypeError, "bodies is several messages, .*, not bytes", lambda queue: queue.push_many(b"x")),
    (TypeError, "priority is an int, not str", lambda queue: queue.push(b"x", priority="high")),
    (TypeError, "priority is an int, not float", lambda queue: queue.push(b"x", priority=1.5)),
    (Invalid, "push: priority takes a number from 0 to", lambda queue: queue.push(
        b"x", priority=-1)),
    (TypeError, "delay is a number of seconds, or a timedelta, not str", lambda queue: queue.push(
        b"x", delay="soon")),
    (TypeError, "delay is .*, not list", lambda queue: queue.push(b"x", delay=[1])),
    (ValueError, "delay is a number of seconds, not nan", lambda queue: queue.push(
        b"x", delay=float("nan"))),
    (Invalid, "^push: delay takes", lambda queue: queue.push(b"x", delay=timedelta(-1))),
    (Invalid, "^push: delay ", lambda queue: queue.push(b"x", delay=-1)),
    (TypeError, "key is a str, not float", lambda queue: queue.push(b"x", key=7.5)),
    (TypeError, "at is a datetime, not int", lambda queue: queue.push(b"x", at=5)),
    (TypeError, "since is a datetime, or a timedelta, not str", lambda queue: queue.log(
        since="yesterday")),
    (TypeError, "wait is a number of seconds", lambda queue: queue.pop(wait="x")),
    (TypeError, "timeout is a number of seconds", lambda queue: queue.get(timeout="x")),
    (TypeError, "id is an int, not str", lambda queue: queue.peek(id="x")),
    (ValueError, "id is a number from 0, not -1", lambda queue: queue.kick(id=-1)),
    (ValueError, "state is one of ready, .*, not 'redy'", lambda queue: queue.messages("redy")),
    (ValueError, "reason takes at most 40", lambda queue: queue.bury("jobs:1", reason="a b")),
    (TypeError, "receipt is a str, not NoneType", lambda queue: queue.touch(None)),
    (TypeError, "receipt, id and state", lambda queue: queue.delete("jobs:1", id=5)),
    (TypeError, r"^(Queue\.)?push\(\) got an unexpected keyword argument", lambda queue: queue.push(
        b"x", prio=4)),
    (TypeError, r"^(Queue\.)?push\(\) missing 1 required", lambda queue: queue.push()),
    (TypeError, "name is a str, not int", lambda queue: Queue(5)),
    (TypeError, "path is a str or a path, not int", lambda queue: Queue("jobs", 5)),
    (TypeError, "timeout is a number", lambda queue: Queue("jobs", timeout="5")),
]


@pytest.mark.parametrize("kind, words, call", WRONG, ids=[words for _, words, _ in WRONG])
def test_a_wrong_argument(jobs, kind, words, call):
    """An error names the argument, and what is allowed."""
    with pytest.raises(kind, match=words):
        call(jobs)
    assert jobs.qsize() == 0


def test_errors_speak_python(jobs):
    jobs.push(b"x")
    with pytest.raises(Busy, match="use force=True"):
        jobs.drop()
    with pytest.warns(DeprecationWarning, match="max_tries") as said:
        jobs.create(most_tries=3)
    assert jobs.stats()["most-tries"] == 3 and said[0].filename == __file__


def test_names(spool, tmp_path, monkeypatch):
    for name, host, rest in (("a/b", "", "a/b"), ("far:1/a/b", "far:1", "a/b"),
            ("far:1", "far:1", "default"), ("[::1]:1234/jobs", "[::1]:1234", "jobs")):
        assert (Queue(name).host, Queue(name).name) == (host, rest)
    assert eval(repr(Queue("jobs", spool))).path == str(spool)
    assert repr(Queue("far:1/a")) == "Queue('far:1/a')"
    with pytest.raises(ValueError):
        Queue("far:1/a", spool)
    monkeypatch.chdir(tmp_path)
    here = Queue("a/b", "spool")
    monkeypatch.chdir("/")
    here.push(b"x")
    assert Queue("a/b", spool).pop() == b"x"
    with pytest.raises(Invalid, match="bad queue name"):
        Queue("-x", spool).push(b"x")
    monkeypatch.setenv("FLATQ_DIR", str(spool))
    Queue().push(b"y")
    assert Queue("default", spool).pop() == b"y"


def test_pickled(jobs):
    jobs.push(b"x")
    message = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(jobs)).reserve()))
    assert message.body == b"x"
    message.delete()
    assert jobs.stats()["reserved"] == 0
    error = pickle.loads(pickle.dumps(errors.error_of("pop", 66, "pop: nothing there")))
    assert (type(error), str(error), error.code, error.verb) == (Empty, "pop: nothing there", 66,
        "pop")


# ---- errors

KINDS = {
    1: {"pop": Error}, 64: {"push": Usage}, 65: {"push": Invalid, "settle": Invalid},
    66: {**dict.fromkeys(("pop", "reserve", "drain", "peek", "claim"), Empty),
         **dict.fromkeys(("delete", "release", "touch", "bury"), NotYours),
         **dict.fromkeys(("push", "kick", "stat", "close", "drop", "settle"), Missing)},
    68: {"pop": Unreachable}, 69: {"pop": Closed}, 70: {"stat": Internal}, 73: {"put": Busy},
    74: {"push": Disk}, 75: {"push": Full, "drop": Busy, "pop": Busy}, 77: {"push": errors.Denied},
    126: {"pop": Error}, 127: {"pop": Error}}


@pytest.mark.parametrize("code", KINDS)
def test_table(jobs, stub, code):
    stub(f'printf "%s: no, \\303\\251\\n" "$1" >&2; exit {code}')
    for verb, kind in KINDS[code].items():
        with pytest.raises(Error) as raised:
            asyncio.run(AsyncQueue._call(jobs, verb, bytes))
        error = raised.value
        assert (type(error), str(error), error.code, error.verb) == (kind, f"{verb}: no, é", code,
            verb)


def test_every_error_is_public():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)
        and issubclass(kind, Error)}
    assert {kind.__name__ for kind in kinds} <= set(package.__all__)
    for ours, theirs in ((Invalid, ValueError), (Unreachable, ConnectionError),
            (TimedOut, TimeoutError)):
        assert issubclass(ours, theirs)


@pytest.mark.parametrize("script, kind, text", [
    ("kill -KILL $$", Error, "reserve: ended by signal 9"),
    ("exit 3", Error, "reserve: exit code 3"),
    ("printf 'jobs:1.1.00 1 1 5\\nabc'", Internal, "3 bytes came of 5")])
def test_strange_ends(jobs, stub, script, kind, text):
    stub(script)
    with pytest.raises(Error, match=text) as raised:
        jobs.reserve()
    assert type(raised.value) is kind


def test_real_errors(jobs, spool, tmp_path, free_port):
    jobs.create(bound=1)
    for stored in ([], [1]):
        with pytest.raises(Full, match="push: queue 'jobs' is full") as raised:
            jobs.push_many([b"\0\n", b"2"], wait=0.1)
        assert len(raised.value.ids) == 1 - len(stored)
    assert jobs.drain() == [b"\0\n"]
    for key in ("", "\0", "\ud800"):
        with pytest.raises(Invalid):
            jobs.push(b"x", key=key)
    (tmp_path / "file").touch()
    with pytest.raises(Missing):
        Queue("jobs", tmp_path / "file").push(b"x")
    nobody = Queue(f"127.0.0.1:{free_port}/jobs")
    for call in (nobody.pop, lambda: list(nobody)):
        with pytest.raises(Unreachable) as raised:
            call()
        assert raised.value.code == 68


def test_status_that_nobody_keeps(jobs, spool):
    """If SIGCHLD is ignored, a cancelled pop would look like an empty message."""
    jobs.push(b"kept")
    ignore = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    said = python(f"{ignore}import flatq; flatq.Queue('jobs', {str(spool)!r}).pop()")
    assert said.returncode == 1 and b"flatq.errors.Internal: SIGCHLD is ignored" in said.stderr
    assert jobs.pop() == b"kept"


# ---- threads, fork, signals, time-outs


def ours():
    """An environment in which Python finds the package."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}


def python(script):
    return subprocess.run([sys.executable, "-c", script], env=ours(), capture_output=True,
        timeout=100)


def start(script):
    return subprocess.Popen([sys.executable, "-c", script], env=ours(), stderr=subprocess.PIPE)


def test_threads(jobs):
    jobs.push(b"warm"), jobs.pop()
    before = descriptors()

    def work(thread):
        for number in range(6):
            jobs.push(b"%d.%d" % (thread, number))
        return [jobs.pop() for _ in range(6)]

    with ThreadPoolExecutor(8) as pool:
        taken = [body for bodies in pool.map(work, range(8)) for body in bodies]
    assert sorted(taken) == sorted(b"%d.%d" % (thread, number) for thread in range(8)
        for number in range(6))
    assert descriptors() == before


def test_fork(jobs, spool):
    """The child of a fork uses the same Queue while a thread of the parent waits with it."""
    jobs.create()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(jobs.pop, wait=float("inf"))
        waits(spool)
        child = os.fork()
        if not child:
            status = 1
            try:
                jobs.push(b"of the child")
                status = 0
            finally:
                os._exit(status)
        assert waiting.result(20) == b"of the child"
        assert os.waitpid(child, 0)[1] == 0
    nothing_left(spool)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP],
    ids=lambda number: number.name)
def test_signal(jobs, spool, number):
    """None of its verbs may go on, although Python raises an exception only for SIGINT."""
    if number != signal.SIGINT:
        need("setpriv")
    jobs.create()
    process = start(f"import flatq; flatq.Queue('jobs', {str(spool)!r}).pop(wait=60)")
    waits(spool)
    process.send_signal(number)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == -number and (number != signal.SIGINT
        or b"KeyboardInterrupt" in err)
    wait_for(lambda: not running(spool), "no process", seconds=20)
    jobs.push(b"x")
    assert jobs.pop() == b"x"


class Ring(BaseException):
    pass


def test_interrupted(jobs, spool, monkeypatch):
    """At every moment of a verb: the message is back at once, whole, and no process is left."""
    ends = verbs.Call.ends

    def interrupt(verb, seconds, act):
        def ring(call, limit):
            if call.verb == verb:
                monkeypatch.setattr(verbs.Call, "ends", ends)
                ends(call, seconds)
                raise Ring
            return ends(call, limit)

        monkeypatch.setattr(verbs.Call, "ends", ring)
        with pytest.raises(Ring):
            act()
        nothing_left(spool)

    jobs.push(b"warm")
    before, began = descriptors(), time.monotonic()
    jobs.pop()
    step = (time.monotonic() - began) / 16
    interrupt("pop", 0.2, lambda: jobs.pop(wait=60))
    for turn in range(24):
        jobs.push(b"%d" % turn)
        interrupt("reserve", step * turn, lambda: jobs.reserve(lease=1000))
        assert states(jobs) == (1, 0, 0), turn
        interrupt("release", step * turn, jobs.reserve(lease=1000).release)
        assert states(jobs) == (1, 0, 0), turn
        assert jobs.pop() == b"%d" % turn
        interrupt("push", step * turn, lambda: jobs.push(b"x" * 200000))
        assert jobs.drain() in ([], [b"x" * 200000])
    assert descriptors() == before


def test_interrupted_as_it_begins(jobs, spool):
    """No verb goes on that would take a later message: an exception inside Popen left one."""
    def ring(*_):
        raise Ring

    jobs.create()
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        for turn in range(400):
            alarm = threading.Timer(turn % 50 / 10_000, os.kill, (os.getpid(), signal.SIGUSR1))
            with pytest.raises(Ring):
                alarm.start()
                jobs.pop(wait=60)
            alarm.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    nothing_left(spool)


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
@pytest.mark.parametrize("script", ["trap '' TERM; sleep 1000 & sleep 1000",
                                    "(trap '' TERM; sleep 1000) & sleep 1000"])
def test_deaf(spool, stub, monkeypatch, script, kind):
    """A verb that ignores TERM is killed, with all that it has started."""
    monkeypatch.setattr(verbs, "GRACE", 0.3)
    stub(script)
    impatient = kind("jobs", spool, timeout=0.2)
    with pytest.raises(TimedOut, match="stat: ended after 0.2 seconds"):
        (Awaited(impatient) if kind is AsyncQueue else impatient).stats()
    wait_for(lambda: not running(spool), "no process")


def test_time_out(jobs, spool):
    jobs.push(b"x")
    patient = Queue("jobs", spool, timeout=100)
    assert patient.pop() == b"x"
    with pytest.raises(Empty):
        patient.pop(wait=0.2)
    with pytest.raises(TimedOut):
        Queue("jobs", spool, timeout=-0.8).pop(wait=1)
    nothing_left(spool)


@pytest.mark.parametrize("number, kind", [(errno.EAGAIN, Busy), (errno.EMFILE, Busy),
    (errno.ENOSPC, Disk)])
def test_no_process_can_be_had(jobs, monkeypatch, number, kind):
    """The next call tries everything again."""
    verbs.with_us.cache_clear()

    def refuse(*words, **how):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "__init__", refuse)
        with pytest.raises(OSError):
            verbs.with_us(os.getpid())
        with pytest.raises(kind, match=f"push: {os.strerror(number)}"):
            jobs.push(b"x")
        with pytest.raises(kind):
            asyncio.run(AsyncQueue("jobs", jobs.path).push(b"x"))
    assert verbs.with_us(os.getpid())[:1] == ("setpriv",)


# ---- asyncio


def test_cancel_waiting(names, spool, tmp_path):
    async def main():
        jobs = AsyncQueue(*names)
        await jobs.create()
        for ending in ("cancel", "twice", "time-out", "loop"):
            before = list(spool.glob("jobs/wait/*"))
            task = asyncio.ensure_future(jobs.pop(wait=60))
            await asyncio.to_thread(waits, spool, before)
            if ending == "loop":
                # as when a main program ends: one pop has begun, and another is about to
                asyncio.ensure_future(jobs.pop(wait=60))
                await asyncio.sleep(0)
                return
            if ending == "time-out":
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(task, 0.1)
                continue
            task.cancel()
            if ending == "twice":
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = descriptors()
    asyncio.run(main())
    assert descriptors() == before
    if names[1]:
        nothing_left(spool)
    else:
        # the door has processes of its own
        wait_for(lambda: not running(tmp_path / "not-this-one"), seconds=20)


def test_cancel_at_every_moment(jobs, spool):
    """A pop that is cancelled loses no message, and a reserve leaves none reserved."""
    twin = AsyncQueue("jobs", spool)

    async def turns(step, what):
        """A message is pushed, and a task cancelled, later in each turn, until two have ended."""
        turn = ended = 0
        while ended < 2:
            body = b"%d" % turn
            await twin.push(body)
            task = asyncio.ensure_future(what())
            await asyncio.sleep(step * turn)
            task.cancel()
            await asyncio.wait({task})
            yield body, task
            ended += not task.cancelled()
            turn += 1

    async def consume():
        async with await twin.reserve(lease=1000):
            raise ZeroDivisionError

    async def main():
        await twin.push(b"warm")
        began = time.monotonic()
        await twin.pop()
        step = (time.monotonic() - began) / 20
        async for body, task in turns(step, twin.pop):
            taken = [] if task.cancelled() else [task.result()]
            assert taken + await twin.drain() == [body]
        async for body, task in turns(step, consume):
            assert task.cancelled() or isinstance(task.exception(), ZeroDivisionError)
            stats = await twin.stats()
            assert (stats["ready"], stats["reserved"]) == (1, 0)
            assert await twin.pop() == body

    before = descriptors()
    asyncio.run(main())
    nothing_left(spool)
    assert descriptors() == before


def test_cancel_that_came_late(jobs, spool, stub, tmp_path):
    """The message is returned, and the cancellation comes at the next await, unless it was a
    time-out."""
    started, seen = tmp_path / "started", []
    stub(f"trap 'printf late; exit 0' TERM; : >{started}; while :; do sleep 0.05; done")

    async def consume():
        seen.append(await AsyncQueue("jobs", spool).pop())
        seen.append("between")
        await asyncio.sleep(60)
        seen.append("never")

    async def main():
        task = asyncio.ensure_future(consume())
        await asyncio.to_thread(wait_for, started.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        started.unlink()
        assert await out_of_time(AsyncQueue("jobs", spool).pop(), started.exists) == b"late"

    asyncio.run(main())
    assert seen == [b"late", "between"]


# ---- finding the verbs; the command; the wheel


def test_home(tmp_path, monkeypatch):
    assert package.home() == LIB
    monkeypatch.setenv("FLATQ_LIB", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="FLATQ_LIB"):
        Queue("jobs", tmp_path / "spool").stats()
    done = python("import runpy; runpy.run_module('flatq', run_name='__main__')")
    assert done.returncode == 70 and done.stderr.startswith(b"flatq: no verbs in")


def test_installation(tmp_path):
    """The package alone finds the verbs on PATH: also by a link, and not by a console script."""
    shutil.copytree(ROOT / "python/flatq", tmp_path / "alone/flatq",
        ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["make", "-s", "install", f"PREFIX={tmp_path / 'in stalled'}"], cwd=ROOT,
        check=True, capture_output=True)
    for name in ("links", "ours"):
        (tmp_path / name).mkdir()
    (tmp_path / "links/flatq").symlink_to(LIB / "flatq")
    (tmp_path / "ours/flatq").write_text("#!/usr/bin/python3\n")

    def found(*places):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "alone"),
            "PATH": os.pathsep.join(map(str, [*places, os.environ["PATH"]]))}
        script = "import flatq; flatq.Queue('jobs', 'spool').push(b'x'); print(flatq.home())"
        return subprocess.run([sys.executable, "-B", "-c", script], env=environment, cwd=tmp_path,
            capture_output=True, text=True)

    assert found(tmp_path / "ours",
        tmp_path / "in stalled/bin").stdout == f"{tmp_path / 'in stalled/libexec/flatq'}\n"
    assert found(tmp_path / "links").stdout == f"{LIB}\n"
    if not shutil.which("flatq"):
        assert "set FLATQ_LIB" in found(tmp_path / "ours").stderr


def test_module_is_the_command(spool, stub):
    """It becomes the shell, which then can trap what Python ignores."""
    command = [sys.executable, "-m", "flatq"]

    def run(*words, **more):
        done = subprocess.run([*command, *words], env={**ours(), "FLATQ_DIR": str(spool)},
            capture_output=True, timeout=100, **more)
        return done.returncode, done.stdout, done.stderr

    assert run("push", "jobs", input=b"x") == (0, b"1\n", b"")
    assert run("pop", "jobs") == (0, b"x", b"")
    assert run("pop", "jobs") == (66, b"", b"flatq pop: nothing there\n")
    stub('grep SigIgn "/proc/$$/status"; exit 7')
    status, out, _ = run()
    ignored = int(out.split()[1], 16)
    assert status == 7 and not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def pip(*words, **more):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *words]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=110, **more)
    if done.returncode != 0 and "setuptools" in done.stderr and not os.environ.get("CI"):
        pytest.skip("no setuptools from PyPI: " + done.stderr[-200:])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def out():
    """A directory with a copy of the tree, into which the build writes nothing, its wheel, and a
    venv with it."""
    out = Path(tempfile.mkdtemp(prefix="flatq-test."))
    for name in ("lib", "python"):
        shutil.copytree(ROOT / name, out / "tree" / name,
            ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE",):
        shutil.copy2(ROOT / name, out / "tree")
    before = sorted(out.glob("tree/**/*"))
    pip("wheel", "--no-deps", "-w", out, out / "tree/python")
    assert sorted(out.glob("tree/**/*")) == before
    (wheel,) = out.glob("flatq-*.whl")
    shutil.unpack_archive(wheel, out / "unpacked", "zip")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", out / "fresh"], check=True)
    pip("--python", out / "fresh/bin/python", "install", "--no-index", "--no-deps", wheel)
    yield out
    shutil.rmtree(out)


@pytest.fixture
def run(out):
    """Run a command beside the venv."""
    def run(*command):
        done = subprocess.run(command, cwd=out, input=b"x", capture_output=True, timeout=100,
            env={**os.environ, "HOME": str(out), "FLATQ_DIR": str(out / "spool"),
                "PYTHONPATH": ""})
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_wheel(out, run):
    (wheel,) = out.glob("flatq-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modes = {entry.filename.partition("/sh/")[2]: bool(entry.external_attr >> 16 & stat.S_IXUSR)
            for entry in archive.infolist() if "/sh/" in entry.filename}
    # apart from comments, the shell files are the same
    source = 'for file in "$0"/*/*.sh "$0"/*/*/*.sh; do lib=$0; . "$file"; done && declare -f'
    functions = [subprocess.run(["bash", "-c", source, top], check=True, stdout=subprocess.PIPE,
        text=True).stdout for top in (LIB, out / "unpacked/flatq/sh")]
    assert len(functions[1]) > 100_000
    assert re.sub(r"(?m)^\s*#.*\n", "", functions[0]) == functions[1]
    for name in ("py.typed", "pipeline/drain.py"):
        assert (out / "unpacked/flatq" / name).exists()
    assert wheel.stat().st_size < 320 * 1024
    shell = [path for path in LIB.rglob("*") if path.is_file() and path.suffix != ".md"
        and path.parent.name not in ("completion", "man", "systemd")]
    modes_there = {str(path.relative_to(LIB)): os.access(path, os.X_OK) for path in shell}
    assert modes == modes_there
    (metadata,) = out.glob("unpacked/*/METADATA")
    assert {f"Version: {package.__version__}", 'Requires-Dist: pyspark>=4.2; extra == "spark"'} <= {
        *metadata.read_text().splitlines()}
    for verb in ("push", "work", "http"):
        helps = [run("sh", top / verb, "-h") for top in (LIB, out / "unpacked/flatq/sh")]
        assert helps[0] == helps[1] and helps[0][1].startswith(verb.encode())


@pytest.mark.slow
def test_installed_from_the_wheel(out, run):
    """The command, the worker, and the page's session."""
    python = out / "fresh/bin/python"
    for command in ([out / "fresh/bin/flatq"], [python, "-m", "flatq"]):
        assert run(*command, "push")[0] == 0
        assert [run(*command, "pop")[:2] for _ in range(2)] == [(0, b"x"), (66, b"")]
    code, said, _ = run(python, "-m", "flatq.pipeline", "-h")
    assert code == 0 and said.startswith(b"usage: python -m flatq.pipeline JOB")
    code, _, error = run(python, "-m", "flatq.pipeline", "stats")
    assert code == 69 and error.startswith(b"stats: pyspark is missing: pip install")
    assert error.count(b"\n") == 1
    (out / "shop.py").write_text("def sell(body):\n    open('sold', 'wb').write(body)\n")
    (out / "list").write_bytes(b"a\nb\n")
    page = (ROOT / "python/README.md").read_text()
    session = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    code, said, error = run(python, "-c", f"""resize = print
{session}
import flatq
assert jobs.drain() == [b"a", b"b"]
flatq.Queue().push(b"z")
flatq.Worker("shop:sell", until_empty=True).run()
print(flatq.home())""")
    assert (code, (out / "sold").read_bytes()) == (0, b"z"), error
    said = said.decode().split("\n")
    assert said[0] == "b'resize 7.png'" and said[-2].endswith("site-packages/flatq/sh"), said
    assert run("sh", Path(said[-2]) / "serve", "-h")[1].startswith(b"serve ")


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_sparks_example_from_the_wheel(out):
    """As the page has it, but for its directories. What the extra would install is the tests'."""
    need("java")
    (site,) = out.glob("fresh/lib/python*/site-packages")
    page = (ROOT / "python/README.md").read_text()
    example = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "flatq_spark.run" in code).replace("/srv/", f"{out}/")
    (site / "extra.pth").write_text(sysconfig.get_path("purelib") + "\n")
    try:
        done = subprocess.run([out / "fresh/bin/python", "-c", f"""from flatq import Queue
Queue("jobs", "{out}/spool").push_many(b"%d" % number for number in range(300))
{example}
values = [row.body for row in spark.read.parquet("{out}/jobs").collect()]
assert sorted(values, key=int) == [b"%d" % number for number in range(300)], values
assert Queue("jobs", "{out}/spool").empty()"""], cwd=out, capture_output=True, timeout=600,
            env={**os.environ, "PYTHONPATH": "", "PYSPARK_PYTHON": str(out / "fresh/bin/python")})
    finally:
        (site / "extra.pth").unlink()
    assert done.returncode == 0, done.stderr.decode()



# ---- how it is written


def test_a_queue_is_no_container(jobs, monkeypatch):
    """A Queue is true even if it is empty, `in` takes nothing, and list() runs no verb but pops."""
    verbs_run, run = [], verbs.run
    monkeypatch.setattr(verbs, "run", lambda call: verbs_run.append(call.verb) or run(call))
    assert jobs and AsyncQueue(jobs.name, jobs.path)
    with pytest.raises(TypeError):
        b"y" in jobs  # noqa: B015
    assert list(jobs) == [] and verbs_run == ["pop"]
    jobs.push(b"1")
    del verbs_run[:]
    assert list(jobs) == [b"1"] and verbs_run == ["pop", "pop"]


@pytest.mark.parametrize("kind", [Queue, AsyncQueue, package.Worker])
def test_help_fits_into_80_columns(kind):
    assert not [line for line in pydoc.plain(pydoc.render_doc(kind)).splitlines() if len(line) > 80]


def test_loads_quickly():
    assert python("import sys, flatq; sys.exit('asyncio' in sys.modules)").returncode == 0


def test_a_caller_that_is_killed_as_its_verb_begins(jobs, spool, tmp_path):
    """Before setpriv has asked for a signal at its death."""
    real, begun = need("setpriv"), tmp_path / "begun"
    (tmp_path / "setpriv").write_text(f"""#!/bin/sh
case $* in *' true') exec {real} "$@" ;; esac
parent=$PPID
: >'{begun}'
n=0
while kill -0 "$parent" && [ $((n += 1)) -lt 1000 ]; do sleep 0.05; done 2>/dev/null
exec {real} "$@"
""")
    (tmp_path / "setpriv").chmod(0o755)
    jobs.create()
    caller = start(f"""import os, flatq
os.environ["PATH"] = "{tmp_path}:" + os.environ["PATH"]
flatq.Queue("jobs", {str(spool)!r}).pop(wait=60)""")
    wait_for(begun.exists, "the verb's begin")
    caller.kill()
    caller.communicate(timeout=100)
    wait_for(lambda: not running(spool), "no process", seconds=20)
