"""A pressure queue, as an end of a shovel.

When Redis acknowledges a message, it has it in memory. With `appendfsync always` it also has it on its disk, and nothing is lost, whatever
is killed. With `everysec`, its default, it may lose the last second or two when it is killed by KILL, and without an append-only file it
loses all. This depends on the server's configuration, and no client can see it."""

from __future__ import annotations

import re
import secrets
import socket

from .. import pressure
from ..errors import Busy, NotYours
from .ends import LEASE, Note, Parcel, Source, Target, key_of, way


class _Held(Parcel):
    def __init__(self, message: pressure.Message, key: str) -> None:
        super().__init__(message.body, key)
        self.message = message

    def done(self) -> None:
        try:
            self.message.done()
        except Busy as error:
            raise NotYours(str(error), 66) from None

    def keep(self) -> None:
        self.message.keep()

    def back(self) -> None:
        self.message.role.give()


class Pressure(Target):
    """A pressure queue, to which messages go. We are its producer only while `give` runs, so nobody waits long for a shovel that was killed."""

    #: The lease in seconds: a shovel that is killed while it waits for room keeps other producers out for this long
    PUT = 1

    def __init__(self, url: str) -> None:
        self.queue, self.name = pressure.Queue.at(url, lease=self.PUT), re.sub(r"//[^/@]*@", "//", url)

    def give(self, parcel: Parcel, wait: float) -> None:
        self.queue.put(parcel.body, wait)


class PressureSource(Source):
    """We are its consumer while a message is in hand. The message stays at the queue's head until the target has it, so none overtakes it,
    whichever process is killed. The note is our identifying value, by which the next start knows that the dead consumer was a shovel."""

    def __init__(self, url: str, towards: str) -> None:
        self.queue, self.name = pressure.Queue.at(url, lease=LEASE), re.sub(r"//[^/@]*@", "//", url)
        self.way = way(self.name, towards)
        self.note: Note | None = None
        #: whether the role of one that was killed is given back
        self.left = False

    def take(self, wait: float) -> Parcel:
        if self.note is None:
            note = Note(self.way, self.name)
            ours = note.text if note.text.isascii() else b""
            self.note = note.first(ours or f"{socket.gethostname()}:{self.way}:{secrets.token_hex(4)}".encode())
            self.queue.client = self.note.text.decode()
        if not self.left:
            self.queue.leave()
            self.left = True
        message = self.queue.hold(wait)
        try:
            # the server, the queue, its creation, the number of messages taken out before and, if it has no append-only file, this start of the server
            said = self.queue.info()
            start = self.queue.created() + ("" if said.get("aof_enabled") else str(said.get("run_id")))
            place = self.queue.stats()["consumed_messages"]
        except BaseException:
            message.role.give()
            raise
        return _Held(message, key_of(self.name, start, place, body=message.body))

    def close(self) -> None:
        note, self.note = self.note, None
        if note:
            note.close()
