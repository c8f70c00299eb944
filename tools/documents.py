"""Documents that an operator hands in: read strictly, with the files that they name.

`@path` reads a file. A profile's `source` files lie beside it; they are embedded as `content`
here, and a path that leaves the profile's folder, also through a link, is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter

from runtime.folders import path_below, text_below
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError
from specs.ids import VersionedName
from specs.paths import user_path
from specs.profile import MAX_FILE_BYTES, Profile
from tools.plugin_sources import plugin_of

MAX_DOCUMENT_BYTES = 8 << 20
OWN_PLUGIN = "practicum:plugin"
"""A plugin's `source` that is this program's own plugin (`practicum plugin path`)."""
_REFERENCE: TypeAdapter[str] = TypeAdapter(VersionedName)


@dataclass(frozen=True, slots=True)
class Read:
    """A document and the folder that its relative paths start from."""

    value: dict[str, JsonValue]
    folder: Path | None
    origin: str


def read_document(value: dict[str, JsonValue] | str, what: str) -> Read | str:
    """The document behind an argument; a reference to a published one is returned as it is.

    Raises:
        InvalidInput: no such file, not JSON, not an object, too large.
    """
    if isinstance(value, dict):
        return Read(value, None, what)
    if not value.startswith("@"):
        return reference(value, what)
    path = user_path(value[1:])
    content = canonical.loads(read_file(value[1:], what), what=what)
    if not isinstance(content, dict):
        raise InvalidInput(
            f"{path} does not hold a JSON object.",
            object=ErrorObject(type=what, id=str(path), pointer="/"),
            next=f"Write the {what} as one JSON object.",
        )
    return Read(content, path.parent, str(path))


def read_file(name: str, what: str) -> bytes:
    """A file of an operator, at most 8 MiB.

    Raises:
        InvalidInput: it cannot be read, or is too large.
    """
    path = user_path(name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"The {what} file {path} cannot be read: {error.strerror or error}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type=what, id=str(path)),
            next="Correct the path; it is relative to the folder of this command.",
        ) from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InvalidInput(
            f"The {what} file {path} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB.",
            code=ErrorCode.BODY_TOO_LARGE,
            object=ErrorObject(type=what, id=str(path)),
            next="Keep documents small; large inputs belong into task packages.",
        )
    return data


def reference(text: str, what: str) -> str:
    """`text` if it is `org/name@version`.

    Raises:
        InvalidInput: `invalid_reference`.
    """
    try:
        return _REFERENCE.validate_python(text)
    except ValueError:
        listing = f"`practicum {what} list` shows what there is."
        if what in ("actor", "judge", "profile"):
            listing = (
                "To use a file, write @file.json; `practicum profile list` shows published ones."
            )
        raise InvalidInput(
            f"{text!r} does not name a {what}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type=what, id=text, pointer=f"/{what}"),
            next=f"Write it as org/name@version in lower case. {listing}",
        ) from None


def embed_sources(read: Read, what: str) -> dict[str, JsonValue]:
    """The profile with every `source` replaced by what it holds: a file's content, or the files of
    a plugin's folder and their digest.

    Raises:
        InvalidInput: a source that is missing, leaves the folder, is no text or is too large.
    """
    document = read.value
    agent = document.get("agent")
    if not isinstance(agent, dict):
        return document
    embedded = dict(agent)
    for part, embed in (("files", _embed), ("plugins", _embed_plugin)):
        entries = agent.get(part)
        if isinstance(entries, list):
            embedded[part] = [
                embed(entry, index, read, what)
                if isinstance(entry, dict) and "source" in entry
                else entry
                for index, entry in enumerate(entries)
            ]
    return {**document, "agent": embedded}


def profile_document(read: Read, what: str = "profile") -> Profile:
    """A profile, its sources embedded, validated."""
    return canonical.validate(Profile, cast(Any, embed_sources(read, what)), what=what)


def _embed(entry: dict[str, JsonValue], index: int, read: Read, what: str) -> dict[str, JsonValue]:
    pointer = f"/agent/files/{index}/source"
    source = entry["source"]
    if not isinstance(source, str) or "content" in entry:
        return entry  # the contract names what is wrong
    try:
        content = text_below(read.folder, source, "profile", MAX_FILE_BYTES)
    except ValueError as error:
        raise _bad_source(what, pointer, source, str(error)) from None
    return {**_without_source(entry), "content": content}


def _embed_plugin(
    entry: dict[str, JsonValue], index: int, read: Read, what: str
) -> dict[str, JsonValue]:
    pointer = f"/agent/plugins/{index}/source"
    source = entry["source"]
    if not isinstance(source, str) or "files" in entry:
        return entry  # the contract names what is wrong
    if source == OWN_PLUGIN:
        from tools.plugin import marketplace

        folder = marketplace()
        path = folder / "plugins" / "claude"
    else:
        try:
            path, folder = path_below(read.folder, source, "profile")
        except ValueError as error:
            raise _bad_source(what, pointer, source, str(error)) from None
    return {**_without_source(entry), **plugin_of(path, folder, pointer, what)}


def _without_source(entry: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in entry.items() if key != "source"}


def _bad_source(what: str, pointer: str, source: str, cause: str) -> PracticumError:
    return InvalidInput(
        f"The source {source!r} of the {what} cannot be used: {cause}.",
        object=ErrorObject(type=what, pointer=pointer),
        next="Put the file beside the profile and name it by a relative path.",
    )
