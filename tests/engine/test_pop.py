"""pop settles a message once it has written it, and puts it back if it cannot write."""

import os
import signal

import pytest

from conftest import LIB, wait_for
from engine import child_named, empty, lies, loop, pop, push

BIG = b"0123456789abcdef" * 20000  # more than a pipe holds


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


def test_stopped_alone_it_gives_back_when_the_reader_is_gone(shell, flatq):
    push(flatq, BIG)
    process = held(flatq)
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(60) in (-signal.SIGTERM, 74)
    assert pop(flatq) == BIG


def test_a_dead_owner_that_nobody_has_reaped(flatq):
    """In a container whose process 1 does not reap, a zombie stays forever."""
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
    """The lease has ended, and the message is just being unfolded: base64 would read a part, and
    say nothing."""
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
