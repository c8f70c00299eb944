"""In which order tasks and recorded trials are worked through: fixed by the plan.

A shuffled epoch sorts by a hash of (seed, epoch, name), so it is a permutation that no
library version changes, and any batch's content follows from its number alone: the number is
the whole cursor of a resumed run.
"""

import hashlib
from collections.abc import Callable, Sequence

from specs.dataset import TaskEntry
from specs.errors import ErrorObject, InvalidInput
from specs.plans import TrainingPlan
from specs.run import RunSpec


def permutation[T](
    items: Sequence[T], key: Callable[[T], str], *, seed: int, epoch: int
) -> list[T]:
    """`items` in the order of one epoch; `key` must be distinct."""

    def place(item: T) -> bytes:
        return hashlib.sha256(f"{seed}/{epoch}/{key(item)}".encode()).digest()

    return sorted(items, key=place)


def cycled[T](
    items: Sequence[T], key: Callable[[T], str], *, seed: int, batch: int, size: int
) -> list[T]:
    """Batch number `batch` of `size` items from an endless row of epochs; a batch may span
    the end of an epoch, and then (or when larger than an epoch) repeat an item."""
    first, last = batch * size // len(items), ((batch + 1) * size - 1) // len(items)
    row: list[T] = []
    for epoch in range(first, last + 1):
        row += permutation(items, key, seed=seed, epoch=epoch)
    start = batch * size - first * len(items)
    return row[start : start + size]


def in_turn[T](items: Sequence[T], *, batch: int, size: int) -> list[T]:
    """Batch number `batch` of `size` items taken in their own order, over and over."""
    return [items[(batch * size + place) % len(items)] for place in range(size)]


def training_plan(spec: RunSpec) -> TrainingPlan:
    """The plan of a training run."""
    if not isinstance(spec.plan, TrainingPlan):
        raise InvalidInput(
            f"Run {spec.id} has a plan of kind {spec.plan.kind}, not training.",
            object=ErrorObject(type="run", id=spec.id),
        )
    return spec.plan


def batch_tasks(spec: RunSpec, plan: TrainingPlan, batch: int) -> list[TaskEntry]:
    """The tasks of one batch, one group each."""
    size = plan.batch.tasks
    if plan.order == "dataset":
        return in_turn(spec.tasks, batch=batch, size=size)
    return cycled(spec.tasks, lambda task: task.name, seed=plan.seed, batch=batch, size=size)
