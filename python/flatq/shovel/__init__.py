"""Move messages from one place to another: `flatq shovel -h` is the command.

    from flatq.shovel import Shovel, source, target

    Shovel(source("jobs"), target("beanstalk://queue.example:11300/jobs"), once=True).run()

python/README.md says which messages may come twice.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from types import FrameType

from ..command import Stopped
from ..errors import Closed, Empty, Error, NotYours
from .ends import LEASE, PASSING, Source, Target, TooLarge, source, target

__all__ = ["Shovel", "source", "target"]


class _Enough(BaseException):
    """The first signal came while the shovel was waiting."""


class Shovel:
    """Moves messages from `source` to `target`, one at a time.

    Parameters
    ----------
    source, target : the ends
    once : stop when nothing is left
    count : stop after so many
    patience : seconds without an answer from an end, after which its error is
        raised; None: never
    say : called with each new reason to wait
    tell : called when a message has been moved
    """

    def __init__(self, source: Source, target: Target, *, once: bool = False,
                 count: int | None = None, patience: float | None = None,
                 say: Callable[[str], object] = lambda text: None,
                 tell: Callable[[], object] = lambda: None) -> None:
        self.source, self.target, self.once, self.left = source, target, once, count
        self.patience = target.patience = patience
        self.say, self.tell = say, tell
        self.moved = self.buried = 0
        #: A signal has come
        self.stopping = False
        #: No signal interrupts us now: the message in hand goes back, mqueue's only copy
        self.ending = False
        #: The first signal raises at once: no message is in hand, or it can go back
        self.waiting = False
        #: While an end is away: since when, why, and for how many seconds to wait
        self.failing: tuple[float, str, float] | None = None

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """Stop after the message in hand; on a second signal, or HUP, at once."""
        now, self.stopping = self.stopping or number == signal.SIGHUP, True
        if (now or self.waiting) and not self.ending:
            self.ending = True
            raise Stopped(number) if now else _Enough

    def run(self) -> int:
        """Move messages and return their number.

        Raises errors in `ends.PASSING` when `patience` is over, others at once.
        """
        try:
            with contextlib.suppress(_Enough):
                while self.left != 0 and not self.stopping and self._one():
                    pass
        except BaseException:
            self.ending = True
            # The first error says why it ends
            with contextlib.suppress(Error, OSError):
                self._close()
            raise
        self.ending = True
        self._close()
        return self.moved

    def _close(self) -> None:
        try:
            self.source.close()
        finally:
            self.target.close()

    def _one(self) -> bool:
        self.waiting = True
        try:
            if self.stopping:
                return False
            parcel = self.source.take(0 if self.once else 5)
        except Empty:
            self.failing = None
            return not self.once
        except Closed:
            return False
        except PASSING as error:
            self._fails(self.source.name, error)
            return True
        finally:
            self.waiting = False
        kept, refused = time.monotonic(), None

        def keep() -> None:
            nonlocal kept
            if time.monotonic() - kept > LEASE / 4:
                kept = time.monotonic()
                # If another consumer has it by now, it arrives twice
                with contextlib.suppress(NotYours, *PASSING):
                    parcel.keep()

        try:
            self._try(self.target.name,
                      lambda: self.target.give(parcel, 0 if self.failing else 2), keep)
            self.moved += 1
            if self.left:
                self.left -= 1
        except TooLarge as error:
            refused = error
        except BaseException:
            self.ending = True
            with contextlib.suppress(Error, OSError):
                parcel.back()
            raise
        with contextlib.suppress(NotYours):
            self._try(self.source.name, parcel.bury if refused else parcel.done)
            if refused:
                self.buried += 1
                self.say(f"{self.target.name}: {refused}: set aside")
        self.tell()
        return True

    def _try(self, name: str, step: Callable[[], object],
             keep: Callable[[], object] = lambda: None) -> None:
        while True:
            try:
                step()
                self.failing = None
                return
            except PASSING as error:
                self._fails(name, error)
                keep()

    def _fails(self, name: str, error: Error) -> None:
        """Say a new reason, and wait: each time longer, up to a quarter of a lease."""
        text = f"{name}: {' '.join(str(error).split())}"
        since, before, pause = self.failing or (time.monotonic(), None, 0.0)
        if self.patience is not None and time.monotonic() - since >= self.patience:
            raise error
        self.failing = since, text, min(max(pause * 2, 0.1), LEASE / 4)
        if before != text:
            self.say(text)
        self.waiting = True
        try:
            if self.stopping:
                raise _Enough
            time.sleep(self.failing[2])
        finally:
            self.waiting = False
