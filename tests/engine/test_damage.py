"""A message whose body is not whole, or cannot be read, is set aside. Nobody takes a part of it for the whole, and the other messages go on."""

import pytest

from engine import lies, pop, push, refused

BODY = b"0123456789" * 900
CUTS = [0, 4096, 8000]


@pytest.fixture(params=CUTS)
def half(flatq, request):
    """A queue with half a message, and a whole one behind it. Its file is cut, as by a power cut; what is left of it is returned."""
    number = push(flatq, BODY, "q")
    push(flatq, b"whole", "q")
    body = flatq.spool / f"q/body/{number:012}"
    body.write_bytes(body.read_bytes()[:request.param])
    return BODY[:request.param // 4 * 3]


def buried(flatq, reason="damaged"):
    return len([*flatq.spool.glob(f"q/buried/*/*/*.{reason}")])


@pytest.mark.parametrize("verb", ["pop", "reserve"])
def test_half_a_message_is_not_handed_out(shell, flatq, half, verb):
    done = flatq(verb, "q")
    assert done.status == 74 and done.err == b"%s: queue 'q': message 1 is damaged: buried\n" % verb.encode(), done
    assert buried(flatq) == 1
    assert pop(flatq, "q") == b"whole"


def test_peek_prints_what_is_left(shell, flatq, half):
    for words in (["q"], ["q:1"]):
        done = flatq("peek", *words)
        assert (done.status, done.out, done.err) == (74, half, b"peek: queue 'q': message 1 is damaged\n"), done
    assert flatq("peek", "q:2", check=0).out == b"whole"


@pytest.mark.parametrize("booted", [False, True])
def test_a_damaged_message_cannot_be_kicked(shell, flatq, clock, half, booted):
    if booted:
        clock.reboot("second")
    else:
        flatq("doctor", "q", check=0)
    assert flatq("list", "q", check=0).out.count(b"damaged") == 1
    assert buried(flatq) == 1
    refused(flatq("kick", "q"), 66, "kick", text=b"message 1 is damaged")
    push(flatq, b"later", "-d", "1000", "q")
    assert flatq("kick", "-n", "9", "q", check=0).out == b"1\n"
    assert flatq("peek", "q:1").out == half
    assert flatq("drain", "q", check=0).out == b"whole\nlater\n"
    flatq("delete", "q:1", check=0)
    assert flatq("doctor", check=0).out == b"" and lies(flatq.spool, "q").get("buried", []) == []
    assert flatq("kick", "q", check=0).out == b"0\n"


@pytest.mark.parametrize("words", [["drain"], ["drain", "-0"], ["pop", "-l", "-n", "5"]])
def test_many_are_taken_without_the_damaged_one(shell, flatq, half, words):
    done = flatq(*words, "q", check=0)
    assert done.out == b"whole" + (b"\0" if "-0" in words else b"\n") and buried(flatq) == 1
    refused(flatq(*words, "q"), 66)


def test_a_claim_steps_over_the_damaged_one(flatq, half):
    out = flatq("claim", "-c", "me", "q", check=0).out.split()
    assert [int(word) for word in out[:2]] == [0, 1] and buried(flatq) == 1
    flatq("unclaim", "-c", "me", "q", check=0)
    assert pop(flatq, "q") == b"whole"


def test_only_damaged_ones_are_nothing(flatq, half):
    flatq("drain", "q", check=0)
    push(flatq, BODY, "q")
    body, = (flatq.spool / "q/body").glob("*3")
    body.write_bytes(b"")
    refused(flatq("drain", "q"), 66)
    assert buried(flatq) == 2


def test_a_worker_does_not_run_for_half_a_message(flatq, half):
    done = flatq("work", "-q", "q", "-w", "0", "--", "wc", "-c", check=0)
    assert done.out.split() == [b"5"] and buried(flatq) == 1


@pytest.mark.parametrize("door, asked", [
    ("handler", b"pop q\n"), ("handler", b"reserve q\n"), ("beanstalk", b"watch q\r\nignore default\r\nreserve-with-timeout 0\r\n"),
    ("http", b"GET /queue?group-id=q HTTP/1.1\r\nHost: x\r\n\r\n")])
def test_half_a_message_by_a_door(flatq, half, door, asked):
    """The connection ends before the announced length, and the next client gets the next message."""
    done = flatq(door, input=asked)
    assert BODY not in done.out and b"whole" not in done.out, done
    assert buried(flatq) == 1
    assert b"whole" in flatq(door, input=asked).out
