"""Bodies of the Responses API as they arrive: known fields typed, everything else let pass."""

from typing import Annotated, Any, Literal, cast

from pydantic import Discriminator, Field, JsonValue, Tag

from proxy.dialects.openai import content
from proxy.dialects.openai.content import Part, Wire
from specs.canonical import MAX_SAFE_INTEGER


class MessageItem(Wire):
    """A message; the type may be left out."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]


class CallItem(Wire):
    call_id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    arguments: str


class OutputItem(Wire):
    call_id: str = Field(min_length=1, max_length=256)
    output: str | list[Part]


class ReasoningItem(Wire):
    id: str | None = None
    summary: list[Part] | None = None
    content: list[Part] | None = None


class OtherItem(Wire):
    type: str


TAGS = content.TAGS | {"message", "function_call", "function_call_output", "reasoning"}
_ITEMS = TAGS - content.TAGS


def _kind(value: Any) -> str:
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    kind = str(fields.get("type") or ("message" if "role" in fields else ""))
    return kind if kind in _ITEMS else "other"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[OutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_kind),
]


class ResponseTool(Wire):
    """A function, or one of the tools that OpenAI runs itself."""

    type: str
    name: str = Field(default="", max_length=256)
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class ResponseBody(Wire):
    """Body of `POST /v1/responses`."""

    model: str = Field(min_length=1, max_length=512)
    input: str | list[Item]
    instructions: str | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: JsonValue = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_SAFE_INTEGER)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stream: bool | None = None
