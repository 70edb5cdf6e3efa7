"""The tests' own helpers: what a test must not do to another one, which runs beside it."""

import fcntl
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import machine
from conftest import need
from engine import alive, carriers, command_of, number_used, stranger  # noqa: F401


@pytest.mark.slow
def test_a_process_is_seen_while_it_begins_a_program(tmp_path):
    """Its command line and environment are empty then. If the clock took its sleeper for ended,
    nobody would wake that."""
    again, done = tmp_path / "again", tmp_path / "done"
    again.write_text('#!/bin/sh\n[ $1 -eq 0 ] || exec "$0" $(($1 - 1))\n: >done\nread -r word\n')
    again.chmod(0o755)
    with subprocess.Popen([again, "1000"], cwd=tmp_path, env=os.environ | {"MARK": str(tmp_path)},
            stdin=subprocess.PIPE) as process:
        while not done.exists():
            assert command_of(process.pid)
            assert process.pid in carriers(tmp_path)


@pytest.mark.slow
def test_a_process_that_ends_is_seen_until_it_has_let_go(tmp_path):
    """It loses its memory, and with that its command line and environment, before its files. Who is
    not found has no lock and no port any more."""
    for _ in range(5):
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The more memory it has, the longer it takes to give that back
            process = subprocess.Popen([sys.executable, "-c", "bytearray(10**8)"],
                env=os.environ | {"MARK": str(tmp_path)}, pass_fds=[lock.fileno()])
        while process.pid in carriers(tmp_path):
            pass
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.wait()


def test_a_number_that_another_process_has_by_now(flatq):
    """A test ends by killing what it has started. A verb of it has ended long ago, and the session
    of another test's process has got its number."""
    process = flatq.start("pop", "-w", "60")
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        ended = SimpleNamespace(pid=other.pid, returncode=0, wait=lambda: 0, stdin=None,
            stdout=None, stderr=None)
        ours = SimpleNamespace(**{**vars(ended), "pid": process.pid})
        flatq.end(ended, ours)
        assert process.wait(60) == -9 and alive(other.pid)
    finally:
        other.kill()
        other.wait()


def test_a_number_that_is_still_a_sessions(stranger):
    """The system gives nobody the number of a process that has ended, while a process of its
    session or group lives."""
    leader = subprocess.Popen(["sh", "-c", "sleep 1000 >&2 & echo $!"], start_new_session=True,
        stdout=subprocess.PIPE)
    member = int(leader.communicate()[0])
    assert not alive(leader.pid) and number_used(leader.pid)
    os.kill(member, signal.SIGKILL)
    assert stranger(leader.pid).pid == leader.pid


def test_the_machine_of_a_run():
    """Programs come from the system's packages alone, whatever the user's PATH has, and a shell of
    busybox looks into PATH. No variable of the user is left."""
    place = os.environ["PATH"]
    names = set(os.listdir(place))
    assert {os.path.dirname(os.readlink(f"{place}/{name}")) for name in names - {"busybox"}} <= set(
        machine.PACKAGED)
    assert "mv" in names and not names & machine.HIDDEN
    assert machine.looks_into_path(need("busybox"))
    assert not {"FLATQ_DIR", "FLATQ_SYNC", "LC_ALL", "LANG", "ENV"} & set(os.environ)
    assert os.environ["HOME"].startswith(os.environ["FLATQ_TEST_WORK"])
