"""flatq from Python: a message queue made of POSIX shell scripts and plain files.

Begin with help(flatq.Queue) and help(flatq.Worker); help(flatq.errors) has what they raise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import (
    Busy, Closed, Denied, Disk, Empty, Error, Full, Internal, Invalid, Missing, NotYours, TimedOut,
    Unreachable, Usage,
)
from .queue import (
    AsyncMessage, AsyncQueue, AsyncReserved, Event, Id, Message, Queue, Reserved, Segment, queues,
)
from .verbs import home

if TYPE_CHECKING:
    from .worker import Worker

    __version__: str

__all__ = [
    "AsyncMessage", "AsyncQueue", "AsyncReserved", "Busy", "Closed", "Denied", "Disk", "Empty",
    "Error", "Event", "Full", "Id", "Internal", "Invalid", "Message", "Missing", "NotYours",
    "Queue", "Reserved", "Segment", "TimedOut", "Unreachable", "Usage", "Worker", "home", "queues",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        text = (home() / "flatq").read_text()
        return re.search("(?m)^flatq_version=(.+)$", text)[1]  # type: ignore[index]
    # Import it only on request: `python -m flatq.worker` must not find itself imported already
    if name == "Worker":
        from .worker import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
