"""Exact history: which earlier call a request continues, and with which tokens.

A turn is found again by the meaning of its history: a rolling hash over normal forms, in
which a tool call that the proxy minted counts by its id (a harness may rewrite arguments) and
text counts without the space around it. The prompt is then the turn's own prompt and output
plus the rendered rest: sampled tokens are never rendered again (invariants 1 and 3).

An answer that was cut at `max_tokens` is continued exactly too: the turn's end that the model
did not draw becomes part of the next prompt. So `truncated` is never a reason to branch.
"""

import hashlib
import json
from array import array
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from specs.interaction import BranchReason


@dataclass(frozen=True, slots=True)
class Scene:
    """What must be equal for a history to be the same: system, tools and sampler."""

    system: bytes
    tools: bytes
    sampler: str


@dataclass(frozen=True, slots=True)
class Party:
    """The harness's own names for who is talking."""

    session: str = ""
    agent: str = ""


@dataclass(slots=True, eq=False)
class Turn:
    """An answered call: its tokens, and the hash of the history that ends with its answer."""

    interaction: str
    base: "Turn | None"
    suffix: "array[int]"
    output: "array[int]"
    after: bytes
    scene: Scene
    party: Party
    followers: int = 0
    """Calls that continue it and are not lost."""

    def tokens(self) -> "array[int]":
        """Its whole prompt and output."""
        line: list[Turn] = [self]
        while (earlier := line[-1].base) is not None:
            line.append(earlier)
        ids = array("i")
        for turn in reversed(line):
            ids.extend(turn.suffix)
            ids.extend(turn.output)
        return ids


@dataclass(frozen=True, slots=True)
class Match:
    """How a request relates to what was answered.

    The prompt is the tokens of `base` (or the opening, without one) and then the messages
    from `start`. `branch` is None exactly when the call extends `base`.
    """

    base: Turn | None
    start: int
    branch: BranchReason | None


@dataclass(slots=True)
class Chains:
    """The answered turns of one trial."""

    incomplete: bool = False
    """Some turns could not be read back after a restart."""
    minted: set[str] = field(default_factory=set[str])
    _turns: dict[bytes, list[Turn]] = field(default_factory=dict[bytes, list[Turn]])
    _parties: set[Party] = field(default_factory=set[Party])

    def add(self, turn: Turn) -> None:
        """Remember an answered turn."""
        self._turns.setdefault(turn.after, []).append(turn)
        self._parties.add(turn.party)

    def mint(self, content: Sequence[JsonValue]) -> None:
        """Remember the ids of an answer's tool calls, before its hash is taken."""
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self.minted.add(cast(str, block["id"]))

    def match(
        self, conversation: Conversation, scene: Scene, party: Party, ends: Container[int]
    ) -> Match:
        """Find the longest answered history that the request continues.

        `ends` are the tokens that end a turn: a request that ends with an assistant turn
        continues that turn's tokens only if they were cut before their end.
        """
        messages = conversation.messages
        hashes = self.hashes(messages)
        stranger: Turn | None = None
        for length in range(len(messages), 0, -1):
            turns = self._turns.get(hashes[length - 1], [])
            if length == len(messages):
                turns = [turn for turn in turns if not turn.output or turn.output[-1] not in ends]
            same = [turn for turn in turns if turn.scene == scene]
            if same:
                turn = max(enumerate(same), key=lambda item: _preference(item, party))[1]
                return Match(turn, length, _reason(turn, messages[length:]))
            if turns and stranger is None:
                stranger = turns[-1]
        return Match(None, 0, self._root_reason(messages, scene, party, stranger))

    def hashes(self, messages: Sequence[Message]) -> list[bytes]:
        """Rolling hash after each message."""
        result: list[bytes] = []
        state = hashlib.sha256()
        for message in messages:
            state.update(hashlib.sha256(self._meaning(message)).digest())
            result.append(state.copy().digest())
        return result

    def after(self, messages: Sequence[Message], content: Sequence[JsonValue]) -> bytes:
        """Hash of the history that ends with an answer; a prefilled turn is one turn with it."""
        earlier, blocks = list(messages), answer_blocks(content)
        if earlier and earlier[-1].role == "assistant":
            blocks = _joined(earlier.pop().blocks, blocks)
        return self.hashes([*earlier, Message("assistant", blocks)])[-1]

    def _root_reason(
        self,
        messages: Sequence[Message],
        scene: Scene,
        party: Party,
        stranger: Turn | None,
    ) -> BranchReason:
        if stranger is not None:
            if stranger.scene.sampler != scene.sampler:
                return BranchReason.SAMPLER_CHANGED
            changed = stranger.scene.system != scene.system
            return BranchReason.SYSTEM_CHANGED if changed else BranchReason.TOOLS_CHANGED
        if not any(message.role == "assistant" for message in messages):
            return BranchReason.ROOT
        if self.incomplete:
            return BranchReason.PROXY_RESTART
        return BranchReason.EDITED if party in self._parties else BranchReason.ROOT

    def _meaning(self, message: Message) -> bytes:
        if message.role != "assistant":
            return _bytes([message.role, *(_plain(block) for block in message.blocks)])
        texts = "\n".join(
            block.text.strip()
            for block in message.blocks
            if isinstance(block, Text) and block.text.strip()
        )
        calls: list[JsonValue] = [
            [block.id, block.name, None if block.id in self.minted else dict(block.input)]
            for block in message.blocks
            if isinstance(block, ToolUse)
        ]
        return _bytes(["assistant", texts, calls])


def scene_of(conversation: Conversation, sampler: str) -> Scene:
    """The scene of a request."""
    return Scene(
        hashlib.sha256(_bytes(list(conversation.system))).digest(),
        hashlib.sha256(_bytes([_tool(tool) for tool in conversation.tools])).digest(),
        sampler,
    )


def answer_blocks(content: Sequence[JsonValue]) -> tuple[Block, ...]:
    """Content blocks of an answer in normal form."""
    blocks: list[Block] = []
    for block in content:
        value = cast(dict[str, JsonValue], block)
        if value["type"] == "text":
            blocks.append(Text(cast(str, value["text"])))
        else:
            arguments = cast(dict[str, JsonValue], value["input"])
            blocks.append(ToolUse(cast(str, value["id"]), cast(str, value["name"]), arguments))
    return tuple(blocks)


def _preference(item: tuple[int, Turn], party: Party) -> tuple[bool, bool, int]:
    """Of equal histories: one that nobody continues, the party's own, the latest."""
    index, turn = item
    return (not turn.followers, turn.party == party, index)


def _reason(turn: Turn, rest: Sequence[Message]) -> BranchReason | None:
    if not turn.followers:
        return None
    edited = any(message.role == "assistant" for message in rest)
    return BranchReason.EDITED if edited else BranchReason.REWOUND


def _joined(prefill: tuple[Block, ...], answer: tuple[Block, ...]) -> tuple[Block, ...]:
    if prefill and answer:
        last, first = prefill[-1], answer[0]
        if isinstance(last, Text) and isinstance(first, Text):
            return (*prefill[:-1], Text(last.text + first.text), *answer[1:])
    return prefill + answer


def _plain(block: Block) -> JsonValue:
    match block:
        case Text():
            return ["text", block.text]
        case Thinking():
            return ["thinking", block.text]
        case ToolResult():
            return ["result", block.call, block.text]
        case ToolUse():
            return ["call", block.id, block.name, dict(block.input)]


def _tool(tool: Tool) -> JsonValue:
    return [tool.name, tool.description, dict(tool.schema)]


def _bytes(value: JsonValue) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
