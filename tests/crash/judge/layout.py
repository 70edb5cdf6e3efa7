"""Read a spool without the verbs: slips, flat files and bodies.

Follows lib/README.md, lib/engine/slip.sh and lib/engine/flat.sh. While something else runs on the
spool, a message may be seen twice, or not.
"""
from __future__ import annotations

import base64
import binascii
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flatq.slips import Slip, flat_of, slip_of

PLACES = ("body", "wal", "fold", "queue", "unfold", "head", "out", "done", "delayed", "buried",
    "claimed", "keys", "wait", "room", "tmp")
# a delay and a lease that are over, whatever the clocks say
DUE, OVER = "0000000/000000000001", "000000000001"


@dataclass(frozen=True)
class Message:
    id: int
    state: str  # ready, delayed, reserved, buried, claimed
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


def inside(top: Path, place: str, depth: int = 1) -> Iterator[tuple[str, str]]:
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
        self.path, self.dump, self.label = path, dump, path.name
        self.ready: list[Message] = []
        self.rest: list[Message] = []
        self.bodies = set(names(path / "body"))
        self.done = set(names(path / "done"))
        self.used: set[str] = set()

    def damaged(self, place: str, why: str) -> None:
        self.dump.damaged.append(f"{self.label}/{place}: {why}")

    def left(self, place: str) -> None:
        self.dump.left.append(f"{self.label}/{place}")

    def single(self, place: str, name: str, state: str, slip_name: str | None = None) -> None:
        slip = slip_of(slip_name or name)
        if slip is None:
            self.damaged(f"{place}/{name}", "no slip")
            return
        self.used.add(slip.body)
        try:
            data = body_of((self.path / "body" / slip.body).read_bytes(), slip.size)
        except FileNotFoundError:
            data = None
        self.add(slip, data, state, f"{place}/{name}")

    def add(self, slip: Slip, data: bytes | None, state: str, place: str, tries: int = 0) -> None:
        if data is None:
            self.damaged(place, "its body is not whole")
        message = Message(slip.id, state, slip.priority, slip.tries + tries, slip.key.strip("-"),
            data, place)
        (self.ready if state == "ready" else self.rest).append(message)

    def flat(self, place: str, name: str, state: str) -> None:
        found = flat_of(name)
        if found is None:
            self.damaged(f"{place}/{name}", "no flat file")
            return
        lines = (self.path / place / name).read_bytes().splitlines(keepends=True)
        if len(lines) != found.lines:
            self.damaged(f"{place}/{name}", f"{len(lines)} lines")
        for line in lines:
            head, _, text = line.partition(b"\t")
            slip = slip_of(os.fsdecode(head))
            if slip is None:
                self.damaged(f"{place}/{name}", "no slip in a line")
            else:
                # its body is left over at worst until the fold is finished
                self.used.add(slip.body)
                self.add(slip, body_of(text, slip.size), state, f"{place}/{name}", found.tries)

    def either(self, place: str, name: str, state: str) -> None:
        (self.flat if flat_of(name) else self.single)(place, name, state)

    def read(self) -> None:
        flats = {name.rpartition(".")[2] for _, name in inside(self.path, "queue")}
        staged = set(names(self.path / "tmp"))
        for name in names(self.path / "wal"):
            self.single("wal", name, "ready")
        # and in both `~`, an empty file that each whole listing holds
        for run in names(self.path / "fold"):
            if run == "~":
                continue
            if run.rpartition(".")[2] in flats:  # Committed: its remains are to be removed
                self.left(f"fold/{run}")
                continue
            for name in names(self.path / "fold" / run):
                self.single(f"fold/{run}", name, "ready")
        for place, name in inside(self.path, "queue"):
            self.flat(place, name, "ready")
        for name in names(self.path / "unfold"):
            if name == "~":
                continue
            found = flat_of(name)
            run = f"{found.priority:010d}.{found.first:012d}.{found.nonce}" if found else ""
            if run in staged:
                self.flat("unfold", name, "ready")
                staged.discard(run)
            self.left(f"unfold/{name}")
        for place, name in inside(self.path, "head"):
            self.single(place, name, "ready")
        self.read_rest()
        for name in staged:
            self.left(f"tmp/{name}")
        self.ready.sort(key=lambda message: (message.priority, message.id))
        self.dump.queues[self.label] = self.ready + self.rest
        for name in sorted(self.bodies - self.used):
            self.left(f"body/{name}")

    def read_rest(self) -> None:
        for place, name in inside(self.path, "delayed", 2):
            self.single(place, name, "delayed")
        for name in names(self.path / "out"):
            if name in self.done:
                self.left(f"out/{name}")
            elif name.startswith("batch."):
                for inner in names(self.path / "out" / name):
                    self.either(f"out/{name}", inner, "reserved")
            else:
                self.single("out", name, "reserved")
        for place, name in inside(self.path, "buried", 2):
            self.single(place, name, "buried", name.partition(".")[2].rpartition(".")[0])
        for claim in names(self.path / "claimed"):
            self.claim(f"claimed/{claim}")
        for name in self.done:
            self.left(f"done/{name}")
        held = {message.key for message in self.ready + self.rest}
        for place, name in (*inside(self.path, "wait", 0), *inside(self.path, "room", 0)):
            self.left(f"{place}/{name}")
        for name in names(self.path / "keys"):
            if name not in held:
                self.left(f"keys/{name}")

    def claim(self, place: str) -> None:
        """What is held under one name (lib/bulk/claim.sh): its segments that are not settled; made
        into flat files, those."""
        found = names(self.path / place)
        settled = max([int(name.partition(".")[2]) for name in found
            if re.fullmatch(r"settled\.\d{12}", name)], default=0)
        for name in found:
            segment = re.fullmatch(r"(\d{12})\.(\d+)(\.flat)?", name)
            if not segment:
                if not name.startswith("settled."):
                    self.left(f"{place}/{name}")
            elif int(segment[2]) and int(segment[1]) + int(segment[2]) <= settled or not segment[
                    3] and name + ".flat" in found:
                self.left(f"{place}/{name}")
            else:
                before = len(self.rest)
                for inner in names(self.path / place / name):
                    self.either(f"{place}/{name}", inner, "claimed")
                if len(self.rest) - before != int(segment[2]):
                    self.damaged(f"{place}/{name}", f"{len(self.rest) - before} messages")


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
        if (path / "conf").exists():
            words = (path / "conf").read_text().split()
            if len(words) == 2 and all(word.isdecimal() for word in words):
                found.bounds[path.name] = int(words[0])
            else:
                found.damaged.append(f"{path.name}/conf: {words}")
    for name in names(spool):
        if name.startswith((".drop.", ".ids.old.")):
            found.left.append(name)
    found.left += [f".wait/{name}" for name in names(spool / ".wait")]
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


def age(spool: Path) -> None:
    """Let all leases be over and all delays due: both are in names."""
    for path in queues(spool):
        # Pretend that no verb has looked for them in the last second
        (path / "tended").unlink(missing_ok=True)
        for place in ("out", "done"):
            for name in names(path / place):
                head, _, deadline = name.rpartition(".")
                if (slip_of(name) or re.fullmatch(r"batch\..+\.\d{12}", name)) and deadline not in (
                        "000000000000", OVER):
                    (path / place / name).rename(path / place / f"{head}.{OVER}")
        for place, name in list(inside(path, "delayed", 2)):
            (path / "delayed" / DUE).mkdir(parents=True, exist_ok=True)
            (path / place / name).rename(path / "delayed" / DUE / name)
