"""The command `flatq shovel`; see lib/shovel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from ..command import complain, number, on_signals, options, run
from ..errors import Error, Internal, Usage
from . import Shovel, source, target


def command(verb: str, words: list[str],
            places: Callable[[list[str]], tuple[str, str]] | None = None) -> NoReturn:
    """Move what the command line asks for, and exit."""
    def main(words: list[str]) -> int:
        given, names = options(words, "hon:w:")
        one, other = places(names) if places else names
        if one == other:
            raise Usage("FROM and TO are the same")
        count = number("n", given["n"], 1) if "n" in given else None
        patience = number("w", given["w"]) if "w" in given else None
        shovel = Shovel(source(one), target(other), once="o" in given, count=count,
                        patience=patience, say=lambda text: complain(f"{verb}: {text}\n"))
        on_signals(shovel.stop)
        try:
            shovel.run()
        except ValueError as error:
            if isinstance(error, Error):
                raise
            raise Internal(f"an end said what is not understood: {error}") from None
        return 0

    run(verb, main, words)


if __name__ == "__main__":
    command("shovel", sys.argv[1:])
