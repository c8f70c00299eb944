"""Which earlier call a request continues, and the reason where it continues none (invariant 3)."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from proxy.chains import Chains, answer_blocks, scene_of
from proxy.replay import Note
from proxy.turns import Match, Party, Scene, Turn
from runtime.formats.conversation import (
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolUse,
)
from specs.interaction import BranchReason

END = 2
SCENE, PARTY, OTHER = Scene(b"system", b"tools", "smp"), Party("session"), Party("session", "sub")
SUMMARY = "<summary>what was done so far</summary>"
ASKED = "CRITICAL: Respond with TEXT ONLY"


def user(*texts: str) -> Message:
    return Message("user", tuple(Text(text) for text in texts))


def said(text: str) -> Message:
    return Message("assistant", (Text(text),))


A, ONE, B, TWO, C = user("a"), said("one"), user("b"), said("two"), user("c")


def text(value: str) -> list[JsonValue]:
    return [{"type": "text", "text": value}]


class Talk:
    """The chains of a trial, with turns that are answered by hand."""

    def __init__(self) -> None:
        self.chains = Chains()

    def answer(
        self,
        messages: Sequence[Message],
        content: list[JsonValue] | str,
        base: Turn | None = None,
        *,
        scene: Scene = SCENE,
        party: Party = PARTY,
        output: Sequence[int] = (7, END),
    ) -> Turn:
        turn = Turn("int", base, array("i", [1]), array("i", output), scene, party)
        if base is not None:
            base.followers += 1
        blocks = text(content) if isinstance(content, str) else content
        self.chains.settle(turn, messages, blocks)
        return turn

    def match(
        self, *messages: Message, scene: Scene = SCENE, party: Party = PARTY, **rest: Any
    ) -> Match:
        conversation = Conversation((), (), messages)
        return self.chains.match(conversation, scene, party, {END}, **rest)

    def found(
        self, *messages: Message, **where: Any
    ) -> tuple[Turn | None, int, BranchReason | None]:
        match = self.match(*messages, **where)
        return match.base, match.start, match.branch


def two() -> tuple[Talk, Turn, Turn]:
    talk = Talk()
    first = talk.answer([A], "one")
    return talk, first, talk.answer([A, ONE, B], "two", first)


def test_a_request_extends_the_longest_history_that_was_answered() -> None:
    talk, _, second = two()
    assert talk.found(A, ONE, B, TWO, C) == (second, 4, None)
    assert talk.match(A, ONE, B, TWO, C).notes == frozenset()
    conversation = (A, said(" one"), B, said("two "), C)
    assert talk.match(*conversation).notes == {Note.TRIMMED_TEXT}
    marks = talk.chains.marks(conversation)
    assert talk.match(*conversation, known=marks).base is second


def test_the_first_request_of_a_party_is_a_root() -> None:
    root = (None, 0, BranchReason.ROOT)
    assert Talk().found(A) == root
    assert Talk().found(A, ONE, B) == root  # examples that nobody answered
    talk, _, _ = two()
    assert talk.found(C) == root
    assert talk.found(A, said("other"), B, party=Party("another")) == root


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        (replace(SCENE, sampler="other"), BranchReason.SAMPLER_CHANGED),
        (replace(SCENE, system=b"other"), BranchReason.SYSTEM_CHANGED),
        (replace(SCENE, tools=b"other"), BranchReason.TOOLS_CHANGED),
        (Scene(b"other", b"other", "other"), BranchReason.SAMPLER_CHANGED),
        (Scene(b"other", b"other", "smp"), BranchReason.SYSTEM_CHANGED),
    ],
)
def test_the_same_history_in_another_scene_is_begun_again(
    scene: Scene, reason: BranchReason
) -> None:
    talk, _, _ = two()
    assert talk.found(A, ONE, B, TWO, C, scene=scene) == (None, 0, reason)


def test_of_strangers_the_one_that_went_furthest_says_what_changed() -> None:
    talk = Talk()
    talk.answer([A, ONE, B], "two", scene=replace(SCENE, tools=b"x"))
    talk.answer([A], "one", scene=replace(SCENE, sampler="x"))
    assert talk.found(A, ONE, B, TWO, C) == (None, 0, BranchReason.TOOLS_CHANGED)


def test_a_history_that_was_changed_says_so_or_that_it_was_forgotten() -> None:
    talk, first, _ = two()
    assert talk.found(user("z"), ONE, B) == (None, 0, BranchReason.EDITED)
    assert talk.found(A, ONE, B, said("else"), C) == (first, 2, BranchReason.EDITED)
    assert talk.found(A, ONE, C) == (first, 2, BranchReason.REWOUND)
    assert talk.found(A, ONE, C, user(ASKED)) == (first, 2, BranchReason.COMPACTED)
    talk.chains.incomplete = True
    assert talk.found(user("z"), ONE, B) == (None, 0, BranchReason.PROXY_RESTART)
    assert talk.found(user("z")) == (None, 0, BranchReason.ROOT)


def test_another_party_forks_and_then_has_a_chain_of_its_own() -> None:
    talk, first, second = two()
    assert talk.found(A, ONE, B, TWO, C, party=OTHER) == (second, 4, BranchReason.FORKED)
    mine = talk.answer([A], "one", party=OTHER)
    assert talk.found(A, ONE, C, party=OTHER) == (mine, 2, None)
    assert talk.found(A, ONE, B, party=PARTY) == (first, 2, BranchReason.REWOUND)


def test_of_equal_histories_one_that_nobody_continues_and_the_latest_is_gone_on_from() -> None:
    talk = Talk()
    turns = [talk.answer([A], "one") for _ in range(3)]
    assert talk.found(A, ONE, B)[0] is turns[2]
    turns[2].followers = 1
    assert talk.found(A, ONE, B)[0] is turns[1]
    talk.chains.set_aside(turns[1])
    assert talk.found(A, ONE, B)[0] is turns[0]


def test_a_summary_that_was_answered_begins_the_next_history() -> None:
    talk = Talk()
    talk.answer([A], SUMMARY)
    begun = user("what was done so far")
    assert talk.found(begun) == (None, 0, BranchReason.COMPACTED)
    assert talk.found(begun, party=Party("another")) == (None, 0, BranchReason.ROOT)


@pytest.mark.parametrize(("output", "continued"), [((7,), True), ((), True), ((7, END), False)])
def test_a_turn_that_comes_last_goes_on_only_if_it_was_cut(
    output: tuple[int, ...], continued: bool
) -> None:
    talk = Talk()
    turn = talk.answer([A], "one", output=output)
    assert (talk.match(A, ONE).base is turn) is continued
    assert talk.match(A, ONE, B).base is turn


def test_an_answer_that_was_begun_for_it_is_one_with_its_beginning() -> None:
    talk = Talk()
    turn = talk.answer([A, said("on")], "e")
    assert (turn.prefilled, turn.place, turn.said) == (True, 1, (Text("one"),))
    assert talk.found(A, ONE, B) == (turn, 2, None)
    call: JsonValue = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}
    other = talk.answer([A, said("first")], [call])
    assert other.said == (Text("first"), ToolUse("toolu_1", "ls", {}))
    assert talk.answer([A, said("alone")], []).said == (Text("alone"),)
    assert not talk.answer([A], "two").prefilled


def test_turns_of_others_within_a_chain_must_stay_as_they_were() -> None:
    talk = Talk()
    turn = talk.answer([A, said("example"), B], "two")
    assert [index for index, _ in turn.foreign] == [1]
    assert talk.found(A, said("example"), B, TWO, C) == (turn, 4, None)
    # Space counts in words that we have not said ourselves.
    assert talk.match(A, said("example "), B, TWO, C).base is None
    after = talk.answer([A, said("example"), B, TWO, C], "three", turn)
    assert after.foreign == ()


def silent() -> tuple[Talk, Turn, Turn]:
    talk = Talk()
    first = talk.answer([A], "one")
    return talk, first, talk.answer([A, ONE, B], " \n", first)


AGAIN = user("b", "go on")


def test_an_empty_answer_that_is_asked_for_again_is_replaced() -> None:
    talk, first, empty = silent()
    match = talk.match(A, ONE, AGAIN)
    assert (match.retried, match.base, match.branch) == (empty, first, None)
    assert match.notes == {Note.RETRIED_EMPTY_REPLY}
    talk.chains.set_aside(empty)
    assert first.followers == 0
    assert talk.match(A, ONE, AGAIN).retried is None
    alone = Talk()
    empty = alone.answer([A], [])
    match = alone.match(user("a", "go on"))
    assert (match.retried, match.base, match.branch) == (empty, None, BranchReason.ROOT)
    assert match.notes == {Note.RETRIED_EMPTY_REPLY}


def test_what_is_no_repetition_replaces_nothing() -> None:
    talk, _, empty = silent()
    for messages in (
        (A, ONE, B),  # nothing was added
        (A, ONE, user("go on")),
        (A, ONE, user("x", "go on")),
        (A, ONE, user("b", "go", "on")),
        (A, ONE, Message("user", (Text("b"), Thinking("go on", "")))),
        (ONE,),
    ):
        assert talk.match(*messages).retried is None
    assert talk.match(A, ONE, user(" b\n", "go on")).retried is empty  # space may go
    assert talk.match(A, ONE, AGAIN, party=OTHER).retried is None
    assert talk.match(A, ONE, AGAIN, scene=replace(SCENE, tools=b"x")).retried is None
    empty.followers = 1
    assert talk.match(A, ONE, AGAIN).retried is None
    spoken, _, _ = two()
    assert spoken.match(A, ONE, AGAIN).retried is None


def test_an_answer_counts_by_its_words_and_by_its_calls() -> None:
    chains = Chains()

    def mark(*blocks: Any, role: Any = "assistant") -> bytes:
        (found,) = chains.marks([Message(role, blocks)])
        return found

    call = ToolUse("toolu_1", "ls", {"path": "a"})
    other = replace(call, input={"path": "b"})
    assert mark(Text("a b"), Text("c")) == mark(Text("abc")) == mark(Text(" ab c\n"))
    assert mark(Text("a"), Thinking("hm", "")) == mark(Text("a"))
    assert mark(call) != mark(other)
    assert mark(call) != mark(replace(call, name="cat"))
    assert mark(call, Text("a")) == mark(Text("a"), call)
    chains.minted.add("toolu_1")  # from here on its arguments are those that we know
    assert mark(call) == mark(other)
    assert mark(call) != mark(replace(call, id="toolu_2"))
    assert mark(Text("a b"), role="user") != mark(Text("ab"), role="user")
    assert mark(Text("a"), role="user") != mark(Text("a"))


def test_content_is_read_into_blocks_and_what_is_unknown_is_left_out() -> None:
    content: list[JsonValue] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "so"},
        {"type": "text", "text": "a"},
        {"type": "other", "text": "b"},
        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"x": 1}},
    ]
    assert answer_blocks(content) == (
        Thinking("hm", "s"),
        Thinking("so", ""),
        Text("a"),
        ToolUse("toolu_1", "ls", {"x": 1}),
    )
    talk = Talk()
    talk.answer([A], content)
    assert talk.chains.minted == {"toolu_1"}


def test_a_scene_is_system_tools_and_sampler() -> None:
    tool = Tool("ls", "lists", {"type": "object"})
    base = Conversation(("be kind",), (tool,), (A,))
    scene = scene_of(base, "smp")
    assert scene == scene_of(replace(base, messages=(B,)), "smp")
    for other in (
        replace(base, system=("be kind", "")),
        replace(base, tools=()),
        replace(base, tools=(replace(tool, description="x"),)),
        replace(base, tools=(replace(tool, schema={}),)),
    ):
        assert scene_of(other, "smp") != scene
    assert scene_of(base, "other").sampler == "other"
