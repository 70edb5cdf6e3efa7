"""mqueue moves messages into and out of a kernel POSIX message queue, beside a program that uses that queue."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from conftest import need, wait_for
from engine import push, refused
from servers import here_too, module

from flatq import Queue, mqueue, verbs
from flatq.command import Stopped
from flatq.errors import Invalid
from flatq.mqueue import Kernel, from_kernel, to_kernel
from flatq.shovel import Shovel, source, target

ANY = bytes(range(256)) * 4


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    return here_too(flatq, monkeypatch)


@pytest.fixture
def kernel():
    """A kernel's queue of five messages, which another program could have created."""
    ipc = module("posix_ipc")
    name = f"/flatq-test-{os.getpid()}"
    try:
        queue = ipc.MessageQueue(name, ipc.O_CREX, max_messages=5, max_message_size=2000)
    except OSError as error:
        pytest.skip(f"no POSIX message queues here: {error}")
    yield queue
    queue.close()
    ipc.unlink_message_queue(name)


def rows(flatq, queue):
    return [(int(row.split()[2])) for row in flatq("list", queue, check=0).out.splitlines()]


def test_in(flatq, kernel):
    for body, priority in ((b"usual", 0), (ANY, 7), (b"first", 32767), (b"", 0)):
        kernel.send(body, priority=priority)
    flatq("mqueue", "in", "--once", kernel.name, "jobs", check=0)
    assert kernel.current_messages == 0
    assert sorted(rows(flatq, "jobs")) == [32769, 65529, 65536, 65536]
    assert [flatq("pop", "jobs", check=0).out for _ in range(4)] == [b"first", ANY, b"usual", b""]


def test_out(flatq, kernel):
    for body, priority in ((b"usual", 65536), (ANY, 65529), (b"most", 0), (b"later", 100000)):
        push(flatq, body, "-p", str(priority), "jobs")
    flatq("mqueue", "out", "--once", kernel.name, "jobs", check=0)
    assert [kernel.receive(0) for _ in range(4)] == [(b"most", 32767), (ANY, 7), (b"usual", 0), (b"later", 0)]


def test_priorities_come_through(flatq):
    assert [to_kernel(from_kernel(priority)) for priority in (0, 1, 32767)] == [0, 1, 32767]
    assert (to_kernel(None), to_kernel(0), to_kernel(4294967295), from_kernel(0)) == (0, 32767, 0, 65536)


def test_two_programs_joined(flatq, kernel):
    """A program receives from the kernel's queue all the time. The queue that feeds it has more messages than the kernel's holds. They arrive in
    order."""
    numbers = [b"%d" % number for number in range(30)]
    flatq("push", "-l", "jobs", input=b"".join(number + b"\n" for number in numbers), check=0)
    process = flatq.start("mqueue", "out", kernel.name, "jobs", stdin=subprocess.DEVNULL)
    assert [kernel.receive(20)[0] for _ in numbers] == numbers
    wait_for(lambda: not flatq("list", "jobs").out)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_it_waits_and_stops(flatq, kernel):
    process = flatq.start("mqueue", "in", kernel.name, "jobs", stdin=subprocess.DEVNULL)
    kernel.send(b"1")
    assert flatq("pop", "-w", "10", "jobs", check=0).out == b"1"
    process.send_signal(signal.SIGQUIT)
    assert process.wait(60) == 0


@pytest.mark.parametrize("way", ["in", "out"])
def test_an_interruption_says_nothing_of_the_queue(flatq, kernel, way):
    """A signal interrupts each other call to the kernel, and its handler does not raise. The queue is neither empty nor full."""
    need("strace")
    for body in (b"1", b"2"):
        kernel.send(body) if way == "in" else push(flatq, body, "jobs")
    inject = f"inject=mq_timed{'receive' if way == 'in' else 'send'}:error=EINTR:when=1+2"
    done = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=mq_timedreceive,mq_timedsend", "-e", inject,
                           *flatq.command("mqueue", way, "--once", "-w", "0", kernel.name, "jobs")],
                          env=flatq.environment(None), cwd=flatq.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, b"")
    if way == "in":
        assert kernel.current_messages == 0 and Queue("jobs").drain(end=b"\0") == [b"1", b"2"]
    else:
        assert [kernel.receive(0)[0] for _ in range(2)] == [b"1", b"2"]


def test_a_stop_that_interrupts_a_wait_for_room_is_heeded(flatq, kernel):
    """The kernel's queue is full: the message goes back at once."""
    while kernel.current_messages < kernel.max_messages:
        kernel.send(b"other")
    push(flatq, b"x", "jobs")
    shovel, waits = Shovel(source("jobs", "kernel"), Kernel(kernel.name), once=True), []
    real, ipc = shovel.target.queue, module("posix_ipc")

    def send(body, wait, priority):
        waits.append(wait)
        if len(waits) > 1:
            return real.send(body, wait, priority)
        shovel.stop()
        raise ipc.SignalError

    shovel.target._queue = SimpleNamespace(send=send, max_message_size=real.max_message_size, close=real.close)
    assert (shovel.run(), waits) == (0, [2, 0])
    assert Queue("jobs").drain(end=b"\0") == [b"x"]


def test_what_is_received_goes_back(flatq, kernel):
    """The target is full and takes no message. mqueue ends, and the message is back in the kernel's queue."""
    flatq("create", "-b", "1", "jobs", check=0)
    push(flatq, b"x", "jobs")
    kernel.send(b"1", priority=3)
    refused(flatq("mqueue", "in", "-w", "0", kernel.name, "jobs"), 75, "mqueue", text=b"full")
    assert kernel.receive(0) == (b"1", 3)


def test_what_is_received_goes_back_however_many_signals_come(flatq, kernel):
    """Target and kernel's queue are full. mqueue waits for room in either, since the message is in its process alone."""
    flatq("create", "-b", "1", "jobs", check=0)
    push(flatq, b"x", "jobs")
    kernel.send(b"in hand")
    process = flatq.start("mqueue", "in", kernel.name, "jobs", stdin=subprocess.DEVNULL)
    wait_for(lambda: kernel.current_messages == 0, "it has received the message")
    while kernel.current_messages < kernel.max_messages:
        kernel.send(b"other")
    of = pathlib.Path(f"/proc/{process.pid}")
    for _ in range(4):
        before = (of / "status").read_text().splitlines()[-2:]
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: process.poll() is not None or (of / "status").read_text().splitlines()[-2:] != before and
                 os.readlink(of / "exe").rpartition("/")[2].startswith("python") and (of / "wchan").read_text() == "wq_sleep", "it waits for room again")
    assert process.poll() is None
    assert kernel.receive(0)[0] == b"other"
    assert process.wait(60) in (-signal.SIGTERM, 0, 75, 143)
    assert b"in hand" in [kernel.receive(0)[0] for _ in range(kernel.current_messages)]


class Strikes:
    """A tracer of the shovel's and the kernel end's code: the signal comes before instruction number `left`."""

    FILES = {Kernel.take.__code__.co_filename, Shovel.run.__code__.co_filename}

    def __init__(self, shovel, left, number):
        self.shovel, self.left, self.number = shovel, left, number

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in self.FILES or frame.f_code.co_name == "stop":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.shovel.stop(self.number, frame)
        return self

    def arm(self):
        """Trace from here on, also in the callers."""
        frame = sys._getframe(2)
        sys.settrace(self)
        while frame:
            if frame.f_code.co_filename in self.FILES:
                frame.f_trace, frame.f_trace_opcodes = self, True
            frame = frame.f_back


def test_a_signal_at_every_moment_of_a_take(flatq, kernel):
    """The handler may raise before any instruction: even if signals are blocked, another thread can get the signal, and then the handler runs in
    the main thread. The message must be in the kernel's queue, or be sent back or pushed."""
    def run(moment):
        """Whether the run had that instruction. They are counted from the first look at the kernel's queue to the first push."""
        there = target("jobs")
        shovel = Shovel(Kernel(kernel.name), there, once=True, count=1)
        strikes, give = Strikes(shovel, moment, signal.SIGTERM), there.give

        def untraced(*words):
            sys.settrace(None)
            return give(*words)

        there.give = untraced
        before = sys.gettrace()
        sys.settrace(strikes)
        try:
            shovel.run()
        finally:
            sys.settrace(before)
        return strikes.left <= 0

    moment = 0
    kernel.send(b"1", priority=3)
    while run(moment := moment + 1):
        if kernel.current_messages:
            assert kernel.receive(0) == (b"1", 3) and not kernel.current_messages, moment
        else:
            assert Queue("jobs").drain(end=b"\0") == [b"1"], moment
        kernel.send(b"1", priority=3)
    assert moment > 100 and Queue("jobs").drain(end=b"\0") == [b"1"]


@pytest.mark.parametrize("why", ["refused", "told twice", "told when it was taken"])
def test_a_signal_at_every_moment_of_an_end(flatq, kernel, why):
    """The other end refuses the message, or a signal has come. Whenever a further signal comes then, the message goes back."""
    moment, strikes = 0, None

    def armed(raises):
        strikes.arm()
        raises()

    def give(parcel, wait):
        if why == "told twice":
            shovel.phase = "stops"
        armed(refuse if why == "refused" else shovel.stop)

    def refuse():
        raise Invalid("refused")

    def take(wait):
        Kernel.take(shovel.source, wait)
        armed(shovel.stop)

    while strikes is None or strikes.left <= 0:
        moment += 1
        there = target("jobs")
        there.give = give
        shovel = Shovel(Kernel(kernel.name), there, once=True)
        strikes = Strikes(shovel, moment, signal.SIGHUP)
        if why == "told when it was taken":
            shovel.source.take = take
        kernel.send(b"1", priority=3)
        before = sys.gettrace()
        try:
            shovel.run()
        except (Invalid, Stopped):
            pass
        finally:
            sys.settrace(before)
        # twice if the signal came just after the message was sent back
        assert 1 <= kernel.current_messages <= 1 + (why == "refused"), moment
        while kernel.current_messages:
            assert kernel.receive(0) == (b"1", 3)
    assert moment > 50


def test_a_signal_when_the_push_has_ended(flatq, kernel, monkeypatch):
    """It must not be sent back to the kernel as well."""
    kernel.send(b"1")
    shovel = Shovel(Kernel(kernel.name), target("jobs"), once=True)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(verbs.Job, "result", lambda job: shovel.stop(signal.SIGHUP))
        shovel.run()
    assert not kernel.current_messages and Queue("jobs").drain(end=b"\0") == [b"1"]


def test_a_signal_when_the_message_was_given(flatq, kernel, monkeypatch):
    """The same a moment later: the target has it, and it is not settled yet."""
    kernel.send(b"1")
    shovel = Shovel(Kernel(kernel.name), target("jobs"), once=True)
    well = shovel._well
    monkeypatch.setattr(shovel, "_well", lambda: shovel.stop(signal.SIGHUP) if shovel.given else well())
    with pytest.raises(Stopped):
        shovel.run()
    assert not kernel.current_messages and Queue("jobs").drain(end=b"\0") == [b"1"]


def test_too_large_for_the_queue_goes_back_once(flatq, kernel):
    kernel.send(b"x" * 500, priority=3)
    assert b"still there" in flatq("mqueue", "in", "--once", kernel.name, "jobs", env={"FLATQ_MOST_BYTES": "100"}, check=65).err
    assert kernel.current_messages == 1 and kernel.receive(0) == (b"x" * 500, 3)


def test_too_large_is_buried(flatq, kernel):
    push(flatq, b"x" * 3000, "jobs")
    push(flatq, b"small", "jobs")
    flatq("mqueue", "out", "--once", kernel.name, "jobs", check=0)
    assert kernel.receive(0)[0] == b"small"
    assert b"too-big" in flatq("list", "jobs").out and Queue("jobs").qsize() == 0


def test_create_stat_drop(flatq, kernel):
    name = kernel.name + "-2"
    flatq("mqueue", "create", "-b", "3", "-z", "100", name, check=0)
    try:
        assert flatq("mqueue", "stat", name, check=0).out == f"queue {name}\nready 0\nbound 3\nmost-bytes 100\n".encode()
        refused(flatq("mqueue", "create", "-b", "200", "-z", "8192", name), 65, "mqueue", text=b"exists already\n")
    finally:
        flatq("mqueue", "drop", name, check=0)
    for words in (("stat", name), ("drop", name), ("in", "--once", name, "jobs")):
        refused(flatq("mqueue", *words), 66, "mqueue", text=b"no such queue")


def test_the_kernels_limit_is_named(flatq, kernel, monkeypatch):
    """Root's are larger; one of all bytes together holds for everybody. A queue that exists has run into none."""
    for words, limit in ((("-b", "70000"), b"70000 is over the kernel's limit of 65536\n"),
                         (("-z", "99999999"), b"99999999 is over the kernel's limit of 16777216\n")):
        if os.geteuid() == 0:
            refused(flatq("mqueue", "create", *words, kernel.name + "-3"), 65, "mqueue", text=limit)
    most = int(pathlib.Path("/proc/sys/fs/mqueue/msg_max").read_text())
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert mqueue._limit(most + 1, 1) == f": {most + 1} is over the kernel's limit of {most} (/proc/sys/fs/mqueue/msg_max)"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 1000))
    assert mqueue._limit(most, 1000) == ": over the limit of 1000 bytes in message queues (ulimit -q)" and mqueue._limit(1, 1) == ""


def test_no_module(flatq, tmp_path):
    (tmp_path / "posix_ipc.py").write_text("raise ImportError")
    done = refused(flatq("mqueue", "in", "/a", "b", env={"PYTHONPATH": str(tmp_path)}), 69, "mqueue", text=b"pip install posix-ipc")
    assert b"apt install python3-posix-ipc" in done.err
