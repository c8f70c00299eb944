"""Sampling at the training service: one session, a client for each sampler.

The SDK gives whole sequences, so a stream is one that arrives at its end.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import tinker
from tinker import APIFuture, types

from runtime.compute.chunks import chunked
from runtime.compute.protocol import (
    Chunk,
    FloatArray,
    IntArray,
    Sampled,
    SamplerSpec,
    SamplingParams,
)
from runtime.compute.store import Store
from runtime.compute.tinker_data import (
    check_prompt,
    check_sampling,
    from_sequence,
    plain,
    to_input,
    to_sampling,
)
from runtime.compute.tinker_errors import not_there
from runtime.compute.tinker_refs import Weights, expired, read_weights
from runtime.compute.tinker_service import Observer, Service
from runtime.compute.waits import Doing

_log = logging.getLogger(__name__)

CHUNK = 16
"""Tokens that a chunk of a finished sequence has."""
MAX_SAMPLERS = 8
"""Sampling clients kept, least recently used first out."""


@dataclass(eq=False, slots=True)
class _Sampling:
    client: tinker.SamplingClient
    observer: Observer


class Samplers:
    """Samples from base models and adapters; see `protocol.Compute` for what each call does."""

    def __init__(self, store: Store, service: Service) -> None:
        self._store = store
        self._service = service
        self._session: tinker.ServiceClient | None = None
        self._clients: OrderedDict[SamplerSpec, _Sampling] = OrderedDict()
        self._connecting = asyncio.Lock()

    async def aclose(self) -> None:
        """Finish the session."""
        session, self._session = self._session, None
        self._clients.clear()
        if session is not None:
            await self._service.end(session)

    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
    ) -> list[Sampled]:
        """Sample. Cancelling gives the requests up, at the service too where it allows that.

        The service may give equal samples to a call with a seed, so each gets its own.
        """
        context = self._service.models.model(sampler.base_model).context_tokens
        check_sampling(prompt, params, num_samples, context)
        asked, room = to_input(prompt), context - len(prompt)
        seeds: list[int | None] = [None]
        if params.seed is not None:
            seeds = [(params.seed + index) % (1 << 31) for index in range(num_samples)]
        each = num_samples if params.seed is None else 1

        def begin(client: tinker.SamplingClient) -> list[APIFuture[types.SampleResponse]]:
            return [client.sample(asked, each, to_sampling(params, seed, room)) for seed in seeds]

        answers = await self._sampled(sampler, "sample", begin)
        found = [from_sequence(one, params) for answer in answers for one in answer.sequences]
        return found if plain(params) else await self._untempered(sampler, prompt, found)

    async def _untempered(
        self, sampler: SamplerSpec, prompt: IntArray, samples: list[Sampled]
    ) -> list[Sampled]:
        """The same with log-probs of the model's own distribution, computed again: what the
        service returns under a temperature or filter is not specified."""
        results: list[Sampled] = []
        for sample in samples:
            whole = np.concatenate((prompt, sample.tokens))
            tail = (await self.logprobs(sampler, whole))[len(prompt) :]
            results.append(Sampled(sample.tokens, tail, sample.stop_reason))
        return results

    @asynccontextmanager
    async def stream(
        self, sampler: SamplerSpec, prompt: IntArray, params: SamplingParams
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        """Sample one sequence, whose chunks come when it is whole. Cancelling is as in `sample`."""
        (sampled,) = await self.sample(sampler, prompt, params)

        async def chunks() -> AsyncGenerator[Chunk]:
            for chunk in chunked(sampled, CHUNK):
                yield chunk
                await anyio.lowlevel.checkpoint()

        yield chunks()

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        """Log-probability of each token given those before it; the first is NaN."""
        context = self._service.models.model(sampler.base_model).context_tokens
        check_prompt(tokens, context, room=0)
        asked = to_input(tokens)
        (values,) = await self._sampled(
            sampler, "logprobs", lambda client: [client.compute_logprobs(asked)]
        )
        return np.array([np.nan if v is None else v for v in values], np.float32)

    async def _sampled[T](
        self,
        sampler: SamplerSpec,
        operation: str,
        begin: Callable[[tinker.SamplingClient], list[APIFuture[T]]],
    ) -> list[T]:
        """Sample with the sampler's client; one whose session has ended is made again, once."""
        async with self._service.explained(operation, sampler.base_model) as entry:
            for last in (False, True):
                sampling = await self._client(sampler, entry)
                with sampling.observer.watching(entry):
                    try:
                        return await self._all(entry, begin(sampling.client))
                    except Exception as error:
                        if last or not not_there(error):
                            raise
                        _log.warning("the sampling session has ended: %s", error)
                        await self._disconnect(sampling)
        raise AssertionError("the second attempt returns or raises")

    async def _all[T](self, entry: Doing, futures: list[APIFuture[T]]) -> list[T]:
        """All results; when one fails or the wait is cancelled, the others are given up."""
        try:
            return [await self._service.result(entry, future) for future in futures]
        finally:
            for future in futures:
                future.future().cancel()

    async def _client(self, sampler: SamplerSpec, entry: Doing) -> _Sampling:
        async with self._connecting:
            found = self._clients.get(sampler)
            if found is None:
                found = await self._connect(sampler, entry)
                self._clients[sampler] = found
                if len(self._clients) > MAX_SAMPLERS:
                    self._clients.popitem(last=False)
            self._clients.move_to_end(sampler)
        return found

    async def _connect(self, sampler: SamplerSpec, entry: Doing) -> _Sampling:
        weights: Weights | None = None
        if sampler.adapter is not None:
            data = await anyio.to_thread.run_sync(self._store.get_adapter, sampler.adapter)
            weights = read_weights(data, "adapter", sampler.base_model)
        await self._service.require_offered(sampler.base_model, training=False)
        model = self._service.models.configured(sampler.base_model).model
        path = None if weights is None else weights.sampler_path
        for last in (False, True):
            session = self._session
            if session is None:
                session = self._session = self._service.client("sampling")

            def begin(session: tinker.ServiceClient = session) -> APIFuture[tinker.SamplingClient]:
                if path is not None:
                    return session.create_sampling_client(model_path=path)
                return session.create_sampling_client(base_model=model)

            try:
                client = await self._service.call(entry, begin)
            except Exception as error:
                if not not_there(error):
                    raise
                if last and weights is not None:
                    raise expired(weights, "it does not know the path") from error
                if last:
                    raise
                self._session = None
                await self._service.end(session, "errored")
            else:
                observer = Observer()
                observer.listen(client, "on_queue_state_change", observer.on_queue_state_change)
                return _Sampling(client, observer)
        raise AssertionError("the second attempt returns or raises")

    async def _disconnect(self, sampling: _Sampling) -> None:
        """Forget a session that has ended, and all its clients, unless that was done before."""
        async with self._connecting:
            if sampling not in self._clients.values():
                return
            session, self._session = self._session, None
            self._clients.clear()
            if session is not None:
                await self._service.end(session, "errored")
