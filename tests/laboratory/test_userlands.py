"""The crash laboratory on other userlands than GNU's: kills and errors of the disk, at every call
of verbs that use all tools between them."""

import os
import re
import subprocess
import sys

import newest
import pytest
import userlands
from conftest import ROOT, chance

SCENARIOS = ["push -k", "push -0", "pop from a flat file", "pop -l", "drain", "release -p -d",
    "delete in a flat file", "work", "claim, more", "settle keys",
             "checkpoint folds", "checkpoint sweeps keys", "handler: push -n", "http: GET",
             "beanstalk: put"]


def uutils(place):
    return newest.applets("rust-coreutils", place)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", [["kill"], ["EIO", "output EPIPE"]], ids=", ".join)
@pytest.mark.parametrize("userland", [userlands.alpine, uutils])
def test_kills_and_errors(userland, faults, tmp_path):
    """In two scenarios, which the seed chooses."""
    scenarios = chance(f"{userland.__name__} {faults}").sample(SCENARIOS, 2)
    words = [word for name in scenarios for word in ("--scenario", name)] + [word
        for fault in faults for word in ("--fault", fault)]
    env = {**os.environ, "PATH": f"{userland(tmp_path / 'bin')}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run([sys.executable, "-m", "crash", "--family", "crash", "--limit",
        "2", "--jobs", "1", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search("^all +0 bad of 2", done.stdout, re.M), done.stdout
