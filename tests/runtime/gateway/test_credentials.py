"""Trial tokens, their renewal, and evidence."""

import stat

import jwt
import pytest

from runtime.gateway.tokens import TokenSigner
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError
from specs.events import EventType
from specs.worker_api import TrialClaims, TrialTokenRequest
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


def ask(hand: Hand, **changes: object) -> TrialTokenRequest:
    return TrialTokenRequest.model_validate(
        {
            "claim": hand.claim.id,
            "fence": hand.claim.fence,
            "sampler": hand.claim.spec.sampler.id,
            "task": hand.claim.spec.tasks[0].name,
            "expires_in_sec": 60.0,
            "max_calls": 9,
            **changes,
        }
    )


async def test_invariant_13_a_token_is_bound_to_one_trial_and_verified_offline(
    stack: Stack,
) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    granted = await stack.worker.token(run, trial, ask(hand))

    keys = jwt.PyJWKSet.from_dict(await stack.proxy.jwks())
    header = jwt.get_unverified_header(granted.token)
    payload = jwt.decode(
        granted.token,
        keys[header["kid"]].key,
        algorithms=["EdDSA"],
        audience="practicum-proxy",
        issuer="practicum",
    )
    claims = TrialClaims.model_validate(payload)
    assert (claims.run, claims.trial, claims.fence) == (run, trial, 1)
    assert (claims.sampler, claims.model) == (hand.claim.spec.sampler.id, "tiny")
    assert claims.exp == granted.expires_at
    assert claims.max_calls == 9
    other = TokenSigner.load(stack.home.root / "other.pem")
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(
            other.sign(claims),
            keys[header["kid"]].key,
            algorithms=["EdDSA"],
            audience="practicum-proxy",
        )
    assert stat.S_IMODE(stack.home.signing_key.stat().st_mode) == 0o600


async def test_invariant_13_no_token_for_a_trial_that_is_not_open_and_owned(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    group = await hand.group()
    trial = await hand.trial(group)
    for changes in ({"sampler": "smp_" + "0" * 32}, {"task": "acme/two"}):
        with pytest.raises(InvalidInput):
            await stack.worker.token(run, trial, ask(hand, **changes))
    await hand.settle(trial)
    with pytest.raises(Conflict, match="no credential"):
        await stack.worker.token(run, trial, ask(hand))
    late = await hand.trial(group, 1)
    await stage.expire(stack, run)
    with pytest.raises(Conflict) as refused:
        await stack.worker.token(run, late, ask(hand))
    assert refused.value.problem.code == ErrorCode.STALE_FENCE
    successor = await Hand.take(stack)
    with pytest.raises(Conflict, match="fence 1"):
        await stack.worker.token(run, late, ask(successor))


async def test_invariant_13_only_trials_of_a_live_claim_are_renewed(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack, lease=12)
    await hand.batch()
    group = await hand.group()
    one, two = await hand.trial(group, 0), await hand.trial(group, 1)
    everything = {one: 1, two: 1, "trl_" + "0" * 32: 1}

    async def active() -> list[str]:
        return (await stack.proxy.renew(everything)).active

    assert sorted(await active()) == sorted([one, two])
    assert (await stack.proxy.renew(everything)).lease_sec == 12
    assert (await stack.proxy.renew({one: 2})).active == []
    await hand.settle(one)
    assert await active() == [two]
    await stage.expire(stack, run)
    assert await active() == []
    await Hand.take(stack)
    assert await active() == []  # of a superseded fence


async def test_cancellation_ends_the_renewals(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    await stack.operator.cancel(run)
    assert (await stack.proxy.renew({trial: 1})).active == []


async def test_evidence_is_sealed_once_and_needs_its_object(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    missing = stage.seal(run, trial, 1, "sha256:" + "5" * 64)
    with pytest.raises(PracticumError) as refused:
        await stack.proxy.commit_evidence(missing)
    assert refused.value.problem.code == ErrorCode.INVALID_REFERENCE
    segment = await stack.proxy.upload(b"segment")
    seal = stage.seal(run, trial, 1, segment, 7)
    with pytest.raises(NotFound):
        await stack.operator.trial_seal(trial)
    await stack.proxy.commit_evidence(seal)
    await stack.proxy.commit_evidence(seal)
    assert await stack.operator.trial_seal(trial) == seal, "while the trial is open"
    with pytest.raises(Conflict, match="other content"):
        await stack.proxy.commit_evidence(seal.model_copy(update={"output_tokens": 99}))
    sealed = [
        event.data
        for event in (await stack.operator.events(run)).events
        if event.type == EventType.EVIDENCE_SEALED
    ]
    assert [(item["trial"], item["current"]) for item in sealed] == [(trial, True)]
    assert await stack.worker.object(segment) == b"segment"


async def test_evidence_of_a_superseded_fence_is_kept_and_never_counted(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    lost = await Hand.take(stack)
    await lost.batch()
    group = await lost.group()
    trial = await lost.trial(group)
    await stage.expire(stack, run)
    hand = await Hand.take(stack)
    segment = await stack.proxy.upload(b"late segment")
    await stack.proxy.commit_evidence(stage.seal(run, trial, 1, segment, 12))
    hand.last_event = (await stack.operator.run(run)).last_event
    second = await hand.trial(group)
    await hand.settle(second)
    sealed = [
        event.data["current"]
        for event in (await stack.operator.events(run)).events
        if event.type == EventType.EVIDENCE_SEALED
    ]
    assert sealed == [False]
    result = await stack.operator.result(run)
    assert (result.trials_settled, result.output_tokens) == (1, 0)
    with pytest.raises(InvalidInput, match="fence"):
        await stack.proxy.commit_evidence(stage.seal(run, second, 9, segment, 12))
