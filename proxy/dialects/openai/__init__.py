"""OpenAI's APIs, as its official clients and the harnesses built on them speak them."""

from pydantic import JsonValue

from proxy.dialects.base import ErrorReply, Events, Head, Request, Whole
from proxy.dialects.openai.chat_answer import ChatChunks, completion
from proxy.dialects.openai.chat_request import NAME as CHAT_NAME
from proxy.dialects.openai.chat_request import read_chat
from proxy.dialects.openai.errors import error_reply
from proxy.dialects.openai.responses_answer import ResponseEvents, response
from proxy.dialects.openai.responses_request import NAME as RESPONSES_NAME
from proxy.dialects.openai.responses_request import read_response
from runtime.formats.conversation import Conversation
from specs.errors import PracticumError

__all__ = ["CHAT", "RESPONSES", "ChatCompletions", "Responses"]


class _OpenAI:
    """What both dialects say alike."""

    def error(self, error: PracticumError, request_id: str) -> ErrorReply:
        return error_reply(error, request_id)

    def count(self, tokens: int) -> dict[str, JsonValue]:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def models(self, model: str) -> dict[str, JsonValue]:
        page: list[JsonValue] = [self.model(model)]
        return {"object": "list", "data": page}

    def model(self, model: str) -> dict[str, JsonValue]:
        """One model of the list."""
        return {"id": model, "object": "model", "created": 0, "owned_by": "practicum"}


class ChatCompletions(_OpenAI):
    """Implements `Dialect`."""

    name = CHAT_NAME

    def read(self, data: bytes) -> Request:
        return read_chat(data)

    def read_count(self, data: bytes) -> Conversation:
        return read_chat(data).conversation

    def message(self, head: Head, whole: Whole) -> dict[str, JsonValue]:
        return completion(head, whole)

    def events(self, head: Head) -> Events:
        return ChatChunks(head)


class Responses(_OpenAI):
    """Implements `Dialect`."""

    name = RESPONSES_NAME

    def read(self, data: bytes) -> Request:
        return read_response(data)

    def read_count(self, data: bytes) -> Conversation:
        return read_response(data).conversation

    def message(self, head: Head, whole: Whole) -> dict[str, JsonValue]:
        return response(head, whole)

    def events(self, head: Head) -> Events:
        return ResponseEvents(head)


CHAT = ChatCompletions()
RESPONSES = Responses()
