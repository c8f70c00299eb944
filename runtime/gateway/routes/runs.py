"""Runs: start, dry run, list, read, result."""

from typing import Annotated

from fastapi import APIRouter, Header, Response
from sqlalchemy import Connection

from runtime.gateway import admission, lookup, records, results, views
from runtime.gateway.admission import Prepared
from runtime.gateway.auth import AnyRole, GatewayDep, Starter
from runtime.gateway.context import Caller, Gateway
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body
from runtime.storage.objects import whole
from runtime.storage.tables import runs
from specs import canonical
from specs.ids import Prefix
from specs.operator_api import Started
from specs.run import Submission

router = APIRouter()

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
Body = Annotated[Submission, body(Submission, "submission")]


@router.post("/v1/runs")
async def start(
    gateway: GatewayDep, caller: Starter, submission: Body, idempotency_key: Key = None
) -> Response:
    """Admit a run: 201, or 200 when the key has started it before."""
    started = await _start(gateway, caller, submission, idempotency_key)
    return answer(started, 201 if started.created else 200)


async def _start(
    gateway: Gateway, caller: Caller, submission: Submission, key: str | None
) -> Started:
    org = caller.org
    digest = canonical.digest(submission)

    def look(connection: Connection) -> Started | Prepared:
        known = None if key is None else admission.earlier(connection, org, key, digest)
        return known or admission.prepare(connection, org, submission)

    found = await gateway.database.read(look)
    if isinstance(found, Started):
        return found
    actor = found.actor
    # the profile is in the store before a row can refer to it
    await gateway.objects.put(org, actor.digest, len(actor.content), whole(actor.content))
    return await gateway.database.write(
        lambda connection: admission.admit(connection, org, found, key, digest, caller.grant)
    )


@router.post("/v1/runs/dry-run")
async def dry_run(gateway: GatewayDep, caller: Starter, submission: Body) -> Response:
    """What the run would be admitted with; nothing is stored."""
    return answer(
        await gateway.database.read(
            lambda c: admission.dry_run(c, caller.org, submission, caller.grant)
        )
    )


@router.get("/v1/runs")
async def listed(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Runs, newest first."""
    return answer(
        await gateway.database.read(lambda c: records.run_page(c, caller.org, cursor, limit))
    )


@router.get("/v1/runs/{run}")
async def show(gateway: GatewayDep, caller: AnyRole, run: str) -> Response:
    """One run."""
    return answer(
        await gateway.database.read(
            lambda c: views.run(lookup.by_short_id(c, runs, caller.org, run, Prefix.RUN))
        )
    )


@router.get("/v1/runs/{run}/result")
async def result(gateway: GatewayDep, caller: AnyRole, run: str) -> Response:
    """Counts and scores."""
    return answer(await gateway.database.read(lambda c: results.result(c, caller.org, run)))
