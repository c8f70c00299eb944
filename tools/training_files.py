"""Chat files of a supervised plan: read, rendered and counted here, before anything runs.

Whoever submits a plan reads its files: every row strictly, rendered for the actor's model, so
that a bad line is named and the tokens and steps are known before a run exists. The bytes become
an object, and the plan states its digest, size and number of rows.

    {"file": "rows.jsonl"}  →  {"file": "rows.jsonl", "digest": "sha256:…", "size": …, "rows": …}

A plan that states a digest already is taken at its word: the object is there. Where the gateway is
elsewhere, so is the model's tokenizer: rows are then read and counted, and not rendered.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import anyio.to_thread
from pydantic import JsonValue

from runtime.client import OperatorClient
from specs.base import Contract
from specs.chat import File
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.ids import Prefix, is_id
from specs.paths import user_path
from specs.plans import SupervisedPlan, parse_plan
from specs.run import Submission
from specs.sources import MAX_FILE_BYTES, FileSource
from tools.context import Context

if TYPE_CHECKING:
    from runtime.formats.codec import Codec
    from runtime.formats.corpus import Corpus


class CorpusView(Contract):
    """A file as a model reads it."""

    use: Literal["source", "validation"]
    file: str
    digest: str
    size: int
    rows: int
    examples: int
    """Rows that fit the model's context."""
    excluded_overlong: int
    repeated: int
    """Rows whose bytes stand in the file before."""
    tokens: int
    target_tokens: int
    """Tokens of assistant turns: those that are learned, or scored."""
    longest: int
    """Tokens of the longest example."""
    steps: int | None = None
    """Optimizer steps of the plan; None for a validation file."""
    processed_tokens: int | None = None
    """Of all epochs."""
    notes: dict[str, int]
    """What rows hold that is not rendered, and in how many of them."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A submission whose plan states its files, what they hold, and the bytes to upload."""

    submission: Submission
    corpora: tuple[CorpusView, ...] = ()
    files: tuple[File, ...] = ()


def read_rows(name: str, folder: Path | None = None) -> File:
    """A file of rows; a relative path starts from `folder`.

    Raises:
        InvalidInput: it cannot be read, is empty or too large.
    """
    path = (folder or Path()) / user_path(name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"The file {path} cannot be read: {error.strerror or error}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="file", id=str(path)),
            next="Correct the path; in a plan it is relative to the plan's own folder.",
        ) from None
    return File.of(str(path), data)


async def state_files(
    context: Context, gateway: OperatorClient, submission: Submission, folder: Path | None
) -> Stated:
    """The submission with its files read; unchanged where its plan names none.

    On cancel nothing has been uploaded.

    Raises:
        InvalidInput: a file or a row that cannot be used, naming its line.
    """
    plan = parse_plan(submission.plan)
    if not isinstance(plan, SupervisedPlan):
        return Stated(submission)
    document = dict(submission.plan)
    corpora: list[CorpusView] = []
    files: list[File] = []
    uses: tuple[tuple[Literal["source", "validation"], object], ...] = (
        ("source", plan.source),
        ("validation", plan.validation),
    )
    for use, source in uses:
        if not isinstance(source, FileSource):
            continue
        file = await _file(gateway, source, folder)
        if context.remote is not None:
            rows = await anyio.to_thread.run_sync(lambda file=file: sum(1 for _ in file.rows()))
        else:
            model = await actor_model(gateway, submission.actor)
            view = (await view_of(context, file, source, model, use)).view
            if use == "source":
                view = _with_steps(view, plan)
            rows = view.rows
            corpora.append(view)
        given = cast(dict[str, JsonValue], document[use])
        stated: dict[str, JsonValue] = {
            "digest": file.digest,
            "size": len(file.data),
            "rows": rows,
        }
        document[use] = {**given, **stated}
        files.append(file)
    changed = submission.model_copy(update={"plan": document})
    return Stated(changed, tuple(corpora), tuple(files))


def _with_steps(view: CorpusView, plan: SupervisedPlan) -> CorpusView:
    steps = plan.epochs * -(-view.examples // plan.batch_size)
    processed = plan.epochs * view.tokens
    return view.model_copy(update={"steps": steps, "processed_tokens": processed})


@dataclass(frozen=True, slots=True)
class Rendered:
    """A corpus, its codec for showing it, and its numbers."""

    corpus: "Corpus"
    codec: "Codec"
    view: CorpusView


async def view_of(
    context: Context,
    file: File,
    source: FileSource,
    model: str,
    use: Literal["source", "validation"] = "source",
) -> Rendered:
    """A file as a base model reads it; the tokenizer is that of this stack's compute.

    Raises:
        InvalidInput: naming the first line that cannot be used.
    """
    from runtime.compute.client import HttpCompute
    from runtime.formats.corpus import read_corpus
    from runtime.learning.files import renderer_for

    home = context.require_local("Rendering rows")
    async with HttpCompute(home.compute_socket) as compute:
        info = await compute.model(model)
        renderer = await renderer_for(compute, info, source.train_on)
    await context.progress(f"reading {source.file} as {model} does")
    corpus = await anyio.to_thread.run_sync(
        lambda: read_corpus(file, renderer, source, context_tokens=info.context_tokens)
    )
    return Rendered(corpus, renderer.codec, _view(file, source, corpus, use))


def _view(
    file: File, source: FileSource, corpus: "Corpus", use: Literal["source", "validation"]
) -> CorpusView:
    return CorpusView(
        use=use,
        file=source.file,
        digest=file.digest,
        size=len(file.data),
        rows=corpus.census["rows"],
        examples=len(corpus.examples),
        excluded_overlong=corpus.census["excluded_overlong"],
        repeated=corpus.census.get("repeated", 0),
        tokens=corpus.tokens,
        target_tokens=corpus.targets,
        longest=corpus.longest,
        notes=corpus.notes,
    )


async def actor_model(gateway: OperatorClient, actor: dict[str, JsonValue] | str) -> str:
    """The base model of an actor's profile."""
    if isinstance(actor, str):
        name = (await gateway.profile(actor)).value.agent.model
    else:
        name = str(cast(dict[str, JsonValue], actor["agent"])["model"])
    return await base_model(gateway, name)


async def base_model(gateway: OperatorClient, name: str) -> str:
    """The base model of a name that may be a checkpoint's id."""
    if is_id(name, Prefix.CHECKPOINT):
        return (await gateway.checkpoint(name)).base_model
    return name


async def _file(gateway: OperatorClient, source: FileSource, folder: Path | None) -> File:
    if source.digest is not None:
        return File.of(source.file, await gateway.object(source.digest))
    return await anyio.to_thread.run_sync(read_rows, source.file, folder)
