"""The program `practicum` as one folder that a sandbox can see read-only.

    <tools>/practicum-<digest>/bin/practicum       what stands on the sandbox's PATH
    <tools>/practicum-<digest>/python/             an interpreter with its library, our packages
                                                   and the dependencies of the command line

It brings its own interpreter, since compiled dependencies fit one version of Python and an image
may hold another, or none. It holds what commands and MCP need: no torch, no Harbor, no database.
A folder is made once for each state of the code.
"""

import compileall
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

import runtime
from runtime.native.engines import locked, tools_folder
from specs.errors import ErrorCode, ErrorObject, Unavailable

PACKAGES = ("specs", "runtime", "proxy", "journals", "tools", "mcp_server")
"""Our own packages, as far as this version has them."""
SERVERS_ONLY = frozenset({"alembic", "fastapi", "sqlalchemy", "sse-starlette", "uvicorn"})
"""Requirements of the base install that a client does without, unless another one needs them."""
KEPT_SEC = 14 * 86400.0
"""How long a folder that nobody asked for stays."""

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = frozenset(
    {"ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests", "tkinter", "turtledemo"}
)
_LAUNCHER = f"""\
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
if [ -e "$root/python/lib/libpython.so" ]; then
    export LD_LIBRARY_PATH="$root/python/lib"
fi
exec "$root/python/bin/{_PYTHON}" -I -m tools "$@"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A finished folder, and the digest of what it was made from."""

    folder: Path
    digest: str


def installed_program() -> Program:
    """The folder of this program, made first if it is not there. Blocks.

    Processes that ask at the same time make it once.

    Raises:
        Unavailable: `source_unusable`: this program is no installed distribution.
    """
    digest = _digest()
    tools = tools_folder()
    folder = tools / f"practicum-{digest[:16]}"
    tools.mkdir(parents=True, exist_ok=True)
    with locked(tools / ".practicum.lock"):
        if not (folder / "bin/practicum").exists():
            with tempfile.TemporaryDirectory(dir=tools, prefix=".practicum-") as name:
                made = Path(name, "made")
                _make(made)
                made.rename(folder)
            _prune(tools, folder)
        os.utime(folder)
    return Program(folder, f"sha256:{digest}")


def _prune(tools: Path, current: Path) -> None:
    for other in tools.glob("practicum-*"):
        if other != current and other.stat().st_mtime < time.time() - KEPT_SEC:
            shutil.rmtree(other)


def _make(target: Path) -> None:
    python = target / "python"
    library = python / "lib" / _PYTHON
    site = library / "site-packages"
    (target / "bin").mkdir(parents=True, mode=0o755)
    (python / "bin").mkdir(parents=True)
    base = Path(sys.base_prefix)
    shutil.copy2((base / "bin" / _PYTHON).resolve(), python / "bin" / _PYTHON)
    shutil.copytree(base / "lib" / _PYTHON, library, ignore=_standard)
    for shared in sorted((base / "lib").glob("libpython3.*.so.*")):
        shutil.copy2(shared, python / "lib" / shared.name)
        (python / "lib" / "libpython.so").symlink_to(shared.name)
    for source, name in _files():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
    compileall.compile_dir(site, quiet=2)
    launcher = target / "bin" / "practicum"
    launcher.write_text(_LAUNCHER)
    for path in (launcher, python / "bin" / _PYTHON):
        path.chmod(0o755)


def _standard(folder: str, names: list[str]) -> set[str]:
    """What the copy of the standard library leaves out."""
    inner = os.path.basename(folder) == "__pycache__"  # noqa: PTH119 - copytree gives texts
    return {
        name
        for name in names
        if name in _LEFT_OUT
        or name.startswith("config-")
        or (inner and not name.endswith(f".{sys.implementation.cache_tag}.pyc"))
    }


def _files() -> Iterator[tuple[Path, PurePosixPath]]:
    """Every file beside the standard library, and its place among the packages."""
    for name, path in _own_files():
        yield path, PurePosixPath(name)
    for dist in _dependencies():
        for file in dist.files or ():
            path = Path(str(dist.locate_file(file)))
            if ".." in file.parts or file.suffix == ".pyc" or not path.is_file():
                continue
            yield path, PurePosixPath(*file.parts)
            if file.suffix == ".py":
                compiled = f"__pycache__/{file.stem}.{sys.implementation.cache_tag}.pyc"
                if (path.parent / compiled).is_file():
                    yield path.parent / compiled, PurePosixPath(*file.parts[:-1], compiled)


def _own_files() -> list[tuple[str, Path]]:
    root = Path(os.fspath(runtime.__path__[0])).resolve().parent
    return [
        (path.relative_to(root).as_posix(), path)
        for package in PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


@cache
def _digest() -> str:
    """Of all that the folder is made from; once per process, whose code does not change."""
    parts = [sys.version, sys.base_prefix, _LAUNCHER]
    parts += sorted(f"{dist.name}=={dist.version}" for dist in _dependencies())
    hasher = hashlib.sha256("\0".join(parts).encode())
    for name, path in _own_files():
        hasher.update(f"\0{name}\0".encode())
        hasher.update(hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()


def _dependencies() -> list[metadata.Distribution]:
    """The distributions that a client needs, by name."""
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    try:
        waiting = [Requirement(text) for text in metadata.requires("practicum") or ()]
    except metadata.PackageNotFoundError:
        raise Unavailable(
            "This program was not installed, so nobody can tell what it consists of.",
            code=ErrorCode.SOURCE_UNUSABLE,
            object=ErrorObject(type="tool", id="practicum"),
            next="Install it (`pip install -e .` in a checkout), and start the stack again.",
        ) from None
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [
        one
        for one in waiting
        if one.name not in SERVERS_ONLY
        and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]
    while waiting:
        wanted = waiting.pop()
        extras = frozenset(wanted.extras)
        if (wanted.name, extras) in seen:
            continue
        seen.add((wanted.name, extras))
        dist = metadata.distribution(wanted.name)
        found[dist.name.lower()] = dist
        for text in dist.requires or ():
            one = Requirement(text)
            chosen = (one.marker is None) or any(
                one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if chosen:
                waiting.append(one)
    return [found[name] for name in sorted(found)]
