"""pictures.py FILE.json - a picture of a run of the bench, beside its file: FILE-ratios.png. Needs
matplotlib."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BETTER, WORSE = "#2e8b57", "#c0392b"


def ratios(found):
    """A bar for each comparison, from 1 on. A bar to the left means that flatq is faster."""
    rows = [one for one in found["ratios"] if one["low"] is not None]
    figure, axis = plt.subplots(figsize=(11, 1.2 + 0.27 * len(rows)))
    for place, one in enumerate(reversed(rows)):
        bar = axis.barh(place, one["ratio"] - 1, left=1, alpha=0.6,
            color=WORSE if one["ratio"] > 1 else BETTER)
        axis.bar_label(bar, [f"{one['ratio']:.2f}"], padding=3, fontsize=8)
        axis.plot([one["low"], one["high"]], [place, place], color="black", linewidth=1)
        if one["aim"]:
            axis.plot(one["aim"], place, "|", color="black", markersize=10)
    axis.set_yticks(range(len(rows)), [f"{one['row']} / {one['other']}" for one in reversed(rows)],
        fontsize=8)
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("time of flatq / time of the other: medians, a line from quartile to quartile, "
        "a tick where the aim is", fontsize=8)
    about = found["machine"]
    figure.suptitle(f"flatq {about['flatq'] or ''}, {about['cpu']}, {about['cores']} cores, "
        f"{about['system']}, {about['filesystem']}, {about['date']}", fontsize=7)
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    path = Path(sys.argv[1])
    target = path.with_name(f"{path.stem}-ratios.png")
    ratios(json.loads(path.read_text())).savefig(target, dpi=110)
    print(f"Picture:     {target}")
