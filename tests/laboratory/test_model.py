"""The model of the protocol: its mutants must be caught, and what it models must exist."""

import re
import sys
from pathlib import Path

import pytest

from conftest import LIB, share

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "model"))

from laboratory import trials  # noqa: F401

import mutants
from configs import CONFIGS
from explore import Explorer
from protocol import Protocol

# what no family of the laboratory sees, since it takes two verbs at one instant
ALONE = ["sweep-removes-the-body-first", "wal-last"]
MOST = 25_000  # states of one configuration, which is all of them for most



@pytest.mark.whole
@pytest.mark.parametrize("name", share("the model", CONFIGS, 6))
def test_nothing_goes_wrong(name, trials):
    outcome = Explorer(CONFIGS[name]).run(seconds=800, most=MOST)
    trials("model", range(outcome.states))
    assert not outcome.bad, "\n".join((outcome.bad, *outcome.trace))
    assert outcome.complete or outcome.states > MOST, f"{outcome.states} states in 800 s"


@pytest.mark.whole
@pytest.mark.parametrize("name", share("the model's mutants",
    [*ALONE, *(name for name in mutants.PATCHES if name not in ALONE)], 6, first=len(ALONE)))
def test_a_mutant_is_caught(name):
    outcome = Explorer(CONFIGS[mutants.config(name)], mutants.protocol(name)).run(seconds=800)
    assert outcome.bad and outcome.trace, f"{outcome.states} states, and nothing is wrong"


def test_each_patch_applies():
    for name in mutants.PATCHES:
        assert mutants.protocol(name) and mutants.config(name) in CONFIGS


def test_what_the_model_stands_for_is_in_lib():
    """A method's docstring names verbs and functions in front of its colon; `clock` is nobody's."""
    there = {name for path in LIB.rglob("*") if path.is_file()
        for name in re.findall(r"^([a-z_]+)\(\) [{(]", path.read_text(), re.M)}
    there.update(path.name for path in LIB.iterdir())
    for name, method in vars(Protocol).items():
        if callable(method) and name not in ("__init__", "clock"):
            names = " ".join(method.__doc__.split()).partition(": ")[0].split(", ")
            assert there.issuperset(names), (name, names)
