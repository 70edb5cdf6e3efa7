"""Valid conversations with a door of beanstalkd's, mutated: whatever arrives, it answers or closes,
writes nothing outside the spool and loses nothing that it has acknowledged."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

from stalk_talks import TALKS

WORDS = [word.encode() for word in ("put 0 0 60 3\r\nabc\r\n", "use x\r\n",
    "reserve-with-timeout 0\r\n", "watch ../../x\r\n", "kick 1\r\n",
                                    "use /etc\r\n", "use a/b\r\n", "delete 1\r\n", "\r\n", "\0",
                                    "\n", "\r", " ", "-1", "99999999999999999999",
                                    "$(touch flatq.stalk)", "`id`", "*", "peek-ready\r\n",
                                    "stats\r\n", "quit\r\n", "pause-tube default 0\r\n")]
KNOWN = re.compile(
    rb"INSERTED|RESERVED|DELETED|RELEASED|BURIED|TOUCHED|WATCHING|USING|NOT_IGNORED|NOT_FOUND|FOUND|KICKED|OK|PAUSED|TIMED_OUT|"
                   rb"DEADLINE_SOON|BAD_FORMAT|UNKNOWN_COMMAND|EXPECTED_CRLF|JOB_TOO_BIG|DRAINING")


def seeds():
    """What the connections of each conversation send, as one string of bytes."""
    for script in TALKS.values():
        lines = re.findall(r"^\w+(?: slow)?(?:\*\d+)?: (.*)$", script, re.M)
        lines = [re.sub(r"\{(\d+)\*(.)\}", lambda found: found[2] * min(int(found[1]), 300), line)
            for line in lines]
        lines = [line.replace("#", "").removesuffix("\\c") for line in lines if "9*x" not in line
            and not re.fullmatch("reserve|.*reserve-with-timeout [1-9].*", line)]
        yield "|".join([*lines, ""]).replace("|", "\r\n").encode("latin-1").decode(
            "unicode_escape").encode("latin-1")


def mutated(chance, data):
    start = chance.randrange(len(data))
    data = bytearray(data[start:start + chance.randrange(20, 600)])
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(data) + 1)
        which = chance.randrange(5)
        if which == 0:
            data[at:at] = chance.choice(WORDS)
        elif which == 1:
            del data[at:at + chance.randrange(8)]
        elif which == 2:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 5)))
        elif which == 3 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        else:
            data[at:at] = data[:chance.randrange(len(data) + 1)]
    return bytes(data)


def conversation(door, request):
    """What is wrong with how the door took it; empty: nothing."""
    client, said = door.connect(), ""
    try:
        client.send(request)
        client.socket.shutdown(1)
    except OSError:
        said = "refused"
    client.until(lambda: client.ended, 300)
    if not client.ended:
        said = f"it neither answers nor closes: {request!r}: {client.got[-200:]!r}"
    while client.got and said in ("", "refused"):
        reply = client.reply()
        if not KNOWN.match(reply):
            said = f"{request!r}: {reply[:200]!r}"
    client.close()
    return said


def beside(spool):
    """What there is beside the spool, the door's own directory among it."""
    return {path for path in spool.parent.rglob("*") if path != spool and spool not in path.parents}


def run(door, seconds, seed):
    conversations, refused = 0, 0
    outside = beside(door.flatq.spool)
    # jobs that are another connection's: nobody can have taken or deleted them
    witness = door.connect()
    kept = [witness.put(b"%d" % number * 50, ttr=100000) for number in range(5)]
    for one in kept:
        assert witness.ask(b"reserve-job %d" % one).startswith(b"RESERVED %d 50\r\n" % one)
    data, end, failed = list(seeds()), time.monotonic() + seconds, []

    def client_of(chance):
        nonlocal conversations, refused
        while time.monotonic() < end and not failed:
            said = conversation(door, mutated(chance, chance.choice(data)))
            conversations += 1
            refused += said == "refused"
            if said not in ("", "refused"):
                failed.append(f"seed {seed}: {said}")

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(client_of, (random.Random(seed * 10 + number) for number in range(4))))
    assert not failed, failed
    for number, one in enumerate(kept):
        assert witness.ask(b"peek %d" % one) == b"FOUND %d 50\r\n%s\r\n" % (one,
            b"%d" % number * 50)
        assert witness.ask(b"delete %d" % one) == b"DELETED\r\n"
    assert beside(door.flatq.spool) == outside, "something was written outside the spool"
    return f"{conversations} conversations, {refused} refused, seed {seed}"
