"""Objects: grants, the bytes on their way in, and reading by reference (invariant 11)."""

import re
from typing import Annotated

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection
from starlette.responses import StreamingResponse

from runtime.gateway import grants, references, uploads
from runtime.gateway.auth import AnyRole, GatewayDep, Uploader
from runtime.gateway.context import Caller
from runtime.gateway.problems import problem_response
from runtime.gateway.refusals import not_found
from runtime.gateway.wire import answer, body
from specs.errors import ErrorCode, ErrorObject, Problem
from specs.worker_api import UploadRequest

router = APIRouter()

_RANGE = re.compile(r"^bytes=([0-9]{0,18})-([0-9]{0,18})$")


@router.post("/v1/uploads")
async def grant(
    gateway: GatewayDep,
    caller: Uploader,
    request: Annotated[UploadRequest, body(UploadRequest, "upload")],
) -> Response:
    """Permission to create one object."""
    return answer(await gateway.database.write(lambda c: uploads.grant(c, caller.org, request)))


@router.put("/v1/uploads/{upload}")
async def put(request: Request, gateway: GatewayDep, caller: Uploader, upload: str) -> Response:
    """The bytes of an object; the store verifies them and keeps nothing else: 201, or 200
    when another upload was faster."""
    row = await gateway.database.read(lambda c: uploads.granted(c, caller.org, upload))
    new = await gateway.objects.put(caller.org, row.digest, row.size, request.stream())
    await gateway.database.write(lambda c: uploads.finish(c, caller.org, row))
    return Response(status_code=201 if new else 200, headers={"digest": row.digest})


@router.get("/v1/objects/{digest}")
async def read(request: Request, gateway: GatewayDep, caller: AnyRole, digest: str) -> Response:
    """Bytes of an object to which the org holds a reference; one range at a time."""
    size = await gateway.database.read(lambda c: _readable(c, caller, digest))
    if size is None:
        raise not_found("object", digest, next="Only objects that a record refers to are read.")
    span = _span(request.headers.get("range"), size)
    if span is None:
        return _unsatisfiable(digest, size)
    start, stop = span
    headers = {
        "digest": digest,
        "accept-ranges": "bytes",
        "content-length": str(stop - start),
    }
    status = 200
    if stop - start != size:
        status = 206
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    return StreamingResponse(
        gateway.objects.read(caller.org, digest, start, stop - start),
        status,
        headers=headers,
        media_type="application/octet-stream",
    )


def _readable(connection: Connection, caller: Caller, digest: str) -> int | None:
    """Size of an object that the caller may read."""
    if caller.grant is not None and digest in grants.hidden(connection, caller.grant):
        return None
    return references.readable(connection, caller.org, digest)


def _span(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and end of what is asked for; None when there is nothing there. What is not one
    plain range is ignored, as RFC 9110 allows."""
    match = _RANGE.match(header or "")
    if match is None or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        length = int(match[2])
        return (max(0, size - length), size) if length and size else None
    start = int(match[1])
    stop = min(size, int(match[2]) + 1) if match[2] else size
    return (start, stop) if start < stop else None


def _unsatisfiable(digest: str, size: int) -> Response:
    problem = Problem(
        title="Range Not Satisfiable",
        status=416,
        detail=f"The object has {size} bytes; none of them is in that range.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="object", id=digest),
        next="Ask for a range within the object.",
    )
    return problem_response(problem, {"content-range": f"bytes */{size}"})
