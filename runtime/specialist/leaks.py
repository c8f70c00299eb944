"""Held-out tasks: their texts and answers, to be found nowhere among the rows.

A task is leaked by its instruction in a row, or by an answer that holds every command of its
solution. Both are compared after folding case and white space. What every solution has (the
first line, `set`, `cd`, comments) is not part of an answer.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specs.errors import ErrorCode, ErrorObject, InvalidInput

MIN_CONTAINED = 20
"""Characters from which an instruction counts also as a part of a longer text."""
MIN_ANSWER = 8
"""Characters below which a solution says too little to be told from chance."""
_MAX_BYTES = 1 << 20
_IDLE = re.compile(r"(#.*|set [-+].*|cd( .*)?|exit( \d+)?|:|true)?")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """A task that no row may contain."""

    name: str
    instruction: str
    """Folded."""
    answer: frozenset[str]
    """Folded commands of the solution; empty where there is none to compare."""

    @classmethod
    def of(cls, name: str, instruction: str, solution: str | None) -> "HeldOutTask":
        """A task, its texts folded."""
        lines = frozenset(
            fold(line)
            for line in (solution or "").splitlines()
            if not _IDLE.fullmatch(line.strip())
        )
        told = sum(map(len, lines)) >= MIN_ANSWER
        return cls(name, fold(instruction), lines if told else frozenset())


def read_held_out(folders: Iterable[Path]) -> list[HeldOutTask]:
    """The tasks of some Harbor task folders.

    Raises:
        InvalidInput: an instruction or a solution that cannot be read.
    """
    found: list[HeldOutTask] = []
    for folder in folders:
        instruction = _text(folder / "instruction.md")
        solution = folder / "solution" / "solve.sh"
        answer = _text(solution) if solution.exists() else None
        found.append(HeldOutTask.of(folder.name, instruction, answer))
    return found


def told(text: str, tasks: Iterable[HeldOutTask]) -> Iterator[HeldOutTask]:
    """Tasks whose instruction stands in a text."""
    folded = fold(text)
    for task in tasks:
        long = len(task.instruction) >= MIN_CONTAINED
        if task.instruction and (
            task.instruction == folded or (long and task.instruction in folded)
        ):
            yield task


def answered(lines: Iterable[str], tasks: Iterable[HeldOutTask]) -> Iterator[HeldOutTask]:
    """Tasks whose whole answer stands among some lines."""
    folded = {fold(line) for line in lines}
    for task in tasks:
        if task.answer and task.answer <= folded:
            yield task


def fold(text: str) -> str:
    """Text in which case and white space make no difference."""
    return _SPACE.sub(" ", text).strip().casefold()


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    if len(data) > _MAX_BYTES:
        raise _unusable(path, f"it is larger than {_MAX_BYTES} bytes")
    return data.decode("utf-8", errors="replace")


def _unusable(path: Path, cause: str) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be used: {cause}.",
        code=ErrorCode.INVALID_PACKAGE,
        object=ErrorObject(type="task", id=str(path)),
        next="Name a folder of whole Harbor tasks.",
    )
