"""The line door, ./launch and lib/handler: with many clients, and after each way in which a client
can go wrong."""

import contextlib
import itertools
import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import everything, listening, need, share, wait_for
from engine import (
    calls_in, carriers, command_of, end_launches, faulty, lies, pop, push)
from servers import certified
from stalk import Launched, parent

from crash.families import clients
from crash.families.clients import answer

BOTH = pytest.mark.parametrize("mode", ["loop", "-k"])
LOG = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\dZ (\S+) (\S+) (\S+) (\d+|-) (\d+)")


def logged(said):
    """(verb, queue, outcome, bytes, ms) of each connection."""
    return [found.groups() for found in map(LOG.fullmatch, said.splitlines()) if found]


class Door(Launched):
    """A running ./launch with the line door."""

    def log(self, count=0):
        """logged() of every connection so far, once there are `count` of them."""
        return wait_for(lambda: len(lines := logged(self.said())) >= count and [lines],
            f"{count} lines of log")[0]

    def connect(self, seconds=60):
        return connect(self.port, seconds)

    def ask(self, request, half_close=True):
        return ask(self.port, request, half_close)

    def ended(self, seconds=60):
        """The status of launch, once it has ended. None of its processes may be left."""
        status = self.process.wait(seconds)
        all_gone(self.spool)
        assert not listening(self.port)
        return status


def all_gone(spool):
    """No process of the launch is left. (launch does not wait for those that it has killed.)"""
    wait_for(lambda: not carriers(spool), "the end of all")


def connect(at, seconds=60):
    """Connect to a port or a path as soon as somebody listens. The loop does not listen between two
    connections."""
    def attempt():
        client = socket.socket(socket.AF_INET if isinstance(at, int) else socket.AF_UNIX)
        client.settimeout(seconds)
        try:
            client.connect(("127.0.0.1", at) if isinstance(at, int) else str(at))
        except (ConnectionRefusedError, FileNotFoundError):
            client.close()
            return None
        return client
    return wait_for(attempt, "a connection")


def ask(port, request, half_close=True):
    """The whole answer to this request."""
    with connect(port) as client:
        try:
            client.sendall(request)
            if half_close:
                client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the door has answered and ended before
        return answer(client)


@pytest.fixture
def door(launched, free_port):
    """door("-k") starts ./launch, and what is left of it is killed at the end."""
    return lambda *args: launched(*(arg for arg in args if arg != "loop"), door="line",
        port=free_port, kind=Door)


def handler(flatq, request, **env):
    """Run lib/handler with the request on its standard input, and pipes. Return what it prints, and
    its log."""
    done = flatq("handler", input=request, env=env or None, timeout=100)
    lines = [LOG.fullmatch(line) for line in done.err.decode().splitlines()]
    return done, lines[-1].groups() if lines and lines[-1] else None


@pytest.mark.parametrize("name, put", [("beanstalk", b"put 0 0 60 1\r\nx\r\n"),
    ("small-stalk", b"put 0 60\r\nx\r\n")])
def test_puts_run_the_checkpoint(shell, flatq, name, put):
    """Under inetd no launch does. Afterwards the connection still has its job."""
    flatq.env["FLATQ_RANGE"] = "3"
    push(flatq, b"held")
    asked = b"reserve\r\n" + put * 12 + b"delete 1\r\nquit\r\n"
    said = flatq(name, input=asked, check=0).out.split(b"\r\n")
    assert said[0].startswith(b"RESERVED 1") and said[-2:] == [b"DELETED", b""]
    assert b"UNKNOWN_COMMAND" not in said
    ranges = {int(line.split()[1]) // 1000 for line in said if line.startswith(b"INSERTED ")}
    assert len(list(flatq.spool.glob(".ids/*"))) < 3 < len(ranges)


@pytest.mark.new
@pytest.mark.parametrize("name", ["handler", "beanstalk", "small-stalk", "http", "serve"])
def test_help_of_a_door(flatq, name):
    said = flatq(name, "-h", check=0).out
    assert said.startswith(b"serve [" if name == "serve" else f"{name} - ".encode())
    assert b"\nExit: " in said and not flatq.spool.exists()


# ---- requests without a network


REFUSED = [
    (b"nothing\n", b"error 64 "),
    (b"pop", b"error 65 the line was cut"),
    (b"drop -f a", b"error 65 the line was cut"),
    (b"push -p\n", b"error 64 "),
    (b"push ../x\nbody", b"error 65 "),
    (b"push `id`\nbody", b"error 6"),
    (b"push -n a[$(touch$IFS/tmp/flatq.x)] q\nbody", b"error 65 "),
    (b"push -n 5 q\nbody", b"error 65 only 4 of the 5 announced bytes came"),
    (b"pop -w -1\n", b"error 65 "),
    (b"work -- id\n", b"error 64 "),
    (b"doctor\n", b"error 64 "),
    (b"../lib/push q\nbody", b"error 64 "),
    (b"push pop\tq\nbody", b"error 64 "),
    (b"delete q:1.1.0123456789ab\n", b"error 66 "),
    (b"reserve q\n", b"error 66 nothing there"),
    (b"a" * 5000 + b"\n", b"error 65 line too long"),
    (b"push " + b"a" * 1_000_000 + b"\nbody", b"error 65 line too long"),
    (b"\xff\xfe\x01\n", b"error 64 "),
]


def test_refused_lines(shell, flatq, spool):
    for request, begins in REFUSED:
        done, _ = handler(flatq, request)
        assert done.out.startswith(begins) and done.out.count(b"\n") == 1, (request[:80], done)
        assert done.out.startswith(b"error %d " % done.status), (request[:80], done)
    assert not any(lies(spool, "q").values()), "a refused push leaves nothing"
    # a name is not run by a shell, whatever is in it
    assert handler(flatq, b"push $(touch$IFS/tmp/flatq.x);id\nbody")[0].out.strip().isdigit()
    assert not Path("/tmp/flatq.x").exists()


def test_requests(shell, flatq):
    def says(request, expected):
        done, _ = handler(flatq, request)
        assert done.out == expected, (request, done)

    says(b"push\nhello\n", b"1\n")
    says(b"push   \t default \r\n\0\xff\r\n\n", b"2\n")
    says(b"push -p 5 -n 3 default\nabcdef", b"3\n")
    says(b"push -e\nline\n..\n.\nmore", b"4\n")
    says(b"push -e\r\nline\r\n.\r\nmore", b"5\n")
    says(b"push -n 0\n", b"6\n")
    says(b"push -k key\nx", b"7\n")
    says(b"push -k key\nx", b"7 dup\n")
    says(b"pop\n", b"abc")
    says(b"pop\r\n", b"hello\n")
    says(b"@pop\n", b"\0\xff\r\n\n\nok\n")
    says(b"pop -w 0 none default\n", b"line\n..\n")
    says(b"pop\n", b"line\r\n")
    says(b"@pop\n", b"\nok\n")
    says(b"@delete default:7\n", b"\nok\n")
    says(b"pop\n", b"")
    says(b"@pop\n", b"\nerror 66 nothing there\n")
    says(b"push -l\na\nb\nc\n", b"1000 1002\n")
    says(b"pop -l -n 2\n", b"a\nb\n")
    says(b"drain\n", b"c\n")
    says(b"list\n", b"default\n")
    says(b"close\n", b"")
    says(b"pop\n", b"error 69 closed and empty\n")
    for verb in (b"stat", b"list", b"drain"):
        assert handler(flatq, verb + b" nosuch\n")[0].out.startswith(b"error 66 "), verb
    for line in (b"pop -l nosuch\n", b"", b"\n", b"\r\n"):
        says(line, b"")


def test_the_log(shell, flatq):
    """Also of a push that did a checkpoint. For many messages it has no size, or the size of
    all."""
    push(flatq, b"x", "zz")
    for request, *said in [
        (b"push -l fresh\n1\n22\n333\n", "push", "fresh", "ok", "6"),
        (b"pop -l -n 2 fresh\n", "pop", "fresh", "ok", "-"),
        (b"drain fresh\n", "drain", "fresh", "ok", "-"),
        (b"push -d 0 jobs\nhello", "push", "jobs", "ok", "5"),
        (b"@pop jobs\n", "pop", "jobs", "ok", "5"), (b"pop jobs\n", "pop", "jobs", "empty", "-"),
        (b"push -n 2 jobs\nhi", "push", "jobs", "ok", "2"),
        (b"@reserve jobs\n", "reserve", "jobs", "ok", "2"),
        # a size only where a message goes through the door
        (b"@delete jobs:99\n", "delete", "jobs", "error-66", "-"),
        (b"push ../x\n", "push", "-", "error-65", "-"),
    ]:
        assert handler(flatq, request)[1][:4] == tuple(said)
    # each push opens a range of ids, and so does a checkpoint
    flatq.env["FLATQ_RANGE"] = "1"
    assert handler(flatq, b"push fresh\nhello")[1][:4] == ("push", "fresh", "ok", "5")
    # the handler does not know the date without launch, nor before it has opened the spool
    assert re.fullmatch(rb"- - - error-64 - \d+\n", handler(flatq, b"x\n")[0].err)
    # the handler serves even if it cannot write its log
    done = subprocess.run(flatq.command("handler"), input=b"push jobs\nx", env=flatq.env,
        stdout=subprocess.PIPE, stderr=open("/dev/full", "wb"), timeout=100)
    assert done.stdout.strip().isdigit()


def as_launched(flatq, verb, flags="", to="3>guard", **more):
    """Start a door as ncat does under serve; the guard's pipe is a file."""
    words = ["sh", "-c", f'exec "$@" {to} 5>&2', "sh", *flatq.command(
        verb, "serve", flags, "1", "0")]
    return subprocess.Popen(words, cwd=flatq.home, env=flatq.env, **{"stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **more})


@pytest.mark.parametrize("request_", ["push jobs\nx", "push -n 1 jobs\nx", "push -l jobs\nx\n",
    "pop jobs\n", "pop -l jobs\n", "reserve jobs\n", "stat jobs\n"],
                         ids=lambda text: text.split("\n")[0])
def test_a_handler_tells_the_guard_that_it_ends(shell, flatq, request_):
    """On descriptor 3, which its verb leaves alone. Else the guard ends the ncat that still passes
    the answer."""
    push(flatq, b"x", "jobs")
    process = as_launched(flatq, "handler")
    process.communicate(request_.encode(), timeout=60)
    told = (flatq.home / "guard").read_text().split("\n")
    number = next(line.split()[1] for line in told if line.startswith("c "))
    assert process.returncode == 0 and f"e {number}" in told, told


@pytest.mark.shells
def test_no_error_line_stands_in_the_place_of_a_message(shell, flatq):
    """Behind the first line, a client would take it for the message, and delete the real one."""
    push(flatq, b"hello", "jobs")
    done = faulty(flatq, "openat", flatq.spool / "jobs/body/000000000001", "handler",
        input=b"reserve jobs\n")
    assert re.fullmatch(rb"error 74 [^\n]*\n", done.stdout), done
    assert flatq("list", "jobs").out.split()[1] == b"ready"


@pytest.mark.shells
def test_what_a_drain_has_acknowledged_stays_settled_without_the_guard(shell, flatq):
    """The guard is gone as the client acknowledges the batch, which was put back."""
    for body in (b"one", b"two"):
        push(flatq, body, "jobs")
    os.mkfifo(flatq.home / "guard")
    guard = os.open(flatq.home / "guard", os.O_RDONLY | os.O_NONBLOCK)
    process = as_launched(flatq, "handler")
    flatq.started.append(process)
    process.stdin.write(b"@n1@drain -a jobs\n")
    process.stdin.flush()
    while process.stdout.readline() != b"n1 sent\n":
        pass
    os.close(guard)
    said, _ = process.communicate(b"ok\n", timeout=60)
    assert b"n1 ok" in said and flatq("list", "jobs").out == b"", said


@pytest.mark.parametrize("asked, said", [(b"push -n 5 jobs\nhello", rb"\d+\n\nn1 ok\n"),
    (b"list jobs\n", rb"1 ready .*\n\nn1 ok\n")], ids=["push", "list"])
def test_a_handler_that_a_signal_ends_says_no_ok(flatq, asked, said):
    """bash runs the trap of EXIT with the status of its last command: a push that had stored
    nothing was answered `ok`."""
    flatq.shell, log = need("bash"), flatq.home / "calls"
    push(flatq, b"x", "jobs")

    def run(*inject):
        words = [need("strace"), "-qq", "-o", log, "-e", "trace=all", *inject, "--",
            *flatq.command("handler")]
        return subprocess.run(words, input=b"@n1@" + asked, env=flatq.env, capture_output=True,
            timeout=60).stdout

    assert re.fullmatch(said, run())
    for point in share(f"a signal {asked}", calls_in(log), 25):
        answer = run("-e", "inject={}:signal=TERM:when={}".format(*point))
        assert b"n1 ok" not in answer or re.fullmatch(said, answer), (point, answer)


FORKS = "clone,clone3,fork,vfork"
ERRORS = {
    "handler": rb"error \d+ .+\n",
    "http": rb"HTTP/1.1 500 [^\n]*(\r\n[^\r]+)*\r\n\r\n",
    "beanstalk": rb"(OUT_OF_MEMORY|INTERNAL_ERROR)?(\r\n)?",
}


@pytest.mark.parametrize("verb, said", [
    ("handler", "push jobs\ny\n"), ("handler", "push -l jobs\ny\n"), ("handler", "list\n"),
    ("http", "POST /queue?group-id=jobs HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\n"
     "Connection: close\r\n\r\ny"), ("beanstalk", "put 1 0 9 1\r\nm\r\n"),
], ids=["push", "push -l", "list", "POST", "put"])
@pytest.mark.parametrize("lasting", ["", "+"])
def test_a_fork_that_fails_is_answered(flatq, verb, said, lasting):
    """dash ends at once where it cannot start a process. (bash tries again, for half a minute.) The
    HTTP door starts one before it is a door: it says nothing then."""
    log = flatq.home / "calls"
    for number in itertools.count(1):
        push(flatq, b"x", "jobs")
        words = [need("strace"), "-f", "-qq", "-o", log, "-e", f"trace={FORKS}",
            "-e", f"inject={FORKS}:error=EAGAIN:when={number}{lasting}"]
        done = subprocess.run([*words, "--", *flatq.command(verb)], input=said.encode(),
            env=flatq.environment(None), capture_output=True, timeout=60)
        if "INJECTED" not in log.read_text():
            break
        early = verb == "http" and number == 1 and done.stdout == b""
        assert done.returncode == 0 or early or re.fullmatch(ERRORS[verb], done.stdout), (
            number, done)
    assert number > 1 and done.returncode == 0


@pytest.mark.parametrize("verb, asked, said", [
    *(("handler", words + b"\n",
       rb"error 75 a large answer to a client that sends no more needs perl here\n")
      for words in (b"list jobs", b"stat", b"drain jobs", b"pop -l jobs", b"pop jobs")),
    ("handler", b"@n1@list jobs\n", rb"1 ready .*\n\nn1 ok\n"),
    ("beanstalk", b"put 0 0 60 20000\r\n%b\r\nreserve\r\n" % (b"x" * 20_000), rb"INSERTED 2\r\n"),
], ids=["list", "stat", "drain", "pop -l", "pop", "@list", "beanstalk"])
def test_an_answer_that_may_be_cut_is_not_begun(shell, flatq, stub, verb, asked, said):
    """The client sends no more, so its ncat has ended, and nothing can make its connection
    blocking."""
    stub("perl", "exit 127")
    push(flatq, b"x" * 300_000, "jobs")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(
            listener.getsockname()) as client:
        with listener.accept()[0] as ours:
            ours.setblocking(False)
            as_launched(flatq, verb, flags="d", to="3>guard 4>&1 >/dev/null",
                stdout=ours).communicate(asked, timeout=60)
        assert re.fullmatch(said, answer(client))
    assert b"1 ready 65536 " in flatq("list", "jobs", check=0).out


@pytest.mark.parametrize("words", [b"pop", b"reserve", b"pop -l", b"drain", b"@pop", b"@n1@pop"])
@pytest.mark.parametrize("how", ["exit 1", 'kill -9 "$$"', '"$REAL" "$@" | head -c 3; exit 1',
    '"$REAL" "$@"; exit 1'], ids=["fails", "killed", "a part", "all"])
def test_a_message_that_the_line_door_cannot_decode_goes_back(flatq, stub, words, how):
    """The client gets an error only if it asked with `@`. A reservation keeps its lease."""
    push(flatq, b"whole message")
    for name in ("base64", "mawk", "awk"):
        decodes = "-d*" if name == "base64" else "*count=*"
        stub(name, f'case $* in {decodes}) {how} ;; *) exec "$REAL" "$@" ;; esac')
    done = flatq("handler", input=words + b"\n")
    assert done.status == 74 and (b"error 74 " in done.out) == words.startswith(b"@"), done
    for name in ("base64", "mawk", "awk"):
        stub(name, 'exec "$REAL" "$@"')
    if words == b"reserve":
        assert flatq("pop").status == 66
        flatq("release", done.out.split()[0].decode(), check=0)
    assert flatq("pop", check=0).out == b"whole message"


def test_the_line_door_waits_an_hour_at_most(shell, flatq, clock):
    flatq("create", "jobs", check=0)
    process = flatq.start("handler")
    process.stdin.write(b"pop -w 100000 jobs\n")
    process.stdin.flush()
    wait_for(lambda: lies(flatq.spool, "jobs").get("wait"), "it waits")
    clock.advance(3601)
    assert process.wait(20) == 66


# ---- sessions


CLIENTS = {
    "ncat": ("ncat", "printf '%b' '{}' | ncat 127.0.0.1 {}"),
    "ncat --no-shutdown": ("ncat", "printf '%b' '{}' | ncat --no-shutdown 127.0.0.1 {}"),
    "nc -N": ("nc.openbsd", "printf '%b' '{}' | nc.openbsd -N 127.0.0.1 {}"),
    "socat": ("socat", "printf '%b' '{}' | socat -t 10 - TCP:127.0.0.1:{}"),
    "bash": ("bash",
        "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{1} && printf %b \"{0}\" >&3 && cat <&3'"),
}


@BOTH
@pytest.mark.parametrize("client", CLIENTS)
def test_clients(door, flatq, mode, client):
    program, line = CLIENTS[client]
    need(program)
    one = door(mode)

    def say(request):
        wait_for(lambda: listening(one.port), "the next round")
        done = subprocess.run(["sh", "-c", line.format(request, one.port)], capture_output=True,
            timeout=100)
        assert done.stderr == b"", done
        return done.stdout

    # /dev/tcp cannot say that nothing follows, so the request says its length
    assert say("push -n 6\\nhello\\n") == b"1\n"
    if client not in ("bash", "ncat --no-shutdown"):
        assert say("push jobs\\nhello\\nyou") == b"2\n"
        assert say("pop jobs\\n") == b"hello\nyou"
    assert say("pop\\n") == b"hello\n"
    assert say("pop\\n") == b""
    push(flatq, b"0123456789" * 20000)
    assert say("pop\\n") == b"0123456789" * 20000
    assert [line for line in one.said().splitlines()
        if not LOG.fullmatch(line)] == [f"serve: line door on 127.0.0.1 port {one.port}"]


@BOTH
def test_a_large_answer_to_a_slow_client(door, flatq, mode):
    """ncat leaves the connection in non-blocking mode. A client that reads slowly is not idle,
    although the handler ended long ago."""
    body = os.urandom(8_000_000)
    one = door(mode, "-i", "1")
    assert one.ask(b"push\n" + body) == b"1\n"
    for half_close in (True, False):
        with one.connect() as client:
            client.sendall(b"reserve -t 60\n")
            if half_close:
                client.shutdown(socket.SHUT_WR)
            head = b""
            while not head.endswith(b"\n"):
                head += client.recv(1)
            got, piece, began = [], client.recv(65536), time.monotonic()
            while piece:
                got.append(piece)
                time.sleep(0.03 if everything() else 0.012)  # the client's pace
                piece = client.recv(65536)
            assert b"".join(got) == body, one.said()
            assert time.monotonic() - began > 1.2, "the client took longer than the idle limit"
        assert one.ask(b"@release " + head.split()[0] + b"\n") == b"\nok\n"
    assert one.ask(b"peek\n") == body


# ---- clients that go wrong: those of crash/families/clients.py, and these


def test_a_line_of_20_megabytes(shell, door):
    one = door("-k")
    with one.connect() as client:
        client.settimeout(30)
        try:
            client.sendall(b"a" * 20_000_000 + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        # who sends on is reset, and may miss the answer
        assert answer(client) in (b"error 65 line too long\n", b"")
    assert one.ask(b"push\nx") == b"1\n"
    assert {line[2] for line in one.log(2)} & {"line-too-long", "error-65"}
    # this request does not open the spool, so launch tells the handler the date
    assert one.ask(b"nothing\n").startswith(b"error 64 ") and one.log(3)[-1][2] == "error-64"


def test_in_the_loop_nobody_waits(shell, door):
    one = door()
    assert one.ask(b"pop -w 6000 jobs\n") == b""
    assert one.ask(b"@reserve -w 6000 -t 5 jobs other\n") == b"\nerror 66 nothing there\n"
    assert one.ask(b"push -w6000 -p 3 jobs\nx") == b"1\n"
    assert one.said().count("one connection at a time: -w 6000 is taken as -w 0\n") == 3


def named(spool, word):
    return [pid for pid, command in carriers(spool).items() if word in command]


def ncat_above(pid):
    """The ncat that serves the connection of this process."""
    while command_of(pid) != "ncat":
        pid = parent(pid)
    return pid


def test_a_message_that_is_cut_at_any_byte_before_its_end(door, flatq):
    """Also behind the first byte of a line that begins with a dot."""
    one, text = door("-k"), b".profile\n..\n.\r\n. \n.\n"
    for end in range(len(text)):
        for line in (b"push -e jobs\n", b"push -e jobs\r\n"):
            if line.endswith(b"\r\n") and end > text.index(b".\r\n") + 2:
                continue
            assert one.ask(line + text[:end]).startswith(b"error 65 "), (line, end)
    assert not lies(flatq.spool, "jobs").get("wal")
    assert one.ask(b"push -e jobs\n" + text).strip().isdigit()
    assert pop(flatq, "jobs") == text[:-2]


# ---- every transport


@pytest.fixture
def serve(request, flatq, launched, free_port, tmp_path):
    """serve(TRANSPORT, DOOR) starts a door, and returns a function that connects to it."""
    def start(transport, name):
        at, context, words = free_port, None, ["-k"] * (name == "handler")
        door = "line" if name == "handler" else name
        if transport == "tcp":
            launched(*words, door=door, port=at)
        elif transport == "tls":
            options, context = certified(tmp_path)
            launched(*words, "--", *options, door=door, port=at)
        elif transport == "unix":
            at = tmp_path / "socket"
            need("ncat")
            flatq.start("serve", door, *words, "-l", f"unix:{at}", stdin=subprocess.DEVNULL)
            request.addfinalizer(lambda: end_launches(flatq.spool, *flatq.started))
        elif transport in ("socat", "systemd"):
            words = [need("socat"), f"TCP-LISTEN:{at},bind=127.0.0.1,reuseaddr,backlog=200,fork",
                f"EXEC:{' '.join(flatq.command(name))},nofork"]
            if transport == "systemd":
                env = [word for row in flatq.env.items() for word in ("-E", "=".join(row))]
                words = [need("systemd-socket-activate"), "--accept", "--inetd", "-l",
                    f"127.0.0.1:{at}", *env, *flatq.command(name)]
            flatq.started.append(subprocess.Popen(words, env=flatq.env, cwd=flatq.home,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True))
        else:
            listener = socket.create_server(("127.0.0.1", at))
            thread = threading.Thread(target=inetd, args=(listener, name))
            thread.start()
            request.addfinalizer(lambda: (listener.shutdown(socket.SHUT_RDWR), thread.join(10)))
        return lambda: context.wrap_socket(connect(at)) if context else connect(at)

    def inetd(listener, name):
        """Descriptors 0, 1 and 2 are the client's socket: what a door writes to its log must not
        go there."""
        with listener, contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    flatq.start(name, stdin=client, stdout=client, stderr=client)

    return start


TRANSPORTS = "tcp", "tls", "unix", "socat", "systemd", "inetd"
LARGE = bytes(range(256)) * 20_000
# a connection for each row: what is sent, and the whole answer, of clients that go on listening
CONVERSATIONS = {
    "handler": (
        (b"push -n %d jobs\n" % len(LARGE) + LARGE, rb"1\n"),
        (b"push -n 5 jobs\r\nhello", rb"2\n"), (b"pop jobs\n", re.escape(LARGE)),
        (b"pop jobs\n", b"hello"), (b"pop jobs\n", b""), (b"nothing\n", rb"error 64 .*\n"),
        (b"stat jobs\n", rb"queue jobs\n.*")),
    "beanstalk": ((b"put 0 0 60 5\r\nhello\r\nreserve\r\ndelete 1\r\nquit\r\n",
        rb"INSERTED 1\r\nRESERVED 1 5\r\nhello\r\nDELETED\r\n"),),
    "small-stalk": ((b"put 0 60\r\nhello\r\nreserve\r\ndelete 1\r\nquit\r\n",
        rb"INSERTED 1\r\nRESERVED 1\r\nhello\r\nDELETED\r\n"),),
    "http": ((b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET /queue HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 404 .*HTTP/1.1 204 .*"),),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_door_by(shell, flatq, serve, transport, name):
    connects = serve(transport, name)
    for asked, expected in CONVERSATIONS[name]:
        with connects() as client:
            client.sendall(asked)
            said = answer(client)
        assert re.fullmatch(expected, said, re.S), (asked[:99], said[:999])
    if name == "handler" and transport in ("socat", "systemd", "inetd"):
        with connects() as client:
            client.sendall(b"push jobs\nuntil the end")
            client.shutdown(socket.SHUT_WR)
            assert answer(client) == b"3\n"
        a_client_that_is_gone(flatq, connects)


def a_client_that_is_gone(flatq, connects):
    """The message comes back, as often as that happens."""
    def handlers():
        """Not the server, whose command line has the handler's too."""
        return [pid for pid in named(flatq.spool, "lib/handler")
            if not command_of(pid).startswith(("socat", "systemd"))]

    for number in range(3):
        wait_for(lambda: not handlers(), "the last handler's end")
        client = connects()
        client.sendall(b"pop jobs")
        with clients.paused(wait_for(handlers, "its handler")):
            client.sendall(b"\n")
            client.close()
        wait_for(lambda: (flatq.spool / "jobs/log").read_text().count(" undelivered ") == number
            + 1, "that it is back")
    assert pop(flatq, "jobs") == b"until the end"


def test_tls_is_never_left(flatq, serve, free_port):
    """A client that sends no more never gets an answer in plain text. One that does not speak TLS
    does not end the door."""
    connects = serve("tls", "handler")
    push(flatq, b"again", "jobs")
    with connects() as client:
        client.sendall(b"pop jobs\n")
        with socket.socket(fileno=os.dup(client.fileno())) as plain:
            plain.shutdown(socket.SHUT_WR)
        try:
            assert answer(client) in (b"again", b"")
        except ssl.SSLError as error:
            assert "ALERT" in error.reason
    push(flatq, b"again", "jobs")
    with connect(free_port) as plain:
        plain.sendall(b"pop jobs\n")
        assert not answer(plain).startswith(b"again")
    with connects() as client:
        client.sendall(b"stat jobs\n")
        assert answer(client).startswith(b"queue jobs\n")


@pytest.mark.parametrize("verb, hidden", [
    *((verb, ()) for verb in ("pop", "pop -l", "drain", "reserve")), ("pop", ("perl",))])
def test_a_client_that_takes_a_part(door, flatq, stub, verb, hidden):
    """Its system has room for a part of the answer, and it resets the connection: the messages come
    back."""
    push(flatq, b"x" * 3000, "jobs")
    for name in hidden:
        stub(name, "exit 127")
    served = door("-k")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", served.port))
        client.sendall(f"{verb} jobs\n".encode())
        client.recv(1, socket.MSG_PEEK)
        # the rest of the answer is not sent yet, so the door waits, or it has settled
        wait_for(lambda: unsent(served.port), "the rest to wait for the client")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert served.log(1)[0][2] == "gone"
    assert pop(flatq, "jobs") == b"x" * 3000


def unsent(port):
    """Whether bytes of a connection to that port still wait for the client to read."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and not row[4].startswith("00000000:")
        for row in rows)


# ---- cost


def test_processes_of_a_request(flatq):
    """As many as the verb's own, and `dd` for a length that is stated."""
    push(flatq, b"x")
    for request, expected in ((b"push\nx", ["base64"]),
            (b"push -n 1\nx", ["base64", "dd"]), (b"pop\n", ["base64", "mv"])):
        counted = flatq.count("handler", input=request)
        assert sorted(map(os.path.basename, counted.programs)) == expected
