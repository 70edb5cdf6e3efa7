"""Waiting for a verb under asyncio: the twin of verbs.run.

Not with asyncio's own subprocesses: a start that is cancelled, as by the end of the loop, hangs them for ever (seen with Python 3.11)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TypeVar

from .verbs import Call, Job

T = TypeVar("T")


async def run(call: Call[T]) -> T:
    """The verb's answer. Cancelled, or out of time, it ends the verb first: TERM, on which that gives back what it holds, and KILL after
    GRACE seconds. Where the verb was quicker, its answer is returned, and the cancellation comes later."""
    loop = asyncio.get_running_loop()
    # a future, not a task: the end of the loop cancels every task
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        # the loop may be closed, where somebody has stopped it in our midst
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set_result, None)

    job = Job(call, tell)
    stopped: asyncio.CancelledError | None = None
    try:
        for number, seconds in job.steps():
            if number is None:
                job.start()
            elif ended.done() or number and not job.end(number):
                break
            end = None if seconds is None else loop.time() + seconds
            while not ended.done() and (number is not None or not stopped) and (end is None or loop.time() < end):
                try:
                    await asyncio.wait({ended}, timeout=None if end is None else end - loop.time())
                except asyncio.CancelledError as error:
                    stopped = error
    except BaseException:
        job.end(signal.SIGKILL)
        raise
    if stopped and not job.well():
        raise stopped
    if stopped:
        cancel_later()
    answer: T = job.result()
    return answer


def cancel_later() -> None:
    """Cancel this task at its next await: what it was about to return is returned first."""
    task = asyncio.current_task()

    def again() -> None:
        # from Python 3.11 on it is known whether whoever cancelled, a time-out, has taken that back
        if task is not None and getattr(task, "cancelling", lambda: 1)():
            getattr(task, "uncancel", int)()
            task.cancel()

    asyncio.get_running_loop().call_soon(again)
