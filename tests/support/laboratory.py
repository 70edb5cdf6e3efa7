"""What the tests of the crash laboratory share: places to work in, in memory where there is such a file system."""

import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from flatq.crashlab import campaign
from flatq.crashlab.gate import gate


@pytest.fixture
def place():
    """For one test."""
    with campaign.workplace() as path:
        yield path


@pytest.fixture(scope="session")
def work():
    """For all tests of a run, in whatever process, where there is a gate: what one has found out about a wreck the others need not."""
    there, reason = gate.available()
    if not there:
        pytest.skip(reason)
    yield Path(os.environ["FLATQ_TEST_WORK"])


@pytest.fixture
def own(work):
    """A directory in there for one test alone."""
    path = Path(tempfile.mkdtemp(dir=work))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def pool(work):
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        yield processes


@pytest.fixture
def trials(request):
    """trials("power", outcomes): so many trials of that family were made; the run's last lines add them up."""
    def note(family, outcomes):
        request.node.user_properties.append(("trials", [family, len(outcomes)]))
    return note
