"""The HTTP door: conversations for each rule, on pipes and under socat, with curl, with http.client and in a browser."""

import base64
import fcntl
import hashlib
import html
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

import http_fuzz
from browser import browser  # noqa: F401
from conftest import LIB, Runner, everything, fuzz, listening, need, runs_stubs, share, wait_for
from engine import lies
from servers import certified
from stalk import in_pieces, over_tcp

from flatq.crashlab.families.clients import answer

Answer = namedtuple("Answer", "status headers body")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def request(method, target, body=None, *headers, version="HTTP/1.1"):
    """One request, as bytes."""
    lines = [f"{method} {target} {version}", "Host: flatq", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def chunked(target, *chunks):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return request("POST", target, None, "Transfer-Encoding: chunked") + body + b"0\r\n\r\n"


def answers(said, heads=()):
    """The answers in a stream. Those whose number is in `heads` have no body."""
    found = []
    while said:
        head, said = said.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", 0)) if len(found) not in heads else 0
        assert len(said) >= length, (head, said)
        found.append(Answer(int(status), headers, said[:length]))
        said = said[length:]
    return found


def talk(flatq, *requests, heads=(), env=None):
    """The answers of lib/http, run on pipes to the end of its input."""
    done = flatq("http", input=b"".join(requests), env=env, timeout=100)
    assert done.status == 0, done
    return answers(done.out, heads)


def ask(flatq, *args, **more):
    """The answer to one request."""
    [answer] = talk(flatq, request(*args), **more)
    return answer


def ask_status(flatq, *args, **more):
    return ask(flatq, *args, **more).status


class Door:
    """lib/http under socat, which starts a process for each connection."""

    def __init__(self, flatq, port, env=None):
        need("socat")
        self.flatq, self.port = flatq, port
        self.errors = (flatq.home / "http.log").open("wb")
        self.process = subprocess.Popen(
            ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,backlog=200,fork", f"EXEC:{flatq.shell} {LIB}/http,nofork"],
            env=flatq.environment(env), cwd=flatq.home, stdin=subprocess.DEVNULL, stderr=self.errors, start_new_session=True,
        )
        flatq.started.append(self.process)
        wait_for(lambda: listening(port), "the door")

    def connect(self, seconds=30):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def ask(self, method, target, body=None, headers=None, connection=None):
        own = connection or self.connect()
        own.request(method, target, body, headers or {})
        answer = own.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        if not connection:
            own.close()
        return found

    def raw(self, *pieces, seconds=20):
        """Send the pieces, and return all that the door says until it closes. The client does not end its side."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as client:
            for piece in pieces:
                client.sendall(piece)
            return answer(client)

    def log(self):
        return (self.flatq.home / "http.log").read_text()


@pytest.fixture
def door(flatq, free_port):
    """door() starts the door under socat."""
    return lambda **env: Door(flatq, free_port, env)


# ---- the document that defines the interface


def test_documents_conversation(shell, flatq):
    first, twice, other = talk(
        flatq, request("POST", "/queue?group-id=my-fancy-group", b"Waddap"), request("POST", "/queue?group-id=my-fancy-group", b"Waddap"),
        request("POST", "/queue?group-id=my-fancy-group&deduplication-id=no-dupes", b"Waddap"),
    )
    assert first.status == 200 and twice.status == 204 and other.status == 200
    assert first.headers["message-md5"] == hashlib.md5(b"Waddap").hexdigest()
    assert UUID.fullmatch(first.headers["message-id"]) and first.headers["message-id"] != other.headers["message-id"]
    assert abs(int(first.headers["message-timestamp"]) / 1e6 - time.time()) < 60
    assert int(first.headers["message-timestamp"]) < int(other.headers["message-timestamp"])
    assert "message-id" not in twice.headers

    got, none = talk(flatq, request("GET", "/queue?visibility-timeout=10"), request("GET", "/queue?visibility-timeout=10"))
    assert (got.status, got.body) == (200, b"Waddap") and got.headers["content-type"].startswith("text/plain")
    for name in ("message-id", "message-timestamp"):
        assert got.headers[name] == first.headers[name]
    assert none == (204, none.headers, b""), "the other one is in the same group"

    receipt = got.headers["message-receipt-id"]
    assert UUID.fullmatch(receipt)
    # the document has a second question mark here
    [patched] = talk(flatq, request("PATCH", f"/queue?receipt-id={receipt}?visibility-timeout=30"))
    assert (patched.status, patched.headers["message-id"]) == (200, first.headers["message-id"])
    gone, again = talk(flatq, request("DELETE", f"/queue?receipt-id={receipt}"), request("DELETE", f"/queue?receipt-id={receipt}"))
    assert (gone.status, gone.headers["message-id"], again.status) == (200, first.headers["message-id"], 204)
    got, stored = talk(flatq, request("GET", "/queue"), request("POST", "/queue?group-id=my-fancy-group", b"Waddap"))
    assert got.headers["message-id"] == other.headers["message-id"]
    assert stored.status == 200, "the first one was deleted: the same message is no duplicate"


def test_the_log_names_the_queue_that_a_receipt_means(shell, flatq):
    """Also when the message is gone, and the push journal has forgotten it; until a sweep, its settled slip tells. Other queues are looked at, too."""
    flatq.env["FLATQ_RANGE"] = "1"
    for group in ("a", "g", "z"):
        assert ask_status(flatq, "POST", f"/queue?group-id={group}", group.encode()) == 200
    receipts = [ask(flatq, "GET", f"/queue?group-id={group}").headers["message-receipt-id"] for group in ("a", "g", "z")]
    assert not list(flatq.spool.glob("*/done/*")) and len(list(flatq.spool.glob(".ids/*"))) < 3

    def logged(receipt):
        done = flatq("http", input=request("DELETE", f"/queue?receipt-id={receipt}"), check=0)
        return done.err.split(b" ")[2:4]

    for receipt, group in zip(receipts, (b"a", b"g", b"z"), strict=True):
        assert logged(receipt) == [group, b"200"]
    for receipt, group in zip(receipts, (b"a", b"g", b"z"), strict=True):
        assert logged(receipt) == [group, b"204"]
    flatq("wal", check=0)
    assert logged(receipts[0]) == [b"-", b"204"]


def test_with_curl(flatq, door):
    need("curl")
    url = f"http://127.0.0.1:{door().port}/queue"

    def curl(*args):
        done = subprocess.run(["curl", "-sS", "-i", "--max-time", "90", *args], capture_output=True, timeout=100, check=True)
        return answers(done.stdout)[-1]

    stored = curl(f"{url}?group-id=my-fancy-group", "-d", "Waddap")
    assert (stored.status, stored.headers["message-md5"]) == (200, "c59688cd1ef3ed3c377f240939d63a5a")
    assert curl(f"{url}?group-id=my-fancy-group", "-d", "Waddap").status == 204
    got = curl(f"{url}?visibility-timeout=10")
    assert (got.body, got.headers["message-id"]) == (b"Waddap", stored.headers["message-id"])
    receipt = got.headers["message-receipt-id"]
    assert curl("-X", "PATCH", f"{url}?receipt-id={receipt}?visibility-timeout=30").status == 200
    assert curl("-X", "DELETE", f"{url}?receipt-id={receipt}").headers["message-id"] == stored.headers["message-id"]
    # a body that is large enough for Expect: 100-continue, and one of unknown length
    large = flatq.home / "large"
    large.write_bytes(os.urandom(2_000_000))
    words = ["curl", "-sS", "-v", "--max-time", "90", "-H", "Expect: 100-continue", f"{url}?group-id=large", "--data-binary", f"@{large}"]
    done = subprocess.run(words, capture_output=True, timeout=100, check=True)
    assert b"100 Continue" in done.stderr
    assert curl("-H", "Transfer-Encoding: chunked", f"{url}?group-id=large2", "--data-binary", f"@{large}").status == 200
    assert curl(f"{url}?group-id=large").body == curl(f"{url}?group-id=large2").body == large.read_bytes()


# ---- requests and their answers


STATUSES = [
    (404, "GET", "/x"), (404, "GET", "/queue/"), (404, "POST", "/queue/x", b"x"), (404, "GET", "/queuee"),
    (404, "GET", "//queue"), (404, "GET", "/../queue"),
    (405, "PUT", "/queue", b"x"), (405, "HEAD", "/queue"), (405, "OPTIONS", "/queue"), (405, "get", "/queue"),
    (405, "POST", "/", b"x"), (405, "DELETE", "/queue/stats"),
    (405, "POST", "/metrics", b"x"), (405, "M-SEARCH", "/queue"), (405, "OPTIONS", "/metrics"), (405, "TRACE", "/queue"), (404, "OPTIONS", "*"),
    (422, "POST", "/queue", b"x"), (422, "POST", "/queue?group-id=", b"x"), (422, "POST", "/queue?group-id=" + "a" * 129, b"x"),
    (422, "POST", "/queue?group-id=a&group-id=b", b"x"), (422, "POST", "/queue?group-id=a&deduplication-id=", b"x"),
    (422, "POST", "/queue?group-id=a&batch=2", b"x"),
    (422, "POST", "/queue?group-id=a&deduplication-id=" + "%20" * 129, b"x"), (411, "POST", "/queue?group-id=a"),
    (422, "GET", "/queue?visibility-timeout=86401"), (422, "GET", "/queue?visibility-timeout=-1"),
    (422, "GET", "/queue?visibility-timeout="),
    (422, "GET", "/queue?visibility-timeout=1.5"), (422, "GET", "/queue?visibility-timeout=99999999999999999999"),
    (422, "GET", "/queue?wait=x"), (422, "GET", "/queue?max=0"),
    (422, "GET", "/queue?visibility-timeout=a[$(id)]"), (422, "GET", "/queue?group-id=&wait=0"),
    (422, "DELETE", "/queue"), (422, "DELETE", "/queue?receipt-id="), (422, "DELETE", "/queue?receipt-id=x"),
    (422, "DELETE", "/queue?receipt-id=" + "z" * 36),
    (204, "DELETE", "/queue?receipt-id=2af18f7d-6475-5e64-87f3-e8e7334810ac"),
    (204, "DELETE", "/queue?receipt-id=00000000-0000-0000-0000-000000000000"),
    (422, "PATCH", "/queue?visibility-timeout=1"), (422, "PATCH", "/queue?receipt-id=2af18f7d-6475-5e64-87f3-e8e7334810ac"),
    (204, "PATCH", "/queue?receipt-id=2af18f7d-6475-5e64-87f3-e8e7334810ac&visibility-timeout=1"),
    (204, "GET", "/queue"), (204, "GET", "/%71ueue?group-id=nothing"), (204, "GET", "http://other.example/queue"),
    (204, "GET", "/queue?unknown=1&&="), (200, "GET", "/"), (200, "GET", "/metrics"),
    (200, "GET", "/queue/stats"), (200, "GET", "http://x"),
]


def test_statuses(shell, flatq):
    """All in one connection: none of these answers ends it."""
    said = talk(flatq, *(request(*words) for _, *words in STATUSES), heads=[n for n, row in enumerate(STATUSES) if row[1] == "HEAD"])
    assert [answer.status for answer in said] == [row[0] for row in STATUSES]
    for one, row in zip(said, STATUSES):
        assert one.headers["connection"] == "keep-alive", row
        assert ("allow" in one.headers) == (one.status == 405)
        assert one.headers["cache-control"] == "no-store"
        assert re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", one.headers["date"])
    assert said[6].headers["allow"] == "DELETE, GET, PATCH, POST" and said[10].headers["allow"] == "GET, HEAD"
    assert not any(names for place, names in lies(flatq.spool, "a").items())


def test_order_of_checks(flatq):
    env = {"API_KEY": "right"}
    for status, *words in [
        (404, "PUT", "/x"), (401, "PUT", "/queue?visibility-timeout=x"), (401, "GET", "/queue?visibility-timeout=x"), (401, "GET", "/"),
        (401, "GET", "/metrics"),
    ]:
        assert ask_status(flatq, *words, env=env) == status, words
    [answer] = talk(flatq, request("PUT", "/queue?group-id=", None, "API-Key: right"), env=env)
    assert answer.status == 405


def test_api_key(shell, flatq):
    env = {"API_KEY": "a b*\\ \"'$"}

    def status(*headers):
        return talk(flatq, request("GET", "/queue", None, *headers), env=env)[0]

    right = env["API_KEY"]
    for header in (f"api-key: {right}", f"API-KEY:{right}   ", "Authorization: Basic " + base64.b64encode(b"anybody:" + right.encode()).decode()):
        assert status(header).status == 204, header
    for header in ("X: y", "api-key:", "api-key: a", f"api-key: {right}x", f"api-key: x{right}", "Authorization: Basic !", "Authorization: Bearer x",
                   "Authorization: Basic " + base64.b64encode(right.encode() + b":").decode()):
        answer = status(header)
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Basic "), header
    assert ask_status(flatq, "GET", "/queue", env={"API_KEY": ""}) == 204


def test_nobody_sees_the_key_among_the_processes(shell, flatq):
    """Everybody sees the arguments of processes. So the key must not be among those of the door's processes, nor what the client sent as a key."""
    need("strace")
    log, key, basic = flatq.home / "strace.log", "the-door-s-own-key", base64.b64encode(b"me:the-door-s-own-key").decode()
    asked = request("GET", "/queue", None, f"api-key: {key}") + request("GET", "/queue", None, f"Authorization: Basic {basic}")
    done = subprocess.run(["strace", "-f", "-qq", "-s", "9999", "-e", "signal=none", "-e", "trace=execve", "-o", log, "--", *flatq.command("http")],
                          input=asked, env=flatq.environment({"API_KEY": key}), cwd=flatq.home, timeout=60, capture_output=True)
    assert [answer.status for answer in answers(done.stdout)] == [204, 204], done
    executed = log.read_text()
    assert "sha1sum" in executed or not runs_stubs(os.path.realpath(shell), "sha1sum")
    assert key not in executed and basic not in executed


MALFORMED = [
    (400, b"GET\r\n\r\n"), (400, b"GET /queue\r\n\r\n"), (400, b"GET  /queue HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1 \r\nHost: x\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\nHost: x\n\n"), (400, b"GET /queue HTTQ/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET queue HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"(GET) /queue HTTP/1.1\r\nHost: x\r\n\r\n"), (400, b"GET /queue#x HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET /que\x01ue HTTP/1.1\r\nHost: x\r\n\r\n"),
    (400, b"GET /queue?group-id=%zz HTTP/1.1\r\nHost: x\r\n\r\n"), (400, b"GET /queue?group-id=%4 HTTP/1.1\r\nHost: x\r\n\r\n"),
    (505, b"GET /queue HTTP/2.0\r\nHost: x\r\n\r\n"), (505, b"GET /queue HTTP/0.9\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\n\r\n"), (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n"), (400, b"GET /queue HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n"), (400, b"GET /queue HTTP/1.1\r\n Host: x\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX: a\x0bb\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n"),     (400, b"GET /queue HTTP/1.1\r\nHost: x\r\nX: y\n\r\n"),
    (417, b"GET /queue HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n"),
    (414, b"GET /queue?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    (431, b"GET /queue HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9000 + b"\r\n\r\n"),
    (431, b"GET /queue HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 101 + b"\r\n"),
    (431, b"GET /queue HTTP/1.1\r\nHost: x\r\n" + (b"X: " + b"y" * 8000 + b"\r\n") * 9 + b"\r\n"),
]
POST = b"POST /queue?group-id=a HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = [
    (400, POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), (400, POST + b"Content-Length: 5, 5\r\n\r\nhello"),
    (400, POST + b"Content-Length: +5\r\n\r\nhello"),
    (400, POST + b"Content-Length: -5\r\n\r\nhello"), (400, POST + b"Content-Length: 0x5\r\n\r\nhello"),
    (400, POST + b"Content-Length: 5 5\r\n\r\nhello"),
    (400, POST + b"Content-Length:\r\n\r\nhello"), (400, POST + b"Content-Length : 5\r\n\r\nhello"),
    (413, POST + b"Content-Length: 99999999999999999999\r\n\r\nhello"),
    (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), (501, POST + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    (400, POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n"),
    (413, POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\nhello\r\n0\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nbad\r\n\r\n"),
    (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: a\r\rGET / HTTP/1.1\r\n\r\n"),
        ]


CUT_OFF = [
    b"GET /queue HTTP/1.1\r\nHost: x", b"GET /queue HTTP/1.1\r\nHost: x\r\n", POST + b"Content-Length: 9\r\n\r\nhello",
    POST.replace(b"=a", b"=a&batch=1") + b"Content-Length: 4000\r\n\r\n1\na\n2\nbb",
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
]


@pytest.mark.costly
def test_malformed(shell, flatq):
    """The door gives one answer, and reads nothing that follows as a request."""
    after = request("POST", "/queue?group-id=smuggled", b"x")
    for status, text in MALFORMED + SMUGGLED + [(400, text) for text in CUT_OFF]:
        said = talk(flatq, text, b"" if text in CUT_OFF else after)
        assert [answer.status for answer in said] == [status], (text[:200], said)
        assert said[0].headers["connection"] == "close", text[:200]
        assert text not in CUT_OFF or b"longer" not in said[0].body, (text, said[0])
        assert not (flatq.spool / "smuggled").exists()
    assert not any(names for place, names in lies(flatq.spool, "a").items()), "no message came about"
    assert not list((flatq.spool / ".wait").iterdir()), "no body is left"


def test_a_nul_is_dropped(shell, flatq):
    """The shell's `read` drops NUL bytes, so `lib/http -h` tells which proxies may stand in front."""
    said = talk(flatq, POST + b"Content-Le\0ngth: 5\r\n\r\nhello", request("GET", "/que\0ue"))
    assert [(answer.status, answer.body) for answer in said] == [(200, b""), (200, b"hello")]
    assert b"use only a proxy that refuses NUL" in flatq("http", "-h", check=0).out


def test_lines_in_front_and_cut_off(flatq):
    [answer] = talk(flatq, b"\r\n\r\n", request("GET", "/queue"))
    assert answer.status == 204
    assert talk(flatq) == [] and talk(flatq, b"GE") == []


def test_versions_and_connection(flatq):
    for words, stays in [
        (dict(version="HTTP/1.0"), False), (dict(), True), (dict(version="HTTP/1.9"), True),
    ]:
        assert len(talk(flatq, request("GET", "/queue", **words), request("GET", "/queue"))) == 1 + stays
    for header, stays in [
        ("Connection: close", False), ("connection:  CLOSE", False), ("Connection: x, close", False), ("Connection: keep-alive", True),
        ("Connection: closed", True),
    ]:
        assert len(talk(flatq, request("GET", "/queue", None, header), request("GET", "/queue"))) == 1 + stays, header
    assert len(talk(flatq, request("GET", "/queue", None, "Connection: Keep-Alive", version="HTTP/1.0"), request("GET", "/queue"))) == 2


# ---- bodies


@pytest.mark.costly
def test_bodies_of_any_bytes(shell, flatq):
    bodies = [
        b"", b"\0", b"\r\n", b"\n\n", bytes(range(256)), b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"-n", b"%s\\0", os.urandom(9000),
        os.urandom(70_000),
    ]
    bodies = share(f"any bytes {os.path.realpath(shell)}", bodies, 4, first=1)
    sent = [request("POST", f"/queue?group-id=a&deduplication-id={n}", body) for n, body in enumerate(bodies)]
    sent += [chunked(f"/queue?group-id=a&deduplication-id=c{n}", *filter(None, (body[:7], body[7:]))) for n, body in enumerate(bodies)]
    stored = talk(flatq, *sent)
    assert [answer.status for answer in stored] == [200] * len(sent)
    assert [answer.headers["message-md5"] for answer in stored] == [hashlib.md5(body).hexdigest() for body in bodies] * 2
    for body in bodies * 2:
        [got] = talk(flatq, request("GET", "/queue"))
        assert (got.status, got.body) == (200, body)
        assert ask_status(flatq, "DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}") == 200
    assert not list((flatq.spool / ".wait").iterdir())


def test_pipelined_behind_bodies_that_nobody_reads(flatq):
    """A body comes where none is wanted, and one is refused. The door still finds the next request. After a large body it ends the connection."""
    said = talk(flatq, request("GET", "/queue", b"x" * 500), request("POST", "/x", b"y" * 500), request("GET", "/queue"))
    assert [answer.status for answer in said] == [204, 404, 204]
    assert len(talk(flatq, request("POST", "/x", b"y" * 200_000), request("GET", "/queue"))) == 1
    assert len(talk(flatq, request("POST", "/x", b"abc", "Expect: 100-continue"), request("GET", "/queue"))) == 1


def test_largest(flatq):
    env = {"FLATQ_MOST_BYTES": "1000"}
    assert ask_status(flatq, "POST", "/queue?group-id=a", b"x" * 1000, env=env) == 200
    assert ask_status(flatq, "POST", "/queue?group-id=a", b"x" * 1001, env=env) == 413
    assert [answer.status for answer in talk(flatq, chunked("/queue?group-id=a", b"x" * 600, b"y" * 600), env=env)] == [413]
    assert not list((flatq.spool / ".wait").iterdir())


def test_continue(flatq):
    said = flatq("http", input=request("POST", "/queue?group-id=a", b"hi", "Expect: 100-continue"), check=0).out
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    said = flatq("http", input=request("POST", "/queue", b"hi", "Expect: 100-Continue"), check=0).out
    assert said.startswith(b"HTTP/1.1 422 "), "refused before the body is asked for"


def test_byte_by_byte(flatq, door):
    door = door()
    with socket.create_connection(("127.0.0.1", door.port), timeout=100) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        text = request("POST", "/queue?group-id=a", b"hello") + chunked("/queue?group-id=b", b"a", b"bc")
        for byte in text + request("GET", "/queue", None, "Connection: close"):
            client.sendall(bytes([byte]))
        said = answer(client)
    assert [one.status for one in answers(said)] == [200, 200, 200]


def test_large_refused_over_tcp(flatq, door):
    """The answer arrives although the client is still sending."""
    door = door(FLATQ_MOST_BYTES="1000")
    said = door.raw(request("POST", "/queue?group-id=a", b"x" * 3_000_000))
    assert [answer.status for answer in answers(said)] == [413]


def test_keep_alive(flatq, door):
    door = door()
    connection = door.connect()
    for n in range(5):
        assert door.ask("POST", f"/queue?group-id=g{n}", b"x", connection=connection).status == 200
        used = connection.sock.getsockname()
    for _ in range(5):
        got = door.ask("GET", "/queue", connection=connection)
        assert door.ask("DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}", connection=connection).status == 200
    assert connection.sock.getsockname() == used, "one connection"
    connection.close()
    wait_for(lambda: len(re.findall(r"Z (?:POST|GET|DELETE) g\d 200 1 \d+$", door.log(), re.M)) == 15, "a line of log for each")


def test_keep_alive_of_many_requests(flatq):
    """The last of many requests in a connection costs as much as the first. The test counts processor time, which does not depend on what else
    runs."""
    talk(flatq, request("POST", "/queue?group-id=g", b"x"))

    def seconds(count):
        before = os.times()
        said = talk(flatq, *[request("GET", "/queue?visibility-timeout=0"), request("GET", "/x")] * count)
        assert [answer.status for answer in said] == [200, 404] * count
        return sum(os.times()[2:4]) - sum(before[2:4])

    few, many = seconds(25), seconds(100)
    print("seconds for 50 and 200 requests:", few, many)
    assert many < 8 * few, "four times as many cost four times as much"


def test_answers_do_not_wait_for_the_client(flatq):
    """A head and its body are two writes. The second must not wait for the client's acknowledgement of the first."""
    talk(flatq, request("POST", "/queue?group-id=g", b"x"))
    client, theirs = over_tcp(flatq, "http")
    with theirs:
        for first in (True, False):
            client.send(request("GET", "/queue?visibility-timeout=0"))
            assert client.until(lambda: client.got.endswith(b"\r\n\r\nx"), 20)
            assert in_pieces(theirs) != first, "a new connection is acknowledged at once"
            client.got = b""
        client.close()


# ---- under ./launch


@pytest.mark.whole
@pytest.mark.parametrize("begin, status", share("megabytes", [
    pytest.param(b"GET /queue?", 414, id="line"), pytest.param(request("GET", "/queue") + b"GET /queue?", 414, id="second line"),
    pytest.param(b"GET /queue HTTP/1.1\r\nHost: x\r\nX: ", 431, id="field"),
    pytest.param(request("GET", "/queue") + b"POST /queue?group-id=a HTTP/1.1\r\nHost: x\r\nX: ", 431, id="field of the second"),
], 2))
def test_a_line_of_megabytes_is_answered_in_http(launched, begin, status):
    """The shell's `read` returns only at the end of a line, so the guard gives this answer. A client that is still sending then is reset, and may
    miss it; hence up to eight tries."""
    one = launched(door="http")
    for _ in range(8):
        client = one.connect()
        client.send(begin)
        if begin.startswith(b"GET /queue HTTP/1.1\r\nHost: flatq"):
            assert client.until(lambda: client.got.endswith(b"\r\n\r\n"), 10)
            client.got = b""
        try:
            client.send(b"a" * 1_010_000)
        except OSError:
            pass
        found = answers(client.rest(40))
        client.close()
        if found:
            break
    [answer] = found
    assert answer.status == status and answer.headers["connection"] == "close" and answer.headers["content-length"] == "0"
    wait_for(lambda: " line-too-long " in one.said(), "a line of log")
    assert one.connect().ask(request("GET", "/queue")).startswith(b"HTTP/1.1 204 ")


def test_tls(launched, tmp_path):
    options, context = certified(tmp_path)
    one = launched("--", *options, door="http")
    connection = http.client.HTTPSConnection("127.0.0.1", one.port, timeout=100, context=context)
    body = os.urandom(300_000)

    def say(*words):
        connection.request(*words)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    for _ in range(2):
        assert say("POST", "/queue?group-id=g", body)[0] == 200
        status, headers, got = say("GET", "/queue")
        assert (status, got) == (200, body)
        assert say("DELETE", f"/queue?receipt-id={headers['Message-Receipt-Id']}")[0] == 200
    connection.close()


# ---- groups


def test_one_in_flight_and_oldest_of_all(shell, flatq):
    def get(*more):
        return talk(flatq, request("GET", "/queue" + "".join(more)))[0]

    pushed = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4"), ("c", b"5")]
    talk(flatq, *(request("POST", f"/queue?group-id={group}", body) for group, body in pushed))
    got = [get() for _ in range(4)]
    assert [answer.body for answer in got] == [b"1", b"2", b"5", b""] and got[3].status == 204
    assert get("?group-id=b").status == 204
    talk(flatq, request("DELETE", f"/queue?receipt-id={got[1].headers['message-receipt-id']}"))
    assert get("?group-id=b").status == 204
    assert get("?group-id=a").body == b"4"
    talk(flatq, request("PATCH", f"/queue?receipt-id={got[0].headers['message-receipt-id']}&visibility-timeout=0"))
    again = get()
    assert (again.body, again.headers["message-id"]) == (b"1", got[0].headers["message-id"])
    assert again.headers["message-receipt-id"] != got[0].headers["message-receipt-id"]


def test_nothing_there_behind_a_pop(flatq):
    """What a verb has popped lies in out/ until a sweep."""
    flatq("push", "g", input=b"x", check=0)
    assert flatq("pop", "g", check=0).out == b"x" and list((flatq.spool / "g/out").iterdir())
    assert [ask_status(flatq, "GET", target) for target in ("/queue", "/queue?group-id=g")] == [204, 204]


def test_groups_are_queues(flatq):
    flatq("push", "jobs", input=b"by a verb", check=0)
    got = ask(flatq, "GET", "/queue?group-id=jobs")
    assert got.body == b"by a verb"
    assert ask_status(flatq, "POST", "/queue?group-id=jobs&deduplication-id=k", b"by http") == 200
    assert flatq("push", "-k", "k", "jobs", input=b"x", check=0).out.endswith(b" dup\n")
    assert flatq("push", "-k", hashlib.sha256(b"zz").hexdigest(), "jobs", input=b"zz", check=0).out
    assert ask_status(flatq, "POST", "/queue?group-id=jobs", b"zz") == 204, "the SHA-1 of the message is its key"
    # a verb gets the group's next message, although one is in flight; but a message that a verb holds blocks the group over HTTP
    assert flatq("pop", "jobs", check=0).out == b"by http"
    talk(flatq, request("DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}"))
    flatq("reserve", "jobs", check=0)
    flatq("push", "jobs", input=b"y", check=0)
    assert ask_status(flatq, "GET", "/queue?group-id=jobs") == 204


NAMES = [
    "a", "A", "a.b", ".", "..", "../x", "a/../b", "/", "a//b", "-x", "$", "$2E", "%", "a b", "a+b", "a,b", "é",
    "日本語" * 42, "\0", "\n", "*", "?", "a&b=c", "~", "|;`'\"\\<>",
    "x" * 128, "%" * 128, "é" * 128, "\U0001f600" * 128, ".hidden", "default", "$sha1$x",
]


def test_names_of_groups(shell, flatq):
    """Every string of 1 to 128 characters is a group, different strings are different groups, and no name leads out of the spool."""
    names = NAMES if os.path.realpath(shell).endswith("dash") else NAMES[3::4] + NAMES[-4:-3]
    stored = talk(flatq, *(request("POST", f"/queue?group-id={quote(name, safe='')}", str(n).encode()) for n, name in enumerate(names)))
    assert [answer.status for answer in stored] == [200] * len(names)
    got = talk(flatq, *(request("GET", f"/queue?group-id={quote(name, safe='')}") for name in names))
    assert [answer.body for answer in got] == [b"%d" % n for n in range(len(names))]
    assert [answer.headers["message-id"] for answer in got] == [answer.headers["message-id"] for answer in stored]
    assert sorted(path.name for path in flatq.spool.parent.iterdir()) == ["home", "spool"]
    listed = flatq("list", check=0).out.decode().split("\n")[:-1]
    assert len(listed) == len(names) and len(set(listed)) == len(names)
    assert ask_status(flatq, "POST", "/queue?group-id=x(y)", b"as it is, without a percent sign") == 200
    assert b"x(y)\n" in flatq("list", check=0).out
    # in a value `+` is a blank, as in forms; a character that needs no encoding is the same if it is encoded
    assert ask_status(flatq, "GET", "/queue?group-id=a+b") == 204
    shown = {queue["group"] for queue in json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]}
    assert {quote(name, safe="/;()") for name in names if len(quote(name)) < 150 and not set(name) & set("~.-")} <= shown


def test_full_and_closed(flatq):
    flatq("create", "-b", "1", "small", check=0)
    assert ask_status(flatq, "POST", "/queue?group-id=small", b"1") == 200
    said = talk(flatq, request("POST", "/queue?group-id=small", b"2"), request("GET", "/queue"))
    assert [answer.status for answer in said] == [503, 200] and "retry-after" in said[0].headers
    flatq("close", "small", check=0)
    said = talk(flatq, request("POST", "/queue?group-id=small", b"3"), request("GET", "/queue"))
    assert [answer.status for answer in said] == [503, 204]


def test_a_fault_of_the_system_is_500(shell, flatq):
    """The client learns that the door is at fault, and the log has the reason. The door cannot know how much of the body was read, so it ends the
    connection."""
    talk(flatq, request("POST", "/queue?group-id=g", b"1"), request("POST", "/queue?group-id=h", b"2"))
    os.rename(flatq.spool / "g/body", flatq.spool / "g/elsewhere")
    (flatq.spool / "g/body").write_text("")
    done = flatq("http", input=request("POST", "/queue?group-id=g", b"3") + request("POST", "/queue?group-id=h", b"4"))
    [said] = answers(done.out)
    assert (said.status, said.body, said.headers["connection"]) == (500, b"see the log\n", "close")
    assert b"http: queue 'g': " in done.err
    assert ask(flatq, "GET", "/queue?group-id=h").body == b"2"
    (flatq.spool / "g/body").unlink()
    os.rename(flatq.spool / "g/elsewhere", flatq.spool / "g/body")
    assert ask(flatq, "GET", "/queue?group-id=g").body == b"1"


# ---- visibility and long polls


def test_visibility(shell, flatq, clock):
    def get(query=""):
        return ask(flatq, "GET", f"/queue{query}")

    def settle(method, answer, more=""):
        return ask_status(flatq, method, f"/queue?receipt-id={answer.headers['message-receipt-id']}{more}")

    talk(flatq, request("POST", "/queue?group-id=g", b"1"), request("POST", "/queue?group-id=g", b"2"))
    same = [get("?visibility-timeout=0") for _ in range(3)]
    assert {answer.body for answer in same} == {b"1"} and len({answer.headers["message-receipt-id"] for answer in same}) == 3
    assert len({answer.headers["message-id"] for answer in same}) == 1
    # only the receipt of the last reader is good
    assert settle("DELETE", same[0]) == settle("PATCH", same[1], "&visibility-timeout=5") == 204
    # its time is over, but nobody has read the message again
    assert settle("PATCH", same[2], "&visibility-timeout=60") == 200
    assert get().status == 204, "it is invisible again"
    assert settle("PATCH", same[2], "&visibility-timeout=0") == 200
    assert settle("DELETE", same[2]) == 200
    one, none = talk(flatq, request("GET", "/queue?visibility-timeout=1"), request("GET", "/queue"))
    assert (one.body, none.status) == (b"2", 204)
    clock.advance(1.1)
    two = get("?visibility-timeout=86400")
    assert two.body == b"2" and settle("DELETE", one) == 204 and settle("DELETE", two) == 200


def test_expired_receipt_of_a_folded_message(flatq):
    talk(flatq, *(request("POST", "/queue?group-id=g", str(n).encode()) for n in range(3)))
    got = ask(flatq, "GET", "/queue?visibility-timeout=0")
    flatq("pop", "other")
    for _ in range(3):
        flatq("push", "-l", "g", input=b"".join(b"%d\n" % n for n in range(600)), check=0)
        flatq("wal", "g", check=0)
    assert ask_status(flatq, "DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}") == 200
    assert ask(flatq, "GET", "/queue").body == b"1"


def test_long_poll(flatq, door, clock, stub):
    """The clock stands still, so the first two clients go on only because they are woken. Then time passes for the third, who waits in vain."""
    clock.runs_sleep(stub)
    door, found = door(), {}

    def wait(name, target):
        found[name] = door.ask("GET", target)

    assert door.ask("POST", "/queue?group-id=busy", b"1").status == 200
    held = door.ask("GET", "/queue")
    assert door.ask("POST", "/queue?group-id=busy", b"2").status == 200
    threads = [
        threading.Thread(target=wait, args=args)
        for args in [("nothing", "/queue?group-id=nothing&wait=1"), ("busy", "/queue?group-id=busy&wait=20"), ("new", "/queue?wait=20")]
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: sorted(clock.sleepers().values()) == [1, 2, 2], "three clients that wait")
    assert door.ask("POST", "/queue?group-id=made-now", b"3").status == 200
    threads[2].join(100)
    assert found["new"].body == b"3"
    assert door.ask("DELETE", f"/queue?receipt-id={held.headers['message-receipt-id']}").status == 200
    threads[1].join(100)
    assert found["busy"].body == b"2" and "nothing" not in found
    clock.passes_until(lambda: "nothing" in found, lambda: [left for left in clock.sleepers().values() if left > 0])
    assert found["nothing"].status == 204
    wait_for(lambda: not list((flatq.spool / ".wait").glob("*")) and not list((flatq.spool / ".doors/wait").glob("*")), "nothing is left")


def test_long_poll_until_a_timeout_of_visibility(flatq):
    talk(flatq, request("POST", "/queue?group-id=g", b"1"))
    ask(flatq, "GET", "/queue?visibility-timeout=1")
    assert ask(flatq, "GET", "/queue?wait=600").body == b"1"


# ---- ids and receipts


def test_cipher(shell, flatq):
    """XTEA's published vectors."""
    for key, plain, expected in [
        ("000102030405060708090a0b0c0d0e0f", "4142434445464748", "497df3d072612cb5"),
        ("000102030405060708090a0b0c0d0e0f", "4141414141414141", "e78f2d13744341d8"),
        ("00000000000000000000000000000000", "4142434445464748", "a0390589f8b8efa5"),
    ]:
        flatq.spool.mkdir(exist_ok=True)
        (flatq.spool / ".doors").mkdir(exist_ok=True)
        (flatq.spool / ".doors/secret").write_text(key + "\n")
        script = flatq.home / "cipher"
        script.write_text(
            f"lib={LIB} FLATQ_VERB=x; . {LIB}/engine/common.sh; shell_reset; need engine/spool doors/http/id; secret_read; words_hex {plain}\n"
            'uuid=; cipher; uuid_add; printf "%s\\n" "$uuid"\nuuid=; decipher; uuid_add; printf "%s\\n" "$uuid"'
        )
        done = subprocess.run([shell, script], env=flatq.environment({}), capture_output=True, text=True, timeout=100)
        assert (done.stdout, done.stderr) == (f"{expected}\n{plain}\n", "")


def test_ids_are_stable_and_receipts_cannot_be_made_up(flatq, tmp_path):
    ids = [answer.headers["message-id"] for answer in talk(flatq, *(request("POST", f"/queue?group-id=g{n}", b"x") for n in range(20)))]
    got = [ask(flatq, "GET", "/queue") for _ in range(20)]
    assert [answer.headers["message-id"] for answer in got] == ids and len(set(ids)) == 20
    receipts = [answer.headers["message-receipt-id"] for answer in got]
    uuid.UUID(receipts[0])
    # neighbours do not look alike: about half of the bits differ
    for one, other in [*zip(ids, ids[1:]), *zip(receipts, receipts[1:])]:
        assert 30 < bin(int(one.replace("-", ""), 16) ^ int(other.replace("-", ""), 16)).count("1") < 98
    wrong = []
    for at, digit in enumerate(receipts[0]):
        if digit != "-":
            wrong.append(receipts[0][:at] + ("0" if digit != "0" else "1") + receipts[0][at + 1:])
    wrong += [receipts[0][:18] + receipts[1][18:], receipts[0][::-1].replace("-", "") and ids[0]]
    assert {answer.status for answer in talk(flatq, *(request("DELETE", f"/queue?receipt-id={one}") for one in wrong))} == {204}
    assert (flatq.spool / ".doors/secret").stat().st_mode & 0o777 == 0o600
    # a UUID in capitals is the same UUID; the engine's own receipt is not a receipt here
    assert ask_status(flatq, "DELETE", f"/queue?receipt-id={receipts[0].upper()}") == 200
    assert ask_status(flatq, "DELETE", "/queue?receipt-id=g1:2.1.000000000000") == 422
    # another spool has another secret
    (tmp_path / "more" / "home").mkdir(parents=True)
    other = Runner(flatq.shell, tmp_path / "more" / "spool", tmp_path / "more" / "home")
    assert ask(other, "POST", "/queue?group-id=g0", b"x").headers["message-id"] not in ids
    assert ask_status(other, "DELETE", f"/queue?receipt-id={receipts[2]}") == 204


# ---- beyond the document


def test_batches(shell, flatq):
    def batch(group, *messages):
        text = b"".join(b"%d%s\n%s\n" % (len(body), key, body) for body, key in messages)
        return request("POST", f"/queue?group-id={group}&batch=1", text)

    bodies = [b"one", b"", b"\0\n\xff", b"one", b"two"]
    [said] = talk(flatq, batch("g", *zip(bodies, [b"", b"", b"", b"", b" key"])))
    lines = said.body.decode().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["200", "200", "200", "204", "200"]
    assert [line.split(" ")[2] for line in lines if line != "204"] == [hashlib.md5(body).hexdigest() for body in (b"one", b"", b"\0\n\xff", b"two")]
    talk(flatq, request("POST", "/queue?group-id=h", b"of h"))
    [got] = talk(flatq, request("GET", "/queue?max=10"))
    rest, found = got.body, []
    while rest:
        head, rest = rest.split(b"\n", 1)
        receipt, message, stamp, length = head.decode().split(" ")
        found.append((receipt, message, rest[: int(length)]))
        assert rest[int(length): int(length) + 1] == b"\n" and len(stamp) == 16
        rest = rest[int(length) + 1:]
    assert [row[2] for row in found] == [b"one", b"of h"] and found[0][1] == lines[0].split(" ")[1]
    [gone] = talk(flatq, request("DELETE", "/queue?" + "&".join(f"receipt-id={row[0]}" for row in found * 2)))
    assert gone.body.decode().splitlines() == [f"200 {found[0][1]}", f"200 {found[1][1]}", "204", "204"]
    # a broken message ends the batch, and those stored before it stay
    for text in (b"x\n", b"5\nab", b"2\nabc\n", b"2 \xff\nab\n", b"2 %zz\nab\n", b"1 " + b"k" * 129 + b"\na\n"):
        [said] = talk(flatq, request("POST", "/queue?group-id=broken&batch=1", b"1 %d\nz\n" % len(text) + text))
        assert [line.split(" ")[0] for line in said.body.decode().splitlines()][-1] == "422", (text, said)


def test_every_deduplication_id_is_one(shell, flatq):
    """None is taken for "none was given", whatever stands for that inside."""
    ids = ("-", "$", "--")
    for number, key in enumerate(ids):
        target = f"/queue?group-id=g{number}&deduplication-id={quote(key, safe='')}"
        assert [answer.status for answer in talk(flatq, request("POST", target, b"A"), request("POST", target, b"B"))] == [200, 204], key
        text = b"".join(b"1 %s\n%s\n" % (quote(key, safe="").encode(), body) for body in (b"A", b"B"))
        assert ask(flatq, "POST", f"/queue?group-id=b{number}&batch=1", text).body.decode().split("\n")[1] == "204", key
        # a message without an id has its hash for one, and no other
        without = request("POST", f"/queue?group-id=c{number}", b"C")
        assert [answer.status for answer in talk(flatq, without, request("POST", target.replace("=g", "=c", 1), b"C"), without)] == [200, 200, 204], key


def test_stats_and_metrics(shell, flatq):
    for n in range(3):
        talk(flatq, request("POST", "/queue?group-id=g", str(n).encode()))
    flatq("push", "-d", "100", "g", input=b"later", check=0)
    talk(flatq, request("POST", "/queue?group-id=a%20b", b"x"))
    talk(flatq, request("POST", "/queue?group-id=g&deduplication-id=more", b"more"))
    gone = ask(flatq, "GET", "/queue?group-id=g").headers["message-receipt-id"]
    ask(flatq, "DELETE", f"/queue?receipt-id={gone}")
    ask(flatq, "GET", "/queue?group-id=g")
    wait_for(lambda: b"oldest 0\n" not in flatq("stat", "g", check=0).out, "a message is a second old")
    stats = json.loads(ask(flatq, "GET", "/queue/stats").body)
    shown = {queue["group"]: queue for queue in stats["queues"]}
    assert abs(stats["time"] - time.time()) < 60
    assert {key: shown["g"][key] for key in ("queue", "ready", "delayed", "in_flight", "buried", "closed", "pushed_last_minute", "done_last_minute")} == dict(
        queue="g", ready=2, delayed=1, in_flight=1, buried=0, closed=False, pushed_last_minute=5, done_last_minute=1)
    assert 1 <= shown["g"]["oldest_seconds"] < 55 and shown["a%20b"]["queue"] == "a$20b"
    metrics = ask(flatq, "GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in metrics.body.decode().splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) flatq_\w+ .+|flatq_\w+\{queue="[^"\\]+"(,state="\w+")?\} \d+', line), line
    for line in ('messages{queue="g",state="ready"} 2', 'oldest_seconds{queue="g"} [1-9]', 'pushed_last_minute{queue="g"} 5', 'done_last_minute{queue="g"} 1'):
        assert re.search(f"(?m)^flatq_{line}", metrics.body.decode()), line
    [head] = talk(flatq, request("HEAD", "/queue/stats"), heads=[0])
    assert head.status == 200 and int(head.headers["content-length"]) > 100


def test_stats_cost_as_much_as_there_are_groups(flatq):
    """The test counts processor time, which does not depend on what else runs. More groups cost no more processes."""
    flatq("push", "g0", input=b"x", check=0)

    def costs(groups):
        for n in range(groups):
            if not (flatq.spool / f"g{n}").exists():
                shutil.copytree(flatq.spool / "g0", flatq.spool / f"g{n}")
        spent = {}
        for target in ("/queue/stats", "/metrics"):
            before = os.times()
            assert ask(flatq, "GET", target).body.count(b'"g') >= groups
            spent[target] = sum(os.times()[2:4]) - sum(before[2:4])
        return spent, flatq.count("http", input=request("GET", "/metrics")).processes

    (few, processes), (many, more) = costs(75), costs(300)
    print("seconds for 75 and 300 groups:", few, many)
    assert processes == more
    for target, seconds in many.items():
        assert seconds < 8 * few[target] + 0.1, "four times as many cost four times as much"


def page(flatq, target="/", **more):
    """A page as text. This also checks what every page must have."""
    answer = ask(flatq, "GET", target, **more)
    assert answer.status == 200 and answer.headers["content-type"] == "text/html; charset=utf-8", answer
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; ") and "script" not in answer.headers["content-security-policy"]
    said = answer.body.decode("ascii")
    assert "<script" not in said and 'http-equiv=refresh content=5' in said and re.search(r", as of \d?\d:\d\d:\d\d UTC</p>", said)
    return said


def rows(said):
    """The cells of each row of a page, as a reader sees them. `~` stands for a plot."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", said, re.S):
        cells = re.findall(r"<t[dh][^>]*>(.*?)(?=</t[dh]>)", re.sub(r"<svg.*?</svg>", "~", row, flags=re.S), re.S)
        found.append([html.unescape(re.sub("<[^>]*>", "", cell)) for cell in cells])
    return found


def points(said, kind):
    return [tuple(map(float, pair.split(","))) for pair in re.search(rf"<polyline class={kind} points=\"([^\"]*)", said)[1].split(" ")]


def test_pages(shell, flatq):
    """One page has all queues. One page for each queue has its oldest messages, the buried ones with their reasons, and the last events. No text of
    a message, a name or a log becomes markup."""
    said = page(flatq)
    assert "0 queues" in said and "Nothing yet" in said and 'curl "http://flatq/queue?group-id=mails" -d hello' in said and "flatq push mails" in said
    flatq("create", "-b", "5000", "-m", "3", "a/b.c$24+;(_)", check=0)
    talk(flatq, *(request("POST", "/queue?group-id=%C3%A9%3Cb%3E%26%22%FF", b"<i>%d&\xe2\x82\xac\x00\xff</i>" % n + b"x" * 200) for n in range(3)))
    held = flatq("reserve", "-t", "60", "$C3$A9$3Cb$3E$26$22$FF", check=0).out.split(b" ")[0].decode()
    flatq("bury", "-r", "no-such_person", held, check=0)
    flatq("push", "-l", "deep", input=b"".join(b"%d\n" % n for n in range(700)), check=0)
    flatq("push", "-p", "9", "deep", input=b"urgent", check=0)
    for _ in range(2):
        flatq("pop", "deep", check=0)
    said = page(flatq)
    found = {row[0]: row[1:] for row in rows(said)}
    age = re.compile(r"\d+ s")
    assert found["a/b.c$+;(_)"] == ["~", "0", "0", "0", "0", "\u2013", "0", "0"]
    assert found["\u00e9<b>&\"%FF"][:5] == ["~", "2", "0", "0", "1"] and age.fullmatch(found["\u00e9<b>&\"%FF"][5]) and found["\u00e9<b>&\"%FF"][6:] == ["3", "0"]
    assert found["deep"][:5] == ["~", "699", "0", "0", "0"] and found["deep"][6:] == ["701", "2"] and found["all"][1] == "701" and "3 queues" in said
    links = {html.unescape(re.sub("<[^>]*>", "", text)): link for link, text in re.findall(r'<a href="([^"]*)">(.*?)</a>', said)}
    one = page(flatq, links["\u00e9<b>&\"%FF"])
    assert re.search(r"<title>flatq / &#233;&#60;b&#62;&#38;&#34;%FF</title>", one)
    found = rows(one)
    messages = [row for row in found if row[1].startswith("<i>")]
    assert [(row[0], row[1], row[3:]) for row in messages] == [
        (str(n + 1), f"<i>{n}&\u20ac%00%FF</i>" + "x" * 76 + " \u2026", ["65,536", "0", "214"]) for n in (1, 2)]
    assert [row[1] for row in found if row[0] == "1" and len(row) == 5] == ["no-such_person"]
    events = [row[1:4] for row in found if len(row) == 6 and row[1] in ("push", "bury", "reserve")]
    assert events == [["bury", "no-such_person", "1"], ["reserve", "", "1"], *(["push", "", str(n)] for n in (3, 2, 1))]
    # a deep queue shows its oldest messages, although a more urgent one is younger; also from flat files
    oldest = [row for row in rows(page(flatq, links["deep"])) if len(row) == 6 and row[3] == "65,536"]
    assert [row[1] for row in oldest] == [str(n) for n in range(1, 11)]
    assert "at most 5,000 messages, at most 3 tries" in page(flatq, links["a/b.c$+;(_)"])
    for name, status in (("none", 404), ("..%2F", 404), ("", 404), ("%zz", 400), ("deep&queue=deep", 422), ("a" * 3000, 422)):
        assert ask_status(flatq, "GET", f"/?queue={name}") == status, name
    [head] = talk(flatq, request("HEAD", "/?queue=deep"), heads=[0])
    assert head.status == 200 and int(head.headers["content-length"]) > 1000
    for target in ("/", "/?queue=deep", "/?queue=none"):
        assert ask_status(flatq, "GET", target, env={"API_KEY": "a-key"}) == 401
        [answer] = talk(flatq, request("GET", target, None, "api-key: a-key"), env={"API_KEY": "a-key"})
        assert answer.status == (404 if "none" in target else 200)


def test_pages_by_every_awk(flatq, stub):
    flatq("push", "$C3$A9", input=b"\xe2\x82\xac\xff and more", check=0)
    flatq("push", "-l", "other", input=b"one\ntwo\n", check=0)
    found = {}
    for program in ("gawk", "mawk", "original-awk", "busybox awk"):
        need(program.split()[0])
        stub("awk", f'exec {program} "$@"')
        found[program] = [rows(page(flatq, target)) for target in ("/", "/?queue=%24C3%24A9", "/?queue=other")]
    found = {program: re.sub(r"\d+ s'", "s'", repr(said)) for program, said in found.items()}
    assert "\u20ac%FF and more" in next(iter(found.values())) and len(set(found.values())) == 1, found


def test_a_page_draws_the_last_minutes(flatq):
    flatq("push", "q", input=b"x", check=0)
    log, now = flatq.spool / "q/log", time.time()
    log.write_text("".join(f"{now - ago:.2f} {verb} 1 0 1 5 {why}\n" for ago, verb, why in (
        (5000, "push", "-"), (305, "push", "bulk-40"), (304, "pop", "-"), (145, "push", "bulk-20"), (5, "pop", "-"))))
    said = page(flatq)
    came, went = points(said, "i"), points(said, "o")
    assert len(came) == len(went) == 30 and [x for x, _ in came] == [2 + 4 * n for n in range(30)]
    assert {n: y for n, (_, y) in enumerate(came) if y != 21} == {14: 2.0, 22: 11.5}
    assert {n: y for n, (_, y) in enumerate(went) if y != 21} == {14: 20.5, 29: 20.5}
    # events that an older, rotated log may have had are not drawn
    (flatq.spool / "q/log.179500000000").touch()
    log.write_text("".join(log.read_text().splitlines(True)[3:]))
    for target in ("/", "/?queue=q"):
        assert [x for x, _ in points(page(flatq, target), "i")] == [2 + 4 * n for n in range(22, 30)]


def test_pages_believe_no_log(flatq):
    """A member of a group writes into the log what only a door may write, or markup. The page must show neither."""
    flatq("push", "q", input=b"x", check=0)
    now = time.time()
    written = [b"row <b> true 9 9 9 9 9 9 9", b"logs", b"==> <u>/log <==", b"ready <b>.1.1.1.1.1.1.1.1.1 PGI+", b"buried <b>", b"%.2f push 1 0 1 5 <b>" % now,
            b"%.2f <b> 1 0 1 5 -" % now, b"%.2f push <b> <b> <b> 5 -" % now, b"==> body/000000000001 <==", b"PGI+", b"\xff\x00<b>"]
    with open(flatq.spool / "q/log", "ab") as log:
        log.write(b"\n".join(written) + b"\n")
    for target in ("/", "/?queue=q"):
        assert "<b>" not in page(flatq, target) and "<u>" not in page(flatq, target)
    [queue] = json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]
    assert (queue["queue"], queue["ready"]) == ("q", 1)
    assert "<b>" not in ask(flatq, "GET", "/metrics").body.decode()


def test_a_page_is_cheap_and_waits_for_nobody(flatq):
    """A page starts the same processes however many queues there are and however deep they are. It takes no lock, and reads only the beginning of a
    large message."""
    need("strace")
    flatq("push", "large", input=b"y" * 300_000, check=0)
    ask(flatq, "GET", "/x")
    flatq("push", "-l", "deep", input=(b"x" * 900 + b"\n") * 2000, check=0)
    few = {target: flatq.count("http", input=request("GET", target)).programs for target in ("/", "/?queue=deep", "/?queue=large")}
    flatq("push", "-l", "deep", input=(b"x" * 900 + b"\n") * 20_000, check=0)
    for n in range(20):
        shutil.copytree(flatq.spool / "large", flatq.spool / f"large{n}")
    before_all = sorted((flatq.spool / "deep").rglob("*"))
    with open(flatq.spool / "deep/lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for target, before in few.items():
            counted = flatq.count("http", input=request("GET", target))
            names = sorted(os.path.basename(path) for path in counted.programs)
            assert sorted(counted.programs) == sorted(before) and len(names) <= 6 and set(names) <= {"awk", "find", "head", "ls", "tail"}, (target, names)
    assert len(page(flatq, "/?queue=large")) < 6000 and len(page(flatq, "/?queue=deep")) < 9000
    assert sorted((flatq.spool / "deep").rglob("*")) == before_all, "nothing is unfolded for it"


def test_a_failed_look_ends_no_connection(flatq, stub):
    """A queue with a damaged conf stays on the page."""
    flatq("push", "q", input=b"x", check=0)
    (flatq.spool / "q/conf").write_text("x y\n")
    assert rows(page(flatq))[1][0] == "q" and [queue["queue"] for queue in json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]] == ["q"]
    (flatq.spool / "q/log").unlink()
    (flatq.spool / "q/log").mkdir()
    assert rows(page(flatq))[1][:3] == ["q", "~", "1"] and "Oldest" in page(flatq, "/?queue=q")
    stub("awk", "exit 2")
    targets = ("/", "/?queue=q", "/queue/stats", "/metrics")
    found = talk(flatq, *(request("GET", target) for target in targets), request("GET", "/queue?group-id=q"))
    assert [answer.status for answer in found] == [500, 500, 500, 500, 200]


def seen(browser, url, width, dark):
    """Check what a reader must see of a page. Its address, size and colours differ; it needs no script."""
    browser.open(url, width, dark, script=False)
    wrong = browser.ask("{overlaps: overlaps(), cut: cut(), pale: contrasts().filter((one) => one.contrast < 4.5)}")
    assert wrong == {"overlaps": [], "cut": [], "pale": []}, (url, width, dark, wrong)
    # the line under a row has no gap, and one colour
    lines = browser.ask("""[...document.querySelectorAll("tr")].filter((row) => {
        const cells = [...row.cells].map((cell) => [cell.getBoundingClientRect(), getComputedStyle(cell)]);
        return new Set(cells.map(([box, style]) => [box.bottom, parseFloat(style.borderBottomWidth) && style.borderBottomColor].join())).size > 1 ||
          cells.some(([box], at) => at && Math.abs(box.left - cells[at - 1][0].right) > 0.5 && !row.matches(".w *:has(.n)"));
      }).map((row) => row.innerText)""")
    assert lines == [], (url, width, lines)
    names = browser.ask("""[...document.querySelectorAll("tbody .n")].map((cell) =>
        [cell.getBoundingClientRect().width, cell.scrollWidth > cell.clientWidth, getComputedStyle(cell).textOverflow])""")
    assert all(wide >= 110 and (not long or how == "ellipsis") for wide, long, how in names), names
    return names


def test_pages_in_chromium(flatq, door, browser):
    """Pages of no queue, of one message, and of twenty queues of very different depth. A browser would ask for the key; here the URL has it."""
    door = door(API_KEY="a-key")
    url = f"http://me:a-key@127.0.0.1:{door.port}/"
    seen(browser, url, 390, True)
    assert "flatq push mails" in browser.ask("document.body.innerText")
    flatq("push", "jobs", input=b"hello", check=0)
    seen(browser, url, 390, False)
    assert browser.ask("document.querySelector('svg').getBoundingClientRect().right") < 390, "the line is beside the name"
    name = "a-rather-long-name.of-a-service/" * 6 + "x"
    for n, queue in enumerate((*(f"q{n}" for n in range(18)), name)):
        flatq("push", "-l", queue, input=b"a message that is long enough to be cut <b>\n" * int(10 ** (n / 5)), check=0)
    for _ in range(2):
        flatq("bury", "-r", "broken", flatq("reserve", "-t", "60", name, check=0).out.split(b" ")[0].decode(), check=0)
    looks = [(390, False), (1280, True)]
    for width, dark in looks if not everything() else [*looks, (390, True), (1280, False)]:
        names = seen(browser, url, width, dark)
        assert len(names) == 20 and any(long for _, long, _ in names)
        seen(browser, f"{url}?queue={name}", width, dark)
        assert "broken" in browser.ask("document.body.innerText")


@pytest.mark.full
def test_a_page_refreshes_itself(flatq, door, browser):
    door = door()
    browser.open(f"http://127.0.0.1:{door.port}/", script=False)
    wait_for(lambda: door.log().count(" GET - 200 ") > 2, seconds=60)


# ---- many clients at once


@pytest.mark.timeout(600)
def test_documents_multi_threaded_test(flatq, door):
    """10 producers with 40 messages each (10 in `make test`), 10 consumers, 5 groups. Each message comes once, in order within its group, and none
    is left."""
    door = door()
    producers, each, consumers, groups = 10, 40 if everything() else 10, 10, 5
    got, failures, produced = {f"g{n}": [] for n in range(groups)}, [], threading.Event()
    stored = {}

    def produce(producer):
        connection = door.connect(60)
        try:
            for n in range(each):
                group = f"g{(producer + n) % groups}"
                began = time.monotonic()
                answer = door.ask("POST", f"/queue?group-id={group}", f"{producer}.{n}".encode(), connection=connection)
                assert answer.status == 200, answer
                stored[producer, n] = began, time.monotonic()
        except Exception as error:
            failures.append(error)

    def consume():
        connection = door.connect(60)
        try:
            while True:
                done = produced.is_set()
                answer = door.ask("GET", "/queue?wait=3", connection=connection)
                if answer.status == 204:
                    if done:
                        return
                    continue
                assert answer.status == 200, answer
                producer, n = map(int, answer.body.split(b"."))
                got[f"g{(producer + n) % groups}"].append((producer, n))
                gone = door.ask("DELETE", f"/queue?receipt-id={answer.headers['message-receipt-id']}", connection=connection)
                assert gone.status == 200, (answer, gone)
        except Exception as error:
            failures.append(error)

    makers = [threading.Thread(target=produce, args=(n,)) for n in range(producers)]
    takers = [threading.Thread(target=consume) for _ in range(consumers)]
    for thread in makers + takers:
        thread.start()
    for thread in makers:
        thread.join()
    produced.set()
    for thread in takers:
        thread.join()
    assert not failures, failures[:3]
    found = [message for messages in got.values() for message in messages]
    assert len(found) == len(set(found)) == producers * each
    for messages in got.values():
        for producer in range(producers):
            own = [n for one, n in messages if one == producer]
            assert own == sorted(own), "a producer's messages come in its order"
        latest = 0
        for began, ended in map(stored.get, messages):
            latest = max(latest, began)
            assert latest < ended, "it was stored before the request of one that came first had begun"
    assert ask_status(flatq, "GET", "/queue") == 204
    for queue in json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]:
        assert (queue["ready"], queue["in_flight"], queue["delayed"], queue["buried"]) == (0, 0, 0, 0)


def test_many_at_one_group(flatq, door):
    """Twenty clients ask at once, and exactly one gets the message."""
    door = door()
    for round in range(3):
        door.ask("POST", "/queue?group-id=g", b"%d" % round)
        door.ask("POST", "/queue?group-id=g", b"%d more" % round)
        with ThreadPoolExecutor(20) as clients:
            said = list(clients.map(lambda _: door.ask("GET", "/queue?group-id=g"), range(20)))
        got = [answer for answer in said if answer.status == 200]
        assert len(got) == 1
        door.ask("DELETE", f"/queue?receipt-id={got[0].headers['message-receipt-id']}")
        got = door.ask("GET", "/queue?group-id=g")
        door.ask("DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}")


def test_processes(flatq):
    """A request starts few processes more than the verbs. Each count is of one connection with one request."""
    talk(flatq, *(request("POST", f"/queue?group-id=g{n}", b"x") for n in range(3)))

    def programs(text):
        return sorted(os.path.basename(path) for path in flatq.count("http", input=text).programs)

    with_key = ["base64", "base64", "dd", "flock", "md5sum", "sha1sum"]
    assert programs(request("POST", "/queue?group-id=g0&deduplication-id=k", b"y")) == with_key
    assert programs(request("POST", "/queue?group-id=g0", b"z")) == sorted(with_key + ["base64", "sha256sum"])
    assert programs(request("GET", "/queue")) == ["base64", "find", "flock", "mv"], "the lock, and a proof: one in flight"
    assert programs(request("GET", "/queue?group-id=g0")) == [], "nothing is free"
    got = ask(flatq, "GET", "/queue")
    assert programs(request("DELETE", f"/queue?receipt-id={got.headers['message-receipt-id']}")) == ["mv"]
    while ask_status(flatq, "GET", "/queue?wait=1") == 200:
        pass
    waited = programs(request("GET", "/queue?wait=1"))
    assert waited.count("rm") == waited.count("mkfifo") == 1 and "mkdir" not in waited
    assert programs(request("GET", "/x")) == [] and programs(request("GET", "/")) == ["awk", "awk", "ls", "tail", "tail"]


def test_a_mark_is_no_claim(shell, flatq):
    """An unclaim that was killed at its end has left its mark, which holds no message. So the group is free."""
    talk(flatq, request("POST", "/queue?group-id=g", b"x"))
    flatq("claim", "-c", "me", "g", check=0)
    mark, = (flatq.spool / "g/claimed/me").glob("*.0")
    assert ask_status(flatq, "GET", "/queue") == 204, "all that is claimed is in flight"
    flatq("unclaim", "-c", "me", "g", check=0)
    mark.touch()
    assert ask(flatq, "GET", "/queue").body == b"x"


# ---- clients that go away, and clients that send garbage


def test_killed_in_the_middle_of_a_body(shell, flatq):
    process = flatq.start("http")
    process.stdin.write(request("POST", "/queue?group-id=g", b"x" * 100)[:-50])
    process.stdin.flush()
    wait_for(lambda: (flatq.spool / "g/body").exists() and list((flatq.spool / "g/body").iterdir()))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    chunks = flatq.start("http")
    chunks.stdin.write(chunked("/queue?group-id=g", b"abc")[:-5])
    chunks.stdin.flush()
    # the file of the body has no name any longer
    wait_for(lambda: os.path.exists(f"/proc/{chunks.pid}/fd/4") and ".body (deleted)" in os.readlink(f"/proc/{chunks.pid}/fd/4"))
    os.kill(chunks.pid, signal.SIGKILL)
    chunks.wait()
    assert ask_status(flatq, "GET", "/queue") == 204
    flatq("wal", check=0)
    assert not list((flatq.spool / ".wait").iterdir())
    assert ask_status(flatq, "POST", "/queue?group-id=g", b"x" * 100) == 200


def test_ended_by_a_signal_while_waiting(flatq):
    process = flatq.start("http")
    process.stdin.write(request("GET", "/queue?wait=30"))
    process.stdin.flush()
    wait_for(lambda: list(flatq.spool.glob(".doors/wait/*")))
    process.terminate()
    assert process.wait(60) == 75
    assert not list((flatq.spool / ".wait").iterdir()) and not list((flatq.spool / ".doors/wait").iterdir())


def test_fuzz(shell, flatq, door):
    """Some seconds of broken conversations. Each gets an answer or the end of its connection, the door stays up, nothing appears beside the spool,
    and no acknowledged message is lost."""
    door = door()
    kept = [door.ask("POST", f"/queue?group-id=kept{n}", b"%d" % n).headers["message-id"] for n in range(3)]
    outside = {path: path.stat().st_mtime_ns for path in [flatq.home, flatq.spool.parent]}
    seconds, seed = fuzz("http", 5 if os.path.realpath(shell).endswith("dash") else 2)
    with ThreadPoolExecutor(4) as clients:
        found = list(clients.map(lambda n: http_fuzz.run(door.port, seconds, seed * 4 + n), range(4)))
    print("conversations, answered:", [sum(column) for column in zip(*found)], "seed", seed)
    assert door.process.poll() is None and not os.path.exists("/tmp/flatq.x")
    assert {path: path.stat().st_mtime_ns for path in outside} == outside
    flatq("doctor", check=0)
    left = {}
    for n in range(3):
        # a mutated request may have read the message, for a minute at most
        for state in ("ready", "reserved"):
            done = flatq("peek", "-s", state, f"kept{n}")
            if done.status == 0:
                left[n] = done.out
    assert left == {n: b"%d" % n for n in range(3)} and len(kept) == 3
    assert "syntax" not in door.log() and "not found" not in door.log(), door.log()[-3000:]
