"""Files where Spark writes: of this machine, or through Hadoop, of hdfs://, s3a:// and the like."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local(path: str) -> str | None:
    """The path, if it is a directory on this machine; None for hdfs:// and the like."""
    if "://" in path and not path.startswith("file:"):
        return None
    return os.path.abspath(re.sub("^file:/+", "/", path))


def files_of(path: str, spark: SparkSession | None) -> Here:
    """Raises ValueError if it takes a session to reach that path, and there is none."""
    if local(path) is not None:
        return Here()
    if spark is None:
        raise ValueError(f"flatq: {path} is not on this machine, and there is no session")
    return There(spark, path)


class Here:
    def names(self, path: str) -> list[str] | None:
        """The names in a directory; None where there is none. Raises NotADirectoryError."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(local(path))
        return None

    def read(self, path: str) -> bytes:
        with open(local(path) or path, "rb") as file:
            return file.read()

    def write(self, path: str, text: bytes) -> None:
        """Write a file, and sync all that is beside it."""
        from .options import sync

        with open(path, "wb") as file:
            file.write(text)
        sync(os.path.dirname(path))

    def beside(self, path: str) -> str:
        """A new directory, next to that one."""
        made = f"{os.path.dirname(path)}/.flatq-{uuid.uuid4().hex}"
        self.make(made)
        return made

    def make(self, path: str) -> None:
        os.makedirs(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a directory, if it exists."""
        shutil.rmtree(path, ignore_errors=True)


class There(Here):
    def __init__(self, spark: SparkSession, to: str) -> None:
        jvm: Any = spark._jvm
        self.path = jvm.org.apache.hadoop.fs.Path
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        self.system = self.path(to).getFileSystem(settings)

    def names(self, path: str) -> list[str] | None:
        if not self.system.exists(self.path(path)):
            return None
        if self.system.getFileStatus(self.path(path)).isFile():
            raise NotADirectoryError(path)
        return [status.getPath().getName() for status in self.system.listStatus(self.path(path))]

    def read(self, path: str) -> bytes:
        stream = self.system.open(self.path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, path: str, text: bytes) -> None:
        stream = self.system.create(self.path(path), True)
        stream.write(bytearray(text))
        stream.close()

    def make(self, path: str) -> None:
        self.system.mkdirs(self.path(path))

    def rename(self, old: str, new: str) -> None:
        if not self.system.rename(self.path(old), self.path(new)):
            raise OSError(f"{old} could not be renamed to {new}")

    def remove(self, path: str) -> None:
        self.system.delete(self.path(path), True)
