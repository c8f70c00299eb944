"""A run's recorded calls beside a specification, read back from sealed evidence."""

import json
import zlib
from array import array
from typing import Any

import pytest

from runtime.specialist.findings import Cause
from specs import evidence
from specs.ids import Prefix, new_id
from specs.interaction import Answer, BranchReason, Intent, SamplingUsed
from specs.worker_api import GroupSettled
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack
from tests.runtime.specialist.desk import INSTRUCTIONS, SPEC, TOOLS
from tools import registry
from tools.context import Context
from tools.model_spec_observe import Observed

pytestmark = pytest.mark.anyio
AT = "2026-01-01T00:00:00Z"


def segment(trial: str, sampler: str, system: str, answer: str) -> bytes:
    """Evidence of one call; of one that was told nothing, no request is kept."""
    body = {
        "system": system,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": "How many days?"}],
    }
    prompt = array("i", [1, 2, 3])
    intent = Intent(
        interaction=new_id(Prefix.INTERACTION),
        trial=trial,
        fence=1,
        sequence=0,
        at=AT,
        parent=None,
        branch=BranchReason.ROOT,
        prompt_tokens=3,
        prompt_sha256=evidence.prompt_hash(prompt),
        sampler=sampler,
        sampling=SamplingUsed(temperature=1, top_p=1, top_k=0, max_tokens=8, stop=()),
        request_digest=f"sha256:{'0' * 64}",
        dialect="anthropic",
    )
    said = Answer(
        interaction=intent.interaction,
        at=AT,
        stop_reason="stop",
        provenance="scripted",
        content=[{"type": "text", "text": answer}],
    )
    arrays = {"suffix": prompt}
    if system:
        arrays["request"] = array("B", zlib.compress(json.dumps(body).encode()))
    return evidence.encode(intent, arrays) + evidence.encode(said, {"output": array("i", [4])})


async def recorded(stack: Stack, *told: tuple[str, str]) -> tuple[str, list[str]]:
    """A run whose trials were told something and answered; the last trial has no evidence."""
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trials: list[str] = []
    for index, (system, answer) in enumerate(told):
        group = hand.groups.get(index // 2) or await hand.group(index=index // 2)
        trial = await hand.trial(group, index % 2)
        trials.append(trial)
        data = segment(trial, group.sampler, system, answer)
        digest = await stack.proxy.upload(data)
        seal = stage.seal(run, trial, hand.claim.fence, digest, len(data))
        hand.last_event += 1
        await stack.proxy.commit_evidence(seal)
        await hand.settle(trial, 1.0, seal=seal)
        if index % 2:
            await hand.write(GroupSettled(group=group.id, place=index // 2))
    index = len(told) // 2
    group = hand.groups.get(index) or await hand.group(index=index)
    await hand.settle(await hand.trial(group, len(told) % 2))
    return run, trials


async def ask(stack: Stack, **values: Any) -> tuple[Observed, str]:
    chosen = registry.find("model-spec", "observe")
    result = await registry.call(chosen, Context(stack.home), {"spec": SPEC, **values})
    assert isinstance(result, Observed)
    return result, chosen.text(result)


async def test_what_the_harness_sent_is_compared_call_by_call(stack: Stack) -> None:
    sound, added = (INSTRUCTIONS, "Thirty."), (f"{INSTRUCTIONS}\nBe kind.", "See answers.key")
    run, trials = await recorded(stack, sound, added, ("", "Thirty."))
    found, text = await ask(stack, run=run)
    assert (found.trials, found.unread, found.calls, found.silent) == (3, 1, 2, 1)
    assert found.counts == {Cause.INSTRUCTIONS_DIFFER: 1}
    (one,) = found.findings
    assert (one.trial, one.call, one.part) == (trials[1], 0, "instructions")
    assert "'Be kind.'" in one.detail
    assert "'Be kind.'" in text
    assert [(one.part, one.rows) for one in found.variants] == [
        ("instructions", 1),
        ("instructions", 1),
        ("tools", 2),
    ]
    answered, _ = await ask(stack, run=run, answers=True)
    assert answered.counts == {Cause.INSTRUCTIONS_DIFFER: 1, Cause.WITHHELD_NAMED: 1}
    first, text = await ask(stack, run=run, trials=1, answers=True)
    assert first.ok
    assert "nothing" in text
