"""One table from a verb's exit code to an exception."""

from __future__ import annotations

import errno
import queue


class Error(Exception):
    """A verb failed; str() is its text on stderr, `code` its exit code, below 0 for a signal.

    `ids`, from push_many: those of the messages that were stored.
    """

    code: int | None = None

    def __init__(self, message: str = "", code: int | None = None, verb: str = "") -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.verb, self.ids = verb, list[int]()


class Usage(Error, TypeError):
    """64: arguments that do not go together."""

    code = 64


class Invalid(Error, ValueError):
    """65: a bad name, number, receipt or key, or a message too large."""

    code = 65


class Missing(Error, LookupError):
    """66: no such queue; from kick, no such message."""

    code = 66


class Empty(Error, queue.Empty):
    """66 from pop, reserve, peek, drain and claim: nothing is there, or no such queue."""

    code = 66


class NotYours(Error):
    """66 from delete, release, touch and bury: the lease was over, or the message is gone."""

    code = 66


class Closed(Error, getattr(queue, "ShutDown", Exception)):  # type: ignore[misc]
    """69: the queue is closed; from pop and reserve, closed and empty."""

    code = 69


class Unreachable(Error, ConnectionError):
    """68: nobody answers there, and nothing was asked.

    69: the answer was cut off, and what was asked may be done.
    """

    code = 69


class Internal(Error):
    """70: a fault in flatq, or something that it needs is not installed."""

    code = 70


class Disk(Error):
    """74: the disk is full or failed."""

    code = 74


class Full(Error, queue.Full):
    """75 from push: the queue is full."""

    code = 75


class Busy(Error):
    """75: messages are left (drop), or no process or connection can be had.

    73 from pressure: another client has the role.
    """

    code = 75


class Denied(Error):
    """77: not allowed."""

    code = 77


class TimedOut(Error, TimeoutError):
    """75 from wait; or a verb took longer than Queue(timeout=...), and may have done it."""


ERRORS: dict[int | tuple[int, str], type[Error]] = {
    64: Usage, 65: Invalid, 66: Missing, 68: Unreachable, 69: Closed, 70: Internal, 73: Busy,
    74: Disk, 75: Busy, 77: Denied, (75, "push"): Full, (75, "wait"): TimedOut, (65, "wait"): Error,
    **{(66, verb): Empty for verb in ("pop", "reserve", "peek", "drain", "claim")},
    **{(66, verb): NotYours for verb in ("delete", "release", "touch", "bury")},
}


def error_of(verb: str, code: int, text: str, host: str = "") -> Error:
    """Return the exception for a verb that ended with `code` and `text`, here or at a door."""
    kind = ERRORS.get((code, verb)) or ERRORS.get(code, Error)
    text = text.removeprefix("flatq ")
    if host and code == 69 and text.startswith(f"{verb}: {host}: "):
        kind = Unreachable
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return kind(text or f"{verb}: {ended}", code, verb)


def of_system(place: str, error: OSError) -> Error:
    """Return the exception for an error of this system before anything was asked for."""
    text = f"{place}: {error.strerror or error}"
    if error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return Busy(text)
    if error.errno == errno.E2BIG:
        return Invalid(text)
    return Denied(text) if isinstance(error, PermissionError) else Disk(text)


def printable(said: bytes) -> str:
    """Return another machine's words, 200 characters of them, as text that is safe to show."""
    return "".join(filter(str.isprintable, said.decode(errors="replace")))[:200]
