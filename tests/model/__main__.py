"""python tests/model [--config NAME] [--wrong VARIANT]... [--steps] [--seconds N] [--states N]
[--list]"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from configs import CONFIGS
from explore import Explorer
from variants import VARIANTS


def main():
    parser = argparse.ArgumentParser(prog="python tests/model",
        description="Explores flatq's protocol; exit status 1 where something is wrong.")
    parser.add_argument("--config", choices=CONFIGS,
        help="only this one; else all, or the one that shows the variant")
    parser.add_argument("--wrong", action="append", default=[], choices=VARIANTS,
        help="break this; may be repeated")
    parser.add_argument("--steps", action="store_true", help="print the run that ends badly")
    parser.add_argument("--seconds", type=float, default=60, help="for each configuration (60)")
    parser.add_argument("--states", type=int, default=10_000_000, help="for each configuration")
    parser.add_argument("--list", action="store_true", help="what there is")
    args = parser.parse_args()
    if args.list:
        print("configurations:", *CONFIGS, "wrong variants:", *VARIANTS, sep="\n  ")
        return 0
    names = [args.config] if args.config else [VARIANTS[args.wrong[0]]] if len(
        args.wrong) == 1 else list(CONFIGS)
    failed = False
    for name in names:
        outcome = Explorer(CONFIGS[name], args.wrong).run(args.seconds, args.states)
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
