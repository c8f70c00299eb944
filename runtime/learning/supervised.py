"""Supervised learning: cross-entropy on the recorded action tokens of an earlier run.

The same evidence, packing, masks, boundary and checkpoints as reinforcement learning; what
differs is the selection (a condition on the assessed reward), the verdict (tokens of any
provenance) and the weight of a token (1 / action tokens of its batch). Batches are numbered
through all epochs; the order of an epoch follows from the plan's seed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.compute.protocol import Loss
from runtime.execution.context import RunContext
from runtime.learning.eligibility import Verdict, for_imitation
from runtime.learning.evidence import EvidenceReader, Objects
from runtime.learning.metrics import reward_measures
from runtime.learning.order import permutation
from runtime.learning.packing import pack
from runtime.learning.resolution import PATIENCE
from runtime.learning.session import learning
from runtime.learning.settlement import reward_of
from runtime.learning.work import Row, Work
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.operator_api import TrialPage
from specs.plans import SupervisedPlan
from specs.records import Trial
from specs.run import RunSpec, SamplerRef
from specs.worker_api import BatchStarted


class SourceRecords(Objects, Protocol):
    """Reads of the source run; `runtime.client.WorkerClient` has them."""

    async def trials(
        self, run: str, *, counted: bool | None = None, cursor: str | None = None
    ) -> TrialPage: ...
    async def sampler(self, sampler: str) -> SamplerRef: ...


@dataclass(frozen=True, slots=True)
class Example:
    """A selected trial and how many action tokens it has."""

    trial: Trial
    tokens: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What the source gives, and what became of its other counted trials."""

    examples: tuple[Example, ...]
    census: dict[str, int]


async def run_supervised(
    ctx: RunContext, source: SourceRecords, *, patience: float = PATIENCE
) -> None:
    """Work through a supervised run, from wherever its records say that it is.

    On cancel the records stay as they are, for the next claim; compute keeps no trainer.

    Raises:
        InvalidInput: `source_unusable`: no trial of the source can be learnt from.
        RunStopped: cancelled, blocked, or the claim is lost.
        PracticumError: the run cannot go on; its checkpoints stay.
    """
    plan = supervised_plan(ctx.spec)
    selection = await select(source, EvidenceReader(source), ctx.spec)
    batches = example_batches(selection.examples, plan)
    async with learning(ctx, len(batches), patience=patience) as session:
        for number, examples in enumerate(batches):
            if number in session.done:
                continue
            ctx.check()
            if not session.started(number):
                names = tuple(dict.fromkeys(example.trial.task for example in examples))
                await ctx.write(
                    BatchStarted(batch=number, sampler=session.policy.sampler.id, tasks=names)
                )
            work = batch_work(number, examples, selection.census, final=session.final(number))
            await session.update(work)
        await session.finish()


def supervised_plan(spec: RunSpec) -> SupervisedPlan:
    """The plan of a supervised run."""
    if not isinstance(spec.plan, SupervisedPlan):
        raise InvalidInput(
            f"Run {spec.id} has a plan of kind {spec.plan.kind}, not supervised.",
            object=ErrorObject(type="run", id=spec.id),
        )
    return spec.plan


async def select(source: SourceRecords, evidence: EvidenceReader, spec: RunSpec) -> Selection:
    """The source's counted trials whose reward the plan accepts and whose tokens can be used.

    Raises:
        InvalidInput: `source_unusable`: there is none, or its tokens are another model's.
    """
    plan = supervised_plan(spec)
    census: Counter[str] = Counter()
    examples: list[Example] = []
    samplers: set[str] = set()
    cursor: str | None = None
    while True:
        page = await source.trials(plan.source.run, counted=True, cursor=cursor)
        for trial in page.items:
            found = await evidence.read(trial)
            verdict = found.problem or for_imitation(trial, found.interactions)
            if verdict.eligible and not plan.source.accepts(reward_of(trial)):
                census["not_selected"] += 1
                continue
            census[_outcome(verdict)] += 1
            if verdict.eligible:
                tokens = sum(packed.trained_tokens for packed in pack(found.interactions))
                examples.append(Example(trial, tokens))
                samplers |= {call.intent.sampler for call in found.interactions}
        cursor = page.next
        if cursor is None:
            break
    if not examples:
        raise _unusable(plan, f"none of its trials has {plan.source.select} and whole evidence")
    for sampler in sorted(samplers):
        if (await source.sampler(sampler)).tokenizer_digest != spec.sampler.tokenizer_digest:
            raise _unusable(plan, f"its sampler {sampler} uses another tokenizer")
    return Selection(tuple(examples), dict(census))


def example_batches(examples: Sequence[Example], plan: SupervisedPlan) -> list[list[Example]]:
    """Every batch of every epoch in order; the last of an epoch may be smaller."""
    batches: list[list[Example]] = []
    for epoch in range(plan.epochs):
        order = permutation(examples, lambda e: e.trial.id, seed=plan.seed, epoch=epoch)
        batches += [
            order[start : start + plan.batch_size]
            for start in range(0, len(order), plan.batch_size)
        ]
    return batches


def batch_work(
    number: int, examples: Sequence[Example], census: dict[str, int], *, final: bool
) -> Work:
    """One batch's work: every action token weighs the same, and all of them 1."""
    weight = 1.0 / sum(example.tokens for example in examples)
    return Work(
        batch=number,
        loss=Loss.CROSS_ENTROPY,
        rows=tuple(Row(example.trial, None, weight) for example in examples),
        census={**census, "trials": len(examples)},
        final=final,
        measures=reward_measures([reward_of(example.trial) for example in examples]),
    )


def _outcome(verdict: Verdict) -> str:
    return "selected" if verdict.reason is None else f"excluded_{verdict.reason}"


def _unusable(plan: SupervisedPlan, cause: str) -> InvalidInput:
    return InvalidInput(
        f"Nothing can be learnt from run {plan.source.run}: {cause}.",
        code=ErrorCode.SOURCE_UNUSABLE,
        object=ErrorObject(type="run", id=plan.source.run, pointer="/source"),
        next="Choose another source run or another condition.",
    )
