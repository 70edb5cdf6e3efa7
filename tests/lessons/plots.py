"""Two pictures, as SVG, which are measured here: what a pop writes, by depth (lesson 12), and what
each crash point leaves (lessons 2 to 4)."""

import math
import sys
import tempfile
from html import escape
from pathlib import Path

import course
import faults

from crash import campaign
from crash.scenarios import ARTICLES, Article, System
from crash.trials import Options

DEPTHS = (10, 100, 1000, 10000, 100000)
BLUE, RED, GREY = "#2563a8", "#c0392b", "#666666"


def svg(width, height, inside):
    return ('<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n'
            + "\n".join(inside) + "\n</svg>\n")


def text(x, y, words, colour="black", anchor="start", size=13):
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" '
        f'font-size="{size}">{escape(words)}</text>')


def cost():
    """The bytes that one pop writes: lesson 12's, and flatq's, which is the mean over 20 pops, with
    the unfolding of 500 messages spread over them."""
    theirs, ours = [], []
    lesson = next(path for path in course.LESSONS if path.name.startswith("12-"))
    files = {part.name: part for part in course.parts(lesson) if part.kind == "file"}
    for depth in DEPTHS:
        with course.Place() as place:
            place.write(files["pop"])
            place.write(files["fill"])
            place.run(f"./fill {depth}; seq {depth} | flatq push -l q")
            theirs.append(faults.written(faults.run(["./pop"], place.path)))
            flatq = [str(course.HERE / "bin/flatq"), "pop", "q"]
            first = faults.written(faults.run(flatq, place.path))
            rest = [faults.written(faults.run(flatq, place.path)) for _ in range(9)]
            ours.append(first / min(depth, 500) + sum(rest) / len(rest))
    left, right, top, bottom = 90, 560, 50, 330

    def x(depth):
        # The first point stands off the axis, which has its own numbers
        first = left + 30
        return first + (right - first) * (math.log10(depth) - 1) / (math.log10(DEPTHS[-1]) - 1)

    def y(size):
        return bottom - (bottom - top) * math.log10(max(size, 1)) / 7

    drawn = [text(20, 26, "Bytes written by one pop, against the depth of the queue", size=15)]
    for power in range(8):
        at = y(10**power)
        drawn.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" '
            'stroke="#dddddd"/>')
        drawn.append(text(left - 8, at + 4, f"{10**power:,}", GREY, "end", 11))
    drawn += [text(x(depth), bottom + 20, f"{depth:,}", GREY, "middle", 11) for depth in DEPTHS]
    for name, values, colour, above in (("a pop that copies the rest", theirs, RED, -9),
            ("flatq, unfolding included", ours, BLUE, 17)):
        points = [(x(depth), y(value)) for depth, value in zip(DEPTHS, values)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{line}"/>')
        drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in points]
        drawn += [text(a, b + above, f"{value:,.0f}", colour, "middle", 11) for (a, b),
            value in zip(points, values)]
        drawn.append(text(right + 12, points[-1][1] + 4, name, colour))
    drawn.append(text((left + right) / 2, bottom + 42, "messages in the queue", GREY, "middle"))
    return svg(760, 390, drawn)


def measured():
    """The laboratory's kills of both sides, made here."""
    with tempfile.TemporaryDirectory() as work:
        return {system.name: [one for name in ARTICLES for one in campaign.explore("crash", name,
            system, Options(("kill",)), Path(work))] for system in (Article(), System())}


def crashes(found):
    """A push and a pop, broken at each call. Each call is a square, which is red if a
    message was lost, altered or came too often."""
    drawn, y = [text(20, 26, "A push and a pop, broken at each of their calls", size=15)], 52
    for side, row in found.items():
        bad = sum(one.outcome == "bad" for one in row)
        drawn.append(text(20, y + 12, f"kill, {side}: {bad} of {len(row)} bad"))
        for number, one in enumerate(row):
            why = f"{one.call}: {one.outcome} {one.detail}"[:200]
            colour = RED if one.outcome == "bad" else BLUE
            drawn.append(f'<rect x="{330 + 11 * number}" y="{y}" width="9" height="16" '
                f'fill="{colour}"><title>{escape(why)}</title></rect>')
        y += 26
    drawn.append(text(20, y + 20, "from left to right in the order in which they are made; red: a "
        "message lost, altered, or handed out after it was settled", GREY, size=11))
    return svg(1070, y + 40, drawn)


def write(target):
    target.mkdir(exist_ok=True)
    for name, picture in (("cost", cost()), ("crash-points", crashes(measured()))):
        (target / f"{name}.svg").write_text(picture)
        print(f"{target / name}.svg (measured here)")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
