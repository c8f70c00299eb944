"""Every family renders the tokens of the maintained renderers, but for named differences."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tml_renderers import renderers

from runtime.formats.carried import parts
from runtime.formats.conversation import (
    Conversation,
    Message,
    Start,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from tests.runtime.formats.families.oracle import Case, Difference, adapter, marked, rendered

TOOLS = (
    Tool(
        "Bash",
        "Run a command",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "what to run"},
                "timeout": {"type": "integer"},
            },
            "required": ["command"],
        },
    ),
    Tool("Read", "Read a file ☃", {"type": "object", "properties": {"path": {"type": "string"}}}),
)
BASH, READ = "functions.Bash:0", "functions.Read:1"


def user(*texts: str) -> Message:
    return Message("user", tuple(Text(text) for text in texts))


def assistant(*blocks: Text | Thinking | ToolUse) -> Message:
    return Message("assistant", blocks)


def results(*pairs: tuple[str, str], text: str | None = None) -> Message:
    said = () if text is None else (Text(text),)
    return Message("user", (*(ToolResult(*pair) for pair in pairs), *said))


CALLS = (
    ToolUse(BASH, "Bash", {"command": "ls <a> | é", "timeout": 3}),
    ToolUse(READ, "Read", {"path": "/tmp/x"}),
)
CONVERSATIONS = {
    "user": Conversation((), (), (user("hi"),)),
    "unicode": Conversation(("Sei kurz. 简短",), (), (user("héllo 世界 👋🏽\n\n\ttab  "),)),
    "turns": Conversation(
        ("Be brief.",),
        (),
        (user("one"), assistant(Text("1")), user("two"), assistant(Text("2")), user("three")),
    ),
    "tools": Conversation(("Be brief.",), TOOLS, (user("look"),)),
    "call": Conversation(
        ("Be brief.",),
        TOOLS,
        (user("look"), assistant(Text("I look."), CALLS[0]), results((BASH, "a\nb"))),
    ),
    "parallel": Conversation(
        ("Be brief.",),
        TOOLS,
        (
            user("look"),
            assistant(Text("Both."), *CALLS),
            results((BASH, "a"), (READ, "b")),
            assistant(Text("Done.")),
            user("thanks"),
        ),
    ),
    "results and text": Conversation(
        ("Be brief.",),
        TOOLS,
        (user("look"), assistant(CALLS[0]), results((BASH, "a"), text="And now?")),
    ),
    "thinking": Conversation(
        ("Be brief.",),
        TOOLS,
        (user("look"), assistant(Thinking("First."), Text("ok"), CALLS[0]), results((BASH, "a"))),
    ),
    "late system": Conversation(
        ("Be brief.",),
        (),
        (user("hi"), assistant(Text("ho")), Message("system", (Text("late"),)), user("more")),
    ),
}

CASES = [
    Case(
        "qwen3",
        "Qwen3Tokenizer",
        lambda: renderers.Qwen3(strip_thinking_from_history=False),
        (
            Difference(
                "thinking has the line ends that the template and the model write",
                r"⟦<think>⟧(.*?)⟦</think>⟧\n?",
                r"⟦<think>⟧\n\1\n⟦</think>⟧\n\n",
            ),
        ),
    ),
    Case(
        "qwen3.5",
        "Qwen35Tokenizer",
        lambda: renderers.Qwen35(strip_thinking_from_history=False),
        (
            Difference(
                "earlier turns begin with the thinking that the prompt had opened",
                r"⟦<\|im_start\|>⟧assistant\n(?!⟦<think>⟧)",
                "⟦<|im_start|>⟧assistant\n⟦<think>⟧\n\n⟦</think>⟧\n\n",
            ),
            Difference("text keeps the space at its end", r"tab⟦", "tab  ⟦"),
            Difference(
                "a blank line stands before the first call, as in the published template",
                r"([^\n⟧])\n⟦<tool_call>⟧",
                r"\1\n\n⟦<tool_call>⟧",
            ),
        ),
    ),
    Case(
        "deepseek-v3.1",
        "DeepSeekV31Tokenizer",
        renderers.DeepSeekV31,
        (
            Difference(
                "calls follow the text of their turn: nothing ends before they do",
                "⟦<｜end▁of▁sentence｜>⟧⟦<｜tool▁calls▁begin｜>⟧",
                "⟦<｜tool▁calls▁begin｜>⟧",
            ),
            Difference("arguments keep their characters", r"\\u00e9", "é"),
            Difference(
                "a system message stays where it was sent",
                r"\n\nlate(.*)ho⟦<｜end▁of▁sentence｜>⟧",
                r"\1ho⟦<｜end▁of▁sentence｜>⟧late",
            ),
        ),
        declares_tools=False,
    ),
    Case(
        "deepseek-v4",
        "DeepSeekV4Tokenizer",
        renderers.DeepSeekV4,
        (
            Difference(
                "earlier turns begin with the thinking that the prompt had opened",
                "⟦<｜Assistant｜>⟧⟦</think>⟧",
                "⟦<｜Assistant｜>⟧⟦<think>⟧⟦</think>⟧",
            ),
        ),
    ),
    Case("kimi-k2", "KimiK2ThinkingTokenizer", renderers.KimiK2.preserve_thinking_history),
    Case(
        "gpt-oss",
        "HarmonyTokenizer",
        lambda: renderers.GptOss.medium(current_date="2026-01-01"),
        (
            Difference(
                "no date, so that equal input gives equal tokens", "\nCurrent date: 2026-01-01", ""
            ),
        ),
        late_system=False,
    ),
    Case("glm", "GlmTokenizer", renderers.Glm52.preserve_thinking_history),
]


QUIET = [
    Case("qwen3", "Qwen3Tokenizer", renderers.Qwen3.disable_thinking),
    Case(
        "qwen3.5",
        "Qwen35Tokenizer",
        renderers.Qwen35.disable_thinking,
        (Difference("text keeps the space at its end", r"tab⟦", "tab  ⟦"),),
    ),
    Case("deepseek-v4", "DeepSeekV4Tokenizer", renderers.DeepSeekV4.chat),
]


@pytest.mark.parametrize("case", QUIET, ids=lambda case: case.family)
@pytest.mark.parametrize("name", ["user", "unicode", "tools"])
def test_thinking_is_closed_as_in_the_maintained_renderer(case: Case, name: str) -> None:
    conversation = replace(CONVERSATIONS[name], start=Start(thinking=False))
    family, codec = adapter(case.family, case.tokenizer)
    ours, theirs = list(codec.encode(family.prompt(conversation))), rendered(case, conversation)
    assert marked(codec, ours) == marked(codec, theirs)
    assert ours == theirs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_prompt_has_the_tokens_of_the_maintained_renderer(case: Case, name: str) -> None:
    conversation: Any = CONVERSATIONS[name]
    if not case.declares_tools:
        conversation = Conversation(conversation.system, (), conversation.messages)
    if name == "late system" and not case.late_system:
        pytest.skip("the maintained renderer refuses system messages between turns; we do not")
    family, codec = adapter(case.family, case.tokenizer)
    ours, theirs = list(codec.encode(family.prompt(conversation))), rendered(case, conversation)
    assert marked(codec, ours) == marked(codec, theirs)
    assert ours == theirs


WORDS = "the Foo x 's 'S don't camelCase PATH 1 12345 世界 é e\u0301 \u0301 . / _ - 👋🏽 ü"
SPACES = (" ", "  ", "\n", "\n\n", "\t", "\r\n")
texts = st.lists(st.sampled_from((*WORDS.split(" "), *SPACES)), max_size=60).map("".join)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(texts, st.integers(1, 20))
def test_a_text_in_parts_has_the_tokens_of_the_whole(case: Case, text: str, size: int) -> None:
    codec = adapter(case.family, case.tokenizer)[1]
    cut = list(parts(text, size))
    assert "".join(cut) == text
    assert [one for part in cut for one in codec.encode_text(part)] == codec.encode_text(text)
