"""Canonical bytes (RFC 8785) and digests, and the one strict reader of JSON.

The service returns canonical bytes with their digest; a client hashes the bytes it received
and never re-serialises. `loads` refuses what common parsers let pass: NaN and infinities,
lone surrogates, NUL, duplicate keys, a byte order mark, numbers beyond 2^53 (an integer there
has no exact canonical form) and nesting beyond `MAX_DEPTH`.
"""

import hashlib
import json
from typing import Any, NamedTuple, cast

import rfc8785
from pydantic import BaseModel, JsonValue, ValidationError

from specs.errors import ErrorCode, ErrorObject, InvalidInput

MAX_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1


def digest_bytes(data: bytes | bytearray | memoryview) -> str:
    """`sha256:<hex>` of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def canonical_bytes(value: BaseModel | JsonValue) -> bytes:
    """RFC 8785 bytes of a JSON value, or of a document (see `document`)."""
    if isinstance(value, BaseModel):
        value = document(value)
    return rfc8785.dumps(cast(Any, value))


def document(value: BaseModel) -> dict[str, JsonValue]:
    """The JSON object of a model: unset fields left out, `schema` and `kind` always in."""
    content = cast(dict[str, JsonValue], value.model_dump(mode="json", exclude_unset=True))
    for field, name in (("schema_", "schema"), ("kind", "kind")):
        if field in type(value).model_fields:
            content[name] = getattr(value, field)
    return content


def digest(value: BaseModel | JsonValue) -> str:
    """Digest of the canonical bytes of `value`."""
    return digest_bytes(canonical_bytes(value))


def loads(
    data: bytes | str,
    *,
    what: str = "document",
    allow_nul: bool = False,
    big_integers: bool = False,
) -> JsonValue:
    """Parse JSON strictly; `allow_nul` lets NUL characters pass, for texts of a terminal, and
    `big_integers` integers of any size, for values that are kept and never written canonically.

    Raises:
        InvalidInput: `invalid_json`, naming `what` and the offending place.
    """
    try:
        text = data.decode("utf-8", errors="strict") if isinstance(data, bytes) else data
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        _check(value, "", 0, _Lenience(allow_nul, big_integers))
    except (ValueError, RecursionError) as error:
        raise _not_json(error, what) from None
    return cast(JsonValue, value)


def holds(number: float) -> bool:
    """Whether canonical JSON has the number: finite, and exact for every reader."""
    return abs(number) <= MAX_SAFE_INTEGER


def check(value: object, *, what: str) -> None:
    """Refuse in a value that another parser read, or a command line gave, what `loads` refuses.

    Raises:
        InvalidInput: `invalid_json`, naming `what` and the offending place.
    """
    try:
        _check(value, "", 0, _Lenience(nul=False, big_integers=False))
    except ValueError as error:
        raise _not_json(error, what) from None


def read[M: BaseModel](model: type[M], data: bytes | str, *, what: str) -> M:
    """Parse strictly and validate as `model`.

    Raises:
        InvalidInput: `invalid_json` or `invalid_document` with a JSON pointer to the field.
    """
    return validate(model, loads(data, what=what), what=what)


def validate[M: BaseModel](model: type[M], value: JsonValue, *, what: str) -> M:
    """Validate an already parsed value as `model`; the error names the first bad field."""
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise invalid(error, what, value) from None


def invalid(error: ValidationError, what: str, value: object = None) -> InvalidInput:
    """One clear error from pydantic's report: the first problem, and how many more there are.

    :param value: what was validated, so that its own keys alone are named as the place.
    """
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    absent = first["type"] in ("missing", "extra_forbidden")
    places = first["loc"] if value is None else _keys(first["loc"], value, absent=absent)
    pointer = "".join(f"/{_escape(part)}" for part in places)
    if first["type"] == "extra_forbidden":
        cause = f"unknown key {str(first['loc'][-1])!r}"
        step = "Remove the key, or correct its spelling."
    else:
        cause = first["msg"]
        step = f"Correct {pointer or 'the document'} and send it again."
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(
        f"The {what} is invalid at {pointer or '/'}: {cause}{more}.",
        object=ErrorObject(type=what, pointer=pointer or "/"),
        next=step,
    )


def _keys(places: tuple[int | str, ...], value: object, *, absent: bool) -> list[int | str]:
    """The keys and positions among pydantic's places, which also tell what a union tried."""
    found: list[int | str] = []
    for index, part in enumerate(places, 1):
        if isinstance(value, dict) and part in cast(dict[int | str, object], value):
            value = cast(dict[int | str, object], value)[part]
        elif isinstance(value, list | tuple) and part in range(len(cast(list[object], value))):
            value = cast(list[object], value)[int(part)]
        elif not (absent and index == len(places)):
            continue
        found.append(part)
    return found


def _escape(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _not_json(error: Exception, what: str) -> InvalidInput:
    return InvalidInput(
        f"The {what} is not valid JSON: {error}",
        code=ErrorCode.INVALID_JSON,
        object=ErrorObject(type=what),
        next="Send UTF-8 JSON without NaN, NUL, lone surrogates or duplicate keys.",
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {key!r}")
        result[key] = value
    return result


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


class _Lenience(NamedTuple):
    nul: bool
    big_integers: bool


def _check(value: Any, where: str, depth: int, lenience: _Lenience) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} at {where}")
    match value:
        case str():
            _check_text(value, where, lenience.nul)
        case bool() | None:
            pass
        case int() if lenience.big_integers:
            pass
        case int() | float() if not holds(value):
            raise ValueError(f"number beyond 2^53 at {where or '/'}")
        case list():
            for index, item in enumerate(cast(list[Any], value)):
                _check(item, f"{where}/{index}", depth + 1, lenience)
        case dict():
            for key, item in cast(dict[str, Any], value).items():
                _check_text(key, where, lenience.nul)
                _check(item, f"{where}/{_escape(key)}", depth + 1, lenience)
        case _:
            pass


def _check_text(text: str, where: str, allow_nul: bool) -> None:
    if "\x00" in text and not allow_nul:
        raise ValueError(f"NUL character at {where or '/'}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"lone surrogate at {where or '/'}") from None
