"""Records as operators read them: everything that fits a screen, with the bulk on request."""

from typing import Self

from pydantic import JsonValue

from specs.base import Contract
from specs.errors import Problem
from specs.grant import StartedBy
from specs.records import Update
from specs.run import Run, RunConstruction, SamplerRef
from tools.tables import pairs, short, table


class RunView(Contract):
    """A run without the list of its tasks."""

    id: str
    kind: str
    state: str
    reason: Problem | None = None
    """Why it is blocked or failed, and what to do."""
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    dataset: str | None
    dataset_digest: str | None
    tasks: int
    actor_name: str
    actor: str
    """Digest of the canonical profile."""
    model: str
    sampler: SamplerRef
    initial_checkpoint: str | None = None
    plan: dict[str, JsonValue]
    plan_digest: str
    fingerprints: dict[str, str]
    claims: int
    last_event: int
    started_by: StartedBy | None = None
    """The trial that started it with its grant; None: an operator."""
    construction: RunConstruction | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        spec = run.spec
        return cls(
            id=run.id,
            kind=run.kind,
            state=run.state,
            reason=run.reason,
            created_at=run.created_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            dataset=run.dataset,
            dataset_digest=spec.dataset_digest,
            tasks=len(spec.tasks),
            actor_name=run.actor_name,
            actor=spec.actor,
            model=run.model,
            sampler=spec.sampler,
            initial_checkpoint=spec.initial_checkpoint,
            plan=spec.plan.model_dump(mode="json"),
            plan_digest=spec.plan_digest,
            fingerprints=spec.fingerprints,
            claims=run.claims,
            last_event=run.last_event,
            started_by=run.started_by,
            construction=run.construction,
        )


class RunRow(Contract):
    """A run in a list."""

    id: str
    kind: str
    state: str
    created_at: str
    dataset: str | None
    actor_name: str
    model: str


class RunRows(Contract):
    items: list[RunRow]
    next: str | None = None


class UpdateView(Contract):
    """An update without its contributions."""

    id: str
    run: str
    batch: int
    state: str
    loss: str | None
    loss_config: dict[str, float]
    learning_rate: float | None
    from_state: str | None
    sampler: str | None
    sampler_after: str | None
    state_digest: str | None
    contributions: int
    """How many trials moved it; `update show` lists them."""
    trained_tokens: int
    census: dict[str, int]
    metrics: dict[str, float]
    reason: str | None
    at: str
    events: dict[str, str]

    @classmethod
    def of(cls, update: Update) -> "UpdateView":
        return cls(
            id=update.id,
            run=update.run,
            batch=update.batch,
            state=update.state,
            loss=update.loss,
            loss_config=update.loss_config,
            learning_rate=update.learning_rate,
            from_state=update.from_state,
            sampler=update.sampler,
            sampler_after=update.sampler_after,
            state_digest=update.state_digest,
            contributions=len(update.contributions),
            trained_tokens=sum(one.trained_tokens for one in update.contributions),
            census=update.census,
            metrics=update.metrics,
            reason=update.reason,
            at=update.at,
            events=update.events,
        )


def run_text(run: RunView) -> str:
    """A run in a few labelled lines."""
    text = pairs(
        {
            "run": run.id,
            "kind": run.kind,
            "state": run.state,
            "dataset": run.dataset,
            "tasks": run.tasks,
            "actor": f"{run.actor_name} {short(run.actor)}",
            "model": run.model,
            "sampler": run.sampler.id,
            "from checkpoint": run.initial_checkpoint,
            "created": run.created_at,
            "started": run.started_at,
            "ended": run.ended_at,
            "claims": run.claims,
            "started by": run.started_by and f"{run.started_by.trial} of {run.started_by.run}",
            "last event": run.last_event,
            "construction": construction_text(run.construction),
        }
    )
    if run.reason is None:
        return text
    step = f"\nnext: {run.reason.next}" if run.reason.next else ""
    return f"{text}\nreason: {run.reason.detail} ({run.reason.code}){step}"


def construction_text(under: RunConstruction | None) -> str | None:
    """What a run is a part of."""
    return None if under is None else f"{under.id} version {under.version}, as {under.use}"


def rows_text(rows: RunRows) -> str:
    """A list of runs."""
    return table(
        ("run", "kind", "state", "dataset", "actor", "model", "created"),
        [
            (r.id, r.kind, r.state, r.dataset, r.actor_name, r.model, r.created_at)
            for r in rows.items
        ],
        more=rows.next,
    )
