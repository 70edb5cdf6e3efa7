"""A pressure queue, as an end of a shovel.

When Redis acknowledges a message, it has it in memory. With `appendfsync always` it also has it on
its disk, and nothing is lost, whatever is killed. With `everysec`, its default, it may lose the
last second or two when it is killed, and without an append-only file it loses all.
"""

from __future__ import annotations

import re

from .. import pressure
from ..errors import Busy, NotYours
from .ends import LEASE, Parcel, Source, Target, key_of


class _Held(Parcel):
    def __init__(self, message: pressure.Message, key: str) -> None:
        super().__init__(message.body, key)
        self.message = message
        self.keep, self.back = message.keep, message.role.give  # type: ignore[method-assign]

    def done(self) -> None:
        try:
            self.message.done()
        except Busy as error:
            raise NotYours(str(error), 66) from None


def _queue(url: str, lease: float) -> tuple[pressure.Queue, str]:
    # Without redis-py the shovel would wait for it, as for a server that does not answer
    pressure.library()
    return pressure.Queue.at(url, lease=lease), re.sub(r"//[^/@]*@", "//", url)


class Pressure(Target):
    """A pressure queue, to which messages go. We are its producer only while `give` runs."""

    #: A shovel that is killed while it waits for room keeps other producers out for so many seconds
    PUT = 1

    def __init__(self, url: str) -> None:
        self.queue, self.name = _queue(url, self.PUT)

    def give(self, parcel: Parcel, wait: float) -> None:
        """Put the message in."""
        self.queue.put(parcel.body, wait)


class PressureSource(Source):
    """We are the queue's consumer while a message is in hand, which stays at its head.

    If we are killed, the role is free after LEASE.
    """

    def __init__(self, url: str) -> None:
        self.queue, self.name = _queue(url, LEASE)

    def take(self, wait: float) -> Parcel:
        """Hold the next message."""
        message = self.queue.hold(wait)
        try:
            # the server, the queue, its creation, the number of messages taken out before and, if
            # it has no append-only file, this start of the server
            said = self.queue.info()
            start = self.queue.created() + ("" if said.get("aof_enabled") else str(said["run_id"]))
            place = self.queue.stats()["consumed_messages"]
        except BaseException:
            message.role.give()
            raise
        return _Held(message, key_of(self.name, start, place, body=message.body))
