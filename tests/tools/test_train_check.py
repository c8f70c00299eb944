"""What `train check` concludes from the records of a run, each finding by its case."""

from collections.abc import Mapping
from typing import Any

import pytest

from specs.canonical import digest_bytes
from specs.errors import ErrorCode, Problem
from specs.ids import Prefix, new_id
from specs.plans import TrainingPlan
from specs.records import Trial, Update, UpdateState
from specs.run import Run, RunSpec, RunState, SamplerRef
from tests.runtime.learning.support import AT, Turn, record, trial_of
from tools.train_check import CheckReport, report_of

GOOD = {"max_logprob_difference": 2e-5, "weights_unchanged": 1.0, "logprob_change": 0.0}
DIGEST = digest_bytes(b"")


def run(state: RunState = RunState.COMPLETED, **changes: Any) -> Run:
    plan = TrainingPlan.model_validate(
        {
            "num_batches": 1,
            "batch": {"tasks": 1, "trials_per_task": 2},
            "learning_rate": 0.0,
            "checks": {"max_logprob_difference": 0.01},
        }
    )
    sampler = SamplerRef(
        id=new_id(Prefix.SAMPLER),
        backend="torch",
        base_model="tiny",
        base_digest=DIGEST,
        tokenizer_digest=DIGEST,
        renderer="chatml/1",
    )
    spec = RunSpec(
        id=new_id(Prefix.RUN),
        dataset=None,
        dataset_digest=None,
        tasks=(),
        actor_name="acme/actor",
        actor=DIGEST,
        plan=plan,
        plan_digest=DIGEST,
        sampler=sampler,
    )
    values: dict[str, Any] = {
        "id": spec.id,
        "kind": "training",
        "state": state,
        "created_at": AT,
        "dataset": None,
        "actor_name": "acme/actor",
        "model": "tiny",
        "last_event": 1,
        "spec": spec,
        **changes,
    }
    return Run(**values)


def update(metrics: Mapping[str, float], state: UpdateState = UpdateState.ACKNOWLEDGED) -> Update:
    return Update(
        id=new_id(Prefix.UPDATE),
        run=new_id(Prefix.RUN),
        batch=0,
        state=state,
        trainer=None,
        incarnation=None,
        from_state=None,
        sampler=None,
        loss="importance_sampling",
        learning_rate=0.0,
        metrics=dict(metrics),
        at=AT,
    )


def trials(*reasons: str | None) -> list[Trial]:
    return [
        trial_of(
            record([Turn([1], [2])]),
            index=index,
            eligible=reason is None,
            ineligible_reason=reason,
        )
        for index, reason in enumerate(reasons)
    ]


def failing(report: CheckReport) -> list[str]:
    assert report.ok == all(finding.holds for finding in report.findings)
    return [finding.id for finding in report.findings if not finding.holds]


def test_a_batch_that_changed_nothing_is_sound() -> None:
    assert failing(report_of(run(), trials(None, None), [update(GOOD)])) == []


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({**GOOD, "weights_unchanged": 0.0}, ["weights.unchanged"]),
        ({**GOOD, "logprob_change": 0.02}, ["logprobs.reproduce"]),
        ({}, ["logprobs.agree", "weights.unchanged", "logprobs.reproduce"]),
    ],
)
def test_each_thing_that_changed_is_named(metrics: dict[str, float], expected: list[str]) -> None:
    assert failing(report_of(run(), trials(None), [update(metrics)])) == expected


def test_a_void_update_is_not_what_is_looked_at() -> None:
    updates = [update(GOOD), update({}, UpdateState.VOID)]
    assert failing(report_of(run(), trials(None), updates)) == []


def test_a_trial_that_cannot_learn_is_named_with_its_reason() -> None:
    report = report_of(run(), trials(None, "no_reward: verifier_failed"), [update(GOOD)])
    assert failing(report) == ["trials.learnable"]
    detail = next(one.detail for one in report.findings if not one.holds)
    assert detail == "1 of 2 trials: 1 × no_reward: verifier_failed"


def test_a_run_that_stopped_says_why() -> None:
    reason = Problem(
        title="Conflict", status=409, detail="they differ", code=ErrorCode.LOGPROB_MISMATCH
    )
    stopped = run(RunState.FAILED, reason=reason)
    report = report_of(
        stopped, trials(None), [update({"max_logprob_difference": 2.0}, UpdateState.FAILED)]
    )
    assert failing(report) == [
        "run.completed",
        "logprobs.agree",
        "weights.unchanged",
        "logprobs.reproduce",
    ]
    assert report.findings[0].detail == "they differ"


def test_without_any_trial_nothing_is_proved() -> None:
    assert "trials.learnable" in failing(report_of(run(), [], []))
