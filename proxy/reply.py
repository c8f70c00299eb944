"""What a harness is sent: messages, server-sent events, errors, in Anthropic's shapes.

Events keep the order that strict clients ask for: `message_start` with the real prompt count,
each block whole before the next, `message_delta`, `message_stop`; `ping` while sampling. An
error after the start is an `error` event before any content, which harnesses repeat.
"""

import json
from collections.abc import Iterator
from typing import cast

import anyio
from pydantic import JsonValue
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.calls import Joined
from proxy.live import Life
from proxy.trials import Answered, Call
from specs.errors import ErrorCode, PracticumError

PING_SEC = 10.0
_JSON = [(b"content-type", b"application/json")]
_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
]


def error_reply(error: PracticumError, request_id: str) -> Response:
    """An error as a whole response."""
    status, body = error_body(error, request_id)
    headers = {"request-id": request_id}
    if status < 500:
        headers["x-should-retry"] = "false"
    return JSONResponse(body, status, headers)


def error_body(error: PracticumError, request_id: str) -> tuple[int, dict[str, JsonValue]]:
    """HTTP status and body of an error."""
    status, kind = _kind(error)
    detail: dict[str, JsonValue] = {"type": kind, "message": error.problem.detail}
    return status, {"type": "error", "error": detail, "request_id": request_id}


def _kind(error: PracticumError) -> tuple[int, str]:
    match error.problem.code, error.problem.status:
        case ErrorCode.UNAUTHENTICATED, _:
            return 401, "authentication_error"
        case ErrorCode.BODY_TOO_LARGE, _:
            return 413, "request_too_large"
        case ErrorCode.METHOD_NOT_ALLOWED, _:
            return 405, "invalid_request_error"
        case _, 403:
            return 403, "permission_error"
        case _, 404:
            return 404, "not_found_error"
        case _, 503:
            return 529, "overloaded_error"
        case _, status if status < 500:
            return 400, "invalid_request_error"
        case _:
            return 500, "api_error"


def message(call: Call, model: str, answered: Answered | None) -> dict[str, JsonValue]:
    """The message of a call; without an answer, its beginning."""
    return {
        "id": "msg_" + call.intent.interaction[4:],
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(answered.answer.content) if answered else [],
        "stop_reason": stop_reason(answered) if answered else None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": call.intent.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": answered.output_tokens if answered else 0,
        },
    }


def stop_reason(answered: Answered) -> str:
    """Why the answer ends, in the dialect's words."""
    if answered.answer.stop_reason == "length":
        return "max_tokens"
    called = any(
        isinstance(block, dict) and block.get("type") == "tool_use"
        for block in answered.answer.content
    )
    return "tool_use" if called else "end_turn"


def events(answered: Answered) -> Iterator[bytes]:
    """All that follows `message_start`."""
    for index, value in enumerate(answered.answer.content):
        block = cast(dict[str, JsonValue], value)
        if block["type"] == "text":
            begin: dict[str, JsonValue] = {"type": "text", "text": ""}
            delta: dict[str, JsonValue] = {"type": "text_delta", "text": block["text"]}
        else:
            begin = {**block, "input": {}}
            text = json.dumps(block["input"], ensure_ascii=False)
            delta = {"type": "input_json_delta", "partial_json": text}
        yield event("content_block_start", index=index, content_block=begin)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    yield event(
        "message_delta",
        delta={"stop_reason": stop_reason(answered), "stop_sequence": None},
        usage={"output_tokens": answered.output_tokens},
    )
    yield event("message_stop")


def event(name: str, **fields: JsonValue) -> bytes:
    """One server-sent event."""
    data = json.dumps({"type": name, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()


class CallReply(Response):
    """Waits for a call and sends its answer, plain or as events.

    Whether the client was there to the end is reported to `Life`; a client that goes away, or
    a cancelled reply, leaves the call running.
    """

    def __init__(self, life: Life, joined: Joined, model: str) -> None:
        self._life, self._trial, self._call = life, joined.trial, joined.call
        self._model, self._stream = model, joined.stream
        self._id = "req_" + joined.call.intent.interaction[4:]
        self.background = None

    async def __call__(
        self,
        scope: Scope,  # noqa: ARG002
        receive: Receive,
        send: Send,
    ) -> None:
        delivered = False
        try:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                await (self._as_events(send) if self._stream else self._whole(send))
                delivered = True
                tasks.cancel_scope.cancel()
        finally:
            self._life.leave(self._trial, self._call, delivered=delivered)

    async def _whole(self, send: Send) -> None:
        await self._call.done.wait()
        if self._call.error is not None:
            await self._fail(send, self._call.error)
            return
        body = json.dumps(
            message(self._call, self._model, self._call.result), ensure_ascii=False
        ).encode()
        headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        await self._start(send, 200, headers)
        await send({"type": "http.response.body", "body": body})

    async def _as_events(self, send: Send) -> None:
        call = self._call
        await call.started.wait()
        if call.error is not None:
            await self._fail(send, call.error)
            return
        await self._start(send, 200, _EVENTS)
        begin = message(call, self._model, None)
        await self._more(send, event("message_start", message=begin) + event("ping"))
        while not call.done.is_set():
            with anyio.move_on_after(PING_SEC):
                await call.done.wait()
            if not call.done.is_set():
                await self._more(send, event("ping"))
        if call.result is not None:
            data = b"".join(events(call.result))
        else:
            assert call.error is not None  # a call is done with a result or an error
            _, body = error_body(call.error, self._id)
            data = event("error", error=body["error"], request_id=self._id)
        await send({"type": "http.response.body", "body": data, "more_body": False})

    async def _fail(self, send: Send, error: PracticumError) -> None:
        status, value = error_body(error, self._id)
        body = json.dumps(value, ensure_ascii=False).encode()
        headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        await self._start(send, status, headers)
        await send({"type": "http.response.body", "body": body})

    async def _start(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        headers = [*headers, (b"request-id", self._id.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _more(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
