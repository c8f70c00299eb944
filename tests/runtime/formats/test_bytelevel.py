"""Recorded ids are spelled without a tokenizer library, as the tokenizer itself would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.formats.bytelevel import Spelling
from runtime.formats.codec import FileCodec
from tests.proxy.world import TOKENIZER

CODEC, SPELLING = FileCodec(TOKENIZER), Spelling(TOKENIZER)


@given(st.lists(st.integers(0, 2000), max_size=60))
def test_all_texts_joined_are_the_text_of_all_ids(ids: list[int]) -> None:
    texts = SPELLING.texts(ids)
    assert len(texts) == len(ids)
    raw = b"".join(CODEC.token(number) for number in ids)
    assert "".join(texts) == raw.decode("utf-8", "replace")


@given(st.text(max_size=40))
def test_a_character_of_several_tokens_stands_at_its_last(text: str) -> None:
    ids = CODEC.encode([text])
    texts = SPELLING.texts(ids)
    assert "".join(texts) == text
    assert "\ufffd" not in "".join(texts) or "\ufffd" in text


def test_control_tokens_are_spelled_out() -> None:
    name, number = next((name, CODEC.mark(name)) for name in CODEC.names)
    assert number is not None
    assert SPELLING.texts([number]) == [name]


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"decoder": {"type": "Other"}}', b"not json"])
def test_what_is_no_byte_level_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Spelling(data)
