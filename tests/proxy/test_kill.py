"""kill -9 of the proxy at random moments: every call is on record, or was never begun.

Sixteen agents of two families and of the test model work at once, half of them streaming. Their
trials are sealed one after another while the object store is good, slow, full or broken; a worker
that was refused asks again, and the agent goes on in another trial.

Invariant 2: what a client was answered is durable, and so is an answer of which it saw a whole tool
call; what it was not is answered, superseded or lost on record. Invariant 3 holds in what is read
back, and a request that was repeated has one span. Invariant 12: a seal is taken up again, and is
final.
"""

import json
import multiprocessing
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from specs import canonical, evidence
from specs.interaction import CallState, Interaction, Seal
from tests.proxy.child import MOODS, Mood, serve
from tests.proxy.speakers import FAMILIES, sampler_of
from tests.proxy.test_history import BASH, result
from tests.proxy.world import MODEL, WORKER_KEY, TestGateway, World, echo, user, world

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("PRACTICUM_PROXY_KILLS", "5"))
"""How often the proxy is killed; 50 by hand."""
AGENTS = 16
MOST_ANSWERS = 60
"""A life of the proxy is so many answers long at most."""


@dataclass
class Work:
    """One trial: its credential, and what its agent saw."""

    trial: str
    run: str
    token: str
    answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Whole answers by the name of their message."""
    called: set[str] = field(default_factory=set[str])
    """Messages of which a whole tool call was seen."""


@dataclass
class Agent:
    """Works through trials, one request at a time; repeats what fails."""

    client: httpx.AsyncClient
    stream: bool
    trials: list[Work]
    number: int = 0
    """Answers, of all trials."""
    refused: int = 0
    """Calls that were sent away, as when the stage is full."""

    @property
    def current(self) -> Work:
        return self.trials[-1]

    async def work(self) -> None:
        while True:
            await self._work_in(self.current)

    async def _work_in(self, work: Work) -> None:
        turns = [user("start")]
        while self.current is work:
            message = await self._insist(work, turns)
            if message is None:
                assert self.current is not work, "refused in a trial that nobody ended"
                return
            self.number += 1
            assert message["id"] not in work.answers
            work.answers[message["id"]] = message
            calls = [block for block in message["content"] if block["type"] == "tool_use"]
            following = {
                "role": "user",
                "content": [
                    *(result(block, f"did {self.number}") for block in calls),
                    {"type": "text", "text": f"turn {self.number}"},
                ],
            }
            turns = [*turns, echo(message), following]
            if len(turns) > 12:
                turns = [user(f"again {self.number}")]

    async def _insist(self, work: Work, turns: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The answer, however often it has to be asked for; None when the trial is over."""
        while True:
            try:
                status, message = await self._ask(work, turns)
            except httpx.TransportError:
                await anyio.sleep(0.02)
                continue
            if status in (200, 403):
                return message
            assert status == 529
            self.refused += 1
            await anyio.sleep(0.05)

    async def _ask(
        self, work: Work, turns: list[dict[str, Any]]
    ) -> tuple[int, dict[str, Any] | None]:
        """The status of one request, and the whole answer if it brought one."""
        body = {"model": "any", "max_tokens": 200, "messages": turns, "tools": [BASH]}
        request = self.client.stream(
            "POST",
            "/v1/messages",
            json=body | {"stream": self.stream},
            headers={"authorization": f"Bearer {work.token}"},
        )
        async with request as answer:
            if answer.status_code == 200 and self.stream:
                message = await _listen(work, answer)
                return (529, None) if message is None else (200, message)
            data = json.loads(await answer.aread())
            return answer.status_code, data if answer.status_code == 200 else None


async def _listen(work: Work, answer: httpx.Response) -> dict[str, Any] | None:
    """A message out of its events; None if one of them is an error."""
    message: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    async for event in _events(answer):
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                blocks.append({**event["content_block"], "partial": ""})
            case "content_block_delta":
                _grow(blocks[-1], event["delta"])
            case "content_block_stop":
                if _close(blocks[-1]):
                    work.called.add(message["id"])
            case "message_stop":
                return {**message, "content": blocks}
            case "error":
                return None
            case _:
                pass
    raise httpx.RemoteProtocolError("the events end before the message does")


async def _events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events; texts may hold what else would end a line."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to the block that it belongs to."""
    match delta["type"]:
        case "input_json_delta":
            block["partial"] += delta["partial_json"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case kind:
            name = kind.removesuffix("_delta")
            block[name] += delta[name]


def _close(block: dict[str, Any]) -> bool:
    """The block is whole; whether it is a call."""
    text = block.pop("partial")
    if block["type"] != "tool_use":
        return False
    block["input"] = json.loads(text or "{}")
    return True


class Nursery:
    """Starts proxies one after another, each a fork of a process that has loaded what they need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.proxy.nursery"])
        self._process: ForkServerProcess | None = None

    async def start(self, seed: int, mood: Mood) -> None:
        """Start a proxy; it can be connected to on return."""
        arguments = (self._folder, seed, mood)
        process = self._context.Process(target=serve, args=arguments, daemon=True)
        self._process = process
        await anyio.to_thread.run_sync(process.start)
        while True:
            try:
                async with await anyio.connect_unix(self._folder / "p.sock"):
                    return
            except OSError:
                assert process.exitcode is None
                await anyio.sleep(0.01)

    async def kill(self) -> None:
        """End the proxy without a warning; it lived until then."""
        assert self._process is not None and self._process.exitcode is None
        self._process.kill()
        await anyio.to_thread.run_sync(self._process.join)


@dataclass
class Scene:
    """The agents, their trials and the luck of the test."""

    folder: Path
    client: httpx.AsyncClient
    gateway: TestGateway = field(default_factory=TestGateway)
    luck: random.Random = field(default_factory=lambda: random.Random(5))
    waiting: list[list[Work]] = field(default_factory=list[list[Work]])
    """Trials that each agent takes up when its own is sealed."""
    agents: list[Agent] = field(default_factory=list[Agent])

    def open(self) -> None:
        """Write the gateway down and give each agent a trial."""
        samplers = [sampler_of(name) for name in FAMILIES]
        self.gateway.samplers |= {one.id: one for one in samplers}
        for number in range(AGENTS):
            kind = number % (len(samplers) + 1)
            named = {"sampler": samplers[kind].id} if kind < len(samplers) else {}
            self.waiting.append([self._trial(named) for _ in range(KILLS + 1)])
            first = self.waiting[-1].pop()
            self.agents.append(Agent(self.client, number // 3 % 2 == 0, [first]))
        key = self.gateway.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        document = {
            "key": key.hex(),
            "samplers": [one.model_dump(mode="json") for one in self.gateway.samplers.values()],
            "trials": self.gateway.trials,
        }
        (self.folder / "gateway.json").write_text(json.dumps(document))

    def _trial(self, named: Mapping[str, str]) -> Work:
        claims = self.gateway.claims(**named)
        return Work(claims["trial"], claims["run"], self.gateway.token(claims))

    def heard(self) -> int:
        """Answers and refusals of all agents."""
        return sum(agent.number + agent.refused for agent in self.agents)

    async def some_life(self) -> None:
        """Until some number of answers came, and then a moment of any length."""
        until = self.heard() + self.luck.randrange(MOST_ANSWERS)
        while self.heard() < until:  # noqa: ASYNC110 - counted in many places
            await anyio.sleep(0.005)
        await anyio.sleep(self.luck.random() * 0.1)

    async def seal_one(self) -> None:
        """As a worker does it: until it is done, however often the proxy dies over it."""
        number = self.luck.randrange(AGENTS)
        work = self.agents[number].current
        self.agents[number].trials.append(self.waiting[number].pop())
        while True:
            try:
                answer = await self.client.post(
                    f"/internal/trials/{work.trial}/seal",
                    json={"run": work.run, "fence": 1},
                    headers={"authorization": f"Bearer {WORKER_KEY}"},
                )
            except httpx.TransportError:
                await anyio.sleep(0.02)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code == 503, answer.text
            await anyio.sleep(0.2)


async def test_a_proxy_killed_at_random_moments_loses_nothing_silently(
    short_dir: Path, record_property: Callable[[str, object], None]
) -> None:
    nursery = Nursery(short_dir)
    transport = httpx.AsyncHTTPTransport(
        uds=str(short_dir / "p.sock"), limits=httpx.Limits(max_connections=None)
    )
    client = httpx.AsyncClient(
        transport=transport, base_url="http://proxy", timeout=300, trust_env=False
    )
    scene = Scene(short_dir, client)
    scene.open()
    await nursery.start(0, MOODS[0])
    async with client, anyio.create_task_group() as tasks:
        for agent in scene.agents:
            tasks.start_soon(agent.work)
        for kill in range(1, KILLS + 1):
            await scene.some_life()
            tasks.start_soon(scene.seal_one)
            await anyio.sleep(scene.luck.random() * 0.1)
            await nursery.kill()
            await nursery.start(kill, MOODS[kill % len(MOODS)])
        await scene.some_life()
        await nursery.kill()
        tasks.cancel_scope.cancel()
    stored = (path for path in (short_dir / "store").iterdir() if path.suffix != ".tmp")
    scene.gateway.objects |= {f"sha256:{path.name}": path.read_bytes() for path in stored}
    kept: dict[str, Seal] = {}
    spoken: set[str] = set()
    states: Counter[CallState] = Counter()
    async with world(short_dir, gateway=scene.gateway) as stack:
        for work in [work for agent in scene.agents for work in agent.trials]:
            seal, calls = await _sealed(stack, work)
            _check_answers(work, calls)
            _check_spans(calls)
            kept[work.trial] = seal
            states += Counter(call.state for call in calls)
            spoken |= {call.intent.sampler for call in calls if call.answer}
    models = {scene.gateway.samplers[sampler].base_model for sampler in spoken}
    assert models == {*FAMILIES, MODEL}
    lines = (short_dir / "commits.jsonl").read_text().splitlines()
    told = [*map(Seal.model_validate_json, lines), *scene.gateway.commits]
    assert {seal.trial for seal in told} == kept.keys()
    assert all(kept[seal.trial] == seal for seal in told)  # whoever is told twice is told the same
    record_property("refused", sum(agent.refused for agent in scene.agents))
    for state, count in states.items():
        record_property(state, count)


async def _sealed(stack: World, work: Work) -> tuple[Seal, list[Interaction]]:
    """The seal of a trial, by now or long ago, and what it counts."""
    seal = Seal.model_validate_json((await stack.seal(work.trial, run=work.run)).content)
    data = b"" if seal.object is None else stack.gateway.objects[seal.object]
    assert seal.object in (None, canonical.digest_bytes(data)) and len(data) == seal.size
    calls = evidence.interactions(data)
    lost = sum(one.state is CallState.LOST for one in calls)
    assert seal.states[CallState.LOST] == lost and seal.complete == (lost == 0)
    assert not evidence.refusals(data)
    return seal, calls


def _check_answers(work: Work, calls: list[Interaction]) -> None:
    """Invariant 2."""
    by_message = {"msg_" + one.intent.interaction[4:]: one for one in calls}
    assert len(by_message) == len(calls)
    for name, message in work.answers.items():
        answer = by_message[name].answer
        assert answer is not None and answer.content == message["content"]
    assert all(by_message[name].answer is not None for name in work.called)
    unseen = [one for name, one in by_message.items() if name not in work.answers and one.answer]
    assert len(unseen) <= 1  # the agent insists, and is given what is on record


def _check_spans(calls: list[Interaction]) -> None:
    """Invariants 1 and 3, and one span for each request."""
    assert [one.intent.sequence for one in calls] == list(range(len(calls)))
    answered = [one for one in calls if one.answer is not None]
    assert len({one.intent.request_digest for one in answered}) == len(answered)
    by_id = {one.intent.interaction: one for one in calls}
    for one in calls:
        if one.exact:
            before = by_id[one.intent.parent or ""]
            whole = before.prompt + before.output
            assert one.prompt[: len(whole)] == whole
    for one in answered:
        assert one.logprobs is not None and len(one.logprobs) == len(one.output) > 0
