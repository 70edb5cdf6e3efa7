"""Rows of large spools: the first verb after a boot, stat, and depth."""

import os
import shutil
import subprocess

from harness import FLOOR, floor, interleave


def boot(run):
    """The first verb after a boot repairs every queue. A queue with many keys, then many queues.
    stat looks at each queue, too."""
    keys, queues = (200, 20) if run.quick else (100_000, 1_000)
    for name in run.trees:
        keyed(run, name, keys)
        many(run, name, queues)
    for spool, text in (("keys", f"a boot, {keys:,} keys"),
            ("queues", f"a boot, {queues:,} queues")):
        seconds = {name: [] for name in run.trees}
        for _ in range(3):
            for name in run.trees:
                shutil.rmtree(run.place(name, spool) / ".boot")
                seconds[name].append(run.flatq(spool, ["push", "jobs"], run.message,
                    name=name).run())
            seconds.setdefault(f"its programs alone {FLOOR}", []).append(alone(run.work / spool))
        run.compare(text, {**seconds, "5 seconds": [5.0] * 3}, {"5 seconds": 1.0})
    seconds = {name: [run.flatq("queues", ["stat"], name=name).run() for _ in range(3)]
        for name in run.trees}
    shell = floor("", 'for queue in "$0"/*/; do :; done', run.work / "queues")
    seconds[f"its programs alone, one shell {FLOOR}"] = [shell.run() for _ in range(3)]
    run.compare(f"stat, {queues:,} queues", {**seconds, "1 second": [1.0] * 3}, {"1 second": 1.0})


def alone(spool):
    """Seconds for what a boot starts for each queue, and nothing else."""
    script = """for queue in "$0"/*/; do
        flock 9 9<"$queue/lock"; find "$queue" ! -type d
        awk 1 /dev/null; ls "$queue"; ls "$queue/body"
    done"""
    return floor("its programs alone", script, spool).run()


def keyed(run, name, count):
    """A queue with so many messages that have keys, in one block. The first is pushed, the others
    are written like it."""
    run.flatq("keys", ["push", "-k", "first", "jobs"], run.message, name=name).run()
    queue = run.place(name, "keys") / "jobs"
    [slip] = (queue / "wal").iterdir()
    priority, _, _, _, _, _, born, *_ = slip.name.split(".")
    rows = []
    for number in range(1002, 1002 + count):
        (queue / "keys" / f"k{number:032x}").write_text(f"{number}\nyes\n")
        rows.append(f"{priority}.{number:012}.0.0.60.0.{born}.1.k{number:032x}.0-0-0-0\tMQ==\n")
    block = queue / "queue" / f"{priority}.0000000"
    block.mkdir(parents=True)
    (block / f"{priority}.000000001002.{1001 + count:012}.{count}.0.abc").write_text("".join(rows))


def many(run, name, count):
    """So many queues, each with a message."""
    script = f'i=0; while [ $i -lt {count} ]; do "$0" "q$i" </dev/null || exit; i=$((i + 1)); done'
    push = run.flatq("queues", ["push", "jobs"], name=name)
    subprocess.run(["sh", "-c", script, push.argv[0]], env=push.env, stdout=subprocess.DEVNULL,
        check=True)


def deep(run):
    """A push and a pop in turn, a reserve that is settled, and a claim that is given back, at three
    depths. From the second on, the names that a pop lists are as many as they can be."""
    depths = (10, 1_000, 2_000) if run.quick else (10, 100_000, 10_000_000)
    places = {f"depth {depth:,}": ("flatq", depth) for depth in depths}
    *others, deepest = places
    places.update((name, (name, depths[-1])) for name in run.trees if name != "flatq")
    groups = []
    for place, (name, depth) in places.items():
        spool = f"deep.{depth}"
        run.fill(spool, depth, 20, names=[name])
        for verb in ("push", "pop"):  # the first pop unfolds: all depths are timed from behind it
            run.flatq(spool, [verb, "jobs"], run.message, name=name).run()
        groups.append([verb_at(run, f"{verb} {place}", script,
            run.flatq(spool, ["push"], name=name)) for verb, (script, _) in VERBS.items()])
    (run.work / "deep.programs").mkdir()
    alone = floor("", ": >slip; echo eHh4Cg== >body", "sh", cwd=run.work / "deep.programs")
    alone.run()
    groups.append([verb_at(run, f"{verb} {ALONE}", script, alone) for verb,
        (_, script) in VERBS.items()])
    os.sync()  # else the first rounds would write what the filling has left in memory
    seconds = interleave([list(same) for same in zip(*groups)], 3 if run.quick else 100)
    for verb in VERBS:
        rows = {"flatq" if name == deepest else name: seconds[f"{verb} {name}"]
            for name in (deepest, *others, *list(places)[len(depths):], ALONE)}
        run.compare(f"{verb}, {deepest}", rows, dict.fromkeys(others, 1.05))


ALONE = f"its programs alone {FLOOR}"

# what is measured, and what it is made of: a reserve and a claim give back what they took. Then the
# programs that it starts
VERBS = {
    "push": ('"$0/push" jobs', "base64 >floor"),
    "pop": ('"$0/pop" jobs', "mv slip out; base64 -d body; >slip"),
    "reserve": ('held=$("$0/reserve" jobs) && "$0/release" "${held%% *}"',
    """sh -ec 'mv slip out; base64 -d body'; exec sh -c 'mv out slip'"""),
    "claim": ('"$0/claim" -c bench -n 1 jobs && "$0/unclaim" -c bench jobs', """
        sh -ec 'flock 9 9<slip; for i in 1 2 3; do ls; ls; ls; done; ls; mkdir a; mkdir b; mkdir c
               mv slip out; mv out slip; mv slip out; mv out slip
               awk 1 body; wc -c body; rm -r a; rm -r b'
        exec sh -ec 'flock 9 9<slip; for i in 1 2 3; do ls; ls; done; mv slip out; mv out slip
               mv body text; rmdir c; rm text; echo eHh4Cg== >body'"""),
}


def verb_at(run, name, script, like):
    """The script, in the place and the environment of the command `like`; its $0 is the directory
    of the verbs."""
    return floor(name, script, os.path.dirname(like.argv[0]), stdin=run.message, cwd=like.cwd,
        env=like.env)
