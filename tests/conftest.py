"""What pytest asks for: which tests a run tries, and the fixtures that they share."""

import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from inspect import signature
from itertools import groupby
from pathlib import Path

import pytest

import machine
from running import (  # noqa: F401
    LIB, ROOT, SHELLS, Result, Runner, booted, chance, everything, fuzz, left, make, need, put_stub,
    share, shell_of)

# pytest keeps its compiled tests: collecting them takes half the time
sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".venv/pycache")

from crash.families.clients import free
from crash.gate.processes import listening, wait_for  # noqa: F401


def pytest_configure(config):
    """HUP and TERM end a run as ^C does: it first ends what its tests have started. Who starts us
    may ignore some of these signals, and all that the tests start would inherit that."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, (lambda *_: None) if ignored else signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # each run tries the same. `make test SEED=...` takes other chances
    os.environ.setdefault("FLATQ_SEED", "127938485")
    if "FLATQ_TEST_WORK" not in os.environ:  # the processes of pytest-xdist find it set
        machine.own(config.add_cleanup)


def pytest_terminal_summary(terminalreporter):
    """The seed, and the number of trials of each family of the crash laboratory."""
    trials = Counter()
    for report in sum(terminalreporter.stats.values(), []):
        if getattr(report, "when", "") == "call":
            trials.update(dict(value for name, value in report.user_properties if name == "trials"))
    terminalreporter.write_line(", ".join([
        f"seed {os.environ['FLATQ_SEED']}", *["everything"] * everything(),
        *(f"{count:,} trials of {family}" for family, count in trials.items())]))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist adds a test's group to its name
def pytest_collection_modifyitems(config, items):
    """`make test` leaves out what is marked `slow`, and of a test with many cases tries each fifth,
    unless it is marked `whole`. `make test-all` tries everything, a case under dash and one other
    shell, by turns; of a test that is marked `costly` each third case. Who names a test, by :: or
    -k, gets all of it."""
    for item in items:
        if "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
    if config.option.keyword or any("::" in str(arg) for arg in config.args):
        return
    kept = []
    for _, those in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        those = list(those)
        marked = those[0].get_closest_marker
        if everything():
            kept += by_turns(those[::3] if marked("costly") else those)
        else:
            whole = marked("whole") or those[0].path.parent == ROOT / "tests/tree"
            marks = ("slow", "timed")
            those = [item for item in those if not any(map(item.get_closest_marker, marks))]
            kept += those if whole else those[::5]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def by_turns(those):
    """Of these cases of one test, those under dash, and each under one other shell. If the shell is
    all in which they differ, all."""
    shells = {}  # {the case without its shell: {shell: item}}
    for item in those:
        params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        shells.setdefault(repr({**params, "shell": ""}), {})[params.get("shell", "dash")] = item
    if len(shells) == 1:
        return those
    kept = []
    for place, having in enumerate(shells.values()):
        rest = [item for shell, item in having.items() if shell != "dash"]
        kept += [having["dash"]] if "dash" in having else []
        kept += [rest[place % len(rest)]] if rest else []
    return kept


def pytest_generate_tests(metafunc):
    """A test that is marked `shells`, or has an argument `shell`, has a case under each shell; one
    of the engine's also, in `make test-all`, under dash with uutils' programs and on the disk."""
    marked = metafunc.definition.get_closest_marker
    # a fixture that overrides `flatq` has to name `shell` as well
    assert "shell" in metafunc.fixturenames or not marked("shells"), metafunc.definition.nodeid
    if "shell" in signature(metafunc.function).parameters or marked("shells"):
        engine = metafunc.definition.path.parent == ROOT / "tests/engine"
        uutils = everything() and engine and not marked("timed")
        metafunc.parametrize("shell", [*SHELLS, *(["uutils"] if uutils else [])], indirect=True)


@pytest.fixture
def shell(request, tmp_path_factory):
    """The path of one of the shells (shell_of)."""
    return shell_of(getattr(request, "param", "dash"), tmp_path_factory.getbasetemp())


@pytest.fixture
def tmp_path(request, tmp_path):
    """A directory for the test, in memory, or on the disk for those under uutils."""
    if "uutils" not in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="flatq-test.") as place:
        yield Path(place)


@pytest.fixture
def spool(tmp_path):
    """FLATQ_DIR. It does not exist yet: the first verb creates it."""
    return tmp_path / "spool"


@pytest.fixture
def flatq(request, shell, spool, tmp_path, tmp_path_factory):
    """A Runner, with a spool that has been used since the boot. A test marked `new` gets no spool.
    At the end of the test, all that flatq has started is killed."""
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


@pytest.fixture
def stub(flatq, tmp_path):
    """stub(NAME, SCRIPT) puts a program into flatq's PATH, in front of the real one, which is
    $REAL, and returns its path. $ONCE is a file of this path and `.once`, which the script may
    create."""
    place = tmp_path / "stubs"

    def put(name, script):
        place.mkdir(exist_ok=True)
        put_stub(flatq, place / name, f"ONCE={place}/{name}.once", script)
        if not flatq.env["PATH"].startswith(f"{place}:"):
            flatq.env["PATH"] = f"{place}:{flatq.env['PATH']}"
        return place / name

    return put


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
def launched(request, flatq):
    """launched(...) starts a stalk.Launched, or another KIND of it: ./launch with a door. It ends
    with the test."""
    from stalk import Launched

    def start(*args, kind=Launched, **more):
        door = kind(flatq, *args, **more)
        request.addfinalizer(door.end)
        return door

    return start


@pytest.fixture
def free_port():
    """A port of 127.0.0.1 on which nobody listens."""
    return free()
