"""The server: lists the operations as tools and calls them.

Input is validated by the operation's own model and not before, so a bad argument is the same
problem here as on the command line. An operation that waits reports progress. Cancelling a call
stops the operation and changes nothing that it has asked for.
"""

import logging
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from mcp_server.results import failure, fits, smaller, success, too_large
from mcp_server.schemas import listed_input, listed_output
from runtime.home import Home
from runtime.supervisor.daemon import program_version
from specs.errors import ErrorObject, Internal, NotFound, PracticumError
from tools.context import Context
from tools.registry import Operation, Traits, call, operations

INSTRUCTIONS = """\
Practicum runs attempts at tasks with an agent in its own harness, scores them, trains on them,
and evaluates the checkpoints. Start work with run_start (evaluation) or train_start (training);
both take dataset, actor and plan, and with dry_run they only show what would be admitted. Runs
are durable: keep the id, wait with run_wait or read run_events from a cursor, then read
run_result, run_trials, run_updates, run_checkpoints. To evaluate a checkpoint, put its id into
agent.model of the same profile, run_start it on held-out tasks, and run_compare the two runs.
Ids may be short where they are unique. A list has `limit` and `cursor` (the `next` of the page
before). A failed call has isError and a problem document: branch on `code`, do what `next` says;
`practicum run show X` there is the tool run_show here."""

_LOG = logging.getLogger("practicum.mcp")


def build_server(home: Home) -> Server[dict[str, Any]]:
    """The MCP server for the stack of one home."""
    offered = [operation for operation in operations() if operation.traits.agent]
    by_name = {operation.name: operation for operation in offered}
    listed = [tool(operation) for operation in offered]

    async def list_tools(
        _: ServerRequestContext[dict[str, Any]], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        request: ServerRequestContext[dict[str, Any]], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        chosen = by_name.get(params.name)
        if chosen is None:
            return failure(_unknown(params.name, sorted(by_name)))
        context = Context(home, progress=_Progress(request))
        return await run_tool(chosen, context, dict(params.arguments or {}))

    return Server(
        "practicum",
        title="Practicum",
        version=program_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


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
    """An operation as MCP lists it: in a few words."""
    return types.Tool(
        name=chosen.name,
        title=chosen.summary,
        description=chosen.description.partition("\n\n")[0],
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

    def __init__(self, request: ServerRequestContext[dict[str, Any]]) -> None:
        self._request = request
        self._steps = 0

    async def __call__(self, text: str) -> None:
        self._steps += 1
        await self._request.session.report_progress(self._steps, None, text)


def _unknown(name: str, known: Sequence[str]) -> Any:
    return NotFound(
        f"There is no tool {name!r}.",
        object=ErrorObject(type="tool", id=name),
        next=f"Use one of: {', '.join(known)}",
    ).problem
