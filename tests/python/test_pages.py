"""The pages that people look at: texts must not cover each other, nothing may be cut off, axes
begin at 0, and contrast is high enough."""

import math
import warnings
from itertools import product

import pytest

from browser import browser  # noqa: F401
from servers import module

plots = module("flatq.pipeline.plots")

from flatq.pipeline import report, stats

DAY = 1795300000.0
PHONE, DESK = 390, 1280
#: seconds: the last three are months, a year and ten years
SPANS = (0, 0.6, 4, 31, 119, 600, 7000, 40000, 2e5, 4e6, 4e7, 4e8)


def measured(span, queues=20):
    """Statistics of queues of very different depth, from one message to a hundred million, as a
    report has them."""
    width = 1.0 if span == 0 else next(width for width in stats.WIDTHS if span / width < 120)
    found = stats.Stats([], start=DAY, width=width, shares=report.SHARES)
    for n in range(queues):
        name = f"a-long-name-of-a-queue/{'of-a-service/' * 12}{n}" if n % 4 == 3 else f"q$20{n}$"
        most = int(10 ** (8 * n / max(queues - 1, 1)))
        found.queues.append(stats.Queue(name, {"push": most, "pop": most // 2, "bury": most // 4},
            DAY, DAY + span, 100))
        found.series[name] = [(most // 9, most // 10, most * (at % 7 + 1) // 7)
            for at in range(int(span / width) + 1)]
        if queues > 1:
            found.latency[name, "pop"] = (most, [10.0 * math.floor(10 ** (4 * share) / 9)
                for share in found.shares])
            found.latency[name, "reserve"] = (most,
                [10.0 * math.floor(10 ** (n % 9 * share)) for share in found.shares])
            found.tries[name, n + 2] = most
            found.dead[name, f"{'a-reason-' * (n + 1)}"[:60]] = (most, most // 2)
    return found


def page(found, path):
    path.write_text(report.page(found, "flatq: what the queues did"))
    return f"file://{path}"


def looked_at(browser, url, width, dark, **more):
    """What is wrong with the page: texts that cover each other, are cut off, or are hard to
    read."""
    browser.open(url, width, dark, **more)
    wrong = browser.ask("""{overlaps: overlaps(), cut: cut(), pale: contrasts(
        'body > :not(.plots), svg').filter((one) => one.contrast < 4.5)}""")
    assert wrong == {"overlaps": [], "cut": [], "pale": []}, (url, width, dark, wrong)


def test_axes_begin_at_0_and_plots_over_time_agree():
    for span, queues in product((0, 7000), (1, 20)):
        figures = plots.all_of(measured(span, queues))
        assert all(len(made.axes) == 1 for made in figures.values()), "one plot a figure"
        places = set()
        for made in (figures["throughput"], figures["depth"]):
            [axes] = made.axes
            assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] >= max(line.get_ydata().max()
                for line in axes.lines)
            places.add((made.get_size_inches()[0], axes.get_position().x0, axes.get_position().x1,
                axes.get_xlim()))
        assert len(places) == 1, "the same width, and the same time axis"
    # of twenty queues, each of the deepest has a line, and the others share one
    [legend] = figures["depth"].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == 6 and names[-1].startswith("15 others: ")
    assert all(legend.get_window_extent().y1 < made.axes[0].get_window_extent().y0
        for made in figures.values() for legend in made.legends if legend.get_texts())


@pytest.mark.slow
def test_report_in_chromium(browser, tmp_path):
    """One message, and twenty queues of very different depth."""
    url = page(measured(7000), tmp_path / "many.html")
    for width, dark in ((PHONE, False), (DESK, True)):
        looked_at(browser, url, width, dark)
        assert browser.ask("document.querySelectorAll('figure svg').length") == 5
        assert browser.ask("boxes('svg').length") > 60
        assert browser.ask("""Math.min(...[...document.querySelectorAll('svg text')].filter(
            shown).map((text) => text.getBoundingClientRect().height))""") > 9
    looked_at(browser, page(measured(0, 1), tmp_path / "one.html"), PHONE, True)
    assert "NaN" not in browser.ask("document.body.innerText")


@pytest.mark.slow
def test_every_span_in_chromium(browser, tmp_path):
    """From one event to ten years, and latencies from 10 ms to months. No tick's text touches
    another."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for at, span in enumerate(SPANS):
            url = page(measured(span, (1, 7, 20)[at % 3]), tmp_path / "page.html")
            looked_at(browser, url, PHONE, at % 2 == 0)
            looked_at(browser, url, DESK, at % 2 != 0)
