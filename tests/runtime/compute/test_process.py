"""The compute process: it listens at once, ends cleanly, survives kill -9, batches clients."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never, override

import anyio
import anyio.to_thread
import httpx
import pytest

from runtime.compute.client import HttpCompute
from runtime.compute.protocol import (
    NO_CONTEXT,
    AdamParams,
    Chunk,
    IntArray,
    SampleContext,
    Sampled,
    SamplerSpec,
    SamplingParams,
    TrainerInit,
)
from runtime.compute.router import LocalCompute
from runtime.compute.store import Store
from specs.canonical import digest_bytes
from specs.errors import ErrorCode, InvalidInput, PracticumError, Unavailable
from tests.runtime.compute.conftest import serving
from tests.runtime.compute.samples import BASE, TINY, params, prompt, trained_adapter

pytestmark = pytest.mark.anyio


@pytest.fixture
def process(short_dir: Path) -> Generator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-P", "-m", "runtime.compute.server"]
    command += ["--socket", str(short_dir / "s"), "--state", str(short_dir / "state")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment) as started:
        yield started
        if started.poll() is None:
            started.kill()


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[HttpCompute]:
    async with HttpCompute(folder / "s") as client:
        with anyio.fail_after(40):
            while not (folder / "s").exists():  # noqa: ASYNC110 - another process makes it
                await anyio.sleep(0.02)
        yield client


async def test_it_serves_its_user_alone_and_ends_cleanly(
    process: "subprocess.Popen[bytes]", short_dir: Path
) -> None:
    async with connected(short_dir) as client:
        assert (await client.health()).trainers_created == 0
        assert (short_dir / "s").stat().st_mode & 0o777 == 0o600
        assert len((await client.sample(BASE, prompt(5), params(3)))[0].tokens) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not (short_dir / "s").exists()


async def test_an_idle_connection_outlives_the_patience_of_its_client(
    process: "subprocess.Popen[bytes]", short_dir: Path
) -> None:
    """httpx keeps one for five seconds; a server that closes it first breaks a request."""
    async with connected(short_dir) as client:
        await client.health()
        async with await anyio.connect_unix(short_dir / "s") as stream:
            for pause in (0, 6):
                await anyio.sleep(pause)
                await stream.send(b"GET /healthz HTTP/1.1\r\nhost: compute\r\n\r\n")
                answer = b""
                while not answer.endswith(b"ok"):
                    answer += await stream.receive()
                assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_killed_process_is_unavailable_and_its_saved_state_remains(
    process: "subprocess.Popen[bytes]", short_dir: Path
) -> None:
    """Invariant 8: what was saved is there after a kill, what was not is not."""
    async with connected(short_dir) as client:
        sampler = await trained_adapter(client, "t")
        saved = await client.save_state("t", "upd_1")
        process.kill()
        process.wait(30)
        with pytest.raises(Unavailable) as caught:
            await client.health()
        assert caught.value.problem.code == ErrorCode.COMPUTE_UNAVAILABLE
    states = short_dir / "state" / "states"
    (states / ".tmp-left").write_bytes(b"half")
    async with LocalCompute(short_dir / "state") as next_one:
        assert not (states / ".tmp-left").exists()
        assert await next_one.find_state("upd_1") == saved
        assert await next_one.find_state("upd_2") is None
        assert await next_one.trainer("t") is None
        assert sampler.adapter is not None
        assert digest_bytes(await next_one.get_adapter(sampler.adapter)) == sampler.adapter


async def test_calls_of_many_clients_are_decoded_together(tmp_path: Path, short_dir: Path) -> None:
    compute = LocalCompute(tmp_path)
    with serving(compute, short_dir / "s"):
        results: list[Sampled] = []

        async def client(index: int) -> None:
            async with HttpCompute(short_dir / "s") as one:
                results.extend(await one.sample(BASE, prompt(50), params(60, seed=index)))

        async with anyio.create_task_group() as group:
            for index in range(8):
                group.start_soon(client, index)
        engine = (await compute.torch()).engine
        assert len(results) == 8
        assert engine.decode_steps < engine.decoded_tokens / 2
        assert engine.prefill_tokens == 49


async def test_a_client_that_goes_away_frees_its_rows(tmp_path: Path, short_dir: Path) -> None:
    compute = LocalCompute(tmp_path)
    with serving(compute, short_dir / "s"):
        async with HttpCompute(short_dir / "s") as client:
            with anyio.move_on_after(0.5):
                await client.sample(BASE, prompt(5), params(4000), num_samples=4)
            engine = (await compute.torch()).engine
            with anyio.fail_after(30):
                while not engine.idle:  # noqa: ASYNC110 - the engine is another thread
                    await anyio.sleep(0.02)
            assert engine.decoded_tokens < 4 * 4000


async def test_a_process_that_dies_while_streaming_is_unavailable(
    process: "subprocess.Popen[bytes]", short_dir: Path
) -> None:
    async with connected(short_dir) as client:
        with pytest.raises(Unavailable) as caught:
            async with client.stream(BASE, prompt(5), params(4000)) as chunks:
                await anext(chunks)
                process.kill()
                async for _ in chunks:
                    pass
        assert caught.value.problem.code == ErrorCode.COMPUTE_UNAVAILABLE


class Endless(LocalCompute):
    """One whose calls are under way until they are cancelled."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begun = threading.Event()

    @override
    async def optim_step(self, trainer: str, params: AdamParams) -> dict[str, float]:
        return await self._stay()

    @override
    @asynccontextmanager
    async def stream(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        context: SampleContext = NO_CONTEXT,
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        yield await self._stay()

    async def _stay(self) -> Never:
        self.begun.set()
        while True:
            await anyio.sleep_forever()


async def step(client: HttpCompute) -> None:
    await client.optim_step("t", AdamParams(learning_rate=0.1))


async def stream(client: HttpCompute) -> None:
    async with client.stream(BASE, prompt(5), params(3)):
        pass


@pytest.mark.parametrize("call", [step, stream])
async def test_a_call_that_the_end_of_the_process_cuts_off_is_unavailable(
    call: Callable[[HttpCompute], Awaitable[None]], tmp_path: Path, short_dir: Path
) -> None:
    """Invariant 8: whether it was applied is then unknown, and the call was not at fault."""
    compute = Endless(tmp_path)
    caught: list[PracticumError] = []

    async def make(client: HttpCompute) -> None:
        try:
            await call(client)
        except PracticumError as error:
            caught.append(error)

    async with HttpCompute(short_dir / "s") as client, anyio.create_task_group() as group:
        with serving(compute, short_dir / "s", grace=0):
            group.start_soon(make, client)
            await anyio.to_thread.run_sync(compute.begun.wait, 30)
    assert isinstance(caught[0], Unavailable)
    assert caught[0].problem.code == ErrorCode.COMPUTE_UNAVAILABLE


async def test_bad_requests_are_problems(tmp_path: Path, short_dir: Path) -> None:
    transport = httpx.AsyncHTTPTransport(uds=str(short_dir / "s"))
    with serving(LocalCompute(tmp_path), short_dir / "s"):
        async with httpx.AsyncClient(transport=transport, base_url="http://c") as client:
            for body in (b"", b"garbage", b"PCW1\xff\xff\xff\xff{}", b"PCW1\x02\x00\x00\x00{}"):
                answer = await client.post("/v1/sample", content=body)
                assert answer.status_code == 422
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["next"]
            assert (await client.post("/v1/nothing")).status_code == 404


def test_concurrent_puts_of_one_adapter_all_succeed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    data = b"adapter"
    for _ in range(3):
        store.put_adapter(digest_bytes(data), data)
    assert store.get_adapter(digest_bytes(data)) == data
    assert [path.name[:4] for path in (tmp_path / "adapters").iterdir()] != [".tmp"]


async def test_a_trainer_needs_one_starting_point(tmp_path: Path) -> None:
    async with LocalCompute(tmp_path) as compute:
        with pytest.raises(InvalidInput):
            await compute.create_trainer(
                "t", TrainerInit(TINY, adapter="sha256:" + "0" * 64, state="s")
            )
