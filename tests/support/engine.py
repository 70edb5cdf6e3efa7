"""What the tests of the engine share: a reservation as a tuple, one clear line of error, the files
of a queue, shell loops, a clock to set."""

import os
import pty
import re
import select
import subprocess
import time
from collections import Counter, namedtuple
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import LIB, Result, need, wait_for

from crash.gate import processes
from crash.gate.processes import children, kill, words as words_of  # noqa: F401

Reserved = namedtuple("Reserved", "receipt id tries length body")

# the files of a queue's directory that are no messages
NO_MESSAGE = {"log", "lock", "tended", "conf", "closed"}


def push(flatq, body, *args, **more):
    """The id of a new message."""
    done = flatq("push", *args, input=body, check=0, **more)
    assert re.fullmatch(rb"[1-9][0-9]*\n", done.out), done
    assert done.err == b""
    return int(done.out)


def pop(flatq, *args, **more):
    """All that pop prints. It must find a message."""
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
    """The verb must have ended with this exit code, nothing on stdout, and one clear line on
    stderr."""
    assert (result.status, result.out) == (status, b""), result
    assert result.err.count(b"\n") == 1 and result.err.endswith(b"\n"), result
    assert text in result.err, result
    if verb:
        assert result.err.startswith((f"{verb}: ".encode(), f"flatq {verb}: ".encode())), result
    return result


def empty(flatq, *queues, **more):
    """No message is ready in any of the queues."""
    refused(flatq("pop", *queues, **more), 66, "pop")


def lies(spool, queue="default"):
    """The files of a queue, by place: {"wal": [names], ...}, also markers, rotated logs, and the
    files of waiters."""
    base = spool / queue
    found = {}
    for root, _, names in os.walk(base):
        place = Path(root).relative_to(base).parts
        for name in names:
            if (place or name not in NO_MESSAGE) and name != "~":
                found.setdefault(place[0] if place else "", []).append(name)
    return found


def calls_in(log):
    """(NAME, N) for each call in a file of strace's, as in `inject=NAME:signal=TERM:when=N`."""
    made, found = Counter(), []
    for name in re.findall(r"^(\w+)\(", log.read_text(), re.M):
        made[name] += 1
        found.append((name, made[name]))
    return found


def stopped_by(process, number):
    """The process ends as the sender of the signal expects."""
    assert process.wait(60) in (-number, 128 + number)


def loop(flatq, script, *args, timeout=600):
    """Run a script with $sh and $lib: many verbs in a row. It must succeed."""
    done = subprocess.run(
        ["dash", "-c", script, "loop", *map(str, args)],
        env=flatq.environment({"sh": flatq.shell, "lib": str(LIB)}),
        cwd=flatq.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
    )
    assert done.returncode == 0, done
    return Result(done.returncode, done.stdout, done.stderr)


def command_of(pid):
    """The name of the program that pid runs; empty if there is no such process, or only a
    zombie."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    except OSError:
        return ""
    return "" if rest[0] in "ZX" else name


def runs(pid, name):
    """Wait until a child of the process runs the program of that name. A worker that waits runs
    `sleep`."""
    wait_for(lambda: name in map(command_of, children(pid)), f"{name} runs")


def child_named(process, name):
    """The pid of a process below `process` that runs the program of that name, or None."""
    found = children(process.pid)
    for pid in found:
        if command_of(pid) == name:
            return pid
        found += children(pid)
    return None


def holders(path):
    """Processes that have a file below path open, or work there."""
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


# `sleep` of a Clock. It sleeps until the clock is set past its end, or a signal comes. A sleep of
# less than a fifth of a second, between two looks, ends by itself
SLEEP = """case $1 in 0.0* | 0.1*) for=$1 ;; *) for=1000000 ;; esac
case $1 in
*.?) set -- "${1%.*}" "${1#*.}0" ;;
*.??) set -- "${1%.*}" "${1#*.}" ;;
*) set -- "$1" 00 ;;
esac
read -r now rest <"$FLATQ_PROC/uptime"
end=$((${now%.*} * 100 + 1${now#*.} + $1 * 100 + 1$2 - 200))
printf '%s\\n' "$end" >"$FLATQ_PROC/sleeping/$$"
# RACE: the clock was set before it knew of us
read -r now rest <"$FLATQ_PROC/uptime"
[ "${now%.*}${now#*.}" -lt "$end" ] || exit 0
exec "$REAL" "$for" """


class Clock:
    """A /proc for FLATQ_PROC, in which the test sets the uptime and the boot. Its uptime is that of
    the system at least, or a process would seem to have started after it got a message."""

    def __init__(self, path):
        self.path = path
        (path / "sys/kernel/random").mkdir(parents=True)
        (path / "sys/kernel/random/uuid").symlink_to("/proc/sys/kernel/random/uuid")
        (path / "sleeping").mkdir()
        self.base = int(float(Path("/proc/uptime").read_text().split()[0])) + 100_000
        self.reboot("first", 5000)

    def set(self, seconds):
        self.seconds = seconds
        new = self.path / "uptime.new"
        new.write_text(f"{self.base + seconds:.2f} {self.base + seconds:.2f}\n")
        new.rename(self.path / "uptime")
        for pid, left in self.sleepers().items():
            if left <= 0:
                kill([pid])  # a worker's alarm ignores the other signals

    def advance(self, seconds):
        self.set(self.seconds + seconds)

    def reboot(self, name, seconds=10):
        # As in the kernel's, a `-`: it is no program's name (boot_find)
        (self.path / "sys/kernel/random/boot_id").write_text(f"boot-{name}\n")
        self.set(seconds)

    def runs_sleep(self, stub):
        stub("sleep", SLEEP)
        return self

    def sleepers(self):
        """For how many seconds each process sleeps, by its pid."""
        found = {}
        for entry in self.path.glob("sleeping/*"):
            end, pid = entry.read_text(), int(entry.name)
            if end and command_of(pid) == "sleep":
                found[pid] = round(int(end) / 100 - self.base - self.seconds, 2)
        return found

    def sleeps_of(self, process):
        return [left for pid, left in self.sleepers().items() if left > 0 and pid in children(
            process.pid)]

    def asleep(self, process):
        """Wait until the waiting verb sleeps, and return for how many seconds."""
        return wait_for(lambda: self.sleeps_of(process), "it sleeps")[0]

    def passes(self, process):
        """Let time pass whenever the process sleeps, until it ends. Return the seconds."""
        return self.passes_until(lambda: process.poll() is not None,
            lambda: self.sleeps_of(process))

    def passes_until(self, over, sleeps):
        """Let time pass whenever somebody sleeps, by the seconds that `sleeps` lists, until `over`.
        Return the seconds. RACE: a process may compute how long to sleep, then the clock is
        advanced, and only then it falls asleep: so this goes on until all is over."""
        began = self.seconds

        def ended():
            left = sleeps()
            if left:
                self.advance(min(left))
            return over()

        wait_for(ended, "the end of who waits")
        return round(self.seconds - began, 2)


@pytest.fixture
def clock(clock, stub):
    """conftest's clock, by which `sleep` goes as well. So a waiting verb goes on only when it is
    woken, or when the test lets time pass."""
    return clock.runs_sleep(stub)


def lock_waiters(lock):
    """How many processes wait for the lock of this open file."""
    return len(re.findall(rf"-> FLOCK .*:{os.fstat(lock.fileno()).st_ino} ",
        Path("/proc/locks").read_text()))


def next_hundredth():
    """Wait until the hundredth of a second of the uptime changes: our times have that
    resolution."""
    now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10_000_000
    began = now()
    while now() == began:
        time.sleep(0.001)


def alive(pid):
    """Whether the process still runs; a zombie does not."""
    return command_of(pid) != ""


def carriers(spool):
    """The processes that have that spool, or another mark, in their environment."""
    return processes.carriers(str(spool).encode())


def end_launches(spool, *processes):
    """End each launch. Kill the processes with that spool that are left, and return them."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
    rest = carriers(spool)
    kill(rest)
    return rest


def flats_of(spool, queue, place):
    """The flat files in a place of the queue."""
    return sorted(path for path in (spool / queue / place).rglob("*") if path.name.count(".") == 5
        and path.is_file())


def faulty(flatq, call, path, verb, *args, error="EIO", when="1", input=b"", env=None):
    """Run a verb in whose processes this system call on this path, or on one of these, fails."""
    paths = path if isinstance(path, list) else [path, f"{path}/"]
    done = subprocess.run(
        [need("strace"), "-f", "-qq", "-o", "/dev/null",
        *(word for path in paths for word in ("-P", str(path))), "-e", f"trace={call}", "-e",
        f"inject={call}:error={error}:when={when}", "--", *flatq.command(verb, *args)],
        input=input, env=flatq.environment(env), cwd=flatq.home, timeout=100, capture_output=True)
    # strace prints a line if a path is not the shortest way to its file
    done.stderr = b"".join(line for line in done.stderr.splitlines(keepends=True)
        if b"strace: Requested path" not in line)
    return done


def standing(flatq, call, when, verb, *args, at, data=b"", error=""):
    """Start a verb, and stop it after this call on one of these paths for the `when`th time
    (`error`: it then fails). Return strace, which runs the verb, and the verb's pid."""
    log = flatq.home / "standing"
    process = subprocess.Popen(
        [need("strace"), "-qq", "-o", log, *(word for path in at for word in ("-P", str(path))),
        "-e", f"trace={call}",
        "-e", f"inject={call}:{error and f'error={error}:'}signal=STOP:when={when}", "--",
        *flatq.command(verb, *args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=flatq.env, cwd=flatq.home, start_new_session=True)
    flatq.started.append(process)
    process.stdin.write(data)
    process.stdin.close()
    process.stdin = None
    wait_for(lambda: log.exists() and "SIGSTOP {" in log.read_text(), "the verb stands")
    return process, children(process.pid)[0]


def on_terminal(leader, what=b""):
    """The output on a terminal until `what` is in it, or until no process has it open."""
    said, end = b"", time.monotonic() + 60
    with suppress(OSError):
        while not (what and what in said) and select.select([leader], [], [],
                max(0, end - time.monotonic()))[0]:
            said += os.read(leader, 10000)
    return said


def shown_on_terminal(flatq, verb, *words, env=None):
    """What the verb shows there, as text, and its exit code."""
    leader, terminal = pty.openpty()
    process = flatq.start(verb, *words, stdin=subprocess.DEVNULL, stdout=terminal, env=env)
    os.close(terminal)
    said = on_terminal(leader)
    os.close(leader)
    return said.replace(b"\r\n", b"\n").decode(), process.wait(60)
