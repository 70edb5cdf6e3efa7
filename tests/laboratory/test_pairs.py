"""Two verbs side by side: one is held before one of its calls, while the other runs or is killed
there.

`make test` takes a few pairs of each verb, which the seed chooses, `make test-all` more; `make
crash` takes all."""

import pytest

from conftest import chance, everything, share
from laboratory import own, trials, work  # noqa: F401
from test_crash import explore, good

from crash.families import pairs


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", pairs.ALL)
def test_side_by_side(first, work, trials):
    ours = [some for some in pairs.COMBINATIONS if some.first == first]
    some = chance(f"beside {first}").sample(ours, min(len(ours), 12 if everything() else 1))
    outcomes = [one for pair in some for one in explore("pairs", f"{pair}", work, 4)]
    trials("pairs", outcomes)
    good(outcomes, "http: GET" if first in pairs.REQUESTS else "")


@pytest.mark.whole
@pytest.mark.parametrize("name", share("races", pairs.RACES, 1))
def test_race(name, work, trials):
    outcomes = explore("pairs", name, work, None)
    trials("pairs", outcomes)
    good(outcomes)


@pytest.mark.parametrize("second, answer, text", [("pop", b"m5", "delivered 2 times"),
    ("push", b"N\n", "b'new' is lost")])
def test_sees_what_is_lost_or_doubled(second, answer, text):
    ended = pairs.Ended((0, b"m5"), (0, answer), ())
    [wrong] = pairs._conserved(pairs.Pair("plain", "pop", second), pairs.Counter([b"m5"]), ended,
        False)
    assert text in wrong
