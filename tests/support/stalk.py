"""Conversations with a beanstalkd, flatq's or Debian's: scripts, the replies to them, and which
parts of the replies differ from run to run."""

import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from conftest import free, listening, need, wait_for
from engine import carriers, command_of, end_launches, next_hundredth

# values that are the server's own, or are measured
MASKED = ("pid", "id", "uptime", "age", "time-left", "pause-time-left", "rusage-utime",
    "rusage-stime", "hostname", "os", "platform", "version",
          "file", "binlog-[a-z-]+", "name: [0-9]")


class Client:
    """One connection: it sends bytes and reads whole replies. Whenever nothing comes, it calls
    `silent`."""

    def __init__(self, connection, silent=None):
        self.socket, self.got, self.ended, self.silent = connection, b"", False, silent

    def send(self, data):
        self.socket.sendall(data)

    def more(self, seconds):
        """Whether anything came. At the end of the connection it sets `ended`."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            piece = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        except OSError:
            piece = b""
        self.got += piece
        self.ended = not piece
        return bool(piece)

    def until(self, test, seconds):
        end = time.monotonic() + seconds
        while not test():
            if self.ended or time.monotonic() > end:
                return False
            if not self.more(0.1 if self.silent else end - time.monotonic()) and self.silent:
                self.silent()
        return True

    def rest(self, seconds=60):
        """All that comes until the connection ends."""
        self.until(lambda: self.ended, seconds)
        return self.got

    def take(self, size):
        piece, self.got = self.got[:size], self.got[size:]
        return piece

    def reply(self, seconds=60.0):
        """The next reply, with its CRLF and its data; `<nothing>` or `<end>` if there is none."""
        if not self.until(lambda: b"\r\n" in self.got, seconds):
            return self.take(len(self.got)) + (b"<end>" if self.ended else b"<nothing>")
        line = self.take(self.got.index(b"\r\n") + 2)
        data = re.match(rb"(?:RESERVED|FOUND) \d+ (\d+)\r\n|OK (\d+)\r\n", line)
        if not data:
            return line
        size = int(data[1] or data[2]) + 2
        if not self.until(lambda: len(self.got) >= size, seconds):
            return line + self.take(len(self.got)) + b"<cut>"
        return line + self.take(size)

    def ask(self, data):
        self.send(data if data.endswith(b"\r\n") else data + b"\r\n")
        return self.reply()

    def put(self, body, priority=0, delay=0, ttr=60):
        """The new job's id."""
        said = self.ask(b"put %d %d %d %d\r\n%s\r\n" % (priority, delay, ttr, len(body), body))
        assert said.startswith(b"INSERTED "), said
        return int(said.split()[1])

    def close(self):
        self.socket.close()


def converse(client, text):
    """A line of the text is a command and, behind ` > `, the whole reply. `|` is CRLF."""
    for line in filter(None, map(str.strip, text.splitlines())):
        command, _, reply = line.replace("|", "\r\n").encode().partition(b" > ")
        said = client.ask(command)
        assert said == reply + b"\r\n", (line, said)


def over_tcp(flatq, door):
    """A client, and the door's own end of its connection, whose settings can be read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), 20)
        theirs, _ = listener.accept()
    flatq.start(door, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
    return Client(ours), theirs


def in_pieces(theirs):
    """Whether TCP sends the second piece of an answer before the first is acknowledged. Otherwise
    it waits for 40 ms each time."""
    return bool(theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Ours:
    """What can be seen of connections from outside, by the files of doors/beanstalk/tally.sh."""

    sleep = staticmethod(time.sleep)

    def tallies(self):
        return self.flatq.spool.glob(".doors/*/*-*")

    def open(self):
        return len(list(self.tallies()))

    def settled(self, client, count):
        """Whether `count` connections wait for a job."""
        waits = {}
        for path in self.flatq.spool.glob(".doors/*/counts"):
            for line in path.read_text().splitlines():
                name, *words = line.split()
                waits[name] = ["waits=0", *(word for word in words
                    if word.startswith("waits="))][-1] if "waits=" in line else waits.get(name)
        return [waits.get(path.name) for path in self.tallies()].count("waits=1") >= count


class Launched(Ours):
    """A door under ./launch, which ends with the test."""

    def __init__(self, flatq, *args, door="beanstalk", port=None, env=None):
        need("ncat")
        self.flatq, self.port, self.spool = flatq, port or free(), flatq.spool
        self.errors = flatq.home / f"launch.{self.port}"
        with self.errors.open("wb") as errors:
            self.process = flatq.start("serve", door, "-p", str(self.port), *args, env=env,
                stdin=subprocess.DEVNULL, stderr=errors)
        wait_for(lambda: listening(self.port) or self.process.poll() is not None, "the door")
        assert self.process.poll() is None, self.said()

    def said(self):
        return self.errors.read_text()

    def connect(self):
        return Client(socket.create_connection(("127.0.0.1", self.port), 60))

    def handlers(self):
        return [pid for pid, words in carriers(self.flatq.spool).items()
                if re.search(r"lib/(beanstalk|small-stalk|handler)( |$)", words)
                and command_of(parent(pid)) == "ncat"]

    def drain(self):
        self.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: list(self.flatq.spool.glob(".doors/*/draining")), "draining")

    def end(self):
        return end_launches(self.flatq.spool, self.process)


class Direct(Ours):
    """lib/beanstalk itself, on a socket for each connection, without ncat. With a Clock, time
    passes only in talk()."""

    def __init__(self, flatq, door="beanstalk", env=None, clock=None):
        self.flatq, self.door, self.env, self.clock, self.processes = flatq, door, env, clock, []
        if clock:
            self.sleep = clock.advance

    def connect(self):
        ours, theirs = socket.socketpair()
        with theirs, (self.flatq.home / "errors").open("ab") as errors:
            process = self.flatq.start(self.door, stdin=theirs, stdout=theirs, stderr=errors,
                env=self.env)
        self.processes.append(process)
        return Client(ours, self.clock and (lambda: self.silent(process)))

    def silent(self, process):
        """A process that sleeps, and was not woken, sleeps to the end."""
        left = self.clock.sleeps_of(process)
        if left and not list(self.flatq.spool.glob(f".wait/{process.pid}-*.woken")):
            self.clock.advance(min(left))

    def said(self):
        path = self.flatq.home / "errors"
        return path.read_text() if path.exists() else ""

    def drain(self):
        wait_for(lambda: list(self.flatq.spool.glob(".doors/*")))
        (self.flatq.spool / ".doors/0/draining").touch()

    def end(self):
        self.flatq.end(*self.processes)


class Debians:
    """Debian's beanstalkd, without a binlog."""

    sleep = staticmethod(time.sleep)

    def __init__(self):
        self.port = free()
        self.process = subprocess.Popen(
            [need("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.port)])
        wait_for(lambda: listening(self.port) or self.process.poll() is not None, "beanstalkd")
        assert self.process.poll() is None, "beanstalkd has ended"

    def connect(self):
        return Client(socket.create_connection(("127.0.0.1", self.port), 60))

    # It is one thread, so it finishes a command before it reads another. A question would change
    # its statistics

    def open(self):
        found = 0
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # the connection was closed since the listing
                found += os.readlink(link).startswith("socket:")
        return found

    def settled(self, client, count):
        """Whether the server has read all that the client has sent."""
        ends = f":{self.port:04X}", f":{client.socket.getsockname()[1]:04X}"
        with open("/proc/net/tcp") as table:
            rows = [row.split() for row in table]
        return any(row[1].endswith(ends[0]) and row[2].endswith(ends[1])
            and row[4].endswith(":00000000") for row in rows)

    def drain(self):
        self.process.send_signal(signal.SIGUSR1)
        status = Path(f"/proc/{self.process.pid}/status")
        pending = lambda: sum(int(mask, 16) for mask in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)",
            status.read_text()))
        wait_for(lambda: not pending(), "the signal is taken")

    def said(self):
        return ""

    def end(self):
        self.process.kill()
        self.process.wait()


def masked(reply, ids):
    """The reply, with #1 and so on for job ids in the order in which they were given, N for numbers
    that differ from run to run, and sorted lists of tubes."""
    head, _, rest = reply.partition(b"\r\n")
    number = lambda found: (found[1] + b"#%d" % (ids.index(found[2]) + 1)
        if found[2] in ids else found[0])
    head = re.sub(rb"^((?:INSERTED|RESERVED|FOUND|BURIED) )(\d+)", number, head)
    if head.startswith(b"OK "):
        head, text = b"OK N", rest
        text = re.sub(rb"(?m)^(id: )(\d+)$", number, text)
        for key in MASKED:
            text = re.sub(rb"(?m)^(%s): %s.*$" % (key.encode(), b"(?!#)" if key == "id" else b""),
                rb"\1: N", text)
        lines = text.split(b"\n")
        rest = b"\n".join(sorted(lines)) if any(line.startswith(b"- ") for line in lines) else text
    return head + (b"\r\n" if b"\r\n" in reply else b"") + rest


def talk(server, script, drain=None):
    """The replies to a script: [(line, reply)]. A line is `NAME[*COUNT]: TEXT`; NAME is a
    connection, opened at its first word; COUNT (1) says how many replies follow. In TEXT \\xNN and
    such are bytes, `|` is CRLF (as is the line's end, unless it is `\\c`), `#1` the id of the first
    job inserted, and `{5*a}` five of them. Others: `sleep SECONDS`, `NAME end`, `NAME half`, `NAME
    silent`, `NAME slow: TEXT`, byte by byte, `NAME settle`, until its process waits, `NAME gets`, a
    reply to what was sent before, and `drain`."""
    clients, ids, replies, waiting = {}, [], [], set()

    def client(name):
        if name not in clients:
            clients[name] = server.connect()
        return clients[name]

    def heard(line, name, count):
        for _ in range(count):
            waiting.discard(name)
            said = client(name).reply()
            inserted = re.match(rb"INSERTED (\d+)\r\n", said)
            if inserted:
                ids.append(inserted[1])
            replies.append((line, masked(said, ids)))

    def encoded(text):
        cut = text.endswith("\\c")
        text = text[:-2] if cut else text + "|"
        text = re.sub(r"\{(\d+)\*(.)\}", lambda found: found[2] * int(found[1]), text)
        text = re.sub(r"#(\d+)", lambda found: ids[int(found[1]) - 1].decode()
            if int(found[1]) <= len(ids) else found[0], text)
        return text.replace("|", "\r\n").encode("latin-1").decode("unicode_escape").encode(
            "latin-1")

    try:
        for line in filter(None, map(str.lstrip, script.splitlines())):
            sent = re.match(r"(\w+)( slow)?(?:\*(\d+))?: (.*)", line)
            words = line.split()
            if sent:
                data, one = encoded(sent[4]), client(sent[1])
                for piece in [data[at:at + 1] for at in range(len(data))] if sent[2] else [data]:
                    one.send(piece)
                heard(line, sent[1], int(sent[3] or 1))
                if re.search(r": (put \S+|release \S+ \S+) [1-9]", line):
                    # beanstalkd orders delayed jobs by nanoseconds, flatq by hundredths
                    next_hundredth()
            elif words[0] == "sleep":
                server.sleep(float(words[1]))  # something must happen by itself meanwhile
            elif words[0] == "drain":
                server.drain()
            elif words[1] == "end":
                before = server.open()
                clients.pop(words[0]).close()
                waiting.discard(words[0])
                wait_for(lambda: server.open() < before, "the end of the connection is noticed")
            elif words[1] == "half":
                client(words[0]).socket.shutdown(socket.SHUT_WR)
            elif words[1] == "silent":
                client(words[0]).more(0.3)
                replies.append((line, client(words[0]).got))
            elif words[1] == "settle":
                waiting.add(words[0])
                wait_for(lambda: server.settled(client(words[0]), len(waiting)), "it waits")
            elif words[1] == "gets":
                heard(line, words[0], 1)
            else:
                raise ValueError(line)
    finally:
        for one in clients.values():
            one.close()
    return replies


def compare(servers, script):
    """talk() with all of them at once: the replies of the first one, and the lines where another's
    differ."""
    def run(server):
        try:
            return talk(server, script)
        except Exception as error:
            raise AssertionError(f"{server}: {server.said()[-500:]}") from error

    with ThreadPoolExecutor(len(servers)) as threads:
        first, *others = threads.map(run, servers)
    return first, [line for other in others
        for line in differences(first, [reply for _, reply in other])]


def differences(said, replies):
    """The lines of a talk() to which other replies belong."""
    return [f"{line}\n    {one!r}\n    {two!r}"
        for (line, one), two in zip(said, replies, strict=True) if one != two]


def briefly(said):
    """A talk() without the statistics that are 0 or differ from run to run: TALKS in which no time
    passes have them all."""
    return [(line, re.sub(rb"(?m)^[a-z-]+: (?:0|N)\n", b"", reply)) for line, reply in said]


def recorded(name):
    """What Debian's says where time passes, briefly: a line for each reply, in which `|` is
    CRLF."""
    said = Path(__file__).with_name("stalk_said.txt").read_text()
    rows = said.partition(f"# {name}\n")[2].partition("\n# ")[0].splitlines()
    return [(row and row + "|").replace("\\n", "\n").replace("|", "\r\n").encode()
        for row in rows]
