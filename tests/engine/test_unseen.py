"""Faults that change nothing on the disk, which the laboratory does not have: a signal between two
looks, what a power cut or a caller has left."""

import signal
import subprocess

import pytest

from conftest import wait_for
from engine import pop, push, refused, reserve

pytestmark = pytest.mark.shells


@pytest.fixture
def flatq(flatq, shell):
    return flatq


@pytest.mark.parametrize("door", ["", "http"])
def test_a_taker_that_is_stopped_while_it_wakes_others(flatq, stub, door):
    """It has its message, and passes on a wake in another queue. TERM comes while it removes what a
    killed waiter has left there."""
    for queue in "ab":
        flatq("create", queue, check=0)
    stub("rm", '"$REAL" "$@"\ncase $* in *b/wait/9999999*) kill -TERM $PPID ;; esac')
    words = ["http"] if door else ["reserve", "-w", "60", "-t", "4000000", "a", "b"]
    taker = flatq.start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)
    if door:
        taker.stdin.write(
            b"GET /queue?wait=60&visibility-timeout=86400 HTTP/1.1\r\nHost: q\r\n\r\n")
        taker.stdin.flush()
    wait_for(lambda: list((flatq.spool / "a/wait").iterdir())
        and list((flatq.spool / "b/wait").iterdir()), "it to wait")
    (flatq.spool / "b/wait/9999999-000000000100.aaaaaaaaaaaa").touch()
    push(flatq, b"x", "a")
    assert taker.communicate(timeout=60)[0] == b"" and taker.returncode in (75, -signal.SIGTERM)
    assert pop(flatq, "a") == b"x"


def test_a_client_that_has_all_of_a_reservation_keeps_it(flatq, stub):
    """base64 has written everything, and is killed then. A client of the line door knows by the
    length that its answer is whole; without a door the message goes back."""
    push(flatq, b"invoice", "jobs")
    stub("base64", '"$REAL" "$@"\ncode=$?\ncase $1 in -d) kill -9 $$ ;; esac\nexit $code')
    assert flatq("reserve", "-t", "600", "jobs").status == 74
    assert b"ready 1" in flatq("stat", "jobs", check=0).out
    done = flatq("handler", input=b"reserve -t 600 jobs\n")
    assert done.status == 74 and done.out.endswith(b" 7\ninvoice")
    assert b"reserved 1" in flatq("stat", "jobs", check=0).out
    flatq("delete", done.out.split()[0].decode(), check=0)


@pytest.mark.parametrize("lost", ["1d", "$d", "d"])
def test_an_awk_that_hides_that_it_could_not_write(flatq, stub, lost):
    """As busybox's does: stat of many queues looks at each by itself then."""
    for queue in "abc":
        push(flatq, b"x", queue)
    stub("awk", f"""case $* in *many=many*) "$REAL" "$@" | sed '{lost}'; exit 0 ;; esac
        exec "$REAL" "$@" """)
    assert flatq("stat", check=0).out.count(b"ready 1\n") == 3


def test_stat_beside_a_drop(flatq, stub):
    """Of a queue that was named it says so; of all, it shows those that are there."""
    for queue in "ab":
        push(flatq, b"x", queue)
    drop = stub("find", f"""[ -e "$ONCE" ] || {{ >"$ONCE"; {flatq.command("drop")[0]} \
        {" ".join(map(str, flatq.command("drop", "-f", "a")[1:]))} >/dev/null; }}
        exec "$REAL" "$@" """)
    done = flatq("stat")
    assert done.status == 0 and done.out.startswith(b"queue b\n"), done
    push(flatq, b"x", "a")
    drop.with_name("find.once").unlink()
    done = flatq("stat", "b", "a")
    assert done.status == 69 and b"queue 'a'" in done.err, done
    assert done.out.startswith(b"queue b\n")


def test_a_twin_is_synced_before_it_is_named(flatq, stub, tmp_path):
    """The process that pushed the first one may have been killed before its sync."""
    noted = tmp_path / "synced"
    flatq.syncs()
    push(flatq, b"0", "q")
    stub("sync", "kill -9 $PPID")
    process = flatq.start("push", "-k", "K", "q")
    process.communicate(b"x")
    assert process.returncode == -signal.SIGKILL
    stub("sync", f'echo "$*" >>"{noted}"\nexec "$REAL" "$@"')
    assert flatq("push", "-k", "K", "q", input=b"x", check=0).out.endswith(b" dup\n")
    assert str(flatq.spool / "q") in noted.read_text()


@pytest.mark.parametrize("left", [b"", b"\0\0", b"\0\0yes\n", b"yes\n", b"1\0\0yes\n"])
def test_a_key_that_a_power_cut_has_left_without_its_id(shell, flatq, spool, left):
    """The key belongs to no message. The next push gets it, and doctor removes it."""
    push(flatq, b"first", "-k", "one", "jobs")
    path, = (spool / "jobs/keys").iterdir()
    assert flatq("pop", "jobs", check=0).out == b"first"
    flatq("wal", check=0)
    path.write_bytes(left)
    flatq("doctor", check=0)
    assert not path.exists()
    path.write_bytes(left)
    assert flatq("push", "-k", "one", "jobs", input=b"second", check=0).out == b"2\n"
    assert flatq("drain", "jobs", check=0).out == b"second\n"


def test_doctor_gives_no_key_away(flatq, clock, stub):
    """It may miss the message that has the key. And a reason that begins with `k` is no key."""
    push(flatq, b"first", "-k", "one", "jobs")
    push(flatq, b"second", "jobs")
    for _ in range(2):
        held = reserve(flatq, "jobs")
        flatq("bury", "-r", "killed", held.receipt, check=0)
    key, = (flatq.spool / "jobs/keys").iterdir()
    for _ in range(2):
        flatq("doctor", "jobs", check=0)
        assert list((flatq.spool / "jobs/keys").iterdir()) == [key]
    key.write_bytes(b"7\nyes\n")
    flatq("doctor", "jobs", check=0)
    assert not key.exists()
    clock.reboot("second")
    flatq("doctor", "jobs", check=0)
    assert list((flatq.spool / "jobs/keys").iterdir()) == [key] and key.read_bytes() == b"1\nyes\n"
    # the message moves from place to place before find comes there
    stub("find", 'case $* in *" -name *.k* "*) exit ;; esac; exec "$REAL" "$@"')
    flatq("doctor", "jobs", check=0)
    assert key.exists()


def test_a_drop_that_is_over_stops_no_push(flatq):
    """It gave up, or was killed."""
    push(flatq, b"x", "q")
    refused(flatq("drop", "q"), 75, "drop")
    assert not (flatq.spool / "q/dropping").exists()
    (flatq.spool / "q/dropping").touch()
    push(flatq, b"y", "q")
    assert not (flatq.spool / "q/dropping").exists()
    assert [pop(flatq, "q"), pop(flatq, "q")] == [b"x", b"y"]
