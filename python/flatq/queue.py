"""A queue, and a message reserved from it.

`Queue` runs AsyncQueue's coroutines without a loop: they never suspend there.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import textwrap
import warnings
from abc import ABC, abstractmethod
from binascii import a2b_base64
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, cast

from . import verbs
from .arguments import Seconds, former, letters, natural, options, seconds, text, whole_seconds
from .arguments import wrong
from .errors import Closed, Empty, Error, Internal, Invalid, Missing
from .verbs import Call

T = TypeVar("T")
Bytes = Union[bytes, bytearray, memoryview]
if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")


def _now(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
         ) -> Callable[Concatenate[Any, P], T]:
    """Return a coroutine method as a method that needs no loop."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **named: P.kwargs) -> T:
        try:
            begun = method(self, *args, **named)
        except TypeError as error:  # These are not its arguments
            raise TypeError(str(error).replace("Async", "")) from None
        try:
            begun.send(None)
        except StopIteration as end:
            answer: T = end.value
            return answer
        raise AssertionError(f"{method.__qualname__} has waited")

    call.__qualname__ = method.__qualname__.replace("Async", "")
    return cast("Callable[Concatenate[Any, P], T]", call)


def _now_as(kind: type[T], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]]
            ) -> Callable[Concatenate[Any, P], T]:
    return _now(method)


class _Signature(inspect.Signature):
    """What `help` shows: no types, which the docstring has, and at most 80 columns."""

    def format(self, **width: object) -> str:
        bare = [each.replace(annotation=each.empty) for each in self.parameters.values()]
        return textwrap.fill(str(inspect.Signature(bare)), 60, subsequent_indent=" " * 4)

    __str__ = format


def _readable(kind: type[T]) -> type[T]:
    for method in filter(inspect.isfunction, vars(kind).values()):
        about = inspect.signature(method)
        method.__signature__ = _Signature(  # type: ignore[attr-defined]
            list(about.parameters.values()), return_annotation=about.return_annotation)
    return kind


class Id(int):
    """A message's number; later messages have greater ones.

    `dup`: push stored nothing, since the message with this id has the same key.
    """

    dup: bool = False


class Segment(NamedTuple):
    """`count` claimed messages from `offset` to before `end`, in the flat files in `path`."""

    offset: int
    count: int  # type: ignore[assignment]
    path: str

    @property
    def end(self) -> int:
        """An offset that settle takes."""
        return self.offset + self.count


class Event(NamedTuple):
    """A line of the log; `text` says the same in words.

    If `count` is not 1, `id` is None, or that of the first message.
    """

    time: datetime
    event: str
    id: int | None
    tries: int
    count: int  # type: ignore[assignment]
    due: datetime | None
    reason: str | None
    text: str


@dataclass(frozen=True)
class _Message:
    queue: Any = field(repr=False)
    id: int
    state: str
    priority: int
    tries: int
    size: int
    age: int
    due: datetime | None
    reason: str | None
    said: str | None


class AsyncMessage(_Message):
    """Message for asyncio: `await message.body`."""

    @property
    def body(self) -> Awaitable[bytes]:
        """See Message."""
        return self.queue.peek(id=self.id)  # type: ignore[no-any-return]


class Message(_Message):
    """A message as `messages` found it. Give its `id` to the queue's methods.

    Attributes
    ----------
    id : the number that push returned
    state : "ready", "delayed", "reserved", "buried" or "claimed"
    priority, tries : see push and Reserved
    size, age : in bytes; in seconds since its push
    due : when a delayed message can be taken, or a reservation ends
    reason : why it was buried
    said : the last line that its command wrote to stderr when it failed last
    body : the message, by a peek each time
    """

    @property
    def body(self) -> bytes:
        """The message, as it is now. Raises Empty if it is gone."""
        return self.queue.peek(id=self.id)  # type: ignore[no-any-return]


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
        """See Queue.delete."""
        await AsyncReserved._settle(self, "delete")

    async def release(self, *, priority: int | None = None, delay: Seconds | None = None) -> None:
        """See Queue.release."""
        await AsyncReserved._settle(self, "release", priority=priority, delay=delay)

    async def bury(self, *, reason: str | None = None, priority: int | None = None) -> None:
        """See Queue.bury."""
        await AsyncReserved._settle(self, "bury", reason=reason, priority=priority)

    async def touch(self, *, lease: Seconds | None = None) -> None:
        """See Queue.touch."""
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
    """A message that is yours for a while.

    `with queue.reserve() as message:` deletes it at the end, and releases it if
    something is raised, unless it was deleted, released or buried inside. A
    delete that comes too late raises NotYours: somebody else may have it.

    Attributes
    ----------
    receipt : for `delete` and so on of any Queue of that spool
    id : the number that push returned
    tries : 1 for the first time
    body : the message
    """

    delete, release = _now(AsyncReserved.delete), _now(AsyncReserved.release)
    bury, touch = _now(AsyncReserved.bury), _now(AsyncReserved.touch)
    __exit__ = _now(AsyncReserved.__aexit__)

    def __enter__(self) -> Reserved:
        return self


STATES = ("ready", "delayed", "reserved", "buried", "claimed")


def _body(body: Bytes) -> bytes:
    if isinstance(body, str):
        raise TypeError("body is bytes, not str: text.encode() makes bytes of it")
    try:
        return body if isinstance(body, bytes) else bytes(memoryview(body))
    except TypeError:
        raise wrong("body", "bytes, or another bytes-like object", body) from None


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
    found = {name: int(value) for name, value in pairs if name not in ("queue", "dead")}
    # most-tries: its name before, for one version more
    return {**found, "most_tries": found["most-tries"]}


def _segments(out: bytes) -> list[Segment]:
    words = (line.split(b" ", 2) for line in out.splitlines())
    return [Segment(int(offset), int(count), os.fsdecode(path)) for offset, count, path in words]


def _lines(out: bytes) -> list[bytes]:
    return [a2b_base64(line) for line in out.split(b"\n")[:-1]]


def _nothing(out: bytes) -> None:
    pass


def _count(out: bytes) -> int:
    # A receipt's verb prints nothing
    return int(out or 1)


def _rows(out: bytes) -> list[dict[str, Any]]:
    # A command may have printed any bytes
    rows = [json.loads(line) for line in out.decode(errors="replace").splitlines()]
    for row in rows:
        for name in ("time", "due"):
            if row.get(name) is not None:
                row[name] = datetime.fromtimestamp(row[name], timezone.utc)
    return rows


def _events(out: bytes) -> list[Event]:
    return [Event(*(row[name] for name in Event._fields)) for row in _rows(out)]


def _wait(block: bool, timeout: Seconds | None) -> float:
    if not block:
        return 0
    if timeout is None:
        return math.inf
    if (found := seconds("timeout", timeout)) < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return found


@_readable
class _Queue(ABC):
    def __init__(self, name: str = "default", path: str | os.PathLike[str] | None = None, *,
                 timeout: Seconds | None = None) -> None:
        self.host, self.name = "", name
        if not isinstance(name, str):
            raise wrong("name", "a str", name)
        if name.startswith("unix:"):
            self.host, _, self.name = name.rpartition("/")
            if not self.host.removeprefix("unix:"):
                raise ValueError(f"{name!r}: unix:PATH/QUEUE")
        else:
            scheme = "ssh://" if name.startswith("ssh://") else ""
            host, slash, rest = name[len(scheme):].partition("/")
            if scheme or ":" in host:
                self.host, self.name = scheme + host, rest if slash else "default"
        if self.host and path is not None:
            raise ValueError("a queue behind a door has no path here")
        if not (path is None or isinstance(path, (str, bytes, os.PathLike))):
            raise wrong("path", "a str or a path", path)
        self.path = None if path is None else os.path.abspath(os.fsdecode(path))
        #: What a verb finds in its environment, beside ours
        self.env = {} if self.path is None else {"FLATQ_DIR": self.path}
        self.timeout = None if timeout is None else seconds("timeout", timeout)

    def __repr__(self) -> str:
        where = f"{self.host}/{self.name}" if self.host else self.name
        return f"{type(self).__name__}({where!r}{'' if self.path is None else f', {self.path!r}'})"

    @abstractmethod
    def _run(self, call: Call[T]) -> Awaitable[T]:
        """Run the verb: the one step in which the two kinds of queue differ."""

    def _message(self, out: bytes) -> Any:
        head, _, body = out.partition(b"\n")
        receipt, number, tries, length = head.decode().split()
        if len(body) != int(length):
            raise Internal(f"reserve: {len(body)} bytes came of {length}", 70, "reserve")
        kind = AsyncReserved if isinstance(self, AsyncQueue) else Reserved
        return kind(self, receipt, int(number), int(tries), body)

    def _listed(self, out: bytes) -> list[Any]:
        kind = AsyncMessage if isinstance(self, AsyncQueue) else Message
        names = [each.name for each in fields(kind)][1:]
        return [kind(self, *(row[name] for name in names)) for row in _rows(out)]

    def _ones(self, id: int | None) -> tuple[str, ...]:
        return () if id is None else (f"{self.name}:{natural('id', id)}",)

    def _made(self, verb: str, parse: Callable[[bytes], T], *operands: str,
              body: bytes | None = None, flag: str = "", **given: Any) -> Call[T]:
        named = [text("receipt", word) for word in operands or (self.name,)]
        words = [*options(given), *flag.split(), "--", *named]
        wait, limit = max(seconds("wait", given.get("wait") or 0), 0), self.timeout
        if limit is not None:
            limit = None if wait == math.inf else limit + math.ceil(wait)
        return Call(verb, words, parse, body, self.env, self.host, wait, limit, letters(given))

    def _call(self, verb: str, parse: Callable[[bytes], T], *operands: str,
              **given: Any) -> Awaitable[T]:
        return self._run(self._made(verb, parse, *operands, **given))

    def close(self) -> Any:
        """Do as shutdown, which is the name to use."""
        warnings.warn("Queue.close closes the queue for everybody: use shutdown",
                      DeprecationWarning, stacklevel=2)
        return self.shutdown()  # type: ignore[attr-defined]


@_readable
class AsyncQueue(_Queue):
    """Queue for asyncio: the same methods, each with `await`.

    And `async with await queue.reserve() as message`, `async for message in
    queue.reservations()`, `async for body in queue`.

    A call that is cancelled ends its verb first. If that had just succeeded,
    its answer is returned, and the cancellation is raised at the task's next
    await; a timeout that came so late is dropped.
    """

    async def _run(self, call: Call[T]) -> T:
        # asyncio takes long to load
        from . import aio

        return await aio.run(call)

    async def push(self, body: Bytes, *, priority: int | None = None, delay: Seconds | None = None,
                   lease: Seconds | None = None, key: str | bytes | None = None,
                   wait: Seconds = 0, at: datetime | None = None,
                   expire: Seconds | None = None) -> Id:
        """Store one message and return its id, once it is safe on the disk.

        Parameters
        ----------
        body : bytes, bytearray or memoryview
        priority : from 0, the most urgent, to 4294967295; else 65536
        delay : seconds until it can be taken
        lease : seconds that a reservation of it lasts; else 60
        key : if a message with this key is in the queue, store nothing and
            return its id, with `dup` true
        wait : seconds to wait for room
        at : instead of delay, when it can be taken
        expire : seconds until it is buried if nobody has taken it

        Raises Full, Closed, Invalid.
        """
        return await self._call("push", _id, body=_body(body), priority=priority, delay=delay,
                                lease=lease, key=key, wait=wait, at=at, expire=expire)

    async def push_many(self, bodies: Iterable[Bytes], *, priority: int | None = None,
                        lease: Seconds | None = None, wait: Seconds = 0) -> Sequence[int]:
        """Store messages, in order, and return their ids; options as for push.

        All or none are stored if no body has a NUL, or none has a newline; a
        crash may leave the first of more than 500. Else they are stored one by
        one, and an Error has the `ids` of those that were. Raises Full, Closed,
        Invalid.
        """
        if isinstance(bodies, (str, bytes)) or not isinstance(bodies, Iterable):
            raise wrong("bodies", "several messages, such as a list of bytes", bodies)
        every = [_body(body) for body in bodies]
        for flag, end in (("-0", b"\0"), ("-l", b"\n")):
            if not any(end in body for body in every):
                blob = b"".join(part for body in every for part in (body, end))
                return await self._call("push", _ids, body=blob, flag=flag, priority=priority,
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

    async def pop(self, *, wait: Seconds = 0) -> bytes:
        """Take the oldest of the most urgent messages and delete it.

        wait: seconds to wait for one. Raises Empty, Closed.
        """
        return await self._call("pop", bytes, wait=wait)

    async def drain(self, count: int | None = None, *, end: bytes | None = None) -> list[bytes]:
        """Take and delete all ready messages, or `count`; [] if there is none.

        What came before an Error or a cancellation is returned; any other
        exception has it as `taken`. The last of these may come again.
        """
        if end is not None:
            warnings.warn("Queue.drain: end is not needed", DeprecationWarning, stacklevel=3)
        call = self._made("drain" if count is None else "pop", _lines, count=count, flag="-6")
        try:
            return await self._run(call)
        except (Empty, Closed):
            return _lines(call.said)
        except BaseException as error:
            taken = _lines(call.said)
            if type(error).__name__ == "CancelledError" and taken:
                from . import aio

                aio.cancel_later()
            elif not isinstance(error, Error) or not taken:
                error.taken = taken  # type: ignore[attr-defined]
                raise
            return taken

    async def reserve(self, *, wait: Seconds = 0, lease: Seconds | None = None) -> AsyncReserved:
        """Take a message until it is deleted, released or buried; see Reserved.

        wait: seconds to wait for one; lease: seconds until others can take it;
        None: as it was pushed. Raises Empty, Closed.
        """
        message: AsyncReserved = await self._call("reserve", self._message, wait=wait, lease=lease)
        return message

    async def delete(self, receipt: str | None = None, *, id: int | None = None,
                     state: str | None = None) -> int:
        """Delete a reserved message, or others; return how many.

        id: instead, the message with that id, which nobody holds; state:
        "buried": instead, all that are. Raises NotYours, Missing, Invalid.
        """
        if sum(given is not None for given in (receipt, id, state)) != 1:
            raise TypeError("delete takes one of receipt, id and state")
        given = self._ones(id) if receipt is None else (receipt,)
        return await self._call("delete", _count, *given, state=state)

    async def release(self, receipt: str, *, priority: int | None = None,
                      delay: Seconds | None = None) -> None:
        """Give a reserved message back, perhaps with another priority.

        delay: seconds until it can be taken. Raises NotYours, Invalid.
        """
        await self._call("release", _nothing, receipt, priority=priority, delay=delay)

    async def touch(self, receipt: str, *, lease: Seconds | None = None) -> None:
        """Keep a reserved message for `lease` seconds from now.

        None: the lease that it was pushed with. Raises NotYours, Invalid.
        """
        await self._call("touch", _nothing, receipt, lease=lease)

    async def bury(self, receipt: str, *, reason: str | None = None,
                   priority: int | None = None) -> None:
        """Set a reserved message aside until it is kicked.

        reason: 40 letters, digits, - and _ at most. Raises NotYours, Invalid.
        """
        await self._call("bury", _nothing, receipt, reason=reason, priority=priority)

    async def kick(self, count: int | None = None, *, id: int | None = None,
                   reason: str | None = None) -> int:
        """Make up to `count` buried messages ready, with no tries used.

        Return how many. If none is buried, delayed ones. count: None: 1, with
        `reason` all; id: the message with that id alone; reason: only those
        that are buried with it. Raises Missing, Invalid.
        """
        return await self._call("kick", int, *self._ones(id), count=count, reason=reason)

    async def messages(self, state: str | None = None) -> list[AsyncMessage]:
        """Return what lies in the queue: all messages, or those in a state.

        See Message. Takes and changes nothing. Raises Missing, Invalid.
        """
        if state not in (None, *STATES):
            raise Invalid(f"state is one of {', '.join(STATES)}, not {state!r}")
        every: list[AsyncMessage] = await self._call("list", self._listed, flag="-jv")
        return [message for message in every if state in (None, message.state)]

    async def log(self, count: int | None = None, *,
                  since: datetime | timedelta | None = None) -> list[Event]:
        """Return what happened, the oldest first; see Event.

        count: only the last so many; since: only what came since then, or
        within so long. Not through a door. Raises Missing, Invalid.
        """
        return await self._call("log", _events, flag="-j", count=count, since=since)

    async def peek(self, state: str | None = None, *, id: int | None = None) -> bytes:
        """Return a message and leave it where it is.

        The one with that id, or the next "ready" (None), "delayed", "buried" or
        "reserved" one. Raises Empty, Invalid.
        """
        return await self._call("peek", bytes, *self._ones(id), state=state)

    async def claim(self, consumer: str, count: int | None = None) -> list[Segment]:
        """Take messages, until `consumer`, a name of your own, holds `count`.

        Return all it holds, the oldest first. count: None: 10,000; 0: take no
        more. No crash ends this, but settle and unclaim do. Not through a
        door. Raises Empty, Closed, Invalid.
        """
        return await self._call("claim", _segments, consumer=consumer, count=count)

    async def settle(self, consumer: str, offset: int) -> None:
        """Delete what the consumer claimed, up to the end of a segment.

        Raises Missing, and Invalid if no segment ends at `offset`.
        """
        words = natural("offset", offset), self.name
        await self._call("settle", _nothing, *words, consumer=consumer)

    async def unclaim(self, consumer: str) -> None:
        """Give back, to its place, what the consumer claimed and has not settled.

        Raises Missing, Invalid.
        """
        await self._call("unclaim", _nothing, consumer=consumer)

    async def stats(self) -> dict[str, int]:
        """Return how many messages there are, and what else `flatq stat` says.

        `ready`, `delayed`, `reserved`, `buried`; `oldest` (seconds); `bound`,
        `most_tries` (0: no limit); `expire` (seconds; 0: never); `closed` (0 or
        1); `paused` (seconds left; 2**32 - 1: until resume). Raises Missing.
        """
        return await self._call("stat", _stats)

    async def qsize(self) -> int:
        """Return how many messages are ready; 0 for a queue that is not there.

        One whose lease is over counts when a verb that takes has put it back.
        """
        # Not as len(), for which list(queue) would run a verb, too
        try:
            return (await AsyncQueue.stats(self))["ready"]
        except Missing:
            return 0

    async def empty(self) -> bool:
        """Return whether no message is ready."""
        return await AsyncQueue.qsize(self) == 0

    async def full(self) -> bool:
        """Return whether the queue holds as many messages as its bound."""
        try:
            stats = await AsyncQueue.stats(self)
        except Missing:
            return False
        held = stats["ready"] + stats["delayed"] + stats["reserved"]
        return 0 < stats["bound"] <= held

    async def join(self, timeout: Seconds | None = None) -> None:
        """Do as wait()."""
        await AsyncQueue.wait(self, timeout=timeout)

    async def put(self, body: Bytes, block: bool = True, timeout: Seconds | None = None) -> Id:
        """Push as queue.Queue does, and wait for room, for `timeout` seconds."""
        return await AsyncQueue.push(self, body, wait=_wait(block, timeout))

    async def put_nowait(self, body: Bytes) -> Id:
        """Do as put(body, False). Raises Full."""
        return await AsyncQueue.push(self, body)

    async def get(self, block: bool = True, timeout: Seconds | None = None) -> bytes:
        """Pop as queue.Queue does, and wait for one, for `timeout` seconds."""
        return await AsyncQueue.pop(self, wait=_wait(block, timeout))

    async def get_nowait(self) -> bytes:
        """Do as get(False). Raises Empty."""
        return await AsyncQueue.pop(self)

    async def create(self, *, bound: int | None = None, max_tries: int | None = None,
                     dead: str | None = None, expire: Seconds | None = None,
                     most_tries: int | None = None) -> None:
        """Make the queue, or change what is given; a closed one is open again.

        bound: the most messages it holds; max_tries: a message that failed so
        many times is buried; 0: no limit; dead: the queue where it goes
        instead, "" for none; expire: as push's, for what is pushed from now on.
        most_tries is the former name of max_tries. Raises Invalid.
        """
        if most_tries is not None:
            max_tries = former("most_tries", most_tries, "max_tries")
        await self._call("create", _nothing, bound=bound, max_tries=max_tries, dead=dead,
                         expire=expire)

    async def shutdown(self) -> None:
        """Accept no more messages, from anybody, until `create`.

        Those in the queue can still be taken. Raises Missing.
        """
        await self._call("close", _nothing)

    async def pause(self, seconds: Seconds | None = None) -> None:
        """Hand out no message, to anybody, for some seconds; None: until `resume`.

        Raises Missing, Invalid.
        """
        words = () if seconds is None else (whole_seconds("seconds", seconds),)
        await self._call("pause", _nothing, self.name, *words)

    async def resume(self) -> None:
        """Hand out messages again. Raises Missing."""
        await self._call("resume", _nothing)

    async def wait(self, *ids: int, timeout: Seconds | None = None) -> None:
        """Wait until the work is done: nothing is ready, delayed or reserved.

        With ids: until these messages are gone. timeout: seconds; None: for
        ever. Raises TimedOut, Missing, and Error if one was buried meanwhile.
        """
        operands = [operand for id in ids for operand in self._ones(id)]
        call = self._made("wait", _nothing, *operands, within=timeout)
        call.wait, call.timeout = math.inf, None
        await self._run(call)

    async def drop(self, *, force: bool = False) -> None:
        """Remove the queue.

        Raises Missing, and without `force` Busy if messages are left.
        """
        await self._call("drop", _nothing, force=force)

    async def reservations(self, *, wait: Seconds = 0, lease: Seconds | None = None
                           ) -> AsyncIterator[AsyncReserved]:
        """See Queue.reservations."""
        with suppress(Empty, Closed):
            while True:
                async with await self.reserve(wait=wait, lease=lease) as message:
                    yield message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """See Queue.__iter__."""
        with suppress(Empty, Closed):
            while True:
                yield await self.pop()


@_readable
class Queue(_Queue):
    """A queue of flatq: each method runs a verb, which is a process.

    Creating the object does nothing; the first push creates the queue on disk.

    Parameters
    ----------
    name : the queue, or one behind a line door: "host:1234/jobs",
        "unix:/run/flatq/jobs" at the socket /run/flatq,
        "ssh://user@host:22/jobs"
    path : the directory of the spool; None: $FLATQ_DIR
    timeout : seconds that a verb may take beyond the time it was told to wait,
        then TimedOut; None: no limit

    Messages are bytes; a str raises TypeError. Seconds are rounded up; `wait`
    may be math.inf. All methods may raise Disk, Denied, Internal, TimedOut and,
    for a door, Unreachable.

    Objects may be shared by threads, inherited by fork and pickled. An
    interruption of a call (^C) ends the verb first. If a pop or push had just
    ended, its message is deleted or stored all the same: if that matters, use
    `reserve` and `key`.

    Examples
    --------
    >>> jobs = Queue("jobs")
    >>> jobs.push(b"resize 7.png", key="7.png")
    1
    >>> for message in jobs.reservations():
    ...     print(message.id, message.body)
    1 b'resize 7.png'
    """

    async def _run(self, call: Call[T]) -> T:
        return verbs.run(call)

    push, push_many = _now(AsyncQueue.push), _now(AsyncQueue.push_many)
    pop, drain = _now(AsyncQueue.pop), _now(AsyncQueue.drain)
    delete, release = _now(AsyncQueue.delete), _now(AsyncQueue.release)
    touch, bury, kick = _now(AsyncQueue.touch), _now(AsyncQueue.bury), _now(AsyncQueue.kick)
    log = _now(AsyncQueue.log)
    claim, settle = _now(AsyncQueue.claim), _now(AsyncQueue.settle)
    unclaim, peek, stats = _now(AsyncQueue.unclaim), _now(AsyncQueue.peek), _now(AsyncQueue.stats)
    qsize, empty, full = _now(AsyncQueue.qsize), _now(AsyncQueue.empty), _now(AsyncQueue.full)
    join = _now(AsyncQueue.join)
    put, put_nowait = _now(AsyncQueue.put), _now(AsyncQueue.put_nowait)
    get, get_nowait = _now(AsyncQueue.get), _now(AsyncQueue.get_nowait)
    create, drop = _now(AsyncQueue.create), _now(AsyncQueue.drop)
    shutdown = _now(AsyncQueue.shutdown)
    pause, resume = _now(AsyncQueue.pause), _now(AsyncQueue.resume)
    wait = _now(AsyncQueue.wait)

    reserve = _now_as(Reserved, AsyncQueue.reserve)
    messages = _now_as(list[Message], AsyncQueue.messages)

    def reservations(self, *, wait: Seconds = 0, lease: Seconds | None = None
                     ) -> Iterator[Reserved]:
        """Reserve one message after the other, until nothing comes.

        Each is deleted when the next turn of the loop begins; an exception and
        `break` give it back, unless you have deleted it. wait: seconds to wait
        for each; lease: as for reserve.
        """
        with suppress(Empty, Closed):
            while True:
                with self.reserve(wait=wait, lease=lease) as message:
                    yield message

    def __iter__(self) -> Iterator[bytes]:
        """Pop until nothing is ready; for work that may fail, use reservations."""
        with suppress(Empty, Closed):
            while True:
                yield self.pop()

    #: `in` would else go through __iter__, which pops
    __contains__ = None


def queues(path: str | os.PathLike[str] | None = None, *, host: str = "") -> list[Queue]:
    """Return the queues of a spool, or behind a line door; see Queue. Raises Missing.

    >>> flatq.queues()
    [Queue('jobs'), Queue('mail')]
    """
    one = Queue(host and f"{host}/", path)
    names = verbs.run(Call("list", [], bytes.decode, None, one.env, one.host)).split()
    return [Queue(f"{host}/{name}" if host else name, path) for name in names]
