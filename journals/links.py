"""Links as people write them: `run:run_…`, `dataset:org/name@v1`, `file:notes.txt`, `skill:FOLDER`.

A file or a skill is named by its absolute path, and its digest is taken at that moment: of a file
the SHA-256 of its bytes, of a skill that of the package of its folder (`specs.package`), so that
an entry says which revision it was about. A model specification that is given as a path is a file
too; `model-spec:org/name` names it without a revision.
"""

import hashlib
from pathlib import Path
from typing import get_args

from pydantic import JsonValue, TypeAdapter

from specs import canonical, package
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.ids import Name, VersionedName
from specs.journal import Link, LinkType
from specs.paths import user_path

TYPES: tuple[str, ...] = get_args(LinkType)
FILES = frozenset({"file", "skill", "model-spec"})
"""Types whose id may be a path."""
_DATASET: TypeAdapter[str] = TypeAdapter(VersionedName)
_SPEC: TypeAdapter[str] = TypeAdapter(Name)


def parse(text: str, *, with_digest: bool = True) -> Link:
    """The link that `type:id` names; without digests it names every revision, as a filter does.

    Blocks: files are read.

    Raises:
        InvalidInput: `invalid_reference`: no such type, not an id of it, a file that is not there.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in TYPES or not name:
        raise _bad(text, f"write it as type:id; the types are {', '.join(TYPES)}")
    value: dict[str, JsonValue] = {"type": kind, "id": name}
    path = user_path(name) if kind in FILES else None
    if path and kind == "skill" and path.name == "SKILL.md":
        path = path.parent
    if path and (kind != "model-spec" or path.is_file()):
        value["id"] = str(path.absolute())
        if with_digest:
            value["digest"] = _skill(text, path) if kind == "skill" else _file_digest(text, path)
    elif kind == "dataset" and not _is(_DATASET, name):
        raise _bad(text, "a dataset is named as org/name@version")
    elif kind == "model-spec" and not _is(_SPEC, name):
        raise _bad(text, "it is neither a file that is there nor org/name")
    try:
        return canonical.validate(Link, value, what="link")
    except InvalidInput as error:
        raise _bad(text, error.problem.detail) from None


def changed(link: Link) -> bool:
    """Whether a linked file or skill is gone or another revision now. Blocks: it is read."""
    if link.digest is None or link.type not in FILES:
        return False
    try:
        return parse(f"{link.type}:{link.id}").digest != link.digest
    except InvalidInput:
        return True


def _file_digest(text: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _bad(text, f"{path}: {error.strerror or error}") from None


def _skill(text: str, folder: Path) -> str:
    if not (folder / "SKILL.md").is_file():
        raise _bad(text, f"{folder} holds no SKILL.md")
    try:
        return canonical.digest_bytes(package.pack(folder))
    except InvalidInput as error:
        raise _bad(text, error.problem.detail) from None


def _is(form: TypeAdapter[str], name: str) -> bool:
    try:
        form.validate_python(name)
    except ValueError:
        return False
    return True


def _bad(text: str, cause: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r} is not a link: {cause}.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="link", id=text[:512]),
        next="Write type:id, such as run:run_… with the whole id, or file:PATH.",
    )
