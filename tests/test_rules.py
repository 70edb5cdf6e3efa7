"""The rules R1 to R10 of lib/README.md: one fault, or two verbs at the same time, for each place that once broke them.

A fault is a system call that fails (strace injects it), or a stub in front of PATH: a program that does its work and then fails or dies, or that
lets another verb in before it does its work.
"""

import itertools
import shutil
import subprocess

import pytest

from conftest import LIB, need, share
from engine import flats_of, lies


@pytest.fixture(autouse=True)
def _programs():
    need("strace")


def stub(flatq, name, script):
    """The environment in which the program NAME is this script; `$real` is the real one."""
    place = flatq.home / "stubs"
    place.mkdir(exist_ok=True)
    path = place / name
    path.write_text(f"#!/bin/sh\nreal={shutil.which(name)}\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{place}:{flatq.env['PATH']}"}


def faulty(flatq, call, path, verb, *args, error="EIO", when="1", input=b"", env=None):
    """A verb in whose processes this system call on this path fails: exit status, output."""
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-P", f"{path}", "-P", f"{path}/", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}",
         "--", *flatq.command(verb, *args)], input=input, env=flatq.environment(env), cwd=flatq.home, timeout=100, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    # strace says it where a path is not the shortest way to its file
    done.stderr = b"".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith(b"strace: Requested path"))
    return done


def again(flatq, saved):
    """The spool as it was saved."""
    shutil.rmtree(flatq.spool)
    shutil.copytree(saved, flatq.spool)


def fill(flatq, count, queue="q", *args, first=1):
    """So many single messages: `1` to `COUNT`."""
    script = 'set -e; n=$1; while [ "$n" -le "$2" ]; do printf %s "$n" | "$sh" "$lib/push" "$3" >/dev/null; n=$((n + 1)); done'
    subprocess.run(["dash", "-c", script, "fill", str(first), str(first + count - 1), queue], env=flatq.environment({"sh": flatq.shell, "lib": str(LIB)}), check=True)


def drained(flatq, queue="q"):
    """What a drain gives, as numbers; the queue's order."""
    return [int(line) for line in flatq("drain", "-l", queue).out.split()]


def cut_fold(flatq, queue="q"):
    """What a checkpoint leaves that was killed before its flat file was there: the slips in fold/RUN/."""
    q = flatq.spool / queue
    slips = sorted(path.name for path in (q / "wal").iterdir())
    run = q / "fold" / (".".join(slips[0].split(".")[:2]) + ".0123456789ab")
    run.mkdir()
    for slip in slips:
        (q / "wal" / slip).rename(run / slip)
    return run


def cut_unfold(flatq, queue="q"):
    """What a pop leaves that was killed when its flat file was in unfold/: the slips are still in tmp/."""
    env = stub(flatq, "mv", 'case $* in *"/tmp/"*"/head/"*) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("pop", queue, env=env).status == 74
    assert flats_of(flatq.spool, queue, "unfold")


# R3: whoever takes the lock recovers first


def test_drop_counts_what_a_killed_unfold_has_left(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    cut_unfold(flatq)
    assert b"ready 120" in flatq("stat", "q", check=0).out
    assert flatq("drop", "q").status == 75
    assert drained(flatq) == list(range(120))


def test_kick_counts_what_a_killed_unfold_has_left(flatq):
    flatq("create", "-b", "121", "q", check=0)
    receipt = flatq("push", "q", input=b"0") and flatq("reserve", "q", check=0).out.split()[0].decode()
    flatq("bury", receipt, check=0)
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(1, 122)), check=0)
    cut_unfold(flatq)
    assert flatq("kick", "q").status == 75
    assert drained(flatq) == list(range(1, 122))


def test_doctor_recovers_when_it_takes_the_lock_again(flatq):
    """Between its checkpoint and its look another checkpoint begins a fold, and is killed."""
    fill(flatq, 5)
    fold = f'''
        n=$(cat "$HOME/turn" 2>/dev/null || echo 0); echo $((n + 1)) >"$HOME/turn"
        if [ "$n" = 1 ]; then
          run={flatq.spool}/q/fold/0000065536.000000000001.0123456789ab
          mkdir "$run" && mv {flatq.spool}/q/wal/* "$run/"
        fi
        exec "$real" "$@"'''
    assert flatq("doctor", "q", env=stub(flatq, "flock", fold), check=0).out == b""
    assert drained(flatq) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("verb", ["wal", "drain", "push -k", "claim -c me", "doctor", "drop"])
def test_a_killed_fold_is_finished_by_whoever_takes_the_lock(flatq, verb):
    fill(flatq, 6)
    cut_fold(flatq)
    word, *args = verb.split()
    done = flatq(word, *args, *(["key"] if word == "push" else []), "q", input=b"7")
    assert done.status == (75 if word == "drop" else 0)
    assert not any((flatq.spool / "q/fold").glob("*/*"))
    if word != "drain":
        flatq("unclaim", "-c", "me", "q")
        assert drained(flatq)[:6] == [1, 2, 3, 4, 5, 6]


# R1: that something is not there is proved


def test_a_run_that_cannot_be_listed_is_not_empty(flatq):
    """The recovery of a killed fold: every listing of its run, of fold/ and of queue/ fails once."""
    fill(flatq, 6)
    saved = flatq.spool.parent / "saved"
    run = cut_fold(flatq).relative_to(flatq.spool)
    shutil.copytree(flatq.spool, saved)
    places = (run, "q/fold", "q/queue", "q/tmp", "q/unfold")
    for place, call, when in share("run", itertools.product(places, ("openat", "getdents64"), "12"), 4, first=2):
        again(flatq, saved)
        done = faulty(flatq, call, flatq.spool / place, "wal", "q", when=when)
        assert done.returncode in (0, 74) and done.stderr.count(b"\n") == (done.returncode != 0), (place, call, when, done)
        assert drained(flatq) == [1, 2, 3, 4, 5, 6], (place, call, when)


def test_a_committed_fold_whose_flat_file_is_not_seen_is_not_written_again(flatq):
    fill(flatq, 30)
    env = stub(flatq, "rm", 'case $PWD in */body) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("wal", "q", env={**env, "FLATQ_FOLD": "20"}).status == 74
    saved = flatq.spool.parent / "saved"
    shutil.copytree(flatq.spool, saved)
    block, = (flatq.spool / "q/queue").iterdir()
    places = (flatq.spool / "q/queue", block, *block.iterdir())
    for place, call in share("committed", itertools.product(places, ("openat", "getdents64", "read")), 2, first=2):
        again(flatq, saved)
        assert faulty(flatq, call, place, "wal", "q", env={"FLATQ_FOLD": "20"}).returncode in (0, 74)
        assert drained(flatq) == list(range(1, 31)), (place, call)


def test_an_unfold_whose_slips_are_not_seen_keeps_its_flat_file(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    cut_unfold(flatq)
    saved = flatq.spool.parent / "saved"
    shutil.copytree(flatq.spool, saved)
    stage, = (flatq.spool / "q/tmp").glob("0*")
    places = (flatq.spool / "q/unfold", stage, flatq.spool / "q/head", flatq.spool / "q/tmp")
    for place, call, when in share("staged", itertools.product(places, ("openat", "getdents64", "newfstatat,stat"), "12"), 4, first=2):
        again(flatq, saved)
        assert faulty(flatq, call, place, "wal", "q", when=when).returncode in (0, 74)
        assert drained(flatq) == list(range(120)), (place, call, when)


# R2: what happened is read from the disk


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_a_fold_whose_rename_is_killed_behind_it_is_committed(flatq, end):
    fill(flatq, 28)
    env = stub(flatq, "mv", f'case $* in *"/tmp/"*"/queue/"*) "$real" "$@"; {end} ;; esac\nexec "$real" "$@"')
    flatq("wal", "q", env={**env, "FLATQ_FOLD": "20"}, check=0)
    assert drained(flatq) == list(range(1, 29))
    flatq("wal", check=0)
    assert lies(flatq.spool, "q").keys() <= {"done"}
