"""`practicum claude`: the developer's own Claude Code, on a base model or a checkpoint.

Their installed program, configuration, tools, plugins, permissions and sessions; the pinned
program only where none is installed. Only the names that decide where calls go and which model
they name are set, in the environment and, because a user's own settings would beat that, in a
settings file of this session. Calls are captured as a session and are never evidence.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import anyio
import anyio.abc

from runtime.home import Home
from runtime.native.launch import inherited, started, unstartable
from specs import claude_code
from specs.errors import ErrorObject, InvalidInput
from specs.operator_api import SessionOpened, SessionRequest
from specs.profile import Binding
from tools.agent import installed_engine, opened
from tools.context import Context
from tools.documents import read_file
from tools.ending import endings

DEFAULT_MODEL = "smollm2-135m-instruct"
_GRACE_SEC = 5.0
_FIRST_PROMPT = 24000


def start_claude(home: Home, model: str, arguments: Sequence[str]) -> int:
    """Start Claude Code in this terminal and wait for it; its exit code.

    Ctrl-C is Claude Code's own. When this process is told to end, so is Claude Code.

    Raises:
        PracticumError: the stack, the model or the program is not to be had.
    """
    # A handler, not SIG_IGN: the program must not inherit that it ignores Ctrl-C. It stays,
    # since the command ends here and a last press must not cut that short.
    signal.signal(signal.SIGINT, _leave_it)
    return anyio.run(_start, home, model, list(arguments))


async def _start(home: Home, model: str, arguments: list[str]) -> int:
    context = Context(home, progress=_say)
    program = shutil.which("claude")
    if program is None:
        found = await installed_engine(context, claude_code.PINNED_VERSION)
        program = str(found.program)
    async with opened(context, SessionRequest(model=model, purpose="claude")) as opening:
        session, state, url = opening
        if session.base.context_tokens < _FIRST_PROMPT:
            await _say(_narrow(session.base.context_tokens))
        env = environment(session, model, url)
        rest, settings = merged_settings(arguments, env)
        file = state / "settings.json"
        _write_private(file, json.dumps(settings))
        try:
            argv = [program, "--settings", str(file), *rest]
            return await _attend(argv, inherited(os.environ) | env)
        finally:
            file.unlink()


def environment(session: SessionOpened, model: str, url: str) -> dict[str, str]:
    """What routes the harness here; the rest is its user's."""
    context = session.base.context_tokens
    return claude_code.model_environment(
        {
            Binding.MODEL_NAME: model,
            Binding.MODEL_BASE_URL: url,
            Binding.MODEL_TOKEN: session.token,
            Binding.MODEL_CONTEXT_TOKENS: str(context),
            Binding.MODEL_MAX_OUTPUT_TOKENS: str(claude_code.output_tokens(context, None)),
        }
    )


def merged_settings(
    arguments: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    """The arguments without `--settings`, and the settings that were named with ours on top.

    Raises:
        InvalidInput: what `--settings` names is not a JSON object.
    """
    rest: list[str] = []
    given: dict[str, Any] = {}
    left = iter(arguments)
    for text in left:
        name, equals, value = text.partition("=")
        if text == "--":
            rest += [text, *left]
        elif name == "--settings":
            given = _settings(value if equals else next(left, ""))
        else:
            rest.append(text)
    ours = {**dict.fromkeys(claude_code.BYPASSING, ""), **env}
    own = given.get("env")
    base = cast(dict[str, Any], own) if isinstance(own, dict) else {}
    return rest, {**given, "env": {**base, **ours}}


def _settings(text: str) -> dict[str, Any]:
    data = text if text.lstrip().startswith("{") else read_file(text, "settings").decode()
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput(
            "The argument of --settings is not a JSON object.",
            object=ErrorObject(type="arguments", pointer="/settings"),
            next="Give Claude Code's settings as a JSON file, or as JSON.",
        )
    return cast(dict[str, Any], value)


async def _attend(argv: list[str], env: Mapping[str, str]) -> int:
    """Run a program on this terminal. When we are told to end it is ended first."""
    try:
        process = await started(argv, env=env, stdin=None, stdout=None, stderr=None)
    except OSError as error:
        raise unstartable(argv[0], error) from error
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, process)
            await process.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    code = await process.wait()
    return code if code >= 0 else 128 - code


async def _end_on_signal(process: anyio.abc.Process) -> None:
    with anyio.open_signal_receiver(*endings()) as signals:
        async for _ in signals:
            await _end(process)


async def _end(process: anyio.abc.Process) -> None:
    steps: tuple[Callable[[], None], ...] = (process.terminate, process.kill)
    for step in steps:
        if process.returncode is None:
            step()
            with anyio.move_on_after(_GRACE_SEC):
                await process.wait()


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _narrow(tokens: int) -> str:
    return (
        f"This model reads {tokens} tokens and Claude Code's own prompt can have {_FIRST_PROMPT}:"
        ' say less with --tools "Bash,Edit,Read" --system-prompt TEXT, or with --bare.'
    )


async def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


def _leave_it(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C reaches every process of the terminal; this one lets Claude Code decide."""
