"""The trees that an honest file system may hold after a power cut, built from the calls of one run.

The rules are ALICE's (Pillai and others, OSDI 2014), each as weak as a file system may be that is
no liar:
    - What was there before the run is on the disk.
    - Every write, truncation, creation, rename and removal is an operation that may be missing,
      whatever came later, until it is synced. A write may also be there as its first half, or as
      zeros: its size without its data.
    - The fsync of a file makes its data durable, not its name. The fsync of a directory makes its
      entries durable, not its own name, nor what is in the files. syncfs and sync make everything
      durable.
    - A rename is atomic: the file has the old name or the new one, never none, never both. So the
      fsync of either directory makes it durable, and it presupposes that the directory it goes to
      is there. It is not ordered behind the file's data.
    - Changes of one and the same entry keep their order, so a later one presupposes the former.
      rmdir presupposes what emptied the directory.

Limits: owners, modes and times are not followed. No verb makes links.
"""
from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..gate.gate import Call
from ..judge import trees
from ..judge.trees import Content, Tree

ABSENT, WHOLE, HALF, ZEROS = "0123"  # the fate of an operation; the last two only for a write
#: Up to so many pending operations, all their subsets are tried.
ALL_SUBSETS = 11


@dataclass
class Op:
    """One operation of a call: entries that changed, or bytes that were written."""

    seq: int  # of the call
    text: str  # for people
    # directory, name, inode it names from now on
    entries: tuple[tuple[int, str, int | None], ...] = ()
    inode: int = 0  # inode of the file, if it is data
    offset: int = 0
    data: bytes | None = None  # None: cut off at offset, or lengthened to it
    # indices of operations without which this one cannot be there
    needs: set[int] = field(default_factory=set)
    synced: int | None = None  # the call that made it durable

    @property
    def outcomes(self) -> str:
        return ABSENT + WHOLE + (HALF + ZEROS if self.data else "")


@dataclass
class _Inode:
    content: Content  # as before the run; of a directory that is `entries`
    size: int  # bytes, now
    entries: dict[str, int] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)  # the entries now


class History:
    """All the operations of the runs on one directory, in their order, and what was there before
    them: `base`, which is read at once."""

    def __init__(self, base: Path) -> None:
        self.inodes = [_Inode(None, 0)]
        numbers = {"": 0}
        for path, content in trees.take(base).entries:
            numbers[path] = self._new(content)
            above, _, name = path.rpartition("/")
            self.inodes[numbers[above]].entries[name] = numbers[path]
            self.inodes[numbers[above]].live[name] = numbers[path]
        self.ops: list[Op] = []
        self.syncs: list[int] = []  # the calls that made something durable
        # the data written to standard output, and the call that wrote it
        self.answers: list[tuple[int, bytes]] = []
        self._last: dict[tuple[int, str], int] = {}  # the latest operation on an entry
        # the operations without which a directory cannot be reached
        self._made: dict[int, set[int]] = {}
        self._touched: dict[int, set[int]] = {}  # all operations on a directory's entries
        self.last = 0  # how many calls there were

    def add(self, calls: Sequence[Call]) -> int:
        """Follow one more run, whose root was `base`. Its calls are numbered on from those of the
        former runs; the number of the last is returned. A call that did not happen, or can only
        have failed, changes nothing."""
        for call in calls:
            self.last += 1
            if call.fate == "run":
                getattr(self, "_" + call.kind)(replace(call, seq=self.last))
        return self.last

    # The effects of the calls

    def _open(self, call: Call) -> None:
        inode = self._find(call.paths[0])[2]
        if inode is None and call.flags & os.O_CREAT:
            self._make(call, b"")
        elif inode is not None and isinstance(self.inodes[inode].content, bytes):
            if call.flags & os.O_TRUNC and not call.flags & os.O_EXCL:
                self._data(call, inode, 0, None)

    def _write(self, call: Call) -> None:
        if call.paths[0] == "<stdout>":
            self.answers.append((call.seq, call.data or b""))
        inode = self._find(call.paths[0])[2]
        if inode is not None and call.data and call.offset is not None:
            self._data(call, inode, call.offset, call.data)

    def _truncate(self, call: Call) -> None:
        inode = self._find(call.paths[0])[2]
        if inode is not None:
            self._data(call, inode, call.size, None)

    def _rename(self, call: Call) -> None:
        if call.paths[0].endswith("/.try"):
            return  # by its name `.`, which fails (engine/probe.sh)
        (source, old, inode), (target, new, there) = map(self._find, call.paths)
        if source is None or target is None or inode is None or inode == there:
            return
        if there is not None and (call.flags & 1 or self.inodes[there].live
                or self._is_dir(there) != self._is_dir(inode)):
            return  # RENAME_NOREPLACE; and targets that cannot be replaced
        self._entries(call, (target, new, inode), (source, old, None))
        self.ops[-1].needs |= self._made.get(target, set())

    def _mkdir(self, call: Call) -> None:
        above = self._find(call.paths[0])[0]
        if above is not None and (made := self._make(call, None)):
            self._made[made] = {len(self.ops) - 1, *self._made.get(above, ())}

    def _mknod(self, call: Call) -> None:
        self._make(call, stat.S_IFIFO | 0o600)

    def _unlink(self, call: Call) -> None:
        directory, name, inode = self._find(call.paths[0])
        if directory is not None and inode is not None and not self._is_dir(inode):
            self._entries(call, (directory, name, None))

    def _rmdir(self, call: Call) -> None:
        directory, name, inode = self._find(call.paths[0])
        if directory is not None and inode is not None and self._is_dir(inode) and (
                not self.inodes[inode].live):
            self._entries(call, (directory, name, None))
            self.ops[-1].needs |= self._touched.get(inode, set())

    def _sync(self, call: Call) -> None:
        everything = call.name in ("sync", "syncfs")
        inode = None if everything else self._find(call.paths[0])[2]
        done = {index for index, op in enumerate(self.ops) if everything or inode is not None and (
            op.inode == inode and not op.entries or inode in [entry[0] for entry in op.entries])}
        for index in self._closed(done):
            if self.ops[index].synced is None:
                self.ops[index].synced = call.seq
        self.syncs.append(call.seq)

    # How they are noted

    def _new(self, content: Content) -> int:
        self.inodes.append(_Inode(content, len(content) if isinstance(content, bytes) else 0))
        return len(self.inodes) - 1

    def _make(self, call: Call, content: Content) -> int:
        """The new inode; 0 if there can be none."""
        directory, name, there = self._find(call.paths[0])
        if directory is None or there is not None:
            return 0
        made = self._new(content)
        self._entries(call, (directory, name, made))
        return made

    def _is_dir(self, inode: int) -> bool:
        return self.inodes[inode].content is None

    def _find(self, path: str) -> tuple[int | None, str, int | None]:
        """Directory, name and inode of a path below the root: None where there is none now."""
        if path == ".":
            return None, "", 0
        # /proc names an open file that was unlinked like this
        if path.startswith(("/", "<", "?")) or path.endswith(" (deleted)"):
            return None, "", None
        directory: int | None = 0
        *above, name = path.split("/")
        for part in above:
            directory = None if directory is None else self.inodes[directory].live.get(part)
        found = None if directory is None else self.inodes[directory].live.get(name)
        return directory, name, found

    def _entries(self, call: Call, *entries: tuple[int, str, int | None]) -> None:
        index, needs = len(self.ops), set()
        for directory, name, inode in entries:
            if (directory, name) in self._last:
                needs.add(self._last[directory, name])
            self._last[directory, name] = index
            self._touched.setdefault(directory, set()).add(index)
            if inode is None:
                self.inodes[directory].live.pop(name, None)
            else:
                self.inodes[directory].live[name] = inode
        self.ops.append(Op(call.seq, f"{call.kind} {' '.join(call.paths)}", entries, needs=needs))

    def _data(self, call: Call, inode: int, offset: int, data: bytes | None) -> None:
        known = self.inodes[inode]
        if data is None and known.size == offset:
            return
        known.size = max(known.size, offset + len(data)) if data else offset
        self.ops.append(Op(call.seq, f"{call.kind} {call.paths[0]}", inode=inode, offset=offset,
            data=data))

    def _closed(self, indices: Iterable[int]) -> set[int]:
        """These and all that they presuppose."""
        found, left = set(), list(indices)
        while left:
            index = left.pop()
            if index not in found:
                found.add(index)
                left += self.ops[index].needs
        return found

    # The states that may be left

    def pending(self, cut: int) -> list[int]:
        """The operations up to call `cut` that no sync up to there has made durable."""
        return [index for index, op in enumerate(self.ops) if op.seq <= cut
            and (op.synced is None or op.synced > cut)]

    def tree(self, cut: int, outcomes: str | None = None) -> Tree:
        """What is on the disk when the power goes after call `cut`; outcomes: one of each pending
        operation; None: all are there."""
        pending = self.pending(cut)
        outcomes = outcomes or WHOLE * len(pending)
        became = dict(zip(pending, outcomes))
        entries = [dict(inode.entries) for inode in self.inodes]
        bytes_of: dict[int, bytearray] = {}
        for index, op in enumerate(self.ops):
            if op.seq > cut:
                break
            if became.get(index, WHOLE) == ABSENT:
                continue
            if any(became.get(need) == ABSENT for need in op.needs):
                became[index] = ABSENT
                continue
            for directory, name, inode in op.entries:
                if inode is None:
                    entries[directory].pop(name, None)
                else:
                    entries[directory][name] = inode
            if not op.entries:
                self._apply(op, became.get(index, WHOLE), bytes_of)
        return Tree(tuple(self._grow(0, entries, bytes_of)))

    def _apply(self, op: Op, outcome: str, bytes_of: dict[int, bytearray]) -> None:
        before, data = self.inodes[op.inode].content, op.data or b""
        assert isinstance(before, bytes)
        content = bytes_of.setdefault(op.inode, bytearray(before))
        if outcome == HALF:
            data = data[:len(data) // 2]
        elif outcome == ZEROS:
            data = bytes(len(data))
        if len(content) < op.offset:
            content.extend(bytes(op.offset - len(content)))
        if op.data is None:
            del content[op.offset:]
        else:
            content[op.offset:op.offset + len(data)] = data

    def _grow(self, number: int, entries: Sequence[dict[str, int]],
            bytes_of: dict[int, bytearray], below: str = "") -> Iterator[tuple[str, Content]]:
        for name, child in sorted(entries[number].items()):
            yield below + name, (bytes(bytes_of[child]) if child in bytes_of
                else self.inodes[child].content)
            yield from self._grow(child, entries, bytes_of, f"{below}{name}/")

    def choices(self, cut: int, whole: frozenset[int], samples: int, seed: int) -> Iterator[str]:
        """Outcomes of the pending operations at `cut`; the first has lost them all. `whole`:
        operations that are taken to be there. Each outcome of each of the others, beside all of
        them, all but the later ones of the same file, none, and those before it; of a few also all
        subsets, of more seeded samples."""
        pending = self.pending(cut)
        free = [place for place, index in enumerate(pending) if index not in whole]

        def outcome(given: dict[int, str], rest: str) -> str:
            return "".join(WHOLE if index in whole else given.get(place, rest)
                for place, index in enumerate(pending))

        yield outcome({}, ABSENT)
        if len(free) <= ALL_SUBSETS:
            for marks in itertools.product(WHOLE + ABSENT, repeat=len(free)):
                yield outcome(dict(zip(free, marks)), WHOLE)
        for count, place in enumerate(free):
            op = self.ops[pending[place]]
            cut_off = {later: ABSENT for later in free[count + 1:]
                if self.ops[pending[later]].inode == op.inode and not op.entries}
            begun = dict.fromkeys(free[:count], WHOLE)
            for mark in op.outcomes:
                yield outcome({place: mark}, WHOLE)
                yield outcome({**cut_off, place: mark}, WHOLE)
                yield outcome({place: mark}, ABSENT)
                yield outcome({**begun, place: mark}, ABSENT)
        generator = random.Random(f"{seed} {cut}")
        for _ in range(samples if len(free) > 3 else 0):
            yield outcome({place: generator.choice(self.ops[pending[place]].outcomes)
                for place in free}, WHOLE)
