"""push stores any bytes, each message under one id, as a whole or not at all."""

import os
import subprocess

import pytest

from conftest import LIB, wait_for
from engine import child_named, empty, lies, pop, push, refused, reserve

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


def test_no_dot_stores_nothing(shell, flatq, spool):
    for text in (b"", b".", b"a\n", b"a\n.", b"a\n..\n", b"a\n.\r\n", ALL):
        for most in ("", "100000"):
            refused(flatq("push", "-e", "-k", "key", input=text, env={"FLATQ_MOST_BYTES": most}),
                65, "push", text=b"dot")
    flatq("wal", check=0)
    nothing(spool)


def test_a_log_that_cannot_be_written(shell, flatq, spool):
    flatq("create", "q", check=0)
    (spool / "q/log").mkdir()
    push(flatq, b"1", "q")
    push(flatq, b"2", "q")
    push(flatq, b"3", "-d", "1", "q")
    assert pop(flatq, "q") == b"1"
    got = reserve(flatq, "q")
    for words in (["touch", got.receipt], ["release", got.receipt], ["bury", got.receipt],
            ["wal", "q"], ["kick", "q"], ["delete", f"q:{got.id}"]):
        done = flatq(*words, check=0)
        assert (done.out, done.err) == (b"1\n" if words[0] == "kick" else b"", b"")


def test_killed_while_it_reads(flatq, spool, clock):
    process = flatq.start("push")
    process.stdin.write(b"begun ")
    process.stdin.flush()
    orphan = wait_for(lambda: lies(spool).get("body") and child_named(process, "base64"),
        "the child that reads")
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
    """A consumer has settled it, and its body is gone: the push has succeeded."""
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
    """The size is how far base64 has moved the offset: one or two bytes less have the same length
    in base64."""
    file = flatq.home / "file"
    file.write_bytes(b"\n" + b"x" * 95)
    script = 'read -r line; exec "$@"'
    done = subprocess.run([flatq.shell, "-c", script, "sh", *flatq.command("push")],
        stdin=file.open("rb"), env=flatq.env, capture_output=True, timeout=100)
    assert done.returncode == 0, done
    assert b" 95 " in (spool / "default/log").read_bytes() and pop(flatq) == b"x" * 95
