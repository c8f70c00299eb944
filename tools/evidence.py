"""Reading a trial's evidence: every model call, with the exact tokens where they are wanted.

The segment is fetched by digest and decoded here (`specs.evidence`), so what is shown is what was
recorded: prompt ids rebuilt from parent and suffix and checked against their hash.
"""

import json
from array import array
from typing import Annotated

from pydantic import Field, JsonValue

from runtime.client import OperatorClient
from specs import evidence, repaired
from specs.base import Contract
from specs.eligibility import unfit
from specs.errors import ErrorObject, NotFound
from specs.interaction import Delivery, Interaction, SamplingUsed, Seal
from specs.records import Trial
from tools.context import Context
from tools.fields import Cursor, Input, Limit, RunRef
from tools.paging import cut
from tools.registry import READ, operation
from tools.tables import pairs, table

TrialRef = Annotated[str, Field(description="Trial id; a unique short form will do")]


class Interactions(Input):
    run: RunRef
    trial: TrialRef
    call: Annotated[int | None, Field(ge=0, description="This call alone, from 0")] = None
    tokens: Annotated[bool, Field(description="With token ids and log-probabilities")] = False
    request: Annotated[bool, Field(description="With the request as the harness sent it")] = False
    token_limit: Annotated[
        int, Field(ge=0, description="Most ids shown of each prompt and output; 0 = all")
    ] = 1000
    limit: Limit = 20
    cursor: Cursor = None


class Tokens(Contract):
    """Ids as they went in and came out; log-probabilities in nats, untempered."""

    prompt: list[int]
    prompt_omitted: int
    output: list[int]
    output_omitted: int
    logprobs: list[float] | None


class InteractionView(Contract):
    """One model call."""

    id: str
    sequence: int
    at: str
    state: str
    delivered: Delivery
    published: bool
    """Whether the store has verified the digest of what holds it."""
    eligible: bool
    unfit: str | None
    """Why it cannot be learnt from, whatever its trial's verdict is."""
    span: str
    """`root`, `exact`, `branched(reason)` or `lost`."""
    normalisations: tuple[str, ...]
    """What was changed or left out on the way from the request to the prompt."""
    parent: str | None
    sampler: str
    sampling: SamplingUsed
    requested: dict[str, JsonValue]
    prompt_tokens: int
    prompt_sha256: str
    output_tokens: int
    stop_reason: str | None
    provenance: str | None
    logprob_sum: float | None
    content: list[JsonValue] | None
    parse_error: str | None
    tokens: Tokens | None = None
    request: JsonValue = None


class EvidenceView(Contract):
    """The evidence of one trial."""

    run: str
    trial: str
    task: str
    seal: Seal
    refused: int
    items: list[InteractionView]
    next: str | None = None


def _text(view: EvidenceView) -> str:
    head = pairs(
        {
            "trial": view.trial,
            "task": view.task,
            "evidence": view.seal.object,
            "complete": view.seal.complete,
            "refused calls": view.refused or None,
        }
    )
    rows = [
        (
            i.sequence,
            i.id,
            i.state,
            i.delivered,
            i.unfit or "yes",
            i.span,
            i.prompt_tokens,
            i.output_tokens,
            i.stop_reason,
        )
        for i in view.items
    ]
    head_row = (
        "call",
        "interaction",
        "state",
        "delivered",
        "eligible",
        "span",
        "prompt",
        "output",
        "stop",
    )
    parts = [head, table(head_row, rows, more=view.next)]
    parts += [_detail(item) for item in view.items if item.tokens or len(view.items) == 1]
    return "\n".join(parts)


def _detail(item: InteractionView) -> str:
    text = pairs(
        {
            "call": item.sequence,
            "sampler": item.sampler,
            "sampling": item.sampling.model_dump_json(),
            "provenance": item.provenance,
            "normalisations": ", ".join(item.normalisations) or None,
            "content": json.dumps(item.content, ensure_ascii=False),
            "request": None if item.request is None else json.dumps(item.request),
        }
    )
    if item.tokens is None:
        return text
    logprobs = item.tokens.logprobs
    return f"{text}\n" + pairs(
        {
            "prompt ids": _ids(item.tokens.prompt, item.tokens.prompt_omitted),
            "output ids": _ids(item.tokens.output, item.tokens.output_omitted),
            "log-probs": None if logprobs is None else " ".join(f"{p:.4f}" for p in logprobs),
        }
    )


def _ids(ids: list[int], omitted: int) -> str:
    return " ".join(map(str, ids)) + (f" … and {omitted} more" if omitted else "")


@operation("run", "interactions", READ, text=_text)
async def interactions(context: Context, request: Interactions) -> EvidenceView:
    """Read the model calls of a trial as recorded, oldest first.

    With `tokens`: prompt ids, output ids (stop token included) and log-probabilities. An `exact`
    call's prompt starts with its parent's prompt and output; a branch says why it does not.
    """
    async with context.gateway() as gateway:
        trial = await find_trial(gateway, request.run, request.trial)
        seal = sealed(trial)
        data = await evidence_of(gateway, seal)
    calls = evidence.interactions(data)
    extended = {call.intent.parent for call in calls}
    if request.call is not None:
        calls = [call for call in calls if call.intent.sequence == request.call]
    page, following = cut(calls, request.limit, request.cursor)
    return EvidenceView(
        run=trial.run,
        trial=trial.id,
        task=trial.task,
        seal=seal,
        refused=len(evidence.refusals(data)),
        items=[_view(call, request, _unfit(call, seal, extended)) for call in page],
        next=following,
    )


async def evidence_of(gateway: OperatorClient, seal: Seal) -> bytes:
    """The evidence behind a seal; empty where no call was made."""
    return b"" if seal.object is None else await gateway.object(seal.object)


async def find_trial(gateway: OperatorClient, run: str, wanted: str) -> Trial:
    """A trial of a run.

    Raises:
        NotFound: no such trial, or one of another run.
    """
    trial = await gateway.trial(wanted)
    found = await gateway.run(run)
    if trial.run != found.id:
        raise NotFound(
            f"Trial {trial.id} belongs to run {trial.run}, not to {found.id}.",
            object=ErrorObject(type="trial", id=trial.id),
            next=f"practicum run interactions {trial.run} --trial {trial.id}",
        )
    return trial


def sealed(trial: Trial) -> Seal:
    """The seal of a trial's evidence.

    Raises:
        NotFound: there is none yet, or none was made.
    """
    seal = trial.settled.seal if trial.settled else None
    if seal is not None:
        return seal
    raise NotFound(
        f"Trial {trial.id} has no sealed evidence: it is {trial.state}.",
        object=ErrorObject(type="trial", id=trial.id),
        next=f"See how it went: practicum run trials {trial.run} --trial {trial.id}",
    )


def _unfit(call: Interaction, seal: Seal, extended: set[str | None]) -> str | None:
    reason = unfit(call, extended=call.intent.interaction in extended)
    if reason is None and not seal.complete:
        return "evidence_incomplete"
    return reason


def _view(call: Interaction, request: Interactions, reason: str | None) -> InteractionView:
    intent, answer = call.intent, call.answer
    return InteractionView(
        id=intent.interaction,
        sequence=intent.sequence,
        at=intent.at,
        state=call.state,
        delivered=call.delivery,
        published=True,  # it was read by its digest from what the store verified
        eligible=reason is None,
        unfit=reason,
        span=call.span,
        normalisations=intent.normalisations,
        parent=intent.parent,
        sampler=intent.sampler,
        sampling=intent.sampling,
        requested=intent.requested,
        prompt_tokens=len(call.prompt),
        prompt_sha256=intent.prompt_sha256,
        output_tokens=len(call.output),
        stop_reason=answer.stop_reason if answer else None,
        provenance=answer.provenance if answer else None,
        logprob_sum=None if call.logprobs is None else float(sum(call.logprobs)),
        content=answer.content if answer else None,
        parse_error=answer.parse_error if answer else None,
        tokens=_tokens(call, request.token_limit) if request.tokens else None,
        request=repaired.loads(call.request) if request.request and call.request else None,
    )


def _tokens(call: Interaction, limit: int) -> Tokens:
    def head(ids: "array[int]") -> list[int]:
        return ids.tolist() if limit == 0 else ids[:limit].tolist()

    prompt, output = head(call.prompt), head(call.output)
    logprobs = None if call.logprobs is None else call.logprobs[: len(output)].tolist()
    return Tokens(
        prompt=prompt,
        prompt_omitted=len(call.prompt) - len(prompt),
        output=output,
        output_omitted=len(call.output) - len(output),
        logprobs=logprobs,
    )
