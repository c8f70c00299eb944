"""Uploads: the intent to create an object is recorded before its bytes arrive (invariant 12)."""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import checkpoints, references
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import invalid
from runtime.storage import clock
from runtime.storage.database import Database
from runtime.storage.objects import ObjectStore
from runtime.storage.tables import LOCAL_ORG, object_references, objects, uploads
from specs.errors import ErrorCode, ErrorObject, NotFound
from specs.ids import Prefix, new_id
from specs.worker_api import UploadGrant, UploadRequest

UNREFERENCED_SEC = 24 * 3600.0
"""How long an object may wait for its first reference."""


def grant(connection: Connection, org: str, request: UploadRequest) -> UploadGrant:
    """Permission to create one object; `present` when it is there already.

    Raises:
        InvalidInput: `digest_mismatch`: the object is there and has another length.
    """
    size = references.sizes(connection, org, [request.digest]).get(request.digest)
    if size is not None and size != request.size:
        raise invalid(
            f"The object {request.digest} has {size} bytes, not {request.size}.",
            "object",
            name=request.digest,
            code=ErrorCode.DIGEST_MISMATCH,
            next="State the length of the bytes that the digest names.",
        )
    now = clock.now(connection)
    if size is not None:
        # the wait for a reference begins anew
        connection.execute(
            sa.update(objects)
            .where(objects.c.org_id == org, objects.c.digest == request.digest)
            .values(stored_at=now)
        )
    identity = new_id(Prefix.UPLOAD)
    if size is None:
        connection.execute(
            sa.insert(uploads).values(
                id=identity,
                org_id=org,
                digest=request.digest,
                size=request.size,
                granted_at=now,
            )
        )
    return UploadGrant(present=size is not None, url=f"/v1/uploads/{identity}")


def granted(connection: Connection, org: str, upload: str) -> AnyRow:
    """The intent behind an upload.

    Raises:
        NotFound: it was never granted, or has been used up.
    """
    query = sa.select(uploads).where(uploads.c.id == upload, uploads.c.org_id == org)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(
            f"There is no open upload {upload!r}.",
            object=ErrorObject(type="upload", id=upload),
            next="Ask for a new grant: POST /v1/uploads.",
        )
    return row


def finish(connection: Connection, org: str, row: AnyRow) -> None:
    """The store has verified the object: it may be referred to from now on.

    The intent stays until it is old, so that a PUT whose reply was lost can be repeated, and so
    that two workers may bring the same bytes at the same time.
    """
    references.record(connection, org, row.digest, row.size, clock.now(connection))


async def sweep(database: Database, store: ObjectStore, org: str = LOCAL_ORG) -> int:
    """Remove what no record accounts for: half-written files, trainer states whose time has
    come, objects that waited in vain for a reference, files without a row. Only while the
    gateway serves nobody."""
    removed = await store.sweep()
    await database.write(lambda connection: checkpoints.forget_expired(connection, org))
    await database.write(lambda connection: _forget_unreferenced(connection, org))
    known = await database.read(lambda connection: _digests(connection, org))
    for digest in await store.stored(org):
        if digest not in known:
            await store.delete(org, digest)
            removed += 1
    return removed


def _forget_unreferenced(connection: Connection, org: str) -> None:
    before = clock.now(connection) - UNREFERENCED_SEC
    connection.execute(
        sa.delete(uploads).where(uploads.c.org_id == org, uploads.c.granted_at < before)
    )
    held = sa.select(object_references.c.digest).where(
        object_references.c.org_id == objects.c.org_id,
        object_references.c.digest == objects.c.digest,
    )
    connection.execute(
        sa.delete(objects).where(
            objects.c.org_id == org, objects.c.stored_at < before, ~held.exists()
        )
    )


def _digests(connection: Connection, org: str) -> set[str]:
    query = sa.select(objects.c.digest).where(objects.c.org_id == org)
    return set(connection.execute(query).scalars())
