"""The grouped pipeline, beside sampling and then training in sequence.

    python -m benchmarks.pipeline [--rounds 3] [--groups 12] [--size 4] [--seconds 12] [--json FILE]

One batch of attempts against a real gateway and a real trainer (`tiny`, two threads at most), in
one process. The sampler is scripted: it sleeps and has no CPU of its own; one group takes ten
times as long as each other. Its evidence is written before the clock starts. Two ways of
working through the same batch alternate: groups are handed to the trainer as they settle, or
all of them after the last one. The step time is read from the run's own events: from
`batch.started` to `update.acknowledged`. Aim: pipelined, it is within 15 % of the slow
group's own time.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, cast

import anyio
import numpy as np
from pydantic import JsonValue

from runtime.compute.tiny import VOCABULARY
from runtime.execution.context import Proxy, RunContext
from runtime.execution.groups import OnSettled, SettledGroup
from runtime.learning.training import run_training
from specs.assessment import Assessment
from specs.dataset import TaskEntry
from specs.events import Event, EventType
from specs.ids import Prefix, new_id
from specs.profile import Profile
from specs.records import Group, Trial, TrialOpen, TrialOutcome, TrialSettled
from specs.run import SamplerRef
from specs.worker_api import GroupOpened, GroupSettled, TrialOpened, TrialSettledWrite
from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live, live
from tests.runtime.learning.support import Recorded, Turn, record, settled_trial

AIM = 1.15
SLOWER = 10
"""How many times longer the slow group takes than each other one."""
PROMPT, OUTPUT = 200, 300
"""Tokens of each attempt."""


class Scripted:
    """Attempts that were written before; `seconds` is what the slow group takes."""

    def __init__(self, live: Live, ctx: RunContext, sizes: tuple[int, int], seconds: float) -> None:
        self._live = live
        self._ctx = ctx
        self._seconds = seconds
        dice = np.random.default_rng(0)
        groups, size = sizes
        self._attempts = [
            [self._attempt(dice, ctx.spec.sampler.id) for _ in range(size)] for _ in range(groups)
        ]

    async def upload(self) -> None:
        """Put the evidence into the store, where the proxy would have put it."""
        for recorded in (one for group in self._attempts for one in group):
            await self._live.stack.worker.upload(recorded.data)

    async def together(
        self,
        ctx: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        size: int,
        /,
        *,
        on_settled: OnSettled,
    ) -> None:
        """Each group is handed on as it settles."""
        places = iter(range(len(tasks)))
        lock = anyio.Lock()

        async def one(index: int, task: TaskEntry) -> None:
            group = await self._open(task, batch, index, size, sampler)
            slow = index == 0
            await anyio.sleep(self._seconds if slow else self._seconds / SLOWER)
            trials = [await self._settle(group, place) for place in range(size)]
            async with lock:
                place = next(places)
                await ctx.write(GroupSettled(group=group.id, place=place))
            settled = group.model_copy(update={"place": place})
            await on_settled(SettledGroup(settled, tuple(trials)))

        async with anyio.create_task_group() as working:
            for index, task in enumerate(tasks):
                working.start_soon(one, index, task)

    async def in_sequence(
        self,
        ctx: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        size: int,
        /,
        *,
        on_settled: OnSettled,
    ) -> None:
        """Nothing is handed on until everything has settled."""
        settled: list[SettledGroup] = []

        async def keep(group: SettledGroup) -> None:
            settled.append(group)

        await self.together(ctx, batch, sampler, tasks, size, on_settled=keep)
        for group in settled:
            await on_settled(group)

    def _attempt(self, dice: np.random.Generator, sampler: str) -> Recorded:
        prompt = dice.integers(VOCABULARY, size=PROMPT).tolist()
        turn = Turn(
            prompt, dice.integers(VOCABULARY, size=OUTPUT).tolist(), logprobs=(), sampler=sampler
        )
        return record([turn], run=self._ctx.run, fence=self._ctx.claim.fence)

    async def _open(
        self, task: TaskEntry, batch: int, index: int, size: int, sampler: SamplerRef
    ) -> Group:
        group = Group(
            id=new_id(Prefix.GROUP),
            batch=batch,
            index=index,
            task=task.name,
            task_digest=task.digest,
            sampler=sampler.id,
            size=size,
        )
        trials = [
            TrialOpened(trial=TrialOpen(id=one.seal.trial, group=group.id, index=place))
            for place, one in enumerate(self._attempts[index])
        ]
        await self._ctx.write(GroupOpened(group=group), *trials)
        return group

    async def _settle(self, group: Group, index: int) -> Trial:
        recorded = self._attempts[group.index][index]
        trial = recorded.seal.trial
        settled = TrialSettled(trial=trial, outcome=TrialOutcome.COMPLETED, seal=recorded.seal)
        assessment = Assessment(
            id=new_id(Prefix.ASSESSMENT), trial=trial, assessor="verifier", reward=index % 2
        )
        await self._ctx.write(TrialSettledWrite(settled=settled, assessment=assessment))
        return settled_trial(self._ctx, group, index, settled, assessment)


async def step(live: Live, sizes: tuple[int, int], seconds: float, *, pipelined: bool) -> Any:
    """Work through one batch; its times in seconds."""
    plan: dict[str, JsonValue] = {
        "num_batches": 1,
        "batch": {"tasks": sizes[0], "trials_per_task": sizes[1]},
        "lora": {"rank": 8},
        "checks": {"max_logprob_difference": 1e6, "max_kl_sample_train": None},
    }  # its log-probs are nobody's, so nothing can be checked against them
    run = await live.start(plan)
    claim = await live.stack.worker.claim(new_id(Prefix.WORKER), 600.0)
    assert claim is not None
    ctx = RunContext(
        home=live.stack.home,
        claim=claim,
        records=await live.stack.worker.records(run),
        profile=cast(Profile, None),
        client=live.stack.worker,
        compute=live.compute,
        proxy=cast(Proxy, None),
    )
    scripted = Scripted(live, ctx, sizes, seconds)
    await scripted.upload()
    groups = scripted.together if pipelined else scripted.in_sequence
    await run_training(ctx, groups=groups)
    await ctx.complete("completed")
    events = (await live.stack.operator.events(run, limit=1000)).events
    (update,) = (await live.stack.operator.updates(run)).items
    begun, ended = _at(events, EventType.BATCH_STARTED), _at(events, EventType.UPDATE_ACKNOWLEDGED)
    slow = _at(events, EventType.GROUP_SETTLED) - _at(events, EventType.GROUP_OPENED)
    return {
        "slow_group": slow,
        "step": ended - begun,
        "ratio": (ended - begun) / slow,
        "training": update.metrics["forward_backward_seconds"],
        "overlapped": update.metrics["overlapped_seconds"],
    }


def _at(events: Sequence[Event], kind: EventType) -> float:
    """When the last event of a kind happened; the slow group is the last one to settle."""
    return [datetime.fromisoformat(e.at).timestamp() for e in events if e.type == kind][-1]


async def measure(rounds: int, sizes: tuple[int, int], seconds: float, folder: Path) -> Any:
    """Both ways in turn, after one round that warms up; medians."""
    home = stage.prepared_home(folder, stage.migrated(folder))
    ways = {"pipelined": True, "in sequence": False}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    async with live(home, folder / "compute") as made:
        await step(made, (2, 2), 0.1, pipelined=True)
        for _ in range(rounds):
            for name, pipelined in ways.items():
                found[name].append(await step(made, sizes, seconds, pipelined=pipelined))
    return {
        name: {key: round(median(row[key] for row in rows), 3) for key in rows[0]}
        for name, rows in found.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("rounds", 3), ("groups", 12), ("size", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        sizes = (options.groups, options.size)
        result = anyio.run(measure, options.rounds, sizes, options.seconds, Path(folder))
    print(f"{options.groups} groups of {options.size}, the slow one {options.seconds:g} s")
    for name, row in result.items():
        told = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in row.items())
        print(f"{name:<14}{told}")
    print(f"step / slow group, pipelined: {result['pipelined']['ratio']:g}   (aim ≤ {AIM})")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
