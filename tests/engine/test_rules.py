"""The rules R1 to R11 of lib/README.md. For each place that once broke a rule, a test causes a fault or runs two verbs at the same time.

A fault is a system call that fails (strace injects it), or a stub in PATH. A stub does the work of its program and then fails or dies; or it first
runs another verb, and then does its work."""

import base64
import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess

import pytest

from conftest import LIB, chance, everything, need, put_stub, share, wait_for
from engine import calls_in, children, empty, faulty, flats_of, lies, pop, push, refused, reserve, standing, stopped_by

from flatq.crashlab.gate import gate


@pytest.fixture(autouse=True)
def _programs():
    need("strace")


def stub(flatq, name, script):
    """The environment in which the program NAME is this script; `$real` is the real program."""
    place = flatq.home / "stubs"
    place.mkdir(exist_ok=True)
    path = place / name
    put_stub(flatq, path, f"real={shutil.which(name)}", script)
    return {"PATH": f"{place}:{flatq.env['PATH']}"}


def again(flatq, saved):
    """Put back the spool as it was saved."""
    shutil.rmtree(flatq.spool)
    shutil.copytree(saved, flatq.spool)


def fill(flatq, count, queue="q", *args, first=1):
    """Push so many single messages: `1` to `COUNT`."""
    script = 'set -e; n=$1; while [ "$n" -le "$2" ]; do printf %s "$n" | "$sh" "$lib/push" "$3" >/dev/null; n=$((n + 1)); done'
    subprocess.run(["dash", "-c", script, "fill", str(first), str(first + count - 1), queue], env=flatq.environment({"sh": flatq.shell, "lib": str(LIB)}), check=True)


def drained(flatq, queue="q"):
    """What a drain prints, as numbers, in the queue's order."""
    return [int(line) for line in flatq("drain", "-l", queue).out.split()]


def cut_fold(flatq, queue="q"):
    """Leave what a checkpoint leaves that was killed before its flat file was there: the slips in fold/RUN/."""
    q = flatq.spool / queue
    slips = sorted(path.name for path in (q / "wal").iterdir())
    run = q / "fold" / (".".join(slips[0].split(".")[:2]) + ".0123456789ab")
    run.mkdir()
    for slip in slips:
        (q / "wal" / slip).rename(run / slip)
    return run


def cut_unfold(flatq, queue="q"):
    """Leave what a pop leaves that was killed when its flat file was in unfold/: the slips are still in tmp/."""
    env = stub(flatq, "mv", 'case $* in *"/tmp/"*"/head/"*) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("pop", queue, env=env).status == 74
    assert flats_of(flatq.spool, queue, "unfold")


# R3: a verb that takes the lock recovers first


def test_a_lock_that_is_waited_for_is_not_held(flatq):
    """A signal ends the flock of a drain that waits to settle its batch. Its trap puts the batch back: under a lock, for which it must wait again."""
    flatq("push", "-l", "q", input=b"1\n2\n", check=0)
    ended = f'''
        [ ! -e "$HOME/ended" ] || {{ echo again >>"$HOME/ended"; exec "$real" "$@"; }}
        set -- {flatq.spool}/q/out/batch.* "$@"; [ -d "$1" ] || {{ shift; exec "$real" "$@"; }}
        : >"$HOME/ended"; kill -INT $PPID; exit 130'''
    stopped_by(flatq.start("drain", "q", env=stub(flatq, "flock", ended)), signal.SIGINT)
    assert (flatq.home / "ended").read_text().startswith("again\n")
    assert drained(flatq) == [1, 2]


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
    """Between the doctor's checkpoint and its own look, another checkpoint begins a fold and is killed."""
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


@pytest.mark.parametrize("verb", ["wal", "drain", "push -k key", "claim -c me", "doctor", "drop", "delete q:1"])
def test_a_killed_fold_is_finished_by_whoever_takes_the_lock(flatq, verb):
    fill(flatq, 6)
    cut_fold(flatq)
    word, *args = verb.split()
    done = flatq(word, *args, *(["q"] if word != "delete" else []), input=b"7")
    assert done.status == (75 if word == "drop" else 0)
    assert not any((flatq.spool / "q/fold").glob("*/*"))
    if word != "drain":
        flatq("unclaim", "-c", "me", "q")
        assert [n for n in drained(flatq) if n != 7] == [1, 2, 3, 4, 5, 6][word == "delete":]


# R1: only a proof shows that something is not there


def test_a_run_that_cannot_be_listed_is_not_empty(flatq):
    """A verb recovers a killed fold. Every listing of its run, of fold/ and of queue/ fails once."""
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


def claimed(flatq, name="me", queue="q"):
    """What the name has claimed: a list of (offset, number)."""
    found = []
    for line in flatq("claim", "-c", name, "-n", "0", queue, check=0).out.decode().splitlines():
        offset, count, path = line.split(" ", 2)
        numbers = [int(base64.b64decode(row.split(b"\t")[1])) for flat in sorted(os.listdir(path)) for row in open(os.path.join(path, flat), "rb")]
        assert len(numbers) == int(count)
        found += enumerate(numbers, int(offset))
    return found


CALLS = ("openat", "getdents64", "newfstatat,stat,faccessat2,access")


def struck(flatq, name, places, calls=CALLS, whens="123", count=5, first=2):
    """Yield a fresh copy of the spool for each fault: (place, call, when)."""
    saved = flatq.spool.parent / "saved"
    shutil.copytree(flatq.spool, saved)
    for place, call, when in share(name, itertools.product(places, calls, whens), count, first=first):
        again(flatq, saved)
        yield flatq.spool / place, call, when


def test_unclaim_gives_back_what_it_cannot_list(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(200)), check=0)
    flatq("claim", "-c", "me", "q", check=0)
    segment, = (flatq.spool / "q/claimed/me").glob("*.200*")
    for place, call, when in struck(flatq, "unclaim", ("q/claimed/me", segment.relative_to(flatq.spool), "q/claimed", "q/out", "q/queue")):
        assert faulty(flatq, call, place, "unclaim", "-c", "me", "q", when=when).returncode in (0, 74)
        flatq("wal", "q", check=0)
        flatq("unclaim", "-c", "me", "q", check=0)
        assert drained(flatq) == list(range(200)), (place, call, when)


@pytest.mark.parametrize("verb", ["claim", "wal", "settle", "push -k"])
def test_offsets_are_not_given_twice(flatq, verb):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(300)), check=0)
    flatq("claim", "-c", "me", "-n", "150", "q", check=0)
    flatq("settle", "-c", "me", "150", "q", check=0)
    flatq("claim", "-c", "me", "-n", "100", "q", check=0)
    held = claimed(flatq)
    assert held == [(n, n) for n in range(150, 250)]
    words = {"claim": ["-c", "me", "-n", "150", "q"], "settle": ["-c", "me", "150", "q"], "wal": ["q"], "push -k": ["-k", "x", "q"]}[verb]
    for place, call, when in struck(flatq, f"offsets {verb}", ("q/claimed/me", "q/claimed"), count=2, first=3):
        done = faulty(flatq, call, place, verb.split()[0], *words, when=when)
        assert done.returncode in (0, 74), (place, call, when, done)
        assert claimed(flatq)[:100] == held, (place, call, when)
        assert len(list((flatq.spool / "q/claimed/me").glob("settled.*"))) == 1


@pytest.mark.parametrize("verb", ["pop", "reserve", "drain", "pop -l", "claim -c me"])
@pytest.mark.parametrize("where", ["wal", "head", "queue"])
def test_what_cannot_be_listed_is_not_empty(flatq, verb, where):
    if where == "wal":
        fill(flatq, 3)
    else:
        flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
        if where == "head":
            flatq("pop", "q", check=0)
    flatq("close", "q", check=0)
    word, *args = verb.split()
    below = [path.relative_to(flatq.spool) for path in (flatq.spool / "q" / where).iterdir() if path.is_dir()]
    for place, call, when in struck(flatq, f"empty {verb} {where}", (f"q/{where}", *below), CALLS[:2], "12", count=1, first=2):
        done = faulty(flatq, call, place, word, *args, "q", when=when)
        assert done.returncode in (0, 74), (place, call, when, done)


def test_what_a_dead_owner_held_is_not_overlooked(flatq):
    fill(flatq, 1)
    slip, = (path for path in (flatq.spool / "q/wal").iterdir())
    parts = slip.name.split(".")
    parts[2:4] = ["1", "0123456789ab"]
    slip.rename(flatq.spool / "q/out" / (".".join(parts) + ".999999999-000000000001.000000000000"))
    flatq("close", "q", check=0)
    for place, call, when in struck(flatq, "dead", ("q/out",), CALLS[:2], "12", first=4):
        assert faulty(flatq, call, place, "pop", "q", when=when).returncode in (0, 74), (call, when)


@pytest.mark.parametrize("verb", ["delete", "release", "bury", "touch"])
def test_a_receipt_whose_message_is_not_seen(flatq, verb):
    fill(flatq, 2)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    for place, call, when in struck(flatq, f"receipt {verb}", ("q/out",), CALLS[:2], "12", count=1, first=1):
        assert faulty(flatq, call, place, verb, receipt, when=when).returncode in (0, 74), (call, when)


def test_dup_is_said_of_a_message_that_is_there(flatq):
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    assert flatq("pop", "q", check=0).out == b"1"
    for place, call, when in struck(flatq, "dup", ("q/done", "q/keys"), CALLS, "12", count=4, first=2):
        done = faulty(flatq, call, place, "push", "-k", "key", "q", input=b"2", when=when)
        assert done.returncode in (0, 74) and b"dup" not in done.stdout, (place, call, when, done)
        assert done.returncode or flatq("pop", "q", check=0).out == b"2"


def test_dup_is_said_of_what_a_killed_drain_has_not_settled(flatq):
    """The drain has settled its batch, which is not swept yet. The keys of its messages must be free."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    env = stub(flatq, "rm", "exit 1")
    flatq("drain", "q", env=env)
    assert any(name.startswith("batch.") for name in lies(flatq.spool, "q")["done"])
    for place, call, when in struck(flatq, "dup batch", ("q/done", "q/out", "q/keys"), CALLS, "12", count=4, first=2):
        done = faulty(flatq, call, place, "push", "-k", "key", "q", input=b"2", when=when)
        assert done.returncode in (0, 74) and b"dup" not in done.stdout, (place, call, when, done)


def test_no_twin_of_a_key_that_cannot_be_read(flatq):
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    key, = (flatq.spool / "q/keys").iterdir()
    slip, = (flatq.spool / "q/wal").iterdir()
    for place, call, when in struck(flatq, "twin", (key.relative_to(flatq.spool), "q/wal", slip.relative_to(flatq.spool)), (*CALLS, "read"), "12", first=3):
        assert faulty(flatq, call, place, "push", "-k", "key", "q", input=b"2", when=when).returncode in (0, 74)
        flatq("doctor", "q", check=0)
        assert drained(flatq) == [1], (place, call, when)


def test_the_keys_of_a_settled_batch_go_with_it(flatq):
    for n in range(30):
        flatq("push", "-k", f"k{n}", "q", input=b"%d" % n, check=0)
    flatq("wal", "q", env={"FLATQ_FOLD": "20"}, check=0)
    for place, call, when in struck(flatq, "keys", ("q/keys", "q/out"), CALLS[:2], "12", count=2, first=2):
        faulty(flatq, call, place, "drain", "q", when=when)
        flatq("wal", "q", check=0)
        flatq("drain", "q")
        assert b"dup" not in flatq("push", "-k", "k7", "q", input=b"7", check=0).out, (place, call, when)


def test_a_settled_batch_whose_stat_fails_does_not_come_again(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(200)), check=0)
    env = stub(flatq, "rm", 'case $* in *batch*) exit 1 ;; esac\nexec "$real" "$@"')
    assert len(flatq("drain", "q", env=env).out.split()) == 200
    batch, = (flatq.spool / "q/out").glob("batch.*")
    for place, call, when in struck(flatq, "batch", (batch.relative_to(flatq.spool), "q/out", "q/done"), CALLS, "123", first=3):
        assert faulty(flatq, call, place, "wal", "q", when=when).returncode in (0, 74)
        flatq("wal", "q", check=0)
        assert drained(flatq) == [], (place, call, when)


def test_a_range_of_ids_is_not_opened_twice(flatq):
    first = int(flatq("push", "q", input=b"1", env={"FLATQ_RANGE": "3"}, check=0).out)
    last = max(int(flatq("push", "q", input=b"1", env={"FLATQ_RANGE": "3"}, check=0).out) for _ in range(8))
    flatq("wal", check=0)
    assert last > first and not (flatq.spool / ".ids/000000000").exists()
    for place, call, when in struck(flatq, "ids", (".ids",), CALLS[:2], "1234", first=8):
        shutil.rmtree(flatq.spool / ".boot")
        for _ in range(2):
            done = faulty(flatq, call, place, "push", "q", input=b"2", when=when)
            assert done.returncode == 74 or int(done.stdout) > last, (call, when, done)


@pytest.mark.parametrize("verb", ["peek -s buried", "kick"])
def test_a_directory_of_buried_messages_that_cannot_be_listed(shell, flatq, verb):
    """The verb fails. It must not take a later directory instead."""
    fill(flatq, 2)
    for _ in range(2):
        flatq("bury", flatq("reserve", "q", check=0).out.split()[0].decode(), check=0)
    first, last = sorted((flatq.spool / "q/buried").glob("*/*/*"), key=lambda path: path.name)
    late = flatq.spool / "q/buried/9999999/999999900"
    late.mkdir(parents=True)
    last.rename(late / f"999999900000{last.name[12:]}")
    for place, call in itertools.product((first.parent, first.parents[1]), CALLS[:2]):
        done = faulty(flatq, call, place, *verb.split(), "q", when="1+")
        assert (done.returncode, done.stdout) == (74, b"") and done.stderr.count(b"\n") == 1, done
    assert flatq("peek", "-s", "buried", "q", check=0).out == b"1"


LOOK = "newfstatat,stat,faccessat2,access"


@pytest.mark.parametrize("verb, writer", [("pop", "base64"), ("drain", "base64")])
@pytest.mark.parametrize("call, path", [(LOOK, "/proc/1/stat"), ("openat", "/proc/self/stat")])
def test_an_owner_whose_death_can_be_seen_has_no_lease(shell, flatq, verb, writer, call, path):
    """With a lease, another consumer would get the message while its owner still writes it."""
    fill(flatq, 1)
    (flatq.spool / "q/tended").write_text("999999999999\n")
    env = stub(flatq, writer, f'ls {flatq.spool}/q/out >"$HOME/out"; exec "$real" "$@"')
    done = faulty(flatq, call, path, verb, "q", error="ENOMEM", env=env)
    assert done.returncode == 74 and done.stdout == b"" or (flatq.home / "out").read_text().endswith(".000000000000\n"), done


def test_a_process_that_cannot_be_looked_at_is_not_dead(shell, flatq):
    script = 'set -u; . "$lib/engine/common.sh"; shell_reset; need engine/process; owner_dead "$1-999999999999"'
    proc = f"/proc/{os.getpid()}"
    done = subprocess.run(["strace", "-qq", "-o", "/dev/null", "-P", proc, "-P", f"{proc}/stat", "-e", f"trace=openat,{LOOK}", "-e", f"inject=openat,{LOOK}:error=ENOMEM",
                           flatq.shell, "-c", script, "sh", str(os.getpid())], env=flatq.environment({"lib": str(LIB)}))
    assert done.returncode != 0


def test_a_lock_whose_queue_is_another_one_now(shell, flatq):
    """A verb waits for the lock of a queue that is dropped and created again. If one look fails, the verb must still notice that."""
    fill(flatq, 1)
    with open(flatq.spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        processes = [subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-P", "/proc/self/fd", "-e", f"trace={LOOK}", "-e", f"inject={LOOK}:error=ENOMEM{when}",
                                       *flatq.command("push", "-k", "key", "q")], env=flatq.environment({}), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) for when in (":when=1", ":when=9999")]
        flatq.started += processes
        wait_for(lambda: sum(f":{os.stat(lock.name).st_ino} " in line and "->" in line for line in open("/proc/locks")) == 2, "both wait for the lock")
        (flatq.spool / "q").rename(flatq.spool / ".drop.999999999")
        flatq("create", "q", check=0)
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 69 and out == b"" and err.endswith(b"push: queue 'q' is gone\n"), err


# R2: a verb reads from the disk what has happened


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_a_fold_whose_rename_is_killed_behind_it_is_committed(flatq, end):
    fill(flatq, 28)
    env = stub(flatq, "mv", f'case $* in *"/tmp/"*"/queue/"*) "$real" "$@"; {end} ;; esac\nexec "$real" "$@"')
    flatq("wal", "q", env={**env, "FLATQ_FOLD": "20"}, check=0)
    assert drained(flatq) == list(range(1, 29))
    flatq("wal", check=0)
    assert lies(flatq.spool, "q").keys() <= {"done"}


# R4: moves without the lock cannot be counted


@pytest.mark.parametrize("move", ["release", "due"])
def test_drop_beside_what_moves_without_the_lock(flatq, move):
    """drop has counted no message in wal/, and then a message moves there from out/ or delayed/. drop must see it, and leave the queue."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    if move == "release":
        receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
        step = f'"{flatq.shell}" "{LIB}/release" {receipt}'
        moved = q / "out"
    else:
        slip, = (q / "wal").iterdir()
        moved = q / "delayed/0009999/000999900000"
        moved.mkdir(parents=True)
        slip.rename(moved / slip.name)
        step = f"mv {moved}/* {q}/wal/"
    # drop lists wal/ before the other places: the message moves between the two
    process, _, stopped = standing(flatq, "openat", 1, "drop", "q", at=[f"{q}/delayed/", q / "delayed", q / "out", f"{q}/out/"], follow=True)
    subprocess.run(["sh", "-c", step], env=flatq.environment({}), check=True)
    os.kill(stopped, signal.SIGCONT)
    assert process.wait(60) in (74, 75)
    assert drained(flatq) == [1]


def test_drop_beside_a_create_that_makes_a_place_again(flatq):
    """drop has counted no message, since one was just released, and has removed out/. A create makes out/ again, and a reserve takes the message there,
    from wal/, which drop removes last."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    receipt = reserve(flatq, "q").receipt
    env = stub(flatq, "rmdir", """"$real" "$@" || exit
        case $* in */q/out) : >"$HOME/removed"; until [ -e "$HOME/go" ]; do sleep 0.01; done ;; esac""")
    process, _, stopped = standing(flatq, "openat", 1, "drop", "q", at=[q / "out", f"{q}/out/"], follow=True, env=env)
    flatq("release", receipt, check=0)
    os.kill(stopped, signal.SIGCONT)
    wait_for((flatq.home / "removed").exists, "drop has removed out/")
    create = flatq.start("create", "q", stdin=subprocess.DEVNULL)
    wait_for((q / "out").exists, "out/ is there again")
    again = reserve(flatq, "q")
    (flatq.home / "go").touch()
    assert (process.wait(60), create.wait(60)) == (75, 0)
    assert again.body == b"1"
    flatq("delete", again.receipt, check=0)


def test_no_verb_but_its_maker_creates_the_lock_of_a_queue(flatq):
    """A close has found the queue, which is then dropped; a push that makes it again is killed among its places. A lock that the close had created would
    say that all are there, and every push would fail."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    process, _, stopped = standing(flatq, "stat,newfstatat", 1, "close", "q", at=[q / "lock"])
    flatq("drop", "-f", "q", check=0)
    env = stub(flatq, "mkdir", f'case $* in *{q}/body*) "$real" "{q}" "{q}/body"; kill -9 $PPID ;; *) exec "$real" "$@" ;; esac')
    assert flatq.start("push", "q", env=env).wait(60) == -signal.SIGKILL
    assert (q / "body").exists() and not (q / "wal").exists()
    os.kill(stopped, signal.SIGCONT)
    assert process.wait(60) in (66, 69, 74)
    assert not (q / "lock").exists()
    flatq("push", "q", input=b"2", check=0)
    assert flatq("pop", "q", check=0).out == b"2"


def test_a_push_that_is_stopped_ends_no_other_entry_of_the_journal(flatq):
    """It was about to take an id that another push has just taken."""
    fill(flatq, 1)
    range_, = (flatq.spool / ".ids").glob("[0-9]*")
    process, _, stopped = standing(flatq, "openat", 1, "push", "q", at=[range_ / "1002"], error="EEXIST")
    flatq("push", "q", input=b"other", check=0)
    before = (range_ / "1002").read_text()
    assert before.startswith(f"{before.split()[0]} ")
    os.kill(stopped, signal.SIGTERM)
    os.kill(stopped, signal.SIGCONT)
    process.wait(60)
    assert (range_ / "1002").read_text() == before


def test_what_a_killed_verb_tried_to_write_is_removed(flatq):
    """A verb whose write failed asks the system why, with a file of its own. Until then no other verb takes that for a message."""
    fill(flatq, 1)
    killed = stub(flatq, "dd", '"$real" "$@"; kill -9 $PPID')
    body = flatq.spool / "q/body/000000000002"
    assert faulty(flatq, "write", body, "push", "q", error="ENOSPC", input=b"2", env=killed).returncode == 74
    left, = body.parent.glob("probe.*")
    assert flatq("pop", "q", check=0).out == b"1" and left.exists()
    boots_again(flatq)
    flatq("push", "q", input=b"after a boot", check=0)
    assert not left.exists()


def boots_again(flatq):
    """To the next verb, it is the first after a boot."""
    for path in (flatq.spool / ".boot").iterdir():
        path.unlink()


@pytest.mark.parametrize("name", ["probe.a.b", "probe.a.1-000000000000"])
def test_a_queue_that_is_named_like_what_is_swept(flatq, tmp_path, name):
    """The checkpoint and a boot remove what killed verbs have left, but no queue, and nothing in another place that a link names."""
    flatq("push", name, input=b"in the queue", check=0)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / name).touch()
    (flatq.spool / ".elsewhere").symlink_to(tmp_path / "elsewhere")
    flatq("wal", check=0)
    boots_again(flatq)
    flatq("wal", check=0)
    assert flatq("pop", name, check=0).out == b"in the queue"
    assert (tmp_path / "elsewhere" / name).exists()


def test_what_a_killed_verb_tried_to_write_among_delayed_messages(flatq):
    """It is due with them, and no verb waits for it then."""
    fill(flatq, 1)
    receipt = reserve(flatq, "q").receipt
    env = stub(flatq, "mv", 'case $* in */delayed/*) echo "mv: x: No space left on device" >&2; exit 1 ;; esac; exec "$real" "$@"')
    # Last, since this tries the tools, dd among them
    env |= stub(flatq, "dd", '"$real" "$@"; kill -9 $PPID')
    assert flatq("release", "-d", "1", receipt, env=env).status == 74
    probes = list(flatq.spool.glob("q/delayed/*/*/probe.*"))  # the release tries twice, and reads the clock each time
    assert probes
    flatq("delete", receipt, check=0)
    past = flatq.spool / "q/delayed/0000001"
    past.mkdir()
    for number, probe in enumerate(probes):
        probe.parent.rename(past / f"{100000 + number:012}")
    assert (flatq("pop", "q").status, flatq("drain", "q").status) == (66, 66)
    flatq("drop", "q", check=0)


def test_a_drain_whose_awk_cannot_write_the_end(flatq):
    """gawk writes what is left at its end, and says nothing of a failure if `exit` was said before."""
    gawk = need("gawk")
    flatq("push", "-l", "q", input=b"a\nb\n", check=0)
    strace = f"{need('strace')} -qq -o /dev/null -e trace=write -e inject=write:error=ENOMEM:when=1"
    script = f'case $* in *end=*) exec {strace} {gawk} "$@" ;; esac; exec {gawk} "$@"'
    env = {**stub(flatq, "awk", script), **stub(flatq, "mawk", script)}
    assert flatq("pop", "-l", "-n", "2", "q", env=env).status == 74
    assert flatq("drain", "-l", "q", check=0).out == b"a\nb\n"


def test_ranges_from_which_no_id_was_taken_are_removed(flatq):
    for _ in range(5):
        flatq("push", "-l", "q", input=b"x\n", check=0)
    flatq("wal", check=0)
    assert len([*flatq.spool.glob(".ids/[0-9]*")]) == 1
    last = flatq("push", "-l", "q", input=b"x\n", check=0).out.split()[0]
    assert int(last) >= 5000 and int(flatq("push", "q", input=b"y", check=0).out) > int(last)


@pytest.mark.parametrize("tool", ["rm", "mv", "rmdir"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_push_that_chose_its_range_long_ago(flatq, tmp_path, tool, when):
    """A checkpoint removes the range, since there is a newer one, and is stopped before or after each step. The push then enters itself there."""
    copy, chosen, go_on, held, go = tmp_path / "lib", tmp_path / "chosen", tmp_path / "go on", tmp_path / "held", tmp_path / "go"
    shutil.copytree(LIB, copy)
    ids = copy / "engine/ids.sh"
    ids.write_text(ids.read_text().replace("part='engine/ids'", f"""eval "slow_$(sed -n '/^ids_find_free() {{/,/^}}/p' "$lib/engine/ids.sh")"
        ids_find_free() {{
          slow_ids_find_free
          : >"{chosen}"
          while [ ! -e "{go_on}" ]; do sleep 0.02; done
        }}
        part='engine/ids'"""))
    flatq("push", "-l", "q", input=b"a\n", check=0)
    waits = f': >"{held}"; while [ ! -e "{go}" ]; do sleep 0.02; done'
    steps = (waits, '"$real" "$@"') if when == "before" else ('"$real" "$@"', waits)
    env = stub(flatq, tool, 'case $* in *"/.ids/"*) ;; *) exec "$real" "$@" ;; esac\n' + "\n".join(steps))
    late = flatq.start(str(copy / "push"), "q")
    wait_for(chosen.exists, "it has chosen")
    sweeping = flatq.start("push", "-l", "q", env=env)
    sweeping.stdin.write(b"b\n")
    sweeping.stdin.close()
    wait_for(lambda: held.exists() or sweeping.poll() is not None, "the step, which is perhaps never made")
    go_on.touch()
    wait_for(lambda: any(f"{late.pid} " in path.read_text() for path in flatq.spool.glob(".ids/*/1*")), "its entry")
    go.touch()
    assert sweeping.wait(60) == 0
    flatq("wal", check=0)
    out, err = late.communicate(b"late", timeout=60)
    assert (late.returncode, err) == (0, b"") and out.strip().isdigit()
    assert sorted(flatq("drain", "-l", "q", check=0).out.split()) == [b"a", b"b", b"late"]


def test_keys_that_were_not_read(flatq):
    """An awk that hides a failed read leaves out keys of settled messages. A later push of such a key would be answered `dup`, and stored nowhere."""
    for n in range(3):
        flatq("push", "-k", f"k{n}", "q", input=b"x", check=0)
    flatq("wal", "q", env={"FLATQ_FOLD": "1"}, check=0)
    hides = stub(flatq, "awk", '''case $* in *'$9 != "-"'*)
        for file; do :; done
        head -n 1 "$file" >"$HOME/head"
        for word; do shift; [ "$word" = "$file" ] || set -- "$@" "$word"; done
        set -- "$@" "$HOME/head" ;; esac
        exec "$real" "$@"''')
    flatq("drain", "q", env=hides)
    flatq("wal", check=0)
    for n in range(3):
        assert b"dup" not in flatq("push", "-k", f"k{n}", "q", input=b"y", check=0).out, n


def test_a_drop_that_cannot_look_whether_a_place_came_back(flatq):
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    env = stub(flatq, "ls", f"case $* in *-d*{flatq.spool}/q/*) exit 2 ;; esac; exec \"$real\" \"$@\"")
    refused(flatq("drop", "q", env=env), 74, "drop")
    flatq("push", "q", input=b"1", check=0)
    assert drained(flatq) == [1]


def test_drop_that_is_killed_among_the_places(flatq):
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    env = stub(flatq, "rmdir", '"$real" "$@"; case $* in */buried) kill -9 $PPID ;; esac')
    process = flatq.start("drop", "q", env=env)
    process.wait(60)
    assert not (flatq.spool / "q/buried").exists() and (flatq.spool / "q/dropping").exists()
    flatq("push", "q", input=b"2", check=0)
    assert flatq("pop", "q", check=0).out == b"2"
    assert (flatq.spool / "q/buried").exists() and not (flatq.spool / "q/dropping").exists()
    flatq("drop", "q", check=0)
    assert not (flatq.spool / "q").exists()


def test_a_drop_that_cannot_put_the_places_back(flatq):
    """A message comes while it removes the places, and the disk has no room for them. The next verb makes them."""
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    push_now = f'''"$real" "$@"; code=$?
        case $* in */out) printf new | PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}/push" q >"$HOME/pushed" 2>&1 9>&- &
        until ls "$FLATQ_DIR"/q/wal/* >/dev/null 2>&1 || [ -s "$HOME/pushed" ]; do :; done ;; esac; exit $code'''
    env = {**stub(flatq, "rmdir", push_now), **stub(flatq, "mkdir", "echo 'No space left on device' >&2; exit 1")}
    assert flatq("drop", "q", env=env).status == 74
    wait_for((flatq.home / "pushed").read_text, "the push ends")
    assert flatq("pop", "q", check=0).out == b"new"
    flatq("drop", "q", check=0)


def test_a_drop_whose_rename_is_killed_behind_it(flatq):
    fill(flatq, 1)
    env = stub(flatq, "mv", 'case $* in */.drop.*) "$real" "$@"; kill -9 $$ ;; esac\nexec "$real" "$@"')
    flatq("drop", "-f", "q", env=env, check=0)
    assert not (flatq.spool / "q").exists()


@pytest.mark.parametrize("place, words", [("delayed", ["push", "-d", "99", "q"]), ("buried", ["bury", "q:1"])], ids=["push", "bury"])
def test_a_directory_by_time_beside_a_drop(flatq, place, words):
    """The drop has removed delayed/ and buried/, and is killed. What comes then has to put them back before it makes a directory there."""
    flatq("push", "q", input=b"m", check=0)
    slip, = (flatq.spool / "q/wal").iterdir()
    slip.rename(flatq.home / slip.name)
    env = stub(flatq, "rmdir", f'"$real" "$@"; case $* in */buried) mv "$HOME/{slip.name}" "$FLATQ_DIR/q/wal"; kill -9 $PPID ;; esac')
    flatq.start("drop", "q", env=env).wait(60)
    assert not (flatq.spool / "q" / place).exists() and (flatq.spool / "q/dropping").exists()
    flatq(*words, input=b"n", check=0)
    assert len(lies(flatq.spool, "q")[place]) == 1


@pytest.mark.parametrize("place", ["out", "wal", "delayed", "buried", "head", "queue", "claimed"])
def test_drop_of_what_it_cannot_list(flatq, place):
    if place in ("queue", "head", "claimed"):
        flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    else:
        fill(flatq, 1)
    if place == "claimed":
        flatq("claim", "-c", "me", "q", check=0)
    if place == "head":
        flatq("peek", "q", check=0)
    if place in ("out", "delayed", "buried"):
        receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    if place == "delayed":
        flatq("release", "-d", "100", receipt, check=0)
    if place == "buried":
        flatq("bury", receipt, check=0)
    below = [path.relative_to(flatq.spool) for path in (flatq.spool / "q" / place).rglob("*") if path.is_dir()]
    for where, call, when in struck(flatq, f"drop {place}", (f"q/{place}", *below), CALLS[:2], "12", count=2, first=2):
        assert faulty(flatq, call, where, "drop", "q", when=when).returncode in (74, 75), (where, call, when)
        assert (flatq.spool / "q").exists()


# R5: the clock is read after waiting


def test_a_lease_begins_when_the_message_is_taken(flatq, clock):
    """The reserve has to unfold, and waits for the lock longer than the lease."""
    clock.set(1000)
    flatq("push", "-l", "-t", "10", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    flatq("reserve", "q", env=stub(flatq, "flock", f'echo "1100.00 0.00" >{clock.path}/uptime\nexec "$real" "$@"'), check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(".000000111000"), slip.name


def test_a_touch_counts_from_when_it_has_the_lock(flatq, clock):
    clock.set(1000)
    flatq("create", "-b", "5", "q", check=0)
    flatq("push", "-t", "10", "q", input=b"1", check=0)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    flatq("touch", receipt, env=stub(flatq, "flock", f'echo "1005.00 0.00" >{clock.path}/uptime\nexec "$real" "$@"'), check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(".000000101500"), slip.name


@pytest.mark.parametrize("verb", ["reserve", "touch"])
def test_a_lease_begins_after_what_is_put_back_or_unfolded(flatq, clock, verb):
    clock.set(1000)
    flatq.env["FLATQ_FOLD"] = "2"
    fill(flatq, 2)
    receipt = flatq("reserve", "-t", "10", "q", check=0).out.split()[0].decode()
    clock.set(2000)
    # A touch finds its message, whose lease is over, in a flat file
    if verb == "touch":
        flatq("wal", "q", check=0)
        assert lies(flatq.spool, "q")["queue"]
    words = [receipt] if verb == "touch" else ["q"]
    slow = f'case "$*" in */wal/* | */head/*) echo "2100.00 0.00" >{clock.path}/uptime ;; esac\nexec "$real" "$@"'
    flatq(verb, "-t", "10", *words, env=stub(flatq, "mv", slow), check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(".000000211000"), slip.name


@pytest.mark.parametrize("verb", ["push", "release"])
def test_a_delay_begins_when_the_message_was_read(flatq, clock, verb):
    clock.set(1000)
    if verb == "push":
        env = stub(flatq, "base64", f'echo "1100.00 0.00" >{clock.path}/uptime\nexec "$real" "$@"')
        flatq("push", "-d", "50", "q", input=b"1", env=env, check=0)
    else:
        flatq("create", "-b", "5", "q", check=0)
        fill(flatq, 1)
        receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
        flatq("release", "-d", "50", receipt, env=stub(flatq, "flock", f'echo "1100.00 0.00" >{clock.path}/uptime\nexec "$real" "$@"'), check=0)
    clock.set(1149)
    assert flatq("pop", "q").status == 66
    clock.set(1151)
    assert flatq("pop", "q", check=0).out == b"1"


def test_a_push_whose_message_is_folded_and_unfolded_at_once_succeeds(shell, flatq):
    """Another verb unfolds it between the two looks of the push: for its body, which a fold has removed, and for the flat file."""
    flatq("create", "q", check=0)
    script = '''lib=$1 FLATQ_VERB=push; . "$lib/engine/common.sh"; shell_reset; need engine/slip engine/spool engine/push engine/withdraw
        spool_open && queue_open q || exit
        slip_id=000000000001 lock_held='' looks=0
        there() { looks=$((looks + 1)); [ $looks -gt 1 ]; }
        push_folded() { return 1; }
        push_undo() { exit 9; }
        push_closed'''

    def ended(script, **env):
        return subprocess.run(["sh", "-c", script, "sh", str(LIB)], executable=flatq.shell, env=flatq.environment(env), stdin=subprocess.DEVNULL,
                              timeout=100).returncode

    assert ended(script) == 0
    # It is not there again. Whether the queue was dropped is seen, or not: a look failed, or there is no /proc
    gone = script.replace("[ $looks -gt 1 ]", "return 1").replace("push_folded() { return 1; }", "").replace("exit 9", "exit $1")
    gone = gone.replace("slip_id=", 'exec 8<"$q/lock"; slip_id=')
    assert ended(gone) == 0
    assert ended(gone.replace("slip_id=", 'rm "$q/lock"; slip_id=')) == 69
    assert ended(gone, FLATQ_PROC="/none") == ended(gone.replace("slip_id=", "queue_there() { return 74; }; slip_id=")) == 74


# R6: both sides of a pipe report that they have finished


def test_a_size_whose_end_was_not_seen(flatq):
    for end in "kill -9 $$", "exit 1", "exit 0":
        assert flatq("push", "q", input=b"x" * 2000, env=stub(flatq, "tail", end)).status == 74, end
    assert drained(flatq) == []


def test_a_hash_of_nothing_is_no_key(shell, flatq):
    """The left side of the pipe dies before it has written the key. The hash of nothing would be the same for all keys."""
    script = 'set -u; . "$lib/engine/common.sh"; shell_reset; need engine/slip engine/spool engine/key; key_hash key && printf "%s\\n" "$slip_key"; key_hash key'
    said = subprocess.run([flatq.shell, "-c", script], env=flatq.environment({"lib": str(LIB)}), stdout=subprocess.PIPE).stdout
    assert said == b"k" + hashlib.sha1(b"key").hexdigest()[:32].encode() + b"\n"
    script = script.replace("key_hash key && ", "printf() { return 1; }; key_hash key; exit; ")
    assert subprocess.run([flatq.shell, "-c", script], env=flatq.environment({"lib": str(LIB)})).returncode == 74


# R7: what is read from the disk is checked


@pytest.mark.parametrize("field, text", [(2, "08"), (4, "08"), (5, "09"), (7, "08"), (9, "08-0-0-0"), (9, "a-b-c-d"), (9, "1-2-3"), (8, "k12"), (3, "")])
def test_a_slip_that_is_none(flatq, field, text):
    fill(flatq, 2)
    first, _ = sorted((flatq.spool / "q/wal").iterdir())
    parts = first.name.split(".")
    parts[field] = text
    first.rename(first.with_name(".".join(parts)))
    assert flatq("pop", "q", check=0).out == b"2"


@pytest.mark.parametrize("line", ["", "PPID[$(touch x)0] -w0 same", "1700000000 /etc/passwd same", "1700000000 -w0 x", "08 -w0 same"])
def test_a_boot_that_is_none(shell, flatq, line):
    fill(flatq, 1)
    boot, = (flatq.spool / ".boot").iterdir()
    boot.write_text(line + "\n" if line else "")
    done = flatq("push", "q", input=b"2")
    assert done.status == 74 and done.err.count(b"\n") == 1, done
    assert not list(flatq.home.iterdir())


def test_a_boot_that_cannot_be_read_is_not_new(flatq):
    """If a verb took it for a new boot, it would put back what living processes hold."""
    fill(flatq, 1)
    flatq("reserve", "q", check=0)
    boot, = (flatq.spool / ".boot").iterdir()
    for when in "12":
        assert faulty(flatq, "openat", boot, "stat", "q", when=when).returncode in (0, 74)
        assert lies(flatq.spool, "q")["out"]


def test_an_empty_conf_is_its_own_queues_matter(flatq):
    fill(flatq, 1)
    fill(flatq, 1, "other")
    (flatq.spool / "q/conf").write_text("")
    shutil.rmtree(flatq.spool / ".boot")
    assert flatq("pop", "other", check=0).out == b"1"
    assert flatq("push", "q", input=b"2").status == 65


def test_links_in_place_of_files_are_not_followed(flatq):
    fill(flatq, 1)
    for name in "log", "tended":
        target = flatq.home / name
        target.write_text("mine\n")
        (flatq.spool / "q" / name).unlink(missing_ok=True)
        (flatq.spool / "q" / name).symlink_to(target)
    flatq("pop", "q", check=0)
    flatq("push", "q", input=b"2", check=0)
    assert [(flatq.home / name).read_text() for name in ("log", "tended")] == ["mine\n"] * 2


# R9: arguments have a limit; R10: an error that was seen is returned


@pytest.mark.parametrize("name", ["zzz", "a b", "k", "k" + "0" * 31 + "g", "0" * 33, "k" + "0" * 32])
def test_what_is_no_key_is_set_aside(flatq, name):
    """After a boot every verb comes past the keys of all queues."""
    flatq("push", "-k", "mine", "q", input=b"m", check=0)
    push(flatq, b"other", "other")
    (flatq.spool / "q/keys" / name).mkdir()
    for boot in (flatq.spool / ".boot").iterdir():
        boot.unlink()
    assert pop(flatq, "other") == b"other"
    flatq("doctor", check=None)
    assert len(os.listdir(flatq.spool / "q/keys")) == 1
    assert flatq("push", "-k", "mine", "q", input=b"m", check=0).out.endswith(b" dup\n")


def test_many_keys_are_checked_in_one_pass_and_swept_in_pieces(flatq):
    """There are 2,000 keys in one settled batch, and this rm takes only 600 names."""
    flatq("push", "-k", "x", "q", input=b"0", check=0)
    q = flatq.spool / "q"
    slip, = (q / "wal").iterdir()
    parts = slip.name.split(".")
    rows = []
    for n in range(1002, 3002):
        key = f"k{n:032x}"
        (q / "keys" / key).write_text(f"{n}\nyes\n")
        rows.append(".".join([parts[0], f"{n:012d}", "0", "0", "60", "0", parts[6], "1", key, "0-0-0-0"]) + "\tMQ==\n")
    block = q / "queue" / f"{parts[0]}.0000000"
    block.mkdir()
    (block / f"{parts[0]}.000000001002.000000003001.2000.0.abc").write_text("".join(rows))
    (q / "keys" / f"k{1:032x}").write_text("999\nyes\n")
    assert flatq("doctor", "q", check=0, timeout=20).out == b""
    assert len(list((q / "keys").iterdir())) == 2001
    env = stub(flatq, "rm", '[ $# -le 600 ] || exit 1\nexec "$real" "$@"')
    assert len(flatq("drain", "q", env=env, check=0).out.split()) == 2001
    assert not list((q / "keys").iterdir())


@pytest.mark.parametrize("verb", ["drop", "wal"])
def test_many_empty_directories_are_removed_in_pieces(flatq, verb):
    """delayed/ and buried/ have 1,500 empty directories each, those of delayed/ are due, and this rmdir takes only 600 names."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    for n in range(1500):
        (q / f"delayed/{n // 500:07}/{n // 500:07}{n % 500:05}").mkdir(parents=True)
        (q / f"buried/0000001/0000001{n:05}").mkdir(parents=True)
    slip, = (q / "wal").iterdir()
    slip.rename(q / "delayed/0000002/000000200499" / slip.name)
    env = stub(flatq, "rmdir", '[ $# -le 600 ] || exit 1\nexec "$real" "$@"')
    if verb == "wal":
        flatq("wal", "q", env=env, check=0)
        assert not list((q / "delayed").iterdir()) and drained(flatq) == [1]
    else:
        assert flatq("drop", "q", env=env).status == 75
        assert flatq("pop", "q", check=0).out == b"1"
        for n in range(1500):
            (q / f"delayed/{n // 500:07}/{n // 500:07}{n % 500:05}").mkdir(parents=True, exist_ok=True)
        flatq("drop", "q", env=env, check=0)
        assert not q.exists()


def test_a_checkpoint_whose_sweep_fails_says_so(flatq):
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    assert flatq("wal", "q", env=stub(flatq, "rm", "exit 1")).status == 74


def test_a_sync_that_fails_is_not_hidden_by_another(flatq):
    """If `sync -f` fails, a `sync` of everything would end with 0 and hide the error."""
    fill(flatq, 1)
    env = {**stub(flatq, "sync", 'case $1 in -f) exit 1 ;; esac\nexit 0'), "FLATQ_SYNC": "on"}
    assert flatq("push", "-l", "q", input=b"1\n2\n", env=env).status == 74
    done = flatq("claim", "-c", "me", "q", env=env)
    assert (done.status, done.out) == (74, b"")


# faults of other kinds


def test_a_body_that_cannot_be_read_is_not_another_messages(flatq):
    """If a read fails, gawk reports a line all the same: it returns the line before."""
    need("gawk")
    place = flatq.home / "stubs"
    place.mkdir()
    (place / "awk").symlink_to(shutil.which("gawk"))
    fill(flatq, 30)
    body = sorted((flatq.spool / "q/body").iterdir())[17]
    faulty(flatq, "read", body, "wal", "q", env={"PATH": f"{place}:{flatq.env['PATH']}", "FLATQ_FOLD": "20"})
    assert drained(flatq) == list(range(1, 31))


def test_closed_and_empty_is_said_after_all_that_is_acknowledged(flatq):
    """A push -l holds the lock and has seen that the queue is open. close must wait for it."""
    script = f"""
      [ -e "$HOME/said" ] || case $* in *"/q/tmp/"*"/q/queue/"*)
        "{flatq.shell}" "{LIB}/close" q 9>&- </dev/null >/dev/null 2>&1 &
        inode=$(ls -i "{flatq.spool}/q/lock") n=0
        until grep -q -- "->.*:${{inode%% *}} " /proc/locks || [ -e "{flatq.spool}/q/closed" ]; do
          [ $n -lt 6000 ] || exit 1
          sleep 0.01; n=$((n + 1))
        done
        "{flatq.shell}" "{LIB}/pop" q 9>&- >/dev/null 2>&1; echo $? >"$HOME/said" ;;
      esac
      exec "$real" "$@\""""
    flatq("create", "q", check=0)
    done = flatq("push", "-l", "q", input=b"1\n", env=stub(flatq, "mv", script))
    assert (done.status, (flatq.home / "said").read_text()) == (0, "66\n")


def test_closed_and_empty_is_not_said_while_a_message_goes_back_to_its_delay(flatq):
    """The find of the proof sees an empty delayed/: the message is in wal/. When it comes to wal/, a release has put the message back."""
    flatq("push", "-d", "99", "q", input=b"m", check=0)
    flatq("close", "q", check=0)
    released = 'case $1.$(ls "$HOME/once" 2>/dev/null) in delayed.) : >"$HOME/once"; shift ;; esac\nexec "$real" "$@"'
    assert flatq("pop", "q", env=stub(flatq, "find", released)).status == 66
    assert (flatq.home / "once").exists()


def test_push_abandons_only_a_body_of_its_own(flatq):
    """The same id comes twice. The body that exists belongs to another message, so the push must not remove it."""
    fill(flatq, 1)
    journal, = (flatq.spool / ".ids").glob("*/1001")
    journal.unlink()
    assert flatq("push", "q", input=b"2").status == 74
    assert drained(flatq) == [1]


def test_create_g_is_not_for_a_door(flatq):
    flatq("create", "q", check=0)
    done = flatq("handler", input=b"create -g q\n")
    assert b"77" in done.out, done
    assert not flatq.spool.stat().st_mode & 0o2000


def test_order_over_blocks(flatq):
    """A message came back and was folded with later ones. Their flat file ends after the first id of the next block."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    slip, = (q / "wal").iterdir()
    parts = slip.name.split(".")
    for numbers in [5000, 100041, 100042], [100001, 100002]:
        block = q / "queue" / f"{parts[0]}.{f'{numbers[0]:012d}'[:7]}"
        block.mkdir(exist_ok=True)
        rows = "".join(".".join([parts[0], f"{n:012d}", *parts[2:]]) + "\t" + base64.b64encode(b"%d" % (n % 10)).decode() + "\n" for n in numbers)
        (block / f"{parts[0]}.{numbers[0]:012d}.{numbers[-1]:012d}.{len(numbers)}.0.abc{numbers[0]:x}").write_text(rows)
    assert drained(flatq) == [1, 0, 1, 2, 1, 2]


# beside a drop: 69, and no part of the queue comes back


GONE = {
    "push -e": (["push", "-e", "q"], "od", None), "push -d": (["push", "-d", "9", "q"], "mkdir", None), "push -l": (["push", "-l", "q"], "mkdir", None),
    "create": (["create", "q"], "mkdir", "after"), "create -b": (["create", "-b", "3", "q"], "mkdir", "after"),
}


@pytest.mark.parametrize("what", GONE)
def test_a_queue_that_is_dropped_meanwhile_is_gone(flatq, what):
    (verb, *args), program, when = GONE[what]
    flatq("create", "q", check=0)
    drop = f'[ -e "$HOME/dropped" ] || {{ true >"$HOME/dropped"; mv {flatq.spool}/q {flatq.spool}/.drop.1; }}'
    script = f'"$real" "$@"; code=$?\n{drop}\nexit $code' if when else f'{drop}\nexec "$real" "$@"'
    env = stub(flatq, program, script)
    if program == "od":  # push -e gets its nonce from this process
        env["FLATQ_PROC"] = str(without_random(flatq))
        flatq("stat", "q", env={"FLATQ_PROC": env["FLATQ_PROC"]}, check=0)  # the record of a boot needs a nonce, too
    done = flatq(verb, *args, input=b"x\n.\n", env=env)
    assert (flatq.home / "dropped").exists() and (done.status, done.out) == (69, b"") and b"is gone" in done.err, done
    assert not (flatq.spool / "q").exists()


def without_random(flatq):
    """A /proc that has neither random numbers nor the boot's id."""
    place = flatq.home / "proc"
    place.mkdir()
    for name in ("uptime", "self", "1"):
        (place / name).symlink_to(f"/proc/{name}")
    return place


def test_a_sed_that_is_killed_behind_the_dot(flatq):
    """sed has reported that the dot came, but has not written all that stood before it. The push stores nothing, also with a limit on the size."""
    script = '"$real" "$@" | head -c 3\nkill -KILL $$'
    for most in (None, "100"):
        done = flatq("push", "-e", "q", input=b"a whole message\n.\n", env={**stub(flatq, "sed", script), "FLATQ_MOST_BYTES": most})
        assert (done.status, done.out) == (74, b""), (most, done)
    env = {"FLATQ_MOST_BYTES": "15"}
    assert flatq("push", "-e", "q", input=b"a whole message\n.\n", env=env).status == 65
    flatq("push", "-e", "q", input=b"a whole messag\n.\n", env=env, check=0)
    assert flatq("pop", "q").out == b"a whole messag\n"


STATS = "newfstatat,stat,faccessat2,access"


def test_one_look_at_conf_or_closed_that_fails(flatq):
    """In a bounded queue a message still moves under the lock, and of a closed and empty queue a verb still says that it is closed."""
    flatq("create", "-b", "5", "q", check=0)
    fill(flatq, 1)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    env = stub(flatq, "flock", 'echo locked >>"$HOME/flock"\nexec "$real" "$@"')
    assert faulty(flatq, STATS, flatq.spool / "q/conf", "release", receipt, env=env).returncode == 0
    assert (flatq.home / "flock").exists()
    assert drained(flatq) == [1]
    flatq("close", "q", check=0)
    assert faulty(flatq, STATS, flatq.spool / "q/closed", "pop", "q").returncode == 69


@pytest.mark.parametrize("when", ["1", "1+"])
def test_a_block_that_one_look_does_not_see_takes_in_what_push_l_brings(flatq, when):
    """An `mv DIRECTORY DIRECTORY` would put the new block inside the old one, where no verb looks."""
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    block, = (flatq.spool / "q/queue").iterdir()
    done = faulty(flatq, f"{STATS},statx,stat64", block, "push", "-l", "q", when=when, input=b"".join(b"%d\n" % n for n in range(120, 240)))
    assert (done.returncode == 0) == bool(done.stdout), done
    assert not [path for path in block.iterdir() if path.is_dir()]
    assert drained(flatq) == list(range(240 if done.stdout else 120))


def test_a_stage_of_which_an_mv_leaves_the_rest_is_not_acknowledged(flatq):
    """If mv ends well or is killed after the first flat file, the push fails. If mv is killed after the last flat file or after the whole block,
    all messages are stored, and the push succeeds."""
    lines = [b"".join(b"%d\n" % n for n in range(1000 * turn, 1000 * turn + 600)) for turn in range(4)]
    flatq("push", "-l", "q", input=lines[0], env=stub(flatq, "mv", '"$real" "$@"\nkill -KILL $$'), check=0)
    flatq("push", "-l", "q", input=lines[1], env=stub(flatq, "mv", '"$real" "$@"\nkill -KILL $$'), check=0)
    for turn, end in ((2, "exit 0"), (3, "kill -KILL $$")):
        some = f'for last; do :; done\ncase $last in */queue/*) "$real" -f "$2" "$last"; {end} ;; esac\nexec "$real" "$@"'
        done = flatq("push", "-l", "q", input=lines[turn], env=stub(flatq, "mv", some))
        assert (done.status, done.out) == (74, b""), (end, done)
    assert drained(flatq) == [1000 * turn + n for turn in range(4) for n in range(600 if turn < 2 else 500)]


MOVING = '''
    places=
    while :; do case $1 in "!" | "(" | -*) break ;; esac; places="$places $1"; shift; done
    for place in $places; do
      case $place in
      out) PATH=$old "$sh" "$lib/release" "$(cat "$HOME/receipt")" || : ;;
      wal) PATH=$old "$sh" "$lib/reserve" -t 9999 q >"$HOME/said" && read -r receipt rest <"$HOME/said" && printf %s "$receipt" >"$HOME/receipt" ;;
      esac >/dev/null 2>&1
      "$real" "$place" "$@" || exit
    done'''


def moving(flatq):
    """A find that lets a message move first, against the order in which it lists the places. So it sees the message in none."""
    receipt = flatq("reserve", "-t", "9999", "q", check=0).out.split()[0]
    (flatq.home / "receipt").write_bytes(receipt)
    return {**stub(flatq, "find", MOVING), "old": flatq.env["PATH"], "sh": flatq.shell, "lib": str(LIB)}


def test_doctor_leaves_the_body_of_a_message_that_it_sees_nowhere(flatq):
    """The body stays even if the push journal is gone, and the key with it."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    body, = (flatq.spool / "q/body").iterdir()
    env = moving(flatq)
    for journal in (flatq.spool / ".ids").glob("*/1001"):
        journal.unlink()
    assert flatq("doctor", "q", env=env, check=0).out == b"queue 'q': 000000000001 was seen in no state: its body stays until the first verb after a boot looks again\n"
    assert body.exists() and list((flatq.spool / "q/keys").iterdir())
    flatq("release", (flatq.home / "receipt").read_text(), check=0)
    assert drained(flatq) == [1]


@pytest.mark.parametrize("when", ["2", "3"])
def test_a_journal_that_cannot_be_read_does_not_show_what_a_push_left(flatq, when):
    """The push was killed after it created its slip, which now moves. Neither the checkpoint that ends the range of ids nor doctor may remove the
    body."""
    fill(flatq, 1)
    journal, = (flatq.spool / ".ids").glob("*/1001")
    owner, boot, *_ = journal.read_text().splitlines()
    journal.write_text(f"4194305 000000000001 q\n{boot}\nslip\n")
    env = moving(flatq)
    for n in ("1", when):
        newer = flatq.spool / ".ids/000000009"
        newer.mkdir(exist_ok=True)
        (newer / "open").touch()
        assert faulty(flatq, "read,openat", journal, "doctor" if n == "1" else "wal", "q", env=env, when=when).returncode in (0, 74)
    assert [path.name for path in (flatq.spool / "q/body").iterdir()] == ["000000000001"]


@pytest.mark.parametrize("call", ["openat", "read"])
@pytest.mark.parametrize("awk", ["mawk", "original-awk"])
def test_a_range_of_ids_stays_until_its_entries_can_be_read(flatq, call, awk):
    """A push was killed before it noted a slip. Whichever look at its entry fails, a later checkpoint removes its body. An entry that was torn keeps no
    range. original-awk hides a failed read."""
    env = stub(flatq, "awk", f'exec "{need(awk)}" "$@"')
    fill(flatq, 1)
    journal, = (flatq.spool / ".ids").glob("*/1001")
    boot = journal.read_text().splitlines()[1]
    (flatq.spool / "q/body/000000000900").write_bytes(b"YQ==\n")
    entry = journal.parent / "1900"
    entry.write_text(f"4194305 000000000001 q\n{boot}\n")
    entry.with_name("1901").write_text("4194305 0000")
    entry.with_name("1902").touch()
    newer = flatq.spool / ".ids/000000009"
    newer.mkdir()
    (newer / "open").touch()
    for place, struck_call, when in struck(flatq, f"entry {call} {awk}", (entry.relative_to(flatq.spool),), (call,), "12345", count=3, first=2):
        faulty(flatq, struck_call, place, "wal", when=when, error="ENOMEM", env=env)
        flatq("wal", check=0)
        assert [path.name for path in (flatq.spool / "q/body").iterdir()] == ["000000000001"], (call, when)
        assert [path.name for path in (flatq.spool / ".ids").iterdir()] == ["000000009"], (call, when)


def test_doctor_removes_what_a_push_left_that_has_noted_no_slip(flatq):
    fill(flatq, 1)
    journal, = (flatq.spool / ".ids").glob("*/1001")
    owner, boot, *_ = journal.read_text().splitlines()
    body = flatq.spool / "q/body/000000000900"
    entry = journal.parent / "1900"
    for text, stays in ((f"{owner}\n{boot}\n", False), (f"4194305 000000000001 q\n{boot}\n", False), (f"4194305 000000000001 q\n{boot}\nslip\n", True),
                        ("4194305 000000000001 q\nanother-boot\n", True), (f"4194305 000000000001 p\n{boot}\n", True), ("", True)):
        body.write_bytes(b"YQ==\n")
        entry.write_text(text)
        said = flatq("doctor", "q", check=0).out
        assert (body.exists(), b"stays" in said, b"removed" in said) == (stays, stays, not stays), (text, said)
    assert drained(flatq) == [1]


def verb_before(flatq, program, pattern, verb):
    """The environment in which another verb runs before this program, if the program's arguments match the pattern."""
    return {**stub(flatq, program, f'case $* in {pattern}) PATH=$old "$sh" "$lib"/{verb} >/dev/null ;; esac\nexec "$real" "$@"'), "old": flatq.env["PATH"],
            "sh": flatq.shell, "lib": str(LIB), "FLATQ_FOLD": "1"}


@pytest.mark.parametrize("size", ["0x", "number", "08", "-"])
def test_doctor_calculates_with_no_name_that_is_not_ours(shell, flatq, size):
    """R7, of a file in buried/ that somebody made by hand: it stays, and the message beside it is looked at."""
    fill(flatq, 1)
    flatq("bury", reserve(flatq, "q").receipt, check=0)
    (buried,) = flatq.spool.glob("q/buried/*/*/*")
    field = buried.name.split(".")
    buried.with_name(".".join([*field[:2], "000000000999", *field[3:8], size, *field[9:]])).touch()
    (flatq.spool / "q/body/000000000999").write_text("YQ==\n")
    (flatq.spool / "q/body" / field[2]).write_text("damaged\n")
    assert flatq("doctor", "q", check=0).out == b"queue 'q': message 1 was damaged: buried\n"
    assert len([*flatq.spool.glob("q/buried/*/*/*.damaged")]) == 1
    assert len([*flatq.spool.glob("q/buried/*/*/*.000000000999.*")]) == 1


def test_a_body_that_awk_cannot_read_is_not_damaged(flatq):
    """No awk can read the body: doctor says so, and buries nothing."""
    fill(flatq, 1)
    env = stub(flatq, "awk", 'case $* in *most=*) exit 2 ;; *getline*) FLATQ_BODY=/none; esac\nexec "$real" "$@"')
    refused(flatq("doctor", "q", env=env), 74, "doctor", text=b"cannot read a body")
    assert flatq("pop", "q", check=0).out


def test_doctor_says_nothing_of_a_message_that_is_popped_between_its_lists(flatq):
    """The message is large, so its body is removed at once."""
    flatq("push", "q", input=bytes(300000), check=0)
    assert flatq("doctor", "q", env=verb_before(flatq, "ls", "-ln*body", "pop q"), check=0).out == b""
    assert drained(flatq) == []


def test_a_message_that_cannot_be_followed_is_not_said_to_be_gone(flatq):
    """A fold has moved the message to a flat file, which the verb cannot read. The verb must not answer that the message is gone."""
    fill(flatq, 1)
    env = {**verb_before(flatq, "mv", "*/wal/*/done/*", "wal q"), **stub(flatq, "awk", "exit 1")}
    assert flatq("delete", "q:1", env=env).status == 74
    assert drained(flatq) == [1]


def test_a_message_that_cannot_be_moved_nor_looked_at_is_not_anothers(flatq):
    fill(flatq, 1)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    slip, = (flatq.spool / "q/out").iterdir()
    env = stub(flatq, "mv", "exit 1")
    assert faulty(flatq, f"{STATS},statx", slip, "delete", receipt, when="2+", env=env).returncode == 74
    flatq("delete", receipt, check=0)


def unsure_key(flatq):
    """Leave a message whose push was killed after it created the slip: its key is not confirmed."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    key, = (flatq.spool / "q/keys").iterdir()
    key.write_text("1\n")


def test_a_key_is_not_free_because_a_listing_missed_its_message(flatq):
    """Both looks of the push at out/ fail, and the message moves while find lists the places. The push must not take the key."""
    unsure_key(flatq)
    done = faulty(flatq, "openat", flatq.spool / "q/out", "push", "-k", "key", "q", when="1..2", input=b"2", env=moving(flatq))
    assert done.stdout in (b"1 dup\n", b"") and done.returncode == (0 if done.stdout else 74), done


def test_a_push_whose_key_becomes_free_has_a_size_of_its_own(flatq):
    """The message that has the key is settled between two looks of the push. The new message then needs a slip with its own size."""
    unsure_key(flatq)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    flatq("push", "-k", "key", "q", input=b"a longer one", env=verb_before(flatq, "find", "'done claimed'*", f"delete {receipt}"), check=0)
    assert flatq("doctor", "q", check=0).out == b""
    assert flatq("pop", "q", check=0).out == b"a longer one"


def test_a_key_that_a_sweep_cannot_look_at_is_not_left_to_nobody(flatq):
    """The key's message is settled. If the sweep removed the message and left the key, every later push would be answered `dup`."""
    for verb in "pop", "drain":
        flatq("push", "-k", "key", "q", input=b"1", check=0)
        assert flatq(verb, "q", env=stub(flatq, "rm", "exit 1") if verb == "drain" else None).out.strip() == b"1"
        (flatq.home / "stubs/rm").unlink(missing_ok=True)
        key, = (flatq.spool / "q/keys").glob("k*")
        assert faulty(flatq, f"openat,{STATS},statx", key, "wal", "q", when="1+").returncode == 74
        assert b"dup" not in flatq("push", "-k", "key", "q", input=b"2", check=0).out
        assert flatq("pop", "q", check=0).out == b"2"
        flatq("wal", "q", check=0)


def test_a_key_that_a_push_does_not_see_is_not_taken_over(flatq):
    """The push fails to open the key's file, twice, and each look says that there is no such file. The push must not take the key over."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    key, = (flatq.spool / "q/keys").iterdir()
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(key), "-e", f"trace=openat,{STATS}", "-e", "inject=openat:error=EIO:when=1..2",
             "-e", f"inject={STATS}:error=ENOENT", *flatq.command("push", "-k", "key", "q")]
    done = subprocess.run(words, input=b"2", env=flatq.environment(None), capture_output=True, timeout=100)
    assert (done.returncode, done.stdout) == (74, b""), done
    assert drained(flatq) == [1]


@pytest.mark.parametrize("verb", ["delete", "bury"])
def test_a_message_that_a_fold_moves_meanwhile_is_still_there(flatq, verb):
    fill(flatq, 1)
    flatq(verb, "q:1", env=verb_before(flatq, "mv", "*/wal/*/done/* | */wal/*/buried/*", "wal q"), check=0)
    assert [len(lies(flatq.spool, "q").get(place, [])) for place in ("done", "buried")] == [verb == "delete", verb == "bury"]
    assert drained(flatq) == []


def test_a_doctor_that_is_killed_at_a_flat_file_leaves_each_message_once(flatq):
    """It is killed after each of its renames, and the next doctor does the rest."""
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    flat, = (flatq.spool / "q/queue").glob("*/*")
    rows = flat.read_bytes().splitlines(keepends=True)
    flat.write_bytes(b"".join([rows[0].replace(b"\t", b"\t!"), *rows[1:]]))
    env = stub(flatq, "mv", '"$real" "$@"\ncase $* in */queue/*) kill -KILL $PPID ;; esac')
    for _ in range(2):
        assert subprocess.run(flatq.command("doctor", "q"), env=flatq.environment(env), stdout=subprocess.DEVNULL, timeout=60).returncode == -signal.SIGKILL
        assert len(list((flatq.spool / "q/queue").glob("*/*"))) == 1
    flatq("doctor", "q", check=0)
    assert drained(flatq) == list(range(1, 120))


@pytest.mark.parametrize("args", [("q",), ("-k", "key", "q"), ("-l", "q")])
def test_a_push_whose_id_cannot_be_printed_says_so(shell, flatq, args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(flatq.command("push", *args), input=b"1\n", stdout=full, stderr=subprocess.PIPE, env=flatq.environment(None), timeout=60)
    assert done.returncode == 74 and done.stderr.startswith(b"push: message") and done.stderr.count(b"\n") == 1, done
    assert drained(flatq) == [1]


def to_full(flatq, *args):
    """Run a verb whose standard output cannot be written. It must end with 74 and one line, which this returns."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(flatq.command(*args), stdout=full, stderr=subprocess.PIPE, env=flatq.environment(None), timeout=60)
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1, (args, done)
    return done.stderr


@pytest.mark.parametrize("args", [("list",), ("list", "q"), ("stat", "q"), ("doctor", "q"), ("doctor", "-v", "q"), ("flatq", "-h"), ("flatq", "kick", "-h")])
def test_what_cannot_be_printed_is_an_error(shell, flatq, args):
    fill(flatq, 1)
    (flatq.spool / "q/wal/strange").touch()
    assert b"could not be printed" in to_full(flatq, *args)
    # doctor repairs what it finds all the same
    assert (flatq.spool / "q/wal/strange").exists() == (args != ("doctor", "q"))


def test_help_that_cannot_be_printed_is_an_error(flatq):
    verbs = re.search(r"^flatq_verbs='(.*)'$", (LIB / "flatq").read_text(), re.M)[1].split()
    for verb in (*verbs, "handler", "beanstalk", "small-stalk", "http", "./launch"):
        name = verb.removeprefix("./")
        assert to_full(flatq, verb, "-h") == f"{name}: the help could not be printed\n".encode()


def killed_drain(flatq, queue="q"):
    """Leave what a drain leaves that was killed after it took all flat files: a batch in out/ whose owner is dead."""
    q = flatq.spool / queue
    batch = q / "out/batch.999999999-000000000001.0123456789ab.000000000000"
    batch.mkdir()
    for path in q.glob("queue/*/*"):
        path.rename(batch / path.name)
        path.parent.rmdir()
    return batch


@pytest.mark.parametrize("verb", ["pop q", "pop -l q", "drain q", "work --until-empty -q q -- cat", "claim -c me q", "wal q"])
def test_a_batch_that_cannot_be_put_back_is_not_nothing_there(flatq, verb):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    killed_drain(flatq)
    done = flatq(*verb.split(), env=stub(flatq, "mkdir", 'case $* in */queue/*) exit 1 ;; esac\nexec "$real" "$@"'))
    assert (done.status, done.out) == (74, b""), done
    assert done.err.count(b"\n") == 1 and b"queue 'q'" in done.err
    assert drained(flatq) == list(range(120))


def test_a_settled_batch_whose_marker_one_look_does_not_see_does_not_come_back(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    marker = flatq.spool / "q/done" / killed_drain(flatq).name
    for when in ("1", "1+"):
        marker.touch()
        done = faulty(flatq, f"{STATS},statx", marker, "pop", "q", when=when)
        assert done.returncode in (66, 74) and not done.stdout, (when, done)


def test_what_is_strange_in_a_batch_keeps_nothing_back(flatq):
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    (killed_drain(flatq) / "strange").touch()
    assert drained(flatq) == list(range(120))
    assert not list((flatq.spool / "q/out").iterdir())


def test_a_bound_is_not_counted_from_a_listing_that_failed(flatq):
    """In each place in turn one listing fails. What it does not show must not make room."""
    flatq("create", "-b", "4", "q", check=0)
    fill(flatq, 2)
    flatq("push", "-d", "1000", "q", input=b"3", check=0)
    flatq("reserve", "-t", "1000", "q", check=0)
    flatq("push", "q", input=b"4", check=0)
    for place, call, when in struck(flatq, "bound", ("q/wal", "q/out", "q/delayed"), ("openat", "getdents64"), "1234", 6, first=8):
        done = faulty(flatq, call, place, "push", "-k", "new", "q", when=when)
        assert done.returncode in (74, 75) and not done.stdout, (place, call, when, done)
        assert len(list((flatq.spool / "q/wal").iterdir())) == 2


def test_a_slip_is_no_flat_file_whatever_its_numbers(shell, flatq):
    """Its tries, lease and delay look like an id if a `?` matches a dot too. Then a search for any id finds a file, and no search finds a
    message."""
    flatq("push", "-d", "10000", "q", input=b"x", check=0)
    assert flatq("delete", "q:99").status == 66
    flatq("kick", "q", check=0)
    assert flatq("delete", "q:99").status == 66
    flatq("claim", "-c", "me", "q", check=0)
    assert flatq("delete", "q:99").status == 66


# R2: what the shell says that it could not do, it may have done


@pytest.mark.parametrize("taken", [False, True], ids=["there", "taken"])
@pytest.mark.shells
def test_a_slip_that_the_shell_created_although_it_failed(shell, flatq, taken):
    """The shell opens the new file, and cannot save its standard output then (EMFILE). The message is there, whole, and once, also if a consumer takes it
    before the push looks."""
    flatq("create", "q", check=0)
    trace, program = flatq.home / "trace", [need("strace"), "-qq", "-o"]
    words = lambda *more: [*program, str(trace), "-e", "trace=openat,open,fcntl", *more, *flatq.command("push", "q")]
    for _ in range(2):
        subprocess.run(words(), input=b"m", env=flatq.env, cwd=flatq.home, capture_output=True, timeout=100, check=True)
    number, opened = 0, False
    for line in trace.read_text().splitlines():
        number += line.startswith("fcntl(")
        opened = opened or "/wal/" in line and "O_EXCL" in line
        if opened and "F_DUPFD" in line:
            break
    else:
        pytest.skip("this shell saves its standard output first")
    process = subprocess.Popen(words("-e", f"inject=fcntl:error=EMFILE:when={number}" + ":signal=STOP" * taken), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=flatq.env, cwd=flatq.home, start_new_session=True)
    flatq.started.append(process)
    process.stdin.write(b"m")
    process.stdin.close()
    if taken:
        wait_for(lambda: "SIGSTOP" in trace.read_text(), "the push stands behind the failed call")
        receipts = [flatq("reserve", "-t", "999", "q", check=0).out.split()[0] for _ in range(3)]
        for child in children(process.pid):
            os.kill(child, signal.SIGCONT)
    code = process.wait(60)
    assert "(INJECTED)" in trace.read_text()
    if taken:
        assert len({*receipts}) == 3 and code in (0, 1, 2, 74)
    else:
        assert [flatq("pop", "q", check=0).out for _ in range(3)] == [b"m"] * 3, process.stderr.read()
    assert flatq("pop", "q").status == 66
    assert lies(flatq.spool, "q").get("buried") is None


def test_a_withdrawn_push_that_is_swept_is_not_acknowledged(flatq):
    """The mv that withdraws the push does its work, and a sweep removes the message, before the mv is killed."""
    flatq("create", "q", check=0)
    killed = f'''case $* in */wal/*/done/*) "$real" "$@"; PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}/wal" q; kill -9 $$ ;; esac\nexec "$real" "$@"'''
    env = {**stub(flatq, "mv", killed), **stub(flatq, "base64", f'"$real" "$@"; : >{flatq.spool}/q/closed')}
    done = flatq("push", "q", input=b"m", env=env)
    assert (done.status, done.out) == (74, b"") and b"unknown" in done.err, done
    assert flatq("pop", "q").status == 69


@pytest.mark.parametrize("verb, words", [("delete", []), ("release", []), ("release", ["-d", "99"]), ("bury", [])])
def test_what_was_moved_and_has_moved_on_is_not_said_to_be_anothers(flatq, verb, words):
    """The mv does its work, and the message moves on, before the mv is killed. The verb cannot tell who it was."""
    flatq("push", "q", input=b"m", check=0)
    receipt = flatq("reserve", "q", check=0).out.split()[0].decode()
    moved = 'case $* in */out/*) "$real" "$@"; rm "$3"; kill -9 $$ ;; esac\nexec "$real" "$@"'
    done = flatq(verb, *words, receipt, env=stub(flatq, "mv", moved))
    assert done.status == 74 and b"unknown" in done.err, done


def test_a_push_to_a_queue_that_was_closed_whose_slip_has_moved(flatq):
    """A pop says that the queue is closed and empty. Then the push creates its slip, which a kick moves before the push has seen that the queue is closed."""
    flatq("create", "q", check=0)
    q, said = flatq.spool / "q", []
    with_old = f'PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}'
    env = stub(flatq, "base64", f'"$real" "$@"; {with_old}/close" q; {with_old}/pop" q 2>/dev/null; echo $? >"$HOME/said"')

    def each(call, out, err):
        if not said and any(q.glob("delayed/*/*/*")):
            said.append(flatq("kick", "q").status)

    done = gate.run(flatq.command("push", "-d", "99", "q"), flatq.spool, env=flatq.environment(env), stdin=b"m", each=each, kinds=gate.READS)
    assert ((flatq.home / "said").read_text(), said) == ("69\n", [0])
    assert (done.status, done.stdout) == (69, b""), done
    assert flatq("pop", "q").status == 69


# A directory that another verb removes, since it is empty, cannot be synced


def test_a_message_that_moves_on_before_it_is_synced(flatq):
    """With its last message, a directory of delayed/ or buried/ is gone. Nothing has failed."""
    flatq("create", "q", check=0)
    env = {"FLATQ_SYNC": "on", "sh": flatq.shell, "lib": str(LIB), "old": flatq.env["PATH"]}
    next_verb = '''case $* in
    *delayed*) sleep 1.1; PATH=$old "$sh" "$lib/reserve" -t 9999 q >"$HOME/said" ;;
    *buried*) for turn in 1 2; do PATH=$old "$sh" "$lib/kick" q >/dev/null; done ;; esac\nexec "$real" "$@"'''
    flatq("wal", env=env)
    env.update(stub(flatq, "sync", next_verb))
    assert flatq("push", "-d", "1", "q", input=b"m", env=env, check=0).out == b"1\n"
    receipt = (flatq.home / "said").read_text().split()[0]
    flatq("release", "-d", "1", receipt, env=env, check=0)
    flatq("bury", (flatq.home / "said").read_text().split()[0], env=env, check=0)
    env.update(stub(flatq, "sync", 'case $*  in *done*) rmdir "$FLATQ_DIR"/q/delayed/*/* "$FLATQ_DIR"/q/delayed/* ;; esac\nexec "$real" "$@"'))
    flatq("push", "-d", "999", "q", input=b"n", env=env, check=0)
    flatq("delete", "q:2", env=env, check=0)
    assert flatq("drain", "q", check=0).out == b"m\n"


@pytest.mark.parametrize("verb, words, said", [("reserve", b"", b".1."), ("beanstalk", b"use q\r\nreserve-job 1\r\nquit\r\n", b"RESERVED 1 ")])
def test_a_take_whose_drop_ends_before_it_looks(flatq, verb, words, said):
    """A drop has removed out/ when a message is to go there, and has put it back, and ended, when the take looks for the drop."""
    assert flatq("push", "q", input=b"m", check=0).out == b"1\n"
    once = """case $*.$(ls "$HOME/once" 2>/dev/null) in
    */q/out/*.) : >"$HOME/once"; rmdir "${3%/*}"; "$real" "$@"; code=$?; mkdir "${3%/*}"; exit $code ;; esac
    exec "$real" "$@\""""
    done = flatq(verb, *(["q"] if verb == "reserve" else []), input=words, env=stub(flatq, "mv", once), check=0)
    assert said in done.out and (flatq.home / "once").exists()


@pytest.mark.parametrize("verb, words, said", [("pop", b"", b""), ("reserve", b"", b""), ("beanstalk", b"watch q\r\nreserve-with-timeout 0\r\nreserve-job 1\r\nquit\r\n",
                                                                                b"WATCHING 2\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n")])
def test_a_take_that_always_fails(flatq, verb, words, said):
    """It ends with the failure, as a disk that is read-only would have it, and does not try for ever."""
    flatq("push", "q", input=b"m", check=0)
    done = flatq(verb, *(["q"] if not words else []), input=words, env=stub(flatq, "mv", 'case $* in */out/*) exit 1 ;; esac\nexec "$real" "$@"'), timeout=20)
    assert (done.status, done.out) == (0 if words else 74, said)
    assert flatq("pop", "q", check=0).out == b"m"


@pytest.mark.parametrize("verb, words", [("drain", []), ("pop", ["-l"]), ("claim", ["-c", "me"])])
@pytest.mark.parametrize("what", ["out/", "tmp/strange"])
def test_a_bulk_take_that_always_fails(flatq, verb, words, what):
    """Neither does this one, which has the queue's lock."""
    flatq("push", "q", input=b"m", check=0)
    if what == "tmp/strange":
        (flatq.spool / "q/wal/!strange").touch()
    done = flatq(verb, *words, "q", env=stub(flatq, "mv", f'case $* in */{what}*) exit 1 ;; esac\nexec "$real" "$@"'), timeout=20)
    assert (done.status, done.out) == (74, b"") and done.err.count(b"\n") == 1
    assert flatq("pop", "q", check=0).out == b"m"


@pytest.mark.parametrize("verb, words, said", [("pop", b"", b""), ("beanstalk", b"watch q\r\nreserve-with-timeout 0\r\nquit\r\n", b"WATCHING 2\r\nOUT_OF_MEMORY\r\n")])
@pytest.mark.parametrize("place", ["wal", "queue"])
def test_a_name_that_is_listed_and_cannot_be_looked_at(flatq, place, verb, words, said):
    if place == "wal":
        flatq("push", "q", input=b"m", check=0)
    else:
        flatq("push", "-l", "q", input=b"m\n" * 600, check=0)
    file = min(path for path in (flatq.spool / "q" / place).rglob("*") if path.is_file())
    calls = "newfstatat,statx,stat,lstat,access,faccessat,faccessat2,rename,renameat,renameat2"
    done = faulty(flatq, calls, file, verb, *(["q"] if not words else []), when="1+", input=words)
    assert (done.returncode, done.stdout) == (0 if words else 74, said), done
    assert flatq("pop", "q", check=0).out.strip() == b"m"


def test_a_push_to_a_queue_that_was_closed_whose_slip_stays(flatq):
    """The slip cannot be removed, so the push fails: a pop may have said that the queue is closed and empty."""
    flatq("create", "q", check=0)
    close = 'case $* in */wal/*/done/*) exit 1 ;; esac\nexec "$real" "$@"'
    env = {**stub(flatq, "mv", close), **stub(flatq, "base64", f'"$real" "$@"; : >{flatq.spool}/q/closed')}
    assert flatq("push", "q", input=b"m", env=env).status == 74


def test_a_new_queue_whose_mkdir_is_killed(flatq):
    """Nobody has dropped it: so it is the disk's failure, not that the queue is gone."""
    assert flatq("push", "q", input=b"m", env=stub(flatq, "mkdir", 'case $* in */q/*) kill -9 $$ ;; esac\nexec "$real" "$@"')).status == 74


def test_a_push_whose_drop_ends_before_it_looks(flatq):
    """A drop has removed wal/ when a slip is to be created, and has put it back, and ended, when the push looks for the drop."""
    flatq("push", "q", input=b"m", check=0)
    words, env = flatq.command("push", "q"), flatq.environment(None)
    slip, = (call.seq for call in gate.run(words, flatq.spool, env=env, stdin=b"m").calls if call.paths[0].startswith("q/wal/"))
    done = gate.run(words, flatq.spool, env=env, stdin=b"m", fault=gate.Fault("errno", slip, errno.ENOENT))
    assert done.calls[slip - 1].paths[0].startswith("q/wal/") and (done.fired, done.status, done.stdout) == (1, 0, b"3\n")
    done = gate.run(words, flatq.spool, env=env, stdin=b"m", fault=gate.Fault("errno_from", slip, errno.ENOENT))
    assert (done.status, done.stdout) == (74, b"")
    assert flatq("drain", "-l", "q", check=0).out == b"m\n" * 3


@pytest.mark.parametrize("words", [["push", "-d", "9", "q"], ["release", "-d", "9"], ["bury"]], ids=lambda words: words[0])
def test_a_directory_that_is_removed_and_made_again(flatq, words):
    """One verb has removed an empty directory of delayed/ or buried/, and another has made it again, before the verb that lost it looks."""
    flatq("push", "q", input=b"m", check=0)
    taken = flatq("reserve", "-t", "9999", "q", check=0).out.split()[0].decode()
    words, env = flatq.command(*words, *([] if words[0] == "push" else [taken])), flatq.environment(None)

    def strike(calls):
        return [call.seq for call in calls if re.match(r"q/(delayed|buried)/\d+/\d+/.*\.", call.paths[-1])][:1]
    copy = flatq.home / "copy"
    shutil.copytree(flatq.spool, copy, symlinks=True)
    seq, = strike(gate.run(words, flatq.spool, env=env, stdin=b"n").calls)
    for kind, status in [("errno_from", 74), ("errno", 0)]:
        shutil.rmtree(flatq.spool)
        shutil.copytree(copy, flatq.spool, symlinks=True)
        done = gate.run(words, flatq.spool, env=env, stdin=b"n", fault=gate.Fault(kind, seq, errno.ENOENT))
        assert strike(done.calls) == [seq] and done.fired and done.status == status, done
    assert lies(flatq.spool, "q")["buried" if "bury" in words[1] else "delayed"]


def test_a_first_directory_that_is_removed_and_made_again(flatq):
    """The first directory of two is there, but removed before the second is made, and there again before the verb looks."""
    env = stub(flatq, "mkdir", 'case $1.$(ls "$HOME/once") in */delayed/*.) echo >"$HOME/once"; "$real" "$1"; exit 1 ;; esac\nexec "$real" "$@"')
    flatq("push", "-d", "9", "q", input=b"m", env=env, check=0)
    assert (flatq.home / "once").exists() and len(lies(flatq.spool, "q")["delayed"]) == 1
    assert flatq("push", "-d", "9", "q", input=b"m", env=stub(flatq, "mkdir", 'case $1 in */delayed/*) exit 1 ;; esac\nexec "$real" "$@"')).status == 74


@pytest.mark.parametrize("tries", ["0", "1"])
def test_a_flat_file_that_is_away_while_it_is_searched(flatq, tries):
    """Other verbs take it after it was listed, and give it back, with its name or with one more try. Nothing has failed: the delete looks again."""
    first = int(flatq("push", "-l", "q", input=b"".join(b"%d\n" % number for number in range(100)), check=0).out.split()[0])
    away = """for file do :; done
    [ "$1" = -F ] && [ "$(wc -l <"$HOME/times")" -lt 3 ] || exec "$real" "$@"
    echo >>"$HOME/times"; mv "$file" "$HOME/away"; "$real" "$@"; code=$?; mv "$HOME/away" "${file%.*.*}.$tries.${file##*.}"; exit $code"""
    (flatq.home / "times").touch()
    flatq("delete", f"q:{first + 4}", env={**stub(flatq, "awk", away), "tries": tries}, check=0)
    assert (flatq.home / "times").stat().st_size == 3
    assert drained(flatq) == [number for number in range(100) if number != 4]


def test_a_sync_that_fails_otherwise_is_an_error(flatq):
    flatq("create", "q", check=0)
    for said in ("sync: error syncing 'x': Input/output error", "sync: error opening 'x': No such file or directory\nsync: error syncing 'y': Input/output error", ""):
        env = {**stub(flatq, "sync", f'case $* in *delayed*) [ -z "{said}" ] || echo "{said}" >&2; exit 1 ;; esac\nexec "$real" "$@"'), "FLATQ_SYNC": "on"}
        assert flatq("push", "-d", "999", "q", input=b"m", env=env).status == 74
    assert "delayed" not in lies(flatq.spool, "q")


def test_a_peek_beside_a_fold(flatq):
    """The fold removes the body that the peek has found, and is about to read."""
    fill(flatq, 3)
    env = {"sh": flatq.shell, "lib": str(LIB), "old": flatq.env["PATH"], **stub(
        flatq, "base64", 'case $* in -d*) PATH=$old FLATQ_FOLD=2 "$sh" "$lib/wal" q ;; esac\nexec "$real" "$@"')}
    for words in (["peek", "q"], ["peek", "q:2"]):
        assert flatq(*words, env=env, check=0).out == (b"2" if ":" in words[1] else b"1")
    assert drained(flatq) == [1, 2, 3]


def test_one_queue_that_fails_does_not_keep_a_verb_from_the_others(flatq):
    fill(flatq, 3)
    fill(flatq, 3, "z")
    flatq("create", "-m", "5", "a", check=0)
    (flatq.spool / "a/conf").write_text("garbage\n")
    for verb in ("wal", "doctor", "stat"):
        done = flatq(verb, env={"FLATQ_FOLD": "2"})
        assert done.status == 65 and b"queue 'a': conf is damaged" in done.err, done
    assert b"queue z\n" in done.out
    assert len(flats_of(flatq.spool, "q", "queue")) == len(flats_of(flatq.spool, "z", "queue")) == 1


@pytest.mark.parametrize("verb", ["list", "stat", "log", "wal", "doctor"])
def test_a_spool_that_cannot_be_listed_is_not_one_without_queues(flatq, verb):
    push(flatq, b"x", "q")
    done = faulty(flatq, "openat", flatq.spool, verb, error="EMFILE")
    assert (done.returncode, done.stdout) == (74, b"") and done.stderr.endswith(b"cannot be listed\n") and done.stderr.count(b"\n") == 1, done


# a part of flatq itself that cannot be read


@pytest.mark.parametrize("part", ["engine/fold", "engine/bound", "engine/slip", "engine/proof", "engine/window", "bulk/batch", "engine/push"])
def test_a_part_that_cannot_be_read(flatq, part):
    """dash takes a failed read for the end of the file. Without engine/fold, a push would count no flat file, and pass the bound."""
    flatq("create", "-b", "120", "q", check=0)
    flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(120)), check=0)
    done = faulty(flatq, "read", LIB / f"{part}.sh", "push", "q", input=b"more")
    assert (done.returncode, done.stdout) == (74, b""), done
    assert done.stderr == b"push: cannot read %s/%s.sh\n" % (str(LIB).encode(), part.encode())
    assert drained(flatq) == list(range(120))


def test_a_part_that_cannot_be_read_when_the_message_is_stored(flatq):
    """A push whose sync has failed reads engine/withdraw.sh, to take its message back. It cannot: so a consumer may have the message (R2)."""
    env = {"FLATQ_SYNC": "on"} | stub(flatq, "sync", 'case $* in *body*) exit 1 ;; esac\nexec "$real" "$@"')
    done = faulty(flatq, "read", LIB / "engine/withdraw.sh", "push", "q", input=b"1", env=env)
    assert (done.returncode, done.stdout) == (74, b"") and done.stderr.count(b"\n") == 1, done
    assert re.search(rb"cannot read .*engine/withdraw.sh: message [0-9]+ may be stored, and a retry may store it twice\n", done.stderr), done
    assert drained(flatq) == [1]


# ---- a shell that cannot restore its standard input or output goes on with the file


def descriptors(flatq, name, inject, points, *words):
    """Run a verb again and again with two messages in q, each time with the failure of another of these calls: yield (which one, the exit code, the output).
    busybox may then write errors for ever, and mksh wait (lib/README.md): so some are killed, and their code is None. In other shells each ends."""
    hangs = os.path.basename(os.path.realpath(flatq.shell)) in ("busybox", "mksh")
    flatq("create", "-b", "100", "q", check=0)
    push(flatq, b"settled", "q")
    flatq("pop", "q", check=0)
    push(flatq, b"3", "q")
    push(flatq, b"4", "q")
    saved, log, out = flatq.home / "saved", flatq.home / "calls", flatq.home / "out"
    shutil.copytree(flatq.spool, saved)
    struck, through = 0, 0
    for number in points:
        again(flatq, saved)
        with open(out, "wb") as stream:
            trace = ["strace", "-qq", "-o", log, "-e", f"trace={name}", "-e", f"inject={name}:{inject}:when={number}"]
            process = subprocess.Popen([*trace, "--", *flatq.command(*words)], start_new_session=True, env=flatq.environment(None),
                                       stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.DEVNULL)
            ended = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(b"whole\n", timeout=3 if hangs else 30)
                ended = process.returncode
            assert hangs or ended is not None, number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        struck += "INJECTED" in log.read_text()
        through += ended is not None
        yield number, ended, out.read_bytes()
    assert struck and through


@pytest.mark.shells
def test_a_look_at_a_key_that_fails_does_not_unhold_its_message(shell, flatq):
    """mksh leaves the function whose redirection fails, with 1. The checkpoint once took that for `no such key`: it removed the message and kept the key,
    and each later push with the key was told that it is a duplicate, of nothing."""
    flatq("push", "-k", "key", "q", input=b"m", check=0)
    flatq("pop", "q", check=0)
    saved, log = flatq.home / "saved", flatq.home / "calls"
    shutil.copytree(flatq.spool, saved)

    def wal(*inject):
        again(flatq, saved)
        subprocess.run([need("strace"), "-qq", "-o", log, "-e", "trace=fcntl,openat,open", "-e", "signal=none", *inject, "--", *flatq.command("wal", "q")],
                       env=flatq.environment(None), stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    wal()
    lines, calls = log.read_text().splitlines(), calls_in(log)
    at, *_ = (place for place, line in enumerate(lines) if "q/keys/" in line and "/keys/\"" not in line)
    near = [calls[place] for place in range(at - 8, at + 9) if calls[place][0] == "fcntl"] + [calls[at]]
    for name, number in near:
        wal("-e", f"inject={name}:error=EMFILE:when={number}")
        assert "INJECTED" in log.read_text()
        flatq("push", "-k", "key", "q", input=b"m", check=0)
        assert flatq("pop", "q").out == b"m", (name, number)


@pytest.mark.parametrize("words", ["push q", "push -l q"])
@pytest.mark.shells
def test_a_dup2_that_fails(shell, flatq, words):
    """The file that was read last must not be taken for the message, nor the id be printed into the body."""
    for number, code, _ in descriptors(flatq, "dup2", "error=EBUSY", sorted(chance(f"dup2 {os.path.basename(os.path.realpath(shell))} {words}").sample(range(1, 80), 40 if everything() else 10)),
                                      *words.split()):
        if code == 0:
            assert flatq("drain", "-l", "q", check=0).out.split() == [b"3", b"4", b"whole"], number


def copies(shell, words):
    """Some of a verb's first copies of a descriptor; of mksh half in `make test-all`, since the laboratory tries the other shells (test_unchanged.py)."""
    name = os.path.basename(os.path.realpath(shell))
    count = (50 if name == "mksh" else 15) if everything() else 6
    return sorted(chance(f"copies {name} {words}").sample(range(1, 111), count))


@pytest.mark.parametrize("words", ["push q", "pop q", "reserve q", "drain q", "pop -l q"])
@pytest.mark.shells
@pytest.mark.costly
def test_no_descriptor_for_a_redirection(shell, flatq, words):
    """yash then redirects for good, dash leaves the descriptor closed, and mksh leaves the function. A pop once wrote its message into a file of the queue,
    a drain lost all, and mksh left a message in out/ without an owner."""
    for number, code, out in descriptors(flatq, "fcntl", "error=EMFILE", copies(shell, words), *words.split()):
        assert code != 66, number
        if words == "reserve q":  # where the shell itself has ended, the message comes back when its lease is over
            assert b"3" in out.split() or code != 0, (number, code, out)
            continue
        left = flatq("drain", "q").out.split()
        if words == "push q":
            assert left == [b"3", b"4", b"whole"] or code != 0 and left == [b"3", b"4"], (number, code, out, left)
        else:
            assert {*left, *out.split()} >= {b"3", b"4"}, (number, code, out, left)


@pytest.mark.parametrize("words", ["drop q", "push -n 10 q", "push -e q"])
@pytest.mark.shells
def test_a_refusal_that_cannot_be_printed(shell, flatq, words):
    """mksh leaves a function whose redirection fails. Once that was `die`, before its exit: a drop without -f removed a queue with messages, and a push that
    had stored nothing printed an id."""
    for number, code, out in descriptors(flatq, "fcntl", "error=EMFILE", copies(shell, words), *words.split()):
        assert code != 0 and out == b"", (number, code, out)
        assert flatq("drain", "q", check=0).out == b"3\n4\n", number


@pytest.mark.shells
def test_a_lock_whose_descriptor_cannot_be_copied(shell, flatq):
    """mksh copies a descriptor even to close it. Once, a failed copy left the queue locked, and the next queue's lock taken for held."""
    script = 'lib=$1; . "$lib/engine/common.sh"; shell_reset; need engine/spool engine/lock; exec 9</dev/null; lock_held=1; unlock_queue; echo "held $lock_held"; [ ! -e "/proc/$$/fd/9" ] || echo open'
    ends = []
    for number in range(1, 60):
        done = subprocess.run(["strace", "-qq", "-o", "/dev/null", "-e", f"inject=fcntl:error=EMFILE:when={number}", "--", flatq.shell, "-c", script, "sh", LIB],
                              env=flatq.environment(None), capture_output=True, timeout=60)
        ends.append(done.stdout)
    assert {*ends} <= {b"held \n", b""} and ends.count(b"held \n") > 10, ends


def test_a_sync_that_fails_behind_the_marker_of_a_batch(flatq):
    """What was printed is deleted, and the error says so. The checkpoint removes what is left."""
    push(flatq, b"1", "q")
    env = {"FLATQ_SYNC": "on"} | stub(flatq, "sync", 'case $* in */out/batch*) exit 1 ;; esac\nexec "$real" "$@"')
    done = flatq("drain", "q", env=env)
    assert (done.status, done.out, done.err) == (74, b"1\n", b"drain: queue 'q': cannot sync: what was printed is deleted\n"), done
    assert list((flatq.spool / "q/out").iterdir())
    flatq("wal", check=0)
    assert flatq("pop", "q").status == 66 and not list((flatq.spool / "q/out").iterdir()) and not list((flatq.spool / "q/body").iterdir())


# ---- a push that fails behind its slip: if a consumer has the message, the push must not say that it is not there


RESERVES = 'case "$*" in *body/*) [ -e "$FLATQ_DIR/../taken" ] || PATH=${PATH#*:} "$sh" "$lib/reserve" q >"$FLATQ_DIR/../taken" ;; esac\n"$real" "$@"'


def beside(flatq, script):
    """An environment with syncs, and this script in the place of `sync`."""
    return {**stub(flatq, "sync", script), "FLATQ_SYNC": "on", "sh": flatq.shell, "lib": str(LIB)}


def unsure(flatq, done):
    assert (done.returncode, done.stdout) == (74, b"") and re.search(rb"it is unknown whether .* stored: a retry", done.stderr), done
    assert [line.split()[1] for line in flatq("list", "q", check=0).out.splitlines()] == [b"reserved"]


@pytest.mark.shells
def test_an_unsynced_message_that_is_taken(shell, flatq):
    flatq("create", "q", check=0)
    env = beside(flatq, RESERVES + '; code=$?; case "$*" in *body/*) exit 1 ;; esac; exit $code')
    unsure(flatq, subprocess.run(flatq.command("push", "q"), input=b"x", env=flatq.environment(env), capture_output=True, timeout=60))


@contextlib.contextmanager
def held_up(flatq, env, inject, *paths):
    """A push of `x` to q, whose openings of these paths strace holds up, or fails; its end, when the block is through, must be unsure()."""
    only = [word for path in paths for word in ("-P", path)]
    process = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", *only, "-e", "trace=openat,open", "-e", f"inject=openat,open:{inject}", "--", *flatq.command("push", "q")],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=flatq.environment(env))
    process.stdin.write(b"x")
    process.stdin.close()
    yield process
    process.wait(timeout=60)
    unsure(flatq, subprocess.CompletedProcess(process.args, process.returncode, process.stdout.read(), process.stderr.read()))


@pytest.mark.shells
def test_a_queue_that_cannot_be_listed_while_the_message_is_taken(shell, flatq):
    flatq("create", "q", check=0)
    q = flatq.spool / "q"
    with held_up(flatq, None, "error=EMFILE:delay_enter=3s:when=3..4", q, f"{q}/"):
        wait_for(lambda: list((q / "wal").iterdir()), "the message is there")
        flatq("reserve", "q", check=0)


@pytest.mark.shells
def test_a_message_that_is_taken_from_a_new_queue_of_the_same_name(shell, flatq):
    """The queue is dropped, and created again, when the push has opened its lock, and is about to write the body."""
    flatq("create", "q", check=0)
    q = flatq.spool / "q"
    with held_up(flatq, beside(flatq, RESERVES), "delay_enter=5s:when=1", q / "body/000000000001") as process:
        def opened():
            with contextlib.suppress(OSError, IndexError):
                return os.readlink(f"/proc/{children(process.pid)[0]}/fd/8") == str(q / "lock")

        wait_for(opened, "the push has opened the lock")
        flatq("drop", "-f", "q", check=0)
        flatq("create", "q", check=0)


@pytest.mark.shells
def test_messages_that_are_there_though_their_sync_has_failed(shell, flatq):
    flatq("create", "q", check=0)
    env = beside(flatq, 'case "$*" in */queue) "$real" "$@"; exit 1 ;; esac\nexec "$real" "$@"')
    done = flatq("push", "-l", "q", input=b"".join(b"%d\n" % n for n in range(250)), env=env)
    assert done.status == 74 and b"it is unknown whether messages 1000 to 1249 were stored: a retry" in done.err, done
    assert len(flatq("list", "q", check=0).out.splitlines()) == 250


# ---- bash that cannot make the pipe of a `$( )` runs nothing, and the assignment succeeds (R6)


@pytest.mark.whole
@pytest.mark.parametrize("sync", ["on", "off"])
@pytest.mark.parametrize("words", share("without a pipe", [
    "push q", "push -d 900 q", "push -l q", "pop q", "drain q", "reserve q", "delete R", "release R", "release -d 900 R", "bury R", "touch R", "kick q", "claim -c me q",
    "create -b 5 q"], 2))
@pytest.mark.costly
def test_bash_without_a_pipe(flatq, words, sync):
    """The first pipe() of each process of the verb fails, then the second, and so on. A verb that says that it has succeeded has done all of it, and has
    synced. Without the dot (R6), delete deleted nothing, and push -l lost a message for which it printed an id, or stored it twice."""
    flatq.shell = need("bash")
    flatq.env["FLATQ_SYNC"] = sync
    saved = flatq.home / "saved"
    push(flatq, b"first", "q")
    receipt = flatq("reserve", "-t", "900", "q", check=0).out.split()[0].decode()
    if "kick" in words:
        flatq("bury", receipt, check=0)
    if " q" in words and "kick" not in words:
        flatq("release", receipt, check=0)
    shutil.copytree(flatq.spool, saved)
    log = flatq.home / "calls"

    def run(number):
        """The verb's exit code, what it printed, what is there behind it, and whether it has synced."""
        again(flatq, saved)
        inject = ["-e", f"inject=pipe,pipe2:error=ENFILE:when={number}"] if number else []
        done = subprocess.run(["strace", "-f", "-qq", "-o", log, "-e", "trace=pipe,pipe2,fsync,syncfs", *inject,
                               "--", *flatq.command(*words.replace("R", receipt).split())], input=b"more\n", env=flatq.environment(None), capture_output=True, timeout=60)
        calls = log.read_text()
        there = [line.split()[:2] for line in flatq("list", "q").out.splitlines()], flatq("stat", "q").out.splitlines()[1:5]
        synced = "sync(" in calls or "syncfs(" in calls
        return "INJECTED" in calls, (done.returncode, done.stdout if words in ("pop q", "drain q") else b"", there, synced)

    _, whole = run(0)
    assert whole[0] == 0
    for number in itertools.count(1):
        struck, ended = run(number)
        if not struck:
            break
        assert ended[0] != 0 or ended == whole, number


@pytest.mark.parametrize("words, most, text, body", [
    ("push -n 5 q", "", b"helloX", b"hello"), ("push -n 0 q", "", b"X", b""), ("push q", "9", b"hello", b"hello"),
    ("push -e q", "", b"hello\n.\nX", b"hello\n"), ("push -e q", "9", b"hello\n.\nX", b"hello\n"), ("push -e q", "9", b".\nX", b""),
], ids=lambda value: value if isinstance(value, str) else "")
def test_yash_without_a_pipe(flatq, words, most, text, body):
    """The first pipe() of each process of the verb fails, then the second, and so on. yash then runs both sides of `a | b`, with the verb's input. Whatever
    it stores is the whole message, and nothing of what follows."""
    flatq.shell = need("yash")
    flatq("create", "q", check=0)
    (flatq.home / "text").write_bytes(text)
    log = flatq.home / "calls"
    for number in itertools.count(1):
        with open(flatq.home / "text") as stdin:
            done = subprocess.run(["strace", "-f", "-qq", "-o", log, "-e", "trace=pipe,pipe2", "-e", f"inject=pipe,pipe2:error=ENFILE:when={number}",
                                   "--", *flatq.command(*words.split())], stdin=stdin, env=flatq.environment({"FLATQ_MOST_BYTES": most or None}),
                                  capture_output=True, timeout=60)
        if "INJECTED" not in log.read_text():
            break
        stored = flatq("list", "q").out.count(b"\n")
        assert (stored, done.returncode, bool(done.stdout)) in ((1, 0, True), (0, done.returncode or None, False)), (number, done)
        assert not stored or pop(flatq, "q") == body, number
    assert number > 1 and done.returncode == 0 and pop(flatq, "q") == body


@pytest.mark.shells
def test_a_part_that_is_not_there(shell, flatq, tmp_path):
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    (lib / "engine/sync.sh").unlink()
    process = subprocess.run([*flatq.command("push", "q")[:-2], lib / "push", "q"], input=b"m", env=flatq.environment(None), capture_output=True, timeout=60)
    assert (process.returncode, process.stdout) == (74, b"") and b"push: cannot read %s/engine/sync.sh\n" % bytes(lib) in process.stderr, process
    assert flatq("pop", "q").status == 66


PARTS = sorted(str(path.relative_to(LIB)) for room in ("engine", "bulk") for path in (LIB / room).glob("*.sh") if path.name != "common.sh")


@pytest.mark.whole
@pytest.mark.parametrize("part", share("parts", PARTS, 5))
@pytest.mark.costly
def test_a_part_that_is_needed_after_a_commit(flatq, spool, tmp_path, part):
    """A verb that fails because a part is missing has done nothing; if it has done its work, it says so. Somebody waits for messages, and for room."""
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    (lib / part).unlink()

    def states():
        return [line for line in flatq("stat", "q", check=0).out.splitlines() if line.split()[0] in (b"ready", b"reserved", b"delayed", b"buried")]

    def without(*words, **more):
        process = subprocess.run([flatq.shell, lib / words[0], *words[1:]], env=flatq.environment({"FLATQ_SYNC": "on"}), capture_output=True, timeout=60, **more)
        assert process.returncode == 0 or process.stderr.endswith(b"\n"), process
        return process.returncode

    for verb, *words in (["push"], ["push", "-n", "6"], ["push", "-d", "900"], ["push", "-k", "key"], ["pop"], ["delete", "R"], ["release", "R"], ["release", "-d", "900", "R"],
                         ["bury", "R"], ["kick"], ["drain"], ["pop", "-l"]):
        flatq("drop", "-f", "q")
        flatq("create", "-b", "50", "q", check=0)
        push(flatq, b"first", "q")
        if verb == "kick":
            flatq("bury", flatq("reserve", "q", check=0).out.split()[0].decode(), check=0)
        elif "R" in words:
            words[-1] = flatq("reserve", "q", check=0).out.split()[0].decode()
        for place in ("wait", "room"):
            (spool / "q" / place / "1-000000000001.abcdef").touch()
        before = states()
        code = without(verb, *words, *([] if ":" in str(words[-1:]) else ["q"]), input=b"second")
        assert (code == 0) == (states() != before), (verb, words, code, before, states())


@pytest.mark.parametrize("verb", ["push", "pop", "work", "handler"])
def test_the_part_that_reads_the_others_cannot_be_read(flatq, verb):
    """All but its first block is missing: the clock, owners and nonces. Where that block ends in the middle of a function, dash itself gives up."""
    push(flatq, b"kept")
    done = faulty(flatq, "read", LIB / "engine/common.sh", verb, *(["-w", "0", "--", "true"] if verb == "work" else []), when="2+", input=b"pop\n")
    assert done.stdout == b"", done
    if done.returncode == 2:
        assert b"Syntax error: " in done.stderr and done.stderr.count(b"\n") == 1, done
    else:
        # a line in front of it is dash's, about the word that was cut
        assert done.returncode == 74 and done.stderr.endswith(b"%s: cannot read %s/engine/common.sh\n" % (verb.encode(), str(LIB).encode())), done
    assert pop(flatq) == b"kept"
    empty(flatq)


@pytest.mark.parametrize("verb", ["flatq", "handler"])
def test_a_verb_that_cannot_be_read(flatq, verb):
    words, request = (["flatq", "push", "q"], b"more") if verb == "flatq" else (["handler"], b"push q\nmore")
    done = faulty(flatq, "read", LIB / "push", *words, input=request)
    assert done.returncode == 74 and b"cannot read" in done.stdout + done.stderr, done
