"""What one process has found out, and others need not: files in the directory that they all work in."""
from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LARGE = 1 << 18  # bytes: what is larger is found again rather than kept, since the place may be memory
T = TypeVar("T")


def once(work: Path, key: object, find: Callable[[], T]) -> T:
    """What find() returns for this key, whose repr() tells it from all others; find is called again only where that is not known yet."""
    path = work / "memo" / hashlib.blake2b(repr(key).encode(), digest_size=16).hexdigest()
    with contextlib.suppress(FileNotFoundError):
        found: T = pickle.loads(path.read_bytes())
        return found
    found = find()
    data = pickle.dumps(found)
    if len(data) < LARGE:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(data)
        new.rename(path)  # whole or not there; whose it is does not matter
    return found
