"""One HTML page that needs no other file, with a responsive SVG for each figure."""

from __future__ import annotations

import io
import os
import re
from html import escape
from typing import TYPE_CHECKING

import matplotlib

from ..errors import Missing
from . import plots
from .place import Place
from .stats import Stats, text, utc

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
figure, details {{ background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .7rem; margin: 0 }}
.plots {{ columns: 27rem; column-gap: 1rem }} svg {{ width: 100%; height: auto; display: block }}
.plots figure {{ break-inside: avoid; margin: 0 0 1rem }}
pre {{ overflow-x: auto; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace }}
"""


def svg(one: Figure, name: str) -> str:
    """A figure as an element of a page: its ids are its own, its texts have the page's colour."""
    out = io.StringIO()
    with matplotlib.rc_context(plots.STYLE):
        one.savefig(out, format="svg", facecolor="none", metadata={"Date": None})
    element = out.getvalue()[out.getvalue().index("<svg"):]
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", element)
    return element.replace(plots.TEXT, "currentColor").replace("<svg",
        f'<svg role="img" aria-label="{escape(one.texts[0].get_text())}"', 1)


def page(found: Stats, title: str) -> str:
    plotted = "\n".join(f"<figure>{svg(one, name)}</figure>"
        for name, one in plots.all_of(found).items())
    first = utc(min(queue.first for queue in found.queues))
    last = utc(max(queue.last for queue in found.queues))
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<h1>{escape(title)}</h1>
<p>{first} to {last}, UTC</p>
<div class="plots">{plotted}</div>
<details open><summary>Figures as tables</summary><pre>{escape(text(found))}</pre></details>
</html>
"""


def write(found: Stats, to: str, title: str = "flatq") -> str:
    """Write the page, or replace it, and return its path. `found` has many intervals, and SHARES.
    Raises Missing if it is empty, and Invalid if `to` holds anything else."""
    if not found.queues:
        raise Missing("no events")
    place = Place("report", to)
    with place.replaced() as new:
        with open(os.path.join(new, "report.html"), "w", encoding="utf-8") as file:
            file.write(page(found, title))
    return os.path.join(place.name, "report.html")
