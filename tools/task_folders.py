"""Reading a folder of Harbor tasks: which there are, what they are called, their packages.

A task is a folder with a `task.toml`; its name is `[task] name`, its `[metadata]` goes into the
dataset. The errors name the file, so that an author can go there.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from specs import canonical
from specs.dataset import TaskEntry
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.package import pack
from specs.paths import user_path

REQUIRED = ("task.toml", "instruction.md")


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """A task and its package."""

    entry: TaskEntry
    package: bytes


def task_folders(folder: str) -> list[Path]:
    """Every task folder directly below `folder`, by name.

    Raises:
        InvalidInput: no such folder, a link among them, or not one task.
    """
    root = user_path(folder)
    if not root.is_dir():
        raise _invalid(root, "it is not a folder", "Name the folder that holds the task folders.")
    found: list[Path] = []
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            raise _invalid(path, "it is a symbolic link", "Put the task itself there.")
        if path.is_dir() and not path.name.startswith("."):
            if not (path / "task.toml").is_file():
                raise _invalid(path, "it has no task.toml", "Add one, or move the folder away.")
            found.append(path)
    if not found:
        raise _invalid(root, "it holds no task", "Put each task into a folder with a task.toml.")
    return found


def read_task(path: Path) -> TaskFolder:
    """One task.

    Raises:
        InvalidInput: `invalid_package`, naming the file.
    """
    for name in REQUIRED:
        file = path / name
        if file.is_symlink() or not file.is_file():
            raise _invalid(file, "there is no such regular file", f"Every task needs {name}.")
    settings = _settings(path / "task.toml")
    task = settings.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if not isinstance(name, str):
        raise _invalid(path / "task.toml", "[task] name is missing", 'Write: name = "org/task"')
    metadata = settings.get("metadata", {})
    package = pack(path)
    value: dict[str, JsonValue] = {
        "name": name,
        "digest": canonical.digest_bytes(package),
        "size": len(package),
        "metadata": metadata,
    }
    try:
        canonical.canonical_bytes(metadata)
    except ValueError as error:
        raise _invalid(
            path / "task.toml",
            f"[metadata] is not JSON: {error}",
            "Use text, finite numbers, booleans, lists and tables; write dates as text.",
        ) from None
    try:
        return TaskFolder(canonical.validate(TaskEntry, value, what="task"), package)
    except InvalidInput as error:
        raise _invalid(path / "task.toml", error.problem.detail, "Correct the file.") from None


def _settings(path: Path) -> dict[str, JsonValue]:
    try:
        return cast(dict[str, JsonValue], tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _invalid(path, f"it is not valid TOML: {error}", "Correct the file.") from None


def _invalid(path: Path, cause: str, step: str) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be used: {cause}.",
        code=ErrorCode.INVALID_PACKAGE,
        object=ErrorObject(type="task", id=str(path)),
        next=step,
    )
