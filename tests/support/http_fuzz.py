"""Valid conversations with the HTTP door, broken in many random ways, for a limited time."""

import errno
import random
import re
import socket
import time

RECEIPT = b"fuzz:1.1.0123456789ab"
LINES = [
    (b"POST /queue?group-id=fuzz", b"Content-Length: 5", b"hello"),
    (b"POST /queue?group-id=f%C3%A9&deduplication-id=a%00b", b"Content-Length: 3", b"a\0b"),
    (b"POST /queue?group-id=fuzz2", b"Transfer-Encoding: chunked",
     b"3;x=y\r\nabc\r\n2\r\n\r\n\r\n0\r\nT: u\r\n\r\n"),
    (b"POST /queue?group-id=fuzz3&batch=1", b"Content-Length: 18", b"3\nabc\n2 key\nxy\n0\n\n"),
    (b"POST /queue?group-id=fuzz4", b"Expect: 100-continue\r\nContent-Length: 2", b"hi"),
    (b"GET /queue?visibility-timeout=0", b"", b""),
    (b"GET /queue?group-id=fuzz&max=3&visibility-timeout=1", b"Connection: close", b""),
    (b"DELETE /queue?receipt-id=" + RECEIPT, b"", b""),
    (b"PATCH /queue?receipt-id=" + RECEIPT + b"?visibility-timeout=30", b"", b""),
    (b"GET /queue/stats", b"", b""),
    (b"GET http://x/metrics", b"Api-Key: x\r\nAuthorization: Basic eDp5", b""),
    (b"HEAD /?queue=fuzz", b"", b""),
]
VALID = [b"GET /queue?wait=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] + [
    line + b" HTTP/1.1\r\nHost: x\r\n" + (fields and fields + b"\r\n") + b"\r\n" + body
    for line, fields, body in LINES]
PIECES = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"%", b"%2e%2e%2f", b"../../",
    b"$(touch /tmp/flatq.x)", b"`id`", b"*", b"?", b"&", b"=", b"\\", b"'", b'"', b"-n",
    b"a[$(id)]", b"\xff\xfe", b"\xc3\xa9", b"99999999999999999999", b"-1", b"0x10", b"1e9", b"08",
    b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/2.0", b"A" * 9000,
    b"group-id=", b"|&;<>(){}", b"%00", b"%s%n", b"\r\n\r\n", b"0\r\n\r\n",
    b":1.1.", b"%3A", b"%24",
]


def broken(rng):
    """One conversation: a few valid requests in a row, with mutations."""
    text = b"".join(rng.choice(VALID) for _ in range(rng.randint(1, 3)))
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.choice([1, 2, 5, 40]))
        how = rng.randrange(6)
        if how == 0:
            text = text[:at] + text[to:]
        elif how == 1:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif how == 2:
            text = text[:at] + rng.choice(PIECES) + text[to:]
        elif how == 3:
            text = text[:at] + bytes(rng.randrange(256) for _ in range(to - at)) + text[to:]
        elif how == 4:
            text = text[:at]
        else:
            text = text[:to] + text[at:]
        if not text:
            text = b"\r\n"
    return re.sub(rb"wait=\d+", b"wait=1", text)  # the test need not wait for long polls


def send(port, text, rng, seconds=300):
    """What the door says until it closes. TimeoutError if it neither answers nor closes within so
    many seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        said = b""
        try:
            if rng.random() < 0.3:
                at = rng.randrange(len(text) + 1)
                client.sendall(text[:at])
                client.sendall(text[at:])
            else:
                client.sendall(text)
            if rng.random() < 0.1:
                return said  # the client goes without waiting
            client.shutdown(socket.SHUT_WR)
            while True:
                piece = client.recv(65536)
                if not piece:
                    return said
                said += piece
        except OSError as error:
            # the door may have reset the connection, also before the client ends its side
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
            return said


def run(port, seconds, seed, secret):
    """The number of conversations that were sent, and of those that got an answer. Each answer must
    be one of HTTP, and none has the secret in it."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    sent = answered = 0
    while time.monotonic() < end:
        text = broken(rng)
        said = send(port, text, rng)
        assert not said or said.startswith(b"HTTP/1.1 "), (seed, text, said)
        assert b" 500 " not in said.split(b"\r\n")[0], (seed, text, said)
        assert secret not in said, (seed, text, said)
        sent, answered = sent + 1, answered + bool(said)
    return sent, answered
