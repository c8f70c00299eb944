"""The root file system of every sandbox, derived from the host by an allow-list.

What a sandbox sees of the host: /usr without /usr/local, the folders beside it (/bin, /lib, ...),
the package database, a few named files of /etc, and a Python. Nothing else: a home, a key, the
project or other state is absent because nobody listed it, not because somebody masked it. What
is personal *and* lies under a listed folder (a checkout in /usr/src) is masked as well.

A base has a digest of what matters inside: system release, packages, /etc, Python, tool folders
and the version of this code. It is derived once, kept under `<state>/base/`, and looked up by
the status of the files that it came from, which takes well under a millisecond.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from runtime.execution.sandbox.base_build import VERSION, build
from runtime.execution.sandbox.layout import (
    PACKAGES,
    SYSTEM_FOLDERS,
    Base,
    Root,
    etc_sources,
    personal,
)
from runtime.execution.sandbox.options import ToolFolder
from runtime.execution.sandbox.sandboxd.config import ReadOnlyTree

_known: dict[str, Base] = {}


def derive(
    state: Path,
    python: Literal["auto", "system", "bundled"] = "auto",
    tools: Sequence[ToolFolder] = (),
) -> Base:
    """The base of this host, derived or found under `<state>/base/`. Blocks the first time.

    Raises:
        InvalidInput: `sandbox_unsupported`, when this host has no base to give.
    """
    key = _fingerprint(state, python, tools)
    directory = state / "base" / key
    if not (directory / "base.json").exists():
        _known.pop(key, None)
        build(state, directory, python, tools)
    if key not in _known:
        _known[key] = _load(directory)
    return _known[key]


def base_digest(state: Path) -> str:
    """Digest of the base that sandboxes with default options get on this host."""
    return derive(state).digest


def _load(directory: Path) -> Base:
    values = json.loads((directory / "base.json").read_bytes())
    return Base(
        directory=directory,
        digest=values["digest"],
        facts=values["facts"],
        roots=[Root(**row) for row in values["roots"]],
        trees=[ReadOnlyTree(**row) for row in values["trees"]],
    )


def _fingerprint(state: Path, python: str, tools: Sequence[ToolFolder]) -> str:
    """Changes whenever a base would come out differently; cheap to compute."""
    parts: list[str] = [VERSION, python, str(os.geteuid()), sys.base_prefix, sys.version]
    parts += [str(path) for path in personal(state)]
    parts += [tool.model_dump_json() for tool in tools]
    sources = ["/etc", "/etc/passwd", "/etc/group", f"{PACKAGES}/status", "/usr/bin/python3"]
    sources += [f"/{name}" for name in SYSTEM_FOLDERS]
    for source in (*sources, *(str(path) for path in etc_sources())):
        try:
            status = Path(source).stat()
        except FileNotFoundError:
            continue
        parts.append(f"{source}:{status.st_mtime_ns}:{status.st_size}:{status.st_ino}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
