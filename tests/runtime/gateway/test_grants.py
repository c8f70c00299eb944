"""Grants of trials: what they open, what they may use, and when they end (invariant 13)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import jwt
import pytest
from pydantic import JsonValue

from runtime.client import OperatorClient, ProxyClient, WorkerClient
from runtime.client.transport import Transport
from specs.errors import Conflict, ErrorCode, Forbidden, InvalidInput, NotFound, PracticumError
from specs.grant import GrantClaims, GrantRequest, GrantToken
from specs.ids import Prefix, new_id
from specs.operator_api import ModelList, SessionRequest
from specs.records import TrialOutcome
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack
from tests.runtime.gateway.test_credentials import ask

pytestmark = pytest.mark.anyio

SCOPES: list[JsonValue] = ["read", "publish", "start"]
ACCESS: dict[str, JsonValue] = {"scopes": SCOPES, "max_runs": 2, "max_slots": 8}


@dataclass
class Episode:
    """An open trial of a run whose plan opens the gateway, and clients with its grants."""

    stack: Stack
    hand: Hand
    trial: str
    token: GrantToken
    agent: OperatorClient
    verifier: OperatorClient

    @property
    def run(self) -> str:
        return self.hand.run


def request(hand: Hand, **changes: object) -> GrantRequest:
    return GrantRequest.model_validate(
        {
            "claim": hand.claim.id,
            "fence": hand.claim.fence,
            "phase": "agent",
            "expires_in_sec": 60.0,
            **changes,
        }
    )


@pytest.fixture
async def episode(stack: Stack) -> AsyncIterator[Episode]:
    async with begun(stack, ACCESS) as made:
        yield made


def begun(stack: Stack, access: dict[str, JsonValue]) -> "_Begun":
    return _Begun(stack, access)


class _Begun:
    def __init__(self, stack: Stack, access: dict[str, JsonValue]) -> None:
        self._stack, self._access = stack, access
        self._clients: list[OperatorClient] = []

    async def __aenter__(self) -> Episode:
        stack = self._stack
        await stage.publish(stack)
        await stage.start(stack, {"trials_per_task": 1, "gateway": self._access})
        hand = await Hand.take(stack)
        await hand.batch()
        trial = await hand.trial(await hand.group())
        tokens = [
            await stack.worker.grant(hand.run, trial, request(hand, phase=phase))
            for phase in ("agent", "verifier")
        ]
        self._clients = [
            OperatorClient.connect(stack.home.gateway_socket, one.token) for one in tokens
        ]
        return Episode(stack, hand, trial, tokens[0], *self._clients)

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.transport.close()


async def refused(call: Awaitable[object], code: ErrorCode = ErrorCode.FORBIDDEN) -> PracticumError:
    with pytest.raises(Forbidden) as error:
        await call
    assert error.value.problem.code == code
    return error.value


async def test_a_trials_agent_starts_a_run_that_is_recorded_with_its_starter(
    episode: Episode,
) -> None:
    started = await episode.agent.start(stage.submission())
    run = await episode.agent.run(started.run)
    assert run.started_by is not None
    assert (run.started_by.run, run.started_by.trial) == (episode.run, episode.trial)
    assert run.started_by.grant == episode.token.grant
    (admitted,) = (await episode.agent.events(started.run)).events
    assert admitted.data["grant"] == episode.token.grant
    assert (await episode.stack.operator.run(episode.run)).started_by is None
    assert (await episode.agent.cancel(started.run)).state == "cancelled"
    await refused(episode.agent.cancel(episode.run))


async def test_runs_are_counted_against_the_grant_and_repetitions_are_not(episode: Episode) -> None:
    agent = episode.agent
    six = stage.submission({"trials_per_task": 2})
    first = await agent.start(six, idempotency_key="one")
    assert (await agent.start(six, idempotency_key="one")).run == first.run
    problem = await refused(agent.start(six), ErrorCode.GRANT_LIMIT)
    assert "6 more planned slots would be 12 of 8" in problem.problem.detail
    await refused(agent.dry_run(six), ErrorCode.GRANT_LIMIT)
    three: dict[str, JsonValue] = {"trials_per_task": 1, "tasks": {"limit": 2}}
    await agent.dry_run(stage.submission(three))
    await agent.start(stage.submission(three))
    problem = await refused(agent.start(stage.submission(three)), ErrorCode.GRANT_LIMIT)
    assert "1 more runs would be 3 of 2" in problem.problem.detail
    assert len((await agent.runs()).items) == 3


async def test_a_grant_names_models_datasets_and_updates_and_gives_none_of_its_own(
    stack: Stack,
) -> None:
    access: dict[str, JsonValue] = {
        **ACCESS,
        "max_slots": 100,
        "max_updates": 1,
        "models": ["other"],
        "datasets": ["acme/else@v1"],
    }
    async with begun(stack, access) as episode:
        problem = await refused(episode.agent.start(stage.submission()), ErrorCode.GRANT_LIMIT)
        assert "the model tiny" in problem.problem.detail
    async with begun(stack, {**access, "models": ["tiny"]}) as episode:
        problem = await refused(episode.agent.start(stage.submission()), ErrorCode.GRANT_LIMIT)
        assert stage.DATASET in problem.problem.detail
    async with begun(stack, {**access, "models": None, "datasets": None}) as episode:
        agent = episode.agent
        problem = await refused(
            agent.start(stage.submission(stage.TRAINING)), ErrorCode.GRANT_LIMIT
        )
        assert "2 more updates would be 2 of 1" in problem.problem.detail
        nested = stage.submission({"trials_per_task": 1, "gateway": ACCESS})
        problem = await refused(agent.start(nested), ErrorCode.GRANT_LIMIT)
        assert "grants of their own" in problem.problem.detail


CLOSED: dict[str, Callable[[Episode, OperatorClient], Awaitable[object]]] = {
    "extend": lambda episode, client: client.transport.send(
        "POST", f"/v1/runs/{episode.run}/extend", content=b"{}", headers=JSON
    ),
    "resolve": lambda episode, client: client.resolve(
        episode.run, new_id(Prefix.UPDATE), "applied"
    ),
    "session": lambda episode, client: client.open_session(
        SessionRequest(model="tiny", purpose="claude")
    ),
    "models": lambda episode, client: client.put_models(ModelList(models=[stage.model()])),
    "keep": lambda episode, client: client.keep_checkpoint(new_id(Prefix.CHECKPOINT), None),
    "delete": lambda episode, client: client.delete_checkpoint(new_id(Prefix.CHECKPOINT)),
    "pages": lambda episode, client: client.ui_link("/ui/runs"),
    "claim": lambda episode, client: WorkerClient(client.transport).claim(
        new_id(Prefix.WORKER), 30.0
    ),
    "records": lambda episode, client: WorkerClient(client.transport).records(episode.run),
    "token": lambda episode, client: WorkerClient(client.transport).token(
        episode.run, episode.trial, ask(episode.hand)
    ),
    "grant": lambda episode, client: WorkerClient(client.transport).grant(
        episode.run, episode.trial, request(episode.hand)
    ),
    "renewal": lambda episode, client: ProxyClient(client.transport).renew({episode.trial: 1}),
}
JSON = {"content-type": "application/json"}


async def test_invariant_13_a_grant_opens_no_other_route(episode: Episode) -> None:
    for client in (episode.agent, episode.verifier):
        for call in CLOSED.values():
            await refused(call(episode, client))


async def test_invariant_13_a_verifier_reads_and_changes_nothing(episode: Episode) -> None:
    verifier = episode.verifier
    assert (await verifier.run(episode.run)).id == episode.run
    await refused(verifier.start(stage.submission()))
    await refused(verifier.upload(b"something"))
    practice = await verifier.dataset(stage.DATASET)
    await refused(verifier.publish_dataset(practice.value))


async def test_invariant_13_an_agent_does_not_read_the_tests_that_judge_it(
    episode: Episode,
) -> None:
    digest = episode.hand.claim.spec.tasks[0].digest
    with pytest.raises(NotFound):
        await episode.agent.object(digest)
    assert await episode.verifier.object(digest)
    assert await episode.agent.upload(b"rows of its own")


async def test_invariant_13_a_grant_ends_with_its_trial(episode: Episode) -> None:
    assert (await episode.agent.runs()).items
    await episode.hand.settle(episode.trial, outcome=TrialOutcome.COMPLETED)
    for client in (episode.agent, episode.verifier):
        await refused(client.runs(), ErrorCode.GRANT_ENDED)
    await refused(episode.agent.start(stage.submission()), ErrorCode.GRANT_ENDED)


async def test_invariant_13_a_grant_ends_with_its_claim(episode: Episode) -> None:
    await stage.expire(episode.stack, episode.run)
    again = await Hand.take(episode.stack)
    assert again.run == episode.run
    await refused(episode.agent.runs(), ErrorCode.GRANT_ENDED)
    with pytest.raises(Conflict):
        await again.worker.grant(episode.run, episode.trial, request(again))


async def test_invariant_13_tokens_are_good_for_one_audience_until_they_expire(
    stack: Stack, episode: Episode
) -> None:
    claims = jwt.decode(episode.token.token, options={"verify_signature": False})
    assert claims["aud"] == "practicum-gateway" and claims["exp"] == episode.token.expires_at
    model = await stack.worker.token(episode.run, episode.trial, ask(episode.hand))
    short = stack.gateway.signer.sign(GrantClaims.model_validate({**claims, "exp": 1.0}))
    for token in (model.token, short, episode.token.token[:-8] + "AAAAAAAA"):
        async with Transport(stack.home.gateway_socket, token) as transport:
            await refused(OperatorClient(transport).runs(), ErrorCode.UNAUTHENTICATED)


async def test_asking_again_gives_the_same_grant_with_the_same_end(episode: Episode) -> None:
    again = await episode.stack.worker.grant(
        episode.run, episode.trial, request(episode.hand, expires_in_sec=9000.0)
    )
    assert (again.grant, again.expires_at) == (episode.token.grant, episode.token.expires_at)


async def test_without_the_plan_key_there_is_no_grant_and_no_binding(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    with pytest.raises(Conflict):
        await stack.worker.grant(hand.run, trial, request(hand))
    with pytest.raises(InvalidInput) as error:
        await stack.operator.start(stage.submission(env={"TOKEN": "${gateway.token}"}))
    assert error.value.problem.code == ErrorCode.LAUNCH_CONFLICT


async def test_runs_that_wait_for_others_are_claimed_apart(stack: Stack) -> None:
    await stage.publish(stack)
    episode = await stage.start(stack, {"trials_per_task": 1, "gateway": ACCESS})
    plain = await stage.start(stack)
    worker = new_id(Prefix.WORKER)
    claimed = await stack.worker.claim(worker, 60.0, delegating=False)
    assert claimed is not None and claimed.run == plain
    assert await stack.worker.claim(worker, 60.0, delegating=False) is None
    other = await stack.worker.claim(worker, 60.0, delegating=True)
    assert other is not None and other.run == episode
