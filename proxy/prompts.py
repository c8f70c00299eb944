"""The tokens of a prompt: what is stored is taken over, what is new is rendered and tokenised.

A prompt is the tokens of the turn that it goes on from, then parts: rendered turns, and between
them outputs of ours that stand in the rest of the history (see `proxy.keeping`). Each rendered
part ends with the open turn that the stored output once continued, so parts join where prompts
and answers did.
"""

from array import array
from dataclasses import replace

from proxy.models import Voice
from proxy.turns import Match, Turn
from runtime.formats.codec import Piece
from runtime.formats.conversation import Conversation, Start

type Part = list[Piece] | array[int]


def startable(voice: Voice, conversation: Conversation) -> tuple[Conversation, frozenset[str]]:
    """The conversation with a start that its model's prompt can have, and what is asked in vain.

    An upstream renders by itself and is asked for nothing.
    """
    start = conversation.start
    if voice.info.backend != "upstream":
        return conversation, voice.family.unenforced(conversation)
    vain = {"tool_choice"} if start.call is not None else set[str]()
    if start.thinking is not None:
        vain.add("thinking")
    return replace(conversation, start=Start()), frozenset(vain)


def render(voice: Voice, conversation: Conversation, match: Match) -> "array[int]":
    """What follows the tokens of `match.base`, or the whole prompt without one."""
    ids = array("i")
    for part in _parts(voice, conversation, match):
        ids.extend(part if isinstance(part, array) else voice.codec.encode(part))
    return ids


def _parts(voice: Voice, conversation: Conversation, match: Match) -> list[Part]:
    messages, base, start = conversation.messages, match.base, match.start
    if base is not None and start == len(messages):
        return []
    parts: list[Part] = []
    for place, turn in match.kept:
        before = replace(conversation, messages=messages[:place], start=turn.start)
        before, _ = startable(voice, before)
        parts += [_rendered(voice, before, base, start), turn.output]
        base, start = turn, place + 1
    return [*parts, _rendered(voice, conversation, base, start)]


def _rendered(
    voice: Voice, conversation: Conversation, base: Turn | None, start: int
) -> list[Piece]:
    """The turns from `start`, behind the output of `base`."""
    if base is None:
        return voice.family.prompt(conversation)
    last = voice.codec.name(base.output[-1]) if base.output else None
    return voice.family.suffix(conversation, start, last)
