"""What a comparison of rows with a deployment finds: one cause each, at one place."""

from enum import StrEnum

from specs.base import Contract


class Cause(StrEnum):
    """Why a row does not fit; documented in `docs/model-spec.md`."""

    INSTRUCTIONS_DIFFER = "instructions_differ"
    TOOLS_DIFFER = "tools_differ"
    TOOL_UNKNOWN = "tool_unknown"
    ARGUMENTS_INVALID = "arguments_invalid"
    OUTPUT_DIFFERS = "output_differs"
    ANSWER_EMPTY = "answer_empty"
    PROGRAM_UNAVAILABLE = "program_unavailable"
    FILE_UNAVAILABLE = "file_unavailable"
    HOST_UNREACHABLE = "host_unreachable"
    WITHHELD_NAMED = "withheld_named"
    WRAPPER_ONLY = "wrapper_only"
    HELD_OUT_TASK = "held_out_task"
    HELD_OUT_ANSWER = "held_out_answer"


PARTS: dict[Cause, str] = {
    Cause.INSTRUCTIONS_DIFFER: "instructions",
    Cause.TOOLS_DIFFER: "tools",
    Cause.TOOL_UNKNOWN: "tools",
    Cause.ARGUMENTS_INVALID: "tools",
    Cause.OUTPUT_DIFFERS: "output",
    Cause.ANSWER_EMPTY: "output",
    Cause.PROGRAM_UNAVAILABLE: "output",
    Cause.FILE_UNAVAILABLE: "resources",
    Cause.HOST_UNREACHABLE: "deployment",
    Cause.WITHHELD_NAMED: "resources",
    Cause.WRAPPER_ONLY: "content",
    Cause.HELD_OUT_TASK: "held_out",
    Cause.HELD_OUT_ANSWER: "held_out",
}
"""The part of the specification, or of the data, that a cause is about."""


class Finding(Contract):
    """One thing that is wrong with one row."""

    row: int
    """Line of the file, from 1."""
    id: str | None
    """The row's own id as JSON text."""
    message: int | None
    """Index into the row's messages; None: the row as a whole."""
    part: str
    cause: Cause
    detail: str


class Variant(Contract):
    """One content of a part among the rows; a sound file has one, the specification's."""

    part: str
    digest: str
    rows: int
    first_row: int
