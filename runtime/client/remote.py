"""A gateway that is not this home's: `PRACTICUM_GATEWAY` says where, `PRACTICUM_TOKEN` who asks.

Every operation then speaks to that gateway and no stack is started. The place is a URL, or
`unix:/path` for a forwarded socket. Plain HTTP goes to this machine's loopback alone, since it
would show the token to every network between.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from specs.errors import ErrorObject, InvalidInput

GATEWAY = "PRACTICUM_GATEWAY"
TOKEN = "PRACTICUM_TOKEN"


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a gateway is, and the credential that it takes."""

    place: Path | str
    token: str = field(repr=False)


def remote_gateway(environment: Mapping[str, str]) -> Remote | None:
    """The gateway that the environment names; None: the home's own.

    Raises:
        InvalidInput: one of the two variables is missing or cannot be used.
    """
    place, token = environment.get(GATEWAY, ""), environment.get(TOKEN, "")
    if not place:
        return None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _unusable(TOKEN, "it is not set, or holds what no token holds")
    return Remote(_place(place), token)


def _place(text: str) -> Path | str:
    if text.startswith("unix:/"):
        return Path(text.removeprefix("unix:"))
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise _unusable(GATEWAY, f"{text!r} is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not host:
        raise _unusable(GATEWAY, f"{text!r} is neither an http(s) URL nor unix:/path")
    if url.username or url.query or url.fragment or url.path.strip("/"):
        raise _unusable(GATEWAY, "it holds more than scheme, host and port")
    if url.scheme == "http" and not _loopback(host):
        raise _unusable(GATEWAY, f"{host} is not this machine, and plain HTTP shows the token")
    return text.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unusable(name: str, cause: str) -> InvalidInput:
    return InvalidInput(
        f"{name} cannot be used: {cause}.",
        object=ErrorObject(type="variable", id=name),
        next="Set PRACTICUM_GATEWAY to http://127.0.0.1:PORT, https://HOST or unix:/path, and"
        " PRACTICUM_TOKEN to its key or grant; unset both for the stack of this machine.",
    )
