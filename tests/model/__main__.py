"""python tests/model: explores flatq's protocol; exit status 1 if something is wrong."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutants
from configs import CONFIGS
from explore import Explorer
from protocol import Protocol


def main():
    parser = argparse.ArgumentParser(prog="python tests/model", description=__doc__)
    parser.add_argument("--config", choices=CONFIGS,
        help="only this one; else all, or the one that shows the mutant")
    parser.add_argument("--mutant", choices=mutants.PATCHES, help="break this")
    parser.add_argument("--seconds", type=float, default=60, help="for each configuration (60)")
    args = parser.parse_args()
    names, protocol, failed = list(CONFIGS), Protocol, False
    if args.mutant:
        names, protocol = [mutants.config(args.mutant)], mutants.protocol(args.mutant)
    for name in [args.config] if args.config else names:
        outcome = Explorer(CONFIGS[name], protocol).run(args.seconds)
        said = outcome.bad or ("all" if outcome.complete else "stopped at the limit")
        print(f"{name:24} {outcome.states:8} states: {said}", flush=True)
        failed = failed or bool(outcome.bad)
        for number, line in enumerate(outcome.trace, 1):
            print(f"  {number:3} {line}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
