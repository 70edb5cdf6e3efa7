"""./launch: limits, signals, and what becomes of a door when one of its processes is killed."""

import contextlib
import fcntl
import grp
import itertools
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import pytest

from conftest import free, listening, need, share, wait_for
from engine import (
    alive, calls_in, carriers, children, command_of, empty, end_launches, lies, pop, push, words_of)
from servers import certified
from stalk import Client, parent
from test_door import (  # noqa: F401
    BOTH, FORKS, Door, all_gone, ask, connect, door, named)

from crash.families import clients as clients_
from crash.families.clients import answer
from crash.gate.processes import kill

BUSY = b"error 75 too many connections, or this one was idle or slow, or the door is closing\n"


# ---- limits


# what waits for an hour; and a request that a door answers at once, and how
WAITS = {
    "line": (b"pop -w 3600 jobs\n", b"list nosuch\n", b"error 66 "),
    "beanstalk": (b"reserve\r\n", b"use x\r\nquit\r\n", b"USING x\r\n"),
    "http": (b"GET /queue?wait=3600 HTTP/1.1\r\nHost: x\r\n\r\n",
             b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 404 "),
}


@pytest.mark.parametrize("kind", WAITS)
def test_more_at_once_than_the_limit(launched, flatq, kind):
    """Of twenty clients that ask at once, three wait. The others are told, or were served before.
    Who waits and is gone keeps no place."""
    waits, asks, says = WAITS[kind]
    flatq("create", "jobs", check=0)
    one = launched(*["-k"] * (kind == "line"), "-m", "3", "-i", "0", door=kind)
    clients = [one.connect() for _ in range(20)]
    for client in clients:
        client.send(waits)

    def left():
        ready, _, _ = select.select([client.socket for client in clients], [], [], 0)
        return [client for client in clients if client.socket not in ready]

    wait_for(lambda: len(left()) == 3, "the end of 17", 20)
    time.sleep(0.5)
    assert len(left()) == 3 and len(list(flatq.spool.glob(".wait/*-*"))) >= 3
    if kind != "beanstalk":
        # ncat does not count it among its connections any more
        left()[0].socket.shutdown(socket.SHUT_WR)
        said = one.connect().rest()
        assert said == BUSY or said.startswith(b"HTTP/1.1 503 "), said
    for client in clients:
        client.close()

    def served():
        client = one.connect()
        try:
            client.send(asks)
        except OSError:
            return False
        return client.rest().startswith(says)

    wait_for(served, "a place", seconds=20)


def test_a_waiting_pop(shell, door, flatq):
    """It gets what another client pushes, and is not idle."""
    one = door("-k", "-i", "1")
    for half_close in (True, False):
        with one.connect() as waiter:
            waiter.sendall(b"pop -w 60 jobs\n")
            if half_close:
                waiter.shutdown(socket.SHUT_WR)
            wait_for(lambda: lies(one.spool, "jobs").get("wait"), "the waiter")
            with one.connect() as idle:
                idle.sendall(b"pop")
                assert answer(idle).startswith(b"error 75 ")
            assert one.ask(b"push jobs\nhello") == b"%d\n" % (1 if half_close else 2)
            assert answer(waiter) == b"hello"


@BOTH
def test_idle_clients(door, mode):
    one = door(mode, "-i", "1")
    with one.connect(100) as client:
        assert answer(client).startswith(b"error 75 ")
    with one.connect(100) as client:
        client.sendall(b"push jobs\nhalf")
        assert answer(client) == b""
    assert one.ask(b"pop jobs\n") == b"", "what an idle client has sent is no message"
    assert sorted(line[2] for line in one.log(3)) == ["empty", "error-75", "idle"]


@pytest.mark.slow
@pytest.mark.parametrize("request_", [b"push", b"push jobs\n"], ids=["line", "body"])
def test_a_client_that_sends_a_byte_now_and_then(door, request_):
    """It is slow: less than 10,000 bytes in ten times the limit. Bytes below the first thousand
    once counted as ten thousand."""
    one = door("-k", "-i", "1")
    with one.connect() as client:
        client.sendall(request_)
        began = time.monotonic()
        client.setblocking(False)
        while not select.select([client], [], [], 0.3)[0]:
            assert time.monotonic() < began + 25
            with contextlib.suppress(OSError):
                client.send(b"x")
    assert time.monotonic() > began + 8
    assert one.log(1)[0][2] in ("slow", "error-75")


class Guard:
    """The guard of a door, launch itself, which the test alone tells the seconds (untold)."""

    def __init__(self, one):
        self.pid = one.process.pid
        self.pipe = os.open(f"/proc/{self.pid}/fd/6", os.O_WRONLY | os.O_NONBLOCK)

    def is_told(self, seconds=1):
        os.write(self.pipe, b"\nt\n" * seconds)

    def has_read(self):
        """Whether it has read all that was written to it."""
        return fcntl.ioctl(self.pipe, termios.FIONREAD, b"\0" * 4) == b"\0" * 4

    def has_looked(self):
        """Wait until it has read all, and looked at its connections: it reads an empty line behind
        that."""
        for line in (b"", b"\n"):
            os.write(self.pipe, line)
            wait_for(self.has_read, "the guard has read that")


@pytest.fixture
def untold(door, stub):
    """untold("-k"): a door, and its Guard."""
    stub("sleep", 'case $1 in 1) exec "$REAL" 1000000 ;; esac; exec "$REAL" "$@"')
    guards = []

    def start(*args):
        one = door(*args)
        guards.append(Guard(one))
        return one, guards[-1]

    yield start
    for guard in guards:
        os.close(guard.pipe)


def test_seconds_that_have_gathered_count_as_one(untold):
    """The guard was held up for a minute, in which nobody was idle."""
    one, guard = untold("-k", "-i", "10")
    with one.connect() as client:
        client.sendall(b"push -n 5 jobs\nhel")
        wait_for(lambda: any((one.spool / "jobs/body").glob("*")), "the push to begin")
        guard.is_told(60)
        guard.has_looked()
        assert one.ask(b"push jobs\nx").strip().isdigit()
        client.sendall(b"lo")
        assert answer(client).strip().isdigit()


def test_a_second_right_after_a_refusal(untold):
    """The refused client has its answer, although the guard looks at its connection at once."""
    one, guard = untold("-k", "-m", "1")
    with one.connect() as first:
        first.sendall(b"pop -w 60\n")
        wait_for(lambda: lies(one.spool).get("wait"), "a client that waits")
        os.kill(guard.pid, signal.SIGSTOP)
        known = one.handlers()
        with one.connect() as second:
            handler, = wait_for(lambda: set(one.handlers()) - set(known), "its handler")
            wait_for(lambda: not guard.has_read(), "it tells the guard")
            os.kill(handler, signal.SIGSTOP)
            guard.is_told()
            os.kill(guard.pid, signal.SIGCONT)
            guard.has_looked()
            os.kill(handler, signal.SIGCONT)
            assert answer(second) == BUSY


def test_a_second_just_before_the_line_is_known(untold, flatq, stub, tmp_path):
    """The guard has not yet read that the handler, which has read a large message, has its line."""
    hold, held = tmp_path / "hold", tmp_path / "held"
    flatq("create", "jobs", check=0)
    flatq.syncs()
    stub("sync", f'while [ -e "{hold}" ]; do : >"{held}"; sleep 0.05; done; exec "$REAL" "$@"')
    one, guard = untold("-k")
    body = b"x" * 1_200_000
    push(flatq, b"the queue is there", "jobs")
    hold.touch()
    with one.connect() as client:
        wait_for(lambda: one.handlers() and guard.has_read(), "the guard knows the handler")
        os.kill(guard.pid, signal.SIGSTOP)
        guard.is_told()
        client.sendall(b"push -n %d jobs\n" % len(body) + body)
        wait_for(held.exists, "the message is there")
        os.kill(guard.pid, signal.SIGCONT)
        guard.has_looked()
        hold.unlink()
        assert answer(client).strip().isdigit()


def test_a_second_just_before_the_end_is_known(untold, flatq, stub, tmp_path):
    """The guard has not yet read that the handler has ended. Under TLS ncat still passes the answer
    on."""
    hold, held = tmp_path / "hold", tmp_path / "held"
    stub("base64", f'while [ -e "{hold}" ]; do echo $$ >"{held}.new"; mv "{held}.new" "{held}"; '
                   'sleep 0.05; done; exec "$REAL" "$@"')
    body = os.urandom(60_000)  # less than a pipe holds
    push(flatq, body, "jobs")
    options, context = certified(tmp_path)
    one, guard = untold("-k", "--", *options)
    hold.touch()
    with context.wrap_socket(one.connect()) as client:
        client.sendall(b"pop jobs\n")
        wait_for(held.exists, "the handler has the message")
        ncat = int(held.read_text())
        while command_of(ncat) != "ncat":
            ncat = parent(ncat)
        wait_for(guard.has_read, "the guard knows the verb")
        kill([guard.pid, ncat], signal.SIGSTOP)
        guard.is_told()
        hold.unlink()
        wait_for(lambda: not one.handlers(), "the handler has ended")
        os.kill(guard.pid, signal.SIGCONT)
        guard.has_looked()
        os.kill(ncat, signal.SIGCONT)
        assert answer(client) == body


def test_many_idle_connections_cost_little_each_second(untold, flatq):
    """The guard looks at 32 of 40 connections in a second, and at the others in the next."""
    one, guard = untold("-k", "-i", "3", "-m", "50")
    clients = [one.connect() for _ in range(40)]
    wait_for(lambda: len(one.handlers()) == 40 and guard.has_read(), "all are known")
    log, handlers = flatq.home / "trace", set(one.handlers())
    status = Path(f"/proc/{guard.pid}/status")
    tracer = subprocess.Popen(
        [need("strace"), "-qq", "-o", log, "-e", "trace=openat", "-p", str(guard.pid)])
    try:
        wait_for(lambda: "TracerPid:\t0" not in status.read_text(), "strace")
        for seen, count in ((32, 64), (40, 128)):
            time.sleep(1.01)  # seconds that are closer count as one
            guard.is_told()
            guard.has_looked()
            looks = [int(pid) for pid in re.findall(r'"/proc/(\d+)/io"', log.read_text())]
            assert len(handlers & set(looks)) == seen and len(looks) <= count
    finally:
        tracer.terminate()
        tracer.wait()
    for client in clients:
        client.close()


@pytest.mark.parametrize("before", ["", "Ncat: ", "Ncat: Ncat: "])
@pytest.mark.parametrize("stranger", [False, True])
def test_the_guard_signals_no_stranger(untold, stranger, before):
    """Another process has the number of a handler that is gone. The guard hears of three: one is
    idle, two are too many, of which one does not end. ncat's words may come between a newline and
    what follows it."""
    one, guard = untold("-k", "-i", "1", "-m", "1")
    found = [subprocess.Popen([*words, "sleep", "1000"])
        for words in ((), (), ("env", "--ignore-signal=TERM"))]
    try:
        for process in found:
            wait_for(lambda: command_of(process.pid) == "sleep")
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
            began = int(stat.split()[19]) + (-1 if stranger else 1)
            os.write(guard.pipe, f"\n{before}c {process.pid} 1 {began:012}\n".encode())
        for _ in range(4):
            guard.has_looked()
            time.sleep(1.01)  # seconds that are closer count as one
            guard.is_told()
        guard.has_looked()
        if not stranger:
            ends = [-signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL]
            assert [process.wait(20) for process in found] == ends
        assert stranger == all(process.poll() is None for process in found)
    finally:
        for process in found:
            process.kill()
            process.wait()


def test_an_option_of_ncat(door):
    """It once looked like --deny, which needs -k."""
    assert door("--", "--delay", "1ms").ask(b"list nosuch\n").startswith(b"error 66 ")


def test_connections_that_have_ended_cost_no_look(untold):
    """After many, the guard still sees in its third look that a client is idle."""
    one, guard = untold("-k", "-i", "1")
    for _ in range(100):
        assert one.ask(b"list nosuch\n").startswith(b"error 66 ")
    with one.connect() as idle:
        wait_for(lambda: len(one.handlers()) == 1 and guard.has_read(), "it is known")
        for _ in range(3):
            time.sleep(1.01)  # seconds that are closer count as one
            guard.is_told()
            guard.has_looked()
        assert answer(idle) == BUSY


@pytest.mark.parametrize("request_, said", [
    (b"push jobs\n", None), (b"push -n 3000000 shut\n", b"error 69 queue 'shut' is closed\n")])
def test_a_push_that_is_refused(door, flatq, request_, said):
    """Its client, which sends no end, gets the reason. One that is too large was once said to be
    cut off, and one for a closed queue was reset behind its answer."""
    flatq("create", "shut", check=0)
    flatq("close", "shut", check=0)
    one = door("-k", "-z", "100" if said is None else "0")
    with one.connect() as client:
        client.sendall(request_ + b"x" * 3000000)
        assert not said or b"".join(iter(lambda: client.recv(65536), b"")) == said
    assert one.log(1)[0][2] == ("error-69" if said else "error-65")


@BOTH
@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
def test_a_killed_checkpoint_is_not_the_last(door, flatq, spool, mode):
    push(flatq, b"first")
    pop(flatq)
    with (spool / "default/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the checkpoint waits for it
        one = door(mode)
        runner = wait_for(lambda: set(children(one.process.pid)) & set(named(spool, "lib/wal")),
            "a checkpoint").pop()
        os.kill(runner, signal.SIGKILL)
        wait_for(lambda: runner not in children(one.process.pid), "the guard has noticed that")
    push(flatq, b"second")
    assert one.ask(b"pop\n") == b"second"
    wait_for(lambda: not lies(spool).get("done"), "another checkpoint")


# ---- the end of the door


def busy(one):
    """One client that says nothing, one in the middle of a push and, under -k, one that waits."""
    clients = [one.connect() for _ in range(3 if one.process.args[-1] == "-k" else 1)]
    clients[-1].sendall(b"push jobs\nhalf a message")
    if len(clients) > 1:
        clients[0].sendall(b"pop -w 60 other\n")
        wait_for(lambda: lies(one.spool, "other").get("wait"), "the waiter")
    wait_for(lambda: lies(one.spool, "jobs").get("body"), "the body")
    return clients


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
                         ids=lambda number: number.name)
def test_signals(shell, door, flatq, spool, mode, number):
    one = door(mode)
    clients = busy(one)
    one.process.send_signal(number)
    assert one.ended() in (-number, 128 + number)
    empty(flatq, "jobs")
    for client in clients:
        client.close()


@pytest.fixture
def traced(flatq):
    """traced(WORD ...) starts `launch line -k` under strace with these words, and returns it once
    it has ended or listens; and its port. strace is a child of launch (-D)."""
    flatq("create", check=0)

    def start(*words):
        port = free()
        process = subprocess.Popen([need("strace"), "-D", "-qq", "-o", flatq.home / "trace", *words,
            "--", *flatq.command("serve", "line", "-k", "-p", str(port))],
            env=flatq.environment(None), cwd=flatq.home, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        flatq.started.append(process)
        wait_for(lambda: process.poll() is not None or listening(port), "an end, or the door", 30)
        return process

    start.log = flatq.home / "trace"
    return start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_at_any_step(shell, flatq, traced, number):
    """Also before launch has noted what it has just started."""
    process = traced("-e", "trace=all")
    process.terminate()
    process.wait(60)
    calls, text = calls_in(traced.log), traced.log.read_text()
    begun = text[:text.index("guard")].count("\n")  # the FIFO
    for name, when in (*share(f"launch, {number.name}", calls[:begun], 4),
            *share(f"start, {number.name}", calls[begun:begun + 60], 10)):
        process = traced("-e", f"inject={name}:signal={number.name[3:]}:when={when}")
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        assert process.wait(60) in (-number, 128 + number, -signal.SIGTERM, 143), (name, when)
        all_gone(flatq.spool)


@pytest.mark.slow
@pytest.mark.parametrize("follow", [False, True], ids=["its own", "those of all"])
@pytest.mark.parametrize("shell", ["dash", "busybox"], indirect=True)
def test_a_launch_that_cannot_start_a_process_ends(flatq, traced, follow):
    """At each fork, its own, or the first of each process. (bash tries again, for half a
    minute.)"""
    for number in itertools.count(1):
        process = traced(*["-f"] * follow, "-e", f"trace={FORKS}", "-e",
            f"inject={FORKS}:error=EAGAIN:when={number}")
        if process.poll() is None:
            # Where it cannot start a sleep at its end, the shell has a code of its own
            process.terminate()
            assert process.wait(20) in (-signal.SIGTERM, 143, 2)
        else:
            assert process.returncode > 0
        all_gone(flatq.spool)
        if "INJECTED" not in traced.log.read_text() or follow and number == 3:
            break


def beside(pid):
    """The clock, which leads what launch starts, and the process that runs ncat."""
    def found():
        for clock in children(pid):
            if b"serve.sh" in words_of(clock):
                for runner in children(clock):
                    if any(command_of(below) == "ncat" for below in children(runner)):
                        return clock, runner
        return None

    return wait_for(found, "ncat")


@pytest.mark.parametrize("stopped", [0, 1], ids=["the clock", "what runs ncat"])
def test_what_somebody_has_stopped_does_not_keep_launch(shell, door, stopped):
    one = door("-k")
    os.kill(beside(one.process.pid)[stopped], signal.SIGSTOP)
    one.process.terminate()
    one.ended(20)


def test_an_ncat_that_cannot_be_run_is_not_tried_for_ever(shell, flatq, stub):
    """launch used to try again at full speed."""
    for code in (126, 127):
        stub("ncat", f"exit {code}")
        assert flatq("serve", check=69, timeout=20).out == b""


@BOTH
@pytest.mark.parametrize("whom", ["launch", "ncat", "what runs ncat", "clock", "handler"])
def test_kill(shell, door, flatq, spool, mode, whom):
    one = door(mode)
    clients = busy(one)
    clock, runner = beside(one.process.pid)
    target = {
        "launch": one.process.pid, "what runs ncat": runner, "clock": clock,
        "ncat": next(pid for pid in children(runner) if command_of(pid) == "ncat"),
        "handler": one.handlers()[0],
    }[whom]
    os.kill(target, signal.SIGKILL)
    wait_for(lambda: not alive(target), "its death")
    if whom == "clock" and mode == "-k":
        one.ask(b"list\n")  # the next connection tells launch
    if whom == "handler" or (whom, mode) in (("ncat", "loop"), ("clock", "loop")):
        # the door still serves
        if whom == "clock":
            clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, clients_.RESET)
            clients.pop().close()
        with contextlib.suppress(AssertionError):
            said = one.ask(b"push -n 1 other\nx")
            assert said.strip().isdigit() or whom == "clock"
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(60)
    all_gone(spool)
    assert not listening(one.port)
    one.process.wait(60)
    if whom == "launch":
        again = Door(flatq, *["-k"] * (mode == "-k"), door="line", port=one.port)
        again.process.terminate()
        again.ended()
    for client in clients:
        client.close()
    assert not lies(spool, "jobs").get("wal"), "half a message"


# ---- words of the command line


@BOTH
def test_a_port_in_use(shell, flatq, free_port, mode):
    need("ncat")
    # also if a connection of another test still waits for its end there
    with socket.create_server(("127.0.0.1", free_port)):
        done = flatq("serve", "-p", str(free_port), *["-k"] * (mode == "-k"))
    assert (done.status, done.out) == (75, b"")
    assert done.err == b"serve: bind to 127.0.0.1:%d: Address already in use.\n" % free_port
    all_gone(flatq.spool)


@pytest.mark.parametrize("args, status", [
    (["-p", "0"], 65), (["-p", "65536"], 65), (["-p", "08x"], 65), (["-l", "-x"], 65),
    (["-l", "a b"], 65), (["-m", "0"], 65),
    (["-i", "-1"], 65), (["-z", "1e3"], 65), (["-x"], 64), (["-p"], 64), (["http2"], 64),
    (["-l", "300.0.0.1"], 69),
    (["-g", "root"], 64), (["-l", "unix:x", "-g", "a b"], 65), (["-l", "unix:x", "-g", "-R"], 65),
    (["--", "--no-such-option"], 69), (["--", "--deny", "127.0.0.1"], 64),
])
def test_options_refused(shell, flatq, args, status):
    need("ncat")
    done = flatq("serve", *args, timeout=100)
    assert (done.status, done.out) == (status, b""), done
    assert done.err.startswith(b"serve: ") and done.err.count(b"\n") <= (1 if status != 69
        else 9), done


@pytest.mark.parametrize("name, port, most", [
    ("line", 1234, "0"), ("beanstalk", 11300, "2147483646"), ("small-stalk", 6969, "2147483646"),
    ("http", 5000, "2147483646")])
def test_defaults(flatq, stub, name, port, most):
    """This ncat only prints where it should listen, and which size the door is to refuse (0:
    none)."""
    said = flatq.home / "said"
    stub("ncat", f'printf "%s\\n" "$*" "$FLATQ_MOST_BYTES" "$FLATQ_HANDLER" >{said}\nexit 2')
    for args, limit in (((), ""), (("-z", "0"), most), (("-z", "00"), most), (("-z", "10"), "10")):
        flatq("serve", name, *args, timeout=20)
        words, bytes_, handler = said.read_text().splitlines()[-3:]
        assert words.endswith(f" 127.0.0.1 {port}"), words
        assert (bytes_, os.path.basename(handler)) == (limit, "handler" if name == "line" else name)


# ---- a socket in the file system


@pytest.fixture
def start(flatq, tmp_path):
    """start(WORD ...) starts `./launch`, and waits until it listens at the ports `up`. said() is
    what it has said. All of it ends with the test."""
    need("ncat")

    def run(*words, up=()):
        errors = tmp_path / f"launch.{len(flatq.started)}"
        with errors.open("wb") as log:
            process = flatq.start("serve", *words, stdin=subprocess.DEVNULL, stderr=log)
        wait_for(lambda: process.poll() is not None or all(map(listening, up)), "the doors")
        process.said = errors.read_text
        return process

    yield run
    end_launches(flatq.spool, *flatq.started)


@pytest.fixture
def by_path(start, tmp_path):
    """by_path(WORD ...) starts a door at the socket by_path.at."""
    run = lambda *words: start(*words, "-l", f"unix:{run.at}")
    run.at = tmp_path / "socket"
    return run


def listened_at(path):
    """Without -k, a door's socket is gone for an instant after each connection."""
    rows = (row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(row[3] == "00010000" and row[-1] == str(path) for row in rows)


def refuses(by_path, *words, code, text):
    """A launch that begins and ends with one line about the socket."""
    one = by_path(*words)
    assert one.wait(60) == code
    assert one.said() == f"serve: {text % by_path.at}\n"


def sleeper(pid):
    return next((child for child in children(pid) if command_of(child) == "sleep"), None)


def test_a_socket_in_the_file_system(flatq, spool, by_path):
    """The kernel's tables do not list it: what the door wrote to it counts as received."""
    by_path("-k")
    flatq("create", "jobs", check=0)
    with connect(by_path.at) as client:
        client.sendall(b"pop -w 60 jobs\n")
        client.shutdown(socket.SHUT_WR)
        handler = wait_for(lambda: named(spool, "lib/handler"), "the handler")[0]
        # the waiter looks for its client every two seconds, between two sleepers, and must not give
        # up
        first = wait_for(lambda: sleeper(handler), "it sleeps")
        wait_for(lambda: sleeper(handler) not in (None, first), "it sleeps again")
        assert select.select([client], [], [], 0)[0] == []
        push(flatq, b"at last", "jobs")
        assert answer(client) == b"at last"
    with connect(by_path.at) as client:
        client.sendall(b"pop -w 60 jobs\n")
        wait_for(lambda: list(spool.glob("jobs/wait/*")), "it to wait")
    wait_for(lambda: not list(spool.glob("jobs/wait/*")), "it to see that its client is gone", 20)
    wait_for(lambda: not named(spool, "lib/handler"), "its handler to end")
    empty(flatq, "jobs")


@pytest.mark.parametrize("mode", ["loop", "-k"])
def test_a_socket_is_there_as_long_as_its_door(flatq, by_path, mode):
    """Also for a second client without -k. The next door takes the place of one that was killed,
    and of none that lives."""
    words = ["-k"] if mode == "-k" else []
    one = by_path(*words)
    for said in (b"1\n", b"2\n"):
        assert ask(by_path.at, b"push jobs\nhello") == said
    wait_for(lambda: listened_at(by_path.at))
    assert stat.S_IMODE(by_path.at.stat().st_mode) & 0o077 == 0
    one.kill()
    one.wait()
    all_gone(flatq.spool)
    assert by_path.at.exists()
    one = by_path(*words)
    assert ask(by_path.at, b"pop jobs\n") == b"hello"
    wait_for(lambda: listened_at(by_path.at))
    refuses(by_path, *words, code=75, text="%s is in use")
    # what was refused has connected, to see that somebody listens
    wait_for(lambda: listened_at(by_path.at))
    assert ask(by_path.at, b"pop jobs\n") == b"hello"
    one.terminate()
    assert one.wait(60) == -signal.SIGTERM and not by_path.at.exists()


def test_a_file_that_is_no_socket_stays(flatq, by_path):
    by_path.at.write_text("precious")
    assert by_path("-k").wait(60) == 75 and by_path.at.read_text() == "precious"


def test_the_group_of_a_socket(flatq, by_path):
    """Its members may connect, and others may not."""
    if os.geteuid():
        pytest.skip("only root may be a member of any group")
    place = tempfile.TemporaryDirectory(prefix="flatq-test.", dir="/tmp")
    os.chmod(place.name, 0o711)
    by_path.at = Path(place.name, "socket")
    group = grp.getgrgid(65534).gr_name
    by_path("-k", "-g", group)
    wait_for(lambda: by_path.at.exists() and by_path.at.stat().st_gid == 65534, "the group")
    wait_for(lambda: stat.S_IMODE(by_path.at.stat().st_mode) == 0o660, "the mode")

    def by(number):
        words = ["setpriv", "--reuid", "12345", "--regid", str(number), "--clear-groups", "ncat",
            "-U", str(by_path.at)]
        return subprocess.run(words, input=b"push jobs\nhello", capture_output=True, timeout=60)

    assert by(65534).stdout.strip().isdigit()
    denied = by(12345)
    assert denied.stdout == b"" and b"Permission denied" in denied.stderr, denied


def test_a_group_that_cannot_have_the_socket(flatq, by_path):
    refuses(by_path, "-k", "-g", "no-such-group", code=77,
        text="cannot give %s to the group no-such-group")
    all_gone(flatq.spool)
    assert not by_path.at.exists()


# ---- several doors of one launch


def speak(at, request, until):
    client = Client(connect(at, 20))
    client.send(request)
    assert client.until(lambda: client.got.endswith(until), 20), client.got
    client.close()
    return client.got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
                         ids=lambda number: number.name)
def test_several_doors(shell, start, flatq, tmp_path, number):
    line, http, path = free(), free(), tmp_path / "stalk"
    process = start("-k", "line", "-p", str(line), "beanstalk", "-l", f"unix:{path}", "-z", "10",
        "http", "-p", str(http), up=(line, http))
    wait_for(lambda: process.said().count(" door on ") == 3, "three doors")
    puts = b"use jobs\r\nput 0 0 60 5\r\nhello\r\nput 0 0 60 11\r\nhello world\r\n"
    assert speak(path, puts, b"TOO_BIG\r\n").count(b"INSERTED 1\r\n") == 1
    get = b"GET /queue HTTP/1.1\r\nHost: x\r\n\r\n"
    assert speak(http, get, b"hello").startswith(b"HTTP/1.1 200 ")
    assert speak(line, b"stat jobs\npeek", b"\n").startswith(b"queue jobs\n")
    # launch passes on the signal to drain
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: b"DRAINING" in speak(path, b"put 0 0 60 1\r\nx\r\n", b"\r\n"),
        "it drains")
    process.send_signal(number)
    assert process.wait(60) in (-number, 128 + number)
    all_gone(flatq.spool)
    assert not listening(line) and not listening(http) and not path.exists()


@pytest.mark.parametrize("how", ["port in use", "ncat killed", "a door killed", "launch killed"])
def test_one_of_several_doors_ends(shell, start, flatq, how):
    line, http = free(), free()
    words = ("-k", "line", "-p", str(line), "http", "-p", str(http))
    if how == "port in use":
        with socket.create_server(("127.0.0.1", http)):
            process = start(*words)
            assert process.wait(60) == 75
            assert "already in use" in process.said()
    else:
        process = start(*words, up=(line, http))
        wait_for(lambda: process.said().count(" door on ") == 2, "two doors")
        kill([{
            "ncat killed": next(pid for pid, command in carriers(flatq.spool).items()
                if command.startswith("ncat ") and str(http) in command),
            "a door killed": next(pid for pid in children(process.pid)
                if b"--parent" in words_of(pid)),
            "launch killed": process.pid}[how]])
        process.wait(60)
    all_gone(flatq.spool)
    assert not listening(line)
