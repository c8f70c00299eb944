"""Sessions at the proxy: captured like a trial, handed over as what a session said."""

from pathlib import Path

import pytest

from specs.ids import Prefix, new_id
from tests.proxy.world import TestGateway, until, user, world

pytestmark = pytest.mark.anyio


async def test_a_session_that_ends_is_sealed_by_itself_and_is_no_evidence(
    short_dir: Path,
) -> None:
    gateway = TestGateway(lease=0.2)
    session = new_id(Prefix.SESSION)
    claims = gateway.claims(run=session, trial=session, fence=1, task="session/claude")
    gateway.trials[session] = session
    async with world(short_dir, gateway=gateway) as stack:
        harness = stack.harness(**claims)
        await harness.say([user("hello")])
        gateway.over.add(session)
        await until(lambda: session in gateway.sessions)
        assert (await harness.post([user("again")])).status_code == 403
    seal = gateway.sessions[session]
    assert (seal.run, seal.interactions, seal.complete) == (session, 1, True)
    assert gateway.commits == []


async def test_a_session_that_a_crash_left_is_sealed_by_the_next_proxy(short_dir: Path) -> None:
    gateway = TestGateway(lease=0.2)
    session = new_id(Prefix.SESSION)
    claims = gateway.claims(run=session, trial=session, fence=1, task="session/agent")
    gateway.trials[session] = session
    async with world(short_dir, gateway=gateway) as stack:
        await stack.harness(**claims).say([user("hello")])
    gateway.over.add(session)
    async with world(short_dir, gateway=gateway):
        await until(lambda: session in gateway.sessions)
    assert gateway.sessions[session].interactions == 1
    assert gateway.commits == []
