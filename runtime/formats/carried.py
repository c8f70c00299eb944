"""Tokenizers that the package `tml-renderers` carries: those of the open families, offline.

Such a tokenizer is named by a small document, whose bytes stand where a `tokenizer.json` would:
they name package, version and tokenizer, so their digest identifies it as well.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from typing import Any, cast

from runtime.formats.bytelevel import UNKNOWN
from runtime.formats.codec import Codec, FileCodec
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, Unavailable

SCHEMA = "practicum.tokenizer/v1"
PACKAGE, VERSION = "tml-renderers", "0.2.1"

PART = 8192
"""Characters that are given to a tokenizer at once; it works on them for some milliseconds."""
_PAUSE_SEC = 50e-6
_BETWEEN_WORDS = re.compile("[A-Za-z](?= [A-Za-z])")
"""Every tokenizer here begins a word with the space before it, and looks no further ahead."""


def carried_tokenizer(name: str) -> bytes:
    """The document of a carried tokenizer, such as `Qwen3Tokenizer`."""
    return canonical.canonical_bytes(
        {"schema": SCHEMA, "package": PACKAGE, "version": VERSION, "name": name}
    )


def load_codec(data: bytes) -> Codec:
    """The codec of a tokenizer's bytes; may take seconds.

    Raises:
        InvalidInput: these are the bytes of no tokenizer that can be used.
        Unavailable: the package that carries it is not installed in that version.
    """
    document = cast(dict[str, Any], json.loads(data))
    if document.get("schema") == SCHEMA:
        return _carried(document["name"], document["version"])
    return FileCodec(data)


class CarriedCodec(Codec):
    """A tokenizer of `tml-renderers`.

    It does not release the interpreter while it works, so a long text is given to it in parts
    that end between words, where its tokens end anyway; other threads, an event loop above
    all, go on in between.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        numbers = [tokenizer.encode_special(name) for name in tokenizer.special_tokens()]
        super().__init__({tokenizer.decode([number]): number for number in numbers})

    def encode_text(self, text: str) -> list[int]:
        if len(text) <= PART:
            return self._tokenizer.encode_ordinary(text)
        ids: list[int] = []
        for part in parts(text, PART):
            ids += self._tokenizer.encode_ordinary(part)
            time.sleep(_PAUSE_SEC)
        return ids

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        try:
            return self._tokenizer.decode_bytes(list(ids))
        except (ValueError, OverflowError):
            if len(ids) == 1:
                return UNKNOWN
            return b"".join(self.bytes_of([number]) for number in ids)


def parts(text: str, size: int) -> Iterator[str]:
    """The text in parts of at least `size` characters, as soon as there is a place to cut."""
    start = 0
    while match := _BETWEEN_WORDS.search(text, start + size):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


@cache
def _carried(name: str, version: str) -> Codec:
    """Loaded once in a process: some take many seconds."""
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        found = "none"
    if found != version:
        raise Unavailable(
            f"The tokenizer {name} is that of {PACKAGE} {version}, and here is {found}.",
            code=ErrorCode.SOURCE_UNUSABLE,
            object=ErrorObject(type="tokenizer", id=name),
            next=f"Install practicum with its extra `local`, which brings {PACKAGE}.",
        )
    from tml_renderers import tokenizers

    return CarriedCodec(getattr(tokenizers, name)())
