"""Training on groups that share a long prompt: its tokens computed once, or once a sequence.

    python -m benchmarks.shared_prefix [--model tiny] [--prefix 2500] [--suffix 96]
                                       [--rounds 2] [--json FILE]

A group of eight attempts as Claude Code makes them: one long prompt (system, tools, task) and
short turns of each one's own, which carry the advantage. The same trainer takes the group in
one call, which packs it, and its sequences in a call each, which cannot share anything; then
the accumulated gradients are compared. Rounds alternate. Aim: ≥ 4 times faster, gradients
within a relative L2 distance of 1e-5.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from runtime.compute import models
from runtime.compute.llama import Llama
from runtime.compute.lora import Layout
from runtime.compute.protocol import Datum, IntArray, Loss
from runtime.compute.threads import Threads
from runtime.compute.trainer import Trainer
from specs.model import LoraSpec

AIM, AIM_GRADIENT = 4.0, 1e-5
SIZE, RANK = 8, 8


def group(vocabulary: int, prefix: int, suffix: int) -> list[Datum]:
    """One group; the own turns are of different lengths, `suffix` tokens in the middle."""
    random = np.random.RandomState(0)

    def draw(count: int) -> IntArray:
        return random.randint(20, min(vocabulary, 20_000), count).astype(np.int32)

    shared = draw(prefix)
    data: list[Datum] = []
    for number in range(SIZE):
        own = suffix * (number + 4) // 8 + 1
        tokens = np.concatenate((shared, draw(own)))
        length = len(tokens) - 1
        mine = np.arange(length) >= prefix - 1
        advantages = np.where(mine, (-1.0) ** number * (1 + number) / length, 0).astype(np.float32)
        logprobs = np.where(mine, -np.log(vocabulary), np.nan).astype(np.float32)
        inputs = {"advantages": advantages, "logprobs": logprobs}
        data.append(Datum(tokens[:-1], tokens[1:], inputs))
    return data


def trainer(model: Llama, name: str) -> Trainer:
    """A trainer of which no matrix is zero, so that every gradient counts."""
    layout = Layout(model.fused(), RANK)
    generator = torch.Generator().manual_seed(0)
    flat = layout.initial(0) + torch.randn(layout.size, generator=generator) * 0.01
    return Trainer(model, name, LoraSpec(rank=RANK, seed=0), flat)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one call, and its CPU time."""
    begun, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - spent


def accumulate(taught: Trainer, calls: Sequence[Sequence[Datum]]) -> None:
    """Forward and backward of each call's data."""
    for data in calls:
        taught.forward(data, Loss.IMPORTANCE_SAMPLING, backward=True)


def _length(vector: torch.Tensor) -> float:
    return float(vector.square().sum().sqrt())


def run(name: str, prefix: int, suffix: int, rounds: int) -> dict[str, Any]:
    """Both ways, in alternation, and the distance of their gradients."""
    torch.set_num_threads(Threads.choose().train)
    model = Llama(models.model_path(name))
    data = group(model.vocabulary, prefix, suffix)
    ways = {"apart": [[datum] for datum in data], "shared": [data]}
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    gradients: dict[str, torch.Tensor] = {}
    for number in range(rounds):
        for way in sorted(ways, reverse=bool(number % 2)):
            taught = trainer(model, name)
            times[way].append(timed(lambda t=taught, w=way: accumulate(t, ways[w])))
            gradients[way] = taught.gradient()
    gap = _length(gradients["shared"] - gradients["apart"]) / _length(gradients["apart"])
    lengths = [len(datum.tokens) for datum in data]
    apart, shared = (median(wall for wall, _ in times[way]) for way in ("apart", "shared"))
    cpu = {way: median(spent for _, spent in times[way]) for way in ways}
    return {
        "model": name,
        "threads": torch.get_num_threads(),
        "tokens_apart": sum(lengths),
        "tokens_shared": sum(lengths) - (SIZE - 1) * prefix,
        "seconds_apart": round(apart, 2),
        "seconds_shared": round(shared, 2),
        "times_faster": round(apart / shared, 2),
        "times_less_cpu": round(cpu["apart"] / cpu["shared"], 2),
        "gradient_distance": gap,
        "aim": {"times_faster": AIM, "gradient_distance": AIM_GRADIENT},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default=models.TINY)
    parser.add_argument("--prefix", type=int, default=2500)
    parser.add_argument("--suffix", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    report = run(options.model, options.prefix, options.suffix, options.rounds)
    for way in ("apart", "shared"):
        print(f"{way:<8}{report['tokens_' + way]:>8} tokens{report['seconds_' + way]:>9.2f} s")
    print(
        f"{report['model']}: {report['times_faster']} times faster (aim ≥ {AIM:g}),"
        f" {report['times_less_cpu']} times less CPU,"
        f" gradients {report['gradient_distance']:.1e} apart (aim ≤ {AIM_GRADIENT:g})"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
