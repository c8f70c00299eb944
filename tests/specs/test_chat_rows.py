"""Chat rows one by one: their fields, their sizes, and what is kept of a line."""

import json
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from specs import chat
from specs.chat import (
    CalledFunction,
    Chat,
    ChatMessage,
    ChatTool,
    File,
    Function,
    RowOrigin,
    TextPart,
    ToolCall,
)
from specs.errors import ErrorCode, InvalidInput
from tests.specs.contracts import NOTHING, lets

MESSAGES = [{"role": "user", "content": "a"}]
ROW = json.dumps({"messages": MESSAGES}).encode()


def refused(data: bytes, name: str = "rows.jsonl") -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        list(File.of(name, data).rows())
    return caught.value


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (TextPart, "type", ["text"], ["image"]),
        (CalledFunction, "name", ["f"], [""]),
        (CalledFunction, "arguments", ["{}", {"a": 1}], [3, ["a"]]),
        (ToolCall, "id", ["c"], [""]),
        (ToolCall, "type", ["function"], ["custom"]),
        (ChatMessage, "content", ["", None, [{"type": "text", "text": "a"}]], [3]),
        (ChatMessage, "weight", [0, 1, None], [2, -1, 0.5]),
        (Function, "name", ["f"], [""]),
        (ChatTool, "type", ["function"], ["custom"]),
        (Chat, "messages", [MESSAGES], [NOTHING]),
    ],
)
def test_a_field_of_a_row_has_its_form(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []


def test_a_call_is_of_a_function_unless_it_says_so() -> None:
    call = ToolCall.model_validate({"id": "c", "function": {"name": "f", "arguments": "{}"}})
    assert call.type == "function"
    message = ChatMessage(role="assistant")
    assert set(message.model_dump(exclude={"role"}).values()) == {None}


def padded(size: int) -> bytes:
    """A row of so many bytes."""
    return ROW[:-1] + b', "id": "' + b"x" * (size - len(ROW) - 10) + b'"}'


def test_a_line_may_have_four_mebibytes_without_its_end() -> None:
    most = 4 * 1024 * 1024
    for end in (b"", b"\n"):
        (row,) = File.of("r", padded(most) + end).rows()
        assert row.origin.line == 1
    error = refused(padded(most + 1))
    assert error.problem.code is ErrorCode.BODY_TOO_LARGE
    assert str(error) == (
        f"Line 1 of rows.jsonl is {most + 1} bytes long, and a line may have {most}."
    )


def test_a_file_may_have_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_ROWS", 2)
    assert len(list(File.of("r", ROW + b"\n" + ROW + b"\n\n").rows())) == 2
    error = refused(b"\n".join([ROW] * 3))
    assert str(error) == "Line 3 of rows.jsonl is beyond the 2 rows that a file may have."


def test_a_file_may_have_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_FILE_BYTES", 3 << 20)
    data = ROW + b" " * ((3 << 20) - len(ROW))
    assert len(list(File.of("r", data).rows())) == 1
    error = refused(data + b" ")
    assert error.problem.code is ErrorCode.BODY_TOO_LARGE
    assert str(error) == "The file rows.jsonl is larger than 3 MiB."
    assert error.problem.object is not None and error.problem.object.id == "rows.jsonl"


def test_an_empty_file_is_no_source() -> None:
    error = refused(b" \n")
    assert error.problem.code is ErrorCode.SOURCE_UNUSABLE


def test_the_first_of_several_blank_lines_is_named() -> None:
    error = refused(b"\n".join([ROW, b"", b" ", ROW]))
    assert str(error) == "Line 2 of rows.jsonl is empty."
    assert error.problem.next == "Remove it."
    assert error.problem.code is ErrorCode.INVALID_DOCUMENT
    assert str(refused(b"\n" + ROW)) == "Line 1 of rows.jsonl is empty."


def test_a_bad_row_says_what_to_do_with_its_line() -> None:
    error = refused(ROW + b"\n[]")
    assert error.problem.next == "Correct line 2, or remove it."
    assert error.problem.object is not None
    assert (error.problem.object.type, error.problem.object.pointer) == ("row", "/")
    assert str(error) == "Line 2 of rows.jsonl is not a JSON object."


def test_long_ids_and_names_of_keys_are_cut() -> None:
    long = {"messages": MESSAGES, "id": "i" * 2000, "k" * 100: 1, "tools": None, "n": 2}
    ignored: Counter[str] = Counter()
    (row,) = File.of("r", json.dumps(long).encode()).rows(ignored)
    assert row.origin.id == '"' + "i" * 1023
    assert ignored == {"k" * 64: 1, "n": 1}
    assert row.chat.tools is None


def test_a_row_without_an_id_has_none() -> None:
    for data in (ROW, ROW[:-1] + b', "id": null}'):
        (row,) = File.of("r", data).rows()
        assert row.origin.id is None
        assert RowOrigin.model_validate(row.origin.model_dump(exclude={"id"})) == row.origin


def test_one_carriage_return_ends_a_line_with_its_feed() -> None:
    first, second = File.of("r", ROW + b"\r\n" + ROW + b" \r").rows()
    assert first.origin.digest != second.origin.digest
    assert [first.origin.line, second.origin.line] == [1, 2]
