"""Which calls a reward moves, and with what weight: by hand."""

from dataclasses import replace

import pytest

from runtime.learning.credit import credit, offers_tools
from runtime.learning.datums import importance_datum
from runtime.learning.packing import pack
from specs.objective import Credit
from tests.runtime.learning.support import Recorded, Turn, record

MAIN = ("custom",)
"""The tools of the main agent."""


def weights(recorded: Recorded, **rules: object) -> list[float | None]:
    """Of each call in its order; None for one that is not learnt from."""
    found = credit(recorded.calls, Credit.model_validate(rules)).weights
    return [found.get(call.intent.interaction) for call in recorded.calls]


def session() -> Recorded:
    """A main agent of two turns, a delegated agent between them, a title, and a web search."""
    return record(
        [
            Turn([1], [2], tools=()),  # the title
            Turn([10], [11, 12], tools=MAIN),
            Turn([20], [21], tools=MAIN, agent="sub"),
            Turn([22], [23], extends=2, tools=MAIN, agent="sub"),
            Turn([30], [31], tools=("web_search_20250305",)),
            Turn([24], [13], extends=1, tools=MAIN),
        ]
    )


def test_by_default_agents_learn_and_helpers_do_not() -> None:
    assert weights(session()) == [None, 1, 1, 1, None, 1]
    assert credit(session().calls, Credit()).left_out == {"helpers": 2}


def test_helpers_and_delegated_agents_train_or_not_as_declared() -> None:
    assert weights(session(), helpers="train") == [1, 1, 1, 1, 1, 1]
    assert weights(session(), delegated="exclude") == [None, 1, None, None, None, 1]
    left = credit(session().calls, Credit(delegated="exclude")).left_out
    assert left == {"helpers": 2, "delegated": 2}


def test_an_agent_without_any_tool_has_no_helpers() -> None:
    recorded = record([Turn([1], [2], tools=()), Turn([3], [4], extends=0, tools=())])
    assert weights(recorded) == [1, 1]
    assert weights(record([Turn([1], [2])])) == [1]  # of a request that was not kept


def test_a_discount_counts_the_later_learnt_calls_of_the_same_agent() -> None:
    found = weights(session(), discount=0.5)
    assert found == [None, 0.5, 0.5, 1, None, 1]
    assert weights(session(), discount=0.5, helpers="train") == [0.125, 0.25, 0.5, 1, 0.5, 1]


def test_a_delegated_agent_has_a_chain_of_its_own_with_the_trials_advantage() -> None:
    recorded = session()
    packed = pack(recorded.calls, credit(recorded.calls, Credit()).weights)
    assert [item.targets[item.generated].tolist() for item in packed] == [[11, 12, 13], [21, 23]]
    main, delegated = (importance_datum(item, 0.5).inputs["advantages"] for item in packed)
    assert main.tolist() == [0.5, 0.5, 0, 0.5]  # the delegated answer, 24, is context here
    assert delegated.tolist() == [0.5, 0, 0.5]


def test_the_credit_of_a_call_scales_its_own_tokens_alone() -> None:
    recorded = record([Turn([1], [2, 3]), Turn([4], [5], extends=0)])
    (packed,) = pack(recorded.calls, credit(recorded.calls, Credit(discount=0.5)).weights)
    assert importance_datum(packed, 2.0).inputs["advantages"].tolist() == [1, 1, 0, 2]


def test_a_call_left_out_is_context_where_another_extends_it_invariant_6() -> None:
    recorded = record([Turn([1], [2, 3], agent="sub"), Turn([4], [5], extends=0)])
    rules = Credit(delegated="exclude")
    (packed,) = pack(recorded.calls, credit(recorded.calls, rules).weights)
    assert packed.targets.tolist() == [2, 3, 4, 5]
    assert packed.generated.tolist() == [False, False, False, True]


@pytest.mark.parametrize("rules", [{}, {"discount": 0.9}, {"helpers": "train"}])
def test_a_reward_counts_once_in_however_many_datums(rules: dict[str, object]) -> None:
    recorded = session()
    credits = credit(recorded.calls, Credit.model_validate(rules)).weights
    datums = [importance_datum(item, 1.0) for item in pack(recorded.calls, credits)]
    total = sum(float(datum.inputs["advantages"].sum()) for datum in datums)
    lengths = {call.intent.interaction: len(call.output) for call in recorded.calls}
    assert total == pytest.approx(sum(credits[name] * lengths[name] for name in credits))


@pytest.mark.parametrize(
    ("request_", "offers"),
    [
        (b"", False),
        (b"[]", False),
        (b'{"tools": {"name": "ls"}}', False),
        (b'{"tools": ["ls", null]}', False),
        (b'{"tools": []}', False),
        (b'{"tools": [{"name": "ls"}]}', True),
        (b'{"tools": [{"name": "ls", "type": "custom"}]}', True),
        (b'{"tools": [{"type": "function", "function": {}}]}', True),
        (b'{"tools": [{"type": "web_search_20250305"}]}', False),
        (b'{"tools": ["x", {"type": "web_search_20250305"}, {"name": "ls"}]}', True),
    ],
)
def test_tools_are_those_that_the_harness_itself_runs(request_: bytes, offers: bool) -> None:
    (call,) = record([Turn([1], [2])]).calls
    assert offers_tools(replace(call, request=request_)) is offers


def test_helpers_are_told_apart_by_session_and_agent() -> None:
    """A call without tools is a helper beside calls with some of the same party alone."""
    recorded = record(
        [
            Turn([1], [2], tools=MAIN),
            Turn([3], [4], tools=(), agent="sub"),
            Turn([5], [6], extends=1, tools=(), agent="sub"),
        ]
    )
    assert weights(recorded) == [1, 1, 1]
    assert credit(recorded.calls, Credit()).left_out == {}
    elsewhere = [
        replace(call, intent=call.intent.model_copy(update={"session": str(number), "agent": ""}))
        for number, call in enumerate(recorded.calls)
    ]
    assert credit(elsewhere, Credit()).left_out == {}
    assert credit(elsewhere[:1] + list(recorded.calls[:1]), Credit()).left_out == {}


def test_what_extends_a_helper_is_one_and_is_asked_for_no_tools_again() -> None:
    recorded = record(
        [
            Turn([1], [2], tools=()),
            Turn([3], [4], extends=0),  # its request was not kept
            Turn([5], [6], tools=MAIN),
            Turn([7], [8], extends=2),
        ]
    )
    assert weights(recorded) == [None, None, 1, 1]
    assert weights(recorded, discount=0.5) == [None, None, 0.5, 1]
