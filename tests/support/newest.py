"""Programs of Debian's newest release (sid), unpacked below .venv, for userlands that the installed release does not have yet."""

import contextlib
import fcntl
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest

PLACE = pathlib.Path(__file__).parents[2] / ".venv/newest"
WANTED = {"rust-coreutils": "usr/bin/coreutils", "busybox-static": "usr/bin/busybox"}
LIBRARIES = "libc6 libgcc-s1 libselinux1 libpcre2-8-0 libssl3t64 libzstd1 zlib1g libsystemd0 libcap2".split()


def program(package):
    """The words that run the package's program of many names. Skip where there is no Debian mirror to fetch it from."""
    PLACE.mkdir(exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / "whole").exists():
            try:
                fetch()
            except OSError as error:
                pytest.skip(f"cannot fetch Debian's newest programs: {error}")
            (PLACE / "whole").touch()
    path = PLACE / package / WANTED[package]
    if package == "busybox-static":
        return [path]
    loader, = (PLACE / "libraries/usr/lib").glob("*-linux-gnu/ld-linux-*.so.*")
    return [loader, "--library-path", loader.parent, path]


def fetch():
    """The mirror and the architecture are those that apt uses."""
    if not shutil.which("apt-get"):
        raise OSError("no apt-get")
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(ARCHITECTURE) $(REPO_URI)"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"^Debian (?!all )(\S+) (https?://\S+)", lines, re.M)
    if not found:
        raise OSError("apt knows no mirror of Debian's")
    architecture, mirror = found.groups()
    with contextlib.closing(urllib.request.urlopen(f"{mirror}dists/sid/main/binary-{architecture}/Packages.xz", timeout=60)) as answer:
        index = lzma.decompress(answer.read()).decode()
    files = dict(re.findall(r"^Package: (\S+)$(?:\n.+)*?\nFilename: (\S+)$", index, re.M))
    for package in (*WANTED, *LIBRARIES):
        with contextlib.closing(urllib.request.urlopen(mirror + files[package], timeout=60)) as answer:
            (PLACE / "deb").write_bytes(answer.read())
        subprocess.run(["dpkg-deb", "-x", PLACE / "deb", PLACE / (package if package in WANTED else "libraries")], check=True)
    os.unlink(PLACE / "deb")


def applets(package, place):
    """A directory with a script for each name of the program. Of uutils, all but `[`, which the shell has."""
    words = program(package)
    place.mkdir()
    for name in subprocess.run([*words, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split():
        if name != "[":
            (place / name).write_text("#!/bin/sh\nexec {} {} \"$@\"\n".format(" ".join(map(str, words)), name))
            (place / name).chmod(0o755)
    return place
