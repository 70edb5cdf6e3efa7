"""push stores any bytes, each message under one id, as a whole or not at all."""

import os
import signal
import subprocess

import pytest

from conftest import LIB, wait_for
from engine import child_named, empty, holders, lies, pop, push, refused, reserve, stopped_by
from userlands import without

ALL = bytes(range(256))
BODIES = [
    b"", b"\n", b"\n\n", b"\0", b"text", b"text\n", b"a\r\nb\r\n", ALL, ALL[::-1] * 3, b"-n",
    b"-e \\n", b"%s%d\\101", b"$(touch x)`touch x`",
    b".", b".\n", b"..\n", b"a" * 76, b"a" * 77, b"=" * 5, b"+/+/", b" lead and trail ",
    b"\xff\xfe\xfd", b"\xc3\xa4\xe2\x82\xac",
]


def nothing(spool, queue="default"):
    """There is no message, and no body without a message."""
    assert lies(spool, queue) == {}, lies(spool, queue)


# around multiples of 3, around the 1,050 bytes whose base64 has 1,400 characters, around the sizes
# of pipes and pages; large ones
SIZES = [*range(1, 6), *range(1047, 1054), 3071, 3072, 3073, 65535, 65536, 65537, 1 << 20,
    (5 << 20) + 1]


def test_any_bytes_of_any_length(shell, flatq, spool):
    bodies = BODIES + [(ALL * (size // 256 + 1))[-size:] for size in SIZES]
    for body in bodies:
        push(flatq, body)
    for body in bodies:
        got = reserve(flatq, "-t", "900")
        assert (got.length, got.body) == (len(body), body)
        flatq("release", "-p", "70000", got.receipt, check=0)
    assert [pop(flatq) for _ in bodies] == bodies
    empty(flatq)
    assert not any((spool / "default/body" / name).stat().st_size > 1 << 20
        for name in lies(spool).get("body", ())), "a large body is not left to the sweeper"


@pytest.mark.parametrize("size, length", [(0, 1), (10, 11), (1050, 1051), (1 << 20, (1 << 20) + 1),
    (3, 999999999999)])
def test_length_too_short_stores_nothing(flatq, spool, size, length):
    refused(flatq("push", "-n", str(length), input=b"x" * size), 65, "push")
    nothing(spool)
    empty(flatq)


def test_a_read_that_fails_is_not_the_end_of_the_input(flatq, stub):
    """65 would say that fewer bytes came than were announced: but the first dd has failed, and they
    are still there (R6)."""
    push(flatq, b"first")
    stub("dd", '[ -e "$ONCE" ] || { : >"$ONCE"; exit 1; }\nexec "$REAL" "$@"')
    refused(flatq("push", "-n", "6", input=b"enough"), 74, "push")
    assert pop(flatq) == b"first"
    empty(flatq)


def test_no_dot_stores_nothing(shell, flatq, spool):
    for text in (b"", b".", b"a\n", b"a\n.", b"a\n..\n", b"a\n.\r\n", ALL):
        for most in ("", "100000"):
            refused(flatq("push", "-e", "-k", "key", input=text, env={"FLATQ_MOST_BYTES": most}),
                65, "push", text=b"dot")
    flatq("wal", check=0)
    nothing(spool)


# keys


# what brings a message into each state after a reserve; -: it stays reserved
STATES = {"ready": "release", "delayed": "release -d 1000", "reserved": "-", "buried": "bury",
    "released": "release -p 9", "kicked": "bury"}


@pytest.mark.parametrize("state", STATES)
def test_key_is_taken_in_every_state(flatq, spool, state):
    number = push(flatq, b"one", "-k", "key")
    other = push(flatq, b"other", "-p", "70000", "-k", "another")
    receipt = reserve(flatq).receipt
    if STATES[state] != "-":
        flatq(*STATES[state].split(), receipt, check=0)
    if state == "kicked":
        assert flatq("kick", check=0).out == b"1\n"
    before = lies(spool)
    for _ in range(2):
        assert flatq("push", "-k", "key", input=b"two") == (0, b"%d dup\n" % number, b"")
    assert lies(spool) == before, "nothing is stored for a taken key"
    # a key counts within one queue
    assert push(flatq, b"x", "-k", "key", "elsewhere") > other


# input that cannot be read (test_tools.py closes it), a log that cannot be written

@pytest.mark.parametrize("hidden", ["", "perl"])
def test_from_a_directory(shell, flatq, spool, tmp_path, hidden):
    """An input that cannot be read is no end of it."""
    if hidden:
        flatq.env["PATH"] = without(tmp_path / "some", hidden, path=flatq.env["PATH"])
    for options in ([], ["-n", "3"], ["-e"], ["-l"], ["-0"]):
        where = os.open("/", os.O_RDONLY)
        process = flatq.start("push", *options, stdin=where)
        os.close(where)
        out, err = process.communicate(timeout=100)
        assert process.returncode in (65, 74) and out == b"" and err.count(b"\n") == 1, (options,
            process.returncode, out, err)
        nothing(spool)


def test_a_log_that_cannot_be_written(shell, flatq, spool):
    flatq("create", "q", check=0)
    (spool / "q/log").mkdir()
    push(flatq, b"1", "q")
    push(flatq, b"2", "q")
    push(flatq, b"3", "-d", "1", "q")
    assert pop(flatq, "q") == b"1"
    got = reserve(flatq, "q")
    for verb, *arguments in (["touch", got.receipt], ["release", got.receipt],
            ["bury", got.receipt], ["wal", "q"]):
        done = flatq(verb, *arguments, check=0)
        assert (done.out, done.err) == (b"", b"")
    done = flatq("kick", "q", check=0)
    assert (done.out, done.err) == (b"1\n", b"")
    done = flatq("delete", "q:" + str(got.id), check=0)
    assert (done.out, done.err) == (b"", b"")


# killed

def reading(flatq, program, *options, data=b"begun "):
    """A push that has read some of its message and waits for more."""
    process = flatq.start("push", *options)
    process.stdin.write(data)
    process.stdin.flush()
    wait_for(lambda: lies(flatq.spool).get("body") and child_named(process, program),
        "the child that reads")
    return process


def test_killed_while_it_reads(flatq, spool, clock):
    process = reading(flatq, "base64")
    orphan = child_named(process, "base64")
    process.kill()
    process.communicate()
    wait_for(lambda: not os.path.exists(f"/proc/{orphan}"), "the end of the orphaned base64")
    empty(flatq)
    push(flatq, b"next")
    # no slip moves at the first verb after a boot: only then a body that has none is known to be no
    # message's
    assert b"1 bodies without a message" in flatq("doctor", check=0).out
    clock.reboot("second")
    assert b"left of 000000000001 was removed" in flatq("doctor", check=0).out
    assert [len(names) for place, names in lies(spool).items() if place == "body"] == [1]
    assert pop(flatq) == b"next"


@pytest.mark.shells
def test_stopped_while_it_reads(shell, flatq, spool):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = reading(flatq, "base64")
        os.killpg(process.pid, number)
        stopped_by(process, number)
        nothing(spool)
    empty(flatq)
    assert holders(spool) == []


@pytest.mark.shells
def test_stopped_alone_while_it_reads(shell, flatq, spool):
    """The shell handles the signal only when its child has ended. The message is whole then, but
    the push must not store it, since it prints no id."""
    process = reading(flatq, "base64")
    process.send_signal(signal.SIGTERM)
    process.stdin.close()
    stopped_by(process, signal.SIGTERM)
    nothing(spool)
    empty(flatq)


def test_a_limit_on_size(shell, flatq, spool):
    """A message that is over it is refused, and a bulk push that has one, wherever that stands."""
    flatq.env["FLATQ_MOST_BYTES"] = "1000"
    push(flatq, b"x" * 1000)
    assert len(pop(flatq)) == 1000
    flatq("wal", check=0)
    for words in ("", "-n 1001", "-e"):
        refused(flatq("push", *words.split(), input=b"x" * 999 + b"\n+\n.\n"), 65, "push",
            text=b"over the limit of 1000")
    for option, end in ("-l", b"\n"), ("-0", b"\0"):
        for text in (b"x" * 1001, b"1" + end + b"x" * 1001 + end + b"2",
                (b"y" * 10 + end) * 1200 + b"x" * 1001 + end):
            refused(flatq("push", option, input=text), 65, "push", text=b"over the limit of 1000")
    nothing(spool)
    for wrong in ("x", "-1", "1e3", "99999999999", "a[$(touch x)]"):
        refused(flatq("push", input=b"x", env={"FLATQ_MOST_BYTES": wrong}), 64, "push",
            text=b"FLATQ_MOST_BYTES")
    push(flatq, b"x" * 1001, env={"FLATQ_MOST_BYTES": "0"})


def test_a_message_that_is_gone_before_the_sync(flatq, stub):
    """A consumer took the message and settled it before the push came to sync. Its body is gone,
    too, but the push has succeeded."""
    stub("sync", f'[ -e "$HOME/popped" ] || '
        f'"{flatq.shell}" "{LIB}/pop" >"$HOME/popped"\nexec "$REAL" "$@"')
    flatq.syncs()
    body = b"x" * 300000
    flatq("create", check=0)
    (flatq.home / "popped").unlink()
    push(flatq, body)
    assert (flatq.home / "popped").read_bytes() == body


@pytest.mark.shells
def test_the_rest_of_a_file_that_was_read_in_part(shell, flatq, spool):
    """The size is how far base64 has moved the offset, and not the offset: one or two bytes less
    have the same length in base64."""
    file = flatq.home / "file"
    file.write_bytes(b"\n" + b"x" * 95)
    script = 'read -r line; exec "$@"'
    done = subprocess.run([flatq.shell, "-c", script, "sh", *flatq.command("push")],
        stdin=file.open("rb"), env=flatq.env, capture_output=True, timeout=100)
    assert done.returncode == 0, done
    assert b" 95 " in (spool / "default/log").read_bytes() and pop(flatq) == b"x" * 95
