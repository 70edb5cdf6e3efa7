"""A signal comes before each command of a verb. The verb must tidy up what it has begun, and no
acknowledged message may be lost."""

import signal
import subprocess

import pytest

from conftest import chance, everything, need, share
from engine import NO_MESSAGE, calls_in, lies, push, reserve

# bash runs a trap on DEBUG before each simple command, with -T in functions too. flatq uses none of
# these names. A shell's children count on from its number, so several may come to SIGNAL_AT: only
# the first sends the signal, since a second one ends a verb in the middle of its tidying
SCRIPT = """set -T; signal_test=0
trap 'signal_test=$((signal_test + 1)); printf . >>"$SIGNALS"
[ "$signal_test" != "$SIGNAL_AT" ] || [ -e "$SIGNALS.sent" ] || { : >"$SIGNALS.sent"; kill -s TERM $$; }' DEBUG
. "$0\""""

VERBS = {
    "push": ["push"],
    "push a key": ["push", "-k", "key"],
    "push a length": ["push", "-n", "5"],
    "push to a dot": ["push", "-e"],
    "push lines": ["push", "-l"],
    "pop": ["pop"],
    "pop lines": ["pop", "-l"],
    "reserve": ["reserve"],
    "release": ["release"],
    "delete": ["delete"],
}


def run(flatq, words, at=0):
    """Exit code, output, errors, and how many commands the verb ran. The signal comes before the
    command number `at`."""
    commands = flatq.home / "commands"
    commands.write_bytes(b"")
    (flatq.home / "commands.sent").unlink(missing_ok=True)
    process = subprocess.Popen(
        ["bash", "-c", SCRIPT, *flatq.command(*words)[1:]],
        env={**flatq.env, "SIGNAL_AT": str(at), "SIGNALS": str(commands)},
        cwd=flatq.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True)
    flatq.started.append(process)
    out, err = process.communicate(b"hello\n.\n" if "-e" in words else b"hello", timeout=100)
    return process.returncode, out, err, commands.stat().st_size


def whole(flatq, spool):
    """The message that a pop gets, in a list, or an empty list."""
    done = flatq("pop")
    assert done.status in (0, 66) and done.err.count(b"\n") == (done.status > 0)
    return [done.out] * (done.status == 0)


def clear(flatq, out, spool):
    """Delete what a reserve has printed. After that, no file of a message may be left. (A key or a
    body without a message may stay: a push entered it, and was stopped.)"""
    while flatq("pop").status == 0:
        pass
    if b" " in out:
        flatq("delete", out.split()[0].decode())
    flatq("wal", check=0)
    assert set(lies(spool)) <= NO_MESSAGE | {"wait", "keys", "body"}, lies(spool)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.costly
def test_before_each_command(flatq, spool, verb):
    need("bash")
    words = VERBS[verb]

    def ready():
        """Prepare the spool, and return the words to run."""
        if words[0] == "push":
            return words
        push(flatq, b"hello")
        return [*words, reserve(flatq).receipt] if words[0] in ("release", "delete") else words

    code, out, err, count = run(flatq, ready())
    assert (code, err) == (0, b"")
    points = range(1, count + 1)
    # `make test-all` stops a push at each tenth command from a start that the seed chooses, one of
    # many lines at each hundredth, the others at each fortieth
    step = {"push": 10, "push lines": 100}.get(verb, 40)
    points = points[chance(verb).randrange(step)::step] if everything() else share(verb, points, 3)
    for at in points:
        clear(flatq, out, spool)
        bodies = len(lies(spool).get("body", []))
        assert not bodies or words[0] == "push"
        code, out, err, _ = run(flatq, given := ready(), at)
        assert code in (0, -signal.SIGTERM) and err == b"", (at, code, err)
        done = code == 0
        # a stopped push removes its body at once, unless its slip may exist
        assert done or len(lies(spool).get("body", [])) <= bodies + 1, (at, lies(spool))
        there = whole(flatq, spool)
        if words[0] == "push":
            assert there == [b"hello\n" if "-e" in words
                else b"hello"] or not there and not done and not out, (at, code, out)
            if not there and "-k" in words:
                assert b"dup" not in flatq(*words, input=b"again", check=0).out and whole(flatq,
                    spool) == [b"again"], at
        elif words[0] == "release":
            assert there == [b"hello"] or not done, (at, code)
        elif words[0] == "delete":
            assert there == [], (at, code)
        else:
            assert there == [b"hello"] or out and not there, (at, code, out)
        assert not done or not there or words[0] in ("push", "release"), (at, code)
        if words[0] in ("release", "delete") and not there and not done:
            flatq("delete", given[-1])
        out = out if words[0] == "reserve" else b""


@pytest.mark.parametrize("words", [["push"], ["push", "-k", "key"], ["push", "-n", "5"]],
    ids=" ".join)
def test_behind_the_slip(flatq, words):
    """TERM comes once the message is stored, as the line for the log is written. The message stays
    whole, though no id was printed."""
    need("strace")
    push(flatq, b"first")
    words = ["strace", "-qq", "-o", flatq.home / "calls", "-P", flatq.spool / "default/log", "-e",
        "inject=openat:signal=TERM:when=1", *flatq.command(*words)]
    done = subprocess.run(words, input=b"hello", env=flatq.env, capture_output=True, timeout=100)
    assert done.returncode == -signal.SIGTERM and done.stdout == done.stderr == b"", done
    assert flatq("drain", check=0).out == b"first\nhello\n"


@pytest.mark.shells
def test_at_a_call_of_a_pop(shell, flatq, spool):
    """TERM comes as the shell itself makes a call. The pop prints and deletes the first message, or
    gives it back; it never takes another one."""
    strace, calls = need("strace"), flatq.home / "calls"

    def stopped(*inject):
        for body in (b"first", b"second"):
            push(flatq, body)
        done = subprocess.run([strace, "-qq", "-o", calls, *inject, "--", *flatq.command("pop")],
            env=flatq.env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=100)
        return done, flatq("drain").out.split()

    assert stopped()[1] == [b"second"]
    points = calls_in(calls)
    for at in points[chance(shell).randrange(20)::20] if everything() else share(shell, points, 5):
        done, left = stopped("-e", "inject={}:signal=TERM:when={}".format(*at))
        assert done.returncode in (0, -signal.SIGTERM,
            128 + signal.SIGTERM) and done.stderr == b"", (at, done)
        kept = sorted(left) == [b"first", b"second"] and done.returncode != 0
        assert kept or done.stdout == b"first" and left == [b"second"], (at, done, left)


