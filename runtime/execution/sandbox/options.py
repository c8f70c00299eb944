"""What can be set on the local sandbox: `EnvironmentConfig(import_path=…, kwargs={…})`."""

import re
from pathlib import Path
from typing import Literal

from harbor.environments.options import EnvironmentOptions
from pydantic import BaseModel, ConfigDict, Field, field_validator

from runtime.execution.sandbox.cache import MOST_BYTES

_TARGET = re.compile(r"^(unix:/.+|(127\.0\.0\.1|localhost):[0-9]{1,5})$")
ACCEPTED_IMAGES = (
    r"debian(:.*)?",
    r"ubuntu(:.*)?",
    r"python(:3(\..*|-.*)?)?",
    r"buildpack-deps(:.*)?",
)


class Forward(BaseModel):
    """A port of the sandbox's own 127.0.0.1 that leads to a socket of the host."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    port: int = Field(ge=1, le=65535)
    """Port inside the sandbox."""
    target: str
    """`unix:/path` or `127.0.0.1:PORT` on the host."""

    @field_validator("target")
    @classmethod
    def _known_target(cls, value: str) -> str:
        if not _TARGET.match(value):
            raise ValueError("a target is unix:/path or 127.0.0.1:PORT")
        return value


class ToolFolder(BaseModel):
    """A folder of the host that every sandbox sees read-only, such as a harness's program."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    source: Path
    """Folder on the host."""
    target: str = Field(pattern=r"^/[^:]+$")
    """Absolute path inside."""
    version: str = ""
    """Part of the base digest: say which version the folder holds."""
    commands: dict[str, str] = Field(default_factory=dict[str, str])
    """Programs of the folder that are linked into /usr/local/bin: name and relative path."""


class LocalSandboxOptions(EnvironmentOptions):
    """Options of the local sandbox. Only `state_dir` is required."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    state_dir: Path
    """Folder for running sandboxes, image layers and bases; `sweep` cleans it."""
    trial_id: str | None = None
    """Correlation id written into the intent of each sandbox."""
    forward_ports: list[Forward] = Field(default_factory=list[Forward])
    """Ports inside that lead to sockets of the host, such as the proxy's."""
    allow_public: bool = False
    """Let a task that declares `network_mode = "public"`, and image builds, use the host's
    network, its loopback included. Otherwise such a task is refused, and builds have none."""
    default_memory_mb: int = Field(default=2048, ge=16)
    """Memory limit of a task that declares none."""
    default_pids: int = Field(default=1024, ge=16)
    """Limit on processes and threads of a sandbox."""
    default_cpus: float | None = Field(default=None, gt=0)
    """CPU limit of a task that declares none."""
    max_file_mb: int = Field(default=4096, ge=1)
    """Largest file that a command can write."""
    max_output_mb: float = Field(default=4.0, gt=0)
    """How much of a command's stdout, and of its stderr, is kept: its beginning and its end."""
    max_download_mb: int = Field(default=1024, ge=1)
    """Largest file, and largest directory, that leaves a sandbox; the rest is left out."""
    max_download_files: int = Field(default=100_000, ge=1)
    """Most files that leave a sandbox in one directory."""
    max_cache_mb: int = Field(default=MOST_BYTES >> 20, ge=1)
    """What image layers and bases may take together; those not used for longest go first."""
    build_timeout_s: float = Field(default=600.0, gt=0)
    """Time for one RUN of a Dockerfile, if the task's own build timeout is not shorter."""
    shm_mb: int = Field(default=64, ge=1)
    """Size of /dev/shm."""
    python: Literal["auto", "system", "bundled"] = "auto"
    """`system`: /usr/bin/python3; `bundled`: the worker's own interpreter and standard library,
    read-only; `auto`: the system's if it is 3.11 or newer, else bundled."""
    images: list[str] = Field(default_factory=lambda: list(ACCEPTED_IMAGES))
    """Patterns of image names for which the base derived from the host may stand in."""
    tools: list[ToolFolder] = Field(default_factory=list[ToolFolder])
    """Folders that every sandbox sees read-only."""
