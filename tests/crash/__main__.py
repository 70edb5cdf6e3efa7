"""python3 -m crash: break the verbs at every call and check what is left.

Without --point, it runs trials of the families named by --family (else of all), side by side, and
prints a table of bad trials at the end. If it is interrupted, it writes and shows the outcomes so
far. With --scenario, --fault and --point, or with a line that begins with the name of a family, it
runs one trial in full. Exit 0: nothing is bad; 1: something is; 64: usage; 69: this system cannot
do it (of several families: says which it cannot); 130, 143: interrupted. """
from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import random
import shlex
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from . import campaign, mutant, report
from .families import article, clients, cuts, history, pairs, power, races
from .families.trial import Trial
from .gate import faults, gate
from .scenarios import SCENARIOS, System, system_of


#: How a line that replays one trial begins, after --lib DIRECTORY, and the family that knows it.
AGAIN: dict[str, Any] = {"power": power, "cut": cuts, "pair": pairs, "article": article,
    "race": races, "history": history, "client": clients}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.prog}: {message}\n")


def _parser(families: list[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="python3 -m crash", description=__doc__.partition("\n\n")[2],
        add_help=True)
    parser.add_argument("--family", action="append", choices=families, metavar="NAME",
        help=f"one of {', '.join(families)}; may be repeated")
    parser.add_argument("--scenario", action="append", metavar="NAME",
        help="a scenario, or the beginning of its name; --list shows them")
    parser.add_argument("--fault", action="append", metavar="NAME",
        help=f"one of {', '.join((*faults.FAULTS, *faults.UNSEEN))}")
    parser.add_argument("--point", type=int, metavar="N",
        help="only at this call, counted from 1, and in full")
    parser.add_argument("--second", default="", metavar="'VERB N'",
        help="then kill this verb at its call N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, metavar="N",
        help="about so many trials of a scenario; else all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N",
        help="processes side by side")
    parser.add_argument("--rows", choices=("verb", "scenario"), default="verb",
        help="the rows of the table")
    parser.add_argument("--json", type=Path, metavar="FILE",
        help="also write each trial as a line of JSON")
    parser.add_argument("--lib", type=Path, metavar="DIRECTORY",
        help="the directory of other verbs to test")
    parser.add_argument("--mutants", action="store_true",
        help="break copies of lib, and print which family notices")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    return parser


def _one(parser: argparse.ArgumentParser, args: argparse.Namespace, system: System) -> int:
    try:
        one = Trial.of((args.scenario or [""])[0], (args.fault or [""])[0], args.point, args.seed,
            args.second)
    except ValueError as error:
        parser.error(str(error))
    with campaign.workplace() as work:
        outcome, text = report.full(one, system, work)
    print(text)
    return int(outcome.outcome == "bad")


def _work() -> None:
    """Set up a process of the pool: an interruption ends it silently."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _again(line: list[str], system: System, parser: argparse.ArgumentParser) -> int:
    """Repeat a trial of one of AGAIN, from the line that it printed."""
    try:
        with campaign.workplace() as work:
            outcome = AGAIN[line[0]].again(shlex.join(line), system, work)
    except (ValueError, KeyError) as error:
        parser.error(str(error))
    print(f"{outcome.call}\n" + "".join(f"  {what}\n" for what in getattr(outcome, "missing", ()))
        + f"{outcome.outcome}: {outcome.detail}")
    return int(outcome.outcome == "bad")


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    families = campaign.families()
    parser = _parser(list(families))
    lib = argv[:2] if argv[:1] == ["--lib"] else []
    line = argv[len(lib):]
    again = bool(line) and line[0] in AGAIN
    args = parser.parse_args(lib if again else argv)
    if args.list:
        print("\n".join(SCENARIOS))
        return 0
    chosen = args.family or list(families)
    there, without = gate.available()
    if not there and (again and line[0] not in ("history", "client")
            or args.point is not None or not campaign.UNGATED & set(chosen)):
        print(without, file=sys.stderr)
        return 69
    if args.mutants:
        with campaign.workplace() as work:
            return mutant.command(work)
    system = system_of(args.lib) if args.lib else System()
    if again:
        return _again(line, system, parser)
    if args.point is not None:
        return _one(parser, args, system)
    wanted = [name for name in SCENARIOS if not args.scenario
        or any(name == text or name.startswith(text) for text in args.scenario)]
    unknown = [name for name in args.fault or () if name not in (*faults.FAULTS, *faults.UNSEEN)]
    if not wanted or unknown or args.second:
        parser.error(f"no fault {unknown[0]!r}" if unknown else "--second goes with --point"
            if args.second else "no such scenario")
    options = campaign.Options(tuple(wanted), tuple(args.fault or faults.FAULTS), args.limit,
        args.seed)
    outcomes: list[Any] = []
    ended = 0
    with campaign.workplace() as work, contextlib.ExitStack() as files:
        files.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _stop))
        stream = files.enter_context(args.json.open("w")) if args.json else None
        pool = ProcessPoolExecutor(max(args.jobs, 1), initializer=_work)
        try:
            for names in [chosen] if args.limit is None else [[family] for family in chosen]:
                tasks = [(family, task) for family in names for task in (
                    families[family](system, options, work) if there or family in campaign.UNGATED
                    else [functools.partial(campaign.missing, family, without)])]
                if len(names) > 1:
                    # All of it takes days: in an order by chance, so that what was done until an
                    # interruption is of all kinds
                    random.Random(args.seed).shuffle(tasks)
                progress = report.Progress(", ".join(names), len(tasks))
                for found in campaign.execute(tasks, pool):
                    progress.add(found)
                    outcomes += found
                    if stream:
                        report.write(found, stream)
                        stream.flush()
                progress.close()
            pool.shutdown()
        except KeyboardInterrupt as reason:
            ended = 143 if reason.args else 130
            for process in multiprocessing.active_children():
                process.kill()  # and with it whatever it has behind a gate
            pool.shutdown(cancel_futures=True)
            if stream:
                # It may have come while some of them were written
                stream.seek(0)
                stream.truncate()
                report.write(outcomes, stream)
            print("ended before its end: this is how far it came", file=sys.stderr)
    print(report.table(outcomes, args.rows))
    bad = [outcome for outcome in outcomes if outcome.outcome == "bad" and not getattr(outcome,
        "baseline", False)]
    missed = [outcome for outcome in outcomes if outcome.outcome == "not reached"]
    if missed:
        print("\n".join([f"{len(missed)} points were not reached",
            *dict.fromkeys(outcome.detail for outcome in missed if outcome.detail)]))
    for outcome in bad:
        print(f"python3 -m crash {outcome.replay}\n    {outcome.detail[:500]}")
    return ended or int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
