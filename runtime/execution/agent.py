"""The Harbor agent that executes a launch plan; Harbor loads it by import path.

Its `setup` writes the profile's files and runs its setup commands: whatever fails there is
`launch_failed`, a state apart from work that failed. Its `run` starts the harness and enforces
the deadline where the processes are killed, with all their children. It reports to the trial's
board; the harness's own exit status is no exception, so Harbor goes on to the verifier.

The launch folder is staged on the host outside of everything that a sandbox may share, and
sent: a name that something inside could have replaced is never written to.
"""

import math
from pathlib import PurePosixPath
from typing import Any, override

import anyio
from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from runtime.execution import engine, scripts
from runtime.execution.board import find
from specs.errors import PracticumError
from specs.launch import LaunchPlan
from specs.records import TrialOutcome


class LaunchFailed(RuntimeError):
    """The harness never started: Harbor ends the trial here, without a verifier."""


class ProfileAgent(BaseAgent):
    """Runs a profile's harness. `trial` names the board that holds profile and bindings."""

    def __init__(self, *, trial: str, **options: Any) -> None:
        super().__init__(**options)
        self._board = find(trial)
        self._logs = PurePosixPath(self.environment_logs_dir)
        self._folder = self.logs_dir.parent / scripts.FOLDER
        self._sent: str | None = None

    @staticmethod
    @override
    def name() -> str:
        return "practicum-profile"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def set_web_tools_disabled(self, disabled: bool, environment: BaseEnvironment) -> None:
        """A harness's own tools are its profile's business; the network policy is enforced."""

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Write files and run setup commands. On cancel the running command is killed."""
        plan = self._board.plan(self._board.instruction)
        scripts.stage_prepare(plan, self._folder, self._logs)
        try:
            await self._send(plan, self._board.instruction, environment)
            result = await environment.exec(f"bash {scripts.INSIDE}/prepare.sh", env=plan.env)
        except (PracticumError, RuntimeError) as error:
            self._fail_launch(f"the environment failed during setup: {error}", error)
        else:
            if result.return_code != 0:
                self._fail_launch(_setup_failure(result.return_code))

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Run the harness on one instruction. On cancel it is killed with all its children."""
        context.model_usage = {}  # or Harbor would read a file that the agent may have written
        context.metadata = {"trial": self._board.trial}
        plan = self._board.plan(instruction)
        try:
            if instruction != self._sent:  # a later step of the task
                await self._send(plan, instruction, environment)
            await self._run_harness(plan, environment)
            if self._board.seal is not None:
                await self._board.seal()
            if plan.engine.name == "claude-code":
                await environment.exec(engine.keep_session(self._logs), user="root")
            if plan.outputs:
                await self._gather(plan, environment)
        except (PracticumError, RuntimeError) as error:
            if isinstance(error, LaunchFailed):
                raise
            self._board.end(TrialOutcome.INFRASTRUCTURE, f"the environment failed: {error}")
            raise

    async def _run_harness(self, plan: LaunchPlan, environment: BaseEnvironment) -> None:
        board = self._board
        started = self._clock()
        try:
            result = await environment.exec(
                f"bash {scripts.INSIDE}/run.sh", env=plan.env, timeout_sec=_whole(board.agent_sec)
            )
        except RuntimeError as error:
            if self._clock() - started < board.agent_sec:
                raise
            board.end(
                TrialOutcome.AGENT_TIMEOUT,
                f"the harness was killed at its deadline of {board.agent_sec:g} s",
            )
            self.logger.debug("deadline: %s", error)
            return
        board.exit_code = result.return_code
        if result.return_code in scripts.NOT_STARTED and await self._unstarted(environment):
            self._fail_launch(f"the harness {plan.argv[0]!r} could not be started; see its log")
        if result.return_code == 0:
            board.end(TrialOutcome.COMPLETED)
        else:
            board.end(TrialOutcome.AGENT_FAILED, f"the harness exited with {result.return_code}")

    async def _gather(self, plan: LaunchPlan, environment: BaseEnvironment) -> None:
        target = self._logs / scripts.OUTPUTS
        command = scripts.gather(plan.outputs, target, self._board.output_bytes)
        result = await environment.exec(command, user="root")
        missing = {
            int(line.removeprefix(scripts.MISSING))
            for line in (result.stdout or "").splitlines()
            if line.startswith(scripts.MISSING)
        }
        self._board.missing_outputs = tuple(
            output.name
            for index, output in enumerate(plan.outputs)
            if output.required and index in missing
        )
        if self._board.missing_outputs:
            self._board.end(
                TrialOutcome.MISSING_OUTPUT,
                "required outputs are missing: " + ", ".join(self._board.missing_outputs),
            )

    async def _send(self, plan: LaunchPlan, instruction: str, environment: BaseEnvironment) -> None:
        scripts.stage_run(plan, self._folder, self._logs)
        await environment.upload_dir(self._folder, str(scripts.INSIDE))
        self._sent = instruction

    async def _unstarted(self, environment: BaseEnvironment) -> bool:
        """Whether the shell, and not the harness, wrote the log's last line."""
        result = await environment.exec(f"tail -n 1 {self._logs}/{scripts.HARNESS_LOG}")
        return (result.stdout or "").strip() == scripts.UNSTARTED

    def _fail_launch(self, detail: str, cause: BaseException | None = None) -> None:
        self._board.end(TrialOutcome.LAUNCH_FAILED, detail)
        raise LaunchFailed(detail) from cause

    @staticmethod
    def _clock() -> float:
        return anyio.current_time()


def _whole(seconds: float) -> int:
    """Harbor's environments count whole seconds."""
    return max(1, math.ceil(seconds))


def _setup_failure(code: int) -> str:
    match code:
        case scripts.FAILED_FILES:
            return "a file of the profile could not be written; see the setup log"
        case scripts.FAILED_WORKDIR:
            return "the workdir could not be entered; see the setup log"
        case scripts.FAILED_SETUP:
            return "a setup command failed; see the setup log"
        case _:
            return f"setup ended with status {code}; see the setup log"
