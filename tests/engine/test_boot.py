"""Where a spool may be, which verbs make one, and what the first verb after a boot does."""

import subprocess

import pytest

from engine import pop, push, refused, reserve

LOOKS = (
    "list", "list q", "stat", "peek q", "pop q", "pop -w 1 q", "reserve q", "drain q",
    "claim -c me q", "settle -c me 1 q", "unclaim -c me q",
    "delete q:1", "release q:1", "touch q:1", "bury q:1", "kick q", "drop q", "close q", "wal",
    "wal q", "doctor", "doctor -v", "log", "work -q q true",
)
MAKES = ("push q", "push -l q", "create q", "import q.queue")


def everything(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


@pytest.mark.new
@pytest.mark.parametrize("verb", LOOKS)
def test_looking_makes_no_spool(flatq, tmp_path, verb):
    """`FLATQ_DIR=/etc flatq list` has made .boot, .ids, .lock and more in /etc."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "passwd").touch()
    (tmp_path / "empty").mkdir()
    for name in ("here", "empty", "none", "none/below"):
        before = everything(tmp_path)
        done = flatq(*verb.split(), env={"FLATQ_DIR": str(tmp_path / name)})
        refused(done, 66, verb.split()[0], text=b"no spool at %s/%s\n" % (str(tmp_path).encode(),
            name.encode()))
        assert everything(tmp_path) == before


@pytest.mark.new
@pytest.mark.parametrize("verb", MAKES)
def test_where_a_spool_is_made(flatq, tmp_path, verb):
    """Only in a directory that is empty, or absent below one that exists."""
    (tmp_path / "q.queue").write_text("eA==\n")
    for name in ("here", "empty", "disk"):
        (tmp_path / name).mkdir()
    (tmp_path / "here/passwd").touch()
    (tmp_path / "disk/lost+found").mkdir()
    for name, text in (("here", b"the directory is not empty"),
            ("none/below", b"the directory above it is missing"),
                       ("here/passwd", b"this is no directory"),
                       ("here/passwd/below", b"this is no directory")):
        before = everything(tmp_path)
        refused(flatq(*verb.split(), cwd=tmp_path, input=b"x\n",
            env={"FLATQ_DIR": str(tmp_path / name)}), 66, text=text)
        assert everything(tmp_path) == before
    for name in ("empty", "new", "disk"):
        flatq(*verb.split(), cwd=tmp_path, input=b"x\n", env={"FLATQ_DIR": name}, check=0)
        assert (tmp_path / name / "q/lock").exists()


@pytest.mark.parametrize("booted", [False, True])
def test_a_spool_of_another_format(flatq, spool, clock, booted):
    """A verb of an older flatq deleted bodies that a newer one had written."""
    push(flatq, b"x", "q")
    [record] = (spool / ".boot").iterdir()
    record.rename(record.with_name(record.name.replace(".v1.", ".v2.")))
    (spool / ".format.1").rename(spool / ".format.2")
    if booted:
        clock.reboot("second")
    before = everything(spool)
    for verb in ("pop", "push", "stat", "wal"):
        refused(flatq(verb, "q"), 70, verb, text=b"has format 2")
    assert everything(spool) == before


def test_the_first_verbs_of_a_new_spool_at_once(shell, flatq):
    """None of them finds a spool, and each creates it."""
    started = [flatq.start("push", f"q{k % 3}", stdin=subprocess.DEVNULL) for k in range(12)]
    ids = [process.communicate(timeout=100) + (process.returncode,) for process in started]
    assert all(status == 0 and err == b"" for _, err, status in ids), ids
    assert len({out for out, _, _ in ids}) == 12
    assert all(flatq("stat", f"q{k}", check=0).out.startswith(b"queue q%d\nready 4\n" % k)
        for k in range(3))


def test_a_boot_sees_what_is_wrong_in_one_of_many_queues(flatq, spool, clock):
    """One listing shows many queues; each with anything to do is recovered as if it were alone."""
    names = ["quiet", "damaged", "short", "unended", "bodiless", "orphan", "strange", "placeless",
        "unmarked", "reserved", "popped", "folded", "keyed", "half", "delayed"]
    for name in names:
        push(flatq, b"1234", name)
        push(flatq, b"2", name)
        if name == "popped":
            pop(flatq, name)
    first = {name: min((spool / name / "body").iterdir(), key=lambda path: path.name)
        for name in names}
    first["damaged"].write_bytes(b"\0" * 8 + b"\n")
    first["short"].write_bytes(b"MTIz\n")
    # a power cut has kept the size, and not the newline
    first["unended"].write_bytes(b"MTIzNA==\0")
    first["bodiless"].unlink()
    (spool / "orphan/body/000000000900").write_bytes(b"MTIz\n")
    (spool / "strange/wal/junk").touch()
    (spool / "placeless/room").rmdir()
    (spool / "unmarked/fold/~").unlink()
    (spool / "half/lock").unlink()
    reserve(flatq, "reserved")
    flatq("wal", "folded", check=0)
    push(flatq, b"3", "-k", "key", "keyed")
    push(flatq, b"later", "-d", "1000", "delayed")
    clock.reboot("second")
    assert flatq("push", "quiet", input=b"3", check=0).status == 0
    for name in ("damaged", "short", "unended", "bodiless"):
        assert flatq("list", name, check=0).out.split(b"\n")[-2].endswith(b" damaged"), name
        assert pop(flatq, name) == b"2"
    assert not (spool / "orphan/body/000000000900").exists() and not (
        spool / "strange/wal/junk").exists()
    assert (spool / "placeless/room").is_dir() and (spool / "unmarked/fold/~").exists() and (
        spool / "half/lock").exists()
    assert not list((spool / "popped/done").iterdir())
    for name in ("quiet", "orphan", "strange", "placeless", "unmarked", "reserved", "folded",
            "keyed", "half", "delayed"):
        assert pop(flatq, name) == b"1234", name
        assert pop(flatq, name) == b"2", name


def many_reserved(flatq, spool, clock, count, owner="0", lease=600):
    push(flatq, b"first", "q")
    [slip] = (spool / "q/wal").iterdir()
    end = int((clock.base + clock.seconds + lease) * 100)
    for number in range(5000, 5000 + count):
        (spool / f"q/body/{number:012}").write_bytes(b"eA==\n")
        name = f"0000065536.{number:012}.1.abc.60.0.176000000000.1.-.0-0-0-0.{owner}.{end:012}"
        (spool / "q/out" / name).touch()
    return slip


def test_a_boot_with_many_reserved(flatq, spool, clock):
    """To put one back costs no process. A boot was killed when it had made slips, and removed
    nothing."""
    many_reserved(flatq, spool, clock, 500)
    flatq("create", "-m", "9", "q", check=0)
    (spool / "q/wal/0000065536.000000005007.1.abc.60.0.176000000000.1.-.1-0-0-0").touch()
    clock.reboot("second")
    assert b"\nready 501\n" in flatq("stat", "q", check=0).out
    assert not list((spool / "q/out").iterdir()) and len(list((spool / "q/wal").iterdir())) == 501


def test_what_comes_back_of_many(flatq, spool, clock):
    """Of more than two hundred, one process finds a lease that is over, an owner that is dead."""
    many_reserved(flatq, spool, clock, 400)
    out = sorted((spool / "q/out").iterdir())
    over, dead, settled, alive = out[:4]
    gone, now = "999999999-000000000100.000000000000", (clock.base + clock.seconds) * 100

    def owned(path, owner):
        return path.rename(path.with_name(path.name[:-len("0.") - 12] + owner))

    owned(over, "0.000000000100")
    owned(dead, gone)
    (spool / "q/done" / owned(settled, gone).name).touch()
    alive = owned(alive, f"1-{now:012d}.000000000000")
    assert pop(flatq, "q") == b"first"
    assert pop(flatq, "q") + pop(flatq, "q") == b"xx"
    refused(flatq("pop", "q"), 66)
    assert alive.exists()
