"""A model that somebody else serves, through a whole stack: in trials, counted, and never trained.

The service is a loopback one that speaks its own protocol; everything else is the stack's.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from specs.interaction import CallState
from tests.e2e.support import Stack, own_stack, profile, write_tasks
from tests.e2e.test_kill import PLAN
from tests.proxy.test_upstream import KEY, Service, message, serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(900),
]

SAID = message({"type": "text", "text": "even"})


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service that always says the same, in a thread of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(*[SAID] * 50)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def stack(service: Service) -> Iterator[Stack]:
    """A running stack that knows the service as `upstream/judge`."""
    with pytest.MonkeyPatch.context() as patch, own_stack() as made:
        patch.setenv("JUDGE_KEY", KEY)
        made.home.mkdir(mode=0o700)
        known = {
            "name": "judge",
            "kind": "anthropic",
            "base_url": service.base_url,
            "model": "judge-1",
            "key_env": "JUDGE_KEY",
            "context_tokens": 8192,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in known.items()]
        bounds = ["[compute]", "prefix_bytes = 1000000", "[proxy]", "stage_bytes = 100000000"]
        (made.home / "config.toml").write_text("\n".join([*bounds, "[[upstreams]]", *lines, ""]))
        write_tasks(made.root / "tasks", 1)
        up = made.run("up")
        assert up.code == 0, up.err
        made.json("dataset", "publish", str(made.root / "tasks"), "--as", "e2e/parity@v1")
        yield made


async def test_an_upstream_works_in_a_trial_and_its_evidence_verifies(
    stack: Stack, service: Service
) -> None:
    """Invariant 1: its tokens only count, and say so."""
    solved = stack.solved("e2e/parity@v1", profile(model="upstream/judge"), minutes=10)
    calls, refused = await solved.recorded()
    assert not refused
    assert [call.state for call in calls] == [CallState.ANSWERED] * 2
    assert {call.answer.provenance for call in calls if call.answer} == {"upstream"}
    assert [call.logprobs for call in calls] == [None, None]
    assert [call.span for call in calls] == ["root", "exact"]
    asked = [body for _, _, body in service.asked]
    assert [len(body["messages"]) for body in asked] == [1, 3]
    assert {body["model"] for body in asked} == {"judge-1"}


def test_an_upstream_is_not_trained(stack: Stack) -> None:
    words = ["--dataset", "e2e/parity@v1", "--plan", stack.write("train.json", PLAN)]
    words += ["--actor", stack.write("actor.json", profile(model="upstream/judge"))]
    refused = stack.run("train", "start", *words, "--json")
    assert refused.code == 2
    assert json.loads(refused.err.splitlines()[-1])["code"] == "model_not_trainable"


def test_invariant_13_the_key_is_known_to_the_proxy_alone(stack: Stack) -> None:
    holders = {
        part["name"]
        for part in stack.json("status")["parts"]
        if KEY.encode() in Path(f"/proc/{part['pid']}/environ").read_bytes()
    }
    assert holders == {"proxy"}
    files = [path for path in stack.root.rglob("*") if path.is_file()]
    assert files and not [path for path in files if KEY.encode() in path.read_bytes()]
