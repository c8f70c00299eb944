"""The sampler: one thread that decodes all running sequences, batched by sampler.

Requests that share (base model, adapter) form a lane. Each turn of the loop gives a lane one
piece of prompt computation and one decode step; sequences join and leave its batch between
steps. A sequence joins when the keys and values of its prompt but for the last token are
known, so the decode step needs no special first case. Prompts are looked up in the prefix
cache first; a waiting prompt that shares a prefix with one being computed waits for it.

Cancelling a request's future frees its rows at the next step.
"""

import logging
import math
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from runtime.compute.kv import Prefix, PrefixCache, Slab
from runtime.compute.llama import Llama
from runtime.compute.lora import Lora
from runtime.compute.packing import MIN_SHARED, causal_mask, common
from runtime.compute.protocol import (
    IntArray,
    Sampled,
    SamplerSpec,
    SamplingParams,
    StopReason,
)
from runtime.compute.sampling import choose, random_stream
from runtime.compute.tensors import split
from specs.errors import ErrorObject, InvalidInput

PREFILL_TOKENS = 512
"""Prompt tokens computed between two decode steps of a lane."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Loaded weights to sample from."""

    spec: SamplerSpec
    model: Llama
    lora: Lora | None


@dataclass(slots=True, eq=False)
class _Request:
    sampler: Sampler
    future: "Future[list[Sampled]]"
    results: "list[Sampled | None]"
    grown: "Callable[[int, float], None] | None"
    """Told of each token but the last of a single sequence, on the engine's thread."""


@dataclass(slots=True, eq=False)
class _Sequence:
    request: _Request
    index: int
    prompt: IntArray
    params: SamplingParams
    limit: int
    """Tokens it may generate: what was asked, within the model's context."""
    random: np.random.Generator
    output: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    prefill: torch.Tensor | None = None
    """Keys and values of the prompt, while they are being computed."""
    computed: int = 0

    @property
    def needed(self) -> int:
        return len(self.prompt) - 1

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits any more: cancelled, or failed by a sibling."""
        return self.request.future.done()


class Engine:
    """Runs requests until closed. `submit` and `close` may be called from any thread."""

    def __init__(self, *, threads: int, max_batch: int, prefix_bytes: int) -> None:
        self._threads = threads
        self._max_batch = max_batch
        self.cache = PrefixCache(prefix_bytes)
        self._inbox: queue.SimpleQueue[list[_Sequence] | Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._lanes: dict[SamplerSpec, _Lane] = {}
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        self.decode_steps = 0
        """Steps so far, over all lanes; with `decoded_tokens` it tells how full batches were."""
        self.decoded_tokens = 0
        self.prefill_tokens = 0

    @property
    def idle(self) -> bool:
        """Whether no sequence waits or runs, as of the last step."""
        return not self._lanes and self._inbox.empty()

    def submit(
        self,
        sampler: Sampler,
        prompt: IntArray,
        params: SamplingParams,
        num_samples: int,
        grown: Callable[[int, float], None] | None = None,
    ) -> "Future[list[Sampled]]":
        """Sample; the prompt is not empty and leaves room in the context.

        `grown` is told of a single sequence's tokens as they come, all but the last.
        """
        request = _Request(sampler, Future(), [None] * num_samples, grown)
        limit = min(params.max_tokens, sampler.model.context - len(prompt))
        self._inbox.put(
            [
                _Sequence(request, i, prompt, params, limit, random_stream(params.seed, i))
                for i in range(num_samples)
            ]
        )
        return request.future

    def call[T](self, function: Callable[[], T]) -> "Future[T]":
        """Run `function` on the engine's thread between steps."""
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except Exception as error:  # noqa: BLE001 - handed to the caller
                    future.set_exception(error)

        self._inbox.put(run)
        return future

    def close(self) -> None:
        """End the thread; unfinished requests are cancelled."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            while self._receive():
                for spec, lane in list(self._lanes.items()):
                    try:
                        lane.turn()
                    except Exception as error:  # noqa: BLE001 - fails this lane, not the thread
                        _log.exception("sampling from %s failed", spec)
                        lane.fail(error)
                    if lane.idle:
                        del self._lanes[spec]
        for lane in self._lanes.values():
            lane.cancel()

    def _receive(self) -> bool:
        """Take in what arrived, waiting if there is nothing to do; False when closed."""
        while True:
            try:
                item = self._inbox.get(block=not self._lanes)
            except queue.Empty:
                return True
            if item is None:
                return False
            if callable(item):
                item()
                continue
            sampler = item[0].request.sampler
            lane = self._lanes.get(sampler.spec)
            if lane is None:
                lane = _Lane(self, sampler, self._max_batch)
                self._lanes[sampler.spec] = lane
            lane.waiting.extend(item)


class _Lane:
    """The sequences of one sampler."""

    def __init__(self, engine: Engine, sampler: Sampler, max_batch: int) -> None:
        self._engine = engine
        self._sampler = sampler
        self._model = sampler.model
        self._cache = engine.cache
        self._max_batch = max_batch
        self._slab = Slab(sampler.model)
        self.waiting: list[_Sequence] = []
        self._prefilling: list[_Sequence] = []
        self._running: list[_Sequence] = []

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.waiting or self._prefilling or self._running)

    def turn(self) -> None:
        """Drop what was abandoned, admit, compute some prompt, decode one step."""
        self._drop_abandoned()
        self._admit()
        self._prefill()
        if self._running:
            self._decode()

    def fail(self, error: BaseException) -> None:
        """Fail every request of the lane."""
        for sequence in self._take_all():
            if not sequence.request.future.done():
                sequence.request.future.set_exception(error)

    def cancel(self) -> None:
        """Cancel every request of the lane."""
        for sequence in self._take_all():
            sequence.request.future.cancel()

    def _take_all(self) -> list[_Sequence]:
        every = self.waiting + self._prefilling + self._running
        self.waiting, self._prefilling, self._running = [], [], []
        return every

    def _drop_abandoned(self) -> None:
        self.waiting = [s for s in self.waiting if not s.abandoned]
        self._prefilling = [s for s in self._prefilling if not s.abandoned]
        for row in reversed(range(len(self._running))):
            if self._running[row].abandoned:
                self._leave(row)

    def _admit(self) -> None:
        """Move waiting sequences to the batch or to prompt computation, in order."""
        kept: list[_Sequence] = []
        for sequence in self.waiting:
            if len(self._running) + len(self._prefilling) >= self._max_batch:
                kept.append(sequence)
                continue
            needed = sequence.needed
            entry, known = self._cache.find(self._sampler.spec, sequence.prompt[:needed])
            if self._worth_waiting(sequence, known):
                kept.append(sequence)
                continue
            self._cache.hit_tokens += known
            if known == needed:
                self._join(sequence, entry.data if entry else None)
                continue
            sequence.prefill = torch.empty(
                self._model.layers_count,
                2,
                self._model.kv_heads,
                needed,
                self._model.head_dim,
            )
            if entry is not None:
                sequence.prefill[:, :, :, :known] = entry.data[:, :, :, :known]
            sequence.computed = known
            self._prefilling.append(sequence)
        self.waiting = kept

    def _worth_waiting(self, sequence: _Sequence, known: int) -> bool:
        """Whether a prompt being computed will soon offer clearly more than the cache."""
        wanted = sequence.prompt[: sequence.needed]
        return any(
            common(other.prompt[: other.needed], wanted) >= known + MIN_SHARED
            for other in self._prefilling
        )

    def _join(self, sequence: _Sequence, prefix: torch.Tensor | None) -> None:
        room = len(sequence.prompt) + sequence.limit
        if prefix is None:
            prefix = torch.empty(
                self._model.layers_count, 2, self._model.kv_heads, 0, self._model.head_dim
            )
        self._slab.add(prefix, sequence.needed, room)
        self._running.append(sequence)

    def _prefill(self) -> None:
        """Compute up to `PREFILL_TOKENS` tokens of the prompts in progress, as one flat batch."""
        pieces: list[tuple[_Sequence, int]] = []
        budget = PREFILL_TOKENS
        for sequence in self._prefilling:
            count = min(budget, sequence.needed - sequence.computed)
            if count:
                pieces.append((sequence, count))
                budget -= count
        if not pieces:
            return
        tokens = [s.prompt[s.computed : s.computed + count] for s, count in pieces]
        positions = [np.arange(s.computed, s.computed + count) for s, count in pieces]
        self._model.forward(
            torch.from_numpy(np.concatenate(tokens).astype(np.int64)),
            torch.from_numpy(np.concatenate(positions)),
            _PrefillAttention(pieces),
            self._sampler.lora,
        )
        self._engine.prefill_tokens += PREFILL_TOKENS - budget
        for sequence, count in pieces:
            sequence.computed += count
        for sequence in [s for s in self._prefilling if s.computed == s.needed]:
            self._prefilling.remove(sequence)
            assert sequence.prefill is not None
            # A token whose values are not finite spoils those computed with it, also those
            # before it, which other prompts may share. It shows in the last layer if anywhere.
            if bool(sequence.prefill[-1].isfinite().all()):
                self._cache.put(
                    Prefix(self._sampler.spec, sequence.prompt[: sequence.needed], sequence.prefill)
                )
            self._join(sequence, sequence.prefill)
            sequence.prefill = None

    def _decode(self) -> None:
        running = self._running
        step = self._slab.step()
        last = [s.output[-1] if s.output else int(s.prompt[-1]) for s in running]
        hidden = self._model.forward(torch.tensor(last), step.positions, step, self._sampler.lora)
        tokens, logprobs = choose(
            self._model.logits(hidden),
            [s.params for s in running],
            [s.random.random() for s in running],
        )
        self._engine.decode_steps += 1
        self._engine.decoded_tokens += len(running)
        for row in reversed(range(len(running))):
            sequence = running[row]
            if not math.isfinite(logprobs[row]):
                self._break(row)
                continue
            sequence.output.append(tokens[row])
            sequence.logprobs.append(logprobs[row])
            if tokens[row] in sequence.params.stop:
                self._finish(row, "stop")
            elif len(sequence.output) >= sequence.limit:
                self._finish(row, "length")
            elif sequence.request.grown is not None:
                sequence.request.grown(tokens[row], logprobs[row])

    def _finish(self, row: int, reason: StopReason) -> None:
        sequence = self._running[row]
        known = np.concatenate((sequence.prompt, np.array(sequence.output[:-1], np.int32)))
        self._cache.put(Prefix(self._sampler.spec, known, self._slab.copy(row)))
        self._leave(row)
        request = sequence.request
        request.results[sequence.index] = Sampled(
            np.array(sequence.output, np.int32), np.array(sequence.logprobs, np.float32), reason
        )
        done = [result for result in request.results if result is not None]
        if len(done) == len(request.results) and request.future.set_running_or_notify_cancel():
            request.future.set_result(done)

    def _break(self, row: int) -> None:
        """Fail the request of a row whose distribution is not finite."""
        future = self._running[row].request.future
        self._leave(row)
        if not future.done() and future.set_running_or_notify_cancel():
            future.set_exception(_not_finite(self._sampler.spec))

    def _leave(self, row: int) -> None:
        self._slab.remove(row)
        last = self._running.pop()
        if row < len(self._running):
            self._running[row] = last


def _not_finite(spec: SamplerSpec) -> InvalidInput:
    return InvalidInput(
        f"{spec.base_model} with adapter {spec.adapter} gives no finite distribution.",
        object=ErrorObject(type="adapter", id=spec.adapter),
        next="Sample from an earlier checkpoint; train with a lower learning rate.",
    )


class _PrefillAttention:
    """Causal attention of pieces of prompts, each over the keys and values before it."""

    def __init__(self, pieces: list[tuple[_Sequence, int]]) -> None:
        self._pieces = pieces
        self._sizes = [count for _, count in pieces]
        self._masks = [
            causal_mask(count, sequence.computed + count) if sequence.computed else None
            for sequence, count in pieces
        ]

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        parts: list[torch.Tensor] = []
        parted = (split(x, self._sizes) for x in (q, k, v))
        for (sequence, count), mask, q_part, k_part, v_part in zip(
            self._pieces, self._masks, *parted, strict=True
        ):
            assert sequence.prefill is not None
            keys, values = sequence.prefill[layer]
            end = sequence.computed + count
            keys[:, sequence.computed : end] = k_part.transpose(0, 1)
            values[:, sequence.computed : end] = v_part.transpose(0, 1)
            attended = F.scaled_dot_product_attention(
                q_part.transpose(0, 1)[None],
                keys[None, :, :end],
                values[None, :, :end],
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=True,
            )
            parts.append(attended[0].transpose(0, 1))
        return torch.cat(parts).reshape(q.shape[0], -1)
