"""Where the trials of a worker happen: folders, the task cache, and their environment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runtime.execution.proxy_control import SANDBOX_PORT
from runtime.execution.sandbox.errors import unsupported
from runtime.execution.tasks import Fetch, TaskCache
from runtime.home import Home
from specs.ids import Id
from specs.plans import Resources

SANDBOX = "runtime.execution.sandbox.environment:LocalSandboxEnvironment"


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """Which environment a trial gets: import path, its options, and overrides of the task's."""

    kwargs: Mapping[str, Any]
    import_path: str = SANDBOX
    cpus: float | None = None
    memory_mb: int | None = None
    mounts: tuple[Mapping[str, Any], ...] = ()
    """Read-only folders of the host, for Harbor's environments that can mount."""

    def with_tool(
        self, source: Path, target: str, version: str, *, commands: Mapping[str, str] | None = None
    ) -> "EnvironmentSpec":
        """The same with a folder of the host inside, read-only; `commands` are files of it, by
        the names that the sandbox's PATH has for them.

        The local sandbox takes it as one of its tools; Harbor's docker and podman mount it.
        An environment that can do neither refuses the trial when it is made.
        """
        if self.import_path == SANDBOX:
            tool: dict[str, Any] = {"source": str(source), "target": target, "version": version}
            if commands:
                tool["commands"] = dict(commands)
            given = [*self.kwargs.get("tools", ()), tool]
            return replace(self, kwargs={**self.kwargs, "tools": given})
        mount = {"type": "bind", "source": str(source), "target": target, "read_only": True}
        return replace(self, mounts=(*self.mounts, mount))

    def with_forward(self, port: int, target: str) -> "EnvironmentSpec":
        """The same with a port inside that leads to a socket of the host.

        Raises:
            InvalidInput: `sandbox_unsupported`: only the local sandbox forwards ports.
        """
        if self.import_path != SANDBOX:
            raise unsupported(
                "This environment forwards no port to the gateway.",
                next="Run plans with the key `gateway` in the local sandbox.",
            )
        given = [*self.kwargs.get("forward_ports", ()), {"port": port, "target": target}]
        return replace(self, kwargs={**self.kwargs, "forward_ports": given})


@dataclass(frozen=True, slots=True)
class Tool:
    """A folder of this machine that every sandbox sees read-only."""

    source: str
    target: str
    version: str


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the trials of a worker share.

    :ivar tasks: unpacked task packages.
    :ivar trials: folder of running trials; emptied when the worker starts.
    :ivar environment: the environment of a trial, by the trial's id and the plan's resources.
    """

    tasks: TaskCache
    trials: Path
    environment: Callable[[Id, Resources], EnvironmentSpec]


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of a worker below the home."""

    root: Path

    @classmethod
    def of(cls, home: Home) -> "Places":
        return cls(home.work)

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def sandboxes(self) -> Path:
        return self.root / "sandboxes"


def local_workplace(home: Home, fetch: Fetch, tools: Sequence[Tool] = ()) -> Workplace:
    """Trials in local sandboxes that see `tools`, and reach the proxy and nothing else."""
    places = Places.of(home)

    def environment(trial: Id, resources: Resources) -> EnvironmentSpec:
        proxy = {"port": SANDBOX_PORT, "target": f"unix:{home.proxy_socket}"}
        return EnvironmentSpec(
            kwargs={
                "state_dir": str(places.sandboxes),
                "trial_id": trial,
                "forward_ports": [proxy],
                "tools": [asdict(tool) for tool in tools],
            },
            cpus=resources.cpus,
            memory_mb=resources.memory_mb,
        )

    return Workplace(TaskCache(places.tasks, fetch), places.trials, environment)
