"""A client of beanstalkd, with the commands that moving messages needs: one connection, one job in hand.

greenstalk 2.1 does not serve here. It has no time-out: if the server's host is gone, it waits for an answer forever. An answer that was cut
short is an `assert` in it, which `python -O` leaves out."""

from __future__ import annotations

import contextlib
import re
import socket
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ..errors import Busy, Empty, Full, Internal, Invalid, NotYours, Unreachable, printable

#: The priority of a message without one: flatq's usual
PRIORITY, TTR = 65536, 60


@dataclass
class Job:
    """A reserved job. `connection`: the one that holds it; when that ends, so does the reservation."""

    id: int
    body: bytes
    priority: int
    ttr: int
    connection: int


class Client:
    """The tube at beanstalk://HOST[:PORT][/TUBE], else port 11300 and tube default. Connects at its first use, and again after a failure.

    Every method raises Unreachable if no whole answer comes: then the server may have done what was asked."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.tube = urllib.parse.unquote(parts.path.lstrip("/")) or "default"
        try:
            self.host, self.port = parts.hostname or "", parts.port or 11300
        except ValueError:
            self.host, self.port = "", 0
        if parts.scheme != "beanstalk" or not self.host or not re.fullmatch(r"(?!-)[A-Za-z0-9+/;.$_()-]{1,200}", self.tube):
            raise Invalid(f"'{url}': beanstalk://HOST:PORT/TUBE", 65)
        self.place = f"{self.host}:{self.port}/{self.tube}"
        #: Identifies a start of the server, if job ids begin anew with each; else ""
        self.incarnation = ""
        self.connections = 0
        self.socket: socket.socket | None = None
        self.mode, self.ahead = "", b""

    def put(self, body: bytes, priority: int | None = None, ttr: int | None = None) -> int:
        """The id of a new job. Raises Full, Invalid."""
        self._mode("use")
        words = f"put {PRIORITY if priority is None else priority} 0 {TTR if ttr is None else ttr} {len(body)}"
        reply = self._ask(words.encode() + b"\r\n" + body)
        if reply[0] in ("INSERTED", "BURIED"):
            return self._number(reply, 1)
        if reply[0] == "JOB_TOO_BIG":
            raise Invalid(f"{len(body)} bytes are too large for it", 65)
        self._strange(reply)

    def reserve(self, wait: float) -> Job:
        """The next job. Raises Empty."""
        self._mode("watch")
        reply = self._ask(b"reserve-with-timeout %d" % max(wait, 0), wait)
        if reply[0] in ("TIMED_OUT", "DEADLINE_SOON"):
            raise Empty("nothing there", 66)
        if reply[0] != "RESERVED":
            self._strange(reply)
        number, body = self._number(reply, 1), self._body(self._number(reply, 2))
        job = Job(number, body, PRIORITY, TTR, self.connections)
        about = self._about(b"stats-job %d" % number)
        job.priority, job.ttr = int(about.get("pri", PRIORITY)), int(about.get("ttr", TTR))
        return job

    def broken(self) -> bool:
        """Whether there was a connection that has ended."""
        return self.connections > 0 and self.socket is None

    def reserved(self) -> int:
        """The number of the tube's jobs that are reserved, by any client."""
        self._mode("watch")
        return int(self._about(b"stats-tube " + self.tube.encode()).get("current-jobs-reserved", 0))

    def delete(self, job: Job) -> None:
        """Delete the job. Raises NotYours if the connection that held it is gone: then it comes again."""
        self._settle(job, b"delete %d" % job.id, "DELETED")

    def release(self, job: Job) -> None:
        """Give the job back to its old place."""
        self._settle(job, b"release %d %d 0" % (job.id, job.priority), "RELEASED", "BURIED")

    def bury(self, job: Job) -> None:
        """Set it aside."""
        self._settle(job, b"bury %d %d" % (job.id, job.priority), "BURIED")

    def touch(self, job: Job) -> None:
        """Restart the job's time to run."""
        self._settle(job, b"touch %d" % job.id, "TOUCHED")

    def close(self) -> None:
        """End the connection; what it holds is released by the server."""
        connection, self.socket = self.socket, None
        if connection:
            with contextlib.suppress(OSError):
                connection.close()

    def _settle(self, job: Job, words: bytes, *good: str) -> None:
        if self.socket is None or job.connection != self.connections:
            raise NotYours(f"job {job.id}: the connection that held it has ended", 66)
        reply = self._ask(words)
        if reply[0] == "NOT_FOUND":
            raise NotYours(f"job {job.id}: not found", 66)
        if reply[0] not in good:
            self._strange(reply)

    def _mode(self, mode: str) -> None:
        """Connect, and use or watch the tube."""
        if self.socket is None:
            try:
                self.socket = socket.create_connection((self.host, self.port), 5)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except (OSError, UnicodeError) as error:  # UnicodeError: a host's name with an empty or an overlong part
                raise Unreachable(f"{self.host}:{self.port}: {getattr(error, 'strerror', None) or error}", 68) from None
            self.connections += 1
            self.mode, self.ahead = "", b""
        if self.mode == mode:
            return
        if mode == "use":
            reply = self._ask(b"use " + self.tube.encode())
        else:
            about = self._about(b"stats")
            # The ids of flatq's door go on over restarts, and its pid is that of one connection
            lasting = about.get("binlog-current-index", "0") != "0" or about.get("version") == "flatq"
            self.incarnation = "" if lasting else about.get("id", "") + about.get("pid", "")
            reply = self._ask(b"watch " + self.tube.encode())
            if self.tube != "default":
                self._ask(b"ignore default")
        if reply[0] not in ("USING", "WATCHING"):
            self._strange(reply)
        self.mode = mode

    def _about(self, words: bytes) -> dict[str, str]:
        reply = self._ask(words)
        if reply[0] != "OK":
            # A job without its statistics would get another priority, or another key: with the connection, it goes back
            self.close()
            if reply[0] == "NOT_FOUND":
                raise Busy(f"{self.place}: {words.decode()}: {reply[0]}", 75)
            self._strange(reply)
        rows = (line.partition(":") for line in self._body(self._number(reply, 1)).decode(errors="replace").splitlines())
        return {name.strip(): value.strip().strip('"') for name, mark, value in rows if mark}

    def _ask(self, words: bytes, wait: float = 0) -> list[str]:
        assert self.socket is not None
        # The longest time for an answer
        self.socket.settimeout(wait + 15)
        self._exchange(words + b"\r\n", lambda: b"\r\n" in self.ahead)
        line, _, self.ahead = self.ahead.partition(b"\r\n")
        return printable(line).split(" ")

    def _body(self, size: int) -> bytes:
        self._exchange(b"", lambda: len(self.ahead) >= size + 2)
        body, self.ahead = self.ahead[:size], self.ahead[size + 2:]
        return body

    def _exchange(self, words: bytes, enough: Callable[[], bool]) -> None:
        """Send, and receive until it is enough. After half an exchange, the connection is of no use."""
        assert self.socket is not None
        try:
            self.socket.sendall(words)
            while not enough():
                data = self.socket.recv(65536)
                if not data:
                    raise ConnectionResetError("the connection has ended")
                self.ahead += data
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise Unreachable(f"{self.host}:{self.port}: {error.strerror or error}", 69) from None
            raise

    def _number(self, reply: list[str], at: int) -> int:
        if len(reply) <= at or not re.fullmatch("[0-9]{1,18}", reply[at], re.A):
            self._strange(reply)
        return int(reply[at])

    def _strange(self, reply: list[str]) -> NoReturn:
        word = " ".join(reply)
        if reply[0] in ("OUT_OF_MEMORY", "DRAINING"):
            raise Full(f"{self.place}: {word}", 75)
        self.close()
        if reply[0] == "INTERNAL_ERROR":
            raise Busy(f"{self.place}: {word}", 75)
        raise Internal(f"{self.place}: {word}", 70)
