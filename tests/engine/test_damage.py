"""A message whose body is not whole, or cannot be read, is set aside, and the others go on."""

import fcntl
import re
import shutil

import pytest

from conftest import wait_for
from engine import faulty, lies, lock_waiters, pop, push, refused

BODY = b"0123456789" * 900
CUTS = [0, 4096, 8000]


@pytest.fixture(params=CUTS)
def half(flatq, request):
    """A queue with half a message, as by a power cut, and a whole one behind it; what is left of it
    is returned."""
    number = push(flatq, BODY, "q")
    push(flatq, b"whole", "q")
    body = flatq.spool / f"q/body/{number:012}"
    body.write_bytes(body.read_bytes()[:request.param])
    return BODY[:request.param // 4 * 3]


def buried(flatq, reason="damaged"):
    return len([*flatq.spool.glob(f"q/buried/*/*/*.{reason}")])


# what asks for a message, the code, and what comes out; the next one, which is whole, comes then
ASKED = [
    ("pop q", "", 74, None), ("reserve q", "", 74, None), ("drain q", "", 0, b"whole\n"),
    ("drain -0 q", "", 0, b"whole\0"), ("pop -l -n 5 q", "", 0, b"whole\n"),
    ("claim -c me q", "", 0, None), ("handler", "pop q\n", None, None),
    ("handler", "reserve q\n", None, None),
    ("beanstalk", "watch q\r\nignore default\r\nreserve-with-timeout 0\r\n", None, None),
    ("http", "GET /queue?group-id=q HTTP/1.1\r\nHost: x\r\n\r\n", None, None),
]


@pytest.mark.parametrize("words, asked, code, out", ASKED)
def test_half_a_message_is_not_handed_out(shell, flatq, half, words, asked, code, out):
    """By a door, the connection ends before the length that it has announced."""
    done = flatq(*words.split(), input=asked.encode())
    assert code in (None, done.status) and out in (None, done.out), done
    assert code != 74 or done.err.endswith(b": queue 'q': message 1 is damaged: buried\n"), done
    assert BODY not in done.out and buried(flatq) == 1
    if asked:
        assert b"whole" not in done.out and b"whole" in flatq(words, input=asked.encode()).out
    elif out:
        refused(flatq(*words.split()), 66)
    else:
        assert done.out.startswith(b"0 1 " if "claim" in words else b"")
        flatq("unclaim", "-c", "me", "q")
        assert pop(flatq, "q") == b"whole"


def test_peek_prints_what_is_left(shell, flatq, half):
    for words in (["q"], ["q:1"]):
        done = flatq("peek", *words)
        assert (done.status, done.out, done.err) == (74, half,
            b"peek: queue 'q': message 1 is damaged\n"), done
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


READS = "openat,read,splice,sendfile,copy_file_range,getdents64"


def three_queues(flatq):
    """Each with three messages in a flat file, two with bodies of their own, of which one has a
    key, and a delayed one."""
    for queue in ("a", "q", "z"):
        flatq("push", "-l", queue, input=b"flat0\nflat1\nflat2\n", check=0)
        flatq("push", "-d", "1000", queue, input=b"delayed", check=0)
        flatq("push", "-k", "key", queue, input=b"single", check=0)
        flatq("push", queue, input=b"next", check=0)
        flatq("create", "-b", "1000", queue, check=0)


def one_of_each(queue):
    """Each directory of the queue, and one file in each."""
    found = {queue: queue}
    for path in sorted(queue.rglob("*")):
        kind = path.name if path.parent == queue else path.is_dir() and path
        found.setdefault((path.parent, kind), path)
    return list(found.values())


def set_aside(flatq, path):
    """Set queue q aside in a copy of the spool where this file cannot be read. Return the spool
    that it is in then."""
    copy = flatq.home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(flatq.spool, copy, symlinks=True)
    inside = {"FLATQ_DIR": str(copy)}
    done = faulty(flatq, READS, copy / path.relative_to(flatq.spool), "doctor", "-a", "q",
        when="1+", env=inside)
    aside, = copy.glob(".aside.*")
    said = b"queue 'q': set aside in the spool %s. Seen in it: %s\n"
    bodies = {int(body.name) for body in aside.glob("q/body/*")}
    assert done.returncode == 0 and re.fullmatch(said % (re.escape(bytes(aside)), rb"[\d -]+"),
        done.stdout), (path, done)
    seen = {n for first, last in re.findall(rb"(\d+)(?:-(\d+))?", done.stdout.rpartition(b":")[2])
        for n in range(int(first), int(last or first) + 1)}
    assert path.name == "q" or seen >= bodies, (path, done)
    refused(flatq("pop", "q", env=inside), 66)
    assert flatq("push", "q", env=inside, input=b"new").status == 0
    assert flatq("drain", "q", env=inside, check=0).out == b"new\n"
    return aside


def drained(flatq, spool):
    inside = {"FLATQ_DIR": str(spool)}
    left = flatq("drain", "q", env=inside).out
    flatq("kick", "-n", "9", "q", env=inside)
    return left + flatq("drain", "q", env=inside).out


@pytest.mark.slow
@pytest.mark.parametrize("booted", [False, True])
def test_an_unreadable_file_stops_its_queue_alone(flatq, clock, booted):
    """At the boot and before. Doctor names it, and what mends it, or mends it."""
    three_queues(flatq)
    flatq("claim", "-c", "me", "-n", "1", "q", check=0)
    flatq("bury", flatq("reserve", "q", check=0).out.split()[0].decode(), check=0)
    flatq("push", "-l", "q", input=b"flat\n", check=0)
    if booted:
        clock.reboot("second")
    kept = flatq.home / "kept"
    shutil.copytree(flatq.spool, kept, symlinks=True)
    stopped = set()
    for path in one_of_each(flatq.spool / "q"):
        shutil.rmtree(flatq.spool)
        shutil.copytree(kept, flatq.spool, symlinks=True)
        done = faulty(flatq, READS, path, "pop", "z", when="1+")
        assert (done.returncode, done.stdout) == (0, b"flat0"), (path, done)
        done = faulty(flatq, READS, path, "drain", "q", when="1+")
        where = str(path.relative_to(flatq.spool / "q")).encode()
        if done.returncode == 74:
            stopped.add(where.split(b"/")[0])
        healed = faulty(flatq, READS, path, "doctor", "q", when="1+")
        aside = b"set aside" in healed.stdout
        in_flat = path.parent.parent.name == "queue" and done.returncode == 74
        assert aside == in_flat, (path, healed)
        spools = [flatq.spool]
        if healed.returncode:
            assert bytes(path) in healed.stderr, (path, done, healed)
            assert healed.stderr.endswith(b": mend the disk, or who may read it, or set the queue "
                b"aside: flatq doctor -a q\n"), (path, done, healed)
            spools += [set_aside(flatq, path)]
        # It can be read again, or is read where it was set aside: all is there
        for spool in spools:
            left = done.stdout + drained(flatq, spool)
            want = [b"flat2", b"flat1", b"single", b"next", b"flat"][:4 if aside else 5]
            left = sorted(left.replace(b"delayed\n", b"").split())
            assert left == sorted(want), (path, done, healed)
    assert {b"wal", b"conf", b"out"} <= stopped


@pytest.mark.parametrize("verb", ["pop", "reserve", "drain", "work"])
def test_a_body_that_cannot_be_read_at_two_tries(flatq, verb):
    """The message is set aside, and the next one comes. One read that fails loses nothing."""
    push(flatq, b"bad", "q")
    push(flatq, b"next", "q")
    body = flatq.spool / "q/body/000000000001"
    words = ["work", "-q", "q", "-w", "0", "-d", "0", "--", "cat"] if verb == "work" else [verb,
        "q"]
    if verb != "work":
        done = faulty(flatq, READS, body, *words, when="1")
        assert (done.returncode == 74 or verb == "drain") and buried(flatq, "*") == 0, done
    said = b"".join(faulty(flatq, READS, body, *words, when="1+").stdout for _ in range(3))
    assert buried(flatq, "unreadable") == 1 and b"next" in said and b"bad" not in said
    flatq("kick", "q", check=0)
    assert pop(flatq, "q") == b"bad"


@pytest.mark.parametrize("words, asked, said", [
    (["list"], b"", b"z"), (["stat"], b"", b"queue z"), (["wal"], b"", b""),
    (["http"], b"GET /queue HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 500 ")])
def test_a_queue_that_cannot_be_looked_at_is_there(flatq, words, asked, said):
    """`[ -d` is false of it too: GET of any group answered that nothing is there."""
    push(flatq, b"one", "q")
    if words != ["http"]:
        flatq("create", "z", check=0)
    done = faulty(flatq, "newfstatat,fstatat64,stat,stat64,statx", flatq.spool / "q/wal", *words,
        when="1+", input=asked)
    assert (done.returncode, said in done.stdout) == (0 if asked else 74, True), done


@pytest.mark.slow
def test_a_queue_that_nobody_may_enter_at_a_boot(flatq, clock):
    """Its mark lies beside it. When it can be read, its reserved message is back, once."""
    for queue in ("a", "q"):
        push(flatq, b"one", "-t", "9000", queue)
        flatq("reserve", queue, check=0)
    clock.reboot("second")
    queue = flatq.spool / "q"
    inside = [queue, *queue.rglob("*")]
    for name, code, out in ("a", 0, b"one"), ("q", 74, b""):
        done = faulty(flatq, "newfstatat,stat,statx,openat,getdents64", inside, "pop", name,
            error="EACCES", when="1+")
        assert (done.returncode, done.stdout) == (code, out), done
        assert (flatq.spool / ".unread.q").exists()
    assert pop(flatq, "q") == b"one"
    assert not (flatq.spool / ".unread.q").exists()


def test_two_doctors_set_aside_one_queue(flatq):
    """The second one waits for the lock, and leaves the queue alone that was made since."""
    for n in (b"1", b"2", b"3"):
        push(flatq, n, "q")
    with open(flatq.spool / "q/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        doctors = [flatq.start("doctor", "-a", "q") for _ in range(2)]
        wait_for(lambda: lock_waiters(lock) == 2, "both wait")
    said = sorted((one.wait(60), one.stdout.read()) for one in doctors)
    aside, = flatq.spool.glob(".aside.*/q")
    assert [code for code, _ in said] == [0, 69]
    assert said[0][1].endswith(b"Seen in it: 1-3\n")
    inside = {"FLATQ_DIR": str(aside.parent)}
    refused(flatq("push", "q", env=inside, input=b"4"), 69)
    assert flatq("drain", "q", env=inside, check=0).out == b"1\n2\n3\n"
