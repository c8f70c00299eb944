"""Pins: what a run was admitted with must be what it is resumed with (invariant 14).

The actor is an object and is verified by whoever reads it; plan and dataset are checked here,
each time a worker is given the run.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.storage.tables import documents
from specs import canonical
from specs.errors import Conflict, ErrorCode, ErrorObject, Problem
from specs.run import RunSpec


def broken(connection: Connection, org: str, spec: RunSpec) -> Problem | None:
    """Why the run must not go on; None when every digest is the pinned one."""
    if canonical.digest(spec.plan) != spec.plan_digest:
        return _problem(spec, "plan", spec.plan_digest)
    if spec.dataset is not None and _dataset_digest(connection, org, spec) != spec.dataset_digest:
        return _problem(spec, "dataset", spec.dataset_digest or "none")
    return None


def _dataset_digest(connection: Connection, org: str, spec: RunSpec) -> str | None:
    name, _, version = (spec.dataset or "").partition("@")
    content = connection.execute(
        sa.select(documents.c.content).where(
            documents.c.org_id == org,
            documents.c.kind == "dataset",
            documents.c.name == name,
            documents.c.version == version,
        )
    ).scalar()
    return None if content is None else canonical.digest_bytes(content)


def _problem(spec: RunSpec, what: str, pinned: str) -> Problem:
    return Conflict(
        f"The {what} of the run is no longer the one that was pinned ({pinned}).",
        code=ErrorCode.DIGEST_MISMATCH,
        object=ErrorObject(type="run", id=spec.id, pointer=f"/{what}_digest"),
        next="Restore the stored bytes, or start a new run.",
    ).problem
