"""Move messages from one place to another: `flatq shovel -h` is the command.

    from flatq.shovel import Shovel, source, target

    Shovel(source("jobs"), target("beanstalk://queue.example:11300/jobs"), once=True).run()

A message is reserved at the source, given to the target, and deleted at the source once the
target has acknowledged it. So none is lost; one may come twice, as python/README.md says.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from types import FrameType

from ..command import Stopped
from ..errors import Closed, Empty, Error, NotYours
from .ends import LEASE, PASSING, Parcel, Source, Target, TooLarge, source, target

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
        #: A signal has come: stop after the message in hand
        self.stopping = False
        #: The message in hand goes back, which no signal interrupts: mqueue has no other copy
        self.ending = False
        #: The first signal raises at once: no message is in hand, or it can go back
        self.waiting = False
        #: While an end is away: since when, the reason, and for how many seconds to wait
        self.failing: tuple[float, str, float] | None = None

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """Handle a signal: stop after the message in hand; on a second one, or HUP, at once."""
        if self.ending:
            return
        now = self.stopping or number == signal.SIGHUP
        self.stopping = True
        self.ending = now or self.waiting
        if now:
            raise Stopped(number)
        if self.waiting:
            raise _Enough

    def run(self) -> int:
        """Move messages and return their number.

        Raises errors in `ends.PASSING` when `patience` is over, others at once, and Stopped on a
        second signal or HUP.
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
        try:
            refused = self._give(parcel)
        except BaseException:
            self.ending = True
            with contextlib.suppress(Error, OSError):
                parcel.back()
            raise
        if refused is None:
            self._settle(parcel.done)
        elif self._settle(parcel.bury):
            self.buried += 1
            self.say(f"{self.target.name}: {refused}: set aside")
        self.tell()
        return True

    def _give(self, parcel: Parcel) -> TooLarge | None:
        """Give the message to the target. Return why it will never take it, or None."""
        kept = time.monotonic()
        while True:
            try:
                self.target.give(parcel, 0 if self.failing else 2)
            except PASSING as error:
                self._fails(self.target.name, error)
                if time.monotonic() - kept > LEASE / 4:
                    kept = time.monotonic()
                    # If another consumer has it by now, it arrives twice
                    with contextlib.suppress(NotYours, *PASSING):
                        parcel.keep()
            except TooLarge as error:
                return error
            else:
                self.failing = None
                self.moved += 1
                if self.left:
                    self.left -= 1
                return None

    def _settle(self, how: Callable[[], None]) -> bool:
        """Settle the message as soon as that is possible; False if it is no longer ours."""
        while True:
            try:
                how()
                self.failing = None
                return True
            except NotYours:
                return False
            except PASSING as error:
                self._fails(self.source.name, error)

    def _fails(self, name: str, error: Error) -> None:
        """Say the reason, once, and wait: each time longer, up to a quarter of a lease."""
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
