"""A tube of a beanstalkd, as an end of a shovel."""

from __future__ import annotations

from ..errors import Invalid
from . import stalk
from .ends import LEASE, Connected, Parcel, Target, TooLarge, key_of


class Tube(Target):
    """A tube, to which messages go."""

    def __init__(self, url: str) -> None:
        self.client, self.name = stalk.Client(url), url

    def give(self, parcel: Parcel, wait: float) -> None:
        try:
            self.client.put(parcel.body, parcel.priority, parcel.lease)
        except Invalid as error:
            raise TooLarge(str(error), 65) from None

    def close(self) -> None:
        self.client.close()


class _Job(Parcel):
    def __init__(self, client: stalk.Client, job: stalk.Job) -> None:
        # the server, the tube, the job's id and, if ids begin anew with each start of the server (no binlog), this start
        super().__init__(job.body, key_of(client.place, client.incarnation, job.id, body=job.body), job.priority, job.ttr)
        self.client, self.job = client, job

    def done(self) -> None:
        self.client.delete(self.job)

    def keep(self) -> None:
        self.client.touch(self.job)

    def back(self) -> None:
        self.client.release(self.job)

    def bury(self) -> None:
        self.client.bury(self.job)


class TubeSource(Connected):
    """A message in hand is reserved by our connection; when that ends, it is back at its old place. The server may notice that end after the
    first commands of the next connection. So after a connection that broke, ours or a killed shovel's, nothing is taken while a job of
    the tube is reserved, for at most LEASE seconds; after that, another consumer holds it. The note is `open` while there is a connection."""

    def __init__(self, url: str, towards: str) -> None:
        self.client = stalk.Client(url)
        super().__init__(url, self.client.place, towards)

    def take(self, wait: float) -> Parcel:
        self.open_note()
        if self.client.broken():
            self.doubt.arise()
        if self.doubt:
            if self.client.reserved() and self.doubt.age() < LEASE:
                self.doubt.wait()
            self.doubt.end()
        return _Job(self.client, self.client.reserve(wait))

    def close(self) -> None:
        self.client.close()
        note, self.note = self.note, None
        if note:
            note.last(b"closed")
