"""A dead-letter queue: what would be buried after its last try goes there."""

import fcntl
import shutil

import pytest

from conftest import LIB, wait_for
from engine import lock_waiters, pop, push, refused, reserve

from crash.gate import gate
from crash.judge import layout


def made(flatq, *options):
    """A queue q of one try, whose dead-letter queue is `dead`; the receipt of its message."""
    flatq("create", "-m", "1", "-D", "dead", *options, "q", check=0)
    push(flatq, b"x", "-k", "key", "-p", "7", "q")
    return reserve(flatq, "-t", "999", "q").receipt


@pytest.mark.shells
def test_after_its_last_try_it_goes_there(shell, flatq, spool):
    """With its id and priority and no tries used; why says where it comes from. Its key is free."""
    flatq("release", made(flatq), check=0)
    assert flatq("list", "q", check=0).out == b""
    assert flatq("list", "dead", check=0).out == b"1 ready 7 0 1 0\n"
    assert flatq("why", "dead:1", check=0).out.endswith(b"\nfrom q:1 at try 1: released\n")
    refused(flatq("wait", "q:1"), 65, text=b"moved to queue 'dead'")
    refused(flatq("why", "q:1"), 66, text=b"moved to queue 'dead'")
    assert push(flatq, b"again", "-k", "key", "q") == 2
    flatq("work", "-q", "q", "-n", "1", "--", "sh", "-c", "echo why >&2; exit 3", check=0)
    assert flatq("list", "-v", "dead", check=0).out.endswith(b" - why\n")
    assert [pop(flatq, "dead") for _ in range(2)] == [b"x", b"again"]
    assert flatq("doctor").out == b"" and not [*(spool / "q/body").iterdir()]
    # create keeps what it is not told, and '' takes it back
    flatq("create", "-b", "9", "q", check=0)
    assert (spool / "q/conf").read_text() == "9 1 dead=dead\n"
    refused(flatq("create", "-D", "q", "q"), 65, text=b"its own")
    flatq("create", "-D", "", "q", check=0)
    assert (spool / "q/conf").read_text() == "9 1\n"


@pytest.mark.parametrize("before", ["create -b 1 dead; push dead", "close dead", "drop dead",
    "create -D other dead", "create -D q dead"])
def test_else_it_is_buried(flatq, before):
    receipt = made(flatq)
    for words in before.split("; "):
        flatq(*words.split(), check=0)
    flatq("release", receipt, check=0)
    assert flatq("list", "q", check=0).out == b"1 buried 7 1 1 0 released\n"
    assert b"1 dup" in flatq("push", "-k", "key", "q", check=0).out


@pytest.mark.parametrize("kind", ["kill_tree", "kill_one", "errno"])
def test_a_fault_at_each_call(flatq, spool, kind):
    """The message is in one of the two queues, whole, before and after the next boot."""
    receipt, whole, number, told = made(flatq), spool.with_name("whole"), 0, set()
    shutil.copytree(spool, whole)
    while True:
        number += 1
        result = gate.run(["sh", str(LIB / "release"), receipt], spool, env=flatq.env,
            stdin=b"", fault=gate.Fault(kind, number, errno=5))
        for again in (0, 1):
            found = layout.dump(spool)
            [(queue, message)] = [(queue, m) for queue in ("q", "dead")
                for m in found.messages(queue)]
            assert message.body == b"x" and found.damaged == [], (number, result)
            told.add((queue, again))
            layout.reboot(spool)
            flatq("wal", check=0)
        assert not [name for name in layout.dump(spool).left if "/body/" in name], number
        if not result.fired:
            break
        shutil.rmtree(spool)
        shutil.copytree(whole, spool)
    # the boot itself puts it back, after its last try
    assert told >= {("q", 0), ("dead", 0), ("dead", 1)} and queue == "dead"


def test_two_processes_move_it(flatq, stub):
    """The first one's sync fails; the second one, which waited for the lock, must leave the body
    alone."""
    flatq.syncs()
    flatq("release", made(flatq), check=0)
    flatq("push", "q", input=b"y", check=0)
    flatq("reserve", "-t", "0", "q", check=0)
    stub("sync", 'case $* in *dead/wal*) exit 1 ;; esac; exec "$REAL" "$@"')
    with open(flatq.spool / "dead/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = []
        for number in (1, 2):
            both.append(flatq.start("pop", "q"))
            wait_for(lambda: lock_waiters(lock) == number)
    assert {one.wait(60) for one in both} <= {66, 74}
    assert [pop(flatq, "dead") for _ in range(2)] == [b"x", b"y"]


def test_its_lost_leases_do_not_count_there(flatq):
    """Else a worker would bury it as `dead` and never run it."""
    flatq("create", "-m", "2", "-D", "dead", "q", check=0)
    push(flatq, b"x", "q")
    for _ in range(2):
        flatq("reserve", "-t", "0", "q", check=0)
        flatq("wal", check=0)
    assert flatq("work", "-e", "-m", "1", "-q", "dead", "--", "cat", check=0).out == b"x"


@pytest.mark.parametrize("unread", ["dead", "other"])
def test_one_that_no_boot_could_recover_takes_none(flatq, spool, unread):
    """Its recovery needs the spool's lock, which that of the queue holds."""
    made(flatq)
    flatq("create", unread, check=0)
    [record] = spool.glob(".boot/*")
    record.rename(f"{record}.unread")
    for queue in ("q", unread):
        (spool / f".unread.{queue}").write_text("000000000001\n")
    assert flatq("stat", "q", timeout=30).status == 0
    where = "q" if unread == "dead" else "dead"
    assert flatq("list", where, check=0).out.startswith(b"1 ")


def test_a_door_gives_no_message_to_a_queue_that_is_not_allowed(flatq):
    done = flatq("flatq", "door", "--spool", flatq.env["FLATQ_DIR"], "--queues", "mail",
        input=b"create -D other mail\n")
    assert done.out == b"error 77 queue 'other' is not allowed here\n"
