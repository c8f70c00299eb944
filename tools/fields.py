"""How a field of an operation's input appears on the command line, and shared field types."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from specs.base import Contract

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h)?$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


@dataclass(frozen=True, slots=True)
class Cli:
    """Marker in `Annotated`: a positional argument, or an option under another name.

    `agent` False keeps a field from MCP: it only makes sense at a terminal.
    """

    positional: bool = False
    option: str | None = None
    metavar: str | None = None
    agent: bool = True


class Input(Contract):
    """Base of every operation's input."""


def parse_duration(value: object) -> object:
    """Seconds from `90`, `90s`, `10m` or `1h`; anything else is left for the type to refuse.

    Raises:
        ValueError: text that is no duration.
    """
    if not isinstance(value, str):
        return value
    match = _DURATION.match(value.strip())
    if match is None:
        raise ValueError("write a duration as 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


Duration = Annotated[
    float, BeforeValidator(parse_duration, json_schema_input_type=float | str), Field(ge=0)
]
"""Seconds as a number, or text such as `10m`."""

RunRef = Annotated[str, Field(description="Run id; a unique short form will do"), Cli(True)]
Limit = Annotated[int, Field(ge=1, le=500, description="Records on one page")]
Cursor = Annotated[
    str | None, Field(description="Where to go on: `next` of the page before"), Cli(metavar="NEXT")
]
Document = Annotated[
    dict[str, JsonValue] | str,
    Field(description="The document itself, @file.json, or org/name@version where published"),
    Cli(metavar="@FILE"),
]
