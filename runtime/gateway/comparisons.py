"""Recorded comparisons: every look at a dataset, and how many there were before."""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, paging
from runtime.gateway.refusals import conflict
from runtime.storage.clock import timestamp
from runtime.storage.tables import comparisons, runs
from specs import canonical
from specs.comparison import Comparison, ComparisonPage, ComparisonRecord, ComparisonSubmission
from specs.ids import Prefix


def record(
    connection: Connection, org: str, submission: ComparisonSubmission
) -> tuple[ComparisonRecord, bool]:
    """Store a comparison; whether it is new. The same content again is the record there is.

    Raises:
        NotFound: a side is no run of the org.
        Conflict: a side is no evaluation, or the id names another comparison.
    """
    found = submission.comparison
    for side in (found.baseline, found.candidate):
        run = lookup.by_id(connection, runs, org, side.run, Prefix.RUN)
        if run.kind != "evaluation":
            raise conflict(
                f"It is a {run.kind} run; only evaluations can be compared.",
                "run",
                run.id,
                next="Evaluate its checkpoint on held-out tasks: practicum run start",
            )
    content = canonical.canonical_bytes(found)
    digest = canonical.digest_bytes(content)
    known = connection.execute(
        sa.select(comparisons).where(comparisons.c.org_id == org, comparisons.c.digest == digest)
    ).one_or_none()
    if known is not None:
        return _view(known), False
    values = {
        "id": submission.id,
        "org_id": org,
        "baseline_run": found.baseline.run,
        "candidate_run": found.candidate.run,
        "dataset_digest": found.dataset_digest,
        "digest": digest,
        "earlier": _earlier(connection, org, found),
        "document": content.decode(),
        "created_at": timestamp(),
    }
    connection.execute(sa.insert(comparisons).values(values))
    return _view(lookup.by_id(connection, comparisons, org, submission.id, Prefix.COMPARISON)), True


def listed(
    connection: Connection, org: str, dataset: str | None, cursor: str | None, limit: int
) -> ComparisonPage:
    """Recorded comparisons, newest first."""
    query = sa.select(comparisons).where(comparisons.c.org_id == org)
    if dataset is not None:
        query = query.where(comparisons.c.dataset_digest == dataset)
    key = (comparisons.c.id,)
    items, following = paging.page(connection, query, key, cursor, limit, _view, newest_first=True)
    return ComparisonPage(items=items, next=following)


def _earlier(connection: Connection, org: str, found: Comparison) -> int:
    """Other pairs of runs that the dataset has served."""
    if found.dataset_digest is None:
        return 0
    pair = (comparisons.c.baseline_run, comparisons.c.candidate_run)
    others = (
        sa.select(*pair)
        .where(
            comparisons.c.org_id == org,
            comparisons.c.dataset_digest == found.dataset_digest,
            sa.or_(pair[0] != found.baseline.run, pair[1] != found.candidate.run),
        )
        .distinct()
        .subquery()
    )
    return connection.execute(sa.select(sa.func.count()).select_from(others)).scalar_one()


def _view(row: lookup.AnyRow) -> ComparisonRecord:
    return ComparisonRecord(
        id=row.id,
        created_at=row.created_at,
        earlier=row.earlier,
        comparison=Comparison.model_validate_json(row.document),
    )
