"""Answered turns: what chains are made of, and how a request relates to them."""

from array import array
from dataclasses import dataclass, field

from proxy.replay import Note
from runtime.formats.conversation import Block, Start
from specs.interaction import BranchReason


@dataclass(frozen=True, slots=True)
class Scene:
    """What must be equal for a history to be the same: system, tools and sampler."""

    system: bytes
    tools: bytes
    sampler: str


@dataclass(frozen=True, slots=True)
class Party:
    """The harness's own names for who is talking."""

    session: str = ""
    agent: str = ""


@dataclass(slots=True, eq=False)
class Turn:
    """An answered call: its tokens, its answer, and the hash of the history that ends with it."""

    interaction: str
    base: "Turn | None"
    suffix: "array[int]"
    output: "array[int]"
    scene: Scene
    party: Party
    start: Start = field(default_factory=Start)
    """How its prompt made the answer begin."""
    after: bytes = b""
    said: tuple[Block, ...] = ()
    """The answer as it was sent, with the text that it continues."""
    prefilled: bool = False
    """Whether its request held the beginning of the answer."""
    place: int = 0
    """Index of the answer among the messages of its history."""
    foreign: tuple[tuple[int, bytes], ...] = ()
    """Assistant turns of the request that no earlier turn of this chain is: index and digest."""
    asked: bytes = b""
    """For an answer that showed nothing: hash of the request."""
    followers: int = 0
    """Calls that continue it and are not lost."""

    def tokens(self) -> "array[int]":
        """Its whole prompt and output."""
        line: list[Turn] = [self]
        while (earlier := line[-1].base) is not None:
            line.append(earlier)
        ids = array("i")
        for turn in reversed(line):
            ids.extend(turn.suffix)
            ids.extend(turn.output)
        return ids


@dataclass(frozen=True, slots=True)
class Match:
    """How a request relates to what was answered.

    The prompt is the tokens of `base` (or the opening, without one) and then the messages
    from `start`, of which `kept` are answers of ours: places and turns whose output stands there
    as it was sampled. `branch` is None exactly when the call extends `base`; `notes` say what the
    harness changed in the answers that it sent back. The call replaces `retried`, an answer that
    showed nothing.
    """

    base: Turn | None
    start: int
    branch: BranchReason | None
    notes: frozenset[Note] = frozenset()
    retried: Turn | None = None
    kept: tuple[tuple[int, Turn], ...] = ()

    @property
    def extends(self) -> Turn | None:
        """The turn that the call extends, prompt, output and all."""
        return self.base if self.branch is None else None
