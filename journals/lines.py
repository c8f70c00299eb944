"""One line of a journal: its bytes, its digest, and whether both still agree."""

import json
import re
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, JsonValue, ValidationError

from specs import canonical
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.journal import JournalEntry, JournalHeader

_SEAL: Final = re.compile(rb',"digest":"(sha256:[0-9a-f]{64})"\}\Z')
_SEAL_SIZE: Final = len(b',"digest":"sha256:"}') + 64


class BadLine(ValueError):
    """Why bytes are not a line of a journal."""


def encode(value: dict[str, JsonValue]) -> bytes:
    """The line of an object without `digest`, its end included."""
    body = canonical.canonical_bytes(value)
    return body[:-1] + b',"digest":"' + canonical.digest_bytes(body).encode() + b'"}\n'


def checked_digest(line: bytes) -> str:
    """The digest of a line (without its end) whose bytes have it.

    Raises:
        BadLine: they have another one, or none is written there.
    """
    seal = _SEAL.search(line, max(0, len(line) - _SEAL_SIZE))
    if seal is None:
        raise BadLine("it does not end in a digest")
    digest = seal[1].decode()
    if canonical.digest_bytes(line[: seal.start()] + b"}") != digest:
        raise BadLine("its bytes are not those that its digest was made of")
    return digest


@dataclass(frozen=True, slots=True)
class Tail:
    """What the next entry follows: number (0 for the header), time and digest of a line."""

    seq: int
    at: str
    digest: str


def tail(line: bytes) -> Tail:
    """What follows a line needs of it.

    Raises:
        BadLine: it is altered.
    """
    digest = checked_digest(line)
    value = json.loads(line)
    return Tail(value.get("seq", 0), value["at"], digest)


def entry(line: bytes) -> JournalEntry:
    """The entry of a line.

    Raises:
        BadLine: it is altered, or no entry that this version knows.
    """
    return _read(JournalEntry, line)


def header(line: bytes) -> JournalHeader:
    """The header of the first line.

    Raises:
        BadLine: it is altered, or no header that this version knows.
    """
    return _read(JournalHeader, line)


def damaged(path: str, place: int, cause: str) -> Conflict:
    """The error of a line that is not what was written there."""
    return Conflict(
        f"The journal {path} is damaged at byte {place}: {cause}.",
        code=ErrorCode.JOURNAL_DAMAGED,
        object=ErrorObject(type="journal", id=path),
        next="Restore journal.jsonl from a copy, or go on in a new journal that names this one.",
    )


def _read[M: BaseModel](model: type[M], line: bytes) -> M:
    checked_digest(line)
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise BadLine(f"this version cannot read it ({where}: {first['msg']})") from None
