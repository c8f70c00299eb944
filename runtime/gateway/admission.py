"""Admission: a submission is resolved, checked and pinned, and then stored in one transaction
together with its creation event (invariant 9).

`prepare` only reads; `admit` is the transaction. A dry run stops after `prepare`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import events, grants, references, resolution
from runtime.gateway.constructions import spending
from runtime.gateway.context import Caller, Granted
from runtime.gateway.initial import fit_to_checkpoint
from runtime.gateway.launch import check_launch
from runtime.gateway.refusals import invalid
from runtime.gateway.resolution import Actor, AnyPlan, Policy, Tasks
from runtime.gateway.version import installed
from runtime.home import Role
from runtime.storage import clock
from runtime.storage.clock import timestamp
from runtime.storage.tables import idempotency_keys, runs, samplers
from specs import canonical
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.events import EventType
from specs.grant import StartedBy
from specs.ids import Prefix, new_id
from specs.objective import LOGPROB_DIFFERENCE
from specs.operator_api import Started
from specs.plans import (
    EvaluationPlan,
    SupervisedPlan,
    TrainingPlan,
    gateway_access,
    parse_plan,
)
from specs.run import Admission, RunConstruction, RunSpec, RunState, SamplerRef, Submission
from specs.sources import RunSource

DEFAULT_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission that may be admitted."""

    plan: AnyPlan
    tasks: Tasks
    actor: Actor
    policy: Policy
    overrides: list[str]
    reference: Policy | None = None
    """What the plan's KL penalty compares with."""
    construction: str | None = None
    """What the run is a part of; checked in the transaction that admits it."""


def prepare(connection: Connection, org: str, submission: Submission) -> Prepared:
    """Resolve and check everything; each refusal names the field and the next step."""
    if submission.judge is not None:
        raise invalid(
            "Judges do not exist yet.",
            "submission",
            "/judge",
            code=ErrorCode.JUDGE_UNSUPPORTED,
            next="Leave the judge out; the task's verifier scores.",
        )
    plan = parse_plan(submission.plan)
    actor = resolution.actor(connection, org, submission.actor)
    tasks = resolution.tasks(connection, org, submission, plan)
    policy = resolution.policy(connection, org, actor, plan)
    overrides = check_launch(actor.profile, plan)
    if not isinstance(plan, EvaluationPlan):
        plan = fit_to_checkpoint(connection, org, plan, policy, overrides)
    if isinstance(plan, SupervisedPlan) and isinstance(plan.source, RunSource):
        resolution.require_same_tokens(connection, org, plan.source.run, policy.base)
    reference = None
    if isinstance(plan, TrainingPlan):
        reference = resolution.reference(connection, org, plan, policy)
        plan = _with_checks(plan, policy)
    construction = submission.construction
    return Prepared(_filled_in(plan), tasks, actor, policy, overrides, reference, construction)


def dry_run(
    connection: Connection, org: str, submission: Submission, granted: Granted | None = None
) -> Admission:
    """What the submission would be admitted with; stores nothing."""
    prepared = prepare(connection, org, submission)
    sampler = sampler_of(connection, org, prepared.policy)
    admission = _admitted(connection, org, prepared, sampler, granted)
    if granted is not None:
        grants.permit(connection, granted, _spec(prepared, sampler, None), admission)
    return admission


def earlier(connection: Connection, org: str, key: str, body_digest: str) -> Started | None:
    """The run that an idempotency key has started; None when the key is new.

    Raises:
        Conflict: `idempotency_conflict`.
    """
    query = (
        sa.select(idempotency_keys.c.body_digest, runs.c.id, runs.c.admission)
        .join_from(idempotency_keys, runs)
        .where(idempotency_keys.c.org_id == org, idempotency_keys.c.key == key)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.body_digest != body_digest:
        raise Conflict(
            "The idempotency key was used for another body.",
            code=ErrorCode.IDEMPOTENCY_CONFLICT,
            object=ErrorObject(type="run", id=row.id),
            next="Choose a new key for a new request.",
        )
    return Started(
        run=row.id, created=False, admission=Admission.model_validate_json(row.admission)
    )


def admit(
    connection: Connection,
    org: str,
    prepared: Prepared,
    key: str | None,
    body_digest: str,
    granted: Granted | None = None,
) -> Started:
    """Store run, pinned spec and creation event; or find what the key has started before.

    Raises:
        Forbidden: `grant_limit` or `grant_ended`: the caller's grant does not allow the run.
    """
    if key is not None:
        known = earlier(connection, org, key, body_digest)
        if known is not None:
            return known
    sampler = sampler_of(connection, org, prepared.policy, store=True)
    admission = _admitted(connection, org, prepared, sampler, granted)
    reference = prepared.reference
    compared = reference and sampler_of(connection, org, reference, store=True)
    spec = _spec(prepared, sampler, compared)
    if granted is not None:
        grants.charge(connection, granted, spec, admission)
    _insert_run(connection, org, prepared, spec, admission, granted)
    # the caller has put the profile into the store
    size = len(prepared.actor.content)
    references.record(connection, org, spec.actor, size, clock.now(connection))
    references.hold(connection, org, spec.id, _needed(prepared, spec), what="run")
    if key is not None:
        connection.execute(
            sa.insert(idempotency_keys).values(
                org_id=org,
                key=key,
                body_digest=body_digest,
                run_id=spec.id,
                created_at=timestamp(),
            )
        )
    told: dict[str, JsonValue] = {
        "kind": admission.kind,
        "planned_slots": admission.planned_slots,
        "plan_digest": spec.plan_digest,
        "sampler": sampler.id,
        **({} if granted is None else {"grant": granted.id}),
    }
    events.append(connection, org, spec.id, [(EventType.RUN_ADMITTED, told)])
    return Started(run=spec.id, created=True, admission=admission)


def _needed(prepared: Prepared, spec: RunSpec) -> list[str]:
    """Objects that the run reads: they stay while its record does."""
    reference = None if spec.reference is None else spec.reference.adapter
    optional = (spec.sampler.adapter, spec.initial_state, reference)
    return [spec.actor, *prepared.tasks.files, *(name for name in optional if name is not None)]


def _insert_run(
    connection: Connection,
    org: str,
    prepared: Prepared,
    spec: RunSpec,
    admission: Admission,
    granted: Granted | None,
) -> None:
    starter = granted and StartedBy(grant=granted.id, run=granted.run, trial=granted.trial)
    connection.execute(
        sa.insert(runs).values(
            id=spec.id,
            org_id=org,
            kind=spec.plan.kind,
            state=RunState.QUEUED,
            created_at=timestamp(),
            dataset=spec.dataset,
            actor_name=spec.actor_name,
            model=prepared.actor.profile.agent.model,
            spec=canonical.canonical_bytes(spec),
            admission=admission.model_dump_json(),
            planned_slots=admission.planned_slots,
            last_event=0,
            last_log=0,
            fence=0,
            started_by=None if starter is None else starter.model_dump_json(),
            delegates=gateway_access(spec.plan) is not None,
            **_under(admission.construction),
        )
    )


def _admitted(
    connection: Connection,
    org: str,
    prepared: Prepared,
    sampler: SamplerRef,
    granted: Granted | None,
) -> Admission:
    """What the run is admitted with, within the construction that it names."""
    admission = _admission(prepared, sampler)
    if prepared.construction is None:
        return admission
    caller = Caller(None if granted else Role.OPERATOR, org, granted)
    under = spending.admit(connection, caller, prepared.construction, prepared.plan, admission)
    return admission.model_copy(update={"construction": under})


def _under(construction: RunConstruction | None) -> dict[str, JsonValue]:
    given = {} if construction is None else construction.model_dump(mode="json")
    return {f"construction_{name}": value for name, value in given.items()}


def _spec(prepared: Prepared, sampler: SamplerRef, reference: SamplerRef | None) -> RunSpec:
    plan, checkpoint = prepared.plan, prepared.policy.checkpoint
    resumes = not isinstance(plan, EvaluationPlan) and plan.optimizer_initialization == "resume"
    return RunSpec(
        id=new_id(Prefix.RUN),
        dataset=prepared.tasks.dataset,
        dataset_digest=prepared.tasks.digest,
        tasks=prepared.tasks.tasks,
        actor_name=prepared.actor.profile.name,
        actor=prepared.actor.digest,
        plan=plan,
        plan_digest=canonical.digest(plan),
        sampler=sampler,
        initial_checkpoint=checkpoint.id if checkpoint else None,
        initial_state=checkpoint.state if checkpoint and resumes else None,
        reference=reference,
        fingerprints=_fingerprints(prepared),
    )


def _fingerprints(prepared: Prepared) -> dict[str, str]:
    engine = prepared.actor.profile.agent.engine
    found = {
        "renderer": prepared.policy.base.renderer,
        "engine": f"{engine.name}/{engine.version}",
    }
    versions = {package: installed(package) for package in ("practicum", "harbor")}
    found.update({package: version for package, version in versions.items() if version})
    return found


def _admission(prepared: Prepared, sampler: SamplerRef) -> Admission:
    plan, tasks = prepared.plan, prepared.tasks
    slots, batches, distinct = 0, 0, len(tasks.tasks)
    initialization: Literal["fresh", "resume"] | None = None
    match plan:
        case EvaluationPlan():
            slots = len(tasks.tasks) * plan.trials_per_task
        case TrainingPlan():
            slots, batches = plan.planned_slots, plan.num_batches
            distinct = min(distinct, plan.num_batches * plan.batch.tasks)
            initialization = plan.optimizer_initialization
        case SupervisedPlan():
            batches = plan.epochs * math.ceil(tasks.examples / plan.batch_size)
            initialization = plan.optimizer_initialization
    return Admission(
        kind=plan.kind,
        planned_slots=slots,
        batches=batches,
        distinct_tasks=distinct,
        optimizer_initialization=initialization,
        resources=_resources(plan),
        overrides=prepared.overrides,
        sampler=sampler,
        actor=prepared.actor.digest,
        plan=plan.model_dump(mode="json"),
    )


def _resources(plan: AnyPlan) -> dict[str, JsonValue]:
    """Effective values: the plan's, else the task's own, else the default."""
    limits = plan.limits.model_dump(mode="json")
    budgets = {
        f"{level}.{field}": value
        for level in ("update", "run")
        for field, value in limits.pop(level).items()
    }
    given: dict[str, JsonValue] = {
        **plan.resources.model_dump(mode="json"),
        **plan.timeouts.model_dump(mode="json"),
        **limits,
        **budgets,
    }
    effective: dict[str, JsonValue] = {
        name: "task" if value is None else value for name, value in given.items()
    }
    effective["concurrency"] = plan.resources.concurrency or DEFAULT_CONCURRENCY
    for name in ("max_calls", "max_output_tokens", "trial_sec", *budgets):
        if given[name] is None:
            effective[name] = None  # a task has no such value: unlimited
    return effective


def _filled_in(plan: AnyPlan) -> AnyPlan:
    """The plan with every default set, so that its digest says what will be done."""
    return parse_plan(plan.model_dump(mode="json"))


def _with_checks(plan: TrainingPlan, policy: Policy) -> TrainingPlan:
    """The plan with the backend's own threshold, where it names none."""
    if "max_logprob_difference" in plan.checks.model_fields_set:
        return plan
    limit = LOGPROB_DIFFERENCE.get(policy.base.backend)
    checks = plan.checks.model_copy(update={"max_logprob_difference": limit})
    return plan.model_copy(update={"checks": checks})


def sampler_of(
    connection: Connection, org: str, policy: Policy, *, store: bool = False
) -> SamplerRef:
    """S₀: the checkpoint's sampler, or the one of the base model, made when first needed."""
    found = policy.sampler or resolution.base_sampler(connection, org, policy.base)
    if found is not None:
        return found
    made = SamplerRef(
        id=new_id(Prefix.SAMPLER),
        backend=policy.base.backend,
        base_model=policy.base.name,
        base_digest=policy.base.digest,
        tokenizer_digest=policy.base.tokenizer_digest,
        renderer=policy.base.renderer,
        adapter=None,
    )
    if store:
        connection.execute(sa.insert(samplers).values(org_id=org, **made.model_dump()))
    return made
