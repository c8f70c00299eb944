"""Qwen3-Coder, of which no maintained renderer is at hand: what its published template writes.

The texts here were written by hand after the chat template that its models are published with
(blank line before the first call, values in Python's words, one user turn of results), and stand
for it: a change of rendering has to change them.
"""

from typing import Any

from runtime.formats.codec import Mark
from runtime.formats.conversation import (
    Conversation,
    Message,
    Text,
    Tool,
    ToolResult,
    ToolUse,
)
from tests.runtime.formats.families.oracle import adapter

CALL = "int_" + "0" * 32

EDIT = Tool(
    "Edit",
    " Change a file ☃\n",
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": " Where. "},
            "all": {"type": "boolean", "default": False},
            "mode": {"enum": ["fast", "slow"]},
            "line": {"type": ["integer", "null"], "minimum": 1, "description": ""},
            "parts": {"type": "array", "items": {"type": "string"}},
            "any": True,
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)
PING = Tool("Ping", "", {"type": "object", "properties": {}})
INPUT: dict[str, Any] = {
    "path": "a é.py",
    "all": True,
    "line": None,
    "parts": ["x", "é"],
    "n": 1.5,
    "o": {"k": 1},
}

TOOLS = """\
<tools>
<function>
<name>Edit</name>
<description>Change a file ☃</description>
<parameters>
<parameter>
<name>path</name>
<type>string</type>
<description>Where.</description>
</parameter>
<parameter>
<name>all</name>
<type>boolean</type>
<default>False</default>
</parameter>
<parameter>
<name>mode</name>
<enum>["fast", "slow"]</enum>
</parameter>
<parameter>
<name>line</name>
<type>['integer', 'null']</type>
<description></description>
<minimum>1</minimum>
</parameter>
<parameter>
<name>parts</name>
<type>array</type>
<items>{"type": "string"}</items>
</parameter>
<parameter>
<name>any</name>
</parameter>
<$schema>http://json-schema.org/draft-07/schema#</$schema>
<required>["path"]</required>
<additionalProperties>False</additionalProperties>
</parameters>
</function>
<function>
<name>Ping</name>
<parameters>
</parameters>
</function>
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must \
be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the \
function call, but NOT after
- If there is no function call available, answer the question like normal with your current \
knowledge and do not tell the user about function calls
</IMPORTANT><|im_end|>
"""
EDITED = """\
<tool_call>
<function=Edit>
<parameter=path>
a é.py
</parameter>
<parameter=all>
True
</parameter>
<parameter=line>
None
</parameter>
<parameter=parts>
["x", "é"]
</parameter>
<parameter=n>
1.5
</parameter>
<parameter=o>
{"k": 1}
</parameter>
</function>
</tool_call>"""


def user(*blocks: Text | ToolResult) -> Message:
    return Message("user", blocks)


def assistant(*blocks: Text | ToolUse) -> Message:
    return Message("assistant", blocks)


def rendered(conversation: Conversation) -> str:
    """The prompt's text; the control tokens in it are those of the tokenizer."""
    family, codec = adapter("qwen3-coder", "Qwen3Tokenizer")
    return codec.decode(codec.encode(family.prompt(conversation)))


def test_turns_and_a_late_system_message() -> None:
    turns = (
        user(Text("hi")),
        assistant(Text("ho")),
        Message("system", (Text("late"),)),
        user(Text("more")),
    )
    assert rendered(Conversation((), (), turns)) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n"
        "<|im_start|>system\nlate<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert rendered(Conversation(("Be brief.",), (), turns[:1])) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tools_stand_in_the_system_prompt() -> None:
    end = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    head = "\n\n# Tools\n\nYou have access to the following functions:\n\n"
    asked = (user(Text("hi")),)
    assert rendered(Conversation(("Be brief.",), (EDIT, PING), asked)) == (
        f"<|im_start|>system\nBe brief.{head}{TOOLS}{end}"
    )
    assert rendered(Conversation((), (EDIT, PING), asked)) == (
        "<|im_start|>system\nYou are Qwen, a helpful AI assistant that can interact with a computer"
        f" to solve tasks.{head}{TOOLS}{end}"
    )


def test_calls_and_their_results() -> None:
    calls = (ToolUse("1", "Edit", INPUT), ToolUse("2", "Ping", {}))
    turns = (
        user(Text("go")),
        assistant(Text("Both."), *calls),
        user(ToolResult("1", "a\nb"), ToolResult("2", ""), Text("And now?")),
        assistant(ToolUse("3", "Ping", {})),
        user(ToolResult("3", "pong")),
    )
    assert rendered(Conversation((), (), turns)) == (
        "<|im_start|>user\ngo<|im_end|>\n"
        f"<|im_start|>assistant\nBoth.\n\n{EDITED}\n<tool_call>\n<function=Ping>\n</function>\n"
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\na\nb\n</tool_response>\n"
        "<tool_response>\n\n</tool_response>\n<|im_end|>\n"
        "<|im_start|>user\nAnd now?<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n<function=Ping>\n</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\npong\n</tool_response>\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_calls_are_made_of_control_tokens_and_read_back_with_their_types() -> None:
    family, codec = adapter("qwen3-coder", "Qwen3Tokenizer")
    ids = codec.encode(family.answer([Text("Both."), ToolUse("", "Edit", INPUT)]))
    pieces = codec.pieces(ids)
    assert Mark("<tool_call>") in pieces and Mark("</tool_call>") in pieces
    text, call = family.parse(pieces, call=CALL, tools=[EDIT]).content
    assert text == {"type": "text", "text": "Both."}
    assert isinstance(call, dict) and call["input"] == {**INPUT, "n": "1.5", "o": '{"k": 1}'}


def test_truth_values_are_read_in_json_and_in_pythons_words() -> None:
    family, _ = adapter("qwen3-coder", "Qwen3Tokenizer")
    for spelled, value in (("True", True), ("false", False), ("None", None), ("null", None)):
        key = "line" if value is None else "all"
        body = f"\n<function=Edit>\n<parameter={key}>\n{spelled}\n</parameter>\n</function>\n"
        pieces = [Mark("<tool_call>"), body, Mark("</tool_call>")]
        (call,) = family.parse(pieces, call=CALL, tools=[EDIT]).content
        assert isinstance(call, dict) and call["input"] == {key: value}
