"""Image layers: a Dockerfile replayed once in a sandbox, and its changes kept by content.

The key of a layer is the digest of what it is made from: base, instructions, files of the
context. A build happens in a run directory of its own and is moved into place when it is
complete, so that a crash leaves nothing half made. One process builds; others wait for it.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
from anyio import to_thread

from runtime.execution.sandbox import dockerfile
from runtime.execution.sandbox.cache import CACHES, MOST_BYTES, SIZE, Holds, prune, tree_bytes
from runtime.execution.sandbox.definition import Definition
from runtime.execution.sandbox.dockerfile import Instruction, words
from runtime.execution.sandbox.errors import CommandTimedOut, bad_dockerfile
from runtime.execution.sandbox.layout import Layer
from runtime.execution.sandbox.sandbox import Completed, Sandbox, Settings
from runtime.execution.sandbox.state import write_json

_TAIL = 2000
_CHANGING = frozenset({"RUN", "COPY", "ADD", "WORKDIR"})


@dataclass(frozen=True, slots=True)
class Image:
    """What a task's environment starts from."""

    digest: str
    """Digest of the definition: instructions and context, or the image's name."""
    layers: tuple[Layer, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: str | None = None


async def prepare(
    definition: Definition,
    settings: Settings,
    holds: Holds,
    *,
    force: bool,
    run_timeout: float,
    most_bytes: int = MOST_BYTES,
) -> Image:
    """The image of a definition, built unless its layer is there. `settings` is for the build.

    The layer is held with `holds`; what a build leaves beyond `most_bytes` is pruned.
    Cancelling stops the build and leaves nothing.
    """
    content = await to_thread.run_sync(definition.digest)
    if not any(i.name in _CHANGING for i in definition.instructions):
        return await _Build(definition, settings, run_timeout).configure(Image(content))
    key = hashlib.sha256(f"{settings.base.digest} {content}".encode()).hexdigest()[:24]
    layers = settings.state / "layers"
    place = layers / key
    built = False
    while (force and not built) or not holds.take(place):
        await to_thread.run_sync(lambda: layers.mkdir(parents=True, exist_ok=True))
        async with _locked(layers / f"{key}.lock"):
            if force or not place.exists():
                await _Build(definition, settings, run_timeout).build(Image(content), place)
        built = True
    if built:
        caches = [settings.state / name for name in CACHES]
        await to_thread.run_sync(prune, caches, most_bytes)
    return _load(place)


def _load(place: Path) -> Image:
    values: dict[str, Any] = json.loads((place / "image.json").read_bytes())
    values["layers"] = tuple(Layer(**row) for row in values["layers"])
    return Image(**values)


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Hold a lock file; waiting for it can be cancelled."""
    while True:
        with path.open("w") as file:
            if _lock(file.fileno(), path):
                yield
                return
        await anyio.sleep(0.05)


def _lock(descriptor: int, path: Path) -> bool:
    """Lock an open file, if nobody else has and it is still the one at `path`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


class _Build:
    """Replays instructions, in a sandbox if they change files."""

    def __init__(self, definition: Definition, settings: Settings, run_timeout: float) -> None:
        self._definition = definition
        self._settings = replace(settings, volatile=False, storage_mb=None, forwards=())
        self._run_timeout = run_timeout
        self._arguments: dict[str, str] = {}
        self._shell = ["/bin/sh", "-c"]

    async def configure(self, image: Image) -> Image:
        """Apply instructions that only set what commands start with."""
        for instruction in self._definition.instructions:
            image = await self._apply(instruction, image, None)
        return image

    async def build(self, image: Image, place: Path) -> None:
        """Replay everything and move the result to `place`."""
        sandbox = await Sandbox.start(self._settings)
        try:
            for instruction in self._definition.instructions:
                image = await self._apply(instruction, image, sandbox)
            made = sandbox.writable_layer()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await sandbox.stop()
            raise
        with anyio.CancelScope(shield=True):
            await sandbox.stop(keep=True)
            try:
                await to_thread.run_sync(_publish, image, made, sandbox.directory.path, place)
            finally:
                await to_thread.run_sync(sandbox.directory.remove)

    async def _apply(
        self, instruction: Instruction, image: Image, sandbox: Sandbox | None
    ) -> Image:
        scope = {**self._arguments, **image.env}
        value = instruction.value
        match instruction.name:
            case "ARG":
                for part in words(value, scope):
                    name, _, default = part.partition("=")
                    self._arguments.setdefault(name, default)
            case "ENV":
                return replace(image, env=image.env | dockerfile.assignments(instruction, scope))
            case "USER":
                return replace(image, user=" ".join(words(value, scope)))
            case "SHELL":
                self._shell = self._exec_form(instruction)
            case "WORKDIR":
                folder = str(PurePosixPath(image.workdir, " ".join(words(value, scope))))
                assert sandbox is not None
                await self._run(sandbox, ["mkdir", "-p", folder], instruction)
                return replace(image, workdir=folder)
            case "RUN":
                assert sandbox is not None
                argv = instruction.json_form() or [*self._shell, value]
                await self._run(sandbox, argv, instruction, image)
            case "COPY" | "ADD":
                assert sandbox is not None
                await self._copy(instruction, image, sandbox, scope)
            case _:
                pass
        return image

    def _exec_form(self, instruction: Instruction) -> list[str]:
        argv = instruction.json_form()
        if not argv:
            raise bad_dockerfile(
                instruction.line,
                "SHELL needs a JSON list.",
                next='Write SHELL ["/bin/bash", "-c"].',
            )
        return argv

    async def _run(
        self,
        sandbox: Sandbox,
        argv: list[str],
        instruction: Instruction,
        image: Image | None = None,
    ) -> Completed:
        shown = f"{instruction.name} {instruction.value}"[:200]
        try:
            done = await sandbox.exec(
                argv,
                cwd=image.workdir if image else "/",
                env={**self._arguments, **image.env} if image else None,
                user=image.user if image else None,
                timeout=self._run_timeout,
            )
        except CommandTimedOut as error:
            raise bad_dockerfile(
                instruction.line,
                f"{shown} took longer than {self._run_timeout:g} s.",
                next="Raise build_timeout_sec of the task or build_timeout_s of the sandbox.",
            ) from error
        if done.code != 0:
            text = (done.stdout + done.stderr).decode(errors="replace")[-_TAIL:].strip()
            network = "" if self._settings.host_network else " Builds have no network."
            raise bad_dockerfile(
                instruction.line,
                f"{shown} ended with status {done.code}: {text}",
                next=f"Correct the command.{network} COPY what it needs, or set allow_public.",
            )
        return done

    async def _copy(
        self, instruction: Instruction, image: Image, sandbox: Sandbox, scope: Mapping[str, str]
    ) -> None:
        listed = instruction.json_form()
        names = listed if listed is not None else words(instruction.value, scope)
        if len(names) < 2:
            raise bad_dockerfile(
                instruction.line, "a source and a destination are needed.", next="Name both."
            )
        *patterns, destination = names
        sources = [s for pattern in patterns for s in self._sources(instruction, pattern)]
        target = str(PurePosixPath(image.workdir, destination))
        into = destination.endswith(("/", "/.")) or destination == "." or len(sources) > 1
        if not into:
            into = (await sandbox.exec(["test", "-d", target])).code == 0
        made: list[str] = []
        for source in sources:
            if source.is_dir():
                await sandbox.put_tree(source, target)
                made += [f"{target}/{child.name}" for child in sorted(source.iterdir())]
            else:
                path = f"{target}/{source.name}" if into else target
                await sandbox.put_file(source, path)
                made.append(path)
        for program, flag in (("chown", "chown"), ("chmod", "chmod")):
            if made and (setting := instruction.flags.get(flag)):
                (setting,) = words(setting, scope) or [""]
                await self._run(sandbox, [program, "-R", setting, "--", *made], instruction)

    def _sources(self, instruction: Instruction, pattern: str) -> list[Path]:
        """Files and folders of the context that a source names; never outside it."""
        root = self._definition.directory.resolve()
        relative = os.path.normpath(pattern.lstrip("/") or ".")
        if any(char in pattern for char in "*?["):
            found = sorted(root.glob(relative))
        else:
            found = [root / relative]
        if not found or not all(path.exists() for path in found):
            raise bad_dockerfile(
                instruction.line, f"{pattern} is not in the context.", next="Add it, or correct it."
            )
        if not all(path.resolve().is_relative_to(root) for path in found):
            raise bad_dockerfile(
                instruction.line,
                f"{pattern} leads out of the context.",
                next="Copy the file into the task's environment folder.",
            )
        return [path.resolve() for path in found]


def _publish(image: Image, made: Layer, run: Path, place: Path) -> None:
    """Turn a stopped sandbox's upper directories into the layer at `place`."""
    draft = run / "layer"
    draft.mkdir()
    paths: dict[str, str] = {}
    for target, upper in made.paths.items():
        if any(Path(upper).iterdir()):
            slug = Path(upper).parent.name
            Path(upper).rename(draft / slug)
            paths[target] = str(place / slug)
    done = replace(image, layers=(Layer(paths),))
    write_json(draft / "image.json", asdict(done))
    write_json(draft / SIZE, {"bytes": tree_bytes([draft])})
    os.sync()
    if place.exists():
        shutil.move(place, run / "replaced")
    draft.rename(place)
