"""Trial tokens and their renewal (invariant 13)."""

import time
from pathlib import Path
from typing import Any

import anyio
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from specs.ids import Prefix, new_id
from tests.proxy.world import WORKER_KEY, TestGateway, World, until, user, world

pytestmark = pytest.mark.anyio

BODY = {"model": "m", "max_tokens": 8, "messages": [user("u")]}


async def _ask(stack: World, headers: dict[str, str]) -> httpx.Response:
    return await stack.client.post("/v1/messages", json=BODY, headers=headers)


async def test_either_header_opens_and_the_bearer_wins(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        token = stack.gateway.token(stack.gateway.claims())
        assert (await _ask(stack, {"x-api-key": token})).status_code == 200
        both = {"authorization": f"Bearer {token}", "x-api-key": "dummy"}
        assert (await _ask(stack, both)).status_code == 200
        assert stack.gateway.key_fetches == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "someone-else"},
        {"iss": "someone-else"},
        {"iat": time.time() + 9999},
        {"trial": "not-an-id"},
        {"unknown": 1},
        {"jti": None},
    ],
)
async def test_a_token_with_wrong_claims_is_403(short_dir: Path, changes: dict[str, Any]) -> None:
    async with world(short_dir) as stack:
        claims = {**stack.gateway.claims(), **changes}
        response = await _ask(stack, {"authorization": f"Bearer {stack.gateway.token(claims)}"})
    assert response.status_code == 403
    assert response.json()["error"]["type"] == "permission_error"


async def test_a_token_that_is_not_the_gateways_is_403_and_none_is_401(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        good = stack.gateway.token(claims)
        other = Ed25519PrivateKey.generate()
        unsigned = jwt.encode(claims, "", algorithm="none", headers={"kid": "key-1"})
        for token in (
            "x",
            "a.b.c",
            good[:-4] + "AAAA",
            jwt.encode(claims, other, algorithm="EdDSA", headers={"kid": "key-1"}),
            jwt.encode(claims, "secret" * 8, algorithm="HS256", headers={"kid": "key-1"}),
            stack.gateway.token(claims, kid="unknown"),
            unsigned,
            WORKER_KEY,
        ):
            response = await _ask(stack, {"authorization": f"Bearer {token}"})
            assert response.status_code == 403, token
            assert response.headers["x-should-retry"] == "false"
            assert token not in response.text
        assert (await _ask(stack, {})).status_code == 401
        assert not list(stack.spool.glob("*.seg"))


async def test_a_new_signing_key_is_fetched(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        await stack.harness().say([user("u")])
        stack.gateway.key, stack.gateway.kid = Ed25519PrivateKey.generate(), "key-2"
        await anyio.sleep(1.1)  # keys are asked for at most once a second
        await stack.harness().say([user("u")])
        assert stack.gateway.key_fetches == 2


async def test_an_expired_token_is_403(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        claims["exp"] = time.time() - 1
        response = await stack.harness(**claims).post([user("u")])
    assert response.status_code == 403
    assert response.json()["error"]["type"] == "permission_error"


async def test_a_token_of_another_run_does_not_open_the_trial(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        other = {**claims, "run": new_id(Prefix.RUN)}
        assert (await stack.harness(**other).post([user("u")])).status_code == 403


async def test_a_trial_that_is_not_renewed_is_403_and_its_evidence_is_handed_over(
    short_dir: Path,
) -> None:
    """Invariant 12: nobody has to seal it."""
    gateway = TestGateway(lease=0.3)
    async with world(short_dir, gateway=gateway) as stack:
        claims, other = gateway.claims(), gateway.claims()
        await stack.harness(**claims).say([user("u")])
        await stack.harness(**other).say([user("u")])
        gateway.over.add(claims["trial"])
        await until(lambda: (claims["trial"], 1) in gateway.seals)
        refused = await stack.harness(**claims).post([user("v")])
        assert refused.status_code == 403
        assert (await stack.harness(**other).post([user("v")])).status_code == 200
        seal = await stack.seal(claims["trial"])
    assert seal.json() == gateway.seals[claims["trial"], 1].model_dump(mode="json")


async def test_a_gateway_that_is_away_ends_no_trial(short_dir: Path) -> None:
    gateway = TestGateway(lease=0.6)
    async with world(short_dir, gateway=gateway) as stack:
        harness = stack.harness()
        await harness.say([user("u")])
        await until(lambda: gateway.renewals > 0)
        gateway.down = True
        await harness.say([user("v")])
        await anyio.sleep(0.7)
        assert (await harness.post([user("w")])).status_code == 529
        gateway.down = False
        seen = gateway.renewals
        await until(lambda: gateway.renewals > seen)
        assert (await harness.post([user("w")])).status_code == 200


async def test_internal_routes_are_for_the_worker_alone(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        path = f"/internal/trials/{claims['trial']}/seal"
        body = {"run": claims["run"], "fence": 1}
        for headers in (harness.headers, {}, {"authorization": "Bearer x"}):
            assert (await stack.client.post(path, json=body, headers=headers)).status_code == 403
            assert (await stack.client.get("/healthz", headers=headers)).status_code == 403
        worker = {"authorization": f"Bearer {WORKER_KEY}"}
        assert (await stack.client.get("/healthz", headers=worker)).json()["status"] == "ok"
        assert (await harness.post([user("u")])).status_code == 200


async def test_the_socket_is_the_users_own(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        await stack.harness().say([user("u")])
        (segment,) = stack.spool.glob("*.seg")
        modes = [one.stat().st_mode & 0o777 for one in (stack.folder / stack.socket, segment)]
    assert modes == [0o600, 0o600]
