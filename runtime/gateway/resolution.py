"""What a submission refers to: dataset, actor, model, source run. All of it immutable, or read
again where it matters, so that resolving needs no transaction of its own with admission.

Each refusal names the field and the next step.
"""

from dataclasses import dataclass, replace

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import lookup, models, published, views
from runtime.gateway.refusals import invalid
from runtime.storage.tables import checkpoints, runs, samplers, trials
from specs import canonical
from specs.dataset import Dataset, TaskEntry
from specs.errors import ErrorCode, InvalidInput, NotFound
from specs.ids import Digest, Id, Prefix, is_id
from specs.interaction import Seal
from specs.launch import validate_profile
from specs.model import ModelInfo
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan
from specs.profile import Profile
from specs.records import Checkpoint, TrialSettled
from specs.run import RunState, SamplerRef, Submission
from specs.sources import FileSource, RunSource

type AnyPlan = EvaluationPlan | TrainingPlan | SupervisedPlan


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a run, in order, and where they come from."""

    dataset: str | None
    digest: str | None
    tasks: tuple[TaskEntry, ...]
    examples: int = 0
    """Of a supervised plan: how many recorded trials or rows it learns from, at most."""
    files: tuple[Digest, ...] = ()
    """Objects that the plan itself names."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The profile as pinned."""

    profile: Profile
    content: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What the actor's model stands for. `sampler` is None for a base model whose sampler is
    found or made in the admitting transaction."""

    base: ModelInfo
    sampler: SamplerRef | None
    checkpoint: Checkpoint | None


def actor(connection: Connection, org: str, given: dict[str, JsonValue] | str) -> Actor:
    """An inline profile, or a published one."""
    if isinstance(given, str):
        name, _, version = given.partition("@")
        content, _ = published.read(connection, org, "profile", name, version)
        profile = canonical.read(Profile, content, what="profile")
    else:
        profile = canonical.validate(Profile, given, what="actor")
        content = canonical.canonical_bytes(profile)
    published.require_embedded(profile)
    validate_profile(profile)
    return Actor(profile, content, canonical.digest_bytes(content))


def policy(connection: Connection, org: str, actor: Actor, plan: AnyPlan) -> Policy:
    """The base model or checkpoint that the actor names, fit for the plan."""
    found = named(connection, org, actor.profile.agent.model, actor.profile.name)
    if plan.kind != "evaluation":
        _require_trainable(found.base, actor.profile.name)
    return found


def reference(
    connection: Connection, org: str, plan: TrainingPlan, policy: Policy
) -> Policy | None:
    """What the plan's KL penalty compares with: the policy's base model, or a checkpoint of it."""
    if plan.kl is None:
        return None
    if plan.kl.reference == "base":
        return Policy(policy.base, None, None)
    if not is_id(plan.kl.reference, Prefix.CHECKPOINT):
        raise invalid(
            f"{plan.kl.reference!r} is neither `base` nor the id of a checkpoint.",
            "plan",
            "/kl/reference",
            code=ErrorCode.INVALID_REFERENCE,
            next="Give `base`, or a whole id that `practicum checkpoint list` shows.",
        )
    found = named(connection, org, plan.kl.reference, plan.kl.reference)
    if found.base.digest != policy.base.digest:
        raise invalid(
            f"The reference is of {found.base.name!r}, and the actor's model is of"
            f" {policy.base.name!r}.",
            "plan",
            "/kl/reference",
            code=ErrorCode.INVALID_REFERENCE,
            next="Name a checkpoint of the same base model, or `base`.",
        )
    return found


def named(connection: Connection, org: str, name: str, holder: str) -> Policy:
    """The base model or checkpoint of a name; `holder` is what names it."""
    checkpoint, sampler = None, None
    if is_id(name, Prefix.CHECKPOINT):
        row = lookup.by_id(connection, checkpoints, org, name, Prefix.CHECKPOINT)
        checkpoint = views.checkpoint(row)
        _require_kept(checkpoint, holder)
        sampler = views.sampler(
            lookup.by_id(connection, samplers, org, row.sampler_id, Prefix.SAMPLER)
        )
    base_name = name if sampler is None else sampler.base_model
    base = models.find(connection, org, base_name)
    _require_present(base, base_name, sampler, holder)
    assert base is not None
    return Policy(base, sampler, checkpoint)


def _require_kept(checkpoint: Checkpoint, profile: str) -> None:
    if checkpoint.deleted_at is not None:
        raise invalid(
            f"The checkpoint {checkpoint.id} was deleted at {checkpoint.deleted_at}.",
            "profile",
            "/agent/model",
            name=profile,
            code=ErrorCode.MODEL_UNKNOWN,
            next="Name another: practicum checkpoint list",
        )


def _require_present(
    base: ModelInfo | None, name: str, sampler: SamplerRef | None, profile: str
) -> None:
    if base is not None and base.backend == "tinker" and not base.present:
        raise invalid(
            f"The model {name!r} cannot be used: the key of the training service is not set.",
            "profile",
            "/agent/model",
            name=profile,
            code=ErrorCode.SERVICE_KEY_MISSING,
            next="Set the key (`key_env` in config.toml, TINKER_API_KEY) in the shell that runs"
            " `practicum up`, then `practicum down` and `practicum up`.",
        )
    cause = None
    if base is None:
        cause = f"No model {name!r} is known here"
    elif not base.present:
        cause = f"The model {name!r} has not been fetched"
    elif sampler is not None and base.digest != sampler.base_digest:
        cause = f"The model {name!r} has other weights than the checkpoint was made from"
    if cause is not None:
        raise invalid(
            f"{cause}.",
            "profile",
            "/agent/model",
            name=profile,
            code=ErrorCode.MODEL_UNKNOWN,
            next=f"practicum model pull {name}",
        )


def _require_trainable(base: ModelInfo, profile: str) -> None:
    if (reason := base.why_not_trained) is not None:
        raise invalid(
            f"The model {base.name!r} can be sampled but not trained: {reason}.",
            "profile",
            "/agent/model",
            name=profile,
            code=ErrorCode.MODEL_NOT_TRAINABLE,
            next="Choose a model that `practicum model list` shows as trainable.",
        )


def tasks(connection: Connection, org: str, submission: Submission, plan: AnyPlan) -> Tasks:
    """The tasks that the plan works on."""
    if isinstance(plan, SupervisedPlan):
        return _source_tasks(connection, org, submission, plan)
    if submission.dataset is None:
        raise invalid(
            f"A plan of kind {plan.kind} needs a dataset.",
            "submission",
            "/dataset",
            next="Give --dataset org/name@version.",
        )
    name, _, version = submission.dataset.partition("@")
    content, digest = published.read(connection, org, "dataset", name, version)
    dataset = canonical.read(Dataset, content, what="dataset")
    selected = dataset.tasks
    if isinstance(plan, EvaluationPlan):
        selected = _select(dataset, plan)
    return Tasks(submission.dataset, digest, selected)


def _select(dataset: Dataset, plan: EvaluationPlan) -> tuple[TaskEntry, ...]:
    names, limit = plan.tasks.names, plan.tasks.limit
    selected = dataset.tasks
    if names is not None:
        unknown = sorted(set(names) - {task.name for task in dataset.tasks})
        if unknown or not names:
            shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
            raise invalid(
                f"The dataset has no task {shown}." if unknown else "No task is selected.",
                "plan",
                "/tasks/names",
                code=ErrorCode.INVALID_REFERENCE,
                next=f"practicum dataset show {dataset.name}@{dataset.version}",
            )
        selected = tuple(task for task in dataset.tasks if task.name in set(names))
    return selected[:limit]


def _source_tasks(
    connection: Connection, org: str, submission: Submission, plan: SupervisedPlan
) -> Tasks:
    if submission.dataset is not None:
        raise invalid(
            "A supervised plan takes no dataset: its tasks are those of its source run.",
            "submission",
            "/dataset",
            next="Leave the dataset out.",
        )
    files = () if plan.validation is None else (_stated(plan.validation, "/validation"),)
    if isinstance(plan.source, FileSource):
        files = (_stated(plan.source, "/source"), *files)
        return Tasks(None, None, (), examples=plan.source.rows or 0, files=files)
    return replace(_recorded_tasks(connection, org, plan.source), files=files)


def _stated(source: FileSource, pointer: str) -> Digest:
    """The digest of a file whose content the plan states; admission needs its object."""
    if source.digest is None or source.size is None or source.rows is None:
        raise invalid(
            f"The plan names the file {source.file} and does not state its digest, size and rows.",
            "plan",
            f"{pointer}/digest",
            code=ErrorCode.INVALID_REFERENCE,
            next="Submit it with `practicum train start`, which reads and uploads the file.",
        )
    return source.digest


def _recorded_tasks(connection: Connection, org: str, source: RunSource) -> Tasks:
    try:
        row = lookup.by_id(connection, runs, org, source.run, Prefix.RUN)
    except NotFound as error:
        raise _unusable(source.run, str(error)) from None
    if not RunState(row.state).terminal:
        raise _unusable(row.id, f"The run is {row.state} and has not ended.")
    selected = _selected_trials(connection, source)
    if not selected:
        raise _unusable(row.id, f"None of its trials with {source.select} has complete evidence.")
    spec = views.pinned(row.spec)
    used = tuple(task for task in spec.tasks if task.name in set(selected))
    return Tasks(spec.dataset, spec.dataset_digest, used, examples=len(selected))


def _selected_trials(connection: Connection, source: RunSource) -> list[str]:
    """The task of each counted trial that is selected and has complete evidence."""
    query = sa.select(trials.c.task, trials.c.reward, trials.c.settled).where(
        trials.c.run_id == source.run,
        trials.c.counted.is_(True),
        trials.c.reward.is_not(None),
    )
    return [
        row.task
        for row in connection.execute(query)
        if source.accepts(row.reward) and _complete(row.settled)
    ]


def _complete(settled: str) -> bool:
    seal: Seal | None = TrialSettled.model_validate_json(settled).seal
    return seal is not None and seal.complete and seal.object is not None


def require_same_tokens(connection: Connection, org: str, source: Id, base: ModelInfo) -> None:
    """Recorded token ids mean something only to a model with the same tokenizer."""
    row = lookup.by_id(connection, runs, org, source, Prefix.RUN)
    recorded = views.pinned(row.spec).sampler.tokenizer_digest
    if recorded != base.tokenizer_digest:
        raise _unusable(source, f"Its tokens are not those of the model {base.name!r}.")


def _unusable(run: str, cause: str) -> InvalidInput:
    return invalid(
        f"The source run cannot be learned from. {cause}",
        "plan",
        "/source/run",
        name=run,
        code=ErrorCode.SOURCE_UNUSABLE,
        next="Name a run that has ended and has selected trials: practicum run list",
    )


def base_sampler(connection: Connection, org: str, base: ModelInfo) -> SamplerRef | None:
    """The sampler of a base model; None when it has not been needed yet."""
    query = sa.select(samplers).where(
        samplers.c.org_id == org,
        samplers.c.backend == base.backend,
        samplers.c.base_model == base.name,
        samplers.c.base_digest == base.digest,
        samplers.c.tokenizer_digest == base.tokenizer_digest,
        samplers.c.renderer == base.renderer,
        samplers.c.adapter.is_(None),
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else views.sampler(row)
