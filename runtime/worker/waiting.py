"""Tells in a run's events what a training service keeps waiting, and when that is over.

Only changes are told: an operation that is paused for an hour is one event, and its end another.
"""

from collections.abc import Sequence

import anyio

from runtime.compute.protocol import Wait
from runtime.execution.context import RunContext
from specs.errors import Unavailable
from specs.worker_api import ComputeWaiting

WATCH_SEC = 5.0

type Told = dict[tuple[str, str | None], ComputeWaiting]
"""What was told last of each operation (and trainer) that still waits."""


async def watch_waits(context: RunContext, *, every: float = WATCH_SEC) -> None:
    """Until cancelled. A compute that is away keeps nothing waiting that could be told.

    Raises:
        ClaimLost: another worker owns the run.
    """
    if context.spec.sampler.backend != "tinker":
        return
    told: Told = {}
    while True:
        await anyio.sleep(every)
        try:
            waits = (await context.compute.health()).waits
        except Unavailable:
            continue
        model = context.spec.sampler.base_model
        if news := changes(told, [wait for wait in waits if wait.model == model]):
            await context.write(*news)


def changes(told: Told, waits: Sequence[Wait]) -> list[ComputeWaiting]:
    """What is new since `told`, which is brought up to date."""
    news: list[ComputeWaiting] = []
    seen: set[tuple[str, str | None]] = set()
    for wait in waits:
        key = (wait.operation, wait.trainer)
        seen.add(key)
        before = told.get(key)
        if before is None or (before.state, before.reason) != (wait.state, wait.reason):
            told[key] = ComputeWaiting(
                operation=wait.operation,
                trainer=wait.trainer,
                state=wait.state,
                reason=wait.reason,
                seconds=round(wait.seconds, 1),
            )
            news.append(told[key])
    for key in [key for key in told if key not in seen]:
        last = told.pop(key)
        news.append(last.model_copy(update={"state": "active", "reason": None}))
    return news
