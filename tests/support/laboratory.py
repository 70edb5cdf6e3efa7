"""What the tests of the crash laboratory share: places to work in, in memory if there is such a
file system."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from crash import campaign
from crash.gate import gate


@pytest.fixture
def place():
    """A place for one test."""
    with campaign.workplace() as path:
        yield path


@pytest.fixture(scope="session")
def work():
    """A place for all tests of a run, if there is a gate; without one they fail under CI. What one
    test finds out about a wreck, the others read there."""
    there, reason = gate.available()
    if not there:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    yield Path(os.environ["FLATQ_TEST_WORK"])


@pytest.fixture
def own(work):
    """A directory in that place for one test alone."""
    path = Path(tempfile.mkdtemp(dir=work))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def trials(request):
    """trials("power", outcomes) notes how many trials of that family were made."""
    def note(family, outcomes):
        request.node.user_properties.append(("trials", [family, len(outcomes)]))
    return note
