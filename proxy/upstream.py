"""Asking an upstream: a conversation goes out in its API, the answer comes back as blocks.

An upstream answers in text, so its text is what is kept, and the tokens beside it are counted
by a tokenizer that is not its own: provenance `upstream`, no log-probabilities, never learned
from by importance sampling. Tool calls get ids of ours, as all answers do. Its key is read from
the proxy's environment, sent to its base URL, and put nowhere else: no error, log or record
holds it (invariant 13).
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import httpx
import numpy as np
from pydantic import JsonValue

from proxy.chains import answer_blocks
from proxy.dialects.base import signature
from proxy.dialects.body import checked, read_value
from proxy.hearing import Heard
from proxy.models import Voice
from runtime.compute.protocol import Sampled
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from specs.errors import ErrorCode, ErrorObject, Internal, InvalidInput, PracticumError, Unavailable
from specs.interaction import SamplingUsed
from specs.upstream import Upstream

TIMEOUT_SEC = 600.0
_MAX_DETAIL = 500
_TOO_LONG = re.compile(r"(?i)prompt is too long|maximum context length|context_length_exceeded")

type Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Said:
    """An upstream's answer: blocks in normal form, and whether it was cut."""

    blocks: Sequence[Block]
    cut: bool
    sequence: str | None = None


class Api(Protocol):
    """One API that upstreams speak."""

    path: str

    def headers(self, key: str) -> dict[str, str]:
        """The credential's headers."""
        ...

    def body(self, model: str, conversation: Conversation, used: SamplingUsed) -> Object:
        """A request that is not streamed."""
        ...

    def said(self, value: dict[str, Any]) -> Said:
        """The answer in a response; `KeyError` and its like if it is none."""
        ...


class Upstreams:
    """The configured upstreams. One connection pool; close it with `aclose`."""

    def __init__(
        self, configured: Sequence[Upstream] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._known = {one.full_name: one for one in configured}
        self._environment = os.environ if environment is None else environment
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def hear(
        self, voice: Voice, interaction: str, conversation: Conversation, used: SamplingUsed
    ) -> Heard:
        """A whole answer. Cancelling closes the connection.

        Raises:
            Unavailable: it is full (`overloaded`) or cannot be reached.
            InvalidInput: it refuses the request.
            Internal: it does not speak its API, or refuses our key.
        """
        upstream = self._known.get(voice.info.name)
        if upstream is None:
            raise _error(Unavailable, voice.info.name, "is not configured in this proxy")
        api = _APIS[upstream.kind]
        key = self._key(upstream)
        value = await self._post(upstream, api, key, api.body(upstream.model, conversation, used))
        try:
            said = api.said(value)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            cause = f"sent an answer that is none: {type(error).__name__}"
            raise _error(Internal, upstream.full_name, cause) from None
        return _heard(voice, interaction, said)

    def _key(self, upstream: Upstream) -> str:
        if upstream.key_env is None:
            return ""
        key = self._environment.get(upstream.key_env, "")
        if not key:
            cause = f"has no key: {upstream.key_env} is not set where the stack was started"
            raise _error(Internal, upstream.full_name, cause, ErrorCode.UPSTREAM_REFUSED)
        return key

    async def _post(self, upstream: Upstream, api: Api, key: str, body: Object) -> dict[str, Any]:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(TIMEOUT_SEC, connect=20.0))
        name = upstream.full_name
        try:
            response = await self._client.post(
                upstream.base_url.rstrip("/") + api.path,
                json=body,
                headers=api.headers(key) if key else {},
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            code = ErrorCode.OVERLOADED if unsent else None  # it was asked nothing
            cause = f"cannot be reached: {type(error).__name__}"
            raise _error(Unavailable, name, cause, code) from None
        if response.status_code != 200:
            raise _refused(upstream, response, key)
        try:
            return cast(dict[str, Any], checked(response.json(), set()))
        except (ValueError, RecursionError):
            raise _error(Internal, name, "sent no JSON") from None


class _ChatApi:
    path = "/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def body(self, model: str, conversation: Conversation, used: SamplingUsed) -> Object:
        messages: list[JsonValue] = []
        if conversation.system:
            messages.append({"role": "system", "content": "\n\n".join(conversation.system)})
        for message in conversation.messages:
            messages += _chat_messages(message)
        body: Object = {"model": model, "messages": messages, "max_tokens": used.max_tokens}
        if conversation.tools:
            body["tools"] = [
                {"type": "function", "function": _named(tool, "parameters")}
                for tool in conversation.tools
            ]
        if used.stop_sequences:
            body["stop"] = list(used.stop_sequences)
        if used.seed is not None:
            body["seed"] = used.seed
        return body | _altered(used)

    def said(self, value: dict[str, Any]) -> Said:
        choice = value["choices"][0]
        message = choice["message"]
        thought = message.get("reasoning_content") or message.get("reasoning")
        blocks: list[Block] = [Thinking(thought)] if thought else []
        blocks += [Text(message["content"])] if message.get("content") else []
        for call in message.get("tool_calls") or ():
            blocks.append(_called(call["function"]["name"], call["function"]["arguments"]))
        return Said(blocks, choice.get("finish_reason") == "length")


class _MessagesApi:
    path = "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, model: str, conversation: Conversation, used: SamplingUsed) -> Object:
        body: Object = {
            "model": model,
            "messages": [_message(one) for one in conversation.messages],
            "max_tokens": used.max_tokens,
        }
        if conversation.system:
            body["system"] = "\n\n".join(conversation.system)
        if conversation.tools:
            body["tools"] = [_named(tool, "input_schema") for tool in conversation.tools]
        if used.stop_sequences:
            body["stop_sequences"] = list(used.stop_sequences)
        if used.top_k > 0:
            body["top_k"] = used.top_k
        return body | _altered(used)

    def said(self, value: dict[str, Any]) -> Said:
        blocks: list[Block] = []
        for block in value["content"]:
            match block["type"]:
                case "text" if block["text"]:
                    blocks.append(Text(block["text"]))
                case "thinking" if block["thinking"]:
                    blocks.append(Thinking(block["thinking"]))
                case "tool_use":
                    blocks.append(ToolUse("", block["name"], dict(block["input"])))
                case _:
                    continue
        cut = value["stop_reason"] in ("max_tokens", "model_context_window_exceeded")
        return Said(blocks, cut, value.get("stop_sequence"))


_APIS: Mapping[Literal["openai", "anthropic"], Api] = {
    "openai": _ChatApi(),
    "anthropic": _MessagesApi(),
}


def _altered(used: SamplingUsed) -> Object:
    """The sampling values that are not the API's own defaults: some models refuse any."""
    values: dict[str, float] = {"temperature": used.temperature, "top_p": used.top_p}
    return {name: value for name, value in values.items() if value != 1}


def _named(tool: Tool, schema: str) -> Object:
    return {"name": tool.name, "description": tool.description, schema: dict(tool.schema)}


def _chat_messages(message: Message) -> list[JsonValue]:
    texts = "\n".join(block.text for block in message.blocks if isinstance(block, Text))
    if message.role == "system":
        return [{"role": "system", "content": texts}]
    if message.role == "user":
        results: list[JsonValue] = [
            {"role": "tool", "tool_call_id": _short(block.call), "content": block.text}
            for block in message.blocks
            if isinstance(block, ToolResult)
        ]
        return results if results and not texts else [*results, {"role": "user", "content": texts}]
    calls: list[JsonValue] = [
        {
            "id": _short(block.id),
            "type": "function",
            "function": {"name": block.name, "arguments": json.dumps(dict(block.input))},
        }
        for block in message.blocks
        if isinstance(block, ToolUse)
    ]
    said: Object = {"role": "assistant", "content": texts or None}
    if calls:
        said["tool_calls"] = calls
    return [said]


def _message(message: Message) -> Object:
    """A message of the Messages API. Thinking is left out: only its maker can sign it."""
    blocks: list[JsonValue] = []
    for block in message.blocks:
        match block:
            case Text():
                blocks.append({"type": "text", "text": block.text})
            case ToolUse():
                given: Object = {"name": block.name, "input": dict(block.input)}
                blocks.append({"type": "tool_use", "id": _short(block.id), **given})
            case ToolResult():
                result: Object = {"tool_use_id": _short(block.call), "content": block.text}
                blocks.append({"type": "tool_result", **result})
            case Thinking():
                continue
    role = "user" if message.role == "system" else message.role
    return {"role": role, "content": blocks}


def _short(call: str) -> str:
    """An id of a call as every upstream takes it; some refuse one of more than 40 characters."""
    return "call_" + hashlib.sha256(call.encode()).hexdigest()[:24]


def _called(name: str, arguments: str) -> Block:
    """A call; what cannot be read as one stays text and is never executed."""
    try:
        value = read_value(arguments, set()) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = arguments
    if isinstance(value, dict):
        return ToolUse("", name, value)
    return Text(f"{name}({arguments})")


def _heard(voice: Voice, interaction: str, said: Said) -> Heard:
    content = [_content(interaction, index, block) for index, block in enumerate(said.blocks)]
    pieces = voice.family.answer(answer_blocks(content), cut=said.cut or said.sequence is not None)
    tokens = np.array(voice.codec.encode(pieces), np.int32)
    reason = "length" if said.cut else "stop"
    sampled = Sampled(tokens, None, reason, "upstream")
    return Heard(
        sampled, content, None, reason if said.sequence is None else "sequence", said.sequence
    )


def _content(interaction: str, index: int, block: Block) -> JsonValue:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            signed = signature(interaction, index)
            return {"type": "thinking", "thinking": block.text, "signature": signed}
        case ToolUse():
            name = f"toolu_{interaction[-32:]}{index:02x}"
            return {
                "type": "tool_use",
                "id": name,
                "name": block.name,
                "input": dict(block.input),
            }
        case ToolResult():
            raise TypeError("an answer holds no result")


def _refused(upstream: Upstream, response: httpx.Response, key: str) -> PracticumError:
    status, name = response.status_code, upstream.full_name
    if status in (401, 403):
        cause = f"refused the key in {upstream.key_env or 'no variable'} ({status})"
        return _error(Internal, name, cause, ErrorCode.UPSTREAM_REFUSED)
    if status == 429 or status >= 500:
        return _error(Unavailable, name, f"is busy or failed ({status})", ErrorCode.OVERLOADED)
    detail = response.text.replace(key, "***") if key else response.text
    if _TOO_LONG.search(detail):
        return InvalidInput(
            f"prompt is too long: more tokens than the {upstream.context_tokens} of {name}",
            code=ErrorCode.PROMPT_TOO_LONG,
            object=ErrorObject(type="request", pointer="/messages"),
            next="Send a shorter conversation, or correct context_tokens in config.toml.",
        )
    cause = f"refused the request ({status}): {detail[:_MAX_DETAIL]}"
    return _error(InvalidInput, name, cause, ErrorCode.UPSTREAM_REFUSED)


def _error(
    kind: type[PracticumError], name: str, cause: str, code: ErrorCode | None = None
) -> PracticumError:
    return kind(
        f"The upstream of {name} {cause}.",
        code=code,
        object=ErrorObject(type="model", id=name),
        next="Look at [[upstreams]] in config.toml, and at the service itself.",
    )
