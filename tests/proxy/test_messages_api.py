"""The Messages API over a real socket: answers, evidence, and the seal of a trial."""

from pathlib import Path

import pytest

from specs import canonical, evidence
from specs.interaction import BranchReason, CallState, Seal
from tests.proxy.world import Dice, echo, ids_text, user, world

pytestmark = pytest.mark.anyio


async def test_a_call_is_answered_and_its_tokens_are_the_evidence(short_dir: Path) -> None:
    """Invariant 1: ids and log-probs are those of the sampling path."""
    async with world(short_dir, compute=Dice(["ls -l"])) as stack:
        claims = stack.gateway.claims()
        answer = await stack.harness(**claims).say([user("List the files.")])
        (call,) = stack.interactions(claims["trial"])
    assert answer["content"] == [{"type": "text", "text": "ls -l"}]
    assert answer["stop_reason"] == "end_turn"
    assert answer["usage"]["input_tokens"] == len(call.prompt)
    assert answer["usage"]["output_tokens"] == len(call.output) == 6
    assert list(call.prompt) == stack.compute.prompts[0]
    assert ids_text(call.prompt) == (
        "<|im_start|>user\nList the files.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids_text(call.output) == "ls -l<|im_end|>"
    assert call.logprobs is not None and len(call.logprobs) == 6
    assert call.state is CallState.ANSWERED and call.intent.branch is BranchReason.ROOT


async def test_a_later_turn_extends_the_exact_tokens_of_the_earlier(short_dir: Path) -> None:
    """Invariant 3."""
    async with world(short_dir, compute=Dice(["ls", "cat a"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("Go.")], system="Reply with one shell command.")
        turns = [user("Go."), echo(first), user("a b")]
        await harness.say(turns, system="Reply with one shell command.")
        one, two = stack.interactions(claims["trial"])
    assert two.exact and two.intent.parent == one.intent.interaction
    assert two.prompt[: len(one.prompt) + len(one.output)] == one.prompt + one.output
    assert ids_text(two.prompt) == (
        "<|im_start|>system\nReply with one shell command.<|im_end|>\n"
        "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\nls<|im_end|>\n"
        "<|im_start|>user\na b<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_a_seal_hands_the_segment_over_and_stops_the_trial(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        await harness.say([user("Go.")])
        data = stack.segment(claims["trial"])
        response = await stack.seal(claims["trial"])
        seal = canonical.read(Seal, response.content, what="seal")
        assert (await stack.seal(claims["trial"])).json() == response.json()
        late = await harness.post([user("More.")])
        assert not list(stack.spool.glob("*.seg"))
    assert late.status_code == 403
    assert seal.complete and seal.interactions == 1 and seal.states[CallState.ANSWERED] == 1
    assert seal.object is not None and stack.gateway.objects[seal.object].startswith(data)
    assert stack.gateway.commits == [seal]
    assert len(evidence.interactions(data)) == 1
