"""Faults in the middle of a command to beanstalk's doors: a program of it fails or is killed, a
file cannot be read, another process is in the way, input would cost much."""

import contextlib
import os
import re
import signal
import subprocess

import pytest

from conftest import wait_for
from engine import children, command_of, faulty, lies, push, standing, words_of
from stalk import Direct, over_tcp
from test_http import STUBS, ask_status, seconds_of
from test_http_faults import LOOKING


def rows(flatq, queue="default"):
    """What list prints, as (id, state, tries)."""
    found = [line.split() for line in flatq("list", queue, check=0).out.decode().splitlines()]
    return [(int(row[0]), row[1], int(row[3])) for row in found]


def test_a_handler_that_is_killed_while_its_client_waits_ends_the_connection(shell, flatq):
    """No child of the handler holds the connection, and without launch there is no guard to end
    one."""
    door = Direct(flatq)
    client, (process,) = door.connect(), door.processes
    client.send(b"reserve\r\n")
    wait_for(lambda: "sleep" in map(command_of, children(process.pid)), "it waits")
    process.kill()
    assert client.rest(20) == b"" and client.ended


@pytest.mark.parametrize("holds", [False, True], ids=["nothing", "a job that is soon due"])
def test_a_damaged_conf_is_neither_a_timeout_nor_a_deadline(flatq, holds):
    flatq("push", "q", input=b"1", check=0)
    flatq("reserve", "-t", "0", "q", check=0)
    (flatq.spool / "q/conf").write_text("garbage\n")
    client = Direct(flatq).connect()
    if holds:
        client.put(b"x", ttr=1)
        assert client.ask(b"reserve").startswith(b"RESERVED ")
        assert client.ask(b"reserve") == b"DEADLINE_SOON\r\n"
    client.ask(b"watch q")
    assert client.ask(b"reserve") == b"OUT_OF_MEMORY\r\n"
    assert ask_status(flatq, "POST", "/queue?group-id=q", b"2") == 500


def test_a_tube_that_is_dropped_while_a_client_reserves(shell, flatq, stub):
    """The job is in a flat file, and the queue is gone when the door has its lock."""
    flatq("push", "-l", "t", input=b"1\n" * 600, check=0)
    assert "queue" in lies(flatq.spool, "t")
    stub("flock", f'[ -e "$ONCE" ] || {{ : >"$ONCE"; rm -r {flatq.spool}/t; }}; exec "$REAL" "$@"')
    client = Direct(flatq).connect()
    client.ask(b"watch t")
    assert client.ask(b"reserve-with-timeout 0") == b"TIMED_OUT\r\n"
    assert client.ask(b"kick 1") == b"KICKED 0\r\n"


@pytest.mark.parametrize("command", [b"stats-tube t", b"pause-tube t 0", b"list-tubes", b"stats"])
def test_statistics_that_are_not_whole_are_no_answer(flatq, stub, command):
    """The awk that adds up the connections is killed."""
    once = stub("awk", '''case "$*" in *stats.awk*) ;; *) exec "$REAL" "$@" ;; esac
[ -e "$ONCE" ] || exec "$REAL" "$@"; rm "$ONCE"; kill -9 "$$"''').with_suffix(".once")
    client = Direct(flatq).connect()
    client.ask(b"use t")
    client.put(b"x")
    client.ask(b"use default")
    once.touch()
    assert client.ask(command) == b"OUT_OF_MEMORY\r\n" and not once.exists()
    assert client.ask(command).split()[0] in (b"OK", b"PAUSED")


def test_a_body_that_was_cut_in_the_pipe(shell, flatq, stub):
    """dd is killed after its first block: the rest reads like the end of a body."""
    stub("dd", """case $* in *count_bytes*)
          "$REAL" bs=65536 count=1 iflag=fullblock 2>/dev/null; kill -9 "$$" ;;
        esac
        exec "$REAL" "$@" """)
    client = Direct(flatq, env={"FLATQ_MOST_BYTES": "2000000"}).connect()
    body = b"x" * 65536 + b"\r\n" * 500_000
    with contextlib.suppress(OSError):  # the door ends the connection before it has read all
        client.send(b"put 0 0 60 %d\r\n" % len(body) + body + b"\r\n")
    said = b""
    while not said.endswith(b"<end>"):
        said += client.reply()
    assert said in (b"<end>", b"OUT_OF_MEMORY\r\n<end>") and rows(flatq) == []


@pytest.mark.parametrize("refused", ["too big", "closed", "full", "draining"])
def test_a_refused_body_that_was_not_read_is_no_command(flatq, stub, refused):
    """The dd that reads it is killed."""
    push(flatq, b"stays", "other")
    push(flatq, b"x")
    flatq("create", *(["-b", "1"] if refused == "full" else []), "default")
    if refused == "closed":
        flatq("close", "default")
    if refused == "draining":
        (flatq.spool / ".doors/0").mkdir(parents=True)
        (flatq.spool / ".doors/0/draining").touch()
    stub("dd", STUBS["killed"])
    size = 70000 if refused == "too big" else 1000
    body = b"\r\ndelete 1\r\n".ljust(size, b"y")
    done = flatq("beanstalk", input=b"put 0 0 60 %d\r\n%s\r\nquit\r\n" % (size, body))
    assert done.status == 74 and done.out in (b"", b"OUT_OF_MEMORY\r\n"), done
    assert done.err.count(b": input failed\n") == 1, done
    assert rows(flatq, "other") == [(1, "ready", 0)]


# ---- the cost of a line: linear in its length


@pytest.mark.parametrize("door, begin, middle, end, said", [
    ("beanstalk", b"", b"a" * 200_000 + b"\n" * 500, b"\r\n", b"BAD_FORMAT\r\n"),
    ("beanstalk", b"", b"\n" * 30_000, b"\r\n", b"BAD_FORMAT\r\n"),
    ("small-stalk", b"put 1 60\r\n", b"\n" * 30_000, b"\r\n", b"BAD_FORMAT\r\n"),
    ("small-stalk", b"put 1 60\r\n", b" " * 65_000, b"\r\n", b"BAD_FORMAT\r\n"),
    ("small-stalk", b"put 1 60\r\n" + b" " * 60, b"x" * 65_000, b"\t" * 60 + b"\r\n",
    b"INSERTED 2\r\n"),
], ids=["no newline", "newlines", "a job of newlines", "a job of blanks", "a job"])
def test_a_line_costs_as_much_as_it_is_long(shell, flatq, door, begin, middle, end, said):
    """Four times the line must not cost sixteen times as much."""
    quarter, _ = seconds_of(lambda: flatq(door, input=begin + middle[::4] + end))
    took, done = seconds_of(lambda: flatq(door, input=begin + middle + end))
    assert done.out == said and took < 6 * quarter + 0.2, (took, quarter, done.out[:100],
        done.err[-300:])


def test_a_list_costs_as_much_as_it_is_long(shell, flatq):
    """The time of an `ignore` once grew with the square of the number of tubes watched."""
    tubes = ["%05d" % number + "x" * 190 for number in range(1000, 1600)]
    watches = "".join(f"watch {tube}\r\n" for tube in tubes)
    ignores = "".join(f"ignore {tubes[number]}\r\n" for number in (-1, 300, 0))
    before, _ = seconds_of(lambda: flatq("beanstalk", input=watches.encode()))
    took, done = seconds_of(lambda: flatq("beanstalk", input=(watches + ignores).encode()))
    assert done.out.split(b"\r\n")[-4:-1] == [b"WATCHING 600", b"WATCHING 599", b"WATCHING 598"]
    assert took - before < 0.9, (took, before)


def test_a_line_that_is_too_large_does_not_fill_the_memory(shell, flatq):
    """100 MB come to a push -l that may take 1000 bytes, in 80 MB of memory."""
    push(flatq, b"first")
    done = subprocess.run(["sh", "-c", 'ulimit -v 80000; exec "$@"', "sh",
        *flatq.command("push", "-l", "jobs")], input=b"x" * 100_000_000, capture_output=True,
        env=flatq.environment({"FLATQ_MOST_BYTES": "1000"}), timeout=100)
    assert (done.returncode, done.stdout) == (65, b""), done
    assert b"over the limit of 1000" in done.stderr, done


def many_more(flatq, place, slip):
    """12,000 more slips like this one in delayed/ or buried/, which come after it."""
    for number in range(10):
        window = flatq.spool / "default" / place / "9999999" / (f"99999990000{number}"
            if place == "delayed" else f"99999990{number}")
        window.mkdir(parents=True)
        for other in range(1200):
            name = slip.name.replace(".000000000001.", f".{1_000_000 + number * 1200 + other:012}.")
            (window / (f"{window.name}000{name[12:]}" if place == "buried" else name)).touch()


@pytest.mark.parametrize("place", ["delayed", "buried"])
def test_the_first_of_many_that_are_set_aside(flatq, place):
    """In 4 MB of memory, which have no room for the names of all 12,000."""
    begin = b"put 0 100 60 1\r\nx\r\n"
    if place == "buried":
        begin = b"put 0 0 60 1\r\nx\r\nreserve\r\nbury 1 0\r\n"
    assert flatq("beanstalk", input=begin).out.startswith(b"INSERTED 1\r\n")
    slip, = (flatq.spool / "default" / place).glob("*/*/*")
    many_more(flatq, place, slip)
    talk = [(b"peek-" + place.encode(), b"FOUND 1 1\r\nx\r\n"), (b"kick 1", b"KICKED 1\r\n"),
        (b"reserve", b"RESERVED 1 1\r\nx\r\n"), (b"bury 1 0", b"BURIED\r\n"),
        (b"put 0 0 60 1\r\ny", b"INSERTED 2\r\n"), (b"list-tube-used", b"USING default\r\n")]
    done = subprocess.run(["sh", "-c", 'ulimit -d 4000; exec "$@"', "sh",
        *flatq.command("beanstalk")], input=b"".join(said + b"\r\n" for said, _ in talk),
        env=flatq.environment({}), capture_output=True, timeout=100)
    count = {"delayed": 12000, "buried": 12001}[place]
    assert done.stdout == b"".join(answer for _, answer in talk), done
    assert f"current-jobs-{place}: {count}\n".encode() in flatq("beanstalk",
        input=b"stats-tube default\r\n").out
    assert not slip.exists()


def test_a_tube_is_made_by_its_first_job(shell, flatq):
    """However many tubes are watched. A client that waits for a tube without a queue gets its first
    job at once."""
    client = Direct(flatq).connect()
    for number in range(100):
        client.send(b"watch tube-%d\r\n" % number)
    assert all(client.reply().startswith(b"WATCHING ") for _ in range(100))
    assert client.ask(b"reserve-with-timeout 0") == b"TIMED_OUT\r\n"
    client.send(b"reserve\r\n")
    wait_for(lambda: list(flatq.spool.glob(".doors/wait/*")), "it waits")
    assert not list(flatq.spool.glob("tube-*"))
    other = Direct(flatq).connect()
    assert other.ask(b"use tube-7") == b"USING tube-7\r\n"
    other.put(b"x")
    assert client.reply() == b"RESERVED 1 1\r\nx\r\n"
    assert [path.name for path in flatq.spool.glob("tube-*")] == ["tube-7"]


@pytest.mark.parametrize("door, asked, found", [("beanstalk", b"peek 1\r\n", b"FOUND 1 4"),
    ("beanstalk", b"peek-ready\r\n", b"FOUND 1 4"),
    ("small-stalk", b"peek-ready\r\n", b"FOUND 1")])
@pytest.mark.parametrize("then", ["delete", "fold"])
def test_a_peek_beside_a_delete_or_a_fold(flatq, door, asked, found, then):
    """Before its body is read. Half an answer would end the connection, which may hold jobs."""
    flatq("push", input=b"many", check=0)
    flatq.env["FLATQ_FOLD"] = "1"
    process, stopped = standing(flatq, "openat", 1, door,
        at=[flatq.spool / "default/body/000000000001"], error="ENOENT", data=asked)
    if then == "delete":
        flatq("delete", "default:1", check=0)
    flatq("wal", check=0)
    os.kill(stopped, signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert out == (b"NOT_FOUND\r\n" if then == "delete" else found + b"\r\nmany\r\n")


def test_a_waiting_client_is_gone_and_so_is_its_fifo(flatq):
    """A pusher whose one look failed takes the waiter for dead, and removes its FIFO."""
    client, theirs = over_tcp(flatq, "beanstalk")
    theirs.close()
    client.send(b"reserve\r\n")
    wait_for(lambda: [fifo.unlink() for fifo in flatq.spool.glob(".wait/*") if fifo.is_fifo()],
        "it waits")
    handler = flatq.started[-1]
    wait_for(lambda: b"sleep\0001\0" in map(words_of, children(handler.pid)), "it looks again")
    client.close()
    assert handler.wait(20) == 0


@pytest.mark.parametrize("calls, name, when, said, code", [
    ("openat", "paused", "1", b"TIMED_OUT", 66), ("openat", "paused", "1+", b"OUT_OF_MEMORY", 74),
    ("newfstatat,stat", "tended", "1", b"TIMED_OUT", 66)])
def test_a_pause_that_cannot_be_read_is_not_over(flatq, calls, name, when, said, code):
    flatq("push", "q", input=b"job", check=0)
    assert flatq("beanstalk", input=b"pause-tube q 1000\r\n").out == b"PAUSED\r\n"
    fault = {"error": "ENOMEM", "when": when}
    path = flatq.spool / "q" / name
    done = faulty(flatq, calls, path, "beanstalk",
        input=b"watch q\r\nreserve-with-timeout 0\r\n", **fault)
    assert done.stdout == b"WATCHING 2\r\n" + said + b"\r\n", done
    done = faulty(flatq, calls, path, "pop", "q", **fault)
    assert done.returncode == code and b"paused" in done.stderr, done


def test_one_pause_for_all_doors(flatq):
    """The door obeys `pause`, and the verbs its pause-tube."""
    flatq("push", input=b"job", check=0)
    flatq("pause", "default", check=0)
    assert flatq("beanstalk", input=b"reserve-with-timeout 0\r\npause-tube default 0\r\n"
        b"reserve\r\npause-tube default 900\r\n").out == (
        b"TIMED_OUT\r\nPAUSED\r\nRESERVED 1 3\r\njob\r\nPAUSED\r\n")
    assert flatq("handler", input=b"reserve\n").out == b"error 66 queue 'default' is paused\n"
    assert flatq("handler", input=b"resume default\n").out == b""
    assert flatq("pop", check=0).out == b"job"


RESERVE = b"watch q\r\nignore default\r\nreserve-with-timeout 0\r\n"


@pytest.mark.parametrize("call, path, when, asked, said", [
    *((call, path, when, RESERVE, rb"(?!.*TIMED_OUT).*") for call, path, when in (
        ("openat", "q/wal", "1+"), (LOOKING, "q/lock", "1"), (LOOKING, "q/lock", "1+"))),
    ("openat", "paused/paused", "1", RESERVE.replace(b"q", b"paused"), rb"TIMED_OUT\r\n"),
    *((call, ".", "1", asked, rb"OUT_OF_MEMORY\r\n") for call in ("openat", "getdents64")
        for asked in (b"list-tubes\r\n", b"stats\r\n"))])
def test_what_cannot_be_looked_at_is_not_nothing(flatq, call, path, when, asked, said):
    """Slips, a lock, a pause, the spool."""
    for queue in ("q", "paused"):
        push(flatq, b"job", queue)
    flatq("beanstalk", input=b"pause-tube paused 1000\r\n", check=0)
    done = faulty(flatq, call, flatq.spool / path, "beanstalk", when=when, input=asked)
    assert re.fullmatch(rb"(WATCHING \d\r\n)*" + said, done.stdout, re.S), done
