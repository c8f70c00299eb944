"""Which trials may go on: renewed in batches every third of a lease.

A new trial is asked for at once. The gateway's word is final: a trial that it does not renew
is over (403). While the gateway cannot be reached the last word holds until the lease ends;
after that a call is told to come back later (529), because nobody knows.
"""

import logging
import time
from collections.abc import Awaitable, Callable

import anyio

from proxy.gateway import Gateway
from proxy.spool import Key
from specs.errors import ErrorCode, ErrorObject, Forbidden, PracticumError, Unavailable

DEFAULT_LEASE_SEC = 30.0
MAX_BATCH = 1000
_log = logging.getLogger(__name__)


class Leases:
    """The active trials of this proxy.

    Args:
        gateway: who decides.
        ended: called for each trial that is over without having been sealed.
    """

    def __init__(self, gateway: Gateway, ended: Callable[[Key], Awaitable[None]]) -> None:
        self._gateway = gateway
        self._ended = ended
        self._until: dict[Key, float] = {}
        self._over: set[Key] = set()
        self._lease = DEFAULT_LEASE_SEC
        self._news = anyio.Event()

    def check(self, key: Key) -> None:
        """Let a call through, or say why not; a trial seen first is let through.

        Raises:
            Forbidden: `trial_not_renewed`.
            Unavailable: the lease ended while the gateway was away.
        """
        if key in self._over:
            raise Forbidden(
                "The trial is no longer active.",
                code=ErrorCode.TRIAL_NOT_RENEWED,
                object=ErrorObject(type="trial", id=key.trial),
                next="The trial is over; start another one.",
            )
        if key not in self._until:
            self.watch(key)
        elif time.monotonic() > self._until[key]:
            raise Unavailable(
                "The gateway has not confirmed the trial within its lease.",
                object=ErrorObject(type="trial", id=key.trial),
                next="Send the request again; it passes when the gateway is back.",
            )

    def watch(self, key: Key) -> None:
        """Renew this trial from now on."""
        self._until[key] = time.monotonic() + self._lease
        self._news.set()

    def forget(self, key: Key) -> None:
        """A sealed trial needs no renewal."""
        self._until.pop(key, None)

    async def run(self) -> None:
        """Renew forever. On cancel the last word of the gateway stays."""
        while True:
            with anyio.move_on_after(self._lease / 3):
                await self._news.wait()
            self._news = anyio.Event()
            await self.renew()

    async def renew(self) -> None:
        """Ask for every active trial once."""
        keys = list(self._until)
        for start in range(0, len(keys), MAX_BATCH):
            await self._renew(keys[start : start + MAX_BATCH])

    async def _renew(self, keys: list[Key]) -> None:
        newest: dict[str, int] = {}
        for key in keys:
            newest[key.trial] = max(key.fence, newest.get(key.trial, key.fence))
        asked = time.monotonic()
        try:
            reply = await self._gateway.renew(newest)
        except PracticumError as error:
            _log.warning("renewal failed", extra={"trials": len(keys), "cause": str(error)})
            return
        self._lease = reply.lease_sec
        active = set(reply.active)
        for key in keys:
            if key not in self._until:
                continue
            if key.trial in active and newest[key.trial] == key.fence:
                self._until[key] = asked + self._lease
            else:
                self._until.pop(key)
                self._over.add(key)
                await self._ended(key)
