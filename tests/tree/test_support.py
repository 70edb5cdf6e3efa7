"""The tests' own helpers: what a test must not do to another one, which runs beside it."""

import os
import subprocess
from types import SimpleNamespace

from engine import alive, carriers, command_of


def test_a_process_is_seen_while_it_begins_a_program(tmp_path):
    """Its command line and environment are empty then. If the clock took its sleeper for ended, nobody would wake that."""
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\n[ $1 -eq 0 ] || exec "$0" $(($1 - 1))\n')
    again.chmod(0o755)
    process = subprocess.Popen([again, "1000"], env=os.environ | {"MARK": str(tmp_path)})
    while process.poll() is None:
        assert command_of(process.pid) or process.poll() is not None
        assert process.pid in carriers(tmp_path) or process.poll() is not None


def test_a_number_that_another_process_has_by_now(flatq):
    """A test ends by killing what it has started. A verb of it has ended long ago, and the session of another test's process has got its number."""
    process = flatq.start("pop", "-w", "60")
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        ended = SimpleNamespace(pid=other.pid, returncode=0, wait=lambda: 0, stdin=None, stdout=None, stderr=None)
        ours = SimpleNamespace(**{**vars(ended), "pid": process.pid})
        flatq.end(ended, ours)
        assert process.wait(60) == -9 and alive(other.pid)
    finally:
        other.kill()
        other.wait()
