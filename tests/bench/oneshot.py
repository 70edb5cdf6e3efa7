"""Rows of commands that are started for one message: push, pop, depths, job, wait."""

import os
import socket
import subprocess
import time
from pathlib import Path

import harness
from harness import FLOOR, Command, interleave
from rivals import Flatq, Redis, contenders
from run import ROOT


ALONE = f"its programs alone {FLOOR}"
# How many times the time of these flatq may take at most, where all is synced
AIMS = {"push": 1.25, "pop": 1.2}


def floor(run, script, stdin):
    """One shell and the programs that flatq starts, with base64, and nothing else: no shell script
    can be faster."""
    return harness.floor(ALONE, script, stdin=stdin, cwd=str(run.work))


def bounds(rivals, verb):
    return {rival.name: rival.bounds[verb] for rival in rivals if verb in rival.bounds}


def push(run):
    for durable in (True, False):
        rivals = contenders(run, "push", durable)
        commands = [rival.push(run.message) for rival in rivals]
        commands.append(floor(run, "base64 >floor.$$; sync floor.$$" if durable
            else "base64 >floor.$$", run.message))
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


def depths(run):
    """A push and a pop in turn, which keep the depth as it is."""
    for depth in (10, 1_000) if run.quick else (10, 1_000, 100_000, 1_000_000):
        for durable in (True, False):
            place = f"depth.{depth}"
            rivals = contenders(run, place, durable, depth)
            run.progress.row = f"depth {depth:,}"
            groups = []
            for rival in rivals:
                run.progress(f"filling {rival.name}")
                rival.fill(depth)
            os.sync()  # else the first rounds would write what the filling has left in memory
            for verb in ("push", "pop"):
                groups.append([rival.push(run.message) if verb == "push" else rival.pop()
                    for rival in rivals])
                for command in groups[-1]:
                    command.name = f"{verb} {command.name}"
            rounds = min(run.rounds, 40 if depth < 100_000 else 15)
            seconds = interleave(groups, rounds, run.progress)
            run.progress.end()
            for verb, group in zip(("push", "pop"), groups):
                name = f"{verb}, {'synced' if durable else 'unsynced'}, depth {depth:,}"
                cut = len(verb) + 1
                run.compare(name, {command.name[cut:]: seconds[command.name] for command in group},
                    bounds(rivals, verb))


def job(run):
    """A command is handed over, run and ended. nq starts it at once, in the background, and syncs
    nothing."""
    if not run.there("nq"):
        return
    env = {"FLATQ_DIR": str(run.work / "job"), "FLATQ_SYNC": "off",
        "lib": str(Path(run.flatq("", "", ["push"]).argv[0]).parent)}
    ours = 'printf true | "$lib/push" jobs && "$lib/work" -q jobs --max 1 -- true'
    nq = {"NQDIR": str(run.work / "nq")}
    run.row("a job, until it has ended", [
        Command("flatq push, flatq work", ["sh", "-c", ours], cwd=str(run.work), env=env),
        Command("nq, nq -w", ["sh", "-c", "nq -q -c true && nq -w"], cwd=str(run.work), env=nq),
    ], {}, run.rounds // 4 or 1)


def work(run):
    """A worker that takes message after message, and starts `true` for each."""
    many, rounds = (5, 1) if run.quick else (1_000, 10)
    for spool in ("work", "work.parent"):
        run.fill(spool, many * (rounds + 5))
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
        *(run.flatq(name, "work" if root == ROOT else "work.parent",
        ["work", "-q", "jobs", "-n", str(many), "--", "true"], root=root)
          for name, root in run.trees.items()),
        harness.floor(f"xargs -n1 true, and its programs alone {FLOOR}", script, many,
        cwd=str(place)),
    ], {f"xargs -n1 true, and its programs alone {FLOOR}": 1.5}, rounds)


def wait(run):
    """From the start of a push to the first byte that a waiting pop writes."""
    ours = Flatq(run, "wait", False)
    made = run.flatq("create", ours.spool, ["create", "jobs"])
    subprocess.run(made.argv, env=made.env, cwd=made.cwd, check=True)
    waiting = {"flatq": (ours.push(run.message), run.flatq("pop", ours.spool,
        ["pop", "-w", "60", "jobs"]), sleeps)}
    if run.there("redis-cli", "redis-check-rdb"):
        redis = Redis(run, "wait", False)
        waiting["redis-cli blpop"] = redis.push(run.message), redis.command("pop",
            ["blpop", "jobs", "60"]), blocked(redis.port)
    seconds = {name: [] for name in waiting}
    run.progress.row = "wait"
    rounds = run.rounds // 2 or 1
    for turn in range(rounds):
        for name, (push, pop, ready) in waiting.items():
            popping = subprocess.Popen(pop.argv, env=pop.env, cwd=pop.cwd, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE)
            try:
                seconds[name].append(handed(push, popping, ready))
            finally:
                popping.kill()
                popping.communicate()
        run.progress(f"{turn + 1} of {rounds}")
    run.progress.end()
    run.compare("a push, to a waiting pop", seconds)


def handed(push, popping, ready):
    """Seconds from the start of the push to the first byte that the pop writes, which waits
    before."""
    end = time.monotonic() + 30
    while not ready(popping.pid):
        if popping.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{popping.args} does not wait")
        time.sleep(0.001)
    with open(push.stdin, "rb") as stdin:
        began = time.perf_counter()
        pushing = subprocess.Popen(push.argv, env=push.env, cwd=push.cwd, stdin=stdin,
            stdout=subprocess.DEVNULL)
    byte = os.read(popping.stdout.fileno(), 1)
    took = time.perf_counter() - began
    popping.stdout.read()
    if pushing.wait() or popping.wait() or not byte:
        raise RuntimeError(f"push ended with {pushing.returncode}, pop with {popping.returncode}")
    return took


def sleeps(pid):
    """Whether flatq's pop has its sleeper, and so waits."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(Path(f"/proc/{child}/comm").read_text() == "sleep\n" for child in children)
    except OSError:
        return False


def blocked(port):
    """Whether a client of that Redis waits."""
    def ready(_):
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            client.sendall(b"INFO clients\r\nQUIT\r\n")
            said = b""
            while more := client.recv(65536):
                said += more
        return b"blocked_clients:1" in said

    return ready
