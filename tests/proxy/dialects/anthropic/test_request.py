"""Every legal shape of a Messages request has a normal form, and what it changes a record."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import MESSAGES
from proxy.dialects.anthropic.content import EMPTY_ERROR
from proxy.dialects.base import Request
from runtime.formats.conversation import Start, Text, Thinking, ToolResult, ToolUse
from specs.errors import InvalidInput, PracticumError

CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
OTHER: dict[str, Any] = {**CALL, "id": "t2"}
TOOL: dict[str, Any] = {"name": "Bash", "input_schema": {"type": "object"}}
PNG: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}


def read(*messages: Any, **fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 8, "messages": list(messages), **fields}
    return MESSAGES.read(json.dumps(body).encode())


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def result(content: Any = None, *, call: str = "t1", **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, **fields}
    return block if content is None else {**block, "content": content}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("block", "expected", "notes"),
    [
        (result("a"), "a", ()),
        (result(), "", ()),
        (result([]), "", ()),
        (result([text("a"), text("b")]), "a\nb", ()),
        (result("a", is_error=False), "a", ()),
        (result("Exit code 3", is_error=True), "Exit code 3", ("dropped:is_error",)),
        (result(is_error=True), EMPTY_ERROR, ("dropped:is_error",)),
        (
            result([text("shot"), PNG]),
            "shot\n[image not shown: image/png; this model reads text only]",
            ("replaced:image",),
        ),
        (
            result([{"type": "tool_reference", "tool_name": "Grep"}]),
            "[tool: Grep]",
            ("replaced:tool_reference",),
        ),
        (
            result(
                [
                    {
                        "type": "search_result",
                        "title": "T",
                        "source": "S",
                        "content": [text("found")],
                    }
                ]
            ),
            "T\nS\nfound",
            (),
        ),
    ],
)
def test_a_tool_result_of_any_shape_is_a_text(
    block: dict[str, Any], expected: str, notes: tuple[str, ...]
) -> None:
    request = read(user(text("u")), said(CALL), user(block))
    assert request.conversation.messages[-1].blocks == (ToolResult("t1", expected),)
    assert request.normalisations == notes


@pytest.mark.parametrize(
    ("block", "expected", "notes"),
    [
        (PNG, "[image not shown: image/png; this model reads text only]", ("replaced:image",)),
        (
            {"type": "image", "source": {"type": "url", "url": "x"}},
            "[image not shown: url; this model reads text only]",
            ("replaced:image",),
        ),
        (
            {
                "type": "document",
                "title": "Notes",
                "source": {"type": "text", "media_type": "text/plain", "data": "body"},
            },
            "Notes\nbody",
            (),
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [text("a"), PNG]}},
            "a\n[image not shown: image/png; this model reads text only]",
            ("replaced:image",),
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"},
            },
            "[document not shown: application/pdf; this model reads text only]",
            ("replaced:document",),
        ),
    ],
)
def test_what_a_text_model_cannot_read_is_replaced_by_a_marker(
    block: dict[str, Any], expected: str, notes: tuple[str, ...]
) -> None:
    request = read(user(block))
    assert request.conversation.messages[0].blocks == (Text(expected),)
    assert request.normalisations == notes


def test_thinking_is_kept_and_redacted_thinking_is_dropped_with_a_record() -> None:
    request = read(
        user(text("u")),
        said(
            {"type": "thinking", "thinking": "why", "signature": "s"},
            {"type": "thinking", "thinking": "so", "signature": ""},
            {"type": "thinking", "thinking": "", "signature": "empty"},
            {"type": "redacted_thinking", "data": "xx"},
            text("a"),
        ),
        user(text("v")),
    )
    assert request.conversation.messages[1].blocks == (
        Thinking("why", "s"),
        Thinking("so"),
        Text("a"),
    )
    assert request.normalisations == ("dropped:redacted_thinking",)


def test_tools_that_nobody_here_can_run_are_dropped_with_a_record() -> None:
    request = read(
        user(text("u")),
        said({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, text("a")),
        user(text("v")),
        tools=[
            {**TOOL, "defer_loading": True, "input_examples": [{}], "type": "custom"},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
            {"type": "mcp_toolset", "mcp_server_name": "x"},
        ],
    )
    assert [tool.name for tool in request.conversation.tools] == ["Bash"]
    assert request.conversation.messages[1].blocks == (Text("a"),)
    assert request.normalisations == (
        "dropped:server_tool_use",
        "dropped:tool:mcp_toolset",
        "dropped:tool:web_search_20250305",
        "ignored:tools.defer_loading",
        "ignored:tools.input_examples",
    )


@pytest.mark.parametrize(
    ("choice", "allowed", "notes"),
    [
        ({"type": "auto"}, True, ()),
        ({"type": "none"}, False, ()),
        ({"type": "any"}, True, ()),
        ({"type": "tool", "name": "Bash"}, True, ()),
        ({"type": "tool", "name": "Other"}, True, ("unenforced:tool_choice",)),
        ({"type": "auto", "disable_parallel_tool_use": True}, True, ()),
    ],
)
def test_a_tool_choice_is_kept_or_recorded_as_not_enforced(
    choice: dict[str, Any], allowed: bool, notes: tuple[str, ...]
) -> None:
    request = read(user(text("u")), tools=[TOOL], tool_choice=choice)
    assert (request.calls_allowed, request.normalisations) == (allowed, notes)
    wanted = {"any": "", "tool": choice.get("name")}.get(choice["type"])
    assert request.conversation.start == Start(call=None if notes else wanted)
    assert request.one_call == choice.get("disable_parallel_tool_use", False)


@pytest.mark.parametrize(
    ("thinking", "wanted", "notes"),
    [
        ({"type": "disabled"}, False, ()),
        ({"type": "adaptive"}, None, ()),
        ({"type": "enabled"}, True, ()),
        ({"type": "enabled", "budget_tokens": 99}, True, ("unenforced:thinking.budget_tokens",)),
        ({"type": "often"}, None, ("ignored:thinking",)),
        ("yes", None, ("ignored:thinking",)),
        (None, None, ()),
    ],
)
def test_whether_to_think_is_kept_or_recorded_as_not_enforced(
    thinking: Any, wanted: bool | None, notes: tuple[str, ...]
) -> None:
    request = read(user(text("u")), thinking=thinking)
    assert request.conversation.start == Start(thinking=wanted)
    assert request.normalisations == notes


def test_results_may_come_over_several_turns_in_any_order_and_twice() -> None:
    request = read(
        user(text("u")),
        said(CALL),
        said(OTHER),
        {"role": "system", "content": "by the way"},
        user(result("2", call="t2"), result("1"), result("again"), text("go on")),
        user(result("late", call="t2")),
    )
    turns = request.conversation.messages
    assert turns[4].blocks == (ToolResult("t1", "1"), ToolResult("t2", "2"), Text("go on"))
    assert turns[5].blocks == (ToolResult("t2", "late"),)
    assert request.normalisations == ("dropped:repeated_result", "reordered_results")


def test_system_messages_stay_where_they_were_sent() -> None:
    turns = [
        user(text("u")),
        {"role": "system", "content": "one"},
        {"role": "system", "content": [text("two")]},
        said(text("a")),
        user(text("v")),
        {"role": "system", "content": "three"},
    ]
    request = read(*turns, system="top")
    roles = [message.role for message in request.conversation.messages]
    assert roles == ["user", "system", "system", "assistant", "user", "system"]
    assert request.conversation.system == ("top",)


def test_what_does_not_make_another_call_does_not_change_its_name() -> None:
    """Invariant 2: a harness that asks again whole what it asked as a stream joins the call."""
    marked = {**text("u"), "cache_control": {"type": "ephemeral"}}
    one = read(user(text("u")), stream=True, metadata={"user_id": "a"})
    two = read(user(marked), stream=False)
    assert one.digest == two.digest
    assert one.digest != read(user(text("u")), stop_sequences=["x"]).digest
    assert read(user(text("u")), stop_sequences=["x"]).requested["stop_sequences"] == ["x"]


def test_null_is_as_good_as_silence() -> None:
    silent = {"system": None, "tools": None, "tool_choice": None, "stop_sequences": None}
    request = read(user(text("u")), **silent, temperature=None, top_k=None, stream=None)
    assert request.stop_sequences == () and request.temperature is None and not request.stream


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"type": "image", "source": {}}, "messages.0.content.0.source.type"),
    ({"type": "document"}, "messages.0.content.0.source"),
    ({"type": "thinking", "thinking": "x"}, "messages.0.content.0"),
    ({"type": "search_result", "title": "t"}, "messages.0.content.0"),
]


@pytest.mark.parametrize(("block", "named"), WRONG)
def test_a_block_that_is_wrong_is_named(block: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(user(block))
    assert caught.value.problem.detail.startswith(named)


def test_a_result_without_its_call_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="unexpected `tool_use_id`"):
        read(user(text("u")), said(text("a")), user(result("x")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KINDS = ("text", "tool_use", "tool_result", "thinking", "image", "document", "x_tool_result")
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS) | st.text(max_size=3)},
    optional={
        name: JSON | st.text(max_size=3)
        for name in ("text", "id", "name", "input", "content", "source", "thinking", "tool_use_id")
    },
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": st.text(max_size=5) | st.lists(BLOCK | JSON, max_size=4),
    }
)


@given(
    messages=st.lists(MESSAGE | JSON, max_size=4),
    fields=st.dictionaries(
        st.sampled_from(["system", "tools", "tool_choice", "stop_sequences", "stream", "top_k"]),
        JSON,
        max_size=3,
    ),
)
def test_whatever_is_sent_is_read_or_refused_by_name(
    messages: list[Any], fields: dict[str, Any]
) -> None:
    body = {"model": "m", "max_tokens": 8, "messages": messages, **fields}
    try:
        request = MESSAGES.read(json.dumps(body).encode())
    except PracticumError as error:
        assert error.problem.status == 422 and error.problem.detail
        return
    for message in request.conversation.messages:
        for block in message.blocks:
            assert isinstance(block, Text | Thinking | ToolUse | ToolResult)
