"""Clients of the line door that go wrong, as a family with seeds."""

import itertools

import pytest

from conftest import need, share
from laboratory import place, trials  # noqa: F401

from crash import campaign
from crash.families import clients
from crash.scenarios import System
from crash.trials import Trial

ALL = list(itertools.product(clients.MODES, clients.CLIENTS))


@pytest.mark.whole
@pytest.mark.parametrize("mode, name", share("clients", ALL, 2))
def test_clients(mode, name, place, trials):
    need("ncat")
    outcome = campaign.run(Trial("clients", name, mode, "1"), System(), place)
    trials("clients", [outcome])
    assert outcome.outcome == "good", f"{outcome.trial}\n{outcome.detail}"
