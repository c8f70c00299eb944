"""Reading a trial's conversation in bounded segments, by range of calls or by span of tokens."""

from typing import Annotated

from pydantic import Field

from runtime.analysis.segments import Segment, Wanted, segments
from runtime.analysis.transcript import spelling
from specs import evidence
from specs.base import Contract
from specs.cursors import foreign, position
from specs.errors import ErrorObject, InvalidInput
from tools.context import Context
from tools.evidence import TrialRef, evidence_of, find_trial, sealed
from tools.fields import Cursor, Input, RunRef
from tools.registry import READ, operation


class Read(Input):
    run: RunRef
    trial: TrialRef
    first: Annotated[int, Field(ge=0, description="First call, from 0")] = 0
    last: Annotated[int | None, Field(ge=0, description="Last call")] = None
    start: Annotated[
        int | None, Field(ge=0, description="First token, prompt included, of the one call")
    ] = None
    end: Annotated[int | None, Field(ge=0, description="One past the last token")] = None
    tokens: Annotated[bool, Field(description="With token ids and log-probabilities")] = False
    token_limit: Annotated[int, Field(ge=1, le=20_000, description="Tokens on one page")] = 2000
    cursor: Cursor = None


class TranscriptPage(Contract):
    """A piece of a conversation."""

    run: str
    trial: str
    task: str
    calls: int
    """Calls of the trial in all."""
    spelled: bool
    """False: the tokenizer cannot be read here, and texts are token ids."""
    items: list[Segment]
    next: str | None = None


def _text(page: TranscriptPage) -> str:
    parts = [f"trial {page.trial} of {page.task}, {page.calls} calls"]
    for one in page.items:
        parts.append(f"--- call {one.call} ({one.agent}) {one.part} tokens {one.start}:{one.end}")
        parts.append(one.text)
    if page.next is not None:
        parts.append(f"more: --cursor {page.next}")
    return "\n".join(parts)


@operation("run", "transcript", READ, text=_text)
async def read(context: Context, request: Read) -> TranscriptPage:
    """Read what a trial's model was shown and said, as text of the recorded tokens.

    Of each prompt only what is new is read; `start` and `end` read any span of one call.
    """
    wanted = _wanted(request)
    after = _place(request.cursor)
    async with context.gateway() as gateway:
        trial = await find_trial(gateway, request.run, request.trial)
        seal = sealed(trial)
        data = await evidence_of(gateway, seal)
        sampler = (await gateway.run(trial.run)).spec.sampler
        spell = await spelling(gateway, sampler.tokenizer_digest)
    calls = evidence.interactions(data)
    items, following = segments(
        calls, wanted, spell, limit=request.token_limit, after=after, ids=request.tokens
    )
    return TranscriptPage(
        run=trial.run,
        trial=trial.id,
        task=trial.task,
        calls=len(calls),
        spelled=spell is not None,
        items=items,
        next=following,
    )


def _wanted(request: Read) -> Wanted:
    spanned = request.start is not None or request.end is not None
    if spanned and request.last not in (None, request.first):
        raise InvalidInput(
            "A span of tokens is of one call.",
            object=ErrorObject(type="arguments", pointer="/last"),
            next="Name the call with `first`, and leave `last` out.",
        )
    last = request.first if spanned else request.last
    return Wanted(request.first, last, request.start, request.end)


def _place(cursor: str | None) -> tuple[int, int]:
    call, _, place = (cursor or "0.0").partition(".")
    first, start = position(call), position(place)
    if first is None or start is None:
        raise foreign(cursor, "transcript")
    return first, start
