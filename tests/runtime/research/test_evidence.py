"""Which agents worked in an episode, told from their own calls."""

import json
from array import array
from typing import Any

from pydantic import JsonValue

from runtime.research.evidence import sub_agents
from specs.ids import Prefix, new_id
from specs.interaction import Answer, BranchReason, CallState, Intent, Interaction, SamplingUsed

DIGEST = "sha256:" + "0" * 64


def call(agent: str, minute: int, opening: JsonValue, *blocks: JsonValue) -> Interaction:
    """An answered call of an agent, with what it answered."""
    name = new_id(Prefix.INTERACTION)
    at = f"2026-01-01T00:{minute:02}:00.000000Z"
    intent = Intent(
        interaction=name,
        trial=new_id(Prefix.TRIAL),
        fence=1,
        sequence=minute,
        at=at,
        agent=agent,
        parent=None,
        branch=BranchReason.ROOT,
        prompt_tokens=1,
        prompt_sha256=DIGEST,
        sampler=new_id(Prefix.SAMPLER),
        sampling=SamplingUsed(temperature=1, top_p=1, top_k=0, max_tokens=9, stop=()),
        request_digest=DIGEST,
    )
    answer = Answer(
        interaction=name,
        at=at.replace(":00.", ":30."),
        stop_reason="stop",
        provenance="scripted",
        content=list(blocks),
    )
    request: dict[str, Any] = {"messages": [{"role": "user", "content": opening}]}
    body = json.dumps(request).encode()
    return Interaction(
        intent, CallState.ANSWERED, answer, array("i"), array("i"), None, request=body
    )


def use(name: str, **given: JsonValue) -> JsonValue:
    return {"type": "tool_use", "id": "t", "name": name, "input": given}


def test_a_sub_agent_is_of_the_kind_that_its_starter_asked_for() -> None:
    found = sub_agents(
        [
            call("", 0, "work", use("Agent", subagent_type="p:reviewer", prompt="look at é")),
            call(
                "a1", 1, [{"type": "text", "text": "look at é"}], use("Read", file_path="p.jsonl")
            ),
            call("", 2, "work", use("Read", file_path="mine.jsonl")),
            call("a1", 3, "look at é", {"type": "text", "text": "It is fine."}),
            call("b2", 4, "nobody asked for this"),
        ]
    )
    reviewer, other = found
    assert (reviewer.name, reviewer.kind) == ("a1", "p:reviewer")
    assert (reviewer.began[14:19], reviewer.ended[14:19]) == ("01:00", "03:30")
    assert "p.jsonl" in reviewer.looked_at and "mine.jsonl" not in reviewer.looked_at
    assert (other.name, other.kind, other.looked_at) == ("b2", None, "")


def test_an_agent_that_was_never_answered_did_nothing() -> None:
    one = call("a1", 0, "look")
    lost = Interaction(
        one.intent, CallState.LOST, None, one.prompt, one.output, None, request=b"not json"
    )
    assert sub_agents([lost, call("", 1, "work")]) == ()


def test_a_request_of_another_dialect_has_no_opening() -> None:
    one = call("a1", 0, "x")
    strange = Interaction(
        one.intent, one.state, one.answer, one.prompt, one.output, None, request=b"\xff"
    )
    (found,) = sub_agents([strange])
    assert found.kind is None
