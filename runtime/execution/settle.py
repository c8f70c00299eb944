"""What a run that stops still has open, a dead worker's trials among it."""

from runtime.execution.context import RunContext
from specs.assessment import Assessment, NoReward
from specs.errors import PracticumError
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.records import Trial, TrialOutcome, TrialSettled, TrialState
from specs.worker_api import TrialSettledWrite

DETAIL = "the run was cancelled"


async def settle_open_trials(context: RunContext) -> None:
    """Settle every open trial of the run as cancelled (invariant 16).

    Raises:
        ClaimLost: another worker owns the run.
    """
    records = await context.client.records(context.run)
    for trial in records.trials:
        if trial.state == TrialState.OPEN:
            await context.write(_cancelled(trial, await _seal(context, trial)))


async def seal_open_trials(context: RunContext) -> None:
    """Seal what the trials of a blocked run have said so far: it was spent, though other trials
    will take their slots. The gateway abandons them as the claim ends."""
    records = await context.client.records(context.run)
    for trial in records.trials:
        if trial.state == TrialState.OPEN:
            await _seal(context, trial)


async def _seal(context: RunContext, trial: Trial) -> Seal | None:
    try:
        return await context.proxy.seal(context.run, trial.id, trial.fence)
    except PracticumError as error:
        context.log(f"The evidence of {trial.id} could not be sealed: {error}\n", trial=trial.id)
        return None


def _cancelled(trial: Trial, seal: Seal | None) -> TrialSettledWrite:
    return TrialSettledWrite(
        settled=TrialSettled(
            trial=trial.id, outcome=TrialOutcome.CANCELLED, detail=DETAIL, seal=seal
        ),
        assessment=Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial.id,
            assessor="verifier",
            reason=NoReward.CANCELLED,
            detail=DETAIL,
        ),
    )
