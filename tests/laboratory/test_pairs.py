"""Two verbs side by side: one is held before one of its calls, while the other runs or is killed there (flatq.crashlab.pairs).

`make test` takes a few points of some of the first verbs by the seed, `make test-all` one in 770 of all, and one in 25 of those beside a door;
`make crash` takes all."""

import os

import pytest

from conftest import chance, everything
from laboratory import trials, work  # noqa: F401
from test_crash import SYSTEM, good

from flatq.crashlab.families import pairs

SEED = int(os.environ["FLATQ_SEED"])
SHARE, BESIDE = 0.0013 if everything() else 0.04, 0.04  # of the points: of two verbs, and of a door beside a verb


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", pairs.VERBS)
def test_side_by_side(first, work, trials):
    bases = pairs.BASES if everything() else [chance(f"base {first}").choice(pairs.BASES)]
    seconds = list(pairs.VERBS) if everything() else chance(f"second {first}").sample(list(pairs.VERBS), 1)
    outcomes = [outcome for base in bases for outcome in pairs.explore(SYSTEM, base, first, SEED, SHARE, work, seconds)]
    trials("pairs", outcomes)
    assert outcomes
    good(outcomes)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", pairs.DOORS)
def test_a_door_beside(door, work, trials):
    """A door, beside a drop and a close. Each is held before its calls while the other one runs."""
    outcomes = [outcome for base in pairs.DOOR_BASES for outcome in pairs.beside_door(pairs.BESIDE_DOORS, SYSTEM, base, door, SEED, BESIDE, work)]
    trials("pairs", outcomes)
    assert outcomes
    # under load a second passes in the counted run. Then it looks for ended leases, a tenth of its calls, and the others do not
    good(outcomes, missed=0.3, waiting=True)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("door", pairs.RECEIPTS)
def test_a_receipt_over_http(door, work, trials):
    """A receipt over HTTP, beside a verb that takes, ends or changes its message."""
    bases = pairs.RECEIPT_BASES if everything() else [chance(f"base {door}").choice(pairs.RECEIPT_BASES)]
    outcomes = [outcome for base in bases for outcome in pairs.beside_door(pairs.BESIDE_RECEIPTS, SYSTEM, base, door, SEED, BESIDE, work)]
    trials("pairs", outcomes)
    assert outcomes
    good(outcomes, missed=0.3, waiting=True)


def test_a_pair_is_its_line():
    one = pairs.Pair("due", "push -k", "release -d", 3, 2)
    assert pairs.Pair.parse(str(one)) == one
    with pytest.raises(ValueError):
        pairs.Pair.parse("pair due/no/push/1/0")


def test_the_second_runs_while_the_first_is_held(work):
    """A pop is held before its rename while another pop runs. Each gets a message of its own."""
    [point] = [call.seq for call in pairs.calls(SYSTEM, "plain", "pop", work) if call.kind == "rename" and call.paths[1].startswith("q/out/0")][:1]
    outcome = pairs.run(pairs.Pair("plain", "pop", "pop", point), SYSTEM, work)
    assert outcome.outcome == "good" and "rename" in outcome.call, outcome


def test_sees_what_is_lost_or_doubled():
    ended = pairs.Ended((0, b"m5"), (0, b"m5"), ())
    wrong = pairs._conserved(pairs.Pair("plain", "pop", "pop", 1), pairs.Counter([b"m5"]), ended, False)
    assert len(wrong) == 1 and "delivered 2 times" in wrong[0]
    ended = pairs.Ended((0, b"m5"), (0, b"N\n"), ())
    assert any("lost" in text for text in pairs._conserved(pairs.Pair("plain", "pop", "push", 1), pairs.Counter([b"m5"]), ended, False))
