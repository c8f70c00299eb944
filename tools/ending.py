"""Being told to end: by SIGTERM, as from `timeout`, or by SIGHUP, as when a terminal is closed.

A command that is told so cleans up first, as after Ctrl-C: what it has started would outlive it.
"""

import signal
import threading
from collections.abc import Awaitable, Callable

import anyio

CLEAN_UP_SEC = 15.0
"""What a harness needs to end, politely and then by force, and its session after it."""


def endings() -> tuple[signal.Signals, ...]:
    """The signals to heed: none that is ignored, as under `nohup`; none outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    both = (signal.SIGTERM, signal.SIGHUP)
    return tuple(one for one in both if signal.getsignal(one) is not signal.SIG_IGN)


async def attended(work: Callable[[], Awaitable[int]]) -> int:
    """Do what a command is for; its exit code.

    When this process is told to end the work is cancelled, and the process then ends by that
    very signal: once the work has ended, or after `CLEAN_UP_SEC` where a thread holds it up.
    Being told again, as `timeout` does, cuts nothing short. `work` reports its own failures.
    """
    code = 1
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_end_when_told, scope, ended)
            try:
                code = await work()
            finally:
                ended.set()
        if not scope.cancel_called:
            tasks.cancel_scope.cancel()
    return code


async def _end_when_told(work: anyio.CancelScope, ended: anyio.Event) -> None:
    with anyio.open_signal_receiver(*endings()) as signals:
        told = await anext(signals)
        work.cancel()
        with anyio.move_on_after(CLEAN_UP_SEC):
            await ended.wait()
    signal.raise_signal(told)
