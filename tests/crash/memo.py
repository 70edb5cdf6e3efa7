"""Share results between processes, by files in the directory in which they all work."""
from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def once(work: Path, key: object, find: Callable[[], T]) -> T:
    """Return find()'s result for this key (keys are told apart by repr()); call find only if no
    process has stored the result yet."""
    path = work / "memo" / hashlib.blake2b(repr(key).encode(), digest_size=16).hexdigest()
    found: T
    with contextlib.suppress(FileNotFoundError):
        found = pickle.loads(path.read_bytes())
        return found
    found = find()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(pickle.dumps(found))
    new.rename(path)  # The file is whole or does not exist; any process's result will do
    return found
