"""A pressure queue, as an end of a shovel. It needs a Redis with `appendfsync always`."""

from __future__ import annotations

import re

from .. import pressure
from ..errors import Busy, NotYours
from .ends import LEASE, Parcel, Source, Target, key_of


class Pressure(Source, Target):
    """We are the queue's consumer while a message is in hand, which stays at its head."""

    def __init__(self, url: str) -> None:
        pressure.library()
        self.queue, self.name = pressure.Queue.at(url), re.sub(r"//[^/@]*@", "//", url)

    def give(self, parcel: Parcel, wait: float) -> None:
        # If we are killed while we wait for room, other producers are kept out for a second
        self.queue.lease = 1
        self.queue.put(parcel.body, wait)

    def take(self, wait: float) -> Parcel:
        self.queue.lease = LEASE
        message = self.queue.hold(wait)
        try:
            # Its key: the queue, its creation, how many messages were taken out before, and, if
            # there is no append-only file, this start of the server
            said = self.queue.info()
            start = self.queue.created() + ("" if said.get("aof_enabled") else str(said["run_id"]))
            place = self.queue.stats()["consumed_messages"]
        except BaseException:
            message.role.give()
            raise

        def done() -> None:
            try:
                message.done()
            except Busy as error:
                raise NotYours(str(error), 66) from None

        return Parcel(message.body, key_of(self.name, start, place, body=message.body), done=done,
                      keep=message.keep, back=message.role.give)
