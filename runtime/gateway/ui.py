"""Pages for a browser on this machine: a loopback port, opened by a link with a one-time token.

The port exists from the first link on. A link's token opens once and soon expires; what it
leaves is a cookie for this process's life that reads pages and nothing else: no key of the
gateway reaches the browser. A request must name the loopback address as its host, so that no
site can reach the pages through a name of its own (DNS rebinding).

The pages are made by `runtime.analysis` from what the gateway's own socket answers, as the
command line makes them.
"""

import hashlib
import hmac
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.abc
import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from runtime.analysis.page import policy, render
from runtime.analysis.report import report
from runtime.client import OperatorClient
from runtime.gateway import problems
from runtime.home import Home
from specs.errors import ErrorCode, ErrorObject, Forbidden, InvalidInput
from specs.operator_api import UiLink

COOKIE = "practicum_ui"
LINK_SEC = 300.0
"""How long a link waits to be opened."""
SESSION_SEC = 12 * 3600
MAX_WAITING = 64
"""Links that wait at once; older ones end first."""


class Ui:
    """The browser's side of one gateway; the listener runs in `tasks`."""

    def __init__(self, home: Home, tasks: anyio.abc.TaskGroup) -> None:
        self._home = home
        self._tasks = tasks
        self._lock = anyio.Lock()
        self._port: int | None = None
        self._server: _Server | None = None
        self._links: dict[str, tuple[str, float]] = {}
        self._sessions: dict[str, float] = {}

    async def link(self, path: str) -> UiLink:
        """A link to a page that opens once; starts the listener if need be.

        Raises:
            InvalidInput: the path is not one of the pages.
        """
        if not path.startswith("/ui/") or "//" in path or "\\" in path:
            raise InvalidInput(
                f"{path!r} is no page of this gateway.",
                object=ErrorObject(type="page", id=path, pointer="/path"),
                next="Write /ui/runs/RUN.",
            )
        port = await self._listen()
        token = secrets.token_urlsafe(32)
        now = time.monotonic()
        self._links = {key: one for key, one in self._links.items() if one[1] > now}
        while len(self._links) >= MAX_WAITING:
            del self._links[next(iter(self._links))]
        self._links[_hidden(token)] = (path, now + LINK_SEC)
        return UiLink(
            url=f"http://127.0.0.1:{port}/ui/enter?token={token}", expires_in_sec=LINK_SEC
        )

    def enter(self, token: str) -> tuple[str, str]:
        """Spend a token: the page that it opens, and the value of a new session's cookie.

        Raises:
            Forbidden: `unauthenticated`: it was spent, has expired, or never was.
        """
        path, until = self._links.pop(_hidden(token), ("", 0.0))
        if until <= time.monotonic():
            raise _refused("The link was opened before, or has expired.")
        session = secrets.token_urlsafe(32)
        self._sessions[_hidden(session)] = time.monotonic() + SESSION_SEC
        return path, session

    def require(self, request: Request) -> None:
        """Refuse a request without a session of this process.

        Raises:
            Forbidden: `unauthenticated`.
        """
        until = self._sessions.get(_hidden(request.cookies.get(COOKIE, "")), 0.0)
        if until <= time.monotonic():
            raise _refused("This browser has not opened a link of this gateway.")

    def host(self, request: Request) -> None:
        """Refuse a request that reached the port by another name.

        Raises:
            Forbidden: the host is not the loopback address.
        """
        allowed = (f"127.0.0.1:{self._port}", f"localhost:{self._port}")
        if request.headers.get("host", "") not in allowed:
            raise Forbidden(
                "These pages are served to this machine alone.",
                object=ErrorObject(type="host"),
                next="Open the link as it was printed.",
            )

    def client(self) -> OperatorClient:
        """A client of this gateway, over its own socket."""
        return OperatorClient.at(self._home)

    def stop(self) -> None:
        """End the listener."""
        if self._server is not None:
            self._server.should_exit = True

    async def _listen(self) -> int:
        async with self._lock:
            if self._port is None:
                listener = socket.create_server(("127.0.0.1", 0))
                config = uvicorn.Config(
                    _pages(self), lifespan="off", access_log=False, log_config=None
                )
                self._server = _Server(config)
                self._port = int(listener.getsockname()[1])
                self._tasks.start_soon(self._server.serve, [listener])
            return self._port


@asynccontextmanager
async def running(home: Home) -> AsyncGenerator[Ui]:
    """The browser's side, for as long as the gateway runs."""
    async with anyio.create_task_group() as tasks:
        ui = Ui(home, tasks)
        try:
            yield ui
        finally:
            ui.stop()


class _Server(uvicorn.Server):
    """A second server of the process: signals are the first one's."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _pages(ui: Ui) -> FastAPI:
    """The application behind the loopback port."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    problems.install(app)

    @app.middleware("http")
    async def guard(  # pyright: ignore[reportUnusedFunction]
        request: Request, call: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            ui.host(request)
        except Forbidden as error:
            return problems.problem_response(error.problem)
        response = await call(request)
        response.headers.update(
            {
                "content-security-policy": f"{policy()}; frame-ancestors 'none'",
                "cache-control": "no-store",
                "referrer-policy": "no-referrer",
                "x-content-type-options": "nosniff",
            }
        )
        return response

    @app.get("/ui/enter")
    async def enter(token: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        path, session = ui.enter(token)
        response = RedirectResponse(path, 303)
        response.set_cookie(COOKIE, session, path="/ui", httponly=True, samesite="lax")
        return response

    @app.get("/ui/runs/{run}")
    async def page(  # pyright: ignore[reportUnusedFunction]
        request: Request, run: str, trial: str | None = None
    ) -> Response:
        ui.require(request)
        async with ui.client() as reads:
            found = await report(reads, run, trial=trial)
        content = await anyio.to_thread.run_sync(render, found)
        return Response(content, media_type="text/html; charset=utf-8")

    return app


def _hidden(secret: str) -> str:
    """What is kept of a secret, so that looking it up tells nothing about it by its time."""
    return hmac.new(_PEPPER, secret.encode(), hashlib.sha256).hexdigest()


_PEPPER = secrets.token_bytes(32)


def _refused(cause: str) -> Forbidden:
    return Forbidden(
        cause,
        code=ErrorCode.UNAUTHENTICATED,
        object=ErrorObject(type="link"),
        next="Get a new one: practicum report RUN --link",
    )
