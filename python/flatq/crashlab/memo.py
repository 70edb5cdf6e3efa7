"""Share results between processes, by files in the directory in which they all work."""
from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LARGE = 1 << 18  # bytes: larger results are computed again instead of stored, since the directory may be in memory
T = TypeVar("T")


def once(work: Path, key: object, find: Callable[[], T]) -> T:
    """Return find()'s result for this key (keys are told apart by repr()); call find only if no process has stored the result yet."""
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
        new.rename(path)  # The file is whole or does not exist; any process's result will do
    return found
