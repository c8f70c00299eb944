"""Episodes: what is asked of a training agent, and what is found of its work.

For whoever judges. They are local, since the journal and the model specification are files that
the agent left; records come from the gateway with whatever credential this command has, and reading
is all that it needs. Who is judged has the same operations and no episode to verify: the author's
side stays out of the sandbox, and Harbor's rewards are written at a terminal alone.
"""

import json
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.episode import PROMISES, Episode, EpisodeOutcome, EpisodeReport
from specs.errors import InvalidInput
from tools.context import Context
from tools.documents import Read, read_document, read_file
from tools.fields import Cli, Input
from tools.registry import READ_LOCAL, operation
from tools.tables import number, pairs, table

EpisodeFile = Annotated[
    dict[str, JsonValue] | str,
    Field(description="The episode, or its file"),
    Cli(positional=True, metavar="EPISODE"),
]


class Verify(Input):
    episode: EpisodeFile
    work: Annotated[
        tuple[str, ...],
        Field(min_length=1, description="Trial, or sessions, that the agent worked in"),
    ]
    outcome: Annotated[str, Field(description="File that the agent left")] = "outcome.json"
    rewards: Annotated[
        str | None, Field(description="Write Harbor's reward file here"), Cli(agent=False)
    ] = None
    limit: Annotated[int, Field(ge=1, le=1000, description="Causes told of each check")] = 100


class Show(Input):
    episode: EpisodeFile


class EpisodeView(Contract):
    """What an episode asks for."""

    digest: str
    episode: Episode
    promises: dict[str, str]
    """What is checked of the work."""


def _view_text(view: EpisodeView) -> str:
    episode = view.episode
    head = pairs(
        {
            "episode": episode.name,
            "digest": view.digest,
            "held out": f"{episode.held_out}, {episode.attempts} attempts each",
            "baseline": episode.baseline,
            "approvers": list(episode.approvers),
            "reviewer": episode.reviewer or "any sub-agent",
            "journal": list(episode.journal),
            "budget": episode.budget.model_dump(exclude_none=True),
        }
    )
    return f"{head}\n\n{table(('check', 'promise'), list(view.promises.items()))}"


def _report_text(report: EpisodeReport) -> str:
    quality = report.quality
    difference = quality and quality.difference
    told = None
    if quality is not None and difference is not None:
        told = f"{number(difference.estimate)} ({quality.verdict}, {difference.n} tasks)"
    head = pairs(
        {
            "episode": report.episode,
            "reward": report.reward,
            "construction": report.construction,
            "result": report.result,
            "checkpoint": report.checkpoint,
            "quality, apart": told,
        }
    )
    rows = [(one.id, "ok" if one.ok else "NO", one.promise) for one in report.checks]
    body = table(("check", "holds", "promise"), rows)
    return "\n".join([head, "", body, *(f"not kept: {reason}" for reason in report.reasons)])


@operation("episode", "verify", READ_LOCAL, text=_report_text)
async def verify(context: Context, request: Verify) -> EpisodeReport:
    """Check from records whether an episode kept its workflow; quality is told apart."""
    from runtime.research.facts import Facts
    from runtime.research.reading import began_at, gather
    from runtime.research.verdict import verdict

    episode = _episode(request.episode)
    outcome = await anyio.to_thread.run_sync(_outcome, request.outcome)
    async with context.gateway() as gateway:
        if isinstance(outcome, str):
            began = await began_at(gateway, request.work)
            facts = Facts(episode=episode, began=began, problems=(outcome,))
        else:
            file = await anyio.Path(request.outcome).expanduser()
            facts = await gather(gateway, episode, outcome, Path(file.parent), request.work)
    report = await anyio.to_thread.run_sync(verdict, facts)
    if request.rewards is not None:
        await anyio.Path(request.rewards).write_text(json.dumps(rewards(report)))
    return shortened(report, request.limit)


@operation("episode", "show", READ_LOCAL, text=_view_text)
async def show(_: Context, request: Show) -> EpisodeView:
    """Show what an episode asks for, and what is checked of it."""
    episode = await anyio.to_thread.run_sync(_episode, request.episode)
    promises = {str(check): promise for check, promise in PROMISES.items()}
    return EpisodeView(digest=canonical.digest(episode), episode=episode, promises=promises)


def rewards(report: EpisodeReport) -> dict[str, float]:
    """Harbor's rewards: the verdict, each check, and the quality as a metric of its own."""
    found = {"reward": float(report.reward)}
    found |= {f"check_{check.id}": float(check.ok) for check in report.checks}
    if report.quality is not None and report.quality.difference is not None:
        found["quality_difference"] = report.quality.difference.estimate
    return found


def shortened(report: EpisodeReport, limit: int) -> EpisodeReport:
    """The same verdict with at most `limit` causes of each check, and how many more there are."""
    checks = tuple(
        check.model_copy(
            update={"causes": (*check.causes[:limit], f"and {len(check.causes) - limit} more")}
        )
        if len(check.causes) > limit
        else check
        for check in report.checks
    )
    reasons = tuple(f"{check.id}: {cause}" for check in checks for cause in check.causes)
    return report.model_copy(update={"checks": checks, "reasons": reasons})


def _episode(value: dict[str, JsonValue] | str) -> Episode:
    if isinstance(value, str):
        value = f"@{value.removeprefix('@')}"
    read = read_document(value, "episode")
    assert isinstance(read, Read)  # only a name without '@' is a reference
    return canonical.validate(Episode, read.value, what="episode")


def _outcome(file: str) -> EpisodeOutcome | str:
    """What the agent left, or why it cannot be used; that is the agent's failure, not ours."""
    try:
        return canonical.read(EpisodeOutcome, read_file(file, "outcome"), what="outcome")
    except InvalidInput as error:
        return f"the outcome cannot be used: {error.problem.detail}"
