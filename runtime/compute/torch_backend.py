"""The embedded backend: torch on CPU.

Two threads do all the work: the engine samples (`engine`), and one worker runs the trainers'
operations in the order of their arrival. Both use the same base weights, which never change,
so sampling and training of one model may overlap.
"""

import asyncio
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

# Waiting OpenMP threads must sleep, not spin: spinning costs up to nine times the speed when
# other processes want the cores. Read once, when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import anyio
import anyio.to_thread
import torch

from runtime.compute import models
from runtime.compute.chunks import Growth
from runtime.compute.engine import Engine, Sampler
from runtime.compute.llama import Llama
from runtime.compute.lora import ADAPTER_SCHEMA, Layout, Lora, parse_file
from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import (
    AdamParams,
    Chunk,
    Datum,
    FloatArray,
    ForwardResult,
    Health,
    IntArray,
    Sampled,
    SamplerSpec,
    SamplingParams,
    SavedBytes,
    TrainerInfo,
    TrainerInit,
)
from runtime.compute.sampling import check_params
from runtime.compute.scoring import sequence_logprobs
from runtime.compute.store import Store
from runtime.compute.threads import Threads
from runtime.compute.trainer import Trainer
from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput, NotFound, Unavailable

MAX_BATCH = 32
PREFIX_BYTES = 512 << 20
MAX_ADAPTERS = 8
"""Adapters kept loaded, least recently used first out."""


@dataclass(slots=True, eq=False)
class _Live:
    """A trainer and whether it still takes operations."""

    init: TrainerInit
    trainer: Trainer
    closed: bool = False


class TorchCompute:
    """Sampling and LoRA training of the models with backend `torch`.

    The part of `protocol.Compute` that needs torch; `router.LocalCompute` adds the rest.
    """

    def __init__(
        self,
        store: Store,
        *,
        threads: Threads,
        incarnation: str | None = None,
        max_batch: int = MAX_BATCH,
        prefix_bytes: int = PREFIX_BYTES,
    ) -> None:
        self._store = store
        self._threads = threads
        self._incarnation = incarnation or secrets.token_hex(16)
        self._engine = Engine(
            threads=threads.sample, max_batch=max_batch, prefix_bytes=prefix_bytes
        )
        self._worker = ThreadPoolExecutor(
            1,
            thread_name_prefix="trainer",
            initializer=torch.set_num_threads,
            initargs=(threads.train,),
        )
        self._loading = threading.Lock()
        self._models: dict[str, Llama] = {}
        self._adapters: OrderedDict[SamplerSpec, Lora] = OrderedDict()
        self._trainers: dict[str, _Live] = {}
        self._created = 0
        self._closing = False

    @property
    def engine(self) -> Engine:
        """The sampler, for its counters."""
        return self._engine

    async def aclose(self) -> None:
        """End both threads; a running pass is finished. Not cancelled half way."""
        self._closing = True
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._engine.close)
            await anyio.to_thread.run_sync(lambda: self._worker.shutdown(cancel_futures=True))

    async def health(self) -> Health:
        """Who this is, and which trainers live here."""
        return Health(
            incarnation=self._incarnation,
            backend="torch",
            threads=self._threads.train,
            trainers=tuple(self._trainers),
            trainers_created=self._created,
        )

    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
    ) -> list[Sampled]:
        """Sample. Cancelling frees the sequences' rows at the next step."""
        if num_samples < 1:
            raise _bad_sampling(f"num_samples is {num_samples}, not at least 1")
        loaded = await self._ready(sampler, prompt, params)
        return await _result(self._engine.submit(loaded, prompt, params, num_samples))

    @asynccontextmanager
    async def stream(
        self, sampler: SamplerSpec, prompt: IntArray, params: SamplingParams
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        """Sample one sequence in chunks. Leaving or cancelling frees its row at the next step."""
        loaded = await self._ready(sampler, prompt, params)
        growth = Growth()
        future = self._engine.submit(loaded, prompt, params, 1, growth.add)
        async with aclosing(growth.chunks(future)) as chunks:
            try:
                yield chunks
            finally:
                future.cancel()

    async def _ready(
        self, sampler: SamplerSpec, prompt: IntArray, params: SamplingParams
    ) -> Sampler:
        """The loaded sampler of a call that makes sense."""
        loaded = await anyio.to_thread.run_sync(self._sampler, sampler)
        check_params(params, loaded.model.vocabulary)
        _check_prompt(prompt, loaded.model, room=1)
        return loaded

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        """Log-probability of each token given those before it; the first is NaN."""
        loaded = await anyio.to_thread.run_sync(self._sampler, sampler)
        _check_prompt(tokens, loaded.model, room=0)
        return await _result(
            self._engine.call(lambda: sequence_logprobs(loaded.model, loaded.lora, tokens))
        )

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        """Open a trainer. Repeating the call returns the same one, another `init` conflicts."""

        def create() -> TrainerInfo:
            live = self._trainers.get(trainer)
            if live is None:
                live = _Live(init, self._open(init))
                self._trainers[trainer] = live
                self._created += 1
            elif live.init != init:
                raise Conflict(
                    f"Trainer {trainer} is open with other settings.",
                    object=ErrorObject(type="trainer", id=trainer),
                    next="Close it first, or choose another id.",
                )
            return self._info(trainer, live)

        return await _result(self._worker.submit(create))

    async def trainer(self, trainer: str) -> TrainerInfo | None:
        """A live trainer, or None."""
        live = self._trainers.get(trainer)
        return None if live is None or live.closed else self._info(trainer, live)

    async def close_trainer(self, trainer: str) -> None:
        """End a trainer after its running operation; queued ones fail."""
        live = self._trainers.get(trainer)
        if live is not None:
            live.closed = True

        def close() -> None:
            self._trainers.pop(trainer, None)

        # A turn in the queue: when it runs, nothing submitted before is still to come.
        with anyio.CancelScope(shield=True):
            await _result(self._worker.submit(close))

    async def forward(
        self,
        trainer: str,
        data: Sequence[Datum],
        loss: Loss,
        *,
        backward: bool,
        config: LossConfig = NO_CONFIG,
    ) -> ForwardResult:
        """Forward, and with `backward` add to the accumulated gradient."""
        return await self._run(
            trainer,
            lambda t: t.forward(
                data, loss, backward=backward, config=config, proceed=self._proceed
            ),
        )

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradient."""
        return await self._run(trainer, lambda t: t.optim_step(params))

    async def save_state(self, trainer: str, name: str) -> SavedBytes:
        """Save adapter and optimizer state under `name`."""
        return await self._run(trainer, lambda t: self._store.save_state(name, t.state()))

    async def save_adapter(self, trainer: str) -> SavedBytes:
        """Save the current adapter by content."""
        return await self._run(trainer, lambda t: self._store.add_adapter(t.adapter()))

    async def _run[T](self, trainer: str, operation: Callable[[Trainer], T]) -> T:
        """Queue an operation; cancelled while queued it is dropped, once begun it completes."""
        queued = self._trainers.get(trainer)

        def run() -> T:
            live = self._trainers.get(trainer)
            if live is None or live is not queued or live.closed:
                raise _trainer_missing(trainer)
            return operation(live.trainer)

        if queued is None:
            raise _trainer_missing(trainer)
        return await _result(self._worker.submit(run))

    def _proceed(self) -> None:
        """Abandon a long operation when the process ends."""
        if self._closing:
            raise Unavailable(
                "The compute process is ending; the call changed nothing.",
                code=ErrorCode.COMPUTE_UNAVAILABLE,
                object=ErrorObject(type="process", id="compute"),
                next="Repeat the call when it runs again.",
            )

    def _open(self, init: TrainerInit) -> Trainer:
        model = self._model(init.base_model)
        if init.state is not None and init.adapter is not None:
            raise InvalidInput(
                "A trainer starts from an adapter or from a state, not from both.",
                object=ErrorObject(type="trainer"),
                next="Leave one of them out.",
            )
        if init.state is not None:
            data = self._store.get_state(init.state)
            return Trainer.from_state(
                model, init.base_model, data, with_optimizer=init.with_optimizer
            )
        if init.adapter is not None:
            data = self._store.get_adapter(init.adapter)
            return Trainer.from_adapter(model, init.base_model, data)
        return Trainer(model, init.base_model, init.lora)

    def _info(self, trainer: str, live: _Live) -> TrainerInfo:
        return TrainerInfo(
            id=trainer,
            incarnation=self._incarnation,
            base_model=live.init.base_model,
            lora=live.trainer.lora,
            steps=live.trainer.steps,
        )

    def _model(self, name: str) -> Llama:
        with self._loading:
            if name not in self._models:
                self._models[name] = Llama(models.model_path(name))
            return self._models[name]

    def _sampler(self, spec: SamplerSpec) -> Sampler:
        model = self._model(spec.base_model)
        if spec.adapter is None:
            return Sampler(spec, model, None)
        with self._loading:
            lora = self._adapters.get(spec)
            if lora is None:
                lora = self._load_adapter(spec, spec.adapter, model)
                self._adapters[spec] = lora
                if len(self._adapters) > MAX_ADAPTERS:
                    self._adapters.popitem(last=False)
            self._adapters.move_to_end(spec)
        return Sampler(spec, model, lora)

    def _load_adapter(self, spec: SamplerSpec, adapter: str, model: Llama) -> Lora:
        file = parse_file(self._store.get_adapter(adapter), ADAPTER_SCHEMA)
        if file.base_model != spec.base_model:
            raise InvalidInput(
                f"Adapter {adapter} belongs to {file.base_model}, not to {spec.base_model}.",
                object=ErrorObject(type="adapter", id=adapter),
                next=f"Sample from {file.base_model}.",
            )
        layout = Layout(model.fused(), file.lora.rank)
        with torch.no_grad():
            return layout.pairs(layout.flat(file.tensors), file.lora.alpha / file.lora.rank)


async def _result[T](future: "Future[T]") -> T:
    """Await a thread's future; cancelling the wait cancels it unless it has begun."""
    return await asyncio.wrap_future(future)


def _check_prompt(tokens: IntArray, model: Llama, *, room: int) -> None:
    if tokens.ndim != 1 or len(tokens) == 0:
        raise _bad_sampling("there is no token")
    if int(tokens.min()) < 0 or int(tokens.max()) >= model.vocabulary:
        raise _bad_sampling(f"an id is outside 0..{model.vocabulary - 1}")
    if len(tokens) + room > model.context:
        raise InvalidInput(
            f"The prompt has {len(tokens)} tokens; the model's context holds {model.context}.",
            code=ErrorCode.PROMPT_TOO_LONG,
            object=ErrorObject(type="prompt"),
            next="Shorten the conversation.",
        )


def _bad_sampling(why: str) -> InvalidInput:
    return InvalidInput(
        f"The sampling call is invalid: {why}.",
        object=ErrorObject(type="sampling"),
        next="Correct the call.",
    )


def _trainer_missing(trainer: str) -> NotFound:
    return NotFound(
        f"Trainer {trainer} does not live in this backend process.",
        code=ErrorCode.TRAINER_MISSING,
        object=ErrorObject(type="trainer", id=trainer),
        next="Open it again from its last saved state.",
    )
