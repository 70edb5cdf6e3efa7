"""lib/beanstalk: the same conversations with Debian's beanstalkd and with flatq's, under ./launch
and in each shell; real clients; and what becomes of jobs when a process is killed."""

import itertools
import os
import random
import re
import select
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import counting
from conftest import Runner, everything, fuzz, need, wait_for
from engine import (
    alive, children, faulty, lies, next_hundredth, push, reserve)
from servers import module
from stalk import (
    Client, Debians, Direct, briefly, compare, converse, differences, parent, recorded, talk)
from stalk_talks import DIFFERENT, LONG, TALKS


@pytest.fixture
def debians():
    server = Debians()
    yield server
    server.end()


# ---- the same conversation with both servers


@pytest.mark.parametrize("served", ["under launch", "directly"])
@pytest.mark.parametrize("name", [name for name in TALKS if name not in LONG])
def test_as_debians(shell, flatq, launched, debians, name, served):
    ours = launched() if served == "under launch" else Direct(flatq)
    said, differ = compare([debians, ours], TALKS[name])
    assert not differ, "\n".join(differ)
    assert not any(b"<nothing>" in reply for _, reply in said), "it waits for nothing"


@pytest.mark.parametrize("name", LONG)
def test_as_debians_where_time_passes(shell, flatq, clock, stub, name):
    """flatq goes by the test's clock, and Debian's server by what it said on an idle machine
    (stalk_said.txt)."""
    said = talk(Direct(flatq, clock=clock.runs_sleep(stub)), TALKS[name])
    differ = differences(briefly(said), recorded(name))
    assert not differ, "\n".join(differ)


@pytest.mark.timed
@pytest.mark.parametrize("name", LONG)
def test_as_debians_by_the_real_clock(flatq, name):
    """Beside nine of Debian's: one in three misses the end of a job's time, and says
    DEADLINE_SOON."""
    servers = [Direct(flatq), *(Debians() for _ in range(9))]
    try:
        with ThreadPoolExecutor(len(servers)) as pool:
            ours, *theirs = pool.map(lambda one: briefly(talk(one, TALKS[name])), servers)
    finally:
        for server in servers:
            server.end()
    assert not differences(ours, recorded(name))
    for reply, *said in zip(recorded(name), *theirs, strict=True):
        said = {one for _, one in said}
        assert reply in said or said == {b"DEADLINE_SOON\r\n"}, (reply, said)


def test_as_debians_by_chance(tmp_path):
    """For some seconds, conversations that a generator makes up."""
    import stalk_random
    seconds, seed = fuzz("stalk_random", 10)
    end, talks = time.monotonic() + seconds, 0
    while not talks or time.monotonic() < end:
        top = tmp_path / str(talks)
        (top / "home").mkdir(parents=True)
        servers = [Debians(), Direct(Runner(need("dash"), top / "spool", top / "home"))]
        try:
            _, differ = compare(servers, stalk_random.script(random.Random(seed + talks), 120))
        finally:
            for one in servers:
                one.end()
        assert not differ, f"seed {seed + talks}\n" + "\n".join(differ)
        talks += 1
    print(talks, "conversations, seed", seed)


@pytest.mark.parametrize("script, theirs, own, why", DIFFERENT)
def test_what_differs_is_listed(flatq, debians, script, theirs, own, why):
    assert talk(Direct(flatq), script)[0][1] == own
    if theirs:
        assert talk(debians, script)[0][1] == theirs, f"differs no longer: {why}"


def test_largest_job(flatq, launched):
    client = launched("-z", "1000000").connect()
    body = bytes(range(256)) * 3900
    assert client.put(body) == 1
    assert client.ask(b"reserve") == b"RESERVED 1 998400\r\n" + body + b"\r\n"
    assert client.ask(b"put 0 0 1 1000001\r\n" + bytes(1000001)) == b"JOB_TOO_BIG\r\n"
    assert client.ask(b"list-tube-used") == b"USING default\r\n"
    one = launched("-z", "0", env={"FLATQ_DIR": f"{flatq.spool}/more"}).connect()
    assert one.put(bytes(70000)) == 1


# ---- client libraries


def test_greenstalk(launched):
    greenstalk = module("greenstalk")
    address = ("127.0.0.1", launched().port)
    with (greenstalk.Client(address, use="work", watch=["work", "other"]) as producer,
            greenstalk.Client(address, watch="work") as worker):
        ids = [producer.put(text, priority=number)
            for number, text in enumerate(("first", "second", "third"))]
        assert ids == sorted(ids)
        job = worker.reserve()
        assert (job.id, job.body) == (ids[0], "first")
        worker.touch(job)
        worker.release(job, priority=9)
        second = worker.reserve(timeout=0)
        assert second.body == "second"
        worker.bury(second)
        with pytest.raises(greenstalk.NotFoundError):
            worker.touch(second)
        assert producer.peek_buried().id == second.id
        assert producer.kick(10) == 1
        assert [worker.reserve(timeout=1).body for _ in range(2)] == ["third", "first"]
        assert worker.stats_job(job)["releases"] == 1
        assert producer.stats_tube("work")["current-jobs-reserved"] == 2
        assert set(producer.tubes()) == {"default", "work", "other"}
        assert producer.watching() == ["work", "other"]
        with pytest.raises(greenstalk.TimedOutError):
            producer.ignore("work") and producer.reserve(timeout=0)
        with pytest.raises(greenstalk.JobTooBigError):
            producer.put("x" * 65536)
        producer.delete(producer.reserve_job(second.id))
    with greenstalk.Client(address, watch="work", encoding=None) as worker:
        back = [worker.reserve(timeout=5).body for _ in range(2)]
        assert back == [b"third", b"first"], "given back at the end of the connection"


def test_pystalk(launched):
    pystalk = module("pystalk")
    client = pystalk.BeanstalkClient("127.0.0.1", launched().port)
    client.put_job_into("tube", "body", pri=5, ttr=10)
    client.put_job("other", delay=60)
    assert client.list_tubes() == ["default", "tube"]
    client.watch("tube")
    assert client.stats_tube("tube")["current-jobs-ready"] == 1
    with client.using("tube") as inserter:
        inserter.put_job(b"bytes \0\xff".decode("latin-1"))
    job = client.reserve_job(timeout=1)
    assert job.job_data == b"body"
    assert client.stats_job(job.job_id)["state"] == "reserved"
    client.release_job(job.job_id, pri=1)
    client.bury_job(client.reserve_job(0).job_id)
    client.use("tube")
    assert client.kick_jobs(5)[1] == 1
    client.pause_tube("tube", 60)
    with pytest.raises(pystalk.BeanstalkError) as refused:
        client.reserve_job(timeout=0)
    assert refused.value.message == "TIMED_OUT"
    client.unpause_tube("tube")
    client.delete_job(client.reserve_job(0).job_id)
    assert client.stats()["cmd-put"] == 3
    client.close()


# ---- waiting


@pytest.fixture
def timeless(flatq, clock, stub):
    """A door for which time passes only when the test lets it."""
    one = Direct(flatq)
    one.clock = clock.runs_sleep(stub)
    return one


def connected(one, count):
    """So many clients, each with its handler, which has started."""
    found = [Client(one.connect().socket) for _ in range(count)]
    assert {client.ask(b"use default") for client in found} == {b"USING default\r\n"}
    return list(zip(found, one.processes[-count:]))


@pytest.mark.parametrize("first, last", [
    ([], b"put 0 0 60 1\r\nx"),
    # what is due in a paused tube stays there: who waited for that would look a hundred times a
    # second
    ([b"put 0 1 60 1\r\nx", b"pause-tube default 60"], b"pause-tube default 0")],
    ids=["empty", "paused"])
def test_who_waits_sleeps_until_it_is_woken(shell, timeless, first, last):
    (worker, handler), (producer, _) = connected(timeless, 2)
    for command in first:
        assert producer.ask(command) in (b"INSERTED 1\r\n", b"PAUSED\r\n")
    assert not children(handler.pid)
    worker.send(b"reserve\r\n")
    for _ in range(3):
        assert timeless.clock.asleep(handler) == 2
        timeless.clock.advance(2)
    assert timeless.clock.asleep(handler) == 2 and len(children(handler.pid)) == 1
    assert producer.ask(last) in (b"INSERTED 1\r\n", b"PAUSED\r\n")
    assert worker.reply() == b"RESERVED 1 1\r\nx\r\n"


@pytest.mark.parametrize("command", [b"touch 1", b"release 1 0 0", b"bury 1 0"])
def test_a_job_whose_time_is_over_is_not_held(timeless, command):
    """Also if no other command has put it back yet."""
    (client, _), = connected(timeless, 1)
    client.put(b"x", ttr=5)
    assert client.ask(b"reserve").startswith(b"RESERVED 1 ")
    timeless.clock.advance(5)
    assert client.ask(command) == b"NOT_FOUND\r\n"
    assert b"state: ready\n" in (said := client.ask(b"stats-job 1")) and b"timeouts: 1\n" in said


def test_one_waiter_a_job_and_time_outs(shell, timeless):
    workers, clock = connected(timeless, 4), timeless.clock
    (producer, _), = connected(timeless, 1)
    for worker, _ in workers:
        worker.send(b"reserve-with-timeout 5\r\n")
    assert [clock.asleep(handler) for _, handler in workers] == [2] * 4
    # the waiters are stopped, so that the marks of their wakes stay
    for _, handler in workers:
        handler.send_signal(signal.SIGSTOP)
    for number in (1, 2):
        assert producer.put(b"%d" % number) == number
        assert len(list(timeless.flatq.spool.glob(".wait/*.woken"))) == number
    for _, handler in workers:
        handler.send_signal(signal.SIGCONT)
    got, left = [], list(workers)
    while len(got) < 2:
        ready, _, _ = select.select([worker.socket for worker, _ in left], [], [], 60)
        assert ready
        got += [worker.reply().split()[0] for worker, _ in left if worker.socket in ready]
        left = [(worker, handler) for worker, handler in left if worker.socket not in ready]
    assert got == [b"RESERVED"] * 2
    for seconds in (2, 2, 1):
        assert [clock.asleep(handler) for _, handler in left] == [seconds] * 2
        clock.advance(seconds)
    assert [worker.reply() for worker, _ in left] == [b"TIMED_OUT\r\n"] * 2


def test_every_job_wakes_a_waiter(shell, timeless):
    """A wake that comes to a worker which has its job just now is passed on."""
    workers = connected(timeless, 4)
    (producer, _), = connected(timeless, 1)
    for _ in range(6 if everything() else 3):
        for worker, _ in workers:
            worker.send(b"reserve\r\n")
        for _, handler in workers:
            timeless.clock.asleep(handler)
        for _ in workers:
            producer.put(b"x")
        for worker, _ in workers:
            assert worker.reply().startswith(b"RESERVED ")


def test_who_waits_is_not_idle(launched):
    """A connection that has asked nothing yet, one that has been silent since, a reserve and a GET.
    An HTTP client that asks nothing is."""
    one, web = launched("-i", "1"), launched("-i", "1", door="http")
    mute, silent, blocked, waiting = one.connect(), one.connect(), one.connect(), web.connect()
    for client in (silent, blocked):
        assert client.ask(b"use default") == b"USING default\r\n"
    blocked.send(b"reserve\r\n")
    waiting.send(b"GET /queue?group-id=web&wait=600 HTTP/1.1\r\nHost: q\r\n\r\n")
    for _ in range(3):  # the door ends this client as idle: so much time has passed for the others
        idle = web.connect()
        assert b" 200 " not in idle.rest() and idle.ended
    assert not any(client.more(0) or client.ended for client in (mute, silent, blocked, waiting))
    assert mute.ask(b"use web") == b"USING web\r\n"
    mute.put(b"page")
    silent.put(b"x")
    assert blocked.reply().startswith(b"RESERVED ")
    assert waiting.until(lambda: waiting.got.endswith(b"\r\n\r\npage"), 60), waiting.got


@pytest.mark.parametrize("commands, tube", [
    ("list-tubes; stats; peek 99; reserve-with-timeout 0", "-"), ("use c; peek 99", "c"),
    ("use c; peek-ready", "c"), ("use c; put 0 0 9 0\r\n", "c"), ("watch a; reserve; use c", "c"),
    ("use c; peek 1", "a"), ("watch a; watch b; use c; reserve; peek 99", "a"),
    ("watch a; reserve; use c; bury 1 0", "a"), ("use c; kick-job 2", "b"),
    ("reserve-job 2; list-tubes", "b"), ("use c; stats-tube b", "b"), ("use c; watch b", "b")])
def test_the_log_names_the_tube_that_the_last_request_meant(flatq, commands, tube):
    for queue in "ab":
        push(flatq, queue.encode(), queue)
    one = Direct(flatq)
    client = one.connect()
    for command in commands.split("; "):
        assert client.ask(command.encode() + b"\r\n") != b"<nothing>"
    client.close()
    assert one.processes[0].wait(60) == 0
    assert re.search(r"^\S+ beanstalk (\S+) ok - \d+$", one.said(), re.M)[1] == tube


# ---- processes that are killed


@pytest.mark.parametrize("what, waits", [
    *itertools.product(["handler", "ncat", "client", "launch"], ["nobody", "worker"]),
    ("handler", "other"), ("client", "other")])
def test_held_jobs_come_back(launched, what, waits):
    """Also while the connection that holds them waits for more, and to another one that waits, in
    two seconds."""
    one = launched()
    worker = one.connect()
    ids = [worker.put(b"%d" % number, ttr=600) for number in range(3)]
    for at, number in enumerate(ids):
        assert worker.ask(b"reserve") == b"RESERVED %d 1\r\n%d\r\n" % (number, at)
    handler, = one.handlers()
    other = one.connect()
    assert other.ask(b"list-tube-used") == b"USING default\r\n"
    if waits != "nobody":
        {"worker": worker, "other": other}[waits].send(b"reserve\r\n")
        wait_for(lambda: list(one.flatq.spool.glob("default/wait/*")))
    if what == "client":
        worker.close()
    else:
        pid = {"handler": handler, "ncat": parent(handler), "launch": one.process.pid}[what]
        os.kill(pid, signal.SIGKILL)
        # RACE: on a busy machine, what was killed may live on for a moment, and be seen
        wait_for(lambda: not alive(pid), "it is dead")
    if what == "launch":
        one.process.wait()
        wait_for(lambda: not one.handlers(), "everything ends with launch")
        other = launched().connect()
    got = [other.reply()] if waits == "other" else []
    got += [other.ask(b"reserve-with-timeout 60") for _ in ids[len(got):]]
    assert sorted(reply.split()[1] for reply in got) == [b"%d" % number for number in ids], got
    if what == "client":
        assert b"reserves: 2\ntimeouts: 0\nreleases: 0\n" in other.ask(b"stats-job %d" % ids[0])


@pytest.mark.parametrize("how", ["half", "whole"])
def test_a_client_that_goes_with_commands_behind_a_reserve(flatq, clock, stub, how):
    """Nobody reads them, and there is no ncat to notice: the handler does at its next look."""
    clock.runs_sleep(stub)
    client = Direct(flatq).connect()
    held = client.put(b"x")
    assert client.ask(b"reserve").startswith(b"RESERVED ")
    client.send(b"reserve\r\nlist-tube-used\r\n")
    for goes in (None, None, how):
        wait_for(lambda: 2 in clock.sleepers().values(), "it waits")
        assert not client.more(0)
        if goes == "half":
            client.socket.shutdown(socket.SHUT_WR)
        elif goes:
            client.close()
        clock.advance(2)
    if how == "half":
        assert client.rest() == b"TIMED_OUT\r\nUSING default\r\n"
    wait_for(lambda: flatq("peek").status == 0, "what it held is back")
    assert Direct(flatq).connect().ask(b"reserve-with-timeout 0").startswith(b"RESERVED %d " % held)


def test_counters_outlive_a_connection_once(shell, flatq):
    """Each count counts once, and a connection as open as long as its handler lives: also one that
    is killed."""
    one = Direct(flatq)
    (client, handler), (other, _) = connected(one, 2)
    client.ask(b"use t")
    client.put(b"x")

    def said(*expected):
        answer = other.ask(b"stats")
        names = (b"cmd-put", b"total-jobs", b"current-connections", b"current-producers",
            b"total-connections")
        assert all(b"%s: %d\n" % row in answer for row in zip(names, expected)), answer

    said(1, 1, 2, 1, 2)
    handler.kill()
    handler.wait(60)
    said(1, 1, 1, 0, 2)
    said(1, 1, 1, 0, 2)
    assert len([*one.tallies()]) == 1, "its file is gone"
    third = one.connect()
    third.put(b"y")
    third.close()
    wait_for(lambda: len([*one.tallies()]) == 1, "its end")
    said(2, 2, 1, 0, 3)


def test_many_tubes_are_not_written_for_each_answer(flatq):
    """What a connection writes grows with what the client sends, not with its square."""
    one = Direct(flatq)
    (client, handler), = connected(one, 1)
    commands = [b"watch %03d" % number + b"x" * 190 for number in range(400)]
    for command in commands:
        client.ask(command)
    with open(f"/proc/{handler.pid}/io") as counts:
        wrote = int(dict(line.split(": ") for line in counts)["wchar"])
    assert wrote < 20 * sum(map(len, commands)), wrote
    assert b"cmd-watch: 400\n" in client.ask(b"stats")


def test_counters_are_folded(flatq):
    """`stats` has all: also the line of a connection that was stopped as it wrote."""
    one = Direct(flatq)
    (client, _), *others = connected(one, 3)
    # a second fold, at the third line of the other, would leave the late line out
    other, _ = next(row for row in others if row[1].pid % 100 != 97)
    client.ask(b"watch " + b"w" * 200)
    counts, = flatq.spool.glob(".doors/0/counts")
    late = counts.open("a")

    def write(file, more, times):
        with file:
            file.write(f"1-000000000001 cmd-kick{more}\n" * times)

    write(counts.open("a"), " jobs/gone use=gone watch=gone", 2000)
    for _ in range(100):  # it looks at the file once in a hundred lines
        client.ask(b"use u")
    assert b"cmd-kick: 2000\n" in other.ask(b"stats") and counts.with_name("old").exists()
    write(late, "", 1)
    write(counts.open("a"), "", 5000)
    for _ in range(100):
        client.ask(b"list-tube-used")
    assert counts.with_name("sums").stat().st_size < 1000
    for command, *rows in ((b"stats", b"cmd-kick: 7001", b"total-jobs: 2000", b"current-tubes: 3",
            b"current-connections: 3", b"cmd-watch: 1", b"cmd-use: 103"),
            (b"stats-tube " + b"w" * 200, b"current-watching: 1"),
            (b"stats-tube u", b"current-using: 1"), (b"stats-tube gone", b"NOT_FOUND\r")):
        answer = other.ask(command)
        assert all(row + b"\n" in answer for row in rows), answer


# ---- a full queue, a full disk


FULL = """
    kick-job 1 > OUT_OF_MEMORY
    kick 1 > OUT_OF_MEMORY
    reserve-job 1 > OUT_OF_MEMORY
"""


def test_a_queue_that_is_full_or_closed(shell, flatq):
    """What is reserved counts. Where it is closed, what is there goes on its way."""
    flatq("create", "-b", "1", "default", check=0)
    client = Direct(flatq).connect()
    converse(client, f"""
        put 0 0 60 1|x > INSERTED 1
        reserve > RESERVED 1 1|x
        bury 1 0 > BURIED
        put 0 0 60 1|y > INSERTED 2
        put 0 0 60 1|z > OUT_OF_MEMORY
        {FULL}
        peek-buried > FOUND 1 1|x
        peek-ready > FOUND 2 1|y
        delete 2 > DELETED
        reserve-job 1 > RESERVED 1 1|x
        put 0 0 60 1|z > OUT_OF_MEMORY
        bury 1 0 > BURIED""")
    flatq("close", "default", check=0)
    converse(client, """
        put 0 0 60 1|z > OUT_OF_MEMORY
        kick-job 1 > KICKED""")


@pytest.mark.parametrize("size", [5, 5000, 1_500_000])
def test_a_disk_that_is_full_in_the_middle_of_a_body(shell, flatq, stub, size):
    """The body is read to its end and not stored. The connection goes on, with what follows the
    body."""
    full = stub("base64", '[ "$1" = -d ] || [ ! -e "$ONCE" ] || { head -c 3 >/dev/null; exit 1; }; '
        'exec "$REAL" "$@"').with_suffix(".once")
    client = Direct(flatq, env={"FLATQ_MOST_BYTES": "2000000"}).connect()
    assert client.put(b"held") == 1 and client.ask(b"reserve").startswith(b"RESERVED 1 ")
    full.touch()
    put = b"put 0 0 60 %d\r\n" % size + (b"delete 1\r\n" * size)[:size] + b"\r\n"
    assert [client.ask(put) for _ in range(2)] == [b"OUT_OF_MEMORY\r\n"] * 2
    converse(client, "touch 1 > TOUCHED")
    assert not list(flatq.spool.glob("default/body/*2"))
    converse(client, "delete 1 > DELETED")


@pytest.mark.parametrize("call, path", [("openat", "default/body/000000000002"),
    ("write", "default/body/000000000002"), ("openat", "default/wal/*")])
def test_a_disk_that_is_full_before_and_behind_a_body(flatq, call, path):
    """Where the body's file cannot be made, nothing of the body was read; where its newline or the
    slip cannot be written, all of it."""
    flatq("push", input=b"first", check=0)
    if "*" in path:
        (flatq.spool / "default/wal").rename(flatq.spool / "default/was")
        # a directory that takes no file
        (flatq.spool / "default/wal").symlink_to("/proc/self/fdinfo")
    done = faulty(flatq, call, flatq.spool / path, "beanstalk", error="ENOSPC", when="1+",
        input=b"put 0 0 60 10\r\ndelete 1\r\n\r\nlist-tube-used\r\n")
    assert done.stdout == b"OUT_OF_MEMORY\r\nUSING default\r\n", done


def test_a_disk_that_takes_no_name(flatq, stub):
    """Each rename fails, as on a full disk. The job stays where it was, and with its client."""
    fails = stub("mv", '[ ! -e "$ONCE" ] || exit 1; exec "$REAL" "$@"').with_suffix(".once")
    client = Direct(flatq).connect()
    client.put(b"x")
    reserved = "reserve-job 1 > RESERVED 1 1|x"
    for before, command, said in ((reserved, "touch 1", "TOUCHED"),
            ("", "release 1 0 0", "RELEASED"), (reserved, "bury 1 0", "BURIED"),
            (reserved, "delete 1", "DELETED")):
        converse(client, before)
        # a touch within the same hundredth of a second would have nothing to rename
        next_hundredth()
        fails.touch()
        converse(client, f"{command} > OUT_OF_MEMORY")
        fails.unlink()
        converse(client, f"{command} > {said}")
        if said == "BURIED":
            fails.touch()
            converse(Direct(flatq).connect(), FULL)
            fails.unlink()


@pytest.mark.parametrize("how", ["STOP", "KILL"])
def test_a_reserve_beside_a_drop(shell, flatq, stub, how):
    """The drop has removed out/ when a job is put, and is stopped or killed."""
    flatq("create", "default")
    found = flatq.home / "found"
    stub("rmdir", f"""case $* in */out) "$REAL" "$@"; kill -{how} $PPID; : >{found}; exit 0 ;; esac
        exec "$REAL" "$@" """)
    drop = flatq.start("drop", "default", stderr=subprocess.DEVNULL)
    wait_for(found.exists, "out/ is gone")
    assert not (flatq.spool / "default/out").exists()
    producer, worker = Direct(flatq).connect(), Direct(flatq).connect()
    producer.send(b"put 0 0 60 1\r\nx\r\n")
    wait_for(lambda: list((flatq.spool / "default/wal").glob("*")), "the job is there")
    worker.send(b"reserve-with-timeout 60\r\n")
    if how == "STOP":
        assert worker.reply(1) == b"<nothing>"
        drop.send_signal(signal.SIGCONT)
        assert drop.wait(60) == 75
    assert worker.reply() == b"RESERVED 1 1\r\nx\r\n" and producer.reply() == b"INSERTED 1\r\n"


# ---- the price of the commands


# what is sent, the beginning of the answer, how many processes that takes, and how many more with
# FLATQ_SYNC=on
COSTS = [
    ("put 0 0 60 1|x", "INSERTED 2", 2, 1), ("put 2 0 60 5000|" + "x" * 5000, "INSERTED 3", 2, 1),
    # with `date`, once in 100 seconds
    ("put 3 9999 60 20000|" + "x" * 20000, "INSERTED 4", 4, 1),
    ("peek-ready", "FOUND 2 1", 1, 0), ("peek 3", "FOUND 3 5000", 1, 0),
    ("reserve", "RESERVED 2 1", 2, 0), ("reserve-job 3", "RESERVED 3 5000", 2, 0),
    # each of these is a rename, and a sync if it has to be on the disk before the answer. Once in
    # ten seconds a `bury` makes a directory; later looks remove the empty ones
    ("touch 2", "TOUCHED", 1, 0), ("release 2 0 0", "RELEASED", 1, 0), ("bury 3 0", "BURIED", 2, 1),
    ("kick-job 3", "KICKED", 1, 0), ("delete 3", "DELETED", 1, 1), ("delete 4", "DELETED", 1, 1),
    # `find` proves that no queue has the job. A shell and `ls` prove that there are no more queues
    ("delete 99", "NOT_FOUND", 3, 0), ("peek-buried", "NOT_FOUND", 2, 0),
    ("kick 9", "KICKED 0", 3, 0),
    *((text, answer, 0, 0) for text, answer in (
        ("touch 99", "NOT_FOUND"), ("release 99 1 1", "NOT_FOUND"), ("use x", "USING x"),
        ("watch x", "WATCHING 2"), ("ignore x", "WATCHING 1"), ("nonsense", "UNKNOWN_COMMAND"),
        ("stats-job 2", "OK"))),
]


@pytest.mark.parametrize("sync", ["off", "on"])
def test_processes(flatq, sync):
    """Of each command alone, as strace counts them."""
    need("strace")
    if sync == "on":
        flatq.syncs()
    log = flatq.home / "strace.log"
    ours, theirs = socket.socketpair()
    with theirs:
        flatq.started.append(subprocess.Popen([
            "strace", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e",
            "trace=" + ",".join(counting.FORKS), "-o", log, "--", *flatq.command("beanstalk")],
            env=flatq.env, cwd=flatq.home, stdin=theirs, stdout=theirs, start_new_session=True))
    client, wrong = Client(ours), []

    def started():
        # the handler finishes the work behind one answer before it gives the next
        assert client.ask(b"list-tube-used").startswith(b"USING ")
        return sum(1 for _ in counting.calls(log))

    client.put(b"the first makes the queue", 9)
    before = started()
    for text, answer, most, syncs in COSTS:
        said = client.ask(text.replace("|", "\r\n").encode())
        assert said.startswith(answer.encode()), (text[:30], said)
        after = started()
        if after - before > most + syncs * (sync == "on"):
            wrong.append((text[:30], after - before))
        before = after
    client.close()
    assert not wrong


def test_the_end_of_a_pipe(flatq):
    """A body without its last byte or two, whose base64 still decodes, is cut. Who waits is
    through."""
    cut = [b"put 0 0 60 %d\r\n" % size + b"x" * (size - short)
        for size in (3, 3000) for short in (1, 2, 3)]
    for sent in (b"put 0 0 60 3\r\nabc\r", *cut):
        assert flatq("beanstalk", input=sent).out == b"" and not any(lies(flatq.spool).values())
    done = flatq("beanstalk", input=b"reserve\r\nlist-tube-used\r\n", timeout=60)
    assert done.out == b"TIMED_OUT\r\nUSING default\r\n"


def test_all_that_is_there_is_reserved(flatq):
    """A tube without reserved jobs says nothing of the other tube. Its peek-ready is NOT_FOUND, not
    an error."""
    push(flatq, b"x", "q")
    reserve(flatq, "q")
    flatq("create", "default")
    done = flatq("beanstalk", input=b"reserve-with-timeout 0\r\nuse q\r\npeek-ready\r\n")
    assert done.out == b"TIMED_OUT\r\nUSING q\r\nNOT_FOUND\r\n"
