"""A training run and two evaluations through the operations that people call: the comparison,
its record and its warnings, and the report with every token's weight."""

import json
from pathlib import Path

import pytest

from specs.errors import InvalidInput
from specs.records import UpdateState
from tests.runtime.learning.live import PLAN, Live
from tools.compare import Compare, ListComparisons, compare, comparisons
from tools.context import Context
from tools.lineage import OfCheckpoint, of_checkpoint
from tools.registry import find
from tools.report import Report, report_run

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


async def test_a_checkpoint_is_compared_with_its_base_and_its_run_is_shown(
    running: Live, tmp_path: Path
) -> None:
    reads, context = running.stack.operator, Context(running.stack.home)
    run = await running.start(PLAN)
    await running.work(run)
    (_, last) = (await reads.checkpoints(run)).items
    before = await running.start({"trials_per_task": 3})
    await running.work(before)
    after = await running.start({"trials_per_task": 3}, model=last.id)
    await running.work(after)

    found = await compare(context, Compare(baseline=before, candidate=after, tools=True))
    assert (found.changed, found.expected) == (["model"], True)
    assert found.tasks == 3
    assert found.verdict in ("better", "worse", "inconclusive")
    assert found.baseline.no_reward == {"verifier_failed": 3}
    assert found.baseline.calls == 27
    assert found.baseline.tools == {}
    trained = {group.task for group in (await reads.groups(run)).items}
    assert {(one.task, one.side, one.run) for one in found.trained_on} == {
        (task, "candidate", run) for task in trained
    }
    assert all(one.same_version for one in found.trained_on)
    assert found.earlier == 0
    again = await compare(context, Compare(baseline=before, candidate=after, tools=True, limit=1))
    assert (again.id, again.next, len(again.by_task)) == (found.id, "1", 1)
    other = await compare(context, Compare(baseline=after, candidate=before))
    assert other.earlier == 1
    listed = await comparisons(context, ListComparisons(dataset=found.dataset_digest))
    assert [row.id for row in listed.items] == [other.id, found.id]
    assert "VERDICT" not in find("run", "compare").text(found)
    assert found.verdict.upper() in find("run", "compare").text(found)
    with pytest.raises(InvalidInput, match="only evaluations"):
        await compare(context, Compare(baseline=before, candidate=run))

    shown = await of_checkpoint(context, OfCheckpoint(checkpoint=last.id))
    text = find("checkpoint", "lineage").text(shown)
    assert all(str(name) in text for name in (run, after, shown.spans[0].trial))
    await _report(running, context, run, tmp_path)


async def _report(running: Live, context: Context, run: str, folder: Path) -> None:
    out = folder / "report.html"
    written = await report_run(context, Report(run=run, out=str(out), transcripts=5))
    page = out.read_text()
    assert written.bytes == len(page.encode())
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert [row["batch"] for row in data["batches"]] == [0, 1]
    assert {row["kind"] for row in data["groups"]} == {"learnable"}
    assert len(data["transcripts"]) == 5
    updates = (await running.stack.operator.updates(run)).items
    assert {update.state for update in updates} == {UpdateState.ACKNOWLEDGED}
    weights = {
        name: one.weight
        for update in updates
        for one in update.contributions
        for name in one.interactions
    }
    calls = [call for one in data["transcripts"] for call in one["calls"]]
    assert [call["weight"] for call in calls] == [weights.get(c["interaction"]) for c in calls]
    assert sum(call["weight"] is not None for call in calls) >= 12
    for one in data["transcripts"]:
        root, exact, branch = one["calls"]
        assert (root["new_from"], branch["new_from"]) == (0, 0)
        assert exact["new_from"] == root["prompt_tokens"] + root["output_tokens"]
        assert (exact["prompt"], len(exact["output"])) == (["9"], 4)  # no tokenizer: ids
    spent = [bar for bar in data["bars"] if bar["kind"] == "forward and backward"]
    assert [bar["batch"] for bar in spent] == [0, 0, 1, 1]  # one of each learnable group
    assert all(bar["end"] >= bar["start"] for bar in data["bars"])
    with pytest.raises(InvalidInput, match="cannot be written"):
        await report_run(context, Report(run=run, out=str(folder / "absent" / "r.html")))
