"""A learning run in one process: the real driver and the real compute, with a gateway that
keeps records in memory by the rules of the real one, and attempts sampled from the real model.

`Crashing` stands between the driver and both, and lets the worker die at its k-th call.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio
import numpy as np

from runtime.compute.protocol import Compute, SamplerSpec, SamplingParams
from runtime.compute.router import LocalCompute
from runtime.execution.context import Proxy, RunContext
from runtime.execution.groups import OnSettled, SettledGroup
from runtime.home import Home
from runtime.learning.training import run_training
from specs.canonical import digest_bytes
from specs.dataset import TaskEntry
from specs.errors import Conflict
from specs.grant import GrantRequest, GrantToken
from specs.ids import Prefix, new_id
from specs.model import LoraSpec
from specs.operator_api import TrialPage
from specs.plans import BatchShape, SupervisedPlan, TrainingPlan
from specs.profile import Profile
from specs.records import (
    Batch,
    Checkpoint,
    Group,
    Trial,
    Update,
    UpdateState,
)
from specs.run import RunSpec, SamplerRef
from specs.worker_api import (
    BatchSettled,
    BatchStarted,
    CheckpointSaved,
    Claim,
    Completion,
    GroupJudged,
    HeartbeatReply,
    LogWritten,
    RunRecords,
    SamplerSaved,
    TrialToken,
    TrialTokenRequest,
    UpdateAccumulated,
    UpdateAcknowledged,
    UpdateContributed,
    UpdateEnded,
    UpdatePreparedWrite,
    UpdateSkipped,
    UpdateUnresolved,
    Write,
    WriteReply,
    WriteRequest,
)
from tests.runtime.learning.support import AT, Turn, record, trial_of

MODEL = "tiny"
LORA = LoraSpec(rank=2, alpha=8.0, seed=3)
_BEFORE = {
    UpdateState.UNRESOLVED: (UpdateState.PREPARED,),
    UpdateState.ACKNOWLEDGED: (UpdateState.UNRESOLVED,),
    UpdateState.FAILED: (UpdateState.PREPARED, UpdateState.UNRESOLVED),
    UpdateState.VOID: (UpdateState.PREPARED, UpdateState.UNRESOLVED),
}


class Killed(Exception):
    """The worker process is gone; nothing of it runs any more."""


@dataclass
class Records:
    """What a gateway keeps of one run, and its object store."""

    batches: dict[int, Batch] = field(default_factory=dict[int, Batch])
    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    attempts: dict[str, Trial] = field(default_factory=dict[str, Trial])
    samplers: dict[str, SamplerRef] = field(default_factory=dict[str, SamplerRef])
    updates: dict[str, Update] = field(default_factory=dict[str, Update])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    log: list[str] = field(default_factory=list[str])
    written: list[str] = field(default_factory=list[str])

    async def write(self, run: str, request: WriteRequest) -> WriteReply:
        for write in request.writes:
            self._apply(write)
            self.written.append(write.type)
        return WriteReply(last_event=len(self.written))

    async def heartbeat(self, claim: Claim) -> HeartbeatReply:
        return HeartbeatReply(cancelling=False)

    async def complete(self, run: str, completion: Completion) -> None:
        raise AssertionError("a claim is completed by the worker, not by a driver")

    async def token(self, run: str, trial: str, request: TrialTokenRequest) -> TrialToken:
        raise AssertionError("no trial of the bench has a credential")

    async def grant(self, run: str, trial: str, request: GrantRequest) -> GrantToken:
        raise AssertionError("no trial of the bench has a credential")

    async def records(self, run: str) -> RunRecords:
        return self.now()

    async def upload(self, data: bytes) -> str:
        digest = digest_bytes(data)
        self.objects[digest] = data
        return digest

    async def object(self, digest: str) -> bytes:
        return self.objects[digest]

    async def checkpoint(self, checkpoint: str) -> Checkpoint:
        return next(item for item in self.checkpoints if item.id == checkpoint)

    async def trials(
        self,
        run: str,
        *,
        group: str | None = None,
        counted: bool | None = None,
        cursor: str | None = None,
    ) -> TrialPage:
        mine = [trial for trial in self.attempts.values() if trial.group == group]
        return TrialPage(items=sorted(mine, key=lambda trial: trial.index))

    def settle(self, group: Group) -> SettledGroup:
        """Settle a group after those of its batch that have."""
        known = self.groups.get(group.id, group)
        if known.place is None:
            mine = [g for g in self.groups.values() if g.batch == group.batch]
            place = sum(g.place is not None for g in mine)
            known = group.model_copy(update={"place": place})
            self.groups[group.id] = known
        mine = [trial for trial in self.attempts.values() if trial.group == group.id]
        return SettledGroup(known, tuple(sorted(mine, key=lambda trial: trial.index)))

    def now(self) -> RunRecords:
        return RunRecords(
            batches=list(self.batches.values()),
            groups=list(self.groups.values()),
            trials=list(self.attempts.values()),
            samplers=list(self.samplers.values()),
            updates=list(self.updates.values()),
            checkpoints=list(self.checkpoints),
        )

    def states(self) -> list[tuple[int, UpdateState]]:
        """Batch and state of every update that stands."""
        return [
            (u.batch, u.state) for u in self.updates.values() if u.state is not UpdateState.VOID
        ]

    def _apply(self, write: Write) -> None:
        match write:
            case BatchStarted():
                _refuse(write.batch in self.batches)
                _refuse(write.sampler not in self.samplers)
                self.batches[write.batch] = Batch(
                    batch=write.batch, sampler=write.sampler, tasks=write.tasks, settled=False
                )
            case BatchSettled():
                batch = self.batches[write.batch]
                _refuse(batch.settled)
                mine = [g for g in self.groups.values() if g.batch == write.batch]
                _refuse(not all(group.judged for group in mine))
                self.batches[write.batch] = batch.model_copy(update={"settled": True})
            case GroupJudged():
                group = self.groups[write.group]
                _refuse(group.judged or group.place is None)
                self.groups[write.group] = group.model_copy(update={"judged": True})
                for verdict in write.verdicts:
                    self.attempts[verdict.trial] = self.attempts[verdict.trial].model_copy(
                        update={
                            "eligible": verdict.eligible,
                            "ineligible_reason": verdict.reason,
                            "advantage": verdict.advantage,
                        }
                    )
            case SamplerSaved():
                _refuse(write.sampler.adapter not in self.objects)
                self.samplers[write.sampler.id] = write.sampler
            case CheckpointSaved():
                update = self.updates[write.checkpoint.update]
                _refuse(update.state is not UpdateState.ACKNOWLEDGED)
                self.checkpoints.append(write.checkpoint)
            case LogWritten():
                self.log.append(write.piece.text)
            case _:
                self._apply_update(write)

    def _apply_update(self, write: Write) -> None:
        match write:
            case UpdatePreparedWrite():
                self._refuse_standing(write.update.batch)
                self.updates[write.update.id] = Update(
                    run="run_" + "0" * 32,
                    state=UpdateState.PREPARED,
                    at=AT,
                    **write.update.model_dump(),
                )
            case UpdateContributed():
                update = self.updates[write.update]
                _refuse(update.state is not UpdateState.PREPARED)
                made_of = (*update.contributions, *write.contributions)
                self.updates[write.update] = update.model_copy(update={"contributions": made_of})
            case UpdateAccumulated():
                _refuse(self.updates[write.update].state is not UpdateState.PREPARED)
            case UpdateUnresolved():
                self._enter(
                    write.update,
                    UpdateState.UNRESOLVED,
                    metrics=write.metrics,
                    census=write.census,
                )
            case UpdateAcknowledged():
                _refuse(write.sampler_after not in self.samplers)
                _refuse(write.state_digest not in self.objects)
                self._enter(
                    write.update,
                    UpdateState.ACKNOWLEDGED,
                    metrics=write.metrics,
                    state_digest=write.state_digest,
                    sampler_after=write.sampler_after,
                )
            case UpdateEnded():
                state = UpdateState(write.type.removeprefix("update."))
                known = self.updates[write.update].metrics
                metrics = {**known, **write.metrics}
                self._enter(write.update, state, reason=write.reason, metrics=metrics)
            case UpdateSkipped():
                self._refuse_standing(write.batch)
                self.updates[write.update] = Update(
                    id=write.update,
                    run="run_" + "0" * 32,
                    batch=write.batch,
                    state=UpdateState.SKIPPED,
                    trainer=None,
                    incarnation=None,
                    from_state=None,
                    sampler=write.sampler,
                    loss=None,
                    learning_rate=None,
                    census=write.census,
                    metrics=write.metrics,
                    reason=write.reason,
                    at=AT,
                )
            case _:
                raise AssertionError(f"no driver writes {write.type}")

    def _enter(self, update: str, state: UpdateState, **values: Any) -> None:
        row = self.updates[update]
        _refuse(row.state not in _BEFORE[state])
        self.updates[update] = row.model_copy(update={"state": state, **values})

    def _refuse_standing(self, batch: int) -> None:
        for update in self.updates.values():
            undecided = update.state in (UpdateState.PREPARED, UpdateState.UNRESOLVED)
            over = update.state in (UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED)
            _refuse(undecided or (over and update.batch == batch))


def _refuse(condition: bool) -> None:
    if condition:
        raise Conflict("The gateway refuses this write.")


class Crashing:
    """Passes every call on to `target`, and kills the worker at call number `at`: before the
    call reaches the target, or after it has taken effect."""

    def __init__(self, target: Any, fate: "Fate") -> None:
        self._target = target
        self._fate = fate

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._target, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._fate.before(name)
            result = await method(*args, **options)
            self._fate.after(name)
            return result

        return call


@dataclass
class Fate:
    """When the worker dies: never where `at` is None."""

    at: int | None = None
    when: Literal["before", "after"] = "before"
    calls: list[str] = field(default_factory=list[str])
    dead: bool = False

    def before(self, name: str) -> None:
        if self.dead:
            raise Killed
        self.calls.append(name)
        self._die("before")

    def after(self, name: str) -> None:
        self._die("after")

    def _die(self, when: str) -> None:
        if self.when == when and self.at is not None and len(self.calls) == self.at + 1:
            self.dead = True
            raise Killed(self.calls[-1])


@dataclass
class Bench:
    """One run over its claims."""

    folder: Any
    spec: RunSpec
    records: Records
    compute: LocalCompute
    fence: int = 0
    attempts: int = 0
    order: Sequence[int] | None = None
    """In which groups are sampled; None = as they are numbered."""
    skew: float = 0.0
    """Added to each recorded log-prob: what the sampler claims is not what it drew from."""
    reward: float | None = None
    """The reward of every attempt, instead of what its tokens make."""
    _sampling: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by an attempt, and by a restart of compute: attempts do not see it."""

    async def claim(self, fate: Fate | None = None, **options: Any) -> RunContext:
        """A context for the next claim of the run."""
        self.fence += 1
        fate = fate or Fate()
        claim = Claim(
            id=new_id(Prefix.CLAIM),
            run=self.spec.id,
            fence=self.fence,
            lease_sec=60.0,
            spec=self.spec,
            cancelling=False,
        )
        return RunContext(
            home=Home.at(self.folder),
            claim=claim,
            records=self.records.now(),
            profile=cast(Profile, None),
            client=cast(Any, Crashing(self.records, fate)),
            compute=cast(Compute, Crashing(self.compute, fate)),
            proxy=cast(Proxy, None),
            **options,
        )

    async def restart_compute(self) -> None:
        """Kill compute: trainers and gradients are gone, files stay."""
        async with self._sampling:
            await self.compute.aclose()
            self.compute = LocalCompute(self.folder, threads=1)

    async def train(self, ctx: RunContext, patience: float = 0.2) -> None:
        """Drive a training run."""
        await run_training(ctx, groups=self.run_groups, patience=patience)

    async def run_groups(
        self,
        ctx: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        size: int,
        *,
        on_settled: OnSettled,
    ) -> None:
        """Attempts at each task, sampled from `sampler` with seeds of their own; what is
        recorded is kept. The reward is a number that its tokens make. Groups settle in `order`."""
        ctx.check()
        known = {g.index: g for g in self.records.groups.values() if g.batch == batch}
        for place in self.order or range(len(tasks)):
            task = tasks[place]
            group = known.get(place) or Group(
                id=new_id(Prefix.GROUP),
                batch=batch,
                index=place,
                task=task.name,
                task_digest=task.digest,
                sampler=sampler.id,
                size=size,
            )
            self.records.groups[group.id] = group
            done = {t.index for t in self.records.attempts.values() if t.group == group.id}
            for index in sorted(set(range(size)) - done):
                trial = await self._attempt(group, sampler, index)
                self.records.attempts[trial.id] = trial
            await on_settled(self.records.settle(group))

    async def _attempt(self, group: Group, sampler: SamplerRef, index: int) -> Trial:
        seed = 1000 * group.batch + 100 * group.index + index
        prompt = [5, 6, 7 + group.index]
        first = await self._sample(sampler, prompt, seed)
        second = await self._sample(sampler, [*prompt, *first.output, 9], seed + 50)
        turns = [
            Turn(prompt, first.output, logprobs=first.logprobs, sampler=sampler.id),
            Turn([9], second.output, extends=0, logprobs=second.logprobs, sampler=sampler.id),
        ]
        recorded = record(turns, run=self.spec.id, fence=self.fence)
        self.records.objects[digest_bytes(recorded.data)] = recorded.data
        self.attempts += 1
        return trial_of(
            recorded,
            reward=self.reward
            if self.reward is not None
            else sum(token % 97 for token in (*first.output, *second.output)) / 97,
            group=group.id,
            batch=group.batch,
            index=index,
            task=group.task,
            sampler=sampler.id,
        )

    async def _sample(self, sampler: SamplerRef, prompt: list[int], seed: int) -> Turn:
        async with self._sampling:
            (sampled,) = await self.compute.sample(
                SamplerSpec(sampler.base_model, sampler.adapter),
                np.array(prompt, np.int32),
                SamplingParams(max_tokens=4, stop=(), seed=seed),
            )
        assert sampled.logprobs is not None
        claimed = sampled.logprobs + np.float32(self.skew)
        return Turn([], sampled.tokens.tolist(), logprobs=claimed.tolist())


async def training_bench(
    folder: Any, *, batches: int = 2, learning_rate: float = 0.01, **plan: Any
) -> Bench:
    """A fresh training run of `tiny`: per batch two tasks with two attempts each."""
    values: dict[str, Any] = {
        "num_batches": batches,
        "batch": BatchShape(tasks=2, trials_per_task=2),
        "learning_rate": learning_rate,
        "lora": LORA,
        **plan,
    }
    return await _bench(folder, TrainingPlan(**values))


async def _bench(folder: Any, plan: TrainingPlan | SupervisedPlan) -> Bench:
    compute = LocalCompute(folder, threads=1)
    info = await compute.model(MODEL)
    sampler = SamplerRef(
        id=new_id(Prefix.SAMPLER),
        backend="torch",
        base_model=MODEL,
        base_digest=info.digest,
        tokenizer_digest=info.tokenizer_digest,
        renderer="chatml/1",
    )
    digest = digest_bytes(b"")
    spec = RunSpec(
        id=new_id(Prefix.RUN),
        dataset=None,
        dataset_digest=None,
        tasks=tuple(TaskEntry(name=f"acme/{n}", digest=digest, size=1) for n in "abc"),
        actor_name="acme/actor",
        actor=digest,
        plan=plan,
        plan_digest=digest,
        sampler=sampler,
        reference=sampler if isinstance(plan, TrainingPlan) and plan.kl else None,
    )
    records = Records(samplers={sampler.id: sampler})
    return Bench(folder, spec, records, compute)
