"""Supervised learning: cross-entropy on target tokens, recorded or rendered.

The same packing, masks, boundary and checkpoints as reinforcement learning; what differs is
where examples come from (selected trials of an earlier run, or rows of a file), the verdict
(tokens of any provenance) and the weight of a token (1 / target tokens of its batch). Batches
are numbered through all epochs; the order of an epoch follows from the plan's seed.

A validation file is scored on the way: see `validation`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.compute.protocol import Compute, Loss
from runtime.execution.context import RunContext
from runtime.learning.eligibility import Verdict, for_imitation
from runtime.learning.evidence import EvidenceReader, Objects
from runtime.learning.files import corpus_of, packed_row
from runtime.learning.leftovers import sweep
from runtime.learning.metrics import reward_measures
from runtime.learning.order import permutation
from runtime.learning.packing import Packed, pack
from runtime.learning.resolution import PATIENCE
from runtime.learning.session import Learning, learning
from runtime.learning.settlement import reward_of
from runtime.learning.validation import Validator
from runtime.learning.work import KnownWork, Row
from specs.chat import RowOrigin
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError
from specs.operator_api import TrialPage
from specs.plans import SupervisedPlan
from specs.records import Trial
from specs.run import RunSpec, SamplerRef
from specs.sources import FileSource, RunSource
from specs.worker_api import BatchStarted


class SourceRecords(Objects, Protocol):
    """Reads of the source run; `runtime.client.WorkerClient` has them."""

    async def trials(
        self, run: str, *, counted: bool | None = None, cursor: str | None = None
    ) -> TrialPage: ...
    async def sampler(self, sampler: str) -> SamplerRef: ...


@dataclass(frozen=True, slots=True)
class Example:
    """A selected trial, or a row of a file with its sequence, and how many targets it has."""

    tokens: int
    trial: Trial | None = None
    origin: RowOrigin | None = None
    sequence: Packed | None = None

    @property
    def key(self) -> str:
        """Distinct within the source, and always the same."""
        if self.trial is not None:
            return self.trial.id
        assert self.origin is not None
        return f"line {self.origin.line}"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the source gives, and what became of its other trials or rows."""

    examples: tuple[Example, ...]
    census: dict[str, int]


async def run_supervised(
    ctx: RunContext, source: SourceRecords, *, patience: float = PATIENCE
) -> None:
    """Work through a supervised run, from wherever its records say that it is.

    On cancel the records stay as they are, for the next claim; compute keeps no trainer.

    Raises:
        InvalidInput: `source_unusable`: no trial or row of the source can be learnt from; or
            what is wrong with a row, naming its line.
        RunStopped: cancelled, blocked, or the claim is lost.
        PracticumError: the run cannot go on; its checkpoints stay.
    """
    plan = supervised_plan(ctx.spec)
    try:
        selection = await select(source, EvidenceReader(source), ctx.compute, ctx.spec)
    except PracticumError:
        await sweep(ctx)  # the run may end here, and with it the last claim that could
        raise
    batches = example_batches(selection.examples, plan)
    async with learning(ctx, len(batches), patience=patience) as session:
        sizes = [len(batch) for batch in batches]
        validator = await Validator.of(ctx, source, session, plan.validation, sizes)
        for number in range(len(batches)):
            ctx.check()
            if number not in session.done:
                before = await validator.before(number)
                await _take(session, ctx, selection, number, batches, before)
            await validator.after(number)
        await session.finish()


async def _take(
    session: Learning,
    ctx: RunContext,
    selection: Selection,
    number: int,
    batches: Sequence[Sequence[Example]],
    measures: dict[str, float],
) -> None:
    """One batch: started once, then its update."""
    examples = batches[number]
    if not session.started(number):
        tasks = (example.trial.task for example in examples if example.trial is not None)
        names = tuple(dict.fromkeys(tasks))
        await ctx.write(BatchStarted(batch=number, sampler=session.policy.sampler.id, tasks=names))
    measures["examples_processed"] = float(sum(map(len, batches[: number + 1])))
    work = batch_work(
        number, examples, selection.census, final=session.final(number), measures=measures
    )
    await session.update(work)


def supervised_plan(spec: RunSpec) -> SupervisedPlan:
    """The plan of a supervised run."""
    if not isinstance(spec.plan, SupervisedPlan):
        raise InvalidInput(
            f"Run {spec.id} has a plan of kind {spec.plan.kind}, not supervised.",
            object=ErrorObject(type="run", id=spec.id),
        )
    return spec.plan


async def select(
    source: SourceRecords, evidence: EvidenceReader, compute: Compute | None, spec: RunSpec
) -> Selection:
    """Every example of the source: trials that the plan accepts, or rows of its file, which
    are rendered with compute's tokenizer.

    Raises:
        InvalidInput: `source_unusable`: there is none, or its tokens are another model's; or
            what is wrong with a row.
    """
    match supervised_plan(spec).source:
        case RunSource() as wanted:
            return await _trials(source, evidence, wanted, spec)
        case FileSource() as wanted:
            assert compute is not None  # only a run's own tokens need none
            corpus = await corpus_of(compute, source, wanted, spec.sampler)
            rows = (Example(e.targets, None, e.origin, packed_row(e)) for e in corpus.examples)
            return Selection(tuple(rows), corpus.census)


async def _trials(
    source: SourceRecords, evidence: EvidenceReader, wanted: RunSource, spec: RunSpec
) -> Selection:
    census: Counter[str] = Counter()
    examples: list[Example] = []
    samplers: set[str] = set()
    cursor: str | None = None
    while True:
        page = await source.trials(wanted.run, counted=True, cursor=cursor)
        for trial in page.items:
            found = await evidence.read(trial)
            verdict = found.problem or for_imitation(trial, found.interactions)
            if verdict.eligible and not wanted.accepts(reward_of(trial)):
                census["not_selected"] += 1
                continue
            census[_outcome(verdict)] += 1
            if verdict.eligible:
                tokens = sum(packed.trained_tokens for packed in pack(found.interactions))
                examples.append(Example(tokens, trial))
                samplers |= {call.intent.sampler for call in found.interactions}
        cursor = page.next
        if cursor is None:
            break
    if not examples:
        raise _unusable(wanted, f"none of its trials has {wanted.select} and whole evidence")
    for sampler in sorted(samplers):
        if (await source.sampler(sampler)).tokenizer_digest != spec.sampler.tokenizer_digest:
            raise _unusable(wanted, f"its sampler {sampler} uses another tokenizer")
    return Selection(tuple(examples), dict(census))


def example_batches(examples: Sequence[Example], plan: SupervisedPlan) -> list[list[Example]]:
    """Every batch of every epoch in order; the last of an epoch may be smaller."""
    batches: list[list[Example]] = []
    for epoch in range(plan.epochs):
        order = permutation(examples, lambda e: e.key, seed=plan.seed, epoch=epoch)
        batches += [
            order[start : start + plan.batch_size]
            for start in range(0, len(order), plan.batch_size)
        ]
    return batches


def batch_work(
    number: int,
    examples: Sequence[Example],
    census: dict[str, int],
    *,
    final: bool,
    measures: dict[str, float] | None = None,
) -> KnownWork:
    """One batch's work: every target token weighs the same, and all of them 1."""
    weight = 1.0 / sum(example.tokens for example in examples)
    trials = [example.trial for example in examples if example.trial is not None]
    return KnownWork(
        batch=number,
        loss=Loss.CROSS_ENTROPY,
        rows=tuple(Row(e.trial, None, weight, e.origin, e.sequence) for e in examples),
        census={**census, "trials" if trials else "examples": len(examples)},
        final=final,
        measures={**reward_measures([reward_of(trial) for trial in trials]), **(measures or {})},
    )


def _outcome(verdict: Verdict) -> str:
    return "selected" if verdict.reason is None else f"excluded_{verdict.reason}"


def _unusable(source: RunSource, cause: str) -> InvalidInput:
    return InvalidInput(
        f"Nothing can be learnt from run {source.run}: {cause}.",
        code=ErrorCode.SOURCE_UNUSABLE,
        object=ErrorObject(type="run", id=source.run, pointer="/source"),
        next="Choose another source run or another condition.",
    )
