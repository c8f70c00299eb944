"""Operations as tools.

Input is validated by the operation's own model and not before, so a bad argument is the same
problem here as on the command line. An operation that waits reports progress. Cancelling a call
stops the operation and changes nothing that it has asked for.
"""

import logging
from typing import Any

import mcp_types as types

from mcp_server.offers import Request, ToolOffer
from mcp_server.results import failure, fits, smaller, success, too_large
from mcp_server.schemas import listed_input, listed_output, listed_title
from runtime.home import Home
from specs.errors import Internal, PracticumError
from tools.context import Context
from tools.registry import Operation, Traits, call, operations

_LOG = logging.getLogger("practicum.mcp")


def tool_offers(home: Home) -> tuple[ToolOffer, ...]:
    """Every operation that an agent may use."""
    return tuple(_offer(home, one) for one in operations() if one.traits.agent)


def _offer(home: Home, chosen: Operation) -> ToolOffer:
    async def run(request: Request, values: dict[str, Any]) -> types.CallToolResult:
        return await run_tool(chosen, Context(home, progress=_Progress(request)), values)

    return ToolOffer(tool(chosen), run)


async def run_tool(
    chosen: Operation, context: Context, values: dict[str, Any]
) -> types.CallToolResult:
    """Call an operation; a page that is too large is read again with half the limit."""
    try:
        while True:
            result = await call(chosen, context, values)
            if fits(result):
                return success(chosen, result)
            less = smaller(chosen, values) if chosen.traits.read_only else None
            if less is None:
                return failure(too_large(chosen, values))
            values = less
    except PracticumError as error:
        return failure(error.problem)
    except Exception as error:  # noqa: BLE001 - a defect must not end the session
        _LOG.exception("%s failed", chosen.name)
        return failure(Internal(f"{type(error).__name__}: {error}").problem)


def tool(chosen: Operation) -> types.Tool:
    """An operation as MCP lists it, in a few words; `practicum://schemas/{tool}` has them all."""
    description = chosen.description.partition("\n\n")[0]
    return types.Tool(
        name=chosen.name,
        title=listed_title(chosen.summary, chosen.noun, chosen.verb, description),
        description=description,
        input_schema=listed_input(chosen.input),
        output_schema=listed_output(chosen.output),
        annotations=_annotations(chosen.traits),
    )


def _annotations(traits: Traits) -> types.ToolAnnotations:
    """What a tool does to the world; what MCP assumes anyway is left out."""
    if traits.read_only:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=traits.destructive,
        idempotent_hint=traits.idempotent or None,
        open_world_hint=False,
    )


class _Progress:
    """Sends each step as a progress notification, numbered; nobody need listen."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._steps = 0

    async def __call__(self, text: str) -> None:
        self._steps += 1
        await self._request.session.report_progress(self._steps, None, text)
