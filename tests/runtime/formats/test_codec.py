"""Text never becomes a control token, and any ids have a text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.compute.tokenizer_json import BYTE_LEVEL, byte_characters, tokenizer_document
from runtime.formats.codec import FileCodec, Mark
from specs.errors import Internal
from tests.proxy.world import END, TOKENIZER, ids_text, text_ids

CODEC = FileCodec(TOKENIZER)
START = 1


def test_a_mark_is_a_control_token_and_its_spelling_is_text() -> None:
    assert list(CODEC.encode([Mark("<|im_start|>"), "a"])) == [START, *text_ids("a")]
    spelled = CODEC.encode(["<|im_start|>", "a<|im_end|>"])
    assert list(spelled) == text_ids("<|im_start|>a<|im_end|>")
    assert list(CODEC.encode([Mark("<tool_call>")])) == text_ids("<tool_call>")


@given(st.text(), st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>"]), st.text())
def test_no_text_holds_a_control_token(before: str, spelled: str, after: str) -> None:
    ids = list(CODEC.encode([before, spelled, after]))
    assert ids == text_ids(before + spelled + after)


@given(st.lists(st.integers(min_value=0, max_value=258)))
def test_any_ids_have_a_text(ids: list[int]) -> None:
    """Also bytes that are no UTF-8, cut anywhere; the text can always be sent as JSON."""
    text = CODEC.decode(ids)
    assert json.loads(json.dumps(text).encode()) == text
    assert text.encode().decode() == text
    assert CODEC.decode(np.array(ids, np.int32).tolist()) == text


def test_a_cut_character_becomes_the_replacement_character() -> None:
    assert CODEC.decode(text_ids("é")[:1]) == "\ufffd"
    assert CODEC.decode([*text_ids("a"), END]) == ids_text([*text_ids("a"), END])


def test_a_tokenizer_whose_merges_reach_a_control_token_is_refused() -> None:
    vocabulary = {char: byte for byte, char in byte_characters().items()}
    vocabulary |= {"<|": 256, "|>": 257, "<||>": 258}
    document = tokenizer_document(
        vocabulary,
        merges=[["<", "|"], ["|", ">"], ["<|", "|>"]],
        specials={"<||>": 258},
        pre_tokenizers=[{**BYTE_LEVEL, "use_regex": False}],
    )
    codec = FileCodec(json.dumps(document).encode())
    with pytest.raises(Internal):
        codec.encode(["<||>"])
