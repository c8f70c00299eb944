"""The echo of an answer: what harnesses are known to change in it, and what is another history.

An answer comes back in the next request, but not as it was sent. What a harness is known to do
to it leaves its meaning alone and is named by a `Note`; the stored tokens then stand for the
echo, whatever it looks like. Every other difference means that somebody changed the history.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import cast

from pydantic import JsonValue

from runtime.formats.conversation import Block, Text, Thinking, Tool, ToolUse


class Note(StrEnum):
    """What a harness did to the echo of an answer, as interactions record it."""

    TRIMMED_TEXT = "trimmed_text"
    """Space around a text is gone, or a text of nothing else."""
    JOINED_TEXT = "joined_text"
    MOVED_TEXT = "moved_text"
    """Text that followed a tool call stands before it."""
    RESERIALISED_ARGUMENTS = "reserialised_arguments"
    """Keys in another order, or a number written otherwise."""
    DEFAULTED_ARGUMENTS = "defaulted_arguments"
    """A default of the tool's schema was added."""
    COERCED_ARGUMENTS = "coerced_arguments"
    """A value has the type that the tool's schema asks for."""
    STRIPPED_FOLDER = "stripped_folder"
    """A shell command lost the `cd FOLDER &&` that leads to where its shell is anyway."""
    UNDOUBLED_ESCAPE = "undoubled_escape"
    """A shell command has one backslash before a semicolon instead of two."""
    TRIMMED_LINES = "trimmed_lines"
    """Text that is written to a file lost the space at the end of its lines."""
    JOINED_THINKING = "joined_thinking"
    """Several blocks of thinking came back as one."""
    DROPPED_THINKING = "dropped_thinking"
    DROPPED_SIGNATURE = "dropped_signature"
    RETRIED_EMPTY_REPLY = "retried_empty_reply"
    """The harness asks again after an answer that showed nothing."""
    KEPT_ANSWERS = "kept_answers"
    """Answers of ours stand in their stored tokens within a history that was rendered anew."""


def compare(
    said: Sequence[Block], echoed: Sequence[Block], tools: Mapping[str, Tool]
) -> frozenset[Note] | None:
    """How an echo differs from the answer; None if by more than a harness is known to do."""
    notes: set[Note] = set()
    calls = [block for block in said if isinstance(block, ToolUse)]
    others = [block for block in echoed if isinstance(block, ToolUse)]
    if len(calls) != len(others) or not _same_texts(_texts(said), _texts(echoed), notes):
        return None
    if not _same_thinking(_thinking(said), _thinking(echoed), notes):
        return None
    for call, other in zip(calls, others, strict=True):
        if (call.id, call.name) != (other.id, other.name):
            return None
        tool = tools.get(call.name)
        schema: JsonValue = dict(tool.schema) if tool is not None else None
        if not _same_value(_as_shown(call, other, notes), dict(other.input), schema, notes):
            return None
    return frozenset(notes)


_LED_BY_FOLDER = re.compile(r"""cd (?:"[^"]*"|'[^']*'|[^\s;&|<>"']+) && """)
_LINE_END = re.compile(r"[^\S\r\n]+(?=[\r\n]|\Z)")
_WRITTEN = {"Edit": "new_string", "Write": "content"}


def _as_shown(call: ToolUse, other: ToolUse, notes: set[Note]) -> dict[str, JsonValue]:
    """The arguments of a call, with what Claude Code is known to change in texts of its tools."""
    name = "command" if call.name == "Bash" else _WRITTEN.get(call.name, "")
    said, echoed = call.input.get(name), other.input.get(name)
    if isinstance(said, str) and isinstance(echoed, str) and said != echoed:
        if call.name == "Bash":
            found = _same_command(said, echoed)
        else:
            found = {Note.TRIMMED_LINES} if _LINE_END.sub("", said) == echoed else None
        if found:
            notes |= found
            return {**call.input, name: echoed}
    return dict(call.input)


def _same_command(said: str, echoed: str) -> set[Note] | None:
    """What was done to a shell command; None if it is another one."""
    led = _LED_BY_FOLDER.match(said)
    whole = {said: set[Note]()}
    if led is not None:
        whole[said[led.end() :]] = {Note.STRIPPED_FOLDER}
    for text, notes in whole.items():
        if text == echoed:
            return notes
        if text.replace("\\\\;", "\\;") == echoed:
            return notes | {Note.UNDOUBLED_ESCAPE}
    return None


def _texts(blocks: Sequence[Block]) -> list[tuple[str, int]]:
    """Each text with the number of calls before it."""
    texts: list[tuple[str, int]] = []
    calls = 0
    for block in blocks:
        if isinstance(block, ToolUse):
            calls += 1
        elif isinstance(block, Text):
            texts.append((block.text, calls))
    return texts


def _same_texts(
    said: Sequence[tuple[str, int]], echoed: Sequence[tuple[str, int]], notes: set[Note]
) -> bool:
    if said == echoed:
        return True
    before = [(text.strip(), place) for text, place in said if text.strip()]
    after = [(text.strip(), place) for text, place in echoed if text.strip()]
    if [text for text, _ in before] != [text for text, _ in after]:
        whole = [sep.join(text for text, _ in before) for sep in ("\n", "", "\n\n")]
        if len(after) != 1 or after[0][0] not in whole or after[0][1] > before[0][1]:
            return False
        notes.add(Note.JOINED_TEXT)
        return True
    places = [(one, other) for (_, one), (_, other) in zip(before, after, strict=True)]
    if any(other > one for one, other in places):
        return False
    if any(other < one for one, other in places):
        notes.add(Note.MOVED_TEXT)
    if [text for text, _ in said] != [text for text, _ in echoed]:
        notes.add(Note.TRIMMED_TEXT)
    return True


def _thinking(blocks: Sequence[Block]) -> list[Thinking]:
    return [block for block in blocks if isinstance(block, Thinking)]


def _same_thinking(said: Sequence[Thinking], echoed: Sequence[Thinking], notes: set[Note]) -> bool:
    """Thinking comes back in its order and its words, as one block, or not at all."""
    rest = list(echoed)
    if len(said) > 1 and len(rest) == 1 and not rest[0].signature:
        whole = "".join(thought.text for thought in said)
        if "".join(whole.split()) == "".join(rest[0].text.split()):
            signed = any(thought.signature for thought in said)
            notes |= {Note.JOINED_THINKING} | ({Note.DROPPED_SIGNATURE} if signed else set())
            return True
    for thought in said:
        if not rest or rest[0].text.strip() != thought.text.strip():
            notes.add(Note.DROPPED_THINKING)
            continue
        other = rest.pop(0)
        if other.signature != thought.signature:
            if other.signature:
                return False
            notes.add(Note.DROPPED_SIGNATURE)
    return not rest


def _same_value(said: JsonValue, echoed: JsonValue, schema: JsonValue, notes: set[Note]) -> bool:
    """Whether two values of an argument mean the same; `schema` is None where none is known."""
    if isinstance(said, dict) and isinstance(echoed, dict):
        return _same_object(said, echoed, schema, notes)
    if isinstance(said, list) and isinstance(echoed, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return len(said) == len(echoed) and all(
            _same_value(one, other, items, notes) for one, other in zip(said, echoed, strict=True)
        )
    if type(said) is type(echoed) and said == echoed:
        return True
    if _is_number(said) and _is_number(echoed):
        notes.add(Note.RESERIALISED_ARGUMENTS)
        number = _as_javascript(said)
        return math.isfinite(number) and number == _as_javascript(echoed)
    if _coerced(said, echoed, schema):
        notes.add(Note.COERCED_ARGUMENTS)
        return True
    return False


def _same_object(
    said: dict[str, JsonValue], echoed: dict[str, JsonValue], schema: JsonValue, notes: set[Note]
) -> bool:
    found = schema.get("properties") if isinstance(schema, dict) else None
    known: dict[str, JsonValue] = found if isinstance(found, dict) else {}
    if any(name not in echoed for name in said):
        return False
    for name, value in echoed.items():
        part = known.get(name)
        if name in said:
            if not _same_value(said[name], value, part, notes):
                return False
        elif isinstance(part, dict) and "default" in part and _equal(part["default"], value):
            notes.add(Note.DEFAULTED_ARGUMENTS)
        else:
            return False
    if [name for name in echoed if name in said] != list(said):
        notes.add(Note.RESERIALISED_ARGUMENTS)
    return True


def _coerced(said: JsonValue, echoed: JsonValue, schema: JsonValue) -> bool:
    """A text that became the value that it spells, or a value that became its text."""
    if not isinstance(schema, dict) or not _allows(schema, echoed):
        return False
    if isinstance(said, str) and not isinstance(echoed, str):
        try:
            return _equal(cast(JsonValue, json.loads(said)), echoed)
        except (ValueError, RecursionError):
            return False
    return isinstance(echoed, str) and said is not None and echoed == json.dumps(said)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "number": (int, float), "integer": (int, float), "boolean": bool,
    "object": dict, "array": list, "null": type(None),
}  # fmt: skip


def _allows(schema: dict[str, JsonValue], value: JsonValue) -> bool:
    wanted = schema.get("type")
    kinds = [_TYPES.get(str(name)) for name in (wanted if isinstance(wanted, list) else [wanted])]
    return any(
        kind is not None and isinstance(value, kind) and (kind is bool) == isinstance(value, bool)
        for kind in kinds
    )


def _equal(one: JsonValue, other: JsonValue) -> bool:
    """Equal as JSON: a truth value is no number."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_javascript(value: JsonValue) -> float:
    """The number as a harness written in JavaScript holds it."""
    try:
        return float(cast(float, value))
    except OverflowError:
        return float("inf")
