"""Where a job writes, its --to, on this machine and elsewhere (hdfs://, s3a:// and the like).

    DIR/_flatq    the mark, a line of JSON: which job writes DIR, and what it has put there

A job takes a directory that is new or empty, or one that has its own mark and holds only what it
has put there. Any other is refused by Invalid, before anything is claimed, written or removed.
`drain` adds to its directory. The other jobs replace theirs, by a rename."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..spark.files import files_of, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "_flatq"
#: The names that Spark gives to files of a drained table; `drain` removes only names of this form
PART = re.compile(
    r"part-[0-9]{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-c[0-9]{3,}(\.[a-z0-9_]+)?\.parquet")


def plain(name: str) -> str:
    """The file to which a name in a directory belongs: Hadoop puts a checksum beside each file,
    which belongs to that file."""
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


class Place:
    """The directory `to` of a job; spark: for one that is not on this machine."""

    def __init__(self, job: str, to: str, spark: SparkSession | None = None) -> None:
        self.job, self.to = job, to
        here = local(to)
        #: The name under which the directory is looked for again
        self.name = here or to.rstrip("/")
        self.path = os.path.realpath(here) if here else self.name
        if not here and spark is None:
            raise Invalid(f"{to}: {job} writes to a directory of this machine", 65)
        self.files = files_of(to, spark)

    def check(self, path: str | None = None) -> bool:
        """Whether the job has anything there, or at `path`, the directory's name for the moment.
        Raises Invalid if anything else is there."""
        path = path or self.path
        try:
            there = {plain(name) for name in self.files.names(path) or ()} - {MARK}
        except NotADirectoryError:
            if local(self.to) and not os.path.exists(path):
                raise
            raise Invalid(f"{self.to} is no directory", 65) from None
        # CRASH: a mark that was cut short is the only file
        if not there:
            return False
        mark, wrong = self._mark(path), ""
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
            raise Invalid(f"{self.to} {wrong}: say a new directory, or an empty one", 65)
        return True

    def _mark(self, path: str) -> dict[str, Any]:
        if MARK in (self.files.names(path) or ()):
            with contextlib.suppress(ValueError):
                mark = json.loads(self.files.read(f"{path}/{MARK}"))
                if isinstance(mark, dict) and "job" in mark and isinstance(mark.get("files"), list):
                    return mark
        return {}

    def mark(self, path: str, files: list[str], **more: str) -> None:
        """Write the mark. Raises OSError."""
        self.files.write(f"{path}/{MARK}", json.dumps({"job": self.job, **more,
            "files": files}).encode() + b"\n")

    @contextlib.contextmanager
    def replaced(self) -> Iterator[str]:
        """The path of a new directory to write to. At the end it replaces the old one; if something
        is raised, the old one stays."""
        self.check()
        work = self.files.beside(self.path)
        new, old = f"{work}/new", f"{work}/old"
        try:
            yield new
            self.mark(new, sorted({plain(name) for name in self.files.names(new) or ()}))
            if self.files.names(self.path) is not None:
                self.files.rename(self.path, old)
            # CRASH: the old directory and the new one are both whole, in `work`, and stay there
            self.check(old)
            self.files.rename(new, self.path)
            self.files.remove(old)
        finally:
            if self.files.names(old) is not None and self.files.names(self.path) is None:
                self.files.rename(old, self.path)
            self.files.remove(new)
            if self.files.names(work) == []:
                self.files.remove(work)
