"""Derives one base from the host: copies, masks and mount descriptions; see `base`."""

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from runtime.execution.sandbox.errors import unsupported
from runtime.execution.sandbox.layout import (
    PACKAGES,
    SYSTEM_FOLDERS,
    Root,
    etc_sources,
    personal,
)
from runtime.execution.sandbox.options import ToolFolder
from runtime.execution.sandbox.sandboxd.config import ReadOnlyTree
from runtime.execution.sandbox.state import Intent, Process, RunDirectory, new_name, write_json
from specs.canonical import digest

VERSION = "1"
"""Raise it when what a sandbox sees or can do changes by this code."""
PYTHON_TARGET = "/opt/practicum/python"
_MINIMUM_PYTHON = (3, 11)
_MAX_ETC_FILE = 8 << 20
_CREDENTIAL_IN_URL = re.compile(rb"://[^/\s]*@")
_FOLDERS = {
    "": 0o755,
    **dict.fromkeys(("boot", "dev", "etc", "home", "media", "mnt", "opt", "proc"), 0o755),
    **dict.fromkeys(("run", "run/lock", "srv", "sys", "var"), 0o755),
    "root": 0o700,
    "tmp": 0o1777,
    **dict.fromkeys(("var/cache", "var/cache/apt", "var/cache/apt/archives"), 0o755),
    "var/cache/apt/archives/partial": 0o700,
    **dict.fromkeys(("var/lib", "var/lib/apt", "var/lib/apt/lists", "var/log"), 0o755),
    "var/lib/apt/lists/partial": 0o700,
    **dict.fromkeys(("var/log/apt", "var/mail", "var/opt", "var/spool"), 0o755),
    "var/tmp": 0o1777,
}
_LOCAL_FOLDERS = ("bin", "etc", "games", "include", "lib", "sbin", "share", "share/man", "src")


@dataclass(frozen=True, slots=True)
class _Python:
    kind: Literal["system", "bundled"]
    version: str


def build(
    state: Path,
    directory: Path,
    python: Literal["auto", "system", "bundled"],
    tools: Sequence[ToolFolder],
) -> None:
    """Make the base in a run directory of its own, then move it into place."""
    if any(state.resolve().is_relative_to(f"/{name}") for name in SYSTEM_FOLDERS):
        raise unsupported(
            f"The sandbox's state folder {state} lies in a system folder that sandboxes see.",
            next="Choose a state_dir outside /usr, for example in your home.",
        )
    intent = Intent(owner=Process.of(os.getpid()), trial=None)
    run = RunDirectory.create(state, intent, f"base-{new_name()}")
    try:
        draft = run.path / "base"
        draft.mkdir(mode=0o755)
        builder = _Builder(draft, directory, state, _choose_python(python), tools)
        builder.build()
        directory.parent.mkdir(exist_ok=True)
        try:
            draft.rename(directory)
        except OSError:
            if not (directory / "base.json").exists():
                raise
    finally:
        run.remove()


def _choose_python(wanted: Literal["auto", "system", "bundled"]) -> _Python:
    if wanted != "bundled":
        version = _system_python_version()
        if version is not None:
            return _Python("system", version)
        if wanted == "system":
            raise unsupported(
                "This host has no /usr/bin/python3 of version 3.11 or newer.",
                next='Install it, or use python = "bundled".',
            )
    return _Python("bundled", platform.python_version())


def _system_python_version() -> str | None:
    program = Path("/usr/bin/python3")
    if not program.exists() or not program.resolve().is_relative_to("/usr/bin"):
        return None
    code = "import platform; print(platform.python_version())"
    run = subprocess.run(
        [program, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, env={}
    )
    version = run.stdout.strip()
    if run.returncode != 0 or tuple(map(int, version.split(".")[:2])) < _MINIMUM_PYTHON:
        return None
    return version


class _Builder:
    """Writes one base into `draft`; its description speaks of `final`."""

    def __init__(
        self,
        draft: Path,
        final: Path,
        state: Path,
        python: _Python,
        tools: Sequence[ToolFolder],
    ) -> None:
        self._draft = draft
        self._final = final
        self._state = state
        self._python = python
        self._tools = tools
        self._root = draft / "root"
        self._mask = draft / "usr"
        self._empty = final / "empty"
        self._trees: list[ReadOnlyTree] = []

    def build(self) -> None:
        """Everything, the description last."""
        for name in _FOLDERS:
            (self._root / name).mkdir()
        (self._draft / "empty").mkdir()
        roots = [Root("/", "root", [str(self._final / "root")])]
        for name in SYSTEM_FOLDERS:
            source = Path("/", name)
            if source.is_symlink():
                (self._root / name).symlink_to(source.readlink())
            elif source.is_dir():
                (self._root / name).mkdir()
                mask = [str(self._final / "usr")] if name == "usr" else []
                roots.append(Root(f"/{name}", name, [*mask, f"/{name}"]))
        if Path(PACKAGES).is_dir():
            (self._root / PACKAGES.lstrip("/")).mkdir()
            roots.append(Root(PACKAGES, "packages", [PACKAGES]))
        self._build_usr_mask()
        self._build_etc()
        self._build_var()
        self._build_python()
        for tool in self._tools:
            source = str(tool.source.resolve())
            self._trees.append(ReadOnlyTree(tool.target, [str(self._empty), source]))
            for name, path in tool.commands.items():
                (self._mask / "local/bin" / name).symlink_to(f"{tool.target}/{path}")
        self._set_modes()
        facts = self._facts(roots)
        write_json(
            self._draft / "base.json",
            {
                "digest": digest(facts),  # pyright: ignore[reportArgumentType]
                "facts": facts,
                "roots": [asdict(root) for root in roots],
                "trees": [asdict(tree) for tree in self._trees],
            },
        )

    def _set_modes(self) -> None:
        """Modes do not depend on the umask of whoever derives the base."""
        for directory, _, files in os.walk(self._draft):
            Path(directory).chmod(0o755)
            for name in files:
                path = Path(directory, name)
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o111 | 0o644)
        for name, mode in _FOLDERS.items():
            (self._root / name).chmod(mode)
        for name in ("shadow", "gshadow"):
            (self._root / "etc" / name).chmod(0o640)

    def _build_usr_mask(self) -> None:
        self._mask.mkdir()
        self._hide(Path("local"))
        for name in _LOCAL_FOLDERS:
            (self._mask / "local" / name).mkdir()
        for path in personal(self._state):
            if path.is_relative_to("/usr") and not path.is_relative_to("/usr/local"):
                self._hide(path.relative_to("/usr"))

    def _hide(self, relative: Path) -> None:
        """Make /usr/`relative` an empty directory that does not merge with the host's."""
        (self._mask / relative).mkdir(parents=True, exist_ok=True)
        self._make_opaque(self._mask / relative)

    def _make_opaque(self, path: Path) -> None:
        """Mark a directory of a lower layer: what lies below it does not show through."""
        name = "trusted" if os.geteuid() == 0 else "user"
        try:
            os.setxattr(path, f"{name}.overlay.opaque", b"y")
        except OSError as error:
            raise unsupported(
                f"The file system of {self._state} keeps no extended attributes: {error}.",
                next="Put state_dir on ext4, xfs or btrfs.",
            ) from error

    def _build_etc(self) -> None:
        etc = self._root / "etc"
        for source in etc_sources():
            _copy_public(source, etc / source.relative_to("/etc"))
        users = _system_accounts("/etc/passwd", 7)
        groups = _system_accounts("/etc/group", 4)
        rows = [":".join((r[0], "x", r[2], r[3], r[0], r[5], r[6])) for r in users]
        (etc / "passwd").write_text("\n".join(rows) + "\n", encoding="utf-8")
        rows = [f"{r[0]}:x:{r[2]}:" for r in groups]
        (etc / "group").write_text("\n".join(rows) + "\n", encoding="utf-8")
        for name, accounts, rest in (
            ("shadow", users, "*:19000:0:99999:7:::"),
            ("gshadow", groups, "*::"),
        ):
            rows = [f"{r[0]}:{rest}" for r in accounts]
            (etc / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
        for name, text in (
            ("hostname", "sandbox\n"),
            ("hosts", "127.0.0.1 localhost sandbox\n"),
            ("resolv.conf", ""),
            ("machine-id", ""),
            ("profile", "export PATH\n"),
        ):
            (etc / name).write_text(text, encoding="utf-8")
        (etc / "mtab").symlink_to("/proc/self/mounts")

    def _build_var(self) -> None:
        (self._root / "var/run").symlink_to("/run")
        (self._root / "var/lock").symlink_to("/run/lock")

    def _build_python(self) -> None:
        programs = self._mask / "local/bin"
        if self._python.kind == "system":
            (programs / "python").symlink_to("/usr/bin/python3")
            return
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        prefix = Path(sys.base_prefix)
        target = self._root / PYTHON_TARGET.lstrip("/")
        for folder in ("bin", f"lib/{name}"):
            (target / folder).mkdir(parents=True)
        shutil.copy2(prefix / "bin" / name, target / "bin" / name)
        for alias in ("python", "python3", name):
            (programs / alias).symlink_to(f"{PYTHON_TARGET}/bin/{name}")
        self._copy_libpython(prefix, target)
        packages = self._draft / "python/site-packages"
        packages.mkdir(parents=True)
        self._make_opaque(packages)
        library = str(prefix / "lib" / name)
        mask = str(self._final / "python")
        self._trees.append(ReadOnlyTree(f"{PYTHON_TARGET}/lib/{name}", [mask, library]))

    def _copy_libpython(self, prefix: Path, target: Path) -> None:
        """A shared interpreter finds its library by a path of the host; give it a public one."""
        multiarch = str(sysconfig.get_config_var("MULTIARCH") or "")
        folders = (f"lib/{multiarch}" if multiarch else "lib", "lib64", "lib")
        public = next(f for f in folders if Path("/usr", f).is_dir())
        for library in sorted((prefix / "lib").glob("libpython3*.so*")):
            if library.is_symlink():
                continue
            shutil.copy2(library, target / "lib" / library.name)
            (self._mask / public).mkdir(parents=True, exist_ok=True)
            link = self._mask / public / library.name
            link.symlink_to(f"{PYTHON_TARGET}/lib/{library.name}")

    def _facts(self, roots: list[Root]) -> dict[str, object]:
        release = platform.freedesktop_os_release()
        return {
            "schema": "practicum.sandbox-base/v1",
            "version": VERSION,
            "machine": platform.machine(),
            "os": f"{release.get('ID', 'linux')} {release.get('VERSION_ID', '')}".strip(),
            "roots": [root.target for root in roots],
            "packages": _packages_digest(),
            "files": _tree_digest(self._root),
            "python": f"{self._python.kind} {self._python.version}",
            "tools": [
                " ".join([tool.target, tool.version, *sorted(tool.commands)]).strip()
                for tool in self._tools
            ],
        }


def _copy_public(source: Path, target: Path) -> None:
    """Copy what everybody on the host may read and what holds no credential."""
    try:
        status = source.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.readlink())
    elif stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IROTH:
        target.mkdir(parents=True, exist_ok=True)
        for child in sorted(source.iterdir()):
            _copy_public(child, target / child.name)
    elif stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IROTH:
        if status.st_size > _MAX_ETC_FILE:
            return
        data = source.read_bytes()
        if _CREDENTIAL_IN_URL.search(data) is None and b"PRIVATE KEY-----" not in data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(stat.S_IMODE(status.st_mode))


def _system_accounts(path: str, width: int) -> list[list[str]]:
    """Rows of the system's own accounts; those of people are left out."""
    rows = [line.split(":") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if len(row) == width and _is_system(row[2])]


def _is_system(number: str) -> bool:
    return number.isdigit() and (int(number) < 1000 or int(number) == 65534)


def _packages_digest() -> str:
    """Digest of the package database, or of the names and sizes of the programs without one."""
    database = Path(PACKAGES, "status")
    if database.exists():
        return "sha256:" + hashlib.sha256(database.read_bytes()).hexdigest()
    hasher = hashlib.sha256()
    for folder in ("/usr/bin", "/usr/sbin", "/usr/lib"):
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            size = entry.stat(follow_symlinks=False).st_size if entry.is_file() else 0
            hasher.update(f"{entry.path}:{size}\n".encode(errors="surrogateescape"))
    return "sha256:" + hasher.hexdigest()


def _tree_digest(root: Path) -> str:
    """Digest of a tree: names, modes, contents and link targets."""
    hasher = hashlib.sha256()
    for directory, folders, names in os.walk(root):
        folders.sort()
        for name in sorted((*folders, *names)):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = str(path.readlink()).encode(errors="surrogateescape")
            else:
                content = path.read_bytes() if stat.S_ISREG(mode) else b""
            relative = os.path.relpath(path, root)
            hasher.update(f"{relative}\0{mode:o}\0".encode(errors="surrogateescape"))
            hasher.update(hashlib.sha256(content).digest())
    return "sha256:" + hasher.hexdigest()
