"""Share results between processes, by files in the directory in which they all work."""
from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

LARGE = 1 << 18  # bytes: larger results are not stored, since the directory may be in memory
T = TypeVar("T")
_large: dict[Path, Any] = {}  # the last four of these, in the process that computed them


def once(work: Path, key: object, find: Callable[[], T]) -> T:
    """Return find()'s result for this key (keys are told apart by repr()); call find only if no
    process has stored the result yet. Of large results each process computes its own."""
    path = work / "memo" / hashlib.blake2b(repr(key).encode(), digest_size=16).hexdigest()
    found: T
    if path in _large:
        found = _large[path]
        return found
    with contextlib.suppress(FileNotFoundError):
        found = pickle.loads(path.read_bytes())
        return found
    found = find()
    data = pickle.dumps(found)
    if len(data) < LARGE:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(data)
        new.rename(path)  # The file is whole or does not exist; any process's result will do
    else:
        _large[path] = found
        if len(_large) > 4:
            del _large[next(iter(_large))]
    return found
