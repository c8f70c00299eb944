"""Which driver works through which kind of plan; each is imported where it is needed."""

from runtime.client import WorkerClient
from runtime.execution.context import RunContext
from runtime.execution.evaluation import run_evaluation
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan


async def drive(context: RunContext, client: WorkerClient) -> None:
    """Work through a run from wherever its records say that it is.

    A claim of a run that was cancelled before does nothing but end it. It is the run's last one,
    so what a dead worker left in compute goes first (invariant 12).

    Raises:
        RunStopped: cancelled, blocked, or the claim is lost.
        PracticumError: the run cannot go on.
    """
    if context.cancelling.is_set() and not isinstance(context.spec.plan, EvaluationPlan):
        from runtime.learning.leftovers import sweep

        await sweep(context, over=True)
    context.check()
    match context.spec.plan:
        case EvaluationPlan():
            await run_evaluation(context)
        case TrainingPlan():
            from runtime.learning.training import run_training

            await run_training(context)
        case SupervisedPlan():
            from runtime.learning.supervised import run_supervised

            await run_supervised(context, client)
