"""lib/small-stalk: beanstalk's protocol without byte counts and tubes."""

import pytest

from stalk import Direct


def lines(client, count):
    """The next so many lines from the server."""
    assert client.until(lambda: client.got.count(b"\r\n") >= count, 60), client.got
    taken = client.got.split(b"\r\n", count)
    client.got = taken.pop()
    return [line.decode("latin-1") for line in taken]


def says(client, text, *expected):
    client.send(text.replace("|", "\r\n").encode("latin-1") + b"\r\n")
    assert lines(client, len(expected)) == list(expected), text


@pytest.fixture
def stalk(flatq):
    return Direct(flatq, "small-stalk")


CONVERSATION = [
    ("put 5 60|first job", "INSERTED 1"), ("put 3 60|  blanks around \t", "INSERTED 2"),
    ("put 5 60|", "INSERTED 3"),
    ("peek-ready", "FOUND 2", "blanks around"), ("reserve", "RESERVED 2", "blanks around"),
    ("reserve", "RESERVED 1", "first job"),
    ("release 1 2", "RELEASED"), ("release 1 2", "NOT_FOUND"),
    ("reserve-with-timeout 0", "RESERVED 1", "first job"),
    ("delete 1", "DELETED"), ("delete 1", "NOT_FOUND"), ("delete 3", "DELETED"),
    ("delete 2", "DELETED"),
    ("reserve-with-timeout 0", "TIMED_OUT"), ("peek-ready", "NOT_FOUND"),
    ("put", "BAD_FORMAT"), ("put 1", "BAD_FORMAT"), ("put 1 2 3", "BAD_FORMAT"),
    ("put -1 2", "BAD_FORMAT"), ("put x 2", "BAD_FORMAT"),
    ("delete", "BAD_FORMAT"), ("delete x", "BAD_FORMAT"), ("delete 1 2", "BAD_FORMAT"),
    ("delete 9223372036854775808", "BAD_FORMAT"),
    ("release 1", "BAD_FORMAT"), ("release 1 2 3", "BAD_FORMAT"), ("reserve 1", "BAD_FORMAT"),
    ("reserve-with-timeout", "BAD_FORMAT"),
    ("peek-ready 1", "BAD_FORMAT"), ("use x", "UNKNOWN_COMMAND"), ("stats", "UNKNOWN_COMMAND"),
    ("", "UNKNOWN_COMMAND"), ("PUT 1 2", "UNKNOWN_COMMAND"),
    ("put 9223372036854775807 9223372036854775807|large", "INSERTED 4"),
    ("peek-ready", "FOUND 4", "large"),
    ("put 1 1|$(touch x) `id` * \\n %s -n", "INSERTED 5"),
    ("reserve", "RESERVED 5", "$(touch x) `id` * \\n %s -n"),
    ("put 1 60|one|put 2 60|two|delete 6|delete 7", "INSERTED 6", "INSERTED 7", "DELETED",
    "DELETED"),
    ("put 1 60|12345", "INSERTED 8"), ("put 2 60|1", "INSERTED 9"),
    ("reserve|reserve", "RESERVED 8", "12345", "RESERVED 9", "1"),
]


def test_conversation(shell, stalk):
    client = stalk.connect()
    for text, *expected in CONVERSATION:
        says(client, text, *expected)
    client.send(b"quit\r\n")
    assert client.until(lambda: client.ended, 10) or client.ended


def test_numbers_of_32_bits_are_kept(flatq, stalk):
    """A larger number counts as the largest of 32 bits."""
    client = stalk.connect()
    says(client, "put 1800000000 3000000000|job", "INSERTED 1")
    says(client, "put 00000000004 0000000000060|job", "INSERTED 2")
    says(client, "put 4294967296 99999999999|job", "INSERTED 3")
    says(client, "reserve|release 2 4000000000", "RESERVED 2", "job", "RELEASED")
    found = sorted(path.name.split(".") for path in flatq.spool.glob("default/wal/*"))
    assert [(int(name[0]), int(name[1]), int(name[4])) for name in found] == [
        (1800000000, 1, 3000000000), (4000000000, 2, 60), (4294967295, 3, 4294967295)]


def test_a_job_may_begin_with_any_character(stalk):
    client = stalk.connect()
    for number, first in enumerate(range(33, 127), 1):
        client.send(b"put 1 60\r\n%cx\r\nreserve\r\n" % first)
        assert lines(client, 3) == [f"INSERTED {number}", f"RESERVED {number}", f"{chr(first)}x"]


def test_what_is_no_text(stalk):
    client = stalk.connect()
    says(client, "put 1 60|\xe4", "BAD_FORMAT")
    says(client, "put 1 60|a\x01b", "BAD_FORMAT")
    says(client, "put 1 60|" + "x" * 65535, "INSERTED 1")
    says(client, "put 1 60|" + "x" * 65536, "BAD_FORMAT")
    says(client, "peek-ready", "FOUND 1", "x" * 65535)
    says(client, "y" * 300, "BAD_FORMAT")
    says(client, "put 1 60|next", "INSERTED 2")


def test_a_job_comes_to_who_waits_and_again_when_its_time_is_over(launched):
    one = launched(door="small-stalk")
    first, second = one.connect(), one.connect()
    first.send(b"reserve\r\n")
    says(second, "put 1 1|job", "INSERTED 1")
    assert lines(first, 2) == ["RESERVED 1", "job"]
    # its time is over
    says(second, "reserve-with-timeout 600", "RESERVED 1", "job")
