"""Chat files are read strictly: what is wrong is named with its line, what is right is kept."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import canonical, chat
from specs.chat import File
from specs.errors import ErrorCode, InvalidInput

BOM = b"\xef\xbb\xbf"
ROW = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'


def row(**fields: Any) -> bytes:
    return json.dumps({**json.loads(ROW), **fields}).encode()


def read(data: bytes) -> list[chat.Row]:
    return list(File.of("rows.jsonl", data).rows())


def said(text: bytes) -> bytes:
    return ROW.replace(b'"b"', text)


BAD: list[tuple[str, bytes, str, ErrorCode, str]] = [
    ("no JSON", b"{", "not valid JSON", ErrorCode.INVALID_JSON, "/"),
    ("no object", b"[]", "is not a JSON object", ErrorCode.INVALID_DOCUMENT, "/"),
    ("bytes that are no UTF-8", said(b'"\xff"'), "utf-8", ErrorCode.INVALID_JSON, "/"),
    ("a cut character", said(b'"\xe2\x82"'), "utf-8", ErrorCode.INVALID_JSON, "/"),
    ("NaN", row(id=1).replace(b"1}", b"NaN}"), "NaN", ErrorCode.INVALID_JSON, "/"),
    ("infinity", row(id=1).replace(b"1}", b"-Infinity}"), "Infinity", ErrorCode.INVALID_JSON, "/"),
    ("a key twice", ROW[:-1] + b',"messages":[]}', "duplicate key", ErrorCode.INVALID_JSON, "/"),
    ("an inner key twice", said(b'"b","role":"user"'), "duplicate", ErrorCode.INVALID_JSON, "/"),
    ("a lone surrogate", said(rb'"\ud800"'), "surrogate", ErrorCode.INVALID_JSON, "/"),
    ("NUL", said(rb'"\u0000"'), "NUL", ErrorCode.INVALID_JSON, "/"),
    ("a mark in the middle", BOM + ROW, "not valid JSON", ErrorCode.INVALID_JSON, "/"),
    ("an empty line", b"  ", "is empty", ErrorCode.INVALID_DOCUMENT, "/"),
    ("no messages", b"{}", "messages", ErrorCode.INVALID_DOCUMENT, "/messages"),
    ("none at all", b'{"messages":[]}', "messages", ErrorCode.INVALID_DOCUMENT, "/messages"),
    ("an unknown role", ROW.replace(b"user", b"robot"), "role", ErrorCode.INVALID_DOCUMENT,
     "/messages/0/role"),
    ("an unknown key of a message", said(b'"b","function_call":{}'), "function_call",
     ErrorCode.INVALID_DOCUMENT, "/messages/1/function_call"),
    ("a number as content", said(b"7"), "content", ErrorCode.INVALID_DOCUMENT,
     "/messages/1/content"),
    ("an image", said(b'[{"type":"image_url","image_url":{"url":"x"}}]'), "content",
     ErrorCode.INVALID_DOCUMENT, "/messages/1/content"),
    ("a fractional weight", said(b'"b","weight":0.5'), "weight", ErrorCode.INVALID_DOCUMENT,
     "/messages/1/weight"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "line", "cause", "code", "pointer"), BAD, ids=[b[0] for b in BAD])
def test_a_bad_line_is_refused_by_its_number(
    what: str, line: bytes, cause: str, code: ErrorCode, pointer: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(b"\n".join([ROW, ROW, line, ROW, b""]))
    problem = refused.value.problem
    assert problem.detail.startswith("Line 3 of rows.jsonl ")
    assert cause in problem.detail
    assert problem.code is code
    assert problem.object is not None
    assert problem.object.id == "rows.jsonl:3"
    assert (problem.object.pointer or "").startswith(pointer)


def test_a_line_that_is_too_long_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat, "MAX_LINE_BYTES", 200)
    with pytest.raises(InvalidInput, match=r"Line 2 of rows\.jsonl is 300 bytes long"):
        read(ROW + b"\n" + b"{" * 300)


def test_an_empty_file_has_no_rows() -> None:
    for data in (b"", BOM, b"\r\n\n", BOM + b" \n"):
        with pytest.raises(InvalidInput, match="has no rows"):
            File.of("rows.jsonl", data)


def test_blank_lines_may_stand_at_the_end_alone() -> None:
    assert len(read(ROW + b"\n\n  \n\r\n")) == 1


IDS: list[tuple[str, str]] = [
    (text, text) for text in ('"007"', '"1e5"', "7", "7.5", "12345678901234567890", '"12"', "12")
]


@pytest.mark.parametrize(("written", "kept"), IDS)
def test_an_id_that_looks_like_a_number_stays_what_it_is(written: str, kept: str) -> None:
    (found,) = read(row(id=0).replace(b'"id": 0', f'"id": {written}'.encode()))
    assert found.origin.id == kept


def test_keys_of_a_row_that_nothing_reads_are_counted_and_change_nothing() -> None:
    ignored: Counter[str] = Counter()
    rows = list(File.of("r", row(score=1, id=2) + b"\n" + row(score=2)).rows(ignored))
    assert ignored == {"score": 2}
    assert rows[0].chat == rows[1].chat


def test_only_lf_ends_a_line() -> None:
    """U+2028 and a lone CR are characters, not ends of lines."""
    text = "a\u2028b\u0085c"
    (found,) = read(json.dumps({**json.loads(ROW), "id": text}, ensure_ascii=False).encode())
    assert json.loads(found.origin.id or "") == text
    (spread,) = read(ROW.replace(b",", b",\r"))
    assert spread.chat == read(ROW)[0].chat


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))),
    crlf=st.booleans(),
    bom=st.booleans(),
    ended=st.booleans(),
)
def test_the_rows_of_a_file_do_not_depend_on_its_line_ends_or_mark(
    texts: list[str], crlf: bool, bom: bool, ended: bool
) -> None:
    lines = [json.dumps({**json.loads(ROW), "id": text}).encode() for text in ["first", *texts]]
    plain = read(b"\n".join(lines))
    end = b"\r\n" if crlf else b"\n"
    data = (BOM if bom else b"") + end.join(lines) + (end if ended else b"")
    other = read(data)
    assert [(r.chat, r.origin.line, r.origin.digest, r.origin.id) for r in other] == [
        (r.chat, r.origin.line, r.origin.digest, r.origin.id) for r in plain
    ]
    assert [r.origin.digest for r in other] == [canonical.digest_bytes(line) for line in lines]
    assert {r.origin.file for r in other} == {canonical.digest_bytes(data)}
