"""The worker's side of the proxy: the end of a trial's evidence."""

from types import TracebackType
from typing import Self

import anyio
import httpx

from runtime.client.transport import problem_error
from runtime.home import Home, Role
from specs import canonical
from specs.errors import ErrorObject, Unavailable
from specs.ids import Id
from specs.interaction import Seal
from specs.worker_api import SealRequest

PATIENCE = 20.0
"""Seconds for which a restart of the proxy is ridden out."""
SANDBOX_PORT = 8484
SANDBOX_URL = f"http://127.0.0.1:{SANDBOX_PORT}"
"""Where the proxy is, seen from inside a sandbox."""


class ProxyControl:
    """Seals trials, over the proxy's socket and with the worker's key."""

    def __init__(self, home: Home, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._socket = home.proxy_socket
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(home.proxy_socket)),
            base_url="http://proxy",
            headers={"authorization": f"Bearer {home.key(Role.WORKER)}"},
            timeout=httpx.Timeout(60.0, connect=5.0, pool=None),
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
        await self._client.aclose()

    async def seal(self, run: Id, trial: Id, fence: int) -> Seal:
        """End the evidence of a trial; repeating it returns the same.

        On cancel the proxy may have sealed the trial all the same.

        Raises:
            Unavailable: the proxy cannot be reached or cannot upload, even after waiting.
        """
        body = SealRequest(run=run, fence=fence).model_dump_json().encode()
        deadline = anyio.current_time() + self._patience
        pause = 0.05
        while True:
            try:
                return await self._seal(trial, body)
            except Unavailable:
                if anyio.current_time() + pause > deadline:
                    raise
            await anyio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _seal(self, trial: Id, body: bytes) -> Seal:
        try:
            response = await self._client.post(
                f"/internal/trials/{trial}/seal",
                content=body,
                headers={"content-type": "application/json"},
            )
        except httpx.TransportError as error:
            raise Unavailable(
                f"The proxy cannot be reached: {error or type(error).__name__}.",
                object=ErrorObject(type="socket", id=str(self._socket)),
                next="practicum up",
            ) from error
        if not response.is_success:
            raise problem_error(response)
        return canonical.read(Seal, response.content, what="seal")
