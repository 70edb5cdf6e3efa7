"""The figures of a report, by matplotlib, without a display: each for a wide page and for a
phone's.

All plots over time have the same margins and the same time axis, so that they can be read one below
the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from .common import number
from .stats import Stats, deepest, zone

#: Colours that colour-blind readers can tell apart
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
TEXT, GRID, GREY = "#222222", "#e4e4e4", "#c4c4c4"
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "flatq",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": GRID, "axes.axisbelow": True, "axes.titlelocation": "left",
    "axes.facecolor": "none", "legend.frameon": False,
    "lines.linewidth": 1.8, "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT,
    "xtick.color": TEXT, "ytick.color": TEXT,
    # a `$` in a queue's name must not begin a formula
    "text.parse_math": False,
}
#: Inches: the widths of a figure, and the margins of all
WIDE, PHONE = 9.0, 4.0
LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.3, 0.4, 0.55
#: Seconds at which a logarithmic axis may have ticks; the first row is taken whose ticks have room
TICKS = (
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600,
    43200, 86400, 172800, 604800, 2592000, 8640000),
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


def clipped(text: str, inches: float, points: float = 9) -> str:
    """The text, cut off with an ellipsis if it is longer than that."""
    most = int(inches * 72 / (points * 0.62))
    return text if len(text) <= most else f"{text[:most - 1]}\u2026"


def figure(title: str, wide: bool, height: float, rows: int = 1, legend: int = 0,
        named: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of `height` inches, and its axes, one below the other. legend: so many lines of it
    go below them. named: each axis has a title."""
    width = WIDE if wide else PHONE
    height += legend * 0.175
    made = Figure(figsize=(width, height))
    made.subplots_adjust(LEFT / width, (BOTTOM + legend * 0.175) / height, 1 - RIGHT / width,
        1 - (TOP + named * 0.2) / height, hspace=0.55)
    made.text(0.1 / width, 1 - 0.08 / height, title, va="top", fontsize=12 if wide else 10.5,
        fontweight="bold")
    return made, list(made.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


def _legend(made: Figure, handles: Sequence[Any], columns: int) -> None:
    """Below the plot, where it hides nothing and makes it no smaller."""
    width, height = made.get_size_inches()
    made.legend(handles=list(handles), loc="lower left",
        bbox_to_anchor=(LEFT / width, 0.02 / height), ncols=columns, fontsize=9, borderaxespad=0,
                borderpad=0, handlelength=1.2, columnspacing=1.5, labelspacing=0.35)


def _amounts(axes: Axes, ticks: int, integer: bool) -> None:
    """A vertical axis that begins at 0."""
    axes.yaxis.set_major_locator(MaxNLocator(ticks, integer=integer))
    axes.yaxis.set_major_formatter(lambda value, at: short(value))
    axes.set_ylim(0, axes.dataLim.y1 * 1.08 or 1)


def _over_time(found: Stats, axes: Sequence[Axes], wide: bool) -> list[datetime]:
    """The ends of the intervals, which all axes over time share."""
    where = zone(found)
    times = [datetime.fromtimestamp(found.start + at * found.width, where)
        for at in range(max(map(len, found.series.values())) + 1)]
    locator = AutoDateLocator(tz=where, minticks=3 if wide else 2,
        maxticks=8 if wide else 5)  # type: ignore[no-untyped-call,unused-ignore]
    for one in axes:
        one.xaxis.set_major_locator(locator)
        one.xaxis.set_major_formatter(ConciseDateFormatter(locator,
            tz=where))  # type: ignore[no-untyped-call,unused-ignore]
        one.set_xlim(times[0], times[-1])  # type: ignore[arg-type,unused-ignore]
    axes[-1].set_xlabel(f"time in {where}", loc="left", fontsize=9)
    return times


def _steps(axes: Axes, times: Any, values: Sequence[float], color: str, label: str = "") -> Any:
    """One step for each interval. The last goes to the end of its interval."""
    return axes.step(times, [*values, values[-1]], where="post", color=color, label=label)[0]


def throughput(found: Stats, wide: bool) -> Figure:
    made, [axes] = figure("Throughput: messages a second", wide, 2.9, legend=1)
    times = _over_time(found, [axes], wide)
    lines = []
    for color, column, label in ((COLORS[0], 0, "pushed"), (COLORS[1], 1, "done")):
        values = [sum(points[at][column] for points in found.series.values()) / found.width
            for at in range(len(times) - 1)]
        lines.append(_steps(axes, times, values, color, label))
    _amounts(axes, 5, integer=False)
    _legend(made, lines, 2)
    return made


def depth(found: Stats, wide: bool) -> Figure:
    """A plot for each of the deepest queues, and one for the others together. One axis for all
    would show only the deepest."""
    title = "Depth: messages neither done nor buried"
    rows = deepest(found, 6)
    made, axes = figure(title, wide, 2.9 if len(rows) == 1 else 1.1 + 0.72 * len(rows), len(rows),
        named=True)
    times = _over_time(found, axes, wide)
    for one, (name, values) in zip(axes, rows):
        _steps(one, times, values, COLORS[0])
        one.fill_between(times, [*values, values[-1]],  # type: ignore[arg-type,unused-ignore]
            step="post", color=COLORS[0], alpha=0.12, linewidth=0)
        _amounts(one, 4 if len(rows) == 1 else 2, integer=True)
        most = f": {number(max(values))} at most"
        one.set_title(clipped(name, (WIDE if wide else PHONE) - LEFT - RIGHT - len(most) * 0.07)
            + most, fontsize=9, pad=3)
    return made


def latency(found: Stats, wide: bool) -> Figure | None:
    """The share of messages within a time, from push to pop and to delete; found.shares must be
    many."""
    if not found.latency:
        return None
    first = sorted(found.latency.items(), key=lambda item: -item[1][0])[:len(COLORS)]
    columns = 2 if wide else 1
    others = len(found.latency) - len(first)
    made, [axes] = figure("Latency: share of messages within a time", wide, 3.1,
        legend=-(-(len(first) + (others > 0)) // columns))
    lines: list[Any] = []
    for color, ((queue, verb), (count, values)) in zip(COLORS, first):
        label = f": {'first reserve' if verb == 'reserve' else verb} ({number(count)})"
        label = clipped(queue, ((WIDE if wide else PHONE) - LEFT - RIGHT) / columns - 0.5 - len(
            label) * 0.07) + label
        # the logs count in hundredths of a second
        seconds = [max(value / 1000, 0.01) for value in values]
        lines.append(axes.plot(seconds, [share * 100 for share in found.shares], color=color,
            label=label)[0])
    if others:
        lines.append(Patch(color="none",
            label=f"and {others} more, with fewer messages, in the tables"))
    axes.set_xscale("log")
    ends = [max(values[end] / 1000, 0.01) for _, values in found.latency.values() for end in (0,
        -1)]
    low, high = min(ends) / 1.3, max(max(ends), 0.1) * 1.3
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(low, high,
        (WIDE if wide else PHONE) - LEFT - RIGHT)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, at: f"{'≤' if value == 0.01 else ''}{span(value)}")
    axes.set_xlabel("since the push", loc="left", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, at: f"{value:g}%")
    axes.set_ylim(0, 102)
    _legend(made, lines, columns)
    return made


def _ticks(low: float, high: float, inches: float) -> list[float]:
    """Ticks between these seconds, so far apart on a logarithmic axis that their texts do not
    touch."""
    shown: list[float] = []
    for row in TICKS:
        shown = [tick for tick in row if low <= tick <= high]
        scale = inches / math.log(high / low)
        if all(scale * math.log(after / before) > 0.62 for before, after in zip(shown, shown[1:])):
            break
    return shown


def _bars(title: str, wide: bool, color: str, rows: Sequence[tuple[str, str, int, int]]) -> Figure:
    """A bar for each row. Above it are a name and a text; its length shows one number, and its
    coloured part the other."""
    made, [axes] = figure(title, wide, TOP + 0.15 + 0.42 * len(rows))
    width, height = made.get_size_inches()
    made.subplots_adjust(left=0.1 / width, bottom=0.08 / height)
    axes.set_axis_off()
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xlim(0, max(row[2] for row in rows))
    for at, (name, says, whole, part) in enumerate(rows):
        axes.barh(at, whole, height=0.3, color=GREY)
        axes.barh(at, part, height=0.3, color=color)
        axes.text(0, at - 0.24, clipped(name, width - 0.4 - len(says) * 0.07) + says, fontsize=9,
            va="bottom")
    return made


def redeliveries(found: Stats, wide: bool) -> Figure | None:
    if not found.tries:
        return None
    values: dict[int, int] = {}
    for (_, tries), count in found.tries.items():
        values[min(tries, 10)] = values.get(min(tries, 10), 0) + count
    rows = [(f"try {tries}{' and later' if tries == 10 else ''}", f": {number(count)} times", count,
        count) for tries, count in sorted(values.items())]
    return _bars("Redeliveries: messages handed out again", wide, COLORS[0], rows)


def dead(found: Stats, wide: bool) -> Figure | None:
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
    return _bars("Dead letters, by reason", wide, COLORS[1], [
        (reason, f": {number(buried)}, {number(still)} still there", buried, still) for reason,
        buried, still in rows])


@matplotlib.rc_context(STYLE)
def windows(heads: Sequence[str], rows: Sequence[str], bad: dict[tuple[str, str], int],
        tried: dict[tuple[str, str], int]) -> Figure:
    """The crash laboratory: bad trials of all, by row (verb) and fault."""
    inches = 0.09 * max(map(len, rows)) + 0.3
    texts = {key: f"{bad.get(key, 0):,}/{count:,}" for key, count in tried.items() if count}
    longest = max(map(len, texts.values()), default=1)
    cell = max(0.085 * longest + 0.1, 0.55)
    upright = max(map(len, heads)) * 0.09 < cell
    above = 0.3 if upright else 0.09 * max(map(len, heads)) + 0.15
    width, height = max(inches + cell * len(heads) + 0.2, 5.6), TOP + above + 0.3 * len(rows) + 0.5
    made = Figure(figsize=(width, height))
    made.subplots_adjust(inches / width, 0.5 / height, 1 - 0.2 / width, 1 - (TOP + above) / height)
    made.text(0.1 / width, 1 - 0.08 / height, "Failure windows: bad trials of all", va="top",
        fontsize=12, fontweight="bold")
    axes = made.add_subplot()
    reds = matplotlib.colormaps["Reds"]
    for y, row in enumerate(rows):
        for x, head in enumerate(heads):
            share = bad.get((row, head), 0) / tried[row, head] if tried.get((row, head)) else None
            # a bad trial is visible, however few there are
            color: Any = "none" if share is None else "#cfe6f5" if not share else reds(0.3
                + 0.7 * share)
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color,
                edgecolor="#9a9a9a" if share is None else "#ffffff",
                                                        hatch="////" if share is None else None,
                                                        linewidth=0 if share is None else 1))
            if share is not None:
                axes.text(x, y, texts[row, head], ha="center", va="center", fontsize=9,
                    color="#ffffff" if share > 0.53 else "#000000",
                          fontweight="bold" if share else "normal")
    axes.set_xlim(-0.5, len(heads) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(heads)), heads, rotation=0 if upright else 90)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    _legend(made, [Patch(color="#cfe6f5", label="0 bad"), Patch(color=reds(0.45), label="some bad"),
        Patch(color=reds(0.999), label="all bad"),
                   Patch(facecolor="none", edgecolor="#9a9a9a", hatch="////", linewidth=0,
                   label="not tried")], 4)
    return made


#: by file name
PLOTS: dict[str, Callable[[Stats, bool], Figure | None]] = {
    "throughput": throughput, "depth": depth, "latency": latency, "redeliveries": redeliveries,
    "dead": dead,
}


def all_of(found: Stats, wide: bool = True) -> dict[str, Figure]:
    """Those of PLOTS that have something to show."""
    with matplotlib.rc_context(STYLE):
        return {name: one for name, plot in PLOTS.items() if (one := plot(found, wide)) is not None}
