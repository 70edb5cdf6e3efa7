"""Clients of the line door that go wrong, as a family with seeds; and that a door which does not mind them is seen."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import LIB, ROOT, need

sys.path.insert(0, str(ROOT / "python"))

from flatq.crashlab import clients  # noqa: E402
from flatq.crashlab.scenarios import System  # noqa: E402

# what breaks a copy: the file, a piece of its text that is there once, what takes its place, and the fault that sees it
MUTANTS = {
    "delivered, whoever is gone": ("door.sh", '[ -n "$door_inode" ] && [ -z "$door_relayed" ] && ! door_ncat_lives || return 0', "return 0", "gone before the answer"),
    "a length that is not looked at": ("push.sh", '[ -z "$1" ] || [ "$size" = "$1" ] ||', "true ||", "cut in the body"),
    "a line that was cut is a line": ("handler", '    [ -n "$handler_line" ] || exit 0\n', '    [ -z "$handler_line" ] || return 0; exit 0\n', "cut in the line"),
    "a reset is an end": ("door.sh", 'door_row && { [ "$door_state" != 01 ] || door_ncat_lives; } && return 0', "return 0", "reset in the body"),
}


@pytest.fixture
def work():
    """A directory in memory where there is one."""
    top = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="clients.", dir=top) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def doors():
    """One door for each mode, for all trials."""
    need("ncat")
    top = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="clients.", dir=top) as directory:
        running = {}
        try:
            for mode in clients.MODES:
                (Path(directory) / mode).mkdir()
                running[mode] = clients.Door(System(), mode, Path(directory) / mode)
                running[mode].__enter__()
            yield running
        finally:
            for door in running.values():
                door.__exit__()


@pytest.mark.parametrize("name", clients.FAULTS)
@pytest.mark.parametrize("mode", clients.MODES)
def test_clients(doors, mode, name):
    outcome = clients.trial(doors[mode], name, 1)
    assert outcome.outcome == "good", f"{outcome.replay}\n{outcome.detail}"
    print(outcome.detail)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_copy_is_seen(work, name):
    need("ncat")
    file, old, new, fault = MUTANTS[name]
    shutil.copytree(LIB, work / "lib")
    shutil.copy(ROOT / "launch", work)
    text = (work / "lib" / file).read_text()
    assert text.count(old) == 1, f"{file} no longer has {old!r}"
    (work / "lib" / file).write_text(text.replace(old, new))
    system = System(lib=work / "lib", name=name)
    for seed in range(4):
        if clients.run(system, fault, "-k", seed, work).outcome == "bad":
            return
    pytest.fail("not seen in 4 trials")
