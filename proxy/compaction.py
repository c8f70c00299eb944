"""Compaction: a harness has its history summarised and goes on with the summary instead.

Two requests show it: the one that asks for a summary, on a history whose end may be left out,
and the first after it, which begins with the summary that was answered. Neither extends the
chain before it; both are told from edits by what they hold.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.formats.conversation import Block, Message, Text

_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|$)", re.DOTALL)
_CONTINUED = "This session is being continued from a previous conversation"
_ASKED = "CRITICAL: Respond with TEXT ONLY"
_KEPT = 8
_FEW = 12
"""A shorter summary is no proof: its words may be anybody's."""


@dataclass(slots=True)
class Compactions:
    """The latest summaries that were answered, by session."""

    _summaries: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def answered(self, session: str, said: Sequence[Block]) -> None:
        """Look for a summary in an answer."""
        for block in said:
            found = _SUMMARY.search(block.text) if isinstance(block, Text) else None
            if found and len(text := found.group(1).strip()) >= _FEW:
                known = self._summaries.setdefault(session, [])
                known.append(text)
                del known[:-_KEPT]

    def continues(self, session: str, messages: Sequence[Message]) -> bool:
        """Whether a history begins with a summary of an earlier one."""
        first = next((message for message in messages if message.role == "user"), None)
        texts = [block.text for block in first.blocks if isinstance(block, Text)] if first else []
        summaries = self._summaries.get(session, [])
        return any(
            text.lstrip().startswith(_CONTINUED) or any(known in text for known in summaries)
            for text in texts
        )


def asks_for_summary(messages: Sequence[Message]) -> bool:
    """Whether the last turn asks for the summary of a compaction."""
    return any(
        isinstance(block, Text) and block.text.lstrip().startswith(_ASKED)
        for message in messages[-2:]
        if message.role == "user"
        for block in message.blocks[-1:]
    )
