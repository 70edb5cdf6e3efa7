"""What the tests share: the three shells, a spool for each test, a runner of verbs, and counts
taken by strace."""

import functools
import gc
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, namedtuple
from itertools import zip_longest
from pathlib import Path

import pytest

import counting
import userlands

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "lib"
SHELLS = SERVING = ("dash", "busybox", "bash")
ALL_SEED = "127938485"  # of `make test-all`, so that it tries the same each time. What that leaves out, another SEED tries, and `make crash` all crashes

sys.dont_write_bytecode, sys.pycache_prefix = False, str(
    ROOT / ".venv/pycache")  # pytest keeps its compiled tests: collecting them takes half the time
sys.path.insert(0, str(ROOT / "python"))

from flatq.crashlab import campaign
from flatq.crashlab.families.clients import free
from flatq.crashlab.gate import processes as living
from flatq.crashlab.gate.processes import listening, wait_for  # noqa: F401

Result = namedtuple("Result", "status out err")


def need(*commands):
    """The path of the first command, once all of them are there. `make test` installs them. Where
    one is missing, the test fails under CI, and elsewhere it is skipped."""
    path = os.pathsep.join([os.environ["PATH"], os.path.dirname(
        sys.executable)])  # ShellCheck is in the venv
    missing = [command for command in commands if not shutil.which(command, path=path)]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("not installed: "
            + ", ".join(missing))
    return shutil.which(commands[0], path=path)


def pytest_configure(config):
    """TERM ends a run as ^C does, so that the run first ends what its tests have started. A run
    without a seed takes the seed of the commit."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # a shell that starts us in the background ignores these signals, and all that the tests start
    # would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # so does nohup. A handler that does nothing keeps this run alive, and what the tests start gets
    # the default
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    os.environ.setdefault("FLATQ_SEED", ALL_SEED if everything() else commit_seed())
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(campaign.memory(
        )))  # on a disk, a run takes half as long again
    if "FLATQ_TEST_WORK" not in os.environ:  # the processes of pytest-xdist find it set
        place = campaign.workplace()
        os.environ["FLATQ_TEST_WORK"] = str(place.__enter__())
        config.add_cleanup(lambda: place.__exit__(None, None, None))


def pytest_collection_finish():
    gc.freeze()  # thousands of tests, which live to the end: Python looks for garbage among them no more


def pytest_report_header():
    how, usual = ("make test-all", ALL_SEED) if everything() else ("make test",
        f"{commit_seed()}, the commit's")
    return f"seed: {os.environ['FLATQ_SEED']} (without SEED it is {usual}; `{how} SEED=...` takes another, or the one of a failed run)"


def pytest_terminal_summary(terminalreporter):
    """The number of trials of each family, and the time of each part."""
    parts, trials, tests = Counter(), Counter(), Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                name = without_group(without_directories(report.nodeid))
                parts[name.partition("::")[0]] += report.duration
                tests[name] += report.duration
            if getattr(report, "when", "") == "call":
                trials.update(dict(value for name, value in report.user_properties
                    if name == "trials"))
    if len(parts) > 1:
        terminalreporter.section("seconds of each part, added up over all processes")
        rows = [f"{name:26} {seconds:6.1f}" for name, seconds in parts.most_common()]
        for row in zip_longest(*[iter(rows)] * 3, fillvalue=""):
            terminalreporter.write_line("   ".join(row).rstrip())
    if trials:
        terminalreporter.section("trials of the crash laboratory")
        terminalreporter.write_line(", ".join(f"{family} {count:,}" for family,
            count in trials.items()))
    if os.environ.get("FLATQ_TIMES"):
        with open(os.environ["FLATQ_TIMES"], "w") as file:
            file.writelines(f"{seconds:.1f} {name}\n" for name,
                seconds in tests.most_common() if seconds >= (30 if everything() else 10))
    terminalreporter.write_line(f"seed {os.environ['FLATQ_SEED']}"
        + (", everything" if everything() else ""))


def commit_seed():
    """The seed of this commit: the first 7 hexadecimal digits of its name as a number; 0 where git
    does not know one."""
    if not shutil.which("git"):
        return "0"
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return str(int(done.stdout[:7] or b"0", 16))


def everything():
    """Whether this run is `make test-all`. It leaves out some cases (under_fewer_shells,
    a_third_of_costly), and the crash laboratory takes samples."""
    return bool(os.environ.get("FLATQ_TEST_ALL"))


def chance(name):
    """A random.Random of this run's seed, the same for the same name. It chooses the share of a
    test that `make test` runs."""
    return random.Random(f"{os.environ['FLATQ_SEED']} {name}")


def share(name, items, count, first=0):
    """All items in `make test-all`. In `make test`, the first `first` of them and `count` more,
    which the seed chooses, in their order."""
    items = list(items)
    if everything() or len(items) <= first + count:
        return items
    chosen = {*range(first), *chance(name).sample(range(first, len(items)), count)}
    return [item for place, item in enumerate(items) if place in chosen]


def fuzz(name, seconds):
    """For how many seconds a test tries random inputs, and from which seed. `make test` takes a
    fifth of the seconds and a seed from the run's. FLATQ_FUZZ_SECONDS and FLATQ_FUZZ_SEED overrule
    both."""
    seed = os.environ.get("FLATQ_FUZZ_SEED", chance(name).randrange(10**6))
    return (float(os.environ.get("FLATQ_FUZZ_SECONDS", seconds if everything() else seconds / 5)),
        int(seed))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist adds a test's group to its name
def pytest_collection_modifyitems(config, items):
    """`make test` leaves out what is marked `full` (and tests/bin/run what is marked `timed`), and
    tries a part of the other tests (a_part); `make test-all` leaves out some shells
    (under_fewer_shells), and two thirds of the cases of what is marked `costly`. Both leave none of
    these out if the command line names tests, by :: or -k. All tests of the Spark session run in
    one process."""
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
    if everything():
        deal_ubuntu(items)
    named = config.option.keyword or any("::" in str(arg) for arg in config.args)
    if not named:
        kept = a_third_of_costly(under_fewer_shells(items)) if everything() else a_part([item
            for item in items if not item.get_closest_marker("full")])
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
        took = times()  # the longest first, so that at the end no processor waits for a long one
        items.sort(key=lambda item: -took.get(without_directories(item.nodeid), 0))


def cases(items):
    """{test: its cases}."""
    tests = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests


def a_part(items):
    """What `make test` tries: two of three tests that have one case, of each other test a third of
    its cases, at least one, and a third of the tests of the Spark session, each of which takes
    seconds. The seed chooses. All of what looks at the files of the tree, and of tests that are
    marked `whole`, whose own `share` says how many."""
    kept, spark = set(), [item for item in items if "spark" in item.fixturenames]
    for name, those in [("spark", spark), *cases(item for item in items if item not in spark).items(
            )]:
        whole = those and (ROOT / "tests/tree" in those[0].path.parents
            or those[0].get_closest_marker("whole"))
        deal = chance(f"a third of {name}")
        if whole or len(those) == 1 and deal.random() < 2 / 3:
            kept.update(those)
        elif len(those) != 1:
            kept.update(deal.sample(those, -(-len(those) // 3)))
    return kept


def under_fewer_shells(items):
    """What `make test-all` tries: each case under dash and one other shell, by turns, and if a test
    has no other cases than its shells, under all three. The seed says which."""
    kept = []
    for name, those in cases(items).items():
        others = {}  # {the case without its shell: its items}
        for item in those:
            params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
            shell = params.pop("shell", "dash")
            others.setdefault(repr(params), []).append((shell, item))
        turn = chance(f"shells of {name}").randrange(60)
        for place, having in enumerate(others.values()):
            rest = [shell for shell, _ in having if shell != "dash"] if len(having) == len(
                SHELLS) else []
            chosen = {rest[(place + turn + more) % len(rest)]
                for more in range(2 if len(others) == 1 else 1)} if rest else SHELLS
            kept += [item for shell, item in having if shell == "dash" or shell in chosen]
    return kept


def a_third_of_costly(items):
    """All items, but of each test that is marked `costly` a third of its cases, which the seed
    chooses, and the one that deal_ubuntu has chosen."""
    kept = set()
    for name, those in cases(items).items():
        costly = those[0].get_closest_marker("costly")
        some = chance(f"costly {name}").sample(those, -(-len(those) // 3)) if costly else those
        kept.update(some, (item for item in those if item.nodeid in on_ubuntu))
    return kept


def without_group(name):
    """A test's name without the group that pytest-xdist adds to it."""
    return re.sub(r"@\w+$", "", name)


def without_directories(name):
    """A test's name without the directories before its file."""
    return re.sub(r"^[^:]*/", "", name)


def times():
    """tests/support/times has the seconds of each test of `make test` that took over ten, and
    times-all those of `make test-all` that took over 30. They decide only in which order the tests
    begin: these first, the longest before the others. A run with FLATQ_TIMES=FILE writes those of
    its tests."""
    rows = (ROOT / "tests/support" / ("times-all" if everything()
        else "times")).read_text().splitlines()
    return {name: float(seconds) for seconds, _, name in (row.partition(" ") for row in rows)}


def pytest_generate_tests(metafunc):
    """A test that is marked `shells`, or has an argument `shell`, has a case under each shell in
    `make test-all`. In `make test` it has one under dash, and half of the tests also one under
    another, which the seed chooses. Of these cases under_fewer_shells and a_part then leave some
    out."""
    names = metafunc.function.__code__.co_varnames[: metafunc.function.__code__.co_argcount]
    marked = metafunc.definition.get_closest_marker("shells")
    # a fixture that overrides `flatq` has to name `shell` as well, or pytest does not parametrize
    # it
    assert "shell" in metafunc.fixturenames or not marked, f"{metafunc.definition.nodeid}: marked `shells`, but would run under one"
    if "shell" in names or marked:
        others = chance(f"{metafunc.definition.nodeid} others").randrange(2)
        metafunc.parametrize("shell", share(metafunc.definition.nodeid, SHELLS, others, first=1),
            indirect=True)


def as_on_ubuntu(request):
    """Whether the test runs with uutils' programs and on the disk, where it takes more than twice
    as long: in `make test-all`, of each of the engine's tests a case under dash. All others lie in
    memory."""
    return without_group(request.node.nodeid) in on_ubuntu


on_ubuntu = set()


def deal_ubuntu(items):
    """Fill on_ubuntu: of each of the engine's tests one of the cases under dash, which the seed
    chooses."""
    engine = [item for item in items if item.path.parent == ROOT / "tests/engine"
        and not item.get_closest_marker("timed")]
    for name, those in cases(engine).items():
        dash = [item for item in those if not hasattr(item, "callspec")
            or item.callspec.params.get("shell", "dash") == "dash"]
        on_ubuntu.update(item.nodeid for item in dash and [chance(f"ubuntu {name}").choice(dash)])


@functools.cache
def shell_of(program, top, ubuntu):
    """A link named `sh` to the shell, so that the shell behaves as it does as the system's own.
    Beside it lie the programs of another userland, which come first in PATH: Alpine's beside
    busybox's shell, and on request Ubuntu's. What that userland lacks is found in the system's."""
    import newest
    place = Path(tempfile.mkdtemp(dir=top)) / "bin"
    if os.path.basename(program) == "busybox":
        userlands.alpine(place)
    elif not (ubuntu and not newest.missing() and newest.applets("rust-coreutils",
            place)):  # where they are missing, the tests about them say so
        place.mkdir()
    if not (place / "sh").is_symlink():
        (place / "sh").symlink_to(program)
    return str(place / "sh")


@pytest.fixture
def shell(request, tmp_path_factory):
    """The path of one of the shells (shell_of)."""
    return shell_of(os.path.realpath(need(getattr(request, "param", "dash"))),
        tmp_path_factory.getbasetemp(), as_on_ubuntu(request))


@pytest.fixture
def tmp_path(request, tmp_path):
    """A directory for the test. It lies in memory, if that has room, or on the disk
    (as_on_ubuntu)."""
    if not as_on_ubuntu(request):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="flatq-test.") as place:
        yield Path(place)


@pytest.fixture
def spool(tmp_path):
    """FLATQ_DIR. It does not exist yet: the first verb creates it."""
    return tmp_path / "spool"


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
        the tree, as in ./launch."""
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
            assert result.status == check, f"{verb} {args}: exit {result.status}, not {check}: {out[:200]!r} {err!r}"
        return result

    def left(self, *processes):
        """What still runs in the sessions of these. Once a process was waited for, the system gives
        its number to others, soon on a busy machine: what is found there is ours only if its
        environment leads to our directories."""
        waiting = [process for process in processes if process.returncode is None]
        waited = [process for process in processes if process.returncode is not None]
        pids = left(*waiting) if waiting else []
        for pid in left(*waited) if waited else []:
            carried = living.environment(pid)
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


@pytest.fixture
def flatq(request, shell, spool, tmp_path, tmp_path_factory):
    """A Runner: flatq("push", "jobs", input=b"text", check=0) runs lib/push under the test's shell,
    with a spool that has been used since the boot. A test marked `new` gets no spool. At the end of
    the test, all that flatq has started is killed."""
    home = tmp_path / "home"
    home.mkdir()
    # a test with its own clock has its own boot, and so tries the tools again
    if not request.node.get_closest_marker("new") and "clock" not in request.fixturenames:
        shutil.copytree(booted(shell, tmp_path_factory.getbasetemp()), spool)
    runner = Runner(shell, spool, home)
    yield runner
    runner.end(*runner.started)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The one Spark session of a run."""
    import tables

    with tables.session(tmp_path_factory.mktemp("spark")) as made:
        yield made


def put_stub(flatq, path, head, script):
    """Put this script at `path`, in the place of the program of that name. flatq tries some
    programs first (lib/engine/probe.sh): it tries the real ones."""
    def put(text):
        path.write_text(f"#!/bin/sh\n{head} REAL={shutil.which(path.name)}\n{text}\n")
        path.chmod(0o755)
        os.utime(path, (1e9, 1e9))

    if path.name in ("base64", "mv", "sync") and not (flatq.spool / ".boot").exists():
        make(flatq)
        del flatq.started[-2:]
    put(script)


@pytest.fixture
def stub(flatq, tmp_path):
    """stub(NAME, SCRIPT) puts a program into flatq's PATH, in front of the real one, which is
    $REAL, and returns its path. $ONCE is a file of this path and `.once`, which the script may
    create. A shell may run its own program instead, as some builds of busybox do; then the test is
    skipped."""
    place = tmp_path / "stubs"

    def put(name, script):
        place.mkdir(exist_ok=True)
        put_stub(flatq, place / name, f"ONCE={place}/{name}.once", script)
        if not flatq.env["PATH"].startswith(f"{place}:"):
            flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
        if not runs_stubs(os.path.realpath(flatq.shell), name):
            pytest.skip(f"this shell runs its own {name}, whatever PATH says")
        return place / name

    return put


@functools.cache
def runs_stubs(shell, name):
    """Whether that shell, called `sh`, looks in PATH for a command of that name."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_text("#!/bin/sh\nexit 97\n")
        path.chmod(0o755)
        done = subprocess.run(["sh", "-c", f"{name} 0"], executable=shell,
            env={"PATH": f"{place}:{os.environ['PATH']}"}, capture_output=True,
            stdin=subprocess.DEVNULL)
        return done.returncode == 97


@functools.cache
def said_by(shell, script):
    """What a script prints under that shell, with the programs beside it (shell_of). These, and the
    shell's own, may do less than GNU's."""
    env = {**os.environ, "PATH": f"{os.path.dirname(shell)}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", script], executable=shell, env=env, capture_output=True,
        stdin=subprocess.DEVNULL).stdout


@pytest.fixture
def says(shell):
    """says(SCRIPT): what the script prints under the shell of the test."""
    return lambda script: said_by(shell, script)


@pytest.fixture
def honest(says):
    """A shell whose base64 fails if it cannot write. With another base64, no verb can notice the
    failed write."""
    if not says("printf QUJD | base64 -d >/dev/full 2>&- || echo it does"):
        pytest.skip("this shell's own base64 reports no failed write")


@pytest.fixture
def clock(request, flatq, tmp_path):
    """An engine.Clock, by which flatq counts its leases and delays."""
    from engine import Clock
    clock = Clock(tmp_path / "proc")
    flatq.env["FLATQ_PROC"] = str(clock.path)
    if not request.node.get_closest_marker("new"):
        make(flatq)
    return clock


@pytest.fixture
def launched(flatq):
    """launched(...) starts a stalk.Launched, or another KIND of it: ./launch with a door. It ends
    with the test."""
    from stalk import Launched
    doors = []

    def start(*args, kind=Launched, **more):
        doors.append(kind(flatq, *args, **more))
        return doors[-1]

    yield start
    for one in doors:
        one.end()


@pytest.fixture
def free_port():
    """A port of 127.0.0.1 on which nobody listens."""
    return free()
