"""Row remote: a push to another machine, which is this one, by the line door and by ssh."""

import importlib.util
import os
import shutil
import subprocess
import sys

from harness import FLOOR, Command
from run import LIB, ROOT


def remote(run):
    """By ssh, each push makes a connection of its own; or all share the first one, which ssh keeps
    open (ControlMaster)."""
    if not run.there("ncat", "ssh", "ssh-keygen"):
        return
    path = os.environ["PATH"]
    everywhere = f"{path}:/usr/sbin:/usr/local/sbin"
    if not shutil.which("sshd", path=everywhere) or not importlib.util.find_spec("pytest"):
        print("bench: sshd or pytest is not installed: remote is left out", file=sys.stderr)
        return
    sys.path[1:1] = [str(ROOT / "tests"), str(ROOT / "tests/support"), str(ROOT / "python")]
    from sshd import Sshd  # the tests' own
    os.environ["PATH"] = everywhere
    sshd = Sshd(run.work / "sshd")
    os.environ["PATH"] = path
    try:
        key = sshd.key("bench", "env", "FLATQ_SYNC=off", "sh", LIB / "door", "--spool",
            run.work / "remote")
        # Relative: the path of a Unix socket must be short
        shared = f"{key} -o ControlMaster=auto -o ControlPath=shared -o ControlPersist=yes"
        line = f"127.0.0.1:{run.door(['line', '-k'], 'remote')}"

        def push(name, host, ssh=""):
            return Command(name, [LIB / "flatq", "-H", host, "push", "jobs"], run.message,
                str(run.work), {"FLATQ_SSH": ssh})

        try:
            run.row("push -H", [
                push("flatq", line), push("by ssh, one connection for all", sshd.url, shared),
                push("by ssh, a connection each", sshd.url, key),
                Command(f"ncat alone {FLOOR}", ["ncat", "--send-only", *line.split(":")],
                cwd=str(run.work)),
                Command(f"ssh alone {FLOOR}", [*sshd.key("none", "true").split(), sshd.url],
                cwd=str(run.work)),
            ], {}, 3 if run.quick else 1_000)
        finally:
            subprocess.run([*shared.split(), "-O", "exit", sshd.url], cwd=str(run.work),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        sshd.end()
