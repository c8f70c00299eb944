"""What the proxy asks of a model family.

A prompt is `opening + turns + generation`. After an answer the next prompt goes on with
`joint + turns + generation`: what the template puts between an answer's last token and the
next turn belongs to the next prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from runtime.formats.codec import Piece
from runtime.formats.conversation import Message, Tool


@dataclass(frozen=True, slots=True)
class Parsed:
    """Content blocks of an answer. A call that cannot be read stays text, with the reason."""

    content: list[JsonValue]
    parse_error: str | None = None


class Family(Protocol):
    """Rendering and parsing of one family; pure and without state."""

    @property
    def renderer(self) -> str:
        """Name and version, as samplers record it: any change of rendering is a new version."""
        ...

    @property
    def end(self) -> str:
        """The token that ends a turn."""
        ...

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        """What comes before the first turn."""
        ...

    def turns(self, messages: Sequence[Message]) -> list[Piece]:
        """Whole turns, each with its end."""
        ...

    def generation(self, prefill: str = "") -> list[Piece]:
        """The open turn that the model continues."""
        ...

    def joint(self, *, ended: bool) -> list[Piece]:
        """From the last token of an answer to the next turn; `ended`: that token is `end`."""
        ...

    def parse(self, text: str, *, call: str, tools: bool) -> Parsed:
        """Content blocks of an answer's text without its end.

        `call` names the interaction and makes the ids of tool calls; without `tools` markup
        of a call is plain text.
        """
        ...
