"""Rows are rendered with the tokenizer and the renderer that their run was pinned to, or not."""

from dataclasses import dataclass
from typing import cast

import pytest

from runtime.compute.protocol import Compute
from runtime.learning.files import corpus_of, renderer_for
from specs.canonical import digest_bytes
from specs.errors import ErrorCode, InvalidInput
from specs.model import ModelInfo
from specs.sources import FileSource
from tests.runtime.learning.pretended import Store
from tests.runtime.learning.told import sampler

TOKENIZER = b'{"no": "tokenizer that could be loaded"}'
SOURCE = FileSource(file="rows.jsonl", digest=digest_bytes(b"rows"), size=4, rows=1)


@dataclass
class Model:
    """A compute with one model, and a tokenizer that is perhaps another's."""

    tokenizer_: bytes = TOKENIZER

    async def model(self, name: str) -> ModelInfo:
        return ModelInfo(
            name=name,
            backend="torch",
            digest=digest_bytes(b"base"),
            tokenizer_digest=digest_bytes(TOKENIZER),
            family="chatml",
            context_tokens=64,
            stop_tokens=(2,),
            trainable=True,
            parameters=1,
            present=True,
        )

    async def tokenizer(self, name: str) -> bytes:
        return self.tokenizer_


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pinned", "what"),
    [
        ({"tokenizer_digest": digest_bytes(b"other")}, "tokenizer"),
        ({"renderer": "chatml/9"}, "renderer"),
    ],
)
async def test_a_run_that_was_pinned_to_another_rendering_renders_nothing(
    pinned: dict[str, str], what: str
) -> None:
    known = {"tokenizer_digest": digest_bytes(TOKENIZER), "renderer": "chatml/1"}
    made = sampler(0).model_copy(update={**known, **pinned})
    with pytest.raises(InvalidInput, match=f"The {what} of tiny is not the one") as refused:
        await corpus_of(cast(Compute, Model()), Store(), SOURCE, made)
    assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.id == "tiny"


@pytest.mark.anyio
async def test_a_tokenizer_of_other_bytes_is_not_loaded() -> None:
    compute = Model(b"other bytes")
    info = await compute.model("tiny")
    with pytest.raises(InvalidInput, match="The tokenizer of tiny is not the one"):
        await renderer_for(cast(Compute, compute), info, "all_assistant")
