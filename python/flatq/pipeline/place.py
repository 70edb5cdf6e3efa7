"""Where a job writes, its --to.

    DIR/_flatq    the mark, a line of JSON: which job writes DIR, and what it has put there

python/README.md says which directories a job takes. Any other is refused by Invalid, before
anything is claimed, written or removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from ..errors import Invalid
from ..spark.format import listed
from ..spark.options import local, sync

MARK = "_flatq"
#: The names that Spark gives to files of a table; `drain` removes no others
PART = re.compile(
    r"part-[0-9]{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-c[0-9]{3,}(\.[a-z0-9_]+)?\.parquet")


def plain(name: str) -> str:
    """The file to which a name belongs: Hadoop puts a checksum beside each file."""
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


class Place:
    """The directory of a job. Raises Elsewhere."""

    def __init__(self, job: str, to: str) -> None:
        #: `name`: under which the directory is looked for again
        self.job, self.to, self.name = job, to, local(to)
        self.path = os.path.realpath(self.name)

    def check(self, path: str | None = None) -> bool:
        """Whether the job has anything there, or at `path`, where the directory is now. Raises
        Invalid if anything else is there."""
        path = path or self.path
        try:
            there = {plain(name) for name in listed(path)} - {MARK}
        except NotADirectoryError:
            if not os.path.exists(path):
                raise
            raise Invalid(f"{self.to} is no directory") from None
        # CRASH: a mark that was cut short is the only file
        if not there:
            return False
        mark, wrong = self.marked(path), ""
        others = sorted(name for name in there if name not in mark.get("files", ())
            and not (self.job == "drain" and PART.fullmatch(name)))
        if not mark:
            wrong = f"holds '{min(there)}', and no mark of {self.job}"
        elif mark["job"] != self.job:
            wrong = f"was written by {mark['job']}, not by {self.job}"
        elif mark.get("to", self.name) != self.name:
            wrong = f"was made as {mark['to']}, and its table goes on only there"
        elif others:
            wrong = f"holds '{others[0]}', which {self.job} did not put there"
        if wrong:
            raise Invalid(f"{self.to} {wrong}: say a new directory, or an empty one")
        return True

    def marked(self, path: str) -> dict[str, Any]:
        """What the mark says, if it is whole."""
        with contextlib.suppress(FileNotFoundError, ValueError), \
                open(f"{path}/{MARK}", encoding="utf-8") as file:
            mark = json.load(file)
            if isinstance(mark, dict) and "job" in mark and isinstance(mark.get("files"), list):
                return mark
        return {}

    def mark(self, path: str, files: list[str], **more: str) -> None:
        """Write the mark, and sync all that is beside it. Raises OSError."""
        with open(f"{path}/{MARK}", "w", encoding="utf-8") as file:
            json.dump({"job": self.job, **more, "files": files}, file)
            file.write("\n")
        sync(path)

    @contextlib.contextmanager
    def replaced(self) -> Iterator[str]:
        """The path of a new directory to write to. At the end it replaces the old one; if something
        is raised, the old one stays."""
        self.check()
        above = os.path.dirname(self.path)
        os.makedirs(above, exist_ok=True)
        work = tempfile.mkdtemp(prefix=".flatq-", dir=above)
        new, old = f"{work}/new", f"{work}/old"
        os.mkdir(new)
        try:
            yield new
            self.mark(new, sorted({plain(name) for name in os.listdir(new)}))
            if os.path.exists(self.path):
                os.rename(self.path, old)
            # CRASH: the old directory and the new one are both whole, in `work`, and stay there
            self.check(old)
            os.rename(new, self.path)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            if os.path.exists(old) and not os.path.exists(self.path):
                os.rename(old, self.path)
            shutil.rmtree(new, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(work)
