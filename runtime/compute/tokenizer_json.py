"""Byte-level BPE tokenizer documents (`tokenizer.json`), written without any library.

Their digest is pinned, so it must not depend on how a version of `tokenizers` serialises.
"""

from typing import Any

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def tokenizer_document(
    vocabulary: dict[str, int],
    *,
    merges: list[list[str]],
    specials: dict[str, int],
    pre_tokenizers: list[dict[str, Any]],
) -> dict[str, Any]:
    """A `tokenizer.json` as the `tokenizers` library reads it."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for text, index in specials.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def byte_characters() -> dict[int, str]:
    """The printable character that byte-level BPE writes for each byte (as GPT-2 defined it)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {byte: chr(byte) for byte in visible}
    table.update({byte: chr(256 + index) for index, byte in enumerate(hidden)})
    return table
