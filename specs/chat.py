"""Chat rows: a JSONL file with one conversation per line, read strictly.

A line is a JSON object in the shape of Chat Completions: `messages`, and optionally `tools` and
an `id` of its own. Other keys of a row are kept out of the way and counted; unknown keys inside
messages and tools are errors, since they may change what is meant.

Every error names its line. Lines end with LF or CRLF, and nothing else ends one; a byte order
mark may stand at the beginning of the file and nowhere else; what `specs.canonical.loads`
refuses is refused (NaN, duplicate keys, lone surrogates, NUL, bytes that are no UTF-8). A row's
digest is over the bytes of its line without its end, so that it survives a change of line ends.
An `id` stays the JSON that it is: `"007"`, `7` and `7.0` are three ids.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError
from specs.ids import Digest
from specs.sources import MAX_FILE_BYTES, MAX_ROWS

MAX_LINE_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"


class TextPart(Contract):
    """A piece of text in a content of several parts."""

    type: Literal["text"]
    text: str


class CalledFunction(Contract):
    """What a call names; `arguments` is a JSON object, or one written as text."""

    name: str = Field(min_length=1)
    arguments: str | dict[str, JsonValue]


class ToolCall(Contract):
    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Contract):
    """One message; which fields it may have depends on its role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[TextPart, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    weight: Literal[0, 1] | None = None
    """0 on a message of the assistant: context, not a target."""


class Function(Contract):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class ChatTool(Contract):
    type: Literal["function"]
    function: Function


class Chat(Contract):
    """What of a row is rendered."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    tools: tuple[ChatTool, ...] | None = None


class RowOrigin(Contract):
    """Where a sequence of a file comes from."""

    file: Digest
    line: int
    """From 1."""
    digest: Digest
    """Of the line's bytes without its end."""
    id: str | None = None
    """The row's own `id` as JSON text."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row that has been read."""

    origin: RowOrigin
    chat: Chat


@dataclass(frozen=True, slots=True)
class File:
    """The bytes of a file with their digest, and the name that its errors give."""

    name: str
    data: bytes
    digest: Digest

    @classmethod
    def of(cls, name: str, data: bytes) -> "File":
        """A file; refused where it is empty or too large.

        Raises:
            InvalidInput: `source_unusable` or `body_too_large`.
        """
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInput(
                f"The file {name} is larger than {MAX_FILE_BYTES >> 20} MiB.",
                code=ErrorCode.BODY_TOO_LARGE,
                object=ErrorObject(type="file", id=name),
                next="Train on parts of it, one run after the other.",
            )
        if not data.strip(b" \t\r\n" + _BOM):
            raise InvalidInput(
                f"The file {name} has no rows.",
                code=ErrorCode.SOURCE_UNUSABLE,
                object=ErrorObject(type="file", id=name),
                next='Write one {"messages": […]} per line.',
            )
        return cls(name, data, canonical.digest_bytes(data))

    def rows(self, ignored: "Counter[str] | None" = None) -> Iterator[Row]:
        """Every row in order; keys of rows that nothing reads are counted in `ignored`.

        Raises:
            InvalidInput: naming the line.
        """
        blank: int | None = None
        for number, line in self._lines():
            if not line.strip():
                blank = blank or number
                continue
            if blank is not None:
                raise self.refusal(blank, "is empty", next="Remove it.")
            if number > MAX_ROWS:
                raise self.refusal(number, f"is beyond the {MAX_ROWS} rows that a file may have")
            yield self._row(number, line, ignored)

    def refusal(
        self,
        line: int,
        cause: str,
        pointer: str = "/",
        *,
        code: ErrorCode = ErrorCode.INVALID_DOCUMENT,
        next: str | None = None,
    ) -> InvalidInput:
        """The error that says what is wrong with a line."""
        return InvalidInput(
            f"Line {line} of {self.name} {cause}.",
            code=code,
            object=ErrorObject(type="row", id=f"{self.name}:{line}", pointer=pointer),
            next=next or f"Correct line {line}, or remove it.",
        )

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        start = len(_BOM) if self.data.startswith(_BOM) else 0
        number = 0
        while start < len(self.data):
            number += 1
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            if end - start > MAX_LINE_BYTES:
                raise self.refusal(
                    number,
                    f"is {end - start} bytes long, and a line may have {MAX_LINE_BYTES}",
                    code=ErrorCode.BODY_TOO_LARGE,
                )
            yield number, self.data[start:end].removesuffix(b"\r")
            start = end + 1

    def _row(self, number: int, line: bytes, ignored: "Counter[str] | None") -> Row:
        try:
            value = canonical.loads(line, what="row", big_integers=True)
            if not isinstance(value, dict):
                raise self.refusal(number, "is not a JSON object")
            chat = canonical.validate(Chat, _chat(value), what="row")
        except PracticumError as error:
            problem = error.problem
            if problem.object is not None and problem.object.type == "row" and problem.object.id:
                raise
            pointer = (problem.object.pointer if problem.object else None) or "/"
            raise self.refusal(
                number, f"cannot be used: {problem.detail.rstrip('.')}", pointer, code=problem.code
            ) from None
        if ignored is not None:
            ignored.update(key[:64] for key in value if key not in (*Chat.model_fields, "id"))
        own = value.get("id")
        origin = RowOrigin(
            file=self.digest,
            line=number,
            digest=canonical.digest_bytes(line),
            id=None if own is None else json.dumps(own, ensure_ascii=False)[:1024],
        )
        return Row(origin, chat)


def _chat(value: dict[str, JsonValue]) -> JsonValue:
    return cast(Any, {key: value[key] for key in Chat.model_fields if key in value})
