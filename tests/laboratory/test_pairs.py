"""Two verbs side by side: one is held before one of its calls, while the other runs or is killed
there.

`make test` takes a few pairs of each verb, which the seed chooses, `make test-all` more; `make
crash` takes all."""

import os

import pytest

from conftest import chance, everything, share
from laboratory import own, trials, work  # noqa: F401
from test_crash import SYSTEM, good

from crash.families import pairs, races

SEED = int(os.environ["FLATQ_SEED"])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", pairs.ALL)
def test_side_by_side(first, work, trials):
    ours = [combination for combination in pairs.COMBINATIONS if combination[1] == first]
    some = chance(f"beside {first}").sample(ours, min(len(ours), 12 if everything() else 1))
    outcomes = [one for base, _, second in some
        for one in pairs.explore(SYSTEM, base, first, second, SEED, 4, work)]
    trials("pairs", outcomes)
    good(outcomes, "http: GET" if first in pairs.REQUESTS else "")


@pytest.mark.whole
@pytest.mark.parametrize("name", share("races", races.RACES, 1))
def test_race(name, own, trials):
    outcome = races.run(SYSTEM, name, own)
    trials("races", [outcome])
    assert outcome.outcome == "good", f"{outcome.replay}\n{outcome.detail}"


def test_a_pair_is_its_line():
    one = pairs.Pair("due", "push -k", "release -d", 3, 2)
    assert pairs.Pair.parse(str(one)) == one
    with pytest.raises(ValueError):
        pairs.Pair.parse("pair due/no/push/1/0")


def test_the_second_runs_while_the_first_is_held(work):
    """A pop is held before its rename while another pop runs. Each gets a message of its own."""
    point = next(call.seq for call in pairs.calls(SYSTEM, "plain", "pop", work)
        if call.kind == "rename" and call.paths[1].startswith("q/out/0"))
    outcome = pairs.run(pairs.Pair("plain", "pop", "pop", point), SYSTEM, work)
    assert outcome.outcome == "good" and "rename" in outcome.call, outcome


def test_sees_what_is_lost_or_doubled():
    ended = pairs.Ended((0, b"m5"), (0, b"m5"), ())
    one = pairs.Counter([b"m5"])
    wrong = pairs._conserved(pairs.Pair("plain", "pop", "pop", 1), one, ended, False)
    assert len(wrong) == 1 and "delivered 2 times" in wrong[0]
    ended = pairs.Ended((0, b"m5"), (0, b"N\n"), ())
    wrong = pairs._conserved(pairs.Pair("plain", "pop", "push", 1), one, ended, False)
    assert any("lost" in text for text in wrong)
