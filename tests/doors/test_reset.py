"""A client reads its whole answer, and then resets its connection (RST). At every door, what the
answer said must stay true."""

import re
import socket
import struct

import pytest

from conftest import wait_for
from engine import push
from stalk import over_tcp

from crash.judge import layout

# This base64 writes to the client and then ends only when the client is gone. So no door looks at
# its client earlier.
HELD = """"$REAL" "$@"; code=$?
    [ ! -S /proc/$$/fd/1 ] || while [ ! -e "$HOME/gone" ]; do sleep 0.02; done; exit $code"""
GET = b"GET /queue?visibility-timeout=600 HTTP/1.1\r\nHost: here\r\n\r\n"


def http(method, query, body=b""):
    return b"%s /queue?%s HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%s" % (method, query,
        len(body), body)


# the door, what the client sends, how its answer ends, and the state of m1 (and m2) afterwards.
# RECEIPT is what a GET has printed before
TOLD = {
    "push": ("handler", b"push -n 2 default\nm3", rb"\d+\n", {b"m1": "ready", b"m3": "ready"}),
    "pop": ("handler", b"pop default\n", rb"m1", {}),
    "pop -w": ("handler", b"pop -w 60 default\n", rb"m1", {}),
    "@pop": ("handler", b"@n1@pop default\n", rb"m1\nn1 ok\n", {}),
    "pop -l": ("handler", b"pop -l -n 1 default\n", rb"m1\n", {}),
    "drain": ("handler", b"drain -l default\n", rb"m1\nm2\n", {b"m2": None}),
    "reserve": ("handler", b"reserve -t 600 default\n", rb"m1", {b"m1": "reserved"}),
    "http GET": ("http", GET, rb"\r\n\r\nm1", {b"m1": "reserved"}),
    "http POST": ("http", http(b"POST", b"group-id=default", b"m3"), rb" 200 .*\r\n\r\n",
    {b"m1": "ready", b"m3": "ready"}),
    "http DELETE": ("http", http(b"DELETE", b"receipt-id=RECEIPT"), rb" 200 .*\r\n\r\n", {}),
    "http PATCH": ("http", http(b"PATCH", b"receipt-id=RECEIPT&visibility-timeout=600"),
    rb" 200 .*\r\n\r\n", {b"m1": "reserved"}),
    "beanstalk put": ("beanstalk", b"put 65536 0 60 2\r\nm3\r\n", rb"INSERTED \d+\r\n",
    {b"m1": "ready", b"m3": "ready"}),
    # the connection holds the job only while it lasts
    "beanstalk reserve": ("beanstalk", b"reserve\r\n", rb"m1\r\n", {b"m1": "ready"}),
    "beanstalk bury": ("beanstalk", b"reserve\r\nbury 1 65536\r\n", rb"BURIED\r\n",
    {b"m1": "buried"}),
    "beanstalk release": ("beanstalk", b"reserve\r\nrelease 1 65536 600\r\n", rb"RELEASED\r\n",
    {b"m1": "delayed"}),
    "beanstalk delete": ("beanstalk", b"reserve\r\ndelete 1\r\n", rb"DELETED\r\n", {}),
    "small-stalk put": ("small-stalk", b"put 65536 60\r\nm3\r\n", rb"INSERTED \d+\r\n",
    {b"m1": "ready", b"m3": "ready"}),
    "small-stalk delete": ("small-stalk", b"reserve\r\ndelete 1\r\n", rb"DELETED\r\n", {}),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_was_told_stays_true(flatq, stub, name):
    door, request, end, left = TOLD[name]
    pushes = lambda: [push(flatq, body) for body in (b"m1", b"m2")]
    if name != "pop -w":
        pushes()
    if b"RECEIPT" in request:
        receipt = re.search(rb"Receipt-Id: (\S+)", flatq("http", input=GET).out)[1]
        request = request.replace(b"RECEIPT", receipt)
    held = end.endswith((rb"m1", rb"m1\n", rb"m2\n"))
    if held:
        stub("base64", HELD)
    client, theirs = over_tcp(flatq, door)
    theirs.close()
    handler = flatq.started[-1]
    client.send(request)
    if name == "pop -w":
        wait_for(lambda: list(flatq.spool.glob("default/wait/*")), "the pop waits")
        pushes()
    assert client.until(lambda: re.search(end + rb"\Z", client.got, re.DOTALL), 60), client.got
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    (flatq.home / "gone").touch()
    handler.wait(60)
    assert flatq("wal").status == 0
    found = {m.body: m.state for m in layout.dump(flatq.spool).messages("default")}
    assert found == {body: state for body, state in {b"m2": "ready", **left}.items() if state}
