"""Ids as parts of a route: what is no id never reaches one, so that it cannot name another."""

import re
from typing import Final

from specs.errors import ErrorCode, ErrorObject, InvalidInput

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:-]{0,199}")
_SHOWN: Final = 200


def segment(value: str) -> str:
    """An id, a short form of one or a digest, as it stands in a path.

    Raises:
        InvalidInput: `invalid_reference`; no id looks like that.
    """
    if _ID.fullmatch(value):
        return value
    raise InvalidInput(
        f"{value[:_SHOWN]!r} is not an id.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="id", id=value[:_SHOWN]),
        next="Give an id as lists show it: its kind, `_`, and hex digits.",
    )
