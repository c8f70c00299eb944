"""Answers of Chat Completions: whole, and the same as chunks.

A chat message has one text, one reasoning and a list of calls, so the blocks of an answer are
put together by kind, and what `delta` sends is a prefix of the durable answer's text or
reasoning. Calls, the finish reason and `[DONE]` leave only once the answer is durable.

A call that fails before content is an `error` event; after content the connection is cut.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from pydantic import JsonValue

from proxy.dialects.base import Head, Scored, Whole
from proxy.dialects.blocks import other_text
from proxy.dialects.openai.content import serialised
from proxy.dialects.openai.errors import error_body
from runtime.formats.families import Delta, TextDelta
from specs.errors import PracticumError

type Object = dict[str, JsonValue]

LOWEST = -9999.0
"""Stands for the log-probability of a token that cannot be drawn, as OpenAI writes it."""
_FIELDS = {"text": "content", "thinking": "reasoning_content"}


def completion(head: Head, whole: Whole) -> Object:
    """A whole `chat.completion`."""
    calls = tool_calls(whole)
    text, thought = joined(whole, "text"), joined(whole, "thinking")
    message: Object = {
        "role": "assistant",
        "content": text if text or not calls else None,
        "refusal": None,
    }
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    choice: Object = {
        "index": 0,
        "message": message,
        "logprobs": logprobs(head, whole),
        "finish_reason": finish_reason(whole, calls),
    }
    return {**_frame(head, "chat.completion"), "choices": [choice], "usage": usage(head, whole)}


def joined(whole: Whole, kind: str) -> str:
    """All text of the blocks of a kind."""
    blocks = [cast(Object, block) for block in whole.answer.content]
    return "".join(cast(str, block[kind]) for block in blocks if block["type"] == kind)


def tool_calls(whole: Whole) -> list[Object]:
    """The calls of an answer."""
    blocks = [cast(Object, block) for block in whole.answer.content]
    return [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": serialised(block)},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]


def finish_reason(whole: Whole, calls: Sequence[Object]) -> str:
    """Why the answer ends, in the dialect's words."""
    if whole.answer.stop_reason == "length":
        return "length"
    return "tool_calls" if calls else "stop"


def usage(head: Head, whole: Whole) -> Object:
    """What the call took."""
    prompt, output = head.intent.prompt_tokens, whole.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def logprobs(head: Head, whole: Whole) -> JsonValue:
    """The recorded log-probabilities of every sampled token, markup too; None if not asked for,
    or if the model has none."""
    if not head.asked.get("logprobs") or whole.scored is None:
        return None
    return {"content": [_scored(one) for one in whole.scored], "refusal": None}


def _scored(token: Scored) -> Object:
    value = token.logprob if math.isfinite(token.logprob) else LOWEST
    return {
        "token": token.data.decode(errors="replace"),
        "logprob": value,
        "bytes": list(token.data),
        "top_logprobs": [],
    }


def _frame(head: Head, kind: str) -> Object:
    return {
        "id": "chatcmpl-" + head.intent.interaction[4:],
        "object": kind,
        "created": created(head),
        "model": head.model,
    }


def created(head: Head) -> int:
    """When the call was admitted, in seconds."""
    return int(datetime.fromisoformat(head.intent.at).timestamp())


class ChatChunks:
    """Implements `Events`."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._shown = {"text": "", "thinking": ""}
        options = head.asked.get("stream_options")
        self._usage = isinstance(options, dict) and options.get("include_usage") is True

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def ping(self) -> bytes:
        return b": ping\n\n"

    def delta(self, delta: Delta) -> bytes:
        kind = "text" if isinstance(delta, TextDelta) else "thinking"
        self._shown[kind] += delta.text
        return self._chunk({_FIELDS[kind]: delta.text})

    def end(self, whole: Whole) -> bytes:
        data = b""
        for kind, shown in reversed(self._shown.items()):  # reasoning comes before what it led to
            final = joined(whole, kind)
            if not final.startswith(shown):
                raise other_text(self._head)
            if rest := final[len(shown) :]:
                data += self._chunk({_FIELDS[kind]: rest})
        calls = tool_calls(whole)
        for index, call in enumerate(calls):
            data += self._chunk({"tool_calls": [{"index": index, **call}]})
        data += self._chunk({}, finish_reason(whole, calls), logprobs(self._head, whole))
        if self._usage:
            last: Object = {"choices": [], "usage": usage(self._head, whole)}
            data += _event({**_frame(self._head, "chat.completion.chunk"), **last})
        return data + b"data: [DONE]\n\n"

    def fail(self, error: PracticumError, request_id: str) -> bytes | None:
        del request_id
        return None if any(self._shown.values()) else _event({"error": error_body(error)})

    def _chunk(self, delta: Object, reason: str | None = None, scored: JsonValue = None) -> bytes:
        choice: Object = {
            "index": 0,
            "delta": delta,
            "logprobs": scored,
            "finish_reason": reason,
        }
        body: Object = {"choices": [choice]}
        if self._usage:
            body["usage"] = None
        return _event({**_frame(self._head, "chat.completion.chunk"), **body})


def _event(value: Object) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode()
