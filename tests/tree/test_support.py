"""The tests' own helpers: what a test must not do to another one, which runs beside it."""

import os
from types import SimpleNamespace

import machine
from conftest import need
from engine import alive, stranger  # noqa: F401


def test_a_number_that_another_process_has_by_now(flatq, stranger):
    """A test ends by killing what it has started. A verb of it has ended long ago, and the session
    of another test's process has got its number."""
    process, other = flatq.start("pop", "-w", "60"), stranger()
    ended = SimpleNamespace(pid=other.pid, returncode=0, wait=lambda: 0, stdin=None, stdout=None,
        stderr=None)
    flatq.end(ended, SimpleNamespace(**{**vars(ended), "pid": process.pid}))
    assert process.wait(60) == -9 and alive(other.pid)


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
