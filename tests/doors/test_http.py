"""The HTTP door: conversations for each rule, on pipes and under ./launch, with curl, with
http.client and in a browser; and garbage, also for beanstalkd's."""

import base64
import fcntl
import fnmatch
import hashlib
import html
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

import fuzzing
from browser import browser  # noqa: F401
from conftest import everything, fuzz, need, share, wait_for
from engine import faulty, lies, push, reserve
from stalk import Direct, Launched, in_pieces, over_tcp

Answer = namedtuple("Answer", "status headers body")
RECEIPT = re.compile(r"\S+:\d+\.\d+\.[0-9a-f]{12}")


def request(method, target, body=None, *headers, version="HTTP/1.1"):
    """One request, as bytes."""
    lines = [f"{method} {target} {version}", "Host: flatq", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


def chunked(target, *chunks):
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return request("POST", target, None, "Transfer-Encoding: chunked") + body + b"0\r\n\r\n"


def batch(group, *messages):
    """A POST of several messages, each a (BODY, KEY)."""
    text = b"".join(b"%d%s\n%s\n" % (len(body), key and b" " + key, body) for body, key in messages)
    return request("POST", f"/queue?group-id={group}&batch=1", text)


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


def statuses(flatq, *requests, **more):
    return [answer.status for answer in talk(flatq, *requests, **more)]


def ask(flatq, *args, **more):
    """The answer to one request."""
    [answer] = talk(flatq, request(*args), **more)
    return answer


def ask_status(flatq, *args, **more):
    return ask(flatq, *args, **more).status


def posted(flatq, group, *bodies):
    return talk(flatq, *(request("POST", f"/queue?group-id={group}", body) for body in bodies))


def seconds_of(does):
    """The processor time of what it starts, whatever else runs, and its result."""
    before = sum(os.times()[2:4])
    result = does()
    return sum(os.times()[2:4]) - before, result


def settle(flatq, method, answer, more=""):
    """The status of a DELETE or PATCH with the receipt of an answer to GET."""
    receipt = answer.headers["message-receipt-id"]
    return ask_status(flatq, method, f"/queue?receipt-id={receipt}{more}")


class Door(Launched):
    """The door under ./launch, for http.client."""

    def ask(self, method, target, body=None, connection=None):
        own = connection or self.web()
        own.request(method, target, body)
        answer = own.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        found = Answer(answer.status, found, answer.read())
        if not connection:
            own.close()
        return found

    def web(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


@pytest.fixture
def door(launched):
    return lambda **env: launched(door="http", kind=Door, env=env)


# ---- the document that defines the interface


def test_documents_conversation(shell, flatq):
    group = "/queue?group-id=my-fancy-group"
    first, twice, other, got, none = talk(
        flatq, request("POST", group, b"Waddap"), request("POST", group, b"Waddap"),
        request("POST", group + "&deduplication-id=no-dupes", b"Waddap"),
        *[request("GET", "/queue?visibility-timeout=10")] * 2)
    assert [one.status for one in (first, twice, other, got, none)] == [200, 204, 200, 200, 204]
    assert first.headers["message-md5"] == hashlib.md5(b"Waddap").hexdigest()
    assert first.headers["message-id"] != other.headers["message-id"]
    assert abs(int(first.headers["message-timestamp"]) / 1e6 - time.time()) < 60
    assert int(first.headers["message-timestamp"]) < int(other.headers["message-timestamp"])
    assert "message-id" not in twice.headers
    assert got.body == b"Waddap" and got.headers["content-type"].startswith("text/plain")
    for name in ("message-id", "message-timestamp"):
        assert got.headers[name] == first.headers[name]
    assert got.headers["message-group-id"] == "my-fancy-group"
    assert got.headers["message-receive-count"] == "1"

    receipt = got.headers["message-receipt-id"]
    assert RECEIPT.fullmatch(receipt)
    # the document has a second question mark here
    said = talk(flatq, request("PATCH", f"/queue?receipt-id={receipt}?visibility-timeout=30"),
        *[request("DELETE", f"/queue?receipt-id={receipt}")] * 2, request("GET", "/queue"),
        request("POST", group, b"Waddap"))
    # what was deleted is no duplicate
    assert [one.status for one in said] == [200, 200, 204, 200, 200]
    ids = [first.headers["message-id"]] * 2 + [None, other.headers["message-id"]]
    assert [one.headers.get("message-id") for one in said[:4]] == ids


def test_with_curl(flatq, door):
    """Bodies that are large enough for Expect: 100-continue, and of unknown length."""
    need("curl")
    url, large = f"http://127.0.0.1:{door().port}/queue", flatq.home / "large"
    large.write_bytes(os.urandom(2_000_000))

    def curl(*args):
        return subprocess.run(["curl", "-sS", "-i", "-v", "--max-time", "90", *args],
            capture_output=True, timeout=100, check=True)

    for header in ("Expect: 100-continue", "Transfer-Encoding: chunked"):
        done = curl("-H", header, f"{url}?group-id=g", "--data-binary", f"@{large}")
        assert "chunked" in header or b"100 Continue" in done.stderr
        got = answers(curl(url).stdout)[-1]
        assert got.body == large.read_bytes()
        settled = f"{url}?receipt-id={got.headers['message-receipt-id']}"
        assert answers(curl("-X", "DELETE", settled).stdout)[-1].status == 200


# ---- requests and their answers


NONE = "nosuch:1.1.0123456789ab"
LEASE = "/queue?visibility-timeout="
STATUSES = [
    *((404, method, path) for method, path in (
        ("GET", "/x"), ("GET", "/queue/"), ("GET", "/queuee"), ("GET", "//queue"),
        ("GET", "/../queue"), ("OPTIONS", "*"))),
    (404, "POST", "/queue/x", b"x"),
    (405, "PUT", "/queue", b"x"),
    *((405, method, "/queue") for method in ("HEAD", "OPTIONS", "get", "M-SEARCH", "TRACE")),
    (405, "POST", "/", b"x"), (405, "DELETE", "/queue/stats"), (405, "POST", "/metrics", b"x"),
    (405, "OPTIONS", "/metrics"),
    *((422, "POST", "/queue" + query, b"x") for query in (
        "", "?group-id=", "?group-id=" + "a" * 129, "?group-id=a&group-id=b", "?group-id=a&batch=2",
        "?group-id=a&deduplication-id=", "?group-id=a&deduplication-id=" + "%20" * 129)),
    (411, "POST", "/queue?group-id=a"),
    *((422, "GET", LEASE + seconds) for seconds in (
        "86401", "-1", "", "1.5", "99999999999999999999", "a[$(id)]")),
    *((422, "GET", "/queue?" + query) for query in ("wait=x", "max=0", "group-id=&wait=0")),
    *((422, "DELETE", "/queue" + query) for query in (
        "", "?receipt-id=", "?receipt-id=x", "?receipt-id=a:1", "?receipt-id=a:1.0.0",
        "?receipt-id=2af18f7d-6475-5e64-87f3-e8e7334810ac", "?receipt-id=a:1.1.0123456789aX",
        "?receipt-id=a%20b*:1.1.0123456789ab;", "?receipt-id=../x:1.1.0123456789ab",
        "?receipt-id=a:x.1.0123456789ab", "?receipt-id=" + "z" * 1600)),
    (204, "DELETE", f"/queue?receipt-id={NONE}"),
    (422, "PATCH", "/queue?visibility-timeout=1"), (422, "PATCH", f"/queue?receipt-id={NONE}"),
    (204, "PATCH", f"/queue?receipt-id={NONE}&visibility-timeout=1"),
    *((204, "GET", target) for target in (
        "/queue", "/%71ueue?group-id=nothing", "http://other.example/queue",
        "/queue?unknown=1&&=")),
    *((200, "GET", target) for target in ("/", "/metrics", "/queue/stats", "http://x")),
]


def test_statuses(shell, flatq):
    """All in one connection: none of these answers ends it, and none makes a queue."""
    heads = [n for n, row in enumerate(STATUSES) if row[1] == "HEAD"]
    said = talk(flatq, *(request(*words) for _, *words in STATUSES), heads=heads)
    date = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    for one, row in zip(said, STATUSES, strict=True):
        assert one.status == row[0], row
        assert one.headers["connection"] == "keep-alive", row
        allowed = "DELETE, GET, PATCH, POST" if row[2] == "/queue" else "GET, HEAD"
        assert one.headers.get("allow") == (allowed if one.status == 405 else None), row
        assert one.headers["cache-control"] == "no-store"
        assert re.fullmatch(date, one.headers["date"])
    assert not any(lies(flatq.spool, "a").values()) and not (flatq.spool / "nosuch").exists()


def basic(words):
    return "Authorization: Basic " + base64.b64encode(words.encode()).decode()


def test_api_key(shell, flatq):
    key = "a b*\\ \"'$"
    for status, *headers in [
        (204, f"api-key: {key}"), (204, f"API-KEY:{key}   "), (204, basic(f"anybody:{key}")),
        (204, basic(f"{key}\n")), (204, "Authorization: Basic x", f"api-key: {key}"),
        (401, "X: y"), (401, "api-key:"), (401, "api-key: a"), (401, f"api-key: {key}x"),
        (401, f"api-key: x{key}"), (401, "Authorization: Basic !"),
        (401, "Authorization: Bearer x"), (401, basic(f"{key}:")),
        (401, "api-key: x", basic(f"anybody:{key}")),
    ]:
        said = ask(flatq, "GET", "/queue", None, *headers, env={"API_KEY": key})
        assert said.status == status, headers
        assert said.headers.get("www-authenticate", "").startswith("Basic ") == (status == 401)
    assert ask_status(flatq, "GET", "/queue", env={"API_KEY": ""}) == 204
    # the path is checked before the key, and the method and the parameters after it
    for status, *words in [
        (404, "PUT", "/x"), (401, "PUT", "/queue?visibility-timeout=x"), (401, "GET", "/metrics"),
        (401, "GET", "/queue?visibility-timeout=x"), (401, "GET", "/?queue=none"),
        (405, "PUT", "/queue?group-id=", None, f"API-Key: {key}"),
    ]:
        assert ask_status(flatq, *words, env={"API_KEY": key}) == status, words


def test_nobody_sees_the_key_among_the_processes(shell, flatq):
    """Nor what the client sent as a key: everybody sees the arguments of processes."""
    log, key = flatq.home / "strace.log", "the-door-s-own-key"
    headers = f"api-key: {key}", basic(f"me:{key}")
    asked = [request("GET", "/queue", None, header) for header in headers]
    done = subprocess.run(
        [need("strace"), "-f", "-qq", "-s", "9999", "-e", "signal=none", "-e", "trace=execve", "-o",
         log, "--", *flatq.command("http")],
        input=b"".join(asked), env=flatq.environment({"API_KEY": key}), cwd=flatq.home, timeout=60,
        capture_output=True)
    assert [answer.status for answer in answers(done.stdout)] == [204, 204], done
    executed = log.read_text()
    assert "base64" in executed and key not in executed
    assert basic(f"me:{key}").split(" ")[-1] not in executed


HOST = b"\r\nHost: x\r\n\r\n"
FIELD = b"GET /queue HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n"
MALFORMED = [
    *((400, line + HOST) for line in (
        b"GET  /queue HTTP/1.1", b"GET /queue HTTP/1.1 ", b"GET /queue HTTQ/1.1",
        b"GET queue HTTP/1.1", b"(GET) /queue HTTP/1.1", b"GET /queue#x HTTP/1.1",
        b"GET /que\x01ue HTTP/1.1",
        b"GET /queue?group-id=%zz HTTP/1.1", b"GET /queue?group-id=%4 HTTP/1.1",
        b"GET /queue?receipt-id=%zz HTTP/1.1", b"GET /queue?%zz=x HTTP/1.1")),
    (400, b"GET\r\n\r\n"), (400, b"GET /queue\r\n\r\n"), (400, b"GET /queue HTTP/1.1\nHost: x\n\n"),
    (505, b"GET /queue HTTP/2.0" + HOST), (505, b"GET /queue HTTP/0.9\r\n\r\n"),
    (400, b"GET /queue HTTP/1.1\r\n\r\n"), (400, b"GET /queue HTTP/1.1\r\n Host: x\r\n\r\n"),
    *((400, FIELD % field) for field in (
        b"Host: x", b"X : y", b": y", b"X", b"X: y\r\n z", b"X: a\x0bb", b"X: a\rb", b"X: y\n")),
    (417, FIELD % b"Expect: more"),
    (414, b"GET /queue?" + b"a" * 9000 + b" HTTP/1.1" + HOST),
    (431, FIELD % (b"X: " + b"a" * 9000)), (431, FIELD % (b"X: y\r\n" * 101 + b"X: y")),
    (431, FIELD % ((b"X: " + b"y" * 8000 + b"\r\n") * 9 + b"X: y")),
]
POST = b"POST /queue?group-id=a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
SMUGGLED = [
    *((400, POST + b"Content-Length: %s\r\n\r\nhello" % length) for length in (
        b"5\r\nContent-Length: 6", b"5, 5", b"+5", b"-5", b"0x5", b"5 5", b"")),
    (400, POST + b"Content-Length : 5\r\n\r\nhello"),
    (413, POST + b"Content-Length: 99999999999999999999\r\n\r\nhello"),
    (400, POST + b"Content-Length: 5\r\n" + CHUNKED + LAST),
    (400, POST + CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n" + LAST),
    (400, POST + CHUNKED[:-2] + CHUNKED + LAST),
    (400, POST.replace(b"1.1", b"1.0") + CHUNKED + LAST),
    *((status, POST + b"Transfer-Encoding: %s\r\n\r\n" % coding + LAST) for status, coding in (
        (400, b"chunked, identity"), (400, b"xchunked"), (501, b"gzip"), (400, b"\x0bchunked"))),
    *((400, POST + CHUNKED + text) for text in (
        b"5\r\nhello!\r\n" + LAST, b"5\nhello\r\n" + LAST, b" 5\r\nhello\r\n" + LAST,
        b"0x5\r\nhello\r\n" + LAST, b"-5\r\nhello\r\n" + LAST, b"\r\n",
        b"5\r\nhello\r\n0\r\nbad\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX: a\r\rGET / HTTP/1.1\r\n\r\n")),
    (413, POST + CHUNKED + b"fffffffff\r\nhello\r\n" + LAST),
]
CUT_OFF = [
    FIELD[:-6], FIELD[:-4], POST + b"Content-Length: 9\r\n\r\nhello",
    POST.replace(b"=a", b"=a&batch=1") + b"Content-Length: 4000\r\n\r\n1\na\n2\nbb",
    POST + CHUNKED + b"5\r\nhel", POST + CHUNKED + b"5\r\nhello\r\n",
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
    assert not any(lies(flatq.spool, "a").values()), "no message came about"
    assert not list((flatq.spool / ".wait").iterdir()), "no body is left"


def test_a_nul_is_dropped(shell, flatq):
    """The shell's `read` drops it, so `lib/http -h` tells which proxies may be in front."""
    said = talk(flatq, POST + b"Content-Le\0ngth: 5\r\n\r\nhello", request("GET", "/que\0ue"))
    assert [(answer.status, answer.body) for answer in said] == [(200, b""), (200, b"hello")]
    told = b" ".join(flatq("http", "-h", check=0).out.split())
    assert b"use only a proxy that refuses NUL" in told


def test_which_requests_end_the_connection(flatq):
    """What stays, and how many answers a second request behind it makes."""
    get = request("GET", "/queue")
    for first, count in [
        (b"", 1), (b"\r\n\r\n", 1), (request("GET", "/queue", version="HTTP/1.0"), 1), (get, 2),
        (request("GET", "/queue", version="HTTP/1.9"), 2),
        (request("GET", "/queue", None, "Connection: Keep-Alive", version="HTTP/1.0"), 2),
        *((request("GET", "/queue", None, header), count) for header, count in (
            ("Connection: close", 1), ("connection:  CLOSE", 1), ("Connection: x, close", 1),
            ("Connection: keep-alive", 2), ("Connection: closed", 2))),
        # a body comes where none is wanted, or one is refused: a small one is skipped
        (request("GET", "/queue", b"x" * 500), 2), (request("POST", "/x", b"y" * 500), 2),
        (request("POST", "/x", b"y" * 200_000), 1),
        (request("POST", "/x", b"abc", "Expect: 100-continue"), 1),
    ]:
        assert len(talk(flatq, first, get)) == count, first[:100]
    assert talk(flatq) == [] and talk(flatq, b"GE") == []


# ---- bodies


@pytest.mark.costly
def test_bodies_of_any_bytes(shell, flatq):
    bodies = [
        b"", b"\0", b"\r\n", b"\n\n", bytes(range(256)), b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"-n", b"%s\\0", os.urandom(9000), os.urandom(70_000),
    ]
    bodies = share(f"any bytes {os.path.realpath(shell)}", bodies, 4, first=1)
    target = "/queue?group-id=a&deduplication-id="
    sent = [request("POST", f"{target}{n}", body) for n, body in enumerate(bodies)]
    sent += [chunked(f"{target}c{n}", *filter(None, (body[:7], body[7:])))
             for n, body in enumerate(bodies)]
    stored = talk(flatq, *sent)
    assert [answer.status for answer in stored] == [200] * len(sent)
    sums = [hashlib.md5(body).hexdigest() for body in bodies]
    assert [answer.headers["message-md5"] for answer in stored] == sums * 2
    for body in bodies * 2:
        got = ask(flatq, "GET", "/queue")
        assert (got.status, got.body) == (200, body)
        assert settle(flatq, "DELETE", got) == 200
    assert not list((flatq.spool / ".wait").iterdir())


TO = "/queue?group-id=a"
SIZES = [
    (200, request("POST", TO, b"x" * 1000)), (413, request("POST", TO, b"x" * 1001)),
    (413, chunked(TO, b"x" * 600, b"y" * 600)), (413, batch("a", (b"x" * 1001, b""))),
    (413, request("POST", TO, b"x" * 3_000_000)),  # the client may still be sending
    (200, request("POST", TO, b"hi", "Expect: 100-Continue")),
    (422, request("POST", "/queue", b"hi", "Expect: 100-Continue")),
]


def test_largest(flatq):
    """Before the 200, one that expects it is told to continue."""
    flatq.env["FLATQ_MOST_BYTES"] = "1000"
    for status, sent in SIZES:
        client, theirs = over_tcp(flatq, "http")
        theirs.close()
        client.send(sent)
        if len(sent) < 10_000:
            client.socket.shutdown(socket.SHUT_WR)
        first, *others = answers(client.rest(20))
        told = b"Expect" in sent and status == 200
        assert [first.status] + [one.status for one in others] == [100] * told + [status]
    assert not list((flatq.spool / ".wait").iterdir())


def test_byte_by_byte(flatq):
    client, theirs = over_tcp(flatq, "http")
    text = request("POST", TO, b"hello") + chunked("/queue?group-id=b", b"a", b"bc")
    with theirs:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in text + request("GET", "/queue", None, "Connection: close"):
            client.send(bytes([byte]))
    assert [one.status for one in answers(client.rest())] == [200, 200, 200]


def test_keep_alive_of_many_requests(flatq):
    """The last of many requests in a connection costs as much as the first."""
    posted(flatq, "g", b"x")

    def seconds(count):
        both = request("GET", "/queue?visibility-timeout=0"), request("GET", "/x")
        took, said = seconds_of(lambda: statuses(flatq, *both * count))
        assert said == [200, 404] * count
        return took

    few, many = seconds(25), seconds(100)
    print("seconds for 50 and 200 requests:", few, many)
    assert many < 8 * few, "four times as many cost four times as much"


@pytest.mark.parametrize("door, first, second", [
    # a new connection is acknowledged at once
    ("http", *[request("GET", "/queue?visibility-timeout=0")] * 2),
    # 1000 bytes go out in one piece
    ("beanstalk", b"peek 1\r\n", b"peek 2\r\n")])
def test_answers_do_not_wait_for_the_client(flatq, door, first, second):
    """Nor the second of two writes for an acknowledgement of the first."""
    for size in (1000, 1001):
        push(flatq, b"x" * size)
    client, theirs = over_tcp(flatq, door)
    with theirs:
        for sent, pieces in ((first, False), (second, True)):
            client.send(sent)
            assert client.until(lambda: client.got.rstrip().endswith(b"x" * 1000), 20)
            assert in_pieces(theirs) == pieces, sent
            client.got = b""
        client.close()


# ---- under ./launch


BEFORE = request("GET", "/queue")
ENDLESS = [
    pytest.param(b"GET /queue?", 414, id="line"),
    pytest.param(BEFORE + b"GET /queue?", 414, id="second line"),
    pytest.param(b"GET /queue HTTP/1.1\r\nHost: x\r\nX: ", 431, id="field"),
    pytest.param(BEFORE + POST + b"X: ", 431, id="field of the second"),
]


@pytest.mark.whole
@pytest.mark.parametrize("begin, status", share("megabytes", ENDLESS, 2))
def test_a_line_of_megabytes_is_answered_in_http(launched, begin, status):
    """By the guard, since the shell's `read` returns only at the end of a line. A client that is
    still sending is reset, and may miss it; hence up to eight tries."""
    one = launched(door="http")
    for _ in range(8):
        client = one.connect()
        client.send(begin)
        if begin.startswith(BEFORE):
            assert client.until(lambda: client.got.endswith(b"\r\n\r\n"), 10)
            client.got = b""
        try:
            client.send(b"a" * 1_010_000)
        except OSError:
            pass
        # The reset may cut the answer off, too
        got = client.rest(40)
        client.close()
        if b"\r\n\r\n" in got:
            break
    [said] = answers(got)
    assert (said.status, said.headers["connection"], said.headers["content-length"]) == (
        status, "close", "0")
    wait_for(lambda: " - - line-too-long " in one.said(), "a line of log")
    assert one.connect().ask(BEFORE).startswith(b"HTTP/1.1 204 ")


# ---- groups, visibility and receipts


CONVERSATIONS = {
    "one in flight, and the oldest of all": """
        POST b 1; POST a 2; POST b 3; POST a 4; POST c 5
        GET | 200 1 as first; GET | 200 2 as second; GET | 200 5; GET | 204
        GET group-id=b | 204; DELETE second; GET group-id=b | 204; GET group-id=a | 200 4
        PATCH first 0; GET | 200 1; DELETE first | 204""",
    "what a verb has popped lies in out/ until a sweep, and is not in flight": """
        push g <1; pop g | 1; GET | 204; GET group-id=g | 204; push g <2; GET group-id=g | 200 2""",
    "a group is a queue, and the SHA-256 of a message its key": f"""
        push jobs <1; GET group-id=jobs | 200 1 as first
        POST jobs&deduplication-id=k 2; push -k k jobs <x | 2 dup
        push -k {hashlib.sha256(b"zz").hexdigest()} jobs <zz; POST jobs zz | 204
        pop jobs | 2; DELETE first; reserve jobs; push jobs <y; GET group-id=jobs | 204""",
    "receipts of the longest names": "".join(f"""
        push {name} <x; GET visibility-timeout=0 | 200 x as older; GET | 200 x as newer
        PATCH newer 9; DELETE newer; DELETE older | 204""" for name in ("x" * 200, "$E9" * 66)),
    "full and closed": """
        create -b 1 small; POST small 1; POST small 2 | 503; GET | 200 1
        close small; POST small 2 | 503; GET | 204""",
    "only the receipt of the last reader is good": """
        POST g 1; POST g 2; GET visibility-timeout=0 | 200 1 as one
        GET visibility-timeout=0 | 200 1 as two; GET visibility-timeout=0 | 200 1 as last
        DELETE one | 204; PATCH two 5 | 204; PATCH last 60; GET | 204; PATCH last 0; DELETE last
        GET visibility-timeout=1 | 200 2 as older; GET | 204; later 1.1
        GET visibility-timeout=86400 | 200 2 as newer; DELETE older | 204; DELETE newer""",
    "a message whose time is over keeps its place": """
        POST a 1; POST b 2; GET visibility-timeout=0 | 200 1
        GET visibility-timeout=0 | 200 1; GET visibility-timeout=0 | 200 1""",
    "PATCH of what is ready again, and of what is delayed or buried": """
        POST g 1; POST g 2; GET | 200 1 as first; reserve g | as other; PATCH first 0
        PATCH first 60 | 204; delete other; PATCH first 60; PATCH first 90; GET | 204
        release -d 60 first; PATCH first 60 | 204; bury first; PATCH first 60 | 204""",
    "a receipt is that of the verbs": """
        POST g 1; POST g 2; GET | 200 1 as ours; peek g:1 | 1; touch ours; delete ours
        DELETE ours | 204; reserve -t 60 g | as theirs; PATCH theirs 9; DELETE theirs""",
    "an unclaim that was killed at its end has left its mark, which holds no message": """
        POST g x; claim -c me g; $ echo g/claimed/me/*.0 >mark; GET | 204; unclaim -c me g
        $ touch $(cat mark); GET | 200 x""",
    "an expired receipt of a folded message": """
        POST g 0; POST g 1; POST g 2; GET visibility-timeout=0 | 200 0 as first; later 1
        FLATQ_FOLD=1; wal g; $ ls g/queue/*/*; DELETE first; GET | 200 1""",
    "every deduplication id is one, whatever stands inside for none": "".join(f"""
        POST g{n}&deduplication-id={key} A; POST g{n}&deduplication-id={key} B | 204
        POST b{n}&batch=1 <1 {key}\\nA\\n1 {key}\\nB\\n | 200 200 * 204
        POST c{n} C; POST c{n}&deduplication-id={key} C; POST c{n} C | 204"""
        for n, key in enumerate(("-", "%24", "--"))),
    "a receipt names its queue, and no other is looked at": """
        POST a a; POST g g; GET group-id=a; GET group-id=g | 200 g as ours
        $ mv a/out a/was; $ touch a/out; DELETE ours; DELETE ours | 204
        wal g; DELETE ours | 204""",
}
QUERY = {
    "POST": "group-id={}", "CHUNKED": "group-id={}", "GET": "{}", "DELETE": "receipt-id={}",
    "PATCH": "receipt-id={}&visibility-timeout={}"}
STUBS = {
    "missing": "exit 127",
    "killed": 'if [ ! -e "$ONCE" ]; then : >"$ONCE"; kill -9 "$$"; fi; exec "$REAL" "$@"',
    "killed-at-its-end": '''[ ! -e "$ONCE" ] || exec "$REAL" "$@"
        : >"$ONCE"; "$REAL" "$@"; kill -9 "$$"''',
}


def converse(flatq, text, clock=None, stub=None):
    """A step is a request or a verb, its input, and behind `|` the first words of its answer: the
    status (200), `close` if it ends the connection, and the body; `*` is any text. `as` names the
    receipt. Other steps: NAME=VALUE; `later SECONDS`, but for which the clock stands still; `$` and
    a line of sh in the spool; `stub PROGRAM HOW`; `blind CALL PATH WHEN`, which the next request
    is; `states QUEUE STATE ...`."""
    names, blind = {}, None
    for step in filter(None, re.split(r"[;\n]\s*", text.strip())):
        asked, _, wanted = step.partition("|")
        wanted, _, name = wanted.partition(" as ")
        asked, _, given = asked.partition("<")
        verb, *words = [names.get(word, word) for word in asked.split()]
        if verb in ("POST", "CHUNKED") and not given:
            given = words.pop()
        given = given.strip().encode().decode("unicode_escape").encode("latin-1")
        if "=" in verb:
            flatq.env |= [verb.split("=")]
        elif verb == "later":
            clock.advance(float(words[0]))
        elif verb == "$":
            subprocess.run(["sh", "-ec", " ".join(words)], cwd=flatq.spool, check=True)
        elif verb == "stub":
            stub(words[0], STUBS[words[1]])
        elif verb == "blind":
            blind = words
        elif verb == "states":
            listed = flatq("list", words[0], check=0).out.decode().splitlines()
            assert sorted(line.split()[1] for line in listed) == words[1:], step
        elif verb in QUERY:
            # a receipt needs no encoding, and may have one
            words = [quote(word, safe="") if verb == "DELETE" else word for word in words] or [""]
            more = "".join(f"&receipt-id={word}" for word in words[1:] if verb == "DELETE")
            target = words[0] if words[0][:1] == "/" else "/queue?" + QUERY[verb].format(
                *words) + more
            sent = (chunked(target, given[:1], given[1:]) if verb == "CHUNKED"
                else request(verb, target, given or None))
            if blind:
                call, path, when = blind
                done = faulty(flatq, call, flatq.spool / path, "http", when=when, input=sent)
                out, err, blind = done.stdout, done.stderr, None
            else:
                _, out, err = flatq("http", input=sent)
            [said] = answers(out)
            assert said.status != 503 or "retry-after" in said.headers
            if said.status == 500:  # the log has the reason, and the client does not learn a path
                assert str(flatq.spool).encode() not in out and re.search(rb"(?m)^http: .", err)
            names[name] = said.headers.get("message-receipt-id")
            told = [str(said.status), *["close"] * (said.headers["connection"] == "close"),
                *said.body.decode().split()]
            told = " ".join(told) + " "
            assert any(fnmatch.fnmatchcase(told, f"{one.strip()} *")
                for one in (wanted.strip() or "200").split(" or ")), (step, told)
        else:
            told = flatq(verb, *words, input=given, check=0).out.decode().split()
            assert told[: len(wanted.split())] == wanted.split(), (step, told)
            names[name] = "".join(told[:1])


@pytest.mark.parametrize("what", CONVERSATIONS)
def test_conversation(shell, flatq, clock, what):
    converse(flatq, CONVERSATIONS[what], clock)


NAMES = [
    "a", "A", "a.b", ".", "..", "../x", "a/../b", "/", "a//b", "-x", "$", "$2E", "%", "a b", "a+b",
    "a,b", "a:b", "é", "日本語" * 42, "\0", "\n", "*", "?", "a&b=c", "~", "|;`'\"\\<>",
    "".join(map(chr, range(32, 127))),
    "x" * 128, "%" * 128, "é" * 128, "\U0001f600" * 128, ".hidden", "default", "$sha1$x",
]


def test_names_of_groups(shell, flatq):
    """Every string of 1 to 128 characters is a group of its own, and none leads out of the
    spool."""
    whole = os.path.realpath(shell).endswith("dash")
    names = NAMES if whole else NAMES[3::4] + NAMES[-4:-3]
    targets = [f"/queue?group-id={quote(name, safe='')}" for name in names]
    stored = talk(flatq, *(request("POST", target, b"%d" % n) for n, target in enumerate(targets)))
    assert [answer.status for answer in stored] == [200] * len(names)
    got = talk(flatq, *(request("GET", target) for target in targets))
    assert [answer.body for answer in got] == [b"%d" % n for n in range(len(names))]
    ids = [[answer.headers["message-id"] for answer in those] for those in (got, stored)]
    assert ids[0] == ids[1]
    assert sorted(path.name for path in flatq.spool.parent.iterdir()) == ["home", "spool"]
    listed = flatq("list", check=0).out.decode().split("\n")[:-1]
    assert len(listed) == len(names) and len(set(listed)) == len(names)
    assert posted(flatq, "x(y)", b"as it is, without a percent sign")[0].status == 200
    assert b"x(y)\n" in flatq("list", check=0).out
    # in a value `+` is a blank, as in forms
    assert ask_status(flatq, "GET", "/queue?group-id=a+b") == 204
    stats = json.loads(ask(flatq, "GET", "/queue/stats").body)
    shown = {queue["group"] for queue in stats["queues"]}
    plain = {quote(name, safe="/;()") for name in names if not set(name) & set("~.-")}
    assert {name for name in plain if len(name) < 150} <= shown
    assert {answer.headers["message-group-id"] for answer in got} == shown - {"x(y)"}


# ---- long polls


def test_long_poll(flatq, clock, stub):
    """The clock stands still: two clients go on because they are woken, the third waits in vain."""
    clock.runs_sleep(stub)
    door = Direct(flatq, "http")

    def asks(query):
        client = door.connect()
        client.send(request("GET", f"/queue?{query}", None, "Connection: close"))
        return client

    posted(flatq, "busy", b"1")
    held = ask(flatq, "GET", "/queue")
    posted(flatq, "busy", b"2")
    nothing, busy, new = map(asks, ("group-id=nothing&wait=1", "group-id=busy&wait=20", "wait=20"))
    wait_for(lambda: sorted(clock.sleepers().values()) == [1, 2, 2], "three clients that wait")
    posted(flatq, "made-now", b"3")
    assert new.rest().endswith(b"\r\n\r\n3")
    assert settle(flatq, "DELETE", held) == 200
    assert busy.rest().endswith(b"\r\n\r\n2") and not nothing.more(0)
    clock.passes_until(lambda: nothing.more(0), lambda: clock.sleeps_of(door.processes[0]))
    assert nothing.rest().startswith(b"HTTP/1.1 204 ")
    wait_for(lambda: not waiting(flatq), "nothing is left")


def waiting(flatq):
    """What requests that wait have in the spool."""
    return [*flatq.spool.glob(".wait/*"), *flatq.spool.glob(".doors/wait/*")]


def test_long_poll_until_a_timeout_of_visibility(flatq):
    posted(flatq, "g", b"1")
    ask(flatq, "GET", "/queue?visibility-timeout=1")
    assert ask(flatq, "GET", "/queue?wait=600").body == b"1"


# ---- receipts


def test_a_receipt_cannot_be_made_up(shell, flatq):
    """Each digit counts, but the tries, which a kick changes. A message that nobody holds has
    none."""
    posted(flatq, "g", b"1", b"2")
    receipt = ask(flatq, "GET", "/queue").headers["message-receipt-id"]
    place = receipt.index(":") + 1
    wrong = [receipt[:at] + ("0" if digit != "0" else "1") + receipt[at + 1:]
             for at, digit in enumerate(receipt)
             if at >= place and digit != "." and at != receipt.index(".") + 1]
    wrong += [f"h{receipt[1:]}", f"g:2.0.{'0' * 12}"]
    said = talk(flatq, *(request("DELETE", f"/queue?receipt-id={one}") for one in wrong))
    assert {answer.status for answer in said} == {204}
    bare = ("g:1", "g:2", "g:2.0.0", "g:2.0.-", f"{receipt}0", f"g:{receipt}")
    said = talk(flatq, *(request("DELETE", f"/queue?receipt-id={one}") for one in bare))
    assert {answer.status for answer in said} == {422}
    assert flatq("list", "g").out.count(b"\n") == 2
    assert ask_status(flatq, "DELETE", f"/queue?receipt-id={receipt}") == 200


def test_the_log_names_the_queue_of_a_receipt(flatq):
    """Also if the message is gone."""
    posted(flatq, "g", b"1")
    receipt = ask(flatq, "GET", "/queue").headers["message-receipt-id"]
    sent = request("DELETE", f"/queue?receipt-id={receipt}")
    for status in (b"200", b"204"):
        assert flatq("http", input=sent, check=0).err.split(b" ")[2:4] == [b"g", status]


# ---- beyond the document


@pytest.fixture(params=["gawk", "mawk", "original-awk", "busybox awk"])
def awk(request, stub):
    need(request.param.split()[0])
    stub("awk", f'exec {request.param} "$@"')


def test_batches(shell, flatq):
    bodies = [b"one", b"", b"\0\n\xff", b"one", b"two"]
    [said] = talk(flatq, batch("g", *zip(bodies, [b"", b"", b"", b"", b"key"])))
    lines = [line.split(" ") for line in said.body.decode().splitlines()]
    assert [line[0] for line in lines] == ["200", "200", "200", "204", "200"]
    sums = [hashlib.md5(body).hexdigest() for body in (b"one", b"", b"\0\n\xff", b"two")]
    assert [line[2] for line in lines if line != ["204"]] == sums
    posted(flatq, "h", b"of h")
    got = ask(flatq, "GET", "/queue?max=10")
    rest, found = got.body, []
    while rest:
        head, rest = rest.split(b"\n", 1)
        receipt, message, stamp, length = head.decode().split(" ")
        found.append((receipt, message, rest[: int(length)]))
        assert rest[int(length): int(length) + 1] == b"\n" and len(stamp) == 16
        rest = rest[int(length) + 1:]
    assert [row[2] for row in found] == [b"one", b"of h"] and found[0][1] == lines[0][1]
    asked = "&".join(f"receipt-id={row[0]}" for row in found * 2) + "&receipt-id=x"
    gone = ask(flatq, "DELETE", "/queue?" + asked).body.decode().splitlines()
    assert gone[:4] == [f"200 {found[0][1]}", f"200 {found[1][1]}", "204", "204"]
    assert gone[4].startswith("422 ")
    # a broken message ends the batch, and those stored before it stay
    for text in (b"x\n", b"5\nab", b"2\nabc\n", b"2 \xff\nab\n", b"2 %zz\nab\n",
                 b"1 " + b"k" * 129 + b"\na\n"):
        sent = b"1 %d\nz\n" % len(text) + text
        said = ask(flatq, "POST", "/queue?group-id=broken&batch=1", sent)
        assert said.body.decode().splitlines()[-1].startswith("422 "), (text, said)


def test_stats_and_metrics(shell, awk, flatq):
    posted(flatq, "g", b"0", b"1", b"2", b"more")
    flatq("push", "-d", "100", "g", input=b"later", check=0)
    posted(flatq, "a%20b", b"x")
    settle(flatq, "DELETE", ask(flatq, "GET", "/queue?group-id=g"))
    ask(flatq, "GET", "/queue?group-id=g")
    old = lambda: b"oldest 0\n" not in flatq("stat", "g", check=0).out
    wait_for(old, "a message is a second old")
    stats = json.loads(ask(flatq, "GET", "/queue/stats").body)
    shown = {queue["group"]: queue for queue in stats["queues"]}
    assert abs(stats["time"] - time.time()) < 60
    expected = dict(queue="g", ready=2, delayed=1, reserved=1, in_flight=1, buried=0, closed=False,
                    pushed_last_minute=5, done_last_minute=1)
    assert {key: shown["g"][key] for key in expected} == expected
    assert 1 <= shown["g"]["oldest"] == shown["g"]["oldest_seconds"] < 55
    assert shown["a%20b"]["queue"] == "a$20b"
    metrics = ask(flatq, "GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    form = r'# (HELP|TYPE) flatq_\w+ .+|flatq_\w+\{queue="[^"\\]+"(,state="\w+")?\} \d+'
    for line in metrics.body.decode().splitlines():
        assert re.fullmatch(form, line), line
    for line in ('messages{queue="g",state="ready"} 2', 'messages{queue="g",state="reserved"} 1',
                 'oldest_seconds{queue="g"} [1-9]',
                 'pushed_last_minute{queue="g"} 5', 'done_last_minute{queue="g"} 1'):
        assert re.search(f"(?m)^flatq_{line}", metrics.body.decode()), line
    [head] = talk(flatq, request("HEAD", "/queue/stats"), heads=[0])
    assert head.status == 200 and int(head.headers["content-length"]) > 100


def test_a_paused_group_is_not_handed_out(flatq):
    posted(flatq, "g", b"held")
    flatq("pause", "g", check=0)
    for group in ("", "?group-id=g"):
        assert ask_status(flatq, "GET", f"/queue{group}") == 204
    posted(flatq, "other", b"free")
    assert ask(flatq, "GET", "/queue").body == b"free"
    [paused] = [queue["paused"] for queue in
        json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"] if queue["queue"] == "g"]
    assert paused == 2**32 - 1
    flatq("resume", "g", check=0)
    assert ask(flatq, "GET", "/queue?group-id=g").body == b"held"


def test_stats_cost_as_much_as_there_are_groups(flatq):
    """One find counts many groups."""
    flatq("push", "g0", input=b"x", check=0)

    def costs(groups):
        for n in range(groups):
            if not (flatq.spool / f"g{n}").exists():
                shutil.copytree(flatq.spool / "g0", flatq.spool / f"g{n}")
        spent = {}
        for target in ("/queue/stats", "/metrics", "/"):
            spent[target], said = seconds_of(lambda: ask(flatq, "GET", target))
            assert said.body.count(b"g") >= groups
        return spent, flatq.count("http", input=request("GET", "/metrics")).processes

    (few, processes), (many, more) = costs(75), costs(300)
    print("seconds for 75 and 300 groups:", few, many)
    assert more < processes + 20
    for target, seconds in many.items():
        assert seconds < 8 * few[target] + 0.1, "four times as many cost four times as much"


# ---- pages for people


def page(flatq, target="/", **more):
    """A page as text. This also checks what every page must have."""
    said = ask(flatq, "GET", target, **more)
    assert (said.status, said.headers["content-type"]) == (200, "text/html; charset=utf-8"), said
    policy = said.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ") and "script" not in policy
    text = said.body.decode(errors="replace")
    assert "<script" not in text and "http-equiv=refresh content=5" in text
    assert "\n%" not in text and "%host" not in text
    assert re.search(r", as of \d?\d:\d\d:\d\d UTC\n</p>", text)
    return text


def rows(said):
    """The cells of each row of a page, as a reader sees them."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", said, re.S):
        cells = re.findall(r"<t[dh][^>]*>(.*?)(?=</t[dh]>)", row, re.S)
        found.append([html.unescape(re.sub("<[^>]*>", "", cell)) for cell in cells])
    return found


def test_pages(awk, flatq):
    """Of all queues, and of one: what comes next, what is buried and why, the last events. No text
    of a message, a name or a log becomes markup."""
    assert 'curl "http://flatq/queue?group-id=mails" -d hello' in page(flatq)
    strange, shown, plain = "%C3%A9%3Cb%3E%26%22%FF", '\u00e9<b>&"\ufffd', "a/b.c$24+;(_)"
    flatq("create", "-b", "5000", "-m", "3", plain, check=0)
    posted(flatq, strange, *(b"<i>%d&\xe2\x82\xac\x00\xff</i>" % n + b"x" * 200 for n in range(3)))
    held = flatq("reserve", "-t", "60", strange.replace("%", "$"), check=0).out.split()[0].decode()
    flatq("bury", "-r", "no-such_person", held, check=0)
    flatq("push", "-l", "deep", input=b"".join(b"%d\n" % n for n in range(700)), check=0)
    flatq("push", "-p", "9", "deep", input=b"urgent", check=0)
    for _ in range(2):
        flatq("pop", "deep", check=0)
    flatq("push", "-p", "70000", "deep", input=b"last", check=0)
    said = page(flatq)
    found = {row[0]: row[1:] for row in rows(said)}
    assert found["a/b.c$+;(_)"] == ["0", "0", "0", "0", "\u2013", "0", "0"]
    assert found[shown][:4] == ["2", "0", "0", "1"] and re.fullmatch(r"\d+ s", found[shown][4])
    assert found[shown][5:] == ["3", "0"]
    assert found["deep"][:4] == ["700", "0", "0", "0"] and found["deep"][5:] == ["702", "2"]
    assert "3 queues" in said
    links = {html.unescape(re.sub("<[^>]*>", "", text)): link
             for link, text in re.findall(r'<a href="([^"]*)">(.*?)</a>', said)}
    one = page(flatq, links[shown])
    found = rows(one)
    assert [row[0] for row in found if len(row) == 8] == ["queue", shown]
    messages = [row for row in found if row[1].startswith("<i>") and row[3] == "65536"]
    assert [(row[0], row[1], row[3:]) for row in messages] == [
        (str(n + 1), f"<i>{n}&\u20ac \ufffd</i>" + "x" * 76 + " \u2026", ["65536", "0", "214"])
        for n in (1, 2)]
    assert [row[2] for row in found if row[:1] == ["1"]] == ["no-such_person"]
    names = ("push", "bury", "reserve")
    events = [row[1:4] for row in found if len(row) == 6 and row[1] in names]
    assert events == [["bury", "no-such_person", "1"], ["reserve", "lease-60", "1"],
                      *(["push", "", str(n)] for n in (3, 2, 1))]
    # of a deep queue, too, what comes next, also from flat files
    following = [row for row in rows(page(flatq, links["deep"])) if len(row) == 6]
    following = [row[1] for row in following if row[3] == "65536"]
    assert following == [str(n) for n in range(1, 11)]
    # the last of those that come next may be empty
    flatq("push", plain, input=b"", check=0)
    empty = page(flatq, links["a/b.c$+;(_)"])
    assert "at most 5000 messages, at most 3 tries" in empty and "Next messages" in empty
    flatq("pause", "deep", "500", check=0)
    assert "deep (paused)" in {row[0] for row in rows(page(flatq))}
    assert "any number of tries, paused, as of" in page(flatq, links["deep"])
    for name, status in (("none", 404), ("..%2F", 404), ("", 404), ("%zz", 400),
                         ("deep&queue=deep", 422), ("a" * 3000, 422)):
        assert ask_status(flatq, "GET", f"/?queue={name}") == status, name
    missing = ask(flatq, "GET", "/?queue=none")
    assert b'No such queue: see <a href="/">all queues</a>' in missing.body
    assert b"Nothing yet" not in missing.body and b"\n%" not in missing.body


def test_a_page_says_why_and_until_when(flatq):
    for body, delay in ((b"<b>bad", "0"), (b"later", "7100"), (b"held", "0")):
        flatq("push", "-d", delay, "q", input=body, check=0)
    flatq("work", "-q", "q", "-n", "1", "-m", "1", "--", "sh", "-c",
        "printf 'line\\n==> body/<i> & \\033' >&2; exit 3", check=0)
    flatq("reserve", "-t", "650", "q", check=0)
    said = page(flatq, "/?queue=q")
    assert "<b>" not in said and "<i>" not in said
    found = [row[:4] for row in rows(said) if row[0] in "123"]
    assert [row[:3] for row in found[1:]] == [["2", "later", "1 h"], ["3", "held", "10 min"]]
    assert found[0] == ["1", "<b>bad", "exit-3", "==> body/<i> &  "] and found[2][3] == "\u2013"


def test_pages_believe_no_log(flatq):
    """Not what only the door may write, nor markup."""
    flatq("push", "q", input=b"x", check=0)
    now = time.time()
    written = [
        b"row <b> true 9 9 9 9 9 9 9", b"logs", b"==> <u>/log <==",
        b"ready <b>.1.1.1.1.1.1.1.1.1 PGI+", b"buried <b>",
        b"%.2f push 1 0 1 5 <b>" % now, b"%.2f <b> 1 0 1 5 -" % now,
        b"%.2f push <b> <b> <b> 5 -" % now, b"==> body/000000000001 <==", b"PGI+", b"\xff\x00<b>"]
    with open(flatq.spool / "q/log", "ab") as log:
        log.write(b"\n".join(written) + b"\n")
    for target in ("/", "/?queue=q"):
        assert "<b>" not in page(flatq, target) and "<u>" not in page(flatq, target)
    [queue] = json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]
    assert (queue["queue"], queue["ready"]) == ("q", 1)
    assert "<b>" not in ask(flatq, "GET", "/metrics").body.decode()


def test_a_page_is_cheap_and_waits_for_nobody(flatq):
    """The same processes at any depth, no lock, and of a large message the beginning."""
    flatq("push", "large", input=b"y" * 300_000, check=0)
    ask(flatq, "GET", "/x")
    lines = b"x" * 900 + b"\n"
    flatq("push", "-l", "deep", input=lines * 2000, check=0)
    targets = "/", "/?queue=deep", "/?queue=large"

    def programs():
        counted = [flatq.count("http", input=request("GET", target)) for target in targets]
        return [sorted(one.programs) for one in counted]

    few = programs()
    flatq("push", "-l", "deep", input=lines * 20_000, check=0)
    before_all = sorted((flatq.spool / "deep").rglob("*"))
    with open(flatq.spool / "deep/lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert programs() == few and max(map(len, few)) <= 11, few
    assert len(page(flatq, "/?queue=large")) < 6000 and len(page(flatq, "/?queue=deep")) < 9000
    assert sorted((flatq.spool / "deep").rglob("*")) == before_all, "nothing is unfolded for it"


def test_a_queue_with_a_damaged_conf_stays_on_the_page(flatq):
    flatq("push", "q", input=b"x", check=0)
    (flatq.spool / "q/conf").write_text("x y\n")
    stats = json.loads(ask(flatq, "GET", "/queue/stats").body)["queues"]
    assert rows(page(flatq))[1][0] == "q" and [queue["queue"] for queue in stats] == ["q"]
    (flatq.spool / "q/log").unlink()
    (flatq.spool / "q/log").mkdir()
    assert rows(page(flatq))[1][:2] == ["q", "1"]
    assert "Next messages" in page(flatq, "/?queue=q")


def seen(browser, url, width, dark):
    """Check what a reader must see of a page, which needs no script."""
    browser.open(url, width, dark, script=False)
    wrong = browser.ask("{overlaps: overlaps(), cut: cut(),"
                        " pale: contrasts().filter((one) => one.contrast < 4.5)}")
    assert wrong == {"overlaps": [], "cut": [], "pale": []}, (url, width, dark, wrong)
    if width < 400:
        # what does not fit is under its row, not off the screen
        edge = "Math.max(...[...document.querySelectorAll('td, th')].map(" \
            "(cell) => cell.getBoundingClientRect().right), 0)"
        assert browser.ask(edge) <= width, url
    names = browser.ask("""[...document.querySelectorAll("tbody .n")].map((cell) => [
        cell.getBoundingClientRect().width, cell.scrollWidth > cell.clientWidth,
        getComputedStyle(cell).textOverflow])""")
    assert all(wide >= 110 and (not long or how == "ellipsis") for wide, long, how in names), names
    return names


def test_pages_in_chromium(flatq, door, browser):
    """Of no queue, of one message, and of twenty queues. Here the URL has the key."""
    door = door(API_KEY="a-key")
    url = f"http://me:a-key@127.0.0.1:{door.port}/"
    seen(browser, url, 390, True)
    assert "flatq push mails" in browser.ask("document.body.innerText")
    flatq("push", "jobs", input=b"hello", check=0)
    seen(browser, url, 390, False)
    name = "a-rather-long-name.of-a-service/" * 6 + "x"
    line = b"a message that is long enough to be cut <b>\n"
    for n, queue in enumerate((*(f"q{n}" for n in range(18)), name)):
        flatq("push", "-l", queue, input=line * int(10 ** (n / 5)), check=0)
    for _ in range(2):
        held = flatq("reserve", "-t", "60", name, check=0).out.split(b" ")[0].decode()
        flatq("bury", "-r", "broken", held, check=0)
    looks = [(390, False), (1280, True), (390, True), (1280, False)]
    for width, dark in looks if everything() else looks[:2]:
        names = seen(browser, url, width, dark)
        assert len(names) == 20 and any(long for _, long, _ in names)
        seen(browser, f"{url}?queue={name}", width, dark)
        assert "broken" in browser.ask("document.body.innerText")


# ---- many clients at once


@pytest.mark.timeout(600)
def test_documents_multi_threaded_test(flatq, door):
    """10 producers with 40 messages each (10 in `make test`), 10 consumers, 5 groups. Each message
    comes once, in order within its group, and none is left."""
    door = door()
    producers, each, consumers, groups = 10, 40 if everything() else 10, 10, 5
    got, stored, produced = {f"g{n}": [] for n in range(groups)}, {}, threading.Event()

    def produce(producer):
        connection = door.web()
        for n in range(each):
            group, body = f"g{(producer + n) % groups}", f"{producer}.{n}".encode()
            began = time.monotonic()
            said = door.ask("POST", f"/queue?group-id={group}", body, connection=connection)
            assert said.status == 200, said
            stored[producer, n] = began, time.monotonic()

    def consume():
        connection = door.web()
        while True:
            done = produced.is_set()
            said = door.ask("GET", "/queue?wait=3", connection=connection)
            if said.status == 204:
                if done:
                    return
                continue
            assert said.status == 200, said
            producer, n = map(int, said.body.split(b"."))
            got[f"g{(producer + n) % groups}"].append((producer, n))
            receipt = said.headers["message-receipt-id"]
            gone = door.ask("DELETE", f"/queue?receipt-id={receipt}", connection=connection)
            assert gone.status == 200, (said, gone)

    with ThreadPoolExecutor(producers + consumers) as clients:
        takers = [clients.submit(consume) for _ in range(consumers)]
        try:
            list(clients.map(produce, range(producers)))
        finally:
            produced.set()
        for taker in takers:
            taker.result()
    found = [message for messages in got.values() for message in messages]
    assert len(found) == len(set(found)) == producers * each
    line = re.compile(r"Z (?:POST|GET|DELETE) g\d 200 \d+ \d+$", re.M)
    wait_for(lambda: len(line.findall(door.said())) == 3 * len(found), "a line of log for each")
    for messages in got.values():
        for producer in range(producers):
            own = [n for one, n in messages if one == producer]
            assert own == sorted(own), "a producer's messages come in its order"
        latest = 0
        for began, ended in map(stored.get, messages):
            latest = max(latest, began)
            assert latest < ended, "stored before the request of one that came first had begun"
    assert not any(flatq("list", group).out for group in got)


def test_processes(flatq):
    """Of one connection with one request: few more than the verbs'."""
    for n in range(3):
        posted(flatq, f"g{n}", b"x")

    def programs(*words):
        counted = flatq.count("http", input=request(*words))
        return sorted(os.path.basename(path) for path in counted.programs)

    key = ["base64", "base64", "dd", "flock", "md5sum", "sha1sum"]
    assert programs("POST", "/queue?group-id=g0&deduplication-id=k", b"y") == key
    assert programs("POST", "/queue?group-id=g0", b"z") == sorted([*key, "base64", "sha256sum"])
    # the lock, and a proof: none is in flight
    assert programs("GET", "/queue") == ["base64", "find", "flock", "mv"]
    assert programs("GET", "/queue?group-id=g0") == [], "one is seen in flight"
    got = ask(flatq, "GET", "/queue?group-id=g2").headers["message-receipt-id"]
    assert programs("DELETE", f"/queue?receipt-id={got}") == ["mv"]
    while ask_status(flatq, "GET", "/queue?wait=1") == 200:
        pass
    waited = programs("GET", "/queue?wait=1")
    assert waited.count("rm") == waited.count("mkfifo") == 1 and "mkdir" not in waited
    assert programs("GET", "/x") == []
    assert programs("GET", "/") == ["awk", "awk", "find", "find", "ls", "tail"]


# ---- clients that go away, and clients that send garbage


def test_what_was_killed_in_a_chunk_is_swept(flatq):
    process = flatq.start("http")
    process.stdin.write(chunked(TO, b"abc")[:-5])
    process.stdin.flush()
    wait_for(lambda: list(flatq.spool.glob(".wait/*")), "the body is begun")
    process.kill()
    process.wait()
    flatq("wal", check=0)
    assert not list(flatq.spool.glob(".wait/*"))


def test_ended_by_a_signal_while_waiting(flatq):
    process = flatq.start("http")
    process.stdin.write(request("GET", "/queue?wait=30"))
    process.stdin.flush()
    wait_for(lambda: list(flatq.spool.glob(".doors/wait/*")))
    process.terminate()
    assert process.wait(60) == 75
    assert not waiting(flatq)


@pytest.mark.parametrize("name", ["http", "beanstalk"])
def test_fuzz(shell, flatq, launched, name):
    """Each broken conversation gets an answer or its end, the door stays up, nothing appears beside
    the spool, and what others hold stays theirs."""
    for n in range(3):
        push(flatq, b"%d" % n, "kept")
    held = [reserve(flatq, "-t", "99999", "kept") for _ in range(3)]
    door = launched(door=name)
    beside = lambda: {path for path in flatq.spool.parent.rglob("*")
        if not path.is_relative_to(flatq.spool)}
    outside = beside()
    print(fuzzing.run(door.connect, name, flatq.spool, *fuzz(name, 5)))
    assert door.process.poll() is None and not os.path.exists("/tmp/flatq.x")
    assert beside() == outside
    flatq("doctor", check=0)
    for one in held:
        assert flatq("peek", one.receipt.partition(".")[0], check=0).out == one.body
        flatq("delete", one.receipt, check=0)
    assert "syntax" not in door.said() and "not found" not in door.said(), door.said()[-3000:]
