"""The model of the protocol: every interleaving and every kill of small configurations. Its mutants
must be caught, and what it models must exist."""

import re
import sys
from inspect import isgeneratorfunction
from pathlib import Path

import pytest

from conftest import LIB, share

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "model"))

from laboratory import trials  # noqa: F401

import mutants
from configs import CONFIGS
from explore import Explorer
from programs import checked
from protocol import Protocol

# what no family of the laboratory sees, since it takes two verbs at one instant
ALONE = ["sweep-removes-the-body-first", "wal-last"]
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


@pytest.mark.whole
@pytest.mark.parametrize("name", share("the model's mutants",
    [*ALONE, *(name for name in mutants.NAMES if name not in ALONE)], 6, first=len(ALONE)))
def test_a_mutant_is_caught(name):
    outcome = Explorer(CONFIGS[mutants.read(name)[0]], mutants.protocol(name)).run(seconds=800)
    assert outcome.bad, f"{outcome.states} states, and nothing is wrong"
    assert outcome.trace


def test_each_patch_applies():
    assert mutants.NAMES
    for name in mutants.NAMES:
        assert mutants.protocol(name) is not Protocol and mutants.read(name)[0] in CONFIGS


def test_what_the_model_stands_for_is_in_lib():
    """A method's docstring names verbs and functions in front of its colon; `clock` is nobody's."""
    defined = {name for path in LIB.rglob("*") if path.is_file()
        for name in re.findall(r"^([a-z_]+)\(\) [{(]", path.read_text(), re.M)}
    verbs = {path.name for path in LIB.iterdir()}
    for method in vars(Protocol).values():
        if isgeneratorfunction(method) and method is not Protocol.clock:
            names = " ".join(method.__doc__.split()).partition(": ")[0].split(", ")
            assert set(names) <= defined | verbs, (method.__name__, names)


def test_a_yield_that_locals_do_not_describe_is_refused():
    with pytest.raises(TypeError, match="a yield below For"):

        @checked
        class Wrong:
            def loop(self):
                for letter in "ab":
                    yield letter + "?"
