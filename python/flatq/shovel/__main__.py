"""The command `flatq shovel`; see lib/shovel."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from ..command import complain, number, on_signals, options, run
from ..errors import Error, Internal, Usage
from . import Shovel, source, target

#: Go to the begin of the terminal's line, and clear it
CLEAR = "\r\033[K"


def command(verb: str, words: list[str],
            places: Callable[[list[str]], tuple[str, str]] | None = None) -> NoReturn:
    """Move what the command line asks for, and exit."""
    def main(words: list[str]) -> int:
        given, names = options(["-1" if word == "--once" else word for word in words], "h1n:w:")
        if places is None and len(names) != 2:
            raise Usage("shovel [--once] [-n COUNT] [-w SECONDS] FROM TO", 64)
        one, other = places(names) if places else (names[0], names[1])
        if one == other:
            raise Usage("FROM and TO are the same", 64)
        count = number("n", given["n"], 1) if "n" in given else None
        patience = number("w", given["w"]) if "w" in given else None
        return _run(verb, Shovel(source(one), target(other), once="1" in given, count=count,
                                 patience=patience))

    run(verb, main, words)


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
            complain(CLEAR + f"{verb}: {shovel.moved} moved{buried}{waits}"[:width] + end)

    def tell() -> None:
        nonlocal last
        if time.monotonic() - last >= 0.1:
            last = time.monotonic()
            line()

    def say(text: str) -> None:
        complain(f"{CLEAR if terminal else ''}{verb}: {text}\n")
        if terminal:
            line()

    shovel.say = say
    if terminal:
        shovel.tell = tell
    on_signals(shovel.stop)
    try:
        shovel.run()
        shovel.failing = None
    except ValueError as error:
        if isinstance(error, Error):
            raise
        raise Internal(f"an end said what is not understood: {error}", 70) from None
    finally:
        if terminal and (shovel.moved or shovel.buried or shovel.failing):
            line("\n")
    return 0


if __name__ == "__main__":
    command("shovel", sys.argv[1:])
