"""A client of the line door: each request is a connection of its own, or a session in ssh's."""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import socket

from ..errors import Error, Invalid, Unreachable, error_of, printable
from ..queue import Queue
from .ssh import Ssh


class Cut(Unreachable):
    """69: the request was sent, but no whole answer came: the door may have done what was asked."""


class Client:
    """The queue at HOST:PORT/QUEUE, unix:PATH/QUEUE or ssh://[USER@]HOST[:PORT]/QUEUE.

    All methods raise Unreachable and the errors of the verb's exit codes, see errors.py.
    """

    def __init__(self, place: str) -> None:
        queue = Queue(place)
        self.queue, self.place = queue.name, queue.host
        if re.search("[^!-~]", self.queue):
            raise Invalid(f"'{printable(os.fsencode(place))}': no name of a queue", 65)
        self.ssh = Ssh(queue.host) if queue.host.startswith("ssh://") else None
        self.unix = queue.host.removeprefix("unix:") if queue.host.startswith("unix:") else None
        if self.ssh or self.unix:
            return
        host, _, port = queue.host.rpartition(":")
        self.host = host.removeprefix("[").removesuffix("]")
        if not self.host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
            raise Invalid(f"'{place}': HOST:PORT/QUEUE", 65)
        self.port = int(port)

    def ask(self, verb: str, *words: str, body: bytes = b"", wait: float = 0) -> bytes:
        """Return the verb's answer. wait: seconds that the verb was told to wait."""
        nonce = secrets.token_hex(8)
        request = " ".join([f"@{'@' * bool(self.ssh)}{nonce}@{verb}", *words]).encode() + b"\n"
        if self.ssh:
            answer, cut = self.ssh.exchange(request + body, wait)
            # The login there may print something before the door's first line
            _, _, answer = answer.partition(nonce.encode() + b"\n")
        else:
            answer = self._exchange(request + body, wait)
            cut = Unreachable(f"{self.place}: no whole answer", 69)
        data, _, last = answer.removesuffix(b"\n").rpartition(b"\n")
        # The last line has our nonce, so no part of a message looks like it
        mark = nonce.encode() + b" "
        refused = re.fullmatch(mark + rb"error ([0-9]{2}) (.*)", last, re.S)
        if refused and answer.endswith(b"\n"):
            raise self._error(verb, int(refused[1]), printable(refused[2]))
        if last != mark + b"ok" or not answer.endswith(b"\n"):
            raise Cut(str(cut), 69)
        return data

    def close(self) -> None:
        """End the connection, if there is one."""
        if self.ssh:
            self.ssh.close()

    def _exchange(self, request: bytes, wait: float) -> bytes:
        try:
            if self.unix:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(self.unix)
            else:
                connection = socket.create_connection((self.host, self.port), 5)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host's name with an empty or an overlong part
            text = getattr(error, "strerror", None) or error
            raise Unreachable(f"{self.place}: {text}", 68) from None
        parts: list[bytes] = []
        with connection:
            try:
                # The longest silence of the door. The request states its length, so our end of the
                # connection stays open, by which the door sees that we live
                connection.settimeout(wait + 30)
                # A door that refuses a message leaves the rest unread, which resets the connection
                # after its answer
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(request)
                with contextlib.suppress(ConnectionResetError):
                    for part in iter(lambda: connection.recv(65536), b""):
                        parts.append(part)
            except OSError as error:
                raise Cut(f"{self.place}: {error.strerror or error}", 69) from None
        return b"".join(parts)

    def _error(self, verb: str, code: int, text: str) -> Error:
        error = error_of(verb, code, f"{self.place}: {text}")
        # The door may have ended the connection at any moment
        return Cut(str(error), 69) if code == 75 and verb != "push" else error


def seconds(value: float) -> str:
    """Seconds as the value of an option."""
    return str(math.ceil(value))
