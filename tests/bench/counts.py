"""Rows that do not depend on the load: processes and bytes, counted by strace.
tests/engine/test_cost.py has bounds for them."""

import os
import sys

from run import ROOT

sys.path.insert(0, str(ROOT / "tests/support"))
import counting


def counted(run, spool, words, stdin=b"", sync="off"):
    command = run.flatq("count", spool, words, sync=sync)
    return counting.count(["sh", *command.argv], stdin, command.env, run.work)


def processes(run):
    if not run.there("strace"):
        return
    say = run.notes.append
    say("Processes started beside the shell, and the programs they ran:")
    for sync in ("off", "on"):
        counted(run, f"count.{sync}", ["push", "jobs"], b"first", sync)
    receipt = ""
    for text, words, sync in (
        ("push, unsynced", ["push", "jobs"], "off"), ("push, synced", ["push", "jobs"], "on"),
        ("pop", ["pop", "jobs"], "on"), ("reserve", ["reserve", "jobs"], "on"),
        ("delete", ["delete"], "on"),
        ("pop, one more", ["pop", "jobs"], "on"), ("pop, empty", ["pop", "jobs"], "on"),
        ("push, bad name", ["push", "../x"], "on"),
    ):
        words = [*words, receipt] if text == "delete" else words
        count, out, _ = counted(run, f"count.{sync}", words, b"x" * 100, sync)
        receipt = out.split(b"\n")[0].split(b" ")[0].decode() if text == "reserve" else receipt
        run.raw[f"processes: {text}"] = count._asdict()
        programs = " ".join(map(os.path.basename, count.programs))
        say(f"  {text:16} {count.processes:2}  {programs}")


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
            counted(run, spool, [verb, "jobs"], b"x" * 100)
        sums = {"push": [0] * 4, "pop": [0] * 4}
        for _ in range(operations):
            for verb, total in sums.items():
                count, _, err = counted(run, spool, [verb, "jobs"], b"x" * 100)
                if count.status:
                    raise RuntimeError(f"{verb} at depth {depth}: {err!r}")
                total[:] = map(sum, zip(total, (count.processes, count.read, count.written,
                    count.listed)))
        for verb, total in sums.items():
            means[verb, depth] = [value / operations for value in total]
            processes, read, written, listed = means[verb, depth]
            run.notes.append(
                f"  {verb:5} depth {depth:>9,}  {processes:5.2f}  {read:10,.0f}  {written:8,.0f}"
                f"  {listed:8,.0f}")
    for verb in ("push", "pop"):
        few, many = means[verb, 10], means[verb, run.million]
        run.raw[f"bytes: {verb}"] = {"10": few, str(run.million): many}
        change = [100 * (b / a - 1) if a else 0 for a, b in zip(few, many)]
        run.notes.append(
            f"  {verb:5} change        {change[0]:+9.1f}% {change[1]:+10.1f}% {change[2]:+8.1f}%")
        moved = (many[1] + many[2]) / (few[1] + few[2])
        run.ratios.append((f"{verb}, bytes read and written, depth {run.million:,}", "depth 10",
            1.1, moved, None, None))
