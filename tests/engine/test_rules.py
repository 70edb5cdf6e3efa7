"""The rules R1 to R10 of lib/README.md, where they were once broken: each row of ROWS and BLIND is
a fault, the verb that it befalls, and what must be left. The crash laboratory tries all faults at
all calls of its scenarios; here are the spools and the orders of events that it does not have.

A fault is a program in PATH that fails, dies, or first runs another verb; or a system call that
fails."""

import base64
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

import pytest

from conftest import LIB, need, put_stub, share, wait_for
from engine import (
    child_named, faulty, flats_of, lies, lock_waiters, pop, push, refused, reserve, standing)
from test_talks import Talk


@pytest.fixture(autouse=True)
def _programs():
    need("strace")


def stub(flatq, name, script):
    """The environment in which the program NAME is this script; `$real` is the real program, and
    `"$sh" "$lib/VERB"` a verb. A spool with another `sync` is one that syncs."""
    place = flatq.home / "stubs"
    place.mkdir(exist_ok=True)
    put_stub(flatq, place / name, f"real={shutil.which(name)}", script)
    if name == "sync" and flatq.env["FLATQ_SYNC"] != "on":
        flatq.syncs()
    return {"PATH": f"{place}:{flatq.env['PATH']}", "old": flatq.env["PATH"], "sh": flatq.shell,
        "lib": str(LIB)}


def numbers(first, end):
    """The lines of a bulk push."""
    return b"".join(b"%d\n" % n for n in range(first, end))


def drained(flatq, queue="q"):
    """What a drain prints, as numbers, in the queue's order."""
    return [int(line) for line in flatq("drain", "-l", queue).out.split()]


def boots_again(flatq):
    """To the next verb, it is the first after a boot."""
    for path in (flatq.spool / ".boot").iterdir():
        path.unlink()


# ---- what was there before: lines as in talks.txt, whose $A is a receipt; or a function

SLIPS = "pushes q < 1 2 3"
CLOSED = f"{SLIPS}\nclose q"
POPPED = "push q < 1\npop q > 1"
RESERVED = "pushes q < 1 2\nreserve q > 1 = A"
DELAYED = "push -d 1000 q < 1"
BURIED = "push q < 1\nbury q:1"
FLAT = "push -l q < " + "".join(f"{n}\\n" for n in range(120)) + " ~ .*\\n"
HEAD = f"{FLAT}\npop q > 0"
CLAIMED = f"{FLAT}\nclaim -c me q ~ .*\\n"
EMPTY = "create q"


def prepare(flatq, setup):
    """The receipt, if there is one."""
    if callable(setup):
        return setup(flatq) or ""
    talk = Talk(flatq)
    for line in setup.split("\n"):
        talk.line(line)
    return talk.names.get("A", "")


def slips(flatq, count=3, queue="q"):
    for n in range(1, count + 1):
        push(flatq, b"%d" % n, queue)


def a_damaged_flat_file(flatq):
    prepare(flatq, FLAT)
    flat, = flats_of(flatq.spool, "q", "queue")
    flat.write_bytes(flat.read_bytes().replace(b"\tMA==\n", b"\t!MA==\n"))


def a_killed_fold(flatq):
    """A checkpoint was killed before its flat file was there: the slips are in fold/RUN/."""
    slips(flatq, 6)
    moved = sorted((flatq.spool / "q/wal").iterdir())
    run = flatq.spool / "q/fold" / (".".join(moved[0].name.split(".")[:2]) + ".0123456789ab")
    run.mkdir()
    for slip in moved:
        slip.rename(run / slip.name)


def cut_unfold(flatq):
    env = stub(flatq, "mv", 'case $* in *"/tmp/"*"/head/"*) exit 1 ;; esac\nexec "$real" "$@"')
    assert flatq("pop", "q", env=env).status == 74
    assert flats_of(flatq.spool, "q", "unfold")


def a_killed_unfold(flatq):
    """A pop was killed when its flat file was in unfold/: the slips are still in tmp/."""
    prepare(flatq, FLAT)
    cut_unfold(flatq)


def a_buried_message_beside_a_killed_unfold(flatq):
    flatq("create", "-b", "121", "q", check=0)
    prepare(flatq, BURIED)
    flatq("push", "-l", "q", input=numbers(1, 122), check=0)
    cut_unfold(flatq)


def a_killed_drain(flatq):
    """It had taken all flat files: a batch in out/ whose owner is dead, with a strange file."""
    prepare(flatq, FLAT)
    batch = flatq.spool / "q/out/batch.999999999-000000000001.0123456789ab.000000000000"
    batch.mkdir()
    (batch / "strange").touch()
    for path in flatq.spool.glob("q/queue/*/*"):
        path.rename(batch / path.name)
        path.parent.rmdir()


def a_killed_drop(flatq):
    """A drop had removed delayed/ and buried/ of an empty queue, into which a message came."""
    slips(flatq, 1)
    slip, = (flatq.spool / "q/wal").iterdir()
    slip.rename(flatq.home / slip.name)
    env = stub(flatq, "rmdir", f'"$real" "$@"; case $* in */buried) '
        f'mv "$HOME/{slip.name}" "$FLATQ_DIR/q/wal"; kill -9 $PPID ;; esac')
    flatq.start("drop", "q", env=env).wait(60)
    assert not (flatq.spool / "q/buried").exists() and (flatq.spool / "q/dropping").exists()


def an_unsure_key(flatq):
    """A push was killed after it created the slip: its key is not confirmed."""
    push(flatq, b"1", "-k", "key", "q")
    key, = (flatq.spool / "q/keys").iterdir()
    key.write_text("1\n")
    return reserve(flatq, "q").receipt


def an_id_that_comes_twice(flatq):
    slips(flatq, 1)
    entry, = (flatq.spool / ".ids").glob("*/1001")
    entry.unlink()


def an_empty_conf(flatq):
    slips(flatq, 1)
    (flatq.spool / "q/conf").write_text("")


def a_strange_file(flatq):
    slips(flatq, 1)
    (flatq.spool / "q/wal/!strange").touch()


def a_large_message(flatq):
    """Its body is removed at once."""
    push(flatq, bytes(300000), "q")


# ---- faults: (program, its words, what it does then); None: it does not fail

FAILS, DIES, DONE = "exit 1", "kill -9 $$", '"$real" "$@"; '
DONE_AND_VERB_DIES = DONE + "kill -9 $PPID"


def first(verb):
    """Another verb runs first."""
    return f'PATH=$old "$sh" "$lib"/{verb} >/dev/null 2>&1'


def once(script):
    """It does so once."""
    return f'[ -e "$HOME/once" ] || {{ : >"$HOME/once"; {script}; }}'


GONE = once('mv "$FLATQ_DIR/q" "$FLATQ_DIR/.drop.1"')


@dataclass(frozen=True)
class Row:
    """After `setup`, the verb ends with one of `codes`, says `text`, and says only one line of
    error. What a pop or drain printed, and what a drain finds later, is `left`."""

    caught: str
    setup: object
    fault: object
    words: str
    codes: object = 74
    left: object = None
    text: bytes = b""
    env: object = None


ALL = range(120)
MOVED_ON = ("mv", "*/out/*", DONE + 'rm "$3"; ' + DIES)
NO_BATCH = ("mkdir", "*/queue/*", FAILS)
FOLD = {"FLATQ_FOLD": "1"}

ROWS = [
    # R3: a verb that takes the lock recovers first
    Row("dropped what a killed unfold had left", a_killed_unfold, None, "drop q", 75, ALL),
    Row("a bound did not count it", a_buried_message_beside_a_killed_unfold, None, "kick q", 75,
        range(1, 122)),
    Row("a killed fold was left", a_killed_fold, None, "wal q", 0, range(1, 7)),
    *(Row(f"a killed fold: {words}", a_killed_fold, None, words, code, left)
        for words, code, left in (("doctor q", 0, range(1, 7)), ("drop q", 75, range(1, 7)),
        ("delete q:1", 0, range(2, 7)))),
    Row("doctor took the lock again without a recovery", SLIPS, ("flock", "*",
        '[ -e "$HOME/once" ] || { : >"$HOME/once"; exec "$real" "$@"; }; cd "$FLATQ_DIR/q" && '
        'mkdir fold/0000065536.000000000001.0123456789ab && mv wal/* fold/0*; cd "$OLDPWD"'),
        "doctor q", 0, range(1, 4)),
    # R1: absence is proved
    *(Row(f"said that nothing is there: {words}", a_killed_drain, NO_BATCH, words, 74, ALL, b"'q'")
        for words in ("pop q", "pop -l q", "drain q", "work --until-empty -q q -- cat",
        "claim -c me q", "wal q")),
    Row("a strange file in a batch kept it back", a_killed_drain, None, "wal q", 0, ALL),
    Row("a drop could not look whether a place came back", POPPED, ("ls", "*-d*/q/*",
        "exit 2"), "drop q", 74, []),
    Row("closed and empty, while a release put back a delay", f"{DELAYED}\nclose q",
        ("find", "delayed*", once("shift")), "pop q", 66),
    # R2: what happened is read from the disk
    Row("a drop was killed among the places", POPPED, ("rmdir", "*/buried",
        DONE_AND_VERB_DIES), "drop q", -9, []),
    Row("no delayed/ after a killed drop", a_killed_drop, None, "push -d 99 q", 0, [1]),
    Row("no buried/ after a killed drop", a_killed_drop, None, "bury q:1", 0, []),
    *(Row(f"said that a message is another's: {words}", RESERVED, MOVED_ON, words, 74, [2],
        b"unknown") for words in ("delete RECEIPT", "release RECEIPT", "release -d 99 RECEIPT",
        "bury RECEIPT")),
    Row("did not follow a message into a flat file", SLIPS, (("mv", "*/wal/*/done/*",
        first("wal q")), ("awk", "*", FAILS)), "delete q:2", 74, [1, 2, 3], env=FOLD),
    *(Row(f"did not find what a fold moved: {words}", SLIPS, ("mv", "*/wal/*/done/* | "
        "*/wal/*/buried/*", first("wal q")), words, 0, [2, 3], env=FOLD)
        for words in ("delete q:1", "bury q:1")),
    Row("a fold removed the body that a peek had found", SLIPS, ("base64", "-d*", first("wal q")),
        "peek q", 0, [1, 2, 3], env=FOLD),
    Row("the size of a message that had the key before", an_unsure_key, ("find",
        "'done claimed'*", 'PATH=$old "$sh" "$lib/delete" "$receipt"'), "push -k key q", 0, [7]),
    Row("doctor spoke of a message that was just popped", a_large_message, ("ls", "-ln*body",
        first("pop q")), "doctor q", 0, []),
    Row("a killed doctor doubled a flat file", a_damaged_flat_file, ("mv", "*/queue/*",
        DONE_AND_VERB_DIES), "doctor q", -9, range(1, 120)),
    Row("closed while its slip stays: acknowledged", EMPTY, (("base64", "*",
        DONE + ': >"$FLATQ_DIR/q/closed"; exit'), ("mv", "*/wal/*/done/*", FAILS)), "push q"),
    Row("dropped and made again while its body was read", EMPTY, ("base64", "*",
        DONE + first("drop -f q") + "; " + first("create q") + "; exit"), "push q", 69, [],
        b"gone"),
    *(Row(f"made part of a dropped queue again: {words}", EMPTY, ("mkdir", "*", GONE),
        words, 69, [], b"is gone") for words in ("push -d 9 q", "push -l q")),
    Row("removed another message's body", an_id_that_comes_twice, None, "push q", 74, [1]),
    Row("tried for ever to set aside", a_strange_file, ("mv", "*/tmp/strange*", FAILS), "drain q",
        74, [1]),
    # R6: both sides of a pipe say that they have finished
    *(Row(f"sed was killed behind the dot{limit}", EMPTY, ("sed", "*",
        '"$real" "$@" | head -c 3; kill -9 $$'), "push -e q", 74, [], env={"FLATQ_MOST_BYTES":
        limit}) for limit in ("", "100")),
    # R7: what is read is checked
    Row("a conf with nothing in it", an_empty_conf, None, "push q", 65),
    # R10: an error that was seen is returned
    Row("tr was killed: damaged", SLIPS, ("tr", "*", DIES), "doctor q", 74, [1, 2, 3],
        b"cannot read body/000000000001"),
    Row("a drain's sync failed behind its marker", SLIPS, ("sync", "*/out/batch*", FAILS),
        "drain q", 74, [1, 2, 3], b"cannot sync: what was printed is deleted"),
    Row("said that an unsynced message is not there", EMPTY, ("sync", "*body/*",
        first("reserve q") + "; exit 1"), "push q", 74, [], b"unknown whether"),
    Row("said that an unsynced bulk push is not there", EMPTY, ("sync", "*/queue",
        DONE + "exit 1"), "push -l q", 74, [7], b"unknown whether"),
    *(Row(f"a directory that was gone before its sync: {words}", DELAYED, ("sync",
        f"*{place}*", once(first("kick q") + "; " + first("kick q"))), words, 0)
        for words, place in (("push -d 999 q", "delayed"), ("bury q:1", "buried"))),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.caught)
def test_a_fault(flatq, row):
    receipt = prepare(flatq, row.setup)
    env = {"receipt": receipt, **(row.env or {})}
    faults = () if not row.fault else (row.fault,) if isinstance(row.fault[0], str) else row.fault
    for program, words, what in faults:
        env |= stub(flatq, program, f'case $* in {words}) {what} ;; esac\nexec "$real" "$@"')
    data = {"push -e q": b"7\n.\n", "push -0 q": b"7\0"}.get(row.words,
        b"7")
    verb, *words = row.words.replace("RECEIPT", receipt).split()
    process = flatq.start(verb, *words, env=env)
    out, err = process.communicate(data, timeout=60)
    done = (process.returncode, out, err)
    assert process.returncode == row.codes and row.text in err, done
    assert (err if verb != "doctor" or row.codes else err + out).count(b"\n") == (row.codes > 0), \
        done
    if verb in ("push", "claim", "reserve"):
        assert bool(out) == (row.codes == 0), done
    assert row.text != b"is gone" or not (flatq.spool / "q").exists()
    if row.left is not None:
        flatq("wal", "q")
        flatq("doctor", "q")
        flatq("unclaim", "-c", "me", "q")
        printed = [*map(int, out.split())] if verb in ("pop", "drain") else []
        assert sorted(printed + drained(flatq)) == list(row.left), done


LIST = ("openat", "getdents64")

# After SETUP, one look at one of PLACES (globs below the spool) fails in the verb. It ends with one
# of these codes, and LEFT is there afterwards. The laboratory's family `reads` has all other verbs
BLIND = [
    *((setup, places, "drop q", (74, 75), left) for setup, places, left in (
        (CLOSED, "q/wal", [1, 2, 3]), (RESERVED, "q/out", [2]),
        (DELAYED, "q/delayed q/delayed/* q/delayed/*/*", []),
        (CLAIMED, "q/claimed q/claimed/*", ALL), (HEAD, "q/head q/head/*", range(1, 120)),
        (BURIED, "q/buried q/buried/* q/buried/*/*", []),
        (FLAT, "q/queue q/queue/*", ALL))),
    (BURIED, "q/buried q/buried/*", "peek -s buried q", (0, 74), []),
    (RESERVED, ".boot", "stat q", (0, 74), [2]),  # it is not new: what is held stays held
    *((SLIPS, "", verb, (74,), [1, 2, 3]) for verb in ("list", "stat", "log", "wal", "doctor")),
]


@pytest.mark.parametrize("setup, places, words, codes, left", BLIND,
    ids=[f"{row[2]}: {row[1]}" for row in BLIND])
def test_one_look_fails(flatq, setup, places, words, codes, left):
    prepare(flatq, setup)
    saved = flatq.home / "saved"
    shutil.copytree(flatq.spool, saved)
    globs = [path.relative_to(flatq.spool) for glob in places.split()
        for path in sorted(flatq.spool.glob(glob))]
    struck = itertools.product(globs or [""], LIST if globs else LIST[:1], "12" if globs else "1")
    for place, call, when in share(f"blind {words} {places}", struck, 2, first=1):
        done = faulty(flatq, call, flatq.spool / place, *words.split(), when=when)
        how = (place, call, when, done)
        assert done.returncode in codes, how
        assert done.stderr.count(b"\n") == (done.returncode != 0), how
        assert words != "drop q" or (flatq.spool / "q/lock").exists(), how
        flatq("unclaim", "-c", "me", "q")
        assert drained(flatq) == list(left), how
        shutil.rmtree(flatq.spool)
        shutil.copytree(saved, flatq.spool)


def test_a_setting_that_is_none_makes_no_spool(flatq):
    env = {"FLATQ_DIR": str(flatq.home / "new"), "FLATQ_SYNC": "bad"}
    refused(flatq("push", "q", input=b"1", env=env), 64, text=b"FLATQ_SYNC")
    assert not (flatq.home / "new").exists()


@pytest.mark.parametrize("when, status", [("1", 0), ("1+", 74)])
def test_a_look_that_fails_does_not_change_how_a_spool_syncs(flatq, when, status):
    push(flatq, b"1", "q")
    boots_again(flatq)
    [mark] = flatq.spool.glob(".sync.*")
    del flatq.env["FLATQ_SYNC"]
    done = faulty(flatq, "newfstatat,stat", mark, "push", "q", input=b"2", when=when)
    assert done.returncode == status and mark.name == ".sync.off", done
    assert [*flatq.spool.glob(".sync.*")] == [mark]


@pytest.mark.parametrize("call", ["openat", "read"])
def test_a_body_that_cannot_be_read_is_not_empty(flatq, call):
    push(flatq, b"1", "q")
    done = faulty(flatq, call, flatq.spool / "q/body/000000000001", "why", "q:1", when="1+")
    assert (done.returncode, done.stdout) == (74, b""), done
    assert done.stderr == b"why: queue 'q': message 1 cannot be read\n"


def test_a_body_that_a_fold_takes_away_is_looked_for_again(flatq):
    push(flatq, b"1", "q")
    fold = 'PATH=$old FLATQ_FOLD=1 "$sh" "$lib/wal" q'
    env = stub(flatq, "head",
        f'case $* in "-c 1000 "*) {fold} ;; esac\nexec "$real" "$@"')
    assert b"\nbody 1\n" in flatq("why", "q:1", env=env, check=0).out


def test_a_flat_file_that_is_cut_is_not_listed_in_part(flatq):
    """Some awks take a read that failed for the end of the file."""
    flatq("push", "-l", "q", input=numbers(1, 600), check=0)
    [path, *_] = (flatq.spool / "q/queue").glob("*/*")
    path.write_bytes(path.read_bytes()[:4096])
    assert flatq("list", "q").status == 74


def test_a_date_that_fails_is_no_date(flatq):
    push(flatq, b"1", "-d", "60", "q")
    refused(flatq("why", "q:1", env=stub(flatq, "date", "exit 1")), 70)


def test_a_range_of_ids_is_not_opened_twice(flatq):
    """Ranges that are used up are removed."""
    for _ in range(9):
        last = push(flatq, b"1", "q", env={"FLATQ_RANGE": "3"})
    flatq("wal", check=0)
    assert last > 5 and len([*flatq.spool.glob(".ids/[0-9]*")]) == 1
    shutil.copytree(flatq.spool, flatq.home / "saved")
    for call, when in share("ids", itertools.product(LIST, "1234"), 4, first=2):
        boots_again(flatq)
        for _ in range(2):
            done = faulty(flatq, call, flatq.spool / ".ids", "push", "q", input=b"2", when=when)
            assert done.returncode == 74 or int(done.stdout) > last, (call, when, done)
        shutil.rmtree(flatq.spool)
        shutil.copytree(flatq.home / "saved", flatq.spool)


# ---- company: orders of events of three verbs


def test_a_lock_whose_queue_is_another_one_now(shell, flatq):
    """A verb waits for the lock of a queue that is dropped and created again."""
    flatq("create", "q", check=0)
    with open(flatq.spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = flatq.start("drop", "q", stdin=subprocess.DEVNULL)
        wait_for(lambda: lock_waiters(lock), "it waits for the lock")
        (flatq.spool / "q").rename(flatq.spool / ".drop.999999999")
        flatq("create", "q", check=0)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (69, b"") and err.endswith(b"queue 'q' is gone\n"), err


def test_no_verb_but_its_maker_creates_the_lock_of_a_queue(flatq):
    """A close has found the queue, which is dropped; a push that makes it again is killed among its
    places. With a lock of the close, every push would fail."""
    slips(flatq, 1)
    q = flatq.spool / "q"
    process, stopped = standing(flatq, "stat,newfstatat", 1, "close", "q", at=[q / "lock"])
    flatq("drop", "-f", "q", check=0)
    env = stub(flatq, "mkdir", f'case $* in *{q}/body*) "$real" "{q}" "{q}/body"; kill -9 $PPID ;; '
        '*) exec "$real" "$@" ;; esac')
    assert flatq.start("push", "q", env=env).wait(60) == -signal.SIGKILL
    assert (q / "body").exists() and not (q / "wal").exists()
    os.kill(stopped, signal.SIGCONT)
    assert process.wait(60) in (66, 69, 74)
    push(flatq, b"2", "q")
    assert pop(flatq, "q") == b"2"


def test_closed_and_empty_is_said_after_all_that_is_acknowledged(flatq):
    """A push -l holds the lock and has seen that the queue is open. close must wait for it."""
    flatq("create", "q", check=0)
    script = """case $* in *"/q/tmp/"*"/q/queue/"*)
        PATH=$old "$sh" "$lib/close" q 9>&- </dev/null >/dev/null 2>&1 &
        inode=$(ls -i "$FLATQ_DIR/q/lock")
        until grep -q -- "->.*:${inode%% *} " /proc/locks || [ -e "$FLATQ_DIR/q/closed" ]; do
          sleep 0.01
        done
        PATH=$old "$sh" "$lib/pop" q 9>&- >/dev/null 2>&1; echo $? >"$HOME/said" ;;
      esac
      exec "$real" "$@\""""
    done = flatq("push", "-l", "q", input=b"1\n", env=stub(flatq, "mv", script))
    assert (done.status, (flatq.home / "said").read_text()) == (0, "66\n")


def test_a_fold_is_killed_and_its_child_holds_the_lock(flatq):
    """The child still works on the run, so the next verb waits for it."""
    slips(flatq, 6)
    env = stub(flatq, "awk", '[ -e "$HOME/go" ] || { mkfifo "$HOME/go" && read -r go <"$HOME/go"; }'
        '\nexec "$real" "$@"')
    process = flatq.start("wal", "q", stdin=subprocess.DEVNULL, env={**env, "FLATQ_FOLD": "5"})
    wait_for(lambda: (flatq.home / "go").exists(), "the fold in the midst of its work")
    process.kill()
    process.wait()
    waiting = flatq.start("pop", "q", stdin=subprocess.DEVNULL)
    wait_for(lambda: child_named(waiting, "flock") or waiting.poll() is not None,
        "the pop that waits")
    assert waiting.poll() is None
    with open(flatq.home / "go", "w") as go:
        go.write("go\n")
    out, err = waiting.communicate(timeout=100)
    assert (waiting.returncode, out, err) == (0, b"1", b"")
    assert drained(flatq) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("tries", ["0", "1"])
def test_a_flat_file_that_is_away_while_it_is_searched(flatq, tries):
    """Others give it back with its name, or with one more try: the delete looks again."""
    first = int(flatq("push", "-l", "q", input=numbers(0, 100), check=0).out.split()[0])
    away = """for file do :; done
    [ "$1" = -F ] && [ "$(wc -l <"$HOME/times")" -lt 3 ] || exec "$real" "$@"
    echo >>"$HOME/times"; mv "$file" "$HOME/away"; "$real" "$@"; code=$?
    mv "$HOME/away" "${file%.*.*}.$tries.${file##*.}"; exit $code"""
    (flatq.home / "times").touch()
    flatq("delete", f"q:{first + 4}", env={**stub(flatq, "awk", away), "tries": tries}, check=0)
    assert (flatq.home / "times").stat().st_size == 3
    assert drained(flatq) == [number for number in range(100) if number != 4]


# ---- R5: the clock is read after waiting


# the verb, the program that takes from second 1000 on until 1100, and where
SLOW = [("reserve -t 10 q", "flock", "*", FLAT), ("touch -t 10 RECEIPT", "flock", "*", None),
    ("release -d 10 RECEIPT", "flock", "*", None), ("push -d 10 q", "base64", "*", EMPTY),
    ("reserve -t 10 q", "mv", "*/wal/*", "over"),
    ("touch -t 10 RECEIPT", "mv", "*/head/*", "folded")]


@pytest.mark.parametrize("words, program, at, setup", SLOW, ids=range(len(SLOW)))
def test_the_clock_is_read_after_waiting(flatq, clock, words, program, at, setup):
    """For the lock, the input, or what has to be put back: a lease that begins then ends at
    1110."""
    clock.set(100)
    if setup in (FLAT, EMPTY):
        prepare(flatq, setup)
    else:
        flatq.env["FLATQ_FOLD"] = "2"
        flatq("create", "-b", "5", "q", check=0)
        slips(flatq, 2)
        receipt = reserve(flatq, "-t", "10" if setup else "5000", "q").receipt
        words = words.replace("RECEIPT", receipt)
    clock.set(1000)
    if setup == "folded":  # the message, whose lease is over
        flatq("wal", "q", check=0)
        assert lies(flatq.spool, "q")["queue"]
    slow = f'echo "{clock.base + 1100}.00 0" >{clock.path}/uptime'
    slow = f'case $* in {at}) {slow} ;; esac\nexec "$real" "$@"'
    flatq(*words.split(), env=stub(flatq, program, slow), input=b"1", check=0)
    if "-d" in words:
        if setup is None:
            pop(flatq, "q")
        for second, status in (1109, 66), (1111, 0):
            clock.set(second)
            assert flatq("pop", "q").status == status
    else:
        slip, = (flatq.spool / "q/out").iterdir()
        assert slip.name.endswith(f".{clock.base + 1110:010d}00"), slip.name


# ---- R7: what is read is checked


def test_a_boot_that_is_none(shell, flatq):
    """Its record is a name, BOOT.vFORMAT.EPOCH.BASE64_OPTION.SYNC."""
    slips(flatq, 1)
    boot, = (flatq.spool / ".boot").iterdir()
    for record in ("v1.PPID[$(touch x)0].-w0.off", "v1.08.-w0.off", "v1.1700000000.-x.off",
            "v1.1700000000.-w0.maybe", "v1", "", "PPID[$(touch x)0].-w0.off"):
        boot = boot.rename(boot.with_name(f"{boot.name.partition('.')[0]}.{record}"))
        refused(flatq("push", "q", input=b"2"), 74, "push")
    assert not list(flatq.home.iterdir())


@pytest.mark.parametrize("name", ["a b", "k" + "0" * 31 + "g", "k" + "0" * 32])
def test_what_is_no_key_hinders_nobody(flatq, name):
    """After a boot every verb comes past the keys of all queues: one of them kept it from all."""
    push(flatq, b"m", "-k", "mine", "q")
    push(flatq, b"other", "other")
    (flatq.spool / "q/keys" / name).mkdir()
    boots_again(flatq)
    assert pop(flatq, "other") == b"other"
    flatq("doctor", check=0)
    assert flatq("push", "-k", "mine", "q", input=b"m", check=0).out.endswith(b" dup\n")


@pytest.mark.parametrize("size", ["number", "08"])
def test_doctor_calculates_with_no_name_that_is_not_ours(shell, flatq, size):
    """A file in buried/ that somebody made by hand stays, and the message beside it is looked
    at."""
    prepare(flatq, BURIED)
    buried, = flatq.spool.glob("q/buried/*/*/*")
    field = buried.name.split(".")
    buried.with_name(".".join([*field[:2], "000000000999", *field[3:8], size, *field[9:]])).touch()
    (flatq.spool / "q/body/000000000999").write_text("YQ==\n")
    (flatq.spool / "q/body" / field[2]).write_text("damaged\n")
    assert flatq("doctor", "q", check=0).out == b"queue 'q': message 1 was damaged: buried\n"
    assert len([*flatq.spool.glob("q/buried/*/*/*.000000000999.*")]) == 1


def test_a_slip_is_no_flat_file_whatever_its_numbers(flatq):
    """If a `?` matches a dot too, its tries, lease and delay look like an id."""
    push(flatq, b"x", "-d", "10000", "q")
    for words in ([], ["kick", "q"], ["claim", "-c", "me", "q"]):
        if words:
            flatq(*words, check=0)
        assert flatq("delete", "q:99").status == 66


def test_order_over_blocks(flatq):
    """A message came back and was folded with later ones. Their flat file ends after the first id
    of the next block."""
    slips(flatq, 1)
    slip, = (flatq.spool / "q/wal").iterdir()
    parts = slip.name.split(".")
    for ids in [5000, 100041, 100042], [100001, 100002]:
        block = flatq.spool / "q/queue" / f"{parts[0]}.{f'{ids[0]:012d}'[:7]}"
        block.mkdir(exist_ok=True)
        rows = "".join(".".join([parts[0], f"{n:012d}", *parts[2:]]) + "\t"
            + base64.b64encode(b"%d" % (n % 10)).decode() + "\n" for n in ids)
        name = f"{parts[0]}.{ids[0]:012d}.{ids[-1]:012d}.{len(ids)}.0.abc{ids[0]:x}"
        (block / name).write_text(rows)
    assert drained(flatq) == [1, 0, 1, 2, 1, 2]


# ---- R9: arguments have a limit


def few_names(flatq, tool):
    """This tool takes only 600 names."""
    return stub(flatq, tool, '[ $# -le 600 ] || exit 1\nexec "$real" "$@"')


def test_many_keys_are_swept_in_pieces(flatq):
    """2,000 keys in one settled batch."""
    push(flatq, b"0", "-k", "x", "q")
    q = flatq.spool / "q"
    slip, = (q / "wal").iterdir()
    parts = slip.name.split(".")
    rows = []
    for n in range(1002, 3002):
        (q / "keys" / f"k{n:032x}").write_text(f"{n}\nyes\n")
        rows.append(f"{parts[0]}.{n:012d}.0.0.60.0.{parts[6]}.1.k{n:032x}.0-0-0-0\tMQ==\n")
    block = q / "queue" / f"{parts[0]}.0000000"
    block.mkdir()
    (block / f"{parts[0]}.000000001002.000000003001.2000.0.abc").write_text("".join(rows))
    assert flatq("doctor", "q", check=0, timeout=20).out == b""
    done = flatq("drain", "q", env=few_names(flatq, "rm"), check=0)
    assert len(done.out.split()) == 2001
    assert not list((q / "keys").iterdir())


def test_many_empty_directories_are_removed_in_pieces(flatq):
    """delayed/ has 1,500 that are due."""
    slips(flatq, 1)
    q = flatq.spool / "q"
    for n in range(1500):
        (q / f"delayed/1{n // 500:06}/1{n // 500:06}{n % 500:05}").mkdir(parents=True)
    slip, = (q / "wal").iterdir()
    slip.rename(q / "delayed/1000002/100000200499" / slip.name)
    flatq("wal", "q", env=few_names(flatq, "rmdir"), check=0)
    assert not list((q / "delayed").iterdir()) and drained(flatq) == [1]


# ---- R10: an error that was seen is returned


def test_one_queue_that_fails_does_not_keep_a_verb_from_the_others(flatq):
    for queue in ("q", "z"):
        slips(flatq, 3, queue)
    flatq("create", "a", check=0)
    (flatq.spool / "a/conf").write_text("garbage\n")
    for verb in ("wal", "doctor", "stat"):
        done = flatq(verb, env={"FLATQ_FOLD": "2"})
        assert done.status == 65 and b"queue 'a': conf is damaged" in done.err, done
    assert b"queue z\n" in done.out
    assert len(flats_of(flatq.spool, "q", "queue")) == len(flats_of(flatq.spool, "z", "queue")) == 1
