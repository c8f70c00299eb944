"""Schemas as the list of tools carries them: short, because a model reads all of them at once.

Whatever an operation takes stands in its listed input schema, each field with type, choices and
a few words; bounds, patterns and the nested parts do not: the operation's own model refuses what
is wrong and names the field. Words that several tools would repeat stand in the server's
instructions. An output schema lists the fields that are always there. Both hold for
every value that the full schemas hold for, and those are resources: `practicum://schemas/{tool}`.
"""

import re
from functools import cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tools.fields import Cli

type Schema = dict[str, Any]

SAID_ONCE = {
    "run": "Run id; a unique short form will do",
    "trial": "Trial id; a unique short form will do",
    "update": "Update id; a unique short form will do",
    "checkpoint": "Checkpoint id; a unique short form will do",
    "dataset": "org/name@version",
    "plan": "The plan itself, or @file.json",
    "actor": "The document itself, @file.json, or org/name@version where published",
    "profile": "The profile itself, or a file (@file.json or its path)",
    "spec": "The specification, or its file",
    "episode": "The episode, or its file",
    "journal": "Journal name, or path of its folder",
    "dry_run": "Show what would be admitted; start nothing",
    "limit": "Records on one page",
    "cursor": "Where to go on: `next` of the page before",
}
"""Words that several fields have. The server's instructions say them once, so the list
leaves them out; a field of such a name that has other words keeps them."""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", " ".join(texts).lower()))


_SMALL = _words("a an and are by for from in is it its of on one or that the to what")
"""Words that say nothing by themselves."""


@cache
def listed_input(model: type[BaseModel]) -> Schema:
    """The input schema of a tool in the list."""
    full = model.model_json_schema()
    offered = {name: field for name, field in model.model_fields.items() if offers(field)}
    properties = {
        field.alias or name: _property(name, full["properties"][field.alias or name], full)
        for name, field in offered.items()
    }
    required = [name for name in full.get("required", ()) if name in properties]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


@cache
def listed_output(model: type[BaseModel]) -> Schema:
    """The output schema of a tool in the list: an object and the names of its fields.

    A result is written with all of them, also those that have a default.
    """
    names = list(model.model_json_schema(mode="serialization")["properties"])
    return {"type": "object", "required": names}


def listed_title(title: str, *said: str) -> str | None:
    """The title of a tool in the list, or None where it has no word that is not said anyway."""
    return title if _words(title) - _words(*said) - _SMALL else None


def full_schemas(taken: type[BaseModel], given: type[BaseModel]) -> Schema:
    """Input and output schema of a tool with everything in them."""
    full = taken.model_json_schema()
    for name, field in taken.model_fields.items():
        if not offers(field):
            del full["properties"][field.alias or name]
    return {"input": full, "output": given.model_json_schema(mode="serialization")}


def offers(field: FieldInfo) -> bool:
    """Whether a field makes sense away from a terminal."""
    return not any(isinstance(item, Cli) and not item.agent for item in field.metadata)


def _property(name: str, full: Schema, root: Schema) -> Schema:
    slim = _slim(full, root)
    words = full.get("description")
    if words and words != SAID_ONCE.get(name):
        slim["description"] = words
    if full.get("default") not in (None, False, "", [], {}):
        slim["default"] = full["default"]
    return slim


def _slim(full: Schema, root: Schema) -> Schema:
    """Type and choices of a schema, its alternatives merged, null left out."""
    if "$ref" in full:
        return _slim(root["$defs"][full["$ref"].removeprefix("#/$defs/")], root)
    if "const" in full:
        return {"type": full["type"], "enum": [full["const"]]}
    if "enum" in full:
        return {"type": full["type"], "enum": full["enum"]}
    if full.get("type") == "array" and "items" in full:
        return {"type": "array", "items": _slim(full["items"], root)}
    if "type" in full:
        return {"type": full["type"]}
    alternatives = [
        _slim(one, root)
        for one in cast(list[Schema], full.get("anyOf") or full.get("oneOf") or [])
        if one.get("type") != "null"
    ]
    if len(alternatives) == 1:
        return alternatives[0]
    types = list(dict.fromkeys(str(one["type"]) for one in alternatives if "type" in one))
    return {"type": types} if types and len(types) == len(alternatives) else {}
