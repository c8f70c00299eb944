"""Each record that contradicts another is a finding of its check, and what may differ is none."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.learning.snapshot import Snapshot
from runtime.learning.verify_records import check_records
from specs import canonical
from specs.assessment import NoReward
from specs.events import EventType
from specs.plans import EvaluationPlan
from specs.records import TrialOutcome, TrialState, UpdateState
from specs.run import RunState
from tests.runtime.learning.told import (
    FIRST,
    GROUPS,
    SAMPLERS,
    SECOND,
    STATES,
    VOID,
    also,
    event,
    moved,
    name,
    retold,
    row,
    run_with,
    sampler,
    sound,
    spec_with,
    untold,
    update_of,
    without,
)

RUNNING = {"state": RunState.RUNNING}
OTHER = "sha256:" + "9" * 64

type Change = Callable[[Snapshot], Snapshot]


def findings(snapshot: Snapshot) -> dict[str, list[str]]:
    """The violations by check."""
    found = {check.id: check.violations for check in check_records(snapshot)}
    return {check: violations for check, violations in found.items() if violations}


def assessed(snapshot: Snapshot, at: int, **changes: Any) -> Snapshot:
    assessment = snapshot.trials[at].assessment
    assert assessment is not None
    return row(snapshot, "trials", at, assessment=assessment.model_copy(update=changes))


def ended(snapshot: Snapshot, at: int, outcome: TrialOutcome) -> Snapshot:
    settled = snapshot.trials[at].settled
    assert settled is not None
    return row(snapshot, "trials", at, settled=settled.model_copy(update={"outcome": outcome}))


def evaluated(snapshot: Snapshot) -> Snapshot:
    """The first batch alone, of an evaluation."""
    plan = EvaluationPlan(trials_per_task=2)
    kept = {"updates": (), "checkpoints": (), "groups": snapshot.groups[:2]}
    trials = tuple(trial for trial in snapshot.trials if trial.batch == 0)
    digest = canonical.digest(plan)

    def change(told: list[tuple[str, dict[str, Any]]]) -> None:
        end = next(place for place, (kind, _) in enumerate(told) if kind == "update.prepared")
        del told[end:-1]
        told[0][1]["plan_digest"] = digest

    found = replace(snapshot, trials=trials, **kept)
    return retold(spec_with(found, plan=plan, plan_digest=digest), change)


def undecided(snapshot: Snapshot, state: UpdateState) -> Snapshot:
    """The update that ended void, still going on."""
    passed = {"prepared": "then", state: "then"}
    changed = row(snapshot, "updates", 1, state=state, events=passed)
    changed = untold(changed, "update.void")
    if state is UpdateState.UNRESOLVED:
        changed = also(changed, "update.unresolved", update=VOID)
    return changed


def batch_begun(snapshot: Snapshot) -> Snapshot:
    """A fourth batch that has no group yet."""
    return also(snapshot, "batch.started", batch=3, sampler=SAMPLERS[2])


def test_a_sound_run_has_no_finding_and_every_check_compares_something() -> None:
    found = check_records(sound())
    assert {check.id: check.violations for check in found} == {check.id: [] for check in found}
    assert all(check.checked for check in found)
    assert findings(evaluated(sound())) == {}


WRONG: list[tuple[Change, str, str]] = [
    # events.gap_free
    (lambda s: run_with(s, last_event=1), "events.gap_free", r"last event: recorded 1"),
    (
        lambda s: retold(s, lambda told: told.insert(0, ("run.claimed", {}))),
        "events.gap_free",
        r"first event: .*run\.claimed",
    ),
    # events.rows
    (
        lambda s: event(s, "trial.settled", reward=0.25),
        "events.rows",
        r"reward of trl_\w+ in its event: recorded 0\.25, derived 1\.0",
    ),
    # slots.counted
    (
        lambda s: row(s, "trials", 1, counted=False),
        "slots.counted",
        r"^slot 0 of grp_0+ has 0 counted",
    ),
    (
        lambda s: row(run_with(s, **RUNNING), "trials", 1, counted=False),
        "slots.counted",
        r"^slot 0 of grp_0+ has 0 counted",
    ),
    (
        lambda s: row(s, "trials", 0, batch=5),
        "slots.counted",
        r"^trl_\w+: recorded \(5, 'acme/task'",
    ),
    (lambda s: row(s, "trials", 0, task="acme/x"), "slots.counted", r"'acme/x'"),
    (lambda s: row(s, "trials", 0, sampler=SAMPLERS[1]), "slots.counted", SAMPLERS[1]),
    (
        lambda s: row(s, "trials", 0, group=name("grp", 9)),
        "slots.counted",
        r"names unknown group grp_0+9",
    ),
    # assessments.reward
    (
        lambda s: row(s, "trials", 1, assessment=None),
        "assessments.reward",
        r"^trl_\w+ has no assessment",
    ),
    (
        lambda s: assessed(s, 1, trial=name("trl", 7)),
        "assessments.reward",
        r"^trial of asm_\w+: recorded 'trl_0+7'",
    ),
    (
        lambda s: assessed(s, 1, reason=NoReward.NOT_SCORED),
        "assessments.reward",
        r"not exactly one of reward and reason",
    ),
    (
        lambda s: assessed(s, 1, rewards={"speed": 5.0, "reward": 3.0}),
        "assessments.reward",
        r"^reward of asm_\w+: recorded 1\.0, derived 3\.0",
    ),
    (
        lambda s: assessed(s, 1, rewards={"score": 2.0}),
        "assessments.reward",
        r"recorded 1\.0, derived 2\.0",
    ),
    (
        lambda s: ended(s, 1, TrialOutcome.LAUNCH_FAILED),
        "assessments.reward",
        r"is launch_failed and has a reward",
    ),
    (
        lambda s: ended(s, 1, TrialOutcome.INFRASTRUCTURE),
        "assessments.reward",
        r"is infrastructure and has",
    ),
    (
        lambda s: ended(s, 1, TrialOutcome.CANCELLED),
        "assessments.reward",
        r"is cancelled and has",
    ),
    # spec.plan
    (
        lambda s: event(s, "run.admitted", plan_digest=OTHER),
        "spec.plan",
        r"^plan digest as admitted: recorded 'sha256:9",
    ),
    (
        lambda s: row(s, "groups", 0, task_digest=OTHER),
        "spec.plan",
        r"^task of grp_0+: recorded 'sha256:9",
    ),
    # batches.sampler
    (
        lambda s: event(s, "batch.started", 1, sampler=SAMPLERS[0]),
        "batches.sampler",
        r"^sampler of batch 1: recorded 'smp_0+', derived 'smp_0+1'",
    ),
    (
        lambda s: row(s, "updates", 1, sampler=SAMPLERS[0]),
        "batches.sampler",
        r"^sampler of upd_0+1: recorded 'smp_0+', derived 'smp_0+1'",
    ),
    # updates.order
    (
        lambda s: row(run_with(s, **RUNNING), "updates", 3, batch=1, sampler=SAMPLERS[1]),
        "updates.order",
        r"updates of batch 1 that stand: recorded 2",
    ),
    (batch_begun, "updates.order", r"^updates of batch 3: recorded 0, derived 1"),
    # updates.submissions
    (
        lambda s: event(s, "group.settled", 1, place=0),
        "updates.submissions",
        r"^place of grp_0+1: recorded 0, derived 1",
    ),
    (
        lambda s: event(s, "group.judged", 1, place=0),
        "updates.submissions",
        r"^place of grp_0+1: recorded 0, derived 1",
    ),
    (
        lambda s: moved(s, "group.judged", 0, "group.settled"),
        "updates.submissions",
        r"^grp_0+ was judged before it settled",
    ),
    (
        lambda s: moved(s, "update.contributed", 1, "group.judged", 1),
        "updates.submissions",
        r"^grp_0+1 was submitted before it was judged",
    ),
    (
        lambda s: moved(s, "update.unresolved", 0, "update.contributed", 1),
        "updates.submissions",
        r"^grp_0+1 was submitted to upd_0+ after its step",
    ),
    # updates.chain
    (
        lambda s: row(s, "updates", 2, from_state=None),
        "updates.chain",
        r"^from_state of upd_0+2: recorded None, derived 'upd_0+'",
    ),
    (
        lambda s: row(s, "updates", 1, from_state=None),
        "updates.chain",
        r"^from_state of upd_0+1: recorded None, derived 'upd_0+'",
    ),
    # checkpoints.rows
    (
        lambda s: row(s, "checkpoints", 0, sampler=name("smp", 9)),
        "checkpoints.rows",
        r"names an unknown update or sampler",
    ),
    (lambda s: row(s, "checkpoints", 0, batch=1), "checkpoints.rows", r"^ckp_0+: recorded \(1"),
    (
        lambda s: row(s, "checkpoints", 0, sampler=SAMPLERS[0]),
        "checkpoints.rows",
        r"^ckp_0+: recorded \(0, 'smp_0+'",
    ),
    (lambda s: row(s, "checkpoints", 0, state=STATES[1]), "checkpoints.rows", r"^ckp_0+:"),
    (lambda s: row(s, "checkpoints", 0, adapter=OTHER), "checkpoints.rows", r"^ckp_0+:"),
    (lambda s: row(s, "checkpoints", 0, base_model="big"), "checkpoints.rows", r"^ckp_0+:"),
    (
        lambda s: row(s, "checkpoints", 0, profile=OTHER),
        "checkpoints.rows",
        r"^profile of ckp_0+: recorded 'sha256:9",
    ),
]


@pytest.mark.parametrize(("change", "check", "says"), WRONG)
def test_one_record_that_is_wrong_is_one_finding_of_its_check(
    change: Change, check: str, says: str
) -> None:
    ((noticed, violations),) = findings(change(sound())).items()
    (violation,) = violations
    assert (noticed, bool(re.search(says, violation))) == (check, True), violation


KINDS = [
    ("group.opened", "group"),
    ("trial.opened", "trial"),
    ("trial.settled", "trial"),
    ("trial.abandoned", "trial"),
    ("checkpoint.saved", "checkpoint"),
    *((f"update.{state}", "update") for state in UpdateState),
]


@pytest.mark.parametrize(("kind", "key"), KINDS)
def test_no_event_lacks_its_row_and_no_row_its_event_invariant_9(kind: str, key: str) -> None:
    of_nothing = findings(also(sound(), kind, **{key: "nothing"}))["events.rows"]
    assert of_nothing == [f"{kind} of nothing: recorded 1, derived 0"]
    if any(one.type == EventType(kind) for one in sound().events):
        (lost,) = findings(untold(sound(), kind))["events.rows"]
        assert lost.startswith(f"{kind} of ")
        assert lost.endswith(": recorded 0, derived 1")


ALLOWED: list[Change] = [
    # A run that goes on may have told more than was read, and nothing of its slots.
    lambda s: run_with(s, **RUNNING, last_event=1),
    lambda s: row(
        untold(untold(run_with(s, **RUNNING), "group.settled"), "group.judged"),
        "trials",
        1,
        counted=False,
    ),
    lambda s: batch_begun(run_with(s, **RUNNING)),
    lambda s: undecided(run_with(s, **RUNNING), UpdateState.PREPARED),
    lambda s: undecided(run_with(s, **RUNNING), UpdateState.UNRESOLVED),
    # A trial without a reward needs no work behind it.
    lambda s: assessed(
        event(ended(s, 1, TrialOutcome.CANCELLED), "trial.settled", reward=None),
        1,
        reward=None,
        reason=NoReward.CANCELLED,
    ),
    lambda s: assessed(s, 1, rewards={"speed": 5.0, "reward": 1.0}),
    lambda s: ended(s, 1, TrialOutcome.AGENT_FAILED),
    lambda s: row(s, "trials", 1, settled=None),
    # What no group contributed, as of a supervised run.
    lambda s: also(s, "update.contributed", update=VOID, group=None),
    # Rows in another order than the updates were prepared in.
    lambda s: replace(s, updates=tuple(reversed(s.updates))),
    lambda s: row(s, "updates", 3, from_state=VOID),
]


@pytest.mark.parametrize("change", ALLOWED)
def test_what_may_be_so_is_no_finding(change: Change) -> None:
    found = findings(change(sound()))
    found.pop("updates.submissions", None)  # of the group whose events were taken out
    assert found == {}


def test_a_number_that_is_missing_shifts_those_behind_it_invariant_9() -> None:
    found = findings(without(sound(), "events", 3))["events.gap_free"]
    assert found[0] == "number of event 4: recorded 5, derived 4"
    assert len(found) == len(sound().events) - 4


def test_a_run_without_an_event_was_never_admitted() -> None:
    empty = replace(sound(), events=())
    assert findings(run_with(empty, last_event=0))["events.gap_free"] == [
        "first event: recorded None, derived <EventType.RUN_ADMITTED: 'run.admitted'>"
    ]
    (last, _) = findings(run_with(empty, last_event=1))["events.gap_free"]
    assert last == "last event: recorded 1, derived 0"


def test_a_slot_counts_one_settled_trial_invariant_16() -> None:
    twice = row(sound(), "trials", 2, index=0)
    assert [text.split(" of ")[0] for text in findings(twice)["slots.counted"]] == [
        "slot 0",
        "slot 1",
    ]
    going = untold(run_with(twice, **RUNNING), "group.settled")
    assert ["has 2 counted" in text for text in findings(going)["slots.counted"]] == [True]
    opened = row(sound(), "trials", 1, state=TrialState.OPEN)
    (found,) = findings(opened)["slots.counted"]
    assert found.endswith("counts a trial that is not settled")
    aside = row(sound(), "trials", 0, state=TrialState.OPEN)  # it does not count
    assert "slots.counted" not in findings(aside)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_a_finding_invariant_4(reward: float) -> None:
    (found,) = findings(assessed(sound(), 1, reward=reward))["assessments.reward"]
    assert found.endswith("is not finite")


def test_a_missing_assessment_hides_no_later_one_invariant_4() -> None:
    broken = assessed(row(sound(), "trials", 1, assessment=None), 2, trial=name("trl", 7))
    assert len(findings(broken)["assessments.reward"]) == 2
    unscored = assessed(sound(), 1, reward=None, reason=NoReward.NOT_SCORED)
    later = findings(assessed(unscored, 2, trial=name("trl", 7)))["assessments.reward"]
    assert [text.split(" of ")[0] for text in later] == ["trial"]
    neither = findings(assessed(sound(), 1, reward=None))["assessments.reward"]
    assert [text.split(" has ")[1] for text in neither] == ["not exactly one of reward and reason"]


def test_the_plan_is_the_one_that_was_pinned_invariant_14() -> None:
    plan = sound().run.spec.plan.model_copy(update={"seed": 5})
    (found,) = findings(spec_with(sound(), plan=plan))["spec.plan"]
    assert found.startswith("plan digest: recorded")
    unknown = row(sound(), "groups", 0, task="acme/other")
    assert len(findings(unknown)["spec.plan"]) == 1


def test_a_group_samples_from_the_sampler_of_its_batch_invariant_7() -> None:
    other = row(sound(), "groups", 2, sampler=SAMPLERS[0])
    (found,) = findings(other)["batches.sampler"]
    assert found.startswith(f"sampler of {GROUPS[2]}: recorded '{SAMPLERS[0]}'")
    unbound = untold(sound(), "batch.started", 2)
    assert len(findings(unbound)["batches.sampler"]) == 2  # its group and its update
    evaluation = row(evaluated(sound()), "groups", 1, sampler=SAMPLERS[1])
    (found,) = findings(evaluation)["batches.sampler"]
    assert found.startswith(f"sampler of {GROUPS[1]}")
    # The batches of an evaluation are not started.
    assert findings(untold(evaluated(sound()), "batch.started")) == {}


OUT_OF_ORDER: list[tuple[Change, str]] = [
    (lambda s: untold(s, "update.prepared"), "passed its states"),
    (lambda s: untold(s, "update.unresolved"), "passed its states"),
    (lambda s: untold(s, "update.acknowledged"), "passed its states"),
    (lambda s: moved(s, "update.unresolved", 0, "update.prepared"), "passed its states"),
    (lambda s: moved(s, "update.acknowledged", 0, "update.unresolved"), "passed its states"),
    (lambda s: row(s, "updates", 0, state_digest=None), "without state or sampler"),
    (lambda s: row(s, "updates", 0, sampler_after=None), "without state or sampler"),
    (lambda s: undecided(s, UpdateState.PREPARED), "is prepared in a completed run"),
    (lambda s: undecided(s, UpdateState.UNRESOLVED), "is unresolved in a completed run"),
]


@pytest.mark.parametrize(("change", "says"), OUT_OF_ORDER)
def test_an_acknowledged_update_passed_every_state_and_none_is_undecided_invariant_8(
    change: Change, says: str
) -> None:
    (found,) = findings(change(sound()))["updates.order"]
    assert says in found


def test_groups_are_submitted_by_their_place() -> None:
    swapped = event(
        event(sound(), "update.contributed", 0, group=GROUPS[1]),
        "update.contributed",
        1,
        group=GROUPS[0],
    )
    found = findings(swapped)["updates.submissions"]
    assert f"{GROUPS[0]} was submitted to {FIRST} out of its place" in found
    # Other updates have turns of their own: the place of one says nothing about the next.
    assert not any(VOID in text or SECOND in text for text in found)


def test_an_evaluation_has_no_updates() -> None:
    update = update_of(VOID, 0, UpdateState.VOID)
    found = findings(replace(evaluated(sound()), updates=(update,)))
    assert found["updates.chain"] == ["an evaluation has updates"]


def test_every_acknowledged_update_has_one_checkpoint_and_no_other_has_any_invariant_8() -> None:
    made = sound()
    for changed, counts in (
        (without(made, "checkpoints", 0), [(FIRST, 0, 1)]),
        (row(made, "checkpoints", 0, update=SECOND, batch=1), [(FIRST, 0, 1), (SECOND, 2, 1)]),
        (row(made, "checkpoints", 1, update=VOID), [(VOID, 1, 0), (SECOND, 0, 1)]),
    ):
        found = findings(changed)["checkpoints.rows"]
        assert found[: len(counts)] == [
            f"checkpoints of {update}: recorded {count}, derived {expected}"
            for update, count, expected in counts
        ]
    unknown = row(row(made, "checkpoints", 0, update=name("upd", 9)), "checkpoints", 1, batch=7)
    assert [text.split(" ")[1] for text in findings(unknown)["checkpoints.rows"]] == [
        "of",  # the update has none
        "names",
        "recorded",  # what comes after one that names nothing is looked at
    ]
    other = {**made.samplers, SAMPLERS[1]: sampler(1).model_copy(update={"base_model": "big"})}
    assert len(findings(replace(made, samplers=other))["checkpoints.rows"]) == 1
