"""A compute of several model families: each answers in its own tokens and tool grammar, at random.

`tiny` speaks as `Dice` does, noise in bytes. The others have the tokenizers of their models, which
take seconds to load, once in a process: `warm` is for a process that others are forked from.
"""

from functools import cache
from typing import override

import anyio
import numpy as np

from runtime.compute.models import FORMATS
from runtime.compute.protocol import (
    NO_CONTEXT,
    IntArray,
    SampleContext,
    Sampled,
    SamplerSpec,
    SamplingParams,
)
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.formats.codec import Codec
from runtime.formats.conversation import Block, Text, Thinking, ToolUse
from runtime.formats.families import Family, family_named
from runtime.formats.families.deepseek import DeepSeekV31
from runtime.formats.families.qwen import Qwen3
from specs import canonical
from specs.ids import Prefix, new_id
from specs.model import FamilyName, ModelInfo
from specs.run import SamplerRef
from tests.proxy.world import MODEL, Dice

_RENDERERS: dict[FamilyName, str] = {
    "qwen3": Qwen3.renderer,
    "deepseek-v3.1": DeepSeekV31.renderer,
}
FAMILIES = tuple(_RENDERERS)
_WORDS = ("look", "at", "the", "ledger", "näïve", "数", "<|im_end|>", "a\n\n<tool_call>", "{}", "")
_DIGEST = "sha256:" + "0" * 64


@cache
def voice(name: FamilyName) -> tuple[Family, Codec]:
    """A family over the tokenizer of its models."""
    codec = load_codec(carried_tokenizer(FORMATS[name].tokenizer))
    return family_named(name, codec, model=f"a test of {name}"), codec


def warm() -> None:
    """Load every tokenizer."""
    for name in FAMILIES:
        voice(name)


def sampler_of(name: FamilyName) -> SamplerRef:
    """The record of a sampler that speaks a family."""
    return SamplerRef(
        id=new_id(Prefix.SAMPLER),
        backend="torch",
        base_model=name,
        base_digest=_DIGEST,
        tokenizer_digest=canonical.digest_bytes(carried_tokenizer(FORMATS[name].tokenizer)),
        renderer=_RENDERERS[name],
        adapter=None,
    )


class Speakers(Dice):
    """Answers take a random little time, and so does each piece of them."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.before = self._dawdle

    async def _dawdle(self, _number: int) -> None:
        await anyio.sleep(self.random.random() * 0.005)

    @override
    async def model(self, name: str) -> ModelInfo:
        if name == MODEL:
            return await super().model(name)
        known = FORMATS[name]
        return ModelInfo(
            name=name,
            backend="torch",
            digest=_DIGEST,
            tokenizer_digest=canonical.digest_bytes(carried_tokenizer(known.tokenizer)),
            family=known.family,
            context_tokens=known.context_tokens,
            stop_tokens=known.stop_tokens,
            trainable=True,
            parameters=1,
            present=True,
        )

    @override
    async def tokenizer(self, name: str) -> bytes:
        known = FORMATS.get(name)
        return carried_tokenizer(known.tokenizer) if known else await super().tokenizer(name)

    @override
    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
        context: SampleContext = NO_CONTEXT,
    ) -> list[Sampled]:
        await anyio.sleep(self.random.random() * 0.02)
        known = FORMATS.get(sampler.base_model)
        if known is None:
            return await super().sample(
                sampler, prompt, params, num_samples=num_samples, context=context
            )
        family, codec = voice(known.family)
        ids = codec.encode(family.answer(self._blocks(family)))[: params.max_tokens]
        logprobs = np.array([-self.random.random() for _ in ids], np.float32)
        ended = ids[-1] in params.stop
        return [Sampled(np.array(ids, np.int32), logprobs, "stop" if ended else "length")]

    def _blocks(self, family: Family) -> list[Block]:
        said: list[Block] = [Text(self._text())]
        if family.thinks and self.random.random() < 0.5:
            said.insert(0, Thinking(self._text()))
        calls = range(self.random.randrange(3))
        return said + [ToolUse("", "Bash", {"command": self._text()}) for _ in calls]

    def _text(self) -> str:
        return " ".join(self.random.choices(_WORDS, k=self.random.randrange(1, 9))) + "."
