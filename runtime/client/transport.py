"""HTTP to the gateway, over its Unix socket or a URL: strict answers, typed errors, bounded
retries.

A problem document becomes the `PracticumError` it describes. When the gateway cannot be
reached the error is `stack_unavailable`, after retries for at most `patience` seconds. Only
requests whose repetition is harmless are repeated once bytes may have been sent; a refused
connection is always safe to repeat, because nothing was.
"""

from collections.abc import AsyncIterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import httpx
from pydantic import BaseModel

from specs import canonical
from specs.errors import (
    ErrorCode,
    ErrorObject,
    Internal,
    InvalidInput,
    PracticumError,
    Problem,
    Unavailable,
)

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

type Params = Mapping[str, str | int | float | bool | None]
type Content = bytes | AsyncIterable[bytes]


class Transport:
    """One role's connection to the gateway; an async context manager.

    Args:
        place: the gateway's Unix socket, or the URL of one that is elsewhere.
        key: bearer key of the role, or a grant's credential.
        patience: seconds to keep trying while the gateway cannot be reached.
        read_timeout: seconds to wait for an answer.
    """

    def __init__(
        self, place: Path | str, key: str, *, patience: float = 1.0, read_timeout: float = 60.0
    ) -> None:
        self.place = place
        self.patience = patience
        self.read_timeout = read_timeout
        local = isinstance(place, Path)
        # A socket speaks no TLS: to read the certificates for it took most of a short call.
        over_socket = httpx.AsyncHTTPTransport(uds=str(place), verify=False) if local else None
        self._client = httpx.AsyncClient(
            transport=over_socket,
            base_url="http://gateway" if local else place,
            headers={"authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(read_timeout, connect=5.0, pool=None),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; pending requests fail."""
        await self._client.aclose()

    async def call[M: BaseModel](
        self,
        method: str,
        path: str,
        answer: type[M],
        *,
        body: BaseModel | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        wait: float = 0.0,
    ) -> M:
        """Send a contract and read one back.

        `idempotent` defaults to true for GET and PUT; `wait` prolongs the read timeout by the
        time that the gateway may hold the answer back. On cancel the request is abandoned;
        whether the gateway acted on it is then unknown.
        """
        response = await self.send(
            method,
            path,
            content=None if body is None else body.model_dump_json().encode(),
            params=params,
            headers={
                **({"content-type": JSON_TYPE} if body is not None else {}),
                **(headers or {}),
            },
            idempotent=idempotent,
            wait=wait,
        )
        return self.parse(response, answer)

    def parse[M: BaseModel](self, response: httpx.Response, answer: type[M]) -> M:
        """Read a successful answer strictly."""
        try:
            return canonical.read(answer, response.content, what="answer")
        except InvalidInput as error:
            raise Internal(
                f"The gateway's answer to {response.request.url.path} is not a valid"
                f" {answer.__name__}: {error}",
                next="Check that the stack and this program have the same version.",
            ) from None

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: Content | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        wait: float = 0.0,
    ) -> httpx.Response:
        """Send one request and return the successful response, read whole.

        Raises:
            PracticumError: what the gateway answered, or `stack_unavailable`.
        """
        repeatable = method in ("GET", "PUT") if idempotent is None else idempotent
        if content is not None and not isinstance(content, bytes):
            repeatable = False
        timeout = httpx.Timeout(self.read_timeout + wait, connect=5.0, pool=None)
        deadline = anyio.current_time() + self.patience
        pause = _FIRST_PAUSE
        query = {name: value for name, value in (params or {}).items() if value is not None}
        while True:
            try:
                response = await self._client.request(
                    method, path, content=content, params=query, headers=headers, timeout=timeout
                )
            except httpx.TransportError as error:
                safe = repeatable or isinstance(error, httpx.ConnectError)
                if not safe or anyio.current_time() + pause > deadline:
                    raise self._unreachable(error) from error
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if response.is_success:
                return response
            raise problem_error(response)

    def _unreachable(self, error: httpx.TransportError) -> Unavailable:
        cause = str(error) or type(error).__name__
        local = isinstance(self.place, Path)
        return Unavailable(
            f"The gateway cannot be reached: {cause}.",
            code=ErrorCode.STACK_UNAVAILABLE,
            object=ErrorObject(type="socket" if local else "gateway", id=str(self.place)),
            next="practicum up"
            if local
            else "Check PRACTICUM_GATEWAY and whether it is forwarded.",
        )


def problem_error(response: httpx.Response) -> PracticumError:
    """The error that a refusing response describes."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind == PROBLEM_TYPE:
        try:
            problem = canonical.read(Problem, response.content, what="problem")
        except InvalidInput as error:
            return _unreadable(response, str(error))
        return PracticumError.from_problem(problem)
    return _unreadable(response, f"media type {kind or 'missing'}")


def _unreadable(response: httpx.Response, cause: str) -> Internal:
    return Internal(
        f"{response.request.method} {response.request.url.path} was answered with"
        f" {response.status_code} and no readable problem ({cause}).",
        next="Look into the gateway's log.",
    )
