"""`flatq import`: the article's queues become flatq's. The article's own push makes the files."""

import base64
import os
import subprocess

import pytest

from conftest import ROOT
from engine import faulty

BODIES = [b"one", b"\0\n\xff" * 19 + b"x", b"y" * 1000, os.urandom(100_000), b"last"]


def put(home, *bodies, name="mail"):
    """The article's file after these were pushed."""
    (home / f"{name}.queue").touch()
    for body in bodies:
        subprocess.run(["sh", "-c", '. "$0"', ROOT / "tests/article/push"], cwd=home,
            env={**os.environ, "queue": name}, input=body, check=True)
    return home / f"{name}.queue"


def popped(flatq, queue="mail"):
    found = []
    while (done := flatq("pop", queue)).status == 0:
        found.append(done.out)
    assert done.status == 66
    return found


def test_what_the_article_holds(shell, flatq):
    files = [put(flatq.home, *BODIES), put(flatq.home, b"other", name="a.b"),
        put(flatq.home, name="empty")]
    before = [file.read_bytes() for file in files]
    assert flatq("import", *files, check=0) == (0, b"mail 5\na.b 1\nempty 0\n", b"")
    assert (popped(flatq), popped(flatq, "a.b")) == (BODIES, [b"other"])
    assert [file.read_bytes() for file in files] == before


def test_lines_that_are_not_wrapped(shell, flatq):
    """Then a line of 76 characters is a message too."""
    bodies = [b"a" * 57, b"b" * 57, *BODIES, b"c" * 57]
    file = flatq.home / "mail.queue"
    file.write_bytes(b"".join(base64.b64encode(body) + b"\n" for body in bodies))
    done = flatq("import", "mail.queue")
    assert (done.status, done.out) == (65, b"") and b"say -u" in done.err and popped(flatq) == []
    assert flatq("import", "-l", "mail.queue", check=0).out == b"mail 8\n"
    assert popped(flatq) == bodies
    file.write_bytes(b"".join(base64.b64encode(body) + b"\n" for body in bodies if len(body) != 57))
    assert flatq("import", "mail.queue", check=0).out == b"mail 5\n"
    assert popped(flatq) == BODIES


def test_a_message_that_was_joined_to_a_torn_one(shell, flatq):
    """The article's cp was killed before the end of a message, and the next push went on in the
    same line."""
    whole = [b"1" * 1000, b"2" * 1000]
    torn = put(flatq.home, *whole, b"torn" * 25).read_bytes()[:-25]
    joined = put(flatq.home, b"joined" * 80, b"3" * 1000, name="next").read_bytes()
    (flatq.home / "mail.queue").write_bytes(torn + joined)
    assert flatq("import", "mail.queue") == (65, b"",
        b"import: mail.queue has lines of 76 characters, and longer ones: say -u if messages are "
        b"wrapped, "
                                                      b"-l if each line is a message\n")
    done = flatq("import", "-u", "mail.queue")
    assert (done.status, done.out) == (65, b"mail 3\n")
    assert done.err == (b"import: mail.queue, line 37: to line 46: "
        b"one of these lines has over 76 characters: not stored\n")
    assert popped(flatq) == [*whole, b"3" * 1000]


def test_names_what_it_cannot_read(shell, flatq):
    file = put(flatq.home, b"1", b"2" * 100, b"3")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([b"no base64!\n", lines[0], b"-\n", b"\n", *lines[1:3], b"abc\n",
        lines[1], b"*" * 76 + b"\n", lines[3], lines[1], b"abcd"]))
    for name in ("wal.1", "wal.3", "out"):
        (flatq.home / f"mail.{name}").write_bytes(b"")
    put(flatq.home, b"other", name="other")
    done = flatq("import", "mail.queue", "other.queue")
    assert (done.status, done.out) == (65, b"mail 2\nother 1\n")
    assert done.err.decode().splitlines() == [
        "import: mail.queue, line 1: not base64: not stored",
        "import: mail.queue, line 3: not base64: not stored",
        "import: mail.queue, line 7: not base64: not stored",
        "import: mail.queue, line 8: not base64: not stored",
        "import: mail.queue, line 11: cut off in the middle: not stored",
        "import: mail.wal.1: a push was killed: its message may not be in mail.queue",
        "import: mail.wal.3: a push was killed: its message may not be in mail.queue",
        "import: mail.out: a pop was killed: its message may not be in mail.queue"]
    assert popped(flatq) == [b"1", b"2" * 100]


@pytest.mark.parametrize("words, status, said", [
    ([], 64, "no file: see import -h"), (["mail"], 64, "'mail' is not named QUEUE.queue"),
    ([".queue"], 64, "'.queue' is not named QUEUE.queue"),
    (["missing.queue"], 66, "cannot read 'missing.queue'"), (["mail.queue", "directory.queue"], 66,
    "cannot read 'directory.queue'"),
    (["mail.queue", "-x"], 64, "options come before the file")])
def test_nothing_is_stored(flatq, words, status, said):
    put(flatq.home, b"m")
    (flatq.home / "directory.queue").mkdir()
    done = flatq("import", *words)
    assert (done.status, done.out, done.err.decode()) == (status, b"", f"import: {said}\n")
    assert flatq("list").out == b""


def test_a_name_with_control_characters(shell, flatq):
    """An error about such a file is one line, which a terminal does not obey."""
    place = flatq.home / "n\nimport: all stored\033[2J"
    place.mkdir()
    (place / "k.queue").write_bytes(b"a\n")
    for words, status in (([place / "k.queue"], 65), ([place / "none.queue"], 66),
            ([place / "x"], 64)):
        done = flatq("import", *words, check=status)
        assert done.err.count(
            b"\n") == 1 and b"\033" not in done.err and b"nimport: all stored[2J/" in done.err, done


def test_a_message_that_is_too_large(flatq):
    put(flatq.home, b"m", b"n" * 2000)
    done = flatq("import", "mail.queue", env={"FLATQ_MOST_BYTES": "1999"})
    assert (done.status, done.out, done.err) == (65, b"",
        b"import: a message is over the limit of 1999: nothing is stored\n")
    assert popped(flatq) == []


@pytest.mark.parametrize("when", range(1, 8))
def test_a_file_that_cannot_be_read_to_its_end(flatq, when):
    """None of its messages is stored, or all are."""
    put(flatq.home, *[b"%d" % number * 20_000 for number in range(10)])
    done = faulty(flatq, "read", flatq.home / "mail.queue", "import", "mail.queue", when=str(when))
    assert (done.returncode, len(popped(flatq))) in ((74, 0), (0, 10)), done
