"""What a scripted model is told of the trial in which it is asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.proxy.test_history import BASH, call, result
from tests.proxy.world import Dice, echo, user, world

pytestmark = pytest.mark.anyio


async def test_agents_are_told_apart_and_counted_also_after_a_restart(short_dir: Path) -> None:
    compute = Dice([call("ls"), "two", "three", "four", "five"])
    compute.backend = "scripted"
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        harness = stack.harness(**claims)
        asked: dict[str, Any] = {"tools": [BASH]}
        first = await harness.say([user("Go."), {"role": "system", "content": "s"}], **asked)
        for agent in ("a1", "a2"):
            await harness.say(
                [user(f"Help {agent}.")], headers={"x-claude-code-agent-id": agent}, **asked
            )
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        harness = stack.harness(**claims)
        found = result(first["content"][0], "file")
        turns = [user("Go."), echo(first), {"role": "user", "content": [found]}]
        await harness.say(turns, **asked)
        await harness.say([user("More.")], headers={"x-claude-code-agent-id": "a1"}, **asked)
    main, one, two, again, more = compute.contexts
    assert [at.call for at in compute.contexts] == [0, 1, 2, 3, 4]
    assert [at.order for at in compute.contexts] == [0, 1, 2, 0, 1]
    assert [at.agent_call for at in compute.contexts] == [0, 0, 0, 1, 1]
    assert {at.trial for at in compute.contexts} == {claims["trial"]}
    assert (main.opening, main.request) == ("Go.", "Go.\ns")
    assert (one.opening, two.agent) == ("Help a1.", "a2")
    assert (again.opening, again.request) == ("Go.", "file")
    assert more.opening == "More."


async def test_no_other_model_is_sent_the_text(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["a"])) as stack:
        await stack.harness().say([user("secret")])
        (context,) = stack.compute.contexts
    assert (context.opening, context.request, context.call) == ("", "", 0)
