"""Streamable HTTP: the server of stdio behind a bearer key, for this machine unless told otherwise.

Every request shows the key of `<home>/secrets/mcp.key`, which is compared in constant time; none
or another one is 401 with `WWW-Authenticate`. A request is also refused when its Host, or its
Origin where it has one, is not a name by which this server is to be reached: a page in a browser
that has a foreign name resolve to this machine gets nowhere.
"""

import ipaddress
import sys
from collections.abc import Sequence
from hmac import compare_digest
from typing import Any

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.types import ASGIApp

from runtime.home import Home
from specs.errors import ErrorCode, ErrorObject, InvalidInput

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DRAIN_SEC = 3


class OneKey:
    """Accepts one key; whoever shows it is the operator."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        if not compare_digest(token.encode(), self._key):
            return None
        return AccessToken(token=token, client_id="operator", scopes=[])


def http_app(server: Server[dict[str, Any]], key: str, names: Sequence[str] = ()) -> Starlette:
    """The ASGI application of a server.

    :param names: host names besides those of loopback by which it may be reached.
    """
    known = [*LOOPBACK, *names]
    return server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(
            allowed_hosts=[*(f"{name}:*" for name in known), *known],
            allowed_origins=[
                f"{scheme}://{name}{port}"
                for scheme in ("http", "https")
                for name in known
                for port in ("", ":*")
            ],
        ),
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(f"http://{LOOPBACK[0]}"),
            resource_server_url=None,
        ),
        token_verifier=OneKey(key),
    )


def check_host(host: str, names: Sequence[str]) -> None:
    """Refuse an address that other machines reach, unless it is said by which names.

    Raises:
        InvalidInput: `invalid_document`.
    """
    if names or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidInput(
            f"{host} is not loopback: other machines could reach every operation of this home.",
            code=ErrorCode.INVALID_DOCUMENT,
            object=ErrorObject(type="command_line", id=f"--host {host}", pointer="/host"),
            next="If that is meant, name this machine as they do: --allow-host NAME."
            " The connection is not encrypted; put TLS before it.",
        )


async def serve_http(
    home: Home, server: Server[dict[str, Any]], host: str, port: int, names: Sequence[str] = ()
) -> None:
    """Serve until a signal; calls in flight then have some seconds to end.

    Raises:
        InvalidInput: the host is refused, see `check_host`.
    """
    check_host(host, names)
    app = http_app(server, home.mcp_key(), names)
    await serve_app(app, host, port, str(home.mcp_key_file))


async def serve_app(app: ASGIApp, host: str, port: int, key: str) -> None:
    """Serve an application at an address until a signal.

    :param key: where the key stands; told with the address.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        lifespan="on",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=DRAIN_SEC,
    )
    await _Server(config, key).serve()


class _Server(uvicorn.Server):
    """Uvicorn, which says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, key: str) -> None:
        super().__init__(config)
        self._key = key

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        for listening in self.servers:
            host, port = listening.sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stderr.write(f"serving http://{shown}:{port}{PATH}; bearer key: {self._key}\n")
            sys.stderr.flush()
