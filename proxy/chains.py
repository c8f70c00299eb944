"""Exact history: which earlier call a request continues, and with which tokens.

A turn is looked up by a rolling hash over its history, in which an answer counts by its words
and by the ids of its tool calls, and is then compared with what was really answered (see
`proxy.replay`). If they differ only in what harnesses are known to change, the prompt is the
turn's own prompt and output plus the rendered rest: sampled tokens are never rendered again
(invariants 1 and 3). Anything else is a branch with its reason, and answers of ours that are in
its rest keep their tokens too (see `proxy.keeping`). Sessions and agents have chains of their
own; a history that goes on under another name is `forked`.

An answer that was cut at `max_tokens` is continued exactly too: the turn's end that the model
did not draw becomes part of the next prompt. So `truncated` is never a reason to branch.
"""

import hashlib
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue

from proxy.compaction import Compactions, asks_for_summary
from proxy.keeping import Kept
from proxy.replay import Note, compare
from proxy.turns import Match, Party, Scene, Turn
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


@dataclass(slots=True)
class Chains:
    """The answered turns of one trial."""

    incomplete: bool = False
    """Some turns could not be read back after a restart."""
    minted: set[str] = field(default_factory=set[str])
    _turns: dict[bytes, list[Turn]] = field(default_factory=dict[bytes, list[Turn]])
    _silent: dict[bytes, Turn] = field(default_factory=dict[bytes, Turn])
    _parties: set[Party] = field(default_factory=set[Party])
    _compactions: Compactions = field(default_factory=Compactions)
    _kept: Kept = field(default_factory=Kept)

    def settle(
        self,
        turn: Turn,
        messages: Sequence[Message],
        content: Sequence[JsonValue],
        known: Sequence[bytes] | None = None,
    ) -> None:
        """Remember an answered turn; `messages` are its request's, `content` its answer.

        `known` are the marks of the messages, where they have been made.
        """
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self.minted.add(cast(str, block["id"]))
        earlier, said = list(messages), answer_blocks(content)
        if earlier and earlier[-1].role == "assistant":
            turn.prefilled = True
            said = _joined(earlier.pop().blocks, said)
        turn.said, turn.place = said, len(earlier)
        start = turn.base.place + 1 if turn.base is not None else 0
        turn.foreign = tuple(
            (index, _digest(message))
            for index, message in enumerate(earlier[start:], start)
            if message.role == "assistant"
        )
        before = self.marks(earlier) if known is None else known[: len(earlier)]
        marks = [*before, *self.marks([Message("assistant", said)])]
        turn.after = _rolling(marks)[-1]
        self._turns.setdefault(turn.after, []).append(turn)
        self._kept.add(marks[-1], turn)
        self._parties.add(turn.party)
        self._compactions.answered(turn.party.session, said)
        if _shows_nothing(said):
            turn.asked = self._request(messages)
            self._silent[turn.asked] = turn

    def set_aside(self, turn: Turn) -> None:
        """Forget an answer that its harness threw away: another takes its place."""
        self._silent.pop(turn.asked, None)
        self._turns[turn.after].remove(turn)
        self._kept.remove(turn)
        if turn.base is not None:
            turn.base.followers -= 1

    def match(
        self,
        conversation: Conversation,
        scene: Scene,
        party: Party,
        ends: Container[int],
        known: Sequence[bytes] | None = None,
    ) -> Match:
        """Find the longest answered history that the request continues.

        `ends` are the tokens that end a turn: a request that ends with an assistant turn
        continues that turn's tokens only if they were cut before their end. `known` are the
        marks of the conversation's messages, where they have been made.
        """
        messages = conversation.messages
        tools = {tool.name: tool for tool in conversation.tools}
        marks = self.marks(messages) if known is None else known
        hashes = _rolling(marks)
        retried = self._retried(messages, scene, party)
        strangers: list[Turn] = []
        for length in range(len(messages), 0, -1):
            turns = [
                turn for turn in self._turns.get(hashes[length - 1], ()) if turn is not retried
            ]
            if length == len(messages):
                turns = [turn for turn in turns if not turn.output or turn.output[-1] not in ends]
            same: list[tuple[Turn, frozenset[Note]]] = []
            for turn in turns:
                if turn.scene != scene:
                    strangers.append(turn)
                elif (notes := _echoes(turn, messages, tools)) is not None:
                    same.append((turn, notes))
            if same:
                turn, notes = same[_best([turn for turn, _ in same], party)]
                if retried is not None:
                    notes |= {Note.RETRIED_EMPTY_REPLY}
                reason = _reason(turn, messages, length, party, retried)
                found = Match(turn, length, reason, notes, retried)
                return self._kept.within(found, messages, marks, scene, party, tools)
        notes = frozenset({Note.RETRIED_EMPTY_REPLY} if retried else ())
        reason = self._root_reason(messages, scene, party, strangers)
        found = Match(None, 0, reason, notes, retried)
        return self._kept.within(found, messages, marks, scene, party, tools)

    def marks(self, messages: Sequence[Message]) -> list[bytes]:
        """What each message counts by in a history: an answer by its words and calls.

        Linear in all their text. It may run on a thread: it reads nothing but `minted`, and a
        request that names an id was sent after that id was minted.
        """
        return [hashlib.sha256(self._meaning(message)).digest() for message in messages]

    def _retried(self, messages: Sequence[Message], scene: Scene, party: Party) -> Turn | None:
        """The answer without anything to see after which the harness asks once more.

        It sends the same history with one text more in the last turn of the user, and without
        that answer.
        """
        if not self._silent:
            return None
        last = _last_user(messages)
        blocks = messages[last].blocks if last is not None else ()
        if last is None or len(blocks) < 2 or not isinstance(blocks[-1], Text):
            return None
        earlier = Message("user", blocks[:-1])
        turn = self._silent.get(self._request([*messages[:last], earlier, *messages[last + 1 :]]))
        if turn is None or turn.followers or (turn.scene, turn.party) != (scene, party):
            return None
        return turn

    def _request(self, messages: Sequence[Message]) -> bytes:
        """Hash of a request, whose last turn of the user counts without the space around texts."""
        last = _last_user(messages)
        if last is not None:
            blocks = tuple(
                Text(block.text.strip()) if isinstance(block, Text) else block
                for block in messages[last].blocks
            )
            messages = [*messages[:last], Message("user", blocks), *messages[last + 1 :]]
        return _rolling(self.marks(messages))[-1]

    def _root_reason(
        self, messages: Sequence[Message], scene: Scene, party: Party, strangers: Sequence[Turn]
    ) -> BranchReason:
        if strangers:
            stranger = max(strangers, key=lambda turn: turn.place)
            if stranger.scene.sampler != scene.sampler:
                return BranchReason.SAMPLER_CHANGED
            changed = stranger.scene.system != scene.system
            return BranchReason.SYSTEM_CHANGED if changed else BranchReason.TOOLS_CHANGED
        if self._compactions.continues(party.session, messages):
            return BranchReason.COMPACTED
        if not any(message.role == "assistant" for message in messages):
            return BranchReason.ROOT
        if self.incomplete:
            return BranchReason.PROXY_RESTART
        return BranchReason.EDITED if party in self._parties else BranchReason.ROOT

    def _meaning(self, message: Message) -> bytes:
        if message.role != "assistant":
            return _bytes([message.role, *(_plain(block) for block in message.blocks)])
        texts = "".join(block.text for block in message.blocks if isinstance(block, Text))
        calls: list[JsonValue] = [
            [block.id, block.name, None if block.id in self.minted else dict(block.input)]
            for block in message.blocks
            if isinstance(block, ToolUse)
        ]
        return _bytes(["assistant", "".join(texts.split()), calls])


def _rolling(marks: Sequence[bytes]) -> list[bytes]:
    """Hash of the history up to and with each message."""
    result: list[bytes] = []
    state = hashlib.sha256()
    for mark in marks:
        state.update(mark)
        result.append(state.copy().digest())
    return result


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
        elif value["type"] == "tool_use":
            arguments = cast(dict[str, JsonValue], value["input"])
            blocks.append(ToolUse(cast(str, value["id"]), cast(str, value["name"]), arguments))
        elif value["type"] == "thinking":
            signature = cast(str, value.get("signature", ""))
            blocks.append(Thinking(cast(str, value["thinking"]), signature))
    return tuple(blocks)


def _echoes(
    turn: Turn, messages: Sequence[Message], tools: dict[str, Tool]
) -> frozenset[Note] | None:
    """What a harness changed in the answers of a chain; None if it is not that chain."""
    notes: set[Note] = set()
    place = len(messages)
    link: Turn | None = turn
    while link is not None:
        if link.place < place:  # of turns that continue one another, the last holds all the text
            place = link.place
            found = compare(link.said, messages[place].blocks, tools)
            if found is None:
                return None
            notes |= found
        if any(_digest(messages[index]) != digest for index, digest in link.foreign):
            return None
        link = link.base
    return frozenset(notes)


def _best(turns: Sequence[Turn], party: Party) -> int:
    """Of equal histories: the party's own, one that nobody continues, the latest."""
    return max(
        range(len(turns)),
        key=lambda index: (turns[index].party == party, not turns[index].followers, index),
    )


def _reason(
    turn: Turn, messages: Sequence[Message], length: int, party: Party, retried: Turn | None
) -> BranchReason | None:
    if turn.party != party:
        return BranchReason.FORKED
    replaced = retried is not None and retried.base is turn
    if turn.followers - replaced <= 0:
        return None
    if asks_for_summary(messages):
        return BranchReason.COMPACTED
    edited = any(message.role == "assistant" for message in messages[length:])
    return BranchReason.EDITED if edited else BranchReason.REWOUND


def _last_user(messages: Sequence[Message]) -> int | None:
    places = (index for index in range(len(messages) - 1, -1, -1))
    return next((index for index in places if messages[index].role == "user"), None)


def _shows_nothing(said: Sequence[Block]) -> bool:
    return not any(
        isinstance(block, ToolUse) or (isinstance(block, Text) and block.text.strip())
        for block in said
    )


def _joined(prefill: tuple[Block, ...], answer: tuple[Block, ...]) -> tuple[Block, ...]:
    if prefill and answer:
        last, first = prefill[-1], answer[0]
        if isinstance(last, Text) and isinstance(first, Text):
            return (*prefill[:-1], Text(last.text + first.text), *answer[1:])
    return prefill + answer


def _digest(message: Message) -> bytes:
    plain = [message.role, *(_plain(block) for block in message.blocks)]
    return hashlib.sha256(_bytes(plain)).digest()


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
