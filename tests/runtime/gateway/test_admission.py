"""Admission: one transaction, one run per idempotency key, and refusals that name the field."""

from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from pydantic import JsonValue

from runtime.storage.tables import metadata
from specs import canonical
from specs.errors import Conflict, ErrorCode, PracticumError
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.objective import LOGPROB_DIFFERENCE, Clip
from specs.operator_api import ModelList, ProfilePublish, Started
from specs.plans import TrainingPlan
from specs.profile import Profile
from specs.run import RunState, Submission
from specs.worker_api import GroupSettled
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


async def rows(stack: Stack) -> dict[str, int]:
    """How many rows each table has."""
    return await stack.gateway.database.read(
        lambda connection: {
            table.name: connection.execute(
                sa.select(sa.func.count()).select_from(table)
            ).scalar_one()
            for table in metadata.sorted_tables
        }
    )


async def test_invariant_9_fifty_concurrent_requests_give_one_run(stack: Stack) -> None:
    await stage.publish(stack)
    started: list[Started] = []

    async def send() -> None:
        started.append(await stack.operator.start(stage.submission(), idempotency_key="k-1"))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(send)
    assert len({item.run for item in started}) == 1
    assert sum(item.created for item in started) == 1
    assert len({item.admission.model_dump_json() for item in started}) == 1
    assert len((await stack.operator.runs()).items) == 1
    with pytest.raises(Conflict) as refused:
        await stack.operator.start(stage.submission({"trials_per_task": 3}), idempotency_key="k-1")
    assert refused.value.problem.code == ErrorCode.IDEMPOTENCY_CONFLICT
    assert len((await stack.operator.runs()).items) == 1


async def test_without_a_key_every_request_is_a_run_of_its_own(stack: Stack) -> None:
    await stage.publish(stack)
    assert await stage.start(stack) != await stage.start(stack)


async def test_invariant_9_run_spec_and_creation_event_come_together(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stack.operator.run(await stage.start(stack, stage.TRAINING))
    assert run.state == RunState.QUEUED
    events = (await stack.operator.events(run.id)).events
    assert [event.type for event in events] == [EventType.RUN_ADMITTED]
    spec = run.spec
    assert canonical.digest(spec.plan) == spec.plan_digest
    assert spec.dataset_digest == (await stack.operator.dataset(stage.DATASET)).digest
    actor = await stack.worker.object(spec.actor)
    assert canonical.read(Profile, actor, what="profile").name == "acme/solver"
    assert (await stack.operator.sampler(spec.sampler.id)) == spec.sampler


async def test_the_claimed_spec_has_the_pinned_bytes(stack: Stack) -> None:
    """Whoever resumes compares digests, so nothing may be filled in on the way (invariant 14)."""
    await stage.publish(stack)
    await stage.start(stack, stage.TRAINING)
    claimed = (await Hand.take(stack)).claim.spec
    assert canonical.digest(claimed.plan) == claimed.plan_digest
    dataset = (await stack.worker.dataset(stage.DATASET)).value
    assert claimed.tasks == dataset.tasks


async def test_base_model_has_one_sampler(stack: Stack) -> None:
    await stage.publish(stack)
    first = await stack.operator.run(await stage.start(stack))
    second = await stack.operator.run(await stage.start(stack, stage.TRAINING))
    assert first.spec.sampler == second.spec.sampler


async def test_dry_run_shows_the_work_and_stores_nothing(stack: Stack) -> None:
    await stage.publish(stack)
    before = await rows(stack)
    admission = await stack.operator.dry_run(
        stage.submission(
            {
                **stage.TRAINING,
                "timeouts": {"agent_sec": 9.5},
                "limits": {"max_calls": 7, "run": {"max_tokens": 900}},
            },
            sampling={"max_tokens": 64},
        )
    )
    assert (admission.planned_slots, admission.batches, admission.distinct_tasks) == (4, 2, 2)
    assert admission.optimizer_initialization == "fresh"
    assert admission.resources["concurrency"] == 8
    assert admission.resources["agent_sec"] == 9.5
    assert admission.overrides == [
        "limits.max_calls = 7 replaces the default",
        "limits.run.max_tokens = 900 replaces the default",
        "timeouts.agent_sec = 9.5 replaces each task's own",
        "sampling.max_tokens = 64 of the profile replaces what the harness asks for",
    ]
    assert admission.plan["kind"] == "training"
    assert admission.plan["learning_rate"] == 1e-4
    assert await rows(stack) == before


async def test_the_pinned_plan_says_every_threshold_that_will_hold(stack: Stack) -> None:
    await stage.publish(stack)
    plan: dict[str, JsonValue] = {
        **stage.TRAINING,
        "loss": "ppo",
        "clip": {"high": 1.28},
        "kl": {"coefficient": 0.1},
    }
    run = await stack.operator.run(await stage.start(stack, plan))
    pinned = run.spec.plan
    assert isinstance(pinned, TrainingPlan)
    assert pinned.clip == Clip(low=0.8, high=1.28)
    assert pinned.checks.max_logprob_difference == LOGPROB_DIFFERENCE["torch"]
    assert canonical.digest(pinned) == run.spec.plan_digest
    assert run.spec.reference == run.spec.sampler  # the base model, which the actor starts from
    off: dict[str, JsonValue] = {**stage.TRAINING, "checks": {"max_logprob_difference": None}}
    open_ = (await stack.operator.run(await stage.start(stack, off))).spec
    assert isinstance(open_.plan, TrainingPlan)
    assert open_.plan.checks.max_logprob_difference is None
    assert (open_.plan.clip, open_.reference) == (None, None)


async def test_a_published_profile_can_be_the_actor(stack: Stack) -> None:
    await stage.publish(stack)
    await stack.operator.publish_profile(ProfilePublish(version="v1", profile=stage.profile()))
    published = await stack.operator.profile("acme/solver@v1")
    started = await stack.operator.start(
        Submission(dataset=stage.DATASET, actor="acme/solver@v1", plan=stage.EVALUATION)
    )
    assert started.admission.actor == published.digest


async def test_selected_tasks_keep_the_datasets_order(stack: Stack) -> None:
    await stage.publish(stack)
    plan: dict[str, JsonValue] = {
        "trials_per_task": 1,
        "tasks": {"names": ["acme/three", "acme/one"], "limit": 2},
    }
    spec = (await stack.operator.run(await stage.start(stack, plan))).spec
    assert [task.name for task in spec.tasks] == ["acme/one", "acme/three"]


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"plan": {**stage.TRAINING, "clip": {"low": 0.8, "high": 1.2}}}, "invalid_document", ""),
    ({"plan": {**stage.TRAINING, "loss": "ppo", "clip": {"low": 1.5}}},
     "invalid_document", "/clip/low"),
    ({"plan": {**stage.TRAINING, "loss": "ppo", "clip": {"width": 0.2}}},
     "invalid_document", "/clip/width"),
    ({"plan": {**stage.TRAINING, "loss": "dro"}}, "invalid_document", "/loss"),
    ({"plan": {**stage.TRAINING, "kl": {"coefficient": 0}}}, "invalid_document", "/kl/coefficient"),
    ({"plan": {**stage.TRAINING, "kl": {"coefficient": 1, "reference": "elsewhere"}}},
     "invalid_reference", "/kl/reference"),
    ({"plan": {**stage.TRAINING, "kl": {"coefficient": 1, "reference": new_id(Prefix.CHECKPOINT)}}},
     "not_found", ""),
    ({"dataset": "acme/none@v1"}, "not_found", ""),
    ({"dataset": None}, "invalid_document", "/dataset"),
    ({"actor": "acme/none@v1"}, "not_found", ""),
    ({"actor": stage.profile(engine={"name": "claude-code", "version": "1"})},
     "engine_unsupported", "/agent/engine/version"),
    ({"actor": stage.profile(files=[{"path": "a", "source": "./a"}])},
     "invalid_document", "/agent/files/0/source"),
    ({"actor": stage.profile(env={"ANTHROPIC_BASE_URL": "http://elsewhere"})},
     "launch_conflict", "/agent/env/ANTHROPIC_BASE_URL"),
    ({"actor": stage.profile(args=["${who.knows}"])}, "unknown_binding", "/agent/args/0"),
    ({"actor": stage.profile(colour="blue")}, "invalid_document", "/agent/colour"),
    ({"actor": stage.profile(model="other")}, "model_unknown", "/agent/model"),
    ({"actor": stage.profile(model="absent")}, "model_unknown", "/agent/model"),
    ({"actor": stage.profile(model="scripted"), "plan": stage.TRAINING},
     "model_not_trainable", "/agent/model"),
    ({"actor": stage.profile(sampling={"temperature": 0.5}), "plan": stage.TRAINING},
     "launch_conflict", "/agent/sampling/temperature"),
    ({"judge": "acme/judge@v1"}, "judge_unsupported", "/judge"),
    ({"plan": {"trials_per_task": 1, "speed": 9}}, "invalid_document", "/speed"),
    ({"plan": {"trials_per_task": 0}}, "invalid_document", "/trials_per_task"),
    ({"plan": {"trials_per_task": 1, "tasks": {"names": ["acme/nine"]}}},
     "invalid_reference", "/tasks/names"),
    ({"plan": {**stage.TRAINING, "optimizer_initialization": "resume"}},
     "resume_incompatible", "/optimizer_initialization"),
    ({"dataset": None, "plan": {"source": {"run": "run_" + "0" * 32}, "batch_size": 2}},
     "source_unusable", "/source/run"),
]  # fmt: skip


async def test_refusals_name_field_and_next_step_and_store_nothing(stack: Stack) -> None:
    await stage.publish(stack)
    await stack.worker.put_models(
        ModelList(
            models=[
                stage.model("absent", present=False),
                stage.model("scripted", backend="scripted", trainable=False),
            ]
        )
    )
    before = await rows(stack)
    for changes, code, pointer in REFUSALS:
        submission = Submission.model_validate(
            {**stage.submission().model_dump(mode="json"), **changes}
        )
        for attempt in (stack.operator.start, stack.operator.dry_run):
            with pytest.raises(PracticumError) as refused:
                await attempt(submission)
            problem = refused.value.problem
            assert (problem.code, problem.next is not None) == (code, True), problem
            if pointer:
                assert problem.object is not None
                assert problem.object.pointer == pointer
    assert await rows(stack) == before
    with pytest.raises(PracticumError) as refused:
        await stack.operator.start(stage.submission(model="absent"))
    assert refused.value.problem.next == "practicum model pull absent"


async def test_a_missing_key_of_the_training_service_is_told_before_any_work(
    stack: Stack,
) -> None:
    await stage.publish(stack)
    remote = stage.model("tinker/m", backend="tinker", present=False)
    await stack.worker.put_models(ModelList(models=[remote]))
    before = await rows(stack)
    submission = stage.submission(stage.TRAINING, model="tinker/m")
    for attempt in (stack.operator.start, stack.operator.dry_run):
        with pytest.raises(PracticumError) as refused:
            await attempt(submission)
        problem = refused.value.problem
        assert problem.code == "service_key_missing"
        assert "TINKER_API_KEY" in (problem.next or "")
    assert await rows(stack) == before


async def evaluated(stack: Stack) -> str:
    """A run that has ended, with one rewarded trial of complete evidence and one failure."""
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    group = await hand.group()
    segment = await stack.proxy.upload(b"segment")
    for place, reward in enumerate((1.0, 0.0)):
        trial = await hand.trial(group, place)
        seal: Seal = stage.seal(run, trial, hand.claim.fence, segment, 7)
        hand.last_event += 1
        await stack.proxy.commit_evidence(seal)
        await hand.settle(trial, reward, seal=seal)
    await hand.write(GroupSettled(group=group.id, place=0))
    await hand.complete()
    return run


async def test_a_supervised_run_learns_from_a_run_that_has_ended(stack: Stack) -> None:
    await stage.publish(stack)
    source = await evaluated(stack)
    plan: dict[str, JsonValue] = {"source": {"run": source}, "batch_size": 2, "epochs": 3}
    started = await stack.operator.start(stage.submission(plan, dataset=None))
    admission = started.admission
    assert (admission.planned_slots, admission.batches, admission.distinct_tasks) == (0, 3, 1)
    spec = (await stack.operator.run(started.run)).spec
    assert spec.dataset == stage.DATASET
    assert [task.name for task in spec.tasks] == ["acme/one"]

    await stack.worker.put_models(
        ModelList(models=[stage.model("foreign", tokenizer_digest="sha256:" + "9" * 64)])
    )
    unusable: list[tuple[dict[str, JsonValue], str | None, str]] = [
        ({**plan, "source": {"run": source, "select": "reward >= 2"}}, None, "tiny"),
        (plan, stage.DATASET, "tiny"),
        (plan, None, "foreign"),
        ({**plan, "source": {"run": started.run}}, None, "tiny"),
    ]
    for wrong, dataset, model in unusable:
        with pytest.raises(PracticumError):
            await stack.operator.start(stage.submission(wrong, dataset=dataset, model=model))
