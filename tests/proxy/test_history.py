"""Exact history over HTTP: what extends, what branches and why (invariants 1 and 3)."""

from array import array
from pathlib import Path
from typing import Any

import pytest

from proxy.chains import Chains
from proxy.dialects.anthropic import BILLING_PREFIX
from proxy.turns import Party, Scene, Turn
from runtime.formats.conversation import Conversation, Message, Text, Thinking
from specs import evidence
from specs.interaction import BranchReason, CallState
from tests.proxy.world import Dice, Harness, echo, ids_text, text_ids, user, world

pytestmark = pytest.mark.anyio

BASH: dict[str, Any] = {
    "name": "Bash",
    "description": "Run a command.",
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {"type": "integer", "default": 5},
        },
    },
}


def call(command: str) -> str:
    return f'<tool_call>\n{{"name": "Bash", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


def result(block: dict[str, Any], text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": block["id"], "content": text}


async def test_tool_calls_extend_whatever_the_harness_does_to_their_echo(short_dir: Path) -> None:
    """Text moved before calls, arguments rewritten, results out of order, caching marks."""
    said = f"Look.\n{call('ls')}\nThen.\n{call('pwd')}"
    async with world(short_dir, compute=Dice([said, "done"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("Go.")], tools=[BASH])
        assert first["stop_reason"] == "tool_use"
        text_one, ls, text_two, pwd = first["content"]
        assert (text_one["text"], text_two["text"]) == ("Look.", "Then.")
        assert (ls["name"], ls["input"]) == ("Bash", {"command": "ls"})
        moved = [
            text_one,
            {**text_two, "cache_control": {"type": "ephemeral"}},
            {**ls, "input": {"timeout": 5, "command": "ls"}},
            pwd,
        ]
        turns = [
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "assistant", "content": moved},
            {"role": "user", "content": [result(pwd, "/app"), result(ls, "a")]},
        ]
        await harness.say(turns, tools=[BASH])
        one, two = stack.interactions(claims["trial"])
    assert two.exact
    assert {"moved_text", "defaulted_arguments"} <= set(two.intent.normalisations)
    rest = two.prompt[len(one.prompt) + len(one.output) :]
    assert ids_text(rest) == (
        "\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n"
        "<tool_response>\n/app\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


async def test_an_answer_cut_at_max_tokens_is_continued_exactly(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one two three", "four"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("Count.")], max_tokens=7)
        assert (first["stop_reason"], first["content"][0]["text"]) == ("max_tokens", "one two")
        await harness.say([user("Count."), echo(first), user("Go on.")])
        one, two = stack.interactions(claims["trial"])
    assert two.exact
    rest = ids_text(two.prompt[len(one.prompt) + len(one.output) :])
    assert rest.startswith("<|im_end|>\n<|im_start|>user\nGo on.")


async def test_a_cut_answer_sent_back_as_prefill_goes_on_in_the_same_turn(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one two three", " three", "x"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("Count.")], max_tokens=7)
        second = await harness.say([user("Count."), echo(first)])
        whole = {"role": "assistant", "content": "one two" + second["content"][0]["text"]}
        await harness.say([user("Count."), whole, user("More.")])
        one, two, three = stack.interactions(claims["trial"])
    assert two.exact and two.prompt == one.prompt + one.output
    assert three.exact and three.intent.parent == two.intent.interaction


async def _branch(short_dir: Path, turns: list[dict[str, Any]], **fields: Any) -> Any:
    """The reason of a third call after `user 1 → answer → user 2 → answer`."""
    async with world(short_dir, compute=Dice(["a1", "a2", "a3"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u1")])
        second = await harness.say([user("u1"), echo(first), user("u2")])
        real = {"a1": echo(first), "a2": echo(second)}
        turns = [real.get(turn["content"], turn) for turn in turns]
        await harness.say(turns, **fields)
        calls = stack.interactions(claims["trial"])
    assert [one.state for one in calls] == [CallState.ANSWERED] * 3
    return calls[2].intent.branch


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


HISTORY = [user("u1"), assistant("a1"), user("u2"), assistant("a2")]


@pytest.mark.parametrize(
    ("turns", "fields", "reason"),
    [
        ([*HISTORY, user("u3")], {}, None),
        ([user("other")], {}, BranchReason.ROOT),
        ([user("u1"), assistant("a1"), user("another")], {}, BranchReason.REWOUND),
        ([user("u1"), assistant("x"), user("u2")], {}, BranchReason.EDITED),
        ([*HISTORY[:3], assistant("x"), user("u3")], {}, BranchReason.EDITED),
        ([user("changed"), *HISTORY[1:], user("u3")], {}, BranchReason.EDITED),
        ([*HISTORY, user("u3")], {"system": "new"}, BranchReason.SYSTEM_CHANGED),
        ([*HISTORY, user("u3")], {"tools": [BASH]}, BranchReason.TOOLS_CHANGED),
    ],
)
async def test_a_branch_names_its_reason(
    short_dir: Path, turns: list[dict[str, Any]], fields: dict[str, Any], reason: Any
) -> None:
    assert await _branch(short_dir, turns, **fields) == reason


async def test_examples_in_a_first_request_are_no_edit(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u"), assistant("example"), user("v")])
        (call,) = stack.interactions(claims["trial"])
    assert call.intent.branch is BranchReason.ROOT


async def test_another_sampler_branches(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["a", "b"])) as stack:
        claims = stack.gateway.claims()
        first = await stack.harness(**claims).say([user("u")])
        other = {**claims, "sampler": stack.gateway.sampler_id()}
        await stack.harness(**other).say([user("u"), echo(first), user("v")])
        _, two = stack.interactions(claims["trial"])
    assert two.intent.branch is BranchReason.SAMPLER_CHANGED


async def test_a_rewound_call_keeps_the_sampled_tokens_of_what_it_goes_back_to(
    short_dir: Path,
) -> None:
    """Invariant 1: also in a branch, sampled ids are taken over, not rendered again."""
    odd = [200, 131, 7]  # bytes that are no UTF-8: their text does not encode to them again
    async with world(short_dir, compute=Dice([odd, "x", "y"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")])
        await harness.say([user("u"), echo(first), user("v")])
        await harness.say([user("u"), echo(first), user("w")])
        one, two, three = stack.interactions(claims["trial"])
    whole = one.prompt + one.output
    assert two.exact and two.prompt[: len(whole)] == whole
    assert three.intent.branch is BranchReason.REWOUND and three.prompt[: len(whole)] == whole


@pytest.mark.parametrize("change", ["system", "edit", "compaction"])
async def test_an_answer_keeps_its_sampled_tokens_where_the_prompt_is_rendered_anew(
    short_dir: Path, change: str
) -> None:
    """Invariant 1: after a change of system, an edit before it, a compaction that keeps it."""
    odd = [200, 131, 7, *text_ids(f"Look.\n{call('ls')}")]  # no UTF-8 at its beginning
    async with world(short_dir, compute=Dice(["one", odd, "x"])) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")], tools=[BASH])
        turns = [user("u"), echo(first), user("v")]
        second = await harness.say(turns, tools=[BASH])
        answered = {"role": "user", "content": [result(second["content"][1], "a")]}
        kept = [user("v"), echo(second), answered]
        fields: dict[str, Any] = {"tools": [BASH]}
        if change == "system":
            turns, fields = [*turns[:2], *kept], {"tools": [BASH], "system": "new"}
        elif change == "edit":
            turns = [user("other"), echo(first), *kept]
        else:
            turns = kept
    async with world(short_dir, gateway=gateway, compute=stack.compute) as stack:
        await stack.harness(**claims).say(turns, **fields)
        one, two, three = stack.interactions(claims["trial"])
    assert three.intent.branch is not None and "kept_answers" in three.intent.normalisations
    (at,) = [
        place
        for place in range(len(three.prompt))
        if three.prompt[place : place + len(two.output)] == two.output
    ]
    assert ids_text(three.prompt[:at]).endswith(
        "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"
    )
    rest = ids_text(three.prompt[at + len(two.output) :])
    assert rest == (
        "\n<|im_start|>user\n<tool_response>\na\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert (one.output in [three.prompt[i : i + len(one.output)] for i in range(at)]) == (
        change != "compaction"
    )


async def test_words_of_others_are_not_taken_for_an_answer_with_hidden_thinking() -> None:
    """An answer is known by its ids and signatures, or by its words where it hides nothing."""
    chains = Chains()
    scene, party = Scene(b"", b"", "smp"), Party()
    asked = (Message("user", (Text("u"),)),)
    content: list[Any] = [
        {"type": "thinking", "thinking": "long", "signature": "s"},
        {"type": "text", "text": "OK"},
    ]
    turn = Turn("int_1", None, array("i", [5]), array("i", [6, 2]), scene, party)
    chains.settle(turn, asked, content)
    other = (Message("user", (Text("w"),)), Message("assistant", (Text("OK"),)), *asked)
    found = chains.match(Conversation(("new",), (), other), scene, party, {})
    assert found.base is None and found.kept == ()
    whole = Message("assistant", (Thinking("long", "s"), Text("OK")))
    known = (other[0], whole, *asked)
    found = chains.match(Conversation(("new",), (), known), scene, party, {})
    assert found.kept == ((1, turn),)


async def test_where_one_call_is_asked_for_sampling_ends_behind_it(short_dir: Path) -> None:
    """Its tokens are kept as they were sampled, and the next turn extends them."""
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    said = f"Look.\n{call('ls')}"
    async with world(short_dir, compute=Dice([f"{said}\n{call('pwd')}\nmore", "x"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")], tools=[BASH], tool_choice=choice)
        _, made = first["content"]
        assert first["stop_reason"] == "tool_use" and made["input"] == {"command": "ls"}
        answered = {"role": "user", "content": [result(made, "a")]}
        await harness.say([user("u"), echo(first), answered], tools=[BASH])
        one, two = stack.interactions(claims["trial"])
    assert ids_text(one.output) == said
    assert one.answer is not None and one.answer.stop_reason == "call"
    rest = ids_text(two.prompt[len(one.prompt) + len(one.output) :])
    assert two.exact and rest.startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\na")


@pytest.mark.parametrize(
    ("choice", "begun"),
    [
        ({"type": "any"}, '<tool_call>\n{"name":'),
        ({"type": "tool", "name": "Bash"}, '<tool_call>\n{"name": "Bash", "arguments":'),
    ],
)
async def test_a_call_that_is_asked_for_begins_in_the_prompt(
    short_dir: Path, choice: dict[str, Any], begun: str
) -> None:
    """Its beginning is prompt, never output (invariant 1), and the next turn extends both."""
    said = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>'
    rest = said.removeprefix(begun)
    async with world(short_dir, compute=Dice([rest, "done"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")], tools=[BASH], tool_choice=choice)
        (made,) = first["content"]
        assert first["stop_reason"] == "tool_use" and made["input"] == {"command": "ls"}
        answered = {"role": "user", "content": [result(made, "a")]}
        await harness.say([user("u"), echo(first), answered], tools=[BASH])
        one, two = stack.interactions(claims["trial"])
    assert ids_text(one.prompt).endswith(f"<|im_start|>assistant\n{begun}")
    assert ids_text(one.output) == f"{rest}<|im_end|>"
    assert not any(note.startswith("unenforced") for note in one.intent.normalisations)
    assert two.exact


async def test_an_empty_answer_is_part_of_the_history(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice([""])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")])
        assert first["content"] == []
        await harness.say([user("u"), {"role": "assistant", "content": ""}, user("v")])
        _, two = stack.interactions(claims["trial"])
    assert two.exact


async def test_a_chain_continues_exactly_after_a_restart(short_dir: Path) -> None:
    compute = Dice([f"Look.\n{call('ls')}", "b", "c"])
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        first = await stack.harness(**claims).say([user("u")], tools=[BASH])
    turns = [user("u"), echo(first)]
    turns.append({"role": "user", "content": [result(first["content"][1], "a")]})
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        await stack.harness(**claims).say(turns, tools=[BASH])
        one, two = stack.interactions(claims["trial"])
    assert two.exact and two.intent.sequence == 1
    assert two.prompt[: len(one.prompt) + len(one.output)] == one.prompt + one.output


async def test_a_torn_tail_is_cut_and_the_call_is_lost(short_dir: Path) -> None:
    """Invariant 2: an intent without a record is lost, and nothing else changes."""
    compute = Dice(["a", "b", "c"])
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        first = await stack.harness(**claims).say([user("u")])
        await stack.harness(**claims).say([user("u"), echo(first), user("v")])
        path = stack.spool / f"{claims['trial']}.1.seg"
    data = path.read_bytes()
    last = [end for frame, end in evidence.frames(data) if frame.record.kind == "answer"][-1]
    path.write_bytes(data[: last - 3])
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        await stack.harness(**claims).say([user("u"), echo(first), user("v")])
        calls = stack.interactions(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    states = [one.state for one in calls]
    assert states == [CallState.ANSWERED, CallState.LOST, CallState.ANSWERED]
    assert calls[2].exact and calls[2].intent.parent == calls[0].intent.interaction
    assert not seal["complete"] and seal["states"]["lost"] == 1


async def test_damage_keeps_what_is_before_it_and_branches_after(short_dir: Path) -> None:
    compute = Dice(["a", "b", "c"])
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")])
        whole = len(stack.segment(claims["trial"]))
        second = await harness.say([user("u"), echo(first), user("v")])
        path = stack.spool / f"{claims['trial']}.1.seg"
    data = bytearray(path.read_bytes())
    data[whole + 40] ^= 0xFF
    path.write_bytes(data)
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        turns = [user("x"), echo(first), user("v"), echo(second), user("w")]
        await stack.harness(**claims).say(turns)
        calls = stack.interactions(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    assert [one.intent.branch for one in calls] == [BranchReason.ROOT, BranchReason.PROXY_RESTART]
    assert not seal["complete"]


async def test_noise_of_claude_code_is_left_out_of_the_prompt(short_dir: Path) -> None:
    system = [
        {"type": "text", "text": f"{BILLING_PREFIX} cc_version=2.1; cch=1a2;"},
        {"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}},
    ]
    fields = {"system": system, "thinking": {"type": "adaptive"}, "output_config": {}, "new": 1}
    turns = [user("u"), {"role": "system", "content": "Skills: none."}]
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say(turns, **fields)
        (call,) = stack.interactions(claims["trial"])
    assert ids_text(call.prompt) == (
        "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        "<|im_start|>system\nSkills: none.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert call.intent.normalisations == (
        "dropped:billing_header",
        "ignored:new",
        "ignored:output_config",
    )


async def test_one_trial_cannot_reach_the_chain_or_answers_of_another(short_dir: Path) -> None:
    """Invariant 13."""
    async with world(short_dir, compute=Dice(["secret", "other", "third"])) as stack:
        mine, theirs = stack.gateway.claims(), stack.gateway.claims()
        first = await stack.harness(**mine).say([user("u")])
        thief: Harness = stack.harness(**theirs)
        retry = {"x-stainless-retry-count": "1"}
        stolen = await thief.say([user("u")], headers=retry)
        assert stolen["content"][0]["text"] == "other"
        await thief.say([user("u"), echo(first), user("v")])
        _, two = stack.interactions(theirs["trial"])
    assert not two.exact
