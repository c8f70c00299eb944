"""The workflow contract, second half: from the training run to the journal."""

from runtime.research.facts import Facts
from runtime.research.steps import admitted_under, result_of, runs_of, steps_of, trained_runs
from runtime.research.workflow import Causes, of_construction
from specs.comparison import Side
from specs.construction import METHOD_RUNS
from specs.construction_records import Construction
from specs.plans import EvaluationPlan
from specs.run import RunState


@of_construction
def training(facts: Facts, construction: Construction) -> Causes:
    """The training runs."""
    method = construction.plan.method
    trained = [run for run in trained_runs(facts) if admitted_under(run, construction)]
    if method == "none":
        yield from (f"{run.id} changed weights; the method is none" for run in trained)
        return
    ended = [run for run in trained if run.state is RunState.COMPLETED]
    if not ended:
        states = ", ".join(f"{run.id} is {run.state}" for run in trained)
        yield f"no training run of it has completed{': ' + states if states else ''}"
    recorded = {name for step in steps_of(construction, "training") for name in runs_of(step)}
    for run in trained:
        if run.kind != METHOD_RUNS.get(method or ""):
            yield f"{run.id} is a {run.kind} run; the approved method is {method}"
        elif run.id not in recorded:
            yield f"{run.id} was never recorded as training"


@of_construction
def checkpoint(facts: Facts, construction: Construction) -> Causes:
    """The result and where it comes from."""
    result = result_of(construction)
    if result is None:
        yield "no outcome was recorded"
        return
    if result.checkpoint is None:
        return
    found = facts.checkpoint
    if found is None or found.deleted_at is not None:
        yield f"{result.checkpoint} does not exist, or no longer"
        return
    if found.run not in {
        run.id for run in trained_runs(facts) if admitted_under(run, construction)
    }:
        yield f"{found.id} comes from {found.run}, which is no training run of {construction.id}"
    if facts.episode.baseline not in (found.base_model, found.parent):
        yield f"{found.id} was made from {found.parent or found.base_model}, not the baseline"


@of_construction
def evaluation(facts: Facts, construction: Construction) -> Causes:
    """The comparison with the baseline."""
    result = result_of(construction)
    if facts.comparison is None:
        yield "no comparison with the baseline is recorded"
        return
    found = facts.comparison.comparison
    baseline = facts.episode.baseline
    if found.baseline.model != baseline:
        yield f"the baseline of the comparison is {found.baseline.model}, not {baseline}"
    if result and result.checkpoint and found.candidate.model != result.checkpoint:
        yield f"the comparison is about {found.candidate.model}, not {result.checkpoint}"
    if not found.expected:
        yield f"more than one thing differs: {', '.join(found.changed) or 'nothing'}"
    if found.filters:
        yield f"it leaves tasks out: {', '.join(found.filters)}"
    for side in (found.baseline, found.candidate):
        yield from _side(facts, side)


def journal(facts: Facts) -> Causes:
    """What the journal must tell."""
    found = facts.journal
    if found is None or not found.entries:
        yield "there is no journal, or nothing in it"
        return
    yield from found.problems
    kinds = {entry.kind for entry in found.entries}
    for kind in facts.episode.journal:
        if kind not in kinds:
            yield f"it has no entry of kind {kind}"
    linked = {(link.type, link.id) for entry in found.entries for link in entry.links}
    wanted = {("run", run.id) for run in trained_runs(facts)}
    if facts.construction is not None:
        wanted.add(("construction", facts.construction.id))
    if facts.checkpoint is not None:
        wanted.add(("checkpoint", facts.checkpoint.id))
    for kind, name in sorted(wanted - linked):
        yield f"no entry links {kind}:{name}"


@of_construction
def budget(facts: Facts, construction: Construction) -> Causes:
    """What was spent, and where."""
    spent, most = construction.total_spend.spent, facts.episode.budget
    for field in type(most).model_fields:
        limit, value = getattr(most, field), getattr(spent, field)
        if limit is not None and value > limit:
            yield f"{value:g} {field} were spent; the episode allows {limit:g}"
    for name in facts.own or ():
        run = facts.runs[name]
        if not admitted_under(run, construction):
            yield f"{run.kind} {run.id} was started outside of {construction.id}"


def _side(facts: Facts, side: Side) -> Causes:
    run = facts.runs.get(side.run)
    if run is None or not isinstance(run.spec.plan, EvaluationPlan):
        yield f"{side.run} is no evaluation that can be read"
        return
    construction = facts.construction
    if construction is not None and not admitted_under(run, construction):
        yield f"{side.run} was not admitted under {construction.id}"
    if run.state is not RunState.COMPLETED:
        yield f"{side.run} is {run.state}"
    if run.spec.dataset_digest != facts.held_out_digest:
        yield f"{side.run} is of {run.dataset}, not of {facts.episode.held_out}"
    tasks = {task.name for task in run.spec.tasks}
    if tasks != set(facts.held_out):
        yield f"{side.run} has {len(tasks)} of {len(facts.held_out)} held-out tasks"
    if run.spec.plan.trials_per_task < facts.episode.attempts:
        yield f"{side.run} has {run.spec.plan.trials_per_task} attempts at a task"
    if side.attempts_unscored:
        yield f"{side.attempts_unscored} attempts of {side.run} have no reward"
