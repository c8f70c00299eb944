"""The optimizer boundary: one batch's contribution, one step, one checkpoint (invariant 8).

    prepared      durable, before the trainer exists
      each part, as it is ready: its contributions durable, then forward/backward in chunks
    unresolved    durable, once every part is in, before the step is enqueued
      optimizer step, then trainer state saved under the update's id
    acknowledged  durable together with S₁ and the checkpoint, their objects uploaded before

A crash at any point leaves records from which `step` goes on: see `resolution`. Gradients die
with a trainer, so an update that was not applied becomes `void` and a new one repeats every
forward/backward from the last acknowledged state. A trainer's id is durable before it is
opened, so that a later claim can close what a dead worker left (invariant 12).
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

import anyio

from runtime.compute.protocol import TrainerInfo
from runtime.execution.context import RunCancelled, RunContext
from runtime.learning.accumulation import Accumulation
from runtime.learning.checkpoints import Saved, checkpoint_of
from runtime.learning.evidence import EvidenceReader
from runtime.learning.leftovers import recovery_trainer
from runtime.learning.monitor import Monitor, require_sound
from runtime.learning.policy import (
    Policy,
    adam_params,
    after_update,
    learning_plan,
    require_shape,
    trainer_init,
)
from runtime.learning.reference import Computed
from runtime.learning.resolution import (
    MAX_REDONE,
    PATIENCE,
    Fate,
    Pending,
    compute_lost,
    lost_for_good,
    persistently,
    reach,
    resolve,
)
from runtime.learning.still import logprob_change, require_still, weights
from runtime.learning.work import Part, Work, chunks
from specs.canonical import holds
from specs.errors import ErrorCode, ErrorObject, PracticumError, Unavailable
from specs.ids import Prefix, new_id
from specs.objective import NO_CHECKS
from specs.plans import TrainingPlan
from specs.records import UpdatePrepared
from specs.worker_api import (
    CheckpointSaved,
    SamplerSaved,
    UpdateAccumulated,
    UpdateAcknowledged,
    UpdateContributed,
    UpdateEnded,
    UpdatePreparedWrite,
    UpdateUnresolved,
)

CLOSE_SEC = 10.0


@dataclass(frozen=True, slots=True)
class _Trainer:
    """A trainer of this claim: announced by an update, open once compute has it."""

    id: str
    incarnation: str
    info: TrainerInfo | None = None


class Boundary:
    """Takes the updates of one claim, one at a time, through the states above."""

    def __init__(
        self, ctx: RunContext, evidence: EvidenceReader, *, patience: float = PATIENCE
    ) -> None:
        self._ctx = ctx
        self._plan = learning_plan(ctx.spec)
        self._evidence = evidence
        self._patience = patience
        training = self._plan if isinstance(self._plan, TrainingPlan) else None
        self._checks = training.checks if training else NO_CHECKS
        self._references = self._reference_model()
        self._measured: dict[str, float] = {}
        self._trainer: _Trainer | None = None
        self._pending: Pending | None = None
        self._measures: Mapping[str, float] = {}

    async def recover(self, pending: Pending, policy: Policy, *, final: bool) -> Policy | None:
        """Resolve an update that an earlier claim left: the policy after it, or None where it
        became `void` and its batch needs another.

        Raises:
            Blocked: its fate cannot be found out.
        """
        self._pending = pending
        return await self._drive(policy, final, None)

    async def step(
        self, work: Work, policy: Policy, *, measures: Mapping[str, float] | None = None
    ) -> Policy | None:
        """Take a batch's update to `acknowledged` and return the policy after it; None where
        no part had anything to learn from, and no update was begun. `measures` are recorded
        with those of the work.

        On cancel the update stays as it is recorded, for the next claim.

        Raises:
            Blocked: its fate cannot be found out.
            RunCancelled: after settling the pending update.
            PracticumError: the update failed and is recorded as `failed`.
        """
        self._measures = measures or {}
        return await self._drive(policy, work.final, work)

    async def _drive(self, policy: Policy, final: bool, work: Work | None) -> Policy | None:
        for _ in range(MAX_REDONE + 1):
            try:
                if self._pending is not None:
                    recovered = await self._recover(self._pending, policy, final)
                    if recovered is not None:
                        return recovered
                return None if work is None else await self._attempt(work, policy)
            except RunCancelled:
                await self._cancel()
                raise
            except PracticumError as error:
                if not compute_lost(error):
                    await self._fail(error)
                    raise
                self._ctx.log(f"the update was interrupted: {error}")
        raise lost_for_good(self._ctx.run, MAX_REDONE + 1, "one update")

    async def _recover(self, pending: Pending, policy: Policy, final: bool) -> Policy | None:
        fate = await resolve(
            self._ctx.compute,
            pending,
            run=self._ctx.run,
            check=self._ctx.check,
            patience=self._patience,
        )
        self._trainer = None
        if fate is Fate.NOT_APPLIED:
            when = "and saved no state" if pending.unresolved else "before its step was enqueued"
            await self._end("update.void", f"its trainer ended {when}")
            return None
        trainer = recovery_trainer(pending.id, self._ctx.claim.fence)
        saved = Policy(policy.sampler, pending.id)
        init = await trainer_init(self._ctx.compute, self._ctx.client, saved, self._plan.lora)
        try:
            info = await self._ctx.compute.create_trainer(trainer, init)
            measures = dict(pending.measures)
            return await self._acknowledge(pending, policy, info, measures, final=final)
        finally:
            await self._close_trainer(trainer)

    async def close(self) -> None:
        """End this claim's trainer, if compute can still be asked; shielded from cancellation."""
        trainer, self._trainer = self._trainer, None
        if trainer is not None and trainer.info is not None:
            await self._close_trainer(trainer.id)

    async def _attempt(self, work: Work, policy: Policy) -> Policy | None:
        """Submit every part as it comes, then step; None where nothing was to be learnt."""
        self._ctx.check()
        sums = Accumulation(Monitor(work.loss, work.terms.config))
        self._measured = {}
        info: TrainerInfo | None = None
        async with aclosing(work.parts()) as parts:
            async for part in parts:
                self._ctx.check()
                if part.rows:
                    if info is None:
                        info = await self._prepare(work, policy)
                    await self._accumulate(part, work, info.id, sums)
        if info is None:
            return None
        return await self._step(work, policy, info, sums)

    async def _prepare(self, work: Work, policy: Policy) -> TrainerInfo:
        """Announce the update and open its trainer."""
        trainer = await self._announce()
        pending = Pending(new_id(Prefix.UPDATE), work.batch, trainer.id, trainer.incarnation)
        await self._ctx.write(
            UpdatePreparedWrite(
                update=UpdatePrepared(
                    id=pending.id,
                    batch=work.batch,
                    trainer=pending.trainer,
                    incarnation=pending.incarnation,
                    from_state=policy.source,
                    sampler=policy.sampler.id,
                    loss=work.loss.value,
                    learning_rate=self._plan.learning_rate,
                    loss_config=work.terms.config.given(),
                )
            )
        )
        self._pending = pending
        return await self._open(trainer, policy)

    async def _step(
        self, work: Work, policy: Policy, trainer: TrainerInfo, sums: Accumulation
    ) -> Policy:
        """Take the optimizer step that the accumulated gradient is for."""
        assert self._pending is not None
        measures = self._checked(work, sums)
        still = self._plan.learning_rate == 0
        before = await weights(self._ctx.compute, trainer.id) if still else None
        pending = self._pending.enqueued(measures)
        self._pending = pending
        await self._ctx.write(
            UpdateUnresolved(
                update=pending.id, metrics=measures, census=dict(work.summary().census)
            )
        )
        stepped = await self._ctx.compute.optim_step(trainer.id, adam_params(self._plan))
        await self._ctx.compute.save_state(trainer.id, pending.id)
        if before is not None:
            measures = {**measures, **await self._still(work, trainer.id, before, sums)}
        norm = stepped.get("grad_norm")
        if norm is not None and holds(norm):  # the step counts, whatever its norm was
            measures = {**measures, "grad_norm": float(norm)}
        return await self._acknowledge(pending, policy, trainer, measures, final=work.final)

    async def _announce(self) -> _Trainer:
        """The open trainer, or the id and incarnation of the one to be opened."""
        if self._trainer is None or self._trainer.info is None:
            health = await reach(self._ctx.compute, check=self._ctx.check, patience=self._patience)
            self._trainer = _Trainer(new_id(Prefix.TRAINER), health.incarnation)
        return self._trainer

    async def _open(self, trainer: _Trainer, policy: Policy) -> TrainerInfo:
        if trainer.info is not None:
            return trainer.info
        init = await trainer_init(self._ctx.compute, self._ctx.client, policy, self._plan.lora)
        info = await self._ctx.compute.create_trainer(trainer.id, init)
        self._trainer = _Trainer(trainer.id, info.incarnation, info)
        if info.incarnation != trainer.incarnation:
            raise Unavailable(
                "Compute restarted between the announcement and the opening of a trainer.",
                code=ErrorCode.COMPUTE_UNAVAILABLE,
                object=ErrorObject(type="trainer", id=trainer.id),
            )
        require_shape(info, self._plan.lora)
        return info

    async def _accumulate(self, part: Part, work: Work, trainer: str, sums: Accumulation) -> None:
        """Record and submit every datum of a part, a bounded request at a time."""
        assert self._pending is not None
        update = self._pending.id
        datums, tokens, seconds = sums.datums, sums.trained_tokens, sums.seconds
        submitted = chunks(part.rows, work.loss, self._evidence, work.terms, self._references)
        async for chunk in submitted:
            self._ctx.check()
            contributions = tuple(piece.contribution for piece in chunk)
            await self._ctx.write(UpdateContributed(update=update, contributions=contributions))
            overlapped = part.others_sampling()
            started = anyio.current_time()
            result = await self._ctx.compute.forward(
                trainer,
                [piece.datum for piece in chunk],
                work.loss,
                backward=True,
                config=work.terms.config,
            )
            spent = anyio.current_time() - started
            sums.add(chunk, result, seconds=spent, overlapped=overlapped)
        await self._ctx.write(
            UpdateAccumulated(
                update=update,
                group=part.group,
                datums=sums.datums - datums,
                trained_tokens=sums.trained_tokens - tokens,
                seconds=sums.seconds - seconds,
            )
        )

    def _checked(self, work: Work, sums: Accumulation) -> dict[str, float]:
        """The measures of the contributions, if a step may follow."""
        measures = {**work.summary().measures, **self._measures, **sums.measures()}
        self._measured = {name: value for name, value in measures.items() if holds(value)}
        require_sound(measures, self._checks, run=self._ctx.run, batch=work.batch)
        return measures

    async def _still(
        self, work: Work, trainer: str, before: str, sums: Accumulation
    ) -> dict[str, float]:
        """Check a step that was taken with learning rate 0."""
        after = await weights(self._ctx.compute, trainer)
        change = await logprob_change(
            self._ctx.compute, trainer, work.loss, work.terms.config, sums.first
        )
        self._measured |= {"weights_unchanged": float(before == after), "logprob_change": change}
        require_still(self._ctx.run, before, after, change, self._checks.max_logprob_difference)
        return {"weights_unchanged": 1.0, "logprob_change": change}

    def _reference_model(self) -> Computed | None:
        """What the plan's KL penalty compares with."""
        spec = self._ctx.spec
        if not isinstance(self._plan, TrainingPlan) or self._plan.kl is None:
            return None
        assert spec.reference is not None  # admission resolves it
        return Computed(self._ctx.compute, self._ctx.client, self._upload, spec.reference)

    async def _acknowledge(
        self,
        pending: Pending,
        policy: Policy,
        trainer: TrainerInfo,
        measures: dict[str, float],
        *,
        final: bool,
    ) -> Policy:
        """Publish S₁ and the checkpoint of an update whose state is saved in compute."""
        ctx = self._ctx
        adapter = await ctx.compute.save_adapter(trainer.id)
        adapter_bytes = await ctx.compute.get_adapter(adapter.digest)
        await self._upload(adapter_bytes)
        state_bytes = await ctx.compute.get_state(pending.id)
        state = await self._upload(state_bytes)
        after = after_update(policy, adapter=adapter.digest, state=pending.id, state_digest=state)
        saved = Saved(adapter.digest, len(adapter_bytes), state, len(state_bytes))
        now = await ctx.compute.trainer(trainer.id) or trainer
        checkpoint = checkpoint_of(
            ctx.spec, pending, after.sampler, saved, now, measures, final=final
        )
        await ctx.write(
            SamplerSaved(sampler=after.sampler),
            UpdateAcknowledged(
                update=pending.id,
                metrics=measures,
                state_digest=state,
                sampler_after=after.sampler.id,
            ),
            CheckpointSaved(checkpoint=checkpoint),
        )
        self._pending = None
        if policy.state is not None:
            await self.forget(policy.state)
        return after

    async def _upload(self, data: bytes) -> str:
        """Upload, riding out a restart of the gateway; a lost claim ends the waiting."""
        return await persistently(
            lambda: self._ctx.client.upload(data), check=_nothing, patience=self._patience
        )

    async def forget(self, state: str) -> None:
        """Drop a state that no update will continue from; its bytes are in the store."""
        try:
            await self._ctx.compute.drop_state(state)
        except Unavailable as error:
            self._ctx.log(f"state {state} stays in compute for now: {error}")

    async def _cancel(self) -> None:
        """Settle the pending update of a cancelled run (invariant 16)."""
        await self.close()
        if self._pending is not None and self._pending.unresolved:
            await self._end("update.failed", "cancelled before it was known whether it was applied")
        else:
            await self._end("update.void", "the run was cancelled")

    async def _fail(self, error: PracticumError) -> None:
        """Settle an update after an error that repeating does not help.

        What is merely unavailable leaves it as recorded: the next claim goes on from there.
        """
        await self.close()
        if not isinstance(error, Unavailable):
            await self._end("update.failed", error.problem.detail)

    async def _end(self, kind: Literal["update.void", "update.failed"], reason: str) -> None:
        """Record the end of the pending update, if there is one."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await self._ctx.write(
                UpdateEnded(type=kind, update=pending.id, reason=reason, metrics=self._measured)
            )

    async def _close_trainer(self, trainer: str) -> None:
        with anyio.move_on_after(CLOSE_SEC, shield=True):
            try:
                await self._ctx.compute.close_trainer(trainer)
            except Unavailable as error:
                self._ctx.log(f"trainer {trainer} could not be closed: {error}")


def _nothing() -> None:
    """No reason to stop waiting."""
