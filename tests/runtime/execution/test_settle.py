"""Invariant 16: a trial whose end cannot be recorded costs that trial and not the run."""

import pytest

from runtime.execution.settle import settlement
from specs import canonical
from specs.assessment import Assessment, NoReward
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.records import TrialOutcome, TrialSettled
from specs.worker_api import WriteRequest

TRIAL = new_id(Prefix.TRIAL)
SEAL = Seal(
    trial=TRIAL,
    run=new_id(Prefix.RUN),
    fence=1,
    interactions=0,
    states={},
    object=None,
    size=0,
    complete=True,
    prompt_tokens=0,
    output_tokens=0,
)


def ended(**changes: object) -> TrialSettled:
    known: dict[str, object] = {"outcome": TrialOutcome.COMPLETED, "seal": SEAL, **changes}
    return TrialSettled.model_validate({"trial": TRIAL, **known})


def assessed(reward: float) -> Assessment:
    return Assessment(id=new_id(Prefix.ASSESSMENT), trial=TRIAL, assessor="verifier", reward=reward)


def test_the_end_of_a_trial_is_written_as_it_is() -> None:
    settled, assessment = ended(seconds={"total": 1.5}), assessed(0.5)
    write = settlement(settled, assessment)
    assert (write.settled, write.assessment) == (settled, assessment)


@pytest.mark.parametrize(
    ("settled", "reward"),
    [(ended(), 1e16), (ended(exit_code=1 << 60), 1.0), (ended(missing_outputs=("\x00",)), 1.0)],
    ids=["reward", "exit code", "text"],
)
def test_invariant_16_an_end_that_no_strict_reader_takes_is_infrastructure(
    settled: TrialSettled, reward: float
) -> None:
    write = settlement(settled, assessed(reward))
    assert (write.settled.outcome, write.settled.seal) == (TrialOutcome.INFRASTRUCTURE, SEAL)
    assert (write.assessment.reward, write.assessment.reason) == (None, NoReward.INFRASTRUCTURE)
    assert "cannot be recorded" in write.settled.detail
    request = WriteRequest(claim=new_id(Prefix.CLAIM), fence=1, sequence=1, writes=(write,))
    canonical.read(WriteRequest, request.model_dump_json(), what="request")
