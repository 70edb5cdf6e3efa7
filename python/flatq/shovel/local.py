"""A queue of this machine, as an end of a shovel."""

from __future__ import annotations

import os
import socket

from ..errors import Busy, Empty, Invalid
from ..queue import Queue, Reserved
from ..slips import Slip, slip_of
from .ends import LEASE, Parcel, Source, Target, key_of, refused


class _Reserved(Parcel):
    def __init__(self, message: Reserved, key: str, slip: Slip) -> None:
        super().__init__(message.body, key, slip.priority, slip.lease)
        self.message = message
        self.done, self.back = message.delete, message.release  # type: ignore[method-assign]

    def keep(self) -> None:
        self.message.touch(lease=LEASE)

    def bury(self) -> None:
        self.message.bury(reason="too-big", priority=self.priority)


class Local(Source):
    """A message in hand is reserved: if this process is killed, it comes back after LEASE."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(name, path), name
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        spool = path or os.environ.get("FLATQ_DIR") or os.path.join(home, "flatq")
        self.place = os.path.join(spool, name.replace("/", ","))

    def take(self, wait: float) -> Parcel:
        """Return the next message; raise Missing if `wait` is 0 and there is no such queue."""
        try:
            message = self.queue.reserve(wait=wait, lease=LEASE)
        except Empty:
            if not wait:
                self.queue.stats()
            raise
        nonce = message.receipt.rpartition(".")[2]
        # The name of its slip has its priority, lease and birth
        for slip in filter(None, map(slip_of, os.listdir(os.path.join(self.place, "out")))):
            if slip.id == message.id and slip.nonce == nonce:
                # Another spool has another directory
                inode = os.stat(self.place).st_ino
                key = key_of(socket.gethostname(), self.name, inode, slip.id, slip.born,
                             body=message.body)
                return _Reserved(message, key, slip)
        raise Busy(f"queue '{self.name}': the lease of a message was over at once", 75)


class Here(Target):
    """A queue of this machine, to which messages go."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(name, path), name

    def give(self, parcel: Parcel, wait: float) -> None:
        """Push the message."""
        try:
            self.queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease,
                            key=parcel.key, wait=wait)
        except Invalid as error:
            raise refused(error) from None
