"""Sealing: a specification with every file that it names read, measured and embedded.

Instructions from a file lose the newline at its end, since an editor put it there. A digest that
the author stated must be that of the bytes; otherwise it is filled in. Documents are digested
and not embedded: they may be large, and the profile does not carry them.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from runtime.folders import file_below, text_below
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model_spec import MAX_DOCUMENT_BYTES, ModelSpec, Resource, Source, Withheld
from specs.profile import MAX_FILE_BYTES, ProfileFile

WHAT = "model-spec"
_CHUNK = 1 << 20
_PLAIN = "Save the file as UTF-8 without a byte order mark."


def seal(value: dict[str, JsonValue], folder: Path | None) -> ModelSpec:
    """The specification that a document states, its files read below `folder`.

    Raises:
        InvalidInput: `invalid_document` or `digest_mismatch`, with a pointer to the place.
    """
    spec = canonical.validate(ModelSpec, cast(Any, value), what=WHAT)
    reader = _Reader(folder)
    document = canonical.document(spec)
    if isinstance(spec.instructions, Source):
        text = reader.source(spec.instructions, "/instructions")
        document["instructions"] = text.removesuffix("\n").removesuffix("\r")
    if isinstance(spec.tools, Source):
        text = reader.source(spec.tools, "/tools")
        document["tools"] = canonical.loads(text, what="tools file")
    deployment = cast(dict[str, JsonValue], document["deployment"])
    if spec.deployment.files:
        deployment["files"] = [
            reader.harness_file(file, f"/deployment/files/{index}")
            for index, file in enumerate(spec.deployment.files)
        ]
    if spec.resources:
        document["resources"] = [
            reader.resource(one, f"/resources/{index}") for index, one in enumerate(spec.resources)
        ]
    if spec.withheld:
        document["withheld"] = [
            reader.withheld(one, f"/withheld/{index}") for index, one in enumerate(spec.withheld)
        ]
    return canonical.validate(ModelSpec, document, what=WHAT)


class _Reader:
    """Reads the files of one specification; every error has its pointer."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def source(self, source: Source, pointer: str) -> str:
        text = self._text(source.source, f"{pointer}/source")
        if text.startswith("\ufeff"):  # nobody sees it, and the model would
            raise _refuse(pointer, f"{source.source} begins with a byte order mark", _PLAIN)
        _same(canonical.digest_bytes(text.encode()), source.digest, source.source, pointer)
        return text

    def harness_file(self, file: ProfileFile, pointer: str) -> JsonValue:
        document = canonical.document(file)
        if file.source is not None:
            del document["source"]
            document["content"] = self._text(file.source, f"{pointer}/source")
        return document

    def resource(self, one: Resource, pointer: str) -> JsonValue:
        document = canonical.document(one)
        if one.kind == "given":
            return document
        if one.kind == "document":
            if one.source is None:
                return document  # known by its digest alone
            digest, size = self._measure(one.source, f"{pointer}/source")
        else:
            text = one.content
            if text is None:
                text = self._text(str(one.source), f"{pointer}/source")
            document["content"] = text
            digest, size = canonical.digest_bytes(text.encode()), len(text.encode())
        document.pop("source", None)
        _same(digest, one.digest, one.path, pointer)
        if one.size not in (None, size):
            raise _refuse(f"{pointer}/size", f"{one.path} has {size} bytes, not {one.size}")
        return {**document, "digest": digest, "size": size}

    def withheld(self, one: Withheld, pointer: str) -> JsonValue:
        document = canonical.document(one)
        text = one.content
        if one.source is not None:
            text = self._text(one.source, f"{pointer}/source")
            del document["source"]
        if text is None:
            return document
        digest = canonical.digest_bytes(text.encode())
        _same(digest, one.digest, one.name, pointer)
        return {**document, "content": text, "digest": digest}

    def _text(self, source: str, pointer: str) -> str:
        return self._found(source, pointer, self._read)

    def _measure(self, source: str, pointer: str) -> tuple[str, int]:
        return self._found(source, pointer, self._digest)

    def _read(self, source: str) -> str:
        text = text_below(self._folder, source, WHAT, MAX_FILE_BYTES)
        if "\x00" in text:
            raise ValueError("it has a NUL character")
        return text

    def _digest(self, source: str) -> tuple[str, int]:
        path = file_below(self._folder, source, WHAT)
        hashing, size = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    hashing.update(chunk)
                    size += len(chunk)
                    if size > MAX_DOCUMENT_BYTES:
                        raise ValueError(f"it is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
        except OSError as error:
            raise ValueError(str(error.strerror)) from None
        return f"sha256:{hashing.hexdigest()}", size

    def _found[T](self, source: str, pointer: str, read: Callable[[str], T]) -> T:
        try:
            return read(source)
        except ValueError as error:
            raise _refuse(pointer, f"the file {source!r} cannot be used: {error}") from None


def _same(actual: str, stated: str | None, name: str, pointer: str) -> None:
    if stated is not None and stated != actual:
        raise _refuse(
            f"{pointer}/digest",
            f"{name} has the digest {actual}",
            "See what changed in the file; then state the new digest, or leave it out.",
            ErrorCode.DIGEST_MISMATCH,
        )


def _refuse(
    pointer: str,
    cause: str,
    step: str = "Put the file beside the specification and name it by a relative path.",
    code: ErrorCode = ErrorCode.INVALID_DOCUMENT,
) -> InvalidInput:
    return InvalidInput(
        f"The {WHAT} cannot be used at {pointer}: {cause}.",
        code=code,
        object=ErrorObject(type=WHAT, pointer=pointer),
        next=step,
    )
