"""Remove what dead owners left: processes, cgroups, directories. No orphan outlives the next start.

A sandbox's processes and mounts end with its owner by themselves; this makes sure of it and
removes what the kernel keeps.
"""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from runtime.execution.sandbox import cgroups
from runtime.execution.sandbox.state import (
    Process,
    draft_owner,
    read_intent,
    remove_tree,
)


@dataclass(slots=True)
class Swept:
    """What a sweep removed."""

    directories: list[str] = field(default_factory=list[str])
    cgroups: list[str] = field(default_factory=list[str])
    processes: list[int] = field(default_factory=list[int])


def sweep(state_dir: Path) -> Swept:
    """Remove what sandboxes of dead owners left under `state_dir`; safe beside live ones.

    Cgroups of dead owners go too when their state folder was deleted meanwhile.

    It blocks: call it before the event loop starts, or in a thread.
    """
    swept = Swept()
    run = state_dir / "run"
    for directory in sorted(run.iterdir()) if run.is_dir() else ():
        _sweep_one(directory, swept)
    swept.cgroups += cgroups.kill_and_remove(cgroups.orphans())
    return swept


def _sweep_one(directory: Path, swept: Swept) -> None:
    owner = draft_owner(directory)
    if owner is not None:
        if not owner.alive:
            remove_tree(directory)
            swept.directories.append(directory.name)
        return
    intent = read_intent(directory)
    if intent is not None:
        if intent.owner.alive or intent.keep:
            return
        _kill(intent.zygote, swept)
        swept.cgroups += cgroups.kill_and_remove(intent.cgroups)
    if directory.exists():  # its owner may have ended it properly a moment ago
        remove_tree(directory)
        swept.directories.append(directory.name)


def _kill(process: Process | None, swept: Swept) -> None:
    if process is None or not process.alive:
        return
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself
    swept.processes.append(process.pid)
