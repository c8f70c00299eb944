"""Answers of the Responses API: whole responses, and the same as events.

Each block of an answer is an output item of its own: thinking is reasoning, text a message, a
call a function call. Events keep the order that the official clients accumulate by: an item is
added, its part is added, its deltas, all of it once more as done.

A call that fails before content is `response.failed`; after content the connection is cut.
"""

import json
from typing import cast, override

from pydantic import JsonValue

from proxy.dialects.base import Head, Whole, signature
from proxy.dialects.blocks import Block as Object
from proxy.dialects.blocks import BlockEvents
from proxy.dialects.openai.chat_answer import created
from proxy.dialects.openai.content import serialised
from proxy.dialects.openai.errors import TOO_LONG, error_body
from proxy.dialects.openai.responses_request import REASONING
from specs.errors import PracticumError

_PARTS = {"text": "output_text", "thinking": "reasoning_text"}


def response(head: Head, whole: Whole | None, *, status: str = "in_progress") -> Object:
    """The response object of a call; without an answer, its beginning."""
    used, asked = head.intent.sampling, head.asked
    incomplete = whole is not None and whole.answer.stop_reason == "length"
    if whole is not None:
        status = "incomplete" if incomplete else "completed"
    return {
        "id": "resp_" + head.intent.interaction[4:],
        "object": "response",
        "created_at": created(head),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
        "instructions": None,
        "max_output_tokens": asked.get("max_output_tokens"),
        "model": head.model,
        "output": _items(head, whole) if whole else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": used.temperature,
        "tool_choice": "auto",
        "tools": [],
        "top_p": used.top_p,
        "truncation": "disabled",
        "usage": _usage(head, whole) if whole else None,
        "metadata": {},
    }


def _usage(head: Head, whole: Whole) -> Object:
    prompt, output = head.intent.prompt_tokens, whole.output_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }


def _items(head: Head, whole: Whole) -> list[JsonValue]:
    blocks = [cast(Object, block) for block in whole.answer.content]
    return [_item(head, index, block, "completed") for index, block in enumerate(blocks)]


def _item(head: Head, index: int, block: Object, status: str) -> Object:
    """The output item of a block; one that was just added has neither text nor arguments."""
    name = signature(head.intent.interaction, index)
    begun = status == "in_progress"
    if block["type"] == "tool_use":
        return {
            "id": "fc_" + name,
            "type": "function_call",
            "status": status,
            "call_id": block["id"],
            "name": block["name"],
            "arguments": "" if begun else serialised(block),
        }
    parts: list[JsonValue] = [] if begun else [_part(block)]
    if block["type"] == "text":
        return {
            "id": "msg_" + name,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": parts,
        }
    return {"id": REASONING + name, "type": "reasoning", "summary": [], "content": parts}


def _part(block: Object) -> Object:
    kind = cast(str, block["type"])
    part: Object = {"type": _PARTS[kind], "text": block[kind]}
    return part if kind == "thinking" else {**part, "annotations": [], "logprobs": []}


class ResponseEvents(BlockEvents):
    """Implements `Events`."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._number = 0

    def begin(self) -> bytes:
        value = response(self.head, None)
        return self._event("response.created", response=value) + self._event(
            "response.in_progress", response=value
        )

    def ping(self) -> bytes:
        return b": ping\n\n"

    def end(self, whole: Whole) -> bytes:
        data = self.rest(whole.answer.content)
        value = response(self.head, whole)
        return data + self._event(f"response.{value['status']}", response=value)

    def fail(self, error: PracticumError, request_id: str) -> bytes | None:
        del request_id
        if self.begun:
            return None
        body = error_body(error)
        code = TOO_LONG if body["code"] == TOO_LONG else "server_error"
        value = response(self.head, None, status="failed")
        value["error"] = {"code": code, "message": body["message"]}
        return self._event("response.failed", response=value)

    @override
    def whole(self, index: int, block: Object) -> bytes:
        if block["type"] == "tool_use":
            return self._call(index, block)
        kind = cast(str, block["type"])
        text = cast(str, block[kind])
        return self.open(index, kind) + self.more(index, kind, text) + self._done(index, block)

    def _call(self, index: int, block: Object) -> bytes:
        added = _item(self.head, index, block, "in_progress")
        item = _item(self.head, index, block, "completed")
        where: Object = {"item_id": item["id"], "output_index": index}
        arguments = item["arguments"]
        name = "response.function_call_arguments"
        return b"".join(
            (
                self._event("response.output_item.added", output_index=index, item=added),
                self._event(f"{name}.delta", **where, delta=arguments),
                self._event(f"{name}.done", **where, name=item["name"], arguments=arguments),
                self._event("response.output_item.done", output_index=index, item=item),
            )
        )

    @override
    def open(self, index: int, kind: str) -> bytes:
        block: Object = {"type": kind, kind: ""}
        item = _item(self.head, index, block, "in_progress")
        return self._event(
            "response.output_item.added", output_index=index, item=item
        ) + self._event(
            "response.content_part.added", **self._where(index, kind), part=_part(block)
        )

    @override
    def more(self, index: int, kind: str, text: str) -> bytes:
        fields: Object = {"logprobs": []} if kind == "text" else {}
        name = f"response.{_PARTS[kind]}.delta"
        return self._event(name, **self._where(index, kind), delta=text, **fields)

    @override
    def close(self, index: int, kind: str, text: str) -> bytes:
        return self._done(index, {"type": kind, kind: text})

    def _done(self, index: int, block: Object) -> bytes:
        kind = cast(str, block["type"])
        fields: Object = {"logprobs": []} if kind == "text" else {}
        where = self._where(index, kind)
        item = _item(self.head, index, block, "completed")
        return b"".join(
            (
                self._event(f"response.{_PARTS[kind]}.done", **where, text=block[kind], **fields),
                self._event("response.content_part.done", **where, part=_part(block)),
                self._event("response.output_item.done", output_index=index, item=item),
            )
        )

    def _where(self, index: int, kind: str) -> Object:
        item = _item(self.head, index, {"type": kind, kind: ""}, "in_progress")
        return {"item_id": item["id"], "output_index": index, "content_index": 0}

    def _event(self, name: str, /, **fields: JsonValue) -> bytes:
        value: Object = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return f"event: {name}\ndata: {data}\n\n".encode()
