"""The checkpoint moves single messages into flat files, and back. talks.txt has the rest."""

import subprocess

from conftest import wait_for
from engine import child_named, drain, flats_of, loop, push, reserve


def test_any_bytes_through_a_flat_file(flatq):
    """With as many messages as a checkpoint folds."""
    bodies = [b"", b"\n", b"\t", bytes(range(256)), b"a\tb\nc", b"\0" * 100, b"x" * 70000,
        b"x" * 30000, b"=", b"last"]
    keys = {}
    for k, body in enumerate(bodies):
        keys[k] = push(flatq, body, "-k", f"key {k}", "-t", "7", "q")
    loop(flatq, 'k=0; while [ $k -lt 220 ]; do printf filler | "$sh" "$lib/push" q >/dev/null || '
        'exit; k=$((k + 1)); done')
    flatq("wal", "q", check=0)
    assert flats_of(flatq.spool, "q", "queue")
    for k, number in keys.items():
        assert flatq("push", "-k", f"key {k}", "q", check=0).out == b"%d dup\n" % number
    for k, body in enumerate(bodies):
        got = reserve(flatq, "q")
        assert (got.body, got.id, got.tries) == (body, keys[k], 1)
        flatq("delete", got.receipt, check=0)
        assert b"dup" not in flatq("push", "-p", "99999", "-k", f"key {k}", "q", check=0).out
    assert flatq("drain", "q", check=0).out == b"filler\n" * 220 + b"\n" * len(bodies)


def test_killed_with_its_lock_held_by_a_child(flatq, stub):
    """The child lives longer than its shell and still works on the run. So it keeps the lock, and
    the next verb waits for it."""
    flatq.env["FLATQ_FOLD"] = "5"
    for k in range(6):
        push(flatq, b"%d\n" % k, "q")
    stub("awk", '[ -e "$HOME/go" ] || { mkfifo "$HOME/go" && read -r go <"$HOME/go"; }\nexec '
        '"$REAL" "$@"')
    process = flatq.start("wal", "q", stdin=subprocess.DEVNULL)
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
    assert (waiting.returncode, out, err) == (0, b"0\n", b"")
    assert drain(flatq, "q") == b"1\n2\n3\n4\n5\n"
