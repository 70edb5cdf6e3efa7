"""Directory trees in memory: read them, write them back, and compare them by all that matters to
the queue.

Two wrecks that differ only in nonces, times, process ids and the log are the same for a recovery;
`digest` is equal for them, so that only one is recovered and checked."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from . import layout

#: What differs from run to run in a path, or in the slip at the head of a line: owners and process
#: ids; times, but for those of layout.age; when a message was born; nonces.
_VARIES = re.compile(rf"(?<![0-9-])\d+-\d{{12}}(?!\d)|(?<=/delayed/)(?!{layout.DUE}|\d+$)\d+/\d+"
    r"|(?<=/\.boot/).+|(?<=/buried/)\d+(/\d+)?(/\d+(?=\.))?|(?<=\.)\d{12}(?=\.\d+\.[-k])"
    r"|(?<![0-9a-f])(?!00000)(?P<nonce>[0-9a-f]{12})(?![0-9a-f])")
_DEADLINE = re.compile(rf"(?<=\.)(?!{layout.OVER}|0{{12}})\d{{12}}(?=/|$)")
#: Files of which only that they are there counts: what is in them differs, and no recovery reads
#: it. `.put`: in tmp/, from where it goes away.
_IGNORED = re.compile(r"/(log(\.\d+)?|tended|[^/]*\.put)$")
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
    while True:
        with contextlib.suppress(FileNotFoundError):
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
    if root.exists():
        shutil.rmtree(root)


@functools.lru_cache(maxsize=4)
def digest(tree: Tree) -> bytes:
    """Equal only for trees that differ in nothing but nonces, times and process ids. Each nonce is
    its number, so that names which share one still do."""
    nonces: dict[str, int] = {}
    slips = " ".join(path for path, _ in tree.entries if "/body/" not in path)

    def plain(text: str) -> str:
        return _VARIES.sub(lambda found: f"N{nonces.setdefault(found['nonce'], len(nonces))}"
            if found["nonce"] else "~", text)

    rows = []
    for path, content in tree.entries:
        name = plain(f"/{path}")
        if re.match(r"/[^/]+/(out|done)/", name):
            name = _DEADLINE.sub("~", name)
        if isinstance(content, bytes):
            if _IGNORED.search(name):
                content = b""
            elif "/body/" in name and len(content) > 4096 and path[-12:] not in slips:
                # a body without a slip: it does not matter how much of it a killed push has written
                content = b"long" + content[-1:]
            elif b"\t" in content[:256]:  # a flat file
                content = re.sub(rb"(?m)^[^\t\n]+(?=\t)",
                    lambda head: os.fsencode(plain(os.fsdecode(head[0]))), content)
        rows.append((name, content))
    return hashlib.blake2b(repr((tree.exists, sorted(rows, key=repr))).encode(),
        digest_size=16).digest()
