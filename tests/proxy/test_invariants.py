"""Random conversations: whatever harnesses do, the evidence keeps its promises.

Invariant 1: prompts and outputs in the evidence are those that compute saw and drew.
Invariant 2: every call that was asked for is on record, in a state of its own.
Invariant 3: a call extends its parent's prompt and output exactly, or is a branch with a reason.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app import Parts, Settings, running
from proxy.auth import AUDIENCE
from proxy.dialects import MESSAGES
from proxy.turns import Party
from specs import evidence
from specs.interaction import CallState, Interaction
from specs.worker_api import TrialClaims
from tests.proxy.test_history import BASH, call
from tests.proxy.world import WORKER_KEY, Dice, Reply, TestGateway, user

ACTIONS = (
    "new", "continue", "continue", "continue", "tool", "edit", "rewind", "retry", "leave",
    "restart", "system", "agent", "cut", "strip",
)  # fmt: skip
REPLIES = ("ls", "", " two words ", call("ls"), f"a\n{call('x')}\nb\n{call('y')}", "<tool_call>")

step = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5), st.text(max_size=6))


class Player:
    """A harness that does odd things, and remembers what it was answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway = TestGateway()
        self.compute = Dice()
        self.claims = TrialClaims.model_validate(self.gateway.claims())
        assert self.claims.aud == AUDIENCE
        self.fields: dict[str, Any] = {"tools": [BASH]}
        self.party = Party()
        self.turns: list[dict[str, Any]] = [user("start")]
        self.max_tokens = 400
        self.asked = 0
        self.left = 0

    @property
    def settings(self) -> Settings:
        return Settings(self.folder, cast(Any, self.compute), self.gateway, WORKER_KEY, grace=0)

    async def play(self, steps: Sequence[tuple[str, int, str]]) -> None:
        rest = list(steps)
        while rest:
            async with running(self.settings) as parts:
                while rest:
                    action, number, text = rest.pop(0)
                    if action == "restart":
                        break
                    await self.act(parts, action, number, text)

    async def act(self, parts: Parts, action: str, number: int, text: str) -> None:
        silent: list[Reply] = [""] * len(self.compute.prompts)
        self.compute.replies = [*silent, REPLIES[number]]
        if action == "new":
            self.turns = [user(text)]
        elif action == "edit" and len(self.turns) > 1:
            self.turns[1:3] = [{"role": "assistant", "content": text}, user(text)]
        elif action == "rewind":
            self.turns = self.turns[: max(1, len(self.turns) // 4 * 2 + 1)]
        elif action == "system":
            self.fields["system"] = text
        elif action == "agent":
            self.party = Party("s", text)
        elif action == "cut":
            self.max_tokens = 1 + number
        elif action == "strip":
            self._strip_echo()
        again = action == "retry"
        await self.ask(parts, leave=action == "leave", text=text)
        if again:
            await self.ask(parts, leave=False, text=text)

    async def ask(self, parts: Parts, *, leave: bool, text: str) -> None:
        body = {"model": "m", "max_tokens": self.max_tokens, "messages": self.turns, **self.fields}
        joined = await parts.calls.ask(
            MESSAGES, self.claims, self.party, json.dumps(body).encode(), retry=False
        )
        self.asked += 1
        if leave:
            self.left += 1
            parts.life.leave(joined.trial, joined.call, delivered=False)
            await joined.call.done.wait()
            return
        await joined.call.done.wait()
        assert joined.call.result is not None
        parts.life.leave(joined.trial, joined.call, delivered=True)
        content = cast(list[dict[str, Any]], joined.call.result.answer.content)
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text}
            for block in content
            if block["type"] == "tool_use"
        ]
        self.turns = [
            *self.turns,
            {"role": "assistant", "content": content},
            {"role": "user", "content": [*reversed(results), {"type": "text", "text": text}]},
        ]

    def _strip_echo(self) -> None:
        """What harnesses do to an echo: strip its text, move it before the calls."""
        for turn in self.turns:
            if turn["role"] == "assistant" and isinstance(turn["content"], list):
                blocks = cast(list[dict[str, Any]], turn["content"])
                texts = [
                    {**block, "text": block["text"].strip()}
                    for block in blocks
                    if block["type"] == "text"
                ]
                turn["content"] = texts + [one for one in blocks if one["type"] != "text"]


def check(player: Player, calls: Sequence[Interaction]) -> None:
    by_id = {one.intent.interaction: one for one in calls}
    assert [list(one.prompt) for one in calls] == player.compute.prompts
    assert [one.intent.sequence for one in calls] == list(range(len(calls)))
    for one in calls:
        assert one.state in (CallState.ANSWERED, CallState.SUPERSEDED)
        assert (one.intent.parent is None) == (one.intent.branch is not None)
        assert one.logprobs is not None and len(one.logprobs) == len(one.output)
        if one.intent.parent is not None:
            before = by_id[one.intent.parent]
            whole = before.prompt + before.output
            assert one.prompt[: len(whole)] == whole


@pytest.mark.timeout(240)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, min_size=1, max_size=12))
def test_random_conversations_keep_invariants_1_2_and_3(
    steps: list[tuple[str, int, str]],
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="p-"))
    try:
        player = Player(folder)
        anyio.run(player.play, steps)
        segments = [path.read_bytes() for path in folder.glob("*.seg")]
        check(player, [call for data in segments for call in evidence.interactions(data)])
    finally:
        shutil.rmtree(folder)


def test_a_plain_growing_conversation_never_branches_and_encodes_only_what_is_new() -> None:
    """Tokenisation work per turn does not grow with the conversation."""
    folder = Path(tempfile.mkdtemp(prefix="p-"))
    try:
        player = Player(folder)
        anyio.run(player.play, [("continue", number % 6, "more") for number in range(24)])
        (segment,) = folder.glob("*.seg")
        calls = evidence.interactions(segment.read_bytes())
    finally:
        shutil.rmtree(folder)
    assert [one.intent.branch for one in calls][1:] == [None] * 23
    suffixes = [
        len(later.prompt) - len(earlier.prompt) - len(earlier.output)
        for earlier, later in pairwise(calls)
    ]
    assert max(suffixes) < 250
