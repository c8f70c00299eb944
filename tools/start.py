"""Starting a run: what `run start` and `train start` share.

Both take the same three documents. The plan's kind decides which of them it is; the other one
refuses it and says which to use, so that nobody trains by accident.
"""

import secrets
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.launch import validate_profile
from specs.operator_api import Started
from specs.paths import user_path
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan, parse_plan
from specs.run import Admission, Submission
from tools.context import Context
from tools.documents import Read, profile_document, read_document, reference
from tools.fields import Cli, Document, Input
from tools.tables import pairs, short, size
from tools.training_files import CorpusView, state_files
from tools.views import construction_text


class Start(Input):
    """Input of both starts."""

    dataset: Annotated[
        str | None, Field(description="org/name@version; none for a supervised plan")
    ] = None
    actor: Document
    plan: Annotated[
        dict[str, JsonValue] | str,
        Field(description="The plan itself, or @file.json"),
        Cli(metavar="@FILE"),
    ]
    judge: Annotated[
        dict[str, JsonValue] | str | None,
        Field(description="A judge's profile, instead of the task's verifier"),
        Cli(metavar="@FILE"),
    ] = None
    dry_run: Annotated[bool, Field(description="Show what would be admitted; start nothing")] = (
        False
    )
    construction: Annotated[
        str | None, Field(description="Whole id of the construction that the run is part of")
    ] = None
    idempotency_key: Annotated[
        str | None, Field(description="Repeating a start with the same key gives the same run")
    ] = None


class StartResult(Contract):
    """A started run, or with a dry run what one would be admitted with."""

    run: str | None
    created: bool
    """False for a dry run, and for the repetition of an earlier start."""
    dry_run: bool
    admission: Admission
    corpora: tuple[CorpusView, ...] = ()
    """The files of a supervised plan in rows, tokens and steps."""
    next: str


def start_text(result: StartResult) -> str:
    """What was admitted: work amount, initialisation, resources, every override."""
    admission = result.admission
    lines = pairs(
        {
            "run": result.run or "(dry run: nothing was started)",
            "kind": admission.kind,
            "planned trial slots": admission.planned_slots,
            "batches": admission.batches,
            "distinct tasks": admission.distinct_tasks,
            "optimizer initialization": admission.optimizer_initialization,
            "sampler": f"{admission.sampler.id} on {admission.sampler.base_model}",
            "actor": short(admission.actor),
            "construction": construction_text(admission.construction),
        }
    )
    resources = pairs({f"resources.{key}": value for key, value in admission.resources.items()})
    overrides = "\n".join(f"override: {text}" for text in admission.overrides)
    again = (
        "" if result.created or result.dry_run else "This start was repeated; the run is not new."
    )
    corpora = "\n".join(corpus_text(corpus) for corpus in result.corpora)
    parts = (lines, corpora, resources, overrides, again, result.next)
    return "\n".join(part for part in parts if part)


def corpus_text(corpus: CorpusView) -> str:
    """A file in labelled lines."""
    left_out = corpus.excluded_overlong
    return pairs(
        {
            corpus.use: f"{corpus.file} {short(corpus.digest)} {size(corpus.size)}",
            "rows": f"{corpus.rows}, of which {left_out} do not fit" if left_out else corpus.rows,
            "repeated rows": corpus.repeated or None,
            "tokens": f"{corpus.tokens}, targets {corpus.target_tokens}",
            "longest example": corpus.longest,
            "steps": corpus.steps,
            "tokens in all epochs": corpus.processed_tokens,
            "not rendered": corpus.notes or None,
        }
    )


async def start(context: Context, request: Start, noun: Literal["run", "train"]) -> StartResult:
    """Submit the three documents; on cancel the run may have been admitted, and the files of
    its plan uploaded.

    Raises:
        InvalidInput: a document that is invalid, or a plan of the other noun.
    """
    submission = submission_of(request, noun)
    folder = plan_folder(request.plan)
    key = request.idempotency_key or secrets.token_hex(16)
    async with context.gateway() as gateway:
        stated = await state_files(context, gateway, submission, folder)
        if request.dry_run:
            admission = await gateway.dry_run(stated.submission)
            started = None
        else:
            for file in stated.files:
                await gateway.upload(file.data, digest=file.digest)
            started = await gateway.start(stated.submission, idempotency_key=key)
            admission = started.admission
    return StartResult(
        run=started.run if started else None,
        created=started.created if started else False,
        dry_run=request.dry_run,
        admission=admission,
        corpora=stated.corpora,
        next=_next(started, noun),
    )


def submission_of(request: Start, noun: Literal["run", "train"]) -> Submission:
    """The body of the submission, checked as far as that is possible here."""
    dataset = None if request.dataset is None else reference(request.dataset, "dataset")
    plan = _plan(request.plan, noun)
    if dataset is None and plan["kind"] != "supervised":
        raise InvalidInput(
            f"A plan of kind {plan['kind']} needs a dataset.",
            object=ErrorObject(type="arguments", pointer="/dataset"),
            next="Name one: --dataset org/name@version; `practicum dataset list` shows them.",
        )
    body: dict[str, JsonValue] = {
        "dataset": dataset,
        "actor": _profile(request.actor, "actor"),
        "plan": plan,
        "judge": None if request.judge is None else _judge(request.judge),
    }
    if request.construction is not None:
        body["construction"] = request.construction
    return canonical.validate(Submission, cast(Any, body), what="submission")


def plan_folder(value: dict[str, JsonValue] | str) -> Path | None:
    """Where the relative paths of a plan start; None is the folder of this command."""
    if isinstance(value, str) and value.startswith("@"):
        return user_path(value[1:]).parent
    return None


def read_plan(
    value: dict[str, JsonValue] | str,
) -> tuple[dict[str, JsonValue], EvaluationPlan | TrainingPlan | SupervisedPlan]:
    """A plan as it was handed in, its kind said, and as it was understood.

    Raises:
        InvalidInput: it is no plan, or is an invalid one, naming the field.
    """
    if isinstance(value, str) and not value.startswith("@"):
        raise InvalidInput(
            f"{value!r} is not a plan.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="plan", id=value, pointer="/plan"),
            next="Plans are not published; give a file: --plan @plan.json",
        )
    read = cast(Read, read_document(value, "plan"))
    plan = parse_plan(read.value)
    return {**read.value, "kind": plan.kind}, plan


def _plan(value: dict[str, JsonValue] | str, noun: str) -> dict[str, JsonValue]:
    document, plan = read_plan(value)
    fitting = "run" if plan.kind == "evaluation" else "train"
    if fitting != noun:
        raise InvalidInput(
            f"This is a plan of kind {plan.kind}; `practicum {noun} start` does not take it.",
            object=ErrorObject(type="plan", pointer="/kind"),
            next=f"Use: practicum {fitting} start",
        )
    return document


def _profile(value: dict[str, JsonValue] | str, what: str) -> JsonValue:
    read = read_document(value, what)
    if isinstance(read, str):
        return read
    profile = profile_document(read, what)
    validate_profile(profile)
    return canonical.document(profile)


def _judge(value: dict[str, JsonValue] | str) -> JsonValue:
    read = read_document(value, "judge")
    return read if isinstance(read, str) else canonical.document(profile_document(read, "judge"))


def _next(started: Started | None, noun: str) -> str:
    if started is None:
        return f"To start it: the same `practicum {noun} start` without --dry-run"
    return f"practicum run events {started.run} --follow --timeout 10m"
