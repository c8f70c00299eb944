"""The life of an admitted call: intent durable, sampled, answer durable, then all of it is told.

Text and thinking are shown while sampling; what makes an answer complete only once it is
durable (invariant 2).

Nothing that ends a call before its answer is durable passes silently: the call is recorded as
failed and counts as lost. Cancelling its scope does the same.
"""

import logging
import time
from array import array
from collections.abc import Sequence
from typing import cast

import anyio
import numpy as np

from proxy.admission import Admission
from proxy.gateway import Gateway
from proxy.hearing import Heard, Hearing
from proxy.models import Voice
from proxy.sampling import params
from proxy.spool import Ticket
from proxy.trials import Call, Trial, now
from proxy.upstream import Upstreams
from runtime.compute.protocol import Compute, IntArray, SampleContext, Sampled
from runtime.formats.conversation import Conversation, Tool
from specs.errors import ErrorCode, ErrorObject, Internal, NotFound, PracticumError, Unavailable
from specs.interaction import Answer, Delivered, Failure, SamplingUsed, Superseded

PATIENCE_SEC = 20.0
"""How long a call waits for a compute process that is starting again."""

NEVER_SAMPLED = frozenset(
    {
        ErrorCode.CONNECTION_DROPPED,
        ErrorCode.OVERLOADED,
        ErrorCode.PROMPT_TOO_LONG,
        ErrorCode.SCENARIO_EXHAUSTED,
        ErrorCode.UPSTREAM_REFUSED,
    }
)
"""Errors by which a backend refuses a call whole; the harness is to see them at once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_log = logging.getLogger(__name__)


class Life:
    """Carries out calls.

    Args:
        compute: samples.
        gateway: has the adapters that compute lacks.
        admission: is told what is under way.
        patience: seconds to wait for a compute process that is away.
        upstreams: are asked where a model is somebody else's.
    """

    def __init__(
        self,
        compute: Compute,
        gateway: Gateway,
        admission: Admission,
        *,
        patience: float = PATIENCE_SEC,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._upstreams = upstreams or Upstreams()
        self._compute = compute
        self._gateway = gateway
        self._admission = admission
        self._patience = patience

    async def run(
        self,
        trial: Trial,
        call: Call,
        voice: Voice,
        prompt: "array[int]",
        context: SampleContext,
        intent: Ticket,
        tools: Sequence[Tool],
    ) -> None:
        """From a submitted intent to a settled call. On cancel the call is lost, durably."""
        error: PracticumError = _stopped(call)
        try:
            with self._admission.call(), anyio.CancelScope() as call.scope:
                if call.abandoned:
                    call.scope.cancel()
                await intent.wait()
                call.started.set()
                begun = time.monotonic()
                heard = await self._hear(call, voice, prompt, context, tools)
                await self._answer(trial, call, heard)
                _log.info("answered", extra=_facts(call, len(prompt), heard.sampled, begun))
        except PracticumError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - the boundary of a call; logged
            _log.exception("call failed", extra={"interaction": call.intent.interaction})
            error = Internal(
                f"The call failed: {type(failure).__name__}.", next="Look into the proxy's log."
            )
        finally:
            if call.result is None:
                with anyio.CancelScope(shield=True):
                    await self._lose(trial, call, error)
            call.showing.end()
            trial.under_way.discard(call)

    def leave(self, trial: Trial, call: Call, *, delivered: bool) -> None:
        """A client no longer waits; `delivered` if it was sent the whole answer."""
        call.waiters -= 1
        call.delivered = call.delivered or delivered
        if delivered and call.result is not None and not call.settled and not trial.closed:
            call.settled = True
            record = Delivered(interaction=call.intent.interaction, at=now())
            trial.append(record, {}, lazy=True)
        self.account(trial, call)

    def account(self, trial: Trial, call: Call) -> None:
        """Settle who has the answer, once it exists and nobody waits for it any more.

        A delivered answer is done with. One that reached nobody is superseded: its request is
        answered from the record if it comes again, also after a restart.
        """
        if call.waiters or call.result is None or call.superseded:
            return
        if call.delivered:
            trial.open.pop(call.key, None)
            return
        call.superseded = True
        if not trial.closed:
            trial.append(Superseded(interaction=call.intent.interaction, at=now()), {})

    async def _hear(
        self,
        call: Call,
        voice: Voice,
        prompt: "array[int]",
        context: SampleContext,
        tools: Sequence[Tool],
    ) -> Heard:
        """Sample and read; a compute process that is away is waited for, a missing adapter is
        sent. What a client was given is never sampled again: then the call fails. A backend
        that is full has sampled nothing, and the harness is told to come again."""
        ids = np.frombuffer(prompt, dtype=np.int32)
        deadline = anyio.current_time() + self._patience
        pause, sent = _FIRST_PAUSE, False
        while True:
            try:
                return await self._listen(call, voice, ids, context, tools)
            except PracticumError as error:
                if call.showing.taken or error.problem.code in NEVER_SAMPLED:
                    raise
                call.showing.restart()
                if error.problem.code is ErrorCode.ADAPTER_MISSING and not sent:
                    sent = True
                    await self._send_adapter(voice)
                    continue
                if not isinstance(error, Unavailable) or anyio.current_time() + pause > deadline:
                    raise
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _listen(
        self,
        call: Call,
        voice: Voice,
        ids: IntArray,
        context: SampleContext,
        tools: Sequence[Tool],
    ) -> Heard:
        """Read an answer as it is sampled, and show what may be shown (invariant 2)."""
        name, used = call.intent.interaction, call.intent.sampling
        if voice.info.backend == "upstream":
            asked = Conversation(call.system, tuple(tools), call.messages)
            return await self._upstreams.hear(voice, name, asked, used)
        prefilled = call.messages[-1].role == "assistant"
        reader = voice.family.reader(call=name, tools=tools, prefilled=prefilled, begun=call.begun)
        decoder, stops = voice.codec.decoder(), used.stop_sequences
        hearing = Hearing(name, decoder, reader, stops, one_call=call.one_call)
        sampling = self._compute.stream(voice.sampler, ids, params(used), context=context)
        async with sampling as chunks:
            async for chunk in chunks:
                call.showing.add(hearing.feed(chunk))
                if hearing.over:
                    break
        return _checked(hearing.close(), used)

    async def _send_adapter(self, voice: Voice) -> None:
        digest = voice.ref.adapter
        if digest is None:
            raise Internal("Compute misses an adapter for a sampler that has none.")
        try:
            data = await self._gateway.object(digest)
        except NotFound as error:
            raise error.with_object(ErrorObject(type="sampler", id=voice.ref.id)) from None
        await self._compute.put_adapter(digest, data)

    async def _answer(self, trial: Trial, call: Call, heard: Heard) -> None:
        """Make the record durable, then let the whole answer be seen."""
        sampled = heard.sampled
        output = array("i", sampled.tokens.astype(np.int32).tobytes())
        answer = Answer(
            interaction=call.intent.interaction,
            at=now(),
            stop_reason=heard.stop_reason,
            stop_sequence=heard.stop_sequence,
            provenance=sampled.provenance,
            content=heard.content,
            parse_error=heard.parse_error,
            superseded=call.waiters == 0,
        )
        arrays: dict[str, array[int] | array[float]] = {"output": output}
        if sampled.logprobs is not None:
            arrays["logprobs"] = array("f", sampled.logprobs.astype(np.float32).tobytes())
        with anyio.CancelScope(shield=True):  # once sampled it is recorded, come what may
            await trial.append(answer, arrays).wait()
        call.turn.output = output
        call.logprobs = cast("array[float] | None", arrays.get("logprobs"))
        call.superseded = answer.superseded
        trial.settle(call, answer)
        self.account(trial, call)

    async def _lose(self, trial: Trial, call: Call, error: PracticumError) -> None:
        trial.abandon(call)
        record = Failure(
            interaction=call.intent.interaction,
            at=now(),
            code=error.problem.code,
            detail=error.problem.detail[:2000],
            sampled=error.problem.code not in NEVER_SAMPLED,
        )
        try:
            await trial.append(record, {}).wait()
        except Unavailable as failure:  # the intent alone says the same: it is lost
            _log.warning("failure not recorded", extra={"cause": str(failure)})
        _log.warning("lost", extra={"interaction": call.intent.interaction, "cause": str(error)})
        call.fail(error)


def _checked(heard: Heard, used: SamplingUsed) -> Heard:
    """An answer whose tokens keep to what was asked for.

    Raises:
        Internal: compute broke its contract; nothing of it may become evidence.
    """
    sampled = heard.sampled
    size = len(sampled.tokens)
    ends = bool(size) and int(sampled.tokens[-1]) in used.stop
    if size > used.max_tokens or (sampled.stop_reason == "stop" and not ends):
        raise Internal(f"Compute returned {size} tokens that break their own parameters.")
    if sampled.logprobs is not None and len(sampled.logprobs) != size:
        raise Internal(f"Compute returned {len(sampled.logprobs)} log-probs of {size} tokens.")
    return heard


def _stopped(call: Call) -> Unavailable:
    return Unavailable(
        "The call was stopped before it was answered.",
        object=ErrorObject(type="interaction", id=call.intent.interaction),
        next="Send the request again if the trial goes on.",
    )


def _facts(call: Call, prompt: int, sampled: Sampled, begun: float) -> dict[str, object]:
    return {
        "interaction": call.intent.interaction,
        "trial": call.intent.trial,
        "prompt_tokens": prompt,
        "output_tokens": len(sampled.tokens),
        "seconds": round(time.monotonic() - begun, 3),
    }
