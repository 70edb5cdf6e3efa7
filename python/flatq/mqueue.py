"""Move messages into and out of a POSIX message queue of the kernel, to join programs that use one to a queue of flatq.

`flatq mqueue -h` is the command; it is a shovel with one end in the kernel. The kernel's priorities go from 0 up to 32767, the most urgent;
flatq's begin with 0, the most urgent. The kernel's usual priority, 0, is flatq's usual one, 65536, and the kernel's N is 65536 - N. So
priorities survive both ways; one that the kernel does not have becomes the nearest one.

The kernel has no reservations: a received message is in this process alone until it is pushed. A shovel that is stopped sends it back, or
pushes it, whenever the signal comes and however many follow; where the kernel's queue is full, it waits for room. A shovel that is killed by
KILL in that instant loses it, as any user of the kernel's queue does. The other way, nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import select
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any, NoReturn

from .command import Stopped, fail, needs, number, options, out, stray
from .errors import Busy, Denied, Disk, Empty, Error, Full, Invalid, Missing, Usage
from .shovel.__main__ import command
from .shovel.ends import Parcel, Source, Target, TooLarge

#: flatq's priority for 0 in the kernel
USUAL = 65536
#: The kernel's most urgent priority
MOST = 32767


def to_kernel(priority: int | None) -> int:
    """The kernel's priority for one of flatq's."""
    return 0 if priority is None else max(0, min(MOST, USUAL - priority))


def from_kernel(priority: int) -> int:
    """flatq's priority for one of the kernel's."""
    return USUAL - priority


def ipc() -> Any:
    """The module posix_ipc. Raises Unreachable."""
    try:
        import posix_ipc  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise needs("mqueue", "posix_ipc", "posix-ipc", "python3-posix-ipc", "mqueue") from None
    return posix_ipc


class _Exists(Invalid):
    """65: there is such a queue already."""


class _Interrupted(Busy):
    """75: a signal came while the kernel was asked, so nothing was done; its handler did not raise."""


class _Received(Parcel):
    def __init__(self, kernel: Kernel, body: bytes, priority: int) -> None:
        # Two equal messages cannot be told apart, and none comes twice
        super().__init__(body, f"{kernel.name} {time.time_ns()} {kernel.count}", from_kernel(priority))
        self.kernel = kernel

    def done(self) -> None:
        self.kernel.hand.clear()

    def back(self) -> None:
        self.kernel.back()


class Kernel(Source, Target):
    """The kernel's queue /NAME, which must exist. Raises Missing, Denied, Invalid."""

    def __init__(self, name: str) -> None:
        self.name = name if name.startswith("/") else "/" + name
        self.count = 0
        #: The message that was received and is not yet pushed or sent back, with its priority
        self.hand: list[tuple[bytes, int]] = []
        self._queue: Any = None

    @staticmethod
    def at(url: str, towards: str = "") -> Kernel:
        """mqueue:///NAME, wherever what comes from it goes."""
        ipc()  # else the shovel would wait for it, as for a queue that is not there yet
        return Kernel(urllib.parse.unquote(url.partition(":")[2].lstrip("/")))

    @property
    def queue(self) -> Any:
        """The queue of posix_ipc, opened when it is first used."""
        if self._queue is None:
            self._queue = _called(self.name, lambda: ipc().MessageQueue(self.name))
        return self._queue

    def take(self, wait: float) -> Parcel:
        """Receive a message, which is then in this process alone."""
        queue, end = self.queue, time.monotonic() + wait
        self.count += 1
        while not self.hand:
            try:
                select.select([queue.mqd], [], [], max(end - time.monotonic(), 0))
            except OSError as error:
                raise Disk(f"{self.name}: {error.strerror}", 74) from None
            # A shovel's handler raises while it waits here. Any other one's signal says nothing about the queue: ask again
            with contextlib.suppress(_Interrupted):
                # RACE: a signal's handler may raise before any instruction of Python's, so no local variable may be the only place of a message:
                # this is one instruction. To block signals would not do: another thread gets them, and the handler runs in the first all the same.
                _called(self.name, lambda: self.hand.extend(itertools.starmap(queue.receive, ((0,),))))
        return _Received(self, *self.hand[0])

    def back(self) -> None:
        """Send the message in hand back: it comes after others of its priority. If there is no room any more, wait for some."""
        for body, priority in self.hand:
            self.send(body, priority, None)
        self.hand.clear()

    def give(self, parcel: Parcel, wait: float) -> None:
        """Send a message. Raises Full, TooLarge."""
        self.send(parcel.body, to_kernel(parcel.priority), wait)

    def send(self, body: bytes, priority: int, wait: float | None) -> None:
        """wait: None is for ever."""
        queue = self.queue
        if len(body) > queue.max_message_size:
            raise TooLarge(f"{len(body)} bytes are too large for {self.name}, which takes {queue.max_message_size}", 65)
        while True:
            try:
                _called(self.name, lambda: queue.send(body, wait, priority), Full)
                return
            except _Interrupted:
                # One that would wait for ever goes on, or the message would be gone with us. Any other asks whether there is room, and waits no more:
                # a shovel may have been told to stop, and looks at that when the queue is full
                if wait is not None:
                    wait = 0

    def close(self) -> None:
        """Send what is still in hand back, and close; the queue stays."""
        self.back()
        if self._queue is not None:
            self._queue.close()
            self._queue = None


def _called(name: str, what: Any, busy: type[Error] = Empty) -> Any:
    kernel = ipc()
    try:
        return what()
    except kernel.BusyError:
        raise busy(f"{name}: full" if busy is Full else "nothing there", 75 if busy is Full else 66) from None
    except kernel.SignalError:
        raise _Interrupted(f"{name}: interrupted", 75) from None
    except kernel.ExistentialError as error:
        text = str(error)
        raise (Missing(f"{name}: no such queue in the kernel", 66) if "No queue" in text or "exist" in text and "already" not in text
               else _Exists(f"{name}: exists already", 65)) from None
    except kernel.PermissionsError:
        raise Denied(f"{name}: not allowed", 77) from None
    except (ValueError, OSError, kernel.Error) as error:
        if getattr(error, "errno", 0) == 24 or "too many" in str(error).lower():
            raise Busy(f"{name}: {error}", 75) from None
        raise Invalid(f"{name}: {error}", 65) from None


def main() -> NoReturn:
    """`flatq mqueue`; see lib/mqueue."""
    words = sys.argv[1:]
    action = words.pop(0) if words else ""
    if action in ("in", "out"):

        def places(names: list[str]) -> tuple[str, str]:
            if not 1 <= len(names) <= 2:
                raise Usage("mqueue in|out /NAME [QUEUE]", 64)
            kernel, here = "mqueue:///" + urllib.parse.quote(names[0].lstrip("/"), safe=""), names[1] if len(names) == 2 else "default"
            ipc()
            return (kernel, here) if action == "in" else (here, kernel)

        sys.exit(command("mqueue", words, places))
    try:
        code = _main(action, words)
    except Error as error:
        code = fail("mqueue", error)
    except OSError as error:
        code = fail("mqueue", stray(error))
    except Stopped:
        code = 75
    sys.exit(code)


def _main(action: str, words: list[str]) -> int:
    given, names = options(words, "hb:z:")
    if len(names) != 1 or action not in ("create", "stat", "drop"):
        raise Usage("mqueue create|stat|drop /NAME", 64)
    kernel, name = ipc(), names[0] if names[0].startswith("/") else "/" + names[0]
    if action == "create":
        bound, size = number("b", given.get("b", "10"), 1, 2**31 - 1), number("z", given.get("z", "8192"), 1, 2**31 - 1)
        try:
            _called(name, lambda: kernel.MessageQueue(name, kernel.O_CREX, max_messages=bound, max_message_size=size)).close()
        except _Exists:
            raise
        except (Busy, Invalid) as error:
            raise type(error)(f"{error}{_limit(bound, size)}", error.code) from None
    elif action == "stat":
        queue = _called(name, lambda: kernel.MessageQueue(name))
        out(f"queue {name}\nready {queue.current_messages}\nbound {queue.max_messages}\nmost-bytes {queue.max_message_size}\n".encode())
        queue.close()
    else:
        _called(name, lambda: kernel.unlink_message_queue(name))
    return 0


def _limit(bound: int, size: int) -> str:
    """The kernel's limit that a queue of `bound` messages of `size` bytes runs into, as text behind an error; empty: none that is known. Nobody can
    raise root's: 65,536 messages, and 16 MiB each."""
    for name, wanted, roots in (("msg_max", bound, 65536), ("msgsize_max", size, 16 << 20)):
        path = Path("/proc/sys/fs/mqueue", name)
        with contextlib.suppress(OSError, ValueError):
            most, where = (roots, "") if os.geteuid() == 0 else (int(path.read_text()), f" ({path})")
            if wanted > most:
                return f": {wanted} is over the kernel's limit of {most}{where}"
    most, _ = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    return f": over the limit of {most} bytes in message queues (ulimit -q)" if 0 <= most < bound * size else ""


if __name__ == "__main__":
    main()
