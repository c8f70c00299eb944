"""Bad input at every route: refused with a problem that says what is wrong and echoes nothing."""

import itertools
from collections.abc import AsyncIterator

import httpx
import pytest

from runtime.gateway.limits import MAX_BODY
from runtime.home import Role
from specs import canonical
from specs.errors import ErrorCode, Problem
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio

RUN = "run_" + "0" * 32
TRIAL = "trl_" + "0" * 32
POSTS: dict[str, Role] = {
    "/v1/datasets": Role.OPERATOR,
    "/v1/profiles": Role.OPERATOR,
    "/v1/runs": Role.OPERATOR,
    "/v1/runs/dry-run": Role.OPERATOR,
    f"/v1/runs/{RUN}/extend": Role.OPERATOR,
    f"/v1/runs/{RUN}/updates/upd_{'0' * 32}/resolve": Role.OPERATOR,
    f"/v1/checkpoints/ckp_{'0' * 32}/keep": Role.OPERATOR,
    "/v1/uploads": Role.WORKER,
    "/v1/worker/claims": Role.WORKER,
    f"/v1/worker/runs/{RUN}/heartbeat": Role.WORKER,
    f"/v1/worker/runs/{RUN}/writes": Role.WORKER,
    f"/v1/worker/runs/{RUN}/complete": Role.WORKER,
    f"/v1/worker/runs/{RUN}/trials/{TRIAL}/token": Role.WORKER,
    "/v1/proxy/renewals": Role.PROXY,
    "/v1/proxy/evidence": Role.PROXY,
}
READS = [
    "/v1/models",
    "/v1/datasets",
    "/v1/profiles",
    "/v1/runs",
    f"/v1/runs/{RUN}",
    f"/v1/runs/{RUN}/events",
    f"/v1/runs/{RUN}/trials",
    f"/v1/runs/{RUN}/groups",
    f"/v1/runs/{RUN}/updates",
    f"/v1/runs/{RUN}/checkpoints",
    f"/v1/runs/{RUN}/logs",
    f"/v1/runs/{RUN}/result",
    f"/v1/trials/{TRIAL}",
    f"/v1/samplers/smp_{'0' * 32}",
    "/v1/checkpoints",
    f"/v1/checkpoints/ckp_{'0' * 32}",
    f"/v1/checkpoints/ckp_{'0' * 32}/uses",
    "/v1/objects/sha256:" + "0" * 64,
    "/v1/datasets/a/b/v1",
    "/v1/profiles/a/b/v1",
]
SECRET = "hunter2-must-not-come-back"


@pytest.fixture
async def raw(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.AsyncHTTPTransport(uds=str(stack.home.gateway_socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def bearer(stack: Stack, role: Role) -> dict[str, str]:
    return {"authorization": f"Bearer {stack.home.key(role)}"}


def problem(response: httpx.Response) -> Problem:
    assert response.headers["content-type"] == "application/problem+json"
    assert SECRET not in response.text
    found = canonical.read(Problem, response.content, what="problem")
    assert found.status == response.status_code
    assert found.next
    return found


MALFORMED = {
    "no JSON": b'{"a": ' + SECRET.encode(),
    "empty": b"",
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": 1e999}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "NUL": b'{"a": "\\u0000"}',
    "duplicate key": b'{"a": 1, "a": 2}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "not UTF-8": b'{"a": "\xff"}',
    "too deep": b"[" * 5000 + b"]" * 5000,
}


async def test_malformed_json_is_refused_by_every_route(
    stack: Stack, raw: httpx.AsyncClient
) -> None:
    for path, role in POSTS.items():
        headers = {**bearer(stack, role), "content-type": "application/json"}
        for name, content in MALFORMED.items():
            response = await raw.post(path, content=content, headers=headers)
            assert problem(response).code == ErrorCode.INVALID_JSON, (path, name)


async def test_unknown_keys_are_refused_by_every_route(
    stack: Stack, raw: httpx.AsyncClient
) -> None:
    for path, role in POSTS.items():
        response = await raw.post(path, json={SECRET[:7]: SECRET}, headers=bearer(stack, role))
        found = problem(response)
        assert (response.status_code, found.code) == (422, ErrorCode.INVALID_DOCUMENT), path
        assert found.object is not None
        assert found.object.pointer


async def test_another_media_type_is_refused_by_every_route(
    stack: Stack, raw: httpx.AsyncClient
) -> None:
    for path, role in POSTS.items():
        headers = {**bearer(stack, role), "content-type": "text/plain"}
        response = await raw.post(path, content=b"{}", headers=headers)
        assert response.status_code == 415
        assert problem(response).code == ErrorCode.UNSUPPORTED_MEDIA_TYPE


async def test_a_large_body_is_refused_by_every_route(stack: Stack, raw: httpx.AsyncClient) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1 << 20
            yield b" " * (1 << 20)

    for path, role in POSTS.items():
        headers = {**bearer(stack, role), "content-type": "application/json"}
        announced = {**headers, "content-length": str(100 << 20)}
        for variant in (headers, announced):
            sent = 0
            response = await raw.post(path, content=chunks(), headers=variant)
            assert response.status_code == 413, path
            assert problem(response).code == ErrorCode.BODY_TOO_LARGE
            assert sent < 4 * MAX_BODY  # not read to its end


async def test_no_route_opens_without_a_key_or_with_a_wrong_one(
    stack: Stack, raw: httpx.AsyncClient
) -> None:
    for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": "Basic eA=="}):
        for path in READS:
            response = await raw.get(path, headers=headers)
            assert response.status_code == 401, path
            assert problem(response).code == ErrorCode.UNAUTHENTICATED
            assert response.headers["www-authenticate"] == "Bearer"
        for path in POSTS:
            assert (await raw.post(path, json={}, headers=headers)).status_code == 401, path


async def test_each_role_opens_only_its_own_routes(stack: Stack, raw: httpx.AsyncClient) -> None:
    for path, owner in POSTS.items():
        for role in set(Role) - {owner}:
            if path == "/v1/uploads":
                continue  # every role uploads
            response = await raw.post(path, json={}, headers=bearer(stack, role))
            assert response.status_code == 403, (path, role)
            assert problem(response).code == ErrorCode.FORBIDDEN


async def test_what_is_not_there_is_not_found(stack: Stack, raw: httpx.AsyncClient) -> None:
    headers = bearer(stack, Role.PROXY)
    lists = {"/v1/models", "/v1/datasets", "/v1/profiles", "/v1/runs", "/v1/checkpoints"}
    for path in READS:
        response = await raw.get(path, headers=headers)
        if path in lists:
            assert response.status_code == 200
        else:
            assert problem(response).code == ErrorCode.NOT_FOUND, path
    assert problem(await raw.get("/v2/nothing")).code == ErrorCode.NOT_FOUND
    assert problem(await raw.delete("/v1/runs")).code == ErrorCode.METHOD_NOT_ALLOWED


async def test_wrong_parameters_are_named(stack: Stack, raw: httpx.AsyncClient) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    headers = bearer(stack, Role.OPERATOR)
    for query in ("after=-1", "after=x", "limit=0", "limit=100000", "wait=-1", "wait=nan"):
        found = problem(await raw.get(f"/v1/runs/{run}/events?{query}", headers=headers))
        assert found.object is not None
        assert found.object.id == query.partition("=")[0]
    for cursor in ("x", "W10", "bm9wZQ", "é", "WyJhIiwgImIiXQ"):
        found = problem(await raw.get("/v1/runs", params={"cursor": cursor}, headers=headers))
        assert found.code == ErrorCode.INVALID_REFERENCE
    assert (
        problem(await raw.get(f"/v1/runs/{run}/trials?group=nonsense", headers=headers)).code
        == ErrorCode.INVALID_DOCUMENT
    )


async def test_a_defect_says_nothing_of_itself(
    stack: Stack, raw: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("runtime.gateway.models.known", broken)
    response = await raw.get("/v1/models", headers=bearer(stack, Role.OPERATOR))
    assert (response.status_code, problem(response).code) == (500, ErrorCode.INTERNAL)


async def test_short_ids_are_for_reading_and_must_be_unambiguous(
    stack: Stack, raw: httpx.AsyncClient
) -> None:
    await stage.publish(stack)
    started = [await stage.start(stack) for _ in range(3)]
    headers = bearer(stack, Role.OPERATOR)
    # the clock part of 8 digits changes once a minute: two neighbours share it
    first, _ = next(pair for pair in itertools.pairwise(started) if pair[0][:12] == pair[1][:12])
    assert (await stack.operator.run(first[:-2])).id == first
    found = problem(await raw.get(f"/v1/runs/{first[:12]}", headers=headers))
    assert found.code == ErrorCode.AMBIGUOUS_ID
    for text in (first[:11], "trl_" + first[4:], "run_%25", "x"):
        found = problem(await raw.get(f"/v1/runs/{text}", headers=headers))
        assert found.code in (ErrorCode.INVALID_REFERENCE, ErrorCode.NOT_FOUND)
    found = problem(await raw.post(f"/v1/runs/{first[:-1]}/cancel", headers=headers))
    assert found.code == ErrorCode.NOT_FOUND


async def test_pages_are_whole_and_bounded(stack: Stack) -> None:
    await stage.publish(stack)
    started = [await stage.start(stack) for _ in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        page = await stack.operator.runs(limit=2, cursor=cursor)
        assert len(page.items) <= 2
        seen += [run.id for run in page.items]
        if (cursor := page.next) is None:
            break
    assert seen == started[::-1]
    hand = await Hand.take(stack)
    await hand.batch()
    for index in range(3):
        await hand.group(index=index)
    first = await stack.operator.groups(hand.run, limit=2)
    rest = await stack.operator.groups(hand.run, limit=2, cursor=first.next)
    assert [g.index for g in (*first.items, *rest.items)] == [0, 1, 2]
    assert rest.next is None
