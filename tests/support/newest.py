"""Programs of Debian's newest release (sid), unpacked below .venv, for userlands that the installed
release does not have yet."""

import contextlib
import fcntl
import hashlib
import http.client
import lzma
import os
import pathlib
import re
import subprocess
import urllib.request

import pytest

import userlands
from conftest import need

# resolved, since the path of the loader is written into a program
PLACE = (pathlib.Path(__file__).parents[2] / ".venv").resolve() / "newest"
WANTED = {"rust-coreutils": "usr/bin/coreutils", "busybox-static": "usr/bin/busybox"}
LIBRARIES = ("libc6 libgcc-s1 libselinux1 libpcre2-8-0 libssl3t64 libzstd1 zlib1g libsystemd0 "
    "libcap2").split()


def missing():
    """Why these programs cannot be had; empty: they are there. They are fetched once in a run."""
    failed = pathlib.Path(os.environ["FLATQ_TEST_WORK"]) / "newest"
    PLACE.mkdir(exist_ok=True)
    with open(PLACE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (PLACE / "whole").exists():
            return ""
        if not failed.exists():
            try:
                fetch()
            except (OSError, ValueError, http.client.HTTPException, lzma.LZMAError,
                    subprocess.CalledProcessError) as error:
                failed.write_text(f"cannot fetch Debian's newest programs: {error}")
            else:
                (PLACE / "whole").touch()
                return ""
        return failed.read_text()


def program(package):
    """The path of the package's program of many names. Without a Debian mirror, fail under CI, else
    skip."""
    if reason := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return PLACE / package / WANTED[package]


def fetch():
    """The mirror and the architecture are those that apt uses."""
    patchelf = need("patchelf", "dpkg-deb", "apt-get")
    lines = subprocess.run(["apt-get", "indextargets", "--format",
        "$(ORIGIN) $(ARCHITECTURE) $(REPO_URI)"], stdout=subprocess.PIPE, text=True,
        check=True).stdout
    found = re.search(r"^Debian (?!all )(\S+) (https?://\S+)", lines, re.M)
    if not found:
        raise OSError("apt knows no mirror of Debian's")
    architecture, mirror = found.groups()
    with contextlib.closing(urllib.request.urlopen(
            f"{mirror}dists/sid/main/binary-{architecture}/Packages.xz", timeout=60)) as answer:
        index = lzma.decompress(answer.read()).decode()
    for package in (*WANTED, *LIBRARIES):
        entry = re.search(rf"^Package: {re.escape(package)}$(?:\n.+)*", index, re.M)
        if not entry:
            raise ValueError(f"the mirror has no {package}")
        name, digest = (re.search(rf"^{field}: (\S+)$", entry[0], re.M)[1]
            for field in ("Filename", "SHA256"))
        with contextlib.closing(urllib.request.urlopen(mirror + name, timeout=60)) as answer:
            (PLACE / "deb").write_bytes(answer.read())
        if hashlib.sha256((PLACE / "deb").read_bytes()).hexdigest() != digest:
            raise ValueError(f"{package} from the mirror is not the one in its list")
        subprocess.run(["dpkg-deb", "-x", PLACE / "deb",
            PLACE / (package if package in WANTED else "libraries")], check=True)
    os.unlink(PLACE / "deb")
    # with the libraries that came along, and no script before it: tests look at the names of the
    # programs that run
    loader, = (PLACE / "libraries/usr/lib").glob("*-linux-gnu/ld-linux-*.so.*")
    uutils = PLACE / "rust-coreutils" / WANTED["rust-coreutils"]
    subprocess.run([patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath",
        loader.parent, uutils], check=True)


def applets(package, place):
    """A directory with a link for each name of the program. Of uutils, all but `[`, which the shell
    has."""
    userlands.applets(place, program(package), ["--list"])
    (place / "[").unlink(missing_ok=True)
    return place
