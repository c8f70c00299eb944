"""Checks that derive verdicts, advantages and contributions again from the evidence."""

from collections.abc import Iterable, Sequence

import numpy as np

from runtime.compute.protocol import Compute, Loss, SamplerSpec
from runtime.learning.evidence import EvidenceReader, Objects
from runtime.learning.files import corpus_of, packed_row
from runtime.learning.findings import Finding
from runtime.learning.order import batch_tasks
from runtime.learning.policy import bring_adapter, learning_plan
from runtime.learning.reference import Recorded
from runtime.learning.settlement import judge, settle
from runtime.learning.snapshot import RunReads, Snapshot
from runtime.learning.supervised import batch_work, example_batches, select
from runtime.learning.validation import score
from runtime.learning.verify_evidence import TOLERANCE
from runtime.learning.work import KnownWork, Terms, pieces
from specs import canonical
from specs.errors import InvalidInput, NotFound, PracticumError
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan
from specs.records import Checkpoint, Contribution, Trial, Update, UpdateState
from specs.sources import FileSource, Validation

PROBE_TOKENS = (1, 2, 3, 4)
"""What a checkpoint's adapter is tried on."""


async def check_learning(
    reads: RunReads, snapshot: Snapshot, compute: Compute | None
) -> list[Finding]:
    """Everything that learning decided, derived again; nothing for an evaluation."""
    match snapshot.run.spec.plan:
        case EvaluationPlan():
            return []
        case TrainingPlan() as plan:
            return await _check_training(reads, snapshot, plan)
        case SupervisedPlan():
            return await _check_supervised(reads, snapshot, compute)


async def _check_training(reads: RunReads, snapshot: Snapshot, plan: TrainingPlan) -> list[Finding]:
    eligibility = Finding("batches.eligibility", 5, "each verdict follows from its evidence")
    advantages = Finding(
        "batches.advantages", 5, "advantages are centred over the eligible trials of a group"
    )
    tasks = Finding("batches.tasks", 14, "the tasks of a batch follow from its number")
    contributions = _contribution_check()
    evidence = EvidenceReader(reads)
    places = {group.id: group.place for group in snapshot.groups}
    by_batch: dict[int, list[Trial]] = {}
    for trial in sorted(snapshot.counted, key=lambda trial: places.get(trial.group) or 0):
        by_batch.setdefault(trial.batch, []).append(trial)
    for event in snapshot.of_type("batch.started"):
        batch = int(str(event.data["batch"]))
        names = [task.name for task in batch_tasks(snapshot.run.spec, plan, batch)]
        tasks.equal(f"tasks of batch {batch}", event.data.get("tasks"), names)
    for event in snapshot.of_type("batch.settled"):
        batch = int(str(event.data["batch"]))
        trials = by_batch.get(batch, [])
        judged = [
            judge(trial, await evidence.read(trial), sampler=trial.sampler, plan=plan)
            for trial in trials
        ]
        settlement = settle(judged, plan)
        by_id = {trial.id: trial for trial in trials}
        for verdict in settlement.verdicts:
            trial = by_id[verdict.trial]
            recorded = (trial.eligible, trial.ineligible_reason)
            eligibility.equal(
                f"verdict on {trial.id}", recorded, (verdict.eligible, verdict.reason)
            )
            advantages.equal(f"advantage of {trial.id}", trial.advantage, verdict.advantage)
        eligibility.equal(f"census of batch {batch}", event.data.get("census"), settlement.census)
        work = KnownWork(
            batch,
            Loss(plan.loss),
            settlement.rows,
            settlement.census,
            final=False,
            terms=Terms.of(plan),
        )
        await _check_contributions(contributions, snapshot, work, evidence, reads)
    return [tasks, eligibility, advantages, contributions]


async def _check_supervised(
    reads: RunReads, snapshot: Snapshot, compute: Compute | None
) -> list[Finding]:
    contributions = _contribution_check()
    plan = snapshot.run.spec.plan
    assert isinstance(plan, SupervisedPlan)
    if compute is None and isinstance(plan.source, FileSource):
        contributions.skipped = "compute was not asked, and it has the tokenizer"
        return [contributions]
    evidence = EvidenceReader(reads)
    try:
        selection = await select(reads, evidence, compute, snapshot.run.spec)
    except InvalidInput as error:
        contributions.expect(not snapshot.updates, f"there are updates, and yet: {error}")
        return [contributions]
    for number, examples in enumerate(example_batches(selection.examples, plan)):
        work = batch_work(number, examples, selection.census, final=False)
        await _check_contributions(contributions, snapshot, work, evidence, reads)
    return [contributions, await _check_validation(reads, snapshot, compute, plan.validation)]


async def _check_validation(
    reads: RunReads, snapshot: Snapshot, compute: Compute | None, validation: Validation | None
) -> Finding:
    """The last score is taken again; those before it took the same way."""
    finding = Finding(
        "updates.validation", None, "the last validation loss follows from its file and weights"
    )
    scored = [update for update in snapshot.updates if "validation_loss" in update.metrics]
    if validation is None or not scored:
        finding.expect(not scored, "a validation loss is recorded, and the plan asks for none")
        return finding
    last = max(scored, key=lambda update: update.batch)
    gone = {item.update for item in snapshot.checkpoints if item.deleted_at is not None}
    if compute is None or last.id in gone:
        finding.skipped = "compute was not asked" if compute is None else "its weights are deleted"
        return finding
    assert last.sampler_after is not None  # acknowledged
    sampler = snapshot.samplers[last.sampler_after]
    await bring_adapter(compute, reads, sampler)
    corpus = await corpus_of(compute, reads, validation, snapshot.run.spec.sampler)
    sequences = [packed_row(example) for example in corpus.examples]
    found = await score(compute, SamplerSpec(sampler.base_model, sampler.adapter), sequences)
    recorded = last.metrics["validation_loss"]
    finding.expect(
        abs(found.loss - recorded) <= TOLERANCE,
        f"validation loss of {last.id}: recorded {recorded}, derived {found.loss}",
    )
    tokens = last.metrics.get("validation_tokens")
    finding.equal(f"validated tokens of {last.id}", tokens, float(found.tokens))
    return finding


def _contribution_check() -> Finding:
    return Finding(
        "updates.contributions",
        6,
        "what moved an update is packed from the evidence, generated tokens alone weighted",
    )


async def _check_contributions(
    finding: Finding,
    snapshot: Snapshot,
    work: KnownWork,
    evidence: EvidenceReader,
    objects: Objects,
) -> None:
    """Every update of the batch has the derived contributions in the derived order; one that
    ended before its step, the first of them."""
    updates = [update for update in snapshot.updates if update.batch == work.batch]
    compared = {
        c.trial: c.reference
        for update in updates
        for c in update.contributions
        if c.trial is not None and c.reference is not None
    }
    derived: list[Contribution] | None = None
    for update in updates:
        whole = UpdateState.UNRESOLVED in update.events
        if whole or update.state is UpdateState.SKIPPED:
            finding.equal(f"census of {update.id}", update.census, dict(work.census))
        if update.state is UpdateState.SKIPPED:
            finding.expect(not work.rows, f"{update.id} was skipped, and its batch could learn")
            continue
        if derived is None:
            derived = await _derive(finding, work, evidence, Recorded(objects, compared), whole)
        made = update.contributions
        both = max(len(made), len(derived)) if whole else min(len(made), len(derived))
        _compare(finding, snapshot, update, made[:both], derived[:both])
        finding.equal(
            f"parameters of the loss of {update.id}",
            update.loss_config,
            work.terms.config.given(),
        )


async def _derive(
    finding: Finding, work: KnownWork, evidence: EvidenceReader, references: Recorded, whole: bool
) -> list[Contribution]:
    """The contributions as the evidence has them. Of a batch that no update took whole, the
    reference log-probs of its later groups were never recorded: it ends before them."""
    derived: list[Contribution] = []
    try:
        async for piece in pieces(work.rows, work.loss, evidence, work.terms, references):
            derived.append(piece.contribution)  # noqa: PERF401 - what came before an error stays
    except InvalidInput as error:
        finding.expect(not whole, str(error))
    return derived


def _compare(
    finding: Finding,
    snapshot: Snapshot,
    update: Update,
    made: Sequence[Contribution],
    derived: Sequence[Contribution],
) -> None:
    plan = learning_plan(snapshot.run.spec)
    finding.equal(f"learning rate of {update.id}", update.learning_rate, plan.learning_rate)
    finding.equal(f"contributors of {update.id}", _names(made), _names(derived))
    for recorded, expected in zip(made, derived, strict=False):
        name = recorded.trial or recorded.row
        finding.equal(f"contribution of {name} to {update.id}", recorded, expected)


def _names(contributions: Iterable[Contribution]) -> list[tuple[str, ...] | int | None]:
    return [item.interactions or (item.row and item.row.line) for item in contributions]


async def check_objects(
    reads: RunReads, snapshot: Snapshot, compute: Compute | None
) -> list[Finding]:
    """The run's profile, dataset and checkpoints are there, unchanged, and can be used."""
    pinned = Finding("spec.objects", 14, "profile and dataset have the digests that were pinned")
    spec = snapshot.run.spec
    await _check_object(pinned, reads, "profile", spec.actor, None)
    if spec.dataset is not None:
        dataset = await reads.dataset(spec.dataset)
        pinned.equal(f"dataset {spec.dataset}", spec.dataset_digest, dataset.digest)
        published = {task.name: task.digest for task in dataset.value.tasks}
        for task in spec.tasks:
            pinned.equal(f"task {task.name}", task.digest, published.get(task.name))
    stored = Finding("checkpoints.objects", 11, "weights and state are stored with their digests")
    loads = Finding("checkpoints.load", None, "the adapter of a checkpoint can be sampled from")
    for item in snapshot.checkpoints:
        if item.deleted_at is not None:
            continue  # the record stays; there is nothing to check
        await _check_object(stored, reads, item.id, item.adapter, item.adapter_size)
        if item.state is not None and item.state_deleted_at is None:
            await _check_object(stored, reads, item.id, item.state, item.state_size)
        if compute is None:
            loads.skipped = "compute was not asked"
        else:
            await _check_load(loads, reads, snapshot, compute, item)
    return [pinned, stored, loads]


async def _check_object(
    finding: Finding, reads: RunReads, owner: str, digest: str, size: int | None
) -> None:
    try:
        data = await reads.object(digest)
    except (InvalidInput, NotFound) as error:
        finding.expect(False, f"{digest} of {owner}: {error}")
        return
    finding.equal(f"digest of {owner}", digest, canonical.digest_bytes(data))
    if size is not None:
        finding.equal(f"size of {digest} of {owner}", size, len(data))


async def _check_load(
    finding: Finding, reads: RunReads, snapshot: Snapshot, compute: Compute, item: Checkpoint
) -> None:
    sampler = snapshot.samplers.get(item.sampler)
    if sampler is None:
        finding.expect(False, f"{item.id} names unknown sampler {item.sampler}")
        return
    try:
        await bring_adapter(compute, reads, sampler)
        spec = SamplerSpec(item.base_model, item.adapter)
        values = await compute.logprobs(spec, np.array(PROBE_TOKENS, np.int32))
    except PracticumError as error:
        finding.expect(False, f"{item.id} cannot be loaded: {error}")
        return
    finding.expect(bool(np.isfinite(values[1:]).all()), f"{item.id} gives no finite log-probs")
