"""The life of an admitted call: intent durable, sampled, answer durable, then anyone is told.

Nothing that ends a call before its answer is durable passes silently: the call is recorded as
failed and counts as lost. Cancelling its scope does the same.
"""

import logging
import time
from array import array
from collections.abc import Sequence

import anyio
import numpy as np

from proxy.gateway import Gateway
from proxy.models import Voice
from proxy.sampling import params
from proxy.spool import Ticket
from proxy.trials import Call, Trial, now
from runtime.compute.protocol import Compute, SampleContext, Sampled
from runtime.formats.conversation import Tool
from specs.errors import ErrorCode, ErrorObject, Internal, NotFound, PracticumError, Unavailable
from specs.interaction import Answer, Failure, SamplingUsed, Superseded

PATIENCE_SEC = 20.0
"""How long a call waits for a compute process that is starting again."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_log = logging.getLogger(__name__)


class Life:
    """Carries out calls.

    Args:
        compute: samples.
        gateway: has the adapters that compute lacks.
        patience: seconds to wait for a compute process that is away.
    """

    def __init__(
        self, compute: Compute, gateway: Gateway, *, patience: float = PATIENCE_SEC
    ) -> None:
        self._compute = compute
        self._gateway = gateway
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
            with anyio.CancelScope() as call.scope:
                if call.abandoned:
                    call.scope.cancel()
                await intent.wait()
                call.started.set()
                begun = time.monotonic()
                sampled = await self._sample(voice, prompt, call.intent.sampling, context)
                await self._answer(trial, call, voice, sampled, tools)
                _log.info("answered", extra=_facts(call, len(prompt), sampled, begun))
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
            trial.under_way.discard(call)

    def leave(self, trial: Trial, call: Call, *, delivered: bool) -> None:
        """A client no longer waits; `delivered` if it was sent the whole answer."""
        call.waiters -= 1
        call.delivered = call.delivered or delivered
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

    async def _sample(
        self, voice: Voice, prompt: "array[int]", used: SamplingUsed, context: SampleContext
    ) -> Sampled:
        """Sample; a compute process that is away is waited for, a missing adapter is sent."""
        ids = np.frombuffer(prompt, dtype=np.int32)
        deadline = anyio.current_time() + self._patience
        pause, sent = _FIRST_PAUSE, False
        while True:
            try:
                sequences = await self._compute.sample(
                    voice.sampler, ids, params(used), num_samples=1, context=context
                )
                return _checked(sequences[0], used)
            except PracticumError as error:
                if error.problem.code is ErrorCode.ADAPTER_MISSING and not sent:
                    sent = True
                    await self._send_adapter(voice)
                    continue
                if not isinstance(error, Unavailable) or anyio.current_time() + pause > deadline:
                    raise
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _send_adapter(self, voice: Voice) -> None:
        digest = voice.ref.adapter
        if digest is None:
            raise Internal("Compute misses an adapter for a sampler that has none.")
        try:
            data = await self._gateway.object(digest)
        except NotFound as error:
            raise error.with_object(ErrorObject(type="sampler", id=voice.ref.id)) from None
        await self._compute.put_adapter(digest, data)

    async def _answer(
        self, trial: Trial, call: Call, voice: Voice, sampled: Sampled, tools: Sequence[Tool]
    ) -> None:
        """Derive the content, make the record durable, then let the call be seen."""
        output = array("i", sampled.tokens.astype(np.int32).tobytes())
        parsed = voice.family.parse(
            voice.codec.pieces(output),
            call=call.intent.interaction,
            tools=tools,
            prefilled=call.messages[-1].role == "assistant",
        )
        answer = Answer(
            interaction=call.intent.interaction,
            at=now(),
            stop_reason=sampled.stop_reason,
            provenance=sampled.provenance,
            content=parsed.content,
            parse_error=parsed.parse_error,
            superseded=call.waiters == 0,
        )
        arrays: dict[str, array[int] | array[float]] = {"output": output}
        if sampled.logprobs is not None:
            arrays["logprobs"] = array("f", sampled.logprobs.astype(np.float32).tobytes())
        with anyio.CancelScope(shield=True):  # once sampled it is recorded, come what may
            await trial.append(answer, arrays).wait()
        call.turn.output = output
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
        )
        try:
            await trial.append(record, {}).wait()
        except Unavailable as failure:  # the intent alone says the same: it is lost
            _log.warning("failure not recorded", extra={"cause": str(failure)})
        _log.warning("lost", extra={"interaction": call.intent.interaction, "cause": str(error)})
        call.fail(error)


def _checked(sampled: Sampled, used: SamplingUsed) -> Sampled:
    """A sequence that keeps to what was asked for.

    Raises:
        Internal: compute broke its contract; nothing of it may become evidence.
    """
    size = len(sampled.tokens)
    ends = bool(size) and int(sampled.tokens[-1]) in used.stop
    if size > used.max_tokens or (sampled.stop_reason == "stop" and not ends):
        raise Internal(f"Compute returned {size} tokens that break their own parameters.")
    if sampled.logprobs is not None and len(sampled.logprobs) != size:
        raise Internal(f"Compute returned {len(sampled.logprobs)} log-probs of {size} tokens.")
    return sampled


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
