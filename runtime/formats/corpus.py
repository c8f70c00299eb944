"""All rows of a file, rendered for one model: what supervised training works on.

The same bytes, tokenizer, renderer and options give the same corpus at any time, which is how a
dry run tells tokens and steps before anything runs, a resumed run goes on, and `verify` checks
what was recorded.
"""

import math
from collections import Counter
from dataclasses import dataclass

from runtime.formats.examples import Example, Renderer
from specs.chat import File
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.sources import FileSource


@dataclass(frozen=True, slots=True)
class Corpus:
    """The examples of a file in its order, and what became of its rows."""

    examples: tuple[Example, ...]
    census: dict[str, int]
    notes: dict[str, int]
    """What rows hold that is not rendered, and in how many of them."""

    @property
    def tokens(self) -> int:
        return sum(len(example.ids) for example in self.examples)

    @property
    def targets(self) -> int:
        return sum(example.targets for example in self.examples)

    @property
    def longest(self) -> int:
        return max(len(example.ids) for example in self.examples)

    def steps(self, *, epochs: int, batch_size: int) -> int:
        """Optimizer steps of a plan over this corpus."""
        return epochs * math.ceil(len(self.examples) / batch_size)


def read_corpus(
    file: File, renderer: Renderer, source: FileSource, *, context_tokens: int
) -> Corpus:
    """Read and render every row.

    Raises:
        InvalidInput: naming the first line that cannot be used; `prompt_too_long` where it does
            not fit the context and the source says `refuse`; `source_unusable` where no row is
            left, or the file is another than was submitted.
    """
    _require_same(file, source)
    ignored: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    kept: list[Example] = []
    seen: set[str] = set()
    rows = repeated = 0
    for row in file.rows(ignored):
        rows += 1
        repeated += row.origin.digest in seen
        seen.add(row.origin.digest)
        example = renderer.render(file, row)
        if len(example.ids) > context_tokens:
            if source.overlong == "refuse":
                raise _overlong(file, example, context_tokens)
            continue
        notes.update(example.notes)
        kept.append(example)
    if source.rows is not None and source.rows != rows:
        raise _unusable(file, f"it has {rows} rows, and the plan says {source.rows}")
    if not kept:
        raise _unusable(file, f"none of its {rows} rows fits {context_tokens} tokens")
    notes.update({f"ignored:{key}": count for key, count in ignored.items()})
    census = {"rows": rows, "selected": len(kept), "excluded_overlong": rows - len(kept)}
    if repeated:
        census["repeated"] = repeated
    return Corpus(tuple(kept), census, dict(sorted(notes.items())))


def _require_same(file: File, source: FileSource) -> None:
    if source.digest is not None and source.digest != file.digest:
        raise _unusable(file, f"it has digest {file.digest}, and the plan says {source.digest}")


def _overlong(file: File, example: Example, context_tokens: int) -> InvalidInput:
    return file.refusal(
        example.origin.line,
        f"has {len(example.ids)} tokens, and the model's context holds {context_tokens}",
        code=ErrorCode.PROMPT_TOO_LONG,
        next='Shorten the row, or say "overlong": "exclude" in the plan\'s source.',
    )


def _unusable(file: File, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The file {file.name} cannot be learned from: {cause}.",
        code=ErrorCode.SOURCE_UNUSABLE,
        object=ErrorObject(type="file", id=file.name),
        next="Submit the plan again, with the file as it is now.",
    )
