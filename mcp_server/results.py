"""Results of tools: structured content within a bound, and problems.

A result is at most about 8k tokens, so that one call never floods a model's context: a page
that is larger is read again with half the limit, and its cursor says where to go on.
"""

import json
from typing import Any

import mcp_types as types
from pydantic import BaseModel

from specs.errors import ErrorCode, ErrorObject, InvalidInput, Problem
from tools.failures import as_text
from tools.registry import Operation

MAX_CONTENT_CHARS = 24_000
"""Structured content of one result as JSON; ids and numbers take about a token per 3 chars."""
MAX_TEXT_CHARS = 4_000


def success(chosen: Operation, result: BaseModel) -> types.CallToolResult:
    """The result of an operation."""
    text = chosen.text(result)
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "\n… (the structured content has all of it)"
    return types.CallToolResult(
        content=[types.TextContent(text=text or chosen.summary)],
        structured_content=result.model_dump(mode="json"),
    )


def failure(problem: Problem) -> types.CallToolResult:
    """A failure, as a result that the model reads."""
    return types.CallToolResult(
        content=[types.TextContent(text=as_text(problem))],
        structured_content=problem.model_dump(mode="json"),
        is_error=True,
    )


def fits(result: BaseModel) -> bool:
    """Whether a result is within the bound."""
    return len(result.model_dump_json()) <= MAX_CONTENT_CHARS


def smaller(chosen: Operation, values: dict[str, Any]) -> dict[str, Any] | None:
    """The same call for half as much, or None where the operation has no limit to lower.

    The values are some that the operation has taken. Its input says what a limit is: in an
    address it is written as text.
    """
    request = chosen.input.model_validate(values)
    for name in ("limit", "token_limit"):
        field = chosen.input.model_fields.get(name)
        if field is None:
            continue
        limit = getattr(request, name) or field.get_default()
        if isinstance(limit, int) and limit > 1:
            return {**values, name: limit // 2}
    return None


def too_large(chosen: Operation, values: dict[str, Any]) -> Problem:
    """The problem of a result that cannot be cut."""
    arguments = json.dumps(values)[:500]
    return InvalidInput(
        f"The result of {chosen.name} is larger than {MAX_CONTENT_CHARS} characters.",
        code=ErrorCode.BODY_TOO_LARGE,
        object=ErrorObject(type="tool", id=chosen.name),
        next=f"Ask for less, or read it with `practicum {chosen.noun} {chosen.verb} --json`"
        f" and these arguments: {arguments}",
    ).problem
