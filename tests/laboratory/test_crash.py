"""Every fault that can come at each call of every verb.

A failure names its trial: `python3 -m crash` with that line shows it in full. `make test` takes a
few trials of each scenario, which the seed chooses; `make test-all` kills at every call, and takes
more of the other faults; `make crash` takes all."""

import functools
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, everything, share
from laboratory import own, trials, work  # noqa: F401

from crash import campaign
from crash.families import crash as family
from crash.gate import faults
from crash.judge import layout, oracle, trees
from crash.scenarios import SCENARIOS, System, build
from crash.trials import Options, sample

PLAIN = [name for name in SCENARIOS if SCENARIOS[name].sync == "off"]
SYNCED = share("synced", [name for name in SCENARIOS if SCENARIOS[name].sync == "on"], 12)
QUICK = [name for name in PLAIN if not re.search(r" -w$|KiB", name)]
SEED = int(os.environ["FLATQ_SEED"])
OTHERS = tuple(fault for fault in faults.FAULTS if fault != "kill")
SYSTEM = System()


def explore(kind, name, work, limit, *only, system=SYSTEM):
    """So many trials; None: all, with every recovery."""
    options = Options(only, limit=limit, seed=SEED, every=limit is None)
    return list(campaign.explore(kind, name, system, options, work))


def good(outcomes, name=""):
    """No outcome is bad, and all trials were reached. What waits or takes again looks once a second
    whether something is due, so a run may have fewer calls: a part of its trials may be missed."""
    wrong = [f"{one.trial}: {one.call}: {one.detail[:600]}" for one in outcomes
        if one.outcome == "bad"]
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong[:20])
    waits = name.endswith((" -w", "drain -a")) or name and (SCENARIOS[name].says
        or SCENARIOS[name].verb == "work")
    left = [f"{one.trial}" for one in outcomes if one.outcome != "good"]
    most = max(0.15 * len(outcomes), len(outcomes) > 1) if waits else 0
    assert len(left) <= most, f"{len(left)} of {len(outcomes)} not reached:\n" + (
        "\n".join(left[:20]))


@pytest.mark.timeout(3600)
@pytest.mark.whole
@pytest.mark.parametrize("name", [*PLAIN, *SYNCED])
def test_every_call(name, work, trials):
    if everything():
        outcomes = explore("crash", name, work, None, "kill")
        outcomes += explore("crash", name, work, 30, *OTHERS)
    else:
        outcomes = explore("crash", name, work, 7)
    trials("crash", outcomes)
    good(outcomes, name)


@pytest.mark.timeout(3600)
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["reads", "ends"])
@pytest.mark.parametrize("name", share("unseen", QUICK, 4))
def test_other_families(name, kind, work, trials):
    outcomes = explore(kind, name, work, 12 if everything() else 8)
    trials(kind, outcomes)
    good(outcomes, name if SCENARIOS[name].says or SCENARIOS[name].verb == "work" else "")


def test_every_verb_that_changes_anything():
    """Some scenario breaks each such verb. Those that are idle look, are clients, run the handler,
    or store as push -l does."""
    verbs = {path.name for path in (ROOT / "lib").iterdir() if path.is_file()
        and os.access(path, os.X_OK)}
    idle = "list stat log why wait top flatq pressure mqueue shovel door serve import".split()
    assert verbs - {*idle} <= {scenario.verb for scenario in SCENARIOS.values()}


# the laboratory itself


def test_undisturbed_run_that_fails_is_no_trial(own):
    """A pop that does not settle."""
    shutil.copytree(ROOT / "lib", own / "lib")
    text = (own / "lib/pop").read_text()
    (own / "lib/pop").write_text(text.replace("taken_settle || die", ": || die"))
    [one] = explore("crash", "pop", own, None, "kill", system=System(own / "lib", "broken"))
    assert (one.outcome, one.trial.fault) == ("bad", "none") and "came back" in one.detail


@pytest.mark.parametrize("name", ["push", "pop from a flat file", "delete"])
def test_a_moment_is_what_a_kill_leaves(name, work):
    """It is taken from one undisturbed run, as it is before a call."""
    known = family.struck(SYSTEM, name, work)
    points = faults.points(known, ("kill", "torn, all but 1"))
    assert points
    missed = 0
    for fault, point in points:
        result, tree = family.wreck(SYSTEM, name, fault, point, work)
        before, words = family.base(SYSTEM, name, work)
        spool = family.fresh(before, work)
        here = faults.named(faults.make(fault, point), known)
        killed = family.act(SYSTEM, words, spool, fault=here)
        # Within one second, a take looks at less (good)
        missed += not killed.fired
        if not killed.fired and missed <= 2:
            continue
        ends = [(one.stdout, one.status, one.fired) for one in (result, killed)]
        assert ends[0] == ends[1], (fault, point)
        assert trees.digest(tree) == trees.digest(trees.take(spool)), (fault, point)


def test_a_sample_has_every_kind(work):
    """And another seed chooses others."""
    whole = faults.points(family.calls(SYSTEM, "push", work))
    some, others = (sample(whole, 12, seed, lambda one: faults.kind(one[0])) for seed in "12")
    assert {*some} < {*whole} and some != others and len({*some}) == 12
    assert len({faults.kind(fault) for fault, _ in some}) == 6
    assert sample(whole, None, "1") == whole


@pytest.fixture
def base(own):
    """A spool with a slip, a flat file, a reservation, a delayed and a buried message."""
    spool = own / "base"
    build(SYSTEM, SCENARIOS["checkpoint folds"], spool)
    for words in (("reserve", "-t", "99", "q"), ("reserve", "q")):
        receipt = SYSTEM.verb(spool, *words).stdout.split()[0].decode()
    assert SYSTEM.verb(spool, "bury", receipt).returncode == 0
    assert SYSTEM.verb(spool, "push", "-d", "9", "q", stdin=b"later").returncode == 0
    return spool


def test_dump_sees_damage(base):
    ready = next(m for m in layout.dump(base).messages("q", "ready")
        if m.place.startswith(("wal", "head")))
    (base / f"q/body/{ready.id:012d}").write_bytes(b"bTE")
    (base / "q/wal/strange").touch()
    (base / "q/body/000000000999").write_bytes(b"bTE=\n")
    found = layout.dump(base)
    assert len(found.damaged) == 2 and found.left == ["q/body/000000000999"]


def test_a_claim_lists_what_lies_there(base):
    """The oracle says so if `claim` lists too much, too little or another message."""
    assert SYSTEM.verb(base, "claim", "-c", "me", "-n", "3", "q").returncode == 0
    found = layout.dump(base)
    whole, (lost, *_) = found.messages(), found.messages("q", "claimed")
    tree = trees.take(base)
    for held in (whole, [m for m in whole if m is not lost], [*whole, lost]):
        spool = oracle.Spool(SYSTEM, family.fresh(tree, base.parent), "q")
        spool.claimed(layout.Dump({"q": held}), list_first=True)
        assert ["claim lists" in text for text in spool.wrong] == [True] * (held is not whole)


def test_wrecks_differ_by_what_matters(own):
    """A body, a state, a try, a priority or a nonce; and not from run to run."""
    taken = []
    for _ in range(2):
        spool = own / "digest"
        trees.remove(spool)
        build(SYSTEM, SCENARIOS["checkpoint after a fold killed after the commit"], spool)
        taken.append(trees.take(spool))
    assert taken[0].entries != taken[1].entries
    same = trees.digest(taken[0])
    assert same == trees.digest(taken[1])
    seen = {same}
    for path, content in taken[0].entries:
        name = path.rpartition("/")[2]
        others = []
        if path.startswith("q/fold/") and content == b"" and name != "~":
            others = [(path.replace("q/fold/", "q/head/"), content),
                (path.replace(name, "1" + name[1:]), content),
                (path.replace(".0.0.", ".1.0."), content)]
        elif path.startswith("q/queue/") and content:
            others = [(path[:-12] + "abcdefabcdef", content)]
        if path.startswith(("q/body/", "q/queue/", "q/keys/", "q/conf")) and content:
            others.append((path, content[:-2]))
        for other in others:
            entries = tuple(other if old == path else (old, data) for old, data in taken[0].entries)
            seen.add(trees.digest(trees.Tree(entries)))
            assert trees.digest(trees.Tree(entries)) != same, other
    assert len(seen) > 1 + 6 * 3 + 1


def test_oracle_says_what_is_wrong():
    scenario = SCENARIOS["pop"]
    for acked, said, got, text in (
        (True, b"m1", [b"m1", b"m2", b"m3"], "came back"), (True, b"m1", [b"m2"], "lost"),
        (True, b"m1", [b"m3", b"m2"], "out of order"), (True, b"m", [b"m2", b"m3"], ""),
        (True, b"m1", [b"m2", b"m2", b"m3"], "twice"), (False, b"m1", [b"m2", b"m3"], ""),
        (True, b"m1", [b"m2", b"m3", b"m4"], "unknown"), (False, b"m", [b"m2", b"m3"], "lost"),
        (False, b"m1", [b"m1", b"m2", b"m3"], ""),
    ):
        ledger = oracle.expected(scenario, acked, said)
        wrong = oracle.compare(ledger, got)
        assert bool(wrong) == bool(text) and all(text in line for line in wrong[:1]), (got, wrong)
        assert bool(ledger.wrong) == (acked and said != b"m1")


LAB = [sys.executable, "-m", "crash"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}


def test_command(work, tmp_path):
    """It replays what it has printed, and shows the spool."""
    run = functools.partial(subprocess.run, cwd=tmp_path, env=ENVIRONMENT, capture_output=True,
        timeout=100)
    done = run([*LAB, "--family", "crash", "--scenario", "close", "--fault", "kill", "--jobs", "1"])
    assert (done.returncode, done.stderr) == (0, b""), done
    assert re.fullmatch(rb"crash    kill +0 bad of (\d+)\nall +0 bad of \1\n", done.stdout), done
    first = ["--family", "pairs", "--scenario", "plain: pop / push", "--fault", "held"]
    done = run([*LAB, *first, "--point", "3"])
    assert done.returncode == 0 and b"\n>    " in done.stdout, done
    assert b"\n- q/" in done.stdout and b"\n+ q/" in done.stdout, done
    for wrong in (["--fault", "no"], ["--scenario", "no"], ["--jobs", "x"], ["--point", "1"],
            ["--family", "no"], [*first, "--point", "x"]):
        done = run([*LAB, *wrong])
        assert (done.returncode, done.stdout) == (2, b"") and done.stderr, done
