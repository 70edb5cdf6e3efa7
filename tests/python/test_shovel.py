"""shovel between a queue here and every other kind of end, each a real one: none is lost, and one
comes twice only where an acknowledgement was lost."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import ROOT, listening, need, wait_for
from engine import end_launches, pop, push, refused
from moving import ANY, LEASE, Stopping, filled, moments, move, short_leases  # noqa: F401
from servers import Beanstalkd, Moto, Rabbit, Redis, free, here_too, module

from flatq import Busy, Denied, Empty, Invalid, Missing, NotYours, Queue, Unreachable
from flatq import pressure
from flatq.shovel import Shovel, source, sqs, target
from flatq.shovel.ends import Parcel, Source, Target, TooLarge


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return here_too(flatq, monkeypatch)


# ---- the ends. Each has a `url`, can `kill` what serves it and `start` it again


class Here:
    """A queue here: nobody serves it."""

    def __init__(self, flatq, place, request):
        self.url = "there"

    def kill(self):
        pass

    start = kill


class Door:
    """./launch -k with a spool of its own."""

    door, words = "line", ()

    def __init__(self, flatq, place, request):
        need("ncat")
        self.flatq, self.spool, self.port = flatq, str(place), free()
        self.url = f"127.0.0.1:{self.port}/there"
        self.start()

    def start(self):
        self.process = self.flatq.start(
            "serve", self.door, "-k", "-p", str(self.port), *self.words,
            env={"FLATQ_DIR": self.spool},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: listening(self.port), "the door listens")

    def kill(self):
        self.flatq.end(self.process)
        end_launches(self.spool)
        wait_for(lambda: not listening(self.port), "the door is closed")


class Stalk(Door):
    """flatq's own door for beanstalk's protocol."""

    door = "beanstalk"

    def __init__(self, flatq, place, request):
        module("pystalk")
        super().__init__(flatq, place, request)
        self.url = f"beanstalk://127.0.0.1:{self.port}/there"


class Ssh(Here):
    """A program like ssh that runs the command here (tests/doors/test_ssh.py has a real sshd)."""

    def __init__(self, flatq, place, request):
        place.mkdir()
        program = place / "ssh"
        program.write_text(f"""#!/bin/sh
for last do :; done
PATH={ROOT}/lib:$PATH FLATQ_DIR={place}/spool; export PATH FLATQ_DIR; exec sh -c "$last"
""")
        program.chmod(0o755)
        patch = request.getfixturevalue("monkeypatch")
        patch.setenv("FLATQ_SSH", str(program))
        flatq.env["FLATQ_SSH"] = str(program)
        self.url = "ssh://far/there"


class Served:
    """Served by a program of `servers`."""

    def __init__(self, flatq, place, request):
        module(self.module)
        self.server = self.kind(place)
        request.addfinalizer(lambda: self.server.__exit__())
        self.start, self.kill = self.server.start, self.server.kill
        self.made(f"127.0.0.1:{self.server.port}", flatq, request)

    def made(self, at, flatq, request):
        self.url = self.form.format(at)


class Tube(Served):
    module, kind, form = "pystalk", Beanstalkd, "beanstalk://{}/there"


class Pressure(Served):
    module, kind, form = "redis", Redis, "pressure+redis://{}/0/there"

    def made(self, at, flatq, request):
        super().made(at, flatq, request)
        pressure.Queue.at(self.url).create()


class List(Served):
    module, kind, form = "redis", Redis, "redis+list://{}/there"


class Amqp(Served):
    module, kind, queue = "pika", Rabbit, "classic"

    def made(self, at, flatq, request):
        self.url, self.top = f"amqp://guest:guest@{at}/there", f"amqp://guest:guest@{at}"
        self.declare("there")

    def declare(self, name, **more):
        pika = module("pika")
        connection = pika.BlockingConnection(pika.URLParameters(self.top))
        about = {"x-queue-type": self.queue, **more}
        connection.channel().queue_declare(name, durable=True, arguments=about)
        connection.close()
        # RabbitMQ 3.10 loses a quorum queue's messages if it is killed before it has written down
        # that there is the queue (https://github.com/rabbitmq/ra/pull/443)
        self.server.control("eval", "[dets:sync(Table) || Table <- dets:all()].")


class Quorum(Amqp):
    queue = "quorum"


class Sqs(Served):
    module, kind, name = "boto3", Moto, "there"

    def made(self, at, flatq, request):
        module("moto")
        patch, self.url = request.getfixturevalue("monkeypatch"), f"sqs://{self.name}"
        for key, value in {"ENDPOINT_URL": f"http://{at}", "DEFAULT_REGION": "eu-north-1",
                           "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y"}.items():
            patch.setenv(f"AWS_{key}", value)
            flatq.env[f"AWS_{key}"] = value
        about = {"MaximumMessageSize": "262144"}
        if self.name.endswith(".fifo"):
            about["FifoQueue"] = "true"
        module("boto3").client("sqs").create_queue(QueueName=self.name, Attributes=about)


class Fifo(Sqs):
    name = "there.fifo"


#: `make test` does not install moto and boto3, and RabbitMQ takes some seconds to start
FULL = {"sqs": Sqs, "fifo": Fifo, "amqp": Amqp, "quorum": Quorum}
ENDS = {"local": Here, "door": Door, "ssh": Ssh, "stalk": Stalk, "tube": Tube, "redis": Pressure,
        "list": List, **FULL}
#: Nothing to kill; and moto keeps its messages in memory
LASTING = {"local", "ssh", "sqs", "fifo"}
#: A second copy is stored, unless it is refused for its key
COPIES = {"stalk", "tube", "redis", "list", "sqs", "amqp", "quorum"}


def ends(*without):
    return pytest.mark.parametrize("kind", [
        pytest.param(name, marks=pytest.mark.slow) if name in FULL else name
        for name in ENDS if name not in without])


@pytest.fixture
def far(kind, flatq, tmp_path, request):
    return ENDS[kind](flatq, tmp_path / "far", request)


def drained(queue):
    return Queue(queue).drain()


def shovels(flatq, *words, **more):
    """A shovel that runs meanwhile."""
    return flatq.start("shovel", *words, stdin=subprocess.DEVNULL, **more)


def comes(flatq, queue):
    """The next message there, now or within a minute."""
    return flatq("pop", "-w", "60", queue, check=0).out


def arrive(far, bodies, seconds=30):
    """Move all messages to here, once leases are over; return what came."""
    found, end = [], time.monotonic() + seconds
    while not set(bodies) <= set(found) and time.monotonic() < end:
        move(far.url, "back", patience=20)
        # A copy is refused only as long as the first is there
        if Queue("back").qsize() >= len(set(bodies) - set(found)):
            found += drained("back")
    return found


# ---- the contract: each end passes it


@ends()
def test_there_and_back(flatq, far, kind):
    """Any bytes, in order, and no more than asked for."""
    first = [ANY, b"", os.urandom(180_000 if "sqs" in kind or kind == "fifo" else 50_000)]
    for body in first:
        push(flatq, body, "here")
    bodies = first + filled(flatq, 6)
    flatq("shovel", "--once", "-n", "2", "here", far.url, check=0)
    assert Queue("here").qsize() == 7
    done = flatq("shovel", "--once", "here", far.url, check=0)
    assert (done.out, done.err) == (b"", b"")
    assert move(far.url, "back", count=2) == 2 and move(far.url, "back") == 7
    found = [pop(flatq, "back") for _ in bodies]
    assert found == bodies if kind != "sqs" else sorted(found) == sorted(bodies)
    with pytest.raises(Empty):
        source(far.url).take(0)


@ends()
def test_a_message_in_hand(flatq, far, short_leases):
    """It can be kept and given back; its key stays; and once it is settled, it is gone."""
    push(flatq, b"job", "here")
    move("here", far.url)
    one = source(far.url)
    first = one.take(1)
    first.keep()
    with pytest.raises((Empty, Busy)):
        source(far.url).take(0)
    first.back()
    one.close()
    second = wait_for(lambda: taken(one), "it is back")
    assert (second.body, second.key) == (b"job", first.key)
    second.done()
    with pytest.raises(Empty):
        one.take(0)
    one.close()


def taken(one):
    try:
        return one.take(0)
    except (Empty, Busy, Unreachable):
        return None


@ends()
def test_an_acknowledgement_that_was_lost(flatq, far, kind, monkeypatch):
    """It is sent again. A queue of ours refuses the copy; others store it."""
    bodies, there, lost = filled(flatq, 3), target(far.url), []
    give = there.give

    def forgetful(parcel, wait):
        give(parcel, wait)
        if len(lost) < 2:
            lost.append(parcel.key)
            raise Unreachable("the answer was lost", 69)

    there.give = forgetful
    assert Shovel(source("here"), there, once=True).run() == 3
    move(far.url, "back")
    found = drained("back")
    # amqp's copies have one message_id, and so one key
    copies = 2 if kind in COPIES - {"amqp", "quorum"} else 0
    assert sorted(set(found)) == bodies and len(found) == 3 + copies


@ends("local", "ssh")
def test_it_is_away_for_a_while(flatq, far, kind):
    """The shovel says so and goes on; or gives up after -w, and the message stays."""
    bodies = filled(flatq, 6)
    for words in (("here", far.url), (far.url, "back")):
        if kind not in LASTING:
            move(*words, count=2)
        far.kill()
        before = Queue("here").qsize()
        done = flatq("shovel", "--once", "-w", "0", *words, check=68)
        assert b"onnect" in done.err and Queue("here").qsize() == before
        if kind in LASTING:  # moto has forgotten its queue: it can't come back
            return
        process = shovels(flatq, "--once", *words)
        assert b"onnect" in process.stderr.readline()
        far.start()
        assert process.wait(100) == 0
    assert sorted(drained("back")) == bodies


@ends()
@pytest.mark.parametrize("way", ["to", "from"])
def test_a_signal_stops_it_at_once_while_it_waits(flatq, far, kind, way):
    if way == "to":
        process = shovels(flatq, "here", far.url)
        push(flatq, b"1", "here")
        wait_for(lambda: Queue("here").stats()["reserved"] == Queue("here").qsize() == 0)
    else:
        push(flatq, b"1", "here")
        move("here", far.url)
        process = shovels(flatq, far.url, "back")
        assert comes(flatq, "back") == b"1"
    process.send_signal(signal.SIGQUIT)
    assert process.wait(60) == 0, process.stderr.read()


@ends()
def test_the_shovel_is_killed(flatq, far, kind, moments):
    """Three times each way, anywhere: none is lost, and at most one a kill comes twice."""
    bodies, kills = filled(flatq, 12), 0
    for words in (("here", far.url), (far.url, "back")):
        for _ in range(3):
            shovel = Stopping(flatq, moments(1), "-o", *words)
            if shovel.stops():
                kills += 1
                shovel.kill()
        if words[0] == "here":
            wait_for(lambda: move(*words, patience=20) + 1 and
                     not sum(Queue("here").stats()[state] for state in ("ready", "reserved")))
    found = arrive(far, bodies)
    assert sorted(set(found), key=int) == bodies and kills
    assert len(found) - len(bodies) <= (kills if kind in COPIES else 0)


@ends(*LASTING)
def test_the_other_end_is_killed(flatq, far, kind, moments):
    """Three times each way, anywhere."""
    bodies = filled(flatq, 12)
    for words in (("here", far.url), (far.url, "back")):
        shovel = Stopping(flatq, moments(3), "-o", *words)
        while shovel.stops():
            far.kill()
            far.start()
            shovel.go_on()
    found = arrive(far, bodies)
    assert sorted(set(found), key=int) == bodies
    assert len(found) - len(bodies) <= (6 if kind in COPIES else 0)


class Small(Target):
    """A queue that refuses messages above a size."""

    name = "small"

    def __init__(self, queue, most=100):
        self.queue, self.most = queue, most

    def give(self, parcel, wait):
        if len(parcel.body) > self.most:
            raise TooLarge(f"{len(parcel.body)} bytes are too large", 65)
        self.queue.push(parcel.body, key=parcel.key)


@ends()
def test_too_large_for_another_end(flatq, far, kind, short_leases):
    """It is set aside, if its source can do that; else it stays, and the shovel ends."""
    for body in (b"x" * 200, b"small"):
        push(flatq, body, "here")
    move("here", far.url)
    shovel = Shovel(source(far.url), Small(Queue("back")), once=True)
    if kind in ("local", "door", "ssh", "stalk", "tube"):
        assert (shovel.run(), shovel.buried) == (1, 1)
        assert drained("back") == [b"small"]
    else:
        with pytest.raises(Invalid, match="still there"):
            while shovel.run():
                shovel = Shovel(source(far.url), Small(Queue("back")), once=True)
        found = drained("back")
        assert sorted(found + arrive(far, {b"x" * 200, b"small"} - set(found))) == [
            b"small", b"x" * 200]


@ends("local", "ssh", "redis", "list", "door", "stalk")
def test_too_large_for_it(flatq, far, kind):
    """It is set aside here, with one line."""
    size = 70_000 if kind == "tube" else 1_000_001
    for body in (b"x" * size, b"small"):
        push(flatq, body, "here")
    done = flatq("shovel", "--once", "here", far.url, check=0)
    assert done.err.count(b"\n") == 1 and b"set aside" in done.err
    assert b"too-big" in flatq("list", "here").out
    assert move(far.url, "back") == 1 and drained("back") == [b"small"]


@ends("tube", "stalk", "list", "door", "ssh", "local")
def test_no_such_queue(flatq, far, kind):
    """It has to be created first. (The others create it, or wait for it.)"""
    push(flatq, b"1", "here")
    nothing = far.url.replace("there", "nothing")
    for words in (("here", nothing), (nothing, "back")):
        assert b"no" in flatq("shovel", *words, check=66).err
    move("here", "back")


# ---- what one kind of end has of its own


def test_a_list_and_its_usual_clients(flatq, tmp_path, request, short_leases):
    """Beside the shovel. One that was overtaken settles nothing."""
    far = List(flatq, tmp_path / "far", request)
    client = module("redis").Redis(port=far.server.port)
    client.lpush("there", "1", "2", "2")
    slow, quick = source(far.url), source(far.url)
    first = slow.take(0)
    with pytest.raises(Busy):
        quick.take(0)
    assert (first.body, client.rpop("there")) == (b"1", b"2")
    time.sleep(LEASE + 1)  # the lease
    again = quick.take(0)
    with pytest.raises(NotYours):
        first.done()
    assert (again.body, again.key) == (b"1", first.key)
    again.done()
    second = quick.take(0)
    assert second.body == b"2" and second.key != again.key
    quick.close()
    assert slow.take(0).body == b"2" and client.llen("there") == 0


def test_a_url_of_redis_says_which_kind(flatq, monkeypatch):
    """Its host and port are its own, whatever the environment says."""
    monkeypatch.setenv("REDIS_PORT", "1")
    refused(flatq("shovel", "redis://h/q", "here"), 65, text=b"redis+list://")
    assert pressure.Queue.at("redis://h/q").port == 6379


def test_priority_and_lease_stay(flatq, tmp_path, request):
    tube = Tube(flatq, tmp_path / "far", request)
    push(flatq, b"2", "-p", "7", "-t", "9", "here")
    push(flatq, b"1", "-p", "1", "here")
    move("here", tube.url)
    first, second = (source(tube.url).take(1) for _ in range(2))
    assert (first.body, first.priority) == (b"1", 1)
    assert (second.body, second.priority, second.lease) == (b"2", 7, 9)


def test_two_spools_of_one_host(flatq, tmp_path):
    """Messages that differ only in their spool have different keys."""
    from flatq.shovel.local import Local

    for spool in ("one", "other"):
        Queue("here", tmp_path / spool).push(b"tick")
        assert Shovel(Local("here", str(tmp_path / spool)), target("there"), once=True).run() == 1
    assert drained("there") == [b"tick"] * 2


def test_two_shovels_share_a_queue(flatq):
    bodies = filled(flatq, 20)
    running = [shovels(flatq, "--once", "here", "there") for _ in range(2)]
    assert [one.wait(60) for one in running] == [0, 0]
    assert sorted(drained("there"), key=int) == bodies


def test_no_queue_here(flatq):
    """It may be created at any time, so the shovel waits for it; but not with --once."""
    refused(flatq("shovel", "--once", "not-there", "there"), 66, "shovel", text=b"no queue")
    process = shovels(flatq, "here", "there")
    filled(flatq, 1)
    assert comes(flatq, "there") == b"0"
    process.terminate()
    assert process.wait(60) == 0


def test_closed_ends(flatq):
    filled(flatq, 3)
    flatq("close", "here", check=0)
    assert flatq("shovel", "here", "there", check=0).err == b"" and Queue("there").qsize() == 3
    filled(flatq, 2, "more")
    flatq("close", "there", check=0)
    refused(flatq("shovel", "more", "there"), 69, text=b"closed")
    assert Queue("more").qsize() == 2


def test_no_room(flatq):
    filled(flatq, 3)
    flatq("create", "-b", "1", "there", check=0)
    assert b"is full" in flatq("shovel", "--once", "-w", "0", "here", "there", check=75).err
    assert Queue("here").qsize() == 2
    process = shovels(flatq, "--once", "here", "there")
    got = [comes(flatq, "there") for _ in range(3)]
    assert got == [b"0", b"1", b"2"] and process.wait(60) == 0


def test_too_large_for_a_door(flatq, tmp_path, request, monkeypatch):
    """The door refuses before it has read the whole message, which resets the connection."""
    monkeypatch.setattr(Door, "words", ("-z", "100"))
    door = Door(flatq, tmp_path / "far", request)
    for size in (200, 100_000, 5_000_000):
        with pytest.raises(Invalid, match="over the limit"):
            Queue(door.url).push(b"x" * size)
    push(flatq, b"x" * 300_000, "here")
    assert move("here", door.url) == 0 and b"too-big" in flatq("list", "here").out


def test_the_error_of_another_machine_writes_nothing_to_a_terminal():
    """Whoever answers there chooses the text."""
    module("pystalk")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        asked = pool.submit(source("beanstalk://127.0.0.1:%d/q" % server.getsockname()[1]).take, 0)
        with server.accept()[0] as there:
            there.sendall(b"\x1b]0;title\x07\r\n")
            error = asked.exception(60)
    assert str(error).isprintable() and len(str(error)) < 300


def test_a_pressure_queue_that_was_made_anew(flatq, tmp_path, request):
    """Its messages are new ones, even with the same bodies at the same places."""
    far = Pressure(flatq, tmp_path / "far", request)
    queue = pressure.Queue.at(far.url)
    for _ in range(2):
        queue.put(b"tick")
        assert move(far.url, "back") == 1
        queue.delete()
        queue.create()
    assert drained("back") == [b"tick"] * 2


@pytest.mark.slow
def test_amqp_says_no(flatq, tmp_path, request):
    """A wrong password, another vhost, a full queue, no room for a while."""
    far = Amqp(flatq, tmp_path / "far", request)
    bodies = filled(flatq, 8)
    for url, code in ((far.url.replace("guest@", "bad@"), 77),
                      (far.url.replace("/there", "/v/there"), 66)):
        for words in (("here", url), (url, "back")):
            assert flatq("shovel", *words, check=code).err.count(b"\n") == 1
    far.declare("small", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    small = f"{far.top}/small"
    assert b"is full" in flatq("shovel", "--once", "-w", "0", "here", small, check=75).err
    far.server.control("set_vm_memory_high_watermark", "absolute", "1")
    done = flatq("shovel", "--once", "-w", "1", "here", far.url)
    assert done.status == 75 and b"takes nothing at present" in done.err, done
    process = shovels(flatq, "--once", "here", far.url)
    far.server.control("set_vm_memory_high_watermark", "0.4")
    assert process.wait(60) == 0
    move(small, "back")
    move(far.url, "back")
    assert sorted(set(drained("back"))) == bodies


def test_a_place_of_amqp():
    module("pika")
    from flatq.shovel import amqp

    client = amqp.Amqp("amqps://a%40b:secret%2F@h:5/%2Fv/a%2Fq%20x?heartbeat=7")
    assert (client.queue, client.name) == ("a/q x", "amqps://h:5/%2Fv/a%2Fq%20x")
    assert (client.parameters.virtual_host, client.parameters.heartbeat) == ("/v", 7)
    assert client.parameters.credentials.password == "secret/"
    with pytest.raises(ValueError) as failed:
        target("amqp://u:secret@h/a/b/c")
    assert "secret" not in str(failed.value)


def test_any_body_is_a_text_of_sqs_and_comes_back():
    """Text of XML's characters goes as it is; all other bytes go as base64, with a mark."""
    marked = {sqs.MARK: {"StringValue": sqs.VALUE}}
    for body in ("grün\t\n😀".encode(), b" ", b"=", b"QUJD", b'<a>&"'):
        assert sqs.encode(body) == (body.decode(), False)
    for body in (b"", ANY, b"\r", b"\0", b"\x7f\x80", "\ufffe".encode()):
        text, encoded = sqs.encode(body)
        assert encoded and sqs.TEXT.fullmatch(text)
        assert sqs.decode({"Body": text, "MessageAttributes": marked}) == body
    # Another program may have marked what is no base64
    assert sqs.decode({"Body": "abcde", "MessageAttributes": marked}) == b"abcde"


SAID = {
    ("AWS.SimpleQueueService.NonExistentQueue", ""): (400, Missing),
    ("RequestThrottled", ""): (403, Busy), ("OverLimit", ""): (403, Busy),
    ("AccessDenied", ""): (403, Denied), ("ExpiredToken", ""): (400, Denied),
    ("ServiceUnavailable", ""): (503, Unreachable), ("ReceiptHandleIsInvalid", ""): (400, NotYours),
    ("InvalidAttributeName", ""): (400, Invalid),
    ("InvalidParameterValue", "Message must be shorter than 262144 bytes."): (400, TooLarge),
    ("InvalidParameterValue", "The receipt handle has expired."): (400, NotYours),
}


@pytest.mark.slow
def test_what_sqs_says():
    """The errors of Amazon's, of which moto has few; and an answer that was cut off."""
    module("boto3")
    from botocore import exceptions

    client = sqs.Sqs("sqs://q")
    for (code, text), (status, kind) in SAID.items():
        error = exceptions.ClientError({"Error": {"Code": code, "Message": text},
                                        "ResponseMetadata": {"HTTPStatusCode": status}}, "Send")
        assert type(client._error(error)) is kind, code
    with pytest.raises(Unreachable, match="whole"):
        client._came({"headers": {"content-length": "10"}, "body": b"{}"})


# ---- the command


@pytest.mark.parametrize("words", [[], ["--once"]])
@pytest.mark.parametrize("place, missing", [
    ("amqp://h/q", "pika"), ("sqs://q", "boto3"), ("redis+list://127.0.0.1:1/q", "redis"),
    ("mqueue:///q", "posix_ipc"), ("beanstalk://h/q", "pystalk")])
def test_without_its_library(flatq, place, missing, words, tmp_path):
    """One line says what to install, at once, and nothing is taken."""
    (tmp_path / f"{missing}.py").write_text("raise ImportError")
    filled(flatq, 1)
    for ends in (["here", place], [place, "there"]):
        done = flatq("shovel", *words, *ends, env={"PYTHONPATH": str(tmp_path)}, timeout=20)
        refused(done, 69, text=b"pip install " + missing.replace("_", "-").encode())
    assert Queue("here").qsize() == 1


@pytest.mark.shells
def test_in_each_shell(flatq):
    push(flatq, ANY, ".a/x")
    assert flatq("shovel", "-n", "1", ".a/x", "b", check=0).err == b""
    assert pop(flatq, "b") == ANY
    refused(flatq("shovel", "a", "b", env={"FLATQ_PYTHON": "none"}), 69, "shovel", text=b"Python")


LONG = "9" * 5000


@pytest.mark.parametrize("place, codes", [
    ("beanstalk://[::1/q", {65}), ("amqp://[::1/q", {65, 69}), ("amqp://h:x/q", {65, 69}),
    ("amqp:///q", {65, 69}), ("pressure+redis://[::1/0/q", {65}),
    (b"q\xff", {65}), (b"127.0.0.1:1/q\xff", {65, 68}), (b"beanstalk://h\xff:1/q", {65, 68}),
    (b"sqs://q\xff", {65}), ("beanstalk://a..b/q", {68}), ("a..b:1/q", {68}),
    ("pressure+redis://a..b/q", {68, 69}), (f"pressure+redis://h/{LONG}/q", {65}),
    ("beanstalk://", {65}), ("beanstalk://x/-", {65}), ("ftp://x/y", {65}), ("sqs://a/b", {65}),
    ("sqs://.fifo", {65}), ("ssh://-oX/q", {64})], ids=range(19))
@pytest.mark.parametrize("end", [0, 1], ids=["from", "to"])
def test_a_place_that_nobody_has(flatq, place, codes, end):
    """One line, whatever a library says of it, and the message stays."""
    push(flatq, b"kept", "here")
    words = [place, "here"] if end == 0 else ["here", place]
    done = flatq("shovel", "--once", "-w", "0", *words, timeout=100)
    assert done.status in codes and done.out == b"" and done.err.count(b"\n") == 1, done
    assert pop(flatq, "here") == b"kept"


def test_a_source_needs_no_target(flatq):
    with pytest.warns(DeprecationWarning, match=r"source\(place\)"):
        assert source("here", "there").name == "here"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source("here")


@pytest.mark.parametrize("how", ["2>/dev/full", "2>&-"], ids=["full", "closed"])
def test_without_a_stderr_it_goes_on(flatq, how):
    """It has something to say of a message, and moves the others all the same."""
    filled(flatq, 3)
    flatq("create", "-b", "2", "there", check=0)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "flatq.shovel", "-o", "-w",
         "0", "here", "there"], cwd=flatq.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        timeout=100, env=flatq.environment({"PYTHONPATH": str(ROOT / "python")}))
    assert (done.returncode, done.stdout) == (75, b"") and Queue("there").qsize() == 2


def test_hup_ends_it_as_such(flatq):
    process = shovels(flatq, "here", "there")
    filled(flatq, 1)
    assert comes(flatq, "there") == b"0"
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == -signal.SIGHUP


def test_a_stop_while_the_target_is_away_gives_back(flatq):
    bodies = filled(flatq, 3)
    process = shovels(flatq, "here", f"127.0.0.1:{free()}/x")
    assert b"efused" in process.stderr.readline()
    process.terminate()
    assert process.wait(60) == 0
    assert [pop(flatq, "here") for _ in bodies] == bodies


def test_it_tries_again_ever_later(monkeypatch):
    """Up to a quarter of a lease."""
    shovel, pauses = Shovel(source("here"), target("there")), []
    monkeypatch.setattr("flatq.shovel.time.sleep", pauses.append)
    for _ in range(9):
        shovel._fails("an end", Unreachable("gone", 69))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.5, 7.5])


@pytest.mark.parametrize("error", [Unreachable("gone", 69), NotYours("over", 66)])
@pytest.mark.parametrize("how", ["done", "bury"])
def test_settling(flatq, error, how):
    """It is tried until the source is back; what is no longer ours is left alone."""
    asked = []

    def settle():
        asked.append(how)
        if len(asked) < 3:
            raise error

    class One(Source):
        def take(self, wait):
            if asked:
                raise Empty("nothing there", 66)
            return Parcel(b"123" * 50, "key", done=settle, bury=settle)

    most = 100 if how == "bury" else 1000
    shovel = Shovel(One(), Small(Queue("there"), most), once=True)
    assert shovel.run() == (how == "done")
    ours = isinstance(error, Unreachable)
    assert len(asked) == (3 if ours else 1) and shovel.buried == (ours and how == "bury")


def test_an_error_of_the_system_is_one_line(flatq):
    push(flatq, b"1", "here")
    broken = pathlib.Path(flatq.home, "sitecustomize.py")
    broken.write_text("import os\ndef fails(*words): raise OSError(5, 'Input/output error')\n"
                      "os.listdir = fails\n")
    done = flatq("shovel", "--once", "here", "there", env={"PYTHONPATH": str(flatq.home)})
    assert done.status == 74 and done.err.count(b"\n") == 1 and b"Input/output" in done.err, done
