"""Checkpoints: saved models, what made them and what refers to them, export and deletion."""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from runtime.client import OperatorClient
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.operator_api import CheckpointPage, CheckpointUses
from specs.records import Checkpoint
from tools.checkpoint_export import write_export
from tools.context import Context
from tools.fields import Cli, Cursor, Duration, Input, Limit
from tools.registry import READ, Traits, operation
from tools.tables import pairs, size, table


class ListCheckpoints(Input):
    limit: Limit = 20
    cursor: Cursor = None


CheckpointRef = Annotated[
    str, Field(description="Checkpoint id; a unique short form will do"), Cli(positional=True)
]
WholeId = Annotated[str, Field(description="Whole checkpoint id"), Cli(positional=True)]


class OneCheckpoint(Input):
    checkpoint: CheckpointRef


class Export(Input):
    checkpoint: CheckpointRef
    folder: Annotated[str, Field(description="Folder to make"), Cli(positional=True)]
    state: Annotated[bool, Field(description="Also the trainer state: Adam's moments, step")] = (
        False
    )
    base: Annotated[bool, Field(description="Also the base model, as transformers reads it")] = (
        False
    )


class Delete(Input):
    checkpoint: WholeId
    state_only: Annotated[
        bool, Field(description="Delete the trainer state alone; the weights stay")
    ] = False


class Keep(Input):
    checkpoint: WholeId
    keep_for: Annotated[
        Duration | None,
        Field(description="From now on, such as 72h; left out: for good", gt=0),
        Cli(option="--for"),
    ] = None


class Exported(Contract):
    """A folder that was written."""

    checkpoint: str
    folder: str
    files: list[str]
    size: int
    next: str


def page_text(page: CheckpointPage) -> str:
    """A list of checkpoints."""
    return table(
        ("checkpoint", "run", "batch", "final", "sampler", "weights", "state", "created"),
        [
            (c.id, c.run, c.batch, c.final, c.sampler, _weights(c), _state(c), c.created_at)
            for c in page.items
        ],
        more=page.next,
    )


def _weights(checkpoint: Checkpoint) -> str:
    return "deleted" if checkpoint.deleted_at else size(checkpoint.adapter_size)


def _state(checkpoint: Checkpoint) -> str | None:
    if checkpoint.state is None:
        return None
    if checkpoint.state_deleted_at is not None:
        return "deleted"
    until = checkpoint.state_expires_at
    return size(checkpoint.state_size or 0) + ("" if until is None else f" until {until[:16]}")


def _text(checkpoint: Checkpoint) -> str:
    context = checkpoint.context
    return pairs(
        {
            "checkpoint": checkpoint.id,
            "run": checkpoint.run,
            "update": checkpoint.update,
            "batch": checkpoint.batch,
            "final": checkpoint.final,
            "base model": checkpoint.base_model,
            "sampler": checkpoint.sampler,
            "adapter": f"{checkpoint.adapter} {_weights(checkpoint)}",
            "trainer state": checkpoint.state and f"{checkpoint.state} {_state(checkpoint)}",
            "state expires": checkpoint.state_expires_at or "never",
            "deleted": checkpoint.deleted_at,
            "lora": checkpoint.lora,
            "backend": context and context.backend,
            "optimizer": context and context.optimizer.model_dump(),
            "optimizer steps": context and context.steps,
            "batches done": context and context.batches,
            "examples done": context and context.examples,
            "dataset": context and context.dataset,
            "file": context and context.file,
            "plan": context and context.plan,
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


def _uses_text(uses: CheckpointUses) -> str:
    return pairs(
        {
            "checkpoint": uses.checkpoint,
            "its run is at work": uses.own_run_active,
            "runs that used it": uses.runs or "none",
            "profiles that name it": uses.profiles or "none",
            "open sessions": uses.sessions or "none",
            "groups recorded against it": uses.groups,
        }
    )


def _exported_text(exported: Exported) -> str:
    head = pairs({"checkpoint": exported.checkpoint, "folder": exported.folder})
    return "\n".join([head, *exported.files, f"{size(exported.size)}; {exported.next}"])


@operation("checkpoint", "uses", READ, text=_uses_text)
async def uses(context: Context, request: OneCheckpoint) -> CheckpointUses:
    """Show what refers to a checkpoint: runs, profiles, sessions, recorded calls.

    While something does, `checkpoint delete` refuses.
    """
    async with context.gateway() as gateway:
        found = await gateway.checkpoint(request.checkpoint)
        return await gateway.checkpoint_uses(found.id)


@operation("checkpoint", "export", Traits(local=True), text=_exported_text)
async def export(context: Context, request: Export) -> Exported:
    """Write a checkpoint as a folder in PEFT's layout, with its record beside the weights.

    transformers + peft load it and give the log-probabilities that were recorded, on the weights
    that `--base` adds. On cancel nothing is left.
    """
    async with context.gateway() as gateway:
        found = await gateway.checkpoint(request.checkpoint)
        sampler = await gateway.sampler(found.sampler)
        adapter = await _bytes(gateway, found, found.adapter, "weights", found.deleted_at)
        state = None
        if request.state:
            gone = found.state_deleted_at or (None if found.state else found.created_at)
            state = await _bytes(gateway, found, found.state or "", "trainer state", gone)
    base = await anyio.to_thread.run_sync(_base_folder, found) if request.base else None
    folder = Path(request.folder)
    write = partial(write_export, folder, found, sampler, adapter, state=state, base=base)
    files = await anyio.to_thread.run_sync(write)
    sizes = await anyio.to_thread.run_sync(lambda: [(folder / f).stat().st_size for f in files])
    return Exported(
        checkpoint=found.id,
        folder=str(folder),
        files=[str(file) for file in files],
        size=sum(sizes),
        next=f"{folder / 'README.md'} says how to load it.",
    )


@operation("checkpoint", "delete", Traits(destructive=True, idempotent=True), text=_text)
async def delete(context: Context, request: Delete) -> Checkpoint:
    """Delete a checkpoint's weights and trainer state, or with `--state-only` the state alone.

    Refused (`checkpoint_in_use`) while runs, profiles, sessions or recorded calls refer to it. The
    record stays, since lineage passes through it. The space is free after the stack's next start.
    """
    async with context.gateway() as gateway:
        return await gateway.delete_checkpoint(request.checkpoint, state_only=request.state_only)


@operation("checkpoint", "keep", Traits(idempotent=True), text=_text)
async def keep(context: Context, request: Keep) -> Checkpoint:
    """Set how long a checkpoint's trainer state is kept.

    Weights never expire. A plan sets it with `"checkpoints": {"state_ttl_sec": …}`.
    """
    async with context.gateway() as gateway:
        return await gateway.keep_checkpoint(request.checkpoint, request.keep_for)


async def _bytes(
    gateway: OperatorClient, checkpoint: Checkpoint, digest: str, what: str, gone: str | None
) -> bytes:
    if gone is not None:
        raise InvalidInput(
            f"Checkpoint {checkpoint.id} has no {what}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="checkpoint", id=checkpoint.id),
            next="practicum checkpoint list shows what each has.",
        )
    return await gateway.object(digest)


def _base_folder(checkpoint: Checkpoint) -> Path:
    from runtime.compute.models import model_path

    return model_path(checkpoint.base_model)
