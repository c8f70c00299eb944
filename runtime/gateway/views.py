"""Rows as the contracts that are read."""

import json
from collections.abc import Sequence
from functools import lru_cache

from runtime.gateway.lookup import AnyRow
from specs.assessment import Assessment
from specs.errors import Problem
from specs.grant import StartedBy
from specs.operator_api import Published
from specs.records import (
    Batch,
    Checkpoint,
    Contribution,
    Group,
    LogRecord,
    Trial,
    TrialSettled,
    TrialState,
    Update,
    UpdatePrepared,
    UpdateState,
)
from specs.run import Run, RunConstruction, RunSpec, RunState, SamplerRef


@lru_cache(maxsize=64)
def pinned(content: bytes) -> RunSpec:
    """The pinned spec of a run; immutable, so parsed once."""
    return RunSpec.model_validate_json(content)


def run(row: AnyRow) -> Run:
    """A run."""
    return Run(
        id=row.id,
        kind=row.kind,
        state=RunState(row.state),
        reason=None if row.reason is None else Problem.model_validate_json(row.reason),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        dataset=row.dataset,
        actor_name=row.actor_name,
        model=row.model,
        claims=row.fence,
        last_event=row.last_event,
        started_by=None
        if row.started_by is None
        else StartedBy.model_validate_json(row.started_by),
        construction=construction(row),
        spec=pinned(row.spec),
    )


def construction(row: AnyRow) -> RunConstruction | None:
    """The construction that a run was admitted under."""
    if row.construction_id is None:
        return None
    return RunConstruction(
        id=row.construction_id, version=row.construction_version, use=row.construction_use
    )


def sampler(row: AnyRow) -> SamplerRef:
    """A sampler."""
    return SamplerRef(
        id=row.id,
        backend=row.backend,
        base_model=row.base_model,
        base_digest=row.base_digest,
        tokenizer_digest=row.tokenizer_digest,
        renderer=row.renderer,
        adapter=row.adapter,
    )


def batch(row: AnyRow) -> Batch:
    """A batch."""
    return Batch(
        batch=row.batch,
        sampler=row.sampler_id,
        tasks=tuple(json.loads(row.tasks)),
        settled=row.settled_at is not None,
    )


def group(row: AnyRow) -> Group:
    """A sampling group."""
    return Group(
        id=row.id,
        batch=row.batch,
        index=row.position,
        task=row.task,
        task_digest=row.task_digest,
        sampler=row.sampler_id,
        size=row.size,
        place=row.place,
        judged=row.judged_at is not None,
    )


def trial(row: AnyRow) -> Trial:
    """A trial."""
    return Trial(
        id=row.id,
        run=row.run_id,
        group=row.group_id,
        batch=row.batch,
        index=row.position,
        task=row.task,
        sampler=row.sampler_id,
        fence=row.fence,
        state=TrialState(row.state),
        counted=row.counted,
        opened_at=row.opened_at,
        settled_at=row.settled_at,
        settled=None if row.settled is None else TrialSettled.model_validate_json(row.settled),
        assessment=(
            None if row.assessment is None else Assessment.model_validate_json(row.assessment)
        ),
        eligible=row.eligible,
        ineligible_reason=row.ineligible_reason,
        advantage=row.advantage,
    )


def update(row: AnyRow, made_of: Sequence[Contribution] = ()) -> Update:
    """An update, with the contributions that belong to it where they are wanted."""
    prepared = None if row.prepared is None else UpdatePrepared.model_validate_json(row.prepared)
    return Update(
        id=row.id,
        run=row.run_id,
        batch=row.batch,
        state=UpdateState(row.state),
        trainer=prepared and prepared.trainer,
        incarnation=prepared and prepared.incarnation,
        from_state=prepared and prepared.from_state,
        sampler=row.sampler_id,
        loss=prepared and prepared.loss,
        learning_rate=prepared and prepared.learning_rate,
        loss_config=prepared.loss_config if prepared else {},
        contributions=tuple(made_of),
        census=json.loads(row.census),
        metrics=json.loads(row.metrics),
        state_digest=row.state_digest,
        sampler_after=row.sampler_after,
        reason=row.reason,
        resolution=row.resolution,
        at=row.at,
        events=json.loads(row.history),
    )


def checkpoint(row: AnyRow) -> Checkpoint:
    """A checkpoint."""
    return Checkpoint.model_validate_json(row.document)


def log(row: AnyRow) -> LogRecord:
    """A piece of a log."""
    return LogRecord(seq=row.seq, at=row.at, source=row.source, trial=row.trial_id, text=row.text)


def published(row: AnyRow) -> Published:
    """A published document without its content."""
    return Published(
        name=row.name,
        version=row.version,
        reference=f"{row.name}@{row.version}",
        digest=row.digest,
        size=row.size,
        created_at=row.created_at,
    )
