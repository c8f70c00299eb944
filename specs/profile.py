"""The profile: an executable agent recipe, immutable once published.

A file comes either with its `content` or, in the author's copy only, with a `source` path
beside the profile; publishing embeds the content, so a published profile stands alone.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from specs import canonical
from specs.base import Contract
from specs.ids import Digest, Name

SCHEMA = "practicum.profile/v1"

MAX_FILE_BYTES = 1 << 20
MAX_PLUGIN_BYTES = 2 << 20
MAX_PLUGIN_FILES = 512

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Binding(StrEnum):
    """Every `${…}` that an argument, a file path or an environment value may use."""

    RUN_ID = "run.id"
    TRIAL_ID = "trial.id"
    TASK_NAME = "task.name"
    MODEL_NAME = "model.name"
    MODEL_BASE_URL = "model.base_url"
    MODEL_TOKEN = "model.token"
    MODEL_CONTEXT_TOKENS = "model.context_tokens"
    MODEL_MAX_OUTPUT_TOKENS = "model.max_output_tokens"
    GATEWAY_URL = "gateway.url"
    GATEWAY_TOKEN = "gateway.token"
    ENGINE_PROGRAM = "engine.program"
    ENGINE_CONFIG = "engine.config"
    ENGINE_SCRATCH = "engine.scratch"
    ENGINE_PERMISSIONS = "engine.permissions"
    WORKDIR = "workdir"
    INSTRUCTION = "instruction"
    INSTRUCTION_FILE = "instruction.file"


class Engine(Contract):
    """The native harness: `command` runs `args` as they are; `claude-code` runs the pinned
    version with `args` as its own."""

    name: Literal["claude-code", "command"]
    version: str = Field(min_length=1, max_length=64)


class ProfileFile(Contract):
    """A file put into the environment before setup; a relative path is under `workdir`."""

    path: str = Field(min_length=1, max_length=1024)
    content: str | None = Field(default=None, max_length=MAX_FILE_BYTES)
    source: str | None = Field(default=None, max_length=1024)
    mode: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")] = "644"

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.content is None) == (self.source is None):
            raise ValueError("give either content or source")
        return self

    @field_validator("path")
    @classmethod
    def _safe(cls, path: str) -> str:
        return safe_path(path)


class PluginFile(Contract):
    """A file of a plugin; its path is relative to the plugin's folder."""

    path: str = Field(min_length=1, max_length=1024)
    content: str = Field(max_length=MAX_FILE_BYTES)
    mode: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")] = "644"

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith("/"):
            raise ValueError("a plugin's file lies in its folder: use a relative path")
        return safe_path(path)


class Plugin(Contract):
    """A folder that Claude Code loads as a plugin: skills, agents, hooks, MCP servers.

    The author's copy names a `source` folder; embedded, the plugin is its files, and `digest` is
    that of the canonical list of them, by which records can name it.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    """Of its folder; the plugin's own name is in its manifest."""
    source: str | None = Field(default=None, max_length=1024)
    files: tuple[PluginFile, ...] | None = Field(default=None, max_length=MAX_PLUGIN_FILES)
    digest: Digest | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.files is None) == (self.source is None):
            raise ValueError("give either files or source")
        if self.files is None:
            return self
        names = [file.path for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("two files of the plugin have one path")
        if sum(len(file.content.encode()) for file in self.files) > MAX_PLUGIN_BYTES:
            raise ValueError(f"the files of the plugin are larger than {MAX_PLUGIN_BYTES} bytes")
        if self.digest is not None and self.digest != plugin_digest(self.files):
            raise ValueError("the files of the plugin do not have its digest")
        return self


class Instruction(Contract):
    """How the task's instruction reaches the harness."""

    deliver: Literal["argument", "stdin", "file"] = "stdin"


class Output(Contract):
    """A file that the agent should leave; a missing required one is an outcome of its own."""

    path: str = Field(min_length=1, max_length=1024)
    required: bool = True

    @field_validator("path")
    @classmethod
    def _safe(cls, path: str) -> str:
        return safe_path(path)


class Sampling(Contract):
    """Sampling that beats what the harness asks for; unset leaves the request's own."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1, le=65536)


class Agent(Contract):
    """The recipe proper."""

    model: str = Field(min_length=1, max_length=128)
    """Base model name, or the id of a checkpoint."""
    engine: Engine
    files: tuple[ProfileFile, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    """Plugin folders, for Claude Code alone."""
    setup: tuple[str, ...] = ()
    """Shell commands run once, in order, before the harness."""
    workdir: str = "/app"
    args: tuple[str, ...] = ()
    """Literal arguments; only the listed `${…}` bindings expand."""
    env: dict[EnvName, str] = Field(default_factory=dict[str, str])
    instruction: Instruction = Instruction()
    sampling: Sampling = Sampling()
    outputs: tuple[Output, ...] = ()

    @field_validator("workdir")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/"):
            raise ValueError("workdir must be an absolute path")
        return safe_path(path)

    @model_validator(mode="after")
    def _runnable(self) -> Self:
        if self.engine.name == "command" and not self.args:
            raise ValueError("engine 'command' needs args: the program and its arguments")
        return self


class Profile(Contract):
    """`practicum.profile/v1`."""

    schema_: Literal["practicum.profile/v1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    agent: Agent


def plugin_digest(files: Sequence[PluginFile]) -> str:
    """Digest of a plugin's files, whatever their order."""
    ordered = sorted(files, key=lambda file: file.path)
    return canonical.digest([file.model_dump(mode="json") for file in ordered])


def safe_path(path: str) -> str:
    """A path without `..`, NUL or an empty part.

    Raises:
        ValueError: the path could leave the folder it is meant for.
    """
    parts = PurePosixPath(path).parts
    if "\x00" in path or ".." in parts or not parts:
        raise ValueError(f"unsafe path {path!r}: no '..', no NUL, not empty")
    return path
