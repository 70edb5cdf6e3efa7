"""The command `flatq`, and `python -m flatq`: this process becomes the shell's flatq."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from .verbs import home


def main() -> NoReturn:
    """Become the verb that the arguments name."""
    try:
        command = ["sh", str(home() / "flatq"), *sys.argv[1:]]
    except FileNotFoundError as error:
        print(f"flatq: {error}", file=sys.stderr)
        sys.exit(70)
    # Python ignores these signals, and a shell cannot trap a signal that was ignored at its start
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.environ.setdefault("FLATQ_PYTHON", sys.executable)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
