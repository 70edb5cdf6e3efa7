"""Find the verbs, which are shell scripts, and run one."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from .errors import Error, Internal, Invalid, TimedOut, error_of, of_system

T = TypeVar("T")
GRACE = 5.0  # Seconds between TERM, on which a verb gives back what it holds, and KILL


def home() -> Path:
    """Return the directory of the verbs: $FLATQ_LIB, else ours, else that of `flatq` on PATH."""
    here, named = Path(__file__).resolve().parent, os.environ.get("FLATQ_LIB")
    for place in [Path(named)] if named else [here.parents[1] / "lib", here / "sh", *_installed()]:
        if (place / "flatq").is_file() and (place / "push").is_file():
            return place.absolute()
    raise FileNotFoundError(f"no verbs in {named or 'any place'}: set FLATQ_LIB")


def _installed() -> Iterator[Path]:
    for directory in os.get_exec_path():
        path = Path(directory, "flatq")
        with contextlib.suppress(OSError):
            # The wrapper that `make install` writes; else a link to the verb itself
            match = re.match(rb"#!/bin/sh\nexec '(.+)/flatq' ", path.read_bytes())
            yield Path(os.fsdecode(match[1])) if match else path.resolve().parent


def start(words: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own. Raises Internal if SIGCHLD is ignored."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        raise Internal("SIGCHLD is ignored, so no exit status could be known")
    return subprocess.Popen(words, start_new_session=True, **how)


@functools.lru_cache(None)
def with_us(pid: int) -> tuple[str, ...]:
    """Return words before a command that end it with our thread, if the system has them."""
    # RACE: if we are killed before setpriv runs, no signal comes: look whose child it is
    look = '[ "$PPID" = "$0" ] && exec "$@"'
    words = ("setpriv", "--pdeathsig", "TERM", "sh", "-c", look, str(pid))
    with contextlib.suppress(FileNotFoundError):
        return words if start([*words, "true"], stderr=subprocess.DEVNULL).wait() == 0 else ()
    return ()


def _file() -> IO[bytes]:
    return open(os.memfd_create("flatq"), "w+b")


@dataclass
class Call(Generic[T]):
    """A verb and how to parse its answer; it runs in `with call:`, and at the end has ended.

    It reads and writes files: a killed caller cuts no message short, and an interrupted one loses
    no answer. `timeout` is in seconds.
    """

    verb: str
    words: list[str]
    parse: Callable[[bytes], T]
    body: bytes | None = None
    env: dict[str, str] | None = None
    host: str = ""
    wait: float = 0
    timeout: float | None = None
    #: What Python calls an option, by its letter
    names: dict[str, str] = field(default_factory=dict)
    said: bytes = b""
    process: subprocess.Popen[bytes] | None = None
    status, given_up = 0, False

    def __enter__(self) -> Call[T]:
        words = ["sh", str(home() / "flatq"), *(["-H", self.host] if self.host else [])]
        self.stopped, self.over, self.lock = 0, threading.Event(), threading.Lock()
        self.started: Future[None] = Future()
        try:
            # An unclaim that outlived us would give back what our successor claims
            if self.wait or self.verb == "unclaim":
                words = [*with_us(os.getpid()), *words]
            self.out, self.err, self.input = _file(), _file(), _file()
            self.input.write(self.body or b"")
            self.input.seek(0)
            words += [self.verb, *self.words]
            threading.Thread(target=self._run, args=(words,), daemon=True).start()
            self.started.result()
        except OSError as error:
            raise of_system(self.verb, error) from None
        except ValueError as error:  # A NUL, or what is no text of the file system's
            raise Invalid(f"{self.verb}: {error}", 65, self.verb) from None
        except BaseException:
            if hasattr(self, "input"):
                self.__exit__()
            raise
        return self

    def _run(self, words: list[str]) -> None:
        # In a thread: a signal handler that raises inside Popen would leave an unknown process
        with self.lock, self.input:
            try:
                if not self.given_up:
                    self.process = start(words, env={**os.environ, **(self.env or {})},
                                         stdin=self.input, stdout=self.out, stderr=self.err)
                self.started.set_result(None)
            except BaseException as error:
                self.started.set_exception(error)
        if self.process:
            self.status = self.process.wait()
        self.over.set()

    def __exit__(self, *error: object) -> None:
        with self.lock, self.out, self.err:
            self.given_up = True
            try:
                self.end()
            finally:
                self.end(signal.SIGKILL)
                self.out.seek(0), self.err.seek(0)
                self.said, self.why = self.out.read(), self.err.read().decode(errors="replace")

    def ends(self, seconds: float | None) -> bool:
        """Return whether the verb ends within so many seconds."""
        last = time.monotonic() + (1e9 if seconds is None else seconds)
        # In turns of a second: a signal that comes just before a wait is seen only behind it
        while not self.over.is_set() and (left := last - time.monotonic()) > 0:
            self.over.wait(min(left, 1))
        return self.over.is_set()

    def end(self, *signals: int) -> None:
        """End the verb: by TERM, on which it gives back what it holds; after GRACE by KILL."""
        # What settles a message may finish first: an interrupted caller needs just that
        first = (0,) if self.verb in ("delete", "release", "bury") else ()
        for number in signals or (*first, signal.SIGTERM, signal.SIGKILL):
            if self.process and (not self.over.is_set() or self.stopped):
                self.stopped = number
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
                self.ends(GRACE)

    def result(self) -> T:
        """Return the answer of the verb. Raises its Error."""
        if self.status and self.stopped:
            raise TimedOut(f"{self.verb}: ended after {self.timeout} seconds", None, self.verb)
        if self.status:
            text = re.sub(r"(?<!\S)-([A-Za-z])\b", lambda found: self.names.get(found[1], found[0]),
                          self.why.strip())
            raise error_of(self.verb, self.status, text, self.host)
        return self.parse(self.said)


def run(call: Call[T]) -> T:
    """Return the verb's answer. An exception meanwhile, also a signal handler's, ends the verb."""
    try:
        with call:
            call.ends(call.timeout)
    except BaseException:
        # Nobody else would give the message back
        if call.verb == "reserve" and call.said:
            with contextlib.suppress(Error):
                call.result().release()  # type: ignore[attr-defined]
        raise
    return call.result()
