"""`flatq work` with a Python function as its command.

    flatq work -q jobs -- python3 -m flatq.worker shop.images:resize

is what help(flatq.Worker) describes, in a shell.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import inspect
import os
import pkgutil
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from .arguments import Seconds, former, letters, options, text, whole_seconds, wrong
from .command import complain, die_of, on_signals
from .errors import Invalid, Usage, error_of
from .queue import Queue, _readable
from .verbs import Call, home, run, start, with_us

Job = Callable[[bytes], object]
#: A module is being imported for its job, and must not make a Worker
importing = False


@_readable
class Worker:
    """Calls `job` with each message of `queues`, which is bytes.

    >>> if __name__ == "__main__":
    ...     Worker(resize, ["urgent", "jobs"], jobs=2, timeout=300).run()

    The `if` is needed: each message has a Python process of its own, which
    imports the script.

    When the job returns, its message is deleted. When it raises, the message
    comes again later; after `max_tries` it is buried. The reason is the
    exception's name. The traceback goes to stderr, whose end `flatq why` shows.
    The job may be an `async` function.

    Parameters
    ----------
    job : a function of a module or a script, or its path,
        "package.module:name" or "path/to/file.py:name"
    queues : one, or several, of which the first come first
    path : the spool
    jobs : how many run side by side
    lease : seconds until others get the message of a worker that hangs
    timeout : seconds until a job is ended, and has failed
    delay : seconds until a message that failed comes again, doubled with each
        try, and the most of them: (1, 300)
    max_tries : after so many a message is buried; 0: never
    count : stop after so many messages
    wait : stop when nothing has come for so many seconds
    until_empty : stop when nothing is there
    in_process : run the jobs in threads of this process

    limit, most_tries and most_delay are former names, and workers is another
    one of jobs.

    A process for each message starts Python and imports the job anew. It can be
    ended: by `timeout`, by a second ^C, which gives its message back, or by its
    own crash, which no other job notices. Its environment has FLATQ_ID,
    FLATQ_QUEUE and FLATQ_TRIES.

    With in_process=True, a job starts sooner, may be any callable, and finds
    what is imported already. But nothing can end a thread: `timeout` is
    refused, and a job goes on even if `flatq work` is killed and others get its
    message. All jobs share the interpreter's lock and environment. A crash or a
    second ^C ends all of them, and their messages come again.
    """

    def __init__(self, job: Job | str, queues: str | Iterable[str] = "default",
                 path: str | os.PathLike[str] | None = None, *, jobs: int = 1,
                 lease: Seconds | None = None, timeout: Seconds | None = None,
                 delay: Seconds | tuple[Seconds, Seconds] = (1, 300), max_tries: int = 0,
                 count: int | None = None, wait: Seconds | None = None, until_empty: bool = False,
                 in_process: bool = False, workers: int | None = None,
                 limit: Seconds | None = None, most_tries: int | None = None,
                 most_delay: Seconds | None = None) -> None:
        if importing:
            raise RuntimeError("a Worker is made while its job is imported: put it behind"
                               ' `if __name__ == "__main__":`')
        if limit is not None:
            timeout = former("limit", limit, "timeout", 3)
        if most_tries is not None:
            max_tries = former("most_tries", most_tries, "max_tries", 3)
        first, most = delay if isinstance(delay, tuple) else (delay, 300)
        if most_delay is not None:
            most = former("most_delay", most_delay, "the second number of delay=(1, 300)", 3)
        if in_process and timeout is not None:
            raise Usage("timeout needs in_process=False: nothing can end a thread")
        if not isinstance(queues, Iterable):
            raise wrong("queues", "a str, or several", queues)
        names = [queues] if isinstance(queues, str) else queues
        self.queues = [text("queues", name) for name in names]
        self.path = Queue(path=path).path
        delays = [int(whole_seconds("delay", each)) for each in (first, most)]
        self.given: dict[str, Any] = {
            "queues": ",".join(self.queues), "jobs": jobs if workers is None else workers,
            "lease": lease, "timeout": timeout, "delays": f"{delays[0]},{max(delays)}",
            "max_tries": max_tries, "count": count, "wait": wait,
            "until_empty": until_empty or wait == 0}
        self.options = options(self.given)
        # Without a command: the verb complains of that when all else is right
        with contextlib.suppress(Usage):
            run(Call("work", self.options, bytes, names=letters(self.given)))
        self.in_process = in_process
        self.job: Any = _job(job) if in_process else _path(job, self.environment())

    def command(self) -> list[str]:
        """Return the worker as a list of words, for a supervisor."""
        if self.in_process:
            raise Usage("command needs in_process=False")
        return _work(self.options, [sys.executable, "-m", "flatq.worker", self.job])

    def environment(self) -> dict[str, str]:
        """Return the environment for `command`."""
        ways = [str(Path(__file__).resolve().parents[1]), *map(os.path.abspath, sys.path)]
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(ways))}
        return given if self.path is None else {**given, "FLATQ_DIR": self.path}

    def run(self) -> None:
        """Work until told to stop, or until all is done.

        In the main thread, QUIT, TERM, INT and HUP are passed on to `flatq
        work`, which stops if we are killed, too. Raises Closed, Disk, Denied,
        Invalid.
        """
        threads = self._threads() if self.in_process else []
        told: dict[subprocess.Popen[bytes], int] = {}
        came: list[int] = []

        def passed(number: int, frame: FrameType | None) -> None:
            # Before others get the messages, no thread may go on
            if threads and (came or number == signal.SIGHUP):
                die_of(number)
            came.append(number)
            tell()

        def tell() -> None:
            for process in list(told):
                while told[process] < len(came):
                    told[process] += 1
                    process.send_signal(came[told[process] - 1])

        before: dict[int, Any] = {}
        try:
            # ValueError: not in the main thread
            with contextlib.suppress(ValueError):
                before = on_signals(passed)
            for thread in threads or (None,):
                words, ends = (thread.command, thread.theirs) if thread else (self.command(), ())
                # In a session of its own: else it gets ^C from the terminal, and again from us
                told[start([*with_us(os.getpid()), *words], env=self.environment(),
                           pass_fds=ends)] = 0
                tell()
            # RACE: of two signals at once, the system gives one to another thread. Then only a
            # main thread that looks now and then runs its handler
            while threads and any(process.poll() is None for process in told):
                time.sleep(0.05)
            statuses = [process.wait() for process in told]
        except BaseException:
            for process in told:
                process.terminate()
            for process in told:
                process.wait()
            raise
        finally:
            for thread in threads:
                thread.end()
            for number, handler in before.items():
                signal.signal(number, handler)
        for status in statuses:
            if status and not (status < 0 and -status in (signal.SIGHUP, *came)):
                raise error_of("work", status, "")

    def _threads(self) -> list[_Thread]:
        many, count = int(self.given["jobs"]), self.given["count"]
        shares = [None if count is None else (count + at) // many for at in range(many)]
        return [_Thread(self.job, options({**self.given, "jobs": 1, "count": share}))
                for share in shares if share != 0]


#: What `flatq work` runs where a thread does the job. The thread reads the message by its 4
ASK = """
exec 4<&0
asked=$$.$FLATQ_ID.$FLATQ_TRIES
printf '%s\\n' "$asked" >/proc/self/fd/"$0" || exit
while read -r who code reason; do
  # It may be of a job whose command was ended meanwhile
  [ "$who" = "$asked" ] || continue
  [ -z "$reason" ] || printf %s "$reason" >"$FLATQ_REASON"
  exit "$code"
done </proc/self/fd/"$1"
# Our pipes end before it is seen to be dead, and the worker must not begin another job meanwhile
turn=0
while [ $turn -lt 100 ] && read -r stat </proc/"$2"/stat; do
  case ${stat##*)} in
  *[ZX]*) break ;;
  esac
  sleep 0.02
  turn=$((turn + 1))
done 2>/dev/null
printf interpreter-died >"$FLATQ_REASON"
exit 70
"""


class _Thread(threading.Thread):
    """Runs the jobs of one `flatq work`; two pipes lie between it and ASK."""

    def __init__(self, job: Job, given: list[str]) -> None:
        super().__init__(daemon=True)
        self.job = job
        self.asked, self.ask = _pipe()
        self.outcome, self.tell = _pipe()
        self.theirs = (self.ask, self.outcome)
        self.command = _work(given, ["sh", "-c", ASK, *map(str, self.theirs), str(os.getpid())])
        self.start()

    def run(self) -> None:
        with open(self.asked) as lines:
            for line in iter(lines.readline, "\n"):
                who = line.strip()
                theirs = f"/proc/{who.partition('.')[0]}/fd"
                code, reason, said = attempt(self.job, Path(theirs, "4").read_bytes)
                try:
                    with open(f"{theirs}/2", "ab", 0) as file:
                        file.write(said.encode(errors="backslashreplace"))
                except OSError:  # A socket
                    complain(said)
                os.write(self.tell, f"{who} {code} {reason}\n".encode())

    def end(self) -> None:
        """End once the job in hand has; `flatq work` has ended."""
        os.write(self.ask, b"\n")
        self.join()
        for end in (*self.theirs, self.tell):
            os.close(end)


def _pipe() -> tuple[int, int]:
    """Return a pipe's ends. Shells use the numbers below 10 themselves."""
    ends = os.pipe()
    one, other = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return one, other


def _work(given: list[str], command: list[str]) -> list[str]:
    return ["sh", str(home() / "flatq"), "work", *given, "--", *command]


def _job(job: Job | str) -> Job:
    """Return the job, for a thread. Raises Invalid."""
    try:
        return load(job) if isinstance(job, str) else checked(job, repr(job))
    except (ImportError, AttributeError, FileNotFoundError) as error:
        raise Invalid(f"job cannot be imported: {error}") from None


def _path(job: Job | str, environment: dict[str, str]) -> str:
    """Return the job's path, once a process could import it. Raises Invalid."""
    path = job if isinstance(job, str) else path_of(job)
    done = subprocess.run([sys.executable, "-m", "flatq.worker", "--import", path],
                          env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode == 127:
        said = done.stderr.decode(errors="replace").strip().removeprefix("worker: ")
        raise Invalid(f"job '{path}' cannot be imported: {said}")
    return path


def path_of(job: Job) -> str:
    """Return the path of a function. Raises Invalid, TypeError."""
    if not callable(job):
        raise wrong("job", 'a function, or a str such as "module:function"', job)
    name, module = getattr(job, "__qualname__", "<"), getattr(job, "__module__", "")
    if module == "__main__":
        script: Any = sys.modules["__main__"]
        file = os.path.abspath(getattr(script, "__file__", None) or "")
        module = script.__spec__.name if script.__spec__ else file if file[-3:] == ".py" else ""
    if not module or "<" in name or inspect.ismethod(job) and not inspect.isclass(job.__self__):
        raise Invalid(f"job {job!r} cannot be imported: a job is a function of a module or of a"
                      " .py, unless in_process=True")
    return f"{module}:{name}"


def load(path: str) -> Job:
    """Return the function at "package.module:name" or "file.py:name".

    Raises ImportError, AttributeError, FileNotFoundError.
    """
    # We may be __main__
    from . import worker

    worker.importing = True
    try:
        script, _, name = path.rpartition(":")
        if script.endswith(".py"):
            # Not as __main__, so that the script does not run again
            spec: Any = importlib.util.spec_from_file_location("__flatq_job__", script)
            module = sys.modules["__flatq_job__"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return checked(pkgutil.resolve_name(f"__flatq_job__:{name}"), f"'{path}'")
        return checked(pkgutil.resolve_name(path), f"'{path}'")
    except ValueError:
        raise ImportError(f"'{path}' is no package.module:name") from None
    finally:
        worker.importing = False


def checked(job: Any, shown: str) -> Job:
    """Return the job. Raises ImportError if a call would do nothing."""
    if not callable(job):
        raise ImportError(f"{shown} cannot be called")
    if inspect.isgeneratorfunction(job) or inspect.isasyncgenfunction(job):
        raise ImportError(f"{shown} has a yield: to call it does nothing")
    return job  # type: ignore[no-any-return]


def attempt(job: Job, read: Callable[[], bytes]) -> tuple[int, str, str]:
    """Call the job; return its exit code, the reason of a failure and a text for stderr."""
    try:
        done = job(read())
        if inspect.isgenerator(done) or inspect.isasyncgen(done):
            return 127, "", "worker: the job has a yield: to call it does nothing\n"
        if inspect.isawaitable(done):
            import asyncio

            asyncio.run(_awaited(done))
        if sys.stdout:
            sys.stdout.flush()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 255, "", ""
        return 1, "", f"{end.code}\n"
    except BaseException as error:
        ours = error.__traceback__
        return (70, re.sub("[^A-Za-z0-9_-]", "_", type(error).__name__)[:40],
                "".join(traceback.format_exception(type(error), error, ours and ours.tb_next)))
    return 0, "", ""


async def _awaited(done: Any) -> None:
    await done


def main() -> int:
    """Work on the message from standard input; 127: no such function, the worker stops."""
    words = [word for word in sys.argv[1:] if word != "--import"]
    if len(words) != 1 or words[0] == "-h":
        complain("usage: flatq work ... -- python3 -m flatq.worker PACKAGE.MODULE:FUNCTION\n")
        return 0 if words == ["-h"] else 64
    sys.path.insert(0, os.getcwd())
    try:
        job = load(words[0])
    except (ImportError, AttributeError, FileNotFoundError) as error:
        complain(f"worker: {error}\n")
        return 127
    except BaseException:
        complain(f"{traceback.format_exc()}worker: {words[0]} cannot be imported: see above\n")
        return 127
    if len(sys.argv) > 2:
        return 0
    code, reason, said = attempt(job, sys.stdin.buffer.read)
    complain(said)
    # `flatq work` takes the reason from this file
    if reason and (file := os.environ.get("FLATQ_REASON")):
        with contextlib.suppress(OSError):
            Path(file).write_text(reason)
    return code


if __name__ == "__main__":
    sys.exit(main())
