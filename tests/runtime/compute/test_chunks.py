"""A sequence in chunks is the sequence, however it is cut and carried."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.compute import messages as m
from runtime.compute.chunks import chunked, fold
from runtime.compute.protocol import Chunk, Sampled, StopReason
from runtime.compute.wire import Frames, Message, frame
from specs.errors import Internal, InvalidInput
from tests.runtime.compute.samples import floats, ids


def _sampled(tokens: list[int], logs: bool, stop: StopReason) -> Sampled:
    logprobs = np.array([-0.25 * one for one in tokens], np.float32) if logs else None
    return Sampled(np.array(tokens, np.int32), logprobs, stop, "sampled" if logs else "scripted")


SAMPLED = st.builds(
    _sampled,
    st.lists(st.integers(0, 300), max_size=40),
    st.booleans(),
    st.sampled_from(["stop", "length"]),
)


@given(sampled=SAMPLED, size=st.integers(1, 50), cut=st.integers(1, 30))
def test_chunks_of_any_size_over_a_wire_cut_anywhere_fold_to_the_sequence(
    sampled: Sampled, size: int, cut: int
) -> None:
    """Invariant 1."""
    data = b"".join(frame(m.write_chunk(chunk)) for chunk in chunked(sampled, size))
    frames = Frames()
    parts = [data[at : at + cut] for at in range(0, len(data), cut)]
    chunks = [m.read_chunk(message) for part in parts for message in frames.feed(part)]
    assert frames.empty
    whole = fold(chunks)
    assert whole.tokens.tolist() == sampled.tokens.tolist()
    assert (whole.logprobs is None) == (sampled.logprobs is None)
    if sampled.logprobs is not None and whole.logprobs is not None:
        assert whole.logprobs.tobytes() == sampled.logprobs.tobytes()
    assert (whole.stop_reason, whole.provenance) == (sampled.stop_reason, sampled.provenance)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [Chunk(ids(1), floats([0]))],
        [Chunk(ids(1), floats([0]), stop_reason="stop"), Chunk(ids(1), floats([0]))],
        [Chunk(ids(1), floats([0])), Chunk(ids(2), None, stop_reason="stop")],
        [
            Chunk(ids(1), floats([0]), stop_reason="stop"),
            Chunk(ids(2), floats([0]), stop_reason="stop"),
        ],
    ],
)
def test_chunks_that_do_not_make_a_sequence_are_refused(chunks: list[Chunk]) -> None:
    with pytest.raises(Internal, match="broken"):
        fold(chunks)


def test_a_part_that_claims_to_be_huge_is_refused_before_it_is_kept() -> None:
    with pytest.raises(InvalidInput, match="larger"):
        list(Frames().feed(b"\xff\xff\xff\xff"))
    with pytest.raises(InvalidInput, match="neither"):
        m.read_chunk(Message({}))
