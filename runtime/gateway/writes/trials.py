"""Trials: one counted trial per slot; a crash abandons one and opens another."""

import sqlalchemy as sa

from runtime.gateway import references
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.writes.change import Change
from runtime.storage.tables import groups, trials
from specs.events import EventType
from specs.records import TrialOutcome, TrialState
from specs.worker_api import TrialOpened, TrialSettledWrite

_OF_LOST_WORKERS = (TrialOutcome.CANCELLED, TrialOutcome.INFRASTRUCTURE)
"""How a trial may end whose worker died: nobody saw its work end."""


def trial_opened(change: Change, write: TrialOpened) -> None:
    """A trial takes a slot; an open one in the same slot becomes abandoned."""
    trial = write.trial
    group = change.mine(groups, trial.group)
    if not 0 <= trial.index < group.size:
        raise invalid(
            f"The group has slots 0 to {group.size - 1}, not {trial.index}.",
            "trial",
            "/index",
            name=trial.id,
            next="Use a slot of the group.",
        )
    in_slot = sa.and_(trials.c.group_id == trial.group, trials.c.position == trial.index)
    _refuse_counted(change, in_slot)
    abandoned = change.connection.execute(
        sa.update(trials)
        .where(in_slot, trials.c.state == TrialState.OPEN)
        .values(state=TrialState.ABANDONED, settled_at=change.at)
        .returning(trials.c.id)
    ).scalars()
    for lost in abandoned:
        change.emit(EventType.TRIAL_ABANDONED, trial=lost, group=trial.group, index=trial.index)
    change.insert(
        trials,
        id=trial.id,
        run_id=change.run.id,
        group_id=trial.group,
        batch=group.batch,
        group_position=group.position,
        position=trial.index,
        task=group.task,
        sampler_id=group.sampler_id,
        fence=change.run.fence,
        state=TrialState.OPEN,
        counted=False,
        opened_at=change.at,
    )
    change.emit(
        EventType.TRIAL_OPENED,
        trial=trial.id,
        group=trial.group,
        batch=group.batch,
        index=trial.index,
        task=group.task,
    )


def trial_settled(change: Change, write: TrialSettledWrite) -> None:
    """A trial ended; it becomes the counted trial of its slot."""
    settled, assessment = write.settled, write.assessment
    row = change.mine(trials, settled.trial)
    if row.state != TrialState.OPEN:
        raise conflict(f"The trial is {row.state}, not open.", "trial", row.id)
    if row.fence != change.run.fence and settled.outcome not in _OF_LOST_WORKERS:
        raise conflict(
            f"The trial was opened under fence {row.fence}; its worker is gone.",
            "trial",
            row.id,
            next="Open another trial in its slot, or settle it as cancelled.",
        )
    _check_consistent(row, write)
    _hold(change, write)
    change.connection.execute(
        sa.update(trials)
        .where(trials.c.id == row.id)
        .values(
            state=TrialState.SETTLED,
            counted=True,
            settled_at=change.at,
            settled=settled.model_dump_json(),
            outcome=settled.outcome,
            assessment=assessment.model_dump_json(),
            reward=assessment.reward,
        )
    )
    change.emit(
        EventType.TRIAL_SETTLED,
        trial=row.id,
        group=row.group_id,
        batch=row.batch,
        index=row.position,
        task=row.task,
        outcome=settled.outcome.value,
        reward=assessment.reward,
        reason=None if assessment.reason is None else assessment.reason.value,
    )


def _refuse_counted(change: Change, in_slot: sa.ColumnElement[bool]) -> None:
    query = sa.select(trials.c.id).where(in_slot, trials.c.counted.is_(True))
    found = change.connection.execute(query).scalar()
    if found is not None:
        raise conflict(
            f"Trial {found} is the counted trial of that slot.",
            "trial",
            found,
            next="Go on with a slot that has none.",
        )


def _check_consistent(row: AnyRow, write: TrialSettledWrite) -> None:
    """Assessment and seal must be of the trial that they come with."""
    if write.assessment.trial != row.id:
        raise invalid(
            f"The assessment is of trial {write.assessment.trial}.",
            "assessment",
            "/assessment/trial",
            name=write.assessment.id,
            next="Send the assessment of the same trial.",
        )
    seal = write.settled.seal
    if seal is not None and (seal.trial, seal.run, seal.fence) != (row.id, row.run_id, row.fence):
        raise invalid(
            "The seal is of another trial, run or fence.",
            "trial",
            "/settled/seal",
            name=row.id,
            next="Send the seal that the proxy gave for this trial.",
        )


def _hold(change: Change, write: TrialSettledWrite) -> None:
    settled = write.settled
    digests = {artifact.digest for artifact in settled.artifacts}
    if settled.seal is not None and settled.seal.object is not None:
        digests.add(settled.seal.object)
    change.hold(settled.trial, digests, what="trial")
    # a launch plan or an assessed file may be known by digest alone
    others = set(write.assessment.artifacts.values())
    if settled.launch_plan is not None:
        others.add(settled.launch_plan)
    references.hold_present(change.connection, change.org, settled.trial, others - digests)
