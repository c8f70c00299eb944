"""Batches and groups: each bound to one sampler (invariant 7)."""

import json

import sqlalchemy as sa

from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import conflict, invalid, not_found
from runtime.gateway.writes.change import Change
from runtime.storage.tables import batches, groups, samplers, trials
from specs.events import EventType
from specs.worker_api import (
    BatchSettled,
    BatchStarted,
    GroupJudged,
    GroupOpened,
    GroupSettled,
)


def batch_started(change: Change, write: BatchStarted) -> None:
    """A batch begins; its sampler is that of the spec, or one that this run saved."""
    require_sampler(change, write.sampler)
    known = _batch(change, write.batch)
    if known is not None:
        _require_same(known.sampler_id == write.sampler, "run", change.run.id)
        return
    change.insert(
        batches,
        run_id=change.run.id,
        batch=write.batch,
        sampler_id=write.sampler,
        tasks=json.dumps(write.tasks),
        census="{}",
        started_at=change.at,
    )
    change.emit(
        EventType.BATCH_STARTED,
        batch=write.batch,
        sampler=write.sampler,
        tasks=list(write.tasks),
    )


def batch_settled(change: Change, write: BatchSettled) -> None:
    """Every group of the batch is settled, and where the run learns, judged."""
    row = _batch(change, write.batch)
    if row is None:
        raise conflict(f"Batch {write.batch} has not been started.", "run", change.run.id)
    if row.settled_at is not None:
        _require_same(json.loads(row.census) == write.census, "run", change.run.id)
        return
    _refuse_open_groups(change, write.batch)
    change.connection.execute(
        sa.update(batches)
        .where(batches.c.run_id == change.run.id, batches.c.batch == write.batch)
        .values(settled_at=change.at, census=json.dumps(write.census))
    )
    change.emit(EventType.BATCH_SETTLED, batch=write.batch, census=dict(write.census))


def group_opened(change: Change, write: GroupOpened) -> None:
    """A sampling group takes its place in a batch."""
    group = write.group
    batch = _batch(change, group.batch)
    if batch is None:
        raise conflict(f"Batch {group.batch} has not been started.", "run", change.run.id)
    if group.sampler != batch.sampler_id:
        raise invalid(
            f"The group samples from {group.sampler}, its batch from {batch.sampler_id}.",
            "group",
            "/sampler",
            name=group.id,
            next="Every group of a batch uses the batch's sampler.",
        )
    digests = {task.name: task.digest for task in change.spec.tasks}
    if digests.get(group.task) != group.task_digest:
        raise invalid(
            f"The run has no task {group.task} with digest {group.task_digest}.",
            "group",
            "/task_digest",
            name=group.id,
            next="Use the tasks of the pinned spec.",
        )
    _refuse_taken_place(change, group.batch, group.index)
    change.insert(
        groups,
        id=group.id,
        run_id=change.run.id,
        batch=group.batch,
        position=group.index,
        task=group.task,
        task_digest=group.task_digest,
        sampler_id=group.sampler,
        size=group.size,
        census="{}",
        opened_at=change.at,
    )
    change.emit(
        EventType.GROUP_OPENED,
        group=group.id,
        batch=group.batch,
        index=group.index,
        task=group.task,
        sampler=group.sampler,
        size=group.size,
    )


def group_settled(change: Change, write: GroupSettled) -> None:
    """Every slot of the group has its counted trial."""
    row = change.mine(groups, write.group)
    if row.settled_at is not None:
        _require_same(json.loads(row.census) == write.census, "group", write.group)
        return
    counted = _count(change, trials, trials.c.group_id == write.group, trials.c.counted.is_(True))
    if counted != row.size:
        raise conflict(
            f"{counted} of the group's {row.size} slots have a counted trial.",
            "group",
            write.group,
            next="Settle a trial in each slot first.",
        )
    before = _count(
        change,
        groups,
        groups.c.run_id == change.run.id,
        groups.c.batch == row.batch,
        groups.c.settled_at.is_not(None),
    )
    if write.place != before:
        raise conflict(
            f"{before} groups of batch {row.batch} have settled; this one claims place"
            f" {write.place}.",
            "group",
            write.group,
            next="Settle groups one after another, counting them from 0.",
        )
    change.connection.execute(
        sa.update(groups)
        .where(groups.c.id == write.group)
        .values(settled_at=change.at, place=write.place, census=json.dumps(write.census))
    )
    change.emit(
        EventType.GROUP_SETTLED,
        group=write.group,
        batch=row.batch,
        place=write.place,
        census=dict(write.census),
    )


def group_judged(change: Change, write: GroupJudged) -> None:
    """The verdict on each counted trial of a settled group, once (invariant 5)."""
    row = change.mine(groups, write.group)
    if row.settled_at is None or row.judged_at is not None:
        state = "not settled" if row.settled_at is None else "judged already"
        raise conflict(
            f"The group is {state}.",
            "group",
            write.group,
            next="Judge a group once, after it has settled.",
        )
    for verdict in write.verdicts:
        judged = change.connection.execute(
            sa.update(trials)
            .where(
                trials.c.id == verdict.trial,
                trials.c.group_id == write.group,
                trials.c.counted.is_(True),
            )
            .values(
                eligible=verdict.eligible,
                ineligible_reason=verdict.reason,
                advantage=verdict.advantage,
            )
        )
        if judged.rowcount != 1:
            raise not_found(
                "trial", verdict.trial, next="A verdict is on a counted trial of its group."
            )
    if len(write.verdicts) != row.size:
        raise invalid(
            f"{len(write.verdicts)} verdicts for the {row.size} trials of the group.",
            "group",
            "/verdicts",
            name=write.group,
            next="Give one verdict on each counted trial.",
        )
    change.connection.execute(
        sa.update(groups).where(groups.c.id == write.group).values(judged_at=change.at)
    )
    change.emit(
        EventType.GROUP_JUDGED,
        group=write.group,
        batch=row.batch,
        place=row.place,
        census=dict(write.census),
    )


def require_sampler(change: Change, sampler: str) -> AnyRow:
    """The sampler's row, if this run may sample from it: its own, or that of its spec."""
    query = sa.select(samplers).where(samplers.c.id == sampler, samplers.c.org_id == change.org)
    row = change.connection.execute(query).one_or_none()
    if row is None or (row.run_id != change.run.id and sampler != change.spec.sampler.id):
        raise not_found("sampler", sampler, next="Write sampler.saved first.")
    return row


def _require_same(same: bool, kind: str, name: str) -> None:
    """A worker that resumes may say again what is recorded, and nothing else."""
    if not same:
        raise conflict(
            f"The {kind} has that on record with other content.",
            kind,
            name,
            next="Read the run's records and continue from there.",
        )


def _batch(change: Change, batch: int) -> AnyRow | None:
    query = sa.select(batches).where(batches.c.run_id == change.run.id, batches.c.batch == batch)
    return change.connection.execute(query).one_or_none()


def _count(change: Change, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(*conditions)
    return change.connection.execute(query).scalar_one()


def _refuse_open_groups(change: Change, batch: int) -> None:
    undone = groups.c.settled_at.is_(None)
    if change.run.kind == "training":
        undone = sa.or_(undone, groups.c.judged_at.is_(None))
    query = sa.select(groups.c.id, groups.c.settled_at).where(
        groups.c.run_id == change.run.id, groups.c.batch == batch, undone
    )
    found = change.connection.execute(query.limit(1)).one_or_none()
    if found is not None:
        lacking = "settled" if found.settled_at is None else "judged"
        raise conflict(
            f"Group {found.id} of batch {batch} is not {lacking}.",
            "group",
            found.id,
            next="Settle and judge its groups first.",
        )


def _refuse_taken_place(change: Change, batch: int, index: int) -> None:
    query = sa.select(groups.c.id).where(
        groups.c.run_id == change.run.id, groups.c.batch == batch, groups.c.position == index
    )
    found = change.connection.execute(query).scalar()
    if found is not None:
        raise conflict(
            f"Place {index} of batch {batch} is taken by {found}.",
            "group",
            found,
            next="Continue that group; it is among the run's records.",
        )
