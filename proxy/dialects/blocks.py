"""Streaming an answer block by block, whatever the events are called.

What leaves while sampling is a prefix of the durable answer's blocks, and `rest` is exactly what
is left of it, so that the events concatenate to the answer wherever the stream was cut into
pieces. A dialect says how a block opens, grows and closes, and what a block sent at once is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from proxy.dialects.base import Head
from runtime.formats.families import Delta, TextDelta
from specs.errors import ErrorObject, Internal

type Block = dict[str, JsonValue]


class BlockEvents(ABC):
    """The blocks of one answer for one client; `kind` is `text` or `thinking`."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self._shown: list[tuple[str, list[str]]] = []
        """Kind and text of each block that has begun; the last one is open."""

    @property
    def begun(self) -> bool:
        """Whether any content was sent."""
        return bool(self._shown)

    @abstractmethod
    def open(self, index: int, kind: str) -> bytes:
        """A block begins, empty."""

    @abstractmethod
    def more(self, index: int, kind: str, text: str) -> bytes:
        """More of an open block."""

    @abstractmethod
    def close(self, index: int, kind: str, text: str) -> bytes:
        """A block ends; `text` is all of it."""

    @abstractmethod
    def whole(self, index: int, block: Block) -> bytes:
        """A block of any kind of which nothing was sent before."""

    def delta(self, delta: Delta) -> bytes:
        """More of a text or thinking block. Beyond a tool call nothing leaves before the end."""
        if delta.block > len(self._shown):
            return b""
        kind = "text" if isinstance(delta, TextDelta) else "thinking"
        data = b""
        if delta.block == len(self._shown):
            if self._shown:
                data += self._close(delta.block - 1)
            self._shown.append((kind, []))
            data += self.open(delta.block, kind)
        self._shown[-1][1].append(delta.text)
        return data + self.more(delta.block, kind, delta.text)

    def rest(self, content: Sequence[JsonValue]) -> bytes:
        """What of a durable answer's blocks was not sent yet.

        Raises:
            Internal: what was sent is not its beginning.
        """
        if len(self._shown) > len(content):
            raise other_text(self.head)
        return b"".join(
            self._rest(index, cast(Block, block)) for index, block in enumerate(content)
        )

    def _rest(self, index: int, block: Block) -> bytes:
        if index >= len(self._shown):
            return self.whole(index, block)
        kind, texts = self._shown[index]
        text, last = "".join(texts), index == len(self._shown) - 1
        final = block.get(kind)
        if block["type"] != kind or not isinstance(final, str) or not final.startswith(text):
            raise other_text(self.head)
        rest = final[len(text) :]
        if not last:
            if rest:
                raise other_text(self.head)
            return b""
        texts.append(rest)
        return (self.more(index, kind, rest) if rest else b"") + self._close(index)

    def _close(self, index: int) -> bytes:
        kind, texts = self._shown[index]
        return self.close(index, kind, "".join(texts))


def other_text(head: Head) -> Internal:
    """The error of a stream that the answer does not begin with."""
    return Internal(
        "What was streamed is not the beginning of the answer.",
        object=ErrorObject(type="interaction", id=head.intent.interaction),
        next="Report the model family: its reader changed its mind.",
    )
