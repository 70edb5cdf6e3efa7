"""The command `flatq shovel`; see lib/shovel."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable

from ..command import Stopped, complain, die_of, fail, number, on_signals, options, stray
from ..errors import Error, Internal, Usage
from . import Shovel, source, target


def command(verb: str, words: list[str],
            places: Callable[[list[str]], tuple[str, str]] | None = None) -> int:
    """Move what the command line asks for, and return its exit code."""
    try:
        given, names = options([word if word != "--once" else "-1" for word in words], "h1n:w:")
        if places is None and len(names) != 2:
            raise Usage("shovel [--once] [-n COUNT] [-w SECONDS] FROM TO", 64)
        one, other = places(names) if places else (names[0], names[1])
        if one == other:
            raise Usage("FROM and TO are the same", 64)
        count = number("n", given["n"], 1) if "n" in given else None
        patience = number("w", given["w"]) if "w" in given else None
        return _run(verb, Shovel(source(one), target(other), once="1" in given, count=count,
                                 patience=patience))
    except Error as error:
        return fail(verb, error)
    except OSError as error:
        return fail(verb, stray(error))
    except ValueError as error:
        return fail(verb, Internal(f"an end said what is not understood: {error}", 70))


def _run(verb: str, shovel: Shovel) -> int:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    last = 0.0

    def line(end: str = "") -> None:
        buried = f", {shovel.buried} buried" if shovel.buried else ""
        waits = f", waits: {shovel.failing[1]}" if shovel.failing else ""
        # One that hung up has no size
        with contextlib.suppress(OSError):
            # Text wider than the terminal would take two lines
            width = (os.get_terminal_size(2).columns or 80) - 1
            complain("\r\033[K" + f"{verb}: {shovel.moved} moved{buried}{waits}"[:width] + end)

    def tell() -> None:
        nonlocal last
        if time.monotonic() - last >= 0.1:
            last = time.monotonic()
            line()

    def say(text: str) -> None:
        complain(f"{chr(13) + chr(27) + '[K' if terminal else ''}{verb}: {text}\n")
        if terminal:
            line()

    shovel.say = say
    if terminal:
        shovel.tell = tell
    on_signals(shovel.stop)
    try:
        shovel.run()
    except (Error, OSError):
        if terminal:
            line("\n")
        raise
    except Stopped as stopped:
        die_of(stopped.number)
    if terminal and (shovel.moved or shovel.buried):
        shovel.failing = None
        line("\n")
    return 0


if __name__ == "__main__":
    sys.exit(command("shovel", sys.argv[1:]))
