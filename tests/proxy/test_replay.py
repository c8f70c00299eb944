"""A replay is exact if and only if only known normalisations were applied (invariant 3)."""

import copy
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from proxy.chains import Chains
from proxy.replay import Note, compare
from proxy.turns import Match, Party, Scene, Turn
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from specs.interaction import BranchReason

ENDS = {2: "<|im_end|>"}
SCENE, PARTY = Scene(b"s", b"t", "smp"), Party("session", "")
EDIT = Tool(
    "Edit",
    "",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "line": {"type": "integer"},
            "all": {"type": "boolean", "default": False},
            "parts": {"type": "array", "items": {"type": "number"}},
        },
    },
)
TOOLS: dict[str, Tool] = {"Edit": EDIT}


def use(**arguments: JsonValue) -> ToolUse:
    return ToolUse("toolu_1", "Edit", arguments)


@pytest.mark.parametrize(
    ("said", "echoed", "notes"),
    [
        (use(path="a", line=1), use(path="a", line=1), set[Note]()),
        (use(path="a", line=1), use(line=1, path="a"), {Note.RESERIALISED_ARGUMENTS}),
        (use(line=10.0), use(line=10), {Note.RESERIALISED_ARGUMENTS}),
        (use(parts=[1e3]), use(parts=[1000]), {Note.RESERIALISED_ARGUMENTS}),
        (use(line=12345678901234567890), use(line=12345678901234567000),
         {Note.RESERIALISED_ARGUMENTS}),
        (use(path="a"), use(path="a", all=False), {Note.DEFAULTED_ARGUMENTS}),
        (use(path="a"), use(path="a", all=True), None),
        (use(path="a"), use(path="a", all=0), None),
        (use(path="a"), use(path="a", other=1), None),
        (use(path="a", line=1), use(path="a"), None),
        (use(line="5000"), use(line=5000), {Note.COERCED_ARGUMENTS}),
        (use(all="true"), use(all=True), {Note.COERCED_ARGUMENTS}),
        (use(path=5), use(path="5"), {Note.COERCED_ARGUMENTS}),
        (use(parts="[1, 2]"), use(parts=[1, 2]), {Note.COERCED_ARGUMENTS}),
        (use(line="5000"), use(line=5001), None),
        (use(path="5"), use(path=5), None),
        (use(all=1), use(all=True), None),
        (use(unknown="5"), use(unknown=5), None),
        (use(path="a"), use(path="a "), None),
        (use(line=10**400), use(line=10**401), None),
        (use(path=None), use(path="null"), None),
        (use(path=True), use(path="true"), {Note.COERCED_ARGUMENTS}),
        (use(parts=[1, 2]), use(parts=[1]), None),
        (use(parts=[1, 2]), use(parts=[1, 3]), None),
        (use(parts=["1"]), use(parts=[1]), {Note.COERCED_ARGUMENTS}),
        (use(line="1.5"), use(line=True), None),
        (use(line=10**400), use(line=10**400), set[Note]()),
        (use(line=10**400), use(line=1), None),
        (use(line=1, path="a"), use(path="a", line="1"), None),
        (use(path="a", line=1), use(all=False, line=1, path="a"),
         {Note.RESERIALISED_ARGUMENTS, Note.DEFAULTED_ARGUMENTS}),
        (use(path="a", line=1), use(path="a", all=False, line=1), {Note.DEFAULTED_ARGUMENTS}),
    ],
)  # fmt: skip
def test_arguments_are_compared_by_what_they_mean(
    said: ToolUse, echoed: ToolUse, notes: set[Note] | None
) -> None:
    assert compare([said], [echoed], TOOLS) == notes


@pytest.mark.parametrize(
    ("said", "echoed", "notes"),
    [
        ("cd /app && ls", "ls", {Note.STRIPPED_FOLDER}),
        ("cd '/my app' && ls && pwd", "ls && pwd", {Note.STRIPPED_FOLDER}),
        ("cd /app && ls", "cd /app && ls", set[Note]()),
        ("find . -exec ls {} \\\\;", "find . -exec ls {} \\;", {Note.UNDOUBLED_ESCAPE}),
        ("cd a && ls \\\\;", "ls \\;", {Note.STRIPPED_FOLDER, Note.UNDOUBLED_ESCAPE}),
        ("cd /app; rm a && ls", "ls", None),
        ("ls && cd /app && pwd", "pwd", None),
        ("cd /app && ls -a", "ls", None),
        ("ls ", "ls", None),
    ],
)
def test_of_a_shell_command_claude_code_shows_what_it_ran(
    said: str, echoed: str, notes: set[Note] | None
) -> None:
    """It leaves out a change to the folder that the shell is in; no other tool's text may."""
    before, after = shell(said), shell(echoed)
    assert compare([before], [after], TOOLS) == notes
    if said != echoed:
        assert compare([use(command=said)], [use(command=echoed)], TOOLS) is None


@pytest.mark.parametrize(
    ("schema", "said", "echoed", "same"),
    [
        ({"type": "integer"}, "1", 1, True),
        ({"type": ["null", "integer"]}, "1", 1, True),
        ({"type": ["null", "string"]}, "1", 1, False),
        ({"type": "number"}, "1.5", 1.5, True),
        ({"type": "boolean"}, "true", True, True),
        ({"type": "integer"}, "true", True, False),  # a truth value is no number
        ({"type": "boolean"}, "1", 1, False),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}, True),
        ({"type": "array"}, "[true]", [True], True),
        ({"type": "array"}, "[true]", [1], False),
        ({"type": "null"}, "null", None, True),
        ({"type": "date"}, "1", 1, False),
        ({}, "1", 1, False),
        (True, "1", 1, False),
        ({"type": "string"}, [1], "[1]", True),
        ({"type": "string"}, [1], "[2]", False),
    ],
)
def test_a_value_becomes_another_type_only_where_the_schema_asks_for_it(
    schema: JsonValue, said: JsonValue, echoed: JsonValue, same: bool
) -> None:
    tool = Tool("Edit", "", {"type": "object", "properties": {"x": schema}})
    found = compare([use(x=said)], [use(x=echoed)], {"Edit": tool})
    assert found == ({Note.COERCED_ARGUMENTS} if same else None)
    assert compare([use(x=said)], [use(x=echoed)], {}) is None  # of a tool that nobody knows


def test_defaults_are_those_of_the_schema_at_their_place() -> None:
    inner: JsonValue = {"type": "object", "properties": {"deep": {"default": [1]}}}
    schema: dict[str, JsonValue] = {
        "properties": {"x": inner, "list": {"type": "array", "items": inner}, "odd": True}
    }
    tools = {"Edit": Tool("Edit", "", schema)}
    notes = {Note.DEFAULTED_ARGUMENTS}
    assert compare([use(x={})], [use(x={"deep": [1]})], tools) == notes
    assert compare([use(list=[{}])], [use(list=[{"deep": [1]}])], tools) == notes
    assert compare([use(x={})], [use(x={"deep": [True]})], tools) is None
    assert compare([use(x={})], [use(x={}, deep=[1])], tools) is None
    assert compare([use(x={})], [use(x={}, odd=True)], tools) is None
    broken: list[dict[str, JsonValue]] = [{}, {"properties": []}]
    for odd in broken:
        assert compare([use()], [use(x=1)], {"Edit": Tool("Edit", "", odd)}) is None


def test_a_text_that_spells_no_value_is_another_than_every_value() -> None:
    for text in ("", "one", "[" * 200_000):
        assert compare([use(line=text)], [use(line=1)], TOOLS) is None


def test_a_shell_call_without_a_text_for_its_command_is_only_itself() -> None:
    odd = [ToolUse("toolu_1", "Bash", value) for value in ({}, {"command": 1}, {"command": "ls"})]
    for said in odd:
        for echoed in odd:
            same = set[Note]() if said == echoed else None
            assert compare([said], [echoed], TOOLS) == same


def shell(command: str) -> ToolUse:
    return ToolUse("toolu_1", "Bash", {"command": command})


@pytest.mark.parametrize(("name", "key"), [("Edit", "new_string"), ("Write", "content")])
@pytest.mark.parametrize(
    ("said", "echoed", "notes"),
    [
        ("a  \n\tb\t\n\n", "a\n\tb\n\n", {Note.TRIMMED_LINES}),
        ("a \r\nb ", "a\r\nb", {Note.TRIMMED_LINES}),
        ("a  \n", "a  \n", set[Note]()),
        ("a\n\n", "a\n", None),
        ("  a", "a", None),
        ("a  \nb  \n", "a\nb  \n", None),
    ],
)
def test_written_text_may_lose_the_space_at_the_end_of_its_lines(
    name: str, key: str, said: str, echoed: str, notes: set[Note] | None
) -> None:
    before, after = (ToolUse("toolu_1", name, {key: text}) for text in (said, echoed))
    assert compare([before], [after], {}) == notes


@pytest.mark.parametrize(
    ("said", "echoed", "notes"),
    [
        ([Text(" a\n")], [Text("a")], {Note.TRIMMED_TEXT}),
        ([Text(" "), use()], [use()], {Note.TRIMMED_TEXT}),
        ([use(), Text("a")], [Text("a"), use()], {Note.MOVED_TEXT}),
        ([Text("a"), use()], [use(), Text("a")], None),
        ([Text("a"), Text("b")], [Text("a\nb")], {Note.JOINED_TEXT}),
        ([Text("a"), use(), Text("b")], [Text("ab"), use()], {Note.JOINED_TEXT}),
        ([Text("a b")], [Text("ab")], None),
        ([Text("a")], [Text("a"), Text("b")], None),
        ([use()], [], None),
        ([use()], [ToolUse("toolu_2", "Edit", {})], None),
        ([use()], [ToolUse("toolu_1", "Write", {})], None),
        ([Thinking("t", "s"), Text("a")], [Text("a")], {Note.DROPPED_THINKING}),
        ([Thinking("t", "s"), use()], [Thinking("t"), use()], {Note.DROPPED_SIGNATURE}),
        ([Thinking("t", "s"), use()], [Thinking("t", "s"), use()], set[Note]()),
        ([Thinking("t"), use()], [Thinking("u"), use()], None),
        ([Thinking("t", "s"), use()], [Thinking("t", "r"), use()], None),
        ([Thinking("a"), Thinking("b")], [Thinking("b")], {Note.DROPPED_THINKING}),
        ([Text("a")], [Thinking("t"), Text("a")], None),
        ([Thinking("a\n", "s"), use(), Thinking("b", "t")], [Thinking("a\nb"), use()],
         {Note.JOINED_THINKING, Note.DROPPED_SIGNATURE}),
        ([Thinking("a"), Thinking("b")], [Thinking("ac")], None),
        ([Thinking("a"), Thinking("b")], [Thinking("a b")], {Note.JOINED_THINKING}),
        ([Thinking("a"), Thinking("b", "t")], [Thinking("ab", "t")], None),
        ([Thinking("a ", "s")], [Thinking("a", "s")], set[Note]()),
        ([Thinking("a", "s")], [], {Note.DROPPED_THINKING}),
        ([Thinking("a"), Thinking("b")], [Thinking("b"), Thinking("a")], None),
        ([Text("a"), Text("b")], [Text("a\n\nb")], {Note.JOINED_TEXT}),
        ([Text("a"), Text("b")], [Text("a b")], None),
        ([Text("a"), use(), Text("b")], [use(), Text("ab")], None),
        ([Text("a"), use(), Text("b")], [Text("a"), Text("b"), use()], {Note.MOVED_TEXT}),
        ([use(), Text(" a")], [Text("a"), use()], {Note.MOVED_TEXT, Note.TRIMMED_TEXT}),
        ([use(), Text("a"), use(), Text("b")], [Text("a"), use(), use(), Text("b")],
         {Note.MOVED_TEXT}),
        ([Text("a"), use(), Text("b")], [use(), Text("a"), Text("b")], None),
        ([use(), use()], [use()], None),
        ([], [], set[Note]()),
    ],
)  # fmt: skip
def test_texts_may_move_towards_the_front_and_lose_space(
    said: list[Block], echoed: list[Block], notes: set[Note] | None
) -> None:
    assert compare(said, echoed, TOOLS) == notes


type Turns = list[dict[str, Any]]
"""A history that is easy to edit: `role`, and blocks as dicts."""

ANSWERS: list[list[dict[str, Any]]] = [
    [{"text": "one"}],
    [{"text": " two\n"}, {"name": "Edit", "input": {"path": "p", "line": "7"}}],
    [
        {"name": "Edit", "input": {"path": "p", "line": 1}},
        {"text": "middle"},
        {"name": "Edit", "input": {"line": "3", "path": "q", "parts": [1, 2]}},
    ],
    [
        {"thinking": "hm", "signature": "sig"},
        {"text": "b"},
        {"name": "Edit", "input": {"line": "1", "path": "r"}},
    ],
    [{"text": "a"}, {"name": "Other", "input": {"x": {"y": 1, "z": 2}}}, {"text": "b"}],
]
KNOWN = ("trim", "move", "keys", "default", "coerce", "forget_thinking", "unsign", "nothing")
UNKNOWN = (
    "letter", "value", "argument", "forget", "rename", "drop_call", "user", "insert", "result",
    "think",
)  # fmt: skip


def edit(turns: Turns, kind: str, place: int) -> bool:
    """Do something to the answers or to the rest of a history; False if there was nothing."""
    answers = [turn for turn in turns if turn["role"] == "assistant"]
    turn = answers[place % len(answers)]
    blocks: list[dict[str, Any]] = turn["blocks"]
    texts = [block for block in blocks if "text" in block]
    thoughts = [block for block in blocks if "thinking" in block]
    calls = [block for block in blocks if "name" in block]
    edits = [call for call in calls if call["name"] == "Edit"]
    match kind:
        case "nothing":
            return True
        case "forget_thinking":
            turn["blocks"] = [block for block in blocks if block.get("thinking") != "hm"]
        case "unsign":
            for block in thoughts:
                block["signature"] = ""
        case "think":
            blocks.insert(0, {"thinking": "other", "signature": ""})
        case "trim":
            for block in texts:
                block["text"] = block["text"].strip()
        case "move":
            turn["blocks"] = thoughts + texts + calls
        case "keys":
            for call in calls:
                call["input"] = dict(reversed(call["input"].items()))
        case "default":
            for call in edits:
                call["input"].setdefault("all", False)
        case "coerce":
            for call in edits:
                call["input"]["line"] = int(call["input"]["line"])
        case "letter" if texts:
            texts[0]["text"] += "!"
        case "value" if calls:
            calls[-1]["input"]["path"] = "elsewhere"
        case "argument" if calls:
            calls[0]["input"]["more"] = 1
        case "forget" if calls:
            calls[0]["input"].pop("path", None)
            calls[0]["input"].pop("x", None)
        case "rename" if calls:
            calls[0]["name"] = "Write"
        case "drop_call" if calls:
            blocks.remove(calls[0])
        case "user":
            turns[0]["blocks"][0]["text"] += "!"
        case "insert":
            turns.insert(1, {"role": "user", "blocks": [{"text": "new"}]})
        case "result":
            others = [one for one in turns[:-1] if one["role"] == "user"]
            others[-1]["blocks"][0]["text"] += "!"
        case _:
            return False
    return True


def message(turn: Mapping[str, Any]) -> Message:
    blocks: list[Block] = []
    for block in turn["blocks"]:
        if "thinking" in block:
            blocks.append(Thinking(block["thinking"], block["signature"]))
        elif "name" in block:
            blocks.append(ToolUse(block["id"], block["name"], block["input"]))
        elif "call" in block:
            blocks.append(ToolResult(block["call"], block["text"]))
        else:
            blocks.append(Text(block["text"]))
    return Message(turn["role"], tuple(blocks))


class Talk:
    """One chain, answered with known content."""

    def __init__(self) -> None:
        self.chains = Chains()
        self.turns: Turns = [{"role": "user", "blocks": [{"text": "start"}]}]
        self.number = 0

    def conversation(self, turns: Turns) -> Conversation:
        return Conversation((), (EDIT,), tuple(message(turn) for turn in turns))

    def match(self, turns: Turns) -> Match:
        return self.chains.match(self.conversation(turns), SCENE, PARTY, ENDS)

    def answer(self, blocks: Sequence[Mapping[str, Any]]) -> Turn:
        conversation = self.conversation(self.turns)
        match = self.chains.match(conversation, SCENE, PARTY, ENDS)
        base = match.base if match.branch is None else None
        turn = Turn(f"int_{self.number}", base, array("i", [5]), array("i", [6, 2]), SCENE, PARTY)
        if base is not None:
            base.followers += 1
        said: list[dict[str, Any]] = []
        for block in blocks:
            self.number += 1
            mine = {"id": f"toolu_{self.number}"} if "name" in block else {}
            said.append({**copy.deepcopy(dict(block)), **mine})
        content = [{"type": _kind(one), **one} for one in said]
        self.chains.settle(turn, conversation.messages, cast(list[JsonValue], content))
        results = [{"call": one["id"], "text": "done"} for one in said if "name" in one]
        self.turns += [
            {"role": "assistant", "blocks": copy.deepcopy(said)},
            {"role": "user", "blocks": [*results, {"text": f"go on {self.number}"}]},
        ]
        return turn


def _kind(block: Mapping[str, Any]) -> str:
    return "tool_use" if "name" in block else "thinking" if "thinking" in block else "text"


edits = st.lists(st.tuples(st.sampled_from(KNOWN + UNKNOWN), st.integers(0, 5)), max_size=4)


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4), edits)
def test_exact_if_and_only_if_only_known_normalisations_were_applied(
    answers: list[list[dict[str, Any]]], changes: list[tuple[str, int]]
) -> None:
    talk = Talk()
    turns = [talk.answer(answer) for answer in answers]
    replay = copy.deepcopy(talk.turns)
    changed = False
    for kind, place in changes:
        changed |= edit(replay, kind, place) and kind in UNKNOWN
    found = talk.match(replay)
    assert (found.branch is None) is not changed
    if not changed:
        assert found.base is turns[-1] and found.start == len(talk.turns) - 1
        done = {kind for kind, _ in changes}
        allowed = {
            Note.TRIMMED_TEXT: "trim", Note.MOVED_TEXT: "move",
            Note.RESERIALISED_ARGUMENTS: "keys", Note.DEFAULTED_ARGUMENTS: "default",
            Note.COERCED_ARGUMENTS: "coerce", Note.DROPPED_THINKING: "forget_thinking",
            Note.DROPPED_SIGNATURE: "unsign",
        }  # fmt: skip
        assert {allowed[note] for note in found.notes} <= done
    else:
        assert found.branch in (BranchReason.EDITED, BranchReason.REWOUND, BranchReason.ROOT)


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4), edits)
def test_what_a_harness_changed_once_stays_exact_turn_after_turn(
    answers: list[list[dict[str, Any]]], changes: list[tuple[str, int]]
) -> None:
    talk = Talk()
    for answer in answers:
        talk.answer(answer)
        for kind, place in changes:
            if kind in KNOWN:
                edit(talk.turns, kind, place)
        assert talk.match(talk.turns).branch is None


def test_another_party_never_extends_a_turn() -> None:
    talk = Talk()
    turn = talk.answer(ANSWERS[1])
    for party in (Party("session", "agent"), Party("other", "")):
        found = talk.chains.match(talk.conversation(talk.turns), SCENE, party, ENDS)
        assert (found.base, found.branch) == (turn, BranchReason.FORKED)
