"""A queue of flatq, here or behind a line door, as an end of a shovel. Each step is a verb.

Those to an ssh:// place share one connection, OpenSSH's ControlMaster, until the end is closed.
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
from ..slips import Slip, disk_name, slip_of, spool_of
from .ends import LEASE, Parcel, Source, Target, TooLarge, key_of


class Local(Source, Target):
    """A message in hand is reserved: if we are killed, it comes back after LEASE seconds."""

    def __init__(self, place: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(place, path), place
        self.directory = ""
        if self.queue.host.startswith("ssh://"):
            # Not in $TMPDIR: a socket's path has at most 107 bytes, and FLATQ_SSH is words
            self.directory = tempfile.mkdtemp(prefix="flatq.", dir="/tmp")
            self.ssh = [*(os.environ.get("FLATQ_SSH") or "ssh -o BatchMode=yes").split(),
                        "-o", f"ControlPath={self.directory}/s"]
            shared = ["-o", "ControlMaster=auto", "-o", f"ControlPersist={LEASE}"]
            self.queue.env["FLATQ_SSH"] = " ".join([*self.ssh, *shared])

    def close(self) -> None:
        if os.path.exists(f"{self.directory}/s"):
            with contextlib.suppress(OSError):
                subprocess.run([*self.ssh, "-O", "exit", "it"], stdin=subprocess.DEVNULL,
                               capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def give(self, parcel: Parcel, wait: float) -> None:
        try:
            self.queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease,
                            key=parcel.key, wait=wait)
        except Invalid as error:
            if "over the limit" in str(error):
                raise TooLarge(str(error), 65, error.verb) from None
            raise

    def take(self, wait: float) -> Parcel:
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
            return self._parcel(message, None, *where)
        place = os.path.join(spool_of(self.queue.path), disk_name(self.name))
        nonce = message.receipt.rpartition(".")[2]
        # The name of its slip has its priority, lease and birth
        for slip in filter(None, map(slip_of, os.listdir(os.path.join(place, "out")))):
            if slip.id == message.id and slip.nonce == nonce:
                # Another spool has another directory
                inode = os.stat(place).st_ino
                return self._parcel(message, slip, socket.gethostname(), self.name, inode, slip.id,
                                    slip.born)
        raise Busy(f"queue '{self.name}': the lease of a message was over at once")

    def _parcel(self, message: Reserved, slip: Slip | None, *where: object) -> Parcel:
        priority = slip and slip.priority
        return Parcel(
            message.body, key_of(*where, body=message.body), priority, slip and slip.lease,
            done=message.delete, back=message.release, keep=lambda: message.touch(lease=LEASE),
            bury=lambda: message.bury(reason="too-big", priority=priority))
