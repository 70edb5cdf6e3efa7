"""shovel to and from moto's SQS: no message is lost, a FIFO queue keeps the order, and only a standard queue may get one twice. moto keeps its messages
in memory, so it is not killed: connections to it are cut, before a request is passed on or before its answer is."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import chance, wait_for
from engine import pop, push, refused
from moving import ANY, LEASE, Stopping, filled, killed, move, once, short_leases  # noqa: F401
from servers import Moto, free, here_too, module

from flatq import Busy, Denied, Empty, Invalid, Missing, NotYours, Queue, Unreachable
from flatq.shovel import source, sqs, target
from flatq.shovel.ends import Note, TooLarge

KINDS = {"standard": "", "fifo": ".fifo"}


def moto(test):
    """The mark of a test that needs the server: `make test` does not install it."""
    return pytest.mark.full(pytest.mark.xdist_group("moto")(test))


@pytest.fixture
def flatq(flatq, shell, monkeypatch):
    here_too(flatq, monkeypatch)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return flatq


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    module("boto3")
    module("moto")
    with Moto(tmp_path_factory.mktemp("moto") / "server") as server:
        yield server


class Between:
    """A way to the server. (WHEN, WORD) in `cuts` ends the connection of the next request with that word: `before` it is passed on, `within` the head of
    the answer, or `after` all of it but the last bytes."""

    def __init__(self, port):
        self.port, self.far, self.cuts, self.server = free(), port, [], None
        self.start()

    def start(self):
        self.server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(self.server,), daemon=True).start()

    def end(self):
        # an accept that waits would keep the port
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()

    def _serve(self, server):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._pass, args=(server.accept()[0],), daemon=True).start()

    def _pass(self, near):
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.far)) as far:
            while request := self._message(near):
                cut = next((cut for cut in self.cuts if f"AmazonSQS.{cut[1]}".encode() in request), None)
                if cut:
                    self.cuts.remove(cut)
                if cut and cut[0] == "before":
                    return
                far.sendall(request)
                answer = self._message(far)
                near.sendall(answer[: -2 if cut[0] == "after" else answer.index(b"\r\n") + 2] if cut else answer)
                if cut:
                    return

    @staticmethod
    def _message(connection):
        """A request or an answer of HTTP, which states its length."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return b""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1])
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body


@pytest.fixture
def between(server):
    way = Between(server.port)
    yield way
    way.end()


class Far:
    """A queue of the server, and the environment that leads to it."""

    def __init__(self, flatq, monkeypatch, server, between, name):
        self.url = f"sqs://{name}"
        for key, value in {"ENDPOINT_URL": f"http://127.0.0.1:{between.port}", "DEFAULT_REGION": "eu-north-1", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y"}.items():
            monkeypatch.setenv(f"AWS_{key}", value)
            flatq.env[f"AWS_{key}"] = value
        self.boto = module("boto3").client("sqs", endpoint_url=f"http://127.0.0.1:{server.port}")
        self.fifo = name.endswith(".fifo")
        self.address = self.boto.create_queue(QueueName=name, Attributes={**({"FifoQueue": "true"} if self.fifo else {}), "MaximumMessageSize": "262144"})["QueueUrl"]

    def put(self, *texts, **words):
        for number, text in enumerate(texts):
            fifo = {"MessageGroupId": "others", "MessageDeduplicationId": f"{text}-{number}"} if self.fifo else {}
            self.boto.send_message(QueueUrl=self.address, MessageBody=text, **fifo, **words)

    def drain(self):
        found = []
        while messages := self.boto.receive_message(QueueUrl=self.address, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get("Messages"):
            for message in messages:
                self.boto.delete_message(QueueUrl=self.address, ReceiptHandle=message["ReceiptHandle"])
            found += messages
        return found

    def bodies(self):
        return [sqs.decode(message) for message in self.drain()]


@pytest.fixture(params=list(KINDS))
def far(request, flatq, monkeypatch, server, between):
    name = re.sub(r"\W+", "-", request.node.name)[:70].strip("-")
    return Far(flatq, monkeypatch, server, between, name + KINDS[request.param])


# ---- without a server


def test_places():
    for place in ("sqs://", "sqs://a/b", "sqs://a.b", "sqs://.fifo", "sqs://" + "x" * 81):
        with pytest.raises(ValueError):
            target(place)


def test_a_text_that_is_marked_and_is_no_base64():
    """Another program may have sent it: it comes as it is."""
    marked = {sqs.MARK: {"StringValue": sqs.VALUE}}
    assert [sqs.decode({"Body": text, "MessageAttributes": marked}) for text in ("abcde", "QU!!JD===xx", "eA==\n")] == [b"abcde", b"QU!!JD===xx", b"x"]



def test_any_body_is_a_text_and_comes_back(request):
    """Text of XML's characters goes as it is; all other bytes go as base64, which a mark says. No text is empty."""
    for body in ("grün\t\n😀".encode(), b" ", b"=", b"QUJD", b'<a>&"'):
        assert sqs.encode(body) == (body.decode(), False)
    random = chance(request.node.nodeid)
    for body in (b"", ANY, b"\r", b"\0", b"\x1f", b"\x7f\x80", "\ufffe".encode(), b"\xed\xa0\x80", *(random.randbytes(size) for size in range(200))):
        text, marked = sqs.encode(body)
        assert sqs.TEXT.fullmatch(text) and sqs.decode({"Body": text, "MessageAttributes": {sqs.MARK: {"StringValue": sqs.VALUE}} if marked else {}}) == body
    assert sqs.decode({"Body": "QUJD", "MessageAttributes": {"other": {"BinaryValue": b"base64"}}}) == b"QUJD"


def test_a_long_receipt_has_room_in_the_note(tmp_path):
    """SQS's have up to 1024 characters."""
    note = Note("way", "a place", str(tmp_path))
    note.write(b"given " + b"x" * 1024)
    note.close()
    assert Note("way", "a place", str(tmp_path)).text == b"given " + b"x" * 1024


# ---- messages on their way


@moto
def test_there_and_back(flatq, far):
    bodies = [b"", ANY, "grün\n".encode(), os.urandom(180_000), b"x" * 262_144]
    for body in bodies:
        push(flatq, body, "here")
    bodies += filled(flatq, 12)
    flatq("shovel", "--once", "here", far.url, check=0)
    refused(flatq("pop", "here"), 66)
    flatq("shovel", "--once", "-n", "2", far.url, "back", check=0)
    assert move(far.url, "back") == 15
    got = [pop(flatq, "back") for _ in bodies]
    assert got == bodies if far.fifo else sorted(got) == sorted(bodies)
    assert far.drain() == []


@moto
def test_others_agree(flatq, far):
    """boto3, used as others do, reads what the shovel wrote, and the shovel moves what boto3 wrote."""
    for body in (b"text", b"\xff", b""):
        push(flatq, body, "here")
    move("here", far.url)
    found = [(message["Body"], message.get("MessageAttributes", {}).get("flatq-encoding", {}).get("StringValue")) for message in far.drain()]
    assert sorted(found, key=str) == sorted([("text", None), ("/w==", "base64"), ("\n", "base64")], key=str)
    far.put("same", "same", MessageAttributes={"other": {"DataType": "String", "StringValue": "1"}})
    assert move(far.url, "back") == 2 and Queue("back").drain(end=b"\0") == [b"same"] * 2


@moto
def test_too_large_is_set_aside(flatq, far):
    """As text a message has room that has none as base64."""
    for body in (b"x" * 262_145, b"\xff" * 200_000, b"small"):
        push(flatq, body, "here")
    done = flatq("shovel", "--once", "here", far.url, check=0)
    assert done.err.count(b"\n") == 2 and done.err.count(b"shorter than") == 2
    assert far.bodies() == [b"small"] and flatq("list", "here").out.count(b"too-big") == 2


@moto
@pytest.mark.parametrize("status, text, changes", [
    (66, b"no such queue", {}), (77, b"credentials", {"AWS_ACCESS_KEY_ID": None}), (65, b"region", {"AWS_DEFAULT_REGION": None}), (65, b"endpoint", {"AWS_ENDPOINT_URL": "x"}),
    (68, b"Could not connect", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})])
def test_refused(flatq, server, between, monkeypatch, status, text, changes):
    Far(flatq, monkeypatch, server, between, "there")
    filled(flatq, 1)
    for places in (("here", "sqs://nothing"), ("sqs://nothing", "back")):
        assert text in flatq("shovel", "-w", "0", *places, env={"AWS_EC2_METADATA_DISABLED": "true", **changes}, check=status).err
    move("here", "there")


ERRORS = {
    ("AWS.SimpleQueueService.NonExistentQueue", ""): (400, Missing), ("RequestThrottled", ""): (403, Busy), ("OverLimit", ""): (403, Busy),
    ("AccessDenied", ""): (403, Denied), ("ExpiredToken", ""): (400, Denied), ("ServiceUnavailable", ""): (503, Unreachable),
    ("ReceiptHandleIsInvalid", ""): (400, NotYours), ("InvalidAttributeName", ""): (400, Invalid),
    ("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 262144 bytes."): (400, TooLarge),
    ("InvalidParameterValue", f"Value {'x' * 400} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."): (400, NotYours),
}


@moto
def test_what_the_service_says():
    """The errors of Amazon's, of which moto has few."""
    client, errors = sqs.Client("sqs://q"), module("botocore.exceptions")
    for (code, text), (status, kind) in ERRORS.items():
        error = errors.ClientError({"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}, "SendMessage")
        assert type(client._error(error)) is kind, code


@moto
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM, signal.SIGINT])
def test_idle_it_stops_at_once(flatq, far, number):
    process = flatq.start("shovel", far.url, "there", stdin=subprocess.DEVNULL)
    far.put("1")
    assert flatq("pop", "-w", "60", "there", check=0).out == b"1"
    process.send_signal(number)
    assert process.wait(60) == 0, process.stderr.read()


# ---- connections that end


@moto
def test_the_server_is_away(flatq, far, between):
    """In the middle of the messages, each way; each is there once."""
    bodies = filled(flatq, 10)
    for words in (("here", far.url), (far.url, "back")):
        move(*words, count=3)
        between.end()
        process = flatq.start("shovel", "--once", *words, stdin=subprocess.DEVNULL)
        assert b"Could not connect" in process.stderr.readline()
        between.start()
        assert process.wait(60) == 0
    assert sorted(Queue("back").drain(end=b"\0")) == sorted(bodies)


@moto
def test_requests_and_answers_that_are_cut(flatq, far, between, short_leases):
    """A standard queue gets a message twice whose acknowledgement was cut, and no other one. A FIFO queue refuses the second."""
    bodies, said = filled(flatq, 6), []
    requests = ["GetQueueUrl", "SendMessage", "ReceiveMessage", "DeleteMessage"]
    between.cuts += [(when, name) for when in ("before", "within", "after") for name in requests]
    assert move("here", far.url, say=said.append) == 6
    assert move(far.url, "back", say=said.append) == 6 + 2 * (not far.fifo)
    assert between.cuts == [] and len(said) >= 8
    found = Queue("back").drain(end=b"\0")
    assert (found if far.fifo else sorted(set(found))) == bodies


@moto
@pytest.mark.parametrize("when", ["within", "after"])
def test_a_message_whose_answer_was_cut_comes_back(flatq, far, between, short_leases, when):
    """It is invisible for its lease. "Nothing there" is said only after that."""
    far.put("0")
    one = source(far.url, "back")
    began = time.monotonic()
    between.cuts.append((when, "ReceiveMessage"))
    with pytest.raises(Unreachable) as failed:
        one.take(0)
    assert failed.value.code == 69
    killed(one)
    second = source(far.url, "back")
    parcel = wait_for(lambda: taken(second), "the lease is over")
    assert parcel.body == b"0" and time.monotonic() - began >= LEASE
    parcel.done()
    with pytest.raises(Empty):
        second.take(0)
    second.close()


def taken(one):
    try:
        return one.take(0)
    except Busy as error:
        assert "may still be reserved" in str(error)
        return None


@moto
def test_a_lease_that_is_kept_and_one_that_is_over(flatq, far):
    far.put("0")
    one = source(far.url, "back")
    first = one.take(0)
    first.keep()
    with pytest.raises(Empty):
        one.take(0)
    first.back()
    second = one.take(0)
    assert (second.body, second.key) == (b"0", first.key)
    second.done()
    with contextlib.suppress(NotYours):
        first.done()
    with pytest.raises(Empty):
        one.take(0)
    one.close()


# ---- killed


TO = ["ask call 1", "ask return 1", "take return 1", "give call 3", "ask call 3", "ask return 3", "give return 3", "done call 3", "done return 3", "close call 1"]
FROM = ["ask call 1", "write return 1", "ask return 1", "write call 2", "write return 2", "take return 3", "give call 3", "give return 3", "done call 3", "write return 9",
        "done return 3", "close call 1"]
#: points at which a message was sent, and that is not noted here
UNNOTED = {"ask return 1", "ask return 3", "give return 3", "done call 3"}


@moto
def test_the_shovel_is_killed_at_each_point(flatq, far, short_leases):
    for point in TO:
        bodies = filled(flatq, 5)
        shovel = Stopping(flatq, [point], "--once", "here", far.url)
        assert shovel.stops(), point
        shovel.kill()
        move("here", far.url)
        found = far.bodies()
        assert (once(found) if far.fifo else sorted(set(found))) == bodies and len(found) - len(bodies) <= (point in UNNOTED and not far.fifo), point
    for point in FROM:
        filled(flatq, 5)
        move("here", far.url)
        shovel = Stopping(flatq, [point], "--once", far.url, "back")
        assert shovel.stops(), point
        shovel.kill()
        wait_for(lambda: move(far.url, "back") or Queue("back").qsize() == 5, "all have come", 4 * LEASE)
        found = Queue("back").drain(end=b"\0")
        assert (found if far.fifo else sorted(found)) == bodies, point
