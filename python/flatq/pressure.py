"""pressure 0.15: bounded queues with one producer and one consumer at a time, in a shared Redis.

    from flatq.pressure import Queue

    numbers = Queue("numbers")                # or Queue.at("redis://host:6379/0/numbers")
    numbers.create(bound=1)
    numbers.put(b"1", wait=10)
    print(numbers.get())

Where the specification's prose and its listings differ, this follows the prose: the counters are
named `:stats:...`; an error gives the role back; a get that finds nothing counts nothing.

Each step that changes something is one script on the server (pressure.lua). lib/pressure says what
a client leaves that dies. One that was only slow finds that another has its role, whose lease ends
by the server's clock, and changes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import re
import secrets
import socket
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from .command import module, number, options, out, run, standard_input
from .errors import Busy, Closed, Denied, Disk, Empty, Error, Full, Invalid, Missing, Unreachable
from .errors import printable
from .queue import Bytes

T = TypeVar("T")

#: The suffixes of the queue's keys, in the order of the specification; then our three
SUFFIXES = (
    "", ":bound", ":producer", ":consumer", ":producer_free", ":consumer_free",
    ":stats:produced_messages", ":stats:produced_bytes", ":stats:consumed_messages",
    ":stats:consumed_bytes", ":not_full", ":closed", ":producer_lease", ":consumer_lease",
    ":flatq_created",
)
STATISTICS = tuple(suffix[7:] for suffix in SUFFIXES if suffix.startswith(":stats:"))
#: What an error of redis-py's means, by its class or, where it has none, by its first word
ERRORS: dict[str, type[Error]] = {
    "MISCONF": Disk, "NOREPLICAS": Disk, "OutOfMemoryError": Disk, "AuthenticationError": Denied,
    "AuthorizationError": Denied, "NoPermissionError": Denied, "ReadOnlyError": Denied,
    "BUSY": Unreachable, "MasterDownError": Unreachable, "ConnectionError": Unreachable,
    "TimeoutError": Unreachable, "RedisError": Invalid,
}


def library() -> Any:
    """Return the module redis. Raises Unreachable."""
    return module("redis", "redis", "python3-redis", "redis")


class Exists(Invalid):
    """65: create found a queue of that name."""


@dataclass
class Finding:
    """What doctor found; state: "mended", "open" (is its holder dead?) or "fine"."""

    queue: str
    state: str
    text: str


class Role:
    """The role of producer or consumer."""

    def __init__(self, queue: Queue, name: str, wait: float | None) -> None:
        self.queue, self.name = queue, name
        self.until = math.inf if wait is None else time.monotonic() + wait
        self.nonce = secrets.token_hex(8)

    def step(self, action: str, key: str | None = None, body: bytes = b"") -> list[bytes]:
        """Run the action as soon as the list `key`, else the role, is there."""
        queue = self.queue
        name = queue.key(f":{self.name}_free" if key is None else key)
        while True:
            left = self.until - time.monotonic()
            status, *more = queue._run(action, self.name, self.nonce, left <= 0, body)
            if status != b"wait":
                return queue._checked(status, *more)
            # Look each second whether a lease or the queue has ended
            seconds = max(round(min(1, queue.lease / 3, left), 3), 0.001)
            queue.ask(lambda redis: redis.blmove(name, name, seconds, "RIGHT", "RIGHT"))

    def give(self) -> None:
        """Give the role back; if that fails, the lease's end does."""
        with contextlib.suppress(Error):
            self.queue._run("give", self.name, self.nonce)

    def __enter__(self) -> Role:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.give()


class Message:
    """The message at the head, in the queue until `done`; see Queue.hold.

    `with message:` takes it out at the end, and leaves it if something is raised.
    """

    def __init__(self, role: Role, body: bytes) -> None:
        self.role, self.body = role, body
        self.settled = False

    def done(self) -> None:
        """Take the message out, and give the role back. Raises Busy if that was lost."""
        self.role.step("get", "")
        self.settled = True

    def keep(self) -> None:
        """Hold the role for another lease from now."""
        self.role.step("peek", "")

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self.settled:
            with self.role:
                if kind is None:
                    self.done()
                else:
                    self.role.give()


class Queue:
    """A queue of pressure in the Redis at host:port.

    Parameters
    ----------
    name : the queue
    host, port, db, prefix : None: REDIS_SERVER, REDIS_PORT, REDIS_DB and
        PRESSURE_PREFIX, else 127.0.0.1, 6379, 0 and __pressure__
    client : this client's identifying value; else HOST:PID:THREAD
    lease : seconds without a sign of life after which a client of ours counts
        as dead

    `wait` is in seconds, from 0, the specification's non-blocking form, to
    None: for ever. All methods raise Unreachable if no Redis answers (then what
    was asked may have been done), Denied, Disk and Invalid if it refuses, and
    Missing if there is no queue.
    """

    def __init__(self, name: str | bytes, *, host: str | None = None, port: int | None = None,
                 db: int | None = None, prefix: str | bytes | None = None,
                 client: str | None = None, lease: float = 30, username: str | None = None,
                 password: str | None = None, tls: bool = False) -> None:
        self.raw = os.fsencode(name)
        self.name = self.raw.decode(errors="replace")
        if prefix is None:
            prefix = os.environ.get("PRESSURE_PREFIX", "__pressure__")
        self.prefix = os.fsencode(prefix)
        self.host = os.environ.get("REDIS_SERVER", "127.0.0.1") if host is None else host
        self.port = _number("REDIS_PORT", 6379, 65535) if port is None else port
        self.db = _number("REDIS_DB", 0, 2**31 - 1) if db is None else db
        self.client, self.lease = client, lease
        self._options: dict[str, Any] = {"username": username, "password": password, "ssl": tls}
        self._script: Any = None

    @staticmethod
    def at(url: str, **more: Any) -> Queue:
        """Return the queue at redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]/NAME.

        Or rediss:, or pressure+redis:. What is left out is 127.0.0.1, 6379 and 0,
        whatever the environment says.
        """
        parts = urllib.parse.urlsplit(url)
        place = re.fullmatch(r"/+(?:([0-9]+)/)?(.+)", parts.path)
        scheme = parts.scheme.removeprefix("pressure+").removesuffix("+list")
        try:
            if not place or scheme not in ("redis", "rediss"):
                raise ValueError
            port, db = parts.port, int(place[1] or 0)
        except ValueError:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise Invalid(f"no queue at '{shown[:200]}': redis://HOST:PORT/DB/NAME"
                          ) from None
        user, password = (urllib.parse.unquote(word) if word else None
                          for word in (parts.username, parts.password))
        given = {"host": parts.hostname or "127.0.0.1", "port": 6379 if port is None else port,
                 "db": db, "username": user, "password": password, "tls": scheme == "rediss",
                 **more}
        return Queue(urllib.parse.unquote_to_bytes(place[2]), **given)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, host={self.host!r}, port={self.port}, db={self.db})"

    def key(self, suffix: str) -> bytes:
        """Return one of the queue's keys."""
        return self.prefix + b":" + self.raw + suffix.encode()

    def identity(self) -> str:
        """Return our identifying value in `:producer` and `:consumer`."""
        return self.client or f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"

    def create(self, bound: int = 0) -> None:
        """Create the queue; bound: the most messages it holds, 0 for no limit.

        Raises Exists, Busy if a deletion is under way, and Invalid.
        """
        if bound < 0:
            raise Invalid("a bound is 0 or more")
        if self.name.endswith(SUFFIXES[1:]):
            raise Invalid(f"queue '{self.name}': ends as a key of another queue")
        self._checked(*self._run("create", nonce=secrets.token_hex(8), body=b"%d" % bound))

    def exists(self) -> bool:
        """Return whether it was created and not deleted."""
        return bool(self.ask(lambda redis: redis.exists(self.key(":bound"))))

    def length(self) -> int:
        """Return how many messages are in it."""
        return int(self._look()[0])

    def closed(self) -> bool:
        """Return whether it is closed, which is for ever."""
        return self._look()[1] == b"1"

    def put(self, body: Bytes, wait: float | None = None) -> None:
        """Put one message in. Raises Closed (or deleted), Busy (another producer), Full."""
        if isinstance(body, str):
            raise TypeError("a message is bytes, not str: text.encode() makes bytes of it")
        with Role(self, "producer", wait) as role:
            role.step("take", body=b"open")
            role.step("put", ":not_full", bytes(memoryview(body)))

    def get(self, wait: float | None = None) -> bytes:
        """Take the oldest message out; if this process is killed then, it is gone.

        Raises Closed (closed and empty, or deleted), Busy if there is another
        consumer, Empty.
        """
        with Role(self, "consumer", wait) as role:
            role.step("take")
            return role.step("get", "")[0]

    def hold(self, wait: float | None = None) -> Message:
        """Return the oldest message, which stays in the queue until `done`.

        If that takes longer than the lease, call `keep` in time. Raises as `get`.
        """
        with Role(self, "consumer", wait) as role:
            role.step("take")
            return Message(role, role.step("peek", "")[0])

    def close(self, wait: float | None = None) -> None:
        """Accept no more messages. Raises Closed, and Busy while there is a producer."""
        with Role(self, "producer", wait) as role:
            role.step("take")
            role.step("close")

    def delete(self, wait: float | None = None) -> None:
        """Remove the queue and its messages.

        Raises Busy if waiting clients do not go: then doctor removes what is left.
        """
        self._checked(*self._run("condemn"))
        for name in ("producer", "consumer"):
            Role(self, name, wait).step("bury")

    def stats(self) -> dict[str, int]:
        """Return produced_messages, produced_bytes, consumed_messages, consumed_bytes."""
        try:
            return dict(zip(STATISTICS, map(int, self._look()[3:])))
        except ValueError:
            raise Invalid(f"queue '{self.name}': a counter is no number") from None

    def created(self) -> str:
        """Return our last `create`'s random value; "" if another program created it."""
        return self._look()[2].decode(errors="replace")

    def info(self) -> dict[str, Any]:
        """Return the server's INFO."""
        return dict(self.ask(lambda redis: redis.info()))

    def doctor(self, *, force: bool = False) -> list[Finding]:
        """Set right what clients that died have left.

        force: also what has no lease, if you know its clients to be dead.
        """
        found = self._run("doctor", body=b"force" if force else b"")
        states = {b"0": "open", b"1": "mended", b"2": "fine"}
        return [Finding(self.name, states[line[:1]], printable(line[1:])) for line in found]

    def leave(self) -> None:
        """Do as `doctor(force=True)`, which is the name to use."""
        warnings.warn("use doctor(force=True)", DeprecationWarning, stacklevel=2)
        self.doctor(force=True)

    def every(self) -> Iterator[Queue]:
        """Yield the queues with the same prefix. Deprecated: keep their names."""
        warnings.warn("keep the names of your queues", DeprecationWarning, stacklevel=2)
        start, end = self.prefix + b":", b":bound"
        pattern = re.sub(rb"[][*?\\^]", rb"\\\g<0>", start) + b"*" + end
        for key in self.ask(lambda redis: sorted(redis.scan_iter(match=pattern))):
            other = copy.copy(self)
            other.raw = key[len(start):-len(end)]
            other.name = other.raw.decode(errors="replace")
            yield other

    def _connected(self) -> Any:
        """Return pressure.lua on the server."""
        if self._script is None:
            redis = library()
            client = redis.Redis(
                host=self.host, port=self.port, db=self.db, socket_timeout=15,
                socket_connect_timeout=5,
                # Never send again: the command may have been carried out
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
                **{key: value for key, value in self._options.items() if value})
            self._answer(client.ping, 68)
            text = Path(__file__).with_suffix(".lua").read_text()
            self._script = client.register_script(text)
        return self._script

    def ask(self, question: Callable[[Any], T]) -> T:
        """Return what the question gets from redis-py's client."""
        client = self._connected().registered_client
        return self._answer(lambda: question(client), 69)

    def _answer(self, question: Callable[[], T], code: int) -> T:
        """Return the answer. Raises an Error, no exception of redis-py's."""
        from redis import exceptions

        where = f"{self.host}:{self.port}"
        try:
            return question()
        except exceptions.RedisError as error:
            text = f"{where}: {' '.join(str(error).split()) or type(error).__name__}"
            names = str(error).split(" ", 1)[:1] + [kind.__name__ for kind in type(error).__mro__]
            name = next(name for name in names if name in ERRORS)
            gone = name in ("ConnectionError", "TimeoutError")
            text = text if ERRORS[name] is Unreachable else f"queue '{self.name}': {text}"
            raise ERRORS[name](text, code if gone else None) from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{where}: {error}", code) from None

    def _run(self, action: str, role: str = "", nonce: str = "", last: bool = False,
             body: bytes = b"") -> list[bytes]:
        keys = [self.key(suffix) for suffix in SUFFIXES]
        words = [action, role, nonce, self.identity(), math.ceil(self.lease * 1000), int(last),
                 body]
        script = self._connected()
        answer = self._answer(lambda: script(keys, words), 69)
        if not isinstance(answer, list) or not all(isinstance(word, bytes) for word in answer):
            raise Unreachable(f"{self.host}:{self.port}: no Redis answers there")
        return answer

    def _look(self) -> list[bytes]:
        return self._checked(*self._run("look"))

    def _checked(self, status: bytes, *more: Any) -> list[bytes]:
        """Return what follows an `ok`. Raises the Error for any other status."""
        if status == b"ok":
            return list(more)
        role, who = (*map(printable, more), "", "")[:2]
        kind, text = {
            b"exists": (Exists, "exists already"),
            b"leavings": (Busy, "is being deleted, or that was broken off: see doctor"),
            b"missing": (Missing, "does not exist"),
            b"closed": (Closed, "is closed"),
            b"gone": (Closed, "was deleted"),
            b"full": (Full, "is full"),
            b"empty": (Empty, "nothing there"),
            b"busy": (Busy, f"in use: its {role} is {who or 'not known'}"),
            b"stays": (Busy, f"deleted, but its {role} {who} has not left: see doctor"),
            b"anew": (Busy, "deleted, and made anew by somebody meanwhile"),
            b"lost": (Busy, "too slow: the role was taken over when its lease had ended"),
        }[status]
        code = 73 if status in (b"busy", b"lost") else None
        raise kind(f"queue '{self.name}': {text}", code)


def _number(name: str, usual: int, most: int) -> int:
    found = os.environ.get(name) or str(usual)
    if not re.fullmatch("0*[0-9]{1,18}", found) or int(found) > most:
        raise Invalid(f"{name} must be a number from 0 to {most}")
    return int(found)


def main() -> NoReturn:
    """Run `flatq pressure`."""
    run("pressure", _main)


def _main(words: list[str]) -> int:
    action = words.pop(0)
    given, names = options(words, "hw:b:t:f")
    wait = number("w", given["w"]) if "w" in given else None
    lease = number("t", given.get("t", "30"), 1)
    if action == "doctor":
        found = [each for name in names or ["default"]
                 for each in Queue(name, lease=lease).doctor(force="f" in given)]
        out("".join(f"{each.queue} {each.state} {each.text}\n" for each in found).encode())
        if any(each.state == "open" for each in found):
            raise Busy("a role without a lease, or a deletion: -f, if its client is dead")
        return 0
    queue = Queue(*names or ["default"], lease=lease)
    if action == "create":
        queue.create(number("b", given.get("b", "0")))
    elif action == "put":
        queue.put(standard_input(), wait)
    elif action == "get":
        with queue.hold(wait) as message:
            # A slow reader may take longer than the lease
            out(message.body, message.keep, lease / 3)
    elif action in ("close", "delete"):
        getattr(queue, action)(wait)
    elif action == "length":
        out(b"%d\n" % queue.length())
    elif action == "stats":
        out("".join(f"{name} {value}\n" for name, value in queue.stats().items()).encode())
    else:
        yes = getattr(queue, action)()
        out(b"yes\n" if yes else b"no\n")
        return 0 if yes else 66
    return 0


if __name__ == "__main__":
    main()
