"""The evidence codec: what is written is read back exactly; damage is never silent."""

import itertools
from array import array
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import evidence
from specs.errors import InvalidInput
from specs.ids import Prefix, new_id
from specs.interaction import (
    Answer,
    BranchReason,
    CallState,
    Intent,
    SamplingUsed,
    Superseded,
)

_TRIAL = new_id(Prefix.TRIAL)
_SAMPLER = new_id(Prefix.SAMPLER)
_NOW = datetime.now(UTC).isoformat()
_ids = st.lists(st.integers(0, 2**31 - 1), max_size=12)


def _intent(sequence: int, prompt: list[int], parent: str | None) -> Intent:
    return Intent(
        interaction=new_id(Prefix.INTERACTION),
        trial=_TRIAL,
        fence=1,
        sequence=sequence,
        at=_NOW,
        parent=parent,
        branch=None if parent else BranchReason.ROOT,
        prompt_tokens=len(prompt),
        prompt_sha256=evidence.prompt_hash(array("i", prompt)),
        sampler=_SAMPLER,
        sampling=SamplingUsed(temperature=1, top_p=1, top_k=-1, max_tokens=8, stop=(2,)),
        request_digest="sha256:" + "0" * 64,
    )


def _answer(intent: Intent) -> Answer:
    return Answer(
        interaction=intent.interaction,
        at=_NOW,
        stop_reason="stop",
        provenance="sampled",
        content=[],
    )


def _chain(turns: list[tuple[list[int], list[int]]]) -> tuple[bytes, list[list[int]]]:
    """A segment of extending turns, and the prompt that each should have."""
    data, prompt, prompts, parent = b"", list[int](), list[list[int]](), None
    for sequence, (suffix, output) in enumerate(turns):
        prompt = prompt + suffix
        prompts.append(prompt)
        intent = _intent(sequence, prompt, parent)
        data += evidence.encode(intent, {"suffix": array("i", suffix)})
        logprobs = array("f", [-0.5] * len(output))
        data += evidence.encode(
            _answer(intent), {"output": array("i", output), "logprobs": logprobs}
        )
        prompt = prompt + output
        parent = intent.interaction
    return data, prompts


@given(st.lists(st.tuples(_ids, _ids), min_size=1, max_size=5))
def test_invariant_3_a_chain_is_read_back_token_for_token(
    turns: list[tuple[list[int], list[int]]],
) -> None:
    data, prompts = _chain(turns)
    read = evidence.interactions(data)
    assert [list(item.prompt) for item in read] == prompts
    assert [list(item.output) for item in read] == [output for _, output in turns]
    for before, after in itertools.pairwise(read):
        assert after.prompt[: len(before.prompt) + len(before.output)] == (
            before.prompt + before.output
        )


@given(st.lists(st.tuples(_ids, _ids), min_size=1, max_size=3), st.data())
def test_invariant_2_a_torn_segment_keeps_every_whole_record(
    turns: list[tuple[list[int], list[int]]], draw: st.DataObject
) -> None:
    data, _ = _chain(turns)
    cut = draw.draw(st.integers(0, len(data)))
    whole = [end for _, end in evidence.frames(data) if end <= cut]
    kept = list(evidence.frames(data[:cut]))
    assert len(kept) == len(whole)
    for item in evidence.interactions(data[:cut]):
        assert item.state is (CallState.ANSWERED if item.answer else CallState.LOST)


@given(st.lists(st.tuples(_ids, _ids), min_size=2, max_size=3), st.data())
def test_damage_before_the_end_is_an_error(
    turns: list[tuple[list[int], list[int]]], draw: st.DataObject
) -> None:
    data, _ = _chain(turns)
    first = next(end for _, end in evidence.frames(data))
    place = draw.draw(st.integers(9, first - 1))
    damaged = bytearray(data)
    damaged[place] ^= 0xFF
    with pytest.raises(InvalidInput):
        list(evidence.frames(bytes(damaged)))


def test_an_intent_alone_is_a_lost_call() -> None:
    data = evidence.encode(_intent(0, [1, 2], None), {"suffix": array("i", [1, 2])})
    assert [item.state for item in evidence.interactions(data)] == [CallState.LOST]


def test_a_superseded_answer_keeps_its_tokens() -> None:
    intent = _intent(0, [1], None)
    data = evidence.encode(intent, {"suffix": array("i", [1])})
    data += evidence.encode(_answer(intent), {"output": array("i", [5, 2])})
    data += evidence.encode(Superseded(interaction=intent.interaction, at=_NOW), {})
    (item,) = evidence.interactions(data)
    assert item.state is CallState.SUPERSEDED
    assert list(item.output) == [5, 2]
    assert item.logprobs is None


def test_a_prompt_that_does_not_match_its_hash_is_refused() -> None:
    data = evidence.encode(_intent(0, [1, 2], None), {"suffix": array("i", [1, 3])})
    with pytest.raises(InvalidInput, match="hash"):
        evidence.interactions(data)
