"""What a history is made of: the messages that were to be stored, the operations, and what they
have handed out."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """A message that was to be stored."""

    number: int
    body: bytes
    priority: int
    delay: int  # seconds
    lease: int  # seconds
    key: str


@dataclass
class Event:
    """One operation. `start` and `end` are the history's time, `up_start` and `up_end` bounds of
    the spool's uptime, all in seconds."""

    who: str
    words: tuple[str, ...]
    fault: str = ""
    messages: tuple[int, ...] = ()
    receipt: str = ""
    boot: int = 0
    start: float = 0.0
    end: float = 0.0
    up_start: float = 0.0
    up_end: float = 0.0
    status: int = 0
    killed: bool = False
    out: bytes = b""
    err: bytes = b""
    # for a claim: the messages in the listed directories, by offset
    claimed: Mapping[int, bytes | None] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        return self.words[0]

    @property
    def done(self) -> bool:
        return self.status == 0 and not self.killed

    @property
    def many(self) -> bool:
        return self.verb in ("drain", "claim") or "-n" in self.words

    def option(self, letter: str) -> str:
        return self.words[self.words.index(letter) + 1] if letter in self.words else ""

    @property
    def nothing(self) -> bool:
        """Whether it says that nothing is there; 66 is also that a message is no longer its own."""
        return self.status == 66 and not self.out and b"no longer yours" not in self.err

    def line(self, began: float) -> str:
        said = "killed" if self.killed else f"exit {self.status}"
        what = f" of {','.join(map(str, self.messages))}" if self.messages else ""
        return (f"    {self.start - began:8.4f} to {self.end - began:8.4f} {self.who:>14}  "
            f"{' '.join(self.words)}{what}"
            f"{f' ({self.fault})' if self.fault else ''}: {said} {self.out[:60]!r} "
            f"{self.err[:120]!r}")


@dataclass
class Hold:
    """A message was handed out by `event`; `whole`: all of its bytes were written."""

    event: Event
    number: int
    whole: bool
    receipt: str = ""
    tries: int = 0
    # operations with the receipt; for claimed messages, settle and unclaim
    uses: list[Event] = field(default_factory=list)

    @property
    def settles(self) -> bool:
        """Whether the event is a pop that succeeded."""
        return self.event.verb not in ("reserve", "claim") and self.event.done

    def lease(self, message: Message) -> float:
        return float(self.event.option("-t")
            or message.lease) if self.event.verb == "reserve" else float(message.lease)
