"""shovel to and from a real RabbitMQ: messages keep their order, none is lost, and the only copies are of messages whose acknowledgement was lost."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import chance, wait_for
from engine import pop, push, refused
from moving import ANY, Stopping, filled, killed, moments, move, once, short_leases  # noqa: F401
from servers import Rabbit, free, here_too, module

from flatq import Busy, Invalid, Missing, NotYours, Queue, Unreachable
from flatq.shovel import Shovel, amqp, source, target
from flatq.shovel.ends import Target, TooLarge

KINDS = ["classic", "quorum"]


def rabbit(test):
    """The mark of a test that needs the server, which takes some seconds to start."""
    return pytest.mark.full(pytest.mark.xdist_group("rabbitmq")(test))


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    return here_too(flatq, monkeypatch)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    module("pika")
    with Rabbit(tmp_path_factory.mktemp("rabbitmq") / "server") as server:
        server.top = f"amqp://guest:guest@127.0.0.1:{server.port}"
        yield server


class Client:
    """Somebody else's client, with pika's connection that shovel does not use."""

    def __init__(self, url):
        pika = module("pika")
        self.connection = pika.BlockingConnection(pika.URLParameters(url.rpartition("/")[0]))
        self.channel, self.properties = self.connection.channel(), pika.BasicProperties

    def __enter__(self):
        return self.channel

    def __exit__(self, *error):
        self.connection.close()


class Far:
    """A durable queue of the server."""

    def __init__(self, server, kind, name, **settings):
        self.server, self.name, self.url = server, name, f"{server.top}/{name}"
        with Client(self.url) as channel:
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **{"x-" + key.replace("_", "-"): value for key, value in settings.items()}})

    def written(self):
        """Let the server write down that it has the queue. RabbitMQ 3.10 does so within 3 minutes; if it is killed before, it finds a quorum queue without
        its messages (https://github.com/rabbitmq/ra/pull/443)."""
        self.server.control("eval", "[dets:sync(Table) || Table <- dets:all()].")

    def restart(self):
        """Kill the server, unless it was, and start it. A quorum queue elects its leader."""
        if self.server.process.poll() is None:
            self.server.kill()
        log = self.server.place / "log/flatq@localhost.log"
        elections = lambda: sum(self.name in line and "candidate -> leader" in line for line in log.read_text().splitlines())
        before = elections()
        self.server.start()
        wait_for(lambda: not before or elections() > before, "a leader")

    def drain(self):
        """Each message as (body, properties)."""
        with Client(self.url) as channel:
            return [(body, about) for _, about, body in iter(lambda: channel.basic_get(self.name, auto_ack=True), (None, None, None))]

    def ready(self):
        with Client(self.url) as channel:
            return channel.queue_declare(self.name, passive=True).method.message_count

    def bodies(self):
        return [body for body, _ in self.drain()]

    def put(self, *bodies, **about):
        with Client(self.url) as channel:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", self.name, body, module("pika").BasicProperties(delivery_mode=2, **about), mandatory=True)


@pytest.fixture
def make(server, request):
    """make(KIND, ...) makes a new queue."""
    made = []

    def make(kind, **settings):
        name = re.sub(r"\W+", "-", request.node.name) + f"-{len(made)}"
        made.append(Far(server, kind, name, **settings))
        return made[-1]

    return make


@pytest.fixture(params=KINDS)
def far(make, request):
    return make(request.param)


# ---- without a server


def test_places():
    module("pika")
    for place in ("amqp://", "amqp://h", "amqp://h/", "amqp://h/v/", "amqp://h/v/w/q", "amqp://h:x/q", "amqp:///q", "amqp://u:secret@h/a/b/c"):
        with pytest.raises(ValueError) as failed:
            target(place)
        assert "secret" not in str(failed.value)
    client = amqp.Client("amqps://a%40b:secret%2F@h:5/%2Fv/a%2Fq%20x?heartbeat=7")
    assert (client.queue, client.name, client.parameters.virtual_host, client.parameters.host, client.parameters.port) == ("a/q x", "amqps://h:5/%2Fv/a%2Fq%20x", "/v", "h", 5)
    assert (client.parameters.credentials.username, client.parameters.credentials.password, client.parameters.heartbeat) == ("a@b", "secret/", 7)
    assert client.parameters.ssl_options and amqp.Client("amqp://h/q").parameters.virtual_host == "/"


@pytest.mark.parametrize("words", [[], ["--once"]])
@pytest.mark.parametrize("place, missing", [("amqp://h/q", "pika"), ("sqs://q", "boto3"),
    ("pressure+redis://127.0.0.1:1/0/q", "redis"), ("mqueue:///q", "posix_ipc")])
def test_without_its_library(flatq, place, missing, words, tmp_path):
    """One line says what to install, and nothing is taken. Pressure's and mqueue's were waited for,
    as if they could come."""
    (tmp_path / f"{missing}.py").write_text("raise ImportError")
    filled(flatq, 1)
    for ends in (["here", place], [place, "there"]):
        done = flatq("shovel", *words, *ends, env={"PYTHONPATH": str(tmp_path)}, timeout=20)
        text = b"pip install " + missing.replace("_", "-").encode()
        refused(done, 69, text=text)
    assert Queue("here").qsize() == 1


def test_nobody_answers(flatq):
    module("pika")
    filled(flatq, 1)
    done = flatq("shovel", "--once", "-w", "0", "here", f"amqp://127.0.0.1:{free()}/x", check=68)
    assert b"efused" in done.err and Queue("here").qsize() == 1


# ---- messages on their way


@rabbit
def test_there_and_back(flatq, far):
    bodies = [b"", ANY, os.urandom(900_000)]
    for body in bodies:
        push(flatq, body, "here")
    bodies += filled(flatq, 20)
    flatq("shovel", "--once", "here", far.url, check=0)
    refused(flatq("pop", "here"), 66)
    flatq("shovel", "--once", "-n", "2", far.url, "back", check=0)
    assert Queue("back").qsize() == 2
    assert move(far.url, "back") == 21
    assert [pop(flatq, "back") for _ in bodies] == bodies and far.bodies() == []


@rabbit
def test_others_agree(flatq, far):
    """pika, used as others do, reads what the shovel wrote, and the shovel moves what pika wrote. Without a message_id, two equal messages are two."""
    push(flatq, ANY, "here")
    move("here", far.url)
    (body, about), = far.drain()
    assert body == ANY and about.delivery_mode == 2 and about.message_id
    far.put(b"same", b"same")
    far.put(b"more", message_id="an id", priority=3, headers={"a": 1})
    assert move(far.url, "back") == 3
    assert Queue("back").drain(end=b"\0") == [b"same", b"same", b"more"]


@rabbit
def test_from_one_to_another(flatq, make, far):
    other, bodies = make("classic"), filled(flatq, 10)
    assert [move("here", far.url), move(far.url, other.url), move(other.url, "back")] == [10] * 3
    assert Queue("back").drain(end=b"\0") == bodies


@rabbit
def test_too_large_is_set_aside(flatq, far):
    for body in (b"x" * 1_000_001, b"small"):
        push(flatq, body, "here")
    done = flatq("shovel", "--once", "here", far.url, check=0)
    assert done.err.count(b"\n") == 1 and b"larger than" in done.err
    assert far.bodies() == [b"small"] and b"too-big" in flatq("list", "here").out


@rabbit
def test_too_large_for_another_end(flatq, far):
    """A message cannot be set aside there. It stays, and is the first again."""
    class Small(Target):
        name = "small"

        def give(self, parcel, wait):
            raise TooLarge("too large", 65)

    far.put(b"0", b"1")
    with pytest.raises(Invalid, match="still there"):
        Shovel(source(far.url, "small"), Small(), once=True).run()
    wait_for(lambda: far.ready() == 2, "it is back")
    assert far.bodies() == [b"0", b"1"]


@rabbit
@pytest.mark.parametrize("kind", KINDS)
def test_full(flatq, make, kind):
    """A quorum queue takes some more than its limit."""
    far, bodies = make(kind, max_length=1, overflow="reject-publish"), filled(flatq, 8)
    assert b"is full" in flatq("shovel", "--once", "-w", "0", "here", far.url, check=75).err
    process = flatq.start("shovel", "--once", "here", far.url, stdin=subprocess.DEVNULL)
    assert b"is full" in process.stderr.readline()
    got = []
    wait_for(lambda: got.extend(far.bodies()) or len(got) == 8, "all have come")
    assert got == bodies and process.wait(60) == 0


@rabbit
@pytest.mark.parametrize("words, status, text", [("guest:bad@{}/q", 77, b"ACCESS_REFUSED"), ("guest:guest@{}/q", 66, b"no "), ("guest:guest@{}/v/q", 66, b"not found")])
def test_refused(flatq, server, words, status, text):
    filled(flatq, 1)
    url = "amqp://" + words.format(f"127.0.0.1:{server.port}")
    for places in (("here", url), (url, "back")):
        assert text in flatq("shovel", *places, check=status).err
    move("here", "there")


@rabbit
def test_a_queue_that_is_deleted(flatq, far):
    """While the shovel waits for its messages, and between two messages to it."""
    process = flatq.start("shovel", far.url, "back", stdin=subprocess.DEVNULL)
    far.put(b"0")
    assert flatq("pop", "-w", "60", "back", check=0).out == b"0"
    filled(flatq, 2)
    here, there = source("here", far.url), target(far.url)
    there.give(here.take(0), 0)
    with Client(far.url) as channel:
        channel.queue_delete(far.name)
    assert process.wait(60) == 66 and b"no queue" in process.stderr.read()
    with pytest.raises(Missing, match="no such queue"):
        there.give(here.take(0), 0)
    there.close()
    here.close()


@rabbit
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM, signal.SIGINT])
def test_idle_it_stops_at_once(flatq, far, number):
    process = flatq.start("shovel", far.url, "there", stdin=subprocess.DEVNULL)
    far.put(b"1")
    assert flatq("pop", "-w", "60", "there", check=0).out == b"1"
    process.send_signal(number)
    assert process.wait(60) == 0, process.stderr.read()


# ---- answers that do not come


@rabbit
def test_it_takes_nothing_for_some_time(flatq, server, far):
    """A server that is short of memory stores a message that it was sent in the end. So the shovel sends no second copy."""
    bodies = filled(flatq, 3)
    server.control("set_vm_memory_high_watermark", "absolute", "1")
    try:
        process = flatq.start("shovel", "--once", "here", far.url, stdin=subprocess.DEVNULL)
        assert b"takes nothing at present" in process.stderr.readline()
        push(flatq, b"3", "more")
        assert b"takes nothing at present" in flatq("shovel", "--once", "-w", "1", "more", far.url, check=75).err
    finally:
        server.control("set_vm_memory_high_watermark", "0.4")
    assert process.wait(60) == 0
    assert [body for body in far.bodies() if body != b"3"] == bodies


@contextlib.contextmanager
def stopped(server):
    """Each of its threads stops a little later."""
    server.kill(signal.SIGSTOP)
    tasks = Path(f"/proc/{server.process.pid}/task")
    try:
        wait_for(lambda: all(re.search(r"\) T ", (task / "stat").read_text()) for task in tasks.iterdir()), "it stops")
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@rabbit
def test_an_acknowledgement_that_comes_late(flatq, server, far, monkeypatch):
    here, there, bodies = source("here", "there"), target(far.url), filled(flatq, 3)
    there.give(first := here.take(0), 0)
    first.done()
    for _ in bodies[1:]:
        parcel = here.take(0)
        with monkeypatch.context() as patched, stopped(server):
            patched.setattr(amqp, "ANSWER", 0.2)
            for _ in range(2):
                with pytest.raises(Unreachable, match="no acknowledgement") as failed:
                    there.give(parcel, 0)
                assert failed.value.code == 69
        there.give(parcel, 0)
        parcel.done()
    there.close()
    here.close()
    assert far.bodies() == bodies


@rabbit
def test_a_server_that_does_not_answer(flatq, server, far, monkeypatch):
    one = source(far.url, "back")
    for name, code in (("OPENING", 68), ("ANSWER", 69)):
        with monkeypatch.context() as patched, stopped(server), pytest.raises(Unreachable, match="no answer") as failed:
            patched.setattr(amqp, name, 0.2)
            one.take(0)
        assert failed.value.code == code
        far.put(b"1")
        wait_for(lambda: taken(one), "the server notices the end").done()
    one.close()


# ---- killed


#: where a shovel from here to there can be killed, and one from there to here
TO = ["connect call 1", "connect return 1", "take return 1", "give call 3", "_answers call 3", "give return 3", "done call 3", "done return 3", "close call 1"]
FROM = ["connect call 1", "connect return 1", "take call 1", "_comes call 1", "take return 3", "give call 3", "give return 3", "done call 3", "done return 3",
        "_empty call 1", "close call 1"]
#: at these, a message was sent whose acknowledgement is not noted here
UNNOTED = {"_answers call 3", "give return 3", "done call 3"}


def watched(flatq, points, *places):
    """A shovel that stops at these points: the test acts at each of them, and then it goes on, or not if it was killed."""
    shovel = Stopping(flatq, points, "--once", *places)
    while shovel.stops():
        yield shovel
        if shovel.process.poll() is not None:
            return
        shovel.go_on()


@rabbit
def test_the_shovel_is_killed_at_each_point(flatq, far, short_leases):
    for point in TO:
        bodies = filled(flatq, 6)
        for shovel in watched(flatq, [point], "here", far.url):
            shovel.kill()
        move("here", far.url)
        found = far.bodies()
        assert once(found) == bodies and len(found) - len(bodies) <= (point in UNNOTED), point
    for point in FROM:
        filled(flatq, 6)
        move("here", far.url)
        for shovel in watched(flatq, [point], far.url, "back"):
            shovel.kill()
        move(far.url, "back")
        assert Queue("back").drain(end=b"\0") == bodies, point


@rabbit
@pytest.mark.parametrize("kind", KINDS)
def test_the_server_is_killed_at_each_point(flatq, server, make, kind):
    """One shovel each way; at a quarter of the points with one kind of queue, at another quarter with the other. A message whose acknowledgement was lost
    on the way there has its key twice, so in the end it is there once."""
    far = make(kind)
    bodies = filled(flatq, 30)
    far.written()
    for places, points in ((("here", far.url), TO), ((far.url, "back"), FROM)):
        points = [re.sub("3$", str(at + 4), point) for at, point in enumerate(points) if not re.match("connect call|take call|close", point)]
        points = points[KINDS.index(kind) + chance("points of the server").randrange(2) * 2::4]
        stops = 0
        for _ in watched(flatq, points, *places):
            stops += 1
            far.restart()
        assert stops == len(points), stops
    assert Queue("back").drain(end=b"\0") == bodies


@rabbit
def test_the_shovel_and_the_server_are_killed(flatq, server, far, moments):
    """Both are killed, in any order, and messages move both ways at the same time. All messages arrive, in order. A message that was given, not
    settled, and meanwhile taken away on the other way, is given again."""
    bodies, ways = filled(flatq, 80), [("here", far.url), (far.url, "back")]
    move(*ways[0], count=24)
    far.written()
    for _ in range(4):
        running = [Stopping(flatq, moments(1), *way) for way in ways]
        assert all([shovel.stops() for shovel in running])
        for act in moments.shuffled(running[0].kill, running[1].kill, server.kill):
            act()
        far.restart()
    for way in ways:
        move(*way)
    found = Queue("back").drain(end=b"\0")
    assert once(found) == bodies and len(found) <= len(bodies) + 8


@rabbit
def test_a_message_of_a_connection_that_has_not_ended(far, flatq):
    """The connection of a killed shovel may end after the next one's has begun. No later message may overtake that one."""
    far.put(b"0", b"1", message_id="id")
    first = source(far.url, "back")
    parcel = first.take(0)
    target("back").give(parcel, 0)
    killed(first)
    second = source(far.url, "back")
    with pytest.raises(Busy, match="may still be reserved"):
        second.take(0)
    first.client.close()
    with pytest.raises(NotYours):
        parcel.done()
    assert wait_for(lambda: taken(second)).key == parcel.key
    # our own connection breaks
    second.client.connection._transport._sock.shutdown(2)
    again = wait_for(lambda: taken(second))
    assert again.key == parcel.key
    target("back").give(again, 0)
    again.done()
    assert second.take(0).body == b"1"
    second.close()
    assert Queue("back").drain(end=b"\0") == [b"0"]


def taken(one):
    with contextlib.suppress(Busy, Unreachable):
        return one.take(0)
