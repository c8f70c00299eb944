"""What a harness is sent for a call: the whole answer, or events as it is sampled.

The dialect decides how it looks; here is when it leaves. Text and thinking leave while
sampling, everything that completes an answer once it is durable (invariant 2). If a call fails
after content has left, the connection is cut: harnesses take that for a broken connection and
ask once more, where they would take an error for the end.
"""

import json

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.calls import Joined
from proxy.dialects.base import Dialect, Head, Whole
from proxy.live import Life
from specs.errors import ErrorCode, PracticumError

PING_SEC = 10.0
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


def error_reply(dialect: Dialect, error: PracticumError, request_id: str) -> Response:
    """An error as a whole response."""
    told = dialect.error(error, request_id)
    return JSONResponse(told.body, told.status, told.headers)


class CallReply(Response):
    """Waits for a call and sends its answer, plain or as events.

    Whether the client was there to the end is reported to `Life`; a client that goes away, or
    a cancelled reply, leaves the call running.
    """

    def __init__(self, life: Life, joined: Joined, dialect: Dialect, model: str) -> None:
        self._life, self._trial, self._call = life, joined.trial, joined.call
        self._dialect, self._stream = dialect, joined.stream
        self._head = Head(joined.call.intent, model, joined.asked)
        self._joined = joined
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
                delivered = await (self._as_events(send) if self._stream else self._whole(send))
                tasks.cancel_scope.cancel()
        finally:
            self._life.leave(self._trial, self._call, delivered=delivered)

    async def _whole(self, send: Send) -> bool:
        """Send the message; whether it was all sent, as an error is too."""
        await self._call.done.wait()
        if self._call.error is not None:
            return await self._fail(send, self._call.error)
        value = self._dialect.message(self._head, self._answer())
        body = json.dumps(value, ensure_ascii=False).encode()
        await self._body(send, 200, {"content-type": "application/json"}, body)
        return True

    async def _as_events(self, send: Send) -> bool:
        """Send events; whether they were all sent, and the connection is not to be cut."""
        call, events = self._call, self._dialect.events(self._head)
        await call.started.wait()
        if call.error is not None:
            return await self._fail(send, call.error)
        await self._start(send, 200, _EVENTS)
        await self._more(send, events.begin())
        seen = 0
        while not call.done.is_set():
            deltas = None
            with anyio.move_on_after(PING_SEC):
                deltas = await call.showing.after(seen)
            if deltas is None:
                await self._more(send, events.ping())
            elif deltas:
                seen += len(deltas)
                await self._more(send, b"".join(events.delta(delta) for delta in deltas))
        if call.error is not None:
            drop = call.error.problem.code is ErrorCode.CONNECTION_DROPPED
            data = None if drop else events.fail(call.error, self._id)
        else:
            data = events.end(self._answer())
        if data is None:
            return False
        await send({"type": "http.response.body", "body": data, "more_body": False})
        return True

    def _answer(self) -> Whole:
        result = self._call.result
        assert result is not None  # a call is done with a result or an error
        return Whole(result.answer, result.output_tokens, self._joined.scored())

    async def _fail(self, send: Send, error: PracticumError) -> bool:
        if error.problem.code is ErrorCode.CONNECTION_DROPPED:
            await self._start(send, 200, {"content-length": "1"})
            return False
        told = self._dialect.error(error, self._id)
        body = json.dumps(told.body, ensure_ascii=False).encode()
        headers = {**told.headers, "content-type": "application/json"}
        await self._body(send, told.status, headers, body)
        return True

    async def _body(self, send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
        await self._start(send, status, {**headers, "content-length": str(len(body))})
        await send({"type": "http.response.body", "body": body})

    async def _start(self, send: Send, status: int, headers: dict[str, str]) -> None:
        pairs = [(k.encode(), v.encode()) for k, v in {**headers, "request-id": self._id}.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _more(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})
