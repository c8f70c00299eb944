"""What compute says of models that somebody else serves, and what it refuses to do with them."""

from pathlib import Path

import numpy as np
import pytest

from runtime.compute.protocol import SamplerSpec, SamplingParams, TrainerInit
from runtime.compute.router import LocalCompute
from runtime.compute.upstreams import Upstreams
from runtime.formats.carried import load_codec
from specs.errors import InvalidInput
from specs.upstream import Upstream

pytestmark = pytest.mark.anyio

JUDGE = Upstream(
    name="judge",
    kind="openai",
    base_url="http://127.0.0.1:1/v1",
    model="judge-1",
    context_tokens=1000,
)


async def test_an_upstream_is_a_model_that_is_served_and_never_trained(tmp_path: Path) -> None:
    async with LocalCompute(tmp_path, upstreams=[JUDGE]) as compute:
        info = await compute.model("upstream/judge")
        assert info in await compute.models()
        assert (info.backend, info.context_tokens, info.serves) == ("upstream", 1000, True)
        assert info.why_not_trained is not None and "no tokens" in info.why_not_trained
        codec = load_codec(await compute.tokenizer("upstream/judge"))
        assert all(codec.name(number) for number in info.stop_tokens)


async def test_it_gives_no_tokens(tmp_path: Path) -> None:
    """Invariant 1: what would be tokens of an upstream does not exist."""
    sampler, ids = SamplerSpec("upstream/judge"), np.array([1], np.int32)
    params = SamplingParams(max_tokens=1, stop=())
    async with LocalCompute(tmp_path, upstreams=[JUDGE]) as compute:
        with pytest.raises(InvalidInput, match="answers in text"):
            await compute.sample(sampler, ids, params)
        with pytest.raises(InvalidInput, match="answers in text"):
            async with compute.stream(sampler, ids, params):
                raise AssertionError("there is nothing to stream")
        with pytest.raises(InvalidInput, match="answers in text"):
            await compute.logprobs(sampler, ids)
        with pytest.raises(InvalidInput, match="answers in text"):
            await compute.create_trainer("trn_1", TrainerInit("upstream/judge"))


def test_a_family_that_cannot_count_is_named() -> None:
    with pytest.raises(InvalidInput, match="cannot count as 'chatml'"):
        Upstreams([JUDGE.model_copy(update={"counts_as": "chatml"})])
