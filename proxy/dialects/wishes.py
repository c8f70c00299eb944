"""How a request wants its answer to begin, as far as all dialects have words for it."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.formats.conversation import Start, Tool

ANY = ""
"""A call of whatever tool."""


def wanted(
    thinking: bool | None, call: str | None, tools: Sequence[Tool], notes: set[str]
) -> Start:
    """The start; a call of a tool that nobody shows to the model cannot be had."""
    if call is None or any(call in (ANY, tool.name) for tool in tools):
        return Start(thinking, call)
    notes.add("unenforced:tool_choice")
    return Start(thinking)


def openai_call(choice: str | Mapping[str, JsonValue] | None, notes: set[str]) -> str | None:
    """The call that OpenAI's `tool_choice` asks for."""
    if choice == "required":
        return ANY
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(name, str) and name:
            return name
    if choice not in (None, "none", "auto"):
        notes.add("unenforced:tool_choice")
    return None


def openai_thinking(effort: JsonValue, field: str, notes: set[str]) -> bool | None:
    """Whether OpenAI's reasoning effort asks for none; how much there is nobody can say."""
    if effort == "none":
        return False
    if effort is not None:
        notes.add(f"unenforced:{field}")
    return None
