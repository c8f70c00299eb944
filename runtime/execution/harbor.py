"""The adapter: one Harbor trial, from a configuration of ours to a conclusion of ours.

Depends on `Trial.create(...).run()` and its result; agent, verifier and environment are ours
and come by import path. A trial runs in an asyncio task of its own and is cancelled at most
once, since Harbor cleans up while its own cancellation travels through it. Nothing that
happens in a trial is an exception here: it is an outcome and a verdict on the trial's board.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

import anyio

os.environ["HARBOR_TELEMETRY"] = "0"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from harbor.models.task.task import Task
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    ServiceVolumeConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)
from harbor.models.trial.result import TimingInfo, TrialResult
from harbor.trial.trial import Trial
from harbor.utils.logger import logger as harbor_log

from runtime.execution.board import Board, Verdict, posted
from runtime.execution.conclude import conclude, failure_detail
from runtime.execution.workplace import EnvironmentSpec
from specs.errors import PracticumError
from specs.records import TrialOutcome

harbor_log.setLevel(logging.ERROR)  # it logs at DEBUG by itself

AGENT = "runtime.execution.agent:ProfileAgent"
VERIFIER = "runtime.execution.verifier:BoundedVerifier"

DEFAULT_AGENT_SEC = 600.0
DEFAULT_SETUP_SEC = 360.0
SLACK_SEC = 30.0
"""Between our deadline of a phase and Harbor's, which is the safety net behind it."""
CLEANUP_SEC = 60.0


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What a task's own files say of it."""

    instruction: str
    """Of its first step, if it has steps."""
    agent_sec: float
    verifier_sec: float
    build_sec: float
    steps: bool


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Effective seconds of a trial's phases, and of the whole."""

    setup: float
    agent: float
    verifier: float
    trial: float

    @classmethod
    def of(
        cls,
        facts: TaskFacts,
        *,
        setup: float | None = None,
        agent: float | None = None,
        verifier: float | None = None,
        trial: float | None = None,
    ) -> "Deadlines":
        """Plan, then task, then default."""
        setup = setup or DEFAULT_SETUP_SEC
        agent = agent or facts.agent_sec
        verifier = verifier or facts.verifier_sec
        whole = facts.build_sec + setup + agent + verifier + 2 * SLACK_SEC
        return cls(setup=setup, agent=agent, verifier=verifier, trial=trial or whole)


@dataclass(frozen=True, slots=True)
class Concluded:
    """A trial that ended: what its board says is final."""

    folder: Path
    verdict: Verdict
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


@lru_cache(maxsize=4096)
def task_facts(folder: Path) -> TaskFacts:
    """Read a task folder (kept: the folder of a digest never changes).

    Raises:
        ValueError: Harbor cannot read the task.
    """
    task = Task(folder)
    config = task.config
    instruction = task.instruction
    if config.steps:
        instruction = task.step_instruction(config.steps[0].name)
    return TaskFacts(
        instruction=instruction,
        agent_sec=config.agent.timeout_sec or DEFAULT_AGENT_SEC,
        verifier_sec=config.verifier.timeout_sec,
        build_sec=config.environment.build_timeout_sec,
        steps=bool(config.steps),
    )


async def run_trial(
    board: Board,
    task: Path,
    trials: Path,
    environment: EnvironmentSpec,
    deadlines: Deadlines,
    *,
    scored: bool = True,
    agent: Literal["profile", "oracle", "nop"] = "profile",
) -> Concluded:
    """Run one trial of a task and conclude what became of it.

    On cancel the trial's sandbox is stopped before the cancellation goes on; the board then
    tells how far the trial came.
    """
    config = trial_config(board, task, trials, environment, deadlines, scored=scored, agent=agent)
    folder = trials / board.trial
    with posted(board):
        try:
            trial = await Trial.create(config)
        except Exception as error:  # noqa: BLE001 - whatever a task's files provoke is its outcome
            board.end(TrialOutcome.LAUNCH_FAILED, failure_detail(error))
            return Concluded(folder, conclude(board, None, scored=scored))
        try:
            in_time = await _supervise(trial, deadlines.trial)
        except Exception as error:  # noqa: BLE001 - Harbor's own failure costs this trial alone
            board.end(TrialOutcome.INFRASTRUCTURE, failure_detail(error))
            return Concluded(folder, conclude(board, None, scored=scored))
        finally:
            board.environment_version = _version(trial)
        result = trial.result
        if not in_time:
            _note_deadline(board, result, deadlines.trial)
        verdict = conclude(board, result, scored=scored)
    return Concluded(folder, verdict, _seconds(result))


def trial_config(
    board: Board,
    task: Path,
    trials: Path,
    environment: EnvironmentSpec,
    deadlines: Deadlines,
    *,
    scored: bool,
    agent: Literal["profile", "oracle", "nop"],
) -> TrialConfig:
    """Harbor's configuration of a trial; it is written to disk, so it holds no credential."""
    ours = agent == "profile"
    return TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=trials,
        trial_name=board.trial,
        agent=AgentConfig(
            name=None if ours else agent,
            import_path=AGENT if ours else None,
            kwargs={"trial": board.trial} if ours else {},
            override_timeout_sec=deadlines.agent + SLACK_SEC if ours else deadlines.agent,
            override_setup_timeout_sec=deadlines.setup,
        ),
        environment=EnvironmentConfig(
            import_path=environment.import_path,
            kwargs=dict(environment.kwargs),
            override_cpus=environment.cpus,
            override_memory_mb=environment.memory_mb,
            mounts=[cast(ServiceVolumeConfig, mount) for mount in environment.mounts] or None,
        ),
        verifier=VerifierConfig(
            import_path=VERIFIER,
            kwargs={"trial": board.trial},
            override_timeout_sec=deadlines.verifier,
            disable=not scored,
        ),
    )


async def _supervise(trial: Trial, seconds: float) -> bool:
    """Whether the trial ended by itself within its deadline."""
    task = asyncio.create_task(trial.run())
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not done:
        await _stop(task)
        return False
    task.result()
    return True


async def _stop(task: "asyncio.Task[TrialResult]") -> None:
    """Cancel once and wait for Harbor's cleanup."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task}, timeout=CLEANUP_SEC)


def _note_deadline(board: Board, result: TrialResult, seconds: float) -> None:
    detail = f"the trial passed its deadline of {seconds:g} s"
    if board.outcome is None:
        started = result.agent_execution is not None
        board.end(TrialOutcome.AGENT_TIMEOUT if started else TrialOutcome.LAUNCH_FAILED, detail)


def _version(trial: Trial) -> str | None:
    try:
        version = getattr(trial.agent_environment, "environment_version", None)
    except PracticumError:
        return None  # the environment never started
    return version if isinstance(version, str) else None


def _seconds(result: TrialResult) -> dict[str, float]:
    phases = {
        "environment": result.environment_setup,
        "setup": result.agent_setup,
        "agent": result.agent_execution,
        "verifier": result.verifier,
    }
    return {name: span for name, phase in phases.items() if (span := _span(phase)) is not None}


def _span(phase: TimingInfo | None) -> float | None:
    if phase is None or phase.started_at is None or phase.finished_at is None:
        return None
    return (phase.finished_at - phase.started_at).total_seconds()
