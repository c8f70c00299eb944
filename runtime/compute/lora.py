"""LoRA adapters: one flat parameter vector, its layout, and its file.

All parameters of an adapter are one float32 vector, so that the optimizer, gradient checks
and snapshots are a few vector operations. The layout puts the A matrices of projections that
read the same input next to each other: q, k, v and gate, up then need one product with the
stacked A and one with a block-diagonal B, in sampling and in training alike.

The file is safetensors in PEFT's names. Its metadata is one JSON string, because safetensors
does not keep the order of several and the digest of the file is the adapter's name.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from runtime.compute.tensors import split
from specs.errors import ErrorObject, InvalidInput
from specs.model import LoraSpec

ADAPTER_SCHEMA = "practicum.adapter/v1"
STATE_SCHEMA = "practicum.trainer-state/v1"
PEFT_PREFIX = "base_model.model.model."


@dataclass(frozen=True, slots=True)
class Projection:
    """One linear map that an adapter changes: name in the checkpoint and [out, in]."""

    name: str
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Fused:
    """Projections of one input, computed together: q, k, v or gate, up, or one alone."""

    members: tuple[Projection, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The fused update x ↦ (x Aᵀ) Bᵀ: `a` [r·members, in], `b_t` [r·members, out], scaled."""

    a: torch.Tensor
    b_t: torch.Tensor


type Lora = list[Pair]
"""One pair per fused projection, in layer order: qkv, o, gate-up, down."""


class Layout:
    """Where each matrix of an adapter lies in the flat vector."""

    def __init__(self, fused: list[Fused], rank: int) -> None:
        self.fused = fused
        self.rank = rank
        self.sizes: list[int] = []
        self.shapes: list[tuple[int, int]] = []
        self.names: list[str] = []
        for group in fused:
            for member in group.members:
                self._add(f"{member.name}.lora_A.weight", rank, member.columns)
            for member in group.members:
                self._add(f"{member.name}.lora_B.weight", member.rows, rank)
        self.size = sum(self.sizes)

    def _add(self, name: str, rows: int, columns: int) -> None:
        self.names.append(PEFT_PREFIX + name)
        self.shapes.append((rows, columns))
        self.sizes.append(rows * columns)

    def initial(self, seed: int) -> torch.Tensor:
        """A fresh adapter: A uniform in ±1/√in, B zero, so the model is unchanged."""
        generator = torch.Generator().manual_seed(seed)
        parts = [
            (torch.rand(size, generator=generator) * 2 - 1) / math.sqrt(shape[1])
            if ".lora_A." in name
            else torch.zeros(size)
            for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True)
        ]
        return torch.cat(parts)

    def pairs(self, flat: torch.Tensor, scale: float) -> Lora:
        """The fused pairs of `flat`; differentiable with respect to it."""
        pieces = iter(zip(split(flat, self.sizes), self.shapes, strict=True))
        lora: Lora = []
        for group in self.fused:
            count = len(group.members)
            a = [piece.view(shape) for piece, shape in (next(pieces) for _ in range(count))]
            b = [piece.view(shape) for piece, shape in (next(pieces) for _ in range(count))]
            block: torch.Tensor = cast(Any, torch).block_diag(*(part.t() for part in b))
            lora.append(Pair(torch.cat(a) if count > 1 else a[0], block * scale))
        return lora

    def named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The matrices under their PEFT names, as copies."""
        return {
            name: piece.view(shape).clone()
            for name, shape, piece in zip(
                self.names, self.shapes, split(flat.detach(), self.sizes), strict=True
            )
        }

    def flat(self, tensors: dict[str, torch.Tensor], *, prefix: str = "") -> torch.Tensor:
        """The vector of named matrices.

        Raises:
            InvalidInput: a matrix is missing, of another shape, or not finite.
        """
        parts: list[torch.Tensor] = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            tensor = tensors.get(prefix + name)
            if tensor is None or tuple(tensor.shape) != shape:
                raise _unfit(f"{prefix + name} is missing or not of shape {list(shape)}")
            parts.append(tensor.to(torch.float32).reshape(-1))
        flat = torch.cat(parts)
        if not bool(torch.isfinite(flat).all()):
            raise _unfit("it holds values that are not finite")
        return flat


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """A parsed adapter or state file."""

    base_model: str
    lora: LoraSpec
    step: int
    tensors: dict[str, torch.Tensor]


def adapter_bytes(layout: Layout, flat: torch.Tensor, base_model: str, spec: LoraSpec) -> bytes:
    """The adapter as a file; equal parameters give equal bytes."""
    metadata = {
        "schema": ADAPTER_SCHEMA,
        "base_model": base_model,
        "rank": spec.rank,
        "alpha": spec.alpha,
        "seed": spec.seed,
    }
    return _file(layout.named(flat), metadata)


def state_bytes(
    layout: Layout,
    flat: torch.Tensor,
    moments: tuple[torch.Tensor, torch.Tensor],
    *,
    base_model: str,
    spec: LoraSpec,
    step: int,
) -> bytes:
    """Adapter and optimizer state as one file."""
    tensors = layout.named(flat)
    for prefix, moment in zip(("m.", "v."), moments, strict=True):
        tensors.update({prefix + name: part for name, part in layout.named(moment).items()})
    metadata = {
        "schema": STATE_SCHEMA,
        "base_model": base_model,
        "rank": spec.rank,
        "alpha": spec.alpha,
        "seed": spec.seed,
        "step": step,
    }
    return _file(tensors, metadata)


def _file(tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> bytes:
    return save_tensors(tensors, {"practicum": json.dumps(metadata, sort_keys=True)})


def parse_file(data: bytes, schema: str) -> AdapterFile:
    """Read an adapter or state file.

    Raises:
        InvalidInput: not such a file.
    """
    try:
        tensors = load_tensors(data)
        length = int.from_bytes(data[:8], "little")
        header = cast(dict[str, Any], json.loads(data[8 : 8 + length]))
        metadata = cast(dict[str, Any], json.loads(header["__metadata__"]["practicum"]))
        spec = LoraSpec(rank=metadata["rank"], alpha=metadata["alpha"], seed=metadata["seed"])
        base = str(metadata["base_model"])
        step = int(metadata.get("step", 0))
        found = metadata["schema"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _unfit(f"it cannot be read ({error})") from None
    if found != schema:
        raise _unfit(f"it is a {found}, not a {schema}")
    return AdapterFile(base, spec, step, tensors)


def _unfit(why: str) -> InvalidInput:
    return InvalidInput(
        f"The adapter file does not fit: {why}.",
        object=ErrorObject(type="adapter"),
        next="Use a file that this backend saved for the same base model.",
    )
