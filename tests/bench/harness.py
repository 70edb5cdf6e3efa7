"""Starting commands, timing them side by side, and naming the machine. This file knows nothing of
queues."""

import os
import platform
import random
import shutil
import statistics
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# part of the name of a contender that does only what no contender can leave out
FLOOR = "(the floor)"
DEVNULL = os.open(os.devnull, os.O_RDWR)


@dataclass
class Command:
    """One contender of a row: what to start, with which file as standard input, in which
    directory."""

    name: str
    argv: list
    stdin: str = os.devnull
    cwd: str = "/"
    env: dict = field(default_factory=dict)

    def __post_init__(self):
        self.argv = [str(word) for word in self.argv]
        self.program = shutil.which(self.argv[0])
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.cwd), **self.env}

    def run(self, stdout=DEVNULL):
        """Seconds from the start, by posix_spawn (vfork), to the end."""
        stdin = os.open(self.stdin, os.O_RDONLY)
        here = os.getcwd()
        os.chdir(self.cwd)
        actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
        begin = time.perf_counter()
        pid = os.posix_spawn(self.program, self.argv, self.env, file_actions=actions)
        status = os.waitpid(pid, 0)[1]
        seconds = time.perf_counter() - begin
        os.chdir(here)
        os.close(stdin)
        if status:
            raise RuntimeError(
                f"{self.name}: {self.argv} ended with {os.waitstatus_to_exitcode(status)}")
        return seconds


def floor(name, script, *words, **more):
    """A command that runs a shell script, whose $0 is the first of the words. It fails as soon as
    one of its programs does."""
    return Command(name, ["sh", "-ec", script, *words], **more)


def interleave(groups, rounds):
    """Seconds of each command by name. In every round each command runs once: group after group, in
    a new random order within each."""
    seconds = {command.name: [] for group in groups for command in group}
    order = random.Random(1)
    warm = min(5, rounds)
    for turn in range(rounds + warm):
        for group in groups:
            for command in order.sample(group, len(group)):
                took = command.run()
                if turn >= warm:
                    seconds[command.name].append(took)
    return seconds


def spread(values):
    """Median, lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def ratio(ours, theirs):
    """The ratio of the medians, and the quartiles of the ratio round by round."""
    _, low, high = spread([a / b for a, b in zip(ours, theirs)])
    return statistics.median(ours) / statistics.median(theirs), low, high


def processes():
    """Of each process: its directory, its name, and the fields of its stat behind that."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (place / "stat").read_text(errors="replace")
            name, _, rest = text.partition("(")[2].rpartition(")")
            yield place, name, rest.split()


def first_line(*argv):
    try:
        done = subprocess.run(argv, stdin=DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=10)
    except OSError:
        return None
    return done.stdout.split("\n")[0].strip() or None


PACKAGES = ("dirq", "matplotlib", "pyspark")


def packages(python):
    """The versions of those of PACKAGES that this Python has."""
    script = """import importlib.metadata, sys
for each in importlib.metadata.distributions():
    if each.name in sys.argv: print(each.name, each.version)"""
    try:
        done = subprocess.run([python, "-c", script, *PACKAGES], capture_output=True, text=True)
    except OSError:
        return {}
    return dict(line.split() for line in done.stdout.splitlines())


def machine(directory, python):
    """The machine and the programs with which the numbers were taken."""
    cpu = next((row.split(":")[1].strip() for row in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in row), "?")
    system = next((row.split("=")[1].strip('"') for row in Path("/etc/os-release").read_text(
        ).splitlines() if "PRETTY" in row), "?")
    mounts = [row.split() for row in Path("/proc/mounts").read_text().splitlines()]
    mount = max((row for row in mounts if (str(directory) + "/").startswith(row[1].rstrip("/")
        + "/")), key=lambda row: len(row[1]))
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "flatq": first_line("git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "system": system,
        "filesystem": f"{mount[2]} ({mount[3]})",
        "versions": {
            "sh": os.path.realpath(shutil.which("sh")),
            "base64": first_line("base64", "--version"),
            "redis": first_line("redis-cli", "--version"),
            "sqlite3": (first_line("sqlite3", "--version") or "").split(" ")[0] or None,
            "beanstalkd": first_line("beanstalkd", "-v"),
            "ncat": first_line("ncat", "--version"),
            "perl": first_line("perl", "-e", "print $^V"),
            "python": platform.python_version(),
            **packages(python),
        },
    }
