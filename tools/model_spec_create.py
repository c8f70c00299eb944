"""`model-spec create`: fields, or another specification, become a file that validates."""

from pathlib import Path
from typing import Annotated, Any, cast

import anyio.to_thread
from pydantic import Field, JsonValue

from runtime.specialist import render as rendering
from runtime.specialist.reading import WHAT, seal
from specs.base import Contract
from specs.claude_code import PINNED_VERSION
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model_spec import INSTRUCTIONS, SCHEMA
from specs.paths import resolved, user_path
from tools.context import Context
from tools.fields import Cli, Input
from tools.model_spec import (
    WRITES,
    Replace,
    SpecView,
    spec_document,
    view_of,
    view_text,
    write_new,
    written,
)
from tools.registry import operation
from tools.tables import short

SHAPE: dict[str, JsonValue] = {
    "engine": {"name": "claude-code", "version": PINNED_VERSION},
    "args": ["--bare", "--tools", "", "--system-prompt", INSTRUCTIONS, "--max-turns", "1"],
}
"""Deployment of a specification that states none: answers under its instructions, no tools."""


class Create(Input):
    file: Annotated[str, Field(description="File to write"), Cli(positional=True)]
    spec: Annotated[
        dict[str, JsonValue] | str | None,
        Field(description="Whole specification, or @file of another, to start from"),
        Cli(metavar="@FILE"),
    ] = None
    name: Annotated[str | None, Field(description="org/name")] = None
    behaviour: Annotated[str | None, Field(description="What the model is to do")] = None
    instructions: Annotated[str | None, Field(description="System text, or @file")] = None
    model: Annotated[str | None, Field(description="Base model or checkpoint id")] = None
    useful: Annotated[tuple[str, ...], Field(description="Criteria, each as name=statement")] = ()
    replace: Replace = False


class Created(Contract):
    """A specification that was written."""

    file: str
    replaced: str | None
    """Digest of the bytes that were there before, if others were."""
    spec: SpecView


def _created_text(created: Created) -> str:
    was = f"\nreplaced {short(created.replaced)}" if created.replaced else ""
    return f"{created.file}{was}\n{view_text(created.spec)}"


@operation("model-spec", "create", WRITES, text=_created_text)
async def create(_: Context, request: Create) -> Created:
    """Write a model specification that validates, resources pinned by digest.

    Other fields change the document that it starts from; a file that is there stays."""
    return await anyio.to_thread.run_sync(_create, request)


def _create(request: Create) -> Created:
    path = user_path(request.file)
    document = _drafted(request, path.parent)
    spec = seal(document, path.parent)
    rendering.check_schemas(spec)
    view = view_of(spec)
    given = document.get("resources")
    if isinstance(given, list):
        document["resources"] = [
            {**cast(dict[str, JsonValue], one), **_pin(sealed.digest, sealed.size)}
            for one, sealed in zip(given, spec.resources, strict=True)
        ]
    replaced = write_new(request.file, written(document), replace=request.replace)
    return Created(file=str(path), replaced=replaced, spec=view)


def _drafted(request: Create, folder: Path) -> dict[str, JsonValue]:
    """The author's document: what it starts from, changed by the fields that were given."""
    start = {} if request.spec is None else spec_document(request.spec).value
    deployment = start.get("deployment", SHAPE)
    changed: dict[str, Any] = {
        "name": request.name,
        "behaviour": request.behaviour,
        "instructions": _instructions(request.instructions, folder),
    }
    if request.model is not None and isinstance(deployment, dict):
        changed["deployment"] = {**deployment, "model": request.model}
    if request.useful:
        changed["useful"] = [_criterion(text) for text in request.useful]
    return {"schema": SCHEMA, **start, **{k: v for k, v in changed.items() if v is not None}}


def _instructions(text: str | None, folder: Path) -> JsonValue:
    """A text, or the file that it names as seen from the specification's folder."""
    if text is None or not text.startswith("@"):
        return text
    path, root = resolved(user_path(text[1:])), resolved(folder)
    if not path.is_relative_to(root):
        raise InvalidInput(
            f"{text[1:]} is not below {root}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type=WHAT, pointer="/instructions"),
            next="Put the instructions beside the specification.",
        )
    return {"source": str(path.relative_to(root))}


def _criterion(text: str) -> JsonValue:
    name, joint, statement = text.partition("=")
    if not joint:
        raise InvalidInput(
            f"{text!r} is not a criterion.",
            object=ErrorObject(type="arguments", pointer="/useful"),
            next="Write it as name=statement.",
        )
    return {"name": name.strip(), "statement": statement.strip()}


def _pin(digest: str | None, count: int | None) -> dict[str, JsonValue]:
    stated: dict[str, JsonValue] = {"digest": digest, "size": count}
    return {key: value for key, value in stated.items() if value is not None}
