"""Run a verb under asyncio, as verbs.run does without it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from .verbs import Call, T


async def run(call: Call[T]) -> T:
    """Return the verb's answer. A cancellation ends the verb, or comes once that has succeeded."""
    loop = asyncio.get_running_loop()
    # asyncio.to_thread's few threads may all wait, and the loop's end cancels a task
    ended, stopped = loop.create_future(), None

    def work() -> None:
        if not call.ends(call.timeout):
            call.end()
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile
            loop.call_soon_threadsafe(ended.set_result, None)

    with call:
        threading.Thread(target=work, daemon=True).start()
        while not ended.done():
            try:
                await asyncio.wait({ended})
            except asyncio.CancelledError as error:
                if not stopped:
                    threading.Thread(target=call.end, daemon=True).start()
                stopped = error
    if stopped:
        if call.status:
            raise stopped
        cancel_later()
    return call.result()


def cancel_later() -> None:
    """Cancel this task at its next await, so that it first returns its answer."""
    task: Any = asyncio.current_task()
    # From Python 3.11 on, a timeout may have withdrawn its cancellation
    left, less = getattr(task, "cancelling", lambda: 1), getattr(task, "uncancel", int)
    asyncio.get_running_loop().call_soon(lambda: left() and (less(), task.cancel()))
