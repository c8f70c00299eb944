"""Evidence becomes training sequences with an independent mask of generated tokens.

Turns of a chain extend one another, so the last turn's prompt and output are the whole
sequence; every earlier turn only marks its own span in it. A branch begins another sequence.
Where two turns extend the same turn, the first continues its sequence and the other starts
one whose shared prefix is observation: no generated token is marked twice.

`generated` names the tokens that a sampler drew; it is shifted with targets and log-probs
and never inferred from advantages (invariant 6). An answer that reached nobody and that nothing
extends was never acted upon and is left out: the trial's reward says nothing about it. So is an
empty one that its harness threw away to ask again. `credits` names the calls that are learnt from
and the weight of each; what it leaves out is observation where another call extends it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.compute.protocol import FloatArray, IntArray
from specs.interaction import Interaction

type Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Packed:
    """One packed sequence after the shift; every array has the same length n.

    `tokens` [n] predict `targets` [n]; `generated` [n] marks the targets that were sampled;
    `logprobs` [n] are the sampler's at those and zero elsewhere, or None if any turn has none;
    `credit` [n] is the weight of each marked target's call, and zero elsewhere.
    """

    interactions: tuple[str, ...]
    tokens: IntArray
    targets: IntArray
    generated: Mask
    logprobs: FloatArray | None
    credit: FloatArray

    @property
    def trained_tokens(self) -> int:
        return int(np.count_nonzero(self.generated))


def pack(
    interactions: Sequence[Interaction], credits: Mapping[str, float] | None = None
) -> list[Packed]:
    """The sequences of one trial, in the order in which their chains begin.

    `credits`: weights (not zero) by id of the calls that are learnt from; None = all, with 1.
    """
    return [_assemble(chain, credits) for chain in chains(interactions, credits)]


def chains(
    interactions: Sequence[Interaction], credits: Mapping[str, float] | None = None
) -> list[list[Interaction]]:
    """The turns that are learnt from as chains: each in exactly one, extending the one before."""
    turns = [turn for turn in acted_upon(interactions) if _learns(turn, credits)]
    chain_of: dict[str, list[Interaction]] = {}
    result: list[list[Interaction]] = []
    for turn in turns:
        parent = turn.intent.parent if turn.exact else None
        chain = chain_of.get(parent) if parent is not None else None
        if chain is not None and chain[-1].intent.interaction == parent:
            chain.append(turn)
        else:
            chain = [turn]
            result.append(chain)
        chain_of[turn.intent.interaction] = chain
    return result


def acted_upon(interactions: Sequence[Interaction]) -> list[Interaction]:
    """The turns whose generated tokens are learnt from."""
    extended = {call.intent.parent for call in interactions if call.exact}
    return [
        call
        for call in interactions
        if len(call.output) and (call.acted_upon or call.intent.interaction in extended)
    ]


def _learns(turn: Interaction, credits: Mapping[str, float] | None) -> bool:
    return credits is None or turn.intent.interaction in credits


def _assemble(chain: Sequence[Interaction], credits: Mapping[str, float] | None) -> Packed:
    last = chain[-1]
    start = len(last.prompt)
    size = start + len(last.output)
    whole: IntArray = np.empty(size, np.int32)
    whole[:start] = last.prompt
    whole[start:] = last.output
    generated: Mask = np.zeros(size, np.bool_)
    logprobs: FloatArray | None = np.zeros(size, np.float32)
    credit: FloatArray = np.zeros(size, np.float32)
    for turn in chain:
        begin = len(turn.prompt)
        end = begin + len(turn.output)
        generated[begin:end] = True
        credit[begin:end] = 1.0 if credits is None else credits[turn.intent.interaction]
        if turn.logprobs is None or logprobs is None:
            logprobs = None
        else:
            logprobs[begin:end] = turn.logprobs
    return Packed(
        interactions=tuple(turn.intent.interaction for turn in chain),
        tokens=whole[:-1],
        targets=whole[1:],
        generated=generated[1:],
        logprobs=None if logprobs is None else logprobs[1:],
        credit=credit[1:],
    )
