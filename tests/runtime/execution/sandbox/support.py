"""Helpers of the sandbox tests."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.execution.sandbox.sandbox import Completed, Sandbox, Settings
from specs.errors import PracticumError


async def start(settings: Settings, **changes: Any) -> Sandbox:
    """Start a sandbox; skip where the kernel gives this user no namespaces."""
    try:
        return await Sandbox.start(replace(settings, **changes))
    except PracticumError as error:
        if os.geteuid() != 0 and "not permitted" in str(error):
            pytest.skip(f"this kernel lets this user make no sandbox: {error}")
        raise


async def sh(sandbox: Sandbox, command: str, **options: Any) -> Completed:
    """Run a bash command."""
    return await sandbox.exec(["bash", "-c", command], **options)


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def exists(path: str | Path) -> bool:
    """Whether the host has `path`."""
    return Path(path).exists()


def mode_of(path: str) -> int:
    """Type and permissions of a file of the host."""
    return Path(path).stat().st_mode


def text(done: Completed) -> str:
    """Both streams of a command."""
    return (done.stdout + done.stderr).decode(errors="replace")


def write_task(folder: Path, *, dockerfile: str | None = None, environment: str = "") -> Path:
    """A small Harbor task: write `hi` to /app/out/answer."""
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(
        'schema_version = "1.4"\nartifacts = ["/app/out"]\n'
        '[task]\nname = "acme/hello"\n'
        f"[environment]\n{environment}\n[verifier]\ntimeout_sec = 60\n"
    )
    (folder / "instruction.md").write_text("Write hi to /app/out/answer.\n")
    (folder / "environment/Dockerfile").write_text(
        dockerfile or "FROM debian:bookworm\nWORKDIR /app\nRUN mkdir out\n"
    )
    (folder / "solution/solve.sh").write_text(
        "#!/bin/bash\necho hi > /app/out/answer\n"
        "ln -s /etc/shadow /app/out/absolute\nln -s ../../../../etc/shadow /app/out/relative\n"
        "mkfifo /app/out/pipe\ntruncate -s 3G /app/out/huge\n"
    )
    (folder / "tests/test.sh").write_text(
        '#!/bin/bash\nif [ "$(cat /app/out/answer)" = hi ]; then r=1; else r=0; fi\n'
        "echo $r > /logs/verifier/reward.txt\n"
    )
    return folder
