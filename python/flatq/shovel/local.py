"""A queue of flatq, here or behind a line door, as an end of a shovel.

Each step is a verb. Those to an ssh:// place share one connection: OpenSSH's ControlMaster keeps
it until the end is closed, or LEASE seconds after the last verb of a process that was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time

from ..errors import Busy, Empty, Invalid
from ..queue import Queue, Reserved
from ..slips import Slip, slip_of
from .ends import LEASE, Parcel, Source, Target, key_of, refused


class _End:
    def __init__(self, place: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(place, path), place
        self.directory = ""
        if self.queue.host.startswith("ssh://"):
            # A socket's path has at most 107 bytes, and FLATQ_SSH is words
            usual = tempfile.gettempdir()
            fits = len(usual) < 70 and len(usual.split()) == 1
            self.directory = tempfile.mkdtemp(prefix="flatq.", dir=usual if fits else "/tmp")
            self.ssh = [*(os.environ.get("FLATQ_SSH") or "ssh -o BatchMode=yes").split(),
                        "-o", f"ControlPath={self.directory}/s"]
            shared = ["-o", "ControlMaster=auto", "-o", f"ControlPersist={LEASE}"]
            self.queue.env["FLATQ_SSH"] = " ".join([*self.ssh, *shared])

    def close(self) -> None:
        """End the connection, if there is one."""
        if os.path.exists(f"{self.directory}/s"):
            null = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                subprocess.run([*self.ssh, "-O", "exit", "it"], stdin=null, stdout=null, stderr=null)
        shutil.rmtree(self.directory, ignore_errors=True)


class _Reserved(Parcel):
    def __init__(self, message: Reserved, key: str, slip: Slip | None) -> None:
        super().__init__(message.body, key, slip and slip.priority, slip and slip.lease)
        self.message = message
        self.done, self.back = message.delete, message.release  # type: ignore[method-assign]

    def keep(self) -> None:
        self.message.touch(lease=LEASE)

    def bury(self) -> None:
        self.message.bury(reason="too-big", priority=self.priority)


class Local(_End, Source):
    """A message in hand is reserved: if we are killed, or cut off, it comes back after LEASE."""

    def take(self, wait: float) -> Parcel:
        """Return the next message.

        Raises Missing if `wait` is 0 and there is no such queue here.
        """
        began = time.monotonic()
        try:
            message = self.queue.reserve(wait=min(wait, 2) if self.queue.host else wait,
                                         lease=LEASE)
        except Empty:
            if not self.queue.host and not wait:
                self.queue.stats()
            # A door for one connection at a time does not wait
            elif wait and time.monotonic() - began < 0.5:
                time.sleep(0.5)
            raise
        if self.queue.host:
            where = self.queue.host, self.queue.name, int(message.id)
            return _Reserved(message, key_of(*where, body=message.body), None)
        return self._here(message)

    def _here(self, message: Reserved) -> Parcel:
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        spool = self.queue.path or os.environ.get("FLATQ_DIR") or os.path.join(home, "flatq")
        place = os.path.join(spool, self.name.replace("/", ","))
        nonce = message.receipt.rpartition(".")[2]
        # The name of its slip has its priority, lease and birth
        for slip in filter(None, map(slip_of, os.listdir(os.path.join(place, "out")))):
            if slip.id == message.id and slip.nonce == nonce:
                # Another spool has another directory
                inode = os.stat(place).st_ino
                key = key_of(socket.gethostname(), self.name, inode, slip.id, slip.born,
                             body=message.body)
                return _Reserved(message, key, slip)
        raise Busy(f"queue '{self.name}': the lease of a message was over at once", 75)


class Here(_End, Target):
    """A queue to which messages go."""

    def give(self, parcel: Parcel, wait: float) -> None:
        """Push the message."""
        try:
            self.queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease,
                            key=parcel.key, wait=wait)
        except Invalid as error:
            raise refused(error) from None
