"""Answers of the Responses API: whole responses, and the same as events.

Each block of an answer is an output item of its own: thinking is reasoning, text a message, a
call a function call. Events keep the order that the official clients accumulate by: an item is
added, its part is added, its deltas, all of it once more as done. What `delta` sends is a
prefix of the durable answer's items; the end of the last item, calls and the response itself
leave only once the answer is durable.

A call that fails before content is `response.failed`; after content the connection is cut.
"""

import json
from typing import cast

from pydantic import JsonValue

from proxy.dialects.base import Head, Whole, signature
from proxy.dialects.openai.chat_answer import created
from proxy.dialects.openai.content import serialised
from proxy.dialects.openai.errors import TOO_LONG, error_body
from proxy.dialects.openai.responses_request import REASONING
from runtime.formats.families import Delta, TextDelta
from specs.errors import ErrorObject, Internal, PracticumError

type Object = dict[str, JsonValue]

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


class ResponseEvents:
    """Implements `Events`."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._shown: list[tuple[str, list[str]]] = []
        """Kind and text of each block that has begun; the last one is open."""
        self._number = 0

    def begin(self) -> bytes:
        value = response(self._head, None)
        return self._event("response.created", response=value) + self._event(
            "response.in_progress", response=value
        )

    def ping(self) -> bytes:
        return b": ping\n\n"

    def delta(self, delta: Delta) -> bytes:
        """More of a message or of reasoning. Beyond a call nothing leaves before the end."""
        if delta.block > len(self._shown):
            return b""
        kind = "text" if isinstance(delta, TextDelta) else "thinking"
        data = b""
        if delta.block == len(self._shown):
            if self._shown:
                data += self._close(delta.block - 1)
            self._shown.append((kind, []))
            data += self._open(delta.block, kind)
        self._shown[-1][1].append(delta.text)
        return data + self._more(delta.block, kind, delta.text)

    def end(self, whole: Whole) -> bytes:
        blocks = [cast(Object, block) for block in whole.answer.content]
        if len(self._shown) > len(blocks):
            raise self._other_text()
        data = b"".join(self._rest(index, block) for index, block in enumerate(blocks))
        value = response(self._head, whole)
        return data + self._event(f"response.{value['status']}", response=value)

    def fail(self, error: PracticumError, request_id: str) -> bytes | None:
        del request_id
        if self._shown:
            return None
        body = error_body(error)
        code = TOO_LONG if body["code"] == TOO_LONG else "server_error"
        value = response(self._head, None, status="failed")
        value["error"] = {"code": code, "message": body["message"]}
        return self._event("response.failed", response=value)

    def _rest(self, index: int, block: Object) -> bytes:
        """What of a block was not sent yet."""
        if index >= len(self._shown):
            return (
                self._call(index, block) if block["type"] == "tool_use" else self._all(index, block)
            )
        kind, texts = self._shown[index]
        text, last = "".join(texts), index == len(self._shown) - 1
        final = block.get(kind)
        if block["type"] != kind or not isinstance(final, str) or not final.startswith(text):
            raise self._other_text()
        rest = final[len(text) :]
        if not last:
            if rest:
                raise self._other_text()
            return b""
        texts.append(rest)
        return (self._more(index, kind, rest) if rest else b"") + self._close(index)

    def _all(self, index: int, block: Object) -> bytes:
        kind = cast(str, block["type"])
        text = cast(str, block[kind])
        return self._open(index, kind) + self._more(index, kind, text) + self._done(index, block)

    def _call(self, index: int, block: Object) -> bytes:
        added = _item(self._head, index, block, "in_progress")
        item = _item(self._head, index, block, "completed")
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

    def _open(self, index: int, kind: str) -> bytes:
        block: Object = {"type": kind, kind: ""}
        item = _item(self._head, index, block, "in_progress")
        return self._event(
            "response.output_item.added", output_index=index, item=item
        ) + self._event(
            "response.content_part.added", **self._where(index, kind), part=_part(block)
        )

    def _more(self, index: int, kind: str, text: str) -> bytes:
        fields: Object = {"logprobs": []} if kind == "text" else {}
        name = f"response.{_PARTS[kind]}.delta"
        return self._event(name, **self._where(index, kind), delta=text, **fields)

    def _close(self, index: int) -> bytes:
        kind, texts = self._shown[index]
        return self._done(index, {"type": kind, kind: "".join(texts)})

    def _done(self, index: int, block: Object) -> bytes:
        kind = cast(str, block["type"])
        fields: Object = {"logprobs": []} if kind == "text" else {}
        where = self._where(index, kind)
        item = _item(self._head, index, block, "completed")
        return b"".join(
            (
                self._event(f"response.{_PARTS[kind]}.done", **where, text=block[kind], **fields),
                self._event("response.content_part.done", **where, part=_part(block)),
                self._event("response.output_item.done", output_index=index, item=item),
            )
        )

    def _where(self, index: int, kind: str) -> Object:
        item = _item(self._head, index, {"type": kind, kind: ""}, "in_progress")
        return {"item_id": item["id"], "output_index": index, "content_index": 0}

    def _event(self, name: str, /, **fields: JsonValue) -> bytes:
        value: Object = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return f"event: {name}\ndata: {data}\n\n".encode()

    def _other_text(self) -> Internal:
        return Internal(
            "What was streamed is not the beginning of the answer.",
            object=ErrorObject(type="interaction", id=self._head.intent.interaction),
            next="Report the model family: its reader changed its mind.",
        )
