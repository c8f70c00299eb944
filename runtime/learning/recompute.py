"""The loss of given datums on the policy that an update started from, computed anew.

For whoever rebuilds an update from its evidence: the same trainer state is opened, the datums
run forward, no gradient is taken and nothing is kept.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

import anyio
import numpy as np

from runtime.compute.losses import Loss, LossConfig
from runtime.compute.protocol import Compute, Datum
from runtime.learning.evidence import Objects
from runtime.learning.policy import Policy, learning_plan, trainer_init
from runtime.learning.work import CHUNK_DATUMS, CHUNK_TOKENS
from specs.errors import ErrorObject, InvalidInput
from specs.ids import Prefix, new_id
from specs.records import Update
from specs.run import Run, SamplerRef

CLOSE_SEC = 10.0
_IDS = ("tokens", "targets")


class UpdateReads(Objects, Protocol):
    """The reads that finding the policy needs."""

    async def update(self, update: str) -> Update: ...
    async def sampler(self, sampler: str) -> SamplerRef: ...


async def recomputed_loss(
    reads: UpdateReads, compute: Compute, run: Run, update: Update, datums: Sequence[Datum]
) -> float:
    """The summed loss of the datums before the update's step.

    The trainer, and the state that was brought into compute for it, are gone afterwards, also on
    cancel.

    Raises:
        InvalidInput: the update was never prepared, or a datum does not have the arrays of
            its loss.
        NotFound: the trainer state that it started from is no longer stored.
    """
    if update.loss is None:
        raise InvalidInput(
            f"Update {update.id} is {update.state}: it never had a loss.",
            object=ErrorObject(type="update", id=update.id),
            next=f"Choose another: practicum run updates {run.id}",
        )
    config = LossConfig(**update.loss_config)
    async with _trainer(reads, compute, run, update) as trainer:
        total = 0.0
        for part in _requests(datums):
            result = await compute.forward(
                trainer, part, Loss(update.loss), backward=False, config=config
            )
            total += result.loss_sum
        return total


@asynccontextmanager
async def _trainer(
    reads: UpdateReads, compute: Compute, run: Run, update: Update
) -> AsyncGenerator[str]:
    """A trainer as it was before the update; its end is shielded from cancellation.

    It starts from a copy of the state: the run may be at work, and drops its own.
    """
    policy = await policy_of(reads, run, update)
    trainer = new_id(Prefix.TRAINER)
    if policy.state is not None:
        policy = replace(policy, state=f"{trainer}.{policy.state}")
    try:
        init = await trainer_init(compute, reads, policy, learning_plan(run.spec).lora)
        await compute.create_trainer(trainer, init)
        yield trainer
    finally:
        with anyio.move_on_after(CLOSE_SEC, shield=True):
            await compute.close_trainer(trainer)
            if policy.state is not None:
                await compute.drop_state(policy.state)


async def policy_of(reads: UpdateReads, run: Run, update: Update) -> Policy:
    """What an update started from: its sampler, and the trainer state that it continued."""
    assert update.sampler is not None  # a prepared update names it
    sampler = await reads.sampler(update.sampler)
    state = update.from_state
    if state is None or state == run.spec.initial_checkpoint:
        return Policy(sampler, state, run.spec.initial_state if state else None)
    before = await reads.update(state)
    return Policy(sampler, state, before.state_digest)


def datum_from(arrays: dict[str, list[int] | list[float]]) -> Datum:
    """A datum from lists; every one that is not tokens or targets is an input of the loss.

    Raises:
        InvalidInput: lengths differ, or tokens or targets are missing.
    """
    lengths = {len(values) for values in arrays.values()}
    if not set(_IDS) <= arrays.keys() or len(lengths) != 1:
        raise InvalidInput(
            f"A datum needs tokens and targets and arrays of one length; it has {sorted(arrays)}"
            f" of lengths {sorted(lengths)}.",
            object=ErrorObject(type="arguments", pointer="/datums"),
            next="See docs/lineage.md for the form of a datum.",
        )
    tokens, targets = (np.array(arrays[name], np.int32) for name in _IDS)
    inputs = {
        name: np.array(values, np.float32) for name, values in arrays.items() if name not in _IDS
    }
    return Datum(tokens=tokens, targets=targets, inputs=inputs)


def _requests(datums: Sequence[Datum]) -> Iterator[list[Datum]]:
    """Parts of bounded size, cut as an update's own requests are."""
    part: list[Datum] = []
    tokens = 0
    for datum in datums:
        if part and (tokens + len(datum.tokens) > CHUNK_TOKENS or len(part) == CHUNK_DATUMS):
            yield part
            part, tokens = [], 0
        part.append(datum)
        tokens += len(datum.tokens)
    if part:
        yield part
