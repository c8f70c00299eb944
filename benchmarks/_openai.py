"""An OpenAI-compatible server in front of compute, as one would stand behind a plain gateway.

    python -P -m benchmarks._openai --compute SOCKET --port N --model NAME

It keeps nothing: every request is rendered and tokenised whole, with the renderer and the
tokenizer that the proxy has, off its event loop, and sampled from the same compute. It knows
texts only, checks little, and so is quicker than a real one.
"""

import argparse
import itertools
import json
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runtime.compute.client import HttpCompute
from runtime.compute.protocol import Chunk, SampleContext, SamplerSpec, SamplingParams
from runtime.formats.carried import load_codec
from runtime.formats.codec import Codec, spell
from runtime.formats.conversation import Conversation, Message, Text
from runtime.formats.families import Family, family_of
from specs.model import ModelInfo

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Model:
    compute: HttpCompute
    info: ModelInfo
    codec: Codec
    family: Family
    numbers: "itertools.count[int]"


def conversation_of(messages: list[Json]) -> Conversation:
    """OpenAI's messages of text in normal form."""
    system = tuple(one["content"] for one in messages if one["role"] == "system")
    turns = (one for one in messages if one["role"] != "system")
    return Conversation(
        system, (), tuple(Message(one["role"], (Text(one["content"]),)) for one in turns)
    )


async def _chat(request: Request) -> Response:
    body = cast(Json, await request.json())
    model = cast(_Model, request.app.state.model)
    prompt = await anyio.to_thread.run_sync(_render, model, body["messages"])
    pieces = _sampled(model, prompt, body)
    if body.get("stream"):
        return StreamingResponse(_events(body, prompt, pieces), media_type="text/event-stream")
    parts = [piece async for piece in pieces]
    message = {"role": "assistant", "content": "".join(text for text, _ in parts)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = _usage(prompt, sum(len(chunk.tokens) for _, chunk in parts))
    return JSONResponse({**_frame(body, "chat.completion"), "choices": [choice], "usage": usage})


def _render(model: _Model, messages: list[Json]) -> "array[int]":
    return model.codec.encode(model.family.prompt(conversation_of(messages)))


async def _sampled(
    model: _Model, prompt: "array[int]", body: Json
) -> AsyncGenerator[tuple[str, Chunk]]:
    ids = np.frombuffer(prompt, dtype=np.int32)
    params = SamplingParams(body["max_tokens"], model.info.stop_tokens)
    context = SampleContext(task="bench", call=next(model.numbers), request="next")
    decoder = model.codec.decoder()
    async with model.compute.stream(
        SamplerSpec(model.info.name), ids, params, context=context
    ) as chunks:
        async for chunk in chunks:
            tokens = [one for one in chunk.tokens.tolist() if one not in model.info.stop_tokens]
            yield spell(decoder.feed(tokens)), chunk


async def _events(
    body: Json, prompt: "array[int]", pieces: AsyncIterator[tuple[str, Chunk]]
) -> AsyncGenerator[bytes]:
    frame = _frame(body, "chat.completion.chunk")
    count = 0
    yield _event({**frame, "choices": [_delta({"role": "assistant", "content": ""})]})
    async for text, chunk in pieces:
        count += len(chunk.tokens)
        yield _event({**frame, "choices": [_delta({"content": text})]})
    yield _event({**frame, "choices": [_delta({}, "stop")]})
    yield _event({**frame, "choices": [], "usage": _usage(prompt, count)})
    yield b"data: [DONE]\n\n"


def _delta(delta: Mapping[str, str], reason: str | None = None) -> Json:
    return {"index": 0, "delta": dict(delta), "finish_reason": reason}


def _usage(prompt: "array[int]", output: int) -> Json:
    total = len(prompt) + output
    return {"prompt_tokens": len(prompt), "completion_tokens": output, "total_tokens": total}


def _frame(body: Json, kind: str) -> Json:
    return {"id": "chatcmpl-0", "object": kind, "created": 0, "model": body["model"]}


def _event(value: Json) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def create_app(compute_socket: Path, name: str) -> Starlette:
    """The application, whose model is ready once it has started."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with HttpCompute(compute_socket) as compute:
            info = await compute.model(name)
            codec = load_codec(await compute.tokenizer(name))
            family = family_of(info, codec)
            app.state.model = _Model(compute, info, codec, family, itertools.count())
            yield

    return Starlette(
        routes=[Route("/v1/chat/completions", _chat, methods=["POST"])], lifespan=lifespan
    )


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compute", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    app = create_app(options.compute, options.model)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main()
