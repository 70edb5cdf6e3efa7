"""pop takes the oldest of the most urgent messages. It settles the message once it has written it,
and puts it back if it cannot write."""

import os
import signal

import pytest

from conftest import LIB, wait_for
from engine import child_named, empty, holders, lies, loop, pop, push, refused, stopped_by

BIG = b"0123456789abcdef" * 20000  # more than a pipe holds


def test_a_pop_waits_for_what_is_delayed_in_a_closed_queue(flatq):
    push(flatq, b"kicked", "-d", "1000", "q")
    push(flatq, b"late", "-d", "1", "r")
    for queue in ("q", "r"):
        flatq("close", queue, check=0)
    process = flatq.start("pop", "-w", "60", "q")
    wait_for(lambda: lies(flatq.spool, "q").get("wait"), "it waits")
    flatq("kick", "q", check=0)
    assert process.communicate(timeout=60) == (b"kicked", b"")
    assert pop(flatq, "-w", "60", "r") == b"late"


def test_of_a_closed_queue_a_kick_leaves_nothing_delayed(flatq):
    """The directory in which the message was stays, and means nothing."""
    push(flatq, b"late", "-d", "1000", "q")
    flatq("close", "q", check=0)
    flatq("kick", "q", check=0)
    assert pop(flatq, "q") == b"late" and lies(flatq.spool,
        "q").get("delayed") is None and list(flatq.spool.glob("q/delayed/*/*"))
    refused(flatq("pop", "-w", "60", "q"), 69, "pop")


def test_what_is_kicked_just_now_is_not_overlooked(flatq, stub):
    """The message moves after pop has listed the places, and before it looks whether it is still
    delayed."""
    push(flatq, b"late", "-d", "1000", "q")
    flatq("close", "q", check=0)
    kick = f"[ -e $HOME/kicked ] || {{ : >$HOME/kicked; {flatq.shell} {LIB}/kick q >/dev/null; }}"
    stub("find", f'"$REAL" "$@"\ncode=$?\n{kick}\nexit $code')
    assert pop(flatq, "q") == b"late"


def test_the_end_of_a_message_that_cannot_be_written(flatq):
    """The message that was waited for is written by itself, and its end after it."""
    process = flatq.start("pop", "-l", "-w", "60", "q", stdout=(full := open("/dev/full", "wb")))
    wait_for(lambda: lies(flatq.spool, "q").get("wait"), "it waits")
    push(flatq, b"", "q")
    out, err = process.communicate(timeout=100)
    full.close()
    assert process.returncode == 74 and err.count(b"\n") == 1 and b"in full" in err, (
        process.returncode, err)
    assert flatq("pop", "-l", "q", check=0).out == b"\n"


def held(flatq, verb="pop"):
    """A pop that has its message, and stands still in the middle of writing it, since nobody reads
    its pipe."""
    process = flatq.start(verb)
    wait_for(lambda: child_named(process, "base64"), "base64 at work")
    wait_for(lambda: lies(flatq.spool).get("out"), "the message in out/")
    return process


@pytest.mark.shells
@pytest.mark.parametrize("verb", ["pop", "reserve"])
def test_stopped_it_gives_back(shell, flatq, spool, verb):
    push(flatq, BIG)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = held(flatq, verb)
        os.killpg(process.pid, number)
        stopped_by(process, number)
        assert "out" not in lies(spool)
    assert pop(flatq) == BIG
    assert holders(spool) == []


def test_stopped_alone_it_gives_back_when_the_reader_is_gone(shell, flatq):
    push(flatq, BIG)
    process = held(flatq)
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(60) in (-signal.SIGTERM, 74)
    assert pop(flatq) == BIG


def test_a_dead_owner_that_nobody_has_reaped(flatq):
    """A zombie has a /proc entry, but settles nothing. In a container whose process 1 does not
    reap, it stays forever, so it must count as dead."""
    push(flatq, BIG)
    process = held(flatq)
    os.killpg(process.pid, signal.SIGKILL)
    wait_for(lambda: open(f"/proc/{process.pid}/stat").read().rsplit(") ", 1)[1][0] == "Z",
        "a zombie")
    assert pop(flatq) == BIG
    assert process.wait() == -signal.SIGKILL


def test_an_owner_that_lives_keeps_it(shell, flatq):
    push(flatq, BIG)
    process = held(flatq)
    empty(flatq)
    flatq("wal", check=0)
    empty(flatq)
    out, _ = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, BIG)
    empty(flatq)


def test_a_reader_that_is_gone(shell, flatq):
    for verb, body in (("pop", b"small"), ("pop", BIG), ("reserve", b"small"), ("reserve", BIG)):
        push(flatq, body)
        reading, writing = os.pipe()
        os.close(reading)
        process = flatq.start(verb, stdout=writing)
        os.close(writing)
        _, err = process.communicate(timeout=100)
        assert process.returncode == 74, (verb, process.returncode, err)
        assert err.startswith(verb.encode() + b": ") and err.count(b"\n") == 1, err
        assert pop(flatq) == body


def test_a_reader_that_goes_away(shell, flatq):
    push(flatq, BIG)
    process = held(flatq)
    assert process.stdout.read(10) == BIG[:10]
    process.stdout.close()
    assert process.wait(60) == 74
    assert process.stderr.read().count(b"\n") == 1
    assert pop(flatq) == BIG


def test_too_many_tries_bury_what_cannot_be_written(flatq):
    flatq("create", "-m", "2", "q", check=0)
    push(flatq, b"poison", "q")
    for _ in range(2):
        with open("/dev/full", "wb") as full:
            assert flatq.start("pop", "q", stdout=full).wait(60) == 74
    empty(flatq, "q")
    assert flatq("peek", "-s", "buried", "q", check=0).out == b"poison"
    assert flatq("kick", "q", check=0).out == b"1\n"
    assert pop(flatq, "q") == b"poison"


@pytest.mark.shells
def test_a_body_that_was_written_anew_while_it_was_read(shell, flatq, spool, stub):
    """The lease has ended, and the message was folded and is just being unfolded: what would be
    read is cut off, and base64 says nothing."""
    push(flatq, b"gone")
    body = spool / "default/body/000000000001"
    stub("mv", f'"$REAL" "$@"; case $* in */out/*) : >{body}; rm {spool}/default/out/* ;; esac')
    done = flatq("reserve")
    assert (done.status, done.err) == (66,
        b"reserve: queue 'default': message 1 is no longer yours\n"), done


def test_pops_alone_sweep(flatq, spool):
    """Without any checkpoint, the files of settled messages do not grow without limit."""
    flatq("push", "-l", input=b"x\n" * 230, check=0)
    loop(flatq, 'while "$sh" "$lib/pop" 2>/dev/null >&2; do :; done')
    assert sum(map(len, lies(spool).values())) < 230
