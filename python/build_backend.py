"""setuptools, in a copy of this directory where ../lib is flatq/sh. So a build
writes nothing here. There is no sdist, which would lack ../lib."""

import os
import re
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _copy(source, target):
    """A file that its owner can write, executable where the original is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = source.read_bytes()
    script = text.startswith(b"#!/bin/sh\n")
    if script or source.suffix in (".sh", ".awk", ".pl"):
        # Each verb would read the comments again; but -h prints a verb's header
        kept = re.match(rb"(#.*\n)*", text)[0] if script else b""
        text = kept + re.sub(rb"(?m)^[ \t]*#.*\n", b"", text[len(kept):])
    target.write_bytes(text)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    from setuptools import build_meta

    with tempfile.TemporaryDirectory(prefix="flatq-build.") as name:
        stage, lib = Path(name, "flatq"), HERE.parent / "lib"
        for path in HERE.rglob("*"):
            parts = path.relative_to(HERE).parts
            left_out = parts[0].endswith((".egg-info", "build", "dist"))
            if path.is_file() and path.suffix != ".pyc" and not left_out:
                _copy(path, stage.joinpath(*parts))
        for path in lib.rglob("*"):
            # Leave out what only make install uses
            if path.is_file() and path.suffix != ".md" and path.parent.name not in (
                    "completion", "man", "systemd"):
                _copy(path, stage / "flatq/sh" / path.relative_to(lib))
        _copy(HERE.parent / "LICENSE", stage / "LICENSE")
        version = re.search(r"(?m)^flatq_version=(.+)$", (stage / "flatq/sh/flatq").read_text())
        (stage / "VERSION").write_text(version[1])
        before = Path.cwd()
        os.chdir(stage)
        try:
            return build_meta.build_wheel(wheel_directory, config_settings)
        finally:
            os.chdir(before)
