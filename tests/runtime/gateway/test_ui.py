"""A browser on this machine reads pages through a link that opens once, and nothing else does
(invariant 13: no key reaches it)."""

import httpx
import pytest

from specs.errors import InvalidInput
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Stack

pytestmark = pytest.mark.anyio


async def a_run(stack: Stack) -> str:
    await stage.publish(stack)
    return await stage.start(stack)


async def test_a_link_opens_once_and_then_the_browser_reads_pages(stack: Stack) -> None:
    run = await a_run(stack)
    link = await stack.operator.ui_link(f"/ui/runs/{run}")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as browser:
        entered = await browser.get(link.url)
        assert entered.status_code == 303
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        page = await browser.get(httpx.URL(link.url).join(entered.headers["location"]))
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["cache-control"] == "no-store"
        assert f"{run} · evaluation".encode() in page.content
        for key in stack.gateway.keys.values():
            assert key not in page.text
            assert key not in str(entered.headers)
        missing = await browser.get(httpx.URL(link.url).join("/ui/runs/run_" + "0" * 32))
        assert missing.status_code == 404
    async with httpx.AsyncClient(trust_env=False, timeout=60) as other:
        again = await other.get(link.url)
        assert again.status_code == 401
        assert "--link" in again.json()["next"]
        bare = await other.get(httpx.URL(link.url).join(f"/ui/runs/{run}"))
        assert bare.status_code == 401


async def test_the_port_answers_only_under_its_own_name_and_only_pages(stack: Stack) -> None:
    run = await a_run(stack)
    link = await stack.operator.ui_link(f"/ui/runs/{run}")
    async with httpx.AsyncClient(trust_env=False, timeout=60) as browser:
        rebound = await browser.get(link.url, headers={"host": "evil.example"})
        assert rebound.status_code == 403
        await browser.get(link.url)
        for path in ("/v1/runs", "/healthz", f"/v1/runs/{run}"):
            answer = await browser.get(httpx.URL(link.url).join(path))
            assert answer.status_code == 404
    for path in ("//evil.example/", "https://evil.example", "/v1/runs", "/ui/\\evil"):
        with pytest.raises(InvalidInput):
            await stack.operator.ui_link(path)
