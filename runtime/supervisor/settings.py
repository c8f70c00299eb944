"""Settings of a local stack: flag > environment > `<home>/config.toml` > default.

    [worker]
    lease_sec = 15.0      # PRACTICUM_LEASE_SEC, up --lease
    [compute]
    threads = 2           # PRACTICUM_THREADS, up --threads

What is set nowhere is left to the part that it belongs to. A flag travels to the supervisor as
the environment variable, so there is one place that decides.
"""

import tomllib
from collections.abc import Mapping
from typing import cast

from pydantic import Field, JsonValue, ValidationError

from runtime.home import Home
from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput

LEASE = "PRACTICUM_LEASE_SEC"
THREADS = "PRACTICUM_THREADS"


class WorkerSettings(Contract):
    lease_sec: float | None = Field(default=None, gt=0, le=3600)


class ComputeSettings(Contract):
    threads: int | None = Field(default=None, ge=1, le=1024)


class Settings(Contract):
    """The whole of `config.toml`; unknown keys are errors."""

    worker: WorkerSettings = WorkerSettings()
    compute: ComputeSettings = ComputeSettings()

    def arguments(self, part: str) -> list[str]:
        """Command line of a part for what is set."""
        if part == "worker" and self.worker.lease_sec is not None:
            return ["--lease", str(self.worker.lease_sec)]
        if part == "compute" and self.compute.threads is not None:
            return ["--threads", str(self.compute.threads)]
        return []


def read_settings(home: Home, environment: Mapping[str, str]) -> Settings:
    """The effective settings.

    Raises:
        InvalidInput: naming the file and the key, or the variable.
    """
    document = _file(home)
    for name, section, key in ((LEASE, "worker", "lease_sec"), (THREADS, "compute", "threads")):
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
        f"{error.problem.detail} File: {home.config}; variables: {LEASE}, {THREADS}.",
        object=ErrorObject(type="settings", id=str(home.config), pointer=pointer),
        next="Correct the file or the variable, then run: practicum up",
    )
