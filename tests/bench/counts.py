"""A row that does not depend on the load: processes and bytes, counted by strace.
tests/engine/test_cost.py has the programs that each verb starts."""

import sys

from run import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
import counting


def counted(run, spool, verb):
    command = run.flatq(spool, [verb, "jobs"])
    return counting.count(["sh", *command.argv], b"x" * 100, command.env, run.work)


def bytes_(run):
    """The same operations at two depths. A push and a pop take turns, so that the depth stays."""
    if not run.there("strace"):
        return
    operations = 5 if run.quick else 1_000
    run.notes.append(
        f"Per operation, push and pop in turn, means of {operations:,}: processes, bytes read, "
        "written, of directories:")
    means = {}
    for depth in (10, run.million):
        spool = f"count.{depth}"
        run.fill(spool, depth)
        for verb in ("push", "pop"):  # the first pop unfolds: both depths are counted behind it
            counted(run, spool, verb)
        sums = {"push": [0] * 4, "pop": [0] * 4}
        for _ in range(operations):
            for verb, total in sums.items():
                count, _, err = counted(run, spool, verb)
                if count.status:
                    raise RuntimeError(f"{verb} at depth {depth}: {err!r}")
                total[:] = map(sum, zip(total, (count.processes, count.read, count.written,
                    count.listed)))
        for verb, total in sums.items():
            found = means[verb, depth] = [value / operations for value in total]
            run.raw[f"bytes: {verb}, depth {depth}"] = found
            run.notes.append(f"  {verb:5} depth {depth:>9,}  "
                "{:5.2f}  {:10,.0f}  {:8,.0f}  {:8,.0f}".format(*found))
    for verb in ("push", "pop"):
        few, many = (sum(means[verb, depth][1:3]) for depth in (10, run.million))
        run.ratios.append((f"{verb}, bytes read and written, depth {run.million:,}", "depth 10",
            1.1, many / few, None, None))
