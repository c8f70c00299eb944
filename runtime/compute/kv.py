"""Keys and values of attention: of running sequences (`Slab`) and of known prefixes.

A running batch keeps its sequences as the first rows of preallocated slabs that grow by
doubling; one token is appended per step by an in-place write, and a row that ends is filled
by the last one. `PrefixCache` keeps the keys and values of prompts and of finished sequences
apart, so that trials of one task compute their common prompt once and a later turn of a
conversation continues where the earlier one ended.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

import torch

from runtime.compute.llama import Llama
from runtime.compute.packing import common
from runtime.compute.protocol import IntArray, SamplerSpec

_MIN_ROWS = 4
_MIN_COLUMNS = 128


class Slab:
    """Keys and values [layer, k or v, row·head, column, d] of the sequences of one batch."""

    def __init__(self, model: Llama) -> None:
        self._model = model
        self._heads = model.kv_heads
        self._scale = 1 / math.sqrt(model.head_dim)
        self._data = self._empty(_MIN_ROWS, _MIN_COLUMNS)
        self._lengths: list[int] = []

    def _empty(self, rows: int, columns: int) -> torch.Tensor:
        shape = (self._model.layers_count, 2, rows * self._heads, columns, self._model.head_dim)
        # Zeros, not empty: what lies beyond a row's length is masked, but a NaN or an infinity
        # left in memory would pass through the mask. `remove` keeps it so.
        return torch.zeros(shape)

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, prefix: torch.Tensor, length: int, room: int) -> None:
        """Append a row that begins with `length` columns of `prefix` and may grow to `room`."""
        row = len(self._lengths)
        self._reserve(row + 1, room)
        self._row(row)[:, :, :, :length] = prefix[:, :, :, :length]
        self._lengths.append(length)

    def _reserve(self, rows: int, columns: int) -> None:
        has_rows, has_columns = self._data.shape[2] // self._heads, self._data.shape[3]
        if rows <= has_rows and columns <= has_columns:
            return
        while has_rows < rows:
            has_rows *= 2
        while has_columns < columns:
            has_columns *= 2
        old, used = self._data, len(self._lengths) * self._heads
        self._data = self._empty(has_rows, has_columns)
        filled = max(self._lengths, default=0)
        self._data[:, :, :used, :filled] = old[:, :, :used, :filled]

    def copy(self, row: int) -> torch.Tensor:
        """A copy of a row's keys and values [layer, k or v, head, length, d]."""
        return self._row(row)[:, :, :, : self._lengths[row]].clone()

    def remove(self, row: int) -> None:
        """Drop a row; the last one takes its place. Nothing of what it held stays behind."""
        dropped, moved = self._row(row), self._row(len(self._lengths) - 1)
        length, left = self._lengths[-1], self._lengths[row]
        if row != len(self._lengths) - 1:
            dropped[:, :, :, :length] = moved[:, :, :, :length]
            dropped[:, :, :, length:left] = 0
            self._lengths[row] = length
        moved[:, :, :, :length] = 0
        self._lengths.pop()

    def _row(self, row: int) -> torch.Tensor:
        """A row's keys and values [layer, k or v, head, column, d], those beyond its length too."""
        return self._data[:, :, row * self._heads : (row + 1) * self._heads]

    def step(self) -> "SlabStep":
        """Attention for one more token of every row; lengths grow when it is made."""
        return SlabStep(self)

    def begin_step(self) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Positions of the new tokens [B], their flat column indices [B·head], and the width."""
        positions = torch.tensor(self._lengths)
        self._lengths = [length + 1 for length in self._lengths]
        columns = self._data.shape[3]
        heads = torch.arange(len(self._lengths) * self._heads)
        flat = heads * columns + positions.repeat_interleave(self._heads)
        return positions, flat, max(self._lengths)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer, all rows and columns [row·head, column, d]."""
        return self._data[index, 0], self._data[index, 1]


class SlabStep:
    """Attention of one decode step: writes the new key and value, then attends by row."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self.positions, self._flat, self._width = slab.begin_step()
        rows = len(slab)
        beyond = torch.arange(self._width)[None] > self.positions[:, None]
        bias = torch.zeros(beyond.shape).masked_fill_(beyond, float("-inf"))
        self._bias = bias[:, None, None, :] if bool(beyond.any()) else None
        self._rows = rows

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        keys, values = self._slab.layer(layer)
        heads, head_dim = k.shape[1], k.shape[2]
        used = self._rows * heads
        keys.view(-1, head_dim).index_copy_(0, self._flat, k.reshape(used, head_dim))
        values.view(-1, head_dim).index_copy_(0, self._flat, v.reshape(used, head_dim))
        # The query heads that share a key head are treated as queries of one position.
        queries = q.reshape(self._rows, heads, -1, head_dim)
        shape = (self._rows, heads, -1, head_dim)
        attended = torch.nn.functional.scaled_dot_product_attention(
            queries,
            keys[:used].view(self._rows, heads, *keys.shape[1:])[:, :, : self._width],
            values[:used].view(self._rows, heads, *values.shape[1:])[:, :, : self._width],
            attn_mask=self._bias,
        )
        return attended.reshape(shape).reshape(self._rows, -1)


@dataclass(slots=True, eq=False)
class Prefix:
    """Keys and values [layer, k or v, head, length, d] of known tokens under one sampler."""

    sampler: SamplerSpec
    tokens: IntArray
    data: torch.Tensor


class PrefixCache:
    """Least recently used prefixes, bounded by bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        self._entries: OrderedDict[int, Prefix] = OrderedDict()
        self.hit_tokens = 0
        """Prompt tokens that were not computed again."""

    def find(self, sampler: SamplerSpec, tokens: IntArray) -> tuple[Prefix | None, int]:
        """The entry that shares most of `tokens`, and how many."""
        best, length = None, 0
        for entry in self._entries.values():
            if entry.sampler == sampler:
                shared = common(entry.tokens, tokens)
                if shared > length:
                    best, length = entry, shared
        if best is not None:
            self._entries.move_to_end(id(best))
        return best, length

    def put(self, prefix: Prefix) -> None:
        """Keep a prefix; those that it extends go, and nothing happens if one extends it."""
        for entry in list(self._entries.values()):
            if entry.sampler != prefix.sampler:
                continue
            shared = common(entry.tokens, prefix.tokens)
            if shared == len(prefix.tokens):
                return
            if shared == len(entry.tokens):
                self._drop(entry)
        self._entries[id(prefix)] = prefix
        self.bytes += prefix.data.nbytes
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._entries.values())))

    def _drop(self, entry: Prefix) -> None:
        del self._entries[id(entry)]
        self.bytes -= entry.data.nbytes
