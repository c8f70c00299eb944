"""JSON that others wrote and that is used though it is not what `canonical.loads` takes.

A program that cuts a text between the two halves of a character writes one half, as an escape.
No UTF-8 holds it, so it would break what is written next; it is replaced by U+FFFD.
"""

import json
from typing import cast

from pydantic import JsonValue


def whole(text: str) -> str:
    """`text` with each lone half of a character replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def loads(data: bytes | str) -> JsonValue:
    """The value that JSON stands for; bytes that are no UTF-8 are replaced likewise.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    text = data.decode(errors="replace") if isinstance(data, bytes) else data
    value = cast(JsonValue, json.loads(text))
    spelled = json.dumps(value, ensure_ascii=False)
    repaired = whole(spelled)
    return value if repaired is spelled else cast(JsonValue, json.loads(repaired))
