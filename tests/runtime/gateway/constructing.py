"""Construction plans and the steps that tests take with them."""

import json
from typing import Any

from pydantic import JsonValue

from specs.construction import ConstructionPlan
from specs.construction_records import (
    Approval,
    Construction,
    ConstructionSubmission,
    Probe,
    Propose,
    Review,
    RowsFile,
)
from specs.errors import Conflict
from specs.ids import Prefix, new_id
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

HELD_OUT = "acme/held-out@v1"
PROBE: dict[str, JsonValue] = {"trials_per_task": 1}
"""Three slots on the dataset of `stage`."""


def plan(**changes: Any) -> ConstructionPlan:
    """A complete plan with room for one probe of three slots, and for one training run."""
    document: dict[str, Any] = {
        "schema": "practicum.construction-plan/v1",
        "name": "acme/shell",
        "goal": "Answer questions about a folder with the shell.",
        "model_spec": {"digest": "sha256:" + "a" * 64, "name": "acme/shell@v1"},
        "model": "tiny",
        "tools": [{"name": "bash", "purpose": "runs one command"}],
        "queries": [
            {"id": "count", "text": "How many files are there?"},
            {"id": "largest", "text": "Which file is the largest?"},
        ],
        "sources": [{"kind": "dataset", "reference": stage.DATASET}],
        "method": "grpo",
        "reason": "The tasks have a verifier.",
        "assessment": {
            "dataset": HELD_OUT,
            "attempts": 2,
            "baseline": "tiny",
            "success": "More tasks pass.",
        },
        "budget": {
            "trial_slots": 40,
            "updates": 2,
            "rows": 40,
            "probe": {"trial_slots": 4, "rows": 10},
        },
        **changes,
    }
    return ConstructionPlan.model_validate_json(json.dumps(document))


def rows(count: int = 5, digit: str = "b") -> RowsFile:
    return RowsFile(name="rows.jsonl", digest="sha256:" + digit * 64, rows=count)


def review(made: Construction, *, relevant: bool = True, largest: str = "covered") -> Review:
    assert made.review_subject is not None
    return Review.model_validate(
        {
            "subject": made.review_subject,
            "reviewer": "quality-reviewer",
            "relevant": relevant,
            "coverage": (
                {"query": "count", "verdict": "covered"},
                {"query": "largest", "verdict": largest},
            ),
        }
    )


def approval(made: Construction, kind: str = "person", name: str = "Ada") -> Approval:
    assert made.approval_subject is not None
    return Approval.model_validate(
        {"approver": {"kind": kind, "name": name}, "subject": made.approval_subject}
    )


async def prepared(stack: Stack) -> None:
    """Tasks to practise on, and others that are held out."""
    await stage.publish(stack)
    await stage.publish(stack, HELD_OUT, ("acme/four", "acme/five"))


async def created(stack: Stack, **changes: Any) -> Construction:
    submission = ConstructionSubmission(id=new_id(Prefix.CONSTRUCTION), plan=plan(**changes))
    return await stack.operator.create_construction(submission)


async def proposed(stack: Stack, **changes: Any) -> Construction:
    made = await created(stack, **changes)
    return await stack.operator.record_construction(made.id, Propose())


async def start(
    stack: Stack, construction: str, document: dict[str, JsonValue], **more: Any
) -> str:
    submission = stage.submission(document, **more)
    submission = submission.model_copy(update={"construction": construction})
    return (await stack.operator.start(submission)).run


async def ended(stack: Stack, run: str) -> None:
    """Let a worker take the run and end it after a trial in one slot."""
    hand = await Hand.take(stack)
    assert hand.run == run
    await hand.batch()
    group = await hand.group(size=1)
    await hand.settle(await hand.trial(group))
    await hand.complete("failed", Conflict("It was made to end.").problem)


async def probed(stack: Stack, **changes: Any) -> Construction:
    made = await proposed(stack, **changes)
    return await stack.operator.record_construction(made.id, Probe(files=(rows(),)))


async def reviewed(stack: Stack, **changes: Any) -> Construction:
    made = await probed(stack, **changes)
    return await stack.operator.record_construction(made.id, review(made))


async def approved(stack: Stack, **changes: Any) -> Construction:
    made = await reviewed(stack, **changes)
    return await stack.operator.approve_construction(made.id, approval(made))
