"""The line door, ./launch and lib/handler: with many clients, and after each way in which a client can go wrong."""

import contextlib
import fcntl
import itertools
import os
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import pytest

from conftest import LIB, ROOT, everything, free, listening, need, share, wait_for
from engine import calls_in, carriers, children, command_of, empty, end_launches, lies, pipe_into, pop, push, stop_and_fill
from servers import certified
from stalk import Launched, parent

from flatq.crashlab.families import clients
from flatq.crashlab.families.clients import answer
from flatq.crashlab.gate.processes import kill

BOTH = pytest.mark.parametrize("mode", ["loop", "-k"])
LOG = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\dZ (\S+) (\S+) (\S+) (\d+|-) (\d+)")


def logged(said):
    """(verb, queue, outcome, bytes, ms) of each connection."""
    return [found.groups() for found in map(LOG.fullmatch, said.splitlines()) if found]


class Door(Launched):
    """A running ./launch with the line door."""

    def __init__(self, flatq, *args, **more):
        super().__init__(flatq, *args, door="line", **more)

    def log(self, count=0):
        """logged() of every connection so far, once there are `count` of them."""
        return wait_for(lambda: len(lines := logged(self.said())) >= count and [lines], f"{count} lines of log")[0]

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


def connect(port, seconds=60):
    """Connect as soon as somebody listens. The loop does not listen between two connections."""
    def attempt():
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=seconds)
        except ConnectionRefusedError:
            return None
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
    return lambda *args: launched(*(arg for arg in args if arg != "loop"), port=free_port, kind=Door)


def handler(flatq, request, **env):
    """Run lib/handler with the request on its standard input, and pipes. Return what it prints, and its log."""
    done = flatq("handler", input=request, env=env or None, timeout=100)
    lines = [LOG.fullmatch(line) for line in done.err.decode().splitlines()]
    return done, lines[-1].groups() if lines and lines[-1] else None


def test_a_row_that_the_shell_and_awk_miss_once(flatq, stub, tmp_path):
    """Nobody reads the kernel's table in one piece. Once, a whole push was refused since its connection was not seen: `the client was cut off`."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text("  sl  local_address rem_address\n")
    stub("awk", '[ -e "$ONCE" ] || { : >"$ONCE"; exit; }\necho 08.00000000:00000001.0100007F:04D2.0100007F:D431')
    script = 'lib=$1; . "$lib/engine/common.sh"; shell_reset; FLATQ_DOOR=1; need doors/door; door_inode=7; door_row && echo "$door_state $door_unread $door_remote"'
    done = subprocess.run([flatq.shell, "-c", script, "sh", LIB], env={**flatq.env, "FLATQ_PROC": str(tmp_path)}, capture_output=True)
    assert (done.stdout, done.stderr) == (b"08 00000001 0100007F:D431\n", b""), done


def test_a_look_for_the_client_reads_nothing_of_its_input(shell, tmp_path):
    """Neither table can be seen. awk without a file would read the message."""
    script = '''lib=$1; . "$lib/engine/common.sh"; shell_reset; FLATQ_DOOR=1; need doors/door; door_pipe='' door_unix='' door_inode=7 door_remote=b
        door_row() { door_state=08 door_local=a; }; door_client_gone; cat'''
    done = subprocess.run([shell, "-c", script, "sh", LIB], env={**os.environ, "FLATQ_PROC": str(tmp_path)}, input=b"message", capture_output=True)
    assert (done.stdout, done.stderr) == (b"message", b""), done


def test_the_log_names_what_was_asked_for(shell, flatq):
    """The log names the verb and the queue also if the push did a checkpoint, for other queues too. For many messages it has no size, or the size
    of all."""
    push(flatq, b"x", "zz")
    for request, said in ((b"push -l fresh\n1\n22\n333\n", ("push", "fresh", "ok", "6")), (b"pop -l -n 2 fresh\n", ("pop", "fresh", "ok", "-")),
                          (b"drain fresh\n", ("drain", "fresh", "ok", "-"))):
        assert handler(flatq, request)[1][:4] == said
    # each push opens a range of ids, and so does a checkpoint
    flatq.env["FLATQ_RANGE"] = "1"
    assert handler(flatq, b"push fresh\nhello")[1][:4] == ("push", "fresh", "ok", "5")


@pytest.mark.parametrize("name, put", [("beanstalk", b"put 0 0 60 1\r\nx\r\n"), ("small-stalk", b"put 0 60\r\nx\r\n")])
def test_puts_run_the_checkpoint(shell, flatq, name, put):
    """Under inetd no launch runs it, so a put that has opened a range of ids does. Afterwards the connection still has its job."""
    flatq.env["FLATQ_RANGE"] = "3"
    push(flatq, b"held")
    said = flatq(name, input=b"reserve\r\n" + put * 12 + b"delete 1\r\nquit\r\n", check=0).out.split(b"\r\n")
    assert said[0].startswith(b"RESERVED 1") and said[-2:] == [b"DELETED", b""] and b"UNKNOWN_COMMAND" not in said
    ranges = {int(line.split()[1]) // 1000 for line in said if line.startswith(b"INSERTED ")}
    assert len(list(flatq.spool.glob(".ids/*"))) < 3 < len(ranges)


@pytest.mark.parametrize("name, asked, said", [
    ("push", b"x", b"%d\n"), ("handler", b"push\nx", b"%d\n"), ("beanstalk", b"put 0 0 60 1\r\nx\r\nquit\r\n", b"INSERTED %d\r\n"),
    ("small-stalk", b"put 0 60\r\nx\r\nquit\r\n", b"INSERTED %d\r\n")])
def test_a_failed_checkpoint_changes_no_answer(shell, flatq, tmp_path, name, asked, said):
    """The push that opens a range of ids runs the checkpoint, here from a file that cannot be read to its end."""
    shutil.copytree(LIB, tmp_path / "lib")
    (tmp_path / "lib/engine/checkpoint.sh").write_text("# cut")
    flatq.env["FLATQ_RANGE"] = "1"
    push(flatq, b"x")
    done = flatq(f"{tmp_path}/lib/{name}", input=asked, check=0)
    assert done.out == said % 2000 and (b"cannot read" in done.err or name == "handler")


@pytest.mark.new
@pytest.mark.parametrize("name", ["handler", "beanstalk", "small-stalk", "http"])
def test_help_of_a_door(shell, flatq, name):
    done = flatq(name, "-h", check=0)
    assert done.out.startswith(name.encode() + b" - ") and b"\nExit: " in done.out and done.err == b""
    assert not flatq.spool.exists()


# ---- requests without a network


REFUSED = [
    (b"nothing\n", b"error 64 "),
    (b"pop", b"error 65 the line was cut"),
    (b"drop -f a", b"error 65 the line was cut"),
    (b"push -p\n", b"error 64 "),
    (b"push -x\nbody", b"error 64 "),
    (b"push a b\nbody", b"error 64 "),
    (b"push ../x\nbody", b"error 65 "),
    (b"push *\nbody", b"error 65 "),
    (b"push `id`\nbody", b"error 6"),
    (b"push -n 1e3 q\nbody", b"error 65 "),
    (b"push -n a[$(touch$IFS/tmp/flatq.x)] q\nbody", b"error 65 "),
    (b"push -n 5 q\nbody", b"error 65 only 4 of the 5 announced bytes came"),
    (b"pop -w -1\n", b"error 65 "),
    (b"pop -n 2\n", b"error 64 "),
    (b"work -- id\n", b"error 64 "),
    (b"doctor\n", b"error 64 "),
    (b"handler\n", b"error 64 "),
    (b"../lib/push q\nbody", b"error 64 "),
    (b"engine/common.sh\n", b"error 64 "),
    (b"push pop\tq\nbody", b"error 64 "),
    (b"delete x\n", b"error 65 "),
    (b"delete q:1.1.0123456789ab\n", b"error 66 "),
    (b"reserve q\n", b"error 66 nothing there"),
    (b"a" * 5000 + b"\n", b"error 65 line too long"),
    (b"push " + b"a" * 1_000_000 + b"\nbody", b"error 65 line too long"),
    (b"\xff\xfe\x01\n", b"error 64 "),
    (b"* \n", b"error 64 "),
]


def test_refused_lines(shell, flatq, spool):
    for request, begins in REFUSED:
        done, _ = handler(flatq, request)
        assert done.out.startswith(begins) and done.out.count(b"\n") == 1, (request[:80], done)
        assert done.status == int(begins[6:].split()[0].ljust(2, b"5")) or len(begins) < 9, (request[:80], done)
    assert not any(names for place, names in lies(spool, "q").items()), "a refused push leaves nothing"
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
    for verb in (b"stat", b"list", b"drain", b"pop -l"):
        assert handler(flatq, verb + b" nosuch\n")[0].out.startswith(b"" if b"pop" in verb else b"error 66 "), verb
    says(b"", b"")
    says(b"\n", b"")
    says(b"\r\n", b"")


def test_reserve_and_settle(shell, flatq):
    push(flatq, b"one\ntwo", "jobs")
    for verb in ("release", "bury -r bad", "delete"):
        done, log = handler(flatq, b"@reserve -t 60 jobs\n")
        receipt, number, tries, length = done.out.split(b"\n")[0].split()
        assert (number, length) == (b"1", b"7")
        assert done.out.split(b"\n", 1)[1] == b"one\ntwo\nok\n"
        assert log[:4] == ("reserve", "jobs", "ok", "7")
        word, *options = verb.encode().split()
        done, log = handler(flatq, b" ".join([b"@" + word, *options, receipt]) + b"\n")
        assert done.out == b"\nok\n"
        if word == b"bury":
            assert handler(flatq, b"kick jobs\n")[0].out == b"1\n"
    assert handler(flatq, b"delete " + receipt + b"\n")[0].out.startswith(b"error 66 ")
    empty(flatq, "jobs")


def test_the_log(shell, flatq):
    assert handler(flatq, b"push -d 0 jobs\nhello")[1][:4] == ("push", "jobs", "ok", "5")
    assert handler(flatq, b"@pop jobs\n")[1][:4] == ("pop", "jobs", "ok", "5")
    assert handler(flatq, b"pop jobs\n")[1][:4] == ("pop", "jobs", "empty", "-")
    assert handler(flatq, b"push ../x\n")[1][:3] == ("push", "-", "error-65")
    # the handler does not know the date without launch, nor before it has opened the spool
    assert re.fullmatch(rb"- - - error-64 - \d+\n", handler(flatq, b"x\n")[0].err)
    # the handler serves even if it cannot write its log
    done = subprocess.run(flatq.command("handler"), input=b"push jobs\nx", env=flatq.env, stdout=subprocess.PIPE,
                          stderr=open("/dev/full", "wb"), timeout=100)
    assert done.stdout == b"2\n"


@pytest.mark.parametrize("request_", ["push jobs\nx", "push -n 1 jobs\nx", "push -l jobs\nx\n", "pop jobs\n", "pop -l jobs\n", "reserve jobs\n", "stat jobs\n"],
                         ids=lambda text: text.split("\n")[0])
def test_a_handler_tells_the_guard_that_it_ends(shell, flatq, request_):
    """On descriptor 3, which the verb that it runs must leave alone. Else the guard takes the handler for killed, and ends the ncat that still passes the
    answer."""
    push(flatq, b"x", "jobs")
    done = subprocess.run(["sh", "-c", 'exec "$@" 3>guard', "sh", *flatq.command("handler", "launch", "", "1", "0")], input=request_.encode(), cwd=flatq.home,
                          env=flatq.environment(None), capture_output=True, timeout=60)
    told = (flatq.home / "guard").read_text().split("\n")
    number = next(line.split()[1] for line in told if line.startswith("c "))
    assert done.returncode == 0 and f"e {number}" in told, (done, told)


@pytest.mark.parametrize("verb, said, line", [
    ("handler", "push jobs\ny", 2), ("beanstalk", "use jobs\r\nput 0 0 60 1\r\ny\r\n", 2),
    ("http", "POST /queue?group-id=jobs HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\n\r\ny", 3),
    ("http", "GET /queue?group-id=jobs&wait=60 HTTP/1.1\r\nHost: q\r\n\r\n", 4),
], ids=["push", "put", "POST", "GET"])
def test_what_the_guard_cannot_be_told_is_not_done(flatq, verb, said, line):
    """If the `l` line is lost, the guard takes a long message for a long request line and writes its own error into the answer, or takes a waiting client
    for an idle one. So the door ends, and stores nothing."""
    words = [need("strace"), "-qq", "-o", "/dev/null", "-P", flatq.home / "guard", "-e", "trace=write", "-e", f"inject=write:error=ENOMEM:when={line}", "--"]
    done = subprocess.run(["sh", "-c", 'exec "$@" 3>guard', "sh", *words, *flatq.command(verb, "launch", "", "1", "0")], input=said.encode(), cwd=flatq.home,
                          env=flatq.environment(None), capture_output=True, timeout=30)
    assert done.returncode == 74 and b"INSERTED" not in done.stdout and b"200 OK" not in done.stdout, done
    assert "\ne " in (flatq.home / "guard").read_text() and flatq("list", "jobs").out == b""


@pytest.mark.shells
def test_no_error_line_stands_in_the_place_of_a_message(shell, flatq):
    """The body cannot be opened. Behind the first line, a client would take the error line for the message, and then delete the real one."""
    push(flatq, b"hello", "jobs")
    body = flatq.spool / "jobs/body/000000000001"
    words = [need("strace"), "-qq", "-f", "-o", "/dev/null", "-P", body, "-e", "trace=openat", "-e", "inject=openat:error=EIO:when=1", "--"]
    done = subprocess.run([*words, *flatq.command("handler")], input=b"reserve jobs\n", env=flatq.environment(None), capture_output=True, timeout=60)
    assert re.fullmatch(rb"error 74 [^\n]*\n", done.stdout) and flatq("list", "jobs").out.split()[1] == b"ready", done


@pytest.mark.shells
def test_what_a_drain_has_acknowledged_stays_settled_without_the_guard(shell, flatq):
    """The guard is gone as the client acknowledges the batch, which was put back."""
    for body in (b"one", b"two"):
        push(flatq, body, "jobs")
    os.mkfifo(flatq.home / "guard")
    guard = os.open(flatq.home / "guard", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(["sh", "-c", 'exec "$@" 3>guard', "sh", *flatq.command("handler", "launch", "", "1", "0")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=flatq.home, env=flatq.environment(None))
    flatq.started.append(process)
    process.stdin.write(b"@n1@drain -a jobs\n")
    process.stdin.flush()
    while process.stdout.readline() != b"n1 sent\n":
        pass
    os.close(guard)
    said, _ = process.communicate(b"ok\n", timeout=60)
    assert b"n1 ok" in said and flatq("list", "jobs").out == b"", said


@pytest.mark.parametrize("asked, said", [(b"push -n 5 jobs\nhello", rb"\d+\n\nn1 ok\n"), (b"list jobs\n", rb"1 ready .*\n\nn1 ok\n")], ids=["push", "list"])
def test_a_handler_that_a_signal_ends_says_no_ok(flatq, asked, said):
    """bash runs the trap of EXIT also then, with the status of its last command: a push that had stored nothing was answered `ok`."""
    flatq.shell, log = need("bash"), flatq.home / "calls"
    push(flatq, b"x", "jobs")

    def run(*inject):
        words = [need("strace"), "-qq", "-o", log, "-e", "trace=all", *inject, "--", *flatq.command("handler")]
        return subprocess.run(words, input=b"@n1@" + asked, env=flatq.env, capture_output=True, timeout=60).stdout

    assert re.fullmatch(said, run())
    for point in share(f"a signal {asked}", calls_in(log), 25):
        answer = run("-e", "inject={}:signal=TERM:when={}".format(*point))
        assert b"n1 ok" not in answer or re.fullmatch(said, answer), (point, answer)


@pytest.mark.parametrize("verb, said", [
    ("handler", "push jobs\ny\n"), ("handler", "push -l jobs\ny\n"), ("handler", "list\n"),
    ("http", "POST /queue?group-id=jobs HTTP/1.1\r\nHost: q\r\nContent-Length: 1\r\nConnection: close\r\n\r\ny"),
], ids=["push", "push -l", "list", "POST"])
def test_a_fork_that_fails_is_answered(flatq, verb, said):
    """dash ends at once where it cannot start a process, without a word of ours. (bash tries again, for half a minute.)"""
    log = flatq.home / "calls"
    first = 2 if verb == "http" else 1  # the HTTP door starts one before it is a door
    for number in itertools.count(first):
        push(flatq, b"x", "jobs")
        words = [need("strace"), "-f", "-qq", "-o", log, "-e", "trace=clone,clone3,fork,vfork", "-e", f"inject=clone,clone3,fork,vfork:error=EAGAIN:when={number}"]
        done = subprocess.run([*words, "--", *flatq.command(verb)], input=said.encode(), env=flatq.environment(None), capture_output=True, timeout=60)
        if "INJECTED" not in log.read_text():
            break
        assert done.returncode == 0 or re.fullmatch(rb"HTTP/1.1 500 [^\n]*(\r\n[^\r]+)*\r\n\r\n" if verb == "http" else rb"error \d+ .+\n", done.stdout), (number, done)
    assert number > first and done.returncode == 0


def test_a_message_that_cannot_be_answered_with_is_back(shell, flatq, honest):
    """Standard output is closed, or breaks in the middle of the message."""
    push(flatq, b"x" * 300_000, "jobs")
    for verb in ("pop", "reserve", "@pop", "pop -l"):
        process = flatq.start("handler", stdin=subprocess.PIPE)
        process.stdin.write(f"{verb} jobs\n".encode())
        process.stdin.flush()
        process.stdout.read(1)
        process.stdout.close()
        process.stdin.close()
        assert process.wait(60) == 74
        assert LOG.fullmatch(process.stderr.read().decode().splitlines()[-1])[3] == "error-74"
    assert pop(flatq, "jobs") == b"x" * 300_000


@pytest.mark.parametrize("verb, asked, said", [
    *(("handler", request, rb"error 75 a large answer to a client that sends no more needs perl or python3 here\n")
      for request in (b"list jobs\n", b"stat\n", b"drain jobs\n", b"pop -l jobs\n", b"pop jobs\n")), ("handler", b"@n1@list jobs\n", rb"1 ready .*\n\nn1 ok\n"),
    ("beanstalk", b"put 0 0 60 20000\r\n%b\r\nreserve\r\n" % (b"x" * 20_000), rb"INSERTED 2\r\n"),
], ids=["list", "stat", "drain", "pop -l", "pop", "@list", "beanstalk"])
def test_an_answer_that_may_be_cut_is_not_begun(shell, flatq, stub, verb, asked, said):
    """The client sends no more, so its ncat has ended. Nothing can make its connection blocking. The door once said so to nobody, and went on."""
    for name in ("perl", "python3"):
        stub(name, "exit 127")
    push(flatq, b"x" * 300_000, "jobs")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        with listener.accept()[0] as ours:
            ours.setblocking(False)
            subprocess.run(["sh", "-c", 'exec "$@" 3>guard 4>&1 >/dev/null', "sh", *flatq.command(verb, "launch", "d", "1", "0")], input=asked, cwd=flatq.home,
                           env=flatq.environment(None), stdout=ours, stderr=subprocess.DEVNULL, timeout=60)
        assert re.fullmatch(said, answer(client))
    assert b"1 ready 65536 " in flatq("list", "jobs", check=0).out


@pytest.mark.parametrize("words, said", [
    (["handler"], b"error 70 "), (["door"], b"error 70 "), (["http"], b"HTTP/1.1 500 "), (["beanstalk"], b"INTERNAL_ERROR\r\n"), (["small-stalk"], b"INTERNAL_ERROR\r\n"),
    (["./launch", "-p", "1"], b""),
], ids=lambda value: value[0] if isinstance(value, list) else "")
def test_yash_serves_no_door(flatq, words, said):
    """If it could not save its output for a redirection, it never goes back to the client, and writes on (R12): a pop wrote its message into the pipe to the
    guard, a drain to /dev/null, and both settled what they had written. A variable of yash in another shell changes nothing."""
    push(flatq, b"precious", "jobs")
    flatq.env.update(SSH_ORIGINAL_COMMAND="pop jobs", YASH_VERSION="2")
    assert flatq("handler", input=b"peek jobs\n", check=0).out == b"precious"
    verb, *options = words
    done = subprocess.run([need("yash"), ROOT / verb if "/" in verb else LIB / verb, *options], input=b"pop jobs\n", env=flatq.environment(None), capture_output=True, timeout=60)
    assert done.returncode == 70 and done.stdout.startswith(said) and b"precious" not in done.stdout, done
    assert b"yash serves no door" in done.stdout + done.stderr and (done.stdout + done.stderr).count(b"yash serves") == 1
    assert pop(flatq, "jobs") == b"precious"


@pytest.mark.parametrize("shell", ["yash"], indirect=True)
def test_launch_does_not_start_if_its_handlers_would_run_under_yash(flatq):
    """They run under the `sh` of PATH; launch itself runs under dash here."""
    done = flatq("./launch", "-p", "1")
    assert done.status == 70 and re.fullmatch(rb"launch: yash serves no door, .*\n", done.err), done


def each(flatq, call, asked, said):
    """(number, the line door's end) where a call of its own fails with EMFILE whose line in strace's output holds `said`: the first, then the second, and so
    on. home/guard has what it has told the guard."""
    log = flatq.home / "calls"

    def run(*inject):
        words = [need("strace"), "-qq", "-o", log, "-e", f"trace={call}", "-e", "signal=none", *inject, "--", *flatq.command("handler", "launch", "d", "1", "0")]
        return subprocess.run(["sh", "-c", 'exec "$@" 3>guard', "sh", *words], input=asked, env=flatq.environment(None), cwd=flatq.home, capture_output=True, timeout=60)

    run()
    flatq("drain", "jobs")
    numbers = [number for number, line in enumerate(log.read_text().splitlines(), 1) if said in line]
    assert len(numbers) > 2
    for number in numbers:
        yield number, run("-e", f"inject={call}:error=EMFILE:when={number}")


def test_a_door_stays_a_door(shell, flatq):
    """/dev/null cannot be opened: once, a second reading of common.sh then made a plain verb of the door, which answered nothing; or the last line was not
    written."""
    def unread(done):
        """bash reads one of our files before it is a door; one that could not tell the guard of itself refuses the connection; and it may fail before it has
        read the request."""
        return not done.stdout and (b"cannot read" in done.stderr or done.returncode == 75) or done.stdout == b"error 74 cannot read which process this is\n"

    for number, done in each(flatq, "openat", b"@n1@peek nosuch\n", '"/dev/null"'):
        assert re.fullmatch(rb"\nn1 error \d+ .+\n", done.stdout) or unread(done), (number, done)
    push(flatq, b"precious", "jobs")
    for number, done in each(flatq, "openat", b"@n1@pop jobs\n", '"/dev/null"'):
        assert re.fullmatch(rb"(precious)?\nn1 (ok|error \d+ .+)\n", done.stdout) or unread(done), (number, done)
        flatq("push", "jobs", input=b"precious", check=0)


def test_a_door_that_was_not_opened_serves_nothing(shell, flatq):
    """A shell cannot save a descriptor. mksh then leaves the function (R12): once, door_open, before it had found the client and set the traps; the door went
    on."""
    for number, done in each(flatq, "fcntl", b"push jobs\nmessage", "F_DUPFD"):
        told = (flatq.home / "guard").read_bytes()
        assert not flatq("pop", "jobs").out or done.returncode or b"\nc " in told and (b"\ne " in told or b" push jobs " in done.stderr), (number, done)


# ---- sessions


@BOTH
def test_the_articles_session(shell, door, mode):
    one = door(mode)
    assert one.ask(b"pop\n") == b""
    assert one.ask(b"push\npackage 1\n") == b"1\n"
    assert one.ask(b"push\npackage 2\n") == b"2\n"
    assert one.ask(b"pop\n") == b"package 1\n"
    assert one.ask(b"pop\n", half_close=False) == b"package 2\n"
    assert one.ask(b"pop\n", half_close=False) == b""
    assert [line[:4] for line in one.log(6)] == [
        ("pop", "default", "empty", "-"), ("push", "default", "ok", "10"), ("push", "default", "ok", "10"),
        ("pop", "default", "ok", "10"), ("pop", "default", "ok", "10"), ("pop", "default", "empty", "-"),
    ]
    assert [line for line in one.said().splitlines() if not LOG.fullmatch(line)] == [f"launch: line door on 127.0.0.1 port {one.port}"]


CLIENTS = {
    "ncat": ("ncat", "printf '%b' '{}' | ncat 127.0.0.1 {}"),
    "ncat --no-shutdown": ("ncat", "printf '%b' '{}' | ncat --no-shutdown 127.0.0.1 {}"),
    "nc -N": ("nc.openbsd", "printf '%b' '{}' | nc.openbsd -N 127.0.0.1 {}"),
    "socat": ("socat", "printf '%b' '{}' | socat -t 10 - TCP:127.0.0.1:{}"),
    "bash": ("bash", "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{1} && printf %b \"{0}\" >&3 && cat <&3'"),
}


@BOTH
@pytest.mark.parametrize("client", CLIENTS)
def test_clients(door, flatq, mode, client):
    program, line = CLIENTS[client]
    need(program)
    one = door(mode)

    def say(request):
        wait_for(lambda: listening(one.port), "the next round")
        done = subprocess.run(["sh", "-c", line.format(request, one.port)], capture_output=True, timeout=100)
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


@BOTH
def test_a_large_answer_to_a_slow_client(door, flatq, mode):
    """ncat leaves the connection in non-blocking mode: writing more than it takes at once must not fail. And a client that reads slowly is not
    idle, although the handler ended long ago."""
    body = os.urandom(8_000_000)
    one = door(mode, "-i", "1")
    push(flatq, body)
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
    assert one.ask(b"pop\n") == body


@BOTH
def test_a_large_body(door, flatq, mode):
    body = os.urandom(3_000_000)
    one = door(mode)
    assert one.ask(b"push jobs\n" + body) == b"1\n"
    assert one.ask(b"push -n %d jobs\n" % len(body) + body, half_close=False) == b"2\n"
    assert pop(flatq, "jobs") == body and pop(flatq, "jobs") == body


# ---- clients that go wrong: those of crashlab/families/clients.py, and these


def test_a_line_of_20_megabytes(shell, door):
    one = door("-k")
    with one.connect() as client:
        client.settimeout(30)
        try:
            client.sendall(b"a" * 20_000_000 + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert answer(client) in (b"error 65 line too long\n", b""), "who sends on is reset, and may miss it"
    assert one.ask(b"push\nx") == b"1\n"
    assert {line[2] for line in one.log(2)} & {"line-too-long", "error-65"}
    # this request does not open the spool, so launch tells the handler the date
    assert one.ask(b"nothing\n").startswith(b"error 64 ") and one.log(3)[-1][2] == "error-64"


# ---- several connections at once


def test_the_limit_of_connections(door):
    one = door("-k", "-m", "2", "-i", "0")
    # ncat does not count them among its connections, since they send no more
    waiting = []
    for _ in range(2):
        waiting.append(one.connect())
        waiting[-1].sendall(b"pop -w 60\n")
        waiting[-1].shutdown(socket.SHUT_WR)
    wait_for(lambda: len(lies(one.spool).get("wait", [])) == 2, "two clients that wait")
    with one.connect() as third:
        assert answer(third) == b"error 75 busy: too many connections, try again later\n"
    # an old ncat passes no answer on to a client that sends no more; and a client that is quicker than the guard is served
    assert one.ask(b"push\nx") in (b"", b"error 75 busy: too many connections, try again later\n", b"1\n")
    for client in waiting:
        client.close()


def test_a_waiting_pop(shell, door, flatq):
    """It gets a message that another client pushes. It is not idle, although nothing happens for longer than the idle limit."""
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


def test_in_the_loop_nobody_waits(shell, door):
    one = door()
    assert one.ask(b"pop -w 6000 jobs\n") == b""
    assert one.ask(b"@reserve -w 6000 -t 5 jobs other\n") == b"\nerror 66 nothing there\n"
    assert one.ask(b"push -w6000 -p 3 jobs\nx") == b"1\n"
    assert one.said().count("one connection at a time: -w 6000 is taken as -w 0\n") == 3


@BOTH
def test_limits_of_size(door, mode):
    one = door(mode, "-z", "10")
    assert one.ask(b"push\n0123456789") == b"1\n"
    assert one.ask(b"push\n0123456789a").startswith(b"error 65 ")
    assert one.ask(b"push -n 11\n0123456789a").startswith(b"error 65 ")
    assert one.ask(b"push -n 10\n0123456789a").strip().isdigit()
    for option, end in ((b"-l", b"\n"), (b"-0", b"\0")):
        text = b"short" + end + b"0123456789a" + end
        assert one.ask(b"push " + option + b" many\n" + text).startswith(b"error 65 ")
        assert one.ask(b"push -n %d " % len(text) + option + b" many\n" + text).startswith(b"error 65 ")
        assert one.ask(b"push " + option + b" many\nshort" + end + b"0123456789").count(b" ") == 1
    assert one.ask(b"pop -n 9 -l many\n") == b"short\n0123456789\n" * 2
    assert one.ask(b"pop\n") + one.ask(b"pop\n") == b"01234567890123456789"


@BOTH
def test_the_checkpoint_runs_beside_it(door, flatq, spool, mode):
    one = door(mode)
    for _ in range(3):
        push(flatq, b"x")
    assert [one.ask(b"pop\n") for _ in range(3)] == [b"x"] * 3
    wait_for(lambda: not lies(spool).get("done") and not lies(spool).get("body"), "the sweep of what is settled")


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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_signals(shell, door, flatq, spool, mode, number):
    one = door(mode)
    clients = busy(one)
    one.process.send_signal(number)
    assert one.ended() in (-number, 128 + number)
    empty(flatq, "jobs")
    for client in clients:
        client.close()


def named(spool, word):
    return [pid for pid, command in carriers(spool).items() if word in command]


@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
def test_a_signal_as_ncat_ends(flatq, stub):
    """bash forgets a child that ends just when a signal interrupts the wait for it. launch must not wait for that child forever."""
    stub("ncat", 'kill -TERM "$PPID"')
    for _ in range(8):
        process = flatq.start("./launch", stdin=subprocess.DEVNULL)
        try:
            assert process.wait(60) == -signal.SIGTERM
        finally:
            flatq.end(process)


@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
@pytest.mark.parametrize("step", ["  # A signal to our group", "  launch_guard=$!", "  close_descriptor 5", "  launch_seconds=$!", "  trap - EXIT",
                                  "  launch_ncat=$!", '  [ -e "$FLATQ_PROC/self/stat" ] || printf'])
def test_a_signal_before_all_is_started_or_noted(flatq, stub, tmp_path, step):
    """The signal comes when a process has been started, but before launch has noted its number, or just after that. Without traps, it once left the guard and
    its directory for ever."""
    shutil.copytree(LIB, tmp_path / "lib")
    text = (ROOT / "launch").read_text()
    (tmp_path / "launch").write_text(text.replace(f"\n{step}", f"\n  kill -TERM $$\n{step}", 1))
    assert text.count(f"\n{step}") == 1
    stub("ncat", "exec sleep 77")
    (tmp_path / "temporary").mkdir()
    flatq.env["TMPDIR"] = str(tmp_path / "temporary")
    process = flatq.start(f"{tmp_path}/launch", stdin=subprocess.DEVNULL)
    assert process.wait(60) == -signal.SIGTERM and process.stderr.read() == b""
    assert "sleep 77" not in [command.strip() for command in carriers(flatq.spool).values()]
    all_gone(flatq.spool)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("step", ["  launch_guard=$!", "  close_descriptor 5", "  launch_seconds=$!", "  trap - EXIT"])
def test_a_launch_that_is_killed_as_it_starts_leaves_nobody(shell, flatq, tmp_path, step):
    """Nobody tells the guard the seconds yet. It used to hold the writing end of its own input, and so waited for ever."""
    shutil.copytree(LIB, tmp_path / "lib")
    text = (ROOT / "launch").read_text()
    (tmp_path / "launch").write_text(text.replace(f"\n{step}", f"\n  kill -KILL $$\n{step}", 1))
    process = flatq.start(f"{tmp_path}/launch", stdin=subprocess.DEVNULL)
    assert process.wait(60) == -signal.SIGKILL
    all_gone(flatq.spool)


def test_a_launch_without_output_answers(flatq, free_port):
    """ncat's pipe to a handler once got the number of the closed output, and no client an answer."""
    push(flatq, b"x")
    process = subprocess.Popen(["sh", "-c", 'exec "$@" >&-', "sh", *flatq.command("./launch", "-k", "-p", str(free_port))], env=flatq.environment(None),
                               cwd=flatq.home, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flatq.started.append(process)
    assert ask(free_port, b"pop\n") == b"x"
    assert not end_launches(flatq.spool, process)


def test_a_failed_look_does_not_take_ncat_for_missing(shell, flatq, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        launch = flatq.command("./launch", "-p", str(other.getsockname()[1]))
        for number in range(1, 12):
            done = subprocess.run([need("strace"), "-qq", "-o", tmp_path / "log", "-P", "/dev/null", "-e", "trace=openat", "-e",
                                   f"inject=openat:error=EMFILE:when={number}", "--", *launch],
                                  env=flatq.environment(None), cwd=flatq.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
            assert b"missing" not in done.stderr and done.returncode != 69, (number, done)


FORKS = "clone,clone3,fork,vfork"


@pytest.mark.parametrize("shell", ["dash", pytest.param("mksh", marks=pytest.mark.full), "busybox"], indirect=True)
def test_a_launch_that_cannot_start_a_process_ends(flatq, tmp_path):
    """At each of its own forks. (bash tries again, for half a minute, and mksh for some seconds.)"""
    flatq("create", check=0)
    (tmp_path / "temporary").mkdir()
    flatq.env["TMPDIR"] = str(tmp_path / "temporary")
    for number in itertools.count(1):
        port = free()
        process = subprocess.Popen(
            [need("strace"), "-D", "-qq", "-o", tmp_path / "log", "-e", f"trace={FORKS}", "-e", f"inject={FORKS}:error=EAGAIN:when={number}", "--",
             *flatq.command("./launch", "line", "-k", "-p", str(port))], env=flatq.environment(None), cwd=flatq.home, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        flatq.started.append(process)
        wait_for(lambda: process.poll() is not None or listening(port), "an end, or the door")
        if process.poll() is None:
            # It does without some, such as setpriv
            process.terminate()
            served = process.wait(20)
            assert served in (-signal.SIGTERM, 143)
        else:
            served = None
            assert process.returncode > 0
        all_gone(flatq.spool)
        assert list((tmp_path / "temporary").iterdir()) == []
        if "INJECTED" not in (tmp_path / "log").read_text():
            break


@pytest.mark.parametrize("shell", ["dash", pytest.param("mksh", marks=pytest.mark.full), "busybox"], indirect=True)
def test_a_door_whose_clock_cannot_be_started_ends(flatq, tmp_path):
    """Only seconds_kept fails to start its child, behind twenty other forks. launch used to go on without it."""
    shutil.copytree(LIB, tmp_path / "lib")
    text = (ROOT / "launch").read_text()
    assert text.count("\n  seconds &\n") == 1
    (tmp_path / "launch").write_text(text.replace("\n  seconds &\n", "\n  n=0; while [ $n -lt 20 ]; do (exit 0); n=$((n + 1)); done\n  seconds &\n"))
    port = free()
    process = subprocess.Popen(
        [need("strace"), "-D", "-f", "-qq", "-o", tmp_path / "log", "-e", f"trace={FORKS}", "-e", f"inject={FORKS}:error=EAGAIN:when=21+", "--",
         *flatq.command(f"{tmp_path}/launch", "line", "-k", "-p", str(port))], env=flatq.environment(None), cwd=flatq.home, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flatq.started.append(process)
    assert process.wait(60) in (-signal.SIGTERM, 143)
    all_gone(flatq.spool)
    assert "INJECTED" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("stopped", ["the keeper", "the clock"])
def test_a_stopped_clock_does_not_keep_launch(shell, flatq, free_port, stopped):
    """launch ends the process that tells the seconds, and the one that keeps it, even if somebody has stopped them."""
    process = flatq.start("./launch", "line", "-k", "-p", str(free_port))
    connect(free_port).close()

    def clock():
        return next(([keeper, teller] for keeper in children(process.pid) for teller in children(keeper)
                     if any(command_of(sleeper) == "sleep" for sleeper in children(teller))), None)

    os.kill(wait_for(clock, "the clock")[stopped == "the clock"], signal.SIGSTOP)
    process.terminate()
    process.wait(20)
    all_gone(flatq.spool)


def test_an_ncat_that_cannot_be_run_is_not_tried_for_ever(shell, flatq, stub):
    """It was removed, or its library. launch used to try again at full speed."""
    for code in (126, 127):
        stub("ncat", f"exit {code}")
        assert flatq("./launch", check=69, timeout=20).out == b""


@BOTH
@pytest.mark.parametrize("whom", ["launch", "ncat", "guard", "handler"])
def test_kill(shell, door, flatq, spool, mode, whom):
    one = door(mode)
    clients = busy(one)
    launches = [pid for pid in named(spool, "/launch ")]
    children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text().split()
    guard = [pid for pid in launches if str(pid) in children]
    ncats = [pid for pid in named(spool, "ncat ") if str(pid) in children]
    shells = named(spool, "lib/handler")  # also those of a `$( )`, which may end at any time
    target = {
        "launch": one.process.pid, "ncat": ncats[0], "handler": next(pid for pid in shells if parent(pid) not in shells),
        # launch starts the guard first
        "guard": guard[0],
    }[whom]
    os.kill(target, signal.SIGKILL)
    if whom == "handler" or (whom, mode) == ("ncat", "loop"):
        # the door still serves
        assert one.ask(b"push -n 1 other\nx").strip().isdigit()
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(60)
    all_gone(spool)
    assert not listening(one.port)
    one.process.wait(60)
    if whom == "launch":
        again = Door(flatq, *(["-k"] if mode == "-k" else []), port=one.port)
        again.process.terminate()
        again.ended()
    for client in clients:
        client.close()
    assert not lies(spool, "jobs").get("wal"), "half a message"


def ncat_above(pid):
    """The ncat that serves the connection of this process."""
    while command_of(pid) != "ncat":
        pid = parent(pid)
    return pid


def guard_of(one):
    """launch starts the guard first."""
    return children(one.process.pid)[0]


class Guard:
    """The guard of a door: the test tells it the seconds, and nobody else does (untold)."""

    def __init__(self, one):
        self.pid, self.pipe = guard_of(one), pipe_into(guard_of(one))

    def is_told(self, seconds=1):
        os.write(self.pipe, b"\nt\n" * seconds)

    def has_read(self):
        """Whether it has read all that was written to it."""
        return fcntl.ioctl(self.pipe, termios.FIONREAD, b"\0" * 4) == b"\0" * 4


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
    """The guard was held up for a minute. It then reads all seconds of that at once, and nobody was idle meanwhile."""
    one, guard = untold("-k", "-i", "10")
    with one.connect() as client:
        client.sendall(b"push -n 5 jobs\nhel")
        wait_for(lambda: any((one.spool / "jobs/body").glob("*")), "the push to begin")
        guard.is_told(60)
        wait_for(guard.has_read, "the guard has read them")
        assert one.ask(b"push jobs\nx").strip().isdigit()
        client.sendall(b"lo")
        assert answer(client).strip().isdigit()


def test_a_second_right_after_a_refusal(untold):
    """The client that is refused has its answer, although the guard looks at its connection at once, before its handler was able to say it."""
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
            wait_for(guard.has_read, "the guard has read that")
            # an empty line says nothing, and is read behind the look
            os.write(guard.pipe, b"\n")
            wait_for(guard.has_read, "the guard has looked")
            os.kill(handler, signal.SIGCONT)
            assert answer(second) == b"error 75 busy: too many connections, try again later\n"


def test_a_second_just_before_the_line_is_known(untold, flatq, stub, tmp_path):
    """The guard looks at a handler that has read a large message, and has not yet read that the handler has its line."""
    hold, held = tmp_path / "hold", tmp_path / "held"
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
        wait_for(guard.has_read, "the guard has read all")
        hold.unlink()
        assert answer(client).strip().isdigit()


def test_a_second_just_before_the_end_is_known(untold, flatq, stub, tmp_path):
    """The guard looks at a handler that has ended, and has not yet read that it has. Under TLS ncat still has the answer to pass on, and is left alone."""
    hold, held = tmp_path / "hold", tmp_path / "held"
    stub("base64", f'while [ -e "{hold}" ]; do echo $$ >"{held}.new"; mv "{held}.new" "{held}"; sleep 0.05; done; exec "$REAL" "$@"')
    body = os.urandom(60_000)  # less than a pipe holds
    push(flatq, body, "jobs")
    options, context = certified(tmp_path)
    one, guard = untold("-k", "--", *options)
    hold.touch()
    with context.wrap_socket(one.connect()) as client:
        client.sendall(b"pop jobs\n")
        wait_for(held.exists, "the handler has the message")
        ncat = ncat_above(int(held.read_text()))
        wait_for(guard.has_read, "the guard knows the verb")
        kill([guard.pid, ncat], signal.SIGSTOP)
        guard.is_told()
        hold.unlink()
        wait_for(lambda: not one.handlers(), "the handler has ended")
        os.kill(guard.pid, signal.SIGCONT)
        wait_for(guard.has_read, "the guard has read all")
        os.kill(ncat, signal.SIGCONT)
        assert answer(client) == body


@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
def test_a_killed_checkpoint_is_not_the_last(door, flatq, spool):
    """The process that runs the checkpoint for the guard is killed, so it never tells the guard that the checkpoint has ended."""
    push(flatq, b"first")
    pop(flatq)
    with (spool / "default/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the checkpoint waits for it
        one = door("-k")
        guard = guard_of(one)
        runner = wait_for(lambda: [pid for pid in children(guard) if set(children(pid)) & set(named(spool, "lib/wal"))], "a checkpoint")[0]
        os.kill(runner, signal.SIGKILL)
        wait_for(lambda: runner not in children(guard), "the guard has noticed that")
    wait_for(lambda: not named(spool, "lib/wal") and not lies(spool).get("done"), "the end of what it ran")
    push(flatq, b"second")
    assert one.ask(b"pop\n") == b"second"
    wait_for(lambda: not lies(spool).get("done"), "another checkpoint")


@pytest.mark.parametrize("shell", ["dash", "bash"], indirect=True)
def test_a_stopped_guard_goes_on(door):
    one = door("-k")
    stop_and_fill(guard_of(one))
    assert one.ask(b"push\nx") == b"1\n"
    stop_and_fill(guard_of(one))
    one.process.terminate()
    assert one.ended() in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize("size, killed", [(9000, True), (9000, False), (8949, True), (8950, False)])
def test_ncat_is_killed_with_bytes_in_its_memory(door, flatq, stub, tmp_path, size, killed):
    """The client sends all and half-closes. ncat has read all, and waits in a write to the full pipe, since the handler is slow. The sizes: an exit code
    has eight bits, and with the line before it and the end, the system counts 35 times 256 bytes, and one more."""
    body = b"x" * size
    held, free_to_read = tmp_path / "held", tmp_path / "go"
    stub("base64", f'echo $$ >"{held}.new"; mv "{held}.new" "{held}"; while [ ! -e "{free_to_read}" ]; do sleep 0.05; done; exec "$REAL" "$@"')
    one = door("-k")
    with one.connect() as client:
        client.sendall(b"push jobs\n")
        wait_for(held.exists, "the handler's reader")
        ncat = ncat_above(int(held.read_text()))
        # shrink the pipe, so that one of ncat's reads fills it
        pipe = os.open(f"/proc/{held.read_text().strip()}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 8192)
        os.close(pipe)
        os.kill(ncat, signal.SIGSTOP)
        client.sendall(body)
        client.shutdown(socket.SHUT_WR)

        def unread():
            table = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return [int(row[4][9:], 16) for row in table if row[1].endswith(f":{one.port:04X}") and row[3] == "08"]
        wait_for(lambda: unread() == [len(body) + 1], "all that the client sent")
        os.kill(ncat, signal.SIGCONT)
        wait_for(lambda: unread() == [0] and "pipe_write" in Path(f"/proc/{ncat}/wchan").read_text(), "ncat in its write")
        if killed:
            os.kill(ncat, signal.SIGKILL)
            wait_for(lambda: not Path(f"/proc/{ncat}").exists(), "the end of ncat")
        free_to_read.touch()
        said = answer(client)
    if killed:
        assert said.startswith(b"error 65 ") and not lies(flatq.spool, "jobs").get("wal")
    else:
        assert said == b"1\n"


def test_the_dot_is_the_end_whatever_becomes_of_the_connection(door, flatq, stub, tmp_path):
    """ncat ends once the client half-closes, which a client of `push -e` may do at any time after its dot. Between the two looks of door_whole, at the
    connection and at ncat, that was `the client was cut off`. Here ncat is killed there, so that the looks can only fail."""
    held, go_on = tmp_path / "held", tmp_path / "go"
    stub("base64", f'"$REAL" "$@"; code=$?; echo $$ >"{held}.new"; mv "{held}.new" "{held}"; while [ ! -e "{go_on}" ]; do sleep 0.05; done; exit $code')
    one = door("-k")
    with one.connect() as client:
        client.sendall(b"push -e jobs\nhello\n.\n")
        wait_for(held.exists, "the message is read")
        ncat = ncat_above(int(held.read_text()))
        os.kill(ncat, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{ncat}").exists(), "the end of ncat")
        go_on.touch()
        assert answer(client) == b"1\n"
    assert pop(flatq, "jobs") == b"hello\n"


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


@pytest.mark.parametrize("state, flags, parent, lives", [
    ("S", 4194304, "$PPID", 0), ("S", 4194308, "$PPID", 1), ("R", 4194572, "$PPID", 1), ("Z", 4194316, "$PPID", 1), ("S", 4194304, "1", 1)])
def test_an_ncat_that_is_just_dying(shell, tmp_path, state, flags, parent, lives):
    """The kernel closes the files of a dying ncat before it is a zombie. A push whose input ends then was cut off. So it was if the handler has
    another parent: then its ncat has ended, and another connection's ncat has that number now."""
    script = """lib=$1 FLATQ_PROC=$2
        mkdir -p "$FLATQ_PROC/$PPID" && printf '%s\\n' "$PPID (ncat) $3 1 2 3 0 -1 $4 100 0 0" >"$FLATQ_PROC/$PPID/stat"
        mkdir -p "$FLATQ_PROC/$$" && printf '%s\\n' "$$ (sh) S PARENT 2 3 0 -1 4194304 100 0 0" >"$FLATQ_PROC/$$/stat"
        . "$lib/engine/common.sh"; need doors/door; FLATQ_GUARD=1; door_ncat_lives""".replace("PARENT", parent)
    done = subprocess.run([shell, "-c", script, "-", LIB, tmp_path / "proc", state, str(flags)], capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (lives, b"")


@BOTH
def test_a_port_in_use(shell, flatq, free_port, mode):
    need("ncat")
    with socket.create_server(("127.0.0.1", free_port)):  # also if a connection of another test still waits for its end there
        done = flatq("./launch", "-p", str(free_port), *([mode] if mode == "-k" else []), timeout=100)
    assert (done.status, done.out) == (75, b"")
    assert done.err == b"launch: port %d of 127.0.0.1 is in use\n" % free_port
    all_gone(flatq.spool)


@pytest.mark.parametrize("args, status", [
    (["-p", "0"], 65), (["-p", "65536"], 65), (["-p", "08x"], 65), (["-l", "-x"], 65), (["-l", "a b"], 65), (["-m", "0"], 65),
    (["-i", "-1"], 65), (["-z", "1e3"], 65), (["-x"], 64), (["-p"], 64), (["http2"], 64), (["-l", "300.0.0.1"], 69),
    (["--", "--no-such-option"], 69),
])
def test_options_refused(shell, flatq, args, status):
    need("ncat")
    done = flatq("./launch", *args, timeout=100)
    assert (done.status, done.out) == (status, b""), done
    assert done.err.startswith(b"launch: ") and done.err.count(b"\n") <= (1 if status != 69 else 9), done


@pytest.mark.parametrize("name, port, most", [("line", 1234, ""), ("beanstalk", 11300, "2147483646"), ("small-stalk", 6969, "2147483646"),
                                              ("http", 5000, "2147483646")])
def test_defaults(flatq, stub, name, port, most):
    """This ncat only prints where it should listen, and which size the door is to refuse: by default, and with `-z 0`, for which there is no
    limit."""
    said = flatq.home / "said"
    stub("ncat", f'printf "%s\\n" "$*" "$FLATQ_MOST_BYTES" "$FLATQ_HANDLER" >{said}\nexit 2')
    for args, limit in (((), ""), (("-z", "0"), most), (("-z", "00"), most), (("-z", "10"), "10")):
        flatq("./launch", name, *args, timeout=20)
        words, bytes_, handler = said.read_text().splitlines()[-3:]
        assert words.endswith(f" 127.0.0.1 {port}"), words
        assert (bytes_, os.path.basename(handler)) == (limit, "handler" if name == "line" else name)


def test_help(shell, flatq):
    assert flatq("./launch", "-h", check=0).out.startswith(b"launch [-k] [-p PORT]")


# ---- several doors of one launch


@pytest.fixture
def several(flatq, tmp_path):
    """several(NAME=PORT, ...) starts `./launch` with a door each, and beanstalk on a Unix socket too. All of it ends with the test."""
    errors = tmp_path / "several"

    def start(*words, up=()):
        need("ncat")
        with errors.open("wb") as log:
            process = flatq.start("./launch", *words, stdin=subprocess.DEVNULL, stderr=log)
        wait_for(lambda: process.poll() is not None or all(map(listening, up)), "the doors")
        process.said = errors.read_text
        return process

    yield start
    for process in flatq.started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
    all_gone(flatq.spool)


def speak(address, request, until):
    with socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(address)
        client.sendall(request)
        said = b""
        while not said.endswith(until):
            piece = client.recv(65536)
            assert piece, said
            said += piece
        return said


def sleeper(pid):
    return next((child for child in children(pid) if command_of(child) == "sleep"), None)


def test_a_socket_in_the_file_system(flatq, spool, tmp_path):
    """The kernel's tables do not list a Unix socket. So what the door wrote to it counts as received, and its input ends in good order only if the
    client ended it."""
    need("ncat")
    path = tmp_path / "socket"
    launch = flatq.start("./launch", "-k", "-l", f"unix:{path}", stdin=subprocess.DEVNULL)

    def begin(request):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        wait_for(lambda: client.connect_ex(str(path)) == 0, "the door to listen")
        client.sendall(request)
        return client

    def say(request):
        with begin(request) as client:
            client.shutdown(socket.SHUT_WR)
            return answer(client)

    try:
        assert say(b"push jobs\nhello") == b"1\n"
        assert say(b"pop jobs\n") == b"hello" and say(b"pop jobs\n") == b""
        with begin(b"pop -w 60 jobs\n") as client:
            client.shutdown(socket.SHUT_WR)
            handler = wait_for(lambda: named(spool, "lib/handler"), "the handler")[0]
            # the waiter looks for its client every two seconds, between two sleepers, and must not give up
            first = wait_for(lambda: sleeper(handler), "it sleeps")
            wait_for(lambda: sleeper(handler) not in (None, first), "it sleeps again")
            assert select.select([client], [], [], 0)[0] == []
            push(flatq, b"at last", "jobs")
            assert answer(client) == b"at last"
        with begin(b"pop -w 60 jobs\n"):
            wait_for(lambda: list(spool.glob("jobs/wait/*")), "it to wait")
        wait_for(lambda: not list(spool.glob("jobs/wait/*")), "it to see that its client is gone", 20)
        wait_for(lambda: not named(spool, "lib/handler"), "its handler to end")
        with begin(b"push jobs\n" + b"half") as client:
            handler = wait_for(lambda: named(spool, "lib/handler"), "the handler")[0]
            wait_for(lambda: list(spool.glob("jobs/body/*")), "the push to begin")
            with open(f"/proc/{handler}/stat") as status:
                os.kill(int(status.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            # The handler may have answered, and closed the connection, before this
            with contextlib.suppress(BrokenPipeError):
                client.sendall(b"the other half")
                client.shutdown(socket.SHUT_WR)
            assert answer(client) == b"error 65 the client was cut off\n"
        empty(flatq, "jobs")
    finally:
        flatq.end(launch)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_several_doors(several, flatq, tmp_path, number):
    line, http, path = free(), free(), tmp_path / "stalk"
    process = several("-k", "line", "-p", str(line), "beanstalk", "-l", f"unix:{path}", "-z", "10", "http", "-p", str(http), up=(line, http))
    wait_for(lambda: process.said().count(" door on ") == 3, "three doors")
    assert speak(str(path), b"use jobs\r\nput 0 0 60 5\r\nhello\r\nput 0 0 60 11\r\nhello world\r\n", b"TOO_BIG\r\n").count(b"INSERTED 1\r\n") == 1
    assert speak(("127.0.0.1", http), b"GET /queue HTTP/1.1\r\nHost: x\r\n\r\n", b"hello").startswith(b"HTTP/1.1 200 ")
    assert speak(("127.0.0.1", line), b"stat jobs\npeek", b"\n").startswith(b"queue jobs\n")
    # launch passes on the signal to drain
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: b"DRAINING" in speak(str(path), b"put 0 0 60 1\r\nx\r\n", b"\r\n"), "it drains")
    process.send_signal(number)
    assert process.wait(60) in (-number, 128 + number)
    all_gone(flatq.spool)
    assert not listening(line) and not listening(http)


@pytest.mark.parametrize("how", ["port in use", "killed", "launch killed"])
def test_one_of_several_doors_ends(several, flatq, how):
    line, http = free(), free()
    words = ("-k", "line", "-p", str(line), "http", "-p", str(http))
    if how == "port in use":
        with socket.create_server(("127.0.0.1", http)):
            process = several(*words)
            assert process.wait(60) == 75
            assert "is in use" in process.said()
    else:
        process = several(*words, up=(line, http))
        wait_for(lambda: process.said().count(" door on ") == 2, "two doors")
        if how == "killed":
            os.kill(next(pid for pid, command in carriers(flatq.spool).items() if command.startswith("ncat ") and str(http) in command), signal.SIGKILL)
        else:
            process.kill()
        process.wait(60)
    all_gone(flatq.spool)
    assert not listening(line)


def test_as_process_1(flatq, free_port):
    """In a container launch is process 1. It does not die of a signal that it sends to itself, and processes whose parent has died become its
    children."""
    if os.geteuid():
        pytest.skip("only root may make a PID namespace")
    need("unshare")
    process = subprocess.Popen(
        ["unshare", "--fork", "--pid", "--mount-proc", *flatq.command("./launch", "http", "-p", str(free_port))],
        env=flatq.env, cwd=flatq.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    flatq.started.append(process)
    wait_for(lambda: listening(free_port), "the door")
    post = b"POST /queue?group-id=g HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    assert speak(("127.0.0.1", free_port), post, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert speak(("127.0.0.1", free_port), b"GET /queue HTTP/1.1\r\nHost: x\r\n\r\n", b"hello")
    launch, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(launch), signal.SIGTERM)
    assert process.wait(60) == 143
    assert carriers(flatq.spool) == {} and not listening(free_port)


# ---- TLS, and other servers than ncat


def test_tls(door, flatq, tmp_path):
    options, context = certified(tmp_path)
    one = door("-k", "--", *options)

    def ask(request, half_close=False):
        with context.wrap_socket(one.connect()) as client:
            client.sendall(request)
            with socket.socket(fileno=os.dup(client.fileno())) as plain:
                if half_close:
                    plain.shutdown(socket.SHUT_WR)
            return answer(client)

    assert ask(b"push -n 5 jobs\nhello") == b"1\n"
    assert ask(b"pop jobs\n") == b"hello"
    push(flatq, b"y" * 2_000_000)
    assert ask(b"pop\n") == b"y" * 2_000_000
    # a client of TLS that sends no more may get no answer, but never one in plain text
    push(flatq, b"again", "jobs")
    try:
        assert ask(b"pop jobs\n", half_close=True) in (b"again", b"")
    except ssl.SSLError as error:
        assert "ALERT" in error.reason
    # a client that does not speak TLS does not end the door
    assert not one.ask(b"pop jobs\n").startswith(b"again")
    assert ask(b"stat jobs\n").startswith(b"queue jobs\n")


def test_denied_by_ncat(door):
    """Without -k, an ncat that has denied a client would listen no more, and never end."""
    one = door("--", "--deny", "127.0.0.1")
    for _ in range(2):
        assert one.ask(b"pop\n") == b""
    wait_for(lambda: one.said().count("denied") >= 2, "the log")
    wait_for(lambda: listening(one.port), "the next round")


def test_socat(shell, flatq, free_port):
    need("socat")
    server = subprocess.Popen(
        ["socat", f"TCP-LISTEN:{free_port},bind=127.0.0.1,reuseaddr,fork", f"EXEC:{flatq.shell} {LIB}/handler,nofork"],
        env=flatq.env, stderr=subprocess.PIPE, start_new_session=True)
    flatq.started.append(server)
    served(flatq, free_port)


def by_systemd(flatq, port, name):
    """Start the door as a systemd unit would."""
    need("systemd-socket-activate")
    variables = [word for key, value in flatq.env.items() for word in ("-E", f"{key}={value}")]
    flatq.started.append(subprocess.Popen(
        ["systemd-socket-activate", "--accept", "--inetd", "-l", f"127.0.0.1:{port}", *variables, flatq.shell, f"{LIB}/{name}"],
        env=flatq.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))


def test_systemd(shell, flatq, free_port):
    by_systemd(flatq, free_port, "handler")
    served(flatq, free_port)


def test_inetd(shell, flatq, free_port):
    """As inetd does: descriptors 0, 1 and 2 are the client's socket. The log must not go there."""
    with socket.create_server(("127.0.0.1", free_port)) as listener:
        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    flatq.started.append(subprocess.Popen(flatq.command("handler"), env=flatq.env, stdin=client, stdout=client, stderr=client))
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            served(flatq, free_port)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


CONVERSATIONS = {
    "beanstalk": (b"put 0 0 60 5\r\nhello\r\nreserve\r\ndelete 1\r\nquit\r\n", b"INSERTED 1\r\nRESERVED 1 5\r\nhello\r\nDELETED\r\n"),
    "small-stalk": (b"put 0 60\r\nhello\r\nreserve\r\ndelete 1\r\nquit\r\n", b"INSERTED 1\r\nRESERVED 1\r\nhello\r\nDELETED\r\n"),
    "http": (b"GET /x HTTP/1.1\r\nHost: x\r\n\r\nGET /queue HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 404 .*HTTP/1.1 204 .*"),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("server", ["inetd", "systemd"])
def test_the_other_doors_under(flatq, free_port, server, name):
    """With inetd descriptor 2 is the client's socket, too. What a door writes there must not reach the client."""
    request, expected = CONVERSATIONS[name]
    if server == "systemd":
        by_systemd(flatq, free_port, name)
        client = connect(free_port)
    else:
        with socket.create_server(("127.0.0.1", free_port)) as listener:
            client = socket.create_connection(("127.0.0.1", free_port), timeout=100)
            theirs, _ = listener.accept()
        with theirs:
            flatq.started.append(subprocess.Popen(flatq.command(name), env=flatq.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True))
    with client:
        client.sendall(request)
        said = answer(client)
    assert re.fullmatch(expected, said, re.S), said


def served(flatq, port):
    """Requests that must work whatever server runs the door."""
    body = os.urandom(5_000_000)
    assert ask(port, b"push jobs\n" + body) == b"1\n"
    assert ask(port, b"push -n 5 jobs\r\nhello", half_close=False) == b"2\n"
    assert ask(port, b"pop jobs\n") == body

    def handlers():
        """Not the server, whose command line has the handler's too."""
        return [pid for pid in named(flatq.spool, "lib/handler") if not command_of(pid).startswith(("socat", "systemd"))]

    for number in range(3):
        wait_for(lambda: not handlers(), "the last handler's end")
        client = connect(port)
        client.sendall(b"pop jobs")
        with clients.paused(wait_for(handlers, "its handler")):
            client.sendall(b"\n")
            client.close()
        wait_for(lambda: (flatq.spool / "jobs/log").read_text().count(" undelivered ") == number + 1, "that it is back")
    assert ask(port, b"pop jobs\n", half_close=False) == b"hello"
    assert ask(port, b"pop jobs\n") == b""
    assert ask(port, b"nothing\n").startswith(b"error 64 ")


@pytest.mark.parametrize("verb", ["pop", "pop -l", "drain", "reserve"])
def test_a_client_that_takes_a_part(door, flatq, verb):
    """The client reads nothing, and its system has room for only a part of the answer. It resets the connection after having acknowledged that
    part: the messages come back."""
    push(flatq, b"x" * 3000, "jobs")
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
    return any(row[1].endswith(f":{port:04X}") and not row[4].startswith("00000000:") for row in rows)


# ---- cost


def test_processes_of_a_connection(flatq, free_port, tmp_path):
    """Besides the verb's own processes (base64, and mv for a pop) there are at most two: the ncat that serves the connection, and the handler.

    On a system with many connections, one awk more finds the client's."""
    need("strace", "ncat")
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-s", "200", "-e", "signal=none", "-e", "trace=execve,clone,clone3,fork,vfork",
               "-o", str(trace), "--", *flatq.command("./launch", "-k", "-i", "0", "-p", str(free_port))]
    server = subprocess.Popen(command, env=flatq.env, stderr=subprocess.DEVNULL, start_new_session=True)
    flatq.started.append(server)
    wait_for(lambda: listening(free_port), "the door")

    def processes():
        parents, ncat = {}, None
        for line in trace.read_text().splitlines():
            call = re.match(r"(\d+) (?:<\.\.\. )?(clone3?|vfork|fork)\b.*= (\d+)$", line)
            if call:
                parents[int(call[3])] = int(call[1])
            if 'execve(' in line and '"ncat"' in line and '"-l"' in line:
                ncat = int(line.split()[0])

        def below(pid):
            return pid in parents and (parents[pid] == ncat or below(parents[pid]))
        return sum(below(pid) for pid in parents)

    def rows():
        return sum(len(Path(table).read_text().splitlines()) for table in ("/proc/net/tcp", "/proc/net/tcp6"))

    try:
        assert ask(free_port, b"push\nx", True) == b"1\n"
        for half_close in (True, False):
            before, few = processes(), rows()
            assert ask(free_port, b"push\nx" if half_close else b"push -n 1\nx", half_close)
            pushed = processes() - before
            assert ask(free_port, b"pop\n", half_close) == b"x"
            popped = processes() - before - pushed
            look = 1 if max(few, rows()) > 40 else 0
            # a stated length takes head and a pipe
            assert pushed <= 2 + (1 + look if half_close else 3)
            assert popped <= 2 + 2 + look
    finally:
        kill(carriers(flatq.spool), signal.SIGTERM)
        server.wait(60)
