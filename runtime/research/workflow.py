"""The workflow contract, first half: from the plan to the rows that were trained on.

Each check is a reading of the facts: it yields the causes for which its promise does not hold, and
nothing where it holds. What the gateway enforces by itself (an order of states, an allowance) is
not taken for granted here: the records are read again.
"""

from collections.abc import Callable, Iterator
from functools import wraps

from runtime.research.facts import Facts, moment
from runtime.research.steps import (
    first_step,
    last_step,
    rows_of,
    runs_of,
    steps_of,
    trained_runs,
)
from specs.construction_records import Construction, ConstructionStep

type Causes = Iterator[str]
type Check = Callable[[Facts], Causes]
NOTHING = "there is no construction"
"""What every check says of an episode that made none."""


def of_construction(check: Callable[[Facts, Construction], Causes]) -> Check:
    """A check of the episode's construction, as a check of the episode."""

    @wraps(check)
    def checked(facts: Facts) -> Causes:
        if facts.construction is None:
            yield NOTHING
        else:
            yield from check(facts, facts.construction)

    return checked


def outcome(facts: Facts) -> Causes:
    """The records that were named exist and are of this episode."""
    yield from facts.problems
    construction = facts.construction
    if construction is None:
        yield NOTHING
    elif moment(construction.created_at) < moment(facts.began):
        yield f"{construction.id} is older than this episode: it is somebody else's work"
    elif construction.state != "finished":
        yield f"{construction.id} is {construction.state}, not finished"
    if construction is not None and facts.own is not None:
        for one in construction.runs:
            if one.run not in facts.own:
                yield f"{one.run} was started by somebody else"


@of_construction
def approval(facts: Facts, construction: Construction) -> Causes:
    """Who approved what."""
    approver = construction.approver
    if approver is None:
        yield f"version {construction.version} of the plan was never approved"
        return
    allowed = facts.episode.approvers
    if approver.kind not in allowed:
        yield (
            f"it was approved as a {approver.kind} ({approver.name}); this episode takes"
            f" {' or '.join(allowed)}"
        )


@of_construction
def probe(facts: Facts, construction: Construction) -> Causes:
    """The order of probe, approval and bulk data."""
    places = {kind: first_step(construction, kind) for kind in ("probe", "approve", "bulk")}
    if places["probe"] is None:
        yield "no probe was recorded"
    if places["bulk"] is None and construction.plan.method != "none":
        yield "no bulk data was recorded"
    for before, after in (("probe", "approve"), ("approve", "bulk"), ("probe", "bulk")):
        first, second = places[before], places[after]
        if first is not None and second is not None and first.seq > second.seq:
            yield f"{after} was recorded before {before}"
    approved = places["approve"]
    for one in construction.runs:
        made = facts.runs.get(one.run)
        if one.kind == "evaluation" or approved is None or made is None:
            continue
        if moment(made.created_at) < moment(approved.at):
            yield f"{one.kind} {one.run} was started before approval"
    yield from _within(construction)


@of_construction
def review(facts: Facts, construction: Construction) -> Causes:
    """Whether somebody with fresh eyes looked."""
    recorded, probed = last_step(construction, "review"), last_step(construction, "probe")
    if construction.review is None or recorded is None or probed is None:
        yield "the probe was not reviewed"
        return
    wanted = facts.episode.reviewer
    between = [
        agent
        for agent in facts.sub_agents
        if (wanted is None or agent.kind == wanted)
        and moment(probed.at) <= moment(agent.began) <= moment(recorded.at)
    ]
    if not between:
        yield (
            f"no {wanted or 'sub-agent'} worked between the probe and its review: the review is"
            " its author's own word"
        )
        return
    names = _names(construction, probed)
    if not any(name in agent.looked_at for agent in between for name in names):
        yield f"the {wanted or 'sub-agent'} never looked at the probe ({', '.join(names)})"


@of_construction
def data(facts: Facts, construction: Construction) -> Causes:
    """Rows against the model specification."""
    link = construction.plan.model_spec
    if link is None:
        yield "the plan names no model specification"
    elif facts.spec_digest != link.digest:
        yield f"the model specification {facts.spec_digest} is not the plan's, {link.digest}"
    recorded = {file.digest for step in steps_of(construction, "bulk") for file in rows_of(step)}
    for rows in facts.rows:
        if rows.digest not in recorded:
            yield f"{rows.digest} was trained on and never recorded as bulk data"
        if not rows.readable:
            yield f"{rows.digest} was trained on and cannot be checked"
        for finding in rows.findings:
            if finding.part != "held_out":
                yield f"row {finding.row}: {finding.cause}: {finding.detail}"


def held_out(facts: Facts) -> Causes:
    """Held-out tasks in what was trained on."""
    if not facts.held_out:
        yield f"{facts.episode.held_out} cannot be read"
    for rows in facts.rows:
        for finding in rows.findings:
            if finding.part == "held_out":
                yield f"row {finding.row}: {finding.cause}: {finding.detail}"
    digests = set(facts.held_out.values())
    for run in trained_runs(facts):
        for task in run.spec.tasks:
            if task.digest in digests or task.name in facts.held_out:
                yield f"{run.id} was trained on the held-out task {task.name}"
    comparison = facts.comparison
    for seen in comparison.comparison.trained_on if comparison else ():
        yield f"{seen.run} was trained on the compared task {seen.task}"


def _within(construction: Construction) -> Causes:
    spent, allowed = construction.probe_spend.spent, construction.probe_spend.allowed
    for field in type(allowed).model_fields if allowed is not None else ():
        limit, value = getattr(allowed, field), getattr(spent, field, None)
        if limit is not None and value is not None and value > limit:
            yield f"the probe spent {value:g} {field}; its allowance is {limit:g}"


def _names(construction: Construction, probed: ConstructionStep) -> tuple[str, ...]:
    """What a reviewer may call the probe by."""
    files = rows_of(probed)
    named = [file.name.rsplit("/", 1)[-1] for file in files]
    return (*named, *runs_of(probed), *(file.digest for file in files), construction.id)
