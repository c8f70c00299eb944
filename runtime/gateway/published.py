"""Published documents: immutable versions of datasets and profiles, kept as canonical bytes."""

from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from runtime.gateway import paging, references, views
from runtime.gateway.refusals import invalid
from runtime.storage.clock import timestamp
from runtime.storage.tables import documents
from specs import canonical
from specs.dataset import Dataset
from specs.errors import Conflict, ErrorCode, ErrorObject, NotFound
from specs.operator_api import Published, PublishedPage
from specs.profile import Profile

type Kind = Literal["dataset", "profile"]

_COLUMNS = (
    documents.c.name,
    documents.c.version,
    documents.c.digest,
    sa.func.length(documents.c.content).label("size"),
    documents.c.created_at,
)


def publish(
    connection: Connection, org: str, kind: Kind, name: str, version: str, content: bytes
) -> tuple[Published, bool]:
    """Publish canonical bytes; whether they are new. The same content again is harmless.

    Raises:
        Conflict: `version_exists`: that version has other content.
    """
    digest = canonical.digest_bytes(content)
    existing = _find(connection, org, kind, name, version)
    if existing is None:
        connection.execute(
            sa.insert(documents).values(
                org_id=org,
                kind=kind,
                name=name,
                version=version,
                digest=digest,
                content=content,
                created_at=timestamp(),
            )
        )
        return _published(connection, org, kind, name, version), True
    if existing.digest != digest:
        raise Conflict(
            f"{name}@{version} is published with other content.",
            code=ErrorCode.VERSION_EXISTS,
            object=ErrorObject(type=kind, id=f"{name}@{version}"),
            next="Published versions never change: publish a new version.",
        )
    return _published(connection, org, kind, name, version), False


def publish_dataset(connection: Connection, org: str, dataset: Dataset) -> tuple[Published, bool]:
    """Publish a dataset; every task package must be an uploaded object of the stated size."""
    wanted = {task.digest: task for task in dataset.tasks}
    present = references.sizes(connection, org, wanted)
    for index, task in enumerate(dataset.tasks):
        if present.get(task.digest) != task.size:
            cause = "has not been uploaded"
            if task.digest in present:
                cause = f"has {present[task.digest]} bytes, not {task.size}"
            raise invalid(
                f"The package of task {task.name} ({task.digest}) {cause}.",
                "dataset",
                f"/tasks/{index}",
                name=f"{dataset.name}@{dataset.version}",
                code=ErrorCode.INVALID_REFERENCE,
                next="Upload the package, and state its size.",
            )
    content = canonical.canonical_bytes(dataset)
    result = publish(connection, org, "dataset", dataset.name, dataset.version, content)
    holder = f"dataset:{result[0].reference}"
    references.hold(connection, org, holder, wanted, what="dataset")
    return result


def publish_profile(
    connection: Connection, org: str, version: str, profile: Profile
) -> tuple[Published, bool]:
    """Publish a profile that stands alone."""
    content = canonical.canonical_bytes(profile)
    return publish(connection, org, "profile", profile.name, version, content)


def require_embedded(profile: Profile) -> None:
    """Refuse a profile that still points at files of its author's machine."""
    for index, file in enumerate(profile.agent.files):
        if file.source is not None:
            raise invalid(
                f"The file {file.path} has a source path instead of its content.",
                "profile",
                f"/agent/files/{index}/source",
                name=profile.name,
                next="Embed the content; `practicum profile publish` does it.",
            )
    for index, plugin in enumerate(profile.agent.plugins):
        if plugin.source is not None:
            raise invalid(
                f"The plugin {plugin.name} has a source folder instead of its files.",
                "profile",
                f"/agent/plugins/{index}/source",
                name=profile.name,
                next="Embed the files; `practicum profile publish` does it.",
            )


def read(
    connection: Connection, org: str, kind: Kind, name: str, version: str
) -> tuple[bytes, str]:
    """Canonical bytes and digest.

    Raises:
        NotFound: there is no such version.
    """
    row = _find(connection, org, kind, name, version)
    if row is None:
        raise NotFound(
            f"There is no {kind} {name}@{version}.",
            object=ErrorObject(type=kind, id=f"{name}@{version}"),
            next=f"practicum {kind} list",
        )
    return row.content, row.digest


def listed(
    connection: Connection, org: str, kind: Kind, cursor: str | None, limit: int
) -> PublishedPage:
    """A page, newest first."""
    query = sa.select(*_COLUMNS).where(documents.c.org_id == org, documents.c.kind == kind)
    key = (documents.c.created_at, documents.c.name, documents.c.version)
    items, following = paging.page(
        connection, query, key, cursor, limit, views.published, newest_first=True
    )
    return PublishedPage(items=items, next=following)


def _where(org: str, kind: Kind, name: str, version: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        documents.c.org_id == org,
        documents.c.kind == kind,
        documents.c.name == name,
        documents.c.version == version,
    )


def _find(
    connection: Connection, org: str, kind: Kind, name: str, version: str
) -> Row[*tuple[Any, ...]] | None:
    query = sa.select(documents).where(*_where(org, kind, name, version))
    return connection.execute(query).one_or_none()


def _published(connection: Connection, org: str, kind: Kind, name: str, version: str) -> Published:
    query = sa.select(*_COLUMNS).where(*_where(org, kind, name, version))
    return views.published(connection.execute(query).one())
