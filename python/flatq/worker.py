"""`flatq work` with a Python function as its command.

    from flatq import Worker

    Worker("shop.images:resize", ["urgent", "jobs"], jobs=2, limit=300).run()

The function, which may be an `async` one, is called with the message's bytes, in a process of its
own, with the environment that `flatq work -h` describes. If it returns, the message is deleted. If
it raises, the traceback goes to stderr and the message comes again later; after `most_tries` it is
buried with the reason `exit-70`, or SystemExit's number. In a shell:

    flatq work -q jobs -- python3 -m flatq.worker shop.images:resize
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from .command import complain, on_signals
from .errors import Invalid, error_of
from .queue import _readable
from .verbs import home, start, with_us

Job = Callable[[bytes], object]


@_readable
class Worker:
    """Runs `job` for each message of `queues`, of which the first come first.

    Parameters
    ----------
    job : a function of a module or a script, or its path,
        "package.module:name" or "path/to/file.py:name"
    path : the spool
    jobs : processes side by side
    lease, limit : seconds until a worker that hangs, and a job, is given up
    delay, most_delay : seconds until a message that failed comes again, doubled
        with each try
    most_tries : after so many a message is buried; 0: never
    count : stop after so many messages
    wait : stop when nothing has come for so many seconds
    until_empty : stop when nothing is there
    """

    def __init__(self, job: Job | str, queues: str | Iterable[str] = "default",
                 path: str | os.PathLike[str] | None = None, *, jobs: int = 1,
                 lease: int | None = None, limit: int | None = None, delay: int = 1,
                 most_delay: int = 300, most_tries: int = 0, count: int | None = None,
                 wait: int | None = None, until_empty: bool = False) -> None:
        self.job = job if isinstance(job, str) else path_of(job)
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        self.path = None if path is None else os.path.abspath(os.fspath(path))
        given = {"q": ",".join(self.queues), "j": jobs, "t": lease, "x": limit,
                 "d": f"{delay},{max(delay, most_delay)}", "m": most_tries, "n": count,
                 "w": 0 if until_empty else wait}
        self.options = [word for letter, value in given.items() if value is not None
                        for word in (f"-{letter}", str(value))]
        if subprocess.run([sys.executable, "-m", "flatq.worker", "--import", self.job],
                          env=self.environment(), stdin=subprocess.DEVNULL).returncode == 127:
            raise Invalid(f"work: '{self.job}' cannot be imported", 65, "work")

    def command(self) -> list[str]:
        """Return the worker as a list of words, for a supervisor."""
        job = [sys.executable, "-m", "flatq.worker", self.job]
        return ["sh", str(home() / "flatq"), "work", *self.options, "--", *job]

    def environment(self) -> dict[str, str]:
        """Return the environment for `command`: the spool, our import path."""
        ways = [str(Path(__file__).resolve().parents[1]), *map(os.path.abspath, sys.path)]
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(ways))}
        return given if self.path is None else {**given, "FLATQ_DIR": self.path}

    def run(self) -> None:
        """Work until told to stop, or until all is done.

        In the main thread, QUIT, TERM, INT and HUP are passed on to `flatq
        work`, which stops if we are killed, too. Raises Closed, Disk, Denied,
        Invalid.
        """
        process: subprocess.Popen[bytes] | None = None
        came: list[int] = []

        def passed(number: int, frame: FrameType | None) -> None:
            came.append(number)
            if process:
                process.send_signal(number)

        before: dict[int, Any] = {}
        try:
            # ValueError: not in the main thread
            with contextlib.suppress(ValueError):
                before = on_signals(passed)
            # In a session of its own: else it gets ^C from the terminal, and again from us
            process = start([*with_us(os.getpid()), *self.command()], env=self.environment())
            for number in came:
                process.send_signal(number)
            status = process.wait()
        except BaseException:
            if process:
                process.terminate()
                process.wait()
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if status and not (status < 0 and -status in (signal.SIGHUP, *came)):
            raise error_of("work", status, "")


def path_of(job: Job) -> str:
    """Return the path of a function. Raises ValueError."""
    name, module = getattr(job, "__qualname__", "<"), getattr(job, "__module__", "")
    if module == "__main__":
        script: Any = sys.modules["__main__"]
        file = os.path.abspath(getattr(script, "__file__", None) or "")
        module = script.__spec__.name if script.__spec__ else file if file[-3:] == ".py" else ""
    if not module or "<" in name or inspect.ismethod(job) and not inspect.isclass(job.__self__):
        raise ValueError(f"{job!r} cannot be imported: a job is a function of a module or of a .py")
    return f"{module}:{name}"


def load(path: str) -> Job:
    """Return the function at "package.module:name" or "file.py:name".

    Raises ImportError, AttributeError, FileNotFoundError.
    """
    script, _, name = path.rpartition(":")
    if script.endswith(".py"):
        # Not as __main__, so that the script does not run again
        spec: Any = importlib.util.spec_from_file_location("__flatq_job__", script)
        module = sys.modules["__flatq_job__"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        path = f"__flatq_job__:{name}"
    try:
        found = pkgutil.resolve_name(path)
    except ValueError:
        raise ImportError(f"'{path}' is no package.module:name") from None
    if not callable(found):
        raise ImportError(f"'{path}' cannot be called")
    if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise ImportError(f"'{path}' has a yield: to call it does nothing")
    return found  # type: ignore[no-any-return]


async def _awaited(done: Any) -> None:
    await done


def main() -> int:
    """Work on the message from standard input; 127: no such function, the worker stops."""
    words = [word for word in sys.argv[1:] if word != "--import"]
    if len(words) != 1 or words[0] == "-h":
        complain("usage: flatq work ... -- python3 -m flatq.worker PACKAGE.MODULE:FUNCTION\n")
        return 0 if words == ["-h"] else 64
    sys.path.insert(0, os.getcwd())
    only = len(sys.argv) > 2
    body = b"" if only else sys.stdin.buffer.read()
    try:
        job = load(words[0])
    except (ImportError, AttributeError, FileNotFoundError) as error:
        complain(f"worker: {error}\n")
        return 127
    except BaseException:
        complain(f"{traceback.format_exc()}worker: {words[0]} cannot be imported: see above\n")
        return 127
    if only:
        return 0
    try:
        done = job(body)
        if inspect.isgenerator(done) or inspect.isasyncgen(done):
            complain(f"worker: '{words[0]}' has a yield: to call it does nothing\n")
            return 127
        if inspect.isawaitable(done):
            import asyncio

            asyncio.run(_awaited(done))
        sys.stdout.flush()
    except Exception:
        complain(traceback.format_exc())
        return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())
