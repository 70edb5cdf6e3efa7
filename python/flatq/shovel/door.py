"""A queue behind a line door, as an end of a shovel."""

from __future__ import annotations

import time

from ..errors import Disk, Empty, Error, Internal, Invalid, Missing, NotYours
from . import line
from .ends import LEASE, Parcel, Reserving, Target, key_of, refused


class Door(Target):
    """A queue behind a door, to which messages go."""

    def __init__(self, place: str) -> None:
        self.client, self.name = line.Client(place), place

    def give(self, parcel: Parcel, wait: float) -> None:
        words = ["-n", str(len(parcel.body)), "-k", parcel.key, "-w", line.seconds(wait)]
        for letter, value in (("-p", parcel.priority), ("-t", parcel.lease)):
            words += [] if value is None else [letter, str(value)]
        try:
            self.client.ask("push", *words, self.client.queue, body=parcel.body, wait=wait)
        except Invalid as error:
            raise refused(error) from None

    def close(self) -> None:
        self.client.close()


class _Reserved(Parcel):
    def __init__(self, source: DoorSource, receipt: str, body: bytes) -> None:
        # the door, the queue and the id
        number = int(receipt.rpartition(":")[2].partition(".")[0])
        super().__init__(body, key_of(source.client.place, source.client.queue, number, body=body))
        self.source, self.receipt = source, receipt

    def _say(self, verb: str, *words: str) -> None:
        self.source.client.ask(verb, *words, self.receipt)

    def done(self) -> None:
        self.source.write("given", self.receipt)
        self._say("delete")

    def keep(self) -> None:
        self._say("touch", "-t", str(LEASE))

    def back(self) -> None:
        self._say("release")
        self.source.write("nothing")

    def bury(self) -> None:
        self._say("bury", "-r", "too-big")


class DoorSource(Reserving):
    """A message in hand is reserved at the door. The next start goes on with the message of the note before any other. There, `held RECEIPT` has the
    length behind it: a part of an answer may be lost on the way, while its last line comes, and a peek states no length."""

    KNOWN = f"nothing|held {Reserving.RECEIPT} [0-9]{{1,18}}|given {Reserving.RECEIPT}|"
    #: seconds that a request waits there, and then all that is under way there has come to its end, should we be cut off
    WAIT, GRACE = 2, 3

    def __init__(self, place: str, towards: str) -> None:
        self.client = line.Client(place)
        #: what _go_on was already told: the receipt of the note, and its message
        self.seen: tuple[str, bytes] | None = None
        super().__init__(place, self.client.place, towards)

    def take(self, wait: float) -> Parcel:
        self.open_note()
        parcel = self._go_on() if len(self.left) > 1 else None
        self.left = []
        if parcel:
            return parcel
        if self.doubt:
            self._sure()
        self.write("asked")
        began, wait = time.monotonic(), min(wait, self.WAIT)
        # In doubt until there is an answer
        self.doubt.arise()
        try:
            answer = self.client.ask("reserve", "-w", line.seconds(wait), "-t", str(LEASE), self.client.queue, wait=wait)
        except Error as error:
            # A verb that failed, or ended without an answer, may have reserved it
            if not isinstance(error, (line.Cut, Disk, Internal)):
                self.doubt.end()
            # a door for one connection at a time does not wait
            if isinstance(error, Empty) and wait and time.monotonic() - began < 0.5:
                time.sleep(0.5)
            raise
        head, _, body = answer.partition(b"\n")
        # RECEIPT ID TRIES LENGTH
        words = head.decode(errors="replace").split(" ")
        if len(words) != 4 or words[3] != str(len(body)):
            raise self._cut()
        receipt = words[0]
        self.write("held", receipt, words[3])
        self.doubt.end()
        return _Reserved(self, receipt, body)

    def _go_on(self) -> Parcel | None:
        """With what the note says; None where that is done, or no longer ours: then it is at its old place, or gone."""
        word, receipt, *length = self.left
        try:
            if word == "given":
                self.client.ask("delete", receipt)
                return None
            if not self.seen or self.seen[0] != receipt:
                # QUEUE:ID.TRIES.NONCE. A queue's name may have dots, too
                queue, _, rest = receipt.rpartition(":")
                body = self.client.ask("peek", f"{queue}:{rest.partition('.')[0]}")
                self.seen = receipt, body
            # Last, and alone where take() tries again: a door for one connection at a time may refuse a second request that follows at once
            self.client.ask("touch", "-t", str(LEASE), receipt)
            # Not before: another message may have its id, where the spool was made anew
            if [str(len(self.seen[1]))] != length:
                self.seen = None
                raise self._cut()
            return _Reserved(self, *self.seen)
        except (NotYours, Empty, Missing, Invalid):
            return None

    def _cut(self) -> line.Cut:
        return line.Cut(f"{self.client.place}: no whole answer: a part of the message is missing", 69)

    def _sure(self) -> None:
        age = self.doubt.age()
        if age < LEASE + self.WAIT and (age < self.GRACE or self._reserved()):
            self.doubt.wait()
        self.doubt.end()

    def _reserved(self) -> bool:
        """Whether anything is reserved there: if so, it may be for us."""
        try:
            rows = self.client.ask("stat", self.client.queue).decode().splitlines()
        except Missing:
            return False
        return "reserved 0" not in rows

    def close(self) -> None:
        self.client.close()
        super().close()
