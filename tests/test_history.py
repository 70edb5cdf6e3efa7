"""Histories: many at once, killed, stopped and with the clock set; and that a fault in the verbs is seen by them."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import LIB, ROOT

sys.path.insert(0, str(ROOT / "python"))

from flatq.crashlab import history  # noqa: E402
from flatq.crashlab.scenarios import System  # noqa: E402

# what breaks a copy of lib/: the file, a piece of its text that is there once, what takes its place, and the kind of history that sees it
MUTANTS = {
    "pop copies": ("take.sh", 'mv -f "$q/$scan_place/$scan_name" "$q/out/$taken"', 'cp "$q/$scan_place/$scan_name" "$q/out/$taken"', "kills"),
    "a bound without the lock": (
        "bound.sh", "  while :; do\n    lock_queue || return\n", "  while :; do\n    [ -n \"$push_key\" ] && { lock_queue || return; }\n", "bound"),
    "a checkpoint that folds without the lock": ("checkpoint.sh", "  lock_queue || return\n  queue_recover &&", "  queue_recover &&", "kills"),
    "settled before it is written": (
        "pop", "body_print && door_delivered || {", "taken_settle && body_print && door_delivered || {", "kills"),
    "any receipt of the message": ("settle.sh", '[ "$slip_tries.$slip_nonce" = "$receipt_tries.$receipt_nonce" ] ||', "true ||", "leases"),
    "a key that is not looked for": ("bound.sh", "      key_taken || return\n", "      push_dup=\n", "kills"),
    "a lease that ends at once": ("reclaim.sh", 'elif lease_over "$slip_deadline"; then', 'elif [ "$slip_deadline" != 000000000000 ]; then', "leases"),
    "all owners dead": ("rare.sh", '  [ "$started" \\> "${1#*-}" ]\n', "  true\n", "kills"),
    "who is killed keeps what it has": ("rare.sh", '  process_started "${1%-*}" || return 0\n', '  process_started "${1%-*}" || return 1\n', "kills"),
}


@pytest.fixture
def work():
    """A directory in memory where there is one."""
    top = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="history.", dir=top) as directory:
        yield Path(directory)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", history.KINDS)
def test_histories(work, kind):
    """Five of each kind."""
    outcomes = list(history.trials(System(), 5, 100, work, kind=kind))
    assert not [outcome for outcome in outcomes if outcome.outcome != "good"], "\n".join(map(str, outcomes))
    # it is no history if little happens in it
    assert sum(outcome.operations for outcome in outcomes) > 400 and sum(outcome.killed for outcome in outcomes) > 20


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_copy_is_seen(work, name):
    file, old, new, kind = MUTANTS[name]
    lib = work / "lib"
    shutil.copytree(LIB, lib)
    text = (lib / file).read_text()
    assert text.count(old) == 1, f"{file} no longer has {old!r}"
    (lib / file).write_text(text.replace(old, new))
    for outcome in history.trials(System(lib=lib, name=name), 12, 0, work, kind=kind, deadline=8):
        if outcome.outcome == "bad":
            return
    pytest.fail("not seen in 12 histories")
