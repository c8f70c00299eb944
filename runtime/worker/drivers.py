"""Which driver works through which kind of plan; each is imported where it is needed."""

from runtime.client import WorkerClient
from runtime.execution.context import RunContext
from runtime.execution.evaluation import run_evaluation
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan


async def drive(context: RunContext, client: WorkerClient) -> None:
    """Work through a run from wherever its records say that it is.

    Raises:
        RunStopped: cancelled, blocked, or the claim is lost.
        PracticumError: the run cannot go on.
    """
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
