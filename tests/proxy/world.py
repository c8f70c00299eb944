"""What the proxy's tests stand on: a signing gateway, a small compute, clients over a socket.

Both are plain implementations of the protocols that the proxy is written against. Everything
of the proxy itself, HTTP over its Unix socket included, is real.
"""

import itertools
import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import jwt
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from proxy.admission import Limits
from proxy.app import Settings
from proxy.server import Server
from proxy.spool import STAGE_BYTES
from runtime.compute.chunks import chunked
from runtime.compute.protocol import (
    Chunk,
    IntArray,
    SampleContext,
    Sampled,
    SamplerSpec,
    SamplingParams,
)
from runtime.compute.tiny import tiny_tokenizer
from runtime.exclusive import listen
from specs import canonical, evidence
from specs.errors import ErrorCode, NotFound, PracticumError, Unavailable
from specs.ids import Prefix, new_id
from specs.interaction import Interaction, Seal
from specs.model import Backend, ModelInfo
from specs.operator_api import Session
from specs.records import Trial
from specs.run import SamplerRef
from specs.upstream import Upstream
from specs.worker_api import RenewalReply

TOKENIZER = json.dumps(tiny_tokenizer()).encode()
MODEL = "tiny"
END = 2
CONTEXT = 4096
WORKER_KEY = "the-worker's-key"

_NOWHERE = SampleContext()

type Reply = str | Callable[[list[int]], str] | Sequence[int]


def text_ids(text: str) -> list[int]:
    """Ids of text in the test model's tokenizer: one per byte."""
    return [byte + 3 for byte in text.encode()]


def ids_text(ids: Sequence[int]) -> str:
    """The reverse, control tokens spelled out."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    parts = [special[one].encode() if one < 3 else bytes([one - 3]) for one in ids]
    return b"".join(parts).decode(errors="replace")


class Dice:
    """A compute that answers with `replies` in turn, or with random bytes of its seed."""

    def __init__(self, replies: Sequence[Reply] = (), *, seed: int = 0) -> None:
        self.replies = list(replies)
        self.random = random.Random(seed)
        self.prompts: list[list[int]] = []
        self.params: list[SamplingParams] = []
        self.contexts: list[SampleContext] = []
        self.samplers: list[SamplerSpec] = []
        self.adapters: dict[str, bytes] = {}
        self.delay = 0.0
        self.gate: anyio.Event | None = None
        self.failures: list[Exception] = []
        self.size = 3
        """Tokens in a chunk."""
        self.before: Callable[[int], Awaitable[None]] | None = None
        """Awaited before each chunk, which is told its number."""
        self.context = CONTEXT
        self.backend: Backend = "torch"

    async def model(self, name: str) -> ModelInfo:
        if name != MODEL:
            raise NotFound(f"no model {name}", code=ErrorCode.MODEL_UNKNOWN)
        return ModelInfo(
            name=MODEL,
            backend=self.backend,
            digest="sha256:" + "0" * 64,
            tokenizer_digest=canonical.digest_bytes(TOKENIZER),
            family="chatml",
            context_tokens=self.context,
            stop_tokens=(END, 0),
            trainable=True,
            parameters=1,
            present=True,
        )

    async def tokenizer(self, name: str) -> bytes:
        return TOKENIZER

    async def put_adapter(self, digest: str, data: bytes) -> None:
        self.adapters[digest] = data

    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
        context: SampleContext = _NOWHERE,
    ) -> list[Sampled]:
        assert num_samples == 1
        if self.failures:
            raise self.failures.pop(0)
        if sampler.adapter is not None and sampler.adapter not in self.adapters:
            raise NotFound("no such adapter", code=ErrorCode.ADAPTER_MISSING)
        self.prompts.append(prompt.tolist())
        self.params.append(params)
        self.contexts.append(context)
        self.samplers.append(sampler)
        number = len(self.prompts) - 1
        if self.gate is not None:
            await self.gate.wait()
        if self.delay:
            await anyio.sleep(self.delay)
        return [self._sampled(number, prompt.tolist(), params)]

    @asynccontextmanager
    async def stream(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        context: SampleContext = _NOWHERE,
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        (sampled,) = await self.sample(sampler, prompt, params, context=context)
        yield self._chunks(sampled)

    async def _chunks(self, sampled: Sampled) -> AsyncGenerator[Chunk]:
        for number, chunk in enumerate(chunked(sampled, self.size)):
            if self.before is not None:
                await self.before(number)
            yield chunk

    def _sampled(self, number: int, prompt: list[int], params: SamplingParams) -> Sampled:
        if number < len(self.replies):
            reply = self.replies[number]
            if callable(reply):
                reply = reply(prompt)
            ids = text_ids(reply) if isinstance(reply, str) else list(reply)
        else:
            length = self.random.randrange(0, 12)
            ids = [self.random.randrange(3, 259) for _ in range(length)]
        ids = [*ids, END]
        cut = len(ids) > params.max_tokens
        tokens = np.array(ids[: params.max_tokens], np.int32)
        logprobs = np.array([-self.random.random() for _ in tokens], np.float32)
        return Sampled(tokens, logprobs, "length" if cut else "stop")


def _opened() -> anyio.Event:
    event = anyio.Event()
    event.set()
    return event


@dataclass
class TestGateway:
    """Signs tokens, knows samplers, keeps objects and seals."""

    __test__ = False

    lease: float = 30.0
    down: bool = False
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    kid: str = "key-1"
    samplers: dict[str, SamplerRef] = field(default_factory=dict[str, SamplerRef])
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    seals: dict[tuple[str, int], Seal] = field(default_factory=dict[tuple[str, int], Seal])
    commits: list[Seal] = field(default_factory=list[Seal])
    sessions: dict[str, Seal] = field(default_factory=dict[str, Seal])
    trials: dict[str, str] = field(default_factory=dict[str, str])
    over: set[str] = field(default_factory=set[str])
    store_error: PracticumError | None = None
    store_gate: anyio.Event = field(default_factory=_opened)
    renewals: int = 0
    key_fetches: int = 0

    def sampler_id(self, *, adapter: str | None = None) -> str:
        ref = SamplerRef(
            id=new_id(Prefix.SAMPLER),
            backend="torch",
            base_model=MODEL,
            base_digest="sha256:" + "0" * 64,
            tokenizer_digest=canonical.digest_bytes(TOKENIZER),
            renderer="chatml/1",
            adapter=adapter,
        )
        self.samplers[ref.id] = ref
        return ref.id

    def claims(self, **changes: Any) -> dict[str, Any]:
        trial = changes.pop("trial", None) or new_id(Prefix.TRIAL)
        run = changes.pop("run", None) or self.trials.get(trial) or new_id(Prefix.RUN)
        self.trials[trial] = run
        now = time.time()
        return {
            "iss": "practicum",
            "aud": "practicum-proxy",
            "org": "org_local",
            "run": run,
            "trial": trial,
            "fence": 1,
            "sampler": changes.pop("sampler", None) or self.sampler_id(),
            "model": MODEL,
            "task": "acme/count",
            "iat": now,
            "exp": now + 3600,
            "jti": "token-1",
            **changes,
        }

    def token(self, claims: Mapping[str, Any], *, kid: str | None = None) -> str:
        return jwt.encode(
            dict(claims), self.key, algorithm="EdDSA", headers={"kid": kid or self.kid}
        )

    async def _store(self) -> None:
        """The object store takes its time, or fails."""
        if self.store_error is not None:
            raise self.store_error
        await self.store_gate.wait()

    def _reach(self) -> None:
        if self.down:
            raise Unavailable("the gateway is away")

    async def jwks(self) -> dict[str, Any]:
        self._reach()
        self.key_fetches += 1
        public = cast(dict[str, Any], json.loads(OKPAlgorithm.to_jwk(self.key.public_key())))
        return {"keys": [{**public, "kid": self.kid, "alg": "EdDSA", "use": "sig"}]}

    async def sampler(self, sampler: str) -> SamplerRef:
        self._reach()
        if sampler not in self.samplers:
            raise NotFound(f"no sampler {sampler}")
        return self.samplers[sampler]

    async def trial(self, trial: str) -> Trial:
        self._reach()
        if trial not in self.trials:
            raise NotFound(f"no trial {trial}")
        return cast(Trial, _Run(self.trials[trial]))

    async def object(self, digest: str) -> bytes:
        self._reach()
        if digest not in self.objects:
            raise NotFound(f"no object {digest}")
        return self.objects[digest]

    async def renew(self, trials: dict[str, int]) -> RenewalReply:
        self._reach()
        self.renewals += 1
        active = [trial for trial in trials if trial in self.trials and trial not in self.over]
        return RenewalReply(active=active, lease_sec=self.lease)

    async def upload_file(self, path: Path, *, digest: str | None = None) -> str:
        self._reach()
        await self._store()
        data = await anyio.Path(path).read_bytes()
        name = canonical.digest_bytes(data)
        assert digest in (None, name)
        self.objects[name] = data
        return name

    async def commit_evidence(self, seal: Seal) -> Trial:
        self._reach()
        if seal.object is not None:
            assert len(self.objects[seal.object]) == seal.size
        self.commits.append(seal)
        self.seals[seal.trial, seal.fence] = seal
        return cast(Trial, _Run(seal.run))

    async def commit_session(self, seal: Seal) -> Session:
        self._reach()
        self.sessions[seal.trial] = seal
        return Session(
            id=seal.trial,
            model=MODEL,
            sampler=new_id(Prefix.SAMPLER),
            purpose="claude",
            created_at="2026-01-01T00:00:00Z",
            expires_at=0.0,
            seal=seal,
        )


@dataclass(frozen=True)
class _Run:
    run: str


class Harness:
    """A client with one trial's token."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self.client = client
        self.headers = {"authorization": f"Bearer {token}"}

    async def post(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        body = {"model": "any", "max_tokens": 512, "messages": list(messages), **fields}
        return await self.client.post(
            "/v1/messages?beta=true", json=body, headers={**self.headers, **(headers or {})}
        )

    async def say(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
        response = await self.post(messages, **fields)
        assert response.status_code == 200, response.text
        return cast(dict[str, Any], response.json())


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that happens elsewhere; fails after a generous time."""
    with anyio.fail_after(30):
        while not true():  # noqa: ASYNC110 - nothing here to be told by
            await anyio.sleep(0.01)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def echo(message: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as the next request's history."""
    return {"role": "assistant", "content": message["content"]}


@dataclass
class World:
    """A running proxy and what is around it."""

    folder: Path
    gateway: TestGateway
    compute: Dice
    client: httpx.AsyncClient
    socket: str

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def harness(self, **claims: Any) -> Harness:
        return Harness(self.client, self.gateway.token(self.gateway.claims(**claims)))

    def segment(self, trial: str, fence: int = 1) -> bytes:
        return (self.spool / f"{trial}.{fence}.seg").read_bytes()

    def interactions(self, trial: str, fence: int = 1) -> list[Interaction]:
        return evidence.interactions(self.segment(trial, fence))

    async def seal(self, trial: str, *, fence: int = 1, run: str | None = None) -> httpx.Response:
        return await self.client.post(
            f"/internal/trials/{trial}/seal",
            json={"run": run or self.gateway.trials[trial], "fence": fence},
            headers={"authorization": f"Bearer {WORKER_KEY}"},
        )


@asynccontextmanager
async def world(
    folder: Path,
    *,
    gateway: TestGateway | None = None,
    compute: Dice | None = None,
    patience: float = 0.2,
    grace: float = 0.2,
    limits: Limits | None = None,
    stage: int = STAGE_BYTES,
    upstreams: Sequence[Upstream] = (),
) -> AsyncGenerator[World]:
    """Run a proxy on a socket in `folder`; used again on one folder, it is a restart."""
    gateway, compute = gateway or TestGateway(), compute or Dice()
    settings = Settings(
        folder / "spool",
        cast(Any, compute),
        gateway,
        WORKER_KEY,
        patience=patience,
        grace=grace,
        limits=limits or Limits(),
        stage=stage,
        upstreams=upstreams,
    )
    path = folder / f"p{next(_NUMBERS)}.sock"
    web = Server(settings)
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    with listen(path) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(web.serve, [listener])
            while not web.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.005)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://proxy", timeout=30, trust_env=False
            ) as client:
                try:
                    yield World(folder, gateway, compute, client, str(path))
                finally:
                    web.should_exit = True


_NUMBERS = itertools.count()
