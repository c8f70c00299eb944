"""A real gateway over a real Unix socket, and the steps that tests of it share."""

import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import sqlalchemy as sa
import uvicorn
from pydantic import JsonValue

from runtime.client import OperatorClient, ProxyClient, WorkerClient
from runtime.exclusive import listen
from runtime.gateway.app import create_app
from runtime.gateway.context import Gateway, Wakeups
from runtime.home import Home
from runtime.storage import schema
from runtime.storage.tables import runs
from specs import canonical
from specs.assessment import Assessment, NoReward
from specs.dataset import Dataset, TaskEntry
from specs.errors import Problem
from specs.ids import Prefix, new_id
from specs.interaction import CallState, Seal
from specs.model import ModelInfo
from specs.operator_api import ModelList
from specs.records import (
    Checkpoint,
    Group,
    TrialOpen,
    TrialOutcome,
    TrialSettled,
    UpdatePrepared,
)
from specs.run import Run, SamplerRef, Submission
from specs.worker_api import (
    BatchStarted,
    Claim,
    Completion,
    GroupOpened,
    SamplerSaved,
    TrialOpened,
    TrialSettledWrite,
    UpdatePreparedWrite,
    Write,
    WriteReply,
    WriteRequest,
)

LEASE = 60.0
DATASET = "acme/practice@v1"
NAMES = ("acme/one", "acme/two", "acme/three")


class _QuietServer(uvicorn.Server):
    """Leaves the signals of the test process alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@dataclass
class Stack:
    """A running gateway and a client for each role."""

    home: Home
    gateway: Gateway
    operator: OperatorClient
    worker: WorkerClient
    proxy: ProxyClient


def prepared_home(folder: Path, template: Path) -> Home:
    """A home whose database is a copy of a migrated one, which is quicker."""
    home = Home.at(folder / "h")
    home.create()
    shutil.copy(template, home.database)
    return home


def migrated(folder: Path) -> Path:
    """A migrated empty database."""
    path = folder / "template.db"
    schema.upgrade(path)
    return path


@asynccontextmanager
async def running(home: Home) -> AsyncGenerator[Stack]:
    """Serve a home in this process."""
    wakeups = Wakeups()
    app = create_app(home, wakeups)
    server = _QuietServer(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
    listener = listen(home.gateway_socket)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [listener])
        while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
            await anyio.sleep(0.01)
        async with (
            OperatorClient.at(home) as operator,
            WorkerClient.at(home, patience=1.0) as worker,
            ProxyClient.at(home, patience=1.0) as proxy,
        ):
            yield Stack(home, app.state.gateway, operator, worker, proxy)
        wakeups.stop()
        server.should_exit = True
    listener.close()


def model(name: str = "tiny", **changes: Any) -> ModelInfo:
    base = ModelInfo(
        name=name,
        backend="torch",
        digest=canonical.digest(name),
        tokenizer_digest=canonical.digest("tokenizer"),
        family="chatml",
        context_tokens=2048,
        stop_tokens=(2,),
        trainable=True,
        parameters=1_000_000,
        present=True,
    )
    return base.model_copy(update=changes)


def profile(**agent: JsonValue) -> dict[str, JsonValue]:
    recipe: dict[str, JsonValue] = {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "args": ["python3", "agent.py"],
        **agent,
    }
    return {"schema": "practicum.profile/v1", "name": "acme/solver", "agent": recipe}


EVALUATION: dict[str, JsonValue] = {"trials_per_task": 2}
TRAINING: dict[str, JsonValue] = {"num_batches": 2, "batch": {"tasks": 1, "trials_per_task": 2}}


def submission(
    plan: dict[str, JsonValue] | None = None, *, dataset: str | None = DATASET, **agent: JsonValue
) -> Submission:
    return Submission(dataset=dataset, actor=profile(**agent), plan=plan or EVALUATION)


async def publish(stack: Stack, reference: str = DATASET, names: tuple[str, ...] = NAMES) -> None:
    """Make the model known and publish a dataset with its packages."""
    await stack.worker.put_models(ModelList(models=[model()]))
    tasks: list[TaskEntry] = []
    for index, name in enumerate(names):
        package = f"package of {name}".encode()
        digest = await stack.operator.upload(package)
        family = "even" if index % 2 == 0 else "odd"
        tasks.append(
            TaskEntry(name=name, digest=digest, size=len(package), metadata={"family": family})
        )
    name, _, version = reference.partition("@")
    await stack.operator.publish_dataset(Dataset(name=name, version=version, tasks=tuple(tasks)))


async def start(stack: Stack, plan: dict[str, JsonValue] | None = None) -> str:
    return (await stack.operator.start(submission(plan))).run


async def expire(stack: Stack, run: str, at: float = 0.0) -> None:
    """Let the lease on a run have run out (Unix seconds), without waiting for it."""
    await stack.gateway.database.write(
        lambda connection: connection.execute(
            sa.update(runs).where(runs.c.id == run).values(lease_until=at)
        )
    )


@dataclass
class Hand:
    """A worker's hand: one claim, its requests numbered."""

    worker: WorkerClient
    claim: Claim
    sequence: int = 0
    last_event: int = 0
    groups: dict[int, Group] = field(default_factory=dict[int, Group])

    @classmethod
    async def take(cls, stack: Stack, *, lease: float = LEASE) -> "Hand":
        claim = await stack.worker.claim(new_id(Prefix.WORKER), lease)
        assert claim is not None
        return cls(stack.worker, claim)

    @property
    def run(self) -> str:
        return self.claim.run

    def request(self, *writes: Write, sequence: int | None = None) -> WriteRequest:
        return WriteRequest(
            claim=self.claim.id,
            fence=self.claim.fence,
            sequence=sequence or self.sequence + 1,
            writes=writes,
        )

    async def write(self, *writes: Write) -> WriteReply:
        reply = await self.worker.write(self.run, self.request(*writes))
        self.sequence += 1
        self.last_event = reply.last_event
        return reply

    async def complete(
        self,
        outcome: Literal["completed", "failed", "cancelled", "blocked", "released"] = "completed",
        reason: Problem | None = None,
    ) -> Run:
        await self.worker.complete(
            self.run,
            Completion(
                claim=self.claim.id,
                fence=self.claim.fence,
                sequence=self.sequence + 1,
                outcome=outcome,
                reason=reason,
                last_event=self.last_event,
            ),
        )
        self.sequence += 1
        return await self.worker.run(self.run)

    async def batch(self, batch: int = 0, sampler: str | None = None) -> None:
        names = tuple(task.name for task in self.claim.spec.tasks)
        await self.write(
            BatchStarted(batch=batch, sampler=sampler or self.claim.spec.sampler.id, tasks=names)
        )

    async def group(
        self, *, batch: int = 0, index: int = 0, size: int = 2, sampler: str | None = None
    ) -> Group:
        task = self.claim.spec.tasks[index]
        group = Group(
            id=new_id(Prefix.GROUP),
            batch=batch,
            index=index,
            task=task.name,
            task_digest=task.digest,
            sampler=sampler or self.claim.spec.sampler.id,
            size=size,
        )
        await self.write(GroupOpened(group=group))
        self.groups[index] = group
        return group

    async def trial(self, group: Group, index: int = 0) -> str:
        trial = new_id(Prefix.TRIAL)
        await self.write(TrialOpened(trial=TrialOpen(id=trial, group=group.id, index=index)))
        return trial

    async def settle(self, trial: str, reward: float | None = 1.0, **changes: Any) -> None:
        await self.write(settled(trial, reward, **changes))


def settled(trial: str, reward: float | None = 1.0, **changes: Any) -> TrialSettledWrite:
    return TrialSettledWrite(
        settled=TrialSettled.model_validate(
            {"trial": trial, "outcome": TrialOutcome.COMPLETED, "exit_code": 0, **changes}
        ),
        assessment=Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reward=reward,
            reason=None if reward is not None else NoReward.VERIFIER_FAILED,
        ),
    )


def seal(run: str, trial: str, fence: int, object: str | None, size: int = 0) -> Seal:
    return Seal(
        trial=trial,
        run=run,
        fence=fence,
        interactions=1 if object else 0,
        states={CallState.ANSWERED: 1} if object else {},
        object=object,
        size=size,
        complete=True,
        prompt_tokens=10,
        output_tokens=5,
    )


def prepared(sampler: str, batch: int = 0, update: str | None = None) -> UpdatePreparedWrite:
    return UpdatePreparedWrite(
        update=UpdatePrepared(
            id=update or new_id(Prefix.UPDATE),
            batch=batch,
            trainer=new_id(Prefix.TRAINER),
            incarnation="process-1",
            from_state=None,
            sampler=sampler,
            loss="importance_sampling",
            learning_rate=1e-4,
        )
    )


def saved_sampler(claim: Claim, adapter: str) -> SamplerSaved:
    base = claim.spec.sampler
    ref = base.model_copy(update={"id": new_id(Prefix.SAMPLER), "adapter": adapter})
    return SamplerSaved(sampler=ref)


def checkpoint(
    claim: Claim, update: str, sampler: SamplerRef, state: str | None, batch: int = 0
) -> Checkpoint:
    assert sampler.adapter is not None
    return Checkpoint(
        id=new_id(Prefix.CHECKPOINT),
        run=claim.run,
        update=update,
        batch=batch,
        sampler=sampler.id,
        base_model=sampler.base_model,
        adapter=sampler.adapter,
        adapter_size=7,
        state=state,
        state_size=5 if state else None,
        lora={"rank": 8, "alpha": 32.0, "seed": 0},
        profile=claim.spec.actor,
        parent=None,
        created_at="2026-01-01T00:00:00.000000Z",
    )
