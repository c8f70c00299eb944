"""Every call of every skill is made, onboarding first, on a gateway and files of its own.

Ids are of nothing, so many calls are refused; what is refused for its arguments, or fails as a
defect would, is a mistake of the skill.
"""

import json
import shutil
from pathlib import Path

import pytest

from specs.errors import ErrorCode, PracticumError
from tests.e2e.support import write_tasks
from tests.runtime.gateway import stage
from tests.skills.pages import ROOT, SKILLS, blocks, calls
from tests.skills.test_calls import OFFERED, named_records
from tools import registry
from tools.context import Context

MISTAKES = {ErrorCode.INTERNAL, ErrorCode.INVALID_DOCUMENT, ErrorCode.INVALID_JSON}
ANSWERED = {
    *("construction_create", "construction_validate", "dataset_list", "dataset_publish"),
    *("dataset_show", "journal_append", "journal_export", "journal_new", "journal_search"),
    *("journal_show", "model_list", "model_spec_check", "model_spec_create", "model_spec_render"),
    *("model_spec_validate", "plan_validate", "profile_diff", "profile_validate", "run_list"),
    "stack_status",
}
"""Calls that need nothing but what lies beside them, and so must succeed somewhere."""


def lay_out(folder: Path) -> None:
    """The files that skills speak of, but for those that onboarding makes."""
    profile = (ROOT / "examples" / "profiles" / "baseline.json").read_text()
    shutil.copy(ROOT / "examples" / "profiles" / "agent.py", folder)
    for name in ("trained", "instructed", "teacher"):
        (folder / f"{name}.json").write_text(profile)
    for name in ("rows", "probe", "check"):
        shutil.copy(ROOT / "examples" / "rows" / "commands.jsonl", folder / f"{name}.jsonl")
    (folder / "instructions.txt").write_text("Answer with one shell command.\n")
    (folder / "train-plan.json").write_text(
        '{"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 2}}'
    )
    (folder / "sft.json").write_text('{"source": {"file": "rows.jsonl"}}')
    write_tasks(folder / "my-tasks", 3)
    write_tasks(folder / "held-out", 1)
    (folder / "plan.json").write_text(construction_plan())


def construction_plan() -> str:
    """The plan that the skill of onboarding shows."""
    found = [block for page in SKILLS for block in blocks(page, "json") if '"schema"' in block]
    (plan,) = [block for block in found if "construction-plan" in block]
    return json.dumps(json.loads(plan))


@pytest.mark.anyio
async def test_every_call_is_made_and_none_is_a_mistake(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = stage.prepared_home(short_dir, stage.migrated(short_dir))
    folder = short_dir / "work"
    folder.mkdir()
    lay_out(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PRACTICUM_MODELS", str(short_dir / "models"))
    answered: set[str] = set()
    mistakes: list[tuple[str, str, str]] = []
    pages = sorted(SKILLS, key=lambda page: page.parent.name != "onboard-a-request")
    async with stage.running(home) as stack:
        await stage.publish(stack, "acme/held-out@v1")
        for page in pages:
            for call in calls(page):
                given = named_records(call.arguments)
                try:
                    await registry.call(OFFERED[call.tool], Context(home), given)
                    answered.add(call.tool)
                except PracticumError as error:
                    if error.problem.code in MISTAKES:
                        mistakes.append((page.parent.name, call.tool, error.problem.detail))
    assert mistakes == []
    assert answered >= ANSWERED
