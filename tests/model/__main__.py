"""python tests/model [--config NAME] [--mutant NAME] [--steps] [--seconds N] [--states N]
[--list]"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutants
from configs import CONFIGS
from explore import Explorer
from protocol import Protocol


def main():
    parser = argparse.ArgumentParser(prog="python tests/model",
        description="Explores flatq's protocol; exit status 1 where something is wrong.")
    parser.add_argument("--config", choices=CONFIGS,
        help="only this one; else all, or the one that shows the mutant")
    parser.add_argument("--mutant", choices=mutants.NAMES, help="break this")
    parser.add_argument("--steps", action="store_true", help="print the run that ends badly")
    parser.add_argument("--seconds", type=float, default=60, help="for each configuration (60)")
    parser.add_argument("--states", type=int, default=10_000_000, help="for each configuration")
    parser.add_argument("--list", action="store_true", help="what there is")
    args = parser.parse_args()
    if args.list:
        print("configurations:", *CONFIGS, "mutants:", *mutants.NAMES, sep="\n  ")
        return 0
    names, protocol = [args.config] if args.config else list(CONFIGS), Protocol
    if args.mutant:
        protocol = mutants.protocol(args.mutant)
        names = [args.config or mutants.read(args.mutant)[0]]
    failed = False
    for name in names:
        outcome = Explorer(CONFIGS[name], protocol).run(args.seconds, args.states)
        said = "all" if outcome.complete else "stopped at the limit"
        if outcome.bad:
            said = f"WRONG in {len(outcome.trace)} steps: {outcome.bad}"
        print(f"{name:24} {outcome.states:8} states {outcome.steps:8} steps "
            f"{outcome.seconds:6.1f} s  {said}", flush=True)
        failed = failed or bool(outcome.bad)
        if args.steps:
            print(*(f"  {number:3} {line}" for number, line in enumerate(outcome.trace, 1)),
                sep="\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
