"""Sessions: an owner, a sampler, a credential; and never evidence of anything."""

import jwt
import pytest
import sqlalchemy as sa

from runtime.storage.tables import evidence, sessions
from specs import canonical
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError
from specs.ids import Prefix, is_id, new_id
from specs.interaction import Seal
from specs.operator_api import SessionOpened, SessionRequest
from specs.worker_api import TrialClaims
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


async def opened(stack: Stack, model: str = "tiny", **more: object) -> SessionOpened:
    request = SessionRequest.model_validate({"model": model, "purpose": "claude", **more})
    return await stack.operator.open_session(request)


def claims(session: SessionOpened) -> TrialClaims:
    payload = jwt.decode(session.token, options={"verify_signature": False})
    return TrialClaims.model_validate(payload)


async def sealed(stack: Stack, session: str) -> Seal:
    segment = await stack.proxy.upload(b"what was said")
    return stage.seal(session, session, 1, segment, 13)


async def test_invariant_13_a_session_is_bound_to_owner_model_and_sampler(stack: Stack) -> None:
    await stage.publish(stack)
    made = await opened(stack, sampling={"temperature": 0.5})
    told = claims(made)
    assert is_id(made.session.id, Prefix.SESSION)
    assert (told.run, told.trial, told.fence) == (made.session.id, made.session.id, 1)
    assert (told.sampler, told.model, told.org) == (made.session.sampler, "tiny", "org_local")
    assert told.sampling == {"temperature": 0.5}
    assert told.exp == pytest.approx(made.session.expires_at)
    assert (await opened(stack)).session.sampler == made.session.sampler
    run = await stage.start(stack)
    assert (await stack.operator.run(run)).spec.sampler.id == made.session.sampler


async def test_a_session_of_an_unknown_model_or_checkpoint_is_refused(stack: Stack) -> None:
    await stage.publish(stack)
    with pytest.raises(InvalidInput) as unknown:
        await opened(stack, "nobody")
    assert unknown.value.problem.code == ErrorCode.MODEL_UNKNOWN
    with pytest.raises(NotFound):
        await opened(stack, new_id(Prefix.CHECKPOINT))


async def test_a_repeated_request_opens_no_other_session(stack: Stack) -> None:
    await stage.publish(stack)
    name = new_id(Prefix.SESSION)
    first, again = await opened(stack, id=name), await opened(stack, id=name)
    assert first.session.id == name and again.session == first.session
    assert claims(again).exp == claims(first).exp
    assert len((await stack.operator.sessions()).items) == 1
    with pytest.raises(Conflict):
        await opened(stack, id=name, purpose="agent")
    await stack.operator.end_session(name)
    with pytest.raises(Conflict):
        await opened(stack, id=name)
    with pytest.raises(InvalidInput):
        await opened(stack, id=new_id(Prefix.TRIAL))


async def test_a_session_is_renewed_until_it_ends_or_expires(stack: Stack) -> None:
    await stage.publish(stack)
    first, second = (await opened(stack)).session.id, (await opened(stack)).session.id
    asked = {first: 1, second: 1, new_id(Prefix.SESSION): 1, new_id(Prefix.TRIAL): 1}
    assert sorted((await stack.proxy.renew(asked)).active) == sorted([first, second])
    assert (await stack.proxy.renew({first: 2})).active == []
    ended = await stack.operator.end_session(first)
    assert ended.ended_at is not None
    assert await stack.operator.end_session(first) == ended
    assert (await stack.proxy.renew(asked)).active == [second]
    past = sa.update(sessions).where(sessions.c.id == second).values(expires_at=1.0)
    await stack.gateway.database.write(lambda c: c.execute(past).rowcount)
    assert (await stack.proxy.renew(asked)).active == []


async def test_what_a_session_said_is_kept_with_it_and_is_no_evidence(stack: Stack) -> None:
    await stage.publish(stack)
    session = (await opened(stack)).session.id
    seal = await sealed(stack, session)
    kept = await stack.proxy.commit_session(seal)
    assert (kept.seal, kept.id) == (seal, session)
    assert kept.ended_at is not None
    assert await stack.proxy.commit_session(seal) == kept
    assert seal.object is not None
    assert await stack.operator.object(seal.object) == b"what was said"
    count = await stack.gateway.database.read(
        lambda c: c.execute(sa.select(sa.func.count()).select_from(evidence)).scalar_one()
    )
    assert count == 0
    with pytest.raises(PracticumError):
        await stack.proxy.commit_evidence(seal)
    other = seal.model_copy(update={"output_tokens": 99})
    with pytest.raises(Conflict):
        await stack.proxy.commit_session(other)


async def test_a_seal_of_a_trial_or_without_its_object_is_not_a_sessions(stack: Stack) -> None:
    await stage.publish(stack)
    session = (await opened(stack)).session.id
    missing = stage.seal(session, session, 1, canonical.digest("never uploaded"), 1)
    with pytest.raises(InvalidInput):
        await stack.proxy.commit_session(missing)
    with pytest.raises(InvalidInput):
        await stack.proxy.commit_session(missing.model_copy(update={"fence": 2}))
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    with pytest.raises(NotFound):
        await stack.proxy.commit_session(stage.seal(run, trial, 1, missing.object or "", 1))


async def test_sessions_are_listed_newest_first(stack: Stack) -> None:
    await stage.publish(stack)
    made = [(await opened(stack)).session.id for _ in range(3)]
    page = await stack.operator.sessions(limit=2)
    rest = await stack.operator.sessions(limit=2, cursor=page.next)
    assert [item.id for item in [*page.items, *rest.items]] == made[::-1]
    assert (await stack.operator.session(made[0])).id == made[0]
