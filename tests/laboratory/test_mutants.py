"""Tests of the laboratory itself. It must catch verbs that were broken on purpose, by the families that the table names. The article's version must
fail where flatq does not.

The mutants are in python/flatq/crashlab/families/broken.py. races.py has two verbs that alternate in one order, and article.py the baseline."""

import collections
import dataclasses
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, chance, everything, need, share
from laboratory import own, trials, work  # noqa: F401

from flatq.crashlab import __main__ as command
from flatq.crashlab import campaign, report
from flatq.crashlab.families import article, broken, cuts, history, mutants, pairs, power, races, trial
from flatq.crashlab.gate import gate
from flatq.crashlab.scenarios import BASELINE, SCENARIOS, Article, System

sys.path.insert(0, str(ROOT / "tests/model"))

from variants import VARIANTS

STATED = [(name, probe.family) for name, mutant in broken.MUTANTS.items() for probe in mutant.probes if probe.family != "model"]
MUST = [(name, mutant.must.family) for name, mutant in broken.MUTANTS.items() if mutant.must.family != "model"]
ONLY_THE_MODEL = {"the places are listed in another order", "the sweep removes bodies first"}
ROWS = list(article.ROWS)
SHOWN = [probe for probe in STATED if probe in MUST or chance(f"shown {probe}").random() < 1 / 3] if everything() else share("mutants", MUST, 30)
SEED = int(os.environ["FLATQ_SEED"])


# the mutants: `make test` shows 30 of them, by the seed, to the family that must catch them; `make test-all` shows all, and a third
# of what other families are said to catch to these


@pytest.mark.whole
@pytest.mark.parametrize("name, family", SHOWN)
def test_is_caught(name, family, own, trials):
    if family == "clients":
        need("ncat")
    [outcome] = mutants.one(System(), name, [family], own)
    trials("mutants", [outcome])
    assert outcome.outcome == "good", f"{outcome.replay}: {outcome.detail}"
    print(f"{outcome.trials} trials, {outcome.seconds:.1f} s, {outcome.caught_by}: {outcome.detail}")
    on_ours = mutants.sound(outcome, name, System(), own)
    assert on_ours == "good" if family in ("crash", "reads", "ends") else on_ours != "bad", f"{outcome.caught_by}: {on_ours} of the verbs as they are"


def test_there_are_enough_and_few_are_for_the_model_alone():
    assert len(broken.MUTANTS) >= 60
    only = collections.Counter(mutant.must.family for mutant in broken.MUTANTS.values() if not mutant.also)
    assert min(only[family] for family in ("reads", "ends", "pairs")) >= 3, only
    assert {name for name, mutant in broken.MUTANTS.items() if {probe.family for probe in mutant.probes} <= {"model"}} == ONLY_THE_MODEL
    assert set(broken.FAMILIES) <= {probe.family for mutant in broken.MUTANTS.values() for probe in mutant.probes}
    for name, mutant in broken.MUTANTS.items():
        families = [probe.family for probe in mutant.probes]
        assert len(set(families)) == len(families), name
        for probe in mutant.probes:
            assert probe.family in broken.FAMILIES
            assert probe.where in {"crash": SCENARIOS, "double": SCENARIOS, "power": SCENARIOS, "races": races.RACES,
                                   "reads": SCENARIOS, "ends": SCENARIOS, "model": VARIANTS}.get(probe.family, [probe.where]), (name, probe)


@pytest.mark.parametrize("name", broken.MUTANTS)
def test_every_edit_applies(name, tmp_path):
    system = broken.make(System(), name, tmp_path)
    changed = {broken.place(ROOT / "lib", old)[0].relative_to(ROOT / "lib") for old, _ in broken.MUTANTS[name].edits}
    for path in (ROOT / "lib").rglob("*"):
        if path.is_file():
            file = path.relative_to(ROOT / "lib")
            same = path.read_bytes() == (system.lib / file).read_bytes()
            assert same != (file in changed), file
    for file in changed:
        assert subprocess.run(["sh", "-n", str(system.lib / file)], capture_output=True).returncode == 0, file


def test_an_edit_that_no_longer_applies_is_an_error(tmp_path):
    shutil.copytree(ROOT / "lib", tmp_path / "lib")
    take = tmp_path / "lib/engine/take.sh"
    take.write_text(take.read_text().replace("slip_tries=$((slip_tries + 1)) slip_nonce=$nonce", "slip_tries=$((slip_tries + 1))\n\tslip_nonce=$nonce"))
    broken.make(System(tmp_path / "lib"), "handing out is no try", tmp_path / "laid out otherwise")
    take.write_text(take.read_text().replace("slip_tries=$((slip_tries + 1))", "slip_tries=$((1 + slip_tries))"))
    for attempt in (lambda: broken.make(System(tmp_path / "lib"), "handing out is no try", tmp_path),
                    lambda: mutants.one(System(tmp_path / "lib"), "handing out is no try", ["crash"], tmp_path)):
        with pytest.raises(broken.Stale, match="handing out is no try: 0 times"):
            attempt()


def test_what_is_not_caught_is_bad(work, monkeypatch):
    """A probe that looks in the wrong place finds nothing wrong: a pop that settles too early does no harm to a close."""
    mutant = broken.MUTANTS["pop settles before it delivers"]
    monkeypatch.setitem(broken.MUTANTS, "x", dataclasses.replace(mutant, must=broken.crash("close")))
    [outcome] = mutants.one(System(), "x", ["crash"], work)
    assert outcome.outcome == "bad" and outcome.trials >= 1 and "not caught" in outcome.detail


# the article's version


@pytest.mark.whole
@pytest.mark.parametrize("row", share("the article", ROWS, 1))
def test_the_article(row, own, trials):
    if reason := article.available(row):
        pytest.skip(reason)
    limit = article.LIMITS.get(row, 80) // (2 if everything() else 4)
    # the baseline's trials are the same every time, since some of them must be bad
    outcomes = [outcome for side, seed in (("article", 0), ("flatq", SEED)) for outcome in article.trials(side, row, limit, seed, own)]
    trials("article", outcomes)
    bad = [f"{one.replay}\n    {one.detail[:400]}" for one in outcomes if one.verb == "flatq" and one.outcome != "good"]
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad[:10])
    counts = collections.Counter((one.verb, one.outcome) for one in outcomes)
    assert counts["article", "bad"] > 0 and counts["flatq", "good"] >= min(limit or 8, 8), counts
    assert counts["article", "bad"] + counts["article", "good"] >= min(limit or 8, 8), counts
    print(f"{row}: {dict(counts)}")


@pytest.mark.parametrize("row", ["all killed", article.POWER, article.AT_ONCE])
def test_a_trial_of_the_article_is_replayed(row, own, capsys):
    first = next(one for one in article.trials("article", row, 20, 0, own) if one.outcome == "bad")
    assert command.main(shlex.split(first.replay)) == 1
    detail = "lost: b'message" if row == article.AT_ONCE else first.detail  # which of eight messages at once is lost depends on chance
    assert f"bad: {detail}" in capsys.readouterr().out


def test_what_is_read_of_the_article_is_what_it_hands_out(own):
    """On wrecks of every seventh call, the dump has what the article's own pop hands out, as long as that hands out whole messages."""
    compared = 0
    system = Article()
    for call in trial.calls(system, BASELINE.name, own)[::7]:
        spool = trial.fresh(trial.wreck(system, trial.Trial(BASELINE.name, "kill", call.seq), own)[1], own)
        system.verb(spool, "wal")
        found = system.dump(spool).bodies()
        popped = [system.verb(spool, "pop", "q").stdout.decode() for _ in range(4)]
        for body, text in zip(found, popped):
            if body is None:
                break
            assert body.decode() == text, (call, found, popped)
            compared += 1
        else:
            assert not any(popped[len(found):]), (call, found, popped)
    assert compared > 5


# all families on one command line


def test_families_write_the_same_fields(work, tmp_path):
    fields = {field.name for field in dataclasses.fields(trial.Outcome)}
    samples = {
        "crash": campaign.singles(System(), ["close"], campaign.Options(faults=("kill",)), work),
        **{family: campaign.singles(System(), ["close"], campaign.Options(faults=(fault,), limit=1), work)
            for family, fault in (("reads", "read EIO"), ("ends", "killed at its end"))},
        "pairs": [pairs.run(pairs.Pair("plain", "pop", "push", 1), System(), work)],
        "power": power.explore(System(), "close", 1, 0, work),
        "history": [history.run(System(), 0, work)],
        "races": [races.run(System(), next(iter(races.RACES)), work)],
        "mutants": mutants.one(System(), "a key is not looked for", ["crash"], work),
        "article": article.trials("article", article.AT_ONCE, 1, 0, work),
        "cuts": campaign.missing("cuts", "none") if not cuts.available("ext4")[0] else cuts.explore(System(), "ext4", 1, 0),
    }
    assert {*samples, "double", "clients", "kills"} == set(campaign.families())
    path = tmp_path / "out"
    for family, outcomes in samples.items():
        assert outcomes, family
        with path.open("w") as stream:
            report.write(outcomes, stream)
        for line in map(json.loads, path.read_text().splitlines()):
            assert fields <= set(line) and line["family"] == family and line["replay"], (family, line)
        assert report.table(outcomes)


def test_command_says_what_cannot_be_done(work, monkeypatch, capsys):
    monkeypatch.setattr(cuts, "available", lambda kind: (False, f"no cuts of {kind} here"))
    assert command.main(["--family", "cuts", "--limit", "1", "--jobs", "1"]) == 0
    assert "no cuts of ext4 here" in capsys.readouterr().out


@pytest.fixture
def gateless(monkeypatch):
    monkeypatch.setattr(gate, "available", lambda *_: (False, "no seccomp gate: none here"))


@pytest.mark.parametrize("line", [
    ["--family", "crash"], ["--family", "double", "--family", "cuts"], ["--scenario", "pop", "--fault", "kill", "--point", "1"],
    shlex.split("power --scenario close --stage act --cut 1 --outcomes - --then both --sync on --seed 0")])
def test_without_a_gate_the_command_says_so(line, gateless, capsys):
    assert command.main(line) == 69
    assert tuple(capsys.readouterr()) == ("", "no seccomp gate: none here\n")


def test_without_a_gate_the_families_that_need_none_run(gateless, monkeypatch, capsys):
    """The command names the families that it left out."""
    monkeypatch.setattr(history, "_task", functools.partial(made_up, "history"))
    assert command.main(["--family", "crash", "--family", "history", "--limit", "2", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 points were not reached\nno seccomp gate: none here" in said and "0/3" in said.splitlines()[3], said


def made_up(family, *_):
    return [trial.Outcome(family, family, 1, "", "none", "good", "", 0, 0.0, "", family)]


def test_command_replays_a_line(work, capsys):
    [first, *_] = power.trials(System(), [SCENARIOS["close"]], 1, 0, work / "replay", kinds=("act",))
    assert command.main(str(first).split()) == 0
    assert "good" in capsys.readouterr().out
    cut = cuts.trials("xfs", 3, 5)[2]
    assert cuts.Cut.parse(str(cut)) == cut
    assert command.main(shlex.split(races.run(System(), "closed while a body is read", work).replay)) == 0
    assert command.main(["history", "bound/2/0.1"]) == 0
    for line in (["power", "--scenario", "close"], ["cut", "--kind", "ext4"], ["race", "x"], ["history", "x"], ["client", "x"], ["mutant", "x"], ["kills", "x/y/1"]):
        with pytest.raises(SystemExit) as ended:
            command.main(line)
        assert ended.value.code == 64
