"""JSON of others: whatever halves of characters it holds, what is read can be written again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import repaired

TEXTS = st.text(st.characters(codec=None), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\ud83d", "a\ufffd"),
        ("\ude00é", "\ufffdé"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d \ude00", "\ufffd \ufffd"),
        ("\U0001f600é", "\U0001f600é"),
        ("", ""),
    ],
    ids=["first half", "second half", "both", "apart", "whole", "empty"],
)
def test_a_lone_half_of_a_character_is_replaced_and_nothing_else(text: str, found: str) -> None:
    assert repaired.whole(text) == found


@given(VALUES)
def test_what_is_read_can_be_written(value: object) -> None:
    json.dumps(repaired.loads(json.dumps(value)), ensure_ascii=False).encode()


@given(VALUES)
def test_what_was_whole_is_read_as_it_is(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
    assert repaired.loads(text) == json.loads(text)


def test_keys_are_texts_too_and_bytes_need_not_be_utf8() -> None:
    assert repaired.loads(b'{"\\ud83d": ["\xff\\ude00"]}') == {"\ufffd": ["\ufffd\ufffd"]}
    for data in (b"", b"{", b"[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            repaired.loads(data)
