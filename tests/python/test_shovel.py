"""shovel between flatq, a line door, a real beanstalkd and a real Redis: messages keep their order, none is lost or repeated, whichever process is
killed."""

import contextlib
import errno
import fcntl
import itertools
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from conftest import ROOT, everything, listening, need, share, wait_for
from engine import alive, end_launches, on_terminal, pop, push, refused
from moving import ANY, Stopping, filled, killed, moments, move, once, short_leases  # noqa: F401
from servers import Beanstalkd, Redis, free, here_too, module

from flatq import Busy, Denied, Disk, Empty, Full, Internal, Invalid, NotYours, Queue, Unreachable, command, pressure, verbs
from flatq.shovel import Shovel, __main__ as shovel_main, door as flatq_door, line, source, sqs, stalk, target
from flatq.shovel.ends import PASSING, Note, Parcel, Source, Taken, Target, TooLarge, way
from flatq.shovel.local import Local


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    return here_too(flatq, monkeypatch)


@pytest.fixture
def tube(tmp_path):
    with Beanstalkd(tmp_path / "beanstalkd") as server:
        server.url = f"beanstalk://127.0.0.1:{server.port}/a-tube"
        yield server


@pytest.fixture
def redis(tmp_path):
    module("redis")
    with Redis(tmp_path / "redis") as server:
        server.url = f"pressure+redis://127.0.0.1:{server.port}/0/q"
        server.queue = pressure.Queue("q", port=server.port)
        server.queue.create()
        yield server


class Door:
    """./launch -k with a spool of its own."""

    def __init__(self, flatq, spool, *words):
        need("ncat")
        self.flatq, self.spool, self.port, self.words = flatq, spool, free(), words
        self.queue = Queue("there", spool)
        self.url = f"127.0.0.1:{self.port}/there"
        self.start()

    def start(self):
        self.process = self.flatq.start("./launch", "-k", "-p", str(self.port), *self.words, env={"FLATQ_DIR": str(self.spool)},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: listening(self.port), "the door listens")

    def kill(self):
        """All of it. Without its guard, a connection goes on as long as its client, and its ncat holds the port: a stopped shovel may be a client."""
        self.flatq.end(self.process)
        end_launches(self.spool)
        wait_for(lambda: not listening(self.port), "the door is closed")


@pytest.fixture
def door(flatq, tmp_path):
    return Door(flatq, str(tmp_path / "far"))


# ---- each kind of end


def test_two_spools_of_one_host(flatq, tmp_path):
    """Two messages that differ only in their spool must get different keys. With one key, the second would count as the first."""
    push(flatq, b"tick", "here")
    shutil.copytree(flatq.spool, tmp_path / "other")
    for path in (None, tmp_path / "other"):
        move_here = Local("here", "there", path and str(path))
        assert Shovel(move_here, target("there"), once=True).run() == 1
    assert Queue("there").drain(end=b"\0") == [b"tick"] * 2


def test_between_queues(flatq):
    bodies = [ANY, b"", b"urgent", *(b"%d" % number for number in range(20))]
    for body in bodies:
        push(flatq, body, *(["-p", "1"] if body == b"urgent" else []), "a/b")
    flatq("shovel", "--once", "-n", "2", "a/b", "there", check=0)
    assert flatq("stat", "there").out.split()[3] == b"2"
    done = flatq("shovel", "--once", "a/b", "there", check=0)
    assert (done.out, done.err) == (b"", b"")
    assert [pop(flatq, "there") for _ in bodies] == [b"urgent", ANY, b"", *bodies[3:]]
    refused(flatq("pop", "a/b"), 66)
    assert b"claimed" not in flatq("list", "a/b").out


@pytest.mark.shells
def test_in_each_shell(flatq):
    push(flatq, ANY, "a")
    assert flatq("shovel", "-n", "1", "a", "b", check=0).err == b""
    assert pop(flatq, "b") == ANY
    refused(flatq("shovel", "a", "b", env={"FLATQ_PYTHON": "none"}), 69, "shovel", text=b"Python")


def test_through_a_door(flatq, door):
    bodies = filled(flatq, 6)
    push(flatq, ANY, "-p", "1", "here")
    assert move("here", door.url) == 7
    assert door.queue.peek() == ANY
    assert move(door.url, "back") == 7
    assert [pop(flatq, "back") for _ in range(7)] == [ANY, *bodies]
    assert door.queue.qsize() == 0


def test_through_a_tube(flatq, tube):
    bodies = filled(flatq, 20)
    push(flatq, ANY, "-p", "1", "-t", "7", "here")
    assert move("here", tube.url) == 21
    client = stalk.Client(tube.url)
    job = client.reserve(1)
    assert (job.body, job.priority, job.ttr) == (ANY, 1, 7)
    client.release(job)
    client.close()
    assert move(tube.url, "back") == 21
    assert [pop(flatq, "back") for _ in range(21)] == [ANY, *bodies]


def test_our_own_beanstalk_door(flatq, tmp_path, launched):
    port = launched("-k", env={"FLATQ_DIR": str(tmp_path / "far")}).port
    url, bodies = f"beanstalk://127.0.0.1:{port}/t", filled(flatq, 5)
    assert (move("here", url), move(url, "back")) == (5, 5)
    assert [pop(flatq, "back") for _ in range(5)] == bodies


def test_a_job_of_our_own_door_keeps_its_key(flatq, tmp_path, launched):
    """The shovel was killed after it gave the job and before it deleted it. Another connection is another process of the door."""
    url = f"beanstalk://127.0.0.1:{launched('-k', env={'FLATQ_DIR': str(tmp_path / 'far')}).port}/t"
    Queue("t", tmp_path / "far").push(b"job")
    first, there = source(url, "back"), target("back")
    there.give(first.take(0), 0)
    first.client.close()
    killed(first)
    assert move(url, "back") == 1
    assert Queue("back").drain(end=b"\0") == [b"job"]


@pytest.mark.parametrize("said", ["OUT_OF_MEMORY", "INTERNAL_ERROR", "NOT_FOUND"])
def test_a_job_without_its_statistics_goes_back(flatq, tube, monkeypatch, said):
    """Else it would have the usual priority."""
    push(flatq, b"job", "-p", "7", "here")
    move("here", tube.url)
    one = source(tube.url, "back")
    ask, failed = one.client._ask, []

    def fails(words, wait=0):
        if words.startswith(b"stats-job ") and not failed:
            failed.append(words)
            return [said]
        return ask(words, wait)
    monkeypatch.setattr(one.client, "_ask", fails)
    assert Shovel(one, target("back"), once=True).run() == 1 and failed
    assert flatq("list", "back").out.split()[2] == b"7", flatq("list", "back")


def test_greenstalk_agrees(flatq, tube):
    """greenstalk, somebody else's client, reads what the shovel wrote, and the shovel moves what greenstalk wrote."""
    greenstalk = module("greenstalk")
    push(flatq, ANY, "here")
    move("here", tube.url)
    with greenstalk.Client(("127.0.0.1", tube.port), encoding=None, use="a-tube", watch="a-tube") as client:
        job = client.reserve(5)
        assert job.body == ANY
        client.delete(job)
        client.put(b"from others")
    assert move(tube.url, "back") == 1
    assert pop(flatq, "back") == b"from others"


def test_through_a_pressure_queue(flatq, redis):
    bodies = [ANY, *filled(flatq, 20)]
    push(flatq, ANY, "-p", "1", "here")
    assert move("here", redis.url) == 21
    assert redis.queue.length() == 21
    assert move(redis.url, "back") == 21
    assert [pop(flatq, "back") for _ in bodies] == bodies
    assert redis.queue.doctor() == []


def test_a_pressure_queue_that_was_made_anew(flatq, redis):
    """Its messages are new ones, even with the same bodies at the same places: none may be refused as a duplicate."""
    for _ in range(2):
        redis.queue.put(b"tick")
        assert move(redis.url, "back") == 1
        redis.queue.delete()
        redis.queue.create()
    assert Queue("back").drain(end=b"\0") == [b"tick"] * 2


def test_from_one_server_to_another(flatq, tube, redis):
    bodies = filled(flatq, 10)
    assert [move("here", tube.url), move(tube.url, redis.url), move(redis.url, tube.url), move(tube.url, "back")] == [10] * 4
    assert [pop(flatq, "back") for _ in bodies] == bodies


# ---- messages that cannot be moved


class Small(Target):
    """A queue that refuses messages above a size."""

    name = "small"

    def __init__(self, queue, most=100):
        self.queue, self.most = queue, most

    def give(self, parcel, wait):
        if len(parcel.body) > self.most:
            raise TooLarge(f"{len(parcel.body)} bytes are too large", 65)
        self.queue.push(parcel.body, key=parcel.key)


def test_too_large_is_set_aside(flatq, tube):
    push(flatq, b"x" * 70000, "here")
    push(flatq, b"small", "here")
    done = flatq("shovel", "--once", "here", tube.url, check=0)
    assert done.err.count(b"\n") == 1 and b"too large" in done.err
    (row,) = [row for row in flatq("list", "here").out.splitlines()]
    assert b"buried" in row and b"too-big" in row
    client = stalk.Client(tube.url)
    assert client.reserve(0).body == b"small"
    client.close()


def without_stderr(flatq, how, *words):
    """The exit code and the output of shovel with these words, whose stderr is a pipe without a reader, or what `how` says. No shell of flatq's,
    which opens a closed one."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as unread:
        done = subprocess.run(["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "flatq.shovel", *words], cwd=flatq.home,
                              stderr=unread, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=100,
                              env=flatq.environment({"PYTHONPATH": str(ROOT / "python")}))
    return done.returncode, done.stdout


@pytest.mark.parametrize("how", ["", "2>/dev/full", "2>&-"], ids=["unread", "full", "closed"])
def test_without_a_stderr_it_goes_on(flatq, tube, how):
    """It has something to say of a message, and moves the others all the same. Nor does it take another exit code, or another output."""
    push(flatq, b"x" * 70000, "here")
    push(flatq, b"small", "here")
    assert without_stderr(flatq, how, "--once", "here", tube.url) == (0, b"")
    assert move(tube.url, "back") == 1 and b"too-big" in flatq("list", "here").out
    assert without_stderr(flatq, how, "--once", "not-there", "back") == (66, b"")


def test_a_terminal_that_hung_up(flatq):
    """Its size is not known any more, and nothing can be written to it."""
    filled(flatq, 3)
    leader, terminal = pty.openpty()
    # HUP is ignored, as under nohup
    process = flatq.start("shovel", "here", "there", stdin=subprocess.DEVNULL, stderr=terminal,
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.close(terminal)
    assert flatq("pop", "-w", "60", "there", check=0).out == b"0"
    on_terminal(leader, b"moved")
    os.close(leader)
    filled(flatq, 3)
    assert [flatq("pop", "-w", "60", "there", check=0).out for _ in range(5)] == [b"1", b"2", b"0", b"1", b"2"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_too_large_for_a_door(flatq, tmp_path):
    """The door refuses before it has read the whole message. The bytes that it leaves unread reset the connection, after its answer."""
    door = Door(flatq, str(tmp_path / "far"), "-z", "100")
    for size in (200, 100_000, 5_000_000):
        with pytest.raises(Invalid, match="over the limit"):
            line.Client(door.url).ask("push", "-n", str(size), "there", body=b"x" * size)
    push(flatq, b"x" * 300_000, "here")
    push(flatq, b"small", "here")
    assert move("here", door.url) == 1
    assert door.queue.pop() == b"small" and b"too-big" in flatq("list", "here").out


@pytest.mark.parametrize("why", ["closed", "full"])
def test_too_large_and_no_way_to_set_it_aside(flatq, why):
    """One line says so. The message is still the first, and is set aside once that is possible."""
    for body in (b"moved", b"x" * 1000, b"small"):
        push(flatq, body, "here")
    flatq(*(("close", "here") if why == "closed" else ("create", "-b", "3", "here")), check=0)
    there = Small(Queue("there"))
    with pytest.raises(Invalid, match=f"cannot be set aside.*{why}"):
        Shovel(source("here", there.name), there, once=True).run()
    assert Queue("there").pop() == b"moved"
    flatq("create", "-b", "4", "here", check=0)
    assert Shovel(source("here", there.name), there, once=True).run() == 1
    assert Queue("there").pop() == b"small"
    assert [row.endswith(b"too-big") for row in flatq("list", "here", check=0).out.splitlines()] == [True]


def test_somebody_else_takes_what_is_too_large(flatq, monkeypatch):
    """Another consumer has taken the message, so there is nothing to set aside."""
    push(flatq, b"x" * 1000, "here")
    reserve = Queue.reserve

    def late(queue, **more):
        assert queue.pop() == b"x" * 1000
        return reserve(queue, **more)

    monkeypatch.setattr(Queue, "reserve", late)
    there = Small(Queue("there"))
    shovel = Shovel(source("here", there.name), there, once=True)
    assert (shovel.run(), shovel.buried) == (0, 1)
    refused(flatq("pop", "here"), 66)


def test_its_source_is_away_when_it_is_to_be_set_aside():
    """The shovel tries to set the message aside until its source is back."""
    done = []

    class Message(Parcel):
        def bury(self):
            done.append("asked")
            if len(done) < 3:
                raise Unreachable("gone", 69)

    class One(Source):
        def take(self, wait):
            if done:
                raise Empty("nothing there", 66)
            return Message(b"123", "key")

    shovel = Shovel(One(), Small(None, 2), once=True)
    assert (shovel.run(), shovel.buried, done) == (0, 1, ["asked"] * 3)


def test_what_is_no_longer_ours_is_not_said_to_be_set_aside():
    done, said = [], []

    class Message(Parcel):
        def bury(self):
            done.append("asked")
            raise NotYours("its time is over", 66)

    class One(Source):
        def take(self, wait):
            if done:
                raise Empty("nothing there", 66)
            return Message(b"123", "key")

    shovel = Shovel(One(), Small(None, 2), once=True)
    shovel.say = said.append
    assert (shovel.run(), shovel.buried, done, said) == (0, 0, ["asked"], [])


def test_no_room(flatq):
    filled(flatq, 3)
    flatq("create", "-b", "1", "there", check=0)
    done = flatq("shovel", "--once", "-w", "0", "here", "there", check=75)
    assert re.fullmatch(rb"shovel: queue 'here': 2 messages stay claimed as shovel-\w+, for the next start\nshovel: .*is full\n", done.err), done
    process = flatq.start("shovel", "--once", "here", "there", stdin=subprocess.DEVNULL)
    got = [flatq("pop", "-w", "60", "there", check=0).out for _ in range(3)]
    assert got == [b"0", b"1", b"2"] and process.wait(60) == 0


def test_closed_ends(flatq):
    filled(flatq, 3)
    flatq("close", "here", check=0)
    assert flatq("shovel", "here", "there", check=0).err == b""
    assert Queue("there").qsize() == 3
    filled(flatq, 2, "more")
    flatq("close", "there", check=0)
    refused(flatq("shovel", "more", "there"), 69, text=b"closed")
    assert Queue("more").qsize() == 2


def test_nobody_answers(flatq, redis):
    filled(flatq, 1)
    for place in (f"127.0.0.1:{free()}/x", f"beanstalk://127.0.0.1:{free()}/x"):
        began = time.monotonic()
        with pytest.raises(Unreachable):
            move("here", place, patience=0.3)
        assert time.monotonic() - began > 0.3
    assert flatq("shovel", "--once", "-w", "1", "here", place, check=68).err
    refused(flatq("shovel", "--once", "here", redis.url + "-not-there"), 66, text=b"does not exist")
    assert Queue("here").qsize() == 1


# `make test` does not install boto3
SQS = pytest.param("sqs://q", marks=pytest.mark.full)


@pytest.mark.parametrize("place", ["127.0.0.1:1/q", "ssh://h/q", "beanstalk://127.0.0.1:1/q", "amqp://127.0.0.1:1/q", SQS,
                                   "pressure+redis://127.0.0.1:1/0/q"])
@pytest.mark.costly
def test_where_this_process_can_have_no_further_file(flatq, monkeypatch, place):
    """With each number of files that it may still open, up to where they suffice: an error that passes, or the shovel would end with a traceback. A
    door was asked for nothing, so that there is no doubt about a message."""
    for needed in {"amqp": ["pika"], "sqs": ["boto3"], "pressure+redis": ["redis"]}.get(place.partition(":")[0], []):
        module(needed)
    monkeypatch.setattr(tempfile, "tempdir", str(flatq.home / "tmp"))
    (flatq.home / "tmp").mkdir()
    monkeypatch.setenv("FLATQ_SSH", "false")
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:1", "DEFAULT_REGION": "eu-north-1", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    # All modules that it needs are read
    with pytest.raises(Unreachable) as enough, contextlib.closing(source(place, "back")) as one:
        one.take(0)
    before, said = resource.getrlimit(resource.RLIMIT_NOFILE), []
    numbers = [0, *share(f"files of {place}", range(1, 19), 4), 19]
    for more, noted in itertools.product(numbers, (False, True)):
        one = source(place, "back")
        if noted and hasattr(one, "open_note"):
            one.open_note()
        # The limit is on the numbers, and some of these are in use
        free_numbers = [number for number in range(before[0]) if not os.path.exists(f"/proc/self/fd/{number}")]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free_numbers[more], before[1]))
        try:
            with pytest.raises(PASSING) as failed:
                one.take(0)
            one.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert failed.value.code in (68, 69, 75), failed.value
        assert not (isinstance(one, flatq_door.DoorSource) and one.doubt), failed.value
        assert not [*(flatq.home / "tmp").iterdir()], failed.value
        said.append(str(failed.value))
    assert said[-1] == str(enough.value) and "Too many open files" in said[0]


@pytest.mark.parametrize("number, kind", [(errno.EMFILE, Busy), (errno.ENOSPC, Disk), (errno.EIO, Disk), (errno.EACCES, Denied)])
@pytest.mark.parametrize("what", ["socket", "request", pytest.param("boto3", marks=pytest.mark.full)])
def test_an_error_of_the_system_before_anything_was_asked(monkeypatch, what, number, kind):
    """ssh has no place for its socket, or for the request; boto3 cannot read its files. It passes, unless somebody has to change something."""
    def fails(*words, **more):
        raise OSError(number, os.strerror(number), "a file")

    if what == "boto3":
        module("boto3")
        client = sqs.Client("sqs://q")
        monkeypatch.setattr(client, "boto3", SimpleNamespace(client=fails))
    else:
        client = line.Client("ssh://h/q")
        monkeypatch.setattr(*(tempfile, "mkdtemp") if what == "socket" else (verbs, "source"), fails)
        if what == "request":
            monkeypatch.setattr(client.ssh, "_connect", lambda: None)
    with pytest.raises(kind, match=os.strerror(number)) as failed:
        client.ask("stat")
    assert type(failed.value) is kind


def test_an_error_of_the_system_behind_a_request_leaves_a_doubt(flatq, monkeypatch):
    """What was asked for may be done."""
    def fails(*words, **more):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setenv("FLATQ_SSH", "true")
    one = source("ssh://h/q", "back")
    monkeypatch.setattr(one.client.ssh, "_connect", one.client.ssh.close)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "communicate", fails)
        with pytest.raises(line.Cut, match="Input/output error"):
            one.take(0)
    assert one.doubt
    one.close()


@pytest.mark.full
def test_an_error_of_the_system_behind_a_request_to_sqs():
    def fails(*words, **more):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    module("boto3")
    client = sqs.Client("sqs://q")
    client.url, client.client = "http://127.0.0.1:1/q", SimpleNamespace(receive_message=fails)
    with pytest.raises(Unreachable, match="Input/output error") as failed:
        client.ask("receive_message")
    assert failed.value.code == 69


def test_any_other_error_of_the_system_is_one_line(monkeypatch, capfd):
    """Also behind the error for which it ends: that one is said."""
    def fails(*words):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    class Bad(Source):
        name = "bad"

        def take(self, wait):
            raise Invalid("what is wrong", 65) if self.most == 7 else OSError(errno.EIO, os.strerror(errno.EIO))

        close = fails

    monkeypatch.setattr(shovel_main, "on_signals", lambda handler: None)
    monkeypatch.setattr(shovel_main, "source", lambda place, towards: Bad())
    for count, code, said in (("1", 74, "Input/output error"), ("7", 65, "what is wrong")):
        assert shovel_main.command("shovel", ["-n", count, "a", "b"]) == code
        assert capfd.readouterr().err.splitlines()[-1] == f"shovel: {said}"
    monkeypatch.setattr(sys, "argv", ["pressure"])
    monkeypatch.setattr(command, "on_signals", lambda handler: None)
    with pytest.raises(SystemExit) as ended:
        command.run("pressure", fails)
    assert ended.value.code == 74 and capfd.readouterr().err == "pressure: Input/output error\n"


def test_one_shovel_for_a_way(flatq):
    process = flatq.start("shovel", "here", "there", stdin=subprocess.DEVNULL)
    wait_for(lambda: list((flatq.spool / ".shovel").glob("*")))
    filled(flatq, 1)
    wait_for(lambda: Queue("there").qsize() == 1)
    refused(flatq("shovel", "here", "there"), 75, "shovel", text=b"another shovel")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.parametrize("queue", ["empty", "not-there"])
def test_idle_it_looks_seldom(flatq, monkeypatch, queue):
    """By a clock of the test: it looks less and less often, down to once a second, however often it is asked."""
    filled(flatq, 1, "empty")
    assert pop(flatq, "empty") == b"0"
    now, asked, claim, here = [0.0], [], Queue.claim, Local(queue, "there")

    def counted(*words):
        asked.append(words)
        # the first looks are real
        if len(asked) > 3:
            raise Empty("nothing there", 66)
        return claim(*words)

    def sleep(seconds):
        now[0] += seconds

    with monkeypatch.context() as patched:
        patched.setattr("flatq.shovel.local.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        patched.setattr(Queue, "claim", counted)
        with pytest.raises(Empty):
            here.take(1.5)
        assert now[0] >= 1.5 and len(asked) <= 10 and here.sure
        for _ in range(12):
            with pytest.raises(Empty):
                here.take(5)
    assert now[0] == pytest.approx(61.5) and 60 <= len(asked) <= 95
    here.close()


def test_no_such_queue(flatq):
    """The queue may be created at any time, so the shovel waits for it; but not with --once."""
    refused(flatq("shovel", "--once", "not-there", "there"), 66, "shovel", text=b"no queue")
    filled(flatq, 1)
    assert (move("here", "there"), move("here", "there")) == (1, 0)


def test_damage_does_not_pass(flatq):
    """The shovel does not wait. The message stays claimed, so that somebody can look into it."""
    filled(flatq, 2)
    (segment,) = Queue("here").claim(way("here", "there"), 2)
    (flat,) = pathlib.Path(segment.path).iterdir()
    whole = flat.read_bytes()
    for bad in (whole[:-5] + b"?\n", whole.splitlines(True)[0], whole.replace(b"\t", b" ")):
        flat.write_bytes(bad)
        refused(flatq("shovel", "here", "there"), 74, "shovel", text=b"damaged")
    flat.write_bytes(whole)
    assert move("here", "there") == 2


# ---- the note


def modes(spool):
    return {oct(path.stat().st_mode & 0o7777) for path in (spool, spool / ".shovel", *(spool / ".shovel").iterdir())}


def test_the_note_is_for_the_owner_of_the_spool(tmp_path, monkeypatch):
    monkeypatch.setenv("FLATQ_SYNC", "off")
    before = os.umask(0o022)
    try:
        Note("way", "a place", str(tmp_path / "above/mine")).close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert modes(tmp_path / "above/mine") == {"0o700", "0o600"} and (tmp_path / "above").stat().st_mode & 0o777 == 0o700


def test_a_note_is_synced_if_the_verbs_sync(flatq, monkeypatch, tmp_path):
    """The spool says it, whatever FLATQ_SYNC is now. Of one that is not there, nothing is known."""
    synced, names = [], []
    monkeypatch.setenv("FLATQ_SYNC", "off")
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(os, "fsync", lambda file: names.append(os.readlink(f"/proc/self/fd/{file}")))
    monkeypatch.setitem(flatq.env, "FLATQ_DIR", str(tmp_path / "new"))
    note = Note("way", "a place", str(tmp_path / "new"))
    for text, made, expected in ((b"1", None, 1), (b"2", "off", 1), (b"3", "on", 2)):
        if made:
            for mark in (tmp_path / "new").glob(".sync.*"):
                mark.unlink()
            (tmp_path / f"new/.sync.{made}").touch()
        note.write(text)
        assert len(synced) == expected, text
    note.close()
    # The note's name, and that of its directory
    assert names == [str(tmp_path / "new/.shovel"), str(tmp_path / "new")]


def test_a_note_that_is_written_in_part(tmp_path, monkeypatch):
    write = os.pwrite
    note = Note("way", "a place", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda file, text, at: write(file, text[:1], at))
        with pytest.raises(Disk):
            note.write(b"123")
    note.write(b"123")
    note.close()
    assert Note("way", "a place", str(tmp_path)).text == b"123"


@pytest.mark.parametrize("kind", ["door", "tube"])
@pytest.mark.parametrize("cut", [1, 3])
def test_a_note_whose_end_is_missing_says_nothing(flatq, request, monkeypatch, kind, cut):
    """The power failed within its write. What it begins to say may be another message's receipt, so the shovel waits as if it knew none: later
    messages would overtake the one that is reserved."""
    server = request.getfixturevalue(kind)
    for body in (b"0", b"1"):
        push(flatq, body, "here")
    move("here", server.url)
    first = source(server.url, "back")
    parcel = first.take(0)
    assert parcel.body == b"0"
    killed(first)
    (note,) = [path for path in (flatq.spool / ".shovel").iterdir() if path.name == first.way]
    said = note.read_bytes()
    os.truncate(note, len(said) - cut)
    monkeypatch.setattr(flatq_door.DoorSource, "GRACE", 0)
    second = source(server.url, "back")
    with pytest.raises(Busy, match="may still be reserved"):
        second.take(0)
    parcel.back() if kind == "tube" else server.queue.release(parcel.receipt)
    assert Shovel(second, target("back"), once=True).run() == 2
    assert Queue("back").drain(end=b"\0") == [b"0", b"1"]


def test_a_name_whose_end_is_missing_is_not_used(flatq, redis):
    """Cut just so, it could be the name of another client."""
    first = source(redis.url, "back")
    with pytest.raises(Empty):
        first.take(0)
    name = first.note.text
    killed(first)
    os.truncate(flatq.spool / ".shovel" / first.way, len(name) - 1)
    second = source(redis.url, "back")
    with pytest.raises(Empty):
        second.take(0)
    assert len(second.queue.client) == len(name) and not second.queue.client.encode().startswith(name[:-1])
    second.close()


@pytest.mark.parametrize("number, kind", [(errno.EACCES, Denied), (errno.EPERM, Denied), (errno.EROFS, Disk)])
def test_a_note_that_may_not_be_written(tmp_path, monkeypatch, number, kind):
    """Waiting does not help against missing rights."""
    def refuse(*words, **more):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "makedirs", refuse)
        with pytest.raises(kind) as error:
            Note("way", "a place", str(tmp_path))
    assert error.value.code == {Denied: 77, Disk: 74}[kind] and (kind is Disk) == issubclass(kind, PASSING)
    note = Note("way", "a place", str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(kind):
            note.write(b"1")
    note.write(b"1")
    note.close()
    assert Note("way", "a place", str(tmp_path)).text == b"1"


@pytest.mark.parametrize("kind", ["tube", "redis"])
def test_a_note_that_fails_once(flatq, request, monkeypatch, kind):
    """The next try writes the note before it takes anything. Meanwhile no other shovel is kept out."""
    server = request.getfixturevalue(kind)
    move_here = source(server.url, "back")
    write = Note.write

    def full(note, text):
        raise Disk("no space left", 74)

    monkeypatch.setattr(Note, "write", full)
    with pytest.raises(Disk):
        move_here.take(0)
    monkeypatch.setattr(Note, "write", write)
    with pytest.raises(Empty):
        move_here.take(0)
    (note,) = (flatq.spool / ".shovel").iterdir()
    assert note.read_bytes().strip() == (b"open" if kind == "tube" else move_here.queue.client.encode())
    monkeypatch.setattr(Note, "write", full)
    with pytest.raises(Disk) if kind == "tube" else contextlib.nullcontext():
        move_here.close()
    monkeypatch.setattr(Note, "write", write)
    with pytest.raises(Empty):
        source(server.url, "back").take(0)


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM, signal.SIGINT])
def test_idle_it_stops_at_once(flatq, tube, number):
    for places in (("here", "there"), (tube.url, "there")):
        process = flatq.start("shovel", *places, stdin=subprocess.DEVNULL)
        if places[0] == "here":
            push(flatq, b"1", "here")
        else:
            client = stalk.Client(tube.url)
            client.put(b"1")
            client.close()
        assert flatq("pop", "-w", "60", "there", check=0).out == b"1"
        process.send_signal(number)
        assert process.wait(60) == 0, process.stderr.read()


def test_it_stops_while_an_end_is_away(flatq, tube):
    """The message in hand goes back to its place, and nothing stays claimed."""
    bodies = filled(flatq, 5)
    tube.kill()
    process = flatq.start("shovel", "here", tube.url, stdin=subprocess.DEVNULL)
    assert b"efused" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert [pop(flatq, "here") for _ in bodies] == bodies


def test_hup_ends_it_as_such(flatq):
    process = flatq.start("shovel", "here", "there", stdin=subprocess.DEVNULL)
    wait_for(lambda: list((flatq.spool / ".shovel").glob("*")))
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == -signal.SIGHUP


def screen(said):
    """The lines that a terminal shows at the end: a carriage return and `erase` begin a line anew."""
    return [line.split(b"\r\033[K")[-1].rstrip(b"\r") for line in said.split(b"\n")]


def test_one_line_of_progress_on_a_terminal(flatq, tube):
    """The line is rewritten, other output stands above it, and it stays at the end."""
    filled(flatq, 30)
    tube.kill()
    leader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
    process = flatq.start("shovel", "--once", "here", tube.url, stdin=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    said = on_terminal(leader, b"waits: ")
    push(flatq, b"x" * 70000, "here")
    tube.start()
    said += on_terminal(leader)
    os.close(leader)
    assert process.wait(60) == 0
    first, *more, last, rest = screen(said)
    assert b"efused" in first and rest == b"" and last == b"shovel: 30 moved, 1 buried", said
    assert len(more) <= 3 and more[-1].endswith(b"set aside"), said
    lines = re.findall(rb"\r\033\[K(shovel: \d+ moved[^\r]*)", said)
    assert len(lines) > 3 and max(map(len, lines)) == 39, said


def test_it_tries_again_ever_later(monkeypatch):
    """It waits longer and longer, up to a quarter of a lease, and shortly again once an end has answered. (Other threads, such as a Spark gateway's
    of an earlier test, also sleep.)"""
    class Nothing(Source):
        def take(self, wait):
            raise Empty("nothing there", 66)

    shovel, pauses = Shovel(Nothing(), Small(None, 2)), []
    with monkeypatch.context() as patched:
        patched.setattr("flatq.shovel.time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
        for _ in range(9):
            shovel._fails("an end", Unreachable("gone", 69))
        shovel._well()
        shovel._fails("an end", Unreachable("gone", 69))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.5, 7.5, 0.1])


def test_no_progress_where_there_is_no_terminal(flatq):
    filled(flatq, 5)
    assert flatq("shovel", "--once", "here", "there", check=0)[1:] == (b"", b"")


# ---- killed


@pytest.mark.whole
@pytest.mark.parametrize("kind", share("end killed", ["door", "tube", "redis"], 1))
def test_the_other_end_is_killed_again_and_again(flatq, request, kind, moments):
    """Messages move to the server and back. All arrive in order, and in a queue of flatq's once."""
    server = request.getfixturevalue(kind)
    bodies = filled(flatq, 60)
    for words in (("here", server.url), (server.url, "back")):
        shovel = Stopping(flatq, moments(3), "--once", *words)
        while shovel.stops():
            server.kill()
            # for a moment it may find no server, or only a broken connection
            for act in moments.shuffled(server.start, shovel.go_on):
                act()
    found = Queue("back").drain(end=b"\0")
    # on the way to an end without keys, some may be repeated
    assert once(found) == bodies and len(found) <= len(bodies) + (0 if kind == "door" else 6)


def lose_role(server, role):
    """Half a minute passes for the lease of the killed one."""
    client, lease = module("redis").Redis(port=server.port), f"__pressure__:q:{role}_lease"
    if client.exists(lease):
        client.set(lease, b"1 " + client.get(lease).split(b" ", 1)[1])
        assert "mended" in [finding.state for finding in server.queue.doctor()]
    client.close()


@pytest.mark.whole
@pytest.mark.parametrize("kind", share("shovel killed", ["queue", "tube", "redis"], 1))
def test_the_shovel_is_killed_again_and_again(flatq, request, kind, moments):
    """The next one goes on where it was, in order. In a queue of flatq's no message comes twice."""
    server = None if kind == "queue" else request.getfixturevalue(kind)
    place = "there" if server is None else server.url
    bodies = filled(flatq, 60)
    for _ in range(5 if everything() else 3):
        shovel = Stopping(flatq, moments(1), "--once", "here", place)
        assert shovel.stops()
        shovel.kill()
        if kind == "redis":
            lose_role(server, "producer")
    flatq("shovel", "--once", "here", place, check=0)
    if kind == "queue":
        assert Queue("there").drain(end=b"\0") == bodies
        return
    move(place, "back")
    found = Queue("back").drain(end=b"\0")
    assert once(found) == bodies and len(found) <= len(bodies) + 5


@pytest.mark.whole
@pytest.mark.parametrize("kind", share("fetching killed", ["door", "tube", "redis"], 1))
def test_a_shovel_that_fetches_is_killed(flatq, request, kind, moments):
    """It is killed at any moment. The message that it had in hand comes before all others. The target knows a message that was given, but not
    settled, by its key, so none is there twice."""
    server = request.getfixturevalue(kind)
    bodies = filled(flatq, 60)
    move("here", server.url)
    for _ in range(6 if everything() else 3):
        shovel = Stopping(flatq, moments(1), "--once", server.url, "back")
        assert shovel.stops()
        shovel.kill()
    move(server.url, "back")
    assert Queue("back").drain(end=b"\0") == bodies


@pytest.mark.whole
@pytest.mark.parametrize("kind", share("both killed", ["door", "tube", "redis"], 1))
def test_the_shovel_and_the_other_end_are_killed(flatq, request, kind, moments):
    """Both are killed, in any order, and messages move both ways at the same time. All messages arrive, in order. (A Redis needs `appendfsync
    always`.) A message that was given, not settled, and meanwhile taken away on the other way, is given again: a queue knows a key only as long as
    its message is there."""
    server = request.getfixturevalue(kind)
    bodies = filled(flatq, 80)
    ways = [("here", server.url), (server.url, "back")]
    move(*ways[0], count=24)  # a shovel that has stopped must not leave the other one without messages: idle, that would have no moments
    for _ in range(4 if everything() else 2):
        running = [Stopping(flatq, moments(1), *way) for way in ways]
        assert all([shovel.stops() for shovel in running])
        for act in moments.shuffled(running[0].kill, running[1].kill, server.kill):
            act()
        server.start()
        if kind == "redis":
            lose_role(server, "producer")
    for words in ways:
        move(*words)
    found = Queue("back").drain(end=b"\0")
    assert once(found) == bodies and len(found) <= len(bodies) + 8


def test_the_lock_of_one_that_was_just_killed(tmp_path):
    """A process that the killed shovel was about to start holds the lock for a moment."""
    first = Note("way", "a place", str(tmp_path))
    end = threading.Timer(0.3, first.close)
    end.start()
    Note("way", "a place", str(tmp_path)).close()
    end.join()


def test_what_a_killed_one_held_behind_a_door_comes_first(flatq, door):
    bodies = [b"0", b"1", b"2", b"3"]
    for body in bodies:
        door.queue.push(body)
    first = source(door.url, "back")
    assert first.take(0).body == b"0"
    with pytest.raises(Taken, match="another shovel"):
        source(door.url, "back").take(0)
    killed(first)
    # killed after it took the message and before it gave it
    second = source(door.url, "back")
    parcel = second.take(0)
    assert (parcel.body, parcel.key) == (b"0", parcel.key) and door.queue.stats()["reserved"] == 1
    target("back").give(parcel, 0)
    second.write("given", parcel.receipt)
    killed(second)
    # killed after it gave the message and before it settled it
    third = source(door.url, "back")
    assert third.take(0).body == b"1" and door.queue.stats()["reserved"] == 1 and door.queue.qsize() == 2
    killed(third)
    # its lease is over, and the message is back
    door.queue.release(third.note.text.decode().split(" ")[1])
    assert move(door.url, "back") == 3
    assert Queue("back").drain(end=b"\0") == bodies


def test_what_was_held_in_a_queue_with_a_dot_in_its_name(flatq, door):
    """The receipt is QUEUE:ID.TRIES.NONCE, and the beginning of QUEUE may be another queue."""
    place = f"127.0.0.1:{door.port}/mail.in"
    for name in ("mail", "mail.in"):
        Queue(name, door.spool).push(name.encode())
    first = source(place, "back")
    assert first.take(0).body == b"mail.in"
    killed(first)
    assert move(place, "back") == 1 and Queue("back").drain(end=b"\0") == [b"mail.in"]
    assert (Queue("mail", door.spool).qsize(), Queue("mail.in", door.spool).stats()["reserved"]) == (1, 0)


def test_a_door_that_refuses_each_second_request(door):
    """As one for one connection at a time may, which listens again only a little after a connection."""
    door.queue.push(b"x")
    first = source(door.url, "back")
    assert first.take(0).body == b"x"
    killed(first)
    second, asked = source(door.url, "back"), []
    ask = second.client.ask

    def refuses(*words, **more):
        asked.append(words)
        if len(asked) % 2 == 0:
            raise Unreachable("refused", 68)
        return ask(*words, **more)

    second.client.ask = refuses
    with pytest.raises(Unreachable):
        second.take(0)
    assert second.take(0).body == b"x" and len(asked) == 3
    killed(second)


def test_a_signal_as_it_gets_a_message(flatq):
    """Nothing stays claimed that was not given."""
    push(flatq, b"x", "here")
    shovel = Stopping(flatq, ["take return 1"], "here", "back")
    assert shovel.stops()
    shovel.process.send_signal(signal.SIGTERM)
    assert shovel.process.wait(60) == 0 and pop(flatq, "here") == b"x"


@pytest.mark.parametrize("fails", [(Note, "write"), (Local, "_settle")], ids=["note", "settle"])
def test_a_step_behind_the_acknowledgement_that_fails_is_tried_again(flatq, monkeypatch, fails):
    """It is about the same message: the next one in the line was not given yet."""
    bodies = filled(flatq, 20)
    real, calls = getattr(*fails), []

    def sometimes(*words):
        calls.append(words)
        if len(calls) % 2:
            raise Disk("no space", 74)
        return real(*words)

    monkeypatch.setattr(*fails, sometimes)
    said = []
    assert move("here", "there", say=said.append) == len(bodies) and said
    assert Queue("there").drain(end=b"\0") == bodies


def test_an_unclaim_ends_with_the_shovel_that_was_killed(flatq, stub):
    """Else it gives back what the next shovel claims."""
    push(flatq, b"x", "here")
    flatq("claim", "-c", "mine", "here", check=0)
    stub("flock", 'echo $PPID $$ >"$ONCE.new"; mv "$ONCE.new" "$ONCE"; exec sleep 1000')
    killed = subprocess.Popen([sys.executable, "-c", "from flatq import Queue; Queue('here').unclaim('mine')"], cwd=flatq.home, start_new_session=True,
                              env=flatq.environment({"PYTHONPATH": str(ROOT / "python")}), stdin=subprocess.DEVNULL)
    flatq.started.append(killed)
    once = flatq.home.parent / "stubs/flock.once"
    wait_for(once.exists, "unclaim to wait for the lock")
    unclaim, waiting = map(int, once.read_text().split())
    os.kill(killed.pid, signal.SIGKILL)
    try:
        wait_for(lambda: not alive(unclaim), "unclaim to end")
    finally:
        os.kill(waiting, signal.SIGKILL)


def test_a_message_whose_answer_was_lost_behind_a_door(flatq, door, monkeypatch):
    """The process that asked for the message was killed before it knew which one came. No later message may overtake that one."""
    for body in (b"0", b"1"):
        door.queue.push(body)
    first = source(door.url, "back")
    first.client.queue, wanted = "nothing-there", first.client.queue
    with pytest.raises(Empty):
        first.take(0)
    killed(first)
    assert first.note.text == b"asked"
    taken = line.Client(door.url).ask("reserve", "-t", "1000", wanted).split()[0].decode()
    monkeypatch.setattr(flatq_door.DoorSource, "GRACE", 0.1)
    said = []

    def say(text):
        if "may still be reserved" in text and not said:
            said.append(text)
            door.queue.release(taken)

    assert move(door.url, "back", say=say) == 2 and said
    assert Queue("back").drain(end=b"\0") == [b"0", b"1"]
    assert not list(filter(None, [note.read_text().split()[0] != "nothing" for note in (flatq.spool / ".shovel").iterdir()]))


def test_the_error_of_a_door_writes_nothing_to_a_terminal(monkeypatch):
    """Whoever answers there chooses the text."""
    client = line.Client("127.0.0.1:9/there")
    said = b"queue \x1b]0;title\x07'there'\r \xc2\x9b2J is full" + b"!" * 10_000
    monkeypatch.setattr(client, "_exchange", lambda request, wait: b"\n%s error 75 %s\n" % (request.split(b"@")[1], said))
    with pytest.raises(Full) as failed:
        client.ask("push", "there")
    assert str(failed.value).startswith("127.0.0.1:9: queue ]0;title'there' 2J is full!!!") and str(failed.value).isprintable() and len(str(failed.value)) < 300


@pytest.mark.parametrize("said", [b"OK \x1b]0;title\x07", b"OK", b"OK -1", b"NONE \xc2\x9b2J" + b"!" * 10_000], ids=["escape", "short", "negative", "long"])
def test_the_error_of_a_server_writes_nothing_to_a_terminal(said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = stalk.Client("beanstalk://127.0.0.1:%d/there" % server.getsockname()[1])
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(client.reserve, 0)
            with server.accept()[0] as there:
                there.sendall(said + b"\r\n")
                with pytest.raises(Internal) as failed:
                    asked.result(60)
    assert str(failed.value).isprintable() and len(str(failed.value)) < 300


@pytest.mark.parametrize("failed", [line.Cut("no whole answer", 69), Disk("not written out", 74), Internal("ended without an answer", 70)])
def test_a_door_that_cuts_an_answer_off(flatq, door, monkeypatch, failed):
    """As above, but the shovel lives; or the verb fails when it has reserved the message. If the connection was refused, nothing was taken."""
    for body in (b"0", b"1"):
        door.queue.push(body)
    one = source(door.url, "back")
    ask = one.client.ask

    def cut(verb, *words, **more):
        ask(verb, *["1" if word == "30" else word for word in words], **more)
        raise failed

    monkeypatch.setattr(one.client, "ask", cut)
    monkeypatch.setattr(one, "GRACE", 0.1)
    with pytest.raises(type(failed)):
        one.take(0)
    monkeypatch.setattr(one.client, "ask", ask)
    with pytest.raises(Busy):
        one.take(0)
    there = target("back")
    assert Shovel(one, there, once=True).run() == 2
    assert Queue("back").drain(end=b"\0") == [b"0", b"1"]
    door.kill()
    with pytest.raises(Unreachable, match="efused"):
        one.take(0)
    assert not one.doubt
    one.close()


def with_hole(monkeypatch, client, at, size, answers):
    """Of each answer to the client, `size` bytes from `at` on are lost on the way, as if one write had failed there; its last line comes. `answers`:
    as they were."""
    exchange = client._exchange

    def lost(request, wait):
        answers.append(exchange(request, wait))
        return answers[-1][:at] + answers[-1][at + size:]

    monkeypatch.setattr(client, "_exchange", lost)


@pytest.mark.parametrize("at, size", [(500, 100), (500, 1), (0, 500), (3, 30)], ids=["body", "byte", "beginning", "head"])
def test_an_answer_with_a_hole_is_no_message(door, monkeypatch, at, size):
    """Else a part of the message would be given, and the whole one deleted."""
    body = b"%0999d" % 0
    for each in (body, b"1"):
        door.queue.push(each)
    one, answers = source(door.url, "back"), []
    monkeypatch.setattr(one, "GRACE", 0)
    with monkeypatch.context() as patched:
        with_hole(patched, one.client, at, size, answers)
        with pytest.raises(line.Cut, match="no whole answer"):
            one.take(0)
    with pytest.raises(Busy, match="may still be reserved"):
        one.take(0)
    door.queue.release(answers[0].split(b" ")[0].decode())
    assert Shovel(one, target("back"), once=True).run() == 2
    assert Queue("back").drain(end=b"\0") == [body, b"1"]


def test_a_hole_in_what_a_killed_one_held(door, monkeypatch):
    """A peek states no length: the note does. A note without it, which an earlier shovel left, is a doubt."""
    body = b"%0999d" % 0
    for each in (body, b"1"):
        door.queue.push(each)
    first = source(door.url, "back")
    receipt = first.take(0).receipt
    killed(first)
    second = source(door.url, "back")
    with monkeypatch.context() as patched:
        with_hole(patched, second.client, 500, 100, [])
        for _ in range(2):
            with pytest.raises(line.Cut, match="part of the message is missing"):
                second.take(0)
    assert second.take(0).body == body
    second.write("held", receipt)
    killed(second)
    third = source(door.url, "back")
    with pytest.raises(Busy, match="may still be reserved"):
        third.take(0)
    door.queue.release(receipt)
    monkeypatch.setattr(third, "GRACE", 0)
    assert Shovel(third, target("back"), once=True).run() == 2
    assert Queue("back").drain(end=b"\0") == [body, b"1"]


def test_a_consumer_that_was_killed_is_known_again(flatq, redis):
    """The next shovel of this way gets the role at once. A role of another client it leaves alone."""
    for body in (b"0", b"1"):
        redis.queue.put(body)
    first = source(redis.url, "back")
    late = first.take(0)
    killed(first)
    other = source(redis.url, "elsewhere")
    with pytest.raises(Busy, match="in use"):
        other.take(0)
    second = source(redis.url, "back")
    parcel = second.take(0)
    assert parcel.body == b"0" and redis.queue.length() == 2
    # what the dead one may still have sent
    with pytest.raises(NotYours):
        late.done()
    parcel.done()
    assert second.take(0).body == b"1"


def test_a_producer_that_was_killed_is_soon_forgotten(flatq, redis):
    """It has the role only while it puts, or waits for room, so it needs no long lease."""
    redis.queue.delete()
    redis.queue.create(1)
    redis.queue.put(b"full")
    filled(flatq, 1)
    process = flatq.start("shovel", "here", redis.url, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with module("redis").Redis(port=redis.port) as client:
        lease = wait_for(lambda: client.get("__pressure__:q:producer_lease"), "it waits for room")
        assert int(lease.split()[0]) / 1000 - client.time()[0] <= 2  # a second, and what the whole seconds of time() hide
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_job_of_a_connection_that_has_not_ended(flatq, tube):
    """The connection of a killed shovel may end after the next one's has begun."""
    client = stalk.Client(tube.url)
    for body in (b"0", b"1"):
        client.put(body)
    first = source(tube.url, "back")
    assert first.take(0).body == b"0"
    killed(first)
    second = source(tube.url, "back")
    with pytest.raises(Busy):
        second.take(0)
    first.client.close()
    wait_for(lambda: not client.reserved(), "the server hears of the end")
    assert second.take(0).body == b"0"
    second.client.close()
    with contextlib.suppress(Busy):  # the server may not have noticed the end of the connection yet
        assert second.take(0).body == b"0"
    second.close()
    client.close()


def test_an_acknowledgement_that_was_lost(flatq, monkeypatch):
    """A message that was given and could not be settled is settled when it comes again. A queue refuses it, since it has its key."""
    filled(flatq, 3)
    there = target("there")
    give, lost = there.give, []

    def forgetful(parcel, wait):
        give(parcel, wait)
        if len(lost) < 2:
            lost.append(parcel.key)
            raise Unreachable("the answer was lost", 69)

    there.give = forgetful
    assert Shovel(source("here", "there"), there, once=True).run() == 3
    assert len(lost) == 2 and Queue("there").drain(end=b"\0") == [b"0", b"1", b"2"]


def test_a_queue_that_was_made_anew_is_another(flatq):
    """The note of the old queue's shovel must not make it skip messages of the new one."""
    for _ in range(2):
        bodies = filled(flatq, 5)
        here = Local("here", "there")
        taken = [here.take(0) for _ in range(3)]
        for parcel in taken:
            parcel.done()
        here.note.close()
        flatq("drop", "-f", "here", check=0)
    bodies = filled(flatq, 5)
    assert move("here", "there") == 5
    assert Queue("there").drain(end=b"\0") == bodies


def test_usage_of_places():
    for place in ("beanstalk://", "beanstalk://x/-", "beanstalk://x:y/z", "pressure+redis://", "ftp://x/y"):
        with pytest.raises(ValueError):
            target(place)
    assert re.search("secret", target("pressure+redis://:secret@h/0/q").name) is None


# ---- what nobody means


LONG = "9" * 5000


@pytest.mark.parametrize("place, codes", [
    ("beanstalk://[::1/q", {65}), ("amqp://[::1/q", {65, 69}), ("pressure+redis://[::1/0/q", {65}), (b"q\xff", {65}), (b"127.0.0.1:1/q\xff", {65}),
    (b"beanstalk://h\xff:1/q", {65}), (b"sqs://q\xff", {65}), ("beanstalk://a..b/q", {68}), ("a..b:1/q", {68}), ("pressure+redis://a..b/q", {68, 69}),
    (f"pressure+redis://h/{LONG}/q", {65}), ("pressure+redis://h/99999999999999/q", {65})], ids=range(12))
@pytest.mark.parametrize("end", [0, 1], ids=["from", "to"])
def test_a_place_that_nobody_has(flatq, place, codes, end):
    """One line, whatever a library says of it, and the message stays."""
    if b"redis" in os.fsencode(place):
        module("redis")
    push(flatq, b"kept", "here")
    words = [place, "here"] if end == 0 else ["here", place]
    done = flatq("shovel", "--once", "-w", "0", *words, timeout=100)
    assert done.status in codes and done.out == b"" and b"Traceback" not in done.err and done.err.endswith(b"\n"), done
    flatq("unclaim", "here")
    assert pop(flatq, "here") == b"kept"


@pytest.mark.whole
@pytest.mark.parametrize("text", share("strange notes", [b"\xff\xfe\n", b"held -h\n", b"held 5\n", b"held q:1.1.a 5 5\n", b"held \0\n",
                                                          b"asked more than that\n"], 2), ids=repr)
def test_a_note_that_nobody_wrote(flatq, door, text):
    """It costs a wait at most, and is gone after that."""
    place = door.url
    Queue(place).push(b"1")
    spool = flatq.spool / ".shovel"
    spool.mkdir(parents=True, exist_ok=True)
    (spool / way(place, "here")).write_bytes(text)
    done = flatq("shovel", "--once", "-w", "10", place, "here", timeout=100)
    assert done.status == 0 and b"Traceback" not in done.err and pop(flatq, "here") == b"1", done


def test_a_note_that_is_a_fifo(flatq, tmp_path):
    spool = flatq.spool / ".shovel"
    spool.mkdir(parents=True, exist_ok=True)
    os.mkfifo(spool / way("127.0.0.1:1/q", "here"))
    done = flatq("shovel", "--once", "-w", "1", "127.0.0.1:1/q", "here", timeout=100)
    assert done.status == 74 and done.err.count(b"\n") == 1 and b"is not a file" in done.err, done


def test_a_note_that_cannot_be_read(flatq, tmp_path):
    need("strace")
    note = flatq.spool / ".shovel" / way("127.0.0.1:1/q", "here")
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", note, "-e", "trace=read", "-e", "inject=read:error=EIO"]
    done = subprocess.run([*command, *flatq.command("shovel", "--once", "-w", "1", "127.0.0.1:1/q", "here")], env=flatq.environment(None), capture_output=True,
                          timeout=100)
    assert done.returncode == 74 and b"Traceback" not in done.stderr and b"Input/output error" in done.stderr, done


def test_a_message_before_the_one_moved_last_is_moved(flatq):
    """Somebody gives back by hand what two had claimed. The next claim then holds, before the message that the note names, others that were never
    moved."""
    for body in (b"n1", b"n2", b"n3"):
        push(flatq, body, "here")
    flatq("claim", "-c", "other", "-n", "3", "here", check=0)
    for body in (b"m1", b"m2", b"m3"):
        push(flatq, body, "here")
    flatq("create", "-b", "1", "there", check=0)
    flatq("shovel", "--once", "-w", "1", "here", "there", check=75)
    moved = [pop(flatq, "there")]
    flatq("unclaim", "-c", way("here", "there"), "here", check=0)
    flatq("unclaim", "-c", "other", "here", check=0)
    flatq("create", "-b", "0", "there", check=0)
    flatq("shovel", "--once", "here", "there", check=0)
    while (done := flatq("pop", "there")).status == 0:
        moved.append(done.out)
    assert moved == [b"m1", b"n1", b"n2", b"n3", b"m1", b"m2", b"m3"]


def test_a_message_whose_note_fails_stays_claimed(flatq, monkeypatch):
    """It was moved: if it were given back, another shovel would move it once more."""
    flatq.syncs()
    monkeypatch.setenv("FLATQ_SYNC", "on")
    for body in (b"1", b"2"):
        push(flatq, body, "here")
    local = Local("here", "there", str(flatq.spool))
    parcel = local.take(0)

    def signalled(*words):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", signalled)
        with pytest.raises(KeyboardInterrupt):
            parcel.done()
    with pytest.raises(Taken):
        local.close()
    assert Local("here", "there", str(flatq.spool)).take(0).body == b"2"


def test_a_claim_that_is_interrupted_gives_back(flatq, monkeypatch):
    """A signal comes as the claim has just succeeded. Nothing was moved, so nothing may stay claimed."""
    for body in (b"1", b"2"):
        push(flatq, body, "here")
    local = Local("here", "there", str(flatq.spool))
    claim = local.here.claim

    def interrupted(*words):
        claim(*words)
        raise KeyboardInterrupt

    monkeypatch.setattr(local.here, "claim", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local.take(0)
    monkeypatch.setattr(local.here, "claim", claim)
    local.close()
    assert [line.split()[1] for line in flatq("list", "here", check=0).out.splitlines()] == [b"ready"] * 2
