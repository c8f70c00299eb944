"""Datasets: publishing a folder of tasks, looking at one, choosing from one."""

import fnmatch
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import anyio.to_thread
from pydantic import Field, JsonValue

from runtime.client import OperatorClient
from specs import canonical
from specs.base import Contract
from specs.dataset import Dataset, TaskEntry
from specs.errors import ErrorObject, NotFound
from specs.operator_api import Published, PublishedPage
from tools.context import Context
from tools.documents import reference
from tools.fields import Cli, Cursor, Input, Limit
from tools.paging import cut
from tools.registry import PUBLISH, READ, Traits, operation
from tools.tables import pairs, short, size, table
from tools.task_folders import read_task, task_folders

DatasetRef = Annotated[
    str, Field(description="org/name@version"), Cli(positional=True, metavar="DATASET")
]
As = Annotated[str, Field(description="org/name@version to publish as"), Cli(option="--as")]


class Publish(Input):
    folder: Annotated[
        str, Field(description="Folder whose subfolders are Harbor tasks"), Cli(positional=True)
    ]
    publish_as: As


class ListDatasets(Input):
    limit: Limit = 50
    cursor: Cursor = None


class Show(Input):
    dataset: DatasetRef
    limit: Limit = 100
    cursor: Cursor = None


class Select(Input):
    dataset: DatasetRef
    family: Annotated[tuple[str, ...], Field(description="Families to take")] = ()
    capability: Annotated[tuple[str, ...], Field(description="Capabilities to take")] = ()
    name: Annotated[tuple[str, ...], Field(description="Names to take; * matches anything")] = ()
    limit: Annotated[int | None, Field(ge=1, description="Take the first so many")] = None
    publish_as: Annotated[
        str | None,
        Field(description="org/name@version to publish the chosen tasks as"),
        Cli(option="--as"),
    ] = None


class DatasetView(Contract):
    """A dataset with one page of its tasks."""

    reference: str
    digest: str
    count: int
    families: dict[str, int]
    tasks: list[TaskEntry]
    next: str | None = None


class Selected(Contract):
    """Chosen tasks, in the dataset's order."""

    dataset: str
    digest: str
    count: int
    families: dict[str, int]
    tasks: dict[str, JsonValue]
    """The value of `tasks` in an evaluation plan."""
    published: Published | None = None


def _published_text(published: Published) -> str:
    return f"{published.reference}  {published.digest}"


def _page_text(page: PublishedPage) -> str:
    return table(
        ("reference", "digest", "size", "published"),
        [(p.reference, short(p.digest), size(p.size), p.created_at) for p in page.items],
        more=page.next,
    )


def _view_text(view: DatasetView) -> str:
    head = pairs(
        {
            "dataset": view.reference,
            "digest": view.digest,
            "tasks": view.count,
            "families": view.families,
        }
    )
    rows = [
        (t.name, t.metadata.get("family"), t.metadata.get("capability"), short(t.digest))
        for t in view.tasks
    ]
    return f"{head}\n{table(('task', 'family', 'capability', 'digest'), rows, more=view.next)}"


def _selected_text(selected: Selected) -> str:
    names = selected.tasks["names"]
    listed = "\n".join(str(name) for name in names) if isinstance(names, list) else ""
    head = pairs({"tasks": selected.count, "families": selected.families})
    done = f"\n{_published_text(selected.published)}" if selected.published else ""
    return f"{head}\n{listed}{done}"


@operation("dataset", "publish", PUBLISH, text=_published_text)
async def publish(context: Context, request: Publish) -> Published:
    """Pack every task folder, upload the packages, and publish the list as one version.

    A version is immutable: publishing the same content again changes nothing, other content is
    refused (`version_exists`). On cancel some packages may have been uploaded; nothing is
    published.
    """
    reference(request.publish_as, "dataset")
    folders = task_folders(request.folder)
    entries: list[TaskEntry] = []
    async with context.gateway() as gateway:
        for index, folder in enumerate(folders, start=1):
            task = await anyio.to_thread.run_sync(read_task, folder)
            await gateway.upload(task.package, digest=task.entry.digest)
            entries.append(task.entry)
            if index % 20 == 0:
                await context.progress(f"{index} of {len(folders)} tasks uploaded")
        return await publish_tasks(gateway, request.publish_as, entries)


@operation("dataset", "list", READ, text=_page_text)
async def list_datasets(context: Context, request: ListDatasets) -> PublishedPage:
    """List published dataset versions, newest first."""
    async with context.gateway() as gateway:
        return await gateway.datasets(limit=request.limit, cursor=request.cursor)


@operation("dataset", "show", READ, text=_view_text)
async def show(context: Context, request: Show) -> DatasetView:
    """Show a dataset's digest, families and tasks. Its bytes are checked against the digest."""
    async with context.gateway() as gateway:
        found = await gateway.dataset(reference(request.dataset, "dataset"))
    tasks, following = cut(found.value.tasks, request.limit, request.cursor)
    return DatasetView(
        reference=request.dataset,
        digest=found.digest,
        count=len(found.value.tasks),
        families=families(found.value.tasks),
        tasks=tasks,
        next=following,
    )


@operation("dataset", "select", Traits(idempotent=True), text=_selected_text)
async def select(context: Context, request: Select) -> Selected:
    """Choose tasks of a dataset, in its order; every condition given must hold.

    The answer's `tasks` goes into an evaluation plan as it is. With `--as` the chosen tasks are
    published as a dataset of their own.
    """
    async with context.gateway() as gateway:
        found = await gateway.dataset(reference(request.dataset, "dataset"))
        chosen = [task for task in found.value.tasks if _matches(task, request)]
        chosen = chosen[: request.limit]
        if not chosen:
            raise NotFound(
                f"No task of {request.dataset} matches.",
                object=ErrorObject(type="dataset", id=request.dataset),
                next=f"See what there is: practicum dataset show {request.dataset}",
            )
        published = None
        if request.publish_as is not None:
            published = await publish_tasks(gateway, request.publish_as, chosen)
    return Selected(
        dataset=request.dataset,
        digest=found.digest,
        count=len(chosen),
        families=families(chosen),
        tasks={"names": [task.name for task in chosen]},
        published=published,
    )


async def publish_tasks(gateway: OperatorClient, wanted: str, tasks: list[TaskEntry]) -> Published:
    """Publish a list of tasks, whose packages are there, as `org/name@version`."""
    name, _, version = reference(wanted, "dataset").partition("@")
    dataset: dict[str, JsonValue] = {
        "name": name,
        "version": version,
        "tasks": [task.model_dump(mode="json") for task in tasks],
    }
    return await gateway.publish_dataset(canonical.validate(Dataset, dataset, what="dataset"))


def _matches(task: TaskEntry, request: Select) -> bool:
    family, capability = task.metadata.get("family"), task.metadata.get("capability")
    return (
        (not request.family or family in request.family)
        and (not request.capability or capability in request.capability)
        and (not request.name or any(fnmatch.fnmatchcase(task.name, p) for p in request.name))
    )


def families(tasks: Sequence[TaskEntry]) -> dict[str, int]:
    """How many tasks each family has."""
    return dict(Counter(str(task.metadata.get("family", "-")) for task in tasks))
