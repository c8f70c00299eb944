"""`HttpCompute`: the compute protocol over a Unix socket.

Calls have no time limit: sampling and training take as long as they take, and a process that
dies closes its connections. Cancelling a call closes its connection, which the server takes
as cancelling (see `server`). Errors arrive as what was raised there; a process that cannot be
reached, or that ends before it has answered, is `compute_unavailable`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import httpx
from pydantic import JsonValue

from runtime.compute import messages as m
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
from runtime.compute.wire import (
    MEDIA_TYPE,
    PROBLEM_MEDIA_TYPE,
    Frames,
    Message,
    Writer,
    decode,
    encode,
)
from specs.canonical import read
from specs.errors import ErrorCode, ErrorObject, PracticumError, Problem, Unavailable
from specs.model import ModelInfo

CONNECT_TIMEOUT_S = 10.0


class HttpCompute:
    """Implements `Compute`. Use as an async context manager, or call `aclose`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=str(socket),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            ),
            base_url="http://compute",
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            headers={"content-type": MEDIA_TYPE},
            trust_env=False,
        )
        self._turns: dict[str, anyio.Lock] = {}

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
        """Close the connections; calls under way fail."""
        await self._client.aclose()

    async def _call(self, method: str, message: Message) -> Message:
        with self._reaching():
            response = await self._client.post(f"/v1/{method}", content=encode(message))
        if response.is_success:
            return decode(response.content)
        raise self._refusal(response, response.content)

    def _refusal(self, response: httpx.Response, body: bytes) -> PracticumError:
        """The error behind an answer that is none.

        A compute process that ends cancels the calls still under way, and its HTTP server
        answers them in its own words: what became of them nobody says, as with a broken
        connection.
        """
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if response.is_server_error and kind != PROBLEM_MEDIA_TYPE:
            return self._unreachable(f"it answered {response.status_code} and no problem")
        return PracticumError.from_problem(read(Problem, body, what="problem"))

    @contextmanager
    def _reaching(self) -> Generator[None]:
        """A transport that fails is a compute process that is away."""
        try:
            yield
        except httpx.TransportError as error:
            raise self._unreachable(f"{error or type(error).__name__}") from error

    def _unreachable(self, why: str) -> Unavailable:
        return Unavailable(
            f"The compute process cannot be reached at {self._socket}: {why}.",
            code=ErrorCode.COMPUTE_UNAVAILABLE,
            object=ErrorObject(type="process", id="compute"),
            next="Run `practicum status`; `practicum up` starts what is not running.",
        )

    async def _name(self, method: str, name: str, **more: JsonValue) -> Message:
        return await self._call(method, Message({"name": name, **more}))

    async def _turn(self, trainer: str, method: str, message: Message) -> Message:
        """One operation of a trainer, after those called before it.

        Requests travel on separate connections and could overtake each other, so the next is
        sent when the one before is answered.
        """
        async with self._turns.setdefault(trainer, anyio.Lock()):
            return await self._call(method, message)

    async def health(self) -> Health:
        """Who is there, and which trainers live there."""
        reply = await self._call("health", Message({}))
        return reply.read(m.HealthResponse, what="health").health

    async def models(self) -> list[ModelInfo]:
        """Every known model, present or not."""
        reply = await self._call("models", Message({}))
        return reply.read(m.ModelsResponse, what="models").models

    async def model(self, name: str) -> ModelInfo:
        """One model."""
        reply = await self._name("model", name)
        return reply.read(m.ModelsResponse, what="model").models[0]

    async def tokenizer(self, name: str) -> bytes:
        """`tokenizer.json` of a model."""
        return _bytes(await self._name("tokenizer", name))

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
        writer = Writer()
        message = writer.message(
            sampler=m.fields(sampler),
            prompt=writer.add(prompt),
            params=m.fields(params),
            num_samples=num_samples,
            context=m.fields(context),
        )
        return m.read_sampled(await self._call("sample", message))

    @asynccontextmanager
    async def stream(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        context: SampleContext = NO_CONTEXT,
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        """Sample one sequence in chunks. Leaving or cancelling closes the connection, which
        frees its place in the batch."""
        writer = Writer()
        message = writer.message(
            sampler=m.fields(sampler),
            prompt=writer.add(prompt),
            params=m.fields(params),
            context=m.fields(context),
        )
        opened = self._client.stream("POST", "/v1/stream", content=encode(message))
        async with AsyncExitStack() as stack:
            with self._reaching():
                response = await stack.enter_async_context(opened)
                problem = b"" if response.is_success else await response.aread()
            if not response.is_success:
                raise self._refusal(response, problem)
            yield await stack.enter_async_context(aclosing(self._chunks(response)))

    async def _chunks(self, response: httpx.Response) -> AsyncGenerator[Chunk]:
        """What a response brings; a connection that ends early is `compute_unavailable`."""
        frames, ended = Frames(), False
        with self._reaching():
            async for data in response.aiter_raw():
                for message in frames.feed(data):
                    chunk = m.read_chunk(message)
                    ended = chunk.stop_reason is not None
                    yield chunk
        if not ended or not frames.empty:
            raise self._unreachable("the answer was cut off")

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        """Log-probability of each token given those before it; the first is NaN."""
        writer = Writer()
        message = writer.message(sampler=m.fields(sampler), tokens=writer.add(tokens))
        reply = await self._call("logprobs", message)
        return reply.float32(reply.read(m.ArraysResponse, what="logprobs").arrays[0])

    async def has_adapter(self, digest: str) -> bool:
        """Whether an adapter's bytes are there."""
        reply = await self._name("has_adapter", digest)
        return reply.read(m.BoolResponse, what="has_adapter").value

    async def put_adapter(self, digest: str, data: bytes) -> None:
        """Store an adapter."""
        writer = Writer()
        await self._call("put_adapter", writer.message(name=digest, data=writer.add(data)))

    async def get_adapter(self, digest: str) -> bytes:
        """An adapter's bytes."""
        return _bytes(await self._name("get_adapter", digest))

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        """Open a trainer; repeating the call returns the same one."""
        reply = await self._name("create_trainer", trainer, init=m.fields(init))
        info = reply.read(m.TrainerResponse, what="trainer").trainer
        assert info is not None, "an opened trainer is described"
        return info

    async def trainer(self, trainer: str) -> TrainerInfo | None:
        """A live trainer, or None."""
        reply = await self._name("trainer", trainer)
        return reply.read(m.TrainerResponse, what="trainer").trainer

    async def close_trainer(self, trainer: str) -> None:
        """End a trainer after its running operation; queued ones fail."""
        await self._name("close_trainer", trainer)
        self._turns.pop(trainer, None)

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
        writer = Writer()
        message = writer.message(
            name=trainer,
            data=m.write_data(writer, data),
            loss=str(loss),
            backward=backward,
            config=m.fields(config),
        )
        return m.read_forward(await self._turn(trainer, "forward", message))

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradient."""
        message = Message({"name": trainer, "params": m.fields(params)})
        reply = await self._turn(trainer, "optim_step", message)
        return reply.read(m.MetricsResponse, what="metrics").metrics

    async def save_state(self, trainer: str, name: str) -> SavedBytes:
        """Save adapter and optimizer state under `name`."""
        message = Message({"name": trainer, "state": name})
        return _saved(await self._turn(trainer, "save_state", message))

    async def find_state(self, name: str) -> SavedBytes | None:
        """Digest and size of a saved state, or None."""
        reply = await self._name("find_state", name)
        return reply.read(m.SavedResponse, what="state").saved

    async def get_state(self, name: str) -> bytes:
        """A saved state's bytes."""
        return _bytes(await self._name("get_state", name))

    async def put_state(self, name: str, data: bytes) -> SavedBytes:
        """Bring back a saved state."""
        writer = Writer()
        return _saved(
            await self._call("put_state", writer.message(name=name, data=writer.add(data)))
        )

    async def drop_state(self, name: str) -> None:
        """Forget a saved state."""
        await self._name("drop_state", name)

    async def save_adapter(self, trainer: str) -> SavedBytes:
        """Save the current adapter by content."""
        return _saved(await self._turn(trainer, "save_adapter", Message({"name": trainer})))


def _bytes(reply: Message) -> bytes:
    return reply.data(reply.read(m.DataResponse, what="bytes").data)


def _saved(reply: Message) -> SavedBytes:
    saved = reply.read(m.SavedResponse, what="saved bytes").saved
    assert saved is not None, "what was saved is described"
    return saved
