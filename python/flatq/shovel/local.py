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

    def done(self) -> None:
        self.message.delete()

    def keep(self) -> None:
        self.message.touch(lease=LEASE)

    def back(self) -> None:
        self.message.release()

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
        """Raises Missing if there is no such queue and it should not wait for one."""
        try:
            message = self.queue.reserve(wait=wait, lease=LEASE)
        except Empty:
            if not wait:
                self.queue.stats()
            raise
        slip = self._slip(message)
        # host, queue, its directory (another spool has another), id, and time of birth
        where = (socket.gethostname(), self.name, os.stat(self.place).st_ino, slip.id, slip.born)
        return _Reserved(message, key_of(*where, body=message.body), slip)

    def _slip(self, message: Reserved) -> Slip:
        """The slip of a reserved message, whose name has its priority, lease and birth."""
        nonce = message.receipt.rpartition(".")[2]
        for name in os.listdir(os.path.join(self.place, "out")):
            slip = slip_of(name)
            if slip and slip.id == message.id and slip.nonce == nonce:
                return slip
        raise Busy(f"queue '{self.name}': the lease of a message was over at once", 75)


class Here(Target):
    """A queue of this machine, to which messages go."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(name, path), name

    def give(self, parcel: Parcel, wait: float) -> None:
        try:
            self.queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease,
                            key=parcel.key, wait=wait)
        except Invalid as error:
            raise refused(error) from None
