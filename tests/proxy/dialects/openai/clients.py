"""OpenAI's own SDK on a running proxy, and what its tests share."""

from collections.abc import Mapping
from typing import Any, cast

import httpx2
import openai

from specs.interaction import Interaction
from tests.proxy.test_history import BASH
from tests.proxy.world import World

SCHEMA: dict[str, Any] = BASH["input_schema"]
FUNCTION: dict[str, Any] = {
    "name": "Bash",
    "description": "Run a command.",
    "parameters": SCHEMA,
}


def client_of(stack: World, claims: Mapping[str, Any], max_retries: int = 2) -> openai.AsyncOpenAI:
    """A client with a trial's token; nothing of it comes from the environment."""
    http = httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=stack.socket), trust_env=False, timeout=30
    )
    return openai.AsyncOpenAI(
        api_key=stack.gateway.token(claims),
        base_url="http://proxy/v1",
        http_client=http,
        max_retries=max_retries,
    )


def chat(client: openai.AsyncOpenAI) -> Any:
    """Chat Completions of a client, whose types do not know bodies that are plain dicts."""
    return cast(Any, client.chat.completions)


def responses(client: openai.AsyncOpenAI) -> Any:
    """The Responses API of a client, likewise."""
    return cast(Any, client.responses)


def calls_of(stack: World, claims: Mapping[str, Any]) -> list[Interaction]:
    """What is on record of a trial."""
    return stack.interactions(claims["trial"])
