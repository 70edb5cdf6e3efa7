"""One HTML page that needs no other file, with a responsive SVG for each figure, and the figures as
PNGs beside it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

import matplotlib

from . import plots
from .common import number
from .place import Place
from .stats import Stats, text, thin, zone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The shares that make up a latency curve
SHARES = tuple(share / 100 for share in (*range(0, 100), 99.5, 99.9, 100))
STYLE = f"""
:root {{ color-scheme: light dark; --text: {plots.TEXT}; --soft: #5c5c5c; --back: #f6f6f4;
  --card: #fff; --line: #e4e4e4 }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e6e6e3; --soft: #adada8; --back: #161615;
  --card: #20201e; --line: #3a3a37 }} }}
body {{ font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: var(--text);
  background: var(--back); margin: 0 auto; padding: min(1.5rem, 3vw); max-width: 72rem }}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere }}
h1 + p {{ margin: .2rem 0 1.2rem; color: var(--soft) }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem;
  padding: 0; margin: 0 0 1rem; list-style: none }}
.tiles li, figure, details {{ background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: .6rem .7rem; margin: 0 }}
.tiles b {{ display: block; font-size: 1.3rem; line-height: 1.4; font-weight: 600;
  font-variant-numeric: tabular-nums }} .tiles span {{ color: var(--soft) }}
.plots {{ columns: 27rem; column-gap: 1rem }} svg {{ width: 100%; height: auto; display: block }}
.plots figure {{ break-inside: avoid; margin: 0 0 1rem }}
pre {{ overflow-x: auto; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace }}
summary {{ cursor: pointer }}
"""
#: The page of a spool where nothing was pushed
NOTHING = """<p>Nothing yet: no queue has an event. The first push makes a queue, and this page
shows what happens then:</p>
<pre>printf hello | flatq push jobs      # stores a message in the queue jobs
flatq pop jobs                      # prints it, and deletes it</pre>"""


def svg(one: Figure, name: str) -> str:
    """A figure as an element of a page; its ids are its own, and its texts have the page's
    colour."""
    out = io.StringIO()
    with matplotlib.rc_context(plots.STYLE):
        one.savefig(out, format="svg", facecolor="none",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    element = out.getvalue()[out.getvalue().index("<svg"):]
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", element)
    return element.replace(plots.TEXT, "currentColor").replace("<svg",
        f'<svg role="img" aria-label="{escape(one.texts[0].get_text())}"', 1)


def page(found: Stats, figures: Mapping[str, Figure], title: str) -> str:
    top = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<h1>{escape(title)}</h1>
"""
    if not found.queues:
        return f"{top}{NOTHING}\n</html>\n"
    tiles = {
        "queues": len(found.queues),
        "pushed": sum(queue.pushed for queue in found.queues),
        "done": sum(queue.done for queue in found.queues),
        "left": sum(points[-1][2] for points in found.series.values()),
        "handed out again": sum(found.tries.values()),
        "dead letters": sum(still for _, still in found.dead.values()),
    }
    boxes = "".join(f"<li><b>{number(value)}</b><span>{label}</span></li>"
        for label, value in tiles.items())
    plotted = "\n".join(f"<figure>{svg(one, name)}</figure>" for name, one in figures.items())
    where = zone(found)
    first, last = (datetime.fromtimestamp(when, where).strftime("%Y-%m-%d %H:%M:%S") for when in (
        min(queue.first for queue in found.queues), max(queue.last for queue in found.queues)))
    return f"""{top}<p>{first} to {last}, {where}</p>
<ul class="tiles">{boxes}</ul>
<div class="plots">{plotted}</div>
<details open><summary>Figures as tables</summary><pre>{escape(text(thin(found)))}</pre></details>
</html>
"""


def write(found: Stats, to: str, title: str = "flatq") -> str:
    """Write the page and the PNGs, and replace earlier ones. Return the page's path. `found` has
    many intervals, and SHARES. Raises Invalid if `to` holds anything else."""
    figures = plots.all_of(found) if found.queues else {}
    place = Place("report", to)
    with place.replaced() as new:
        os.mkdir(new)
        for name, one in figures.items():
            with matplotlib.rc_context(plots.STYLE):
                one.savefig(os.path.join(new, f"{name}.png"), dpi=150)
        with open(os.path.join(new, "report.html"), "w", encoding="utf-8") as file:
            file.write(page(found, figures, title))
    return os.path.join(place.name, "report.html")
