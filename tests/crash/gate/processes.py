"""Find processes by /proc: those of a group or of a session, those with a mark in their
environment; end them, or wait for what they do."""
from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

GROUP, SESSION = os.getpgid, os.getsid


def _stat(process: Path) -> list[str]:
    """The fields of its stat behind the name, which may hold any byte: the state is the first.
    OSError: it has ended."""
    return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()


def left(which: Callable[[int], int], *numbers: int) -> list[int]:
    """The processes that still run in these groups (GROUP) or sessions (SESSION). A zombie does not
    run.

    RACE: a process may end between the listing and a look at it: then every error of a call means
    that it has gone."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # the kernel is asked by number: to open and read a file of each process takes ten times
            # as long, and every test does this at its end
            if which(int(process)) in numbers and _stat(Path("/proc", process))[0] not in "ZX":
                found.append(int(process))
    return found


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send each of these processes the signal, but for those that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


_EXITING = 4  # of the flags in a process's stat: it has begun to end


def _words(process: Path, name: str, field: int) -> bytes:
    """A process's `environ` or `cmdline`; `field` is where the addresses of its begin and end are
    in its stat, behind the name. OSError: it has ended.

    RACE: while a process is in execve(), both files are empty, and the address of its program
    (field 23) is 0. So they are of the kernel's own processes, for which readlink() fails. A
    process that ends loses its memory before its files: wait, so that it holds no lock and no port
    any more."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            if words := (process / name).read_bytes():
                return words
        fields = _stat(process)
        if fields[0] in "ZX":
            raise ProcessLookupError
        if int(fields[6]) & _EXITING:
            os.sched_yield()
        elif fields[field] == fields[field + 1] and fields[23] != "0":
            return b""
        else:
            os.readlink(process / "exe")


def _command(process: Path) -> str:
    return _words(process, "cmdline", 45).replace(b"\0", b" ").decode(errors="replace").strip()


def environment(process: int | str) -> bytes:
    """The environment of that process as it was when its program began; empty if the process is
    gone, or a zombie."""
    with contextlib.suppress(OSError):
        return _words(Path("/proc", str(process)), "environ", 47)
    return b""


def carriers(mark: bytes) -> dict[int, str]:
    """What runs with the mark in its environment, whatever session it is in, and its command. A
    zombie has none."""
    found = {}
    for process in filter(str.isdecimal, os.listdir("/proc")):
        if mark in environment(process):
            with contextlib.suppress(OSError):
                found[int(process)] = _command(Path("/proc", process))
    return found


def listening(port: int) -> bool:
    """Whether anybody listens on that port of 127.0.0.1: looked up, since a try to connect would be
    a client's."""
    with open("/proc/net/tcp") as table:
        return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
            for row in table)


def wait_for(look: Callable[[], T | None], what: str = "the state waited for",
        seconds: float = 60.0) -> T:
    """What look() returns, as soon as that is true; AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    pause = 0.001
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(pause)  # between two looks at a state, under a bound
        pause = min(pause * 1.5, 0.05)
    return found
