"""Pages by keyset: an opaque cursor holds the sort key of the last item that was returned."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from specs.errors import ErrorCode, ErrorObject, InvalidInput

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

type Key = Sequence[sa.Column[Any]]


def page[T](
    connection: Connection,
    query: sa.Select[*tuple[Any, ...]],
    key: Key,
    cursor: str | None,
    limit: int,
    view: Callable[[Row[*tuple[Any, ...]]], T],
    *,
    newest_first: bool = False,
) -> tuple[list[T], str | None]:
    """One page of `query` in the order of `key` (columns that the query selects), and the
    cursor of the next page."""
    if cursor is not None:
        position = sa.tuple_(*(sa.literal(part) for part in _decode(cursor, len(key))))
        here = sa.tuple_(*key)
        query = query.where(here < position if newest_first else here > position)
    order = [column.desc() if newest_first else column for column in key]
    rows = connection.execute(query.order_by(*order).limit(limit + 1)).all()
    following = None
    if len(rows) > limit:
        rows = rows[:limit]
        following = _encode([getattr(rows[-1], column.key) for column in key])
    return [view(row) for row in rows], following


def _encode(position: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def _decode(cursor: str, length: int) -> list[str | int]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except ValueError:
        position = None
    if (
        isinstance(position, list)
        and len(cast(list[Any], position)) == length
        and all(isinstance(part, str | int) for part in cast(list[Any], position))
    ):
        return cast(list[str | int], position)
    raise InvalidInput(
        "The cursor is not one that this list has given.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="cursor"),
        next="Start without a cursor, and pass on `next` unchanged.",
    )
