"""`LocalSandboxEnvironment`: the local sandbox as a Harbor environment.

    EnvironmentConfig(
        import_path="runtime.execution.sandbox.environment:LocalSandboxEnvironment",
        kwargs={"state_dir": "/path", "forward_ports": [{"port": 8080, "target": "unix:/path"}]},
    )

Nothing of the host is mounted: files move through the sandbox's own PID 1, so that a symlink
planted inside is never followed outside. What Harbor's transfer helpers do with archives inside
the sandbox is replaced for the same reason.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, cast, override

from anyio import to_thread
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.environments.options import EnvironmentOptions
from harbor.models.trial.config import ResourceMode
from harbor.utils.path_filter import filter_paths_by_patterns

from runtime.execution.sandbox import base, cgroups, image
from runtime.execution.sandbox.cache import Holds
from runtime.execution.sandbox.cgroups import Limits
from runtime.execution.sandbox.definition import Definition
from runtime.execution.sandbox.errors import SandboxFailed, unsupported
from runtime.execution.sandbox.extract import Extracted, Select
from runtime.execution.sandbox.image import Image
from runtime.execution.sandbox.layout import Base
from runtime.execution.sandbox.network import NetworkPlan, resolve
from runtime.execution.sandbox.options import LocalSandboxOptions
from runtime.execution.sandbox.sandbox import OnOutput, Sandbox, Settings
from runtime.execution.sandbox.sandboxd import linux
from runtime.execution.sandbox.sandboxd.transfer import Bounds
from specs.canonical import digest

_MIB = 1 << 20
_SHELL = 'if command -v bash >/dev/null; then exec bash -c "$1"; else exec sh -c "$1"; fi'


class LocalSandboxEnvironment(BaseEnvironment):
    """One task environment in one local sandbox."""

    options_model: ClassVar[type[EnvironmentOptions] | None] = LocalSandboxOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = {k: kwargs.pop(k) for k in list(kwargs) if k in LocalSandboxOptions.model_fields}
        self._options = cast(LocalSandboxOptions, type(self).parse_options(given))
        self.options = self._options
        kwargs["auto_mounting"] = self._options.auto_mounting
        self._sandbox: Sandbox | None = None
        self._base: Base | None = None
        self._image: Image | None = None
        super().__init__(*args, **kwargs)
        self.network: NetworkPlan = resolve(
            self._network_policy, self.task_env_config, allow_public=self._options.allow_public
        )
        self._refuse_mounts()

    @staticmethod
    @override
    def type() -> str:
        return "local-sandbox"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_ipv4_addresses=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        here = cgroups.available()
        return EnvironmentResourceCapabilities(
            cpu_limit="cpu" in here, memory_limit="memory" in here, fractional_cpus="cpu" in here
        )

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Refuse a machine that cannot run sandboxes."""
        super().preflight(kwargs)
        if sys.platform != "linux" or not linux.SUPPORTED:
            raise unsupported(
                f"The local sandbox does not run on {sys.platform} {linux.MACHINE}.",
                next="Use Harbor's docker environment.",
            )

    @override
    def _validate_definition(self) -> None:
        type(self).preflight({"state_dir": self._options.state_dir})
        self._definition = Definition.read(
            self.environment_dir, self.task_env_config.docker_image, self._options.images
        )

    def _refuse_mounts(self) -> None:
        if self._host_mounts:
            raise unsupported(
                "The local sandbox mounts no folder of the host into a trial.",
                pointer="/environment/mounts",
                next="Put the files in the task, or name read-only folders in the tools option.",
            )

    # ---------------------------------------------------------------- identity
    @property
    def environment_version(self) -> str:
        """Digest of base and image: what the trial records; known once started."""
        if self._base is None or self._image is None:
            raise SandboxFailed(
                "The environment has no version before it is started.", next="Await start() first."
            )
        return digest(
            {
                "schema": "practicum.environment-version/v1",
                "base": self._base.digest,
                "image": self._image.digest,
            }
        )

    @property
    def environment_facts(self) -> dict[str, object]:
        """What the version is of, and what was enforced; for people and for the record."""
        if self._base is None or self._image is None or self._sandbox is None:
            raise SandboxFailed("The environment is not running.", next="Await start() first.")
        return {
            "base": {"digest": self._base.digest, **self._base.facts},
            "image": self._image.digest,
            "network": {"mode": self.network.mode, "declared": self.network.declared},
            "enforced": sorted(self._sandbox.cgroups.enforced),
        }

    def oom_kills(self) -> int:
        """How many processes the memory limit has killed so far."""
        return self._running.cgroups.oom_kills()

    # --------------------------------------------------------------- lifecycle
    @override
    async def start(self, force_build: bool) -> None:
        """Build what is missing and start; nothing is left behind when this fails."""
        options = self._options
        with Holds() as holds:  # until the sandbox holds them itself
            self._base = await to_thread.run_sync(self._derive, holds)
            settings = self._settings(self._base)
            self._image = await image.prepare(
                self._definition,
                replace(settings, host_network=options.allow_public),
                holds,
                force=force_build,
                run_timeout=min(options.build_timeout_s, self.task_env_config.build_timeout_sec),
                most_bytes=options.max_cache_mb * _MIB,
            )
            self._sandbox = await Sandbox.start(replace(settings, layers=self._image.layers))
        targets = self._mount_targets(writable_only=True)
        workdir = self.task_env_config.workdir
        if targets:
            await self.ensure_dirs(targets)
        if workdir:
            await self.ensure_dirs([workdir], chmod=False)
        await self._upload_environment_dir_after_start()

    def _derive(self, holds: Holds) -> Base:
        options = self._options
        while True:
            found = base.derive(options.state_dir, options.python, tuple(options.tools))
            if holds.take(found.directory):
                return found

    def _settings(self, derived: Base) -> Settings:
        options = self._options
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        public = self.network.mode == "host"
        download = options.max_download_mb * _MIB
        return Settings(
            state=options.state_dir,
            base=derived,
            limits=Limits(
                memory_mb=memory or options.default_memory_mb,
                cpus=cpus or options.default_cpus,
                pids=options.default_pids,
            ),
            forwards=tuple(options.forward_ports),
            host_network=public,
            trial=options.trial_id or self.session_id,
            storage_mb=self.task_env_config.storage_mb,
            shm_mb=options.shm_mb,
            max_file_bytes=options.max_file_mb * _MIB,
            output_bytes=int(options.max_output_mb * _MIB),
            bounds=Bounds(download, download, options.max_download_files),
        )

    @override
    async def stop(self, delete: bool) -> None:
        """Kill everything inside; without `delete` the changed files stay on disk."""
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.stop(keep=not delete)

    @property
    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxFailed("The environment is not running.", next="Await start() first.")
        return self._sandbox

    # ---------------------------------------------------------------- commands
    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command; killed with all its descendants at its deadline or on cancel."""
        image_ = self._image or Image(digest="")
        who = self._resolve_user(user)
        callback = self._output_callback()
        on_output: OnOutput | None = None
        if callback is not None:
            emit = callback

            async def forward_output(data: bytes, stream: str) -> None:
                name = cast(Literal["stdout", "stderr"], stream)
                await emit(data.decode(errors="replace"), name)

            on_output = forward_output
        done = await self._running.exec(
            ["sh", "-c", _SHELL, "sh", command],
            cwd=cwd or self.task_env_config.workdir or image_.workdir,
            env={**image_.env, **(self._merge_env(env) or {})},
            user=image_.user if who is None else str(who),
            timeout=timeout_sec,
            on_output=on_output,
        )
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=done.code,
        )

    # ------------------------------------------------------------------- files
    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._running.put_file(Path(source_path), target_path)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._running.put_tree(Path(source_dir), target_dir)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._running.get_file(source_path, Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self._download(source_dir, target_dir, None)

    @override
    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        def wanted(name: str, _: bool) -> bool:
            return not _tar_excludes(name, exclude)

        await self._download(source_dir, target_dir, wanted)

    @override
    async def download_dir_filtered(
        self,
        *,
        source_dir: str,
        target_dir: Path | str,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        def wanted(name: str, is_directory: bool) -> bool:
            if is_directory:
                return False  # made when a file in it is wanted
            if name in (protect or ()):
                return True
            return bool(filter_paths_by_patterns([name], include=include, exclude=exclude))

        await self._download(source_dir, target_dir, wanted)

    async def _download(self, source: str, target: Path | str, select: Select | None) -> Extracted:
        result = await self._running.get_tree(source, Path(target), select)
        for name, reason in result.left_out:
            self.logger.warning("%s of %s was left out: %s", name, source, reason)
        return result


def _tar_excludes(name: str, patterns: Sequence[str]) -> bool:
    """What `tar --exclude` would leave out: a match of the path or of any part's tail."""
    path = PurePosixPath(name)
    for part in (path, *path.parents):
        tails = ["/".join(part.parts[i:]) for i in range(len(part.parts))]
        if any(fnmatch(tail, pattern.removeprefix("./")) for tail in tails for pattern in patterns):
            return True
    return False
