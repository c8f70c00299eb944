"""Listening to an answer while it is sampled: tokens to pieces, pieces to blocks.

The same work is done once for a stream and for a whole answer: what a harness may see early is
a by-product of reading. Stop sequences are looked for in the text of text blocks, token by
token, so that the sampled tokens end with the one that completed the sequence however the
chunks were cut; the displayed text ends before the sequence, and no part of it leaves early.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from proxy.dialects.base import signature
from runtime.compute.chunks import fold
from runtime.compute.protocol import Chunk, Sampled
from runtime.formats.codec import Decoder
from runtime.formats.families import Delta, Reader, TextDelta


@dataclass(frozen=True, slots=True)
class Heard:
    """A whole answer: its tokens, and the content blocks that they mean."""

    sampled: Sampled
    content: list[JsonValue]
    parse_error: str | None
    stop_reason: Literal["stop", "length", "sequence", "call"]
    stop_sequence: str | None


class Hearing:
    """Reads one answer as its chunks arrive.

    Args:
        interaction: signs thinking.
        decoder: of the model's tokenizer.
        reader: of the model's family.
        stop_sequences: texts that end the answer.
        one_call: whether the first call ends it.
    """

    def __init__(
        self,
        interaction: str,
        decoder: Decoder,
        reader: Reader,
        stop_sequences: Sequence[str],
        *,
        one_call: bool = False,
    ) -> None:
        self._interaction = interaction
        self._decoder = decoder
        self._reader = reader
        self._stops = StopText(stop_sequences) if stop_sequences else None
        self._chunks: list[Chunk] = []
        self._one_call = one_call
        self._cut: _Cut | None = None

    @property
    def over(self) -> bool:
        """Whether a stop sequence or a call has ended the answer: sample no further."""
        return self._cut is not None or self._called

    @property
    def _called(self) -> bool:
        return self._one_call and self._reader.calls > 0

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Read what arrived: the deltas that may be shown."""
        if self._stops is None and not self._one_call:
            self._chunks.append(chunk)
            return self._reader.feed(self._decoder.feed(chunk.tokens.tolist()))
        shown: list[Delta] = []
        for index, token in enumerate(chunk.tokens.tolist()):
            deltas = self._reader.feed(self._decoder.feed([token]))
            if self._stops is None:
                shown += deltas
            else:
                self._cut = self._stops.feed(deltas, shown)
            if self.over:
                self._chunks.append(_head(chunk, index + 1))
                return shown
        self._chunks.append(chunk)
        return shown

    def close(self) -> Heard:
        """The answer, once the last chunk has come or a stop sequence ended it.

        Raises:
            Internal: the chunks are no sequence.
        """
        sampled = fold(self._chunks)
        self._reader.feed(self._decoder.close())
        parsed = self._reader.close()
        content = parsed.content
        if self._cut is None and self._stops is not None:
            self._cut = self._stops.close(content)
        if self._cut is not None:
            content = _before(content, self._cut)
        reason = sampled.stop_reason
        if self.over:
            reason = "call" if self._cut is None else "sequence"
        sequence = None if self._cut is None else self._cut.sequence
        return Heard(sampled, self._signed(content), parsed.parse_error, reason, sequence)

    def _signed(self, content: Sequence[JsonValue]) -> list[JsonValue]:
        signed: list[JsonValue] = []
        for index, value in enumerate(content):
            block = cast(dict[str, JsonValue], value)
            if block["type"] == "thinking":
                block = {**block, "signature": signature(self._interaction, index)}
            signed.append(block)
        return signed


@dataclass(frozen=True, slots=True)
class _Cut:
    block: int
    length: int
    """Of the block's text that stays."""
    sequence: str


class StopText:
    """Finds the first stop sequence in text blocks, and holds back what may become one."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences = sequences
        self._longest = max(map(len, sequences))
        self._block = -1
        self._sent = 0
        """Of the open block's text, what was shown."""
        self._held = ""

    def feed(self, deltas: Sequence[Delta], shown: list[Delta]) -> _Cut | None:
        """Pass on to `shown` what cannot be part of a stop sequence; where one stands."""
        for delta in deltas:
            if delta.block != self._block:
                self._flush(shown)
                self._block, self._sent = delta.block, 0
            if not isinstance(delta, TextDelta):
                shown.append(delta)
                continue
            self._held += delta.text
            if (found := self._find(self._held)) is not None:
                at, sequence = found
                self._show(shown, at)
                return _Cut(self._block, self._sent, sequence)
            self._show(shown, len(self._held) - self._overlap())
        return None

    def close(self, content: Sequence[JsonValue]) -> _Cut | None:
        """A sequence in what the reader had held back to the end."""
        for index, value in enumerate(content):
            block = cast(dict[str, JsonValue], value)
            if block["type"] != "text":
                continue
            if (found := self._find(cast(str, block["text"]))) is not None:
                return _Cut(index, found[0], found[1])
        return None

    def _find(self, text: str) -> tuple[int, str] | None:
        places = [(text.find(one), one) for one in self._sequences]
        return min((place for place in places if place[0] >= 0), default=None)

    def _overlap(self) -> int:
        """Length of the longest end of what is held that begins a stop sequence."""
        for size in range(min(len(self._held), self._longest - 1), 0, -1):
            end = self._held[-size:]
            if any(one.startswith(end) for one in self._sequences):
                return size
        return 0

    def _show(self, shown: list[Delta], size: int) -> None:
        text, self._held = self._held[:size], self._held[size:]
        if text:
            shown.append(TextDelta(self._block, text))
            self._sent += len(text)

    def _flush(self, shown: list[Delta]) -> None:
        self._show(shown, len(self._held))


def _head(chunk: Chunk, size: int) -> Chunk:
    """The first tokens of a chunk as the end of its sequence."""
    logprobs = None if chunk.logprobs is None else chunk.logprobs[:size]
    return Chunk(chunk.tokens[:size], logprobs, chunk.provenance, "length")


def _before(content: Sequence[JsonValue], cut: _Cut) -> list[JsonValue]:
    kept = list(content[: cut.block])
    if cut.block < len(content):
        block = cast(dict[str, JsonValue], content[cut.block])
        text = cast(str, block["text"])[: cut.length]
        if text:
            kept.append({**block, "text": text})
    return kept
