"""What the worker tells the fork server to build: plain values that travel as JSON."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Overlay:
    """A writable directory tree of the sandbox: `lowers` (topmost first) under a fresh upper."""

    target: str
    lowers: list[str]
    upper: str
    work: str


@dataclass(frozen=True, slots=True)
class ReadOnlyTree:
    """A read-only directory tree: `lowers`, topmost first; at least two."""

    target: str
    lowers: list[str]


@dataclass(frozen=True, slots=True)
class Launch:
    """One sandbox. `overlays[0]` is the root; paths are the host's unless they are targets."""

    merged: str
    overlays: list[Overlay]
    trees: list[ReadOnlyTree] = field(default_factory=list[ReadOnlyTree])
    rootless: bool = False
    host_network: bool = False
    hostname: str = "sandbox"
    forward_ports: list[int] = field(default_factory=list[int])
    resolv_conf: str | None = None
    shm_mb: int = 64
    upper_tmpfs: str | None = None
    """Directory that holds every upper and work directory, to be a tmpfs of its own."""
    upper_tmpfs_mb: int = 0
    volatile: bool = True
    cgroup_procs: list[str] = field(default_factory=list[str])
    rlimits: dict[str, int] = field(default_factory=dict[str, int])
    """Name in `resource` (`RLIMIT_FSIZE`) → soft and hard limit of every command."""

    def dumps(self) -> bytes:
        """The launch as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def loads(cls, data: bytes) -> "Launch":
        """The launch that `dumps` wrote."""
        values: dict[str, Any] = json.loads(data)
        values["overlays"] = [Overlay(**item) for item in values["overlays"]]
        values["trees"] = [ReadOnlyTree(**item) for item in values["trees"]]
        return cls(**values)
