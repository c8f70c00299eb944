"""Packing training sequences without padding, with shared prefixes computed once.

Sequences of one group of trials begin with the same prompt. A pack lays such a prefix down
once and lets the sequences branch off it; attention of a branch sees the prefix and itself.
The hidden states are those that each sequence would get alone, and the gradient of the
prefix is the sum over its branches, so the numbers are the same and the work is less.

A pack holds at most `budget` tokens, which bounds the memory of the backward pass. Sequences
that are longer by themselves still share a prefix: what branches off it is then within `budget`,
so a pack is at most one prefix larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from runtime.compute.protocol import IntArray
from runtime.compute.tensors import split

MIN_SHARED = 8
"""Shared prefixes shorter than this are not worth a branch."""

type Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `[start, end)` of a pack, seen after those of `prefix` (another segment)."""

    start: int
    end: int
    prefix: int | None


@dataclass(frozen=True, slots=True)
class Pack:
    """One forward pass: flat tokens, their positions, and where each sequence's rows are."""

    tokens: torch.Tensor
    positions: torch.Tensor
    segments: tuple[Segment, ...]
    members: tuple[int, ...]
    """Indices of the sequences in this pack."""
    rows: tuple[Rows, ...]
    """For each member, the row of each of its tokens."""


@dataclass(slots=True)
class _Group:
    members: list[int]
    shared: int
    total: int
    """Sum of the members' lengths."""

    @property
    def cost(self) -> int:
        return self.total - self.shared * (len(self.members) - 1)


def pack(sequences: Sequence[IntArray], budget: int) -> list[Pack]:
    """Pack sequences (none empty); every sequence is in exactly one pack."""
    packs: list[Pack] = []
    pending: list[_Group] = []
    used = 0
    for group in _groups(sequences, budget):
        if pending and used + group.cost > budget:
            packs.append(_lay_out(sequences, pending))
            pending, used = [], 0
        pending.append(group)
        used += group.cost
    if pending:
        packs.append(_lay_out(sequences, pending))
    return packs


def _groups(sequences: Sequence[IntArray], budget: int) -> list[_Group]:
    """Neighbours in lexicographic order join while that saves work and the budget holds."""
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i4").tobytes())
    groups: list[_Group] = []
    for index in order:
        length = len(sequences[index])
        if groups:
            last = groups[-1]
            shared = min(last.shared, common(sequences[last.members[-1]], sequences[index]))
            joined = _Group([*last.members, index], shared, last.total + length)
            limit = budget if last.cost <= budget and length <= budget else shared + budget
            if shared >= MIN_SHARED and joined.cost <= min(last.cost + length, limit):
                groups[-1] = joined
                continue
        groups.append(_Group([index], length, length))
    return groups


def common(left: IntArray, right: IntArray) -> int:
    """Length of the common prefix."""
    n = min(len(left), len(right))
    different = np.flatnonzero(left[:n] != right[:n])
    return int(different[0]) if len(different) else n


def _lay_out(sequences: Sequence[IntArray], groups: list[_Group]) -> Pack:
    tokens: list[IntArray] = []
    positions: list[Rows] = []
    segments: list[Segment] = []
    members: list[int] = []
    rows: list[Rows] = []
    at = 0

    def put(part: IntArray, first: int, prefix: int | None) -> Rows:
        nonlocal at
        tokens.append(part)
        positions.append(np.arange(first, first + len(part)))
        segments.append(Segment(at, at + len(part), prefix))
        at += len(part)
        return np.arange(at - len(part), at)

    for group in groups:
        prefix = len(segments)
        shared = group.shared
        before = put(sequences[group.members[0]][:shared], 0, None)
        for member in group.members:
            branch = sequences[member][shared:]
            own = put(branch, shared, prefix) if len(branch) else before[:0]
            members.append(member)
            rows.append(np.concatenate((before, own)))
    return Pack(
        tokens=torch.from_numpy(np.concatenate(tokens).astype(np.int64)),
        positions=torch.from_numpy(np.concatenate(positions)),
        segments=tuple(segments),
        members=tuple(members),
        rows=tuple(rows),
    )


class PackAttention:
    """Causal attention within the segments of a pack."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._sizes = [segment.end - segment.start for segment in segments]
        self._masks = [self._mask(segment) for segment in segments]

    def _mask(self, segment: Segment) -> torch.Tensor | None:
        if segment.prefix is None:
            return None
        own = segment.end - segment.start
        return causal_mask(own, self._sizes[segment.prefix] + own)

    def __call__(
        self, _layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        qs, ks, vs = (
            [part.transpose(0, 1)[None] for part in split(x, self._sizes)] for x in (q, k, v)
        )
        parts: list[torch.Tensor] = []
        for index, (segment, mask) in enumerate(zip(self._segments, self._masks, strict=True)):
            key, value = ks[index], vs[index]
            if segment.prefix is not None:
                key = torch.cat((ks[segment.prefix], key), dim=2)
                value = torch.cat((vs[segment.prefix], value), dim=2)
            part = F.scaled_dot_product_attention(
                qs[index], key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            parts.append(part[0].transpose(0, 1))
        return torch.cat(parts).reshape(q.shape[0], -1)


def causal_mask(queries: int, keys: int) -> torch.Tensor:
    """Additive mask [queries, keys] where the last query is at the last key."""
    full = torch.full((queries, keys), float("-inf"))
    return full.triu_(keys - queries + 1)
