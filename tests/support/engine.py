"""What the tests of the engine share: a reservation as a tuple, one clear line, what lies on the disk, shell loops, a clock to set."""

import os
import re
import select
import signal
import subprocess
import time
from collections import namedtuple
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import LIB, Result, need, wait_for

from flatq.crashlab.gate import processes

Reserved = namedtuple("Reserved", "receipt id tries length body")

# what a queue's directory holds beside messages
NO_MESSAGE = {"log", "lock", "tended", "conf", "closed"}


def push(flatq, body, *args, **more):
    """The id of a new message."""
    done = flatq("push", *args, input=body, check=0, **more)
    assert re.fullmatch(rb"[1-9][0-9]*\n", done.out), done
    assert done.err == b""
    return int(done.out)


def pop(flatq, *args, **more):
    """What pop says, in full, where it must have found something."""
    done = flatq("pop", *args, check=0, **more)
    assert done.err == b""
    return done.out


def reserve(flatq, *args, **more):
    done = flatq("reserve", *args, check=0, **more)
    assert done.err == b""
    head, body = done.out.split(b"\n", 1)
    receipt, number, tries, length = head.decode().split(" ")
    assert int(length) == len(body), (head, len(body))
    return Reserved(receipt, int(number), int(tries), int(length), body)


def refused(result, status, verb=None, *, text=b""):
    """The exit code, nothing on stdout, and one clear line on stderr."""
    assert (result.status, result.out) == (status, b""), result
    assert result.err.count(b"\n") == 1 and result.err.endswith(b"\n"), result
    assert text in result.err, result
    if verb:
        assert result.err.startswith(verb.encode() + b": "), result
    return result


def empty(flatq, *queues, **more):
    """Nothing is ready in any of the queues."""
    refused(flatq("pop", *queues, **more), 66, "pop")


def lies(spool, queue="default"):
    """The files of a queue, by place: {"wal": [names], ...}. Markers, the log and what waiters left are among them."""
    base = spool / queue
    found = {}
    for root, _, names in os.walk(base):
        place = Path(root).relative_to(base).parts
        for name in names:
            if (place or name not in NO_MESSAGE) and name != "~":
                found.setdefault(place[0] if place else "", []).append(name)
    return found


def stopped_by(process, number):
    """It ends as whoever sent the signal expects; mksh says 128 and the number for some of them."""
    assert process.wait(60) in (-number, 128 + number)


def stop_waiting(clock, waiting):
    """Send each (signal, waiting process) its signal, and see it end. yash notices the signal only when its sleeper ends."""
    for number, process in waiting:
        process.send_signal(number)
    for number, process in waiting:
        assert clock.passes(process) <= 2
        stopped_by(process, number)


def loop(flatq, script, *args, timeout=600, shell=None):
    """A script with $sh, $lib: many verbs in a row without coming back to Python between them. It must succeed."""
    done = subprocess.run(
        ["dash", "-c", script, "loop", *map(str, args)], env=flatq.environment({"sh": shell or flatq.shell, "lib": str(LIB)}),
        cwd=flatq.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
    )
    assert done.returncode == 0, done
    return Result(done.returncode, done.stdout, done.stderr)


def drain(flatq, queue="default", timeout=600):
    """Every message that is ready, one pop each, as one string of bytes."""
    done = loop(flatq, 'while "$sh" "$lib/pop" "$1"; do :; done', queue, timeout=timeout)
    assert done.err.count(b"\n") == 1, done.err[-300:]
    return done.out


def children(pid):
    """The processes that pid has started and that still are."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as numbers:
            return [int(number) for number in numbers.read().split()]
    except OSError:
        return []


def command_of(pid):
    """The name of the program pid runs; empty where there is no such process, or a zombie."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() if Path(f"/proc/{pid}/cmdline").read_bytes() else ""
    except OSError:
        return ""


def child_named(process, name):
    """The pid of a process below `process` that runs the program called so; None where there is none."""
    found = children(process.pid)
    for pid in found:
        if command_of(pid) == name:
            return pid
        found += children(pid)
    return None


def used(pid):
    """Seconds of processor time, of pid and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def holders(path):
    """Processes that have something below path open, or work there."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            links = [*(process / "fd").iterdir(), process / "cwd"]
            if any(os.readlink(link).startswith(str(path) + "/") for link in links):
                found.append((int(process.name), command_of(process.name)))
        except OSError:
            continue
    return found


# `sleep` of a Clock: it is asleep until the clock, or a signal, says otherwise. Less than a fifth of a second, a look now and then, ends by itself
SLEEP = """case $1 in 0.0* | 0.1*) for=$1 ;; *) for=1000000 ;; esac
case $1 in *.??) set -- "${1%.*}" "${1#*.}" ;; *) set -- "$1" 00 ;; esac
read -r now rest <"$FLATQ_PROC/uptime"
end=$((${now%.*} * 100 + 1${now#*.} + $1 * 100 + 1$2 - 200))
printf '%s\\n' "$end" >"$FLATQ_PROC/sleeping/$$"
# RACE: the clock was set before it knew of us
read -r now rest <"$FLATQ_PROC/uptime"
[ "${now%.*}${now#*.}" -lt "$end" ] || exit 0
exec "$REAL" "$for" """


class Clock:
    """A /proc of one's own, for FLATQ_PROC: the time since the start and the boot are what the test says.

    It shows no processes, so nobody's death is proven. After runs_sleep(), `sleep` goes by it as well."""

    def __init__(self, path):
        self.path = path
        (path / "sys/kernel/random").mkdir(parents=True)
        (path / "sys/kernel/random/uuid").symlink_to("/proc/sys/kernel/random/uuid")
        (path / "self").symlink_to("/proc/self")
        (path / "net").symlink_to("/proc/net")
        (path / "sleeping").mkdir()
        self.reboot("first", 5000)

    def set(self, seconds):
        self.seconds = seconds
        new = self.path / "uptime.new"
        new.write_text(f"{seconds:.2f} {seconds:.2f}\n")
        new.rename(self.path / "uptime")
        for pid, left in self.sleepers().items():
            if left <= 0:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # a worker's alarm ignores the others

    def advance(self, seconds):
        self.set(self.seconds + seconds)

    def reboot(self, name, seconds=10):
        (self.path / "sys/kernel/random/boot_id").write_text(name + "\n")
        self.set(seconds)

    def runs_sleep(self, stub):
        stub("sleep", SLEEP)
        return self

    def shows(self, pid):
        """Show this process, as long as it is there."""
        (self.path / str(pid)).symlink_to(f"/proc/{pid}")

    def sleepers(self):
        """For how many seconds each process sleeps, by its number."""
        found = {}
        for entry in self.path.glob("sleeping/*"):
            end, pid = entry.read_text(), int(entry.name)
            if end and command_of(pid) == "sleep":
                found[pid] = round(int(end) / 100 - self.seconds, 2)
        return found

    def sleeps_of(self, process):
        return [left for pid, left in self.sleepers().items() if left > 0 and pid in children(process.pid)]

    def asleep(self, process):
        """For how many seconds a waiting verb is going to sleep, as soon as it does."""
        return wait_for(lambda: self.sleeps_of(process), "it sleeps")[0]

    def passes(self, process):
        """Time passes as it sleeps, until it ends: how many seconds."""
        began = self.seconds

        def ended():
            left = self.sleeps_of(process)
            if left:
                self.advance(min(left))
            return process.poll() is not None

        wait_for(ended, "the end of who waits")
        return round(self.seconds - began, 2)


@pytest.fixture
def clock(clock, stub):
    """Instead of conftest's: `sleep` goes by it as well. So whoever waits goes on only when it is woken, or when the test lets time pass."""
    return clock.runs_sleep(stub)


def alive(pid):
    """Whether it still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def carriers(spool):
    """What runs with that spool, or another mark, in its environment: all that belongs to one launch, whatever session it is in."""
    return processes.carriers(str(spool).encode())


def end_launches(spool, *processes):
    """Ends each launch; kills what is left of them with that spool, and returns it."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                pass
    rest = carriers(spool)
    for pid in rest:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return rest


def flats_of(spool, queue, place):
    """The flat files in a place of the queue."""
    return sorted(path for path in (spool / queue / place).rglob("*") if path.name.count(".") == 5 and path.is_file())


def faulty(flatq, call, path, verb, *args, error="EIO", when="1", input=b"", env=None):
    """Run a verb in whose processes this system call on this path fails. Return its exit status and output."""
    done = subprocess.run(
        [need("strace"), "-f", "-qq", "-o", "/dev/null", "-P", f"{path}", "-P", f"{path}/", "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}",
         "--", *flatq.command(verb, *args)], input=input, env=flatq.environment(env), cwd=flatq.home, timeout=100, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    # strace prints a line if a path is not the shortest way to its file
    done.stderr = b"".join(line for line in done.stderr.splitlines(keepends=True) if b"strace: Requested path" not in line)
    return done


def on_terminal(leader, what=b""):
    """What is said on a terminal until that is among it, or until nobody has the terminal open; within a minute."""
    said, end = b"", time.monotonic() + 60
    with suppress(OSError):
        while time.monotonic() < end and not (what and what in said) and select.select([leader], [], [], 60)[0]:
            said += os.read(leader, 10000)
    return said
