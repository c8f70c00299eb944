"""A validation file: cross-entropy over its assistant-target tokens, by forward passes alone.

Scored before the first update (`validation_loss_before` of that update), then whenever the
plan's number of training examples has been processed, and after the last update. What is scored
is the saved sampler: no trainer is needed, no gradient exists, and a score that a crash has
prevented is taken by the next claim.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.compute.protocol import Compute, SamplerSpec
from runtime.execution.context import RunContext
from runtime.learning.evidence import Objects
from runtime.learning.files import corpus_of, packed_row
from runtime.learning.packing import Packed
from runtime.learning.policy import Policy, bring_adapter
from runtime.learning.session import Learning
from specs.errors import ErrorObject, InvalidInput
from specs.records import UpdateState
from specs.run import SamplerRef
from specs.sources import Validation
from specs.worker_api import UpdateMeasured


@dataclass(frozen=True, slots=True)
class Score:
    """Cross-entropy of a validation set: the mean over its target tokens, in nats."""

    loss: float
    tokens: int

    @property
    def measures(self) -> dict[str, float]:
        return {"validation_loss": self.loss, "validation_tokens": float(self.tokens)}


async def score(compute: Compute, spec: SamplerSpec, sequences: Sequence[Packed]) -> Score:
    """Score sequences by forward passes of a sampler; no trainer and no gradient.

    Raises:
        InvalidInput: a log-probability is not finite.
    """
    total: list[float] = []
    tokens = 0
    for packed in sequences:
        whole = np.append(packed.tokens, packed.targets[-1:])
        logprobs = (await compute.logprobs(spec, whole))[1:][packed.generated]
        total.append(float(logprobs.sum(dtype=np.float64)))
        tokens += packed.trained_tokens
    loss = -math.fsum(total) / tokens
    if not math.isfinite(loss):
        raise InvalidInput(
            "The validation loss is not finite.",
            object=ErrorObject(type="model", id=spec.base_model),
            next="Lower the learning rate, and start from the last good checkpoint.",
        )
    return Score(loss, tokens)


class Validator:
    """Scores the validation file of a run when the plan says so; without one, does nothing."""

    def __init__(
        self,
        ctx: RunContext,
        objects: Objects,
        session: Learning,
        due: frozenset[int],
        sequences: Sequence[Packed],
    ) -> None:
        self._ctx = ctx
        self._objects = objects
        self._session = session
        self._due = due
        self._sequences = sequences

    @classmethod
    async def of(
        cls,
        ctx: RunContext,
        objects: Objects,
        session: Learning,
        validation: Validation | None,
        sizes: Sequence[int],
    ) -> "Validator":
        """Renders the file, before anything is trained; `sizes` are those of the batches."""
        if validation is None:
            return cls(ctx, objects, session, frozenset(), ())
        corpus = await corpus_of(ctx.compute, objects, validation, ctx.spec.sampler)
        due = due_batches(sizes, validation.every_examples)
        return cls(ctx, objects, session, due, [packed_row(e) for e in corpus.examples])

    async def before(self, number: int) -> dict[str, float]:
        """What the model scores before anything has been learned."""
        if number > 0 or not self._due:
            return {}
        found = await self._score(self._session.policy.sampler)
        return {"validation_loss_before": found.loss}

    async def after(self, number: int) -> None:
        """Score what an acknowledged update has made, unless it is on record.

        On cancel nothing is recorded, and the next claim scores again.
        """
        if number not in self._due:
            return
        made = self._made(number)
        if made is None or made.state is None:
            return
        found = await self._score(made.sampler)
        await self._ctx.write(UpdateMeasured(update=made.state, metrics=found.measures))

    def _made(self, number: int) -> Policy | None:
        """The policy after a batch; None where it has been scored."""
        records = self._ctx.records
        samplers = {sampler.id: sampler for sampler in records.samplers}
        for update in records.updates:
            if update.batch == number and update.state is UpdateState.ACKNOWLEDGED:
                if "validation_loss" in update.metrics:
                    return None
                assert update.sampler_after is not None
                return Policy(samplers[update.sampler_after], update.id)
        return self._session.policy  # of this claim, so the last one

    async def _score(self, sampler: SamplerRef) -> Score:
        await bring_adapter(self._ctx.compute, self._objects, sampler)
        spec = SamplerSpec(sampler.base_model, sampler.adapter)
        return await score(self._ctx.compute, spec, self._sequences)


def due_batches(sizes: Sequence[int], every: int) -> frozenset[int]:
    """The batches after which a validation is due: those that complete another `every` examples,
    and the last."""
    due = {len(sizes) - 1}
    processed = 0
    for number, size in enumerate(sizes):
        if (processed + size) // every > processed // every:
            due.add(number)
        processed += size
    return frozenset(due)
