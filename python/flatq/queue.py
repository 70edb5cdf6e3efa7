"""A queue, and a message reserved from it. Each method runs the verb of its name once, so what
holds for the verb holds here.

The methods are written once, as coroutines for asyncio. `Queue` runs the same coroutines without an
event loop: they never suspend there."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from . import verbs
from .errors import Closed, Empty, Error, Internal, Missing
from .verbs import Bytes, Call, options

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")


def _now(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any,
        P], T]:
    """The synchronous version of a coroutine method."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **named: P.kwargs) -> T:
        try:
            method(self, *args, **named).send(None)
        except StopIteration as end:
            answer: T = end.value
            return answer
        raise AssertionError(f"{method.__qualname__} has waited")

    call.__qualname__ = method.__qualname__.replace("Async", "")
    return cast("Callable[Concatenate[Any, P], T]", call)


class Id(int):
    """A message's number; later messages have greater ones. `dup`: push stored nothing, since the
    message with this id has the same key."""

    dup: bool = False


def _body(body: Bytes) -> bytes:
    if isinstance(body, str):
        raise TypeError("a message is bytes, not str: text.encode() makes bytes of it")
    return body if isinstance(body, bytes) else bytes(memoryview(body))


def _id(out: bytes) -> Id:
    words = out.split()
    number = Id(words[0])
    number.dup = len(words) > 1
    return number


def _ids(out: bytes) -> range:
    words = [int(word) for word in out.split()]
    return range(words[0], words[1] + 1) if words else range(0)


def _stats(out: bytes) -> dict[str, int]:
    pairs = (line.split(" ", 1) for line in out.decode().splitlines())
    return {name: int(value) for name, value in pairs if name != "queue"}


def _parts(out: bytes) -> tuple[str, int, int, bytes]:
    head, _, body = out.partition(b"\n")
    receipt, number, tries, length = head.decode().split()
    if len(body) != int(length):
        raise Internal(f"reserve: {len(body)} bytes came of {length}", 70, "reserve")
    return receipt, int(number), int(tries), body


class _Queue(ABC):
    def __init__(self, name: str = "default", path: str | os.PathLike[str] | None = None, *,
            timeout: float | None = None) -> None:
        if name.startswith("unix:"):
            self.host, _, self.name = name.rpartition("/")
            if not self.host.removeprefix("unix:"):
                raise ValueError(f"{name!r}: unix:PATH/QUEUE")
        else:
            scheme = "ssh://" if name.startswith("ssh://") else ""
            host, slash, rest = name[len(scheme):].partition("/")
            self.host, self.name = (scheme + host, rest if slash
                else "default") if scheme or ":" in host else ("", name)
        if self.host and path is not None:
            raise ValueError("a queue behind a door has no path here")
        self.path = None if path is None else os.path.abspath(os.fspath(path))
        self.timeout = timeout

    def __repr__(self) -> str:
        where = f"{self.host}/{self.name}" if self.host else self.name
        return f"{type(self).__name__}({where!r}{'' if self.path is None else f', {self.path!r}'})"

    @abstractmethod
    def _run(self, call: Call[T]) -> Awaitable[T]:
        """Run the verb and parse its answer: the one step in which the two kinds of queue
        differ."""

    def _call(self, verb: str, parse: Callable[[bytes], T], operand: str | None = None,
            body: bytes | None = None, flag: str = "",
              operand2: str | None = None, **given: Any) -> Awaitable[T]:
        words = [*options(**given), *([flag] if flag else []), "--",
            self.name if operand is None else operand]
        words += [] if operand2 is None else [operand2]
        return self._run(Call(verb, words, parse, body, self.path, self.host,
            max(given.get("wait") or 0, 0), self.timeout))


class Segment(NamedTuple):
    """`count` claimed messages from `offset` on, in the flat files of the directory `path`, in the
    order of their names."""

    offset: int
    count: int  # type: ignore[assignment]
    path: str


def _segments(out: bytes) -> list[Segment]:
    words = (line.split(b" ", 2) for line in out.splitlines())
    return [Segment(int(offset), int(count), os.fsdecode(path)) for offset, count, path in words]


def _nothing(out: bytes) -> None:
    pass


class AsyncQueue(_Queue):
    """Queue for asyncio: every method with `await`, `async with await queue.reserve() as message`,
    `async for body in queue`.

    A call that is cancelled ends its verb first. If the verb had just succeeded, its answer is
    returned all the same, since nobody else will get it, and the cancellation is raised at the
    task's next await; a timeout that came so late is dropped."""

    async def _run(self, call: Call[T]) -> T:
        # asyncio takes as long to load as several verbs to run
        from . import aio

        return await aio.run(call)

    def _message(self, out: bytes) -> AsyncReserved:
        return AsyncReserved(self, *_parts(out))

    async def push(self, body: Bytes, *, priority: int | None = None, delay: float | None = None,
            lease: float | None = None,
                   key: str | bytes | None = None, wait: float = 0) -> Id:
        """Store one message and return its id, once it is safe on the disk.

        priority: 0, the most urgent, to 4294967295; 65536. delay: seconds until it can be taken.
        lease: seconds that a reservation of it lasts; 60. key: if a message with this key is in the
        queue, store nothing and return its id, with `dup` true. wait: seconds to wait for room.
        Raises Full, Closed, Invalid."""
        return await self._call("push", _id, None, _body(body), priority=priority, delay=delay,
            lease=lease, key=key, wait=wait)

    async def push_many(self, bodies: Iterable[Bytes], *, priority: int | None = None,
            lease: float | None = None,
                        wait: float = 0) -> Sequence[int]:
        """Store messages, in order, and return their ids; options as for push.

        If no body has a NUL, or none has a newline, they are stored together, all or none; a crash,
        or a disk that fails, may leave the first of more than 500. Else they are stored one by one,
        and an Error has the ids of the messages that were stored as `ids`. Raises Full, Closed,
        Invalid."""
        every = [_body(body) for body in bodies]
        for flag, end in (("-0", b"\0"), ("-l", b"\n")):
            if not any(end in body for body in every):
                blob = b"".join(part for body in every for part in (body, end))
                return await self._call("push", _ids, None, blob, flag, priority=priority,
                    lease=lease, wait=wait)
        ids: list[int] = []
        try:
            for body in every:
                ids.append(await AsyncQueue.push(self, body, priority=priority, lease=lease,
                    wait=wait))
        except Error as error:
            error.ids = ids
            raise
        return ids

    async def pop(self, *, wait: float = 0) -> bytes:
        """Take the oldest of the most urgent messages and delete it. wait: seconds to wait for one.
        Raises Empty, Closed."""
        return await self._call("pop", bytes, wait=wait)

    async def drain(self, count: int | None = None, *, end: bytes | None = None) -> list[bytes]:
        """Take and delete all ready messages, or `count`; [] if nothing is ready.

        end=b"\\n" or b"\\0", which no message may hold, takes them thousands at a time; with None
        it is a pop each, for any bytes. What came before an Error, or before it was cancelled, is
        returned; of any other exception it is the `taken`. With an `end`, the verb may not have
        deleted the last of these yet: then they come again."""
        if end not in (None, b"\n", b"\0"):
            raise ValueError("end is a newline, a NUL or None")
        taken: list[bytes] = []
        with suppress(Empty, Closed):
            try:
                if end is not None:
                    verb, flag = "drain" if count is None else "pop", "-l" if end == b"\n" else "-0"
                    return await self._call(verb, lambda out: out.split(end)[:-1], flag=flag,
                        count=count)
                while count is None or len(taken) < count:
                    taken.append(await AsyncQueue.pop(self))
            except BaseException as error:
                if end is not None:
                    taken = verbs.printed(error).split(end)[:-1]
                # Return them, since nobody else will get them
                if type(error).__name__ == "CancelledError" and taken:
                    from . import aio

                    aio.cancel_later()
                elif not isinstance(error, Error) or not taken:
                    error.taken = taken  # type: ignore[attr-defined]
                    raise
        return taken

    async def reserve(self, *, wait: float = 0, lease: float | None = None) -> AsyncReserved:
        """Take a message until it is deleted, released or buried, or `lease` seconds are over
        (None: the lease that it was pushed with). wait: seconds to wait for one. Raises Empty,
        Closed."""
        return await self._call("reserve", self._message, wait=wait, lease=lease)

    async def delete(self, receipt: str) -> None:
        """Delete a reserved message. Raises NotYours, Invalid."""
        await self._call("delete", _nothing, receipt)

    async def release(self, receipt: str, *, priority: int | None = None,
            delay: float | None = None) -> None:
        """Give a reserved message back: with another priority, after `delay` seconds. Raises
        NotYours, Invalid."""
        await self._call("release", _nothing, receipt, priority=priority, delay=delay)

    async def touch(self, receipt: str, *, lease: float | None = None) -> None:
        """Keep a reserved message for `lease` seconds from now (None: the lease it was pushed
        with). Raises NotYours, Invalid."""
        await self._call("touch", _nothing, receipt, lease=lease)

    async def bury(self, receipt: str, *, reason: str | None = None,
            priority: int | None = None) -> None:
        """Set a reserved message aside until it is kicked. reason: 40 letters, digits, - and _ at
        most. Raises NotYours, Invalid."""
        await self._call("bury", _nothing, receipt, reason=reason, priority=priority)

    async def kick(self, count: int = 1) -> int:
        """Make up to `count` buried messages ready, or delayed ones where none is buried; how many.
        Raises Missing."""
        return await self._call("kick", int, count=count)

    async def peek(self, state: str | None = None, *, id: int | None = None) -> bytes:
        """A message, left where it is: the next one that is "ready", "delayed", "buried" or
        "reserved" (None: ready), or the one with that id. Raises Empty, Invalid."""
        return await self._call("peek", bytes, None if id is None else f"{self.name}:{int(id)}",
            state=state)

    async def claim(self, consumer: str, count: int | None = None) -> list[Segment]:
        """Take many messages under a name of your own, until it holds `count` (None: 10,000; 0:
        take no more), and return all that it holds, the oldest first. Only settle and unclaim end
        this, no crash does. Not through a door. Raises Empty, Closed, Invalid."""
        return await self._call("claim", _segments, consumer=consumer, count=count)

    async def settle(self, consumer: str, offset: int) -> None:
        """Delete what the consumer claimed, up to offset, which must be the end of a segment.
        Raises Missing, Invalid."""
        await self._call("settle", _nothing, str(int(offset)), operand2=self.name,
            consumer=consumer)

    async def unclaim(self, consumer: str) -> None:
        """Give back what the consumer claimed and has not settled, to its old place. Raises
        Missing, Invalid."""
        await self._call("unclaim", _nothing, consumer=consumer)

    async def stats(self) -> dict[str, int]:
        """How many messages are `ready`, `delayed`, `reserved` and `buried`, and what else `flatq
        stat` says: `oldest` (seconds), `bound`, `most-tries` (0: no limit), `closed` (0 or 1).
        Raises Missing."""
        return await self._call("stat", _stats)

    async def qsize(self) -> int:
        """How many messages are ready; 0 for a queue that is not there. Not len(): list(queue)
        would ask for that, too, and run a verb."""
        try:
            return (await AsyncQueue.stats(self))["ready"]
        except Missing:
            return 0

    async def create(self, *, bound: int | None = None, most_tries: int | None = None,
            group: bool = False) -> None:
        """Make the queue, or change what is given; a closed one is open again. bound: messages it
        holds at most; most_tries: after so many that failed a message is buried; 0: no limit.
        group: the spool is for all in the group that owns it. Raises Invalid."""
        await self._call("create", _nothing, bound=bound, most_tries=most_tries, group=group)

    async def close(self) -> None:
        """Accept no more messages; those in the queue can still be taken. (The object itself has
        nothing to close.) Raises Missing."""
        await self._call("close", _nothing)

    async def drop(self, *, force: bool = False) -> None:
        """Remove the queue. Raises Missing, and Busy if messages are left and `force` is not
        given."""
        await self._call("drop", _nothing, force=force)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(Empty, Closed):
            while True:
                yield await self.pop()


class Queue(_Queue):
    """Queue("jobs"), in $FLATQ_DIR or the spool `path`; Queue("host:1234/jobs"), through the line
    door there ("host:1234": its `default`), Queue("unix:/run/flatq/jobs"), at its socket
    /run/flatq, or Queue("ssh://user@host:22/jobs"), by ssh. Creating the object does nothing; the
    first push creates the queue on disk.

    `timeout`: seconds that a verb may take beyond the time it was told to wait, then TimedOut;
    None: no limit.

    Messages are bytes; a str raises TypeError. Seconds may have fractions, which are rounded up;
    `wait` may be math.inf. Methods raise an Error of flatq.errors; all may raise Disk, Denied,
    Internal, TimedOut and, for a door, Unreachable. Objects may be shared by threads, inherited by
    fork and pickled; nothing is open between calls. An interruption of a call (^C, an exception
    from a signal handler) ends the verb first, which gives back what it has not handed out. If a
    pop or push had just ended, its message is deleted or stored all the same: if that matters, use
    `reserve` and `key`."""

    async def _run(self, call: Call[T]) -> T:
        return verbs.run(call)

    def _message(self, out: bytes) -> Reserved:
        return Reserved(self, *_parts(out))

    push, push_many, pop, drain = _now(AsyncQueue.push), _now(AsyncQueue.push_many), _now(
        AsyncQueue.pop), _now(AsyncQueue.drain)
    delete, release, touch, bury = _now(AsyncQueue.delete), _now(AsyncQueue.release), _now(
        AsyncQueue.touch), _now(AsyncQueue.bury)
    claim, settle, unclaim = _now(AsyncQueue.claim), _now(AsyncQueue.settle), _now(
        AsyncQueue.unclaim)
    kick, peek, stats, qsize = _now(AsyncQueue.kick), _now(AsyncQueue.peek), _now(
        AsyncQueue.stats), _now(AsyncQueue.qsize)
    create, close, drop = _now(AsyncQueue.create), _now(AsyncQueue.close), _now(AsyncQueue.drop)

    def reserve(self, *, wait: float = 0, lease: float | None = None) -> Reserved:
        """See AsyncQueue.reserve."""
        return _now(AsyncQueue.reserve)(self, wait=wait, lease=lease)  # type: ignore[return-value]

    reserve.__doc__ = AsyncQueue.reserve.__doc__

    def __iter__(self) -> Iterator[bytes]:
        """Pop until nothing is ready. Each message is deleted when it is returned: for work that
        may fail, use reserve."""
        with suppress(Empty, Closed):
            while True:
                yield self.pop()

    #: `in` would else go through __iter__, which pops
    __contains__ = None


class _Reserved:
    def __init__(self, queue: Any, receipt: str, id: int, tries: int, body: bytes) -> None:
        self.queue, self.receipt, self.id, self.tries, self.body = queue, receipt, id, tries, body
        self.settled = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.receipt}: try {self.tries}, {len(self.body)} bytes>"


class AsyncReserved(_Reserved):
    """Reserved for asyncio: every method with `await`, and `async with`."""

    async def _settle(self, verb: str, **given: Any) -> None:
        await self.queue._call(verb, _nothing, self.receipt, **given)
        self.settled = True

    async def delete(self) -> None:
        """Delete it. Raises NotYours."""
        await AsyncReserved._settle(self, "delete")

    async def release(self, *, priority: int | None = None, delay: float | None = None) -> None:
        """Give it back; see Queue.release. Raises NotYours."""
        await AsyncReserved._settle(self, "release", priority=priority, delay=delay)

    async def bury(self, *, reason: str | None = None, priority: int | None = None) -> None:
        """Set it aside; see Queue.bury. Raises NotYours."""
        await AsyncReserved._settle(self, "bury", reason=reason, priority=priority)

    async def touch(self, *, lease: float | None = None) -> None:
        """Keep it for longer; see Queue.touch. Raises NotYours."""
        await self.queue._call("touch", _nothing, self.receipt, lease=lease)

    async def __aenter__(self) -> AsyncReserved:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
            trace: Any) -> None:
        if self.settled:
            return
        if kind is None:
            await AsyncReserved.delete(self)
        else:
            # If this fails, the end of the lease gives it back; the exception in flight says more
            with suppress(Error):
                await AsyncReserved.release(self)


class Reserved(_Reserved):
    """A message that is yours for a while: `receipt` (for delete and so on, of any Queue of that
    spool), `id`, `tries` (1 for the first time), `body`. As a context manager it is deleted at the
    end, and released where something is raised, whatever that is; neither where it was deleted,
    released or buried inside. A delete that comes too late raises NotYours: somebody else has it by
    now."""

    delete, release, bury = _now(AsyncReserved.delete), _now(AsyncReserved.release), _now(
        AsyncReserved.bury)
    touch, __exit__ = _now(AsyncReserved.touch), _now(AsyncReserved.__aexit__)

    def __enter__(self) -> Reserved:
        return self
