"""python/flatq, the wrapper: every method over the real verbs, here and through a door; what
signals, cancellations and time-outs leave; the wheel."""

import ast
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
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import LIB, ROOT, need, wait_for
from engine import carriers

sys.path.insert(0, str(ROOT / "python"))

import flatq as package
from flatq import (
    AsyncQueue, AsyncReserved, Busy, Closed, Disk, Empty, Error, Full, Internal, Invalid, Missing,
    NotYours, Queue, Reserved, TimedOut,
    Unreachable, Usage,
)
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
    """An AsyncQueue, or one of its messages, whose methods are awaited at once. So a test can use
    it like a Queue."""

    def __init__(self, twin):
        self.twin = twin

    def __getattr__(self, name):
        def run(*args, **more):
            async def main():
                return await method(*args, **more)

            said = asyncio.run(main())
            return Awaited(said) if isinstance(said, AsyncReserved) else said

        method = getattr(self.twin, name)
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
    jobs.create(bound=50, most_tries=9)
    first = jobs.push(ANY)
    second = jobs.push(bytearray(b"later"), priority=70000, key="k")
    assert (first, first.dup, second > first) == (1, False, True)
    again = jobs.push(b"", key="k")
    assert (again, again.dup) == (second, True)
    third = jobs.push(memoryview(b"delayed"), delay=1000, lease=2.5)
    stats = jobs.stats()
    assert (jobs.qsize(), stats["ready"], stats["delayed"], stats["bound"], stats["most-tries"],
        stats["closed"]) == (2, 2, 1, 50, 9, 0)
    assert jobs.peek() == ANY and jobs.peek("delayed") == b"delayed" and jobs.peek(
        id=second) == b"later"
    assert jobs.pop() == ANY

    message = jobs.reserve(lease=300)
    assert (message.id, message.tries, message.body, message.receipt.partition(":")[0]) == (second,
        1, b"later", "jobs")
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

    assert len(jobs.push_many([b"a", b"", b"c\n"])) == 3 and len(jobs.push_many([])) == 0 and len(
        jobs.push_many([b"d\0"])) == 1
    assert list(jobs) == [b"a", b"", b"c\n", b"d\0"]
    assert jobs.empty() and not jobs.full()
    jobs.push_many([b"1", b"2", b"3"], priority=1, lease=10, wait=1)
    assert jobs.drain(2) == [b"1", b"2"]
    assert jobs.drain() == [b"3"] and jobs.drain() == []
    jobs.push(b"last")
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


def test_as_queue_Queue_does(each):
    """The names of the standard library's queue, and what they raise."""
    jobs = each
    jobs.create(bound=2)
    jobs.put(b"1")
    jobs.put_nowait(bytearray(b"2"))
    assert jobs.full() and not jobs.empty() and jobs.qsize() == 2
    for full in (lambda: jobs.put_nowait(b"3"), lambda: jobs.put(b"3", False),
                 lambda: jobs.put(b"3", timeout=0.1)):
        with pytest.raises(queue.Full):
            full()
    assert (jobs.get(), jobs.get_nowait()) == (b"1", b"2")
    assert jobs.empty() and not jobs.full()
    for empty in (jobs.get_nowait, lambda: jobs.get(False), lambda: jobs.get(timeout=0.1)):
        with pytest.raises(queue.Empty):
            empty()
    with pytest.raises(ValueError, match="non-negative"):
        jobs.get(timeout=-1)
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


def test_many_at_a_time_async(spool):
    async def main():
        jobs = AsyncQueue("jobs", spool)
        assert len(set(await asyncio.gather(*(jobs.push(b"%d" % number)
            for number in range(6))))) == 6
        assert len(set(await asyncio.gather(*(jobs.pop() for _ in range(6))))) == 6
        with pytest.raises(Empty):
            await jobs.pop()

    asyncio.run(main())


async def out_of_time(what, begun):
    """Await `what` until `begun` is true; then its time is over."""
    task = asyncio.ensure_future(what)
    await asyncio.get_running_loop().run_in_executor(None, wait_for, begun)
    return await asyncio.wait_for(task, 0.05)


@pytest.mark.parametrize("count", [None, 1001])
@pytest.mark.parametrize("end", ["killed", "interrupted", "cancelled"])
def test_a_drain_that_ends_early(jobs, spool, monkeypatch, tmp_path, end, count):
    """No message that the drain has taken is lost: it returns them, or the exception has them. The
    first batch is settled when the printer of the second is killed, or stands still until the
    caller is stopped."""
    armed, first, second = tmp_path / "armed", tmp_path / "first", tmp_path / "second"
    stub = tmp_path / "stubs/sed"
    stub.parent.mkdir()
    stub.write_text(f'''#!/bin/sh
[ "$1" != -e ] || [ ! -e {armed} ] || {{ [ ! -e {first} ] || {{ >{second}; {"kill -9 $$" if end == "killed" else "exec sleep 60"}; }}; >{first}; }}
exec {shutil.which("sed")} "$@"''')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    many = [b"%d" % number for number in range(1000)]
    jobs.push_many(many)
    jobs.push(b"urgent", priority=1)
    armed.touch()
    if end == "killed":
        assert jobs.drain(count) == [b"urgent"]
    elif end == "interrupted":
        def stop():
            wait_for(second.exists)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, interrupt)
        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(KeyboardInterrupt) as raised:
            jobs.drain(count)
        stopper.join()
        signal.signal(signal.SIGUSR1, before)
        assert raised.value.taken == [b"urgent"]
    else:
        assert asyncio.run(out_of_time(AsyncQueue("jobs", spool).drain(count),
            second.exists)) == [b"urgent"]
    armed.unlink()
    assert jobs.drain() == many


def test_waits(jobs):
    jobs.create()
    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(jobs.pop, wait=float("inf")), pool.submit(jobs.pop, wait=19.5)]
        waits(Path(jobs.path))
        jobs.push_many([b"1", b"2"])
        assert sorted(task.result(20) for task in taken) == [b"1", b"2"]


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


@pytest.mark.parametrize("body", ["text", 5, None, ["x"]], ids=repr)
def test_only_bytes(jobs, body):
    with pytest.raises(TypeError, match="encode" if isinstance(body, str) else "bytes-like"):
        jobs.push(body)
    with pytest.raises(TypeError):
        jobs.push_many([b"good", body])
    with pytest.raises(TypeError):
        asyncio.run(AsyncQueue("jobs", jobs.path).push(body))
    assert jobs.qsize() == 0


def test_big(names):
    """Ten megabytes in either direction: neither side waits forever for the other."""
    jobs, body = Queue(*names), os.urandom(10_000_000)
    jobs.push(body)
    with pytest.raises(ZeroDivisionError), jobs.reserve() as message:
        assert message.body == body
        raise ZeroDivisionError
    assert jobs.pop() == body

    async def main():
        jobs = AsyncQueue(*names)
        await jobs.push(body)
        return await jobs.pop()

    assert asyncio.run(main()) == body


def test_names(spool, tmp_path, monkeypatch):
    assert (Queue("a/b").host, Queue("a/b").name) == ("", "a/b")
    assert (Queue("far:1/a/b").host, Queue("far:1/a/b").name, Queue("far:1").name) == ("far:1",
        "a/b", "default")
    assert Queue("[::1]:1234/jobs").host == "[::1]:1234"
    assert eval(repr(Queue("jobs", spool))).path == str(spool) and repr(Queue(
        "far:1/a")) == "Queue('far:1/a')"
    with pytest.raises(ValueError):
        Queue("far:1/a", spool)
    monkeypatch.chdir(tmp_path)
    here = Queue("a/b", "spool")
    monkeypatch.chdir("/")
    here.push(b"x")
    assert Queue("a/b", os.fsencode(spool).decode()).pop() == b"x"
    for name in ("-x", "", "a b", "a/../b"):
        with pytest.raises(Invalid, match="bad queue name"):
            Queue(name, spool).push(b"x")
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

VERBS = ("push", "pop", "reserve", "drain", "peek", "delete", "release", "touch", "bury", "kick",
    "stat", "create", "close", "drop")
SETTLE = ("delete", "release", "touch", "bury")


def expected(verb, code):
    if code == 66:
        return NotYours if verb in SETTLE else Empty if verb in VERBS[1:5] else Missing
    if code == 75:
        return Full if verb == "push" else Busy
    return {64: Usage, 65: Invalid, 69: Closed, 70: Internal, 74: Disk, 77: errors.Denied}.get(code,
        Error)


@pytest.mark.parametrize("code", [1, 2, 64, 65, 66, 69, 70, 74, 75, 77, 126, 127])
def test_table(jobs, stub, code):
    stub(f'printf "%s: no, \\303\\251\\n" "$1" >&2; exit {code}')
    for verb in VERBS:
        with pytest.raises(Error) as raised:
            asyncio.run(AsyncQueue._call(jobs, verb, bytes))
        error = raised.value
        assert (type(error), str(error), error.code, error.verb) == (expected(verb, code),
            f"{verb}: no, é", code, verb)


def test_table_is_the_readmes():
    readme = (ROOT / "python/README.md").read_text()
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)
        and issubclass(kind, Error)}
    assert all(f"`{kind.__name__}`" in readme for kind in kinds - {Error}) and {kind.__name__
        for kind in kinds} <= set(package.__all__)
    assert issubclass(Empty, queue.Empty) and issubclass(Full, queue.Full)
    assert issubclass(Invalid, ValueError) and issubclass(Unreachable,
        ConnectionError) and issubclass(TimedOut, TimeoutError)


def test_strange_ends(jobs, stub):
    stub("kill -KILL $$")
    with pytest.raises(Error, match="pop: ended by signal 9") as raised:
        jobs.pop()
    assert type(raised.value) is Error and raised.value.code == -9
    stub("exit 3")
    with pytest.raises(Error, match="pop: exit code 3"):
        jobs.pop()
    stub("printf 'jobs:1.1.00 1 1 5\\nabc'")
    with pytest.raises(Internal):
        jobs.reserve()


def test_real_errors(jobs, spool, tmp_path, free_port):
    jobs.create(bound=1)
    jobs.push(b"1")
    with pytest.raises(Full, match="push: queue 'jobs' is full") as raised:
        jobs.push(b"2")
    assert raised.value.code == 75
    with pytest.raises(Full):
        jobs.push(b"2", wait=0.1)
    with pytest.raises(Full) as raised:
        jobs.push_many([b"\0\n", b"2"])
    assert raised.value.ids == []
    jobs.create(bound=2)
    with pytest.raises(Full) as raised:
        jobs.push_many([b"\0\n", b"2"])
    assert len(raised.value.ids) == 1 and jobs.drain() == [b"1", b"\0\n"]
    for bad in ({"priority": -1}, {"priority": 1 << 32}, {"delay": -1}, {"key": ""}):
        with pytest.raises(Invalid):
            jobs.push(b"x", **bad)
    for bad in ({"priority": 1.5}, {"delay": [1]}, {"key": 7.5}):
        with pytest.raises(TypeError):
            jobs.push(b"x", **bad)
    with pytest.raises(Invalid):
        jobs.delete("nonsense")
    with pytest.raises(Missing):
        Queue("other", spool).shutdown()
    (tmp_path / "file").touch()
    with pytest.raises(Missing):
        Queue("jobs", tmp_path / "file").push(b"x")
    with pytest.raises(Unreachable) as raised:
        Queue(f"127.0.0.1:{free_port}/jobs").pop()
    assert raised.value.code == 68
    with pytest.raises(Unreachable):
        list(Queue(f"127.0.0.1:{free_port}/jobs"))


def test_status_that_nobody_keeps(jobs, spool):
    """If SIGCHLD is ignored, no exit status can be known, and a cancelled pop would look like an
    empty message. So the wrapper starts no verb."""
    jobs.push(b"kept")
    script = f"import signal, flatq; signal.signal(signal.SIGCHLD, signal.SIG_IGN); flatq.Queue('jobs', {str(spool)!r}).pop()"
    for said in (python(script), python(script, preexec_fn=lambda: signal.signal(signal.SIGCHLD,
            signal.SIG_IGN))):
        assert said.returncode == 1 and b"flatq.errors.Internal: SIGCHLD is ignored" in said.stderr
    assert jobs.pop() == b"kept"


# ---- threads, fork, signals, time-outs


def python(script, **more):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
        timeout=100, **more)


def start(script):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)


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
        waiting = pool.submit(jobs.pop, wait=30)
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
    """A signal ends the caller. None of its verbs may go on, although Python raises an exception
    only for SIGINT."""
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


@contextmanager
def alarm(seconds):
    """RACE: `over` keeps a ring that comes at the end from setting the timer once more, which would
    then ring for pytest-timeout."""
    over = False

    def ring(number, frame):
        if over:
            return
        # between two statements of the caller no wrapper can act, nor while a process is started,
        # so ring a little later
        codes = []
        while frame and frame.f_code is not verbs.run.__code__:
            codes.append(frame.f_code)
            frame = frame.f_back
        if frame and verbs.Call.ends.__code__ in codes:
            raise Ring
        signal.setitimer(signal.ITIMER_REAL, 0.0001)

    old = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_interrupted(jobs, spool):
    jobs.create()
    before = descriptors()
    with pytest.raises(Ring), alarm(0.2):
        jobs.pop(wait=60)
    nothing_left(spool)
    # at every moment of a reserve and of a push: the message is back at once, whole
    jobs.push(b"warm")
    began = time.monotonic()
    jobs.pop()
    step = (time.monotonic() - began) / 16 + 0.00001
    for turn in range(24):
        jobs.push(b"%d" % turn)
        try:
            with alarm(step * (turn + 1)), jobs.reserve(lease=1000) as message:
                message.release()
        except Ring:
            pass
        wait_for(lambda: not running(spool), "no process", seconds=20)
        stats = jobs.stats()
        assert (stats["ready"], stats["reserved"]) == (1, 0), turn
        assert jobs.pop() == b"%d" % turn
        try:
            with alarm(step * (turn + 1)):
                jobs.push(b"x" * 200000)
        except Ring:
            pass
        assert jobs.drain() in ([], [b"x" * 200000])
    nothing_left(spool)
    assert descriptors() == before


@pytest.mark.parametrize("script", ["trap '' TERM; sleep 1000 & sleep 1000",
                                    "(trap '' TERM; sleep 1000) & sleep 1000"])
def test_deaf(jobs, spool, stub, monkeypatch, script):
    """A verb that ignores TERM is killed, with all that it has started."""
    monkeypatch.setattr(verbs, "GRACE", 0.3)
    stub(script)
    impatient = Queue("jobs", spool, timeout=0.2)
    with pytest.raises(TimedOut, match="stat: ended after 0.2 seconds") as raised:
        impatient.stats()
    assert raised.value.verb == "stat"
    wait_for(lambda: not running(spool), "no process")
    with pytest.raises(TimedOut):
        asyncio.run(AsyncQueue("jobs", spool, timeout=0.2).stats())
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
    """An error of flatq says so. The next call tries everything again, also whether a verb can be
    made to end with its caller."""
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
            await asyncio.get_running_loop().run_in_executor(None, waits, spool, before)
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
    """A verb is cancelled later in each turn, until it has twice ended before. A pop that is
    cancelled loses no message, a reserve leaves none reserved, and a push stores the whole message
    or nothing."""

    async def main():
        twin = AsyncQueue("jobs", spool)
        taken = []
        await twin.push(b"warm")
        began = time.monotonic()
        await twin.pop()
        step = (time.monotonic() - began) / 20
        turn = 0
        while len(taken) < 2:
            await twin.push(b"%d" % turn)
            with suppress(asyncio.TimeoutError):
                taken.append(await asyncio.wait_for(twin.pop(), step * turn))
            turn += 1
        left = await twin.drain()
        assert sorted(taken + left) == sorted(b"%d" % n for n in range(turn))

        async def consume():
            async with await twin.reserve(lease=1000):
                raise ZeroDivisionError

        turn = ended = 0
        while ended < 2:
            await twin.push(b"x")
            task = asyncio.ensure_future(consume())
            await asyncio.sleep(step * turn)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, ZeroDivisionError)) as error:
                await task
            ended += error.type is ZeroDivisionError
            stats = await twin.stats()
            assert (stats["ready"], stats["reserved"]) == (1, 0), turn
            assert await twin.pop() == b"x"
            turn += 1
        turn = ended = 0
        while ended < 2:
            task = asyncio.ensure_future(twin.push(b"y" * 200000))
            await asyncio.sleep(step * turn)
            task.cancel()
            await asyncio.wait({task})
            stored = await twin.drain()
            assert stored in ([], [b"y" * 200000])
            if not task.cancelled():
                assert not task.exception() and stored
                ended += 1
            turn += 1

    before = descriptors()
    asyncio.run(main())
    nothing_left(spool)
    assert descriptors() == before


def test_cancel_that_came_late(jobs, spool, stub, tmp_path):
    """A verb ends with a message although it was cancelled. The message is returned, and the
    cancellation comes at the next await, unless it was a time-out."""
    stub(f"trap 'printf late; exit 0' TERM; : >{tmp_path}/started; while :; do sleep 0.05; done")
    seen = []

    async def consume():
        seen.append(await AsyncQueue("jobs", spool).pop())
        seen.append("between")
        await asyncio.sleep(60)
        seen.append("never")

    async def main():
        task = asyncio.ensure_future(consume())
        await asyncio.get_running_loop().run_in_executor(None, wait_for,
            (tmp_path / "started").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (tmp_path / "started").unlink()
        assert await out_of_time(AsyncQueue("jobs", spool).pop(),
            (tmp_path / "started").exists) == b"late"

    asyncio.run(main())
    assert seen == [b"late", "between"]


def test_loop_in_a_thread(jobs):
    taken = []
    jobs.push(b"x")
    thread = threading.Thread(target=lambda: taken.append(asyncio.run(AsyncQueue("jobs",
        jobs.path).pop())))
    thread.start()
    thread.join(20)
    assert taken == [b"x"]


# ---- finding the verbs; the command; the wheel


def test_home(tmp_path, monkeypatch):
    assert package.home() == LIB
    monkeypatch.setenv("FLATQ_LIB", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="FLATQ_LIB"):
        Queue("jobs", tmp_path / "spool").stats()
    done = python("import runpy; runpy.run_module('flatq', run_name='__main__')")
    assert done.returncode == 70 and done.stderr.startswith(b"flatq: no verbs in")


def test_installation(tmp_path):
    """The package alone finds the verbs of `make install` on PATH. A link to the verb will do; a
    console script is passed over."""
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
        script = f"import flatq; flatq.Queue('jobs', {str(tmp_path / 'spool')!r}).push(b'x'); print(flatq.home())"
        return subprocess.run([sys.executable, "-B", "-c", script], env=environment,
            capture_output=True, text=True)

    assert found(tmp_path / "ours",
        tmp_path / "in stalled/bin").stdout == f"{tmp_path / 'in stalled/libexec/flatq'}\n"
    assert found(tmp_path / "links").stdout == f"{LIB}\n"
    if not shutil.which("flatq"):
        assert "set FLATQ_LIB" in found(tmp_path / "ours").stderr


def test_module_is_the_command(spool, stub):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "FLATQ_DIR": str(spool),
        "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "flatq"]

    def run(*words, **more):
        return subprocess.run([*command, *words], env=environment, capture_output=True, timeout=100,
            **more)

    assert run("push", "jobs", input=b"x").stdout == b"1\n"
    assert run("pop", "jobs").stdout == b"x"
    empty = run("pop", "jobs")
    assert (empty.returncode, empty.stderr) == (66, b"pop: nothing there\n")
    process = subprocess.Popen([*command, "pop", "-w", "60", "jobs"], env=environment)
    waits(spool)
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    nothing_left(spool)
    stub('grep SigIgn "/proc/$$/status"; exit 7')
    environment["FLATQ_LIB"] = os.environ["FLATQ_LIB"]
    done = run()
    assert done.returncode == 7 and int(done.stdout.split()[1],
        16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


def pip(*words, within=(), **more):
    done = subprocess.run([*within, sys.executable, "-m", "pip", "--disable-pip-version-check",
        "-q", *map(str, words)], capture_output=True, text=True,
                          timeout=110, **more)
    if done.returncode != 0 and "setuptools" in done.stderr and not os.environ.get("CI"):
        pytest.skip("no setuptools from PyPI: " + done.stderr[-200:])
    assert done.returncode == 0, done.stderr
    return done


def test_claim(jobs):
    """Many messages are claimed under a name and listed again, then settled or given back."""
    jobs.push_many([b"%d" % n for n in range(20)])
    segments = jobs.claim("me", 15)
    assert sum(segment.count for segment in segments) == 15 and segments[
        0].offset == 0 and os.path.isdir(segments[0].path)
    assert jobs.claim("me", 0) == segments
    assert jobs.pop() == b"15"
    jobs.unclaim("me")
    assert jobs.peek() == b"0"
    end = max(segment.offset + segment.count for segment in jobs.claim("me"))
    with pytest.raises(errors.Invalid):
        jobs.settle("me", end - 1)
    jobs.settle("me", end)
    with pytest.raises(Empty):
        jobs.claim("me")
    with pytest.raises(errors.Missing):
        jobs.unclaim("you")


@pytest.fixture(scope="module")
def tree():
    """A read-only copy of the tree that is built."""
    top = Path(tempfile.mkdtemp(prefix="flatq-test."))
    for name in ("lib", "python"):
        shutil.copytree(ROOT / name, top / "tree" / name,
            ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("launch", "LICENSE"):
        shutil.copy2(ROOT / name, top / "tree")
    for path in [top / "tree", *(top / "tree").rglob("*")]:
        path.chmod(path.stat().st_mode & 0o111 | 0o444)
    (top / "out").mkdir()
    for path in (top, top / "out"):
        path.chmod(0o777)
    yield top
    for path in [top / "tree", *(top / "tree").rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(top)


@pytest.mark.slow
def test_wheel(tree):
    # modes do not bind root, but a read-only file system does
    locked = ["unshare", "-m", "sh", "-c",
        'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', tree / "tree"]
    if os.geteuid() != 0 or subprocess.run([*locked, "true"], capture_output=True).returncode != 0:
        locked = []
    environment = {**os.environ, "HOME": str(tree / "out"), "TMPDIR": str(tree / "out"),
        "FLATQ_DIR": str(tree / "out/spool")}
    environment.pop("PYTHONPATH", None)
    out = tree / "out"
    before = sorted(tree.glob("tree/**/*"))
    pip("wheel", "--no-deps", "-w", out, tree / "tree/python", env=environment, within=locked)
    assert sorted(tree.glob("tree/**/*")) == before
    (wheel,) = out.glob("flatq-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modes = {entry.filename.partition("/sh/")[2]: entry.external_attr >> 16
            for entry in archive.infolist() if "/sh/" in entry.filename}
        metadata = archive.read(next(name for name in archive.namelist()
            if name.endswith("/METADATA"))).decode()
        names = archive.namelist()
        archive.extractall(out / "unpacked")
    # apart from comments, the shell files are the same
    functions = [subprocess.run(["bash", "-c",
        'lib=$1; for file in "$1"/*/*.sh "$1"/*/*/*.sh; do . "$file"; done && declare -f', "-",
        top], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
                                for top in (LIB, out / "unpacked/flatq/sh")]
    assert len(functions[1]) > 100_000 and re.sub(r"(?m)^\s*#.*\n", "",
        functions[0]) == functions[1]
    assert any(name.endswith("py.typed") for name in names) and any(name.endswith(
        "pipeline/drain.py") for name in names)

    assert wheel.stat().st_size < 320 * 1024
    shell = {str(path.relative_to(LIB)): path.stat().st_mode for path in LIB.rglob("*")
             if path.is_file() and path.suffix != ".md"
             and path.parent.name not in ("completion", "man", "systemd")}
    shell["launch"] = (ROOT / "launch").stat().st_mode
    assert modes.keys() == shell.keys() and all(modes[name] & stat.S_IXUSR == shell[
        name] & stat.S_IXUSR for name in shell)
    assert f"Version: {package.__version__}\n" in metadata and 'Requires-Dist: pyspark>=4.2; extra == "spark"' in metadata

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", out / "fresh"], check=True)
    pip("--python", out / "fresh/bin/python", "install", "--no-index", "--no-deps", wheel,
        env=environment)
    for verb in ("push", "work", "http"):
        helps = [subprocess.run(["sh", top / verb, "-h"], env=environment,
            capture_output=True).stdout for top in (LIB, out / "unpacked/flatq/sh")]
        assert helps[0] == helps[1] and helps[0].startswith(verb.encode())
    for command in ([out / "fresh/bin/flatq"], [out / "fresh/bin/python", "-m", "flatq"]):
        for words, status, said in ((["push"], 0, None), (["pop"], 0, b"x"), (["pop"], 66, b"")):
            done = subprocess.run([*command, *words], env=environment, input=b"x",
                capture_output=True, timeout=100)
            assert done.returncode == status and said in (None, done.stdout), done
    done = subprocess.run([out / "fresh/bin/python", "-m", "flatq.pipeline", "-h"], env=environment,
        cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(
        "usage: python -m flatq.pipeline JOB"), done
    done = subprocess.run([out / "fresh/bin/python", "-m", "flatq.pipeline", "stats"],
        env=environment, cwd="/", capture_output=True, text=True)
    assert done.returncode == 69 and done.stderr.startswith(
        "stats: pyspark is missing: pip install") and done.stderr.count("\n") == 1, done
    (out / "shop.py").write_text("def sell(body):\n    open('sold', 'wb').write(body)\n")
    subprocess.run([out / "fresh/bin/flatq", "push"], env=environment, input=b"z", check=True)
    script = "import flatq; flatq.Worker('shop:sell', until_empty=True).run()"
    subprocess.run([out / "fresh/bin/python", "-c", script], env=environment, cwd=out, check=True)
    assert (out / "sold").read_bytes() == b"z"
    script = "import flatq; q = flatq.Queue(); q.push(b'y'); print(q.pop(), flatq.home())"
    done = subprocess.run([out / "fresh/bin/python", "-c", script], env=environment, cwd="/",
        capture_output=True, text=True)
    assert done.stdout.startswith("b'y'") and done.stdout.rstrip().endswith(
        "site-packages/flatq/sh"), done
    home = Path(done.stdout.split()[-1])
    assert subprocess.run(["sh", home / "launch", "-h"],
        capture_output=True).stdout.startswith(b"launch ")


@pytest.mark.slow
def test_sdist_builds_the_same(tree):
    """The sdist gives the same wheel as the tree."""
    out = tree / "out"
    pip("install", "--target", out / "setuptools", "setuptools>=70.1")
    script = "import build_backend, sys; print(getattr(build_backend, sys.argv[1])(sys.argv[2]))"
    environment = {**os.environ, "PYTHONPATH": str(out / "setuptools"),
        "PYTHONDONTWRITEBYTECODE": "1"}

    def build(hook, directory, target):
        (out / target).mkdir()
        command = [sys.executable, "-c", script, hook, out / target]
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True,
            text=True)
        assert done.returncode == 0, done.stderr
        return out / target / done.stdout.splitlines()[-1]

    def files(wheel):
        with zipfile.ZipFile(wheel) as archive:
            return {entry.filename: (entry.CRC, entry.external_attr >> 16)
                for entry in archive.infolist()}

    first = files(build("build_wheel", tree / "tree/python", "first"))
    shutil.unpack_archive(build("build_sdist", tree / "tree/python", "sdist"),
        out / "unpacked sdist")
    (unpacked,) = (out / "unpacked sdist").iterdir()
    second = files(build("build_wheel", unpacked, "second"))
    assert first == second and any(name.endswith("sh/flatq") for name in first)


# ---- how it is written


def test_typed_and_documented():
    assert (ROOT / "python/flatq/py.typed").exists()
    for kind in (Queue, AsyncQueue, Reserved, AsyncReserved):
        assert kind.__doc__
        for name, method in inspect.getmembers(kind, callable):
            if name.startswith("_") and name not in ("__init__", "__iter__", "__aiter__",
                    "__enter__", "__aenter__") or isinstance(
                    method, type) or not hasattr(method, "__code__"):
                continue
            signature = inspect.signature(method)
            assert name.startswith("__") or method.__doc__, (kind, name)
            assert signature.return_annotation is not inspect.Signature.empty, (kind, name)
            assert all(one.annotation is not inspect.Parameter.empty for key,
                one in signature.parameters.items() if key != "self"), (kind, name)
    for path in [*(ROOT / "python/flatq").glob("*.py"),
            *(ROOT / "python/flatq/shovel").glob("*.py")]:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = [*node.args.args, *node.args.kwonlyargs, node.args.vararg,
                    node.args.kwarg]
                assert all(one.annotation for one in arguments if one and one.arg != "self"), (path,
                    node.name)
                assert node.returns, (path, node.name)


@pytest.mark.parametrize("kind", [Queue, AsyncQueue, Reserved, package.Worker])
def test_help_fits_a_terminal(kind):
    """help(flatq.Queue) has 80 columns, but for signatures, and says what each method does."""
    page = pydoc.plain(pydoc.render_doc(kind))
    assert [line for line in page.splitlines() if len(line) > 80
            and not re.match(r" \|  (async |__exit__ = )?\w+\(", line)] == []
    if kind is Queue:
        assert all(f" |  {name}(" in page for name in ("push", "reservations", "__iter__"))


def test_a_queue_is_no_container(jobs, monkeypatch):
    """A Queue is true even if it is empty, and list() runs no verb but pops."""
    verbs_run, run = [], verbs.run
    monkeypatch.setattr(verbs, "run", lambda call: verbs_run.append(call.verb) or run(call))
    assert jobs and AsyncQueue(jobs.name, jobs.path) and not verbs_run
    assert list(jobs) == [] and verbs_run == ["pop"]
    jobs.push(b"1")
    del verbs_run[:]
    assert list(jobs) == [b"1"] and verbs_run == ["pop", "pop"]


def test_twins_have_the_same():
    for plain, twin in ((Queue, AsyncQueue), (Reserved, AsyncReserved)):
        public = {name for name in dir(plain) if not name.startswith("_")}
        assert public == {name for name in dir(twin) if not name.startswith("_")}
        for name in public:
            ours, theirs = getattr(plain, name), getattr(twin, name)
            assert list(inspect.signature(ours).parameters.values()) == list(inspect.signature(
                theirs).parameters.values())
            if name not in ("reservations", "close"):
                assert inspect.iscoroutinefunction(theirs), name
            assert not inspect.iscoroutinefunction(ours)


def test_knows_no_file_of_a_spool():
    """The package runs verbs, and looks into no spool."""
    for name in ("queue", "verbs", "aio", "errors", "__main__", "__init__"):
        text = (ROOT / f"python/flatq/{name}.py").read_text()
        strings = [node.value for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not {"wal", "body", "out", "done", "head", "fold", "unfold", "buried",
            ".ids"} & set(strings), name


def test_loads_quickly():
    assert python("import sys, flatq; sys.exit('asyncio' in sys.modules)").returncode == 0


def test_a_caller_that_is_killed_as_its_verb_begins(jobs, spool, tmp_path):
    """It is dead before setpriv has asked for a signal at its death. The verb must not wait for a
    message that nobody would get."""
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
    caller = start(
        f"import os, flatq; os.environ['PATH'] = '{tmp_path}:' + os.environ['PATH']; flatq.Queue('jobs', {str(spool)!r}).pop(wait=60)")
    wait_for(begun.exists, "the verb's begin")
    caller.kill()
    caller.communicate(timeout=100)
    wait_for(lambda: not running(spool), "no process", seconds=20)


def test_in_takes_nothing(flatq):
    """Python would look through __iter__, which pops."""
    queue = Queue(path=flatq.spool)
    queue.push(b"x")
    with pytest.raises(TypeError):
        b"y" in queue  # noqa: B015
    assert queue.pop() == b"x"
