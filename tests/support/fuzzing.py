"""Valid conversations with the HTTP door or beanstalkd's, mutated: the door answers in its protocol
or closes, writes nothing outside the spool, and does not say where that is."""

import os
import random
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from stalk_talks import TALKS

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
REQUESTS = [b"GET /queue?wait=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] + [
    line + b" HTTP/1.1\r\nHost: x\r\n" + (fields and fields + b"\r\n") + b"\r\n" + body
    for line, fields, body in LINES]
ANY = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"-1", b"99999999999999999999", b"$(touch /tmp/flatq.x)",
    b"`id`", b"*", b"../../x", b"\xff\xfe", b"08", b"0x10", b"1e9", b"-n", b"a[$(id)]"]
HTTP = [
    *ANY, b"\t", b":", b"%", b"%2e%2e%2f", b"?", b"&", b"=", b"\\", b"'", b'"', b"\xc3\xa9",
    b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/2.0", b"A" * 9000,
    b"group-id=", b"|&;<>(){}", b"%00", b"%s%n", b"\r\n\r\n", b"0\r\n\r\n", b":1.1.", b"%3A",
    b"%24"]
STALK = [
    *ANY, b"put 0 0 60 3\r\nabc\r\n", b"use x\r\n", b"reserve-with-timeout 0\r\n",
    b"watch ../../x\r\n", b"kick 1\r\n", b"use /etc\r\n", b"use a/b\r\n", b"delete 1\r\n",
    b"peek-ready\r\n", b"stats\r\n", b"quit\r\n", b"pause-tube default 0\r\n"]
REPLIES = re.compile(
    rb"INSERTED|RESERVED|DELETED|RELEASED|BURIED|TOUCHED|WATCHING|USING|NOT_IGNORED|NOT_FOUND|"
    rb"FOUND|KICKED|OK|PAUSED|TIMED_OUT|DEADLINE_SOON|BAD_FORMAT|UNKNOWN_COMMAND|EXPECTED_CRLF|"
    rb"JOB_TOO_BIG|DRAINING")


def requests(chance):
    return b"".join(chance.choices(REQUESTS, k=chance.randint(1, 3)))


def talks(chance):
    """A part of what the connections of a conversation send."""
    script = chance.choice(list(TALKS.values()))
    lines = re.findall(r"^\w+(?: slow)?(?:\*\d+)?: (.*)$", script, re.M)
    lines = [re.sub(r"\{(\d+)\*(.)\}", lambda found: found[2] * min(int(found[1]), 300), line)
        for line in lines]
    lines = [line.replace("#", "").removesuffix("\\c") for line in lines if "9*x" not in line
        and not re.fullmatch("reserve|.*reserve-with-timeout [1-9].*", line)]
    data = "|".join([*lines, ""]).replace("|", "\r\n").encode("latin-1")
    data = data.decode("unicode_escape").encode("latin-1")
    start = chance.randrange(len(data))
    return data[start:start + chance.randrange(20, 600)]


def mutated(chance, text, pieces):
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(text) + 1)
        old = text[at:at + chance.choice((0, 1, 2, 5, 40))]
        new = chance.choice((b"", chance.choice(pieces), old * 2, chance.randbytes(len(old)), None))
        text = text[:at] if new is None else text[:at] + new + text[at + len(old):]
    return re.sub(rb"wait=\d+", b"wait=1", text or b"\r\n")  # nobody need wait for long polls


def http(client):
    """Whether this client got only what the door may say."""
    said = client.got
    return not said or said.startswith(b"HTTP/1.1 ") and b" 500 " not in said.split(b"\r\n")[0]


def stalk(client):
    while client.got:
        if not REPLIES.match(client.reply()):
            return False
    return True


def run(connect, door, spool, seconds, seed):
    """Four clients at once, for so many seconds: how many conversations there were, by their
    end."""
    valid, pieces, good = {"http": (requests, HTTP, http), "beanstalk": (talks, STALK, stalk)}[door]
    end, counts, failed = time.monotonic() + seconds, Counter(), []

    def converse(chance):
        text, one = mutated(chance, valid(chance), pieces), connect()
        try:
            with suppress(OSError):  # the door may have reset the connection
                at = chance.randrange(len(text) + 1) if chance.random() < 0.3 else 0
                one.send(text[:at])
                one.send(text[at:])
                if chance.random() < 0.1:
                    return "left"
                one.socket.shutdown(1)
            said = one.rest(300)
            if not one.ended or os.fsencode(spool) in said or not good(one):
                failed.append((seed, text, said))
            return "answered" if said else "closed"
        finally:
            one.close()

    def client(number):
        chance = random.Random(seed * 4 + number)
        while time.monotonic() < end and not failed:
            counts[converse(chance)] += 1

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(client, range(4)))
    assert not failed, failed
    return f"{dict(counts)}, seed {seed}"
