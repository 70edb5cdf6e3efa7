"""Find the verbs, which are shell scripts, and run one. Everything about processes is here."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, Union

from .errors import Error, Internal, TimedOut, error_of, of_system

T = TypeVar("T")
Bytes = Union[bytes, bytearray, memoryview]

#: Seconds between TERM, on which a verb gives back what it holds, and KILL
GRACE = 5.0

_LETTERS = {
    "priority": "-p", "delay": "-d", "lease": "-t", "key": "-k", "wait": "-w", "length": "-n",
    "count": "-n", "reason": "-r", "state": "-s", "bound": "-b", "most_tries": "-m",
    "group": "-g", "force": "-f", "consumer": "-c",
}


def home() -> Path:
    """The directory of the verbs (and of `launch`, but in the source tree): $FLATQ_LIB, or the
    source tree's, the one in this package, that of the `flatq` on PATH. Raises FileNotFoundError if
    there is none."""
    here = Path(__file__).resolve().parent
    named = os.environ.get("FLATQ_LIB")
    for place in [Path(named)] if named else [here.parents[1] / "lib", here / "sh", *_installed()]:
        if (place / "flatq").is_file() and (place / "push").is_file():
            return place.absolute()
    raise FileNotFoundError(f"no verbs in {named}, which is FLATQ_LIB" if named
        else "the verbs are not there: set FLATQ_LIB")


def _installed() -> Iterator[Path]:
    for directory in os.get_exec_path():
        path = Path(directory, "flatq")
        with contextlib.suppress(OSError):
            # The wrapper that `make install` writes; else a link to the verb itself
            match = re.match(rb"#!/bin/sh\nexec '(.+)/flatq' ", path.read_bytes())
            yield Path(os.fsdecode(match[1])) if match else path.resolve().parent


@contextlib.contextmanager
def private() -> Iterator[None]:
    """The mode for new files, as the verbs choose it: a spool is one user's."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def syncs(spool: str = "") -> bool:
    """Whether what is done beside the verbs must be synced: as the spool was made; a spool that is
    not known, as FLATQ_SYNC says."""
    if not spool:
        return os.environ.get("FLATQ_SYNC") != "off"
    return not Path(spool, ".sync.off").exists()


def options(**values: object) -> list[str]:
    """Keywords as a verb's options: None and False are left out, fractions of a second rounded up,
    infinity becomes the greatest number."""
    words = []
    for name, value in values.items():
        if value is None or value is False or (name == "wait" and value == 0):
            continue
        words.append(_LETTERS[name])
        if isinstance(value, (str, bytes)):
            words.append(os.fsdecode(value))
        elif name in ("delay", "lease", "wait"):
            words.append("4294967295" if value == math.inf
                else str(math.ceil(value)))  # type: ignore[call-overload]
        elif value is not True:
            words.append(str(operator.index(value)))  # type: ignore[arg-type]
    return words


class Process(subprocess.Popen[bytes]):
    """A process of ours. If SIGCHLD is ignored, raises Internal instead of starting it: the system
    would not keep its exit status."""

    def __init__(self, words: list[str], **how: Any) -> None:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            raise Internal("SIGCHLD is ignored, so no exit status could be known: "
                "signal.signal(SIGCHLD, SIG_DFL)", 70)
        super().__init__(words, **how)


def with_us() -> tuple[str, ...]:
    """Words before a verb that make it end with the thread that waits for it, even if that is
    killed; none if the system cannot do that."""
    words = ("setpriv", "--pdeathsig", "TERM")
    try:
        able = _able(*words)
    except OSError:  # It was not tried: so the next verb tries it
        return ()
    # RACE: if we are killed before setpriv, no signal comes: so look whose child it is
    return (*words, "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())) if able else ()


@functools.lru_cache(None)
def _able(*words: str) -> bool:
    try:
        return Process([*words, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL).wait() == 0
    except FileNotFoundError:
        return False


@dataclass
class Call(Generic[T]):
    """One run of a verb, and how to parse its answer."""

    verb: str
    words: list[str]
    parse: Callable[[bytes], T]
    body: bytes | None = None
    path: str | None = None
    host: str = ""
    wait: float = 0
    timeout: float | None = None

    def command(self) -> list[str]:
        door = ["-H", self.host] if self.host else []
        # An unclaim that outlived a killed shovel would give back what the next one claims
        tied = with_us() if self.wait or self.verb == "unclaim" else ()
        return [*tied, "sh", str(home() / "flatq"), *door, self.verb, *self.words]

    def environment(self) -> dict[str, str] | None:
        return None if self.path is None else {**os.environ, "FLATQ_DIR": self.path}

    def patience(self) -> float | None:
        """The seconds until TimedOut: the timeout, and the time that the verb was told to wait."""
        if self.timeout is None or self.wait == math.inf:
            return None
        return self.timeout + math.ceil(self.wait)

    def result(self, status: int, out: bytes, err: bytes) -> T:
        text = err.decode(errors="replace").strip()
        if status != 0:
            raise error_of(self.verb, status, text, self.host)
        return self.parse(out)


@contextlib.contextmanager
def source(body: bytes | None) -> Iterator[int | IO[bytes]]:
    """A standard input that is complete before the verb starts: nothing has to feed it, and a
    killed caller cuts no message short."""
    if body is None:
        yield subprocess.DEVNULL
        return
    try:
        file = open(os.memfd_create("flatq"), "w+b")
    except (AttributeError, OSError):
        file = tempfile.TemporaryFile()
    with file:
        file.write(body)
        file.seek(0)
        yield file


class Job:
    """A verb while it runs, in a session of its own. Raises Busy, Disk or Invalid if the system
    cannot start it."""

    def __init__(self, call: Call[Any]) -> None:
        self.call = call
        self.said = bytearray(), bytearray()
        self.signal = 0
        try:
            with source(call.body) as stdin:
                self.process = Process(call.command(), stdin=stdin, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, env=call.environment(), start_new_session=True)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise of_system(call.verb, error) from None
        self.open = selectors.PollSelector()
        for pipe, said in zip((self.process.stdout, self.process.stderr), self.said):
            self.open.register(pipe, selectors.EVENT_READ, said)  # type: ignore[arg-type]

    def steps(self) -> Iterator[tuple[int, float | None]]:
        """The signals to send, 0 for none, each with the seconds to wait for the verb's end then. A
        verb that settles a message may finish by itself: else the interruption that makes us give
        a reservation back would stop the very verb that does it."""
        yield 0, self.call.patience()
        if self.call.verb in ("delete", "release", "bury"):
            yield 0, GRACE
        yield signal.SIGTERM, GRACE
        yield signal.SIGKILL, None

    def send(self, number: int) -> None:
        """Send a signal to the verb and all that it has started."""
        if number and self.process.poll() is None:
            self.signal = number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether the verb, and all that holds its output, ends within so many seconds. After an
        exception it can be called again, which Popen.communicate cannot at some instants."""
        end = None if seconds is None else time.monotonic() + seconds
        while self.open.get_map():
            left = None if end is None else max(end - time.monotonic(), 0)
            for key, _ in self.open.select(left):
                data = os.read(key.fd, 65536)
                key.data.extend(data)
                if not data:
                    self.open.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if left == 0:
                return False
        self.process.wait()
        return True

    def result(self) -> Any:
        """Its answer. Raises an Error if it failed, TimedOut if we ended it."""
        status = self.process.returncode
        if self.signal and status != 0:
            raise TimedOut(f"{self.call.verb}: ended after {self.call.patience()} seconds", None,
                self.call.verb)
        return self.call.result(status, *map(bytes, self.said))

    def told(self, error: BaseException) -> BaseException:
        """The error, which now has what the verb printed (see printed)."""
        error.printed = bytes(self.said[0])  # type: ignore[attr-defined]
        return error


def printed(error: BaseException) -> bytes:
    """What the verb printed that `error` ended, or that failed with it."""
    out: bytes = getattr(error, "printed", b"")
    return out


def run(call: Call[T]) -> T:
    """The verb's answer. An exception meanwhile, also from a signal handler, ends the verb first:
    by TERM, on which it gives back what it holds, and KILL after GRACE seconds, or on a second
    exception."""
    job = Job(call)
    raised: BaseException | None = None
    for number, seconds in job.steps():
        job.send(number)
        try:
            if job.wait(seconds):
                break
        except BaseException as error:
            raised = error
    try:
        answer: T = job.result()
        if not raised:
            return answer
    except BaseException as error:
        raised = raised or error
    # It ended before the signal: nobody else would give the message back
    if call.verb == "reserve" and job.process.returncode == 0:
        with contextlib.suppress(Error):
            job.result().release()
    raise job.told(raised) from None
