"""Every fault that can come at each mutating call of every verb; then 1,200 double crashes.

After each fault the laboratory does "recover, drain" on one copy, and "push, recover, drain" on another; and where all processes were killed, "recover,
drain" after a boot. An acknowledged message must come out once, unaltered and in order. A message that was not acknowledged may be missing, but must
not be there in part. No file may be left on the disk. A failure names its trial: `python -m flatq.crashlab` with that line shows it in full.

`make test` takes a share, which the seed chooses: a twentieth of the kills and tears, one in 40 of the other faults, one of the errors that differ
only in their number, one recovery of each wreck, of a fifth of each verb's scenarios also the syncs, and 8 double crashes in one of 27 scenarios.

`make test-all` kills at all calls. The scenarios of a verb have most of their calls in common, so the other faults it tries at each call in one of 16
of the scenarios that make it (campaign._dealt), at most fifty in a scenario; and of errors that leave the same, one by turns (faults.ALIKE). It tries
two recoveries of what a kill has left, and one of what another fault has left; and the syncs of a third of each verb's scenarios. `make crash` tries all."""

import functools
import io
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from conftest import ROOT, chance, everything, left as still_there, share, wait_for
from laboratory import own, pool, trials, work  # noqa: F401

from flatq.crashlab import __main__ as command
from flatq.crashlab import campaign, report
from flatq.crashlab.families import trial
from flatq.crashlab.families.broken import MUTANTS, edit
from flatq.crashlab.gate import faults, gate
from flatq.crashlab.judge import layout, oracle, trees
from flatq.crashlab.scenarios import SCENARIOS, System, build, crash

PLAIN = [name for name in SCENARIOS if SCENARIOS[name].sync == "off"]
DOUBLES = -(-1200 // len(PLAIN)) if everything() else 8  # of each scenario
VERBS = {SCENARIOS[name].verb: [other for other in PLAIN if SCENARIOS[other].verb == SCENARIOS[name].verb] for name in PLAIN}
SYNCED = {f"{name}, synced" for verb, names in VERBS.items() for name in chance(f"synced {verb}").sample(names, -(-len(names) // (3 if everything() else 5)))}
OPTIONS = campaign.Options((*PLAIN, *sorted(SYNCED)), limit=DOUBLES, seed=int(os.environ["FLATQ_SEED"]), share=not everything())
SYSTEM = System()


def bad(outcomes):
    return [f"{outcome.replay}: {outcome.call}: {outcome.detail[:600]}" for outcome in outcomes if outcome.outcome == "bad"]


def waits(name):
    """Whether the verb of that scenario may wait, and then make some calls more or fewer each time."""
    return bool(SCENARIOS[name].says) or SCENARIOS[name].verb == "work" or name.endswith(" -w")


def good(outcomes, missed=0.0, waiting=False):
    """No outcome is bad, and all trials were reached but for a part, `missed`. A verb that waits looks again and again, so a run may have fewer calls
    than the run whose calls were counted: of a few trials of such a verb (`waiting`) one may be missed, if there are at least two."""
    wrong = bad(outcomes)
    assert not wrong, f"{len(wrong)} of {len(outcomes)}:\n" + "\n".join(wrong[:20])
    left = [outcome.replay for outcome in outcomes if outcome.outcome != "good"]
    assert len(left) <= max(missed * len(outcomes), waiting and len(outcomes) > 1), f"{len(left)} of {len(outcomes)} were not reached:\n" + "\n".join(left[:20])


@pytest.mark.timeout(3600)
@pytest.mark.whole
@pytest.mark.parametrize("name", PLAIN)
def test_every_call(name, work, trials):
    outcomes = campaign.singles(SYSTEM, [name, *{f"{name}, synced"} & SYNCED], OPTIONS, work)
    trials("crash", outcomes)
    assert outcomes
    # A door looks for ended leases once a second, and under load the counted run may have one look more than the others. A worker, its feeder and
    # its job run side by side, so at a write's number there may be another call. A verb that waits (-w) may find what it waits for at its first look.
    good(outcomes, missed=0.15 if waits(name) else 0, waiting=waits(name))


@pytest.mark.whole
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share("second crashes", PLAIN, len(PLAIN) // 27))
def test_second_crash(name, work, trials):
    outcomes = campaign.doubles(SYSTEM, name, DOUBLES, OPTIONS.seed, work)
    trials("second crash", outcomes)
    assert len(outcomes) >= min(DOUBLES, 8)
    good(outcomes)


def test_every_verb_that_changes_anything():
    """Some scenario breaks each such verb. list, stat, log and top change nothing; some verbs are clients; `door` is the handler with limits, and import
    stores as push -l does."""
    verbs = {path.name for path in (ROOT / "lib").iterdir() if path.is_file() and os.access(path, os.X_OK)}
    assert verbs - {"list", "stat", "log", "top", "flatq", "remote", "pressure", "mqueue", "shovel", "door", "import"} <= {scenario.verb for scenario in SCENARIOS.values()}


# the laboratory itself


@pytest.mark.whole
@pytest.mark.parametrize("name", share("killed owners", [name for name in PLAIN if any(words[0] == "CRASH" for words in SCENARIOS[name].before)], 2))
def test_no_later_process_has_the_pid_of_an_owner_that_was_killed_before(name, work):
    """A verb looks longer at an owner whose PID is in use. Once a process had that PID only while the calls were counted: two trials were not reached."""
    entries = trial.base(SYSTEM, name, work)[0].entries
    owners = [int(pid) for path, _ in entries for pid in re.findall(r"(?<![^./])(\d+)-\d{12}(?!\d)", path)]
    owners += [int(data.split()[0]) for path, data in entries if isinstance(data, bytes) and re.match(r"\.ids/\d+/\d+$", path) and data.strip()]
    assert owners and all(pid > 4194304 for pid in owners), owners


@pytest.fixture
def broken(tmp_path):
    """A copy of lib/ with edits as those of a mutant."""
    def copy(*edits):
        lib = tmp_path / "lib"
        shutil.copytree(ROOT / "lib", lib)
        edit(lib, edits)
        return System(lib, "broken")
    return copy


def some(system, name, work, *chosen):
    return campaign.singles(system, [name], campaign.Options(faults=chosen or ("kill",)), work)


BROKEN = {
    "push answers before its slip is made": ("push", "kill", "lost", ()),
    "pop settles before it delivers": ("pop", "kill", "lost", ()),
    "push stores something else where its body could not be written": ("push", "ENOSPC", "unknown", [
        ("push_body(): || { set +C; ... }", "|| { printf 'eHh4\n' >|\"$q/body/$slip_id\"; push_encoded=4; }")]),
    "a batch says 200 of a message that was not stored": ("http: POST, batch", "EIO", "lost", [("post_batch(): [ $post_code -eq 0 ]; then", ":; then")]),
    "delete ignores that its rename failed": ("delete", "EIO", "came back", ()),
}


@pytest.mark.parametrize("what", BROKEN)
def test_finds_what_is_broken(what, broken, work):
    name, fault, text, edits = BROKEN[what]
    wrong = bad(some(broken(*(edits or MUTANTS[what].edits)), name, work, fault))
    assert wrong and any(text in line for line in wrong), wrong


def test_undisturbed_run_that_fails_is_no_trial(broken, work):
    outcomes = some(broken(("main(): taken_settle || die", ": || die")), "pop", work)
    assert [outcome.fault for outcome in outcomes] == ["none"] and "came back" in outcomes[0].detail


def test_trial_is_its_line(work):
    one = trial.Trial("push -k", "torn, half", 5, 3, trial.Second("pop", 2))
    assert trial.Trial.parse(str(one)) == one == pickle.loads(pickle.dumps(one))
    for line in ("--scenario push --fault kill", "--scenario no --fault kill --point 1", "--scenario push --fault no --point 1",
                 "--scenario push --fault kill --point 1 --second 'no 1'", "--scenario push --fault kill --point 1 --second pop"):
        with pytest.raises(ValueError):
            trial.Trial.parse(line)


def test_same_trial_same_outcome(work):
    for one in (trial.Trial("push", "torn, half", 4), trial.Trial("pop", "kill", 3, second=trial.Second("wal", 2))):
        first, second = (trial.run(one, SYSTEM, work).as_dict() for _ in range(2))
        assert {**first, "seconds": 0} == {**second, "seconds": 0}
        assert first["outcome"] == "good" and first["replay"] == str(one)
    assert trial.run(trial.Trial("pop", "kill", 999), SYSTEM, work).outcome == "not reached"


def test_a_run_that_a_signal_interrupted_proves_nothing(monkeypatch, work):
    """A signal that comes just when a call reaches the gate makes it fail, which no fault of the trial did."""
    real, runs = gate.run, []

    def run(*args, **more):
        runs.append(real(*args, **more))
        return replace(runs[-1], stderr=b"sh: can't create /dev/null: Interrupted system call\n") if len(runs) % 2 else runs[-1]

    one = trial.Trial("push", "EIO", 3)
    trial.calls(SYSTEM, "push", work)
    monkeypatch.setattr(gate, "run", run)
    result, _ = trial.wreck(SYSTEM, one, work)
    assert result.fired and b"Interrupted" not in result.stderr and len(runs) == 2


@pytest.mark.parametrize("name", ["push", "pop from a flat file", "delete"])
def test_a_moment_is_what_a_kill_leaves(name, work):
    """What the laboratory takes from one undisturbed run, as it is before a call, equals what a run leaves that is killed or torn at that call."""
    plan = campaign.plan(SYSTEM, name, campaign.Options(faults=("kill", "torn, all but 1")), work)
    assert plan
    for fault, point in plan:
        result, tree = trial.wreck(SYSTEM, trial.Trial(name, fault, point), work)
        before, words = trial.base(SYSTEM, name, work)
        spool = trial.fresh(before, work)
        killed = trial.act(SYSTEM, words, spool, "off", faults.make(fault, point))
        left = trees.take(spool)
        assert (result.stdout, result.status, result.fired) == (killed.stdout, killed.status, killed.fired), (fault, point)
        assert trees.digest(tree) == trees.digest(left), (fault, point, tree.entries, left.entries)


def test_a_share_has_every_family(work):
    """A share has faults of every family, and another seed chooses others."""
    calls = trial.calls(SYSTEM, "push", work)
    whole = faults.points(calls)
    some, others = ({*campaign.plan(SYSTEM, "push", campaign.Options(share=True, limit=1, seed=seed), work)} for seed in (1, 2))
    assert some < {*whole} and some != others and len(some) < len(whole) * 0.7
    assert all(any(fault in kind for fault, _ in some) for kind in faults.KINDS)


def test_a_crash_strikes_its_call_whatever_comes_before(own):
    """The run that is killed may make a call more than the one in which the calls were counted: a verb that looks at something once a second does."""
    (own / "verb").write_text(f"""[ ! -e {own}/counted ] || : >"$FLATQ_DIR/more"\n: >{own}/counted\n: >"$FLATQ_DIR/last"\n""")
    (own / "spool").mkdir()
    crash(replace(SYSTEM, lib=own), own / "spool", "open last", ("verb", b""))
    assert [path.name for path in (own / "spool").iterdir()] == ["more"]


@pytest.mark.parametrize("name", chance("alike").sample([name for name in PLAIN if ":" not in name], 12 if everything() else 1))
def test_faults_that_are_alike_leave_the_same(name, work):
    """`make test-all` tries one of these faults at a point, by turns, since each leaves the same spool and ends the verb with the same code. A door's
    spool is never the same twice."""
    whole = campaign.plan(SYSTEM, name, campaign.Options(faults=sum(faults.ALIKE, ())), work)
    some = faults.by_turns(whole, trial.calls(SYSTEM, name, work))
    assert {point for _, point in some} == {point for _, point in whole} and len(some) < len(whole)
    removals = {call.seq for call in faults.number(trial.calls(SYSTEM, name, work), "changes") if call.kind == "unlink"}
    for group in faults.ALIKE:
        places = sorted({point for fault, point in whole if fault in group} - (removals if any(name.startswith("EROFS") for name in group) else set()))
        for point in chance(f"alike {name}").sample(places, min(3, len(places))):
            ends = {}
            for fault in (fault for fault in group if (fault, point) in whole):
                result, tree = trial.wreck(SYSTEM, trial.Trial(name, fault, point), work)
                if result.fired:
                    ends.setdefault((result.status, trees.digest(tree)), (fault, point, result.status, result.stderr, sorted(tree.entries)))
            assert len(ends) < 2, "\n".join(map(str, ends.values()))


@pytest.mark.parametrize("way, places", [("changes", campaign.PLACES), ("reads", campaign.UNSEEN_PLACES)])
def test_each_call_is_struck_in_some_scenario(work, way, places):
    """What falls to one scenario of a verb does not fall to all others that make the same call, and each call falls to some. Of what falls to it a
    scenario tries at most campaign.MANY or UNSEEN_MANY faults."""
    calls = functools.partial({"changes": trial.numbered, "reads": trial.unseen}[way], SYSTEM, work=work, way=way)
    names = [name for name in PLAIN if SCENARIOS[name].verb == "settle" or SCENARIOS[name].verb == "release"]
    for options in (replace(OPTIONS, seed=seed) for seed in (1, 2)):
        struck = {}
        for name in names:
            kept = campaign._dealt(name, [("EIO", call.seq) for call in calls(name)], options, places, calls)
            struck[name] = {call.alike for call in calls(name) if ("EIO", call.seq) in kept}
            assert len(kept) < len(calls(name))
        for verb in ("settle", "release"):
            ours = [name for name in names if SCENARIOS[name].verb == verb]
            assert set.union(*(struck[name] for name in ours)) == {call.alike for name in ours for call in calls(name)}


def test_many_alike_are_thinned():
    calls = [gate.Call(n, 7, "base64", "write", "write", ("q/body/1",), 4096) for n in range(1, 301)]
    points = sorted({point for _, point in faults.points(calls, ("EIO", "kill"), random.Random(1))})
    assert len(points) in (4, 5) and points[:2] == [1, 2] and points[-1] == 300
    reads = [replace(call, kind="read") for call in calls]
    assert [point for _, point in faults.points(reads, ("read EIO",), random.Random(1), "reads")] == [1, 70]
    # two processes side by side
    calls = [gate.Call(n, 7 + n % 2, "base64", "write", "write", ("q/body/1",), 4096) for n in range(1, 601)]
    points = sorted({point for _, point in faults.points(calls, ("EIO", "kill"), random.Random(1))})
    assert len(points) <= 10 and points[:4] == [1, 2, 3, 4] and points[-2:] == [599, 600]


def test_a_failed_answer_is_the_answer(work):
    """A fault of the output strikes only the writes of the answer, also if other processes write to pipes beside them."""
    name = "work"
    plan = campaign.plan(SYSTEM, name, campaign.Options(faults=tuple(faults.OUTPUT)), work)
    assert plan
    for fault, point in plan:
        result, _ = trial.wreck(SYSTEM, trial.Trial(name, fault, point), work)
        assert [call.paths for call in result.calls if call.fate != "run"] == [("<stdout>",)]


def test_both_after_each(work, monkeypatch):
    """After each fault the laboratory recovers, and on another copy pushes and recovers."""
    judge, seen = oracle.judge, []
    monkeypatch.setattr(oracle, "judge", lambda *args, **how: seen.append((how["then_push"], how.get("boot", False))) or judge(*args, **how))
    trial.calls(SYSTEM, "push", work)
    for one, boot in ((trial.Trial("push", "EIO", 4), False), (trial.Trial("push", "kill one", 4), False), (trial.Trial("push", "kill", 4), True),
                      (trial.Trial("push", "kill", 5, second=trial.Second("wal", 1)), False)):
        seen.clear()
        assert trial.run(one, SYSTEM, work).outcome == "good"
        assert seen == [(False, False), (True, False)] + [(False, True)] * boot, one


def test_a_claim_lists_what_lies_there(base):
    """The oracle says so if `claim` lists too much, too little or another message."""
    assert SYSTEM.verb(base, "claim", "-c", "me", "-n", "3", "q").returncode == 0
    found = layout.dump(base)
    assert oracle._listed(SYSTEM, base, "me", found) == []
    [lost, *_] = [m for m in found.messages("q", "claimed")]
    for held in ([m for m in found.messages() if m is not lost], [*found.messages(), lost]):
        assert "claim lists" in oracle._listed(SYSTEM, base, "me", oracle.Dump({"q": held}))[0]


def test_a_verb_that_goes_wrong_right_after_a_crash_is_seen(broken, work):
    """The verb runs once undisturbed on the wreck, before any recovery and before it is crashed itself. The laboratory must see that it fails
    there."""
    name = "checkpoint after a drain killed before its marker"
    system = broken(("batch_putback_locked(): need engine/fold engine/proof", "need engine/proof"))
    said = []
    for point in campaign._kill_points(system, name, work):
        try:
            campaign.second_points(system, name, point, "pop", work)
        except RuntimeError as error:
            said.append(str(error))
    assert any("flat_parse" in text for text in said), said


def test_same_seed_same_doubles(work):
    lines = [[outcome.replay for outcome in campaign.doubles(SYSTEM, "touch", 6, seed, work)] for seed in (1, 1, 2)]
    assert lines[0] == lines[1] != lines[2] and len(lines[0]) == 6


def test_faults_befall_what_they_can():
    call = gate.Call(7, 1, "sh", "openat", "open", ("q/wal/x",))
    assert "EMFILE lasting" in faults.befall(call) and not any(name.startswith(("torn", "short")) for name in faults.befall(call))
    gone = gate.Call(7, 1, "rm", "unlinkat", "unlink", ("q/wal/x",))
    assert not {"ENOSPC", "EDQUOT", "EMFILE"} & set(faults.befall(gone)) and {"kill", "kill one", "EIO", "EACCES", "EROFS"} <= set(faults.befall(gone))
    for size, cuts in ((1, 0), (2, 1), (3, 2), (9, 3)):
        write = gate.Call(7, 1, "sh", "write", "write", ("q/body/1",), size)
        assert sum(name.startswith("torn") for name in faults.befall(write)) == cuts
    with pytest.raises(ValueError):
        faults.make("no such", 1)


@pytest.fixture
def base(own):
    """A spool with a slip, a flat file, a reservation and a buried message."""
    spool = own / "base"
    scenario = SCENARIOS["checkpoint folds"]
    build(SYSTEM, scenario, spool)
    for words in (("reserve", "-t", "99", "q"), ("reserve", "q")):
        receipt = SYSTEM.verb(spool, *words).stdout.split()[0].decode()
    assert SYSTEM.verb(spool, "bury", receipt).returncode == 0
    assert SYSTEM.verb(spool, "push", "-d", "9", "q", stdin=b"later").returncode == 0
    return spool


def test_dump_is_what_comes_out(base):
    found = layout.dump(base)
    assert {m.state for m in found.messages()} == {"ready", "reserved", "buried", "delayed"}
    assert not found.damaged and not found.left
    said = SYSTEM.verb(base, "drain", "-0", "q").stdout
    assert said == b"".join(body + b"\0" for body in found.bodies("q", "ready"))
    assert layout.dump(base).bodies() == found.bodies("q", "delayed", "reserved", "buried")


def test_dump_sees_damage(base):
    ready = next(m for m in layout.dump(base).messages("q", "ready") if m.place.startswith(("wal", "head")))
    (base / f"q/body/{ready.id:012d}").write_bytes(b"bTE")
    (base / "q/wal/strange").touch()
    (base / "q/body/000000000999").write_bytes(b"bTE=\n")
    found = layout.dump(base)
    assert len(found.damaged) == 2 and found.left == ["q/body/000000000999"]


def test_put_back_as_it_was(base, own):
    layout.tried(base)
    taken = trees.take(base)
    copy = own / "copy"
    trees.put(taken, copy)
    assert trees.take(copy).entries == taken.entries
    assert layout.dump(copy) == layout.dump(base)
    trees.remove(copy)
    assert not copy.exists() and not trees.take(copy).exists


def test_wrecks_differ_by_what_matters(own):
    """Two runs of one scenario leave the same digest. The digest differs if a body, a state, a try, a priority or a nonce does."""
    taken = []
    for _ in range(2):
        spool = own / "digest"
        trees.remove(spool)
        build(SYSTEM, SCENARIOS["checkpoint after a fold killed after the commit"], spool)
        taken.append(trees.take(spool))
    trees.remove(spool)
    assert taken[0].entries != taken[1].entries and trees.digest(taken[0]) == trees.digest(taken[1])
    seen = {trees.digest(taken[0])}
    for path, content in taken[0].entries:
        name = path.rpartition("/")[2]
        others = []
        if path.startswith("q/fold/") and content == b"" and name != "~":
            others = [path.replace("q/fold/", "q/head/"), path.replace(name, "1" + name[1:]), path.replace(".0.0.", ".1.0.")]
        elif path.startswith("q/queue/") and content:
            others = [path[:-12] + "abcdefabcdef"]
        for other in others:
            changed = tuple((other, data) if old == path else (old, data) for old, data in taken[0].entries)
            seen.add(trees.digest(trees.Tree(changed)))
            assert trees.digest(trees.Tree(changed)) != trees.digest(taken[0]), (path, other)
        if path.startswith(("q/body/", "q/queue/", "q/keys/", "q/conf", ".ids/")) and content:
            changed = tuple((old, data[:-2] if old == path else data) for old, data in taken[0].entries)
            assert trees.digest(trees.Tree(changed)) != trees.digest(taken[0]), path
    # the wreck, six slips in three ways each, the name of the flat file: all differ
    assert len(seen) == 1 + 6 * 3 + 1


def test_oracle_says_what_is_wrong():
    scenario = SCENARIOS["pop"]
    for acked, said, got, text in (
        (True, b"m1", [b"m1", b"m2", b"m3"], "came back"), (True, b"m1", [b"m3", b"m2"], "out of order"), (True, b"m1", [b"m2"], "lost"),
        (True, b"m1", [b"m2", b"m2", b"m3"], "twice"), (True, b"m1", [b"m2", b"m3", b"m4"], "unknown"), (True, b"m", [b"m2", b"m3"], ""),
        (False, b"m", [b"m2", b"m3"], "lost"), (False, b"m1", [b"m2", b"m3"], ""), (False, b"m1", [b"m1", b"m2", b"m3"], ""),
    ):
        ledger = oracle.expected(scenario, acked, said)
        wrong = oracle.compare(ledger, got)
        assert bool(wrong) == bool(text) and all(text in line for line in wrong[:1]), (acked, said, got, wrong)
        assert bool(ledger.wrong) == (acked and said != b"m1")


def test_table_counts():
    def outcome(verb, fault, result, second=""):
        return trial.Outcome(verb, verb, 1, "", fault, result, "", 0, 0.0, "", second=second)

    text = report.table([outcome("push", "kill", "good"), outcome("push", "torn, half", "bad"), outcome("pop", "kill", "bad", "wal 3")])
    assert [line.split() for line in text.splitlines()] == [
        ["kill", "torn", "double", "all"], ["push", "0/1", "1/1", "1/2"], ["pop", "1/1", "1/1"], ["all", "0/1", "1/1", "1/1", "2/3"]]


def test_command(work, tmp_path):
    run = functools.partial(subprocess.run, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, timeout=100)
    lab = [sys.executable, "-m", "flatq.crashlab"]
    done = run([*lab, "--family", "crash", "--scenario", "close", "--fault", "kill", "--jobs", "1", "--json", "out"])
    assert (done.returncode, done.stderr) == (0, b""), done
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert {"scenario", "verb", "point", "call", "fault", "outcome", "seed", "seconds"} <= set(lines[0]) and {line["outcome"] for line in lines} == {"good"}
    assert b"close" in done.stdout and b"0/" in done.stdout
    done = run([*lab, "--scenario", "pop", "--fault", "kill", "--point", "3", "--second", "wal 2"])
    assert done.returncode == 0 and b">    3 " in done.stdout and b"messages:" in done.stdout, done
    for wrong in (["--fault", "no"], ["--scenario", "no"], ["--jobs", "x"], ["--point", "1"], ["--family", "no"]):
        done = run([*lab, *wrong])
        assert done.returncode == 64 and done.stdout == b"" and done.stderr.count(b"\n") == 1, (wrong, done)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interruption_keeps_what_there_is(work, tmp_path, number, code):
    path = tmp_path / "out"
    lab = [sys.executable, "-m", "flatq.crashlab", "--family", "crash", "--scenario", "close", "--scenario", "push 1 MiB", "--fault", "kill", "--jobs", "2"]
    process = subprocess.Popen([*lab, "--json", path], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: path.exists() and path.stat().st_size, "the first outcomes")
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert process.returncode == code and err.count(b"\n") == 1 and lines, (process.returncode, err)
    assert f"/{len(lines)}".encode() in out.splitlines()[-1]
    wait_for(lambda: not still_there(process), "the end of all it has started")


def test_a_task_that_fails_is_an_outcome(pool):
    [[outcome]] = campaign.execute([("crash", functools.partial(int, "x"))], pool)
    assert (outcome.outcome, outcome.scenario, outcome.replay) == ("bad", "x", "--family crash") and "ValueError" in outcome.detail


def test_progress_only_for_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        progress = report.Progress("crash", 2, stream)
        progress.add([trial.Outcome("pop", "pop", 1, "", "kill", "bad", "", 0, 0.0, "")])
        assert ("crash [############            ] 1/2, 1 trials, 1 bad" in stream.getvalue()) == shown
        progress.close()


def test_parser_names_every_family():
    families = list(campaign.families())
    assert {"crash", "double"} <= {*families}
    for family in families:
        assert command._parser(families).parse_args(["--family", family]).family == [family]
