"""The proxy's HTTP face: the dialects for trials, sealing and health for the worker.

Paths are matched without their query; unknown headers and fields are ignored. Each dialect has
routes of its own, and errors are answered in its shape; internal routes answer problem
documents. The list of models is of no dialect: headers tell who asks.
"""

import hmac
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.admission import DEFAULT_LIMITS, Admission, Limits
from proxy.auth import Verifier, bearer
from proxy.calls import Calls
from proxy.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from proxy.gateway import Gateway
from proxy.leases import Leases
from proxy.live import PATIENCE_SEC, Life
from proxy.models import Voices
from proxy.registry import Registry
from proxy.reply import CallReply, error_reply
from proxy.sealing import GRACE_SEC, Sealer
from proxy.spool import STAGE_BYTES, Key, Spool
from proxy.turns import Party
from proxy.upstream import Upstreams
from runtime.compute.protocol import Compute
from specs import canonical
from specs.errors import (
    ErrorCode,
    ErrorObject,
    Forbidden,
    Internal,
    InvalidInput,
    NotFound,
    PracticumError,
)
from specs.ids import Prefix, is_id
from specs.upstream import Upstream
from specs.worker_api import SealRequest

MAX_BODY_BYTES = 32 << 20
_MAX_SEAL_BYTES = 65536
_PROBLEM = "application/problem+json"
ASKING: Mapping[str, Dialect] = {
    "/v1/messages": MESSAGES,
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
}
"""Routes that ask for an answer."""
COUNTING: Mapping[str, Dialect] = {
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses/input_tokens": RESPONSES,
}
"""Routes that ask how long a prompt is."""
_ANTHROPIC = frozenset({"anthropic-version", "x-api-key"})
"""Headers of Anthropic's clients, which no other sends."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a proxy is made of.

    `patience`: seconds that a call waits for compute; `grace`: seconds that a seal waits for
    calls under way; `stage`: bytes of evidence that may wait for publication.
    """

    spool: Path
    compute: Compute
    gateway: Gateway
    worker_key: str
    patience: float = PATIENCE_SEC
    stage: int = STAGE_BYTES
    grace: float = GRACE_SEC
    limits: Limits = DEFAULT_LIMITS
    upstreams: Sequence[Upstream] = ()


class Parts:
    """The parts of a running proxy; lives within `running`."""

    def __init__(self, settings: Settings, spool: Spool, tasks: TaskGroup) -> None:
        self.leases = Leases(settings.gateway, self._ended)
        self.registry = Registry(spool, self.leases)
        self.sealer = Sealer(spool, self.registry, settings.gateway, grace=settings.grace)
        self.verifier = Verifier(settings.gateway)
        self.admission = Admission(settings.limits)
        self.upstreams = Upstreams(settings.upstreams)
        self.life = Life(
            settings.compute,
            settings.gateway,
            self.admission,
            patience=settings.patience,
            upstreams=self.upstreams,
        )
        voices = Voices(settings.gateway, settings.compute)
        self.calls = Calls(self.registry, voices, self.life, tasks)

    async def _ended(self, key: Key) -> None:
        await self.sealer.adopt(key)


@asynccontextmanager
async def running(settings: Settings) -> AsyncGenerator[Parts]:
    """Start the parts and take up what an earlier process left.

    On exit or cancel, calls under way are lost, on the record; records that were submitted
    are written.
    """
    spool = Spool(settings.spool, limit=settings.stage)
    try:
        async with anyio.create_task_group() as tasks:
            parts = Parts(settings, spool, tasks)
            await parts.sealer.start()
            tasks.start_soon(parts.leases.run)
            tasks.start_soon(parts.sealer.run)
            try:
                yield parts
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await parts.upstreams.aclose()
    finally:
        spool.close()


def create_app(settings: Settings, failed: Callable[[], None]) -> Starlette:
    """The ASGI application.

    Args:
        settings: what it is made of.
        failed: called when its parts have failed and answer nobody any more.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        try:
            async with running(settings) as parts:
                app.state.parts = parts
                app.state.worker_key = settings.worker_key
                yield
        except BaseException:
            failed()
            raise

    return Starlette(
        routes=[
            *(Route(path, _ask, methods=["POST"]) for path in ASKING),
            *(Route(path, _count_tokens, methods=["POST"]) for path in COUNTING),
            Route("/v1/models", _models, methods=["GET"]),
            Route("/v1/models/{model:path}", _model, methods=["GET"]),
            Route("/", _root, methods=["GET", "HEAD"]),
            Route("/healthz", _internal(_healthz), methods=["GET"]),
            Route("/internal/trials/{trial}/seal", _internal(_seal), methods=["POST"]),
        ],
        exception_handlers={
            PracticumError: _refuse,
            HTTPException: _refuse_http,
            ClientDisconnect: _gone,
            Exception: _crash,
        },
        lifespan=lifespan,
    )


async def _ask(request: Request) -> Response:
    parts, dialect = _parts(request), _dialect(request)
    claims = await parts.verifier.claims(request.headers)
    parts.admission.check()
    body = await _body(request, MAX_BODY_BYTES)
    retry = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
    with parts.admission.call():
        joined = await parts.calls.ask(dialect, claims, _party(request), body, retry=retry)
    return CallReply(parts.life, joined, dialect, claims.model)


async def _count_tokens(request: Request) -> Response:
    parts, dialect = _parts(request), _dialect(request)
    claims = await parts.verifier.claims(request.headers)
    async with parts.admission.count():
        body = await _body(request, MAX_BODY_BYTES)
        tokens = await parts.calls.count(dialect, claims, _party(request), body)
    return JSONResponse(dialect.count(tokens))


async def _models(request: Request) -> Response:
    """The trial's own model, on one page whatever `limit` says."""
    claims = await _parts(request).verifier.claims(request.headers)
    return JSONResponse(_dialect(request).models(claims.model))


async def _model(request: Request) -> Response:
    claims = await _parts(request).verifier.claims(request.headers)
    if request.path_params["model"] != claims.model:
        raise NotFound("The trial has no other model than its own.")
    return JSONResponse(_dialect(request).model(claims.model))


async def _root(_request: Request) -> Response:
    return Response(status_code=200)


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok", "trials": len(_parts(request).registry)})


async def _seal(request: Request) -> Response:
    trial = cast(str, request.path_params["trial"])
    if not is_id(trial, Prefix.TRIAL):
        raise NotFound(
            "There is no trial of that id.", object=ErrorObject(type="trial", id=trial[:64])
        )
    body = canonical.read(SealRequest, await _body(request, _MAX_SEAL_BYTES), what="seal request")
    seal = await _parts(request).sealer.seal(Key(trial, body.fence), body.run)
    return Response(seal.model_dump_json(), media_type="application/json")


type _Endpoint = Callable[[Request], Awaitable[Response]]


def _internal(endpoint: _Endpoint) -> _Endpoint:
    """A route for the worker's key alone; errors are problem documents."""

    async def guarded(request: Request) -> Response:
        try:
            key = bearer(request.headers)
            if not hmac.compare_digest(key.encode(), request.app.state.worker_key.encode()):
                raise Forbidden(
                    "This route is for the worker.",
                    code=ErrorCode.UNAUTHENTICATED,
                    next="Send the worker's key as `Authorization: Bearer`.",
                )
            return await endpoint(request)
        except PracticumError as error:
            problem = error.problem
            return Response(problem.model_dump_json(), problem.status, media_type=_PROBLEM)

    return guarded


async def _body(request: Request, limit: int) -> bytes:
    """The body, at most `limit` bytes; what comes after is not kept."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise InvalidInput(
                f"The request is larger than {limit} bytes.",
                code=ErrorCode.BODY_TOO_LARGE,
                next="Send a smaller request.",
            )
        pieces.append(piece)
    return b"".join(pieces)


def _party(request: Request) -> Party:
    """The harness's own names, shortened; they tell conversations of one trial apart."""
    session = request.headers.get("x-claude-code-session-id", "")
    return Party(session[:128], request.headers.get("x-claude-code-agent-id", "")[:128])


def _dialect(request: Request) -> Dialect:
    """Who is spoken to, also where the request went wrong."""
    path = request.url.path
    found = ASKING.get(path) or COUNTING.get(path)
    if found is not None:
        return found
    if path.startswith("/v1/models"):
        return CHAT if _ANTHROPIC.isdisjoint(request.headers) else MESSAGES
    return CHAT if path.startswith(("/v1/chat/", "/v1/responses/")) else MESSAGES


def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


def _request_id() -> str:
    return "req_" + uuid.uuid4().hex


async def _refuse(request: Request, error: Exception) -> Response:
    return error_reply(_dialect(request), cast(PracticumError, error), _request_id())


async def _refuse_http(request: Request, error: Exception) -> Response:
    status = cast(HTTPException, error).status_code
    if status == 405:
        return error_reply(
            _dialect(request),
            InvalidInput("The method is not allowed here.", code=ErrorCode.METHOD_NOT_ALLOWED),
            _request_id(),
        )
    return error_reply(_dialect(request), NotFound("There is no such route."), _request_id())


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _crash(request: Request, error: Exception) -> Response:
    _log.error("request failed", exc_info=error)
    failure = Internal("The proxy failed; its log says where.")
    return error_reply(_dialect(request), failure, _request_id())
