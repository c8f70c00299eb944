"""The proxy's own process between a real gateway and a real compute process."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from runtime.compute.client import HttpCompute
from runtime.home import Home, Role
from specs import canonical, evidence
from specs.errors import PracticumError
from specs.interaction import Seal
from specs.operator_api import ModelList
from specs.worker_api import SealRequest, TrialTokenRequest
from tests.proxy.world import Harness, echo, user
from tests.runtime.gateway import stage

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def part(module: str, home: Home) -> Generator[subprocess.Popen[bytes]]:
    """One of our processes, ended by SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, "--home", str(home.root)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


async def _ready(client: httpx.AsyncClient, key: str) -> None:
    with anyio.fail_after(90):
        while True:
            try:
                response = await client.get("/healthz", headers={"authorization": f"Bearer {key}"})
                assert response.status_code == 200
                return
            except httpx.TransportError:
                await anyio.sleep(0.1)


async def _real_model(home: Home) -> ModelList:
    async with HttpCompute(home.compute_socket) as compute:
        with anyio.fail_after(90):
            while True:
                try:
                    return ModelList(models=[await compute.model("tiny")])
                except PracticumError:
                    await anyio.sleep(0.1)


async def test_a_trial_of_a_real_run_is_sampled_sealed_and_readable(short_dir: Path) -> None:
    home = stage.prepared_home(short_dir, stage.migrated(short_dir))
    with part("runtime.compute", home), part("proxy", home):
        async with stage.running(home) as stack:
            await stage.publish(stack)
            await stack.worker.put_models(await _real_model(home))
            await stage.start(stack)
            hand = await stage.Hand.take(stack)
            await hand.batch()
            group = await hand.group()
            trial = await hand.trial(group)
            token = await stack.worker.token(
                hand.run,
                trial,
                TrialTokenRequest(
                    claim=hand.claim.id,
                    fence=hand.claim.fence,
                    sampler=hand.claim.spec.sampler.id,
                    task=group.task,
                    expires_in_sec=600,
                ),
            )
            transport = httpx.AsyncHTTPTransport(uds=str(home.proxy_socket))
            key = home.key(Role.WORKER)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://proxy", timeout=60, trust_env=False
            ) as client:
                await _ready(client, key)
                harness = Harness(client, token.token)
                first = await harness.say([user("hi")], max_tokens=12)
                await harness.say([user("hi"), echo(first), user("more")], max_tokens=12)
                request = SealRequest(run=hand.run, fence=hand.claim.fence)
                sealed = await client.post(
                    f"/internal/trials/{trial}/seal",
                    content=request.model_dump_json(),
                    headers={"authorization": f"Bearer {key}"},
                )
                assert sealed.status_code == 200, sealed.text
            seal = canonical.read(Seal, sealed.content, what="seal")
            assert seal.object is not None and seal.complete
            data = await stack.operator.object(seal.object)
    one, two = evidence.interactions(data)
    assert two.exact and two.prompt[: len(one.prompt) + len(one.output)] == one.prompt + one.output
    assert one.logprobs is not None and len(one.logprobs) == len(one.output)
    assert all(value <= 0 for value in one.logprobs)
