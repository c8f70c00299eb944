"""The limit on request bodies, counted as they arrive, so that chunked ones cannot evade it."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.gateway.problems import problem_response
from specs.errors import ErrorCode, ErrorObject, Problem

MAX_BODY = 8 << 20
UPLOADS = "/v1/uploads/"
"""Uploads have the limit that their grant states."""


class BodyLimit:
    """ASGI middleware: a body beyond the limit is refused before it has been read."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(UPLOADS):
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.limit:
            await _too_large(self.limit)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit:
                # FastAPI turns any other exception inside `receive` into a 400
                raise HTTPException(413, headers={"connection": "close"})
            return message

        await self.app(scope, counted, send)


def _too_large(limit: int) -> ASGIApp:
    problem = Problem(
        title="Content Too Large",
        status=413,
        detail=f"The body is larger than {limit} bytes.",
        code=ErrorCode.BODY_TOO_LARGE,
        object=ErrorObject(type="body"),
        next="Send less, or upload the data as an object.",
    )
    return problem_response(problem, {"connection": "close"})
