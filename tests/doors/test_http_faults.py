"""Faults in the middle of a request to the HTTP door: a program of it fails or is killed, a file or
directory of the spool cannot be looked at, a client is gone, a request would be costly."""

import base64
import hashlib
import os
import re
import shutil
import socket
import subprocess

import pytest

from conftest import need, wait_for
from engine import carriers, command_of, faulty, push
from stalk import Direct
from test_http import ask, ask_status, batch, posted, request, seconds_of, settle, statuses

GET = request("GET", "/queue")
KILLED = 'if [ ! -e "$ONCE" ]; then : >"$ONCE"; kill -9 "$$"; fi; exec "$REAL" "$@"'
AT_END = '[ ! -e "$ONCE" ] || exec "$REAL" "$@"; : >"$ONCE"; "$REAL" "$@"; kill -9 "$$"'
LISTING, LOOKING = "openat", "newfstatat,stat,faccessat2,access"


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
    """base64 has written all of the first message, and then the fault comes. The second message was
    not begun, and goes back."""
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


def test_a_message_without_its_body_is_not_handed_out(shell, flatq):
    posted(flatq, "g", b"lost", b"kept")
    min((flatq.spool / "g/body").iterdir()).unlink()
    assert ask(flatq, "GET", "/queue").body == b"kept"
    assert sorted(states(flatq, "g")) == ["buried", "reserved"]


@pytest.mark.parametrize("how", [KILLED, AT_END], ids=["killed", "at its end"])
def test_a_password_that_could_not_be_decoded_is_not_wrong(shell, flatq, stub, how):
    """A password that is no base64 is the client's fault: what was decoded of it counts."""
    stub("base64", how)
    right, *others = (base64.b64encode(text).decode() for text in (
        b"me:secret", b"secret\n", b"me:\0sec\xffret"))
    asked = (right, right, others[0], right + "!", "!", others[1], "AA==")
    sent = (request("GET", "/queue", None, f"Authorization: Basic {text}") for text in asked)
    assert statuses(flatq, *sent, env={"API_KEY": "secret"}) == [500, 204, 204, 204, 401, 401, 401]


@pytest.mark.parametrize("target, status", [
    ("/queue?group-id=closed", 503), ("/queue?group-id=open", 500), ("/nothing", 404)])
def test_a_body_that_was_not_read_is_no_request(flatq, stub, target, status):
    flatq("create", "closed", check=0)
    flatq("close", "closed", check=0)
    push(flatq, b"first", "victims")
    stub("dd", KILLED)
    said = ask(flatq, "POST", target, request("GET", "/queue?group-id=victims"))
    assert (said.status, said.headers["connection"]) == (status, "close")
    assert states(flatq, "victims") == ["ready"]


def test_a_batch_for_which_the_disk_has_no_room_is_answered_at_once(flatq, stub):
    """dd has read the body when its write fails. The door must not wait for the body again."""
    stub("dd", '[ ! -e "$ONCE" ] || exec "$REAL" "$@"; : >"$ONCE"; "$REAL" "$@" >/dev/null; exit 1')
    door = Direct(flatq, "http")
    client = door.connect()
    client.send(batch("g", (b"y" * 20_000, b"")))
    assert client.rest(10).startswith(b"HTTP/1.1 500 ")
    assert b"Connection: close\r\n" in client.got and client.ended
    assert door.processes[0].wait(60) == 0


def test_a_batch_that_cannot_be_read_back_is_not_the_clients_fault(shell, flatq):
    """The door has stored the batch whole. Then one read fails: of a line, or of the newline behind
    a message."""
    sent, log, ours = batch("g", (b"first", b""), (b"second", b"")), flatq.home / "trace", 0
    trace = [need("strace"), "-qq", "-y", "-o", log, "-e", "signal=none", "-e", "trace=read"]

    def reads(*inject):
        """The answer, the reads of the stored batch as numbers, and those that failed."""
        flatq("drop", "-f", "g")
        done = subprocess.run([*trace, *inject, "--", *flatq.command("http")], input=sent,
                              env=flatq.env, cwd=flatq.home, timeout=100, capture_output=True)
        lines = log.read_bytes().splitlines()
        ours = [(number, line) for number, line in enumerate(lines, 1) if b".body>" in line]
        hits = [b"INJECTED" in line for _, line in ours]
        return done.stdout, [number for number, _ in ours], hits

    for count, number in enumerate(reads()[1]):
        # A shell reads what came through a pipe in one piece or in two: so the read that is meant
        # has another number each time, and each run says where to strike in the next
        for _ in range(60):
            said, numbers, hits = reads("-e", f"inject=read:error=EIO:when={number}")
            if len(numbers) > count:
                if hits[count]:
                    break
                number = numbers[count]
        else:
            pytest.fail(f"read {count} of the batch was not struck")
        lines = re.findall(rb"^(?:200|204|422|500)(?= )", said, re.M)
        assert b"422" not in lines and lines.count(b"200") == flatq("list", "g").out.count(
            b"\n"), (count, said)
        ours += lines[-1:] == [b"500"]
    assert ours


# ---- what cannot be looked at (R1)


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("when", ["1", "1+"])
def test_a_group_whose_message_in_flight_is_not_seen_is_not_free(flatq, method, when):
    """A failed listing of out/ hands out no second message of a group: neither the next one, nor
    one that is ready again."""
    posted(flatq, "g", b"one", b"two")
    target = "/queue?group-id=g"
    if method == "PATCH":
        got = ask(flatq, "GET", "/queue")
        target = f"/queue?receipt-id={got.headers['message-receipt-id']}&visibility-timeout=60"
    flatq("reserve", "g", check=0)
    if method == "PATCH":
        assert settle(flatq, "PATCH", got, "&visibility-timeout=0") == 200
    sent = request(method, target)
    done = faulty(flatq, LISTING, flatq.spool / "g/out", "http", when=when, input=sent)
    assert status_of(done) in (204, 500)
    flatq("wal", "g", check=0)
    assert sorted(states(flatq, "g")) == ["ready", "reserved"]


def test_a_claimed_segment_that_is_not_seen_keeps_its_group(shell, flatq):
    posted(flatq, "g", b"one")
    flatq("claim", "-c", "me", "g", check=0)
    flatq("push", "g", input=b"two", check=0)
    for place in ("g/claimed", "g/claimed/me"):
        done = faulty(flatq, LISTING, flatq.spool / place, "http", when="1+", input=GET)
        assert status_of(done) in (204, 500), place


@pytest.mark.parametrize("calls, path, when, sent", [
    *((*row, GET) for row in ((LOOKING, "g/done/*", "1"), (LISTING, "g/wal", "1"),
        (LISTING, "g/wal", "1+"), (LISTING, ".", "1"), (LISTING, ".", "1+"),
        (LOOKING, "g/wal", "1"), (LOOKING, "g/lock", "1"))),
    (LOOKING, "g/lock", "1", request("GET", "/?queue=g"))])
def test_one_failed_look_is_not_nothing_there(shell, flatq, calls, path, when, sent):
    """A message is ready. Another is settled, though a look at its mark fails."""
    posted(flatq, "g", b"one", b"two")
    flatq("pop", "g", check=0)
    [path] = flatq.spool.glob(path) if path != "." else [flatq.spool]
    assert status_of(faulty(flatq, calls, path, "http", when=when, input=sent)) in (200, 500)


def test_a_message_that_cannot_be_put_back_is_not_nothing_there(shell, flatq):
    """Its lease is over, and it has no body: it can be neither handed out nor buried."""
    flatq("push", "-t", "0", "g", input=b"one", check=0)
    flatq("reserve", "g", check=0)
    for path in (flatq.spool / "g/body").iterdir():
        path.unlink()
    shutil.rmtree(flatq.spool / "g/buried")
    (flatq.spool / "g/buried").touch()
    assert ask_status(flatq, "GET", "/queue?group-id=g") == 500


def test_what_a_dead_owner_holds_is_not_in_flight(shell, flatq, clock):
    """The door has looked for dead owners within this second, and the owner died since. `204` would
    say that nothing is there."""
    push(flatq, b"one", "g")
    door = Direct(flatq, "beanstalk")
    client = door.connect()
    client.ask(b"watch g")
    assert client.ask(b"reserve").startswith(b"RESERVED ")
    assert ask_status(flatq, "GET", "/queue?group-id=g") == 204
    door.processes[-1].kill()
    door.processes[-1].wait()
    assert ask_status(flatq, "GET", "/queue?group-id=g") == 200


@pytest.mark.parametrize("call", ["openat", "getdents64"])
@pytest.mark.parametrize("asked", ["/queue/stats", "/metrics", "/", b"list-tubes\r\n",
    b"stats\r\n"])
def test_a_spool_that_cannot_be_listed_is_not_one_without_queues(flatq, asked, call):
    push(flatq, b"x", "t")
    if isinstance(asked, bytes):
        done = faulty(flatq, call, flatq.spool, "beanstalk", input=asked)
        assert done.returncode == 0 and done.stdout.startswith(b"OUT_OF_MEMORY\r\n"), done
    else:
        done = faulty(flatq, call, flatq.spool, "http", input=request("GET", asked))
        assert status_of(done) == 500


@pytest.mark.parametrize("how", [KILLED, AT_END], ids=["killed", "at its end"])
def test_queues_that_cannot_be_counted_together_are_counted_one_by_one(shell, flatq, stub, how):
    """The find fails that looks at all."""
    flatq("push", "-l", "deep", input=b"x\n" * 700, check=0)
    flatq("pop", "deep", check=0)
    posted(flatq, "g", b"1", b"2")
    ask(flatq, "GET", "/queue?group-id=g")
    target, shown = "/queue/stats", re.compile(rb'"(?:ready|in_flight)":\d+')
    right = shown.findall(ask(flatq, "GET", target).body)
    assert right == [b'"ready":699', b'"in_flight":0', b'"ready":1', b'"in_flight":1']
    stub("find", how)
    assert shown.findall(ask(flatq, "GET", target).body) == right


# ---- keys, clients, costs


def sleeps_for(place, pid):
    """Whether the process is the sleeper of a waiter, whose FIFO lies there."""
    try:
        into = os.readlink(f"/proc/{pid}/fd/1")
        return command_of(pid) == "sleep" and into.startswith(f"{place}/")
    except OSError:
        return False


def test_a_client_that_has_gone_while_it_waited_takes_nothing(flatq, launched):
    """The door sees that the client is gone when a push wakes it. If it took the message, that
    would count as a try."""
    flatq("create", "-m", "1", "g", check=0)
    door = launched(door="http")
    with socket.create_connection(("127.0.0.1", door.port)) as client:
        client.sendall(request("GET", "/queue?group-id=g&wait=60"))
        # Before its sleeper runs, the door looks once more for a message, and does not ask whether
        # the client is there
        place = flatq.spool / ".wait"
        wait_for(lambda: any(sleeps_for(place, pid) for pid in carriers(flatq.spool)), "it waits")
    push(flatq, b"1", "g")
    for place in ("wait", "out"):
        wait_for(lambda: not list((flatq.spool / "g" / place).iterdir()), "it has gone")
    assert flatq("list", "g", check=0).out.split()[1:4] == [b"ready", b"65536", b"0"]


def test_a_client_that_ends_a_large_answer_gives_it_back(flatq, launched):
    """The door hears it from base64, unless the system has room for all of the answer. The message
    need not wait for the end of its lease."""
    push(flatq, bytes(40_000_000), "g")
    door = launched(door="http")
    with socket.create_connection(("127.0.0.1", door.port)) as client:
        client.sendall(request("GET", "/queue?visibility-timeout=9999"))
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        wait_for(lambda: states(flatq, "g") == ["reserved"], "it is in flight")
    wait_for(lambda: states(flatq, "g") == ["ready"], "it is back")


def test_the_guard_hears_of_the_next_request_after_the_checkpoint(flatq):
    """What the checkpoint reads would count as a request line that is too long, and the guard would
    end the connection with a 414."""
    push(flatq, b"x", "q")
    flatq.env |= {"FLATQ_RANGE": "2", "FLATQ_FOLD": "1"}
    process = flatq.start("http", "launch", "", preexec_fn=lambda: os.dup2(1, 3), pass_fds=(3,))
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
