"""The model of the protocol: every interleaving and every kill of small configurations. Wrong
variants must be caught."""

import sys
from pathlib import Path

import pytest

from conftest import share

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "model"))

from laboratory import trials  # noqa: F401

from configs import CONFIGS
from explore import Explorer
from programs import checked
from variants import VARIANTS

# what no family of the laboratory sees, since it takes two verbs at one instant
ALONE = {"sweep removes the body first", "wal last"}
MOST = 25_000  # states of one configuration, which is all of them for most
FEWEST = {"fold pop pop": MOST, "ids, old ranges": MOST, "two leases": 10_000,
    "key, push killed": 6_000, "push push pop": 1_500,
          "pop pop reclaim": 2_000, "lease": 2_000, "bulk pop": 2_000, "bound": 2_000,
          "claim pop": 5_000, "unclaim pop reclaim": 5_000, "claim claim": 2_000,
          "power: unclaim": 15,
          "unread: bulk": 5_000, "unread: wreck of a fold": 1_500,
          "lost: fold pop": 2_000, "lost: delete": MOST, "drop push": 4_000, "drop reclaim": 10_000}


@pytest.mark.whole
@pytest.mark.parametrize("name", share("the model", CONFIGS, 6))
def test_nothing_goes_wrong(name, trials):
    outcome = Explorer(CONFIGS[name]).run(seconds=800, most=MOST)
    trials("model", range(outcome.states))
    assert not outcome.bad, "\n".join((outcome.bad, *outcome.trace))
    assert outcome.complete or outcome.states > MOST, (
        f"only {outcome.states} states in {outcome.seconds:.0f} s")
    assert outcome.states >= FEWEST.get(name, 20)
    assert outcome.steps >= outcome.states - 1


# the first two are mutants that only the model catches
@pytest.mark.whole
@pytest.mark.parametrize("wrong, config", share("wrong variants",
    sorted(VARIANTS.items(), key=lambda pair: pair[0] not in ALONE), 6, first=len(ALONE)))
def test_a_wrong_variant_is_caught(wrong, config):
    outcome = Explorer(CONFIGS[config], [wrong]).run(seconds=800)
    assert outcome.bad, f"{outcome.states} states, and nothing is wrong"
    assert outcome.trace


def test_every_variant_is_in_the_table():
    text = (Path(__file__).resolve().parents[1] / "model/protocol.py").read_text()
    for name in VARIANTS:
        assert f'"{name}"' in text, name
    assert text.count("in self.wrong") >= len(VARIANTS)


def test_a_yield_that_locals_do_not_describe_is_refused():
    with pytest.raises(TypeError, match="a yield below For"):

        @checked
        class Wrong:
            def loop(self):
                for letter in "ab":
                    yield letter + "?"
