"""Text to token ids and back, such that text can never become a control token.

A prompt is made of *pieces*: `Mark` names a control token, a string is text. Text goes through
a tokenizer that knows no added tokens, so a user who writes `<|im_end|>` gets those characters.
Neighbouring strings are joined first, so the ids are those of an ordinary rendering.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tokenizers import Tokenizer

from specs.errors import Internal


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token where the tokenizer has one of this name; else its text."""

    token: str


type Piece = str | Mark


class Codec:
    """The tokenizer of one model, from the bytes of its `tokenizer.json`."""

    def __init__(self, data: bytes) -> None:
        document = cast(dict[str, Any], json.loads(data))
        self._marks: dict[str, int] = {
            token["content"]: token["id"] for token in document["added_tokens"]
        }
        self._control = frozenset(self._marks.values())
        self._whole = Tokenizer.from_str(data.decode())
        self._plain = Tokenizer.from_str(json.dumps({**document, "added_tokens": []}))

    def mark(self, token: str) -> int | None:
        """Id of a control token, or None if there is none of that name."""
        return self._marks.get(token)

    def encode(self, pieces: Iterable[Piece]) -> "array[int]":
        """The ids of a rendering; work is linear in the text of `pieces`."""
        ids = array("i")
        text: list[str] = []
        for piece in pieces:
            number = self._marks.get(piece.token) if isinstance(piece, Mark) else None
            if number is None:
                text.append(piece.token if isinstance(piece, Mark) else piece)
                continue
            self._encode_text(text, ids)
            ids.append(number)
        self._encode_text(text, ids)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, control tokens spelled out; bytes that are no UTF-8 become U+FFFD."""
        return cast(str, self._whole.decode(list(ids), skip_special_tokens=False))

    def _encode_text(self, text: list[str], ids: "array[int]") -> None:
        if not text:
            return
        encoding = cast(Any, self._plain.encode("".join(text), add_special_tokens=False))
        found = cast(list[int], encoding.ids)
        text.clear()
        if not self._control.isdisjoint(found):
            raise Internal(
                "Text was tokenised to a control token; the tokenizer cannot be used safely.",
                next="Report the model whose tokenizer does this.",
            )
        ids.extend(found)
