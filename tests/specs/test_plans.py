"""Plans: which kind is meant, what excludes what, and where an error is."""

from typing import Any

import pytest
from pydantic import BaseModel

from specs.errors import ErrorCode, InvalidInput
from specs.grant import READ_ONLY
from specs.objective import Clip
from specs.plans import (
    BatchShape,
    Budget,
    EvaluationPlan,
    Limits,
    Resources,
    Selection,
    SupervisedPlan,
    Timeouts,
    TrainingPlan,
    gateway_access,
    parse_plan,
)
from tests.specs.contracts import RUN, lets

EVALUATION: dict[str, Any] = {"trials_per_task": 2}
TRAINING: dict[str, Any] = {"num_batches": 3, "batch": {"tasks": 4, "trials_per_task": 5}}
SUPERVISED: dict[str, Any] = {"source": {"run": RUN}, "batch_size": 2}


def training(**values: Any) -> TrainingPlan:
    found = parse_plan(TRAINING | values)
    assert isinstance(found, TrainingPlan)
    return found


def refused(value: Any) -> tuple[str, str]:
    """The pointer of the error and its words."""
    with pytest.raises(InvalidInput) as caught:
        parse_plan(value)
    problem = caught.value.problem
    assert problem.code is ErrorCode.INVALID_DOCUMENT
    assert problem.object is not None and problem.object.type == "plan"
    return problem.object.pointer or "", problem.detail


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (EVALUATION, "evaluation"),
        (TRAINING, "training"),
        (SUPERVISED, "supervised"),
        (EVALUATION | {"kind": "evaluation"}, "evaluation"),
        (TRAINING | {"kind": "training"}, "training"),
    ],
)
def test_the_keys_of_a_plan_say_its_kind(document: dict[str, Any], kind: str) -> None:
    assert parse_plan(document).kind == kind
    assert "kind" not in EVALUATION


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"num_batches": 1}, "/batch"),
        ({"batch": TRAINING["batch"]}, "/num_batches"),
        ({"source": {"run": RUN}}, "/batch_size"),
        ({}, "/trials_per_task"),
        (SUPERVISED | {"source": {"run": "x"}}, "/source/run"),
        (SUPERVISED | {"source": {"file": ""}}, "/source/file"),
        (SUPERVISED | {"source": {"run": RUN, "select": "x"}}, "/source/select"),
        (TRAINING | {"batch": {"tasks": 0, "trials_per_task": 1}}, "/batch/tasks"),
        (EVALUATION | {"kind": "training"}, "/num_batches"),
        (EVALUATION | {"colour": 1}, "/colour"),
        (EVALUATION | {"limits": {"update": {"max_sec": 1}}}, "/limits"),
    ],
)
def test_an_error_points_into_the_document_as_it_was_written(
    document: dict[str, Any], pointer: str
) -> None:
    found, words = refused(document)
    assert found == pointer
    assert f"at {pointer}:" in words


@pytest.mark.parametrize("value", [None, [], "training", 3])
def test_a_plan_is_an_object(value: object) -> None:
    assert refused(value) == ("/", "The plan must be a JSON object.")


def test_an_unknown_kind_is_refused_by_the_known_ones() -> None:
    pointer, words = refused({"kind": "other"})
    assert pointer == "/"
    assert "'evaluation', 'training', 'supervised'" in words


def test_an_evaluation_has_no_updates_to_bound() -> None:
    bounds: dict[str, Any] = {"run": {"max_sec": 1}, "max_calls": 3}
    found = parse_plan({**EVALUATION, "limits": bounds})
    assert found.limits.run.max_sec == 1
    _, words = refused(EVALUATION | {"limits": {"update": {"max_tokens": 1}}})
    assert "an evaluation has no updates; set limits.run" in words
    assert training(limits={"update": {"max_tokens": 1}}).limits.update.max_tokens == 1


def test_planned_slots_are_batches_times_tasks_times_trials() -> None:
    assert training().planned_slots == 3 * 4 * 5


@pytest.mark.parametrize(
    ("given", "clip"),
    [
        ({"loss": "ppo"}, (0.8, 1.2)),
        ({"loss": "cispo"}, (0.0, 4.0)),
        ({"loss": "ppo", "clip": {"low": 0.5}}, (0.5, 1.2)),
        ({"loss": "cispo", "clip": {"high": 2.0}}, (0.0, 2.0)),
        ({"loss": "ppo", "clip": {"low": 0.1, "high": 9.0}}, (0.1, 9.0)),
    ],
)
def test_a_loss_that_clips_has_both_bounds_and_they_are_stored(
    given: dict[str, Any], clip: tuple[float, float]
) -> None:
    found = training(**given)
    assert found.clip is not None
    assert (found.clip.low, found.clip.high) == clip
    assert "clip" in found.model_fields_set


def test_a_loss_that_does_not_clip_has_no_bounds() -> None:
    assert training().clip is None
    assert "clip" not in training().model_fields_set
    for given in ({}, {"loss": "importance_sampling"}):
        _, words = refused(TRAINING | given | {"clip": {"low": 0.5, "high": 1.5}})
        assert "does not clip; leave `clip` out" in words
    assert Clip(low=0.5, high=1.5) == training(loss="ppo", clip={"low": 0.5, "high": 1.5}).clip


def test_a_clip_that_is_none_of_one_is_refused_where_it_stands() -> None:
    pointer, _ = refused(TRAINING | {"loss": "ppo", "clip": 3})
    assert pointer.startswith("/clip")


def test_trials_ask_the_gateway_for_what_their_plan_opens() -> None:
    opened: dict[str, Any] = {"gateway": {"scopes": ["read"]}}
    assert gateway_access(parse_plan(EVALUATION)) is None
    assert gateway_access(parse_plan(SUPERVISED)) is None
    for plan in (EVALUATION, TRAINING):
        assert gateway_access(parse_plan(plan | opened)) == READ_ONLY


def test_what_is_left_out_of_a_plan_bounds_nothing() -> None:
    assert set(Budget().model_dump().values()) == {None}
    assert (Limits().max_calls, Limits().max_output_tokens) == (None, None)
    plan = parse_plan(EVALUATION)
    assert isinstance(plan, EvaluationPlan)
    assert (plan.seed, plan.scoring, plan.tasks) == (0, "verifier", Selection())
    learns = training()
    assert (learns.order, learns.learning_rate, learns.grad_clip_norm) == ("shuffled", 1e-4, 0)
    assert (learns.loss, learns.optimizer_initialization) == ("importance_sampling", "fresh")
    rows = parse_plan(SUPERVISED)
    assert isinstance(rows, SupervisedPlan)
    assert (rows.epochs, rows.learning_rate, rows.validation) == (1, 1e-4, None)


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Budget, "max_tokens", [1], [0]),
        (Budget, "max_sec", [0.1], [0]),
        (Limits, "max_calls", [1, 10_000], [0, 10_001]),
        (Limits, "max_output_tokens", [1], [0]),
        (Resources, "concurrency", [1, 256], [0, 257]),
        (Resources, "cpus", [0.1, 64], [0, 64.1]),
        (Resources, "memory_mb", [16], [15]),
        (Timeouts, "setup_sec", [0.1], [0]),
        (Timeouts, "agent_sec", [0.1], [0]),
        (Timeouts, "verifier_sec", [0.1], [0]),
        (Timeouts, "trial_sec", [0.1], [0]),
        (Selection, "limit", [1], [0]),
        (BatchShape, "tasks", [1, 4096], [0, 4097]),
        (BatchShape, "trials_per_task", [1, 1024], [0, 1025]),
        (EvaluationPlan, "trials_per_task", [1, 1024], [0, 1025]),
        (EvaluationPlan, "seed", [0, 2**31], [-1, 2**31 + 1]),
        (TrainingPlan, "num_batches", [1, 100_000], [0, 100_001]),
        (TrainingPlan, "learning_rate", [0, 1], [-0.1, 1.1]),
        (TrainingPlan, "grad_clip_norm", [0], [-0.1]),
        (SupervisedPlan, "epochs", [1, 1000], [0, 1001]),
        (SupervisedPlan, "batch_size", [1, 4096], [0, 4097]),
        (SupervisedPlan, "learning_rate", [0, 1], [-0.1, 1.1]),
        (SupervisedPlan, "grad_clip_norm", [0], [-0.1]),
    ],
)
def test_an_amount_of_work_has_its_bounds(
    contract: type[BaseModel], field: str, good: list[float], bad: list[float]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []
