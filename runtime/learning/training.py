"""Reinforcement learning: batches of scored attempts, one optimizer step behind each.

Every batch: its tasks follow from its number; all its groups sample from one sampler S₀
(invariant 7). Sampling and learning run beside each other: a group that has settled is judged
and submitted to the trainer while slower groups still sample (`pipeline`). The step follows
the last group, and S₁ is what the next batch samples from. The driver keeps nothing that the
records do not hold, so another worker may go on after any write.
"""

from collections.abc import Sequence
from typing import Protocol

import anyio

from runtime.execution.context import RunContext, RunStopped
from runtime.execution.groups import OnSettled, gravest, run_groups
from runtime.learning.ledger import Ledger
from runtime.learning.order import batch_tasks, training_plan
from runtime.learning.pipeline import BatchWork
from runtime.learning.resolution import PATIENCE
from runtime.learning.session import Learning, learning
from specs.dataset import TaskEntry
from specs.errors import ErrorObject, PracticumError, Unavailable
from specs.plans import TrainingPlan
from specs.run import SamplerRef
from specs.worker_api import BatchStarted


class GroupRunner(Protocol):
    """Runs a batch's groups, or what is left of them; `run_groups` says more."""

    async def __call__(
        self,
        context: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        trials_per_task: int,
        /,
        *,
        on_settled: OnSettled,
    ) -> None: ...


async def run_training(
    ctx: RunContext, *, groups: GroupRunner = run_groups, patience: float = PATIENCE
) -> None:
    """Work through a training run, from wherever its records say that it is.

    On cancel the records stay as they are, for the next claim; compute keeps no trainer.

    Raises:
        RunStopped: cancelled, blocked, or the claim is lost.
        PracticumError: the run cannot go on; its checkpoints stay.
    """
    plan = training_plan(ctx.spec)
    async with learning(ctx, plan.num_batches, patience=patience) as session:
        for batch in range(plan.num_batches):
            if batch in session.done:
                continue
            ctx.check()
            await _run_batch(ctx, session, batch, plan, groups)
        await session.finish()


async def _run_batch(
    ctx: RunContext, session: Learning, batch: int, plan: TrainingPlan, groups: GroupRunner
) -> None:
    """Sample the batch on the policy's sampler, and learn from it meanwhile."""
    tasks = batch_tasks(ctx.spec, plan, batch)
    sampler = session.policy.sampler
    if not session.started(batch):
        names = tuple(task.name for task in tasks)
        await ctx.write(BatchStarted(batch=batch, sampler=sampler.id, tasks=names))
    ledger = Ledger(ctx.client, ctx.run, len(tasks))

    async def sample() -> None:
        """What ends the sampling reaches the learner, which settles its update first."""
        attempts = plan.batch.trials_per_task
        try:
            await groups(ctx, batch, sampler, tasks, attempts, on_settled=ledger.add)
            if not ledger.complete:
                raise _cut_short(ctx, batch)
        except (RunStopped, PracticumError) as error:
            await ledger.fail(error)

    learnt = False
    try:
        async with anyio.create_task_group() as both:
            both.start_soon(sample)
            await session.update(BatchWork(ctx, session, batch, plan, ledger))
            learnt = True
            both.cancel_scope.cancel()
    except BaseExceptionGroup as error:
        raise gravest(error) from error
    if not learnt:  # a task that is cancelled from elsewhere takes the group with it, silently
        raise _cut_short(ctx, batch)


def _cut_short(ctx: RunContext, batch: int) -> Unavailable:
    return Unavailable(
        f"The sampling of batch {batch} ended before all of its groups had settled.",
        object=ErrorObject(type="run", id=ctx.run),
        next=f"It is taken up again; see practicum run logs {ctx.run}",
    )
