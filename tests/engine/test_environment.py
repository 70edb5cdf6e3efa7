"""Exported variables change only what the man page says. Other shells are refused."""

import re
import subprocess

import pytest

from conftest import LIB, need
from engine import push, refused
from test_talks import talks

def unset():
    """What engine/common.sh unsets."""
    return re.search(r"\n  unset ([^\n]*)\n", (LIB / "engine/common.sh").read_text())[1].split()


# variables that change what the shell, ls, awk and perl do
TOOLS = {
    "IFS": "0123456789.-/", "CDPATH": "/:/tmp", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8",
    "POSIXLY_CORRECT": "1", "TMOUT": "1", "GAWK_READ_TIMEOUT": "1",
    "SHELLOPTS": "noclobber:errexit:noglob", "MAWK_OPTIONS": "-W version",
    "QUOTING_STYLE": "c", "TIME_STYLE": "+%s", "BLOCK_SIZE": "1K", "LS_BLOCK_SIZE": "1K",
    "PERLIO": ":crlf", "PERL_UNICODE": "SDA",
}


@pytest.mark.parametrize("name", ["dash", "bash"])
def test_a_shell_by_its_own_name(flatq, name):
    """bash is another shell, unless it is called sh."""
    for number in (b"1\n", b"2\n"):
        done = subprocess.run([need(name), LIB / "push"], input=b"x y", env=flatq.env,
            capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, number, b"")
    assert subprocess.run([need(name), LIB / "pop"], env=flatq.env,
        capture_output=True).stdout == b"x y"


def test_what_is_stored_is_private(flatq, tmp_path):
    flatq.env["FLATQ_DIR"] = str(tmp_path / "new")
    tmp_path.chmod(0o2777)
    push(flatq, b"secret", "q", env={"FLATQ_FOLD": "1"})
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "new").rglob("*")} == {0}


@pytest.mark.parametrize("name", ["KSH_VERSION", "YASH_VERSION", "ZSH_VERSION"])
def test_another_shell_is_refused(flatq, name):
    """mksh, ksh, yash and zsh say by such a variable what they are."""
    for words in ("push", "q"), ("work", "-q", "q", "--", "cat"), ("serve",):
        refused(flatq(*words, env={name: "1"}), 70, words[0].removeprefix("./"),
            text=b"dash, busybox")
    assert flatq("handler", input=b"push q\nx", env={name: "1"}).out.startswith(b"error 70 ")
    assert not list(flatq.spool.glob("q"))


def test_zsh_is_refused(flatq):
    """By its own name, it has no `command exec`."""
    done = subprocess.run([need("zsh"), LIB / "push", "q"], input=b"x", env=flatq.environment({}),
        capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (70, b"", 1), done
    assert b"dash, busybox" in done.stderr


@pytest.mark.parametrize("what", ["variables", "path"])
def test_what_decides_nothing(shell, flatq, tmp_path, what):
    """Variables of other programs, and those that lib reads with a default. And lib in PATH, as the
    article has it."""
    if what == "path":
        flatq.env["PATH"] = f"{LIB}:{flatq.env['PATH']}"
    else:
        flatq.env |= TOOLS | dict.fromkeys(unset(), f"a[$(touch {tmp_path}/ran)]")
    talks(("push -l, ", "push: a key is", "bound: a", "fold and", "claim: a"), flatq)
    flatq("push", "-l", "q", input=b"1\n2\n3\n", check=0)
    assert flatq("handler", input=b"pop q\n", check=0).out == b"1"
    assert flatq("http", input=b"GET /queue?group-id=q HTTP/1.0\r\n\r\n").out.endswith(b"\r\n\r\n2")
    said = flatq("beanstalk", input=b"put 0 0 9 1\r\nx\r\nreserve\r\nquit\r\n").out
    assert re.fullmatch(rb"INSERTED (\d+)\r\nRESERVED \1 1\r\nx\r\n", said)
    assert flatq("work", "-q", "q", "-w", "0", "--", "cat", check=0).out == b"3"
    assert flatq("serve", "-h", check=0).out.startswith(b"serve ")
    assert b" push " in flatq("log", "q", check=0).out
    assert flatq("stat", "q", check=0).out.startswith(b"queue q\nready 0\n")
    assert flatq("doctor", check=0).out == b""
    assert not (tmp_path / "ran").exists()
