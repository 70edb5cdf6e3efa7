"""pictures.py FILE.json - pictures of a run of the bench, beside its file: ratios, times against
depth, bulk. Needs matplotlib."""

import json
import re
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BETTER, WORSE = "#2e8b57", "#c0392b"
BLUE = "#2563a8"


def caption(about):
    busy = "; others were at work" if about["load"] > about["cores"] / 2 else ""
    machine = (about[name] for name in ("system", "filesystem", "date"))
    return (f"flatq {about['flatq'] or ''}, {about['cpu']}, {about['cores']} cores, "
        f"{', '.join(machine)}{busy}")


def ratios(found):
    """A bar for each comparison, from 1 on. A bar to the left means that flatq is faster."""
    rows = [one for one in found["ratios"] if one["low"] is not None]
    if not rows:
        return None
    figure, axis = plt.subplots(figsize=(11, 1.2 + 0.27 * len(rows)))
    for place, one in enumerate(reversed(rows)):
        colour = WORSE if one["ratio"] > 1 else BETTER
        axis.barh(place, one["ratio"] - 1, left=1, color=colour, alpha=0.6)
        axis.plot([one["low"], one["high"]], [place, place], color="black", linewidth=1)
        if one["aim"]:
            axis.plot(one["aim"], place, "|", color="black", markersize=10)
    axis.set_yticks(range(len(rows)), [f"{one['row']} / {one['other']}" for one in reversed(rows)],
        fontsize=8)
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_ylim(-0.7, len(rows) - 0.3)
    axis.set_xlabel("time of flatq / time of the other: medians, a line from quartile to quartile, "
        "a tick where the aim is", fontsize=8)
    return figure


def depths(found):
    """Milliseconds against depth, with a panel for each verb and durability."""
    panels = {}
    for row, seconds in found["raw"].items():
        name = re.fullmatch(r"(\w+, (?:un)?synced), depth ([\d,]+)", row)
        for contender, values in seconds.items() if name else ():
            depth = int(name[2].replace(",", ""))
            panels.setdefault(name[1], {}).setdefault(contender,
                []).append((depth, 1000 * statistics.median(values)))
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 4), sharey=True,
        squeeze=False)
    for axis, (name, lines) in zip(axes[0], sorted(panels.items())):
        for contender, points in lines.items():
            axis.plot(*zip(*sorted(points)), "o-", label=contender, markersize=3,
                **({"color": "black", "linewidth": 3} if contender == "flatq" else {}))
        axis.set(xscale="log", yscale="log", title=name, xlabel="messages in the queue")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("milliseconds, start to end (median)")
    return figure


def bulk(found):
    """Messages a second."""
    groups = {}
    for row, seconds in found["raw"].items():
        name = re.fullmatch(r"(?:fill|drain) ([\d,]+)", row)
        for contender, values in seconds.items() if name else ():
            rate = int(name[1].replace(",", "")) / statistics.median(values)
            groups.setdefault(f"{contender}\n{name[1]}", {})[row.split()[0]] = rate
    if not groups:
        return None
    figure, axis = plt.subplots(figsize=(1.6 * len(groups) + 2, 4))
    for side, (what, colour) in enumerate((("fill", BLUE), ("drain", BETTER))):
        axis.bar([place + 0.4 * side - 0.2 for place in range(len(groups))],
            [one[what] for one in groups.values()], 0.4, label=what, color=colour)
    axis.set_xticks(range(len(groups)), groups, fontsize=7)
    axis.set(yscale="log", ylabel="messages of 100 bytes a second")
    axis.legend(fontsize=8)
    return figure


def main(path):
    found = json.loads(path.read_text())
    for make in (ratios, depths, bulk):
        figure = make(found)
        if figure:
            figure.suptitle(caption(found["machine"]), fontsize=7)
            figure.tight_layout()
            target = path.with_name(f"{path.stem}-{make.__name__}.png")
            figure.savefig(target, dpi=110)
            print(f"Picture:     {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
