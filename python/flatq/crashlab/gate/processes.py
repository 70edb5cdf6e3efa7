"""Find the processes of a group or of a session that still run, by /proc."""
from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUP, SESSION = 2, 3  # their places in /proc/PID/stat, behind the name


def left(which: int, *numbers: int) -> list[int]:
    """The processes that still run in these groups (GROUP) or sessions (SESSION). A zombie does not run.

    RACE: stat() of /proc/PID/stat fails with ESRCH where the process ends between the look-up of its directory and that of the file; of
    that error pathlib's glob("*/stat") makes an exception. So the directory is listed, and every error of a file means that it has gone."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path("/proc", process, "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[which]) in numbers and fields[0] not in "ZX":
                found.append(int(process))
    return found
