"""Profiles on this machine: one instruction in a folder of the user's own.

The launch plan is that of a trial with other bindings; model calls go through the proxy of the
local stack and are captured as a *session*: owned, and never evidence.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from pydantic import Field

from runtime.native import engines, launch
from runtime.native.bridge import bridge
from runtime.native.sessions import attended, unattended
from specs import canonical, claude_code, repaired
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput, NotFound
from specs.launch import LaunchPlan, plan_launch, validate_profile
from specs.operator_api import SessionOpened, SessionRequest
from specs.paths import resolved, user_path
from specs.profile import Binding, Profile
from tools.context import Context
from tools.documents import read_file
from tools.fields import Cli, Duration, Input
from tools.profile import ProfileFile, read_profile
from tools.registry import READ_LOCAL, Traits, operation
from tools.tables import pairs, size

LOG = "harness.log"
_TAIL = 4000


class Run(Input):
    profile: ProfileFile
    workdir: Annotated[str, Field(description="Folder to work in; it must exist")] = "."
    instruction: Annotated[
        str, Field(description="What to do, or @FILE"), Cli(metavar="TEXT|@FILE")
    ]
    model: Annotated[
        str | None, Field(description="Base model or checkpoint id, instead of the profile's")
    ] = None
    timeout: Annotated[Duration | None, Field(description="End the harness after this")] = None
    unattended: Annotated[
        bool, Field(description="Let Claude Code use every tool without asking, as in a sandbox")
    ] = False
    replace_files: Annotated[
        bool, Field(description="Let the profile's files replace what is in the folder")
    ] = False


class Validate(Input):
    profile: ProfileFile


class Install(Input):
    version: Annotated[str, Field(description="Exact version of Claude Code")] = (
        claude_code.PINNED_VERSION
    )


class AgentRan(Contract):
    """What became of one launch."""

    session: str
    model: str
    outcome: Literal["completed", "agent_failed", "agent_timeout", "missing_output"]
    exit_code: int | None
    missing_outputs: list[str]
    result: str
    """What the harness said last."""
    log: str
    """File of everything that it wrote."""

    @property
    def ok(self) -> bool:
        """The exit code of the command follows."""
        return self.outcome == "completed"


class AgentValid(Contract):
    """A profile that can be launched here."""

    name: str
    model: str
    engine: str
    digest: str
    installed: bool
    """Its program is there; otherwise the first launch installs it."""
    launch: LaunchPlan


class EngineInstalled(Contract):
    """A program in the tool folder."""

    engine: str
    program: str
    digest: str
    size: int


def _ran_text(ran: AgentRan) -> str:
    facts: dict[str, Any] = {
        "session": ran.session,
        "outcome": ran.outcome,
        "exit code": ran.exit_code,
        "missing": ran.missing_outputs or None,
        "log": ran.log,
    }
    return f"{ran.result}\n{pairs(facts)}".strip()


def _valid_text(valid: AgentValid) -> str:
    return pairs(
        {
            "profile": valid.name,
            "digest": valid.digest,
            "model": valid.model,
            "engine": valid.engine,
            "installed": "yes" if valid.installed else "no: the first launch installs it",
            "runs": " ".join(valid.launch.argv),
        }
    )


def _installed_text(found: EngineInstalled) -> str:
    return f"{found.engine}  {found.program}  {size(found.size)}  {found.digest}"


@operation("agent", "run", Traits(local=True, agent=False), text=_ran_text)
async def run(context: Context, request: Run) -> AgentRan:
    """Run a profile's harness on one instruction, in a folder of your own, and wait for it.

    The same plan as in a trial, on the local stack's proxy. Claude Code asks for permission as
    it does without a terminal (what is not allowed is denied) unless `--unattended` is given.
    On cancel the harness is ended with everything that it started.
    """
    profile = read_profile(request.profile)
    if request.model is not None:
        agent = profile.agent.model_copy(update={"model": request.model})
        profile = profile.model_copy(update={"agent": agent})
    validate_profile(profile)
    workdir = _folder(request.workdir)
    program = await _program(context, profile)
    wanted = SessionRequest(
        model=profile.agent.model, purpose="agent", sampling=profile.agent.sampling
    )
    async with opened(context, wanted) as (session, state, url):
        bindings = _bindings(profile, session, state, url) | {
            Binding.WORKDIR: str(workdir),
            Binding.ENGINE_PROGRAM: program,
            Binding.ENGINE_PERMISSIONS: (
                claude_code.BYPASS if request.unattended else claude_code.ASK
            ),
            Binding.INSTRUCTION: _instruction(request.instruction),
        }
        plan = plan_launch(profile, bindings)
        log = state / LOG
        with log.open("wb") as file:
            ended = await launch.execute(
                plan, state, file, replace=request.replace_files, timeout=request.timeout
            )
    return AgentRan(
        session=session.session.id,
        model=profile.agent.model,
        outcome=_outcome(ended),
        exit_code=ended.code,
        missing_outputs=list(ended.missing),
        result=await anyio.to_thread.run_sync(last_words, log),
        log=str(log),
    )


@operation("agent", "validate", READ_LOCAL, text=_valid_text)
async def validate(_: Context, request: Validate) -> AgentValid:
    """Check a profile as `agent run` would, and whether its harness is installed."""
    profile = read_profile(request.profile)
    plan = validate_profile(profile)
    engine = profile.agent.engine
    installed = engine.name == "command" or engines.find(engine.version) is not None
    return AgentValid(
        name=profile.name,
        model=profile.agent.model,
        engine=f"{engine.name} {engine.version}",
        digest=canonical.digest(profile),
        installed=installed,
        launch=plan.model_copy(update={"files": ()}),
    )


@operation("agent", "install", Traits(idempotent=True, local=True), text=_installed_text)
async def install(context: Context, request: Install) -> EngineInstalled:
    """Install a pinned Claude Code into the tool folder, once; trials never download it."""
    if not claude_code.EXACT_VERSION.fullmatch(request.version):
        raise InvalidInput(
            f"{request.version!r} is not an exact version.",
            object=ErrorObject(type="arguments", pointer="/version"),
            next=f"Write one such as {claude_code.PINNED_VERSION}.",
        )
    found = await installed_engine(context, request.version)
    return EngineInstalled(
        engine=f"claude-code {request.version}",
        program=str(found.program),
        digest=found.manifest.digest,
        size=found.manifest.size,
    )


async def installed_engine(context: Context, version: str) -> engines.Installed:
    """The pinned program, installed first if need be; on cancel npm ends with its thread."""

    def say(text: str) -> None:
        anyio.from_thread.run(context.progress, text)

    return await anyio.to_thread.run_sync(engines.install, version, say)


@asynccontextmanager
async def opened(
    context: Context, request: SessionRequest
) -> AsyncGenerator[tuple[SessionOpened, Path, str]]:
    """A session, its folder, and the proxy's address; it is ended in every case.

    Sessions of commands that were killed are ended first.
    """
    home = context.require_local("A session")
    async with context.gateway() as gateway:
        for left in unattended(home):
            try:
                await gateway.end_session(left)
            except NotFound:
                continue  # its command died before it was opened
        with attended(home, request.id) as state:
            session = await gateway.open_session(request)
            try:
                async with bridge(home.proxy_socket) as url:
                    yield session, state, url
            finally:
                with anyio.CancelScope(shield=True):
                    await gateway.end_session(request.id)


def _bindings(
    profile: Profile, session: SessionOpened, state: Path, url: str
) -> dict[Binding, str]:
    context = session.base.context_tokens
    most = claude_code.output_tokens(context, profile.agent.sampling.max_tokens)
    return {
        Binding.RUN_ID: session.session.id,
        Binding.TRIAL_ID: session.session.id,
        Binding.TASK_NAME: "session/agent",
        Binding.MODEL_NAME: profile.agent.model,
        Binding.MODEL_BASE_URL: url,
        Binding.MODEL_TOKEN: session.token,
        Binding.MODEL_CONTEXT_TOKENS: str(context),
        Binding.MODEL_MAX_OUTPUT_TOKENS: str(most),
        Binding.ENGINE_CONFIG: str(state / "claude"),
        Binding.ENGINE_SCRATCH: str(state / "scratch"),
        Binding.INSTRUCTION_FILE: str(state / "instruction.md"),
    }


async def _program(context: Context, profile: Profile) -> str:
    engine = profile.agent.engine
    if engine.name != "claude-code":
        return ""
    return str((await installed_engine(context, engine.version)).program)


def _folder(text: str) -> Path:
    folder = resolved(user_path(text))
    if not folder.is_dir():
        raise InvalidInput(
            f"{folder} is not a folder.",
            object=ErrorObject(type="arguments", pointer="/workdir"),
            next="Make it, or name another one: --workdir DIR",
        )
    return folder


def _instruction(text: str) -> str:
    if not text.startswith("@"):
        return text
    return read_file(text.removeprefix("@"), "instruction").decode("utf-8", "replace")


def _outcome(
    ended: launch.Ended,
) -> Literal["completed", "agent_failed", "agent_timeout", "missing_output"]:
    if ended.code is None:
        return "agent_timeout"
    if ended.code != 0:
        return "agent_failed"
    return "missing_output" if ended.missing else "completed"


def last_words(log: Path) -> str:
    """The result that Claude Code reports, else the end of what the harness wrote.

    A line ends at a line feed alone: a result may hold what else is taken for the end of one.
    """
    text = log.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    for line in reversed(text.split("\n")[-20:]):
        if line.startswith('{"type":"result"'):
            try:
                said = cast(dict[str, Any], repaired.loads(line)).get("result")
            except (ValueError, RecursionError):
                break  # cut off: the plain end of the log says more
            return said if isinstance(said, str) else ""
    return text[-_TAIL:]
