"""Directories of a sandbox on the host, each with a written intent before it exists.

    <state>/run/<name>/intent.json   who owns it (pid, start time, boot), for which trial,
                                     which cgroups it may have made, which fork server runs it
    <state>/base/<digest>/           root file systems derived from the host (a cache)
    <state>/layers/<digest>/         image layers (a cache)

A run directory appears by rename with its intent inside; a half-made one carries its owner in
its name. `sweep` needs nothing else to tell what is dead.
"""

import json
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from specs.base import Contract

INTENT = "intent.json"
_NEW = ".new-"


class Process(Contract):
    """One process, told apart from a later one with the same number."""

    pid: int
    started: int
    """Start time in clock ticks since boot."""
    boot: str
    """The kernel's boot id."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The running process `pid`."""
        return cls(pid=pid, started=_started(pid), boot=boot_id())

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        try:
            return self.boot == boot_id() and self.started == _started(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False

    @property
    def token(self) -> str:
        """A form for file names; `from_token` reads it back."""
        return f"{self.pid}-{self.started}-{self.boot}"

    @classmethod
    def from_token(cls, token: str) -> "Process":
        """The process that `token` names."""
        pid, started, boot = token.split("-", 2)
        return cls(pid=int(pid), started=int(started), boot=boot)


class Intent(Contract):
    """Written before a run directory, its cgroups and its processes exist."""

    schema_: str = "practicum.sandbox-intent/v1"
    owner: Process
    trial: str | None
    """Correlation id of the trial, or None for an image build."""
    cgroups: tuple[str, ...] = ()
    zygote: Process | None = None
    keep: bool = False
    """Left behind on purpose: `sweep` leaves it alone."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One sandbox's directory."""

    path: Path
    intent: Intent

    @classmethod
    def create(cls, state: Path, intent: Intent, name: str) -> "RunDirectory":
        """Make `<state>/run/<name>` with `intent` inside, in one step."""
        run = state / "run"
        run.mkdir(parents=True, exist_ok=True)
        draft = run / f"{_NEW}{intent.owner.token}-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        (draft / INTENT).write_text(intent.model_dump_json(), encoding="utf-8")
        path = run / name
        draft.rename(path)
        return cls(path, intent)

    def keep(self) -> None:
        """Mark the directory as left behind on purpose."""
        intent = self.intent.model_copy(update={"keep": True})
        draft = self.path / f".{INTENT}"
        draft.write_text(intent.model_dump_json(), encoding="utf-8")
        draft.replace(self.path / INTENT)

    def remove(self) -> None:
        """Remove the directory and everything in it."""
        remove_tree(self.path)


def new_name() -> str:
    """A fresh name for a run directory and its cgroups."""
    return secrets.token_hex(6)


def read_intent(directory: Path) -> Intent | None:
    """The intent in a run directory; None when there is none that can be read."""
    try:
        return Intent.model_validate_json((directory / INTENT).read_bytes())
    except (OSError, ValueError):
        return None  # only a machine that crashed leaves one unreadable: its owner is dead


def draft_owner(directory: Path) -> Process | None:
    """The owner of a half-made run directory, by its name; None for any other directory."""
    if not directory.name.startswith(_NEW):
        return None
    return Process.from_token(directory.name.removeprefix(_NEW).rpartition("-")[0])


def remove_tree(path: Path) -> None:
    """Remove a tree that an overlay has written, unreadable directories included."""

    def retry(_: object, name: str, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError):
            return
        entry = Path(name)
        entry.parent.chmod(stat.S_IRWXU)
        if entry.is_dir() and not entry.is_symlink():
            entry.chmod(stat.S_IRWXU)
            remove_tree(entry)
        else:
            entry.unlink()

    shutil.rmtree(path, onexc=retry)


def write_json(path: Path, value: object) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    draft.write_text(json.dumps(value, sort_keys=True), encoding="utf-8")
    draft.replace(path)


def _started(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[19])


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
