"""Training runs are started here and read with `run`, like every other run."""

from typing import Annotated, Literal

import anyio.to_thread
from pydantic import Field

from specs.base import Contract
from specs.sources import FileSource
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit
from tools.paging import cut
from tools.registry import READ_LOCAL, Traits, operation
from tools.start import Start, StartResult, corpus_text, start, start_text
from tools.training_files import CorpusView, base_model, read_rows, view_of


class Preview(Input):
    file: Annotated[str, Field(description="Chat JSONL file"), Cli(positional=True)]
    model: Annotated[str, Field(description="Base model or checkpoint id that reads it")]
    train_on: Annotated[
        Literal["all_assistant", "last_assistant"],
        Field(description="Which assistant turns are targets"),
    ] = "all_assistant"
    overlong: Annotated[
        Literal["refuse", "exclude"],
        Field(description="Rows that do not fit the model's context"),
    ] = "refuse"
    line: Annotated[int | None, Field(ge=1, description="The row of this line alone")] = None
    limit: Limit = 3
    cursor: Cursor = None


class SpanView(Contract):
    """Neighbouring tokens that are all targets, or all context."""

    target: bool
    tokens: int
    text: str
    """Decoded from the tokens; control tokens spelled out."""


class RowView(Contract):
    """A row as the model reads it."""

    line: int
    id: str | None
    """The row's own `id` as JSON text."""
    digest: str
    tokens: int
    target_tokens: int
    notes: tuple[str, ...]
    spans: list[SpanView]


class PreviewPage(Contract):
    """What would be trained on: the whole file in numbers, and some of its rows."""

    model: str
    corpus: CorpusView
    items: list[RowView]
    next: str | None = None


def _preview_text(page: PreviewPage) -> str:
    parts = [f"model  {page.model}", corpus_text(page.corpus), "targets stand between ⟦ and ⟧"]
    for row in page.items:
        own = "" if row.id is None else f"  id {row.id}"
        notes = f"  ({', '.join(row.notes)})" if row.notes else ""
        parts.append(
            f"--- line {row.line}{own}  {row.tokens} tokens, {row.target_tokens} targets{notes}"
        )
        parts.append("".join(f"⟦{s.text}⟧" if s.target else s.text for s in row.spans))
    if page.next is not None:
        parts.append(f"more: --cursor {page.next}")
    return "\n".join(parts)


@operation("train", "start", Traits(spends=True), text=start_text)
async def start_training(context: Context, request: Start) -> StartResult:
    """Start a training run (reinforcement on scored attempts) or a supervised one.

    `num_batches x tasks x trials_per_task` is the number of planned trial slots: not distinct
    tasks, optimizer steps or checkpoints. Optimizer state is fresh unless the plan says
    `"optimizer_initialization": "resume"`. Files of a supervised plan are read strictly, rendered
    for the actor's model and counted in tokens and steps before a run exists. With `--dry-run`
    nothing is started or uploaded.
    """
    return await start(context, request, "train")


@operation("train", "preview", READ_LOCAL, text=_preview_text)
async def preview(context: Context, request: Preview) -> PreviewPage:
    """Show the rows of a chat file as a model reads them, and which tokens are targets.

    Every row is read, as `train start` reads it: the first line that cannot be used is an error.
    """
    file = await anyio.to_thread.run_sync(read_rows, request.file)
    source = FileSource(file=request.file, train_on=request.train_on, overlong=request.overlong)
    async with context.gateway() as gateway:
        model = await base_model(gateway, request.model)
    rendered = await view_of(context, file, source, model)
    chosen = [
        example
        for example in rendered.corpus.examples
        if request.line is None or example.origin.line == request.line
    ]
    page, following = cut(chosen, request.limit, request.cursor)
    items = [
        RowView(
            line=example.origin.line,
            id=example.origin.id,
            digest=example.origin.digest,
            tokens=len(example.ids),
            target_tokens=example.targets,
            notes=example.notes,
            spans=[
                SpanView(
                    target=span.target,
                    tokens=span.end - span.start,
                    text=rendered.codec.decode(example.ids[span.start : span.end]),
                )
                for span in example.spans
            ],
        )
        for example in page
    ]
    return PreviewPage(model=model, corpus=rendered.view, items=items, next=following)
