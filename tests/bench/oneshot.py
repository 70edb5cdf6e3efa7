"""Rows of commands that are started for one message: push, pop, work."""

import os

import harness
from harness import FLOOR
from rivals import contenders


ALONE = f"its programs alone {FLOOR}"
# How many times the time of these flatq may take at most, where all is synced
AIMS = {"push": 1.25, "pop": 1.2}


def floor(run, script, stdin):
    """One shell, the programs that flatq starts and the files that it creates: no shell script can
    be faster."""
    return harness.floor(ALONE, script, stdin=stdin, cwd=str(run.work))


def bounds(rivals, verb):
    return {rival.name: rival.bounds[verb] for rival in rivals if verb in rival.bounds}


def push(run):
    for place in ("body", "slip"):
        (run.work / "floor" / place).mkdir(parents=True)
    script = "cd floor; base64 >body/$$; >slip/$$"
    for durable in (True, False):
        rivals = contenders(run, "push", durable)
        commands = [rival.push(run.message) for rival in rivals]
        sync = "; sync body/$$ body slip" if durable else ""
        commands.append(floor(run, script + sync, run.message))
        run.row("push, synced" if durable else "push, unsynced", commands,
            {**bounds(rivals, "push"), **({ALONE: AIMS["push"]} if durable else {})})


def pop(run):
    (run.work / "floor.pop").write_bytes(b"eHh4Cg==\n")
    for durable in (True, False):
        rivals = contenders(run, "pop", durable)
        for rival in rivals:
            rival.fill(run.rounds + 10)
        commands = [rival.pop() for rival in rivals]
        commands.append(floor(run, "mv floor.pop floor.out; base64 -d floor.out; >floor.pop",
            os.devnull))
        run.row("pop, synced" if durable else "pop, unsynced", commands,
            {**bounds(rivals, "pop"), **({ALONE: AIMS["pop"]} if durable else {})})


def work(run):
    """A worker that takes message after message, and starts `true` for each."""
    many, rounds = (5, 1) if run.quick else (1_000, 10)
    run.fill("work", many * (rounds + 5))
    # In a directory of its own: other rows leave files in run.work, and one is called `out`
    place = run.work / "work.programs"
    place.mkdir()
    (place / "body").write_bytes(b"eHh4Cg==\n")
    script = """mkdir out; >slip; seq "$0" | xargs -n1 true
    i=0
    while [ $i -lt "$0" ]; do
        mv slip out/slip; base64 -d body; mv out/slip slip; i=$((i + 1))
    done
    rm -r out"""
    run.row(f"work -- true, {many:,} jobs", [
        *(run.flatq("work", ["work", "-q", "jobs", "-n", str(many), "--", "true"], name=name)
            for name in run.trees),
        harness.floor(f"xargs -n1 true, and its programs alone {FLOOR}", script, many,
        cwd=str(place)),
    ], {f"xargs -n1 true, and its programs alone {FLOOR}": 1.5}, rounds)
