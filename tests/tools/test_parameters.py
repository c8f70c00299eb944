"""No parameter is dropped on its way: whatever a training plan says, set at the command line or
over MCP, stands in the call that uses it, and the update keeps it.

The list of fields is the contract's own: a field that is new has no value in `PLAN` and no place
in `CARRIED` or `DERIVED`, and these tests fail until somebody says where it goes. What a call
carries is read off the real compute protocol behind its HTTP carrier; what a rule does to the
advantages, by changing that rule alone.
"""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import jwt
import numpy as np
import pytest
import sqlalchemy as sa
from mcp import Client

from mcp_server.server import build_server
from runtime.compute.router import LocalCompute
from runtime.execution import delegation, harbor
from runtime.execution.board import Board
from runtime.execution.context import RunContext
from runtime.execution.groups import SettledGroup, run_groups
from runtime.execution.tasks import TaskCache
from runtime.execution.workplace import EnvironmentSpec, Workplace
from runtime.storage.tables import grants
from specs.errors import NotFound, PracticumError
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.operator_api import Published
from specs.plans import Resources, TrainingPlan
from specs.profile import Binding, Profile
from specs.records import Checkpoint, Group, Trial, Update
from specs.run import Run
from specs.worker_api import BatchStarted, TrialClaims, Usage
from tests.e2e.support import write_tasks
from tests.runtime.compute.recording import Call, Recording
from tests.runtime.gateway import stage
from tests.tools.ground import ask, ground
from tests.tools.parameters import PLAN, Varied, changed, fields, leaves
from tools.cli import main

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]
FIELDS = dict(fields(TrainingPlan))
ONE_VALUE = {"/kind", "/optimizer/name"}
"""Fields whose contract knows one value alone."""


@dataclass
class Launch:
    """What a trial was launched with."""

    claims: TrialClaims
    environment: EnvironmentSpec
    deadlines: harbor.Deadlines
    agent_sec: float


@dataclass
class Seen:
    """One run, from every side."""

    calls: list[Call]
    run: Run
    usage: Usage
    update: Update
    groups: list[Group]
    trials: list[Trial]
    checkpoint: Checkpoint
    reference: Checkpoint
    launches: list[Launch] = field(default_factory=list[Launch])
    at_once: int = 0
    granted: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the agent of a trial may ask of the gateway, as its grant's record says."""

    def one(self, method: str) -> Call:
        """The first call of a method; of `forward` the first that takes a gradient."""
        calls = [call for call in self.calls if call.method == method]
        return next(call for call in calls if call.arguments.get("backward", True))

    @property
    def launch(self) -> Launch:
        return self.launches[0]


def _adam(name: str) -> Callable[[Seen], object]:
    return lambda seen: getattr(seen.one("optim_step")["params"], name)


def _lora(name: str) -> Callable[[Seen], object]:
    return lambda seen: getattr(seen.one("create_trainer")["init"].lora, name)


def _deadline(name: str) -> Callable[[Seen], object]:
    return lambda seen: getattr(seen.launch.deadlines, name)


def _granted(name: str) -> Callable[[Seen], object]:
    return lambda seen: seen.granted[name]


def _budget(scope: str, name: str) -> Callable[[Seen], object]:
    return lambda seen: getattr(getattr(seen.usage.limits, scope), name)


def _initialised(seen: Seen) -> str:
    state = seen.one("create_trainer")["init"].state
    return "resume" if state == f"{seen.run.id}.{seen.reference.id}" else "fresh"


def _reference(seen: Seen) -> str | None:
    adapters = {call["sampler"].adapter for call in seen.calls if call.method == "logprobs"}
    return seen.reference.id if adapters == {seen.reference.adapter} else None


def _optimizer(seen: Seen) -> str | None:
    context = seen.checkpoint.context
    return context and context.optimizer.name


def _kept_for(seen: Seen) -> float:
    until = datetime.fromisoformat(seen.checkpoint.state_expires_at or "")
    return (until - datetime.fromisoformat(seen.checkpoint.created_at)).total_seconds()


CARRIED: dict[str, Callable[[Seen], object]] = {
    "/kind": lambda seen: seen.run.kind,
    "/num_batches": lambda seen: sum(call.method == "optim_step" for call in seen.calls),
    "/batch/tasks": lambda seen: sum(group.batch == 0 for group in seen.groups),
    "/batch/trials_per_task": lambda seen: sum(
        trial.group == seen.groups[0].id for trial in seen.trials
    ),
    "/optimizer_initialization": _initialised,
    "/loss": lambda seen: seen.one("forward")["loss"],
    "/clip/low": lambda seen: seen.one("forward")["config"].clip_low_threshold,
    "/clip/high": lambda seen: seen.one("forward")["config"].clip_high_threshold,
    "/learning_rate": _adam("learning_rate"),
    "/grad_clip_norm": _adam("grad_clip_norm"),
    "/optimizer/name": _optimizer,
    "/optimizer/beta1": _adam("beta1"),
    "/optimizer/beta2": _adam("beta2"),
    "/optimizer/eps": _adam("eps"),
    "/optimizer/weight_decay": _adam("weight_decay"),
    "/lora/rank": _lora("rank"),
    "/lora/alpha": _lora("alpha"),
    "/lora/seed": _lora("seed"),
    "/checkpoints/state_ttl_sec": _kept_for,
    "/kl/reference": _reference,
    "/limits/max_calls": lambda seen: seen.launch.claims.max_calls,
    "/limits/max_output_tokens": lambda seen: seen.launch.claims.max_output_tokens,
    "/limits/update/max_tokens": _budget("update", "max_tokens"),
    "/limits/update/max_sec": _budget("update", "max_sec"),
    "/limits/run/max_tokens": _budget("run", "max_tokens"),
    "/limits/run/max_sec": _budget("run", "max_sec"),
    "/resources/concurrency": lambda seen: seen.at_once,
    "/resources/cpus": lambda seen: seen.launch.environment.cpus,
    "/resources/memory_mb": lambda seen: seen.launch.environment.memory_mb,
    "/timeouts/setup_sec": _deadline("setup"),
    "/timeouts/agent_sec": lambda seen: seen.launch.agent_sec,
    "/timeouts/verifier_sec": _deadline("verifier"),
    "/timeouts/trial_sec": _deadline("trial"),
    "/gateway/scopes": _granted("scopes"),
    "/gateway/max_runs": _granted("max_runs"),
    "/gateway/max_slots": _granted("max_slots"),
    "/gateway/max_updates": _granted("max_updates"),
    "/gateway/models": _granted("models"),
    "/gateway/datasets": _granted("datasets"),
}
"""Where the value itself stands."""


@dataclass(frozen=True)
class Effect:
    """What became of one batch on the base model's own samples."""

    tasks: list[str]
    advantages: list[float]
    """Of every token of every sequence, in the order of submission."""
    ineligible: dict[int, str]
    """Reasons by place in the group."""
    stopped: str | None


def _moved(before: Effect, after: Effect) -> bool:
    return before.advantages != after.advantages


def _silent(before: Effect, after: Effect) -> bool:
    """Fewer tokens are learnt from."""
    return bool(np.count_nonzero(after.advantages) < np.count_nonzero(before.advantages))


def _scaled(before: Effect, after: Effect) -> bool:
    """One group: dividing by its spread is one factor for all tokens."""
    one, other = np.array(before.advantages), np.array(after.advantages)
    ratios = other[one != 0] / one[one != 0]
    return bool(np.allclose(ratios, ratios[0], rtol=1e-4) and not np.isclose(ratios[0], 1))


def _reason(index: int, name: str) -> Callable[[Effect, Effect], bool]:
    return lambda before, after: (
        not before.ineligible
        and set(after.ineligible) == {index}
        and after.ineligible[index].startswith(name)
    )


def _stopped(before: Effect, after: Effect) -> bool:
    return before.stopped is None and after.stopped is not None


KL: dict[str, Any] = {"kl": {"coefficient": 0.1}}
DERIVED: dict[str, tuple[Any, dict[str, Any], Callable[[Effect, Effect], bool]]] = {
    "/order": ("shuffled", {}, lambda before, after: before.tasks != after.tasks),
    "/seed": (5, {"order": "shuffled"}, lambda before, after: before.tasks != after.tasks),
    "/advantages/normalise": ("std", {}, _scaled),
    "/advantages/per_token": ("length", {}, _moved),
    "/credit/discount": (0.5, {}, _moved),
    "/credit/delegated": ("exclude", {}, _silent),
    "/credit/helpers": ("exclude", {}, _silent),
    "/kl/coefficient": (0.2, KL, _moved),
    "/kl/discount": (0.9, KL, _moved),
    "/eligibility/agent_failed": ("exclude", {}, _reason(2, "agent_failed")),
    "/eligibility/agent_timeout": ("exclude", {}, _reason(3, "agent_timeout")),
    "/eligibility/missing_output": ("exclude", {}, _reason(4, "missing_output")),
    "/eligibility/parse_error": ("exclude", {}, _reason(5, "parse_error")),
    "/eligibility/overlong": ("exclude", {}, _reason(6, "overlong")),
    "/checks/max_logprob_difference": (1e-12, {}, _stopped),
    "/checks/max_kl_sample_train": (1e-30, {}, _stopped),
}
"""By field: another value, what else the plan says, and how its effect differs."""
BASE: dict[str, Any] = {
    "num_batches": 1,
    "batch": {"tasks": 1, "trials_per_task": 7},
    "order": "dataset",
    "learning_rate": 0.01,
    "lora": PLAN["lora"],
    "credit": {"helpers": "train"},
    "eligibility": {"missing_output": "keep"},
}


@dataclass
class Bench:
    """A gateway, a recorded compute, and both ways in."""

    live: Varied
    recording: Recording
    folder: Path

    async def start(self, route: str, plan: dict[str, Any], **options: Any) -> str:
        """Start a run at the command line or over MCP; its id."""
        dataset = options.pop("dataset", stage.DATASET)
        actor, home = stage.profile(**options), self.live.stack.home
        if route == "mcp":
            async with Client(build_server(home)) as client:
                values = {"dataset": dataset, "actor": actor, "plan": plan}
                result = await client.call_tool("train_start", values)
            assert not result.is_error, result.structured_content
        else:
            words = ["train", "start", "--dataset", dataset, "--home", str(home.root), "--json"]
            for name, value in (("actor", actor), ("plan", plan)):
                path = self.folder / f"{name}.json"
                path.write_text(json.dumps(value))
                words += [f"--{name}", f"@{path}"]
            assert await anyio.to_thread.run_sync(main, words) == 0
        return (await self.live.stack.operator.runs(limit=1)).items[0].id

    async def work(self, run: str, reference: Checkpoint | None = None) -> Seen:
        """Work through a run; what was seen of it."""
        self.recording.calls.clear()
        reads = self.live.stack.operator
        usage = (await self.live.stack.worker.records(run)).usage
        await self.live.work(run)
        saved = (await reads.checkpoints(run)).items
        updates = (await reads.updates(run)).items
        used = {None, *(update.trainer for update in updates)}  # another one warms compute up
        return Seen(
            calls=[c for c in self.recording.calls if c.arguments.get("trainer") in used],
            run=await reads.run(run),
            usage=usage,
            update=updates[0],
            groups=(await reads.groups(run)).items,
            trials=(await reads.trials(run, limit=200)).items,
            checkpoint=saved[0],
            reference=reference or saved[0],
        )

    async def launch(self, run: str, seen: Seen) -> None:
        """Launch the first batch of an equal run as a worker does, up to the sandbox."""
        worker = self.live.stack.worker
        claim = await worker.claim(new_id(Prefix.WORKER), 900.0)
        assert claim is not None and claim.run == run
        spec = claim.spec
        place = Workplace(
            TaskCache(self.folder / "cache", worker.object), self.folder, _environment
        )
        ctx = RunContext(
            home=self.live.stack.home,
            claim=claim,
            records=await worker.records(run),
            profile=Profile.model_validate(stage.profile()),
            client=worker,
            compute=self.live.compute,
            proxy=_NoProxy(),
            workplace=place,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(harbor, "run_trial", _launcher(seen))
            patch.setattr(delegation, "opened", _as_it_is)
            plan = cast(TrainingPlan, spec.plan)
            tasks, attempts = spec.tasks[: plan.batch.tasks], plan.batch.trials_per_task
            names = tuple(task.name for task in tasks)
            await ctx.write(BatchStarted(batch=0, sampler=spec.sampler.id, tasks=names))
            await run_groups(ctx, 0, spec.sampler, tasks, attempts, on_settled=_nothing)
        query = sa.select(grants.c.access).where(grants.c.run_id == run, grants.c.phase == "agent")
        access = await self.live.stack.gateway.database.read(lambda c: c.scalar(query))
        seen.granted |= json.loads(access or "{}")
        await ctx.complete("failed", NotFound("There is no sandbox here.").problem)

    async def effect(self, route: str, plan: dict[str, Any]) -> Effect:
        """Work through a run of one batch, on the base model; what its rules made of it."""
        run = await self.start(route, plan)
        self.recording.calls.clear()
        stopped = None
        try:
            await self.live.work(run)
        except PracticumError as error:
            stopped = str(error.problem.code)
        reads = self.live.stack.operator
        trials = (await reads.trials(run, limit=100)).items
        return Effect(
            tasks=[group.task for group in (await reads.groups(run)).items],
            advantages=[
                float(value)
                for call in self.recording.take("forward")
                if call["backward"]
                for datum in call["data"]
                for value in datum.inputs["advantages"]
            ],
            ineligible={t.index: t.ineligible_reason for t in trials if t.ineligible_reason},
            stopped=stopped,
        )


class _NoProxy:
    """A proxy that is away: nothing was sampled."""

    async def seal(self, run: str, trial: str, fence: int) -> Seal:
        raise NotFound(f"{trial} was never announced.")


async def _nothing(_: SettledGroup) -> None:
    """Nothing learns from it."""


def _environment(_: str, resources: Resources) -> EnvironmentSpec:
    return EnvironmentSpec({}, cpus=resources.cpus, memory_mb=resources.memory_mb)


async def _as_it_is(environment: EnvironmentSpec, _: Path) -> EnvironmentSpec:
    """No sandbox, so no port and no program in it."""
    return environment


def _launcher(seen: Seen) -> Callable[..., Any]:
    """Takes down what a trial is launched with, in place of its sandbox."""
    running = 0
    together = anyio.Event()

    async def run_trial(
        board: Board,
        _: Path,
        __: Path,
        environment: EnvironmentSpec,
        deadlines: harbor.Deadlines,
        **___: object,
    ) -> None:
        nonlocal running
        running += 1
        seen.at_once = max(seen.at_once, running)
        if running > 1:
            together.set()
        with anyio.move_on_after(60):
            await together.wait()
        await anyio.sleep(0.02)
        running -= 1
        token = board.bindings[Binding.MODEL_TOKEN]
        claims = jwt.decode(token, options={"verify_signature": False})
        seen.launches.append(
            Launch(TrialClaims.model_validate(claims), environment, deadlines, board.agent_sec)
        )
        raise NotFound("There is no sandbox here.")

    return run_trial


@pytest.fixture
async def bench(
    short_dir: Path, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    home = stage.prepared_home(short_dir, template)
    async with LocalCompute(tmp_path / "compute") as local:
        recording = Recording(local)
        async with ground(home, recording.compute) as live:
            yield Bench(Varied(live.stack, live.compute), recording, tmp_path)


def test_every_field_has_a_value_of_its_own_and_a_place_where_it_is_seen() -> None:
    stated = leaves(PLAN)
    assert set(stated) == set(FIELDS)
    assert {name for name in FIELDS if stated[name] == FIELDS[name]} <= ONE_VALUE
    assert not set(CARRIED) & set(DERIVED)
    assert set(CARRIED) | set(DERIVED) == set(FIELDS)


async def test_every_value_stands_in_the_call_that_uses_it(bench: Bench) -> None:
    write_tasks(bench.folder / "tasks", 3)
    name = {"folder": str(bench.folder / "tasks"), "publish_as": "e2e/parity@v1"}
    await ask(bench.live, "dataset publish", Published, **name)
    first = {"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 3}}
    shape = {key: PLAN[key] for key in ("lora", "optimizer")}
    start = (await bench.work(await bench.start("cli", first | shape))).checkpoint
    plan = changed(PLAN, "/kl/reference", start.id)
    stated = leaves(plan)
    for route in ("cli", "mcp"):
        options = {"model": start.id, "dataset": "e2e/parity@v1"}
        seen = await bench.work(await bench.start(route, plan, **options), start)
        await bench.launch(await bench.start(route, plan, **options), seen)
        found = {name: find(seen) for name, find in CARRIED.items()}
        assert found == {name: stated[name] for name in CARRIED}, route
        stored = leaves(cast(Any, seen.run.spec.plan.model_dump(mode="json")))
        assert stored == stated, route
        _kept_by_the_update(seen, plan)


def _kept_by_the_update(seen: Seen, plan: dict[str, Any]) -> None:
    """The records say what the step was made with."""
    update, context = seen.update, seen.checkpoint.context
    assert context is not None
    assert (update.loss, update.learning_rate) == (plan["loss"], plan["learning_rate"])
    assert update.loss_config == {
        "clip_low_threshold": plan["clip"]["low"],
        "clip_high_threshold": plan["clip"]["high"],
    }
    assert context.optimizer.model_dump() == plan["optimizer"]
    assert seen.checkpoint.lora == plan["lora"]
    assert update.from_state == seen.reference.id


@pytest.mark.slow
async def test_every_rule_changes_what_it_says_and_is_read_from_either_side(bench: Bench) -> None:
    bases: dict[str, Effect] = {}
    for number, (pointer, (value, more, differs)) in enumerate(DERIVED.items()):
        route = ("cli", "mcp")[number % 2]
        plan = BASE | more
        key = json.dumps(more)
        if key not in bases:
            bases[key] = await bench.effect(route, plan)
        after = await bench.effect(route, changed(plan, pointer, value))
        assert differs(bases[key], after), (pointer, bases[key], after)
