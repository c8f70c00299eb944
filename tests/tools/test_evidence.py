"""`run interactions` shows what is on record, and can always say it."""

import json
import zlib
from array import array

import pytest

from specs import evidence
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack
from tests.specs import calls
from tools import registry
from tools.context import Context
from tools.evidence import EvidenceView

pytestmark = pytest.mark.anyio


def segment(trial: str, fence: int, request: bytes) -> bytes:
    """The evidence of one answered call."""
    prompt = array("i", [1])
    asked = calls.intent(trial=trial, fence=fence, prompt_sha256=evidence.prompt_hash(prompt))
    kept = {"suffix": prompt, "request": array("B", zlib.compress(request))}
    said = {"output": array("i", [5, 2]), "logprobs": array("f", [-0.5, -0.25])}
    return evidence.encode(asked, kept) + evidence.encode(calls.answer(asked), said)


async def recorded(stack: Stack, request: bytes) -> tuple[str, str]:
    """A run and its trial, in which the harness sent this request."""
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    data = segment(trial, hand.claim.fence, request)
    seal = stage.seal(run, trial, hand.claim.fence, await stack.proxy.upload(data), len(data))
    await stack.proxy.commit_evidence(seal)
    await hand.settle(trial, seal=seal)
    return run, trial


async def test_a_request_with_half_a_character_is_shown(stack: Stack) -> None:
    request = {"messages": [{"role": "user", "content": "cut \ud83d", "\ude00": 1}]}
    run, trial = await recorded(stack, json.dumps(request).encode())
    chosen = registry.find("run", "interactions")
    values = {"run": run, "trial": trial, "request": True}
    result = await registry.call(chosen, Context(stack.home), values)
    assert isinstance(result, EvidenceView)
    shown = {"messages": [{"role": "user", "content": "cut \ufffd", "\ufffd": 1}]}
    assert json.loads(result.model_dump_json())["items"][0]["request"] == shown
    chosen.text(result).encode()
