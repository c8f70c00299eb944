"""Values inside calls: JSON as templates write it, and strict reading with reasons."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from runtime.formats.codec import Mark, spell
from runtime.formats.conversation import Tool
from runtime.formats.families.reading import Body, ReadCall, Unreadable
from specs import canonical
from specs.errors import InvalidInput

_JSON = {"True": "true", "False": "false", "None": "null"}


def dumps(value: JsonValue) -> str:
    """JSON as chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def function(tool: Tool) -> dict[str, JsonValue]:
    """A tool as an OpenAI function."""
    rest: dict[str, JsonValue] = {"parameters": dict(tool.schema)}
    described: dict[str, JsonValue] = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, **rest}


def signature(tool: Tool) -> dict[str, JsonValue]:
    """A tool as an OpenAI tool."""
    return {"type": "function", "function": function(tool)}


def text_of(body: Body) -> str:
    """A body without markup in it.

    Raises:
        Unreadable: there is markup in it.
    """
    for piece in body:
        if isinstance(piece, Mark):
            raise Unreadable(f"{piece.token} inside of a tool call")
    return spell(body)


def read_object(text: str, what: str) -> dict[str, JsonValue]:
    """A JSON object, read strictly.

    Raises:
        Unreadable: it is none.
    """
    try:
        value = canonical.loads(text.strip(), what=what, allow_nul=True)
    except InvalidInput as error:
        raise Unreadable(error.problem.detail) from None
    if not isinstance(value, dict):
        raise Unreadable(f"the {what} is not an object")
    return value


def read_json_call(body: Body, tools: Mapping[str, Tool]) -> ReadCall:
    """A call `{"name": …, "arguments": {…}}`."""
    del tools
    value = read_object(text_of(body), "tool call")
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise Unreadable("the tool call has no name")
    if not isinstance(arguments, dict):
        raise Unreadable("the arguments of the tool call are not an object")
    return ReadCall(name, arguments)


def write_value(value: JsonValue) -> str:
    """An argument where the grammar has no types: a string is itself, all else is JSON."""
    return value if isinstance(value, str) else dumps(value)


def read_value(text: str, name: str, tool: Tool | None) -> JsonValue:
    """An argument where the grammar has no types: the tool's schema says what it is.

    What the schema does not declare, or what is not JSON, is a string: the harness then says
    what is wrong with it. Truth values and nothing may be in Python's words, as some templates
    write them.
    """
    kinds = _kinds(name, tool)
    if not kinds or "string" in kinds:
        return text
    spelled = text.strip()
    try:
        return canonical.loads(_JSON.get(spelled, spelled), what="argument", allow_nul=True)
    except InvalidInput:
        return text


def _kinds(name: str, tool: Tool | None) -> frozenset[str]:
    """The JSON types that a schema allows for a property; none where it does not say."""
    properties = tool.schema.get("properties") if tool is not None else None
    declared = properties.get(name) if isinstance(properties, dict) else None
    return frozenset(_types(declared))


def _types(schema: JsonValue) -> Sequence[str]:
    if not isinstance(schema, dict):
        return ()
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return [one for one in kind if isinstance(one, str)]
    for key in ("enum", "const"):
        if key in schema:
            values = schema[key]
            listed = cast(list[JsonValue], values) if isinstance(values, list) else [values]
            return ["string" if isinstance(one, str) else "other" for one in listed]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            return [one for option in options for one in _types(option)]
    return ()
