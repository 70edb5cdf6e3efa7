"""flatq top: all queues on a terminal, looked at again and again."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from conftest import need
from engine import on_terminal, push, refused, reserve


@pytest.fixture
def screen(flatq, tmp_path):
    """screen(WORD ...) starts top on a terminal of 12 lines."""
    class Screen:
        def __init__(self, *words, env=None, size=(12, 90), errors=False):
            self.leader, self.terminal = pty.openpty()
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            self.before = termios.tcgetattr(self.terminal)
            self.process = flatq.start("top", *words, stdin=self.terminal, stdout=self.terminal,
                stderr=self.terminal if errors else subprocess.PIPE,
                                       env={"TMPDIR": str(own), **(env or {})})

        def look(self, pattern=".*"):
            """The lines of the picture of which one matches. A key asks for the next picture."""
            for _ in range(50):
                text = on_terminal(self.leader, b"\033[J").decode().rpartition("\033[H")[2]
                lines = [line.removesuffix("\033[K").rstrip() for line in text.replace("\r",
                    "").split("\n")]
                if any(re.fullmatch(pattern, line) for line in lines):
                    return lines
                self.press(" ")
            raise AssertionError(lines)

        def press(self, key):
            os.write(self.leader, key.encode())

        def ended(self):
            """Its exit code, once it has given the terminal back as it was."""
            code = self.process.wait(60)
            assert termios.tcgetattr(self.terminal) == self.before and not list(own.iterdir())
            os.close(self.terminal)
            assert on_terminal(self.leader).endswith(b"\033[?25h\033[?1049l")
            os.close(self.leader)
            return code

    need("stty")
    own = tmp_path / "tmp"
    own.mkdir()
    return Screen


def test_what_it_shows(shell, flatq, screen):
    push(flatq, b"1", "a")
    push(flatq, b"2", "jobs")
    flatq("push", "-d", "999", "jobs", input=b"later", check=0)
    one = screen("-n", "25")
    lines = one.look("jobs +1 +1 +0 +0 +0.0 +0.0 +0 +[0-9]+s")
    assert re.fullmatch("..:..:..  2 queues, 3 messages    q: end",
        lines[0]) and lines[2].split() == [
        "QUEUE", "READY", "DELAYED", "RESERVED", "BURIED", "IN/S", "OUT/S", "FAILED",
        "OLDEST"] and [line.split()[0] for line in lines[3:5]] == ["a", "jobs"]
    # what happened before it began does not count, and what happens now does: in bulk, too
    flatq("push", "-l", "jobs", input=b"1\n" * 9, check=0)
    flatq("release", reserve(flatq, "jobs").receipt, check=0)
    flatq("drain", "a", check=0)
    one.press(" ")
    lines = one.look(r"jobs +10 +1 +0 +0 +(?!0\.0)[0-9.]+ +0.0 +1 +[0-9]+s")
    assert re.fullmatch(r"a +0 +0 +0 +0 +0\.0 +(?!0\.0)[0-9.]+ +0 +-",
        lines[4]), "the busiest comes first"
    one.press(" ")
    one.look("jobs +10 +1 +0 +0 +0.0 +0.0 +1 +[0-9]+s")
    one.press("q")
    assert one.ended() == 0 and one.process.stderr.read() == b""


def test_more_queues_than_lines(flatq, screen):
    for number in range(9):
        flatq("create", f"queue{number}", check=0)
    one = screen()
    assert [line.split()[0] for line in one.look("and 2 more")[3:10]] == [f"queue{number}"
        for number in range(7)]
    one.process.send_signal(signal.SIGTERM)
    assert one.ended() == -signal.SIGTERM


def test_an_error_is_on_the_screen_that_stays(flatq, screen):
    one = screen(errors=True)
    one.look()
    flatq.spool.rename(flatq.home / "moved")
    one.press(" ")
    assert one.process.wait(60) == 74
    os.close(one.terminal)
    assert re.fullmatch(rb"top: [^\n]+\n", on_terminal(one.leader).rpartition(b"\033[?1049l")[
        2].replace(b"\r", b""))
    os.close(one.leader)


def test_where_it_cannot_show_anything(flatq, screen):
    refused(flatq("top"), 64, "top", text=b"terminal")
    one = screen(env={"FLATQ_DIR": str(flatq.home / "none")})
    assert one.process.wait(60) == 66 and b"top: no spool" in one.process.stderr.read()
    one = screen(env={"TMPDIR": str(flatq.home / "none")})
    assert one.process.wait(60) == 74 and re.fullmatch(rb"top: no temporary directory in [^\n]*\n",
        one.process.stderr.read())
