"""What a sampler stands for: its model, tokenizer and family, loaded once and kept.

The recorded tokenizer and renderer must be those that we would use: another one would put
other tokens into the evidence than the sampler's record says.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import anyio.to_thread

from proxy.gateway import Gateway
from runtime.compute.protocol import Compute, SamplerSpec
from runtime.formats.carried import load_codec
from runtime.formats.codec import Codec
from runtime.formats.families import Family, family_of
from specs import canonical
from specs.errors import Conflict, ErrorObject
from specs.model import ModelInfo
from specs.run import SamplerRef


@dataclass(frozen=True, slots=True)
class Voice:
    """A sampler ready to be rendered for and sampled from."""

    ref: SamplerRef
    info: ModelInfo
    codec: Codec
    family: Family
    stops: Mapping[int, str]
    """The tokens that end an answer, by id."""

    @property
    def sampler(self) -> SamplerSpec:
        return SamplerSpec(self.ref.base_model, self.ref.adapter)


class Voices:
    """Samplers by id, tokenizers by digest."""

    def __init__(self, gateway: Gateway, compute: Compute) -> None:
        self._gateway = gateway
        self._compute = compute
        self._voices: dict[str, Voice] = {}
        self._codecs: dict[str, Codec] = {}
        self._lock = anyio.Lock()

    async def load(self, sampler: str) -> Voice:
        """The voice of a sampler.

        Raises:
            NotFound, Unavailable: the gateway or compute does not have it, or is away.
            Conflict: it was recorded with another tokenizer or renderer than ours.
        """
        if sampler in self._voices:
            return self._voices[sampler]
        async with self._lock:
            if sampler not in self._voices:
                self._voices[sampler] = await self._load(sampler)
        return self._voices[sampler]

    async def _load(self, sampler: str) -> Voice:
        ref = await self._gateway.sampler(sampler)
        info = await self._compute.model(ref.base_model)
        codec = await self._codec(info)
        family = family_of(info, codec)
        for what, recorded, ours in (
            ("tokenizer", ref.tokenizer_digest, info.tokenizer_digest),
            ("renderer", ref.renderer, family.renderer),
        ):
            if recorded != ours:
                raise Conflict(
                    f"Sampler {sampler} was recorded with {what} {recorded}, and ours is {ours}.",
                    object=ErrorObject(type="sampler", id=sampler),
                    next="Use the version of the program that recorded it.",
                )
        ends = ((codec.mark(token), token) for token in family.stops)
        stops = {number: token for number, token in ends if number is not None}
        return Voice(ref, info, codec, family, stops)

    async def _codec(self, info: ModelInfo) -> Codec:
        known = self._codecs.get(info.tokenizer_digest)
        if known is not None:
            return known
        data = await self._compute.tokenizer(info.name)
        if canonical.digest_bytes(data) != info.tokenizer_digest:
            raise Conflict(
                f"The tokenizer of {info.name} does not have its digest {info.tokenizer_digest}.",
                object=ErrorObject(type="model", id=info.name),
                next=f"practicum model pull {info.name}",
            )
        codec = await anyio.to_thread.run_sync(load_codec, data)
        gc.freeze()  # what was loaded stays; a collection would walk through it, and all wait
        self._codecs[info.tokenizer_digest] = codec
        return codec
