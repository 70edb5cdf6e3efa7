"""Run the crash laboratory with its trials spread by Spark's scheduler: outcomes to Parquet, the table of failure windows, its plot.

Each task of flatq.crashlab.campaign is a task of Spark. The executors need the source tree at the same path, and the system that the
laboratory needs."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ..errors import Invalid, Unreachable
from ..spark.options import PACKAGES
from .common import grid
from .place import Place, local

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = ("family string, scenario string, verb string, fault string, point bigint, call string, second string, outcome string, "
          "detail string, replay string, seconds double, baseline boolean, more string")
FIELDS = tuple(column.split()[0] for column in SCHEMA.split(", "))[:-1]


def rows(family: str, outcomes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Outcomes as rows of SCHEMA; `more` is what a family has beside these, as JSON."""
    for one in outcomes:
        plain = one.as_dict()
        more = {key: value for key, value in plain.items() if key not in FIELDS}

        def text(name: str) -> str:
            value = plain.get(name)
            return "" if value is None else str(value)

        point = plain.get("point")
        yield (
            text("family") or family, text("scenario"), text("verb") or text("scenario"), text("fault"), point if isinstance(point, int) else None,
            text("call"), text("second"), text("outcome"), text("detail"), text("replay"), float(plain.get("seconds") or 0),
            bool(plain.get("baseline", False)), json.dumps(more, default=str),
        )


def mapper(packages: str, work: str) -> Callable[[tuple[str, bytes]], list[tuple[Any, ...]]]:
    """A function that Spark ships by value, and that finds the package on its own."""

    def run(task: tuple[str, bytes]) -> list[tuple[Any, ...]]:
        import os
        import pickle
        import sys

        if packages not in sys.path:
            sys.path.insert(0, packages)
        os.makedirs(work, exist_ok=True)
        from flatq.pipeline import campaign

        family, made = task
        return list(campaign.rows(family, pickle.loads(made)()))

    return run


def run(spark: SparkSession, to: str, families: Sequence[str] = (), scenarios: Sequence[str] = (), which: Sequence[str] = (),
        limit: int | None = None, seed: int = 0, lib: str | None = None) -> DataFrame:
    """The outcomes, once they are in Parquet at `to`, in the place of those that were there. Raises Invalid where it holds something else."""
    Place("campaign", to, spark).check()
    try:
        from ..crashlab import campaign as laboratory
        from ..crashlab import faults, gate
        from ..crashlab.scenarios import SCENARIOS, System
    except ModuleNotFoundError:
        raise Unreachable("the crash laboratory needs flatq's source tree: it is no part of the package that pip installs", 69) from None
    known = laboratory.families()
    for names, all_, what in ((families, known, "family"), (which, faults.FAULTS, "fault")):
        for name in names:
            if name not in all_:
                raise Invalid(f"no {what} {name!r}: one of {', '.join(all_)}", 64)
    wanted = [name for name in SCENARIOS if not scenarios or any(name.startswith(text) for text in scenarios)]
    if not wanted:
        raise Invalid(f"no scenario {scenarios[0]!r}", 64)
    there, reason = gate.available()
    if not there:
        raise Unreachable(reason, 69)
    system = System(Path(lib).absolute(), lib) if lib else System()
    options = laboratory.Options(tuple(wanted), tuple(which or faults.FAULTS), limit, seed)
    with laboratory.workplace() as work:
        tasks: list[tuple[str, bytes]] = []
        with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
            for family in families or known:
                tasks += [(family, pickle.dumps(task)) for task in known[family](system, options, pool, work)]
        outcomes = spark.sparkContext.parallelize(tasks, max(len(tasks), 1)).flatMap(mapper(PACKAGES, str(work)))
        with Place("campaign", to, spark).replaced() as new:
            spark.createDataFrame(outcomes, SCHEMA).write.parquet(new)
            # outcomes that took hours are not lost for a picture
            with contextlib.suppress(Exception):
                picture = plot(spark.read.parquet(new)) if local(to) else None
                if picture:
                    picture.savefig(os.path.join(new, "_windows.png"), dpi=150)
    return spark.read.parquet(to)


def windows(outcomes: DataFrame) -> tuple[list[str], list[str], dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Faults, verbs, and for each pair the number of bad trials and of all trials."""
    column = F.expr("if(second <> '', 'double', if(fault = '', 'runs', split(fault, ',')[0]))").alias("head")
    found = outcomes.where("outcome <> 'not reached'").groupBy("verb", column).agg(
        F.count("*").alias("tried"), F.sum(F.expr("if(outcome = 'bad', 1, 0)")).alias("bad")).collect()
    heads = sorted({row["head"] for row in found})
    verbs = sorted({row["verb"] for row in found})
    return heads, verbs, {(row["verb"], row["head"]): row["bad"] for row in found}, {(row["verb"], row["head"]): row["tried"] for row in found}


def text(outcomes: DataFrame) -> tuple[str, int]:
    """The table, the line that replays each bad trial, and the number of bad trials that should not be bad."""
    heads, verbs, bad, tried = windows(outcomes)
    cells = [[verb, *(f"{bad[verb, head]}/{tried[verb, head]}" if (verb, head) in tried else "" for head in heads),
              f"{sum(bad[key] for key in bad if key[0] == verb)}/{sum(tried[key] for key in tried if key[0] == verb)}"] for verb in verbs]
    parts = ["Bad trials of all\n" + grid(["", *heads, "all"], cells)]
    wrong = outcomes.where("outcome = 'bad' AND NOT baseline")
    number = wrong.count()
    for row in wrong.orderBy("family", "scenario", "point").limit(50).collect() if number else ():
        line = row["replay"] if row["replay"].startswith("python3 ") else f"python3 -m flatq.crashlab {row['replay']}"
        parts.append(f"{line}\n    {row['detail'][:500]}")
    missed = outcomes.where("outcome = 'not reached'").count()
    if missed:
        parts.append(f"{missed} points were not reached")
    return "\n\n".join(parts), number


def plot(outcomes: DataFrame) -> Figure | None:
    """The table as a picture; None where there are no outcomes, or no matplotlib."""
    try:
        from . import plots
    except ImportError:
        return None
    heads, verbs, bad, tried = windows(outcomes)
    return plots.windows(heads, verbs, bad, tried) if verbs else None
