"""Anthropic's own SDK as an independent reader of what the proxy sends."""

from pathlib import Path
from typing import Any, cast

import anthropic
import httpx2
import pytest
from anthropic.types import Message

from specs.errors import Unavailable
from tests.proxy.test_history import BASH, call
from tests.proxy.world import Dice, World, world

pytestmark = pytest.mark.anyio


def client_of(stack: World, **claims: Any) -> anthropic.AsyncAnthropic:
    token = stack.gateway.token(stack.gateway.claims(**claims))
    http = httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=stack.socket), trust_env=False, timeout=30
    )
    return anthropic.AsyncAnthropic(
        auth_token=token, api_key=None, base_url="http://proxy", http_client=http, max_retries=2
    )


async def test_plain_and_streamed_messages_with_tools(short_dir: Path) -> None:
    async with (
        world(short_dir, compute=Dice([f"Look.\n{call('ls')}", "done", "x"])) as stack,
        client_of(stack) as client,
    ):
        ask: Any = {"model": "m", "max_tokens": 512, "tools": [BASH]}
        turns: list[Any] = [{"role": "user", "content": "Go."}]
        first = cast(Message, await client.messages.create(messages=turns, **ask))
        text, use = first.content
        assert text.type == "text" and use.type == "tool_use" and first.stop_reason == "tool_use"
        result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "a"}
        turns += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        async with client.messages.stream(messages=turns, **ask) as stream:
            words = [word async for word in stream.text_stream]
            final = await stream.get_final_message()
        assert "".join(words) == "done" and final.stop_reason == "end_turn"
        (segment,) = stack.spool.glob("*.seg")
        trial = segment.name.split(".")[0]
        one, two = stack.interactions(trial)
        assert two.exact and final.usage.output_tokens == len(two.output)
        counted = await client.messages.count_tokens(
            messages=turns, model="m", tools=cast(Any, [BASH])
        )
        assert counted.input_tokens == len(two.prompt) and len(one.prompt) < len(two.prompt)
        assert [one.id async for one in client.models.list()] == ["tiny"]


async def test_errors_are_the_sdks_own(short_dir: Path) -> None:
    async with (
        world(short_dir, patience=0) as stack,
        client_of(stack) as client,
    ):
        turns: list[Any] = [{"role": "user", "content": "x" * 5000}]
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await client.messages.create(model="m", max_tokens=5, messages=turns)
        stack.compute.failures = [Unavailable("busy")]
        answer = await client.messages.create(
            model="m", max_tokens=5, messages=cast(Any, [{"role": "user", "content": "u"}])
        )
        assert answer.type == "message"  # the SDK came again after the 529
