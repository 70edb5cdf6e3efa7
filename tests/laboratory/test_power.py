"""Power cuts: every state that an honest file system may leave, by a model; and real cuts."""

import os
import subprocess

import pytest

from conftest import everything, share
from laboratory import own, trials, work  # noqa: F401

from crash import campaign
from crash.families import cuts, power, states
from crash.gate import gate
from crash.judge import trees
from crash.scenarios import System
from crash.trials import Options

# `make test` takes four states of a scenario, at least one of each stage, by the seed
CUTS = 30 if everything() else 4
SEED = int(os.environ["FLATQ_SEED"])


def history(own, script, before=""):
    """The history of a shell script that runs in an empty directory."""
    box = own / "box"
    box.mkdir()
    subprocess.run(["sh", "-c", before or ":"], cwd=box, check=True)
    found = states.History(box)
    result = gate.run(["sh", "-c", script], box, cwd=box)
    assert result.status == 0, result
    found.add(result.calls)
    assert {*found.tree(found.last).entries} == {*trees.take(box).entries}
    return found


def left(found, cut=None):
    """All trees that a power cut may leave."""
    cut = found.last if cut is None else cut
    return {repr(dict(found.tree(cut, outcomes).entries))
        for outcomes in found.choices(cut, frozenset(), 0, 0)}


#: A script, what ran before it, and all that a power cut may leave.
STATES = {
    "a write may be lost, halved or zeros": ("printf abcd >x", "", {"{}", "{'x': b''}",
        "{'x': b'ab'}", r"{'x': b'\x00\x00\x00\x00'}", "{'x': b'abcd'}"}),
    "a later write does not say that the first is there": ("printf a >x; printf b >>x", "", {"{}",
        "{'x': b''}", "{'x': b'a'}", r"{'x': b'\x00'}", r"{'x': b'\x00b'}", "{'x': b'ab'}",
        r"{'x': b'a\x00'}"}),
    "a synced file is whole or has no name": ("printf abcd >x; sync x", "",
        {"{}", "{'x': b'abcd'}"}),
    "a synced directory has names but no data": ("printf ab >x; sync .", "", {"{'x': b''}",
        "{'x': b'a'}", r"{'x': b'\x00\x00'}", "{'x': b'ab'}"}),
    "both synced": ("printf ab >x; sync x .", "", {"{'x': b'ab'}"}),
    "everything synced": ("mkdir d; printf ab >d/x; sync", "", {"{'d': None, 'd/x': b'ab'}"}),
    "a synced directory may have lost its own name": ("mkdir d; true >d/x; sync d", "",
        {"{}", "{'d': None, 'd/x': b''}"}),
    "one of two names": ("printf b >y; sync y; mv y x; sync .", "printf a >x", {"{'x': b'b'}"}),
    "what failed changes nothing": ("set -C; { true >x; } 2>&-; mv -n y x; mkdir d 2>&-; "
        "rmdir d 2>&-; rm -f none; true", "printf a >x; printf b >y; mkdir d; true >d/z",
        {"{'d': None, 'd/z': b'', 'x': b'a', 'y': b'b'}"}),
    "a rename is atomic, but not behind the data": ("printf ab >x; mv x y; sync .", "",
        {"{'y': b''}", "{'y': b'a'}", r"{'y': b'\x00\x00'}", "{'y': b'ab'}"}),
    "a rename to another directory leaves one name": ("mv a/x b/y", "mkdir a b; printf ab >a/x",
        {"{'a': None, 'a/x': b'ab', 'b': None}", "{'a': None, 'b': None, 'b/y': b'ab'}"}),
    "a rename into a new directory takes that along": ("mkdir b; mv a/x b/x; sync a",
        "mkdir a; printf ab >a/x", {"{'a': None, 'b': None, 'b/x': b'ab'}"}),
    "a removed directory was empty": ("rm -r d", "mkdir d; printf a >d/x",
        {"{'d': None, 'd/x': b'a'}", "{'d': None}", "{}"}),
}


@pytest.mark.whole
@pytest.mark.parametrize("what", STATES)
def test_what_may_be_left(what, own):
    script, before, trees_left = STATES[what]
    assert left(history(own, script, before)) == trees_left


@pytest.mark.whole
@pytest.mark.parametrize("name", share("power", power.names(System()), 8))
def test_states_that_may_be_left(name, work, trials):
    options = Options(limit=4, seed=SEED)
    outcomes = list(campaign.explore("power", name, System(), options, work))
    trials("power", outcomes)
    wrong = [f"{one.trial}\n    {one.call}: {one.detail}" for one in outcomes
        if one.outcome != "good"]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong)
    assert {one.trial.fault for one in outcomes} == {*power.STAGES}


def keep_and_lose(disk, work):
    """What a cut leaves of two files, of which one was synced."""
    for name in ("synced", "not"):
        (disk.path / name).write_bytes(b"abc\n")
    with open(disk.path / "synced", "rb") as file:
        os.fsync(file.fileno())
    fd = os.open(disk.path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    disk.cut(cuts.NOTHING)
    disk.unmount()
    disk.mount()
    return [(disk.path / name).read_bytes() if (disk.path / name).exists() else None
        for name in ("synced", "not")]


def test_a_cut_is_one():
    if reason := cuts.lacks():
        pytest.skip(reason)
    synced, other = cuts.session(keep_and_lose)
    assert synced == b"abc\n" and other != b"abc\n"


@pytest.mark.slow
def test_real_cuts(trials, work):
    """Of scenarios that the seed chooses."""
    if reason := cuts.lacks():
        pytest.skip(reason)
    options = Options(limit=CUTS, seed=SEED)
    outcomes = [one for task in campaign.plan("cuts", power.names(System()), options)
        for one in campaign.explore(*task[:2], System(), task[2], work)]
    trials("cuts", outcomes)
    bad = [f"{one.trial}\n    {one.call}: {one.detail}" for one in outcomes
        if one.outcome != "good"]
    assert len(outcomes) == CUTS and not bad, f"{len(bad)} of {len(outcomes)}:\n" + "\n".join(bad)
