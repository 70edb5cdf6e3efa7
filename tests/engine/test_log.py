"""log: the events of a queue or of all, in local time and in words; by -f also those that come,
over rotation."""

import re
import shlex
import signal
import subprocess
from datetime import datetime, timedelta

import pytest

from conftest import wait_for
from engine import faulty, push, refused, stopped_by

# how a line begins
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d\d"
BEGIN = rb"(?m)^" + TIME.encode() + b" "


def lines(text, begin=BEGIN):
    """The lines without their times, which each of them must have."""
    rows = text.splitlines()
    assert all(re.match(begin, row) for row in rows), rows
    return [re.sub(begin, b"", row).decode() for row in rows]


def event(number, at="1795425456.52", queue="q"):
    """A line as push writes it, and as log prints it."""
    return f"{at} push {number} 0 5 0 -\n", f"{queue} push {number} 5 bytes"


def write(spool, name, *numbers, mode="a", **more):
    """Append events with these numbers to a file of a queue."""
    with (spool / name).open(mode) as file:
        file.writelines(event(number, **more)[0] for number in numbers)


def tree(spool):
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in spool.rglob("*")}


@pytest.fixture
def q(flatq):
    """A queue `q` whose log is empty, and its spool."""
    flatq("create", "q", check=0)
    return flatq.spool


# verbs on a queue `q`, and what the log then says last: the verb, and the text behind the id
EVENTS = [
    ("push -k key q", "push 1 byte"),
    ("reserve q", "reserve try 1, N s after its push, leased until DAY"),
    ("release RECEIPT", "release given back, try 1"),
    *(event for number, (reason, text) in zip((2, 1, 1, 1), (("exit-7", "its command ended with 7"),
        ("signal-9", "its command was ended by signal 9"),
        ("too-big", "too large for where it was to go"), ("my-own", "my-own"))) for event in (
        ("reserve q", f"reserve try {number}, N s after its push, leased until DAY"),
        (f"bury -r {reason} RECEIPT", f"bury set aside: {text}, try {number}"),
        ("kick q", "kick ready again"))),
    ("reserve q", "reserve try 1, N s after its push, leased until DAY"),
    ("touch RECEIPT", "touch leased until DAY, try 1"),
    ("release -d 30 RECEIPT", "release given back, until DAY, try 1"),
    ("delete q:1", "delete deleted, N s after its push"),
    ("push q", "push 1 byte"),
    ("reserve q", "reserve try 1, N s after its push, leased until DAY"),
    ("delete RECEIPT", "delete done at try 1, N s after its push"),
    ("push -l q", "push 1 message, 1 byte"),
    ("pop -l -n 2 q", "pop 1 message"),
    ("push q", "push 1 byte"),
    ("work -n 1 -q q -- false", "release given back: its command ended with 1, until DAY, try 1"),
    ("create -m 1 q", "release given back: its command ended with 1, until DAY, try 1"),
    ("push -p 1 q", "push 1 byte"),
    ("reserve q", "reserve try 1, N s after its push, leased until DAY"),
    ("release RECEIPT", "bury set aside: given back at its last try, try 1"),
    ("push -d 60 q", "push 1 byte, delayed until DAY"),
]


@pytest.mark.shells
def test_events_in_words(shell, flatq, spool):
    """Also: a message that nobody held was deleted, not done."""
    receipt = ""
    for words, text in EVENTS:
        out = flatq(*words.replace("RECEIPT", receipt).split(), input=b"x", check=0).out
        receipt = out.split()[0].decode() if words == "reserve q" else receipt
        before = tree(spool)
        last = flatq("log", "-n", "1", "q", env={"TZ": "UTC0"}, check=0).out.decode()
        assert tree(spool) == before
        queue, verb, _, said = lines(last.encode())[0].split(" ", 3)
        said = re.sub(r"\d+\.\d\d s", "N s", re.sub(r"\d{4}-\S+ [\d:]+", "DAY", said))
        assert (queue, f"{verb} {said}") == ("q", text), words
    pushed, due = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", last)
    assert datetime.fromisoformat(due) - datetime.fromisoformat(pushed) == timedelta(seconds=60)


# what log prints of queue q, which has three logs, and of r
WHICH = {
    "": [1, 2, 11, 3, 4, 5, 6, 7, 12], "q": [1, 2, 3, 4, 5, 6, 7], "r": [11, 12],
    "-n 0": [], "-n 1": [12], "-n 4": [5, 6, 7, 12], "-n 99": [1, 2, 11, 3, 4, 5, 6, 7, 12],
    "-n 5 q": [3, 4, 5, 6, 7], "--since @1795425450 q": [3, 4, 5, 6, 7],
    "--since '2026-11-23 09:17:51' q": [5, 6, 7], "--since @1795425450 -n 2 q": [6, 7],
    "--since '1 minute ago'": [],
}


@pytest.mark.shells
def test_which_events(shell, flatq, q):
    """The lines of a queue stay in the order of its log, although their times may not."""
    flatq("create", "r", check=0)
    for name, second, *numbers in (("q/log.179542546000", 449.99, 1, 2),
            ("q/log.179542548000", 470.00, 3, 4), ("q/log", 500.00, 5, 6), ("q/log", 499.00, 7),
            ("r/log", 460.00, 11), ("r/log", 600.00, 12)):
        write(q, name, *numbers, at=f"1795425{second:.2f}")
    for words, numbers in WHICH.items():
        out = flatq("log", *shlex.split(words), env={"TZ": "UTC0"}, check=0).out
        assert [int(line.split()[2]) for line in lines(out)] == numbers, words
    push(flatq, b"12345", "q")
    assert len(lines(flatq("log", "--since", "1 minute ago", "q", check=0).out)) == 1


def test_follow_begins_with_the_last_ten(flatq, q):
    write(q, "q/log", *range(100))
    for words, shown in (([], 10), (["-n", "3"], 3), (["--since", "@1795425456"], 100)):
        process, until = following(flatq, *words)
        assert until(shown) == [event(number)[1] for number in range(100 - shown, 100)]
        flatq.end(process)


@pytest.mark.shells
def test_local_time(shell, flatq, q):
    """Each line has the time of the day that was the local one then, also on the day on which the
    clocks change."""
    times = {
        "0000000000.01": "1970-01-01 01:00:00.01", "0951782400.00": "2000-02-29 01:00:00.00",
        "1774745999.99": "2026-03-29 01:59:59.99",
        "1774746000.00": "2026-03-29 03:00:00.00", "1792889999.00": "2026-10-25 02:59:59.00",
        "1792890000.00": "2026-10-25 02:00:00.00",
        "4102444799.50": "2100-01-01 00:59:59.50",
    }
    for at in times:
        write(q, "q/log", 1, at=at)
    said = flatq("log", "q", env={"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}, check=0).out.decode()
    assert [line[:22] for line in said.splitlines()] == list(times.values())
    assert flatq("log", env={"TZ": "IST-5:30"}, check=0).out.startswith(
        b"1970-01-01 05:30:00.01 q push 1 5 bytes\n")


@pytest.mark.shells
def test_a_log_that_is_not_what_it_should_be(shell, flatq, q):
    """Strange lines are left out, and nothing that a terminal obeys comes through."""
    good, shown = event(7)
    bad = [b"1795425456.52 pu", b"1795425456.52 push 8 0 5 0 \33[2J\n",
        b"1795425456.52 push\t8 0 5 0 -\n", b"1795425456.52 \33c 8 0 5 0 -\n", b"\0\n",
           b"1795425456.52 push 8 0 5 0 -\0\n", b"1795425456.52 push 8 0 5 0 -\r\n",
           b"1795425456.52 push 8 0 5 0 a b\n", b"x" * 100_000 + b"\n", b"\n",
           b"1795425456.52 push 8 0 5 0 " + b"y" * 300 + b"\n", b"99999999999.52 push 8 0 5 0 -\n",
           b"1795425456.52 push 8 0 5 0\n", b"list\n", b"end\nevents\n", b"\xff\xfe\n"]
    (q / "q/log").write_bytes(good.encode() + b"".join(good.encode() + line for line in bad[1:])
        + bad[0])
    for name in ("\33[2J", "a b", "-x", "%x", "x,y\nz"):
        (q / name / "wal").mkdir(parents=True)
        write(q, f"{name}/log", 9)
    for name in ("log.1", "log.17954254560x", "log.179542545600.1", "logs"):
        write(q, f"q/{name}", 9)
    for words in (["q"], []):
        assert lines(flatq("log", *words, check=0).out) == [shown] * len(bad)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("words", [["q"], []], ids=["one", "all"])
def test_a_log_that_is_renamed_while_it_is_looked_at(flatq, q, stub, words, listed):
    """Before it was listed, or between that and the open: each event is printed once."""
    write(q, "q/log", *range(20))
    old = q / "q/log.179542545600"
    stub("xargs", f"""
        {'"$REAL" "$@" || exit' if listed else ""}
        [ -e '{old}' ] ||
          {{ mv '{q}/q/log' '{old}' && echo '{event(20)[0].strip()}' >'{q}/q/log'; }}
        {"" if listed else 'exec "$REAL" "$@"'}""")
    assert lines(flatq("log", *words, check=0).out) == [event(number)[1] for number in range(21)]


def following(flatq, *words, **more):
    """`log -f`, and a function that waits until it has printed so many lines and returns them."""
    out = flatq.home / "followed"
    with out.open("wb") as file:
        process = flatq.start("log", "-f", *words, stdin=subprocess.DEVNULL, stdout=file, **more)

    def until(count):
        wait_for(lambda: out.read_bytes().count(b"\n") >= count or process.poll() is not None,
            f"{count} events")
        return lines(out.read_bytes())
    return process, until


@pytest.mark.shells
def test_follow(shell, flatq, q):
    """-f prints what is there and what comes, over rotation and from queues that are new, and each
    event once."""
    write(q, "q/log", 1, 2)
    process, until = following(flatq)
    assert until(2) == [event(1)[1], event(2)[1]]
    flatq("push", "new", input=b"12345", check=0)
    assert until(3)[2].startswith("new push ")
    # half a line, and the other half
    with (q / "q/log").open("a") as file:
        file.write(event(3)[0][:20])
        file.flush()
        flatq("push", "new", input=b"12345", check=0)
        assert len(until(4)) == 4
        file.write(event(3)[0][20:])
    assert until(5)[4] == event(3)[1]
    # a process has opened the log before it is renamed, and writes after that
    with (q / "q/log").open("a") as late:
        (q / "q/log").rename(q / "q/log.179542545700")
        write(q, "q/log", 5)
        assert until(6)[5] == event(5)[1]
        late.write(event(6)[0])
    assert until(7)[6] == event(6)[1]
    (q / "q/log").rename(q / "q/log.179542545800")
    write(q, "q/log.179542545800", 7)
    (q / "q/log.179542545700").unlink()
    write(q, "q/log", *range(8, 600))
    assert until(600)[7:] == [event(number)[1] for number in range(7, 600)]
    process.send_signal(signal.SIGTERM)
    stopped_by(process, signal.SIGTERM)
    assert len(until(0)) == 600


def test_follow_one_queue_until_it_is_dropped(flatq, q):
    process, until = following(flatq, "q")
    write(q, "q/log", 1)
    assert until(1) == [event(1)[1]]
    flatq("drop", "-f", "q", check=0)
    process.wait(100)
    assert process.returncode == 69 and process.stderr.read() == b"log: queue 'q' is gone\n"


@pytest.mark.parametrize("perl", [True, False])
def test_nobody_reads(shell, flatq, q, stub, perl):
    """-f ends when its reader is gone, although no event comes; without perl, with the next."""
    stub("perl", 'exec "$REAL" "$@"' if perl else "exit 127")
    write(q, "q/log", 1)
    process = flatq.start("log", "-f")
    assert lines(process.stdout.readline()) == [event(1)[1]]
    process.stdout.close()
    if not perl:
        write(q, "q/log", 2)
    assert process.wait(100) == 74
    assert process.stderr.read() == (b"log: nobody reads the output any more\n" if perl
        else b"log: the log could not be printed\n")


@pytest.mark.parametrize("program", ["awk", "sort", "cat", "tail", "ls", "xargs"])
def test_a_program_that_fails(flatq, q, stub, program):
    """No part of a log passes for the whole."""
    write(q, "q/log", *range(100))
    stub(program, "exit 1")
    refused(flatq("log"), 74, "log")


def test_it_does_not_work_elsewhere(flatq):
    assert flatq("handler", input=b"log q\n").out.startswith(b"error 64 no such verb")
    refused(flatq("flatq", "-H", "127.0.0.1:1", "log"), 64, "log",
        text=b"works on the machine that has the spool")


def test_a_look_that_fails_hides_no_log(flatq, q):
    write(q, "q/log", 1, 2)
    for call, error in ("newfstatat", "ENOMEM"), ("statx", "ENOMEM"), ("openat", "EACCES"):
        for when in "12":
            done = faulty(flatq, call, q / "q/log", "log", "q", error=error, when=when)
            assert done.returncode in (74, 77) or done.stdout.count(b" push ") == 2, done
