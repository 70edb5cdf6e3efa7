"""How strong the laboratory is: each patch of tests/crash/mutants is noticed by the family that it
names, and the article's version fails where flatq does not."""

import dataclasses
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT, need
from laboratory import own, work  # noqa: F401

from crash import __main__ as command
from crash import campaign, mutant
from crash.gate import gate
from crash.scenarios import Article, System
from crash.trials import Options

SEED = int(os.environ["FLATQ_SEED"])


@pytest.mark.slow
@pytest.mark.parametrize("name", mutant.names())
def test_is_caught(name, own):
    one = mutant.read(name)
    if one.family == "clients":
        need("ncat")
    assert mutant.run(one, own), f"{one.family} sees nothing wrong"


@pytest.mark.whole
def test_patches_apply(tmp_path):
    """To lib as it is now, and what they make of it is shell."""
    promise = (ROOT / "lib/PROMISE.md").read_text()
    for one in map(mutant.read, mutant.names()):
        assert f"\n- **{one.promise}.** " in promise and one.family in campaign.FAMILIES, one
        place = tmp_path / one.name
        place.mkdir()
        made = mutant.make(one, place)
        for file in filter(Path.is_file, made.lib.rglob("*")):
            if file.read_bytes() != (ROOT / file.relative_to(place)).read_bytes():
                done = subprocess.run(["sh", "-n", str(file)], capture_output=True)
                assert done.returncode == 0, (file, done)


def test_a_patch_that_is_stale_is_an_error(tmp_path):
    one = dataclasses.replace(mutant.read("delete-not-synced"), patch="--- a/lib/pop\n"
        "+++ b/lib/pop\n@@ -1,1 +1,1 @@\n-no such line\n+:\n")
    with pytest.raises(mutant.Stale, match="delete-not-synced: 0 times"):
        mutant.make(one, tmp_path)


def test_what_is_not_caught_is_said(own):
    """A close does not notice that a pop settles too early."""
    one = dataclasses.replace(mutant.read("settled-before-delivered"),
        trials=("--scenario", "close", "--fault", "kill"))
    assert mutant.run(one, own) is None


# the article's version


@pytest.mark.parametrize("kind, fault, scenario", [("crash", "kill", "pop"),
    ("crash", "EIO", "push"), ("power", "", "push"), ("cuts", "ext4", "push")])
def test_the_article(kind, fault, scenario, own):
    """Of the article's version some trials are bad, of ours none."""
    if reason := campaign.FAMILIES[kind].lacks():
        pytest.skip(reason)
    for system, seed in ((Article(), 0), (System(), SEED)):
        options = Options((fault,) if fault else (), limit=12, seed=seed)
        found = list(campaign.explore(kind, scenario, system, options, own))
        bad = [f"{one.trial}: {one.detail[:300]}" for one in found if one.outcome == "bad"]
        assert found and bool(bad) == system.baseline, bad


# every family on one command line


@pytest.mark.slow
def test_every_family_is_replayed_from_its_line(own, capsys):
    for name, family in campaign.FAMILIES.items():
        if family.lacks():
            continue
        scenario = "close" if "close" in family.scenarios(System()) else family.scenarios(
            System())[0]
        one, *_ = campaign.explore(name, scenario, System(), Options(limit=1), own)
        assert one.outcome == "good", one
        assert command.main(shlex.split(str(one.trial))) == 0
        assert "\ngood\n" in capsys.readouterr().out


@pytest.fixture
def gateless(monkeypatch):
    monkeypatch.setattr(gate, "available", lambda *_: (False, "no seccomp gate: none here"))


def test_without_a_gate_the_command_says_so(gateless, capsys):
    assert pytest.raises(SystemExit, command.main, ["--family", "crash"]).value.code == 2
    assert "crash: left out: no seccomp gate: none here\n" in capsys.readouterr().err
