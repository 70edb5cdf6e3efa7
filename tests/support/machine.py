"""What a run of the tests takes from its machine: the programs of the system's packages, and few
variables. Nothing of its user's is met by a test."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from crash import campaign

VENV = Path(__file__).resolve().parents[2] / ".venv"
# where packages have their programs. What is in /usr/local or elsewhere is this machine's alone
PACKAGED = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
# flatq may be installed. ShellCheck and ruff are those of .venv (running.need)
HIDDEN = {"flatq", "shellcheck", "ruff"}
# what is said to this run, where Java is, and how to reach a registry of packages
KEPT = ("CI|FLATQ_(SEED|TEST|FUZZ).*|PYTEST_.*|JAVA_HOME|TERM|COLUMNS|PIP_.*"
    "|(?i:.*_proxy|.*_CA_.*|SSL_.*)")


def own(at_the_end):
    """From here on this process, and all that it starts, has an environment of its own, and
    directories, which at_the_end(FUNCTION) removes."""
    os.umask(0o022)
    places = contextlib.ExitStack()
    at_the_end(places.close)
    # on a disk, a run takes half as long again. TMPDIR stays there: some tests want a disk
    work = places.enter_context(campaign.workplace())
    temporary = tempfile.mkdtemp(prefix="flatq-test.")
    places.callback(shutil.rmtree, temporary, ignore_errors=True)
    os.chmod(temporary, 0o1777)
    work.chmod(0o711)  # some tests run verbs as another user
    (work / "home").mkdir()
    programs(work / "bin")
    kept = {name: value for name, value in os.environ.items() if re.fullmatch(KEPT, name)}
    os.environ.clear()
    os.environ.update(kept, PATH=str(work / "bin"), HOME=str(work / "home"), TMPDIR=temporary,
        FLATQ_TEST_WORK=str(work), PYTEST_DEBUG_TEMPROOT=str(work.parent),
        PYTHONDONTWRITEBYTECODE="1",
        # a killed Spark leaves its directories
        SPARK_LOCAL_DIRS=temporary, SPARK_SUBMIT_OPTS=f"-Djava.io.tmpdir={temporary}")
    tempfile.tempdir = None


def programs(place):
    """Create `place` with links to the programs of the system's packages."""
    place.mkdir()
    for directory in map(Path, reversed(PACKAGED)):
        for name in set(os.listdir(directory)) - HIDDEN if directory.is_dir() else ():
            (place / name).unlink(missing_ok=True)
            (place / name).symlink_to(directory / name)
    busybox = place / "busybox"
    if busybox.exists() and not looks_into_path(busybox):
        busybox.unlink()
        for found in unpacked("busybox").glob("**/bin/busybox"):
            busybox.symlink_to(found)


def looks_into_path(shell):
    """Whether a shell runs the programs in PATH. Debian's busybox-static runs its own, which flatq
    refuses (lib/TOOLS.md)."""
    done = subprocess.run(["sh", "-c", "base64 --help"], executable=shell, env={"PATH": "/none"},
        capture_output=True)
    return done.returncode == 127


def unpacked(package):
    """Where the files of this Debian package lie below .venv. There are none if it cannot be
    had."""
    place = VENV / "packages"
    place.mkdir(exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / package).exists():
            subprocess.run(["sh", "-c", "apt-get download $0 && dpkg-deb -x $0_*.deb new && "
                "rm $0_*.deb && mv new $0", package], cwd=place, stdin=subprocess.DEVNULL,
                capture_output=True)
    return place / package
