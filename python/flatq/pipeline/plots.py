"""The figures of a report, one plot each, by matplotlib. All have one width, which is readable on a
phone; those over time have the same margins and the same time axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from .common import number
from .stats import Stats, deepest

#: Colours that colour-blind readers can tell apart, on a light page and on a dark one
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#808080")
TEXT, GREY = "#222222", "#808080"
STYLE: Any = {
    "font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "flatq",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GREY,
    "grid.alpha": 0.25, "axes.axisbelow": True, "axes.facecolor": "none", "legend.frameon": False,
    "lines.linewidth": 1.8, "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT,
    "xtick.color": TEXT, "ytick.color": TEXT,
    # a `$` in a queue's name must not begin a formula
    "text.parse_math": False,
}
#: Inches: the width of a figure, and the margins
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 4.6, 0.62, 0.3, 0.4, 0.55
INSIDE = WIDTH - LEFT - RIGHT
#: Seconds at which a logarithmic axis may have ticks
TICKS = (0.01, 0.1, 1, 10, 60, 600, 3600, 28800, 86400, 864000, 8640000)


def short(value: float) -> str:
    """The number as an axis shows it: 10 k, 1 M."""
    return _scaled(value, (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def span(seconds: float) -> str:
    """The time as an axis shows it: 500 ms, 10 min, 1 d."""
    return _scaled(seconds, (86400, " d"), (3600, " h"), (60, " min"), (1, " s"), (0.001, " ms"))


def _scaled(value: float, *units: tuple[float, str]) -> str:
    size, unit = next((one for one in units if value >= one[0]), (1, ""))
    return f"{value / size:g}{unit}"


def clipped(text: str, end: str, inches: float = INSIDE) -> str:
    """Both texts, the first one cut off if they are longer than that."""
    most = int((inches - len(end) * 0.07) * 72 / 5.6)
    return (text if len(text) <= most else f"{text[:most - 1]}\u2026") + end


def figure(title: str, height: float, legend: Sequence[str] = ()) -> tuple[Figure, Axes]:
    """A figure of `height` inches; the lines of its legend go below the plot."""
    more = len(legend) * 0.175
    height += more
    made = Figure(figsize=(WIDTH, height))
    made.subplots_adjust(LEFT / WIDTH, (BOTTOM + more) / height, 1 - RIGHT / WIDTH,
        1 - TOP / height)
    made.text(0.1 / WIDTH, 1 - 0.08 / height, title, va="top", fontsize=11, fontweight="bold")
    handles = [Patch(color=color, label=label) for color, label in zip(COLORS, legend)]
    made.legend(handles=handles, loc="lower left", bbox_to_anchor=(LEFT / WIDTH, 0.02 / height),
        fontsize=9, borderaxespad=0, borderpad=0, handlelength=1.2, labelspacing=0.35)
    return made, made.subplots()


def _over_time(found: Stats, title: str,
        rows: Sequence[tuple[str, Sequence[float]]]) -> tuple[Figure, Axes]:
    """A figure with a line of steps for each row, a step for each interval."""
    made, axes = figure(title, 2.6, [name for name, _ in rows])
    times: Any = [datetime.fromtimestamp(found.start + at * found.width, timezone.utc)
        for at in range(len(rows[0][1]) + 1)]
    for color, (_, values) in zip(COLORS, rows):
        # the last step goes to the end of its interval
        axes.step(times, [*values, values[-1]], where="post", color=color)
    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator(minticks=2, maxticks=5)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlim(times[0], times[-1])
    axes.set_xlabel("time in UTC", loc="left", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, at: short(value))
    axes.set_ylim(0, max(max(values) for _, values in rows) * 1.08 or 1)
    return made, axes


def throughput(found: Stats) -> Figure:
    sums = [[sum(points) / found.width for points in zip(*intervals)] for intervals in zip(*(
        [point[:2] for point in series] for series in found.series.values()))]
    return _over_time(found, "Throughput: messages a second", [("pushed", [one[0] for one in sums]),
        ("done", [one[1] for one in sums])])[0]


def depth(found: Stats) -> Figure:
    """On an axis that shows shallow queues, too."""
    rows = deepest(found, 6)
    made, axes = _over_time(found, "Depth: messages neither done nor buried", [
        (clipped(name, f": {number(max(values))} at most", INSIDE - 0.5), values)
        for name, values in rows])
    if len(rows) > 1:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, at: short(value))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return made


def latency(found: Stats) -> Figure | None:
    """Of the queues with the most messages; found.shares must be many."""
    if not found.latency:
        return None
    # the logs count in hundredths of a second
    curves = {key: [max(value / 1000, 0.01) for value in values]
        for key, (_, values) in found.latency.items()}
    first = sorted(found.latency.items(), key=lambda item: -item[1][0])[:len(COLORS)]
    labels = [clipped(queue, f": {'first reserve' if verb == 'reserve' else verb} "
        f"({number(count)})", INSIDE - 0.5) for (queue, verb), (count, _) in first]
    made, axes = figure("Latency: share of messages within a time", 2.8, labels)
    for color, (key, _) in zip(COLORS, first):
        axes.plot(curves[key], [share * 100 for share in found.shares], color=color)
    axes.set_xscale("log")
    low = min(curve[0] for curve in curves.values()) / 1.3
    high = max(0.1, *(curve[-1] for curve in curves.values())) * 1.3
    axes.set_xlim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks[::1 + len(ticks) // 6]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, at: f"{'≤' if value == 0.01 else ''}{span(value)}")
    axes.set_xlabel("since the push", loc="left", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, at: f"{value:g}%")
    axes.set_ylim(0, 102)
    return made


def _bars(title: str, color: str, rows: Sequence[tuple[str, str, int, int]]) -> Figure:
    """A bar for each row: a name and a text above it, its length, and its coloured part."""
    made, axes = figure(title, TOP + 0.15 + 0.42 * len(rows))
    made.subplots_adjust(left=0.1 / WIDTH, bottom=0.08 / made.get_size_inches()[1])
    axes.set_axis_off()
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xlim(0, max(row[2] for row in rows))
    for at, (name, says, whole, part) in enumerate(rows):
        axes.barh(at, whole, height=0.3, color=GREY, alpha=0.4)
        axes.barh(at, part, height=0.3, color=color)
        axes.text(0, at - 0.24, clipped(name, says, WIDTH - 0.4), fontsize=9, va="bottom")
    return made


def redeliveries(found: Stats) -> Figure | None:
    if not found.tries:
        return None
    counts: Counter[int] = Counter()
    for (_, tries), count in found.tries.items():
        counts[min(tries, 10)] += count
    return _bars("Redeliveries: messages handed out again", COLORS[0], [
        (f"try {tries}{' and later' if tries == 10 else ''}", f": {number(count)} times", count,
        count) for tries, count in sorted(counts.items())])


def dead(found: Stats) -> Figure | None:
    """The tables have all reasons."""
    if not found.dead:
        return None
    buried, still = Counter[str](), Counter[str]()
    for (_, reason), (all_of_it, left) in found.dead.items():
        buried[reason] += all_of_it
        still[reason] += left
    return _bars("Dead letters, by reason", COLORS[1], [
        (reason, f": {number(count)}, {number(still[reason])} still there", count, still[reason])
        for reason, count in buried.most_common(12)])


def all_of(found: Stats) -> dict[str, Figure]:
    """Those that have something to show, by name."""
    with matplotlib.rc_context(STYLE):
        return {plot.__name__: one for plot in (throughput, depth, latency, redeliveries, dead)
            if (one := plot(found)) is not None}
