"""The checkpoint moves single messages into flat files, and back, and keeps their order, whatever
happens meanwhile."""

import base64
import shutil
import subprocess

import pytest

from conftest import Runner, everything, wait_for
from engine import child_named, empty, lies, loop, pop, push, refused, reserve

DEEP = 1500
# one process runs these tests, so that the queue is filled once
deeply = pytest.mark.xdist_group("deep")
FEW = 210


def priority(k):
    return (65536, 65536, 65536, 10, 65536, 70000)[k // 100 % 6]


def text(k):
    return b"message %d\n" % k


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A spool with 1,500 messages in three priorities, from four producers; and the message of each
    id."""
    top = tmp_path_factory.mktemp("deep")
    runner = Runner(shutil.which("dash"), top / "spool", top)
    loop(runner, '''
        part() {
          k=$1
          while [ $k -lt $2 ]; do
            case $((k / 100 % 6)) in 3) p=10 ;; 5) p=70000 ;; *) p=65536 ;; esac
            printf 'message %d\n' $k | "$sh" "$lib/push" -p $p deep >>ids.$1 || exit
            k=$((k + 4))
          done
        }
        all=
        for k in 0 1 2 3; do part $k $1 & all="$all $!"; done
        for pid in $all; do wait $pid || exit; done''', DEEP)
    ids = {}
    for part in range(4):
        lines = (top / f"ids.{part}").read_text().split()
        ids.update({int(number): part + 4 * index for index, number in enumerate(lines)})
    assert len(ids) == DEEP
    return top / "spool", ids


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A spool that has in few/ as many messages as a checkpoint folds."""
    top = tmp_path_factory.mktemp("few")
    runner = Runner(shutil.which("dash"), top / "spool", top)
    loop(runner, '''
        k=0
        while [ $k -lt $1 ]; do
          printf 'message %d\n' $k | "$sh" "$lib/push" few || exit
          k=$((k + 1))
        done >few''', FEW)
    return top / "spool"


def with_copy(flatq, spool):
    shutil.rmtree(flatq.spool)
    shutil.copytree(spool, flatq.spool)
    return flatq


@pytest.fixture
def filled(flatq, made):
    return with_copy(flatq, made)


@pytest.fixture
def filled_deep(flatq, deep):
    return with_copy(flatq, deep[0])


def flats(spool, queue):
    return sorted((spool / queue / "queue").glob("*/*"))


def stored(spool, queue):
    """The ready messages by the queue's files, in order, each from one place only. This is quicker
    than popping them all."""
    q = spool / queue
    assert not list(q.glob("fold/*/*")) and not list(q.glob("unfold/[!~]*"))
    found = [(path.name, (q / "body" / path.name.split(".")[1]).read_bytes()) for place in ("wal/*",
        "head/*/*") for path in q.glob(place)]
    for path in flats(spool, queue):
        lines = path.read_bytes().splitlines()
        assert len(lines) == int(path.name.split(".")[3])
        found += [(slip.decode(), line) for slip, line in (line.split(b"\t") for line in lines)]
    found.sort()
    ids = [name.split(".")[1] for name, _ in found]
    assert len(ids) == len(set(ids)), "a message in two places"
    return b"".join(base64.b64decode(line.strip(), validate=True) for _, line in found)


def in_order(ids):
    """The numbers of the deep queue's messages in the order in which they must come out: by
    priority, then by id."""
    return [k for _, _, k in sorted((priority(k), number, k) for number, k in ids.items())]


@deeply
@pytest.mark.slow
def test_1500_through_flat_files_in_the_exact_order(filled_deep, deep, spool):
    filled_deep("wal", "deep", check=0)
    names = flats(spool, "deep")
    assert len(names) >= 4
    assert len(lies(spool, "deep").get("wal", ())) < 100 and len(lies(spool, "deep").get("body",
        ())) < 100
    assert sum(int(path.name.split(".")[3]) for path in names) > DEEP - 100
    for path in names:
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == int(path.name.split(".")[3]) and all(line.endswith(b"\n")
            for line in lines)
        assert all(line.split(b".")[0].decode() == path.name.split(".")[0]
            for line in lines), "one priority a file"
    expected = [text(k) for k in in_order(deep[1])]
    # first one by one, then some in bulk, to come to the next flat files
    while expected:
        for _ in range(min(40, len(expected))):
            assert pop(filled_deep, "deep") == expected.pop(0)
        if expected:
            got = pop(filled_deep, "-0", "-n", "220", "deep").split(b"\0")
            assert got == expected[:220] + [b""]
            del expected[:220]
    empty(filled_deep, "deep")
    filled_deep("wal", "deep", check=0)
    assert lies(spool, "deep") == {}


@pytest.mark.slow
@deeply
def test_put_backs_in_between(filled_deep, deep, spool):
    """A message that comes back has its old place, also when all around it was folded, unfolded and
    folded again."""
    left = in_order(deep[1])
    filled_deep("wal", "deep", check=0)
    turns = 12 if everything() else 5
    for turn in range(turns):
        held = [reserve(filled_deep, "deep") for _ in range(5)]
        assert [message.body for message in held] == [text(k) for k in left[:5]]
        if turn % 3 == 0:
            filled_deep("wal", "deep", check=0)
        for message in held[4], held[1], held[3]:
            filled_deep("release", message.receipt, check=0)
        filled_deep("delete", held[0].receipt, check=0)
        filled_deep("release", "-p", "80000", held[2].receipt, check=0)
        left = left[1:2] + left[3:] + left[2:3]
        if turn % 4 == 1:
            filled_deep("wal", check=0)
        for k in left[:3]:
            assert pop(filled_deep, "deep") == text(k)
        left = left[3:]
    # the messages of the last priority come in the order of their ids
    by_id = {k: number for number, k in deep[1].items()}
    tail = sorted(left[-turns:], key=by_id.get)
    assert stored(spool, "deep") == b"".join(text(k) for k in left[:-turns] + tail)


def test_later_urgent_ones_overtake_what_is_folded(filled, spool):
    filled("wal", check=0)
    push(filled, b"urgent", "-p", "65535", "few")
    push(filled, b"last", "few")
    assert [pop(filled, "few") for _ in range(3)] == [b"urgent", text(0), text(1)]
    filled("wal", check=0)
    push(filled, b"urgent", "-p", "0", "few")
    assert [pop(filled, "few") for _ in range(2)] == [b"urgent", text(2)]
    assert stored(spool, "few") == b"".join(text(k) for k in range(3, FEW)) + b"last"


def test_fold_and_unfold_in_every_shell(shell, filled, spool):
    filled("wal", "few", check=0)
    assert len(flats(spool, "few")) == 1 and "wal" not in lies(spool, "few")
    assert [pop(filled, "few"), pop(filled, "few")] == [text(0), text(1)]
    assert not flats(spool, "few")
    got = reserve(filled, "few")
    assert (got.body, got.tries, got.length) == (text(2), 1, len(text(2)))
    filled("release", got.receipt, check=0)
    # the remaining messages are folded again
    filled("wal", "few", check=0)
    assert stored(spool, "few") == b"".join(text(k) for k in range(2, FEW))
    assert [pop(filled, "few"), pop(filled, "few")] == [text(2), text(3)]
    assert stored(spool, "few") == b"".join(text(k) for k in range(4, FEW))


def test_idempotent(filled, spool):
    filled("wal", "few", check=0)
    before = lies(spool, "few")
    for arguments in (["few"], [], ["few", "few"]):
        done = filled("wal", *arguments, check=0)
        assert (done.out, done.err) == (b"", b"")
    assert lies(spool, "few") == before


def test_any_bytes_through_a_flat_file(flatq, spool):
    bodies = [b"", b"\n", b"\t", bytes(range(256)), b"a\tb\nc", b"\0" * 100, b"x" * 70000,
        b"x" * 30000, b"=", b"last"]
    keys = {}
    for k, body in enumerate(bodies):
        keys[k] = push(flatq, body, "-k", f"key {k}", "-t", "7", "q")
    loop(flatq, 'k=0; while [ $k -lt 220 ]; do printf filler | "$sh" "$lib/push" q >/dev/null || '
        'exit; k=$((k + 1)); done')
    flatq("wal", "q", check=0)
    assert flats(spool, "q")
    for k, number in keys.items():
        assert flatq("push", "-k", f"key {k}", "q", check=0).out == b"%d dup\n" % number
    for k, body in enumerate(bodies):
        got = reserve(flatq, "q")
        assert (got.body, got.id, got.tries) == (body, keys[k], 1)
        flatq("delete", got.receipt, check=0)
        assert b"dup" not in flatq("push", "-p", "99999", "-k", f"key {k}", "q", check=0).out
    assert stored(spool, "q") == b"filler" * 220


def test_settle_in_the_middle_of_a_flat_file(filled, made, spool):
    """A message that nobody holds is deleted by its id, also in the middle of a flat file."""
    filled("wal", check=0)
    ids = [int(path) for path in (made.parent / "few").read_text().split()]
    assert filled("peek", f"few:{ids[100]}", check=0).out == text(100)
    filled("delete", f"few:{ids[100]}", check=0)
    refused(filled("delete", f"few:{ids[100]}"), 66, "delete")
    filled("wal", check=0)
    filled("delete", f"few:{ids[0]}", check=0)
    filled("delete", f"few:{ids[FEW - 1]}", check=0)
    assert stored(spool, "few") == b"".join(text(k) for k in range(FEW) if k not in (0, 100,
        FEW - 1))
    assert pop(filled, "few") == text(1)


def test_a_bound_counts_what_is_folded(filled, spool):
    filled("create", "-b", str(FEW), "few", check=0)
    filled("wal", check=0)
    assert flats(spool, "few")
    refused(filled("push", "few"), 75, "push")
    pop(filled, "few")
    push(filled, b"fits", "few")
    refused(filled("push", "few"), 75, "push")


def test_killed_with_its_lock_held_by_a_child(filled, stub, spool):
    """The child lives longer than its shell and still works on the run. So it keeps the lock, and
    the next verb waits for it."""
    stub("awk", '[ -e "$HOME/go" ] || { mkfifo "$HOME/go" && read -r go <"$HOME/go"; }\nexec '
        '"$REAL" "$@"')
    process = filled.start("wal", "few", stdin=subprocess.DEVNULL)
    wait_for(lambda: (filled.home / "go").exists(), "the fold in the midst of its work")
    process.kill()
    process.wait()
    waiting = filled.start("pop", "few", stdin=subprocess.DEVNULL)
    wait_for(lambda: child_named(waiting, "flock") or waiting.poll() is not None,
        "the pop that waits")
    assert waiting.poll() is None
    with open(filled.home / "go", "w") as go:
        go.write("go\n")
    out, err = waiting.communicate(timeout=100)
    assert (waiting.returncode, out, err) == (0, text(0), b"")
    assert stored(spool, "few") == b"".join(text(k) for k in range(1, FEW))


def test_delayed_and_buried_are_never_folded(filled, spool):
    push(filled, b"delayed", "-d", "1000", "few")
    filled("bury", reserve(filled, "few").receipt, check=0)
    held = reserve(filled, "few")
    filled("wal", check=0)
    places = lies(spool, "few")
    assert len(places["delayed"]) == len(places["buried"]) == len(places["out"]) == 1
    filled("release", held.receipt, check=0)
    assert filled("kick", "few", check=0).out == b"1\n"
    assert [pop(filled, "few") for _ in range(3)] == [text(0), text(1), text(2)]


def test_few_are_left_alone(flatq, spool):
    """A fold of less than a few hundred messages would cost more than it saves."""
    for k in range(3):
        push(flatq, text(k))
    flatq("wal", check=0)
    assert "queue" not in lies(spool)


@deeply
def test_a_thousand_pushes_fold_by_themselves(deep):
    """The test called no checkpoint while it filled the deep queue. Each push that opened a new
    range of ids did."""
    assert flats(deep[0], "deep")
