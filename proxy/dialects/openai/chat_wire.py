"""Bodies of Chat Completions as they arrive: known fields typed, everything else let pass."""

from typing import Literal

from pydantic import Field, JsonValue

from proxy.dialects.openai.content import Part, Wire
from specs.canonical import MAX_SAFE_INTEGER

MAX_STOP_SEQUENCES = 64


class CalledFunction(Wire):
    name: str = Field(min_length=1, max_length=256)
    arguments: str = ""


class ToolCall(Wire):
    id: str = Field(min_length=1, max_length=256)
    type: str = "function"
    function: CalledFunction | None = None


class ChatMessage(Wire):
    """A message of any role; which fields a role must have is the reader's business."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same under the name that some servers use."""
    function_call: JsonValue = None


class FunctionSpec(Wire):
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class ChatTool(Wire):
    type: str = "function"
    function: FunctionSpec | None = None


class StreamOptions(Wire):
    include_usage: bool | None = None


class ChatBody(Wire):
    """Body of `POST /v1/chat/completions`."""

    model: str = Field(min_length=1, max_length=512)
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ChatTool] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: JsonValue = None
    functions: JsonValue = None
    function_call: JsonValue = None
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_SAFE_INTEGER)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_SAFE_INTEGER)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=MAX_SAFE_INTEGER)
    seed: int | None = None
    stop: str | list[str] | None = Field(default=None, max_length=MAX_STOP_SEQUENCES)
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
