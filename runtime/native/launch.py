"""Executing a launch plan in a folder of its user's own.

The plan is the one that a trial executes; only bindings differ. Here the folder is somebody's:
files are written below it and below the session's own folder alone, and a file that is there
with other content is left alone unless it may be replaced. The harness runs in a process group
of its own, which ends with the launch.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.abc

from specs import claude_code
from specs.errors import Conflict, ErrorObject, InvalidInput, PracticumError, Unavailable
from specs.launch import LaunchFile, LaunchPlan
from specs.paths import resolved

TERM_GRACE_SEC = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a harness ended.

    :ivar code: its exit status; None when it was ended at its deadline.
    :ivar missing: required outputs that are not there.
    """

    code: int | None
    missing: tuple[str, ...]


async def execute(
    plan: LaunchPlan, state: Path, log: IO[bytes], *, replace: bool, timeout: float | None
) -> Ended:
    """Write the plan's files, run its setup and its harness; output goes to `log`.

    On cancel the harness is ended with its process group, and what it wrote stays.

    Raises:
        InvalidInput: a file would lie outside of the folder, or a setup command failed.
        Conflict: a file is there with other content.
        Unavailable: the program cannot be started.
    """
    workdir = Path(plan.workdir)
    write_files(plan.files, (workdir, state), replace=replace)
    env = inherited(os.environ) | plan.env
    for command in plan.setup:
        log.write(f"+ {command}\n".encode())
        log.flush()
        done = await _run(["bash", "-c", command], workdir, env, None, log, None)
        if done != 0:
            raise InvalidInput(
                f"The setup command {command!r} ended with {done}.",
                object=ErrorObject(type="profile", pointer="/agent/setup"),
                next="Read the harness's log, and correct the command.",
            )
    code = await _run(list(plan.argv), workdir, env, plan.stdin, log, timeout)
    return Ended(code, _missing(plan))


def _missing(plan: LaunchPlan) -> tuple[str, ...]:
    required = (output for output in plan.outputs if output.required)
    return tuple(output.name for output in required if not Path(output.path).is_file())


def inherited(source: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without what routes a harness elsewhere."""
    ours = {*claude_code.BOUND, *claude_code.BYPASSING, "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"}
    found = {name: value for name, value in source.items() if name not in ours}
    for name in ("NO_PROXY", "no_proxy"):
        found[name] = ",".join(part for part in (claude_code.LOOPBACK, source.get(name)) if part)
    return found


def write_files(files: tuple[LaunchFile, ...], roots: tuple[Path, ...], *, replace: bool) -> None:
    """Write files below `roots`; nothing is written when one of them must not be.

    Raises:
        InvalidInput: a file lies elsewhere.
        Conflict: one is there with other content.
    """
    for index, file in enumerate(files):
        _check(file, f"/agent/files/{index}", roots, replace=replace)
    for file in files:
        path = Path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
        path.chmod(file.mode)


def _check(file: LaunchFile, pointer: str, roots: tuple[Path, ...], *, replace: bool) -> None:
    path = Path(file.path)
    place = ErrorObject(type="profile", pointer=pointer)
    real = resolved(path)
    if not any(real.is_relative_to(resolved(root)) for root in roots):
        raise InvalidInput(
            f"The profile's file {file.path} is not below the chosen folder.",
            object=place,
            next="Use a path relative to the workdir, or ${engine.config}/… for Claude Code.",
        )
    if replace or not path.exists():
        return
    if not path.is_file() or path.read_bytes() != file.content.encode():
        raise Conflict(
            f"{file.path} is there already, with other content than the profile's.",
            object=place,
            next="Choose another --workdir, or allow it: --replace-files",
        )


async def _run(
    argv: list[str],
    workdir: Path,
    env: Mapping[str, str],
    stdin: str | None,
    log: IO[bytes],
    timeout: float | None,
) -> int | None:
    """Run one program to its end; None when that was its deadline."""
    try:
        process = await started(
            argv,
            cwd=workdir,
            env=env,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise unstartable(argv[0], error) from error
    try:
        with anyio.move_on_after(timeout):
            if process.stdin is not None and stdin is not None:
                await _feed(process.stdin, stdin)
            return await process.wait()
        return None
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def started(argv: list[str], **options: Any) -> anyio.abc.Process:
    """Start a program; never cancelled half-way, when it could not be ended as a group."""
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(argv, **options)
    raise AssertionError("a shielded scope is left by its return")


async def _feed(target: anyio.abc.ByteSendStream, text: str) -> None:
    try:
        await target.send(text.encode())
        await target.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # it does not read its input, which is its own business


async def _end(process: anyio.abc.Process) -> None:
    """End what is left of a process group, politely at first."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        with anyio.move_on_after(TERM_GRACE_SEC):
            await process.wait()
            while _lives(process.pid):  # noqa: ASYNC110 - others of its group
                await anyio.sleep(0.02)
            break
    await process.wait()


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def unstartable(program: str, error: OSError) -> PracticumError:
    """The error of a program that cannot be started."""
    return Unavailable(
        f"{program} cannot be started: {error.strerror or error}.",
        object=ErrorObject(type="program", id=program),
        next="Check the profile's first argument; for Claude Code: practicum agent install",
    )
