"""A queue behind a line door, as an end of a shovel."""

from __future__ import annotations

import time

from ..errors import Empty, Invalid
from . import line
from .ends import LEASE, Parcel, Source, Target, key_of, refused


class Door(Target):
    """A queue behind a door, to which messages go."""

    def __init__(self, place: str) -> None:
        self.client, self.name = line.Client(place), place
        self.close = self.client.close  # type: ignore[method-assign]

    def give(self, parcel: Parcel, wait: float) -> None:
        """Push the message."""
        words = ["-n", str(len(parcel.body)), "-k", parcel.key, "-w", line.seconds(wait)]
        for letter, value in (("-p", parcel.priority), ("-t", parcel.lease)):
            words += [] if value is None else [letter, str(value)]
        try:
            self.client.ask("push", *words, self.client.queue, body=parcel.body, wait=wait)
        except Invalid as error:
            raise refused(error) from None


class _Reserved(Parcel):
    def __init__(self, client: line.Client, receipt: str, body: bytes) -> None:
        # The receipt is QUEUE:ID.TRIES.NONCE
        number = int(receipt.rpartition(":")[2].partition(".")[0])
        super().__init__(body, key_of(client.place, client.queue, number, body=body))
        self.ask, self.receipt = client.ask, receipt

    def done(self) -> None:
        self.ask("delete", self.receipt)

    def keep(self) -> None:
        self.ask("touch", "-t", str(LEASE), self.receipt)

    def back(self) -> None:
        self.ask("release", self.receipt)

    def bury(self) -> None:
        self.ask("bury", "-r", "too-big", self.receipt)


class DoorSource(Source):
    """A message in hand is reserved at the door: if we are cut off, it comes back after LEASE."""

    def __init__(self, place: str) -> None:
        self.client, self.name = line.Client(place), place
        self.close = self.client.close  # type: ignore[method-assign]

    def take(self, wait: float) -> Parcel:
        """Reserve the next message; a request waits there for 2 seconds at most."""
        began, wait = time.monotonic(), min(wait, 2)
        words = ["-w", line.seconds(wait), "-t", str(LEASE), self.client.queue]
        try:
            answer = self.client.ask("reserve", *words, wait=wait)
        except Empty:
            # A door for one connection at a time does not wait
            if wait and time.monotonic() - began < 0.5:
                time.sleep(0.5)
            raise
        head, _, body = answer.partition(b"\n")
        receipt, *length = head.decode(errors="replace").split(" ")
        # RECEIPT ID TRIES LENGTH: a part of the answer may be lost on the way
        if length[2:] != [str(len(body))]:
            raise line.Cut(f"{self.client.place}: a part of the message is missing", 69)
        return _Reserved(self.client, receipt, body)
