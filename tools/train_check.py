"""`train check`: one batch of real trials with learning rate 0, which must change nothing.

The whole way of training (harness, proxy, sampler, verifier, evidence, trainer, step, checkpoint)
with the one outcome that can be checked exactly. A KL penalty of the base model stands in the
plan, so that every eligible trial goes through the trainer whatever the rewards are. What the
worker compares is in `runtime.learning`; this reads what it recorded.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import anyio
from pydantic import Field, JsonValue

from runtime.client import every
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, Unavailable
from specs.objective import PolicyLoss
from specs.records import Trial, Update, UpdateState
from specs.run import Run, RunState
from tools.context import Context
from tools.fields import Cli, Duration, Input
from tools.registry import Traits, operation
from tools.run import settled
from tools.start import Start, start
from tools.tables import number, pairs, table


class CheckTraining(Input):
    profile: Annotated[
        dict[str, JsonValue] | str,
        Field(description="The actor: the document itself, @file.json, or org/name@version"),
        Cli(positional=True, metavar="PROFILE"),
    ]
    dataset: Annotated[str, Field(description="org/name@version")]
    tasks: Annotated[int, Field(ge=1, le=64, description="Tasks to try")] = 1
    trials: Annotated[int, Field(ge=1, le=64, description="Trials of each task")] = 2
    loss: Annotated[PolicyLoss, Field(description="Loss to try")] = "importance_sampling"
    timeout: Annotated[
        Duration, Field(description="Give up after this long, such as 10m", le=86_400)
    ] = 1800.0


class CheckFinding(Contract):
    """One thing that must hold."""

    id: str
    holds: bool
    detail: str


class CheckReport(Contract):
    """What a learning-rate-0 batch showed."""

    run: str
    ok: bool
    """Everything holds; the exit code follows."""
    findings: tuple[CheckFinding, ...]
    metrics: dict[str, float]
    """All measures of the batch's update."""
    next: str


def _text(report: CheckReport) -> str:
    verdict = "training this profile changes nothing at learning rate 0" if report.ok else "FAILED"
    rows = [(one.id, "holds" if one.holds else "FAILS", one.detail) for one in report.findings]
    head = pairs({"run": report.run, "verdict": verdict})
    return "\n".join([head, table(("check", "", "found"), rows), f"next: {report.next}"])


@operation("train", "check", Traits(spends=True), text=_text)
async def check(context: Context, request: CheckTraining) -> CheckReport:
    """Run one batch of real trials with learning rate 0; exits 1 when anything changed.

    Starts an ordinary training run and waits for it. It must complete, every trial must be fit to
    learn from, sampler and trainer must agree on the log-probabilities of the sampled tokens, and
    after the step the weights must have the same digest and give the same log-probabilities.
    """
    begin = Start(dataset=request.dataset, actor=request.profile, plan=_plan(request))
    started = await start(context, begin, "train")
    assert started.run is not None
    async with context.gateway() as gateway:
        run = await gateway.run(started.run)
        with anyio.move_on_after(request.timeout):
            run = await settled(context, gateway, run)
        if not run.state.terminal and run.state is not RunState.BLOCKED:
            raise Unavailable(
                f"The check is still {run.state} after {request.timeout:.0f} s.",
                code=ErrorCode.WAIT_TIMED_OUT,
                object=ErrorObject(type="run", id=run.id),
                next=f"practicum run wait {run.id}, then practicum run updates {run.id} --json",
            )
        trials = await every(lambda cursor: gateway.trials(run.id, counted=True, cursor=cursor))
        updates = (await gateway.updates(run.id)).items
    return report_of(run, trials, updates)


def _plan(request: CheckTraining) -> dict[str, JsonValue]:
    return {
        "num_batches": 1,
        "batch": {"tasks": request.tasks, "trials_per_task": request.trials},
        "learning_rate": 0.0,
        "loss": request.loss,
        "kl": {"coefficient": 1.0, "reference": "base"},
    }


def report_of(run: Run, trials: Sequence[Trial], updates: Sequence[Update]) -> CheckReport:
    """What the records of a learning-rate-0 run say."""
    update = next((one for one in reversed(updates) if one.state is not UpdateState.VOID), None)
    metrics = dict(update.metrics) if update else {}
    findings = (
        CheckFinding(
            id="run.completed",
            holds=run.state is RunState.COMPLETED,
            detail=run.reason.detail if run.reason else str(run.state),
        ),
        _fit(trials),
        _agree(update),
        CheckFinding(
            id="weights.unchanged",
            holds=metrics.get("weights_unchanged") == 1.0,
            detail=_same(metrics.get("weights_unchanged")),
        ),
        CheckFinding(
            id="logprobs.reproduce",
            holds=metrics.get("logprob_change", 1.0) <= _limit(run),
            detail=_told(metrics, "logprob_change", "largest change of a log-prob by the step"),
        ),
    )
    ok = all(finding.holds for finding in findings)
    return CheckReport(
        run=run.id,
        ok=ok,
        findings=findings,
        metrics=metrics,
        next="practicum train start"
        if ok
        else f"practicum run updates {run.id} --json; practicum run trials {run.id}",
    )


def _fit(trials: Sequence[Trial]) -> CheckFinding:
    """Every trial is fit to learn from; a missing reward or a broken chain is a reason why not."""
    reasons = Counter(trial.ineligible_reason for trial in trials if trial.eligible is False)
    unjudged = sum(trial.eligible is None for trial in trials)
    fit = len(trials) - reasons.total() - unjudged
    told = [f"{count} × {reason}" for reason, count in reasons.items()]
    told += [f"{unjudged} not judged"] if unjudged else []
    return CheckFinding(
        id="trials.learnable",
        holds=bool(trials) and fit == len(trials),
        detail=f"{fit} of {len(trials)} trials" + (f": {', '.join(told)}" if told else ""),
    )


def _agree(update: Update | None) -> CheckFinding:
    value = None if update is None else update.metrics.get("max_logprob_difference")
    over = update is not None and update.state is UpdateState.ACKNOWLEDGED
    return CheckFinding(
        id="logprobs.agree",
        holds=over and value is not None,
        detail="nothing reached the trainer"
        if value is None
        else f"sampler and trainer differ by at most {number(value)} on a sampled token",
    )


def _limit(run: Run) -> float:
    """What still counts as the same log-prob: the plan's threshold, or a tenth of a nat."""
    plan = run.spec.plan
    limit = plan.checks.max_logprob_difference if plan.kind == "training" else None
    return 0.1 if limit is None else limit


def _told(metrics: dict[str, float], name: str, what: str) -> str:
    return f"{what}: {number(metrics[name])}" if name in metrics else "no step was taken"


def _same(unchanged: float | None) -> str:
    if unchanged is None:
        return "no step was taken"
    return f"the adapter has {'the same' if unchanged else 'another'} digest after the step"
