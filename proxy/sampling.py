"""Which sampling parameters a call is made with: the profile's beat the request's."""

import hashlib
from dataclasses import dataclass

from proxy.dialects.base import Request
from runtime.compute.protocol import SamplingParams
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, Forbidden, InvalidInput
from specs.interaction import LimitedBy, SamplingUsed
from specs.model import ModelInfo
from specs.profile import Sampling
from specs.worker_api import TrialClaims

MAX_CALLS, MAX_OUTPUT_TOKENS = "max_calls", "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a trial has used of its limits; calls under way count with all they may use."""

    calls: int
    output_tokens: int


def decide(
    request: Request,
    claims: TrialClaims,
    info: ModelInfo,
    *,
    prompt_tokens: int,
    sequence: int,
    spent: Spent,
) -> SamplingUsed:
    """The parameters of one call.

    Raises:
        InvalidInput: `prompt_too_long`, in the words that make a harness compact.
        Forbidden: a limit of the trial is reached; `pointer` names it.
    """
    if claims.max_calls is not None and spent.calls >= claims.max_calls:
        raise _limit(claims, MAX_CALLS, f"{claims.max_calls} model calls")
    room = window = info.context_tokens - prompt_tokens
    if room < 1:
        raise InvalidInput(
            f"prompt is too long: {prompt_tokens} tokens > {info.context_tokens - 1} maximum",
            code=ErrorCode.PROMPT_TOO_LONG,
            object=ErrorObject(type="request", pointer="/messages"),
            next="Send a shorter conversation.",
        )
    if claims.max_output_tokens is not None:
        left = claims.max_output_tokens - spent.output_tokens
        if left < 1:
            raise _limit(claims, MAX_OUTPUT_TOKENS, f"{claims.max_output_tokens} output tokens")
        room = min(room, left)
    profile = canonical.validate(Sampling, claims.sampling, what="profile sampling")
    top_k = _first(profile.top_k, request.top_k, -1)
    asked = _first(profile.max_tokens, request.max_tokens, room)
    return SamplingUsed(
        temperature=_first(profile.temperature, request.temperature, 1.0),
        top_p=_first(profile.top_p, request.top_p, 1.0),
        top_k=top_k if top_k > 0 else -1,
        max_tokens=min(asked, room),
        seed=_seed(claims, request, sequence),
        stop=info.stop_tokens,
        stop_sequences=request.stop_sequences,
        limited_by=_limited_by(request, asked, profile, window=window, room=room),
    )


def call_seed(seed: int, sequence: int) -> int:
    """A call's own seed, of 31 bits; the token's seed belongs to one trial alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{sequence}".encode()).digest()[:4]) >> 1


def params(used: SamplingUsed) -> SamplingParams:
    """The same for compute."""
    return SamplingParams(
        max_tokens=used.max_tokens,
        stop=used.stop,
        temperature=used.temperature,
        top_p=used.top_p,
        top_k=used.top_k,
        seed=used.seed,
    )


def _seed(claims: TrialClaims, request: Request, sequence: int) -> int | None:
    """The plan's seed beats the request's, of which compute takes 31 bits."""
    if claims.seed is not None:
        return call_seed(claims.seed, sequence)
    return None if request.seed is None else request.seed & 0x7FFFFFFF


def _limited_by(
    request: Request, asked: int, profile: Sampling, *, window: int, room: int
) -> LimitedBy:
    silent = profile.max_tokens is None and request.max_tokens is None
    if asked <= room and not silent:
        return LimitedBy.REQUEST if profile.max_tokens is None else LimitedBy.PROFILE
    return LimitedBy.TRIAL if room < window else LimitedBy.WINDOW


def _first[T](profile: T | None, request: T | None, default: T) -> T:
    if profile is not None:
        return profile
    return default if request is None else request


def _limit(claims: TrialClaims, name: str, amount: str) -> Forbidden:
    return Forbidden(
        f"This trial has used its {amount} ({name}).",
        object=ErrorObject(type="trial", id=claims.trial, pointer=f"/limits/{name}"),
        next="End the work; the limit holds for the whole trial.",
    )
