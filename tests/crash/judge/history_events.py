"""What a history is made of: the messages that were to be stored, the operations, and what they
have handed out."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

#: Verbs that hand out a message until it is settled or given back, by its receipt. A claim is a
#: reservation without an end, which settle and unclaim end.
KEEPS = ("reserve", "claim")
TAKES = ("pop", "drain", *KEEPS)
SLACK = 0.04  # seconds: the clock has hundredths, and is read twice


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
    def lease(self) -> float:
        if self.event.verb == "claim":
            return inf
        return float(self.event.option("-t") or self.message.lease)
