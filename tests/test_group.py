"""create -g: several users on one spool. Needs root, to be them."""

import os
import shutil
import signal
import subprocess

import pytest

from conftest import LIB, need, wait_for

GROUP, ALICE, BOB, EVE = 65501, 65502, 65503, 65504


@pytest.fixture
def as_user(tmp_path):
    if os.geteuid():
        pytest.skip("needs root, to act as several users")
    need("setpriv")
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chown(shared, ALICE, GROUP)
    shared.chmod(0o2770)
    # what is below a directory of root's alone, others cannot run
    lib = shared.parent / "lib"
    shutil.copytree(LIB, lib)
    for directory in (tmp_path, *list(tmp_path.parents)[:-2]):
        if directory.stat().st_mode & 0o005 != 0o005 and directory.owner() == "root":
            directory.chmod(directory.stat().st_mode | 0o755)

    def run(user, verb, *words, input=b"", group=GROUP):
        return subprocess.run(
            ["setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups", "sh", str(lib / verb), *words],
            input=input, capture_output=True, timeout=100,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "FLATQ_DIR": str(shared / "spool"), "FLATQ_SYNC": "off"},
        )

    run.spool = shared / "spool"
    return run


def test_two_users(as_user):
    assert as_user(ALICE, "create", "-g", "jobs").returncode == 0
    assert as_user(ALICE, "push", "jobs", input=b"of alice").stdout == b"1\n"
    assert as_user(BOB, "push", "jobs", input=b"of bob").stdout == b"2\n"
    assert as_user(BOB, "push", "new", input=b"more").stdout == b"3\n"
    assert as_user(BOB, "pop", "jobs").stdout == b"of alice"
    assert as_user(ALICE, "pop", "jobs").stdout == b"of bob"
    assert as_user(ALICE, "pop", "new").stdout == b"more"
    for user in (ALICE, BOB):
        assert as_user(user, "push", "-l", "jobs", input=b"1\n2\n3\n").returncode == 0
    assert as_user(BOB, "wal").returncode == 0
    assert as_user(ALICE, "wal").returncode == 0
    assert as_user(BOB, "drain", "jobs").stdout == b"1\n2\n3\n" * 2


def test_a_worker_of_another_user(flatq, as_user):
    """Who may not send it a signal sees that it lives all the same: its pid file is not taken from it."""
    file = as_user.spool.parent / "pid"
    process = flatq.start("work", "--pid-file", file, "--", "true")
    wait_for(lambda: file.exists() and file.read_text(), "it works")
    file.chmod(0o644)
    second = as_user(ALICE, "work", "--pid-file", str(file), "-w", "0", "--", "true")
    assert (second.returncode, second.stdout) == (75, b"") and b"a worker that lives" in second.stderr
    assert int(file.read_text()) == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0 and not file.exists()


def test_nobody_else(as_user):
    as_user(ALICE, "create", "-g", "jobs")
    as_user(ALICE, "push", "jobs", input=b"secret")
    away = as_user(EVE, "pop", "jobs", group=EVE)
    assert away.returncode in (66, 77) and away.stdout == b"" and away.stderr.count(b"\n") == 1


def test_private_by_default(as_user):
    as_user(ALICE, "push", "jobs", input=b"secret")
    modes = {path.stat().st_mode & 0o077 for path in as_user.spool.rglob("*")}
    # the set-gid bit of the directory above makes it the group's; without that bit, nobody's but the owner's
    assert modes <= {0o060, 0o070, 0o000}
    private = subprocess.run(["sh", str(LIB / "push"), "jobs"], input=b"x", capture_output=True, timeout=100,
                             env={"PATH": os.environ["PATH"], "HOME": "/", "FLATQ_DIR": str(as_user.spool.parent.parent / "mine"), "FLATQ_SYNC": "off"})
    assert private.returncode == 0
    assert {path.stat().st_mode & 0o077 for path in (as_user.spool.parent.parent / "mine").rglob("*")} == {0}
