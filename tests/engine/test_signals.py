"""A signal at any call of a verb is at worst as a kill, and what was not acknowledged keeps no
key."""

import signal
import subprocess

import pytest

from conftest import chance, everything, need, share
from engine import NO_MESSAGE, calls_in, lies, push, reserve

VERBS = ("push", "push -k key", "push -n 5", "push -e", "push -l", "pop", "pop -l", "reserve",
    "release RECEIPT", "delete RECEIPT")


def strike(flatq, words, *inject):
    """Run the verb where one message is ready, or reserved; what it has ended with, and what can be
    taken afterwards."""
    verb, *rest = words.split()
    if verb != "push":
        push(flatq, b"hello")
    if rest == ["RECEIPT"]:
        rest = [reserve(flatq).receipt]
    done = subprocess.run(
        [need("strace"), "-qq", "-o", flatq.home / "calls", *inject, "--",
        *flatq.command(verb, *rest)],
        env=flatq.env, input=b"hello\n.\n" if "-e" in rest else b"hello", capture_output=True,
        timeout=100)
    ready = flatq("drain", "-0").out.split(b"\0")[:-1]
    # what is still reserved goes, and then no file of a message may be left. (A body without a
    # message may: its push was stopped)
    if verb == "reserve" and done.stdout:
        rest = [done.stdout.split()[0].decode()]
    if verb not in ("push", "pop"):
        flatq("delete", *rest)
    flatq("wal", check=0)
    assert set(lies(flatq.spool)) <= NO_MESSAGE | {"wait", "keys", "body"}, lies(flatq.spool)
    return done, ready


@pytest.mark.shells
@pytest.mark.costly
@pytest.mark.parametrize("words", VERBS)
def test_at_a_call(shell, flatq, words):
    """The shell itself makes the call, and gets TERM."""
    whole = [b"hello\n"] if "-e" in words else [b"hello"]
    usual = whole if words.startswith(("push", "release")) else []
    done, ready = strike(flatq, words)
    assert (done.returncode, ready) == (0, usual), done
    points = calls_in(flatq.home / "calls")
    name = f"{shell} {words}"
    for at in points[chance(name).randrange(20)::20] if everything() else share(name, points, 5):
        done, ready = strike(flatq, words, "-e", "inject={}:signal=TERM:when={}".format(*at))
        assert done.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM), (at, done)
        assert done.stderr == b"" and ready in ([], whole), (at, done, ready)
        if done.returncode == 0 or words.startswith("delete"):
            assert ready == usual, (at, done, ready)
        elif words.startswith("push"):
            assert ready or not done.stdout, (at, done)
            again = flatq(*words.split(), input=b"hello\n.\n", check=0)
            assert b"dup" not in again.out and flatq("drain").out, at
        elif words.startswith(("pop", "reserve")):
            assert ready or done.stdout, (at, done)
