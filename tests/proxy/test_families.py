"""What the proxy promises for every family, through its own code (invariants 1 to 3).

Growing a conversation extends the token prefix or is a branch with its reason; counting a request
gives the length of its prompt; events concatenate to the whole answer wherever a stream is cut.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import anyio
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app import Parts, Settings, running
from proxy.dialects import CHAT, MESSAGES, RESPONSES
from proxy.dialects.base import Dialect
from proxy.hearing import Heard, Hearing
from proxy.turns import Party
from runtime.compute.protocol import Chunk, Sampled, SamplingParams
from runtime.formats.carried import carried_tokenizer
from runtime.formats.codec import Codec
from runtime.formats.conversation import Block, Text, Thinking, Tool, ToolUse
from runtime.formats.families import Delta, Family
from specs import canonical, evidence
from specs.ids import Prefix, new_id
from specs.interaction import BranchReason, Interaction
from specs.model import RENDERERS, FamilyName, ModelInfo
from specs.run import SamplerRef
from specs.worker_api import TrialClaims
from tests.proxy.test_hearing import INTERACTION, head, listened, whole_of
from tests.proxy.test_invariants import check
from tests.proxy.world import MODEL, TOKENIZER, WORKER_KEY, Dice, TestGateway, user
from tests.runtime.formats.families.test_properties import NAMES, TOKENIZERS, voice

BASH: dict[str, Any] = {
    "name": "Bash",
    "description": "Run",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
    },
}
ANSWERS: tuple[tuple[Block, ...], ...] = (
    (Text("done"),),
    (Thinking("hm ☃"), Text("two words\n")),
    (Thinking("why"), ToolUse("", "Bash", {"command": "ls 'a b' <c>\n", "timeout": 3})),
    (Text("both"), ToolUse("", "Bash", {"command": "a"}), ToolUse("", "Bash", {"command": "é"})),
    (),
)
ACTIONS = (
    "grow", "grow", "grow", "edit", "rewind", "system", "tools", "quiet", "call", "cut",
    "forget thinking",
)  # fmt: skip
step = st.tuples(st.sampled_from(ACTIONS), st.sampled_from(range(len(ANSWERS))))


@cache
def tokenizer(name: FamilyName) -> bytes:
    return TOKENIZER if name == "chatml" else carried_tokenizer(TOKENIZERS[name])


class Speaker(Dice):
    """A compute whose answers are blocks, in the tokens and grammar of a family."""

    def __init__(self, name: FamilyName) -> None:
        super().__init__()
        self.name = name
        self.family, self.codec = voice(name)
        self.answer: tuple[Block, ...] = ()

    async def model(self, name: str) -> ModelInfo:
        ends = (self.codec.mark(stop) for stop in self.family.stops)
        return (await super().model(name)).model_copy(
            update={
                "family": self.name,
                "tokenizer_digest": canonical.digest_bytes(tokenizer(self.name)),
                "stop_tokens": tuple(end for end in ends if end is not None),
                "context_tokens": 1 << 16,
            }
        )

    async def tokenizer(self, name: str) -> bytes:
        return tokenizer(self.name)

    def _sampled(self, number: int, prompt: list[int], params: SamplingParams) -> Sampled:
        ids = list(self.codec.encode(self.family.answer(self.answer)))
        stop = next((at for at, one in enumerate(ids) if one in params.stop), len(ids))
        ids = ids[: stop + 1]  # gpt-oss: a call ends its answer
        kept = np.array(ids[: params.max_tokens], np.int32)
        logprobs = np.full(len(kept), -0.5, np.float32)
        return Sampled(kept, logprobs, "stop" if len(kept) == len(ids) else "length")


class Talk:
    """A harness that grows, edits and rewinds its history, and counts before it asks."""

    def __init__(self, folder: Path, name: FamilyName) -> None:
        self.compute = Speaker(name)
        self.gateway = TestGateway()
        ref = SamplerRef(
            id=new_id(Prefix.SAMPLER),
            backend="torch",
            base_model=MODEL,
            base_digest="sha256:" + "0" * 64,
            tokenizer_digest=canonical.digest_bytes(tokenizer(name)),
            renderer=f"{name}/{RENDERERS[name]}",
            adapter=None,
        )
        self.gateway.samplers[ref.id] = ref
        self.claims = TrialClaims.model_validate(self.gateway.claims(sampler=ref.id))
        self.settings = Settings(folder, cast(Any, self.compute), self.gateway, WORKER_KEY, grace=0)
        self.fields: dict[str, Any] = {"tools": [BASH]}
        self.turns: list[dict[str, Any]] = [user("start")]
        self.number = 0

    async def play(self, steps: Sequence[tuple[str, int]]) -> None:
        async with running(self.settings) as parts:
            for action, number in steps:
                await self.act(parts, action, ANSWERS[number])

    async def act(self, parts: Parts, action: str, answer: tuple[Block, ...]) -> None:
        once: dict[str, Any] = {}
        self.compute.answer = answer
        match action:
            case "edit":
                self.turns[0] = user(f"start {self.number}")
            case "rewind":
                self.turns = self.turns[: max(1, len(self.turns) // 4 * 2 + 1)]
            case "system":
                self.fields["system"] = f"system {self.number}"
            case "tools":
                self.fields["tools"] = [{**BASH, "description": f"Run {self.number}"}]
            case "quiet":
                once["thinking"] = {"type": "disabled"}
            case "call":
                once["tool_choice"] = {"type": "tool", "name": "Bash"}
            case "cut":
                once["max_tokens"] = 3
            case "forget thinking":
                for turn in self.turns:
                    if turn["role"] == "assistant":
                        turn["content"] = [b for b in turn["content"] if b["type"] != "thinking"]
            case _:
                pass
        await self.ask(parts, once)

    async def ask(self, parts: Parts, once: dict[str, Any]) -> None:
        self.number += 1
        body = {
            "model": "m",
            "max_tokens": 400,
            "messages": self.turns,
            **self.fields,
            **once,
        }
        data, party = json.dumps(body).encode(), Party()
        counted = await parts.calls.count(MESSAGES, self.claims, party, data)
        joined = await parts.calls.ask(MESSAGES, self.claims, party, data, retry=False)
        await joined.call.done.wait()
        assert joined.call.result is not None
        parts.life.leave(joined.trial, joined.call, delivered=True)
        assert counted == joined.call.intent.prompt_tokens
        content = cast(list[dict[str, Any]], joined.call.result.answer.content)
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": f"r{self.number}"}
            for block in content
            if block["type"] == "tool_use"
        ]
        more = {"type": "text", "text": f"go on {self.number}"}
        self.turns = [
            *self.turns,
            {"role": "assistant", "content": content},
            {"role": "user", "content": [*results, more]},
        ]


def played(name: FamilyName, steps: Sequence[tuple[str, int]]) -> tuple[Talk, list[Interaction]]:
    folder = Path(tempfile.mkdtemp(prefix="p-"))
    try:
        talk = Talk(folder, name)
        anyio.run(talk.play, steps)
        (segment,) = folder.glob("*.seg")
        return talk, evidence.interactions(segment.read_bytes())
    finally:
        shutil.rmtree(folder)


def holds(whole: "Sequence[int]", part: "Sequence[int]") -> bool:
    size = len(part)
    return any(list(whole[at : at + size]) == list(part) for at in range(len(whole) - size + 1))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(step, min_size=2, max_size=6))
def test_a_growing_conversation_extends_its_tokens_or_branches_and_counting_is_exact(
    name: FamilyName, steps: list[tuple[str, int]]
) -> None:
    talk, calls = played(name, steps)
    check(cast(Any, talk), calls)
    assert len(calls) == len({(call.intent.sequence) for call in calls})
    growing = ("grow", "quiet", "call", "cut", "forget thinking")
    edited = False
    for (action, _), call in zip(steps[1:], calls[1:], strict=True):
        # behind an edit earlier answers are words of the request, which no echo may change
        foreign = edited and action == "forget thinking"
        assert call.exact or foreign or action not in growing, (action, call.intent.branch)
        edited |= not call.exact
        assert not call.exact or action in growing or action in ("rewind", "edit")


@pytest.mark.parametrize("name", NAMES)
def test_answers_keep_their_tokens_in_a_history_that_is_rendered_anew(name: FamilyName) -> None:
    """Invariant 1: also where system or tools have changed, and where the answer was cut."""
    steps = [("grow", 1), ("cut", 3), ("quiet", 3), ("grow", 2), ("system", 0), ("tools", 0)]
    _, calls = played(name, steps)
    reasons = [call.intent.branch for call in calls[-2:]]
    assert reasons == [BranchReason.SYSTEM_CHANGED, BranchReason.TOOLS_CHANGED]
    for number, call in enumerate(calls):
        noted = "kept_answers" in call.intent.normalisations
        assert noted == (call.intent.branch not in (None, BranchReason.ROOT))
        if noted:
            assert all(holds(call.prompt, earlier.output) for earlier in calls[:number])


HEAD = replace(head(), intent=head().intent.model_copy(update={"at": "2026-01-01T00:00:00Z"}))
ONE = (ANSWERS[1], ANSWERS[2], ANSWERS[3])


def chunks(ids: Sequence[int], cut: int) -> list[Chunk]:
    first, rest = (np.array(part, np.int32) for part in (ids[:cut], ids[cut:]))
    return [Chunk(first, None, "scripted"), Chunk(rest, None, "scripted", "stop")]


def heard(family: Family, codec: Codec, ids: Sequence[int], cut: int) -> tuple[Heard, list[Delta]]:
    tools = [Tool("Bash", "", BASH["input_schema"])]
    reader = family.reader(call=INTERACTION, tools=tools)
    hearing = Hearing(INTERACTION, codec.decoder(), reader, ())
    shown = [delta for chunk in chunks(ids, cut) for delta in hearing.feed(chunk)]
    return hearing.close(), shown


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", ONE, ids=["text", "call", "calls"])
def test_events_concatenate_to_the_whole_answer_at_every_chunk_boundary(
    name: FamilyName, blocks: tuple[Block, ...]
) -> None:
    """Block by block, in each dialect."""
    family, codec = voice(name)
    ids = list(codec.encode(family.answer(blocks)))
    alone, _ = heard(family, codec, ids, len(ids))
    assert len(alone.content) >= len(blocks) - (not family.thinks)
    for cut in range(1, len(ids)):
        found, shown = heard(family, codec, ids, cut)
        assert found.content == alone.content
        whole = whole_of(found)
        for dialect, gather in ((MESSAGES, listened), (CHAT, gathered), (RESPONSES, completed)):
            told = cast(Dialect, dialect).events(HEAD)
            data = told.begin() + b"".join(told.delta(delta) for delta in shown)
            made = gather(data + told.end(whole))
            assert made == compared(dialect.message(HEAD, whole), dialect)


def compared(message: dict[str, Any], dialect: Any) -> dict[str, Any]:
    """Of a whole answer what its events show."""
    if dialect is CHAT:
        choice = message["choices"][0]
        said = choice["message"]
        return {
            "content": said["content"] or "",
            "reasoning_content": said.get("reasoning_content", ""),
            "tool_calls": said.get("tool_calls", []),
            "finish_reason": choice["finish_reason"],
        }
    return {"output": message["output"]} if dialect is RESPONSES else message


def lines(data: bytes) -> list[dict[str, Any]]:
    found = (line.removeprefix("data: ") for line in data.decode().split("\n"))
    return [json.loads(line) for line in found if line.startswith("{")]


def gathered(data: bytes) -> dict[str, Any]:
    """A client of Chat Completions."""
    made: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in lines(data):
        choice = chunk["choices"][0]
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            made[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", ()):
            assert call.pop("index") == len(made["tool_calls"])
            made["tool_calls"].append(call)
        made["finish_reason"] = choice["finish_reason"]
    return made


def completed(data: bytes) -> dict[str, Any]:
    """A client of Responses, which puts items together from their deltas."""
    items: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for event in lines(data):
        index: int = event.get("output_index", -1)
        match event["type"]:
            case "response.output_item.added":
                assert index == len(items)
                items.append(event["item"])
            case "response.output_text.delta" | "response.reasoning_text.delta":
                texts[index] = texts.get(index, "") + event["delta"]
            case "response.function_call_arguments.delta":
                texts[index] = texts.get(index, "") + event["delta"]
            case "response.output_item.done":
                item = items[index] = event["item"]
                shown = item.get("arguments") or item["content"][0]["text"]
                assert shown == texts[index]
            case "response.completed":
                assert event["response"]["output"] == items
            case _:
                pass
    return {"output": items}
