"""Adapters and trainer states on disk: create-only, durable, named by digest or by the caller.

A file appears complete and under its final name, or not at all: temporary file, fsync, `link`
(which fails if the name exists), fsync of the folder. A process that dies leaves only
temporary files, which the next one removes at its start.
"""

import hashlib
import os
import re
import secrets
from pathlib import Path

from runtime.compute.protocol import SavedBytes
from specs.canonical import digest_bytes
from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput, NotFound

_STATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TEMPORARY = ".tmp-"


class Store:
    """The files below one state folder. Synchronous: callers run it in a thread."""

    def __init__(self, folder: Path) -> None:
        self._adapters = folder / "adapters"
        self._states = folder / "states"
        for part in (self._adapters, self._states):
            part.mkdir(parents=True, exist_ok=True)
            for left in part.glob(f"{_TEMPORARY}*"):
                left.unlink(missing_ok=True)

    def has_adapter(self, digest: str) -> bool:
        """Whether the adapter's bytes are here."""
        return self._adapter_path(digest).is_file()

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
        _create(path, data)

    def get_adapter(self, digest: str) -> bytes:
        """An adapter's bytes.

        Raises:
            NotFound: `adapter_missing`.
        """
        try:
            return self._adapter_path(digest).read_bytes()
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
        _create(self._adapter_path(saved.digest), data)
        return saved

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
        return self._adapters / f"{digest.removeprefix('sha256:')}.safetensors"

    def _state_path(self, name: str) -> Path:
        if not _STATE_NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} cannot name a trainer state.",
                object=ErrorObject(type="trainer_state", id=name),
                next="Use letters, digits, '.', '_' and '-', at most 128.",
            )
        return self._states / f"{name}.safetensors"


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
