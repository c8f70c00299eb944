"""Log-probs of a reference model on the sequences of trials, kept as evidence.

They are part of what moved an update, so they are stored before the update is prepared, one
object per trial named by its contributions: whoever derives the datums again reads them and
needs neither the reference nor the same arithmetic.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runtime.compute.protocol import Compute, FloatArray, SamplerSpec
from runtime.learning.evidence import Objects
from runtime.learning.packing import Packed
from runtime.learning.policy import bring_adapter
from specs.errors import ErrorCode, ErrorObject, Internal, InvalidInput
from specs.run import SamplerRef

KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Reference:
    """`logprobs` of the targets of a trial's sequences, [n] each; `digest` of the stored bytes."""

    digest: str
    logprobs: tuple[FloatArray, ...]


class References(Protocol):
    """Where a trial's reference log-probs come from."""

    async def of(self, trial: str, sequences: Sequence[Packed]) -> Reference:
        """Of all sequences of the trial, in their order."""
        ...


class Computed:
    """Asks compute, and stores the answer. Not for concurrent use.

    Each trial is asked about once; after that the stored bytes are read, or what is kept of them.
    """

    def __init__(
        self,
        compute: Compute,
        objects: Objects,
        upload: Callable[[bytes], Awaitable[str]],
        sampler: SamplerRef,
    ) -> None:
        self._compute = compute
        self._objects = objects
        self._upload = upload
        self._sampler = sampler
        self._digests: dict[str, str] = {}
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    async def of(self, trial: str, sequences: Sequence[Packed]) -> Reference:
        """On cancel nothing is left behind but an object that nobody names."""
        digest = self._digests.get(trial)
        if digest is None:
            data = encode(await self._ask(sequences))
            digest = await self._upload(data)
            self._digests[trial] = digest
        else:
            data = self._kept.get(trial) or await self._objects.object(digest)
        self._keep(trial, data)
        return Reference(digest, decode(data, sequences, trial))

    async def _ask(self, sequences: Sequence[Packed]) -> list[FloatArray]:
        await bring_adapter(self._compute, self._objects, self._sampler)
        spec = SamplerSpec(self._sampler.base_model, self._sampler.adapter)
        found: list[FloatArray] = []
        for packed in sequences:
            whole = np.append(packed.tokens, packed.targets[-1:])
            values = (await self._compute.logprobs(spec, whole))[1:]
            if len(values) != len(packed.targets) or not np.isfinite(values).all():
                raise Internal(
                    f"The reference {self._sampler.id} gave no finite log-prob for each token.",
                    object=ErrorObject(type="sampler", id=self._sampler.id),
                )
            found.append(values)
        return found

    def _keep(self, trial: str, data: bytes) -> None:
        self._kept[trial] = data
        self._kept.move_to_end(trial)
        while sum(map(len, self._kept.values())) > KEPT_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)


class Recorded:
    """Reads what an update's contributions name; asks no model."""

    def __init__(self, objects: Objects, digests: Mapping[str, str]) -> None:
        self._objects = objects
        self._digests = digests

    async def of(self, trial: str, sequences: Sequence[Packed]) -> Reference:
        """The recorded log-probs of one trial.

        Raises:
            InvalidInput: `digest_mismatch`: none are recorded, or not as many as there are tokens.
        """
        digest = self._digests.get(trial)
        if digest is None:
            raise _unfit(trial, "no reference log-probs are recorded")
        return Reference(digest, decode(await self._objects.object(digest), sequences, trial))


def encode(logprobs: Sequence[FloatArray]) -> bytes:
    """The stored form: little-endian float32 of all sequences, one after the other."""
    return b"".join(np.ascontiguousarray(values, "<f4").tobytes() for values in logprobs)


def decode(data: bytes, sequences: Sequence[Packed], trial: str) -> tuple[FloatArray, ...]:
    """Cut the stored form into its sequences."""
    sizes = [len(packed.targets) for packed in sequences]
    if len(data) != 4 * sum(sizes):
        raise _unfit(trial, f"{len(data) // 4} reference log-probs are recorded, not {sum(sizes)}")
    whole = np.frombuffer(data, "<f4").astype(np.float32)
    return tuple(np.split(whole, np.cumsum(sizes)[:-1]))


def _unfit(trial: str, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The datums of trial {trial} cannot be derived again: {cause}.",
        code=ErrorCode.DIGEST_MISMATCH,
        object=ErrorObject(type="trial", id=trial),
    )
