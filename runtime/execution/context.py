"""What a driver of a run works with: the pinned spec, fenced writes, and its partners.

Every record goes through `RunContext.write`. Requests leave one at a time and in order, each
with the next `sequence`, and an unanswered one is repeated with the same sequence, so that a
gateway that restarts in between applies it exactly once (invariant 10). A write is shielded
from cancellation: once begun, its fate is known before anything else is written.

    RunStopped          base: the run's work must end now
    ├── ClaimLost       another worker owns the run: nothing may be written any more
    ├── RunCancelled    the operator cancelled: open records are settled, then it is complete
    └── Blocked         only a named operator action lets the run go on
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, Protocol

import anyio
import anyio.lowlevel

from runtime.compute.protocol import Compute
from runtime.execution.budget import Meter
from runtime.execution.workplace import Workplace
from runtime.home import Home
from specs.errors import Conflict, ErrorCode, PracticumError, Problem, Unavailable
from specs.grant import GrantRequest, GrantToken
from specs.ids import Id
from specs.interaction import Seal
from specs.operator_api import TrialPage
from specs.profile import Profile
from specs.records import Checkpoint, LogPiece
from specs.run import RunSpec
from specs.worker_api import (
    Claim,
    Completion,
    HeartbeatReply,
    LogWritten,
    RunRecords,
    TrialToken,
    TrialTokenRequest,
    Write,
    WriteReply,
    WriteRequest,
)

MAX_PIECE = 65_536
"""Characters of one log piece."""
MAX_BATCH = 512
"""Writes of one request; the protocol allows 1024."""
DEFAULT_CONCURRENCY = 8
CATCH_UP = 8
"""How often a completion is repeated because events of other processes came in between."""


class RunStopped(Exception):
    """The run's work must end; see the tree in the module's docstring."""


class ClaimLost(RunStopped):
    """The fence is stale, or the lease ran out while the gateway could not be reached."""


class RunCancelled(RunStopped):
    """Cancellation was asked for; what was open has been settled."""


class Blocked(RunStopped):
    """The run waits for the operator action that `problem.next` names."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Gateway(Protocol):
    """The part of `runtime.client.worker.WorkerClient` that a run needs."""

    async def write(self, run: Id, request: WriteRequest) -> WriteReply: ...
    async def heartbeat(self, claim: Claim) -> HeartbeatReply: ...
    async def complete(self, run: Id, completion: Completion) -> None: ...
    async def records(self, run: Id) -> RunRecords: ...
    async def token(self, run: Id, trial: Id, request: TrialTokenRequest) -> TrialToken: ...
    async def grant(self, run: Id, trial: Id, request: GrantRequest) -> GrantToken: ...
    async def upload(self, data: bytes) -> str: ...
    async def object(self, digest: str) -> bytes: ...
    async def checkpoint(self, checkpoint: str) -> Checkpoint: ...
    async def trials(
        self,
        run: Id,
        *,
        group: Id | None = None,
        counted: bool | None = None,
        cursor: str | None = None,
    ) -> TrialPage: ...


class Proxy(Protocol):
    """What execution asks of the proxy: the end of a trial's evidence."""

    async def seal(self, run: Id, trial: Id, fence: int) -> Seal: ...


@dataclass
class RunContext:
    """One claimed run.

    :ivar records: what was recorded when the claim was made; a driver resumes from it.
    :ivar workplace: where trials run; None where a driver makes none.
    :ivar cancelling: set when the operator asked for cancellation.
    :ivar last_event: the last event that this worker knows of.
    :ivar meter: what the run may still spend.
    """

    home: Home
    claim: Claim
    records: RunRecords
    profile: Profile
    client: Gateway
    compute: Compute
    proxy: Proxy
    workplace: Workplace | None = None
    cancelling: anyio.Event = field(default_factory=anyio.Event)
    last_event: int = 0
    _sequence: int = 0
    _lock: anyio.Lock = field(default_factory=anyio.Lock)
    _logs: list[LogPiece] = field(default_factory=list[LogPiece])
    _lost: bool = False
    _contact: float = field(default_factory=anyio.current_time)

    def __post_init__(self) -> None:
        self.meter = Meter(self.claim.run, self.records.usage)

    @property
    def spec(self) -> RunSpec:
        return self.claim.spec

    @property
    def run(self) -> Id:
        return self.claim.run

    @property
    def concurrency(self) -> int:
        """Trials at work at the same time."""
        return self.spec.plan.resources.concurrency or DEFAULT_CONCURRENCY

    async def write(self, *writes: Write) -> int:
        """Record `writes` in one transaction, pending log pieces with them; the last event.

        Cancellation is delivered after the request, never within it.

        Raises:
            ClaimLost: another worker owns the run, or the lease passed unanswered.
            PracticumError: the gateway refuses the writes; nothing was recorded.
        """
        with anyio.CancelScope(shield=True):
            async with self._lock:
                pieces, self._logs = self._logs, []
                batch = [*writes, *(LogWritten(piece=piece) for piece in pieces)]
                for start in range(0, len(batch), MAX_BATCH):
                    await self._send(batch[start : start + MAX_BATCH])
                self.meter.count(writes)
        await anyio.lowlevel.checkpoint()
        return self.last_event

    async def complete(
        self,
        outcome: Literal["completed", "failed", "cancelled", "blocked", "released"],
        reason: Problem | None = None,
    ) -> None:
        """End the claim. An event of another process since the last write is caught up with.

        Shielded like `write`.
        """
        with anyio.CancelScope(shield=True):
            for attempt in count(1):
                await self.flush()
                async with self._lock:
                    try:
                        return await self._complete(outcome, reason)
                    except PracticumError as error:
                        if error.problem.code != ErrorCode.STATE_CONFLICT or attempt == CATCH_UP:
                            raise
                self.log("catching up with the events of other processes")

    def log(
        self,
        text: str,
        *,
        source: Literal["worker", "setup", "harness", "verifier"] = "worker",
        trial: Id | None = None,
    ) -> None:
        """Keep a log piece; it travels with the next write, or with the next heartbeat."""
        for start in range(0, len(text), MAX_PIECE):
            piece = clean_text(text[start : start + MAX_PIECE])
            self._logs.append(LogPiece(source=source, trial=trial, text=piece))

    async def flush(self) -> None:
        """Send pending log pieces, if any."""
        if self._logs:
            await self.write()

    def check(self) -> None:
        """Stop here when the run is to stop.

        Raises:
            RunCancelled: cancellation was asked for.
            ClaimLost: the claim is gone.
        """
        if self._lost:
            raise ClaimLost(self.run)
        if self.cancelling.is_set():
            raise RunCancelled(self.run)

    def lose(self) -> None:
        """Note that the claim is gone: no write leaves from now on."""
        self._lost = True

    async def beat(self) -> None:
        """Renew the lease, once; learns of cancellation.

        Raises:
            ClaimLost: another worker owns the run, or the lease passed unanswered.
        """
        reply = await self._persist(lambda: self.client.heartbeat(self.claim))
        if reply.cancelling:
            self.cancelling.set()

    async def _send(self, batch: Sequence[Write]) -> None:
        request = WriteRequest(
            claim=self.claim.id,
            fence=self.claim.fence,
            sequence=self._sequence + 1,
            writes=tuple(batch),
        )
        reply = await self._persist(lambda: self.client.write(self.run, request))
        self._sequence += 1
        self.last_event = reply.last_event

    async def _complete(
        self,
        outcome: Literal["completed", "failed", "cancelled", "blocked", "released"],
        reason: Problem | None,
    ) -> None:
        completion = Completion(
            claim=self.claim.id,
            fence=self.claim.fence,
            sequence=self._sequence + 1,
            outcome=outcome,
            reason=reason,
            last_event=self.last_event,
        )
        await self._persist(lambda: self.client.complete(self.run, completion))
        self._sequence += 1

    async def _persist[T](self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call of the claim, again and again while the gateway is away.

        The lease bounds the waiting: after it, another worker may have the run.
        """
        if self._lost:
            raise ClaimLost(self.run)
        for attempt in count():
            try:
                result = await call()
            except Unavailable:
                if anyio.current_time() - self._contact > self.claim.lease_sec:
                    self._lost = True
                    raise ClaimLost(self.run) from None
                await anyio.sleep(min(1.0, 0.05 * 2**attempt))
            except Conflict as error:
                if error.problem.code != ErrorCode.STALE_FENCE:
                    raise
                self._lost = True
                raise ClaimLost(self.run) from error
            else:
                self._contact = anyio.current_time()
                return result
        raise AssertionError("unreachable")


def clean_text(text: str) -> str:
    """Text that every JSON reader takes: no NUL, no lone surrogate."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
