"""Resources: records by their address, read by the operation that the tool of that record calls.

    practicum://runs                        the newest runs; likewise datasets, profiles, …
    practicum://runs/{run}                  one run; below it events, result
    practicum://checkpoints/{checkpoint}
    practicum://constructions/{construction}
    practicum://datasets/{+dataset}         org/name@version
    practicum://profiles/{+profile}
    practicum://journals/{journal}          its newest entries
    practicum://schemas                     names of what has a schema
    practicum://schemas/{name}              a tool's input and output, or a document such as plan

A resource is JSON within the bound of a tool's result: a page that is too large is cut the same
way, and what cannot be cut is refused with the same problem.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from pydantic import TypeAdapter

from mcp_server.calls import run_tool
from mcp_server.offers import Contents, ResourceOffer
from mcp_server.results import MAX_CONTENT_CHARS
from mcp_server.schemas import full_schemas
from runtime.home import Home
from specs.errors import (
    ErrorCode,
    ErrorObject,
    InvalidInput,
    NotFound,
    PracticumError,
    Problem,
)
from specs.export import DOCUMENTS
from tools.context import Context
from tools.registry import Operation, find, operations

MIME = "application/json"
SCHEMES = "practicum://schemas"


@dataclass(frozen=True, slots=True)
class View:
    """An address, and the reading operation whose result stands there.

    The variables of the address are fields of the operation's input.
    """

    address: str
    noun: str
    verb: str


VIEWS = (
    View("practicum://runs", "run", "list"),
    View("practicum://runs/{run}", "run", "show"),
    View("practicum://runs/{run}/events{?after,limit}", "run", "events"),
    View("practicum://runs/{run}/result", "run", "result"),
    View("practicum://checkpoints", "checkpoint", "list"),
    View("practicum://checkpoints/{checkpoint}", "checkpoint", "show"),
    View("practicum://constructions", "construction", "list"),
    View("practicum://constructions/{construction}", "construction", "show"),
    View("practicum://datasets", "dataset", "list"),
    View("practicum://datasets/{+dataset}", "dataset", "show"),
    View("practicum://profiles", "profile", "list"),
    View("practicum://profiles/{+profile}", "profile", "show"),
    View("practicum://journals", "journal", "list"),
    View("practicum://journals/{journal}", "journal", "show"),
)


def resource_offers(home: Home) -> tuple[ResourceOffer, ...]:
    """Every resource and template."""
    views = tuple(_view(home, view) for view in VIEWS)
    names = _resource(SCHEMES, "schemas", "Names of the tools and documents that have a schema")
    one = _resource(
        f"{SCHEMES}/{{name}}", "schema", "Full schemas of a tool, or of a document such as plan"
    )
    return (*views, ResourceOffer(names, _schema_names), ResourceOffer(one, _schema))


def _view(home: Home, view: View) -> ResourceOffer:
    chosen = find(view.noun, view.verb)

    async def read(uri: str, variables: Mapping[str, str]) -> Contents:
        result = await run_tool(chosen, Context(home), dict(variables))
        if result.is_error:
            raise PracticumError.from_problem(Problem.model_validate(result.structured_content))
        return _json(uri, result.structured_content)

    return ResourceOffer(_resource(view.address, chosen.name, chosen.summary), read)


def _resource(address: str, name: str, about: str) -> types.Resource | types.ResourceTemplate:
    """A template if the address has variables, else a resource."""
    if "{" in address:
        return types.ResourceTemplate(
            uri_template=address, name=name, description=about, mime_type=MIME
        )
    return types.Resource(uri=address, name=name, description=about, mime_type=MIME)


def schema_names() -> list[str]:
    """What `practicum://schemas/{name}` knows: tools first, then documents."""
    return [*_by_name(), *DOCUMENTS]


async def _schema_names(uri: str, _: Mapping[str, str]) -> Contents:
    return _json(uri, {"tools": list(_by_name()), "documents": list(DOCUMENTS)})


async def _schema(uri: str, variables: Mapping[str, str]) -> Contents:
    name = variables["name"]
    chosen = _by_name().get(name)
    if chosen is not None:
        about = {"tool": name, "description": chosen.description}
        return _json(uri, {**about, **full_schemas(chosen.input, chosen.output)})
    if name not in DOCUMENTS:
        raise NotFound(
            f"There is no schema {name!r}.",
            object=ErrorObject(type="schema", id=name),
            next=f"Read {SCHEMES} for the names.",
        )
    return _json(uri, TypeAdapter[Any](DOCUMENTS[name]).json_schema())


def _by_name() -> dict[str, Operation]:
    return {one.name: one for one in operations() if one.traits.agent}


def _json(uri: str, value: Any) -> Contents:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_CONTENT_CHARS:
        raise InvalidInput(
            f"The resource {uri} is larger than {MAX_CONTENT_CHARS} characters.",
            code=ErrorCode.BODY_TOO_LARGE,
            object=ErrorObject(type="resource", id=uri),
            next="Schemas of any size: practicum schema export --to FOLDER",
        )
    return [types.TextResourceContents(uri=uri, mime_type=MIME, text=text)]
