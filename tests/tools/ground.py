"""What operations need under them, without worker and sandboxes: a real gateway, and the real
compute behind its real HTTP carrier, in the places where a stack has them.

`Live` drives runs through it: attempts are sampled from the real model and learnt from.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runtime.compute.client import HttpCompute
from runtime.compute.protocol import Compute
from runtime.home import Home
from specs.operator_api import ModelList
from tests.runtime.compute.conftest import serving
from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live
from tools import registry
from tools.context import Context

TASK = """\
[task]
name = "{name}"

[metadata]
family = "{family}"
"""


def write_task(folder: Path, name: str, *, family: str = "one", **files: str) -> Path:
    """A task folder; `files` are further ones."""
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK.format(name=name, family=family))
    (folder / "instruction.md").write_text("Say “hello”.\n")
    for path, text in files.items():
        (folder / path).write_text(text)
    return folder


async def ask[T](live: Live, tool: str, kind: type[T], **values: object) -> tuple[T, str]:
    """The result of an operation, and its text."""
    noun, _, verb = tool.partition(" ")
    chosen = registry.find(noun, verb)
    result: Any = await registry.call(chosen, Context(live.stack.home), values)
    assert isinstance(result, kind)
    return result, chosen.text(result)


@asynccontextmanager
async def ground(home: Home, compute: Compute) -> AsyncGenerator[Live]:
    """Serve a prepared home, and compute beside it."""
    with serving(compute, home.compute_socket):
        async with HttpCompute(home.compute_socket) as client, stage.running(home) as stack:
            await stage.publish(stack)
            info = await client.model("tiny")
            await stack.worker.upload(await client.tokenizer("tiny"))
            await stack.worker.put_models(ModelList(models=[info]))
            yield Live(stack, client)
