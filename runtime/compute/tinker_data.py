"""Our values in the types of the training service, and what is refused before it is asked.

Loss names are the service's own, so a loss of the protocol needs no entry here. The service is
not relied on to refuse what makes no sense: it would do so late, or not at all.
"""

import math
from collections.abc import Sequence
from typing import cast, get_args

import numpy as np
import numpy.typing as npt
from tinker import types

from runtime.compute.losses import LOSS_INPUTS, Loss
from runtime.compute.protocol import (
    AdamParams,
    Datum,
    FloatArray,
    IntArray,
    Sampled,
    SamplingParams,
)
from specs.errors import ErrorCode, ErrorObject, Internal, InvalidInput

LOSSES = frozenset[str](get_args(types.LossFnType))
"""Losses that the service has."""


def to_loss(loss: Loss) -> types.LossFnType:
    """A loss by the service's name.

    Raises:
        InvalidInput: it has none of that name.
    """
    if loss.value not in LOSSES:
        raise _bad_call("training", f"the service has no loss {loss.value}", "/loss")
    return cast(types.LossFnType, loss.value)


def to_datum(datum: Datum, loss: Loss) -> types.Datum:
    """A datum for the service. Log-probs that no advantage reads are sent as 0, never NaN."""
    inputs = {name: datum.inputs[name] for name in LOSS_INPUTS[loss]}
    if "logprobs" in inputs:
        inputs["logprobs"] = np.where(datum.inputs["advantages"] != 0, inputs["logprobs"], 0.0)
    tensors = {
        name: types.TensorData.from_numpy(np.asarray(values, np.float32))
        for name, values in inputs.items()
    }
    tensors["target_tokens"] = types.TensorData.from_numpy(datum.targets.astype(np.int64))
    return types.Datum(model_input=to_input(datum.tokens), loss_fn_inputs=tensors)


def to_input(tokens: IntArray) -> types.ModelInput:
    """Ids as the service takes them."""
    ids: list[int] = tokens.tolist()
    return types.ModelInput.from_ints(ids)


def to_sampling(params: SamplingParams, seed: int | None, room: int) -> types.SamplingParams:
    """Sampling parameters; `room` bounds the tokens, since the service refuses to overrun."""
    return types.SamplingParams(
        max_tokens=min(params.max_tokens, room),
        seed=seed,
        stop=list(params.stop),
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
    )


def to_adam(params: AdamParams) -> types.AdamParams:
    """Parameters of a step."""
    return types.AdamParams(
        learning_rate=params.learning_rate,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
        grad_clip_norm=params.grad_clip_norm,
    )


def from_sequence(sequence: types.SampledSequence, params: SamplingParams) -> Sampled:
    """A sampled sequence.

    Raises:
        Internal: it lacks log-probs, or does not end as it says.
    """
    tokens = np.asarray(sequence.tokens_np, np.int32)
    found = sequence.logprobs_np
    logprobs = np.asarray(found if found is not None else (), np.float32)
    if len(logprobs) != len(tokens):
        raise _broken(f"{len(logprobs)} log-probs for {len(tokens)} tokens")
    if sequence.stop_reason == "stop" and (not len(tokens) or int(tokens[-1]) not in params.stop):
        raise _broken("a sequence that stopped without a stop token")
    return Sampled(tokens, logprobs, sequence.stop_reason)


def plain(params: SamplingParams) -> bool:
    """Whether the sampling distribution is the model's own."""
    return params.temperature == 1 and params.top_p == 1 and params.top_k < 1


def check_sampling(
    prompt: IntArray, params: SamplingParams, num_samples: int, context: int
) -> None:
    """Refuse a sampling call that makes no sense, as a local model does."""
    problems = (
        (num_samples < 1, f"num_samples is {num_samples}"),
        (params.max_tokens < 1, f"max_tokens is {params.max_tokens}"),
        (not 0 <= params.temperature < math.inf, f"temperature is {params.temperature}"),
        (not 0 < params.top_p <= 1, f"top_p is {params.top_p}"),
        (params.top_k == 0 or params.top_k < -1, f"top_k is {params.top_k}"),
        (any(token < 0 for token in params.stop), "a stop id is negative"),
    )
    for bad, why in problems:
        if bad:
            raise _bad_call("sampling", why, "")
    check_prompt(prompt, context, room=1)


def check_prompt(tokens: IntArray, context: int, *, room: int) -> None:
    """Refuse tokens that are none, or more than the context holds."""
    if tokens.ndim != 1 or len(tokens) == 0:
        raise _bad_call("sampling", "there is no token", "")
    if int(tokens.min()) < 0:
        raise _bad_call("sampling", "an id is negative", "")
    if len(tokens) + room > context:
        raise InvalidInput(
            f"The prompt has {len(tokens)} tokens; the model's context holds {context}.",
            code=ErrorCode.PROMPT_TOO_LONG,
            object=ErrorObject(type="prompt"),
            next="Shorten the conversation.",
        )


def check_data(data: Sequence[Datum], loss: Loss, context: int) -> None:
    """Refuse datums whose arrays are missing, differ in length or hold what is no number."""
    if not data:
        raise _bad_call("training", "there is no datum", "/data")
    for index, datum in enumerate(data):
        n = len(datum.tokens)
        if not 0 < n <= context:
            raise _bad_call("training", f"it has {n} tokens", f"/data/{index}/tokens")
        for name, ids in (("tokens", datum.tokens), ("targets", datum.targets)):
            if ids.shape != (n,) or int(ids.min()) < 0:
                where = f"/data/{index}/{name}"
                raise _bad_call("training", f"{name} are not {n} ids", where)
        for name in LOSS_INPUTS[loss]:
            if not _usable(datum, name):
                where = f"/data/{index}/inputs/{name}"
                raise _bad_call("training", f"{name} are not {n} finite numbers", where)


def _usable(datum: Datum, name: str) -> bool:
    """Whether an array is there, fits, and is finite wherever it counts."""
    values = datum.inputs.get(name)
    if values is None or values.shape != datum.tokens.shape:
        return False
    finite: npt.NDArray[np.bool_] = np.isfinite(values)
    advantages = datum.inputs.get("advantages")
    if name == "logprobs" and advantages is not None and advantages.shape == values.shape:
        finite = finite | (advantages == 0)
    return bool(finite.all())


def check_adam(params: AdamParams) -> None:
    """Refuse parameters of a step that have no meaning."""
    rates = (params.learning_rate, params.eps, params.weight_decay, params.grad_clip_norm)
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
        raise _bad_call("training", "a rate of the step is not finite and ≥ 0", "/params")
    if not (0 <= params.beta1 < 1 and 0 <= params.beta2 < 1):
        raise _bad_call("training", "beta1 and beta2 must be in [0, 1)", "/params")


def logprobs_of(output: types.ForwardBackwardOutput, data: Sequence[Datum]) -> list[FloatArray]:
    """Log-probs of the targets, one array per datum.

    Raises:
        Internal: the service returned other ones than were asked for.
    """
    found = [record["logprobs"].to_numpy() for record in output.loss_fn_outputs]
    if [len(values) for values in found] != [len(datum.tokens) for datum in data]:
        raise _broken("log-probs that do not fit the datums")
    return [np.asarray(values, np.float32) for values in found]


def _bad_call(kind: str, why: str, pointer: str) -> InvalidInput:
    return InvalidInput(
        f"The {kind} call is invalid: {why}.",
        object=ErrorObject(type=f"{kind}_call", pointer=pointer or None),
        next="Correct the call; nothing was changed.",
    )


def _broken(what: str) -> Internal:
    return Internal(
        f"The training service returned {what}.",
        object=ErrorObject(type="service", id="tinker"),
        next="Look into the log of compute; the service breaks its protocol.",
    )
