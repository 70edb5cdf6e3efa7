"""Names of queues: a good one works, and a bad one is refused in one line."""

import subprocess
from pathlib import Path

import pytest

from conftest import LIB, share
from engine import empty, lies, pop, push, refused, reserve

REFUSED = [
    "", ".", "..", "../x", "x/..", "a/../b", "./x", "a/./b", "-x", "-", "--help", "*", "?", "[a]",
    "a b", "a\tb", "a\n", "\n", "a\nb", "a,b", "%a",
    "a:b", "~", "~root", "a'b", 'a"b', "a\\b", "a|b", "a&b", "a>b", "`touch x`", "$(touch x)",
    "a{b}", "a=b", "a@b", "a#b", "a!b",
    "\x7f", "\xe4", "x" * 201, "x" * 300, "a/" * 150 + "a", "x" * 5000,
]
ALLOWED = [
    "a.wal", "a/b", ".x", "..x", "...", "a..b", "a;b", ";", "$", "$x",
    "${x}".replace("{", "(").replace("}", ")"), "$(id)", "$(touch-x)", "_", "+", "a+b-c",
    "()", "0", "08", "a/.b", "/", "a/", "/a", "a//b", "wal", "out", "done", "buried", "delayed",
    "fold",
    "queue", "unfold", "head", "body", "keys", "tmp", "wait", "room", "ids", ".ids", ".boot",
    ".lock", ".wait", "probe.a.b", "drop.1", "probe.a.1-000000000000", "x" * 200, "a" + "/a" * 99,
]


def everything(*roots):
    return sorted(str(path) for root in roots for path in Path(root).rglob("*"))


@pytest.mark.parametrize("verb", ["push", "pop", "reserve", "kick", "peek", "close", "create",
    "drop", "wal"])
def test_what_is_refused(shell, flatq, tmp_path, verb):
    flatq("create", check=0)
    before = everything(tmp_path)
    for name in share(f"names {verb}", REFUSED, 12):
        done = flatq(verb, "--", name)
        refused(done, 65, verb)
        assert len(done.err) < 500
        if name.startswith("-") and name != "--help":
            refused(flatq(verb, name), 64 if name != "-" else 65, verb)
    assert everything(tmp_path) == before


def test_what_is_allowed(shell, flatq, spool, tmp_path):
    """All in one spool. A sweep for `probe.*.*` once removed the queue `probe.a.b`."""
    names = {"out", "a/b", "probe.a.b", *share("names allowed", ALLOWED, 20)}
    outside = everything(flatq.home)
    for name in names:
        push(flatq, b"1 " + name.encode(), "--", name)
    flatq("wal", check=0)
    for record in (spool / ".boot").iterdir():
        record.unlink()
    flatq("wal", check=0)
    for name in names:
        got = reserve(flatq, "--", name)
        assert got.receipt.rsplit(":", 1)[0] == name
        flatq("release", "--", got.receipt, check=0)
        assert pop(flatq, "--", name) == b"1 " + name.encode()
        empty(flatq, "--", name)
    assert everything(flatq.home) == outside
    assert not [path for path in tmp_path.iterdir() if path.name not in ("spool", "home")]
    assert all(path.parent == spool for path in spool.iterdir())
    flatq("drop", "out", check=0)
    flatq("drop", "a/b", check=0)
    assert {path.name for path in spool.iterdir()} >= {".ids", ".boot", ".wait"}


ANYWHERE = ["new\nline [a] * $(touch x) '\"\\ out", "-n", "a,b", "%d", "done",
    b"jos\xc3\xa9\xff".decode(errors="surrogateescape")]  # no characters


@pytest.mark.new
@pytest.mark.parametrize("name", ANYWHERE)
def test_the_spool_may_lie_anywhere(shell, flatq, tmp_path, name):
    spool = tmp_path / name / "spool"
    spool.parent.mkdir()
    flatq.env["FLATQ_DIR"] = str(spool)
    push(flatq, b"x", "-k", "key", "q/r")
    flatq("create", "-b", "3", "q/r", check=0)
    push(flatq, b"y", "-d", "1000", "q/r")
    assert b"dup" in flatq("push", "-k", "key", "q/r", check=0).out
    flatq("bury", reserve(flatq, "q/r").receipt, check=0)
    assert flatq("kick", "q/r", check=0).out == b"1\n"
    assert flatq("peek", "-s", "delayed", "q/r", check=0).out == b"y"
    got = reserve(flatq, "q/r")
    assert (got.body, got.tries) == (b"x", 1)
    flatq("delete", got.receipt, check=0)
    assert flatq("kick", "q/r", check=0).out == b"1\n"
    assert pop(flatq, "-w", "9", "q/r") == b"y"
    flatq("wal", check=0)
    assert lies(spool, "q,r") == {}
    assert {path.name for path in tmp_path.iterdir()} == {name, "home"}
    assert not list(flatq.home.iterdir())


def test_the_spool_by_a_relative_path(flatq, tmp_path):
    (flatq.home / "there").mkdir()
    for path in ("here", "./there/deep", "-x"):
        flatq.env["FLATQ_DIR"] = path
        push(flatq, b"x")
        assert pop(flatq) == b"x"
        assert (flatq.home / path / "default").is_dir()


def test_where_the_spool_is_when_nobody_says(shell, flatq):
    nobody = {"FLATQ_DIR": None, "XDG_STATE_HOME": None}
    push(flatq, b"home", env=nobody)
    assert (flatq.home / ".local/state/flatq/default").is_dir()
    state = str(flatq.home / "state")
    push(flatq, b"state", env={"FLATQ_DIR": "", "XDG_STATE_HOME": state})
    assert (flatq.home / "state/flatq/default").is_dir()
    assert pop(flatq, env=nobody) == b"home"
    before = everything(flatq.home)
    for home in (None, ""):
        refused(flatq("push", env={**nobody, "HOME": home}, input=b"x"), 64, "push", text=b"HOME")
    assert everything(flatq.home) == before
    assert flatq("pop", env={"HOME": None, "FLATQ_DIR": None, "XDG_STATE_HOME": state},
        check=0).out == b"state"


def test_through_a_link_and_from_the_search_path(shell, flatq, tmp_path):
    """A verb works by the path of lib/push, as `flatq push`, and from its own directory."""
    for command, cwd in (([flatq.shell, "push"], LIB), ([flatq.shell, "./push"], LIB),
            ([flatq.shell, str(LIB / "flatq"), "push"], tmp_path),
            ([flatq.shell, "flatq", "push"], LIB)):
        done = subprocess.run(command, input=b"x", cwd=cwd, env=flatq.environment(None),
            capture_output=True, timeout=100)
        assert done.returncode == 0 and done.stderr == b"", (command, done)
        assert pop(flatq) == b"x"
