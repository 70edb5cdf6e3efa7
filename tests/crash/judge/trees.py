"""Directory trees in memory: read them, write them back, and compare them by all that matters to
the queue.

Two wrecks that differ only in nonces, times, process ids and the log are the same for a recovery;
`digest` is equal for them, so that only one is recovered and checked. """
from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from flatq.slips import slip_of
from . import layout

_OWNER = re.compile(rb"(?<![0-9-])[0-9]+-[0-9]{12}(?![0-9])")
_NONCE = re.compile(rb"(?<![0-9a-f])(?!00000)[0-9a-f]{12}(?![0-9a-f])")
_PID = re.compile(rb"^(new|conf|probe)\.[0-9]+$")
IGNORED = ("log", "tended")  # by name, below a queue: only that they are there counts
#: None: a directory, int: the mode of a special file, bytes: a file's content.
Content = Union[bytes, int, None]


@dataclass(frozen=True, eq=False)
class Tree:
    """Paths below the root, each behind the directory that it is in."""

    entries: tuple[tuple[str, Content], ...]
    exists: bool = True


def take(root: Path) -> Tree:
    """The tree at root. Symbolic links are not expected. Where something goes away meanwhile it is
    looked at again: of a run that the gate has stopped, a call that it has let go may just be under
    way."""
    for _ in range(99):
        try:
            return _take(root)
        except FileNotFoundError:
            continue
    return _take(root)


def _take(root: Path) -> Tree:
    if not root.exists():
        return Tree((), False)
    entries: list[tuple[str, Content]] = []
    pending = [""]
    while pending:
        below = pending.pop()
        with os.scandir(os.path.join(root, below)) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                path = below + entry.name
                if entry.is_dir(follow_symlinks=False):
                    entries.append((path, None))
                    pending.append(path + "/")
                elif entry.is_file(follow_symlinks=False):
                    entries.append((path, Path(entry.path).read_bytes()))
                else:
                    entries.append((path, entry.stat(follow_symlinks=False).st_mode))
    return Tree(tuple(entries))


def put(tree: Tree, root: Path) -> None:
    """Write the tree at root, where nothing must be."""
    if not tree.exists:
        return
    top = os.path.join(root, "")
    os.mkdir(top, 0o700)
    for path, content in tree.entries:
        if content is None:
            os.mkdir(top + path, 0o700)
        elif isinstance(content, int):
            os.mknod(top + path, content)
        else:
            fd = os.open(top + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            if content:
                os.write(fd, content)
            os.close(fd)


def written(tree: Tree, path: str, offset: int, data: bytes) -> Tree:
    """The tree after a write of data at that offset of a file; the same one where the file has no
    name in it any more."""
    def new(content: Content) -> Content:
        if not isinstance(content, bytes):
            return content
        return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data):]

    return Tree(tuple((name, new(content) if name == path else content) for name,
        content in tree.entries), tree.exists)


def remove(root: Path) -> None:
    """Remove what is at root, if anything is."""
    def empty(path: str) -> None:
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    empty(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)

    try:
        empty(os.fspath(root))
    except FileNotFoundError:
        if root.exists():
            raise


@functools.lru_cache(maxsize=4096)
def _without_nonce(name: str, place: str) -> tuple[bytes, str]:
    """The name of one component without what differs from run to run; its nonce."""
    core, lead = name, ""
    if place == "buried":
        lead, _, core = name.partition(".")
        core, _, reason = core.rpartition(".")
        lead = f"buried-{reason}-"
    slip = slip_of(core)
    if slip:
        parts = core.split(".")
        parts[3] = parts[3] if parts[3] == "0" else "N"
        parts[6] = "B"
        if len(parts) == 12:
            parts[10] = "0" if parts[10] == "0" else "P"
            parts[11] = "0" if parts[11] == "0" * 12 else "over" if parts[
                11] == layout.OVER else "D"
        return (lead + ".".join(parts)).encode(), slip.nonce
    text = os.fsencode(name)
    text = _PID.sub(rb"\1.PID", _OWNER.sub(b"P", text))
    found = _NONCE.search(text)
    return _NONCE.sub(b"N", text), found[0].decode() if found else ""


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _content(path: list[str], data: bytes) -> bytes:
    if path == [".doors", "secret"]:
        return b"whole" if len(data) == 33 else data
    # .put: in tmp/, from where it goes away
    if path[-1] in IGNORED or re.match(r"log\.\d+$", path[-1]) or path[-1].endswith(".put"):
        return b""
    if b"\t" not in data[:256]:  # no flat file
        return data if len(data) < 256 else _hash(data)
    lines = []
    for line in data.split(b"\n"):
        head, tab, body = line.partition(b"\t")
        lines.append(_without_nonce(os.fsdecode(head), "flat")[0] + tab + body)
    return b"\n".join(lines)


@functools.lru_cache(maxsize=4)
def digest(tree: Tree) -> bytes:
    """Equal for trees that differ only in nonces, times and process ids. That names share a nonce
    is kept."""
    rows: list[tuple[bytes, bytes]] = []
    slips = b" ".join(os.fsencode(path.rpartition("/")[2]) for path, _ in tree.entries)
    shared: dict[str, list[bytes]] = {}
    for path, content in tree.entries:
        parts = path.split("/")
        place = parts[1] if len(parts) > 2 else ""
        plain = []
        nonces = []
        if parts[0] == ".boot" and len(parts) > 1 or parts[0].startswith(".sync"):
            parts[-1] = "record"  # whether it syncs is the same for a recovery
        for part in parts:
            text, nonce = _without_nonce(part, place if part is parts[-1] else "")
            plain.append(text)
            nonces.append(nonce)
        if place == "delayed" and len(parts) > 2:
            over = "/".join(parts[2:4]) == layout.DUE[:len("/".join(parts[2:4]))]
            plain[2:4] = [b"over" if over else b"later"] * len(plain[2:4])
        elif place == "buried":
            plain[2:4] = [b"then"] * len(plain[2:4])
        elif place == "body" and isinstance(content, bytes) and len(
                content) > 4096 and b"." + plain[2] + b"." not in slips:
            # A body without a slip: it does not matter how much of it a killed push has written
            content = b"long\n" if content.endswith(b"\n") else b"long"
        name = b"/".join(plain)
        if nonces[-1]:
            shared.setdefault(nonces[-1], []).append(name)
        kind = b"d" if content is None else b"s%d" % stat.S_IFMT(content) if isinstance(content,
            int) else b"f" + _content(parts, content)
        rows.append((name, kind))
    groups = sorted(sorted(names) for names in shared.values() if len(names) > 1)
    rows.sort()
    return hashlib.blake2b(repr((tree.exists, rows, groups)).encode(), digest_size=16).digest()
