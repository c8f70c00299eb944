"""Checkpoints: saved models, and the run and update that made each."""

from typing import Annotated

from pydantic import Field

from specs.operator_api import CheckpointPage
from specs.records import Checkpoint
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit
from tools.registry import READ, operation
from tools.tables import pairs, size, table


class ListCheckpoints(Input):
    limit: Limit = 20
    cursor: Cursor = None


class OneCheckpoint(Input):
    checkpoint: Annotated[
        str, Field(description="Checkpoint id; a unique short form will do"), Cli(positional=True)
    ]


def page_text(page: CheckpointPage) -> str:
    """A list of checkpoints."""
    return table(
        ("checkpoint", "run", "batch", "final", "sampler", "state", "created"),
        [
            (c.id, c.run, c.batch, c.final, c.sampler, c.state is not None, c.created_at)
            for c in page.items
        ],
        more=page.next,
    )


def _text(checkpoint: Checkpoint) -> str:
    return pairs(
        {
            "checkpoint": checkpoint.id,
            "run": checkpoint.run,
            "update": checkpoint.update,
            "batch": checkpoint.batch,
            "final": checkpoint.final,
            "base model": checkpoint.base_model,
            "sampler": checkpoint.sampler,
            "adapter": f"{checkpoint.adapter} {size(checkpoint.adapter_size)}",
            "trainer state": checkpoint.state,
            "lora": checkpoint.lora,
            "profile": checkpoint.profile,
            "parent": checkpoint.parent,
            "created": checkpoint.created_at,
            "use it": f'"model": "{checkpoint.id}" in a profile',
        }
    )


@operation("checkpoint", "list", READ, text=page_text)
async def list_checkpoints(context: Context, request: ListCheckpoints) -> CheckpointPage:
    """List the checkpoints of all runs, newest first."""
    async with context.gateway() as gateway:
        return await gateway.checkpoints(limit=request.limit, cursor=request.cursor)


@operation("checkpoint", "show", READ, text=_text)
async def show(context: Context, request: OneCheckpoint) -> Checkpoint:
    """Show a checkpoint: its weights, its trainer state, and its place in the lineage.

    To run it, name its id as `agent.model` in a profile and change nothing else.
    """
    async with context.gateway() as gateway:
        return await gateway.checkpoint(request.checkpoint)
