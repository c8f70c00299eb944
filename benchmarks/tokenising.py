"""Tokenising at each turn of a session: what is new, or everything again.

    python -m benchmarks.tokenising [--turns 64] [--rounds 3] [--json FILE]

A session like Claude Code's: a system prompt, tools, then turns of a tool call and its result.
At every turn the proxy's own chains say what the request continues, and only what follows is
rendered and encoded; beside it the whole conversation is, as a server without memory does.
Both give the same text. Counted are the characters that are given to the tokenizer, the tokens
it makes, and CPU time. Beside it stands what ours costs before: finding in the history what the
request continues, which reads all of it.
Aim (design §8): ≥ 20 times less work at turn 64. The last row is the whole session.
"""

import argparse
import json
import random
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._load import source
from proxy.chains import Chains, scene_of
from proxy.turns import Match, Party, Turn
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.formats.codec import Codec, Piece
from runtime.formats.conversation import (
    Conversation,
    Message,
    Text,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families import Family, family_named

AIM = 20.0
FAMILY, TOKENIZER = "qwen3", "Qwen3Tokenizer"
SYSTEM, TOOLS, DESCRIPTION, RESULT = 12_000, 18, 1_800, 1_500
"""Characters of the system prompt, tools, of each tool's description, and of a result."""


@dataclass(slots=True)
class Work:
    """What was given to the tokenizer, turn by turn."""

    characters: list[int] = field(default_factory=list[int])
    tokens: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])
    lookup: list[float] = field(default_factory=list[float])
    """Seconds until it was known what the turn continues."""

    def add(self, pieces: Sequence[Piece], ids: "array[int]", seconds: float) -> None:
        """One turn more."""
        self.characters.append(sum(len(piece) for piece in pieces if isinstance(piece, str)))
        self.tokens.append(len(ids))
        self.seconds.append(seconds)


class Session:
    """A conversation and its chains, in the tokens of a family."""

    def __init__(self, family: Family, codec: Codec) -> None:
        self.family, self.codec = family, codec
        self.chance = random.Random(0)
        self.chains = Chains()
        self.stops = {number: name for name in family.stops if (number := codec.mark(name))}
        self.system = (source(self.chance, SYSTEM),)
        self.tools = tuple(
            Tool(f"tool_{number}", source(self.chance, DESCRIPTION), {"type": "object"})
            for number in range(TOOLS)
        )
        self.messages: list[Message] = [Message("user", (Text("Repair the failing test."),))]

    def turn(self, number: int, new: Work, whole: Work) -> None:
        """Prepare the prompt of a turn in both ways, and let it be answered."""
        conversation = Conversation(self.system, self.tools, tuple(self.messages))
        begun = time.process_time()
        scene, party = scene_of(conversation, "sampler"), Party()
        match = self.chains.match(conversation, scene, party, self.stops)
        new.lookup.append(time.process_time() - begun)
        begun = time.process_time()
        pieces = self._pieces(conversation, match)
        ids = self.codec.encode(pieces)
        new.add(pieces, ids, time.process_time() - begun)

        begun = time.process_time()
        everything = self.family.prompt(conversation)
        rendered = self.codec.encode(everything)
        whole.add(everything, rendered, time.process_time() - begun)

        prompt = (match.base.tokens() if match.base else array("i")) + ids
        assert self.codec.decode(prompt) == self.codec.decode(rendered)
        assert (match.branch is None) == bool(number)
        call = ToolUse(f"call_{number}", "tool_1", {"command": f"sed -n {number},40p main.py"})
        output = self.codec.encode(self.family.answer([Text("I look further."), call]))
        turn = Turn(f"int_{number}", match.base, ids, output, scene, party)
        content: list[Any] = [
            {"type": "text", "text": "I look further."},
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.input)},
        ]
        self.chains.settle(turn, conversation.messages, content)
        result = ToolResult(call.id, source(self.chance, RESULT))
        self.messages.append(Message("assistant", (Text("I look further."), call)))
        self.messages.append(Message("user", (result,)))

    def _pieces(self, conversation: Conversation, match: Match) -> list[Piece]:
        if match.base is None:
            return self.family.prompt(conversation)
        last = self.stops.get(match.base.output[-1])
        return self.family.suffix(conversation, match.start, last)


def run(turns: int, rounds: int) -> dict[str, Any]:
    """Both ways, `rounds` times; times are medians over the rounds."""
    codec = load_codec(carried_tokenizer(TOKENIZER))
    family = family_named(FAMILY, codec, model=FAMILY)
    new = [Work() for _ in range(rounds)]
    whole = [Work() for _ in range(rounds)]
    for ours, theirs in zip(new, whole, strict=True):
        session = Session(family, codec)
        for number in range(turns):
            session.turn(number, ours, theirs)
    report: dict[str, Any] = {"turns": turns, "aim": AIM}
    for name, chosen in (("last_turn", slice(-1, None)), ("session", slice(None))):
        row: dict[str, Any] = {}
        for kind in ("characters", "tokens", "seconds"):
            ours, theirs = (
                median(sum(getattr(work, kind)[chosen]) for work in side) for side in (new, whole)
            )
            row[kind] = {"ours": ours, "whole": theirs, "times_less": round(theirs / ours, 1)}
        row["lookup_seconds"] = median(sum(work.lookup[chosen]) for work in new)
        report[name] = row
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    report = run(options.turns, options.rounds)
    print(f"{'':<24}{'whole again':>14}{'ours':>14}{'times less':>12}   (aim ≥ {AIM:g})")
    for name in ("last_turn", "session"):
        for kind in ("characters", "tokens", "seconds"):
            row = report[name][kind]
            unit, scale = ("ms", 1000) if kind == "seconds" else (kind, 1)
            cells = "".join(f"{row[side] * scale:>14.5g}" for side in ("whole", "ours"))
            print(f"{name + ', ' + unit:<24}{cells}{row['times_less']:>12}")
        lookup = 1000 * report[name]["lookup_seconds"]
        print(f"{name + ', lookup, ms':<24}{'':>14}{lookup:>14.5g}")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
