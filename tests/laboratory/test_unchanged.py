"""Faults of calls that change nothing: failed reads (family `reads`), and faults where a process of a verb, the pipe to it, or a copy of a
descriptor begins or ends (family `ends`).

Each call gets one error. `make test` takes a few scenarios, and a part of their points. `make test-all` strikes at most 5 calls of a scenario in each
family, which the seed chooses (campaign.UNSEEN_MANY): of those that fall to it, since a call that many scenarios of a verb make falls to some of them
(campaign._dealt). `make crash` strikes each call in all scenarios, with all errors. A failure names its trial."""

import os
from dataclasses import replace

import pytest

from conftest import everything, share
from laboratory import trials, work  # noqa: F401
from test_crash import PLAIN, SYSTEM, good, waits

from flatq.crashlab import campaign
from flatq.crashlab.families import trial
from flatq.crashlab.gate import faults

QUICK = tuple(name for name in PLAIN if not name.startswith(("pop -w", "push -w", "push 1 MiB", "pop 256 KiB")))
FEW = campaign.Options(QUICK, limit=8, seed=int(os.environ["FLATQ_SEED"]), share=True)
OPTIONS = replace(FEW, limit=None) if everything() else FEW


@pytest.mark.whole
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share("reads", QUICK, 2))
def test_reads_that_fail(name, work, trials):
    outcomes = campaign.unseen(SYSTEM, [name], OPTIONS, work, tuple(faults.READS))
    trials("reads", outcomes)
    good(outcomes, missed=0.1, waiting=waits(name))


@pytest.mark.whole
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share("captures", ["checkpoint folds", "settle keys", "drain", "claim, more", "http: DELETE"], 1))
def test_a_shells_own_read_that_fails(name, work):
    """What the shell takes by `$( )` is cut off, and no status tells."""
    trial.calls(SYSTEM, name, work)
    points = [call.seq for call in trial.unseen(SYSTEM, name, work, "reads") if call.paths == ("<pipe>",) and call.comm == "sh"]
    outcomes = [trial.run(trial.Trial(name, "read EIO", point), SYSTEM, work) for point in share(f"captures of {name}", points, 15)]
    assert points
    good(outcomes, missed=0.1, waiting=waits(name))


@pytest.mark.whole
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", share("ends", QUICK, 2))
def test_processes_that_end(name, work, trials):
    outcomes = campaign.unseen(SYSTEM, [name], OPTIONS, work, faults.UNSEEN[len(faults.READS):])
    trials("ends", outcomes)
    good(outcomes, missed=0.1, waiting=waits(name))
