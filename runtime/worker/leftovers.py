"""What a dead worker left, removed before anything new begins (invariant 12).

A home has one worker at a time: a lock on a file that the kernel releases with its owner.
Whoever holds it may take everything in the work folder for left over.
"""

import logging
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from runtime.exclusive import acquire
from runtime.execution.sandbox.cache import CACHES, prune
from runtime.execution.sandbox.sweep import sweep
from runtime.execution.workplace import Places
from runtime.home import Home

LOCK_SEC = 10.0
"""How long a predecessor may take to die."""

log = logging.getLogger(__name__)


class Busy(Exception):
    """Another worker serves this home."""


@contextmanager
def alone(home: Home) -> Generator[None]:
    """Be the only worker of a home.

    Raises:
        Busy: another one still lives after `LOCK_SEC`.
    """
    path = home.run / "worker.lock"
    lock = acquire(path, LOCK_SEC)
    if lock is None:
        raise Busy(f"Another worker holds {path}; stop it first.")
    with lock:
        yield


def sweep_leftovers(home: Home) -> None:
    """Remove sandboxes, trial folders and half-unpacked tasks of a dead worker; prune caches."""
    places = Places.of(home)
    swept = sweep(places.sandboxes)
    for path in prune(places.sandboxes / name for name in CACHES):
        log.info("pruned %s", path)
    for name in swept.directories:
        log.info("swept sandbox %s", name)
    for process in swept.processes:
        log.info("killed orphan process %d", process)
    if places.trials.exists():
        for folder in places.trials.iterdir():
            shutil.rmtree(folder)
            log.info("swept trial folder %s", folder.name)
    for draft in places.tasks.glob(".new-*"):
        shutil.rmtree(draft)
    for folder in (places.trials, places.tasks, places.sandboxes):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
