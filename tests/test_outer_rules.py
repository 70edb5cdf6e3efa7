"""Rules of the worker and the doors, each struck by one fault: a process of a pipe that fails or is killed, a step that fails, input that
would cost much, a client that is gone. The fault is made by a stub in PATH, by strace or by SIGSTOP; nothing is left to chance."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LIB, SHELLS, need, wait_for
from engine import child_named, children, empty, lies, pop, push

REAL = shutil.which("base64")


@pytest.fixture
def stub(flatq, tmp_path):
    """stub("base64", SCRIPT) puts a program of that name in front of PATH: $REAL is the real one, $ONCE a file that the script may make."""
    place = tmp_path / "stubs"
    place.mkdir()

    def make(name, script):
        real = shutil.which(name)
        (place / name).write_text(f"#!/bin/sh\nREAL={real} ONCE={place}/{name}.once\n{script}\n")
        (place / name).chmod(0o755)
        return place / f"{name}.once"

    flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
    return make


def rows(flatq, queue="default"):
    """What list says, as (id, state, tries)."""
    found = [line.split() for line in flatq("list", queue, check=0).out.decode().splitlines()]
    return [(int(row[0]), row[1], int(row[3])) for row in found]


# ---- work: the command's 0 counts where the feeder has said that it is through

ONCE = '[ ! -e "$ONCE" ] || exec "$REAL" "$@"; case $* in -d*) ;; *) exec "$REAL" "$@" ;; esac; : >"$ONCE"; '
FED = {
    "fails": ONCE + "exit 1",
    "is killed": ONCE + 'kill -9 "$$"',
    "fails after a part": ONCE + '"$REAL" "$@" | head -c 3; exit 1',
    "says PIPE, which nobody ignores": ONCE + 'echo "base64: write error: Broken pipe" >&2; exit 1',
    "takes its shell with it": ONCE + 'kill -9 "$PPID"; exit 1',
}


@pytest.mark.parametrize("how", FED)
def test_a_message_that_was_not_fed_is_not_done(shell, flatq, stub, tmp_path, how):
    number = push(flatq, b"whole message")
    stub("base64", FED[how])
    done = flatq("work", "-n", "1", "-w", "0", "-d", "0", "--", "cat", check=0)
    assert done.out in (b"", b"who") and b": unfed, again in 0 s\n" in done.err, done
    assert rows(flatq) == [(number, "ready", 1)]
    done = flatq("work", "-n", "1", "-w", "0", "--", "cat", check=0)
    assert (done.out, done.err) == (b"whole message", b"") and rows(flatq) == []


def test_a_grandchild_that_keeps_the_input_open(shell, flatq, tmp_path):
    """In another session, where nobody kills it: the message is done when the command says so, and not run again and again."""
    push(flatq, b"x" * 300000)
    last = push(flatq, b"y")
    keeper = 'if [ "$FLATQ_ID" = 1 ]; then exec 3<&0; { exec setsid sleep 1000 <&3 3<&- >/dev/null 2>&1; } & printf %s "$!" >"$1"; else cat; fi'
    try:
        done = flatq("work", "-w", "0", "-d", "0", "--", "sh", "-c", keeper, "sh", tmp_path / "pid", check=0, timeout=30)
        assert (done.out, done.err, rows(flatq)) == (b"y", b"", []), last
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_where_pipe_is_ignored_a_command_need_not_read(shell, flatq):
    """base64 ends with 1 then, and says why."""
    push(flatq, b"x" * 300000)
    process = subprocess.run(
        ["sh", "-c", "trap '' PIPE; exec \"$@\"", "sh", *flatq.command("work", "-n", "1", "-w", "0", "--", "sh", "-c", "sleep 0.1; exec true")],
        env=flatq.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    assert (process.returncode, process.stderr) == (0, b"") and rows(flatq) == []
