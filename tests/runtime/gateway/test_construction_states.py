"""No sequence of requests reaches work without an approval of the present version, or spends
more than the plan allows. The transactions themselves, on a database in memory."""

from typing import Any

import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.gateway import models, published
from runtime.gateway.constructions import reading, spending, steps
from runtime.gateway.context import Caller
from runtime.home import Role
from runtime.storage.tables import LOCAL_ORG, metadata, runs
from specs import canonical
from specs.construction import WORKING, ConstructionState
from specs.construction_records import (
    RECORDS,
    ApprovalRules,
    Bulk,
    Construction,
    ConstructionRevision,
    ConstructionSubmission,
    Outcome,
    Probe,
    Propose,
    Record,
    Training,
)
from specs.dataset import Dataset, TaskEntry
from specs.errors import PracticumError
from specs.ids import Prefix, new_id
from specs.operator_api import ModelList
from specs.plans import EvaluationPlan, TrainingPlan, parse_plan
from specs.run import Admission, RunSpec, SamplerRef
from tests.runtime.gateway import stage
from tests.runtime.gateway.constructing import HELD_OUT, approval, plan, review, rows

NOBODY = "sha256:" + "0" * 64
SAMPLER = SamplerRef(
    id=new_id(Prefix.SAMPLER),
    backend="torch",
    base_model="tiny",
    base_digest=NOBODY,
    tokenizer_digest=NOBODY,
    renderer="chatml/1",
)
KINDS = tuple(RECORDS)


class Constructing(RuleBasedStateMachine):
    """Everything that callers can ask for, in any order, also with what they read long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = sa.create_engine("sqlite://")
        self.connection = self.engine.connect()
        metadata.create_all(self.connection)
        models.merge(self.connection, LOCAL_ORG, ModelList(models=[stage.model()]))
        name, _, version = HELD_OUT.partition("@")
        task = TaskEntry(name="acme/four", digest=NOBODY, size=1)
        held_out = canonical.canonical_bytes(Dataset(name=name, version=version, tasks=(task,)))
        published.publish(self.connection, LOCAL_ORG, "dataset", name, version, held_out)
        self.caller = Caller(Role.OPERATOR)
        body = ConstructionSubmission(id=new_id(Prefix.CONSTRUCTION), plan=plan())
        self.read, _ = steps.create(self.connection, self.caller, body)
        self.now = self.read
        self.reviewed: Construction | None = None
        """As it was read after some review, perhaps long ago."""
        self.approved: int | None = None
        self.made: list[tuple[str, str, int]] = []
        """Runs with their use and slots."""

    def teardown(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def show(self) -> Construction:
        return reading.show(self.connection, LOCAL_ORG, self.read.id)

    def attempt(self, ask: Any) -> bool:
        """Whether a request was granted; one that is refused changes nothing."""
        before = self.now
        try:
            ask()
        except PracticumError as error:
            assert error.problem.next
            assert self.show() == before
            return False
        self.now = self.show()
        assert self.now.steps[: len(before.steps)] == before.steps
        return True

    def record(self, kind: str) -> Record:
        mine = tuple(name for name, _, _ in self.made)[:1]
        found = self.now
        match kind:
            case "probe":
                return Probe(files=(rows(2, "bcd"[len(found.steps) % 3]),), runs=mine)
            case "review":
                return review(found if found.review_subject else self.reviewed or found)
            case "bulk":
                return Bulk(files=(rows(5, "ef"[len(found.steps) % 2]),))
            case "training":
                return Training(runs=mine or (new_id(Prefix.RUN),))
            case "outcome":
                return Outcome(result="baseline", note="Nothing was better.")
            case _:
                return Propose()

    @rule(kind=st.sampled_from(KINDS))
    def take(self, kind: str) -> None:
        found = self.now
        if kind == "review" and not (found.review_subject or self.reviewed):
            return
        given = self.record(kind)
        granted = self.attempt(
            lambda: steps.record(self.connection, self.caller, self.read.id, given, ApprovalRules())
        )
        if granted and kind == "review":
            self.reviewed = self.now

    @precondition(lambda self: self.reviewed is not None)
    @rule(kind=st.sampled_from(("person", "policy")))
    def approve(self, kind: str) -> None:
        """By whoever read it after some review; it may have been revised or probed since."""
        seen = self.reviewed
        assert seen is not None
        given = approval(seen, kind, "small")
        granted = self.attempt(
            lambda: steps.approve(
                self.connection, self.caller, self.read.id, given, ApprovalRules()
            )
        )
        if granted:
            now = self.now
            assert now.version == seen.version
            assert now.approval_subject == seen.approval_subject
            self.approved = now.version

    @rule()
    def revise(self) -> None:
        found = self.now
        goal = f"Goal of version {found.version + 1}."
        given = ConstructionRevision(replaces=found.version, plan=plan(goal=goal))
        self.attempt(lambda: steps.revise(self.connection, self.caller, self.read.id, given))

    @rule(training=st.booleans(), size=st.integers(1, 3))
    def start(self, training: bool, size: int) -> None:
        shape: dict[str, Any] = {"trials_per_task": size}
        if training:
            shape = {"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": size}}
        chosen = parse_plan(shape)
        assert isinstance(chosen, EvaluationPlan | TrainingPlan)
        state = self.now.state

        def admit() -> None:
            admission = _admission(chosen, size)
            under = spending.admit(self.connection, self.caller, self.read.id, chosen, admission)
            admission = admission.model_copy(update={"construction": under})
            run = _insert(self.connection, chosen, admission)
            self.made.append((run, under.use, size))

        if self.attempt(admit):
            assert not training or state in WORKING
            assert state not in (ConstructionState.DRAFT, ConstructionState.FINISHED)

    @precondition(lambda self: self.made)
    @rule()
    def end(self) -> None:
        """The oldest run ends without having opened a trial."""
        run, use, _ = self.made.pop(0)
        query = sa.update(runs).where(runs.c.id == run).values(state="completed")
        self.connection.execute(query)
        self.made.append((run, use, 0))
        self.now = self.show()

    @invariant()
    def work_has_an_approval_of_the_present_version(self) -> None:
        found = self.now
        working = found.state in WORKING or found.state is ConstructionState.FINISHED
        if working:
            assert found.approver is not None
            assert self.approved == found.version
        assert (found.approver is not None) == working

    @invariant()
    def spend_stays_within_the_plan(self) -> None:
        found = self.now
        budget = found.plan.budget
        assert budget is not None
        probes = sum(size for _, use, size in self.made if use == "probe")
        assert found.probe_spend.spent.trial_slots == probes <= budget.probe.trial_slots
        total = sum(size for _, _, size in self.made)
        assert found.total_spend.spent.trial_slots == total <= budget.trial_slots
        assert found.total_spend.spent.updates <= budget.updates
        assert found.probe_spend.spent.rows <= budget.probe.rows
        assert found.total_spend.spent.rows <= budget.rows


def _admission(chosen: EvaluationPlan | TrainingPlan, slots: int) -> Admission:
    return Admission(
        kind=chosen.kind,
        planned_slots=slots,
        batches=1 if chosen.kind == "training" else 0,
        distinct_tasks=1,
        optimizer_initialization=None,
        resources={},
        overrides=[],
        sampler=SAMPLER,
        actor=NOBODY,
        plan={},
    )


def _insert(
    connection: sa.Connection, chosen: EvaluationPlan | TrainingPlan, admission: Admission
) -> str:
    """A run as admission stores it, without what it would work on."""
    under = admission.construction
    assert under is not None
    spec = RunSpec(
        id=new_id(Prefix.RUN),
        dataset=stage.DATASET,
        dataset_digest=NOBODY,
        tasks=(),
        actor_name="acme/solver",
        actor=NOBODY,
        plan=chosen,
        plan_digest=NOBODY,
        sampler=SAMPLER,
    )
    connection.execute(
        sa.insert(runs).values(
            id=spec.id,
            org_id=LOCAL_ORG,
            kind=chosen.kind,
            state="queued",
            created_at="2026-01-01T00:00:00.000000Z",
            dataset=spec.dataset,
            actor_name=spec.actor_name,
            model="tiny",
            spec=canonical.canonical_bytes(spec),
            admission=admission.model_dump_json(),
            planned_slots=admission.planned_slots,
            last_event=0,
            last_log=0,
            fence=0,
            construction_id=under.id,
            construction_version=under.version,
            construction_use=under.use,
        )
    )
    return spec.id


TestConstructing = Constructing.TestCase
TestConstructing.settings = settings(max_examples=12, stateful_step_count=20)
