"""What a task's `environment/` folder asks for, read and checked without running anything."""

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.execution.sandbox import dockerfile
from runtime.execution.sandbox.dockerfile import Instruction, words
from runtime.execution.sandbox.errors import bad_dockerfile, unsupported
from specs.canonical import digest

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


@dataclass(frozen=True, slots=True)
class Definition:
    """How a task defines its environment."""

    directory: Path
    image_name: str | None
    accepted: Sequence[str]
    """Patterns of image names for which the base may stand in."""
    instructions: tuple[Instruction, ...] = ()

    @classmethod
    def read(cls, directory: Path, image_name: str | None, accepted: Sequence[str]) -> "Definition":
        """Read and check a task's `environment/` folder; cheap, runs nothing.

        A Dockerfile wins over `docker_image`, because there is no registry to pull from.

        Raises:
            InvalidInput: `dockerfile_unsupported` or `sandbox_unsupported`.
        """
        for name in ("docker-compose.yaml", "docker-compose.yml", "compose.yaml"):
            if (directory / name).exists():
                raise unsupported(
                    f"The task's environment is a {name}: several containers.",
                    pointer=f"/environment/{name}",
                    next="Run the task with Harbor's docker environment.",
                )
        file = directory / "Dockerfile"
        if not file.exists():
            definition = cls(directory, image_name, accepted)
            if image_name is not None:
                definition._check_image(image_name, None)
            return definition
        if file.is_symlink() or not file.is_file():
            raise bad_dockerfile(1, "not a regular file.", next="Make the Dockerfile a file.")
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise bad_dockerfile(1, f"not UTF-8: {error}.", next="Save it as UTF-8.") from None
        instructions = dockerfile.parse(text)
        definition = cls(directory, image_name, accepted, tuple(instructions))
        definition._check_image(*dockerfile.image_of(instructions))
        definition._check_sources()
        return definition

    def _check_image(self, name: str, line: int | None) -> None:
        plain = re.sub(r"^(docker\.io/)?(library/)?", "", name)
        if any(re.fullmatch(pattern, plain) for pattern in self.accepted):
            return
        step = (
            "Start from debian, ubuntu or python, add a pattern to the sandbox's images option if "
            "this host can stand in for it, or run the task with Harbor's docker environment."
        )
        detail = f"the image {name} cannot be pulled, and this host does not stand in for it."
        if line is None:
            raise unsupported(
                f"docker_image: {detail}", pointer="/environment/docker_image", next=step
            )
        raise bad_dockerfile(line, detail, next=step)

    def _check_sources(self) -> None:
        for instruction in self.instructions:
            if instruction.name not in ("COPY", "ADD"):
                continue
            if (self.directory / ".dockerignore").exists():
                raise bad_dockerfile(
                    instruction.line,
                    f"{instruction.name} with a .dockerignore.",
                    next="Remove the .dockerignore and the files that it names.",
                )
            for source in (instruction.json_form() or words(instruction.value, {}))[:-1]:
                if instruction.name == "ADD" and re.match(r"\w+://|git@", source):
                    raise bad_dockerfile(
                        instruction.line,
                        f"ADD fetches {source}.",
                        next="Put the file in the task's environment folder and COPY it.",
                    )
                if instruction.name == "ADD" and source.endswith(_ARCHIVES):
                    raise bad_dockerfile(
                        instruction.line,
                        f"ADD unpacks {source}.",
                        next="COPY it and unpack it with RUN tar.",
                    )

    def digest(self) -> str:
        """Digest of instructions and context; of the image's name where there is neither."""
        rows = [
            [i.name, i.value, *sorted(f"{k}={v}" for k, v in i.flags.items())]
            for i in self.instructions
        ]
        if not rows:
            return digest({"schema": "practicum.sandbox-image/v1", "image": self.image_name})
        context = _context_digest(self.directory)
        return digest(
            {"schema": "practicum.sandbox-image/v1", "instructions": rows, "context": context}  # pyright: ignore[reportArgumentType]
        )


def _context_digest(directory: Path) -> str:
    hasher = hashlib.sha256()
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted((*folders, *names)):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = str(path.readlink()).encode(errors="surrogateescape")
            elif stat.S_ISREG(mode):
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            else:
                content = b""
            row = f"{path.relative_to(directory)}\0{mode & 0o170111:o}\0"
            hasher.update(row.encode(errors="surrogateescape"))
            hasher.update(hashlib.sha256(content).digest())
    return "sha256:" + hasher.hexdigest()
