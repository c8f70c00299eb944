"""Model specifications: checked, looked at, and rendered for a harness.

A specification is a file of its author's; its digest names it in plans and journals. Everything
here is local: no stack is asked.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Literal, cast

import anyio.to_thread
from pydantic import Field, JsonValue

from runtime.specialist import render as rendering
from runtime.specialist.reading import WHAT, seal
from specs import canonical
from specs.base import Contract
from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput
from specs.model_spec import ModelSpec, Parts
from specs.paths import user_path
from tools.context import Context
from tools.documents import Read, read_document
from tools.fields import Cli, Input
from tools.registry import READ_LOCAL, Traits, operation
from tools.tables import pairs, short, size, table

SHOWN_CHARACTERS = 400
WRITES = Traits(local=True, idempotent=True)

SpecFile = Annotated[
    dict[str, JsonValue] | str,
    Field(description="The specification, or its file"),
    Cli(positional=True, metavar="SPEC"),
]
Replace = Annotated[bool, Field(description="Write over a file that is there")]


class OneSpec(Input):
    spec: SpecFile


class Render(Input):
    spec: SpecFile
    kind: Annotated[
        Literal["profile", "teacher", "generation"],
        Field(description="Deployed profile, teacher's profile, or generation setup"),
    ] = "profile"
    model: Annotated[str | None, Field(description="Another model; a teacher needs one")] = None
    to: Annotated[str | None, Field(description="File to write instead of showing")] = None
    replace: Replace = False


class ResourceView(Contract):
    path: str
    kind: str
    digest: str | None
    size: int | None


class SpecView(Contract):
    """A specification that is valid and can be deployed."""

    name: str
    digest: str
    """Of the sealed specification."""
    parts: Parts
    profile_digest: str
    """Of the deployed profile."""
    model: str
    engine: str
    network: str
    tools: list[str]
    resources: list[ResourceView]
    withheld: list[str]
    useful: list[str]


class SpecDetail(Contract):
    """A specification with its texts, long ones cut."""

    view: SpecView
    document: dict[str, JsonValue]


class Rendered(Contract):
    """What was made of a specification; `document` is left out where a file was written."""

    kind: Literal["profile", "teacher", "generation"]
    spec: str
    """Digest."""
    parts: Parts
    digest: str
    """Of the rendered document's canonical bytes."""
    file: str | None
    document: dict[str, JsonValue] | None


def view_text(view: SpecView) -> str:
    head = pairs(
        {
            "model spec": view.name,
            "digest": view.digest,
            "model": view.model,
            "engine": view.engine,
            "network": view.network,
            "tools": view.tools or "none",
            "withheld": view.withheld or None,
            "useful": view.useful,
            "profile": view.profile_digest,
        }
    )
    rows = table(("part", "digest"), [*view.parts.model_dump().items()])
    if not view.resources:
        return f"{head}\n\n{rows}"
    found = table(
        ("resource", "kind", "size", "digest"),
        [
            (r.path, r.kind, None if r.size is None else size(r.size), r.digest and short(r.digest))
            for r in view.resources
        ],
    )
    return f"{head}\n\n{rows}\n\n{found}"


def _detail_text(detail: SpecDetail) -> str:
    shown = json.dumps(detail.document, indent=2, ensure_ascii=False)
    return f"{view_text(detail.view)}\n\n{shown}"


def _rendered_text(rendered: Rendered) -> str:
    if rendered.file is not None:
        return f"{rendered.file}  {rendered.digest}"
    return json.dumps(rendered.document, indent=2, ensure_ascii=False, sort_keys=True)


@operation("model-spec", "validate", READ_LOCAL, text=view_text)
async def validate(_: Context, request: OneSpec) -> SpecView:
    """Check a model specification: schema, named files, and whether its profile launches."""
    return await anyio.to_thread.run_sync(lambda: view_of(read_spec(request.spec)))


@operation("model-spec", "show", READ_LOCAL, text=_detail_text)
async def show(_: Context, request: OneSpec) -> SpecDetail:
    """Show a model specification with the digest of each part; long texts are cut."""
    spec = await anyio.to_thread.run_sync(read_spec, request.spec)
    document = cast(dict[str, JsonValue], _cut(canonical.document(spec)))
    return SpecDetail(view=view_of(spec), document=document)


@operation("model-spec", "render", WRITES, text=_rendered_text)
async def render(_: Context, request: Render) -> Rendered:
    """Make a deployable profile of a specification, or a teacher's with the same contract."""
    return await anyio.to_thread.run_sync(_render, request)


def read_spec(value: dict[str, JsonValue] | str) -> ModelSpec:
    """The sealed specification behind an argument.

    Raises:
        InvalidInput: it cannot be read, or one of its files cannot.
    """
    read = spec_document(value)
    spec = seal(read.value, read.folder)
    rendering.check_schemas(spec)
    return spec


def view_of(spec: ModelSpec) -> SpecView:
    """A sealed specification at a glance; rendering its profile is part of checking it."""
    network = spec.deployment.network
    return SpecView(
        name=spec.name,
        digest=canonical.digest(spec),
        parts=rendering.parts(spec),
        profile_digest=canonical.digest(rendering.actor_profile(spec)),
        model=spec.deployment.model,
        engine=f"{spec.deployment.engine.name} {spec.deployment.engine.version}",
        network=network if isinstance(network, str) else ", ".join(network),
        tools=[tool.name for tool in rendering.tools_of(spec)],
        resources=[
            ResourceView(path=one.path, kind=one.kind, digest=one.digest, size=one.size)
            for one in spec.resources
        ],
        withheld=[one.name for one in spec.withheld],
        useful=[criterion.name for criterion in spec.useful],
    )


def write_new(file: str, data: bytes, *, replace: bool) -> str | None:
    """Write a whole file; the digest of other bytes that were there, if it was replaced.

    Raises:
        Conflict: other bytes are there, and nobody said to replace them.
        InvalidInput: it cannot be written.
    """
    path = user_path(file)
    try:
        before = path.read_bytes() if path.exists() else None
        if before == data:
            return None
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as aside:
            aside.write(data)
            aside.flush()
            Path(aside.name).chmod(0o644)
            if replace:
                path.unlink(missing_ok=True)
            path.hardlink_to(aside.name)  # fails where a file is there, also a new one
    except FileExistsError:
        raise Conflict(
            f"{path} is there already, with other content.",
            object=ErrorObject(type="file", id=str(path)),
            next="Choose another name, or say replace (--replace).",
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror or error}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="file", id=str(path)),
            next="Name a file in a folder that exists.",
        ) from None
    return None if before is None else canonical.digest_bytes(before)


def _render(request: Render) -> Rendered:
    spec = read_spec(request.spec)
    if request.kind != "profile" and not request.model:
        raise InvalidInput(
            "A teacher needs a model.",
            object=ErrorObject(type="arguments", pointer="/model"),
            next="Give model (--model); `practicum model list` shows them.",
        )
    model = request.model or spec.deployment.model
    makers = {
        "profile": rendering.actor_profile,
        "teacher": rendering.teacher_profile,
        "generation": rendering.generation,
    }
    made = makers[request.kind](spec, model)
    document = cast(dict[str, JsonValue], json.loads(canonical.canonical_bytes(made)))
    if request.to is not None:
        write_new(request.to, written(document), replace=request.replace)
    return Rendered(
        kind=request.kind,
        spec=canonical.digest(spec),
        parts=rendering.parts(spec),
        digest=canonical.digest(document),
        file=request.to,
        document=document if request.to is None else None,
    )


def written(document: dict[str, JsonValue]) -> bytes:
    """A document as its author reads it, keys in the order that it has."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def spec_document(value: dict[str, JsonValue] | str) -> Read:
    if isinstance(value, str):
        value = f"@{value.removeprefix('@')}"
    return cast(Read, read_document(value, WHAT))


def _cut(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return value
