"""Bodies of the Messages API as they arrive: known fields typed, everything else let pass."""

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from specs.canonical import MAX_SAFE_INTEGER

MAX_STOP_SEQUENCES = 64


class Wire(BaseModel):
    """Strict about what it names, silent about the rest."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class TextPart(Wire):
    type: Literal["text"]
    text: str


class ThinkingPart(Wire):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUsePart(Wire):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    input: dict[str, JsonValue]


class MediaSource(Wire):
    """Where an image or a document comes from; only text in it is ever read."""

    type: Literal["base64", "url", "file", "text", "content"]
    media_type: str = ""
    data: str = ""
    content: "str | list[Part]" = ""


class MediaPart(Wire):
    type: Literal["image", "document"]
    source: MediaSource
    title: str | None = None
    context: str | None = None


class SearchResultPart(Wire):
    type: Literal["search_result"]
    title: str
    source: str
    content: "list[Part]"


class ToolReferencePart(Wire):
    type: Literal["tool_reference"]
    tool_name: str


class ToolResultPart(Wire):
    type: Literal["tool_result"]
    tool_use_id: str
    content: "str | list[Part] | None" = None
    is_error: bool | None = None


class OtherPart(Wire):
    type: str


TAGS = frozenset(
    {
        "text",
        "thinking",
        "tool_use",
        "media",
        "search_result",
        "tool_reference",
        "tool_result",
        "other",
    }
)


def _kind(value: Any) -> str:
    kind = str(cast(Any, value).get("type") if isinstance(value, dict) else None)
    if kind in ("image", "document"):
        return "media"
    return kind if kind in TAGS and kind != "media" else "other"


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[ToolUsePart, Tag("tool_use")]
    | Annotated[MediaPart, Tag("media")]
    | Annotated[SearchResultPart, Tag("search_result")]
    | Annotated[ToolReferencePart, Tag("tool_reference")]
    | Annotated[ToolResultPart, Tag("tool_result")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(_kind),
]


class WireMessage(Wire):
    role: Literal["user", "assistant", "system"]
    content: str | list[Part]


class WireTool(Wire):
    """A tool of the client, or (with another `type` than custom) one of Anthropic's own."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: str | None = None
    name: str = Field(default="", max_length=256)
    description: str | None = None
    input_schema: dict[str, JsonValue] | None = None


class WireToolChoice(Wire):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class CountBody(Wire):
    """Body of `count_tokens`."""

    model: str = Field(min_length=1, max_length=512)
    messages: list[WireMessage] = Field(min_length=1)
    system: str | list[Part] | None = None
    tools: list[WireTool] | None = None
    tool_choice: WireToolChoice | None = None
    thinking: JsonValue = None


class MessageBody(CountBody):
    """Body of `messages`."""

    max_tokens: int = Field(ge=1, le=MAX_SAFE_INTEGER)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=MAX_SAFE_INTEGER)
    stop_sequences: list[str] | None = Field(default=None, max_length=MAX_STOP_SEQUENCES)
    stream: bool | None = None


for model in (MediaSource, SearchResultPart, ToolResultPart):
    model.model_rebuild()
