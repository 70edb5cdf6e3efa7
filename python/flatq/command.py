"""What the commands in Python share: options, error lines, exit codes, signals."""

from __future__ import annotations

import contextlib
import getopt
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from .errors import Disk, Error, Invalid, Unreachable, Usage

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
        code = fail(verb, Disk(f"{error.filename}: {text}" if error.filename else text, 74))
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


def needs(verb: str, module: str, distribution: str, package: str, extra: str) -> Error:
    """Return the error for a module that is not installed."""
    apt = f", or apt install {package}" if package else ""
    return Unreachable(f"needs Python's {module}: pip install {distribution}, or 'flatq[{extra}]'"
                       f"{apt} ({sys.executable})", 69, verb)


def options(words: list[str], letters: str) -> tuple[dict[str, str], list[str]]:
    """Return the options, {letter: value}, and the operands. Raises Usage."""
    try:
        given, operands = getopt.getopt(words, letters)
    except getopt.GetoptError as error:
        raise Usage(f"usage: {error}: see -h", 64) from None
    return {letter[1:]: value for letter, value in given}, operands


def number(letter: str, value: str, least: int = 0, most: int = 4294967295) -> int:
    """Return the value of an option. Raises Invalid."""
    found = whole(value)
    if found is None or not least <= found <= most:
        raise Invalid(f"-{letter} takes a number from {least} to {most}", 65)
    return found


def seconds(letter: str, value: str, least: int = 0) -> int:
    """Return the value of an option, which may be 90, 90s, 10m, 2h or 1d. Raises Invalid."""
    each = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:], 0)
    many = whole(value[:-1]) if each else None
    return number(letter, value if many is None else str(many * each), least)


def whole(value: str) -> int | None:
    """Return the number of 18 digits at most, else None."""
    digits = value.lstrip("0") or "0"
    return int(digits) if value.isascii() and value.isdigit() and len(digits) <= 18 else None


def standard_input() -> bytes:
    """Return all of standard input."""
    if sys.stdin is None:
        raise Disk("standard input is closed", 74)
    try:
        return sys.stdin.buffer.read()
    except MemoryError:
        raise Disk("the message does not fit into the memory", 74) from None
    except OSError as error:
        raise Disk(f"input failed: {error.strerror}", 74) from None


def out(text: bytes, keep: Callable[[], object] | None = None, seconds: float = 0) -> None:
    """Write to standard output; call `keep` every `seconds` seconds meanwhile. Raises Disk."""
    if sys.stdout is None:
        raise Disk("standard output is closed", 74)
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
        raise Disk(f"could not be written out in full: {error.strerror}", 74) from None
