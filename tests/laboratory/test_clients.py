"""Clients of the line door that go wrong, as a family with seeds. tests/laboratory/test_mutants.py
shows that the family catches a door which serves them badly."""

import itertools

import pytest

from conftest import need, share
from laboratory import place, trials  # noqa: F401

from crash.families import clients
from crash.scenarios import System

ALL = list(itertools.product(clients.MODES, clients.FAULTS))


@pytest.mark.whole
@pytest.mark.parametrize("mode, name", share("clients", ALL, 2))
def test_clients(mode, name, place, trials):
    need("ncat")
    # the test waits until the door ends a silent client; other clients may be slow
    with clients.Door(System(), mode, place, idle=1 if name == "idle" else clients.IDLE) as door:
        outcome = clients.trial(door, name, 1)
    trials("clients", [outcome])
    assert outcome.outcome == "good", f"{outcome.replay}\n{outcome.detail}"
    print(outcome.detail)
