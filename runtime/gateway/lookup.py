"""Rows by id. Reading accepts an unambiguous short form; writing wants the whole id."""

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from runtime.gateway.refusals import invalid, not_found
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.ids import Prefix, is_id

_SHORT = re.compile(r"^[a-z]{3}_[0-9a-f]{8,32}$")

_KINDS = {
    Prefix.RUN: "run",
    Prefix.TRIAL: "trial",
    Prefix.CHECKPOINT: "checkpoint",
    Prefix.SAMPLER: "sampler",
    Prefix.UPDATE: "update",
    Prefix.GROUP: "group",
    Prefix.SESSION: "session",
    Prefix.COMPARISON: "comparison",
    Prefix.CONSTRUCTION: "construction",
}

type AnyRow = Row[*tuple[Any, ...]]


def by_id(connection: Connection, table: sa.Table, org: str, text: str, prefix: Prefix) -> AnyRow:
    """The row of a whole id.

    Raises:
        NotFound: there is none in this org, or it is not a whole id.
    """
    if not is_id(text, prefix):
        step = f"Give the whole id, {prefix}_ and 32 hex digits; short forms are for reading."
        raise not_found(_KINDS[prefix], text, next=step)
    query = sa.select(table).where(table.c.id == text, table.c.org_id == org)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise not_found(_KINDS[prefix], text)
    return row


def by_short_id(
    connection: Connection, table: sa.Table, org: str, text: str, prefix: Prefix
) -> AnyRow:
    """The row of an id, or of the beginning of exactly one.

    Raises:
        InvalidInput: `invalid_reference`: it is no id and no beginning of one.
        NotFound: none in this org begins so.
        Conflict: `ambiguous_id`: several do.
    """
    kind = _KINDS[prefix]
    if not _SHORT.match(text) or not text.startswith(f"{prefix}_"):
        raise invalid(
            f"{text!r} is not the id of a {kind}.",
            kind,
            name=text,
            code=ErrorCode.INVALID_REFERENCE,
            next=f"Give {prefix}_ and at least 8 of its hex digits.",
        )
    query = (
        sa.select(table)
        .where(table.c.org_id == org, table.c.id >= text, table.c.id <= text + "g")
        .limit(2)
    )
    rows = connection.execute(query).all()
    if not rows:
        raise not_found(kind, text)
    if len(rows) > 1:
        raise Conflict(
            f"Several {kind}s begin with {text}.",
            code=ErrorCode.AMBIGUOUS_ID,
            object=ErrorObject(type=kind, id=text),
            next="Give more of the id.",
        )
    return rows[0]
