"""The result of a run: counts that must not be mixed up, and the scores."""

from collections import defaultdict
from datetime import UTC, datetime
from statistics import fmean

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, views
from runtime.gateway.usage import budgets
from runtime.storage.tables import batches, checkpoints, runs, trials, updates
from specs.ids import Prefix
from specs.records import TrialOutcome, TrialSettled, TrialState, UpdateState
from specs.run import RunResult, RunState


def result(connection: Connection, org: str, text: str) -> RunResult:
    """Counts and scores so far; `success` is the mean over tasks of the mean reward of their
    scored trials, so that a task with more scored trials does not weigh more."""
    run = lookup.by_short_id(connection, runs, org, text, Prefix.RUN)
    query = sa.select(trials).where(trials.c.run_id == run.id)
    order = (trials.c.batch, trials.c.group_position, trials.c.position, trials.c.id)
    rows = connection.execute(query.order_by(*order)).all()
    counted = [row for row in rows if row.counted]
    settled = [TrialSettled.model_validate_json(row.settled) for row in counted]
    seals = [item.seal for item in settled if item.seal is not None]
    by_task: dict[str, list[float | None]] = defaultdict(list)
    for row in counted:
        by_task[row.task].append(row.reward)
    rewards = [row.reward for row in counted if row.reward is not None]
    means = _means(by_task)
    return RunResult(
        run=run.id,
        kind=run.kind,
        state=RunState(run.state),
        planned_slots=run.planned_slots,
        trials_started=len(rows),
        trials_settled=len(counted),
        trials_scored=len(rewards),
        trials_eligible=sum(row.eligible is True for row in counted),
        trials_abandoned=sum(row.state == TrialState.ABANDONED for row in rows),
        launch_failed=sum(row.outcome == TrialOutcome.LAUNCH_FAILED for row in counted),
        distinct_tasks=len({row.task for row in rows}),
        batches=_count(connection, batches, run.id) if run.kind != "evaluation" else 0,
        updates=_updates(connection, run.id),
        checkpoints=_checkpoints(connection, run.id),
        reward_mean=fmean(rewards) if rewards else None,
        success=fmean(means.values()) if means else None,
        by_task=dict(by_task),
        by_family=_by_family(run, means),
        environment_versions=sorted(
            {item.environment_version for item in settled if item.environment_version}
        ),
        prompt_tokens=sum(seal.prompt_tokens for seal in seals),
        output_tokens=sum(seal.output_tokens for seal in seals),
        seconds=_seconds(run),
        budgets=budgets(connection, run),
    )


def _means(by_task: dict[str, list[float | None]]) -> dict[str, float]:
    """Mean reward of each task that has a scored trial."""
    scored = {
        task: [reward for reward in rewards if reward is not None]
        for task, rewards in by_task.items()
    }
    return {task: fmean(rewards) for task, rewards in scored.items() if rewards}


def _by_family(run: lookup.AnyRow, means: dict[str, float]) -> dict[str, float]:
    families: dict[str, list[float]] = defaultdict(list)
    for task in views.pinned(run.spec).tasks:
        family = task.metadata.get("family")
        if isinstance(family, str) and task.name in means:
            families[family].append(means[task.name])
    return {family: fmean(values) for family, values in sorted(families.items())}


def _count(connection: Connection, table: sa.Table, run: str) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(table.c.run_id == run)
    return connection.execute(query).scalar_one()


def _updates(connection: Connection, run: str) -> dict[str, int]:
    query = (
        sa.select(updates.c.state, sa.func.count().label("number"))
        .where(updates.c.run_id == run)
        .group_by(updates.c.state)
    )
    found = {row.state: row.number for row in connection.execute(query)}
    return {state.value: found.get(state.value, 0) for state in UpdateState}


def _checkpoints(connection: Connection, run: str) -> list[str]:
    query = sa.select(checkpoints.c.id).where(checkpoints.c.run_id == run)
    return list(connection.execute(query.order_by(checkpoints.c.id)).scalars())


def _seconds(run: lookup.AnyRow) -> float | None:
    """From the first claim to the end, or to now."""
    if run.started_at is None:
        return None
    end = datetime.now(UTC) if run.ended_at is None else datetime.fromisoformat(run.ended_at)
    return (end - datetime.fromisoformat(run.started_at)).total_seconds()
