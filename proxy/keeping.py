"""Answers of ours in a history that does not go on from them: their tokens stay as sampled.

After a compaction, an edit, or a change of system or tools the prompt is rendered anew. Where an
assistant turn of it is an answer that was given, its stored output stands for it, thinking
included, and only what is around it is rendered: a sampled token is never recomputed
(invariant 1). An answer is known again by the ids of its calls, by the signature of its thinking,
or, where the echo hides nothing of it, by its words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.replay import Note, compare
from proxy.turns import Match, Party, Scene, Turn
from runtime.formats.conversation import Message, Tool, ToolUse


@dataclass(slots=True)
class Kept:
    """The answered turns of a trial by what they say."""

    _turns: dict[bytes, list[Turn]] = field(default_factory=dict[bytes, list[Turn]])

    def add(self, key: bytes, turn: Turn) -> None:
        """Remember a turn by the hash of its answer.

        One that goes on with words of its request, or with a call that its prompt began, is not
        all in its output, and is rendered where it comes back.
        """
        if turn.output and not turn.prefilled and turn.start.call is None:
            self._turns.setdefault(key, []).append(turn)

    def remove(self, turn: Turn) -> None:
        """Forget a turn."""
        for turns in self._turns.values():
            if turn in turns:
                turns.remove(turn)

    def within(
        self,
        match: Match,
        messages: Sequence[Message],
        marks: Sequence[bytes],
        scene: Scene,
        party: Party,
        tools: Mapping[str, Tool],
    ) -> Match:
        """`match` with the answers that are among its messages still to be rendered."""
        kept: list[tuple[int, Turn]] = []
        notes: set[Note] = set()
        for place in range(match.start, len(messages) - 1):
            if messages[place].role != "assistant":
                continue
            goes_on = place > match.start and messages[place - 1].role == "assistant"
            if goes_on and (not kept or kept[-1][0] != place - 1):
                continue  # with a turn that is rendered
            found = self._find(messages[place], marks[place], scene, party, tools)
            if found is not None:
                kept.append((place, found[0]))
                notes |= found[1]
        if not kept:
            return match
        notes |= match.notes | {Note.KEPT_ANSWERS}
        return replace(match, kept=tuple(kept), notes=frozenset(notes))

    def _find(
        self,
        message: Message,
        key: bytes,
        scene: Scene,
        party: Party,
        tools: Mapping[str, Tool],
    ) -> tuple[Turn, frozenset[Note]] | None:
        """The answer that a message is: the party's own before others', the latest."""
        best: tuple[Turn, frozenset[Note]] | None = None
        for turn in self._turns.get(key, ()):
            if turn.scene.sampler != scene.sampler:
                continue
            notes = compare(turn.said, message.blocks, tools)
            if notes is None:
                continue
            hidden = Note.DROPPED_THINKING in notes
            if hidden and not any(isinstance(block, ToolUse) for block in turn.said):
                continue
            if best is None or turn.party == party or best[0].party != party:
                best = (turn, notes)
        return best
