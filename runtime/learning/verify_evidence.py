"""Checks of sealed segments, frame by frame, and of log-probs against compute."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime.compute.protocol import Compute, FloatArray, SamplerSpec
from runtime.learning.evidence import Objects, seal_mismatch
from runtime.learning.findings import Finding
from runtime.learning.policy import bring_adapter
from runtime.learning.snapshot import Snapshot
from specs import evidence
from specs.errors import InvalidInput, NotFound
from specs.interaction import (
    Answer,
    Delivered,
    Failure,
    Intent,
    Interaction,
    Refusal,
    Superseded,
)
from specs.records import Trial

TOLERANCE = 1e-4
"""Largest difference of a recorded log-prob from its derivation, in nats."""


@dataclass
class EvidenceChecks:
    """The evidence checks of a run; `look` takes in one trial's segment at a time."""

    objects: Finding = field(
        default_factory=lambda: Finding(
            "evidence.objects", 11, "each segment has the digest, size and counts of its seal"
        )
    )
    intents: Finding = field(
        default_factory=lambda: Finding(
            "evidence.intents", 2, "every call has an intent before its one outcome; none is absent"
        )
    )
    chains: Finding = field(
        default_factory=lambda: Finding(
            "evidence.chains", 3, "a prompt starts with its parent's prompt and output, or branches"
        )
    )
    samplers: Finding = field(
        default_factory=lambda: Finding(
            "evidence.samplers", 7, "every call of a trial samples from its group's sampler"
        )
    )
    interactions: int = 0
    spans: Counter[str] = field(default_factory=Counter[str])

    def results(self) -> list[Finding]:
        return [self.objects, self.intents, self.chains, self.samplers]

    async def look(self, objects: Objects, trial: Trial) -> tuple[Interaction, ...]:
        """Check one counted trial; its calls, or none where they cannot be read."""
        seal = trial.settled.seal if trial.settled else None
        if seal is None:
            return ()
        self.objects.equal(
            f"seal of {trial.id}",
            (seal.trial, seal.run, seal.fence),
            (trial.id, trial.run, trial.fence),
        )
        if seal.object is None:
            self.objects.equal(f"calls of {trial.id} without a segment", seal.interactions, 0)
            return ()
        try:
            data = await objects.object(seal.object)
            calls = tuple(evidence.interactions(data))
            refused = evidence.refusals(data)
        except (InvalidInput, NotFound) as error:
            self.objects.expect(False, f"segment of {trial.id}: {error}")
            return ()
        mismatch = seal_mismatch(seal, data, calls)
        self.objects.expect(not mismatch, f"segment of {trial.id}: {'; '.join(mismatch)}")
        self._look_at_frames(trial, data)
        self._look_at_order(trial, calls, refused)
        self._look_at_calls(trial, calls)
        self.interactions += len(calls)
        self.spans.update(call.span for call in calls)
        return calls

    def _look_at_frames(self, trial: Trial, data: bytes) -> None:
        """Intent first, then at most one outcome; a call gone only after its answer."""
        seen: dict[str, list[str]] = {}
        for frame, _ in evidence.frames(data):
            seen.setdefault(frame.record.interaction, []).append(frame.record.kind)
            match frame.record:
                case Intent() | Refusal() as opening:
                    self.intents.equal(f"trial of {opening.interaction}", opening.trial, trial.id)
                case Answer() | Failure() | Superseded() | Delivered():
                    pass
        for name, kinds in seen.items():
            self.intents.expect(in_order(kinds), f"{name} of {trial.id} was recorded as {kinds}")

    def _look_at_order(
        self, trial: Trial, calls: Sequence[Interaction], refused: Sequence[Refusal]
    ) -> None:
        numbers = [call.intent.sequence for call in calls]
        numbers += [refusal.sequence for refusal in refused]
        self.intents.equal(
            f"numbers of the calls of {trial.id}", sorted(numbers), list(range(len(numbers)))
        )

    def _look_at_calls(self, trial: Trial, calls: Sequence[Interaction]) -> None:
        known: dict[str, Interaction] = {}
        for call in calls:
            intent, name = call.intent, call.intent.interaction
            self.samplers.equal(f"sampler of {name}", intent.sampler, trial.sampler)
            self.chains.equal(f"prompt length of {name}", intent.prompt_tokens, len(call.prompt))
            self.chains.equal(
                f"prompt of {name}", intent.prompt_sha256, evidence.prompt_hash(call.prompt)
            )
            if intent.branch is None:
                parent = known.get(intent.parent or "")
                whole = None if parent is None else parent.prompt + parent.output
                self.chains.expect(
                    whole is not None and call.prompt[: len(whole)] == whole,
                    f"{name} is exact and does not extend {intent.parent}",
                )
            known[name] = call


_ORDERS = (
    ["intent"],
    ["intent", "failure"],
    ["refusal"],
    ["intent", "answer"],
    ["intent", "answer", "superseded"],
)


def in_order(kinds: Sequence[str]) -> bool:
    """Whether these are the records of one call; an answer may have been delivered, once."""
    outcome = [kind for kind in kinds if kind != "delivered"]
    if outcome not in _ORDERS:
        return False
    return "delivered" not in kinds or (
        kinds.count("delivered") == 1 and "answer" in kinds[: kinds.index("delivered")]
    )


@dataclass
class LogprobCheck:
    """Sampler log-probs derived again on a sample of the interactions.

    A call that a later one of its trial continues exactly is read off that one's pass: a chain
    costs one pass, whatever its length.
    """

    compute: Compute | None
    objects: Objects
    snapshot: Snapshot
    samples: int | None
    finding: Finding = field(
        default_factory=lambda: Finding(
            "evidence.logprobs", 1, f"recorded log-probs are the sampler's, within {TOLERANCE:g}"
        )
    )
    recomputed: int = 0
    largest: float | None = None
    _seen: int = 0

    async def look(self, total: int, calls: Sequence[Interaction]) -> None:
        """Check the calls whose place is drawn: `samples` of `total`, evenly spread."""
        if self.compute is None:
            self.finding.skipped = "compute was not asked"
            return
        passes: dict[str, FloatArray] = {}
        for call in calls:
            place, self._seen = self._seen, self._seen + 1
            if call.logprobs is not None and self._drawn(place, total):
                await self._recompute(self.compute, call, _longest(call, calls), passes)

    def _drawn(self, place: int, total: int) -> bool:
        if self.samples is None or self.samples >= total:
            return True
        return (place * self.samples) // total != ((place + 1) * self.samples) // total

    async def _recompute(
        self,
        compute: Compute,
        call: Interaction,
        longest: Interaction,
        passes: dict[str, FloatArray],
    ) -> None:
        """Compare one call with the pass over `longest`, which begins with it."""
        name = call.intent.interaction
        sampler = self.snapshot.samplers.get(call.intent.sampler)
        if call.answer is None or call.answer.provenance != "sampled" or sampler is None:
            return
        derived = passes.get(longest.intent.interaction)
        if derived is None:
            await bring_adapter(compute, self.objects, sampler)
            tokens = np.array(longest.prompt + longest.output, np.int32)
            spec = SamplerSpec(sampler.base_model, sampler.adapter)
            derived = passes[longest.intent.interaction] = await compute.logprobs(spec, tokens)
        recorded = np.array(call.logprobs, np.float32)
        tail = derived[len(call.prompt) : len(call.prompt) + len(call.output)]
        self.recomputed += 1
        if not self.finding.equal(f"log-probs of {name}", len(recorded), len(tail)):
            return
        gap = float(np.abs(recorded - tail).max(initial=0.0))
        self.largest = max(self.largest or 0.0, gap)
        self.finding.expect(gap <= TOLERANCE, f"log-probs of {name} differ by up to {gap:.3g}")


def _longest(call: Interaction, calls: Sequence[Interaction]) -> Interaction:
    """The last call of the same sampler whose tokens begin with those of `call`; it may be it."""
    own = call.prompt + call.output
    return next(
        other
        for other in reversed(calls)
        if other is call
        or (
            other.intent.sampler == call.intent.sampler
            and other.answer is not None
            and other.prompt[: len(own)] == own
        )
    )


def count_interactions(trials: Sequence[Trial]) -> int:
    """As sealed."""
    seals = [trial.settled.seal for trial in trials if trial.settled and trial.settled.seal]
    return sum(seal.interactions for seal in seals)
