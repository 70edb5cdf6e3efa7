"""What the commands in Python share: options, error lines, exit codes, signals."""

from __future__ import annotations

import contextlib
import getopt
import importlib
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from .errors import Disk, Error, Invalid, Unreachable

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class Stopped(BaseException):
    """A signal came: give back what is held, then end by that signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(verb: str, main: Callable[[list[str]], int], words: list[str] | None = None) -> NoReturn:
    """Run main and exit with its code; an Error is one line on stderr."""
    on_signals(_stop)
    try:
        code = main(sys.argv[1:] if words is None else words)
    except Error as error:
        code = fail(verb, error)
    except OSError as error:
        text = error.strerror or str(error)
        code = fail(verb, Disk(f"{error.filename}: {text}" if error.filename else text))
    except Stopped as stopped:
        die_of(stopped.number)
    sys.exit(code)


def on_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Call the handler on each of SIGNALS that is not ignored; return former ones."""
    return {number: signal.signal(number, handler) for number in SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN}


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def fail(verb: str, error: Error) -> int:
    """Print the error in one line; return its exit code, 70 if it has none."""
    text = " ".join(str(error).split())
    if error.verb and error.verb != verb:
        text = re.sub(r"\A[a-z]+: (?=\S)", "", text)
    complain(f"{verb}: {text}\n")
    return error.code if error.code is not None and error.code > 0 else 70


def complain(text: str) -> None:
    """Write to stderr, if that is possible; `flatq` is in front if it has run us."""
    # None: it was closed when we were started, and a file of ours may have its number by now
    if sys.stderr is not None:
        # Not by its buffer, which would keep what failed, and fail again when Python ends
        with contextlib.suppress(OSError), open(
                sys.stderr.fileno(), "wb", 0, closefd=False) as raw:
            text = "flatq " * ("flatq" in sys._xoptions) + text
            raw.write(text.encode(sys.stderr.encoding, "backslashreplace"))


def die_of(number: int) -> NoReturn:
    """Die of the signal, as its sender expects."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


def module(name: str, distribution: str, package: str, extra: str) -> Any:
    """Return a module. Raises Unreachable if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        apt = f", or apt install {package}" if package else ""
        raise Unreachable(f"needs Python's {name}: pip install {distribution}, or 'flatq[{extra}]'"
                          f"{apt} ({sys.executable})") from None


def options(words: list[str], letters: str) -> tuple[dict[str, str], list[str]]:
    """Return the options, {letter: value}, and the operands, which the verb has checked."""
    given, operands = getopt.getopt(words, letters)
    return {letter[1:]: value for letter, value in given}, operands


def number(letter: str, value: str, least: int = 0) -> int:
    """Return an option's number, or its seconds: 90, 90s, 10m, 2h or 1d. Raises Invalid."""
    each = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:])
    found = int(value[:-1]) * each if each else int(value)
    if found < least:
        raise Invalid(f"-{letter} takes a number from {least}")
    return found


def standard_input() -> bytes:
    """Return all of standard input."""
    try:
        return sys.stdin.buffer.read()
    except MemoryError:
        raise Disk("the message does not fit into the memory") from None
    except OSError as error:
        raise Disk(f"input failed: {error.strerror}") from None


def out(text: bytes, keep: Callable[[], object] | None = None, seconds: float = 0) -> None:
    """Write to standard output; call `keep` every so many seconds meanwhile. Raises Disk."""
    if sys.stdout is None:
        raise Disk("standard output is closed")
    rest = memoryview(text)
    try:
        due = time.monotonic() + seconds
        while keep and rest:
            if (left := due - time.monotonic()) <= 0:
                keep()
                due = time.monotonic() + seconds
            # A pipe that select calls ready takes PIPE_BUF bytes at once
            elif select.select([], [1], [], left)[1]:
                rest = rest[os.write(1, rest[:select.PIPE_BUF]):]
        sys.stdout.buffer.write(rest)
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python must not try to write it again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise Disk(f"could not be written out in full: {error.strerror}") from None
