"""kill -9 of the proxy at random moments: every call is on record, or was never begun.

Invariant 2: what a client was answered is durable; what it was not is answered, superseded
or lost on record. Invariant 3 holds in what is read back.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from specs import evidence
from specs.interaction import CallState
from tests.proxy.world import Harness, TestGateway, World, echo, user, world

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
KILLS = 6


class Client:
    """One trial's agent: retries what fails, remembers what it was answered."""

    def __init__(self, socket: Path, token: str) -> None:
        self.socket = socket
        self.token = token
        self.answers: dict[str, dict[str, Any]] = {}
        self.turns: list[dict[str, Any]] = [user("start")]

    async def work(self, stop: anyio.Event) -> None:
        number = 0
        while not stop.is_set():
            answer = await self._ask(stop)
            if answer is None:
                return
            assert answer["id"] not in self.answers
            self.answers[answer["id"]] = answer
            number += 1
            self.turns = [*self.turns, echo(answer), user(f"turn {number}")]
            if len(self.turns) > 12:
                self.turns = [user(f"again {number}")]

    async def _ask(self, stop: anyio.Event) -> dict[str, Any] | None:
        while not stop.is_set():
            try:
                transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://proxy", timeout=20, trust_env=False
                ) as client:
                    return await Harness(client, self.token).say(self.turns, max_tokens=32)
            except httpx.TransportError:
                await anyio.sleep(0.02)
        return None


async def _start(folder: Path, seed: int) -> anyio.abc.Process:
    process = await anyio.open_process(
        [sys.executable, "-P", str(ROOT / "tests/proxy/child.py"), str(folder), str(seed)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=None,
        stderr=None,
    )
    with anyio.fail_after(60):
        while True:
            try:
                async with await anyio.connect_unix(str(folder / "p.sock")):
                    return process
            except OSError:
                assert process.returncode is None
                await anyio.sleep(0.02)


def _write_gateway(folder: Path, gateway: TestGateway) -> None:
    key = gateway.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()).hex()
    samplers = [one.model_dump(mode="json") for one in gateway.samplers.values()]
    document = {"key": key, "trials": gateway.trials, "samplers": samplers}
    (folder / "gateway.json").write_text(json.dumps(document))


async def test_a_proxy_killed_at_random_moments_loses_nothing_silently(short_dir: Path) -> None:
    gateway = TestGateway()
    trials = [gateway.claims() for _ in range(3)]
    _write_gateway(short_dir, gateway)
    clients = [Client(short_dir / "p.sock", gateway.token(claims)) for claims in trials]
    luck = random.Random(5)
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        process = await _start(short_dir, 0)
        for client in clients:
            tasks.start_soon(client.work, stop)
        for kill in range(KILLS):
            await anyio.sleep(luck.random() * 0.8)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            process = await _start(short_dir, kill + 1)
        await anyio.sleep(0.5)
        stop.set()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        tasks.cancel_scope.cancel()
    async with world(short_dir, gateway=gateway) as stack:
        for claims, client in zip(trials, clients, strict=True):
            await _check(stack, claims, client)


async def _check(stack: World, claims: Mapping[str, Any], client: Client) -> None:
    """Everything the client saw is in the evidence as it saw it; the rest has a state."""
    trial = cast(str, claims["trial"])
    seal = (await stack.seal(trial)).json()
    data = stack.gateway.objects[seal["object"]]
    calls = evidence.interactions(data)
    by_message = {"msg_" + one.intent.interaction[4:]: one for one in calls}
    assert len(client.answers) > 3
    for name, answer in client.answers.items():
        call = by_message[name]
        assert call.answer is not None and call.answer.content == answer["content"]
        assert call.state in (CallState.ANSWERED, CallState.SUPERSEDED)
    assert [one.intent.sequence for one in calls] == list(range(len(calls)))
    by_id = {one.intent.interaction: one for one in calls}
    for one in calls:
        if one.exact:
            before = by_id[one.intent.parent or ""]
            whole = before.prompt + before.output
            assert one.prompt[: len(whole)] == whole
    lost = sum(one.state is CallState.LOST for one in calls)
    assert seal["states"]["lost"] == lost and seal["complete"] == (lost == 0)
    unseen = [name for name in by_message if name not in client.answers]
    answered = [name for name in unseen if by_message[name].state is not CallState.LOST]
    assert len(answered) <= KILLS + 1  # cut off by a kill or by the end of the test
