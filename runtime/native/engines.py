"""Pinned harness programs in a tool folder that all trials share.

    <tools>/claude-code-2.1.197/claude          the program
    <tools>/claude-code-2.1.197/manifest.json   its digest, and the integrity of its packages

A program is installed once, by name and exact version, through the npm client, and appears by
one rename under a lock: whoever sees the folder sees a whole one. npm checks each package
against the integrity that its registry states; of the versions pinned here that statement is
checked too. The manifest remembers size and time of the checked file, so that a later use
notices a changed one without hashing a quarter of a gigabyte. Nothing is downloaded for a trial.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from specs.base import Contract
from specs.claude_code import PINNED_VERSION
from specs.errors import ErrorCode, ErrorObject, Unavailable

PACKAGE = "@anthropic-ai/claude-code"
INSTALL_TIMEOUT_SEC = 900.0
PINS: Mapping[str, Mapping[str, str]] = {
    PINNED_VERSION: {
        f"{PACKAGE}-darwin-arm64": (
            "sha512-1FOVhJzkKGWgOEEsvaK3ylCEmjKeJiXwfKl7RtNEbiDj7OxhRQ1"
            "G1CLN0HGDTTq1QwY+Dm2x1Yscdv5NfobAxQ=="
        ),
        f"{PACKAGE}-darwin-x64": (
            "sha512-DOPeGTQqJWVENJsxwMxJtLOx+7OBINEDg9trQldlJR1nBssaYzN"
            "j1WWxp37JYSBRjeYLhqLipvDqEA0LMglL7A=="
        ),
        f"{PACKAGE}-linux-arm64": (
            "sha512-sx6SoGj3MNR5CV+YDkNtbLHXa1tn3G8qcYFgm1gnvOi9ODQUKbh"
            "iPfankJfkTMDVekOvnKJhm6i9hGFIPzp7cQ=="
        ),
        f"{PACKAGE}-linux-arm64-musl": (
            "sha512-r3taVK9rDaMahHkrCGV8wF1Sjphs7fqXy2ZEznyDGxUqeW6Hxgk"
            "bG7dPplXnwwGiMTdYLrtQTQMN21ZTxcVHBA=="
        ),
        f"{PACKAGE}-linux-x64": (
            "sha512-rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklyS"
            "jyPxqh62QadznzoftEO23uYQ1tFePcQ//bg=="
        ),
        f"{PACKAGE}-linux-x64-musl": (
            "sha512-/Ij3+inZf96Lb1BLnO0rWArRi1HqIMh6HeGrQoykrp7a8Yj0SA1"
            "EQIO42kpNeVxM9z3o3xUaiIf0FRMzLIp6oQ=="
        ),
    }
}
"""Integrity of the packages that hold the program, by version."""

type Progress = Callable[[str], None]


class Manifest(Contract):
    """What was checked when a program was installed."""

    name: str
    version: str
    package: str
    integrity: str
    digest: str
    """Of the program's bytes."""
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Installed:
    """A program that is there and whole."""

    folder: Path
    manifest: Manifest

    @property
    def program(self) -> Path:
        return self.folder / "claude"


def tools_folder() -> Path:
    """The tool folder: `PRACTICUM_TOOLS`, else `practicum/tools` in the user's cache folder."""
    explicit = os.environ.get("PRACTICUM_TOOLS")
    if explicit:
        return Path(explicit).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "practicum" / "tools"


def find(version: str) -> Installed | None:
    """The program of a version, if it is installed and as it was when it was checked."""
    folder = tools_folder() / f"claude-code-{version}"
    try:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        status = (folder / "claude").stat()
    except (OSError, ValidationError):
        return None
    if (manifest.size, manifest.mtime_ns) != (status.st_size, status.st_mtime_ns):
        return None
    return Installed(folder, manifest)


def install(version: str = PINNED_VERSION, progress: Progress | None = None) -> Installed:
    """The program of a version, installed first if it is not there. Blocks.

    Processes that ask at the same time install it once.

    Raises:
        Unavailable: `source_unusable`: npm is missing or fails, or there is no such package for
            this machine; `digest_mismatch`: it is not the pinned one.
    """
    found = find(version)
    if found is not None:
        return found
    tools = tools_folder()
    tools.mkdir(parents=True, exist_ok=True)
    with locked(tools / f".claude-code-{version}.lock"):
        found = find(version)
        if found is not None:
            return found
        if progress is not None:
            progress(f"installing {PACKAGE}@{version} into {tools}")
        with tempfile.TemporaryDirectory(dir=tools, prefix=f".claude-code-{version}-") as name:
            made = _make(version, Path(name))
            folder = tools / f"claude-code-{version}"
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
    found = find(version)
    assert found is not None, "the folder was made under the lock"
    return found


def _make(version: str, temporary: Path) -> Path:
    """A finished folder below `temporary`."""
    work = temporary / "npm"
    work.mkdir()
    _npm(version, work)
    package, integrity = _native_package(version, work)
    source = work / "node_modules" / package
    made = temporary / "made"
    made.mkdir(mode=0o755)
    program = made / "claude"
    (source / "claude").rename(program)
    program.chmod(0o755)
    for name in ("LICENSE.md", "README.md"):
        if (source / name).is_file():
            shutil.copy(source / name, made / name)
    status = program.stat()
    manifest = Manifest(
        name="claude-code",
        version=version,
        package=package,
        integrity=integrity,
        digest=_digest(program),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )
    (made / "manifest.json").write_text(manifest.model_dump_json(indent=2) + "\n")
    return made


def _npm(version: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise _unusable(
            version,
            "npm is not on PATH",
            "Install Node.js (which brings npm), or copy a tool folder from another machine"
            " and name it in PRACTICUM_TOOLS.",
        )
    command = [
        *(npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"),
        *("--include=optional", "--save-exact", f"{PACKAGE}@{version}"),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_SEC,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unusable(version, f"npm did not end within {INSTALL_TIMEOUT_SEC:.0f} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _unusable(version, "npm failed: " + " | ".join(lines[:6])[:600])


def _native_package(version: str, folder: Path) -> tuple[str, str]:
    """Name and integrity of the installed package that holds this machine's program."""
    lock = cast(
        dict[str, Any], json.loads((folder / "node_modules" / ".package-lock.json").read_bytes())
    )
    for path, entry in cast(dict[str, dict[str, Any]], lock["packages"]).items():
        name = path.removeprefix("node_modules/")
        if not name.startswith(f"{PACKAGE}-") or not (folder / path / "claude").is_file():
            continue
        integrity = str(entry.get("integrity", ""))
        pinned = PINS.get(version, {}).get(name)
        if entry.get("version") != version or (pinned is not None and integrity != pinned):
            raise _unusable(
                version,
                f"{name} {entry.get('version')} has integrity {integrity or 'unknown'},"
                f" not {pinned or 'the asked version'}",
                "Check which registry npm uses; the package is not the one that is pinned.",
                ErrorCode.DIGEST_MISMATCH,
            )
        return name, integrity
    raise _unusable(version, "npm installed no program for this operating system and processor")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _unusable(
    version: str,
    cause: str,
    step: str = "Run: practicum agent install",
    code: ErrorCode = ErrorCode.SOURCE_UNUSABLE,
) -> Unavailable:
    return Unavailable(
        f"Claude Code {version} cannot be installed: {cause}.",
        code=code,
        object=ErrorObject(type="tool", id=f"claude-code@{version}"),
        next=step,
    )


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock across processes; it falls with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
