"""The checkpoint moves single messages into flat files, and back. talks.txt has the rest."""

import subprocess

from conftest import wait_for
from engine import child_named, drain, push


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
