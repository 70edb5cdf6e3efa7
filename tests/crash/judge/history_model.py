"""What is certain about a history, and what contradicts it.

Every operation has an interval, from before its start until all its processes have ended; its
effect lies somewhere in it. Only what no choice of moments can explain is reported as wrong, so
there are no false alarms.

    held     a message may be away from its queue from the start of an operation that wrote it out
             until it was surely back
    claimed  by a name, from the first claim that may have taken it until its settle, or until an
             unclaim has ended; no death and no restart ends that
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
from math import inf

from . import history_claims
from .history_events import Event, Hold, Message

TAKES = ("pop", "drain", "reserve")
SLACK = 0.03  # seconds: the clock has hundredths, and is read twice
STATUSES = {"push": {0, 75}, **dict.fromkeys((*TAKES, "delete", "release", "touch", "bury", "claim",
    "unclaim"), {0, 66})}
# The first verb after a restart reports what it has swept
SWEPT = re.compile(rb"queue '[^']*': what a killed push left of \d+ was removed\n")


class Model:
    def __init__(self, events: Sequence[Event], messages: Mapping[int, Message], kind: str) -> None:
        self.events = sorted(events, key=lambda event: event.start)
        self.messages, self.kind = messages, kind
        self.began = self.events[0].start
        self.wrong: list[str] = []
        self.pushes = {number: event for event in self.events for number in event.messages}
        self.ids: dict[int, int] = {}
        # number of a push that was told `dup`: the id that has the key
        self.dups: dict[int, int] = {}
        self.holds: dict[int, list[Hold]] = defaultdict(list)
        self.held: dict[int, list[Hold]] = defaultdict(list)  # by id(event)
        self.unseen: list[tuple[Event, float]] = []
        self.names: dict[str, history_claims.Name] = defaultdict(
            lambda: history_claims.Name(self.say, self.hold, self.known))
        # by id(event) of a killed claim: when it became known which messages its name holds
        self.known: dict[int, Event] = {}
        for event in self.events:
            self._read(event)
        self.reclaims = [event for event in self.events if event.verb == "wal" and event.done
            or event.verb in TAKES and event.nothing]
        by_receipt = {hold.receipt: hold for holds in self.holds.values() for hold in holds}
        for event in self.events:
            if event.receipt and event.receipt in by_receipt:
                by_receipt[event.receipt].uses.append(event)

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
        elif event.verb in history_claims.VERBS:
            self._read_claim(event)

    def message(self, body: bytes) -> Message | None:
        begin = re.match(rb"(\d+):", body)
        return self.messages.get(int(begin[1])) if begin else None

    def hold(self, event: Event, number: int, whole: bool = True, receipt: str = "",
            tries: int = 0) -> Hold:
        self.holds[number].append(Hold(event, number, whole, receipt, tries))
        return self.holds[number][-1]

    def _read_claim(self, event: Event) -> None:
        numbers = {}
        for offset, body in event.claimed.items():
            message = self.message(body or b"")
            if message and body == message.body:
                numbers[offset] = message.number
            else:
                self.say(f"unknown or altered: {(body or b'nothing')[:60]!r} at offset {offset}",
                    event)
        if event.verb == "claim" and event.killed:
            self.unseen.append((event, int(event.option("-n"))))
        elif event.verb == "claim" and not history_claims.sound(event):
            self.say(f"claim said {event.out[:80]!r}", event)
        self.held[id(event)] = self.names[event.option("-c")].read(event, numbers)

    def _read_push(self, event: Event) -> None:
        found = re.fullmatch(rb"([1-9]\d*)( dup| [1-9]\d*)?\n", event.out)
        if event.out and not found and not event.killed or event.done and not found:
            self.say(f"push said {event.out[:80]!r}", event)
        if not found:
            return
        if found[2] == b" dup":
            self.dups[event.messages[0]] = int(found[1])
            return
        first = int(found[1])
        if (int(found[2]) if found[2] else first) != first + len(event.messages) - 1:
            self.say(f"{len(event.messages)} messages got the ids {event.out!r}", event)
        self.ids.update((number, first + k) for k, number in enumerate(event.messages))

    def _read_take(self, event: Event) -> None:
        receipt, tries, data = "", 0, event.out
        if event.verb == "reserve" and data:
            head, newline, data = data.partition(b"\n")
            words = head.decode(errors="replace").split(" ")
            if not newline or len(words) != 4:
                if not event.killed:
                    self.say(f"reserve said {head[:80]!r}", event)
                data = b""
            else:
                receipt, tries = words[0], int(words[2])
                if not event.killed and not self.lapsed(event) and int(words[3]) != len(data):
                    self.say(f"{words[3]} bytes announced, {len(data)} came", event)
        pieces = data.split(b"\0")
        complete, last = (pieces[:-1], pieces[-1]) if event.many else ([], data)
        for piece in [*complete, *([last] if last else [])]:
            message = self.message(piece)
            whole = message is not None and piece == message.body
            cut = event.killed and piece is last or self.lapsed(event)
            if not (message.body.startswith(piece) and cut or whole if message else
                    cut and piece.isdigit()):
                self.say(f"unknown or altered: {piece[:60]!r}, {len(piece)} bytes", event)
            elif message:
                self.held[id(event)].append(self.hold(event, message.number, whole, receipt, tries))
        if event.killed:
            most = inf if event.verb == "drain" else int(event.option("-n") or 1)
            if most > len(self.held[id(event)]):
                self.unseen.append((event, most - len(self.held[id(event)])))

    def lapsed(self, event: Event) -> bool:
        """The clock was set, so the lease was over while the message was printed: another verb may
        have it, and this one has said so."""
        return self.kind == "clock" and event.status == 66

    # ---- certain facts

    def stored(self, number: int) -> float:
        """The time from which the message was certainly stored."""
        push = self.pushes[number]
        if number in self.ids:
            return push.end
        return min((hold.event.end for hold in self.holds[number]), default=inf)

    def settled(self, number: int) -> Iterator[Event]:
        """The operations that may have settled the message."""
        for hold in self.holds[number]:
            if hold.event.verb not in ("reserve", "claim") and hold.whole and (hold.event.done
                    or hold.event.killed):
                yield hold.event
            yield from (use for use in hold.uses if use.verb in ("delete", "settle")
                and (use.done or use.killed))

    def first_settled(self, number: int) -> float:
        """The time before which the message was certainly not settled."""
        return min((event.start for event in self.settled(number)), default=inf)

    def free(self, holder: Event, lease: float, at: Event) -> bool:
        """Whether `at` began when what a dead or silent holder had could be put back."""
        if at.boot != holder.boot:
            return at.boot > holder.boot
        if holder.verb == "reserve":
            return at.up_start >= holder.up_end + lease + SLACK
        return at.start >= holder.end

    def put_back(self, holder: Event, lease: float, by: Event) -> bool:
        """Whether it was put back for certain before `by` looked for it."""
        return by.nothing and self.free(holder, lease, by) or by.boot > holder.boot or any(
            event.end <= by.start and self.free(holder, lease, event) for event in self.reclaims)

    def back(self, hold: Hold, by: Event) -> bool:
        """Whether what was held is ready for certain when `by` begins."""
        event, lease = hold.event, hold.lease(self.messages[hold.number])
        if hold.settles:
            return False
        if event.verb == "claim":
            return history_claims.back(hold, by)
        if by.boot > event.boot and not any(use.verb in ("bury", "release") for use in hold.uses):
            return True
        if event.verb != "reserve" and not event.killed:
            return event.end <= by.start
        if any(use.verb == "bury" or use.option("-d") for use in hold.uses):
            return False
        if any(use.verb == "release" and use.done and use.end <= by.start for use in hold.uses):
            return True
        touches = [use for use in hold.uses if use.verb == "touch"]
        if touches and max(use.up_end + float(use.option("-t"))
                for use in touches) + SLACK > by.up_start and by.boot == event.boot:
            return False
        return self.put_back(event, lease, by)

    def there(self, number: int, by: Event, itself: bool = False) -> bool:
        """Whether it was surely ready all through `by`, or until `by` itself took it."""
        message, push = self.messages[number], self.pushes[number]
        later = itself or any(hold.event.start >= by.end for hold in self.holds[number])
        if self.stored(number) > by.start or not later:
            return False
        if message.delay and (push.boot != by.boot or push.up_end + message.delay
                + SLACK > by.up_start):
            return False
        return all(hold.event is by or hold.event.start >= by.end or self.back(hold, by)
            for hold in self.holds[number])

    def unseen_at(self, by: Event) -> tuple[float, list[Event]]:
        """How many messages may be with killed operations that nobody knows more of, all through or
        for a part of `by`."""
        lease = max((message.lease for message in self.messages.values()), default=60)
        found = [(event, most) for event, most in self.unseen
                 if event is not by and event.start < by.end and not (self.put_back(event,
                 float(event.option("-t") or lease), by) and self.told(event, by))]
        return sum(most for _, most in found), [event for event, _ in found]

    def told(self, event: Event, by: Event) -> bool:
        """Whether what a killed claim may have got its name to hold is known when `by` begins."""
        return event.verb != "claim" or id(event) in self.known and self.known[
            id(event)].end <= by.start

    def before(self, one: int, other: int) -> bool:
        """Whether the first message comes before the other for certain."""
        a, b = self.messages[one], self.messages[other]
        if a.priority != b.priority:
            return a.priority < b.priority
        if one in self.ids and other in self.ids:
            return self.ids[one] < self.ids[other]
        return self.pushes[one].end < self.pushes[other].start

    def taken_after(self, later: Hold, sooner: Hold) -> bool:
        """Whether one hold of a message came after another for certain."""
        return bool(sooner.tries and later.tries
            and later.tries > sooner.tries) or later.event.start >= sooner.event.end

    def exclusive_until(self, hold: Hold, other: Event) -> float:
        """The uptime until which a reservation held for certain, as far as `other` is concerned;
        -inf where its owner may have given it up."""
        until = hold.event.up_start + hold.lease(self.messages[hold.number])
        for use in hold.uses:
            if use.start > other.end:
                break
            if use.verb != "touch":
                return -inf
            new = use.up_start + float(use.option("-t"))
            until = new if use.done and use.end <= other.start else min(until, new)
        return until - SLACK

    # ---- the properties

    def check_stored(self) -> None:
        for number, push in self.pushes.items():
            holds = [hold.event for hold in self.holds[number]]
            if holds and min(event.end for event in holds) < push.start:
                self.say(f"message {number} came before it was pushed", push, *holds)
            if number in self.dups or not push.killed and push.status != 0:
                if holds:
                    self.say(f"message {number} was refused, and is there", push, *holds)
            elif number in self.ids and not any(True for _ in self.settled(number)):
                self.say(f"message {number} was acknowledged, and is lost", *self.about(number))
        for one, other in zip(*[sorted(self.ids, key=self.ids.__getitem__)[k:] for k in (0, 1)]):
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
                for other in holds:
                    if other is not hold:
                        self._check_pair(number, hold, other)

    def _check_pair(self, number: int, hold: Hold, other: Hold) -> None:
        """`other` against a living owner who has it by `hold`."""
        first, second = hold.event, other.event
        if first.verb == "claim" and history_claims.excludes(hold, other):
            self.say(f"message {number} was claimed, and handed out to another", first, second,
                *hold.uses)
        if not first.done or first.boot != second.boot:
            return
        if first.verb == "reserve":
            if hold.tries and hold.tries == other.tries and id(hold) < id(other):
                self.say(f"message {number} was handed out twice as try {hold.tries}", first,
                    second)
            if self.taken_after(other, hold) and second.up_end < self.exclusive_until(hold, second):
                self.say(f"message {number} had two living owners", first, second, *hold.uses)
            if self.taken_after(other, hold) and (used := [use for use in hold.uses if use.done
                    and use.start > second.end]):
                self.say(f"message {number}: a receipt was honoured after the message was handed "
                    "out again", first, second, *used)
        elif first.verb == "claim" and first.start < second.end:
            return  # it may have been given back, and reserved then
        elif second.verb == "reserve" and second.done and first.up_end < self.exclusive_until(other,
                first):
            self.say(f"message {number} was popped, and reserved", first, second)

    def check_delays(self) -> None:
        kicks = [event for event in self.events if event.verb == "kick"]
        for number, message in self.messages.items():
            push = self.pushes[number]
            for event in (hold.event for hold in self.holds[number] if message.delay):
                early = event.up_end < push.up_start + message.delay - SLACK
                if event.boot == push.boot and early and event.who != "end" and not any(
                        kick.start < event.end and kick.end > push.start for kick in kicks):
                    self.say(f"message {number} came before its delay of {message.delay} s was "
                        "over", push, event)

    def check_order(self) -> None:
        for event in self.events:
            if event.verb not in (*TAKES, "claim") or event.killed:
                continue
            if event.nothing and event.option("-n") != "0":
                ready = [number for number in self.holds if self.there(number, event)]
                self._too_many(event, ready,
                    "nothing there, it says, while {} messages are there: {}")
            taken = [hold.number for hold in self.held[id(event)]]
            for place, number in enumerate(taken):
                mine = set(taken[:place])
                ready = [other for other in self.holds if other not in mine and self.before(other,
                    number) and self.there(other, event)]
                inner = [other for other in taken[place + 1:] if self.before(other, number)
                    and self.there(other, event, itself=True)]
                self._too_many(event, list(dict.fromkeys([*ready, *inner])),
                    f"message {number} was handed out, while {{}} that come before it are there: "
                    f"{{}}")

    def _too_many(self, event: Event, ready: Sequence[int], text: str) -> None:
        if not ready:
            return
        most, unseen = self.unseen_at(event)
        if len(ready) > most:
            about = [other for number in ready[:2] for other in self.about(number)]
            self.say(text.format(len(ready), ", ".join(map(str, ready[:6])))
                + (f"; {most} may be with killed ones" if most else ""), event, *about, *unseen)

    def check_keys(self) -> None:
        numbers = {identity: number for number, identity in self.ids.items()}
        keyed = [number for number, message in self.messages.items() if message.key
            and number not in self.dups and (number in self.ids or self.holds[number])]
        for one in keyed:
            for other in keyed:
                push = self.pushes[other]
                if one != other and self.messages[one].key == self.messages[
                        other].key and self.stored(one) <= push.start and self.first_settled(
                        one) >= push.end:
                    self.say(f"messages {one} and {other} have the same key at the same time",
                        self.pushes[one], push, *self.settled(one))
        for number, identity in self.dups.items():
            push, holder = self.pushes[number], numbers.get(identity)
            if holder is None:
                # A push that was killed before it printed its id cannot be matched by id
                if not any(self.pushes[n].killed and n not in self.ids
                        and m.key == self.messages[number].key for n, m in self.messages.items()):
                    self.say(f"a key is taken by message {identity}, which nobody pushed", push)
            elif self.messages[holder].key != self.messages[number].key or self.pushes[
                    holder].start > push.end:
                self.say(f"a key is taken by message {holder}, which cannot have it", push,
                    self.pushes[holder])
            elif ended := [event for event in self.settled(holder) if event.done
                    and event.end < push.start]:
                self.say(f"a key is taken by message {holder}, which was settled", push,
                    self.pushes[holder], *ended)

    def check_bound(self, bound: int, samples: Sequence[tuple[float, int]]) -> None:
        for moment, count in samples:
            if count > bound:
                self.say(f"{count} messages at {moment - self.began:.4f}, and the bound is {bound}",
                    *(event for event in self.events if event.start <= moment
                        and event.end >= moment - 0.1))


def check(events: Sequence[Event], messages: Mapping[int, Message], kind: str, bound: int,
        samples: Sequence[tuple[float, int]]) -> list[str]:
    """The findings: for each a sentence and, indented, the operations that it concerns. [] is
    good."""
    model = Model(events, messages, kind)
    for look in (model.check_stored, model.check_repeats, model.check_delays, model.check_order,
            model.check_keys):
        look()
    if bound:
        model.check_bound(bound, samples)
    return model.wrong
