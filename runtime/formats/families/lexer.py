"""Finds a family's markup in an answer, whether it is made of control tokens or of text.

A pattern is a sequence of characters and control tokens: `<tool_call>` as one control token or
as eleven characters, `<` + `｜DSML｜` + `invoke`. Where a tokenizer has a control token, only that
token counts and its spelling is text; where it has none, the spelling counts. What may still
become markup is held back, so the result does not depend on how the answer was cut up.
"""

from collections.abc import Mapping

from runtime.formats.codec import Codec, Mark, Piece

type Pattern = tuple[Piece, ...]


def pattern(codec: Codec, *parts: Piece) -> Pattern:
    """The symbols of `parts`, in which a `Mark` without a control token is its characters."""
    symbols: list[Piece] = []
    for part in parts:
        if isinstance(part, Mark) and codec.mark(part.token) is not None:
            symbols.append(part)
        else:
            symbols.extend(part.token if isinstance(part, Mark) else part)
    return tuple(symbols)


class Lexer:
    """Splits pieces into text and markup, which is the `Mark` of the pattern's name.

    Args:
        patterns: by name; none may be the beginning of another.
    """

    def __init__(self, patterns: Mapping[str, Pattern]) -> None:
        self._patterns = {symbols: Mark(name) for name, symbols in patterns.items()}
        self._starts = {symbols[0] for symbols in self._patterns}
        self._held: list[Piece] = []

    def feed(self, piece: Piece) -> list[Piece]:
        """What is certain now: markup, and texts that hold none."""
        if (
            not self._held
            and isinstance(piece, str)
            and not any(isinstance(start, str) and start in piece for start in self._starts)
        ):
            return [piece] if piece else []
        self._held.extend([piece] if isinstance(piece, Mark) else piece)
        found: list[Piece] = []
        text: list[str] = []
        place = 0
        while place < len(self._held):
            symbol = self._held[place]
            match, size = self._match(place) if symbol in self._starts else (None, 0)
            if match is None and size:
                break
            if match is not None:
                _flush(text, found)
                found.append(match)
                place += size
                continue
            text.append(symbol.token if isinstance(symbol, Mark) else symbol)
            place += 1
        _flush(text, found)
        del self._held[:place]
        return found

    def close(self) -> list[Piece]:
        """What was held back, as text."""
        text = [symbol.token if isinstance(symbol, Mark) else symbol for symbol in self._held]
        self._held.clear()
        return ["".join(text)] if text else []

    def _match(self, place: int) -> tuple[Mark | None, int]:
        """The pattern at `place` and its size; without a mark, how much of one is there yet."""
        left = len(self._held) - place
        begun = 0
        for symbols, mark in self._patterns.items():
            size = min(left, len(symbols))
            if all(self._held[place + index] == symbols[index] for index in range(size)):
                if size == len(symbols):
                    return mark, size
                begun = size
        return None, begun


def _flush(text: list[str], found: list[Piece]) -> None:
    if text:
        found.append("".join(text))
        text.clear()
