"""Packing training sequences without padding, with shared prefixes computed once.

Sequences of one group of trials begin alike: with the system prompt and tools, with the task,
with the turns before a compaction. A pack is a *prefix tree*: what several sequences begin with
lies in it once and they branch off it; attention of a branch sees what lies on its way to the
root, and itself. The hidden states are those that each sequence would get alone, and the
gradient of a prefix is the sum over its branches, so the numbers are the same and the work is
less.

A pack holds at most `budget` tokens, which bounds the memory of the backward pass. Sequences
that are longer by themselves still share what they begin with: what branches off it may then be
as large as it is, or as `budget`, so that a group of attempts is one pass as long as the prompt
is most of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    """Tokens `[start, end)` of a pack, seen after those of `before`: segments, from the root."""

    start: int
    end: int
    before: tuple[int, ...]


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


def pack(sequences: Sequence[IntArray], budget: int) -> list[Pack]:
    """Pack sequences (none empty); every sequence is in exactly one pack."""
    packs: list[Pack] = []
    run = _Run()
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i4").tobytes())
    for index in order:
        longer = run.joined(index, sequences)
        if run.members and not longer.fits(budget):
            packs.append(_lay_out(sequences, run))
            longer = _Run().joined(index, sequences)
        run = longer
    if run.members:
        packs.append(_lay_out(sequences, run))
    return packs


@dataclass(frozen=True, slots=True)
class _Node:
    """Tokens `[start, end)` of the members `[first, last)`, after those of node `parent`."""

    first: int
    last: int
    start: int
    end: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours in lexicographic order that are to be one pack."""

    members: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    """How much each member has in common with the one before it; the first, nothing."""

    def joined(self, index: int, sequences: Sequence[IntArray]) -> "_Run":
        """The run with one sequence more."""
        sequence = sequences[index]
        shared = common(sequences[self.members[-1]], sequence) if self.members else 0
        return _Run((*self.members, index), (*self.lengths, len(sequence)), (*self.shared, shared))

    def fits(self, budget: int) -> bool:
        """Whether it may be one pack."""
        size = sum(node.end - node.start for node in self.tree())
        if max(self.lengths) <= budget:
            return size <= budget
        prefix = min(self.shared[1:], default=0)
        return prefix >= MIN_SHARED and size - prefix <= max(budget, prefix)

    def tree(self) -> list[_Node]:
        """The prefix tree, parents before their children."""
        nodes: list[_Node] = []
        left: list[tuple[int, int, int, int | None]] = [(0, len(self.members), 0, None)]
        while left:
            first, last, start, parent = left.pop()
            if last - first == 1:
                if self.lengths[first] > start:
                    nodes.append(_Node(first, last, start, self.lengths[first], parent))
                continue
            end = min(self.shared[first + 1 : last])
            if end - start >= MIN_SHARED:
                nodes.append(_Node(first, last, start, end, parent))
                start, parent = end, len(nodes) - 1
            inner = (index for index in range(first + 1, last) if self.shared[index] == end)
            bounds = [first, *inner, last]
            left += [(*pair, start, parent) for pair in pairwise(bounds)]
        return nodes


def common(left: IntArray, right: IntArray) -> int:
    """Length of the common prefix."""
    n = min(len(left), len(right))
    different = np.flatnonzero(left[:n] != right[:n])
    return int(different[0]) if len(different) else n


def _lay_out(sequences: Sequence[IntArray], run: _Run) -> Pack:
    tokens: list[IntArray] = []
    positions: list[Rows] = []
    segments: list[Segment] = []
    rows: list[list[Rows]] = [[] for _ in run.members]
    at = 0
    for node in run.tree():
        parent = node.parent
        before = () if parent is None else (*segments[parent].before, parent)
        end = at + node.end - node.start
        tokens.append(sequences[run.members[node.first]][node.start : node.end])
        positions.append(np.arange(node.start, node.end))
        segments.append(Segment(at, end, before))
        for member in range(node.first, node.last):
            rows[member].append(np.arange(at, end))
        at = end
    return Pack(
        tokens=torch.from_numpy(np.concatenate(tokens).astype(np.int64)),
        positions=torch.from_numpy(np.concatenate(positions)),
        segments=tuple(segments),
        members=run.members,
        rows=tuple(np.concatenate(parts) for parts in rows),
    )


class PackAttention:
    """Causal attention within the segments of a pack."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._sizes = [segment.end - segment.start for segment in segments]
        self._seen = [sum(self._sizes[one] for one in segment.before) for segment in segments]
        longest: dict[int, int] = {}
        for seen, own in zip(self._seen, self._sizes, strict=True):
            longest[seen] = max(own, longest.get(seen, 0))
        self._masks = {seen: causal_mask(own, seen + own) for seen, own in longest.items() if seen}

    def _mask(self, index: int) -> torch.Tensor | None:
        """The mask of a segment: a corner of that of the longest one that sees as much."""
        seen, own = self._seen[index], self._sizes[index]
        return self._masks[seen][:own, : seen + own] if seen else None

    def __call__(
        self, _layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        qs, ks, vs = (
            [part.transpose(0, 1)[None] for part in split(x, self._sizes)] for x in (q, k, v)
        )
        parts: list[torch.Tensor] = []
        for index, segment in enumerate(self._segments):
            mask = self._mask(index)
            seen = (*segment.before, index)
            key, value = (
                torch.cat([x[one] for one in seen], dim=2) if segment.before else x[index]
                for x in (ks, vs)
            )
            part = F.scaled_dot_product_attention(
                qs[index], key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            parts.append(part[0].transpose(0, 1))
        return torch.cat(parts).reshape(q.shape[0], -1)


def causal_mask(queries: int, keys: int) -> torch.Tensor:
    """Additive mask [queries, keys] where the last query is at the last key."""
    full = torch.full((queries, keys), float("-inf"))
    return full.triu_(keys - queries + 1)
