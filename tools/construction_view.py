"""A construction as operators read it: a few lines after each step, a page of Markdown on show."""

from collections.abc import Iterator
from typing import Self

from specs.base import Contract
from specs.construction import ConstructionPlan
from specs.construction_records import (
    Approver,
    Construction,
    ConstructionPage,
    ConstructionRun,
    ConstructionStep,
    Review,
    SpendView,
)
from tools.tables import cell, pairs, table


class ConstructionView(Contract):
    """A construction; plan, runs and steps are shown by `construction show` alone."""

    id: str
    name: str
    version: int
    state: str
    plan_digest: str
    missing: list[str]
    """Pointers of what a proposal still needs."""
    probes: list[str]
    review: str | None
    review_subject: str | None
    """What a review names."""
    approval_subject: str | None
    """What an approval names."""
    approver: Approver | None
    probe_spend: SpendView
    total_spend: SpendView
    plan: ConstructionPlan | None = None
    runs: list[ConstructionRun] | None = None
    steps: list[ConstructionStep] | None = None
    next: str

    @classmethod
    def of(cls, found: Construction, *, whole: bool = False, history: bool = False) -> Self:
        """The view; the plan of a step is left out, since it stands in `plan`."""
        steps = [
            step.model_copy(update={"record": {}}) if step.kind in ("create", "revise") else step
            for step in found.steps
            if history or step.version == found.version
        ]
        return cls(
            id=found.id,
            name=found.name,
            version=found.version,
            state=found.state,
            plan_digest=found.plan_digest,
            missing=found.missing,
            probes=list(found.probes),
            review=found.review,
            review_subject=found.review_subject,
            approval_subject=found.approval_subject,
            approver=found.approver,
            probe_spend=found.probe_spend,
            total_spend=found.total_spend,
            plan=found.plan if whole else None,
            runs=found.runs if whole else None,
            steps=steps if whole else None,
            next=found.next,
        )


def brief_text(view: ConstructionView) -> str:
    """Where a construction stands."""
    return pairs(
        {
            "construction": view.id,
            "plan": f"{view.name} version {view.version}",
            "state": view.state,
            "missing": view.missing or None,
            "plan digest": view.plan_digest,
            "review subject": view.review_subject,
            "approval subject": view.approval_subject,
            "approved by": view.approver and f"{view.approver.kind} {view.approver.name}",
            "next": view.next,
        }
    )


def page_text(page: ConstructionPage) -> str:
    """A list of constructions."""
    return table(
        ("construction", "plan", "version", "state", "method", "updated"),
        [(c.id, c.name, c.version, c.state, c.method, c.updated_at) for c in page.items],
        more=page.next,
    )


def view_text(view: ConstructionView) -> str:
    """The readable view, in Markdown."""
    lines = [f"# {view.name}, version {view.version}: {view.state}", "", f"`{view.id}`"]
    if view.plan is not None:
        lines += _plan(view.plan, view.steps or [])
    lines += ["", "## Spend", "", *_spend(view)]
    lines += ["", "## Digests", "", *_digests(view)]
    if view.runs:
        lines += ["", "## Runs", "", *_runs(view.runs)]
    if view.steps:
        lines += ["", "## Steps", "", *(_step(step) for step in view.steps)]
    return "\n".join([*lines, "", f"**Next:** {view.next}"])


def _plan(plan: ConstructionPlan, steps: list[ConstructionStep]) -> Iterator[str]:
    yield from ("", "## Goal", "", plan.goal, "", "## Deployment", "")
    spec = plan.model_spec
    yield f"- model: {cell(plan.model)}"
    yield f"- model specification: {cell(spec and f'{spec.name or ""} {spec.digest}'.strip())}"
    for tool in plan.tools or ():
        yield f"- tool `{tool.name}`: {tool.purpose}"
    judged = _coverage(steps)
    yield from ("", "## Expected queries", "")
    for query in plan.queries:
        verdict = f" **{judged[query.id]}**" if query.id in judged else ""
        yield f"- `{query.id}`{verdict}: {query.text}"
        if query.good_answer:
            yield f"  - useful when: {query.good_answer}"
    yield from ("", "## Data sources", "")
    for source in plan.sources:
        yield f"- {source.kind} `{source.reference}`: {source.purpose}"
    yield from ("", f"## Method: {cell(plan.method)}", "", plan.reason)
    if plan.assessment is not None:
        asked = plan.assessment
        yield from ("", "## Assessment", "")
        yield f"- {asked.attempts} attempts at each task of `{asked.dataset}`, held out"
        yield f"- baseline: {asked.baseline}"
        yield f"- success: {asked.success}"
    if plan.notes:
        yield from ("", "## Notes", "", plan.notes)
    for pointer in plan.missing:
        yield from ("", f"Missing: `{pointer}`")


def _coverage(steps: list[ConstructionStep]) -> dict[str, str]:
    """Verdicts of the last review by query."""
    judged: dict[str, str] = {}
    for step in steps:
        if step.kind == "review":
            review = Review.model_validate(step.record, strict=False)
            judged = {one.query: one.verdict for one in review.coverage}
    return judged


def _spend(view: ConstructionView) -> Iterator[str]:
    yield "| | probe | allowed | in all | budget |"
    yield "|---|---|---|---|---|"
    probe, total = view.probe_spend, view.total_spend
    for field in type(total.spent).model_fields:
        shown = (
            getattr(probe.spent, field),
            getattr(probe.allowed, field, None),
            getattr(total.spent, field),
            getattr(total.allowed, field, None),
        )
        yield f"| {field.replace('_', ' ')} | {' | '.join(cell(value) for value in shown)} |"


def _digests(view: ConstructionView) -> Iterator[str]:
    yield f"- plan: `{view.plan_digest}`"
    for digest in view.probes:
        yield f"- probe: `{digest}`"
    for name, digest in (
        ("review", view.review),
        ("review subject", view.review_subject),
        ("approval subject", view.approval_subject),
    ):
        if digest is not None:
            yield f"- {name}: `{digest}`"
    if view.approver is not None:
        yield f"- approved by: {view.approver.kind} {view.approver.name}"


def _runs(runs: list[ConstructionRun]) -> Iterator[str]:
    yield "| run | kind | state | as | version | planned slots | counted slots |"
    yield "|---|---|---|---|---|---|---|"
    for one in runs:
        under = one.construction
        yield (
            f"| `{one.run}` | {one.kind} | {one.state} | {under.use} | {under.version}"
            f" | {one.planned_slots} | {one.spend.trial_slots} |"
        )


def _step(step: ConstructionStep) -> str:
    note = step.record.get("note") or step.found.get("note")
    told = f": {note}" if note else ""
    return (
        f"{step.seq}. {step.at} **{step.kind}** (v{step.version}, {step.by}) → {step.state}{told}"
    )
