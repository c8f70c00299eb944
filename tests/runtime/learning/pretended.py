"""A store and a compute that only say what they are told to, for what needs neither model nor
process: every answer is known beforehand, and every call is on record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import (
    AdamParams,
    Compute,
    Datum,
    FloatArray,
    ForwardResult,
    Health,
    IntArray,
    SamplerSpec,
    SavedBytes,
    TrainerInfo,
    TrainerInit,
)
from specs.canonical import digest_bytes
from specs.errors import NotFound


@dataclass
class Store:
    """Objects by digest."""

    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reads: list[str] = field(default_factory=list[str])

    def put(self, data: bytes) -> str:
        self.objects[digest_bytes(data)] = data
        return digest_bytes(data)

    async def object(self, digest: str) -> bytes:
        self.reads.append(digest)
        if digest not in self.objects:
            raise NotFound(f"There is no object {digest}.")
        return self.objects[digest]


@dataclass
class Pretended:
    """A compute whose log-prob of a token is minus its id in hundredths, less what `shift` says.

    :ivar calls: each call by name, with what tells it from others.
    :ivar errors: what a call of that name raises.
    """

    incarnation: str = "one"
    shift: float = 0.0
    steps: int = 0
    trainers: list[str] = field(default_factory=list[str])
    adapters: set[str] = field(default_factory=set[str])
    states: set[str] = field(default_factory=set[str])
    calls: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    errors: dict[str, Exception] = field(default_factory=dict[str, Exception])
    saved: list[str] = field(default_factory=lambda: ["sha256:" + "a" * 64])
    inits: list[TrainerInit] = field(default_factory=list[TrainerInit])

    @property
    def compute(self) -> Compute:
        return cast(Compute, self)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of the calls of a name."""
        return [call[1:] for call in self.calls if call[0] == name]

    def _note(self, name: str, *what: Any) -> None:
        self.calls.append((name, *what))
        if name in self.errors:
            raise self.errors[name]

    async def health(self) -> Health:
        self._note("health")
        return Health(self.incarnation, "torch", 1, tuple(self.trainers), len(self.trainers))

    async def has_adapter(self, digest: str) -> bool:
        return digest in self.adapters

    async def put_adapter(self, digest: str, data: bytes) -> None:
        self._note("put_adapter", digest, data)
        self.adapters.add(digest)

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        self._note("logprobs", sampler, tokens.tolist())
        values = (-tokens / 100 - self.shift).astype(np.float32)
        values[0] = math.nan
        return values

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        self._note("create_trainer", trainer)
        self.inits.append(init)
        return TrainerInfo(trainer, self.incarnation, init.base_model, init.lora, self.steps)

    async def close_trainer(self, trainer: str) -> None:
        self._note("close_trainer", trainer)

    async def forward(
        self,
        trainer: str,
        data: Sequence[Datum],
        loss: Loss,
        *,
        backward: bool,
        config: LossConfig = NO_CONFIG,
    ) -> ForwardResult:
        self._note("forward", trainer, len(data), loss, backward, config)
        found = [(-one.targets / 100 - self.shift).astype(np.float32) for one in data]
        return ForwardResult(found, float(sum(len(one.tokens) for one in data)))

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        self._note("optim_step", trainer, params)
        return {}

    async def save_adapter(self, trainer: str) -> SavedBytes:
        self._note("save_adapter", trainer)
        return SavedBytes(self.saved[0], 1)

    async def find_state(self, name: str) -> SavedBytes | None:
        self._note("find_state", name)
        return SavedBytes("sha256:" + "b" * 64, 1) if name in self.states else None

    async def put_state(self, name: str, data: bytes) -> SavedBytes:
        self._note("put_state", name, data)
        self.states.add(name)
        return SavedBytes(digest_bytes(data), len(data))

    async def drop_state(self, name: str) -> None:
        self._note("drop_state", name)
        self.states.discard(name)


def datum(size: int, **inputs: FloatArray) -> Datum:
    """A datum of so many tokens."""
    ids = np.arange(1, size + 1, dtype=np.int32)
    return Datum(ids, ids + 1, inputs)
