"""Learning runs against the real gateway and the real compute, in one process: attempts are
sampled from the real model, sealed, uploaded and settled through the real worker protocol."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import JsonValue

from runtime.compute.protocol import Compute, SamplerSpec, SamplingParams
from runtime.compute.router import LocalCompute
from runtime.execution.context import Proxy, RunContext
from runtime.execution.groups import OnSettled, SettledGroup
from runtime.home import Home
from runtime.learning.supervised import run_supervised
from runtime.learning.training import run_training
from specs.assessment import Assessment, NoReward
from specs.dataset import TaskEntry
from specs.ids import Prefix, new_id
from specs.operator_api import ModelList
from specs.plans import EvaluationPlan, SupervisedPlan
from specs.profile import Profile
from specs.records import Group, Trial, TrialOpen, TrialOutcome, TrialSettled
from specs.run import SamplerRef
from specs.worker_api import (
    BatchSettled,
    BatchStarted,
    GroupOpened,
    GroupSettled,
    TrialOpened,
    TrialSettledWrite,
)
from tests.runtime.gateway import stage
from tests.runtime.learning.support import Turn, record, settled_trial

LEASE = 900.0
"""Nobody renews it here, and machines are slow."""

PLAN: dict[str, JsonValue] = {
    "num_batches": 2,
    "batch": {"tasks": 2, "trials_per_task": 3},
    "learning_rate": 0.01,
    "lora": {"rank": 2, "alpha": 8.0, "seed": 3},
}


async def _nothing(settled: SettledGroup) -> None:
    """Nothing learns from it."""


@dataclass
class Live:
    """A gateway, and compute beside it."""

    stack: stage.Stack
    compute: Compute
    prompt: Sequence[int] = (5, 6, 7)
    """What every attempt begins with."""

    async def start(self, plan: dict[str, JsonValue], **options: Any) -> str:
        """Start a run; a supervised one without a dataset."""
        dataset = None if "source" in plan else stage.DATASET
        submission = stage.submission(plan, dataset=dataset, **options)
        return (await self.stack.operator.start(submission)).run

    async def work(self, run: str) -> None:
        """Claim the run, work through it, complete it."""
        claim = await self.stack.worker.claim(new_id(Prefix.WORKER), LEASE)
        assert claim is not None
        assert claim.run == run
        ctx = RunContext(
            home=self.stack.home,
            claim=claim,
            records=await self.stack.worker.records(run),
            profile=cast(Profile, None),
            client=self.stack.worker,
            compute=self.compute,
            proxy=cast(Proxy, None),
        )
        match claim.spec.plan:
            case EvaluationPlan() as plan:
                tasks = claim.spec.tasks
                names = tuple(task.name for task in tasks)
                await ctx.write(BatchStarted(batch=0, sampler=claim.spec.sampler.id, tasks=names))
                await self.attempts(ctx, 0, claim.spec.sampler, tasks, plan.trials_per_task)
                await ctx.write(BatchSettled(batch=0))
            case SupervisedPlan():
                await run_supervised(ctx, self.stack.worker)
            case _:
                await run_training(ctx, groups=self.attempts)
        await ctx.complete("completed")

    async def attempts(
        self,
        ctx: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        size: int,
        *,
        on_settled: OnSettled = _nothing,
    ) -> None:
        """Sampled attempts; the last of each group is left without a reward."""
        for place, task in enumerate(tasks):
            group = Group(
                id=new_id(Prefix.GROUP),
                batch=batch,
                index=place,
                task=task.name,
                task_digest=task.digest,
                sampler=sampler.id,
                size=size,
            )
            await ctx.write(GroupOpened(group=group))
            trials = [
                await self._attempt(ctx, group, sampler, index, scored=index < size - 1)
                for index in range(size)
            ]
            settled = GroupSettled(group=group.id, place=place, census={"trials": size})
            await ctx.write(settled)
            group = group.model_copy(update={"place": place})
            await on_settled(SettledGroup(group, tuple(trials)))

    async def _attempt(
        self, ctx: RunContext, group: Group, sampler: SamplerRef, index: int, *, scored: bool
    ) -> Trial:
        trial = new_id(Prefix.TRIAL)
        await ctx.write(TrialOpened(trial=TrialOpen(id=trial, group=group.id, index=index)))
        seed = 1000 * group.batch + 100 * group.index + index
        first = await self._sample(sampler, [*self.prompt], seed)
        second = await self._sample(sampler, [*self.prompt, *first.output, 9], seed + 50)
        branch = await self._sample(sampler, [8, 8], seed + 70)
        recorded = record(
            [
                Turn([*self.prompt], first.output, logprobs=first.logprobs, sampler=sampler.id),
                Turn([9], second.output, 0, logprobs=second.logprobs, sampler=sampler.id),
                Turn([8, 8], branch.output, logprobs=branch.logprobs, sampler=sampler.id),
            ],
            trial=trial,
            run=ctx.run,
            fence=ctx.claim.fence,
        )
        await self.stack.worker.upload(recorded.data)
        settled = TrialSettled(trial=trial, outcome=TrialOutcome.COMPLETED, seal=recorded.seal)
        assessment = Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reward=sum(t % 97 for t in first.output) / 97 if scored else None,
            reason=None if scored else NoReward.VERIFIER_FAILED,
        )
        await ctx.write(TrialSettledWrite(settled=settled, assessment=assessment))
        return settled_trial(ctx, group, index, settled, assessment)

    async def _sample(self, sampler: SamplerRef, prompt: list[int], seed: int) -> Turn:
        (sampled,) = await self.compute.sample(
            SamplerSpec(sampler.base_model, sampler.adapter),
            np.array(prompt, np.int32),
            SamplingParams(max_tokens=4, stop=(), seed=seed),
        )
        assert sampled.logprobs is not None
        return Turn([], sampled.tokens.tolist(), logprobs=sampled.logprobs.tolist())


@asynccontextmanager
async def live(home: Home, folder: Path) -> AsyncGenerator[Live]:
    """A running gateway with a published dataset, and compute that keeps files in `folder`."""
    async with stage.running(home) as stack, LocalCompute(folder) as compute:
        await stage.publish(stack)
        info = await compute.model("tiny")
        await stack.worker.put_models(ModelList(models=[info]))
        yield Live(stack, compute)
