"""Every tool of the list does its work for valid arguments, by the official client, on a run that
was really trained and evaluated.

`CASES` is in the order of a piece of work. A tool without a case fails here.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult

from mcp_server.server import build_server
from specs import canonical
from specs.operator_api import SessionRequest
from tests.e2e.support import write_tasks
from tests.runtime.gateway import stage
from tests.runtime.learning.conftest import template
from tests.runtime.learning.live import PLAN, Live
from tests.tools.conftest import live

__all__ = ["live", "template"]
pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]
ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@dataclass
class World:
    """What there is, by name, and what the last call answered."""

    folder: Path
    known: dict[str, str] = field(default_factory=dict[str, str])
    answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def __getitem__(self, name: str) -> str:
        return self.known[name]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def trial(self) -> dict[str, str]:
        return {"run": self["run"], "trial": self["trial"]}


type Arguments = Callable[[World], dict[str, Any]]


def fixed(**values: Any) -> Arguments:
    return lambda _: values


def of(*names: str, **values: Any) -> Arguments:
    """Arguments of these names whose values the world knows."""
    return lambda world: {name: world[name] for name in names} | values


def construction(world: World) -> dict[str, Any]:
    """The id of the construction that was created."""
    return {"construction": world.answers["construction_create"]["id"]}


def _datums(world: World) -> dict[str, Any]:
    datum = {
        "tokens": [5, 6, 7],
        "targets": [6, 7, 8],
        "logprobs": [0.0, -1.0, -1.0],
        "advantages": [0.0, 1.0, 1.0],
    }
    return {"run": world["run"], "update": world["update"], "datums": {"datums": [datum]}}


EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = str(EXAMPLES / "shell-specialist.json")
EPISODE = str(EXAMPLES / "episodes/shell-specialist/tasks/shell-specialist/tests/episode.json")
CONSTRUCTION: dict[str, Any] = json.loads((EXAMPLES / "construction" / "plan.json").read_text())
REVISED = CONSTRUCTION | {"goal": "Another one."}
START = {"dataset": stage.DATASET, "actor": stage.profile()}
CASES: dict[str, Arguments] = {
    "stack_status": fixed(),
    "model_list": fixed(),
    "model_pull": fixed(name="tiny"),
    "model_sample": fixed(model="tiny", prompt="a", max_tokens=2),
    "dataset_publish": lambda w: {"folder": w.path("tasks"), "publish_as": "e2e/parity@v1"},
    "dataset_list": fixed(limit=1),
    "dataset_show": fixed(dataset="e2e/parity@v1"),
    "dataset_select": fixed(dataset=stage.DATASET, family=["even"]),
    "dataset_split": fixed(dataset=stage.DATASET, whole_families=True),
    "task_show": fixed(task="e2e/parity-0", dataset="e2e/parity@v1", file="task.toml"),
    "profile_validate": fixed(profile=stage.profile()),
    "profile_publish": fixed(profile=stage.profile(), version="v1"),
    "profile_list": fixed(),
    "profile_show": fixed(profile="acme/solver@v1"),
    "profile_diff": fixed(left="acme/solver@v1", right=stage.profile(model="other")),
    "plan_validate": fixed(plan=PLAN),
    "model_spec_create": lambda w: {
        "file": w.path("spec.json"),
        "name": "acme/one",
        "behaviour": "Says hello.",
        "instructions": "Say hello.",
        "model": "tiny",
        "useful": ["hello=It says hello."],
    },
    "model_spec_validate": lambda w: {"spec": w.path("spec.json")},
    "model_spec_show": lambda w: {"spec": w.path("spec.json")},
    "model_spec_render": fixed(spec=SPEC),
    "model_spec_check": fixed(spec=SPEC, rows=str(EXAMPLES / "rows" / "commands.jsonl")),
    "construction_validate": fixed(plan=CONSTRUCTION),
    "construction_create": fixed(plan=CONSTRUCTION),
    "construction_list": fixed(),
    "construction_show": construction,
    "construction_revise": lambda w: construction(w) | {"plan": REVISED, "replaces": 1},
    "construction_record": lambda w: construction(w) | {"kind": "propose"},
    "construction_approve": lambda w: (
        construction(w)
        | {"subject": canonical.digest("x"), "approver": "small", "approver_kind": "policy"}
    ),
    "agent_validate": fixed(profile=stage.profile()),
    "agent_install": fixed(),
    "run_start": fixed(**START, plan=stage.EVALUATION),
    "model_spec_observe": lambda w: {"spec": SPEC, "run": w.answers["run_start"]["run"]},
    "run_cancel": lambda w: {"run": w.answers["run_start"]["run"]},
    "train_start": fixed(**START, plan=PLAN, dry_run=True),
    "train_preview": lambda w: {"file": w.path("rows.jsonl"), "model": "tiny"},
    "train_check": fixed(profile=stage.profile(), dataset=stage.DATASET, tasks=1, trials=3),
    "run_list": fixed(limit=2),
    "run_show": of("run"),
    "run_wait": of("run", timeout="10s"),
    "run_events": of("run", after=3, limit=5),
    "run_groups": of("run"),
    "run_trials": of("run", batch=0),
    "run_interactions": lambda w: {**w.trial, "tokens": True, "token_limit": 2},
    "run_transcript": lambda w: {**w.trial, "token_limit": 5},
    "run_artifacts": lambda w: w.trial,
    "run_updates": of("run"),
    "run_checkpoints": of("run"),
    "run_result": of("run"),
    "run_logs": of("run"),
    "run_compare": of("baseline", "candidate"),
    "run_comparisons": fixed(),
    "run_verify": of("run"),
    "run_lineage": of("run", show="spans", limit=2),
    "run_report": lambda w: {"run": w["run"], "out": w.path("report.html")},
    "run_extend": of("run", run_tokens=1000),
    "update_show": of("run", "update"),
    "update_loss": _datums,
    "update_resolve": of("run", "update", decision="applied"),
    "checkpoint_list": fixed(),
    "checkpoint_show": of("checkpoint"),
    "checkpoint_uses": of("checkpoint"),
    "checkpoint_lineage": of("checkpoint"),
    "checkpoint_keep": of("checkpoint", keep_for="10h"),
    "checkpoint_export": lambda w: {"checkpoint": w["checkpoint"], "folder": w.path("export")},
    "checkpoint_delete": of("checkpoint", state_only=True),
    "session_list": fixed(),
    "session_show": of("session"),
    "session_close": of("session"),
    "journal_new": lambda w: {"journal": w.path("journal"), "title": "A question"},
    "journal_list": fixed(),
    "journal_append": lambda w: {"journal": w.path("journal"), "text": "Seen."},
    "journal_show": lambda w: {"journal": w.path("journal")},
    "journal_search": lambda w: {"journal": w.path("journal"), "text": "seen"},
    "journal_export": lambda w: {"journal": w.path("journal"), "out": w.path("journal.out")},
    "episode_verify": lambda w: {"episode": EPISODE, "work": [w["session"]], "limit": 3},
    "episode_show": fixed(episode=EPISODE),
}
NOT_NOW = {
    "run_extend": "state_conflict",
    "update_resolve": "state_conflict",
    "construction_record": "model_unknown",
    "construction_approve": "state_conflict",
}
"""What a run that went well has no need of, and a plan for a model that is not here has to
wait for, is told so."""


async def prepared(live: Live, folder: Path) -> World:
    """A training run, an evaluation before and after it, and files."""
    write_tasks(folder / "tasks", 2)
    (folder / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    world, reads = World(folder), live.stack.operator
    run = await live.start(PLAN)
    await live.work(run)
    checkpoint = (await reads.checkpoints(run)).items[-1].id
    for name, options in (("baseline", {}), ("candidate", {"model": checkpoint})):
        world.known[name] = await live.start({"trials_per_task": 3}, **options)
        await live.work(world[name])
    session = await reads.open_session(SessionRequest(model="tiny", purpose="claude"))
    world.known |= {
        "run": run,
        "checkpoint": checkpoint,
        "trial": (await reads.trials(run)).items[0].id,
        "update": (await reads.updates(run)).items[0].id,
        "session": session.session.id,
    }
    return world


async def works(live: Live) -> None:
    """A worker: takes up the run that is queued next."""
    while True:
        newest = (await live.stack.operator.runs(limit=1)).items[0]
        if newest.state == "queued":
            await live.work(newest.id)
        await anyio.sleep(0.05)


async def called(
    live: Live, client: Client, name: str, arguments: dict[str, Any]
) -> CallToolResult:
    """The result of a tool; one that waits for a run of its own has a worker beside it."""
    if name != "train_check":
        return await client.call_tool(name, arguments)
    results: list[CallToolResult] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(works, live)
        results.append(await client.call_tool(name, arguments))
        tasks.cancel_scope.cancel()
    return results[0]


async def test_every_tool_does_its_work(live: Live, tmp_path: Path) -> None:
    world = await prepared(live, tmp_path)
    async with Client(build_server(live.stack.home)) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == set(CASES), "give a new tool a case"
        for name, arguments in CASES.items():
            result = await called(live, client, name, arguments(world))
            answer: dict[str, Any] = result.structured_content or {}
            if name in NOT_NOW:
                assert result.is_error and answer["code"] == NOT_NOW[name], (name, answer)
                continue
            assert not result.is_error, (name, answer)
            world.answers[name] = answer
    assert world.answers["task_show"]["text"]["text"].startswith("schema_version")
    assert world.answers["run_verify"]["run"] == world["run"]
    assert world.answers["episode_verify"]["reward"] == 0, "nobody left an outcome"
    assert (tmp_path / "report.html").is_file() and (tmp_path / "export").is_dir()
