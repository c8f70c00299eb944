"""References: (org, digest, holder) grants read authority and keeps an object alive.

Upload, publication of a reference and reading are three operations (invariant 11): a
reference is only ever added for an object that the store has verified.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from runtime.gateway.refusals import invalid
from runtime.storage.tables import object_references, objects
from specs.errors import ErrorCode

_CHUNK = 400


def sizes(connection: Connection, org: str, digests: Collection[str]) -> dict[str, int]:
    """Lengths of those objects that the org has."""
    found: dict[str, int] = {}
    wanted = sorted(set(digests))
    for start in range(0, len(wanted), _CHUNK):
        query = sa.select(objects.c.digest, objects.c.size).where(
            objects.c.org_id == org, objects.c.digest.in_(wanted[start : start + _CHUNK])
        )
        found.update((row.digest, row.size) for row in connection.execute(query))
    return found


def hold(
    connection: Connection, org: str, holder: str, digests: Iterable[str], *, what: str
) -> None:
    """Let `holder` refer to objects.

    Raises:
        InvalidInput: `invalid_reference`: one of them has not been uploaded.
    """
    wanted = set(digests)
    if not wanted:
        return
    present = sizes(connection, org, wanted)
    missing = sorted(wanted - present.keys())
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise invalid(
            f"The {what} refers to {missing[0]}{more}, which has not been uploaded.",
            "object",
            name=missing[0],
            code=ErrorCode.INVALID_REFERENCE,
            next="Upload the object (POST /v1/uploads), then repeat the request.",
        )
    _insert(connection, org, holder, wanted)


def hold_present(connection: Connection, org: str, holder: str, digests: Iterable[str]) -> None:
    """Let `holder` refer to those of the objects that are there."""
    _insert(connection, org, holder, sizes(connection, org, set(digests)))


def release(connection: Connection, org: str, holders: Collection[str], digest: str) -> None:
    """Let holders no longer refer to an object; other holders keep it."""
    connection.execute(
        sa.delete(object_references).where(
            object_references.c.org_id == org,
            object_references.c.digest == digest,
            object_references.c.holder.in_(holders),
        )
    )


def readable(connection: Connection, org: str, digest: str) -> int | None:
    """Length of an object to which the org holds a reference; None otherwise."""
    query = (
        sa.select(objects.c.size)
        .join_from(objects, object_references)
        .where(objects.c.org_id == org, objects.c.digest == digest)
        .limit(1)
    )
    return connection.execute(query).scalar()


def record(connection: Connection, org: str, digest: str, size: int, stored_at: float) -> None:
    """Note that the store has verified an object; harmless when it is known."""
    row = {"org_id": org, "digest": digest, "size": size, "stored_at": stored_at}
    _insert_new(connection, objects, [row])


def _insert(connection: Connection, org: str, holder: str, digests: Iterable[str]) -> None:
    rows = [{"org_id": org, "digest": digest, "holder": holder} for digest in digests]
    if rows:
        _insert_new(connection, object_references, rows)


def _insert_new(
    connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]
) -> None:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), list(rows))
