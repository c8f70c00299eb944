"""A worker that replays a recorded training run, and may be killed at a chosen point.

    python -m tests.runtime.learning.replay '{"home": …, "run": …, "recording": …}'

Groups settle in the order in which the recording's did, with its tokens, log-probs and rewards;
only ids are new. `death` names a call to compute or a write to the gateway, whether to die
before, inside or after its n-th time, and who dies: this process, compute, or both, by SIGKILL.
The last line of output says how the claim ended and which calls were made.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import anyio

from runtime.client import WorkerClient
from runtime.compute.client import HttpCompute
from runtime.compute.protocol import Compute
from runtime.execution.context import Blocked, Gateway, Proxy, RunContext
from runtime.execution.groups import OnSettled, SettledGroup, gravest
from runtime.home import Home
from runtime.learning.training import run_training
from specs import evidence
from specs.base import Contract
from specs.dataset import TaskEntry
from specs.errors import Unavailable
from specs.ids import Prefix, new_id
from specs.interaction import Intent, Interaction
from specs.profile import Profile
from specs.records import Group, Trial, TrialOpen, TrialOutcome, TrialSettled
from specs.run import SamplerRef
from specs.worker_api import (
    GroupOpened,
    GroupSettled,
    TrialOpened,
    TrialSettledWrite,
    Write,
)
from tests.runtime.learning.support import seal_of, settled_trial

LEASE_SEC = 900.0


class Death(Contract):
    """Where a claim ends: at the call of that name, for the `nth` time (from 0)."""

    call: str
    nth: int
    when: Literal["before", "inside", "after"]
    who: Literal["worker", "compute", "both"]
    delay: float = 0.0
    """Seconds into the call, for `inside`."""


class Order(Contract):
    """What the process is told."""

    home: Path
    run: str
    recording: str
    compute_pid: int
    patience: float
    death: Death | None = None


@dataclass
class Recording:
    """The groups of a recorded run, in the order in which they settled."""

    client: WorkerClient
    run: str
    groups: list[Group] = field(default_factory=list[Group])

    async def read(self) -> None:
        """Read the groups; small enough for a page."""
        self.groups = (await self.client.groups(self.run, limit=100)).items

    async def run_groups(
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
        """What is left of a batch, as it was recorded."""
        recorded = sorted(
            (group for group in self.groups if group.batch == batch), key=lambda g: g.place or 0
        )
        for place, old in enumerate(recorded):
            await on_settled(await self._group(ctx, old, place, sampler, tasks[old.index]))

    async def _group(
        self, ctx: RunContext, old: Group, place: int, sampler: SamplerRef, task: TaskEntry
    ) -> SettledGroup:
        known = [g for g in ctx.records.groups if (g.batch, g.index) == (old.batch, old.index)]
        group = known[0] if known else None
        if group is None:
            changes = {"id": new_id(Prefix.GROUP), "sampler": sampler.id, "place": None}
            group = old.model_copy(update={**changes, "judged": False})
            await ctx.write(GroupOpened(group=group))
        assert group.task == task.name
        counted = {t.index: t for t in ctx.records.trials if t.group == group.id and t.counted}
        settled = GroupSettled(group=group.id, place=place)
        page = await self.client.trials(self.run, group=old.id, counted=True)
        for trial in page.items:
            if trial.index not in counted:
                last = len(counted) == group.size - 1
                made = await self._trial(ctx, trial, group, [settled] if last else [])
                counted[trial.index] = made
        group = group.model_copy(update={"place": place})
        return SettledGroup(group, tuple(counted[index] for index in range(group.size)))

    async def _trial(
        self, ctx: RunContext, old: Trial, group: Group, more: Sequence[Write]
    ) -> Trial:
        name = new_id(Prefix.TRIAL)
        await ctx.write(TrialOpened(trial=TrialOpen(id=name, group=group.id, index=old.index)))
        assert old.settled is not None
        assert old.settled.seal is not None
        assert old.settled.seal.object is not None
        assert old.assessment is not None
        data = renamed(
            await self.client.object(old.settled.seal.object),
            {"trial": name, "fence": ctx.claim.fence, "sampler": group.sampler},
        )
        calls: tuple[Interaction, ...] = tuple(evidence.interactions(data))
        await self.client.upload(data)
        settled = TrialSettled(
            trial=name,
            outcome=TrialOutcome.COMPLETED,
            seal=seal_of(name, ctx.run, ctx.claim.fence, data, calls),
        )
        changes = {"id": new_id(Prefix.ASSESSMENT), "trial": name}
        assessment = old.assessment.model_copy(update=changes)
        await ctx.write(TrialSettledWrite(settled=settled, assessment=assessment), *more)
        return settled_trial(ctx, group, old.index, settled, assessment)


def renamed(data: bytes, changes: dict[str, Any]) -> bytes:
    """A segment with other ids in its intents, and every token as it was."""
    parts: list[bytes] = []
    for frame, _ in evidence.frames(data):
        record = frame.record
        if isinstance(record, Intent):
            record = record.model_copy(update=changes)
        parts.append(evidence.encode(record, frame.arrays))
    return b"".join(parts)


@dataclass
class Reaper:
    """Kills at the call that the order names."""

    order: Order
    calls: list[str] = field(default_factory=list[str])

    def wrap(self, target: Any) -> "Mortal":
        return Mortal(target, self)

    def due(self, name: str, when: str) -> bool:
        """Whether this is the place; `name` is that of the newest call."""
        death = self.order.death
        if death is None or death.when != when or not matches(death.call, name):
            return False
        return sum(matches(death.call, call) for call in self.calls) == death.nth + 1

    def strike(self) -> None:
        """Kill whom the order names; returns only where that is compute alone."""
        death = self.order.death
        assert death is not None
        if death.who in ("compute", "both"):
            os.kill(self.order.compute_pid, signal.SIGKILL)
        if death.who in ("worker", "both"):
            os.kill(os.getpid(), signal.SIGKILL)


class Mortal:
    """Passes calls on, and counts those that change something."""

    def __init__(self, target: Any, reaper: Reaper) -> None:
        self._target = target
        self._reaper = reaper

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._target, name)
        if name in ("object", "trials", "records", "heartbeat", "health", "find_state"):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            reaper, named = self._reaper, _named(name, args)
            reaper.calls.append(named)
            inside, after = reaper.due(named, "inside"), reaper.due(named, "after")
            if reaper.due(named, "before"):
                reaper.strike()
            elif inside:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._strike_later)
                    return await method(*args, **options)
            result = await method(*args, **options)
            if after:
                reaper.strike()
            return result

        return call

    async def _strike_later(self) -> None:
        death = self._reaper.order.death
        assert death is not None
        await anyio.sleep(death.delay)
        self._reaper.strike()


def matches(wanted: str, call: str) -> bool:
    """Whether a call is, or is a request that has, what is wanted."""
    return wanted in call.split("+")


def _named(name: str, args: Sequence[Any]) -> str:
    """A call's name; a write is named by what it writes."""
    if name != "write":
        return name
    return "+".join(write.type for write in args[1].writes if write.type != "log.written")


async def replay(order: Order) -> dict[str, Any]:
    """Claim the run and work through it: how the claim ended, and the calls."""
    home = Home.at(order.home)
    reaper = Reaper(order)
    async with WorkerClient.at(home) as client, HttpCompute(home.compute_socket) as compute:
        claim = await client.claim(new_id(Prefix.WORKER), LEASE_SEC)
        assert claim is not None
        assert claim.run == order.run
        recording = Recording(client, order.recording)
        await recording.read()
        ctx = RunContext(
            home=home,
            claim=claim,
            records=await client.records(claim.run),
            profile=cast(Profile, None),
            client=cast(Gateway, reaper.wrap(client)),
            compute=cast(Compute, reaper.wrap(compute)),
            proxy=cast(Proxy, None),
        )
        try:
            await run_training(ctx, groups=recording.run_groups, patience=order.patience)
            outcome = "completed"
            await ctx.complete("completed")
        except Blocked as error:
            outcome = "blocked"
            await ctx.complete("blocked", error.problem)
        except Unavailable:
            outcome = "released"
            await ctx.complete("released")
        except BaseExceptionGroup as error:
            raise gravest(error) from error
    return {"outcome": outcome, "calls": reaper.calls}


def choose(calls: Sequence[str], seed: int) -> list[Death]:
    """Twenty deaths: those that invariant 8 is about, and others anywhere."""
    dice = random.Random(seed)

    def at(name: str, when: Literal["before", "inside", "after"]) -> Death:
        times = sum(matches(name, call) for call in calls)
        who = dice.choice(("worker", "compute", "both"))
        nth = dice.randrange(times)
        return Death(call=name, nth=nth, when=when, who=who, delay=dice.random() * 0.03)

    chosen = [
        *(at("forward", "inside") for _ in range(4)),
        at("update.contributed", "after"),
        at("update.accumulated", "before"),
        at("update.unresolved", "before"),
        at("update.unresolved", "after"),
        at("optim_step", "inside"),
        at("optim_step", "after"),
        at("save_state", "inside"),
        at("save_state", "after"),
        at("save_adapter", "inside"),
        at("update.acknowledged", "before"),
        at("update.acknowledged", "after"),
    ]
    while len(chosen) < 20:
        name = dice.choice(calls).split("+")[0]
        chosen.append(at(name, dice.choice(("before", "after"))))
    return chosen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(replay, Order.model_validate_json(sys.argv[1]))))
