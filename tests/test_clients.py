"""Clients of the line door that go wrong, as a family with seeds. That a door which does not mind them is seen: tests/test_mutants.py."""

import contextlib

import pytest

from conftest import need
from laboratory import campaign

from flatq.crashlab import clients
from flatq.crashlab.scenarios import System


@pytest.fixture(scope="module")
def doors():
    """One door for each mode, for all trials."""
    need("ncat")
    with campaign.workplace() as place, contextlib.ExitStack() as stack:
        for mode in clients.MODES:
            (place / mode).mkdir()
        yield {mode: stack.enter_context(clients.Door(System(), mode, place / mode)) for mode in clients.MODES}


@pytest.mark.parametrize("name", clients.FAULTS)
@pytest.mark.parametrize("mode", clients.MODES)
def test_clients(doors, mode, name):
    outcome = clients.trial(doors[mode], name, 1)
    assert outcome.outcome == "good", f"{outcome.replay}\n{outcome.detail}"
    print(outcome.detail)
