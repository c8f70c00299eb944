"""Adapters and trainer states on disk: create-only, durable, named by digest or by the caller.

A file appears complete and under its final name, or not at all: temporary file, fsync, `link`
(which fails if the name exists), fsync of the folder. A process that dies leaves only
temporary files, which the next one removes at its start.

Adapters are a cache: what is recorded of a run names only those whose bytes are in the object
store as well, and whoever opens one brings it first. So they take bounded room, and the least
recently used go; when a file was last used is its modification time.
"""

import hashlib
import os
import re
import secrets
import threading
import time
from pathlib import Path

from runtime.compute.protocol import SavedBytes
from specs.canonical import digest_bytes
from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput, NotFound

_STATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TEMPORARY = ".tmp-"
_SUFFIX = ".safetensors"

ADAPTER_BYTES = 8 << 30
"""Room that adapters may take."""
IN_USE_S = 3600.0
"""For so long an adapter stays after its last use, whatever room it takes: it may be one that
is not uploaded yet, or that a call is about to open."""


class Store:
    """The files below one state folder. Synchronous: callers run it in a thread.

    One process has the folder; its threads may call at the same time.
    """

    def __init__(self, folder: Path, *, adapter_bytes: int = ADAPTER_BYTES) -> None:
        self._adapter_bytes = adapter_bytes
        self._using = threading.Lock()
        self._adapters = folder / "adapters"
        self._states = folder / "states"
        for part in (self._adapters, self._states):
            part.mkdir(parents=True, exist_ok=True)
            for left in part.glob(f"{_TEMPORARY}*"):
                left.unlink(missing_ok=True)
        self._make_room()

    def has_adapter(self, digest: str) -> bool:
        """Whether the adapter's bytes are here; if so they stay for a while."""
        return self._use(self._adapter_path(digest))

    def put_adapter(self, digest: str, data: bytes) -> None:
        """Keep an adapter.

        Raises:
            InvalidInput: `digest_mismatch`.
        """
        path = self._adapter_path(digest)
        if digest_bytes(data) != digest:
            raise InvalidInput(
                f"The bytes have digest {digest_bytes(data)}, not {digest}.",
                code=ErrorCode.DIGEST_MISMATCH,
                object=ErrorObject(type="adapter", id=digest),
                next="Send the bytes of that adapter.",
            )
        self._keep(path, data)

    def get_adapter(self, digest: str) -> bytes:
        """An adapter's bytes.

        Raises:
            NotFound: `adapter_missing`.
        """
        path = self._adapter_path(digest)
        self._use(path)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f"Adapter {digest} is not here.",
                code=ErrorCode.ADAPTER_MISSING,
                object=ErrorObject(type="adapter", id=digest),
                next="Put its bytes, then repeat the call.",
            ) from None

    def add_adapter(self, data: bytes) -> SavedBytes:
        """Keep an adapter under the digest of its bytes."""
        saved = SavedBytes(digest_bytes(data), len(data))
        self._keep(self._adapter_path(saved.digest), data)
        return saved

    def _use(self, path: Path) -> bool:
        """Note that an adapter is used now; False if it is not here."""
        with self._using:
            try:
                os.utime(path)
            except FileNotFoundError:
                return False
        return True

    def _keep(self, path: Path, data: bytes) -> None:
        if not self._use(path):
            _create(path, data)
            self._make_room()

    def _make_room(self) -> None:
        """Remove the least recently used adapters that are too many, but none in use."""
        with self._using:
            found = [(path, path.stat()) for path in self._adapters.glob(f"*{_SUFFIX}")]
            found.sort(key=lambda each: each[1].st_mtime)
            excess = sum(stat.st_size for _, stat in found) - self._adapter_bytes
            unused = time.time() - IN_USE_S
            for path, stat in found:
                if excess <= 0 or stat.st_mtime > unused:
                    return
                path.unlink(missing_ok=True)
                excess -= stat.st_size

    def save_state(self, name: str, data: bytes) -> SavedBytes:
        """Keep a new state.

        Raises:
            Conflict: `state_conflict`: there is one of that name.
        """
        if not _create(self._state_path(name), data):
            raise _state_conflict(name, "exists already")
        return SavedBytes(digest_bytes(data), len(data))

    def put_state(self, name: str, data: bytes) -> SavedBytes:
        """Bring a state back; an equal one is fine.

        Raises:
            Conflict: `state_conflict`: there is another of that name.
        """
        saved = SavedBytes(digest_bytes(data), len(data))
        if not _create(self._state_path(name), data) and self.find_state(name) != saved:
            raise _state_conflict(name, "exists with other bytes")
        return saved

    def find_state(self, name: str) -> SavedBytes | None:
        """Digest and size of a state, or None."""
        try:
            with self._state_path(name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
                return SavedBytes(f"sha256:{found}", file.tell())
        except FileNotFoundError:
            return None

    def get_state(self, name: str) -> bytes:
        """A state's bytes.

        Raises:
            NotFound: there is none of that name.
        """
        try:
            return self._state_path(name).read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f"There is no saved trainer state {name!r}.",
                object=ErrorObject(type="trainer_state", id=name),
                next="Put its bytes from the object store, then repeat the call.",
            ) from None

    def drop_state(self, name: str) -> None:
        """Forget a state; harmless when there is none."""
        path = self._state_path(name)
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def _adapter_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise InvalidInput(
                f"{digest!r} is not a digest.",
                object=ErrorObject(type="adapter", id=digest),
                next="Name an adapter as sha256:<64 hex digits>.",
            )
        return self._adapters / f"{digest.removeprefix('sha256:')}{_SUFFIX}"

    def _state_path(self, name: str) -> Path:
        if not _STATE_NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} cannot name a trainer state.",
                object=ErrorObject(type="trainer_state", id=name),
                next="Use letters, digits, '.', '_' and '-', at most 128.",
            )
        return self._states / f"{name}{_SUFFIX}"


def _create(path: Path, data: bytes) -> bool:
    """Create `path` durably; False (and unchanged) if it exists."""
    temporary = path.parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            _sync_folder(path.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _state_conflict(name: str, why: str) -> Conflict:
    return Conflict(
        f"The trainer state {name!r} {why}.",
        code=ErrorCode.STATE_CONFLICT,
        object=ErrorObject(type="trainer_state", id=name),
        next="Choose another name, or read the state that is there.",
    )
