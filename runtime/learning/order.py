"""In which order tasks and recorded trials are worked through: fixed by the plan's seed.

The order of an epoch sorts by a hash of (seed, epoch, name), so it is a permutation that no
library version changes, and any batch's content follows from its number alone: the number is
the whole cursor of a resumed run.
"""

import hashlib
from collections.abc import Callable, Sequence


def permutation[T](items: Sequence[T], key: Callable[[T], str], *, seed: int, epoch: int) -> list[T]:
    """`items` in the order of one epoch; `key` must be distinct."""

    def place(item: T) -> bytes:
        return hashlib.sha256(f"{seed}/{epoch}/{key(item)}".encode()).digest()

    return sorted(items, key=place)


def cycled[T](
    items: Sequence[T], key: Callable[[T], str], *, seed: int, batch: int, size: int
) -> list[T]:
    """Batch number `batch` of `size` items from an endless row of epochs; a batch may span
    the end of an epoch, and then (or when larger than an epoch) repeat an item."""
    result: list[T] = []
    for place in range(batch * size, (batch + 1) * size):
        epoch, index = divmod(place, len(items))
        if not result or index == 0:
            order = permutation(items, key, seed=seed, epoch=epoch)
        result.append(order[index])
    return result
