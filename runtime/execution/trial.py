"""One trial from slot to settled record.

    open (written) → credential → Harbor trial → seal → artifacts → settle (written)

The seal is made as soon as the harness has ended, where it will not work again: the verifier may
then read the evidence, and nothing that the harness left running makes calls any more.

The trial's id is minted and recorded before anything exists for it (invariant 12). Whatever
goes wrong after that is this trial's outcome and costs no other (invariant 16); only a lost
claim, or a gateway that refuses the record itself, ends the run's work. Cancelling the run
stops the sandbox and settles the trial as `cancelled`.
"""

import hashlib
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from runtime.execution import delegation, scripts
from runtime.execution.blots import Blots, blot, blotted
from runtime.execution.board import Board, Verdict
from runtime.execution.collect import Collected, collect_file, collect_tree, read_log
from runtime.execution.conclude import failure_detail
from runtime.execution.context import RunContext, clean_text
from runtime.execution.engine import TOOL, engine_bindings, session_artifacts, session_log
from runtime.execution.proxy_control import SANDBOX_URL
from runtime.execution.settle import settlement
from runtime.execution.workplace import EnvironmentSpec, Workplace
from runtime.native.engines import install
from specs import canonical
from specs.assessment import Assessment, NoReward
from specs.dataset import TaskEntry
from specs.errors import PracticumError
from specs.grant import LONGEST_TOKEN_SEC
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.launch import recorded_plan
from specs.model import ModelInfo
from specs.plans import EvaluationPlan, gateway_access
from specs.profile import Binding
from specs.records import (
    Artifact,
    Group,
    LogPiece,
    Trial,
    TrialOpen,
    TrialOutcome,
    TrialSettled,
    TrialState,
)
from specs.worker_api import (
    LogWritten,
    TrialOpened,
    TrialTokenRequest,
    Write,
)

if TYPE_CHECKING:
    from runtime.execution.harbor import Concluded

LOGS: Sequence[tuple[str, str, str]] = (
    ("setup", "agent", scripts.SETUP_LOG),
    ("harness", "agent", scripts.HARNESS_LOG),
    ("verifier", "verifier", "test-stdout.txt"),
)
"""Source of a log, and where it lies in a trial's folder."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A planned place: index within a group of one task."""

    group: Group
    task: TaskEntry
    index: int


@dataclass(slots=True)
class _Work:
    """A trial under way."""

    slot: Slot
    board: Board
    started: float
    opened_at: str
    blots: Blots = field(default_factory=dict[str, str])
    launch_plan: str | None = None
    concluded: "Concluded | None" = None


class TrialRunner:
    """Runs the trials of one run."""

    def __init__(self, context: RunContext, workplace: Workplace) -> None:
        self._context = context
        self._place = workplace
        self._scopes: set[anyio.CancelScope] = set()
        self._plans: set[str] = set()
        self._info: ModelInfo | None = None

    def cancel(self) -> None:
        """Stop the sandboxes of all trials under way; each is then settled as cancelled."""
        for scope in self._scopes:
            scope.cancel()

    async def run(self, slot: Slot, settling: Callable[[Trial], Sequence[Write]]) -> Trial:
        """Run the trial of a slot and record it, together with the writes of `settling`.

        On cancel the sandbox is stopped and the trial stays open: another takes its slot.

        Raises:
            ClaimLost: the run belongs to another worker.
            PracticumError: the gateway refuses a record.
        """
        context = self._context
        trial = new_id(Prefix.TRIAL)
        work = _Work(slot, Board(trial, agent_sec=0), anyio.current_time(), _now())
        try:
            await context.write(
                TrialOpened(trial=TrialOpen(id=trial, group=slot.group.id, index=slot.index))
            )
            await self._work(work)
            seal = await self._seal(work)
            artifacts = await self._artifacts(work)
            write = settlement(_settled(work, seal, artifacts), _assessment(work, artifacts))
            result = self._record(work, write.settled, write.assessment)
            logs = await anyio.to_thread.run_sync(self._logs, work)
            await context.write(write, *settling(result), *logs)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, self._place.trials / trial)
        return result

    async def _work(self, work: _Work) -> None:
        """The part that cancelling the run cuts short."""
        board = work.board
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._context.cancelling.is_set():
                scope.cancel()
            try:
                work.concluded = await self._execute(work)
            except PracticumError as error:
                board.end(TrialOutcome.LAUNCH_FAILED, error.problem.detail)
            except ValueError as error:
                board.end(TrialOutcome.LAUNCH_FAILED, failure_detail(error))
            except Exception as error:  # noqa: BLE001 - a defect costs this trial alone
                board.end(TrialOutcome.INFRASTRUCTURE, failure_detail(error))
                self._context.log(traceback.format_exc(), trial=board.trial)
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            board.outcome = TrialOutcome.CANCELLED
            board.detail = "the run was cancelled"

    async def _execute(self, work: _Work) -> "Concluded":
        # Harbor takes a second or two to import: only where trials run.
        from runtime.execution.harbor import Deadlines, run_trial, task_facts

        context, slot, board = self._context, work.slot, work.board
        plan = context.spec.plan
        folder = await self._place.tasks.path(slot.task.digest)
        facts = await anyio.to_thread.run_sync(task_facts, folder)
        deadlines = Deadlines.of(
            facts,
            setup=plan.timeouts.setup_sec,
            agent=plan.timeouts.agent_sec,
            verifier=plan.timeouts.verifier_sec,
            trial=plan.timeouts.trial_sec,
        )
        board.agent_sec = deadlines.agent
        board.instruction = facts.instruction
        board.profile = context.profile
        board.seal = None if facts.steps else partial(self._seal, work)
        environment = self._place.environment(board.trial, plan.resources)
        if context.profile.agent.engine.name == "claude-code":
            environment = await self._with_engine(environment)
        board.bindings = {
            **engine_bindings(context.profile.agent, await self._model()),
            Binding.RUN_ID: context.run,
            Binding.TRIAL_ID: board.trial,
            Binding.TASK_NAME: slot.task.name,
            Binding.MODEL_NAME: context.profile.agent.model,
            Binding.MODEL_BASE_URL: SANDBOX_URL,
            Binding.INSTRUCTION: facts.instruction,
        }
        delegates = gateway_access(plan) is not None
        if delegates:
            environment = await delegation.opened(environment, context.home.gateway_socket)
            board.bindings = {**board.bindings, Binding.GATEWAY_URL: delegation.SANDBOX_URL}
        work.launch_plan = await self._record_plan(board)
        await self._take_credentials(work, deadlines.trial, delegates=delegates)
        return await run_trial(
            board,
            folder,
            self._place.trials,
            environment,
            deadlines,
            scored=not (isinstance(plan, EvaluationPlan) and plan.scoring == "none"),
        )

    async def _take_credentials(self, work: _Work, seconds: float, *, delegates: bool) -> None:
        """Bind the trial's credentials; from now on they are blotted out of what it leaves."""
        board = work.board
        token = await self._token(work.slot, board.trial, seconds)
        work.blots = blot(token, Binding.MODEL_TOKEN)
        board.bindings = {**board.bindings, Binding.MODEL_TOKEN: token}
        if delegates:
            own = await delegation.credentials(self._context, board.trial, seconds)
            for one in (own.agent, own.verifier):
                work.blots = {**work.blots, **blot(one, Binding.GATEWAY_TOKEN)}
            board.bindings = {**board.bindings, Binding.GATEWAY_TOKEN: own.agent}
            board.verifier_env = own.verifier_environment

    async def _model(self) -> ModelInfo:
        """What the run's model is like; every sampler of a run has the same base."""
        if self._info is None:
            self._info = await self._context.compute.model(self._context.spec.sampler.base_model)
        return self._info

    async def _with_engine(self, environment: EnvironmentSpec) -> EnvironmentSpec:
        """The environment with the pinned program in it, which the first trial installs.

        Raises:
            Unavailable: it cannot be installed.
        """
        version = self._context.profile.agent.engine.version
        found = await anyio.to_thread.run_sync(install, version, self._context.log)
        return environment.with_tool(found.folder, TOOL, found.manifest.digest)

    async def _record_plan(self, board: Board) -> str:
        """Keep the launch plan as an object, without the credential."""
        assert board.profile is not None
        data = canonical.canonical_bytes(recorded_plan(board.profile, board.bindings))
        digest = canonical.digest_bytes(data)
        if digest not in self._plans:
            await self._context.client.upload(data)
            self._plans.add(digest)
        return digest

    async def _token(self, slot: Slot, trial: str, seconds: float) -> str:
        context = self._context
        limits = context.spec.plan.limits
        sampling = context.profile.agent.sampling
        reply = await context.client.token(
            context.run,
            trial,
            TrialTokenRequest(
                claim=context.claim.id,
                fence=context.claim.fence,
                sampler=slot.group.sampler,
                task=slot.task.name,
                expires_in_sec=min(seconds, LONGEST_TOKEN_SEC),
                sampling=sampling.model_dump(mode="json", exclude_none=True),
                max_calls=limits.max_calls,
                max_output_tokens=limits.max_output_tokens,
                seed=_seed(context.spec.plan.seed, slot),
            ),
        )
        return reply.token

    async def _seal(self, work: _Work) -> Seal | None:
        context = self._context
        try:
            return await context.proxy.seal(context.run, work.board.trial, context.claim.fence)
        except PracticumError as error:
            context.log(
                f"The evidence of {work.board.trial} could not be sealed: {error}\n",
                trial=work.board.trial,
            )
            return None

    async def _artifacts(self, work: _Work) -> tuple[Artifact, ...]:
        found = await anyio.to_thread.run_sync(self._collect, work)
        artifacts: list[Artifact] = []
        for item in found:
            try:
                digest = await self._context.client.upload(item.data)
            except PracticumError as error:
                self._context.log(
                    f"Artifact {item.path} was not kept: {error}\n", trial=work.board.trial
                )
                continue
            artifacts.append(
                Artifact(
                    path=item.path,
                    digest=digest,
                    size=len(item.data),
                    truncated=item.truncated,
                )
            )
        return tuple(artifacts)

    def _record(self, work: _Work, settled: TrialSettled, assessment: Assessment) -> Trial:
        """The trial as the gateway records it; times are this worker's."""
        slot = work.slot
        return Trial(
            id=settled.trial,
            run=self._context.run,
            group=slot.group.id,
            batch=slot.group.batch,
            index=slot.index,
            task=slot.group.task,
            sampler=slot.group.sampler,
            fence=self._context.claim.fence,
            state=TrialState.SETTLED,
            counted=True,
            opened_at=work.opened_at,
            settled_at=_now(),
            settled=settled,
            assessment=assessment,
        )

    def _collect(self, work: _Work) -> list[Collected]:
        """Declared outputs under their names, then the task's artifacts."""
        folder = self._place.trials / work.board.trial
        found: list[Collected] = []
        for index, output in enumerate(self._context.profile.agent.outputs):
            kept = collect_file(folder / "agent" / scripts.OUTPUTS / str(index))
            if kept is not None:
                found.append(Collected(output.path, kept.data, kept.truncated))
        found += collect_tree(folder / "artifacts", skip=frozenset({"manifest.json"}))
        clean = [replace(item, data=blotted(item.data, work.blots)) for item in found]
        return clean + self._session(work)

    def _session(self, work: _Work) -> list[Collected]:
        """Claude Code's session log, and the trajectory made of it."""
        agent = self._context.profile.agent
        folder = self._place.trials / work.board.trial
        if agent.engine.name != "claude-code":
            return []
        try:
            return session_artifacts(folder, agent, work.blots)
        except Exception:  # noqa: BLE001 - a log of any shape costs the trajectory and no more
            self._context.log(traceback.format_exc(), trial=work.board.trial)
            return session_log(folder, work.blots)

    def _logs(self, work: _Work) -> list[Write]:
        folder = self._place.trials / work.board.trial
        pieces: list[Write] = []
        for source, place, name in LOGS:
            text = read_log(folder / place / name, work.blots)
            if text:
                piece = LogPiece.model_validate(
                    {"source": source, "trial": work.board.trial, "text": text}
                )
                pieces.append(LogWritten(piece=piece))
        return pieces


def _settled(work: _Work, seal: Seal | None, artifacts: tuple[Artifact, ...]) -> TrialSettled:
    board = work.board
    assert board.outcome is not None
    seconds = dict(work.concluded.seconds) if work.concluded else {}
    seconds["total"] = anyio.current_time() - work.started
    return TrialSettled(
        trial=board.trial,
        outcome=board.outcome,
        detail=clean_text(board.detail)[:4096],
        exit_code=board.exit_code,
        missing_outputs=board.missing_outputs,
        environment_version=board.environment_version,
        launch_plan=work.launch_plan,
        seconds=seconds,
        artifacts=artifacts,
        seal=seal,
    )


def _assessment(work: _Work, artifacts: tuple[Artifact, ...]) -> Assessment:
    verdict = _verdict(work)
    return Assessment(
        id=new_id(Prefix.ASSESSMENT),
        trial=work.board.trial,
        assessor="none" if verdict.reason == NoReward.NOT_SCORED else "verifier",
        reward=verdict.reward,
        rewards=dict(verdict.rewards),
        reason=verdict.reason,
        detail=clean_text(verdict.detail)[:4096],
        artifacts={artifact.path: artifact.digest for artifact in artifacts},
    )


def _verdict(work: _Work) -> Verdict:
    board = work.board
    if board.outcome == TrialOutcome.CANCELLED:
        return Verdict(reason=NoReward.CANCELLED, detail=board.detail)
    if work.concluded is not None:
        return work.concluded.verdict
    if board.outcome == TrialOutcome.LAUNCH_FAILED:
        return Verdict(reason=NoReward.LAUNCH_FAILED, detail=board.detail)
    return Verdict(reason=NoReward.INFRASTRUCTURE, detail=board.detail)


def _seed(seed: int, slot: Slot) -> int:
    """A seed of its own for each slot, the same in every run of equal plan and tasks."""
    text = f"{seed}/{slot.group.batch}/{slot.group.index}/{slot.task.name}/{slot.index}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
