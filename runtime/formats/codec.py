"""Text to token ids and back, such that text can never become a control token.

A prompt is made of *pieces*: `Mark` names a control token, a string is text. Text goes through
a tokenizer that knows no added tokens, so a user who writes `<|im_end|>` gets those characters.
Neighbouring strings are joined first, so the ids are those of an ordinary rendering. The way
back keeps the same difference: a control token among `ids` is a `Mark`, its spelling is text.

A tokenizer is identified by bytes: a `tokenizer.json` of byte-level BPE, or a small document
that names a tokenizer which a pinned package carries (`runtime.formats.carried`).
"""

import codecs
import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tokenizers import Tokenizer

from runtime.formats.bytelevel import UNKNOWN, byte_level, control_tokens, vocabulary
from specs.errors import ErrorCode, ErrorObject, Internal, InvalidInput


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token where the tokenizer has one of this name; else its text."""

    token: str


type Piece = str | Mark


def spell(pieces: Iterable[Piece]) -> str:
    """The text of pieces, control tokens spelled out."""
    return "".join(piece.token if isinstance(piece, Mark) else piece for piece in pieces)


class Codec(ABC):
    """The tokenizer of one model.

    Args:
        marks: id of each control token, by spelling.
    """

    def __init__(self, marks: Mapping[str, int]) -> None:
        self._marks = dict(marks)
        self._names = {number: token for token, number in self._marks.items()}

    def mark(self, token: str) -> int | None:
        """Id of a control token, or None if there is none of that name."""
        return self._marks.get(token)

    def name(self, number: int) -> str | None:
        """Spelling of the control token with an id; None if that is no control token."""
        return self._names.get(number)

    @property
    def names(self) -> Iterable[str]:
        """Spellings of all control tokens."""
        return self._marks.keys()

    def encode(self, pieces: Iterable[Piece]) -> "array[int]":
        """The ids of a rendering; work is linear in the text of `pieces`."""
        ids = array("i")
        text: list[str] = []
        for piece in pieces:
            number = self._marks.get(piece.token) if isinstance(piece, Mark) else None
            if number is None:
                text.append(piece.token if isinstance(piece, Mark) else piece)
                continue
            self._extend(ids, text)
            ids.append(number)
        self._extend(ids, text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, control tokens spelled out; bytes that are no UTF-8 become U+FFFD."""
        return spell(self.pieces(ids))

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Text and control tokens of `ids`, told apart."""
        decoder = self.decoder()
        return [*decoder.feed(ids), *decoder.close()]

    def token(self, number: int) -> bytes:
        """The bytes of one token, a control token spelled out."""
        name = self.name(number)
        return self.bytes_of([number]) if name is None else name.encode()

    def decoder(self) -> "Decoder":
        """Reads ids as they arrive."""
        return Decoder(self)

    def _extend(self, ids: "array[int]", text: list[str]) -> None:
        if not text:
            return
        found = self.encode_text("".join(text))
        text.clear()
        if not self._names.keys().isdisjoint(found):
            raise Internal(
                "Text was tokenised to a control token; the tokenizer cannot be used safely.",
                next="Report the model whose tokenizer does this.",
            )
        ids.extend(found)

    @abstractmethod
    def encode_text(self, text: str) -> list[int]:
        """Ids of text, in which no spelling is a control token."""

    @abstractmethod
    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """The bytes of ordinary tokens; an id that the tokenizer lacks is U+FFFD."""


class Decoder:
    """Pieces of a growing sequence of ids: a character leaves when its last byte is there."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> list[Piece]:
        """The pieces that are certain now."""
        pieces: list[Piece] = []
        run: list[int] = []
        for number in ids:
            name = self._codec.name(number)
            if name is None:
                run.append(number)
                continue
            self._add(pieces, run, final=True)
            pieces.append(Mark(name))
        self._add(pieces, run, final=False)
        return pieces

    def close(self) -> list[Piece]:
        """What is left: a character that was cut is U+FFFD."""
        pieces: list[Piece] = []
        self._add(pieces, [], final=True)
        return pieces

    def _add(self, pieces: list[Piece], run: list[int], *, final: bool) -> None:
        text = self._bytes.decode(self._codec.bytes_of(run), final)
        run.clear()
        if text:
            pieces.append(text)


class FileCodec(Codec):
    """The tokenizer in the bytes of a `tokenizer.json`.

    Raises:
        InvalidInput: it is not byte-level BPE.
    """

    def __init__(self, data: bytes) -> None:
        document = cast(dict[str, Any], json.loads(data))
        if not byte_level(document):
            raise InvalidInput(
                "The tokenizer is not byte-level.",
                code=ErrorCode.MODEL_UNKNOWN,
                object=ErrorObject(type="tokenizer", pointer="/decoder"),
                next="Name a model whose tokenizer.json is byte-level BPE.",
            )
        super().__init__(control_tokens(document))
        self._plain = Tokenizer.from_str(json.dumps({**document, "added_tokens": []}))
        self._bytes = vocabulary(document)

    def encode_text(self, text: str) -> list[int]:
        encoding = cast(Any, self._plain.encode(text, add_special_tokens=False))
        return cast(list[int], encoding.ids)

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._bytes.get(number, UNKNOWN) for number in ids)
