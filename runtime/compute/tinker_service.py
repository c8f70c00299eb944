"""Connections to the training service: sessions, waiting for results, what keeps them waiting.

The SDK works on a thread of its own and retries by itself, for as long as it takes. So every
wait here is entered in `Waits`, and one whose result the service neither gives nor gives a
reason for is given up after `stuck_sec`. Constructing a client blocks on the network, hence
threads. Telemetry of the SDK is off, and it never looks for credentials: it is given the key.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain, repeat
from typing import Literal

# Read when a client is made; a process of ours never reports to the service.
os.environ["TINKER_TELEMETRY"] = "0"

import anyio
import anyio.to_thread
import tinker
from tinker import APIFuture, types
from tinker.lib.api_future_impl import QueueState

from runtime.compute.protocol import WaitState
from runtime.compute.tinker_errors import explain, rate_limited
from runtime.compute.tinker_models import TinkerModels
from runtime.compute.waits import Doing, Waits
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError, Unavailable

_log = logging.getLogger(__name__)

CLOSE_SEC = 10.0
"""How long the end of a session is waited for; the service ends it by itself without us."""
BACK_OFF_SEC = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)

_STATES: dict[QueueState, WaitState] = {
    QueueState.ACTIVE: "active",
    QueueState.PAUSED_RATE_LIMIT: "rate_limited",
    QueueState.PAUSED_CAPACITY: "no_capacity",
    QueueState.UNKNOWN: "paused",
}


class Observer:
    """Tells the operations of one client what the service says of their queue."""

    def __init__(self) -> None:
        self._entries: list[Doing] = []

    @contextmanager
    def watching(self, entry: Doing) -> Generator[None]:
        """Report to `entry` while the block runs."""
        self._entries.append(entry)
        try:
            yield
        finally:
            self._entries.remove(entry)

    def on_queue_state_change(
        self, queue_state: QueueState, queue_state_reason: str | None
    ) -> None:
        """Called by the SDK, on its thread."""
        for entry in tuple(self._entries):
            entry.report(_STATES.get(queue_state, "paused"), queue_state_reason)

    def listen(self, client: object, attribute: str, value: object) -> None:
        """Take the place of the SDK's own observer, which only logs, and that after minutes.

        There is no public way to see queue states; the pinned SDK has these attributes.
        """
        if not hasattr(client, attribute):
            raise InvalidInput(
                f"This version of the training service's SDK has no {attribute}.",
                code=ErrorCode.SERVICE_VERSION,
                next="Install the pinned version: extra `tinker`.",
            )
        setattr(client, attribute, value)


class Service:
    """One account at the service, as the configuration names it."""

    def __init__(self, models: TinkerModels, waits: Waits) -> None:
        self.models = models
        self.waits = waits
        self._offers: dict[str, types.SupportedModel] | None = None

    @property
    def stuck_sec(self) -> float:
        """Unexplained seconds after which an operation is given up."""
        return self.models.settings.stuck_sec

    def client(self, purpose: str) -> tinker.ServiceClient:
        """A client with a session of its own, which begins with its first use."""
        return tinker.ServiceClient(
            user_metadata={"practicum": purpose},
            display_name=f"practicum {purpose}",
            base_url=self.models.settings.base_url,
            api_key=self.models.key(),
        )

    def explain(self, error: Exception, what: str) -> PracticumError:
        """The error for a failure, without the key."""
        return explain(error, what, secret=self.models.key())

    async def result[T](self, entry: Doing, future: APIFuture[T]) -> T:
        """Wait for a result; cancelling gives it up, at the service too where that can be.

        Raises:
            Unavailable: it was given up as stuck.
            Exception: what the SDK raises.
        """
        waiting = asyncio.wrap_future(future.future())
        try:
            while (left := self.stuck_sec - entry.unexplained) > 0:
                await asyncio.wait({waiting}, timeout=left)
                if waiting.cancelled():
                    raise RuntimeError("the SDK gave the operation up")
                if waiting.done():
                    return waiting.result()
            raise Unavailable(
                f"The training service gave no result of {entry.operation} and no reason for"
                f" {self.stuck_sec:g} s.",
                code=ErrorCode.COMPUTE_UNAVAILABLE,
                object=ErrorObject(type="service", id="tinker"),
                next="It is given up and made again; `stuck_sec` in config.toml is the limit.",
            )
        finally:
            waiting.cancel()

    async def call[T](self, entry: Doing, begin: Callable[[], APIFuture[T]]) -> T:
        """Begin something in a thread, since that may block on the network, and wait for it.

        A refusal that is about the rate is repeated, more and more slowly.
        """
        for pause in chain(BACK_OFF_SEC, repeat(BACK_OFF_SEC[-1])):
            try:
                with anyio.fail_after(self.stuck_sec):
                    future = await anyio.to_thread.run_sync(begin, abandon_on_cancel=True)
                return await self.result(entry, future)
            except Exception as error:
                if not rate_limited(error):
                    raise
                entry.report("rate_limited", str(error)[:200])
            await anyio.sleep(pause)
        raise AssertionError("pauses do not end")

    @asynccontextmanager
    async def explained(
        self, operation: str, model: str, trainer: str | None = None
    ) -> AsyncGenerator[Doing]:
        """Enter an operation; what the SDK raises in the block comes out as our error."""
        with self.waits.doing(operation, model, trainer) as entry:
            try:
                yield entry
            except PracticumError:
                raise
            except Exception as error:
                raise self.explain(error, operation) from error

    async def require_offered(self, name: str, *, training: bool) -> None:
        """Refuse a model that the service does not sample, or not train; asked once.

        Raises:
            InvalidInput: `model_unknown` or `model_not_trainable`.
        """
        if self._offers is None:
            async with self.explained("capabilities", name) as entry:
                answer = await self.call(entry, self._ask_capabilities)
            self._offers = {one.model_name or "": one for one in answer.supported_models}
        wanted = self.models.configured(name).model
        offered = self._offers.get(wanted)
        if offered is None:
            raise InvalidInput(
                f"The training service does not offer {wanted}, which {name} stands for.",
                code=ErrorCode.MODEL_UNKNOWN,
                object=ErrorObject(type="model", id=name),
                next=f"Correct config.toml; it offers {', '.join(sorted(self._offers)[:20])}.",
            )
        if training and offered.trainable is False:
            raise InvalidInput(
                f"The training service samples {wanted} and does not train it.",
                code=ErrorCode.MODEL_NOT_TRAINABLE,
                object=ErrorObject(type="model", id=name),
                next="Say `trains = false` for it in config.toml, and train another.",
            )

    def _ask_capabilities(self) -> APIFuture[types.GetServerCapabilitiesResponse]:
        return self.rest().get_server_capabilities()

    def rest(self) -> tinker.RestClient:
        """What needs no session; blocks on the network."""
        return tinker.RestClient(base_url=self.models.settings.base_url, api_key=self.models.key())

    async def end(
        self, client: tinker.ServiceClient, status: Literal["success", "errored"] = "success"
    ) -> None:
        """Finish a session: the service refuses whatever is still submitted to it.

        Shielded and bounded; a service that is away ends the session by its own rules.
        """
        with anyio.move_on_after(CLOSE_SEC, shield=True) as scope:
            try:
                await asyncio.wrap_future(client.close(status).future())
            except Exception as error:  # noqa: BLE001 - the session is given up either way
                _log.warning("a session was not finished: %s", self.explain(error, "closing"))
        if scope.cancelled_caught:
            _log.warning("a session was not finished within %g s", CLOSE_SEC)
