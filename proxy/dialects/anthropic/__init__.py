"""The Anthropic Messages API, as Claude Code and the official clients speak it."""

from pydantic import JsonValue

from proxy.dialects.anthropic.answer import MessageEvents, message
from proxy.dialects.anthropic.errors import error_reply
from proxy.dialects.anthropic.request import BILLING_PREFIX, read_count, read_message
from proxy.dialects.base import ErrorReply, Events, Head, Request, Whole
from runtime.formats.conversation import Conversation
from specs.errors import PracticumError

__all__ = ["BILLING_PREFIX", "MESSAGES", "AnthropicMessages"]


class AnthropicMessages:
    """Implements `Dialect`."""

    name = "anthropic"

    def read(self, data: bytes) -> Request:
        return read_message(data)

    def read_count(self, data: bytes) -> Conversation:
        return read_count(data)

    def message(self, head: Head, whole: Whole) -> dict[str, JsonValue]:
        return message(head, whole)

    def events(self, head: Head) -> Events:
        return MessageEvents(head)

    def error(self, error: PracticumError, request_id: str) -> ErrorReply:
        return error_reply(error, request_id)

    def count(self, tokens: int) -> dict[str, JsonValue]:
        return {"input_tokens": tokens}

    def models(self, model: str) -> dict[str, JsonValue]:
        page: list[JsonValue] = [self.model(model)]
        return {"data": page, "has_more": False, "first_id": model, "last_id": model}

    def model(self, model: str) -> dict[str, JsonValue]:
        """One model of the list."""
        return {
            "type": "model",
            "id": model,
            "display_name": model,
            "created_at": "1970-01-01T00:00:00Z",
        }


MESSAGES = AnthropicMessages()
