"""The transactions: create, revise, record, approve. Each locks, checks the state, checks the
record, and adds one step.

A request that repeats the last step finds it done, so that a lost answer can be asked for again.
"""

import json

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway.constructions import approval, checks
from runtime.gateway.constructions.checks import Case, Found
from runtime.gateway.constructions.history import History, author, locked
from runtime.gateway.constructions.reading import construction_of
from runtime.gateway.constructions.wording import next_step
from runtime.gateway.context import Caller
from runtime.gateway.refusals import conflict, invalid
from runtime.storage.clock import timestamp
from runtime.storage.tables import construction_steps, constructions
from specs import canonical
from specs.base import Contract
from specs.construction import TRANSITIONS, ConstructionPlan, ConstructionState, content
from specs.construction_records import (
    Approval,
    ApprovalRules,
    Construction,
    ConstructionRevision,
    ConstructionSubmission,
    Record,
)
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.ids import Prefix, is_id


def create(
    connection: Connection, caller: Caller, submission: ConstructionSubmission
) -> tuple[Construction, bool]:
    """Keep a draft; whether it is new. The same again is the construction there is.

    Raises:
        Conflict: there is another construction of that id.
    """
    if not is_id(submission.id, Prefix.CONSTRUCTION):
        raise invalid(
            f"{submission.id!r} is not the id of a construction.",
            "construction",
            "/id",
            name=submission.id,
            next=f"Mint one that begins with {Prefix.CONSTRUCTION}_.",
        )
    query = sa.select(constructions).where(constructions.c.id == submission.id)
    row = connection.execute(query).one_or_none()
    if row is not None:
        found = locked(connection, caller, submission.id)
        if found.steps[0].digest != canonical.digest_bytes(content(submission.plan)):
            raise conflict("There is another construction of that id.", "construction", row.id)
        return construction_of(connection, found), False
    now = timestamp()
    connection.execute(
        sa.insert(constructions).values(
            id=submission.id,
            org_id=caller.org,
            created_at=now,
            state=ConstructionState.DRAFT,
            **_version(submission.plan, 1, now),
        )
    )
    history = locked(connection, caller, submission.id)
    _add(connection, caller, history, ("create", ConstructionState.DRAFT), submission.plan, {})
    return _read(connection, caller, submission.id), True


def revise(
    connection: Connection, caller: Caller, construction: str, revision: ConstructionRevision
) -> Construction:
    """The next version, in `draft`: what was approved before does not count for it.

    Raises:
        Conflict: it is finished, another version is the present one, or nothing differs.
    """
    history = locked(connection, caller, construction)
    digest = canonical.digest_bytes(content(revision.plan))
    present = history.row.version
    if history.row.plan_digest == digest and present == revision.replaces + 1:
        return construction_of(connection, history)
    _require_state(history, "revise")
    if present != revision.replaces or history.row.plan_digest == digest:
        cause = (
            "The plan is the same as before."
            if present == revision.replaces
            else f"Version {present} is the present one, not {revision.replaces}."
        )
        raise conflict(
            cause, "construction", history.id, next=f"practicum construction show {history.id}"
        )
    connection.execute(
        sa.update(constructions)
        .where(constructions.c.id == history.id)
        .values(_version(revision.plan, present + 1, timestamp()))
    )
    history = locked(connection, caller, construction)
    change = ("revise", ConstructionState.DRAFT)
    _add(connection, caller, history, change, revision.plan, {"note": revision.note})
    return _read(connection, caller, construction)


def record(
    connection: Connection,
    caller: Caller,
    construction: str,
    given: Record,
    rules: ApprovalRules,
) -> Construction:
    """Take one step.

    Raises:
        Conflict: the state excludes it, or what it names; `construction_over_budget`.
        InvalidInput: the record does not fit the plan.
    """
    history = locked(connection, caller, construction)
    if _repeats(history, given.kind, given):
        return construction_of(connection, history)
    _require_state(history, given.kind)
    found = checks.check(Case(connection, caller.org, history, rules), given)
    _add(connection, caller, history, (given.kind, TRANSITIONS[given.kind][1]), given, found)
    return _read(connection, caller, construction)


def approve(
    connection: Connection,
    caller: Caller,
    construction: str,
    given: Approval,
    rules: ApprovalRules,
) -> Construction:
    """Approve the plan, its probes and their review, by digest.

    Raises:
        Forbidden: `approval_refused`.
        Conflict: it is not reviewed, approved already, or another thing is approved.
    """
    history = locked(connection, caller, construction)
    if _repeats(history, "approve", given):
        return construction_of(connection, history)
    _require_state(history, "approve")
    found = approval.approve(Case(connection, caller.org, history, rules), caller, given)
    _add(connection, caller, history, ("approve", TRANSITIONS["approve"][1]), given, found)
    return _read(connection, caller, construction)


def _repeats(history: History, kind: str, given: Contract) -> bool:
    """Whether the last step is the same one."""
    last = history.steps[-1]
    return last.kind == kind and last.digest == canonical.digest_bytes(content(given))


def _require_state(history: History, kind: str) -> None:
    allowed, _ = TRANSITIONS[kind]
    if history.state in allowed:
        return
    code = ErrorCode.STATE_CONFLICT
    approved = history.approval is not None
    if kind in ("bulk", "training", "outcome") and not approved:
        code = ErrorCode.CONSTRUCTION_NOT_APPROVED
    states = " or ".join(state for state in ConstructionState if state in allowed)
    raise Conflict(
        f"The construction is {history.state}; {kind} needs it to be {states}.",
        code=code,
        object=ErrorObject(type="construction", id=history.id),
        next=next_step(history.id, history.state),
    )


def _version(plan: ConstructionPlan, version: int, now: str) -> dict[str, object]:
    document = content(plan)
    return {
        "name": plan.name,
        "version": version,
        "plan": document.decode(),
        "plan_digest": canonical.digest_bytes(document),
        "updated_at": now,
    }


def _add(
    connection: Connection,
    caller: Caller,
    history: History,
    change: tuple[str, ConstructionState],
    given: Contract,
    found: Found,
) -> None:
    """Append a step and enter its state."""
    kind, state = change
    now, document = timestamp(), content(given)
    connection.execute(
        sa.insert(construction_steps).values(
            org_id=caller.org,
            construction_id=history.id,
            seq=len(history.steps) + 1,
            version=history.row.version,
            at=now,
            kind=kind,
            state=state,
            by=author(caller),
            digest=canonical.digest_bytes(document),
            document=document.decode(),
            found=json.dumps(found),
        )
    )
    connection.execute(
        sa.update(constructions)
        .where(constructions.c.id == history.id)
        .values(state=state, updated_at=now)
    )


def _read(connection: Connection, caller: Caller, construction: str) -> Construction:
    return construction_of(connection, locked(connection, caller, construction))
