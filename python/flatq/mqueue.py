"""`flatq mqueue`: a shovel with one end in a queue of the kernel; see lib/mqueue.

A received message is in this process alone until it is pushed, or sent back.
"""

from __future__ import annotations

import itertools
import select
import sys
import time
import urllib.parse
from typing import Any, NoReturn

from .command import module, number, options, out, run
from .errors import Denied, Empty, Error, Full, Invalid, Missing, Usage, of_system
from .shovel.__main__ import command
from .shovel.ends import Parcel, Source, Target, TooLarge, key_of

#: flatq's priority for the kernel's 0, and the kernel's most urgent one
USUAL, MOST = 65536, 32767


def to_kernel(priority: int | None) -> int:
    """Return the kernel's priority for one of flatq's."""
    return 0 if priority is None else max(0, min(MOST, USUAL - priority))


def from_kernel(priority: int) -> int:
    """Return flatq's priority for one of the kernel's."""
    return USUAL - priority


def ipc() -> Any:
    """Return the module posix_ipc. Raises Unreachable."""
    return module("posix_ipc", "posix-ipc", "python3-posix-ipc", "mqueue")


def _called(name: str, what: Any, busy: type[Error] = Full) -> Any:
    kernel = ipc()
    while True:  # again if a signal interrupts it and its handler returns
        try:
            return what()
        except kernel.SignalError:
            pass
        except kernel.BusyError:
            raise busy(f"{name} is {busy.__name__.lower()}") from None
        except kernel.ExistentialError:
            raise Missing(f"{name}: no such queue in the kernel") from None
        except kernel.PermissionsError:
            raise Denied(f"{name}: not allowed") from None
        except ValueError as error:
            raise Invalid(f"{name}: {error}") from None
        except OSError as error:
            raise of_system(name, error) from None


class Kernel(Source, Target):
    """The kernel's queue at mqueue:///NAME, which must exist."""

    def __init__(self, place: str) -> None:
        self.name = "/" + urllib.parse.unquote(place.removeprefix("mqueue:")).lstrip("/")
        self.queue = _called(self.name, lambda: ipc().MessageQueue(self.name))
        #: The message that was received and is not yet pushed or sent back, with its priority
        self.hand: list[tuple[bytes, int]] = []

    def take(self, wait: float) -> Parcel:
        select.select([self.queue.mqd], [], [], wait)
        # RACE: a signal's handler may raise before any instruction of Python's: so receiving a
        # message and keeping it is one
        _called(self.name, lambda: self.hand.extend(
            itertools.starmap(self.queue.receive, ((0,),))), Empty)
        body, priority = self.hand[0]
        # Two equal messages cannot be told apart, and none comes twice
        return Parcel(body, key_of(self.name, time.time_ns(), body=body), from_kernel(priority),
                      done=self.hand.clear, back=self.back)

    def back(self) -> None:
        # Behind others of its priority, once there is room
        for body, priority in self.hand:
            _called(self.name, lambda: self.queue.send(body, None, priority))
        self.hand.clear()

    def give(self, parcel: Parcel, wait: float) -> None:
        body, priority, most = parcel.body, to_kernel(parcel.priority), self.queue.max_message_size
        if len(body) > most:
            raise TooLarge(f"{len(body)} bytes are too large: {self.name} takes {most}")
        _called(self.name, lambda: self.queue.send(body, wait, priority))

    def close(self) -> None:
        self.back()
        self.queue.close()


def main() -> NoReturn:
    """Run `flatq mqueue`."""
    if sys.argv[1] not in ("in", "out"):
        run("mqueue", _main)

    def places(names: list[str]) -> tuple[str, str]:
        if len(names) > 2:
            raise Usage("mqueue in|out /NAME [QUEUE]")
        kernel, here = "mqueue:" + urllib.parse.quote(names[0]), [*names, "default"][1]
        return (kernel, here) if sys.argv[1] == "in" else (here, kernel)

    command("mqueue", sys.argv[2:], places)


def _main(words: list[str]) -> int:
    given, names = options(words[1:], "hb:z:")
    if len(names) != 1:
        raise Usage("mqueue create|stat|drop /NAME")
    kernel, name = ipc(), "/" + names[0].lstrip("/")
    if words[0] == "create":
        bound, size = (number(letter, given.get(letter, usual), 1)
                       for letter, usual in (("b", "10"), ("z", "8192")))
        try:
            kernel.MessageQueue(name, kernel.O_CREX, 0o600, bound, size)
        except (ValueError, OSError, kernel.Error) as error:
            raise Invalid(f"{name}: {error}; limits: /proc/sys/fs/mqueue, ulimit -q") from None
    elif words[0] == "stat":
        queue = _called(name, lambda: kernel.MessageQueue(name))
        out(f"queue {name}\nready {queue.current_messages}\nbound {queue.max_messages}\n"
            f"most-bytes {queue.max_message_size}\n".encode())
    else:
        _called(name, lambda: kernel.unlink_message_queue(name))
    return 0


if __name__ == "__main__":
    main()
