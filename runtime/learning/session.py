"""What reinforcement and supervised learning share: one claim's way from batch to batch.

Entering sweeps what earlier claims left in compute and resolves their pending update; after
that `policy` is what the next open batch samples from, and `update` moves it (invariant 7).
Leaving closes the trainer, also after a failure or a cancel; either drops the last acknowledged
state where it ends the run.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from runtime.execution.context import RunCancelled, RunContext
from runtime.learning.boundary import Boundary
from runtime.learning.evidence import EvidenceReader
from runtime.learning.leftovers import sweep
from runtime.learning.policy import Policy, policy_before, settled_batches
from runtime.learning.resolution import (
    MAX_REDONE,
    PATIENCE,
    Pending,
    compute_lost,
    lost_for_good,
    reach,
)
from runtime.learning.warm import Warmth, prove_warm
from runtime.learning.work import Work
from specs.errors import PracticumError, Unavailable
from specs.ids import Prefix, new_id
from specs.records import Checkpoint
from specs.worker_api import UpdateSkipped


class Learning:
    """The learning side of one claim.

    :ivar policy: where the policy stands: what the next open batch samples from.
    :ivar evidence: the one reader of evidence.
    :ivar done: batches whose update is acknowledged or skipped.
    """

    def __init__(self, ctx: RunContext, batches: int, patience: float) -> None:
        self._ctx = ctx
        self._batches = batches
        self._patience = patience
        self.evidence = EvidenceReader(ctx.client)
        self.boundary = Boundary(ctx, self.evidence, patience=patience)
        self.done = settled_batches(ctx.records.updates)
        first_open = next(batch for batch in range(batches + 1) if batch not in self.done)
        self.policy: Policy = policy_before(ctx.spec, ctx.records, first_open)
        self._warmth: Warmth | None = None

    def started(self, batch: int) -> bool:
        """Whether an earlier claim began the batch."""
        return any(item.batch == batch for item in self._ctx.records.batches)

    def judged(self, batch: int) -> bool:
        """Whether an earlier claim recorded the batch's verdicts."""
        return any(item.batch == batch and item.settled for item in self._ctx.records.batches)

    def final(self, batch: int) -> bool:
        """Whether no batch follows."""
        return batch == self._batches - 1

    async def begin(self) -> None:
        """Sweep, resolve what is pending, and before the first batch of a `resume` prove that
        the optimizer came back; safe to repeat by another claim."""
        await sweep(self._ctx)
        for update in self._ctx.records.updates:
            pending = Pending.of(update)
            if pending is None:
                continue
            final = self.final(pending.batch)
            after = await self.boundary.recover(pending, self.policy, final=final)
            if after is not None:
                self.policy = after
                self.done.add(pending.batch)
        if self.policy.checkpoint is not None:
            known = await self._ctx.client.checkpoint(self.policy.checkpoint)
            self._warmth = await self._proved(known)

    async def _proved(self, checkpoint: Checkpoint) -> Warmth:
        """The proof, repeated while it is its trainers that are lost and not the optimizer.

        Raises:
            InvalidInput: `resume_incompatible`.
            Unavailable: compute stayed away, or lost a trainer each time.
        """
        ctx = self._ctx
        for _ in range(MAX_REDONE + 1):
            try:
                return await prove_warm(ctx, self.policy, checkpoint)
            except PracticumError as error:
                if not compute_lost(error):
                    raise
                ctx.log(f"the proof of the optimizer was interrupted: {error}")
            ctx.check()
            await reach(ctx.compute, check=ctx.check, patience=self._patience)
        raise lost_for_good(ctx.run, MAX_REDONE + 1, "the proof of one optimizer")

    async def update(self, work: Work) -> None:
        """Take the batch's step, or record that there is nothing to learn from; then the
        next batch stays on the same sampler. On cancel see `Boundary.step`."""
        warmth = {} if self._warmth is None else self._warmth.measures
        after = await self.boundary.step(work, self.policy, measures=warmth)
        if after is None:
            await self._ctx.write(
                UpdateSkipped(
                    update=new_id(Prefix.UPDATE),
                    batch=work.batch,
                    sampler=self.policy.sampler.id,
                    census=dict(work.summary().census),
                    metrics=dict(work.summary().measures),
                    reason="no group of the batch has a learnable difference in reward"
                    if work.terms.kl is None
                    else "no trial of the batch can be learnt from",
                )
            )
        else:
            self.policy = after
            self._warmth = None
        self.done.add(work.batch)

    async def finish(self) -> None:
        """Let compute forget the last trainer state; its bytes are in the store."""
        if self.policy.state is not None:
            await self.boundary.forget(self.policy.state)

    async def abandon(self) -> None:
        """The same for a run that is to end failed or cancelled, if this claim still has it.

        Should its end not be recorded, the next claim brings the state back.

        Raises:
            ClaimLost: another claim may be about to open the state.
        """
        if self.policy.state is not None:
            await self._ctx.beat()
            await self.boundary.forget(self.policy.state)


@asynccontextmanager
async def learning(
    ctx: RunContext, batches: int, *, patience: float = PATIENCE
) -> AsyncGenerator[Learning]:
    """The learning side of a claim, its trainer closed at the end."""
    session = Learning(ctx, batches, patience)
    try:
        try:
            await session.begin()
            yield session
        finally:
            await session.boundary.close()
    except (RunCancelled, PracticumError) as error:
        if not isinstance(error, Unavailable):  # that releases the run, and it goes on
            await session.abandon()
        raise
