"""What a sequence leaves in the slab never reaches another one."""

from itertools import permutations

import pytest
import torch

from runtime.compute import models
from runtime.compute.kv import Slab
from runtime.compute.llama import Llama
from tests.runtime.compute.samples import TINY

ROOM = 100
LONG, BROKEN, SHORT = 60, 50, 10
"""Lengths of the rows: the short one, in the place of the broken one, leaves much of it unused,
and the long one makes every step look as far."""


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(models.model_path(TINY))


def row(model: Llama, length: int, value: float) -> torch.Tensor:
    """Keys and values of one sequence."""
    shape = (model.layers_count, 2, model.kv_heads, length, model.head_dim)
    return torch.full(shape, value)


def finite(slab: Slab, model: Llama) -> list[bool]:
    """Whether what each row attends to is finite, one step on."""
    attend, size = slab.step(), len(slab)
    q = torch.ones(size, model.heads, model.head_dim)
    new = torch.ones(size, model.kv_heads, model.head_dim)
    return [bool(each.isfinite().all()) for each in attend(0, q, new, new)]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("lengths", list(permutations((LONG, BROKEN, SHORT))))
def test_a_row_that_is_not_finite_leaves_nothing_behind(
    model: Llama, lengths: tuple[int, ...], value: float
) -> None:
    """Neither to the row that takes its place nor to one that joins later."""
    slab = Slab(model)
    for length in lengths:
        slab.add(row(model, length, value if length == BROKEN else 1.0), length, ROOM)
    slab.remove(lengths.index(BROKEN))
    assert finite(slab, model) == [True, True]
    slab.add(row(model, SHORT, 1.0), SHORT, ROOM)
    assert finite(slab, model) == [True, True, True]


def test_the_last_row_takes_the_place_of_the_one_that_leaves(model: Llama) -> None:
    slab = Slab(model)
    for value, length in enumerate((LONG, BROKEN, SHORT)):
        slab.add(row(model, length, value), length, ROOM)
    slab.remove(0)
    assert torch.equal(slab.copy(0), row(model, SHORT, 2))
    assert torch.equal(slab.copy(1), row(model, BROKEN, 1))
