"""Which call a request joins, what a trial has spent, and how large a rest is."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy import calls
from proxy.calls import Joined
from proxy.dialects.base import Scored
from proxy.sampling import Spent
from runtime.formats.conversation import (
    Conversation,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from specs.errors import ErrorCode, InvalidInput

# pyright: reportPrivateUsage=false

KEY: Any = ("party", "digest")


def answered(*, streamed: bool, followers: int = 0) -> Any:
    return SimpleNamespace(streamed=streamed, turn=SimpleNamespace(followers=followers))


def known(last: Any = None, under_way: Any = None, *, retry: bool, stream: bool) -> Any:
    trial = SimpleNamespace(
        open={KEY: under_way} if under_way else {}, last={KEY: last} if last else {}
    )
    return calls._known(cast(Any, trial), KEY, retry=retry, stream=stream)


@pytest.mark.parametrize(
    ("streamed", "followers", "retry", "stream", "again"),
    [
        (True, 0, False, False, True),  # the stream broke, and it is asked for whole
        (True, 0, False, True, False),
        (True, 1, False, False, False),  # it arrived: something continues it
        (False, 0, False, False, False),
        (False, 1, True, True, True),  # the harness says that it repeats
        (True, 1, True, True, True),
    ],
)
def test_an_answer_is_given_again_to_who_says_so_or_lost_its_stream_invariant_2(
    streamed: bool, followers: int, retry: bool, stream: bool, again: bool
) -> None:
    last = answered(streamed=streamed, followers=followers)
    assert known(last, retry=retry, stream=stream) is (last if again else None)


def test_a_call_under_way_is_joined_whatever_was_answered_before() -> None:
    under_way, last = answered(streamed=False), answered(streamed=True)
    for retry in (True, False):
        assert known(last, under_way, retry=retry, stream=False) is under_way
        assert known(None, under_way, retry=retry, stream=True) is under_way
        assert known(retry=retry, stream=False) is None


def test_what_is_under_way_counts_as_spent_at_its_most() -> None:
    def call(tokens: int) -> Any:
        sampling = SimpleNamespace(max_tokens=tokens)
        return SimpleNamespace(intent=SimpleNamespace(sampling=sampling))

    trial = SimpleNamespace(answered=3, output_tokens=10, under_way=[call(5), call(7)])
    assert calls._spent(cast(Any, trial)) == Spent(calls=5, output_tokens=22)


def test_a_beginning_of_an_answer_is_text() -> None:
    user = Message("user", (ToolUse("toolu_1", "ls", {}),))
    begun = Message("assistant", (Text("a"), Text("b")))
    for messages in ((user,), (user, begun)):
        calls._check_prefill(Conversation((), (), messages))
    for block in (ToolUse("toolu_1", "ls", {}), Thinking("hm", "")):
        odd = Message("assistant", (Text("a"), block))
        with pytest.raises(InvalidInput, match=r"messages\.1: .* text only") as refused:
            calls._check_prefill(Conversation((), (), (user, odd)))
        assert refused.value.problem.code == ErrorCode.UNSUPPORTED_CONTENT
        assert refused.value.problem.object is not None
        assert refused.value.problem.object.pointer == "/messages/1"


def test_the_rest_of_a_request_is_measured_by_its_texts_and_results() -> None:
    messages = (
        Message("user", (Text("four"),)),
        Message("assistant", (Text("to"), ToolUse("toolu_1", "ls", {}), Thinking("hmm", ""))),
        Message("user", (ToolResult("toolu_1", "result"), Text("x"))),
    )
    conversation = Conversation((), (), messages)
    assert [calls._text_from(conversation, start) for start in range(4)] == [13, 9, 7, 0]


def test_tokens_are_shown_with_their_log_probs_to_who_asked_for_them() -> None:
    codec = SimpleNamespace(token="<{}>".format)
    turn = SimpleNamespace(output=[3, 4])
    call: Any = SimpleNamespace(turn=turn, logprobs=[-0.5, -0.25])
    trial: Any = None
    asked = Joined(trial, call, stream=False, codec=cast(Any, codec))
    assert asked.scored() == [Scored(cast(Any, "<3>"), -0.5), Scored(cast(Any, "<4>"), -0.25)]
    assert Joined(trial, call, stream=False).scored() is None
    call.logprobs = None
    assert asked.scored() is None
