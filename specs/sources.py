"""What a supervised plan learns from: recorded trials of a run, or rows of a file.

A file is named by its path when the plan is written. Whoever submits the plan uploads the bytes
and states digest, size and number of rows; from then on the digest is what counts, and the path
is a name for people.
"""

import re
from typing import Annotated, Any, Literal, cast

from pydantic import Discriminator, Field, Tag, field_validator

from specs.base import Contract
from specs.ids import Digest, Id

_SELECT = re.compile(r"^\s*reward\s*(>=|<=|==|>|<)\s*(-?\d+(?:\.\d+)?)\s*$")

MAX_FILE_BYTES = 256 << 20
MAX_ROWS = 1_000_000


class RunSource(Contract):
    """Recorded trials to learn from: a run, and a condition on the assessed reward."""

    run: Id
    select: str = "reward >= 1"

    @field_validator("select")
    @classmethod
    def _grammar(cls, text: str) -> str:
        if not _SELECT.match(text):
            raise ValueError("write it as: reward >= 1 (one of >= <= == > <, and a number)")
        return text

    def accepts(self, reward: float) -> bool:
        """Whether a trial with this reward is selected."""
        match = _SELECT.match(self.select)
        assert match is not None  # validated above
        bound = float(match[2])
        return {
            ">=": reward >= bound,
            "<=": reward <= bound,
            "==": reward == bound,
            ">": reward > bound,
            "<": reward < bound,
        }[match[1]]


class FileSource(Contract):
    """Conversations of a chat JSONL file (see `specs.chat`), one example per line."""

    file: str = Field(min_length=1, max_length=1024)
    """Its path as the author wrote it, relative to the plan."""
    digest: Digest | None = None
    size: int | None = Field(default=None, ge=1, le=MAX_FILE_BYTES)
    rows: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    train_on: Literal["all_assistant", "last_assistant"] = "all_assistant"
    """Which turns are targets; a message with `"weight": 0` never is."""
    overlong: Literal["refuse", "exclude"] = "refuse"
    """A row that does not fit the model's context: an error that names it, or left out and
    counted. None is cut."""


class Validation(FileSource):
    """Rows that are only scored: forward passes, no gradient."""

    every_examples: int = Field(ge=1)
    """Scored whenever so many training examples more have been processed, and at the end."""


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "file" if "file" in cast(dict[str, Any], value) else "run"
    return "file" if isinstance(value, FileSource) else "run"


Source = Annotated[
    Annotated[RunSource, Tag("run")] | Annotated[FileSource, Tag("file")], Discriminator(_kind)
]
SOURCE_TAGS = frozenset({"run", "file"})
