"""What the tests of the crash laboratory share: places to work in, in memory where there is such a file system."""

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from flatq.crashlab import campaign, gate


@pytest.fixture
def place():
    """For one test."""
    with campaign.workplace() as path:
        yield path


@pytest.fixture(scope="module")
def work():
    """For the tests of one file, where there is a gate."""
    there, reason = gate.available()
    if not there:
        pytest.skip(reason)
    with campaign.workplace() as path:
        yield path


@pytest.fixture(scope="module")
def pool(work):
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        yield processes
