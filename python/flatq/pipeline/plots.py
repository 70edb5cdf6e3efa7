"""The figures of a report, by matplotlib, without a display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from .common import number
from .stats import Stats

#: Colours that colour-blind readers can tell apart
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "flatq", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True, "axes.titlelocation": "left", "axes.titlesize": 12, "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def figure(title: str, x: str, y: str, height: float = 3.2) -> tuple[Figure, Axes]:
    with matplotlib.rc_context(STYLE):
        made = Figure(figsize=(9, height), layout="constrained")
        axes = made.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        return made, axes


def _legend(axes: Axes) -> None:
    """Beside the plot, where it hides nothing."""
    axes.figure.legend(loc="outside right upper", frameon=False, fontsize=9)


def _times(found: Stats, axes: Axes) -> list[datetime]:
    locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call,unused-ignore]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call,unused-ignore]
    return [datetime.fromtimestamp(found.start + at * found.width) for at in range(max(map(len, found.series.values())) + 1)]


def _steps(axes: Axes, times: Any, values: Sequence[float], color: str, label: str) -> None:
    """A value for each interval; the last goes to its end."""
    axes.step(times, [*values, values[-1]], where="post", color=color, label=label)


def throughput(found: Stats) -> Figure:
    made, axes = figure("Throughput", "", "messages a second")
    times = _times(found, axes)
    for color, column, label in ((COLORS[0], 0, "pushed"), (COLORS[1], 1, "done")):
        values = [sum(points[at][column] for points in found.series.values()) / found.width for at in range(len(times) - 1)]
        _steps(axes, times, values, color, label)
    axes.set_ylim(bottom=0)
    _legend(axes)
    return made


def depth(found: Stats) -> Figure:
    made, axes = figure("Depth: messages that are neither done nor buried", "", "messages")
    times = _times(found, axes)
    largest = sorted(found.series, key=lambda name: -max(point[2] for point in found.series[name]))
    for color, name in zip(COLORS, largest[:6]):
        _steps(axes, times, [point[2] for point in found.series[name]], color, name)
    if len(largest) > 6:
        rest = [sum(found.series[name][at][2] for name in largest[6:]) for at in range(len(times) - 1)]
        _steps(axes, times, rest, COLORS[6], f"{len(largest) - 6} others")
    _legend(axes)
    return made


def latency(found: Stats) -> Figure | None:
    """The share of messages within a time, from push to pop and to delete; found.shares must be many."""
    made, axes = figure("Latency: share of messages within a time", "since the push", "share")
    if not found.latency:
        return None
    for color, ((queue, verb), (count, values)) in zip(COLORS, sorted(found.latency.items(), key=lambda item: -item[1][0])):
        label = f"{queue}: {'first reserve' if verb == 'reserve' else verb} ({number(count)})"
        axes.plot([max(value, 1) / 1000 for value in values], [share * 100 for share in found.shares], color=color, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, at: f"{value:g} s" if value < 3600 else f"{value / 3600:g} h")
    ends = [max(values[end], 1) / 1000 for _, values in found.latency.values() for end in (0, -1)]
    axes.set_xlim(min(ends) / 1.5, max(ends) * 1.5)
    axes.yaxis.set_major_formatter(lambda value, at: f"{value:g}%")
    axes.set_ylim(0, 102)
    _legend(axes)
    return made


def redeliveries(found: Stats) -> Figure | None:
    if not found.tries:
        return None
    made, axes = figure("Redeliveries: messages handed out once more", "try", "times", 2.6)
    most = max(tries for _, tries in found.tries)
    shown = min(most, 20)
    values = [sum(count for (_, tries), count in found.tries.items() if tries == at or at == shown < tries) for at in range(2, shown + 1)]
    places = list(range(2, shown + 1))
    bars = axes.bar(places, values, width=0.6, color=COLORS[0])
    axes.bar_label(bars, labels=[number(value) for value in values], fontsize=9)
    axes.set_xticks(places, [f"{at}+" if at == shown < most else str(at) for at in places])
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylim(0, max(values) * 1.15)
    axes.set_xlim(1.2, max(shown, 6) + 0.8)
    axes.grid(visible=False, axis="x")
    return made


def dead(found: Stats) -> Figure | None:
    if not found.dead:
        return None
    counts: dict[str, tuple[int, int]] = {}
    for (_, reason), (buried, still) in found.dead.items():
        before = counts.get(reason, (0, 0))
        counts[reason] = (before[0] + buried, before[1] + still)
    top = sorted(counts.items(), key=lambda item: item[1])[-12:]
    made, axes = figure("Dead letters, by reason", "messages", "", 1.2 + 0.4 * len(top))
    axes.barh(range(len(top)), [buried for _, (buried, _) in top], height=0.6, color="#c4c4c4", label="buried")
    bars = axes.barh(range(len(top)), [still for _, (_, still) in top], height=0.6, color=COLORS[1], label="still there")
    axes.bar_label(bars, labels=[f" {number(still)} of {number(buried)}" for _, (buried, still) in top], fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_ylim(-0.7, len(top) - 0.3)
    axes.set_yticks(range(len(top)), [reason[:40] for reason, _ in top])
    axes.set_xlim(0, max(buried for _, (buried, _) in top) * 1.15)
    axes.grid(visible=False, axis="y")
    _legend(axes)
    return made


def windows(heads: Sequence[str], rows: Sequence[str], bad: dict[tuple[str, str], int], tried: dict[tuple[str, str], int]) -> Figure:
    """The crash laboratory: bad trials of all, by row (verb) and fault."""
    made, axes = figure("Failure windows: bad trials of all", "", "", 1.3 + 0.34 * len(rows))
    shares = [[bad.get((row, head), 0) / tried[row, head] if tried.get((row, head)) else float("nan") for head in heads] for row in rows]
    colors = matplotlib.colormaps["Reds"].with_extremes(bad="#ffffff")
    axes.imshow(shares, cmap=colors, vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(rows):
        for x, head in enumerate(heads):
            if tried.get((row, head)):
                dark = shares[y][x] > 0.5
                axes.text(x, y, f"{bad.get((row, head), 0)}/{tried[row, head]}", ha="center", va="center", fontsize=8, color="#fff" if dark else "#222")
    axes.set_xticks(range(len(heads)), heads, rotation=25, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(visible=False)
    return made


#: by file name
PLOTS: dict[str, Callable[[Stats], Figure | None]] = {
    "throughput": throughput, "depth": depth, "latency": latency, "redeliveries": redeliveries, "dead": dead,
}


def all_of(found: Stats) -> dict[str, Figure]:
    """Those of PLOTS for which there is something to show."""
    return {name: one for name, plot in PLOTS.items() if (one := plot(found)) is not None}
