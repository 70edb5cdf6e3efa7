"""Find processes by /proc: those of a group or of a session, those with a mark in their
environment; end them, or wait for what they do."""
from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
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


def words(pid: int | str, name: str = "cmdline") -> bytes:
    """The command line of a process or, named `environ`, its environment when its program began:
    each word with a NUL behind it. Empty if the process is gone, or a zombie.

    RACE: while a process is in execve(), both files are empty, and the address of its program
    (field 23) is 0. So they are of the kernel's own processes, for which readlink() fails. A
    process that ends loses its memory before its files: wait, so that it holds no lock and no port
    any more."""
    process, begin = Path("/proc", str(pid)), {"cmdline": 45, "environ": 47}[name]
    with contextlib.suppress(OSError):
        while True:
            with contextlib.suppress(ProcessLookupError):
                if found := (process / name).read_bytes():
                    return found
            fields = _stat(process)
            if int(fields[6]) & _EXITING and fields[0] not in "ZX":
                os.sched_yield()
            elif fields[0] in "ZX" or fields[begin] == fields[begin + 1] and fields[23] != "0":
                break
            else:
                os.readlink(process / "exe")
    return b""


def carriers(mark: bytes) -> dict[int, str]:
    """What runs with the mark in its environment, whatever session it is in, and its command. A
    zombie has none."""
    return {int(pid): words(pid).replace(b"\0", b" ").decode(errors="replace").strip()
        for pid in filter(str.isdecimal, os.listdir("/proc")) if mark in words(pid, "environ")}


def children(pid: int | str) -> list[int]:
    """The processes that pid has started and that still exist."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def with_children(pid: int) -> Iterator[int]:
    """The process and all below it."""
    yield pid
    for child in children(pid):
        yield from with_children(child)


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
