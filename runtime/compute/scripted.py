"""Scripted models: replies from a scenario, played in a family's real tokens and grammar.

Demonstrations recorded this way pass through the same proxy, harness and environments as a
model's own attempts. There is no distribution behind them, so they carry no log-probabilities
and their provenance is `scripted`.

Which reply comes is a function of the context, but for asides and errors: that one was played
is remembered here, per trial and agent, since neither counts as a call that the script foresees.
So is what replies captured, per trial. A process that starts again has forgotten it: an error
comes once more, an aside counts, and what was captured before is missed.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock

import anyio.to_thread
import numpy as np

from runtime.compute import models
from runtime.compute.protocol import SampleContext, Sampled, SamplingParams
from runtime.compute.scenario import Reply, Scenario, captured, filled, found
from runtime.formats.carried import load_codec
from runtime.formats.codec import Codec, Mark, Piece, spell
from runtime.formats.conversation import Block, Text, Thinking, ToolUse
from runtime.formats.families import Family, family_of
from specs.errors import Conflict, ErrorCode, ErrorObject, Unavailable
from specs.model import ModelInfo

_REMEMBERED = 4096
"""Agents of trials whose asides and errors are remembered."""


@dataclass(slots=True)
class _Played:
    """What an agent of a trial has had beside the replies that count."""

    asides: set[int] = field(default_factory=set[int])
    """Numbers of its calls that asides answered."""
    errors: set[int] = field(default_factory=set[int])
    """Places in its script of the errors that were raised."""


class ScriptedCompute:
    """Sampling from the models with backend `scripted`."""

    def __init__(self) -> None:
        self._played: OrderedDict[tuple[str, str, str, str], _Played] = OrderedDict()
        self._captured: OrderedDict[tuple[str, str, str], dict[str, str]] = OrderedDict()
        self._lock = Lock()

    async def models(self) -> list[ModelInfo]:
        """Every registered scenario."""
        return [info for info in models.list_models() if info.backend == "scripted"]

    async def sample(
        self,
        model: str,
        params: SamplingParams,
        *,
        num_samples: int,
        context: SampleContext,
    ) -> list[Sampled]:
        """The reply that the scenario has for `context`, the same for every sample.

        It ends with a stop token of its family unless `max_tokens` or the script cuts it off.
        Cancelling abandons the answer; an error or aside then counts as played.

        Raises:
            Conflict: `scenario_exhausted`: the scenario has no such reply; `scenario_unmatched`:
                what the reply is to capture is not in the text that it answers.
            Unavailable: `overloaded` or `connection_dropped`, on cue; nothing was sampled. Its
                object is the scenario, with `pointer` `/error/<cue>`.
        """
        sampled = await anyio.to_thread.run_sync(self._sample, model, context, params.max_tokens)
        return [sampled] * num_samples

    def _sample(self, model: str, context: SampleContext, max_tokens: int) -> Sampled:
        scenario = models.scenario(model)
        with self._lock:
            reply = self._filled(model, self._choose(model, scenario, context), context)
        if isinstance(reply, Reply) and reply.error is not None:
            raise _on_cue(model, reply.error)
        info = models.model_info(model)
        codec = _codec(info.tokenizer_digest, model)
        family = family_of(info, codec)
        tokens, cut = _tokens(reply, family, codec, context.begun)
        whole = len(tokens) <= max_tokens and not cut
        kept = np.array(tokens[:max_tokens], np.int32)
        return Sampled(kept, None, "stop" if whole else "length", "scripted")

    def _choose(self, model: str, scenario: Scenario, context: SampleContext) -> str | Reply:
        replies, number = _script(scenario, context)
        played = self._memory(model, context)
        for aside in (*replies, *scenario.asides):
            if isinstance(aside, Reply) and found(aside.when, context.request):
                played.asides.add(number)
                return aside
        counted = number - sum(1 for aside in played.asides if aside < number)
        for place, reply in enumerate(replies):
            if isinstance(reply, Reply) and reply.when is not None:
                continue
            if isinstance(reply, Reply) and reply.error is not None:
                if counted == 0 and place not in played.errors:
                    played.errors.add(place)
                    return reply
                continue
            if counted == 0:
                return reply
            counted -= 1
        raise _exhausted(model, context, len(replies), number)

    def _filled(self, model: str, reply: str | Reply, context: SampleContext) -> str | Reply:
        """The reply with what has been captured, by it and by those before it, in its place."""
        if isinstance(reply, str):
            return reply
        key = (model, context.task, context.trial)
        values = _recalled(self._captured, key, dict[str, str]())
        for name, value in captured(reply, context.request).items():
            if value is None:
                raise _unmatched(model, context, name)
            values[name] = value
        try:
            return filled(reply, values)
        except KeyError as error:
            raise _unmatched(model, context, str(error.args[0])) from None

    def _memory(self, model: str, context: SampleContext) -> _Played:
        key = (model, context.task, context.trial, context.agent)
        return _recalled(self._played, key, _Played())


def _recalled[K, V](memory: OrderedDict[K, V], key: K, fresh: V) -> V:
    """What is remembered under a key, the eldest of too many forgotten."""
    found = memory.setdefault(key, fresh)
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
    return found


def _script(scenario: Scenario, context: SampleContext) -> tuple[Sequence[str | Reply], int]:
    """The replies of the agent that asks, and which of its calls this is, from 0."""
    own = context.agent_call if context.agent_call is not None else context.call
    scripts = scenario.agents.get(context.task)
    if scripts is None:
        return scenario.replies.get(context.task, []), context.call
    if context.order == 0:
        return scenario.replies.get(context.task, []), own
    for script in scripts:
        if found(script.when, context.opening):
            return script.replies, own
    unnamed = [script for script in scripts if script.when is None]
    place = context.order - 1
    return unnamed[place].replies if place < len(unnamed) else [], own


def _tokens(
    reply: str | Reply, family: Family, codec: Codec, begun: str | None
) -> tuple[list[int], bool]:
    """The ids of a reply with its stop, and whether it stays open.

    Behind an answer that its prompt has begun comes the rest of it; behind the beginning of a
    call, the reply's calls, if they are what was begun.
    """
    cut = isinstance(reply, Reply) and reply.stop == "length"
    if isinstance(reply, Reply) and reply.raw is None:
        blocks = _blocks(reply)
        if begun and reply.calls:
            blocks = [block for block in blocks if isinstance(block, ToolUse)]
        pieces = family.answer(blocks, cut=cut, quiet=begun is not None)
        return list(codec.encode(_behind(pieces, begun or ""))), cut
    pieces = _exact(codec, reply if isinstance(reply, str) else reply.raw or "")
    ended = bool(pieces) and isinstance(pieces[-1], Mark) and pieces[-1].token in family.stops
    if not cut and not ended:
        pieces.append(Mark(family.stops[0]))
    return list(codec.encode(pieces)), cut


def _behind(pieces: Sequence[Piece], begun: str) -> Sequence[Piece]:
    """What is left of an answer behind its beginning; all of it, if it begins otherwise."""
    left = begun
    for place, piece in enumerate(pieces):
        if not left:
            return pieces[place:]
        text = spell([piece])
        if left.startswith(text):
            left = left[len(text) :]
        elif isinstance(piece, str) and piece.startswith(left):
            return [piece[len(left) :], *pieces[place + 1 :]]
        else:
            return pieces
    return pieces if left else []


def _blocks(reply: Reply) -> list[Block]:
    blocks: list[Block] = [Thinking(reply.thinking)] if reply.thinking else []
    blocks += [Text(reply.text)] if reply.text else []
    return blocks + [ToolUse("", call.name, call.input) for call in reply.calls]


def _exact(codec: Codec, text: str) -> list[Piece]:
    """Text in which the spelling of a control token is that token."""
    spelled = "|".join(re.escape(name) for name in sorted(codec.names, key=len, reverse=True))
    parts = re.split(f"({spelled})", text)
    return [Mark(part) if index % 2 else part for index, part in enumerate(parts) if part]


@cache
def _codec(digest: str, model: str) -> Codec:
    """A tokenizer, which its digest pins, so loaded once; `model` is one that has it."""
    del digest
    return load_codec(models.tokenizer_bytes(model))


def _on_cue(model: str, cue: str) -> Unavailable:
    return Unavailable(
        f"The scenario of {model} says {cue} here.",
        code=ErrorCode.OVERLOADED if cue == "overloaded" else ErrorCode.CONNECTION_DROPPED,
        object=ErrorObject(type="scenario", id=model, pointer=f"/error/{cue}"),
        next="Send the request again: the next reply follows.",
    )


def _exhausted(model: str, context: SampleContext, size: int, number: int) -> Conflict:
    who = f"agent {context.order} of task" if context.order else "task"
    return Conflict(
        f"Model {model} has {size} replies for {who} {context.task!r}, "
        f"and call {number} (from 0) needs one more.",
        code=ErrorCode.SCENARIO_EXHAUSTED,
        object=ErrorObject(type="model", id=model, pointer=f"/replies/{context.task}"),
        next="Add the reply to the scenario and register it again.",
    )


def _unmatched(model: str, context: SampleContext, name: str) -> Conflict:
    return Conflict(
        f"Model {model} is to say {name!r}, which it has not found in what it answers"
        f" (task {context.task!r}): …{context.request[-200:]}",
        code=ErrorCode.SCENARIO_UNMATCHED,
        object=ErrorObject(type="model", id=model, pointer=f"/replies/{context.task}"),
        next="Compare the reply's `capture` with the text, and register the scenario again.",
    )
