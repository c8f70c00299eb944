"""Construction plans: how a better model or profile is to be made, and the steps of making it.

Each step is a record that the gateway checks; `show` tells what comes next. Files of rows are
read here, and their digests are recorded.
"""

from typing import Annotated, Any, Literal, cast

import anyio.to_thread
from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.construction import ConstructionPlan, content
from specs.construction_records import (
    RECORDS,
    Approval,
    ConstructionPage,
    ConstructionRevision,
    ConstructionSubmission,
)
from specs.errors import ErrorObject, InvalidInput
from specs.ids import Prefix, new_id
from tools.construction_view import ConstructionView, brief_text, page_text, view_text
from tools.context import Context
from tools.documents import Read, read_document
from tools.fields import Cli, Cursor, Input, Limit
from tools.registry import READ, READ_LOCAL, Traits, operation
from tools.tables import pairs
from tools.training_files import read_rows

PlanDocument = Annotated[
    dict[str, JsonValue] | str,
    Field(description="The plan itself, or @file.json"),
    Cli(positional=True, metavar="@FILE"),
]
Whole = Annotated[str, Field(description="Whole construction id"), Cli(positional=True)]
Note = Annotated[str, Field(description="Why, in words")]


class OnePlan(Input):
    plan: PlanDocument


class Revise(Input):
    construction: Whole
    plan: PlanDocument
    replaces: Annotated[int, Field(ge=1, description="The version that it replaces")]
    note: Note = ""


class RecordStep(Input):
    construction: Whole
    kind: Annotated[
        Literal["propose", "probe", "review", "bulk", "training", "outcome"],
        Field(description="Which step was taken"),
        Cli(positional=True),
    ]
    runs: Annotated[tuple[str, ...], Field(description="Whole run ids: probe, bulk, training")] = ()
    files: Annotated[tuple[str, ...], Field(description="Files of rows: probe, bulk")] = ()
    datasets: Annotated[tuple[str, ...], Field(description="org/name@version: bulk")] = ()
    tokens: Annotated[int | None, Field(ge=0, description="Spent elsewhere: probe, bulk")] = None
    seconds: Annotated[float | None, Field(ge=0, description="Spent elsewhere: probe, bulk")] = None
    subject: Annotated[str | None, Field(description="review_subject that was looked at")] = None
    reviewer: Annotated[str | None, Field(description="Who reviewed, such as an agent's name")] = (
        None
    )
    relevant: Annotated[bool, Field(description="Review: the probe is what deployment meets")] = (
        False
    )
    coverage: Annotated[
        tuple[str, ...], Field(description="Review: QUERY=covered|partial|missing[: note] of each")
    ] = ()
    findings: Annotated[tuple[str, ...], Field(description="Review: what was found")] = ()
    result: Annotated[
        Literal["checkpoint", "profile", "baseline"] | None,
        Field(description="Outcome: what is best now"),
    ] = None
    checkpoint: Annotated[str | None, Field(description="Outcome: its whole id")] = None
    profile: Annotated[str | None, Field(description="Outcome: org/name@version")] = None
    comparison: Annotated[str | None, Field(description="Outcome: id of the comparison")] = None
    note: Note = ""


class Approve(Input):
    construction: Whole
    subject: Annotated[str, Field(description="approval_subject that is approved")]
    approver: Annotated[str, Field(description="Name of the person or policy")]
    approver_kind: Annotated[
        Literal["person", "researcher", "policy"], Field(description="As what they approve")
    ]
    note: Note = ""


class Show(Input):
    construction: Annotated[
        str, Field(description="Construction id; a unique short form will do"), Cli(True)
    ]
    history: Annotated[bool, Field(description="Steps of earlier versions too")] = False


class ListConstructions(Input):
    limit: Limit = 20
    cursor: Cursor = None


class PlanCheck(Contract):
    """A plan that was checked."""

    name: str
    digest: str
    complete: bool
    missing: list[str]
    """Pointers of what a proposal still needs."""

    @property
    def ok(self) -> bool:
        """Whether it can be proposed; the exit code follows."""
        return self.complete


def _check_text(check: PlanCheck) -> str:
    return pairs(
        {
            "plan": check.name,
            "digest": check.digest,
            "complete": check.complete,
            "missing": check.missing or None,
        }
    )


@operation("construction", "validate", READ_LOCAL, text=_check_text)
async def validate(_: Context, request: OnePlan) -> PlanCheck:
    """Check a construction plan, and name what a proposal still needs."""
    plan = _plan(request.plan)
    digest = canonical.digest_bytes(content(plan))
    return PlanCheck(name=plan.name, digest=digest, complete=not plan.missing, missing=plan.missing)


@operation("construction", "create", Traits(), text=brief_text)
async def create(context: Context, request: OnePlan) -> ConstructionView:
    """Keep a construction plan as a draft; parts may still be missing."""
    submission = ConstructionSubmission(id=new_id(Prefix.CONSTRUCTION), plan=_plan(request.plan))
    async with context.gateway() as gateway:
        return ConstructionView.of(await gateway.create_construction(submission))


@operation("construction", "revise", Traits(), text=brief_text)
async def revise(context: Context, request: Revise) -> ConstructionView:
    """Replace the plan by its next version, in draft. An earlier approval does not count for it."""
    revision = ConstructionRevision(
        replaces=request.replaces, plan=_plan(request.plan), note=request.note
    )
    async with context.gateway() as gateway:
        return ConstructionView.of(
            await gateway.revise_construction(request.construction, revision)
        )


@operation("construction", "record", Traits(local=True), text=brief_text)
async def record(context: Context, request: RecordStep) -> ConstructionView:
    """Record a step; the gateway checks it and moves the state. `next` says what follows."""
    given = canonical.validate(RECORDS[request.kind], await _fields(request), what="arguments")
    async with context.gateway() as gateway:
        return ConstructionView.of(await gateway.record_construction(request.construction, given))


@operation("construction", "approve", Traits(decides=True), text=brief_text)
async def approve(context: Context, request: Approve) -> ConstructionView:
    """Approve a reviewed plan with its probes and review. A policy is checked by its rules."""
    body: dict[str, JsonValue] = {
        "approver": {"kind": request.approver_kind, "name": request.approver},
        "subject": request.subject,
        "note": request.note,
    }
    approval = canonical.validate(Approval, cast(Any, body), what="arguments")
    async with context.gateway() as gateway:
        return ConstructionView.of(
            await gateway.approve_construction(request.construction, approval)
        )


@operation("construction", "show", READ, text=view_text)
async def show(context: Context, request: Show) -> ConstructionView:
    """Show plan, digests to name, spend beside allowance, runs, steps, and what comes next."""
    async with context.gateway() as gateway:
        found = await gateway.construction(request.construction)
    return ConstructionView.of(found, whole=True, history=request.history)


@operation("construction", "list", READ, text=page_text)
async def list_constructions(context: Context, request: ListConstructions) -> ConstructionPage:
    """List construction plans, newest first."""
    async with context.gateway() as gateway:
        return await gateway.constructions(limit=request.limit, cursor=request.cursor)


def _plan(value: dict[str, JsonValue] | str) -> ConstructionPlan:
    if isinstance(value, str) and not value.startswith("@"):
        raise InvalidInput(
            f"{value!r} is not a construction plan.",
            object=ErrorObject(type="construction plan", id=value, pointer="/plan"),
            next="Give a file: @plan.json",
        )
    read = cast(Read, read_document(value, "construction plan"))
    return canonical.validate(ConstructionPlan, cast(Any, read.value), what="construction plan")


async def _fields(request: RecordStep) -> dict[str, JsonValue]:
    """What was given, as the record's document; a field of another kind is refused by it."""
    given = request.model_dump(mode="json", exclude_defaults=True, exclude={"construction"})
    if request.kind == "review":
        given["relevant"] = request.relevant
        given["coverage"] = [_coverage(text) for text in request.coverage]
    if request.files:
        given["files"] = [await anyio.to_thread.run_sync(_rows, name) for name in request.files]
    return given


def _rows(name: str) -> JsonValue:
    """A file of rows by its digest."""
    file = read_rows(name)
    count = sum(1 for line in file.data.split(b"\n") if line.strip())
    return {"name": name, "digest": file.digest, "rows": count}


def _coverage(text: str) -> JsonValue:
    """`query=covered: why` as a document."""
    query, _, verdict = text.partition("=")
    verdict, _, note = verdict.partition(":")
    return {"query": query.strip(), "verdict": verdict.strip(), "note": note.strip()}
