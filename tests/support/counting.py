"""What a command costs, counted by strace: processes, programs, bytes."""

import re
import subprocess
from collections import namedtuple
from pathlib import Path

Count = namedtuple("Count", "status processes programs read written listed")

FORKS = ("clone", "clone3", "fork", "vfork")
READS = ("read", "pread64", "readv")
LISTS = ("getdents64",)
WRITES = ("write", "pwrite64", "writev")
COPIES = ("sendfile", "copy_file_range", "splice")


def count(command, input=b"", env=None, cwd=None):
    """Run the command: its Count, its standard output and its standard error.

    status     its exit status
    processes  started beside the first, whether they run a program or are only forked
    programs   paths of what they executed, the command itself left out
    read       bytes that all of them read by system calls; what is mapped into memory is not seen
    written    likewise
    listed     bytes of directories
    """
    log = Path(cwd or ".") / "strace.log"
    trace = "trace=execve," + ",".join(FORKS + READS + WRITES + COPIES + LISTS)
    done = subprocess.run(
        ["strace", "-f", "-qq", "--seccomp-bpf", "-s", "0", "-e", "signal=none", "-e", trace, "-o",
        log, "--", *command],
        input=input, env=env, cwd=cwd, timeout=100, capture_output=True,
    )
    processes, programs, read, written, listed = 0, [], 0, 0, 0
    for name, arguments, value in calls(log):
        if name == "execve":
            programs.append(re.match(r'"?([^",]*)', arguments)[1])
        elif name in FORKS:
            processes += "CLONE_THREAD" not in arguments
        if name in READS + COPIES:
            read += value
        if name in WRITES + COPIES:
            written += value
        if name in LISTS:
            listed += value
    log.unlink()
    return Count(done.returncode, processes, programs[1:], read, written,
        listed), done.stdout, done.stderr


def calls(log):
    """(name, arguments, result) of each call that succeeded. A call that strace prints in two
    pieces is put together."""
    begun = {}
    for line in log.read_text(errors="replace").splitlines():
        pid, rest = line.split(None, 1)
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest[: -len("<unfinished ...>")]
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>", rest)
        if resumed:
            rest = begun.pop(pid, "") + rest[resumed.end():]
        call = re.match(r"(\w+)\((.*)\)\s+= (\d+)", rest)
        if call:
            yield call[1], call[2], int(call[3])
