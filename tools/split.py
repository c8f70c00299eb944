"""Dividing a dataset into a part to train on and a part held out, the same way every time.

Places are drawn by hash: of the seed and a task's name, or of the seed and a family's. So a split
depends on neither the order of the dataset nor a random generator's version. Tasks are drawn
within each family in proportion (largest remainders), or families as a whole.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.dataset import TaskEntry
from specs.errors import ErrorObject, InvalidInput
from specs.operator_api import Published
from tools.context import Context
from tools.dataset import DatasetRef, families, publish_tasks
from tools.documents import reference
from tools.fields import Input
from tools.registry import Traits, operation
from tools.tables import pairs, short


class Split(Input):
    dataset: DatasetRef
    held_out: Annotated[float, Field(gt=0, lt=1, description="Share of tasks held out")] = 0.2
    whole_families: Annotated[bool, Field(description="No family on both sides")] = False
    seed: Annotated[int, Field(ge=0, description="Another seed, another split")] = 0
    train_as: Annotated[
        str | None, Field(description="org/name@version to publish the one part as")
    ] = None
    held_out_as: Annotated[
        str | None, Field(description="org/name@version to publish the other as")
    ] = None


class Side(Contract):
    """One part, in the dataset's order."""

    count: int
    families: dict[str, int]
    tasks: dict[str, JsonValue] | None
    """The value of `tasks` in an evaluation plan; None where they are published, which says it."""
    digest: str
    """Over names and package digests of its tasks."""
    published: Published | None = None


class SplitView(Contract):
    """Both parts; together they are the dataset."""

    dataset: str
    digest: str
    seed: int
    train: Side
    held_out: Side


def _side_text(side: Side) -> str:
    where = "" if side.published is None else f" as {side.published.reference}"
    return f"{side.count} tasks {short(side.digest)}{where}"


def _text(view: SplitView) -> str:
    return pairs(
        {
            "dataset": f"{view.dataset} {short(view.digest)}",
            "seed": view.seed,
            "train": _side_text(view.train),
            "its families": view.train.families,
            "held out": _side_text(view.held_out),
            "families held out": view.held_out.families,
        }
    )


@operation("dataset", "split", Traits(idempotent=True), text=_text)
async def split(context: Context, request: Split) -> SplitView:
    """Divide a dataset by seed into a part to train on and one held out; publish either by name."""
    names = [
        None if name is None else reference(name, "dataset")
        for name in (request.train_as, request.held_out_as)
    ]
    async with context.gateway() as gateway:
        found = await gateway.dataset(reference(request.dataset, "dataset"))
        tasks = found.value.tasks
        held = held_out(tasks, request.held_out, request.seed, whole=request.whole_families)
        parts = (
            [task for task in tasks if task.name not in held],
            [task for task in tasks if task.name in held],
        )
        published = [
            None if name is None else await publish_tasks(gateway, name, part)
            for name, part in zip(names, parts, strict=True)
        ]
    train, rest = (
        Side(
            count=len(part),
            families=families(part),
            tasks=None if done else {"names": [task.name for task in part]},
            digest=canonical.digest([[task.name, task.digest] for task in part]),
            published=done,
        )
        for part, done in zip(parts, published, strict=True)
    )
    return SplitView(
        dataset=request.dataset,
        digest=found.digest,
        seed=request.seed,
        train=train,
        held_out=rest,
    )


def held_out(tasks: Sequence[TaskEntry], share: float, seed: int, *, whole: bool) -> set[str]:
    """Names of the tasks that are held out: at least one, and never all.

    Raises:
        InvalidInput: there is nothing to divide.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        members[str(task.metadata.get("family", "-"))].append(task.name)
    if len(members if whole else tasks) < 2:
        raise InvalidInput(
            f"One {'family' if whole else 'task'} cannot be divided.",
            object=ErrorObject(type="dataset", pointer="/whole_families" if whole else "/dataset"),
            next="Use a dataset with more of them.",
        )
    wanted = min(max(1, round(share * len(tasks))), len(tasks) - 1)
    if whole:
        return _families(members, wanted, seed)
    counts = _proportional({name: len(found) for name, found in members.items()}, wanted, seed)
    return {
        name
        for family, found in members.items()
        for name in sorted(found, key=lambda name: _place(seed, name))[: counts[family]]
    }


def _families(members: dict[str, list[str]], wanted: int, seed: int) -> set[str]:
    """Whole families in drawn order until enough tasks are held out; one family always stays."""
    chosen: set[str] = set()
    for family in sorted(members, key=lambda name: _place(seed, name))[:-1]:
        if len(chosen) >= wanted:
            break
        chosen.update(members[family])
    return chosen


def _proportional(sizes: dict[str, int], wanted: int, seed: int) -> Counter[str]:
    """How many of each family, `wanted` in all; what rounding leaves goes by the remainder."""
    total = sum(sizes.values())
    exact = {name: wanted * size / total for name, size in sizes.items()}
    counts = Counter({name: math.floor(value) for name, value in exact.items()})
    by_remainder = sorted(sizes, key=lambda name: (counts[name] - exact[name], _place(seed, name)))
    for name in by_remainder[: wanted - counts.total()]:
        counts[name] += 1
    return counts


def _place(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
