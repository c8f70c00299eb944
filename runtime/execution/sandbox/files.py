"""Files into and out of a running sandbox, as streams that PID 1's own code makes and reads."""

import io
import json
import secrets
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from anyio import to_thread

from runtime.execution.sandbox.channel import BoundedOutput, Outcome, Pump, Streams, drain_to
from runtime.execution.sandbox.errors import SandboxFailed
from runtime.execution.sandbox.extract import Extracted, Select, extract
from runtime.execution.sandbox.sandboxd import transfer
from runtime.execution.sandbox.sandboxd.transfer import Bounds
from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound

_ERROR_BYTES = 1 << 20


class Transfer:
    """One transfer: the request for PID 1, the streams for it, and the judgement of its end."""

    def __init__(self, path: str, request: dict[str, Any]) -> None:
        self.request = request
        self.streams = Streams()
        self._path = path
        self._errors = BoundedOutput(_ERROR_BYTES)
        self._failure: Exception | None = None
        self._draft: Path | None = None
        self._destination: Path | None = None
        self.streams.stderr = drain_to(self._errors.write)

    def in_thread(self, work: Callable[[BinaryIO], None], mode: str) -> Pump:
        """A stream that is read or written by `work` in a thread."""

        def run(descriptor: int) -> None:
            try:
                with open(descriptor, mode) as file:
                    work(file)  # pyright: ignore[reportArgumentType]
            except BrokenPipeError:
                return  # the other side ended: its exit status tells
            except (OSError, tarfile.TarError) as error:
                self._failure = error

        async def stream(descriptor: int) -> None:
            await to_thread.run_sync(run, descriptor)

        return stream

    def into(self, destination: Path) -> Path:
        """A draft beside `destination` that takes its place if the transfer succeeds."""
        name = f".{destination.name[:100]}.{secrets.token_hex(4)}.part"
        self._destination = destination
        self._draft = destination.with_name(name)
        return self._draft

    def discard(self) -> None:
        """Remove what an unfinished transfer wrote."""
        if self._draft is not None:
            self._draft.unlink(missing_ok=True)

    def finish(self, outcome: Outcome) -> list[tuple[str, str]]:
        """Members that the other side left out, or the error that ended it."""
        lines = self._errors.value().decode(errors="replace").splitlines()
        if outcome.code == 0 and self._failure is None:
            if self._draft is not None and self._destination is not None:
                self._draft.replace(self._destination)
            return [_left_out(line) for line in lines]
        text = "; ".join(lines) or str(self._failure or f"status {outcome.code}")
        raise _error(self._path, outcome.code, text)


def put(target: str, write: Callable[[tarfile.TarFile], None]) -> Transfer:
    """Fill the directory `target` with what `write` adds to an archive."""
    transfer_ = Transfer(target, {"op": "put", "target": target})

    def work(file: BinaryIO) -> None:
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            write(archive)

    transfer_.streams.stdin = transfer_.in_thread(work, "wb")
    return transfer_


def put_tree(source: Path, target: str) -> Transfer:
    """Copy the contents of a directory of the host into `target`; all owned by root."""
    return put(target, lambda archive: archive.add(source, ".", filter=_as_root))


def put_file(source: Path, target: str, mode: int | None = None) -> Transfer:
    """Copy one file of the host to the path `target`."""
    path = PurePosixPath(target)
    if target.endswith("/"):
        path = path / source.name

    def write(archive: tarfile.TarFile) -> None:
        with source.open("rb") as file:
            member = _as_root(archive.gettarinfo(arcname=path.name, fileobj=file))
            member.type = tarfile.REGTYPE
            member.mode = member.mode if mode is None else mode
            archive.addfile(member, file)

    return put(str(path.parent), write)


def put_bytes(data: bytes, target: str, mode: int = 0o644) -> Transfer:
    """Write `data` to the path `target`."""
    path = PurePosixPath(target)

    def write(archive: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(path.name)
        member.size, member.mode = len(data), mode
        archive.addfile(member, io.BytesIO(data))

    return put(str(path.parent), write)


def get_tree(
    source: str, destination: Path, bounds: Bounds, select: Select | None, result: Extracted
) -> Transfer:
    """Copy the directory `source` below `destination`; fills `result`."""
    request = {"op": "get", "source": source, "bounds": _as_dict(bounds)}
    transfer_ = Transfer(source, request)

    def work(file: BinaryIO) -> None:
        try:
            got = extract(file, destination, bounds, select)
        finally:
            while file.read(1 << 16):  # never let the other side block
                pass
        result.files, result.bytes = got.files, got.bytes
        result.left_out += got.left_out

    transfer_.streams.stdout = transfer_.in_thread(work, "rb")
    return transfer_


def get_file(source: str, destination: Path, bounds: Bounds) -> Transfer:
    """Copy one regular file to `destination`, replacing what is there, never through a link."""
    request = {"op": "read", "source": source, "bounds": _as_dict(bounds)}
    transfer_ = Transfer(source, request)

    def work(file: BinaryIO) -> None:
        destination.parent.mkdir(parents=True, exist_ok=True)
        written = 0
        with transfer_.into(destination).open("xb") as out:
            while chunk := file.read(1 << 20):
                written += len(chunk)
                if written <= bounds.file_bytes:
                    out.write(chunk)
        if written > bounds.file_bytes:
            raise OSError("the file grew beyond the limit while it was read")

    transfer_.streams.stdout = transfer_.in_thread(work, "rb")
    return transfer_


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _as_dict(bounds: Bounds) -> dict[str, int]:
    return {
        "file_bytes": bounds.file_bytes,
        "total_bytes": bounds.total_bytes,
        "members": bounds.members,
    }


def _left_out(line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        return str(row["name"]), str(row["reason"])
    except (ValueError, KeyError, TypeError):
        return line, "reported by the sandbox"


def _error(path: str, code: int, text: str) -> NotFound | InvalidInput | SandboxFailed:
    where = ErrorObject(type="path", id=path)
    match code:
        case transfer.MISSING:
            return NotFound(
                f"The sandbox has no {path}.", object=where, next="Check what the task writes."
            )
        case transfer.NOT_A_FILE:
            return InvalidInput(
                f"{path} in the sandbox is of the wrong kind: only files and directories leave it.",
                code=ErrorCode.SANDBOX_UNSUPPORTED,
                object=where,
                next="Have the task write a regular file there.",
            )
        case transfer.TOO_LARGE:
            return InvalidInput(
                f"{path} in the sandbox is larger than max_download_mb.",
                code=ErrorCode.BODY_TOO_LARGE,
                object=where,
                next="Write less, or raise max_download_mb.",
            )
        case _:
            return SandboxFailed(f"Moving {path} failed: {text}", object=where)
