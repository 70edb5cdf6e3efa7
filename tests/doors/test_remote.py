"""flatq -H HOST:PORT runs a verb through the line door of another system."""

import os
import resource
import signal
import socket
import subprocess
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import need, wait_for
from engine import children, command_of, push, refused, shown_on_terminal
from userlands import without

from crash.gate.processes import kill


class Far:
    """far(VERB, ...) runs `flatq -H HOST VERB ...`. start() does not wait for it."""

    def __init__(self, flatq, host):
        self.flatq, self.host = flatq, host

    def __call__(self, *words, **more):
        return self.flatq("flatq", "-H", self.host, *words, **more)

    def start(self, *words, **more):
        return self.flatq.start("flatq", "-H", self.host, *words, **more)

    def run(self, *words, before=(), **more):
        """Run it behind other words, as strace's."""
        command = [*before, *self.flatq.command("flatq", "-H", self.host, *words)]
        return subprocess.run(command, env=self.flatq.environment(None), timeout=100, **{
            "input": b"", "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


@pytest.fixture
def far(flatq, launched):
    """With a door that the fixture starts."""
    return Far(flatq, f"127.0.0.1:{launched('-k', door='line').port}")


ANY = bytes(range(256)) * 40 + b"\nerror 66 not really\nok\n"


MANY = b"".join(b"%d\n" % n for n in range(3000))
CODED = b64encode(ANY * 9) + b"\n"
# a verb, its input, and what it prints, or the code of a refusal
THERE_AND_BACK = [
    ("push jobs", ANY, b"1\n"), ("push -p 3 -k key jobs", b"", b"2\n"),
    ("push -k key jobs", b"", b"2 dup\n"), ("list", b"", b"jobs\n"), ("pop jobs", b"", b""),
    ("peek jobs", b"", ANY), ("reserve -t 60 jobs", b"", None), ("release RECEIPT", b"", b""),
    ("delete nonsense", b"", 65), ("pop jobs", b"", ANY), ("delete RECEIPT", b"", 66),
    ("pop jobs", b"", 66), ("push -l jobs", MANY, None), ("pop -l -n 3 jobs", b"", b"0\n1\n2\n"),
    ("push -p 1 jobs", ANY * 9, None), ("pop -6 -n 2 jobs", b"", CODED + b"Mw==\n"),
    ("push -p 1 jobs", ANY * 9, None), ("pop -6 jobs", b"", CODED),
    ("drain jobs", b"", MANY[8:]), ("push coded", ANY * 9, None), ("drain -6 coded", b"", CODED),
    ("push -l jobs", b"a\nb\n", None), ("pop -l -n 4294967295 jobs", b"", b"a\nb\n"),
]


def there_and_back(far):
    """What every way to another machine must do; test_ssh.py does it by ssh."""
    said = {}
    for words, given, wanted in THERE_AND_BACK:
        receipt = said.get("reserve -t 60 jobs", b"").split(b" ")[0].decode()
        words = words.replace("RECEIPT", receipt)
        done = far(*words.split(), input=given)
        if isinstance(wanted, int):
            refused(done, wanted, words.split()[0])
        else:
            assert done.status == 0 and wanted in (done.out, None), (words, done)
        said[words] = done.out
    head, body = said["reserve -t 60 jobs"].split(b"\n", 1)
    assert (head.split()[1:], body) == ([b"1", b"1", b"%d" % len(ANY)], ANY)
    first, last = said["push -l jobs"].split()
    assert int(last) - int(first) == 1
    refused(far("push", "-k", "two words", "jobs", input=b"x"), 65)


@pytest.mark.shells
def test_there_and_back(far):
    there_and_back(far)


@pytest.mark.shells
def test_the_queue_of_the_environment(far, flatq):
    """FLATQ_QUEUE is that of the caller, not that of the door, and only of verbs that take one
    queue."""
    flatq.env["FLATQ_QUEUE"] = "mine"
    for verb, *options in (["create", "-b", "9"], ["push", "-p", "3"], ["push"], ["push", "-l"],
            ["peek"], ["reserve", "-t", "0"], ["pop", "-w", "9"], ["kick"], ["drain"],
                           ["close"]):
        far(verb, *options, input=b"x\n", check=0)
    assert far("push", input=b"x").status == far("pop").status == 69
    far("push", "other", input=b"x", check=0)
    assert far("list", check=0).out == b"mine\nother\n" and far("stat",
        check=0).out.count(b"queue ") == 2
    assert flatq("flatq", "-H", "localhost:1", "pop", "-h").out.startswith(b"pop ")


def test_long_names_and_a_text(far):
    far("push", "--priority", "3", "jobs", "--", "a  text", "of two", check=0)
    far("push", "--priority=5", "jobs", input=b"x", check=0)
    assert far("pop", "--count", "2", "--lines", "jobs").out == b"a  text of two\nx\n"


def test_tables_on_a_terminal(far, flatq):
    far("push", "jobs", input=b"x", check=0)

    def shown(*words):
        return shown_on_terminal(flatq, "flatq", "-H", far.host, *words)

    assert shown("list") == ("QUEUE\njobs\n", 0) and shown("list", "--plain") == ("jobs\n", 0)
    assert shown("list", "jobs")[0].startswith("ID  STATE  PRIORITY") and shown("stat",
        "jobs")[0].startswith("QUEUE  READY  DELAYED")
    assert shown("stat", "-h")[0].startswith("stat [OPTION]") and shown("peek", "jobs") == ("x", 0)
    assert shown("stat", "nothing") == ("", 66)


def test_waits(far, flatq):
    """A pop that waits through the door gets a message that is pushed at the other end."""
    waiting = far.start("pop", "-w", "20", "jobs")
    wait_for(lambda: list(flatq.spool.glob("jobs/wait/*")), "somebody to wait")
    flatq("push", "jobs", input=b"at last", check=0)
    assert waiting.communicate(timeout=100)[0] == b"at last"


CLIENTS = ["ncat", "nc", "socat"]


@pytest.mark.parametrize("client", CLIENTS)
def test_nobody_there(flatq, free_port, client):
    """68, unlike 69: nothing was asked, whichever program was to ask it."""
    need(client)
    flatq.env["PATH"] = without(flatq.home / "bin", *CLIENTS[:CLIENTS.index(client)],
        path=flatq.env["PATH"])
    for host in (f"127.0.0.1:{free_port}", "no-such-host.invalid"):
        away = refused(Far(flatq, host)("push", "jobs", input=b"x"), 68)
        assert b"stored" not in away.err, away


@pytest.mark.parametrize("host, asked", [("[::1]", "::1 1234"), ("[::1]:5", "::1 5"),
    ("here", "here 1234"), ("here:5", "here 5")])
def test_a_host_may_have_colons(flatq, stub, host, asked):
    stub("ncat", 'printf %s "$*" >"$HOME/asked"')
    refused(Far(flatq, host)("list"), 69)
    assert (flatq.home / "asked").read_text() == f"-v {asked}"


@pytest.mark.parametrize("where", ["delete", "answer"])
@pytest.mark.shells
def test_something_was_asked(shell, flatq, where):
    """69, unlike 68: nobody answers any more, but a message was reserved."""
    need("ncat")
    reserved, before = where == "delete", []
    if not reserved:
        before = [need("strace"), "-f", "-qq", "-o", "/dev/null", "-e", "trace=recvfrom", "-e",
            "inject=recvfrom:error=EHOSTUNREACH:when=1", "--"]
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        far = Far(flatq, "127.0.0.1:%d" % listener.getsockname()[1])
        verb = thread.submit(far.run, "pop" if reserved else "push", "q", before=before)
        listener.settimeout(60)
        connection, _ = listener.accept()
        listener.close()
        with connection:
            connection.settimeout(60)
            asked = b""
            while not asked.endswith(b"\n") and (part := connection.recv(1000)):
                asked += part
            if reserved:
                connection.sendall(b"q:1:x 1 1 5\nhello\n%s ok\n" % asked.split(b"@")[1])
        done = verb.result()
    assert (done.returncode, done.stdout) == (69, b"hello" if reserved else b""), done
    said = b"Connection refused" if reserved else b"No route to host"
    assert said in done.stderr and done.stderr.count(b"\n") == 1, done


@pytest.mark.parametrize("words", [("push", "-n", "3", "q"), ("doctor",), ("pop", "-n", "2"),
    ("pop", "-n", "0", "-l"), ("push", "-Z"), ("pop", "-Z"), ("push", "-p")])
def test_refused(far, words):
    done = far(*words, input=b"abc")
    assert done.status in (64, 65) and done.err.count(b"\n") == 1


@pytest.mark.parametrize("verb, said", [("pop", b""), ("reserve", b""), ("drain", b""),
    ("push", b"the message is stored, but its id could not be printed"),
    ("kick", b"it is done, but")])
@pytest.mark.shells
def test_where_the_output_is_full(far, flatq, verb, said):
    """What was asked for is back once the verb has ended. What was done there is said."""
    push(flatq, b"kept", "jobs")
    done = far.run(verb, "jobs", input=b"y", stdout=open("/dev/full", "wb"))
    assert done.returncode == 74 and done.stderr.count(b"\n") == 1, done
    assert done.stderr.startswith(b"flatq %s: %s" % (verb.encode(), said)), done
    if not said:
        closed = far.run(verb, "jobs", before=["sh", "-c", 'exec "$@" >&-', "sh"])
        assert closed.returncode == 74 and b"is closed" in closed.stderr
    assert far("pop", "jobs", check=0).out == b"kept"


@pytest.mark.parametrize("verb, said, code", [
    ("peek", r"HELLO\n%s ok", 69), ("reserve", r"q:1.1.aabb 1 1 5\nHELLO\n%s ok", 69),
    ("drain", r"a message\nok\n", 69), ("drain", r"a message\nerror 66 nothing there\n", 69),
    ("pop", r"\n\n%s ok\n", 74), ("pop", r"r\001 7 1 5\nhello\n\n%s ok\n", 74)],
    ids=["no newline", "none of a message", "ok without the nonce", "error without it", "empty",
         "a control byte"])
@pytest.mark.shells
def test_an_answer_that_is_not_whole(shell, flatq, stub, verb, said, code):
    """It was cut, also where a message reads as the end of an answer; or its receipt is none."""
    stub("ncat", f"""read -r line; nonce=${{line#@}}; printf '{said}' "${{nonce%%@*}}" """)
    refused(Far(flatq, "h:1")(verb, "jobs"), code, verb,
        text=b"no whole answer" if code == 74 else b"")


@pytest.mark.parametrize("verb", ["pop", "reserve"])
def test_a_signal_while_it_waits(far, flatq, verb):
    """It ends at once, and hides no message that comes later."""
    waiting = far.start(verb, "-w", "50", "jobs")
    wait_for(lambda: list(flatq.spool.glob("jobs/wait/*")), "somebody to wait")
    waiting.terminate()
    assert (waiting.wait(30), waiting.stdout.read()) == (-signal.SIGTERM, b"")
    wait_for(lambda: not list(flatq.spool.glob("jobs/wait/*")), "nobody to wait")
    push(flatq, b"x", "jobs")
    assert flatq("pop", "jobs", check=0).out == b"x"


@pytest.mark.parametrize("words", [["reserve"], ["reserve", "default"], ["pop"]], ids=" ".join)
def test_a_signal_just_after_the_answer(far, flatq, stub, words):
    """A message that was not printed is given back."""
    push(flatq, b"x", "-t", "3600")
    stub("tail", """if [ ! -e "$ONCE" ]; then
          >"$ONCE"; read -r stat </proc/$PPID/stat
          kill -TERM "$(set -- ${stat##*) }; echo "$2")"
        fi
        exec "$REAL" "$@" """)
    process = far.start(*words)
    assert process.communicate(timeout=60)[0] == b"" and process.returncode == -signal.SIGTERM
    assert b" ready " in flatq("list", "default").out


def test_an_answer_with_a_hole(far, flatq, stub, tmp_path):
    """One of the writes of the answer fails."""
    body, log = os.urandom(300_000), tmp_path / "log"
    push(flatq, body, "q")
    stub("mktemp", f"mkdir -p {tmp_path}/fixed && echo {tmp_path}/fixed")
    for number in (1, 2, 3):
        done = far.run("peek", "q", before=[
            need("strace"), "-f", "-qq", "-o", log, "-P", tmp_path / "fixed/raw", "-e",
            "trace=write", "-e", f"inject=write:error=ENOSPC:when={number}", "--"])
        struck = "INJECTED" in log.read_text()
        assert (done.returncode, done.stdout) == ((69, b"") if struck else (0, body)), (number,
            struck, done)
        assert struck or number > 1


def test_a_signal_before_a_message_is_written_out(far, flatq, stub):
    """Nobody reads the output: the message is back at once."""
    push(flatq, b"x" * 200_000, "jobs")
    popping = far.start("pop", "jobs")
    assert popping.stdout.read(1) == b"x"
    kill([pid for pid in children(popping.pid) if command_of(pid) == "head"])
    popping.terminate()
    popping.wait(30)
    assert b" ready " in flatq("list", "jobs").out


def test_a_pop_has_its_message_longer_than_a_short_lease(far, flatq):
    flatq("push", "-t", "1", "jobs", input=b"x" * 200_000, check=0)
    popping = far.start("pop", "jobs")
    assert popping.stdout.read(1) == b"x"  # the rest waits: nobody reads it
    push(flatq, b"twin", "twin")
    flatq("reserve", "-t", "1", "twin", check=0)
    assert flatq("pop", "-w", "60", "twin",
        check=0).out == b"twin", "a lease of a second that began later is over"
    refused(flatq("pop", "jobs"), 66)
    assert (popping.stdout.read(), popping.wait(60)) == (b"x" * 199_999, 0)


@pytest.mark.parametrize("form", ["-l", "-6"])
def test_a_reader_that_leaves_between_two_messages(far, flatq, tmp_path, form):
    """SIGPIPE came to the shell itself: the message stayed reserved, its directory in TMPDIR."""
    (tmp_path / "t").mkdir()
    far("push", "-l", "jobs", input=b"".join(b"%d\n" % n for n in range(40)), check=0)
    for _ in range(5):
        pops = far.start("pop", form, "-n", "40", "jobs",
            env={"TMPDIR": str(tmp_path / "t")})
        assert pops.stdout.read(3)
        pops.stdout.close()
        said = pops.stderr.read()
        assert (pops.wait(60), said.count(b"\n")) == (74, 1), said
        assert b"reserved 0\n" in far("stat", "jobs", check=0).out
    assert not os.listdir(tmp_path / "t")


def test_a_drain_without_room_for_the_answer(far, flatq):
    """The directory of temporary files is full."""
    push(flatq, b"x" * 5000, "jobs")
    done = far.run("drain", "jobs", preexec_fn=lambda: (
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))))
    assert done.returncode == 74 and done.stdout == b""
    assert far("drain", "jobs", check=0).out == b"x" * 5000 + b"\n"


def test_a_drain_of_which_a_part_fails(stub, flatq, tmp_path, request):
    """Messages that the door settled before the fault are written out. The others are still in
    their queues."""
    stub("base64", f"""
        if [ "$*" = -d ] && [ -e {tmp_path}/armed ]; then
          [ ! -e {tmp_path}/one ] || kill -9 $$
          >{tmp_path}/one
        fi
        exec "$REAL" "$@" """)
    far = request.getfixturevalue("far")
    for queue in ("first", "second", "third"):
        push(flatq, queue.encode(), queue)
    (tmp_path / "armed").touch()
    done = far("drain", "first", "second", "third")
    assert (done.status, done.out) == (74, b"first\n") and b"second" in done.err
    (tmp_path / "armed").unlink()
    assert far("drain", "first", "second", "third", check=0).out == b"second\nthird\n"


def test_an_acknowledged_drain(flatq):
    """drain -a settles a batch after a line `ok` for it."""
    for queue in ("a", "b"):
        push(flatq, b"of " + queue.encode(), queue)
    done = flatq("drain", "-a", "a", "b", input=b"ok\n")
    assert (done.status, done.out) == (74, b"5\nof a\nsent\n5\nof b\nsent\n")
    push(flatq, b"\n" * 1000, "b")
    flat = flatq("drain", "-a", "-0", "a", "b", input=b"ok\n" * 2, check=0)
    assert flat.out == b"1006\nof b\0" + b"\n" * 1000 + b"\0sent\n"


def test_a_door_that_is_gone_in_the_midst(far, stub, flatq, tmp_path):
    """That is not the end of the messages (69), as of a closed and empty queue."""
    far("push", "-l", "jobs", input=b"1\n2\n3\n4\n5\n", check=0)
    stub("ncat", f"""printf x >>{tmp_path}/asked
        [ "$(wc -c <{tmp_path}/asked)" -le 6 ] || exit 1; exec "$REAL" "$@" """)
    done = far("pop", "-l", "-n", "10", "jobs")
    assert (done.status, done.out) == (69, b"1\n2\n3\n") and b"no whole answer" in done.err
    (tmp_path / "stubs/ncat").unlink()
    flatq("close", "jobs", check=0)
    assert far("pop", "-l", "-n", "10", "jobs", check=0).out == b"4\n5\n"
    closed = far("pop", "-l", "jobs")
    assert closed.status == 69 and b"closed" in closed.err


def test_a_door_at_a_socket(flatq, tmp_path, monkeypatch):
    """Its programs are tried in turn, as for a port."""
    need("ncat", "nc", "socat")
    at = f"unix:{tmp_path}/a socket"
    far = Far(flatq, at)
    refused(far("push", "jobs", input=b"x"), 68, "push")
    door = flatq.start("serve", "-k", "-l", at, stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        wait_for((tmp_path / "a socket").exists, "the door")
        there_and_back(far)
        for client in (1, 2):
            path = flatq.env["PATH"]
            flatq.env["PATH"] = without(flatq.home / f"bin{client}", *CLIENTS[:client], path=path)
            far("push", "other", input=ANY, check=0)
            assert far("pop", "other", check=0).out == ANY
            flatq.env["PATH"] = path
        from flatq import Queue

        for name, value in flatq.env.items():
            monkeypatch.setenv(name, value)
        queue = Queue(f"{at}/mine")
        assert (queue.host, queue.name, repr(queue)) == (at, "mine", f"Queue('{at}/mine')")
        queue.push(ANY)
        flatq("shovel", "--once", f"{at}/mine", "other", check=0)
        assert Queue(f"{at}/other").pop() == ANY
    finally:
        door.terminate()
        assert door.wait(60) == -signal.SIGTERM
    refused(far("list"), 68, "list")


@pytest.fixture
def silent(flatq, stub):
    """The port of a server that accepts, and neither reads nor writes. Each second is a tenth."""
    stub("sleep", '[ "$1" != 1 ] || set -- 0.1; exec "$REAL" "$@"')
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("verb, said", [
    ("pop", b"is back when its lease ends"), ("reserve", b"is back when its lease ends"),
    ("drain", b"may come again"),
    ("peek", b"no whole answer"), ("push", b"nothing is stored"), ("kick", b"may be done, or not")])
@pytest.mark.parametrize("by", ["tcp", "ssh"])
def test_a_server_that_says_nothing(flatq, stub, silent, verb, said, by):
    """It is left after 20 seconds in which nothing has moved. Of a large push, a part is on its
    way."""
    host = f"127.0.0.1:{silent}"
    if by == "ssh":
        flatq.env["FLATQ_SSH"] = str(stub("ssh", f"exec ncat 127.0.0.1 {silent}"))
        host = "ssh://h"
    blob = b"x" * 30_000_000 if verb == "push" else b""
    refused(Far(flatq, host)(verb, "jobs", input=blob, timeout=60), 69, verb, text=said)


def test_a_silence_as_long_as_it_may_wait(flatq, silent):
    began = time.monotonic()
    far = Far(flatq, f"127.0.0.1:{silent}")
    refused(far("pop", "-w", "40", "jobs", timeout=60), 69, "pop")
    assert time.monotonic() - began > 5


def test_a_slow_reader_is_no_silence(far, flatq, stub):
    """It takes longer to write a batch out than a door may be silent."""
    stub("sleep", '[ "$1" != 1 ] || set -- 0.1; exec "$REAL" "$@"')
    push(flatq, b"x" * 200_000, "jobs")
    draining = far.start("drain", "jobs")
    assert draining.stdout.read(1) == b"x"
    time.sleep(5)
    assert len(draining.stdout.read()) == 200_000 and draining.wait(60) == 0
    assert flatq("list", "jobs").out == b""
