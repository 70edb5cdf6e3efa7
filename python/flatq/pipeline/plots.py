"""The figures of a report, by matplotlib, without a display. All have one width, which is readable
on a phone; those over time have the same margins and the same time axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from .common import number
from .stats import Stats, deepest, zone

#: Colours that colour-blind readers can tell apart
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
TEXT, GRID, GREY = "#222222", "#e4e4e4", "#c4c4c4"
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "flatq",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID,
    "axes.axisbelow": True, "axes.titlelocation": "left", "axes.facecolor": "none",
    "legend.frameon": False, "lines.linewidth": 1.8, "text.color": TEXT, "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT, "xtick.color": TEXT, "ytick.color": TEXT,
    # a `$` in a queue's name must not begin a formula
    "text.parse_math": False,
}
#: Inches: the width of a figure, and the margins
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 4.6, 0.62, 0.3, 0.4, 0.55
INSIDE = WIDTH - LEFT - RIGHT
#: Seconds at which a logarithmic axis may have ticks; the first row is taken whose ticks have room
TICKS = (
    (0.01, 0.1, 1, 10, 60, 600, 3600, 28800, 86400, 864000, 8640000),
    (0.01, 1, 60, 3600, 86400, 8640000),
)


def short(value: float) -> str:
    """The number as an axis shows it: 10 k, 1 M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def span(seconds: float) -> str:
    """The time as an axis shows it: 500 ms, 10 min, 1 d."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"


def clipped(text: str, end: str, inches: float = INSIDE) -> str:
    """Both texts, the first one cut off with an ellipsis if they are longer than that."""
    most = int((inches - len(end) * 0.07) * 72 / 5.6)
    return (text if len(text) <= most else f"{text[:most - 1]}\u2026") + end


def figure(title: str, height: float, rows: int = 1, legend: int = 0,
        named: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of `height` inches, and its axes, one below the other. legend: so many lines of it
    go below them. named: each axis has a title."""
    height += legend * 0.175
    made = Figure(figsize=(WIDTH, height))
    made.subplots_adjust(LEFT / WIDTH, (BOTTOM + legend * 0.175) / height, 1 - RIGHT / WIDTH,
        1 - (TOP + named * 0.2) / height, hspace=0.55)
    made.text(0.1 / WIDTH, 1 - 0.08 / height, title, va="top", fontsize=11, fontweight="bold")
    return made, list(made.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


def _legend(made: Figure, handles: Sequence[Any], columns: int) -> None:
    """Below the plot, where it hides nothing and makes it no smaller."""
    made.legend(handles=list(handles), loc="lower left",
        bbox_to_anchor=(LEFT / WIDTH, 0.02 / made.get_size_inches()[1]), ncols=columns, fontsize=9,
        borderaxespad=0, borderpad=0, handlelength=1.2, columnspacing=1.5, labelspacing=0.35)


def _amounts(axes: Axes, ticks: int, integer: bool) -> None:
    """A vertical axis that begins at 0."""
    axes.yaxis.set_major_locator(MaxNLocator(ticks, integer=integer))
    axes.yaxis.set_major_formatter(lambda value, at: short(value))
    axes.set_ylim(0, axes.dataLim.y1 * 1.08 or 1)


def _over_time(found: Stats, axes: Sequence[Axes]) -> Any:
    """The ends of the intervals, which all axes over time share."""
    where: Any = zone(found)
    times: Any = [datetime.fromtimestamp(found.start + at * found.width, where)
        for at in range(max(map(len, found.series.values())) + 1)]
    dates: Any = AutoDateLocator
    format_: Any = ConciseDateFormatter
    locator = dates(tz=where, minticks=2, maxticks=5)
    for one in axes:
        one.xaxis.set_major_locator(locator)
        one.xaxis.set_major_formatter(format_(locator, tz=where))
        one.set_xlim(times[0], times[-1])
    axes[-1].set_xlabel(f"time in {where}", loc="left", fontsize=9)
    return times


def _steps(axes: Axes, times: Any, values: Sequence[float], color: str, label: str = "") -> Any:
    """One step for each interval. The last goes to the end of its interval."""
    return axes.step(times, [*values, values[-1]], where="post", color=color, label=label)[0]


def throughput(found: Stats) -> Figure:
    made, [axes] = figure("Throughput: messages a second", 2.6, legend=1)
    times = _over_time(found, [axes])
    lines = []
    for color, column, label in ((COLORS[0], 0, "pushed"), (COLORS[1], 1, "done")):
        values = [sum(points[at][column] for points in found.series.values()) / found.width
            for at in range(len(times) - 1)]
        lines.append(_steps(axes, times, values, color, label))
    _amounts(axes, 5, integer=False)
    _legend(made, lines, 2)
    return made


def depth(found: Stats) -> Figure:
    """A plot for each of the deepest queues, and one for the others together. One axis for all
    would show only the deepest."""
    rows = deepest(found, 6)
    made, axes = figure("Depth: messages neither done nor buried",
        2.6 if len(rows) == 1 else 1.1 + 0.72 * len(rows), len(rows), named=True)
    times = _over_time(found, axes)
    for one, (name, values) in zip(axes, rows):
        _steps(one, times, values, COLORS[0])
        one.fill_between(times, [*values, values[-1]], step="post", color=COLORS[0], alpha=0.12,
            linewidth=0)
        _amounts(one, 4 if len(rows) == 1 else 2, integer=True)
        one.set_title(clipped(name, f": {number(max(values))} at most"), fontsize=9, pad=3)
    return made


def latency(found: Stats) -> Figure | None:
    """The share of messages within a time, from push to pop and to delete; found.shares must be
    many."""
    if not found.latency:
        return None
    first = sorted(found.latency.items(), key=lambda item: -item[1][0])[:len(COLORS)]
    others = len(found.latency) - len(first)
    made, [axes] = figure("Latency: share of messages within a time", 2.8,
        legend=len(first) + (others > 0))
    lines: list[Any] = []
    for color, ((queue, verb), (count, values)) in zip(COLORS, first):
        what = "first reserve" if verb == "reserve" else verb
        label = clipped(queue, f": {what} ({number(count)})", INSIDE - 0.5)
        # the logs count in hundredths of a second
        seconds = [max(value / 1000, 0.01) for value in values]
        lines.append(axes.plot(seconds, [share * 100 for share in found.shares], color=color,
            label=label)[0])
    if others:
        lines.append(Patch(color="none", label=f"and {others} more, in the tables"))
    axes.set_xscale("log")
    ends = [max(values[end] / 1000, 0.01) for _, values in found.latency.values()
        for end in (0, -1)]
    low, high = min(ends) / 1.3, max(max(ends), 0.1) * 1.3
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, at: f"{'≤' if value == 0.01 else ''}{span(value)}")
    axes.set_xlabel("since the push", loc="left", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, at: f"{value:g}%")
    axes.set_ylim(0, 102)
    _legend(made, lines, 1)
    return made


def _ticks(low: float, high: float) -> list[float]:
    """Ticks between these seconds, so far apart on a logarithmic axis that their texts do not
    touch."""
    shown: list[float] = []
    for row in TICKS:
        shown = [tick for tick in row if low <= tick <= high]
        scale = INSIDE / math.log(high / low)
        if all(scale * math.log(after / before) > 0.62 for before, after in zip(shown, shown[1:])):
            break
    return shown


def _bars(title: str, color: str, rows: Sequence[tuple[str, str, int, int]]) -> Figure:
    """A bar for each row. Above it are a name and a text; its length shows one number, and its
    coloured part the other."""
    made, [axes] = figure(title, TOP + 0.15 + 0.42 * len(rows))
    made.subplots_adjust(left=0.1 / WIDTH, bottom=0.08 / made.get_size_inches()[1])
    axes.set_axis_off()
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xlim(0, max(row[2] for row in rows))
    for at, (name, says, whole, part) in enumerate(rows):
        axes.barh(at, whole, height=0.3, color=GREY)
        axes.barh(at, part, height=0.3, color=color)
        axes.text(0, at - 0.24, clipped(name, says, WIDTH - 0.4), fontsize=9, va="bottom")
    return made


def redeliveries(found: Stats) -> Figure | None:
    if not found.tries:
        return None
    values: dict[int, int] = {}
    for (_, tries), count in found.tries.items():
        values[min(tries, 10)] = values.get(min(tries, 10), 0) + count
    rows = [(f"try {tries}{' and later' if tries == 10 else ''}", f": {number(count)} times", count,
        count) for tries, count in sorted(values.items())]
    return _bars("Redeliveries: messages handed out again", COLORS[0], rows)


def dead(found: Stats) -> Figure | None:
    if not found.dead:
        return None
    counts: dict[str, tuple[int, int]] = {}
    for (_, reason), (buried, still) in found.dead.items():
        before = counts.get(reason, (0, 0))
        counts[reason] = (before[0] + buried, before[1] + still)
    rows = sorted(((reason, *both) for reason, both in counts.items()),
        key=lambda row: (-row[1], row[0]))
    if len(rows) > 12:
        rows[11:] = [(f"{len(rows) - 11} other reasons", sum(row[1] for row in rows[11:]),
            sum(row[2] for row in rows[11:]))]
    return _bars("Dead letters, by reason", COLORS[1], [
        (reason, f": {number(buried)}, {number(still)} still there", buried, still)
        for reason, buried, still in rows])


#: by file name
PLOTS: dict[str, Callable[[Stats], Figure | None]] = {
    "throughput": throughput, "depth": depth, "latency": latency, "redeliveries": redeliveries,
    "dead": dead,
}


def all_of(found: Stats) -> dict[str, Figure]:
    """Those of PLOTS that have something to show."""
    with matplotlib.rc_context(STYLE):
        return {name: one for name, plot in PLOTS.items() if (one := plot(found)) is not None}
