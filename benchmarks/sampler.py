"""Sampler throughput: concurrent calls beside one call at a time, in the same run.

    python -P benchmarks/sampler.py [--model smollm2-135m-instruct] [--tokens 32] [--json FILE]

Every call has its own prompt of the same length; nothing is shared, so the figures show
continuous batching alone. The last row repeats 8 concurrent calls with one common prompt.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import anyio
import numpy as np

from runtime.compute.protocol import IntArray, SamplerSpec, SamplingParams
from runtime.compute.router import LocalCompute
from runtime.compute.threads import Threads

CONCURRENCY = (1, 8, 16)


async def _throughput(
    compute: LocalCompute, model: str, prompts: list[IntArray], concurrent: int, tokens: int
) -> float:
    """Sampled tokens per second of wall time."""
    limit = anyio.CapacityLimiter(concurrent)

    async def one(prompt: IntArray) -> None:
        async with limit:
            await compute.sample(SamplerSpec(model), prompt, SamplingParams(tokens, ()))

    start = time.perf_counter()
    async with anyio.create_task_group() as group:
        for prompt in prompts:
            group.start_soon(one, prompt)
    return len(prompts) * tokens / (time.perf_counter() - start)


async def run(model: str, tokens: int, prompt_length: int) -> list[dict[str, float | str]]:
    """Measure each concurrency; the first row is the baseline."""
    random = np.random.RandomState(0)

    def prompt() -> IntArray:
        return random.randint(20, 250, prompt_length).astype(np.int32)

    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory() as state:
        async with LocalCompute(Path(state)) as compute:
            await _throughput(compute, model, [prompt()], 1, 2)
            for concurrent in CONCURRENCY:
                prompts = [prompt() for _ in range(max(2, concurrent))]
                rate = await _throughput(compute, model, prompts, concurrent, tokens)
                rows.append({"calls": f"{concurrent} concurrent", "tokens_per_s": rate})
            rate = await _throughput(compute, model, [prompt()] * 8, 8, tokens)
            rows.append({"calls": "8 concurrent, one prompt", "tokens_per_s": rate})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    rows = anyio.run(run, arguments.model, arguments.tokens, arguments.prompt)
    baseline = float(rows[0]["tokens_per_s"])
    print(
        f"{arguments.model}, {Threads.choose().sample} threads, {arguments.tokens} tokens per call"
    )
    for row in rows:
        rate = float(row["tokens_per_s"])
        row["times_one_at_a_time"] = rate / baseline
        print(f"{row['calls']:<26} {rate:8.1f} tokens/s {rate / baseline:6.2f}x")
    document = json.dumps({"benchmark": "sampler", "model": arguments.model, "rows": rows})
    print(document)
    if arguments.json is not None:
        arguments.json.write_text(document)


if __name__ == "__main__":
    main()
