"""The rules R1 to R10 of lib/README.md. For each place that once broke a rule, a test causes a
fault or runs two verbs at the same time.

A fault is a system call that fails (strace injects it), or a stub in PATH. A stub does the work of
its program and then fails or dies; or it first runs another verb, and then does its work."""

import base64
import errno
import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass

import pytest

from conftest import LIB, need, put_stub, share, wait_for
from engine import faulty, flats_of, lies, pop, push, refused, reserve, standing
from headers import verbs

from crash.gate import gate


@pytest.fixture(autouse=True)
def _programs():
    need("strace")


def stub(flatq, name, script):
    """The environment in which the program NAME is this script; `$real` is the real program. A
    spool with another `sync` is one that syncs."""
    place = flatq.home / "stubs"
    place.mkdir(exist_ok=True)
    path = place / name
    put_stub(flatq, path, f"real={shutil.which(name)}", script)
    if name == "sync" and flatq.env["FLATQ_SYNC"] != "on":
        flatq.syncs()
    return {"PATH": f"{place}:{flatq.env['PATH']}"}


def again(flatq, saved):
    """Put back the spool as it was saved."""
    shutil.rmtree(flatq.spool)
    shutil.copytree(saved, flatq.spool)


def fill(flatq, count, queue="q", *args, first=1):
    """Push so many single messages: `1` to `COUNT`."""
    script = ('set -e; n=$1; while [ "$n" -le "$2" ]; do printf %s "$n" | "$sh" "$lib/push" "$3" '
        '>/dev/null; n=$((n + 1)); done')
    subprocess.run(["dash", "-c", script, "fill", str(first), str(first + count - 1), queue],
        env=flatq.environment({"sh": flatq.shell, "lib": str(LIB)}), check=True)


def drained(flatq, queue="q"):
    """What a drain prints, as numbers, in the queue's order."""
    return [int(line) for line in flatq("drain", "-l", queue).out.split()]


def cut_fold(flatq, queue="q"):
    """Leave what a checkpoint leaves that was killed before its flat file was there: the slips in
    fold/RUN/."""
    q = flatq.spool / queue
    slips = sorted(path.name for path in (q / "wal").iterdir())
    run = q / "fold" / (".".join(slips[0].split(".")[:2]) + ".0123456789ab")
    run.mkdir()
    for slip in slips:
        (q / "wal" / slip).rename(run / slip)
    return run


def cut_unfold(flatq, queue="q"):
    """Leave what a pop leaves that was killed when its flat file was in unfold/: the slips are
    still in tmp/."""
    env = stub(flatq, "mv", 'case $* in *"/tmp/"*"/head/"*) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("pop", queue, env=env).status == 74
    assert flats_of(flatq.spool, queue, "unfold")


# R3: a verb that takes the lock recovers first


def test_drop_counts_what_a_killed_unfold_has_left(flatq):
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)
    cut_unfold(flatq)
    assert b"ready 120" in flatq("stat", "q", check=0).out
    assert flatq("drop", "q").status == 75
    assert drained(flatq) == list(range(120))


def test_kick_counts_what_a_killed_unfold_has_left(flatq):
    flatq("create", "-b", "121", "q", check=0)
    receipt = flatq("push", "q", input=b"0") and reserve(flatq, "q").receipt
    flatq("bury", receipt, check=0)
    flatq("push", "-l", "q", input=numbers(1, 122), check=0)
    cut_unfold(flatq)
    assert flatq("kick", "q").status == 75
    assert drained(flatq) == list(range(1, 122))


def test_doctor_recovers_when_it_takes_the_lock_again(flatq):
    """Between the doctor's checkpoint and its own look, another checkpoint begins a fold and is
    killed."""
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


@pytest.mark.parametrize("verb", ["wal", "drain", "push -k key", "claim -c me", "doctor", "drop",
    "delete q:1"])
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


def numbers(first, end):
    """The lines of a bulk push."""
    return b"".join(b"%d\n" % n for n in range(first, end))


def a_flat_file(flatq):
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)


def a_killed_fold(flatq):
    fill(flatq, 6)
    cut_fold(flatq)


def a_committed_fold(flatq):
    """Its bodies are still there."""
    fill(flatq, 30)
    env = stub(flatq, "rm", 'case $PWD in */body) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("wal", "q", env={**env, "FLATQ_FOLD": "20"}).status == 74


def a_killed_unfold(flatq):
    a_flat_file(flatq)
    cut_unfold(flatq)


def slips(flatq):
    """Three in wal/ of a closed queue, so that it may be called empty."""
    fill(flatq, 3)
    flatq("close", "q", check=0)


def a_head(flatq):
    """The rest of a flat file that a pop has unfolded, in a closed queue."""
    a_flat_file(flatq)
    assert flatq("pop", "q", check=0).out == b"0"
    flatq("close", "q", check=0)


def a_claim(flatq):
    flatq("push", "-l", "q", input=numbers(0, 200), check=0)
    flatq("claim", "-c", "me", "q", check=0)


def a_dead_owner(flatq):
    fill(flatq, 1)
    slip, = (flatq.spool / "q/wal").iterdir()
    parts = slip.name.split(".")
    parts[2:4] = ["1", "0123456789ab"]
    slip.rename(flatq.spool / "q/out" / (".".join(parts) + ".999999999-000000000001.000000000000"))
    flatq("close", "q", check=0)


def a_reservation(flatq):
    fill(flatq, 2)
    return reserve(flatq, "q").receipt


def a_delayed_message(flatq):
    flatq("push", "-d", "1000", "q", input=b"1", check=0)


def a_buried_message(flatq):
    fill(flatq, 1)
    flatq("bury", "q:1", check=0)


def a_full_queue(flatq):
    """Two are ready, one is delayed, one reserved."""
    flatq("create", "-b", "4", "q", check=0)
    fill(flatq, 2)
    flatq("push", "-d", "1000", "q", input=b"3", check=0)
    flatq("reserve", "-t", "1000", "q", check=0)
    flatq("push", "q", input=b"4", check=0)


def a_key(flatq):
    flatq("push", "-k", "key", "q", input=b"1", check=0)


def a_settled_key(flatq):
    a_key(flatq)
    assert flatq("pop", "q", check=0).out == b"1"


def a_settled_batch(flatq):
    """A drain was killed before it removed what it had settled, a key among it."""
    a_key(flatq)
    flatq("drain", "q",
        env=stub(flatq, "rm", 'case $* in *batch*) exit 1 ;; esac\nexec "$real" "$@"'))
    assert any(name.startswith("batch.") for name in lies(flatq.spool, "q")["done"])


LOOK = "newfstatat,stat,statx,faccessat2,access"
LIST = ("openat", "getdents64")
ALL = range(120)


@dataclass(frozen=True)
class Blind:
    """After `setup`, which returns a receipt if it has one, one look at one of these places (globs
    below the spool) fails in the verb. It ends with one of these codes, and does not say `never`;
    what is there after it, or was printed by it, is `left`."""

    setup: object
    places: str
    words: str
    left: object = None
    codes: tuple = (0, 74)
    calls: tuple = (*LIST, LOOK)
    never: bytes = b"dup"
    env: object = None
    whens: str = "12"


FOLDED = {"FLATQ_FOLD": "20"}
BLIND = [
    Blind(a_killed_fold, "q/fold/*.* q/fold q/queue q/tmp q/unfold", "wal q", range(1, 7)),
    Blind(a_committed_fold, "q/queue q/queue/* q/queue/*/*", "wal q", range(1, 31),
    calls=(*LIST, "read"), env=FOLDED),
    Blind(a_killed_unfold, "q/unfold q/tmp/0* q/head q/tmp", "wal q", ALL),
    Blind(a_claim, "q/claimed/me q/claimed/me/*.200* q/claimed q/out q/queue", "unclaim -c me q",
    range(200)),
    *(Blind(setup, where, f"{verb} q", left, calls=LIST) for verb in ("pop", "drain", "pop -l",
    "reserve", "claim -c me")
      for setup, where, left in ((slips, "q/wal", range(1, 4)),
      (a_head, "q/head q/head/*", range(1, 120)), (a_flat_file, "q/queue q/queue/*", ALL))),
    Blind(a_dead_owner, "q/out", "pop q", [1], calls=LIST),
    *(Blind(a_reservation, "q/out", f"{verb} RECEIPT", calls=LIST) for verb in ("delete", "release",
    "bury", "touch")),
    *(Blind(setup, where, "drop q", codes=(74, 75), calls=LIST) for setup, where in (
        (slips, "q/wal"), (a_reservation, "q/out"), (a_delayed_message,
        "q/delayed q/delayed/* q/delayed/*/*"), (a_claim, "q/claimed q/claimed/*"),
        (a_buried_message, "q/buried q/buried/* q/buried/*/*"), (a_head, "q/head q/head/*"),
        (a_flat_file, "q/queue q/queue/*"))),
    Blind(a_full_queue, "q/wal q/out q/delayed", "push -k new q", codes=(74, 75), calls=LIST),
    Blind(a_key, "q/keys/* q/wal q/wal/*", "push -k key q", [1], calls=(*LIST, LOOK, "read"),
    never=b"\n2"),
    Blind(a_settled_key, "q/done q/keys", "push -k key q"),
    Blind(a_settled_batch, "q/done q/out q/keys", "push -k key q"),
    Blind(a_settled_batch, "q/out/batch.* q/out q/done q/done/batch.*", "wal q", []),
    Blind(a_settled_batch, "q/done/batch.*", "pop q", [], codes=(66, 74), calls=(LOOK,)),
    *(Blind(slips, "", f"{verb}", codes=(74,), calls=("openat",), whens="1") for verb in ("list",
    "stat", "log", "wal", "doctor")),
]


@pytest.mark.parametrize("row", BLIND, ids=lambda row: f"{row.setup.__name__}, {row.words}")
def test_one_look_fails(flatq, row):
    receipt = row.setup(flatq)
    places = [path for glob in row.places.split() for path in sorted(flatq.spool.glob(glob))] or [
        flatq.spool]
    words = row.words.replace("RECEIPT", receipt or "").split()
    for place, call, when in struck(flatq, f"blind {row.setup.__name__} {row.words}", places,
            row.calls, row.whens, 2, first=1):
        done = faulty(flatq, call, place, *words, when=when, input=b"2", env=row.env)
        how = (place, call, when, done)
        assert done.returncode in row.codes and row.never not in done.stdout and done.stderr.count(
            b"\n") == (done.returncode != 0), how
        if row.left is not None and words[0] not in ("reserve", "claim"):
            flatq("wal", "q", check=0)
            flatq("unclaim", "-c", "me", "q")
            left = [*map(int, done.stdout.split())] if words[0] in ("pop", "drain") else []
            assert sorted(left + drained(flatq)) == list(row.left), how
        elif words[0] == "drop":
            assert (flatq.spool / "q").exists(), how


def struck(flatq, name, places, calls, whens, count, first):
    """Yield a fresh copy of the spool for each fault: (place, call, when)."""
    saved = flatq.spool.parent / "saved"
    shutil.copytree(flatq.spool, saved)
    for place, call, when in share(name, itertools.product(places, calls, whens), count,
            first=first):
        again(flatq, saved)
        yield flatq.spool / place, call, when


def claimed(flatq, name="me", queue="q"):
    """What the name has claimed: a list of (offset, number)."""
    found = []
    for line in flatq("claim", "-c", name, "-n", "0", queue, check=0).out.decode().splitlines():
        offset, count, path = line.split(" ", 2)
        rows = [row for flat in sorted(os.listdir(path)) for row in open(os.path.join(path, flat),
            "rb")]
        assert len(rows) == int(count)
        found += enumerate((int(base64.b64decode(row.split(b"\t")[1])) for row in rows),
            int(offset))
    return found


@pytest.mark.parametrize("verb", ["claim", "wal", "settle", "push -k"])
def test_offsets_are_not_given_twice(flatq, verb):
    flatq("push", "-l", "q", input=numbers(0, 300), check=0)
    flatq("claim", "-c", "me", "-n", "150", "q", check=0)
    flatq("settle", "-c", "me", "150", "q", check=0)
    flatq("claim", "-c", "me", "-n", "100", "q", check=0)
    held = claimed(flatq)
    assert held == [(n, n) for n in range(150, 250)]
    words = {"claim": ["-c", "me", "-n", "150", "q"], "settle": ["-c", "me", "150", "q"],
        "wal": ["q"], "push -k": ["-k", "x", "q"]}[verb]
    for place, call, when in struck(flatq, f"offsets {verb}", ("q/claimed/me", "q/claimed"),
            (*LIST, LOOK), "123", 2, first=3):
        done = faulty(flatq, call, place, verb.split()[0], *words, when=when)
        assert done.returncode in (0, 74), (place, call, when, done)
        assert claimed(flatq)[:100] == held, (place, call, when)
        assert len(list((flatq.spool / "q/claimed/me").glob("settled.*"))) == 1


def test_the_keys_of_a_settled_batch_go_with_it(flatq):
    for n in range(30):
        flatq("push", "-k", f"k{n}", "q", input=b"%d" % n, check=0)
    flatq("wal", "q", env=FOLDED, check=0)
    for place, call, when in struck(flatq, "keys", ("q/keys", "q/out"), LIST, "12", 2, first=2):
        faulty(flatq, call, place, "drain", "q", when=when)
        flatq("wal", "q", check=0)
        flatq("drain", "q")
        assert b"dup" not in flatq("push", "-k", "k7", "q", input=b"7", check=0).out, (place, call,
            when)


def test_a_range_of_ids_is_not_opened_twice(flatq):
    env = {"FLATQ_RANGE": "3"}
    last = max(int(flatq("push", "q", input=b"1", env=env, check=0).out) for _ in range(9))
    flatq("wal", check=0)
    assert last > 5 and not (flatq.spool / ".ids/000000000").exists()
    for place, call, when in struck(flatq, "ids", (".ids",), LIST, "1234", 5, first=8):
        shutil.rmtree(flatq.spool / ".boot")
        for _ in range(2):
            done = faulty(flatq, call, place, "push", "q", input=b"2", when=when)
            assert done.returncode == 74 or int(done.stdout) > last, (call, when, done)


@pytest.mark.parametrize("verb", ["peek -s buried", "kick"])
@pytest.mark.parametrize("more", [0, 1])
def test_a_directory_of_buried_messages_that_cannot_be_listed(shell, flatq, verb, more):
    """The verb fails, or takes one of a later directory: only the order may suffer. If there is
    none, it does not say that nothing is there."""
    late = flatq.spool / "q/buried/9999999/999999900"
    for call, depth in itertools.product(LIST, (0, 1)):
        flatq("drop", "-f", "q")
        fill(flatq, 1 + more)
        for _ in range(1 + more):
            flatq("bury", reserve(flatq, "q").receipt, check=0)
        first, *last = sorted((flatq.spool / "q/buried").glob("*/*/*"), key=lambda path: path.name)
        for path in last:
            late.mkdir(parents=True)
            path.rename(late / f"999999900000{path.name[12:]}")
        done = faulty(flatq, call, first.parents[depth], *verb.split(), "q", when="1+")
        assert done.returncode == 74 or more and done.stdout in (b"1\n", b"2"), (call, depth, done)
        assert first.exists() and done.stderr.count(b"\n") == (done.returncode == 74)


def test_a_boot_that_cannot_be_read_is_not_new(flatq):
    """If a verb took it for a new boot, it would put back what living processes hold."""
    fill(flatq, 1)
    flatq("reserve", "q", check=0)
    for call in LIST:
        assert faulty(flatq, call, flatq.spool / ".boot", "stat", "q").returncode in (0, 74)
        assert lies(flatq.spool, "q")["out"]


def test_a_lock_whose_queue_is_another_one_now(shell, flatq):
    """A verb waits for the lock of a queue that is dropped and created again."""
    fill(flatq, 1)
    with open(flatq.spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = flatq.start("push", "-k", "key", "q")
        process.stdin.close()
        process.stdin = None
        inode = os.fstat(lock.fileno()).st_ino
        wait_for(lambda: any(f":{inode} " in line and "->" in line for line in open("/proc/locks")),
            "it waits for the lock")
        (flatq.spool / "q").rename(flatq.spool / ".drop.999999999")
        flatq("create", "q", check=0)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (69, b"") and err.endswith(
        b"push: queue 'q' is gone\n"), err


# R2: a verb reads from the disk what has happened


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$"])
def test_a_fold_whose_rename_is_killed_behind_it_is_committed(flatq, end):
    fill(flatq, 28)
    env = stub(flatq, "mv",
        f'case $* in *"/tmp/"*"/queue/"*) "$real" "$@"; {end} ;; esac\nexec "$real" "$@"')
    flatq("wal", "q", env={**env, "FLATQ_FOLD": "20"}, check=0)
    assert drained(flatq) == list(range(1, 29))
    flatq("wal", check=0)
    assert lies(flatq.spool, "q").keys() <= {"done"}


# R4: moves without the lock cannot be counted


def test_drop_beside_a_create_that_makes_a_place_again(flatq):
    """drop has counted no message, since one was just released, and has removed out/. A create
    makes out/ again, and a reserve takes the message there, from wal/, which drop removes last."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    receipt = reserve(flatq, "q").receipt
    env = stub(flatq, "rmdir", """"$real" "$@" || exit
        case $* in */q/out) : >"$HOME/removed"; until [ -e "$HOME/go" ]; do sleep 0.01; done
        esac""")
    # the message moves from out/, which is listed last, to wal/, which was listed first
    env |= stub(flatq, "find", f"""mkdir "$HOME/once" || exec "$real" "$@"
        "$real" "$@" | grep -v ^out/
        exec dash {LIB}/release {receipt}""")
    process = flatq.start("drop", "q", env=env, stdin=subprocess.DEVNULL)
    wait_for((flatq.home / "removed").exists, "drop has removed out/")
    create = flatq.start("create", "q", stdin=subprocess.DEVNULL)
    wait_for((q / "out").exists, "out/ is there again")
    again = reserve(flatq, "q")
    (flatq.home / "go").touch()
    assert (process.wait(60), create.wait(60)) == (75, 0)
    assert again.body == b"1"
    flatq("delete", again.receipt, check=0)


def test_no_verb_but_its_maker_creates_the_lock_of_a_queue(flatq):
    """A close has found the queue, which is then dropped; a push that makes it again is killed
    among its places. A lock that the close had created would say that all are there, and every push
    would fail."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    process, _, stopped = standing(flatq, "stat,newfstatat", 1, "close", "q", at=[q / "lock"])
    flatq("drop", "-f", "q", check=0)
    env = stub(flatq, "mkdir",
        f'case $* in *{q}/body*) "$real" "{q}" "{q}/body"; kill -9 $PPID ;; *) exec "$real" "$@" '
        ';; esac')
    assert flatq.start("push", "q", env=env).wait(60) == -signal.SIGKILL
    assert (q / "body").exists() and not (q / "wal").exists()
    os.kill(stopped, signal.SIGCONT)
    assert process.wait(60) in (66, 69, 74)
    assert not (q / "lock").exists()
    flatq("push", "q", input=b"2", check=0)
    assert flatq("pop", "q", check=0).out == b"2"


def test_what_a_killed_verb_tried_to_write_is_removed(flatq):
    """A verb whose write failed asks the system why, with a file of its own. Until then no other
    verb takes that for a message."""
    fill(flatq, 1)
    killed = stub(flatq, "dd", '"$real" "$@"; kill -9 $PPID')
    body = flatq.spool / "q/body/000000000002"
    assert faulty(flatq, "write", body, "push", "q", error="ENOSPC", input=b"2",
        env=killed).returncode == 74
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
def test_a_queue_that_is_named_like_what_is_swept(flatq, name):
    """The checkpoint and a boot remove what killed verbs have left, but no queue."""
    flatq("push", name, input=b"in the queue", check=0)
    flatq("wal", check=0)
    boots_again(flatq)
    flatq("wal", check=0)
    assert flatq("pop", name, check=0).out == b"in the queue"


def test_what_a_killed_verb_tried_to_write_among_delayed_messages(flatq):
    """It is due with them, and no verb waits for it then."""
    fill(flatq, 1)
    receipt = reserve(flatq, "q").receipt
    env = stub(flatq, "mv",
        'case $* in */delayed/*) echo "mv: x: No space left on device" >&2; exit 1 ;; esac; exec '
        '"$real" "$@"')
    # Last, since this tries the tools, dd among them
    env |= stub(flatq, "dd", '"$real" "$@"; kill -9 $PPID')
    assert flatq("release", "-d", "1", receipt, env=env).status == 74
    # the release tries twice, and reads the clock each time
    probes = list(flatq.spool.glob("q/delayed/*/*/probe.*"))
    assert probes
    flatq("delete", receipt, check=0)
    past = flatq.spool / "q/delayed/0000000"
    past.mkdir()
    for number, place in enumerate({probe.parent for probe in probes}):
        place.rename(past / f"{number:012}")
    assert (flatq("pop", "q").status, flatq("drain", "q").status) == (66, 66)
    flatq("drop", "q", check=0)


def test_ranges_from_which_no_id_was_taken_are_removed(flatq):
    for _ in range(5):
        flatq("push", "-l", "q", input=b"x\n", check=0)
    flatq("wal", check=0)
    assert len([*flatq.spool.glob(".ids/[0-9]*")]) == 1
    last = flatq("push", "-l", "q", input=b"x\n", check=0).out.split()[0]
    assert int(last) >= 5000 and int(flatq("push", "q", input=b"y", check=0).out) > int(last)


def test_a_drop_that_cannot_look_whether_a_place_came_back(flatq):
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    env = stub(flatq, "ls",
        f"case $* in *-d*{flatq.spool}/q/*) exit 2 ;; esac; exec \"$real\" \"$@\"")
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
    """A message comes while it removes the places, and the disk has no room for them. The next verb
    makes them."""
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    push_now = f'''"$real" "$@"; code=$?
        case $* in */out)
          printf new | PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}/push" q 9>&- \
            >"$HOME/pushed" 2>&1 &
          until ls "$FLATQ_DIR"/q/wal/* >/dev/null 2>&1 || [ -s "$HOME/pushed" ]; do :; done
        esac; exit $code'''
    env = {**stub(flatq, "rmdir", push_now), **stub(flatq, "mkdir",
        "echo 'No space left on device' >&2; exit 1")}
    assert flatq("drop", "q", env=env).status == 74
    wait_for((flatq.home / "pushed").read_text, "the push ends")
    assert flatq("pop", "q", check=0).out == b"new"
    flatq("drop", "q", check=0)


def test_a_drop_whose_rename_is_killed_behind_it(flatq):
    fill(flatq, 1)
    env = stub(flatq, "mv",
        'case $* in */.drop.*) "$real" "$@"; kill -9 $$ ;; esac\nexec "$real" "$@"')
    flatq("drop", "-f", "q", env=env, check=0)
    assert not (flatq.spool / "q").exists()


@pytest.mark.parametrize("place, words", [("delayed", ["push", "-d", "99", "q"]),
    ("buried", ["bury", "q:1"])], ids=["push", "bury"])
def test_a_directory_by_time_beside_a_drop(flatq, place, words):
    """The drop has removed delayed/ and buried/, and is killed. What comes then has to put them
    back before it makes a directory there."""
    flatq("push", "q", input=b"m", check=0)
    slip, = (flatq.spool / "q/wal").iterdir()
    slip.rename(flatq.home / slip.name)
    env = stub(flatq, "rmdir",
        f'"$real" "$@"; case $* in */buried) mv "$HOME/{slip.name}" "$FLATQ_DIR/q/wal"; kill -9 '
        '$PPID ;; esac')
    flatq.start("drop", "q", env=env).wait(60)
    assert not (flatq.spool / "q" / place).exists() and (flatq.spool / "q/dropping").exists()
    flatq(*words, input=b"n", check=0)
    assert len(lies(flatq.spool, "q")[place]) == 1


# R5: the clock is read after waiting


def test_a_lease_begins_when_the_message_is_taken(flatq, clock):
    """The reserve has to unfold, and waits for the lock longer than the lease."""
    clock.set(1000)
    flatq("push", "-l", "-t", "10", "q", input=numbers(0, 120), check=0)
    flatq("reserve", "q",
        env=stub(flatq, "flock",
        f'echo "{clock.base + 1100}.00 0" >{clock.path}/uptime\nexec "$real" "$@"'),
        check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(f".{clock.base + 1110:010d}00"), slip.name


def test_a_touch_counts_from_when_it_has_the_lock(flatq, clock):
    clock.set(1000)
    flatq("create", "-b", "5", "q", check=0)
    flatq("push", "-t", "10", "q", input=b"1", check=0)
    receipt = reserve(flatq, "q").receipt
    flatq("touch", receipt,
        env=stub(flatq, "flock",
        f'echo "{clock.base + 1005}.00 0" >{clock.path}/uptime\nexec "$real" "$@"'),
        check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(f".{clock.base + 1015:010d}00"), slip.name


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
    slow = (f'case "$*" in */wal/* | */head/*) echo "{clock.base + 2100}.00 0" '
        f'>{clock.path}/uptime ;; '
        'esac\nexec "$real" "$@"')
    flatq(verb, "-t", "10", *words, env=stub(flatq, "mv", slow), check=0)
    slip, = (flatq.spool / "q/out").iterdir()
    assert slip.name.endswith(f".{clock.base + 2110:010d}00"), slip.name


@pytest.mark.parametrize("verb", ["push", "release"])
def test_a_delay_begins_when_the_message_was_read(flatq, clock, verb):
    clock.set(1000)
    if verb == "push":
        env = stub(flatq, "base64",
            f'echo "{clock.base + 1100}.00 0" >{clock.path}/uptime\nexec "$real" "$@"')
        flatq("push", "-d", "50", "q", input=b"1", env=env, check=0)
    else:
        flatq("create", "-b", "5", "q", check=0)
        fill(flatq, 1)
        receipt = reserve(flatq, "q").receipt
        flatq("release", "-d", "50", receipt, env=stub(flatq, "flock",
            f'echo "{clock.base + 1100}.00 0" >{clock.path}/uptime\nexec "$real" "$@"'), check=0)
    clock.set(1149)
    assert flatq("pop", "q").status == 66
    clock.set(1151)
    assert flatq("pop", "q", check=0).out == b"1"


# R6: both sides of a pipe report that they have finished


def test_a_size_whose_end_was_not_seen(flatq):
    for end in "kill -9 $$", "exit 1", "exit 0":
        assert flatq("push", "q", input=b"x" * 2000, env=stub(flatq, "tail", end)).status == 74, end
    assert drained(flatq) == []


# R7: what is read from the disk is checked


@pytest.mark.parametrize("field, text", [(2, "08"), (4, "08"), (5, "09"), (7, "08"),
    (9, "08-0-0-0"), (9, "a-b-c-d"), (9, "1-2-3"), (8, "k12"), (3, "")])
def test_a_slip_that_is_none(flatq, field, text):
    fill(flatq, 2)
    first, _ = sorted((flatq.spool / "q/wal").iterdir())
    parts = first.name.split(".")
    parts[field] = text
    first.rename(first.with_name(".".join(parts)))
    assert flatq("pop", "q", check=0).out == b"2"


@pytest.mark.parametrize("record", ["v1.PPID[$(touch x)0].-w0.off", "v1.08.-w0.off",
    "v1.1700000000.-x.off",
    "v1.1700000000.-w0.maybe", "v1", "", "PPID[$(touch x)0].-w0.off"])
def test_a_boot_that_is_none(shell, flatq, record):
    """Its record is a name, BOOT.vFORMAT.EPOCH.BASE64_OPTION.SYNC."""
    fill(flatq, 1)
    boot, = (flatq.spool / ".boot").iterdir()
    boot.rename(boot.with_name(f"{boot.name.partition('.')[0]}.{record}"))
    done = flatq("push", "q", input=b"2")
    assert done.status == 74 and done.err.count(b"\n") == 1, done
    assert not list(flatq.home.iterdir())


def test_an_empty_conf_is_its_own_queues_matter(flatq):
    fill(flatq, 1)
    fill(flatq, 1, "other")
    (flatq.spool / "q/conf").write_text("")
    shutil.rmtree(flatq.spool / ".boot")
    assert flatq("pop", "other", check=0).out == b"1"
    assert flatq("push", "q", input=b"2").status == 65


# R9: arguments have a limit; R10: an error that was seen is returned


@pytest.mark.parametrize("name", ["a b", "k" + "0" * 31 + "g", "k" + "0" * 32])
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
        rows.append(".".join([parts[0], f"{n:012d}", "0", "0", "60", "0", parts[6], "1", key,
            "0-0-0-0"]) + "\tMQ==\n")
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
    """delayed/ and buried/ have 1,500 empty directories each, and those of delayed/ are due. The
    rmdir of `wal` takes only 600 names; find counts for that of `drop`."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    for n in range(1500):
        (q / f"delayed/1{n // 500:06}/1{n // 500:06}{n % 500:05}").mkdir(parents=True)
        (q / f"buried/0000001/0000001{n:05}").mkdir(parents=True)
    slip, = (q / "wal").iterdir()
    slip.rename(q / "delayed/1000002/100000200499" / slip.name)
    if verb == "wal":
        env = stub(flatq, "rmdir", '[ $# -le 600 ] || exit 1\nexec "$real" "$@"')
        flatq("wal", "q", env=env, check=0)
        assert not list((q / "delayed").iterdir()) and drained(flatq) == [1]
    else:
        assert flatq("drop", "q").status == 75
        assert flatq("pop", "q", check=0).out == b"1"
        for n in range(1500):
            (q / f"delayed/1{n // 500:06}/1{n // 500:06}{n % 500:05}").mkdir(parents=True,
                exist_ok=True)
        flatq("drop", "q", check=0)
        assert not q.exists()


def test_a_checkpoint_whose_sweep_fails_says_so(flatq):
    fill(flatq, 1)
    flatq("pop", "q", check=0)
    assert flatq("wal", "q", env=stub(flatq, "rm", "exit 1")).status == 74


def test_a_sync_that_fails_is_not_hidden_by_another(flatq):
    """If `sync -f` fails, a `sync` of everything would end with 0 and hide the error."""
    fill(flatq, 1)
    env = stub(flatq, "sync", 'case $1 in -f) exit 1 ;; esac\nexit 0')
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
    faulty(flatq, "read", body, "wal", "q", env={"PATH": f"{place}:{flatq.env['PATH']}",
        "FLATQ_FOLD": "20"})
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
    """The find of the proof sees an empty delayed/: the message is in wal/. When it comes to wal/,
    a release has put the message back."""
    flatq("push", "-d", "99", "q", input=b"m", check=0)
    flatq("close", "q", check=0)
    released = ('case $1.$(ls "$HOME/once" 2>/dev/null) in delayed.) : >"$HOME/once"; shift ;; '
        'esac\nexec "$real" "$@"')
    assert flatq("pop", "q", env=stub(flatq, "find", released)).status == 66
    assert (flatq.home / "once").exists()


def test_push_abandons_only_a_body_of_its_own(flatq):
    """The same id comes twice. The body that exists belongs to another message, so the push must
    not remove it."""
    fill(flatq, 1)
    journal, = (flatq.spool / ".ids").glob("*/1001")
    journal.unlink()
    assert flatq("push", "q", input=b"2").status == 74
    assert drained(flatq) == [1]


def test_order_over_blocks(flatq):
    """A message came back and was folded with later ones. Their flat file ends after the first id
    of the next block."""
    fill(flatq, 1)
    q = flatq.spool / "q"
    slip, = (q / "wal").iterdir()
    parts = slip.name.split(".")
    for numbers in [5000, 100041, 100042], [100001, 100002]:
        block = q / "queue" / f"{parts[0]}.{f'{numbers[0]:012d}'[:7]}"
        block.mkdir(exist_ok=True)
        rows = "".join(".".join([parts[0], f"{n:012d}", *parts[2:]]) + "\t"
            + base64.b64encode(b"%d" % (n % 10)).decode() + "\n" for n in numbers)
        name = f"{parts[0]}.{numbers[0]:012d}.{numbers[-1]:012d}.{len(numbers)}.0.abc{numbers[0]:x}"
        (block / name).write_text(rows)
    assert drained(flatq) == [1, 0, 1, 2, 1, 2]


# beside a drop: 69, and no part of the queue comes back


GONE = {
    "push -d": (["push", "-d", "9", "q"], "mkdir", None), "push -l": (["push", "-l", "q"], "mkdir",
    None),
    "create": (["create", "q"], "mkdir", "after"), "create -b": (["create", "-b", "3", "q"],
    "mkdir", "after"),
}


@pytest.mark.parametrize("what", GONE)
def test_a_queue_that_is_dropped_meanwhile_is_gone(flatq, what):
    (verb, *args), program, when = GONE[what]
    flatq("create", "q", check=0)
    drop = (f'[ -e "$HOME/dropped" ] || {{ true >"$HOME/dropped"; mv {flatq.spool}/q '
        f'{flatq.spool}/.drop.1; }}')
    script = f'"$real" "$@"; code=$?\n{drop}\nexit $code' if when else f'{drop}\nexec "$real" "$@"'
    env = stub(flatq, program, script)
    done = flatq(verb, *args, input=b"x\n.\n", env=env)
    assert (flatq.home / "dropped").exists() and (done.status, done.out) == (69,
        b"") and b"is gone" in done.err, done
    assert not (flatq.spool / "q").exists()


def test_a_sed_that_is_killed_behind_the_dot(flatq):
    """sed has reported that the dot came, but has not written all that stood before it. The push
    stores nothing, also with a limit on the size."""
    script = '"$real" "$@" | head -c 3\nkill -KILL $$'
    for most in (None, "100"):
        done = flatq("push", "-e", "q", input=b"a whole message\n.\n",
            env={**stub(flatq, "sed", script), "FLATQ_MOST_BYTES": most})
        assert (done.status, done.out) == (74, b""), (most, done)
    env = {"FLATQ_MOST_BYTES": "15"}
    assert flatq("push", "-e", "q", input=b"a whole message\n.\n", env=env).status == 65
    flatq("push", "-e", "q", input=b"a whole messag\n.\n", env=env, check=0)
    assert flatq("pop", "q").out == b"a whole messag\n"


def test_one_look_at_conf_or_closed_that_fails(flatq):
    """In a bounded queue a message still moves under the lock, and of a closed and empty queue a
    verb still says that it is closed."""
    flatq("create", "-b", "5", "q", check=0)
    fill(flatq, 1)
    receipt = reserve(flatq, "q").receipt
    env = stub(flatq, "flock", 'echo locked >>"$HOME/flock"\nexec "$real" "$@"')
    assert faulty(flatq, LOOK, flatq.spool / "q/conf", "release", receipt, env=env).returncode == 0
    assert (flatq.home / "flock").exists()
    assert drained(flatq) == [1]
    flatq("close", "q", check=0)
    assert faulty(flatq, LOOK, flatq.spool / "q/closed", "pop", "q").returncode == 69


@pytest.mark.parametrize("when", ["1", "1+"])
def test_a_block_that_one_look_does_not_see_takes_in_what_push_l_brings(flatq, when):
    """An `mv DIRECTORY DIRECTORY` would put the new block inside the old one, where no verb
    looks."""
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)
    block, = (flatq.spool / "q/queue").iterdir()
    done = faulty(flatq, LOOK, block, "push", "-l", "q", when=when, input=numbers(120, 240))
    assert (done.returncode == 0) == bool(done.stdout), done
    assert not [path for path in block.iterdir() if path.is_dir()]
    assert drained(flatq) == list(range(240 if done.stdout else 120))


def test_a_stage_of_which_an_mv_leaves_the_rest_is_not_acknowledged(flatq):
    """If mv is killed after the first flat file, the push fails. If it is killed after the last
    flat file or after the whole block, all messages are stored, and the push succeeds."""
    lines = [numbers(1000 * turn, 1000 * turn + 600) for turn in range(3)]
    flatq("push", "-l", "q", input=lines[0], env=stub(flatq, "mv", '"$real" "$@"\nkill -KILL $$'),
        check=0)
    flatq("push", "-l", "q", input=lines[1], env=stub(flatq, "mv", '"$real" "$@"\nkill -KILL $$'),
        check=0)
    some = ('for last; do :; done\ncase $last in */queue/*) "$real" -f "$2" "$last"; kill -KILL '
        '$$ ;; esac\nexec "$real" "$@"')
    done = flatq("push", "-l", "q", input=lines[2], env=stub(flatq, "mv", some))
    assert (done.status, done.out) == (74, b""), done
    assert drained(flatq) == [1000 * turn + n for turn in range(3) for n
        in range(600 if turn < 2 else 500)]


MOVING = '''
    places=
    while :; do case $1 in "!" | "(" | -*) break ;; esac; places="$places $1"; shift; done
    for place in $places; do
      case $place in
      out) PATH=$old "$sh" "$lib/release" "$(cat "$HOME/receipt")" || : ;;
      wal)
        PATH=$old "$sh" "$lib/reserve" -t 9999 q >"$HOME/said" &&
        read -r receipt rest <"$HOME/said" && printf %s "$receipt" >"$HOME/receipt" ;;
      esac >/dev/null 2>&1
      "$real" "$place" "$@" || exit
    done'''


def moving(flatq):
    """A find that lets a message move first, against the order in which it lists the places. So it
    sees the message in none."""
    receipt = flatq("reserve", "-t", "9999", "q", check=0).out.split()[0]
    (flatq.home / "receipt").write_bytes(receipt)
    return {**stub(flatq, "find", MOVING), "old": flatq.env["PATH"], "sh": flatq.shell,
        "lib": str(LIB)}


def test_doctor_leaves_the_body_of_a_message_that_it_sees_nowhere(flatq):
    """The body stays, and the key with it: a push may be at work."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    body, = (flatq.spool / "q/body").iterdir()
    assert b"1 bodies without a message" in flatq("doctor", "q", env=moving(flatq), check=0).out
    assert body.exists() and list((flatq.spool / "q/keys").iterdir())
    flatq("release", (flatq.home / "receipt").read_text(), check=0)
    assert drained(flatq) == [1]


def verb_before(flatq, program, pattern, verb):
    """The environment in which another verb runs before this program, if the program's arguments
    match the pattern."""
    return {**stub(flatq, program,
        f'case $* in {pattern}) PATH=$old "$sh" "$lib"/{verb} >/dev/null ;; esac\nexec "$real" '
        '"$@"'), "old": flatq.env["PATH"],
            "sh": flatq.shell, "lib": str(LIB), "FLATQ_FOLD": "1"}


@pytest.mark.parametrize("size", ["number", "08"])
def test_doctor_calculates_with_no_name_that_is_not_ours(shell, flatq, size):
    """R7, of a file in buried/ that somebody made by hand: it stays, and the message beside it is
    looked at."""
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


def test_a_body_that_no_program_can_look_at_is_not_damaged(flatq):
    """tr is killed each time: doctor says so, and buries nothing."""
    fill(flatq, 1)
    refused(flatq("doctor", "q", env=stub(flatq, "tr", "kill -KILL $$")), 74, "doctor",
        text=b"cannot read body/000000000001")
    assert flatq("pop", "q", check=0).out


def test_doctor_says_nothing_of_a_message_that_is_popped_between_its_lists(flatq):
    """The message is large, so its body is removed at once."""
    flatq("push", "q", input=bytes(300000), check=0)
    assert flatq("doctor", "q", env=verb_before(flatq, "ls", "-ln*body", "pop q"),
        check=0).out == b""
    assert drained(flatq) == []


def test_a_message_that_cannot_be_followed_is_not_said_to_be_gone(flatq):
    """A fold has moved the message to a flat file, which the verb cannot read. The verb must not
    answer that the message is gone."""
    fill(flatq, 3)
    env = {**verb_before(flatq, "mv", "*/wal/*/done/*", "wal q"), **stub(flatq, "awk", "exit 1")}
    assert flatq("delete", "q:2", env=env).status == 74
    assert drained(flatq) == [1, 2, 3]


def test_a_message_that_cannot_be_moved_nor_looked_at_is_not_anothers(flatq):
    fill(flatq, 1)
    receipt = reserve(flatq, "q").receipt
    slip, = (flatq.spool / "q/out").iterdir()
    env = stub(flatq, "mv", "exit 1")
    assert faulty(flatq, LOOK, slip, "delete", receipt, when="2+", env=env).returncode == 74
    flatq("delete", receipt, check=0)


def unsure_key(flatq):
    """Leave a message whose push was killed after it created the slip: its key is not confirmed."""
    flatq("push", "-k", "key", "q", input=b"1", check=0)
    key, = (flatq.spool / "q/keys").iterdir()
    key.write_text("1\n")


def test_a_key_is_not_free_because_a_listing_missed_its_message(flatq):
    """Both looks of the push at out/ fail, and the message moves while find lists the places. The
    push must not take the key."""
    unsure_key(flatq)
    done = faulty(flatq, "openat", flatq.spool / "q/out", "push", "-k", "key", "q", when="1..2",
        input=b"2", env=moving(flatq))
    assert done.stdout in (b"1 dup\n", b"") and done.returncode == (0 if done.stdout else 74), done


def test_a_push_whose_key_becomes_free_has_a_size_of_its_own(flatq):
    """The message that has the key is settled between two looks of the push. The new message then
    needs a slip with its own size."""
    unsure_key(flatq)
    receipt = reserve(flatq, "q").receipt
    flatq("push", "-k", "key", "q", input=b"a longer one", env=verb_before(flatq, "find",
        "'done claimed'*", f"delete {receipt}"), check=0)
    assert flatq("doctor", "q", check=0).out == b""
    assert flatq("pop", "q", check=0).out == b"a longer one"


def test_a_key_that_a_sweep_cannot_look_at_is_not_left_to_nobody(flatq):
    """The key's message is settled. If the sweep removed the message and left the key, every later
    push would be answered `dup`."""
    for verb in "pop", "drain":
        flatq("push", "-k", "key", "q", input=b"1", check=0)
        assert flatq(verb, "q", env=stub(flatq, "rm", "exit 1") if verb == "drain"
            else None).out.strip() == b"1"
        (flatq.home / "stubs/rm").unlink(missing_ok=True)
        key, = (flatq.spool / "q/keys").glob("k*")
        assert faulty(flatq, f"openat,{LOOK}", key, "wal", "q", when="1+").returncode == 74
        assert b"dup" not in flatq("push", "-k", "key", "q", input=b"2", check=0).out
        assert flatq("pop", "q", check=0).out == b"2"
        flatq("wal", "q", check=0)


@pytest.mark.parametrize("verb", ["delete", "bury"])
def test_a_message_that_a_fold_moves_meanwhile_is_still_there(flatq, verb):
    fill(flatq, 1)
    flatq(verb, "q:1", env=verb_before(flatq, "mv", "*/wal/*/done/* | */wal/*/buried/*", "wal q"),
        check=0)
    assert [len(lies(flatq.spool, "q").get(place, [])) for place in ("done", "buried")] == [verb
        == "delete", verb == "bury"]
    assert drained(flatq) == []


def test_a_doctor_that_is_killed_at_a_flat_file_leaves_each_message_once(flatq):
    """It is killed after each of its renames, and the next doctor does the rest."""
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)
    flat, = (flatq.spool / "q/queue").glob("*/*")
    rows = flat.read_bytes().splitlines(keepends=True)
    flat.write_bytes(b"".join([rows[0].replace(b"\t", b"\t!"), *rows[1:]]))
    env = stub(flatq, "mv", '"$real" "$@"\ncase $* in */queue/*) kill -KILL $PPID ;; esac')
    for _ in range(2):
        assert subprocess.run(flatq.command("doctor", "q"), env=flatq.environment(env),
            stdout=subprocess.DEVNULL, timeout=60).returncode == -signal.SIGKILL
        assert len(list((flatq.spool / "q/queue").glob("*/*"))) == 1
    flatq("doctor", "q", check=0)
    assert drained(flatq) == list(range(1, 120))


@pytest.mark.parametrize("args", [("q",), ("-k", "key", "q"), ("-l", "q")])
def test_a_push_whose_id_cannot_be_printed_says_so(shell, flatq, args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(flatq.command("push", *args), input=b"1\n", stdout=full,
            stderr=subprocess.PIPE, env=flatq.environment(None), timeout=60)
    assert done.returncode == 74 and done.stderr.startswith(b"push: message") and done.stderr.count(
        b"\n") == 1, done
    assert drained(flatq) == [1]


def to_full(flatq, *args):
    """Run a verb whose standard output cannot be written. It must end with 74 and one line, which
    this returns."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(flatq.command(*args), stdout=full, stderr=subprocess.PIPE,
            env=flatq.environment(None), timeout=60)
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1, (args, done)
    return done.stderr


@pytest.mark.parametrize("args", [("list",), ("list", "q"), ("stat", "q"), ("doctor", "q"),
    ("doctor", "-v", "q"), ("flatq", "-h"), ("flatq", "kick", "-h")])
def test_what_cannot_be_printed_is_an_error(shell, flatq, args):
    fill(flatq, 1)
    (flatq.spool / "q/wal/strange").touch()
    assert b"could not be printed" in to_full(flatq, *args)
    # doctor repairs what it finds all the same
    assert (flatq.spool / "q/wal/strange").exists() == (args != ("doctor", "q"))


def test_help_that_cannot_be_printed_is_an_error(flatq):
    for verb in (*verbs(), "handler", "beanstalk", "small-stalk", "http", "./launch"):
        name = verb.removeprefix("./")
        assert to_full(flatq, verb, "-h") == f"{name}: the help could not be printed\n".encode()


def killed_drain(flatq, queue="q"):
    """Leave what a drain leaves that was killed after it took all flat files: a batch in out/ whose
    owner is dead."""
    q = flatq.spool / queue
    batch = q / "out/batch.999999999-000000000001.0123456789ab.000000000000"
    batch.mkdir()
    for path in q.glob("queue/*/*"):
        path.rename(batch / path.name)
        path.parent.rmdir()
    return batch


@pytest.mark.parametrize("verb", ["pop q", "pop -l q", "drain q", "work --until-empty -q q -- cat",
    "claim -c me q", "wal q"])
def test_a_batch_that_cannot_be_put_back_is_not_nothing_there(flatq, verb):
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)
    killed_drain(flatq)
    done = flatq(*verb.split(), env=stub(flatq, "mkdir",
        'case $* in */queue/*) exit 1 ;; esac\nexec "$real" "$@"'))
    assert (done.status, done.out) == (74, b""), done
    assert done.err.count(b"\n") == 1 and b"queue 'q'" in done.err
    assert drained(flatq) == list(range(120))


def test_what_is_strange_in_a_batch_keeps_nothing_back(flatq):
    flatq("push", "-l", "q", input=numbers(0, 120), check=0)
    (killed_drain(flatq) / "strange").touch()
    assert drained(flatq) == list(range(120))
    assert not list((flatq.spool / "q/out").iterdir())


def test_a_slip_is_no_flat_file_whatever_its_numbers(shell, flatq):
    """Its tries, lease and delay look like an id if a `?` matches a dot too. Then a search for any
    id finds a file, and no search finds a message."""
    flatq("push", "-d", "10000", "q", input=b"x", check=0)
    assert flatq("delete", "q:99").status == 66
    flatq("kick", "q", check=0)
    assert flatq("delete", "q:99").status == 66
    flatq("claim", "-c", "me", "q", check=0)
    assert flatq("delete", "q:99").status == 66


# R2: what the shell says that it could not do, it may have done


def test_a_withdrawn_push_that_is_swept_is_not_acknowledged(flatq):
    """The mv that withdraws the push does its work, and a sweep removes the message, before the mv
    is killed."""
    flatq("create", "q", check=0)
    killed = f'''case $* in */wal/*/done/*)
        "$real" "$@"; PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}/wal" q; kill -9 $$
        esac; exec "$real" "$@"'''
    env = {**stub(flatq, "mv", killed), **stub(flatq, "base64",
        f'"$real" "$@"; : >{flatq.spool}/q/closed')}
    done = flatq("push", "q", input=b"m", env=env)
    assert (done.status, done.out) == (74, b"") and b"unknown" in done.err, done
    assert flatq("pop", "q").status == 69


@pytest.mark.parametrize("verb, words", [("delete", []), ("release", []), ("release", ["-d", "99"]),
    ("bury", [])])
def test_what_was_moved_and_has_moved_on_is_not_said_to_be_anothers(flatq, verb, words):
    """The mv does its work, and the message moves on, before the mv is killed. The verb cannot tell
    who it was."""
    flatq("push", "q", input=b"m", check=0)
    receipt = reserve(flatq, "q").receipt
    moved = 'case $* in */out/*) "$real" "$@"; rm "$3"; kill -9 $$ ;; esac\nexec "$real" "$@"'
    done = flatq(verb, *words, receipt, env=stub(flatq, "mv", moved))
    assert done.status == 74 and b"unknown" in done.err, done


def test_a_push_to_a_queue_that_was_closed_whose_slip_has_moved(flatq):
    """A pop says that the queue is closed and empty. Then the push creates its slip, which a kick
    moves before the push has seen that the queue is closed."""
    flatq("create", "q", check=0)
    q, said = flatq.spool / "q", []
    with_old = f'PATH="{flatq.env["PATH"]}" "{flatq.shell}" "{LIB}'
    env = stub(flatq, "base64",
        f'"$real" "$@"; {with_old}/close" q; {with_old}/pop" q 2>/dev/null; echo $? >"$HOME/said"')

    def each(call, out, err):
        if not said and any(q.glob("delayed/*/*/*")):
            said.append(flatq("kick", "q").status)

    done = gate.run(flatq.command("push", "-d", "99", "q"), flatq.spool, env=flatq.environment(env),
        stdin=b"m", each=each, kinds=gate.READS)
    assert ((flatq.home / "said").read_text(), said) == ("69\n", [0])
    assert (done.status, done.stdout) == (69, b""), done
    assert flatq("pop", "q").status == 69


# A directory that another verb removes, since it is empty, cannot be synced


def test_a_message_that_moves_on_before_it_is_synced(flatq):
    """With its last message, a directory of delayed/ or buried/ is gone. Nothing has failed."""
    flatq("create", "q", check=0)
    flatq.syncs()
    env = {"sh": flatq.shell, "lib": str(LIB), "old": flatq.env["PATH"]}
    next_verb = '''case $* in
    *delayed*) sleep 1.1; PATH=$old "$sh" "$lib/reserve" -t 9999 q >"$HOME/said" ;;
    *buried*) for turn in 1 2; do PATH=$old "$sh" "$lib/kick" q >/dev/null; done ;; esac
    exec "$real" "$@"'''
    flatq("wal", env=env)
    env.update(stub(flatq, "sync", next_verb))
    assert flatq("push", "-d", "1", "q", input=b"m", env=env, check=0).out == b"1\n"
    receipt = (flatq.home / "said").read_text().split()[0]
    flatq("release", "-d", "1", receipt, env=env, check=0)
    flatq("bury", (flatq.home / "said").read_text().split()[0], env=env, check=0)
    env.update(stub(flatq, "sync",
        'case $*  in *done*) rmdir "$FLATQ_DIR"/q/delayed/*/* "$FLATQ_DIR"/q/delayed/* ;; '
        'esac\nexec "$real" "$@"'))
    flatq("push", "-d", "999", "q", input=b"n", env=env, check=0)
    flatq("delete", "q:2", env=env, check=0)
    assert flatq("drain", "q", check=0).out == b"m\n"


@pytest.mark.parametrize("verb, words, said", [("reserve", b"", b".1."),
    ("beanstalk", b"use q\r\nreserve-job 1\r\nquit\r\n", b"RESERVED 1 ")])
def test_a_take_whose_drop_ends_before_it_looks(flatq, verb, words, said):
    """A drop has removed out/ when a message is to go there, and has put it back, and ended, when
    the take looks for the drop."""
    assert flatq("push", "q", input=b"m", check=0).out == b"1\n"
    once = """case $*.$(ls "$HOME/once" 2>/dev/null) in
    */q/out/*.)
      : >"$HOME/once"; rmdir "${3%/*}"; "$real" "$@"; code=$?; mkdir "${3%/*}"; exit $code ;; esac
    exec "$real" "$@\""""
    done = flatq(verb, *(["q"] if verb == "reserve" else []), input=words,
        env=stub(flatq, "mv", once), check=0)
    assert said in done.out and (flatq.home / "once").exists()


@pytest.mark.parametrize("verb, words, said", [("pop", b"", b""), ("reserve", b"", b""),
    ("beanstalk", b"watch q\r\nreserve-with-timeout 0\r\nreserve-job 1\r\nquit\r\n",
    b"WATCHING 2\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\n")])
def test_a_take_that_always_fails(flatq, verb, words, said):
    """It ends with the failure, as a disk that is read-only would have it, and does not try for
    ever."""
    flatq("push", "q", input=b"m", check=0)
    done = flatq(verb, *(["q"] if not words else []), input=words,
        env=stub(flatq, "mv", 'case $* in */out/*) exit 1 ;; esac\nexec "$real" "$@"'), timeout=20)
    assert (done.status, done.out) == (0 if words else 74, said)
    assert flatq("pop", "q", check=0).out == b"m"


@pytest.mark.parametrize("verb, words", [("drain", []), ("pop", ["-l"]), ("claim", ["-c", "me"])])
@pytest.mark.parametrize("what", ["out/", "tmp/strange"])
def test_a_bulk_take_that_always_fails(flatq, verb, words, what):
    """Neither does this one, which has the queue's lock."""
    flatq("push", "q", input=b"m", check=0)
    if what == "tmp/strange":
        (flatq.spool / "q/wal/!strange").touch()
    done = flatq(verb, *words, "q", env=stub(flatq, "mv",
        f'case $* in */{what}*) exit 1 ;; esac\nexec "$real" "$@"'), timeout=20)
    assert (done.status, done.out) == (74, b"") and done.err.count(b"\n") == 1
    assert flatq("pop", "q", check=0).out == b"m"


def test_a_push_to_a_queue_that_was_closed_whose_slip_stays(flatq):
    """The slip cannot be removed, so the push fails: a pop may have said that the queue is closed
    and empty."""
    flatq("create", "q", check=0)
    close = 'case $* in */wal/*/done/*) exit 1 ;; esac\nexec "$real" "$@"'
    env = {**stub(flatq, "mv", close), **stub(flatq, "base64",
        f'"$real" "$@"; : >{flatq.spool}/q/closed')}
    assert flatq("push", "q", input=b"m", env=env).status == 74


def test_a_new_queue_whose_mkdir_is_killed(flatq):
    """Nobody has dropped it: so it is the disk's failure, not that the queue is gone."""
    assert flatq("push", "q", input=b"m", env=stub(flatq, "mkdir",
        'case $* in */q/*) kill -9 $$ ;; esac\nexec "$real" "$@"')).status == 74


def test_a_push_whose_drop_ends_before_it_looks(flatq):
    """A drop has removed wal/ when a slip is to be created, and has put it back, and ended, when
    the push looks for the drop."""
    flatq("push", "q", input=b"m", check=0)
    words, env = flatq.command("push", "q"), flatq.environment(None)
    slip, = (call.seq for call in gate.run(words, flatq.spool, env=env, stdin=b"m").calls
        if call.paths[0].startswith("q/wal/"))
    done = gate.run(words, flatq.spool, env=env, stdin=b"m", fault=gate.Fault("errno", slip,
        errno.ENOENT))
    assert done.calls[slip - 1].paths[0].startswith("q/wal/") and (done.fired, done.status,
        done.stdout) == (1, 0, b"3\n")
    done = gate.run(words, flatq.spool, env=env, stdin=b"m", fault=gate.Fault("errno_from", slip,
        errno.ENOENT))
    assert (done.status, done.stdout) == (74, b"")
    assert flatq("drain", "-l", "q", check=0).out == b"m\n" * 3


@pytest.mark.parametrize("words", [["push", "-d", "9", "q"], ["release", "-d", "9"], ["bury"]],
    ids=lambda words: words[0])
def test_a_directory_that_is_removed_and_made_again(flatq, words):
    """One verb has removed an empty directory of delayed/ or buried/, and another has made it
    again, before the verb that lost it looks."""
    flatq("push", "q", input=b"m", check=0)
    taken = flatq("reserve", "-t", "9999", "q", check=0).out.split()[0].decode()
    words, env = flatq.command(*words, *([] if words[0] == "push" else [taken])), flatq.environment(
        None)

    def strike(calls):
        return [call.seq for call in calls if re.match(r"q/(delayed|buried)/\d+/\d+/.*\.",
            call.paths[-1])][:1]
    copy = flatq.home / "copy"
    shutil.copytree(flatq.spool, copy, symlinks=True)
    seq, = strike(gate.run(words, flatq.spool, env=env, stdin=b"n").calls)
    for kind, status in [("errno_from", 74), ("errno", 0)]:
        shutil.rmtree(flatq.spool)
        shutil.copytree(copy, flatq.spool, symlinks=True)
        done = gate.run(words, flatq.spool, env=env, stdin=b"n",
            fault=gate.Fault(kind, seq, errno.ENOENT))
        assert strike(done.calls) == [seq] and done.fired and done.status == status, done
    assert lies(flatq.spool, "q")["buried" if "bury" in words[1] else "delayed"]


def test_a_first_directory_that_is_removed_and_made_again(flatq):
    """The first directory of two is there, but removed before the second is made, and there again
    before the verb looks."""
    env = stub(flatq, "mkdir",
        'case $1.$(ls "$HOME/once") in */delayed/*.) echo >"$HOME/once"; "$real" "$1"; exit 1 ;; '
        'esac\nexec "$real" "$@"')
    flatq("push", "-d", "9", "q", input=b"m", env=env, check=0)
    assert (flatq.home / "once").exists() and len(lies(flatq.spool, "q")["delayed"]) == 1
    assert flatq("push", "-d", "9", "q", input=b"m", env=stub(flatq, "mkdir",
        'case $1 in */delayed/*) exit 1 ;; esac\nexec "$real" "$@"')).status == 74


@pytest.mark.parametrize("tries", ["0", "1"])
def test_a_flat_file_that_is_away_while_it_is_searched(flatq, tries):
    """Other verbs take it after it was listed, and give it back, with its name or with one more
    try. Nothing has failed: the delete looks again."""
    first = int(flatq("push", "-l", "q", input=numbers(0, 100), check=0).out.split()[0])
    away = """for file do :; done
    [ "$1" = -F ] && [ "$(wc -l <"$HOME/times")" -lt 3 ] || exec "$real" "$@"
    echo >>"$HOME/times"; mv "$file" "$HOME/away"; "$real" "$@"; code=$?
    mv "$HOME/away" "${file%.*.*}.$tries.${file##*.}"; exit $code"""
    (flatq.home / "times").touch()
    flatq("delete", f"q:{first + 4}", env={**stub(flatq, "awk", away), "tries": tries}, check=0)
    assert (flatq.home / "times").stat().st_size == 3
    assert drained(flatq) == [number for number in range(100) if number != 4]


def test_a_sync_that_fails_otherwise_is_an_error(flatq):
    flatq("create", "q", check=0)
    for said in ("sync: error syncing 'x': Input/output error",
            "sync: error opening 'x': No such file or directory\nsync: error syncing 'y': "
            "Input/output error", ""):
        env = stub(flatq, "sync",
            f'case $* in *delayed*) [ -z "{said}" ] || echo "{said}" >&2; exit 1 ;; esac\nexec '
            '"$real" "$@"')
        assert flatq("push", "-d", "999", "q", input=b"m", env=env).status == 74
    assert "delayed" not in lies(flatq.spool, "q")


def test_a_peek_beside_a_fold(flatq):
    """The fold removes the body that the peek has found, and is about to read."""
    fill(flatq, 3)
    env = {"sh": flatq.shell, "lib": str(LIB), "old": flatq.env["PATH"], **stub(
        flatq, "base64",
        'case $* in -d*) PATH=$old FLATQ_FOLD=2 "$sh" "$lib/wal" q ;; esac\nexec "$real" "$@"')}
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


def test_a_sync_that_fails_behind_the_marker_of_a_batch(flatq):
    """What was printed is deleted, and the error says so. The checkpoint removes what is left."""
    push(flatq, b"1", "q")
    env = stub(flatq, "sync",
        'case $* in */out/batch*) exit 1 ;; esac\nexec "$real" "$@"')
    done = flatq("drain", "q", env=env)
    assert (done.status, done.out, done.err) == (74, b"1\n",
        b"drain: queue 'q': cannot sync: what was printed is deleted\n"), done
    assert list((flatq.spool / "q/out").iterdir())
    flatq("wal", check=0)
    assert flatq("pop", "q").status == 66 and not list((flatq.spool / "q/out").iterdir(
        )) and not list((flatq.spool / "q/body").iterdir())


# ---- a push that fails behind its slip: if a consumer has the message, the push must not say that
# it is not there


RESERVES = ('case "$*" in *body/*) [ -e "$FLATQ_DIR/../taken" ] || PATH=${PATH#*:} "$sh" '
    '"$lib/reserve" q >"$FLATQ_DIR/../taken" ;; esac\n"$real" "$@"')


def beside(flatq, script):
    """An environment with syncs, and this script in the place of `sync`."""
    return {**stub(flatq, "sync", script), "sh": flatq.shell, "lib": str(LIB)}


def unsure(flatq, done):
    assert (done.returncode, done.stdout) == (74, b"") and re.search(
        rb"it is unknown whether .* stored: a retry", done.stderr), done
    assert [line.split()[1] for line in flatq("list", "q", check=0).out.splitlines()] == [
        b"reserved"]


@pytest.mark.shells
def test_an_unsynced_message_that_is_taken(shell, flatq):
    flatq("create", "q", check=0)
    env = beside(flatq, RESERVES + '; code=$?; case "$*" in *body/*) exit 1 ;; esac; exit $code')
    unsure(flatq, subprocess.run(flatq.command("push", "q"), input=b"x", env=flatq.environment(env),
        capture_output=True, timeout=60))


def test_a_message_that_is_taken_from_a_new_queue_of_the_same_name(flatq):
    """The queue is dropped, and created again, when the push has opened its lock, and is about to
    write the body: then it is a push to the new queue."""
    flatq("create", "q", check=0)
    made = []

    def each(call, out, err):
        if not made and call.paths[0] == "q/body/000000000001":
            made.extend([flatq("drop", "-f", "q", check=0), flatq("create", "q", check=0)])

    done = gate.run(flatq.command("push", "q"), flatq.spool, env=flatq.environment(
        beside(flatq, RESERVES)), stdin=b"x", each=each)
    assert made
    assert (done.status, done.stdout) == (0, b"1\n"), done
    assert flatq("list", "q", check=0).out.split()[1] == b"reserved"


@pytest.mark.shells
def test_messages_that_are_there_though_their_sync_has_failed(shell, flatq):
    flatq("create", "q", check=0)
    env = beside(flatq, 'case "$*" in */queue) "$real" "$@"; exit 1 ;; esac\nexec "$real" "$@"')
    done = flatq("push", "-l", "q", input=numbers(0, 250), env=env)
    text = b"it is unknown whether messages 1000 to 1249 were stored: a retry"
    assert done.status == 74 and text in done.err, done
    assert len(flatq("list", "q", check=0).out.splitlines()) == 250
