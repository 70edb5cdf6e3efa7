"""Finding the verbs, which are shell, and running one: all that knows of processes."""

from __future__ import annotations

import contextlib
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

from .errors import Error, Internal, TimedOut, error_of

T = TypeVar("T")
Bytes = Union[bytes, bytearray, memoryview]

#: seconds that a verb has, after TERM, to give back what it holds, before KILL. yash hears of a signal up to two seconds late
GRACE = 5.0

_LETTERS = {
    "priority": "-p", "delay": "-d", "lease": "-t", "key": "-k", "wait": "-w", "length": "-n", "count": "-n", "reason": "-r",
    "state": "-s", "bound": "-b", "most_tries": "-m", "group": "-g", "force": "-f",
    "consumer": "-c",
}


def home() -> Path:
    """The directory of the verbs (and of `launch`, but in the source tree): $FLATQ_LIB, or the source tree's, the one in this
    package, that of the `flatq` on PATH. FileNotFoundError where there is none."""
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
            # as `make install` writes it; else a link to the verb itself
            match = re.match(rb"#!/bin/sh\nexec '(.+)/flatq' ", path.read_bytes())
            yield Path(os.fsdecode(match[1])) if match else path.resolve().parent


def options(**values: object) -> list[str]:
    """Keywords as a verb's options: None and False are left out, fractions of a second rounded up, infinity is the most there is."""
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


#: held while a process is started, and by os.fork(): a child that was forked just then would keep the pipes of that process open, and who
#: waits for their end would wait for the child too
_STARTING = threading.Lock()
os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_STARTING.release)


class Process(subprocess.Popen[bytes]):
    """A process of ours. Raises Internal, and is not started, where SIGCHLD is ignored: the system would not keep its exit status."""

    def __init__(self, words: list[str], **how: Any) -> None:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            raise Internal("SIGCHLD is ignored, so no exit status could be known: signal.signal(SIGCHLD, SIG_DFL)", 70)
        #: somebody else has waited for it, and has its exit status
        self.lost = False
        with _STARTING:
            super().__init__(words, **how)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, 0 where it is lost; without a time-out."""
        if self.returncode is None:
            try:
                seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                seen, self.lost = None, True
            status = super().wait()
            self.returncode = status if seen is None else seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
        return self.returncode

    def known(self) -> int:
        """The exit status of one that has ended. Raises Internal where it is lost."""
        if self.lost:
            raise Internal("somebody else has waited for its process: whether it was done is not known", 70)
        return self.wait()


@functools.lru_cache(None)
def _with_us() -> tuple[str, ...]:
    """What has a verb that waits end when the thread that waits for it does, were it by KILL; nothing where the system cannot."""
    words = ("setpriv", "--pdeathsig", "TERM")
    with contextlib.suppress(OSError):
        if Process([*words, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0:
            return words
    return ()


@dataclass
class Call(Generic[T]):
    """One run of a verb, and what becomes of its answer."""

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
        return [*(_with_us() if self.wait else ()), "sh", str(home() / "flatq"), *door, self.verb, *self.words]

    def environment(self) -> dict[str, str] | None:
        return None if self.path is None else {**os.environ, "FLATQ_DIR": self.path}

    def patience(self) -> float | None:
        """Seconds; a lease or a wait is the verb's own business."""
        return None if self.timeout is None or self.wait == math.inf else self.timeout + math.ceil(self.wait)

    def result(self, status: int, out: bytes, err: bytes) -> T:
        text = err.decode(errors="replace").strip()
        if status != 0:
            raise error_of(self.verb, status, text, self.host)
        return self.parse(out)


@contextlib.contextmanager
def source(body: bytes | None) -> Iterator[int | IO[bytes]]:
    """A standard input that is whole before the verb starts: nobody has to feed it, and a caller that is killed cuts no message short."""
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


class Job(threading.Thread):
    """A verb while it runs, in a thread of its own: an exception from a signal handler cannot come between the start of a process
    and knowing its number. `ended` is called there when the verb, and all that holds its output, has ended."""

    def __init__(self, call: Call[Any], ended: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.call, self.ended = call, ended
        self.lock = threading.Lock()
        self.process: Process | None = None
        #: the signal that it was sent
        self.sent = 0
        self.failed: BaseException | None = None
        self.out = self.err = b""

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
        except BaseException as error:
            self.failed = error
        finally:
            self.ended()

    def end(self, number: int) -> bool:
        """Send a signal to the verb and all it has started; or false, and it does not start any more."""
        with self.lock:
            self.sent = number
            if self.process and self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, number)
            return self.process is not None

    def steps(self) -> Iterator[tuple[int | None, float | None]]:
        """What it is sent, None at its start, and the seconds that it then has. What settles a message may end by itself: else the
        interruption that has a reservation given back would stop just that."""
        yield None, self.call.patience()
        if self.call.verb in ("delete", "release", "bury"):
            yield 0, GRACE
        yield signal.SIGTERM, GRACE
        yield signal.SIGKILL, None

    def well(self) -> bool:
        return self.process is not None and self.process.returncode == 0 and not self.process.lost

    def result(self) -> Any:
        if self.failed:
            raise self.failed
        if self.sent and not self.well():
            raise TimedOut(f"{self.call.verb}: ended after {self.call.patience()} seconds", None, self.call.verb)
        return self.call.result(self.process.known(), self.out, self.err) if self.process else None


def run(call: Call[T]) -> T:
    """The verb's answer. Whatever is raised meanwhile, in a signal handler too, ends it first: TERM, on which it gives back what it
    holds, and KILL after GRACE seconds, or when something is raised again."""
    ended = threading.Event()
    job = Job(call, ended.set)
    raised: BaseException | None = None
    for number, seconds in job.steps():
        try:
            if number is None:
                job.start()
            elif number and not job.end(number):
                break
            if ended.wait(seconds):
                break
        except BaseException as error:
            raised = error
    if raised is None:
        try:
            answer: T = job.result()
            return answer
        except BaseException as error:
            raised = error
    # it may have been quicker than the signal
    if call.verb == "reserve" and job.well():
        with contextlib.suppress(Error):
            job.result().release()
    raise raised
