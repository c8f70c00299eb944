"""Evidence and trials made by hand: real segments in the real format, sealed as the proxy does."""

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.execution.context import RunContext
from specs import evidence
from specs.assessment import Assessment, NoReward
from specs.canonical import digest_bytes
from specs.ids import Prefix, new_id
from specs.interaction import (
    Answer,
    BranchReason,
    CallState,
    Failure,
    Intent,
    Interaction,
    SamplingUsed,
    Seal,
    Superseded,
)
from specs.records import Group, Trial, TrialOutcome, TrialSettled, TrialState

AT = "2026-01-01T00:00:00Z"
RUN = new_id(Prefix.RUN)
SAMPLER = new_id(Prefix.SAMPLER)


@dataclass(frozen=True)
class Turn:
    """One call to be recorded. `extends` is the index of the turn that it continues."""

    suffix: Sequence[int]
    output: Sequence[int]
    extends: int | None = None
    logprobs: Sequence[float] | None = ()
    """() = -0.5 each; None = absent."""
    stop: Literal["stop", "length"] = "stop"
    provenance: Literal["sampled", "scripted", "upstream"] = "sampled"
    superseded: bool = False
    lost: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    sampler: str = SAMPLER
    agent: str = ""
    tools: Sequence[str] | None = None
    """Types of the tools that the request offers; None = no request is kept."""
    parse_error: str | None = None


@dataclass
class Recorded:
    """A trial's segment and its calls."""

    data: bytes
    seal: Seal
    calls: tuple[Interaction, ...] = field(default=())


def record(
    turns: Sequence[Turn], *, trial: str | None = None, run: str = RUN, fence: int = 1
) -> Recorded:
    """The sealed segment of a trial with these turns."""
    trial = trial or new_id(Prefix.TRIAL)
    data = b""
    ids = [new_id(Prefix.INTERACTION) for _ in turns]
    wholes: list[list[int]] = []
    for index, turn in enumerate(turns):
        before = [] if turn.extends is None else wholes[turn.extends]
        prompt = [*before, *turn.suffix]
        wholes.append([*prompt, *turn.output])
        intent = Intent(
            interaction=ids[index],
            trial=trial,
            fence=fence,
            sequence=index,
            at=AT,
            parent=None if turn.extends is None else ids[turn.extends],
            branch=BranchReason.ROOT if turn.extends is None else None,
            prompt_tokens=len(prompt),
            prompt_sha256=evidence.prompt_hash(array("i", prompt)),
            sampler=turn.sampler,
            sampling=SamplingUsed(
                temperature=turn.temperature,
                top_p=turn.top_p,
                top_k=turn.top_k,
                max_tokens=64,
                stop=(2,),
            ),
            request_digest=digest_bytes(b"request"),
            agent=turn.agent,
        )
        data += evidence.encode(intent, {"suffix": array("i", turn.suffix), **_request(turn)})
        data += _outcome(ids[index], turn)
    calls = tuple(evidence.interactions(data))
    return Recorded(data, seal_of(trial, run, fence, data, calls), calls)


def trial_of(
    recorded: Recorded | None,
    *,
    reward: float | None = 1.0,
    reason: NoReward | None = None,
    outcome: TrialOutcome = TrialOutcome.COMPLETED,
    group: str | None = None,
    index: int = 0,
    batch: int = 0,
    sampler: str = SAMPLER,
    **changes: Any,
) -> Trial:
    """A settled, counted trial with that evidence."""
    trial = recorded.seal.trial if recorded else new_id(Prefix.TRIAL)
    seal = recorded.seal if recorded else None
    if reward is None and reason is None:
        reason = NoReward.VERIFIER_FAILED
    values: dict[str, Any] = {
        "id": trial,
        "run": seal.run if seal else RUN,
        "group": group or new_id(Prefix.GROUP),
        "batch": batch,
        "index": index,
        "task": "acme/task",
        "sampler": sampler,
        "fence": seal.fence if seal else 1,
        "state": TrialState.SETTLED,
        "counted": True,
        "opened_at": AT,
        "settled_at": AT,
        "settled": TrialSettled(trial=trial, outcome=outcome, seal=seal),
        "assessment": Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reward=reward,
            reason=reason,
        ),
    }
    return Trial(**{**values, **changes})


def _request(turn: Turn) -> dict[str, array[Any]]:
    if turn.tools is None:
        return {}
    tools = [{"name": f"tool{n}", "type": kind} for n, kind in enumerate(turn.tools)]
    return {"request": array("B", zlib.compress(json.dumps({"tools": tools}).encode()))}


def _outcome(interaction: str, turn: Turn) -> bytes:
    if turn.lost:
        return evidence.encode(
            Failure(interaction=interaction, at=AT, code="internal", detail=""), {}
        )
    answer = Answer(
        interaction=interaction,
        at=AT,
        stop_reason=turn.stop,
        provenance=turn.provenance,
        content=[],
        parse_error=turn.parse_error,
    )
    arrays: dict[str, array[Any]] = {"output": array("i", turn.output)}
    if turn.logprobs is not None:
        arrays["logprobs"] = array("f", turn.logprobs or [-0.5] * len(turn.output))
    data = evidence.encode(answer, arrays)
    if turn.superseded:
        data += evidence.encode(Superseded(interaction=interaction, at=AT), {})
    return data


def seal_of(trial: str, run: str, fence: int, data: bytes, calls: Sequence[Interaction]) -> Seal:
    """The seal that the proxy would give these calls."""
    states = Counter(call.state for call in calls)
    return Seal(
        trial=trial,
        run=run,
        fence=fence,
        interactions=len(calls),
        states=dict(states),
        object=digest_bytes(data),
        size=len(data),
        complete=not states[CallState.LOST],
        prompt_tokens=sum(len(call.prompt) for call in calls),
        output_tokens=sum(len(call.output) for call in calls),
    )


def settled_trial(
    ctx: RunContext, group: Group, index: int, settled: TrialSettled, assessment: Assessment
) -> Trial:
    """The record of a trial that a driver has settled in a run."""
    return Trial(
        id=settled.trial,
        run=ctx.run,
        group=group.id,
        batch=group.batch,
        index=index,
        task=group.task,
        sampler=group.sampler,
        fence=ctx.claim.fence,
        state=TrialState.SETTLED,
        counted=True,
        opened_at=AT,
        settled=settled,
        assessment=assessment,
    )
