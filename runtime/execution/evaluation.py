"""The driver of an evaluation: one batch, one group per task, one sampler; nothing learns."""

from collections import Counter

from runtime.execution.context import RunContext
from runtime.execution.groups import SettledGroup, census, run_groups
from specs.plans import EvaluationPlan
from specs.worker_api import BatchSettled, BatchStarted

BATCH = 0


async def run_evaluation(context: RunContext) -> None:
    """Run all of an evaluation's trials; see `run_groups` for what it raises."""
    spec = context.spec
    assert isinstance(spec.plan, EvaluationPlan)
    if not context.records.groups:
        names = tuple(task.name for task in spec.tasks)
        await context.write(BatchStarted(batch=BATCH, sampler=spec.sampler.id, tasks=names))
    counts: Counter[str] = Counter()

    async def count(settled: SettledGroup) -> None:
        counts.update(census(settled.trials))

    attempts = spec.plan.trials_per_task
    await run_groups(context, BATCH, spec.sampler, spec.tasks, attempts, on_settled=count)
    await context.write(BatchSettled(batch=BATCH, census=dict(counts)))
