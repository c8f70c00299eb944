"""The compute process: the protocol over HTTP on a Unix socket.

    python -P -m runtime.compute.server --socket PATH --state DIR [--threads N]

It listens within a moment; torch and the models load with the first call that needs them.
Every method is `POST /v1/<method>`; see `messages`. Errors travel as problem documents. A
client that goes away while it waits for samples frees their place in the batch; a trainer
operation that has begun completes.
"""

import argparse
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast, override

import anyio
import uvicorn
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from runtime import exclusive
from runtime.compute import messages as m
from runtime.compute.protocol import Compute
from runtime.compute.router import LocalCompute
from runtime.compute.wire import (
    MEDIA_TYPE,
    PROBLEM_MEDIA_TYPE,
    STREAM_MEDIA_TYPE,
    Message,
    Writer,
    decode,
    encode,
    frame,
)
from specs.errors import ErrorCode, ErrorObject, Internal, InvalidInput, PracticumError

_log = logging.getLogger(__name__)

CLIENT_CLOSED = 499
"""Status of a response that nobody reads: the client went away."""

KEEP_ALIVE_S = 75
"""Longer than a client keeps an idle connection: else one is closed while a request comes."""
GRACE_S = 5
"""Seconds that calls under way get at SIGTERM before they are cancelled; uvicorn then answers
500 in its own words, or breaks off, and the client says `compute_unavailable`."""

MAX_BODY = 1 << 30

type Method = Callable[[Compute, Message], Awaitable[Message]]


async def _health(compute: Compute, message: Message) -> Message:
    message.read(m.Empty, what="health request")
    return Message({"health": m.fields(await compute.health())})


async def _models(compute: Compute, message: Message) -> Message:
    message.read(m.Empty, what="models request")
    return m.write_models(await compute.models())


async def _model(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="model request")
    return m.write_models([await compute.model(request.name)])


async def _tokenizer(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="tokenizer request")
    return m.write_bytes(await compute.tokenizer(request.name))


async def _sample(compute: Compute, message: Message) -> Message:
    request = message.read(m.SampleRequest, what="sample request")
    return m.write_sampled(
        await compute.sample(
            request.sampler,
            message.int32(request.prompt),
            request.params,
            num_samples=request.num_samples,
            context=request.context,
        )
    )


async def _logprobs(compute: Compute, message: Message) -> Message:
    request = message.read(m.LogprobsRequest, what="logprobs request")
    writer = Writer()
    result = await compute.logprobs(request.sampler, message.int32(request.tokens))
    return writer.message(arrays=[writer.add(result)])


async def _has_adapter(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="has_adapter request")
    return Message({"value": await compute.has_adapter(request.name)})


async def _put_adapter(compute: Compute, message: Message) -> Message:
    request = message.read(m.DataRequest, what="put_adapter request")
    await compute.put_adapter(request.name, message.data(request.data))
    return Message({})


async def _get_adapter(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="get_adapter request")
    return m.write_bytes(await compute.get_adapter(request.name))


async def _create_trainer(compute: Compute, message: Message) -> Message:
    request = message.read(m.CreateTrainerRequest, what="create_trainer request")
    return m.write_trainer(await compute.create_trainer(request.name, request.init))


async def _trainer(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="trainer request")
    return m.write_trainer(await compute.trainer(request.name))


async def _close_trainer(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="close_trainer request")
    await compute.close_trainer(request.name)
    return Message({})


async def _forward(compute: Compute, message: Message) -> Message:
    request = message.read(m.ForwardRequest, what="forward request")
    data = m.read_data(message, request.data)
    return m.write_forward(
        await compute.forward(
            request.name, data, request.loss, backward=request.backward, config=request.config
        )
    )


async def _optim_step(compute: Compute, message: Message) -> Message:
    request = message.read(m.OptimRequest, what="optim_step request")
    return m.write_metrics(await compute.optim_step(request.name, request.params))


async def _save_state(compute: Compute, message: Message) -> Message:
    request = message.read(m.SaveStateRequest, what="save_state request")
    return m.write_saved(await compute.save_state(request.name, request.state))


async def _find_state(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="find_state request")
    return m.write_saved(await compute.find_state(request.name))


async def _get_state(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="get_state request")
    return m.write_bytes(await compute.get_state(request.name))


async def _put_state(compute: Compute, message: Message) -> Message:
    request = message.read(m.DataRequest, what="put_state request")
    return m.write_saved(await compute.put_state(request.name, message.data(request.data)))


async def _drop_state(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="drop_state request")
    await compute.drop_state(request.name)
    return Message({})


async def _save_adapter(compute: Compute, message: Message) -> Message:
    request = message.read(m.NameRequest, what="save_adapter request")
    return m.write_saved(await compute.save_adapter(request.name))


METHODS: dict[str, Method] = {
    "health": _health,
    "models": _models,
    "model": _model,
    "tokenizer": _tokenizer,
    "sample": _sample,
    "logprobs": _logprobs,
    "has_adapter": _has_adapter,
    "put_adapter": _put_adapter,
    "get_adapter": _get_adapter,
    "create_trainer": _create_trainer,
    "trainer": _trainer,
    "close_trainer": _close_trainer,
    "forward": _forward,
    "optim_step": _optim_step,
    "save_state": _save_state,
    "find_state": _find_state,
    "get_state": _get_state,
    "put_state": _put_state,
    "drop_state": _drop_state,
    "save_adapter": _save_adapter,
}


def create_app(compute: Compute) -> Starlette:
    """The HTTP application of `compute`; a `LocalCompute` is closed at its shutdown."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if isinstance(compute, LocalCompute):
                await compute.aclose()

    routes = [
        Route(f"/v1/{name}", partial(_serve, compute, method), methods=["POST"])
        for name, method in METHODS.items()
    ]
    routes.append(Route("/v1/stream", partial(_stream, compute), methods=["POST"]))
    routes.append(Route("/healthz", _ready))
    return Starlette(routes=routes, lifespan=lifespan)


async def _ready(_: Request) -> Response:
    """Answers as soon as calls are served."""
    return Response("ok", media_type="text/plain")


async def _serve(compute: Compute, method: Method, request: Request) -> Response:
    """Answer one call; it is cancelled when the client goes away."""
    body = await _body(request)
    if body is None:
        return _problem(_too_large())
    response = Response(status_code=CLIENT_CLOSED)
    async with anyio.create_task_group() as group:

        async def leave_with_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(leave_with_client)
        response = await _answer(compute, method, body)
        group.cancel_scope.cancel()
    return response


async def _body(request: Request) -> bytes | None:
    """The body, or None as soon as it passes `MAX_BODY`."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


async def _stream(compute: Compute, request: Request) -> Response:
    """Answer `stream`; an error before the first part is a problem, later one it is the last."""
    body = await _body(request)
    return _problem(_too_large()) if body is None else _Parts(compute, body)


class _Parts(Response):
    """The parts of a sampled sequence as they come; a client that goes away cancels it."""

    def __init__(self, compute: Compute, body: bytes) -> None:
        self._compute, self._data = compute, body
        self._begun = False
        self.background = None

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:

            async def leave_with_client() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(leave_with_client)
            error = await self._sample(send)
            if error is not None and not self._begun:
                await _problem(error)(scope, receive, send)
            else:
                last = m.fields(m.StreamPart(problem=error.problem)) if error else None
                data = frame(Message(cast(Mapping[str, JsonValue], last))) if last else b""
                await send({"type": "http.response.body", "body": data})
            group.cancel_scope.cancel()

    async def _sample(self, send: Send) -> PracticumError | None:
        """Send the chunks; what ended them early, if anything did."""
        try:
            message = decode(self._data)
            request = message.read(m.StreamRequest, what="stream request")
            prompt = message.int32(request.prompt)
            sampling = self._compute.stream(
                request.sampler, prompt, request.params, context=request.context
            )
            async with sampling as chunks:
                async for chunk in chunks:
                    await self._part(send, frame(m.write_chunk(chunk)))
        except PracticumError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the boundary: any defect becomes a problem
            return _defect(error)
        return None

    async def _part(self, send: Send, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            headers = [(b"content-type", STREAM_MEDIA_TYPE.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"The message is larger than {MAX_BODY} bytes.",
        code=ErrorCode.BODY_TOO_LARGE,
        object=ErrorObject(type="compute message"),
        next="Send the data in several calls.",
    )


async def _answer(compute: Compute, method: Method, body: bytes) -> Response:
    try:
        result = await method(compute, decode(body))
    except PracticumError as error:
        return _problem(error)
    except Exception as error:  # noqa: BLE001 - the boundary: any defect becomes a problem
        return _problem(_defect(error))
    return Response(encode(result), media_type=MEDIA_TYPE)


def _defect(error: Exception) -> Internal:
    _log.error("a compute call failed", exc_info=error)
    return Internal(
        f"The compute process failed: {type(error).__name__}: {error}",
        next="Look into the log of the compute process.",
    )


def _problem(error: PracticumError) -> Response:
    return Response(
        error.problem.model_dump_json(exclude_none=True),
        status_code=error.problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
    )


def main() -> None:
    """Serve until SIGTERM; the running operation is finished first."""
    parser = argparse.ArgumentParser(prog="runtime.compute.server", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument(
        "--threads",
        type=int,
        default=None,
        help="of torch, for both kinds of work; else see `threads`",
    )
    arguments = parser.parse_args()
    serve(arguments.socket, LocalCompute(arguments.state, threads=arguments.threads))


def serve(path: Path, compute: LocalCompute) -> None:
    """Serve on the socket `path` until SIGTERM or SIGINT."""
    # Before uvicorn takes the signal over, and after: it raises it again once it has ended.
    signal.signal(signal.SIGTERM, _exit)
    app = create_app(compute)
    config = uvicorn.Config(
        app,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    with exclusive.listen(path) as listening:
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            path.unlink(missing_ok=True)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
