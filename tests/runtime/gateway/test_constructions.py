"""A construction plan moves by its records alone, each checked against what the gateway knows."""

from typing import Any

import anyio
import pytest
from pydantic import JsonValue

from specs.construction import ConstructionState
from specs.construction_records import (
    Approval,
    Bulk,
    Construction,
    ConstructionRevision,
    ConstructionSubmission,
    Outcome,
    Probe,
    Propose,
    Training,
)
from specs.errors import Conflict, ErrorCode, Forbidden, InvalidInput, NotFound, PracticumError
from specs.ids import Prefix, new_id
from specs.operator_api import ProfilePublish
from tests.runtime.gateway import constructing, stage
from tests.runtime.gateway.constructing import HELD_OUT, approval, plan, review, rows
from tests.runtime.gateway.stage import Hand, Stack
from tests.runtime.gateway.test_comparisons import evaluation, submission
from tests.runtime.gateway.test_flow import train_one_batch
from tests.runtime.gateway.test_grants import begun
from tools.comparing import Evaluation

pytestmark = pytest.mark.anyio
S = ConstructionState


async def evaluated(stack: Stack, **agent: Any) -> Evaluation:
    """An evaluation on the held-out tasks as the plan says."""
    started = await stack.operator.start(stage.submission(dataset=HELD_OUT, **agent))
    run = await stack.operator.run(started.run)
    return Evaluation(run, {"agent": {"model": run.model}}, [])


async def compared(stack: Stack, left: Evaluation, right: Evaluation) -> str:
    return (await stack.operator.record_comparison(submission(left, right))).id


def problem_of(error: pytest.ExceptionInfo[PracticumError]) -> tuple[str, str]:
    problem = error.value.problem
    assert problem.next and problem.object is not None
    return problem.code.value, problem.object.pointer or ""


async def test_a_construction_goes_from_a_draft_to_a_checkpoint_by_its_records(
    stack: Stack,
) -> None:
    await constructing.prepared(stack)
    operator = stack.operator
    made = await constructing.proposed(stack)
    assert (made.state, made.version, made.missing) == (S.PROPOSED, 1, [])
    probe = await constructing.start(stack, made.id, constructing.PROBE)
    await constructing.ended(stack, probe)
    made = await operator.record_construction(made.id, Probe(runs=(probe,), files=(rows(),)))
    assert (made.probe_spend.spent.trial_slots, made.probe_spend.spent.rows) == (1, 5)
    made = await operator.record_construction(made.id, review(made))
    made = await operator.approve_construction(made.id, approval(made))
    assert made.approver is not None and made.approver.name == "Ada"
    (step,) = [step for step in made.steps if step.kind == "approve"]
    assert step.found["plan"] == made.plan_digest
    assert (step.found["probes"], step.found["review"]) == (made.probes, made.review)

    bulk = Bulk(datasets=(stage.DATASET,), files=(rows(20, "c"),))
    made = await operator.record_construction(made.id, bulk)
    assert (made.state, made.total_spend.spent.rows) == (S.EXECUTING, 25)
    run = await constructing.start(stack, made.id, stage.TRAINING)
    hand = await Hand.take(stack)
    checkpoint = await train_one_batch(stack, hand)
    await hand.complete()
    made = await operator.record_construction(made.id, Training(runs=(run,)))
    assert (made.state, [one.use for one in (r.construction for r in made.runs)]) == (
        S.TRAINING,
        ["probe", "work"],
    )
    baseline, candidate = await evaluated(stack), await evaluated(stack, model=checkpoint)
    comparison = await compared(stack, baseline, candidate)
    outcome = Outcome(result="checkpoint", checkpoint=checkpoint, comparison=comparison)
    made = await operator.record_construction(made.id, outcome)
    assert (made.state, made.steps[-1].found["verdict"]) == (S.FINISHED, "inconclusive")
    assert (await operator.construction(made.id[:20])) == made
    assert [one.state for one in (await operator.constructions()).items] == [S.FINISHED]
    with pytest.raises(Conflict, match="finished"):
        await constructing.start(stack, made.id, constructing.PROBE)


async def test_a_profile_without_a_weight_update_is_an_outcome_too(stack: Stack) -> None:
    await constructing.prepared(stack)
    budget = {"trial_slots": 40, "rows": 40, "probe": {"trial_slots": 4, "rows": 10}}
    made = await constructing.approved(stack, method="none", budget=budget)
    better = stage.profile(args=["python3", "better.py"])
    await stack.operator.publish_profile(ProfilePublish(version="v2", profile=better))
    baseline = await evaluated(stack)
    candidate = await evaluated(stack, args=["python3", "better.py"])
    wrong = await compared(stack, baseline, await evaluated(stack))
    outcome = Outcome(result="profile", profile="acme/solver@v2", comparison=wrong)
    with pytest.raises(InvalidInput, match=r"candidate is not acme/solver@v2"):
        await stack.operator.record_construction(made.id, outcome)
    right = await compared(stack, baseline, candidate)
    outcome = outcome.model_copy(update={"comparison": right})
    made = await stack.operator.record_construction(made.id, outcome)
    assert made.state is S.FINISHED
    assert made.runs == []


async def test_an_assessment_other_than_the_planned_one_is_no_outcome(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.approved(stack)
    elsewhere = await compared(stack, await evaluation(stack), await evaluation(stack))
    outcome = Outcome(result="baseline", comparison=elsewhere, note="nothing was better")
    with pytest.raises(Conflict, match=r"the plan's assessment is 2 at acme/held-out@v1"):
        await stack.operator.record_construction(made.id, outcome)
    closed = await stack.operator.record_construction(
        made.id, Outcome(result="baseline", note="The data cannot be had.")
    )
    assert closed.state is S.FINISHED


async def test_a_proposal_needs_a_complete_plan_and_a_small_probe(stack: Stack) -> None:
    await constructing.prepared(stack)
    draft = await constructing.created(stack, queries=(), reason="")
    assert draft.missing == ["/queries", "/reason"]
    with pytest.raises(InvalidInput) as lacking:
        await stack.operator.record_construction(draft.id, Propose())
    assert problem_of(lacking) == ("invalid_document", "/queries")
    budget = {"trial_slots": 9999, "updates": 1, "probe": {"trial_slots": 65}}
    large = await constructing.created(stack, budget=budget)
    with pytest.raises(Conflict) as refused:
        await stack.operator.record_construction(large.id, Propose())
    assert problem_of(refused) == ("construction_over_budget", "/budget/probe/trial_slots")
    assessment = {**plan().model_dump()["assessment"], "dataset": "acme/nowhere@v1"}
    nowhere = await constructing.created(stack, assessment=assessment)
    with pytest.raises(NotFound):
        await stack.operator.record_construction(nowhere.id, Propose())
    assert (await stack.operator.construction(nowhere.id)).state is S.DRAFT


async def test_a_probe_beyond_its_allowance_is_refused(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.proposed(stack)
    record = stack.operator.record_construction
    with pytest.raises(Conflict) as over:
        await record(made.id, Probe(files=(rows(11),)))
    assert problem_of(over) == ("construction_over_budget", "/budget/probe/rows")
    await record(made.id, Probe(files=(rows(6),)))
    made = await record(made.id, Probe(files=(rows(6), rows(4, "c"))))  # the first counts once
    assert made.probe_spend.spent.rows == 10
    with pytest.raises(Conflict):
        await record(made.id, Probe(files=(rows(1, "d"),)))
    others = await stage.start(stack)
    with pytest.raises(Conflict, match="not admitted under construction"):
        await record(made.id, Probe(runs=(others,)))
    mine = await constructing.start(stack, made.id, constructing.PROBE)
    with pytest.raises(Conflict, match="queued"):
        await record(made.id, Probe(runs=(mine,)))


async def test_a_review_names_what_it_saw_and_judges_every_query(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.probed(stack)
    record = stack.operator.record_construction
    given = review(made)
    with pytest.raises(InvalidInput, match="largest does not say"):
        await record(made.id, given.model_copy(update={"coverage": given.coverage[:1]}))
    twice = (*given.coverage, given.coverage[0])
    with pytest.raises(InvalidInput, match="count is named twice"):
        await record(made.id, given.model_copy(update={"coverage": twice}))
    other = given.coverage[0].model_copy(update={"query": "other"})
    with pytest.raises(InvalidInput, match="other is not among"):
        await record(made.id, given.model_copy(update={"coverage": (*given.coverage, other)}))
    made = await record(made.id, given)
    assert made.review is not None
    probed_again = await record(made.id, Probe(files=(rows(1, "d"),)))
    assert (probed_again.state, probed_again.review) == (S.PROBED, None)
    with pytest.raises(Conflict, match="other probes"):
        await record(made.id, given)


async def test_a_policy_approves_by_rules_that_the_gateway_checks(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.probed(stack)
    operator = stack.operator
    poor = await operator.record_construction(
        made.id, review(made, relevant=False, largest="partial")
    )
    with pytest.raises(Forbidden) as refused:
        await operator.approve_construction(made.id, approval(poor, "policy", "small"))
    assert problem_of(refused)[0] == "approval_refused"
    assert "not covered: largest" in refused.value.problem.detail
    assert "relevant" in refused.value.problem.detail
    good = await operator.record_construction(made.id, review(made))
    with pytest.raises(Forbidden, match="policy is named 'small'"):
        await operator.approve_construction(made.id, approval(good, "policy", "mine"))
    done = await operator.approve_construction(made.id, approval(good, "policy", "small"))
    assert done.approver is not None and done.approver.kind == "policy"
    probe = {"trial_slots": 4, "rows": 10}
    budget = {"trial_slots": 400, "updates": 2, "rows": 40, "probe": probe}
    large = await constructing.reviewed(stack, budget=budget)
    with pytest.raises(Forbidden, match=r"budget\.trial_slots is 400"):
        await operator.approve_construction(large.id, approval(large, "policy", "small"))


async def test_a_revision_voids_the_approval_and_needs_another(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.approved(stack)
    operator = stack.operator
    revision = ConstructionRevision(replaces=1, plan=plan(goal="Another goal."), note="wider")
    later = await operator.revise_construction(made.id, revision)
    assert (later.version, later.state, later.approver) == (2, S.DRAFT, None)
    assert (await operator.revise_construction(made.id, revision)).version == 2
    with pytest.raises(Conflict, match="Version 2 is the present one"):
        await operator.revise_construction(
            made.id, ConstructionRevision(replaces=1, plan=plan(goal="A third."))
        )
    with pytest.raises(Conflict, match="same as before"):
        await operator.revise_construction(
            made.id, ConstructionRevision(replaces=2, plan=revision.plan)
        )
    with pytest.raises(Conflict) as refused:
        await operator.record_construction(made.id, Bulk(datasets=(stage.DATASET,)))
    assert problem_of(refused)[0] == "construction_not_approved"
    with pytest.raises(Conflict) as training:
        await constructing.start(stack, made.id, stage.TRAINING)
    assert problem_of(training)[0] == "construction_not_approved"
    await operator.record_construction(made.id, Propose())
    probe = await operator.record_construction(made.id, Probe(files=(rows(),)))
    assert probe.probe_spend.spent.rows == 5  # the same file as in version 1
    with pytest.raises(Conflict):
        await operator.approve_construction(
            made.id, Approval.model_validate({**approval(made).model_dump()})
        )


async def test_the_same_request_again_is_one_step_and_two_approvals_are_one(
    stack: Stack,
) -> None:
    await constructing.prepared(stack)
    operator = stack.operator
    body = ConstructionSubmission(id=new_id(Prefix.CONSTRUCTION), plan=plan())
    first, again = (
        await operator.create_construction(body),
        await operator.create_construction(body),
    )
    assert first == again and len((await operator.constructions()).items) == 1
    with pytest.raises(Conflict):
        await operator.create_construction(body.model_copy(update={"plan": plan(goal="Else.")}))
    made = await operator.record_construction(first.id, Propose())
    assert (await operator.record_construction(first.id, Propose())) == made
    made = await operator.record_construction(first.id, Probe(files=(rows(),)))
    made = await operator.record_construction(first.id, review(made))
    results: list[Construction | PracticumError] = []

    async def approve(name: str) -> None:
        try:
            results.append(await operator.approve_construction(made.id, approval(made, name=name)))
        except PracticumError as error:
            results.append(error)

    async with anyio.create_task_group() as group:
        for name in ("Ada", "Grace", "Ada"):
            group.start_soon(approve, name)
    read = await operator.construction(made.id)
    assert read.approver is not None
    winners = [one for one in results if isinstance(one, Construction)]
    assert {one.approver and one.approver.name for one in winners} == {read.approver.name}
    assert len(winners) == (2 if read.approver.name == "Ada" else 1)
    assert [step.kind for step in read.steps].count("approve") == 1


async def test_a_trials_grant_makes_plans_of_its_own_and_approves_as_a_policy_alone_invariant_13(
    stack: Stack,
) -> None:
    scopes: list[JsonValue] = ["read", "construct", "approve", "start"]
    async with begun(stack, {"scopes": scopes, "max_runs": 1, "max_slots": 8}) as episode:
        await stage.publish(stack, HELD_OUT, ("acme/four", "acme/five"))
        theirs, agent = await constructing.proposed(stack), episode.agent
        with pytest.raises(Forbidden, match="did not make"):
            await agent.record_construction(theirs.id, Probe(files=(rows(),)))
        with pytest.raises(Forbidden, match="did not make"):
            under = {"construction": theirs.id}
            await agent.start(stage.submission(constructing.PROBE).model_copy(update=under))
        body = ConstructionSubmission(id=new_id(Prefix.CONSTRUCTION), plan=plan())
        made = await agent.create_construction(body)
        await agent.record_construction(made.id, Propose())
        made = await agent.record_construction(made.id, Probe(files=(rows(),)))
        made = await agent.record_construction(made.id, review(made))
        with pytest.raises(Forbidden, match="does not approve as a person"):
            await agent.approve_construction(made.id, approval(made))
        made = await agent.approve_construction(made.id, approval(made, "policy", "small"))
        assert {step.by for step in made.steps} == {f"grant {episode.token.grant}"}


async def test_training_rows_are_rows_that_were_recorded(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.approved(stack, method="supervised")
    digest = await stack.operator.upload(b'{"messages": []}\n')
    source: JsonValue = {"file": "rows.jsonl", "digest": digest, "size": 17, "rows": 1}
    run = await constructing.start(
        stack, made.id, {"source": source, "batch_size": 1}, dataset=None
    )
    record = stack.operator.record_construction
    with pytest.raises(Conflict, match="no bulk record names"):
        await record(made.id, Training(runs=(run,)))
    file = rows(1).model_copy(update={"digest": digest})
    made = await record(made.id, Bulk(files=(file,)))
    with pytest.raises(InvalidInput, match="held out"):
        await record(made.id, Bulk(datasets=(HELD_OUT,)))
    assert (await record(made.id, Training(runs=(run,)))).state is S.TRAINING


async def test_work_is_not_recorded_before_approval(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.reviewed(stack)
    for early in (Bulk(datasets=(stage.DATASET,)), Outcome(result="baseline", note="no")):
        with pytest.raises(Conflict) as refused:
            await stack.operator.record_construction(made.id, early)
        assert refused.value.problem.code is ErrorCode.CONSTRUCTION_NOT_APPROVED
