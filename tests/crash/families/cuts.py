"""Real power cuts: the spool on an image with ext4, which is shut down under the verb
(FS_IOC_SHUTDOWN), mounted again and checked. The point is a call: so many thousandths of the act.

Needs root, loop devices, and mkfs.ext4 (e2fsprogs): see `lacks`. Everything is done by a child in a
mount namespace of its own, on a loop device that clears itself, with an image that has no name any
longer: so nothing stays mounted, attached or on the disk, however the child ends; and it ends with
its parent.
"""
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import multiprocessing
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from . import crash, power
from .. import memo
from ..gate import gate
from ..gate.processes import wait_for
from ..judge import trees
from ..scenarios import NAMED, System
from ..trials import Family, Options, Seen, Trial

T = TypeVar("T")

FAULTS = ("ext4", "ext4, its log flushed")
#: As FS_IOC_SHUTDOWN counts: 1: the log of the file system reaches the disk, data does not; 2:
#: neither does.
LOG, NOTHING = 1, 2
_SHUTDOWN, _NEWNS, _PDEATHSIG = 0x8004587D, 0x20000, 1
_SIZE = 320 << 20  # bytes, nearly all of it a hole
_LIBC = ctypes.CDLL(None, use_errno=True)


def _libc(name: str, *args: int) -> None:
    if getattr(_LIBC, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, timeout=60)
    if done.returncode:
        raise OSError(f"{words[0]}: {done.stderr.decode(errors='replace').strip()}")


def _mkfs() -> str | None:
    return shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class Disk:
    """A file system at `path`; only in a process that has a mount namespace of its own."""

    def __init__(self, work: Path) -> None:
        self.path, image = work / "disk", work / "image"
        self.path.mkdir()
        with image.open("wb") as file:
            file.truncate(_SIZE)
        try:
            _run(_mkfs(), "-q", "-F", "-E", "nodiscard", image)
            _run("mount", "-o", "loop", image, self.path)
        finally:
            image.unlink()
        [self.device] = [line.split()[0] for line in Path("/proc/self/mounts").read_text(
            ).splitlines() if line.split()[1] == str(self.path)]
        self.loop = os.open(self.device, os.O_RDONLY)  # the device clears itself once it is closed

    def mount(self) -> None:
        _run("mount", self.device, self.path)

    def unmount(self) -> None:
        def unmounted() -> bool:
            with contextlib.suppress(OSError):  # it is busy: a killed process is just ending
                _run("umount", self.path)
                return True
            return False

        wait_for(unmounted, "the disk is free")

    def cut(self, flush: int) -> None:
        """Cut the power: nothing that is not on the image by now will get there."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("=I", flush))
        os.close(fd)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            _run("umount", self.path)
        os.close(self.loop)


def cut(trial: Trial, system: System, every: bool, disk: Disk, work: Path) -> Seen:
    """Make one cut, on a disk that is empty before and after."""
    scenario, box, state = NAMED[trial.scenario], disk.path / "box", work / "state"
    tree, words = crash.base(system, trial.scenario, work)
    power.make_box(tree, state)
    before = trees.take(state / "s")
    calls = power.play(system, words, state).calls
    shutil.rmtree(state)
    power.make_box(tree, box)
    _run("sync", "-f", box)
    point = 1 + trial.numbers[0] * len(calls) // 1000  # behind the last one, the act has ended
    result = power.play(system, words, box, gate.Fault("kill_tree", point))
    disk.cut(LOG if trial.fault.endswith("flushed") else NOTHING)
    disk.unmount()
    disk.mount()
    left = trees.take(box / "s")
    owed = power.Owed(result.status == 0, result.stdout)
    wrong = owed.check(system, scenario, left, state, every)
    call = str(calls[point - 1]) if point <= len(calls) else "the end"
    return Seen(call, wrong, before, left, result.calls,
        f"cut at {call}, said {result.stdout!r}")


def run(trial: Trial, system: System, work: Path, every: bool) -> Seen:
    return session(functools.partial(cut, trial, system, every))


def trials(system: System, name: str, options: Options, work: Path) -> list[Trial]:
    """Without a limit, ten of each fault."""
    return options.trials("cuts", name, [(fault, point) for fault in FAULTS if options.wants(fault)
        for point in range(0, 1001, 100)])


def _on_disk(task: Callable[[Disk, Path], T], work: Path, parent: int) -> T:
    _libc("prctl", _PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError("the parent has gone")
    _libc("unshare", _NEWNS)
    _run("mount", "--make-rprivate", "/")
    disk = Disk(work)
    try:
        return task(disk, work)
    finally:
        disk.close()


def session(task: Callable[[Disk, Path], T]) -> T:
    """task(disk, work) in a child that alone sees the disk; both the task and what it returns can
    be pickled. Raises what the task raises, OSError if there can be no disk."""
    with tempfile.TemporaryDirectory(prefix=f"flatq-cuts.{os.getpid()}.",
            dir=memo.memory()) as work, ProcessPoolExecutor(1,
            multiprocessing.get_context("fork")) as pool:
        return pool.submit(_on_disk, task, Path(work), os.getpid()).result()


def _once(disk: Disk, work: Path) -> None:
    disk.cut(NOTHING)


@functools.cache
def lacks() -> str:
    """Why no power cut can be made here, which is tried; empty: it can."""
    if os.geteuid() != 0:
        return "no real power cuts: needs root"
    if not os.path.exists("/dev/loop-control"):
        return "no real power cuts: no loop devices (/dev/loop-control)"
    if not _mkfs():
        return "no real power cuts: mkfs.ext4 is missing (package e2fsprogs)"
    try:
        session(_once)
    except (OSError, RuntimeError) as error:
        return f"no real power cuts: {error}"
    return crash.lacks()


FAMILY = Family(FAULTS, power.names, trials, run, 300, lacks)
