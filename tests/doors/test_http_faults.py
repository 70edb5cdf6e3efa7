"""Faults in the middle of a request to the HTTP door: a program of it fails or is killed, a file or
directory of the spool cannot be looked at, a client is gone, a request would be costly."""

import base64
import hashlib
import os
import re
import socket
import subprocess

import pytest

from conftest import need, wait_for
from engine import push, runs
from stalk import Direct, over_tcp
from test_http import (
    STUBS, ask, ask_status, basic, batch, converse, posted, request, seconds_of, statuses)

GET = request("GET", "/queue")
LOOKING = "newfstatat,stat,faccessat2,access"


def states(flatq, queue):
    """The states of a queue's messages, as list prints them."""
    return [line.split()[1] for line in flatq("list", queue, check=0).out.decode().splitlines()]


def status_of(done):
    """The status in the answer of a door that a fault has struck."""
    assert done.returncode == 0, done
    return int(done.stdout.split()[1])


# ---- programs that fail or are killed


@pytest.mark.parametrize("which", [1, 2])
def test_a_sum_of_nothing_is_no_sum(shell, flatq, stub, which):
    """base64 is killed that feeds md5sum, or the one that feeds sha256sum."""
    count = 'n=1; until mkdir "$ONCE.$n"; do n=$((n + 1)); done'
    stub("base64", f'case $* in -d*) {count}; [ $n -ne {which} ] || kill -9 "$$" ;; esac; '
                   'exec "$REAL" "$@"')
    assert posted(flatq, "g", b"first")[0].status == 500
    assert ask_status(flatq, "GET", "/queue") == 204
    said, again = posted(flatq, "g", b"first", b"first")
    assert (said.status, said.headers["message-md5"]) == (200, hashlib.md5(b"first").hexdigest())
    assert again.status == 204


@pytest.mark.parametrize("query", ["group-id=a", "max=2"])
@pytest.mark.parametrize("how, state", [
    ("exit 1", "reserved"), ('kill -KILL "$$"', "reserved"), ('kill -TERM "$PPID"', "reserved"),
    ('echo "base64: write error: Broken pipe" >&2; exit 1', "ready"),
], ids=["it fails", "killed", "the door is ended", "the client is gone"])
def test_a_message_whose_last_byte_may_have_arrived_keeps_its_lease(
        shell, flatq, stub, query, how, state):
    """base64 has written all of the first message. The second was not begun, and goes back."""
    push(flatq, b"pay 100", "a")
    push(flatq, b"pay 200", "b")
    once = f'[ -e "$ONCE" ] || {{ : >"$ONCE"; {how}; }}'
    stub("base64", f'case $* in -d) "$REAL" "$@"; {once}; exit ;; esac; exec "$REAL" "$@"')
    done = flatq("http", input=request("GET", "/queue?" + query))
    assert b"pay 100" in done.out and b"pay 200" not in done.out and done.status in (74, 75), done
    assert states(flatq, "a") + states(flatq, "b") == [state, "ready"]


@pytest.mark.parametrize("body, state", [(b"", "reserved"), (b"x", "ready")])
def test_a_signal_behind_the_head_of_an_answer(flatq, body, state):
    """Only the client of an empty message may have all of it by then."""
    posted(flatq, "g", body)
    said = flatq.home / "said"
    with said.open("wb") as out:
        done = subprocess.run(
            [need("strace"), "-qq", "-o", "/dev/null", "-P", said, "-e", "trace=write", "-e",
             "inject=write:signal=TERM:when=1", "--", *flatq.command("http")],
            input=GET, env=flatq.env, cwd=flatq.home, timeout=100, stdout=out)
    assert (done.returncode, said.read_bytes()[:15]) == (75, b"HTTP/1.1 200 OK"), done
    assert states(flatq, "g") == [state]


@pytest.mark.parametrize("how", ["killed", "killed-at-its-end"])
def test_a_password_that_could_not_be_decoded_is_not_wrong(shell, flatq, stub, how):
    """A password that is no base64 is the client's fault: what was decoded of it counts."""
    stub("base64", STUBS[how])
    right, *others = (base64.b64encode(text).decode() for text in (
        b"me:secret", b"secret\n", b"me:\0sec\xffret"))
    asked = (right, right, others[0], right + "!", "!", others[1], "AA==")
    sent = (request("GET", "/queue", None, f"Authorization: Basic {text}") for text in asked)
    assert statuses(flatq, *sent, env={"API_KEY": "secret"}) == [500, 204, 204, 204, 401, 401, 401]


def test_a_batch_for_which_the_disk_has_no_room_is_answered_at_once(flatq, stub):
    """dd has read the body when its write fails. The door must not wait for the body again."""
    stub("dd", '[ ! -e "$ONCE" ] || exec "$REAL" "$@"; : >"$ONCE"; "$REAL" "$@" >/dev/null; exit 1')
    door = Direct(flatq, "http")
    client = door.connect()
    client.send(batch("g", (b"y" * 20_000, b"")))
    assert client.rest(10).startswith(b"HTTP/1.1 500 ")
    assert b"Connection: close\r\n" in client.got and client.ended
    assert door.processes[0].wait(60) == 0


# ---- a request and one fault

TWO = "POST g 1; POST g 2; "
BROKEN = "$ mv g/{0} g/was; $ touch g/{0}; "
BATCH = r"POST g&batch=1 <1\n3\n1\n4\n"
UNREAD = r"<GET /queue?group-id=victims HTTP/1.1\r\nHost: x\r\n\r\n"
DEEP = "push -l deep <" + r"x\n" * 700
LOG = " | 500 see the log"
CLOSE = " | 500 close see the log"
FAULTS = {
    "no body can be stored": TWO + BROKEN.format("body") + "POST g 3" + LOG,
    "no body of several": TWO + BROKEN.format("body") + BATCH + " | 200 500 see the log 500 see",
    "no place for chunks": "$ rmdir .wait; $ touch .wait; CHUNKED g 34" + CLOSE,
    "no place for a batch": "$ rmdir .wait; $ touch .wait; " + BATCH + CLOSE,
    "the disk is full in a chunk": "stub dd missing; CHUNKED g 34" + CLOSE,
    "the disk is full in a batch": f"stub dd missing; {BATCH}" + CLOSE,
    "no sum": "stub md5sum missing; POST g 3" + LOG,
    "nothing can be handed out": TWO + BROKEN.format("out") + "GET group-id=g" + LOG,
    "no FIFO": "push g <1; stub mkfifo missing; GET group-id=other&wait=1" + LOG,
    "no numbers": TWO + "stub awk missing; GET /queue/stats" + LOG,
    "no page": TWO + "stub awk missing; GET /" + LOG,
    "not deleted": TWO + "GET | 200 1 as a; " + BROKEN.format("done") + "DELETE a" + LOG,
    "not deleted, of two": TWO + "GET | 200 1 as a; " + BROKEN.format("done")
        + "DELETE a a | 200 500 see the log 500 see",
    "not touched": TWO + "GET | 200 1 as a; stub mv missing; PATCH a 9" + LOG,
    "other groups go on beside one that is broken": """
        POST g 1; POST h 2; $ mv g/out g/was; $ touch g/out; GET group-id=h | 200 2; POST k 3
        GET | 200 3; GET | 500; $ rm g/out; $ mv g/was g/out; GET | 200 1""",
    "a message without its body is not handed out": """
        POST g lost; POST g kept; $ rm g/body/*1; GET | 200 kept; states g buried reserved""",
    "a message that can be neither handed out nor buried is not nothing": """
        push -t 0 g <one; reserve g; $ rm g/body/*; $ rmdir g/buried; $ touch g/buried
        GET group-id=g | 500""",
    # what was not read of a body is no request
    **{f"{group}, and a body that is not read": f"""
        create closed; close closed; push victims <first; stub dd killed
        POST {group} {UNREAD} | {status} close; states victims ready"""
        for group, status in (("closed", 503), ("open", 500))},
    # one failed look, or all of them (R1), hands out no second message of a group, and is no "none"
    **{f"in flight, not seen, {when}": f"""
        {TWO} reserve g; blind openat g/out {when}; GET group-id=g | 204 or 500
        wal g; states g ready reserved""" for when in ("1", "1+")},
    **{f"in flight, not seen by PATCH, {when}": f"""
        {TWO} GET | 200 1 as a; reserve g; PATCH a 0; blind openat g/out {when}
        PATCH a 60 | 204 or 500; wal g; states g ready reserved""" for when in ("1", "1+")},
    **{f"claimed, not seen in {place}": f"""
        POST g 1; claim -c me g; push g <2; blind openat {place} 1+; GET | 204 or 500"""
        for place in ("g/claimed", "g/claimed/me")},
    **{f"ready, and no look at {path}: {call} {when}": f"""
        {TWO} pop g; blind {call} {path} {when}; GET {target} | 200 or 500"""
        for call, path, when, target in (
            (LOOKING, "g/done/000000000001", "1", ""), ("openat", "g/wal", "1", ""),
            ("openat", "g/wal", "1+", ""), ("openat", ".", "1", ""), ("openat", ".", "1+", ""),
            (LOOKING, "g/wal", "1", ""), (LOOKING, "g/lock", "1", ""),
            (LOOKING, "g/lock", "1", "/?queue=g"))},
    **{f"a spool that cannot be listed: {call} {target}": f"""
        push t <x; blind {call} . 1; GET {target} | 500"""
        for call in ("openat", "getdents64") for target in ("/queue/stats", "/metrics", "/")},
    # the find fails that looks at all queues: they are counted one by one
    **{f"not counted together: {how}": f"""
        {DEEP}; pop deep; POST g 1; POST g 2; GET group-id=g; stub find {how}
        GET /queue/stats | 200 *"ready":699,*"reserved":0,*"ready":1,*"reserved":1,*"""
        for how in ("killed", "killed-at-its-end")},
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault(shell, flatq, stub, what):
    """If the door cannot know how much of a body was read, it ends the connection."""
    converse(flatq, FAULTS[what], stub=stub)


def test_a_fault_before_the_request(flatq, stub):
    stub("base64", "exit 127")
    said = ask(flatq, "GET", "/", None, basic("x"), env={"API_KEY": "x"})
    assert (said.status, said.body) == (500, b"see the log\n")
    flatq.spool.rename(flatq.home / "was")
    flatq.spool.touch()
    done = flatq("http", input=GET)
    assert done.out.startswith(b"HTTP/1.1 500 ") and b"\r\nConnection: close\r\n" in done.out
    assert len(re.findall(rb"(?m)^http: .", done.err)) == 1, done


def test_what_a_dead_owner_holds_is_not_in_flight(shell, flatq, clock):
    """The owner died within the second since the last look."""
    push(flatq, b"one", "g")
    door = Direct(flatq, "beanstalk")
    client = door.connect()
    client.ask(b"watch g")
    assert client.ask(b"reserve").startswith(b"RESERVED ")
    assert ask_status(flatq, "GET", "/queue?group-id=g") == 204
    door.processes[-1].kill()
    door.processes[-1].wait()
    assert ask_status(flatq, "GET", "/queue?group-id=g") == 200


# ---- keys, clients, costs


def test_a_client_that_has_gone_while_it_waited_takes_nothing(flatq):
    """Else that would count as a try."""
    flatq("create", "-m", "1", "g", check=0)
    client, theirs = over_tcp(flatq, "http")
    theirs.close()
    client.send(request("GET", "/queue?group-id=g&wait=60"))
    runs(flatq.started[-1].pid, "sleep")
    client.close()
    push(flatq, b"1", "g")
    for place in ("wait", "out"):
        wait_for(lambda: not list((flatq.spool / "g" / place).iterdir()), "it has gone")
    assert flatq("list", "g", check=0).out.split()[1:4] == [b"ready", b"65536", b"0"]


def test_a_client_that_ends_a_large_answer_gives_it_back(flatq, launched):
    """base64 tells the door: the message need not wait for the end of its lease."""
    push(flatq, bytes(40_000_000), "g")
    door = launched(door="http")
    with socket.create_connection(("127.0.0.1", door.port)) as client:
        client.sendall(request("GET", "/queue?visibility-timeout=9999"))
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        wait_for(lambda: states(flatq, "g") == ["reserved"], "it is in flight")
    wait_for(lambda: states(flatq, "g") == ["ready"], "it is back")


def test_the_guard_hears_of_the_next_request_after_the_checkpoint(flatq):
    """What the checkpoint reads would count as a request line that is too long: 414."""
    push(flatq, b"x", "q")
    flatq.env |= {"FLATQ_RANGE": "2", "FLATQ_FOLD": "1"}
    process = flatq.start("http", "serve", "", preexec_fn=lambda: os.dup2(1, 3), pass_fds=(3,))
    process.stdin.write(request("POST", "/queue?group-id=g", b"y"))
    process.stdin.flush()
    said = b""
    while b" 414\n" not in said:
        said += os.read(process.stdout.fileno(), 10_000)
    assert list(flatq.spool.glob("[qg]/queue/*/*"))
    process.stdin.close()
    process.wait(60)


LONG = 8100
KEY = "api-key: secret"
COSTLY = {
    "path": ("GET", "/" + "%41" * (LONG // 3)),
    "path of blanks": ("GET", "/" + "," * LONG),
    "header": ("GET", "/queue", None, *(["X: " + " " * LONG + "x"] * 7)),
    "header's end": ("GET", "/queue", None, *(["X: x" + " " * LONG + "x"] * 7)),
    "tabs": ("GET", "/queue", None, *(["X: x" + "\tx" * (LONG // 2)] * 7)),
    "names": ("GET", "/queue", None, *(["X" * LONG + ": x"] * 7)),
    "no key": ("PATCH", "/queue?" + "?" * LONG),
    "questions": ("PATCH", "/queue?" + "?" * LONG, None, KEY),
    "ampersands": ("GET", "/queue?" + "&" * LONG, None, KEY),
    "parameters": ("GET", "/queue?" + "a=b&" * (LONG // 4), None, KEY),
    "a name": ("GET", "/queue?" + "%41" * (LONG // 3) + "=1", None, KEY),
    "receipts": ("GET", "/queue?receipt-id=" + "%41" * (LONG // 3), None, KEY),
    "a receipt": ("DELETE", "/queue?receipt-id=" + "+" * 1500, None, KEY),
    "many receipts": ("DELETE", "/queue?" + "receipt-id=,&" * (LONG // 13), None, KEY),
    "group": ("GET", "/queue?group-id=" + "," * 1500, None, KEY),
    "a group of escapes": ("GET", "/queue?group-id=" + "%7e" * 500, None, KEY),
}


@pytest.mark.parametrize("what", COSTLY)
def test_a_request_costs_as_much_as_it_is_long(shell, flatq, what):
    """A request takes some hundredths of a second. These took between one second and a hundred."""
    def seconds(*words):
        return seconds_of(lambda: flatq("http", input=request(*words), env={"API_KEY": "secret"},
            check=0))

    usual, _ = seconds("GET", "/queue")
    took, done = seconds(*COSTLY[what])
    assert took < usual + 0.7, (took, usual, done)
