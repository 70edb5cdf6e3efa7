"""Tests of the laboratory itself. It must catch verbs that were broken on purpose, each by the
family that the table of mutants names. The article's version must fail where flatq does not."""

import collections
import dataclasses
import functools
import json
import os
import shlex
import subprocess

import pytest

from conftest import ROOT, everything, need, share
from laboratory import own, trials, work  # noqa: F401

from crash import __main__ as command
from crash import campaign, mutant, report
from crash.families import article, cuts, history, pairs, power, races, trial
from crash.gate import gate
from crash.scenarios import BASELINE, SCENARIOS, Article, System

SEED = int(os.environ["FLATQ_SEED"])


@pytest.mark.slow
@pytest.mark.parametrize("name", mutant.names())
def test_is_caught(name, own):
    if mutant.read(name).family == "clients":
        need("ncat")
    caught = mutant.run(name, own)
    assert caught.by, f"{caught.trials} trials of {caught.mutant.family} see nothing wrong"


@pytest.mark.whole
def test_patches_apply(tmp_path):
    """To lib as it is now, and what they make of it is shell; the table is that of README.md."""
    promise = (ROOT / "lib/PROMISE.md").read_text()
    for one in map(mutant.read, mutant.names()):
        assert f"\n- **{one.promise}.** " in promise and one.family in campaign.families(), one
        place = tmp_path / one.name
        place.mkdir()
        made = mutant.make(one, place)
        for file in made.lib.rglob("*"):
            if file.is_file() and file.read_bytes() != (ROOT / file.relative_to(place)).read_bytes():
                done = subprocess.run(["sh", "-n", str(file)], capture_output=True)
                assert done.returncode == 0, (file, done)
    table = mutant.table(map(mutant.read, mutant.names()))
    assert table in (ROOT / "tests/crash/README.md").read_text(), table


def test_a_patch_that_is_stale_is_an_error(tmp_path):
    one = dataclasses.replace(mutant.read("delete-not-synced"), patch="--- a/lib/pop\n"
        "+++ b/lib/pop\n@@ -1,1 +1,1 @@\n-no such line\n+:\n")
    with pytest.raises(mutant.Stale, match="delete-not-synced: 0 times"):
        mutant.make(one, tmp_path)


def test_what_is_not_caught_is_said(own, monkeypatch):
    """A close does not notice that a pop settles too early."""
    read = mutant.read
    monkeypatch.setattr(mutant, "read", lambda name: dataclasses.replace(read(name),
        trials=("--scenario", "close", "--fault", "kill")))
    caught = mutant.run("settled-before-delivered", own)
    assert not caught.by and caught.trials


# the article's version


@pytest.mark.whole
@pytest.mark.parametrize("row", share("the article", article.ROWS, 1))
def test_the_article(row, own, trials):
    if reason := article.available(row):
        pytest.skip(reason)
    limit = article.LIMITS.get(row, 80) // (2 if everything() else 4)
    # the baseline's trials are the same every time, since some of them must be bad
    outcomes = [one for side, seed in (("article", 0), ("flatq", SEED))
        for one in article.trials(side, row, limit, seed, own)]
    trials("article", outcomes)
    bad = [f"{one.replay}\n    {one.detail[:400]}" for one in outcomes
        if one.verb == "flatq" and one.outcome != "good"]
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad[:10])
    counts = collections.Counter((one.verb, one.outcome) for one in outcomes)
    assert counts["article", "bad"] > 0 and counts["flatq", "good"] >= min(limit, 8), counts


@pytest.mark.parametrize("row", ["all killed", article.POWER, article.AT_ONCE])
def test_a_trial_of_the_article_is_replayed(row, own, capsys):
    first = next(one for one in article.trials("article", row, 20, 0, own) if one.outcome == "bad")
    assert command.main(shlex.split(first.replay)) == 1
    # which of eight messages at once is lost depends on chance
    detail = "lost: b'message" if row == article.AT_ONCE else first.detail
    assert f"bad: {detail}" in capsys.readouterr().out


def test_what_is_read_of_the_article_is_what_it_hands_out(own):
    """On wrecks of every seventh call, the dump has what the article's own pop hands out."""
    compared = 0
    system = Article()
    for call in trial.calls(system, BASELINE.name, own)[::7]:
        one = trial.Trial(BASELINE.name, "kill", call.seq)
        spool = trial.fresh(trial.wreck(system, one, own)[1], own)
        system.verb(spool, "wal")
        found = system.dump(spool).bodies()
        popped = [system.verb(spool, "pop", "q").stdout.decode() for _ in range(4)]
        for body, text in zip(found, popped):
            if body is None:
                break
            assert body.decode() == text, (call, found, popped)
            compared += 1
    assert compared > 5


# all families on one command line


@pytest.mark.slow
def test_families_write_the_same_fields(work, tmp_path):
    fields = {field.name for field in dataclasses.fields(trial.Outcome)}
    there = cuts.available("ext4")[0]
    samples = {
        **{family: campaign.singles(System(), ["close"], campaign.Options(faults=(fault,), limit=1),
            work) for family, fault in (("crash", "kill"), ("reads", "read EIO"),
                ("ends", "killed at its end"))},
        "pairs": [pairs.run(pairs.Pair("plain", "pop", "push", 1), System(), work)],
        "power": power.explore(System(), "close", 1, 0, work),
        "history": [history.run(System(), 0, work)],
        "races": [races.run(System(), next(iter(races.RACES)), work)],
        "article": article.trials("article", article.AT_ONCE, 1, 0, work),
        "cuts": cuts.explore(System(), "ext4", 1, 0) if there else campaign.missing("cuts", "none"),
    }
    assert {*samples, "double", "clients"} == set(campaign.families())
    path = tmp_path / "out"
    for family, outcomes in samples.items():
        assert outcomes, family
        with path.open("w") as stream:
            report.write(outcomes, stream)
        for line in map(json.loads, path.read_text().splitlines()):
            assert fields <= set(line) and line["family"] == family and line["replay"], line
        assert report.table(outcomes)


@pytest.fixture
def gateless(monkeypatch):
    monkeypatch.setattr(gate, "available", lambda *_: (False, "no seccomp gate: none here"))


@pytest.mark.parametrize("line", ["--family crash", "--family double --family cuts",
    "--scenario pop --fault kill --point 1", "power close/act/1//both/on/0"])
def test_without_a_gate_the_command_says_so(line, gateless, capsys):
    assert command.main(line.split()) == 69
    assert tuple(capsys.readouterr()) == ("", "no seccomp gate: none here\n")


def test_without_a_gate_the_families_that_need_none_run(gateless, monkeypatch, capsys):
    """The command names the families that it left out."""
    monkeypatch.setattr(history, "_task", functools.partial(made_up, "history"))
    words = "--family crash --family history --limit 2 --jobs 1".split()
    assert command.main(words) == 0
    said = capsys.readouterr().out
    assert "1 points were not reached\nno seccomp gate: none here" in said
    assert "0/3" in said.splitlines()[3], said


def made_up(family, *_):
    return [trial.Outcome(family, family, 1, "", "none", "good", "", 0, 0.0, "", family)]


@pytest.mark.slow
def test_command_replays_a_line(work, capsys):
    first, *_ = power.trials(System(), [SCENARIOS["close"]], 1, 0, work / "replay", kinds=("act",))
    assert command.main(str(first).split()) == 0
    cut = cuts.trials("xfs", 3, 5)[2]
    assert cuts.Cut.parse(str(cut)) == cut
    for line in ("race 'closed while a body is read'", "history bound/2/0.1",
            "pair plain/pop/push/1/0"):
        assert command.main(shlex.split(line)) == 0
    assert "good" in capsys.readouterr().out
    for line in ("power close", "cut ext4", "race x", "history x", "client x"):
        with pytest.raises(SystemExit) as ended:
            command.main(line.split())
        assert ended.value.code == 64
