"""Settings of a local stack: flag > environment > `<home>/config.toml` > default.

    [worker]
    lease_sec = 15.0      # PRACTICUM_LEASE_SEC, up --lease
    runs = 1              # PRACTICUM_RUNS, up --runs: at work at once; those that start others
                          # (plan key `gateway`) are counted apart, as many again
    [[worker.tools]]      # a folder of this machine that every sandbox sees, read-only
    source = "/srv/mini"
    target = "/opt/mini"
    version = "2.4.6"
    [compute]
    threads = 2           # PRACTICUM_THREADS, up --threads
    prefix_bytes = 536870912  # PRACTICUM_PREFIX_BYTES, up --prefix-bytes
    [proxy]
    stage_bytes = 8589934592  # PRACTICUM_STAGE_BYTES, up --stage-bytes
    [[upstreams]]         # a model that somebody else serves, named `upstream/judge`
    name = "judge"
    kind = "anthropic"    # or openai
    base_url = "https://api.example.org"
    model = "judge-large-1"
    key_env = "JUDGE_KEY" # where `practicum up` is run; the proxy alone is given it
    context_tokens = 200000
    [approval]            # what the gateway approves by itself, and lets anybody probe
    policy = "small"
    max_trial_slots = 256
    [tinker]              # the training service; compute alone is given its key
    key_env = "TINKER_API_KEY"
    [[tinker.models]]     # named `tinker/qwen3-8b`
    name = "qwen3-8b"
    model = "Qwen/Qwen3-8B"
    tokenizer = "qwen3"
    context_tokens = 32768

What is set nowhere is left to the part that it belongs to. A flag travels to the supervisor as
the environment variable, so there is one place that decides.
"""

import tomllib
from collections.abc import Mapping
from typing import Self, cast

from pydantic import Field, JsonValue, ValidationError, model_validator

from runtime.home import Home
from specs import canonical
from specs.base import Contract
from specs.construction_records import ApprovalRules
from specs.errors import ErrorObject, InvalidInput
from specs.tinker import TinkerSettings
from specs.upstream import Upstream

LEASE = "PRACTICUM_LEASE_SEC"
RUNS = "PRACTICUM_RUNS"
THREADS = "PRACTICUM_THREADS"
PREFIX = "PRACTICUM_PREFIX_BYTES"
STAGE = "PRACTICUM_STAGE_BYTES"
VARIABLES: Mapping[str, tuple[str, str]] = {
    LEASE: ("worker", "lease_sec"),
    RUNS: ("worker", "runs"),
    THREADS: ("compute", "threads"),
    PREFIX: ("compute", "prefix_bytes"),
    STAGE: ("proxy", "stage_bytes"),
}
"""Environment variables, and the section and key that each beats."""


class ToolSettings(Contract):
    """A folder that every sandbox sees read-only, such as a harness's program."""

    source: str = Field(pattern=r"^/[^:]*$")
    target: str = Field(pattern=r"^/[^:]+$")
    version: str = Field(min_length=1, max_length=64)


class WorkerSettings(Contract):
    lease_sec: float | None = Field(default=None, gt=0, le=3600)
    runs: int | None = Field(default=None, ge=1, le=64)
    tools: tuple[ToolSettings, ...] = ()


class ComputeSettings(Contract):
    threads: int | None = Field(default=None, ge=1, le=1024)
    prefix_bytes: int | None = Field(default=None, ge=0)
    """Memory of cached prefixes of prompts: pure speed, so 0 changes no answer."""


class ProxySettings(Contract):
    stage_bytes: int | None = Field(default=None, ge=1 << 20)
    """Evidence that may wait for publication before calls are refused."""


class Settings(Contract):
    """The whole of `config.toml`; unknown keys are errors."""

    worker: WorkerSettings = WorkerSettings()
    compute: ComputeSettings = ComputeSettings()
    proxy: ProxySettings = ProxySettings()
    upstreams: tuple[Upstream, ...] = ()
    tinker: TinkerSettings = TinkerSettings()
    approval: ApprovalRules = ApprovalRules()

    @model_validator(mode="after")
    def _one_of_each_name(self) -> Self:
        names = [one.name for one in self.upstreams]
        if len(set(names)) != len(names):
            raise ValueError("two upstreams have one name")
        return self

    def arguments(self, part: str) -> list[str]:
        """Command line of a part for what is set."""
        chosen: list[str] = []
        if part == "gateway" and self.approval != ApprovalRules():
            chosen += ["--approval", self.approval.model_dump_json()]
        if part == "worker":
            if self.worker.lease_sec is not None:
                chosen += ["--lease", str(self.worker.lease_sec)]
            if self.worker.runs is not None:
                chosen += ["--runs", str(self.worker.runs)]
            for tool in self.worker.tools:
                chosen += ["--tool", tool.source, tool.target, tool.version]
        if part == "compute" and self.compute.threads is not None:
            chosen += ["--threads", str(self.compute.threads)]
        if part == "compute" and self.compute.prefix_bytes is not None:
            chosen += ["--prefix-bytes", str(self.compute.prefix_bytes)]
        if part == "proxy" and self.proxy.stage_bytes is not None:
            chosen += ["--stage-bytes", str(self.proxy.stage_bytes)]
        if part == "compute" and self.tinker.models:
            chosen += ["--tinker", self.tinker.model_dump_json(exclude_none=True)]
        if part in ("compute", "proxy"):
            for one in self.upstreams:
                chosen += ["--upstream", one.model_dump_json(exclude_none=True)]
        return chosen

    def keys(self, part: str) -> frozenset[str]:
        """Names of the variables with keys that a part is given: upstreams' to the proxy, the
        training service's to compute."""
        if part == "compute":
            return frozenset({self.tinker.key_env})
        if part != "proxy":
            return frozenset()
        return frozenset(one.key_env for one in self.upstreams if one.key_env is not None)


def read_settings(home: Home, environment: Mapping[str, str]) -> Settings:
    """The effective settings.

    Raises:
        InvalidInput: naming the file and the key, or the variable.
    """
    document = _file(home)
    for name, (section, key) in VARIABLES.items():
        if name in environment:
            values = document.setdefault(section, {})
            if isinstance(values, dict):
                values[key] = environment[name]
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        raise _named(canonical.invalid(error, "settings"), home) from None


def _file(home: Home) -> dict[str, JsonValue]:
    try:
        return cast(dict[str, JsonValue], tomllib.loads(home.config.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _named(InvalidInput(f"The settings are not valid TOML: {error}."), home) from None


def _named(error: InvalidInput, home: Home) -> InvalidInput:
    pointer = error.problem.object.pointer if error.problem.object else None
    return InvalidInput(
        f"{error.problem.detail} File: {home.config}; variables: {', '.join(VARIABLES)}.",
        object=ErrorObject(type="settings", id=str(home.config), pointer=pointer),
        next="Correct the file or the variable, then run: practicum up",
    )
