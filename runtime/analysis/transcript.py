"""A trial call by call: what the model was shown, what it sampled, and the weight of each token.

Of a prompt only what is new is shown: an `exact` call's prompt begins with its parent's prompt
and output. Texts are spelled from the recorded ids, never the other way round (invariant 1);
without the tokenizer the ids themselves stand there.
"""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.client.reads import ReadClient
from runtime.formats.bytelevel import Spelling
from specs import evidence
from specs.base import Contract
from specs.errors import InvalidInput, NotFound
from specs.interaction import Interaction
from specs.records import Trial

PROMPT_TOKENS = 1500
"""New prompt tokens of a call that are shown, half from either end."""
OUTPUT_TOKENS = 4000


class CallView(Contract):
    """One model call."""

    interaction: str
    call: int
    agent: str
    """The harness's own name of the agent that called."""
    span: str
    state: str
    stop: str | None
    at: str
    sampler: str
    prompt_tokens: int
    new_from: int
    """Where the new part of the prompt begins."""
    prompt: list[str]
    """The new part, a text per token."""
    omitted: int
    """Tokens left out in the middle of `prompt`, after its first half."""
    output: list[str]
    output_tokens: int
    logprobs: list[float] | None
    weight: float | None
    """Of each output token in the update; None = it moved none."""
    update: str | None
    content: list[JsonValue]
    """The answer as blocks, as the harness got it."""


class Transcript(Contract):
    """All calls of one trial."""

    trial: str
    spelled: bool
    """Whether texts are texts; otherwise they are token ids."""
    problem: str | None
    """Why there is nothing to show."""
    calls: list[CallView]


type Moved = Mapping[str, tuple[str, float]]
"""Update and weight by interaction."""


async def spelling(reads: ReadClient, digest: str) -> Spelling | None:
    """The tokenizer with that digest, if it was kept and can be read here."""
    try:
        return Spelling(await reads.object(digest))
    except (NotFound, InvalidInput, ValueError):
        return None


async def transcript(
    reads: ReadClient, trial: Trial, moved: Moved, spell: Spelling | None
) -> Transcript:
    """The transcript of a trial; damaged or missing evidence is a `problem`."""
    seal = trial.settled.seal if trial.settled else None
    problem: str | None = None
    calls: list[Interaction] = []
    if seal is None:
        problem = f"no sealed evidence: the trial is {trial.state}"
    elif seal.object is None:
        problem = "the trial made no model call"
    else:
        try:
            calls = evidence.interactions(await reads.object(seal.object))
        except (InvalidInput, NotFound) as error:
            problem = str(error)
    known = {call.intent.interaction: call for call in calls}
    return Transcript(
        trial=trial.id,
        spelled=spell is not None,
        problem=problem,
        calls=[_call(call, known, moved, spell) for call in calls],
    )


def _call(
    call: Interaction,
    known: Mapping[str, Interaction],
    moved: Moved,
    spell: Spelling | None,
) -> CallView:
    intent, answer = call.intent, call.answer
    parent = known.get(intent.parent or "") if call.exact else None
    start = 0 if parent is None else len(parent.prompt) + len(parent.output)
    fresh = call.prompt[start:]
    omitted = max(0, len(fresh) - PROMPT_TOKENS)
    half = PROMPT_TOKENS // 2
    shown = fresh if not omitted else fresh[:half] + fresh[-half:]
    update, weight = moved.get(intent.interaction, (None, None))
    return CallView(
        interaction=intent.interaction,
        call=intent.sequence,
        agent=intent.agent,
        span=call.span,
        state=call.state,
        stop=answer.stop_reason if answer else None,
        at=intent.at,
        sampler=intent.sampler,
        prompt_tokens=len(call.prompt),
        new_from=start,
        prompt=_texts(shown, spell),
        omitted=omitted,
        output=_texts(call.output[:OUTPUT_TOKENS], spell),
        output_tokens=len(call.output),
        logprobs=None
        if call.logprobs is None
        else [round(value, 4) for value in call.logprobs[:OUTPUT_TOKENS]],
        weight=weight,
        update=update,
        content=answer.content if answer else [],
    )


def _texts(ids: Sequence[int], spell: Spelling | None) -> list[str]:
    return [str(number) for number in ids] if spell is None else spell.texts(ids)
