"""Files of a supervised plan, through the operations: shown, counted, uploaded, learned."""

import json
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from pydantic import JsonValue

from runtime import exclusive
from runtime.compute.server import create_app
from specs.errors import ErrorCode, InvalidInput, NotFound, PracticumError
from specs.operator_api import CheckpointUses
from specs.records import Checkpoint
from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live, live
from tests.runtime.learning.test_files import LORA, rows
from tools.checkpoint import Exported
from tools.context import Context
from tools.registry import call, find
from tools.start import StartResult, start_text
from tools.train import PreviewPage
from tools.update import UpdateDetail

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


class _Quiet(uvicorn.Server):
    """Leaves the signals of the test process alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@dataclass
class Desk:
    """An operator's shell, with a gateway and a compute that answer."""

    live: Live
    folder: Path

    async def do(self, noun: str, verb: str, **values: Any) -> Any:
        return await call(find(noun, verb), Context(self.live.stack.home), values)

    def write(self, name: str, data: bytes | dict[str, Any]) -> str:
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return str(path)


@pytest.fixture
async def desk(
    short_dir: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    home = stage.prepared_home(short_dir, stage.migrated(tmp_path_factory.mktemp("template")))
    async with live(home, tmp_path / "compute") as running:
        config = uvicorn.Config(create_app(running.compute), log_config=None, access_log=False)
        server = _Quiet(config)
        with exclusive.listen(home.compute_socket) as listener:
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve, [listener])
                while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
                    await anyio.sleep(0.01)
                yield Desk(running, tmp_path)
                server.should_exit = True


PLAN: dict[str, JsonValue] = {
    "source": {"file": "rows.jsonl", "overlong": "exclude"},
    "validation": {"file": "check.jsonl", "every_examples": 2},
    "epochs": 2,
    "batch_size": 2,
    "lora": LORA,
}


async def test_from_a_file_to_a_checkpoint_in_a_folder(desk: Desk) -> None:
    """Preview, dry run, start, the rows behind an update, export, delete."""
    path = desk.write("rows.jsonl", rows("one", "two", "x" * 5000))
    desk.write("check.jsonl", rows("three"))
    plan = "@" + desk.write("plan.json", {"kind": "supervised", **PLAN})

    page: PreviewPage = await desk.do(
        "train", "preview", file=path, model="tiny", overlong="exclude", limit=1
    )
    assert (page.corpus.rows, page.corpus.examples, page.corpus.excluded_overlong) == (3, 2, 1)
    (shown,) = page.items
    assert [span.target for span in shown.spans] == [False, True]
    assert shown.spans[1].text == "eno<|im_end|>"
    assert (shown.id, shown.target_tokens) == ('"000"', 4)
    assert page.next == "1"
    (only,) = (
        await desk.do("train", "preview", file=path, model="tiny", overlong="exclude", line=2)
    ).items
    assert only.line == 2

    start = {"actor": stage.profile(), "plan": plan}
    dry: StartResult = await desk.do("train", "start", **start, dry_run=True)
    source, validation = dry.corpora
    assert (source.examples, source.steps, validation.steps) == (2, 2, None)
    assert source.processed_tokens == 2 * source.tokens
    assert "steps                 2" in start_text(dry)
    with pytest.raises(NotFound):  # nothing has been uploaded
        await desk.live.stack.operator.object(source.digest)

    started: StartResult = await desk.do("train", "start", **start)
    assert started.run is not None
    await desk.live.work(started.run)
    reads = desk.live.stack.operator
    pinned = (await reads.run(started.run)).spec.plan.model_dump()["source"]
    assert (pinned["digest"], pinned["rows"], pinned["size"]) == (source.digest, 3, source.size)
    update = (await reads.updates(started.run)).items[0]
    detail: UpdateDetail = await desk.do(
        "update", "show", run=started.run, update=update.id, trial="trl_"
    )
    assert detail.contributions == []
    detail = await desk.do("update", "show", run=started.run, update=update.id)
    assert {one.row.line for one in detail.contributions if one.row} == {1, 2}

    (first, last) = (await reads.checkpoints(started.run)).items
    target = desk.folder / "made" / "out"
    made: Exported = await desk.do("checkpoint", "export", checkpoint=last.id, folder=str(target))
    assert made.size == sum((target / name).stat().st_size for name in made.files)
    assert (target / "adapter_model.safetensors").read_bytes() == await reads.object(last.adapter)
    uses: CheckpointUses = await desk.do("checkpoint", "uses", checkpoint=first.id)
    assert (uses.runs, uses.groups) == ([], 0)
    gone: Checkpoint = await desk.do("checkpoint", "delete", checkpoint=first.id)
    assert gone.deleted_at is not None
    with pytest.raises(InvalidInput, match="has no weights"):
        await desk.do("checkpoint", "export", checkpoint=first.id, folder=str(target) + "2")


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_bad_row_is_named_before_anything_exists(desk: Desk, dry_run: bool) -> None:
    desk.write("rows.jsonl", rows("one") + b'\n{"messages": NaN}')
    plan = "@" + desk.write("plan.json", {"source": {"file": "rows.jsonl"}, "batch_size": 1})
    with pytest.raises(PracticumError, match=r"Line 2 of .*rows\.jsonl") as refused:
        await desk.do("train", "start", actor=stage.profile(), plan=plan, dry_run=dry_run)
    assert refused.value.problem.code is ErrorCode.INVALID_JSON
    assert (await desk.live.stack.operator.runs()).items == []


async def test_a_file_that_is_not_there_and_a_model_that_is_unknown_are_named(desk: Desk) -> None:
    plan = {"source": {"file": "absent.jsonl"}, "batch_size": 1}
    with pytest.raises(InvalidInput, match=r"absent\.jsonl cannot be read") as absent:
        await desk.do("train", "start", actor=stage.profile(), plan=plan)
    assert absent.value.problem.code is ErrorCode.INVALID_REFERENCE
    path = desk.write("rows.jsonl", rows("one"))
    with pytest.raises(PracticumError) as unknown:
        await desk.do("train", "preview", file=path, model="nonesuch")
    assert unknown.value.problem.code is ErrorCode.MODEL_UNKNOWN
