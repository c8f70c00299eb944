"""Who did what in an episode, as the calls of its agents show it.

A harness names each sub-agent in its requests, and the proxy records the name with the call. What
kind it is was asked for by the agent that started it: the request's prompt is the beginning of the
sub-agent's own conversation.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from runtime.research.facts import SubAgent
from specs.interaction import Interaction

STARTERS = frozenset({"Agent", "Task"})
"""Tools that start a sub-agent."""
MAX_LOOKED_AT = 200_000
"""Characters of the tool inputs of one sub-agent that are kept."""


def sub_agents(interactions: Sequence[Interaction]) -> tuple[SubAgent, ...]:
    """Every sub-agent that was answered at least once, in the order of their first calls."""
    started = [
        (str(given.get("prompt", "")), str(given.get("subagent_type", "")))
        for name, given in _calls(interactions)
        if name in STARTERS
    ]
    own: dict[str, list[Interaction]] = {}
    for one in interactions:
        if one.intent.agent and one.answer is not None:
            own.setdefault(one.intent.agent, []).append(one)
    return tuple(_sub_agent(name, calls, started) for name, calls in own.items())


def _sub_agent(name: str, calls: list[Interaction], started: list[tuple[str, str]]) -> SubAgent:
    opening = _opening(calls[0].request)
    kinds = [kind for prompt, kind in started if prompt and prompt in opening]
    looked_at = "\n".join(json.dumps(given, ensure_ascii=False) for _, given in _calls(calls))
    last = calls[-1].answer
    return SubAgent(
        name=name,
        kind=kinds[0] if kinds else None,
        began=calls[0].intent.at,
        ended=last.at if last else calls[-1].intent.at,
        looked_at=looked_at[:MAX_LOOKED_AT],
    )


def _calls(interactions: Iterable[Interaction]) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Tool calls that were answered, with their inputs."""
    for one in interactions:
        for block in one.answer.content if one.answer else ():
            match block:
                case {"type": "tool_use", "name": str(name), "input": dict(given)}:
                    yield name, given
                case _:
                    pass


def _opening(request: bytes) -> str:
    """The text of the first user's message of a Messages request; empty for anything else."""
    try:
        messages: Any = json.loads(request)["messages"]
        first = next(one for one in messages if one["role"] == "user")["content"]
        blocks = [{"text": first}] if isinstance(first, str) else first
        return "\n".join(str(block.get("text", "")) for block in blocks)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return ""  # another dialect's request: whose opening it is cannot be told
