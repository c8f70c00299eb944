"""The verdict on an episode: every promise, the reward that follows, and the quality apart."""

from collections.abc import Mapping

from runtime.research import results, workflow
from runtime.research.facts import Facts
from runtime.research.steps import result_of
from specs.episode import (
    PROMISES,
    CheckId,
    EpisodeCheck,
    EpisodeQuality,
    EpisodeReport,
)

CHECKS: Mapping[CheckId, workflow.Check] = {
    "outcome": workflow.outcome,
    "approval": workflow.approval,
    "probe": workflow.probe,
    "review": workflow.review,
    "data": workflow.data,
    "held_out": workflow.held_out,
    "training": results.training,
    "checkpoint": results.checkpoint,
    "evaluation": results.evaluation,
    "journal": results.journal,
    "budget": results.budget,
}


def verdict(facts: Facts) -> EpisodeReport:
    """What the facts of an episode amount to."""
    checks = tuple(_check(name, facts) for name in PROMISES)
    reasons = tuple(f"{check.id}: {cause}" for check in checks for cause in check.causes)
    construction = facts.construction
    result = construction and result_of(construction)
    return EpisodeReport(
        episode=facts.episode.name,
        ok=not reasons,
        reward=0 if reasons else 1,
        reasons=reasons,
        checks=checks,
        construction=construction and construction.id,
        result=result and result.result,
        checkpoint=result and result.checkpoint,
        quality=_quality(facts),
    )


def _check(name: CheckId, facts: Facts) -> EpisodeCheck:
    causes = tuple(dict.fromkeys(CHECKS[name](facts)))
    return EpisodeCheck(id=name, ok=not causes, promise=PROMISES[name], causes=causes)


def _quality(facts: Facts) -> EpisodeQuality | None:
    record = facts.comparison
    if record is None:
        return None
    found = record.comparison
    return EpisodeQuality(
        comparison=record.id,
        baseline=found.baseline.success,
        candidate=found.candidate.success,
        difference=found.difference,
        verdict=found.verdict,
        caveats=tuple(found.caveats),
    )
