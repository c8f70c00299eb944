"""The vocabulary of a byte-level BPE `tokenizer.json`, read without any tokenizer library.

Tokens are written in the 256 printable characters that GPT-2 chose for the bytes; control
tokens stand apart, under `added_tokens`. This is all that turning ids into text needs, so that
recorded tokens can be shown where no model is installed.
"""

import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

UNKNOWN = "\ufffd".encode()
"""What stands for an id that a tokenizer lacks: models have more outputs than tokens."""


def byte_level(document: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` is byte-level."""
    return cast(dict[str, Any], document.get("decoder") or {}).get("type") == "ByteLevel"


def vocabulary(document: Mapping[str, Any]) -> dict[int, bytes]:
    """Bytes of each ordinary token, by id."""
    values = _byte_values()
    return {
        number: bytes(values[character] for character in token)
        for token, number in cast(dict[str, int], document["model"]["vocab"]).items()
        if values.keys() >= set(token)
    }


def control_tokens(document: Mapping[str, Any]) -> dict[str, int]:
    """Id of each control token, by spelling."""
    return {token["content"]: token["id"] for token in document["added_tokens"]}


class Spelling:
    """Ids as the texts that people read, from the bytes of a `tokenizer.json`.

    Raises:
        ValueError: it is not byte-level BPE.
    """

    def __init__(self, data: bytes) -> None:
        document: Any = json.loads(data)
        if not isinstance(document, dict) or not byte_level(cast(dict[str, Any], document)):
            raise ValueError("not a byte-level tokenizer")
        self._bytes = vocabulary(cast(dict[str, Any], document))
        for name, number in control_tokens(cast(dict[str, Any], document)).items():
            self._bytes[number] = name.encode()

    def texts(self, ids: Sequence[int]) -> list[str]:
        """One text per token; a character made of several tokens stands at the last of them,
        and joining all texts gives the text of all ids."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        last = len(ids) - 1
        return [
            decoder.decode(self._bytes.get(number, UNKNOWN), index == last)
            for index, number in enumerate(ids)
        ]


def _byte_values() -> dict[str, int]:
    """Byte of each printable character that byte-level BPE writes (as GPT-2 defined it)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(kept)]
    return {chr(byte): byte for byte in kept} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }
