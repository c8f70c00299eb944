"""Evidence of trials, fetched by digest, checked against its seal, and kept within a budget.

A group is passed over twice (verdicts, then gradients), and again if a trainer is lost. What
fits the budget is read once; beyond it the oldest segments are fetched again, so memory stays
bounded however large the batch is.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.learning.eligibility import Reason, Verdict
from specs import evidence
from specs.errors import InvalidInput, NotFound
from specs.interaction import CallState, Interaction, Seal
from specs.records import Trial

BUDGET = 256 << 20
"""Bytes of segments kept; decoded arrays are of the same order."""


class Objects(Protocol):
    """Where segments are read from."""

    async def object(self, digest: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """The calls of one trial; `problem` says why they cannot be trusted."""

    interactions: tuple[Interaction, ...] = ()
    problem: Verdict | None = None


class EvidenceReader:
    """Reads sealed evidence. Not for concurrent use."""

    def __init__(self, objects: Objects, *, budget: int = BUDGET) -> None:
        self._objects = objects
        self._budget = budget
        self._kept: OrderedDict[str, tuple[int, Evidence]] = OrderedDict()
        self._size = 0

    async def read(self, trial: Trial) -> Evidence:
        """The trial's evidence; empty where nothing was sealed.

        Unavailable storage raises, damaged storage is a `problem`. On cancel nothing is kept.
        """
        seal = trial.settled.seal if trial.settled else None
        if seal is None or seal.object is None:
            return Evidence()
        if seal.object in self._kept:
            self._kept.move_to_end(seal.object)
            return self._kept[seal.object][1]
        size, found = await self._fetch(seal, seal.object)
        self._keep(seal.object, size, found)
        return found

    async def _fetch(self, seal: Seal, digest: str) -> tuple[int, Evidence]:
        try:
            data = await self._objects.object(digest)
            calls = tuple(evidence.interactions(data))
        except (InvalidInput, NotFound) as error:
            return 0, Evidence(problem=Verdict(Reason.EVIDENCE_DAMAGED, str(error)))
        mismatch = seal_mismatch(seal, data, calls)
        if mismatch:
            return len(data), Evidence(problem=Verdict(Reason.EVIDENCE_MISMATCH, mismatch[0]))
        return len(data), Evidence(calls)

    def _keep(self, digest: str, size: int, found: Evidence) -> None:
        self._kept[digest] = (size, found)
        self._size += size
        while self._size > self._budget and len(self._kept) > 1:
            _, (gone, _) = self._kept.popitem(last=False)
            self._size -= gone


def seal_mismatch(seal: Seal, data: bytes, calls: Sequence[Interaction]) -> list[str]:
    """In which counts the segment differs from its seal; empty when it is what was sealed."""
    states = Counter(call.state for call in calls)
    states[CallState.REFUSED] = len(evidence.refusals(data))
    sealed = Counter({state: seal.states.get(state, 0) for state in CallState})
    expected = {
        "states": (+sealed, +states),
        "size": (seal.size, len(data)),
        "interactions": (seal.interactions, len(calls)),
        "prompt_tokens": (seal.prompt_tokens, sum(len(call.prompt) for call in calls)),
        "output_tokens": (seal.output_tokens, sum(len(call.output) for call in calls)),
    }
    return [
        f"{name}: sealed {claimed}, found {found}"
        for name, (claimed, found) in expected.items()
        if claimed != found
    ]
