"""Task packages: a task directory as one deterministic uncompressed tar.

Equal trees give equal bytes: entries sorted by path, times zero, owners zero, modes 644 or
755. Only regular files and directories are taken; links and special files are refused, and
so are names that could leave the directory. Unpacking applies the same rules to untrusted
bytes and writes nothing unless the whole package is acceptable.
"""

import io
import os
import stat
import tarfile
from pathlib import Path, PurePosixPath

from specs.errors import ErrorCode, ErrorObject, InvalidInput

MAX_PACKAGE_BYTES = 256 << 20
MAX_ENTRIES = 20_000
IGNORED = frozenset({".git", "__pycache__", ".DS_Store", ".pytest_cache"})


def pack(directory: Path) -> bytes:
    """The package of a task directory.

    Raises:
        InvalidInput: `invalid_package`, naming the offending path.
    """
    if not directory.is_dir():
        raise _refuse(directory.name, "it is not a directory")
    buffer = io.BytesIO()
    total = 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(directory):
            relative = path.relative_to(directory).as_posix()
            entry, data = _entry(path, relative)
            total += len(data)
            if total > MAX_PACKAGE_BYTES:
                raise _refuse(relative, f"the package exceeds {MAX_PACKAGE_BYTES} bytes")
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, target: Path) -> None:
    """Write a package into `target`, which must not exist or be empty.

    Raises:
        InvalidInput: `invalid_package`; nothing has been written.
    """
    members, contents = _read(data)
    target.mkdir(parents=True, exist_ok=True)
    for member in members:
        path = target / member.name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[member.name])
            path.chmod(0o755 if member.mode & 0o111 else 0o644)


def files(data: bytes) -> dict[str, bytes]:
    """The files of a package by path, without writing them anywhere.

    Raises:
        InvalidInput: `invalid_package`.
    """
    return _read(data)[1]


def _read(data: bytes) -> tuple[list[tarfile.TarInfo], dict[str, bytes]]:
    """The entries of a package, all of them acceptable, and what its files hold."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            _check_members(members)
            return members, {m.name: _content(archive, m) for m in members if m.isreg()}
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _refuse("package", f"it is not a readable tar: {error}") from None


def _walk(directory: Path) -> list[Path]:
    found: list[Path] = []
    for current, folders, files in os.walk(directory, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        here = Path(current)
        found += [here / name for name in folders]
        found += [here / name for name in files if name not in IGNORED]
        if len(found) > MAX_ENTRIES:
            raise _refuse(directory.name, f"more than {MAX_ENTRIES} entries")
    return sorted(found, key=lambda path: path.relative_to(directory).as_posix())


def _entry(path: Path, relative: str) -> tuple[tarfile.TarInfo, bytes]:
    mode = path.lstat().st_mode
    entry = tarfile.TarInfo(relative)
    if stat.S_ISDIR(mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        return entry, b""
    if not stat.S_ISREG(mode):
        raise _refuse(relative, "only regular files and directories are allowed")
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError:
        raise _refuse(repr(relative), "the name is not UTF-8") from None
    data = path.read_bytes()
    entry.size = len(data)
    entry.mode = 0o755 if mode & 0o111 else 0o644
    return entry, data


def _check_members(members: list[tarfile.TarInfo]) -> None:
    if len(members) > MAX_ENTRIES:
        raise _refuse("package", f"more than {MAX_ENTRIES} entries")
    seen: set[str] = set()
    files: set[str] = set()
    total = 0
    for member in members:
        path = PurePosixPath(member.name)
        parts = path.parts
        if path.is_absolute() or ".." in parts or not parts or "\x00" in member.name:
            raise _refuse(member.name, "the path leaves the package")
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise _refuse(member.name, "only regular files and directories are allowed")
        if str(path) in seen:
            raise _refuse(member.name, "the path appears twice")
        if any(str(parent) in files for parent in path.parents):
            raise _refuse(member.name, "a file is used as a directory")
        seen.add(str(path))
        if member.isreg():
            files.add(str(path))
        total += member.size
        if total > MAX_PACKAGE_BYTES:
            raise _refuse(member.name, f"the package exceeds {MAX_PACKAGE_BYTES} bytes")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    data = stream.read() if stream else b""
    if len(data) != member.size:
        raise _refuse(member.name, "the package is truncated")
    return data


def _refuse(path: str, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The task package cannot be used: {path}: {cause}.",
        code=ErrorCode.INVALID_PACKAGE,
        object=ErrorObject(type="task_package", id=path),
        next="Remove or replace that entry and publish again.",
    )
