"""python3 -m crash: break the verbs at every call and check what is left.

Without --point, it runs trials of the families, side by side, and prints a table of them. With
--family, --scenario, --fault and --point, which each bad trial is printed with, it runs that one,
and shows the calls and the spool before and after. Exit 0: nothing is bad; 1: something is; 2:
usage; 130: interrupted."""
from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from . import campaign, mutant
from .campaign import FAMILIES
from .gate import faults
from .judge.trees import Tree
from .scenarios import System, system_of
from .trials import Options, Seen, sample, Trial


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m crash",
        description=__doc__.partition("\n\n")[2])
    parser.add_argument("--family", action="append", metavar="F", choices=FAMILIES,
        help=f"one of {', '.join(FAMILIES)}; may be repeated")
    parser.add_argument("--scenario", action="append", metavar="S", default=[],
        help="a scenario, or the beginning of its name; --list shows them")
    parser.add_argument("--fault", action="append", metavar="X", default=[],
        help="a fault of the family; --list shows them")
    parser.add_argument("--point", metavar="N", help="where it strikes: replay this trial")
    parser.add_argument("--at", default="", metavar="PATTERN",
        help="only at calls whose `COMMAND: KIND PATH` has the pattern")
    parser.add_argument("--limit", type=int, metavar="N",
        help="so many trials of each family, which the seed chooses; else as many as take an hour "
            "on two processors")
    parser.add_argument("--all", action="store_true", help="all trials: days")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
        help="processes side by side")
    parser.add_argument("--lib", type=Path, metavar="DIRECTORY", help="test other verbs")
    parser.add_argument("--mutants", action="store_true",
        help="break copies of lib, and print which family notices")
    parser.add_argument("--list", action="store_true",
        help="the families with their faults and scenarios")
    return parser


def _list(families: list[str], system: System) -> None:
    for name in families:
        family = FAMILIES[name]
        print(f"{name}\n  faults: {', '.join(family.faults)}\n  scenarios:")
        print("\n".join(f"    {scenario}" for scenario in family.scenarios(system)))


def _table(outcomes: Iterable[Seen]) -> str:
    """Bad trials of all, by family and kind of fault."""
    counts: dict[tuple[str, str], Counter[str]] = {("all", ""): Counter()}
    for one in outcomes:
        for row in ((one.trial.family, faults.kind(one.trial.fault)), ("all", "")):
            counts.setdefault(row, Counter())[one.outcome] += 1
    counts["all", ""] = counts.pop(("all", ""))  # as the last row
    return "\n".join(f"{family:8} {kind:20} {count['bad']:>5} bad of {sum(count.values())}"
        f"{', {} not reached'.format(count['not reached']) if count['not reached'] else ''}"
        for (family, kind), count in counts.items())


def _files(tree: Tree | None) -> set[str]:
    return {path + ("/" if content is None else f" ({len(content)} bytes)"
        if isinstance(content, bytes) and content else "")
        for path, content in (tree.entries if tree else ())}


def _full(seen: Seen) -> str:
    """The calls around the one that was struck, the spool before and after, and what is wrong."""
    lines = [f"{seen.trial}", ""]
    struck = next((call.seq for call in seen.calls if call.fate != "run"), 0)
    lines += [f"{'>' if call.seq == struck else ' '} {call.seq:4} {call}"
        f"{f' ({call.size} bytes)' if call.size else ''}"
        f"{'' if call.fate == 'run' else ': ' + call.fate}"
        for call in seen.calls if abs(call.seq - struck) <= 4]
    old, new = _files(seen.before), _files(seen.after)
    lines += [seen.said or seen.call, "", "the spool (- only before, + only after):",
        *(f"{'+' if line not in old else ' ' if line in new else '-'} {line}"
            for line in sorted(old | new)), ""]
    return "\n".join([*lines, seen.outcome, *(f"  {text}" for text in seen.wrong or ())])


def _replay(args: argparse.Namespace, system: System, parser: argparse.ArgumentParser) -> int:
    try:
        [name], [scenario], [fault] = args.family or (), args.scenario, args.fault
    except ValueError:
        parser.error("--point goes with one --family, --scenario and --fault")
    trial, family = Trial(name, scenario, fault, args.point), FAMILIES[name]
    if trial.fault not in family.faults or trial.scenario not in family.scenarios(system):
        parser.error(f"no trial: {trial}")
    with campaign.workplace() as work:
        try:
            seen = campaign.run(trial, system, work)
        except ValueError:
            parser.error(f"no point {args.point!r}")
    print(_full(seen))
    return int(bool(seen.wrong))


def _tasks(args: argparse.Namespace, system: System,
        parser: argparse.ArgumentParser) -> list[campaign.Task]:
    tasks: list[campaign.Task] = []
    for name in args.family or FAMILIES:
        family = FAMILIES[name]
        if reason := family.lacks():
            print(f"{name}: left out: {reason}", file=sys.stderr)
            continue
        limit = None if args.all else args.limit or family.hour
        known = family.scenarios(system)
        scenarios = [scenario for scenario in known if not args.scenario or any(scenario == text
            or text not in known and scenario.startswith(text) for text in args.scenario)]
        if not args.fault or {*args.fault} & {*family.faults}:
            tasks += campaign.plan(name, scenarios, Options(tuple(args.fault), args.at, limit,
                args.seed, args.all))
    if not tasks:
        parser.error("no such trials here: --list shows what there is")
    # In an order by chance: what was done until an interruption is of all kinds
    return sample(tasks, len(tasks), f"{args.seed}")


def _stop(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    system = system_of(args.lib) if args.lib else System()
    if args.list:
        _list(args.family or [*FAMILIES], system)
        return 0
    if args.mutants:
        with campaign.workplace() as work:
            return mutant.command(work)
    if args.point is not None:
        return _replay(args, system, parser)
    tasks = _tasks(args, system, parser)
    outcomes: list[Seen] = []
    signal.signal(signal.SIGTERM, _stop)
    ended = False
    with campaign.workplace() as work, ProcessPoolExecutor(args.jobs) as pool:
        try:
            futures = [pool.submit(campaign.execute, task, system, work) for task in tasks]
            for done, future in enumerate(as_completed(futures), 1):
                outcomes += future.result()
                if sys.stderr.isatty():
                    print(f"\r{done} of {len(tasks)} scenarios, {len(outcomes)} trials",
                        end="\n" * (done == len(tasks)), file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            ended = True
            pool.shutdown(cancel_futures=True)
    print(_table(outcomes))
    wrong = [outcome for outcome in outcomes if outcome.outcome == "bad"]
    lib = f"--lib {args.lib} " if args.lib else ""
    for outcome in wrong:
        print(f"python3 -m crash {lib}{outcome.trial}\n    {outcome.detail[:500]}")
    return 130 if ended else int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
