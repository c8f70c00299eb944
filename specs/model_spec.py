"""The model specification: what a specialist is to do, and what it will have when it does it.

It is written before anything is trained, and holds still while data, method and checkpoints
change. Six *parts* have a digest each, so that two places can be compared part by part:

    instructions   the system text of every conversation
    tools          the definitions of the tools that the model can call, in their order
    output         what its answers must look like
    resources      files and documents that it can reach, with their digests
    deployment     model, harness, workdir, network, sampling
    useful         what makes an answer worth having

The author's copy may name files (`source`) beside the specification. Reading it *seals* it: texts
are embedded, digests and sizes stated; a sealed specification stands alone, and its digest is
that of its canonical bytes.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, field_validator, model_validator

from specs.base import Contract
from specs.ids import Digest, Name
from specs.profile import (
    MAX_FILE_BYTES,
    Engine,
    EnvName,
    Instruction,
    Output,
    ProfileFile,
    Sampling,
    safe_path,
)

SCHEMA = "practicum.model-spec/v1"
MAX_DOCUMENT_BYTES = 64 << 20
"""Of a document that is reached and not placed, such as a searched handbook."""

INSTRUCTIONS = "${spec.instructions}"
"""Stands for the instructions in an argument or a variable, or as the whole of a file."""
TOOLS = "${spec.tools}"
"""Stands likewise for the tool definitions, as canonical JSON."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_FILE_BYTES)]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class Source(Contract):
    """A file beside the specification; with a digest, no other bytes will do."""

    source: str = Field(min_length=1, max_length=1024)
    digest: Digest | None = None


class Tool(Contract):
    """A tool as the deployed model is told of it."""

    name: ToolName
    description: str = ""
    input_schema: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """JSON Schema, draft 2020-12, of its arguments."""


class Resource(Contract):
    """Something that the deployed model can reach at `path`.

    `file`: the profile puts it there. `document`: a tool brings it, by that name. `given`: each
    task supplies it; a path that ends in `/` covers everything below.
    """

    path: str = Field(min_length=1, max_length=1024)
    kind: Literal["file", "document", "given"] = "file"
    content: str | None = Field(default=None, max_length=MAX_FILE_BYTES)
    source: str | None = Field(default=None, max_length=1024)
    digest: Digest | None = None
    size: int | None = Field(default=None, ge=0)
    """Bytes."""
    about: str | None = None

    @field_validator("path")
    @classmethod
    def _safe(cls, path: str) -> str:
        safe_path(path)
        return path

    @model_validator(mode="after")
    def _origin(self) -> Self:
        origins = (self.content is not None) + (self.source is not None)
        if self.kind == "file" and origins != 1:
            raise ValueError("a file needs either content or source")
        if self.kind == "document" and (self.content is not None or not (origins or self.digest)):
            raise ValueError("a document needs a source or a digest, and never content")
        if self.kind == "given" and (origins or self.digest or self.size is not None):
            raise ValueError("what a task supplies has no content, source, digest or size here")
        if self.kind != "given" and self.path.endswith("/"):
            raise ValueError("only a given path may end in '/'")
        return self


class Withheld(Contract):
    """What data generation may use and the deployed model lacks: no row may name it.

    With `content` or `source` the generating harness finds it at `name`, a path.
    """

    name: str = Field(min_length=3, max_length=1024)
    content: str | None = Field(default=None, max_length=MAX_FILE_BYTES)
    source: str | None = Field(default=None, max_length=1024)
    digest: Digest | None = None
    about: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.content is not None and self.source is not None:
            raise ValueError("give either content or source")
        return self


class Answer(Contract):
    """The output contract: what the model's own turns must look like.

    `turns` says which: the last of a conversation, or every one. A turn that calls tools is
    measured by the tools' schemas instead.
    """

    turns: Literal["every", "last"] = "last"
    pattern: str | None = Field(default=None, min_length=1, max_length=4096)
    """Regular expression that the whole text matches."""
    json_schema: dict[str, JsonValue] | None = None
    """The text is JSON that this schema (draft 2020-12) allows."""
    max_characters: int | None = Field(default=None, ge=1)
    max_lines: int | None = Field(default=None, ge=1)
    programs: tuple[str, ...] | None = None
    """The text is a shell command, of these programs alone."""
    files: tuple[Output, ...] = ()
    """Files that the work leaves: the profile's `outputs`."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class Deployment(Contract):
    """The conditions under which the model works; the fields of a profile's agent, and more."""

    model: str = Field(min_length=1, max_length=128)
    """Base model name, or the id of a checkpoint."""
    engine: Engine
    files: tuple[ProfileFile, ...] = ()
    """Of the harness; what the model may read is a resource."""
    setup: tuple[str, ...] = ()
    workdir: str = "/app"
    args: tuple[str, ...] = ()
    env: dict[EnvName, str] = Field(default_factory=dict[str, str])
    instruction: Instruction = Instruction()
    sampling: Sampling = Sampling()
    network: Literal["none", "any"] | tuple[str, ...] = "none"
    """Hosts that its tools reach, besides the model's own endpoint."""
    context_tokens: int | None = Field(default=None, ge=1)
    """Least context that the model needs."""


class Criterion(Contract):
    """One thing that makes an answer useful."""

    name: Label
    statement: str = Field(min_length=1, max_length=4096)
    assessed_by: Literal["verifier", "judge", "person"] = "verifier"


class ModelSpec(Contract):
    """`practicum.model-spec/v1`."""

    schema_: Literal["practicum.model-spec/v1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    behaviour: str = Field(min_length=1, max_length=16384)
    """What comes in, and what the model is to make of it."""
    instructions: Text | Source
    tools: tuple[Tool, ...] | Source = ()
    resources: tuple[Resource, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    deployment: Deployment
    output: Answer = Answer()
    useful: tuple[Criterion, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        tools = self.tools if isinstance(self.tools, tuple) else ()
        kinds = {
            "tools": [tool.name for tool in tools],
            "resources": [resource.path for resource in self.resources],
            "withheld": [one.name for one in self.withheld],
            "useful": [criterion.name for criterion in self.useful],
        }
        for kind, names in kinds.items():
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{kind} names {name!r} twice")
        reachable = {*kinds["tools"], *kinds["resources"]}
        for name in kinds["withheld"]:
            if name in reachable:
                raise ValueError(f"{name!r} is withheld, and the deployed model has it")
        return self


class Parts(Contract):
    """Digest of each part of a sealed specification."""

    instructions: Digest
    tools: Digest
    output: Digest
    resources: Digest
    deployment: Digest
    useful: Digest


class Generation(Contract):
    """`practicum.generation/v1`: what a harness for data generation needs of a specification.

    A row begins with `messages` and carries `tools`; the teacher of `profile` is told what the
    deployed model is told.
    """

    schema_: Literal["practicum.generation/v1"] = Field(
        default="practicum.generation/v1", alias="schema"
    )
    spec: Digest
    parts: Parts
    profile_digest: Digest
    behaviour: str
    messages: tuple[dict[str, JsonValue], ...]
    """In the shape of chat rows: the system message."""
    tools: tuple[dict[str, JsonValue], ...]
    """In the shape of chat rows."""
    output: Answer
    useful: tuple[Criterion, ...]
    withheld: tuple[str, ...]
    """Names that no row may mention."""
    profile: dict[str, JsonValue]
    """`practicum.profile/v1` of the teacher."""
