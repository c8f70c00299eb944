"""Reinforcement learning: batches of scored attempts, one optimizer step behind each.

Every batch: its tasks follow from its number; all its groups sample from one sampler S₀
(invariant 7); when every slot has its counted trial the batch settles (verdicts, then
advantages); what is learnable goes through the boundary, and S₁ is what the next batch
samples from. The driver keeps nothing that the records do not hold, so another worker may go
on after any write.
"""

from collections.abc import Awaitable, Callable, Sequence

from runtime.compute.protocol import Loss
from runtime.execution.context import RunContext
from runtime.execution.groups import run_groups
from runtime.learning.order import batch_tasks, training_plan
from runtime.learning.resolution import PATIENCE
from runtime.learning.session import Learning, learning
from runtime.learning.settlement import Judged, Settlement, judge, settle
from runtime.learning.work import Work
from specs.dataset import TaskEntry
from specs.plans import TrainingPlan
from specs.records import Trial
from specs.run import SamplerRef
from specs.worker_api import BatchSettled, BatchStarted

type GroupRunner = Callable[
    [RunContext, int, SamplerRef, Sequence[TaskEntry], int], Awaitable[list[Trial]]
]
"""Runs a batch's groups, or what is left of them, and returns its counted trials in slot
order: (context, batch, sampler, tasks, trials per task)."""


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
            trials = await _attempts(ctx, session, batch, plan, groups)
            settlement = await _settle(ctx, session, batch, plan, trials)
            await session.update(_work(session, batch, plan, settlement))
        await session.finish()


async def _attempts(
    ctx: RunContext, session: Learning, batch: int, plan: TrainingPlan, groups: GroupRunner
) -> list[Trial]:
    """The batch's counted trials, all on the policy's sampler."""
    tasks = batch_tasks(ctx.spec, plan, batch)
    sampler = session.policy.sampler
    if not session.started(batch):
        names = tuple(task.name for task in tasks)
        await ctx.write(BatchStarted(batch=batch, sampler=sampler.id, tasks=names))
    return await groups(ctx, batch, sampler, tasks, plan.batch.trials_per_task)


async def _settle(
    ctx: RunContext, session: Learning, batch: int, plan: TrainingPlan, trials: Sequence[Trial]
) -> Settlement:
    """Verdicts and advantages, recorded once (invariant 5)."""
    judged: list[Judged] = []
    for trial in trials:
        found = await session.evidence.read(trial)
        judged.append(judge(trial, found, sampler=session.policy.sampler.id, plan=plan))
    settlement = settle(judged, plan)
    if not session.judged(batch):
        await ctx.write(
            BatchSettled(batch=batch, verdicts=settlement.verdicts, census=settlement.census)
        )
    return settlement


def _work(session: Learning, batch: int, plan: TrainingPlan, settlement: Settlement) -> Work:
    return Work(
        batch=batch,
        loss=Loss(plan.loss),
        rows=settlement.rows,
        census=settlement.census,
        final=session.final(batch),
        measures={
            **settlement.measures,
            **{name: float(count) for name, count in settlement.census.items()},
        },
    )
