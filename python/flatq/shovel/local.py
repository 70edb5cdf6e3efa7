"""A queue of this machine, as an end of a shovel."""

from __future__ import annotations

import base64
import collections
import contextlib
import os
import socket
import time
from typing import Any

from ..errors import Closed, Empty, Full, Invalid, Missing
from ..queue import Queue
from ..slips import slip_of
from .ends import Damaged, Note, Parcel, Source, Taken, Target, key_of, refused, way

#: The number of messages that are claimed at once
CLAIM = 16


class _Claimed(Parcel):
    def __init__(self, source: Local, inode: int, offset: int, slip: bytes, text: bytes) -> None:
        said = slip_of(os.fsdecode(slip))
        try:
            body = base64.b64decode(text, validate=True)
        except ValueError:
            said = None
        if not said or len(body) != said.size:
            raise Damaged(f"queue '{source.queue}': a damaged message among those claimed as {source.consumer}", 74)
        # host, queue, its directory (another spool of this host has another), id and the hundredth of a second of birth
        where = (socket.gethostname(), source.queue, inode, said.id, said.born)
        super().__init__(body, key_of(*where, body=body), said.priority, said.lease)
        self.source, self.note = source, b"%d %s" % (offset, slip)
        #: If it is the last message of a segment, the offset after it
        self.end: int | None = None

    def done(self) -> None:
        self.source.moved(self)

    def back(self) -> None:
        """It is still the first in the line."""

    def bury(self) -> None:
        # A claimed message cannot be buried: push it again, as the most urgent, take that, and bury it. A verb for it would have to split the
        # segment that the message is claimed in, and both halves would need offsets: more of the engine for a case as rare as this
        here = self.source.here
        try:
            known = here.push(self.body, priority=0, lease=self.lease, key=self.key, wait=2)
        except (Closed, Full) as error:
            # Our own claims may fill the queue: waiting longer would be for ever
            text = str(error).removeprefix("push: ")
            raise Invalid(f"a message that is too large for the other end cannot be set aside, and is still there: {text}", 65) from None
        held: list[Any] = []
        try:
            while not known.dup:
                message = here.reserve()
                if message.id == known:
                    message.bury(reason="too-big", priority=self.priority)
                    break
                held.append(message)
        except (Empty, Closed):
            # Another consumer has taken it
            pass
        finally:
            for message in held:
                message.release()
        self.done()


class Local(Source):
    """Messages in hand are claimed: they are held across crashes, in their order, for the next shovel to the same place. The note is the offset of the
    segment of the last message that was moved, and its slip, so a killed shovel repeats at most one message. The offset, since another claim may hold
    the same message behind others that were not moved."""

    def __init__(self, queue: str, towards: str, path: str | None = None) -> None:
        self.here, self.path, self.name = Queue(queue, path), path, queue
        self.queue = self.here.name
        self.consumer = way(queue, towards)
        self.line: collections.deque[_Claimed] = collections.deque()
        #: whether all that is claimed is in the line, and so known
        self.sure = True
        self.note: Note | None = None
        #: seconds until it looks again while nothing is there
        self.pause = 0.05

    def take(self, wait: float) -> Parcel:
        """Raises Missing if there is no such queue and it should not wait for one; Damaged."""
        if self.note is None:
            self.note = Note(self.consumer, f"queue '{self.queue}'", self.path)
        end = time.monotonic() + wait
        while not self.line:
            self.sure = False
            try:
                # The messages that a killed shovel held come first
                segments = self.here.claim(self.consumer, min(CLAIM, self.most))
            except Empty:
                self.sure = True
                if not wait:
                    # While we wait, the queue may be created
                    self.here.stats()
                left = end - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(self.pause, left))
                self.pause = min(self.pause * 1.5, 1.0)
                continue
            self.pause = 0.05
            try:
                for segment in segments:
                    self._read(self.note.text, *segment)
            except Damaged:
                # Leave all that is claimed for the next start: close() is neither to look again nor to give anything back
                self.line.clear()
                self.sure, self.begun = True, False
                raise
            self.sure = True
        # It stays in the line until it is moved: a signal may come before the caller has it
        return self.line[0]

    def _read(self, last: bytes, offset: int, count: int, path: str) -> None:
        rows: list[list[bytes]] = []
        try:
            # QUEUE/claimed/NAME/SEGMENT
            inode = os.stat(os.path.join(path, "../../..")).st_ino
            for name in sorted(os.listdir(path)):
                with open(os.path.join(path, name), "rb") as flat:
                    rows += [line.split(b"\t") for line in flat.read().splitlines()]
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}", 74) from None
        if len(rows) != count or any(len(row) != 2 for row in rows):
            raise Damaged(f"{path}: damaged: {len(rows)} messages, not {count}", 74)
        moved = next((place + 1 for place, row in enumerate(rows) if b"%d %s" % (offset, row[0]) == last), 0)
        if moved == count:
            self._settle(offset + count)
            return
        if moved:
            self.begun = True
        self.line += [_Claimed(self, inode, offset, slip, text) for slip, text in rows[moved:]]
        self.line[-1].end = offset + count

    def moved(self, parcel: _Claimed) -> None:
        """Note that this message, and all before it, have been moved."""
        assert self.note is not None
        # First: if the note fails, the message is moved all the same, and close() must not give it back
        self.begun = True
        # Only once: where the note or the settle fails, this is called again
        if self.line and self.line[0] is parcel:
            self.line.popleft()
        self.note.write(parcel.note)
        if parcel.end is not None:
            self._settle(parcel.end)

    def _settle(self, end: int) -> None:
        self.here.settle(self.consumer, end)
        self.begun = False

    def close(self) -> None:
        note, self.note = self.note, None
        if note is None:
            return
        try:
            if not self.sure:
                self._look_again(note.text)
            if self.begun:
                raise Taken(f"queue '{self.queue}': {len(self.line)} messages stay claimed as {self.consumer}, for the next start", 75)
            if self.line:
                self.here.unclaim(self.consumer)
        finally:
            note.close()

    def _look_again(self, last: bytes) -> None:
        """A claim was interrupted, and may have succeeded: put all that is claimed in the line. `last`: the note of the last message that was moved."""
        self.line.clear()
        with contextlib.suppress(Empty, Closed, Missing):
            for segment in self.here.claim(self.consumer, 0):
                self._read(last, *segment)
        self.sure = True


class Here(Target):
    """A queue of this machine, to which messages go."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.queue, self.name = Queue(name, path), name

    def give(self, parcel: Parcel, wait: float) -> None:
        try:
            self.queue.push(parcel.body, priority=parcel.priority, lease=parcel.lease, key=parcel.key, wait=wait)
        except Invalid as error:
            raise refused(error) from None
