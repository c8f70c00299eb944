"""Records of a sound training run, made by hand: three batches, of which the second was begun
again and the last taught nothing. Tests change one thing and see which check notices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.learning.snapshot import Snapshot
from specs import canonical
from specs.canonical import digest_bytes
from specs.dataset import TaskEntry
from specs.events import Event
from specs.ids import Prefix
from specs.plans import BatchShape, EvaluationPlan, SupervisedPlan, TrainingPlan
from specs.records import Checkpoint, Group, Trial, TrialState, Update, UpdateState
from specs.run import Run, RunSpec, RunState, SamplerRef
from tests.runtime.learning.support import AT, Turn, record, trial_of

TASK, PROFILE = digest_bytes(b"task"), digest_bytes(b"profile")


def name(prefix: str, number: int) -> str:
    """An id that says which one it is."""
    return f"{prefix}_{number:032x}"


RUN = name(Prefix.RUN, 0)
GROUPS = [name(Prefix.GROUP, number) for number in range(4)]
SAMPLERS = [name(Prefix.SAMPLER, number) for number in range(3)]
FIRST, VOID, SECOND, SKIPPED = (name(Prefix.UPDATE, number) for number in range(4))
CHECKPOINTS = [name(Prefix.CHECKPOINT, number) for number in range(2)]
ABANDONED = name(Prefix.TRIAL, 99)
STATES = [digest_bytes(b"state 0"), digest_bytes(b"state 1")]
PASSED = ("prepared", "unresolved", "acknowledged")


def sampler(number: int) -> SamplerRef:
    """S₀ is the base model; the others have an adapter."""
    return SamplerRef(
        id=SAMPLERS[number],
        backend="torch",
        base_model="tiny",
        base_digest=digest_bytes(b"base"),
        tokenizer_digest=digest_bytes(b"tokens"),
        renderer="chatml/1",
        adapter=digest_bytes(b"adapter %d" % number) if number else None,
    )


def spec_of(plan: TrainingPlan | EvaluationPlan | SupervisedPlan, **changes: Any) -> RunSpec:
    """A run's specification, with its plan's true digest."""
    values: dict[str, Any] = {
        "id": RUN,
        "dataset": None,
        "dataset_digest": None,
        "tasks": (TaskEntry(name="acme/task", digest=TASK, size=1),),
        "actor_name": "acme/actor",
        "actor": PROFILE,
        "plan": plan,
        "plan_digest": canonical.digest(plan),
        "sampler": sampler(0),
    }
    return RunSpec(**{**values, **changes})


def training_plan(**values: Any) -> TrainingPlan:
    shape = BatchShape(tasks=2, trials_per_task=2)
    known: dict[str, Any] = {"num_batches": 3, "batch": shape}
    return TrainingPlan(**{**known, **values})


def group_of(number: int, batch: int, *, place: int = 0, size: int = 1) -> Group:
    return Group(
        id=GROUPS[number],
        batch=batch,
        index=place,
        task="acme/task",
        task_digest=TASK,
        sampler=SAMPLERS[batch],
        size=size,
        place=place,
        judged=True,
    )


def attempt_of(group: Group, index: int = 0, reward: float = 1.0) -> Trial:
    recorded = record([Turn([1], [2], sampler=group.sampler)], run=RUN)
    return trial_of(
        recorded,
        reward=reward,
        group=group.id,
        index=index,
        batch=group.batch,
        sampler=group.sampler,
    )


def update_of(
    update: str, batch: int, state: UpdateState, passed: Sequence[str] = (), **values: Any
) -> Update:
    known: dict[str, Any] = {
        "id": update,
        "run": RUN,
        "batch": batch,
        "state": state,
        "trainer": name(Prefix.TRAINER, batch),
        "incarnation": "one",
        "from_state": None,
        "sampler": name(Prefix.SAMPLER, batch),
        "loss": "importance_sampling",
        "learning_rate": 1e-4,
        "at": AT,
        "events": dict.fromkeys(passed, AT),
    }
    return Update(**{**known, **values})


def checkpoint_of(number: int, update: str) -> Checkpoint:
    adapter = sampler(number + 1).adapter
    assert adapter is not None
    return Checkpoint(
        id=CHECKPOINTS[number],
        run=RUN,
        update=update,
        batch=number,
        sampler=SAMPLERS[number + 1],
        base_model="tiny",
        adapter=adapter,
        adapter_size=1,
        state=STATES[number],
        state_size=1,
        lora={},
        profile=PROFILE,
        parent=None,
        created_at=AT,
    )


@dataclass
class Story:
    """Events in their order."""

    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])

    def tell(self, kind: str, **data: Any) -> None:
        self.told.append((kind, data))

    def batch(self, number: int, members: Sequence[tuple[Group, Sequence[Trial]]]) -> None:
        """A batch up to where its groups are settled."""
        self.tell("batch.started", batch=number, sampler=SAMPLERS[number], tasks=[])
        for group, trials in members:
            self.tell("group.opened", group=group.id)
            for trial in trials:
                self.tell("trial.opened", trial=trial.id)
                if trial.state is TrialState.ABANDONED:
                    self.tell("trial.abandoned", trial=trial.id)
                else:
                    assert trial.assessment is not None
                    self.tell("trial.settled", trial=trial.id, reward=trial.assessment.reward)
            self.tell("group.settled", group=group.id, place=group.place)

    def submitted(self, update: str, groups: Sequence[Group], judge: bool = True) -> None:
        self.tell("update.prepared", update=update)
        for group in groups:
            if judge:
                self.tell("group.judged", group=group.id, place=group.place)
            self.tell("update.contributed", update=update, group=group.id)

    def applied(self, number: int, update: str) -> None:
        self.tell("update.unresolved", update=update)
        self.tell("update.acknowledged", update=update, sampler_after=SAMPLERS[number + 1])
        self.tell("checkpoint.saved", checkpoint=CHECKPOINTS[number])


def numbered(told: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Event, ...]:
    """Events as a gateway numbers them."""
    return tuple(
        Event.model_validate({"run": RUN, "seq": seq, "at": AT, "type": kind, "data": data})
        for seq, (kind, data) in enumerate(told, start=1)
    )


def sound() -> Snapshot:
    """The run, completed."""
    groups = (
        group_of(0, 0, size=2),
        group_of(1, 0, place=1),
        group_of(2, 1),
        group_of(3, 2),
    )
    gone = attempt_of(groups[0]).model_copy(
        update={
            "id": ABANDONED,
            "state": TrialState.ABANDONED,
            "counted": False,
            "settled": None,
            "assessment": None,
        }
    )
    trials = [
        [gone, attempt_of(groups[0]), attempt_of(groups[0], 1, 0.0)],
        *([attempt_of(group)] for group in groups[1:]),
    ]
    plan = training_plan()
    story = Story()
    story.tell("run.admitted", plan_digest=canonical.digest(plan))
    story.batch(0, [(groups[0], trials[0]), (groups[1], trials[1])])
    story.submitted(FIRST, groups[:2])
    story.applied(0, FIRST)
    story.batch(1, [(groups[2], trials[2])])
    story.submitted(VOID, groups[2:3])
    story.tell("update.void", update=VOID)
    story.submitted(SECOND, groups[2:3], judge=False)
    story.applied(1, SECOND)
    story.batch(2, [(groups[3], trials[3])])
    story.tell("group.judged", group=GROUPS[3], place=0)
    story.tell("update.skipped", update=SKIPPED)
    story.tell("run.completed")
    acknowledged = UpdateState.ACKNOWLEDGED
    after = [{"state_digest": STATES[n], "sampler_after": SAMPLERS[n + 1]} for n in range(2)]
    return Snapshot(
        run=Run(
            id=RUN,
            kind="training",
            state=RunState.COMPLETED,
            created_at=AT,
            dataset=None,
            actor_name="acme/actor",
            model="tiny",
            last_event=len(story.told),
            spec=spec_of(plan),
        ),
        events=numbered(story.told),
        groups=groups,
        trials=tuple(trial for members in trials for trial in members),
        updates=(
            update_of(FIRST, 0, acknowledged, PASSED, **after[0]),
            update_of(VOID, 1, UpdateState.VOID, ("prepared", "void"), from_state=FIRST),
            update_of(SECOND, 1, acknowledged, PASSED, from_state=FIRST, **after[1]),
            update_of(SKIPPED, 2, UpdateState.SKIPPED, ("skipped",)),
        ),
        checkpoints=(checkpoint_of(0, FIRST), checkpoint_of(1, SECOND)),
        samplers={one.id: one for one in map(sampler, range(3))},
    )


def row(snapshot: Snapshot, kind: str, at: int, **changes: Any) -> Snapshot:
    """Another row in place of one."""
    rows = list(getattr(snapshot, kind))
    rows[at] = rows[at].model_copy(update=changes)
    return replace(snapshot, **{kind: tuple(rows)})


def without(snapshot: Snapshot, kind: str, at: int) -> Snapshot:
    """One row less."""
    rows = list(getattr(snapshot, kind))
    del rows[at]
    return replace(snapshot, **{kind: tuple(rows)})


def run_with(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, run=snapshot.run.model_copy(update=changes))


def spec_with(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return run_with(snapshot, spec=snapshot.run.spec.model_copy(update=changes))


def retold(
    snapshot: Snapshot, change: Callable[[list[tuple[str, dict[str, Any]]]], object]
) -> Snapshot:
    """Other events, numbered without a gap."""
    told = [(str(event.type), dict(event.data)) for event in snapshot.events]
    change(told)
    return run_with(replace(snapshot, events=numbered(told)), last_event=len(told))


def place_of(told: Sequence[tuple[str, dict[str, Any]]], kind: str, nth: int = 0) -> int:
    """Where the nth event of a type stands."""
    return [place for place, (known, _) in enumerate(told) if known == kind][nth]


def untold(snapshot: Snapshot, kind: str, nth: int = 0) -> Snapshot:
    """Without one event."""
    return retold(snapshot, lambda told: told.pop(place_of(told, kind, nth)))


def event(snapshot: Snapshot, kind: str, nth: int = 0, **data: Any) -> Snapshot:
    """Other data of one event."""
    return retold(snapshot, lambda told: told[place_of(told, kind, nth)][1].update(data))


def moved(snapshot: Snapshot, kind: str, nth: int, before: str, other: int = 0) -> Snapshot:
    """One event in front of another."""

    def change(told: list[tuple[str, dict[str, Any]]]) -> None:
        one = told.pop(place_of(told, kind, nth))
        told.insert(place_of(told, before, other), one)

    return retold(snapshot, change)


def also(snapshot: Snapshot, kind: str, **data: Any) -> Snapshot:
    """One event more, before the last."""
    return retold(snapshot, lambda told: told.insert(len(told) - 1, (kind, data)))
