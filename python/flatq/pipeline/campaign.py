"""The outcomes of the crash laboratory, which trials.py writes: the table of failure windows, and
its plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from .common import grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


def windows(outcomes: DataFrame) -> tuple[list[str], list[str], dict[tuple[str, str], int],
        dict[tuple[str, str], int]]:
    """Faults, verbs, and for each pair the number of bad trials and of all trials."""
    column = F.expr(
        "if(second <> '', 'double', if(fault = '', 'runs', split(fault, ',')[0]))").alias("head")
    found = outcomes.where("outcome <> 'not reached'").groupBy("verb", column).agg(
        F.count("*").alias("tried"), F.sum(F.expr("if(outcome = 'bad', 1, 0)")).alias(
        "bad")).collect()
    heads = sorted({row["head"] for row in found})
    verbs = sorted({row["verb"] for row in found})
    return heads, verbs, {(row["verb"], row["head"]): row["bad"]
        for row in found}, {(row["verb"], row["head"]): row["tried"] for row in found}


def text(outcomes: DataFrame) -> tuple[str, int]:
    """The table, the line that replays each bad trial, and the number of bad trials that should not
    be bad."""
    heads, verbs, bad, tried = windows(outcomes)
    cells = [[verb, *(f"{bad[verb, head]}/{tried[verb, head]}" if (verb, head) in tried else ""
        for head in heads),
              f"{sum(bad[key] for key in bad if key[0] == verb)}/{sum(tried[key] for key in tried if key[0] == verb)}"] for verb in verbs]
    parts = ["Bad trials of all\n" + grid(["", *heads, "all"], cells)]
    wrong = outcomes.where("outcome = 'bad' AND NOT baseline")
    number = wrong.count()
    for row in wrong.orderBy("family", "scenario", "point").limit(50).collect() if number else ():
        parts.append(f"python3 -m flatq.crashlab {row['replay']}\n    {row['detail'][:500]}")
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
