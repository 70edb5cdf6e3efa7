"""pressure 0.15: bounded queues with one producer and one consumer at a time, in a Redis that other
clients of the protocol share.

    from flatq.pressure import Queue

    numbers = Queue("numbers")                # or Queue.at("redis://host:6379/0/numbers")
    numbers.create(bound=1)
    numbers.put(b"1", wait=10)
    print(numbers.get())

`flatq pressure -h` is the command. Where the specification's prose and its listings differ, this
follows the prose: the counters are named `:stats:...`; an error gives the role back; a get that
finds nothing counts nothing and touches no `:not_full`.

Each step that changes something happens, in the specification's order, inside one script on the
server (pressure.lua). So a client dies between two steps, and all it can leave behind is a role
that it holds while it waits. Waiting takes nothing out of any list. Beside the specification's
twelve keys we use three, which other programs need not know. The holder of a role writes its
identity and the end of its lease, by the server's clock, to `:producer_lease` or `:consumer_lease`;
`create` writes a random value to `:flatq_created`. When the lease is over, the next client of ours
that wants the role takes it, and `doctor` frees it for other programs. A client that was only slow
finds that another has the role, and has changed nothing.

Needs Redis 6.2, or a compatible server, with scripts."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import selectors
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Union

from .command import needs, whole
from .errors import Busy, Closed, Denied, Disk, Empty, Error, Full, Internal, Invalid, Missing, Unreachable, of_system, printable

Bytes = Union[bytes, bytearray, memoryview]

#: The suffixes of the queue's keys, in the order of the specification; then our three
SUFFIXES = (
    "", ":bound", ":producer", ":consumer", ":producer_free", ":consumer_free",
    ":stats:produced_messages", ":stats:produced_bytes",
    ":stats:consumed_messages", ":stats:consumed_bytes", ":not_full", ":closed", ":producer_lease",
    ":consumer_lease", ":flatq_created",
)
STATISTICS = tuple(suffix[7:] for suffix in SUFFIXES if suffix.startswith(":stats:"))


def library() -> Any:
    """The module redis. Raises Unreachable."""
    try:
        import redis.backoff
        import redis.retry
    except ImportError:
        raise needs("pressure", "redis", "redis", "python3-redis", "redis") from None
    return redis


class Exists(Invalid):
    """65: create found a queue of that name."""


@dataclass
class Finding:
    """What doctor found for a queue. `state`: "mended", "open" (only you can know whether the
    holder is dead), "fine"."""

    queue: str
    state: str
    text: str


class Role:
    """The role of producer or consumer, from taking it to giving it back; a nonce tells this time
    from others under the same identity."""

    def __init__(self, queue: Queue, name: str, until: float) -> None:
        self.queue, self.name, self.until = queue, name, until
        # The same nonce: if the failed attempt had taken the role, it is ours already
        pid, nonce = queue._owed.pop(name, (0, ""))
        # Not after a fork: the parent may use it too
        self.nonce = nonce if pid == os.getpid() else secrets.token_hex(8)

    def run(self, action: str, *, last: bool = False, body: bytes = b"") -> list[bytes]:
        return self.queue._run(action, self.name, self.nonce, last, body)

    def left(self) -> float:
        return self.until - time.monotonic()

    def take(self, body: bytes = b"") -> None:
        free = self.queue.key(f":{self.name}_free")
        while True:
            status, *more = self.run("take", body=body)
            if status == b"ok":
                return
            if status != b"busy":
                self.queue._fail(status)
            if self.left() <= 0:
                who = printable(more[0])
                raise Busy(f"queue '{self.queue.name}': in use: its {self.name} is {who or 'not known'}", 73, "pressure")
            # in one list, from one end to the other: it waits for the role and takes nothing
            self.queue._block(("BRPOPLPUSH", free, free),
                seconds=min(2.0, self.queue.lease, self.left()))

    def step(self, action: str, key: str, body: bytes = b"") -> list[bytes]:
        """Run the step as soon as it is possible."""
        while True:
            status, *more = self.run(action, last=self.left() <= 0, body=body)
            if status == b"ok":
                return more
            if status != b"wait":
                self.queue._fail(status)
            name = self.queue.key(key)
            # Moving an element to where it came from changes nothing, and wakes a client that waits
            words: list[tuple[Any, ...]] = [("BLMOVE", name, name, "RIGHT", "RIGHT")]
            if not key:
                closed = self.queue.key(":closed")
                words.append(("BLMOVE", closed, closed, "RIGHT", "RIGHT"))
            self.queue._block(*words, seconds=min(10.0, self.queue.lease / 3, self.left()))

    def __enter__(self) -> Role:
        return self

    def give(self) -> None:
        """Give the role back, if it is ours. If the server is gone, the end of the lease does, or
        this Queue's next use of the role."""
        try:
            self.run("give")
        except Error:
            self.queue._owed[self.name] = os.getpid(), self.nonce

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.give()


class Message:
    """The message at the head, while its consumer's role is held: it is in the queue until `done`.
    See Queue.hold."""

    def __init__(self, role: Role, body: bytes) -> None:
        self.role, self.body = role, body
        self.settled = False

    def done(self) -> None:
        """Take the message out of the queue, and give the role back. Raises Busy if the role was
        lost: then the message stays."""
        self.role.step("get", "")
        self.settled = True

    def keep(self) -> None:
        """Hold the role for another lease from now."""
        self.role.step("peek", "")

    def __enter__(self) -> Message:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.settled:
            return
        if kind is not None:
            self.role.give()
            return
        try:
            self.done()
        except Error:
            self.role.give()
            raise


class Queue:
    """The queue `name` of the Redis at host:port. Arguments that are None come from REDIS_SERVER,
    REDIS_PORT, REDIS_DB and PRESSURE_PREFIX, or are 127.0.0.1, 6379, 0 and __pressure__. `client`:
    this client's identifying value; else HOST:PID:THREAD. `lease`: seconds without a sign of life
    after which a client of ours counts as dead. Creating the object contacts no server.

    Everywhere `wait` is in seconds, from 0, which is the specification's non-blocking form, to
    None: for ever. All methods raise Unreachable where no Redis answers (then what was asked may
    have been done), Denied and Disk where it refuses, and Missing where the queue does not
    exist."""

    def __init__(self, name: str | bytes, *, host: str | None = None, port: int | None = None,
            db: int | None = None,
                 prefix: str | bytes | None = None, client: str | None = None, lease: float = 30,
                 username: str | None = None,
                 password: str | None = None, tls: bool = False) -> None:
        self.raw = os.fsencode(name)
        self.name = self.raw.decode(errors="replace")
        self.prefix = os.fsencode(os.environ.get("PRESSURE_PREFIX", "__pressure__")
            if prefix is None else prefix)
        self.host = os.environ.get("REDIS_SERVER", "127.0.0.1") if host is None else host
        self.port = _number("REDIS_PORT", 6379, 65535) if port is None else port
        self.db = _number("REDIS_DB", 0, 2**31 - 1) if db is None else db
        self.client, self.lease = client, lease
        self._options: dict[str, Any] = {"username": username, "password": password, "ssl": tls}
        self._redis: Any = None
        self._answered = False
        #: of each role, the process and the nonce with which it may still have it: the server was
        #: gone when it was to be given back
        self._owed: dict[str, tuple[int, str]] = {}

    @staticmethod
    def at(url: str, **more: Any) -> Queue:
        """redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]/NAME, also rediss: and pressure+redis:. What
        is left out is as above."""
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError:
            raise Invalid(f"no host in '{_without_password(url)}'", 65, "pressure") from None
        scheme = parts.scheme[9:] if parts.scheme.startswith("pressure+") else parts.scheme
        path = parts.path.lstrip("/").split("/", 1)
        if scheme not in ("redis", "rediss") or not path[-1]:
            raise Invalid(f"no queue at '{_without_password(url)}': redis://HOST:PORT/DB/NAME", 65,
                "pressure")
        if len(path) == 2 and not (path[0].isascii() and path[0].isdigit()):
            path = ["/".join(path)]
        db = whole(path[0]) if len(path) == 2 else None
        if len(path) == 2 and (db is None or db > 2**31 - 1):
            raise Invalid(f"no database '{path[0][:20]}' in a Redis", 65, "pressure")
        try:
            port = parts.port
        except ValueError:
            raise Invalid(f"no port in '{_without_password(url)}'", 65, "pressure") from None
        given: dict[str, Any] = {"host": parts.hostname or None, "port": port, "db": db,
            "tls": scheme == "rediss"}
        for key, value in (("username", parts.username), ("password", parts.password)):
            given[key] = urllib.parse.unquote(value) if value else None
        return Queue(urllib.parse.unquote_to_bytes(path[-1]), **{**given, **more})

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, host={self.host!r}, port={self.port}, db={self.db})"

    def key(self, suffix: str) -> bytes:
        """The full name of one of the queue's keys."""
        return self.prefix + b":" + self.raw + suffix.encode()

    def identity(self) -> str:
        """Our identifying value in `:producer` and `:consumer`."""
        return self.client or f"{socket.gethostname()}:{os.getpid()}:{threading.get_native_id()}"

    # ---- the verbs of the specification

    def create(self, bound: int = 0) -> None:
        """Create the queue; bound: the most messages it holds, 0 for no limit. Raises Exists, and
        Busy if a deletion is under way or was broken off, since its remains would belong to the new
        queue; Invalid if the name ends like a key of another queue."""
        if bound < 0:
            raise Invalid("a bound is 0 or more", 65, "pressure")
        if self.name.endswith(SUFFIXES[1:]):
            raise Invalid(
                f"queue '{self.name}': a name must not end like a key of another queue, as in x:closed", 65, "pressure")
        (status, *_) = self._run("create", nonce=secrets.token_hex(8), body=b"%d" % bound)
        if status != b"ok":
            self._fail(status)

    def exists(self) -> bool:
        """Whether it was created and not deleted."""
        return bool(self._ask(lambda redis: redis.exists(self.key(":bound"))))

    def length(self) -> int:
        """The number of messages in it now."""
        return int(self._inspect("llen", ""))

    def closed(self) -> bool:
        """Whether it is closed, which is for ever."""
        return bool(self._inspect("exists", ":closed"))

    def put(self, body: Bytes, wait: float | None = None) -> None:
        """Put one message in. Raises Closed (also if it is deleted meanwhile), Busy if there is
        another producer, Full."""
        if isinstance(body, str):
            raise TypeError("a message is bytes, not str: text.encode() makes bytes of it")
        with Role(self, "producer", _until(wait)) as role:
            role.take(b"open")
            role.step("put", ":not_full", bytes(memoryview(body)))

    def get(self, wait: float | None = None) -> bytes:
        """Take the oldest message out. If this process is killed between the server's answer and
        the return, the message is gone; with `hold` it stays in the queue. Raises Closed where it
        is closed and empty, or deleted meanwhile; Busy where another consumer is at it; Empty."""
        with Role(self, "consumer", _until(wait)) as role:
            role.take()
            return role.step("get", "")[0]

    def hold(self, wait: float | None = None) -> Message:
        """As get, but the message stays in the queue until `done`, and we its consumer: `with
        queue.hold() as message:` takes it out at the end, and leaves it where something is raised.
        For longer than the lease, say `keep` in time."""
        with Role(self, "consumer", _until(wait)) as role:
            role.take()
            return Message(role, role.step("peek", "")[0])

    def close(self, wait: float | None = None) -> None:
        """Accept no more messages. Raises Closed if it is closed already, and Busy while there is a
        producer, even one that waits."""
        with Role(self, "producer", _until(wait)) as role:
            role.take()
            role.step("close", ":closed")

    def delete(self, wait: float | None = None) -> None:
        """Remove the queue and its messages. Clients that wait are woken; once they have gone, the
        keys are removed. Raises Busy if they did not go in time: then the queue is deleted, and
        doctor removes what is left."""
        until = _until(wait)
        (status, *_) = self._run("condemn")
        if status != b"ok":
            self._fail(status)
        for name in ("producer", "consumer"):
            free = self.key(f":{name}_free")
            while True:
                status, *more = self._run("bury", name)
                if status == b"ok":
                    break
                if status == b"exists":
                    raise Busy(f"queue '{self.name}': deleted, and made anew by somebody meanwhile",
                        75, "pressure")
                left = until - time.monotonic()
                if left <= 0:
                    who = printable(more[0])
                    raise Busy(f"queue '{self.name}': deleted, but its {name} {who} has not left: see doctor", 75, "pressure")
                self._block(("BRPOPLPUSH", free, free), seconds=min(2.0, left))

    def created(self) -> str:
        """The random value that our `create` wrote when it made this queue, or an empty text.
        Another program neither writes nor removes it: after such a program's delete and create, it
        is still the old value."""
        return (self._ask(lambda redis: redis.get(self.key(":flatq_created")))
            or b"").decode(errors="replace")

    def stats(self) -> dict[str, int]:
        """produced_messages, produced_bytes, consumed_messages, consumed_bytes."""
        values = self._ask(lambda redis: redis.mget([self.key(":bound"),
            *(self.key(f":stats:{name}") for name in STATISTICS)]))
        if values[0] is None:
            self._fail(b"missing")
        try:
            return {name: int(value or 0) for name, value in zip(STATISTICS, values[1:])}
        except ValueError:
            raise Invalid(f"queue '{self.name}': a counter is no number", 65, "pressure") from None

    # ---- beyond it

    def info(self) -> dict[str, Any]:
        """The server's INFO."""
        return dict(self._ask(lambda redis: redis.info()))

    def doctor(self, *, force: bool = False) -> list[Finding]:
        """Set right what clients that died have left: a role whose lease is over, tokens that are
        one too many or too few. force: also take the role from whoever has no lease, and remove
        what a deletion has left: only where you know that they are dead."""
        found = self._run("doctor", body=b"force" if force else b"")
        states = {b"0": "open", b"1": "mended", b"2": "fine"}
        return [Finding(self.name, states[line[:1]], printable(line[1:])) for line in found]

    def leave(self) -> None:
        """Free the role of a consumer that had our identifying value and is known to be dead."""
        self._run("leave", "consumer")

    def every(self) -> Iterator[Queue]:
        """All queues with the same prefix, and remains of deleted ones."""
        names: set[bytes] = set()
        start = self.prefix + b":"
        pattern = b"".join(b"\\" + bytes([byte]) if byte in b"*?[]\\^" else bytes([byte])
            for byte in start) + b"*"
        for key in self._ask(lambda redis: list(redis.scan_iter(match=pattern, count=1000))):
            for suffix in (":bound", ":producer_free", ":consumer_free", ":not_full", ":closed",
                    ":producer", ":consumer"):
                if key.endswith(suffix.encode()):
                    names.add(key[len(start):-len(suffix)])
                    break
        for name in sorted(names):
            other = Queue(name, host=self.host, port=self.port, db=self.db, prefix=self.prefix,
                client=self.client, lease=self.lease)
            other._options, other._redis = self._options, self._redis
            yield other

    # ---- Redis

    def _connection(self) -> Any:
        known = self._redis
        # No lock: a child that is forked meanwhile would find it held. Of two threads that come
        # first, each may make a client; one of these stays
        if known is None or known[0] != os.getpid():
            redis = library()
            client = redis.Redis(
                host=self.host, port=self.port, db=self.db, socket_timeout=15,
                socket_connect_timeout=5,
                # Never send again: the command may have been carried out
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
                **{key: value for key, value in self._options.items() if value},
            )
            self._redis = known = os.getpid(), client, client.register_script(Path(
                __file__).with_suffix(".lua").read_text())
        return known

    def _ask(self, question: Any) -> Any:
        try:
            _, client, script = self._connection()
            from redis import exceptions
        except Error:
            # Some are an OSError, too
            raise
        except OSError as error:
            raise of_system(f"queue '{self.name}'", error) from None

        where = f"{self.host}:{self.port}"
        answer = unknown = object()
        try:
            answer = question(client)
            self._answered = True
            return answer
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise Denied(f"{where}: {_text(error)}", 77, "pressure") from None
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError,
                UnicodeError) as error:
            # redis-py has one exception for both. 68 says that nothing was asked, not even a step
            # before this one
            code = 68 if " connecting to " in _text(error) and not self._answered else 69
            raise Unreachable(f"{where}: {_text(error)}", code, "pressure") from None
        except exceptions.RedisError as error:
            text = _text(error)
            kind, code = next((row[1:] for row in _REFUSALS if row[0] in text), (Internal, 70))
            raise kind(f"queue '{self.name}': {where}: {text}", code, "pressure") from None
        finally:
            # After any error. RACE: a signal's handler may raise after a command was sent and
            # before its answer was read: on that connection, the next command would take that
            # answer for its own, and a put that was refused would count as done
            if answer is unknown:
                self._redis = None

    def _run(self, action: str, role: str = "", nonce: str = "", last: bool = False,
            body: bytes = b"") -> list[bytes]:
        keys = [self.key(suffix) for suffix in SUFFIXES]
        words = [action, role, nonce, self.identity(), math.ceil(self.lease * 1000), int(last),
            body]
        answer = self._ask(lambda redis: self._connection()[2](keys=keys, args=words))
        if not isinstance(answer, list) or not all(isinstance(word, bytes) for word in answer):
            raise Unreachable(f"{self.host}:{self.port}: no Redis answers there", 69, "pressure")
        return answer

    def _block(self, *commands: tuple[Any, ...], seconds: float) -> None:
        """Run these blocking commands until one has its answer. Redis has no command that waits for
        several lists and takes nothing out, so each runs on a connection of its own; closing it
        ends those that have no answer."""
        words = f"{max(seconds, 0.001):.3f}"

        def ask(redis: Any) -> None:
            with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
                for command in commands:
                    connection = stack.enter_context(redis.client()).connection
                    stack.callback(lambda one: one in waiting and one.disconnect(), connection)
                    waiting.append(connection)
                    connection.send_command(*command, words)
                    selector.register(connection._sock, selectors.EVENT_READ, connection)
                for key, _ in selector.select(seconds + 15):
                    key.data.read_response()
                    waiting.remove(key.data)

        waiting: list[Any] = []
        self._ask(ask)

    def _inspect(self, command: str, suffix: str) -> int:
        def both(redis: Any) -> Any:
            # No transaction, which a Redis without memory refuses. In this order: where the queue
            # is there afterwards, the value was not that of none
            pipe = redis.pipeline(transaction=False)
            getattr(pipe, command)(self.key(suffix))
            pipe.exists(self.key(":bound"))
            return pipe.execute()

        value, there = self._ask(both)
        if not there:
            self._fail(b"missing")
        return int(value)

    def _fail(self, status: bytes) -> NoReturn:
        kind, code, text = {
            b"exists": (Exists, 65, "exists already"),
            b"leavings": (Busy, 75, "is being deleted, or that was broken off: see doctor"),
            b"missing": (Missing, 66, "does not exist"),
            b"closed": (Closed, 69, "is closed"),
            b"gone": (Closed, 69, "was deleted"),
            b"full": (Full, 75, "is full"),
            b"empty": (Empty, 66, "nothing there"),
            b"lost": (Busy, 73, "too slow: the role was taken over when its lease had ended"),
        }[status]
        raise kind(f"queue '{self.name}': {text}", code, "pressure")


#: How the error of a server that refuses begins, or what it contains; other errors are bugs of ours
_REFUSALS: tuple[tuple[str, type[Error], int], ...] = (
    ("WRONGTYPE", Invalid, 65), ("string exceeds maximum", Invalid, 65),
    ("invalid DB index", Invalid, 65), ("DB index is out", Invalid, 65),
    ("OOM", Disk, 74), ("maxmemory", Disk, 74), ("MISCONF", Disk, 74), ("READONLY", Denied, 77),
    ("NOPERM", Denied, 77), ("NOAUTH", Denied, 77),
    ("WRONGPASS", Denied, 77), ("read only", Denied, 77),
    ("The user executing the script", Denied, 77), ("LOADING", Unreachable, 69),
    ("BUSY", Unreachable, 69), ("MASTERDOWN", Unreachable, 69), ("Protocol Error", Unreachable, 69),
    ("invalid bulk length", Invalid, 65),
    ("NOREPLICAS", Disk, 74),
)


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _until(wait: float | None) -> float:
    return math.inf if wait is None else time.monotonic() + wait


def _number(name: str, usual: int, most: int) -> int:
    given = os.environ.get(name) or str(usual)
    found = whole(given)
    if found is None or found > most:
        raise Invalid(f"{name} must be a number from 0 to {most}", 65, "pressure")
    return found


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]


def main() -> NoReturn:
    """`flatq pressure`; see lib/pressure."""
    from . import command

    command.run("pressure", _main)


def _main(words: list[str]) -> int:
    from .command import number, options, out, standard_input

    action = words.pop(0)
    given, names = options(words, "hw:b:t:f")
    wait = None if "w" not in given else number("w", given["w"])
    lease = number("t", given.get("t", "30"), 1)
    queues = [Queue(name, lease=lease) for name in names
        or ([] if action == "doctor" else ["default"])]
    if action == "doctor":
        bad = False
        for queue in queues or Queue("", lease=lease).every():
            for finding in queue.doctor(force="f" in given):
                bad = bad or finding.state == "open"
                out(f"{queue.name} {finding.state} {finding.text}\n".encode(errors="replace"))
        if bad:
            raise Busy("roles are held without a lease, or deletions not ended: -f, where you know that who held them is dead", 75)
        return 0
    queue = queues[0]
    if action == "create":
        queue.create(number("b", given.get("b", "0"), most=999999999999))
    elif action == "put":
        queue.put(standard_input(), wait)
    elif action == "get":
        with queue.hold(wait) as message:
            # A slow reader may take longer than the lease: renew it, or another consumer takes the
            # message over
            out(message.body, message.keep, lease / 3)
    elif action == "close":
        queue.close(wait)
    elif action == "delete":
        queue.delete(wait)
    elif action == "length":
        out(b"%d\n" % queue.length())
    elif action == "stats":
        out("".join(f"{name} {value}\n" for name, value in queue.stats().items()).encode())
    else:
        yes = queue.exists() if action == "exists" else queue.closed()
        out(b"yes\n" if yes else b"no\n")
        return 0 if yes else 66
    return 0


if __name__ == "__main__":
    main()
