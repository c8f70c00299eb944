"""What the page of a run shows, read from its records: one value, rendered by `page`.

Everything is bounded: a large run is summed up over all of its trials, but lists only so many,
and embeds the transcripts of a few, chosen where most can be learnt from them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean
from typing import Literal

from pydantic import JsonValue

from runtime.analysis.lineage import Lineage, run_lineage
from runtime.analysis.stats import paired_interval
from runtime.analysis.transcript import Moved, Transcript, spelling, transcript
from runtime.client.paging import every
from runtime.client.reads import ReadClient
from specs.base import Contract
from specs.comparison import Interval
from specs.errors import ErrorObject, NotFound
from specs.events import Event, EventType
from specs.records import Group, Trial, Update, UpdateState
from specs.run import Run, RunResult

LISTED = 2000
"""Trials and groups that the page lists."""
MARKS = 4000
"""Marks of the timeline."""
TRANSCRIPTS = 24
ATTRIBUTES = ("capability", "severity", "family")


class BatchRow(Contract):
    """The reward of one batch, with an interval over its groups."""

    batch: int
    trials: int
    scored: int
    reward: Interval | None


class UpdateRow(Contract):
    """An update with every measure that was recorded."""

    update: str
    batch: int
    state: str
    reason: str | None
    checkpoint: str | None
    trials: int
    trained_tokens: int
    census: dict[str, int]
    metrics: dict[str, float]


class GroupRow(Contract):
    """A sampling group and what its rewards allow to learn."""

    group: str
    batch: int
    index: int
    task: str
    sampler: str
    kind: Literal["learnable", "zero_variance", "one_member", "empty", "scored", "open"]
    """As learning saw it; `scored` where nothing learns from it."""
    trials: list[str]


class TrialRow(Contract):
    """A counted trial."""

    trial: str
    group: str
    batch: int
    index: int
    task: str
    outcome: str
    reward: float | None
    reason: str | None
    """Why there is no reward."""
    eligible: bool | None
    ineligible_reason: str | None
    advantage: float | None
    weight: float | None
    """Of each of its generated tokens, in the update that was applied."""
    calls: int
    output_tokens: int
    seconds: dict[str, float]
    shown: bool
    """Whether its transcript is on this page."""


class Bar(Contract):
    """Something that took time: seconds since the run was admitted."""

    lane: Literal["sampling", "training", "platform"]
    name: str
    kind: str
    batch: int | None
    start: float
    end: float | None
    """None = it has not ended."""
    trial: str | None = None


class AttributeScore(Contract):
    """Success over the tasks with one value of an attribute."""

    attribute: str
    value: str
    success: Interval


class Report(Contract):
    """Everything on the page."""

    run: str
    kind: str
    state: str
    reason: str | None
    next: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    dataset: str | None
    actor_name: str
    model: str
    spec: dict[str, JsonValue]
    """The pinned specification without the list of its tasks."""
    result: RunResult
    success: Interval | None
    batches: list[BatchRow]
    updates: list[UpdateRow]
    groups: list[GroupRow]
    trials: list[TrialRow]
    trials_total: int
    bars: list[Bar]
    attributes: list[AttributeScore]
    lineage: Lineage
    transcripts: list[Transcript]


async def report(
    reads: ReadClient,
    run: str,
    *,
    transcripts: int = TRANSCRIPTS,
    trial: str | None = None,
) -> Report:
    """The report of a run, whatever its state; with `trial`, its transcript alone is embedded.
    On cancel nothing is left behind.

    Raises:
        NotFound: there is no such run, or the trial is not among those listed.
    """
    found = await reads.run(run)
    result = await reads.result(found.id)
    trials = await every(lambda cursor: reads.trials(found.id, counted=True, cursor=cursor))
    groups = await every(lambda cursor: reads.groups(found.id, cursor=cursor))
    updates = await every(lambda cursor: reads.updates(found.id, cursor=cursor))
    saved = await every(lambda cursor: reads.checkpoints(found.id, cursor=cursor))
    moved = weights(updates)
    chosen = (
        [one for one in trials if one.id.startswith(trial)]
        if trial
        else choose(trials, moved, transcripts)
    )
    if trial is not None and not chosen:
        raise NotFound(
            f"Run {found.id} has no counted trial {trial}.",
            object=ErrorObject(type="trial", id=trial),
            next=f"practicum run trials {found.id}",
        )
    spell = await spelling(reads, found.spec.sampler.tokenizer_digest) if chosen else None
    by_interaction = _by_interaction(updates)
    shown = {one.id for one in chosen}
    spec: dict[str, JsonValue] = found.spec.model_dump(
        mode="json", by_alias=True, exclude={"tasks"}
    )
    return Report(
        run=found.id,
        kind=found.kind,
        state=found.state,
        reason=found.reason.detail if found.reason else None,
        next=found.reason.next if found.reason else None,
        created_at=found.created_at,
        started_at=found.started_at,
        ended_at=found.ended_at,
        dataset=found.dataset,
        actor_name=found.actor_name,
        model=found.model,
        spec=spec,
        result=result.model_copy(update={"by_task": {}}),
        success=_success(trials),
        batches=batch_rows(trials),
        updates=_update_rows(updates, {one.update: one.id for one in saved}),
        groups=group_rows(groups, trials)[:LISTED],
        trials=[_trial_row(one, moved, shown) for one in trials[:LISTED]],
        trials_total=len(trials),
        bars=bars(await _events(reads, found.id), found)[:MARKS],
        attributes=attribute_scores(found, trials),
        lineage=await run_lineage(reads, found.id, "overview", 40, None),
        transcripts=[await transcript(reads, one, by_interaction, spell) for one in chosen],
    )


def weights(updates: Sequence[Update]) -> dict[str, float]:
    """Weight of a token of each trial that moved an applied update."""
    return {
        one.trial: one.weight
        for update in updates
        if update.state is UpdateState.ACKNOWLEDGED
        for one in update.contributions
        if one.trial is not None
    }


def _by_interaction(updates: Sequence[Update]) -> Moved:
    return {
        name: (update.id, one.weight)
        for update in updates
        if update.state is UpdateState.ACKNOWLEDGED
        for one in update.contributions
        for name in one.interactions
    }


def choose(trials: Sequence[Trial], moved: Mapping[str, float], most: int) -> list[Trial]:
    """Trials whose transcripts are worth most, in slot order: those that moved the model
    furthest, half of them up and half down, then the first and last of the others."""
    if len(trials) <= most:
        return list(trials)
    ranked = sorted((t for t in trials if moved.get(t.id)), key=lambda t: moved[t.id])
    half = most // 2
    ends = ranked if len(ranked) <= most else [*ranked[:half], *ranked[len(ranked) - half :]]
    chosen = {one.id for one in ends}
    rest = [one for one in trials if one.id not in chosen]
    missing = most - len(chosen)
    if missing > 0:
        step = len(rest) / missing
        chosen |= {rest[int(place * step)].id for place in range(missing)}
    return [one for one in trials if one.id in chosen]


def _reward(trial: Trial) -> float | None:
    return trial.assessment.reward if trial.assessment else None


def _success(trials: Sequence[Trial]) -> Interval | None:
    """Over tasks, attempts averaged first."""
    return _over_tasks(trials, None)


def _over_tasks(trials: Sequence[Trial], names: set[str] | None) -> Interval | None:
    by_task: dict[str, list[float]] = defaultdict(list)
    for trial in trials:
        reward = _reward(trial)
        if reward is not None and (names is None or trial.task in names):
            by_task[trial.task].append(reward)
    return paired_interval([fmean(values) for values in by_task.values()])


def batch_rows(trials: Sequence[Trial]) -> list[BatchRow]:
    """Mean reward of each batch; trials of one group are not independent."""
    batches: dict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        batches[trial.batch].append(trial)
    rows: list[BatchRow] = []
    for batch, members in sorted(batches.items()):
        scored = [(t.group, reward) for t in members if (reward := _reward(t)) is not None]
        rows.append(
            BatchRow(
                batch=batch,
                trials=len(members),
                scored=len(scored),
                reward=paired_interval(
                    [reward for _, reward in scored], clusters=[group for group, _ in scored]
                ),
            )
        )
    return rows


def group_rows(groups: Sequence[Group], trials: Sequence[Trial]) -> list[GroupRow]:
    """Groups in order, with what became of each."""
    members: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        members[trial.group].append(trial)
    return [
        GroupRow(
            group=group.id,
            batch=group.batch,
            index=group.index,
            task=group.task,
            sampler=group.sampler,
            kind=_group_kind(members[group.id]),
            trials=[trial.id for trial in members[group.id]],
        )
        for group in groups
    ]


def _group_kind(
    members: Sequence[Trial],
) -> Literal["learnable", "zero_variance", "one_member", "empty", "scored", "open"]:
    judged = [trial for trial in members if trial.eligible is not None]
    if not judged:
        return "scored" if any(_reward(trial) is not None for trial in members) else "open"
    eligible = [trial for trial in judged if trial.eligible]
    if len(eligible) < 2:
        return "one_member" if eligible else "empty"
    return "learnable" if any(trial.advantage for trial in eligible) else "zero_variance"


def attribute_scores(run: Run, trials: Sequence[Trial]) -> list[AttributeScore]:
    """Success by every value of the reserved task attributes."""
    rows: list[AttributeScore] = []
    for attribute in ATTRIBUTES:
        values: dict[str, set[str]] = defaultdict(set)
        for task in run.spec.tasks:
            value = task.metadata.get(attribute)
            if isinstance(value, str):
                values[value].add(task.name)
        for value, names in sorted(values.items()):
            success = _over_tasks(trials, names)
            if success is not None:
                rows.append(AttributeScore(attribute=attribute, value=value, success=success))
    return rows


def _update_rows(updates: Sequence[Update], saved: Mapping[str, str]) -> list[UpdateRow]:
    return [
        UpdateRow(
            update=update.id,
            batch=update.batch,
            state=update.state,
            reason=update.reason,
            checkpoint=saved.get(update.id),
            trials=len({one.trial for one in update.contributions if one.trial is not None}),
            trained_tokens=sum(one.trained_tokens for one in update.contributions),
            census=update.census,
            metrics=update.metrics,
        )
        for update in updates
    ]


def _trial_row(trial: Trial, moved: Mapping[str, float], shown: set[str]) -> TrialRow:
    settled, assessment = trial.settled, trial.assessment
    seal = settled.seal if settled else None
    return TrialRow(
        trial=trial.id,
        group=trial.group,
        batch=trial.batch,
        index=trial.index,
        task=trial.task,
        outcome=settled.outcome if settled else trial.state,
        reward=assessment.reward if assessment else None,
        reason=assessment.reason if assessment else None,
        eligible=trial.eligible,
        ineligible_reason=trial.ineligible_reason,
        advantage=trial.advantage,
        weight=moved.get(trial.id),
        calls=seal.interactions if seal else 0,
        output_tokens=seal.output_tokens if seal else 0,
        seconds=settled.seconds if settled else {},
        shown=trial.id in shown,
    )


async def _events(reads: ReadClient, run: str) -> list[Event]:
    events: list[Event] = []
    after = 0
    while True:
        page = await reads.events(run, after=after, limit=1000)
        events += page.events
        if not page.events or page.terminal:
            return events
        after = page.next


_OPENS: Mapping[EventType, tuple[Literal["sampling", "training"], str, str]] = {
    EventType.GROUP_OPENED: ("sampling", "group", "group"),
    EventType.TRIAL_OPENED: ("sampling", "trial", "trial"),
    EventType.UPDATE_CONTRIBUTED: ("training", "group", "forward and backward"),
    EventType.UPDATE_UNRESOLVED: ("training", "update", "step and save"),
}
"""Events that begin something: lane, the key that names it, and what it is called."""

_ENDS: Mapping[EventType, tuple[str, ...]] = {
    EventType.GROUP_SETTLED: ("group",),
    EventType.TRIAL_SETTLED: ("trial",),
    EventType.TRIAL_ABANDONED: ("trial",),
    EventType.UPDATE_ACCUMULATED: ("forward and backward",),
    EventType.UPDATE_ACKNOWLEDGED: ("step and save",),
    EventType.UPDATE_FAILED: ("forward and backward", "step and save"),
    EventType.UPDATE_VOID: ("forward and backward", "step and save"),
}
"""What an event ends: bars of these kinds that bear one of its names."""

_MARKED = (
    EventType.RUN_CLAIMED,
    EventType.RUN_BLOCKED,
    EventType.RUN_UNBLOCKED,
    EventType.CHECKPOINT_SAVED,
    EventType.UPDATE_SKIPPED,
    EventType.UPDATE_VOID,
    EventType.UPDATE_FAILED,
)


def bars(events: Sequence[Event], run: Run) -> list[Bar]:
    """What took time, from the events that begin and end it, in the order of their beginnings.

    A worker's crash leaves a bar that its successor ends; what never ended runs to the end of
    the run, or to now.
    """
    zero = datetime.fromisoformat(run.created_at)
    begun: dict[tuple[str, str], Bar] = {}
    done: list[Bar] = []
    for event in events:
        at = (datetime.fromisoformat(event.at) - zero).total_seconds()
        names = [str(event.data[key]) for key in _NAMES if event.data.get(key) is not None]
        if event.type in _VOIDS:  # gradients that were under way died with their trainer
            names += [name for kind, name in begun if kind == "forward and backward"]
        places = [(kind, name) for kind in _ENDS.get(event.type, ()) for name in names]
        ended = [begun.pop(place) for place in places if place in begun]
        done += [bar.model_copy(update={"end": at}) for bar in ended]
        if event.type in _OPENS:
            bar = _begin(event, at)
            begun[bar.kind, _opened(event)] = bar
        if event.type in _MARKED:
            done.append(_mark(event, at, names))
    return sorted([*done, *begun.values()], key=lambda bar: bar.start)


_NAMES = ("trial", "group", "update")
_VOIDS = (EventType.UPDATE_FAILED, EventType.UPDATE_VOID)


def _begin(event: Event, at: float) -> Bar:
    lane, _, kind = _OPENS[event.type]
    name = _opened(event)
    return Bar(
        lane=lane,
        name=str(event.data.get("task") or name),
        kind=kind,
        batch=_batch(event),
        start=at,
        end=None,
        trial=name if kind == "trial" else None,
    )


def _opened(event: Event) -> str:
    """The name of what begins; an update without groups does so as a whole."""
    return str(event.data.get(_OPENS[event.type][1]) or event.data.get("update"))


def _mark(event: Event, at: float, names: Sequence[str]) -> Bar:
    name = str(event.data.get("checkpoint") or (names[0] if names else event.type))
    return Bar(
        lane="platform",
        name=name,
        kind=event.type.value,
        batch=_batch(event),
        start=at,
        end=at,
    )


def _batch(event: Event) -> int | None:
    batch = event.data.get("batch")
    return batch if isinstance(batch, int) else None
