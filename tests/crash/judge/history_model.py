"""What is certain about a history, and what contradicts it.

Every operation has an interval, from before its start until all its processes have ended; its
effect lies somewhere in it. Only what no choice of moments can explain is reported as wrong, so
there are no false alarms.

    held     a message may be away from its queue from the start of an operation that wrote it out
             until it was surely back
    unseen   an operation that was killed before it wrote may hold up to so many messages, nobody
             knows which, until they are surely back
    back     a dead owner's message, or one whose lease is over, is surely back after a checkpoint,
             or a pop that found nothing, that began after that; for a pop that says "nothing there"
             itself it counts as there, as soon as it began after that
    there    a message is surely ready all through an operation if it was stored before, is not held
             in between, and is taken later
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

#: Verbs that hand out a message until it is settled or given back, by its receipt. A claim is a
#: reservation without an end, which settle and unclaim end.
KEEPS = ("reserve", "claim")
TAKES = ("pop", "drain", *KEEPS)
SLACK = 0.04  # seconds: the clock has hundredths, and is read twice
STATUSES = {"push": {0, 75}, **dict.fromkeys((*TAKES, "delete", "release", "touch", "bury",
    "unclaim"), {0, 66})}
# The first verb after a restart reports what it has swept
SWEPT = re.compile(rb"queue '[^']*': what a killed push left of \d+ was removed\n")


@dataclass(frozen=True)
class Message:
    """A message that was to be stored."""

    number: int
    body: bytes
    priority: int
    lease: int  # seconds
    key: str


@dataclass
class Event:
    """One operation; `start` and `end` in seconds."""

    who: str
    words: tuple[str, ...]
    fault: str = ""
    messages: tuple[int, ...] = ()
    receipt: str = ""
    start: float = 0.0
    end: float = 0.0
    status: int = 0
    killed: bool = False
    out: bytes = b""
    err: bytes = b""
    claimed: Sequence[bytes | None] = ()  # the messages in the directories that a claim has listed

    @property
    def verb(self) -> str:
        return self.words[0]

    @property
    def done(self) -> bool:
        return self.status == 0 and not self.killed

    @property
    def nothing(self) -> bool:
        """Whether it says that nothing is there; 66 is also that a message is no longer its own."""
        return self.verb in TAKES and self.status == 66 and not self.out and (
            b"no longer yours" not in self.err)

    def option(self, letter: str) -> str:
        return self.words[self.words.index(letter) + 1] if letter in self.words else ""

    def over(self, lease: float, at: Event) -> bool:
        """Whether what it took could be put back when `at` began: the lease had ended or, of a pop,
        its owner."""
        if self.verb in KEEPS:
            return at.start >= self.end + lease + SLACK
        return at.start >= self.end

    def line(self, began: float) -> str:
        said = "killed" if self.killed else f"exit {self.status}"
        what = f" of {','.join(map(str, self.messages))}" if self.messages else ""
        return (f"    {self.start - began:8.4f} to {self.end - began:8.4f} {self.who:>14}  "
            f"{' '.join(self.words)}{what}"
            f"{f' ({self.fault})' if self.fault else ''}: {said} {self.out[:60]!r} "
            f"{self.err[:120]!r}")


@dataclass
class Hold:
    """A message was handed out by `event`; `whole`: all of its bytes were written; `uses`: the
    operations with its receipt."""

    event: Event
    message: Message
    whole: bool
    receipt: str = ""
    tries: int = 0
    uses: list[Event] = field(default_factory=list)

    @property
    def settles(self) -> bool:
        """Whether the event is a pop that succeeded."""
        return self.event.verb not in KEEPS and self.event.done

    @property
    def away(self) -> bool:
        """Whether it may be buried or delayed: then a kick lets it begin anew, without tries."""
        return any(use.verb == "bury" or use.option("-d") for use in self.uses)

    @property
    def lease(self) -> float:
        if self.event.verb == "claim":
            return inf
        return float(self.event.option("-t") or self.message.lease)


class Model:
    def __init__(self, events: Sequence[Event], messages: Mapping[int, Message]) -> None:
        self.events = sorted(events, key=lambda event: event.start)
        self.messages = messages
        self.began = self.events[0].start
        self.wrong: list[str] = []
        self.pushes = {number: event for event in self.events for number in event.messages}
        self.ids: dict[int, int] = {}
        # number of a push that was told `dup`: the id that has the key
        self.dups: dict[int, int] = {}
        self.holds: dict[int, list[Hold]] = defaultdict(list)
        self.held: dict[int, list[Hold]] = defaultdict(list)  # by id(event)
        self.unseen: list[tuple[Event, float]] = []
        for event in self.events:
            self._read(event)
        self.reclaims = [event for event in self.events
            if event.verb == "wal" and event.done or event.nothing]
        by_receipt: dict[str, list[Hold]] = defaultdict(list)
        for hold in (hold for holds in self.holds.values() for hold in holds if hold.receipt):
            by_receipt[hold.receipt].append(hold)
        for event in self.events:
            for hold in by_receipt[event.receipt] if event.verb not in TAKES else ():
                hold.uses.append(event)

    def say(self, text: str, *about: Event) -> None:
        self.wrong.append("\n".join([text, *(event.line(self.began)
            for event in dict((id(event), event) for event in about).values())]))

    def about(self, number: int) -> list[Event]:
        """Its push, who got it, and what they did with it."""
        return [self.pushes[number], *(event for hold in self.holds[number]
            for event in (hold.event, *hold.uses))]

    # ---- the output of an operation

    def _read(self, event: Event) -> None:
        if not event.killed:
            said = SWEPT.sub(b"", event.err)
            if event.status not in STATUSES.get(event.verb, {0}):
                self.say(f"{event.verb}: exit {event.status}: {event.err!r}", event)
            elif (said.count(b"\n") != 1) if event.status else said:
                self.say(f"{event.verb}: not one clear line: {event.err!r}", event)
        if event.verb == "push":
            self._read_push(event)
        elif event.verb in TAKES:
            self._read_take(event)

    def _read_push(self, event: Event) -> None:
        found = re.fullmatch(rb"([1-9]\d*)( dup| [1-9]\d*)?\n", event.out)
        if not found:
            if event.done or event.out and not event.killed:
                self.say(f"push said {event.out[:80]!r}", event)
        elif found[2] == b" dup":
            self.dups[event.messages[0]] = int(found[1])
        else:
            first = int(found[1])
            if int(found[2] or first) != first + len(event.messages) - 1:
                self.say(f"{len(event.messages)} messages got the ids {event.out!r}", event)
            self.ids.update(zip(event.messages, range(first, first + len(event.messages))))

    def _read_take(self, event: Event) -> None:
        receipt, tries, data = event.receipt, 0, event.out
        if event.verb == "reserve" and data:
            head, _, data = data.partition(b"\n")
            words = head.decode(errors="replace").split(" ")
            if len(words) == 4:
                receipt, tries = words[0], int(words[2])
            if not event.killed and (len(words) != 4 or int(words[3]) != len(data)):
                self.say(f"reserve said {head[:80]!r}, and {len(data)} bytes came", event)
        pieces = data.split(b"\0") if "-0" in event.words else [data]
        if event.verb == "claim":
            pieces = [body or b"nothing" for body in event.claimed]
        for piece in filter(None, pieces):
            begin = re.match(rb"(\d+):", piece)
            message = self.messages.get(int(begin[1])) if begin else None
            whole = message is not None and piece == message.body
            begun = message.body.startswith(piece) if message else piece.isdigit()
            if not whole and not (event.killed and piece is pieces[-1] and begun):
                self.say(f"unknown or altered: {piece[:60]!r}, {len(piece)} bytes", event)
            elif message:
                hold = Hold(event, message, whole, receipt, tries)
                self.holds[message.number].append(hold)
                self.held[id(event)].append(hold)
        if event.killed:
            most = inf if event.verb == "drain" else int(event.option("-n") or 1)
            self.unseen.append((event, most - len(self.held[id(event)])))

    # ---- certain facts

    def stored(self, number: int) -> float:
        """The time from which the message was certainly stored."""
        if number in self.ids:
            return self.pushes[number].end
        return min((hold.event.end for hold in self.holds[number]), default=inf)

    def settled(self, number: int) -> Iterator[Event]:
        """The operations that may have settled the message."""
        for hold in self.holds[number]:
            event = hold.event
            if event.verb not in KEEPS and hold.whole and (event.done or event.killed):
                yield event
            yield from (use for use in hold.uses if use.verb in ("delete", "settle")
                and (use.done or use.killed))

    def put_back(self, holder: Event, lease: float, by: Event) -> bool:
        """Whether it was put back for certain before `by` looked for it."""
        return holder.over(lease, by) and (by.nothing or any(event.end <= by.start
            and holder.over(lease, event) for event in self.reclaims))

    def back(self, hold: Hold, by: Event) -> bool:
        """Whether what was held is ready for certain when `by` begins."""
        event = hold.event
        if hold.settles or hold.away:
            return False
        if any(use.verb in ("release", "unclaim") and use.done and use.end <= by.start
                for use in hold.uses):
            # What an unclaim that was killed has begun to give back is a dead owner's for a while
            return event.verb == "reserve" or not any(use.killed for use in hold.uses)
        if event.verb not in KEEPS and not event.killed:
            return event.end <= by.start  # it has given it back itself
        lease = max([hold.lease, *(use.end + float(use.option("-t")) - event.end
            for use in hold.uses if use.verb == "touch")])
        return self.put_back(event, lease, by)

    def there(self, number: int, by: Event) -> bool:
        """Whether it was surely ready all through `by`, or until `by` itself took it."""
        holds = self.holds[number]
        late = [hold.event is by or hold.event.start >= by.end for hold in holds]
        return any(late) and self.stored(number) <= by.start and all(
            after or self.back(hold, by) for after, hold in zip(late, holds))

    def unseen_at(self, by: Event) -> tuple[float, list[Event]]:
        """How many messages may be with killed operations that nobody knows more of, all through or
        for a part of `by`."""
        lease = max((message.lease for message in self.messages.values()), default=60)
        found = [(event, most) for event, most in self.unseen
            if event is not by and event.start < by.end and not self.put_back(event,
                float(event.option("-t") or lease), by)]
        return sum(most for _, most in found), [event for event, _ in found]

    def before(self, one: int, other: int) -> bool:
        """Whether the first message comes before the other for certain."""
        a, b = self.messages[one], self.messages[other]
        if a.priority != b.priority:
            return a.priority < b.priority
        if one in self.ids and other in self.ids:
            return self.ids[one] < self.ids[other]
        return self.pushes[one].end < self.pushes[other].start

    def exclusive_until(self, hold: Hold, other: Event) -> float:
        """The time until which a reservation held for certain, as far as `other` is concerned;
        -inf where its owner may have given it up."""
        until = hold.event.start + hold.lease
        for use in hold.uses:
            if use.start > other.end:
                break
            if use.verb != "touch":
                return -inf
            new = use.start + float(use.option("-t"))
            until = new if use.done and use.end <= other.start else min(until, new)
        return until - SLACK

    # ---- the properties

    def check_stored(self) -> None:
        for number, push in self.pushes.items():
            holds = [hold.event for hold in self.holds[number]]
            if any(event.end < push.start for event in holds):
                self.say(f"message {number} came before it was pushed", push, *holds)
            if number in self.dups or not push.killed and push.status != 0:
                if holds:
                    self.say(f"message {number} was refused, and is there", push, *holds)
            elif number in self.ids and not any(True for _ in self.settled(number)):
                self.say(f"message {number} was acknowledged, and is lost", *self.about(number))
        numbers = sorted(self.ids, key=self.ids.__getitem__)
        for one, other in zip(numbers, numbers[1:]):
            if self.ids[one] == self.ids[other] or self.pushes[other].end < self.pushes[one].start:
                self.say(f"ids {self.ids[one]} and {self.ids[other]} are not in the order of "
                    "their pushes", self.pushes[one], self.pushes[other])

    def check_repeats(self) -> None:
        for number, holds in self.holds.items():
            ends = [event for event in self.settled(number) if event.done]
            if len(ends) > 1:
                self.say(f"message {number} was settled {len(ends)} times", *self.about(number))
            for event in ends:
                if late := [hold.event for hold in holds if hold.event.start > event.end]:
                    self.say(f"message {number} came again after it was settled",
                        self.pushes[number], event, *late)
            for hold in holds:
                if hold.event.verb in KEEPS and hold.event.done:
                    for other in holds:
                        if other is not hold:
                            self._check_owner(number, hold, other)

    def _check_owner(self, number: int, hold: Hold, other: Hold) -> None:
        """The message was reserved by `hold`, and handed out by `other` as well."""
        first, second = hold.event, other.event
        tries = 0 if any(one.away for one in self.holds[number]) else hold.tries
        if tries and tries == other.tries and id(hold) < id(other):
            self.say(f"message {number} was handed out twice as try {tries}", first, second)
        later = second.start >= first.end or 0 < tries < other.tries
        if (later or other.settles) and second.end < self.exclusive_until(hold, second):
            self.say(f"message {number} had two living owners", first, second, *hold.uses)
        # After an unclaim, an earlier receipt is good again (lib/README.md, "Body and slip")
        backs = [use.start for use in other.uses if use.verb == "unclaim"]
        if later and (used := [use for use in hold.uses if use.done and use.start > second.end
                and not (backs and min(backs) < use.end)]):
            self.say(f"message {number}: a receipt was honoured after the message was handed out "
                "again", first, second, *used)

    def check_order(self) -> None:
        for event in self.events:
            if event.nothing:
                self._passed_over(event, "nothing there, it says",
                    [number for number in self.holds if self.there(number, event)])
            taken = [] if event.killed else [hold.message.number for hold in self.held[id(event)]]
            for place, number in enumerate(taken):
                self._passed_over(event, f"message {number} was handed out",
                    [other for other in self.holds if other not in taken[:place]
                        and self.before(other, number) and self.there(other, event)])

    def _passed_over(self, event: Event, text: str, ready: Sequence[int]) -> None:
        most, unseen = self.unseen_at(event) if ready else (0, [])
        if len(ready) > most:
            about = [other for number in ready[:2] for other in self.about(number)]
            self.say(f"{text}, while {len(ready)} that come first are there: "
                f"{', '.join(map(str, ready[:6]))}; {most} may be with killed ones", event, *about,
                *unseen)

    def check_keys(self) -> None:
        keys = {number: self.messages[number].key for number in self.pushes
            if self.messages[number].key}
        for one in keys:
            begins = self.stored(one)
            ends = min((event.start for event in self.settled(one)), default=inf)
            for other in (other for other in keys if keys[other] == keys[one] and other != one):
                push = self.pushes[other]
                if begins <= push.start and push.end <= ends and self.stored(other) < inf:
                    self.say(f"messages {one} and {other} have the same key at the same time",
                        self.pushes[one], push, *self.settled(one))
        for number, identity in self.dups.items():
            push = self.pushes[number]
            # or one whose push was killed before it printed its id
            holders = [one for one in keys if keys[one] == keys[number] and one != number
                and self.ids.get(one, identity if self.pushes[one].killed else 0) == identity]
            if not any(self.pushes[one].start <= push.end and not any(event.done
                    and event.end < push.start for event in self.settled(one)) for one in holders):
                self.say(f"message {number}: message {identity} cannot have its key", push,
                    *(event for one in holders for event in self.about(one)))

    def check_bound(self, bound: int, samples: Sequence[tuple[float, int]]) -> None:
        for moment, count in samples:
            if count > bound:
                self.say(f"{count} messages at {moment - self.began:.4f}, and the bound is {bound}",
                    *(event for event in self.events if event.start <= moment
                        and event.end >= moment - 0.1))


def check(events: Sequence[Event], messages: Mapping[int, Message], bound: int,
        samples: Sequence[tuple[float, int]]) -> list[str]:
    """The findings: for each a sentence and, indented, the operations that it concerns. [] is
    good."""
    model = Model(events, messages)
    for look in (model.check_stored, model.check_repeats, model.check_order, model.check_keys):
        look()
    if bound:
        model.check_bound(bound, samples)
    return model.wrong
