"""Chains, branches, masks and the shift (invariants 3 and 6)."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.learning.packing import acted_upon, chains, pack
from tests.runtime.learning.support import Turn, record


@st.composite
def trajectories(draw: st.DrawFn) -> list[Turn]:
    """Turns that begin anew or extend any earlier turn."""
    ids = st.lists(st.integers(0, 99), min_size=1, max_size=5)
    turns: list[Turn] = []
    for index in range(draw(st.integers(1, 8))):
        extends = draw(st.none() | st.integers(0, index - 1)) if index else None
        output = draw(ids)
        turns.append(
            Turn(
                draw(ids),
                output,
                extends=extends,
                logprobs=[-draw(st.floats(0, 5, width=32)) for _ in output],
                superseded=draw(st.booleans()),
            )
        )
    return turns


def test_extending_turns_become_one_shifted_sequence() -> None:
    calls = record(
        [
            Turn([1, 2, 3], [10, 11], logprobs=[-1.0, -2.0]),
            Turn([4, 5], [12, 13], extends=0, logprobs=[-3.0, -4.0]),
        ]
    ).calls
    (packed,) = pack(calls)
    assert packed.tokens.tolist() == [1, 2, 3, 10, 11, 4, 5, 12]
    assert packed.targets.tolist() == [2, 3, 10, 11, 4, 5, 12, 13]
    assert packed.generated.tolist() == [False, False, True, True, False, False, True, True]
    assert packed.logprobs is not None
    assert packed.logprobs.tolist() == [0, 0, -1, -2, 0, 0, -3, -4]
    assert packed.trained_tokens == 4


def test_a_branch_begins_another_sequence() -> None:
    packed = pack(record([Turn([1, 2], [3]), Turn([1, 9], [4])]).calls)
    assert [p.targets.tolist() for p in packed] == [[2, 3], [9, 4]]


def test_two_turns_that_extend_the_same_turn_mark_its_tokens_once() -> None:
    calls = record([Turn([1], [2]), Turn([3], [4], extends=0), Turn([5], [6], extends=0)]).calls
    first, second = pack(calls)
    assert first.generated.tolist() == [True, False, True]
    assert second.targets.tolist() == [2, 5, 6]
    assert second.generated.tolist() == [False, False, True]


def test_interleaved_chains_stay_apart() -> None:
    calls = record(
        [
            Turn([1], [2]),
            Turn([7], [8]),
            Turn([3], [4], extends=0),
            Turn([9], [10], extends=1),
        ]
    ).calls
    assert [p.targets.tolist() for p in pack(calls)] == [[2, 3, 4], [8, 9, 10]]


def test_a_superseded_answer_counts_only_where_something_extends_it() -> None:
    alone = record([Turn([1], [2], superseded=True)]).calls
    assert pack(alone) == []
    used = record([Turn([1], [2], superseded=True), Turn([3], [4], extends=0)]).calls
    assert pack(used)[0].generated.tolist() == [True, False, True]


def test_a_turn_without_logprobs_leaves_the_sequence_without_any() -> None:
    calls = record([Turn([1], [2], logprobs=None), Turn([3], [4], extends=0)]).calls
    (packed,) = pack(calls)
    assert packed.logprobs is None
    assert packed.trained_tokens == 2


@given(trajectories())
def test_every_generated_token_is_marked_exactly_once(turns: list[Turn]) -> None:
    calls = record(turns).calls
    packed = pack(calls)
    names = [name for sequence in packed for name in sequence.interactions]
    learnt = acted_upon(calls)
    assert sorted(names) == sorted(call.intent.interaction for call in learnt)
    assert sum(p.trained_tokens for p in packed) == sum(len(call.output) for call in learnt)


@given(trajectories())
def test_marked_tokens_and_logprobs_are_the_recorded_ones_invariant_1(turns: list[Turn]) -> None:
    calls = {call.intent.interaction: call for call in record(turns).calls}
    for packed in pack(list(calls.values())):
        members = [calls[name] for name in packed.interactions]
        ids = [token for call in members for token in call.output]
        values = [value for call in members for value in call.logprobs or ()]
        assert packed.targets[packed.generated].tolist() == ids
        assert packed.logprobs is not None
        assert packed.logprobs[packed.generated].tolist() == values
        assert not packed.logprobs[~packed.generated].any()
        assert np.array_equal(packed.tokens[1:], packed.targets[:-1])


@given(trajectories())
def test_along_a_chain_each_prompt_starts_with_what_came_before_invariant_3(
    turns: list[Turn],
) -> None:
    for chain in chains(record(turns).calls):
        for before, after in pairwise(chain):
            whole = [*before.prompt, *before.output]
            assert list(after.prompt)[: len(whole)] == whole


def test_a_call_that_is_named_without_credit_is_context_and_splits_no_chain() -> None:
    calls = record([Turn([1], [2]), Turn([3], [4], extends=0), Turn([5], [6], extends=1)]).calls
    first, _, last = (call.intent.interaction for call in calls)
    one, other = pack(calls, {first: 0.5, last: 2.0})
    # The call between is no turn of a chain, so what extends it begins another.
    assert (one.targets.tolist(), one.credit.tolist()) == ([2], [0.5])
    assert other.targets.tolist() == [2, 3, 4, 5, 6]
    assert other.generated.tolist() == [False, False, False, False, True]
    assert other.credit.tolist() == [0, 0, 0, 0, 2.0]
    assert pack(calls, {}) == []


def test_a_branch_of_a_named_parent_begins_anew() -> None:
    """It says where it comes from, and its prompt is its own."""
    calls = record([Turn([1], [2]), Turn([9], [4])]).calls
    parent = calls[0].intent.interaction
    forked = replace(calls[1], intent=calls[1].intent.model_copy(update={"parent": parent}))
    assert [item.targets.tolist() for item in pack([calls[0], forked])] == [[2], [4]]
    gone = record([Turn([1], [2], superseded=True)]).calls[0]
    of_gone = forked.intent.model_copy(update={"parent": gone.intent.interaction})
    assert acted_upon([gone, replace(forked, intent=of_gone)]) == [replace(forked, intent=of_gone)]


def test_a_later_turn_without_log_probs_leaves_the_sequence_without_any() -> None:
    calls = record([Turn([1], [2]), Turn([3], [4], extends=0, logprobs=None)]).calls
    (packed,) = pack(calls)
    assert packed.logprobs is None
    three = record(
        [
            Turn([1], [2], logprobs=None),
            Turn([3], [4], extends=0),
            Turn([5], [6], extends=1),
        ]
    ).calls
    assert pack(three)[0].logprobs is None
