"""Read a spool without the verbs: slips, flat files and bodies.

Follows lib/README.md, lib/engine/slip.sh and lib/engine/flat.sh. While something else runs on the
spool, a message may be seen twice, or not.
"""
from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flatq.slips import flat_of, slip_of

STATES = ("ready", "delayed", "reserved", "buried", "claimed")
#: Where a queue's messages lie, how many directories below, and what they are there.
PLACES = (("wal", 0, "ready"), ("queue", 1, "ready"), ("head", 1, "ready"),
    ("delayed", 2, "delayed"), ("buried", 2, "buried"))
# a delay and a lease that are over, whatever the clocks say
DUE, OVER = "0000000/000000000001", "000000000001"


@dataclass(frozen=True)
class Message:
    id: int
    state: str  # of STATES
    priority: int
    tries: int
    key: str
    body: bytes | None  # None: it is not whole
    place: str  # path below the queue of the slip or the flat file


@dataclass
class Dump:
    """A spool. Per queue: the messages that are ready, in the order they would be handed out, then
    the delayed, the reserved, the buried and the claimed. `damaged`: what is not whole; `left`:
    files that belong to no message; paths from the spool, with a word each."""

    queues: dict[str, list[Message]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)  # until they are resumed
    bounds: dict[str, int] = field(default_factory=dict)

    def messages(self, queue: str = "q", *states: str) -> list[Message]:
        return [m for m in self.queues.get(queue, []) if not states or m.state in states]

    def bodies(self, queue: str = "q", *states: str) -> list[bytes | None]:
        return [m.body for m in self.messages(queue, *states)]


@functools.lru_cache(maxsize=64)
def body_of(line: bytes, size: int) -> bytes | None:
    """The bytes of one line of base64, newline included; None if it is not whole."""
    data = decoded(line[:-1]) if line.endswith(b"\n") else None
    return data if data is not None and len(data) == size and len(line) == (size
        + 2) // 3 * 4 + 1 else None


def decoded(line: bytes) -> bytes | None:
    """None if it is no base64."""
    try:
        return base64.b64decode(line, validate=True)
    except binascii.Error:
        return None


def names(path: Path) -> list[str]:
    """The names in a directory, in the order of the shell's globs; none if it does not exist."""
    try:
        return sorted(os.listdir(path), key=os.fsencode)
    except (FileNotFoundError, NotADirectoryError):
        return []


def inside(top: Path, place: str, depth: int) -> Iterator[tuple[str, str]]:
    """What lies so many directories below a place of a queue: its directory, as a path from `top`,
    and its name."""
    for name in names(top / place):
        if depth:
            yield from inside(top, f"{place}/{name}", depth - 1)
        else:
            yield place, name


class _Queue:
    """One queue while it is read."""

    def __init__(self, path: Path, dump: Dump) -> None:
        self.path, self.dump = path, dump
        self.found: list[Message] = []
        self.used: set[str] = set()  # bodies

    def damaged(self, place: str, why: str) -> None:
        self.dump.damaged.append(f"{self.path.name}/{place}: {why}")

    def left(self, *places: str) -> None:
        self.dump.left += [f"{self.path.name}/{place}" for place in places]

    def add(self, place: str, name: str, line: bytes | None, state: str, tries: int = 0) -> None:
        """The message of the slip of that name, and its line of base64."""
        slip = slip_of(name)
        if slip is None:
            self.damaged(place, "no slip")
            return
        # of a flat file's line, it is left over at worst until the fold is finished
        self.used.add(slip.body)
        if line is None:
            with contextlib.suppress(FileNotFoundError):
                line = (self.path / "body" / slip.body).read_bytes()
        body = body_of(line or b"", slip.size)
        if body is None:
            self.damaged(place, "its body is not whole")
        self.found.append(Message(slip.id, state, slip.priority, slip.tries + tries,
            slip.key.strip("-"), body, place))

    def file(self, place: str, name: str, state: str) -> None:
        """A slip, or a flat file."""
        flat, at = flat_of(name), f"{place}/{name}"
        if not flat:
            # WHEN.SLIP.REASON
            self.add(at, name.partition(".")[2].rpartition(".")[0] if state == "buried" else name,
                None, state)
            return
        lines = (self.path / at).read_bytes().splitlines(keepends=True)
        if len(lines) != flat.lines:
            self.damaged(at, f"{len(lines)} lines")
        for line in lines:
            head, _, text = line.partition(b"\t")
            self.add(at, os.fsdecode(head), text, state, flat.tries)

    def files(self, place: str, state: str, depth: int = 0) -> None:
        for where, name in inside(self.path, place, depth):
            self.file(where, name, state)

    def read(self) -> None:
        for place, depth, state in PLACES:
            self.files(place, state, depth)
        flats = {name.rpartition(".")[2] for _, name in inside(self.path, "queue", 1)}
        for run in names(self.path / "fold"):
            if run.rpartition(".")[2] in flats:  # Committed: its remains are to be removed
                self.left(f"fold/{run}")
            else:  # or `~`, an empty file that each whole listing holds
                self.files(f"fold/{run}", "ready")
        staged = set(names(self.path / "tmp"))
        for name in names(self.path / "unfold"):
            flat = flat_of(name)
            run = f"{flat.priority:010d}.{flat.first:012d}.{flat.nonce}" if flat else ""
            if run in staged:
                self.file("unfold", name, "ready")
                staged.discard(run)
            self.left(*([] if name == "~" else [f"unfold/{name}"]))
        self.left(*(f"tmp/{name}" for name in staged))
        self.out()
        for claim in names(self.path / "claimed"):
            self.claim(f"claimed/{claim}")
        self.found.sort(key=lambda m: (STATES.index(m.state), *((m.priority, m.id)
            if m.state == "ready" else ())))
        self.dump.queues[self.path.name] = self.found
        self.left(*(f"body/{name}" for name in names(self.path / "body") if name not in self.used))
        held = {message.key for message in self.found}
        self.left(*(f"keys/{name}" for name in names(self.path / "keys") if name not in held))
        ids = {f"{message.id:012}" for message in self.found}
        self.left(*(f"why/{name}" for name in names(self.path / "why") if name not in ids))
        self.left(*(f"{place}/{name}" for place in ("done", "wait", "room")
            for name in names(self.path / place)))

    def out(self) -> None:
        done = names(self.path / "done")
        for name in names(self.path / "out"):
            if name in done:
                self.left(f"out/{name}")
            elif name.startswith("batch."):
                self.files(f"out/{name}", "reserved")
            else:
                self.file("out", name, "reserved")

    def claim(self, place: str) -> None:
        """What is held under one name (lib/bulk/claim.sh): its segments that are not settled; made
        into flat files, those."""
        found = names(self.path / place)
        settled = max([int(name.partition(".")[2]) for name in found
            if re.fullmatch(r"settled\.\d{12}", name)], default=0)
        for name in found:
            segment = re.fullmatch(r"(\d{12})\.(\d+)(\.flat)?", name)
            offset, count = map(int, segment.groups()[:2]) if segment else (0, 0)
            if not segment or count and offset + count <= settled or f"{name}.flat" in found:
                if not name.startswith("settled."):
                    self.left(f"{place}/{name}")
                continue
            before = len(self.found)
            self.files(f"{place}/{name}", "claimed")
            if len(self.found) - before != count:
                self.damaged(f"{place}/{name}", f"{len(self.found) - before} messages")


def listed(said: bytes) -> dict[int, bytes | None]:
    """What a claim has listed (`OFFSET COUNT PATH`), read from where it says that it lies, by
    offset; None where nothing whole is there."""
    found: dict[int, bytes | None] = {}
    for offset, count, path in (line.split(b" ", 2) for line in said.splitlines()):
        bodies: list[bytes | None] = []
        for line in (line for name in sorted(Path(os.fsdecode(path)).iterdir())
                for line in name.read_bytes().splitlines(keepends=True)):
            head, _, text = line.partition(b"\t")
            slip = slip_of(os.fsdecode(head))
            bodies.append(body_of(text, slip.size) if slip else None)
        bodies += [None] * (int(count) - len(bodies))
        found.update(enumerate(bodies, int(offset)))
    return found


def queues(spool: Path) -> Iterator[Path]:
    """The directories of the queues."""
    for name in names(spool):
        if not name.startswith(".") and (spool / name / "wal").is_dir():
            yield spool / name


def dump(spool: Path) -> Dump:
    """Read everything in the spool."""
    found = Dump()
    for path in queues(spool):
        _Queue(path, found).read()
        if (path / "closed").exists():
            found.closed.add(path.name)
        with contextlib.suppress(FileNotFoundError):
            if (path / "paused").read_text().startswith("- - ") and (path / "tended").is_dir():
                found.paused.add(path.name)
        if (path / "conf").exists():
            words = (path / "conf").read_text().split()
            if len(words) >= 2 and all(word.isdecimal() for word in words[:2]):
                found.bounds[path.name] = int(words[0])
            else:
                found.damaged.append(f"{path.name}/conf: {words}")
    for name in names(spool):
        if name.startswith((".drop.", ".ids.old.")):
            found.left.append(name)
        elif name == ".wait":
            found.left += [f".wait/{waiter}" for waiter in names(spool / name)]
    return found


def syncs(spool: Path, sync: str) -> None:
    """Make it a spool that syncs, or does not: `on` or `off` is in names."""
    other = {"on": "off", "off": "on"}[sync]
    for path in (*spool.glob(f".sync.{other}"), *spool.glob(f".boot/*.{other}")):
        path.rename(path.with_suffix(f".{sync}"))


def reboot(spool: Path) -> None:
    """Simulate a start of the system: the next verb finds no record of this boot."""
    for name in names(spool / ".boot"):
        (spool / ".boot" / name).unlink()


def untended(queue: Path) -> None:
    """Pretend that no verb has looked for ended leases in the last second. A paused queue has a
    directory there."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        (queue / "tended").unlink()


def age(spool: Path) -> None:
    """Let all leases be over and all delays due: both are in names."""
    for path in queues(spool):
        untended(path)
        for place in ("out", "done"):
            for name in names(path / place):
                head, _, deadline = name.rpartition(".")
                if (slip_of(name) or re.fullmatch(r"batch\..+\.\d{12}", name)) and deadline not in (
                        "000000000000", OVER):
                    (path / place / name).rename(path / place / f"{head}.{OVER}")
        for place, name in list(inside(path, "delayed", 2)):
            (path / "delayed" / DUE).mkdir(parents=True, exist_ok=True)
            (path / place / name).rename(path / "delayed" / DUE / name)
