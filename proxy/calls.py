"""Admission of a model call: what it continues, its prompt, its parameters, its intent.

Clients wait for a call and may go away: the call completes all the same and becomes
`superseded`; the same request (same session, agent and body) is then given that answer and
nothing is sampled again. Identical requests at one time wait for one call (invariant 2).
A request that its harness marks as a repetition also gets an answer that was sent before.
"""

import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from anyio.abc import TaskGroup
from pydantic import JsonValue

from proxy.chains import Chains, scene_of
from proxy.context import sample_context
from proxy.dialects.base import Dialect, Request, Scored
from proxy.live import Life
from proxy.models import Voice, Voices
from proxy.pool import Pool
from proxy.prompts import render, startable
from proxy.registry import Registry
from proxy.sampling import Spent, decide
from proxy.trials import Call, CallKey, Trial, now
from proxy.turns import Match, Party, Scene, Turn
from runtime.formats.codec import Codec
from runtime.formats.conversation import Conversation, Text, ToolResult
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError
from specs.evidence import prompt_hash
from specs.ids import Prefix, new_id
from specs.interaction import Intent, Refusal, SamplingUsed, Superseded
from specs.worker_api import TrialClaims

_MAX_REFUSED_BODY = 65536
_COMPRESSION = 1


@dataclass(frozen=True, slots=True)
class Joined:
    """A call that a client now waits for, and how it wants the answer."""

    trial: Trial
    call: Call
    stream: bool
    asked: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    codec: Codec | None = None
    """Spells the tokens for a client that asked for their log-probabilities."""

    def scored(self) -> list[Scored] | None:
        """The tokens of the answer with their log-probabilities, where they are to be shown."""
        values = self.call.logprobs
        if self.codec is None or values is None:
            return None
        tokens = zip(self.call.turn.output, values, strict=True)
        return [Scored(self.codec.token(number), value) for number, value in tokens]


@dataclass(frozen=True, slots=True)
class _Sought:
    """What is looked for in the history."""

    scene: Scene
    marks: list[bytes]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as it came and as it was read."""

    dialect: Dialect
    party: Party
    body: bytes
    request: Request
    sought: _Sought

    @property
    def key(self) -> CallKey:
        return (self.party, self.request.digest)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What the model is to read, and what it continues.

    :ivar rest: the tokens behind those of the turn that it continues.
    """

    match: Match
    tokens: "array[int]"
    rest: "array[int]"


class Calls:
    """Admits model calls and keeps account of who waits for them.

    Args:
        registry: the trials.
        voices: samplers and their tokenizers.
        life: carries out what was admitted.
        tasks: where calls run; cancelling it loses what is under way, on the record.
    """

    def __init__(self, registry: Registry, voices: Voices, life: Life, tasks: TaskGroup) -> None:
        self._registry = registry
        self._voices = voices
        self._life = life
        self._tasks = tasks
        self._pool = Pool()

    async def ask(
        self, dialect: Dialect, claims: TrialClaims, party: Party, body: bytes, *, retry: bool
    ) -> Joined:
        """The call that answers a request: a new one, or one that it joins.

        The caller waits on the call and must tell `Life.leave` when it no longer does. `retry`
        says that the harness marked the request as a repetition. On cancel before this returns,
        no call has begun.

        Raises:
            PracticumError: the call was refused; that is durable in the trial's evidence
                unless the trial has ended meanwhile.
        """
        trial = await self._registry.trial(claims)
        try:
            request = await self._pool.run(len(body), dialect.read, body)
            sought = await self._sought(trial, request.conversation, claims, len(body))
            asked = _Asked(dialect, party, body, request, sought)
            voice = await self._voices.load(claims.sampler)
            async with trial.lock:
                self._registry.check_open(trial)
                call = _known(trial, asked.key, retry=retry, stream=request.stream)
                if call is None:
                    call = await self._begin(trial, claims, asked, voice)
                call.waiters += 1
                codec = voice.codec if request.logprobs else None
                return Joined(trial, call, request.stream, request.requested, codec)
        except PracticumError as error:
            if error.problem.status < 500 and not trial.sealing:
                await self._refuse(trial, body, error)
            raise

    async def count(self, dialect: Dialect, claims: TrialClaims, party: Party, body: bytes) -> int:
        """How many tokens the prompt of a request would have."""
        trial = await self._registry.trial(claims)
        conversation = await self._pool.run(len(body), dialect.read_count, body)
        sought = await self._sought(trial, conversation, claims, len(body))
        voice = await self._voices.load(claims.sampler)
        conversation, _ = startable(voice, conversation)
        prompt = await self._prompt(trial, party, voice, conversation, sought, len(body))
        return len(prompt.tokens)

    async def _begin(self, trial: Trial, claims: TrialClaims, asked: _Asked, voice: Voice) -> Call:
        """Render, decide and submit the intent; the call's own task takes over from there."""
        request, party, sought = asked.request, asked.party, asked.sought
        conversation, vain = startable(voice, request.conversation)
        prompt = await self._prompt(trial, party, voice, conversation, sought, len(asked.body))
        sampling = decide(
            request,
            claims,
            voice.info,
            prompt_tokens=len(prompt.tokens),
            sequence=trial.sequence,
            spent=_spent(trial),
        )
        packed = await self._compress(asked.body)
        one_call = request.one_call and voice.family.ends_calls
        if request.one_call and (not one_call or voice.info.backend == "upstream"):
            vain |= {"parallel_tool_calls"}
        intent = _intent(trial, claims, asked, prompt, sampling, vain)
        extends = prompt.match.extends
        turn = Turn(
            interaction=intent.interaction,
            base=extends,
            suffix=prompt.rest if extends else prompt.tokens,
            output=array("i"),
            scene=sought.scene,
            party=party,
            start=conversation.start,
        )
        call = Call(
            asked.key,
            intent,
            turn,
            conversation.messages,
            sought.marks,
            system=conversation.system,
            begun=voice.family.begun(conversation),
            one_call=one_call,
            streamed=request.stream,
        )
        if prompt.match.retried is not None:
            name, reason = prompt.match.retried.interaction, "empty_reply"
            trial.append(Superseded(interaction=name, at=now(), reason=reason), {})
            trial.set_aside(prompt.match.retried)
        ticket = trial.append(intent, {"suffix": turn.suffix, "request": array("B", packed)})
        trial.begin(call)
        self._tasks.start_soon(
            self._life.run,
            trial,
            call,
            voice,
            prompt.tokens,
            sample_context(trial, claims.task, party, conversation, voice),
            ticket,
            conversation.tools if request.calls_allowed else (),
            name=intent.interaction,
        )
        return call

    async def _sought(
        self, trial: Trial, conversation: Conversation, claims: TrialClaims, size: int
    ) -> _Sought:
        """What is looked for in the history; `size` is that of the request."""
        _check_prefill(conversation)
        return await self._pool.run(size, _looked_for, trial.chains, conversation, claims.sampler)

    async def _prompt(
        self,
        trial: Trial,
        party: Party,
        voice: Voice,
        conversation: Conversation,
        sought: _Sought,
        size: int,
    ) -> _Prompt:
        """Find what a conversation continues and encode the rest; `size` is the request's."""
        match = trial.chains.match(conversation, sought.scene, party, voice.stops, sought.marks)
        new = size if match.base is None else _text_from(conversation, match.start)
        rest = await self._pool.run(new, render, voice, conversation, match)
        tokens = match.base.tokens() if match.base else array("i")
        tokens.extend(rest)
        return _Prompt(match, tokens, rest)

    async def _compress(self, body: bytes) -> bytes:
        return await self._pool.run(len(body), zlib.compress, body, _COMPRESSION)

    async def _refuse(self, trial: Trial, body: bytes, error: PracticumError) -> None:
        """Put a refused call on the record, with its body unless that is large.

        A trial that ends meanwhile takes no more: what its seal counts is settled.
        """
        packed = await self._compress(body) if len(body) <= _MAX_REFUSED_BODY else b""
        problem = error.problem
        limit = problem.object.pointer if problem.object and problem.object.pointer else ""
        limited = limit.startswith("/limits/")
        async with trial.lock:  # its sequence is not taken from a call that is being admitted
            if trial.sealing:
                return
            record = Refusal(
                interaction=new_id(Prefix.INTERACTION),
                trial=trial.key.trial,
                sequence=trial.sequence,
                at=now(),
                code=limit.removeprefix("/limits/") if limited else problem.code,
                detail=problem.detail[:2000],
            )
            ticket = trial.append(record, {"request": array("B", packed)} if packed else {})
            trial.sequence += 1
        await ticket.wait()


def _looked_for(chains: Chains, conversation: Conversation, sampler: str) -> _Sought:
    return _Sought(scene_of(conversation, sampler), chains.marks(conversation.messages))


def _intent(
    trial: Trial,
    claims: TrialClaims,
    asked: _Asked,
    prompt: _Prompt,
    sampling: SamplingUsed,
    vain: frozenset[str],
) -> Intent:
    """The record of a call that is about to begin; `vain` are the wishes that nothing enforces."""
    request, match = asked.request, prompt.match
    unenforced = {f"unenforced:{name}" for name in vain}
    return Intent(
        interaction=new_id(Prefix.INTERACTION),
        trial=trial.key.trial,
        fence=trial.key.fence,
        sequence=trial.sequence,
        at=now(),
        session=asked.party.session,
        agent=asked.party.agent,
        parent=match.extends.interaction if match.extends else None,
        branch=match.branch,
        normalisations=tuple(sorted({*request.normalisations, *match.notes, *unenforced})),
        prompt_tokens=len(prompt.tokens),
        prompt_sha256=prompt_hash(prompt.tokens),
        sampler=claims.sampler,
        sampling=sampling,
        requested=dict(request.requested),
        request_digest=request.digest,
        dialect=asked.dialect.name,
    )


def _known(trial: Trial, key: CallKey, *, retry: bool, stream: bool) -> Call | None:
    """The call that a request repeats.

    A harness whose stream broke asks for the same again, whole: the proxy may have seen every
    event leave, so an answer that was streamed and that nothing continues is given once more.
    """
    call, last = trial.open.get(key), trial.last.get(key)
    if call is not None or last is None:
        return call
    fallback = last.streamed and not stream and not last.turn.followers
    return last if retry or fallback else None


def _spent(trial: Trial) -> Spent:
    return Spent(
        calls=trial.answered + len(trial.under_way),
        output_tokens=trial.output_tokens
        + sum(call.intent.sampling.max_tokens for call in trial.under_way),
    )


def _check_prefill(conversation: Conversation) -> None:
    """A final assistant turn is the beginning of the answer and can hold only text."""
    last = conversation.messages[-1]
    if last.role == "assistant" and not all(isinstance(block, Text) for block in last.blocks):
        index = len(conversation.messages) - 1
        raise InvalidInput(
            f"messages.{index}: a final assistant turn may hold text only",
            code=ErrorCode.UNSUPPORTED_CONTENT,
            object=ErrorObject(type="request", pointer=f"/messages/{index}"),
            next="Send the results of the tool calls as the last turn.",
        )


def _text_from(conversation: Conversation, start: int) -> int:
    """Characters of the messages from `start`."""
    return sum(
        len(block.text)
        for message in conversation.messages[start:]
        for block in message.blocks
        if isinstance(block, Text | ToolResult)
    )
