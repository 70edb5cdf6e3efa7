"""Every mutating call of every verb, and at each of them a kill, a killed child, an I/O error and a disk that is full.

After each, on copies: "checkpoint, drain" and "push, checkpoint, drain". What was acknowledged must come out once, unaltered, in order; what
was not may be missing, but never half there; and nothing may be left on the disk.
"""

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from flatq.crashlab import gate  # noqa: E402

LIB = ROOT / "lib"


def lines(first, last):
    return [b"m%d" % n for n in range(first, last + 1)]


def pushes(first, last, *options):
    return [("push", *options, "q", body) for body in lines(first, last)]


@dataclass
class Scenario:
    """`before` are verbs with their standard input last; `act` is the one that is broken. `order`: all messages that may come out
    at the end, in their order (None: any order). `new`: those that `act` brings; `old`: those that it takes away."""

    before: list
    act: tuple
    order: list
    new: list = field(default_factory=list)
    old: list = field(default_factory=list)
    ordered: bool = True
    prepare: object = None
    delivers: bool = False  # what it takes away, it writes out


RANGE = 12  # ids in a range


def full_range(spool):
    newest = max((spool / ".ids").iterdir())
    for n in range(1000, 1000 + RANGE):
        (newest / str(n)).touch()


BIG = b"x" * 3000
FLAT = [*pushes(1, 10), ("wal", b"")]
SCENARIOS = {
    "first push": Scenario([], ("push", "q", b"m1"), lines(1, 1), new=lines(1, 1)),
    "push": Scenario(pushes(1, 2), ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3)),
    "push empty": Scenario(pushes(1, 1), ("push", "q", b""), [*lines(1, 1), b""], new=[b""]),
    "push 3,000 bytes": Scenario(pushes(1, 1), ("push", "q", BIG), [*lines(1, 1), BIG], new=[BIG]),
    "push -n": Scenario(pushes(1, 1), ("push", "-n", "2", "q", b"m2"), lines(1, 2), new=lines(2, 2)),
    "push -d": Scenario(pushes(1, 1), ("push", "-d", "9", "q", b"m2"), lines(1, 2), new=lines(2, 2)),
    "push -k": Scenario(pushes(1, 1), ("push", "-k", "key", "q", b"m2"), lines(1, 2), new=lines(2, 2)),
    "push -k again": Scenario(pushes(1, 1, "-k", "key"), ("push", "-k", "key", "q", b"m2"), lines(1, 1)),
    "push into a bound": Scenario([("create", "-b", "3", "q", b""), *pushes(1, 2)], ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3)),
    "push, new range": Scenario(pushes(1, 2), ("push", "q", b"m3"), lines(1, 3), new=lines(3, 3), prepare=full_range),
    "push -l, few": Scenario(pushes(1, 2), ("push", "-l", "q", b"m3\nm4\n"), lines(1, 4), new=lines(3, 4)),
    "push -l": Scenario(pushes(1, 2), ("push", "-l", "q", b"\n".join(lines(3, 140))), lines(1, 140), new=lines(3, 140)),
    "pop": Scenario(pushes(1, 3), ("pop", "q", b""), lines(1, 3), old=lines(1, 1), delivers=True),
    "pop from a flat file": Scenario(FLAT, ("pop", "q", b""), lines(1, 10), old=lines(1, 1), delivers=True),
    "pop, expired": Scenario([*pushes(1, 1), ("reserve", "-t", "0", "q", b"")], ("pop", "q", b""), lines(1, 1), old=lines(1, 1), delivers=True),
    "pop -l": Scenario([*FLAT, *pushes(11, 14)], ("pop", "-l", "-n", "12", "q", b""), lines(1, 14), old=lines(1, 12), delivers=True),
    "drain": Scenario([*FLAT, *pushes(11, 14)], ("drain", "q", b""), lines(1, 14), old=lines(1, 14), delivers=True),
    "reserve": Scenario(pushes(1, 2), ("reserve", "-t", "0", "q", b""), lines(1, 2)),
    "delete": Scenario([*pushes(1, 2), ("reserve", "-t", "0", "q", b"")], ("delete", "RECEIPT", b""), lines(1, 2), old=lines(1, 1)),
    "delete with a key": Scenario([*pushes(1, 1, "-k", "key"), *pushes(2, 2), ("reserve", "-t", "9", "q", b"")], ("delete", "RECEIPT", b""), lines(1, 2), old=lines(1, 1)),
    "delete in a flat file": Scenario(FLAT, ("delete", "q:4", b""), lines(1, 10), old=lines(4, 4)),
    "release": Scenario([*pushes(1, 2), ("reserve", "-t", "9", "q", b"")], ("release", "RECEIPT", b""), lines(1, 2)),
    "release -p -d": Scenario([*pushes(1, 2), ("reserve", "-t", "9", "q", b"")], ("release", "-p", "3", "-d", "9", "RECEIPT", b""), lines(1, 2)),
    "touch": Scenario([*pushes(1, 2), ("reserve", "-t", "9", "q", b"")], ("touch", "-t", "0", "RECEIPT", b""), lines(1, 2)),
    "bury": Scenario([*pushes(1, 2), ("reserve", "-t", "9", "q", b"")], ("bury", "RECEIPT", b""), lines(1, 2)),
    "kick": Scenario([*pushes(1, 2), ("reserve", "-t", "9", "q", b""), ("bury", "RECEIPT", b"")], ("kick", "q", b""), lines(1, 2)),
    "too many tries": Scenario([("create", "-m", "1", "q", b""), *pushes(1, 2), ("reserve", "-t", "0", "q", b"")], ("wal", "q", b""), lines(1, 2)),
    "checkpoint folds": Scenario([*FLAT, *pushes(11, 19), *pushes(20, 29, "-p", "7")], ("wal", b""), [*lines(20, 29), *lines(1, 19)]),
    "checkpoint sweeps": Scenario([*pushes(1, 4), ("pop", "q", b""), ("pop", "q", b"")], ("wal", b""), lines(3, 4)),
    "checkpoint, old range": Scenario([*pushes(1, 2)], ("wal", b""), lines(1, 2), prepare=lambda spool: (spool / ".ids/000000009").mkdir()),
    "close": Scenario(pushes(1, 2), ("close", "q", b""), lines(1, 2)),
    "create": Scenario(pushes(1, 2), ("create", "-b", "5", "-m", "3", "q", b""), lines(1, 2)),
    "doctor": Scenario([*FLAT, *pushes(11, 12)], ("doctor", b""), lines(1, 12)),
}

FAULTS = {
    "kill": lambda point: gate.Fault("kill_tree", point),
    "kill one": lambda point: gate.Fault("kill_one", point),
    "EIO": lambda point: gate.Fault("errno", point, errno=errno.EIO),
    "disk full": lambda point: gate.Fault("errno_from", point, errno=errno.ENOSPC, only=gate.SPACE),
}


def environment(spool, sync="off"):
    return {"PATH": os.environ["PATH"], "HOME": str(spool.parent), "FLATQ_DIR": str(spool), "FLATQ_SYNC": sync, "FLATQ_FOLD": "8", "FLATQ_RANGE": str(RANGE)}


def verb(spool, *words):
    *args, data = words
    return subprocess.run(["sh", str(LIB / args[0]), *args[1:]], input=data, env=environment(spool), capture_output=True, timeout=60)


def build(scenario, spool):
    """The spool before the act, and the act with its receipt filled in."""
    receipt = ""
    for words in scenario.before:
        done = verb(spool, *(receipt if word == "RECEIPT" else word for word in words))
        assert done.returncode == 0, (words, done)
        if words[0] == "reserve":
            receipt = done.stdout.split()[0].decode()
    if scenario.prepare:
        scenario.prepare(spool)
    return [receipt if word == "RECEIPT" else word for word in scenario.act]


def act(words, spool, fault=None, sync="off"):
    *args, data = words
    return gate.run(["sh", str(LIB / args[0]), *args[1:]], spool, env=environment(spool, sync), stdin=data, fault=fault, timeout=60)


def drain(spool):
    """All that comes out, kicked and taken; and what is left where nothing should be."""
    if not (spool / "q/wal").exists():
        return [], []
    while any((spool / "q/buried").iterdir()) or any((spool / "q/delayed").rglob("*.*")):
        kicked = verb(spool, "kick", "-n", "99", "q", b"")
        assert kicked.returncode == 0 and kicked.stdout != b"0\n", kicked
    out = verb(spool, "drain", "-0", "q", b"")
    assert out.returncode in (0, 66, 69), out
    if any((spool / "q/body").iterdir()):
        # what a killed push has left goes with its range of ids, or sooner by the doctor
        checked = verb(spool, "doctor", "q", b"")
        assert checked.returncode == 0 and b"damaged" not in checked.stdout and b"no slip" not in checked.stdout, checked
    left = [str(path.relative_to(spool)) for place in "body wal fold queue unfold out done delayed buried keys tmp".split()
            for path in (spool / "q" / place).rglob("*") if path.is_file()]
    return out.stdout.split(b"\0")[:-1], left


def reboot(spool):
    """Leases and delays are over sooner when the system restarts than in a test's time."""
    for mark in (spool / ".boot").glob("*"):
        mark.unlink()
    for path in (spool / "q/delayed").rglob("*.*"):
        path.rename(spool / "q/wal" / path.name)


def check(scenario, spool, result, after):
    acked = result.status == 0 and not result.killed
    closed = (spool / "q/closed").exists()
    order = list(scenario.order)
    must = [m for m in order if m not in scenario.new and m not in scenario.old]
    if acked or (scenario.new and result.stdout.endswith(b"\n")):
        must += scenario.new
    if not acked and scenario.old:
        if scenario.delivers:
            said = result.stdout.split(b"\n") if scenario.act[0] == "drain" or "-l" in scenario.act else [result.stdout]
            must += [m for m in scenario.old if m not in said]
        elif result.status != 0 and not result.killed:
            pass
    reboot(spool)
    if after and not closed:
        done = verb(spool, "push", "q", b"after")
        if done.returncode != 75:
            assert done.returncode == 0, done
            order.append(b"after")
            must.append(b"after")
    checkpoint = verb(spool, "wal", b"")
    assert checkpoint.returncode == 0, checkpoint
    got, left = drain(spool)
    assert len(set(got)) == len(got), f"twice: {got}"
    assert set(got) <= set(order), f"unknown: {set(got) - set(order)}"
    gone = [m for m in must if m not in got]
    assert not gone, f"lost: {gone}"
    if acked:
        back = [m for m in scenario.old if m in got]
        assert not back, f"came back though settled: {back}"
    places = [order.index(m) for m in got]
    if "-p" not in scenario.act:
        assert places == sorted(places), f"out of order: {got}"
    assert not left, f"left over: {left}"


def trial(name, fault, point, base, words):
    """One point of one fault; what was wrong. After a kill both checks; after the others, one and the other by turns."""
    scenario = SCENARIOS[name]
    wrong = []
    for after in (False, True) if fault == "kill" else (point % 2 == 0,):
        spool = base.parent / f"trial.{os.getpid()}"
        shutil.rmtree(spool, ignore_errors=True)
        if base.exists():
            shutil.copytree(base, spool)
        try:
            result = act(words, spool, FAULTS[fault](point))
            if fault in ("EIO", "disk full") and not result.killed:
                assert result.status in (0, 66, 70, 74, 75, 77), f"exit {result.status}: {result.stderr!r}"
                assert result.stderr.count(b"\n") <= 1, f"more than one line: {result.stderr!r}"
            check(scenario, spool, result, after)
        except AssertionError as error:
            wrong.append(f"{name}, {fault} at {point}{', then a push' if after else ''}: {error}")
        shutil.rmtree(spool, ignore_errors=True)
    return wrong


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call(name, tmp_path):
    there, reason = gate.available()
    if not there:
        pytest.skip(reason)
    base = tmp_path / "base"
    words = build(SCENARIOS[name], base)
    spool = tmp_path / "count"
    if base.exists():
        shutil.copytree(base, spool)
    whole = act(words, spool)
    assert whole.status == 0, whole
    check(SCENARIOS[name], spool, whole, False)
    points = len(whole.calls)
    assert points or name == "push -k again"
    with ProcessPoolExecutor(2) as pool:
        runs = [pool.submit(trial, name, fault, point, base, words) for fault in FAULTS for point in range(1, points + 1)]
        wrong = [text for run in runs for text in run.result()]
    assert not wrong, f"{len(wrong)} of {len(runs)}:\n" + "\n".join(wrong[:20])
