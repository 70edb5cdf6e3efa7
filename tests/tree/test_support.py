"""The machine of a run of the tests."""

import os

import machine
from conftest import need


def test_the_machine_of_a_run():
    """No program or variable of the user's, and a shell of busybox looks into PATH."""
    place = os.environ["PATH"]
    names = set(os.listdir(place))
    assert {os.path.dirname(os.readlink(f"{place}/{name}")) for name in names - {"busybox"}} <= set(
        machine.PACKAGED)
    assert "mv" in names and not names & machine.HIDDEN
    assert machine.looks_into_path(need("busybox"))
    assert not {"FLATQ_DIR", "FLATQ_SYNC", "LC_ALL", "LANG", "ENV"} & set(os.environ)
    assert os.environ["HOME"].startswith(os.environ["FLATQ_TEST_WORK"])
