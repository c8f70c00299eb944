"""Objects through grants: ask for permission, send the bytes where the grant says, and check
every digest on the way back."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import httpx

from runtime.client.segment import segment
from runtime.client.transport import Content, Transport, problem_error
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput, Unavailable
from specs.worker_api import UploadGrant, UploadRequest

_CHUNK = 1 << 20


class ObjectClient:
    """What every role may do with objects; the role clients inherit it."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def upload(self, data: bytes, *, digest: str | None = None) -> str:
        """Create an object unless it is there, and return its digest; harmless to repeat.

        `digest` is what the bytes must have, where the caller knows it already. On cancel
        the store keeps nothing, or the whole object.

        Raises:
            InvalidInput: `digest_mismatch`; nothing was stored.
        """
        name = digest or canonical.digest_bytes(data)
        grant = await self._grant(name, len(data))
        if not grant.present:
            await self._put(grant, data, len(data))
        return name

    async def upload_file(self, path: Path, *, digest: str | None = None) -> str:
        """`upload` of a file, streamed."""
        name = digest or await anyio.to_thread.run_sync(_digest_file, path)
        size = (await anyio.Path(path).stat()).st_size
        grant = await self._grant(name, size)
        if not grant.present:
            await self._put(grant, _read(path), size)
        return name

    async def object(self, digest: str) -> bytes:
        """The bytes of an object, checked against its digest.

        Raises:
            NotFound: no such object, or the org holds no reference to it.
            InvalidInput: `digest_mismatch`: what arrived is not what the digest names.
        """
        response = await self.transport.send("GET", f"/v1/objects/{segment(digest)}")
        return checked(response.content, digest, "object", digest)

    async def object_range(self, digest: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`; a part cannot be checked against the digest."""
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        return (
            await self.transport.send("GET", f"/v1/objects/{segment(digest)}", headers=headers)
        ).content

    async def _grant(self, digest: str, size: int) -> UploadGrant:
        return await self.transport.call(
            "POST",
            "/v1/uploads",
            UploadGrant,
            body=UploadRequest(digest=digest, size=size),
            idempotent=True,
        )

    async def _put(self, grant: UploadGrant, content: Content, size: int) -> None:
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(size),
            **grant.headers,
        }
        if grant.url.startswith("/"):
            await self.transport.send(grant.method, grant.url, content=content, headers=headers)
            return
        async with httpx.AsyncClient(trust_env=False) as client:  # never with our bearer key
            try:
                response = await client.request(
                    grant.method, grant.url, content=content, headers=headers
                )
            except httpx.TransportError as error:
                raise Unavailable(
                    f"The object store cannot be reached: {error}.",
                    code=ErrorCode.STORE_UNAVAILABLE,
                    next="Try again.",
                ) from error
        if not response.is_success:
            raise problem_error(response)


def checked(content: bytes, digest: str, kind: str, name: str) -> bytes:
    """`content` if it has `digest`.

    Raises:
        InvalidInput: `digest_mismatch`.
    """
    actual = canonical.digest_bytes(content)
    if actual != digest:
        raise InvalidInput(
            f"The bytes of {kind} {name} have digest {actual} and not {digest}:"
            " they were changed after publication.",
            code=ErrorCode.DIGEST_MISMATCH,
            object=ErrorObject(type=kind, id=name),
            next="Do not use it. Restore the stored bytes, or publish a new version.",
        )
    return content


async def _read(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while chunk := await file.read(_CHUNK):
            yield chunk


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
