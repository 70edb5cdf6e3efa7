"""Run a verb under asyncio, as verbs.run does without it.

Neither asyncio's subprocesses, which hang for ever if their start is cancelled, as by the end of
the loop (seen with Python 3.11), nor its few threads: waiting pops would keep the others out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TypeVar

from .verbs import Call, Job

T = TypeVar("T")


async def run(call: Call[T]) -> T:
    """The verb's answer. On cancellation or timeout, end the verb first: by TERM, on which it gives
    back what it holds, and KILL after GRACE seconds. If the verb ended before, return its answer,
    and raise the cancellation later."""
    loop = asyncio.get_running_loop()
    # A future, not a task, since the end of the loop cancels every task
    ended: asyncio.Future[None] = loop.create_future()
    job = Job(call)

    def wait() -> None:
        job.wait()
        # The loop may be closed, if it was stopped while we ran
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set_result, None)

    stopped: asyncio.CancelledError | None = None
    try:
        threading.Thread(target=wait, daemon=True).start()
        for step, (number, seconds) in enumerate(job.steps()):
            job.send(number)
            end = None if seconds is None else loop.time() + seconds
            # A second cancellation does not cut short the end of the verb
            while not ended.done() and (step or not stopped) and (end is None or loop.time() < end):
                try:
                    await asyncio.wait({ended}, timeout=None if end is None else end - loop.time())
                except asyncio.CancelledError as error:
                    stopped = error
            if ended.done():
                break
    except BaseException:
        job.send(signal.SIGKILL)
        raise
    try:
        answer: T = job.result()
    except BaseException as error:
        raise job.told(stopped or error) from None
    if stopped:
        cancel_later()
    return answer


def cancel_later() -> None:
    """Cancel this task at its next await, so that it first returns what it was about to return."""
    task = asyncio.current_task()

    def again() -> None:
        # From Python 3.11 on we can tell whether a timeout has withdrawn its cancellation
        if task is not None and getattr(task, "cancelling", lambda: 1)():
            getattr(task, "uncancel", int)()
            task.cancel()

    asyncio.get_running_loop().call_soon(again)
