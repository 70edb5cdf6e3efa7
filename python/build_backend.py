"""setuptools, in a copy of this directory that has the shell files beside the package: ../lib and
../launch become flatq/sh.

So a build writes nothing here, which may be read-only, and an sdist, which has no ../lib, is built
the same way."""

import contextlib
import io
import os
import re
import tempfile
import tokenize
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The laboratory needs the source tree, and so is not in the package


def _bare(text, header):
    """Shell, awk or perl without its comments, which each verb would read again; but with its
    header if that is what -h prints."""
    kept = re.match(rb"(#.*\n)*", text)[0] if header else b""
    return kept + re.sub(rb"(?m)^[ \t]*#.*\n", b"", text[len(kept):])


def _bare_python(text):
    """Python without the lines that are comments alone."""
    lines = text.splitlines(keepends=True)
    for token in tokenize.tokenize(io.BytesIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and not token.line[:column].strip():
            lines[row - 1] = b""
    return b"".join(lines)


def _copy(source, target):
    """A file that its owner can write, executable where the original is: modes of the tree do not
    matter."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_bytes()
    if source.suffix in (".sh", ".awk", ".pl") or text.startswith(b"#!/bin/sh\n"):
        text = _bare(text, text.startswith(b"#!"))
    elif source.suffix == ".lua":
        text = re.sub(rb"(?m)^[ \t]*--.*\n", b"", text)
    elif source.suffix == ".py":
        text = _bare_python(text)
    target.write_bytes(text)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


@contextlib.contextmanager
def _staged():
    with tempfile.TemporaryDirectory(prefix="flatq-build.") as name:
        stage = Path(name, "flatq")
        for path in HERE.rglob("*"):
            parts = path.relative_to(HERE).parts
            left_out = path.suffix == ".pyc" or parts[0].endswith((".egg-info", "build",
                "dist"))
            if path.is_file() and not left_out:
                _copy(path, stage.joinpath(*parts))
        if not (stage / "flatq/sh").is_dir():
            _copy(HERE.parent / "launch", stage / "flatq/sh/launch")
            lib = HERE.parent / "lib"
            for path in lib.rglob("*"):
                # Leave out what only make install uses
                if path.is_file() and path.suffix != ".md" and path.parent.name not in (
                        "completion", "man", "systemd"):
                    _copy(path, stage / "flatq/sh" / path.relative_to(lib))
            _copy(HERE.parent / "LICENSE", stage / "LICENSE")
        (stage / "MANIFEST.in").write_text("include build_backend.py\n")
        (stage / "VERSION").write_bytes(re.search(rb"(?m)^flatq_version=(.+)$",
            (stage / "flatq/sh/flatq").read_bytes())[1])
        before = Path.cwd()
        os.chdir(stage)
        try:
            yield
        finally:
            os.chdir(before)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    from setuptools import build_meta

    with _staged():
        return build_meta.build_wheel(wheel_directory, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    from setuptools import build_meta

    with _staged():
        return build_meta.build_sdist(sdist_directory, config_settings)
