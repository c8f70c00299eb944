"""Rows of a file as training sequences.

Tokenizer and renderer are those that the run was pinned to, or nothing is rendered. A row
becomes one sequence; its targets stand where generated tokens stand in a trial's, without
log-probs, so that no importance ratio can ever be formed over them (invariant 1).
"""

import anyio.to_thread
import numpy as np

from runtime.compute.protocol import Compute
from runtime.formats.carried import load_codec
from runtime.formats.corpus import Corpus, read_corpus
from runtime.formats.examples import Example, Renderer, TrainOn
from runtime.formats.families import family_of
from runtime.learning.evidence import Objects
from runtime.learning.packing import Packed
from specs import canonical
from specs.chat import File
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import ModelInfo
from specs.run import SamplerRef
from specs.sources import FileSource


async def renderer_for(compute: Compute, info: ModelInfo, train_on: TrainOn) -> Renderer:
    """Renders rows for a model, with the tokenizer that compute has for it.

    Raises:
        InvalidInput: `digest_mismatch`: that is not the model's tokenizer.
    """
    data = await compute.tokenizer(info.name)
    _require(canonical.digest_bytes(data) == info.tokenizer_digest, info.name, "tokenizer")
    codec = await anyio.to_thread.run_sync(load_codec, data)
    return Renderer(family_of(info, codec), codec, train_on)


async def corpus_of(
    compute: Compute, objects: Objects, source: FileSource, sampler: SamplerRef
) -> Corpus:
    """The corpus of a pinned source, rendered for the model that a run trains.

    On cancel nothing is left behind.

    Raises:
        InvalidInput: a row cannot be used, or tokenizer or renderer are not the pinned ones.
    """
    info = await compute.model(sampler.base_model)
    _require(info.tokenizer_digest == sampler.tokenizer_digest, info.name, "tokenizer")
    _require(info.renderer == sampler.renderer, info.name, "renderer")
    renderer = await renderer_for(compute, info, source.train_on)
    assert source.digest is not None  # admission sees to it
    data = await objects.object(source.digest)
    file = File.of(source.file, data)
    return await anyio.to_thread.run_sync(
        lambda: read_corpus(file, renderer, source, context_tokens=info.context_tokens)
    )


def packed_row(example: Example) -> Packed:
    """The sequence of a row after the shift."""
    ids = np.array(example.ids, np.int32)
    targets = np.zeros(len(ids), np.bool_)
    for span in example.spans:
        targets[span.start : span.end] = span.target
    return Packed(
        interactions=(),
        tokens=ids[:-1],
        targets=ids[1:],
        generated=targets[1:],
        logprobs=None,
        credit=targets[1:].astype(np.float32),
    )


def _require(same: bool, model: str, what: str) -> None:
    if not same:
        raise InvalidInput(
            f"The {what} of {model} is not the one that the run was pinned to.",
            code=ErrorCode.DIGEST_MISMATCH,
            object=ErrorObject(type="model", id=model),
            next="Use the version of the program that admitted the run.",
        )
