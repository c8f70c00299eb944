"""What a server is put together from: offers of tools, resources and prompts.

The server itself only finds who offers what is asked for. Practicum's own offers are made out of
the registry of operations; another offer can stand beside them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.uri_template import UriTemplate

type Request = ServerRequestContext[dict[str, Any]]
type Contents = list[types.TextResourceContents | types.BlobResourceContents]
type Call = Callable[[Request, dict[str, Any]], Awaitable[types.CallToolResult]]
type Read = Callable[[str, Mapping[str, str]], Awaitable[Contents]]
type Messages = Callable[[Mapping[str, str]], list[types.PromptMessage]]
type Complete = Callable[[str, str], Awaitable[list[str] | None]]


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as it is listed, and how it is called."""

    listed: types.Tool
    call: Call


@dataclass(frozen=True, slots=True)
class ResourceOffer:
    """A resource, or a template of many; `read` takes the URI and the template's variables."""

    listed: types.Resource | types.ResourceTemplate
    read: Read

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of a URI that this offer reads, else None."""
        if isinstance(self.listed, types.Resource):
            return {} if uri == self.listed.uri else None
        found = UriTemplate.parse(self.listed.uri_template).match(uri)
        if found is None:
            return None
        return {name: value for name, value in found.items() if isinstance(value, str)}


@dataclass(frozen=True, slots=True)
class PromptOffer:
    """A prompt as it is listed, and its messages for given arguments."""

    listed: types.Prompt
    messages: Messages


@dataclass(frozen=True, slots=True)
class Offer:
    """All that one part of the system brings to a server.

    :ivar complete: takes the name of an argument and what has been written of it; None where it
        does not know the argument.
    """

    tools: tuple[ToolOffer, ...] = ()
    resources: tuple[ResourceOffer, ...] = ()
    prompts: tuple[PromptOffer, ...] = ()
    complete: Complete | None = None
