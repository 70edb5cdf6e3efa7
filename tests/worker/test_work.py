"""work: what becomes of each message; signals, killed processes, time limits; several workers."""

import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import need, share, wait_for
from engine import (  # noqa: F401
    alive, carriers, children, clock, empty, lies, on_terminal, pop, push, refused,
    shown_on_terminal, stopped_by, words_of)

from crash.gate import processes

# a command that writes its process id to a file in $1, and ends once the file `go` is there
HOLD = """printf %s "$$" >"$1/pid.new" && mv "$1/pid.new" "$1/pid"
while [ ! -e "$1/go" ]; do sleep 0.05; done; cat >"$1/body" """


@pytest.fixture
def hold(tmp_path):
    """The directory for HOLD's files. A command in a session of its own is let go at the end."""
    path = tmp_path / "hold"
    path.mkdir()
    yield path
    (path / "go").touch()


def held(hold):
    """The process id of the command, as soon as it runs."""
    wait_for((hold / "pid").exists, "the command runs")
    return int((hold / "pid").read_text())


def working(flatq, hold, *options, script=HOLD):
    """A worker, and the process id of its command, which waits until it may go on."""
    process = flatq.start("work", *options, "--", "sh", "-c", script, "sh", hold)
    return process, held(hold)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def helper_of(worker):
    """The worker's helper, once it is in a session of its own."""
    return wait_for(lambda: [one for one in children(worker)
        if b"--helper" in words_of(one) and os.getsid(one) == one], "its helper")[0]


def nothing_left(process, spool):
    """The worker has ended, and no process and no pipe is left."""
    process.wait(60)
    wait_for(lambda: not carriers(spool), "what stood beside it is gone")
    assert list((spool / ".wait").iterdir()) == []
    assert not lies(spool).get("wait")


def dies_at_once(pid):
    wait_for(lambda: not alive(pid), "the command is dead", 0.5)


def ended(process, status, seconds=60):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


def listed(flatq, queue="default"):
    """What list prints, as (id, state, tries, reason)."""
    rows = [line.split() for line in flatq("list", queue, check=0).out.decode().splitlines()]
    return [(int(row[0]), row[1], int(row[3]), " ".join(row[6:]) if row[1] == "buried" else "")
        for row in rows]


def touched(spool):
    """How often a lease was renewed."""
    return (spool / "default/log").read_text().count(" touch ")


# the command and its message


def test_the_command_gets_the_message_and_its_names(shell, flatq, tmp_path):
    bodies = [b"", bytes(range(256)), b"two\nlines\n", os.urandom(300000)]
    ids = [push(flatq, body, "a/b") for body in bodies]
    script = 'cat >"$1/$FLATQ_ID"; printf "%s %s %s\\n" "$FLATQ_ID" "$FLATQ_QUEUE" "$FLATQ_TRIES"'
    done = flatq("work", "-q", "a/b", "--until-empty", "--", "sh", "-c", script, "sh", tmp_path,
        check=0)
    assert done.out.decode().splitlines() == [f"{number} a/b 1" for number in ids]
    assert done.err == b""
    assert [(tmp_path / str(number)).read_bytes() for number in ids] == bodies
    assert listed(flatq, "a/b") == []


def test_the_message_is_a_file_without_a_name(shell, flatq, tmp_path):
    """The command may seek in it, and it is gone with the command. No descriptor of the worker's is
    open there."""
    push(flatq, b"hello")
    (tmp_path / "tmp").mkdir()
    flatq.env["TMPDIR"] = str(tmp_path / "tmp")
    script = """import os, time
os.read(0, 9); os.lseek(0, 1, 0)
while os.fstat(0).st_nlink: time.sleep(0.01)
print(os.read(0, 9), [one for one in range(3, 10) if os.path.exists(f"/proc/self/fd/{one}")])"""
    done = flatq("work", "-w", "0", "--", "python3", "-c", script, check=0)
    assert done.out == b"b'ello' []\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_command_is_run_as_it_stands(shell, flatq, tmp_path):
    """No shell splits or expands its words. Its umask and locale are the caller's."""
    script = tmp_path / "a command"
    script.write_text("""#!/bin/sh
cat >/dev/null; printf "<%s>" "$@"; umask; printf "%s\\n" "${LC_ALL-unset}"\n""")
    script.chmod(0o755)
    shutil.copy(script, flatq.home / "exit")
    flatq.env["PATH"] = f"{flatq.home}:{flatq.env['PATH']}"
    for words, locale, said in (
            (["--", script, "a  b", "*", "$HOME", ""], None, b"<a  b><*><$HOME><>0027\nunset\n"),
            (["exit"], "C.UTF-8", b"<>0027\nC.UTF-8\n")):
        push(flatq, b"x")
        process = flatq.start("work", "-w", "0", *words, env={"LC_ALL": locale}, umask=0o027)
        assert ended(process, 0) == (said, b"")


@pytest.mark.parametrize("script", ["exec 3<&0; sleep 1000 <&3 >/dev/null 2>&1 &",
    "setsid sleep 1000 >/dev/null 2>&1 &"], ids=["input", "daemon"])
def test_a_command_that_leaves_a_process_behind(shell, flatq, script):
    """The worker neither waits for it nor ends it; and the next message is another file."""
    for body in (b"1", b"2"):
        push(flatq, body)
    done = flatq("work", "-w", "0", "--", "sh", "-c", f"cat; {script} echo $! >>left", check=0)
    pids = [int(pid) for pid in (flatq.home / "left").read_text().split()]
    try:
        assert done.out == b"12" and all(map(alive, pids))
    finally:
        processes.kill(pids)


DAMAGED = {
    "cut": lambda body: body.write_bytes(body.read_bytes()[:1000]),
    "longer": lambda body: body.write_bytes(body.read_bytes().rstrip(b"\n") + b"QUJD\n"),
    "altered": lambda body: body.write_bytes(b"!" + body.read_bytes()[1:]),
    "missing": lambda body: body.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_no_command_is_run_for_a_damaged_message(shell, flatq, spool, damage):
    number = push(flatq, b"x" * 3000)
    DAMAGED[damage](next((spool / "default/body").iterdir()))
    last = push(flatq, b"last")
    done = flatq("work", "-w", "0", "--", "sh", "-c", 'echo "$FLATQ_ID"', check=0)
    assert done.out == b"%d\n" % last
    assert listed(flatq) == [(number, "buried", 1, "damaged")], done


# base64 -d that finds no room in the directories that are named in $FULL
NO_ROOM = """[ "$1" = -d ] || exec "$REAL" "$@"
case $FULL in *"<$(dirname "$(readlink /proc/$$/fd/1)")>"*) head -c 100; exit 1 ;; esac
exec "$REAL" "$@" """


def test_a_message_lies_where_there_is_room(shell, flatq, spool, stub, tmp_path):
    """In the first directory that takes it whole. Where none does, the message comes back."""
    stub("base64", NO_ROOM)
    full, odd = tmp_path / "full", tmp_path / "odd * name"
    for place in (full, odd):
        place.mkdir()
    where = ["sh", "-c", 'cat >/dev/null; dirname "$(readlink /proc/$$/fd/0)"']
    queue = spool / "default/tmp"

    def worked(tmpdir, *places):
        push(flatq, b"x" * 3000)
        env = {"TMPDIR": str(tmpdir), "FULL": "".join(f"<{place}>" for place in places)}
        return flatq("work", "-w", "0", "-d", "9", "--", *where, check=0, env=env)

    assert worked(odd).out.decode() == f"{odd}\n"
    for tmpdir in (full, tmp_path / "none", full / "none"):
        assert worked(tmpdir, full).out == b"/dev/shm\n"
    assert worked(full, full, "/dev/shm").out == b"/tmp\n"
    assert worked(full, full, "/dev/shm", "/tmp").out.decode() == f"{queue}\n"
    done = worked(full, full, "/dev/shm", "/tmp", queue)
    assert done.out == b"" and b"unfed, again in 9 s" in done.err
    assert listed(flatq)[0][1:3] == ("delayed", 1)
    assert not [*full.iterdir(), *odd.iterdir(), *queue.iterdir()]
    flatq("kick", check=0)
    assert flatq("work", "-w", "0", "--", *where, check=0).out


@pytest.mark.parametrize("given, delays", [("1,5", [1, 2, 4, 5, 5]), ("5,600 -d 200", [200, 300]),
    ("200 -d 200,350", [200, 350])])
def test_a_failure_delays_ever_longer(flatq, given, delays):
    """Of several options -d the last counts."""
    number = push(flatq, b"x")
    for tries, delay in enumerate(delays, 1):
        done = flatq("work", "-w", "0", "-d", *given.split(), "--", "false", check=0)
        assert done.err.decode() == (
            f"work: queue 'default': message {number}, try {tries}: exit-1, again in {delay} s\n")
        assert listed(flatq) == [(number, "delayed", tries, "")]
        flatq("release", f"default:{number}", check=0)
    assert flatq("work", "-w", "0", "--", "cat", check=0).out == b"x"


@pytest.mark.parametrize("command, reason", [("exit 3", "exit-3"), ("exit 75", "exit-75"),
    ("exit 200", "exit-200"), ("exit 142", "signal-14"), ("kill -9 $$", "signal-9"),
    ("kill -9 0", "signal-9"), ("kill -TERM 0; sleep 60", "signal-15"), ("sleep 60; :", "timeout")])
def test_after_most_tries_it_is_buried_with_the_reason(shell, flatq, command, reason):
    number = push(flatq, b"x")
    limit = ["-x", "1"] if reason == "timeout" else []
    done = flatq("work", "-w", "0", "-d", "0", "-m", "2", *limit, "--", "sh", "-c", command,
        check=0)
    assert listed(flatq) == [(number, "buried", 2, reason)]
    assert done.err.decode().splitlines() == [
        f"work: queue 'default': message {number}, try 1: {reason}, again in 0 s",
        f"work: queue 'default': message {number}, try 2: {reason}, buried",
    ]


def test_the_queues_own_most_tries_count_as_well(flatq):
    flatq("create", "-m", "1", check=0)
    number = push(flatq, b"x")
    flatq("work", "-w", "0", "-m", "5", "--", "false", check=0)
    assert listed(flatq) == [(number, "buried", 1, "exit-1")]
    flatq("kick", check=0)
    flatq("create", "-m", "5", check=0)
    flatq("work", "-w", "0", "-d", "0", "-m", "2", "--", "false", check=0)
    assert listed(flatq) == [(number, "buried", 2, "exit-1")]


@pytest.mark.shells
def test_what_a_failed_command_said_is_kept(shell, flatq, spool):
    """The end of it, beside the message; the worker passes on all. A child that has the pipe costs
    a second."""
    number = push(flatq, b"x")
    kept = spool / f"default/why/{number:012}"
    for option, said in (("-k", b""), ("-e", b"x" * 4090 + b"\xff last")):
        done = flatq("work", "-w", "0", "-n", "1", option, "-d", "0", "-m", "2", "--", "sh", "-c",
            "printf '\\0%3000000s\\377 last' '' | tr ' ' x >&2; exit 3", check=0)
        assert done.err.startswith(b"\0" + b"x" * 3000000 + b"\xffxlast"), done.err[:99]
        assert (kept.read_bytes() if kept.exists() else b"") == said.replace(b" ", b"x")
    for command, said in (("trap 'echo term >&2; exit 1' TERM; sleep 60; :", b"term\n"),
            ("sleep 3 & exit 3", b"")):
        flatq("kick", check=0)
        flatq("work", "-w", "0", "-m", "1", "-x", "2", "--", "sh", "-c", command, check=0)
        assert kept.read_bytes()[-5:] == said
    flatq("delete", "-s", "buried", "default", check=0)
    flatq("wal", check=0)
    assert not kept.exists()


@pytest.mark.shells
def test_what_a_killed_job_has_left_says_nothing_of_the_next(shell, flatq, spool, tmp_path):
    """The first job's shell is killed, and what it has started in a session of its own writes to
    the same standard error while the second one runs."""
    first, second = push(flatq, b"first"), push(flatq, b"second")
    flatq("work", "-w", "0", "-m", "1", "--", "sh", "-c", f"""cd {tmp_path}
        read -r name || :
        if [ "$name" = first ]; then
            trap "" PIPE
            setsid sh -c '>apart
                until [ -e began ]; do sleep 0.01; done; echo first >&2; >done' &
            until [ -e apart ]; do sleep 0.01; done
            kill -9 $PPID
            sleep 60
        fi
        >began
        until [ -e done ]; do sleep 0.01; done
        echo second >&2
        exit 3""", check=0)
    assert listed(flatq) == [(first, "buried", 1, "signal-9"), (second, "buried", 1, "exit-3")]
    assert (spool / f"default/why/{second:012}").read_bytes() == b"second\n"


@pytest.mark.shells
def test_lines_of_several_jobs_are_whole(shell, flatq):
    flatq("push", "-l", "default", input=b"\n".join(b"%d" % n for n in range(20)) + b"\n", check=0)
    done = flatq("work", "-w", "0", "-j", "4", "--", "sh", "-c",
        'read n; echo "line of job $n" >&2', check=0)
    assert sorted(line for line in done.err.splitlines() if not line.startswith(b"work:")) == sorted(
        b"line of job %d" % n for n in range(20))


@pytest.mark.shells
def test_what_cannot_be_kept_ends_no_command(shell, flatq, stub):
    """The file for it may be on a disk that is full."""
    stub("dd", '"$REAL" "$@" >/dev/full')
    push(flatq, b"x")
    done = flatq("work", "-w", "0", "-n", "1", "--", "sh", "-c",
        "echo a >&2; sleep 0.3; echo b >&2; cat >&2", check=0)
    assert done.err == b"b\nx" and not listed(flatq)


def test_nobody_reads_what_the_worker_passes_on(shell, flatq):
    """The command is told by SIGPIPE, and does not wait for ever."""
    push(flatq, b"x")
    done = subprocess.run(["sh", "-c", '"$@" 2>&1 | true', "-", *flatq.command("work", "-n", "1",
        "-m", "1", "--", "sh", "-c", "sleep 0.3; head -c 300000 /dev/zero >&2; exit 3")],
        env=flatq.env, cwd=flatq.home, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0 and listed(flatq)[0][1] == "buried"


def test_why_a_message_failed(flatq, clock):
    """list -v has the last line of what it said, why all of it, and the tries before."""
    push(flatq, b"<first>\x1b line\nmore", "-p", "7", "q")
    push(flatq, b"y", "-d", "99", "q")
    for _ in range(2):
        flatq("work", "-q", "q", "-d", "5", "-m", "2", "-n", "1", "--", "sh", "-c",
            r"printf 'Traceback\n  E\033rror: x\n\n' >&2; exit 3", check=0)
        clock.advance(6)
    assert re.fullmatch(r"2 delayed 65536 0 1 12 \d{10}\n1 buried 7 2 18 12 exit-3 Error: x\n",
        flatq("list", "-v", "q", check=0).out.decode())
    assert shown_on_terminal(flatq, "list", "-v", "q")[0].splitlines()[2].endswith(
        "exit-3  Error: x")
    said = re.sub(
        r"(?m)^(pushed )?\d{4}-\d\d-\d\d [\d:.]{8,} ?|(?<= )[.\d]+ s after its push", "\\1",
        flatq("why", "q:1", check=0).out.decode())
    said = re.sub(r"until [\d: -]+", "until DAY", said)
    assert said == """\
id 1
queue q
state buried
reason exit-3
priority 7
tries 2
size 18
pushed 
body <first> line

q push 1 18 bytes
q release 1 given back: its command ended with 3, until DAY, try 1
q bury 1 set aside: its command ended with 3, try 2

Traceback
  Error: x

"""
    assert re.search(rb"\nstate delayed\nuntil \d{4}-[\d: -]+\n", flatq("why", "q:02",
        check=0).out)
    for words, code in (("q:3", 66), ("q", 64), ("q:x", 65), ("none:1", 66)):
        refused(flatq("why", words), code, "why")


def test_a_command_gives_the_reason(flatq):
    """A word in a file, which goes; one that the worker uses itself means nothing there."""
    words = {"bad-link": "bad-link", "-": "exit-9", "a b": "exit-9", "": "exit-9",
        "x" * 41: "exit-9", "aborted": "aborted", "late": "timeout"}
    for word in words:
        push(flatq, word.encode())
    done = flatq("work", "-w", "0", "-m", "1", "-x", "2", "--", "sh", "-c",
        'echo "$FLATQ_REASON"; word=$(cat); [ "$word" = - ] || echo "$word" >"$FLATQ_REASON"; '
        '[ "$word" != late ] || sleep 60; exit 9', check=0)
    assert [row[1:] for row in listed(flatq)] == [("buried", 1, why) for why in words.values()]
    assert not any(map(os.path.exists, done.out.decode().split()))


# when the worker stops


def test_of_a_closed_queue_it_tries_again_what_has_failed(shell, flatq):
    push(flatq, b"x")
    flatq("close", check=0)
    done = flatq("work", "-d", "1", "--", "sh", "-c", 'cat; [ "$FLATQ_TRIES" = 2 ]', check=0)
    assert done.out == b"xx" and flatq("list", "default", check=0).out == b""


# commands that do not exist


def test_no_such_command(flatq, tmp_path):
    """The worker stops, and the message has had no try. `die` is a function of lib."""
    number = push(flatq, b"x")
    plain = tmp_path / "plain"
    plain.touch()
    for command, status, text in (("no-such-command", 69, b"no command 'no-such-command'"),
            (tmp_path / "none", 69, b""), (plain, 77, b"not executable"), (tmp_path, 69, b""),
            ("die", 69, b"")):
        refused(flatq("work", "-m", "1", "--", command), status, "work", text=text)
    assert listed(flatq) == [(number, "ready", 0, "")]


@pytest.mark.parametrize("script, said, left", [
    ("no-such-command 2>/dev/null", b"exited with 127", 2),
    ("rm once.sh", b"no command './once.sh'", 1)])
def test_a_command_that_is_not_there_buries_no_queue(flatq, script, said, left):
    """It says 127 by itself at the first message, or goes away with it."""
    once = flatq.home / "once.sh"
    once.write_text(f"#!/bin/sh\n{script}\n")
    once.chmod(0o755)
    for body in (b"x", b"y"):
        push(flatq, body)
    done = flatq("work", "-w", "0", "-m", "1", "--", "./once.sh")
    # Where it is gone, the shell says so, too
    assert done.status == 69 and said in done.err.splitlines()[-1], done
    states = [row[1] for row in listed(flatq)]
    assert len(states) == left and set(states) <= {"ready", "delayed"}


def test_once_it_has_worked_127_is_the_messages_fault(flatq):
    push(flatq, b"true")
    number = push(flatq, b"no-such-command")
    push(flatq, b"printf last")
    done = flatq("work", "-w", "0", "-m", "1", "--", "sh", check=0)
    assert done.out == b"last"
    assert listed(flatq) == [(number, "buried", 1, "exit-127")]


# the lease


@pytest.mark.parametrize("lease", [60, 4294967295])
def test_the_lease_is_renewed_in_full(shell, flatq, spool, hold, clock, lease):
    """Until the command ends. A lease counts for 3,472 days at most. The message had none of its
    own."""
    push(flatq, b"x", "-t", "0")
    process, _ = working(flatq, hold, "-w", "0", "-t", str(lease))
    lease = min(lease, 300000000)
    for _ in range(4):
        before = lies(spool)["out"]
        clock.advance(lease // 3 + 1)
        wait_for(lambda: lies(spool).get("out") not in (None, before), "the deadline moves")
        end = int(lies(spool)["out"][0].rpartition(".")[2]) / 100 - clock.base
        assert lease - 1 <= end - clock.seconds <= lease
    empty(flatq)
    (hold / "go").touch()
    ended(process, 0)
    assert (hold / "body").read_bytes() == b"x" and listed(flatq) == []
    nothing_left(process, spool)


def test_who_has_lost_the_lease_ends_the_command(shell, flatq, hold, spool):
    """The worker and its helper stood still. The message is left to the other consumer."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-w", "0", "-t", "3")
    both = [helper_of(process.pid), process.pid]
    for one in both:
        os.kill(one, signal.SIGSTOP)
    assert pop(flatq, "-w", "60") == b"x"
    for one in both:
        os.kill(one, signal.SIGCONT)
    assert ended(process, 0)[1].endswith(b"try 1: its lease ended, it was given to others\n")
    assert not (hold / "body").exists() and not alive(pid)
    nothing_left(process, spool)


def test_a_worker_that_stands_still_keeps_its_message(shell, flatq, hold, spool):
    """As long as its command runs (^Z)."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-w", "0", "-t", "3")
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: touched(spool) >= 3, "the lease is renewed")
    empty(flatq)
    (hold / "go").touch()
    wait_for(lambda: not alive(pid), "the command ends")
    process.send_signal(signal.SIGCONT)
    assert ended(process, 0) == (b"", b"")
    assert listed(flatq) == []


@pytest.mark.parametrize("lost", [True, False])
def test_a_worker_that_stands_still_behind_its_take(shell, flatq, stub, clock, lost):
    """Until another consumer has the message; or for 8 s of 10: then the lease is renewed first."""
    push(flatq, b"x")
    later, then = (9000, " ".join(flatq.command("pop"))) if lost else (5008, ":")
    stub("mv", f'''"$REAL" "$@" || exit; case $* in */out/*) [ -e "$ONCE" ] || {{ >"$ONCE"
        echo "{clock.base + later}.00 0" >{clock.path}/uptime; {then}; }} ;; esac''')
    done = flatq("work", "-w", "0", "-n", "1", "-t", "10", "--", "sh", "-c",
        'ls "$FLATQ_DIR/default/out"', check=0)
    if lost:
        assert done.out == b"x"
        assert done.err.endswith(b"try 1: its lease ended, it was given to others\n")
    else:
        end = int(done.out.strip().rpartition(b".")[2]) / 100
        assert 5018 <= end - clock.base < 5019


def test_a_command_whose_lease_cannot_be_renewed_ends_with_the_lease(shell, flatq, stub, hold,
        clock):
    """From then on, another worker may have the message."""
    stub("mv", """case "$*" in */out/*" "*/out/*) echo x >>"$ONCE"
        echo "mv: cannot move: Input/output error" >&2; exit 1 ;; esac\nexec "$REAL" "$@" """)
    push(flatq, b"x", "-t", "60")
    process, pid = working(flatq, hold, "-n", "1")
    once = flatq.home.parent / "stubs/mv.once"
    tries = lambda: len(once.read_bytes()) if once.exists() else 0
    clock.advance(21)
    wait_for(tries, "it has tried to renew it")
    clock.advance(38)
    before = tries()
    wait_for(lambda: tries() > before, "it tries again")
    assert alive(pid)
    clock.advance(2)
    process.wait(60)
    assert not alive(pid)
    # A pop looks for what has to come back once a second
    clock.advance(2)
    assert flatq("pop").out == b"x"


# signals


def handled(pid, number):
    """Send the signal, and wait until the process has handled it."""
    os.kill(pid, number)
    status = Path(f"/proc/{pid}/status")
    wait_for(lambda: not re.search(r"(SigPnd|ShdPnd):\s.*[1-9a-f]", status.read_text()),
        "the signal is handled")


def insist(process, number):
    """Send the signal until the worker ends: of several signals that come together, a shell may
    notice only one."""
    for _ in range(200):
        process.send_signal(number)
        try:
            return process.wait(0.3)
        except subprocess.TimeoutExpired:
            pass
    raise AssertionError("the worker does not end")


# how the signal comes: to the worker, to its process group as `kill %1` sends it, or to the parent
# of two workers
@pytest.mark.parametrize("how, number", [("one", signal.SIGTERM), ("two", signal.SIGTERM),
    ("group", signal.SIGINT), ("one", signal.SIGQUIT), ("two", signal.SIGINT),
    ("group", signal.SIGTERM)])
def test_the_first_signal_lets_the_job_end(shell, flatq, spool, hold, how, number):
    """It gets its message whole, and no other is taken."""
    body = os.urandom(400000)
    push(flatq, body)
    process, pid = working(flatq, hold, "-j", "2" if how == "two" else "1", "-x", "60")
    if how == "two":
        wait_for(lambda: lies(spool).get("wait"), "the other worker waits")
    if how == "group":
        os.killpg(process.pid, number)
    else:
        handled(process.pid, number)
    wait_for(lambda: not lies(spool).get("wait"), "no worker waits")
    push(flatq, b"second")
    assert process.poll() is None and alive(pid)
    (hold / "go").touch()
    assert ended(process, 0) == (b"", b"")
    assert (hold / "body").read_bytes() == body
    assert pop(flatq) == b"second"
    empty(flatq)
    nothing_left(process, spool)


@pytest.mark.parametrize("jobs, numbers", [("1", [signal.SIGTERM] * 2), ("2", [signal.SIGTERM] * 2),
    ("1", [signal.SIGHUP])])
def test_a_second_signal_or_hup_gives_the_job_back_at_once(shell, flatq, spool, hold, jobs,
        numbers):
    """It goes to the command, which need not listen, and to all that it has started."""
    push(flatq, b"x")
    deaf = "trap '' TERM HUP; " * (len(numbers) == 1)
    process, _ = working(flatq, hold, "-j", jobs, "-m", "1",
        script=f"{deaf}sleep 100 & {HOLD}; :")
    process.send_signal(numbers[0])
    insist(process, numbers[-1])
    assert process.returncode == -numbers[-1]
    assert pop(flatq) == b"x"
    nothing_left(process, spool)


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_an_idle_worker_stops(shell, flatq, spool, number, jobs):
    process = flatq.start("work", "-j", jobs, "-q", "default,other", "--", "cat")
    wait_for(lambda: len(lies(spool, "other").get("wait", ())) == int(jobs), "it is about to wait")
    process.send_signal(number)
    assert ended(process, 0) == (b"", b"")
    nothing_left(process, spool)


@pytest.mark.parametrize("tool, when", [("mv", "*/done/*"), ("sync", "*"), ("base64", "-d")])
def test_a_signal_to_the_group_ends_a_tool(request, shell, flatq, stub, tool, when):
    """The message is settled nevertheless, and its command not run again."""
    if tool == "sync":
        shutil.rmtree(flatq.spool)
        flatq.env["FLATQ_SYNC"] = "on"
    push(flatq, b"x")
    stub(tool, f"""case $* in {when}) [ -e "$ONCE" ] || {{ >"$ONCE"; kill -TERM $$; }} ;; esac
        exec "$REAL" "$@" """)
    done = flatq("work", "-w", "0", "--", "sh", "-c", "cat >>ran")
    assert (done.status, done.err) == (0, b""), done
    assert (flatq.home / "ran").read_text() == "x"
    assert listed(flatq) == []


# the job's shell is ended as it starts
AT_BIRTH = """case $* in *" work "*) [ -e "$ONCE" ] || { >"$ONCE"; %s; } ;; esac
exec "$REAL" "$@" """
BEFORE = [("setsid", AT_BIRTH % "kill -TERM $PPID $$", 0),
    ("setsid", AT_BIRTH % "kill -KILL $$", 1),
    ("mv", '"$REAL" "$@"; case $* in */wal/*" "*/out/*) kill -TERM "$PPID" ;; esac', 0)]


@pytest.mark.parametrize("program, script, tries", BEFORE, ids=["job", "killed", "taken"])
def test_a_job_that_is_ended_before_the_command_begins(shell, flatq, stub, program, script, tries):
    """By TERM, as the worker: that was no try. By KILL alone: the helper tells the worker."""
    stub(program, script)
    push(flatq, b"x")
    done = flatq("work", "-n", "1", "-d", "0", "--", "touch", "ran", check=0)
    assert done.out == b""
    assert listed(flatq) == [(1, "ready", tries, "")] and not (flatq.home / "ran").exists()


@pytest.mark.parametrize("when", share("hup", range(1, 13), 2))
def test_a_signal_is_heard_at_any_time(flatq, spool, when):
    """Also just before the worker begins to wait."""
    push(flatq, b"first", "-t", "3600")
    words = flatq.command("work", "--", "sleep", "100")
    process = subprocess.Popen([need("strace"), "-qq", "-o", "/dev/null", "-e",
        f"inject=clone,clone3,fork,vfork,wait4:signal=HUP:when={when}", *words],
        env=flatq.env, cwd=flatq.home, start_new_session=True)
    flatq.started.append(process)
    stopped_by(process, signal.SIGHUP)
    assert pop(flatq) == b"first"
    nothing_left(process, spool)


# killed processes

# the command is not the process that HOLD names, but what started it
TWO = f"sh -c '{HOLD}' sh \"$1\"; :"


def test_a_killed_worker_gives_back_to_another_at_once(shell, flatq, spool, hold):
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-j", "2", script=TWO)
    (hold / "pid").unlink()
    os.kill(parent_of(parent_of(parent_of(pid))), signal.SIGKILL)
    dies_at_once(pid)
    assert held(hold) != pid
    (hold / "go").touch()
    wait_for(lambda: listed(flatq) == [], "the other worker has done it")
    wait_for(lambda: lies(spool).get("wait"), "it waits")
    push(flatq, b"last")
    wait_for(lambda: listed(flatq) == [], "it goes on")
    flatq("close", check=0)
    ended(process, 70)
    nothing_left(process, spool)


@pytest.mark.parametrize("how", ["worker", "group", "helper, then worker", "no fork"])
def test_a_dead_worker_leaves_no_command(shell, flatq, spool, hold, how):
    """Nor what that has started: also if it dies soon after its helper, or neither can start a
    process any more."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, script=TWO)
    helper = helper_of(process.pid)
    if how == "group":
        os.killpg(process.pid, signal.SIGKILL)
    elif how == "no fork":
        fault = "inject=clone,clone3,fork,vfork:error=ENOMEM"
        with subprocess.Popen([need("strace"), "-qq", "-o", "/dev/null", "-e", fault,
                "-p", str(process.pid), "-p", str(helper)]):
            assert ended(process, 74) == (b"", b"work: cannot start a process\n")
    else:
        if how != "worker":
            os.kill(helper, signal.SIGKILL)
            time.sleep(0.4)
        process.kill()
    dies_at_once(pid)
    assert pop(flatq) == b"x"
    nothing_left(process, spool)


@pytest.mark.parametrize("when", ["idle", "busy"])
def test_a_killed_helper_is_replaced(shell, flatq, spool, hold, when):
    """The new one does the work of the old one: it renews the lease, and ends the command of a
    killed worker."""
    push(flatq, b"first")
    process = flatq.start("work", "-t", "3", "-m", "1", "--", "sh", "-c",
        f'[ "$FLATQ_ID" = 1 ] || {{ {HOLD}; }}', "sh", hold)
    wait_for(lambda: lies(spool).get("wait"), "it waits")
    if when == "busy":
        push(flatq, b"x")
        pid = held(hold)
    first = helper_of(process.pid)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not alive(first))
    if when == "idle":
        push(flatq, b"x")
        pid = held(hold)
    assert helper_of(process.pid) != first
    before = touched(spool)
    wait_for(lambda: touched(spool) > before + 1, "the lease is renewed")
    assert listed(flatq)[0][1:3] == ("reserved", 1)
    process.kill()
    dies_at_once(pid)
    assert pop(flatq) == b"x"
    nothing_left(process, spool)


def test_a_helper_that_stands_still_holds_up_no_worker(shell, flatq):
    """It does not read what the jobs tell it, so its FIFO would fill up."""
    queue = "q" * 200
    flatq("push", "-l", queue, input=b"x\n" * 130)
    process = flatq.start("work", "-q", queue, "-w", "0", "--", "true")
    helper = helper_of(process.pid)
    os.kill(helper, signal.SIGSTOP)
    try:
        assert ended(process, 0) == (b"", b"")
        assert listed(flatq, queue) == [] and not alive(helper)
    finally:
        process.kill()
        if alive(helper):
            os.kill(helper, signal.SIGKILL)


def test_a_killed_job_ends_its_command(shell, flatq, spool, hold):
    """The shell between worker and command: nobody would tell the worker the exit code."""
    push(flatq, b"x")
    process, pid = working(flatq, hold, "-n", "1", "-d", "9")
    os.kill(parent_of(pid), signal.SIGKILL)
    assert b"signal-9, again in 9 s" in ended(process, 0)[1]
    assert not alive(pid)
    nothing_left(process, spool)


# the program that is struck, and how: a killed worker's helper, the next worker, and the worker
# itself remove the file of a message
LEFT = [("base64", """[ "$1" = -d ] || exec "$REAL" "$@"; ls "$TMPDIR" >"$HOME/there"
        kill -KILL $PPID"""),
    ("rm", """case $* in *.flatq) [ -e "$ONCE" ] || { >"$ONCE"; kill -KILL $$; } ;; esac
        ls "$TMPDIR" >"$HOME/there"; exec "$REAL" "$@" """)]


@pytest.mark.parametrize("program, script", LEFT, ids=[row[0] for row in LEFT])
def test_what_is_left_in_tmp_is_removed(shell, flatq, spool, stub, tmp_path, program, script):
    there = tmp_path / "tmp"
    there.mkdir()
    flatq.env["TMPDIR"] = str(there)
    living = f"{os.getpid()}-999999999999.0123456789ab.flatq"
    for name in (living, "4194304-000000000001.0123456789ab.flatq", "other.flatq"):
        (there / name).touch()
    push(flatq, b"x")
    stub(program, script)
    process = flatq.start("work", "-w", "0", "--", "cat")
    assert process.communicate(timeout=60)[0] == (b"x" if program == "rm" else b"")
    assert ".flatq\n" in (flatq.home / "there").read_text()
    wait_for(lambda: sorted(path.name for path in there.iterdir()) == sorted([living,
        "other.flatq"]), "all else is removed")
    wait_for(lambda: not carriers(spool))


def test_a_message_that_workers_die_of_is_buried(flatq, hold):
    push(flatq, b"x")
    for _ in range(2):
        process, _ = working(flatq, hold, "-m", "2")
        process.kill()
        process.wait()
        (hold / "pid").unlink()
    done = flatq("work", "-w", "0", "-m", "2", "--", "cat", check=0)
    assert done.out == b"" and b"dead, buried" in done.err, done
    assert listed(flatq)[0][1] == "buried"
    flatq("kick", check=0)
    assert flatq("work", "-w", "0", "-m", "2", "--", "cat", check=0).out == b"x"


@pytest.mark.parametrize("on_term", ["echo term; exit 0", ""], ids=["exits", "deaf"])
def test_a_command_out_of_time_has_failed_whatever_it_says(shell, flatq, spool, hold, on_term):
    """It gets TERM, and KILL 5 s later, with all that it has started."""
    push(flatq, b"x")
    began = time.monotonic()
    done = flatq("work", "-w", "0", "-n", "1", "-d", "9", "--timeout", "2", "--", "sh", "-c",
        f"trap '{on_term}' TERM; sleep 100 & {HOLD}", "sh", hold, check=0)
    assert done.out == (b"term\n" if on_term else b"") and b"timeout, again in 9 s" in done.err
    assert time.monotonic() - began > (2 if on_term else 7)
    wait_for(lambda: not carriers(spool), "all of it is gone")


# several workers

@pytest.mark.parametrize("how", ["busy", "helpers first", "idle"])
def test_workers_whose_parent_is_killed_give_back_and_end(shell, flatq, spool, tmp_path, how):
    """They must not live on outside the pid file."""
    for _ in range(0 if how == "idle" else 4):
        push(flatq, b"x")
    script = f'mkdir "$1/$FLATQ_ID"; set -- "$1/$FLATQ_ID"; sleep 100 & {HOLD}'
    process = flatq.start("work", "--jobs", "2", "--", "sh", "-c", script, "sh", tmp_path)
    if how == "idle":
        wait_for(lambda: len(lies(spool).get("wait", ())) == 2, "they wait")
    else:
        wait_for(lambda: len(list(tmp_path.glob("*/pid"))) == 2, "two run")
    # The parent also has a short `sleep`
    workers = [one for one in children(process.pid) if b"--child" in words_of(one)]
    for worker in workers if how == "helpers first" else ():
        os.kill(helper_of(worker), signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: not carriers(spool), "the workers have ended")
    assert {row[1] for row in listed(flatq)} == (set() if how == "idle" else {"ready"})


# the worker's output


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_progress_in_one_line_on_a_terminal_only(shell, flatq, jobs):
    for body in (b"0", b"0", b"7"):
        push(flatq, body)
    args = ["work", "-w", "0", "-d", "600", "-j", jobs, "--", "sh", "-c", 'exit "$(cat)"']
    leader, terminal = pty.openpty()
    process = flatq.start(*args, stderr=terminal, stdout=subprocess.DEVNULL)
    os.close(terminal)
    said = on_terminal(leader).decode()
    os.close(leader)
    assert process.wait(60) == 0
    line = r"work: queue 'default': message \d+, try 1: exit-7, again in 600 s\r\n"
    assert re.search(line, said), said
    assert said.endswith("work: 2 done, 1 failed, 0 buried\r\n") and said.count("\n") == 2, said
    push(flatq, b"0")
    assert flatq(*args, check=0).err == b""
