"""The plugin for Claude Code: where it is, installing it, and answering its hooks.

A hook never starts a stack and never fails a session: what it cannot find out it leaves unsaid, or
says in one line; a guard that cannot read what it is told asks. Claude Code reads their answers on
stdout. Hooks are called often, so what they do not need is imported where it is used.
"""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import anyio
from pydantic import Field

from specs import claude_code, repaired
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, Internal, Unavailable
from tools.context import Context
from tools.fields import Cli, Input
from tools.hooks import HookInput, guard, unwritten
from tools.registry import Traits, operation

NAME = "practicum"
DATA, SESSION = "CLAUDE_PLUGIN_DATA", "CLAUDE_CODE_SESSION_ID"
"""What Claude Code tells its hooks in their environment: the plugin's folder, and the session."""
SESSION_START_SEC = 4.0
"""The hook has 30 s; a session should not wait for that."""

TERMINAL = Traits(idempotent=True, local=True, agent=False)

_UNREAD = "Practicum: what Claude Code tells its hook cannot be read."

Event = Literal["session-start", "guard", "stop"]


class Where(Input):
    pass


class Install(Input):
    scope: Annotated[
        Literal["user", "project", "local"], Field(description="Whom it is installed for")
    ] = "user"


class Hook(Input):
    event: Annotated[Event, Field(description="Which hook calls"), Cli(True)]


class PluginFolder(Contract):
    """Where the plugin is."""

    plugin: str
    """For `claude --plugin-dir`."""
    marketplace: str
    """For `claude plugin marketplace add`."""


class PluginInstalled(Contract):
    """What was installed where."""

    plugin: str
    scope: str
    claude: str
    """The program that it was installed into."""


class HookAnswer(Contract):
    """What Claude Code is to read."""

    text: str = ""


def _folder_text(folder: PluginFolder) -> str:
    return folder.plugin


def _answer_text(answer: HookAnswer) -> str:
    return answer.text


def _installed_text(done: PluginInstalled) -> str:
    return f"Installed {done.plugin} ({done.scope}) into {done.claude}; it is on in new sessions."


@operation("plugin", "path", replace(TERMINAL, read_only=True), text=_folder_text)
async def path(_: Context, __: Where) -> PluginFolder:
    """Print the plugin's folder, as in `claude --plugin-dir "$(practicum plugin path)"`."""
    root = marketplace()
    return PluginFolder(plugin=str(root / "plugins" / "claude"), marketplace=str(root))


@operation("plugin", "install", TERMINAL, text=_installed_text)
async def install(context: Context, request: Install) -> PluginInstalled:
    """Make this installation a marketplace of your Claude Code, and install the plugin from it.

    Without a `claude` on PATH the pinned one is used. On cancel the marketplace may stay known.
    """
    from tools.agent import installed_engine

    program = shutil.which("claude")
    if program is None:
        program = str((await installed_engine(context, claude_code.PINNED_VERSION)).program)
    name = f"{NAME}@{NAME}"
    scope = ("--scope", request.scope)
    await _claude(program, "plugin", "marketplace", "add", str(marketplace()), *scope)
    await _claude(program, "plugin", "install", name, *scope)
    return PluginInstalled(plugin=name, scope=request.scope, claude=program)


@operation("plugin", "hook", TERMINAL, text=_answer_text)
async def hook(context: Context, request: Hook) -> HookAnswer:
    """Answer a hook of the plugin: reads what Claude Code says on stdin.

    `session-start` tells open runs and the journal's last entries, `guard` asks before what spends,
    ends or decides, `stop` reminds of a journal that was not written.
    """
    given = _hook_input(await anyio.to_thread.run_sync(sys.stdin.buffer.read))
    if given is None:
        sys.stderr.write(f"{_UNREAD}\n")
    match request.event:
        case "session-start":
            folder = Path((given.cwd if given else None) or ".")
            return HookAnswer(text=await _session_start(context, folder))
        case "guard":
            return HookAnswer(text=_asking(guard(given) if given else _UNREAD))
        case "stop":
            return HookAnswer(text=_blocking(given) if given else "")


def marketplace() -> Path:
    """The folder of the marketplace file: in an installed package, or the checkout around it.

    Raises:
        Internal: the package was built without the plugin.
    """
    here = Path(__file__).resolve().parent
    for root in (here / "marketplace", here.parent):
        if (root / ".claude-plugin" / "marketplace.json").is_file():
            return root
    raise Internal("This installation has no plugin.", next="Install practicum from a wheel.")


async def _session_start(context: Context, folder: Path) -> str:
    from tools.overview import overview

    told = ""
    with anyio.move_on_after(SESSION_START_SEC):
        told = await overview(context, folder)
    return told or "Practicum: the stack did not answer in time; stack_status says more."


def _asking(reason: str | None) -> str:
    if reason is None:
        return ""
    asked = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "ask",
        "permissionDecisionReason": reason,
    }
    return json.dumps({"hookSpecificOutput": asked})


def _blocking(given: HookInput) -> str:
    """Stopping is held up once; Claude Code says when it goes on because of that.

    What is missing even then is left for the end of the session, which tells its user.
    """
    missing = _reminder(given)
    _leave(missing)
    if missing is None or given.stop_hook_active:
        return ""
    return json.dumps({"decision": "block", "reason": missing})


def _leave(missing: str | None) -> None:
    folder, session = (os.environ.get(name) for name in (DATA, SESSION))
    if not folder or not session:
        return
    left = Path(folder) / f"unwritten-{session}"
    if missing is None:
        left.unlink(missing_ok=True)
    else:
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(f"{missing}\n", encoding="utf-8")


def _reminder(given: HookInput) -> str | None:
    done = [] if given.transcript_path is None else unwritten(Path(given.transcript_path))
    if not done:
        return None
    return (
        f"Not in the journal yet: {', '.join(done)}. Append what was done, seen and decided"
        " (journal_append; skill practicum:keep-a-journal), then stop."
    )


def _hook_input(data: bytes) -> HookInput | None:
    """What Claude Code says to a hook; None where it cannot be read.

    A text that it cut in the middle of a character is read all the same.
    """
    try:
        return HookInput.model_validate(repaired.loads(data))
    except (ValueError, RecursionError):
        return None


async def _claude(program: str, *words: str) -> None:
    """Run one command of Claude Code.

    Raises:
        Unavailable: it cannot be started, or it fails.
    """
    try:
        done = await anyio.run_process([program, *words], check=False)
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        code = done.returncode
    except OSError as error:
        said, code = str(error), -1
    if code != 0:
        raise Unavailable(
            f"`claude {' '.join(words)}` failed: {said[-600:]}",
            code=ErrorCode.SOURCE_UNUSABLE,
            object=ErrorObject(type="tool", id="claude"),
            next='Or start it with: claude --plugin-dir "$(practicum plugin path)"',
        )
