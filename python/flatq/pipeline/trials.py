"""Run the crash laboratory with its trials spread by Spark's scheduler: outcomes to Parquet, and
their plot beside them.

Each task of flatq.crashlab.campaign is a task of Spark. The executors need the source tree at the
same path, and the system that the laboratory needs."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..crashlab import campaign as laboratory
from ..crashlab.gate import faults, gate
from ..crashlab.scenarios import SCENARIOS, System
from ..errors import Invalid, Unreachable
from ..spark.options import PACKAGES
from . import campaign
from .place import Place, local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = ("family string, scenario string, verb string, fault string, point bigint, call string, second string, outcome string, "
          "detail string, replay string, seconds double, baseline boolean, more string")
FIELDS = tuple(column.split()[0] for column in SCHEMA.split(", "))[:-1]


def rows(family: str, outcomes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Outcomes as rows of SCHEMA. `more` has the other fields of a family, as JSON."""
    for one in outcomes:
        plain = one.as_dict()
        more = {key: value for key, value in plain.items() if key not in FIELDS}

        def text(name: str) -> str:
            value = plain.get(name)
            return "" if value is None else str(value)

        point = plain.get("point")
        yield (
            text("family") or family, text("scenario"), text("verb") or text("scenario"),
            text("fault"), point if isinstance(point, int) else None,
            text("call"), text("second"), text("outcome"), text("detail"), text("replay"),
            float(plain.get("seconds") or 0),
            bool(plain.get("baseline", False)), json.dumps(more, default=str),
        )


def mapper(packages: str, work: str) -> Callable[[tuple[str, bytes]], list[tuple[Any, ...]]]:
    """A function that Spark sends by value, and that finds the package by itself."""

    def run(task: tuple[str, bytes]) -> list[tuple[Any, ...]]:
        import os
        import pickle
        import sys

        if packages not in sys.path:
            sys.path.insert(0, packages)
        os.makedirs(work, exist_ok=True)
        from flatq.pipeline import trials

        family, made = task
        return list(trials.rows(family, pickle.loads(made)()))

    return run


def run(spark: SparkSession, to: str, families: Sequence[str] = (), scenarios: Sequence[str] = (),
        which: Sequence[str] = (),
        limit: int | None = None, seed: int = 0, lib: str | None = None) -> DataFrame:
    """Write the outcomes to Parquet at `to`, replace earlier ones, and return them. Raises Invalid
    if `to` holds anything else."""
    Place("campaign", to, spark).check()
    known = laboratory.families()
    for names, all_, what in ((families, known, "family"), (which, faults.FAULTS, "fault")):
        for name in names:
            if name not in all_:
                raise Invalid(f"no {what} {name!r}: one of {', '.join(all_)}", 64)
    wanted = [name for name in SCENARIOS if not scenarios
        or any(name.startswith(text) for text in scenarios)]
    if not wanted:
        raise Invalid(f"no scenario {scenarios[0]!r}", 64)
    there, reason = gate.available()
    if not there:
        raise Unreachable(reason, 69)
    system = System(Path(lib).absolute(), lib) if lib else System()
    options = laboratory.Options(tuple(wanted), tuple(which or faults.FAULTS), limit, seed)
    with laboratory.workplace() as work:
        tasks = [(family, pickle.dumps(task)) for family in families or known
            for task in known[family](system, options, work)]
        outcomes = spark.sparkContext.parallelize(tasks,
            max(len(tasks), 1)).flatMap(mapper(PACKAGES, str(work)))
        with Place("campaign", to, spark).replaced() as new:
            spark.createDataFrame(outcomes, SCHEMA).write.parquet(new)
            # outcomes that took hours must not be lost because a picture fails
            with contextlib.suppress(Exception):
                picture = campaign.plot(spark.read.parquet(new)) if local(to) else None
                if picture:
                    picture.savefig(os.path.join(new, "_windows.png"), dpi=150)
    return spark.read.parquet(to)
