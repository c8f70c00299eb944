"""The proxy beside litellm's, end to end on the same scripted sampler, in one run.

    python -m benchmarks.proxy_litellm [--quick] [--only TEXT] [--litellm PATH] [--json FILE]

    ours      client -> proxy (durable capture: two syncs of the disk a call) -> compute
    litellm   client -> litellm proxy (no capture) -> OpenAI-compatible server -> compute
    sampler   client -> compute, with the prompt's tokens in hand: what nothing can be below

The server behind litellm renders and tokenises with our renderer and tokenizer (Qwen3's), off
its event loop. Compute, client, requests (OpenAI Chat Completions) and answers, which are
checked, are the same; each part is one process.

A *session* is a conversation that grows: each request carries the whole history and one turn
of the user more, and is sent when the answer before it is there, as a harness does. Rows:

* `1 KB`: conversations that begin with 1 KB and end after four turns; another one follows.
* `50k tokens`: sessions in their middle, with a history of 50,000 tokens in fifty turns.
  Each made its first call before it is measured.
* `opening`: that first call, a history of which nobody has seen anything.
* whole answers and streams; 1, 16 and 64 sessions at once.

Added latency is the time until the last byte of an answer, less the sampler's median at as
many sessions. Rounds of the three alternate, so a busy machine slows all alike: compare within
a row. Ends with 1 if a row is not better in every number. litellm runs from an environment of
its own, which `make bench` makes.
"""

import argparse
import json
import socket
import statistics
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import numpy as np

from benchmarks._load import MAX_TOKENS, Talk, Times, long, short
from benchmarks._openai import conversation_of
from benchmarks._stack import (
    ANSWER,
    MODEL,
    PYTHON,
    ROOT,
    Stack,
    patiently,
    process,
    proxy_client,
    stack,
)
from runtime.compute.client import HttpCompute
from runtime.compute.protocol import IntArray, SampleContext, SamplerSpec, SamplingParams
from runtime.formats.carried import load_codec
from runtime.formats.families import family_of
from specs import evidence
from specs.model import ModelInfo

FAMILY = "qwen3"
LONG_TOKENS = 50_000
SHORT_TURNS = 4
LITELLM = ROOT / ".tools" / "litellm" / "bin" / "litellm"
_LITELLM_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it checks no credential
}
NUMBERS = ("added_p50_ms", "added_p99_ms", "per_sec")


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured: so many calls of each side in each of the alternating rounds."""

    long: bool
    stream: bool
    sessions: int
    calls: int
    rounds: int
    opening: bool = False

    @property
    def name(self) -> str:
        size = f"50k tokens{' opening' if self.opening else ''}" if self.long else "1 KB"
        return f"{size}, {'stream' if self.stream else 'whole'}, {self.sessions}"


ROWS = (
    *(
        Row(size, stream, sessions, calls, rounds)
        for size, plan in (
            (False, ((1, 40, 6), (16, 80, 4), (64, 192, 3))),
            (True, ((1, 20, 5), (16, 48, 3), (64, 128, 2))),
        )
        for sessions, calls, rounds in plan
        for stream in (False, True)
    ),
    Row(True, False, 1, 6, 4, opening=True),
    Row(True, False, 16, 32, 2, opening=True),
)


class Side:
    """One of the two that are compared; each session has a credential where there are any."""

    def __init__(self, client: httpx.AsyncClient, credentials: Sequence[str] = ()) -> None:
        self._client = client
        self._credentials = credentials
        self._talks: dict[tuple[bool, int], Talk] = {}
        self._begun = 0

    async def warm(self, row: Row, size: int) -> None:
        """Let every session of a row make its first call."""
        async with anyio.create_task_group() as tasks:
            for session in range(row.sessions):
                if (row.long, session) not in self._talks:
                    tasks.start_soon(self.turn, row, session, size)

    async def turn(self, row: Row, session: int, size: int) -> None:
        """One call of a session, whose answer is checked."""
        key = (row.long, session)
        talk = self._talks.get(key)
        if talk is None or row.opening or (not row.long and talk.turns == SHORT_TURNS):
            self._begun += 1
            seed = str(self._begun)
            talk = self._talks[key] = Talk(seed, long(seed, size) if row.long else short(seed))
        text = await self._ask(session, talk.body(stream=row.stream), stream=row.stream)
        if text != ANSWER:
            raise RuntimeError(f"answered {text!r}")
        talk.answered(text)

    async def _ask(self, session: int, body: bytes, *, stream: bool) -> str:
        headers = {"content-type": "application/json"}
        if self._credentials:
            headers["authorization"] = f"Bearer {self._credentials[session]}"
        response = await self._client.post("/v1/chat/completions", content=body, headers=headers)
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.text[:500]}")
        if stream:
            return streamed(response.text)
        return cast(str, response.json()["choices"][0]["message"]["content"])


def streamed(text: str) -> str:
    """The text of a completion in chunks."""
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        raise RuntimeError(f"the stream does not end: {text[-300:]}")
    chunks = (cast(dict[str, Any], json.loads(line)) for line in lines[:-1])
    deltas = (choice["delta"] for chunk in chunks for choice in chunk["choices"])
    return "".join(delta.get("content") or "" for delta in deltas)


class Bench:
    """What is compared, and the sampler below it."""

    def __init__(self, compute: HttpCompute, info: ModelInfo, sides: dict[str, Side]) -> None:
        self._compute = compute
        self._params = SamplingParams(MAX_TOKENS, info.stop_tokens)
        self._sides = sides

    async def run(self, row: Row, size: int) -> dict[str, Any]:
        """Measure a row; `size` characters make a long conversation."""
        if not row.opening:
            for side in self._sides.values():
                await side.warm(row, size)
        prompt = np.arange(LONG_TOKENS if row.long else 300, dtype=np.int32) % 1000
        sampler, times = Times(), {name: Times() for name in self._sides}

        async def sample(session: int) -> None:
            await self._sample(session, prompt)

        for number in range(row.rounds):
            await sampler.measure(max(row.calls // 2, row.sessions), row.sessions, sample)
            for name in sorted(times, reverse=bool(number % 2)):
                side = self._sides[name]

                async def turn(session: int, side: Side = side) -> None:
                    await side.turn(row, session, size)

                await times[name].measure(row.calls, row.sessions, turn)
        return report(row, statistics.median(sampler.latencies), times)

    async def _sample(self, session: int, prompt: IntArray) -> None:
        context = SampleContext(task="bench", trial=str(session), request="next")
        sampling = self._compute.stream(SamplerSpec(MODEL), prompt, self._params, context=context)
        async with sampling as chunks:
            async for _ in chunks:
                pass


def report(row: Row, floor: float, times: dict[str, Times]) -> dict[str, Any]:
    """Added latency and rate of both, and how many times better ours is."""
    result: dict[str, Any] = {"row": row.name, "sampler_p50_ms": round(1000 * floor, 1)}
    for name, side in times.items():
        result[name] = {
            "calls": len(side.latencies),
            "added_p50_ms": round(side.at(0.5, floor), 1),
            "added_p99_ms": round(side.at(0.99, floor), 1),
            "per_sec": round(side.rate, 1),
        }
    litellm, ours = result["litellm"], result["ours"]
    result["times_better"] = {
        name: round(
            ours[name] / litellm[name]
            if name == "per_sec"
            else litellm[name] / max(ours[name], 1.0),  # within the sampler's spread: 1 ms
            1,
        )
        for name in NUMBERS
    }
    return result


@asynccontextmanager
async def litellm_proxy(running: Stack, command: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """litellm's proxy with one model, behind which is the rendering server."""
    home = running.home
    behind, front = free_port(), free_port()
    config = home.root / "litellm.yaml"
    parameters = {
        "model": f"openai/{MODEL}",
        "api_base": f"http://127.0.0.1:{behind}/v1",
        "api_key": "none",
    }
    document = {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "litellm_settings": {"num_retries": 0, "request_timeout": 600},
    }
    config.write_text(json.dumps(document))  # which is YAML
    server = [*PYTHON, "benchmarks._openai", "--compute", str(home.compute_socket)]
    server += ["--port", str(behind), "--model", MODEL]
    proxy = [str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(front)]
    with ExitStack() as processes:
        processes.enter_context(process(server, home.logs / "openai.log"))
        log = home.logs / "litellm.log"
        started = processes.enter_context(process(proxy, log, _LITELLM_ENVIRONMENT))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{front}", timeout=600, trust_env=False, limits=limits
        ) as client:
            await patiently(lambda: client.get("/health/liveliness"), started)
            yield client


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return cast(int, one.getsockname()[1])


async def size_of(compute: HttpCompute, info: ModelInfo, tokens: int) -> int:
    """How many characters of a long conversation make so many tokens."""
    codec = load_codec(await compute.tokenizer(info.name))
    family = family_of(info, codec)
    size = 4 * tokens
    prompt = family.prompt(conversation_of(long("sample", size)))
    return int(tokens * size / len(codec.encode(prompt)))


def captured(running: Stack) -> Counter[str]:
    """What the spool holds of ours: the spans of every call, lost ones too."""
    spans: Counter[str] = Counter()
    for segment in running.home.spool.glob("*.seg"):
        for call in evidence.interactions(segment.read_bytes()):
            branch = call.intent.branch
            spans["exact" if branch is None else str(branch)] += 1
            spans[str(call.state)] += 1
    return spans


async def run(command: Path, *, quick: bool, only: str) -> dict[str, Any]:
    """Measure every row whose name has `only`."""
    rows = [replace(row, rounds=1) if quick else row for row in ROWS if only in row.name]
    most = max(row.sessions for row in rows)
    async with stack(FAMILY) as running, HttpCompute(running.home.compute_socket) as compute:
        info = await compute.model(MODEL)
        size = await size_of(compute, info, LONG_TOKENS)
        credentials = [await running.credential() for _ in range(most)]
        async with litellm_proxy(running, command) as front, proxy_client(running.home) as own:
            sides = {"litellm": Side(front), "ours": Side(own, credentials)}
            bench = Bench(compute, info, sides)
            results: list[dict[str, Any]] = []
            for row in rows:
                results.append(await bench.run(row, size))
                print(line(results[-1]), flush=True)
        return {"rows": results, "captured": dict(captured(running))}
    raise AssertionError("the stack ended before it was measured")


def line(result: dict[str, Any]) -> str:
    """A row of the table: litellm, ours, times better."""
    cells = [f"{result['row']:<32}{result['sampler_p50_ms']:>9}"]
    for name in NUMBERS:
        litellm, ours = result["litellm"][name], result["ours"][name]
        cells.append(f"{litellm:>10}{ours:>9}{result['times_better'][name]:>6}x")
    return " ".join(cells)


def main() -> int:
    """Measure, print, and say whether ours is better everywhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one round of each row")
    parser.add_argument("--only", default="", help="rows with this in their name")
    parser.add_argument("--litellm", type=Path, default=LITELLM, help="its command")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    if not options.litellm.is_file():
        sys.stderr.write(f"There is no {options.litellm}; `make .tools/litellm` makes it.\n")
        return 2
    heads = " ".join(f"{name + ': litellm, ours':>26}" for name in NUMBERS)
    print(f"{'':<32}{'sampler':>9} {heads}")
    result = anyio.run(lambda: run(options.litellm, quick=options.quick, only=options.only))
    print(f"captured: {result['captured']}")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    worse = [row["row"] for row in result["rows"] if min(row["times_better"].values()) <= 1]
    if worse:
        print(f"not better in every number: {'; '.join(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
