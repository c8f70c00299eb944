"""The JSON body of a request, strict where laxness would be ambiguous and lenient elsewhere.

Duplicate keys, NaN and absurd depth are refused. A lone surrogate is not: a harness that cuts
a text between two halves of a character sends one, and must not die of it; it is replaced by
U+FFFD, which is said.
"""

import json
from typing import Any, cast

from pydantic import BaseModel, JsonValue, ValidationError

from specs.canonical import MAX_DEPTH
from specs.errors import ErrorCode, ErrorObject, InvalidInput

SURROGATES = "replaced:lone_surrogates"


def read_object(data: bytes, notes: set[str]) -> dict[str, JsonValue]:
    """The object that `data` is; what was repaired is added to `notes`.

    Raises:
        InvalidInput: `invalid_json`, or `invalid_document` if it is no object.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        value = _checked(value, 0, notes)
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
    return cast(dict[str, JsonValue], value)


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


def _checked(value: Any, depth: int, notes: set[str]) -> JsonValue:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    match value:
        case str():
            return _text(value, notes)
        case float() if value in (float("inf"), float("-inf")):
            raise ValueError("a number is too large")
        case list():
            return [_checked(item, depth + 1, notes) for item in cast(list[Any], value)]
        case dict():
            return {
                _text(key, notes): _checked(item, depth + 1, notes)
                for key, item in cast(dict[str, Any], value).items()
            }
        case _:
            return cast(JsonValue, value)


def _text(text: str, notes: set[str]) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        notes.add(SURROGATES)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
