"""The server: finds the offer behind what a client asks for.

What is asked for by a name that nobody offers is told as MCP tells it: for a tool as a result
with a problem that the model reads, for a resource or a prompt as a protocol error that carries
the problem. One server serves any number of connections.
"""

from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_server.calls import tool_offers
from mcp_server.completions import completer
from mcp_server.offers import Offer, Request
from mcp_server.prompts import prompt_offers
from mcp_server.resources import resource_offers
from mcp_server.results import failure
from runtime.home import Home
from runtime.supervisor.daemon import program_version
from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound, PracticumError, Problem

INSTRUCTIONS = """\
Practicum runs attempts at tasks with an agent in its own harness, scores them, trains on them,
and evaluates the checkpoints. Start with run_start (evaluation) or train_start (training); both
take dataset, actor and plan, and with `dry_run` only show what would be admitted. Runs are durable:
run_wait, or run_events from a cursor, then run_result, run_trials, run_updates, run_checkpoints.
To evaluate a checkpoint, put its id into agent.model of the same profile, run_start it on held-out
tasks, and run_compare the two. Say what a specialist is to do with model_spec_create; check its
rows with model_spec_check. Keep a journal: journal_show first where another has begun, journal_new,
journal_append.
Unless a field says more: `run`, `trial`, `update`, `checkpoint` are ids or unique short forms;
`dataset` is org/name@version; `plan`, `actor`, `profile`, `spec`, `episode` are the object or
@file.json, an `actor` also org/name@version; `journal` is a name or a folder; `limit` bounds a
page, `cursor` is the `next` of the one before. A relative path starts at this server's folder.
practicum://schemas/{name} has the full schemas of each tool, of plan and profile.
A failed call has isError and a problem: branch on `code`, do what `next` says;
`practicum run show X` there is run_show here."""

COMPLETIONS = 100
"""At most so many values may be answered, MCP says."""


def build_server(home: Home, *more: Offer) -> Server[dict[str, Any]]:
    """The MCP server for the stack of one home, with further offers beside its own."""
    own = Offer(tool_offers(home), resource_offers(home), prompt_offers(), completer(home))
    desk = _Desk((own, *more))
    return Server(
        "practicum",
        title="Practicum",
        version=program_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=desk.list_tools,
        on_call_tool=desk.call_tool,
        on_list_resources=desk.list_resources,
        on_list_resource_templates=desk.list_templates,
        on_read_resource=desk.read_resource,
        on_list_prompts=desk.list_prompts,
        on_get_prompt=desk.get_prompt,
        on_completion=desk.complete,
    )


class _Desk:
    """Handlers of the protocol's requests over a set of offers."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._tools = {tool.listed.name: tool for one in offers for tool in one.tools}
        self._resources = [resource for one in offers for resource in one.resources]
        self._prompts = {prompt.listed.name: prompt for one in offers for prompt in one.prompts}
        self._completers = [one.complete for one in offers if one.complete is not None]

    async def list_tools(self, _: Request, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.listed for tool in self._tools.values()])

    async def call_tool(
        self, request: Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        chosen = self._tools.get(params.name)
        if chosen is None:
            return failure(_unknown("tool", params.name, self._tools))
        return await chosen.call(request, dict(params.arguments or {}))

    async def list_resources(self, _: Request, __: Any) -> types.ListResourcesResult:
        listed = [one.listed for one in self._resources]
        return types.ListResourcesResult(
            resources=[one for one in listed if isinstance(one, types.Resource)]
        )

    async def list_templates(self, _: Request, __: Any) -> types.ListResourceTemplatesResult:
        listed = [one.listed for one in self._resources]
        return types.ListResourceTemplatesResult(
            resource_templates=[one for one in listed if isinstance(one, types.ResourceTemplate)]
        )

    async def read_resource(
        self, _: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        for one in self._resources:
            variables = one.match(params.uri)
            if variables is None:
                continue
            try:
                return types.ReadResourceResult(contents=await one.read(params.uri, variables))
            except PracticumError as error:
                raise _protocol_error(error.problem) from None
        raise _protocol_error(
            NotFound(
                f"There is no resource {params.uri}.",
                object=ErrorObject(type="resource", id=params.uri),
                next="resources/list and resources/templates/list say what there is.",
            ).problem
        )

    async def list_prompts(self, _: Request, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[one.listed for one in self._prompts.values()])

    async def get_prompt(
        self, _: Request, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        chosen = self._prompts.get(params.name)
        if chosen is None:
            raise _protocol_error(_unknown("prompt", params.name, self._prompts))
        given = params.arguments or {}
        missing = [
            argument.name
            for argument in chosen.listed.arguments or []
            if argument.required and not given.get(argument.name)
        ]
        if missing:
            raise _protocol_error(
                InvalidInput(
                    f"The prompt {params.name} needs {', '.join(missing)}.",
                    code=ErrorCode.INVALID_DOCUMENT,
                    object=ErrorObject(type="prompt", id=params.name, pointer=f"/{missing[0]}"),
                    next="Give each argument that prompts/list says is required.",
                ).problem
            )
        return types.GetPromptResult(
            description=chosen.listed.description, messages=chosen.messages(given)
        )

    async def complete(
        self, _: Request, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        found: list[str] = []
        for complete in self._completers:
            values = await complete(params.argument.name, params.argument.value)
            if values is not None:
                found = values
                break
        return types.CompleteResult(
            completion=types.Completion(
                values=found[:COMPLETIONS], total=len(found), has_more=len(found) > COMPLETIONS
            )
        )


def _protocol_error(problem: Problem) -> MCPError:
    """A problem where the protocol has no result to carry it: its own error, with the problem."""
    code = types.INVALID_PARAMS if problem.status < 500 else types.INTERNAL_ERROR
    return MCPError(code, problem.detail, problem.model_dump(mode="json"))


def _unknown(kind: str, name: str, known: Sequence[str] | dict[str, Any]) -> Problem:
    return NotFound(
        f"There is no {kind} {name!r}.",
        object=ErrorObject(type=kind, id=name),
        next=f"Use one of: {', '.join(sorted(known))}",
    ).problem
