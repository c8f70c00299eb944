"""Bodies in and out: strict JSON of a contract, nothing else."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import Response

from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput

JSON_TYPE = "application/json"
_LARGE = 256 << 10
"""Bodies beyond this are parsed in a thread, so that other requests go on meanwhile."""


def body[M: BaseModel](model: type[M], what: str) -> Any:
    """Dependency: the request's body, read strictly as `model`; errors call it `what`."""

    async def read(request: Request) -> M:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            raise InvalidInput(
                f"The body must be {JSON_TYPE}.",
                code=ErrorCode.UNSUPPORTED_MEDIA_TYPE,
                object=ErrorObject(type=what),
                next=f"Send the header Content-Type: {JSON_TYPE}.",
            )
        data = await request.body()

        def parse() -> M:
            return canonical.read(model, data, what=what)

        return parse() if len(data) < _LARGE else await anyio.to_thread.run_sync(parse)

    dependency: Callable[[Request], Awaitable[M]] = read
    return Depends(dependency)


def answer(value: BaseModel, status: int = 200, *, as_stored: bool = False) -> Response:
    """A contract as JSON. `as_stored` leaves unset fields out, so that digests over what was
    pinned can be recomputed by whoever reads it."""
    content = value.model_dump_json(exclude_unset=as_stored)
    return Response(content, status, media_type=JSON_TYPE)


def document(content: bytes, digest: str) -> Response:
    """Canonical bytes with their digest."""
    return Response(content, headers={"digest": digest}, media_type=JSON_TYPE)
