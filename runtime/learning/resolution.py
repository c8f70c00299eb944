"""What became of an update whose worker cannot tell (invariant 8).

    prepared                                              → not applied (never enqueued)
    unresolved, state saved under its id                  → applied
    unresolved, its trainer ended and no state            → not applied
    unresolved, compute cannot be asked                   → blocked, for an operator

An operator's word is checked against what compute can tell: `applied` needs a state of that
id, and `not-applied` is refused where there is one. Either way the run blocks again and says so.

A trainer has ended when compute is another incarnation, or when `close_trainer` has returned:
after that nothing submitted before can still be applied. The state is looked for after that
point, never before.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio

from runtime.compute.protocol import Compute, Health
from runtime.execution.context import Blocked
from specs.errors import ErrorCode, ErrorObject, PracticumError, Unavailable
from specs.records import Update, UpdateState

PATIENCE = 120.0
"""Seconds for which a restart of compute is ridden out."""
MAX_REDONE = 5
"""How often what was lost with a trainer is made again in one claim before the run fails."""


class Fate(StrEnum):
    """Whether an update's optimizer step counts."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"


@dataclass(frozen=True, slots=True)
class Pending:
    """An update that has been prepared and is not over."""

    id: str
    batch: int
    trainer: str
    incarnation: str
    unresolved: bool = False
    resolution: str | None = None
    """The operator's word, where one was given."""
    measures: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, update: Update) -> "Pending | None":
        """From the records; None for an update that is over."""
        if update.state not in (UpdateState.PREPARED, UpdateState.UNRESOLVED):
            return None
        assert update.trainer is not None
        assert update.incarnation is not None
        return cls(
            id=update.id,
            batch=update.batch,
            trainer=update.trainer,
            incarnation=update.incarnation,
            unresolved=update.state is UpdateState.UNRESOLVED,
            resolution=update.resolution,
            measures=tuple(update.metrics.items()),
        )

    def enqueued(self, measures: dict[str, float]) -> "Pending":
        """As it is from the moment that its optimizer step may exist."""
        return replace(self, unresolved=True, measures=tuple(measures.items()))


async def resolve(
    compute: Compute, pending: Pending, *, run: str, check: Callable[[], None], patience: float
) -> Fate:
    """Find out, closing the trainer on the way. Harmless to repeat, also after a cancel.

    Raises:
        Blocked: compute stays away, so that nobody can tell.
    """
    try:
        health = await reach(compute, check=check, patience=patience)
        if health.incarnation == pending.incarnation:
            await compute.close_trainer(pending.trainer)
        if not pending.unresolved:
            return Fate.NOT_APPLIED
        saved = await compute.find_state(pending.id)
    except Unavailable as error:
        if not pending.unresolved or pending.resolution == "not-applied":
            raise
        raise blocked(run, pending.id, str(error)) from error
    if saved is None and pending.resolution == "applied":
        raise blocked(run, pending.id, "it was resolved as applied, and no state has its id")
    if saved is not None and pending.resolution == "not-applied":
        raise blocked(run, pending.id, "it was resolved as not applied, and a state has its id")
    return Fate.NOT_APPLIED if saved is None else Fate.APPLIED


async def reach(compute: Compute, *, check: Callable[[], None], patience: float) -> Health:
    """Compute's health, waiting for a restart; `check` may end the waiting with its error.

    Raises:
        Unavailable: it stayed away for `patience` seconds.
    """
    return await persistently(compute.health, check=check, patience=patience)


async def persistently[T](
    call: Callable[[], Awaitable[T]], *, check: Callable[[], None], patience: float
) -> T:
    """Make a repeatable call while its part is unavailable, for at most `patience` seconds.

    `check` runs before each repetition, so that what is at hand is done even when stopping.
    """
    deadline = anyio.current_time() + patience
    pause = 0.05
    while True:
        try:
            return await call()
        except Unavailable:
            check()
            if anyio.current_time() + pause > deadline:
                raise
        await anyio.sleep(pause)
        pause = min(2 * pause, 2.0)


def compute_lost(error: PracticumError) -> bool:
    """Whether the trainer is gone, or may be, so that its gradients must be made again."""
    codes = (ErrorCode.COMPUTE_UNAVAILABLE, ErrorCode.TRAINER_MISSING)
    return error.problem.code in codes


def lost_for_good(run: str, times: int, during: str) -> Unavailable:
    """The error of work that was made again so often, and compute was lost each time."""
    return Unavailable(
        f"Compute was lost {times} times during {during}.",
        code=ErrorCode.COMPUTE_UNAVAILABLE,
        object=ErrorObject(type="run", id=run),
        next="Look into the log of compute; then start the run again from its checkpoint.",
    )


def blocked(run: str, update: str, cause: str) -> Blocked:
    """The error that leaves the run `blocked`, naming the command that lets it go on."""
    return Blocked(
        Unavailable(
            f"Nobody can tell whether the optimizer step of update {update} was applied: {cause}",
            code=ErrorCode.UPDATE_UNRESOLVED,
            object=ErrorObject(type="update", id=update),
            next=f"practicum update resolve {run} {update} --as applied|not-applied|abandon",
        ).problem
    )
