"""A full disk, and directories without rights: the verb prints one clear line, returns the right
exit code, and loses nothing."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import LIB, Result, need
from engine import drain, empty, lies, pop, push, refused, reserve


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


def test_full_at_the_doors(flatq, small_disk):
    put = b"put 0 0 60 5\r\nhello\r\n"
    post = b"POST /queue?group-id=q HTTP/1.1\r\nHost: q\r\nContent-Length: 5\r\n\r\nhello"
    assert flatq("beanstalk", input=put, check=0).out == b"INSERTED 1\r\n"
    assert flatq("http", input=post, check=0).out.startswith(b"HTTP/1.1 200 ")
    fill(small_disk)
    said = flatq("beanstalk", input=put + put.replace(b"5", b"5000").replace(b"hello",
        b"x" * 5000) + b"list-tube-used\r\n")
    assert said.out == b"OUT_OF_MEMORY\r\n" * 2 + b"USING default\r\n" or (said.status,
        said.out) == (74, b"OUT_OF_MEMORY\r\n"), said
    assert flatq("http", input=post).out.startswith(b"HTTP/1.1 500 ")
    assert flatq("beanstalk",
        input=b"reserve\r\ndelete 1\r\n").out == b"RESERVED 1 5\r\nhello\r\nDELETED\r\n"


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
    """The disk is full, or has no room for another file. A pop must still work as the first verb
    after a boot, since it makes room."""
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


@pytest.mark.parametrize("small_disk", ["nr_inodes=200"], indirect=True)
def test_a_message_that_has_no_tries_left_on_a_full_disk(flatq, clock, small_disk):
    """To bury it takes a directory. After a boot, the push journal gives that room; before, the
    message stays, and the checkpoint sweeps the others."""
    flatq("create", "-m", "1", "q", check=0)
    for k in range(14):
        push(flatq, b"%d" % k, "q")
    reserve(flatq, "-t", "5", "q")
    for k in range(1, 4):
        assert pop(flatq, "q") == b"%d" % k
    with suppress(OSError):
        for k in range(200):
            (small_disk / f"ballast.{k}").touch()
    clock.advance(6)
    refused(flatq("wal", "q"), 74, "wal", text=b"no space left")
    assert not lies(small_disk, "q").get("done") and lies(small_disk, "q")["out"]
    with suppress(OSError):
        for k in range(200):
            (small_disk / f"more.{k}").touch()
    clock.reboot("second")
    assert pop(flatq, "q") == b"4"
    assert b"buried 1\n" in flatq("stat", "q", check=0).out


@pytest.mark.parametrize("small_disk", ["nr_inodes=60"], indirect=True)
def test_no_files_left(flatq, small_disk):
    """A disk can have room for bytes and none for new files."""
    there = 0
    for k in range(60):
        done = flatq("push", "q", input=b"%d\n" % k)
        if done.status:
            refused(done, 74, "push", text=b"no space left")
            break
        there += 1
    assert 0 < there < 60
    for k in range(there):
        done = flatq("pop", "q")
        if done.status:
            refused(done, 74, "pop")
            flatq("wal", "q")
            done = flatq("pop", "q")
        assert done.out == b"%d\n" % k, done


# rights

@pytest.fixture
def nobody(flatq):
    """Runs a verb as user 65534, who has no rights to the spool. That user's own spool would lie in
    a directory that the user may enter."""
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
    for root, _, _ in os.walk(top):
        os.chmod(root, 0o755)
    shutil.rmtree(top)


def opened(path):
    """Everybody may read it, and nobody may write."""
    for root, _, names in os.walk(path, topdown=False):
        for name in names:
            os.chmod(os.path.join(root, name), 0o444)
        os.chmod(root, 0o555)


def test_a_spool_that_cannot_be_made(nobody):
    nobody.top.chmod(0o555)
    for verb, code in (("push", 77), ("create", 77), ("pop", 66), ("wal", 66)):
        refused(nobody(verb), code, verb)
    assert list(nobody.top.iterdir()) == []


def test_a_spool_of_somebody_else(nobody, flatq):
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
    opened(nobody.top / "spool")
    before = lies(nobody.top / "spool", "q")
    done = nobody("peek", "q")
    assert (done.status, done.out) in ((0, b"y"), (77, b"")), done
    for words in ("push q", "push -k n q", "push -d 5 q", "push new", "push bound", "pop q",
            "reserve q", "delete RECEIPT", "release RECEIPT", "touch RECEIPT", "bury RECEIPT",
            "close q", "create -b 3 q", "drop -f q", "wal q", "pop -w 1 bound"):
        verb, *rest = words.replace("RECEIPT", got.receipt).split()
        refused(nobody(verb, *rest, input=b"new"), 77, verb)
    assert lies(nobody.top / "spool", "q") == before
    for root, _, _ in os.walk(nobody.top / "spool"):
        os.chmod(root, 0o700)
    assert pop(flatq, "q") == b"y"


@pytest.mark.parametrize("words, tool", [("push q", "base64"), ("push -n 1 q", "dd"),
    ("push -e q", "sed"), ("push -k k q", "flock"), ("push -k k q", "sha1sum"),
    ("push -d 9 q", "mkdir"), ("pop q", "base64"), ("pop q", "mv"), ("pop -w 1 empty", "mkfifo")])
def test_a_tool_that_is_missing(flatq, stub, words, tool):
    """A verb that cannot run one of its tools prints one line and changes nothing."""
    push(flatq, b"x", "q")
    before = {place: len(names) for place, names in lies(flatq.spool, "q").items()}
    verb, *rest = words.split()
    missing = stub(tool, "exit 127")
    refused(flatq(verb, *rest, input=b"y"), 70 if tool == "flock" else 74, verb)
    if tool == "flock":
        stub(tool, 'kill -9 "$$"')
        refused(flatq(verb, *rest, input=b"y"), 74, verb, text=b"flock failed")
    missing.unlink()
    assert {place: len(names) for place, names in lies(flatq.spool, "q").items()} == before
    assert drain(flatq, "q") == b"x"
