"""mqueue moves messages into and out of a kernel POSIX message queue, beside a program that uses
that queue."""

import os
import pathlib
import signal
import subprocess

import pytest

from conftest import need, wait_for
from engine import push, refused
from servers import here_too, module

from flatq import Queue

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


def test_in(flatq, kernel):
    for body, priority in ((b"usual", 0), (ANY, 7), (b"first", 32767), (b"", 0)):
        kernel.send(body, priority=priority)
    flatq("mqueue", "in", "--once", kernel.name, "jobs", check=0)
    assert kernel.current_messages == 0
    rows = flatq("list", "jobs", check=0).out.splitlines()
    assert sorted(int(row.split()[2]) for row in rows) == [32769, 65529, 65536, 65536]
    assert [flatq("pop", "jobs", check=0).out for _ in range(4)] == [b"first", ANY, b"usual", b""]


def test_out(flatq, kernel):
    for body, priority in ((b"usual", 65536), (ANY, 65529), (b"most", 0), (b"later", 100000)):
        push(flatq, body, "-p", str(priority), "jobs")
    flatq("mqueue", "out", "--once", kernel.name, "jobs", check=0)
    assert [kernel.receive(0) for _ in range(4)] == [(b"most", 32767), (ANY, 7), (b"usual", 0),
        (b"later", 0)]


def test_two_programs_joined(flatq, kernel):
    """A program receives from the kernel's queue all the time, which is smaller than ours."""
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


@pytest.mark.parametrize("way, call", [("in", "receive"), ("out", "send")])
def test_an_interruption_says_nothing_of_the_queue(flatq, kernel, way, call):
    """A signal interrupts each other call to the kernel, and its handler does not raise."""
    need("strace")
    bodies = [b"1", b"2"]
    for body in bodies:
        kernel.send(body) if way == "in" else push(flatq, body, "jobs")
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace=mq_timed{call}", "-e",
        f"inject=mq_timed{call}:error=EINTR:when=1+2"]
    done = subprocess.run([*strace, *flatq.command("mqueue", way, "--once", "-w", "0", kernel.name,
        "jobs")], env=flatq.environment(None), cwd=flatq.home, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, b"")
    found = Queue("jobs").drain() if way == "in" else [kernel.receive(0)[0] for _ in bodies]
    assert found == bodies and kernel.current_messages == 0


def test_what_is_received_goes_back(flatq, kernel):
    """The target is full and takes no message. mqueue ends, and the message is back in the kernel's
    queue."""
    flatq("create", "-b", "1", "jobs", check=0)
    push(flatq, b"x", "jobs")
    kernel.send(b"1", priority=3)
    refused(flatq("mqueue", "in", "-w", "0", kernel.name, "jobs"), 75, "mqueue", text=b"full")
    assert kernel.receive(0) == (b"1", 3)


def test_what_is_received_goes_back_however_many_signals_come(flatq, kernel):
    """Target and kernel's queue are full: mqueue waits for room in either."""
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
        wait_for(lambda: process.poll() is not None
            or (of / "status").read_text().splitlines()[-2:] != before and
                 os.readlink(of / "exe").rpartition("/")[2].startswith("python")
                 and (of / "wchan").read_text() == "wq_sleep", "it waits for room again")
    assert process.poll() is None
    assert kernel.receive(0)[0] == b"other"
    assert process.wait(60) in (-signal.SIGTERM, 0, 75, 143)
    assert b"in hand" in [kernel.receive(0)[0] for _ in range(kernel.current_messages)]


def test_too_large_for_the_queue_goes_back_once(flatq, kernel):
    kernel.send(b"x" * 500, priority=3)
    assert b"still there" in flatq("mqueue", "in", "--once", kernel.name, "jobs",
        env={"FLATQ_MOST_BYTES": "100"}, check=65).err
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
        assert flatq("mqueue", "stat", name,
            check=0).out == f"queue {name}\nready 0\nbound 3\nmost-bytes 100\n".encode()
        refused(flatq("mqueue", "create", "-b", "200", "-z", "8192", name), 65, "mqueue",
            text=b"already exists")
    finally:
        flatq("mqueue", "drop", name, check=0)
    refused(flatq("mqueue", "create", "-b", "70000", name), 65, "mqueue",
        text=b"/proc/sys/fs/mqueue")
    for words in (("stat", name), ("drop", name), ("in", "--once", name, "jobs")):
        refused(flatq("mqueue", *words), 66, "mqueue", text=b"no such queue")
