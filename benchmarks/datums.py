"""Evidence to datums, beside the Tinker cookbook's functions on the same trajectories.

    python -m benchmarks.datums [--rounds 5] [--groups 8] [--size 8] [--turns 8] [--json FILE]

Both sides get trajectories in their own types, already in memory, and make advantages,
packing, masks and datums of them; that the numbers are the same is asserted before anything
is timed. Rounds alternate, and CPU time is counted, so that a busy machine slows both alike.
Two more rows say what ours costs with the digests that an update records, and from the bytes
of sealed segments on. Memory is what the resident set of a forked process grew by at its peak
while it made the datums and held them. Aim (design §8): ≥ 5×.
"""

import argparse
import importlib
import json
import os
import random
import time
import warnings
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from runtime.compute.protocol import Datum
from runtime.learning.advantages import centre
from runtime.learning.datums import datum_digest, importance_datum
from runtime.learning.packing import pack
from specs import evidence
from specs.ids import Prefix, new_id
from specs.interaction import Answer, BranchReason, Intent, Interaction, SamplingUsed

AIM = 5.0
PROMPT, OUTPUT, OBSERVATION = 400, 60, 120
"""Tokens of a first prompt, of an answer, and of a tool's result."""

type Group = list[tuple[list[Interaction], float]]


def segment(rng: random.Random, turns: int) -> bytes:
    """One trial: turns that extend each other, with a branch in the middle."""
    data = b""
    whole: list[int] = []
    parent: str | None = None
    trial = new_id(Prefix.TRIAL)
    for number in range(turns):
        branches = number in (0, turns // 2)
        if branches:
            whole = []
        size = PROMPT if branches else OBSERVATION
        # The first id of a branch is its own, so that no branch is a prefix of another.
        suffix = [50_000 + number, *(rng.randrange(49_000) for _ in range(size))]
        output = [rng.randrange(49_000) for _ in range(OUTPUT)]
        prompt = whole + suffix
        name = new_id(Prefix.INTERACTION)
        intent = Intent(
            interaction=name,
            trial=trial,
            fence=1,
            sequence=number,
            at="",
            parent=None if branches else parent,
            branch=BranchReason.ROOT if branches else None,
            prompt_tokens=len(prompt),
            prompt_sha256=evidence.prompt_hash(array("i", prompt)),
            sampler=new_id(Prefix.SAMPLER),
            sampling=SamplingUsed(temperature=1, top_p=1, top_k=-1, max_tokens=64, stop=(2,)),
            request_digest="sha256:" + "0" * 64,
        )
        answer = Answer(
            interaction=name, at="", stop_reason="stop", provenance="sampled", content=[]
        )
        logprobs = array("f", (-rng.random() for _ in output))
        data += evidence.encode(intent, {"suffix": array("i", suffix)})
        data += evidence.encode(answer, {"output": array("i", output), "logprobs": logprobs})
        whole, parent = prompt + output, name
    return data


def ours(groups: Sequence[Group]) -> list[Datum]:
    """Advantages, packing, masks, datums."""
    datums: list[Datum] = []
    for group in groups:
        centred = centre([reward for _, reward in group])
        for (calls, _), advantage in zip(group, centred.advantages, strict=True):
            datums += [importance_datum(packed, advantage) for packed in pack(calls)]
    return datums


class Cookbook:
    """The baseline, and the same trajectories in its types."""

    def __init__(self, groups: Sequence[Group]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tinker: Any = importlib.import_module("tinker")
            self.processing: Any = importlib.import_module("tinker_cookbook.rl.data_processing")
            self.types: Any = importlib.import_module("tinker_cookbook.rl.types")
            self.completers: Any = importlib.import_module("tinker_cookbook.completers")
        self.groups = [self._group(group) for group in groups]

    def datums(self) -> list[Any]:
        """The same work."""
        advantages = self.processing.compute_advantages(self.groups)
        return self.processing.assemble_training_data(self.groups, advantages)[0]

    def _group(self, group: Group) -> Any:
        trajectories = [self._trajectory(calls, reward) for calls, reward in group]
        none = [0.0] * len(group)
        return self.types.TrajectoryGroup(trajectories, none, [{} for _ in group])

    def _trajectory(self, calls: Sequence[Interaction], reward: float) -> Any:
        last = len(calls) - 1
        transitions = [
            self.types.Transition(
                ob=self.tinker.ModelInput.from_ints(call.prompt.tolist()),
                ac=self.completers.TokensWithLogprobs(
                    tokens=call.output.tolist(),
                    maybe_logprobs=(call.logprobs or array("f")).tolist(),
                ),
                reward=reward if number == last else 0.0,
                episode_done=number == last,
            )
            for number, call in enumerate(calls)
        ]
        return self.types.Trajectory(
            transitions=transitions, final_ob=self.tinker.ModelInput.from_ints([])
        )


def assert_same(mine: Sequence[Datum], theirs: Sequence[Any]) -> None:
    """Every datum has the same numbers on both sides."""
    assert len(mine) == len(theirs)
    for datum, their in zip(mine, theirs, strict=True):
        inputs = {name: value.to_numpy() for name, value in their.loss_fn_inputs.items()}
        assert datum.tokens.tolist() == their.model_input.to_ints()
        assert datum.targets.tolist() == inputs["target_tokens"].tolist()
        np.testing.assert_array_equal(datum.inputs["logprobs"], inputs["logprobs"])
        np.testing.assert_allclose(datum.inputs["advantages"], inputs["advantages"], atol=1e-6)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def peak_memory(work: Callable[[], object]) -> int:
    """Bytes by which a process of its own grew, at its peak, while it did the work."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # the other threads hold nothing that the child needs
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        made = work()
        grown = resident("VmHWM") - before
        os.write(writer, str(grown if made else 0).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        grown = int(told.read())
    os.waitpid(child, 0)
    return grown


def resident(name: str) -> int:
    """A size of this process as the kernel tells it, in bytes."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def run(rounds: int, groups: int, size: int, turns: int) -> dict[str, Any]:
    """Datums per second of CPU by row."""
    rng = random.Random(0)
    segments = [[segment(rng, turns) for _ in range(size)] for _ in range(groups)]
    rewards = [[float(rng.randrange(3)) for _ in range(size)] for _ in range(groups)]

    def decode() -> list[Group]:
        return [
            [(evidence.interactions(d), r) for d, r in zip(data, of_group, strict=True)]
            for data, of_group in zip(segments, rewards, strict=True)
        ]

    trajectories = decode()
    cookbook = Cookbook(trajectories)
    datums = ours(trajectories)
    assert_same(datums, cookbook.datums())
    rows: dict[str, Callable[[], object]] = {
        "cookbook": cookbook.datums,
        "ours": lambda: ours(trajectories),
        "ours, with digests": lambda: [datum_digest(datum) for datum in ours(trajectories)],
        "ours, from sealed bytes": lambda: ours(decode()),
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, work in rows.items():
            times[name].append(cpu_seconds(work))
    memory = {name: peak_memory(rows[name]) / 2**20 for name in ("cookbook", "ours")}
    rates = {name: len(datums) / median(values) for name, values in times.items()}
    return {
        "datums": len(datums),
        "tokens": sum(len(datum.tokens) for datum in datums),
        "per_cpu_second": {name: round(rate, 1) for name, rate in rates.items()},
        "peak_mib": {name: round(grown, 1) for name, grown in memory.items()},
        "ratio": round(rates["ours"] / rates["cookbook"], 1),
        "aim": AIM,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("rounds", 5), ("groups", 8), ("size", 8), ("turns", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = run(options.rounds, options.groups, options.size, options.turns)
    print(f"{result['datums']} datums, {result['tokens']} tokens; the same numbers on both sides")
    for name, rate in result["per_cpu_second"].items():
        print(f"{name:<26}{rate:>12.1f} datums per CPU second")
    print(f"{'ours / cookbook':<26}{result['ratio']:>12.1f}   (aim ≥ {AIM})")
    for name, grown in result["peak_mib"].items():
        print(f"{name:<26}{grown:>12.1f} MiB more at the peak")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
