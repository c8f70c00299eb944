"""The write that settles a trial, and what a run that stops still has open, a dead worker's
trials among it."""

from runtime.execution.context import RunContext, clean_text
from specs import canonical
from specs.assessment import Assessment, NoReward
from specs.errors import InvalidInput, PracticumError
from specs.ids import Id, Prefix, new_id
from specs.interaction import Seal
from specs.records import Trial, TrialOutcome, TrialSettled, TrialState
from specs.worker_api import TrialSettledWrite

DETAIL = "the run was cancelled"


def settlement(settled: TrialSettled, assessment: Assessment) -> TrialSettledWrite:
    """The write of a trial's end. What no strict reader takes, the gateway would refuse, and
    the run would end with it: such a trial is settled as `infrastructure` (invariant 16)."""
    write = TrialSettledWrite(settled=settled, assessment=assessment)
    try:
        canonical.check(write.model_dump(mode="json"), what="settlement")
    except InvalidInput as error:
        detail = clean_text(f"the trial's end cannot be recorded: {error}")[:1000]
        outcome, reason = TrialOutcome.INFRASTRUCTURE, NoReward.INFRASTRUCTURE
        return _without_reward(settled.trial, settled.seal, outcome, reason, detail)
    return write


async def settle_open_trials(context: RunContext) -> None:
    """Settle every open trial of the run as cancelled (invariant 16).

    Raises:
        ClaimLost: another worker owns the run.
    """
    records = await context.client.records(context.run)
    for trial in records.trials:
        if trial.state == TrialState.OPEN:
            seal = await _seal(context, trial)
            outcome, reason = TrialOutcome.CANCELLED, NoReward.CANCELLED
            await context.write(_without_reward(trial.id, seal, outcome, reason, DETAIL))


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


def _without_reward(
    trial: Id, seal: Seal | None, outcome: TrialOutcome, reason: NoReward, detail: str
) -> TrialSettledWrite:
    return TrialSettledWrite(
        settled=TrialSettled(trial=trial, outcome=outcome, detail=detail, seal=seal),
        assessment=Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reason=reason,
            detail=detail,
        ),
    )
