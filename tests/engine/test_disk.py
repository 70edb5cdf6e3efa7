"""A full disk, and directories without rights: one clear line, the right code, and nothing is
lost."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import LIB, Result, need
from engine import empty, lies, pop, push, refused, reserve


@pytest.fixture
def small_disk(request, flatq, tmp_path):
    """The spool on a small file system of its own: 400 KB, or what the test's parameter tells
    mount."""
    place = tmp_path / "disk"
    place.mkdir()
    room = getattr(request, "param", "size=400k")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"{room},mode=700", "none", str(place)],
        capture_output=True, text=True)
    if done.returncode:
        pytest.skip("mount refuses to make a small disk: " + done.stderr.strip())
    flatq.env["FLATQ_DIR"] = str(place / "spool")
    yield place / "spool"
    flatq.end(*flatq.started)
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path, leave=0):
    """Use up the free room but for so many bytes."""
    with open(path / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 4096)
        except OSError:
            pass
    size = (path / "ballast").stat().st_size
    os.truncate(path / "ballast", max(0, size - leave))


@pytest.mark.parametrize("sync", ["on", "off"])
def test_full(shell, flatq, small_disk, sync):
    flatq.env["FLATQ_SYNC"] = sync
    numbers = [push(flatq, b"%d" % k, "q") for k in range(3)]
    push(flatq, b"keyed", "-k", "old", "q")
    before = lies(small_disk, "q")
    fill(small_disk)
    for options in ([], ["-k", "new"], ["-d", "9"], ["-n", "3"]):
        refused(flatq("push", *options, "q", input=b"new"), 74, "push", text=b"no space left")
    refused(flatq("push", "another", input=b"new"), 74, "push", text=b"no space left")
    # the failed push left nothing
    assert {place: len(names) for place, names in lies(small_disk,
        "q").items()} == {place: len(names) for place, names in before.items()}
    # messages can be taken: that needs no room and frees some
    got = reserve(flatq, "q")
    assert got.body == b"0"
    assert pop(flatq, "q") == b"1"
    flatq("release", got.receipt, check=0)
    assert pop(flatq, "q") == b"0"
    (small_disk / "ballast").unlink()
    assert push(flatq, b"after", "q") > max(numbers)
    assert b"dup" in flatq("push", "-k", "old", "q", check=0).out
    assert b"dup" not in flatq("push", "-k", "new", "-p", "70000", "q", input=b"new", check=0).out
    assert [pop(flatq, "q") for _ in range(4)] == [b"2", b"keyed", b"after", b"new"]
    empty(flatq, "q")
    empty(flatq, "another")


@pytest.mark.parametrize("small_disk", ["size=400k", "size=400k,nr_inodes=90"], indirect=True)
def test_the_first_verb_after_a_boot(request, shell, flatq, clock, small_disk):
    """A pop must work then, since it makes room."""
    numbers = [push(flatq, b"%d" % k, "q") for k in range(6)]
    fill(small_disk)
    with suppress(OSError):
        for k in range(100 if "nr_inodes" in request.node.name else 0):
            (small_disk / f"ballast.{k}").touch()
    clock.reboot("second")
    for k in range(6):
        assert pop(flatq, "q") == b"%d" % k
    flatq("wal", "q", check=0)
    for path in small_disk.glob("ballast*"):
        path.unlink()
    assert push(flatq, b"after", "q") > max(numbers) + 900 and pop(flatq, "q") == b"after"
    flatq("wal", check=0)
    assert len(list((small_disk / ".ids").glob("[0-9]*"))) == 1 and len(list((
        small_disk / ".boot").iterdir())) == 1


# rights

@pytest.fixture
def nobody(flatq):
    """Runs a verb as user 65534, who has no rights to the spool."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    prefix = []
    if os.geteuid() == 0:
        os.chown(top, 65534, 65534)
        need("setpriv")
        prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        probe = subprocess.run([*prefix, "test", "-r", str(LIB / "engine/common.sh")])
        if probe.returncode:
            pytest.skip("user 65534 cannot read lib/")

    def run(verb, *arguments, input=b"", spool=top / "spool"):
        env = flatq.environment({"FLATQ_DIR": str(spool), "HOME": str(top),
            "PATH": os.environ["PATH"]})
        done = subprocess.run([*prefix, shutil.which("dash"), str(LIB / verb), *arguments],
            input=input, env=env, cwd="/", capture_output=True, timeout=100)
        return Result(done.returncode, done.stdout, done.stderr)

    run.top = top
    yield run
    subprocess.run(["chmod", "-R", "u+rwX", top], check=True)
    shutil.rmtree(top)


def test_a_spool_that_cannot_be_made_or_of_somebody_else(nobody, flatq):
    nobody.top.chmod(0o555)
    for verb, code in (("push", 77), ("create", 77), ("pop", 66), ("wal", 66)):
        refused(nobody(verb), code, verb)
    assert list(nobody.top.iterdir()) == []
    nobody.top.chmod(0o755)
    flatq.env["FLATQ_DIR"] = str(nobody.top / "spool")
    push(flatq, b"x", "q")
    (nobody.top / "spool").chmod(0o700 if os.geteuid() == 0 else 0o000)
    for verb in ("push", "pop", "reserve", "wal", "peek", "log", "log -f"):
        refused(nobody(*verb.split(), "q"), 77, verb.split()[0])
    (nobody.top / "spool").chmod(0o700)
    assert pop(flatq, "q") == b"x"


def test_a_spool_to_look_at(nobody, flatq):
    flatq.env["FLATQ_DIR"] = str(nobody.top / "spool")
    push(flatq, b"x", "q")
    push(flatq, b"y", "-k", "k", "q")
    got = reserve(flatq, "q")
    flatq("create", "-b", "5", "bound", check=0)
    push(flatq, b"z", "bound")
    subprocess.run(["chmod", "-R", "a-w,a+rX", nobody.top / "spool"], check=True)
    before = lies(nobody.top / "spool", "q")
    done = nobody("peek", "q")
    assert (done.status, done.out) in ((0, b"y"), (77, b"")), done
    for words in ("push q", "push -k n q", "push -d 5 q", "push new", "push bound", "pop q",
            "reserve q", "delete RECEIPT", "release RECEIPT", "touch RECEIPT", "bury RECEIPT",
            "close q", "create -b 3 q", "drop -f q", "wal q", "pop -w 1 bound"):
        verb, *rest = words.replace("RECEIPT", got.receipt).split()
        refused(nobody(verb, *rest, input=b"new"), 77, verb)
    assert lies(nobody.top / "spool", "q") == before
    subprocess.run(["chmod", "-R", "u+w", nobody.top / "spool"], check=True)
    assert pop(flatq, "q") == b"y"
