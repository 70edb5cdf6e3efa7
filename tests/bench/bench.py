"""make bench measures flatq beside the programs that a shell user might take instead, in one run.

bench.py [--quick] [--parent COMMIT] [ROW ...] measures the rows that are named, or all. The
contenders of a row take turns. The table begins with ratios, since only these hold on another
machine. Every round goes to .bench/TIME.json, and a picture of the ratios beside it."""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import bulk
import counts
import doors
import oneshot
import remote
import scale
import spark
from harness import FLOOR, machine
from run import ROOT, Run


ROWS = {
    "push": oneshot.push, "pop": oneshot.pop, "work": oneshot.work, "bulk": bulk.bulk,
    "doors": doors.doors, "http": doors.http_, "beanstalk": doors.beanstalk,
    "launch": doors.launch, "idle": doors.idle, "remote": remote.remote,
    "boot": scale.boot, "deep": scale.deep,
    "bytes": counts.bytes_, "pipeline": spark.rows,
}


def verdict(other, ratio, aim, low):
    """Where flatq is slower, and by how much. A count has an aim only."""
    said = []
    if ratio >= 1.005 and low is not None:
        who = "over" if FLOOR in other else "LOSES" if low > 1 else "loses, within the spread,"
        said.append(f"{who} by {100 * (ratio - 1):.0f}%" if ratio < 2
            else f"{who}: {ratio:.1f} times the time")
    if aim and ratio > aim:
        said.append("over the aim")
    return ", ".join(said)


def table(run, about):
    print(f"flatq {about['flatq'] or ''} on {about['cpu']}, {about['cores']} cores, "
        f"Linux {about['kernel']}, {about['system']}, {about['filesystem']}")
    print("with " + "; ".join(f"{name}: {version}" for name,
        version in about["versions"].items() if version))
    if about["load"] > about["cores"] / 2:
        print(f"Others were at work here (load {about['load']:.1f} at the start): the times are "
            "not to be trusted.")
    if run.ratios:
        wide = max(len(f"{name} / {other}") for name, other, *_ in run.ratios) + 2
        print(f"\n{'ratio of median times, flatq / other':{wide}}   ratio    quartiles  aim")
        for name, other, bound, middle, low, high in run.ratios:
            quartiles = "" if low is None else f"{low:.2f}-{high:.2f}"
            aim = "" if bound is None else f"{bound:.2f}"
            said = verdict(other, middle, bound, low)
            print(f"  {name + ' / ' + other:{wide}} {middle:6.2f}  {quartiles:>11}  {aim:4}  "
                f"{said}".rstrip())
    for line in run.notes:
        print(line if line.startswith(" ") else "\n" + line)
    if run.detail:
        wide = max(len(f"{name}: {contender}") for name, contender, *_ in run.detail) + 2
        print(f"\n{'milliseconds, start to end':{wide}}    median  quartiles")
        for name, contender, middle, low, high in run.detail:
            print(f"  {name + ': ' + contender:{wide}} {1000 * middle:8.2f}  "
                f"{1000 * low:.2f}-{1000 * high:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true",
        help="a few rounds, a few messages: does it run?")
    parser.add_argument("--parent", metavar="COMMIT",
        help="measure flatq as it was at this commit beside it")
    parser.add_argument("--python", default=ROOT / ".venv/bin/python",
        help="the Python that has the packages; .venv's")
    parser.add_argument("--out", type=Path, default=ROOT / ".bench",
        help="where results go, and work is done; .bench")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: {', '.join(ROWS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="work.", dir=options.out.resolve()) as work:
            about = machine(Path(work), options.python)
            run = Run(Path(work), options.python, options.quick, options.parent)
            for row in options.rows or ROWS:
                print(f"bench: {row}", file=sys.stderr)
                try:
                    ROWS[row](run)
                # one failed row does not lose the results of the others
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    run.failed.append(row)
                    print(f"bench: {row} FAILED: {error}", file=sys.stderr)
                finally:
                    run.end()
    except KeyboardInterrupt:
        sys.exit(130)
    table(run, about)
    path = options.out / time.strftime("%Y%m%d-%H%M%S.json")
    keys = ("row", "other", "aim", "ratio", "low", "high")
    path.write_text(json.dumps({"machine": about, "quick": run.quick, "failed": run.failed,
        "ratios": [dict(zip(keys, one)) for one in run.ratios], "notes": run.notes,
        "raw": run.raw}, indent=1) + "\n")
    print(f"\nEvery round: {path}")
    if "matplotlib" not in run.packages:
        print("No picture: .venv has no matplotlib (`make venv` installs it)")
    elif subprocess.run([run.python, Path(__file__).with_name("pictures.py"), path]).returncode:
        print("No picture: pictures.py has failed")
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()
