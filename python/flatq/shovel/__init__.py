"""Move messages from one place to another; each is deleted at the source once the target has acknowledged it. `flatq shovel -h` is the command.

    from flatq.shovel import Shovel, source, target

    there = target("beanstalk://queue.example:11300/jobs")
    Shovel(source("jobs", there.name), there, once=True).run()

`ends.py` has the places, `line.py` and `stalk.py` the clients of a line door and of a beanstalkd, and `__main__.py` the command.

If a message was given but could not be settled, its key is remembered: when it comes again, it is only settled."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from types import FrameType

from ..command import Stopped
from ..errors import Closed, Empty, Error, NotYours
from ..verbs import printed
from .ends import LEASE, PASSING, Parcel, Source, Target, TooLarge, source, target

__all__ = ["Shovel", "source", "target"]


class _Enough(BaseException):
    """The first signal came while nothing was under way: end well."""


class Shovel:
    """Moves messages from `source` to `target`, in order, one in flight. once: stop when nothing is left; count: stop after so many;
    patience: seconds without an answer from an end, after which its error is raised (None: never). say: called with each new reason to
    wait; tell: called when a message has been moved."""

    def __init__(self, source: Source, target: Target, *, once: bool = False, count: int | None = None, patience: float | None = None,
                 say: Callable[[str], object] = lambda text: None, tell: Callable[[], object] = lambda: None) -> None:
        self.source, self.target, self.once, self.left, self.patience = source, target, once, count, patience
        self.say, self.tell = say, tell
        self.moved = self.buried = 0
        #: The key of the last message that was given but may not be settled
        self.given: dict[str, None] = {}
        #: "moves"; "stops" after the message in hand; "ends": gives back what is in hand, and no signal interrupts that
        self.phase = "moves"
        #: Whether a signal may raise at once, since nothing is under way
        self.waiting = False
        #: While an end is away: since when, the reason, and for how many seconds to wait
        self.failing: tuple[float, str, float] | None = None

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """A signal's handler. On the first, the message in hand still arrives, if the target answers; on a second, or HUP, it goes back. No signal
        interrupts that: a message from the kernel's queue has no other copy."""
        if self.phase == "ends":
            return
        now = self.phase == "stops" or number == signal.SIGHUP
        self.phase = "ends" if now or self.waiting else "stops"
        if now:
            raise Stopped(number)
        if self.waiting:
            raise _Enough

    def run(self) -> int:
        """Move messages and return their number. Raises errors that do not pass by waiting (all but `ends.PASSING`) at once, others when
        `patience` is over, and Stopped on a second signal or HUP."""
        try:
            try:
                # Settle what was given, even if enough messages have been given
                while (self.left != 0 or self.given) and (self.phase == "moves" or self.source.begun):
                    if not self._one():
                        break
            except _Enough:
                pass
            finally:
                self.phase = "ends"
        except BaseException:
            # RACE: a signal may raise before any instruction up to here, but only one does
            try:
                self._close()
            except (Error, OSError) as error:
                # why it ends says more
                self.say(str(error))
            raise
        self._close()
        return self.moved

    def _close(self) -> None:
        try:
            self.source.close()
        finally:
            self.target.close()

    def _one(self) -> bool:
        self.source.most = self.left or 1000000
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
        except BaseException as error:
            with contextlib.suppress(Error, OSError):
                # RACE: a signal may come after the push has printed its id, or before what was given is settled. Then the message is at the target, and
                # given back it would be in both places
                if printed(error) or parcel.key in self.given:
                    parcel.done()
                else:
                    parcel.back()
            raise
        return True

    def _move(self, parcel: Parcel) -> None:
        kept = time.monotonic()
        while parcel.key not in self.given:
            try:
                self.target.give(parcel, 0 if self.failing else 2)
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
                if self._settle(parcel.bury):
                    self.say(f"{self.target.name}: {error}: set aside")
                    self.buried += 1
                return
        if self._settle(parcel.done):
            del self.given[parcel.key]
        while len(self.given) > 1000:
            del self.given[next(iter(self.given))]
        self.tell()

    def _settle(self, how: Callable[[], None]) -> bool:
        """Settle the message as soon as that is possible; False if it is no longer ours."""
        while True:
            try:
                how()
                self._well()
                return True
            except NotYours:
                return False
            except PASSING as error:
                self._fails(self.source.name, error)

    def _keep(self, parcel: Parcel) -> None:
        try:
            parcel.keep()
        except (NotYours, *PASSING):
            # Another consumer may have it. Give it all the same: it arrives at most once more
            pass

    def _wait(self, what: Callable[[], Parcel]) -> Parcel:
        """Wait; a signal ends that at once."""
        self.waiting = True
        try:
            if self.phase != "moves" and not self.source.begun:
                raise _Enough
            return what()
        finally:
            self.waiting = False

    def _well(self) -> None:
        self.failing = None

    def _fails(self, name: str, error: Error) -> None:
        """Report the reason, once, and wait: each time longer, up to a quarter of a lease, so that the message in hand is kept."""
        text = f"{name}: {' '.join(str(error).split())}"
        since, before, pause = self.failing or (time.monotonic(), None, 0.0)
        if self.patience is not None and time.monotonic() - since >= self.patience:
            raise error
        self.failing = since, text, min(max(pause * 2, 0.1), LEASE / 4)
        if before != text:
            self.say(text)
        self.waiting = True
        try:
            if self.phase != "moves":
                raise _Enough
            time.sleep(self.failing[2])
        finally:
            self.waiting = False
