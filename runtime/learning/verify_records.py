"""Checks of a run's rows against its events and against each other; pure."""

import math
from collections import Counter

from runtime.learning.findings import Finding
from runtime.learning.policy import initial_policy
from runtime.learning.snapshot import Snapshot
from specs import canonical
from specs.events import Event, EventType
from specs.plans import EvaluationPlan
from specs.records import Trial, TrialOutcome, TrialState, Update, UpdateState
from specs.run import RunState

_NO_REWARD_OUTCOMES = (
    TrialOutcome.LAUNCH_FAILED,
    TrialOutcome.INFRASTRUCTURE,
    TrialOutcome.CANCELLED,
)
_OVER = (UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED)


def check_records(snapshot: Snapshot) -> list[Finding]:
    """Every check that needs nothing but rows and events."""
    return [
        _gap_free(snapshot),
        _rows_and_events(snapshot),
        _slots(snapshot),
        _assessments(snapshot),
        _plan(snapshot),
        _batch_samplers(snapshot),
        _update_order(snapshot),
        _submissions(snapshot),
        _update_chain(snapshot),
        _checkpoint_rows(snapshot),
    ]


def _gap_free(snapshot: Snapshot) -> Finding:
    finding = Finding("events.gap_free", 9, "events are numbered from 1 without gaps")
    for place, event in enumerate(snapshot.events, start=1):
        finding.equal(f"number of event {place}", event.seq, place)
    if snapshot.run.state.terminal:
        last = snapshot.events[-1].seq if snapshot.events else 0
        finding.equal("last event", snapshot.run.last_event, last)
    first = snapshot.events[0].type if snapshot.events else None
    finding.equal("first event", first, EventType.RUN_ADMITTED)
    return finding


def _rows_and_events(snapshot: Snapshot) -> Finding:
    """Each row has the events of what happened to it, and no event lacks its row."""
    finding = Finding("events.rows", 9, "events and rows tell the same")
    settled = [trial for trial in snapshot.trials if trial.state is TrialState.SETTLED]
    abandoned = [trial for trial in snapshot.trials if trial.state is TrialState.ABANDONED]
    rows: list[tuple[EventType, str, list[str]]] = [
        (EventType.GROUP_OPENED, "group", [group.id for group in snapshot.groups]),
        (EventType.TRIAL_OPENED, "trial", [trial.id for trial in snapshot.trials]),
        (EventType.TRIAL_SETTLED, "trial", [trial.id for trial in settled]),
        (EventType.TRIAL_ABANDONED, "trial", [trial.id for trial in abandoned]),
        (EventType.CHECKPOINT_SAVED, "checkpoint", [item.id for item in snapshot.checkpoints]),
    ]
    for state in UpdateState:
        passed = [update.id for update in snapshot.updates if state in update.events]
        rows.append((EventType(f"update.{state}"), "update", passed))
    for kind, key, names in rows:
        told = Counter(str(event.data.get(key)) for event in snapshot.of_type(kind))
        expected = Counter(names)
        for name in {*told, *expected}:
            finding.equal(f"{kind} of {name}", told[name], expected[name])
    rewards = {str(event.data.get("trial")): event for event in snapshot.of_type("trial.settled")}
    for trial in settled:
        event = rewards.get(trial.id)
        if event is not None and trial.assessment is not None:
            told_reward = event.data.get("reward")
            finding.equal(
                f"reward of {trial.id} in its event", told_reward, trial.assessment.reward
            )
    return finding


def _slots(snapshot: Snapshot) -> Finding:
    finding = Finding("slots.counted", 16, "every slot has exactly one counted trial")
    ended = snapshot.run.state is RunState.COMPLETED
    settled = {str(event.data.get("group")) for event in snapshot.of_type("group.settled")}
    slots: dict[tuple[str, int], list[Trial]] = {}
    for trial in snapshot.trials:
        slots.setdefault((trial.group, trial.index), []).append(trial)
    for group in snapshot.groups:
        for index in range(group.size):
            mine = slots.get((group.id, index), [])
            counted = sum(trial.counted for trial in mine)
            whole = ended or group.id in settled
            finding.expect(
                counted == 1 if whole else counted <= 1,
                f"slot {index} of {group.id} has {counted} counted trials",
            )
            finding.expect(
                all(trial.state is TrialState.SETTLED for trial in mine if trial.counted),
                f"slot {index} of {group.id} counts a trial that is not settled",
            )
    known = {group.id: group for group in snapshot.groups}
    for trial in snapshot.trials:
        group = known.get(trial.group)
        if finding.expect(group is not None, f"{trial.id} names unknown group {trial.group}"):
            assert group is not None
            recorded = (trial.batch, trial.task, trial.sampler)
            finding.equal(f"{trial.id}", recorded, (group.batch, group.task, group.sampler))
    return finding


def _assessments(snapshot: Snapshot) -> Finding:
    finding = Finding(
        "assessments.reward", 4, "a reward is a finite number from the verifier, or has a reason"
    )
    for trial in snapshot.counted:
        assessment = trial.assessment
        if not finding.expect(assessment is not None, f"{trial.id} has no assessment"):
            continue
        assert assessment is not None
        finding.equal(f"trial of {assessment.id}", assessment.trial, trial.id)
        finding.expect(
            (assessment.reward is None) != (assessment.reason is None),
            f"{assessment.id} has not exactly one of reward and reason",
        )
        if assessment.reward is None:
            continue
        finding.expect(math.isfinite(assessment.reward), f"{assessment.id} is not finite")
        if assessment.rewards:
            only = next(iter(assessment.rewards.values()))
            source = assessment.rewards.get("reward", only)
            finding.equal(f"reward of {assessment.id}", assessment.reward, source)
        outcome = trial.settled.outcome if trial.settled else None
        finding.expect(
            outcome not in _NO_REWARD_OUTCOMES, f"{trial.id} is {outcome} and has a reward"
        )
    return finding


def _plan(snapshot: Snapshot) -> Finding:
    finding = Finding("spec.plan", 14, "the pinned plan has the digest it was admitted with")
    spec = snapshot.run.spec
    finding.equal("plan digest", spec.plan_digest, canonical.digest(spec.plan))
    for event in snapshot.of_type("run.admitted"):
        finding.equal("plan digest as admitted", event.data.get("plan_digest"), spec.plan_digest)
    tasks = {task.name: task.digest for task in spec.tasks}
    for group in snapshot.groups:
        finding.equal(f"task of {group.id}", group.task_digest, tasks.get(group.task))
    return finding


def _batch_samplers(snapshot: Snapshot) -> Finding:
    finding = Finding(
        "batches.sampler",
        7,
        "a batch samples from one sampler: that of the last update acknowledged before it",
    )
    current = snapshot.run.spec.sampler.id
    bound: dict[int, str] = {}
    for event in snapshot.events:
        match event.type:
            case EventType.UPDATE_ACKNOWLEDGED:
                current = str(event.data.get("sampler_after"))
            case EventType.BATCH_STARTED:
                bound[_batch(event)] = current
                finding.equal(f"sampler of batch {_batch(event)}", event.data["sampler"], current)
            case _:
                pass
    for group in snapshot.groups:
        if isinstance(snapshot.run.spec.plan, EvaluationPlan):
            bound[group.batch] = snapshot.run.spec.sampler.id
        finding.equal(f"sampler of {group.id}", group.sampler, bound.get(group.batch))
    for update in snapshot.updates:
        finding.equal(f"sampler of {update.id}", update.sampler, bound.get(update.batch))
    return finding


def _update_order(snapshot: Snapshot) -> Finding:
    finding = Finding(
        "updates.order", 8, "prepared, then unresolved, then acknowledged; one per batch stands"
    )
    places = {(event.type, str(event.data.get("update"))): event.seq for event in snapshot.events}

    def place(update: Update, state: UpdateState) -> int | None:
        return places.get((EventType(f"update.{state}"), update.id))

    for update in snapshot.updates:
        if update.state is UpdateState.ACKNOWLEDGED:
            order = [
                place(update, state)
                for state in (UpdateState.PREPARED, UpdateState.UNRESOLVED, update.state)
            ]
            known = [seq for seq in order if seq is not None]
            whole = len(known) == len(order) and known == sorted(known)
            finding.expect(whole, f"{update.id} passed its states at events {order}")
            complete = None not in (update.state_digest, update.sampler_after)
            finding.expect(complete, f"{update.id} is acknowledged without state or sampler")
        if snapshot.run.state is RunState.COMPLETED:
            undecided = update.state in (UpdateState.PREPARED, UpdateState.UNRESOLVED)
            finding.expect(not undecided, f"{update.id} is {update.state} in a completed run")
    standing = Counter(u.batch for u in snapshot.updates if u.state in _OVER)
    for batch, count in standing.items():
        finding.equal(f"updates of batch {batch} that stand", count, 1)
    if snapshot.run.state is RunState.COMPLETED:
        for event in snapshot.of_type(EventType.BATCH_STARTED):
            if not isinstance(snapshot.run.spec.plan, EvaluationPlan):
                finding.equal(f"updates of batch {_batch(event)}", standing[_batch(event)], 1)
    return finding


def _submissions(snapshot: Snapshot) -> Finding:
    """Groups settle, are judged and are submitted, in one order and before the step."""
    finding = Finding(
        "updates.submissions",
        5,
        "a group is judged after it settled and submitted after it was judged, by its place",
    )
    groups = {group.id: group for group in snapshot.groups}
    seen: dict[str, set[str]] = {"group.settled": set(), "group.judged": set()}
    last: dict[str, int] = {}
    enqueued: set[str] = set()
    for event in snapshot.events:
        group, update = str(event.data.get("group")), str(event.data.get("update"))
        match event.type:
            case EventType.GROUP_SETTLED | EventType.GROUP_JUDGED:
                place = groups[group].place if group in groups else None
                finding.equal(f"place of {group}", event.data.get("place"), place)
                seen[event.type].add(group)
                if event.type == EventType.GROUP_JUDGED:
                    settled = group in seen["group.settled"]
                    finding.expect(settled, f"{group} was judged before it settled")
            case EventType.UPDATE_CONTRIBUTED if group in groups:
                judged = group in seen["group.judged"]
                finding.expect(judged, f"{group} was submitted before it was judged")
                place = groups[group].place or 0
                in_turn = place >= last.get(update, 0)
                finding.expect(in_turn, f"{group} was submitted to {update} out of its place")
                last[update] = place
                early = update not in enqueued
                finding.expect(early, f"{group} was submitted to {update} after its step")
            case EventType.UPDATE_UNRESOLVED:
                enqueued.add(update)
            case _:
                pass
    return finding


def _update_chain(snapshot: Snapshot) -> Finding:
    finding = Finding(
        "updates.chain", 8, "an update continues the state of the last acknowledged one"
    )
    if isinstance(snapshot.run.spec.plan, EvaluationPlan):
        finding.expect(not snapshot.updates, "an evaluation has updates")
        return finding
    state = initial_policy(snapshot.run.spec).source
    prepared = snapshot.of_type(EventType.UPDATE_PREPARED)
    order = {str(event.data.get("update")): event.seq for event in prepared}
    for update in sorted(snapshot.updates, key=lambda update: order.get(update.id, 0)):
        if update.state is UpdateState.SKIPPED:
            continue
        finding.equal(f"from_state of {update.id}", update.from_state, state)
        if update.state is UpdateState.ACKNOWLEDGED:
            state = update.id
    return finding


def _checkpoint_rows(snapshot: Snapshot) -> Finding:
    finding = Finding(
        "checkpoints.rows", 8, "every acknowledged update has one checkpoint of its sampler"
    )
    updates = {update.id: update for update in snapshot.updates}
    for update in snapshot.updates:
        count = sum(item.update == update.id for item in snapshot.checkpoints)
        finding.equal(
            f"checkpoints of {update.id}", count, int(update.state is UpdateState.ACKNOWLEDGED)
        )
    for item in snapshot.checkpoints:
        update = updates.get(item.update)
        sampler = snapshot.samplers.get(item.sampler)
        if not finding.expect(
            update is not None and sampler is not None,
            f"{item.id} names an unknown update or sampler",
        ):
            continue
        assert update is not None
        assert sampler is not None
        recorded = (item.batch, item.sampler, item.state, item.adapter, item.base_model)
        derived = (
            update.batch,
            update.sampler_after,
            update.state_digest,
            sampler.adapter,
            sampler.base_model,
        )
        finding.equal(item.id, recorded, derived)
        finding.equal(f"profile of {item.id}", item.profile, snapshot.run.spec.actor)
    return finding


def _batch(event: Event) -> int:
    batch = event.data["batch"]
    assert isinstance(batch, int)
    return batch
