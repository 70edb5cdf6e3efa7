"""Verbs that meet at one moment. The laboratory's histories have many verbs at once."""

import contextlib
import os
import signal
import subprocess

import pytest

from conftest import LIB, need, wait_for
from engine import drain, lies, standing


def test_the_first_verbs_of_a_new_spool_at_once(shell, flatq):
    """None of them finds a spool, and each creates it."""
    started = [flatq.start("push", f"q{k % 3}", stdin=subprocess.DEVNULL) for k in range(12)]
    ids = [process.communicate(timeout=100) + (process.returncode,) for process in started]
    assert all(status == 0 and err == b"" for _, err, status in ids), ids
    assert len({out for out, _, _ in ids}) == 12
    assert [drain(flatq, f"q{k}") for k in range(3)] == [b""] * 3


def test_a_boot_that_another_verb_sees_first(shell, flatq, stub):
    """A verb has seen no record of this boot. Before it has the spool's lock, another verb makes
    the record."""
    flatq("push", input=b"x", check=0)
    for record in flatq.spool.glob(".boot/*"):
        record.unlink()
    stub("mkdir", f'case $* in */.boot*) [ -e "$ONCE" ] || {{ : >"$ONCE"; '
        f'sh {LIB}/stat >/dev/null; }} ;; esac; exec "$REAL" "$@"')
    assert flatq("pop", check=0).out == b"x"


@pytest.mark.parametrize("when", [3, 7, 12])
def test_a_queue_that_is_dropped_while_it_is_made(flatq, when):
    """create stands as it makes the places, which are there already; a drop moves these away. Once,
    the rest was made, and all pushes failed for ever."""
    flatq("create", "q", check=0)
    verb, stopped, _ = standing(flatq, "mkdir", when, "create", "q", follow=True)
    flatq("drop", "q", check=0)

    def ended():
        for each in stopped():  # create makes the places again, and stands again
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
        return verb.poll() is not None

    wait_for(ended, "the end of create")
    out, err = verb.communicate(timeout=100)
    # uutils' mkdir fails where a place that it has found goes away
    assert verb.returncode in (0, 69, 74) and err.count(b"\n") == (verb.returncode != 0), (
        verb.returncode, out, err)
    for text in (b"one", b"two"):
        flatq("push", "q", input=text, check=0)
        assert flatq("pop", "q", check=0).out == text


def test_a_push_whose_message_is_folded_before_it_has_looked(flatq):
    """A push stands behind its slip; then a checkpoint folds the message, and removes its body.
    Once, the push said that the queue was gone."""
    flatq("push", "q", input=b"first", check=0)
    flatq.env["FLATQ_FOLD"] = "1"
    log = flatq.home / "usual"
    subprocess.run([need("strace"), "-qq", "-o", log, "-e", "trace=openat,getdents64", "-e",
        "signal=none", "--", *flatq.command("push", "q")], input=b"second",
                   env=flatq.environment(None), check=True, capture_output=True)
    lines = log.read_text().splitlines()
    slip = next(number for number, line in enumerate(lines) if "/q/wal/0" in line)
    before = sum("getdents64" in line for line in lines[:slip])
    flatq("pop", "q", check=0)
    verb, _, process = standing(flatq, "getdents64", before + 1, "push", "q", data=b"third")
    flatq("wal", check=0)
    assert "queue" in lies(flatq.spool, "q")
    os.kill(process, signal.SIGCONT)
    out, err = verb.communicate(timeout=100)
    assert (verb.returncode, err) == (0, b""), (verb.returncode, out, err)
    assert [flatq("pop", "q", check=0).out for _ in range(2)] == [b"second", b"third"]
