"""Trainer and sampler beside transformers + peft: same model, lengths, batch and threads.

    python -m benchmarks.transformers_peft [--model smollm2-135m-instruct] [--rounds 3]

Both sides carry the same kind of LoRA adapter (unmerged, rank 8, every projection), in float32.
Sampling: 8 prompts of one length, a fixed number of new tokens each, with the log-probability of
every sampled token; ours are 8 concurrent calls, the baseline is one batched `generate` with its
KV cache. Training: importance sampling on 8 sequences of different lengths, forward, backward and
one AdamW step; the baseline pads them to one batch. Rounds alternate between the sides, the first
is not counted, each number is the median of the rest. Aims: trainer ≥ 1.0×, sampler ≥ 1.5×.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, cast

import anyio
import anyio.to_thread
import numpy as np
import torch

from runtime.compute.models import model_path
from runtime.compute.protocol import (
    AdamParams,
    Datum,
    FloatArray,
    IntArray,
    Loss,
    SamplerSpec,
    SamplingParams,
    TrainerInit,
)
from runtime.compute.router import LocalCompute
from runtime.compute.threads import SAMPLE_VARIABLE, TRAIN_VARIABLE
from specs.model import LoraSpec

BATCH = 8
RANK = 8
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
AIMS = {"trainer": 1.0, "sampler": 1.5}


class Baseline:
    """The model in transformers, under a peft adapter, with an AdamW of its own."""

    def __init__(self, folder: Path) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import peft
        import transformers

        cast("Any", transformers).logging.disable_progress_bar()
        config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()))
        base: Any = transformers.LlamaForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="sdpa"
        )
        lora = peft.LoraConfig(
            r=RANK, lora_alpha=RANK, target_modules=PROJECTIONS, task_type="CAUSAL_LM"
        )
        self.model: Any = peft.get_peft_model(base, lora)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)

    def sample(self, prompts: IntArray, tokens: int) -> None:
        """`tokens` new ones for each row of prompts [n, p], with their log-probabilities."""
        self.model.eval()
        ids = torch.from_numpy(prompts.astype(np.int64))
        with torch.inference_mode():
            made: Any = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
            logits = torch.stack(made.logits, dim=1)
            chosen = made.sequences[:, ids.shape[1] :]
            logits.log_softmax(-1).gather(-1, chosen.unsqueeze(-1))

    def train(self, data: list[Datum]) -> None:
        """One step of importance sampling on the padded batch."""
        self.model.train()
        longest = max(len(datum.tokens) for datum in data)

        def padded(rows: list[Any]) -> torch.Tensor:
            return torch.stack(
                [
                    torch.nn.functional.pad(torch.from_numpy(row), (0, longest - len(row)))
                    for row in rows
                ]
            )

        tokens = padded([datum.tokens.astype(np.int64) for datum in data])
        targets = padded([datum.targets.astype(np.int64) for datum in data])
        mask = padded([np.ones(len(datum.tokens), np.int64) for datum in data])
        old, advantages = (
            padded([datum.inputs[name] for datum in data]) for name in ("logprobs", "advantages")
        )
        logits: Any = self.model(input_ids=tokens, attention_mask=mask).logits
        found = logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        loss = -(torch.exp(found - old) * advantages * mask).sum()
        cast("Any", loss).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Ours:
    """The embedded backend in this process, with one trainer and its adapter."""

    def __init__(self, compute: LocalCompute, model: str, adapter: str) -> None:
        self.compute = compute
        self.sampler = SamplerSpec(model, adapter)

    @classmethod
    async def open(cls, compute: LocalCompute, model: str) -> "Ours":
        init = TrainerInit(base_model=model, lora=LoraSpec(rank=RANK))
        await compute.create_trainer("trn_bench", init)
        return cls(compute, model, (await compute.save_adapter("trn_bench")).digest)

    async def sample(self, prompts: IntArray, tokens: int) -> None:
        async with anyio.create_task_group() as group:
            for prompt in prompts:
                group.start_soon(
                    self.compute.sample, self.sampler, prompt, SamplingParams(tokens, ())
                )

    async def train(self, data: list[Datum]) -> None:
        await self.compute.forward("trn_bench", data, Loss.IMPORTANCE_SAMPLING, backward=True)
        await self.compute.optim_step("trn_bench", AdamParams(1e-4))


def batch(random: np.random.RandomState, vocabulary: int) -> list[Datum]:
    """Sequences of 64 to 512 tokens that share nothing, the last half of each generated."""
    made: list[Datum] = []
    for length in np.linspace(64, 512, BATCH).astype(int):
        ids = random.randint(0, vocabulary, length + 1).astype(np.int32)
        generated: FloatArray = np.ones(length, np.float32)
        generated[: length // 2] = 0
        inputs: dict[str, FloatArray] = {"logprobs": -5 * generated, "advantages": generated}
        made.append(Datum(tokens=ids[:-1], targets=ids[1:], inputs=inputs))
    return made


async def measure(model: str, rounds: int, prompt: int, tokens: int) -> dict[str, Any]:
    """Tokens per second of both sides."""
    folder = model_path(model)
    vocabulary = int(json.loads((folder / "config.json").read_text())["vocab_size"])
    random = np.random.RandomState(0)
    prompts = random.randint(0, vocabulary, (BATCH, prompt)).astype(np.int32)
    data = batch(random, vocabulary)
    theirs = Baseline(folder)
    with tempfile.TemporaryDirectory() as state:
        async with LocalCompute(Path(state)) as compute:
            ours = await Ours.open(compute, model)

            def baseline(work: Callable[..., None], *words: Any) -> Callable[[], Awaitable[None]]:
                return lambda: anyio.to_thread.run_sync(work, *words)

            cases: dict[str, tuple[int, list[Callable[[], Awaitable[None]]]]] = {
                "sampler": (
                    BATCH * tokens,
                    [
                        lambda: ours.sample(prompts, tokens),
                        baseline(theirs.sample, prompts, tokens),
                    ],
                ),
                "trainer": (
                    sum(len(datum.tokens) for datum in data),
                    [lambda: ours.train(data), baseline(theirs.train, data)],
                ),
            }
            return {
                name: await alternate(work, sides, rounds) for name, (work, sides) in cases.items()
            }


async def alternate(
    work: int, sides: list[Callable[[], Awaitable[None]]], rounds: int
) -> dict[str, float]:
    """Median rates (tokens per second) of ours and theirs."""
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for side, taken in zip(sides, seconds, strict=True):
            start = time.perf_counter()
            await side()
            taken.append(time.perf_counter() - start)
    ours, theirs = (work / median(taken[1:]) for taken in seconds)
    return {"ours": ours, "theirs": theirs, "ratio": ours / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both sides")
    given = parser.parse_args()
    os.environ |= {SAMPLE_VARIABLE: str(given.threads), TRAIN_VARIABLE: str(given.threads)}
    torch.set_num_threads(given.threads)
    found = anyio.run(measure, given.model, given.rounds, given.prompt, given.tokens)
    print(f"{given.model}, {given.threads} threads, batch of {BATCH} (tokens/s)")
    print(f"{'':10}{'ours':>10}{'theirs':>10}{'ratio':>8}{'aim':>7}")
    for name, row in found.items():
        print(
            f"{name:10}{row['ours']:10.1f}{row['theirs']:10.1f}{row['ratio']:7.2f}×"
            f"{AIMS[name]:6.1f}×"
        )


if __name__ == "__main__":
    main()
