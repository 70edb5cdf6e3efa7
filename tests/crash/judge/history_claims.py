"""What one NAME of `claim` holds, as far as a history proves it: its operations come one after the
other.

Offsets grow, and none is given twice. A listed message is listed again, first and at the same
offset, until it is settled or given back. A settled message never comes again, one given back does
(history_model.py checks both). While it is held, no other consumer gets it. """
from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from .history_events import Event, Hold

VERBS = ("claim", "settle", "unclaim")
_SEGMENT = re.compile(rb"(0|[1-9]\d*) [1-9]\d* /.+")


def sound(event: Event) -> bool:
    """Whether the output of a claim is a valid list."""
    return all(_SEGMENT.fullmatch(line) for line in event.out.splitlines()) and (
        event.out[-1:] == b"\n") == (event.status == 0)


class Name:
    """`held`: what has been listed and is neither settled nor given back for certain, by offset;
    `following`: no offset before it is given any more."""

    def __init__(self, say: Callable[..., None], hold: Callable[[Event, int], Hold],
            known: dict[int, Event]) -> None:
        self.say, self.hold, self.known = say, hold, known
        self.held: dict[int, Hold] = {}
        self.following = 0
        self.killed: list[Event] = []  # claims whose messages are unknown

    def read(self, event: Event, listed: dict[int, int]) -> list[Hold]:
        """An operation of this name; of a claim that ended, the numbers of the messages by offset.
        What the operation itself has taken."""
        if event.verb == "settle":
            self._use(event, int(event.words[3]))
        elif event.verb == "unclaim":
            self._use(event, self.following)
        elif event.killed:
            self.killed.append(event)
        else:
            return self._list(event, listed)
        return []

    def _use(self, event: Event, end: int) -> None:
        for offset in [offset for offset in self.held if offset < end]:
            self.held[offset].uses.append(event)
            if event.done:
                del self.held[offset]
        if event.done and event.verb == "unclaim":
            self._known(event)

    def _known(self, event: Event) -> None:
        self.known.update((id(killed), event) for killed in self.killed)
        self.killed.clear()

    def _list(self, event: Event, listed: dict[int, int]) -> list[Hold]:
        for offset in [offset for offset in self.held if offset not in listed]:
            hold = self.held.pop(offset)
            if not any(use.killed for use in hold.uses):
                self.say(f"message {hold.number} is claimed, and not listed any more", hold.event,
                    event)
        new = [offset for offset in listed if offset not in self.held]
        if new and not self.killed and len(listed) > int(event.option("-n")):
            self.say(f"{len(listed)} messages are held, and {event.option('-n')} were wanted",
                event)
        if list(listed) != sorted(listed) or self.held and new and min(new) < max(self.held):
            self.say(f"not in the order of the offsets: {list(listed)}", event)
        if new and min(new) < self.following:
            self.say(f"offset {min(new)} was given before", event)
        for offset, hold in self.held.items():
            if listed[offset] != hold.number:
                self.say(f"message {hold.number} is claimed, and at its offset {listed[offset]} "
                    "is listed", hold.event, event)
        # one that was killed may have taken them before
        begun = dataclasses.replace(event, start=self.killed[0].start,
            up_start=self.killed[0].up_start) if self.killed else event
        taken = [self.hold(begun, listed[offset]) for offset in new]
        self.held.update(zip(new, taken))
        self.following = max([self.following, *(offset + 1 for offset in listed)])
        self._known(event)
        return taken if begun is event else []


def excludes(hold: Hold, other: Hold) -> bool:
    """Whether the message was claimed by `hold`, for certain, all the time in which `other` got
    it."""
    return other.event.start >= hold.event.end and all(use.start >= other.event.end
        for use in hold.uses)


def back(hold: Hold, by: Event) -> bool:
    """Whether what was claimed has been given back for certain when `by` begins. Neither a death
    nor a restart does that."""
    return any(use.verb == "unclaim" and use.done and use.end <= by.start for use in hold.uses)
