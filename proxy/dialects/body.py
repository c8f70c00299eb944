"""The JSON body of a request, strict where laxness would be ambiguous and lenient elsewhere.

Duplicate keys, NaN and absurd depth are refused. A lone surrogate is not: a harness that cuts
a text between two halves of a character sends one, and must not die of it; it is replaced by
U+FFFD, which is said.
"""

import json
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel, JsonValue, ValidationError

from specs import repaired
from specs.canonical import MAX_DEPTH
from specs.errors import ErrorCode, ErrorObject, InvalidInput

SURROGATES = "replaced:lone_surrogates"


def read_object(data: bytes, notes: set[str]) -> dict[str, JsonValue]:
    """The object that `data` is; what was repaired is added to `notes`.

    Raises:
        InvalidInput: `invalid_json`, or `invalid_document` if it is no object.
    """
    try:
        value = read_value(data.decode(), notes)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"The request is not valid JSON: {error}",
            code=ErrorCode.INVALID_JSON,
            object=ErrorObject(type="request"),
            next="Send UTF-8 JSON without NaN and without duplicate keys.",
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput(
            "The request body must be a JSON object.",
            object=ErrorObject(type="request", pointer="/"),
        )
    return value


def read_value(text: str, notes: set[str]) -> JsonValue:
    """What `text` stands for, read as strictly as a body: also for JSON in a text of one.

    Raises:
        ValueError, RecursionError: it is no JSON, or is refused.
    """
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    return checked(value, notes)


def checked(value: Any, notes: set[str], depth: int = 0) -> JsonValue:
    """A value that `json` has read, repaired.

    Raises:
        ValueError: a number that is none, or absurd depth.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    match value:
        case str():
            return _text(value, notes)
        case float() if not isfinite(value):
            raise ValueError("a number is too large")
        case list():
            return [checked(item, notes, depth + 1) for item in cast(list[Any], value)]
        case dict():
            return {
                _text(key, notes): checked(item, notes, depth + 1)
                for key, item in cast(dict[str, Any], value).items()
            }
        case _:
            return cast(JsonValue, value)


def validated[M: BaseModel](model: type[M], value: dict[str, JsonValue], tags: frozenset[str]) -> M:
    """`value` as `model`; the error names the deepest bad field, in the harness's words.

    `tags` are the branches of discriminated unions, which are no part of a field's name.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        found = [(_field(problem["loc"], tags), problem["msg"]) for problem in problems]
        within = [one for one in found if one[0].startswith(found[0][0])]
        raise refuse(*max(within, key=lambda one: one[0].count("."))) from None


def refuse(field: str, cause: str, code: ErrorCode = ErrorCode.INVALID_DOCUMENT) -> InvalidInput:
    """A refusal that names its field."""
    pointer = "/" + field.replace(".", "/")
    return InvalidInput(
        f"{field}: {cause}",
        code=code,
        object=ErrorObject(type="request", pointer=pointer),
        next=f"Correct {field} and send the request again.",
    )


def _field(location: tuple[str | int, ...], tags: frozenset[str]) -> str:
    """Pydantic's location without the branches of its unions."""
    parts: list[str] = []
    for index, part in enumerate(location):
        branch = isinstance(part, str) and (part == "str" or part.startswith("list["))
        tag = part in tags and index > 0 and isinstance(location[index - 1], int)
        if not branch and not tag:
            parts.append(str(part))
    return ".".join(parts) or "body"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has a key twice")
    return result


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _text(text: str, notes: set[str]) -> str:
    whole = repaired.whole(text)
    if whole is not text:
        notes.add(SURROGATES)
    return whole
