"""Every look at a dataset is recorded once, with how many others there were before it."""

import pytest

from specs.comparison import Comparison, ComparisonSubmission
from specs.errors import Conflict, NotFound
from specs.ids import Prefix, new_id
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Stack
from tools.comparing import Evaluation, Options, compare_evaluations

pytestmark = pytest.mark.anyio


async def evaluation(stack: Stack) -> Evaluation:
    run = await stage.start(stack)
    return Evaluation(await stack.operator.run(run), {"agent": {"model": "tiny"}}, [])


def submission(
    left: Evaluation, right: Evaluation, *, confidence: float = 0.95
) -> ComparisonSubmission:
    found = compare_evaluations(left, right, [], Options(confidence=confidence))
    return ComparisonSubmission(id=new_id(Prefix.COMPARISON), comparison=found)


async def test_looks_at_a_dataset_are_counted_by_pair(stack: Stack) -> None:
    await stage.publish(stack)
    a, b, c = [await evaluation(stack) for _ in range(3)]
    operator = stack.operator
    first = await operator.record_comparison(submission(a, b))
    again = await operator.record_comparison(submission(a, b))
    assert again == first
    assert first.earlier == 0
    wider = await operator.record_comparison(submission(a, b, confidence=0.99))
    assert (wider.earlier, wider.id == first.id) == (0, False)
    other = await operator.record_comparison(submission(a, c))
    assert other.earlier == 1
    third = await operator.record_comparison(submission(b, c))
    assert third.earlier == 2
    digest = a.run.spec.dataset_digest
    listed = await operator.comparisons(dataset=digest, limit=3)
    assert [one.id for one in listed.items] == [third.id, other.id, wider.id]
    rest = await operator.comparisons(dataset=digest, cursor=listed.next)
    assert [one.id for one in rest.items] == [first.id]
    assert isinstance(first.comparison, Comparison)
    elsewhere = await operator.comparisons(dataset="sha256:" + "0" * 64)
    assert elsewhere.items == []


async def test_only_evaluations_that_exist_are_compared(stack: Stack) -> None:
    await stage.publish(stack)
    a = await evaluation(stack)
    run = (await stack.operator.start(stage.submission(stage.TRAINING))).run
    training = Evaluation(await stack.operator.run(run), {}, [])
    with pytest.raises(Conflict, match="training"):
        await stack.operator.record_comparison(submission(a, training))
    gone = a.run.model_copy(update={"id": new_id(Prefix.RUN)})
    with pytest.raises(NotFound):
        await stack.operator.record_comparison(submission(a, Evaluation(gone, {}, [])))
