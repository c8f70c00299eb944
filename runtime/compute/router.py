"""`LocalCompute`: all local models behind one `Compute`.

Calls go to the backend of the model they name. What needs no torch (models, tokenizers,
scripted replies, saved files) is answered without importing it; torch and its threads start
with the first call that needs them, so a process that only plays scenarios stays small and a
server is ready at once. The SDK of a training service is imported with the first call of its
models, too. A saved state or adapter is found in one store, whichever backend saved it.
"""

import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel
import anyio.to_thread

from runtime.compute import models
from runtime.compute.chunks import chunked
from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import (
    NO_CONTEXT,
    AdamParams,
    Chunk,
    Datum,
    FloatArray,
    ForwardResult,
    Health,
    IntArray,
    SampleContext,
    Sampled,
    SamplerSpec,
    SamplingParams,
    SavedBytes,
    TrainerInfo,
    TrainerInit,
)
from runtime.compute.scripted import ScriptedCompute
from runtime.compute.store import Store
from runtime.compute.threads import Threads
from runtime.compute.tinker_models import TinkerModels
from runtime.compute.tinker_refs import Ledger
from runtime.compute.upstreams import Upstreams
from runtime.compute.waits import Waits
from specs.errors import ErrorCode, ErrorObject, InvalidInput, Unavailable
from specs.model import ModelInfo
from specs.tinker import TinkerSettings
from specs.upstream import Upstream

if TYPE_CHECKING:
    from runtime.compute.tinker_backend import TinkerCompute
    from runtime.compute.torch_backend import TorchCompute


SCRIPTED_CHUNK = 16
"""Tokens that a scripted model shows at once, so that its replies stream like any other."""


class LocalCompute:
    """Implements `Compute`. Use as an async context manager, or call `aclose`."""

    def __init__(
        self,
        state_folder: Path,
        *,
        threads: int | None = None,
        prefix_bytes: int | None = None,
        upstreams: Sequence[Upstream] = (),
        tinker: TinkerSettings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._upstreams = Upstreams(upstreams)
        self._remote = TinkerModels(
            tinker or TinkerSettings(), os.environ if environment is None else environment
        )
        self._store = Store(state_folder)
        self._threads = Threads.choose(threads)
        self._prefix_bytes = prefix_bytes
        self._incarnation = secrets.token_hex(16)
        self._scripted = ScriptedCompute()
        self._torch: TorchCompute | None = None
        self._tinker: TinkerCompute | None = None
        self._ledger = Ledger(state_folder / "tinker")
        self._waits = Waits()
        self._starting = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the threads after their running operation, and what is open at a service."""
        if self._tinker is not None:
            await self._tinker.aclose()
        if self._torch is not None:
            await self._torch.aclose()

    async def torch(self) -> "TorchCompute":
        """The torch backend, started now if it was not."""
        async with self._starting:
            if self._torch is None:
                self._torch = await anyio.to_thread.run_sync(self._start_torch)
        return self._torch

    def _start_torch(self) -> "TorchCompute":
        from runtime.compute.torch_backend import PREFIX_BYTES, TorchCompute  # torch: seconds

        return TorchCompute(
            self._store,
            threads=self._threads,
            incarnation=self._incarnation,
            prefix_bytes=PREFIX_BYTES if self._prefix_bytes is None else self._prefix_bytes,
        )

    async def tinker(self) -> "TinkerCompute":
        """The training service's backend, started now if it was not.

        Raises:
            Unavailable: there is no key (`service_key_missing`), or its SDK is not installed.
        """
        self._remote.key()
        async with self._starting:
            if self._tinker is None:
                self._tinker = await anyio.to_thread.run_sync(self._start_tinker)
        return self._tinker

    def _start_tinker(self) -> "TinkerCompute":
        try:
            from runtime.compute.tinker_backend import TinkerCompute  # imports the SDK: seconds
            from runtime.compute.tinker_service import Service
        except ModuleNotFoundError as error:
            raise Unavailable(
                f"The training service's SDK is not installed: {error}.",
                code=ErrorCode.COMPUTE_UNAVAILABLE,
                object=ErrorObject(type="process", id="compute"),
                next="Install practicum with the extra `tinker`.",
            ) from None
        return TinkerCompute(
            self._store,
            self._ledger,
            Service(self._remote, self._waits),
            incarnation=self._incarnation,
        )

    async def _of(self, trainer: str) -> "TorchCompute | TinkerCompute":
        """The backend in which a trainer lives; torch for one that lives nowhere."""
        if self._tinker is not None and trainer in self._tinker:
            return self._tinker
        return await self.torch()

    async def health(self) -> Health:
        """Who this is, and which trainers live here."""
        trainers, created = (), 0
        if self._torch is not None:
            local = await self._torch.health()
            trainers, created = local.trainers, local.trainers_created
        if self._tinker is not None:
            trainers, created = trainers + self._tinker.trainers, created + self._tinker.created
        return Health(
            incarnation=self._incarnation,
            backend="torch",
            threads=self._threads.train,
            trainers=trainers,
            trainers_created=created,
            waits=self._waits.current(),
        )

    async def models(self) -> list[ModelInfo]:
        """Every known model, present or not."""
        local = await anyio.to_thread.run_sync(models.list_models)
        return local + self._upstreams.models() + self._remote.models()

    async def model(self, name: str) -> ModelInfo:
        """One model."""
        if name in self._upstreams:
            return self._upstreams.model(name)
        if name in self._remote:
            return self._remote.model(name)
        return await anyio.to_thread.run_sync(models.model_info, name)

    async def tokenizer(self, name: str) -> bytes:
        """`tokenizer.json` of a model."""
        if name in self._upstreams:
            return self._upstreams.tokenizer(name)
        if name in self._remote:
            return await anyio.to_thread.run_sync(self._remote.tokenizer, name)
        return await anyio.to_thread.run_sync(models.tokenizer_bytes, name)

    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
        context: SampleContext = NO_CONTEXT,
    ) -> list[Sampled]:
        """Sample. Cancelling frees the sequences' place in the batch."""
        self._upstreams.refuse(sampler.base_model)
        if sampler.base_model in self._remote:
            samplers = (await self.tinker()).samplers
            return await samplers.sample(sampler, prompt, params, num_samples=num_samples)
        if (await self.model(sampler.base_model)).backend == "scripted":
            _refuse_adapter(sampler)
            return await self._scripted.sample(
                sampler.base_model, params, num_samples=num_samples, context=context
            )
        torch = await self.torch()
        return await torch.sample(sampler, prompt, params, num_samples=num_samples)

    @asynccontextmanager
    async def stream(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        context: SampleContext = NO_CONTEXT,
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        """Sample one sequence in chunks. Leaving or cancelling frees its place in the batch."""
        self._upstreams.refuse(sampler.base_model)
        if sampler.base_model in self._remote:
            samplers = (await self.tinker()).samplers
            async with samplers.stream(sampler, prompt, params) as chunks:
                yield chunks
            return
        if (await self.model(sampler.base_model)).backend == "scripted":
            (sampled,) = await self.sample(sampler, prompt, params, context=context)
            yield _each(chunked(sampled, SCRIPTED_CHUNK))
            return
        torch = await self.torch()
        async with torch.stream(sampler, prompt, params) as chunks:
            yield chunks

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        """Log-probability of each token given those before it; the first is NaN."""
        self._upstreams.refuse(sampler.base_model)
        if sampler.base_model in self._remote:
            return await (await self.tinker()).samplers.logprobs(sampler, tokens)
        if (await self.model(sampler.base_model)).backend == "scripted":
            raise _not_torch(sampler.base_model, "has no log-probabilities")
        return await (await self.torch()).logprobs(sampler, tokens)

    async def has_adapter(self, digest: str) -> bool:
        """Whether an adapter's bytes are here."""
        return await anyio.to_thread.run_sync(self._store.has_adapter, digest)

    async def put_adapter(self, digest: str, data: bytes) -> None:
        """Store an adapter."""
        await anyio.to_thread.run_sync(self._store.put_adapter, digest, data)

    async def get_adapter(self, digest: str) -> bytes:
        """An adapter's bytes."""
        return await anyio.to_thread.run_sync(self._store.get_adapter, digest)

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        """Open a trainer; repeating the call returns the same one."""
        self._upstreams.refuse(init.base_model)
        if init.base_model in self._remote:
            return await (await self.tinker()).create_trainer(trainer, init)
        if not (await self.model(init.base_model)).trainable:
            raise _not_torch(init.base_model, "cannot be trained")
        return await (await self.torch()).create_trainer(trainer, init)

    async def trainer(self, trainer: str) -> TrainerInfo | None:
        """A live trainer, or None."""
        if self._tinker is not None and trainer in self._tinker:
            return await self._tinker.trainer(trainer)
        return None if self._torch is None else await self._torch.trainer(trainer)

    async def close_trainer(self, trainer: str) -> None:
        """End a trainer after its running operation; queued ones fail."""
        if self._tinker is not None:
            await self._tinker.close_trainer(trainer)
        if self._torch is not None:
            await self._torch.close_trainer(trainer)

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
        return await (await self._of(trainer)).forward(
            trainer, data, loss, backward=backward, config=config
        )

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradient."""
        return await (await self._of(trainer)).optim_step(trainer, params)

    async def save_state(self, trainer: str, name: str) -> SavedBytes:
        """Save adapter and optimizer state under `name`."""
        return await (await self._of(trainer)).save_state(trainer, name)

    async def find_state(self, name: str) -> SavedBytes | None:
        """Digest and size of a saved state, or None."""
        found = await anyio.to_thread.run_sync(self._store.find_state, name)
        if found is None and await anyio.to_thread.run_sync(self._ledger.find, name):
            return await (await self.tinker()).find_state(name)
        return found

    async def get_state(self, name: str) -> bytes:
        """A saved state's bytes."""
        return await anyio.to_thread.run_sync(self._store.get_state, name)

    async def put_state(self, name: str, data: bytes) -> SavedBytes:
        """Bring back a saved state."""
        return await anyio.to_thread.run_sync(self._store.put_state, name, data)

    async def drop_state(self, name: str) -> None:
        """Forget a saved state."""
        await anyio.to_thread.run_sync(self._store.drop_state, name)
        await anyio.to_thread.run_sync(self._ledger.drop, name)

    async def save_adapter(self, trainer: str) -> SavedBytes:
        """Save the current adapter by content."""
        return await (await self._of(trainer)).save_adapter(trainer)


async def _each(chunks: Iterable[Chunk]) -> AsyncGenerator[Chunk]:
    """What is there already, one loop turn each; nothing to give up on cancel."""
    for chunk in chunks:
        yield chunk
        await anyio.lowlevel.checkpoint()


def _refuse_adapter(sampler: SamplerSpec) -> None:
    if sampler.adapter is not None:
        raise _not_torch(sampler.base_model, "takes no adapter")


def _not_torch(model: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"Model {model} {why}: it plays a scenario.",
        code=ErrorCode.MODEL_NOT_TRAINABLE,
        object=ErrorObject(type="model", id=model),
        next="Name a model that `practicum model list` shows as trainable.",
    )
