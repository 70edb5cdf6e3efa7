"""Queues on Redis as ends of a shovel: pressure's, and plain lists."""

from __future__ import annotations

import re
import secrets
import time

from .. import pressure
from ..errors import Busy, Empty, NotYours
from .ends import LEASE, Parcel, Source, Target, key_of


def _at(url: str) -> tuple[pressure.Queue, str]:
    """Return the queue at a URL, and its name, without the password."""
    pressure.library()
    return pressure.Queue.at(url), re.sub(r"//[^/@]*@", "//", url)


class Pressure(Source, Target):
    """We are the queue's consumer while a message is in hand, which stays at its head."""

    def __init__(self, url: str) -> None:
        self.queue, self.name = _at(url)

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
                raise NotYours(str(error)) from None

        return Parcel(message.body, key_of(self.name, start, place, body=message.body), done=done,
                      keep=message.keep, back=message.role.give)


#: KEYS: owner, hand, list, key; ARGV: action, our name, milliseconds, body. Only the owner ends
#: what is in hand: another may have taken over when its lease had ended
_STEP = """
local owner = redis.call('get', KEYS[1])
if ARGV[1] == 'own' and (not owner or owner == ARGV[2]) then
  redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
  return 1
end
if owner ~= ARGV[2] then return 0 end
if ARGV[1] == 'leave' then return redis.call('del', KEYS[1]) end
if redis.call('lrem', KEYS[2], 1, ARGV[4]) == 0 then return 0 end
if ARGV[1] == 'back' then redis.call('rpush', KEYS[3], ARGV[4]) else redis.call('del', KEYS[4]) end
return 1
"""


class List(Source, Target):
    """A plain list: producers LPUSH, consumers take from its end.

    What is in hand lies in KEY:flatq, and KEY:flatq:key has its parcel's key. One shovel at a time
    takes from a list: KEY:flatq:owner is its name, for a lease.
    """

    def __init__(self, url: str) -> None:
        self.queue, self.name = _at(url)
        self.list, self.us = self.queue.raw, secrets.token_hex(8)
        self.owner, self.hand, self.key = (
            self.list + end for end in (b":flatq:owner", b":flatq", b":flatq:key"))

    def give(self, parcel: Parcel, wait: float) -> None:
        self.queue.ask(lambda redis: redis.lpush(self.list, parcel.body))

    def take(self, wait: float) -> Parcel:
        end = time.monotonic() + wait
        while True:
            self._own()
            # First what a shovel had in hand that was killed
            body = self.queue.ask(lambda redis: redis.lindex(self.hand, -1))
            left = min(end - time.monotonic(), LEASE / 3)
            if body is None and left <= 0:
                body = self.queue.ask(
                    lambda redis: redis.lmove(self.list, self.hand, "RIGHT", "LEFT"))
                if body is None:
                    raise Empty(f"{self.name}: nothing there")
            elif body is None:
                body = self.queue.ask(lambda redis: redis.blmove(
                    self.list, self.hand, max(left, 0.01), "RIGHT", "LEFT"))
            if body is not None:
                return self._parcel(body)

    def _parcel(self, body: bytes) -> Parcel:
        self.queue.ask(lambda redis: redis.set(self.key, secrets.token_hex(8), nx=True))
        key = self.queue.ask(lambda redis: redis.get(self.key))
        return Parcel(body, key_of(self.name, key, body=body), keep=self._own,
                      done=lambda: self._end("done", body), back=lambda: self._end("back", body))

    def close(self) -> None:
        self._step("leave")

    def _own(self) -> None:
        if not self._step("own"):
            raise Busy(f"{self.name}: another shovel takes from it", 73)

    def _end(self, action: str, body: bytes) -> None:
        if not self._step(action, body):
            raise NotYours(f"{self.name}: another shovel has taken the message over")

    def _step(self, action: str, body: bytes = b"") -> int:
        return int(self.queue.ask(lambda redis: redis.eval(
            _STEP, 4, self.owner, self.hand, self.list, self.key, action, self.us, LEASE * 1000,
            body)))
