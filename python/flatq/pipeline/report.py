"""One HTML page that needs no other file, and its figures as PNGs beside it."""

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
from .stats import Stats, text, thin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The shares that make up a latency curve
SHARES = tuple(share / 100 for share in (*range(0, 100), 99.5, 99.9, 100))
STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #222; background: #f6f6f4; margin: 0 auto; padding: 1.5rem; max-width: 60rem }
h1 { font-size: 1.5rem; margin: 0 } h1 + p { margin: 0 0 1.2rem; color: #666 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem; padding: 0; margin: 0 0 1rem; list-style: none }
.tiles li, figure, details { background: #fff; border: 1px solid #e2e2de; border-radius: 6px; padding: .8rem 1rem; margin: 0 0 1rem }
.tiles li { margin: 0 } .tiles b { display: block; font-size: 1.5rem; font-weight: 600 } .tiles span { color: #666 }
figure svg { width: 100%; height: auto; display: block }
pre { overflow-x: auto; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace } summary { cursor: pointer }
"""


def svg(one: Figure, name: str) -> str:
    """A figure as an element of a page; its ids are its own."""
    out = io.StringIO()
    with matplotlib.rc_context(plots.STYLE):
        one.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    element = out.getvalue()[out.getvalue().index("<svg"):]
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", element)
    title = escape(one.axes[0].get_title(loc="left"))
    return element.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def page(found: Stats, figures: Mapping[str, Figure], title: str) -> str:
    pushed, done = (sum(getattr(queue, name) for queue in found.queues) for name in ("pushed", "done"))
    again, dead = sum(found.tries.values()), sum(still for _, still in found.dead.values())
    left = sum(points[-1][2] for points in found.series.values())
    tiles = [(len(found.queues), "queues"), (pushed, "pushed"), (done, "done"), (left, "left"), (again, "handed out again"), (dead, "dead letters")]
    between = ""
    if found.queues:
        first, last = (datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M:%S") for when in (
            min(queue.first for queue in found.queues), max(queue.last for queue in found.queues)))
        between = f"{first} to {last}"
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<h1>{escape(title)}</h1>
<p>{between or 'no events'}</p>
<ul class="tiles">{''.join(f'<li><b>{number(value)}</b><span>{label}</span></li>' for value, label in tiles)}</ul>
{''.join(f'<figure>{svg(one, name)}</figure>' for name, one in figures.items())}
<details open><summary>Figures as tables</summary><pre>{escape(text(thin(found)))}</pre></details>
</html>
"""


def write(found: Stats, to: str, title: str = "flatq", more: Mapping[str, Figure] | None = None) -> str:
    """The page and the PNGs, in the place of those that were there; the page's path. `found` is of many intervals and of SHARES. Raises Invalid
    where `to` holds something else."""
    figures = {**(plots.all_of(found) if found.queues else {}), **(more or {})}
    place = Place("report", to)
    with place.replaced() as new:
        os.mkdir(new)
        for name, one in figures.items():
            with matplotlib.rc_context(plots.STYLE):
                one.savefig(os.path.join(new, f"{name}.png"), dpi=150)
        with open(os.path.join(new, "report.html"), "w", encoding="utf-8") as file:
            file.write(page(found, figures, title))
    return os.path.join(place.name, "report.html")
