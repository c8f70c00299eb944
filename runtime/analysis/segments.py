"""The text of a trial's calls in bounded segments, each with its place among the tokens.

A call is one sequence: its prompt, then its output. Of a prompt only what is new is read, unless
a span of the sequence is asked for. A page holds at most so many tokens; its cursor is
`call.place`, so reading on gives every token once. Texts are spelled from the recorded ids,
never the other way round (invariant 1).
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.formats.bytelevel import Spelling
from specs.base import Contract
from specs.interaction import Interaction


class Segment(Contract):
    """Neighbouring tokens of a call, all of its prompt or all of its output."""

    call: int
    agent: str
    """The harness's own name of the agent that called."""
    part: Literal["prompt", "output"]
    start: int
    """Place of the first token in the call's sequence."""
    end: int
    """One past the last."""
    text: str
    ids: list[int] | None = None
    logprobs: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tokens: calls `first` … `last`, or of one call the places `start` … `end`."""

    first: int = 0
    last: int | None = None
    start: int | None = None
    end: int | None = None

    def parts(self, calls: Sequence[Interaction]) -> "Iterator[_Part]":
        """Both parts of every wanted call, cut to the wanted span."""
        known = {call.intent.interaction: call for call in calls}
        spanned = self.start is not None or self.end is not None
        for call in calls:
            number = call.intent.sequence
            if number < self.first or (self.last is not None and number > self.last):
                continue
            prompt, whole = len(call.prompt), len(call.prompt) + len(call.output)
            low = (self.start or 0) if spanned else _fresh(call, known)
            high = whole if self.end is None else min(self.end, whole)
            yield _Part(call, "prompt", low, min(high, prompt))
            yield _Part(call, "output", max(low, prompt), high)


@dataclass(frozen=True, slots=True)
class _Part:
    call: Interaction
    name: Literal["prompt", "output"]
    start: int
    end: int


def segments(
    calls: Sequence[Interaction],
    wanted: Wanted,
    spell: Spelling | None,
    *,
    limit: int,
    after: tuple[int, int] = (0, 0),
    ids: bool = False,
) -> tuple[list[Segment], str | None]:
    """One page of at most `limit` tokens from a place on, and the cursor of the next.

    Without `spell` the texts are the ids.
    """
    page: list[Segment] = []
    left = limit
    for part in wanted.parts(calls):
        number = part.call.intent.sequence
        if number < after[0]:
            continue
        start = max(part.start, after[1]) if number == after[0] else part.start
        if start >= part.end:
            continue
        if left == 0:
            return page, f"{number}.{start}"
        end = min(part.end, start + left)
        page.append(_segment(part, start, end, spell, ids=ids))
        left -= end - start
        if end < part.end:
            return page, f"{number}.{end}"
    return page, None


def _segment(part: _Part, start: int, end: int, spell: Spelling | None, *, ids: bool) -> Segment:
    call, prompt = part.call, len(part.call.prompt)
    base, tokens = (0, call.prompt) if part.name == "prompt" else (prompt, call.output)
    low, high = start - base, end - base
    logprobs = call.logprobs if ids and part.name == "output" else None
    return Segment(
        call=call.intent.sequence,
        agent=call.intent.agent,
        part=part.name,
        start=start,
        end=end,
        text=_text(tokens, low, high, spell),
        ids=tokens[low:high].tolist() if ids else None,
        logprobs=None if logprobs is None else [round(p, 6) for p in logprobs[low:high]],
    )


def _text(tokens: "array[int]", low: int, high: int, spell: Spelling | None) -> str:
    """A character made of several tokens stands at the last of them, on whichever page."""
    if spell is None:
        return " ".join(map(str, tokens[low:high]))
    return "".join(spell.texts(tokens)[low:high])


def _fresh(call: Interaction, known: dict[str, Interaction]) -> int:
    """Where the new part of a prompt begins."""
    parent = known.get(call.intent.parent or "") if call.exact else None
    return 0 if parent is None else len(parent.prompt) + len(parent.output)
