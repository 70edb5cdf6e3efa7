"""Find the verbs, which are shell scripts, and run one. Everything about processes is here."""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import math
import operator
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar, Union

from .errors import Busy, Disk, Error, Internal, Invalid, TimedOut, error_of

T = TypeVar("T")
Bytes = Union[bytes, bytearray, memoryview]

#: Seconds between TERM, on which a verb gives back what it holds (under yash it just ends), and KILL
GRACE = 5.0

_LETTERS = {
    "priority": "-p", "delay": "-d", "lease": "-t", "key": "-k", "wait": "-w", "length": "-n", "count": "-n", "reason": "-r",
    "state": "-s", "bound": "-b", "most_tries": "-m", "group": "-g", "force": "-f",
    "consumer": "-c",
}


def home() -> Path:
    """The directory of the verbs (and of `launch`, but in the source tree): $FLATQ_LIB, or the source tree's, the one in this
    package, that of the `flatq` on PATH. Raises FileNotFoundError if there is none."""
    here = Path(__file__).resolve().parent
    named = os.environ.get("FLATQ_LIB")
    for place in [Path(named)] if named else [here.parents[1] / "lib", here / "sh", *_installed()]:
        if (place / "flatq").is_file() and (place / "push").is_file():
            return place.absolute()
    raise FileNotFoundError(f"no verbs in {named}, which is FLATQ_LIB" if named else "the verbs are not there: set FLATQ_LIB")


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
    """Whether what is done beside the verbs must be synced: as the spool was made; a spool that is not known, as FLATQ_SYNC says."""
    return not Path(spool, ".sync.off").exists() if spool else os.environ.get("FLATQ_SYNC") != "off"


def options(**values: object) -> list[str]:
    """Keywords as a verb's options: None and False are left out, fractions of a second rounded up, infinity becomes the greatest number."""
    words = []
    for name, value in values.items():
        if value is None or value is False or (name == "wait" and value == 0):
            continue
        words.append(_LETTERS[name])
        if isinstance(value, (str, bytes)):
            words.append(os.fsdecode(value))
        elif name in ("delay", "lease", "wait"):
            words.append("4294967295" if value == math.inf else str(math.ceil(value)))  # type: ignore[call-overload]
        elif value is not True:
            words.append(str(operator.index(value)))  # type: ignore[arg-type]
    return words


#: Held while a process is started, and by os.fork(). A child that was forked meanwhile would keep the pipes of that process open, and a
#: thread that waits for their end would wait for the child too. A signal's handler may fork in the very thread that starts one: so it is an RLock
_STARTING = threading.RLock()
os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_STARTING.release)


class Process(subprocess.Popen[bytes]):
    """A process of ours. If SIGCHLD is ignored, raises Internal instead of starting it: the system would not keep its exit status."""

    def __init__(self, words: list[str], **how: Any) -> None:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            raise Internal("SIGCHLD is ignored, so no exit status could be known: signal.signal(SIGCHLD, SIG_DFL)", 70)
        #: Other code has waited for it, and has its exit status
        self.lost = False
        with _STARTING:
            super().__init__(words, **how)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, 0 if it is lost; without a timeout."""
        if self.returncode is None:
            try:
                seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                # RACE: a signal's handler that sends it a signal may have waited for it (Popen.send_signal), and then we have its status
                seen, self.lost = None, self.returncode is None
            status = super().wait()
            self.returncode = status if seen is None else seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
        return self.returncode

    def known(self) -> int:
        """The exit status of a process that has ended. Raises Internal if it is lost."""
        if self.lost:
            raise Internal("somebody else has waited for its process: whether it was done is not known", 70)
        return self.wait()


def with_us() -> tuple[str, ...]:
    """Words before a verb that make it end with the thread that waits for it, even if that is killed; none if the system cannot do that."""
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
        return Process([*words, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0
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
        return [*(with_us() if self.wait or self.verb == "unclaim" else ()), "sh", str(home() / "flatq"), *door, self.verb, *self.words]

    def environment(self) -> dict[str, str] | None:
        return None if self.path is None else {**os.environ, "FLATQ_DIR": self.path}

    def patience(self) -> float | None:
        """The seconds until TimedOut: the timeout, and the time that the verb was told to wait."""
        return None if self.timeout is None or self.wait == math.inf else self.timeout + math.ceil(self.wait)

    def result(self, status: int, out: bytes, err: bytes) -> T:
        text = err.decode(errors="replace").strip()
        if status != 0:
            raise error_of(self.verb, status, text, self.host)
        return self.parse(out)


@contextlib.contextmanager
def source(body: bytes | None) -> Iterator[int | IO[bytes]]:
    """A standard input that is complete before the verb starts: nothing has to feed it, and a killed caller cuts no message short."""
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
    """A verb while it runs, in a thread of its own, so that no exception from a signal handler comes between the start of the process
    and the assignment of its PID. `ended` is called in that thread when the verb, and everything that holds its output, has ended."""

    def __init__(self, call: Call[Any], ended: Callable[[], object]) -> None:
        self.call, self.ended = call, ended
        self.lock = threading.Lock()
        self.process: Process | None = None
        #: The signal that was sent to it
        self.sent = 0
        self.over = False
        self.failed: BaseException | None = None
        self.out = self.err = b""

    def start(self) -> None:
        # Not threading.Thread, whose start is Python code that a signal handler's exception breaks off
        try:
            _thread.start_new_thread(self.run, ())
        except RuntimeError as error:
            raise Busy(f"{self.call.verb}: {error}", 75, self.call.verb) from None

    def run(self) -> None:
        try:
            with source(self.call.body) as stdin, self.lock:
                if not self.sent:
                    self.process = Process(
                        self.call.command(), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        env=self.call.environment(), start_new_session=True,
                    )
            if self.process:
                self.out, self.err = self.process.communicate()
        except FileNotFoundError as error:
            self.failed = error
        except OSError as error:
            self.failed = self.not_run(error)
        except BaseException as error:
            self.failed = error
        finally:
            self.over = True
            self.ended()

    def not_run(self, error: OSError) -> Error:
        """The error for one of the system's: no process or no file could be had, or the answer could not be read."""
        verb, text = self.call.verb, f"{self.call.verb}: {error.strerror}"
        if self.process:
            return Internal(f"{text}: whether it was done is not known", 70, verb)
        if error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            return Busy(text, 75, verb)
        return Invalid(text, 65, verb) if error.errno == errno.E2BIG else Disk(text, 74, verb)

    def end(self, number: int) -> bool:
        """Send a signal to the verb and all it has started; return false if it had not started, and keep it from starting."""
        with self.lock:
            self.sent = number
            if self.process and self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, number)
            return self.process is not None

    def steps(self) -> Iterator[tuple[int | None, float | None]]:
        """The signals to send, None at the start, each with the seconds to wait after it. A verb that settles a message may finish by
        itself: else the interruption that makes us give a reservation back would stop the very verb that does it."""
        yield None, self.call.patience()
        if self.call.verb in ("delete", "release", "bury"):
            yield 0, GRACE
        yield signal.SIGTERM, GRACE
        yield signal.SIGKILL, None

    def well(self) -> bool:
        return self.process is not None and self.process.returncode == 0 and not self.process.lost

    def told(self, error: BaseException) -> BaseException:
        """The error, which now has what the verb printed (`printed`)."""
        error.printed = self.out  # type: ignore[attr-defined]
        return error

    def result(self) -> Any:
        if self.failed:
            raise self.failed
        if self.sent and not self.well():
            raise self.timed_out()
        return self.call.result(self.process.known(), self.out, self.err) if self.process else None

    def timed_out(self) -> TimedOut:
        return TimedOut(f"{self.call.verb}: ended after {self.call.patience()} seconds", None, self.call.verb)


def printed(error: BaseException) -> bytes:
    """What the verb printed that `error` ended, or that failed with it."""
    out: bytes = getattr(error, "printed", b"")
    return out


def run(call: Call[T]) -> T:
    """The verb's answer. An exception meanwhile, also from a signal handler, ends the verb first: by TERM, on which it gives back what it
    holds, and KILL after GRACE seconds, or on a second exception."""
    # A lock, not an Event: an Event's wait is Python code, and an exception in it leaves the Event locked, or becomes a RuntimeError
    ended = threading.Lock()
    ended.acquire()
    job = Job(call, ended.release)
    raised: BaseException | None = None
    for number, seconds in job.steps():
        try:
            if number is None:
                job.start()
            elif number and not job.end(number):
                # The time was over before the verb had started
                raised = raised or job.timed_out()
                break
            if job.over or ended.acquire(timeout=-1 if seconds is None else max(seconds, 0)):
                if raised:
                    break
                answer: T = job.result()
                return answer
        except BaseException as error:
            raised = error
    # The verb may have ended before the signal
    if call.verb == "reserve" and job.well():
        with contextlib.suppress(Error):
            job.result().release()
    assert raised
    raise job.told(raised)
