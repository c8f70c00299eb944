"""Typed fronts of torch functions that torch leaves without types."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
import torch.utils.checkpoint


def split(x: torch.Tensor, sizes: int | Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    """Consecutive views of `x` along `dim`; the gradient is one concatenation."""
    untyped: Any = x
    return list(cast(tuple[torch.Tensor, ...], untyped.split(sizes, dim)))


def load(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, mapped into memory."""
    untyped: Any = safetensors.torch
    return cast(dict[str, torch.Tensor], untyped.load_file(path))


def recomputed(function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """`function(*args)`, computed again in the backward pass instead of remembered."""
    untyped: Any = torch.utils.checkpoint
    return cast(torch.Tensor, untyped.checkpoint(function, *args, use_reentrant=False))


def unique(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorted distinct values, and for each element the index of its value."""
    untyped: Any = x
    return cast(tuple[torch.Tensor, torch.Tensor], untyped.unique(return_inverse=True))
