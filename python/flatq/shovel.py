"""Moving messages from one place to another, each settled here once it is acknowledged there. `flatq shovel -h` is the command.

    from flatq.shovel import Shovel, source, target

    there = target("beanstalk://queue.example:11300/jobs")
    Shovel(source("jobs", there.name), there, once=True).run()

A place is a queue's name; HOST:PORT/NAME, behind a line door; beanstalk://HOST:PORT/TUBE; pressure+redis://HOST:PORT/DB/NAME; or
mqueue:///NAME. `Source.take` hands out one Parcel, which is still there until `done`; `Target.give` returns when it is acknowledged.

Every parcel has a key, which is the same when it comes again. A line door and a local queue refuse a key that they have, so that a
message whose acknowledgement was lost is not there twice; and what was given, but could not be settled, is remembered here, and only
settled when it comes again. A key is made of what tells messages apart even where numbers begin anew: see each source."""

from __future__ import annotations

import base64
import collections
import contextlib
import fcntl
import hashlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, Any, NoReturn

from . import pressure, stalk
from .command import SIGNALS, Stopped, die_of, fail, number, options
from .errors import Busy, Closed, Disk, Empty, Error, Full, Invalid, Missing, NotYours, TimedOut, Unreachable, Usage
from .queue import Queue
from .verbs import Call, run

class TooLarge(Invalid):
    """65: a message that the other end will never take."""


#: what passes when an end comes back, or has room again
PASSING = (Unreachable, Full, Busy, TimedOut, Disk)
#: messages that are claimed at once
CLAIM = 16
#: seconds that a message in hand is ours, and is renewed three times in
LEASE = 30


class Parcel:
    """A message in hand. priority and lease are flatq's, None where the source has none."""

    def __init__(self, body: bytes, key: str, priority: int | None = None, lease: int | None = None) -> None:
        self.body, self.key, self.priority, self.lease = body, key, priority, lease

    def done(self) -> None:
        """It is there: it need not be here. Raises NotYours where it will come again, or is gone already."""

    def keep(self) -> None:
        """It is ours for another lease."""

    def back(self) -> None:
        """It is to stay here."""

    def bury(self) -> None:
        """It can never go there. Raises Invalid where a source cannot set it aside."""
        raise Invalid("a message that is too large for the other end, and cannot be set aside here: it is still there", 65)


class Source:
    """Where messages come from."""

    name = ""
    #: so many at most are to be in hand
    most = 1000000
    #: whether more of what is in hand is to be moved before a stop
    begun = False

    def take(self, wait: float) -> Parcel:
        """The next one. Raises Empty, Closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave it as it would be found by others."""


class Target:
    """Where messages go."""

    name = ""

    def give(self, parcel: Parcel, wait: float) -> None:
        """Returns when it is there, safely. Raises Full, Closed, TooLarge."""
        raise NotImplementedError

    def close(self) -> None:
        """Be done with it."""


# ---- queues of flatq


def _key(*parts: object, body: bytes) -> str:
    """Of a message: the same body is part of it, so that two that differ never share one."""
    return hashlib.sha1(repr(parts).encode() + hashlib.sha1(body).digest()).hexdigest()


_SLIP = re.compile(rb"([0-9]{10})\.([0-9]{12})\.[0-9]+\.[0-9a-z-]+\.([0-9]+)\.[0-9]+\.([0-9]{12})\.([0-9]+)\.\S+")


class _Claimed(Parcel):
    def __init__(self, source: Local, slip: bytes, text: bytes, end: int | None) -> None:
        match = _SLIP.fullmatch(slip)
        try:
            body = base64.b64decode(text, validate=True)
        except ValueError:
            match = None
        if not match or len(body) != int(match[5]):
            raise Disk(f"queue '{source.queue}': a damaged message among those claimed as {source.consumer}", 74)
        where = (socket.gethostname(), source.queue, int(match[2]), int(match[4]))
        super().__init__(body, _key(*where, body=body), int(match[1]), int(match[3]))
        self.source, self.slip, self.end = source, slip, end

    def done(self) -> None:
        self.source.moved(self)

    def back(self) -> None:
        self.source.line.appendleft(self)

    def bury(self) -> None:
        # there is no way from claimed to buried: it is pushed anew, as the most urgent, taken, and set aside
        spare = Queue(self.source.queue, self.source.path)
        known = spare.push(self.body, priority=0, lease=self.lease, key=self.key)
        held: list[Any] = []
        try:
            while not known.dup:
                message = spare.reserve()
                if message.id == known:
                    message.bury(reason="too-big", priority=self.priority)
                    break
                held.append(message)
        finally:
            for message in held:
                message.release()
        self.done()


class Local(Source):
    """A queue of this machine. What is in hand is claimed: it is held over crashes, in its order, for the shovel to the same place.

    The slip of the last message that was moved stands in `.shovel/CONSUMER` of the spool, a file that is locked while it runs: so a
    shovel that is killed repeats one message at most. A key is the host, the queue, the id and the hundredth of a second of birth."""

    def __init__(self, queue: str, towards: str, path: str | None = None) -> None:
        self.queue, self.path, self.name = Queue(queue, path).name, path, queue
        self.consumer = "shovel-" + hashlib.sha1(f"{queue} {towards}".encode()).hexdigest()[:16]
        self.line: collections.deque[_Claimed] = collections.deque()
        self.last = b""
        #: whether all that is claimed is in the line, and so known
        self.sure = True
        self.synced = os.environ.get("FLATQ_SYNC") != "off"
        self.file: IO[bytes] | None = None

    def _open(self) -> None:
        spool = self.path or os.environ.get("FLATQ_DIR") or os.path.join(
            os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local/state"), "flatq")
        place = os.path.join(spool, ".shovel")
        try:
            os.makedirs(place, 0o700, exist_ok=True)
            file = open(os.open(os.path.join(place, self.consumer), os.O_RDWR | os.O_CREAT, 0o600), "r+b", 0)
        except OSError as error:
            raise Disk(f"{place}: {error.strerror}", 74) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise Taken(f"queue '{self.queue}': another shovel moves it to the same place", 75) from None
        self.last, self.file = file.read(1000).partition(b"\n")[0], file

    def take(self, wait: float) -> Parcel:
        if self.file is None:
            self._open()
        end, pause = time.monotonic() + wait, 0.05
        while not self.line:
            self.sure = False
            try:
                # what a killed one held comes first
                segments = self._verb("claim", "-n", str(min(CLAIM, self.most)), "--", self.queue, parse=_segments)
            except Missing as error:
                self.sure = True
                left = end - time.monotonic()
                if left <= 0:
                    raise Empty(str(error), 66) from None
                time.sleep(min(pause, left))
                pause = min(pause * 1.5, 1.0)
                continue
            for offset, count, path in segments:
                self._read(offset, count, path)
            self.sure = True
        return self.line.popleft()

    def _verb(self, verb: str, *words: str, parse: Callable[[bytes], Any] = bytes) -> Any:
        return run(Call(verb, ["-c", self.consumer, *words], parse, None, self.path))

    def _read(self, offset: int, count: int, path: str) -> None:
        rows: list[list[bytes]] = []
        try:
            for name in sorted(os.listdir(path)):
                with open(os.path.join(path, name), "rb") as flat:
                    rows += [line.split(b"\t") for line in flat.read().splitlines()]
        except OSError as error:
            raise Disk(f"{path}: {error.strerror}", 74) from None
        if len(rows) != count or any(len(row) != 2 for row in rows):
            raise Disk(f"{path}: {len(rows)} messages, not {count}", 74)
        moved = next((place + 1 for place, row in enumerate(rows) if row[0] == self.last), 0)
        if moved == count:
            self._settle(offset + count)
        elif moved:
            self.begun = True
        self.line += [_Claimed(self, slip, text, None) for slip, text in rows[moved:]]
        if moved < count:
            self.line[-1].end = offset + count

    def moved(self, parcel: _Claimed) -> None:
        """It is there, and all before it."""
        assert self.file is not None
        try:
            os.pwrite(self.file.fileno(), parcel.slip + b"\n", 0)
            if self.synced:
                os.fdatasync(self.file.fileno())
        except OSError as error:
            raise Disk(f"queue '{self.queue}': {error.strerror}", 74) from None
        self.last, self.begun = parcel.slip, True
        if parcel.end is not None:
            self._settle(parcel.end)

    def _settle(self, end: int) -> None:
        self._verb("settle", "--", str(end), self.queue)
        self.begun = False

    def close(self) -> None:
        if self.file is None:
            return
        with self.file:
            if self.begun and self.sure:
                raise Taken(f"queue '{self.queue}': {len(self.line)} messages stay claimed as {self.consumer}, for the next start", 75)
            if self.sure and self.line:
                self._verb("unclaim", "--", self.queue)
        self.file = None


class Taken(Error):
    """75, of what does not pass by waiting."""


def _segments(out: bytes) -> list[tuple[int, int, str]]:
    rows = (line.split(" ", 2) for line in os.fsdecode(out).splitlines())
    return [(int(offset), int(count), path) for offset, count, path in rows]


class _Reserved(Parcel):
    def __init__(self, queue: Queue, message: Any) -> None:
        super().__init__(message.body, _key(queue.host, queue.name, message.id, body=message.body))
        self.message = message
        self.bury = lambda: message.bury(reason="too-big")  # type: ignore[method-assign]

    def done(self) -> None:
        self.message.delete()

    def keep(self) -> None:
        self.message.touch(lease=LEASE)

    def back(self) -> None:
        self.message.release()


def _push(queue: Queue, parcel: Parcel, wait: float) -> None:
    try:
        queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease, key=parcel.key, wait=wait)
    except Invalid as error:
        raise TooLarge(str(error), 65, error.verb) if "over the limit" in str(error) else error from None


class Door(Source, Target):
    """A queue behind a line door. Of a message that comes from there a key is the door, the queue and the id."""

    def __init__(self, name: str) -> None:
        self.queue, self.name = Queue(name, timeout=30), name

    def take(self, wait: float) -> Parcel:
        began = time.monotonic()
        try:
            return _Reserved(self.queue, self.queue.reserve(wait=wait, lease=LEASE))
        except Empty:
            # a door for one connection at a time does not wait
            if wait and time.monotonic() - began < 0.5:
                time.sleep(0.5)
            raise

    def give(self, parcel: Parcel, wait: float) -> None:
        _push(self.queue, parcel, wait)


class Here(Target):
    """A queue of this machine, to which messages go."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(name, path), name

    def give(self, parcel: Parcel, wait: float) -> None:
        _push(self.queue, parcel, wait)


# ---- others


class _Job(Parcel):
    def __init__(self, client: stalk.Client, job: stalk.Job, key: str) -> None:
        super().__init__(job.body, key, job.priority, job.ttr)
        self.client, self.job = client, job

    def done(self) -> None:
        self.client.delete(self.job)

    def keep(self) -> None:
        self.client.touch(self.job)

    def back(self) -> None:
        self.client.release(self.job)

    def bury(self) -> None:
        self.client.bury(self.job)


class Tube(Source, Target):
    """A tube of a beanstalkd. A key is the server, the tube and the job's id and, where ids begin anew with each start of the server,
    since it has no binlog, that start."""

    def __init__(self, url: str) -> None:
        self.client, self.name = stalk.Client(url), url

    def take(self, wait: float) -> Parcel:
        job = self.client.reserve(wait)
        return _Job(self.client, job, _key(self.client.place, self.client.incarnation, job.id, body=job.body))

    def give(self, parcel: Parcel, wait: float) -> None:
        try:
            self.client.put(parcel.body, parcel.priority, parcel.lease)
        except Invalid as error:
            raise TooLarge(str(error), 65) from None

    def close(self) -> None:
        self.client.close()


class _Held(Parcel):
    def __init__(self, message: pressure.Message, key: str) -> None:
        super().__init__(message.body, key)
        self.message = message

    def done(self) -> None:
        try:
            self.message.done()
        except Busy as error:
            raise NotYours(str(error), 66) from None

    def keep(self) -> None:
        self.message.keep()

    def back(self) -> None:
        self.message.role.give()


class Pressure(Source, Target):
    """A pressure queue. We are its consumer while a message is in hand, which stays its head until it is there. A key is the server, the
    queue, how many messages were taken out before and, where it writes no append-only file, that start of the server."""

    def __init__(self, url: str) -> None:
        self.queue, self.name = pressure.Queue.at(url, lease=LEASE), re.sub(r"//[^/@]*@", "//", url)

    def take(self, wait: float) -> Parcel:
        message = self.queue.hold(wait)
        try:
            said = self.queue._ask(lambda redis: redis.info())
            start = "" if said.get("aof_enabled") else said.get("run_id")
            place = self.queue.stats()["consumed_messages"]
        except BaseException:
            message.role.give()
            raise
        return _Held(message, _key(self.name, start, place, body=message.body))

    def give(self, parcel: Parcel, wait: float) -> None:
        self.queue.put(parcel.body, wait)


def source(place: str, towards: str) -> Source:
    """Where messages come from; towards: the name of where they go. Raises Invalid."""
    scheme = place.partition(":")[0]
    if scheme == "beanstalk":
        return Tube(place)
    if scheme in ("pressure+redis", "pressure+rediss"):
        return Pressure(place)
    if scheme == "mqueue":
        from . import mqueue

        return mqueue.Kernel.at(place)
    _no_scheme(place)
    return Door(place) if ":" in place else Local(place, towards)


def target(place: str) -> Target:
    """Where they go. Raises Invalid."""
    kind = place.partition(":")[0]
    if kind == "mqueue":
        from . import mqueue

        return mqueue.Kernel.at(place)
    if kind in ("beanstalk", "pressure+redis", "pressure+rediss"):
        return Tube(place) if kind == "beanstalk" else Pressure(place)
    _no_scheme(place)
    return Door(place) if ":" in place else Here(place)


def _no_scheme(place: str) -> None:
    if "://" in place:
        raise Invalid(f"'{place}': QUEUE, HOST:PORT/QUEUE, beanstalk://HOST:PORT/TUBE, pressure+redis://HOST:PORT/DB/QUEUE or mqueue:///NAME", 65)


# ---- moving


class Shovel:
    """Moves messages from `source` to `target`, in order, one in flight. once: until nothing is there; count: so many; patience: seconds
    without an answer from an end, after which its error is raised (None: never). say: called with each new reason to wait."""

    def __init__(self, source: Source, target: Target, *, once: bool = False, count: int | None = None, patience: float | None = None,
                 say: Callable[[str], object] | None = None) -> None:
        self.source, self.target, self.once, self.left, self.patience = source, target, once, count, patience
        self.say = say or (lambda text: None)
        self.moved = self.buried = 0
        #: what was given, but may not be settled: the last of them
        self.given: dict[str, None] = {}
        self.stopping = self.waiting = False
        self.failing: tuple[float, str] | None = None
        self.pause = 0.0
        #: called when a message has been moved
        self.tell: Callable[[], object] = lambda: None

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """A signal's handler. The first lets the message in hand arrive, where its end answers; the second, or HUP, does not."""
        if self.stopping or self.waiting or number == signal.SIGHUP:
            if self.stopping or number == signal.SIGHUP:
                raise Stopped(number)
            self.stopping = True
            raise Stopped(0)
        self.stopping = True

    def run(self) -> int:
        """Move; how many. Raises what does not pass."""
        try:
            try:
                # what was given is settled, though as many as were wanted have been given
                while (self.left != 0 or self.given) and (not self.stopping or self.source.begun):
                    if not self._one():
                        break
            except Stopped as stopped:
                if stopped.number:
                    raise
        except BaseException:
            try:
                self._close()
            except Error as error:
                # why it ends says more
                self.say(str(error))
            raise
        self._close()
        return self.moved

    def _close(self) -> None:
        # no handler is to interrupt what leaves it tidy
        self.waiting = False
        try:
            self.source.close()
        finally:
            self.target.close()

    def _one(self) -> bool:
        self.source.most = self.left or CLAIM
        try:
            parcel = self._wait(lambda: self.source.take(0 if self.once or self.source.begun or self.left == 0 else 5))
        except Empty:
            self._well()
            return not self.once and self.left != 0
        except Closed:
            return False
        except PASSING as error:
            self._fails(self.source.name, error)
            return True
        try:
            if self.left == 0 and parcel.key not in self.given:
                parcel.back()
                return False
            self._move(parcel)
        except BaseException:
            with contextlib.suppress(Error):
                parcel.back()
            raise
        return True

    def _move(self, parcel: Parcel) -> None:
        kept = time.monotonic()
        while parcel.key not in self.given:
            try:
                self.target.give(parcel, 0 if self.pause else 2)
                self.given[parcel.key] = None
                self.moved += 1
                if self.left:
                    self.left -= 1
                self._well()
            except PASSING as error:
                self._fails(self.target.name, error)
                if time.monotonic() - kept > LEASE / 4:
                    kept = time.monotonic()
                    self._keep(parcel)
            except TooLarge as error:
                self.say(f"{self.target.name}: {error}: set aside")
                parcel.bury()
                self.buried += 1
                return
        while True:
            try:
                parcel.done()
                del self.given[parcel.key]
                self._well()
                break
            except NotYours:
                break
            except PASSING as error:
                self._fails(self.source.name, error)
        while len(self.given) > 1000:
            del self.given[next(iter(self.given))]
        self.tell()

    def _keep(self, parcel: Parcel) -> None:
        try:
            parcel.keep()
        except (NotYours, *PASSING):
            # somebody else may have it. It is given all the same, and comes at most once more
            pass

    def _wait(self, what: Callable[[], Parcel]) -> Parcel:
        """While it waits a signal ends it at once."""
        self.waiting = True
        try:
            if self.stopping and not self.source.begun:
                raise Stopped(0)
            return what()
        finally:
            self.waiting = False

    def _well(self) -> None:
        self.failing, self.pause = None, 0.0

    def _fails(self, name: str, error: Error) -> None:
        """Say why, once, and wait: ever longer, up to ten seconds."""
        text = f"{name}: {' '.join(str(error).split())}"
        since = self.failing[0] if self.failing else time.monotonic()
        if self.patience is not None and time.monotonic() - since >= self.patience:
            raise error
        if self.failing is None or self.failing[1] != text:
            self.say(text)
        self.failing = since, text
        self.pause = min(max(self.pause * 2, 0.1), 10.0, LEASE / 4)
        self.waiting = True
        try:
            if self.stopping:
                raise Stopped(0)
            time.sleep(self.pause)
        finally:
            self.waiting = False


def main() -> NoReturn:
    """`flatq shovel`; see lib/shovel."""
    sys.exit(command("shovel", sys.argv[1:]))


def command(verb: str, words: list[str], places: Callable[[list[str]], tuple[str, str]] | None = None) -> int:
    """What is moved by a command line, to its exit code."""
    try:
        given, names = options([word if word != "--once" else "-1" for word in words], "h1n:w:")
        if places is None and len(names) != 2:
            raise Usage("shovel [--once] [-n COUNT] [-w SECONDS] FROM TO", 64)
        one, other = places(names) if places else (names[0], names[1])
        if one == other:
            raise Usage("FROM and TO are the same", 64)
        count = number("n", given["n"], 1) if "n" in given else None
        patience = number("w", given["w"]) if "w" in given else None
        there = target(other)
        shovel = Shovel(source(one, other), there, once="1" in given, count=count, patience=patience)
    except Error as error:
        return fail(verb, error)
    return _run(verb, shovel)


def _run(verb: str, shovel: Shovel) -> int:
    terminal = sys.stderr.isatty()
    last = 0.0

    def line(end: str = "") -> None:
        buried = f", {shovel.buried} buried" if shovel.buried else ""
        waits = f", waits: {shovel.failing[1]}" if shovel.failing else ""
        sys.stderr.write(f"\r\033[K{verb}: {shovel.moved} moved{buried}{waits[:120]}{end}")
        sys.stderr.flush()

    def tell() -> None:
        nonlocal last
        if time.monotonic() - last >= 0.1:
            last = time.monotonic()
            line()

    def say(text: str) -> None:
        print(f"{chr(13) + chr(27) + '[K' if terminal else ''}{verb}: {text}", file=sys.stderr, flush=True)
        if terminal:
            line()

    shovel.say = say
    if terminal:
        shovel.tell = tell
    for number_of in SIGNALS:
        if signal.getsignal(number_of) is not signal.SIG_IGN:
            signal.signal(number_of, shovel.stop)
    try:
        shovel.run()
    except Error as error:
        if terminal:
            line("\n")
        return fail(verb, error)
    except Stopped as stopped:
        die_of(stopped.number)
    if terminal and (shovel.moved or shovel.buried):
        shovel.failing = None
        line("\n")
    return 0


if __name__ == "__main__":
    main()
