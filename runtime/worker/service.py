"""The worker: announces compute's models, claims runs, and sees each through.

It is one process however many runs it works on (`runtime.worker.places`), so that one lock and
one sweep at its start are enough to tell what a dead one left.

While a run is worked on, a heartbeat renews its lease every third of it and learns of
cancellation. A lost claim ends the work at once, without another write: the fence would refuse
it, and the successor may already be at work. Whatever a driver raises becomes the end of the
claim:

    returns            completed
    RunCancelled       what is still open is settled as cancelled, then cancelled
    Blocked            blocked, with the operator action that helps; a spent budget too
    ClaimLost          nothing is written any more
    Unavailable        released for another attempt, a few times; then failed
    any other error    failed, with the problem
    a stop signal      released: open trials are abandoned by whoever claims next
"""

import importlib
import logging
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from runtime.client import WorkerClient
from runtime.compute.client import HttpCompute
from runtime.compute.protocol import Compute
from runtime.execution.context import Blocked, ClaimLost, RunCancelled, RunContext
from runtime.execution.groups import gravest
from runtime.execution.proxy_control import ProxyControl
from runtime.execution.settle import seal_open_trials, settle_open_trials
from runtime.execution.workplace import Tool, local_workplace
from runtime.home import Home
from runtime.worker.drivers import drive
from runtime.worker.places import Places
from runtime.worker.waiting import watch_waits
from specs import canonical
from specs.errors import (
    Internal,
    InvalidInput,
    NotFound,
    PracticumError,
    Problem,
    Unavailable,
)
from specs.ids import Prefix, new_id
from specs.operator_api import ModelList
from specs.plans import gateway_access
from specs.profile import Profile
from specs.worker_api import Claim, Completion

DEFAULT_LEASE_SEC = 15.0
DEFAULT_RUNS = 1
"""Runs at work at once."""
FIRST_POLL_SEC = 0.05
LONGEST_POLL_SEC = 0.5
MODELS_SEC = 5.0
"""Between two looks at which models compute has."""
FLUSH_SEC = 1.0
ATTEMPTS = 5
"""Claims of one run in a row that may end because a part is unavailable."""

log = logging.getLogger(__name__)


class Worker:
    """One worker of a home."""

    def __init__(
        self,
        home: Home,
        client: WorkerClient,
        compute: Compute,
        proxy: ProxyControl,
        *,
        lease_sec: float,
        runs: int = DEFAULT_RUNS,
        tools: Sequence[Tool] = (),
    ) -> None:
        self.id = new_id(Prefix.WORKER)
        self._home = home
        self._client = client
        self._compute = compute
        self._proxy = proxy
        self._lease_sec = lease_sec
        self._workplace = local_workplace(home, client.object, tools)
        self._stopping = anyio.Event()
        self._places = Places(runs)
        self._attempts: dict[str, int] = {}

    @classmethod
    @asynccontextmanager
    async def at(
        cls,
        home: Home,
        *,
        lease_sec: float = DEFAULT_LEASE_SEC,
        runs: int = DEFAULT_RUNS,
        tools: Sequence[Tool] = (),
    ) -> AsyncGenerator["Worker"]:
        """The worker of a local stack, with its connections."""
        async with (
            WorkerClient.at(home) as client,
            HttpCompute(home.compute_socket) as compute,
            ProxyControl(home) as proxy,
        ):
            yield cls(home, client, compute, proxy, lease_sec=lease_sec, runs=runs, tools=tools)

    def stop(self) -> None:
        """Claim nothing more and release what is claimed."""
        self._stopping.set()
        self._places.wake()

    async def run(self) -> None:
        """Claim and work until stopped. On cancel claimed runs stay claimed for a lease."""
        log.info("worker %s serves %s", self.id, self._home.root)
        async with anyio.create_task_group() as group:
            group.start_soon(self._announce_models)
            group.start_soon(_warm_up)
            await self._claim_and_work()
            group.cancel_scope.cancel()
        log.info("worker %s stopped", self.id)

    async def _claim_and_work(self) -> None:
        """Every claim has a task of its own; a stop signal lets each release what it holds."""
        pause = FIRST_POLL_SEC
        async with anyio.create_task_group() as group:
            while not self._stopping.is_set():
                if self._places.full:
                    await self._places.wait()
                    pause = FIRST_POLL_SEC
                    continue
                claim = await self._claim()
                if claim is None:
                    await self._places.wait(pause)
                    pause = min(2 * pause, LONGEST_POLL_SEC)
                    continue
                pause = FIRST_POLL_SEC
                delegating = gateway_access(claim.spec.plan) is not None
                self._places.take(delegating=delegating)
                group.start_soon(self._hold, claim, delegating)

    async def _claim(self) -> Claim | None:
        wanted = self._places.wanted
        try:
            return await self._client.claim(self.id, self._lease_sec, delegating=wanted)
        except PracticumError as error:
            log.warning("cannot claim: %s", error)
            return None

    async def _hold(self, claim: Claim, delegating: bool) -> None:
        try:
            await self._work(claim)
        finally:
            self._places.leave(delegating=delegating)

    async def _work(self, claim: Claim) -> None:
        """See one claim through to its end."""
        log.info("claimed %s (fence %d)", claim.run, claim.fence)
        try:
            try:
                context = await self._context(claim)
            except (InvalidInput, NotFound) as error:
                await self._refuse(claim, error)
                return
            await self._see_through(context)
        except ClaimLost:
            log.warning("lost the claim on %s", claim.run)
        except PracticumError as error:
            log.error("cannot end the claim on %s: %s", claim.run, error)
            await anyio.sleep(LONGEST_POLL_SEC)

    async def _context(self, claim: Claim) -> RunContext:
        data = await self._client.object(claim.spec.actor)
        context = RunContext(
            home=self._home,
            claim=claim,
            records=await self._client.records(claim.run),
            profile=canonical.read(Profile, data, what="profile"),
            client=self._client,
            compute=self._compute,
            proxy=self._proxy,
            workplace=self._workplace,
        )
        if claim.cancelling:
            context.cancelling.set()
        context.log(f"claimed by {self.id} with fence {claim.fence}\n")
        await context.flush()
        return context

    async def _refuse(self, claim: Claim, error: PracticumError) -> None:
        """Fail a run whose pinned profile cannot be used: it was tampered with, or is gone."""
        log.error("%s cannot begin: %s", claim.run, error)
        run = await self._client.run(claim.run)
        completion = Completion(
            claim=claim.id,
            fence=claim.fence,
            sequence=1,
            outcome="failed",
            reason=error.problem,
            last_event=run.last_event,
        )
        await self._client.complete(claim.run, completion)

    async def _see_through(self, context: RunContext) -> None:
        try:
            stopped = await self._drive(context)
        except RunCancelled:
            await settle_open_trials(context)
            await context.complete("cancelled")
        except Blocked as error:
            await seal_open_trials(context)
            await context.complete("blocked", error.problem)
        except ClaimLost:
            raise
        except PracticumError as error:
            await self._give_up(context, error)
        except Exception as error:  # noqa: BLE001 - a defect ends this run, not the worker
            await self._fail(context, _defect(context, error))
        else:
            await context.complete("released" if stopped else "completed")
        log.info("ended the claim on %s", context.run)

    async def _drive(self, context: RunContext) -> bool:
        """Run the driver beside heartbeat and log; True when a stop signal cut it short.

        What goes wrong in any of them comes out as one plain exception.
        """
        stopped = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._beat, context)
                group.start_soon(_flush, context)
                group.start_soon(watch_waits, context)

                async def watch_stop() -> None:
                    nonlocal stopped
                    await self._stopping.wait()
                    stopped = True
                    group.cancel_scope.cancel()

                group.start_soon(watch_stop)
                group.start_soon(_watch_budget, context)
                await drive(context, self._client)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            raise gravest(error) from error
        return stopped

    async def _beat(self, context: RunContext) -> None:
        while True:
            await anyio.sleep(context.claim.lease_sec / 3)
            await context.beat()

    async def _give_up(self, context: RunContext, error: PracticumError) -> None:
        if isinstance(error, Unavailable):
            attempts = self._attempts.get(context.run, 0) + 1
            self._attempts[context.run] = attempts
            if attempts < ATTEMPTS:
                context.log(f"released after attempt {attempts}: {error}\n")
                await context.complete("released")
                await anyio.sleep(LONGEST_POLL_SEC * attempts)
                return
        await self._fail(context, error.problem)

    async def _fail(self, context: RunContext, problem: Problem) -> None:
        log.error("%s failed: %s", context.run, problem.detail)
        context.log(f"failed: {problem.detail}\n")
        await context.complete("failed", problem)

    async def _announce_models(self) -> None:
        """Tell the gateway which models compute has, now and whenever that changes."""
        known: ModelList | None = None
        while True:
            try:
                models = ModelList(models=await self._compute.models())
                if models != known:
                    await self._client.put_models(models)
                    if await self._keep_tokenizers(models):
                        await self._client.put_models(models)
                    known = models
            except PracticumError as error:
                log.info("models not announced yet: %s", error)
                await anyio.sleep(LONGEST_POLL_SEC)
            else:
                await anyio.sleep(MODELS_SEC)

    async def _keep_tokenizers(self, models: ModelList) -> bool:
        """Store the tokenizers, so that recorded tokens can be read where no model is; the
        gateway refers to those that are there. Whether any was stored."""
        names = {one.tokenizer_digest: one.name for one in models.models if one.present}
        stored = False
        for digest, name in names.items():
            try:
                await self._client.upload(await self._compute.tokenizer(name), digest=digest)
                stored = True
            except PracticumError as error:
                log.info("the tokenizer of %s is not stored: %s", name, error)
        return stored


async def _watch_budget(context: RunContext) -> None:
    """End the work at the moment a budget is spent.

    Raises:
        Blocked: with the budget and how to extend it.
    """
    raise Blocked(await context.meter.watch())


async def _flush(context: RunContext) -> None:
    while True:
        await anyio.sleep(FLUSH_SEC)
        await context.flush()


async def _warm_up() -> None:
    """Import Harbor while nothing waits for it; it takes a second or two."""
    await anyio.to_thread.run_sync(importlib.import_module, "runtime.execution.harbor")


def _defect(context: RunContext, error: Exception) -> Problem:
    text = "".join(traceback.format_exception(error))
    log.error("defect in %s:\n%s", context.run, text)
    context.log(text)
    return Internal(
        f"The worker failed: {type(error).__name__}: {error}"[:2000],
        next=f"practicum run logs {context.run}",
    ).problem
