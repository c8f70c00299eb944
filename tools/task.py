"""Tasks: what one of a published dataset, or of a local folder, asks for and consists of.

A task of a dataset is read from its package, whose digest was checked; a local folder is packed
as `dataset publish` would pack it, so what is shown is what would be published.
"""

from dataclasses import dataclass
from typing import Annotated

import anyio.to_thread
from pydantic import Field, JsonValue

from specs import package
from specs.base import Contract
from specs.dataset import TaskEntry
from specs.errors import ErrorObject, NotFound
from specs.paths import user_path
from tools.context import Context
from tools.documents import reference
from tools.excerpts import ByteLimit, Excerpt, FileEntry, chosen, excerpt, excerpt_text
from tools.fields import Cli, Cursor, Input, Limit
from tools.paging import cut
from tools.registry import READ_LOCAL, operation
from tools.tables import pairs, size, table
from tools.task_folders import TaskFolder, read_task

INSTRUCTION = "instruction.md"


class Show(Input):
    task: Annotated[
        str, Field(description="Task name, or without dataset its folder"), Cli(positional=True)
    ]
    dataset: Annotated[str | None, Field(description="org/name@version that has it")] = None
    file: Annotated[str | None, Field(description="Read this file instead")] = None
    byte_limit: ByteLimit = 6000
    limit: Limit = 100
    cursor: Cursor = None


class TaskView(Contract):
    """A task, and one page of its files or a piece of one of them."""

    name: str
    dataset: str | None
    digest: str
    size: int
    metadata: dict[str, JsonValue]
    instruction: Excerpt | None
    files: list[FileEntry]
    text: Excerpt | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    entry: TaskEntry
    files: dict[str, bytes]
    listing: str


def _text(view: TaskView) -> str:
    head = pairs(
        {
            "task": view.name,
            "dataset": view.dataset,
            "digest": view.digest,
            "size": size(view.size),
            "metadata": view.metadata or None,
        }
    )
    if view.text is not None:
        return f"{head}\n{excerpt_text(view.text)}"
    shown = "" if view.instruction is None else f"\n{excerpt_text(view.instruction)}"
    rows = [(one.path, size(one.size)) for one in view.files]
    return f"{head}{shown}\n{table(('file', 'size'), rows, more=view.next)}"


@operation("task", "show", READ_LOCAL, text=_text)
async def show(context: Context, request: Show) -> TaskView:
    """Show a task's instruction, metadata and files; with `file`, a piece of that file's text."""
    if request.dataset is None:
        found = await anyio.to_thread.run_sync(_local, request.task)
    else:
        found = await _published(context, request.dataset, request.task)
    entry = found.entry
    view = TaskView(
        name=entry.name,
        dataset=request.dataset,
        digest=entry.digest,
        size=entry.size,
        metadata=entry.metadata,
        instruction=None,
        files=[],
    )
    if request.file is not None:
        owner = ErrorObject(type="task", id=entry.name)
        data = chosen(found.files, request.file, owner, found.listing)
        piece = excerpt(request.file, data, request.byte_limit, request.cursor)
        return view.model_copy(update={"text": piece, "next": piece.next})
    entries = [FileEntry(path=path, size=len(data)) for path, data in found.files.items()]
    page, following = cut(entries, request.limit, request.cursor)
    instruction = found.files.get(INSTRUCTION)
    return view.model_copy(
        update={
            "instruction": instruction
            if instruction is None
            else excerpt(INSTRUCTION, instruction, request.byte_limit),
            "files": page,
            "next": following,
        }
    )


def _local(folder: str) -> _Found:
    path = user_path(folder)
    if not path.is_dir():
        raise NotFound(
            f"There is no task folder {path}.",
            object=ErrorObject(type="task", id=folder),
            next="Name a folder with a task.toml, or say which dataset has the task.",
        )
    task: TaskFolder = read_task(path)
    return _Found(task.entry, package.files(task.package), f"practicum task show {folder}")


async def _published(context: Context, dataset: str, name: str) -> _Found:
    async with context.gateway() as gateway:
        found = await gateway.dataset(reference(dataset, "dataset"))
        for entry in found.value.tasks:
            if entry.name == name:
                listing = f"practicum task show {name} --dataset {dataset}"
                data = await gateway.object(entry.digest)
                files = await anyio.to_thread.run_sync(package.files, data)
                return _Found(entry, files, listing)
    raise NotFound(
        f"{dataset} has no task {name!r}.",
        object=ErrorObject(type="task", id=name),
        next=f"See its tasks: practicum dataset show {dataset}",
    )
