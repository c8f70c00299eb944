"""What Claude Code does with its history, as recorded from the real binary (invariants 1 to 3)."""

from pathlib import Path
from typing import Any

import pytest

from specs import evidence
from specs.evidence import refusals
from specs.interaction import BranchReason, CallState
from tests.proxy.test_history import BASH, call, result
from tests.proxy.world import Dice, Harness, World, echo, user, world

pytestmark = pytest.mark.anyio

NUDGE = "[Your previous response had no visible output. Please continue.]"
ASK = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
CONTINUED = "This session is being continued from a previous conversation that ran out of context."
LIST: dict[str, Any] = {"role": "system", "content": "Agents: none."}


def blocks(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


async def test_the_retry_after_an_empty_reply_replaces_it(short_dir: Path) -> None:
    """One span: the chain goes on where the empty reply had begun, and that one is not trained."""
    compute = Dice(["first", "", "second", "third"])
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([blocks("hello"), LIST])
        turns = [blocks("hello"), LIST, echo(first)]
        await harness.say([*turns, blocks("more"), LIST])
        again = [*turns, blocks("more\n", NUDGE), LIST]
        second = await harness.say(again)
        one, empty, two = stack.interactions(claims["trial"])
    assert empty.state is CallState.SUPERSEDED and two.state is CallState.ANSWERED
    assert two.exact and two.intent.parent == one.intent.interaction
    assert "retried_empty_reply" in two.intent.normalisations
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        await stack.harness(**claims).say([*again, echo(second), user("go on")])
        calls = stack.interactions(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    assert calls[3].exact and calls[3].intent.parent == two.intent.interaction
    assert seal["complete"] and seal["states"]["superseded"] == 1


async def test_an_empty_first_reply_leaves_a_root(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["", "seen"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        await harness.say([blocks("hello"), LIST])
        await harness.say([blocks("hello\n", NUDGE), LIST])
        empty, two = stack.interactions(claims["trial"])
    assert (empty.state, two.intent.branch) == (CallState.SUPERSEDED, BranchReason.ROOT)


async def test_text_after_an_answer_that_was_seen_is_no_retry(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["seen", "again"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        await harness.say([blocks("hello")])
        await harness.say([blocks("hello", "more")])
        assert [one.state for one in stack.interactions(claims["trial"])] == [
            CallState.ANSWERED
        ] * 2


async def test_the_plain_request_after_a_broken_stream_is_the_same_call(short_dir: Path) -> None:
    """Invariant 2: also where the proxy has seen all of its events leave."""
    async with world(short_dir, compute=Dice(["one", "two"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        streamed = await harness.post([user("u")], stream=True)
        assert "one" in streamed.text
        again = await harness.say([user("u")])
        assert again["content"][0]["text"] == "one"
        (only,) = stack.interactions(claims["trial"])
        await harness.say([user("u"), echo(again), user("v")])
        assert (await harness.say([user("u")]))["content"][0]["text"] != "one"
        assert only.state is CallState.ANSWERED


async def _three(harness: Harness) -> list[dict[str, Any]]:
    """The history of three exchanges with tools."""
    turns: list[dict[str, Any]] = [blocks("reminder", "hello"), LIST]
    for number in range(3):
        answer = await harness.say(turns, tools=[BASH])
        use = answer["content"][-1]
        turns += [echo(answer), {"role": "user", "content": [result(use, str(number))]}]
    return turns


def _compute() -> Dice:
    calls = [f"Look.\n{call(f'echo {number}')}" for number in range(3)]
    summary = "<analysis>a</analysis><summary>The work so far.</summary>"
    return Dice([*calls, summary, "after", "later"])


async def _branches(stack: World, trial: str) -> list[Any]:
    return [one.intent.branch for one in stack.interactions(trial)]


@pytest.mark.parametrize("marker", [CONTINUED, "Summary:\nThe work so far."])
async def test_compaction_is_told_from_an_edit(short_dir: Path, marker: str) -> None:
    """The harness leaves out its last exchange, asks for a summary, and goes on with that."""
    async with world(short_dir, compute=_compute()) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        turns = await _three(harness)
        last = [*turns[-3]["content"], {"type": "text", "text": ASK}]
        shorter = [*turns[:-3], {"role": "user", "content": last}]
        await harness.say(shorter, tools=[BASH])
        kept = [blocks("reminder", marker), *turns[-2:], {"role": "system", "content": "late"}]
        after = await harness.say(kept, tools=[BASH])
        await harness.say([*kept, echo(after), user("go on")], tools=[BASH])
        reasons = await _branches(stack, claims["trial"])
    compacted = BranchReason.COMPACTED
    assert reasons == [BranchReason.ROOT, None, None, compacted, compacted, None]


async def test_a_summary_of_the_whole_history_extends_it(short_dir: Path) -> None:
    async with world(short_dir, compute=_compute()) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        turns = await _three(harness)
        turns[-1]["content"].append({"type": "text", "text": ASK})
        await harness.say(turns, tools=[BASH])
        await harness.say([blocks(CONTINUED)], tools=[BASH])
        reasons = await _branches(stack, claims["trial"])
    assert reasons == [BranchReason.ROOT, None, None, None, BranchReason.COMPACTED]


async def test_sub_agents_and_side_calls_are_chains_of_their_own(short_dir: Path) -> None:
    """They work in between, with the session's id, and the main chain stays exact."""
    async with world(short_dir, compute=Dice(["m1", "s1", "title", "s2", "search", "m2"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        session = {"x-claude-code-session-id": "s"}
        agent = {**session, "x-claude-code-agent-id": "a0123456789abcdef"}

        async def say(turns: list[dict[str, Any]], headers: dict[str, str], **more: Any) -> Any:
            return (await harness.post(turns, headers=headers, **more)).json()

        main = await say([user("u")], session, tools=[BASH], system="main")
        sub = await say([user("u")], agent, tools=[BASH], system="sub")
        await say([user("u")], session, system="title")
        await say([user("u"), echo(sub), user("v")], agent, tools=[BASH], system="sub")
        await say([user("search")], session, system="search")
        await say([user("u"), echo(main), user("v")], session, tools=[BASH], system="main")
        calls = stack.interactions(claims["trial"])
    root = BranchReason.ROOT
    assert [one.intent.branch for one in calls] == [root, root, root, None, root, None]
    assert calls[3].intent.parent == calls[1].intent.interaction
    assert calls[5].intent.parent == calls[0].intent.interaction


async def test_a_forked_session_keeps_the_tokens_and_branches(short_dir: Path) -> None:
    odd = [200, 131, 7]  # bytes that are no UTF-8: their text does not encode to them again
    async with world(short_dir, compute=Dice([odd, "a", "b"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        old, new = {"x-claude-code-session-id": "s"}, {"x-claude-code-session-id": "t"}
        first = (await harness.post([user("u")], headers=old)).json()
        turns = [user("u"), echo(first), user("v")]
        second = (await harness.post(turns, headers=new)).json()
        await harness.post([*turns, echo(second), user("w")], headers=new)
        one, two, three = stack.interactions(claims["trial"])
    whole = one.prompt + one.output
    assert two.intent.branch is BranchReason.FORKED and two.prompt[: len(whole)] == whole
    assert three.exact and three.intent.parent == two.intent.interaction


async def test_an_edited_argument_branches_and_a_known_change_does_not(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice([call("ls"), "x", "y"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")], tools=[BASH])
        (use,) = first["content"]

        async def go_on(arguments: dict[str, Any]) -> None:
            turn = {"role": "assistant", "content": [{**use, "input": arguments}]}
            results = {"role": "user", "content": [result(use, "a")]}
            await harness.say([user("u"), turn, results], tools=[BASH])

        await go_on({"timeout": 5, "command": "ls"})
        await go_on({"command": "ls -l"})
        calls = stack.interactions(claims["trial"])
        assert refusals(stack.segment(claims["trial"])) == []
        evidence.interactions(stack.segment(claims["trial"]))
    assert [one.intent.branch for one in calls] == [BranchReason.ROOT, None, BranchReason.EDITED]
    assert calls[1].intent.normalisations == ("defaulted_arguments",)
