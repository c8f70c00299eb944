"""Answers of the Messages API: whole messages, and the same as server-sent events.

Events keep the order that strict clients ask for: `message_start` with the real prompt count,
each block whole before the next, `message_delta`, `message_stop`; `ping` while sampling.

A call that fails before content is an `error` event, which harnesses repeat; after content
they take one as final, so the connection is cut instead, which makes them ask once more.
"""

import json
from collections.abc import Iterator
from typing import cast, override

from pydantic import JsonValue

from proxy.dialects.anthropic.errors import error_body
from proxy.dialects.base import Head, Whole, signature
from proxy.dialects.blocks import Block, BlockEvents
from specs.errors import PracticumError
from specs.interaction import LimitedBy


def message(head: Head, whole: Whole | None) -> dict[str, JsonValue]:
    """The message of a call; without an answer, its beginning."""
    return {
        "id": "msg_" + head.intent.interaction[4:],
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": list(whole.answer.content) if whole else [],
        "stop_reason": stop_reason(head, whole) if whole else None,
        "stop_sequence": whole.answer.stop_sequence if whole else None,
        "usage": {
            "input_tokens": head.intent.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": whole.output_tokens if whole else 0,
        },
    }


def stop_reason(head: Head, whole: Whole) -> str:
    """Why the answer ends, in the dialect's words.

    A call that could not be read is told to Claude Code as `tool_use` without a block: it then
    asks the model to repeat the call, where `end_turn` would end the whole work.
    """
    answer = whole.answer
    if answer.stop_reason == "sequence":
        return "stop_sequence"
    if answer.stop_reason == "length":
        window = head.intent.sampling.limited_by is LimitedBy.WINDOW
        return "model_context_window_exceeded" if window else "max_tokens"
    called = any(cast(Block, block)["type"] == "tool_use" for block in answer.content)
    unread = answer.parse_error is not None and head.intent.session != ""
    return "tool_use" if called or unread else "end_turn"


class MessageEvents(BlockEvents):
    """Implements `Events`."""

    def begin(self) -> bytes:
        return _event("message_start", message=message(self.head, None)) + self.ping()

    def ping(self) -> bytes:
        return _event("ping")

    def end(self, whole: Whole) -> bytes:
        last = _event(
            "message_delta",
            delta={
                "stop_reason": stop_reason(self.head, whole),
                "stop_sequence": whole.answer.stop_sequence,
            },
            usage={"output_tokens": whole.output_tokens},
        )
        return self.rest(whole.answer.content) + last + _event("message_stop")

    def fail(self, error: PracticumError, request_id: str) -> bytes | None:
        if self.begun:
            return None
        body = error_body(error, request_id)[1]
        return _event("error", error=body["error"], request_id=request_id)

    @override
    def open(self, index: int, kind: str) -> bytes:
        return _begin(index, kind)

    @override
    def more(self, index: int, kind: str, text: str) -> bytes:
        return _more(index, kind, text)

    @override
    def close(self, index: int, kind: str, text: str) -> bytes:
        data = b""
        if kind == "thinking":
            data = _signed(index, signature(self.head.intent.interaction, index))
        return data + _event("content_block_stop", index=index)

    @override
    def whole(self, index: int, block: Block) -> bytes:
        return b"".join(_block(index, block))


def _block(index: int, block: Block) -> Iterator[bytes]:
    """All events of a block."""
    kind = cast(str, block["type"])
    if kind == "tool_use":
        yield _event("content_block_start", index=index, content_block={**block, "input": {}})
        text = json.dumps(block["input"], ensure_ascii=False)
        delta: Block = {"type": "input_json_delta", "partial_json": text}
        yield _event("content_block_delta", index=index, delta=delta)
    else:
        yield _begin(index, kind)
        yield _more(index, kind, cast(str, block[kind]))
        if kind == "thinking":
            yield _signed(index, cast(str, block["signature"]))
    yield _event("content_block_stop", index=index)


def _begin(index: int, kind: str) -> bytes:
    block: Block = {"type": kind, kind: ""}
    if kind == "thinking":
        block["signature"] = ""
    return _event("content_block_start", index=index, content_block=block)


def _more(index: int, kind: str, text: str) -> bytes:
    delta: Block = {"type": f"{kind}_delta", kind: text}
    return _event("content_block_delta", index=index, delta=delta)


def _signed(index: int, name: str) -> bytes:
    delta: Block = {"type": "signature_delta", "signature": name}
    return _event("content_block_delta", index=index, delta=delta)


def _event(name: str, **fields: JsonValue) -> bytes:
    data = json.dumps({"type": name, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()
