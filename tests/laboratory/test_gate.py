"""The crash laboratory's gate counts calls, strikes at the number it was given, and leaves no
process behind."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import carriers, children

from crash.gate import gate
from crash.gate.gate import SPACE, Fault, available, run

GOOD, WHY = available()
pytestmark = pytest.mark.skipif(not GOOD, reason=WHY)

# nine counted calls by one shell and four programs, and what is there before each of them
SCRIPT = """
printf 'hello\\n' >a
printf 'more\\n' >>a
mv a b
base64 <b >d
: >/dev/null
rm b
mkdir e
"""
KINDS = ["open", "write", "open", "write", "rename", "open", "write", "unlink", "mkdir"]
A, CODE = b"hello\nmore\n", b"aGVsbG8KbW9yZQo=\n"
BEFORE = [{}, {"a": b""}, {"a": A[:6]}, {"a": A[:6]}, {"a": A}, {"b": A}, {"b": A, "d": b""},
    {"b": A, "d": CODE}, {"d": CODE}]


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def marked():
    """An environment that marks its processes. None of them may be left at the end, not even as a
    zombie."""
    mark = f"GATE_TEST={os.getpid()}.{id(object())}"
    before = set(children("self"))
    yield dict(os.environ, **dict([mark.split("=")]))
    assert carriers(mark) == {}
    assert set(children("self")) - before == set()


def sh(script, root, *args, **more):
    more = {"timeout": 100, "linger": 30, **more}
    return run(["/bin/sh", "-c", script, "sh", *args], root, cwd=root, **more)


def kinds(result):
    return [call.kind for call in result.calls]


def files(root):
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_counts_are_the_same_every_time(tmp_path):
    seen = []
    for turn in range(5):
        (place := tmp_path / f"turn{turn}").mkdir()
        result = sh(SCRIPT, place)
        assert (result.status, result.stdout, result.stderr) == (0, b"", b"")
        assert (result.fired, result.timed_out) == (0, False)
        seen.append([(call.seq, call.comm, call.kind, call.paths, call.size) for call in
            result.calls])
    assert kinds(result) == KINDS and seen == seen[:1] * 5
    assert [call[3] for call in seen[0][3:6]] == [("a",), ("a", "b"), ("d",)]
    assert [call[4] for call in seen[0] if call[2] == "write"] == [6, 5, 17]


def test_only_the_root_counts(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    script = """
    : >../outside; cat <../outside >/dev/null; printf x >../outside; printf x | cat >&2
    mkdir ../other; : >../link/a; cd ..; : >root/b; cd root/..; mv root/../link/a root/c; cd root
    : >"$PWD/d"; mv ../outside .; mkfifo f; (printf x >f) & cat f >&2; wait; printf '' >missing/x
    """
    calls = [(call.kind, *call.paths) for call in sh(script, root).calls]
    assert [call for call in calls if "f" not in call and "<fd1>" not in call] == [
        ("open", "a"), ("open", "b"), ("rename", "a", "c"), ("open", "d"),
        ("rename", str(tmp_path / "outside"), "."),
        ("rename", str(tmp_path / "outside"), "outside")]
    # a write to it is no change
    assert [call[0] for call in calls if "f" in call] == ["mknod", "open"]


def test_every_kind_of_call_is_seen(root):
    script = r"""
import os
fd = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(fd, b"abc"); os.pwrite(fd, b"de", 7); os.writev(fd, [b"f", b"", b"gh"])
os.ftruncate(fd, 5); os.truncate("a", 4); os.fsync(fd); os.fdatasync(fd); os.sync()
os.rename("a", "b"); os.replace("b", "c"); os.unlink("c"); os.mkdir("d")
here = os.open("d", os.O_RDONLY); os.mkdir("e", dir_fd=here); os.rmdir("e", dir_fd=here)
os.rmdir("d"); os.mkfifo("p"); os.open("a", os.O_WRONLY | os.O_CREAT); os.open("a", os.O_RDWR)
os.open("a", os.O_WRONLY | os.O_TRUNC)
"""
    result = run([sys.executable, "-c", script], root, cwd=root)
    assert (result.status, result.stderr) == (0, b"")
    assert kinds(result) == ["open", *["write"] * 3, *["truncate"] * 2, *["sync"] * 3, "rename",
        "rename", "unlink", "mkdir", "mkdir", "rmdir", "rmdir", "mknod", "open", "open"]
    assert [(call.data, call.offset, call.size) for call in result.calls[1:4]] == [
        (b"abc", 0, 3), (b"de", 7, 2), (b"fgh", 3, 3)]
    assert {call.paths for call in result.calls[13:15]} == {("d/e",)}


def test_copying_falls_back_to_writes(root):
    (root / "a").write_bytes(b"x" * 5000)
    elsewhere = [path for path in map(Path, ("/dev/shm", "/var/tmp")) if os.access(path, os.W_OK)
        and path.stat().st_dev != root.stat().st_dev]
    away = (elsewhere or [root.parent])[0] / f"gate.{os.getpid()}"
    away.write_bytes(b"y" * 5000)
    result = sh('cp a b; cat a >c; mv "$1" d', root, str(away))
    assert result.status == 0 and {len(data) for data in files(root).values()} == {5000}
    assert {call.paths[0] for call in result.calls if call.kind == "write"} >= {"b", "c", "d"}


def test_kill_tree_before_each_call(tmp_path, marked):
    """The earlier calls have had their effect, this one and the later ones have not."""
    for point, left in enumerate(BEFORE, 1):
        (root := tmp_path / str(point)).mkdir()
        result = sh(SCRIPT, root, fault=Fault("kill_tree", point), env=marked)
        assert (result.status, result.fired) == (-signal.SIGKILL, 1)
        assert [call.fate for call in result.calls] == ["run"] * (point - 1) + ["killed"]
        assert files(root) == left, point
    result = sh(SCRIPT, root, fault=Fault("kill_tree", 99))
    assert result.fired == 0


def test_kill_tree_leaves_nobody_wherever_they_hide(root, marked):
    """And no child that is not its own is touched."""
    script = """
    s=99.$$; export s
    sleep $s & (sleep $s & sleep $s) & (trap '' TERM HUP; setsid sleep $s & exec env -i sleep $s) &
    setsid sh -c 'sleep $s & sleep $s & kill -STOP $$' & : >a
    until [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' |
      grep -o "sleep 99[.]$$ " | wc -l)" = 7 ]; do :; done
    : >b"""
    with subprocess.Popen(["sleep", "99"]) as other:
        result = sh(script, root, fault=Fault("kill_tree", 1, where="open b"), env=marked)
        assert (result.fired, [*files(root)], other.poll()) == (1, ["a"], None)
        other.kill()


def test_kill_one_and_the_shell_goes_on(root):
    result = sh("printf x >a; mv a b; printf '%s' $?; mkdir c", root, fault=Fault("kill_one", 3))
    assert (result.status, result.stdout, result.fired) == (0, b"137", 1)
    assert kinds(result) == ["open", "write", "rename", "write", "mkdir"]
    assert sorted(os.listdir(root)) == ["a", "c"]
    result = sh("(while [ -e /proc/$$/exe ]; do :; done; : >after) & : >e", root,
        fault=Fault("kill_one", 1))
    assert result.status == -signal.SIGKILL
    assert (root / "after").exists() and not (root / "e").exists()


def test_errno_lasting(root):
    script = "printf x >a; (printf x >a); (: >b); mv a c; (: >d); rm c"
    result = sh(script, root, fault=Fault("errno_from", 4, errno.ENOSPC, only=SPACE))
    assert [(call.kind, call.fate) for call in result.calls if call.paths != ("<fd1>",)] == [
        ("open", "run"), ("write", "run"), ("open", "run"), ("write", "ENOSPC"), ("open", "ENOSPC"),
        ("rename", "run"), ("open", "ENOSPC"), ("unlink", "run")]
    assert (result.fired, os.listdir(root)) == (3, [])


@pytest.mark.parametrize("kind, order, left", [("errno", "x9 y x2 z", "x9 y z"),
    ("errno_from", "y x2 x9 z", "x2 y")])
def test_a_call_told_by_what_it_is(root, kind, order, left):
    """By its kind and path. Of two paths that differ only in a digit, it strikes the second."""
    sh(f"for f in {order}; do (: >$f) 2>/dev/null; done", root,
        fault=Fault(kind, 2, errno.ENOSPC, where=r"open x\d$"))
    assert sorted(os.listdir(root)) == left.split()


@pytest.mark.parametrize("size, left", [(1, b"1"), (None, b"12345"), (-1, b"123456789")])
def test_torn_write(root, marked, size, left):
    """Of a file, or of the answer."""
    result = sh("printf 0 >a; printf 1234567890 >>a; : >b", root, fault=Fault("torn", 4, size=size),
        env=marked)
    assert (result.status, result.fired, result.calls[-1].fate) == (-signal.SIGKILL, 1, "torn")
    assert files(root) == {"a": b"0" + left}
    assert sh("printf 1234567890", root, fault=Fault("torn", 1, size=size)).stdout == left


@pytest.mark.parametrize("fault, said, left", [
    (Fault("errno", 2, errno.EIO), b"xz", []), (Fault("errno_from", 2, errno.EIO), b"xz", []),
    (Fault("errno", 1, errno.EIO, output=True), b"z", ["a"])])
def test_an_error_is_not_for_the_answer_unless_it_is_meant(root, fault, said, left):
    """The shell complains by a write to a pipe that is not the answer."""
    result = sh("printf x; (printf y >a) 2>/dev/null; printf z; printf y | cat >/dev/null", root,
        fault=fault)
    assert (result.fired, result.stdout, os.listdir(root)) == (1, said, left)


@pytest.fixture
def clock(root, monkeypatch):
    """The gate's clock: a hundred seconds pass when there is a file `b`."""
    monkeypatch.setattr(gate, "time", SimpleNamespace(sleep=time.sleep,
        monotonic=lambda: time.monotonic() + 100 * (root / "b").exists()))


def test_time_out(root, marked, clock):
    result = sh("setsid sleep 99 & sleep 99 & : >b; wait; : >c", root, timeout=50, env=marked)
    assert (result.status, result.timed_out) == (-signal.SIGKILL, True)
    assert kinds(result) == ["open"]


def test_a_signal_does_not_count_a_call_twice(root):
    script = ("import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\n"
        "for turn in range(200): open('f', 'w').close()")
    assert kinds(run([sys.executable, "-c", script], root, cwd=root)) == ["open"] * 200


def test_counts_what_only_looks(root):
    """Looks, listings and reads below the root, and how processes begin and end; and then no
    changes."""
    (root / "a").write_text("hello\n")
    script = ': >b; read -r x <a; [ -e c ]; set -- *; [ -e /etc/passwd ]; cat a | tr h H'
    reads = sh(script, root, kinds=gate.READS)
    assert reads.stdout == b"Hello\n"
    seen = {(call.comm, call.kind, *call.paths) for call in reads.calls}
    assert {("sh", "look", "a"), ("sh", "read", "a"), ("sh", "look", "c"), ("sh", "list", "."),
        ("cat", "read", "a")} <= seen
    assert not {"b", "/etc/passwd"} & {path for call in reads.calls for path in call.paths}
    assert sorted(call.comm for call in sh(script, root, kinds=gate.ENDS).calls) == ["cat", "tr"]
    assert kinds(sh(script, root, kinds=gate.FORKS)) == ["fork", "fork"]
    execs = sh(script, root, kinds=gate.EXECS).calls
    assert sorted(path.rpartition("/")[2] for call in execs for path in call.paths) == ["cat", "tr"]


@pytest.mark.parametrize("kinds", [None, gate.READS, gate.ENDS, gate.EXECS],
    ids=["calls", "reads", "ends", "execs"])
def test_the_death_of_a_child_makes_no_call_fail(kinds, root):
    """dash has a handler for SIGCHLD without SA_RESTART: a fork that waits at the gate would
    fail."""
    result = sh("i=0; while [ $i -lt 100 ]; do /bin/true & : >/dev/null; i=$((i + 1)); done; wait",
        root, kinds=kinds)
    assert (result.status, result.stderr) == (0, b"")


def test_strikes_what_only_looks(root):
    (root / "a").write_text("hello\n")
    script = "set -- *; echo $#; cat a; echo $?"
    for where, said in ((": list", b"1\nhello\n0\n"), ("cat: read", b"1\n1\n")):
        failed = sh(script, root, kinds=gate.READS, fault=Fault("errno", 1, errno.EIO, where=where))
        assert failed.fired == 1 and failed.stdout == said
    assert sh(script, root, kinds=gate.ENDS, fault=Fault("kill_one",
        1)).stdout == b"1\nhello\n137\n"
    failed = sh(script, root, kinds=gate.FORKS, fault=Fault("errno", 1, errno=errno.EAGAIN))
    assert failed.status == 2 and b"hello" not in failed.stdout
