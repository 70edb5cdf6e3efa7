"""Move messages from one place to another; each is deleted at the source once the target has acknowledged it. `flatq shovel -h` is the command.

    from flatq.shovel import Shovel, source, target

    there = target("beanstalk://queue.example:11300/jobs")
    Shovel(source("jobs", there.name), there, once=True).run()

The places are in `ends`. If a message was given but could not be settled, its key is remembered: when it comes again, it is only settled."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from .command import SIGNALS, Stopped, die_of, fail, number, options
from .ends import LEASE, PASSING, Parcel, Source, Target, TooLarge, source, target
from .errors import Closed, Empty, Error, NotYours, Usage

__all__ = ["Shovel", "source", "target"]


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
        self.stopping = self.waiting = self.ending = False
        self.failing: tuple[float, str] | None = None
        self.pause = 0.0

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """A signal's handler. On the first, the message in hand still arrives, if the target answers; on a second, or HUP, it goes back. No signal
        interrupts that: a message from the kernel's queue has no other copy."""
        if self.ending:
            return
        if self.stopping or self.waiting or number == signal.SIGHUP:
            self.ending = True
            if self.stopping or number == signal.SIGHUP:
                raise Stopped(number)
            self.stopping = True
            raise Stopped(0)
        self.stopping = True

    def run(self) -> int:
        """Move messages and return their number. Raises errors that do not pass by waiting (all but `ends.PASSING`) at once, others when
        `patience` is over, and Stopped on a second signal or HUP."""
        try:
            try:
                # Settle what was given, even if enough messages have been given
                while (self.left != 0 or self.given) and (not self.stopping or self.source.begun):
                    if not self._one():
                        break
            except Stopped as stopped:
                if stopped.number:
                    raise
            except BaseException:
                self.ending = True
                raise
            self.ending = True
        except BaseException:
            # RACE: a signal may raise before any instruction up to here, but only one does
            try:
                self._close()
            except Error as error:
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
        except BaseException:
            with contextlib.suppress(Error):
                parcel.back()
            raise
        return True

    def _move(self, parcel: Parcel) -> None:
        kept = time.monotonic()
        while parcel.key not in self.given:
            try:
                self.target.give(parcel, 0 if self.pause else 2)
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
                self.say(f"{self.target.name}: {error}: set aside")
                self._settle(parcel.bury)
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
            if self.stopping and not self.source.begun:
                raise Stopped(0)
            return what()
        finally:
            self.waiting = False

    def _well(self) -> None:
        self.failing, self.pause = None, 0.0

    def _fails(self, name: str, error: Error) -> None:
        """Report the reason, once, and wait: each time longer, up to a quarter of a lease, so that the message in hand is kept."""
        text = f"{name}: {' '.join(str(error).split())}"
        since = self.failing[0] if self.failing else time.monotonic()
        if self.patience is not None and time.monotonic() - since >= self.patience:
            raise error
        before, self.failing = self.failing, (since, text)
        if before is None or before[1] != text:
            self.say(text)
        self.pause = min(max(self.pause * 2, 0.1), LEASE / 4)
        self.waiting = True
        try:
            if self.stopping:
                raise Stopped(0)
            time.sleep(self.pause)
        finally:
            self.waiting = False


def main() -> NoReturn:
    """`flatq shovel`; see lib/shovel."""
    sys.exit(command("shovel", sys.argv[1:]))


def command(verb: str, words: list[str], places: Callable[[list[str]], tuple[str, str]] | None = None) -> int:
    """Move what the command line asks for, and return its exit code."""
    try:
        given, names = options([word if word != "--once" else "-1" for word in words], "h1n:w:")
        if places is None and len(names) != 2:
            raise Usage("shovel [--once] [-n COUNT] [-w SECONDS] FROM TO", 64)
        one, other = places(names) if places else (names[0], names[1])
        if one == other:
            raise Usage("FROM and TO are the same", 64)
        count = number("n", given["n"], 1) if "n" in given else None
        patience = number("w", given["w"]) if "w" in given else None
        there = target(other)
        make = functools.partial(Shovel, source(one, other), there, once="1" in given, count=count, patience=patience)
    except Error as error:
        return fail(verb, error)
    return _run(verb, make)


def _run(verb: str, make: Callable[..., Shovel]) -> int:
    terminal = sys.stderr.isatty()
    last = 0.0

    def line(end: str = "") -> None:
        buried = f", {shovel.buried} buried" if shovel.buried else ""
        waits = f", waits: {shovel.failing[1]}" if shovel.failing else ""
        # Text wider than the terminal would take two lines
        width = (os.get_terminal_size(2).columns or 80) - 1
        sys.stderr.write("\r\033[K" + f"{verb}: {shovel.moved} moved{buried}{waits}"[:width] + end)
        sys.stderr.flush()

    def tell() -> None:
        nonlocal last
        if time.monotonic() - last >= 0.1:
            last = time.monotonic()
            line()

    def say(text: str) -> None:
        print(f"{chr(13) + chr(27) + '[K' if terminal else ''}{verb}: {text}", file=sys.stderr, flush=True)
        if terminal:
            line()

    shovel = make(say=say, **({"tell": tell} if terminal else {}))
    for number_of in SIGNALS:
        if signal.getsignal(number_of) is not signal.SIG_IGN:
            signal.signal(number_of, shovel.stop)
    try:
        shovel.run()
    except Error as error:
        if terminal:
            line("\n")
        return fail(verb, error)
    except Stopped as stopped:
        die_of(stopped.number)
    if terminal and (shovel.moved or shovel.buried):
        shovel.failing = None
        line("\n")
    return 0


if __name__ == "__main__":
    main()
