"""A construction's steps and the runs of an episode, as its checks look at them."""

from runtime.research.facts import Facts
from specs.construction_records import Construction, ConstructionStep, Outcome, RowsFile
from specs.run import Run


def steps_of(construction: Construction, kind: str) -> list[ConstructionStep]:
    """Steps of one kind of the present version."""
    version = construction.version
    return [step for step in construction.steps if (step.kind, step.version) == (kind, version)]


def first_step(construction: Construction, kind: str) -> ConstructionStep | None:
    """The first of a kind."""
    return next(iter(steps_of(construction, kind)), None)


def last_step(construction: Construction, kind: str) -> ConstructionStep | None:
    """The last of a kind."""
    return next(reversed(steps_of(construction, kind)), None)


def rows_of(step: ConstructionStep) -> list[RowsFile]:
    """Files of rows that a step names."""
    files = step.record.get("files")
    return [RowsFile.model_validate(one) for one in files] if isinstance(files, list) else []


def runs_of(step: ConstructionStep) -> list[str]:
    """Runs that a step names."""
    runs = step.record.get("runs")
    return [run for run in runs if isinstance(run, str)] if isinstance(runs, list) else []


def result_of(construction: Construction) -> Outcome | None:
    """The outcome that was recorded."""
    step = last_step(construction, "outcome")
    return None if step is None else Outcome.model_validate(step.record)


def trained_runs(facts: Facts) -> list[Run]:
    """Runs that change weights."""
    return [run for run in facts.runs.values() if run.kind != "evaluation"]


def admitted_under(run: Run, construction: Construction) -> bool:
    """Whether a run was admitted under a construction."""
    return run.construction is not None and run.construction.id == construction.id
